//! Which round is run next, until there is nothing more to run.
//!
//! Five pilots, whose spread sets the number of rounds ([`Sizing`]); then those rounds, then once
//! more each round in which a trial was not steady, as a whole: to run a trial alone again would
//! choose results. The number is fixed before the first counted round, and nothing here looks at
//! what counted rounds came to. Pilots that were not steady are repeated as well, at the end of the
//! pilots; those that stay unsteady say nothing of the spread, unless there are too few others.
//! Where somebody else has named the number ([`Schedule::fixed`]), there are no pilots. If time is over before so many
//! were run, what was run counts, as long as it is the fewest that are planned at least: how many there are
//! then follows from the clock, and from nothing that a round came to.
//!
//! Order of calls: `poll_round` says what to run; `handle_round` takes what it came to, before the
//! next `poll_round`; `handle_stop` at any time, after which there is no round any more; `finish`
//! gives what was taken.

use std::collections::VecDeque;
use std::fmt;

use block::Random;
use serde::{Deserialize, Serialize};

use super::order;
use super::plan::ROUNDS_MIN;
use super::sizing::PILOTS;
use super::{BadPlan, Plan, Sizing, Withheld};

/// A round to be run.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Round {
    /// Its number among the pilots or among the planned rounds, from 0.
    pub number: usize,
    pub is_pilot: bool,
    /// Whether it was run before and was not steady.
    pub is_repeat: bool,
    /// The systems, first to last. Files that were written before it was kept have none.
    #[serde(default)]
    pub order: Vec<usize>,
}

/// What a round came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Trials {
    /// A value each column, all positive.
    pub values: Vec<f64>,
    /// The systems whose trials were not steady.
    pub unsteady: Vec<usize>,
}

/// Why no further round is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Interrupted,
    OutOfTime,
    /// A trial failed, and did so again.
    Failed,
}

/// A value that has no logarithm: that trial measured nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotMeasured {
    pub column: usize,
    pub value: f64,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotMeasured { column, value } = self;
        write!(f, "measure {column}: expected a positive number, the trial came to {value}")
    }
}

impl std::error::Error for NotMeasured {}

/// What the rounds were.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Values of the rounds that count, in the order in which they were run.
    pub rounds: Vec<Vec<f64>>,
    /// Of rounds that never became steady, in that order.
    pub unsteady_rounds: Vec<Vec<f64>>,
    /// How often each system's trial was not steady, pilots apart.
    pub unsteady_trials: Vec<usize>,
    /// How many counted rounds were run, repeats included.
    pub run: usize,
    /// How many rounds were planned: none while pilots run.
    pub planned: usize,
    /// What that number follows from, where pilots set it.
    pub sizing: Option<Sizing>,
    /// Why there can be no verdict.
    pub withheld: Option<Withheld>,
}

/// The rounds of a plan. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct Schedule {
    plan: Plan,
    random: Random,
    phase: Phase,
    /// Whether the number of rounds was named.
    is_fixed: bool,
    /// What is to be run in this phase.
    waiting: VecDeque<Round>,
    /// What `poll_round` gave last.
    running: Option<Round>,
    /// What the pilots came to: those that were steady, and those that stayed unsteady.
    pilots: Vec<Vec<f64>>,
    unsteady_pilots: Vec<Vec<f64>>,
    taken: Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pilots,
    Counted,
    Stopped,
}

impl Schedule {
    pub fn new(plan: Plan) -> Result<Schedule, BadPlan> {
        plan.check()?;
        Ok(Schedule::begin(plan, Phase::Pilots, PILOTS))
    }

    /// So many rounds, without pilots. What they come to may decide nothing but what it is asked for:
    /// whoever names the number does so before the first round.
    pub fn fixed(plan: Plan, rounds: usize) -> Schedule {
        let mut schedule = Schedule::begin(plan, Phase::Counted, rounds);
        schedule.taken.planned = rounds;
        schedule.is_fixed = true;
        schedule
    }

    fn begin(plan: Plan, phase: Phase, count: usize) -> Schedule {
        let mut random = Random::new(plan.seed);
        let waiting = rounds(plan.systems, count, phase == Phase::Pilots, &mut random);
        let taken = Taken {
            rounds: Vec::new(),
            unsteady_rounds: Vec::new(),
            unsteady_trials: vec![0; plan.systems],
            run: 0,
            planned: 0,
            sizing: None,
            withheld: None,
        };
        Schedule {
            plan,
            random,
            phase,
            is_fixed: false,
            waiting,
            running: None,
            pilots: Vec::new(),
            unsteady_pilots: Vec::new(),
            taken,
        }
    }

    /// The next round, or nothing if all is done. The number of rounds ([`Schedule::sizing`]) is
    /// known before the first one that counts.
    pub fn poll_round(&mut self) -> Option<Round> {
        assert!(self.running.is_none(), "a round was polled while {:?} runs", self.running);
        if self.pilots_are_over() {
            self.set_rounds(self.plan.primaries(), self.plan.rounds_max);
        }
        self.running = self.waiting.pop_front();
        self.running.clone()
    }

    /// Whether all pilots came to something, and the number of rounds is not set yet.
    pub fn pilots_are_over(&self) -> bool {
        self.phase == Phase::Pilots && self.waiting.is_empty() && self.running.is_none()
    }

    /// The number of rounds that would be set now, where `primaries` comparisons are corrected
    /// together in all schedules and there is time for `rounds_max` rounds of this one.
    pub fn size(&self, primaries: usize, rounds_max: usize) -> Sizing {
        let mut pilots = self.pilots.clone();
        if pilots.len() < PILOTS_STEADY_MIN {
            pilots.extend(self.unsteady_pilots.iter().cloned());
        }
        Sizing::among(&self.plan, &pilots, primaries, rounds_max)
    }

    /// Sets that number, once the pilots are over; `poll_round` does it for a schedule that stands
    /// alone.
    pub fn set_rounds(&mut self, primaries: usize, rounds_max: usize) {
        assert!(self.pilots_are_over(), "rounds are set in {:?}", self.phase);
        let sizing = self.size(primaries, rounds_max);
        self.waiting = rounds(self.plan.systems, sizing.rounds, false, &mut self.random);
        self.taken.planned = sizing.rounds;
        self.taken.sizing = Some(sizing);
        self.phase = Phase::Counted;
    }

    /// Takes what the round came to that `poll_round` gave. A round that measured nothing stays
    /// the one that runs: it is run again, or the whole is stopped.
    pub fn handle_round(&mut self, trials: Trials) -> Result<(), NotMeasured> {
        assert_eq!(trials.values.len(), self.plan.columns, "a value for each column");
        let is_bad = |value: &f64| !(value.is_finite() && *value > 0.0);
        if let Some(column) = trials.values.iter().position(is_bad) {
            return Err(NotMeasured { column, value: trials.values[column] });
        }
        let round = self.running.take().expect("a round comes to something after it was polled");
        let is_steady = trials.unsteady.is_empty();
        let (steady, unsteady) = if round.is_pilot {
            (&mut self.pilots, &mut self.unsteady_pilots)
        } else {
            self.taken.run += 1;
            for system in &trials.unsteady {
                self.taken.unsteady_trials[*system] += 1;
            }
            (&mut self.taken.rounds, &mut self.taken.unsteady_rounds)
        };
        if is_steady {
            steady.push(trials.values);
        } else if round.is_repeat {
            unsteady.push(trials.values);
        }
        if !is_steady && !round.is_repeat {
            self.waiting.push_back(Round { is_repeat: true, ..round });
        }
        Ok(())
    }

    /// Ends it. A round that runs is lost: not all of its systems had their turn.
    pub fn handle_stop(&mut self, stop: Stop) {
        let is_done = self.phase == Phase::Counted && self.waiting.is_empty();
        if is_done && self.running.is_none() {
            return;
        }
        let Taken { rounds, unsteady_rounds, run, .. } = &self.taken;
        if stop == Stop::OutOfTime && self.is_fixed && rounds.len() >= ROUNDS_MIN {
            // Those that were not steady, and would have been run again, say that they were not.
            let unsteady =
                unsteady_rounds.len() + self.waiting.iter().filter(|one| one.is_repeat).count();
            let withheld = (3 * unsteady > *run).then_some(Withheld::Unsteady);
            self.taken.planned = rounds.len() + unsteady;
            self.taken.withheld = withheld;
            self.end();
            return;
        }
        self.end();
        self.taken.withheld = Some(match stop {
            Stop::Interrupted => Withheld::Interrupted,
            Stop::OutOfTime => Withheld::OutOfTime,
            Stop::Failed => Withheld::Failed,
        });
    }

    fn end(&mut self) {
        self.phase = Phase::Stopped;
        self.waiting.clear();
        self.running = None;
    }

    /// Whether the number of rounds is still to follow from pilots.
    pub fn has_pilots(&self) -> bool {
        self.taken.sizing.is_none() && !self.is_fixed
    }

    /// The number of rounds, once the pilots are over.
    pub fn sizing(&self) -> Option<&Sizing> {
        self.taken.sizing.as_ref()
    }

    /// At most so many rounds are still to be run, as far as is known by now.
    pub fn rounds_left(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// What was taken, with the reason if that allows no verdict.
    pub fn finish(mut self) -> Taken {
        if !self.waiting.is_empty() || self.running.is_some() || self.phase == Phase::Pilots {
            self.handle_stop(Stop::Interrupted);
        }
        if 3 * self.taken.unsteady_rounds.len() > self.taken.planned {
            self.taken.withheld.get_or_insert(Withheld::Unsteady);
        }
        self.taken
    }
}

/// With fewer steady pilots than these, the unsteady ones are taken for the spread as well.
const PILOTS_STEADY_MIN: usize = 3;

/// So many rounds, block after block of balanced orders.
fn rounds(systems: usize, count: usize, is_pilot: bool, random: &mut Random) -> VecDeque<Round> {
    let mut orders = Vec::new();
    while orders.len() < count {
        orders.extend(order::block(systems, random));
    }
    let numbered = orders.into_iter().take(count).enumerate();
    numbered.map(|(number, order)| Round { number, is_pilot, is_repeat: false, order }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    fn trials(unsteady: &[usize]) -> Trials {
        Trials { values: vec![1.0, 1.0], unsteady: unsteady.to_vec() }
    }

    /// Runs all that is polled; `unsteady` says of a round which systems are not steady in it.
    fn run(unsteady: impl Fn(&Round) -> Vec<usize>) -> (Vec<Round>, Taken) {
        let mut schedule = Schedule::new(plan(2)).expect("a good plan");
        let mut all = Vec::new();
        while let Some(round) = schedule.poll_round() {
            schedule.handle_round(trials(&unsteady(&round))).expect("positive values");
            all.push(round);
        }
        (all, schedule.finish())
    }

    #[test]
    fn a_round_is_read_again_and_an_old_one_has_no_order() {
        let round = Round { number: 3, is_pilot: true, is_repeat: false, order: vec![1, 0] };
        let json = serde_json::to_value(&round).expect("numbers");
        assert_eq!(serde_json::from_value::<Round>(json).expect("what was written"), round);
        let old = serde_json::json!({ "number": 3, "is_pilot": true, "is_repeat": false });
        let read: Round = serde_json::from_value(old).expect("all that old files have");
        assert_eq!(read, Round { order: Vec::new(), ..round });
    }

    /// Runs so many rounds of those that were named until time is over; of some the first trial is unsteady.
    fn until(named: usize, run: usize, unsteady: usize) -> Taken {
        let mut schedule = Schedule::fixed(plan(2), named);
        for number in 0..run {
            let round = schedule.poll_round().expect("a round is left");
            assert!(!round.is_pilot && !round.is_repeat);
            let unsteady = if number < unsteady { &[0][..] } else { &[] };
            schedule.handle_round(trials(unsteady)).expect("positive values");
        }
        schedule.poll_round();
        schedule.handle_stop(Stop::OutOfTime);
        assert_eq!(schedule.poll_round(), None);
        schedule.finish()
    }

    #[test]
    fn rounds_that_were_named_have_no_pilots_and_the_clock_may_end_them() {
        let taken = until(20, 9, 2);
        assert_eq!((taken.rounds.len(), taken.planned, taken.withheld), (7, 9, None));
        assert_eq!(
            until(20, 5, 0).withheld,
            Some(Withheld::OutOfTime),
            "fewer than are ever planned"
        );
        assert_eq!(until(20, 10, 4).withheld, Some(Withheld::Unsteady));
        let mut whole = Schedule::fixed(plan(2), 8);
        while whole.poll_round().is_some() {
            whole.handle_round(trials(&[])).expect("positive values");
        }
        whole.handle_stop(Stop::OutOfTime);
        let taken = whole.finish();
        assert_eq!((taken.rounds.len(), taken.planned, taken.withheld), (8, 8, None));
    }

    #[test]
    fn pilots_come_first_and_do_not_count() {
        let (all, taken) = run(|_| Vec::new());
        assert_eq!(all.iter().filter(|round| round.is_pilot).count(), PILOTS);
        assert!(all[..PILOTS].iter().all(|round| round.is_pilot));
        let planned = taken.sizing.expect("pilots are over").rounds;
        assert_eq!((taken.rounds.len(), all.len()), (planned, PILOTS + planned));
        assert_eq!(taken.withheld, None);
    }

    #[test]
    fn an_unsteady_round_is_run_again_once_as_a_whole_at_the_end() {
        let (all, taken) = run(|round| {
            let is_it = !round.is_pilot && round.number == 1 && !round.is_repeat;
            if is_it { vec![1] } else { Vec::new() }
        });
        let (last, first) = (all.last().expect("rounds"), &all[PILOTS + 1]);
        assert_eq!(*last, Round { is_repeat: true, ..first.clone() });
        assert_eq!((taken.rounds.len(), taken.run), (6, 7));
        assert_eq!((taken.unsteady_rounds.len(), taken.unsteady_trials), (0, vec![0, 1]));
    }

    #[test]
    fn an_unsteady_pilot_is_run_again_before_the_number_is_set() {
        let (all, taken) = run(|round| vec![0; usize::from(round.is_pilot && round.number == 0)]);
        assert!(all[PILOTS].is_pilot && all[PILOTS].is_repeat && !all[PILOTS + 1].is_pilot);
        assert_eq!(taken.unsteady_trials, [0, 0], "pilots are not counted");
    }

    /// The spread of pilots that differ by what is given, of which the last few are unsteady.
    fn deviation(unsteady: usize) -> f64 {
        let mut schedule = Schedule::new(plan(2)).expect("a good plan");
        while let Some(round) = schedule.poll_round() {
            let is_unsteady = round.is_pilot && round.number >= PILOTS - unsteady;
            let value = if is_unsteady { 9.0 } else { 1.0 };
            let unsteady = vec![0; usize::from(is_unsteady)];
            let trials = Trials { values: vec![1.0, value], unsteady };
            schedule.handle_round(trials).expect("positive values");
        }
        schedule.sizing().expect("pilots are over").deviation
    }

    #[test]
    fn pilots_that_stay_unsteady_count_only_if_there_are_too_few_others() {
        assert_eq!(deviation(2), 0.0);
        assert!(deviation(3) > 1.0);
    }

    #[test]
    fn more_than_a_third_that_stay_unsteady_allow_no_verdict() {
        let stay = |count| {
            move |round: &Round| vec![0; usize::from(!round.is_pilot && round.number < count)]
        };
        let (_, two) = run(stay(2));
        assert_eq!((two.withheld, two.rounds.len(), two.unsteady_rounds.len()), (None, 4, 2));
        let (all, three) = run(stay(3));
        assert_eq!(three.withheld, Some(Withheld::Unsteady));
        assert_eq!(all.len(), PILOTS + 6 + 3, "one more for each at most");
    }

    #[test]
    fn a_stop_ends_it_without_a_verdict_and_loses_the_round_that_runs() {
        for (stop, withheld) in [
            (Stop::Interrupted, Withheld::Interrupted),
            (Stop::OutOfTime, Withheld::OutOfTime),
            (Stop::Failed, Withheld::Failed),
        ] {
            let mut schedule = Schedule::new(plan(2)).expect("a good plan");
            for _ in 0..PILOTS + 2 {
                schedule.poll_round().expect("a round");
                schedule.handle_round(trials(&[])).expect("positive values");
            }
            schedule.poll_round().expect("a round");
            assert_eq!(schedule.rounds_left(), 4);
            schedule.handle_stop(stop);
            assert_eq!(schedule.poll_round(), None);
            let taken = schedule.finish();
            assert_eq!((taken.rounds.len(), taken.withheld), (2, Some(withheld)));
        }
    }

    #[test]
    fn a_stop_after_the_last_round_changes_nothing() {
        let mut schedule = Schedule::new(plan(2)).expect("a good plan");
        while schedule.poll_round().is_some() {
            schedule.handle_round(trials(&[])).expect("positive values");
        }
        schedule.handle_stop(Stop::Interrupted);
        assert_eq!(schedule.finish().withheld, None);
        let unfinished = Schedule::new(plan(2)).expect("a good plan").finish();
        assert_eq!(unfinished.withheld, Some(Withheld::Interrupted), "nobody ran it");
    }

    #[test]
    fn where_the_number_of_rounds_is_named_there_are_no_pilots() {
        let mut schedule = Schedule::fixed(plan(2), 3);
        let mut unsteady = vec![1];
        let mut numbers = Vec::new();
        while let Some(round) = schedule.poll_round() {
            assert!(!round.is_pilot && round.order.len() == 2);
            numbers.push((round.number, round.is_repeat));
            let unsteady = std::mem::take(&mut unsteady);
            schedule.handle_round(trials(&unsteady)).expect("positive values");
        }
        assert_eq!(numbers, [(0, false), (1, false), (2, false), (0, true)]);
        let taken = schedule.finish();
        assert_eq!((taken.rounds.len(), taken.run, taken.planned), (3, 4, 3));
        assert_eq!((taken.sizing, taken.withheld), (None, None));
    }

    #[test]
    fn a_trial_that_measured_nothing_is_refused_and_the_round_stays() {
        let mut schedule = Schedule::new(plan(2)).expect("a good plan");
        schedule.poll_round();
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let nothing = Trials { values: vec![1.0, value], unsteady: Vec::new() };
            let refused = schedule.handle_round(nothing).expect_err("no logarithm");
            assert!(refused.to_string().starts_with("measure 1: expected a positive"));
        }
        schedule.handle_round(trials(&[])).expect("the round still runs");
        let mut bad = plan(2);
        bad.systems = 1;
        assert_eq!(Schedule::new(bad).err(), Some(BadPlan::OneSystem));
    }

    #[test]
    fn a_schedule_among_others_is_sized_with_all_of_them_once_its_pilots_are_over() {
        let mut schedule = Schedule::new(plan(2)).expect("a good plan");
        for value in [0.9, 1.1, 1.0, 1.2, 0.8] {
            assert!(!schedule.pilots_are_over());
            schedule.poll_round().expect("a pilot");
            let trials = Trials { values: vec![1.0, value], unsteady: Vec::new() };
            schedule.handle_round(trials).expect("positive values");
        }
        assert!(schedule.pilots_are_over() && schedule.sizing().is_none());
        let (alone, among) = (schedule.size(1, 1000), schedule.size(10, 1000));
        assert!(among.rounds_needed > alone.rounds_needed);
        schedule.set_rounds(10, 8);
        let sizing = schedule.sizing().expect("set");
        assert_eq!((sizing.rounds, sizing.rounds_needed), (8, among.rounds_needed));
        assert_eq!(schedule.rounds_left(), 8);
        assert!(!schedule.pilots_are_over());
    }

    #[test]
    fn the_orders_of_planned_rounds_are_balanced() {
        let (all, _) = run(|_| Vec::new());
        let firsts = all[PILOTS..].iter().filter(|round| round.order[0] == 0).count();
        assert_eq!(2 * firsts, all.len() - PILOTS);
    }
}
