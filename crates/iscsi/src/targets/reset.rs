//! Resets: the tasks of a logical unit, or of all units of a target, end in every session on every
//! shard, and what a session has by RESERVE(6); only then the reset is answered (promise: nothing
//! older reaches the media any more).
//!
//! ```text
//!  shard of the request                every shard, also that one
//!       | ----- ResetAsk --------------> |   its sessions abort: SessionEvent::Abort
//!       | <---- ResetAnswer ------------ |   once the last of them says so
//! ```
//! Other sessions than the one that asked are told by a unit attention. What MODE SELECT has set is as
//! after a start again, on every shard before the answer: each shard tells the others of what it knows,
//! ahead of its own answer. Spec: RFC 7143, 11.5.1 (LOGICAL UNIT RESET, TARGET WARM RESET, TARGET COLD
//! RESET); SAM-5, 6.3.3, 7.7.

use std::collections::BTreeSet;

use block::{ShardId, Slot, VolumeId};
use reservation::Change;
use wire::iscsi::IscsiName;
use wire::scsi::{AdditionalSense, Sense};

use super::decisions::DecisionFor;
use super::{CloseReason, SessionEvent, SessionHandle, Targets};
use crate::message::Message;

/// What a reset is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub target: IscsiName,
    /// One logical unit, or all.
    pub lun: Option<u16>,
    /// Whether all sessions of the target end behind it (TARGET COLD RESET).
    pub is_cold: bool,
}

/// A reset that was asked for on this shard.
#[derive(Debug)]
pub(super) struct Reset {
    /// The session that asked, if it is still there, and the task tag of its request.
    place: Slot,
    tag: u32,
    /// Its target, if all sessions of that end behind it.
    cold: Option<IscsiName>,
    /// Shards that have not answered.
    left: u16,
}

/// A part of a reset that this shard carries out.
#[derive(Debug)]
pub(super) struct Part {
    from: ShardId,
    ask: Slot,
    scope: Scope,
    /// Sessions whose tasks have not ended.
    sessions: Vec<Slot>,
    /// Its own number, and holds of RESERVE(6) that are being ended and modes that are being told.
    mark: u64,
    undecided: u32,
}

impl Targets {
    /// The host of a session asks for a reset; answered by [`SessionEvent::ResetDone`] with `tag`.
    pub fn reset(&mut self, session: SessionHandle, tag: u32, lun: Option<u16>, is_cold: bool) {
        let Some(session) = self.sessions.get(session.0) else { return };
        let scope = Scope { target: session.nexus.target.clone(), lun, is_cold };
        let asker = session.place;
        let left = self.shards;
        let cold = scope.is_cold.then(|| scope.target.clone());
        let ask = self.resets.insert(Reset { place: asker, tag, cold, left });
        for shard in (0..self.shards).map(ShardId).filter(|shard| *shard != self.shard) {
            let message = Message::ResetAsk { ask, scope: Box::new(scope.clone()) };
            self.messages.push_back((shard, message));
        }
        self.begin_part(self.shard, ask, scope, Some(asker));
    }

    /// Has the sessions of this shard end their tasks. `asker` is the place of the one that asked.
    pub(super) fn begin_part(
        &mut self,
        from: ShardId,
        ask: Slot,
        scope: Scope,
        asker: Option<Slot>,
    ) {
        let target = self.by_name.get(&scope.target).copied();
        let concerned = self.sessions.iter().filter(|(_, session)| Some(session.target) == target);
        let sessions: Vec<(Slot, Slot)> =
            concerned.map(|(slot, session)| (slot, session.place)).collect();
        let sense = Sense::attention(AdditionalSense::BUS_DEVICE_RESET);
        for (slot, place) in &sessions {
            let of = SessionHandle(*slot);
            self.events.push_back((*place, SessionEvent::Abort { of, lun: scope.lun }));
            if asker != Some(*place) {
                self.events.push_back((*place, SessionEvent::Attention(scope.lun, sense)));
            }
        }
        let sessions = sessions.into_iter().map(|(slot, _)| slot).collect();
        self.parts_begun += 1;
        let mark = self.parts_begun;
        let modes = target.map(|target| self.units_set(target, scope.lun)).unwrap_or_default();
        let holds = target.map_or(0, |target| self.reset_holds(target, scope.lun, mark));
        let undecided = holds + modes.len() as u32;
        self.parts.push(Part { from, ask, scope, sessions, mark, undecided });
        modes.into_iter().for_each(|uuid| self.reset_mode(uuid, mark));
        self.parts_may_be_over();
    }

    /// Ends what sessions of this shard may have by RESERVE(6) of the units; how much there is.
    fn reset_holds(&mut self, target: Slot, lun: Option<u16>, mark: u64) -> u32 {
        let Some(entry) = self.entries.get(target) else { return 0 };
        let is_reset = |volume: &VolumeId| {
            let units = &entry.target.units;
            let mut concerned = units.iter().filter(|unit| lun.is_none_or(|lun| unit.lun == lun));
            concerned.any(|unit| unit.unit.volume == *volume)
        };
        let held = self.sessions.iter().flat_map(|(_, session)| &session.holds);
        let held: BTreeSet<VolumeId> = held.copied().filter(is_reset).collect();
        for volume in &held {
            self.propose(DecisionFor::Reset { mark }, *volume, Change::ResetHold);
        }
        held.len() as u32
    }

    /// Something was decided that a part of a reset waited for.
    pub(super) fn part_was_decided(&mut self, mark: u64) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.mark == mark) {
            part.undecided -= 1;
        }
        self.parts_may_be_over();
    }

    /// The tasks of a session have ended that [`SessionEvent::Abort`] was about.
    pub fn aborted(&mut self, session: SessionHandle, lun: Option<u16>) {
        self.has_ended(session.0, |scope| scope.lun == lun);
    }

    /// The tasks of a session have ended that parts of resets waited for.
    pub(super) fn has_ended(&mut self, session: Slot, of: impl Fn(&Scope) -> bool) {
        for part in self.parts.iter_mut().filter(|part| of(&part.scope)) {
            part.sessions.retain(|other| *other != session);
        }
        self.parts_may_be_over();
    }

    fn parts_may_be_over(&mut self) {
        let is_over = |part: &mut Part| part.sessions.is_empty() && part.undecided == 0;
        let over: Vec<Part> = self.parts.extract_if(.., is_over).collect();
        for Part { from, ask, scope, .. } in over {
            if from == self.shard {
                self.reset_answered(ask);
                continue;
            }
            if scope.is_cold {
                self.close_all_of(&scope.target);
            }
            self.messages.push_back((from, Message::ResetAnswer { ask }));
        }
    }

    fn close_all_of(&mut self, target: &IscsiName) {
        if let Some(&target) = self.by_name.get(target) {
            self.close_where(|session| session.target == target, CloseReason::ColdReset);
        }
    }

    /// A shard has ended all tasks that a reset of this one is about.
    pub(super) fn reset_answered(&mut self, ask: Slot) {
        let Some(reset) = self.resets.get_mut(ask) else { return };
        reset.left -= 1;
        if reset.left == 0 {
            let Reset { place, tag, cold, .. } =
                self.resets.remove(ask).expect("it was just there");
            self.events.push_back((place, SessionEvent::ResetDone { tag }));
            // Who asked hears first that it is done.
            if let Some(target) = cold {
                self.close_all_of(&target);
            }
        }
    }
}
