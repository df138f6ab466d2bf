//! What is said of a comparison in the end, and when nothing is.
//!
//! A verdict is read off the interval that is drawn, and off nothing else, so that picture and
//! words cannot disagree: an interval without "equal" is a difference, one within the margin is two
//! one-sided tests for equality (Schuirmann 1987), and one that is neither is told with what the run
//! could have seen. A difference goes before equality: one that is small is a difference all the
//! same, and its size is said.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ratio::{Between, Percent, Times};
use super::{Bound, Held, Interval, LogRatio};

/// What a comparison came to. Fractions: 0.05 is "5%".
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// The subject was so many times as fast.
    Faster {
        ratio: LogRatio,
        interval: Interval,
    },
    Slower {
        ratio: LogRatio,
        interval: Interval,
    },
    /// They differ by less than the plan's margin.
    Equal {
        margin: f64,
    },
    /// Neither difference nor equality; one of this size would probably have been found.
    NoDifferenceShown {
        detectable: f64,
    },
    /// As well, and the difference that the plan asks for might not have been found. To be run anew
    /// with so many more: rounds that are added once the result is known make false verdicts.
    Undecided {
        more_rounds: usize,
    },
    /// All of the interval keeps the bound that was asked for. `times` is the subject's value by the
    /// reference's.
    Held {
        times: Interval,
    },
    /// None of it does.
    NotHeld {
        times: Interval,
    },
    /// Some of it does. To be run anew with so many more, if the mean stays; absent where it lies so near
    /// to the bound that no number of rounds that anybody runs would tell.
    Open {
        times: Interval,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more_rounds: Option<usize>,
    },
    /// There are intervals, and they are not to be believed for a verdict.
    Withheld {
        reason: Withheld,
    },
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Withheld {
    /// Somebody stopped it, and may have seen how it went.
    Interrupted,
    /// The time for it was over before its rounds were.
    OutOfTime,
    /// A trial of it failed, however often it was tried.
    Failed,
    /// More than a third of the rounds never became steady.
    Unsteady,
    /// Fewer than two rounds count. No schedule ends so.
    FewRounds,
}

impl Verdict {
    /// What an interval says, by the margin for equality.
    pub(super) fn read(ratio: LogRatio, interval: Interval, margin: f64) -> Option<Verdict> {
        if interval.low.0 > 0.0 {
            Some(Verdict::Faster { ratio, interval })
        } else if interval.high.0 < 0.0 {
            Some(Verdict::Slower { ratio, interval })
        } else {
            interval.is_within(margin).then_some(Verdict::Equal { margin })
        }
    }

    /// What an interval of values says of a bound; `more_rounds` is how many would tell, if it is open.
    pub(super) fn of_bound(
        bound: Bound,
        times: Interval,
        more_rounds: impl FnOnce() -> Option<usize>,
    ) -> Verdict {
        match bound.read(times) {
            Held::Met => Verdict::Held { times },
            Held::Missed => Verdict::NotHeld { times },
            Held::Open => Verdict::Open { times, more_rounds: more_rounds() },
        }
    }

    /// In words of what is spent: who is slower by half needs twice as much.
    pub fn of_cost(&self) -> String {
        let (word, ratio, interval) = match self {
            Verdict::Faster { ratio, interval } => ("less", ratio, interval.turned()),
            Verdict::Slower { ratio, interval } => ("more", ratio, interval.turned()),
            other => return other.to_string(),
        };
        let share = Percent(LogRatio(-ratio.0).fraction());
        format!("costs {word} by {share} ({})", Between(interval))
    }

    /// Whether it says that one is faster.
    pub fn is_difference(&self) -> bool {
        matches!(self, Verdict::Faster { .. } | Verdict::Slower { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Faster { ratio, interval } => {
                write!(f, "faster by {} ({})", Percent(ratio.fraction()), Between(*interval))
            }
            Verdict::Slower { ratio, interval } => {
                write!(f, "slower by {} ({})", Percent(ratio.fraction()), Between(*interval))
            }
            Verdict::Equal { margin } => write!(f, "equal within {}", Percent(*margin)),
            Verdict::NoDifferenceShown { detectable } => {
                write!(f, "no difference shown (could have seen {})", Percent(*detectable))
            }
            Verdict::Undecided { more_rounds: 1 } => {
                f.write_str("undecided: needs about 1 more round")
            }
            Verdict::Undecided { more_rounds } => {
                write!(f, "undecided: needs about {more_rounds} more rounds")
            }
            Verdict::Held { times } => write!(f, "held ({} to {})", low(times), high(times)),
            Verdict::NotHeld { times } => {
                write!(f, "not held ({} to {})", low(times), high(times))
            }
            Verdict::Open { times, more_rounds } => {
                write!(f, "open: between {} and {}; ", low(times), high(times))?;
                match more_rounds {
                    Some(1) => f.write_str("needs about 1 more round"),
                    Some(more) => write!(f, "needs about {more} more rounds"),
                    None => f.write_str("too near to the bound for any number of rounds"),
                }
            }
            Verdict::Withheld { reason } => write!(f, "no verdict: {reason}"),
        }
    }
}

fn low(times: &Interval) -> Times {
    Times(times.low.ratio())
}

fn high(times: &Interval) -> Times {
    Times(times.high.ratio())
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Withheld::Interrupted => "it was stopped before its last round",
            Withheld::OutOfTime => "its time was over before its last round",
            Withheld::Failed => "a trial of it failed again and again",
            Withheld::Unsteady => "more than a third of its rounds never became steady",
            Withheld::FewRounds => "there are fewer than two steady rounds",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(low: f64, high: f64) -> String {
        let interval = Interval { low: LogRatio(low.ln()), high: LogRatio(high.ln()), level: 0.95 };
        let ratio = LogRatio((low * high).sqrt().ln());
        let verdict = Verdict::read(ratio, interval, 0.05);
        verdict.map(|verdict| verdict.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_interval_is_read_in_the_words_of_the_table() {
        assert_eq!(read(1.081, 1.16), "faster by 12% (8.1% to 16%)");
        assert_eq!(read(0.8, 0.9), "slower by 15% (10% to 20%)");
        assert_eq!(read(0.97, 1.04), "equal within 5.0%");
        assert_eq!(read(0.97, 1.06), "", "neither");
        assert_eq!(read(1.001, 1.03), "faster by 1.5% (0.10% to 3.0%)", "small, and a difference");
    }

    #[test]
    fn what_is_spent_costs_more_or_less_and_is_not_slower() {
        let read = |low: f64, high: f64| {
            let interval =
                Interval { low: LogRatio(low.ln()), high: LogRatio(high.ln()), level: 0.95 };
            Verdict::read(LogRatio((low * high).sqrt().ln()), interval, 0.05).unwrap().of_cost()
        };
        // Of 0.8 times as fast, one needs 1.25 times as much.
        assert_eq!(read(0.8, 0.9), "costs more by 18% (11% to 25%)");
        assert_eq!(read(1.25, 1.6), "costs less by 29% (20% to 38%)");
        assert_eq!(read(0.97, 1.04), "equal within 5.0%");
    }

    #[test]
    fn a_bound_has_words_of_its_own() {
        let read = |bound: Bound, low: f64, high: f64, more: Option<usize>| {
            let times = Interval { low: LogRatio(low.ln()), high: LogRatio(high.ln()), level: 0.9 };
            Verdict::of_bound(bound, times, || more).to_string()
        };
        let (least, most) = (Bound::AtLeast(0.9), Bound::AtMost(1.15));
        assert_eq!(read(least, 0.943, 0.97, None), "held (0.943 to 0.970)");
        assert_eq!(read(least, 0.82, 0.87, None), "not held (0.820 to 0.870)");
        let open = "open: between 0.880 and 0.930; needs about 12 more rounds";
        assert_eq!(read(least, 0.88, 0.93, Some(12)), open);
        assert!(read(least, 0.88, 0.93, Some(1)).ends_with("needs about 1 more round"));
        assert!(
            read(least, 0.8, 1.1, None).ends_with("too near to the bound for any number of rounds")
        );
        assert_eq!(read(most, 1.02, 1.09, None), "held (1.02 to 1.09)");
        assert_eq!(read(most, 1.2, 1.3, None), "not held (1.20 to 1.30)");
    }

    #[test]
    fn what_is_not_shown_is_said_with_what_it_would_take() {
        let show = |verdict: Verdict| verdict.to_string();
        assert_eq!(
            show(Verdict::NoDifferenceShown { detectable: 0.034 }),
            "no difference shown (could have seen 3.4%)"
        );
        assert_eq!(
            show(Verdict::Undecided { more_rounds: 12 }),
            "undecided: needs about 12 more rounds"
        );
        assert_eq!(
            show(Verdict::Undecided { more_rounds: 1 }),
            "undecided: needs about 1 more round"
        );
        for (reason, words) in [
            (Withheld::Interrupted, "stopped"),
            (Withheld::OutOfTime, "time was over"),
            (Withheld::Failed, "failed"),
            (Withheld::Unsteady, "a third"),
        ] {
            let shown = show(Verdict::Withheld { reason });
            assert!(shown.starts_with("no verdict: ") && shown.contains(words), "{shown}");
        }
    }
}
