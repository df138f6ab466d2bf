//! What is measured: `cases.toml` holds every case with its sides and what is wanted of it.
//!
//! A [`Side`] is a server and a load on it. A [`Figure`] is a number in the JSON that the load
//! printed. Ratios are subject by reference, except for costs, where they are wanted small.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::process::Plan;

/// One line of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) figure: Figure,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// By whose figure that of `subject` is divided; without one it is taken itself.
    pub(super) reference: Option<Side>,
    pub(super) subject: Side,
    /// A third in the same rounds, against which both are shown.
    pub(super) beside: Option<Side>,
}

/// A server and a load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Side {
    pub(super) server: Option<Plan>,
    pub(super) load: Load,
}

/// What puts the load, with its arguments.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// The bare client.
    Client(String),
    /// `plateway bench`; in process without a server.
    Initiator(String),
    /// fio on the files of the stripe.
    Fio(String),
}

/// A number in what a load prints.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Operations per second of the target's CPU.
    OpsPerCpu,
    /// Operations per second.
    Iops,
    /// CPU of the load's process, microseconds an operation.
    LoadCpu,
    /// Share of one CPU that the target used, in per cent.
    TargetShare,
    /// Voluntary context switches of the target.
    Wakeups,
    /// Resident bytes that each idle connection added.
    BytesEach,
    /// Resident MiB of the target.
    Resident,
    /// Megabytes of data a second.
    Megabytes,
    /// From the start of the target to its first answer.
    StartSeconds,
    /// Share of its peak that a flooded target still does.
    OverloadShare,
    /// Share of its peak that it does a second after the flood.
    AfterShare,
}

impl Figure {
    /// The figure in a load's JSON.
    pub(super) fn of(self, raw: &Value) -> Option<f64> {
        let number = |path: &str| raw.pointer(path).and_then(Value::as_f64);
        match self {
            Self::OpsPerCpu => number("/target/ops_per_cpu_second"),
            Self::Iops => number("/iops"),
            Self::LoadCpu => number("/load_cpu_us_per_op"),
            Self::TargetShare => Some(number("/target/busy")? * 100.0),
            Self::Wakeups => number("/target/voluntary_switches"),
            Self::BytesEach => {
                let grown = number("/target/resident")? - number("/target/resident_before")?;
                Some(grown / number("/idle_connections")?)
            }
            Self::Resident => Some(number("/target/resident")? / f64::from(1 << 20)),
            Self::Megabytes => number("/mb_per_second"),
            Self::StartSeconds => number("/start_seconds"),
            Self::OverloadShare => number("/overload_share"),
            Self::AfterShare => number("/after_share"),
        }
    }

    /// How the figure is written.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::OpsPerCpu => format!("{:.1} k/cpu-s", value / 1e3),
            Self::Iops => format!("{:.1} k/s", value / 1e3),
            Self::LoadCpu => format!("{value:.2} us/op"),
            Self::TargetShare => format!("{value:.2} %"),
            Self::Wakeups => format!("{value:.0}"),
            Self::BytesEach => format!("{value:.0} B"),
            Self::Resident => format!("{value:.1} MiB"),
            Self::Megabytes => format!("{value:.0} MB/s"),
            Self::StartSeconds => format!("{value:.2} s"),
            Self::OverloadShare | Self::AfterShare => format!("{value:.2} of peak"),
        }
    }
}

/// Every case, in the order of the table.
pub(super) fn all() -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Cases {
        case: Vec<Case>,
    }
    let cases: Cases = toml::from_str(include_str!("cases.toml")).context("bench/cases.toml")?;
    Ok(cases.case)
}

impl Case {
    /// What is wanted, in words.
    pub(super) fn wanted(&self) -> String {
        let show = |value: f64| match self.reference {
            Some(_) => format!("{value:.2}"),
            None => self.figure.show(value),
        };
        match (self.at_least, self.at_most) {
            (Some(value), _) => format!(">= {}", show(value)),
            (None, Some(value)) => format!("<= {}", show(value)),
            (None, None) => "stated".to_owned(),
        }
    }

    /// Whether `value` is what is wanted, if anything is.
    pub(super) fn met(&self, value: f64) -> Option<bool> {
        let at_least = self.at_least.map(|bound| value >= bound);
        at_least.or(self.at_most.map(|bound| value <= bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique_and_every_figure_can_be_shown() {
        let cases = all().unwrap();
        for (at, case) in cases.iter().enumerate() {
            assert!(cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(!case.wanted().is_empty());
        }
    }

    #[test]
    fn figures_are_found_in_what_the_client_prints() {
        let raw = serde_json::json!({
            "iops": 5.0, "idle_connections": 10,
            "target": {"ops_per_cpu_second": 9.0, "busy": 0.5, "voluntary_switches": 3,
                       "resident": 2_097_152, "resident_before": 1_048_576},
        });
        assert_eq!(Figure::OpsPerCpu.of(&raw), Some(9.0));
        assert_eq!(Figure::TargetShare.of(&raw), Some(50.0));
        assert_eq!(Figure::Resident.of(&raw), Some(2.0));
        assert_eq!(Figure::BytesEach.of(&raw), Some(104_857.6));
        assert_eq!(Figure::LoadCpu.of(&raw), None);
    }
}
