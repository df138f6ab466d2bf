//! Which paths are whole, as whoever breaks them knows it, and what follows from that for those who
//! find out by BFD: by when they have to know, and before when they may not.
//!
//! A path is whole while both of its directions are, since its two ends watch it together. It is *firm*
//! once it has been whole for long enough that its sessions are Up and go by the intervals that were
//! configured; one that breaks before that may take as long as slow packets do.

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

#[derive(Clone, Copy)]
struct Known {
    is_whole: bool,
    /// Since when it is as it is.
    since: Instant,
    /// It was firm when it last broke.
    was_firm: bool,
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
    pub(super) fn set(&mut self, now: Instant, key: PathKey, is_whole: bool) {
        let up_again = self.times.up_again;
        let new = Known { is_whole, since: now, was_firm: false };
        let known = self.paths.entry(key).or_insert(new);
        if known.is_whole != is_whole {
            let was_firm =
                if is_whole { known.was_firm } else { now.since(known.since) >= up_again };
            *known = Known { is_whole, since: now, was_firm };
        }
    }

    /// A path is another one now.
    pub(super) fn begin(&mut self, now: Instant, key: PathKey, is_whole: bool) {
        self.paths.insert(key, Known { is_whole, since: now, was_firm: false });
    }

    pub(super) fn is_whole(&self, key: PathKey) -> bool {
        self.paths[&key].is_whole
    }

    /// Whether it has been whole for so long.
    pub(super) fn is_whole_for(&self, now: Instant, key: PathKey, time: Duration) -> bool {
        let Known { is_whole, since, .. } = self.paths[&key];
        is_whole && now.since(since) >= time
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
        !known.is_whole && now.since(known.since) > self.patience(known)
    }

    /// Whether an end may think that it fails: it does, or did a moment ago.
    pub(super) fn may_fail(&self, now: Instant, key: PathKey) -> bool {
        let known = &self.paths[&key];
        !known.is_whole || now.since(known.since) < self.patience(known)
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
            let Known { is_whole, since, was_firm } = self.paths[&(wire, path)];
            let what = if is_whole { "whole" } else { "broken" };
            let firm = if was_firm { "" } else { " (not firm before)" };
            format!("{what} for {:?}{firm}", now.since(since))
        };
        format!("of wire {wire} the primary is {}, the backup {}", tell(0), tell(1))
    }
}
