//! What the tests here begin with: a unit, and what its device says.

use block::{BlockCount, BlockSize, VolumeId};
use wire::scsi::ProtocolId;

use crate::reply::{Facts, TargetPort};
use crate::unit::{LogicalUnit, ModeState};

/// 1 GiB of 512-byte blocks, thin, with a volatile cache.
pub(crate) fn unit() -> LogicalUnit {
    LogicalUnit {
        volume: VolumeId(7),
        uuid: core::array::from_fn(|at| at as u8 + 1),
        block_size: BlockSize::B512,
        blocks: BlockCount(1 << 21),
        read_only: false,
        cache_volatile: true,
        discards: true,
        discard_zeroes: true,
        physical_block: 4096,
        hosts_set_paths: false,
        mode: ModeState::default(),
    }
}

/// A device with these units.
pub(crate) fn facts(luns: &[u16]) -> Facts<'_> {
    Facts {
        vendor: "PLATEWAY",
        product: "VOLUME",
        revision: "0.1",
        luns,
        port: TargetPort {
            protocol: ProtocolId::ISCSI,
            version: 0x0960,
            device_name: "iqn.2026-11.net.plateway:v",
            port_name: "iqn.2026-11.net.plateway:v,t,0x0001",
            relative_id: 1,
            group: 1,
        },
        groups: &[],
        pending: None,
    }
}
