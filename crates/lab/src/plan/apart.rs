//! Two result files that were not taken together: what is in both is compared through `null`, which
//! every round of either holds.
//!
//! In: the JSON of result files (docs/plans.md). Out: for each measure of each system that both have
//! under the same path and load, what [`compare_apart`] says. Errors: a file of another kind or
//! version, one with a place that is not there, or two that have nothing in common, with what each
//! has.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results::{GroupResults, Results, column_of, series_name};
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

/// What is read of a file.
#[derive(Deserialize)]
struct File {
    results: Results,
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

/// An error unless it is a result file of the version that is known. First of all, since another
/// version may have anything.
pub fn check_version(file: &Value) -> Result<(), String> {
    match file.get("schema_version") {
        Some(seen) if *seen == SCHEMA_VERSION => Ok(()),
        Some(seen) => Err(format!("schema_version: expected {SCHEMA_VERSION}, seen {seen}")),
        None => Err("expected a result file of the lab, seen no schema_version".to_owned()),
    }
}

/// All of a file.
fn series(file: &Value) -> Result<Vec<Series>, String> {
    check_version(file)?;
    let File { results } = File::deserialize(file)
        .map_err(|error| format!("expected a result file of the lab: {error}"))?;
    results.check()?;
    Ok(results.groups.iter().flat_map(of_group).collect())
}

fn of_group(group: &GroupResults) -> Vec<Series> {
    let mut all = Vec::new();
    for (at, column) in group.columns.iter().enumerate() {
        let (measure, system) = (column.measure, &group.systems[column.system]);
        let Some(null) = column_of(&group.columns, group.null, measure) else { continue };
        if null == at {
            continue;
        }
        // How fast: of what is better the less of it there is, the other way round.
        let speed = |value: f64| match measure.better() {
            Better::Higher => LogRatio(value.ln()),
            Better::Lower | Better::Cheaper => LogRatio(-value.ln()),
        };
        let referred = |values: &Vec<f64>| {
            let (system, reference) = (values[at], values[null]);
            let is_one = |value: f64| value.is_finite() && value > 0.0;
            (is_one(system) && is_one(reference))
                .then(|| Referred { system: speed(system), reference: speed(reference) })
        };
        let rounds = group.rounds.iter().filter_map(referred).collect();
        all.push(Series { name: series_name(measure, system, &group.name), rounds });
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
        json!({ "schema_version": 1, "results": { "plan": "a", "seed": 1, "groups": [{
            "name": "over lan, depth 1", "systems": ["nvme", "null"], "null": 1,
            "columns": [{"system": 0, "measure": measure}, {"system": 1, "measure": measure}],
            "rounds": rounds, "analysis": { "findings": [] },
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
        short["results"]["groups"][0]["rounds"] = json!([[100.0, 1000.0], [0.0, 7.0]]);
        let error = compare_results(&short, &file(1.0, 1.0, false)).unwrap_err();
        assert!(error.contains("two rounds or more in both files"), "what is 0 is none: {error}");
    }

    #[test]
    fn a_place_that_is_not_there_is_refused() {
        let refused = |place: &str, value: Value| {
            let mut broken = file(1.0, 1.0, false);
            *broken.pointer_mut(&format!("/results/groups/0/{place}")).unwrap() = value;
            let whole = file(1.0, 1.0, false);
            let error = compare_results(&broken, &whole).unwrap_err();
            assert_eq!(compare_results(&whole, &broken).unwrap_err(), error);
            error
        };
        for place in ["null", "columns/0/system", "columns/1/system"] {
            let error = refused(place, json!(2));
            assert!(error.ends_with("expected the place of one of 2 systems, seen 2"), "{error}");
        }
        assert!(refused("systems", json!([])).ends_with("one of 0 systems, seen 0"));
        assert!(refused("rounds/3", json!([1.0])).ends_with("2 values of each round, seen 1"));
        let error = refused("columns/0/measure", json!("speed"));
        assert!(error.contains("expected a measure, one of iops, "), "{error}");
    }

    #[test]
    fn a_newer_file_is_told_from_one_of_another_kind_whatever_it_holds() {
        let newer = json!({ "schema_version": 2, "results": "elsewhere" });
        let error = compare_results(&newer, &newer).unwrap_err();
        assert_eq!(error, "schema_version: expected 1, seen 2");
    }
}
