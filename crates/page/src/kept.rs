//! A result file as it is read: the fields that are drawn, and nothing else.
//!
//! What a file may leave out is optional here. [`Kept::check`] refuses places that point nowhere, so
//! that whoever draws may follow them. Errors: a sentence with what was expected and seen.

use std::collections::BTreeMap;

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
pub(crate) struct Environment {
    pub(crate) version: String,
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    pub(crate) plan: String,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) groups: Vec<Group>,
    #[serde(default)]
    pub(crate) pictures: Vec<PictureCell>,
    #[serde(default)]
    pub(crate) failures: Vec<Failure>,
    #[serde(default)]
    pub(crate) spent_seconds: f64,
}

/// Comparisons that shared their rounds.
#[derive(Debug, Deserialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) systems: Vec<String>,
    /// Which of them does nothing, and is in every round.
    pub(crate) null: usize,
    pub(crate) columns: Vec<Column>,
    /// A value each column, of the rounds that count.
    pub(crate) rounds: Vec<Vec<f64>>,
    #[serde(default)]
    pub(crate) unsteady_rounds: Vec<Vec<f64>>,
    pub(crate) analysis: Analysis,
    #[serde(default)]
    pub(crate) moved: Vec<SystemMoved>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Column {
    pub(crate) system: usize,
    pub(crate) measure: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Analysis {
    pub(crate) findings: Vec<Finding>,
    pub(crate) rounds_planned: Option<usize>,
    #[serde(default)]
    pub(crate) rounds_run: usize,
    #[serde(default)]
    pub(crate) rounds_used: usize,
    #[serde(default)]
    pub(crate) rounds_unsteady: usize,
    #[serde(default)]
    pub(crate) unsteady_trials: Vec<usize>,
}

/// One comparison.
#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) primary: bool,
    pub(crate) estimate: Option<Estimate>,
    pub(crate) verdict: Verdict,
}

/// Ratios, not their logarithms.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Estimate {
    pub(crate) ratio: f64,
    pub(crate) interval: Interval,
    /// What is drawn, and what the verdict is read off.
    pub(crate) corrected: Interval,
    pub(crate) bootstrap: Interval,
    pub(crate) bootstrap_disagrees: bool,
    pub(crate) serial: Serial,
    pub(crate) rounds_effective: f64,
    pub(crate) detectable: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) level: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Serial {
    pub(crate) ratio: f64,
    pub(crate) correlation: f64,
    pub(crate) p_value: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Verdict {
    Faster { ratio: f64, interval: Interval },
    Slower { ratio: f64, interval: Interval },
    Equal { margin: f64 },
    NoDifferenceShown { detectable: f64 },
    Undecided { more_rounds: usize },
    Withheld { reason: Withheld },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Withheld {
    Interrupted,
    OutOfTime,
    Failed,
    Unsteady,
    FewRounds,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SystemMoved {
    pub(crate) column: Column,
    pub(crate) moved: Moved,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Moved {
    Neither,
    Machine,
    System,
    Both,
}

/// What one cell of a picture measured.
#[derive(Debug, Deserialize)]
pub(crate) struct PictureCell {
    pub(crate) picture: String,
    pub(crate) cell: String,
    pub(crate) measures: BTreeMap<String, f64>,
    pub(crate) is_steady: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    pub(crate) cell: String,
    pub(crate) why: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Trial {
    pub(crate) cell: String,
    /// Of a picture's there is none.
    pub(crate) round: Option<Round>,
    #[serde(default)]
    pub(crate) measures: BTreeMap<String, f64>,
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

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round {
    pub(crate) number: usize,
    pub(crate) is_repeat: bool,
    pub(crate) is_pilot: bool,
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
    /// Whether every place that the file names is there.
    pub(crate) fn check(&self) -> Result<(), String> {
        for group in &self.results.groups {
            let name = &group.name;
            let most = group.systems.len();
            let of_columns = group.columns.iter().map(|column| column.system);
            let of_moved = group.moved.iter().map(|moved| moved.column.system);
            for system in of_columns.chain(of_moved).chain([group.null]) {
                if system >= most {
                    return Err(format!(
                        "group {name:?}: expected the place of one of {most} systems, seen {system}"
                    ));
                }
            }
            let columns = group.columns.len();
            let rounds = group.rounds.iter().chain(&group.unsteady_rounds);
            if let Some(round) = rounds.into_iter().find(|round| round.len() != columns) {
                let seen = round.len();
                return Err(format!(
                    "group {name:?}: expected {columns} values of each round, seen {seen}"
                ));
            }
        }
        Ok(())
    }

    /// The plan as the lab reads it, if this version still does.
    pub(crate) fn experiment(&self) -> Option<lab::plan::Experiment> {
        lab::plan::Experiment::parse("plan", &self.plan).ok()
    }
}

impl Group {
    /// The measures that are compared, each once, in the order of the plan.
    pub(crate) fn measures(&self) -> Vec<&str> {
        let mut measures: Vec<&str> = Vec::new();
        for column in &self.columns {
            if !measures.contains(&column.measure.as_str()) {
                measures.push(&column.measure);
            }
        }
        measures
    }

    /// What the rounds that the intervals are of say of a column: those that count, and where there
    /// is no verdict for it, those that never became steady as well.
    pub(crate) fn values(&self, column: usize) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().map(|round| round[column]).collect();
        if self.analysis.rounds_used > self.rounds.len() {
            values.extend(self.unsteady_rounds.iter().map(|round| round[column]));
        }
        values
    }
}
