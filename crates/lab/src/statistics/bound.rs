//! What is wanted of a ratio, and whether the rounds say that it is so.
//!
//! A bound is on the ratio itself (0.9: at least nine tenths of the reference). It is met where the
//! whole interval keeps it, missed where none of it does, and open in between: what is open needs
//! more rounds, and nobody may say that it was met. The interval is the corrected one, off which a
//! verdict is read; of a comparison that asks for a bound alone it is narrower than one of a
//! difference ([`super::Comparison`] says by how much), since only one of the two answers can be false.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ratio::Percent;
use super::{Better, Estimate, Interval, LogRatio};

/// What a ratio is to be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// No further from equal than this in either direction: 0.1 is from 1/1.1 to 1.1.
    Within(f64),
}

/// Whether it is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Met,
    Missed,
    Open,
}

impl Bound {
    /// Whether one ratio keeps it.
    pub fn keeps(self, ratio: f64) -> bool {
        let (low, high) = self.ends();
        low <= ratio.ln() && ratio.ln() <= high
    }

    /// What rounds say of it.
    pub fn held(self, estimate: &Estimate) -> Held {
        self.read(estimate.corrected)
    }

    /// What an interval of the ratio says of it.
    pub(super) fn read(self, seen: Interval) -> Held {
        let (low, high) = self.ends();
        if low <= seen.low.0 && seen.high.0 <= high {
            Held::Met
        } else if seen.high.0 < low || high < seen.low.0 {
            Held::Missed
        } else {
            Held::Open
        }
    }

    /// About how many rounds in all would leave it open no longer, after so many, if their mean stays;
    /// `None` where it lies so near to an end that no number would.
    pub fn rounds_to_settle(self, estimate: &Estimate, rounds: usize) -> Option<usize> {
        let (low, high) = self.ends();
        let mean = estimate.ratio.0;
        let half_width = (estimate.corrected.high.0 - estimate.corrected.low.0) / 2.0;
        let distance = (mean - low).abs().min((high - mean).abs());
        let factor = (half_width / distance).powi(2);
        // A mean that is known ten times as well is still where it is.
        (factor.is_finite() && factor <= 100.0).then(|| (rounds as f64 * factor).ceil() as usize)
    }

    /// Whether it is a ratio above 0 that is to be kept on one side.
    pub(super) fn is_one_sided(self) -> bool {
        matches!(self, Bound::AtLeast(ratio) | Bound::AtMost(ratio) if ratio > 0.0 && ratio.is_finite())
    }

    /// How many times as fast one is that just keeps it; of one within, at its upper end.
    pub fn lead(self, better: Better) -> LogRatio {
        let end = match self {
            Bound::AtLeast(_) => self.ends().0,
            Bound::AtMost(_) | Bound::Within(_) => self.ends().1,
        };
        LogRatio(if better == Better::Higher { end } else { -end })
    }

    /// The logarithms between which it is kept.
    fn ends(self) -> (f64, f64) {
        match self {
            Bound::AtLeast(ratio) => (ratio.ln(), f64::INFINITY),
            Bound::AtMost(ratio) => (f64::NEG_INFINITY, ratio.ln()),
            Bound::Within(fraction) => {
                let far = LogRatio::of_fraction(fraction).0;
                (-far, far)
            }
        }
    }
}

/// "at least 0.9 times".
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(ratio) => write!(f, "at least {ratio} times"),
            Bound::AtMost(ratio) => write!(f, "at most {ratio} times"),
            Bound::Within(fraction) => write!(f, "within {}", Percent(*fraction)),
        }
    }
}

/// `ok`, `short`, `open`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::Met => "ok",
            Held::Missed => "short",
            Held::Open => "open",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What rounds with these ratios come to.
    fn estimate(ratios: &[f64]) -> Estimate {
        Estimate::of_ratios(ratios, 1).expect("two rounds or more")
    }

    #[test]
    fn a_bound_is_met_by_the_whole_interval_alone() {
        let even = estimate(&[0.94, 0.95, 0.96, 0.95, 0.94, 0.96]);
        assert_eq!(Bound::AtLeast(0.9).held(&even), Held::Met);
        assert_eq!(Bound::AtLeast(0.95).held(&even), Held::Open, "the mean lies on it");
        assert_eq!(Bound::AtLeast(0.99).held(&even), Held::Missed);
        assert_eq!(Bound::AtMost(0.9).held(&even), Held::Missed);
        assert_eq!(Bound::AtMost(1.0).held(&even), Held::Met);
        assert_eq!(Bound::Within(0.1).held(&even), Held::Met);
        assert_eq!(Bound::Within(0.01).held(&even), Held::Missed);
        let wild = estimate(&[0.8, 1.1, 0.9, 1.2, 0.7, 1.0]);
        assert_eq!(Bound::AtLeast(0.9).held(&wild), Held::Open, "by its mean it would be met");
        assert_eq!(Bound::Within(0.1).held(&wild), Held::Open);
    }

    #[test]
    fn rounds_that_would_settle_it_grow_with_the_square_of_how_near_it_is() {
        let wild = estimate(&[0.8, 1.1, 0.9, 1.2, 0.7, 1.0]);
        let far = Bound::AtLeast(0.5).rounds_to_settle(&wild, 6).unwrap();
        let near = Bound::AtLeast(0.8).rounds_to_settle(&wild, 6).unwrap();
        assert!(far <= 6 && near > 6 && near < 60, "{far} {near}");
        let on_it = estimate(&[0.8, 1.25, 0.8, 1.25]);
        assert_eq!(Bound::AtLeast(1.0).rounds_to_settle(&on_it, 4), None);
    }

    #[test]
    fn one_ratio_keeps_it_or_does_not() {
        assert!(Bound::AtLeast(0.9).keeps(0.9) && !Bound::AtLeast(0.9).keeps(0.89));
        assert!(Bound::AtMost(0.0).keeps(0.0) && !Bound::AtMost(0.0).keeps(0.1));
        assert!(Bound::Within(0.1).keeps(1.099) && Bound::Within(0.1).keeps(1.0 / 1.099));
        assert!(!Bound::Within(0.1).keeps(0.9), "that is further than 1.1 is");
    }
}
