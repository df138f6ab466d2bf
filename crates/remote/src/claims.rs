//! Claims: bytes that may not be changed at present, because a change to them is under way or may
//! still be carried out.
//!
//! A change that overlaps a claim of another is *blocked* until that is released. So no two
//! overlapping changes of one initiator can overtake one another below. Whose changes claim is the
//! protocol's to say: over frames, which may be held back and repeated, each change does from its
//! first command on; over connections only what a break left in doubt.
//!
//! A *stray* is a copy of a command that was answered already and may still be carried out: it
//! claims its bytes until it is answered, too, or surely dead.

use block::{Extent, Instant, planted};

use crate::disk::Disk;
use crate::job::JobState;

/// Bytes that are claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    extent: Extent,
    by: Claimant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimant {
    Job(u32),
    /// Copies of the command `tag` that were not answered, and when they are dead.
    Strays {
        tag: u32,
        missing: u32,
        until: Instant,
    },
}

impl<W: Default> Disk<W> {
    /// Claims what a job changes, until it is over.
    #[inline]
    pub fn claim(&mut self, index: u32) {
        let job = &mut self.table[index as usize];
        if !core::mem::replace(&mut job.claims, true) {
            let by = Claimant::Job(index);
            self.claims.extend(job.extents().iter().map(|&extent| Claim { extent, by }));
        }
    }

    /// Copies of a command were not answered: so many, dead at `until`.
    #[cold]
    pub fn claim_for_strays(&mut self, extent: Extent, tag: u32, missing: u32, until: Instant) {
        self.claims.push(Claim { extent, by: Claimant::Strays { tag, missing, until } });
        self.wake_at(until);
    }

    /// A command that was answered before was answered once more: a copy less.
    #[cold]
    pub fn stray_answered(&mut self, answered: u32) {
        self.release_where(|claimant| match claimant {
            Claimant::Strays { tag, missing, .. } if *tag == answered => {
                *missing -= 1;
                *missing == 0
            }
            _ => false,
        });
    }

    /// Strays that are dead claim nothing more.
    pub(crate) fn end_strays(&mut self, now: Instant) {
        let mut next = None;
        self.release_where(|claimant| match claimant {
            Claimant::Strays { until, .. } if *until > now => {
                next = Instant::earliest(next, Some(*until));
                false
            }
            Claimant::Strays { .. } => true,
            Claimant::Job(_) => false,
        });
        self.due = Instant::earliest(self.due, next);
    }

    /// A job is over.
    pub(crate) fn release(&mut self, index: u32) {
        self.table[index as usize].claims = false;
        self.release_where(|claimant| *claimant == Claimant::Job(index));
    }

    /// Ends some claims, and lets the blocked try again, in their order.
    #[inline]
    fn release_where(&mut self, mut ends: impl FnMut(&mut Claimant) -> bool) {
        let before = self.claims.len();
        self.claims.retain_mut(|claim| !ends(&mut claim.by));
        if self.claims.len() == before {
            return;
        }
        while let Some(index) = self.blocked.pop() {
            self.wait_again(index);
        }
    }

    /// Whether a job has to wait, since it would change what another claims.
    #[inline]
    pub(crate) fn is_claimed(&self, index: u32) -> bool {
        if self.claims.is_empty() || planted("overlaps-are-sent-at-once") {
            return false;
        }
        let job = &self[index];
        let overlaps =
            |extent: &Extent| self.claims.iter().any(|claim| claim.extent.overlaps(*extent));
        job.kind.changes() && !job.claims && job.extents().iter().any(overlaps)
    }

    /// The job in front waits until a claim is released.
    #[cold]
    pub(crate) fn block_front(&mut self) {
        if let Some(index) = self.waiting.pop_front() {
            self[index].state = JobState::Blocked;
            self.blocked.push(index);
            self.blocked_count += 1;
        }
    }
}
