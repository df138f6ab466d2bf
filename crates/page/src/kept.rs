//! A result file as it is read: the lab's own types, and of the trials, which whoever runs them
//! writes, the fields that are drawn.
//!
//! What a file may leave out is optional here. Errors: what was expected and seen.

use lab::plan::{GroupResults, Measure, Measures, Results};
use lab::report::Environment;
use lab::statistics::Round;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(crate) struct Kept {
    pub(crate) environment: Environment,
    #[serde(default)]
    pub(crate) near_cpus: Vec<usize>,
    #[serde(default)]
    pub(crate) far_cpus: Vec<usize>,
    /// The plan's file, word for word.
    pub(crate) plan: String,
    pub(crate) results: Results,
    #[serde(default)]
    pub(crate) trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Trial {
    pub(crate) cell: String,
    /// Of a picture's there is none.
    pub(crate) round: Option<Round>,
    #[serde(default)]
    pub(crate) measures: Measures,
    #[serde(default)]
    pub(crate) is_steady: bool,
    pub(crate) failed: Option<String>,
    pub(crate) near: Option<End>,
    pub(crate) far: Option<End>,
    pub(crate) frames_per_op: Option<f64>,
    pub(crate) wire_bytes_per_op: Option<f64>,
    #[serde(default)]
    pub(crate) windows: Vec<f64>,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// What `bench` printed, of which the load is read, where it is there.
    #[serde(default)]
    pub(crate) bench: Value,
}

/// What an end's CPUs did.
#[derive(Debug, Deserialize)]
pub(crate) struct End {
    /// Not where others used these CPUs.
    #[serde(default)]
    pub(crate) cpu_us_per_op: Option<f64>,
    /// Names of tasks with their shares of a CPU, most first.
    #[serde(default)]
    pub(crate) by_task: Vec<(String, f64)>,
}

impl Kept {
    /// The plan as the lab reads it, if this version still does.
    pub(crate) fn experiment(&self) -> Option<lab::plan::Experiment> {
        lab::plan::Experiment::parse("plan", &self.plan).ok()
    }
}

/// The measures that a group compares, each once, in the order of the plan.
pub(crate) fn measures(group: &GroupResults) -> Vec<Measure> {
    let mut measures = Vec::new();
    for column in &group.columns {
        if !measures.contains(&column.measure) {
            measures.push(column.measure);
        }
    }
    measures
}

/// What the rounds that a group's intervals are of say of a column: those that count, and where
/// there is no verdict for it, those that never became steady as well.
pub(crate) fn values(group: &GroupResults, column: usize) -> Vec<f64> {
    let mut values: Vec<f64> = group.rounds.iter().map(|round| round[column]).collect();
    if group.analysis.rounds_used > group.rounds.len() {
        values.extend(group.unsteady_rounds.iter().map(|round| round[column]));
    }
    values
}
