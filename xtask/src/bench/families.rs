//! Families of the bench: plans of the lab in `plans/bench`, a file each, which `plateway lab run`
//! runs and judges.
//!
//! In: the files, and how much is asked for. Out: of each family what the lab says of its comparisons,
//! told as held, not held and open; its result file and its page stay in `target/bench`. The yardstick is
//! started by its name, so its folder stands first in the PATH of the lab. Where less or more is
//! asked for than a file says, a copy beside the result says that, line by line. Errors: a file that is
//! no plan; a run that left no result, with its words.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use comfy_table::{Table, presets};
use lab::plan::{Experiment, Failure, Results};
use lab::statistics::{Finding, Verdict};
use serde_json::Value;

use crate::tree::{Tree, path_with, words};

/// Where they are, in the repository.
const FOLDER: &str = "plans/bench";
/// What `plateway lab run` ends with where somebody interrupted it.
const INTERRUPTED: i32 = 130;

/// A plan.
pub(super) struct Family {
    pub(super) name: String,
    text: String,
    pub(super) experiment: Experiment,
}

/// How much is measured, where it is not what the files say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// What is measured of a trial at least: five windows.
    pub(super) seconds: Option<f64>,
    /// The most rounds.
    pub(super) rounds: Option<usize>,
    /// Only to see that everything works: of each list the first load, in the shortest windows.
    pub(super) quick: bool,
}

/// The families whose names begin with one of these; all without any.
pub(super) fn chosen(tree: &Tree, only: &[String]) -> Result<Vec<Family>> {
    let folder = tree.root.join(FOLDER);
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> =
        files.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    let is_plan = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "toml");
    let name = |file: &Path| file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_chosen =
        |name: &str| only.is_empty() || only.iter().any(|begin| name.starts_with(&**begin));
    let named = files.iter().filter(is_plan).filter_map(|file| Some((file, name(file)?)));
    named
        .filter(|(_, name)| is_chosen(name))
        .map(|(file, name)| {
            let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
            Family::new(name, text)
        })
        .collect()
}

impl Family {
    pub(super) fn new(name: String, text: String) -> Result<Family> {
        let experiment = Experiment::parse(&format!("{name}.toml"), &text)
            .map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
        Ok(Family { name, text, experiment })
    }

    /// As so much is asked for.
    pub(super) fn asked(&self, asked: Asked) -> Result<Family> {
        Family::new(self.name.clone(), changed(&self.text, asked))
    }

    /// Runs it; what it came to. It is told on standard error how far it is.
    pub(super) fn run(&self, tree: &Tree, plateway: &Path, yardstick: &Path) -> Result<Came> {
        let folder = tree.target.join("bench");
        fs::create_dir_all(&folder)?;
        let plan = folder.join(format!("{}.toml", self.name));
        fs::write(&plan, &self.text)?;
        let result = plan.with_extension("result.json");
        // What an earlier run left is not what this one came to.
        let _ = fs::remove_file(&result);
        // Who ends the bench alone, and not all of a terminal's, ends the lab, too.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM"])
            .arg(plateway)
            .args(["lab", "run"])
            .arg(&plan)
            .args(["--overwrite", "--result"])
            .arg(&result);
        command.current_dir(&tree.root).env("PATH", path_with(yardstick)?);
        // Its table is in the page; it says what is wrong with a plan, and how far it is, as it does.
        command.stdout(std::process::Stdio::null());
        let status = command.status().with_context(|| words(&command))?;
        ensure!(status.code() != Some(INTERRUPTED), Interrupted);
        let Ok(text) = fs::read_to_string(&result) else {
            bail!("{}: not run: {status}, as it says above", self.name);
        };
        let value: Value = serde_json::from_str(&text).context("the result file of the lab")?;
        let results = serde_json::from_value::<Results>(value["results"].clone())?;
        results.check().map_err(anyhow::Error::msg)?;
        Ok(Came::of(&self.name, results))
    }
}

/// Somebody interrupted the lab: nothing else is to run.
#[derive(Debug)]
pub(super) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted; what was measured is kept in target/bench")
    }
}

impl std::error::Error for Interrupted {}

/// A plan's text with what is asked for in place of what it says.
fn changed(text: &str, asked: Asked) -> String {
    let window = match (asked.quick, asked.seconds) {
        (true, _) => Some(0.1),
        (false, seconds) => seconds.map(|seconds| (seconds / 5.0).max(0.1)),
    };
    let rounds = if asked.quick { Some(6) } else { asked.rounds.map(|rounds| rounds.max(6)) };
    let line = |line: &str| {
        let (key, value) = line.split_once(" = ").unwrap_or((line, ""));
        let first = value.strip_prefix('[').and_then(|list| list.split([',', ']']).next());
        match (key, window, rounds, first) {
            ("window", Some(seconds), ..) => format!("window = \"{:.0}ms\"", seconds * 1e3),
            ("rounds-max", _, Some(rounds), _) => format!("rounds-max = {rounds}"),
            ("block-size" | "pattern" | "depth" | "jobs", _, _, Some(first)) if asked.quick => {
                format!("{key} = {first}")
            }
            _ => line.to_owned(),
        }
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

/// What a family came to.
#[derive(Default)]
pub(super) struct Came {
    name: String,
    findings: Vec<Finding>,
    failures: Vec<Failure>,
    /// Why there is nothing.
    trouble: Option<String>,
}

impl Came {
    fn of(name: &str, results: Results) -> Came {
        let findings = results.groups.into_iter().flat_map(|group| group.analysis.findings);
        let findings = findings.collect();
        Came { name: name.to_owned(), findings, failures: results.failures, trouble: None }
    }

    pub(super) fn nothing(name: &str, error: &anyhow::Error) -> Came {
        Came { name: name.to_owned(), trouble: Some(format!("{error:#}")), ..Came::default() }
    }

    /// What it says in one of the words of the table.
    fn said(&self, answer: Answer) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| Answer::of(finding) == answer)
    }

    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// The columns of the table, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    NotHeld,
    Open,
    /// Of a bound that nothing can be said of.
    NoVerdict,
    Held,
    /// Of a difference, which is stated and judges nobody.
    Stated,
}

impl Answer {
    const ALL: [(Answer, &'static str); 5] = [
        (Answer::NotHeld, "not held"),
        (Answer::Open, "open"),
        (Answer::NoVerdict, "no verdict"),
        (Answer::Held, "held"),
        (Answer::Stated, "stated"),
    ];

    fn of(finding: &Finding) -> Answer {
        match finding.verdict {
            Verdict::Held { .. } => Answer::Held,
            Verdict::NotHeld { .. } => Answer::NotHeld,
            Verdict::Open { .. } => Answer::Open,
            _ if finding.bound.is_some() => Answer::NoVerdict,
            _ => Answer::Stated,
        }
    }
}

/// How many of each there are, and then each of them, as the lab says it.
pub(super) fn table(all: &[Came], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(["plan"].into_iter().chain(Answer::ALL.map(|(_, word)| word)));
    for came in all.iter().filter(|came| came.trouble.is_none()) {
        let count = |(answer, _)| came.said(answer).count().to_string();
        table.add_row([came.name.clone()].into_iter().chain(Answer::ALL.map(count)));
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let bullet = if markdown { "- " } else { "  " };
    for (answer, word) in Answer::ALL {
        let lines = all.iter().flat_map(|came| {
            came.said(answer).map(|finding| format!("{bullet}{}: {finding}\n", came.name))
        });
        let lines: String = lines.collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n{word}:\n\n{lines}");
        }
    }
    for came in all {
        if let Some(trouble) = &came.trouble {
            let _ = write!(text, "\n{trouble}\n");
        }
        if let Some(first) = came.failures.first() {
            let count = came.failures.len();
            let _ = write!(text, "\n{}: {count} trials failed; first: {first}\n", came.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use lab::statistics::{Bound, Interval, LogRatio};

    use super::*;

    fn all() -> Vec<Family> {
        chosen(&Tree::find().unwrap(), &[]).unwrap()
    }

    #[test]
    fn every_file_is_a_plan_and_is_called_as_it_is() {
        let all = all();
        assert!(all.len() >= 8);
        for family in &all {
            assert_eq!(family.name, family.experiment.name);
        }
        let only = |name: &str| chosen(&Tree::find().unwrap(), &[name.to_owned()]).unwrap();
        assert_eq!(
            only("nvme-1").iter().map(|one| &*one.name).collect::<Vec<_>>(),
            ["nvme-128k", "nvme-16k"]
        );
        assert!(only("4k-").is_empty());
    }

    #[test]
    fn a_look_is_of_one_load_of_each_list_and_is_a_plan_all_the_same() {
        for family in all() {
            let quick = family.asked(Asked { quick: true, ..Asked::default() }).unwrap();
            let plan = &quick.experiment;
            assert_eq!(plan.window, Some(std::time::Duration::from_millis(100)), "{}", quick.name);
            assert!(plan.groups.iter().all(|group| group.plan.rounds_max == 6), "{}", quick.name);
            assert!(plan.groups.len() <= 7, "{}: {}", quick.name, plan.groups.len());
            let same = family.asked(Asked::default()).unwrap();
            assert_eq!(same.experiment.groups.len(), family.experiment.groups.len());
        }
    }

    #[test]
    fn seconds_are_five_windows_and_rounds_are_the_most() {
        let asked = Asked { seconds: Some(2.0), rounds: Some(9), quick: false };
        let own = all().remove(0).asked(asked).unwrap().experiment;
        assert_eq!(own.window, Some(std::time::Duration::from_millis(400)));
        assert!(own.groups.iter().all(|group| group.plan.rounds_max == 9));
    }

    #[test]
    fn the_folder_of_the_yardstick_stands_first() {
        let path = path_with(Path::new("/own/yardstick")).unwrap();
        assert_eq!(std::env::split_paths(&path).next(), Some(PathBuf::from("/own")));
    }

    fn finding(name: &str, bound: Option<Bound>, verdict: Verdict) -> Finding {
        let (name, primary) = (name.to_owned(), bound.is_some());
        Finding { name, primary, bound, is_cost: false, estimate: None, verdict }
    }

    #[test]
    fn what_is_not_held_stands_first_and_each_is_told_once() {
        let times = Interval { low: LogRatio(0.0), high: LogRatio(0.1), level: 0.9 };
        let bound = Some(Bound::AtLeast(0.9));
        let withheld = lab::statistics::Withheld::Failed;
        let findings = vec![
            finding("a", bound, Verdict::Held { times }),
            finding("b", bound, Verdict::NotHeld { times }),
            finding("c", bound, Verdict::Open { times, more_rounds: None }),
            finding("d", bound, Verdict::Withheld { reason: withheld }),
            finding("e", None, Verdict::Equal { margin: 0.1 }),
        ];
        let came = Came { name: "one".to_owned(), findings, ..Came::default() };
        let lost = Came::nothing("two", &anyhow::anyhow!("two: not run"));
        let text = table(&[came, lost], false);
        let mut places = [
            "not held:\n\n  one: b",
            "open:\n\n  one: c",
            "no verdict:\n\n  one: d",
            "\nheld:\n\n  one: a: at least 0.9 times: held",
            "stated:\n\n  one: exploratory: e",
            "two: not run",
        ]
        .map(|words| text.find(words).unwrap_or_else(|| panic!("{words}\n{text}")));
        let seen = places;
        places.sort_unstable();
        assert_eq!(seen, places);
        assert!(
            text.lines().nth(1).unwrap().split_whitespace().eq(["one", "1", "1", "1", "1", "1"])
        );
    }
}
