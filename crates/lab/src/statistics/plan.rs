//! What a plan says of its comparisons: who is compared with whom, which of them count, and how
//! small a difference is to be seen.
//!
//! A *column* is one measure of one system (the IOPS of a system, its p99): every round has a value
//! in each. Differences are fractions: 0.05 is "5%". The words of a plan file are not read here; a
//! plan that cannot be analysed is refused by [`Plan::check`].

use std::fmt;

use super::{Bound, Interval, LogRatio};

/// Which way of a measure is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Operations or bytes a second.
    Higher,
    /// Latencies: less is faster.
    Lower,
    /// Processor time: less is cheaper, and no faster.
    Cheaper,
}

/// One system's measure beside another's.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What is said before the verdict: "IOPS of nvme against iscsi".
    pub name: String,
    /// The column of which the verdict speaks.
    pub subject: usize,
    /// The column that it is held against.
    pub reference: usize,
    pub better: Better,
    /// What the ratio of the subject's value to the reference's is to be; without it, the question is
    /// whether there is a difference.
    pub bound: Option<Bound>,
    /// Whether the plan named it before it ran: those are corrected together and get verdicts that
    /// count, all others are exploratory.
    pub primary: bool,
}

impl Comparison {
    /// How many times as fast the subject was in a round.
    pub fn lead(&self, values: &[f64]) -> LogRatio {
        let lead = (values[self.subject] / values[self.reference]).ln();
        LogRatio(if self.better == Better::Higher { lead } else { -lead })
    }

    /// Of leads, where the ratio of values is: what a bound is on.
    pub(super) fn times(&self, leads: Interval) -> Interval {
        match self.better {
            Better::Higher => leads,
            Better::Lower | Better::Cheaper => leads.turned(),
        }
    }

    /// The lead at which the answer changes: that of equal systems, or of those that just keep the
    /// bound.
    pub(super) fn threshold(&self) -> f64 {
        self.bound.map_or(0.0, |bound| bound.lead(self.better).0)
    }

    /// How often an interval may miss, in which a test at `alpha` is read. Of a bound only one of two
    /// answers can be false, so each end has all of `alpha` for itself.
    pub(super) fn miss(&self, alpha: f64) -> f64 {
        if self.bound.is_some() { 2.0 * alpha } else { alpha }
    }
}

/// What is compared, and how finely.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many systems a round runs.
    pub systems: usize,
    /// How many values a round has.
    pub columns: usize,
    pub comparisons: Vec<Comparison>,
    /// The difference that is to be found in [`super::POWER`] of all runs, if it is there.
    pub difference: f64,
    /// How much two systems may differ and be called equal.
    pub margin: f64,
    /// The most rounds that are planned, pilots and repeats apart.
    pub rounds_max: usize,
    /// What orders and bootstrap are drawn from.
    pub seed: u64,
}

impl Plan {
    /// Whether it can be run and analysed.
    pub fn check(&self) -> Result<(), BadPlan> {
        if self.systems < 2 {
            return Err(BadPlan::OneSystem);
        }
        if self.primaries() == 0 {
            return Err(BadPlan::NoPrimary);
        }
        for comparison in &self.comparisons {
            let (subject, reference) = (comparison.subject, comparison.reference);
            if subject == reference || subject.max(reference) >= self.columns {
                return Err(BadPlan::Columns(comparison.name.clone()));
            }
            if comparison.bound.is_some_and(|bound| !bound.is_one_sided()) {
                return Err(BadPlan::Bound(comparison.name.clone()));
            }
        }
        for (what, value) in [("difference", self.difference), ("margin", self.margin)] {
            if !(0.001..=10.0).contains(&value) {
                return Err(BadPlan::Fraction(what, value));
            }
        }
        if self.rounds_max < ROUNDS_MIN {
            return Err(BadPlan::FewRounds(self.rounds_max));
        }
        Ok(())
    }

    /// How many comparisons are corrected together.
    pub fn primaries(&self) -> usize {
        self.comparisons.iter().filter(|comparison| comparison.primary).count()
    }
}

/// The fewest rounds that are planned: with less, a t interval is several times as wide as its
/// standard error, and a correlation between rounds could not be seen.
pub const ROUNDS_MIN: usize = 6;

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum BadPlan {
    OneSystem,
    NoPrimary,
    /// The comparison of this name.
    Columns(String),
    /// As well.
    Bound(String),
    /// Which of the two, and its value.
    Fraction(&'static str, f64),
    FewRounds(usize),
}

impl fmt::Display for BadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPlan::OneSystem => f.write_str("expected two systems at least, to compare"),
            BadPlan::NoPrimary => f.write_str(
                "expected a primary comparison: the number of rounds is chosen for those",
            ),
            BadPlan::Columns(name) => {
                write!(f, "{name}: expected two different measures that every round has")
            }
            BadPlan::Bound(name) => {
                write!(f, "{name}: expected a ratio above 0, to be kept at least or at most")
            }
            BadPlan::Fraction(what, value) => {
                write!(f, "{what}: expected 0.1% to 1000%, not {}%", value * 100.0)
            }
            BadPlan::FewRounds(rounds) => {
                write!(f, "expected room for {ROUNDS_MIN} rounds at least, not {rounds}")
            }
        }
    }
}

impl std::error::Error for BadPlan {}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Systems with a column each; all but the first are compared with the first.
    pub(in crate::statistics) fn plan(systems: usize) -> Plan {
        let against_first = |subject| Comparison {
            name: format!("system {subject}"),
            subject,
            reference: 0,
            better: Better::Higher,
            bound: None,
            primary: true,
        };
        Plan {
            systems,
            columns: systems,
            comparisons: (1..systems).map(against_first).collect(),
            difference: 0.1,
            margin: 0.1,
            rounds_max: 1000,
            seed: 1,
        }
    }

    fn refusal(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan(3);
        assert_eq!(plan.check(), Ok(()), "before the change");
        change(&mut plan);
        plan.check().expect_err("a bad plan").to_string()
    }

    #[test]
    fn a_plan_that_cannot_be_analysed_is_refused_in_words() {
        assert!(refusal(|plan| plan.systems = 1).contains("two systems"));
        let exploratory = |plan: &mut Plan| {
            plan.comparisons.iter_mut().for_each(|comparison| comparison.primary = false);
        };
        assert!(refusal(exploratory).contains("primary comparison"));
        assert!(refusal(|plan| plan.comparisons[1].subject = 0).starts_with("system 2: expected"));
        assert!(refusal(|plan| plan.comparisons[1].subject = 3).starts_with("system 2: expected"));
        for bad in [Bound::Within(0.1), Bound::AtLeast(0.0), Bound::AtMost(f64::NAN)] {
            let refused = refusal(|plan| plan.comparisons[0].bound = Some(bad));
            assert!(refused.ends_with("expected a ratio above 0, to be kept at least or at most"));
        }
        assert_eq!(
            refusal(|plan| plan.difference = 0.0),
            "difference: expected 0.1% to 1000%, not 0%"
        );
        assert!(refusal(|plan| plan.margin = f64::NAN).starts_with("margin"));
        assert!(refusal(|plan| plan.rounds_max = 5).ends_with("not 5"));
    }

    #[test]
    fn a_lower_latency_is_a_lead() {
        let mut comparison = plan(2).comparisons.remove(0);
        assert!(comparison.lead(&[1.0, 2.0]).0 > 0.0);
        for better in [Better::Lower, Better::Cheaper] {
            comparison.better = better;
            assert!(comparison.lead(&[1.0, 2.0]).0 < 0.0);
        }
    }

    #[test]
    fn a_bound_is_on_values_whichever_way_is_good() {
        let mut comparison = plan(2).comparisons.remove(0);
        let leads = Interval { low: LogRatio(0.1), high: LogRatio(0.3), level: 0.9 };
        comparison.bound = Some(Bound::AtMost(2.0));
        assert_eq!((comparison.times(leads), comparison.threshold()), (leads, 2.0_f64.ln()));
        comparison.better = Better::Cheaper;
        let times = comparison.times(leads);
        assert_eq!((times.low.0, times.high.0), (-0.3, -0.1), "faster is less of it");
        assert_eq!(comparison.threshold(), -2.0_f64.ln());
    }
}
