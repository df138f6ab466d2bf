//! Two result sets side by side that were not taken together, through a reference that both hold.
//!
//! Each round of either set has its system and the reference (`null:`); what is compared is how
//! many times as fast as its own reference each system was, by Welch's interval (1947). Whatever
//! moved the reference moved the systems as well, is the hope; nothing proves it, since machine,
//! kernel or time of day may act on one alone. So this never says "faster": it is labelled as not
//! interleaved, and tells how far the reference itself moved.

use std::fmt;

use serde::Serialize;

use super::ratio::{Between, Percent};
use super::sample::{Precision, Sample};
use super::{ALPHA, Interval, LogRatio};

/// Two sets, by their references.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Apart {
    /// How many times as fast the first set's system was, each by its reference.
    pub ratio: LogRatio,
    pub interval: Interval,
    /// The first set's reference by the second's: what machine and time did.
    pub reference_ratio: LogRatio,
    pub reference_interval: Interval,
    /// The difference that would have been found in 80% of such pairs.
    pub detectable: f64,
}

/// A round of a set: logarithms of how fast the system and its reference were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Referred {
    pub system: LogRatio,
    pub reference: LogRatio,
}

/// Compares the first set with the second; nothing with fewer than two rounds in either.
pub fn compare_apart(first: &[Referred], second: &[Referred]) -> Option<Apart> {
    let leads = |set: &[Referred]| {
        let logs: Vec<f64> = set.iter().map(|round| round.system.0 - round.reference.0).collect();
        Some(Sample::of(&logs)?.guarded())
    };
    let references = |set: &[Referred]| {
        let logs: Vec<f64> = set.iter().map(|round| round.reference.0).collect();
        Some(Sample::of(&logs)?.guarded())
    };
    let between = welch(leads(first)?, leads(second)?);
    let reference = welch(references(first)?, references(second)?);
    Some(Apart {
        ratio: LogRatio(between.mean),
        interval: between.interval(ALPHA),
        reference_ratio: LogRatio(reference.mean),
        reference_interval: reference.interval(ALPHA),
        detectable: LogRatio(between.detectable(ALPHA)).fraction(),
    })
}

/// The difference of two means of unequal spread, with Satterthwaite's degrees of freedom.
fn welch(first: Precision, second: Precision) -> Precision {
    let (a, b) = (first.error.powi(2), second.error.powi(2));
    let scale = a.powi(2) / first.freedom + b.powi(2) / second.freedom;
    Precision {
        mean: first.mean - second.mean,
        error: (a + b).sqrt(),
        freedom: if scale > 0.0 { (a + b).powi(2) / scale } else { first.freedom },
        effective: first.effective + second.effective,
    }
}

/// "not interleaved: 5.0% above (3.0% to 7.0%), each by its reference, which moved by 1.2% itself".
impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not interleaved: ")?;
        if self.interval.excludes_equal() {
            let side = if self.ratio.0 > 0.0 { "above" } else { "below" };
            let size = Percent(self.ratio.fraction());
            write!(f, "{size} {side} ({})", Between(self.interval))?;
        } else {
            write!(f, "no difference shown (could have seen {})", Percent(self.detectable))?;
        }
        let moved = Percent(self.reference_ratio.fraction());
        write!(f, ", each by its reference, which moved by {moved} itself")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(system: f64, reference: f64) -> Vec<Referred> {
        let shape = [-0.9, 1.1, -0.2, 0.4, -1.6, 0.7, -0.5, 1.5, 0.1, -0.6];
        let round = |value: &f64| Referred {
            system: LogRatio(system + reference + 0.02 * value),
            reference: LogRatio(reference - 0.01 * value),
        };
        shape.iter().map(round).collect()
    }

    #[test]
    fn a_difference_is_never_called_faster() {
        let apart = compare_apart(&set(0.2, 0.1), &set(0.0, 0.0)).expect("ten rounds");
        assert_eq!(
            apart.to_string(),
            "not interleaved: 22% above (19% to 25%), each by its reference, which moved by 11% itself"
        );
        let back = compare_apart(&set(0.0, 0.0), &set(0.2, 0.1)).expect("ten rounds");
        assert!(back.to_string().starts_with("not interleaved: 18% below"), "{back}");
        for said in [apart.to_string(), back.to_string()] {
            assert!(!said.contains("faster") && !said.contains("slower"), "{said}");
        }
    }

    #[test]
    fn a_machine_that_moved_both_moves_nothing() {
        let apart = compare_apart(&set(0.1, 0.5), &set(0.1, 0.0)).expect("ten rounds");
        assert!(apart.to_string().contains("no difference shown"), "{apart}");
        assert!(apart.reference_interval.excludes_equal());
    }

    #[test]
    fn one_round_is_not_compared() {
        assert_eq!(compare_apart(&set(0.0, 0.0)[..1], &set(0.0, 0.0)), None);
    }

    #[test]
    fn welch_has_the_freedom_of_a_textbook() {
        // Errors 1 and 2 with 4 and 9 degrees: 25 / (1/4 + 16/9) = 12.33.
        let of = |error, freedom| Precision { mean: 0.0, error, freedom, effective: 1.0 };
        assert!((welch(of(1.0, 4.0), of(2.0, 9.0)).freedom - 12.329).abs() < 0.001);
    }
}
