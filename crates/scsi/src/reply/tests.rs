//! What a device says of itself: lists, capacity, opcodes, sense data on demand.

use block::BlockCount;
use wire::scsi::SenseKey;

use super::*;
use crate::fixtures::{facts, unit};
use crate::{Attentions, Work, judge, judge_absent};

fn ask(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    ask_of(cdb, &unit())
}

fn ask_of(cdb: &Cdb, unit: &LogicalUnit) -> Result<Vec<u8>, Sense> {
    assert_eq!(judge(cdb, unit), Ok(Work::Reply), "{cdb}");
    reply(cdb, Some(unit), &facts(&[0, 5, 300]))
}

#[test]
fn luns_are_reported_whatever_unit_is_asked() {
    let cdb = Cdb::report_luns(4096);
    let list = LunList(vec![Lun::of(0), Lun::of(5), Lun::of(300)]);
    assert_eq!(ask(&cdb), Ok(list.emit()));
    assert_eq!(judge_absent(&cdb), Ok(Work::Reply));
    assert_eq!(reply(&cdb, None, &facts(&[0, 5, 300])), Ok(list.emit()));
}

#[test]
fn there_are_no_well_known_units() {
    let mut cdb = Cdb::report_luns(4096);
    cdb.0[2] = 1;
    assert_eq!(ask(&cdb), Ok(vec![0; 8]));
    cdb.0[2] = 2;
    assert_eq!(ask(&cdb).map(|data| data.len()), Ok(32));
    cdb.0[2] = 3;
    assert_eq!(ask(&cdb), Err(Sense::invalid_field(2, 7)));
}

#[test]
fn what_is_longer_than_its_allocation_is_cut_and_says_how_long_it_is() {
    for length in 0..40 {
        let data = ask(&Cdb::report_luns(length)).expect("cut");
        assert_eq!(data.len(), length.min(32) as usize);
        if length >= 8 {
            assert_eq!(LunList::length(&data), Ok(24));
        }
        let data = ask(&Cdb::read_capacity_16(length)).expect("cut");
        assert_eq!(data.len(), length.min(32) as usize);
    }
}

#[test]
fn the_capacity_is_the_last_block() {
    let data = ask(&Cdb::read_capacity_10()).expect("data");
    assert_eq!(data, [0, 0x1f, 0xff, 0xff, 0, 0, 2, 0]);
    let capacity = Capacity16::parse(&ask(&Cdb::read_capacity_16(32)).expect("data"));
    let capacity = capacity.expect("a capacity");
    assert_eq!((capacity.last_lba, capacity.block_length), ((1 << 21) - 1, 512));
    assert_eq!(capacity.physical_exponent, 3);
    assert!(capacity.provisioning.managed() && capacity.provisioning.reads_zeros());
    assert_eq!(capacity.protection.0, 0, "no protection information");
}

#[test]
fn a_large_unit_is_left_to_the_longer_command() {
    let large = LogicalUnit { blocks: BlockCount(1 << 32), ..unit() };
    assert_eq!(ask_of(&Cdb::read_capacity_10(), &large).expect("data")[..4], [0xff; 4]);
    let data = ask_of(&Cdb::read_capacity_16(32), &large).expect("data");
    assert_eq!(data[..8], [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn a_unit_that_unmaps_nothing_does_not_say_that_it_is_thin() {
    let thick = LogicalUnit { discards: false, ..unit() };
    assert_eq!(ask_of(&Cdb::read_capacity_16(32), &thick).expect("data")[14..16], [0, 0]);
    let no_zeros = LogicalUnit { discard_zeroes: false, ..unit() };
    assert_eq!(ask_of(&Cdb::read_capacity_16(32), &no_zeros).expect("data")[14], 0x80);
}

#[test]
fn sense_on_demand_is_what_waits_in_the_format_that_is_asked_for() {
    assert_eq!(ask(&Cdb::request_sense(false, 252)), Ok(Sense::NONE.emit(false)));
    assert_eq!(ask(&Cdb::request_sense(true, 252)), Ok(Sense::NONE.emit(true)));
    let reset = Sense::attention(AdditionalSense::POWER_ON);
    let mut attentions = Attentions::default();
    attentions.raise(5, reset);
    let cdb = Cdb::request_sense(false, 18);
    assert_eq!(attentions.take(5, cdb.opcode()), None);
    let facts = Facts { pending: attentions.take_as_data(5), ..facts(&[5]) };
    assert_eq!(reply(&cdb, Some(&unit()), &facts), Ok(reset.emit(false)));
    assert!(attentions.is_empty());
}

#[test]
fn sense_on_demand_of_an_absent_unit_says_that_there_is_none() {
    let cdb = Cdb::request_sense(false, 18);
    assert_eq!(judge_absent(&cdb), Ok(Work::Reply));
    let sense = Sense::parse(&reply(&cdb, None, &facts(&[])).expect("data")).expect("sense");
    assert_eq!((sense.key, sense.code.0), (SenseKey::ILLEGAL_REQUEST, 0x2500));
}

#[test]
fn everything_else_of_an_absent_unit_is_refused() {
    for cdb in [Cdb::test_unit_ready(), Cdb::read_10(0, 1), Cdb::read_capacity_16(32)] {
        let sense = judge_absent(&cdb).expect_err("no unit");
        assert_eq!(sense.code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED, "{cdb}");
        let sense = reply(&cdb, None, &facts(&[])).expect_err("no unit");
        assert_eq!(sense.code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED, "{cdb}");
    }
}

#[test]
fn each_command_of_the_list_is_reported_alone_and_by_the_right_option() {
    let data = ask(&Cdb::report_opcodes(false, u16::MAX.into())).expect("data");
    let all = AllCommands::parse(&data).expect("a list").0;
    assert!(all.len() > 30, "{} commands", all.len());
    for (row, timeouts) in all {
        assert_eq!(timeouts, None);
        let has_action = row.flags.has_service_action();
        let action = has_action.then_some(row.action);
        let cdb = Cdb::report_opcode(row.opcode, action, 100);
        let one = OneCommand::parse(&ask(&cdb).expect("data")).expect("a command");
        assert_eq!(one.support, Support::SUPPORTED, "{}", row.opcode);
        assert_eq!(one.usage.len(), usize::from(row.cdb_length));
        assert_eq!(one.usage[0], row.opcode.0);
        let other = if has_action { None } else { Some(0) };
        let cdb = Cdb::report_opcode(row.opcode, other, 100);
        assert_eq!(ask(&cdb), Err(Sense::invalid_field(2, 2)), "{}", row.opcode);
        let mut either = Cdb::report_opcode(row.opcode, Some(row.action), 100);
        either.0[2] = 3;
        assert_eq!(ask(&either), Ok(one.emit()), "{}", row.opcode);
    }
}

#[test]
fn timeouts_come_with_each_command_if_they_are_asked_for() {
    let data = ask(&Cdb::report_opcodes(true, u16::MAX.into())).expect("data");
    let all = AllCommands::parse(&data).expect("a list").0;
    assert!(all.iter().all(|(_, timeouts)| timeouts.is_some_and(|of_it| of_it.length == 10)));
    let mut cdb = Cdb::report_opcode(OpCode::READ_10, None, 100);
    cdb.0[2] |= 0x80;
    let one = OneCommand::parse(&ask(&cdb).expect("data")).expect("a command");
    assert!(one.timeouts.is_some());
}

#[test]
fn a_command_that_is_not_there_is_reported_as_such() {
    for (opcode, action) in [
        (OpCode::FORMAT_UNIT, None),
        (OpCode::PERSISTENT_RESERVE_IN, Some(4)),
        (OpCode::MAINTENANCE_IN, Some(0x0d)),
        (OpCode::MAINTENANCE_OUT, Some(0x0a)),
        (OpCode::SERVICE_ACTION_IN_16, Some(0x11)),
    ] {
        let data = ask(&Cdb::report_opcode(opcode, action, 100)).expect("data");
        assert_eq!(data, [0, 1, 0, 0], "{opcode}");
    }
    let mut cdb = Cdb::report_opcodes(false, 100);
    cdb.0[2] = 4;
    assert_eq!(ask(&cdb), Err(Sense::invalid_field(2, 2)));
    cdb = Cdb::report_opcode(OpCode::READ_10, Some(1), 100);
    cdb.0[2] = 3;
    assert_eq!(ask(&cdb), Ok(vec![0, 1, 0, 0]));
}

#[test]
fn dpo_and_fua_are_reported_where_they_are_allowed() {
    for opcode in [
        OpCode::READ_10,
        OpCode::READ_12,
        OpCode::READ_16,
        OpCode::WRITE_10,
        OpCode::WRITE_12,
        OpCode::WRITE_16,
        OpCode::COMPARE_AND_WRITE,
        OpCode::ORWRITE_16,
    ] {
        let data = ask(&Cdb::report_opcode(opcode, None, 100)).expect("data");
        let usage = OneCommand::parse(&data).expect("a command").usage;
        assert_eq!(usage[1] & 0xf8, 0x18, "{opcode}");
    }
}

#[test]
fn a_unit_that_unmaps_nothing_does_not_report_that_it_could() {
    let thick = LogicalUnit { discards: false, ..unit() };
    let one = |opcode| {
        let data = ask_of(&Cdb::report_opcode(opcode, None, 100), &thick).expect("data");
        OneCommand::parse(&data).expect("a command")
    };
    assert_eq!(one(OpCode::UNMAP).support, Support::NOT_SUPPORTED);
    assert_eq!(one(OpCode::WRITE_SAME_10).usage[1], 0);
    assert_eq!(one(OpCode::WRITE_SAME_16).usage[1], 1);
}
