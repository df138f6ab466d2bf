//! Changes of what is exported, and what sessions hear of them: unit attentions once every shard
//! has the change, a close where nothing is left that their host may use.
//!
//! A LUN that becomes another volume's is not read or written by a session that began before, until
//! its host was told whose it is, by its serial number or its identifiers: an initiator that has not
//! noticed would mix two volumes. That is so, too, when there was nothing under it for a while, and when
//! the host was not named for a while: only the blocks that it knew open it by themselves. Spec:
//! SPC-4, 5.14 (unit attentions); SAM-5, 5.14.

use block::{IdMap, Slot};
use contract::traffic::ByHost;
use scsi::LogicalUnit;
use wire::iscsi::IscsiName;
use wire::scsi::{AdditionalSense, Sense};

use super::{CloseReason, Entry, SessionEvent, Targets, masked};
use crate::target::{Target, Unit, UnitIdentity};

impl Targets {
    /// Exports a target, or changes one.
    pub fn set_target(&mut self, target: Target) {
        let mut target = target;
        for Unit { unit, .. } in &mut target.units {
            unit.mode = self.modes.of(&unit.uuid);
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
