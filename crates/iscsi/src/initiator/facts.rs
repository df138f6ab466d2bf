//! What a target says about a logical unit, as facts of a disk and limits of commands.
//!
//! Units: bytes, unless the name says blocks. Errors: a text, for a unit that cannot stand in for a
//! disk. Spec: SPC-4, "Standard INQUIRY data", "Device Identification VPD page"; SBC-3, "Block
//! Limits VPD page", "Logical Block Provisioning VPD page", "READ CAPACITY (16) command".

use core::fmt;

use block::ByteCount;
use block::limits::{DISCARD_RANGES_MAX, TRANSFER_MAX};
use contract::{Cache, DiskFacts};
use wire::ascii_text;
use wire::scsi::capacity::Capacity16;
use wire::scsi::inquiry::StandardInquiry;
use wire::scsi::mode::{CachingFlags, ModeData, ModePageCode};
use wire::scsi::opcodes::{OneCommand, Support};
use wire::scsi::vpd::{Association, BlockLimits, BlockProvisioning, Designator, DesignatorKind};

/// Blocks of one command that moves no data, where the unit says nothing of its limit: so many as
/// NVMe's commands may have, and as few as take little time.
const BLOCKS_WITHOUT_WORD: u64 = 65_536;

/// What a unit was asked about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) inquiry: StandardInquiry,
    /// Names of the unit, without those of the port and the device.
    pub(super) names: Vec<Designator>,
    pub(super) limits: BlockLimits,
    pub(super) provisioning: BlockProvisioning,
    pub(super) capacity: Capacity16,
    pub(super) mode: Option<ModeData>,
    /// What it says of WRITE SAME(16), if it says anything of commands.
    pub(super) write_same: Option<OneCommand>,
}

/// How blocks are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discards {
    None,
    /// So many ranges, and blocks in all of them, in one UNMAP.
    Unmap {
        ranges: u32,
        blocks: u64,
    },
    /// So many blocks in one WRITE SAME.
    WriteSame {
        blocks: u64,
    },
}

/// What commands may ask of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Base-2 logarithm of the block size.
    pub(super) block_shift: u8,
    /// Most data of one command: a multiple of 4096.
    pub(super) transfer: u32,
    /// Most blocks of one WRITE SAME; 0 where there is no such command.
    pub(super) zeroes_blocks: u64,
    /// Whether WRITE SAME may come without its block of zeros.
    pub(super) ndob: bool,
    /// Whether WRITE SAME may give back what it zeroes.
    pub(super) zeroes_unmap: bool,
    /// Most blocks of one VERIFY.
    pub(super) verify_blocks: u64,
    pub(super) discards: Discards,
    /// Whether a write may say FUA.
    pub(super) fua: bool,
    /// Whether completed writes may be lost.
    pub(super) is_volatile: bool,
}

impl Limits {
    /// The limits that a unit states.
    pub(super) fn new(found: &Found) -> Result<Limits, String> {
        let block_shift = block_shift(found)?;
        let Found { limits, provisioning, mode, .. } = found;
        let or_all = |blocks: u64| if blocks == 0 { u64::MAX } else { blocks };
        let transfer_blocks = or_all(limits.transfer_max.into());
        let transfer = transfer_blocks.saturating_mul(1 << block_shift).min(TRANSFER_MAX.into());
        let transfer = transfer as u32 & !4095;
        if transfer == 0 {
            let blocks = limits.transfer_max;
            return Err(format!("its commands move {blocks} blocks, expected 4096 bytes or more"));
        }
        let usage = found.write_same.as_ref();
        let has_write_same = usage.is_none_or(|command| command.support == Support::SUPPORTED);
        let says = |bit: u8| {
            let byte = usage.and_then(|command| command.usage.get(1));
            has_write_same && byte.is_some_and(|byte| byte & bit != 0)
        };
        let write_same_blocks = match limits.write_same_max {
            0 => BLOCKS_WITHOUT_WORD,
            blocks => blocks.min(BLOCKS_WITHOUT_WORD),
        };
        Ok(Limits {
            block_shift,
            transfer,
            zeroes_blocks: if has_write_same { write_same_blocks } else { 0 },
            ndob: says(1),
            zeroes_unmap: has_write_same && provisioning.flags.write_same_16(),
            verify_blocks: transfer_blocks.min(BLOCKS_WITHOUT_WORD),
            discards: discards(found, has_write_same),
            fua: mode.as_ref().is_some_and(|mode| mode.device.dpo_fua()),
            is_volatile: is_volatile(mode.as_ref()),
        })
    }
}

fn block_shift(found: &Found) -> Result<u8, String> {
    let Capacity16 { block_length, protection, .. } = found.capacity;
    if protection.enabled() {
        return Err("its blocks carry protection information, expected none".to_owned());
    }
    match block_length {
        512 => Ok(9),
        4096 => Ok(12),
        length => Err(format!("its blocks are of {length} bytes, expected 512 or 4096")),
    }
}

fn discards(found: &Found, has_write_same: bool) -> Discards {
    let Found { limits, provisioning, .. } = found;
    let (ranges, blocks) = (limits.unmap_descriptors_max, limits.unmap_blocks_max);
    if provisioning.flags.unmap() && ranges > 0 && blocks > 0 {
        let ranges = ranges.min(DISCARD_RANGES_MAX as u32);
        let blocks = if blocks == u32::MAX { u64::MAX } else { blocks.into() };
        return Discards::Unmap { ranges, blocks };
    }
    if provisioning.flags.write_same_16() && has_write_same {
        let most = limits.write_same_max.min(u32::MAX.into());
        let blocks = if most == 0 { BLOCKS_WITHOUT_WORD } else { most };
        return Discards::WriteSame { blocks };
    }
    Discards::None
}

/// Whether completed writes may be lost: a unit that does not say is not trusted. Older units have a
/// shorter page, which begins the same.
fn is_volatile(mode: Option<&ModeData>) -> bool {
    let page = mode.and_then(|mode| mode.page(ModePageCode::CACHING));
    let flags = page.and_then(|page| page.get(2)).map(|byte| CachingFlags(*byte));
    flags.is_none_or(CachingFlags::write_cache)
}

/// The facts of a unit as a disk.
pub(super) fn disk_facts(found: &Found, limits: &Limits) -> Result<DiskFacts, String> {
    let block = 1u32 << limits.block_shift;
    let blocks = found.capacity.blocks();
    let Some(size) = blocks.and_then(|blocks| blocks.checked_mul(block.into())) else {
        let last = found.capacity.last_lba;
        return Err(format!("its size overflows: the last of its blocks is {last}"));
    };
    let exponent = u32::from(found.capacity.physical_exponent & 0xf);
    let reads_zeros =
        found.provisioning.flags.reads_zeros() || found.capacity.provisioning.reads_zeros();
    let discards = limits.discards != Discards::None;
    Ok(DiskFacts {
        size: ByteCount(size),
        logical_block: block,
        physical_block: block.saturating_mul(1 << exponent).min(4096),
        // Completed writes may be lost with the target.
        cache: if limits.is_volatile { Cache::Volatile } else { Cache::None },
        read_only: found.mode.as_ref().is_some_and(|mode| mode.device.write_protected()),
        discards,
        discard_zeroes: discards && reads_zeros,
    })
}

/// Whether the target that answered INQUIRY so is one of ours.
pub(super) fn is_ours(inquiry: &StandardInquiry) -> bool {
    ascii_text(&inquiry.vendor) == crate::target::VENDOR
}

/// Which unit it is, wherever and whenever it is met: never again another's data under this one's
/// number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) names: Vec<Designator>,
    pub(super) block_shift: u8,
}

impl Identity {
    /// Whether it says anything that tells it from others, which zeros do not.
    pub(super) fn is_told(&self) -> bool {
        self.names.iter().any(|name| name.value.iter().any(|byte| *byte != 0))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return write!(f, "a unit without a name, of 2^{} bytes a block", self.block_shift);
        }
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

/// The names that are the unit's, in an order of their own: targets may list them in any. What tells
/// of ports and groups, and what only its vendor understands, may differ from one day to the next.
pub(super) fn names_of_unit(names: Vec<Designator>) -> Vec<Designator> {
    let mut names = names;
    names.retain(|name| {
        let is_name = matches!(
            name.kind,
            DesignatorKind::NAA
                | DesignatorKind::EUI64
                | DesignatorKind::UUID
                | DesignatorKind::SCSI_NAME_STRING
                | DesignatorKind::T10_VENDOR_ID
        );
        is_name && name.association == Association::LOGICAL_UNIT
    });
    names.sort_by(|a, b| (a.kind, &a.value).cmp(&(b.kind, &b.value)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::ProtocolId;
    use wire::scsi::capacity::CapacityProtection;
    use wire::scsi::inquiry::Peripheral;
    use wire::scsi::mode::{Caching, DeviceSpecific};
    use wire::scsi::vpd::{CodeSet, ProvisioningFlags};

    fn found(block_length: u32) -> Found {
        Found {
            capacity: Capacity16 { last_lba: 2047, block_length, ..Capacity16::default() },
            limits: BlockLimits::new(Peripheral::DISK),
            provisioning: BlockProvisioning::new(Peripheral::DISK),
            ..Found::default()
        }
    }

    fn mode(device: DeviceSpecific, write_cache: bool) -> ModeData {
        let flags = CachingFlags(0).with_write_cache(write_cache);
        let pages = Caching { flags, ..Caching::new() }.emit().to_vec();
        ModeData { medium_type: 0, device, descriptor: None, pages }
    }

    #[test]
    fn facts_are_what_the_unit_says() {
        let mut all = found(512);
        all.capacity.physical_exponent = 3;
        all.capacity.provisioning = all.capacity.provisioning.with_reads_zeros(true);
        all.limits.transfer_max = 256;
        (all.limits.unmap_blocks_max, all.limits.unmap_descriptors_max) = (1 << 20, 1000);
        all.provisioning.flags = ProvisioningFlags(0).with_unmap(true);
        let device = DeviceSpecific(0).with_write_protected(true).with_dpo_fua(true);
        all.mode = Some(mode(device, false));
        let limits = Limits::new(&all).unwrap();
        assert_eq!((limits.transfer, limits.verify_blocks), (131_072, 256));
        assert_eq!(limits.discards, Discards::Unmap { ranges: 256, blocks: 1 << 20 });
        assert!(limits.fua && !limits.is_volatile && !limits.ndob);
        let facts = disk_facts(&all, &limits).unwrap();
        assert_eq!((facts.size.0, facts.logical_block, facts.physical_block), (1 << 20, 512, 4096));
        assert_eq!(facts.cache, Cache::None);
        assert!(facts.read_only && facts.discards && facts.discard_zeroes);
    }

    #[test]
    fn a_unit_that_says_little_has_a_volatile_cache_and_the_usual_limits() {
        let bare = found(4096);
        let limits = Limits::new(&bare).unwrap();
        assert_eq!((limits.transfer, limits.zeroes_blocks), (1 << 20, 65_536));
        assert_eq!((limits.verify_blocks, limits.discards), (65_536, Discards::None));
        assert!(limits.is_volatile && !limits.fua && !limits.ndob && !limits.zeroes_unmap);
        let facts = disk_facts(&bare, &limits).unwrap();
        assert_eq!((facts.logical_block, facts.physical_block), (4096, 4096));
        assert!(!facts.read_only && !facts.discards && !facts.discard_zeroes);
    }

    #[test]
    fn a_caching_page_may_be_as_short_as_in_older_standards() {
        for (write_cache, byte) in [(true, 0x04), (false, 0x00)] {
            let pages = [&[0x08, 0x0a, byte][..], &[0; 9]].concat();
            let device = DeviceSpecific(0);
            let mode = ModeData { medium_type: 0, device, descriptor: None, pages };
            assert_eq!(is_volatile(Some(&mode)), write_cache);
        }
    }

    #[test]
    fn write_same_is_what_the_unit_says_of_it() {
        let usage = |byte| {
            let mut usage = vec![0xff; 16];
            usage[1] = byte;
            OneCommand { support: Support::SUPPORTED, usage, timeouts: None }
        };
        let mut thin = found(512);
        thin.provisioning.flags = ProvisioningFlags(0).with_write_same_16(true);
        thin.limits.write_same_max = 1 << 20;
        thin.write_same = Some(usage(0x09));
        let limits = Limits::new(&thin).unwrap();
        assert!(limits.ndob && limits.zeroes_unmap);
        assert_eq!(limits.zeroes_blocks, 65_536);
        assert_eq!(limits.discards, Discards::WriteSame { blocks: 1 << 20 });
        thin.write_same = Some(usage(0x08));
        assert!(!Limits::new(&thin).unwrap().ndob);
        thin.write_same = Some(OneCommand { support: Support::NOT_SUPPORTED, ..usage(0) });
        let limits = Limits::new(&thin).unwrap();
        assert_eq!((limits.zeroes_blocks, limits.discards), (0, Discards::None));
    }

    #[test]
    fn a_unit_that_cannot_be_a_disk_is_refused_in_words() {
        let error = Limits::new(&found(520)).unwrap_err();
        assert!(error.contains("520 bytes, expected 512 or 4096"), "{error}");
        let mut protected = found(512);
        protected.capacity.protection = CapacityProtection(0).with_enabled(true);
        assert!(Limits::new(&protected).unwrap_err().contains("protection information"));
        let mut narrow = found(512);
        narrow.limits.transfer_max = 7;
        assert!(Limits::new(&narrow).unwrap_err().contains("7 blocks"));
        let mut huge = found(512);
        huge.capacity.last_lba = u64::MAX / 2;
        let limits = Limits::new(&huge).unwrap();
        assert!(disk_facts(&huge, &limits).unwrap_err().contains("overflows"));
    }

    #[test]
    fn a_unit_is_known_by_its_own_names_in_whatever_order() {
        let naa = Designator::of_unit(DesignatorKind::NAA, CodeSet::BINARY, &[0x60; 16]);
        let t10 =
            Designator::of_unit(DesignatorKind::T10_VENDOR_ID, CodeSet::ASCII, b"PLATEWAY v0");
        let port = Designator::of_target(
            Association::TARGET_PORT,
            ProtocolId::ISCSI,
            DesignatorKind::RELATIVE_TARGET_PORT,
            CodeSet::BINARY,
            &[0, 0, 0, 1],
        );
        let group = DesignatorKind::LOGICAL_UNIT_GROUP;
        let group = Designator::of_unit(group, CodeSet::BINARY, &[0, 0, 0, 7]);
        let names = names_of_unit(vec![naa.clone(), port.clone(), t10.clone(), group]);
        assert_eq!(names.len(), 2);
        assert_eq!(names, names_of_unit(vec![t10, naa, port]));
        let identity = Identity { names, block_shift: 9 };
        assert!(identity.is_told() && identity.to_string().contains("NAA 6060"), "{identity}");
        assert!(!Identity::default().is_told());
    }
}
