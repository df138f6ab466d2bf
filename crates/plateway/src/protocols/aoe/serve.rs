//! AoE targets on the shards: a volume at a shelf.slot, with what initiators had set there before.
//!
//! A target is taken away and added anew where its links or its volume change; hosts, buffers and
//! size change in place. Its config string and mask are loaded from the state directory when it is
//! added (`run/store`); the shards have them from then on, and tell what is to be stored.

use ::aoe::filter;
use ::aoe::{Control, Export, ExportId, Hosts};
use block::ByteCount;
use contract::{EtherType, Intake};
use shard::{AoeExport, ExportKey, Order, Report, StoreKey};
use uuid::Uuid;
use wire::aoe::{Address, sectors_for_mtu};
use wire::ethernet::MacAddress;

use super::config::TargetConfig;
use crate::config::export;
use crate::config::link::LinkAccess;
use crate::config::text::Count;
use crate::protocols::connect::{ClientKind, Guide, Reached};
use crate::protocols::{ExportConfig, Exported};
use crate::run::look::Inventory;
use crate::run::state::StateDirectory;
use crate::run::store::Place;
use crate::run::{RunError, Running};

impl Exported for TargetConfig {
    fn protocol(&self) -> &'static str {
        super::HOST_WORD.1
    }

    fn guide(&self, client: ClientKind, _reached: &Reached<'_>) -> Guide {
        self.guide_for(client)
    }

    fn volume(&self) -> &str {
        &self.volume
    }

    /// Silence makes initiators ask again, errors would reach their users.
    fn is_quiesced_first(&self) -> bool {
        false
    }

    fn with_host(&self, host: &str, may: bool) -> Option<Result<ExportConfig, String>> {
        let hosts = self.hosts.with(host.parse::<MacAddress>().ok()?, may);
        Some(hosts.map(|hosts| ExportConfig::Aoe(TargetConfig { hosts, ..self.clone() })))
    }

    fn host_word(&self) -> &'static str {
        super::HOST_WORD.0
    }

    fn shares_hosts(&self, other: &ExportConfig) -> bool {
        other.as_aoe() == Some(self)
    }

    /// There are no sessions: a station that was answered may be there still, by whatever name.
    fn users(&self, number: u32, to: Option<&ExportConfig>, reports: &[Report]) -> Vec<String> {
        let stays = match (&self.hosts, to.and_then(ExportConfig::as_aoe).map(|to| &to.hosts)) {
            (_, None) => false,
            (_, Some(export::Hosts::Any)) => true,
            (export::Hosts::Any, Some(export::Hosts::List(_))) => false,
            (export::Hosts::List(from), Some(export::Hosts::List(to))) => {
                from.iter().all(|station| to.contains(station))
            }
        };
        let all = reports.iter().flat_map(|report| &report.protocols.aoe.exports);
        let traffic = all.filter(|(id, _)| *id == ExportId(number)).map(|(_, traffic)| traffic);
        let used = traffic.fold((0, 0), |(r, w), one| (r + one.reads, w + one.writes));
        match used {
            _ if stays => Vec::new(),
            (0, 0) => Vec::new(),
            (reads, writes) => {
                let (reads, writes) = (Count(reads, "time"), Count(writes, "time"));
                vec![format!("hosts have read {reads} and written {writes}")]
            }
        }
    }

    fn promises(&self) -> u64 {
        self.buffers.into()
    }

    fn shown(&self) -> [String; 3] {
        ["aoe".to_owned(), self.address.to_string(), self.hosts.to_string()]
    }

    fn look(&self, inventory: &dyn Inventory) -> Result<(), RunError> {
        let Some(uuid) = inventory.identity_of(&self.volume) else { return Ok(()) };
        self.place(inventory.state(), uuid).load::<Control>().map(drop)
    }

    fn show(&self, running: &Running, number: u32, is_new: bool) -> Result<(), RunError> {
        let (id, export) = (ExportId(number), self.export(running)?);
        // What initiators set is in force where it was shown before, and stays.
        let mut control = Control::default();
        if is_new {
            let place = self.place(running.state(), running.volume_facts(&self.volume)?.uuid);
            control = running.stored_of_export(&self.volume, StoreKey::AoeControl(id), place)?;
        }
        let export = Box::new(AoeExport { id, export, control });
        let what = format!("export {} as aoe {}", self.volume, self.address);
        running.order(&what, || Order::SetExport(shard::Export::Aoe(export.clone())))
    }

    fn hide(&self, running: &Running, number: u32) -> Result<(), RunError> {
        let what = format!("remove export {} as aoe {}", self.volume, self.address);
        // First: if not all shards let it go, it is shown again under another number, which is to
        // own what is stored.
        running.store().forget(StoreKey::AoeControl(ExportId(number)));
        running.order(&what, || Order::RemoveExport(ExportKey::Aoe(ExportId(number))))
    }
}

impl TargetConfig {
    /// What to type on a host.
    pub(crate) fn hint(&self) -> String {
        format!("modprobe aoe; aoe-discover; its disk is /dev/etherd/e{}", self.address)
    }

    /// What the shards are told.
    fn export(&self, running: &Running) -> Result<Export, RunError> {
        let links = running.link_ids(&self.links, EtherType::AOE)?;
        let facts = running.volume_facts(&self.volume)?;
        Ok(Export {
            uuid: facts.uuid.into_bytes(),
            read_only: facts.read_only,
            cache_volatile: facts.cache_volatile,
            discards: facts.discards,
            physical_block: facts.physical_block,
            hosts: match &self.hosts {
                export::Hosts::Any => Hosts::Any,
                export::Hosts::List(list) => Hosts::List(list.clone()),
            },
            buffers: self.buffers,
            ..Export::new(self.address, &links, facts.id, ByteCount(facts.bytes))
        })
    }

    /// Where its config string and mask are stored, the same on whatever links.
    fn place(&self, state: StateDirectory, uuid: Uuid) -> Place {
        let (volume, address) = (&self.volume, self.address);
        let what = format!("config string and MAC mask of volume {volume} at {address}");
        Place::new(state, file(uuid, address), what)
    }
}

/// The file of a target in the state directory.
fn file(uuid: Uuid, address: Address) -> String {
    format!("aoe/{uuid}-{address}")
}

/// Requests, spread over the shards by their source and address.
pub(crate) fn intake_of_exports(access: LinkAccess, shards: u16) -> Intake {
    match access {
        LinkAccess::Packet => filter::serving(shards),
        // Its queues cannot be steered, and what it takes no other link is shown.
        LinkAccess::Xdp => filter::serving_at_the_door(),
    }
}

/// A config string and mask as a line; none if they say nothing.
pub(crate) fn control_text(control: &Control) -> Option<String> {
    let is_empty = control.config().is_empty() && control.mask().is_empty();
    (!is_empty).then(|| control.to_string())
}

/// What targets can carry on an interface of this MTU.
pub(crate) fn carried_on(mtu: u32) -> Result<String, String> {
    match sectors_for_mtu(mtu) {
        0 => Err(format!("expected an MTU that carries a sector, seen {mtu}")),
        sectors => Ok(format!("{sectors} sectors a frame")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_another_address_or_volume_are_others() {
        let file = |uuid: u8, slot| file(Uuid::from_bytes([uuid; 16]), Address::new(7, slot));
        assert_ne!(file(7, 0), file(7, 1));
        assert_ne!(file(7, 0), file(8, 0));
    }

    #[test]
    fn a_link_over_af_xdp_leaves_announcements_to_the_imports_of_its_interface() {
        let mut announcement = vec![0; 60];
        (announcement[12], announcement[13], announcement[14]) = (0x88, 0xa2, 0x18);
        for (access, taken) in [(LinkAccess::Packet, true), (LinkAccess::Xdp, false)] {
            let contract::Spread::One(_, program) = intake_of_exports(access, 1).spread else {
                unreachable!("one shard")
            };
            assert_eq!(contract::filter::run(&program, &announcement) > 0, taken, "{access:?}");
        }
    }
}
