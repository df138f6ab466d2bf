//! Which commands requests become, as the unit has them, and what it says of itself in answer to
//! them: against a target that the test plays.

use core::time::Duration;

use block::{Extent, Failure, Memory, Operation, Outcome};
use wire::iscsi::{Digests, Pdu};
use wire::scsi::provisioning::UnmapList;
use wire::scsi::{AdditionalSense, ByteCheck, OpCode, ScsiStatus, Sense, SenseKey};

use super::fixtures::BOTH;
use super::played::{Played, USUAL, Unit};
use crate::initiator::InitiatorNews;

#[test]
fn a_read_beyond_32_bits_of_blocks_has_16_bytes() {
    let mut played = Played::new(Digests::NONE);
    played.unit.blocks = 1 << 40;
    played.bring_up(USUAL);
    let extent = Extent::new(512 << 32, 512);
    let buffer = block::Buffer::reserved(512, 0);
    played.ask(1, Operation::Read { extent, buffer });
    let (cdb, ..) = played.hear_command();
    assert_eq!((cdb.opcode(), cdb.lba(), cdb.blocks()), (OpCode::READ_16, 1 << 32, 1));
}

#[test]
fn a_durable_write_says_fua_or_is_flushed_behind() {
    for (write_cache, dpo_fua, fua, flushed) in [
        (true, true, true, false),
        (true, false, false, true),
        (false, false, false, false),
        (false, true, true, false),
    ] {
        let mut played = Played::new(Digests::NONE);
        played.unit = Unit { write_cache, dpo_fua, ..Unit::default() };
        played.bring_up(USUAL);
        played.write(1, &[1; 512], true);
        let (cdb, tag, _) = played.hear_command();
        assert_eq!(cdb.fua(), fua, "{write_cache} {dpo_fua}");
        played.end(tag, ScsiStatus::GOOD, None);
        assert_eq!(played.done().is_none(), flushed);
        if flushed {
            let (cdb, again, _) = played.hear_command();
            assert_eq!(cdb.opcode(), OpCode::SYNCHRONIZE_CACHE_10);
            assert_ne!(tag, again);
            played.end(again, ScsiStatus::GOOD, None);
            assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
        }
    }
}

#[test]
fn a_write_whose_flush_fails_is_not_done() {
    let mut played = Played::new(Digests::NONE);
    played.unit.dpo_fua = false;
    played.bring_up(USUAL);
    let extent = Extent::new(0, 4096);
    played.ask(1, Operation::WriteZeroes { extent, deallocate: false, durable: true });
    let (cdb, tag, data) = played.hear_command();
    assert_eq!((cdb.opcode(), data.len()), (OpCode::WRITE_SAME_16, 0));
    played.end(tag, ScsiStatus::GOOD, None);
    let (_, tag, _) = played.hear_command();
    let sense = Sense::new(SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR);
    played.refuse(tag, sense);
    let outcome = played.done().map(|done| done.outcome);
    assert_eq!(outcome, Some(Outcome::NotDone(Failure::MediumWrite)));
}

#[test]
fn zeroes_are_written_as_the_unit_can() {
    for (usage, unmaps, ndob, unmap) in [
        (Some(0x09), true, true, true),
        (Some(0x08), true, false, true),
        (None, true, false, true),
        (Some(0x01), false, true, false),
    ] {
        let mut played = Played::new(BOTH);
        let flags = played.unit.provisioning.with_write_same_16(unmaps);
        (played.unit.write_same, played.unit.provisioning) = (usage, flags);
        played.bring_up(USUAL);
        let extent = Extent::new(1024, 4096);
        played.ask(1, Operation::WriteZeroes { extent, deallocate: true, durable: false });
        let (cdb, tag, data) = played.hear_command();
        assert_eq!((cdb.opcode(), cdb.lba(), cdb.blocks()), (OpCode::WRITE_SAME_16, 2, 8));
        assert_eq!((cdb.ndob(), cdb.unmap()), (ndob, unmap), "{usage:?}");
        assert_eq!(data, vec![0; if ndob { 0 } else { 512 }]);
        played.end(tag, ScsiStatus::GOOD, None);
        assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
    }
}

#[test]
fn a_discard_is_an_unmap_or_a_write_same_for_each_run() {
    let extents = || vec![Extent::new(512, 4096), Extent::new(100, 200), Extent::new(65_536, 512)];
    let mut played = Played::live(BOTH, USUAL);
    played.ask(1, Operation::Discard { extents: extents() });
    let (cdb, tag, data) = played.hear_command();
    assert_eq!(cdb.opcode(), OpCode::UNMAP);
    let list = UnmapList::parse(&data).expect("a list").0;
    let ranges: Vec<_> = list.iter().map(|range| (range.lba, range.blocks)).collect();
    assert_eq!(ranges, [(1, 8), (128, 1)]);
    played.end(tag, ScsiStatus::GOOD, None);
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
    let mut played = Played::new(Digests::NONE);
    played.unit.provisioning = played.unit.provisioning.with_unmap(false);
    played.unit.limits.write_same_max = 5;
    played.bring_up(USUAL);
    played.ask(1, Operation::Discard { extents: extents() });
    for (lba, blocks) in [(1, 5), (6, 3), (128, 1)] {
        let (cdb, tag, _) = played.hear_command();
        assert_eq!((cdb.opcode(), cdb.lba(), cdb.blocks()), (OpCode::WRITE_SAME_16, lba, blocks));
        assert!(cdb.unmap());
        played.end(tag, ScsiStatus::GOOD, None);
    }
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
}

#[test]
fn an_unmap_has_no_more_ranges_and_blocks_than_the_unit_takes() {
    let mut played = Played::new(Digests::NONE);
    played.unit.limits.unmap_blocks_max = 10;
    played.unit.limits.unmap_descriptors_max = 2;
    played.bring_up(USUAL);
    let extents = [(0, 4096), (8192, 4096), (16_384, 512)];
    let extents = extents.map(|(offset, length)| Extent::new(offset, length)).to_vec();
    played.ask(1, Operation::Discard { extents });
    for expected in [&[(0, 8), (16, 2)][..], &[(18, 6), (32, 1)]] {
        let (_, tag, data) = played.hear_command();
        let list = UnmapList::parse(&data).expect("a list").0;
        let ranges: Vec<_> = list.iter().map(|range| (range.lba, range.blocks)).collect();
        assert_eq!(ranges, expected);
        played.end(tag, ScsiStatus::GOOD, None);
    }
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
}

#[test]
fn compare_and_verify_are_verify_with_and_without_data() {
    let mut played = Played::live(Digests::NONE, USUAL);
    let mut buffer = block::Buffer::reserved(512, 0);
    played.memory.write(&mut buffer, 0, &[7; 512]);
    played.ask(1, Operation::Compare { extent: Extent::new(512, 512), buffer });
    let (cdb, tag, data) = played.hear_command();
    assert_eq!((cdb.opcode(), cdb.byte_check()), (OpCode::VERIFY_16, ByteCheck::COMPARE));
    assert_eq!(data, [7; 512]);
    let differs = AdditionalSense::MISCOMPARE_DURING_VERIFY;
    played.refuse(tag, Sense::new(SenseKey::MISCOMPARE, differs));
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Miscompare(0)));
    played.ask(2, Operation::Verify { extent: Extent::new(0, 4096) });
    let (cdb, tag, data) = played.hear_command();
    assert_eq!((cdb.opcode(), cdb.byte_check()), (OpCode::VERIFY_16, ByteCheck::MEDIUM));
    assert_eq!((cdb.blocks(), data.len()), (8, 0));
    played.refuse(tag, Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    let outcome = played.done().map(|done| done.outcome);
    assert_eq!(outcome, Some(Outcome::NotDone(Failure::Unsupported)));
}

#[test]
fn what_is_not_now_is_asked_again_after_a_rest() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[3; 512], false);
    for status in [ScsiStatus::BUSY, ScsiStatus::TASK_SET_FULL, ScsiStatus::TASK_ABORTED] {
        let (_, tag, _) = played.hear_command();
        played.end(tag, status, None);
        assert!(played.is_quiet(), "it rests");
        played.pass(played.now + Duration::from_millis(200));
    }
    let (_, tag, data) = played.hear_command();
    assert_eq!(data, [3; 512]);
    played.end(tag, ScsiStatus::GOOD, None);
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
}

#[test]
fn a_target_without_room_is_asked_for_as_long_as_requests_have_time() {
    let mut played = Played::live(Digests::NONE, USUAL);
    (0..3).for_each(|slot| played.write_at(slot, u64::from(slot) * 4096, &[slot as u8; 512]));
    let until = played.now + Duration::from_secs(20);
    let mut rounds = 0;
    while played.now < until {
        while !played.is_quiet() {
            let (_, tag, _) = played.hear_command();
            played.end(tag, ScsiStatus::TASK_SET_FULL, None);
        }
        rounds += 1;
        played.pass(played.now + Duration::from_millis(64));
        played.answer_pings();
    }
    assert!(rounds > 100 && played.done().is_none(), "{rounds}");
    let mut order = Vec::new();
    for _ in 0..3 {
        let (cdb, tag, _) = played.hear_command();
        order.push(cdb.lba());
        played.end(tag, ScsiStatus::GOOD, None);
    }
    assert_eq!(order, [0, 8, 16], "in the order of their arrival");
    assert_eq!(core::iter::from_fn(|| played.done()).count(), 3);
}

#[test]
fn a_unit_that_changed_is_asked_who_it_is_before_it_gets_commands() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[1; 512], false);
    played.ask(2, Operation::Flush);
    let (_, write, _) = played.hear_command();
    let (_, flush, _) = played.hear_command();
    played.unit.blocks = 16_384;
    played.refuse(write, Sense::attention(AdditionalSense::CAPACITY_DATA_CHANGED));
    played.pass(played.now + Duration::from_millis(100));
    assert!(played.is_quiet(), "what was sent before is awaited");
    played.end(flush, ScsiStatus::GOOD, None);
    let (cdb, tag, _) = played.hear_command();
    assert_eq!(cdb.opcode(), OpCode::INQUIRY);
    played.answer_question(cdb, tag);
    while let (cdb, tag, _) = played.hear_command()
        && cdb.opcode() != OpCode::WRITE_10
    {
        played.answer_question(cdb, tag);
        assert!(played.done().is_none_or(|done| done.ticket.slot == 2));
    }
    assert_eq!(played.news, [InitiatorNews::Connected, InitiatorNews::FactsChanged]);
    assert_eq!(played.initiator.facts().expect("facts").size.0, 16_384 * 512);
}

#[test]
fn what_changes_while_it_is_asked_is_asked_from_the_start() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    played.log_in(USUAL);
    let mut asked = Vec::new();
    while let Some((Pdu::ScsiCommand(command), _)) = played.hear_any() {
        let cdb = wire::scsi::Cdb(command.cdb);
        asked.push(cdb.opcode());
        if cdb.opcode() == OpCode::MODE_SENSE_6 && played.unit.blocks == 8192 {
            played.unit.blocks = 9000;
            let changed = Sense::attention(AdditionalSense::CAPACITY_DATA_CHANGED);
            played.refuse(command.initiator_task_tag, changed);
        } else {
            played.answer_question(cdb, command.initiator_task_tag);
        }
    }
    assert_eq!(asked.iter().filter(|opcode| **opcode == OpCode::SERVICE_ACTION_IN_16).count(), 2);
    assert_eq!(played.initiator.facts().expect("facts").size.0, 9000 * 512);
}

#[test]
fn a_restart_of_the_unit_makes_the_next_flush_fail_if_it_may_have_lost_something() {
    let mut played = Played::live(Digests::NONE, USUAL);
    played.write(1, &[1; 512], false);
    let (_, tag, _) = played.hear_command();
    played.end(tag, ScsiStatus::GOOD, None);
    assert_eq!(played.done().map(|done| done.outcome), Some(Outcome::Done));
    played.read(2, 512);
    let (_, tag, _) = played.hear_command();
    played.refuse(tag, Sense::attention(AdditionalSense::POWER_ON));
    played.identify();
    played.ask(3, Operation::Flush);
    let outcome = played.done().map(|done| done.outcome);
    assert_eq!(outcome, Some(Outcome::NotDone(Failure::MediumWrite)));
}
