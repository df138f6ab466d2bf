//! Protection: which of its two paths traffic takes: that of a pseudowire, and that to a next hop.
//!
//! ```text
//!   primary Up                           -> primary
//!   primary was Up and is not, backup Up -> backup, at once
//!   primary never was, backup Up         -> backup, after the wait
//!   on backup, primary Up again          -> primary, after the wait; at once if backup is not Up
//!   neither Up                           -> as before
//! ```
//! A path is Up when both ends hear each other by it, so traffic never moves to one that is not. One
//! that is too narrow for what was promised counts as not Up while the other one is and was shown to
//! carry it; where none does, the rules are those for paths that do. The
//! wait keeps a path that comes and goes from taking the traffic along, and traffic does not move back
//! to one that is still being asked what it carries. Pure: what became of a path
//! and the present in, the path out. Units: none. No errors. Spec: none; the rules are ours, after
//! RFC 6378's revertive mode.

use core::fmt;
use core::time::Duration;

use block::{Instant, planted};
use contract::counters;

/// One of two paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    #[default]
    Primary,
    Backup,
}

impl Way {
    /// Both, the primary first.
    pub const BOTH: [Way; 2] = [Way::Primary, Way::Backup];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Primary { "primary" } else { "backup" })
    }
}

/// Whether a path carries frames as large as was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fit {
    #[default]
    Unknown,
    Carries,
    TooNarrow,
}

counters! {
    /// How often traffic took another path.
    pub struct ProtectionCounters {
        /// Times that they moved to the backup.
        to_backup: Events,
        /// Times that they moved back.
        to_primary: Events,
    }
}

/// What is known of two paths.
#[derive(Clone, Debug)]
pub(crate) struct Protection {
    pub(crate) wait: Duration,
    is_up: [bool; 2],
    was_up: bool,
    fits: [Fit; 2],
    /// Which of them is being asked.
    is_asked: [bool; 2],
    /// The path that is taken.
    active: Way,
    /// When the other one is to be taken, if nothing changes.
    move_at: Option<Instant>,
    pub(crate) counters: ProtectionCounters,
}

impl Protection {
    pub(crate) fn new(wait: Duration) -> Self {
        Self {
            wait,
            is_up: [false; 2],
            was_up: false,
            fits: [Fit::Unknown; 2],
            is_asked: [false; 2],
            active: Way::Primary,
            move_at: None,
            counters: ProtectionCounters::default(),
        }
    }

    /// Of a next hop: whether the way around it is whole is for others to know, and it counts as Up.
    pub(crate) fn of_next_hop(wait: Duration) -> Self {
        Self { is_up: [false, true], ..Self::new(wait) }
    }

    pub(crate) fn is_up(&self, way: Way) -> bool {
        self.is_up[way as usize]
    }

    pub(crate) fn active(&self) -> Way {
        self.active
    }

    /// The moment to call `handle_timeout`; none while the path to which traffic would move is asked.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.move_at.filter(|_| !self.is_asked[self.other() as usize])
    }

    fn other(&self) -> Way {
        if self.active == Way::Primary { Way::Backup } else { Way::Primary }
    }

    /// Whether traffic may take a path.
    fn may_take(&self, way: Way) -> bool {
        let (it, other) = (way as usize, 1 - way as usize);
        let has_better = self.is_up[other] && self.fits[other] == Fit::Carries;
        let is_refused = self.fits[it] == Fit::TooNarrow && has_better;
        let is_up = self.is_up[it] || planted("down-path-is-taken");
        is_up && (!is_refused || planted("narrow-path-is-taken"))
    }

    /// A path is Up, or no longer. Returns the path that is taken from now on, if that is another.
    pub(crate) fn handle(&mut self, now: Instant, way: Way, is_up: bool) -> Option<Way> {
        self.is_up[way as usize] = is_up;
        let was_up = self.was_up;
        self.was_up |= self.is_up[0];
        self.choose(now, was_up)
    }

    /// What is known of how large frames a path carries, and whether it is being asked.
    pub(crate) fn handle_fit(
        &mut self,
        now: Instant,
        way: Way,
        fit: Fit,
        is_asked: bool,
    ) -> Option<Way> {
        self.fits[way as usize] = fit;
        self.is_asked[way as usize] = is_asked;
        self.choose(now, self.was_up)
    }

    fn choose(&mut self, now: Instant, was_up: bool) -> Option<Way> {
        let (wanted, at_once) = match (self.active, Way::BOTH.map(|way| self.may_take(way))) {
            (Way::Primary, [false, true]) => {
                (Way::Backup, was_up && !planted("failure-is-waited-for"))
            }
            (Way::Backup, [true, false]) => (Way::Primary, !self.is_up[1]),
            (Way::Backup, [true, true]) => (Way::Primary, planted("traffic-reverts-at-once")),
            (active, _) => (active, false),
        };
        if wanted == self.active {
            self.move_at = self.move_at.filter(|_| planted("failure-does-not-end-the-wait"));
            return None;
        }
        if at_once {
            return Some(self.take(wanted));
        }
        self.move_at.get_or_insert(now + self.wait);
        None
    }

    /// There is no other path: the primary is taken, and nothing is waited for.
    pub(crate) fn stay(&mut self) {
        (self.active, self.move_at) = (Way::Primary, None);
    }

    /// The moment of `poll_timeout` may have come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Way> {
        self.poll_timeout().filter(|at| *at <= now)?;
        Some(self.take(self.other()))
    }

    fn take(&mut self, way: Way) -> Way {
        (self.active, self.move_at) = (way, None);
        match way {
            Way::Primary => self.counters.to_primary += 1,
            Way::Backup => self.counters.to_backup += 1,
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::Way::{Backup, Primary};
    use super::*;

    const WAIT: Duration = Duration::from_secs(5);
    const START: Instant = Instant(1_000_000_000);

    fn at(seconds: u64) -> Instant {
        START + Duration::from_secs(seconds)
    }

    /// Both paths came up, the primary first.
    fn protected() -> Protection {
        let mut it = Protection::new(WAIT);
        assert_eq!(it.handle(START, Primary, true), None);
        assert_eq!(it.handle(START, Backup, true), None);
        it
    }

    #[test]
    fn a_primary_that_fails_is_left_at_once_for_a_backup_that_is_up() {
        let mut it = protected();
        assert_eq!(it.handle(at(1), Primary, false), Some(Backup));
        let mut it = Protection::new(WAIT);
        it.handle(START, Primary, true);
        assert_eq!(it.handle(at(1), Primary, false), None, "the backup is not up");
        assert_eq!(it.handle(at(2), Backup, true), Some(Backup), "now it is");
    }

    #[test]
    fn traffic_moves_back_when_the_primary_was_up_for_the_whole_wait() {
        let mut it = protected();
        it.handle(at(1), Primary, false);
        it.handle(at(2), Primary, true);
        assert_eq!((it.handle_timeout(at(6)), it.poll_timeout()), (None, Some(at(7))));
        it.handle(at(6), Primary, false);
        assert_eq!((it.handle_timeout(at(8)), it.poll_timeout()), (None, None));
        it.handle(at(9), Primary, true);
        assert_eq!(it.handle(at(10), Primary, true), None, "it is told twice");
        assert_eq!(it.handle_timeout(at(14)), Some(Primary));
        let ProtectionCounters { to_backup, to_primary } = it.counters;
        assert_eq!((it.active(), to_backup, to_primary, it.poll_timeout()), (Primary, 1, 1, None));
    }

    #[test]
    fn a_backup_that_fails_is_left_at_once_and_two_that_fail_are_not() {
        let mut it = protected();
        it.handle(at(1), Primary, false);
        assert_eq!(it.handle(at(2), Backup, false), None);
        assert_eq!(it.active(), Backup);
        assert_eq!(it.handle(at(3), Primary, true), Some(Primary));
    }

    #[test]
    fn a_path_that_is_too_narrow_is_left_for_one_that_is_not_and_taken_where_there_is_none() {
        let mut it = protected();
        assert_eq!(it.handle_fit(at(1), Primary, Fit::TooNarrow, false), None, "none is better");
        assert_eq!(it.handle_fit(at(2), Backup, Fit::Unknown, false), None, "nor known to be");
        assert_eq!(it.handle_fit(at(3), Backup, Fit::Carries, false), Some(Backup));
        assert_eq!(it.poll_timeout(), None, "nothing is waited for");
        // It is still better than none.
        assert_eq!(it.handle(at(4), Backup, false), Some(Primary));
        assert_eq!(it.handle(at(5), Backup, true), Some(Backup));
        // Where both are, or the primary no longer is, traffic moves back as ever.
        assert_eq!(it.handle_fit(at(6), Backup, Fit::TooNarrow, false), None);
        assert_eq!(it.poll_timeout(), Some(at(11)));
        assert_eq!(it.handle_fit(at(7), Backup, Fit::Carries, false), None);
        assert_eq!(it.poll_timeout(), None);
        assert_eq!(it.handle_fit(at(8), Primary, Fit::Carries, false), None);
        assert_eq!(it.handle_timeout(at(13)), Some(Primary));
    }

    #[test]
    fn traffic_moves_back_for_its_size_after_the_wait_alone() {
        let mut it = protected();
        it.handle(at(1), Primary, false);
        it.handle_fit(at(1), Backup, Fit::TooNarrow, false);
        it.handle_fit(at(1), Primary, Fit::Carries, false);
        assert_eq!(it.handle(at(2), Primary, true), None);
        assert_eq!((it.poll_timeout(), it.handle_timeout(at(7))), (Some(at(7)), Some(Primary)));
    }

    #[test]
    fn traffic_does_not_move_back_to_a_path_that_is_being_asked() {
        let mut it = protected();
        it.handle(at(1), Primary, false);
        it.handle(at(2), Primary, true);
        assert_eq!(it.handle_fit(at(2), Primary, Fit::Unknown, true), None);
        assert_eq!((it.poll_timeout(), it.handle_timeout(at(8))), (None, None));
        let mut narrow = it.clone();
        narrow.handle_fit(at(3), Backup, Fit::Carries, false);
        assert_eq!(narrow.handle_fit(at(9), Primary, Fit::TooNarrow, false), None);
        assert_eq!((narrow.poll_timeout(), narrow.active()), (None, Backup));
        assert_eq!(it.handle_fit(at(9), Primary, Fit::Carries, false), None);
        assert_eq!((it.poll_timeout(), it.handle_timeout(at(9))), (Some(at(7)), Some(Primary)));
        // A backup is taken at once, asked or not: there is no other.
        it.handle_fit(at(10), Backup, Fit::Unknown, true);
        assert_eq!(it.handle(at(10), Primary, false), Some(Backup));
    }

    #[test]
    fn a_primary_that_never_was_up_is_waited_for() {
        let mut it = Protection::new(WAIT);
        assert_eq!(it.handle(START, Backup, true), None);
        assert_eq!(it.poll_timeout(), Some(at(5)));
        let mut late = it.clone();
        assert_eq!(it.handle(at(4), Primary, true), None);
        assert_eq!((it.active(), it.poll_timeout()), (Primary, None));
        assert_eq!(late.handle_timeout(at(5)), Some(Backup));
    }
}
