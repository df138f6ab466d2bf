//! What happens to jobs because time has passed: deadlines, rests between tries, the end of doubt.
//! Times: shard clock.

use core::cmp::Reverse;
use core::time::Duration;

use block::{Failure, Instant, Outcome};

use crate::disk::Disk;
use crate::job::JobState;

/// Tries of one command before "not now" becomes "not done".
const TRIES: u8 = 8;
/// The rests between them: 1, 2, 4 ... 64 ms. A digest that was wrong once is asked for again soon,
/// a disk that is not ready is not flooded.
const REST_FIRST: Duration = Duration::from_millis(1);
const REST_LONGEST: Duration = Duration::from_millis(64);

/// A rest that doubles each time, up to a longest one.
pub fn backoff(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(30)).min(longest)
}

impl<W: Default> Disk<W> {
    /// Looks at the jobs then, or earlier.
    #[inline]
    pub fn wake_at(&mut self, at: Instant) {
        self.due = Instant::earliest(self.due, Some(at));
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Time has passed: who rested waits again, who waited for too long ends, changes in doubt
    /// whose commands are dead are asked again or end *unknown*. Returns active jobs whose time is
    /// over, and why: they are past their deadline ([`Failure::TimedOut`]), or nobody waits any
    /// longer. What becomes of those is the protocol's to say.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<(u32, Failure)> {
        let mut stuck = Vec::new();
        if self.due.is_none_or(|due| due > now) {
            return stuck;
        }
        self.due = None;
        self.end_strays(now);
        let ended = self.presence.ends_waiting();
        let (mut again, mut over) = (Vec::new(), Vec::new());
        for index in 0..self.table.len() as u32 {
            let job = &self[index];
            let (is_late, state, deadline) = (job.deadline <= now, job.state, job.deadline);
            let ends = if is_late { Some(Failure::TimedOut) } else { ended };
            match state {
                JobState::Free | JobState::Doubtful(None) => {}
                JobState::Doubtful(Some(dead_at)) if dead_at > now => self.wake_at(dead_at),
                JobState::Active => {
                    stuck.extend(ends.map(|why| (index, why)));
                    if !is_late {
                        self.wake_at(deadline);
                    }
                }
                _ => match (ends, state) {
                    (Some(why), _) => over.push((index, why)),
                    (None, JobState::Resting(until)) if until > now => {
                        self.wake_at(until.min(deadline));
                    }
                    (None, JobState::Waiting | JobState::Blocked) => self.wake_at(deadline),
                    (None, _) => {
                        again.push(index);
                        self.wake_at(deadline);
                    }
                },
            }
        }
        again.sort_by_key(|index| Reverse(self[*index].number));
        again.into_iter().for_each(|index| self.wait_again(index));
        if !over.is_empty() {
            let stays = |index: &u32| over.iter().all(|(gone, _)| gone != index);
            self.waiting.retain(stays);
            self.blocked.retain(stays);
        }
        for (index, why) in over {
            // What was begun before may have been carried out.
            let is_sure = !self[index].claims;
            let outcome = if is_sure { Outcome::NotDone(why) } else { Outcome::Unknown(why) };
            self.finish(index, outcome);
        }
        stuck
    }

    /// Another try after a rest, or none.
    #[cold]
    pub(crate) fn retry(&mut self, now: Instant, index: u32, failure: Failure) {
        let job = &mut self[index];
        job.tries += 1;
        if job.tries >= TRIES || now >= job.deadline {
            return self.finish(index, Outcome::NotDone(failure));
        }
        let until = now + backoff(REST_FIRST, u32::from(job.tries) - 1, REST_LONGEST);
        job.state = JobState::Resting(until);
        self.wake_at(until);
    }

    /// A job of which no more commands are made is waited for until then.
    pub fn postpone(&mut self, index: u32, deadline: Instant) {
        self[index].deadline = deadline;
        self.wake_at(deadline);
    }
}
