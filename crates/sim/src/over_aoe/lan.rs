//! AoE in a run: where links hang, what the target exports there, what its control thread stores,
//! and whom the clients find.
//!
//! The address is 7.0 on every LAN, and so it is where a network lies between two of them. What initiators change (config string, mask, reservation) is
//! stored by the control thread after a while, or not; what is stored survives kills and power
//! cuts. Units: virtual nanoseconds, bytes of the volume.

use core::time::Duration;

use aoe::limits::{ANNOUNCED_AGAIN, TAG_PARTITIONS_MAX};
use aoe::{Control, Export, ExportId, Hosts, filter};
use block::{ByteCount, ShardId};
use contract::{EtherType, Intake, LinkFacts, LinkId, Spread, Takes};
use reservation::Reservation;
use shard::{AoeExport, ExportKey, ImportSettings, Mail, Order, StoreKey, StoredValue};
use testkit::Pseudowire;
use testkit::aoe::Station;
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use super::{ControlHost, PlainHost, hostile::Hostile};
use crate::client::{Disguise, Simulated, VOLUME};
use crate::clients::client_of;
use crate::run::{MILLISECOND, Orders, Run, Start, TARGET};
use crate::seed::Plant;
use crate::setup::{Fault, Lan, Setup};
use crate::writer::Writer;

/// Where the volume is.
pub(crate) const ADDRESS: Address = Address::new(7, 0);
const EXPORT: ExportId = ExportId(0);
/// The same volume at the next address.
const SECOND: ExportId = ExportId(1);
/// The control thread takes so long to store something, at most; and as long to tell.
const STORE_MAX: u64 = 30 * MILLISECOND;
/// Last bytes of the MAC addresses of those who are no hosts of the world.
const CONTROL_HOST: usize = 200;

/// What a run knows of AoE.
#[derive(Debug, Default)]
pub(crate) struct LanState {
    control: Control,
    pub(crate) reservation: Reservation,
    /// What is being stored, and since when it is durable.
    storing: Vec<(u64, StoredValue)>,
    pub(crate) controller: Option<ControlHost>,
    /// Since when hosts of other protocols are shut out.
    pub(crate) fenced: Option<u64>,
    pub(crate) hostile: Option<Hostile>,
    pub(crate) plain_host: Option<PlainHost>,
    unexported: Option<Unexported>,
}

impl LanState {
    /// A target starts: it exports all.
    pub(crate) fn forget_unexported(&mut self) {
        self.unexported = None;
    }
}

/// An export that went.
#[derive(Debug)]
struct Unexported {
    id: ExportId,
    /// Those that take it away; `None` once it is gone.
    orders: Option<Orders>,
}

fn address(id: ExportId) -> Address {
    Address::new(ADDRESS.shelf, ADDRESS.slot + id.0 as u8)
}

/// The MAC address of a host on a link.
pub(crate) fn mac_of(host: usize, link: u32) -> [u8; 6] {
    [2, 0, 0, 0, host as u8, link as u8]
}

/// All MAC addresses of a host.
pub(crate) fn macs_of(host: usize, links: u32) -> Vec<MacAddress> {
    (0..links).map(|link| MacAddress(mac_of(host, link))).collect()
}

impl Setup {
    /// Whether a client's disk is an AoE import.
    pub(crate) fn is_aoe(&self, client: usize) -> bool {
        self.lan.as_ref().is_some_and(|lan| !lan.mixed || client.is_multiple_of(2))
    }
}

/// The links that target and clients live on.
fn links(lan: &Lan) -> Vec<LinkId> {
    let real = (0..lan.links).map(LinkId);
    if lan.inside { real.map(Pseudowire::over).collect() } else { real.collect() }
}

/// Where a client finds the target's volume over AoE.
pub(crate) fn import_settings(lan: &Lan, is_second: bool) -> ImportSettings {
    let address = address(if is_second { SECOND } else { EXPORT });
    let mut settings = aoe::initiator::Settings::new(&links(lan), address);
    settings.window = lan.window;
    ImportSettings::Aoe(settings)
}

impl Run {
    /// Hangs everybody on the LANs.
    pub(crate) fn plug_lan(&mut self) {
        let Some(lan) = self.setup.lan.clone() else { return };
        self.world.ethernet.faults = lan.faults;
        self.lan.control = Control::with(&vec![0x63; lan.config], &[]).expect("it is not too long");
        let clients: Vec<usize> = (0..self.clients.len())
            .filter(|index| self.setup.is_aoe(*index))
            .map(|index| self.clients[index].host)
            .collect();
        for link in 0..lan.links {
            let serving = match self.random.chance(1, 4) {
                true => {
                    let shard = self.random.below(self.setup.shards.into()) as u16;
                    let spread = Spread::One(ShardId(shard), filter::target());
                    Intake { takes: Takes::Type(EtherType::AOE), spread }
                }
                false => filter::serving(self.setup.shards),
            };
            let importing =
                filter::importing(self.setup.client_shards.min(TAG_PARTITIONS_MAX.into()));
            let hosts = clients.iter().map(|host| (*host, importing.clone()));
            for (host, intake) in hosts.chain([(TARGET, serving)]) {
                let mtu = lan.mtus[self.random.below(lan.mtus.len() as u64) as usize];
                let mac = mac_of(host, link);
                let is_shared = !matches!(intake.spread, Spread::One(..));
                let facts = LinkFacts { mac, mtu, vlan: lan.vlan, ring_frames: 64, is_shared };
                let intake = if lan.inside { Pseudowire::around(intake) } else { intake };
                // Between the two LANs lies what `plug_network` puts there.
                let is_apart = lan.routed && host != TARGET;
                let at = if is_apart { 1 } else { link as usize };
                self.world.plug(host, LinkId(link), at, facts, intake);
            }
        }
        let macs = || clients.iter().map(|host| macs_of(*host, lan.links)).collect::<Vec<_>>();
        if lan.control {
            let station = self.world.plug_station(0, mac_of(CONTROL_HOST, 0));
            let (own, target) = (mac_of(CONTROL_HOST, 0), mac_of(TARGET, 0));
            let speaker = Station::new(MacAddress(own), MacAddress(target), lan.vlan);
            let mut control = ControlHost::new(self.random.fork(), station, speaker, macs());
            if lan.mixed {
                control.reserve_often();
            }
            self.lan.controller = Some(control);
        }
        if lan.plain_host {
            let macs = [CONTROL_HOST + 2, TARGET].map(|host| MacAddress(mac_of(host, 0)));
            let station = self.world.plug_station(0, macs[0].0);
            let writers = self.setup.writers();
            let (random, writer) = (self.random.fork(), Writer::new(writers, writers));
            let host = PlainHost::new(random, station, macs, lan.vlan, writer);
            self.lan.plain_host = Some(host);
        }
        if self.setup.faults[Fault::Hostile] > 0 {
            let station = self.world.plug_station(0, mac_of(CONTROL_HOST + 1, 0));
            let target = MacAddress(mac_of(TARGET, 0));
            let victims = macs().into_iter().flatten().collect();
            let mut hostile = Hostile::new(self.random.fork(), station, target, lan.vlan, victims);
            hostile.floods = lan.floods;
            self.lan.hostile = Some(hostile);
        }
    }

    /// Has the shards of a host carry virtual links over its real ones.
    pub(crate) fn carry_virtual_links(&mut self, host: usize) {
        if self.setup.lan.as_ref().is_some_and(|lan| lan.inside) {
            for shard in 0..self.world.hosts[host].nodes.len() {
                let carrier = Box::<Pseudowire>::default();
                self.prepare(host, shard, Order::SetVirtualLinks(carrier));
            }
        }
    }

    /// A shard is about to start.
    pub(crate) fn prepare_lan(&self, made: &mut Simulated, host: usize) {
        let Some(lan) = &self.setup.lan else { return };
        if host == TARGET && lan.cached {
            made.disguise = Some(Disguise::Cached);
        } else if host == TARGET && lan.plain {
            made.disguise = Some(Disguise::all());
        } else if host == TARGET && self.plant == Some(Plant::ForgetsRepeats) {
            made.disguise = Some(Disguise::copies());
        }
    }

    /// What is exported over AoE, with what was stored; the second time at the next address.
    fn aoe_export(&self, lan: &Lan, id: ExportId) -> Box<AoeExport> {
        let size = ByteCount(self.size);
        let mut export = Export::new(address(id), &links(lan), VOLUME, size);
        export.uuid = [0x5a; 16];
        export.cache_volatile =
            self.setup.behaviour.volatile && !lan.cached && self.plant != Some(Plant::AnswersEarly);
        export.discards = true;
        export.physical_block = self.setup.block_size as u32;
        export.buffers = lan.buffers;
        if lan.control || self.setup.faults[Fault::Hostile] > 0 {
            let clients = self.clients.iter().flat_map(|client| macs_of(client.host, lan.links));
            let control = MacAddress(mac_of(CONTROL_HOST, 0));
            export.hosts = Hosts::List(clients.chain([control]).collect());
        }
        let control = if id == EXPORT { self.lan.control.clone() } else { Control::default() };
        Box::new(AoeExport { id, export, control })
    }

    /// Exports the volume over AoE, unless that is about to be done; or it has another size.
    pub(crate) fn set_aoe_export(&mut self) {
        let Some(lan) = self.setup.lan.clone().filter(|_| !self.is_to_export()) else { return };
        for id in self.aoe_exports() {
            if self.lan.unexported.as_ref().is_none_or(|gone| gone.id != id) {
                let export = self.aoe_export(&lan, id);
                self.order_all(|| Order::SetExport(shard::Export::Aoe(export.clone())));
            }
        }
        self.is_to_announce = true;
    }

    fn aoe_exports(&self) -> impl Iterator<Item = ExportId> + use<> {
        [EXPORT, SECOND].into_iter().take(1 + usize::from(self.setup.twice))
    }

    /// One of the exports over AoE goes.
    pub(crate) fn unexport(&mut self) {
        if self.lan.unexported.is_none() && !self.is_to_export() {
            let exports: Vec<ExportId> = self.aoe_exports().collect();
            let id = exports[self.random.below(exports.len() as u64) as usize];
            self.did.counts.unexports += 1;
            self.lan.unexported = Some(Unexported { id, orders: Some(self.next_orders()) });
            self.order_all(|| Order::RemoveExport(ExportKey::Aoe(id)));
        }
    }

    /// An order was answered.
    pub(crate) fn unexport_answered(&mut self, number: u64) {
        let gone = self.lan.unexported.as_mut();
        let Some(Unexported { orders, .. }) = gone else { return };
        if orders.as_mut().is_some_and(|orders| orders.answered(number)) {
            *orders = None;
            let rest = self.random.below(3_000 * MILLISECOND);
            self.start_after(rest, Start::Export);
        }
    }

    /// What went comes back.
    pub(crate) fn export_again(&mut self) {
        if self.lan.unexported.as_ref().is_some_and(|gone| gone.orders.is_none()) {
            self.lan.unexported = None;
            self.set_aoe_export();
        }
    }

    /// A shard wants a value stored.
    pub(crate) fn store(&mut self, from: ShardId, key: StoreKey, version: u64, value: StoredValue) {
        let stored = self.healed || !self.random.chance(self.setup.not_stored, 1000);
        let durable = self.world.now + self.random.below(STORE_MAX);
        let told = durable + self.random.below(STORE_MAX);
        if stored {
            self.lan.storing.push((durable, value));
        }
        self.world.order_at(told, TARGET, from.index(), Mail::Stored { key, version, stored });
    }

    /// What was to be stored by now is; of the rest, if the host dies, some is and some is not.
    pub(crate) fn settle_stores(&mut self, dies: bool) {
        if self.lan.storing.is_empty() {
            return;
        }
        for (durable, value) in core::mem::take(&mut self.lan.storing) {
            let is_over = durable <= self.world.now || (dies && self.random.chance(1, 2));
            match value {
                _ if is_over && self.plant == Some(Plant::DropsStore) => {}
                StoredValue::AoeControl(control) if is_over => self.lan.control = control,
                StoredValue::Reservation(reservation) if is_over => {
                    self.lan.reservation = as_stored(&reservation);
                }
                StoredValue::Paths(paths) if is_over => self.paths.stored = paths,
                value if !dies => self.lan.storing.push((durable, value)),
                _ => {}
            }
        }
    }

    /// Lets raw AoE hosts do what is their turn.
    pub(crate) fn drive_lan(&mut self) -> Result<(), String> {
        if let Some(host) = &mut self.lan.plain_host {
            host.drive(&mut self.world)?;
            for log in core::mem::take(&mut host.writer.log) {
                log.tell(&mut self.oracle)?;
            }
        }
        let Some(controller) = &mut self.lan.controller else { return Ok(()) };
        controller.drive(&mut self.world, &mut self.did.counts)?;
        let since = controller.reserved_since();
        if core::mem::replace(&mut self.lan.fenced, since) != since {
            self.oracle.lift_fences();
            if let Some(since) = since {
                self.fence_hosts(since);
            }
        }
        Ok(())
    }

    /// A reservation that lists stations is in force: what others have under way happened before,
    /// or never.
    fn fence_hosts(&mut self, since: u64) {
        self.did.counts.fences += 1;
        for index in (0..self.clients.len()).filter(|index| !self.setup.is_aoe(*index)) {
            let host = self.clients[index].host;
            for shard in 0..self.world.hosts[host].nodes.len() {
                for write in client_of(&self.world, host, shard).writes_under_way() {
                    self.oracle.fence(since, write.id, write.first, write.count);
                }
            }
        }
    }

    /// Whether whoever imports the volume knows how large it is now: each association is told by an
    /// event, each host of AoE by frames, which may be lost; not all of them.
    pub(crate) fn look_at_sizes(&mut self) -> Result<(), String> {
        if self.setup.faults[Fault::Grow] == 0 {
            return Ok(());
        }
        match self.setup.lan {
            Some(_) => self.pass(ANNOUNCED_AGAIN.iter().sum::<Duration>().as_nanos() as u64)?,
            // A connection that went silent is noticed by its KATO, and made anew.
            None => self.pass(30_000 * MILLISECOND)?,
        }
        for index in 0..self.clients.len() {
            let told = &self.clients[index].told;
            if told.iter().any(|size| *size != self.size) {
                return Err(format!("client {index} knows {told:?} bytes of {}", self.size));
            }
        }
        Ok(())
    }

    /// Whether a client was answered what it had no right to: it began when it was shut out, and
    /// ended before it was let in again.
    pub(crate) fn must_refuse(&self, client: usize, start: u64, end: u64) -> bool {
        let (Some(lan), Some(controller)) = (&self.setup.lan, &self.lan.controller) else {
            return false;
        };
        let macs = macs_of(self.clients[client].host, lan.links);
        match self.setup.is_aoe(client) {
            // The mask is that of the first export.
            true if self.setup.uses_second(client) => controller.reserves_out(&macs, start, end),
            true => controller.shuts_out(&macs, start, end),
            false => controller.reserves(start, end),
        }
    }
}

/// What of a reservation is there again after a restart: what its line of text says.
fn as_stored(reservation: &Reservation) -> Reservation {
    let lasting = reservation.lasting();
    let line = (!lasting.is_empty()).then(|| lasting.to_string());
    line.map_or_else(Reservation::default, |line| line.parse().expect("what was written is read"))
}

/// Sends frames that nobody should send.
pub(crate) fn disturb(run: &mut Run) {
    if let Some(hostile) = &mut run.lan.hostile {
        run.did.counts.hostile += hostile.send(&mut run.world);
    }
}
