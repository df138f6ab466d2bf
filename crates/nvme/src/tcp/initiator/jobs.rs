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
//! **Doubt.** A write, discard or write zeroes that was on a broken association may still be carried out by the old controller. So it is replayed only
//! after the quiesce time, counted from the moment the last connection was closed; new changes that overlap it are *blocked* until it
//! is over; and when its deadline passes first it ends *unknown*, but not before the quiesce time. Reads, compares and verifies are simply asked again.
//!
//! **Flush doubt.** A target with a volatile cache that went away may have lost writes that it had completed. After a break, the next flushes
//! therefore fail once (`MediumWrite`) if a completed write was not covered by a flush, or if others write through associations of their own.
//!
//! Units: bytes of the disk; times on the shard clock.

use std::collections::VecDeque;

use block::{
    Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Table, Ticket,
};

use super::link::{GRANTS, Lent, Payload};
use super::outcome::Verdict;

/// No job.
pub(super) const NONE: u32 = u32::MAX;
/// Tries of one command before "not now" becomes "not done".
const TRIES: u8 = 8;

/// What a job asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Compare,
    Flush,
    Discard,
    Zeroes { deallocate: bool },
    Verify,
}

impl Kind {
    fn changes(self) -> bool {
        matches!(self, Kind::Write | Kind::Discard | Kind::Zeroes { .. })
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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

/// A request or a part of one.
#[derive(Debug)]
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

/// A request whose parts are jobs.
#[derive(Debug)]
struct Parent {
    ticket: Ticket,
    left: u32,
    outcome: Outcome,
    parts: Vec<(u32, Buffer)>,
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
        let Request { ticket, operation } = request;
        let (kind, extent, payload, durable, ranges) = match operation {
            Operation::Read { extent, buffer } => (Kind::Read, extent, buffer, false, None),
            Operation::Write { extent, buffer, durable } => {
                (Kind::Write, extent, buffer, durable, None)
            }
            Operation::Compare { extent, buffer } => (Kind::Compare, extent, buffer, false, None),
            Operation::Flush => (Kind::Flush, Extent::default(), Buffer::empty(), false, None),
            Operation::WriteZeroes { extent, deallocate, durable } => {
                (Kind::Zeroes { deallocate }, extent, Buffer::empty(), durable, None)
            }
            Operation::Verify { extent } => (Kind::Verify, extent, Buffer::empty(), false, None),
            Operation::Discard { extents } => {
                let ranges = Box::new(Ranges { extents, ..Ranges::default() });
                (Kind::Discard, Extent::default(), Buffer::empty(), false, Some(ranges))
            }
            foreign @ Operation::CompareAndWrite { .. } => {
                let request = Request { ticket, operation: foreign };
                let refused = request.complete(Outcome::NotDone(Failure::Unsupported));
                self.completions.push_back(refused);
                return;
            }
        };
        let index = self.insert(Job {
            ticket,
            kind,
            durable,
            state: State::Waiting,
            in_doubt: false,
            bad_digest: false,
            tries: 0,
            grants: 0,
            number: self.next_number,
            offset: extent.offset.0,
            length: extent.length.0,
            done: 0,
            chunk: 0,
            deadline,
            parent: None,
            part_at: 0,
            slot: 0,
            batch: 0,
            period: 0,
            lent: Lent::No,
            payload: Payload::Buffer(payload),
            received: 0,
            granted: 0,
            waiting_grants: [Grant::default(); GRANTS],
            verdict: None,
            ranges,
            covers: 0,
        });
        self.next_number += 1;
        self.waiting.push_back(index);
    }

    #[inline]
    fn insert(&mut self, job: Job) -> u32 {
        self.used += 1;
        if let Some(index) = self.free.pop() {
            self.table[index as usize] = job;
            return index;
        }
        self.table.push(job);
        (self.table.len() - 1) as u32
    }

    /// Cuts a job whose payload is larger than `most` (a multiple of 4096) into parts, at the edges of pages; they wait in front.
    pub(super) fn split(&mut self, index: u32, most: u32) {
        let job = &mut self.table[index as usize];
        let mut whole = core::mem::take(job.buffer_mut());
        let mut rest = whole.split_off(most - whole.phase());
        let (number, kind, durable, deadline) = (job.number, job.kind, job.durable, job.deadline);
        let (ticket, in_doubt) = (job.ticket, job.in_doubt);
        let (mut offset, mut at) = (job.offset, job.part_at);
        let first = whole.len();
        job.length = first.into();
        *job.buffer_mut() = whole;
        let parents = &mut self.parents;
        let parent = *job.parent.get_or_insert_with(|| {
            let parts = Vec::with_capacity(8);
            parents.insert(Parent { ticket, left: 1, outcome: Outcome::Done, parts })
        });
        (offset, at) = (offset + u64::from(first), at + first);
        let mut place = self.waiting.iter().position(|waits| *waits == index).unwrap_or(0) + 1;
        while !rest.is_empty() {
            let next = if rest.len() > most { rest.split_off(most) } else { Buffer::empty() };
            let length = rest.len();
            let part = self.insert(Job {
                ticket,
                kind,
                durable,
                state: State::Waiting,
                in_doubt,
                bad_digest: false,
                tries: 0,
                grants: 0,
                number,
                offset,
                length: length.into(),
                done: 0,
                chunk: 0,
                deadline,
                parent: Some(parent),
                part_at: at,
                slot: 0,
                batch: 0,
                period: 0,
                lent: Lent::No,
                payload: Payload::Buffer(core::mem::replace(&mut rest, next)),
                received: 0,
                granted: 0,
                waiting_grants: [Grant::default(); GRANTS],
                verdict: None,
                ranges: None,
                covers: 0,
            });
            if in_doubt {
                self.doubts.push(part);
            }
            self.waiting.insert(place, part);
            place += 1;
            (offset, at) = (offset + u64::from(length), at + length);
            self.parents.get_mut(parent).expect("it has parts").left += 1;
        }
    }

    /// Whether a change has to wait because it overlaps one in doubt; then it is blocked.
    #[inline]
    pub(super) fn block_if_overlapping(&mut self, index: u32) -> bool {
        if self.doubts.is_empty() {
            return false;
        }
        self.block_slowly(index)
    }

    #[cold]
    fn block_slowly(&mut self, index: u32) -> bool {
        let job = &self.table[index as usize];
        if !job.kind.changes() || job.in_doubt {
            return false;
        }
        let extents = match &job.ranges {
            Some(ranges) => ranges.extents.clone(),
            None => vec![Extent::new(job.offset, job.length)],
        };
        let mut doubts = self.doubts.iter().map(|doubt| &self.table[*doubt as usize]);
        if !doubts.any(|doubt| extents.iter().any(|extent| doubt.overlaps(*extent))) {
            return false;
        }
        self.table[index as usize].state = State::Blocked;
        self.blocked.push(index);
        true
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

    #[cold]
    fn finish_part(&mut self, slot: block::Slot, at: u32, outcome: Outcome, buffer: Buffer) {
        let parent = self.parents.get_mut(slot).expect("a parent outlives its parts");
        parent.outcome = join(parent.outcome, outcome, at);
        parent.parts.push((at, buffer));
        parent.left -= 1;
        if parent.left > 0 {
            return;
        }
        let mut parent = self.parents.remove(slot).expect("just seen");
        parent.parts.sort_by_key(|(at, _)| *at);
        let mut whole = Buffer::empty();
        for (_, part) in parent.parts {
            whole.append(part);
        }
        self.completions.push_back(Completion::new(parent.ticket, parent.outcome, whole));
    }

    /// Lets the blocked try again, in their order.
    #[cold]
    fn unblock(&mut self) {
        for index in self.blocked.drain(..).rev() {
            self.table[index as usize].state = State::Waiting;
            self.waiting.push_front(index);
        }
    }

    /// What becomes of jobs whose connection broke; their buffers are home. `left` tells whether the command may have left.
    pub(super) fn recover(&mut self, now: Instant, mut lost: Vec<(u32, bool)>) {
        lost.sort_by_key(|(index, _)| core::cmp::Reverse(self[*index].number));
        for (index, left) in lost {
            let job = &mut self.table[index as usize];
            (job.grants, job.received, job.granted) = (0, 0, 0);
            job.bad_digest = false;
            if let Some(verdict) = job.verdict.take() {
                self.conclude(now, index, verdict);
            } else if left && job.kind.changes() {
                if !job.in_doubt {
                    job.in_doubt = true;
                    self.doubts.push(index);
                }
                job.state = State::Doubtful(None);
            } else {
                self.wait_again(index);
            }
        }
    }

    /// The old association's last connection is closed: its commands are dead at `dead_at`.
    pub(super) fn all_closed(&mut self, dead_at: Instant, shared: bool, volatile: bool) {
        for index in &self.doubts {
            let job = &mut self.table[*index as usize];
            if job.state == State::Doubtful(None) {
                job.state = State::Doubtful(Some(dead_at));
            }
        }
        self.flush_doubt |= volatile && (shared || self.written > self.covered);
    }

    /// The number of completed writes that a flush sent now covers; `None` if flushes have to fail, see *flush doubt*.
    pub(super) fn flush_covers(&self) -> Option<u64> {
        if self.flush_doubt { None } else { Some(self.written) }
    }

    /// Fails every flush that waits, once.
    #[cold]
    pub(super) fn fail_flushes(&mut self) {
        self.flush_doubt = false;
        self.covered = self.written;
        let is_flush = |index: &u32| self.table[*index as usize].kind == Kind::Flush;
        let flushes: Vec<u32> = self.waiting.iter().copied().filter(is_flush).collect();
        self.waiting.retain(|index| !flushes.contains(index));
        for index in flushes {
            self.finish(index, Outcome::NotDone(Failure::MediumWrite));
        }
    }

    /// Time has passed: the rested wait again, the doubtful whose association is dead are replayed or end.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let table = &mut self.table;
        let waiting = &mut self.waiting;
        self.resting.retain(|(until, index)| {
            if *until <= now {
                table[*index as usize].state = State::Waiting;
                waiting.push_back(*index);
            }
            *until > now
        });
        let is_dead = |index: &u32| matches!(self.table[*index as usize].state, State::Doubtful(Some(dead_at)) if dead_at <= now);
        let dead: Vec<u32> = self.doubts.iter().copied().filter(is_dead).collect();
        for index in dead.into_iter().rev() {
            if now >= self[index].deadline {
                self.finish(index, Outcome::Unknown(Failure::TimedOut));
            } else {
                self.wait_again(index);
            }
        }
    }

    /// Ends what waits past its deadline (or, with `all`, what waits at all) for this reason; returns whether a queued job is past its deadline, and when to look again.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        all: bool,
        why: Failure,
    ) -> (bool, Option<Instant>) {
        let is_over = |job: &Job| all || job.deadline <= now;
        let mut over = Vec::new();
        let (mut stuck, mut next) = (false, None::<Instant>);
        for (index, job) in self.table.iter().enumerate() {
            match job.state {
                State::Free => {}
                // One past its deadline ends when the old association is dead; one before it may be asked again until then.
                State::Doubtful(_) if job.deadline <= now => {}
                State::Queued if job.deadline <= now => stuck = true,
                State::Waiting | State::Blocked | State::Resting if is_over(job) => {
                    over.push(index as u32);
                }
                _ => next = Some(next.map_or(job.deadline, |next| next.min(job.deadline))),
            }
        }
        if !over.is_empty() {
            self.waiting.retain(|index| !over.contains(index));
            self.blocked.retain(|index| !over.contains(index));
            self.resting.retain(|(_, index)| !over.contains(index));
        }
        for index in over {
            // What was replayed and did not come to an end was maybe carried out before.
            let in_doubt = self[index].in_doubt;
            let outcome = if in_doubt { Outcome::Unknown(why) } else { Outcome::NotDone(why) };
            self.finish(index, outcome);
        }
        (stuck, next)
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.resting.is_empty() && self.doubts.is_empty() {
            return None;
        }
        let dead_at = |index: &u32| match self.table[*index as usize].state {
            State::Doubtful(dead_at) => dead_at,
            _ => None,
        };
        let resting = self.resting.iter().map(|(until, _)| *until);
        resting.chain(self.doubts.iter().filter_map(dead_at)).min()
    }
}

/// The outcome of a whole of which one part, at byte `at`, ended so.
fn join(whole: Outcome, part: Outcome, at: u32) -> Outcome {
    let part = match part {
        Outcome::Miscompare(byte) => Outcome::Miscompare(at + byte),
        other => other,
    };
    let rank = |outcome| match outcome {
        Outcome::Done => 0,
        Outcome::Miscompare(_) => 1,
        Outcome::NotDone(_) => 2,
        Outcome::Unknown(_) => 3,
    };
    match (whole, part) {
        (Outcome::Miscompare(a), Outcome::Miscompare(b)) => Outcome::Miscompare(a.min(b)),
        _ if rank(part) > rank(whole) => part,
        _ => whole,
    }
}
