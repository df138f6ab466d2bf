//! What a plan came to: for each group what the rounds say, for each picture what its cells
//! measured, and what failed.
//!
//! Displays as docs/statistics.md says it, a line for each comparison; serializes whole, with the
//! values of every round, so that verdicts can be drawn again and held against other runs.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::measure::Measures;
use super::model::{Column, Experiment, Group};
use crate::statistics::{Analysis, Moved, Sizing, Taken, moved};

/// All of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub plan: String,
    pub seed: u64,
    pub groups: Vec<GroupResults>,
    pub pictures: Vec<PictureResult>,
    pub failures: Vec<Failure>,
    /// What trials took together, with all that is around them.
    #[serde(rename = "spent_seconds", serialize_with = "seconds")]
    pub spent: Duration,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_secs_f64().serialize(serializer)
}

/// Comparisons that shared their rounds.
#[derive(Clone, Debug, Serialize)]
pub struct GroupResults {
    pub name: String,
    /// In the order of the columns' systems.
    pub systems: Vec<String>,
    /// Which of them was the reference of every round.
    pub null: usize,
    pub columns: Vec<Column>,
    /// A value each column, of the rounds that count, in the order in which they were run.
    pub rounds: Vec<Vec<f64>>,
    /// Of those that never became steady.
    pub unsteady_rounds: Vec<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizing: Option<Sizing>,
    pub analysis: Analysis,
    /// Who moved while it ran, by `null`.
    pub moved: Vec<SystemMoved>,
}

/// Whether machine or system moved, in one measure of a system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SystemMoved {
    pub column: Column,
    pub moved: Moved,
}

/// One cell of a picture.
#[derive(Clone, Debug, Serialize)]
pub struct PictureResult {
    pub picture: String,
    pub cell: String,
    pub measures: Measures,
    /// Whether its trial became steady.
    pub is_steady: bool,
}

/// A trial that measured nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub cell: String,
    pub why: String,
}

impl GroupResults {
    pub(super) fn of(
        experiment: &Experiment,
        group: &Group,
        taken: Taken,
        analysis: Analysis,
    ) -> GroupResults {
        let name = |cell: &super::Cell| experiment.systems[cell.system].name.clone();
        GroupResults {
            name: group.name.clone(),
            systems: group.cells.iter().map(name).collect(),
            null: group.null,
            columns: group.columns.clone(),
            moved: who_moved(group, &taken.rounds),
            rounds: taken.rounds,
            unsteady_rounds: taken.unsteady_rounds,
            sizing: taken.sizing,
            analysis,
        }
    }
}

/// Of each column but the reference's own.
fn who_moved(group: &Group, rounds: &[Vec<f64>]) -> Vec<SystemMoved> {
    let series = |column: usize| rounds.iter().map(|values| values[column]).collect::<Vec<f64>>();
    let of_null = |column: &Column| {
        let wanted = Column { system: group.null, ..*column };
        group.columns.iter().position(|other| *other == wanted)
    };
    let columns = group.columns.iter().enumerate();
    let others = columns.filter(|(_, column)| column.system != group.null);
    others
        .filter_map(|(at, column)| {
            let reference = series(of_null(column)?);
            Some(SystemMoved { column: *column, moved: moved(&series(at), &reference) })
        })
        .collect()
}

/// A line for each comparison, for its rounds, and for who moved.
impl fmt::Display for GroupResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.analysis)?;
        for SystemMoved { column, moved } in &self.moved {
            if *moved != Moved::Neither {
                let system = &self.systems[column.system];
                write!(f, "\n{} of {system}: {moved}", column.measure)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.iter().map(ToString::to_string);
        let failures = self.failures.iter().map(ToString::to_string);
        f.write_str(&groups.chain(failures).collect::<Vec<String>>().join("\n"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed: {}: {}", self.cell, self.why)
    }
}
