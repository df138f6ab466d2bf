//! How a request to a file or block device becomes system calls.
//!
//! [`Work`] owns the request and is a small machine: [`next`](Work::next) says which call it wants,
//! the driver has it carried out and tells the result with [`done`](Work::done), until `next` says
//! [`Call::Finished`]; then [`finish`](Work::finish) gives the completion. A ring submits the calls
//! one by one; a thread of the disk pool calls [`run`](Work::run), which makes them all.
//! [`Call::Blocking`] is only for such a thread: compare and verify, whose scratch memory is
//! bounded by the number of threads, BLKDISCARD, and the bounce of an access that the kernel finds
//! misaligned.
//!
//! ```text
//!   read          preadv ... until all is there
//!   write         pwritev2 (RWF_DSYNC if durable) ... until all is there [fdatasync where RWF_DSYNC is refused]
//!   flush         fdatasync
//!   discard       fallocate(PUNCH_HOLE) for each range; a block device: BLKDISCARD
//!   write zeroes  fallocate(ZERO_RANGE or PUNCH_HOLE), or pwritev2 of zeros where refused [fdatasync if durable]
//! ```
//!
//! A sync that fails, whatever the kernel calls it, ends the request *unknown*: what was written
//! may be gone although nobody wrote it again. A write with RWF_DSYNC fails in one of two places,
//! so it is made again without: if that succeeds, it was the sync.
//!
//! A read that meets the end of the file within the disk's size (somebody cut the file) fails:
//! zeros would be wrong data. Memory shared with the kernel: the iovecs point into pages of the
//! request's buffer, which stays in `Work` until `finish`; whoever submitted a call must not drop
//! or finish the work before the kernel's completion came.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use block::{Completion, Extent, Failure, Memory, Operation, Outcome, Request, Sought};
use libc::iovec;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::Hold;
use super::calls::{Bytes, SCRATCH, Scratch, advance, perform, write_all};
use super::file::{FileDisk, read_exact};
use crate::engine::VECTORS_MAX;
use crate::memory::ShardMemory;
use crate::memory::shard_memory::difference;

/// Zeros written by one call at most, where the kernel cannot clear a range itself.
const ZEROS_MAX: u64 = 1 << 20;

#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);
static ZEROS: Zeros = Zeros([0; 64 << 10]);

/// A system call that a piece of work wants, on [`Work::fd`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    /// `preadv`. The result is the bytes read.
    Read { offset: u64, iovecs: &'a [iovec] },
    /// `pwritev2`, with RWF_DSYNC if durable. The result is the bytes written.
    Write { offset: u64, iovecs: &'a [iovec], durable: bool },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate { mode: FallocateFlags, offset: u64, length: u64 },
    /// Not for a ring: have a thread that may sleep call [`Work::run`].
    Blocking,
    /// Nothing: all is done, call [`Work::finish`].
    Finished,
}

/// The answer of finished work.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) completion: Completion,
    /// How to hold it back (an instrument); not at all for real disks.
    pub(crate) hold: Hold,
    /// The list of vectors, for [`ShardMemory::give_vectors`].
    pub(crate) vectors: Vec<iovec>,
}

/// A request on its way through the kernel.
#[derive(Debug)]
pub(crate) struct Work {
    disk: Arc<FileDisk>,
    request: Request,
    stage: Stage,
    iovecs: Vec<iovec>,
    /// Whether RWF_DSYNC was refused, so that a sync has to follow.
    sync_after: bool,
    /// How a write with RWF_DSYNC failed, which is made again without.
    without_sync: Option<Errno>,
    verdict: Option<Outcome>,
    hold: Hold,
}

// SAFETY: the iovecs point into pages that the request's buffer owns or leases (rules in
// `memory::arena`), or into `ZEROS`; neither belongs to a thread, and the work is the only one that
// uses them.
unsafe impl Send for Work {}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Transfer(Transfer),
    /// Range `index` of a discard.
    Discard {
        index: usize,
    },
    /// The kernel is asked to clear the extent.
    Clear {
        mode: FallocateFlags,
    },
    /// Zeros are written from `at` on.
    Zeros {
        at: u64,
    },
    /// Everything is with the kernel and has to become durable.
    Sync,
    /// A thread does it.
    Blocking(Job),
    /// All is done.
    Done(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Job {
    Compare,
    Verify,
    /// lseek with SEEK_DATA or SEEK_HOLE.
    Seek,
    /// BLKDISCARD of range `index` and all after it.
    Discard,
    /// A read or write that the kernel found misaligned, through aligned memory.
    Bounce(Transfer),
}

/// Bytes from `offset` on are moved by what is left in the iovecs, from the `first` on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Transfer {
    write: bool,
    durable: bool,
    offset: u64,
    first: usize,
}

impl Work {
    /// A request that is within the disk's size and that the disk does not refuse.
    pub(super) fn new(
        disk: &Arc<FileDisk>,
        memory: &mut ShardMemory,
        mut request: Request,
    ) -> Work {
        let mut iovecs = memory.take_vectors();
        let transfer =
            |write, durable, offset| Stage::Transfer(Transfer { write, durable, offset, first: 0 });
        let stage = match &mut request.operation {
            Operation::Read { extent, buffer } => {
                // A leased page cannot be filled.
                if buffer.pages().iter().any(|page| page.is_leased()) {
                    memory.strip(buffer);
                }
                memory.iovecs_mut(buffer, 0, buffer.len(), &mut iovecs);
                transfer(false, false, extent.offset.0)
            }
            Operation::Write { extent, buffer, durable } => {
                memory.iovecs(buffer, 0, buffer.len(), &mut iovecs);
                transfer(true, *durable, extent.offset.0)
            }
            Operation::Flush => Stage::Sync,
            Operation::Discard { extents } => {
                Extent::merge(extents);
                match disk.is_device() {
                    true => Stage::Blocking(Job::Discard),
                    false => Stage::Discard { index: 0 },
                }
            }
            Operation::WriteZeroes { deallocate, .. } => {
                let how = match *deallocate {
                    true => FallocateFlags::PUNCH_HOLE,
                    false => FallocateFlags::ZERO_RANGE,
                };
                Stage::Clear { mode: how | FallocateFlags::KEEP_SIZE }
            }
            Operation::Compare { buffer, .. } => {
                memory.materialize(buffer);
                memory.iovecs(buffer, 0, buffer.len(), &mut iovecs);
                Stage::Blocking(Job::Compare)
            }
            Operation::Verify { .. } => Stage::Blocking(Job::Verify),
            Operation::Seek { sought, .. } => match disk.is_device() {
                true => Stage::Done(sought.in_data()),
                false => Stage::Blocking(Job::Seek),
            },
            Operation::CompareAndWrite { .. } => {
                Stage::Done(Outcome::NotDone(Failure::Unsupported))
            }
        };
        let mut work = Work {
            disk: disk.clone(),
            request,
            stage,
            iovecs,
            sync_after: false,
            without_sync: None,
            verdict: None,
            hold: Hold::default(),
        };
        if work.length() == 0 && !matches!(work.stage, Stage::Sync | Stage::Discard { .. }) {
            work.stage = Stage::Done(Outcome::Done);
        }
        work.end_discard();
        work
    }

    /// What an instrument makes of it.
    pub(super) fn instrument(&mut self, verdict: Option<Outcome>, hold: Hold) {
        self.verdict = verdict;
        self.hold = hold;
    }

    /// Whether its calls may sleep where they are handed to a ring, so that a thread is to make
    /// them.
    #[inline]
    pub(crate) fn sleeps(&self) -> bool {
        self.disk.sleeps()
    }

    /// Ends work of which nothing was begun.
    pub(crate) fn give_up(&mut self, failure: Failure) {
        self.stage = Stage::Done(Outcome::NotDone(failure));
    }

    /// The file that the calls are for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self.request.operation {
            Operation::Flush => self.disk.flushes(),
            _ => self.disk.fd(),
        }
    }

    /// The call that is wanted next. Its iovecs stay where they are until [`done`](Self::done),
    /// also when the work moves.
    pub(crate) fn next(&self) -> Call<'_> {
        match self.stage {
            Stage::Transfer(Transfer { write, durable, offset, first }) => {
                let last = self.iovecs.len().min(first + VECTORS_MAX);
                let iovecs = &self.iovecs[first..last];
                match write {
                    true => Call::Write { offset, iovecs, durable: durable && !self.sync_after },
                    false => Call::Read { offset, iovecs },
                }
            }
            Stage::Zeros { at } => Call::Write { offset: at, iovecs: &self.iovecs, durable: false },
            Stage::Sync => Call::Sync,
            Stage::Discard { index } => {
                let Operation::Discard { extents } = &self.request.operation else {
                    unreachable!("only a discard has this stage")
                };
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (offset, length) = (extents[index].offset.0, extents[index].length.0);
                Call::Allocate { mode, offset, length }
            }
            Stage::Clear { mode } => {
                let (offset, length) = (self.offset(), self.length());
                Call::Allocate { mode, offset, length }
            }
            Stage::Blocking(_) => Call::Blocking,
            Stage::Done(_) => Call::Finished,
        }
    }

    /// Tells the result of the call that [`next`](Self::next) wanted, as the kernel gave it: a
    /// count, or a negative error number.
    pub(crate) fn done(&mut self, result: i64) {
        let result = match result {
            0.. => Ok(result as u64),
            _ => Err(Errno::from_raw_os_error(-result as i32)),
        };
        if result == Err(Errno::INTR) {
            return;
        }
        self.stage = match (self.stage, result) {
            (Stage::Transfer(transfer), Ok(moved)) => self.transferred(transfer, moved),
            (Stage::Transfer(transfer), Err(Errno::INVAL)) if self.disk.is_direct() => {
                Stage::Blocking(Job::Bounce(transfer))
            }
            (Stage::Transfer(transfer), Err(Errno::OPNOTSUPP))
                if transfer.durable && !self.sync_after =>
            {
                self.sync_after = true;
                self.stage
            }
            (Stage::Transfer(transfer), Err(errno))
                if transfer.durable && !self.sync_after && errno != Errno::CANCELED =>
            {
                Stage::Transfer(self.without_sync(transfer, errno))
            }
            (Stage::Discard { index }, Ok(_)) => Stage::Discard { index: index + 1 },
            (Stage::Clear { .. }, Ok(_)) => self.cleared(),
            (Stage::Clear { .. }, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
                self.zeros(self.offset())
            }
            (Stage::Zeros { .. }, Ok(0)) => self.failed(true, Errno::NOSPC),
            (Stage::Zeros { at }, Ok(moved)) => self.zeros(at + moved),
            (Stage::Sync, Ok(_)) => Stage::Done(Outcome::Done),
            (Stage::Sync, Err(errno)) => self.unsynced(errno),
            (Stage::Transfer(transfer), Err(errno)) => self.failed(transfer.write, errno),
            (_, Err(errno)) => self.failed(true, errno),
            (Stage::Blocking(_) | Stage::Done(_), Ok(_)) => {
                panic!("a result of {result:?} for {:?}, which wanted no call", self.stage)
            }
        };
        self.end_discard();
    }

    /// Makes all calls; sleeps in them. For threads that may, and for tests.
    pub(crate) fn run(&mut self) {
        loop {
            let result = match self.next() {
                Call::Finished => return,
                Call::Blocking => {
                    let Stage::Blocking(job) = self.stage else { unreachable!("seen by next") };
                    self.stage = self.block(job);
                    continue;
                }
                call => perform(self.fd(), call),
            };
            self.done(match result {
                Ok(count) => count as i64,
                Err(errno) => -i64::from(errno.raw_os_error()),
            });
        }
    }

    /// The answer; the work must be finished.
    pub(crate) fn finish(self) -> Finished {
        let Stage::Done(outcome) = self.stage else {
            panic!("work was finished while it wanted {:?}", self.stage)
        };
        let outcome = self.verdict.unwrap_or(outcome);
        Finished {
            completion: self.request.complete(outcome),
            hold: self.hold,
            vectors: self.iovecs,
        }
    }

    fn offset(&self) -> u64 {
        self.request.operation.extent().map_or(0, |extent| extent.offset.0)
    }

    fn length(&self) -> u64 {
        match &self.request.operation {
            Operation::Discard { extents } => extents.iter().map(|extent| extent.length.0).sum(),
            other => other.extent().map_or(0, |extent| extent.length.0),
        }
    }

    fn durable(&self) -> bool {
        matches!(
            self.request.operation,
            Operation::Write { durable: true, .. } | Operation::WriteZeroes { durable: true, .. }
        )
    }

    /// The last range behind it, a discard is done.
    fn end_discard(&mut self) {
        if let (Stage::Discard { index }, Operation::Discard { extents }) =
            (self.stage, &self.request.operation)
            && index == extents.len()
        {
            self.stage = Stage::Done(Outcome::Done);
        }
    }

    fn transferred(&mut self, transfer: Transfer, moved: u64) -> Stage {
        if moved == 0 {
            // Cut below us, or full.
            return match transfer.write {
                true => self.failed(true, Errno::NOSPC),
                false => self.failed(false, Errno::IO),
            };
        }
        let first = advance(&mut self.iovecs, transfer.first, moved);
        if first < self.iovecs.len() {
            return Stage::Transfer(Transfer {
                offset: transfer.offset + moved,
                first,
                ..transfer
            });
        }
        self.moved(transfer.durable && self.sync_after)
    }

    /// All bytes are where they should be; a sync may have to follow.
    fn moved(&self, sync: bool) -> Stage {
        match self.without_sync {
            Some(errno) => self.unsynced(errno),
            None if sync => Stage::Sync,
            None => Stage::Done(Outcome::Done),
        }
    }

    /// A transfer with RWF_DSYNC failed: what of it is made again to see whether it was the sync.
    fn without_sync(&mut self, transfer: Transfer, errno: Errno) -> Transfer {
        self.without_sync = Some(errno);
        Transfer { durable: false, ..transfer }
    }

    /// Nothing comes later, and each block is as before or as asked: hence *not done*.
    #[cold]
    fn failed(&self, write: bool, errno: Errno) -> Stage {
        self.disk.note_error(self.request.operation.extent(), errno);
        Stage::Done(Outcome::NotDone(failure_of(write, errno)))
    }

    /// A sync failed: of what was written before it, nobody knows what lasts.
    #[cold]
    fn unsynced(&self, errno: Errno) -> Stage {
        self.disk.note_error(self.request.operation.extent(), errno);
        Stage::Done(Outcome::Unknown(failure_of(true, errno)))
    }

    fn cleared(&self) -> Stage {
        if self.durable() { Stage::Sync } else { Stage::Done(Outcome::Done) }
    }

    /// Zeros from `at` to the end of the extent, a bounded number by the next call.
    fn zeros(&mut self, at: u64) -> Stage {
        let mut left = (self.offset() + self.length() - at).min(ZEROS_MAX);
        if left == 0 {
            return self.cleared();
        }
        self.iovecs.clear();
        while left > 0 {
            let length = left.min(ZEROS.0.len() as u64);
            let base = ZEROS.0.as_ptr().cast_mut().cast();
            self.iovecs.push(iovec { iov_base: base, iov_len: length as usize });
            left -= length;
        }
        Stage::Zeros { at }
    }

    fn block(&mut self, job: Job) -> Stage {
        let result = match job {
            Job::Compare => self.compare(),
            Job::Verify => self.look_at_pieces(|_, _| None),
            Job::Seek => self.seek(),
            Job::Discard => self.discard_device(),
            Job::Bounce(transfer) => self.bounce(transfer),
        };
        let write = match job {
            Job::Compare | Job::Verify | Job::Seek => false,
            Job::Discard => true,
            Job::Bounce(transfer) => transfer.write,
        };
        match (result, job) {
            (Err(errno), _) => self.failed(write, errno),
            (Ok(_), Job::Bounce(transfer)) => self.moved(transfer.durable),
            (Ok(outcome), _) => Stage::Done(outcome),
        }
    }

    fn compare(&self) -> Result<Outcome, Errno> {
        let mut expected = Bytes { iovecs: &self.iovecs, index: 0, at: 0 };
        self.look_at_pieces(|done, seen| {
            let mut at = 0;
            while at < seen.len() {
                let part = expected.next(seen.len() - at);
                if let Some(found) = difference(part, &seen[at..at + part.len()]) {
                    return Some(Outcome::Miscompare(done as u32 + (at + found) as u32));
                }
                at += part.len();
            }
            None
        })
    }

    /// Reads all of the extent and shows each piece, with how many bytes lie before it, until
    /// something is made of one.
    fn look_at_pieces(
        &self,
        mut look: impl FnMut(u64, &[u8]) -> Option<Outcome>,
    ) -> Result<Outcome, Errno> {
        let mut scratch = Scratch::new();
        let (offset, length) = (self.offset(), self.length());
        let mut done = 0;
        while done < length {
            let piece = &mut scratch.0[..(length - done).min(SCRATCH as u64) as usize];
            read_exact(self.fd(), piece, offset + done)?;
            if let Some(outcome) = look(done, piece) {
                return Ok(outcome);
            }
            done += piece.len() as u64;
        }
        Ok(Outcome::Done)
    }

    /// Nobody uses the position that the call moves: all other calls name theirs.
    fn seek(&self) -> Result<Outcome, Errno> {
        let &Operation::Seek { extent, sought } = &self.request.operation else {
            unreachable!("only a seek has this job")
        };
        let from = extent.offset.0;
        let whence = match sought {
            Sought::Data => SeekFrom::Data(from),
            Sought::Hole => SeekFrom::Hole(from),
        };
        match rustix::fs::seek(self.fd(), whence) {
            Ok(at) if at < extent.end().0 => Ok(Outcome::Found((at - from) as u32)),
            // No data up to the end of the file.
            Ok(_) | Err(Errno::NXIO) => Ok(Outcome::Done),
            // The file system does not know.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(sought.in_data()),
            Err(errno) => Err(errno),
        }
    }

    fn discard_device(&self) -> Result<Outcome, Errno> {
        let Operation::Discard { extents } = &self.request.operation else {
            unreachable!("only a discard has this job")
        };
        for extent in extents {
            self.disk.discard_device(*extent)?;
        }
        Ok(Outcome::Done)
    }

    fn bounce(&mut self, transfer: Transfer) -> Result<Outcome, Errno> {
        let Transfer { write, mut offset, mut first, .. } = transfer;
        let mut scratch = Scratch::new();
        while first < self.iovecs.len() {
            let left: usize = self.iovecs[first..].iter().map(|run| run.iov_len).sum();
            let piece = &mut scratch.0[..left.min(SCRATCH)];
            let mut at = 0;
            if write {
                let mut source = Bytes { iovecs: &self.iovecs, index: first, at: 0 };
                while at < piece.len() {
                    let part = source.next(piece.len() - at);
                    piece[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                write_all(self.fd(), piece, offset)?;
            } else {
                read_exact(self.fd(), piece, offset)?;
                for run in &self.iovecs[first..] {
                    let length = run.iov_len.min(piece.len() - at);
                    // SAFETY: the iovecs of a read point into private pages of the buffer that
                    // `self` owns, made by `iovecs_mut`.
                    unsafe {
                        run.iov_base
                            .cast::<u8>()
                            .copy_from_nonoverlapping(piece[at..].as_ptr(), length);
                    }
                    at += length;
                }
            }
            first = advance(&mut self.iovecs, first, piece.len() as u64);
            offset += piece.len() as u64;
        }
        Ok(Outcome::Done)
    }
}

/// What an error number says about a request.
fn failure_of(write: bool, errno: Errno) -> Failure {
    let medium = if write { Failure::MediumWrite } else { Failure::MediumRead };
    match errno {
        // ENODATA and EILSEQ are what the block layer makes of a medium and a protection error.
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::BADMSG | Errno::UCLEAN => medium,
        Errno::REMOTEIO | Errno::NOLINK => medium,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Failure::NoSpace,
        Errno::ROFS | Errno::PERM | Errno::ACCESS => Failure::WriteProtected,
        Errno::OPNOTSUPP | Errno::NOSYS => Failure::Unsupported,
        Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM | Errno::STALE => Failure::Removed,
        Errno::TIMEDOUT => Failure::TimedOut,
        Errno::AGAIN | Errno::BUSY | Errno::NOMEM | Errno::NOBUFS => Failure::NotReady,
        Errno::CANCELED => Failure::Aborted,
        _ => Failure::Internal,
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
