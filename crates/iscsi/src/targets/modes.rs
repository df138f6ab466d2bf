//! How hosts set logical units by MODE SELECT: the same on all shards, in all targets and under all
//! LUNs, since it is the unit's; and that a reset makes a unit as it is after a start.
//!
//! ```text
//!  shard of the host                   every other shard
//!       | ----- ModeSet ---------------> |   its sessions are told
//!       | <---- ModeAnswer ------------- |   at once
//!  the host is answered, or the part of the reset is over
//! ```
//! Of two that set a unit at once on two shards the same one is the last on every shard: the one that
//! has seen more before it, and of equals the one of the higher shard. Spec: SPC-4, "MODE SELECT (6)
//! command"; SAM-5, 6.3.3.

use std::collections::{BTreeMap, BTreeSet};

use block::{ShardId, Slot};
use scsi::ModeState;
use wire::scsi::{AdditionalSense, ScsiStatus, Sense};

use super::decisions::DecisionFor;
use super::{SessionEvent, SessionHandle, Targets};
use crate::message::{Message, ModeStamp};
use crate::target::Unit;

/// How units are set, by the UUIDs of their volumes. One that a host has set stays known, for as long
/// as the process lives: another shard may still tell of what was before.
#[derive(Debug, Default)]
pub(super) struct Modes {
    known: BTreeMap<[u8; 16], (ModeStamp, ModeState)>,
    /// What is told to other shards, by the numbers of who waits for it: shards that have not answered.
    told: BTreeMap<u64, u16>,
}

impl Modes {
    /// How a unit is set.
    pub(super) fn of(&self, uuid: &[u8; 16]) -> ModeState {
        self.known.get(uuid).map_or(ModeState::default(), |(_, mode)| *mode)
    }

    fn next(&self, uuid: &[u8; 16], shard: ShardId) -> ModeStamp {
        let last = self.known.get(uuid).map_or(0, |((count, _), _)| *count);
        (last + 1, shard)
    }
}

impl Targets {
    /// A task of a session sets how a unit is to be; every other session is told. Answered by
    /// [`SessionEvent::Changed`] with the number that is returned, once the unit is so on every shard.
    pub fn set_mode(&mut self, handle: SessionHandle, uuid: [u8; 16], mode: ModeState) -> u64 {
        let place = self.sessions.get(handle.0).map(|session| session.place);
        let asker = DecisionFor::Session { session: handle.0, is_task: true };
        self.spread_mode(asker, place, uuid, mode)
    }

    /// The units of a target, or the one of a LUN, of which a host has set something.
    pub(super) fn units_set(&self, target: Slot, lun: Option<u16>) -> BTreeSet<[u8; 16]> {
        let Some(entry) = self.entries.get(target) else { return BTreeSet::new() };
        let units = entry.target.units.iter().filter(|unit| lun.is_none_or(|lun| unit.lun == lun));
        let set = units.filter(|unit| unit.unit.mode != ModeState::default());
        set.map(|unit| unit.unit.uuid).collect()
    }

    /// A unit is as after a start from now on: nothing that was set of it was saved. `mark`: the part
    /// of a reset that waits until all shards have it.
    pub(super) fn reset_mode(&mut self, uuid: [u8; 16], mark: u64) {
        self.spread_mode(DecisionFor::Reset { mark }, None, uuid, ModeState::default());
    }

    /// Sets how a unit is to be, here and on other shards; who asked hears when all have it. `by`: the
    /// place of a session that need not be told.
    fn spread_mode(
        &mut self,
        asker: DecisionFor,
        by: Option<Slot>,
        uuid: [u8; 16],
        mode: ModeState,
    ) -> u64 {
        let number = self.await_decision(asker, None);
        let stamp = self.modes.next(&uuid, self.shard);
        for shard in (0..self.shards).map(ShardId).filter(|shard| *shard != self.shard) {
            self.messages.push_back((shard, Message::ModeSet { uuid, mode, stamp, number }));
        }
        self.take_mode(by, uuid, mode, stamp);
        self.modes.told.insert(number, self.shards);
        self.mode_is_set(number);
        number
    }

    /// A shard has how a unit was set here.
    pub(super) fn mode_is_set(&mut self, number: u64) {
        let left = self.modes.told.get_mut(&number).expect("each shard answers once");
        *left -= 1;
        if *left == 0 {
            self.modes.told.remove(&number);
            self.decided(number, || (ScsiStatus::GOOD, None));
        }
    }

    /// A unit is to be so from now on, as the host of the session at `by` has it, if it is one of
    /// this shard.
    pub(super) fn take_mode(
        &mut self,
        by: Option<Slot>,
        uuid: [u8; 16],
        mode: ModeState,
        stamp: ModeStamp,
    ) {
        if self.modes.known.get(&uuid).is_some_and(|(last, _)| *last >= stamp) {
            return;
        }
        self.modes.known.insert(uuid, (stamp, mode));
        for (slot, entry) in self.entries.iter_mut() {
            for Unit { lun, unit, .. } in &mut entry.target.units {
                if unit.uuid != uuid || unit.mode == mode {
                    continue;
                }
                unit.mode = mode;
                entry.units.insert(u32::from(*lun), unit.clone());
                let told = self.sessions.iter().filter(|(_, session)| {
                    session.target == slot && Some(session.place) != by && !session.ends
                });
                let sense = Sense::attention(AdditionalSense::MODE_PARAMETERS_CHANGED);
                let told = told.map(|(_, session)| {
                    (session.place, SessionEvent::Attention(Some(*lun), sense))
                });
                self.events.extend(told);
            }
        }
    }
}
