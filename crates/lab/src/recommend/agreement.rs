//! Whether what a result file has is of the plan in it: advice follows the places of one in the other.
//!
//! Errors: what was expected and seen.

use crate::kept::Kept;
use crate::plan::{Cell, Experiment, Group, GroupResults};

/// The plan, whose groups the results have; an error if they are not of each other.
pub(super) fn experiment(kept: &Kept) -> Result<Experiment, String> {
    let experiment = kept.experiment().map_err(|mistakes| {
        format!("the plan in it is none that this version reads:\n{mistakes}")
    })?;
    let (planned, seen) = (experiment.groups.len(), kept.results.groups.len());
    if planned != seen {
        return Err(format!("expected results of the {planned} groups of its plan, seen {seen}"));
    }
    let mut pairs = experiment.groups.iter().zip(&kept.results.groups);
    pairs.try_for_each(|(group, results)| agree(group, results))?;
    Ok(experiment)
}

fn agree(group: &Group, results: &GroupResults) -> Result<(), String> {
    let systems = &group.names;
    let null = &systems[group.null];
    let columns = group.columns.iter().map(|one| format!("{} of {}", one.measure, one.system));
    let comparisons = group.plan.comparisons.iter().map(|one| &*one.name);
    let seen_columns =
        results.columns.iter().map(|one| format!("{} of {}", one.measure, one.system));
    let findings = results.analysis.findings.iter().map(|one| &*one.name);
    for (what, wanted, seen) in [
        ("name", group.name.clone(), results.name.clone()),
        ("systems", systems.join(", "), results.systems.join(", ")),
        ("null", null.clone(), results.systems[results.null].clone()),
        ("columns", listed(columns), listed(seen_columns)),
        ("comparisons", listed(comparisons), listed(findings)),
    ] {
        if wanted != seen {
            let name = &group.name;
            return Err(format!(
                "group {name:?}: expected the {what} of its plan, {wanted}, seen {seen}"
            ));
        }
    }
    Ok(())
}

fn listed(all: impl Iterator<Item = impl Into<String>>) -> String {
    all.map(Into::into).collect::<Vec<String>>().join("; ")
}

/// The cell of a system of a group, by its place.
pub(super) fn cell_of(experiment: &Experiment, group: usize, system: usize) -> Cell {
    experiment.groups[group].cells[system]
}

/// Whether a system is one that may be taken: the reference that does nothing is none.
pub(super) fn is_road(group: &GroupResults, system: usize) -> bool {
    system != group.null
}

/// Whether a cell has the path and the load of its group: one in which some of that is changed is no choice
/// for it.
pub(super) fn is_as_the_group(experiment: &Experiment, group: usize, system: usize) -> bool {
    let group = &experiment.groups[group];
    group.names[system] == experiment.systems[group.cells[system].system].name
}
