//! What the rounds say of every comparison: ratios with intervals, and verdicts.
//!
//! Two intervals of each ratio. `interval` stands alone: it misses in 5% of all plans, and is wider
//! where the rounds are shown to be alike. `corrected` is what is drawn and what the verdict is read
//! off: of a primary comparison at the level that Holm's test gives it among the others, and wider
//! for any likeness of neighbouring rounds, shown or not. An exploratory comparison is corrected
//! for nothing but that. Of a comparison that asks for a bound each end of it has that level by
//! itself, and Holm's test reads how far beyond the bound it is in place of how far from equal.
//!
//! Where there is to be no verdict because rounds never became steady, intervals are of all rounds,
//! those included: they show what was measured. In all other cases such rounds do not count.

use std::fmt;

use block::Random;
use serde::{Deserialize, Serialize};

use super::sample::{Precision, Sample};
use super::serial::Serial;
use super::{
    ALPHA, Better, Bound, Comparison, Interval, LogRatio, Plan, Taken, Verdict, Withheld,
    bootstrap, holm, sizing,
};

/// All comparisons of a plan.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Analysis {
    pub findings: Vec<Finding>,
    /// Rounds that were planned; absent if it ended among the pilots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds_planned: Option<usize>,
    /// Counted rounds that were run, repeats included.
    #[serde(default)]
    pub rounds_run: usize,
    /// Rounds that the intervals are of.
    #[serde(default)]
    pub rounds_used: usize,
    /// Rounds that never became steady, of those that were planned.
    #[serde(default)]
    pub rounds_unsteady: usize,
    /// How often each system's trial was not steady: whose fault that is.
    #[serde(default)]
    pub unsteady_trials: Vec<usize>,
}

/// One comparison.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Finding {
    pub name: String,
    pub primary: bool,
    /// What was asked of the ratio of values; without it, whether there is a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Whether it is of what is spent: more of it costs more, and is no slower.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cost: bool,
    /// Absent with fewer than two rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    pub verdict: Verdict,
}

/// What the rounds of a comparison come to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Estimate {
    /// How many times as fast the subject was: the geometric mean of the rounds.
    pub ratio: LogRatio,
    /// Student's, at 95%, by itself.
    pub interval: Interval,
    /// What is drawn, and what the verdict is read off.
    pub corrected: Interval,
    /// Of rounds, at 95%, to hold against `interval`.
    pub bootstrap: Interval,
    pub bootstrap_disagrees: bool,
    /// Of neighbouring rounds.
    pub serial: Serial,
    /// How many independent rounds would have said as much as these.
    pub rounds_effective: f64,
    /// The difference that would have been found in 80% of such runs, at the level of `corrected`.
    pub detectable: f64,
}

/// Analyses what a schedule took.
pub fn analyse(plan: &Plan, taken: &Taken) -> Analysis {
    analyse_together(&[(plan, taken)]).remove(0)
}

/// Analyses what several schedules took whose primary comparisons are one family: a false
/// difference among all of them is as rare as in one plan alone.
pub fn analyse_together(parts: &[(&Plan, &Taken)]) -> Vec<Analysis> {
    analyse_with(parts, true)
}

/// As well; without the bootstrap where nobody looks at it, and its time counts.
pub(super) fn analyse_with(parts: &[(&Plan, &Taken)], with_bootstrap: bool) -> Vec<Analysis> {
    let series: Vec<Vec<Vec<f64>>> = parts.iter().map(|(plan, taken)| leads(plan, taken)).collect();
    let sample = |series: &Vec<Vec<f64>>| series.iter().map(|logs| Sample::of(logs)).collect();
    let samples: Vec<Vec<Option<Sample>>> = series.iter().map(sample).collect();
    let alphas = alphas(parts, &samples);
    let each = parts.iter().zip(&series).zip(samples.iter().zip(&alphas));
    each.map(|(((plan, taken), series), (samples, alphas))| {
        part(plan, taken, series, samples, alphas, with_bootstrap)
    })
    .collect()
}

/// Of each comparison the logarithms of the rounds that its intervals are of.
fn leads(plan: &Plan, taken: &Taken) -> Vec<Vec<f64>> {
    let mut rounds: Vec<&Vec<f64>> = taken.rounds.iter().collect();
    if taken.withheld == Some(Withheld::Unsteady) {
        rounds.extend(&taken.unsteady_rounds);
    }
    let lead = |comparison: &Comparison| {
        rounds.iter().map(|values| comparison.lead(values).0).collect::<Vec<f64>>()
    };
    plan.comparisons.iter().map(lead).collect()
}

/// The analysis of one plan, whose comparisons are drawn at the levels `alphas`.
fn part(
    plan: &Plan,
    taken: &Taken,
    series: &[Vec<f64>],
    samples: &[Option<Sample>],
    alphas: &[f64],
    with_bootstrap: bool,
) -> Analysis {
    let unsteady =
        if taken.withheld == Some(Withheld::Unsteady) { &*taken.unsteady_rounds } else { &[] };
    let mut random = Random::new(plan.seed).fork();
    let finding = |at: usize| {
        let comparison = &plan.comparisons[at];
        let estimate = samples[at].map(|sample| {
            let draw = with_bootstrap.then(|| (series[at].as_slice(), random.fork()));
            Estimate::of(&sample, comparison.miss(alphas[at]), draw)
        });
        let judged = Judged { plan, comparison, alpha: alphas[at] };
        let verdict = match (taken.withheld, samples[at].zip(estimate)) {
            (Some(reason), _) => Verdict::Withheld { reason },
            (None, None) => Verdict::Withheld { reason: Withheld::FewRounds },
            (None, Some((sample, estimate))) => judged.verdict(&sample, &estimate),
        };
        let Comparison { name, primary, bound, better, .. } = comparison.clone();
        Finding { name, primary, bound, is_cost: better == Better::Cheaper, estimate, verdict }
    };
    Analysis {
        findings: (0..series.len()).map(finding).collect(),
        rounds_planned: (taken.planned > 0).then_some(taken.planned),
        rounds_run: taken.run,
        rounds_used: taken.rounds.len() + unsteady.len(),
        rounds_unsteady: taken.unsteady_rounds.len(),
        unsteady_trials: taken.unsteady_trials.clone(),
    }
}

/// The level at which each comparison of each plan is drawn. Plans without a verdict beside others
/// with one keep their share and show nothing: who stopped them may have seen how they went.
fn alphas(parts: &[(&Plan, &Taken)], samples: &[Vec<Option<Sample>>]) -> Vec<Vec<f64>> {
    let is_withheld = |part: usize| parts[part].1.withheld.is_some();
    let is_alone = (0..parts.len()).all(is_withheld);
    let of_part = |part: usize| (0..samples[part].len()).map(move |at| (part, at));
    let is_primary = |(part, at): &(usize, usize)| parts[*part].0.comparisons[*at].primary;
    let primaries: Vec<(usize, usize)> =
        (0..parts.len()).flat_map(of_part).filter(is_primary).collect();
    let known = |(part, at): &(usize, usize)| {
        let is_judged = is_alone || !is_withheld(*part);
        samples[*part][*at].filter(|_| is_judged).map(|sample| sample.guarded())
    };
    let known: Vec<Option<Precision>> = primaries.iter().map(known).collect();
    let asked = |of: usize| {
        let (part, at) = primaries[of];
        &parts[part].0.comparisons[at]
    };
    let p_value = |(of, precision): (usize, &Option<Precision>)| match (precision, asked(of)) {
        (None, _) => 1.0,
        (Some(one), Comparison { bound: None, .. }) => one.p_value(),
        (Some(one), bounded) => one.p_value_beyond(bounded.threshold()),
    };
    let p_values: Vec<f64> = known.iter().enumerate().map(p_value).collect();
    let levels = holm::levels(&p_values, ALPHA, |of, alpha| {
        let (miss, threshold) = (asked(of).miss(alpha), LogRatio(asked(of).threshold()));
        known[of].is_some_and(|one| !one.interval(miss).holds(threshold))
    });
    let mut alphas: Vec<Vec<f64>> = samples.iter().map(|part| vec![ALPHA; part.len()]).collect();
    for ((part, at), level) in primaries.into_iter().zip(levels) {
        alphas[part][at] = level;
    }
    alphas
}

impl Estimate {
    /// Of ratios that stand alone, one of each round, in the order in which they were taken; of two at
    /// least. `seed` draws its bootstrap.
    pub fn of_ratios(ratios: &[f64], seed: u64) -> Option<Estimate> {
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let sample = Sample::of(&logs)?;
        Some(Estimate::of(&sample, ALPHA, Some((&logs, Random::new(seed)))))
    }

    /// Of a sample; `alpha` is the level of what decides. The bootstrap is drawn from the series
    /// and a random source, if there is one.
    fn of(sample: &Sample, alpha: f64, draw: Option<(&[f64], Random)>) -> Estimate {
        let (tested, guarded) = (sample.tested(), sample.guarded());
        let interval = tested.interval(ALPHA);
        let stretch = (sample.rounds as f64 / tested.effective).sqrt();
        let bootstrap = draw.map_or(interval, |(logs, mut random)| {
            bootstrap::interval(logs, sample, ALPHA, stretch, &mut random)
        });
        Estimate {
            ratio: LogRatio(sample.mean),
            interval,
            corrected: guarded.interval(alpha),
            bootstrap,
            bootstrap_disagrees: bootstrap::disagrees(&bootstrap, &interval),
            serial: sample.serial,
            rounds_effective: guarded.effective,
            detectable: LogRatio(guarded.detectable(alpha)).fraction(),
        }
    }
}

/// What a verdict is on: a comparison of a plan, at its level.
struct Judged<'p> {
    plan: &'p Plan,
    comparison: &'p Comparison,
    alpha: f64,
}

impl Judged<'_> {
    fn verdict(&self, sample: &Sample, estimate: &Estimate) -> Verdict {
        if let Some(bound) = self.comparison.bound {
            let times = self.comparison.times(estimate.corrected);
            let distance = (sample.mean - self.comparison.threshold()).abs();
            return Verdict::of_bound(bound, times, || {
                let more = self.more_rounds(sample, distance);
                // A mean that is known ten times as well is still where it is.
                (more < 100 * sample.rounds).then_some(more)
            });
        }
        if let Some(verdict) = Verdict::read(estimate.ratio, estimate.corrected, self.plan.margin) {
            return verdict;
        }
        if estimate.detectable <= self.plan.difference {
            return Verdict::NoDifferenceShown { detectable: estimate.detectable };
        }
        let difference = LogRatio::of_fraction(self.plan.difference).0;
        Verdict::Undecided { more_rounds: self.more_rounds(sample, difference) }
    }

    /// How many more rounds with this spread would probably see a logarithm of this size.
    fn more_rounds(&self, sample: &Sample, size: f64) -> usize {
        let deviation = sample.deviation * sample.serial.inflation().sqrt();
        let needed = sizing::rounds_needed(deviation, size, self.comparison.miss(self.alpha));
        needed.saturating_sub(sample.rounds).max(1)
    }
}

impl Finding {
    /// What is compared, labelled if it is exploratory.
    pub fn label(&self) -> String {
        let label = if self.primary { "" } else { "exploratory: " };
        format!("{label}{}", self.name)
    }

    /// The verdict, in words of what was asked.
    pub fn answer(&self) -> String {
        match self.bound {
            Some(bound) => format!("{bound}: {}", self.verdict),
            None if self.is_cost => self.verdict.of_cost(),
            None => self.verdict.to_string(),
        }
    }

    /// What is said of it: the verdict, and what casts doubt on it.
    pub fn said(&self) -> String {
        [vec![self.answer()], self.doubts()].concat().join("; ")
    }

    /// An interval as its verdict speaks of it: of what is spent, how much more or less that is.
    pub fn shown(&self, leads: Interval) -> Interval {
        if self.is_cost { leads.turned() } else { leads }
    }

    /// What casts doubt on the verdict.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let Some(estimate) = &self.estimate else { return doubts };
        if estimate.serial.is_shown() {
            doubts.push(format!(
                "rounds that followed each other were alike, so {:.0} of them say all",
                estimate.rounds_effective
            ));
        }
        if estimate.bootstrap_disagrees {
            // Its ends are of how fast, and those of a bound of values.
            let seen = match self.bound {
                Some(_) => "otherwise".to_owned(),
                None => self.shown(estimate.bootstrap).to_string(),
            };
            doubts.push(format!("a bootstrap says {seen}, so look at the rounds"));
        }
        doubts
    }
}

/// "IOPS of nvme against iscsi: faster by 12% (8.1% to 16%)".
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label(), self.said())
    }
}

/// A line for each comparison, and one for the rounds.
impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let Analysis { rounds_used, rounds_run, rounds_unsteady, .. } = self;
        write!(
            f,
            "of {rounds_used} rounds; {rounds_unsteady} of {rounds_run} rounds run stayed unsteady"
        )?;
        if self.unsteady_trials.iter().any(|trials| *trials > 0) {
            let trials: Vec<String> = self.unsteady_trials.iter().map(usize::to_string).collect();
            write!(f, "; unsteady trials of each system: {}", trials.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
