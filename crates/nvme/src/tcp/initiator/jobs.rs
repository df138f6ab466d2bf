//! The jobs of an initiator: every request from its arrival to its one completion, whatever becomes of connections meanwhile.
//!
//! A request is one job; one that is larger than a command may be becomes several, joined by a [`Parent`]. A job without payload (write zeroes, verify,
//! discard) that is larger goes as one command after the other, with a cursor. A job is in exactly one place:
//!
//! ```text
//!   waiting --> queued --> (finished)           queued: on a queue, from its slot until its answer and its buffer are back
//!      ^  ^        |  \--> resting -+           resting: the target said "not now"
//!      |  +--------|----------------+
//!   blocked        +--> doubtful --> waiting    doubtful: it may have left on a connection that broke, and it changes data
//! ```
//!
//! What a break leaves in doubt is told in [`doubt`], what is larger than a command in [`parts`].
//!
//! Units: bytes of the disk; times on the shard clock.

mod doubt;
mod parts;

use std::collections::VecDeque;

use block::{
    Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Table, Ticket,
};

use super::link::{GRANTS, Lent, Payload};
use super::outcome::Verdict;
use parts::Parent;

/// No job.
pub(super) const NONE: u32 = u32::MAX;
/// Tries of one command before "not now" becomes "not done".
const TRIES: u8 = 8;

/// What a job asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Read,
    Write,
    Compare,
    Flush,
    Discard,
    Zeroes {
        deallocate: bool,
    },
    Verify,
}

impl Kind {
    fn changes(self) -> bool {
        matches!(self, Kind::Write | Kind::Discard | Kind::Zeroes { .. })
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    Waiting,
    Blocked,
    Resting,
    Queued,
    /// Until the moment when the old association is surely dead; `None` while its connections are not closed.
    Doubtful(Option<Instant>),
}

/// A range of a payload that the target asked for (R2T) and that cannot be sent yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    pub(super) tag: u16,
    pub(super) at: u32,
    pub(super) length: u32,
}

/// How far a discard has come.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) extents: Vec<Extent>,
    /// The extent that comes next, and how many of its bytes are done.
    pub(super) next: (usize, u64),
    /// The same once the command under way is done.
    pub(super) then: (usize, u64),
}

/// A request or a part of one. Its place in the table is used again and again: filled in place, because moving all of it costs more than most of its life.
#[derive(Debug, Default)]
pub(super) struct Job {
    ticket: Ticket,
    pub(super) kind: Kind,
    pub(super) durable: bool,
    pub(super) state: State,
    /// An earlier command of it may have been carried out.
    in_doubt: bool,
    /// A data digest of the command under way was wrong.
    pub(super) bad_digest: bool,
    tries: u8,
    pub(super) grants: u8,
    /// Order of arrival.
    number: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Bytes that are done, of a job that goes command by command, and bytes of the command under way.
    pub(super) done: u64,
    pub(super) chunk: u64,
    deadline: Instant,
    parent: Option<block::Slot>,
    part_at: u32,
    /// The slot of its queue that it has, and the batch in which its command lies.
    pub(super) slot: u16,
    pub(super) batch: u32,
    /// The period of the keep-alive timer in which its command was made.
    pub(super) period: u32,
    pub(super) lent: Lent,
    pub(super) payload: Payload,
    /// Bytes received of a read, and bytes of a payload that were asked for.
    pub(super) received: u32,
    pub(super) granted: u32,
    pub(super) waiting_grants: [Grant; GRANTS],
    pub(super) verdict: Option<Verdict>,
    pub(super) ranges: Option<Box<Ranges>>,
    /// Completed writes when a flush was sent.
    pub(super) covers: u64,
}

impl Job {
    /// Begins anew, with nothing of what was here before. A finished job has neither payload nor ranges nor verdict.
    #[inline]
    fn begin(&mut self, ticket: Ticket, number: u64, deadline: Instant) {
        (self.ticket, self.number, self.deadline) = (ticket, number, deadline);
        self.state = State::Waiting;
        (self.durable, self.in_doubt, self.bad_digest) = (false, false, false);
        (self.tries, self.grants) = (0, 0);
        (self.done, self.chunk, self.covers) = (0, 0, 0);
        (self.received, self.granted, self.part_at) = (0, 0, 0);
        self.parent = None;
    }

    /// Asks this, without a payload.
    fn name(&mut self, kind: Kind, extent: Extent) {
        self.kind = kind;
        (self.offset, self.length) = (extent.offset.0, extent.length.0);
    }

    /// Asks this, with a buffer that is filled or sent.
    #[inline]
    fn carry(&mut self, kind: Kind, extent: Extent, buffer: Buffer) {
        self.name(kind, extent);
        self.payload = Payload::Buffer(buffer);
    }

    /// Bytes of its buffer.
    #[inline]
    pub(super) fn buffer_mut(&mut self) -> &mut Buffer {
        match &mut self.payload {
            Payload::Buffer(buffer) => buffer,
            Payload::Bytes(_) => unreachable!("the payload of a {:?} is not a buffer", self.kind),
        }
    }

    fn overlaps(&self, extent: Extent) -> bool {
        match &self.ranges {
            Some(ranges) => ranges.extents.iter().any(|range| range.overlaps(extent)),
            None => Extent::new(self.offset, self.length).overlaps(extent),
        }
    }
}

/// All jobs of an initiator.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    table: Vec<Job>,
    free: Vec<u32>,
    used: usize,
    next_number: u64,
    pub(super) waiting: VecDeque<u32>,
    blocked: Vec<u32>,
    resting: Vec<(Instant, u32)>,
    /// Jobs that changed data on a broken association, until they are over.
    doubts: Vec<u32>,
    parents: Table<Parent>,
    pub(super) completions: VecDeque<Completion>,
    /// Writes that were completed without being durable, and how many of them a flush covered.
    written: u64,
    covered: u64,
    flush_doubt: bool,
}

impl core::ops::Index<u32> for Jobs {
    type Output = Job;
    #[inline]
    fn index(&self, index: u32) -> &Job {
        &self.table[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Jobs {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Job {
        &mut self.table[index as usize]
    }
}

impl Jobs {
    /// Jobs that are not over.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Takes a request in; it waits.
    #[inline]
    pub(super) fn admit(&mut self, request: Request, deadline: Instant) {
        if let Operation::CompareAndWrite { .. } = request.operation {
            let refused = request.complete(Outcome::NotDone(Failure::Unsupported));
            self.completions.push_back(refused);
            return;
        }
        let (index, number) = (self.place(), self.next_number);
        self.next_number += 1;
        let job = &mut self.table[index as usize];
        job.begin(request.ticket, number, deadline);
        match request.operation {
            Operation::Read { extent, buffer } => job.carry(Kind::Read, extent, buffer),
            Operation::Write { extent, buffer, durable } => {
                job.carry(Kind::Write, extent, buffer);
                job.durable = durable;
            }
            Operation::Compare { extent, buffer } => job.carry(Kind::Compare, extent, buffer),
            Operation::Flush => job.name(Kind::Flush, Extent::default()),
            Operation::WriteZeroes { extent, deallocate, durable } => {
                job.name(Kind::Zeroes { deallocate }, extent);
                job.durable = durable;
            }
            Operation::Verify { extent } => job.name(Kind::Verify, extent),
            Operation::Discard { extents } => {
                job.name(Kind::Discard, Extent::default());
                job.ranges = Some(Box::new(Ranges { extents, ..Ranges::default() }));
            }
            Operation::CompareAndWrite { .. } => unreachable!("it was refused"),
        }
        self.waiting.push_back(index);
    }

    /// A job for a request: the place of one that is over, if there is one.
    #[inline]
    fn place(&mut self) -> u32 {
        self.used += 1;
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.table.push(Job::default());
        (self.table.len() - 1) as u32
    }

    /// Takes a buffer back that was lent.
    #[inline]
    pub(super) fn take_home(&mut self, index: u32, buffer: Buffer) {
        let job = &mut self.table[index as usize];
        *job.buffer_mut() = buffer;
        job.lent = Lent::No;
    }

    /// A command was answered, its buffer is home and its slot is free: goes on with the job or ends it.
    #[inline]
    pub(super) fn conclude(&mut self, now: Instant, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Finish(Outcome::Done) => {
                let job = &mut self.table[index as usize];
                let goes_on = match job.kind {
                    Kind::Zeroes { .. } | Kind::Verify => {
                        job.done += job.chunk;
                        job.done < job.length
                    }
                    Kind::Discard => {
                        let ranges = job.ranges.as_mut().expect("a discard has ranges");
                        ranges.next = ranges.then;
                        ranges.next.0 < ranges.extents.len()
                    }
                    _ => false,
                };
                if goes_on {
                    self.wait_again(index);
                } else {
                    self.finish(index, Outcome::Done);
                }
            }
            Verdict::Finish(outcome) => self.finish(index, outcome),
            Verdict::Retry(failure) => self.retry(now, index, failure),
        }
    }

    fn wait_again(&mut self, index: u32) {
        self.table[index as usize].state = State::Waiting;
        self.waiting.push_front(index);
    }

    #[cold]
    fn retry(&mut self, now: Instant, index: u32, failure: Failure) {
        let job = &mut self.table[index as usize];
        job.tries += 1;
        if job.tries >= TRIES || now >= job.deadline {
            return self.finish(index, Outcome::NotDone(failure));
        }
        // 1, 2, 4 ... 64 ms: a digest that was wrong once is asked for again soon, a namespace that is not ready is not flooded.
        let rest = core::time::Duration::from_millis(1 << (job.tries - 1));
        job.state = State::Resting;
        self.resting.push((now + rest, index));
    }

    /// Ends a job. Its buffer is home.
    #[inline]
    pub(super) fn finish(&mut self, index: u32, outcome: Outcome) {
        let job = &mut self.table[index as usize];
        assert!(
            job.lent == Lent::No && job.state != State::Free,
            "a {:?} ended while its buffer was {:?}",
            job.kind,
            job.lent
        );
        job.state = State::Free;
        job.verdict = None;
        let buffer = match core::mem::take(&mut job.payload) {
            Payload::Buffer(buffer) => buffer,
            Payload::Bytes(_) => Buffer::empty(),
        };
        if outcome.is_done() {
            match job.kind {
                Kind::Write | Kind::Zeroes { .. } if !job.durable => self.written += 1,
                Kind::Flush => self.covered = self.covered.max(job.covers),
                _ => {}
            }
        }
        let (ticket, parent, at) = (job.ticket, job.parent, job.part_at);
        job.ranges = None;
        let in_doubt = job.in_doubt;
        self.used -= 1;
        self.free.push(index);
        if in_doubt {
            self.doubts.retain(|doubt| *doubt != index);
            self.unblock();
        }
        match parent {
            None => self.completions.push_back(Completion::new(ticket, outcome, buffer)),
            Some(parent) => self.finish_part(parent, at, outcome, buffer),
        }
    }
}
