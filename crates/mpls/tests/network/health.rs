//! Which paths are whole, as whoever breaks them knows it, and what follows from that for those who
//! find out by BFD: by when they have to know, and before when they may not.
//!
//! A path is whole while both of its directions are, since its two ends watch it together. It is *firm*
//! once it has been whole for long enough that its sessions are Up and go by the intervals that were
//! configured; one that breaks before that may take as long as slow packets do. An end that still hears
//! the other is told by it; so if something else of the path fails before both ends know, they may take
//! as long again.

use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;

/// How long things take in a run.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// By when both ends know that a path that was firm fails: the detection time, and what is on its
    /// way; where links lose, the next packet after one that is lost, too.
    pub(super) detected: Duration,
    /// The same of one that was not.
    pub(super) detected_slow: Duration,
    /// By when both are Up who hear each other again: three packets, one a second, each maybe lost
    /// once.
    pub(super) up_again: Duration,
    /// For how long a path has to be up again before traffic moves back.
    pub(super) wait: Duration,
    /// By when it was asked how large frames it carries.
    pub(super) asked: Duration,
}

impl Times {
    pub(super) fn new(is_lossy: bool, wait: Duration) -> Self {
        let millis = Duration::from_millis;
        let (detected, up_again) =
            if is_lossy { (millis(2_200), millis(9_000)) } else { (millis(970), millis(4_000)) };
        Self { detected, detected_slow: millis(6_000), up_again, wait, asked: millis(3_000) }
    }

    /// By when traffic is on the primary path again.
    pub(super) fn back(&self) -> Duration {
        self.up_again + self.wait + self.asked
    }
}

/// A path of a wire, by their numbers.
pub(super) type PathKey = (usize, usize);

/// What of a path fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    /// From the first end to the second, and back.
    pub(super) directions: [bool; 2],
    /// An end stands still.
    pub(super) ends: [bool; 2],
}

impl Failing {
    const NOTHING: Self = Self { directions: [false; 2], ends: [false; 2] };
}

#[derive(Clone, Copy)]
struct Known {
    failing: Failing,
    /// Since when it is whole, or is not.
    since: Instant,
    /// Since when both ends may find out that it fails.
    worse_since: Instant,
    /// It was firm when it last broke.
    was_firm: bool,
}

impl Known {
    fn new(now: Instant, failing: Failing, was_firm: bool) -> Self {
        Self { failing, since: now, worse_since: now, was_firm }
    }

    fn is_whole(&self) -> bool {
        self.failing == Failing::NOTHING
    }
}

pub(super) struct Health {
    pub(super) times: Times,
    paths: BTreeMap<PathKey, Known>,
}

impl Health {
    pub(super) fn new(times: Times) -> Self {
        Self { times, paths: BTreeMap::new() }
    }

    /// A path is like this now.
    pub(super) fn set(&mut self, now: Instant, key: PathKey, failing: Failing) {
        let is_known = self.paths.contains_key(&key) && self.is_down(now, key);
        let known = self.paths.entry(key).or_insert(Known::new(now, failing, false));
        let before = core::mem::replace(&mut known.failing, failing);
        if before == failing {
            return;
        }
        match (before == Failing::NOTHING, known.is_whole()) {
            (true, _) => {
                let was_firm = now.since(known.since) >= self.times.up_again;
                *known = Known::new(now, failing, was_firm);
            }
            (false, true) => *known = Known::new(now, failing, known.was_firm),
            (false, false) if !is_known => known.worse_since = now,
            (false, false) => {}
        }
    }

    /// A path is another one now.
    pub(super) fn begin(&mut self, now: Instant, key: PathKey, failing: Failing) {
        self.paths.insert(key, Known::new(now, failing, false));
    }

    /// Who stood still on a path goes on, with old messages that may show what is no longer so.
    pub(super) fn doubt(&mut self, now: Instant, key: PathKey) {
        let known = self.paths.get_mut(&key).expect("it is known");
        if !known.is_whole() {
            (known.worse_since, known.was_firm) = (now, false);
        }
    }

    pub(super) fn is_whole(&self, key: PathKey) -> bool {
        self.paths[&key].is_whole()
    }

    /// Whether it has been whole for so long.
    pub(super) fn is_whole_for(&self, now: Instant, key: PathKey, time: Duration) -> bool {
        let known = &self.paths[&key];
        known.is_whole() && now.since(known.since) >= time
    }

    /// Whether both ends must know that it is up.
    pub(super) fn is_up(&self, now: Instant, key: PathKey) -> bool {
        self.is_whole_for(now, key, self.times.up_again)
    }

    fn patience(&self, known: &Known) -> Duration {
        if known.was_firm { self.times.detected } else { self.times.detected_slow }
    }

    /// Whether both ends must know that it is not.
    pub(super) fn is_down(&self, now: Instant, key: PathKey) -> bool {
        let known = &self.paths[&key];
        !known.is_whole() && now.since(known.worse_since) > self.patience(known)
    }

    /// Whether an end may think that it fails: it does, or did a moment ago.
    pub(super) fn may_fail(&self, now: Instant, key: PathKey) -> bool {
        let known = &self.paths[&key];
        !known.is_whole() || now.since(known.since) < self.patience(known)
    }

    /// Whether what a wire is sent now has to arrive: by whichever path an end may take at present, and
    /// why.
    pub(super) fn promises(&self, now: Instant, wire: usize) -> Option<String> {
        let [primary, backup] = [(wire, 0), (wire, 1)];
        let carries =
            |key, other| self.is_whole(key) || (self.is_down(now, key) && self.is_up(now, other));
        let is_one_whole = self.is_whole(primary) || self.is_whole(backup);
        let is_promised = is_one_whole && carries(primary, backup) && carries(backup, primary);
        is_promised.then(|| self.tell(now, wire))
    }

    /// How the paths of a wire are.
    pub(super) fn tell(&self, now: Instant, wire: usize) -> String {
        let tell = |path| {
            let known = self.paths[&(wire, path)];
            let what = if known.is_whole() { "whole" } else { "broken" };
            let firm = if known.was_firm { "" } else { " (not firm before)" };
            format!("{what} for {:?}{firm}", now.since(known.since))
        };
        format!("of wire {wire} the primary is {}, the backup {}", tell(0), tell(1))
    }
}
