//! Walks the table of [`crate::steps`]: one step after the other, going on after a failure, a
//! summary last.
//!
//! What a step prints goes through unchanged, so that each crate's `test result:` line can be seen
//! and counted. There is no time limit on a step: each hangs only if something is broken, and then
//! the last header says where.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use crate::steps::{NOT_PERMITTED, Run, STEPS, Step};
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
    /// Print the table and run nothing.
    #[arg(long)]
    list: bool,
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
        let named = |step: &Step| self.only.iter().any(|name| name == step.name);
        let needed =
            |step: &Step| STEPS.iter().any(|other| named(other) && other.needs == Some(step.name));
        let chosen = |step: &&Step| {
            (self.only.is_empty() || named(step) || needed(step))
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

/// Runs the chosen steps; whether all passed.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    let steps = options.choose()?;
    ensure!(!steps.is_empty(), "nothing is left to run");
    if options.list {
        for step in steps {
            println!("{:<12} {}", step.name, step.proves);
        }
        return Ok(true);
    }
    let began = Instant::now();
    let mut ended: BTreeMap<&'static str, (Ended, Duration)> = BTreeMap::new();
    let mut said: Vec<(&'static str, LastWords)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let place = format!("{}/{} {}", index + 1, steps.len(), step.name);
        let at = minutes(began.elapsed());
        let blocker = step
            .needs
            .filter(|needed| matches!(ended.get(needed), Some((end, _)) if *end != Ended::Passed));
        let start = Instant::now();
        let end = match blocker {
            Some(needed) => {
                println!("\n==== {place} (at {at}): not run, since {needed} failed");
                Ended::Blocked(needed)
            }
            None => {
                let (end, words) = perform(tree, step, &format!("==== {place} (at {at})"));
                if end == Ended::Failed {
                    said.push((step.name, words));
                }
                end
            }
        };
        ended.insert(step.name, (end, start.elapsed()));
    }
    print!("{}", summary(&steps, &ended, &said, began.elapsed()));
    Ok(ended.values().all(|(end, _)| matches!(end, Ended::Passed | Ended::Skipped)))
}

/// Runs one step under its header; and what it said. A step that cannot even start has failed; the
/// rest still runs.
fn perform(tree: &Tree, step: &Step, header: &str) -> (Ended, LastWords) {
    let mut words = LastWords::default();
    let passed = match &step.run {
        Run::Command(make) => {
            let mut command = make(tree);
            println!("\n{header}: {}", tree::words(&command));
            match tree::exit_code_heard(&mut command) {
                Ok((Some(NOT_PERMITTED), _)) => return (Ended::Skipped, words),
                Ok((code, heard)) => {
                    words = heard;
                    Ok(code == Some(0))
                }
                Err(error) => Err(error),
            }
        }
        Run::Check(words, check) => {
            println!("\n{header}: {words}");
            check(tree)
        }
    };
    match passed {
        Ok(true) => (Ended::Passed, words),
        Ok(false) => {
            println!("---- {} FAILED", step.name);
            (Ended::Failed, words)
        }
        Err(error) => {
            let line = format!("---- {} FAILED: {error:#}", step.name);
            println!("{line}");
            words.hear(&line);
            (Ended::Failed, words)
        }
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
            only: vec!["unit".into(), "format".into(), "demo".into()],
            skip: vec!["demo".into()],
            list: false,
        };
        let names: Vec<_> = options.choose().unwrap().iter().map(|step| step.name).collect();
        assert_eq!(names, ["format", "unit", "release"], "demo needs release");
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
