//! `cargo xtask bench`: Plateway against a ceiling, in operations a second and what they cost in CPU.
//!
//! The target is pinned to one CPU and the load to another. A case has a subject and references (or
//! a subject and a limit); rounds, their order, ratios with their intervals and what is said of them
//! are the lab's ([`lab::statistics`]). What is compared stands in
//! `bench/cases.toml` (read by `cases.rs` and `matrix.rs`, its figures in `figure.rs`). Servers are
//! described in `plan.rs`, of iSCSI in `iscsi.rs`, of AoE in `aoe.rs` and routers in `mpls.rs`
//! (networks of several below it, in `mpls/`), with who is on which LAN in `lan.rs`; loads in
//! `load.rs`; `process.rs` runs both, on namespaces, cables and CPUs of the `testbed` crate.
//! `measure.rs` runs the rounds, `judge.rs` says what they are compared by, `report.rs` makes the table
//! and the JSON; `against.rs` compares two commits, `truth.rs` the lab with what is known. A benchmark, not a test: figures below what is
//! wanted are shown and change no exit code. Times: seconds unless named otherwise.

mod against;
mod aoe;
mod cases;
mod figure;
mod iscsi;
mod judge;
mod lan;
mod load;
mod matrix;
mod measure;
mod mpls;
mod plan;
mod process;
mod progress;
mod report;
mod truth;

use std::time::Duration;

use anyhow::{Result, ensure};
use lab::statistics::plan::ROUNDS_MIN;
use serde_json::json;

use crate::tree::{self, Tree};
use cases::{Case, Extent};
use process::Bench;
use progress::{Piece, Progress};
use report::Row;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each case, in each of which every side runs once from a fresh start: 6; with --against
    /// the most rounds, of which five pilots choose the number: 30.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measured window.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// One round of a fifth of a second, and `truth` only if it is named: to see that everything
    /// works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// List the cases, what they want and about how long they take.
    #[arg(long)]
    list: bool,
    /// CPU of the target.
    #[arg(long, default_value_t = 0)]
    target_cpu: usize,
    /// CPU of the load.
    #[arg(long, default_value_t = 1)]
    load_cpu: usize,
    /// Binary to measure, in place of building one.
    #[arg(long)]
    plateway: Option<std::path::PathBuf>,
    /// Compare this tree with a commit, cell by cell and with the commit again as control, in place
    /// of the ceiling.
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// With --against: how long restless cells are measured again.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Cases to run, by name or by the beginning of a name; all without any.
    #[arg(value_name = "CASE")]
    only: Vec<String>,
}

impl Options {
    /// How much is measured.
    fn extent(&self) -> Extent {
        if self.quick {
            return Extent { rounds: 1, seconds: 0.2, quick: true };
        }
        let rounds = if self.against.is_some() { against::ROUNDS_MAX } else { ROUNDS_MIN };
        let rounds = self.rounds.unwrap_or(rounds).max(1);
        Extent { rounds, seconds: self.seconds, quick: false }
    }

    /// Whether the lab is held against what is known: it takes minutes, whatever else is asked for.
    fn with_truth(&self) -> bool {
        let is_named = self.only.iter().any(|name| truth::NAME.starts_with(name.as_str()));
        self.against.is_none() && (is_named || self.only.is_empty() && !self.quick)
    }
}

/// Runs the cases that were asked for, prints the table and stores the figures.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    let asked = options.extent();
    let mut chosen: Vec<Case> = cases::all()?
        .into_iter()
        .filter(|case| {
            options.only.is_empty() || options.only.iter().any(|name| case.name.starts_with(name))
        })
        .collect();
    if options.against.is_some() {
        against::choose(&mut chosen, !options.only.is_empty());
    }
    let with_truth = options.with_truth();
    ensure!(!chosen.is_empty() || with_truth, "no case has such a name; --list shows them");
    if options.list {
        list(&chosen, options);
        return Ok(true);
    }
    let left_out = lan::leave_out(&mut chosen)?;
    if let Some(line) = &left_out {
        eprintln!("{line}");
    }
    tree::must_succeed(&mut tree.cargo(&["build", "--release", "--package", "yardstick"]))?;
    let plateway = match &options.plateway {
        Some(path) => std::path::absolute(path)?,
        None => crate::release::build(tree)?,
    };
    let bench_of = |plateway| Bench::new(tree, plateway, options.target_cpu, options.load_cpu);
    let bench = bench_of(plateway)?;
    let mut plan = json!({
        "rounds": asked.rounds, "seconds": asked.seconds, "quick": asked.quick,
        "target_cpu": options.target_cpu, "load_cpu": options.load_cpu,
    });
    let mut rows = Vec::new();
    let (mut head, mut verdict) = (report::HEAD, None);
    if let Some(commit) = &options.against {
        let (name, binary) = against::build(tree, commit)?;
        plan["against"] = name.into();
        let before = bench_of(binary)?;
        let most = Duration::from_secs(options.minutes * 60);
        let benches = [&before, &bench, &before];
        let (compared, line) = against::run(benches, &chosen, asked, most);
        (rows, head, verdict) = (compared, against::HEAD, Some(line));
    } else {
        let piece = |case: &Case| Piece { name: case.name.clone(), seconds: case.estimate(asked) };
        let mut pieces: Vec<Piece> = chosen.iter().map(piece).collect();
        if with_truth {
            pieces.push(Piece { name: truth::NAME.to_owned(), seconds: truth::SECONDS });
        }
        let progress = Progress::new(pieces);
        for case in &chosen {
            progress.begin();
            let measured = measure::measure(&bench, case, asked, &progress);
            progress.end();
            rows.push(Row::new(case, measured));
        }
        if with_truth {
            progress.begin();
            rows.extend(truth::run(&bench));
            progress.end();
        }
    }
    let environment = report::environment(tree);
    let path = report::store(tree, &plan, &environment, &rows)?;
    print!("{}", report::table(head, &rows, &environment, options.markdown));
    for line in verdict.into_iter().chain(left_out) {
        println!("\n{line}");
    }
    println!("\nfigures: {}", path.display());
    Ok(true)
}

/// Prints each case with what is wanted of it and about how long it takes.
fn list(cases: &[Case], options: &Options) {
    let (asked, with_truth) = (options.extent(), options.with_truth());
    let estimate = if options.against.is_some() { against::estimate } else { Case::estimate };
    let mut whole = if with_truth { truth::SECONDS } else { 0.0 };
    for case in cases {
        let seconds = estimate(case, asked);
        whole += seconds;
        let takes = progress::duration(seconds);
        println!("{:<22} {takes:>7}  {:<32} {}", case.name, case.wanted(), case.about);
    }
    if with_truth {
        let takes = progress::duration(truth::SECONDS);
        let about =
            "what the lab makes of a delay and of CPU time that are known (plans/truth.toml)";
        println!("{:<22} {takes:>7}  {:<32} {about}", truth::NAME, "200 us +-3%, 20 us +-5%");
    }
    let count = cases.len() + usize::from(with_truth);
    println!("{count} cases, about {}", progress::duration(whole));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Words::parse_from(["bench"].into_iter().chain(words.split_whitespace())).options
    }

    #[test]
    fn a_look_leaves_out_what_takes_minutes_unless_it_is_named() {
        let truth = |words| options(words).with_truth();
        assert!(truth("") && truth("truth") && truth("--quick truth") && truth("tr 4k-"));
        assert!(!truth("--quick") && !truth("4k-") && !truth("--quick 4k-"));
        assert!(!truth("--against HEAD") && !truth("--against HEAD truth"));
    }

    #[test]
    fn pilots_have_more_than_the_fewest_rounds_to_choose_from() {
        let rounds = |words| options(words).extent().rounds;
        assert_eq!([rounds(""), rounds("--against HEAD")], [6, 30]);
        assert_eq!([rounds("--rounds 9"), rounds("--rounds 12 --against HEAD")], [9, 12]);
        assert_eq!([rounds("--rounds 0"), rounds("--quick --against HEAD")], [1, 1]);
    }
}
