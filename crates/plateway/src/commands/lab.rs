//! `plateway lab`: compares systems by a plan, and says whether a difference is real.
//!
//! What a plan says, in which order trials run and what they say in the end is `lab`'s, which is
//! pure; what touches the machine is `testbed`'s. Here both meet: a plan is checked, also against
//! this machine, its trials are run, each by a process of its own ([`trial`], over a [`road`], with the
//! far end in [`far`], on a file in a [`folder`], on many in a [`file_set`], by a [`program`], or by a [`stream`] of TCP), and what came of it is printed and kept ([`picture`]). What it says of the road
//! to take is told by [`recommend`], whether runs of it change by [`watch`], and what plans of a paper say of its
//! findings by [`paper`]. Nothing is touched before the
//! whole plan was found to be possible. Exit codes: 1 a mistake, or trials that failed; 130 an
//! interruption, after which what was measured is told all the same.

mod agent;
mod aligned;
mod copied;
mod core_port;
mod face;
mod far;
mod file_set;
mod files;
mod fio;
mod folder;
mod followed;
mod growing;
mod image;
mod initiator;
mod kernel_nvme;
mod limits;
mod looks;
mod machine;
mod mounted;
mod nfs;
mod page;
mod paper;
mod picture;
mod program;
mod reach;
mod recommend;
mod relay;
mod rival;
mod road;
mod seen;
mod served;
mod stream;
mod stripe;
mod trial;
mod watch;
mod way;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::plan::{Experiment, Purpose, Results, Runner, Softirqs, TrialOutcome};
use lab::statistics::Stop;
use testbed::{Abilities, Folder};

use super::environment::environment;
use super::session::Interrupt;
use super::{Ended, INTERRUPTED, print, print_json, show};
use crate::cli::{LabAction, LabArgs, LabCompareArgs, LabRunArgs};

use agent::Agent;
use picture::{Kept, Told};
use seen::Idle;
use trial::Lab;

const NFS_PORT: u16 = 2049;
const NVME_PORT: u16 = 4420;
const ISCSI_PORT: u16 = 3260;
/// How long an idle machine is looked at first.
const IDLE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &LabArgs) -> miette::Result<()> {
    match &args.action {
        LabAction::Run(args) => run_plan(args),
        LabAction::Compare(args) => compare(args),
        LabAction::Page(args) => page::run(args),
        LabAction::Recommend(args) => recommend::run(args),
        LabAction::Watch(args) => watch::run(args),
        LabAction::Paper(args) => paper::run(args),
        LabAction::Check(args) => {
            let interrupt = Interrupt::watch()?;
            let Ready { experiment, ends, abilities, .. } = Ready::read(&args.plan, &interrupt)?;
            let remarks = machine::remarks(&experiment, &ends, abilities.as_ref());
            print(&(picture::outline(&experiment, &ends) + &remarks))
        }
        LabAction::Agent(args) => agent::run(args),
        LabAction::Files(args) => files::run(args),
        LabAction::Relay(args) => relay::run(args).map(|never| match never {}),
        LabAction::Stream(args) => stream::source(args),
        LabAction::Copy(args) => copied::run(args),
        LabAction::Export(args) => nfs::export(args),
        LabAction::Import(args) => nfs::import(args),
        LabAction::Program(args) => program::run(args),
        LabAction::Sink(args) => stream::sink(args),
    }
}

/// Holds a result file against another.
fn compare(args: &LabCompareArgs) -> miette::Result<()> {
    let (first, second) = (read_result(&args.first)?, read_result(&args.second)?);
    let pairs =
        lab::plan::compare_results(&first, &second).map_err(|why| miette::miette!("{why}"))?;
    show(args.json, &pairs, || {
        pairs.iter().map(|pair| format!("{}: {}\n", pair.name, pair.apart)).collect()
    })
}

/// A result file, as JSON.
fn read_result(file: &Path) -> miette::Result<serde_json::Value> {
    let tell = |error: &dyn std::fmt::Display| {
        miette::miette!("cannot read the result file {}: {error}", file.display())
    };
    let text = std::fs::read(file).map_err(|error| tell(&error))?;
    serde_json::from_slice(&text).map_err(|error| tell(&error))
}

/// CPUs of both ends.
#[derive(Clone, Debug)]
struct Ends {
    near: Vec<usize>,
    far: Vec<usize>,
    /// Whether they are of two machines.
    are_machines: bool,
}

impl Ends {
    /// The first half of what this process may use is the far end's, the other the near end's; of
    /// one alone, both use it.
    fn of_this_machine() -> Ends {
        let cpus = reactor::allowed_cpus();
        match cpus.split_at(cpus.len() / 2) {
            ([], all) => Ends { near: all.to_vec(), far: all.to_vec(), are_machines: false },
            (far, near) => Ends { near: near.to_vec(), far: far.to_vec(), are_machines: false },
        }
    }

    /// Which CPUs the near end's client has over a path, and which one deals with what it receives.
    fn near_over(&self, path: &lab::plan::Path) -> (&[usize], usize) {
        let Ends { near, far, .. } = self;
        let other = if near.len() > 1 { near } else { far };
        match path.softirqs {
            None => (near, near[0]),
            Some(Softirqs::WithClient) => (&near[..1], near[0]),
            Some(Softirqs::Apart) => (&near[..1], other[other.len() - 1]),
        }
    }

    /// Whether an end's CPUs are its own.
    fn are_apart(&self) -> bool {
        self.are_machines || self.near != self.far
    }
}

/// CPUs as `taskset` takes them.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Makes a folder, and those above it.
fn make_folder(folder: &Path) -> miette::Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| miette::miette!("cannot make {}: {error}", folder.display()))
}

/// This program.
fn program() -> miette::Result<PathBuf> {
    std::env::current_exe().map_err(|error| miette::miette!("cannot find this program: {error}"))
}

/// A plan that can be run on this machine.
struct Ready {
    /// Its file, word for word.
    text: String,
    experiment: Experiment,
    ends: Ends,
    /// What the kernel can do to frames; of a plan that has a path.
    abilities: Option<Abilities>,
    /// Who looks after the far end, of a plan whose paths are between two machines.
    agent: Option<RefCell<Agent>>,
}

impl Ready {
    /// Reads a plan and holds it against this machine; every mistake of it at its line.
    fn read(file: &Path, interrupt: &Interrupt) -> miette::Result<Ready> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| miette::miette!("cannot read the plan {}: {error}", file.display()))?;
        let experiment = Experiment::parse(&file.display().to_string(), &text)
            .map_err(|mistakes| miette::miette!("{mistakes}"))?;
        Ready::of(file, text, experiment, interrupt)
    }

    /// Whether its CPUs do nothing before anything runs.
    fn is_idle(&self) -> miette::Result<bool> {
        Ok(Idle::measure(&self.ends, self.agent.as_ref(), IDLE)?.is_quiet())
    }

    /// Holds a plan that was read against this machine; `file` is what messages call it.
    fn of(
        file: &Path,
        text: String,
        experiment: Experiment,
        interrupt: &Interrupt,
    ) -> miette::Result<Ready> {
        let lines = experiment.paths.iter().enumerate();
        let line = lines.filter_map(|(at, path)| Some((at, path.line.as_ref()?))).next();
        let (ends, agent) = match line {
            None => (Ends::of_this_machine(), None),
            Some((at, line)) => {
                let mut agent = Agent::reach(&line.agent, interrupt)?;
                agent.tell_plan(file.display().to_string(), &text, at)?;
                let (near, far) = (reactor::allowed_cpus(), agent.environment.cpus.clone());
                (Ends { near, far, are_machines: true }, Some(RefCell::new(agent)))
            }
        };
        let abilities = machine::check(&experiment, &ends, agent.as_ref(), (file, &text))?;
        Ok(Ready { text, experiment, ends, abilities, agent })
    }
}

fn run_plan(args: &LabRunArgs) -> miette::Result<()> {
    // From here on a signal ends it in order.
    let interrupt = Interrupt::watch()?;
    let ready = Ready::read(&args.plan, &interrupt)?;
    let file = args.result.clone().unwrap_or_else(|| args.plan.with_extension("result.json"));
    picture::may_be_made(&file, &args.plan, args.overwrite)?;
    let carried = carry_out(&ready, &interrupt, &file, |kept, results, trials| match args.json {
        true => print_json(kept),
        false => print(&picture::table(&ready.experiment, results, trials)),
    })?;
    carried.is_kept?;
    if !args.json {
        let page = picture::page_of(&file);
        print(&format!("\nkept: {}, page: {}\n", file.display(), page.display()))?;
    }
    if interrupt.is_raised() {
        let words = format!("interrupted: what was measured is in {}", file.display());
        return Err(Ended::new(INTERRUPTED, words).into());
    }
    carried.failed.map_or(Ok(()), |words| Err(miette::miette!("{words}")))
}

/// What became of a plan that was run.
struct Carried {
    /// Whether it could be kept, and told.
    is_kept: miette::Result<()>,
    /// Which trials failed, if some did.
    failed: Option<String>,
}

/// Runs a plan, keeps what came of it, and has it told. What took so long to measure is told also where
/// it cannot be kept, and kept where it cannot be told. An error is of before the first trial.
fn carry_out(
    ready: &Ready,
    interrupt: &Interrupt,
    file: &Path,
    tell: impl FnOnce(&Kept<'_>, &Results, &[Told]) -> miette::Result<()>,
) -> miette::Result<Carried> {
    measure(ready, interrupt, |kept, results, trials| {
        let is_kept = picture::keep(file, kept);
        let told = tell(kept, results, trials);
        Carried { is_kept: is_kept.and(told), failed: failed(results, trials) }
    })
}

/// Runs a plan, and hands on what came of it. An error is of before the first trial.
fn measure<T>(
    ready: &Ready,
    interrupt: &Interrupt,
    then: impl FnOnce(&Kept<'_>, &Results, &[Told]) -> T,
) -> miette::Result<T> {
    let Ready { text, experiment, ends, abilities, agent } = ready;
    let home = Folder::make(far::PREFIX).map_err(trial::tell)?;
    let agent = agent.as_ref();
    let idle = Idle::measure(ends, agent, IDLE)?;
    machine::check_idle(experiment, idle)?;
    let ours = RefCell::new(BTreeSet::new());
    let abilities = abilities.as_ref();
    let home = home.path();
    let mounted = RefCell::new(BTreeMap::new());
    let images = RefCell::default();
    let lab =
        Lab { experiment, ends, abilities, agent, home, interrupt, idle, ours, mounted, images };
    // Its date is when this began.
    let environment = environment("as each trial says".to_owned());
    let (results, trials) = run_trials(&lab);
    let kept = Kept::new(text, environment, &lab, &results, &trials);
    Ok(then(&kept, &results, &trials))
}

/// Which trials failed, if some did.
fn failed(results: &Results, trials: &[Told]) -> Option<String> {
    let first = results.failures.first()?;
    let count = results.failures.len();
    Some(format!("{count} of {} trials failed; first: {first}", trials.len()))
}

/// Runs all trials, telling how far it is.
fn run_trials(lab: &Lab<'_>) -> (Results, Vec<Told>) {
    let mut runner = Runner::new(lab.experiment);
    let mut trials: Vec<Told> = Vec::new();
    let line = picture::Line::new();
    while let Some(trial) = runner.poll_trial() {
        if let Some(sized) = runner.poll_sized() {
            line.say(&sized.to_string());
        }
        line.show(lab.experiment, &trial, &runner.progress());
        let began = Instant::now();
        let (outcome, seen) = lab.run(&trial.cell, trials.len());
        if lab.interrupt.is_raised() {
            runner.handle_stop(Stop::Interrupted);
            break;
        }
        if let TrialOutcome::Failed { why } = &outcome {
            line.say(&format!("failed: {}: {why}", lab.experiment.cell_name(&trial.cell)));
        }
        let round = match &trial.purpose {
            Purpose::Round { round, .. } => Some(round.clone()),
            Purpose::Picture { .. } => None,
        };
        trials.push(Told::new(lab.experiment, &trial.cell, round.as_ref(), &outcome, seen));
        runner.handle_trial(outcome, began.elapsed());
    }
    line.end();
    (runner.finish(), trials)
}
