//! AoE on a shard: its target, and the copies of config strings and MAC masks.
//!
//! Both are changed by their [owners](reservation::replica): proposals leave as messages for the
//! key's owner, values go to the control thread to be stored, then to all shards, then the frame is
//! answered. Changes of reservations are handed on: they belong to volumes, whatever exports them.

use std::collections::{BTreeSet, VecDeque};

use aoe::server::{Ask, Context, Drops, Target, TargetCounters, Traffic};
use aoe::{Control, ExportId};
use block::{MachineId, ShardId, VolumeId};
use reservation::replica::{Message, Replicas};
use wire::ethernet::MacAddress;

use super::AoeExport;

/// How AoE is on a shard.
#[derive(Clone, Debug, Default)]
pub struct AoeReport {
    pub counters: TargetCounters,
    pub drops: Drops,
    /// What went through each export on this shard, by number.
    pub exports: Vec<(ExportId, Traffic)>,
    /// Of that, what each station did that an export's list of hosts names.
    pub hosts: Vec<(ExportId, MacAddress, Traffic)>,
}

/// A shard's part of AoE.
#[derive(Debug)]
pub(super) struct AoeTarget {
    pub(super) target: Target,
    exports: BTreeSet<ExportId>,
    pub(super) controls: Replicas<Control>,
    /// Changes of reservations, with the target's numbers.
    pub(super) changes: VecDeque<(VolumeId, u64, reservation::Change)>,
}

impl AoeTarget {
    pub(super) fn new(machine: MachineId, shard: ShardId, shards: u16) -> AoeTarget {
        AoeTarget {
            target: Target::new(machine, shard).among(shards),
            exports: BTreeSet::new(),
            controls: Replicas::new(shard, shards),
            changes: VecDeque::new(),
        }
    }

    /// A volume is exported, or an export has another size, other hosts or other buffers.
    pub(super) fn set_export(&mut self, export: AoeExport) -> Result<(), String> {
        let AoeExport { id, export, control } = export;
        if self.exports.contains(&id) {
            self.target.renew_export(id, export);
            return Ok(());
        }
        let address = export.address;
        self.target
            .add_export(id, export, control.clone())
            .map_err(|link| format!("{address} is taken on {link}"))?;
        self.exports.insert(id);
        self.controls.add(id.0, control);
        Ok(())
    }

    pub(super) fn remove_export(&mut self, id: ExportId, context: &mut Context<'_>) {
        self.target.remove_export(id, context);
        self.controls.remove(id.0);
        self.exports.remove(&id);
    }

    pub(super) fn handle_message(&mut self, from: ShardId, message: Message<Control>) {
        self.controls.handle_message(from, message);
    }

    pub(super) fn handle_stored(&mut self, export: ExportId, version: u64, stored: bool) {
        self.controls.handle_stored(export.0, version, stored);
    }

    /// Carries changes, values and answers between the target and its copies, until nothing follows
    /// from it.
    pub(super) fn propose(&mut self) {
        loop {
            while let Some(ask) = self.target.poll_ask() {
                match ask {
                    Ask::Control { export, number, change } => {
                        self.controls.propose(export.0, number, change);
                    }
                    Ask::Reservation { volume, number, change } => {
                        self.changes.push_back((volume, number, change));
                    }
                }
            }
            let install = core::mem::take(&mut self.controls.outbox.install);
            let answers = core::mem::take(&mut self.controls.outbox.answers);
            if install.is_empty() && answers.is_empty() {
                return;
            }
            for (export, version, value) in install {
                self.target.install_control(ExportId(export), value);
                self.controls.installed(export, version);
            }
            for (number, answer) in answers {
                self.target.handle_control_answer(number, answer);
            }
        }
    }

    fn hosts_of(&self, id: ExportId) -> impl Iterator<Item = (ExportId, MacAddress, Traffic)> {
        self.target.host_traffic(id).map(move |(mac, traffic)| (id, mac, traffic))
    }

    pub(super) fn report(&self) -> AoeReport {
        let traffic = |id: &ExportId| Some((*id, self.target.traffic(*id)?));
        AoeReport {
            counters: self.target.counters(),
            drops: *self.target.drops(),
            exports: self.exports.iter().filter_map(traffic).collect(),
            hosts: self.exports.iter().flat_map(|id| self.hosts_of(*id)).collect(),
        }
    }
}
