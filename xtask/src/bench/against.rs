//! `cargo xtask bench --against COMMIT`: is this tree slower than that commit was?
//!
//! Both are built the same way, and each cell runs the commit, this tree, and the commit once more
//! as a control, one after the other in every round, the order turning. A cell's ratio is this
//! tree's figure by the geometric mean of the commit's two, taken within a round; the interval is
//! that of the median of these ratios, by order statistics, so nothing is assumed of their
//! distribution. The control is the commit by itself: where its median is not between 0.97 and 1.03
//! the machine was too restless to say anything, and the cell gets more rounds, until it is or the
//! time is up. Ratios above 1 are better for every figure.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::cases::{Case, Extent};
use super::figure::Figure;
use super::judge;
use super::measure::Running;
use super::process::Bench;
use super::progress::{Piece, Progress};
use super::report::Row;
use crate::tree::{self, Tree};

/// Between these the control has to lie.
const CONTROL: core::ops::RangeInclusive<f64> = 0.97..=1.03;
/// What the geometric mean of all cells has to reach.
const MEAN_MIN: f64 = 0.99;
/// No cell may lie below this with its whole interval.
const CELL_MIN: f64 = 0.97;
/// With fewer rounds the median has no interval of 95%: of six, lowest and highest hold it in 96.9%
/// of cases.
const ROUNDS_MIN: usize = 6;
/// The cells that are compared when none is named; those that need a minute before they can be
/// measured are not among them.
const CELLS: [&str; 4] = ["4k-", "128k-read", "128k-write", "aoe-"];

/// The headings of the table.
pub(super) const HEAD: [&str; 6] =
    ["case", "commit", "this tree", "ratio: median (95%)", "control: median (95%)", "verdict"];

/// Builds `plateway` as it was at a commit; its full name and the binary.
pub(super) fn build(tree: &Tree, commit: &str) -> Result<(String, PathBuf)> {
    let name = git(tree, &["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?;
    let folder = tree.target.join("against");
    let binary = folder.join(format!("plateway-{name}"));
    if binary.is_file() {
        return Ok((name, binary));
    }
    let root = folder.join("checkout");
    let checkout = root.to_str().context("the target directory's name is no UTF-8")?;
    // One that an interrupted build left is in the way; usually there is none.
    let _ = git(tree, &["worktree", "remove", "--force", checkout]);
    git(tree, &["worktree", "add", "--force", "--detach", checkout, &name])?;
    let there = Tree { root: root.clone(), target: folder.join("target"), host: tree.host.clone() };
    let built = crate::release::build(&there)
        .and_then(|built| std::fs::copy(built, &binary).context("cannot keep the binary"));
    git(tree, &["worktree", "remove", "--force", checkout])?;
    built?;
    Ok((name, binary))
}

/// What `git ARGS` prints.
fn git(tree: &Tree, args: &[&str]) -> Result<String> {
    let mut command = tree.command("git");
    let output = command.args(args).output().context("git")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{}: {}", tree::words(&command), said(&output.stderr));
    Ok(said(&output.stdout))
}

/// Leaves those cases that have a speed of ours to compare: the named ones, else those of
/// [`CELLS`].
pub(super) fn choose(cases: &mut Vec<Case>, named: bool) {
    cases.retain(|case| {
        !case.references.is_empty()
            && (named || CELLS.iter().any(|beginning| case.name.starts_with(beginning)))
    });
}

/// A case and what its rounds gave: the commit, this tree, the commit again.
struct Cell<'a> {
    case: &'a Case,
    rounds: Vec<[f64; 3]>,
    raw: Vec<Value>,
    /// Why it was not measured.
    trouble: Option<String>,
}

impl Cell<'_> {
    /// This tree by the commit, a round each; above 1 is better.
    fn ratios(&self) -> Vec<f64> {
        let ratio = |[before, now, again]: &[f64; 3]| now / (before * again).sqrt();
        self.rounds.iter().map(ratio).map(|ratio| self.better(ratio)).collect()
    }

    /// The commit by itself, a round each.
    fn control(&self) -> Vec<f64> {
        self.rounds.iter().map(|[before, _, again]| self.better(again / before)).collect()
    }

    fn better(&self, ratio: f64) -> f64 {
        if self.figure().is_cost() { 1.0 / ratio } else { ratio }
    }

    /// What is compared: the first of the case's figures.
    fn figure(&self) -> Figure {
        self.case.figures[0].of
    }

    fn is_calm(&self) -> bool {
        self.trouble.is_some() || CONTROL.contains(&judge::median(&self.control()))
    }

    /// About how many seconds as many rounds take of the commit, this tree, and the commit again.
    fn estimate(&self, asked: Extent) -> f64 {
        self.case.estimate(asked) * 3.0 / self.case.sides().count() as f64
    }

    /// Some more rounds with servers of their own.
    fn measure(&mut self, benches: [&Bench; 3], asked: Extent, progress: &Progress) {
        let (figure, extent) = (self.figure(), self.case.extent(asked));
        let rounds = extent.rounds;
        let (mut found, mut raw) = (Vec::new(), Vec::new());
        let done = (|| -> Result<()> {
            let mut sides = Vec::new();
            for bench in benches {
                sides.push(Running::start(bench, &self.case.subject)?);
            }
            for round in 0..rounds {
                progress.show(&format!("round {} of {rounds}", round + 1));
                let mut seen = [0.0; 3];
                for turn in 0..sides.len() {
                    // The order turns, so that a drift of the machine favours no side.
                    let which = (turn + round) % sides.len();
                    let printed = sides[which].run(benches[which], self.case, extent)?;
                    let value = figure.of(&printed).filter(|value| value.is_finite());
                    seen[which] = value.with_context(|| {
                        format!("{figure:?} is not in what was printed: {printed}")
                    })?;
                    raw.push(json!({"side": which, "seen": printed}));
                }
                found.push(seen);
            }
            Ok(())
        })();
        self.trouble = done.err().map(|error| format!("{error:#}"));
        self.rounds.append(&mut found);
        self.raw.append(&mut raw);
    }

    fn row(&self) -> Row {
        let figure = self.figure();
        let show = |side: usize| {
            let values: Vec<f64> = self.rounds.iter().map(|round| round[side]).collect();
            figure.show(judge::median(&values))
        };
        let (ratios, control) = (self.ratios(), self.control());
        let verdict = match &self.trouble {
            Some(_) => "not measured",
            None if interval(&ratios).1 < CELL_MIN => "slower",
            None if !self.is_calm() => "restless",
            None => "ok",
        };
        let json = json!({
            "case": self.case.name, "about": self.case.about, "figure": format!("{figure:?}"),
            "ratios": ratios, "control": control, "verdict": verdict, "error": self.trouble,
            "rounds": self.rounds, "raw": self.raw,
        });
        let cells = [show(0), show(1), written(&ratios), written(&control), verdict.to_owned()];
        Row::of(&self.case.name, cells, self.trouble.clone(), json)
    }
}

/// Measures all cells, those whose control is restless again until the time is up.
pub(super) fn run(
    benches: [&Bench; 3],
    cases: &[Case],
    asked: Extent,
    most: Duration,
) -> (Vec<Row>, String) {
    let asked = Extent { rounds: asked.rounds.max(ROUNDS_MIN), ..asked };
    let until = Instant::now() + most;
    let cell = |case| Cell { case, rounds: Vec::new(), raw: Vec::new(), trouble: None };
    let mut cells: Vec<Cell<'_>> = cases.iter().map(cell).collect();
    for pass in 0.. {
        let waits = |cell: &&mut Cell<'_>| pass == 0 || !cell.is_calm();
        let restless: Vec<&mut Cell<'_>> = cells.iter_mut().filter(waits).collect();
        if restless.is_empty() || (pass > 0 && Instant::now() > until) {
            break;
        }
        let pieces = restless
            .iter()
            .map(|cell| Piece { name: cell.case.name.clone(), seconds: cell.estimate(asked) });
        let progress = Progress::new(pieces.collect());
        for cell in restless {
            if pass > 0 && Instant::now() > until {
                break;
            }
            progress.begin();
            cell.measure(benches, asked, &progress);
            progress.end();
        }
    }
    let verdict = verdict(&cells);
    (cells.iter().map(Cell::row).collect(), verdict)
}

/// The line below the table.
fn verdict(cells: &[Cell<'_>]) -> String {
    let measured: Vec<_> = cells.iter().filter(|cell| !cell.rounds.is_empty()).collect();
    let mean = |of: &dyn Fn(&Cell<'_>) -> Vec<f64>| {
        let logarithms: f64 = measured.iter().map(|cell| judge::median(&of(cell)).ln()).sum();
        (logarithms / measured.len() as f64).exp()
    };
    let (ratio, control) = (mean(&|cell| cell.ratios()), mean(&|cell| cell.control()));
    let slower = |cell: &&&Cell<'_>| interval(&cell.ratios()).1 < CELL_MIN;
    let slow: Vec<&str> = measured.iter().filter(slower).map(|cell| &*cell.case.name).collect();
    let restless = measured.iter().filter(|cell| !cell.is_calm()).count();
    let missing = cells.len() - measured.len();
    let judged = if ratio >= MEAN_MIN && slow.is_empty() && missing == 0 { "no" } else { "yes" };
    format!(
        "geometric mean of {} cells: {ratio:.3} (wanted >= {MEAN_MIN}), control {control:.3}; \
         cells wholly below {CELL_MIN}: {}; restless: {restless}; not measured: {missing}. Slower: {judged}.",
        measured.len(),
        if slow.is_empty() { "none".to_owned() } else { slow.join(", ") },
    )
}

fn written(ratios: &[f64]) -> String {
    let (low, high) = interval(ratios);
    format!("{:.3} ({low:.3}..{high:.3})", judge::median(ratios))
}

/// Between which the true median lies in at least 95% of cases; everything, if there are too few
/// values.
///
/// Each value is above the true median with probability 1/2, so how many are is binomial: the
/// interval leaves out as many values at each end as keep both tails below 2.5%.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut tail = 0.5_f64.powi(count as i32);
    if tail > 0.025 {
        return (0.0, f64::INFINITY);
    }
    let (mut left_out, mut term) = (0, tail);
    loop {
        term *= (count - left_out) as f64 / (left_out + 1) as f64;
        tail += term;
        if tail > 0.025 {
            return (sorted[left_out], sorted[count - 1 - left_out]);
        }
        left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_that_of_the_tables() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&values(5)), (0.0, f64::INFINITY), "too few");
        assert_eq!(interval(&values(6)), (1.0, 6.0));
        assert_eq!(interval(&values(9)), (2.0, 8.0));
        assert_eq!(interval(&values(20)), (6.0, 15.0));
    }

    fn cell(case: &Case, rounds: usize, seen: [f64; 3]) -> Cell<'_> {
        Cell { case, rounds: vec![seen; rounds], raw: Vec::new(), trouble: None }
    }

    fn case(figure: Figure) -> Case {
        let mut cases = super::super::cases::all().unwrap();
        choose(&mut cases, false);
        let mut case = cases.remove(0);
        case.figures[0].of = figure;
        case
    }

    #[test]
    fn a_cell_wholly_below_the_bound_is_slower_and_so_is_a_mean_below_its_own() {
        let speed = case(Figure::OpsPerCpu);
        let even = cell(&speed, 6, [100.0, 100.0, 100.0]);
        let slow = cell(&speed, 6, [100.0, 96.0, 100.0]);
        assert!(verdict(&[cell(&speed, 6, [100.0, 99.5, 100.0])]).ends_with("Slower: no."));
        let text = verdict(&[even, slow]);
        assert!(text.contains(&speed.name) && text.ends_with("Slower: yes."), "{text}");
        let few = cell(&speed, 5, [100.0, 96.0, 100.0]);
        assert!(verdict(&[few]).contains("wholly below 0.97: none"), "no interval of five");
    }

    #[test]
    fn a_cost_that_falls_is_better() {
        let cost = case(Figure::LoadCpu);
        assert_eq!(cell(&cost, 6, [4.0, 2.0, 4.0]).ratios(), [2.0; 6]);
    }

    #[test]
    fn a_control_that_drifts_is_restless_and_what_was_not_measured_is_no_pass() {
        let speed = case(Figure::OpsPerCpu);
        assert!(!cell(&speed, 6, [100.0, 100.0, 106.0]).is_calm());
        assert!(cell(&speed, 6, [100.0, 50.0, 102.0]).is_calm(), "only the control counts");
        let even = cell(&speed, 6, [100.0, 100.0, 100.0]);
        let text = verdict(&[even, cell(&speed, 0, [0.0; 3])]);
        assert!(text.contains("not measured: 1") && text.ends_with("Slower: yes."), "{text}");
    }
}
