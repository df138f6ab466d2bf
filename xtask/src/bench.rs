//! `cargo xtask bench`: Plateway against a ceiling, in operations a second and what they cost in CPU.
//!
//! Most of what is wanted are plans of the lab in `plans/bench`, which `plateway lab run` runs and judges
//! (`families.rs`), with the yardstick as one of their systems; `against.rs` is such a plan that holds
//! two commits against each other, and `truth.rs` holds the lab against what is known. What plans have
//! no words for are cases: the target is pinned to one CPU and the load to another, a case has a
//! subject and references (or a subject and a limit), and rounds, their order, ratios with their
//! intervals and what is said of them are the lab's as well ([`lab::statistics`]). Cases stand in
//! `bench/cases.toml` (read by `cases.rs` and `matrix.rs`, their figures in `figure.rs`). Servers are
//! described in `plan.rs`, of iSCSI in `iscsi.rs`, of AoE in `aoe.rs` and routers in `mpls.rs`
//! (networks of several below it, in `mpls/`), with who is on which LAN in `lan.rs`; loads in
//! `load.rs`; `process.rs` runs both, on namespaces, cables and CPUs of the `testbed` crate.
//! `measure.rs` runs the rounds, `judge.rs` says what they are compared by, `report.rs` makes the table
//! and the JSON. A benchmark, not a test: figures below what is wanted are shown and change no exit
//! code. Times: seconds unless named otherwise.

mod against;
mod aoe;
mod cases;
mod families;
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

use anyhow::{Result, ensure};
use lab::statistics::plan::ROUNDS_MIN;
use serde_json::json;

use crate::tree::Tree;
use cases::{Case, Extent};
use families::{Asked, Came, Family};
use process::Bench;
use progress::{Piece, Progress};
use report::Row;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each case, in each of which every side runs once from a fresh start: 6. Of a plan the
    /// most rounds, of which five pilots choose the number, in place of what its file says.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds that are measured of each side: the window of a case, 1 unless named; five windows of a
    /// plan, in place of what its file says.
    #[arg(long)]
    seconds: Option<f64>,
    /// One round of a fifth of a second, of a plan six of the first load of each list, and `truth` only if
    /// it is named: to see that everything works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// List plans and cases, what they want and about how long they take.
    #[arg(long)]
    list: bool,
    /// CPU of the target, of cases; of plans the lab shares the CPUs that it may use.
    #[arg(long, default_value_t = 0)]
    target_cpu: usize,
    /// CPU of the load, of cases.
    #[arg(long, default_value_t = 1)]
    load_cpu: usize,
    /// Binary to measure, in place of building one.
    #[arg(long)]
    plateway: Option<std::path::PathBuf>,
    /// Compare this tree with a commit, by a plan of its own and with the commit again as control, in
    /// place of the ceiling.
    #[arg(long, value_name = "COMMIT", conflicts_with = "only")]
    against: Option<String>,
    /// With --against: how long it may take.
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Plans and cases to run, by name or by the beginning of a name; all without any.
    #[arg(value_name = "NAME")]
    only: Vec<String>,
}

impl Options {
    /// How much is measured.
    fn extent(&self) -> Extent {
        if self.quick {
            return Extent { rounds: 1, seconds: 0.2, quick: true };
        }
        let rounds = self.rounds.unwrap_or(ROUNDS_MIN).max(1);
        Extent { rounds, seconds: self.seconds.unwrap_or(1.0), quick: false }
    }

    /// The same of plans, which say themselves what is not named here.
    fn asked(&self) -> Asked {
        Asked { seconds: self.seconds, rounds: self.rounds, quick: self.quick }
    }

    /// Whether the lab is held against what is known: it takes minutes, whatever else is asked for.
    fn with_truth(&self) -> bool {
        let is_named = self.only.iter().any(|name| truth::NAME.starts_with(name.as_str()));
        self.against.is_none() && (is_named || self.only.is_empty() && !self.quick)
    }
}

/// Runs the plans and cases that were asked for, tells what they came to and stores the figures.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    if let Some(commit) = &options.against {
        return run_against(tree, options, commit);
    }
    let chosen = cases::all()?.into_iter().filter(|case| {
        options.only.is_empty() || options.only.iter().any(|name| case.name.starts_with(name))
    });
    let mut chosen: Vec<Case> = chosen.collect();
    let families = families::chosen(tree, &options.only)?;
    let families = families.iter().map(|family| family.asked(options.asked()));
    let families: Vec<Family> = families.collect::<Result<_>>()?;
    let with_truth = options.with_truth();
    let is_any = !chosen.is_empty() || !families.is_empty() || with_truth;
    ensure!(is_any, "no plan and no case has such a name; --list shows them");
    if options.list {
        list(&families, &chosen, options);
        return Ok(true);
    }
    let left_out = match chosen.is_empty() {
        true => None,
        false => lan::leave_out(&mut chosen)?,
    };
    if let Some(line) = &left_out {
        eprintln!("{line}");
    }
    let bench = make_bench(tree, options)?;
    let came = run_families(tree, &bench, &families)?;
    if !came.is_empty() {
        println!("{}", families::table(&came, options.markdown));
        println!(
            "kept, with a page of each: {}\n",
            tree.target.join("bench/*.result.json").display()
        );
    }
    if chosen.is_empty() && !with_truth {
        return Ok(true);
    }
    let rows = run_cases(&bench, &chosen, options, with_truth);
    let asked = options.extent();
    let plan = json!({
        "rounds": asked.rounds, "seconds": asked.seconds, "quick": asked.quick,
        "target_cpu": options.target_cpu, "load_cpu": options.load_cpu,
    });
    let environment = report::environment(tree);
    let path = report::store(tree, &plan, &environment, &rows)?;
    print!("{}", report::table(&rows, &environment, options.markdown));
    if let Some(line) = left_out {
        println!("\n{line}");
    }
    println!("\nfigures: {}", path.display());
    Ok(true)
}

/// Builds what measures and what is measured.
fn make_bench(tree: &Tree, options: &Options) -> Result<Bench> {
    crate::release::build_yardstick(tree)?;
    let plateway = match &options.plateway {
        Some(path) => std::path::absolute(path)?,
        None => crate::release::build(tree)?,
    };
    Bench::new(tree, plateway, options.target_cpu, options.load_cpu)
}

/// What each plan came to; one that cannot be run here says why, and the others go on.
fn run_families(tree: &Tree, bench: &Bench, families: &[Family]) -> Result<Vec<Came>> {
    let mut came = Vec::new();
    for family in families {
        eprintln!("{}: {}", family.name, family.experiment.estimate());
        match family.run(tree, &bench.plateway, &bench.yardstick) {
            Err(error) if error.is::<families::Interrupted>() => return Err(error),
            run => came.push(run.unwrap_or_else(|error| Came::nothing(&family.name, &error))),
        }
    }
    Ok(came)
}

fn run_cases(bench: &Bench, chosen: &[Case], options: &Options, with_truth: bool) -> Vec<Row> {
    let asked = options.extent();
    let piece = |case: &Case| Piece { name: case.name.clone(), seconds: case.estimate(asked) };
    let mut pieces: Vec<Piece> = chosen.iter().map(piece).collect();
    if with_truth {
        pieces.push(Piece { name: truth::NAME.to_owned(), seconds: truth::SECONDS });
    }
    let progress = Progress::new(pieces);
    let mut rows = Vec::new();
    for case in chosen {
        progress.begin();
        let measured = measure::measure(bench, case, asked, &progress);
        progress.end();
        rows.push(Row::new(case, measured));
    }
    if with_truth {
        progress.begin();
        rows.extend(truth::run(bench));
        progress.end();
    }
    rows
}

/// Holds this tree against a commit.
fn run_against(tree: &Tree, options: &Options, commit: &str) -> Result<bool> {
    if options.list {
        println!(
            "--against is one plan, of which target/bench/against.toml is written when it runs"
        );
        return Ok(true);
    }
    let bench = make_bench(tree, options)?;
    let (name, before) = against::build(tree, commit)?;
    let family = against::family(&before, &bench.plateway, options.minutes)?;
    let family = family.asked(options.asked())?;
    let came = run_families(tree, &bench, &[family])?;
    print!("{}", families::table(&came, options.markdown));
    let findings: Vec<_> = came.iter().flat_map(Came::findings).collect();
    println!("\n{}", against::verdict(&name, &findings));
    Ok(true)
}

/// Prints each plan and case with what is wanted of it and about how long it takes.
fn list(families: &[Family], cases: &[Case], options: &Options) {
    let (asked, with_truth) = (options.extent(), options.with_truth());
    for Family { name, experiment, .. } in families {
        let (asks, takes) = (experiment.primaries(), experiment.estimate());
        println!("{name:<22} a plan of {asks} bounds, {takes}");
        println!("{:<22} {}", "", experiment.about.as_deref().unwrap_or_default());
    }
    let mut whole = if with_truth { truth::SECONDS } else { 0.0 };
    for case in cases {
        let seconds = case.estimate(asked);
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
    let plans = families.len();
    println!("{plans} plans; {count} cases, about {}", progress::duration(whole));
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
        assert!(!truth("--against HEAD"));
    }

    #[test]
    fn what_is_not_named_is_what_a_plan_says() {
        let rounds = |words| options(words).extent().rounds;
        assert_eq!([rounds(""), rounds("--rounds 9"), rounds("--rounds 0")], [6, 9, 1]);
        let asked = |words| options(words).asked();
        assert_eq!((asked("").rounds, asked("").seconds), (None, None));
        let named = asked("--rounds 9 --seconds 2");
        assert_eq!((named.rounds, named.seconds, named.quick), (Some(9), Some(2.0), false));
        assert_eq!(options("").extent().seconds, 1.0);
    }
}
