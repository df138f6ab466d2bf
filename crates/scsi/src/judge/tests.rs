//! Which work commands are, and each rule by which one is refused.

use block::BlockSize;
use reservation::Access;

use super::*;
use crate::Payload;
use crate::fixtures::unit;
use crate::unit::ModeState;

/// Blocks of [`unit`].
const BLOCKS: u64 = 1 << 21;

fn cdb(opcode: OpCode, flags: u8, lba: u64, blocks: u32) -> Cdb {
    let mut cdb = Cdb::new(opcode);
    cdb.0[1] = flags;
    match cdb.length() {
        6 => {
            cdb.0[1..4].copy_from_slice(&(lba as u32).to_be_bytes()[1..]);
            cdb.0[4] = blocks as u8;
        }
        10 => {
            cdb.0[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            cdb.0[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        }
        12 => {
            cdb.0[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            cdb.0[6..10].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb.0[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb.0[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    if opcode == OpCode::COMPARE_AND_WRITE {
        cdb.0[10..14].copy_from_slice(&[0, 0, 0, blocks as u8]);
    }
    cdb
}

/// Commands on blocks that move them, but for those of 6 bytes.
const TRANSFERS: [OpCode; 15] = [
    OpCode::READ_10,
    OpCode::READ_12,
    OpCode::READ_16,
    OpCode::WRITE_10,
    OpCode::WRITE_12,
    OpCode::WRITE_16,
    OpCode::WRITE_AND_VERIFY_10,
    OpCode::WRITE_AND_VERIFY_12,
    OpCode::WRITE_AND_VERIFY_16,
    OpCode::VERIFY_10,
    OpCode::VERIFY_12,
    OpCode::VERIFY_16,
    OpCode::COMPARE_AND_WRITE,
    OpCode::ORWRITE_16,
    OpCode::READ_16,
];

/// Those that change blocks.
const CHANGES: [OpCode; 11] = [
    OpCode::WRITE_6,
    OpCode::WRITE_10,
    OpCode::WRITE_12,
    OpCode::WRITE_16,
    OpCode::WRITE_AND_VERIFY_10,
    OpCode::WRITE_AND_VERIFY_12,
    OpCode::WRITE_AND_VERIFY_16,
    OpCode::COMPARE_AND_WRITE,
    OpCode::ORWRITE_16,
    OpCode::WRITE_SAME_10,
    OpCode::WRITE_SAME_16,
];

fn code(cdb: &Cdb) -> AdditionalSense {
    judge(cdb, &unit()).expect_err("refused").code
}

#[test]
fn commands_are_work_on_extents_of_the_volume() {
    let extent = Extent::new(4096, 1024);
    for (opcode, work) in [
        (OpCode::READ_6, Work::Read(extent)),
        (OpCode::READ_10, Work::Read(extent)),
        (OpCode::READ_12, Work::Read(extent)),
        (OpCode::READ_16, Work::Read(extent)),
        (OpCode::WRITE_6, Work::Write(extent, false)),
        (OpCode::WRITE_10, Work::Write(extent, false)),
        (OpCode::WRITE_12, Work::Write(extent, false)),
        (OpCode::WRITE_16, Work::Write(extent, false)),
        (OpCode::WRITE_AND_VERIFY_10, Work::WriteAndVerify(extent)),
        (OpCode::WRITE_AND_VERIFY_12, Work::WriteAndVerify(extent)),
        (OpCode::WRITE_AND_VERIFY_16, Work::WriteAndVerify(extent)),
        (OpCode::VERIFY_10, Work::Verify(extent)),
        (OpCode::VERIFY_12, Work::Verify(extent)),
        (OpCode::VERIFY_16, Work::Verify(extent)),
        (OpCode::COMPARE_AND_WRITE, Work::CompareAndWrite(extent, false)),
        (OpCode::ORWRITE_16, Work::OrWrite(extent, false)),
        (OpCode::WRITE_SAME_10, Work::WriteSame { extent, deallocate: false, block: 512 }),
        (OpCode::WRITE_SAME_16, Work::WriteSame { extent, deallocate: false, block: 512 }),
        (OpCode::PRE_FETCH_10, Work::Prefetch(extent)),
        (OpCode::PRE_FETCH_16, Work::Prefetch(extent)),
        (OpCode::SYNCHRONIZE_CACHE_10, Work::Flush),
        (OpCode::SYNCHRONIZE_CACHE_16, Work::Flush),
    ] {
        assert_eq!(judge(&cdb(opcode, 0, 8, 2), &unit()), Ok(work), "{opcode}");
    }
}

#[test]
fn no_blocks_of_six_bytes_are_256() {
    let extent = Extent::new(0, 256 * 512);
    assert_eq!(judge(&cdb(OpCode::READ_6, 0, 0, 0), &unit()), Ok(Work::Read(extent)));
    assert_eq!(judge(&cdb(OpCode::WRITE_6, 0, 0, 0), &unit()), Ok(Work::Write(extent, false)));
}

#[test]
fn fua_is_durable_and_dpo_a_hint() {
    let extent = Extent::new(0, 512);
    for (opcode, work) in [
        (OpCode::WRITE_10, Work::Write(extent, true)),
        (OpCode::WRITE_12, Work::Write(extent, true)),
        (OpCode::WRITE_16, Work::Write(extent, true)),
        (OpCode::ORWRITE_16, Work::OrWrite(extent, true)),
        (OpCode::COMPARE_AND_WRITE, Work::CompareAndWrite(extent, true)),
        (OpCode::READ_10, Work::Read(extent)),
        (OpCode::READ_12, Work::Read(extent)),
        (OpCode::READ_16, Work::Read(extent)),
    ] {
        assert_eq!(judge(&cdb(opcode, 0x18, 0, 1), &unit()), Ok(work), "{opcode}");
    }
    for opcode in [OpCode::VERIFY_10, OpCode::WRITE_AND_VERIFY_12] {
        assert!(judge(&cdb(opcode, 0x10, 0, 1), &unit()).is_ok(), "{opcode}");
    }
}

#[test]
fn a_transfer_beyond_the_end_is_refused() {
    for opcode in TRANSFERS.into_iter().chain(CHANGES) {
        if opcode == OpCode::WRITE_6 {
            continue;
        }
        assert!(judge(&cdb(opcode, 0, BLOCKS - 1, 1), &unit()).is_ok(), "{opcode}");
        for (lba, blocks) in [(BLOCKS - 1, 2), (BLOCKS, 1), (1 << 31, 1), (0xffff_ffff, 2)] {
            let refused = code(&cdb(opcode, 0, lba, blocks));
            assert_eq!(refused, AdditionalSense::LBA_OUT_OF_RANGE, "{opcode} {lba}");
        }
        if cdb(opcode, 0, 0, 0).length() == 16 {
            let refused = code(&cdb(opcode, 0, u64::MAX, 1));
            assert_eq!(refused, AdditionalSense::LBA_OUT_OF_RANGE, "{opcode}");
        }
    }
    assert_eq!(judge(&Cdb::get_lba_status(BLOCKS - 1, 24), &unit()), Ok(Work::LbaStatus));
    for lba in [BLOCKS, BLOCKS + 1, 1 << 31, u64::MAX] {
        assert_eq!(code(&Cdb::get_lba_status(lba, 24)), AdditionalSense::LBA_OUT_OF_RANGE, "{lba}");
    }
    let refused = judge(&cdb(OpCode::READ_6, 0, 0x1f_ffff, 2), &unit()).expect_err("beyond");
    assert_eq!(refused.code, AdditionalSense::LBA_OUT_OF_RANGE);
}

#[test]
fn a_transfer_of_no_blocks_is_nothing_up_to_the_end_and_refused_behind_it() {
    for opcode in TRANSFERS {
        for lba in [0, BLOCKS - 1, BLOCKS] {
            // Of COMPARE AND WRITE whoever takes the data sees that there must be none.
            let nothing = match opcode {
                OpCode::COMPARE_AND_WRITE => {
                    Work::CompareAndWrite(Extent::new(lba * 512, 0), false)
                }
                _ => Work::Nothing,
            };
            assert_eq!(judge(&cdb(opcode, 0, lba, 0), &unit()), Ok(nothing), "{opcode} {lba}");
        }
        for lba in [BLOCKS + 1, 1 << 31, 0xffff_ffff] {
            let refused = code(&cdb(opcode, 0, lba, 0));
            assert_eq!(refused, AdditionalSense::LBA_OUT_OF_RANGE, "{opcode} {lba}");
        }
    }
}

#[test]
fn protection_information_is_refused() {
    for opcode in TRANSFERS.into_iter().chain(CHANGES) {
        for protect in 1..8 {
            if opcode == OpCode::WRITE_6 {
                continue;
            }
            let refused = judge(&cdb(opcode, protect << 5, 0, 1), &unit());
            assert_eq!(refused, Err(Sense::invalid_field(1, 7)), "{opcode} {protect}");
        }
    }
}

#[test]
fn a_write_protected_unit_takes_no_change() {
    let protected = LogicalUnit { read_only: true, ..unit() };
    let mode = ModeState { software_write_protect: true, descriptor_sense: false };
    let by_host = LogicalUnit { mode, ..unit() };
    for opcode in CHANGES {
        let cdb = cdb(opcode, 0, 0, 1);
        let sense = judge(&cdb, &protected).expect_err("protected");
        assert_eq!((sense.key, sense.code.0), (SenseKey::DATA_PROTECT, 0x2700), "{opcode}");
        let sense = judge(&cdb, &by_host).expect_err("protected");
        assert_eq!((sense.key, sense.code.0), (SenseKey::DATA_PROTECT, 0x2702), "{opcode}");
    }
    let sense = judge(&Cdb::unmap_list(24), &protected).expect_err("protected");
    assert_eq!(sense.code, AdditionalSense::WRITE_PROTECTED);
    assert!(judge(&Cdb::read_10(0, 1), &protected).is_ok());
    assert!(judge(&Cdb::synchronize_cache_10(), &protected).is_ok());
}

#[test]
fn a_transfer_above_the_limit_is_refused_where_its_length_is() {
    let most = TRANSFER_MAX / 512;
    for (opcode, byte) in [
        (OpCode::READ_10, 7),
        (OpCode::WRITE_12, 6),
        (OpCode::READ_16, 10),
        (OpCode::ORWRITE_16, 10),
        (OpCode::VERIFY_12, 6),
    ] {
        assert!(judge(&cdb(opcode, 0, 0, most), &unit()).is_ok(), "{opcode}");
        let refused = judge(&cdb(opcode, 0, 0, most + 1), &unit());
        assert_eq!(refused, Err(Sense::invalid_field(byte, 7)), "{opcode}");
    }
    let large = LogicalUnit { block_size: BlockSize::B4096, ..unit() };
    assert!(judge(&Cdb::read_16(0, 257), &large).is_err());
}

#[test]
fn compare_and_write_takes_twice_its_blocks_and_no_more_than_is_atomic() {
    let most = COMPARE_AND_WRITE_MAX / 512;
    let work = judge(&cdb(OpCode::COMPARE_AND_WRITE, 0, 0, most), &unit()).expect("the most");
    assert_eq!(work.payload(), Payload::FromHost(2 * COMPARE_AND_WRITE_MAX));
    let refused = judge(&cdb(OpCode::COMPARE_AND_WRITE, 0, 0, most + 1), &unit());
    assert_eq!(refused, Err(Sense::invalid_field(13, 7)));
}

#[test]
fn verify_compares_where_it_is_told_to() {
    let extent = Extent::new(0, 512);
    for opcode in [OpCode::VERIFY_10, OpCode::VERIFY_12, OpCode::VERIFY_16] {
        assert_eq!(judge(&cdb(opcode, 0, 0, 1), &unit()), Ok(Work::Verify(extent)));
        assert_eq!(judge(&cdb(opcode, 2, 0, 1), &unit()), Ok(Work::Compare(extent)));
        for flags in [4, 6] {
            let refused = judge(&cdb(opcode, flags, 0, 1), &unit());
            assert_eq!(refused, Err(Sense::invalid_field(1, 2)), "{opcode} {flags}");
        }
    }
    let opcode = OpCode::WRITE_AND_VERIFY_16;
    assert_eq!(judge(&cdb(opcode, 2, 0, 1), &unit()), Ok(Work::WriteAndVerify(extent)));
    assert_eq!(judge(&cdb(opcode, 4, 0, 1), &unit()), Err(Sense::invalid_field(1, 2)));
}

#[test]
fn write_same_takes_one_block_or_none() {
    let most = WRITE_SAME_MAX / 512;
    let extent = Extent::new(0, WRITE_SAME_MAX.into());
    let one = judge(&cdb(OpCode::WRITE_SAME_16, 8, 0, most), &unit()).expect("the most");
    assert_eq!(one, Work::WriteSame { extent, deallocate: true, block: 512 });
    assert_eq!(one.payload(), Payload::FromHost(512));
    let none = judge(&cdb(OpCode::WRITE_SAME_16, 9, 0, most), &unit()).expect("without data");
    assert_eq!(none, Work::WriteZeroes { extent, deallocate: true });
    assert_eq!(none.payload(), Payload::None);
    assert_eq!(one.of_same(&[0; 512]), none, "a block of zeros");
    let mut data = [0; 512];
    data[511] = 1;
    assert_eq!(one.of_same(&data), one);
}

#[test]
fn write_same_is_refused_what_it_cannot_do() {
    for opcode in [OpCode::WRITE_SAME_10, OpCode::WRITE_SAME_16] {
        let flagged = |flags| judge(&cdb(opcode, flags, 0, 1), &unit());
        assert_eq!(flagged(0x10), Err(Sense::invalid_field(1, 4)), "ANCHOR without UNMAP");
        assert_eq!(flagged(0x18), Err(Sense::invalid_field(1, 4)), "ANCHOR");
        assert_eq!(flagged(0x02), Err(Sense::invalid_field(1, 2)), "LBDATA");
        assert_eq!(flagged(0x04), Err(Sense::invalid_field(1, 2)), "PBDATA");
        let thick = LogicalUnit { discards: false, ..unit() };
        let refused = judge(&cdb(opcode, 0x08, 0, 1), &thick);
        assert_eq!(refused, Err(Sense::invalid_field(1, 3)), "UNMAP");
        assert!(judge(&cdb(opcode, 0, 0, 1), &thick).is_ok());
    }
    let refused = judge(&cdb(OpCode::WRITE_SAME_16, 0, 0, WRITE_SAME_MAX / 512 + 1), &unit());
    assert_eq!(refused, Err(Sense::invalid_field(10, 7)), "above the limit");
}

#[test]
fn write_same_of_no_blocks_is_refused_and_behind_the_end_for_that() {
    for (opcode, byte) in [(OpCode::WRITE_SAME_10, 7), (OpCode::WRITE_SAME_16, 10)] {
        for lba in [0, BLOCKS] {
            let refused = judge(&cdb(opcode, 0, lba, 0), &unit());
            assert_eq!(refused, Err(Sense::invalid_field(byte, 7)), "{opcode}");
        }
        for lba in [BLOCKS + 1, 1 << 31, 0xffff_ffff] {
            let refused = code(&cdb(opcode, 0, lba, 0));
            assert_eq!(refused, AdditionalSense::LBA_OUT_OF_RANGE, "{opcode} {lba}");
        }
    }
}

#[test]
fn no_blocks_of_a_prefetch_or_a_flush_are_all_from_there_on() {
    for opcode in [OpCode::PRE_FETCH_10, OpCode::PRE_FETCH_16] {
        let rest = Extent::new(512, (BLOCKS - 1) * 512);
        assert_eq!(judge(&cdb(opcode, 0, 1, 0), &unit()), Ok(Work::Prefetch(rest)));
        assert!(judge(&cdb(opcode, 2, 0, 1), &unit()).is_ok(), "IMMED");
    }
    for opcode in [
        OpCode::PRE_FETCH_10,
        OpCode::PRE_FETCH_16,
        OpCode::SYNCHRONIZE_CACHE_10,
        OpCode::SYNCHRONIZE_CACHE_16,
    ] {
        assert!(judge(&cdb(opcode, 0, 0, 0), &unit()).is_ok(), "{opcode}");
        for (lba, blocks) in [(BLOCKS + 1, 0), (BLOCKS, 1), (1 << 31, 0), (0xffff_ffff, 1)] {
            let refused = code(&cdb(opcode, 0, lba, blocks));
            assert_eq!(refused, AdditionalSense::LBA_OUT_OF_RANGE, "{opcode} {lba}");
        }
    }
}

#[test]
fn unmap_takes_a_list_or_none() {
    assert_eq!(judge(&Cdb::unmap_list(24), &unit()), Ok(Work::Parameters(24)));
    assert_eq!(judge(&Cdb::unmap_list(8), &unit()), Ok(Work::Parameters(8)));
    assert_eq!(judge(&Cdb::unmap_list(0), &unit()), Ok(Work::Nothing));
    assert_eq!(code(&Cdb::unmap_list(7)), AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let mut anchored = Cdb::unmap_list(24);
    anchored.0[1] = 1;
    assert_eq!(judge(&anchored, &unit()), Err(Sense::invalid_field(1, 0)));
    let thick = LogicalUnit { discards: false, ..unit() };
    let refused = judge(&Cdb::unmap_list(24), &thick).expect_err("not there");
    assert_eq!(refused.code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn a_unit_is_ready_and_cannot_be_stopped() {
    assert_eq!(judge(&Cdb::test_unit_ready(), &unit()), Ok(Work::Nothing));
    let start_stop = |flags| {
        let mut cdb = Cdb::new(OpCode::START_STOP_UNIT);
        cdb.0[4] = flags;
        judge(&cdb, &unit())
    };
    assert_eq!(start_stop(1), Ok(Work::Nothing));
    assert_eq!(start_stop(0), Ok(Work::Flush), "a stop makes durable");
    assert_eq!(start_stop(4), Ok(Work::Nothing), "unless it is told not to");
    assert_eq!(start_stop(0x10), Err(Sense::invalid_field(4, 7)), "a power condition");
}

#[test]
fn naca_is_refused_where_control_is() {
    for (mut cdb, byte) in [
        (Cdb::test_unit_ready(), 5),
        (Cdb::read_10(0, 1), 9),
        (Cdb::write_16(0, 1, false), 15),
        (Cdb::new(OpCode::READ_12), 11),
        (Cdb::new(OpCode(0xc0)), 15),
    ] {
        cdb.0[usize::from(byte)] = 4;
        assert_eq!(judge(&cdb, &unit()), Err(Sense::invalid_field(byte, 2)), "{cdb}");
    }
    let mut cdb = Cdb::inquiry(96);
    cdb.0[5] = 4;
    assert_eq!(judge_absent(&cdb), Err(Sense::invalid_field(5, 2)));
}

#[test]
fn commands_that_are_not_there_are_refused() {
    for opcode in [
        OpCode::FORMAT_UNIT,
        OpCode::PREVENT_ALLOW_MEDIUM_REMOVAL,
        OpCode::SANITIZE,
        OpCode::WRITE_ATOMIC_16,
        OpCode::MAINTENANCE_OUT,
        OpCode::VARIABLE_LENGTH,
        OpCode(0xff),
    ] {
        let refused = code(&Cdb::new(opcode));
        assert_eq!(refused, AdditionalSense::INVALID_COMMAND_OPERATION_CODE, "{opcode}");
    }
    for action in [ServiceAction::REPORT_SUPPORTED_TASK_MANAGEMENT, ServiceAction(0x9e11)] {
        let refused = code(&Cdb::with_action(action));
        assert_eq!(refused, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    }
}

#[test]
fn a_payload_begins_where_the_volumes_pages_do() {
    let work = judge(&Cdb::read_10(9, 1), &unit()).expect("work");
    assert_eq!((work.phase(), work.payload()), (512, Payload::ToHost(512)));
    let work = judge(&cdb(OpCode::WRITE_SAME_10, 0, 9, 1), &unit()).expect("work");
    assert_eq!(work.phase(), 0);
}

#[test]
fn reservations_look_at_what_a_command_does() {
    let access = |cdb: &Cdb| judge(cdb, &unit()).expect("work").access(cdb);
    for opcode in [OpCode::READ_6, OpCode::READ_10, OpCode::VERIFY_16, OpCode::PRE_FETCH_10] {
        assert_eq!(access(&cdb(opcode, 0, 0, 1)), Some(Access::Read), "{opcode}");
    }
    assert_eq!(access(&cdb(OpCode::VERIFY_10, 2, 0, 1)), Some(Access::Read));
    assert_eq!(access(&Cdb::get_lba_status(0, 24)), Some(Access::Read));
    for opcode in CHANGES.into_iter().chain([OpCode::SYNCHRONIZE_CACHE_10]) {
        assert_eq!(access(&cdb(opcode, 0, 0, 1)), Some(Access::Write), "{opcode}");
    }
    for cdb in [
        Cdb::unmap_list(24),
        Cdb::mode_select_6(24),
        Cdb::mode_sense_6(0x3f, false, 255),
        Cdb::report_opcodes(false, 255),
        Cdb::new(OpCode::START_STOP_UNIT),
    ] {
        assert_eq!(access(&cdb), Some(Access::Write), "{cdb}");
    }
    for cdb in [Cdb::inquiry(96), Cdb::report_luns(16), Cdb::request_sense(false, 18)] {
        assert_eq!(access(&cdb), None, "{cdb}");
    }
    let mut start = Cdb::new(OpCode::START_STOP_UNIT);
    start.0[4] = 1;
    for cdb in [Cdb::test_unit_ready(), Cdb::read_capacity_10(), Cdb::read_capacity_16(32), start] {
        assert_eq!(access(&cdb), Some(Access::Other), "{cdb}");
    }
}

#[test]
fn a_transfer_of_no_blocks_meets_the_reservation_of_its_command() {
    for (opcode, access) in [
        (OpCode::READ_10, Access::Read),
        (OpCode::READ_16, Access::Read),
        (OpCode::VERIFY_12, Access::Read),
        (OpCode::WRITE_10, Access::Write),
        (OpCode::COMPARE_AND_WRITE, Access::Write),
    ] {
        let cdb = cdb(opcode, 0, 0, 0);
        let work = judge(&cdb, &unit()).expect("nothing");
        assert_eq!(work.access(&cdb), Some(access), "{opcode}");
    }
}
