//! The figures: numbers in the JSON that a load printed, and how they are written.
//!
//! In: that JSON, as `yardstick` prints it or [`super::load`] puts it together. Units: as each
//! figure's comment says; fields are microseconds, seconds and bytes as their names say.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A number in what a load prints.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Operations per second of the target's CPU.
    OpsPerCpu,
    /// CPU of the target, microseconds an operation.
    CpuPerOp,
    /// Operations per second.
    Iops,
    /// Mean latency, microseconds.
    Latency,
    /// CPU of the load's process, microseconds an operation.
    LoadCpu,
    /// Share of one CPU that the target used, in per cent.
    TargetShare,
    /// Voluntary context switches of the target.
    Wakeups,
    /// The same for each Keep Alive that it answered.
    WakeupsEach,
    /// Loops of the hog on the target's CPU for each operation that was served.
    HogPerOp,
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
    /// Share of a flood's frames that come out.
    ForwardedShare,
    /// Frames of a flood by those of the peak.
    FloodByPeak,
    /// From a cut to the first frame on the backup path, milliseconds: the median of all cuts.
    ToBackup,
    /// The same, of the slowest one.
    ToBackupMax,
    /// By how much the initiator's longest silence around a cut was longer than that, milliseconds:
    /// the most of all cuts.
    StallMore,
    /// Requests that failed, and blocks that were wrong.
    Errors,
    /// How often frames moved from a path to another.
    Moves,
    /// Moves before a cut.
    Early,
    /// CPU of the target for each frame that it sent or received, microseconds.
    CpuPerFrame,
}

impl Figure {
    /// The figure in a load's JSON.
    pub(super) fn of(self, raw: &Value) -> Option<f64> {
        let number = |path: &str| raw.pointer(path).and_then(Value::as_f64);
        match self {
            Self::OpsPerCpu => number("/target/ops_per_cpu_second"),
            Self::CpuPerOp => {
                let (spent, ops) = (number("/target/cpu_seconds")?, number("/ops")?);
                (ops > 0.0).then(|| spent * 1e6 / ops)
            }
            Self::Iops => number("/iops"),
            Self::Latency => number("/latency_us/mean"),
            Self::LoadCpu => number("/load_cpu_us_per_op"),
            Self::TargetShare => Some(number("/target/busy")? * 100.0),
            Self::Wakeups => number("/target/voluntary_switches"),
            Self::WakeupsEach => {
                let (wakeups, answered) = (Self::Wakeups.of(raw)?, number("/keep_alives")?);
                (answered > 0.0).then(|| wakeups / answered)
            }
            Self::HogPerOp => Some(number("/hog_loops")? / number("/ops")?),
            Self::BytesEach => {
                let grown = number("/target/resident")? - number("/target/resident_before")?;
                Some(grown / number("/idle_connections")?)
            }
            Self::Resident => Some(number("/target/resident")? / f64::from(1 << 20)),
            Self::Megabytes => number("/mb_per_second"),
            Self::StartSeconds => number("/start_seconds"),
            Self::OverloadShare => number("/overload_share"),
            Self::AfterShare => number("/after_share"),
            Self::ForwardedShare => number("/forwarded_share"),
            Self::FloodByPeak => number("/flood_by_peak"),
            Self::ToBackup => number("/to_backup_ms/median"),
            Self::ToBackupMax => number("/to_backup_ms/max"),
            Self::StallMore => number("/stall_more_ms/max"),
            Self::Errors => number("/errors"),
            Self::Moves => number("/moves"),
            Self::Early => number("/early"),
            Self::CpuPerFrame => number("/cpu_us_per_frame"),
        }
    }

    /// The same; an error if it was not measured.
    pub(super) fn measured(self, raw: &Value) -> Result<f64> {
        let value = self.of(raw);
        let value = value.with_context(|| format!("{self:?} is not in what was printed: {raw}"))?;
        ensure!(value.is_finite(), "{self:?} came out as {value}");
        Ok(value)
    }

    /// How the figure is written.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::OpsPerCpu => format!("{:.1} k/cpu-s", value / 1e3),
            Self::Iops => format!("{:.1} k/s", value / 1e3),
            Self::CpuPerOp | Self::Latency | Self::LoadCpu | Self::CpuPerFrame => {
                format!("{value:.2}us")
            }
            Self::TargetShare => format!("{value:.2} %"),
            Self::Wakeups | Self::Errors | Self::Moves | Self::Early => format!("{value:.0}"),
            Self::ToBackup | Self::ToBackupMax | Self::StallMore => format!("{value:.0} ms"),
            Self::WakeupsEach => format!("{value:.2}"),
            Self::HogPerOp if value < 0.9995 => format!("{value:.3}"),
            Self::HogPerOp if value < 9.995 => format!("{value:.2}"),
            Self::HogPerOp => format!("{value:.1}"),
            Self::BytesEach => format!("{value:.0} B"),
            Self::Resident => format!("{value:.1} MiB"),
            Self::Megabytes => format!("{value:.0}MB"),
            Self::StartSeconds => format!("{value:.2} s"),
            Self::OverloadShare | Self::AfterShare | Self::ForwardedShare | Self::FloodByPeak => {
                format!("{value:.2}")
            }
        }
    }

    /// Its name, before a bound.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpsPerCpu => "ops/cpu",
            Self::CpuPerOp => "cpu/op",
            Self::Iops => "iops",
            Self::Latency => "latency",
            Self::LoadCpu => "load cpu",
            Self::TargetShare => "cpu",
            Self::Wakeups => "wakes",
            Self::WakeupsEach => "wakes/ka",
            Self::HogPerOp => "hog/op",
            Self::BytesEach => "each",
            Self::Resident => "RSS",
            Self::Megabytes => "MB/s",
            Self::StartSeconds => "start",
            Self::OverloadShare => "flooded",
            Self::AfterShare => "after",
            Self::ForwardedShare => "forwarded",
            Self::FloodByPeak => "offered",
            Self::ToBackup => "move",
            Self::ToBackupMax => "slowest",
            Self::StallMore => "beyond",
            Self::Errors => "errors",
            Self::Moves => "moves",
            Self::Early => "early",
            Self::CpuPerFrame => "cpu/frame",
        }
    }

    /// Whether less of it is better, so that a bound on it is one from above.
    #[cfg(test)]
    pub(super) fn is_cost(self) -> bool {
        match self {
            Self::CpuPerOp
            | Self::Latency
            | Self::LoadCpu
            | Self::TargetShare
            | Self::Wakeups
            | Self::WakeupsEach
            | Self::BytesEach
            | Self::Resident
            | Self::StartSeconds
            | Self::ToBackup
            | Self::ToBackupMax
            | Self::StallMore
            | Self::Errors
            | Self::Moves
            | Self::Early
            | Self::CpuPerFrame => true,
            Self::OpsPerCpu
            | Self::Iops
            | Self::HogPerOp
            | Self::Megabytes
            | Self::OverloadShare
            | Self::AfterShare
            | Self::ForwardedShare
            | Self::FloodByPeak => false,
        }
    }

    /// Whether it is told by operations a second, latency and CPU an operation, which stand in each
    /// line anyway.
    pub(super) fn is_in_every_line(self) -> bool {
        matches!(self, Self::OpsPerCpu | Self::CpuPerOp | Self::Iops | Self::Latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_client_prints() {
        let raw = serde_json::json!({
            "ops": 4, "iops": 5.0, "idle_connections": 10, "keep_alives": 2, "hog_loops": 6.0,
            "latency_us": {"mean": 7.5},
            "target": {"ops_per_cpu_second": 9.0, "busy": 0.5, "voluntary_switches": 3,
                       "cpu_seconds": 0.002, "resident": 2_097_152, "resident_before": 1_048_576},
        });
        assert_eq!(Figure::OpsPerCpu.of(&raw), Some(9.0));
        assert_eq!(Figure::CpuPerOp.of(&raw), Some(500.0));
        assert_eq!(Figure::Latency.of(&raw), Some(7.5));
        assert_eq!(Figure::TargetShare.of(&raw), Some(50.0));
        assert_eq!(Figure::WakeupsEach.of(&raw), Some(1.5));
        assert_eq!(Figure::HogPerOp.of(&raw), Some(1.5));
        assert_eq!(Figure::Resident.of(&raw), Some(2.0));
        assert_eq!(Figure::BytesEach.of(&raw), Some(104_857.6));
        assert_eq!(Figure::LoadCpu.of(&raw), None);
    }

    #[test]
    fn nothing_is_divided_by_operations_that_did_not_happen() {
        let raw = serde_json::json!({"ops": 0, "keep_alives": 0,
            "target": {"cpu_seconds": 1.0, "voluntary_switches": 3}});
        assert_eq!(Figure::CpuPerOp.of(&raw), None);
        assert_eq!(Figure::WakeupsEach.of(&raw), None);
        let none = serde_json::json!({"ops": 0, "hog_loops": 6.0});
        let said = |figure: Figure| figure.measured(&none).unwrap_err().to_string();
        assert_eq!(said(Figure::HogPerOp), "HogPerOp came out as inf");
        assert!(said(Figure::Iops).starts_with("Iops is not in what was printed: {"));
    }
}
