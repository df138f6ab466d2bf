//! Vectors and round trips of submission queue entries, after the NVMe base specification's and the
//! NVM command set's figures.

use super::*;
use crate::nvme::feature::{FeatureId, Select};
use crate::nvme::identify::{Cns, CommandSet};
use crate::nvme::log::LogId;

#[test]
fn read_vector() {
    let command = Command::read(1, 0x1_0000_0002, 8, 4096).with_command_id(0x1234);
    let mut bytes = [0; 64];
    bytes[0] = 0x02;
    bytes[1] = 0x40;
    bytes[2..4].copy_from_slice(&[0x34, 0x12]);
    bytes[4] = 1;
    bytes[32..36].copy_from_slice(&[0, 0x10, 0, 0]);
    bytes[39] = 0x5a;
    bytes[40] = 2;
    bytes[44] = 1;
    bytes[48] = 7;
    assert_eq!(command.emit(), bytes);
    assert_eq!(Command::parse(&bytes), Ok(command));
    assert_eq!(command.lba(), 0x1_0000_0002);
    assert_eq!(command.blocks(), 8);
    assert_eq!(command.sgl(), SglDescriptor::transport(4096));
    assert_eq!((command.psdt(), command.fuse()), (1, Fuse::NONE));
    assert_eq!(
        command.describe(false).to_string(),
        "Read cid 4660 nsid 1 lba 4294967298 blocks 8, 4096 bytes"
    );
    assert_eq!(Command::parse(&bytes[..63]), Err(ParseError::short(64, 63)));
}

#[test]
fn write_flags_lie_in_cdw12() {
    let command = Command::write(1, 0, 65536, 0).with_force_unit_access(true);
    assert_eq!(command.cdw(12), 0x4000_ffff);
    assert_eq!(command.blocks(), 65536);
    assert!(command.force_unit_access());
    assert!(!command.with_force_unit_access(false).force_unit_access());
    let zeroes = Command::write_zeroes(1, 0, 1, true);
    assert_eq!(zeroes.cdw(12), 0x0200_0000);
    assert!(zeroes.deallocate() && !zeroes.with_deallocate(false).deallocate());
}

#[test]
fn fused_pair_and_in_capsule_data() {
    let sgl = SglDescriptor::in_capsule(512);
    let compare = Command::compare(1, 0, 1, 512).with_fuse(Fuse::FIRST).with_sgl(sgl);
    assert_eq!(compare.0[1], 0x41);
    assert_eq!(compare.0[39], 0x01);
    assert_eq!(compare.sgl(), sgl);
    assert_eq!(
        compare.describe(false).to_string(),
        "Compare cid 0 nsid 1 lba 0 blocks 1 first of a fused pair, 512 bytes in capsule"
    );
    assert_eq!(compare.with_fuse(Fuse::SECOND).fuse(), Fuse::SECOND);
}

#[test]
fn dataset_management_both_ways() {
    let command = Command::dataset_management(3, 2, true);
    assert_eq!((command.cdw(10), command.cdw(11)), (1, 4));
    assert_eq!(command.sgl().length, 32);
    assert_eq!(DsmRange::count(&command), 2);
    assert!(DsmRange::is_deallocate(&command));
    let range = DsmRange { attributes: 0, blocks: 8, lba: 0x1_0000 };
    let bytes = [0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(range.emit(), bytes);
    let two = [bytes, bytes].concat();
    assert!(DsmRange::parse_all(&two).eq([range, range]));
    assert_eq!(DsmRange::parse_all(&two[..31]).count(), 1);
    assert_eq!(
        command.describe(false).to_string(),
        "Dataset Management cid 0 nsid 3 2 ranges deallocate, 32 bytes"
    );
}

#[test]
fn copy_both_ways() {
    let command = Command::copy(3, 0x1_0000_0002, 2).with_command_id(7);
    let mut bytes = [0; 64];
    (bytes[0], bytes[1], bytes[2], bytes[4]) = (0x19, 0x40, 7, 3);
    (bytes[32], bytes[39]) = (64, 0x5a);
    (bytes[40], bytes[44], bytes[48]) = (2, 1, 1);
    assert_eq!(command.emit(), bytes);
    assert_eq!(Command::parse(&bytes), Ok(command));
    assert_eq!((command.lba(), CopyDword::of(&command).count()), (0x1_0000_0002, 2));
    assert_eq!(
        command.describe(false).to_string(),
        "Copy cid 7 nsid 3 2 ranges to lba 4294967298, 64 bytes"
    );
    let range = CopyRange::new(0x0102_0304_0506_0708, 65_536);
    let mut bytes = [0; 32];
    bytes[8..18].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 0xff, 0xff]);
    assert_eq!(range.emit(), bytes);
    assert_eq!((range.blocks(), CopyRange::new(0, 1).nlb), (65_536, 0));
    // What it says of protection is not looked at.
    bytes[24..].fill(0xee);
    let two = [bytes, bytes].concat();
    assert!(CopyRange::parse_all(&two).eq([range, range]));
    assert_eq!(CopyRange::parse_all(&two[..63]).count(), 1);
}

#[test]
fn flags_of_copy_lie_in_cdw12() {
    let dword = CopyDword(0xe710_21ff);
    assert_eq!((dword.count(), dword.format(), dword.prinfor()), (256, 1, 2));
    assert_eq!((dword.directive_type(), dword.prinfow()), (1, 9));
    assert!(dword.force_unit_access() && dword.limited_retry());
    assert!(dword.checks_tag_read() && dword.checks_tag_written());
    let again = CopyDword::default().with_nr(255).with_format(1).with_prinfor(2);
    let again = again.with_directive_type(1).with_prinfow(9).with_force_unit_access(true);
    let again = again.with_limited_retry(true).with_checks_tag_read(true);
    assert_eq!(again.with_checks_tag_written(true), dword);
    let command = Command::copy(1, 9, 256).with_cdw(12, dword.0);
    assert_eq!(CopyDword::of(&command), dword);
    assert_eq!(
        command.describe(false).to_string(),
        "Copy cid 0 nsid 1 256 ranges to lba 9 format 1 fua, 8192 bytes"
    );
    assert!(Command::copy(1, 9, 1).with_force_unit_access(true).force_unit_access());
}

#[test]
fn admin_commands_both_ways() {
    let identify = Command::identify(Cns::IO_SET_NAMESPACE, 1)
        .with_cdw(10, 0x0007_0005)
        .with_cdw(11, 0x0200_0000);
    assert_eq!(Cns::of(&identify), Cns::IO_SET_NAMESPACE);
    assert_eq!(Cns::controller_id_of(&identify), 7);
    assert_eq!(Cns::command_set_of(&identify), CommandSet::ZONED);

    let features = Command::set_features(FeatureId::NUMBER_OF_QUEUES.0, 0, 0x0003_0003, 0);
    assert_eq!(FeatureId::of(&features), FeatureId::NUMBER_OF_QUEUES);
    assert!(!FeatureId::save_of(&features));
    assert_eq!(
        features.describe(true).to_string(),
        "Set Features cid 0 number of queues = 0x30003"
    );
    let saved = features.with_cdw(10, 0x8000_0307);
    assert!(FeatureId::save_of(&saved));
    assert_eq!(FeatureId::select_of(&saved), Select::CAPABILITIES);

    let abort = Command::abort(2, 0x55);
    assert_eq!(abort.cdw(10), 0x0055_0002);
    assert_eq!(abort.describe(true).to_string(), "Abort cid 0 queue 2 cid 85");
    let log = Command::get_log(LogId::SMART, NSID_ALL, 0, 512, true);
    assert_eq!(
        log.describe(true).to_string(),
        "Get Log Page cid 0 SMART / health offset 0 bytes 512 rae"
    );
    for (command, opcode) in [
        (Command::keep_alive(), AdminOpcode::KEEP_ALIVE),
        (Command::async_event_request(), AdminOpcode::ASYNC_EVENT_REQUEST),
        (Command::get_features(6, 0, 0), AdminOpcode::GET_FEATURES),
    ] {
        assert_eq!(command.admin_opcode(), opcode);
        assert_eq!(command.sgl(), SglDescriptor::transport(0));
    }
}

#[test]
fn io_commands_without_data() {
    let flush = Command::flush(NSID_ALL);
    assert_eq!(flush.io_opcode(), IoOpcode::FLUSH);
    assert_eq!(flush.describe(false).to_string(), "Flush cid 0 nsid 4294967295");
    let verify = Command::verify(1, 9, 3);
    assert_eq!((verify.lba(), verify.blocks()), (9, 3));
    assert_eq!(verify.sgl().length, 0);
}

#[test]
fn unknown_opcodes_survive_as_numbers() {
    let command = Command::new(0xc5);
    assert_eq!(command.describe(false).to_string(), "0xc5 cid 0 nsid 0 cdw10 0x0");
    assert_eq!(command.admin_opcode().name(), None);
    assert!(command.to_string().starts_with("opcode 0xc5 cid 0"));
    // Any bytes can be described on either queue.
    for byte in 0..=255 {
        let command = Command([byte; 64]);
        let lines = (command.describe(true).to_string(), command.describe(false).to_string());
        assert!(!lines.0.is_empty() && !lines.1.is_empty());
        assert_eq!(command.with_sgl(command.sgl()).sgl(), command.sgl());
    }
}
