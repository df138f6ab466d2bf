//! An attached disk: requests that come from outside of the shard (a kernel's, for a block device of this
//! machine), each answered to whoever made it.
//!
//! ```text
//!   kernel -> Inbox::push (any thread) -> Attached (on a shard) -> volume -> Answer (on that shard)
//! ```
//! Who pushes says so to the shard where [`Inbox::push`] wants it; whatever is pushed until the turn begins
//! is taken in that turn. Requests are begun in the order in which they came and answered as they are done:
//! what must come before what is the kernel's business, which waits for answers. Units: bytes; requests are
//! of whole blocks, reads and writes of [`REQUEST_MAX`] at most. Errors: the outcome of a request is told
//! as it is; nothing is tried again, since the disks below have done so.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{Account, Buffer, Extent, Instant, Operation, Outcome};

use crate::guest::{Desk, Guest, Phase, Place, Progress};

/// The largest read or write.
pub const REQUEST_MAX: u32 = 1 << 20;
/// Requests that are below at once.
pub const DEPTH: u32 = 256;
/// Bytes that are cleared by one request to the volume: so few that a disk which has to write zeros for them
/// answers soon.
const CLEAR_MAX: u64 = 8 << 20;
/// After so long memory is asked for again, where it was short and nothing of ours is below.
const MEMORY_AGAIN: Duration = Duration::from_millis(10);
/// Memory of writes that is kept for the next ones.
const SPARES_MAX: usize = 32;

/// What is asked of the disk.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    Read(Extent),
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Make it read as zeros; whether its space may be given back.
    Clear {
        extent: Extent,
        deallocate: bool,
    },
    /// What was answered as written is to be durable.
    Flush,
}

/// Who made a request.
pub trait Answer: Send {
    /// What was read.
    fn read(self, bytes: &[u8]);
    /// It was carried out.
    fn done(self);
    /// It was not, or not surely.
    fn failed(self, outcome: Outcome);
}

/// A request, and to whom its answer goes.
#[derive(Debug)]
pub struct Asked<A> {
    pub wish: Wish,
    pub answer: A,
}

/// Where requests wait until the machine has its next turn.
#[derive(Debug)]
pub struct Inbox<A> {
    asked: Mutex<VecDeque<Asked<A>>>,
    spares: Mutex<Vec<Vec<u8>>>,
    pushed: AtomicU64,
    answered: AtomicU64,
}

impl<A> Default for Inbox<A> {
    fn default() -> Self {
        let (asked, spares) = (Mutex::default(), Mutex::default());
        Inbox { asked, spares, pushed: AtomicU64::new(0), answered: AtomicU64::new(0) }
    }
}

impl<A> Inbox<A> {
    /// Adds a request; whether the shard is to be told, since nobody told it of those before.
    #[must_use]
    pub fn push(&self, asked: Asked<A>) -> bool {
        self.pushed.fetch_add(1, Relaxed);
        let mut queue = lock(&self.asked);
        queue.push_back(asked);
        queue.len() == 1
    }

    /// Memory for the bytes of a write: empty, and mostly used before.
    pub fn spare(&self) -> Vec<u8> {
        lock(&self.spares).pop().unwrap_or_default()
    }

    fn keep(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut spares = lock(&self.spares);
        if spares.len() < SPARES_MAX {
            spares.push(bytes);
        }
    }

    /// How many requests were answered so far, and how many wait for that.
    pub fn standing(&self) -> (u64, u64) {
        // In this order: what is answered in between was pushed before.
        let answered = self.answered.load(Relaxed);
        (answered, self.pushed.load(Relaxed).saturating_sub(answered))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of an inbox from a volume.
#[derive(Debug)]
pub struct Attached<A> {
    place: Place,
    inbox: Arc<Inbox<A>>,
    progress: Arc<Progress>,
    phase: Phase,
    /// Taken out of the inbox, and not begun.
    waiting: VecDeque<Asked<A>>,
    jobs: Vec<Job<A>>,
    /// The jobs that are not below.
    free: Vec<u32>,
    /// What was read, in one piece, for its answer.
    read: Vec<u8>,
    /// When memory is asked for again.
    again: Option<Instant>,
}

#[derive(Debug)]
struct Job<A> {
    account: Account,
    below: Option<Below<A>>,
}

#[derive(Debug)]
struct Below<A> {
    answer: A,
    /// Of a read, how much.
    reads: u64,
    /// What is to be cleared after what is below.
    rest: Extent,
    deallocate: bool,
}

impl<A> Attached<A> {
    /// One that answers from a volume until its progress is told to stop.
    pub fn new(place: Place, inbox: Arc<Inbox<A>>, progress: Arc<Progress>) -> Attached<A> {
        let jobs = (0..DEPTH).map(|_| Job { account: Account::default(), below: None }).collect();
        Attached {
            place,
            inbox,
            progress,
            phase: Phase::New,
            waiting: VecDeque::new(),
            jobs,
            free: (0..DEPTH).rev().collect(),
            read: Vec::new(),
            again: None,
        }
    }

    /// Begins what waits, while there are free jobs and memory.
    fn begin(&mut self, desk: &mut dyn Desk) {
        self.again = None;
        while let (Some(asked), Some(slot)) = (self.waiting.front(), self.free.last().copied()) {
            let account = &mut self.jobs[slot as usize].account;
            let mut take = |extent: Extent| {
                desk.take(account, extent.length.0 as u32, (extent.offset.0 % 4096) as u32)
            };
            let buffer = match &asked.wish {
                Wish::Read(extent) => take(*extent),
                Wish::Write { offset, bytes } => take(Extent::new(*offset, bytes.len() as u64)),
                Wish::Clear { .. } | Wish::Flush => Some(Buffer::default()),
            };
            let Some(buffer) = buffer else {
                self.again = Some(desk.now() + MEMORY_AGAIN);
                return;
            };
            let Asked { wish, answer } = self.waiting.pop_front().expect("it was looked at");
            self.free.pop();
            self.submit(desk, slot, wish, answer, buffer);
        }
    }

    fn submit(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        wish: Wish,
        answer: A,
        mut buffer: Buffer,
    ) {
        let nothing = Extent::new(0, 0);
        let mut below = Below { answer, reads: 0, rest: nothing, deallocate: false };
        let operation = match wish {
            Wish::Read(extent) => {
                below.reads = extent.length.0;
                Operation::Read { extent, buffer }
            }
            Wish::Write { offset, bytes } => {
                desk.memory().write(&mut buffer, 0, &bytes);
                let extent = Extent::new(offset, bytes.len() as u64);
                self.inbox.keep(bytes);
                Operation::Write { extent, buffer, durable: false }
            }
            Wish::Clear { extent, deallocate } => {
                (below.rest, below.deallocate) = (extent, deallocate);
                below.next_clear()
            }
            Wish::Flush => Operation::Flush,
        };
        self.jobs[slot as usize].below = Some(below);
        desk.submit(self.place, slot, operation);
    }
}

impl<A> Below<A> {
    /// Clears what is next of the rest, which has something.
    fn next_clear(&mut self) -> Operation {
        let Extent { offset, length } = self.rest;
        let part = CLEAR_MAX.min(length.0);
        self.rest = Extent::new(offset.0 + part, length.0 - part);
        let extent = Extent::new(offset.0, part);
        Operation::WriteZeroes { extent, deallocate: self.deallocate, durable: false }
    }
}

impl<A: Answer> Guest for Attached<A> {
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        let job = &mut self.jobs[slot as usize];
        let below = job.below.as_mut().expect("a job that is below");
        if outcome.is_done() && below.rest.length.0 > 0 {
            let operation = below.next_clear();
            return desk.submit(self.place, slot, operation);
        }
        let Below { answer, reads, .. } = job.below.take().expect("it was there");
        if outcome.is_done() && reads > 0 {
            self.read.resize(reads as usize, 0);
            desk.memory().read(&buffer, 0, &mut self.read);
        }
        desk.give(&mut job.account, buffer);
        self.free.push(slot);
        // Before the answer: whoever has it may count.
        self.inbox.answered.fetch_add(1, Relaxed);
        match outcome {
            Outcome::Done if reads > 0 => answer.read(&self.read),
            Outcome::Done => answer.done(),
            outcome => answer.failed(outcome),
        }
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        if self.phase == Phase::New {
            self.phase = Phase::Measuring;
        }
        self.waiting.append(&mut lock(&self.inbox.asked));
        self.begin(desk);
        let is_idle = self.waiting.is_empty() && self.free.len() == self.jobs.len();
        if self.progress.is_stopped() && is_idle {
            self.phase = Phase::Done;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.again
    }

    fn phase(&self) -> Phase {
        self.phase
    }
}
