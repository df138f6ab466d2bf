//! Whether one series varies more than another: the ratio of their coefficients of variation, with how well
//! a bootstrap of rounds knows it.
//!
//! Both series are of the same rounds, which are drawn together, with replacement; what the logarithm of the
//! ratio does over the draws is its standard error, and rounds less one are its degrees of freedom. A
//! coefficient of variation is the standard deviation by the mean, so a series that is faster as a whole is not
//! less steady for that. Deterministic: the draws are of a seed.

use block::Random;

use super::bootstrap::RESAMPLES;
use super::sample::Precision;

/// Of fewer, a spread says next to nothing.
pub const ROUNDS_MIN: usize = 5;

/// The logarithm of (variation of `a` / variation of `b`), both by the same rounds. `None` of fewer than
/// [`ROUNDS_MIN`] rounds, and where one does not vary at all.
pub fn ratio_of_variation(a: &[f64], b: &[f64]) -> Option<Precision> {
    let count = a.len();
    if count < ROUNDS_MIN || b.len() != count {
        return None;
    }
    let log = |draw: &[usize]| {
        let of = |series: &[f64]| variation(draw.iter().map(|at| series[*at]));
        let log = (of(a) / of(b)).ln();
        log.is_finite().then_some(log)
    };
    let all: Vec<usize> = (0..count).collect();
    let mean = log(&all)?;
    let mut random = Random::new(1);
    let mut drawn = all.clone();
    let mut logs = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        drawn.iter_mut().for_each(|at| *at = random.below(count as u64) as usize);
        // One in which a single round was drawn has no spread.
        logs.extend(log(&drawn));
    }
    let middle = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let squares: f64 = logs.iter().map(|log| (log - middle).powi(2)).sum();
    let error = (squares / logs.len().saturating_sub(1).max(1) as f64).sqrt();
    Some(Precision { mean, error, freedom: (count - 1) as f64, effective: count as f64 })
}

/// Standard deviation by mean.
fn variation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around 100 that vary by so much, nearly normal.
    fn series(random: &mut Random, count: usize, deviation: f64) -> Vec<f64> {
        let normal = |random: &mut Random| {
            let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
            sum - 6.0
        };
        (0..count).map(|_| 100.0 * (1.0 + deviation * normal(random))).collect()
    }

    /// In how many of 400 pairs of series, of which the first varies so many times as much, it is told
    /// to vary more, and less.
    fn told(count: usize, times: f64) -> (usize, usize) {
        let mut random = Random::new(11);
        let (mut more, mut less) = (0, 0);
        for _ in 0..400 {
            let a = series(&mut random, count, 0.01 * times);
            let b = series(&mut random, count, 0.01);
            let interval = ratio_of_variation(&a, &b).expect("enough rounds").interval(0.05);
            more += usize::from(interval.low.0 > 0.0);
            less += usize::from(interval.high.0 < 0.0);
        }
        (more, less)
    }

    #[test]
    fn of_two_that_vary_alike_neither_is_told_more_often_than_chance() {
        for count in [8, 20] {
            let (more, less) = told(count, 1.0);
            assert!(more + less <= 32, "of {count} rounds: {more} and {less} of 400");
        }
    }

    #[test]
    fn one_that_varies_three_times_as_much_is_found_in_twenty_rounds() {
        let (more, less) = told(20, 3.0);
        assert!(more >= 340 && less == 0, "{more} and {less} of 400");
    }

    #[test]
    fn what_is_faster_as_a_whole_is_not_less_steady() {
        let mut random = Random::new(3);
        let a = series(&mut random, 20, 0.02);
        let b: Vec<f64> = a.iter().map(|value| value * 7.0).collect();
        let precision = ratio_of_variation(&a, &b).expect("enough rounds");
        assert!(precision.mean.abs() < 1e-9 && precision.error < 1e-9, "{precision:?}");
    }

    #[test]
    fn of_too_few_rounds_and_of_none_that_vary_nothing_is_said() {
        assert!(ratio_of_variation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).is_none());
        assert!(ratio_of_variation(&[1.0; 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).is_none());
    }
}
