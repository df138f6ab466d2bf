//! What was in force when, as far as whoever asked for it can know.
//!
//! ```text
//!            asked        answered            asked       answered
//!   ----------|--- either ---|--- that, surely ---|-- either ---|---->
//! ```
//! A state is a set of worlds: after a change that was lost on its way several are possible, until
//! an answer or a look tells which. Somebody is surely shut out while all worlds shut him out of
//! all states that may have been in force, and may be refused while one of them does. Units:
//! virtual nanoseconds.

use wire::scsi::AdditionalSense;

use super::model::{After, Model, Who};

/// What may be in force from a moment on.
#[derive(Debug)]
struct State {
    asked_at: u64,
    answered_at: Option<u64>,
    worlds: Vec<Model>,
}

/// PREEMPT AND ABORT of somebody.
#[derive(Debug)]
struct Ended {
    who: Who,
    asked_at: u64,
}

/// What was in force when.
#[derive(Debug)]
pub(crate) struct History {
    states: Vec<State>,
    /// Who may have been told what, and since when.
    told: Vec<(Who, AdditionalSense, u64)>,
    ended: Vec<Ended>,
    /// Whether it changed since somebody looked.
    pub(crate) is_new: bool,
}

impl History {
    /// Nobody is registered.
    pub(crate) fn new() -> History {
        let first = State { asked_at: 0, answered_at: Some(0), worlds: vec![Model::default()] };
        History { states: vec![first], told: Vec::new(), ended: Vec::new(), is_new: false }
    }

    fn last(&self) -> &State {
        self.states.last().expect("there is a first")
    }

    /// What may be now, or once what is asked is decided.
    pub(crate) fn worlds(&self) -> &[Model] {
        &self.last().worlds
    }

    /// Whether nothing is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.last().answered_at.is_some()
    }

    /// A change is asked for, of which this may become in each world; or nothing.
    pub(crate) fn ask(&mut self, now: u64, afters: &[After]) {
        let mut worlds = self.worlds().to_vec();
        worlds.extend(afters.iter().map(|after| after.model.clone()));
        for after in afters {
            self.told.extend(after.told.iter().map(|(who, code)| (*who, *code, now)));
            self.ended.extend(after.ended.iter().map(|who| Ended { who: *who, asked_at: now }));
        }
        self.push(State { asked_at: now, answered_at: None, worlds: distinct(worlds) });
    }

    /// It was answered, and this is in force everywhere.
    pub(crate) fn answer(&mut self, now: u64, worlds: Vec<Model>) {
        let last = self.states.last_mut().expect("there is a first");
        (last.answered_at, last.worlds) = (Some(now), distinct(worlds));
        self.is_new = true;
    }

    /// The target is started again.
    pub(crate) fn restart(&mut self, now: u64) {
        let worlds = self.worlds().iter().flat_map(Model::restarted).collect();
        self.push(State { asked_at: now, answered_at: Some(now), worlds: distinct(worlds) });
    }

    /// Somebody looked, and only these are left.
    pub(crate) fn narrow(&mut self, is_seen: impl Fn(&Model) -> bool) {
        let last = self.states.last_mut().expect("there is a first");
        last.worlds.retain(is_seen);
        self.is_new = true;
    }

    fn push(&mut self, state: State) {
        self.states.push(state);
        self.is_new = true;
    }

    /// The states that may have been in force at some time from `start` to `end`.
    fn between(&self, start: u64, end: u64) -> impl Iterator<Item = &Model> {
        let is_known = |state: &State| state.answered_at.is_some_and(|at| at <= start);
        let first = self.states.iter().rposition(is_known).unwrap_or(0);
        let states = self.states[first..].iter();
        states.take_while(move |state| state.asked_at <= end).flat_map(|state| &state.worlds)
    }

    /// Whether somebody was surely shut out all the time.
    pub(crate) fn shuts_out(&self, who: Option<Who>, writes: bool, start: u64, end: u64) -> bool {
        self.between(start, end).all(|model| !model.allows(who, writes))
    }

    /// Whether somebody may have been shut out at some time.
    pub(crate) fn may_shut_out(
        &self,
        who: Option<Who>,
        writes: bool,
        start: u64,
        end: u64,
    ) -> bool {
        self.between(start, end).any(|model| !model.allows(who, writes))
    }

    /// Whether a unit attention may have been raised for somebody by now.
    pub(crate) fn may_be_told(&self, who: Who, code: AdditionalSense, now: u64) -> bool {
        let is_it = |(other, said, at): &(Who, AdditionalSense, u64)| {
            (*other, *said) == (who, code) && *at <= now
        };
        self.told.iter().any(is_it)
    }

    /// Whether a task of somebody that was begun at `start` may have been ended by `end`.
    pub(crate) fn may_be_ended(&self, who: Who, end: u64) -> bool {
        self.ended.iter().any(|ended| ended.who == who && ended.asked_at <= end)
    }
}

fn distinct(mut worlds: Vec<Model>) -> Vec<Model> {
    let mut seen: Vec<Model> = Vec::new();
    worlds.retain(|world| {
        let is_new = !seen.contains(world);
        if is_new {
            seen.push(world.clone());
        }
        is_new
    });
    worlds
}

#[cfg(test)]
mod tests {
    use wire::scsi::persistent::ReservationType;

    use super::super::model::{Change, Guard};
    use super::*;

    #[test]
    fn a_stranger_is_shut_out_from_the_answer_until_the_next_change_is_asked_for() {
        let mut history = History::new();
        let change = |history: &mut History, change: &Change, at: u64| {
            let afters: Vec<After> =
                history.worlds().iter().map(|world| world.apply(Who(0), change)).collect();
            history.ask(at, &afters);
            history.answer(at + 10, afters.into_iter().map(|after| after.model).collect());
        };
        let (guard, also) = (Guard::Any, Vec::new());
        let register = Change::Register { guard, key: 1, also, persists: None };
        change(&mut history, &register, 10);
        let kind = ReservationType::WRITE_EXCLUSIVE;
        change(&mut history, &Change::Reserve { key: 1, kind }, 30);
        assert!(history.shuts_out(None, true, 40, 50), "it is answered");
        assert!(!history.shuts_out(None, true, 39, 50), "it began before");
        assert!(history.may_shut_out(None, true, 20, 35), "it is asked");
        assert!(!history.may_shut_out(None, true, 20, 29));
        assert!(!history.may_shut_out(None, false, 0, 99), "reads are let through");
        assert!(!history.may_shut_out(Some(Who(0)), true, 0, 99));
        change(&mut history, &Change::Release { key: 1, kind }, 60);
        assert!(history.shuts_out(None, true, 40, 59) && !history.shuts_out(None, true, 40, 60));
        history.restart(80);
        assert!(history.worlds().iter().all(Model::is_empty));
    }
}
