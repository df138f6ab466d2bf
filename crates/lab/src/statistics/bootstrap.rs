//! A bootstrap of rounds, beside the t interval: whole rounds are drawn again with replacement, and
//! the interval lies between two percentiles of the means.
//!
//! Percentile bootstrap, expanded as Hesterberg (2015) does: percentiles are taken so far out that
//! of normal values the interval is as wide as Student's, where the plain one is too short by the
//! root of (n-1)/n and by z for t. What is left of a difference to the t interval is then the shape
//! of the data: skewness, outliers.

use block::Random;
use statrs::distribution::{ContinuousCDF, Normal};

use super::Interval;
use super::sample::{Sample, quantile};

/// How many times all rounds are drawn.
pub(super) const RESAMPLES: usize = 4000;

/// The interval of the mean that misses in `alpha`. `stretch` is what the t interval is wider for
/// serial correlation, which drawing rounds one by one does not see.
pub(super) fn interval(
    logs: &[f64],
    sample: &Sample,
    alpha: f64,
    stretch: f64,
    random: &mut Random,
) -> Interval {
    let count = logs.len();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..count).map(|_| logs[random.below(count as u64) as usize]);
            drawn.sum::<f64>() / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let freedom = count as f64 - 1.0;
    let far = (count as f64 / freedom).sqrt() * quantile(freedom, 1.0 - alpha / 2.0);
    let tail = Normal::standard().cdf(-far);
    let last = (RESAMPLES - 1) as f64;
    let low = means[(tail * last).floor() as usize];
    let high = means[((1.0 - tail) * last).ceil() as usize];
    let wide = |end: f64| sample.mean + (end - sample.mean) * stretch;
    Interval {
        low: super::LogRatio(wide(low)),
        high: super::LogRatio(wide(high)),
        level: 1.0 - alpha,
    }
}

/// Whether it says something else than the t interval: "equal" lies in one of them alone, or an end
/// is elsewhere by more than a quarter of half the width.
pub(super) fn disagrees(bootstrap: &Interval, student: &Interval) -> bool {
    let half_width = (student.high.0 - student.low.0) / 2.0;
    let off = |a: f64, b: f64| (a - b).abs() > half_width * ELSEWHERE + ROUNDING;
    bootstrap.excludes_equal() != student.excludes_equal()
        || off(bootstrap.low.0, student.low.0)
        || off(bootstrap.high.0, student.high.0)
}

/// Of normal values, the ends of ten rounds are rarely further apart than a tenth.
const ELSEWHERE: f64 = 0.35;
/// What sums of logarithms are off by in rounds that are all the same.
const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    fn both(logs: &[f64]) -> (Interval, Interval) {
        let sample = Sample::of(logs).expect("two rounds");
        let mut random = Random::new(7);
        (interval(logs, &sample, 0.05, 1.0, &mut random), sample.tested().interval(0.05))
    }

    #[test]
    fn of_even_data_it_agrees_with_student() {
        let logs = [-0.9, 1.1, -0.2, 0.4, -1.6, 0.7, -0.5, 1.5, 0.1, -0.6];
        let (bootstrap, student) = both(&logs);
        assert!(!disagrees(&bootstrap, &student), "{bootstrap:?} {student:?}");
    }

    #[test]
    fn one_round_that_stalled_makes_it_disagree() {
        let logs = [0.0, 0.02, -0.01, 0.01, -0.02, 0.0, 0.01, 0.02, -0.01, 0.9];
        let (bootstrap, student) = both(&logs);
        assert!(disagrees(&bootstrap, &student), "{bootstrap:?} {student:?}");
    }

    #[test]
    fn rounds_that_are_all_the_same_leave_nothing_to_disagree_about() {
        let (bootstrap, student) = both(&[(8_032_255.0f64 / 8_003_583.0).ln(); 5]);
        assert!(!disagrees(&bootstrap, &student), "{bootstrap:?} {student:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same_interval() {
        let logs = [0.3, 0.1, 0.2, 0.5];
        assert_eq!(both(&logs).0, both(&logs).0);
    }
}
