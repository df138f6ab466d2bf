//! Changes of what is exported, and what sessions hear of them: unit attentions once every shard
//! has the change, a close where nothing is left that their host may use.
//!
//! A LUN that becomes another volume's is not read or written by a session that began before, until
//! its host was told whose it is, by its serial number or its identifiers: an initiator that has not
//! noticed would mix two volumes. That is so, too, when there was nothing under it for a while, and when
//! the host was not named for a while: only the blocks that it knew open it by themselves. Spec:
//! SPC-4, 5.14 (unit attentions); SAM-5, 5.14.

use std::collections::BTreeSet;

use block::{IdMap, ShardId, Slot, VolumeId};
use contract::traffic::ByHost;
use scsi::{LogicalUnit, ModeState};
use wire::iscsi::IscsiName;
use wire::scsi::{AdditionalSense, ScsiStatus, Sense};

use super::reserve::Waiter;
use super::{CloseReason, Entry, SessionEvent, SessionHandle, Targets, masked};
use crate::message::{Message, ModeStamp};
use crate::target::{Target, Unit, UnitIdentity};

impl Targets {
    /// Exports a target, or changes one.
    pub fn set_target(&mut self, target: Target) {
        let mut target = target;
        if let Some(&slot) = self.by_name.get(&target.name) {
            let before = &self.entries.get(slot).expect("names lead to targets").units;
            for Unit { lun, unit, .. } in &mut target.units {
                let same = before.get(u32::from(*lun)).filter(|old| old.volume == unit.volume);
                unit.mode = same.map_or(unit.mode, |old| old.mode);
            }
        }
        let units = by_lun(&target);
        match self.by_name.get(&target.name) {
            Some(&slot) => {
                let entry = self.entries.get_mut(slot).expect("names lead to targets");
                let mut ended = core::mem::take(&mut entry.ended);
                ended.list_again(|host| target.listed(host));
                let before = core::mem::replace(entry, Entry { target, units, ended });
                self.changed(slot, &before);
            }
            None => {
                let name = target.name.clone();
                let slot = self.entries.insert(Entry { target, units, ended: ByHost::default() });
                self.by_name.insert(name, slot);
            }
        }
    }

    /// Exports a target no more: its sessions end.
    pub fn remove_target(&mut self, name: &IscsiName) {
        let Some(slot) = self.by_name.remove(name) else { return };
        self.close_where(|session| session.target == slot, CloseReason::TargetRemoved);
        self.entries.remove(slot);
    }

    /// A task of a session sets how a unit is to be; every other session is told. Answered by
    /// [`SessionEvent::Changed`] with the number that is returned, once the unit is so on every shard.
    pub fn set_mode(&mut self, handle: SessionHandle, volume: VolumeId, mode: ModeState) -> u64 {
        let place = self.sessions.get(handle.0).map(|session| session.place);
        let waiter = Waiter::Session { session: handle.0, is_task: true };
        let number = self.await_decision(waiter, None);
        self.modes_asked.insert(number, self.shards);
        self.spread_mode(place, volume, mode, Some(number));
        self.mode_is_set(number);
        number
    }

    /// Units are as after a start from now on, of a target or one of it: nothing that was set of them
    /// was saved. Shards are told ahead of whatever they are told next.
    pub(super) fn reset_modes(&mut self, by: Slot, target: Slot, lun: Option<u16>) {
        let Some(entry) = self.entries.get(target) else { return };
        let units = entry.target.units.iter().filter(|unit| lun.is_none_or(|lun| unit.lun == lun));
        let set = units.filter(|unit| unit.unit.mode != ModeState::default());
        let volumes: BTreeSet<VolumeId> = set.map(|unit| unit.unit.volume).collect();
        for volume in volumes {
            self.spread_mode(Some(by), volume, ModeState::default(), None);
        }
    }

    /// Sets how a unit is to be, here and on other shards, which answer if there is a number. Of two
    /// that set it at once on two shards, the same one is the last on every shard.
    fn spread_mode(
        &mut self,
        by: Option<Slot>,
        volume: VolumeId,
        mode: ModeState,
        number: Option<u64>,
    ) {
        let (count, _) = self.modes.get(volume.0).copied().unwrap_or_default();
        let stamp = (count + 1, self.shard);
        for shard in (0..self.shards).map(ShardId).filter(|shard| *shard != self.shard) {
            self.messages.push_back((shard, Message::ModeSet { volume, mode, stamp, number }));
        }
        self.take_mode(by, volume, mode, stamp);
    }

    /// A shard has what a host of this one has set.
    pub(super) fn mode_is_set(&mut self, number: u64) {
        let left = self.modes_asked.get_mut(&number).expect("each shard answers once");
        *left -= 1;
        if *left == 0 {
            self.modes_asked.remove(&number);
            self.decided(number, || (ScsiStatus::GOOD, None));
        }
    }

    /// A unit is to be so from now on, as the host of the session at `by` has it, if it is one of
    /// this shard.
    pub(super) fn take_mode(
        &mut self,
        by: Option<Slot>,
        volume: VolumeId,
        mode: ModeState,
        stamp: ModeStamp,
    ) {
        if self.modes.get(volume.0).is_some_and(|last| *last >= stamp) {
            return;
        }
        self.modes.insert(volume.0, stamp);
        for (slot, entry) in self.entries.iter_mut() {
            for Unit { lun, unit, .. } in &mut entry.target.units {
                if unit.volume != volume || unit.mode == mode {
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

    /// Every shard has the targets as they are now: sessions are told.
    pub fn announce(&mut self) {
        self.events.extend(self.withheld.drain(..));
    }

    fn changed(&mut self, target: Slot, before: &Entry) {
        let after = self.entries.get(target).expect("it was just changed");
        let mut left = Vec::new();
        for (slot, session) in self.sessions.iter_mut() {
            if session.target != target || session.ends {
                continue;
            }
            let host = &session.nexus.initiator;
            let had: Vec<u16> = before.target.luns_of(host).collect();
            let has: Vec<u16> = after.target.luns_of(host).collect();
            session.masked = masked(&after.target, host);
            if has.is_empty() {
                left.push(slot);
                continue;
            }
            let mut is_changed = had != has;
            let here = |lun: u16| {
                let unit = has.binary_search(&lun).ok().and_then(|_| after.units.get(lun.into()));
                unit.map(UnitIdentity::of)
            };
            for &lun in &had {
                let known = before.units.get(lun.into()).map(UnitIdentity::of);
                let Some(known) = known.filter(|known| here(lun) != Some(*known)) else { continue };
                // What it takes a number for stays so until it is told, whatever came in between.
                if session.mistaken.iter().all(|(other, _)| *other != lun) {
                    session.mistaken.push((lun, known));
                }
            }
            session.mistaken.retain(|(lun, known)| here(*lun) != Some(*known));
            for &lun in &has {
                let (old, new) = (before.units.get(lun.into()), after.units.get(lun.into()));
                let (Some(old), Some(new)) = (old, new) else { continue };
                if UnitIdentity::of(old) != UnitIdentity::of(new) {
                    is_changed = true;
                } else if old.blocks != new.blocks {
                    let sense = SessionEvent::Attention(
                        Some(lun),
                        Sense::attention(AdditionalSense::CAPACITY_DATA_CHANGED),
                    );
                    self.withheld.push((session.place, sense));
                } else if old != new {
                    let sense = SessionEvent::Attention(
                        Some(lun),
                        Sense::attention(AdditionalSense::INQUIRY_DATA_CHANGED),
                    );
                    self.withheld.push((session.place, sense));
                }
            }
            if is_changed {
                let sense = SessionEvent::Attention(
                    None,
                    Sense::attention(AdditionalSense::REPORTED_LUNS_DATA_CHANGED),
                );
                self.withheld.push((session.place, sense));
            }
        }
        left.into_iter().for_each(|slot| self.close(slot, CloseReason::HostRemoved));
    }
}

fn by_lun(target: &Target) -> IdMap<LogicalUnit> {
    let mut units = IdMap::default();
    for unit in &target.units {
        units.insert(u32::from(unit.lun), unit.unit.clone());
    }
    units
}
