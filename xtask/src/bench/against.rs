//! `cargo xtask bench --against COMMIT`: is this tree slower than that commit was?
//!
//! Both are built the same way. A cell is a plan of the lab ([`lab::statistics`]): in each round the
//! commit, this tree and the commit once more run from fresh starts, in a balanced order; five pilots
//! set the number of rounds; this tree's figure is held against the geometric mean of the commit's
//! two, and all cells are corrected together. The commit by itself is the control: where its own
//! interval leaves no room for "equal", its mean is further from that than what is looked for, or the
//! rounds never became steady, the machine was too restless to say anything, and the cell is
//! measured anew, all of it, until it is or the time is up; what this tree did is not looked at for
//! that. Ratios above 1 are better for every figure.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::statistics::plan::ROUNDS_MIN;
use lab::statistics::sizing::PILOTS;
use lab::statistics::{
    Analysis, Better, Bound, Comparison, Estimate, Plan, Schedule, Taken, Trials, Verdict, analyse,
    analyse_together, median,
};
use serde_json::{Value, json};

use super::cases::{Case, Extent};
use super::figure::Figure;
use super::measure::{Seat, run_round, told, unsteady};
use super::process::Bench;
use super::progress::{Piece, Progress};
use super::report::{RESTLESS, Row};
use crate::tree::{self, Tree};

/// What the geometric mean of all cells has to reach.
const MEAN_MIN: f64 = 0.99;
/// What a cell's rounds are to show, if it is there; the commit may not differ as much from itself.
const DIFFERENCE: f64 = 0.03;
/// The most rounds of a cell, unless they are named: where there may be no more than the fewest, pilots
/// choose nothing.
pub(super) const ROUNDS_MAX: usize = 5 * ROUNDS_MIN;
/// The cells that are compared when none is named; those that need a minute before they can be
/// measured are not among them.
const CELLS: [&str; 4] = ["4k-", "128k-read", "128k-write", "aoe-"];

/// The headings of the table.
pub(super) const HEAD: [&str; 6] =
    ["case", "commit", "this tree", "ratio (95% of all)", "control (95%)", "verdict"];

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

/// About how many seconds the most rounds of a case take, of the commit, this tree, and the commit
/// again.
pub(super) fn estimate(case: &Case, asked: Extent) -> f64 {
    let asked = Extent { rounds: asked.rounds.max(ROUNDS_MIN) + PILOTS, ..asked };
    case.estimate(asked) * 3.0 / case.sides().count() as f64
}

/// Columns of a round: what the commit, this tree, and the commit again did.
const BEFORE: usize = 0;
const NOW: usize = 1;
const AGAIN: usize = 2;
/// What the commit did on average.
const COMMIT: usize = 3;

/// A case and what its rounds gave.
struct Cell<'a> {
    case: &'a Case,
    plan: Plan,
    /// Absent until it was measured.
    taken: Option<Taken>,
    /// Whether the commit was as fast as itself in that.
    is_calm: bool,
    /// What was printed, in the order in which it was.
    raw: Vec<Value>,
    /// Why it was not measured.
    trouble: Option<String>,
}

impl<'a> Cell<'a> {
    fn new(case: &'a Case, rounds_max: usize) -> Self {
        let better = if case.figures[0].of.is_cost() { Better::Lower } else { Better::Higher };
        let compare = |name: &str, subject, reference, primary| {
            let name = format!("{}: {name}", case.name);
            Comparison { name, subject, reference, better, bound: None, primary }
        };
        let comparisons = vec![
            compare("this tree against the commit", NOW, COMMIT, true),
            compare("the commit against itself", AGAIN, BEFORE, false),
        ];
        let (difference, seed) = (DIFFERENCE, 1);
        let plan = Plan {
            systems: 3,
            columns: 4,
            comparisons,
            difference,
            margin: difference,
            rounds_max,
            seed,
        };
        Self { case, plan, taken: None, is_calm: true, raw: Vec::new(), trouble: None }
    }

    /// What is compared: the first of the case's figures.
    fn figure(&self) -> Figure {
        self.case.figures[0].of
    }

    /// Keeps what was taken, and looks once at the control.
    fn take(&mut self, taken: Taken) {
        let control = analyse(&self.plan, &taken).findings[1].estimate;
        let is_even = |estimate: Estimate| {
            let near = Bound::Within(DIFFERENCE).keeps(estimate.ratio.ratio());
            near && !estimate.corrected.excludes_equal()
        };
        self.is_calm = taken.withheld.is_none() && control.is_some_and(is_even);
        self.taken = Some(taken);
    }

    /// All its rounds; what an earlier try came to is lost.
    fn measure(&mut self, benches: [&Bench; 3], asked: Extent, progress: &Progress) {
        *self = Self::new(self.case, self.plan.rounds_max);
        match self.try_to_measure(benches, asked, progress) {
            Ok(taken) => self.take(taken),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    fn try_to_measure(
        &mut self,
        benches: [&Bench; 3],
        asked: Extent,
        progress: &Progress,
    ) -> Result<Taken> {
        let (case, figure) = (self.case, self.figure());
        let extent = case.extent(asked);
        let mut seats = benches.map(|bench| Seat::new(bench, &case.subject));
        let mut schedule = Schedule::new(self.plan.clone())?;
        while let Some(round) = schedule.poll_round() {
            progress.show(&told(&round, &schedule));
            let seen = run_round(&mut seats, &round, case, extent)?;
            let values = seen.iter().map(|printed| figure.measured(printed));
            let mut values = values.collect::<Result<Vec<f64>>>()?;
            values.push((values[BEFORE] * values[AGAIN]).sqrt());
            schedule.handle_round(Trials { values, unsteady: unsteady(&seen) })?;
            self.raw.push(json!({"round": round, "seen": seen}));
        }
        Ok(schedule.finish())
    }

    fn row(&self, analysis: Option<&Analysis>) -> Row {
        let figure = self.figure();
        let show = |column: usize| {
            let rounds = self.taken.iter().flat_map(|taken| &taken.rounds);
            let values: Vec<f64> = rounds.map(|round| round[column]).collect();
            median(&values).map_or_else(|| "-".to_owned(), |value| figure.show(value))
        };
        let of = |at: usize| analysis.map(|analysis| &analysis.findings[at]);
        let ratio = |at: usize| {
            let estimate = of(at).and_then(|finding| finding.estimate);
            estimate.map_or_else(|| "-".to_owned(), |estimate| written(&estimate))
        };
        let verdict = match of(0) {
            None => "not measured".to_owned(),
            Some(_) if !self.is_calm => RESTLESS.to_owned(),
            Some(finding) => short(&finding.verdict).to_owned(),
        };
        let json = json!({
            "case": self.case.name, "about": self.case.about, "figure": format!("{figure:?}"),
            "analysis": analysis, "verdict": verdict, "error": self.trouble, "raw": self.raw,
            "rounds": self.taken.as_ref().map(|taken| &taken.rounds),
        });
        let cells = [show(COMMIT), show(NOW), ratio(0), ratio(1), verdict];
        Row::of(&self.case.name, cells, self.trouble.clone(), json)
    }
}

/// A verdict in a word of the table.
fn short(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Faster { .. } => "faster",
        Verdict::Slower { .. } => "slower",
        Verdict::Equal { .. } => "equal",
        Verdict::NoDifferenceShown { .. } => "none shown",
        Verdict::Undecided { .. } => "undecided",
        // Nobody asks for a bound here.
        Verdict::Held { .. } | Verdict::NotHeld { .. } | Verdict::Open { .. } => "bound",
        Verdict::Withheld { .. } => "no verdict",
    }
}

/// Measures all cells, those whose control is restless again until the time is up.
pub(super) fn run(
    benches: [&Bench; 3],
    cases: &[Case],
    asked: Extent,
    most: Duration,
) -> (Vec<Row>, String) {
    let rounds_max = asked.rounds.max(ROUNDS_MIN);
    let until = Instant::now() + most;
    let mut cells: Vec<Cell<'_>> = cases.iter().map(|case| Cell::new(case, rounds_max)).collect();
    for pass in 0.. {
        let waits = |cell: &&mut Cell<'_>| pass == 0 || !cell.is_calm;
        let restless: Vec<&mut Cell<'_>> = cells.iter_mut().filter(waits).collect();
        if restless.is_empty() || (pass > 0 && Instant::now() > until) {
            break;
        }
        let pieces = restless.iter().map(|cell| Piece {
            name: cell.case.name.clone(),
            seconds: estimate(cell.case, asked),
        });
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
    let analyses = analyses(&cells);
    let verdict = verdict(&cells, &analyses);
    let rows = cells.iter().zip(&analyses).map(|(cell, analysis)| cell.row(analysis.as_ref()));
    (rows.collect(), verdict)
}

/// All cells that were measured, corrected together.
fn analyses(cells: &[Cell<'_>]) -> Vec<Option<Analysis>> {
    let parts: Vec<(&Plan, &Taken)> =
        cells.iter().filter_map(|cell| Some((&cell.plan, cell.taken.as_ref()?))).collect();
    let mut analysed = analyse_together(&parts).into_iter();
    cells.iter().map(|cell| cell.taken.as_ref().and_then(|_| analysed.next())).collect()
}

/// The line below the table.
fn verdict(cells: &[Cell<'_>], analyses: &[Option<Analysis>]) -> String {
    let mean = |at: usize| {
        let found = analyses.iter().flatten().filter_map(|one| one.findings[at].estimate);
        let logs: Vec<f64> = found.map(|estimate| estimate.ratio.0).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    };
    let each = || cells.iter().zip(analyses);
    let is_slower = |(cell, analysis): &(&Cell<'_>, &Option<Analysis>)| {
        let verdict = analysis.as_ref().map(|analysis| analysis.findings[0].verdict);
        cell.is_calm && matches!(verdict, Some(Verdict::Slower { .. }))
    };
    let slow: Vec<&str> = each().filter(is_slower).map(|(cell, _)| &*cell.case.name).collect();
    let restless = cells.iter().filter(|cell| !cell.is_calm).count();
    let missing = analyses.iter().filter(|analysis| analysis.is_none()).count();
    let (ratio, control) = (mean(0), mean(1));
    let judged = if ratio >= MEAN_MIN && slow.is_empty() && missing == 0 { "no" } else { "yes" };
    format!(
        "geometric mean of {} cells: {ratio:.3} (wanted >= {MEAN_MIN}), control {control:.3}; \
         cells that are slower: {}; restless: {restless}; not measured: {missing}. Slower: {judged}.",
        cells.len() - missing,
        if slow.is_empty() { "none".to_owned() } else { slow.join(", ") },
    )
}

fn written(estimate: &Estimate) -> String {
    let seen = estimate.corrected;
    let [ratio, low, high] = [estimate.ratio, seen.low, seen.high].map(|log| log.ratio());
    format!("{ratio:.3} ({low:.3}..{high:.3})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell whose rounds were each like this, but for a per mille of noise.
    fn cell(case: &Case, rounds: usize, seen: [f64; 3]) -> Cell<'_> {
        let mut cell = Cell::new(case, ROUNDS_MIN);
        let mut schedule = Schedule::fixed(cell.plan.clone(), rounds);
        for round in 0..rounds {
            schedule.poll_round().unwrap();
            // None of the three moves with another.
            let noise = |side: usize| 1.0 + 0.001 * (((round * 7 + side * 5) % 3) as f64 - 1.0);
            let [before, now, again] = [0, 1, 2].map(|side| seen[side] * noise(side));
            let values = vec![before, now, again, (before * again).sqrt()];
            schedule.handle_round(Trials { values, unsteady: Vec::new() }).unwrap();
        }
        if rounds > 0 {
            cell.take(schedule.finish());
        }
        cell
    }

    fn said(cells: &[Cell<'_>]) -> String {
        verdict(cells, &analyses(cells))
    }

    fn case(figure: Figure) -> Case {
        let mut cases = super::super::cases::all().unwrap();
        choose(&mut cases, false);
        let mut case = cases.remove(0);
        case.figures[0].of = figure;
        case
    }

    #[test]
    fn a_cell_that_is_shown_to_be_slower_is_and_so_is_a_mean_below_its_bound() {
        let speed = case(Figure::OpsPerCpu);
        let even = || cell(&speed, 6, [100.0, 100.0, 100.0]);
        let slow = || cell(&speed, 6, [100.0, 96.0, 100.0]);
        assert!(said(&[even()]).ends_with("Slower: no."), "{}", said(&[even()]));
        let text = said(&[even(), slow(), even(), even(), even(), even(), even()]);
        assert!(text.contains(&speed.name) && text.ends_with("Slower: yes."), "{text}");
        let analysis = analyses(&[slow()]).remove(0);
        assert_eq!(slow().row(analysis.as_ref()).verdict(), "slower");
    }

    #[test]
    fn a_cost_that_falls_is_better() {
        let cost = case(Figure::LoadCpu);
        let cells = [cell(&cost, 6, [4.0, 2.0, 4.0])];
        let found = analyses(&cells)[0].as_ref().unwrap().findings[0].clone();
        assert!((found.estimate.unwrap().ratio.ratio() - 2.0).abs() < 0.01);
        assert!(matches!(found.verdict, Verdict::Faster { .. }));
    }

    #[test]
    fn a_control_that_moves_is_restless_and_what_was_not_measured_is_no_pass() {
        let speed = case(Figure::OpsPerCpu);
        let restless = cell(&speed, 6, [100.0, 50.0, 106.0]);
        assert!(!restless.is_calm);
        assert!(said(&[restless]).contains("slower: none; restless: 1"));
        assert!(cell(&speed, 6, [100.0, 50.0, 100.0]).is_calm, "only the control counts");
        let text = said(&[cell(&speed, 6, [100.0; 3]), cell(&speed, 0, [0.0; 3])]);
        assert!(text.contains("not measured: 1") && text.ends_with("Slower: yes."), "{text}");
    }

    #[test]
    fn a_control_that_is_off_by_what_is_looked_for_is_restless_however_wide_its_interval() {
        let speed = case(Figure::OpsPerCpu);
        let cell = |again: [f64; 6], unsteady: usize| {
            let mut cell = Cell::new(&speed, ROUNDS_MAX);
            let mut schedule = Schedule::fixed(cell.plan.clone(), 6);
            while let Some(round) = schedule.poll_round() {
                let again = again[round.number];
                let values = vec![100.0, 50.0, again, (100.0 * again).sqrt()];
                let unsteady = vec![0; usize::from(round.number < unsteady)];
                schedule.handle_round(Trials { values, unsteady }).unwrap();
            }
            cell.take(schedule.finish());
            let analysis = analyse(&cell.plan, cell.taken.as_ref().unwrap());
            let control = analysis.findings[1].estimate.unwrap();
            assert!(!control.corrected.excludes_equal(), "{control:?}");
            cell
        };
        assert!(!cell([90.0, 130.0, 95.0, 125.0, 88.0, 110.0], 0).is_calm);
        let even = [90.0, 112.0, 95.0, 106.0, 91.0, 109.0];
        assert!(cell(even, 2).is_calm);
        assert!(!cell(even, 3).is_calm, "more than a third were never steady");
    }
}
