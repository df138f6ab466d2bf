//! Whether a trial has settled: SNIA's criterion for a steady state (Solid State Storage Performance
//! Test Specification 2.0, definition of "Steady State").
//!
//! In come values of windows of equal length, in the measure that the trial is about. The trial is
//! steady as soon as the last five lie within 20% of their mean and the line that fits them best
//! rises or falls by no more than 10% of it between the first and the last of them. Those five are
//! what the trial measured. After 25 windows it is unsteady. How long a window is, is the plan's.

use std::collections::VecDeque;

/// What a trial is known to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steadiness {
    /// It goes on.
    Open,
    /// This was the mean of its last five windows.
    Steady(f64),
    /// It is over, with the mean of its last five windows for the record.
    Unsteady(f64),
}

/// Watches a trial: `handle_window` for each window until it says something else than
/// [`Steadiness::Open`].
#[derive(Clone, Debug, Default)]
pub struct SteadyState {
    last: VecDeque<f64>,
    windows: usize,
}

impl SteadyState {
    pub fn new() -> SteadyState {
        SteadyState::default()
    }

    /// Takes the value of the next window.
    pub fn handle_window(&mut self, value: f64) -> Steadiness {
        if self.last.len() == WINDOWS {
            self.last.pop_front();
        }
        self.last.push_back(value);
        self.windows += 1;
        if self.last.len() < WINDOWS {
            return Steadiness::Open;
        }
        let mean = self.last.iter().sum::<f64>() / WINDOWS as f64;
        if self.is_steady(mean) {
            Steadiness::Steady(mean)
        } else if self.windows >= WINDOWS_MAX {
            Steadiness::Unsteady(mean)
        } else {
            Steadiness::Open
        }
    }

    /// How many windows there were.
    pub fn windows(&self) -> usize {
        self.windows
    }

    fn is_steady(&self, mean: f64) -> bool {
        let lowest = self.last.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Least squares over places -2 to 2, whose squares add up to 10; from first to last it is
        // four steps.
        let places = (-2..=2).map(f64::from);
        let slope = places.zip(&self.last).map(|(place, value)| place * value).sum::<f64>() / 10.0;
        mean > 0.0
            && highest - lowest <= RANGE_MAX * mean
            && (4.0 * slope).abs() <= SLOPE_MAX * mean
    }
}

/// A trial from one of whose CPUs the machine's host took more than this share is unsteady, whatever
/// its windows are.
pub const STEAL_MAX: f64 = 0.02;
/// SNIA's measurement window, in windows of ours.
pub const WINDOWS: usize = 5;
/// The windows after which a trial is given up.
pub const WINDOWS_MAX: usize = 25;
const RANGE_MAX: f64 = 0.2;
const SLOPE_MAX: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn last(values: &[f64]) -> Steadiness {
        let mut state = SteadyState::new();
        values.iter().map(|value| state.handle_window(*value)).last().expect("a window")
    }

    #[test]
    fn five_windows_within_a_fifth_are_steady() {
        assert_eq!(last(&[100.0, 109.0, 91.0, 109.0]), Steadiness::Open);
        assert_eq!(last(&[100.0, 109.0, 91.0, 109.0, 91.0]), Steadiness::Steady(100.0));
        assert_eq!(last(&[100.0, 111.0, 90.0, 109.0, 90.0]), Steadiness::Open, "a range of 21%");
    }

    #[test]
    fn a_slope_of_more_than_a_tenth_is_not() {
        assert_eq!(last(&[95.0, 97.5, 100.0, 102.5, 105.0]), Steadiness::Steady(100.0));
        assert_eq!(last(&[94.0, 97.0, 100.0, 103.0, 106.0]), Steadiness::Open, "12% up");
        assert_eq!(last(&[106.0, 103.0, 100.0, 97.0, 94.0]), Steadiness::Open, "12% down");
    }

    #[test]
    fn only_the_last_five_count_and_the_twenty_fifth_is_the_last() {
        assert_eq!(
            last(&[1.0, 50.0, 100.0, 100.0, 100.0, 100.0, 100.0]),
            Steadiness::Steady(100.0)
        );
        let restless: Vec<f64> = (0..25).map(|window| f64::from(50 + 100 * (window % 2))).collect();
        assert_eq!(last(&restless[..24]), Steadiness::Open);
        assert_eq!(last(&restless), Steadiness::Unsteady(90.0));
    }

    #[test]
    fn a_trial_in_which_nothing_happens_is_never_steady() {
        assert_eq!(last(&[0.0; 25]), Steadiness::Unsteady(0.0));
    }
}
