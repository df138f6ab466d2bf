//! Vectors of the pages, both ways, and what is done with pages that are cut or another's.

use super::*;
use crate::scsi::{OpCode, ProtocolId};

#[test]
fn third_party_copy_both_ways() {
    let page = ThirdPartyCopy {
        commands: vec![(OpCode::EXTENDED_COPY, vec![0]), (OpCode(0x84), vec![0, 3, 4])],
        places_max: 2,
        segments_max: 0x0103,
        list_max: 4,
        inline_max: 5,
        types: vec![0x02, 0xe4],
        place_ids: vec![0xffff],
        copies_max: 6,
        identified_max: 7,
        segment_max: 8,
        granularity: 9,
    };
    let bytes = page.emit();
    let commands = [0, 1, 0, 12, 8, 0x83, 1, 0, 0x84, 3, 0, 3, 4, 0, 0, 0];
    assert_eq!(bytes[..16], commands);
    assert_eq!(bytes[16..36], [0, 4, 0, 28, 0, 0, 0, 0, 0, 2, 1, 3, 0, 0, 0, 4, 0, 0, 0, 5]);
    assert_eq!(bytes[48..64], [0, 8, 0, 4, 2, 2, 0xe4, 0, 0, 12, 0, 4, 0, 2, 0xff, 0xff]);
    let copies = [0x80, 1, 0, 32, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 9, 0, 0, 0];
    assert_eq!((bytes.len(), &bytes[64..84]), (100, &copies[..]));
    assert_eq!(ThirdPartyCopy::parse(&bytes), Ok(page));
    assert_eq!(ThirdPartyCopy::parse(&bytes[..50]).expect_err("cut").field, "length");
    assert_eq!(ThirdPartyCopy::parse(&bytes[..90]).expect_err("cut").field, "DESCRIPTOR LENGTH");
    let mut long = bytes;
    long[9] = 9;
    let field = "SERVICE ACTION LIST LENGTH";
    assert_eq!(ThirdPartyCopy::parse(&long).expect_err("too many actions").field, field);
    long[4] = 13;
    assert!(ThirdPartyCopy::parse(&long).is_err());
}

#[test]
fn a_page_has_its_code_and_length() {
    let bytes = page(Peripheral::DISK, VpdPage::SUPPORTED_PAGES, &[0x00, 0x83]);
    assert_eq!(bytes, [0, 0, 0, 2, 0x00, 0x83]);
    assert_eq!(body(&bytes, VpdPage::SUPPORTED_PAGES), Ok(&[0x00, 0x83][..]));
    assert_eq!(body(&bytes[..5], VpdPage::SUPPORTED_PAGES), Ok(&[0x00][..]), "cut");
    let error = body(&bytes, VpdPage::BLOCK_LIMITS).expect_err("another page");
    assert_eq!(error.to_string(), "PAGE CODE at byte 1: expected 176, seen 0 (0x0)");
    assert!(body(&bytes[..3], VpdPage::SUPPORTED_PAGES).is_err());
}

#[test]
fn block_limits_lie_where_the_standard_has_them() {
    let limits = BlockLimits {
        flags: LimitFlags(0).with_write_same_non_zero(true),
        compare_and_write_max: 8,
        transfer_granularity: 8,
        transfer_max: 2048,
        transfer_optimal: 0x100,
        unmap_blocks_max: u32::MAX,
        unmap_descriptors_max: 256,
        unmap_granularity: 8,
        unmap_alignment: 1 << 31,
        write_same_max: 65536,
        ..BlockLimits::new(Peripheral::DISK)
    };
    let bytes = limits.emit();
    assert_eq!(bytes[..8], [0, 0xb0, 0, 0x3c, 1, 8, 0, 8]);
    assert_eq!(bytes[8..16], [0, 0, 8, 0, 0, 0, 1, 0]);
    assert_eq!(bytes[20..28], [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0]);
    assert_eq!(bytes[28..36], [0, 0, 0, 8, 0x80, 0, 0, 0]);
    assert_eq!(bytes[36..44], [0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(BlockLimits::read(&bytes), Ok(limits));
}

#[test]
fn a_page_of_an_older_standard_is_shorter() {
    // Block limits of SBC-2: 0Ch bytes.
    let mut bytes = vec![0, 0xb0, 0, 0x0c];
    bytes.extend([0, 0, 0, 8, 0, 0, 4, 0, 0, 0, 0, 1]);
    bytes.extend([0xff; 48]);
    let limits = BlockLimits::read(&bytes).expect("an old page");
    assert_eq!((limits.transfer_granularity, limits.transfer_max), (8, 1024));
    assert_eq!((limits.unmap_blocks_max, limits.write_same_max), (0, 0));
    assert!(BlockLimits::parse(&bytes[..16]).is_err());
}

#[test]
fn provisioning_and_characteristics_both_ways() {
    let flags = ProvisioningFlags(0).with_unmap(true).with_write_same_16(true);
    let flags = flags.with_write_same_10(true).with_reads_zeros(true);
    let thin = BlockProvisioning { flags, kind: 2, ..BlockProvisioning::new(Peripheral::DISK) };
    assert_eq!(thin.emit(), [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    assert_eq!(BlockProvisioning::read(&thin.emit()), Ok(thin));
    let still =
        BlockCharacteristics { rotation_rate: 1, ..BlockCharacteristics::new(Peripheral::DISK) };
    assert_eq!(still.emit()[..8], [0, 0xb1, 0, 0x3c, 0, 1, 0, 0]);
    assert_eq!(BlockCharacteristics::read(&still.emit()), Ok(still));
}

#[test]
fn extended_data_say_which_tasks_are_taken() {
    let flags = ExtendedFlags(0).with_simple(true).with_ordered(true).with_head_of_queue(true);
    let flags = flags.with_volatile_cache(true);
    let data = ExtendedInquiry { flags, ..ExtendedInquiry::new(Peripheral::DISK) };
    assert_eq!(data.emit()[..8], [0, 0x86, 0, 0x3c, 0, 0x07, 0x01, 0]);
    assert_eq!(ExtendedInquiry::read(&data.emit()), Ok(data));
}

fn names() -> DesignatorList {
    let naa = [0x31, 2, 3, 4, 5, 6, 7, 8];
    DesignatorList(vec![
        Designator::of_unit(DesignatorKind::T10_VENDOR_ID, CodeSet::ASCII, b"PLATEWAYx"),
        Designator::of_unit(DesignatorKind::NAA, CodeSet::BINARY, &naa),
        Designator::of_target(
            Association::TARGET_PORT,
            ProtocolId::ISCSI,
            DesignatorKind::SCSI_NAME_STRING,
            CodeSet::UTF8,
            &Designator::name_string("iqn.x,t,0x1"),
        ),
    ])
}

#[test]
fn designators_both_ways() {
    let list = names();
    let bytes = list.emit();
    assert_eq!(bytes[..4], [0x02, 0x01, 0, 9]);
    assert_eq!(bytes[13..17], [0x01, 0x03, 0, 8]);
    assert_eq!(bytes[25..29], [0x53, 0x98, 0, 12]);
    assert_eq!(&bytes[29..], b"iqn.x,t,0x1\0");
    assert_eq!(DesignatorList::parse(&bytes), Ok(list.clone()));
    assert_eq!(list.unit_name(), Some(&list.0[1]));
    assert_eq!(list.0[1].to_string(), "unit NAA 3102030405060708");
    assert_eq!(list.0[2].to_string(), "port SCSI name string iqn.x,t,0x1");
}

#[test]
fn a_designator_that_does_not_fit_is_refused() {
    let bytes = names().emit();
    for end in [3, 5, 14, bytes.len() - 1] {
        assert!(DesignatorList::parse(&bytes[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn a_name_string_ends_with_a_nul_and_is_a_multiple_of_four() {
    assert_eq!(Designator::name_string("abc"), b"abc\0");
    assert_eq!(Designator::name_string("abcd"), b"abcd\0\0\0\0");
    let long = "\u{e9}".repeat(200);
    let value = Designator::name_string(&long);
    assert_eq!(value.len(), 252);
    assert!(core::str::from_utf8(&value).is_ok(), "a character is not cut in two");
}
