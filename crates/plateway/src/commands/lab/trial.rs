//! A trial: a system from a fresh start, with a fresh path and connection, under one load.
//!
//! ```text
//!   path -> system -> bench: every block written, then measured until it is steady -> all of it gone
//! ```
//! The load is `plateway bench --steady` in a process of its own, pinned to the near end's CPUs.
//! While it measures, CPUs and interfaces are looked at twice a window; what they did between the
//! first and the last look of the last five windows is what operations cost. Units: those of
//! [`lab::plan::Measure`]. Errors: a trial that measured nothing says why.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::plan::{
    self, Arrivals, Backing, Cell, Experiment, Means, Measure, Measures, Pace, TrialOutcome,
};
use lab::statistics::steady::{WINDOWS, WINDOWS_MAX};
use serde::Serialize;
use serde_json::Value;
use testbed::{Abilities, Counters, CpuLook, load, process};

use super::Ends;
use super::far;
use super::road::{self, NEAR, Road, Site};
use crate::commands::session::Interrupt;

/// How much longer than its windows a load may take: to connect, and to wait for an answer.
const SLACK: Duration = Duration::from_secs(90);
/// How bench refuses to write what is not blank.
const HOLDS_DATA: &str = "holds data";
/// A trial from whose CPUs the machine's host took more than this is unsteady.
const STEAL_MAX: f64 = 0.02;
/// Above this share of a CPU, others work on an end's CPUs.
const OTHERS_MAX: f64 = 0.1;
/// From here on the client may be what limits.
const CLIENT_BUSY: f64 = 0.9;

/// What became of a trial, beside what it is judged by.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Seen {
    /// Shares of a CPU that each end used beyond what it does when idle, by task for the most of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) near: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) far: Option<End>,
    /// Frames and bytes on the wire, both ways, an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frames_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wire_bytes_per_op: Option<f64>,
    /// Bytes between the first router and the core, both ways, an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) core_bytes_per_op: Option<f64>,
    /// Frames that the near end's interface dropped, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frames_dropped: Option<u64>,
    /// Of the frames that came to both ends, how many the path lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost_share: Option<f64>,
    /// Operations a second of each window.
    pub(super) windows: Vec<f64>,
    /// What to know before believing it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// What `bench` printed.
    pub(super) bench: Value,
}

/// What an end's CPUs did.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct End {
    /// Processor time an operation, in microseconds; absent where others use these CPUs, or what is
    /// between the ends does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_op: Option<f64>,
    /// Of all its CPUs together.
    pub(super) busy: f64,
    pub(super) steal: f64,
    /// Names of tasks with their shares, most first.
    pub(super) by_task: Vec<(String, f64)>,
}

/// What runs the trials of an experiment.
pub(super) struct Lab<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) ends: &'a Ends,
    /// What the kernel can do to frames; of a plan that has a path.
    pub(super) abilities: Option<&'a Abilities>,
    /// A folder for what trials leave, which goes with the lab.
    pub(super) home: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    /// What each end's CPUs do while nobody does anything for us.
    pub(super) idle: Idle,
    /// Disks whose data are ours, as the plan names them: several systems may be over one.
    pub(super) ours: RefCell<BTreeSet<String>>,
}

/// The share of its CPUs that an end uses by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    pub(super) near: f64,
    pub(super) far: f64,
}

impl Idle {
    /// Looks for so long.
    pub(super) fn measure(ends: &Ends, time: Duration) -> miette::Result<Idle> {
        let before = CpuLook::now().map_err(tell)?;
        std::thread::sleep(time);
        let after = CpuLook::now().map_err(tell)?;
        let busy = |cpus: &[usize]| -> miette::Result<f64> {
            Ok(used(&before, &after, cpus, &BTreeMap::new())?.busy)
        };
        Ok(Idle { near: busy(&ends.near)?, far: busy(&ends.far)? })
    }

    /// Whether so little runs there that what is beyond it is ours.
    pub(super) fn is_quiet(self) -> bool {
        self.near <= OTHERS_MAX && self.far <= OTHERS_MAX
    }
}

/// `near 3%, far 100%`.
impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "near {:.0}%, far {:.0}%", self.near * 100.0, self.far * 100.0)
    }
}

/// What was seen at a moment of a trial.
struct Look {
    /// Seconds since 1970.
    at: f64,
    cpu: CpuLook,
    /// Of the near end's interface, where there is one.
    counters: Option<Counters>,
    /// Of the first router's interface to the core, where there is one.
    core: Option<Counters>,
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
        std::fs::create_dir_all(&home)
            .map_err(|error| miette::miette!("cannot make {}: {error}", home.display()))?;
        let mut road = match (cell.path, &self.abilities) {
            (Some(path), Some(abilities)) => {
                let (ends, home, interrupt) = (&self.ends, &*home, self.interrupt);
                let site = Site { ends, abilities, home, interrupt };
                Some(Road::lay(&self.experiment.paths[path], &site)?)
            }
            _ => None,
        };
        // What runs at the far end runs until the trial is over.
        let (mut server, mut foreign) = (None, None);
        let uri = match (&system.means, &road) {
            (Means::Disk { uri }, _) => uri.clone(),
            (Means::Serve(serve), Some(road)) => {
                let far = road.far();
                server = Some(far::serve(serve, far, &self.ends, &home, self.interrupt)?);
                far::uri(serve)
            }
            (Means::Target(target), Some(road)) => {
                let far = road.far();
                let mut running =
                    far::Foreign::start(target, far, &self.ends, &home, self.interrupt)?;
                if target.ready.is_none() {
                    self.try_until_there(cell, &mut running, target, Some(road))?;
                }
                foreign = Some(running);
                target.uri.clone()
            }
            (_, None) => return Err(miette::miette!("{} is reached over no path", system.name)),
        };
        let mut done = self.measure_filled(cell, &uri, road.as_ref());
        if let (Some(road), Ok((_, seen))) = (&mut road, &mut done) {
            let judged = road.judge()?;
            seen.lost_share = judged.lost_share;
            seen.notes.extend(judged.notes);
        }
        drop((server, foreign));
        // What a trial leaves is looked at by nobody once it is told.
        let _ = std::fs::remove_dir_all(&home);
        done
    }

    /// A target that has no command to say whether it is ready is asked for a block until it answers.
    fn try_until_there(
        &self,
        cell: &Cell,
        running: &mut far::Foreign,
        target: &plan::Target,
        road: Option<&Road>,
    ) -> miette::Result<()> {
        let end = Instant::now() + far::START;
        loop {
            let mut command = self.bench(cell, &target.uri, road)?;
            command.args(["--rw", "read", "--iodepth", "1", "--time", "1ms", "--warmup", "0"]);
            match self.finish(command, far::START, |_| {}) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > end => return Err(why),
                Err(_) => running.is_up(&target.start[0])?,
            }
            far::pause(self.interrupt)?;
        }
    }

    /// Measures, once every block that is read was written. A disk that holds data is not ours to
    /// write, unless an earlier trial wrote them; where it is read alone, it is read as it was found.
    fn measure_filled(
        &self,
        cell: &Cell,
        uri: &str,
        road: Option<&Road>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let system = &self.experiment.systems[cell.system];
        let pattern = cell.load.pattern;
        let fills = pattern.reads() && system.backing != Some(Backing::Null);
        let done = match self.measure(cell, uri, road, fills) {
            Err(why) if fills && !pattern.writes() && why.to_string().contains(HOLDS_DATA) => {
                let (outcome, mut seen) = self.measure(cell, uri, road, false)?;
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

    /// What holds the blocks of a cell, as the plan names it.
    fn disk(&self, cell: &Cell) -> &str {
        match &self.experiment.systems[cell.system].means {
            Means::Disk { uri } => uri,
            Means::Serve(serve) => &serve.disk,
            Means::Target(target) => &target.uri,
        }
    }

    /// `plateway bench` at the near end.
    fn bench(&self, cell: &Cell, uri: &str, road: Option<&Road>) -> miette::Result<Command> {
        let near = road.map(Road::near);
        let mut command = process::command(near, &super::list(&self.ends.near), &super::program()?);
        command.args(["bench", uri, "--json"]);
        if self.ours.borrow().contains(self.disk(cell)) {
            command.arg("--overwrite");
        }
        Ok(command)
    }

    /// Runs a bench to its end; what it printed.
    fn finish(
        &self,
        command: Command,
        limit: Duration,
        mut look: impl FnMut(Duration),
    ) -> miette::Result<Value> {
        let ended = load::watch(command, limit, |_, spent| {
            look(spent);
            self.interrupt.flow()
        })
        .map_err(tell)?;
        if !ended.status.success() {
            return Err(miette::miette!("{}", complaint(&ended.errors)));
        }
        serde_json::from_str(&ended.printed)
            .map_err(|error| miette::miette!("bench printed no JSON: {error}"))
    }

    fn measure(
        &self,
        cell: &Cell,
        uri: &str,
        road: Option<&Road>,
        fills: bool,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let window = self.experiment.window_of(cell);
        let mut command = self.bench(cell, uri, road)?;
        if fills {
            command.arg("--fill");
        }
        command.args(["--steady", &format!("{}ms", window.as_millis())]);
        command.args(["--warmup", &format!("{}ms", self.experiment.warm_up.as_millis())]);
        asked(&mut command, &cell.load);
        let limit = self.experiment.warm_up + window * (WINDOWS_MAX as u32 + 1) + SLACK;
        // Twice a window: of the last five, nine tenths lie between two looks at least.
        let mut looks = Looks { every: window / 2, road, seen: Vec::new(), trouble: None };
        let said = self.finish(command, limit, |spent| looks.look(spent))?;
        if let Some(trouble) = looks.trouble {
            return Err(trouble);
        }
        self.judge(cell, said, &looks.seen, road)
    }

    /// Makes measures of what a bench printed and of what was seen meanwhile.
    fn judge(
        &self,
        cell: &Cell,
        said: Value,
        looks: &[Look],
        road: Option<&Road>,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let steady = &said["steady"];
        let iops = steady["iops"].as_f64().unwrap_or(0.0);
        let mut is_steady = steady["is_steady"].as_bool().unwrap_or(false);
        let mut seen = Seen { notes: notes(&said), ..Seen::default() };
        let numbers = |value: &Value| -> Vec<f64> {
            value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let windows =
            Windows { iops: numbers(&steady["windows"]), edges: numbers(&steady["edges_unix"]) };
        let between = road.map(Road::between).unwrap_or_default();
        if let Some((from, to, ops)) = windows.between_looks(looks) {
            let seconds = to.at - from.at;
            let end = |cpus: &[usize], idle: f64| -> miette::Result<End> {
                let mut end = used(&from.cpu, &to.cpu, cpus, &between)?;
                let own = (end.busy - idle).max(0.0) * seconds * 1e6 / ops;
                end.cpu_us_per_op = self.idle.is_quiet().then_some(own);
                Ok(end)
            };
            seen.near = Some(end(&self.ends.near, self.idle.near)?);
            if cell.path.is_some() {
                seen.far = Some(end(&self.ends.far, self.idle.far)?);
            }
            if let (Some(before), Some(after)) = (from.counters, to.counters) {
                let grown = after.since(&before);
                let frames = grown.rx_packets + grown.tx_packets;
                seen.frames_per_op = Some(frames as f64 / ops);
                seen.wire_bytes_per_op = Some((grown.rx_bytes + grown.tx_bytes) as f64 / ops);
                // Not at the same moment as the near end's: so what a frame has there, which is the same
                // at any time, and a frame of one is a frame of the other.
                let core = from.core.zip(to.core).map(|(before, after)| after.since(&before));
                seen.core_bytes_per_op = core.map(|core| {
                    let of_core = (core.rx_packets + core.tx_packets).max(1) as f64;
                    (core.rx_bytes + core.tx_bytes) as f64 / of_core * frames as f64 / ops
                });
                let dropped = grown.rx_dropped + grown.tx_dropped;
                if dropped > 0 {
                    seen.notes.push("the link dropped frames".to_owned());
                    seen.frames_dropped = Some(dropped);
                }
            }
        }
        let steal = [&seen.near, &seen.far].into_iter().flatten().map(|end| end.steal);
        let steal = steal.fold(0.0, f64::max);
        if steal > STEAL_MAX {
            is_steady = false;
            let most = STEAL_MAX * 100.0;
            seen.notes
                .push(format!("unsteady: the machine's host took more than {most}% of a CPU"));
        }
        let ends = || [&seen.near, &seen.far].into_iter().flatten();
        let cpu: Option<f64> = ends().map(|end| end.cpu_us_per_op).sum();
        let cpu = cpu.filter(|_| ends().next().is_some());
        let path = cell.path.map(|at| &self.experiment.paths[at]).zip(self.abilities.as_ref());
        if path.is_some_and(|(path, abilities)| road::is_shared(path, abilities)) {
            // What is between the ends works on their CPUs.
            for end in [&mut seen.near, &mut seen.far].into_iter().flatten() {
                end.cpu_us_per_op = None;
            }
        }
        let measures = measures(&said, iops, cpu);
        seen.windows = windows.iops;
        seen.bench = said;
        Ok((TrialOutcome::Measured { measures, is_steady }, seen))
    }
}

/// What a command of ours complained of, in a line: what stands behind `Error:`, with its help.
fn complaint(errors: &str) -> String {
    let begin = errors.find("Error:").map_or(0, |at| at + "Error:".len());
    let words = errors[begin..].split_whitespace();
    // A mark, and lines that lead to causes, are for terminals.
    let words: Vec<&str> = words.filter(|word| word.chars().any(|c| c.is_ascii())).collect();
    match words.as_slice() {
        [] => "it ended without a word".to_owned(),
        words => words.join(" "),
    }
}

/// The load, as `bench` is asked for it.
fn asked(command: &mut Command, load: &plan::Load) {
    let plan::Load { block_bytes, pattern, pace, jobs, size, sync, fsync } = load;
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

/// What a trial is judged by. Operations and bytes a second are those of the last five windows, the
/// rest is of all that was measured.
fn measures(said: &Value, iops: f64, cpu_us: Option<f64>) -> Measures {
    let latency = &said["latency_ns"];
    Measure::of(said["requests"].as_u64().unwrap_or(0), |measure| match measure {
        Measure::Iops => Some(iops),
        Measure::Throughput => Some(iops * said["block_bytes"].as_f64()?),
        Measure::LatencyMean => latency["mean"].as_f64(),
        Measure::CpuPerOp => cpu_us,
        percentile => latency[percentile.word()].as_f64(),
    })
}

/// What bench itself says of its figures, and whether it was the limit.
fn notes(said: &Value) -> Vec<String> {
    let words = said["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // How busy exactly is among what is kept; so the same note is the same in each trial.
    let others = words.filter(|words| !words.contains("the bench itself was the limit"));
    let mut notes: Vec<String> = others.map(str::to_owned).collect();
    let busy = said["bench_thread_busy"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    if busy.fold(0.0, f64::max) > CLIENT_BUSY {
        notes.push("the client was the limit".to_owned());
    }
    notes
}

/// Looks at CPUs and interfaces, now and then.
struct Looks<'a> {
    every: Duration,
    road: Option<&'a Road>,
    seen: Vec<Look>,
    trouble: Option<miette::Report>,
}

impl Looks<'_> {
    fn look(&mut self, spent: Duration) {
        if self.trouble.is_some() || spent < self.every * self.seen.len() as u32 {
            return;
        }
        match self.now() {
            Ok(look) => self.seen.push(look),
            Err(error) => self.trouble = Some(tell(error)),
        }
    }

    fn now(&self) -> testbed::Result<Look> {
        let (counters, core) = match self.road {
            Some(road) => (Some(road.near().interface(NEAR).counters()?), road.core_counters()?),
            None => (None, None),
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Ok(Look { at, cpu: CpuLook::now()?, counters, core })
    }
}

/// The windows of a trial: operations a second in each, and when they began and ended, in seconds
/// since 1970: an edge more than windows.
struct Windows {
    iops: Vec<f64>,
    edges: Vec<f64>,
}

impl Windows {
    /// The first and the last look within the last five, and how many operations there were between
    /// them; `None` if there were no two looks, or none.
    fn between_looks<'l>(&self, looks: &'l [Look]) -> Option<(&'l Look, &'l Look, f64)> {
        let begin = *self.edges.get(self.edges.len().checked_sub(WINDOWS + 1)?)?;
        let end = *self.edges.last()?;
        let from = looks.iter().find(|look| look.at >= begin)?;
        let to = looks.iter().rev().find(|look| look.at <= end)?;
        let ops = self.operations(from.at, to.at);
        (from.at < to.at && ops > 0.0).then_some((from, to, ops))
    }

    /// Operations between two moments.
    fn operations(&self, from: f64, to: f64) -> f64 {
        let each = self.edges.windows(2).zip(&self.iops);
        each.map(|(edges, iops)| (to.min(edges[1]) - from.max(edges[0])).max(0.0) * iops).sum()
    }
}

/// What some CPUs did between two looks.
/// Tasks of what runs between the ends have its name.
fn used(
    before: &CpuLook,
    after: &CpuLook,
    cpus: &[usize],
    between: &BTreeMap<u32, &str>,
) -> miette::Result<End> {
    const TASKS: usize = 8;
    let own = std::process::id();
    let mut end = End::default();
    let mut tasks: BTreeMap<String, f64> = BTreeMap::new();
    for cpu in cpus {
        let seen = before.until(after, *cpu).map_err(tell)?;
        // Who looks is not what is looked at.
        end.busy += (seen.busy - seen.of_process(own)).max(0.0);
        end.steal += seen.steal;
        for task in seen.by_task.iter().filter(|task| task.pid != own) {
            let name = between.get(&task.pid).map_or(&*task.name, |name| *name);
            *tasks.entry(name.to_owned()).or_default() += task.share;
        }
        *tasks.entry("interrupts".to_owned()).or_default() += seen.without_tasks();
    }
    end.by_task = tasks.into_iter().collect();
    end.by_task.sort_by(|a, b| b.1.total_cmp(&a.1));
    end.by_task.truncate(TASKS);
    Ok(end)
}

/// An error of the testbed's, as commands tell theirs.
pub(super) fn tell(error: testbed::Error) -> miette::Report {
    miette::miette!("{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_a_line_with_its_help() {
        let errors = "plateway: disk null: connected\nError:   × file:a holds data: expected zeros\n  │ seen 1\n  help: say so\n\n";
        assert_eq!(complaint(errors), "file:a holds data: expected zeros seen 1 help: say so");
        assert_eq!(complaint("killed\n"), "killed");
        assert_eq!(complaint(" \n"), "it ended without a word");
    }

    #[test]
    fn operations_between_two_moments_are_those_of_the_windows_there() {
        let windows = Windows { iops: vec![100.0, 300.0, 200.0], edges: vec![1.0, 2.0, 3.0, 5.0] };
        assert_eq!(windows.operations(1.0, 5.0), 800.0);
        assert_eq!(windows.operations(1.5, 2.5), 50.0 + 150.0);
        assert_eq!(windows.operations(4.0, 9.0), 200.0, "nothing is known of what was later");
        assert!(windows.between_looks(&[]).is_none(), "there are no five windows");
    }
}
