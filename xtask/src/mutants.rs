//! `make mutants`: one-line bugs put into the rooms of the data path and of disks by cargo-mutants,
//! each built and tried with the tests of its crate, and those that survive with the simulator too.
//! What the survivors of a sample mean stands in docs/mutants.md.
//!
//! A run ends at its deadline at the latest and goes on where it ended when it is started again: what
//! came of each mutant is kept below `target/mutants`, by its name, and none is tried twice.
//! cargo-mutants is taken from `PATH`, or installed once below the target directory, in the version
//! that is named here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind::NotFound;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

use crate::tree::{self, Tree};

const CARGO_MUTANTS: &str = "cargo-mutants@27.0.0";

/// What is mutated unless crates are named.
const FILES: [&str; 6] = [
    "crates/volume/src/**/*.rs",
    "crates/nvme/src/**/*.rs",
    "crates/aoe/src/**/*.rs",
    "crates/shard/src/**/*.rs",
    "crates/lab/src/**/*.rs",
    "crates/reactor/src/disk/**/*.rs",
];

/// What is never mutated: tests, and what is only shown.
const EXCLUDED_FILES: [&str; 3] = ["**/tests.rs", "**/tests/**", "**/*_tests.rs"];
const EXCLUDED: &str = "impl (fmt::)?(Debug|Display) for|fn explain|fn tell";

/// How long the tests of a mutant may take before it counts as caught: one that hangs.
const TIMEOUT_S: &str = "90";

/// What came of a mutant: a test failed; no test of its crate did; none of the simulator either.
const CAUGHT: &str = "caught";
const MISSED: &str = "missed";
const SURVIVED_ALL: &str = "survived";

/// cargo-mutants' exit codes: mutants survived; one made a test hang.
const SURVIVED: i32 = 2;
const HUNG: i32 = 3;
/// The exit code of coreutils' timeout when the time was over.
const TIME_IS_OVER: i32 = 124;

/// Which mutants, how many, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Only mutants of these crates (names with commas between them).
    #[arg(long, value_delimiter = ',')]
    package: Vec<String>,
    /// Only mutants of lines that changed since this commit.
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// About so many of them, evenly spread; all of them with 0.
    #[arg(long, default_value_t = 300)]
    sample: usize,
    /// Which of the samples.
    #[arg(long, default_value_t = 0)]
    seed: usize,
    /// Stop after so many minutes. Started again with the same options it goes on.
    #[arg(long, default_value_t = 180)]
    minutes: u64,
    /// Forget what was found before.
    #[arg(long)]
    anew: bool,
}

/// Tries them; `false` if some survived.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let work = tree.target.join("mutants");
    if options.anew && work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    fs::create_dir_all(&work)?;
    let selected = selection(tree, options, &work)?;
    let mut mutants = Mutants { tree, selected, work, all: Vec::new() };
    mutants.all = mutants.list()?;
    let all = &mutants.all;
    ensure!(!all.is_empty(), "no mutants: nothing there could be changed");
    let each = match options.sample {
        0 => 1,
        sample => (all.len() / sample).max(1),
    };
    let sample: Vec<String> = all.iter().skip(options.seed % each).step_by(each).cloned().collect();
    println!("{} mutants, of which one in {each} is tried: {}", all.len(), sample.len());
    let left = || (options.minutes * 60).saturating_sub(begun.elapsed().as_secs());
    let by = |found: &BTreeMap<String, String>, wanted: Option<&str>| -> Vec<String> {
        let is_wanted = |name: &&String| found.get(*name).map(String::as_str) == wanted;
        sample.iter().filter(is_wanted).cloned().collect()
    };
    let untried = by(&mutants.found()?, None);
    let mut done = mutants.attempt(&untried, left(), MISSED, &[])?;
    if done {
        // Those that are left, once more: do seeds of the simulator notice?
        let simulator = ["--baseline", "skip", "--test-package", "sim", "--", "--test", "seeds"];
        let missed = by(&mutants.found()?, Some(MISSED));
        done = mutants.attempt(&missed, left(), SURVIVED_ALL, &simulator)?;
    }
    mutants.report(&sample, done)
}

/// The arguments that select mutants.
fn selection(tree: &Tree, options: &Options, work: &Path) -> Result<Vec<String>> {
    let mut selected = Vec::new();
    let mut add = |key: &str, value: String| selected.extend([key.to_owned(), value]);
    for package in &options.package {
        add("--file", format!("crates/{package}/src/**/*.rs"));
    }
    if options.package.is_empty() {
        FILES.iter().for_each(|file| add("--file", (*file).to_owned()));
    }
    EXCLUDED_FILES.iter().for_each(|file| add("--exclude", (*file).to_owned()));
    add("--exclude-re", EXCLUDED.to_owned());
    if let Some(commit) = &options.since {
        let mut git = tree.command("git");
        let diff = git.args(["diff", commit, "--", "crates"]).output().context("git diff")?;
        ensure!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stderr));
        let path = work.join("since.diff");
        fs::write(&path, diff.stdout)?;
        add("--in-diff", path.display().to_string());
    }
    Ok(selected)
}

struct Mutants<'a> {
    tree: &'a Tree,
    selected: Vec<String>,
    /// The names of all that are selected.
    all: Vec<String>,
    /// Where builds and results are kept.
    work: PathBuf,
}

impl Mutants<'_> {
    /// The names of those that are selected, always in the same order.
    fn list(&self) -> Result<Vec<String>> {
        let mut command = self.command(Command::new("cargo"))?;
        let listed = command.arg("--list").args(&self.selected).output()?;
        ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        Ok(String::from_utf8(listed.stdout)?.lines().map(str::to_owned).collect())
    }

    fn results(&self) -> PathBuf {
        self.work.join("results.tsv")
    }

    /// What came of each that was tried, in this run and in earlier ones; the last counts.
    fn found(&self) -> Result<BTreeMap<String, String>> {
        let text = match fs::read_to_string(self.results()) {
            Err(error) if error.kind() == NotFound => String::new(),
            text => text.context("what earlier runs found")?,
        };
        let line = |line: &str| line.split_once('\t').map(|(what, of)| (of.into(), what.into()));
        Ok(text.lines().filter_map(line).collect())
    }

    /// Tries these for so many seconds; whether all were tried. What is not noticed is `missed`.
    fn attempt(
        &self,
        names: &[String],
        seconds: u64,
        missed: &str,
        tests: &[&str],
    ) -> Result<bool> {
        if names.is_empty() || seconds == 0 {
            return Ok(names.is_empty());
        }
        // All others count as caught before: no other selection leaves out every one of them.
        let results = self.work.join("mutants.out");
        let _ = fs::remove_dir_all(&results);
        fs::create_dir(&results)?;
        let others = self.all.iter().filter(|name| !names.contains(name));
        let others: String = others.map(|name| format!("{name}\n")).collect();
        fs::write(results.join("caught.txt"), others)?;
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=INT", "--kill-after=60", &seconds.to_string(), "cargo"]);
        let mut command = self.command(timeout)?;
        command.args(["--iterate", "--no-shuffle", "--timeout", TIMEOUT_S, "--output"]);
        command.arg(&self.work).args(&self.selected);
        let ended = tree::exit_code(command.args(tests))?;
        // However it ended.
        self.keep(missed)?;
        match ended {
            Some(0 | SURVIVED | HUNG) => Ok(true),
            Some(TIME_IS_OVER) => Ok(false),
            code => bail!("cargo mutants ended with {code:?}"),
        }
    }

    /// Adds what `cargo mutants` found last to the results.
    fn keep(&self, missed: &str) -> Result<()> {
        let results = self.work.join("mutants.out");
        if !results.join("mutants.json").exists() {
            // It did not begin.
            return Ok(());
        }
        let mut lines = String::new();
        for (file, what) in
            [("caught", CAUGHT), ("timeout", "hung"), ("unviable", "unviable"), ("missed", missed)]
        {
            let names = fs::read_to_string(results.join(format!("{file}.txt"))).unwrap_or_default();
            lines.extend(names.lines().map(|name| format!("{what}\t{name}\n")));
        }
        let mut results = File::options().append(true).create(true).open(self.results())?;
        Ok(results.write_all(lines.as_bytes())?)
    }

    /// `cargo mutants` behind `command`, installed where it is not there. Its builds have a target
    /// directory of their own, which stays.
    fn command(&self, mut command: Command) -> Result<Command> {
        let own = self.tree.target.join("tools");
        let path = format!("{}/bin:{}", own.display(), std::env::var("PATH").unwrap_or_default());
        let mut look = Command::new("cargo");
        let is_there = look.args(["mutants", "--version"]).env("PATH", &path).output();
        if !is_there.is_ok_and(|ended| ended.status.success()) {
            println!("installing {CARGO_MUTANTS}, once, below {}", own.display());
            let arguments = ["install", "--quiet", "--locked", CARGO_MUTANTS, "--root"];
            tree::must_succeed(self.tree.cargo(&arguments).arg(&own))?;
        }
        command.arg("mutants").current_dir(&self.tree.root).env("PATH", path);
        command.env("CARGO_TARGET_DIR", self.work.join("build"));
        Ok(command)
    }

    /// Prints what came of a sample; `false` if some of it survived.
    fn report(&self, sample: &[String], done: bool) -> Result<bool> {
        let found = self.found()?;
        let of = |what: Option<&str>| {
            let is_of = |name: &&String| found.get(*name).map(String::as_str) == what;
            sample.iter().filter(is_of).collect::<Vec<_>>()
        };
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(["mutants", ""]);
        for (what, words) in [
            (Some(CAUGHT), "a test failed"),
            (Some("hung"), "a test did not end: caught, too"),
            (Some("unviable"), "does not compile"),
            (Some(MISSED), "no test of its crate noticed; the simulator was not asked yet"),
            (Some(SURVIVED_ALL), "survived"),
            (None, "not tried yet"),
        ] {
            table.add_row([of(what).len().to_string(), words.to_owned()]);
        }
        println!("{table}");
        let left = [of(Some(MISSED)), of(Some(SURVIVED_ALL))].concat();
        left.iter().for_each(|mutant| println!("survived: {mutant}"));
        if !done {
            println!("the time was over before all were tried: the same command goes on");
        }
        Ok(left.is_empty())
    }
}
