//! What a system did in a group: medians of the trials that count, as `lab run` prints them.
//!
//! Units are in the names; a figure that was not measured is absent.

use serde::Serialize;

use crate::kept::{CLIENT_LIMIT, End, Trial};
use crate::plan::{Measure, Measures};
use crate::statistics::median;

/// Of one cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    pub trials: usize,
    /// By measure, in its unit: operations and bytes a second, nanoseconds, microseconds.
    pub measures: Measures,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_cpu_us_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_cpu_us_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire_bytes_per_op: Option<f64>,
    /// In how many trials the client was the limit.
    pub client_was_the_limit: usize,
}

impl Figures {
    pub(super) fn of(trials: &[&Trial]) -> Figures {
        let middle = |value: &dyn Fn(&Trial) -> Option<f64>| {
            median(&trials.iter().filter_map(|trial| value(trial)).collect::<Vec<f64>>())
        };
        let measure = |measure: Measure| {
            Some((measure, middle(&|trial| trial.measures.get(&measure).copied())?))
        };
        let cpu = |end: &Option<End>| end.as_ref()?.cpu_us_per_op;
        let is_limit = |trial: &&&Trial| trial.notes.iter().any(|note| note == CLIENT_LIMIT);
        Figures {
            trials: trials.len(),
            measures: Measure::ALL.into_iter().filter_map(measure).collect(),
            near_cpu_us_per_op: middle(&|trial| cpu(&trial.near)),
            far_cpu_us_per_op: middle(&|trial| cpu(&trial.far)),
            wire_bytes_per_op: middle(&|trial| trial.wire_bytes_per_op),
            client_was_the_limit: trials.iter().filter(is_limit).count(),
        }
    }

    pub fn of_measure(&self, measure: Measure) -> Option<f64> {
        self.measures.get(&measure).copied().filter(|value| value.is_finite() && *value > 0.0)
    }

    pub(super) fn wire(&self) -> Option<f64> {
        self.wire_bytes_per_op.filter(|value| value.is_finite() && *value > 0.0)
    }
}
