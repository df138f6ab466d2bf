//! Whether a series of runs changed, and where: a change-point test that knows no distribution.
//!
//! In: a value a run, in the order of the runs, of any unit. Out: the split that parts the runs
//! best into before and after, and how often runs of which none differs from the others part as
//! well. Each split is judged by Mann and Whitney's statistic of ranks, as Pettitt (1979) has it,
//! standardized so that a change of a moment ago counts as much as one in the middle (Hawkins and
//! Deng 2010), and divided by what von Neumann's ratio says of neighbours within both parts, since
//! runs that only follow each other make splits as well. The largest of all splits is held against
//! that of as many runs in orders that are drawn at random: an exact test if runs are exchangeable,
//! whatever their distribution (Dwass 1957). Equal values make it stricter.
//!
//! A watch tests after each run. Its level is spent evenly: `FALSE_A_RUN`, all series of a plan
//! together, so that by Boole's inequality a hundred runs have a false alarm in 5% at most, however
//! their tests depend on each other. Taken before limits by which an alarm comes once in so many
//! runs on average (Ross and others 2011), which are tables of the number of runs, and before
//! martingales of conformal p values (Vovk 2021), which find nothing in a few dozen runs. That it
//! holds what it promises is what `calibration` tests; docs/statistics.md has the figures.

use std::collections::BTreeMap;

use block::Random;

#[cfg(test)]
mod calibration;

/// How often a run makes a false alarm, all series of a plan together: 5% of a hundred runs.
const FALSE_A_RUN: f64 = 0.0005;
/// The most runs that a test looks at; what changed before them was found, or is how it is.
pub const RUNS_MAX: usize = 100;
/// The fewest runs on either side of a split: one alone is no level.
const SIDE_MIN: usize = 2;
/// So many of the orders that are drawn part as well as a level asks for.
const DRAWN_BEYOND: f64 = 10.0;
/// Beyond, no number of runs says anything.
const CORRELATION_MAX: f64 = 0.99;

/// The split that parts a series best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The place of the first value of those after it.
    pub at: usize,
    /// How often a series without a change parts as well.
    pub p_value: f64,
}

/// What tests series at a level.
#[derive(Clone, Debug)]
pub struct Test {
    level: f64,
    /// Of each number of runs that was asked for, the statistics of random orders, least first.
    orders: BTreeMap<usize, Vec<f64>>,
}

impl Test {
    /// Of so many series that are tested after each run.
    pub fn of(series: usize) -> Test {
        Test { level: FALSE_A_RUN / series.max(1) as f64, orders: BTreeMap::new() }
    }

    /// Whether a change is shown.
    pub fn shows(&self, split: &Split) -> bool {
        split.p_value <= self.level
    }

    /// How many runs it takes until a change could be shown at all: of fewer, too many orders are as
    /// clear as the clearest.
    pub fn runs_needed(&self) -> usize {
        // Orders of n runs with all of one half before the other: 2 of n over n/2.
        let clearest = |runs: usize| {
            let half = runs / 2;
            2.0 * (1..=half).map(|i| i as f64 / (runs - half + i) as f64).product::<f64>()
        };
        let mut counts = 2 * SIDE_MIN..;
        counts.find(|runs| clearest(*runs) <= self.level).expect("it falls with each run")
    }

    /// The best split of a series, and whether chance makes such ones; nothing where there are too few
    /// runs to show one. A value that is not finite is a mistake of the caller.
    pub fn split(&mut self, values: &[f64]) -> Option<Split> {
        assert!(values.iter().all(|value| value.is_finite()), "no values of runs: {values:?}");
        if values.len() < self.runs_needed() {
            return None;
        }
        let (at, seen) = best(&ranks(values));
        let draws = (DRAWN_BEYOND / self.level).ceil() as usize;
        let orders = self.orders.entry(values.len()).or_insert_with(|| orders(values.len(), draws));
        let as_clear = orders.len() - orders.partition_point(|statistic| *statistic < seen);
        Some(Split { at, p_value: (as_clear + 1) as f64 / (orders.len() + 1) as f64 })
    }
}

/// The statistics of so many random orders of runs, least first. They are the same each time, so
/// that the same runs are judged the same.
fn orders(runs: usize, draws: usize) -> Vec<f64> {
    let mut random = Random::new(runs as u64);
    let mut order = ranks(&(0..runs).map(|run| run as f64).collect::<Vec<f64>>());
    let draw = |_| {
        shuffle(&mut order, &mut random);
        best(&order).1
    };
    let mut statistics: Vec<f64> = (0..draws).map(draw).collect();
    statistics.sort_by(f64::total_cmp);
    statistics
}

/// The rank of each value less their mean; equal values share theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let middle = (values.len() + 1) as f64 / 2.0;
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal + 1) as f64 / 2.0 - middle
    };
    values.iter().map(rank).collect()
}

/// The split that parts best, and the largest statistic of all: the square of Mann and Whitney's, by
/// what likeness of neighbours within both parts adds to its variance.
fn best(ranks: &[f64]) -> (usize, f64) {
    let count = ranks.len() as f64;
    let spread: f64 = ranks.iter().map(|rank| rank * rank).sum();
    let steps: f64 = ranks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let (mut best, mut most, mut largest) = (SIDE_MIN, 0.0, 0.0_f64);
    let mut sum = ranks[..SIDE_MIN - 1].iter().sum::<f64>();
    for at in SIDE_MIN..=ranks.len() - SIDE_MIN {
        sum += ranks[at - 1];
        // What the means of both parts explain of the spread.
        let (before, after) = (at as f64, count - at as f64);
        let between = sum * sum * count / (before * after);
        let within = spread - between;
        let crossing = (ranks[at] - ranks[at - 1]).powi(2);
        let ratio = if within > 0.0 { (steps - crossing) / within } else { 2.0 };
        let correlation = (1.0 - ratio / 2.0).clamp(0.0, CORRELATION_MAX);
        let statistic = between * (1.0 - correlation) / (1.0 + correlation);
        largest = largest.max(statistic);
        if between > most {
            (best, most) = (at, between);
        }
    }
    (best, largest)
}

/// Fisher and Yates.
fn shuffle(ranks: &mut [f64], random: &mut Random) {
    for last in (1..ranks.len()).rev() {
        ranks.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that look like noise, of which some are higher from a place on.
    fn series(count: usize, from: usize, by: f64) -> Vec<f64> {
        let mut random = Random::new(7);
        let noise = |_| (random.below(1_000) as f64 - 500.0) / 500.0;
        let noise: Vec<f64> = (0..count).map(noise).collect();
        let shift = |(at, value)| if at < from { value } else { value + by };
        noise.into_iter().enumerate().map(shift).collect()
    }

    /// The split of a series, where it is shown.
    fn change(test: &mut Test, values: &[f64]) -> Option<Split> {
        test.split(values).filter(|split| test.shows(split))
    }

    #[test]
    fn a_change_is_found_where_it_is_or_beside_in_either_direction() {
        let mut test = Test::of(1);
        for by in [3.0, -3.0] {
            for from in [8, 20, 32] {
                let split = change(&mut test, &series(40, from, by)).expect("a change");
                // Where the first run after it is the least of those, it may as well be one of those before.
                assert!(split.at.abs_diff(from) <= 1, "{from} {by}: {split:?}");
            }
        }
    }

    #[test]
    fn a_series_that_did_not_change_shows_none() {
        let split = Test::of(1).split(&series(60, 60, 0.0)).expect("runs enough");
        assert!(split.p_value > 0.05, "{split:?}");
        assert_eq!(Test::of(1).split(&[1.0; 30]).expect("runs enough").p_value, 1.0);
    }

    #[test]
    fn one_strange_run_is_no_change() {
        for place in [0, 15, 29] {
            let mut values = series(30, 30, 0.0);
            values[place] = 1e9;
            assert_eq!(change(&mut Test::of(1), &values), None, "{place}");
        }
    }

    #[test]
    fn only_the_order_of_values_counts() {
        let values = series(40, 20, 1.0);
        let stretched: Vec<f64> = values.iter().map(|value| value.exp()).collect();
        assert_eq!(Test::of(3).split(&values), Test::of(3).split(&stretched));
    }

    #[test]
    fn too_few_runs_say_nothing() {
        // Two of 14 over 7 are 2 of 3432, of 15 over 7 2 of 6435.
        assert_eq!(Test::of(1).runs_needed(), 15);
        assert!(Test::of(10).runs_needed() > 15);
        assert_eq!(Test::of(1).split(&series(14, 7, 100.0)), None);
        assert_eq!(Test::of(1).split(&series(15, 7, 100.0)).expect("runs enough").at, 7);
    }

    #[test]
    fn the_statistic_is_that_of_a_table() {
        // Ranks 1 2 3 4 5 6 parted at 3: U is 0 of a mean of 4.5 and a variance of 5.25, and the
        // square of 4.5/sqrt(5.25) is 3.857. What the means explain is that by 12/(n+1) n/12 = 3.5.
        let ranks = ranks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let between = (1.5_f64 + 0.5 + 2.5).powi(2) * 6.0 / 9.0;
        assert!((between / 3.5 - 4.5_f64.powi(2) / 5.25).abs() < 1e-12);
        // Neighbours within the parts differ by 1 each: 4 in all, by a spread of 4 within.
        let (at, statistic) = best(&ranks);
        assert_eq!(at, 3);
        assert!((statistic - between / 3.0).abs() < 1e-12, "{statistic} beside {between}");
    }
}
