//! The result file of a paper: what each of its plans came to, and what is said of each finding.
//!
//! JSON with `schema_version`, the paper's name, `runs` (each a result file of the lab, whole), and what was
//! not run; `verdicts` beside them are for whoever reads it, and are judged anew from the runs when it is read, so
//! that a page and its file cannot disagree. Errors: what was expected and seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::judge::{Measured, Said, Sight, Sights};
use super::reach::Reached;
use super::verdict::Answer;
use super::{NAMES, Need, Study};
use crate::kept::{Kept, Trial};
use crate::plan::{Experiment, Measure, Results};
use crate::statistics::median;

/// It grows when a field goes or means something else.
pub const SCHEMA_VERSION: u64 = 1;

/// What a paper came to, as it is read.
#[derive(Debug)]
pub struct PaperKept {
    pub study: Study,
    /// Whether it was a quick run.
    pub is_quick: bool,
    pub runs: Vec<RunKept>,
    pub not_run: Vec<NotRun>,
    /// What was reached, of a paper that asks for it.
    pub reached: Vec<Reached>,
}

/// A plan that ran.
#[derive(Debug)]
pub struct RunKept {
    pub plan: String,
    pub kept: Kept,
    pub experiment: Experiment,
    /// Comparisons that a quick run left out.
    pub left_out: Vec<String>,
}

/// A plan that did not run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NotRun {
    pub plan: String,
    pub because: String,
    pub cause: Cause,
}

/// Why a plan did not run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It asks for what this version does not have.
    Lacking,
    /// It asks for what this machine does not have.
    Machine,
    /// It takes longer than an hour with the others, so that a run without a limit alone has it.
    Full,
    /// A quick run leaves it out, it was stopped before, or it failed.
    Passed,
}

impl NotRun {
    /// What that says of its findings.
    fn answer(&self) -> Answer {
        let because = self.because.clone();
        match self.cause {
            Cause::Lacking => Answer::NotRerunYet { because },
            Cause::Machine => Answer::CannotBeTested { because },
            Cause::Full => {
                Answer::undecided(format!("its plan {} is run by --full alone", self.plan))
            }
            Cause::Passed => Answer::undecided(format!("its plan {} was not run", self.plan)),
        }
    }
}

#[derive(Deserialize)]
struct Low {
    schema_version: u64,
    paper: String,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    runs: Vec<LowRun>,
    #[serde(default)]
    not_run: Vec<NotRun>,
    #[serde(default)]
    reached: Vec<Reached>,
    /// What its machine lacked, in words.
    #[serde(default)]
    lacks: BTreeMap<Need, String>,
}

#[derive(Deserialize)]
struct LowRun {
    plan: String,
    result: Value,
    #[serde(default)]
    left_out: Vec<String>,
}

/// Whether a result file is one of a paper, and not of a plan.
pub fn is_of_a_paper(file: &Value) -> bool {
    file.get("paper").is_some()
}

impl PaperKept {
    pub fn read(file: &Value) -> Result<PaperKept, String> {
        let low = Low::deserialize(file)
            .map_err(|error| format!("expected a result file of a paper: {error}"))?;
        if low.schema_version != SCHEMA_VERSION {
            let seen = low.schema_version;
            return Err(format!("expected schema_version {SCHEMA_VERSION}, seen {seen}"));
        }
        let study = Study::of(&low.paper).ok_or_else(|| {
            format!("expected a paper, one of {}, seen {:?}", NAMES.join(", "), low.paper)
        })?;
        let runs: Result<Vec<RunKept>, String> = low.runs.into_iter().map(RunKept::read).collect();
        let Low { not_run, reached, lacks, .. } = low;
        let study = study.here(&lacks);
        Ok(PaperKept { study, is_quick: low.quick, runs: runs?, not_run, reached })
    }

    /// What is said of each finding.
    pub fn judge(&self) -> Vec<Said> {
        let measured: Vec<Measured<'_>> = self.runs.iter().map(RunKept::measured).collect();
        let not_run: BTreeMap<String, Answer> =
            self.not_run.iter().map(|one| (one.plan.clone(), one.answer())).collect();
        self.study.judge(&measured, &not_run, &self.reached)
    }

    /// What a quick run left out.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().flat_map(|run| &run.left_out).map(String::as_str)
    }
}

impl RunKept {
    fn read(low: LowRun) -> Result<RunKept, String> {
        let tell = |why: String| format!("run of {}: {why}", low.plan);
        let kept = Kept::read(&low.result).map_err(tell)?;
        let mut experiment = kept.experiment().map_err(|mistakes| tell(mistakes.to_string()))?;
        leave_what_ran(&mut experiment, &kept.results);
        Ok(RunKept { kept, experiment, plan: low.plan, left_out: low.left_out })
    }

    fn measured(&self) -> Measured<'_> {
        Measured {
            plan: &self.plan,
            experiment: &self.experiment,
            results: &self.kept.results,
            sights: sights(&self.kept, &self.experiment),
        }
    }
}

/// Leaves of a plan's groups what results have of them.
pub(super) fn leave_what_ran(experiment: &mut Experiment, results: &Results) {
    for results in &results.groups {
        let mut groups = experiment.groups.iter_mut();
        let planned = groups.find(|group| group.name == results.name);
        if let Some(planned) = planned
            && let Some(ran) = planned.as_run(results)
        {
            *planned = ran;
        }
    }
}

/// What was seen of preconditions, in the middle of the trials that count.
fn sights(kept: &Kept, experiment: &Experiment) -> Sights {
    let mut sights = Sights::new();
    for (cell, trials) in kept.counted() {
        let of = |value: &dyn Fn(&Trial) -> Option<f64>| {
            median(&trials.iter().filter_map(|trial| value(trial)).collect::<Vec<f64>>())
        };
        let latency = of(&|trial| trial.measures.get(&Measure::LatencyMean).copied());
        let bits =
            of(&|trial| Some(trial.measures.get(&Measure::Iops)? * trial.wire_bytes_per_op? * 8.0));
        let iops = of(&|trial| trial.measures.get(&Measure::Iops).copied());
        let rate = rate_of(experiment, cell);
        let busy = bits.zip(rate).map(|(bits, rate)| bits / rate as f64);
        let busiest = |trial: &Trial| {
            let ends = [&trial.near, &trial.far].into_iter().flatten();
            ends.filter_map(|end| end.busiest).reduce(f64::max)
        };
        let cpus = kept.near_cpus.len().min(kept.far_cpus.len());
        let seen = [
            (Sight::Latency, latency),
            (Sight::LinkBusy, busy),
            (Sight::CpuBusy, of(&busiest)),
            (Sight::Cpus, (cpus > 0).then_some(cpus as f64)),
            (Sight::Iops, iops),
        ];
        for (sight, value) in seen {
            sights.extend(value.map(|value| ((cell.to_owned(), sight), value)));
        }
    }
    sights
}

/// The rate of the path that a cell of this name goes over.
fn rate_of(experiment: &Experiment, name: &str) -> Option<u64> {
    let cells = experiment.cells();
    let cell = cells.iter().find(|cell| experiment.cell_name(cell) == name)?;
    experiment.paths[cell.path?].rate
}
