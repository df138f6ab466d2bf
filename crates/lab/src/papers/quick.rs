//! A plan of a paper, made short: the comparisons and pictures that a quick run has, in short windows and a
//! few minutes; or without what a machine that others work on does not tell.
//!
//! What is left out is named, and whatever is judged by it stays undecided; a cell that no comparison is of any
//! more does not run. Nothing else of a plan changes, so that what a quick run measures is the same cell.

use std::time::Duration;

use super::Run;
use crate::plan::{Experiment, Group};
use crate::statistics::Comparison;

/// Leaves of a plan what a quick run has; the names of the comparisons and pictures that it has not.
pub fn quick(experiment: &mut Experiment, run: &Run) -> Vec<String> {
    let mut left_out = keep(experiment, |_, one| run.quick.contains(&one.name) || !one.primary);
    experiment.pictures.retain(|picture| {
        let is_kept = run.quick_pictures.contains(&picture.name);
        if !is_kept {
            left_out.push(picture.name.clone());
        }
        is_kept
    });
    let window = Duration::from_millis(run.quick_window_ms);
    experiment.window = Some(window);
    experiment.warm_up = experiment.warm_up.min(window);
    experiment.time = Some(Duration::from_secs(run.quick_seconds));
    left_out
}

/// Leaves out what is of processor time, which is not told where others work on the ends' CPUs; the names of these
/// comparisons.
pub fn without_cpu(experiment: &mut Experiment) -> Vec<String> {
    keep(experiment, |group, one| !group.columns[one.subject].measure.is_of_cpu())
}

/// Leaves of each group the comparisons that are wanted, if a primary one is among them, since what is exploratory has
/// no rounds of its own; the names of the others.
fn keep(
    experiment: &mut Experiment,
    is_wanted: impl Fn(&Group, &Comparison) -> bool,
) -> Vec<String> {
    let mut left_out = Vec::new();
    for group in &mut experiment.groups {
        let comparisons = group.plan.comparisons.iter();
        let wanted: Vec<bool> = comparisons.map(|one| is_wanted(group, one)).collect();
        let comparisons = std::mem::take(&mut group.plan.comparisons);
        let is_primary =
            comparisons.iter().zip(&wanted).any(|(one, wanted)| one.primary && *wanted);
        for (one, wanted) in comparisons.into_iter().zip(wanted) {
            match is_primary && wanted {
                true => group.plan.comparisons.push(one),
                false => left_out.push(one.name),
            }
        }
    }
    experiment.groups.retain(|group| !group.plan.comparisons.is_empty());
    experiment.groups.iter_mut().for_each(Group::keep_what_is_compared);
    left_out
}
