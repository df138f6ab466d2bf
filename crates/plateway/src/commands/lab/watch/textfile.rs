//! What a watch tells monitoring: a file for the textfile collector of Prometheus' node exporter.
//!
//! In: what is said after a run. Out: gauges in the text format (0.0.4), which is OpenMetrics but for
//! lines that it takes for comments; `prometheus-client` writes them and escapes labels. Units are
//! in the names: seconds, bytes. Every name stands in docs/watch.md. The file is replaced as a whole,
//! so that nobody reads half of it. Errors: a file that cannot be written, or that the collector
//! would not read.

use std::path::Path;

use lab::plan::Measure;
use lab::watch::{Report, Told};

use crate::metrics::{Families, Labels};
use crate::run::{replace_file, try_file};

/// An error if the file may not be made, or would not be read: found before the first run.
pub(super) fn may_be_made(file: &Path) -> miette::Result<()> {
    let shown = file.display();
    if file.extension().is_none_or(|ending| ending != "prom") {
        return Err(miette::miette!(
            "--textfile {shown}: expected the ending .prom, without which the collector does not read it"
        ));
    }
    if file.symlink_metadata().is_ok_and(|seen| !seen.is_file()) {
        return Err(miette::miette!(
            "--textfile {shown}: expected a file or none, and it is a device, a folder or a link"
        ));
    }
    try_file(file).map_err(|error| miette::miette!("cannot write the metrics to {shown}: {error}"))
}

pub(super) fn write(file: &Path, report: &Report) -> miette::Result<()> {
    replace_file(file, &text(report))
        .map_err(|error| miette::miette!("cannot write the metrics to {}: {error}", file.display()))
}

fn text(report: &Report) -> String {
    let mut families = Families::default();
    let plan = vec![("plan", report.plan.clone())];
    let last = "When the last run began";
    let last = families.gauge("lab_last_run_timestamp_seconds", None, last);
    seconds(&report.date).into_iter().for_each(|at| last.number(plan.clone(), at));
    let number = families.gauge("lab_last_run", None, "The number of the last run");
    number.count(plan.clone(), report.run);
    let failures = families.gauge("lab_failures", None, "Trials of the last run that failed");
    failures.count(plan, report.failures as u64);
    report.series.iter().for_each(|told| one(&mut families, &report.plan, told));
    let held = "Whether the last run held a bound of the plan (1) or did not (0)";
    let family = families.gauge("lab_bound_held", None, held);
    for one in &report.bounds {
        let Some(is_held) = one.is_held else { continue };
        let (comparison, bound) = (one.comparison.clone(), one.bound.clone());
        let labels =
            vec![("plan", report.plan.clone()), ("comparison", comparison), ("bound", bound)];
        family.count(labels, u64::from(is_held));
    }
    families.text()
}

fn one(families: &mut Families, plan: &str, told: &Told) {
    let series = &told.series;
    let (system, path, load) = (series.system.clone(), series.path.clone(), series.load.clone());
    let labels: Labels =
        vec![("plan", plan.to_owned()), ("system", system), ("path", path), ("load", load)];
    let measured = [&labels[..], &[("measure", series.measure.word().to_owned())]].concat();
    if let Some(point) = told.last {
        value(families, series.measure, &labels, &measured, point.value);
        let ratio = "How many times as fast as null in the same run, a disk that does nothing";
        families.gauge("lab_ratio", None, ratio).number(measured.clone(), point.ratio());
    }
    let runs = "Runs since it last changed that count, a hundred at most";
    families.gauge("lab_runs", None, runs).count(measured.clone(), told.runs as u64);
    let changed = "Whether the last run showed a change (1)";
    families
        .gauge("lab_changed", None, changed)
        .count(measured.clone(), u64::from(told.is_changed));
    let at = "When the first run after the last change began";
    let family = families.gauge("lab_change_timestamp_seconds", None, at);
    if let Some(at) = told.change.as_ref().and_then(|change| seconds(&change.date)) {
        family.number(measured, at);
    }
}

/// What the last run measured, in the units of monitoring.
fn value(
    families: &mut Families,
    measure: Measure,
    labels: &Labels,
    measured: &Labels,
    value: f64,
) {
    match measure {
        Measure::Iops => {
            families.gauge("lab_iops", None, "Operations a second").number(labels.clone(), value);
        }
        Measure::ReadIops => {
            let family = families.gauge("lab_read_iops", None, "Reads a second");
            family.number(labels.clone(), value);
        }
        Measure::WriteIops => {
            let family = families.gauge("lab_write_iops", None, "Writes a second");
            family.number(labels.clone(), value);
        }
        Measure::Throughput => {
            let help = "Bytes of payload a second";
            families
                .gauge("lab_throughput_bytes_per_second", None, help)
                .number(labels.clone(), value);
        }
        Measure::CpuPerOp => {
            let help = "Processor time of both ends for each operation";
            let family = families.gauge("lab_cpu_seconds_per_operation", None, help);
            family.number(labels.clone(), value / 1e6);
        }
        Measure::CpuNearPerOp => {
            let help = "Processor time of the near end for each operation";
            let family = families.gauge("lab_near_cpu_seconds_per_operation", None, help);
            family.number(labels.clone(), value / 1e6);
        }
        // Null has no far end, so that no series is of these.
        Measure::CpuFarPerOp
        | Measure::WireBytesPerOp
        | Measure::CoreBurstiness
        | Measure::CoreQueue => {}
        _ => {
            let family = families.gauge("lab_latency_seconds", None, "Latency, by its measure");
            family.number(measured.clone(), value / 1e9);
        }
    }
}

/// Seconds since 1970 of a date that a run has.
fn seconds(date: &str) -> Option<f64> {
    date.parse::<jiff::Timestamp>().ok().map(|at| at.as_second() as f64)
}
