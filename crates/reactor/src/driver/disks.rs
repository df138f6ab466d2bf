//! Disks: requests that are answered at once, by the kernel, or later.
//!
//! Requests to RAM and null disks are gathered over the turn and answered together, so that their cache misses
//! overlap. Requests to files start at once on the ring, or go to the disk threads.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use block::table::{Slot, Table};
use block::{Completion, Failure, Outcome, Request};
use contract::{DiskId, Event, Machine};

use super::{Alarm, Driver};
use crate::disk::{Call, Disk, Submitted, Work};
use crate::engine::{Engine, FileOp, Kind, Op};
use crate::stats::add;

/// So many calls to files are gathered before they are handed to the kernel within a turn.
const FILES_AT_ONCE: u32 = 8;
/// Requests whose cache misses overlap: their slots, states and first lines fit the first-level cache.
const OVERLAP: usize = 32;
/// The largest number that a disk may have.
const DISKS_MAX: usize = 1 << 16;

/// A disk of this shard.
struct Known {
    disk: Arc<Disk>,
    /// Work that has not come back.
    out: u32,
    /// Who waits for the work to come back before the disk is forgotten.
    leaving: Option<Sender<()>>,
}

/// Work that is with the kernel or a disk thread.
struct Underway {
    disk: DiskId,
    /// `None` while a disk thread has it.
    work: Option<Box<Work>>,
}

/// The disks of a shard and what they are asked.
#[derive(Default)]
pub(super) struct Disks {
    known: Vec<Option<Known>>,
    /// Requests to disks that answer at once.
    gathered: Vec<(DiskId, Request)>,
    underway: Table<Underway>,
    held_back: Table<Completion>,
    unsubmitted: u32,
}

impl Disks {
    pub(super) fn add(&mut self, id: DiskId, disk: Arc<Disk>) {
        let index = id.0 as usize;
        assert!(index < DISKS_MAX, "disk {index}: numbers go up to {DISKS_MAX}");
        if self.known.len() <= index {
            self.known.resize_with(index + 1, || None);
        }
        assert!(self.known[index].is_none(), "disk {index} is there already");
        self.known[index] = Some(Known { disk, out: 0, leaving: None });
    }

    /// Forgets a disk, once nothing of it is out.
    pub(super) fn remove(&mut self, id: DiskId, told: Sender<()>) {
        match self.known.get_mut(id.0 as usize) {
            Some(Some(known)) if known.out > 0 => known.leaving = Some(told),
            Some(entry) => {
                *entry = None;
                let _ = told.send(());
            }
            None => {
                let _ = told.send(());
            }
        }
    }

    /// A disk that requests have been gathered for: it is removed only after they are answered.
    #[inline]
    fn disk(&self, id: DiskId) -> &Disk {
        &self.known[id.0 as usize].as_ref().expect("a disk with gathered requests").disk
    }

    /// Whether nothing is with the kernel or a disk thread.
    pub(super) fn is_quiet(&self) -> bool {
        self.underway.is_empty()
    }

    fn came_back(&mut self, id: DiskId) {
        let entry = &mut self.known[id.0 as usize];
        let known = entry.as_mut().expect("a disk with work out is known");
        known.out -= 1;
        if known.out == 0
            && let Some(told) = known.leaving.take()
        {
            *entry = None;
            // Whoever asked may have lost patience.
            let _ = told.send(());
        }
    }
}

impl<M: Machine, E: Engine> Driver<M, E> {
    /// The machine asks a disk.
    #[inline]
    pub(super) fn submit(&mut self, id: DiskId, request: Request) {
        add(&self.counters().disk_requests, 1);
        let known = match self.disks.known.get(id.0 as usize) {
            Some(Some(known)) if known.leaving.is_none() => known,
            _ => {
                let gone = request.complete(Outcome::NotDone(Failure::Removed));
                self.tell(Event::Completed(gone));
                return;
            }
        };
        // Not a clone of the disk: its count is shared by all shards, and this is the path of every request.
        if known.disk.answers_at_once() {
            self.disks.gathered.push((id, request));
            return;
        }
        let submitted = known.disk.submit(&mut self.memory, request);
        self.submitted(id, submitted);
    }

    fn submitted(&mut self, id: DiskId, submitted: Submitted) {
        match submitted {
            Submitted::Done(completion) => self.tell(Event::Completed(completion)),
            Submitted::Later { completion, after } => {
                let slot = self.disks.held_back.insert(completion);
                self.set_alarm(after, Alarm::Completion(slot));
            }
            Submitted::Work(work) => {
                add(&self.counters().disk_works, 1);
                self.disks.known[id.0 as usize].as_mut().expect("it was just asked").out += 1;
                let slot = self.disks.underway.insert(Underway { disk: id, work: Some(work) });
                self.go_on(slot);
            }
        }
    }

    /// Answers the requests that were gathered.
    pub(super) fn answer_gathered(&mut self) {
        if self.disks.gathered.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(&mut self.disks.gathered);
        if gathered.len() > 1 {
            for part in gathered.chunks(OVERLAP) {
                // The table's lines for all, then what they point at for all.
                for (id, request) in part {
                    self.disks.disk(*id).prefetch_slot(&request.operation);
                }
                for (id, request) in part {
                    self.disks.disk(*id).prefetch_page(&request.operation);
                }
            }
        }
        for (id, request) in gathered.drain(..) {
            match self.disks.disk(id).submit(&mut self.memory, request) {
                Submitted::Done(completion) => self.events.push_back(Event::Completed(completion)),
                _ => unreachable!("a disk that answers at once did not"),
            }
        }
        self.disks.gathered = gathered;
    }

    /// Starts the next call that a piece of work wants.
    fn go_on(&mut self, slot: Slot) {
        let underway = self.disks.underway.get_mut(slot).expect("its work goes on");
        let work = underway.work.as_ref().expect("the work is here");
        let op = if E::FILES { file_op(work.next()) } else { FileStep::Thread };
        match op {
            FileStep::Call(op) => {
                let op = Op::File { fd: work.fd().as_raw_fd(), op };
                // SAFETY: the iovecs and what they point at belong to the work, which stays in the table and is
                // left alone until the call has ended; it also keeps the file open.
                unsafe { self.engine.start(Self::key(Kind::File, slot), op) };
                self.disks.unsubmitted += 1;
                if self.disks.unsubmitted >= FILES_AT_ONCE {
                    self.disks.unsubmitted = 0;
                    self.engine.submit();
                }
            }
            FileStep::Thread => {
                let work = underway.work.take().expect("the work is here");
                let number = u64::from(slot.index) << 32 | u64::from(slot.generation);
                let inbox = self.shared.inboxes[self.shard.index()].clone();
                self.shared.workers.give(number, work, inbox);
            }
            FileStep::Finished => self.finish_work(slot),
        }
    }

    /// A call to a file has ended.
    pub(super) fn file_ended(&mut self, slot: Slot, result: i32) {
        let underway = self.disks.underway.get_mut(slot).expect("work stays until its calls end");
        underway.work.as_mut().expect("the work is here").done(i64::from(result));
        self.go_on(slot);
    }

    /// A disk thread has done its work.
    pub(super) fn worked(&mut self, number: u64, work: Box<Work>) {
        let slot = Slot { index: (number >> 32) as u32, generation: number as u32 };
        let underway = self.disks.underway.get_mut(slot).expect("work is awaited");
        underway.work = Some(work);
        self.finish_work(slot);
    }

    fn finish_work(&mut self, slot: Slot) {
        let underway = self.disks.underway.remove(slot).expect("it has just finished");
        let finished = underway.work.expect("the work is here").finish();
        self.disks.came_back(underway.disk);
        if finished.after.is_zero() {
            self.tell(Event::Completed(finished.completion));
        } else {
            let slot = self.disks.held_back.insert(finished.completion);
            self.set_alarm(finished.after, Alarm::Completion(slot));
        }
    }

    /// A held back completion is due.
    pub(super) fn release_completion(&mut self, slot: Slot) {
        if let Some(completion) = self.disks.held_back.remove(slot) {
            self.tell(Event::Completed(completion));
        }
    }
}

/// What a piece of work needs next.
enum FileStep {
    Call(FileOp),
    Thread,
    Finished,
}

fn file_op(call: Call<'_>) -> FileStep {
    FileStep::Call(match call {
        Call::Read { offset, iovecs } => {
            FileOp::Read { vectors: iovecs.as_ptr(), count: iovecs.len() as u32, offset, flags: 0 }
        }
        Call::Write { offset, iovecs, durable } => FileOp::Write {
            vectors: iovecs.as_ptr(),
            count: iovecs.len() as u32,
            offset,
            flags: if durable { libc::RWF_DSYNC } else { 0 },
        },
        Call::Sync => FileOp::Sync,
        Call::Allocate { mode, offset, length } => {
            FileOp::Allocate { mode: mode as i32, offset, length }
        }
        Call::Blocking => return FileStep::Thread,
        Call::Finished => return FileStep::Finished,
    })
}
