//! How long a plan takes, before anything has run: cells by rounds by windows.
//!
//! At least: trials that settle in their first five windows, and the fewest rounds. At most: 25
//! windows a trial, the most rounds, and each of them once more. Where in between is known once the
//! pilots are over; a runner's progress tells it then.

use std::fmt;
use std::time::Duration;

use super::model::{Cell, Experiment, Group};
use super::words::Span;
use crate::statistics::order::block_rounds;
use crate::statistics::plan::ROUNDS_MIN;
use crate::statistics::sizing::PILOTS;
use crate::statistics::steady::{WINDOWS, WINDOWS_MAX};

/// How long it takes to start and stop a system, its connection and its path. A guess, which a
/// runner replaces by what it saw.
const START: Duration = Duration::from_secs(1);

/// How long a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub trials_min: u64,
    pub least: Duration,
    pub trials_max: u64,
    pub most: Duration,
}

/// `at least 60 trials in 6min 30s, at most 2400 in 5h`.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { trials_min, least, trials_max, most } = *self;
        let (least, most) = (Span(least), Span(most));
        write!(f, "at least {trials_min} trials in {least}, at most {trials_max} in {most}")
    }
}

impl Estimate {
    /// `at least 60 trials in 6min 30s, at most 20min`, of one that has a time.
    pub fn within(&self, time: Duration) -> String {
        if time >= self.most {
            return self.to_string();
        }
        let Estimate { trials_min, least, .. } = *self;
        format!("at least {trials_min} trials in {}, at most {}", Span(least), Span(time))
    }
}

impl Experiment {
    /// How long it takes as far as is known before it runs; `time` is not looked at.
    pub fn estimate(&self) -> Estimate {
        let mut estimate =
            Estimate { trials_min: 0, least: Duration::ZERO, trials_max: 0, most: Duration::ZERO };
        let mut add = |cells: &[Cell], rounds_min: usize, rounds_max: usize| {
            let round = |windows| cells.iter().map(|cell| self.trial_time(cell, windows)).sum();
            let (least, most): (Duration, Duration) = (round(WINDOWS), round(WINDOWS_MAX));
            estimate.trials_min += (cells.len() * rounds_min) as u64;
            estimate.trials_max += (cells.len() * rounds_max) as u64;
            estimate.least = estimate.least.saturating_add(least.saturating_mul(rounds_min as u32));
            estimate.most = estimate.most.saturating_add(most.saturating_mul(rounds_max as u32));
        };
        for group in &self.groups {
            match self.rounds {
                // Where there is no time for all of them, those that there is time for.
                Some(rounds) if self.time.is_some() => add(&group.cells, ROUNDS_MIN, 2 * rounds),
                Some(rounds) => add(&group.cells, rounds, 2 * rounds),
                None => {
                    let (least, most) = group.rounds();
                    add(&group.cells, PILOTS + least, 2 * (PILOTS + most));
                }
            }
        }
        for picture in &self.pictures {
            add(&picture.cells, 1, 1);
        }
        estimate
    }

    /// How long a trial of so many windows takes.
    pub(super) fn trial_time(&self, cell: &Cell, windows: usize) -> Duration {
        START + self.warm_up + self.window_of(cell) * windows as u32
    }
}

impl Group {
    /// The fewest and the most rounds that may be planned after its pilots.
    fn rounds(&self) -> (usize, usize) {
        let most = self.plan.rounds_max;
        (ROUNDS_MIN.next_multiple_of(block_rounds(self.plan.systems)).min(most), most)
    }
}
