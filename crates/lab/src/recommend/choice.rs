//! The road of each group: who is left once whoever is shown to be behind is out, and who of those
//! is taken.
//!
//! Of those that are left, by which no one is better than another, CPU per operation decides, then
//! bytes on the wire, then what changes nothing (the plan's reference), then the order of the plan.
//! A verdict by CPU per operation goes before its figures. Figures that differ by less than the
//! plan's margin decide nothing.

use super::agreement::{cell_of, is_as_the_group, is_road};
use super::figures::Figures;
use super::order::Order;
use super::turns;
use super::{Candidate, Choice, Decided, Sureness};
use crate::kept::{Kept, Trial};
use crate::plan::{Experiment, GroupResults, Measure};
use crate::statistics::{Verdict, Withheld};

/// A group, with what is known of it.
pub(super) struct Grouped<'a> {
    pub(super) kept: &'a Kept,
    pub(super) experiment: &'a Experiment,
    /// Its place in the plan.
    pub(super) at: usize,
    pub(super) results: &'a GroupResults,
    pub(super) by: Measure,
    pub(super) order: Order<'a>,
    /// Of each system.
    pub(super) figures: Vec<Figures>,
    /// Systems that were compared by the measure.
    pub(super) roads: Vec<usize>,
}

/// Of all groups that were compared by the measure.
pub(super) fn all(
    kept: &Kept,
    experiment: &Experiment,
    by: Option<Measure>,
) -> Result<Vec<Choice>, String> {
    let groups = kept.results.groups.iter().enumerate();
    let counted = kept.counted();
    let of_group = |(at, results): (usize, &GroupResults)| {
        let measure = by.or_else(|| first_primary(experiment, at))?;
        let trials = |system: usize| -> &[&Trial] {
            let cell = experiment.cell_name(&cell_of(experiment, at, system));
            counted.get(&*cell).map_or(&[], |its| its)
        };
        let figures = (0..results.systems.len()).map(|system| Figures::of(trials(system)));
        Some(Grouped::of(kept, experiment, at, figures.collect(), measure)?.choice())
    };
    let choices: Vec<Choice> = groups.filter_map(of_group).collect();
    if !choices.is_empty() {
        return Ok(choices);
    }
    let mut compared: Vec<&str> = Vec::new();
    for group in &experiment.groups {
        for comparison in group.plan.comparisons.iter().filter(|one| one.bound.is_none()) {
            let word = group.columns[comparison.subject].measure.word();
            if !compared.contains(&word) {
                compared.push(word);
            }
        }
    }
    Err(match (by, compared.as_slice()) {
        (Some(by), [_, ..]) => format!(
            "expected a measure that something was compared by, one of {}, seen {}",
            compared.join(", "),
            by.word()
        ),
        _ if !experiment.groups.is_empty() => {
            format!("expected a plan that asks for a difference, seen {BOUNDS_ALONE}")
        }
        _ => "expected a plan that compares something, seen pictures alone, which have no verdict"
            .to_owned(),
    })
}

/// What is said of a path and load of which a plan asks for nothing else.
pub(super) const BOUNDS_ALONE: &str =
    "bounds alone, which say whether they are kept and not who is better";

/// Paths and loads of which bounds are all that was asked for.
pub(super) fn bounds_alone(experiment: &Experiment) -> Vec<String> {
    let groups = experiment.groups.iter();
    let alone = groups.filter(|group| group.plan.comparisons.iter().all(|one| one.bound.is_some()));
    alone.map(|group| group.name.clone()).collect()
}

/// The measure of a group's first primary comparison that asks for a difference.
fn first_primary(experiment: &Experiment, group: usize) -> Option<Measure> {
    let group = &experiment.groups[group];
    let mut asked = group.plan.comparisons.iter().filter(|comparison| comparison.bound.is_none());
    let first = asked.find(|comparison| comparison.primary)?;
    Some(group.columns[first.subject].measure)
}

impl<'a> Grouped<'a> {
    fn of(
        kept: &'a Kept,
        experiment: &'a Experiment,
        at: usize,
        figures: Vec<Figures>,
        by: Measure,
    ) -> Option<Grouped<'a>> {
        let results = &kept.results.groups[at];
        let order = Order::of(experiment, at, results, by);
        let roads: Vec<usize> = (0..results.systems.len())
            .filter(|system| is_road(results, *system) && order.has(*system))
            // What only tells a path or a load of it from another is held against the one that is chosen for.
            .filter(|system| is_as_the_group(experiment, at, *system))
            .collect();
        let grouped = Grouped { kept, experiment, at, results, by, order, figures, roads };
        (!grouped.roads.is_empty()).then_some(grouped)
    }

    pub(super) fn margin(&self) -> f64 {
        self.experiment.groups[self.at].plan.margin
    }

    pub(super) fn name(&self, system: usize) -> String {
        self.results.systems[system].clone()
    }

    fn choice(&self) -> Choice {
        let (taken, sureness, decided) = self.take();
        let candidate = |system: &usize| Candidate {
            system: self.name(*system),
            figures: self.figures[*system].clone(),
            behind: self.order.ahead_of(*system, &self.roads).map(|other| self.name(other)),
        };
        Choice {
            load: self.results.name.clone(),
            by: self.by,
            take: taken.map(|system| self.name(system)),
            sureness,
            decided,
            candidates: self.roads.iter().map(candidate).collect(),
            said: self.said(),
            turns: turns::of(self, taken),
        }
    }

    fn said(&self) -> Vec<String> {
        let judged = self.order.judged.iter().map(|one| one.finding);
        judged.chain(self.order.bounds.iter().copied()).map(ToString::to_string).collect()
    }

    /// The roads behind whom nobody is shown to be ahead.
    pub(super) fn left(&self) -> Vec<usize> {
        let is_left = |system: &usize| self.order.ahead_of(*system, &self.roads).is_none();
        self.roads.iter().copied().filter(is_left).collect()
    }

    fn take(&self) -> (Option<usize>, Sureness, Option<Decided>) {
        if let Some(reason) = self.withheld() {
            return (None, Sureness::Withheld { reason }, None);
        }
        match self.left().as_slice() {
            [] => (None, Sureness::Contradiction, None),
            [one] if self.roads.len() == 1 => (Some(*one), Sureness::Alone, None),
            // Each other one has somebody ahead of it, and so, in the end, this one.
            [one] => {
                let mut others = self.roads.iter().filter(|other| *other != one);
                let exploratory = others.any(|other| self.order.ahead(*one, *other) == Some(true));
                (Some(*one), Sureness::Shown { exploratory }, None)
            }
            left => {
                let (taken, decided) = self.decide(left);
                (Some(taken), self.among(taken, left), Some(decided))
            }
        }
    }

    /// Why there is no verdict, if there is none at all.
    fn withheld(&self) -> Option<Withheld> {
        let mut reasons = self.order.judged.iter().map(|one| match one.finding.verdict {
            Verdict::Withheld { reason } => Some(reason),
            _ => None,
        });
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    /// How sure it is among others that are left: equal, if a verdict says so of each.
    fn among(&self, taken: usize, left: &[usize]) -> Sureness {
        let (mut equal, mut open) = (Vec::new(), Vec::new());
        let (mut most, mut is_exploratory) = (0.0_f64, false);
        for other in left.iter().copied().filter(|other| *other != taken) {
            let finding = self.order.between(taken, other).map(|judged| judged.finding);
            match finding.map(|finding| (finding.verdict, finding.primary)) {
                Some((Verdict::Equal { margin }, primary)) => {
                    equal.push(self.name(other));
                    most = most.max(margin);
                    is_exploratory |= !primary;
                }
                _ => open.push(self.name(other)),
            }
        }
        match open.as_slice() {
            [] => Sureness::Equal { margin: most, exploratory: is_exploratory, with: equal },
            _ => Sureness::Open { with: open, equal },
        }
    }

    /// Who is taken of several, and by what.
    fn decide(&self, left: &[usize]) -> (usize, Decided) {
        let mut left = left.to_vec();
        if self.by != Measure::CpuPerOp {
            let by_cpu = Order::of(self.experiment, self.at, self.results, Measure::CpuPerOp);
            let mut all = left.clone();
            left.retain(|one| by_cpu.ahead_of(*one, &all).is_none());
            let by_verdict = left.len() == 1;
            if left.is_empty() {
                left.clone_from(&all);
            } else if !by_verdict {
                // Among these figures decide, if anything does.
                all.clone_from(&left);
            }
            let cpu = |system: usize| self.figures[system].of_measure(Measure::CpuPerOp);
            self.keep_least(&mut left, cpu);
            if let ([one], Some(next)) = (left.as_slice(), least(&all, left[0], cpu))
                && let Some(us_per_op) = cpu(*one)
            {
                return (*one, Decided::Cpu { us_per_op, next_us_per_op: next, by_verdict });
            }
        }
        let all = left.clone();
        let wire = |system: usize| self.figures[system].wire();
        self.keep_least(&mut left, wire);
        if let ([one], Some(next)) = (left.as_slice(), least(&all, left[0], wire))
            && let Some(bytes_per_op) = wire(*one)
        {
            return (*one, Decided::Wire { bytes_per_op, next_bytes_per_op: next });
        }
        let is_reference =
            |system: &&usize| self.order.judged.iter().any(|one| one.reference == **system);
        match left.iter().find(is_reference) {
            Some(reference) => (*reference, Decided::Reference),
            None => (left[0], Decided::First),
        }
    }

    /// Only those remain that are no more than the margin above the least; all, where one of them has
    /// no figure.
    fn keep_least(&self, left: &mut Vec<usize>, value: impl Fn(usize) -> Option<f64>) {
        let values: Option<Vec<f64>> = left.iter().map(|system| value(*system)).collect();
        let Some(values) = values else { return };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        left.retain(|system| value(*system).is_some_and(|it| it <= least * (1.0 + self.margin())));
    }
}

/// The least of the others.
fn least(all: &[usize], but: usize, value: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let others = all.iter().filter(|system| **system != but);
    others.filter_map(|system| value(*system)).min_by(f64::total_cmp)
}
