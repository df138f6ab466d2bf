//! `cargo xtask bench`: Plateway against a ceiling, in operations per second of the target's CPU.
//!
//! The target is pinned to one CPU and the load to another. A case has two sides (or one side and a
//! limit); within a round the sides run one after the other, the order turning each round, and the
//! figure is the median of the ratios within a round. What is compared stands in
//! `bench/cases.toml`, processes and their configurations in `bench/process.rs` and, of AoE,
//! `bench/aoe.rs`, the namespaces of AoE in `bench/lan.rs`, the table and the JSON in
//! `bench/report.rs`; `bench/against.rs` compares two commits. A benchmark, not a test: figures
//! below what is wanted are shown and change no exit code. Times: seconds unless named otherwise.

mod against;
mod aoe;
mod cases;
mod lan;
mod process;
mod report;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::tree::{self, Tree};
use cases::{Case, Load, Side};
use process::{Bench, Server};
use report::{Measured, Row};

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each case.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measured window.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Two rounds of half a second: to see that everything works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// List the cases and what they want.
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

/// Runs the cases that were asked for, prints the table and stores the figures.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<bool> {
    let (rounds, seconds) =
        if options.quick { (2, 0.5) } else { (options.rounds.max(1), options.seconds) };
    let mut chosen: Vec<Case> = cases::all()?
        .into_iter()
        .filter(|case| {
            options.only.is_empty() || options.only.iter().any(|name| case.name.starts_with(name))
        })
        .collect();
    if options.against.is_some() {
        against::choose(&mut chosen, !options.only.is_empty());
    }
    ensure!(!chosen.is_empty(), "no case has such a name; --list shows them");
    if options.list {
        for case in &chosen {
            println!("{:<18} {:<15} {}", case.name, case.wanted(), case.about);
        }
        return Ok(true);
    }
    let left_out = aoe::leave_out(&mut chosen)?;
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
        "rounds": rounds, "seconds": seconds,
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
        let (compared, line) = against::run(benches, &chosen, rounds, seconds, most);
        (rows, head, verdict) = (compared, against::HEAD, Some(line));
    } else {
        for (number, case) in chosen.iter().enumerate() {
            let progress = Progress::new(number + 1, chosen.len(), &case.name);
            let measured = measure(&bench, case, rounds, seconds, &progress);
            progress.done();
            rows.push(Row::new(case, measured));
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

/// After so long a server without connections has cleared up: memory is given back within a second,
/// and a disk that was asked is looked after for five.
const CLEARED_UP: Duration = Duration::from_secs(6);

/// Measures one case.
fn measure(
    bench: &Bench,
    case: &Case,
    rounds: usize,
    seconds: f64,
    progress: &Progress,
) -> Result<Measured> {
    let mut figures = Measured::default();
    let Some(reference) = &case.reference else {
        let rounds = rounds.min(3);
        for round in 0..rounds {
            progress.show(&format!("round {} of {rounds}", round + 1));
            let mut running = Running::start(bench, &case.subject)?;
            let (figure, raw) = running.run(bench, seconds.max(3.0), case.figure)?;
            figures.raw.push(json!({"round": round, "seen": raw}));
            figures.add([figure, figure]);
        }
        return Ok(figures);
    };
    let mut sides = vec![Running::start(bench, reference)?, Running::start(bench, &case.subject)?];
    match case.beside.as_ref().map(|beside| Running::start(bench, beside)) {
        Some(Ok(running)) => sides.push(running),
        // It is no part of the case: the other two are measured without it.
        Some(Err(error)) => figures.alone = Some(format!("nothing beside: {error:#}")),
        None => {}
    }
    for round in 0..rounds {
        progress.show(&format!("round {} of {rounds}", round + 1));
        let mut seen = [0.0; 3];
        for turn in 0..sides.len() {
            // The order turns, so that a drift of the machine favours no side.
            let side = (turn + round) % sides.len();
            let (figure, raw) = sides[side].run(bench, seconds, case.figure)?;
            seen[side] = figure;
            figures.note(&raw);
            figures.raw.push(json!({"round": round, "side": side, "seen": raw}));
        }
        figures.add([seen[0], seen[1]]);
        if sides.len() == 3 {
            figures.add_beside(seen[2]);
        }
    }
    Ok(figures)
}

/// A side with its server, if it has one.
struct Running<'a> {
    side: &'a Side,
    server: Option<Server>,
}

impl<'a> Running<'a> {
    /// Starts the server and, for a RAM volume of Plateway, touches every block of it.
    fn start(bench: &Bench, side: &'a Side) -> Result<Self> {
        let server = match &side.server {
            Some(plan) => Some(bench.serve(plan)?),
            None => None,
        };
        if let Some(server) = &server
            && side.server.as_ref().is_some_and(process::Plan::fill)
        {
            let size = if server.lan().is_some() { "--bs=full" } else { "--bs=128k" };
            bench.client(server, &["--rw=write", size, "--fill"], 0.0)?;
        }
        Ok(Self { side, server })
    }

    /// One window; the figure and everything that was seen.
    fn run(&mut self, bench: &Bench, seconds: f64, figure: cases::Figure) -> Result<(f64, Value)> {
        let (Load::Client(args) | Load::Initiator(args) | Load::Fio(args)) = &self.side.load;
        let args: Vec<&str> = args.split(' ').collect();
        let raw = match (&self.side.load, &self.server) {
            (Load::Client(_), Some(server)) => {
                bench.settle(server)?;
                if figure == cases::Figure::Wakeups {
                    // Idle is what comes after the last activity has been cleared up.
                    std::thread::sleep(CLEARED_UP);
                }
                bench.client(server, &args, seconds)?
            }
            (Load::Initiator(_), server) => bench.initiator(server.as_ref(), &args, seconds)?,
            (Load::Fio(_), _) => bench.fio(&args, seconds)?,
            (Load::Client(_), None) => anyhow::bail!("a client needs a server"),
        };
        let value = figure
            .of(&raw)
            .with_context(|| format!("{figure:?} is not in what was printed: {raw}"))?;
        ensure!(value.is_finite(), "{figure:?} came out as {value}");
        Ok((value, raw))
    }
}

/// A line on standard error that says what goes on, rewritten in place on a terminal.
struct Progress(ProgressBar);

impl Progress {
    fn new(number: usize, of: usize, name: &str) -> Self {
        let head = format!("[{number}/{of}] {name}");
        let bar = ProgressBar::new_spinner().with_prefix(head.clone());
        let style = ProgressStyle::with_template("{prefix}: {msg}, {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        if bar.is_hidden() {
            eprintln!("{head}");
        }
        Self(bar)
    }

    fn show(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn done(&self) {
        let spent = self.0.elapsed();
        if self.0.is_hidden() && spent > Duration::from_secs(2) {
            eprintln!("{}: {:.0} s", self.0.prefix(), spent.as_secs_f64());
        }
        self.0.finish_and_clear();
    }
}
