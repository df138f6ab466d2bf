//! Whether runs of a plan changed, from one to the next: what a watch keeps in mind and says after
//! each run.
//!
//! In: the plan, the result files of its runs in their order ([`Run`]), and what was found before
//! ([`Memory`]). Out: a [`Report`]: of each system and measure of the plan's primary comparisons the
//! series of runs, each by the reference `null` of the same run, so that what moved both moved
//! nothing, and whether it changed, where, and from what to what. The test is
//! [`crate::statistics::change`]; once a change was found a series begins anew with it. Nothing is
//! read or written here. Units: those of [`Measure`]; levels are ratios to `null`, of how fast.

mod run;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::{Column, Experiment, Measure, column_of, series_name};
use crate::report::Environment;
use crate::statistics::change::{RUNS_MAX, Test};
use crate::statistics::ratio::Percent;
use crate::statistics::sample::Sample;
use crate::statistics::{ALPHA, Apart, Interval, LogRatio, Referred, compare_apart};

pub use run::{Point, Run};

/// The version of what is kept in mind, and of what `--json` prints.
const SCHEMA_VERSION: u64 = 1;
/// So many runs before and after a change are looked at for what else changed.
const NEAR: usize = 2;

/// A measure of a system that is watched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// As `lab compare` calls it: "IOPS of nvme over lan, 4KiB randread, depth 32".
    pub name: String,
    pub system: String,
    /// Over which its comparison is; empty where there is none.
    pub path: String,
    /// The load, with what was asked of it where that is not what the plan asks of all: what is left of
    /// its group's name.
    pub load: String,
    pub measure: Measure,
    /// Its places in the results: of the group, of its column and of that of `null`.
    #[serde(skip)]
    group: usize,
    #[serde(skip)]
    column: usize,
    #[serde(skip)]
    null: usize,
}

/// What a watch knows of earlier runs beyond their results.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Memory {
    schema_version: u64,
    /// The plan's file, word for word: another one's changes are not its.
    plan: String,
    pub changes: Vec<Change>,
}

/// A change that was found.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Change {
    pub series: String,
    /// The first run after it, and when that began.
    pub run: u64,
    pub date: String,
    /// The run after which it was found.
    pub found: u64,
    /// How often runs that did not change part as well.
    pub p_value: f64,
    /// Of how many runs before and after it is known.
    pub runs_before: usize,
    pub runs_after: usize,
    pub before: Level,
    pub after: Level,
    /// What it is now by what it was, and how far `null` itself moved.
    pub ratio: LogRatio,
    pub interval: Interval,
    pub null_ratio: LogRatio,
    /// What else changed at that time, which may be why.
    pub beside: Vec<String>,
}

/// How fast it was by `null`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Level {
    pub ratio: LogRatio,
    /// At 95%, by itself.
    pub interval: Interval,
}

/// What is said after a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema_version: u64,
    pub plan: String,
    /// The run, and when it began.
    pub run: u64,
    pub date: String,
    /// Trials of it that failed.
    pub failures: usize,
    pub series: Vec<Told>,
    /// What the run says of each bound of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bounded>,
}

/// Of one bound: by the rounds of one run, and by no other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bounded {
    /// The comparison: "IOPS of nvme against iscsi over lan, 4KiB randread, depth 32".
    pub comparison: String,
    /// "at least 0.9 times"
    pub bound: String,
    /// Absent where the run leaves it open, or has no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_held: Option<bool>,
    /// "at least 0.9 times: held (0.943 to 0.970)"
    pub said: String,
}

/// Of one series.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    #[serde(flatten)]
    pub series: Series,
    /// How many runs there are since it last changed, and how many it takes to show a change.
    pub runs: usize,
    pub runs_needed: usize,
    /// What the last run came to, and why it does not count, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Of the test; absent with too few runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// Whether this run showed a change.
    pub is_changed: bool,
    /// The last change that was found, of this run or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// What is watched of a plan: each system of a primary comparison, by its measure.
pub fn series(experiment: &Experiment) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (at, group) in experiment.groups.iter().enumerate() {
        let primary = group.plan.comparisons.iter().filter(|comparison| comparison.primary);
        let path = group.cells.iter().find_map(|cell| cell.path);
        let path = path.map_or(String::new(), |path| experiment.paths[path].to_string());
        let load = group.name.strip_prefix(&format!("over {path}, ")).unwrap_or(&group.name);
        for column in primary.flat_map(|comparison| [comparison.subject, comparison.reference]) {
            let Column { system, measure } = group.columns[column];
            let null = column_of(&group.columns, group.null, measure);
            let Some(null) = null.filter(|null| *null != column) else { continue };
            let name = &group.names[system];
            let one = Series {
                name: series_name(measure, name, &group.name),
                system: name.clone(),
                path: path.clone(),
                load: load.to_owned(),
                measure,
                group: at,
                column,
                null,
            };
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

impl Memory {
    /// Of a plan that was never watched.
    pub fn new(plan: &str) -> Memory {
        Memory { schema_version: SCHEMA_VERSION, plan: plan.to_owned(), changes: Vec::new() }
    }

    /// What was written; an error says what was expected and seen.
    pub fn read(text: &str) -> Result<Memory, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("expected JSON: {error}"))?;
        let seen = &value["schema_version"];
        if *seen != SCHEMA_VERSION {
            return Err(format!("schema_version: expected {SCHEMA_VERSION}, seen {seen}"));
        }
        Memory::deserialize(value).map_err(|error| format!("expected what a watch found: {error}"))
    }

    pub fn is_of(&self, plan: &str) -> bool {
        self.plan == plan
    }

    /// The last run of which something was found; the next one is after it, whatever became of its result.
    pub fn last_run(&self) -> u64 {
        self.changes.iter().map(|change| change.found).max().unwrap_or(0)
    }

    /// The last change of a series.
    fn last(&self, series: &str) -> Option<&Change> {
        self.changes.iter().rev().find(|change| change.series == series)
    }

    /// What the last of these runs shows, which is kept in mind. Runs are of the same plan and in their
    /// order; of no run there is nothing to say.
    pub fn look(&mut self, series: &[Series], runs: &[Run]) -> Option<Report> {
        let last = runs.last()?;
        let mut test = Test::of(series.len());
        let told = series.iter().map(|one| self.told(one, runs, last, &mut test)).collect();
        Some(Report {
            schema_version: SCHEMA_VERSION,
            plan: last.plan_name.clone(),
            run: last.number,
            date: last.environment.date.clone(),
            failures: last.failures,
            series: told,
            bounds: last.bounds(),
        })
    }

    fn told(&mut self, series: &Series, runs: &[Run], last: &Run, test: &mut Test) -> Told {
        let known = self.last(&series.name).map_or(0, |change| change.run);
        let points = |run: &'_ Run| run.point(series).ok();
        let since: Vec<(usize, Point)> = runs
            .iter()
            .enumerate()
            .filter(|(_, run)| run.number >= known)
            .filter_map(|(at, run)| Some((at, points(run)?)))
            .collect();
        let since = &since[since.len().saturating_sub(RUNS_MAX)..];
        let of_last = last.point(series);
        let mut told = Told {
            series: series.clone(),
            runs: since.len(),
            runs_needed: test.runs_needed(),
            last: of_last.as_ref().ok().copied(),
            left_out: of_last.err(),
            p_value: None,
            is_changed: false,
            change: None,
        };
        // Where the last run does not count this shows what was shown before, or what nobody remembers.
        let values: Vec<f64> = since.iter().map(|(_, point)| point.lead()).collect();
        let split = test.split(&values);
        told.p_value = split.map(|split| split.p_value);
        if let Some(split) = split.filter(|split| test.shows(split))
            && let Some(change) = Change::of(series, runs, since, split.at, split.p_value)
        {
            told.is_changed = true;
            told.runs = change.runs_after;
            self.changes.push(change);
        }
        told.change = self.last(&series.name).cloned();
        told
    }
}

impl Change {
    /// Of a series that parts at this place.
    fn of(
        series: &Series,
        runs: &[Run],
        since: &[(usize, Point)],
        at: usize,
        p_value: f64,
    ) -> Option<Change> {
        let (before, after) = since.split_at(at);
        let referred = |part: &[(usize, Point)]| -> Vec<Referred> {
            part.iter().map(|(_, point)| point.referred()).collect()
        };
        let Apart { ratio, interval, reference_ratio, .. } =
            compare_apart(&referred(after), &referred(before))?;
        let first = after.first()?.0;
        Some(Change {
            series: series.name.clone(),
            run: runs[first].number,
            date: runs[first].environment.date.clone(),
            found: runs.last()?.number,
            p_value,
            runs_before: before.len(),
            runs_after: after.len(),
            before: Level::of(before)?,
            after: Level::of(after)?,
            ratio,
            interval,
            null_ratio: reference_ratio,
            beside: beside(runs, first),
        })
    }
}

impl Level {
    fn of(part: &[(usize, Point)]) -> Option<Level> {
        let leads: Vec<f64> = part.iter().map(|(_, point)| point.lead()).collect();
        let known = Sample::of(&leads)?.guarded();
        Some(Level { ratio: LogRatio(known.mean), interval: known.interval(ALPHA) })
    }
}

/// What of the environment changed around a run.
fn beside(runs: &[Run], first: usize) -> Vec<String> {
    let near = &runs[first.saturating_sub(NEAR + 1)..(first + NEAR + 1).min(runs.len())];
    near.windows(2).flat_map(|pair| differences(&pair[0], &pair[1])).collect()
}

fn differences(before: &Run, after: &Run) -> Vec<String> {
    let words = |environment: &Environment| {
        let Environment { version, commit, kernel, cpu, cpus, .. } = environment.clone();
        let commit = commit.unwrap_or_else(|| "unknown".to_owned());
        let cpus = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        [("version", version), ("commit", commit), ("kernel", kernel), ("CPU", cpu), ("CPUs", cpus)]
    };
    let each = words(&before.environment).into_iter().zip(words(&after.environment));
    each.filter(|(old, new)| old != new)
        .map(|((what, old), (_, new))| {
            format!("{what} {old} became {new} with run {}", after.number)
        })
        .collect()
}

impl Report {
    /// How many series this run showed a change of.
    pub fn changed(&self) -> usize {
        self.series.iter().filter(|told| told.is_changed).count()
    }
}

/// "it changed with run 31 (2026-...): ...".
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { run, date, runs_before, runs_after, p_value, .. } = self;
        let side = if self.ratio.0 > 0.0 { "above" } else { "below" };
        write!(
            f,
            "changed with run {run} ({date}): {} {side} what it was ({}), from {:.3} to {:.3} of null, by {runs_before} runs before and {runs_after} after; null itself moved by {}; p {}",
            Percent(self.ratio.fraction()),
            self.interval,
            self.before.ratio.ratio(),
            self.after.ratio.ratio(),
            Percent(self.null_ratio.fraction()),
            Chance(*p_value),
        )?;
        for beside in &self.beside {
            write!(f, "; {beside}")?;
        }
        Ok(())
    }
}

/// A p value with the digits that count.
struct Chance(f64);

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 0.01 { write!(f, "{:.2}", self.0) } else { write!(f, "{:.1e}", self.0) }
    }
}

/// A line for each series.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.series.name)?;
        if let Some(change) = self.change.as_ref().filter(|_| self.is_changed) {
            return write!(f, "{change}");
        }
        if let Some(why) = &self.left_out {
            return write!(f, "this run does not count: {why}");
        }
        let Told { runs, runs_needed, .. } = self;
        let since = match &self.change {
            Some(change) => format!(" since it changed with run {}", change.run),
            None => String::new(),
        };
        let plural = if *runs == 1 { "" } else { "s" };
        match self.p_value {
            Some(p_value) => {
                write!(f, "no change shown in {runs} run{plural}{since} (p {})", Chance(p_value))
            }
            None => {
                write!(f, "{runs} run{plural}{since}; a change can be shown from {runs_needed} on")
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} ({})", self.run, self.date)?;
        if self.failures > 0 {
            write!(f, ", {} trials failed", self.failures)?;
        }
        self.series.iter().try_for_each(|told| write!(f, "\n  {told}"))?;
        let mut bounds = self.bounds.iter();
        bounds.try_for_each(|one| write!(f, "\n  {}: {}", one.comparison, one.said))
    }
}
