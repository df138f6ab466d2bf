//! Walks the table of [`crate::steps`], going on after a failure, a summary last. Steps that may have
//! company run two at a time, where the machine has two processors.
//!
//! What a step prints comes at once. That of a step by itself goes through unchanged, so that each
//! crate's `test result:` line can be seen and counted; that of one beside another has its name before
//! each line. There is no time limit on a step: each hangs only if something is broken, and then the
//! headers say where. Whether the disk has room is looked at before and after: without, most steps fail, each
//! in its own words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use block::ByteCount;
use clap::Args;

use crate::steps::{Company, NOT_PERMITTED, Run, STEPS, Step};
use crate::tree::{self, LastWords, Tree};

/// What to run of the table.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Run only these steps (names with commas between them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these steps out.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Run one step after the other.
    #[arg(long)]
    one_by_one: bool,
    /// Print the table and run nothing.
    #[arg(long)]
    list: bool,
    /// Run this check of the table alone, in this process, as `run` asks another process to.
    #[arg(long, hide = true)]
    check: Option<String>,
}

impl Options {
    /// Runs these steps and no other.
    pub(crate) fn only(names: &[&str]) -> Self {
        Self { only: names.iter().map(|name| (*name).to_owned()).collect(), ..Self::default() }
    }

    /// The steps that are left, in the table's order, with the steps that they need; an unknown
    /// name is an error, since a misspelt `--only` that runs nothing would look like a pass.
    fn choose(&self) -> Result<Vec<&'static Step>> {
        for name in self.only.iter().chain(&self.skip) {
            let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
            ensure!(
                names.contains(&name.as_str()),
                "no step is named {name:?}; there are {}",
                names.join(", ")
            );
        }
        let mut named: Vec<&str> = self.only.iter().map(String::as_str).collect();
        // What a step needs stands before it.
        for step in STEPS.iter().rev().filter(|_| !self.only.is_empty()) {
            if named.contains(&step.name) {
                named.extend(step.needs);
            }
        }
        let chosen = |step: &&Step| {
            (self.only.is_empty() || named.contains(&step.name))
                && !self.skip.iter().any(|name| name == step.name)
        };
        Ok(STEPS.iter().filter(chosen).collect())
    }
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    /// It cannot be run on this machine, and has said in one line what it needs.
    Skipped,
    /// Not run, because this step failed before it.
    Blocked(&'static str),
}

/// Bytes that all steps need of the disk, also where all is compiled already; and what a first run takes,
/// about (measured without incremental compilation, with which it is as much again).
const ROOM_MIN: u64 = 2 << 30;
const ROOM_FIRST: u64 = 8 << 30;

/// Folders that steps write to, and what is free there.
fn room(tree: &Tree) -> Vec<(PathBuf, u64)> {
    let target = tree.target.ancestors().find(|folder| folder.exists());
    let folders = target.map(Path::to_owned).into_iter().chain([PathBuf::from("/var/tmp")]);
    folders.filter_map(|at| testbed::scratch::free_bytes(&at).ok().map(|free| (at, free))).collect()
}

/// What to say of folders with less room than this.
fn want_of_room(room: &[(PathBuf, u64)], least: u64) -> Option<String> {
    let (at, free) = room.iter().min_by_key(|(_, free)| *free).filter(|(_, free)| *free < least)?;
    Some(format!("{} has {} free", at.display(), ByteCount(*free)))
}

/// Where a step is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Waiting,
    Running,
    Ended(Ended, Duration),
}

/// The steps of a run, in the table's order, and where each is.
struct Round {
    steps: Vec<&'static Step>,
    at: Vec<At>,
    /// How many may run at once.
    width: usize,
}

impl Round {
    fn new(steps: Vec<&'static Step>, width: usize) -> Self {
        Self { at: vec![At::Waiting; steps.len()], steps, width }
    }

    /// The step that begins now, if one does: the first that waits and whose needs
    /// have ended. Nobody overtakes one that is to be alone.
    fn next(&self) -> Option<usize> {
        let is_ready = |step: &Step| step.needs.iter().all(|needed| self.has_ended(needed));
        let (index, step) = (0..)
            .zip(&self.steps)
            .find(|(index, step)| self.at[*index] == At::Waiting && is_ready(step))?;
        let running = || self.steps.iter().zip(&self.at).filter(|(_, at)| **at == At::Running);
        let is_alone = |step: &Step| step.company == Company::Alone;
        let has_room = running().count() < self.width && !running().any(|(step, _)| is_alone(step));
        (running().count() == 0 || (has_room && !is_alone(step))).then_some(index)
    }

    /// Whether this step runs no more; one that was not chosen does not.
    fn has_ended(&self, name: &str) -> bool {
        let mut all = self.steps.iter().zip(&self.at);
        all.all(|(step, at)| step.name != name || matches!(at, At::Ended(..)))
    }

    /// The step without whose product this one says nothing, if it did not pass.
    fn blocker(&self, step: &Step) -> Option<&'static str> {
        let failed = |(needed, at): (&&'static Step, &At)| {
            let is_it = step.needs.contains(&needed.name);
            let passed = matches!(at, At::Ended(Ended::Passed, _));
            (is_it && !passed).then_some(needed.name)
        };
        self.steps.iter().zip(&self.at).find_map(failed)
    }

    /// Of those that have ended, how, and after what time.
    fn ended(&self) -> BTreeMap<&'static str, (Ended, Duration)> {
        let all = self.steps.iter().zip(&self.at);
        all.filter_map(|(step, at)| match at {
            At::Ended(end, took) => Some((step.name, (*end, *took))),
            At::Waiting | At::Running => None,
        })
        .collect()
    }
}

/// Runs the chosen steps; whether all passed.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    if let Some(name) = &options.check {
        return check(tree, name);
    }
    let steps = options.choose()?;
    ensure!(!steps.is_empty(), "nothing is left to run");
    if options.list {
        for step in steps {
            println!("{:<12} {}", step.name, step.proves);
        }
        return Ok(true);
    }
    if let Some(what) = want_of_room(&room(tree), ROOM_FIRST) {
        println!("{what}: a first run takes about {}", ByteCount(ROOM_FIRST));
    }
    let began = Instant::now();
    let width = if options.one_by_one { 1 } else { thread::available_parallelism()?.get().min(2) };
    let mut round = Round::new(steps, width);
    let mut said: Vec<(&'static str, LastWords)> = Vec::new();
    let (sender, ends) = mpsc::channel();
    thread::scope(|scope| {
        loop {
            while let Some(index) = round.next() {
                let step = round.steps[index];
                let place = format!("{}/{} {}", index + 1, round.steps.len(), step.name);
                let header = format!("==== {place} (at {})", minutes(began.elapsed()));
                if let Some(needed) = round.blocker(step) {
                    println!("\n{header}: not run, since {needed} failed");
                    round.at[index] = At::Ended(Ended::Blocked(needed), Duration::ZERO);
                    continue;
                }
                round.at[index] = At::Running;
                let (sender, start) = (sender.clone(), Instant::now());
                let is_named = step.company == Company::Beside && width > 1;
                scope.spawn(move || {
                    let (end, words) = perform(tree, step, &header, is_named);
                    let _ = sender.send((index, end, words, start.elapsed()));
                });
            }
            if !round.at.contains(&At::Running) {
                break;
            }
            let (index, end, words, took) = ends.recv().expect("we hold a sender ourselves");
            round.at[index] = At::Ended(end, took);
            if end == Ended::Failed {
                said.push((round.steps[index].name, words));
            }
        }
    });
    let ended = round.ended();
    print!("{}", summary(&round.steps, &ended, &said, began.elapsed()));
    if !said.is_empty()
        && let Some(what) = want_of_room(&room(tree), ROOM_MIN)
    {
        println!("{what}: what failed may have failed for want of it");
    }
    Ok(ended.values().all(|(end, _)| matches!(end, Ended::Passed | Ended::Skipped)))
}

/// Runs one step under its header; and what it said. A step that cannot even start has failed; the
/// rest still runs. `is_named`: each line has its name in front.
fn perform(tree: &Tree, step: &Step, header: &str, is_named: bool) -> (Ended, LastWords) {
    let mut words = LastWords::default();
    let command = match &step.run {
        Run::Command(make) => {
            let command = make(tree);
            println!("\n{header}: {}", tree::words(&command));
            Ok(command)
        }
        Run::Check(what, _) => {
            println!("\n{header}: {what}");
            process_of(tree, step)
        }
    };
    let name = is_named.then_some(step.name);
    match command.and_then(|mut command| tree::exit_code_heard(&mut command, name)) {
        Ok((Some(NOT_PERMITTED), _)) => (Ended::Skipped, words),
        Ok((Some(0), _)) => (Ended::Passed, words),
        Ok((_, heard)) => {
            println!("---- {} FAILED", step.name);
            (Ended::Failed, heard)
        }
        Err(error) => {
            let line = format!("---- {} FAILED: {error:#}", step.name);
            println!("{line}");
            words.hear(&line);
            (Ended::Failed, words)
        }
    }
}

/// A check of the table as a process of its own: what it prints is told apart from what others print.
fn process_of(tree: &Tree, step: &Step) -> Result<Command> {
    let mut command = tree.command(std::env::current_exe()?);
    command.args(["test", "--check", step.name]);
    Ok(command)
}

/// Runs a check of the table here.
fn check(tree: &Tree, name: &str) -> Result<bool> {
    let step = STEPS.iter().find(|step| step.name == name);
    match step.with_context(|| format!("no step is named {name:?}"))?.run {
        Run::Check(_, check) => check(tree),
        Run::Command(_) => anyhow::bail!("{name} is a command and no check"),
    }
}

/// The table at the end, what those said that failed, and one line with the verdict: whoever sees no
/// more than the end of it sees why.
fn summary(
    steps: &[&Step],
    ended: &BTreeMap<&'static str, (Ended, Duration)>,
    said: &[(&'static str, LastWords)],
    total: Duration,
) -> String {
    let mut text =
        format!("\n==== summary\n{:<12} {:<8} {:>8}  it proves\n", "step", "result", "seconds");
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for step in steps {
        let Some((end, took)) = ended.get(step.name) else {
            continue;
        };
        let result = match end {
            Ended::Passed => "ok",
            Ended::Failed => "FAILED",
            Ended::Skipped => "SKIPPED",
            Ended::Blocked(_) => "NOT RUN",
        };
        match end {
            Ended::Passed => {}
            Ended::Skipped => skipped.push(step.name),
            Ended::Failed | Ended::Blocked(_) => failed.push(step.name),
        }
        let seconds = took.as_secs_f64();
        text += &format!("{:<12} {result:<8} {seconds:>8.1}  {}\n", step.name, step.proves);
    }
    for (name, words) in said {
        words.lines().for_each(|line| text += &format!("{name}: {line}\n"));
    }
    if !skipped.is_empty() {
        text += &format!(
            "not permitted on this machine (see above what they need): {}\n",
            skipped.join(", ")
        );
    }
    text += &match failed.as_slice() {
        [] if !skipped.is_empty() => format!(
            "{} of {} steps passed and none failed in {}\n",
            steps.len() - skipped.len(),
            steps.len(),
            minutes(total)
        ),
        [] => format!("all {} steps passed in {}\n", steps.len(), minutes(total)),
        names => format!(
            "{} of {} steps FAILED in {}: {}\nagain: cargo xtask test --only {}\n",
            names.len(),
            steps.len(),
            minutes(total),
            names.join(", "),
            names.join(",")
        ),
    };
    text
}

/// `m:ss`.
fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_with_the_least_room_is_named() {
        let room = |bytes| vec![("/one".into(), 4 << 30), ("/other".into(), bytes)];
        assert_eq!(want_of_room(&room(1 << 30), 1 << 30), None);
        let what = want_of_room(&room(1 << 30), 2 << 30).unwrap();
        assert_eq!(what, "/other has 1 GiB free");
        assert_eq!(want_of_room(&[], 1), None);
    }

    #[test]
    fn unknown_step_is_refused_and_the_known_ones_are_named() {
        let Err(error) = Options::only(&["unti"]).choose() else {
            panic!("accepted");
        };
        let message = error.to_string();
        assert!(message.contains("unti") && message.contains("unit"), "{message}");
    }

    #[test]
    fn only_and_skip_keep_the_order_of_the_table() {
        let options = Options {
            only: vec!["record".into(), "format".into(), "demo".into()],
            skip: vec!["demo".into()],
            ..Options::default()
        };
        let names: Vec<_> = options.choose().unwrap().iter().map(|step| step.name).collect();
        let expected = ["format", "release", "build", "unit", "programs", "measured", "record"];
        assert_eq!(
            names, expected,
            "demo needs release; record needs two, which need unit and that build"
        );
    }

    /// Plays all of the table, each step ending when `pick` says so of those that run; in which order
    /// they began, and how many ran beside each.
    fn play(width: usize, pick: impl Fn(&[usize]) -> usize) -> Vec<(&'static str, usize)> {
        let mut round = Round::new(STEPS.iter().collect(), width);
        let mut began = Vec::new();
        loop {
            while let Some(index) = round.next() {
                let beside = round.at.iter().filter(|at| **at == At::Running).count();
                began.push((round.steps[index].name, beside));
                round.at[index] = At::Running;
                let needed = round.steps[index].needs;
                assert!(needed.iter().all(|needed| round.has_ended(needed)));
            }
            let running: Vec<usize> =
                (0..round.at.len()).filter(|index| round.at[*index] == At::Running).collect();
            assert!(running.len() <= width);
            let is_alone = |index: &usize| round.steps[*index].company == Company::Alone;
            assert!(running.len() < 2 || !running.iter().any(is_alone));
            if running.is_empty() {
                return began;
            }
            round.at[pick(&running)] = At::Ended(Ended::Passed, Duration::ZERO);
        }
    }

    #[test]
    fn every_step_runs_once_and_those_that_measure_run_alone() {
        for pick in [|running: &[usize]| running[0], |running: &[usize]| running[running.len() - 1]]
        {
            for width in [1, 2] {
                let mut began = play(width, pick);
                let company = began.iter().map(|(_, beside)| beside).max();
                assert_eq!(company, Some(&(width - 1)));
                began.sort();
                let names: Vec<_> = began.iter().map(|(name, _)| *name).collect();
                let mut all: Vec<_> = STEPS.iter().map(|step| step.name).collect();
                all.sort();
                assert_eq!(names, all);
            }
        }
        let one_by_one = play(1, |running| running[0]);
        let table: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        let order: Vec<_> = one_by_one.iter().map(|(name, _)| *name).collect();
        assert_eq!(order, table, "one by one they run in the table's order");
    }

    #[test]
    fn a_step_whose_need_failed_is_blocked() {
        let mut round = Round::new(Options::only(&["static"]).choose().unwrap(), 2);
        assert_eq!((round.steps[0].name, round.next()), ("release", Some(0)));
        round.at[0] = At::Running;
        assert_eq!(round.next(), None);
        round.at[0] = At::Ended(Ended::Failed, Duration::ZERO);
        assert_eq!((round.next(), round.blocker(round.steps[1])), (Some(1), Some("release")));
        round.at[0] = At::Ended(Ended::Passed, Duration::ZERO);
        assert_eq!(round.blocker(round.steps[1]), None);
    }

    #[test]
    fn a_skipped_step_is_neither_passed_nor_failed() {
        let steps = Options::only(&["format", "release", "static"]).choose().unwrap();
        let ended = BTreeMap::from([
            ("format", (Ended::Passed, Duration::ZERO)),
            ("release", (Ended::Passed, Duration::ZERO)),
            ("static", (Ended::Skipped, Duration::ZERO)),
        ]);
        let text = summary(&steps, &ended, &[], Duration::ZERO);
        assert!(text.contains("not permitted on this machine (see above what they need): static"));
        assert!(text.contains("2 of 3 steps passed and none failed"), "{text}");
    }

    #[test]
    fn one_failure_makes_the_summary_say_so() {
        let steps = Options::only(&["format", "release", "static"]).choose().unwrap();
        let ended = BTreeMap::from([
            ("format", (Ended::Passed, Duration::from_secs(1))),
            ("release", (Ended::Failed, Duration::from_secs(75))),
            ("static", (Ended::Blocked("release"), Duration::ZERO)),
        ]);
        let mut words = LastWords::default();
        ["Compiling", "FAIL: lost", "first", ""].iter().for_each(|line| words.hear(line));
        (1..=LastWords::LAST_MAX).for_each(|line| words.hear(&line.to_string()));
        let text = summary(&steps, &ended, &[("release", words)], Duration::from_secs(76));
        let said = "release: FAIL: lost\nrelease: 1\nrelease: 2\n";
        assert!(text.contains(said) && !text.contains("first"), "{text}");
        assert!(text.contains("2 of 3 steps FAILED in 1:16: release, static"), "{text}");
        assert!(text.contains("--only release,static"), "{text}");
    }
}
