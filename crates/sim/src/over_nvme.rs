//! What a run knows of NVMe: what the target exports and to whom, raw hosts, watchers of the
//! discovery log, peers that talk garbage, another volume that takes the volume's place, and where
//! a client finds the target's namespace.

pub(crate) mod exports;
mod fencing;
pub mod garbage;
pub mod raw_host;
pub(crate) mod swap;

use block::Random;
use block::limits::{POOL_PAGES_MIN, REPLY_DATA_MAX};
use contract::ListenerId;
use nvme::subsystem::{Hosts, Subsystem};
use nvme::tcp::initiator::Settings;
use shard::report::ConnectionReport;
use shard::{ImportSettings, Order, Protocol};
use wire::nvme::Nqn;
use wire::nvme_tcp::Digests;

use crate::fences::Party;
use crate::fences::model::Who;
use crate::fences::nodes::{Identity, Names, Node};
use crate::run::{MILLISECOND, Run, TARGET};
use crate::setup::{Fault, Setup};
use crate::writer::Writer;
use exports::Exports;
use fencing::{Host, Words};
use garbage::Garbage;
use raw_host::{HostBehaviour, QUEUE_ENTRIES, RawHost, Watcher};
use swap::Swap;

const LISTENER: ListenerId = ListenerId(0);
/// Where the target listens.
const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 1], 4420);
const NQN: &str = "nqn.2026-11.net.plateway:sim";
const NQN_SECOND: &str = "nqn.2026-11.net.plateway:sim-second";
/// The longest reply here.
const REPLY_MAX: u32 = 4096;
/// Bytes that an answer takes that is not sent: the headers of its data and of the response, with
/// digests, and their segments.
const ANSWER: u32 = 160;

/// What a run knows of NVMe.
#[derive(Debug)]
pub(crate) struct NvmeState {
    pub(crate) raw_hosts: Vec<RawHost>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) exports: Exports,
    pub(crate) swap: Swap,
    pub(crate) garbage: Garbage,
}

impl NvmeState {
    /// The raw hosts are the writers behind the `visitors`.
    pub(crate) fn new(random: &mut Random, setup: &Setup, visitors: u64) -> NvmeState {
        let writers = setup.writers();
        let raw_host = |index: usize| {
            let writer = Writer::new(visitors + index as u64 + 1, writers);
            RawHost::new(random.fork(), behaviour(setup), subsystem_name(), index, writer)
        };
        let raw_hosts = (0..setup.raw_hosts).map(raw_host).collect();
        // What a watcher sees may change; that it is left or refused may not, unless the rest of
        // the world goes wrong.
        let strict = setup.faults.are_only(&[Fault::Hosts, Fault::Subsystems])
            && setup.behaviour.sticks == 0;
        let watcher = |index| Watcher::new(random.fork(), digests(setup), index, strict);
        NvmeState {
            raw_hosts,
            watchers: (0..setup.watchers).map(watcher).collect(),
            exports: Exports::default(),
            swap: Swap::default(),
            garbage: Garbage::default(),
        }
    }
}

impl Run {
    /// The target speaks NVMe/TCP. Nobody connects before all its shards know that.
    pub(crate) fn listen(&mut self) {
        for shard in 0..self.world.hosts[TARGET].nodes.len() {
            let order =
                Order::AddListener { listener: LISTENER, listening: Protocol::NvmeTcp.into() };
            let mail = self.next_order(order);
            self.world.order_first(TARGET, shard, mail);
        }
        self.world.hosts[TARGET].listeners = vec![(ADDRESS.into(), LISTENER)];
        self.listen_to_initiators();
    }

    /// Exports the volume as it is over all that has connections, unless that is about to be done.
    pub(crate) fn export(&mut self) {
        if self.is_to_export() {
            return;
        }
        if !self.nvme.exports.removed {
            let subsystem = Subsystem::new(subsystem_name(), Hosts::Any);
            let namespaces: Vec<_> = self.exported().into_iter().collect();
            if self.setup.twice {
                let second = Subsystem::new(second_name(), Hosts::Any);
                self.order_export(Subsystem { namespaces: namespaces.clone(), ..second });
            }
            self.order_export(Subsystem { namespaces, ..subsystem });
        }
        self.export_to_initiators();
    }

    /// Lets raw hosts and watchers do what is theirs to do, and judges it.
    pub(crate) fn drive_raw_hosts(&mut self) -> Result<(), String> {
        for index in 0..self.nvme.raw_hosts.len() {
            let raw = &mut self.nvme.raw_hosts[index];
            raw.drive(&mut self.world, TARGET)?;
            let name = raw.name().clone();
            for log in core::mem::take(&mut raw.writer.log) {
                self.nvme.exports.refuse(&name, &log)?;
                self.tell_of(Party::RawHost(index), log)?;
            }
        }
        for watcher in &mut self.nvme.watchers {
            watcher.drive(&mut self.world, TARGET)?;
            let (since, events) = watcher.told;
            if watcher.events > 0 {
                self.nvme.exports.check_events(&watcher.nqn, since, events)?;
            }
            self.did.counts.events += core::mem::take(&mut watcher.events);
            for seen in watcher.seen.drain(..) {
                self.did.counts.logs += 1;
                self.nvme.exports.check(&watcher.nqn, &seen)?;
                watcher.last_seen = Some(seen.names);
            }
        }
        Ok(())
    }

    /// What a connection holds outside the pool is bounded by its queue's depth and a constant,
    /// whoever does not read.
    pub(crate) fn check_unsent(&self, host: usize, shard: usize) -> Result<(), String> {
        let node = self.world.hosts[host].nodes.get(shard).filter(|_| host == TARGET);
        let all = node.into_iter().flat_map(|node| node.machine.shard().connections());
        for one in all.filter(|one| one.listener == LISTENER) {
            let ConnectionReport { queue_depth, unsent_bytes, .. } = one;
            let most = REPLY_DATA_MAX + REPLY_MAX + u32::from(queue_depth) * ANSWER;
            if unsent_bytes > u64::from(most) {
                return Err(format!(
                    "a queue of {queue_depth} entries holds {unsent_bytes} bytes for a peer that does not read"
                ));
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
        queues: setup.queues,
        depth: if setup.raw_greedy { QUEUE_ENTRIES } else { 1 + setup.work.depth / 2 },
        interval_us: setup.work.interval_us / 2,
        resets: setup.raw_resets,
        shuts_down: setup.faults[Fault::Path] == 0,
        keep_alive: if setup.raw_keep_alive {
            setup.keep_alive_ms.next_multiple_of(1_000) * MILLISECOND
        } else {
            0
        },
        deaf: setup.raw_deaf,
        greedy: setup.raw_greedy,
        is_fenced: setup.fencer_hosts > 0,
        digests: digests(setup),
        strict: setup.is_strict(),
    }
}

/// The host by which a fencer asks, of this number.
pub(crate) fn fencing_host(
    random: &mut Random,
    setup: &Setup,
    names: &Names,
    index: usize,
) -> Box<dyn Node> {
    let who = setup.who_of_host(index).expect("it is a fencer's");
    let own = fencing_identity(setup, index);
    let words = Words::new((who, own.1), names.clone(), setup.may_not_store());
    Box::new(Host::new(random.fork(), own, words, digests(setup), setup.is_strict()))
}

/// Its HOSTNQN and HOSTID: those of a raw host or a client, as far as there are any.
pub(crate) fn fencing_identity(setup: &Setup, index: usize) -> (Nqn, [u8; 16]) {
    let client = index.checked_sub(setup.raw_hosts).filter(|client| *client < setup.clients);
    match client {
        _ if index < setup.raw_hosts => raw_host::identity_of(index),
        Some(client) => (client_name(client), client_id(client)),
        None => {
            let name = format!("nqn.2014-08.org.nvmexpress:uuid:sim-fencer-{index}");
            (Nqn::new(&name).expect("a valid name"), [0xe0 + index as u8; 16])
        }
    }
}

/// All hosts that may be registered.
pub(crate) fn identities(setup: &Setup) -> Vec<(Who, Identity)> {
    let one = |index| {
        let (_, host_id) = fencing_identity(setup, index);
        Some((setup.who_of_host(index)?, Identity { port: None, host_id }))
    };
    (0..setup.fencer_hosts).filter_map(one).collect()
}

/// The target's subsystem.
pub(crate) fn subsystem_name() -> Nqn {
    Nqn::new(NQN).expect("a valid name")
}

/// Another, with the same volume.
fn second_name() -> Nqn {
    Nqn::new(NQN_SECOND).expect("a valid name")
}

fn digests(setup: &Setup) -> Digests {
    Digests { header: setup.digests, data: setup.digests }
}

/// HOSTNQN of a client.
pub(crate) fn client_name(index: usize) -> Nqn {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:sim-client-{index}");
    Nqn::new(&name).expect("a valid name")
}

/// Its HOSTID.
fn client_id(index: usize) -> [u8; 16] {
    [index as u8 + 1; 16]
}

/// Where a client finds the target's volume.
pub(crate) fn import_settings(setup: &Setup, client: usize) -> ImportSettings {
    let mut settings = Settings::new(
        ADDRESS.into(),
        if setup.uses_second(client) { second_name() } else { subsystem_name() },
        1,
        client_name(client),
        client_id(client),
    );
    settings.keep_alive = core::time::Duration::from_millis(setup.keep_alive_ms);
    settings.quiesce = settings.keep_alive * 2;
    settings.queues = setup.queues;
    settings.depth = setup.depth;
    settings.digests = digests(setup);
    ImportSettings::NvmeTcp(settings)
}
