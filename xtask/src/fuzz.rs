//! Coverage-guided fuzzing: builds the targets of `fuzz/`, replays the stored corpora, then
//! searches.
//!
//! cargo-fuzz is not needed. What it adds to a build are compiler flags, given here, which the
//! stable compiler takes; the engine is libFuzzer from the `libfuzzer-sys` crate. No address
//! sanitizer: it would need nightly flags, and all that is fuzzed forbids unsafe code.
//!
//! In `make test` the search is bounded by executions from a fixed seed and not by time, so that a
//! slow machine does the same work. New inputs go to `target/fuzz-work` and never by themselves
//! into the repository; `--grow` copies those that reach new code. A crash leaves its input there
//! and fails the chore.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::tree::{self, Tree};

/// What cargo-fuzz passes to rustc for a build without a sanitizer, but for one unit of code for each
/// crate, which would have one core compile alone.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// libFuzzer's limits: one input that runs this long has hung (generous: the machine may be
/// loaded), and one that takes this much memory has been tricked into allocating what a peer asked
/// for.
const LIMITS: [&str; 2] = ["-timeout=600", "-rss_limit_mb=2048"];

/// How long and what to fuzz.
#[derive(Args)]
pub(crate) struct Options {
    /// Search each target for this many seconds, from a new seed each time.
    #[arg(long, conflicts_with = "runs")]
    seconds: Option<u64>,
    /// Search each target for this many executions, from seed 1; fewer where one costs more (`cost`
    /// in fuzz/Cargo.toml).
    #[arg(long, default_value_t = 20_000)]
    runs: u64,
    /// Only these targets (names with commas between them).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Add found inputs that reach new code to fuzz/corpora.
    #[arg(long)]
    grow: bool,
    /// Run one target on this input alone, for instance on a crash; needs --only.
    #[arg(long, value_name = "FILE", requires = "only")]
    replay: Option<PathBuf>,
}

impl Options {
    /// The short form of `make test`: every target, bounded by executions.
    pub(crate) fn short(runs: u64) -> Self {
        Self { seconds: None, runs, only: Vec::new(), grow: false, replay: None }
    }
}

/// One target's folders and program.
struct Target {
    name: String,
    program: PathBuf,
    /// The inputs in the repository.
    stored: PathBuf,
    /// The inputs that searches on this machine found.
    found: PathBuf,
    /// Where libFuzzer leaves the input of a crash.
    crashes: PathBuf,
    log: PathBuf,
    /// How many executions of a parser one of it takes.
    cost: u64,
}

/// What a target did, as libFuzzer reports it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    executions: u64,
    /// Edges reached.
    coverage: u64,
    /// Edges told apart by how often they were taken.
    features: u64,
}

/// Builds and runs the chosen targets; whether none of them crashed.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    let targets = build(tree, &options.only)?;
    if let Some(input) = &options.replay {
        let [target] = targets.as_slice() else {
            bail!("--replay takes one target, --only names {}", targets.len());
        };
        let input = std::path::absolute(input)?;
        return tree::succeeds(tree.command(&target.program).args(LIMITS).arg(input));
    }
    println!(
        "{:<16} {:>7} {:>12} {:>8} {:>9} {:>8}  result",
        "target", "stored", "executions", "edges", "features", "seconds"
    );
    let mut passed = true;
    for target in &targets {
        passed &= search(tree, target, options)?;
    }
    Ok(passed)
}

/// Replays one target's inputs, searches, and prints its line of the table; whether nothing
/// crashed.
fn search(tree: &Tree, target: &Target, options: &Options) -> Result<bool> {
    let began = Instant::now();
    let stored = fs::read_dir(&target.stored)
        .with_context(|| format!("fuzz target {} has no stored corpus", target.name))?
        .count();
    ensure!(stored > 0, "the corpus {} is empty", target.stored.display());
    // What is stored runs alone first, so that the table's replay does not depend on what was found
    // here before.
    let mut replay = libfuzzer(tree, target);
    replay.arg("-runs=0").arg(&target.stored);
    let mut ended = logged(&mut replay, &target.log)?;
    if ended {
        let mut search = libfuzzer(tree, target);
        match options.seconds {
            Some(seconds) => search.arg(format!("-max_total_time={seconds}")),
            // From the stored inputs alone: with those found before, the same seed would go another
            // way.
            None => {
                fs::remove_dir_all(&target.found)?;
                fs::create_dir_all(&target.found)?;
                // Without -reload=0 it would look for other processes' finds whenever a second has
                // passed.
                search
                    .args(["-seed=1", "-reload=0"])
                    .arg(format!("-runs={}", options.runs / target.cost))
            }
        };
        search.arg(&target.found).arg(&target.stored);
        ended = logged(&mut search, &target.log)?;
    }
    let log = String::from_utf8_lossy(&fs::read(&target.log)?).into_owned();
    let Report { executions, coverage, features } = report(&log);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{:<16} {stored:>7} {executions:>12} {coverage:>8} {features:>9} {seconds:>8.1}  {}",
        target.name,
        if ended { "ok" } else { "CRASHED" }
    );
    if !ended {
        explain(target, &log);
        return Ok(false);
    }
    if options.grow {
        let mut merge = libfuzzer(tree, target);
        // The fewest files that reach every edge; how often an edge was taken would keep ten times
        // as many.
        merge
            .args(["-set_cover_merge=1", "-use_counters=0"])
            .arg(&target.stored)
            .arg(&target.found);
        ensure!(logged(&mut merge, &target.log)?, "merging failed: {}", target.log.display());
    }
    Ok(true)
}

/// A call of a target's program with the limits, statistics at its end, and a place for crashes.
fn libfuzzer(tree: &Tree, target: &Target) -> Command {
    // libFuzzer tells comparisons apart by their addresses: at fixed ones the same seed searches
    // the same way.
    let mut command = if fixed_addresses(tree) {
        let mut setarch = tree.command("setarch");
        setarch.arg("-R").arg(&target.program);
        setarch
    } else {
        tree.command(&target.program)
    };
    command
        .args(LIMITS)
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/", target.crashes.display()));
    command
}

/// Whether a process may ask for fixed addresses: some containers refuse it, and then a search
/// differs a little from run to run.
fn fixed_addresses(tree: &Tree) -> bool {
    tree.command("setarch")
        .args(["-R", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command with what it prints in a file; whether it ended well.
fn logged(command: &mut Command, log: &Path) -> Result<bool> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdout(file.try_clone()?).stderr(file);
    tree::succeeds(command)
}

/// Prints why a target stopped and how to see it again.
fn explain(target: &Target, log: &str) {
    let lines: Vec<_> = log.lines().collect();
    println!("---- the end of {}:", target.log.display());
    for line in &lines[lines.len().saturating_sub(40)..] {
        println!("{line}");
    }
    let input =
        log.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
    match input {
        Some(path) => println!(
            "---- to replay: cargo xtask fuzz --only {} --replay {path}\n\
             ---- once mended, keep the input as fuzz/corpora/{}/",
            target.name, target.name
        ),
        None => println!("---- no input was written: see the log above"),
    }
}

/// Reads libFuzzer's last progress line and its final statistics.
fn report(log: &str) -> Report {
    let mut report = Report::default();
    for line in log.lines() {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            report.executions = count.trim().parse().unwrap_or(0);
        }
        if !line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let counter = match word {
                "cov:" => &mut report.coverage,
                "ft:" => &mut report.features,
                _ => continue,
            };
            *counter = words.next().and_then(|word| word.parse().ok()).unwrap_or(*counter);
        }
    }
    report
}

/// Builds every target with coverage, and makes the folders of the chosen ones.
fn build(tree: &Tree, only: &[String]) -> Result<Vec<Target>> {
    let metadata = metadata(tree)?;
    let names = names(&metadata)?;
    for name in only {
        ensure!(
            names.contains(name),
            "no fuzz target is named {name:?}; there are {}",
            names.join(", ")
        );
    }
    // A folder of its own: other flags than the workspace's would have both rebuild everything each
    // time.
    let built = tree.target.join("fuzz");
    let mut command =
        tree.cargo(&["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--target", &tree.host]).env("CARGO_TARGET_DIR", &built).env("RUSTFLAGS", FLAGS);
    tree::must_succeed(&mut command)?;
    let work = tree.target.join("fuzz-work");
    let mut targets = Vec::new();
    for name in names {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        let target = Target {
            program: built.join(&tree.host).join("release").join(&name),
            stored: tree.root.join("fuzz/corpora").join(&name),
            found: work.join("found").join(&name),
            crashes: work.join("crashes").join(&name),
            log: work.join(format!("{name}.log")),
            cost: metadata["packages"][0]["metadata"]["cost"][&name].as_u64().unwrap_or(1).max(1),
            name,
        };
        fs::create_dir_all(&target.found)?;
        fs::create_dir_all(&target.crashes)?;
        targets.push(target);
    }
    Ok(targets)
}

/// What cargo tells of `fuzz/Cargo.toml`.
fn metadata(tree: &Tree) -> Result<Value> {
    let output = tree
        .cargo(&["metadata", "--no-deps", "--format-version", "1"])
        .args(["--manifest-path", "fuzz/Cargo.toml"])
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The names of the programs in `fuzz/Cargo.toml`.
fn names(metadata: &Value) -> Result<Vec<String>> {
    let targets = metadata["packages"][0]["targets"]
        .as_array()
        .context("fuzz/Cargo.toml holds one package")?;
    let mut names: Vec<String> = targets
        .iter()
        .filter(|target| target["kind"][0] == "bin")
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    ensure!(!names.is_empty(), "fuzz/Cargo.toml holds no target");
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_progress_line_and_final_statistics_are_read() {
        let log = "INFO: Seed: 1\n\
            #2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #20000\tDONE   cov: 412 ft: 1033 corp: 88/2011b lim: 43 exec/s: 0 rss: 40Mb\n\
            Done 20000 runs in 1 second(s)\n\
            stat::number_of_executed_units: 20000\n";
        let expected = Report { executions: 20_000, coverage: 412, features: 1033 };
        assert_eq!(report(log), expected);
    }

    #[test]
    fn log_of_a_crash_before_the_first_line_reports_zeros() {
        assert_eq!(report("thread panicked\n==1== ERROR: libFuzzer\n"), Report::default());
    }
}
