//! The lab against costs that are known (`plans/truth.toml`): a delay of 200 us, and 20 us of CPU an
//! operation at either end.
//!
//! `plateway lab run` measures; of each steady round the difference between the system with the cost and
//! the one without it is divided by the cost, and the ratios are held against 1 as those of any case
//! are. Of how many rounds have to be steady, and of comparisons that came to no end, the lab's own
//! verdict is taken. In: its result file, which is there also where trials of it failed. Units:
//! microseconds. Errors: a run that left no file, with its words; a measure that no round has.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Error, Result, ensure};
use lab::plan::{GroupResults, Results};
use lab::statistics::{Bound, Estimate, Verdict, Withheld, median};
use serde_json::{Value, json};

use super::judge::Ratio;
use super::process::Bench;
use super::report::{RESTLESS, Row};
use crate::tree::words;

/// What the case is called, among the others.
pub(super) const NAME: &str = "truth";
/// About how long it takes, in seconds.
pub(super) const SECONDS: f64 = 420.0;
/// The plan, in the repository.
const PLAN: &str = "plans/truth.toml";

/// Something that is known.
struct Known {
    name: &'static str,
    /// The system that has the cost, and the one that does not.
    with: &'static str,
    without: &'static str,
    /// Where a trial says what it measured, by how much that is to be multiplied.
    at: &'static str,
    scale: f64,
    /// The cost, in microseconds.
    planted: f64,
    within: f64,
}

const KNOWN: [Known; 4] = [
    Known {
        name: "truth-delay-p50",
        with: "late",
        without: "nothing",
        at: "/measures/p50",
        scale: 1e-3,
        planted: 200.0,
        within: 0.03,
    },
    Known {
        name: "truth-delay-p99",
        with: "late",
        without: "nothing",
        at: "/measures/p99",
        scale: 1e-3,
        planted: 200.0,
        within: 0.03,
    },
    Known {
        name: "truth-cpu-near",
        with: "burns-near",
        without: "nothing",
        at: "/near/cpu_us_per_op",
        scale: 1.0,
        planted: 20.0,
        within: 0.05,
    },
    Known {
        name: "truth-cpu-far",
        with: "burns-far",
        without: "served",
        at: "/far/cpu_us_per_op",
        scale: 1.0,
        planted: 20.0,
        within: 0.05,
    },
];

/// Has the lab measure what is known; a row for each.
pub(super) fn run(bench: &Bench) -> Vec<Row> {
    let measured = measure(bench);
    KNOWN.iter().map(|known| known.row(measured.as_ref())).collect()
}

fn measure(bench: &Bench) -> Result<Value> {
    let file = bench.fresh("truth")?.join("result.json");
    let mut command = Command::new(&bench.plateway);
    command.args(["lab", "run", PLAN, "--overwrite", "--result"]).arg(&file);
    command.current_dir(bench.root());
    kept(command, &file)
}

/// What a run leaves in its result file: also one of which trials failed, whose exit code is 1.
fn kept(mut command: Command, file: &Path) -> Result<Value> {
    let output = command.output().with_context(|| words(&command))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} ({said}; {})", words(&command), output.status))?;
    serde_json::from_str(&text).context("the result file of the lab")
}

/// The trials of each round that was run to its end, in the order in which they were run, whatever is
/// compared in it: all its systems' one after the other. One that failed or measured too little has
/// its round begin anew.
fn rounds(trials: &[Value]) -> Vec<Vec<&Value>> {
    let (mut rounds, mut current) = (Vec::new(), Vec::<&Value>::new());
    for trial in trials {
        let is_next =
            |other: &&Value| other["round"] == trial["round"] && other["cell"] != trial["cell"];
        if !current.iter().all(is_next) || trial["failed"].is_string() {
            current.clear();
        }
        if trial["failed"].is_string() {
            continue;
        }
        current.push(trial);
        if trial["round"]["order"].as_array().is_some_and(|order| order.len() == current.len()) {
            rounds.push(std::mem::take(&mut current));
        }
    }
    rounds
}

impl Known {
    /// What each steady round made of it, and both medians; an error if the lab has no verdict.
    fn ratios(&self, result: &Value) -> Result<(Vec<f64>, [f64; 2])> {
        let counted = self.rounds(result)?;
        let trials = result["trials"].as_array().context("a result file has trials")?;
        let counts =
            |trial: &&Value| trial["is_steady"] == true && trial["round"]["is_pilot"] == false;
        let of = |round: &[&Value], system: &str| -> Option<f64> {
            let is_its = |trial: &&&Value| {
                let name = trial["cell"].as_str().and_then(|cell| cell.split([' ', ',']).next());
                name == Some(system)
            };
            let trial = round.iter().find(is_its)?;
            Some(trial.pointer(self.at)?.as_f64()? * self.scale)
        };
        let rounds = rounds(trials).into_iter().filter(|round| round.iter().all(counts));
        let pairs: Vec<[f64; 2]> = rounds
            .filter_map(|round| Some([of(&round, self.without)?, of(&round, self.with)?]))
            .collect();
        let ratios: Vec<f64> =
            pairs.iter().map(|[without, with]| (with - without) / self.planted).collect();
        let medians = [0, 1].map(|side| {
            let values: Vec<f64> = pairs.iter().map(|pair| pair[side]).collect();
            median(&values).unwrap_or(f64::NAN)
        });
        let (seen, at, system) = (ratios.len(), self.at, self.with);
        ensure!(
            seen > 1 && seen == counted,
            "expected {at} of {system} in each of {counted} steady rounds, seen in {seen}"
        );
        let bad = ratios.iter().find(|ratio| **ratio <= 0.0);
        ensure!(bad.is_none(), "{system} is not above {}: {medians:?}", self.without);
        Ok((ratios, medians))
    }

    /// Of how many rounds the lab's verdict on both systems is.
    fn rounds(&self, result: &Value) -> Result<usize> {
        let results: Results = serde_json::from_value(result["results"].clone())
            .context("the results in the file of the lab")?;
        let both = [self.with, self.without];
        let has = |group: &GroupResults, name: &str| group.systems.iter().any(|one| one == name);
        let mut groups = results.groups.iter();
        let group = groups.find(|group| both.iter().all(|name| has(group, name)));
        let group = group.with_context(|| format!("no round had {both:?}"))?;
        let mut verdicts = group.analysis.findings.iter().map(|finding| finding.verdict);
        let Some(Verdict::Withheld { reason }) = verdicts.next() else {
            return Ok(group.rounds.len());
        };
        let is_its = |cell: &str| both.iter().any(|name| cell.starts_with(name));
        let failed = results.failures.iter().find(|failure| is_its(&failure.cell));
        let failed = failed.filter(|_| reason == Withheld::Failed).map(ToString::to_string);
        Err(match failed {
            Some(failed) => Error::msg(reason).context(failed),
            None => Error::msg(reason),
        })
    }

    fn row(&self, measured: Result<&Value, &anyhow::Error>) -> Row {
        let wanted = format!("{} us +-{:.0}%", self.planted, self.within * 100.0);
        let judged = match measured {
            Ok(result) => self.ratios(result),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        match judged {
            Ok((values, [without, with])) => {
                let ratio = Ratio { estimate: Estimate::of_ratios(&values, 1), values };
                let held = ratio.held(Bound::Within(self.within)).to_string();
                let json = json!({"case": self.name, "wanted": wanted, "verdict": held,
                    "planted_us": self.planted, "ratios": ratio.values, "estimate": ratio.estimate});
                let us = |value: f64| format!("{value:.2}us");
                let cells = [us(without), us(with), ratio.to_string(), wanted, held];
                Row::of(self.name, cells, None, json)
            }
            Err(error) => {
                let is_restless = error.downcast_ref() == Some(&Withheld::Unsteady);
                let verdict = if is_restless { RESTLESS } else { "not run" };
                let trouble = format!("{error:#}");
                let json = json!({"case": self.name, "wanted": wanted, "verdict": verdict,
                    "error": trouble});
                let cells = ["-", "-", "-", &wanted, verdict].map(str::to_owned);
                Row::of(self.name, cells, Some(trouble), json)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the lab tells of a trial: its system, round and whether that was run again, its latency in
    /// microseconds, and whether it was steady.
    fn trial(system: &str, round: (usize, bool), us: f64, is_steady: bool) -> Value {
        json!({"cell": format!("{system}, 4KiB randread, depth 1"),
               "round": {"number": round.0, "is_pilot": false, "is_repeat": round.1, "order": [0, 1]},
               "measures": {"p50": us * 1e3}, "is_steady": is_steady})
    }

    /// A result file with these trials, of so many rounds that count, and with this verdict.
    fn file(trials: Vec<Value>, rounds: usize, verdict: Value) -> Value {
        let finding = json!({"name": "", "primary": true, "verdict": verdict});
        let group = json!({"name": "", "systems": ["late", "nothing"], "null": 1, "columns": [],
            "rounds": vec![json!([]); rounds], "analysis": {"findings": [finding]}});
        let failure = json!({"cell": "late, 4KiB randread, depth 1", "why": "it rained"});
        json!({"trials": trials, "results":
            {"plan": "truth", "seed": 1, "groups": [group], "failures": [failure]}})
    }

    fn equal() -> Value {
        json!({"kind": "equal", "margin": 0.05})
    }

    /// Trials of rounds in which `late` took so much longer than `nothing`.
    fn trials(more: &[f64]) -> Vec<Value> {
        let pair = |(at, more): (usize, &f64)| {
            [trial("nothing", (at, false), 2.0, true), trial("late", (at, false), 2.0 + more, true)]
        };
        let mut pilot = trial("late", (0, false), 9e6, true);
        pilot["round"]["is_pilot"] = true.into();
        more.iter().enumerate().flat_map(pair).chain([pilot]).collect()
    }

    #[test]
    fn what_was_planted_is_held_against_what_was_measured() {
        let said = |more: &[f64]| {
            let result = file(trials(more), more.len(), equal());
            KNOWN[0].row(Ok(&result)).verdict().to_owned()
        };
        assert_eq!(said(&[200.0, 201.0, 199.5, 200.5, 200.0, 199.0]), "ok");
        assert_eq!(said(&[220.0, 221.0, 219.5, 220.5, 220.0, 219.0]), "short");
        assert_eq!(said(&[180.0, 221.0, 150.0, 220.5, 200.0, 219.0]), "open");
        assert_eq!(said(&[200.0]), "not run", "one round says nothing");
        assert_eq!(said(&[200.0, -1.0]), "not run");
        assert_eq!(KNOWN[0].row(Err(&anyhow::anyhow!("no"))).verdict(), "not run");
    }

    #[test]
    fn a_round_counts_as_it_was_when_all_of_it_was_steady_or_not_at_all() {
        let mut all = trials(&[200.0, 201.0, 199.5, 200.5, 200.0, 199.0]);
        // One of a round was unsteady, and both were well when it was run again; one never was.
        for (round, again) in [(6, 202.0), (7, 302.0)] {
            all.push(trial("nothing", (round, false), 2.0, true));
            all.push(trial("late", (round, false), 900.0, false));
            all.push(trial("nothing", (round, true), 2.0, round == 6));
            all.push(trial("late", (round, true), again, true));
        }
        let (ratios, [_, late]) = KNOWN[0].ratios(&file(all.clone(), 7, equal())).unwrap();
        assert_eq!((ratios.len(), ratios[6], late), (7, 1.0, 202.0));
        let other = KNOWN[0].ratios(&file(all, 8, equal())).unwrap_err().to_string();
        assert!(other.ends_with("in each of 8 steady rounds, seen in 7"), "{other}");
    }

    #[test]
    fn what_is_compared_ran_in_one_round() {
        let mut all = Vec::new();
        for round in 0..2 {
            let at = (round, false);
            // One failed, and one measured too little.
            let mut failed = trial("late", at, 0.0, false);
            failed["failed"] = "it rained".into();
            all.extend([trial("nothing", at, 900.0, true), failed]);
            all.push(trial("late", at, 800.0, true));
            all.extend([trial("late", at, 202.0, true), trial("nothing", at, 2.0, true)]);
            // The same numbers, of others that are compared with the same.
            all.extend([trial("nothing", at, 700.0, true), trial("burns-near", at, 1.0, true)]);
        }
        // Of others that were given up.
        all.push(trial("burns-near", (1, false), 1.0, true));
        let last = (2, false);
        all.extend([trial("late", last, 202.0, true), trial("nothing", last, 2.0, true)]);
        let (ratios, medians) = KNOWN[0].ratios(&file(all, 3, equal())).unwrap();
        assert_eq!((ratios, medians), (vec![1.0; 3], [2.0, 202.0]));
    }

    #[test]
    fn where_the_lab_says_nothing_nothing_is_said() {
        let row = |reason: &str| {
            let verdict = json!({"kind": "withheld", "reason": reason});
            KNOWN[0].row(Ok(&file(trials(&[200.0; 6]), 6, verdict)))
        };
        assert_eq!(row("unsteady").verdict(), RESTLESS);
        assert_eq!(row("failed").verdict(), "not run");
        let why = row("failed").trouble().unwrap().to_owned();
        assert!(why.contains("it rained") && why.contains("failed again and again"), "{why}");
        let other = KNOWN[2].row(Ok(&file(trials(&[200.0; 6]), 6, equal())));
        assert_eq!(other.trouble(), Some("no round had [\"burns-near\", \"nothing\"]"));
    }

    #[test]
    fn what_is_kept_is_taken_also_where_trials_failed() {
        let folder = std::env::temp_dir().join(format!("plateway-truth-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(&folder);
            kept(command, &folder.join("kept"))
        };
        let none = format!("{:#}", run("echo it rained >&2; exit 2").unwrap_err());
        assert!(none.contains("(it rained; exit status: 2)"), "{none}");
        assert_eq!(run("echo '[1]' > kept; exit 1").unwrap(), json!([1]));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_plan_has_what_is_held_against_it() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PLAN);
        let text = std::fs::read_to_string(tree).unwrap();
        let plan: toml::Table = toml::from_str(&text).unwrap();
        let systems = plan["system"].as_array().unwrap();
        let disk_of = |name: &str| {
            let one = systems.iter().find(|one| one["name"].as_str() == Some(name)).unwrap();
            let disk = one.get("disk").or_else(|| one.get("serve").map(|serve| &serve["disk"]));
            disk.and_then(toml::Value::as_str).unwrap().to_owned()
        };
        for known in &KNOWN {
            let planted = disk_of(known.with);
            let (cost, inner) = planted.split_once(',').unwrap();
            let (_, us) = cost.split_once(':').unwrap();
            assert_eq!(us.parse::<f64>().unwrap(), known.planted, "{}", known.name);
            assert_eq!(inner, disk_of(known.without), "{}", known.name);
        }
    }
}
