//! What a break leaves: which jobs are asked again and when, which end *unknown*, and which flushes
//! fail.
//!
//! **Doubt.** A change that may have left on a connection that broke may still be carried out by
//! the old target. So it is asked again only when that is surely over (after the quiesce time,
//! counted from the moment the last connection was closed, or as soon as a target that is believed
//! says so); what it changes is claimed until then; and when its deadline passes first, it ends
//! *unknown*, but not earlier. Reads, compares and verifies are simply asked again.
//!
//! **Flush doubt.** A target with a volatile cache that went away may have lost writes that it had
//! completed. After a break the next flushes therefore fail once (`MediumWrite`) if a completed
//! write was not covered by a flush, or if others write through connections of their own.

use core::cmp::Reverse;

use block::{Failure, Instant, Outcome, planted};
use contract::{Cache, DiskFacts};

use crate::disk::Disk;
use crate::job::{Job, JobKind, JobState};

/// Which completed writes a flush covered.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// Writes that were completed without being durable, and how many of them a flush covered.
    pub(crate) written: u64,
    covered: u64,
    /// Completed writes may be lost: the next flushes fail.
    pub(crate) are_doubtful: bool,
}

impl Flushes {
    /// A job is done.
    #[inline]
    pub(crate) fn note<W>(&mut self, job: &Job<W>) {
        match job.kind {
            JobKind::Write | JobKind::Zeroes { .. } if !job.durable => self.written += 1,
            JobKind::Flush => self.covered = self.covered.max(job.covers),
            _ => {}
        }
    }
}

impl<W: Default> Disk<W> {
    /// What becomes of jobs whose connection broke; their payloads are at home. Of each: whether
    /// its command may have left.
    #[cold]
    pub fn recover(&mut self, now: Instant, mut lost: Vec<(u32, bool)>) {
        lost.sort_by_key(|(index, _)| Reverse(self[*index].number));
        for (index, left) in lost {
            let job = &mut self[index];
            if let Some(verdict) = job.verdict.take() {
                self.conclude(now, index, verdict);
            } else if left && job.kind.changes() {
                job.state = JobState::Doubtful(None);
                self.claim(index);
            } else {
                self.wait_again(index);
            }
        }
        self.wake_at(now);
    }

    /// The last connection is closed: what was under way is dead at `dead_at`. `shared`: others
    /// write to the disk, too.
    #[cold]
    pub fn all_closed(&mut self, dead_at: Instant, shared: bool) {
        self.closed(dead_at);
        self.doubt_flushes(shared);
    }

    /// A connection is closed, of several that stand and fall alone: what was under way by it, which
    /// has just been recovered, is dead at `dead_at`.
    #[cold]
    pub fn closed(&mut self, dead_at: Instant) {
        let dead_at = if planted("replayed-at-once") { Instant::ZERO } else { dead_at };
        for job in &mut self.table {
            if job.state == JobState::Doubtful(None) {
                job.state = JobState::Doubtful(Some(dead_at));
            }
        }
        self.wake_at(dead_at);
    }

    /// Whoever carried out what was under way by one of several connections says that nothing of it
    /// is any more, and is believed. `is_its`: whether that is where a job's command was.
    #[cold]
    pub fn doubt_is_over(&mut self, now: Instant, is_its: impl Fn(&W) -> bool) {
        for job in &mut self.table {
            if let JobState::Doubtful(Some(dead_at)) = &mut job.state
                && (is_its(&job.wire) || planted("any-login-ends-doubt"))
            {
                *dead_at = now.min(*dead_at);
            }
        }
        self.wake_at(now);
    }

    /// The target was away and may have been started anew: what was completed and lay in a volatile
    /// cache may be lost. `shared`: others write to the disk, too.
    #[cold]
    pub fn doubt_flushes(&mut self, shared: bool) {
        let volatile = |facts: &DiskFacts| facts.cache == Cache::Volatile;
        let Flushes { written, covered, .. } = self.flushes;
        let may_be_lost =
            (shared && !planted("writes-of-other-shards-are-forgotten")) || written > covered;
        let is_ignored = planted("flush-vouches-for-lost-writes");
        if self.presence.facts().is_some_and(volatile) && may_be_lost && !is_ignored {
            self.flushes.are_doubtful = true;
        }
    }

    /// Whether flushes are to fail.
    pub fn has_flush_doubt(&self) -> bool {
        self.flushes.are_doubtful
    }

    /// Fails every flush that waits, once.
    #[cold]
    pub fn fail_flushes(&mut self) {
        self.flushes.are_doubtful = false;
        self.flushes.covered = self.flushes.written;
        let (flushes, others) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<u32>, _>(|index| self[*index].kind == JobKind::Flush);
        self.waiting = others.into();
        for index in flushes {
            self.finish(index, Outcome::NotDone(Failure::MediumWrite));
        }
    }
}
