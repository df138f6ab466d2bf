//! What the tests of several machines here begin with: what is exported, the two ends of a
//! connection, digests, bytes that say where they belong.

use block::{BlockCount, BlockSize, Instant, MachineId, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, Receive, SessionIdentity};
use testkit::ShardStub;
pub(crate) use testkit::nvme::nqn;
use testkit::pipe::{Pipe, Shown};
use wire::nvme_tcp::Digests;

use crate::controllers::Controllers;
use crate::subsystem::{Hosts, Namespace, Subsystem};
use crate::tcp::server::{Connection, Settings};

pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:test";

pub(crate) const BOTH: Digests = Digests { header: true, data: true };
pub(crate) const ALL_DIGESTS: [Digests; 4] = [
    Digests::NONE,
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    BOTH,
];

/// A namespace of `size` bytes on a volume, with a volatile cache.
pub(crate) fn namespace(nsid: u32, volume: u32, size: usize) -> Namespace {
    Namespace {
        nsid,
        volume: VolumeId(volume),
        uuid: [nsid as u8; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount((size / 512) as u64),
        read_only: false,
        cache_volatile: true,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
    }
}

/// [`SUBSYSTEM`], for every host.
pub(crate) fn subsystem(namespaces: impl IntoIterator<Item = Namespace>) -> Subsystem {
    let empty = Subsystem::new(nqn(SUBSYSTEM), Hosts::Any);
    namespaces.into_iter().fold(empty, Subsystem::with_namespace)
}

/// The controllers of the only shard, whose configuration is complete.
pub(crate) fn controllers(now: Instant, subsystem: Subsystem) -> Controllers {
    let mut controllers = Controllers::new(now, ShardId(0), 1);
    controllers.set_subsystem(now, subsystem);
    controllers.configuration_complete();
    controllers
}

/// A connection that was just accepted.
pub(crate) fn accepted(now: Instant, number: u32, settings: Settings) -> Connection {
    let machine = MachineId(number);
    let identity = SessionIdentity { machine, generation: 3, shard: ShardId(0) };
    Connection::new(now, identity, endpoint("127.0.0.1:4420"), settings)
}

/// Shows a connection what arrived for it.
pub(crate) fn show(
    shard: &mut ShardStub<Controllers>,
    pipe: &mut Pipe,
    connection: &mut Connection,
) -> bool {
    shard.show(pipe, |shown, ctx| match shown {
        Shown::Bytes(bytes) => connection.handle_received(bytes, ctx),
        Shown::Direct(direct) => {
            Receive { consumed: 0, next: connection.handle_direct(direct, ctx) }
        }
    })
}

/// The ends of a connection that reached us here.
pub(crate) fn endpoint(local: &str) -> Endpoint {
    Endpoint {
        listener: ListenerId(0),
        peer: "192.0.2.9:50000".parse().expect("an address"),
        local: local.parse().expect("an address"),
    }
}

pub(crate) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251 + seed * 17) as u8).collect()
}
