//! Which trial of an experiment is next, until there is nothing more to run.
//!
//! First the pilots of all groups; by them the number of rounds of each is set, at once and before
//! the first round that counts. Then rounds, groups taking turns, so that what drifts meets all of
//! them alike; then the cells of pictures, in an order drawn by the seed. A round runs without
//! another one between its trials. One in which a trial failed begins anew, and a group of which a
//! round failed three times in a row is given up; the others go on.
//!
//! Where the plan has a time, rounds are set so that they fit into what the pilots left of it; they
//! are fewer than the plan's difference needs then, which is said. What is over when the time is
//! over all the same has no verdict. Where the plan names the number of rounds, there are no pilots, and
//! the time alone decides whether there are fewer.
//!
//! Order of calls: `poll_trial` says what to run; `handle_trial` takes what it came to, before the
//! next `poll_trial`; `poll_sized` once the number of rounds is set; `progress` at any time;
//! `handle_stop` at any time, after which there is no trial any more; `finish` gives the results.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use block::Random;

use super::measure::Measures;
use super::model::{Cell, Column, Experiment, Group};
use super::results::{Failure, GroupResults, PictureResult, Results};
use super::words::Span;
use crate::statistics::plan::ROUNDS_MIN;
use crate::statistics::steady::WINDOWS;
use crate::statistics::{Round, Schedule, Sizing, Stop, Taken, Trials, analyse_together};

/// How often a round is begun in a row before its group is given up.
const TRIES: u32 = 3;
/// How much longer rounds may take than those of the pilots, repeats among them.
const TIME_RESERVE: f64 = 1.1;

/// A trial to be run: its system from a fresh start, with a fresh path and connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub cell: Cell,
    pub purpose: Purpose,
}

/// What a trial is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is the `place`th of a round of a group, of as many as the group has cells.
    Round { group: usize, place: usize, round: Round },
    /// It is a cell of a picture.
    Picture { picture: usize },
}

/// What a trial came to.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialOutcome {
    /// Means of its last five windows, and whether those were steady. What is compared must be
    /// among its measures, or it is a failure.
    Measured { measures: Measures, is_steady: bool },
    /// It measured nothing.
    Failed { why: String },
}

/// The number of rounds of every group, which is fixed from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Sized {
    pub groups: Vec<(String, Sizing)>,
    /// How long they and the pictures take, as far as pilots tell.
    pub left: Duration,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub trials_done: usize,
    /// At most so many are left, as far as is known by now.
    pub trials_left: usize,
    pub spent: Duration,
    /// As long as trials took until now.
    pub left: Duration,
    /// Whether the number of rounds is known: before that, the fewest are reckoned with.
    pub is_sized: bool,
}

/// The trials of an experiment. See the module for the order of calls.
#[derive(Debug)]
pub struct Runner<'e> {
    experiment: &'e Experiment,
    groups: Vec<Rounds<'e>>,
    /// The group whose turn it is next.
    turn: usize,
    /// The group whose round has begun.
    current: Option<usize>,
    /// Cells of pictures that are to be run, with their picture.
    waiting: VecDeque<(usize, Cell)>,
    /// What `poll_trial` gave last.
    running: Option<Trial>,
    sized: Option<Sized>,
    is_sized: bool,
    is_stopped: bool,
    pictures: Vec<PictureResult>,
    failures: Vec<Failure>,
    trials_done: usize,
    spent: Duration,
}

/// The rounds of one group.
#[derive(Debug)]
struct Rounds<'e> {
    group: &'e Group,
    schedule: Schedule,
    /// The round that runs, where it is, and what it came to so far.
    round: Option<Round>,
    place: usize,
    values: Vec<f64>,
    unsteady: Vec<usize>,
    /// How often this round failed.
    failed: u32,
    /// What whole rounds took, and how many there were.
    spent: Duration,
    run: u32,
    /// What the round that runs took until now.
    round_spent: Duration,
}

impl<'e> Runner<'e> {
    pub fn new(experiment: &'e Experiment) -> Runner<'e> {
        let mut waiting: Vec<(usize, Cell)> = Vec::new();
        for (at, picture) in experiment.pictures.iter().enumerate() {
            waiting.extend(picture.cells.iter().map(|cell| (at, *cell)));
        }
        shuffle(&mut waiting, &mut Random::new(experiment.seed));
        Runner {
            experiment,
            groups: experiment
                .groups
                .iter()
                .map(|one| Rounds::new(one, experiment.rounds))
                .collect(),
            turn: 0,
            current: None,
            waiting: waiting.into(),
            running: None,
            sized: None,
            is_sized: false,
            is_stopped: false,
            pictures: Vec::new(),
            failures: Vec::new(),
            trials_done: 0,
            spent: Duration::ZERO,
        }
    }

    /// The next trial, or nothing if all is done.
    pub fn poll_trial(&mut self) -> Option<Trial> {
        assert!(self.running.is_none(), "a trial was polled while {:?} runs", self.running);
        if self.experiment.time.is_some_and(|time| self.spent >= time) {
            self.handle_stop(Stop::OutOfTime);
        }
        if self.is_stopped {
            return None;
        }
        self.current = self.current.or_else(|| self.next_round());
        self.running = match self.current {
            Some(group) => Some(self.groups[group].trial(group)),
            None => self.waiting.pop_front().map(|(picture, cell)| {
                let purpose = Purpose::Picture { picture };
                Trial { cell, purpose }
            }),
        };
        self.running.clone()
    }

    /// The number of rounds, once: as soon as `poll_trial` gave the first trial that counts.
    pub fn poll_sized(&mut self) -> Option<Sized> {
        self.sized.take()
    }

    /// Takes what the trial came to that `poll_trial` gave, and how long it took with all that is
    /// around it: starting, stopping, warming up.
    pub fn handle_trial(&mut self, outcome: TrialOutcome, took: Duration) {
        self.spent = self.spent.saturating_add(took);
        // One that was running when all was stopped.
        let Some(Trial { cell, purpose }) = self.running.take() else { return };
        self.trials_done += 1;
        let experiment = self.experiment;
        let failed = |why: String| Failure { cell: experiment.cell_name(&cell), why };
        match (purpose, outcome) {
            (Purpose::Picture { picture }, TrialOutcome::Measured { measures, is_steady }) => {
                let picture = experiment.pictures[picture].name.clone();
                let cell = experiment.cell_name(&cell);
                self.pictures.push(PictureResult { picture, cell, measures, is_steady });
            }
            (Purpose::Picture { .. }, TrialOutcome::Failed { why }) => {
                self.failures.push(failed(why));
            }
            (Purpose::Round { group, .. }, outcome) => {
                let rounds = &mut self.groups[group];
                if let Err(why) = rounds.take(outcome, took) {
                    self.failures.push(failed(why));
                    rounds.begin_anew();
                }
                if rounds.round.is_none() {
                    self.current = None;
                }
            }
        }
    }

    /// Ends it. What has had all its rounds keeps its verdict.
    pub fn handle_stop(&mut self, stop: Stop) {
        self.is_stopped = true;
        self.running = None;
        self.current = None;
        self.waiting.clear();
        for rounds in &mut self.groups {
            rounds.round = None;
            rounds.schedule.handle_stop(stop);
        }
    }

    pub fn progress(&self) -> Progress {
        let trials_left: usize = self.groups.iter().map(|rounds| rounds.trials_left()).sum();
        Progress {
            trials_done: self.trials_done,
            trials_left: if self.is_stopped { 0 } else { trials_left + self.waiting.len() },
            spent: self.spent,
            left: if self.is_stopped { Duration::ZERO } else { self.left() },
            is_sized: self.is_sized,
        }
    }

    /// What all of it came to.
    pub fn finish(self) -> Results {
        let Runner { experiment, groups, pictures, failures, spent, .. } = self;
        let taken: Vec<Taken> = groups.into_iter().map(|rounds| rounds.schedule.finish()).collect();
        let groups = &experiment.groups;
        let parts: Vec<_> = groups.iter().map(|group| &group.plan).zip(&taken).collect();
        let analyses = analyse_together(&parts);
        let each = groups.iter().zip(taken).zip(analyses);
        let groups =
            each.map(|((group, taken), analysis)| GroupResults::of(group, taken, analysis));
        let (plan, seed) = (experiment.name.clone(), experiment.seed);
        Results { plan, seed, groups: groups.collect(), pictures, failures, spent }
    }

    /// Begins the next round of the group whose turn it is. Pilots go first; once they are over,
    /// all groups get their numbers.
    fn next_round(&mut self) -> Option<usize> {
        let has_pilots = |schedule: &Schedule| schedule.has_pilots() && schedule.rounds_left() > 0;
        let group = match self.next_of(has_pilots) {
            Some(group) => group,
            None => {
                self.size();
                self.next_of(|schedule| schedule.rounds_left() > 0)?
            }
        };
        self.turn = group + 1;
        self.groups[group].begin();
        Some(group)
    }

    /// The first group of this kind from the one whose turn it is on.
    fn next_of(&self, is_it: impl Fn(&Schedule) -> bool) -> Option<usize> {
        let count = self.groups.len();
        let mut in_turn = (0..count).map(|step| (self.turn + step) % count);
        in_turn.find(|group| is_it(&self.groups[*group].schedule))
    }

    /// Sets the number of rounds of all groups, where that is still to be done.
    fn size(&mut self) {
        if self.is_sized {
            return;
        }
        self.is_sized = true;
        let primaries = self.experiment.primaries();
        let share = self.share_that_fits(primaries);
        let mut groups = Vec::new();
        for rounds in &mut self.groups {
            if !rounds.schedule.pilots_are_over() {
                continue;
            }
            let mut most = rounds.group.plan.rounds_max;
            if share < 1.0 {
                let wanted = rounds.schedule.size(primaries, most).rounds;
                most = ((wanted as f64 * share) as usize).max(ROUNDS_MIN);
            }
            rounds.schedule.set_rounds(primaries, most);
            let sizing = rounds.schedule.sizing().expect("it was set just now");
            groups.push((rounds.group.name.clone(), *sizing));
        }
        if !groups.is_empty() {
            self.sized = Some(Sized { groups, left: self.left() });
        }
    }

    /// Which part of the rounds that the groups need fits into the time that is left.
    fn share_that_fits(&self, primaries: usize) -> f64 {
        let Some(time) = self.experiment.time else { return 1.0 };
        let over = self.groups.iter().filter(|rounds| rounds.schedule.pilots_are_over());
        let seconds = |rounds: &Rounds<'_>| {
            let sizing = rounds.schedule.size(primaries, rounds.group.plan.rounds_max);
            rounds.round_time(self.experiment).as_secs_f64() * sizing.rounds as f64
        };
        let wanted: f64 = over.map(seconds).sum();
        let left = time.saturating_sub(self.spent + self.pictures_left()).as_secs_f64();
        (left / (wanted * TIME_RESERVE)).min(1.0)
    }

    fn pictures_left(&self) -> Duration {
        let time = |(_, cell): &(usize, Cell)| self.experiment.trial_time(cell, WINDOWS);
        self.waiting.iter().map(time).sum()
    }

    fn left(&self) -> Duration {
        let of_rounds = self.groups.iter().map(|rounds| {
            let left = rounds.rounds_left() as u32;
            (rounds.round_time(self.experiment) * left).saturating_sub(rounds.round_spent)
        });
        of_rounds.sum::<Duration>() + self.pictures_left()
    }
}

impl<'e> Rounds<'e> {
    fn new(group: &'e Group, named: Option<usize>) -> Rounds<'e> {
        let plan = group.plan.clone();
        Rounds {
            group,
            schedule: match named {
                Some(rounds) => Schedule::fixed(plan, rounds),
                None => Schedule::new(plan).expect("a plan that was checked"),
            },
            round: None,
            place: 0,
            values: vec![0.0; group.columns.len()],
            unsteady: Vec::new(),
            failed: 0,
            spent: Duration::ZERO,
            run: 0,
            round_spent: Duration::ZERO,
        }
    }

    fn begin(&mut self) {
        self.round = self.schedule.poll_round();
        self.reset();
        self.failed = 0;
    }

    fn reset(&mut self) {
        self.place = 0;
        self.unsteady.clear();
        self.round_spent = Duration::ZERO;
    }

    /// The trial that is next in its round.
    fn trial(&self, group: usize) -> Trial {
        let round = self.round.clone().expect("a round has begun");
        let place = self.place;
        let cell = self.group.cells[round.order[place]];
        Trial { cell, purpose: Purpose::Round { group, place, round } }
    }

    /// Takes what the next trial of the round came to; says why if that is nothing.
    fn take(&mut self, outcome: TrialOutcome, took: Duration) -> Result<(), String> {
        let system = self.round.as_ref().expect("a round has begun").order[self.place];
        self.round_spent += took;
        let (measures, is_steady) = match outcome {
            TrialOutcome::Measured { measures, is_steady } => (measures, is_steady),
            TrialOutcome::Failed { why } => return Err(why),
        };
        for (Column { system: of, measure }, value) in
            self.group.columns.iter().zip(&mut self.values)
        {
            if *of != system {
                continue;
            }
            *value = match measures.get(measure) {
                Some(measured) if measured.is_finite() && *measured > 0.0 => *measured,
                Some(measured) => return Err(format!("{measure} came to {measured}")),
                None => return Err(format!("{measure} was not measured")),
            };
        }
        if !is_steady {
            self.unsteady.push(system);
        }
        self.place += 1;
        if self.place == self.group.cells.len() {
            let unsteady = std::mem::take(&mut self.unsteady);
            let trials = Trials { values: self.values.clone(), unsteady };
            self.schedule.handle_round(trials).expect("values that were looked at");
            self.spent += self.round_spent;
            self.run += 1;
            self.round_spent = Duration::ZERO;
            self.round = None;
        }
        Ok(())
    }

    /// After a failure: the whole round again, or none any more.
    fn begin_anew(&mut self) {
        self.failed += 1;
        self.reset();
        if self.failed >= TRIES {
            self.round = None;
            self.schedule.handle_stop(Stop::Failed);
        }
    }

    /// What a round takes: what they took, or what it should.
    fn round_time(&self, experiment: &Experiment) -> Duration {
        match self.run {
            0 => self.group.cells.iter().map(|cell| experiment.trial_time(cell, WINDOWS)).sum(),
            run => self.spent / run,
        }
    }

    /// Rounds that are still to be run, the one that runs among them. Until their number is known,
    /// the fewest.
    fn rounds_left(&self) -> usize {
        let is_open = self.schedule.rounds_left() > 0 || self.schedule.pilots_are_over();
        let unknown = if is_open && self.schedule.has_pilots() { ROUNDS_MIN } else { 0 };
        self.schedule.rounds_left() + unknown
    }

    fn trials_left(&self) -> usize {
        let begun = if self.round.is_some() { self.place } else { 0 };
        self.rounds_left() * self.group.cells.len() - begun
    }
}

/// What is printed before the first counted round: a line for each group, and the time.
impl fmt::Display for Sized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, sizing) in &self.groups {
            writeln!(f, "{name}: {sizing}")?;
        }
        write!(f, "about {} to go", Span(self.left))
    }
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests;
