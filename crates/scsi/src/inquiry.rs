//! INQUIRY: what a unit says of itself, and the pages of vital product data.
//!
//! A LUN under which there is nothing answers, too: with qualifier 3 and no device type. Errors: a
//! page that is not there, or a page without EVPD. Not here: what copies may be (`copy`). Spec:
//! SPC-4, "INQUIRY command", "Vital product data parameters"; SBC-3, "Vital product data (VPD)
//! parameters".

use block::limits::{DISCARD_RANGES_MAX, TRANSFER_MAX};
use wire::ascii_field;
use wire::scsi::inquiry::{Capabilities, Peripheral, Queueing, ResponseFormat, StandardInquiry};
use wire::scsi::vpd::{
    Association, BlockCharacteristics, BlockLimits, BlockProvisioning, CodeSet, Designator,
    DesignatorKind, DesignatorList, ExtendedFlags, ExtendedInquiry, LimitFlags, ProvisioningFlags,
    VpdPage, page,
};
use wire::scsi::{Cdb, OpCode, Sense};

use crate::copy;
use crate::judge::invalid_field;
use crate::limits::{COMPARE_AND_WRITE_MAX, WRITE_SAME_MAX};
use crate::paths::offered;
use crate::reply::Facts;
use crate::unit::LogicalUnit;

/// The pages of a unit, ascending.
const PAGES: [VpdPage; 8] = [
    VpdPage::SUPPORTED_PAGES,
    VpdPage::UNIT_SERIAL_NUMBER,
    VpdPage::DEVICE_IDENTIFICATION,
    VpdPage::EXTENDED_INQUIRY,
    VpdPage::THIRD_PARTY_COPY,
    VpdPage::BLOCK_LIMITS,
    VpdPage::BLOCK_CHARACTERISTICS,
    VpdPage::BLOCK_PROVISIONING,
];
/// VERSION: SPC-4.
const VERSION: u8 = 6;
/// MEDIUM ROTATION RATE of a medium that does not rotate. What is below may; hosts do best if they
/// leave the order of their commands to us.
const NOT_ROTATING: u16 = 1;
/// UGAVALID: the alignment of unmapped ranges is 0.
const UNMAP_ALIGNED: u32 = 1 << 31;
/// MAXIMUM UNMAP LBA COUNT: no limit.
const UNMAP_BLOCKS_MAX: u32 = u32::MAX;
/// PROVISIONING TYPE: thin.
const THIN: u8 = 2;

/// The data of INQUIRY, all of them.
pub(crate) fn inquiry(
    cdb: &Cdb,
    unit: Option<&LogicalUnit>,
    facts: &Facts<'_>,
) -> Result<Vec<u8>, Sense> {
    if cdb.cmddt() {
        return Err(invalid_field(1, 1));
    }
    match (cdb.evpd(), cdb.page_code()) {
        (false, 0) => Ok(standard(unit, facts).emit().to_vec()),
        (false, _) => Err(invalid_field(2, 7)),
        (true, code) => vital(VpdPage(code), unit, facts).ok_or_else(|| invalid_field(2, 7)),
    }
}

fn standard(unit: Option<&LogicalUnit>, facts: &Facts<'_>) -> StandardInquiry {
    let mut versions = [0; 8];
    versions[0] = StandardInquiry::SAM_5;
    versions[1] = facts.port.version;
    versions[2] = StandardInquiry::SPC_4;
    versions[3] = StandardInquiry::SBC_3;
    StandardInquiry {
        peripheral: if unit.is_some() { Peripheral::DISK } else { Peripheral::NONE },
        version: VERSION,
        format: ResponseFormat(2).with_hierarchical(true),
        additional_length: StandardInquiry::SIZE as u8 - 5,
        capabilities: Capabilities(0)
            .with_target_port_groups(offered(unit))
            .with_third_party_copy(unit.is_some()),
        queueing: Queueing(0).with_command_queue(true).with_multiple_ports(facts.groups.len() > 1),
        vendor: ascii_field(facts.vendor),
        product: ascii_field(facts.product),
        revision: ascii_field(facts.revision),
        versions,
        ..StandardInquiry::default()
    }
}

/// A page, if it is there. Of no unit there is the list of pages alone, which has itself.
fn vital(code: VpdPage, unit: Option<&LogicalUnit>, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let Some(unit) = unit else {
        let is_list = code == VpdPage::SUPPORTED_PAGES;
        return is_list.then(|| page(Peripheral::NONE, code, &[code.0]));
    };
    let disk = Peripheral::DISK;
    Some(match code {
        VpdPage::SUPPORTED_PAGES => page(disk, code, &PAGES.map(|page| page.0)),
        VpdPage::UNIT_SERIAL_NUMBER => page(disk, code, unit.serial().as_bytes()),
        VpdPage::DEVICE_IDENTIFICATION => page(disk, code, &names(unit, facts).emit()),
        VpdPage::EXTENDED_INQUIRY => extended(unit).emit().to_vec(),
        VpdPage::THIRD_PARTY_COPY => page(disk, code, &copy::page(unit)),
        VpdPage::BLOCK_LIMITS => limits(unit).emit().to_vec(),
        VpdPage::BLOCK_CHARACTERISTICS => {
            let still = BlockCharacteristics::new(disk);
            BlockCharacteristics { rotation_rate: NOT_ROTATING, ..still }.emit().to_vec()
        }
        VpdPage::BLOCK_PROVISIONING => provisioning(unit).emit().to_vec(),
        _ => return None,
    })
}

/// The names of the unit, its port and its device. NAA first: hosts that take one take the best or
/// the first.
fn names(unit: &LogicalUnit, facts: &Facts<'_>) -> DesignatorList {
    let port = &facts.port;
    let vendor: [u8; 8] = ascii_field(facts.vendor);
    let made_up = [&vendor[..], unit.serial().as_bytes()].concat();
    let of_target = |association, kind, code_set, value: &[u8]| {
        Designator::of_target(association, port.protocol, kind, code_set, value)
    };
    let numbered = |kind, number: u16| {
        let [high, low] = number.to_be_bytes();
        of_target(Association::TARGET_PORT, kind, CodeSet::BINARY, &[0, 0, high, low])
    };
    let named = |association, name| {
        let value = Designator::name_string(name);
        of_target(association, DesignatorKind::SCSI_NAME_STRING, CodeSet::UTF8, &value)
    };
    DesignatorList(vec![
        Designator::of_unit(DesignatorKind::NAA, CodeSet::BINARY, &unit.naa()),
        Designator::of_unit(DesignatorKind::EUI64, CodeSet::BINARY, &unit.eui64()),
        Designator::of_unit(DesignatorKind::T10_VENDOR_ID, CodeSet::ASCII, &made_up),
        numbered(DesignatorKind::RELATIVE_TARGET_PORT, port.relative_id),
        numbered(DesignatorKind::TARGET_PORT_GROUP, port.group),
        named(Association::TARGET_PORT, port.port_name),
        named(Association::TARGET_DEVICE, port.device_name),
    ])
}

fn extended(unit: &LogicalUnit) -> ExtendedInquiry {
    let flags = ExtendedFlags(0)
        .with_simple(true)
        .with_ordered(true)
        .with_head_of_queue(true)
        .with_clears_with_nexus(true)
        .with_volatile_cache(unit.cache_volatile);
    ExtendedInquiry { flags, ..ExtendedInquiry::new(Peripheral::DISK) }
}

/// No optimal transfer length is said: file systems would lay themselves out by it, and nothing
/// here is better at one than at another.
fn limits(unit: &LogicalUnit) -> BlockLimits {
    let block = unit.block_bytes();
    let physical = unit.physical_blocks();
    let of_discards = |value: u32| if unit.discards { value } else { 0 };
    BlockLimits {
        flags: LimitFlags(0).with_write_same_non_zero(true),
        compare_and_write_max: (COMPARE_AND_WRITE_MAX / block) as u8,
        transfer_granularity: physical as u16,
        transfer_max: TRANSFER_MAX / block,
        unmap_blocks_max: of_discards(UNMAP_BLOCKS_MAX),
        unmap_descriptors_max: of_discards(DISCARD_RANGES_MAX as u32),
        unmap_granularity: of_discards(physical),
        unmap_alignment: of_discards(UNMAP_ALIGNED),
        write_same_max: u64::from(WRITE_SAME_MAX / block),
        ..BlockLimits::new(Peripheral::DISK)
    }
}

/// Whether the answer to a command, if it is no error, says whose blocks a unit has: the serial number or
/// the identifiers.
pub fn tells_whose(cdb: &Cdb) -> bool {
    let pages = [VpdPage::UNIT_SERIAL_NUMBER, VpdPage::DEVICE_IDENTIFICATION];
    cdb.opcode() == OpCode::INQUIRY && cdb.evpd() && pages.contains(&VpdPage(cdb.page_code()))
}

fn provisioning(unit: &LogicalUnit) -> BlockProvisioning {
    let page = BlockProvisioning::new(Peripheral::DISK);
    if !unit.discards {
        return page;
    }
    let flags = ProvisioningFlags(0).with_unmap(true).with_write_same_16(true);
    let flags = flags.with_write_same_10(true).with_reads_zeros(unit.discard_zeroes);
    BlockProvisioning { flags, kind: THIN, ..page }
}

#[cfg(test)]
mod tests;
