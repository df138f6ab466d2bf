//! How late answers are told that an instrument holds back.
//!
//! A shard looks at the clock until one is due, but the machine may pause it just then: whoever measures a
//! planted delay has to know what was planted. In: the lateness of each answer, from any shard. Out: how
//! many answers were late by how many microseconds. Units: whole microseconds, rounded down. Errors: none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// So many microseconds late are told apart; the last stands for all that is more.
const STEPS: usize = 4096;

/// Counts answers by their lateness.
#[derive(Debug)]
pub(super) struct Late(Box<[AtomicU64]>);

impl Late {
    /// None was told so far.
    pub(super) fn new() -> Late {
        Late((0..STEPS).map(|_| AtomicU64::new(0)).collect())
    }

    /// One was told so late.
    pub(super) fn count(&self, late: Duration) {
        let step = (late.as_micros() as usize).min(STEPS - 1);
        self.0[step].fetch_add(1, Relaxed);
    }

    /// How many were late by 0, 1, 2 and so on.
    pub(super) fn look(&self) -> Vec<u64> {
        self.0.iter().map(|step| step.load(Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_whole_microseconds() {
        let late = Late::new();
        for ns in [0, 999, 1_000, 4_094_999, 4_095_000, 9_000_000_000] {
            late.count(Duration::from_nanos(ns));
        }
        let seen = late.look();
        assert_eq!((seen.len(), &seen[..3]), (4096, &[2, 1, 0][..]));
        assert_eq!((seen[4094], seen[4095]), (1, 2));
    }
}
