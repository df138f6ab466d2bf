//! Who is shown to be better than whom, by one measure of a group.
//!
//! Verdicts are of a subject against a reference. What follows from them is known as well: if one
//! is faster than the reference, and another slower, the one is faster than the other, for the
//! verdicts hold together. Nothing else is: two that are both faster than a reference, or equal to
//! it, were not compared with each other. A bound says whether it is kept, and of nobody that it is
//! better.

use crate::plan::{Experiment, GroupResults, Measure};
use crate::statistics::{Finding, Verdict};

/// A finding, by the places of its systems.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged<'a> {
    pub(super) subject: usize,
    pub(super) reference: usize,
    pub(super) finding: &'a Finding,
}

/// What verdicts by a measure say.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) judged: Vec<Judged<'a>>,
    /// Of bounds that were asked for, by which nobody is better than another.
    pub(super) bounds: Vec<&'a Finding>,
    /// `ahead[a][b]`: whether a is shown to be better than b, and whether an exploratory verdict is needed
    /// for it.
    ahead: Vec<Vec<Option<bool>>>,
}

impl<'a> Order<'a> {
    pub(super) fn of(
        experiment: &Experiment,
        group: usize,
        results: &'a GroupResults,
        measure: Measure,
    ) -> Order<'a> {
        let columns = &results.columns;
        let comparisons = &experiment.groups[group].plan.comparisons;
        let (bounds, differences): (Vec<_>, Vec<_>) = comparisons
            .iter()
            .zip(&results.analysis.findings)
            .filter(|(comparison, _)| columns[comparison.subject].measure == measure)
            .partition(|(comparison, _)| comparison.bound.is_some());
        let bounds = bounds.into_iter().map(|(_, finding)| finding).collect();
        let judged: Vec<Judged<'a>> = differences
            .into_iter()
            .map(|(comparison, finding)| Judged {
                subject: columns[comparison.subject].system,
                reference: columns[comparison.reference].system,
                finding,
            })
            .collect();
        let mut ahead = vec![vec![None; results.systems.len()]; results.systems.len()];
        for Judged { subject, reference, finding } in &judged {
            let (first, last) = match finding.verdict {
                Verdict::Faster { .. } => (*subject, *reference),
                Verdict::Slower { .. } => (*reference, *subject),
                _ => continue,
            };
            ahead[first][last] = Some(!finding.primary);
        }
        follow(&mut ahead);
        Order { judged, bounds, ahead }
    }

    /// Whether one is shown to be better than the other; with whether that is exploratory.
    pub(super) fn ahead(&self, one: usize, other: usize) -> Option<bool> {
        self.ahead[one][other]
    }

    /// Who of these is shown to be better than this one.
    pub(super) fn ahead_of(&self, system: usize, roads: &[usize]) -> Option<usize> {
        roads.iter().copied().find(|other| self.ahead[*other][system].is_some())
    }

    /// What was said of these two, if they were compared.
    pub(super) fn between(&self, one: usize, other: usize) -> Option<&Judged<'a>> {
        self.judged.iter().find(|judged| {
            [(one, other), (other, one)].contains(&(judged.subject, judged.reference))
        })
    }

    /// Whether it is in any comparison.
    pub(super) fn has(&self, system: usize) -> bool {
        self.judged.iter().any(|judged| [judged.subject, judged.reference].contains(&system))
    }
}

/// What follows: by way of each system, as Warshall has it. One without exploratory verdicts is
/// preferred.
fn follow(ahead: &mut [Vec<Option<bool>>]) {
    let systems = ahead.len();
    for by in 0..systems {
        for first in 0..systems {
            for last in 0..systems {
                let (Some(one), Some(other)) = (ahead[first][by], ahead[by][last]) else {
                    continue;
                };
                let known = ahead[first][last].unwrap_or(true);
                ahead[first][last] = Some(known && (one || other));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_of_what_is_ahead_is_ahead_and_exploratory_if_a_step_is() {
        let mut ahead = vec![vec![None; 4]; 4];
        (ahead[0][1], ahead[1][2], ahead[2][3]) = (Some(false), Some(false), Some(true));
        follow(&mut ahead);
        assert_eq!((ahead[0][2], ahead[0][3], ahead[3][0]), (Some(false), Some(true), None));
    }

    #[test]
    fn a_way_without_exploratory_steps_is_preferred() {
        let mut ahead = vec![vec![None; 3]; 3];
        (ahead[0][2], ahead[0][1], ahead[1][2]) = (Some(true), Some(false), Some(false));
        follow(&mut ahead);
        assert_eq!(ahead[0][2], Some(false));
    }
}
