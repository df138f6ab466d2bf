//! Jobs after a break: which of them are replayed and when, which wait behind them, and which end *unknown*; and which flushes fail. Deadlines, too.
//!
//! **Doubt.** A write, discard or write zeroes that was on a broken association may still be carried out by the old controller. So it is replayed only
//! after the quiesce time, counted from the moment the last connection was closed; new changes that overlap it are *blocked* until it
//! is over; and when its deadline passes first it ends *unknown*, but not before the quiesce time. Reads, compares and verifies are simply asked again.
//!
//! **Flush doubt.** A target with a volatile cache that went away may have lost writes that it had completed. After a break, the next flushes
//! therefore fail once (`MediumWrite`) if a completed write was not covered by a flush, or if others write through associations of their own.
//!
//! Reasons: docs/decisions/0006. Units: times on the shard clock.

use block::{Extent, Failure, Instant, Outcome};

use super::{Job, Jobs, Kind, State};

impl Jobs {
    /// Whether a change has to wait because it overlaps one in doubt; then it is blocked.
    #[inline]
    pub(in crate::tcp::initiator) fn block_if_overlapping(&mut self, index: u32) -> bool {
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

    /// Lets the blocked try again, in their order.
    #[cold]
    pub(super) fn unblock(&mut self) {
        for index in self.blocked.drain(..).rev() {
            self.table[index as usize].state = State::Waiting;
            self.waiting.push_front(index);
        }
    }

    /// What becomes of jobs whose connection broke; their buffers are home. `left` tells whether the command may have left.
    pub(in crate::tcp::initiator) fn recover(&mut self, now: Instant, mut lost: Vec<(u32, bool)>) {
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
    pub(in crate::tcp::initiator) fn all_closed(
        &mut self,
        dead_at: Instant,
        shared: bool,
        volatile: bool,
    ) {
        for index in &self.doubts {
            let job = &mut self.table[*index as usize];
            if job.state == State::Doubtful(None) {
                job.state = State::Doubtful(Some(dead_at));
            }
        }
        self.flush_doubt |= volatile && (shared || self.written > self.covered);
    }

    /// The number of completed writes that a flush sent now covers; `None` if flushes have to fail, see *flush doubt*.
    pub(in crate::tcp::initiator) fn flush_covers(&self) -> Option<u64> {
        if self.flush_doubt { None } else { Some(self.written) }
    }

    /// Fails every flush that waits, once.
    #[cold]
    pub(in crate::tcp::initiator) fn fail_flushes(&mut self) {
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
    pub(in crate::tcp::initiator) fn handle_timeout(&mut self, now: Instant) {
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
    pub(in crate::tcp::initiator) fn expire(
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
    pub(in crate::tcp::initiator) fn poll_timeout(&self) -> Option<Instant> {
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
