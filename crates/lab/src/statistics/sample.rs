//! A series of per-round logarithms as Student saw it: mean, spread, t interval, two-sided p value,
//! and the difference that such a series would have found.
//!
//! Where rounds are alike, their number is replaced by the effective one and the degrees of freedom
//! by that less one (Zwiers and von Storch 1995).

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::serial::Serial;
use super::{Interval, POWER};

/// What a series of rounds comes to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    pub rounds: usize,
    /// Of the logarithms.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    pub serial: Serial,
}

impl Sample {
    /// Of logarithms in the order of their rounds; of two at least, since one has no spread.
    pub fn of(logs: &[f64]) -> Option<Sample> {
        if logs.len() < 2 {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let deviation = (squares / (logs.len() - 1) as f64).sqrt();
        Some(Sample { rounds: logs.len(), mean, deviation, serial: Serial::of(logs) })
    }

    /// As wide as the test for serial correlation says: what an interval that stands alone has.
    pub fn tested(&self) -> Precision {
        self.precision(if self.serial.is_shown() { self.serial.inflation() } else { 1.0 })
    }

    /// As wide as any likeness of neighbours says, shown or not: what decides. A test misses a weak
    /// correlation in few rounds, and a missed one makes false verdicts.
    pub fn guarded(&self) -> Precision {
        self.precision(self.serial.inflation())
    }

    /// As if rounds were independent, seen or not.
    #[cfg(test)]
    pub(super) fn independent(&self) -> Precision {
        self.precision(1.0)
    }

    fn precision(&self, inflation: f64) -> Precision {
        let effective = self.rounds as f64 / inflation;
        Precision {
            mean: self.mean,
            error: self.deviation / effective.sqrt(),
            freedom: (effective - 1.0).max(1.0),
            effective,
        }
    }
}

/// How well a mean is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// How many independent rounds would have said as much.
    pub effective: f64,
}

impl Precision {
    /// The interval that misses in `alpha` of all series.
    pub fn interval(&self, alpha: f64) -> Interval {
        let half_width = quantile(self.freedom, 1.0 - alpha / 2.0) * self.error;
        Interval::around(self.mean, half_width, 1.0 - alpha)
    }

    /// How often a series without a difference has a mean as far from equal.
    pub fn p_value(&self) -> f64 {
        if self.error <= 0.0 {
            return if self.mean == 0.0 { 1.0 } else { 0.0 };
        }
        2.0 * student(self.freedom).sf((self.mean / self.error).abs())
    }

    /// How often a series whose mean lies just on `end` has one as far beyond it, on the side on which
    /// this one is.
    pub fn p_value_beyond(&self, end: f64) -> f64 {
        let beyond = (self.mean - end).abs();
        if self.error <= 0.0 {
            return if beyond == 0.0 { 0.5 } else { 0.0 };
        }
        student(self.freedom).sf(beyond / self.error)
    }

    /// Of the weighted sum of means of series that have nothing in common, with Satterthwaite's degrees of
    /// freedom; of one at least.
    pub fn weighed(parts: &[(f64, Precision)]) -> Precision {
        let square = |(weight, part): &(f64, Precision)| (weight * part.error).powi(2);
        let variance: f64 = parts.iter().map(square).sum();
        let scale: f64 = parts.iter().map(|part| square(part).powi(2) / part.1.freedom).sum();
        let least = parts.iter().map(|(_, part)| part.freedom).fold(f64::INFINITY, f64::min);
        Precision {
            mean: parts.iter().map(|(weight, part)| weight * part.mean).sum(),
            error: variance.sqrt(),
            freedom: if scale > 0.0 { variance.powi(2) / scale } else { least },
            effective: parts.iter().map(|(_, part)| part.effective).sum(),
        }
    }

    /// The logarithm that a test at `alpha` finds in [`POWER`] of such series.
    pub fn detectable(&self, alpha: f64) -> f64 {
        (quantile(self.freedom, 1.0 - alpha / 2.0) + quantile(self.freedom, POWER)) * self.error
    }
}

/// Student's quantile.
pub(super) fn quantile(freedom: f64, probability: f64) -> f64 {
    student(freedom).inverse_cdf(probability)
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are positive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, probability, expected) in [
            (1.0, 0.975, 12.706),
            (4.0, 0.975, 2.776),
            (9.0, 0.995, 3.250),
            (30.0, 0.8, 0.854),
            (120.0, 0.95, 1.658),
        ] {
            let seen = quantile(freedom, probability);
            assert!((seen - expected).abs() < 0.0006, "{freedom} {probability}: {seen}");
        }
    }

    #[test]
    fn the_interval_is_that_of_a_textbook() {
        // Student's own sleep data (1908, additional hours, drug 2 less drug 1): t = 4.0621,
        // p = 0.002833, 95% from 0.7001 to 2.4599.
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let sample = Sample::of(&sleep).expect("ten values");
        let plain = sample.independent();
        assert!((plain.p_value() - 0.002833).abs() < 1e-6, "{}", plain.p_value());
        let interval = plain.interval(0.05);
        assert!((interval.low.0 - 0.7001).abs() < 1e-4, "{interval:?}");
        assert!((interval.high.0 - 2.4599).abs() < 1e-4, "{interval:?}");
        // Beyond 0 it is half of that; beyond 0.7001, the end of the interval, 2.5%.
        assert!((plain.p_value_beyond(0.0) - 0.0014165).abs() < 1e-6);
        assert!((plain.p_value_beyond(0.7001) - 0.025).abs() < 1e-4);
        assert!((plain.p_value_beyond(2.4599) - 0.025).abs() < 1e-4, "on either side");
    }

    #[test]
    fn likeness_that_is_not_shown_widens_what_decides_alone() {
        let mild = [0.0, 0.5, 1.0, 0.6, 0.9, 0.3, 0.7, 0.1];
        let sample = Sample::of(&mild).expect("eight values");
        assert!(sample.serial.correlation > 0.0 && !sample.serial.is_shown(), "{sample:?}");
        assert_eq!(sample.tested().effective, 8.0);
        assert!(sample.guarded().effective < 8.0);
    }

    #[test]
    fn a_mean_of_two_series_has_the_freedom_of_a_textbook() {
        // As Welch's: half of errors 1 and 2 with 4 and 9 degrees.
        let of = |mean, error, freedom| Precision { mean, error, freedom, effective: 5.0 };
        let mean = Precision::weighed(&[(0.5, of(0.2, 1.0, 4.0)), (0.5, of(0.4, 2.0, 9.0))]);
        assert!((mean.freedom - 12.329).abs() < 0.001, "{mean:?}");
        assert!((mean.mean - 0.3).abs() < 1e-12);
        assert!((mean.error - 5.0_f64.sqrt() / 2.0).abs() < 1e-12);
        let certain = Precision::weighed(&[(1.0, of(0.2, 0.0, 4.0))]);
        assert_eq!((certain.error, certain.freedom), (0.0, 4.0));
    }

    #[test]
    fn values_without_any_spread_are_certain() {
        let certain = |value: f64| Sample::of(&[value; 4]).expect("four").tested();
        assert_eq!(certain(0.0).p_value(), 1.0);
        assert_eq!(certain(0.5).p_value(), 0.0);
        assert!(certain(0.5).interval(0.05).excludes_equal());
        assert_eq!(Sample::of(&[1.0]), None);
    }
}
