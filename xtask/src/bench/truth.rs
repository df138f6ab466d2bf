//! The lab against costs that are known (`plans/truth.toml`): a delay of 200 us, and 20 us of CPU an
//! operation at either end.
//!
//! `plateway lab run` measures, and says which rounds count; of each of them the difference between the
//! system with the cost and the one without it is divided by the cost (of a delay at p99, with how late the
//! instrument itself told its answers), and the ratios are held against 1 as those of any case are. Where the lab has no verdict, there is none here. In: its result file, which
//! is there also where trials of it failed. Units: microseconds. Errors: a run that left no file, with its
//! words; a measure that no round has.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Error, Result, ensure};
use lab::kept::{Kept, Trial};
use lab::plan::{Column, GroupResults, Measure, Results};
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
    /// What it is a cost of, and by how much that is to be multiplied.
    of: Measure,
    scale: f64,
    /// The cost, in microseconds.
    planted: f64,
    within: f64,
}

impl Known {
    /// What was really planted in each of so many rounds: of a delay's p99 also how much later than due the
    /// instrument itself told its answers, which it knows. A machine that pauses a CPU just then makes the
    /// delay longer, and whoever measures it has to say so.
    fn planted_in(&self, rounds: usize, kept: &Value) -> Result<Vec<f64>> {
        if self.of != Measure::P99 {
            return Ok(vec![self.planted; rounds]);
        }
        let kept = Kept::read(kept).map_err(Error::msg)?;
        let of_it = |cell: &&str| cell.split(',').next() == Some(self.with);
        let counted = kept.counted();
        let trials = counted.iter().find(|(cell, _)| of_it(cell)).map(|(_, trials)| trials);
        let late = |trial: &&Trial| trial.bench["late_ns"]["p99"].as_f64();
        let late: Option<Vec<f64>> = trials.into_iter().flatten().map(late).collect();
        let late = late.with_context(|| format!("a trial of {} told no lateness", self.with))?;
        ensure!(
            late.len() == rounds,
            "expected {rounds} trials of {} that count, seen {}",
            self.with,
            late.len()
        );
        Ok(late.into_iter().map(|ns| self.planted + ns * 1e-3).collect())
    }
}

const KNOWN: [Known; 4] = [
    Known {
        name: "truth-delay-p50",
        with: "late",
        without: "nothing",
        of: Measure::P50,
        scale: 1e-3,
        planted: 200.0,
        within: 0.03,
    },
    Known {
        name: "truth-delay-p99",
        with: "late",
        without: "nothing",
        of: Measure::P99,
        scale: 1e-3,
        planted: 200.0,
        within: 0.03,
    },
    Known {
        name: "truth-cpu-near",
        with: "burns-near-more",
        without: "burns-near",
        of: Measure::CpuNearPerOp,
        scale: 1.0,
        planted: 20.0,
        within: 0.05,
    },
    Known {
        name: "truth-cpu-far",
        with: "burns-far-more",
        without: "burns-far",
        of: Measure::CpuFarPerOp,
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

impl Known {
    /// What each round that counts made of it, and both medians; an error if the lab has no verdict.
    fn ratios(&self, result: &Value) -> Result<(Vec<f64>, [f64; 2])> {
        let results: Results = serde_json::from_value(result["results"].clone())
            .context("the results in the file of the lab")?;
        let both = [self.with, self.without];
        let is_its = |group: &&GroupResults| {
            both.iter().all(|name| group.systems.iter().any(|one| one == name))
        };
        let group = results.groups.iter().find(is_its);
        let group = group.with_context(|| format!("no round had {both:?}"))?;
        self.refused(group, &results)?;
        let column = |name: &str| {
            let is_it =
                |column: &Column| column.measure == self.of && group.systems[column.system] == name;
            let at = group.columns.iter().position(is_it);
            at.with_context(|| format!("no round has {} of {name}", self.of))
        };
        let [without, with] = [column(self.without)?, column(self.with)?];
        let values = |at: usize| group.rounds.iter().map(move |round| round[at] * self.scale);
        let planted = self.planted_in(group.rounds.len(), result)?;
        let both = values(with).zip(values(without)).zip(planted);
        let ratios: Vec<f64> =
            both.map(|((with, without), planted)| (with - without) / planted).collect();
        let medians =
            [without, with].map(|at| median(&values(at).collect::<Vec<_>>()).unwrap_or(f64::NAN));
        ensure!(ratios.len() > 1, "expected two steady rounds at least, seen {}", ratios.len());
        let bad = ratios.iter().find(|ratio| **ratio <= 0.0);
        ensure!(bad.is_none(), "{} is not above {}: {medians:?}", self.with, self.without);
        Ok((ratios, medians))
    }

    /// An error where the lab says nothing of what is compared.
    fn refused(&self, group: &GroupResults, results: &Results) -> Result<()> {
        let mut verdicts = group.analysis.findings.iter().map(|finding| finding.verdict);
        let Some(Verdict::Withheld { reason }) = verdicts.next() else { return Ok(()) };
        let is_its = |cell: &str| [self.with, self.without].iter().any(|one| cell.starts_with(one));
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

    /// A result file of rounds in which `late` took so many microseconds longer than `nothing`, with this
    /// verdict; in front of its group stands one of others, and behind it one that never became steady.
    fn file(more: &[f64], verdict: Value) -> Value {
        let finding = json!({"name": "", "primary": true, "verdict": verdict});
        let columns = json!([{"system": 1, "measure": "p50"}, {"system": 1, "measure": "p99"},
            {"system": 0, "measure": "p50"}]);
        let rounds = |more: &[f64]| -> Vec<Value> {
            more.iter().map(|more| json!([2e3, 9e9, 2e3 + more * 1e3])).collect()
        };
        let group = |name: &str, more: &[f64]| {
            json!({"name": "", "systems": [name, "nothing"], "null": 1, "columns": columns,
                "rounds": rounds(more), "unsteady_rounds": rounds(&[900.0]),
                "analysis": {"findings": [finding]}})
        };
        let failure = json!({"cell": "late, 4KiB randread, depth 1", "why": "it rained"});
        let groups = [group("burns-far", &[700.0; 6]), group("late", more)];
        let cell = "late, 4KiB randread, depth 1";
        let round =
            |number: usize| json!({"number": number, "is_pilot": false, "is_repeat": false});
        // What the instrument told of itself: later and later.
        let late = |number: usize| json!({"late_ns": {"p99": 5e3 * (1 + number) as f64}});
        let trials = (0..more.len()).map(|number| {
            json!({"cell": cell, "round": round(number), "is_steady": true, "bench": late(number)})
        });
        let environment = json!({"version": "", "date": "", "kernel": "", "cpu": "", "cpus": [],
            "driver": ""});
        json!({"schema_version": 1, "environment": environment, "plan": "",
            "trials": trials.collect::<Vec<Value>>(), "results": {"plan": "truth", "seed": 1,
            "groups": groups, "failures": [failure]}})
    }

    #[test]
    fn what_was_planted_at_p99_is_what_the_instrument_itself_kept() {
        let p99 = |more: &[f64]| {
            let mut file = file(more, equal());
            let columns = json!([{"system": 1, "measure": "p50"}, {"system": 1, "measure": "p99"},
                {"system": 0, "measure": "p99"}]);
            let group = &mut file["results"]["groups"][1];
            group["columns"] = columns;
            let rounds = group["rounds"].as_array_mut().unwrap();
            rounds.iter_mut().for_each(|round| round[1] = 2e3.into());
            file
        };
        let (ratios, _) = KNOWN[1].ratios(&p99(&[205.0, 210.0, 225.75])).unwrap();
        assert_eq!(ratios, [1.0, 1.0, 1.05]);
        let mut silent = p99(&[205.0, 210.0]);
        silent["trials"][1]["bench"] = json!({});
        let why = KNOWN[1].ratios(&silent).unwrap_err().to_string();
        assert_eq!(why, "a trial of late told no lateness");
        let mut fewer = p99(&[205.0, 210.0]);
        fewer["trials"].as_array_mut().unwrap().pop();
        let why = KNOWN[1].ratios(&fewer).unwrap_err().to_string();
        assert_eq!(why, "expected 2 trials of late that count, seen 1");
    }

    fn equal() -> Value {
        json!({"kind": "equal", "margin": 0.05})
    }

    #[test]
    fn what_was_planted_is_held_against_what_was_measured() {
        let said = |more: &[f64]| KNOWN[0].row(Ok(&file(more, equal()))).verdict().to_owned();
        assert_eq!(said(&[200.0, 201.0, 199.5, 200.5, 200.0, 199.0]), "ok");
        assert_eq!(said(&[220.0, 221.0, 219.5, 220.5, 220.0, 219.0]), "short");
        assert_eq!(said(&[180.0, 221.0, 150.0, 220.5, 200.0, 219.0]), "open");
        assert_eq!(said(&[200.0]), "not run", "one round says nothing");
        assert_eq!(said(&[200.0, -1.0]), "not run");
        assert_eq!(KNOWN[0].row(Err(&anyhow::anyhow!("no"))).verdict(), "not run");
        let (ratios, medians) = KNOWN[0].ratios(&file(&[200.0, 202.0, 190.0], equal())).unwrap();
        assert_eq!((ratios, medians), (vec![1.0, 1.01, 0.95], [2.0, 202.0]));
        let other = KNOWN[1].row(Ok(&file(&[200.0; 6], equal())));
        assert_eq!(other.trouble(), Some("no round has p99 latency of late"));
    }

    #[test]
    fn where_the_lab_says_nothing_nothing_is_said() {
        let row = |reason: &str| {
            let verdict = json!({"kind": "withheld", "reason": reason});
            KNOWN[0].row(Ok(&file(&[200.0; 6], verdict)))
        };
        assert_eq!(row("unsteady").verdict(), RESTLESS);
        assert_eq!(row("failed").verdict(), "not run");
        let why = row("failed").trouble().unwrap().to_owned();
        assert!(why.contains("it rained") && why.contains("failed again and again"), "{why}");
        let other = KNOWN[2].row(Ok(&file(&[200.0; 6], equal())));
        assert_eq!(other.trouble(), Some("no round had [\"burns-near-more\", \"burns-near\"]"));
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
