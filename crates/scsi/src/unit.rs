//! A logical unit: a volume under a number, with the facts that hosts are told of it.
//!
//! Plain values that the configuration makes; each shard holds a copy. Units: `blocks` counts
//! logical blocks of `block_size`; the physical block is in bytes. Identifiers that hosts see are
//! derived from the volume's UUID, so that they survive restarts and are the same through every
//! port; the EUI-64 is the one that NVMe hosts see, too. Spec: SPC-4, "Device Identification VPD
//! page", "NAA Locally Assigned designator format", "EUI-64 designator format", "Unit Serial Number
//! VPD page", "Control mode page".

use block::random::mix;
use block::{BlockCount, BlockSize, VolumeId};

/// A logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalUnit {
    /// The volume that holds the blocks.
    pub volume: VolumeId,
    /// The volume's UUID: the identity of the blocks.
    pub uuid: [u8; 16],
    /// Size of a logical block.
    pub block_size: BlockSize,
    /// Size in logical blocks.
    pub blocks: BlockCount,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a completed write may be lost until a flush (WCE).
    pub cache_volatile: bool,
    /// Whether an unmapped range gives space back (LBPME, LBPU, LBPWS).
    pub discards: bool,
    /// Whether unmapped ranges read as zeros (LBPRZ).
    pub discard_zeroes: bool,
    /// What is written best and atomically, in bytes; at least the logical block.
    pub physical_block: u32,
    /// Whether hosts may set the states of paths by SET TARGET PORT GROUPS (TPGS).
    pub hosts_set_paths: bool,
    /// What hosts have set. Whoever holds the unit replaces it when
    /// [`parameters`](crate::parameters()) returns [`Ordered::Mode`](crate::Ordered::Mode).
    pub mode: ModeState,
}

/// What hosts may change of a unit by MODE SELECT: one value for all of them, lost at a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeState {
    /// D_SENSE: sense data come with descriptors.
    pub descriptor_sense: bool,
    /// SWP: writes are refused until it is cleared.
    pub software_write_protect: bool,
}

impl LogicalUnit {
    /// EUI-64: 64 bits hashed from the UUID, marked as locally administered.
    pub fn eui64(&self) -> [u8; 8] {
        let mut bytes = mix(&self.uuid).to_be_bytes();
        // Bit 1 of the first byte: not from an IEEE registry; bit 0: no group address.
        bytes[0] = bytes[0] & !1 | 2;
        bytes
    }

    /// NAA 3h, locally assigned: 60 bits hashed from the UUID. Not a part of it, since UUIDs that
    /// were made by one machine may differ in either half alone.
    pub fn naa(&self) -> [u8; 8] {
        let mut bytes = mix(&self.uuid).to_be_bytes();
        bytes[0] = 0x30 | bytes[0] & 0x0f;
        bytes
    }

    /// PRODUCT SERIAL NUMBER: the UUID in hexadecimal.
    pub fn serial(&self) -> String {
        self.uuid.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether writes are refused at present, for good or by a host.
    #[inline]
    pub fn is_write_protected(&self) -> bool {
        self.read_only || self.mode.software_write_protect
    }

    /// Bytes of a logical block.
    #[inline]
    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_size.bytes() as u32
    }

    /// Logical blocks of a physical one, a power of two.
    pub(crate) fn physical_blocks(&self) -> u32 {
        let blocks = (self.physical_block / self.block_bytes()).clamp(1, 1 << 15);
        1 << blocks.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::unit;

    #[test]
    fn identifiers_follow_from_the_volume_and_from_nothing_else() {
        let (a, mut b) = (unit(), unit());
        b.blocks.0 += 1;
        b.read_only = true;
        assert_eq!((a.naa(), a.eui64(), a.serial()), (b.naa(), b.eui64(), b.serial()));
        b.uuid[15] ^= 1;
        assert!(a.naa() != b.naa() && a.eui64() != b.eui64() && a.serial() != b.serial());
        b.uuid = a.uuid;
        b.uuid[0] ^= 1;
        assert_ne!(a.naa(), b.naa());
    }

    #[test]
    fn identifiers_say_of_what_kind_they_are() {
        let unit = unit();
        assert_eq!(unit.naa()[0] >> 4, 3);
        assert_eq!(unit.eui64()[0] & 3, 2);
        assert_eq!(unit.serial().len(), 32);
    }
}
