//! A plan of a paper, made short: the comparisons and pictures that a quick run has, in short windows and a
//! few minutes.
//!
//! What is left out is named, and whatever is judged by it stays undecided; a cell that no comparison is of any
//! more does not run. Nothing else of a plan changes, so that what a quick run measures is the same cell.

use std::time::Duration;

use super::Run;
use crate::plan::{Experiment, Group};

/// Leaves of a plan what a quick run has; the names of the comparisons and pictures that it has not.
pub fn quick(experiment: &mut Experiment, run: &Run) -> Vec<String> {
    let mut left_out = Vec::new();
    for group in &mut experiment.groups {
        let primary = |name: &String| run.quick.contains(name);
        // What is exploratory has no rounds of its own.
        let stays = group.plan.comparisons.iter().any(|one| primary(&one.name));
        group.plan.comparisons.retain(|one| {
            let is_kept = primary(&one.name) || stays && !one.primary;
            if !is_kept {
                left_out.push(one.name.clone());
            }
            is_kept
        });
    }
    experiment.groups.retain(|group| !group.plan.comparisons.is_empty());
    experiment.groups.iter_mut().for_each(Group::keep_what_is_compared);
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
