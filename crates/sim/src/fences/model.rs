//! What a reservation is after each change, as SPC-4 and NVMe have it: a second and small opinion,
//! beside the one of the code under test.
//!
//! In: a state, who asks, and what. Out: what he must be answered, the state that follows, who is
//! told what, and whose tasks end; in the words of SCSI, also where NVMe has others. Where the
//! standards leave a choice, the one that docs/reservations.md names. Not here: stations of AoE,
//! which are strangers, and RESERVE(6). Spec: SPC-4, 5.13; NVMe base, "Reservations".

use wire::scsi::AdditionalSense;
use wire::scsi::persistent::ReservationType;

/// Somebody who may be registered: an initiator port, or a host of NVMe, by its number in this
/// world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who(pub(crate) u16);

impl Who {
    /// The host that the configuration names, by whatever it comes.
    pub(crate) const NAMED: Who = Who(u16::MAX);
}

/// On what condition somebody is registered, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// This is its key, 0 for none. SCSI's REGISTER.
    Is(u64),
    /// Whatever it has. REGISTER AND IGNORE EXISTING KEY, and NVMe's replace with IEKEY.
    Any,
    /// It has none, or the one that it asks for. NVMe's register.
    New,
    /// It has one: this, if one is said. NVMe's replace and unregister, without or with IEKEY.
    Registered(Option<u64>),
}

/// The reservation of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    /// PRGENERATION.
    pub(crate) generation: u32,
    /// Who is registered, under which key.
    pub(crate) keys: Vec<(Who, u64)>,
    /// What is held, and who holds it, if not all.
    pub(crate) held: Option<(ReservationType, Option<Who>)>,
    /// APTPL, or PTPL, as it was said last.
    pub(crate) persists: bool,
}

/// A change that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Register {
        guard: Guard,
        key: u64,
        also: Vec<Who>,
        /// APTPL, CPTPL: if it is said.
        persists: Option<bool>,
    },
    Reserve {
        key: u64,
        kind: ReservationType,
    },
    Release {
        key: u64,
        kind: ReservationType,
    },
    Clear {
        key: u64,
    },
    Preempt {
        key: u64,
        victims: u64,
        kind: ReservationType,
        abort: bool,
    },
    Move {
        key: u64,
        to: Who,
        to_key: u64,
        unregister: bool,
        persists: bool,
    },
    /// PTPL by itself: NVMe's, of whoever asks.
    Persist(bool),
}

/// How a change is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Good,
    Conflict,
    Illegal(AdditionalSense),
    /// It could not be stored, and was not made.
    NotStored,
}

/// What becomes of a change.
#[derive(Clone, Debug)]
pub(crate) struct After {
    pub(crate) ending: Ending,
    pub(crate) model: Model,
    /// Unit attentions of others.
    pub(crate) told: Vec<(Who, AdditionalSense)>,
    /// Those whose tasks end.
    pub(crate) ended: Vec<Who>,
}

impl Model {
    pub(crate) fn key_of(&self, who: Who) -> Option<u64> {
        self.keys.iter().find(|(other, _)| *other == who).map(|(_, key)| *key)
    }

    pub(crate) fn is_holder(&self, who: Who) -> bool {
        match self.held {
            Some((_, Some(holder))) => holder == who,
            Some((_, None)) => self.key_of(who).is_some(),
            None => false,
        }
    }

    /// Whether nobody is registered, and so nothing held.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether somebody, or a stranger, may read or write.
    pub(crate) fn allows(&self, who: Option<Who>, writes: bool) -> bool {
        let Some((kind, holder)) = self.held else { return true };
        let is_registered = who.is_some_and(|who| self.key_of(who).is_some());
        let holds = who.is_some() && who == holder;
        match kind {
            ReservationType::WRITE_EXCLUSIVE => !writes || holds,
            ReservationType::EXCLUSIVE_ACCESS => holds,
            ReservationType::WRITE_EXCLUSIVE_REGISTRANTS | ReservationType::WRITE_EXCLUSIVE_ALL => {
                !writes || is_registered
            }
            _ => is_registered,
        }
    }

    /// What may be there after the target was started again: PRGENERATION counts on or begins anew,
    /// all else follows from APTPL.
    pub(crate) fn restarted(&self) -> [Model; 2] {
        let kept = match self.persists {
            true => self.clone(),
            false => Model { generation: self.generation, ..Model::default() },
        };
        [Model { generation: 0, ..kept.clone() }, kept]
    }

    /// What becomes of a change that somebody asks for.
    pub(crate) fn apply(&self, by: Who, change: &Change) -> After {
        let stays = |ending| self.after(ending, self.clone());
        match self.check_key(by, change) {
            true => {}
            false => return stays(Ending::Conflict),
        }
        match change {
            Change::Register { key, also, persists, .. } => {
                self.register(by, *key, also, *persists)
            }
            Change::Reserve { kind, .. } => match self.held {
                None => {
                    let holder = (!is_of_all(*kind)).then_some(by);
                    let held = Some((*kind, holder));
                    self.after(Ending::Good, Model { held, ..self.clone() })
                }
                Some((held, _)) if held == *kind && self.is_holder(by) => stays(Ending::Good),
                Some(_) => stays(Ending::Conflict),
            },
            Change::Release { kind, .. } => match self.held {
                Some((held, _)) if self.is_holder(by) && held != *kind => {
                    let code = AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
                    stays(Ending::Illegal(code))
                }
                Some((held, _)) if self.is_holder(by) => {
                    let model = Model { held: None, ..self.clone() };
                    let mut after = self.after(Ending::Good, model);
                    if is_shared(held) {
                        after.tell_others(by, AdditionalSense::RESERVATIONS_RELEASED);
                    }
                    after
                }
                _ => stays(Ending::Good),
            },
            Change::Clear { .. } => {
                let mut after = self.after(Ending::Good, self.counted());
                after.tell_others(by, AdditionalSense::RESERVATIONS_PREEMPTED);
                (after.model.keys, after.model.held) = (Vec::new(), None);
                after
            }
            Change::Preempt { victims, kind, abort, .. } => {
                self.preempt(by, *victims, *kind, *abort)
            }
            Change::Move { to, to_key, unregister, persists, .. } => {
                self.hand_over(by, (*to, *to_key), *unregister, *persists)
            }
            Change::Persist(persists) => {
                self.after(Ending::Good, Model { persists: *persists, ..self.clone() })
            }
        }
    }

    /// What becomes of a change that could not be stored; `None` of one that there is nothing to
    /// store of.
    pub(crate) fn not_stored(&self, by: Who, change: &Change) -> Option<After> {
        let after = self.apply(by, change);
        let changes = after.ending == Ending::Good && after.model != *self;
        changes.then(|| self.after(Ending::NotStored, self.clone()))
    }

    fn after(&self, ending: Ending, model: Model) -> After {
        After { ending, model, told: Vec::new(), ended: Vec::new() }
    }

    fn counted(&self) -> Model {
        Model { generation: self.generation.wrapping_add(1), ..self.clone() }
    }

    /// Whether the key is right that the asker says is its own.
    fn check_key(&self, by: Who, change: &Change) -> bool {
        let own = self.key_of(by);
        match change {
            Change::Register { guard, key, .. } => match *guard {
                // A host that comes by several paths registers by each.
                Guard::Is(_) if by == Who::NAMED && *key != 0 && own == Some(*key) => true,
                Guard::Is(said) => own.unwrap_or(0) == said,
                Guard::Any => true,
                Guard::New => own.is_none_or(|own| own == *key),
                Guard::Registered(said) => own.is_some() && (said.is_none() || said == own),
            },
            Change::Persist(_) => true,
            Change::Reserve { key, .. }
            | Change::Release { key, .. }
            | Change::Clear { key }
            | Change::Preempt { key, .. }
            | Change::Move { key, .. } => own == Some(*key),
        }
    }

    fn register(&self, by: Who, key: u64, also: &[Who], persists: Option<bool>) -> After {
        let own = self.key_of(by);
        if !also.is_empty() && (own.is_some() || key == 0) {
            let code = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
            return self.after(Ending::Illegal(code), self.clone());
        }
        if also.iter().any(|who| self.key_of(*who).is_some()) {
            return self.after(Ending::Conflict, self.clone());
        }
        if own.is_none() && key == 0 {
            return self.after(Ending::Good, self.clone());
        }
        let mut after = self.after(Ending::Good, self.counted());
        after.model.persists = persists.unwrap_or(self.persists);
        after.model.keys.retain(|(who, _)| *who != by);
        if key != 0 {
            after.model.keys.extend([by].iter().chain(also).map(|who| (*who, key)));
            return after;
        }
        // What it held goes with it.
        let Some((kind, holder)) = self.held else { return after };
        if holder == Some(by) || (holder.is_none() && after.model.keys.is_empty()) {
            after.model.held = None;
            if is_shared(kind) {
                after.tell_others(by, AdditionalSense::RESERVATIONS_RELEASED);
            }
        }
        after
    }

    fn preempt(&self, by: Who, victims: u64, kind: ReservationType, abort: bool) -> After {
        let takes_over = match self.held {
            Some((_, Some(holder))) => self.key_of(holder) == Some(victims),
            Some((_, None)) => victims == 0,
            None => false,
        };
        if victims == 0 && !takes_over {
            let code = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
            return self.after(Ending::Illegal(code), self.clone());
        }
        let is_meant = |key: u64| victims == 0 || key == victims;
        if !self.keys.iter().any(|(_, key)| is_meant(*key)) {
            return self.after(Ending::Conflict, self.clone());
        }
        let mut after = self.after(Ending::Good, self.counted());
        let is_victim = |(who, key): &(Who, u64)| *who != by && is_meant(*key);
        let gone = self.keys.iter().filter(|one| is_victim(one)).map(|(who, _)| *who);
        let gone: Vec<Who> = gone.collect();
        after.model.keys.retain(|one| !is_victim(one));
        if takes_over {
            after.model.held = Some((kind, (!is_of_all(kind)).then_some(by)));
            if self.held.is_some_and(|(held, _)| held != kind) {
                after.tell_others(by, AdditionalSense::RESERVATIONS_RELEASED);
            }
        }
        let told = gone.iter().map(|who| (*who, AdditionalSense::REGISTRATIONS_PREEMPTED));
        after.told.extend(told);
        after.ended = if abort { gone } else { Vec::new() };
        after
    }

    fn hand_over(
        &self,
        by: Who,
        (to, to_key): (Who, u64),
        unregister: bool,
        persists: bool,
    ) -> After {
        let Some((kind, Some(holder))) = self.held.filter(|_| self.is_holder(by)) else {
            return self.after(Ending::Conflict, self.clone());
        };
        if to_key == 0 || to == holder {
            let code = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
            return self.after(Ending::Illegal(code), self.clone());
        }
        let mut after = self.after(Ending::Good, self.counted());
        after.model.keys.retain(|(who, _)| *who != to && !(unregister && *who == by));
        after.model.keys.push((to, to_key));
        (after.model.held, after.model.persists) = (Some((kind, Some(to))), persists);
        after
    }
}

impl After {
    /// All registrants that are left but one are told.
    fn tell_others(&mut self, but: Who, code: AdditionalSense) {
        let others = self.model.keys.iter().filter(|(who, _)| *who != but);
        self.told.extend(others.map(|(who, _)| (*who, code)));
    }
}

fn is_of_all(kind: ReservationType) -> bool {
    matches!(kind, ReservationType::WRITE_EXCLUSIVE_ALL | ReservationType::EXCLUSIVE_ACCESS_ALL)
}

/// Whether others than the holder have something of it.
fn is_shared(kind: ReservationType) -> bool {
    !matches!(kind, ReservationType::WRITE_EXCLUSIVE | ReservationType::EXCLUSIVE_ACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Who = Who(0);
    const B: Who = Who(1);

    fn registered(keys: &[(Who, u64)]) -> Model {
        Model { keys: keys.to_vec(), ..Model::default() }
    }

    #[test]
    fn each_type_shuts_out_whom_the_standard_says() {
        let may = |kind, holder| {
            let model = Model { held: Some((kind, holder)), ..registered(&[(A, 1), (B, 2)]) };
            let may = |who| [false, true].map(|writes| model.allows(who, writes));
            (may(Some(A)), may(Some(B)), may(None))
        };
        let (all, reads, none) = ([true, true], [true, false], [false, false]);
        assert_eq!(may(ReservationType::WRITE_EXCLUSIVE, Some(A)), (all, reads, reads));
        assert_eq!(may(ReservationType::EXCLUSIVE_ACCESS, Some(A)), (all, none, none));
        assert_eq!(may(ReservationType::WRITE_EXCLUSIVE_REGISTRANTS, Some(A)), (all, all, reads));
        assert_eq!(may(ReservationType::EXCLUSIVE_ACCESS_ALL, None), (all, all, none));
    }

    #[test]
    fn who_preempts_the_holder_holds_and_victims_are_told() {
        let kind = ReservationType::WRITE_EXCLUSIVE;
        let held = Model { held: Some((kind, Some(A))), ..registered(&[(A, 1), (B, 2)]) };
        let preempt = Change::Preempt { key: 2, victims: 1, kind, abort: true };
        let after = held.apply(B, &preempt);
        assert_eq!((after.ending, after.model.held), (Ending::Good, Some((kind, Some(B)))));
        assert_eq!(after.model.keys, [(B, 2)]);
        assert_eq!(after.told, [(A, AdditionalSense::REGISTRATIONS_PREEMPTED)]);
        assert_eq!(after.ended, [A]);
        let wrong = Change::Preempt { key: 1, victims: 1, kind, abort: true };
        assert_eq!(held.apply(B, &wrong).ending, Ending::Conflict);
    }

    #[test]
    fn each_guard_asks_for_what_its_command_says() {
        let may = |by, model: &Model, guard, key| {
            let change = Change::Register { guard, key, also: Vec::new(), persists: None };
            model.apply(by, &change).ending == Ending::Good
        };
        let (none, one) = (registered(&[]), registered(&[(A, 1), (Who::NAMED, 1)]));
        let both = |guard, key| (may(A, &none, guard, key), may(A, &one, guard, key));
        assert_eq!(both(Guard::Is(0), 1), (true, false));
        assert_eq!(both(Guard::Is(1), 2), (false, true));
        assert_eq!(both(Guard::Any, 2), (true, true));
        assert_eq!(both(Guard::New, 1), (true, true));
        assert_eq!(both(Guard::New, 2), (true, false));
        assert_eq!(both(Guard::Registered(Some(2)), 3), (false, false));
        assert_eq!(both(Guard::Registered(Some(1)), 0), (false, true));
        assert_eq!(both(Guard::Registered(None), 0), (false, true));
        assert!(may(Who::NAMED, &one, Guard::Is(0), 1) && !may(Who::NAMED, &one, Guard::Is(0), 2));
    }

    #[test]
    fn a_restart_leaves_what_aptpl_says() {
        let kind = ReservationType::EXCLUSIVE_ACCESS;
        let held = Model { held: Some((kind, Some(A))), generation: 7, ..registered(&[(A, 1)]) };
        assert!(held.restarted().iter().all(Model::is_empty));
        let held = Model { persists: true, ..held };
        assert!(held.restarted().contains(&held));
    }
}
