//! What a run knows of iSCSI: where the target listens, what it exports, where a client finds it, and
//! raw hosts that speak it beside the clients.

mod fencing;
pub mod raw_host;

use block::Random;
use block::limits::{PAGES_PER_TRANSFER, POOL_PAGES_MIN, POOL_SHARE, REPLY_DATA_MAX};
use contract::ListenerId;
use iscsi::initiator::Settings;
use iscsi::limits::IMMEDIATE_MAX;
use iscsi::target::{Hosts, Target, Unit};
use iscsi::targets::Nexus;
use reservation::{PathGroup, Registrant};
use scsi::{LogicalUnit, ModeState};
use shard::report::ConnectionReport;
use shard::{Export, ImportSettings, Order, Protocol};
use wire::iscsi::{Digests, IscsiName};

use crate::fences::Party;
use crate::fences::model::Who;
use crate::fences::nodes::{Identity, Names, Node};
use crate::run::{Run, TARGET};
use crate::setup::Setup;
use crate::writer::Writer;
use fencing::Port;
use raw_host::{HostBehaviour, RawHost};

/// The listener of the target, which is its second.
const LISTENER: ListenerId = ListenerId(1);
/// Where in the target's list of listeners it is.
const NUMBER: usize = 1;
/// Where the target listens.
const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 1], 3260);
/// The target's name.
const NAME: &str = "iqn.2026-11.net.plateway:sim";
/// The logical unit that is the target's volume.
const LUN: u16 = 0;
/// The longest reply here.
const REPLY_MAX: u32 = 4096;
/// Bytes that an answer takes that is not sent: header, sense data and digests, and their segments.
const ANSWER: u32 = 200;

/// What a run knows of iSCSI.
#[derive(Debug)]
pub(crate) struct IscsiState {
    pub(crate) raw_hosts: Vec<RawHost>,
}

impl IscsiState {
    /// The raw hosts are the writers behind the `others`.
    pub(crate) fn new(random: &mut Random, setup: &Setup, others: u64) -> IscsiState {
        let writers = setup.writers();
        let raw_host = |index: usize| {
            let writer = Writer::new(others + index as u64 + 1, writers);
            RawHost::new(random.fork(), behaviour(setup), index, writer)
        };
        let raw_hosts = (0..setup.initiators).map(raw_host).collect();
        IscsiState { raw_hosts }
    }
}

impl Run {
    /// The target speaks iSCSI as well, in a world that has hosts which do.
    pub(crate) fn listen_to_initiators(&mut self) {
        if !self.setup.has_initiators() {
            return;
        }
        for shard in 0..self.world.hosts[TARGET].nodes.len() {
            let listening = Protocol::Iscsi.into();
            let mail = self.next_order(Order::AddListener { listener: LISTENER, listening });
            self.world.order_first(TARGET, shard, mail);
        }
        self.world.hosts[TARGET].listeners.push((ADDRESS.into(), LISTENER));
    }

    /// Exports what there is to them.
    pub(crate) fn export_to_initiators(&mut self) {
        if !self.setup.has_initiators() {
            return;
        }
        let mut target = Target::new(name(NAME));
        if let Some(namespace) = self.exported() {
            let unit = LogicalUnit {
                volume: namespace.volume,
                uuid: namespace.uuid,
                block_size: namespace.block_size,
                blocks: namespace.blocks,
                read_only: namespace.read_only,
                cache_volatile: namespace.cache_volatile,
                discards: namespace.discards,
                discard_zeroes: namespace.discard_zeroes,
                physical_block: namespace.physical_block,
                hosts_set_paths: false,
                mode: ModeState::default(),
            };
            target = target.with_unit(Unit { lun: LUN, hosts: Hosts::Any, unit });
        }
        self.order_all(|| Order::SetExport(Export::Iscsi(Box::new(target.clone()))));
        self.is_to_announce = true;
    }

    /// Lets raw hosts do what is theirs to do, and judges it.
    pub(crate) fn drive_initiators(&mut self) -> Result<(), String> {
        for index in 0..self.iscsi.raw_hosts.len() {
            let raw = &mut self.iscsi.raw_hosts[index];
            raw.drive(&mut self.world, TARGET)?;
            for log in core::mem::take(&mut raw.writer.log) {
                self.tell_of(Party::Initiator(index), log)?;
            }
        }
        Ok(())
    }

    /// What a session holds has its bounds, whoever does not read: outside the pool by its window and
    /// a constant, of the pool by its share.
    pub(crate) fn check_sessions(&self, host: usize, shard: usize) -> Result<(), String> {
        let node = self.world.hosts[host].nodes.get(shard).filter(|_| host == TARGET);
        let all = node.into_iter().flat_map(|node| node.machine.shard().connections());
        for one in all.filter(|one| one.listener == LISTENER) {
            let ConnectionReport { queue_depth, unsent_bytes, pages, .. } = one;
            let answers = 2 * u32::from(queue_depth) + IMMEDIATE_MAX;
            let most = 3 * REPLY_DATA_MAX + REPLY_MAX + answers * ANSWER;
            if unsent_bytes > u64::from(most) {
                return Err(format!(
                    "a session of {queue_depth} commands holds {unsent_bytes} bytes for a peer that does not read"
                ));
            }
            // Of each of the two classes its share, or one transfer that is larger.
            let share = (self.setup.pages / POOL_SHARE).max(2 * PAGES_PER_TRANSFER);
            if pages > 2 * share {
                return Err(format!("a session holds {pages} pages, and {share} are its share"));
            }
        }
        Ok(())
    }
}

/// How raw hosts behave in this world.
fn behaviour(setup: &Setup) -> HostBehaviour {
    HostBehaviour {
        unit: setup.work.unit,
        span: 4,
        // In a smaller pool than there may be, few copies would hold all of it.
        copies: setup.pages >= POOL_PAGES_MIN,
        depth: if setup.initiators_greedy { 200 } else { 1 + setup.work.depth / 2 },
        interval_us: setup.work.interval_us / 2,
        returns: setup.initiators_return,
        greedy: setup.initiators_greedy,
        digests: setup.digests,
        is_fenced: setup.has_fencers(),
        strict: setup.is_strict(),
    }
}

/// The initiator port by which a fencer asks, of this number.
pub(crate) fn fencing_port(
    random: &mut Random,
    setup: &Setup,
    names: &Names,
    index: usize,
) -> Box<dyn Node> {
    let flags = (setup.digests, setup.is_strict(), setup.may_not_store());
    Box::new(Port::new(random.fork(), fencing_name(index), names.clone(), flags))
}

/// Its name and ISID: two ports are one initiator.
fn fencing_name(index: usize) -> (String, [u8; 6]) {
    let name = format!("iqn.2026-11.net.plateway:sim-fencer-{}", index / 2);
    (name, [0x80, 0, 0, 2, 0, index as u8])
}

/// The initiators that are the host which the configuration names.
pub(crate) fn names_of_named() -> [String; 2] {
    [fencing_name(0).0, raw_host::name_of(0)]
}

/// All initiator ports that may be registered: those of who changes reservations, the raw hosts', and
/// those of clients.
pub(crate) fn identities(setup: &Setup) -> Vec<(Who, Identity)> {
    let fencer = |index| (setup.who_of_port(index), fencing_name(index));
    let fencers = (0..setup.fencer_ports).map(fencer);
    let hosts = (0..setup.initiators).map(|index| {
        (setup.who(Party::Initiator(index)), (raw_host::name_of(index), raw_host::isid_of(index)))
    });
    let clients = if setup.scsi_clients { setup.clients } else { 0 };
    let clients = (0..clients).flat_map(|client| {
        (0..usize::from(setup.client_shards)).map(move |shard| {
            let isid = client_isid(client, shard as u16);
            (setup.who(Party::Client(client, shard)), (client_name(client), isid))
        })
    });
    let known = hosts.chain(clients).filter_map(|(who, port)| Some((who?, port)));
    fencers.chain(known).map(|(who, port)| (who, identity(port))).collect()
}

/// A port, which NVMe shows by the digest of its names.
fn identity((own, isid): (String, [u8; 6])) -> Identity {
    let (initiator, target) = (name(&own), name(NAME));
    let nexus = Nexus { initiator, isid, target, group: PathGroup::DEFAULT };
    let Registrant::ScsiPort(host_id) = nexus.registrant() else { panic!("it is a SCSI port") };
    Identity { port: Some((own, isid)), host_id }
}

fn client_name(client: usize) -> String {
    format!("iqn.2026-11.net.plateway:sim-client-{client}")
}

fn client_isid(client: usize, shard: u16) -> [u8; 6] {
    [0x80, 0, 1, client as u8, 0, shard as u8]
}

fn name(name: &str) -> IscsiName {
    IscsiName::new(name).expect("a valid name")
}

/// Where a client finds the target's volume.
pub(crate) fn import_settings(setup: &Setup, client: usize) -> ImportSettings {
    let (own, isid) = (name(&client_name(client)), client_isid(client, 0));
    let mut settings = Settings::new(ADDRESS.into(), name(NAME), LUN, own, isid);
    settings.keep_alive = core::time::Duration::from_millis(setup.keep_alive_ms);
    settings.quiesce = settings.keep_alive * 2;
    (settings.sessions, settings.depth) = (setup.sessions, setup.depth);
    settings.digests = Digests { header: setup.digests, data: setup.digests };
    ImportSettings::Iscsi(settings)
}
