//! INQUIRY: standard data, every page, and what is refused.

use wire::scsi::vpd::{BlockLimits, BlockProvisioning, ExtendedInquiry, body};

use super::*;
use crate::fixtures::{facts, unit};
use crate::{Work, judge, judge_absent, reply};

fn ask(cdb: &Cdb, unit: &LogicalUnit) -> Result<Vec<u8>, Sense> {
    assert_eq!(judge(cdb, unit), Ok(Work::Reply));
    reply(cdb, Some(unit), &facts(&[0]))
}

fn vital(code: VpdPage, unit: &LogicalUnit) -> Vec<u8> {
    ask(&Cdb::vital_product_data(code.0, 255), unit).expect("a page")
}

#[test]
fn a_unit_is_a_disk_of_spc_4_and_sbc_3() {
    let data = ask(&Cdb::inquiry(260), &unit()).expect("data");
    assert_eq!(data.len(), 96);
    let disk = StandardInquiry::parse(&data).expect("standard data");
    assert_eq!((disk.peripheral, disk.version), (Peripheral::DISK, 6));
    assert_eq!((disk.format.format(), disk.format.hierarchical()), (2, true));
    assert_eq!(usize::from(disk.additional_length), data.len() - 5);
    assert!(disk.queueing.command_queue() && !disk.removable.is_removable());
    assert!(!disk.queueing.multiple_ports(), "of one group");
    let access = |hosts_set_paths| {
        let unit = LogicalUnit { hosts_set_paths, ..unit() };
        let data = ask(&Cdb::inquiry(260), &unit).expect("data");
        StandardInquiry::parse(&data).expect("standard data").capabilities
    };
    let offered = Capabilities(0).with_target_port_groups(1).with_third_party_copy(true);
    assert_eq!(disk.capabilities, offered, "nothing else");
    assert_eq!((access(false), access(true).target_port_groups()), (disk.capabilities, 3));
    assert_eq!(&data[8..36], b"PLATEWAYVOLUME          0.1 ");
    assert_eq!(disk.versions, [0x00a0, 0x0960, 0x0460, 0x04c0, 0, 0, 0, 0]);
}

#[test]
fn standard_data_are_cut_at_any_length() {
    let whole = ask(&Cdb::inquiry(256), &unit()).expect("data");
    for length in 0..=255 {
        let data = ask(&Cdb::inquiry(length), &unit()).expect("data");
        assert_eq!(data, whole[..whole.len().min(length.into())]);
    }
}

#[test]
fn an_absent_unit_says_that_there_cannot_be_one() {
    let cdb = Cdb::inquiry(96);
    assert_eq!(judge_absent(&cdb), Ok(Work::Reply));
    let data = reply(&cdb, None, &facts(&[0])).expect("data");
    assert_eq!((data[0], data.len()), (0x7f, 96));
    let pages = Cdb::vital_product_data(0, 255);
    assert_eq!(reply(&pages, None, &facts(&[0])), Ok(vec![0x7f, 0, 0, 1, 0]));
    let names = Cdb::vital_product_data(0x83, 255);
    assert_eq!(reply(&names, None, &facts(&[0])), Err(Sense::invalid_field(2, 7)));
}

#[test]
fn a_page_without_evpd_is_refused() {
    let mut cdb = Cdb::inquiry(255);
    cdb.0[2] = 0x83;
    assert_eq!(ask(&cdb, &unit()), Err(Sense::invalid_field(2, 7)));
    let mut cdb = Cdb::inquiry(255);
    cdb.0[1] = 2;
    assert_eq!(ask(&cdb, &unit()), Err(Sense::invalid_field(1, 1)));
}

#[test]
fn every_listed_page_is_there_and_the_list_ascends() {
    let list = vital(VpdPage::SUPPORTED_PAGES, &unit());
    let list = body(&list, VpdPage::SUPPORTED_PAGES).expect("a list").to_vec();
    assert_eq!(list, [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2]);
    for code in 0..=255 {
        let page = ask(&Cdb::vital_product_data(code, u16::MAX), &unit());
        assert_eq!(page.is_ok(), list.contains(&code), "page {code:#x}");
        let Ok(page) = page else { continue };
        assert_eq!((page[0], page[1]), (0, code));
        assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])), page.len() - 4);
    }
}

#[test]
fn the_unit_has_its_names_and_the_port_its_own() {
    let page = vital(VpdPage::DEVICE_IDENTIFICATION, &unit());
    let list = DesignatorList::parse(body(&page, VpdPage::DEVICE_IDENTIFICATION).expect("names"));
    let list = list.expect("a list");
    let name = list.unit_name().expect("a name");
    assert_eq!((name.kind, &name.value[..]), (DesignatorKind::NAA, &unit().naa()[..]));
    let texts: Vec<_> = list.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts[2..],
        [
            "unit T10 vendor ID PLATEWAY0102030405060708090a0b0c0d0e0f10",
            "port relative target port 00000001",
            "port target port group 00000001",
            "port SCSI name string iqn.2026-11.net.plateway:v,t,0x0001",
            "device SCSI name string iqn.2026-11.net.plateway:v",
        ]
    );
    let serial = vital(VpdPage::UNIT_SERIAL_NUMBER, &unit());
    assert_eq!(&serial[4..], b"0102030405060708090a0b0c0d0e0f10");
}

#[test]
fn names_stay_when_a_unit_grows() {
    let mut grown = unit();
    grown.blocks.0 *= 2;
    grown.read_only = true;
    let names = |unit| vital(VpdPage::DEVICE_IDENTIFICATION, unit);
    assert_eq!(names(&unit()), names(&grown));
}

#[test]
fn limits_are_those_that_commands_are_judged_by() {
    let limits = BlockLimits::read(&vital(VpdPage::BLOCK_LIMITS, &unit())).expect("limits");
    assert_eq!(limits.length, 0x3c);
    assert!(limits.flags.write_same_non_zero());
    let most = limits.transfer_max;
    assert!(judge(&Cdb::read_16(0, most), &unit()).is_ok());
    assert!(judge(&Cdb::read_16(0, most + 1), &unit()).is_err());
    let most = limits.compare_and_write_max;
    assert!(judge(&Cdb::compare_and_write(0, most, false), &unit()).is_ok());
    assert!(judge(&Cdb::compare_and_write(0, most + 1, false), &unit()).is_err());
    let most = limits.write_same_max as u32;
    assert!(judge(&Cdb::write_same_16(0, most, false, true), &unit()).is_ok());
    assert!(judge(&Cdb::write_same_16(0, most + 1, false, true), &unit()).is_err());
    assert_eq!((limits.unmap_blocks_max, limits.unmap_descriptors_max), (u32::MAX, 256));
    assert_eq!((limits.transfer_granularity, limits.unmap_granularity), (8, 8));
    assert_eq!(limits.atomic_max, 0, "WRITE ATOMIC is not there");
}

#[test]
fn larger_blocks_have_smaller_limits() {
    let unit = LogicalUnit { block_size: block::BlockSize::B4096, ..unit() };
    let limits = BlockLimits::read(&vital(VpdPage::BLOCK_LIMITS, &unit)).expect("limits");
    assert_eq!((limits.transfer_max, limits.compare_and_write_max), (256, 1));
    assert_eq!((limits.transfer_granularity, limits.write_same_max), (1, 256));
}

#[test]
fn what_unmaps_agrees_on_every_page() {
    for (discards, discard_zeroes) in [(true, true), (true, false), (false, false)] {
        let unit = LogicalUnit { discards, discard_zeroes, ..unit() };
        let page = BlockProvisioning::read(&vital(VpdPage::BLOCK_PROVISIONING, &unit));
        let flags = page.expect("provisioning").flags;
        assert_eq!(flags.unmap(), discards);
        assert_eq!(flags.write_same_16() && flags.write_same_10(), discards);
        assert_eq!(flags.reads_zeros(), discard_zeroes);
        let limits = BlockLimits::read(&vital(VpdPage::BLOCK_LIMITS, &unit)).expect("limits");
        assert_eq!(limits.unmap_blocks_max > 0, discards);
        assert_eq!(limits.unmap_descriptors_max > 0, discards);
        assert_eq!(judge(&Cdb::unmap_list(24), &unit).is_ok(), discards);
        assert_eq!(judge(&Cdb::write_same_10(0, 1, true), &unit).is_ok(), discards);
        assert_eq!(judge(&Cdb::write_same_16(0, 1, true, false), &unit).is_ok(), discards);
    }
}

#[test]
fn a_volatile_cache_is_told_and_the_medium_does_not_rotate() {
    for cache_volatile in [true, false] {
        let unit = LogicalUnit { cache_volatile, ..unit() };
        let page = ExtendedInquiry::read(&vital(VpdPage::EXTENDED_INQUIRY, &unit));
        assert_eq!(page.expect("extended data").flags.volatile_cache(), cache_volatile);
    }
    assert_eq!(vital(VpdPage::BLOCK_CHARACTERISTICS, &unit())[..6], [0, 0xb1, 0, 0x3c, 0, 1]);
}
