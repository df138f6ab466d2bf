//! Disks: what takes requests at the very bottom, and what it is truthfully like.
//!
//! A [`Disk`] is opened once ([`Disk::open`]) and shared by all shards. A shard gives it a request
//! with [`Disk::submit`]. RAM and null disks answer at once; a file or block device answers with
//! [`Work`]: system calls that the driver has the kernel carry out, through a ring one by one or on
//! a thread all together. `delay:`, `burn:`, `faulty:` and `model:` are instruments around any of them:
//! they hold an answer back, cost CPU, or change it.
//!
//! Read [`ram`] for the exchange of pages, [`work`] for how a request becomes system calls,
//! [`file`] for how facts are found. Units: bytes; times as `Duration`. Errors: [`OpenError`] names
//! the object, what was expected and what was seen; a request's failure is its `Outcome`. Not here:
//! who may write after a failed flush (the volume's gate), how flushes are grouped (the same).

mod burn;
mod calls;
mod error;
mod faulty;
pub mod file;
mod late;
mod lock;
pub mod marks;
mod model;
mod null;
pub mod probe;
pub(crate) mod ram;
pub(crate) mod work;

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use block::{
    ByteCount, Completion, Extent, Failure, Instant, Operation, Outcome, PAGE_SIZE, Request,
};
use contract::{Cache, DiskFacts};

use crate::memory::{Arena, ShardMemory};
use crate::process::lock;

pub use error::OpenError;
pub use file::{Access, Rights, Tail};
pub use model::{
    MODEL_CACHE_MIB_MAX, MODEL_CHANNELS_MAX, MODEL_MB_S_MAX, MODEL_POWER_MS_MAX, MODEL_RPM_MAX,
    MODEL_US_MAX, Model, Spread,
};
pub(crate) use work::{Call, Work};

use burn::Burn;
use faulty::{Fate, Faulty};
use file::FileDisk;
use late::Late;
use model::mechanism::{Answer, Asked, Mechanism};
use null::NullDisk;
pub(crate) use ram::Clearing;
use ram::RamDisk;
use ram::contents::Pages;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSpec {
    /// `ram:SIZE[?touch=1]`: memory of this process, zeros at first. To touch it is another step,
    /// [`Disk::touch`].
    Ram {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// `null:SIZE`: forgets writes, reads zeros.
    Null {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// `file:PATH[?create=SIZE][?tail=ignore]`: a regular file.
    File {
        /// Where it is.
        path: PathBuf,
        /// Make it, sparse and of this size, if it does not exist; refuse it if it is there with
        /// another size.
        create: Option<u64>,
        /// What becomes of an end that is no whole block.
        tail: Tail,
    },
    /// A block device.
    BlockDevice {
        /// Where it is.
        path: PathBuf,
    },
    /// An instrument around a disk.
    Instrumented {
        instrument: Instrument,
        /// The disk that does the work.
        inner: Box<OpenSpec>,
    },
}

/// What stands around a disk, to see what somebody makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// `delay:US,URI`: every answer comes so many microseconds later than the disk gave it. What is
    /// asked is carried out at once; the driver holds the answer back with its own timer. It stands
    /// for a slower medium, and shows what queue depth hides.
    Delay { us: u64 },
    /// `burn:US,URI`: every request costs its shard so many microseconds of CPU, on average, at most
    /// [`BURN_MAX_US`] with those of others around the same disk. It stands for work that is known, and
    /// shows whether whoever measures charges it to whom it belongs.
    Burn { us: u64 },
    /// `faulty:SEED,URI`: sometimes fails, sometimes is slow; see [`Faulty`](faulty) for the rates.
    Faulty { seed: u64 },
    /// `model:NAME,URI`: every answer comes when a disk of this model would have given it, or the
    /// disk inside where that is later; see [`model`] for what takes how long. What is asked is
    /// carried out at once, and the model's time runs from when it was asked. One whose power is
    /// cut stands around memory, and no other such is around it.
    Model(Model),
}

/// Of all that stands around a disk together. Nothing else has its turn while a request burns, and a
/// turn may have a hundred: nobody is to think that the shard hangs.
pub const BURN_MAX_US: u64 = 1_000;

/// An open disk.
#[derive(Debug)]
pub struct Disk {
    backing: Backing,
    /// From the outermost to the innermost.
    instruments: Vec<Fitted>,
    /// What they made of their answers, of a disk that has some.
    late: Option<Late>,
}

#[derive(Debug)]
enum Backing {
    Ram(RamDisk),
    Null(NullDisk),
    File(Arc<FileDisk>),
}

/// An [`Instrument`] around an open disk.
#[derive(Debug)]
enum Fitted {
    Delay(Duration),
    Burn(Burn),
    Faulty(Faulty),
    /// One for all shards, which meet there for some hundred nanoseconds a request at most: nothing
    /// that lasts is done under it; where the power is cut, what memory does at once for a request, and once
    /// what it takes to put pages back.
    Model(Box<Mutex<Mechanism>>),
}

/// When an answer may be told, as instruments want it: so long after it is there, and not before a
/// moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) after: Duration,
    pub(crate) until: Instant,
}

impl Hold {
    /// When an answer is due that is there now.
    #[inline]
    pub(crate) fn due(self, now: Instant) -> Instant {
        (now + self.after).max(self.until)
    }

    /// The hold of these instruments with another one inside them, whose answers they hold back.
    fn within(self, inner: Hold) -> Hold {
        let until = self.until.max(inner.until + self.after);
        Hold { after: self.after + inner.after, until }
    }
}

/// What became of a request that was submitted.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It is answered.
    Done(Completion),
    /// It is answered, but the answer is to be told later.
    Later { completion: Completion, hold: Hold },
    /// It clears many pages: go on with [`Disk::clear_some`], turn by turn.
    Clearing(Box<Clearing>),
    /// It needs the kernel: carry the work out, then tell what [`Work::finish`] says.
    Work(Box<Work>),
}

impl OpenSpec {
    /// The same disk, of which nothing is made.
    pub fn as_it_is(self) -> OpenSpec {
        match self {
            OpenSpec::File { path, tail, .. } => OpenSpec::File { path, create: None, tail },
            OpenSpec::Instrumented { instrument, inner } => {
                OpenSpec::Instrumented { instrument, inner: Box::new(inner.as_it_is()) }
            }
            other => other,
        }
    }

    /// Whether its instruments go together and with the disk inside: the power of one model is cut at most,
    /// around memory.
    pub fn check(&self) -> Result<(), OpenError> {
        let (mut spec, mut cuts) = (self, 0);
        while let OpenSpec::Instrumented { instrument, inner } = spec {
            cuts += u32::from(matches!(instrument, Instrument::Model(model) if model.cut_ms > 0));
            spec = inner;
        }
        match spec {
            _ if cuts > 1 => Err(OpenError::Cut { seen: "two such models" }),
            OpenSpec::Ram { .. } => Ok(()),
            _ if cuts > 0 => Err(OpenError::Cut { seen: "another disk" }),
            _ => Ok(()),
        }
    }
}

impl Disk {
    /// Opens a disk to be served. It is this process's alone until it is dropped: another server
    /// that opens the same file or device is refused.
    pub fn open(spec: &OpenSpec, arena: &Arc<Arena>) -> Result<Disk, OpenError> {
        Disk::open_for(Rights::Write, spec, arena)
    }

    /// The same, with no more rights to a file or device than these.
    pub fn open_for(
        rights: Rights,
        spec: &OpenSpec,
        arena: &Arc<Arena>,
    ) -> Result<Disk, OpenError> {
        let mut instruments = Vec::new();
        spec.check()?;
        let mut spec = spec;
        let backing = loop {
            match spec {
                OpenSpec::Instrumented { instrument, inner } => {
                    instruments.push(match *instrument {
                        Instrument::Delay { us } => Fitted::Delay(Duration::from_micros(us)),
                        Instrument::Burn { us } => {
                            Fitted::Burn(Burn::new(Duration::from_micros(us.min(BURN_MAX_US))))
                        }
                        Instrument::Faulty { seed } => Fitted::Faulty(Faulty::new(seed)),
                        Instrument::Model(model) => {
                            Fitted::Model(Box::new(Mutex::new(Mechanism::new(model))))
                        }
                    });
                    spec = inner;
                }
                OpenSpec::Ram { bytes } => {
                    let size = whole_blocks("ram", *bytes)?;
                    break Backing::Ram(RamDisk::new(arena, size).map_err(OpenError::Memory)?);
                }
                OpenSpec::Null { bytes } => {
                    break Backing::Null(NullDisk(whole_blocks("null", *bytes)?));
                }
                OpenSpec::File { path, create, tail } => {
                    let opened = FileDisk::open_file(path, *create, *tail, rights)?;
                    break Backing::File(Arc::new(opened));
                }
                OpenSpec::BlockDevice { path } => {
                    break Backing::File(Arc::new(FileDisk::open_device(path, rights)?));
                }
            }
        };
        let late = (!instruments.is_empty()).then(Late::new);
        Ok(Disk { backing, instruments, late })
    }

    /// Has it go through the page cache, whatever its file system could do; of a file or device that
    /// nobody has asked anything yet. Others have no page cache.
    pub fn through_page_cache(&mut self) -> std::io::Result<()> {
        match &mut self.backing {
            Backing::File(file) => {
                let file = Arc::get_mut(file).expect("who opens a disk has it alone");
                file.through_page_cache().map_err(Into::into)
            }
            _ => Ok(()),
        }
    }

    /// Takes and touches the memory of a new disk in memory, so that no first write pays for it and
    /// all of it lies in order; asks after each piece, with the bytes that are done, whether to go
    /// on. Returns whether all is done. Of another disk there is nothing to do.
    pub fn touch(&self, mut goes_on: impl FnMut(ByteCount) -> bool) -> bool {
        let Backing::Ram(disk) = &self.backing else { return true };
        let slots = disk.size().0.div_ceil(u64::from(PAGE_SIZE)) as usize;
        let mut done = 0;
        while done < slots {
            done = disk.touch(done);
            if !goes_on(ByteCount(disk.size().0.min(done as u64 * u64::from(PAGE_SIZE)))) {
                return false;
            }
        }
        true
    }

    /// What is known of it at present.
    pub fn facts(&self) -> DiskFacts {
        let facts = match &self.backing {
            Backing::Ram(disk) => DiskFacts::of_memory(disk.size()),
            Backing::Null(disk) => DiskFacts::of_memory(disk.0),
            Backing::File(disk) => disk.facts(),
        };
        match self.models().any(|mechanism| lock(mechanism).is_cached()) {
            true => DiskFacts { cache: Cache::Volatile, ..facts },
            false => facts,
        }
    }

    /// The models around it.
    fn models(&self) -> impl Iterator<Item = &Mutex<Mechanism>> {
        self.instruments.iter().filter_map(|instrument| match instrument {
            Fitted::Model(mechanism) => Some(&**mechanism),
            _ => None,
        })
    }

    /// Looks at the size again, which may have been changed from outside, and returns the facts. A
    /// disk that shrank refuses what lies beyond its new end.
    pub fn refresh(&self) -> std::io::Result<DiskFacts> {
        if let Backing::File(disk) = &self.backing {
            disk.refresh()?;
        }
        Ok(self.facts())
    }

    /// The size that it has by now, in whole blocks; nothing follows it yet.
    pub fn size_now(&self) -> std::io::Result<ByteCount> {
        match &self.backing {
            Backing::File(disk) => disk.size_now(),
            Backing::Ram(_) | Backing::Null(_) => Ok(self.facts().size),
        }
    }

    /// How a file or device is accessed; `None` for memory.
    pub fn access(&self) -> Option<Access> {
        match &self.backing {
            Backing::File(disk) => Some(disk.access()),
            Backing::Ram(_) | Backing::Null(_) => None,
        }
    }

    /// What the system said last of something that went wrong at this place; without one, of a
    /// flush. Only the last few are known. Of memory, what a model has done to it.
    pub fn error_at(&self, extent: Option<Extent>) -> Option<std::io::Error> {
        match &self.backing {
            Backing::File(disk) => disk.error_at(extent).map(Into::into),
            Backing::Ram(_) | Backing::Null(_) => {
                let trouble = self.models().find_map(|mechanism| lock(mechanism).trouble());
                trouble.map(std::io::Error::other)
            }
        }
    }

    /// How many of the answers that its instruments held back were told so many whole microseconds after
    /// they were due; the last number is of all that were later. `None` of a disk without instruments.
    pub fn late(&self) -> Option<Vec<u64>> {
        self.late.as_ref().map(Late::look)
    }

    /// An answer that was held back was told so long after it was due.
    pub(crate) fn told(&self, late: Duration) {
        if let Some(counts) = &self.late {
            counts.count(late);
        }
    }

    /// The descriptor of a file or device.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::File(disk) => Some(disk.fd()),
            Backing::Ram(_) | Backing::Null(_) => None,
        }
    }

    /// The RAM disk that it is, without instruments around it.
    #[inline]
    pub(crate) fn as_ram(&self) -> Option<&RamDisk> {
        match &self.backing {
            Backing::Ram(disk) if self.instruments.is_empty() => Some(disk),
            _ => None,
        }
    }

    /// Gives it a request. The request's payload comes back with the answer. The clock, which all
    /// shards share, is looked at for a model alone.
    #[inline]
    pub(crate) fn submit(
        &self,
        memory: &mut ShardMemory,
        clock: impl Fn() -> Instant,
        request: Request,
    ) -> Submitted {
        // Other threads may see the request's pages from here on.
        memory.fence();
        if self.instruments.is_empty() {
            return self.submit_plain(memory, request);
        }
        self.submit_through_instruments(memory, &clock, request)
    }

    #[inline]
    fn submit_plain(&self, memory: &mut ShardMemory, request: Request) -> Submitted {
        match &self.backing {
            Backing::Ram(disk) => disk.perform(memory, request),
            Backing::Null(disk) => Submitted::Done(disk.perform(memory, request)),
            Backing::File(disk) => match refusal(&disk.facts(), &request.operation) {
                Some(failure) => Submitted::Done(request.complete(Outcome::NotDone(failure))),
                None => Submitted::Work(Box::new(Work::new(disk, memory, request))),
            },
        }
    }

    #[cold]
    fn submit_through_instruments(
        &self,
        memory: &mut ShardMemory,
        clock: &dyn Fn() -> Instant,
        request: Request,
    ) -> Submitted {
        let mut hold = Hold::default();
        let mut verdict = None;
        // Of a model that puts contents back.
        let mut guard = None;
        for instrument in &self.instruments {
            let fate = match instrument {
                Fitted::Delay(time) => {
                    hold = hold.within(Hold { after: *time, ..Hold::default() });
                    Fate::Asked
                }
                Fitted::Burn(work) => {
                    work.burn();
                    Fate::Asked
                }
                Fitted::Model(mechanism) => {
                    let (Answer { until, fate }, held) =
                        self.ask_model(mechanism, memory, clock, &request.operation);
                    hold = hold.within(Hold { until, ..Hold::default() });
                    guard = guard.or(held);
                    fate
                }
                Fitted::Faulty(faulty) => {
                    let (fate, slow) = faulty.fate(&request.operation);
                    hold = hold.within(Hold { after: slow, ..Hold::default() });
                    fate
                }
            };
            match fate {
                Fate::Asked => {}
                Fate::Refused(outcome) => {
                    let completion = request.complete(outcome);
                    return Submitted::Later { completion, hold };
                }
                Fate::Denied(outcome) => verdict = verdict.or(Some(outcome)),
            }
        }
        let submitted = self.submit_plain(memory, request);
        drop(guard);
        match submitted {
            Submitted::Done(mut completion) | Submitted::Later { mut completion, .. } => {
                completion.outcome = verdict.unwrap_or(completion.outcome);
                if hold == Hold::default() {
                    Submitted::Done(completion)
                } else {
                    Submitted::Later { completion, hold }
                }
            }
            Submitted::Clearing(mut clearing) => {
                (clearing.verdict, clearing.hold) = (verdict, hold);
                Submitted::Clearing(clearing)
            }
            Submitted::Work(mut work) => {
                work.instrument(verdict, hold);
                Submitted::Work(work)
            }
        }
    }

    /// When the model of a disk is done with what comes now, and what becomes of it. What is beyond the
    /// end no medium is asked for. A model that puts contents back is held until they are changed.
    fn ask_model<'a>(
        &self,
        mechanism: &'a Mutex<Mechanism>,
        memory: &mut ShardMemory,
        clock: &dyn Fn() -> Instant,
        operation: &Operation,
    ) -> (Answer, Option<MutexGuard<'a, Mechanism>>) {
        let size = match &self.backing {
            Backing::Ram(disk) => disk.size(),
            Backing::Null(disk) => disk.0,
            Backing::File(disk) => disk.facts().size,
        };
        let asked = match is_within(operation, size) {
            true => Asked::by(operation),
            false => Asked::Nothing,
        };
        let mut mechanism = lock(mechanism);
        // Within the lock, so that who comes first came first.
        let now = clock();
        match &self.backing {
            Backing::Ram(disk) if mechanism.is_cut() => {
                let answer = mechanism.accept(now, asked, size, &mut Pages { disk, memory });
                (answer, Some(mechanism))
            }
            _ => (mechanism.accept(now, asked, size, &mut ()), None),
        }
    }

    /// Clears some pages of a request that this disk gave back as [`Submitted::Clearing`]; returns
    /// whether these were the last.
    pub(crate) fn clear_some(&self, memory: &mut ShardMemory, clearing: &mut Clearing) -> bool {
        match &self.backing {
            Backing::Ram(disk) => disk.clear_some(memory, clearing),
            Backing::Null(_) | Backing::File(_) => unreachable!("memory alone is cleared"),
        }
    }

    /// First step for a bulk of requests: see [`RamDisk::prefetch_slot`]. Does nothing for other
    /// disks.
    #[inline]
    pub(crate) fn prefetch_slot(&self, operation: &Operation) {
        if let (Backing::Ram(disk), Some(extent)) = (&self.backing, operation.extent()) {
            disk.prefetch_slot(extent);
        }
    }

    /// Second step for a bulk of requests: see [`RamDisk::prefetch_pages`]. Does nothing for other
    /// disks.
    #[inline]
    pub(crate) fn prefetch_pages(&self, operation: &Operation) {
        if let (Backing::Ram(disk), Some(extent)) = (&self.backing, operation.extent()) {
            disk.prefetch_pages(extent, matches!(operation, Operation::Read { .. }));
        }
    }
}

/// Why a disk of these facts refuses an operation without asking the kernel.
#[inline]
fn refusal(facts: &DiskFacts, operation: &Operation) -> Option<Failure> {
    match operation {
        operation if !is_within(operation, facts.size) => Some(Failure::OutOfRange),
        Operation::CompareAndWrite { .. } => Some(Failure::Unsupported),
        operation if operation.changes_data() && facts.read_only => Some(Failure::WriteProtected),
        Operation::Discard { .. } if !facts.discards => Some(Failure::Unsupported),
        _ => None,
    }
}

/// Whether all that an operation names lies within a disk of this size.
#[inline]
fn is_within(operation: &Operation, size: ByteCount) -> bool {
    match operation {
        Operation::Discard { extents } => extents.iter().all(|extent| extent.fits(size)),
        other => other.extent().is_none_or(|extent| extent.fits(size)),
    }
}

/// A size that is made of whole blocks.
fn whole_blocks(what: &'static str, bytes: u64) -> Result<ByteCount, OpenError> {
    if bytes == 0 || !bytes.is_multiple_of(512) {
        return Err(OpenError::BadSize { what: what.into(), bytes });
    }
    Ok(ByteCount(bytes))
}

#[cfg(test)]
mod tests;
