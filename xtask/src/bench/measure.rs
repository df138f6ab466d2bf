//! Measuring a case: in every round each of its sides runs once, from a fresh start.
//!
//! Rounds, their number, their order and their repeats are the lab's ([`Schedule`]). What comes out
//! is what the loads printed; [`super::judge`] says what that means. Errors: a side that does not
//! start or run, or whose load does not print what the case is judged by.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::statistics::steady::STEAL_MAX;
use lab::statistics::{Round, Schedule, Taken, Trials};
use serde_json::Value;
use testbed::Steal;

use super::cases::{self, Case, Extent, Load, Side};
use super::figure::Figure;
use super::judge::{Pairs, Rounds};
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
    if case.references.is_empty() {
        return look(bench, case, extent, progress);
    }
    let mut sides: Vec<&Side> = case.references.iter().chain([&case.subject]).collect();
    let mut rounds = Rounds::default();
    if let Some(beside) = &case.beside {
        match Running::start(bench, beside) {
            Ok(_) => sides.push(beside),
            // It is no part of the case: the others are measured without it.
            Err(error) => rounds.alone = Some(format!("nothing beside: {error:#}")),
        }
    }
    let mut seats: Vec<_> = sides.into_iter().map(|side| Seat::new(bench, side)).collect();
    let pairs = Pairs::of(case, seats.len());
    let plan = pairs.plan(extent.rounds);
    let mut schedule = Schedule::fixed(plan.clone(), extent.rounds);
    while let Some(round) = schedule.poll_round() {
        progress.show(&told(&round, &schedule));
        let seen = run_round(&mut seats, &round, case, extent)?;
        let unsteady = unsteady(&seen);
        let is_steady = unsteady.is_empty();
        schedule.handle_round(Trials { values: pairs.values(&seen)?, unsteady })?;
        rounds.take(seen, is_steady, round.is_repeat);
    }
    let taken = schedule.finish();
    rounds.doubt = doubt(case, &taken);
    rounds.finish(pairs, &plan, &taken);
    Ok(rounds)
}

/// A case of which there is nothing to compare: its subject is looked at a few times.
fn look(bench: &Bench, case: &Case, extent: Extent, progress: &Progress) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    for round in 0..extent.rounds {
        progress.show(&format!("look {} of {}", round + 1, extent.rounds));
        let raw = Running::start(bench, &case.subject)?.run(bench, case, extent)?;
        for bound in &case.figures {
            bound.of.measured(&raw)?;
        }
        rounds.seen.push(vec![raw]);
    }
    Ok(rounds)
}

/// Where a round is, in words.
pub(super) fn told(round: &Round, schedule: &Schedule) -> String {
    let kind = if round.is_pilot { "pilot" } else { "round" };
    let again = if round.is_repeat { " again" } else { "" };
    format!("{kind} {}{again}, {} left", round.number + 1, schedule.rounds_left())
}

/// Why less is to be believed of these rounds than of others.
fn doubt(case: &Case, taken: &Taken) -> Option<String> {
    let (unsteady, all) = (taken.unsteady_rounds.len(), taken.planned);
    let one_start = "one start of each server: the interval is of its windows".to_owned();
    let taken = format!(
        "the machine's host took more than {:.0}% of a CPU in {unsteady} of {all} rounds, twice",
        STEAL_MAX * 100.0
    );
    let doubts = [(case.stays(), one_start), (unsteady > 0, taken)];
    let doubts: Vec<String> =
        doubts.into_iter().filter(|(is, _)| *is).map(|(_, doubt)| doubt).collect();
    (!doubts.is_empty()).then(|| doubts.join("; "))
}

/// A side, who runs it, and its server where that stays.
pub(super) struct Seat<'a> {
    bench: &'a Bench,
    side: &'a Side,
    stays: Option<Running<'a>>,
}

impl<'a> Seat<'a> {
    pub(super) fn new(bench: &'a Bench, side: &'a Side) -> Self {
        Self { bench, side, stays: None }
    }

    /// One window, from a fresh start unless the case's servers stay.
    fn run(&mut self, case: &Case, extent: Extent) -> Result<Value> {
        if !case.stays() {
            return Running::start(self.bench, self.side)?.run(self.bench, case, extent);
        }
        if self.stays.is_none() {
            self.stays = Some(Running::start(self.bench, self.side)?);
        }
        let running = self.stays.as_mut().context("a server that stays")?;
        running.run(self.bench, case, extent)
    }
}

/// Runs every side once, in the round's order; what each printed, in the order of the sides.
pub(super) fn run_round(
    seats: &mut [Seat<'_>],
    round: &Round,
    case: &Case,
    extent: Extent,
) -> Result<Vec<Value>> {
    let mut seen = vec![Value::Null; seats.len()];
    for side in &round.order {
        seen[*side] = seats[*side].run(case, extent)?;
    }
    Ok(seen)
}

/// The sides from which the machine's host took CPU while they were measured.
pub(super) fn unsteady(seen: &[Value]) -> Vec<usize> {
    let is_it = |side: &usize| seen[*side]["steal"].as_f64().is_none_or(|steal| steal > STEAL_MAX);
    (0..seen.len()).filter(is_it).collect()
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
        // What was taken from starts and fills says nothing of the window.
        let before = Steal::now()?;
        let mut raw = self.load(bench, case, extent)?;
        raw["steal"] = before.until(&Steal::now()?, &[bench.target_cpu, bench.load_cpu]).into();
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

#[cfg(test)]
mod tests {
    use lab::statistics::Withheld;
    use serde_json::json;

    use super::super::judge::tests::case;
    use super::*;

    #[test]
    fn a_side_is_unsteady_from_which_the_host_took_more_than_the_lab_lets_it() {
        let taken = |share: f64| json!({"steal": share});
        let seen = [taken(STEAL_MAX * 1.01), taken(0.0), taken(STEAL_MAX), json!({})];
        assert_eq!(unsteady(&seen), [0, 3], "what was not looked at is not known to be steady");
    }

    #[test]
    fn each_reason_to_doubt_is_told() {
        let said = |name: &str, unsteady: usize| {
            let taken = Taken {
                rounds: Vec::new(),
                unsteady_rounds: vec![Vec::new(); unsteady],
                unsteady_trials: Vec::new(),
                run: 6,
                planned: 6,
                sizing: None,
                withheld: (unsteady > 2).then_some(Withheld::Unsteady),
            };
            doubt(&case(name), &taken).unwrap_or_default()
        };
        let (start, host) = ("one start of each server", "took more than 2% of a CPU in 1 of 6");
        assert_eq!(said("128k-rfill-read-8", 0), "");
        assert!(
            said("128k-rfill-read-8", 1).contains(host)
                && !said("128k-rfill-read-8", 1).contains(start)
        );
        assert!(said("128k-aged-read-8", 0).starts_with(start));
        let both = said("128k-aged-read-8", 1);
        assert!(both.contains(start) && both.contains(host), "{both}");
    }
}
