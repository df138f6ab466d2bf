//! Vectors of commands, both ways, and where each group has its fields.

use super::*;

fn cdb(bytes: &[u8]) -> Cdb {
    let mut all = [0; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    Cdb(all)
}

#[test]
fn every_group_has_its_lba_and_its_count() {
    let six = cdb(&[0x08, 0xff, 2, 3, 4, 0]);
    assert_eq!((six.lba(), six.blocks(), six.length()), (0x1f_0203, 4, 6));
    let ten = cdb(&[0x28, 0, 1, 2, 3, 4, 0x1f, 5, 6, 0]);
    assert_eq!((ten.lba(), ten.blocks(), ten.length()), (0x0102_0304, 0x0506, 10));
    let twelve = cdb(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);
    assert_eq!((twelve.lba(), twelve.blocks(), twelve.length()), (0x0102_0304, 0x0506_0708, 12));
    let sixteen = cdb(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]);
    assert_eq!(sixteen.lba(), 0x0102_0304_0506_0708);
    assert_eq!((sixteen.blocks(), sixteen.length()), (0x090a_0b0c, 16));
    let compare = cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9, 7, 0, 0]);
    assert_eq!((compare.lba(), compare.blocks()), (1, 7));
}

#[test]
fn no_blocks_are_256_of_six_bytes_and_none_of_others() {
    assert_eq!(cdb(&[0x08]).blocks(), 256);
    assert_eq!(cdb(&[0x0a]).blocks(), 256);
    for opcode in [0x28, 0x2a, 0xa8, 0x88, 0x89, 0x93] {
        assert_eq!(cdb(&[opcode]).blocks(), 0, "{opcode:#x}");
    }
}

#[test]
fn flags_lie_in_the_second_byte() {
    let read = cdb(&[0x28, 0x78]);
    assert_eq!((read.protect(), read.dpo(), read.fua()), (3, true, true));
    let verify = cdb(&[0x2f, 0x02]);
    assert_eq!(verify.byte_check(), ByteCheck::COMPARE);
    let same = cdb(&[0x93, 0x19]);
    assert_eq!((same.unmap(), same.anchor(), same.ndob()), (true, true, true));
    assert!(!cdb(&[0x41, 0x01]).ndob(), "WRITE SAME(10) has no such bit");
    assert!(cdb(&[0x42, 0x01]).anchor() && !cdb(&[0x42, 0x10]).anchor());
    assert!(cdb(&[0x1b, 0x01]).immediate() && cdb(&[0x35, 0x02]).immediate());
}

#[test]
fn control_is_the_last_byte() {
    assert!(cdb(&[0x00, 0, 0, 0, 0, 4]).naca());
    assert!(cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 0, 4]).naca());
    assert!(cdb(&[0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]).naca());
    assert!(cdb(&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]).naca());
    assert!(!cdb(&[0x28, 0, 0, 0, 0, 4, 0, 0, 4, 0, 4]).naca());
}

#[test]
fn every_command_has_its_lengths() {
    assert_eq!(Cdb::inquiry(0x0102).allocation_length(), 0x0102);
    assert_eq!(Cdb::read_capacity_10().allocation_length(), 8);
    assert_eq!(Cdb::read_capacity_16(32).allocation_length(), 32);
    assert_eq!(Cdb::report_luns(1 << 20).allocation_length(), 1 << 20);
    assert_eq!(Cdb::mode_sense_6(0x3f, true, 192).allocation_length(), 192);
    assert_eq!(Cdb::mode_sense_10(8, false, 300).allocation_length(), 300);
    assert_eq!(Cdb::request_sense(true, 18).allocation_length(), 18);
    assert_eq!(Cdb::report_opcodes(true, 5000).allocation_length(), 5000);
    let keys = ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS;
    assert_eq!(Cdb::persistent_reserve_in(keys, 16384).allocation_length(), 16384);
    let register = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
    assert_eq!(Cdb::persistent_reserve_out(register, 0, 24).parameter_list_length(), 24);
    assert_eq!(Cdb::unmap_list(24).parameter_list_length(), 24);
    assert_eq!(Cdb::mode_select_6(24).parameter_list_length(), 24);
    assert_eq!(Cdb::mode_select_10(24).parameter_list_length(), 24);
}

#[test]
fn builders_write_what_the_standard_has() {
    assert_eq!(Cdb::read_10(0x0102_0304, 8).0[..10], [0x28, 0, 1, 2, 3, 4, 0, 0, 8, 0]);
    assert_eq!(Cdb::write_10(1, 2, true).0[..10], [0x2a, 8, 0, 0, 0, 1, 0, 0, 2, 0]);
    let write = Cdb::write_16(1 << 32, 2, true).with_dpo();
    assert_eq!(write.0, [0x8a, 0x18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
    assert_eq!(Cdb::vital_product_data(0xb0, 64).0[..6], [0x12, 1, 0xb0, 0, 64, 0]);
    assert_eq!(Cdb::read_capacity_16(32).0[..2], [0x9e, 0x10]);
    assert_eq!(Cdb::read_capacity_16(32).0[10..14], [0, 0, 0, 32]);
    assert_eq!(Cdb::mode_sense_6(8, true, 192).0[..6], [0x1a, 8, 8, 0, 192, 0]);
    assert_eq!(Cdb::mode_select_6(24).0[..6], [0x15, 0x10, 0, 0, 24, 0]);
    let same = Cdb::write_same_16(3, 4, true, true);
    assert_eq!(same.0, [0x93, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0]);
    let compare = Cdb::compare_and_write(3, 1, false);
    assert_eq!(compare.0, [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0]);
    assert_eq!(Cdb::verify_10(0, 1, ByteCheck::COMPARE).0[..2], [0x2f, 2]);
    let one = Cdb::report_opcode(OpCode::SERVICE_ACTION_IN_16, Some(0x10), 100);
    assert_eq!(one.0[..12], [0xa3, 0x0c, 2, 0x9e, 0, 0x10, 0, 0, 0, 100, 0, 0]);
    assert_eq!(one.requested(), (OpCode::SERVICE_ACTION_IN_16, 0x10));
    let groups = Cdb::report_target_port_groups(100);
    assert_eq!(groups.0[..12], [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0]);
    let register = ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE;
    let out = Cdb::persistent_reserve_out(register, 5, 24);
    assert_eq!(out.0[..10], [0x5f, 1, 5, 0, 0, 0, 0, 0, 24, 0]);
    assert_eq!(out.scope_and_type(), (0, 5));
    assert_eq!(Cdb::synchronize_cache_10().0[..2], [0x35, 0]);
    assert_eq!(Cdb::get_lba_status(7, 24).0[..10], [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn a_line_says_what_is_asked() {
    for (cdb, line) in [
        (Cdb::read_10(8, 1).with_dpo(), "READ(10) lba 8 blocks 1 dpo"),
        (Cdb::write_16(8, 1, true), "WRITE(16) lba 8 blocks 1 fua"),
        (Cdb::vital_product_data(0x83, 255), "INQUIRY page 0x83"),
        (Cdb::inquiry(96), "INQUIRY"),
        (Cdb::read_capacity_16(32), "READ CAPACITY(16)"),
        (Cdb::write_same_16(0, 9, true, true), "WRITE SAME(16) lba 0 blocks 9 unmap ndob"),
        (Cdb::unmap_list(24), "UNMAP 24 bytes"),
        (Cdb::mode_sense_6(8, true, 4), "MODE SENSE(6) page 0x08"),
        (cdb(&[0x1b]), "START STOP UNIT stop"),
        (cdb(&[0xa3, 0x1f]), "MAINTENANCE IN action 0x1f"),
        (cdb(&[0x28, 0x20]), "READ(10) lba 0 blocks 0 protect 1"),
        (cdb(&[0xc1, 0, 0, 0, 0, 0]), "0xc1"),
        (Cdb::verify_10(0, 1, ByteCheck::COMPARE), "VERIFY(10) lba 0 blocks 1 bytchk"),
        (
            Cdb::report_opcode(OpCode::WRITE_SAME_10, None, 9),
            "REPORT SUPPORTED OPERATION CODES WRITE SAME(10) 0x0",
        ),
    ] {
        assert_eq!(cdb.to_string(), line);
    }
}

#[test]
fn a_block_of_16_bytes_both_ways() {
    let bytes: [u8; 17] = core::array::from_fn(|at| at as u8);
    let cdb = Cdb::parse(&bytes).expect("16 bytes and more");
    assert_eq!(cdb.emit(), bytes[..16]);
    assert!(Cdb::parse(&bytes[..15]).is_err());
}
