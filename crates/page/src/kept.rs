//! What of a result file is drawn besides what [`lab::kept`] reads: which measures, and which values.

use lab::plan::{GroupResults, Measure};

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
