//! The lab against costs that are known (`plans/truth.toml`): a delay of 200 us, and 20 us of CPU an
//! operation at either end.
//!
//! `plateway lab run` measures; of each round the difference between the system with the cost and the
//! one without it is divided by the cost, and the ratios are held against 1 as those of any case are.
//! In: its result file. Units: microseconds. Errors: a run that failed, with its words; a measure
//! that no round has.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use lab::statistics::{Bound, Estimate, median};
use serde_json::{Value, json};

use super::judge::Ratio;
use super::process::Bench;
use super::report::Row;
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
    let file = bench.dir.join("truth.json");
    let mut command = std::process::Command::new(&bench.plateway);
    command.args(["lab", "run", PLAN, "--overwrite", "--result"]).arg(&file);
    command.current_dir(bench.root());
    let output = command.output().with_context(|| words(&command))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    ensure!(output.status.success(), "{} ({said})", words(&command));
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", Path::display(&file)))?;
    serde_json::from_str(&text).context("the result file of the lab")
}

/// A trial's place in the plan: its path and load, and its round.
type Place = (String, u64);

impl Known {
    /// What each round made of it, by what it is.
    fn ratios(&self, result: &Value) -> Result<(Vec<f64>, [f64; 2])> {
        let trials = result["trials"].as_array().context("a result file has trials")?;
        let of = |system: &str| -> BTreeMap<Place, f64> {
            let told = trials.iter().filter_map(|trial| {
                let (name, cell) = trial["cell"].as_str()?.split_once([' ', ','])?;
                let counts = name == system && trial["round"]["is_pilot"] == false;
                let value = trial.pointer(self.at).and_then(Value::as_f64)? * self.scale;
                let number = trial["round"]["number"].as_u64()?;
                // A round that was run again counts as it came out then.
                counts.then(|| ((cell.to_owned(), number), value))
            });
            told.collect()
        };
        let (with, without) = (of(self.with), of(self.without));
        let pairs: Vec<[f64; 2]> =
            with.iter().filter_map(|(place, with)| Some([*without.get(place)?, *with])).collect();
        let ratios = pairs.iter().map(|[without, with]| (with - without) / self.planted);
        let medians = [0, 1].map(|side| {
            let values: Vec<f64> = pairs.iter().map(|pair| pair[side]).collect();
            median(&values).unwrap_or(f64::NAN)
        });
        let ratios: Vec<f64> = ratios.collect();
        ensure!(ratios.len() > 1, "expected rounds with {} of {}", self.at, self.with);
        let bad = ratios.iter().find(|ratio| **ratio <= 0.0);
        ensure!(bad.is_none(), "{} is not above {}: {medians:?}", self.with, self.without);
        Ok((ratios, medians))
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
                let trouble = format!("{error:#}");
                let json = json!({"case": self.name, "wanted": wanted, "verdict": "not run",
                    "error": trouble});
                let cells = ["-", "-", "-", &wanted, "not run"].map(str::to_owned);
                Row::of(self.name, cells, Some(trouble), json)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result file in which a round of `late` took so much longer than `nothing`, in microseconds.
    fn result(more: &[f64]) -> Value {
        let trial = |system: &str, number: usize, us: f64| {
            json!({"cell": format!("{system}, 4KiB randread, depth 1"),
                   "round": {"number": number, "is_pilot": false, "is_repeat": false},
                   "measures": {"p50": us * 1e3}})
        };
        let rounds = more.iter().enumerate();
        let trials: Vec<Value> = rounds
            .flat_map(|(at, more)| [trial("nothing", at, 2.0), trial("late", at, 2.0 + more)])
            .chain([json!({"cell": "late, 4KiB randread, depth 1",
                           "round": {"number": 0, "is_pilot": true, "is_repeat": false},
                           "measures": {"p50": 9e9}})])
            .collect();
        json!({"trials": trials})
    }

    #[test]
    fn what_was_planted_is_held_against_what_was_measured() {
        let said = |more: &[f64]| KNOWN[0].row(Ok(&result(more))).verdict().to_owned();
        assert_eq!(said(&[200.0, 201.0, 199.5, 200.5, 200.0, 199.0]), "ok");
        assert_eq!(said(&[220.0, 221.0, 219.5, 220.5, 220.0, 219.0]), "short");
        assert_eq!(said(&[180.0, 221.0, 150.0, 220.5, 200.0, 219.0]), "open");
        assert_eq!(said(&[200.0]), "not run", "one round says nothing");
        assert_eq!(said(&[200.0, -1.0]), "not run");
        assert_eq!(KNOWN[0].row(Err(&anyhow::anyhow!("no"))).verdict(), "not run");
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
