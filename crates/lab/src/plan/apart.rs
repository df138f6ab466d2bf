//! Two result files that were not taken together: what is in both is compared through `null`, which
//! every round of either holds.
//!
//! In: the JSON of result files (docs/plans.md). Out: for each measure of each system that both have
//! under the same path and load, what [`compare_apart`] says. Errors: a file of another kind or
//! version, or two that have nothing in common, with what each has.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::measure::Measure;
use crate::statistics::{Apart, Better, LogRatio, Referred, compare_apart};

/// The version of result files that is known.
pub const SCHEMA_VERSION: u64 = 1;

/// A measure of a system that both files have.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// As results say it: "IOPS of nvme over lan, 4KiB randread, depth 32".
    pub name: String,
    /// The first file's by the second's.
    #[serde(flatten)]
    pub apart: Apart,
}

#[derive(Deserialize)]
struct File {
    schema_version: u64,
    results: Results,
}

#[derive(Deserialize)]
struct Results {
    groups: Vec<Group>,
}

/// What is read of a group; see [`super::GroupResults`].
#[derive(Deserialize)]
struct Group {
    name: String,
    systems: Vec<String>,
    null: usize,
    columns: Vec<Column>,
    rounds: Vec<Vec<f64>>,
}

#[derive(Deserialize, PartialEq)]
struct Column {
    system: usize,
    measure: String,
}

/// A measure of a system in a file: its name, and its rounds.
struct Series {
    name: String,
    rounds: Vec<Referred>,
}

/// Compares what both files have.
pub fn compare_results(first: &Value, second: &Value) -> Result<Vec<Pair>, String> {
    let (first, second) = (series(first)?, series(second)?);
    let other = |name: &str| second.iter().find(|series| series.name == name);
    let pairs: Vec<Pair> = first
        .iter()
        .filter_map(|one| {
            let apart = compare_apart(&one.rounds, &other(&one.name)?.rounds)?;
            Some(Pair { name: one.name.clone(), apart })
        })
        .collect();
    if !pairs.is_empty() {
        return Ok(pairs);
    }
    let has = |series: &[Series]| match series {
        [] => "nothing that was compared".to_owned(),
        some => some.iter().map(|one| &*one.name).collect::<Vec<_>>().join("; "),
    };
    Err(format!(
        "expected a measure with two rounds or more in both files, seen in the first: {}; in the second: {}",
        has(&first),
        has(&second)
    ))
}

/// All of a file.
fn series(file: &Value) -> Result<Vec<Series>, String> {
    let File { schema_version, results } = File::deserialize(file)
        .map_err(|error| format!("expected a result file of the lab: {error}"))?;
    if schema_version != SCHEMA_VERSION {
        return Err(format!("schema_version: expected {SCHEMA_VERSION}, seen {schema_version}"));
    }
    Ok(results.groups.iter().flat_map(of_group).collect())
}

fn of_group(group: &Group) -> Vec<Series> {
    let mut all = Vec::new();
    for (at, column) in group.columns.iter().enumerate() {
        let null = Column { system: group.null, measure: column.measure.clone() };
        let known = Measure::ALL.into_iter().find(|measure| measure.word() == column.measure);
        let (Some(measure), Some(system)) = (known, group.systems.get(column.system)) else {
            continue;
        };
        let Some(null) = group.columns.iter().position(|other| *other == null) else { continue };
        if null == at {
            continue;
        }
        // How fast: of what is better the less of it there is, the other way round.
        let speed = |value: f64| match measure.better() {
            Better::Higher => LogRatio(value.ln()),
            Better::Lower => LogRatio(-value.ln()),
        };
        let referred = |values: &Vec<f64>| {
            let (system, reference) = (*values.get(at)?, *values.get(null)?);
            let is_one = |value: f64| value.is_finite() && value > 0.0;
            (is_one(system) && is_one(reference))
                .then(|| Referred { system: speed(system), reference: speed(reference) })
        };
        let rounds = group.rounds.iter().filter_map(referred).collect();
        all.push(Series { name: format!("{measure} of {system} {}", group.name), rounds });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A file of one group in which the system is so many times as fast as usual, and the machine.
    fn file(system: f64, machine: f64, latency: bool) -> Value {
        let rounds: Vec<Value> = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0]
            .into_iter()
            .map(|noise| {
                let values = [100.0 * system * machine * noise, 1000.0 * machine];
                json!(values.map(|value| if latency { 1e6 / value } else { value }))
            })
            .collect();
        let measure = if latency { "p99" } else { "iops" };
        json!({ "schema_version": 1, "results": { "groups": [{
            "name": "over lan, depth 1", "systems": ["nvme", "null"], "null": 1,
            "columns": [{"system": 0, "measure": measure}, {"system": 1, "measure": measure}],
            "rounds": rounds,
        }]}})
    }

    #[test]
    fn a_machine_that_moved_is_told_from_a_system_that_did() {
        for latency in [false, true] {
            let pairs =
                compare_results(&file(1.2, 1.5, latency), &file(1.0, 1.0, latency)).unwrap();
            let said = pairs[0].apart.to_string();
            assert!(said.starts_with("not interleaved: 20% above (18% to"), "{said}");
            assert!(said.ends_with("which moved by 50% itself"), "{said}");
            let same = compare_results(&file(1.0, 2.0, latency), &file(1.0, 1.0, latency)).unwrap();
            assert!(same[0].apart.to_string().contains("no difference shown"), "{:?}", same[0]);
        }
        let pairs = compare_results(&file(1.2, 1.0, true), &file(1.0, 1.0, true)).unwrap();
        assert_eq!(pairs[0].name, "p99 latency of nvme over lan, depth 1");
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let error = compare_results(&json!({}), &file(1.0, 1.0, false)).unwrap_err();
        assert!(error.contains("expected a result file of the lab"), "{error}");
        let mut newer = file(1.0, 1.0, false);
        newer["schema_version"] = json!(2);
        let error = compare_results(&newer, &file(1.0, 1.0, false)).unwrap_err();
        assert_eq!(error, "schema_version: expected 1, seen 2");
        let error = compare_results(&file(1.0, 1.0, true), &file(1.0, 1.0, false)).unwrap_err();
        assert!(error.contains("first: p99 latency of nvme") && error.contains("IOPS"), "{error}");
        let mut short = file(1.0, 1.0, false);
        short["results"]["groups"][0]["rounds"] = json!([[100.0, 1000.0], [0.0, 7.0], [1.0]]);
        assert!(compare_results(&short, &file(1.0, 1.0, false)).is_err(), "one round is none");
    }
}
