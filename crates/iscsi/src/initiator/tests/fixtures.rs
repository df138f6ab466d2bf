//! What these tests begin with: settings, what is exported, a connection of the real target, bytes
//! that say where they belong.

use block::{BlockCount, BlockSize, Instant, MachineId, ShardId, VolumeId};
use contract::{Endpoint, ListenerId, SessionIdentity};
use scsi::{LogicalUnit, ModeState};
use wire::iscsi::{Digests, IscsiName};

use crate::initiator::Settings;
use crate::server::Connection;
use crate::target::{Hosts, Target, Unit};

/// Bytes of the disk.
pub(super) const DISK: usize = 4 << 20;
pub(super) const TARGET: &str = "iqn.2026-11.net.plateway:test";
const HOST: &str = "iqn.2026-11.net.plateway:host";
/// A LUN that takes both of its bytes.
pub(super) const LUN: u16 = 300;

pub(super) const BOTH: Digests = Digests { header: true, data: true };
pub(super) const ALL_DIGESTS: [Digests; 4] = [
    Digests::NONE,
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    BOTH,
];

pub(super) fn name(name: &str) -> IscsiName {
    IscsiName::new(name).expect("a valid name")
}

pub(super) fn settings(digests: Digests) -> Settings {
    let address = "127.0.0.1:3260".parse().expect("an address");
    let isid = [0x80, 0, 0, 0, 0, 1];
    Settings { digests, ..Settings::new(address, name(TARGET), LUN, name(HOST), isid) }
}

pub(super) fn unit(volatile: bool) -> LogicalUnit {
    LogicalUnit {
        volume: VolumeId(1),
        uuid: [1; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount((DISK / 512) as u64),
        read_only: false,
        cache_volatile: volatile,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
        hosts_set_paths: false,
        mode: ModeState::default(),
    }
}

/// [`TARGET`] with this under [`LUN`], or nothing there; LUN 0 is another unit, so that there is
/// always something to log in to.
pub(super) fn target(unit: Option<LogicalUnit>) -> Target {
    let other = LogicalUnit { volume: VolumeId(2), uuid: [2; 16], ..self::unit(false) };
    let under = |lun, unit| Unit { lun, hosts: Hosts::Any, unit };
    let target = Target::new(name(TARGET)).with_unit(under(0, other));
    unit.into_iter().fold(target, |target, unit| target.with_unit(under(LUN, unit)))
}

pub(super) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251 + seed * 17) as u8).collect()
}

pub(super) fn accepted(now: Instant, number: u32) -> Connection {
    let machine = MachineId(number);
    let identity = SessionIdentity { machine, generation: 3, shard: ShardId(0) };
    let endpoint = Endpoint {
        listener: ListenerId(0),
        peer: "192.0.2.9:50000".parse().expect("an address"),
        local: "127.0.0.1:3260".parse().expect("an address"),
    };
    Connection::new(now, identity, endpoint)
}
