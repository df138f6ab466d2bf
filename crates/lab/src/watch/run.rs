//! One run of a plan, as a watch reads its result file: of each series a point, and where it was
//! measured. Trials are passed over, so that a hundred files are read in a moment.
//!
//! Errors: what was expected and seen; of a series that has no point, why.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Bounded, Series};
use crate::plan::{Measure, Results, check_version};
use crate::report::Environment;
use crate::statistics::{Better, Finding, LogRatio, Referred, Verdict};

/// A run that was kept.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its place among the runs; a clock may go back, and this does not.
    pub number: u64,
    /// The plan's file, word for word.
    pub plan: String,
    pub(super) plan_name: String,
    pub environment: Environment,
    pub(super) failures: usize,
    results: Results,
}

/// What a run came to in one measure of a system.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Geometric means of its rounds, in the measure's unit: of the system, and of `null`.
    pub value: f64,
    pub null: f64,
    /// Whether more of it is slower.
    #[serde(skip)]
    is_cost: bool,
}

/// What is read of a file; the rest is passed over.
#[derive(Deserialize)]
struct File {
    environment: Environment,
    plan: String,
    results: Results,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    schema_version: Option<Value>,
}

impl Run {
    /// A result file's text.
    pub fn read(number: u64, text: &[u8]) -> Result<Run, String> {
        let Version { schema_version } = serde_json::from_slice(text)
            .map_err(|error| format!("expected a result file: {error}"))?;
        let version = schema_version.map(|seen| serde_json::json!({ "schema_version": seen }));
        check_version(&version.unwrap_or_default())?;
        let File { environment, plan, results } = serde_json::from_slice(text)
            .map_err(|error| format!("expected a result file: {error}"))?;
        results.check()?;
        let (plan_name, failures) = (results.plan.clone(), results.failures.len());
        Ok(Run { number, plan, plan_name, environment, failures, results })
    }

    /// What it says of each primary bound of its plan.
    pub(super) fn bounds(&self) -> Vec<Bounded> {
        let findings = self.results.groups.iter().flat_map(|group| &group.analysis.findings);
        let of = |finding: &Finding| {
            let is_held = match finding.verdict {
                Verdict::Held { .. } => Some(true),
                Verdict::NotHeld { .. } => Some(false),
                _ => None,
            };
            let (comparison, bound) = (finding.name.clone(), finding.bound?.to_string());
            Some(Bounded { comparison, bound, is_held, said: finding.said() })
        };
        findings.filter(|finding| finding.primary).filter_map(of).collect()
    }

    /// What it came to in a series of its plan; or why it does not count.
    pub fn point(&self, series: &Series) -> Result<Point, String> {
        let group = self.results.groups.get(series.group);
        let group = group.ok_or_else(|| "expected a group of its plan, seen none".to_owned())?;
        let columns = group.columns.len();
        if series.column.max(series.null) >= columns {
            return Err(format!("expected a column of its plan, seen {columns} of them"));
        }
        let of = group.columns[series.column];
        let (measure, system) = (of.measure, &group.systems[of.system]);
        if (measure, system) != (series.measure, &series.system) {
            return Err(format!(
                "expected {} of {} in column {}, seen {measure} of {system}",
                series.measure, series.system, series.column
            ));
        }
        let withheld = group.analysis.findings.iter().find_map(|finding| match finding.verdict {
            Verdict::Withheld { reason } if finding.primary => Some(reason.to_string()),
            _ => None,
        });
        if let Some(reason) = withheld {
            return Err(format!("no verdict: {reason}"));
        }
        let mean = |column: usize| {
            let values = group.rounds.iter().map(|round| round[column]);
            let logs: Vec<f64> = values.filter(|it| *it > 0.0).map(f64::ln).collect();
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            Some(mean).filter(|mean| mean.is_finite() && *mean > 0.0)
        };
        match (mean(series.column), mean(series.null)) {
            (Some(value), Some(null)) => {
                Ok(Point { value, null, is_cost: is_cost(series.measure) })
            }
            _ => Err("no round has a value".to_owned()),
        }
    }
}

fn is_cost(measure: Measure) -> bool {
    measure.better() != Better::Higher
}

impl Point {
    /// How fast system and reference were, as logarithms.
    pub(super) fn referred(&self) -> Referred {
        let speed = |value: f64| LogRatio(if self.is_cost { -value.ln() } else { value.ln() });
        Referred { system: speed(self.value), reference: speed(self.null) }
    }

    /// How many times as fast as the reference, as a logarithm.
    pub(super) fn lead(&self) -> f64 {
        let Referred { system, reference } = self.referred();
        system.0 - reference.0
    }

    /// As well, itself.
    pub fn ratio(&self) -> f64 {
        self.lead().exp()
    }
}
