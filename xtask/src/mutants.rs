//! `make mutants`: one-line bugs put into the rooms of the data path and of disks by cargo-mutants,
//! each built and tried with the tests of its crate, and those that survive with the simulator too.
//! What the survivors of a sample mean stands in docs/mutants.md.
//!
//! A run ends at its deadline at the latest and goes on where it ended when it is started again;
//! what was caught is not tried twice. Results are below `target/mutants`. cargo-mutants is taken
//! from `PATH`, or installed once below the target directory, in the version that is named here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde_json::Value;

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
    let mutants = Mutants { tree, selected: selection(tree, options, &work)?, work };
    let total = mutants.count()?;
    ensure!(total > 0, "no mutants: nothing there could be changed");
    let shards = match options.sample {
        0 => 1,
        sample => (total / sample).max(1),
    };
    println!("{total} mutants, of which one in {shards} is tried");
    let shard = format!("{}/{shards}", options.seed % shards);
    let left = || (options.minutes * 60).saturating_sub(begun.elapsed().as_secs());
    let done = mutants.attempt(&shard, left(), &[])?
        // Those that are left, once more: do seeds of the simulator notice?
        && mutants.attempt(&shard, left(), &["--baseline", "skip", "--test-package", "sim", "--", "--test", "seeds"])?;
    mutants.report(done)
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
    /// Where builds and results are kept.
    work: PathBuf,
}

impl Mutants<'_> {
    /// How many mutants are selected.
    fn count(&self) -> Result<usize> {
        let mut command = self.command(Command::new("cargo"))?;
        let listed = command.args(["--list", "--json"]).args(&self.selected).output()?;
        ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed: Value = serde_json::from_slice(&listed.stdout)?;
        Ok(listed.as_array().context("a list of mutants")?.len())
    }

    /// Tries those that were not caught yet, for so many seconds; whether all were tried.
    fn attempt(&self, shard: &str, seconds: u64, tests: &[&str]) -> Result<bool> {
        if seconds == 0 {
            return Ok(false);
        }
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=INT", "--kill-after=60", &seconds.to_string(), "cargo"]);
        let mut command = self.command(timeout)?;
        command.args(["--iterate", "--no-shuffle", "--timeout", TIMEOUT_S, "--shard", shard]);
        command
            .args(["--sharding", "round-robin", "--output"])
            .arg(&self.work)
            .args(&self.selected)
            .args(tests);
        match tree::exit_code(&mut command)? {
            Some(0 | SURVIVED | HUNG) => Ok(true),
            Some(TIME_IS_OVER) => Ok(false),
            code => bail!("{} ended with {code:?}", tree::words(&command)),
        }
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

    /// Prints what came of them; `false` if some survived.
    fn report(&self, done: bool) -> Result<bool> {
        let results = self.work.join("mutants.out");
        let lines = |name: &str| -> Vec<String> {
            let earlier = fs::read_to_string(results.join(format!("previously_{name}.txt")));
            let now = fs::read_to_string(results.join(format!("{name}.txt")));
            let both = [earlier.unwrap_or_default(), now.unwrap_or_default()].concat();
            both.lines().map(str::to_owned).collect()
        };
        let missed = lines("missed");
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(["mutants", ""]);
        for (name, what) in [
            ("caught", "a test failed"),
            ("timeout", "a test did not end: caught, too"),
            ("unviable", "does not compile"),
            ("missed", "survived"),
        ] {
            table.add_row([lines(name).len().to_string(), what.to_owned()]);
        }
        println!("{table}");
        missed.iter().for_each(|mutant| println!("survived: {mutant}"));
        if !done {
            println!("the time was over before all were tried: the same command goes on");
        }
        Ok(missed.is_empty())
    }
}
