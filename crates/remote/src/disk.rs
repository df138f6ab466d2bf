//! A remote disk: its jobs, from the arrival of a request to its one completion, whatever becomes
//! of connections and frames meanwhile. A job is in exactly one place:
//!
//! ```text
//!   admit --> waiting --start--> active --conclude--> (completed)
//!              ^  ^  ^            |  \--> resting -+          the target said "not now"
//!              |  |  +------------|----------------+
//!              |  blocked         +--> doubtful --> waiting   its connection broke, and it may have been carried out
//!              +------------------------------------+
//! ```
//!
//! In: requests, verdicts on commands, the present. Out: jobs to make commands of, completions. A
//! job whose payload is elsewhere cannot end; whoever took it gives it back first. Units: bytes of
//! the disk; times on the shard clock.

use std::collections::VecDeque;

use block::{Buffer, Completion, Failure, Instant, Operation, Outcome, Request, Table};

use crate::claims::Claim;
use crate::doubt::Flushes;
use crate::job::{Job, JobKind, JobState, PayloadPlace, Verdict};
use crate::parts::Whole;
use crate::presence::Presence;

/// A remote disk as its initiator keeps it; `W` is what the initiator keeps with each job.
#[derive(Debug, Default)]
pub struct Disk<W> {
    pub(crate) table: Vec<Job<W>>,
    free: Vec<u32>,
    next_number: u64,
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) blocked: Vec<u32>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) wholes: Table<Whole>,
    /// Jobs that are over: each stays in its place until its completion is fetched.
    over: VecDeque<u32>,
    /// Completions of what is no job, or no job any more.
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) flushes: Flushes,
    /// When something may be due, at the earliest.
    pub(crate) due: Option<Instant>,
    pub presence: Presence,
    /// Changes that were blocked.
    pub blocked_count: u64,
}

impl<W> core::ops::Index<u32> for Disk<W> {
    type Output = Job<W>;

    #[inline]
    fn index(&self, index: u32) -> &Job<W> {
        &self.table[index as usize]
    }
}

impl<W> core::ops::IndexMut<u32> for Disk<W> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Job<W> {
        &mut self.table[index as usize]
    }
}

impl<W: Default> Disk<W> {
    /// Jobs that are not over.
    pub fn in_flight(&self) -> usize {
        self.table.len() - self.free.len() - self.over.len()
    }

    /// Whether nothing is left: no job, no completion.
    pub fn is_empty(&self) -> bool {
        self.table.len() == self.free.len() && self.completions.is_empty()
    }

    /// Takes a request in, out of where it lies; it waits.
    #[inline]
    pub fn admit(&mut self, request: &mut Request, deadline: Instant) {
        if let Operation::CompareAndWrite { .. } = request.operation {
            return self.answer(request, Outcome::NotDone(Failure::Unsupported));
        }
        // Where the other side keeps holes is not asked: all of it may be data.
        if let Operation::Seek { sought, .. } = request.operation {
            return self.answer(request, sought.in_data());
        }
        if self.presence.is_closing() {
            return self.answer(request, Outcome::NotDone(Failure::Removed));
        }
        let (index, number) = (self.place(), self.next_number);
        self.next_number += 1;
        self.table[index as usize].begin(request, number, deadline);
        self.waiting.push_back(index);
        let hurries = self.presence.ends_waiting().is_some();
        self.wake_at(if hurries { Instant::ZERO } else { deadline });
    }

    /// Answers a request of which no job is made.
    pub fn answer(&mut self, request: &mut Request, outcome: Outcome) {
        let operation = core::mem::replace(&mut request.operation, Operation::Flush);
        let request = Request { ticket: request.ticket, operation };
        self.completions.push_back(request.complete(outcome));
    }

    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if !self.completions.is_empty() {
            return self.completions.pop_front();
        }
        let index = self.over.pop_front()?;
        Some(self.vacate(index))
    }

    /// All completions there are, in the order of [`poll_completion`](Self::poll_completion).
    #[inline]
    pub fn take_completions(&mut self, into: &mut Vec<Completion>) {
        if !self.completions.is_empty() {
            into.extend(self.completions.drain(..));
        }
        // In slices, each completion is made where it is put: a move of what has just been written
        // piece by piece would wait until that is done.
        let (table, over) = (&mut self.table, self.over.as_slices());
        for over in [over.0, over.1] {
            self.free.extend_from_slice(over);
            into.extend(over.iter().map(|index| table[*index as usize].leave()));
        }
        self.over.clear();
    }

    /// A place for a job: one that nobody has any more, if there is one.
    #[inline]
    pub(crate) fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.table.push(Job::default());
            (self.table.len() - 1) as u32
        })
    }

    /// The job whose turn it is; it stays in front until [`start`](Self::start) or
    /// [`split`](Self::split). Changes that overlap a claim are blocked on the way, and flushes
    /// fail that have to.
    #[inline]
    pub fn front(&mut self) -> Option<u32> {
        loop {
            let index = *self.waiting.front()?;
            if self.is_claimed(index) {
                self.block_front();
            } else if self[index].kind == JobKind::Flush && self.flushes.are_doubtful {
                self.fail_flushes();
            } else {
                return Some(index);
            }
        }
    }

    /// The job in front is begun, or ends without a command.
    #[inline]
    pub fn start(&mut self) -> &mut Job<W> {
        let index = self.waiting.pop_front().expect("the job that is begun is in front");
        let job = &mut self.table[index as usize];
        job.state = JobState::Active;
        job.covers = self.flushes.written;
        job
    }

    /// Takes a payload back that was elsewhere.
    #[inline]
    pub fn take_home(&mut self, index: u32, buffer: Buffer) {
        let job = &mut self.table[index as usize];
        (job.buffer, job.place) = (buffer, PayloadPlace::Home);
    }

    /// A command was answered and its payload is at home: goes on with the job or ends it.
    #[inline]
    pub fn conclude(&mut self, now: Instant, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Finish(Outcome::Done) if self[index].advance() => self.wait_again(index),
            Verdict::Finish(outcome) => self.finish(index, outcome),
            Verdict::Retry(failure) => self.retry(now, index, failure),
        }
    }

    /// Ends a job, whose payload must be at home, where it stays: moving it is for whoever fetches
    /// the completion, when the bytes that were just put into it have left the processor's queues.
    #[inline]
    pub fn finish(&mut self, index: u32, outcome: Outcome) {
        let job = &mut self.table[index as usize];
        job.end(outcome);
        if outcome.is_done() {
            self.flushes.note(job);
        }
        let (part_of, claims) = (job.part_of, job.claims);
        if claims {
            self.release(index);
        }
        match part_of {
            None => self.over.push_back(index),
            Some((whole, start)) => self.finish_part(whole, start, index),
        }
    }

    /// Frees the place of a job that is over; what became of it, and its payload.
    #[inline]
    pub(crate) fn vacate(&mut self, index: u32) -> Completion {
        self.free.push(index);
        self.table[index as usize].leave()
    }

    /// Ends a job as soon as its payload is at home: whoever takes that there finds the verdict.
    pub fn finish_when_home(&mut self, index: u32, outcome: Outcome) {
        let job = &mut self.table[index as usize];
        match job.place {
            PayloadPlace::Home => self.finish(index, outcome),
            _ => job.verdict = Some(Verdict::Finish(outcome)),
        }
    }

    /// The target had no room for a job's command, and its payload is at home: it waits again, in
    /// front of all that came after it. That is no try.
    #[cold]
    pub fn put_back(&mut self, index: u32) {
        let number = self[index].number;
        let is_older = |other: &&u32| self.table[**other as usize].number < number;
        let at = self.waiting.iter().take_while(is_older).count();
        self.waiting.insert(at, index);
        self[index].state = JobState::Waiting;
    }

    /// In front of all that wait.
    pub(crate) fn wait_again(&mut self, index: u32) {
        self[index].state = JobState::Waiting;
        self.waiting.push_front(index);
    }
}
