//! Whether rounds that followed each other are alike: von Neumann's ratio, and by how much the
//! spread of a mean grows if they are.
//!
//! The ratio is the sum of squared differences of neighbours by the sum of squared differences from
//! the mean: 2 where rounds are independent, less where they are alike, from 0 to 4. Of independent
//! normal values its mean is 2 and its variance 4(n-2)/(n^2-1), whatever their number (von Neumann
//! 1941); a quarter of it is nearly a beta variable with those moments. It was taken before
//! Ljung and Box's test and that of Durbin and Watson, since the first needs many rounds and the
//! second is this ratio, of residuals of a regression that is not made here. Half of what it lacks
//! to 2 is the correlation of neighbours, without the bias that the usual estimate has in few rounds.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF};

/// How alike neighbours of a series are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Serial {
    /// Von Neumann's.
    pub ratio: f64,
    /// Of neighbours, from -1 to 1.
    pub correlation: f64,
    /// How often independent rounds are this alike.
    pub p_value: f64,
}

impl Serial {
    /// Of values in the order in which they were measured. Fewer than four say nothing, and neither do such as
    /// are all the same, but for what a sum of them is rounded by.
    pub fn of(values: &[f64]) -> Serial {
        let independent = Serial { ratio: 2.0, correlation: 0.0, p_value: 1.0 };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let largest = values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let rounding = count * (16.0 * f64::EPSILON * largest).powi(2);
        if values.len() < 4 || spread <= rounding {
            return independent;
        }
        let steps: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
        let ratio = (steps / spread).clamp(0.0, 4.0);
        let shape = ((count * count - 1.0) / (count - 2.0) - 1.0) / 2.0;
        let beta = Beta::new(shape, shape).expect("a shape of four values or more is positive");
        Serial { ratio, correlation: 1.0 - ratio / 2.0, p_value: beta.cdf(ratio / 4.0) }
    }

    /// Whether rounds are shown to be alike.
    pub fn is_shown(&self) -> bool {
        self.p_value < SHOWN
    }

    /// By what the variance of the mean grows if the correlation is what was seen and falls with
    /// distance as that of a first-order autoregression does: rounds by effective rounds. Unlike
    /// neighbours are never taken for more rounds.
    pub fn inflation(&self) -> f64 {
        let correlation = self.correlation.clamp(0.0, CORRELATION_MAX);
        (1.0 + correlation) / (1.0 - correlation)
    }
}

/// The level of the test.
const SHOWN: f64 = 0.05;
/// Beyond, no number of rounds that anybody runs says anything.
const CORRELATION_MAX: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_shown_and_a_change_each_time_is_not() {
        let trend: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(Serial::of(&trend).is_shown());
        assert!(Serial::of(&trend).inflation() > 5.0);
        let change: Vec<f64> = (0..10).map(|round| f64::from(round % 2)).collect();
        assert!(!Serial::of(&change).is_shown());
        assert_eq!(Serial::of(&change).inflation(), 1.0);
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Hart 1942: 5% of series of ten and of twenty normal values have mean squared differences
        // of neighbours below 1.1803 and 1.3680 variances (n-1 below, n above: by n/(n-1)).
        for (count, critical) in [(10.0, 1.1803), (20.0, 1.3680)] {
            let shape: f64 = ((count * count - 1.0) / (count - 2.0) - 1.0) / 2.0;
            let ours = critical * (count - 1.0) / count;
            let beta = Beta::new(shape, shape).expect("positive");
            let p_value = beta.cdf(ours / 4.0);
            assert!((p_value - 0.05).abs() < 0.002, "{count}: {p_value}");
        }
    }

    #[test]
    fn equal_values_and_few_values_say_nothing() {
        assert_eq!(Serial::of(&[1.0; 9]).correlation, 0.0);
        // Their mean is none of them.
        let same = (8_032_255.0f64 / 8_003_583.0).ln();
        for count in 4..40 {
            assert_eq!(Serial::of(&vec![same; count]).correlation, 0.0, "{count}");
        }
        assert_eq!(Serial::of(&[1.0, 2.0, 3.0]).p_value, 1.0);
    }
}
