//! What the tests of several machines here begin with: what is exported, the two ends of a
//! connection, digests, bytes that say where they belong.

use block::{BlockCount, BlockSize, Instant, MachineId, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, Receive, SessionIdentity};
use scsi::{LogicalUnit, ModeState};
use testkit::ShardStub;
pub(crate) use testkit::iscsi::name;
use testkit::pipe::{Pipe, Shown};
use wire::iscsi::Digests;

use crate::server::Connection;
use crate::target::{Hosts, Target, Unit};
use crate::targets::Targets;

pub(crate) const TARGET: &str = "iqn.2026-11.net.plateway:test";
pub(crate) const HOST: &str = "iqn.2026-11.net.plateway:host";
/// Which life of its place a connection is in.
pub(crate) const GENERATION: u32 = 3;

pub(crate) const BOTH: Digests = Digests { header: true, data: true };
pub(crate) const ALL_DIGESTS: [Digests; 4] = [
    Digests::NONE,
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    BOTH,
];

/// A unit of `size` bytes on a volume, with a volatile cache.
pub(crate) fn unit(volume: u32, size: usize) -> LogicalUnit {
    LogicalUnit {
        volume: VolumeId(volume),
        uuid: [volume as u8 + 1; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount((size / 512) as u64),
        read_only: false,
        cache_volatile: true,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
        hosts_set_paths: false,
        mode: ModeState::default(),
    }
}

/// A target of this name with these units, for every host.
pub(crate) fn target(name: &str, units: impl IntoIterator<Item = (u16, LogicalUnit)>) -> Target {
    let empty = Target::new(self::name(name));
    let hosts = Hosts::Any;
    let under = |(lun, unit)| Unit { lun, hosts: hosts.clone(), unit };
    units.into_iter().map(under).fold(empty, Target::with_unit)
}

/// The targets of one of so many shards, none of which are exported.
pub(crate) fn targets(shard: u16, shards: u16) -> Targets {
    Targets::new(ShardId(shard), shards, [9; 32])
}

/// The targets of the only shard, whose configuration is complete.
pub(crate) fn exported(targets: impl IntoIterator<Item = Target>) -> Targets {
    let mut all = self::targets(0, 1);
    targets.into_iter().for_each(|target| all.set_target(target));
    all.configuration_complete();
    all
}

/// A connection that was just accepted.
pub(crate) fn accepted(now: Instant, number: u32, local: &str) -> Connection {
    let machine = MachineId(number);
    let identity = SessionIdentity { machine, generation: GENERATION, shard: ShardId(0) };
    Connection::new(now, identity, endpoint(local))
}

/// Shows a connection what arrived for it.
pub(crate) fn show(
    shard: &mut ShardStub<Targets>,
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
