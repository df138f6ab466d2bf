//! How many rounds a plan needs, by the spread of its pilots.
//!
//! Five pilots know a spread badly: it is taken at the upper end of its one-sided confidence
//! interval (by chi squared; Browne 1995). For that, the rounds are as many as let a t test find
//! the plan's difference in 80% of all runs at the level of Holm's first step, which is its
//! strictest; of a bound, the plan's difference from it, on either side. How far from equal, or from
//! a bound, pilots are is not looked at: five of them hardly know, and what lies on a bound would
//! have rounds without end. The largest number that any primary comparison needs is taken, rounded up to whole
//! blocks of balanced orders. Pilots are not counted in the analysis, or their chance would be used
//! twice.

use std::fmt;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use super::order::block_rounds;
use super::plan::ROUNDS_MIN;
use super::ratio::Percent;
use super::sample::{Sample, quantile};
use super::{ALPHA, LogRatio, POWER, Plan};

/// How many rounds are run to choose the number of the others.
pub const PILOTS: usize = 5;
/// How sure it is that the spread is no larger than what is reckoned with.
const CONFIDENCE: f64 = 0.85;

/// The number of rounds, and what it follows from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sizing {
    /// The largest standard deviation of per-round logarithms among the primary comparisons.
    pub deviation: f64,
    /// The one that is reckoned with.
    pub deviation_upper: f64,
    /// The rounds that the plan's difference needs.
    pub rounds_needed: usize,
    /// The rounds that are planned: those, in whole blocks, or as many as there may be.
    pub rounds: usize,
}

impl Sizing {
    /// From the values of pilot rounds.
    pub fn of(plan: &Plan, pilots: &[Vec<f64>]) -> Sizing {
        Sizing::among(plan, pilots, plan.primaries(), plan.rounds_max)
    }

    /// As well, of a plan that is one of several: `primaries` are corrected together in all of
    /// them, and there is time for `rounds_max` rounds of this one.
    pub fn among(plan: &Plan, pilots: &[Vec<f64>], primaries: usize, rounds_max: usize) -> Sizing {
        let rounds_max = rounds_max.min(plan.rounds_max).max(ROUNDS_MIN);
        let difference = LogRatio::of_fraction(plan.difference).0;
        let alpha = ALPHA / primaries as f64;
        let factor = upper_factor(pilots.len());
        let (mut deviation, mut rounds_needed) = (0.0_f64, ROUNDS_MIN);
        for comparison in plan.comparisons.iter().filter(|comparison| comparison.primary) {
            let logs: Vec<f64> = pilots.iter().map(|values| comparison.lead(values).0).collect();
            let own = Sample::of(&logs).expect("two pilots or more").deviation;
            let needed = self::rounds_needed(own * factor, difference, comparison.miss(alpha));
            (deviation, rounds_needed) = (deviation.max(own), rounds_needed.max(needed));
        }
        let deviation_upper = deviation * factor;
        let block = block_rounds(plan.systems);
        // Whole blocks, unless those are fewer rounds than a plan has at least.
        let whole_max = rounds_max / block * block;
        let most = if whole_max < ROUNDS_MIN { rounds_max } else { whole_max };
        let rounds = rounds_needed.next_multiple_of(block).min(most);
        Sizing { deviation, deviation_upper, rounds_needed, rounds }
    }

    /// Whether the plan's difference is likely to be found.
    pub fn is_enough(&self) -> bool {
        self.rounds >= self.rounds_needed
    }
}

/// What is printed before the first counted round.
impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizing { rounds, rounds_needed, .. } = self;
        let percent = |deviation: f64| Percent(LogRatio(deviation).fraction());
        let (seen, upper) = (percent(self.deviation), percent(self.deviation_upper));
        write!(f, "{rounds} rounds: pilots differ by {seen}, {upper} are reckoned with")?;
        if !self.is_enough() {
            write!(f, "; the difference asked for needs {rounds_needed}, so it may not be found")?;
        }
        Ok(())
    }
}

/// By what a standard deviation of so many rounds is multiplied to be its upper bound.
fn upper_factor(rounds: usize) -> f64 {
    let freedom = rounds as f64 - 1.0;
    let chi_squared = ChiSquared::new(freedom).expect("two pilots or more");
    (freedom / chi_squared.inverse_cdf(1.0 - CONFIDENCE)).sqrt()
}

/// The rounds with which a difference is found at a level in [`POWER`] of all runs.
pub(crate) fn rounds_needed(deviation: f64, difference: f64, alpha: f64) -> usize {
    let scale = (deviation / difference).powi(2);
    let normal = Normal::standard();
    let least = (normal.inverse_cdf(1.0 - alpha / 2.0) + normal.inverse_cdf(POWER)).powi(2) * scale;
    let is_enough = |rounds: usize| {
        let effective = effective(rounds as f64);
        let freedom = effective - 1.0;
        let reach = quantile(freedom, 1.0 - alpha / 2.0) + quantile(freedom, POWER);
        reach.powi(2) * scale <= effective
    };
    let mut low = (least.min(ROUNDS_FAR) as usize).max(ROUNDS_MIN);
    // Student's quantiles add a few rounds to the normal ones, and fewer the more there are.
    while !is_enough(low) && (low as f64) < ROUNDS_FAR {
        low += 1;
    }
    low
}

/// How many rounds decide as much as independent ones: what decides is wider for any likeness of
/// neighbours, and chance alone makes some. A correlation seen has a standard error of about one by
/// the root of the rounds; of a normal variable the positive part is 0.4 standard errors on average.
fn effective(rounds: f64) -> f64 {
    let chance = 0.4 / rounds.sqrt();
    rounds * (1.0 - chance) / (1.0 + chance)
}

/// More than anybody runs.
const ROUNDS_FAR: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn rounds_are_those_of_power_tables() {
        // A paired t test, 5%, power 80%: 34 pairs for half a deviation, 15 for 0.8 (exact by the
        // noncentral t distribution), of effective rounds.
        let needed = |deviation| effective(rounds_needed(1.0, deviation, 0.05) as f64);
        assert!((needed(0.5) - 34.0).abs() <= 1.0, "{}", needed(0.5));
        assert!((needed(0.8) - 15.0).abs() <= 1.0, "{}", needed(0.8));
        assert_eq!(rounds_needed(0.0, 0.5, 0.05), ROUNDS_MIN);
        assert_eq!(rounds_needed(1e9, 0.5, 0.05), 1_000_000);
    }

    #[test]
    fn the_upper_bound_is_that_of_the_tables() {
        // Chi squared with four degrees of freedom exceeds 1.366 in 85% of cases.
        assert!((upper_factor(5) - (4.0_f64 / 1.366).sqrt()).abs() < 0.001);
    }

    #[test]
    fn rounds_come_in_whole_blocks_and_no_more_than_there_may_be() {
        let mut plan = plan(3);
        let pilots: Vec<Vec<f64>> =
            [0.9, 1.1, 1.0, 1.2, 0.8].iter().map(|value| vec![1.0, *value, 1.0]).collect();
        let free = Sizing::of(&plan, &pilots);
        assert!(free.rounds.is_multiple_of(6) && free.rounds - free.rounds_needed < 6, "{free:?}");
        assert!(free.is_enough() && free.deviation_upper > free.deviation);
        plan.rounds_max = 20;
        let bound = Sizing::of(&plan, &pilots);
        assert_eq!((bound.rounds, bound.is_enough()), (18, false));
        let said = bound.to_string();
        assert!(said.starts_with("18 rounds: pilots differ by 17%, 32% are reckoned"), "{said}");
        assert!(said.contains("; the difference asked for needs"), "{said}");
        assert!(!free.to_string().contains("needs"), "{free}");
    }

    #[test]
    fn there_are_never_fewer_rounds_than_a_plan_has_at_least() {
        for systems in [2, 4, 5] {
            let pilots = vec![vec![1.0; systems]; 5];
            let plan = Plan { rounds_max: ROUNDS_MIN, ..plan(systems) };
            assert_eq!(Sizing::of(&plan, &pilots).rounds, ROUNDS_MIN, "{systems} systems");
        }
    }

    #[test]
    fn a_bound_is_seen_by_spread_alone_and_with_fewer_rounds() {
        let pilots = |lead: f64| -> Vec<Vec<f64>> {
            [0.9, 1.1, 1.0, 1.2, 0.8].iter().map(|value| vec![1.0, *value * lead]).collect()
        };
        let mut plan = plan(2);
        let difference = Sizing::of(&plan, &pilots(1.0));
        plan.comparisons[0].bound = Some(super::super::Bound::AtLeast(0.9));
        let [on_it, far] = [0.9, 2.0].map(|lead| Sizing::of(&plan, &pilots(lead)).rounds_needed);
        assert_eq!(on_it, far, "where pilots are does not matter");
        assert!(on_it < difference.rounds_needed, "each side has 5%");
        assert_eq!(on_it, rounds_needed(difference.deviation_upper, 1.1_f64.ln(), 0.1));
    }

    #[test]
    fn more_primary_comparisons_need_more_rounds() {
        let pilots: Vec<Vec<f64>> =
            [0.9, 1.1, 1.0, 1.2, 0.8].iter().map(|value| vec![1.0, *value, 1.0]).collect();
        let mut plan = plan(3);
        let both = Sizing::of(&plan, &pilots).rounds_needed;
        plan.comparisons[1].primary = false;
        assert!(Sizing::of(&plan, &pilots).rounds_needed < both);
    }
}
