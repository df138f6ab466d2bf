//! A result file as advice is read off it: what the lab writes, and of each trial the fields that
//! count here. What a file may leave out is optional. Errors: what was expected and seen.

use serde::Deserialize;
use serde_json::Value;

use crate::plan::{Cell, Experiment, GroupResults, Measures, Results, check_version};
use crate::report::Environment;
use crate::statistics::Round;

#[derive(Debug, Deserialize)]
pub(super) struct Kept {
    pub(super) environment: Option<Environment>,
    plan: String,
    pub(super) results: Results,
    #[serde(default)]
    pub(super) trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Trial {
    pub(super) cell: String,
    /// Of a picture's there is none.
    round: Option<Round>,
    #[serde(default)]
    pub(super) measures: Measures,
    failed: Option<String>,
    pub(super) near: Option<End>,
    pub(super) far: Option<End>,
    pub(super) wire_bytes_per_op: Option<f64>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

/// What an end's CPUs did.
#[derive(Debug, Deserialize)]
pub(super) struct End {
    pub(super) cpu_us_per_op: Option<f64>,
}

impl Kept {
    pub(super) fn read(file: &Value) -> Result<Kept, String> {
        check_version(file)?;
        let kept = Kept::deserialize(file)
            .map_err(|error| format!("expected a result file of the lab: {error}"))?;
        kept.results.check()?;
        Ok(kept)
    }

    /// The plan, with the groups that the results have; an error if they are not of each other.
    pub(super) fn experiment(&self) -> Result<Experiment, String> {
        let experiment = Experiment::parse("plan", &self.plan).map_err(|mistakes| {
            format!("the plan in it is none that this version reads:\n{mistakes}")
        })?;
        let (planned, seen) = (experiment.groups.len(), self.results.groups.len());
        if planned != seen {
            return Err(format!(
                "expected results of the {planned} groups of its plan, seen {seen}"
            ));
        }
        for (group, results) in experiment.groups.iter().zip(&self.results.groups) {
            let wanted: Vec<&str> = group.plan.comparisons.iter().map(|one| &*one.name).collect();
            let findings = &results.analysis.findings;
            let seen: Vec<&str> = findings.iter().map(|one| &*one.name).collect();
            if group.columns != results.columns || wanted != seen {
                return Err(format!(
                    "group {:?}: expected the comparisons of its plan, {}, seen {}",
                    results.name,
                    wanted.join("; "),
                    seen.join("; ")
                ));
            }
        }
        Ok(experiment)
    }

    /// The trials of a cell that count: no pilots, and none that failed.
    pub(super) fn trials_of(&self, cell: &str) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.cell == cell && trial.counts())
    }
}

impl Trial {
    fn counts(&self) -> bool {
        self.failed.is_none() && !self.round.as_ref().is_some_and(|round| round.is_pilot)
    }
}

/// The cell of a system of a group, by its place.
pub(super) fn cell_of(experiment: &Experiment, group: usize, system: usize) -> Cell {
    experiment.groups[group].cells[system]
}

/// Whether a system is one that may be taken: the reference that does nothing is none.
pub(super) fn is_road(group: &GroupResults, system: usize) -> bool {
    system != group.null
}
