//! A trial: a system from a fresh start, with a fresh path and connection, under one load.
//!
//! ```text
//!   path -> system -> bench: every block written, then measured until it is steady -> all of it gone
//! ```
//! The load is `plateway bench --steady` in a process of its own, pinned to the near end's CPUs; what
//! is seen meanwhile, and what a trial comes to, is in [`super::seen`]. Errors: a trial that measured
//! nothing says why.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::plan::{
    self, Arrivals, Backing, Cell, Experiment, Means, Nfs, Pace, Program, TrialOutcome,
};
use lab::statistics::steady::WINDOWS_MAX;
use serde_json::Value;
use testbed::{Abilities, Group, load, process};

use super::Ends;
use super::agent::Agent;
use super::far;
use super::folder::FileSystem;
use super::image::Images;
use super::kernel_nvme::Kernel;
use super::looks::{Looks, Sighted};
use super::mounted;
use super::seen::{Idle, Seen};
use super::stream;
use super::stripe::Reached;
use super::way::{Started, Way};
use crate::commands::session::Interrupt;

/// How much longer than its windows a load may take: to connect, and to wait for an answer.
const SLACK: Duration = Duration::from_secs(90);
/// A load of a moment, in bench's words: what matters is what comes before it.
pub(super) const MOMENT: [&str; 6] = ["--iodepth", "1", "--time", "1ms", "--warmup", "0"];
/// How bench refuses to write what is not blank.
const HOLDS_DATA: &str = "holds data";
/// What runs the trials of an experiment.
pub(super) struct Lab<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) ends: &'a Ends,
    /// What the kernel can do to frames; of a plan that has a path.
    pub(super) abilities: Option<&'a Abilities>,
    /// Who looks after the far end, of a plan whose paths are between two machines.
    pub(super) agent: Option<&'a RefCell<Agent>>,
    /// A folder for what trials leave, which goes with the lab.
    pub(super) home: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    /// What each end's CPUs do while nobody does anything for us.
    pub(super) idle: Idle,
    /// Disks whose data are ours, as the plan names them: several systems may be over one.
    pub(super) ours: RefCell<BTreeSet<String>>,
    /// What is mounted at folders of the plan, as it was when they were first worked in.
    pub(super) mounted: RefCell<BTreeMap<String, FileSystem>>,
    /// Images of files that trials begin with.
    pub(super) images: RefCell<Images>,
}

impl Lab<'_> {
    /// Runs one; what it came to, and what was seen beside that.
    pub(super) fn run(&self, cell: &Cell, number: usize) -> (TrialOutcome, Seen) {
        match self.try_to_run(cell, number) {
            Ok(done) => done,
            Err(why) => (TrialOutcome::Failed { why: format!("{why}") }, Seen::default()),
        }
    }

    fn try_to_run(&self, cell: &Cell, number: usize) -> miette::Result<(TrialOutcome, Seen)> {
        let system = &self.experiment.systems[cell.system];
        let home = self.home.join(format!("trial-{number}"));
        super::make_folder(&home)?;
        if let Some(folder) = system.means.folder() {
            let done = self.run_in_folder(cell, folder, &home);
            let _ = std::fs::remove_dir_all(&home);
            return done;
        }
        let way = cell.path.map(|at| Way::take(self, at, &home));
        let mut way = way.transpose()?;
        // What runs at the far end runs until the trial is over.
        let (started, own) = match (&system.means, &mut way) {
            (Means::Disk { uri }, _) | (Means::Nfs(Nfs { disk: uri, .. }), Some(_)) => {
                (None, Some(Reached::local(uri, system, cell, &home)?))
            }
            (_, None) => return Err(miette::miette!("{} is reached over no path", system.name)),
            (means, Some(way)) => {
                let started = way.start(self, cell, &home)?;
                let says_nothing = match means {
                    Means::Target(target) => target.ready.is_none(),
                    Means::Rival(rival) => rival.program == Program::Vblade,
                    Means::Serve(_)
                    | Means::Disk { .. }
                    | Means::Folder(_)
                    | Means::Stream(_)
                    | Means::Nfs(_) => false,
                };
                if says_nothing {
                    self.try_until_there(cell, &started, way)?;
                }
                (Some(started), None)
            }
        };
        let mut kernel = None;
        if let (Means::Serve(serve), true, Some(way)) = (&system.means, system.kernel, &way) {
            kernel = Some(Kernel::connect(self, serve, way)?);
        }
        let by_kernel = kernel.as_ref().map(Kernel::reached);
        let at = started.as_ref().map(|started| &started.at).or(own.as_ref());
        let at = by_kernel.as_ref().or(at).expect("a disk of its own, or one that was started");
        let mut done = match &system.mounted {
            Some(mounted) => {
                let nfs = match &system.means {
                    Means::Nfs(nfs) => Some(nfs),
                    _ => None,
                };
                let (way, kernel) = (way.as_ref(), kernel.as_ref().map(Kernel::device));
                let is_by_kernel = system.kernel;
                let place = mounted::Place { at, way, is_by_kernel, kernel, nfs, home: &home };
                self.run_mounted(cell, mounted, &place)
            }
            None if system.means.is_stream() => self.measure_stream(cell, &at.uri, way.as_ref()),
            None => self.measure_filled(cell, (at, &home), way.as_ref()),
        };
        if done.is_err() {
            // Whatever failed follows from what ended.
            way.as_ref().map_or(Ok(()), Way::is_up)?;
        }
        match kernel {
            // It may never go, if what it is connected to is gone.
            Some(kernel) if done.is_ok() => kernel.disconnect()?,
            kernel => drop(kernel),
        }
        if let (Some(way), Ok((_, seen))) = (&way, &mut done) {
            let judged = way.judge()?;
            seen.lost_share = judged.lost_share;
            seen.served = started.as_ref().and_then(|started| started.served.clone());
            seen.notes.extend(judged.notes);
        }
        drop(way);
        // What a trial leaves is looked at by nobody once it is told.
        let _ = std::fs::remove_dir_all(&home);
        done
    }

    /// A target that has no command to say whether it is ready is asked for a block until it answers.
    fn try_until_there(&self, cell: &Cell, started: &Started, way: &Way<'_>) -> miette::Result<()> {
        let end = Instant::now() + far::START;
        loop {
            let mut command = self.bench(cell, &started.at, Some(way), None)?;
            command.args(["--rw", "read"]).args(MOMENT);
            match self.finish(command, far::START, |_, _| ControlFlow::Continue(())) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > end => return Err(why),
                Err(_) => way.is_up()?,
            }
            far::pause(self.interrupt)?;
        }
    }

    /// Measures, once every block that is read was written. A disk that holds data is not ours to
    /// write, unless an earlier trial wrote them; where it is read alone, it is read as it was found.
    fn measure_filled(
        &self,
        cell: &Cell,
        at: (&Reached, &Path),
        way: Option<&Way<'_>>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let system = &self.experiment.systems[cell.system];
        let pattern = cell.load.pattern;
        let fills = pattern.reads() && system.backing != Some(Backing::Null);
        let done = match self.measure(cell, at, way, fills) {
            Err(why) if fills && !pattern.writes() && why.to_string().contains(HOLDS_DATA) => {
                let (outcome, mut seen) = self.measure(cell, at, way, false)?;
                seen.notes.push("it holds data, and was read as it was found".to_owned());
                return Ok((outcome, seen));
            }
            other => other?,
        };
        if fills || pattern.writes() {
            self.ours.borrow_mut().insert(self.disk(cell).to_owned());
        }
        Ok(done)
    }

    /// Measures the network alone, to a sink that listens there.
    fn measure_stream(
        &self,
        cell: &Cell,
        to: &str,
        way: Option<&Way<'_>>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let (near, cpus) = (way.and_then(Way::near), super::list(self.client_cpus(way)));
        let program = super::program()?;
        self.bounded(cell, |group| {
            let mut command = process::command_in(group, near, &cpus, &program);
            command.args(stream::asked(cell, to));
            self.watch(cell, command, way)
        })
    }

    /// How long a load may take at most, with its warm-up and a time to come and go.
    pub(super) fn load_max(&self, cell: &Cell) -> Duration {
        let windows = self.experiment.window_of(cell) * (WINDOWS_MAX as u32 + 1);
        self.experiment.warm_up + windows + SLACK
    }

    /// What holds the blocks of a cell, as the plan names it.
    pub(super) fn disk(&self, cell: &Cell) -> &str {
        match &self.experiment.systems[cell.system].means {
            Means::Disk { uri } => uri,
            Means::Serve(serve) => &serve.disk,
            Means::Rival(rival) => &rival.disk,
            Means::Target(target) => &target.uri,
            Means::Folder(folder) => &folder.path,
            Means::Stream(transport) => transport.word(),
            Means::Nfs(nfs) => &nfs.disk,
        }
    }

    /// The CPUs on which a client works that goes this way, or none.
    pub(super) fn client_cpus<'s>(&'s self, way: Option<&'s Way<'_>>) -> &'s [usize] {
        way.and_then(Way::client_cpus).unwrap_or(&self.ends.near)
    }

    /// `plateway bench` at the near end, in a control group if one is named.
    pub(super) fn bench(
        &self,
        cell: &Cell,
        at: &Reached,
        way: Option<&Way<'_>>,
        group: Option<&Group>,
    ) -> miette::Result<Command> {
        let near = way.and_then(Way::near);
        let (cpus, program) = (super::list(self.client_cpus(way)), super::program()?);
        let mut command = process::command_in(group, near, &cpus, &program);
        command.args(["bench", "--json"]);
        at.tell(&mut command);
        if self.ours.borrow().contains(self.disk(cell)) {
            command.arg("--overwrite");
        }
        Ok(command)
    }

    /// Runs a bench to its end, unless a look breaks it off; what it printed.
    pub(super) fn finish(
        &self,
        command: Command,
        limit: Duration,
        mut look: impl FnMut(u32, Duration) -> ControlFlow<()>,
    ) -> miette::Result<Value> {
        let ended = load::watch(command, limit, |pid, spent| {
            if look(pid, spent).is_break() { ControlFlow::Break(()) } else { self.interrupt.flow() }
        })
        .map_err(tell)?;
        if !ended.status.success() {
            return Err(miette::miette!("{}", complaint(&ended)));
        }
        serde_json::from_str(&ended.printed)
            .map_err(|error| miette::miette!("bench printed no JSON: {error}"))
    }

    fn measure(
        &self,
        cell: &Cell,
        (at, home): (&Reached, &Path),
        way: Option<&Way<'_>>,
        fills: bool,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let system = &self.experiment.systems[cell.system];
        if let Some(initiator) = &system.initiator {
            if fills || cell.load.pattern.writes() {
                self.fill_disk(cell, at, way)?;
            }
            return self.bounded(cell, |group| {
                self.load_by_initiator(cell, initiator, (at, home), way, group)
            });
        }
        self.bounded(cell, |group| {
            let mut command = self.bench(cell, at, way, group)?;
            if fills {
                command.arg("--fill");
            }
            self.load(cell, command, way)
        })
    }

    /// Has a bench load what it was told, and judges what it did.
    pub(super) fn load(
        &self,
        cell: &Cell,
        mut command: Command,
        way: Option<&Way<'_>>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        asked(&mut command, &cell.load);
        self.watch(cell, command, way)
    }

    /// Watches a load that ends once it is steady, and judges what it did.
    fn watch(
        &self,
        cell: &Cell,
        mut command: Command,
        way: Option<&Way<'_>>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let window = self.experiment.window_of(cell);
        command.args(["--steady", &format!("{}ms", window.as_millis())]);
        command.args(["--warmup", &format!("{}ms", self.experiment.warm_up.as_millis())]);
        let limit = self.load_max(cell);
        // Twice a window: of the last five, nine tenths lie between two looks at least.
        let on_file = self.experiment.systems[cell.system].file_client().is_some();
        let looks = self.looks(window / 2, way, on_file || way.is_none());
        let (said, sighted) = self.finish_seen(command, limit, looks)?;
        self.judge(cell, said, &sighted, way)
    }

    /// The same as [`finish`](Self::finish), looked at meanwhile; and what was seen. What is wrong there goes before
    /// what the load complained of.
    pub(super) fn finish_seen(
        &self,
        command: Command,
        limit: Duration,
        mut looks: Looks<'_>,
    ) -> miette::Result<(Value, Sighted)> {
        let said = self.finish(command, limit, |pid, spent| looks.look(pid, spent));
        looks.trouble()?;
        Ok((said?, looks.end()?))
    }
}

/// What a command of ours complained of, in a line: what stands behind `Error:`, with its help; of one
/// that was killed, that it was.
pub(super) fn complaint(ended: &load::Ended) -> String {
    let errors = &ended.errors;
    let begin = errors.find("Error:").map_or(0, |at| at + "Error:".len());
    let words = errors[begin..].split_whitespace();
    // A mark, and lines that lead to causes, are for terminals.
    let words: Vec<&str> = words.filter(|word| word.chars().any(|c| c.is_ascii())).collect();
    match words.as_slice() {
        [] => match ended.status.signal() {
            Some(signal) => format!("it was killed by signal {signal}"),
            None => "it ended without a word".to_owned(),
        },
        words => words.join(" "),
    }
}

/// The load, as `bench` is asked for it.
fn asked(command: &mut Command, load: &plan::Load) {
    // How a client comes to its file is not the load's, nor how many disks there are.
    let plan::Load {
        block_bytes,
        pattern,
        pace,
        jobs,
        size,
        sync,
        fsync,
        cache: _,
        client_memory: _,
        client_cpu: _,
        disks: _,
        files,
    } = load;
    if files.is_some() {
        // Which they are is told with where they are.
        command.args(["--jobs", &jobs.to_string()]);
        return;
    }
    command.args(["--bs", &block_bytes.to_string(), "--rw", &pattern.to_string()]);
    command.args(["--numjobs", &jobs.to_string()]);
    match pace {
        Pace::Closed { depth } => command.args(["--iodepth", &depth.to_string()]),
        // A schedule that is late has more in flight; so many slots hold it until it is told.
        Pace::Open { rate, .. } => command.args(["--rate", &rate.to_string(), "--iodepth", "1024"]),
    };
    if let Pace::Open { arrivals: Arrivals::Poisson, .. } = pace {
        command.arg("--poisson");
    }
    if let Some(size) = size {
        command.args(["--size", &size.to_string()]);
    }
    if *sync {
        command.arg("--sync");
    }
    if let Some(every) = fsync {
        command.args(["--fsync", &every.to_string()]);
    }
}

/// An error of the testbed's, as commands tell theirs.
pub(super) fn tell(error: testbed::Error) -> miette::Report {
    miette::miette!("{error}")
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_complaint_is_a_line_with_its_help() {
        let said = |errors: &str| {
            let (status, printed) = (ExitStatus::from_raw(256), String::new());
            complaint(&load::Ended { status, printed, errors: errors.to_owned() })
        };
        let errors = "plateway: disk null: connected\nError:   × file:a holds data: expected zeros\n  │ seen 1\n  help: say so\n\n";
        assert_eq!(said(errors), "file:a holds data: expected zeros seen 1 help: say so");
        assert_eq!(said("killed\n"), "killed");
        assert_eq!(said(" \n"), "it ended without a word");
        let (status, printed, errors) = (ExitStatus::from_raw(9), String::new(), String::new());
        let killed = load::Ended { status, printed, errors };
        assert_eq!(complaint(&killed), "it was killed by signal 9");
    }
}
