//! Measuring a case: its sides are started, and run one after the other in every round.
//!
//! The order turns each round, so that a drift of the machine favours no side. What comes out is
//! what the loads printed; [`super::judge`] says what that means. Errors: a side that does not
//! start or run, or whose load does not print what the case is judged by.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cases::{self, By, Case, Extent, Load, Side};
use super::figure::Figure;
use super::judge::Rounds;
use super::load::Hog;
use super::mpls::{cuts, idle};
use super::plan::Plan;
use super::process::{Bench, Server};
use super::progress::Progress;

/// After so long a server without connections has cleared up: memory is given back within a second,
/// and a disk that was asked is looked after for five.
pub(super) const CLEARED_UP: Duration = Duration::from_secs(6);

/// Measures one case.
pub(super) fn measure(
    bench: &Bench,
    case: &Case,
    asked: Extent,
    progress: &Progress,
) -> Result<Rounds> {
    let extent = case.extent(asked);
    let mut rounds = Rounds::default();
    let say = |round: usize| progress.show(&format!("round {} of {}", round + 1, extent.rounds));
    if case.references.is_empty() {
        for round in 0..extent.rounds {
            say(round);
            let mut running = Running::start(bench, &case.subject)?;
            let raw = running.run(bench, case, extent)?;
            check(case, 0, &raw)?;
            rounds.seen.push(vec![raw]);
        }
        return Ok(rounds);
    }
    let mut sides = Vec::new();
    for side in case.references.iter().chain([&case.subject]) {
        sides.push(Running::start(bench, side)?);
    }
    match case.beside.as_ref().map(|beside| Running::start(bench, beside)) {
        Some(Ok(running)) => sides.push(running),
        // It is no part of the case: the others are measured without it.
        Some(Err(error)) => rounds.alone = Some(format!("nothing beside: {error:#}")),
        None => {}
    }
    for round in 0..extent.rounds {
        say(round);
        let mut seen = vec![Value::Null; sides.len()];
        for turn in 0..sides.len() {
            let side = (turn + round) % sides.len();
            seen[side] = sides[side].run(bench, case, extent)?;
            check(case, side, &seen[side])?;
        }
        rounds.seen.push(seen);
    }
    Ok(rounds)
}

/// Whether a side's load printed all that the case asks of it.
fn check(case: &Case, side: usize, raw: &Value) -> Result<()> {
    let is_reference = side < case.references.len();
    let judged = case.figures.iter().filter(|bound| !(is_reference && bound.own));
    let chosen_by = is_reference && case.by == By::Best && case.references.len() > 1;
    for figure in judged.map(|bound| bound.of).chain(chosen_by.then_some(Figure::Iops)) {
        let value = figure.of(raw);
        let value =
            value.with_context(|| format!("{figure:?} is not in what was printed: {raw}"))?;
        ensure!(value.is_finite(), "{figure:?} came out as {value}");
    }
    Ok(())
}

/// A side with its server, if it has one.
pub(super) struct Running<'a> {
    side: &'a Side,
    server: Option<Server>,
    /// Windows so far.
    windows: usize,
}

impl<'a> Running<'a> {
    /// Starts the server and, for a volume of Plateway, writes every block of it.
    pub(super) fn start(bench: &Bench, side: &'a Side) -> Result<Self> {
        let server = match &side.server {
            Some(plan) => Some(bench.serve(plan)?),
            None => None,
        };
        if let Some(server) = &server
            && let Some(args) = side.server.as_ref().and_then(Plan::fill)
        {
            bench.client(server, args, 0.0)?;
        }
        Ok(Self { side, server, windows: 0 })
    }

    /// One window; everything that was seen.
    pub(super) fn run(&mut self, bench: &Bench, case: &Case, extent: Extent) -> Result<Value> {
        if let (Load::Client(_), Some(server)) = (&self.side.load, &self.server) {
            bench.settle(server)?;
        }
        let hog = match self.side.hog {
            true => Some(Hog::start(bench)?),
            false => None,
        };
        let mut raw = self.load(bench, case, extent)?;
        self.windows += 1;
        if let Some(hog) = hog {
            hog.finish(&mut raw)?;
        }
        Ok(raw)
    }

    fn load(&self, bench: &Bench, case: &Case, extent: Extent) -> Result<Value> {
        let seconds = extent.seconds;
        let mut args: Vec<&str> = self.side.load.args().split_whitespace().collect();
        match (&self.side.load, &self.server) {
            (Load::Client(_), Some(server)) => {
                if case.figures.iter().any(|bound| bound.of == Figure::Wakeups) {
                    // Idle is what comes after the last activity has been cleared up.
                    std::thread::sleep(CLEARED_UP);
                }
                let aging = cases::aging_seconds(self.windows, extent.quick);
                let aging = format!("--before-write-seconds={aging}");
                if self.side.server.as_ref().is_some_and(Plan::is_aged) {
                    args.push(&aging);
                }
                bench.client(server, &args, seconds)
            }
            (Load::Cuts(_), Some(server)) => cuts::run(bench, server, &args, extent.quick),
            (Load::Steady(_), Some(server)) => cuts::steady(bench, server, &args, extent.quick),
            (Load::Nothing(_), Some(server)) => idle::look(server, seconds),
            (Load::Cuts(_) | Load::Steady(_) | Load::Nothing(_), None) => {
                anyhow::bail!("this needs a server")
            }
            (Load::Initiator(_), server) => bench.initiator(server.as_ref(), &args, seconds),
            (Load::Fio(_), _) => bench.fio_on_stripe(&args, seconds),
            (Load::FioFile(_), _) => bench.fio_on_file(&args, seconds),
            (Load::Client(_), None) => anyhow::bail!("a client needs a server"),
        }
    }
}
