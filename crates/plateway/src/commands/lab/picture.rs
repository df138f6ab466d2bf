//! What people see of a plan, and what is kept of it: a line while it runs, a table of what its
//! systems did, the verdicts, and the result file.
//!
//! The result file is JSON with `schema_version`; its fields are described in docs/plans.md. Units
//! are in the names. Errors: a file that cannot be written, or is there already.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::CellAlignment;
use indicatif::ProgressBar;
use lab::kept::{Ran, counted};
use lab::plan::{Cell, Experiment, Measure, Measures, Progress, Results, Trial, TrialOutcome};
use lab::report::{Environment, Grouped, Nanoseconds};
use lab::statistics::{Round, median};
use serde::Serialize;

use super::Ends;
use super::agent::FarMachine;
use super::seen::Seen;
use super::trial::Lab;
use crate::run::{replace_file, try_file};

/// All that is kept of a plan that ran.
#[derive(Debug, Serialize)]
pub(super) struct Kept<'a> {
    schema_version: u64,
    environment: Environment,
    /// Of paths between two machines, who looked after the far one.
    #[serde(skip_serializing_if = "Option::is_none")]
    far_machine: Option<FarMachine>,
    /// CPUs of each end.
    near_cpus: Vec<usize>,
    far_cpus: Vec<usize>,
    /// The plan's file, word for word.
    plan: &'a str,
    results: &'a Results,
    trials: &'a [Told],
}

impl<'a> Kept<'a> {
    pub(super) fn new(
        plan: &'a str,
        environment: Environment,
        lab: &Lab<'_>,
        results: &'a Results,
        trials: &'a [Told],
    ) -> Kept<'a> {
        Kept {
            schema_version: lab::plan::SCHEMA_VERSION,
            environment,
            far_machine: lab.agent.map(|agent| agent.borrow().machine()),
            near_cpus: lab.ends.near.clone(),
            far_cpus: lab.ends.far.clone(),
            plan,
            results,
            trials,
        }
    }
}

/// One trial.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    cell: String,
    /// Of a picture's there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<Round>,
    measures: Measures,
    is_steady: bool,
    /// Why it measured nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    #[serde(flatten)]
    seen: Seen,
}

impl Told {
    pub(super) fn new(
        experiment: &Experiment,
        cell: &Cell,
        round: Option<&Round>,
        outcome: &TrialOutcome,
        seen: Seen,
    ) -> Told {
        let (measures, is_steady, failed) = match outcome {
            TrialOutcome::Measured { measures, is_steady } => (measures.clone(), *is_steady, None),
            TrialOutcome::Failed { why } => (Measures::new(), false, Some(why.clone())),
        };
        let round = round.cloned();
        let name = experiment.cell_name(cell);
        Told { cell: name, round, measures, is_steady, failed, seen }
    }
}

/// An error if the result file of a plan, and the page beside it, may not be made: found before an
/// hour was measured.
pub(super) fn may_be_made(file: &Path, plan: &Path, overwrites: bool) -> miette::Result<()> {
    let page = page_of(file);
    if *file == page {
        return Err(miette::miette!(
            "--result {}: expected another ending than .html, which the page has",
            file.display()
        ));
    }
    for one in [file, &page] {
        may_be_replaced(one, plan, "the plan", "--result", overwrites)?;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(miette::miette!("{}: there is no such folder", folder.display()));
    }
    try_file(file).map_err(|error| {
        miette::miette!("cannot write what comes of it to {}: {error}", file.display())
    })
}

/// An error unless a file may be made of another one, `from`, which is called `what`; `option` names it.
pub(super) fn may_be_replaced(
    file: &Path,
    from: &Path,
    what: &str,
    option: &str,
    overwrites: bool,
) -> miette::Result<()> {
    let name = file.display();
    let known = |path: &Path| path.canonicalize().ok();
    if known(file).is_some_and(|file| known(from) == Some(file)) {
        return Err(miette::miette!(
            "{name}: expected a file for what comes of {what}, and it is {what}"
        ));
    }
    match file.symlink_metadata() {
        Ok(seen) if !seen.is_file() => Err(miette::miette!(
            "{name}: expected a file or none, and it is a device, a folder or a link"
        )),
        Ok(_) if !overwrites => Err(miette::miette!(
            help = format!("name another with {option}, or say --overwrite if it may be lost"),
            "{name}: expected no such file, for what comes of {what}, and it is there"
        )),
        _ => Ok(()),
    }
}

/// Writes the result file, and the page beside it, each whole or not at all.
pub(super) fn keep(file: &Path, kept: &impl Serialize) -> miette::Result<()> {
    let tell = |what: &str, to: &Path, error: &dyn std::fmt::Display| {
        miette::miette!("cannot write {what} to {}: {error}", to.display())
    };
    let of_result = |error: &dyn std::fmt::Display| tell("what came of it", file, error);
    let value = serde_json::to_value(kept).map_err(|error| of_result(&error))?;
    let text = serde_json::to_string_pretty(&value).map_err(|error| of_result(&error))?;
    replace_file(file, &(text + "\n")).map_err(|error| of_result(&error))?;
    let to = page_of(file);
    let of_page = |error: &dyn std::fmt::Display| tell("the page of what came of it", &to, error);
    let page = page::page(&value).map_err(|error| of_page(&error))?;
    replace_file(&to, &page.html).map_err(|error| of_page(&error))
}

/// The page of a result file.
pub(super) fn page_of(file: &Path) -> PathBuf {
    file.with_extension("html")
}

/// What a plan would do.
pub(super) fn outline(experiment: &Experiment, ends: &Ends) -> String {
    let mut text = format!("{}\n", experiment.name);
    for cell in experiment.cells() {
        let _ = writeln!(text, "  {}", experiment.cell_name(&cell));
    }
    let [near, far] = [&ends.near, &ends.far].map(|cpus| super::list(cpus));
    let _ = writeln!(text, "the near end has CPU {near}, the far end CPU {far}");
    let _ = writeln!(text, "{}", experiment.estimate());
    text
}

/// How far a plan is, on a terminal; elsewhere the lines alone.
pub(super) struct Line {
    bar: ProgressBar,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { bar: crate::commands::progress_bar(1, "{bar:24} {msg}") }
    }

    pub(super) fn show(&self, experiment: &Experiment, trial: &Trial, progress: &Progress) {
        let Progress { trials_done, trials_left, left, is_sized, .. } = progress;
        self.bar.set_length((trials_done + trials_left) as u64);
        self.bar.set_position(*trials_done as u64);
        let (cell, seconds) = (experiment.cell_name(&trial.cell), left.as_secs());
        let about = if *is_sized { "" } else { "at least " };
        let left = format!("{about}{}:{:02} left", seconds / 60, seconds % 60);
        self.bar.set_message(format!("{left}  {cell}"));
    }

    /// Lines that stay.
    pub(super) fn say(&self, text: &str) {
        for line in text.lines() {
            self.bar.suspend(|| crate::log::Event::info(line).tell());
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What each cell did, and what is said of it.
pub(super) fn table(experiment: &Experiment, results: &Results, trials: &[Told]) -> String {
    let heads = [
        "",
        "IOPS",
        "MB/s",
        "p50",
        "p99",
        "CPU near",
        "CPU far",
        "B/op on the wire",
        "B/op of storage",
        "cache hits",
    ];
    let mut table = crate::control::table(&heads);
    let counted = counted(trials, |told| Ran {
        cell: &told.cell,
        round: told.round.as_ref(),
        is_steady: told.is_steady,
        has_failed: told.failed.is_some(),
    });
    for cell in experiment.cells() {
        let name = experiment.cell_name(&cell);
        let is_picture =
            |told: &&Told| told.cell == name && told.round.is_none() && told.failed.is_none();
        let its = counted.get(&*name).cloned();
        let its = its.unwrap_or_else(|| trials.iter().filter(is_picture).collect());
        let of = |measure: Measure| {
            let values = its.iter().filter_map(|told| told.measures.get(&measure).copied());
            median(&values.collect::<Vec<_>>())
        };
        let seen = |value: fn(&Seen) -> Option<f64>| {
            median(&its.iter().filter_map(|told| value(&told.seen)).collect::<Vec<_>>())
        };
        let time = |ns: Option<f64>| ns.map(|ns| Nanoseconds(ns).to_string());
        let micros = |us: Option<f64>| us.map(|us| format!("{us:.1} us"));
        let row = [
            Some(name.clone()),
            of(Measure::Iops).map(|iops| Grouped(iops.round() as u64).to_string()),
            of(Measure::Throughput).map(|bytes| format!("{:.0}", bytes / 1e6)),
            time(of(Measure::P50)),
            time(of(Measure::P99)),
            micros(seen(|seen| seen.near.as_ref()?.cpu_us_per_op)),
            micros(seen(|seen| seen.far.as_ref()?.cpu_us_per_op)),
            seen(|seen| seen.wire_bytes_per_op).map(|bytes| format!("{bytes:.0}")),
            seen(|seen| Some(seen.storage_read_per_op? + seen.storage_written_per_op?))
                .map(|bytes| format!("{bytes:.0}")),
            seen(|seen| seen.cache_hit_share).map(|share| format!("{:.1}%", share * 100.0)),
        ];
        table.add_row(row.map(|text| text.unwrap_or_else(|| "-".to_owned())));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!(
        "\n{table}\n\nMedians of the rounds that count; of a picture's cell what its trial came to. CPU is for each operation; of storage is what the client had read from it and written to it. Cache hits are of the bytes that a client of many files read.\n"
    );
    let _ = writeln!(text, "\n{results}");
    for ((cell, note), (count, all)) in notes(trials) {
        let _ = writeln!(text, "note: {cell}: {note} ({count} of {all} trials)");
    }
    text
}

/// Each note once for each cell, with how many of its trials have it, and of how many.
fn notes(trials: &[Told]) -> BTreeMap<(&str, &str), (usize, usize)> {
    let mut notes = BTreeMap::new();
    for told in trials {
        for note in &told.seen.notes {
            let all = || trials.iter().filter(|other| other.cell == told.cell).count();
            notes.entry((&*told.cell, note.as_str())).or_insert_with(|| (0, all())).0 += 1;
        }
    }
    notes
}
