//! `plateway sim`: runs seeds of the simulator on all CPUs and says which fail, and how to run one
//! again.
//!
//! Exit code 0: every seed passed, or a planted bug was found. 1: a seed failed, two runs of one
//! seed differed, or a planted bug was not found. The hash that is printed is that of all traces
//! together, whatever the order in which they ran.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde::{Serialize, Serializer};
use sim::{Failed, Passed, Plant, SCENARIOS};

use crate::cli::SimArgs;
use crate::config::text::Count;

/// Failures that are kept; a bug that breaks everything needs no more.
const FAILURES_MAX: usize = 100;

/// What the threads have found so far, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    passed: u64,
    steps: u64,
    blocks_checked: u64,
    requests: u64,
    #[serde(serialize_with = "as_hex")]
    hash: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    planted: Option<String>,
    #[serde(serialize_with = "as_list")]
    failures: BTreeMap<u64, Failure>,
    /// The trace of the only seed, if it was asked for.
    #[serde(skip)]
    trace: Vec<String>,
}

fn as_hex<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:016x}"))
}

fn as_list<S: Serializer>(
    failures: &BTreeMap<u64, Failure>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(failures.values())
}

/// A seed that failed.
#[derive(Clone, Debug, Serialize)]
struct Failure {
    seed: u64,
    scenario: String,
    what: String,
    replay: String,
    /// Whether a planted error is to blame: the seed passes without it.
    #[serde(skip)]
    by_plant: bool,
    #[serde(skip)]
    trace: Vec<String>,
}

/// Runs seeds.
pub(crate) fn run(args: &SimArgs) -> miette::Result<()> {
    let plan = Plan::of(args)?;
    // A panic in a simulated host is a finding, with its words in the report; only a replay shows
    // where it happened at once.
    if !args.trace {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let summary = plan.run(args.seeds);
    let _ = std::panic::take_hook();
    if args.trace {
        let failed = summary.failures.values().flat_map(|failure| &failure.trace);
        let lines = summary.trace.iter().chain(failed);
        lines.map(|line| format!("{line}\n")).try_for_each(|line| super::print(&line))?;
    }
    if args.json {
        super::print_json(&summary)?;
    }
    plan.judge(args, &summary)
}

/// What every thread does.
struct Plan<'a> {
    args: &'a SimArgs,
    scenario: Option<&'static str>,
    plant: Option<Plant>,
}

impl Plan<'_> {
    fn of(args: &SimArgs) -> miette::Result<Plan<'_>> {
        let planted = match &args.plant {
            None => None,
            Some(name) => Some(find_plant(name)?),
        };
        let scenario = match &args.scenario {
            Some(name) => Some(find_scenario(name)?),
            // A bug is looked for where it can show.
            None => planted.map(|(_, scenario)| scenario),
        };
        Ok(Plan { args, scenario, plant: planted.map(|(plant, _)| plant) })
    }

    /// Runs the seeds on all CPUs.
    fn run(&self, seeds: u64) -> Summary {
        let threads = reactor::allowed_cpus().len().min(seeds as usize).max(1);
        let template = "{bar:32} {pos}/{len} seeds  {msg}  {eta} left";
        let bar = super::progress_bar(seeds, template);
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let planted = self.args.plant.clone();
        let found = Mutex::new(Summary { seeds, planted, ..Summary::default() });
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        let index = next.fetch_add(1, Relaxed);
                        if index >= seeds {
                            return;
                        }
                        let (result, trace) = self.seed(self.args.seed.wrapping_add(index));
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        // Of many seeds only those that fail are worth reading.
                        if seeds == 1 {
                            found.trace = trace;
                        }
                        let enough = found.add(result);
                        bar.set_message(format!("{} failed", found.failures.len()));
                        bar.inc(1);
                        over.fetch_or(enough, Relaxed);
                    }
                });
            }
        });
        bar.finish_and_clear();
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a seed, twice where asked. The trace of one that fails is in its failure; that of one
    /// that passes is returned beside it.
    fn seed(&self, seed: u64) -> ((u64, Result<Passed, Failure>), Vec<String>) {
        let (result, trace) = match self.args.trace {
            true => sim::trace_seed(seed, self.scenario, self.plant),
            false => (sim::run_seed(seed, self.scenario, self.plant), Vec::new()),
        };
        match result {
            Ok(passed) if self.args.twice => ((seed, self.again(seed, passed)), trace),
            Ok(passed) => ((seed, Ok(passed)), trace),
            Err(Failed { scenario, what, .. }) => {
                let replay = self.replay(seed, scenario);
                let by_plant =
                    self.plant.is_some() && sim::run_seed(seed, self.scenario, None).is_ok();
                let scenario = scenario.to_owned();
                ((seed, Err(Failure { seed, scenario, what, replay, by_plant, trace })), Vec::new())
            }
        }
    }

    /// Runs a seed that passed once more: it must do the same.
    fn again(&self, seed: u64, first: Passed) -> Result<Passed, Failure> {
        let what = match sim::run_seed(seed, self.scenario, self.plant) {
            Ok(second) if second == first => return Ok(first),
            Ok(second) => format!(
                "two runs differ: hash {:016x} after {} steps, then {:016x} after {}",
                first.hash, first.steps, second.hash, second.steps
            ),
            Err(failed) => format!("the second run failed where the first passed: {}", failed.what),
        };
        let scenario = self.scenario.unwrap_or("its own").to_owned();
        let replay = format!("{} --twice", self.replay(seed, &scenario));
        Err(Failure { seed, scenario, what, replay, by_plant: false, trace: Vec::new() })
    }

    /// The one command that runs it again.
    fn replay(&self, seed: u64, scenario: &str) -> String {
        let mut line = format!("plateway sim --seed {seed}");
        if self.scenario.is_some() {
            line.push_str(&format!(" --scenario {scenario}"));
        }
        if let Some(plant) = &self.args.plant {
            line.push_str(&format!(" --plant {plant}"));
        }
        line + " --trace"
    }

    /// Says how it went, and whether that is well.
    fn judge(&self, args: &SimArgs, summary: &Summary) -> miette::Result<()> {
        let say = |text: String| if args.json { Ok(()) } else { super::print(&text) };
        if let Some(planted) = &summary.planted {
            return match summary.failures.values().find(|failure| failure.by_plant) {
                Some(failure) => {
                    let Failure { seed, what, .. } = failure;
                    say(format!("{planted} was found by seed {seed}: {what}\n"))
                }
                None => Err(miette::miette!(
                    "{planted} was not found in {} seeds; {} of them fail without it, too",
                    summary.seeds,
                    summary.failures.len()
                )),
            };
        }
        let Summary { seeds, passed, steps, blocks_checked, requests, hash, .. } = summary;
        let twice = if args.twice { ", each twice with the same trace" } else { "" };
        say(format!(
            "{passed} of {} passed{twice}: {steps} steps, {requests} requests, {blocks_checked} blocks checked, hash {hash:016x}\n",
            Count(*seeds, "seed"),
        ))?;
        let Some(first) = summary.failures.values().next() else { return Ok(()) };
        for failure in summary.failures.values() {
            let Failure { seed, scenario, what, replay, .. } = failure;
            say(format!("seed {seed} ({scenario}): {what}\n  {replay}\n"))?;
        }
        Err(miette::miette!(
            help = format!("run it again: {}", first.replay),
            "{} of {seeds} seeds failed; seed {} ({}): {}",
            summary.failures.len(),
            first.seed,
            first.scenario,
            first.what
        ))
    }
}

impl Summary {
    /// Takes a result in; returns whether that is enough.
    fn add(&mut self, (seed, result): (u64, Result<Passed, Failure>)) -> bool {
        match result {
            Ok(passed) => {
                self.passed += 1;
                self.steps += passed.steps;
                self.blocks_checked += passed.checked;
                self.requests += passed.requests;
                // Order does not matter, and equal traces of different seeds do not cancel out.
                let own = passed.hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.hash = self.hash.wrapping_add(own.wrapping_mul(0xd6e8_feb8_6659_fd93));
                false
            }
            Err(failure) => {
                let by_plant = failure.by_plant;
                self.failures.insert(seed, failure);
                by_plant || self.failures.len() >= FAILURES_MAX
            }
        }
    }
}

fn find_plant(name: &str) -> miette::Result<(Plant, &'static str)> {
    let found = Plant::ALL.iter().find(|(known, _, _)| *known == name);
    found.map(|(_, plant, scenario)| (*plant, *scenario)).ok_or_else(|| {
        let names: Vec<&str> = Plant::ALL.iter().map(|(name, _, _)| *name).collect();
        miette::miette!("--plant: expected one of {}, seen {name:?}", names.join(", "))
    })
}

fn find_scenario(name: &str) -> miette::Result<&'static str> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.map(|scenario| scenario.name).ok_or_else(|| {
        let about =
            |scenario: &sim::Scenario| format!("\n  {:<12} {}", scenario.name, scenario.about);
        let list: String = SCENARIOS.iter().map(about).collect();
        miette::miette!("--scenario: expected one of the following, seen {name:?}{list}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gives_one_seed_and_asks_for_its_trace_gets_it() {
        let scenario = Some("calm".to_owned());
        let (seed, twice, json) = (3, false, false);
        for (seeds, trace, expected) in [(1, true, true), (2, true, false), (1, false, false)] {
            let (scenario, plant) = (scenario.clone(), None);
            let args = SimArgs { seed, seeds, twice, plant, scenario, trace, json };
            let found = Plan::of(&args).expect("a known scenario").run(seeds);
            assert_eq!(found.passed, seeds);
            assert_eq!(!found.trace.is_empty(), expected, "{seeds} seeds, trace {trace}");
        }
    }
}
