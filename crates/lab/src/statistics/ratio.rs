//! Ratios as logarithms, the intervals around them, and both in an administrator's words.
//!
//! A ratio is kept as its natural logarithm, in which twice as fast and half as fast are equally far
//! from equal; JSON has the ratio itself. "12%" is how much more or less than the reference: 1.12 is
//! 12% faster, 0.88 is 12% slower.

use std::fmt;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A ratio's natural logarithm: 0 where both are equal.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LogRatio(pub f64);

impl LogRatio {
    /// Of so much more than equal: 0.05 is "5%".
    pub fn of_fraction(fraction: f64) -> LogRatio {
        LogRatio(fraction.ln_1p())
    }

    /// The ratio itself, or the nearest that a number can be: JSON has no infinity, and what is
    /// read again is no 0. A few wild rounds at a strict level have intervals that wide.
    pub fn ratio(self) -> f64 {
        self.0.exp().clamp(f64::MIN_POSITIVE, f64::MAX)
    }

    /// Its distance from equal: 0.05 for 1.05 and for 0.95. A number as well, however far.
    pub fn fraction(self) -> f64 {
        self.0.exp_m1().abs().min(f64::MAX)
    }
}

impl Serialize for LogRatio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.ratio().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LogRatio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LogRatio, D::Error> {
        let ratio = f64::deserialize(deserializer)?;
        if ratio > 0.0 && ratio.is_finite() {
            return Ok(LogRatio(ratio.ln()));
        }
        Err(D::Error::invalid_value(Unexpected::Float(ratio), &"a ratio above 0"))
    }
}

/// Where a ratio is, with a confidence.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    pub low: LogRatio,
    pub high: LogRatio,
    /// Of a hundred such intervals, the share that holds what it is about.
    pub level: f64,
}

impl Interval {
    pub(super) fn around(mean: f64, half_width: f64, level: f64) -> Interval {
        Interval { low: LogRatio(mean - half_width), high: LogRatio(mean + half_width), level }
    }

    /// Whether it leaves no room for "equal".
    pub fn excludes_equal(&self) -> bool {
        self.low.0 > 0.0 || self.high.0 < 0.0
    }

    /// Whether all of it is nearer to equal than so much, in either direction: 0.05 is from 1/1.05
    /// to 1.05, so that it is the same question whoever is the reference.
    pub fn is_within(&self, margin: f64) -> bool {
        let margin = LogRatio::of_fraction(margin).0;
        -margin < self.low.0 && self.high.0 < margin
    }

    /// Of the ratio the other way round.
    pub fn turned(self) -> Interval {
        Interval { low: LogRatio(-self.high.0), high: LogRatio(-self.low.0), level: self.level }
    }

    pub fn holds(&self, value: LogRatio) -> bool {
        self.low <= value && value <= self.high
    }
}

/// In the picture's words: "-3.1% to +4.2%", of the subject beside the reference.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |end: LogRatio| if end.0 < 0.0 { '-' } else { '+' };
        let (low, high) = (Percent(self.low.fraction()), Percent(self.high.fraction()));
        write!(f, "{}{low} to {}{high}", sign(self.low), sign(self.high))
    }
}

/// In percent with two digits that count: "0.034%", "4.5%", "12%", "140%".
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        if percent == 0.0 {
            return f.write_str("0%");
        }
        let decimals = |percent: f64| (1.0 - percent.abs().log10().floor()).clamp(0.0, 9.0);
        let places = 10_f64.powf(decimals(percent));
        // 9.96 has its first digit one place higher once it is rounded.
        let decimals = decimals((percent * places).round() / places) as usize;
        write!(f, "{percent:.decimals$}%")
    }
}

/// How many times as much, with three digits that count: "0.943", "1.15", "12.3".
pub(crate) struct Times(pub(crate) f64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = (2.0 - self.0.log10().floor()).clamp(0.0, 9.0) as usize;
        write!(f, "{:.decimals$}", self.0)
    }
}

/// From the end that is nearer to equal to the other: "8.1% to 16%".
pub(crate) struct Between(pub(crate) Interval);

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.low.fraction(), self.0.high.fraction());
        write!(f, "{} to {}", Percent(low.min(high)), Percent(low.max(high)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_have_two_digits_that_count() {
        let show = |fraction: f64| Percent(fraction).to_string();
        assert_eq!(show(0.00034), "0.034%");
        assert_eq!(show(0.0451), "4.5%");
        assert_eq!(show(0.0996), "10%");
        assert_eq!(show(0.123), "12%");
        assert_eq!(show(1.403), "140%");
        assert_eq!(show(0.0), "0%");
    }

    #[test]
    fn times_have_three_digits_that_count() {
        let show = |ratio: f64| Times(ratio).to_string();
        assert_eq!([show(0.9431), show(1.149), show(12.34)], ["0.943", "1.15", "12.3"]);
        assert_eq!([show(1.0), show(0.0999), show(4321.0)], ["1.00", "0.0999", "4321"]);
    }

    #[test]
    fn an_interval_has_its_signs() {
        let interval = Interval { low: LogRatio(0.97_f64.ln()), high: LogRatio(0.2), level: 0.95 };
        assert_eq!(interval.to_string(), "-3.0% to +22%");
    }

    #[test]
    fn a_margin_is_the_same_in_both_directions() {
        let at = |ratio: f64| Interval::around(ratio.ln(), 0.0, 0.95);
        assert!(at(1.049).is_within(0.05) && at(1.0 / 1.049).is_within(0.05));
        assert!(!at(1.051).is_within(0.05) && !at(1.0 / 1.051).is_within(0.05));
    }

    #[test]
    fn json_has_the_ratio() {
        let json = serde_json::to_string(&LogRatio(0.0)).expect("a number");
        assert_eq!(json, "1.0");
    }

    #[test]
    fn what_json_has_of_a_ratio_comes_back() {
        for ratio in [0.8, 0.9996, 1.0, 1.12, 1.25] {
            let kept = LogRatio(f64::ln(ratio));
            let json = serde_json::to_value(kept).expect("a number");
            assert_eq!(json, ratio);
            assert_eq!(serde_json::from_value::<LogRatio>(json).expect("a ratio"), kept);
        }
    }

    #[test]
    fn a_ratio_too_far_for_a_number_is_kept_as_the_farthest() {
        for log in [-1e3, -740.0, 740.0, 1e3] {
            let json = serde_json::to_value(LogRatio(log)).expect("a number");
            let read: LogRatio = serde_json::from_value(json).expect("a ratio");
            assert!(read.0.signum() == log.signum() && read.0.abs() > 700.0, "{log}: {read:?}");
            assert!(LogRatio(log).fraction().is_finite());
        }
    }

    #[test]
    fn what_is_no_ratio_is_refused() {
        let refused = |json: &str| serde_json::from_str::<LogRatio>(json).unwrap_err().to_string();
        for (json, seen) in [("0.0", "`0.0`"), ("-0.0", "`-0.0`"), ("-1.5", "`-1.5`")] {
            let error = refused(json);
            assert!(error.contains(seen) && error.contains("expected a ratio above 0"), "{error}");
        }
        assert!(refused("null").contains("invalid type: null, expected f64"));
        assert!(refused("\"1.0\"").contains("invalid type: string \"1.0\", expected f64"));
        assert!(refused("1e999").contains("number out of range"));
    }
}
