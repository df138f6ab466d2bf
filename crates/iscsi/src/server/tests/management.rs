//! Task management: which tasks a function ends, that it is answered when nothing of them can reach the
//! media any more, and that they are not answered themselves. Spec: RFC 7143, 11.5, 11.6.

use block::Class;
use wire::iscsi::{RESERVED_TAG, TaskFunction, TaskResponse};
use wire::scsi::{AdditionalSense, Cdb, Lun, ScsiStatus, SenseKey};

use super::memory::{give, hog};
use super::world::{Order, Said, World, flush, pattern, read, refused, target, write};
use crate::fixtures::name;
use crate::server::Reason;
use crate::target::Hosts;
use crate::targets::CloseReason;

const ABORT: TaskFunction = TaskFunction::ABORT_TASK;
const DONE: TaskResponse = TaskResponse::COMPLETE;

fn lun(number: u16) -> [u8; 8] {
    Lun::of(number).0
}

/// Sends a function on link 0; nothing is awaited.
fn manage(world: &mut World, function: TaskFunction, lun: [u8; 8], task: Option<u32>) {
    let (_, bytes) = world.links[0].host.manage(function, lun, task, ());
    world.send(0, &bytes);
}

/// The same, and what is answered at once.
fn managed(
    world: &mut World,
    function: TaskFunction,
    lun: [u8; 8],
    task: Option<u32>,
) -> TaskResponse {
    manage(world, function, lun, task);
    world.said_one(0).management()
}

#[test]
fn a_task_that_is_below_ends_when_it_comes_back_and_is_not_answered() {
    for order in [read(0, 4096), flush(), write(0, 4096)] {
        let mut world = World::connected(Default::default());
        world.hold_requests = true;
        let data = if order.flags.is_write() { pattern(4096, 1) } else { Vec::new() };
        let tag = world.command(0, order, &data);
        manage(&mut world, ABORT, lun(0), Some(tag));
        assert_eq!(world.said(0), [], "it is below");
        world.hold_requests = false;
        world.run();
        assert_eq!(world.said_one(0).management(), DONE);
        assert_eq!(world.log.len(), 1);
        assert!(!world.links[0].host.asked.contains_key(&tag));
        assert!(world.lives());
    }
}

#[test]
fn a_task_that_waits_for_memory_ends_at_once() {
    let mut world = World::connected(Default::default());
    let held = hog(&mut world, Class::Transfer, 4096);
    let (first, second) =
        (world.command(0, read(0, 4096), &[]), world.command(0, write(0, 65_536), &[]));
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(first)), DONE);
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(second)), DONE);
    assert!(world.log.is_empty());
    // Whoever stood behind them goes on.
    world.command(0, read(8, 512), &[]);
    give(&mut world, held);
    assert!(!world.wake(0));
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["read"]);
}

#[test]
fn a_task_whose_data_were_asked_for_ends_at_once_and_they_are_passed_over() {
    let mut world = World::connected(Default::default());
    let data = pattern(65_536, 1);
    let r2t = world.ask(write(0, 65_536), &[]).r2t();
    let bytes = world.links[0].host.give(&r2t, 0, &data[..4096]);
    world.send(0, &bytes);
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(r2t.initiator_task_tag)), DONE);
    assert_eq!(world.links[0].connection.pages(), 0, "its memory is back");
    for at in [4096, 8192, 60_000] {
        let bytes = world.links[0].host.give(&r2t, at, &data[at as usize..][..5536]);
        world.send(0, &bytes);
    }
    assert!(world.log.is_empty() && world.lives());
}

/// The next task may have the slot of one that was aborted, and never its data.
#[test]
fn late_data_of_an_aborted_task_never_reach_another() {
    let mut world = World::connected(Default::default());
    let old = world.ask(write(0, 65_536), &[]).r2t();
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(old.initiator_task_tag)), DONE);
    let r2t = world.ask(write(0, 65_536), &[]).r2t();
    assert_ne!(r2t.target_transfer_tag, old.target_transfer_tag);
    let late = world.links[0].host.give_all(&old, &pattern(65_536, 1), u32::MAX);
    world.send(0, &late);
    assert_eq!(world.said(0), []);
    let data = pattern(65_536, 2);
    assert_eq!(world.granted(&r2t, &data, u32::MAX).status(), ScsiStatus::GOOD);
    assert!(world.volumes[0][..65_536] == data[..]);
}

#[test]
fn a_task_whose_data_follow_unasked_ends_at_once_and_they_are_passed_over() {
    let mut world = World::connected(Default::default());
    let tag = world.command(0, write(0, 8192).unfinished(), &pattern(512, 1));
    let late = world.links[0].host.unasked(tag, 512, &pattern(7680, 1), true);
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(tag)), DONE);
    world.send(0, &late);
    assert_eq!(world.said(0), []);
    assert!(world.log.is_empty() && world.lives());
    // The same of one that can only fail.
    let tag = world.command(0, write(u32::MAX, 8192).unfinished(), &pattern(512, 1));
    let late = world.links[0].host.unasked(tag, 512, &pattern(7680, 1), true);
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(tag)), DONE);
    world.send(0, &late);
    assert_eq!(world.said(0), []);
    assert!(world.lives());
}

#[test]
fn a_task_that_is_not_there_or_is_of_another_unit_is_not_found() {
    let mut world = World::connected(Default::default());
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(77)), TaskResponse::NO_SUCH_TASK);
    assert_eq!(managed(&mut world, ABORT, lun(0), None), TaskResponse::NO_SUCH_TASK);
    let done = world.command(0, read(0, 512), &[]);
    world.said(0);
    assert_eq!(managed(&mut world, ABORT, lun(0), Some(done)), TaskResponse::NO_SUCH_TASK);
    world.hold_requests = true;
    world.links[0].host.lenient = true;
    let tag = world.command(0, read(0, 512), &[]);
    assert_eq!(managed(&mut world, ABORT, lun(300), Some(tag)), TaskResponse::NO_SUCH_TASK);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
}

#[test]
fn a_task_that_is_aborted_twice_ends_once() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let tag = world.command(0, flush(), &[]);
    manage(&mut world, ABORT, lun(0), Some(tag));
    manage(&mut world, ABORT, lun(0), Some(tag));
    assert_eq!(world.said(0), []);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert_eq!(said.iter().map(Said::management).collect::<Vec<_>>(), [DONE, DONE]);
}

#[test]
fn a_task_set_is_that_of_one_unit_and_session() {
    for function in [TaskFunction::ABORT_TASK_SET, TaskFunction::CLEAR_TASK_SET] {
        let mut world = World::connected(Default::default());
        let other = world.join(&[]);
        world.hold_requests = true;
        world.command(0, read(0, 512), &[]);
        world.command(0, write(0, 65_536), &[]);
        assert!(matches!(world.said_one(0), Said::R2t(_)));
        let stays = Order { lun: lun(300), ..read(0, 512) };
        let stays = world.command(0, stays, &[]);
        world.command(other, read(0, 512), &[]);
        manage(&mut world, function, lun(0), None);
        assert_eq!(world.said(0), []);
        world.hold_requests = false;
        world.run();
        let said = world.said(0);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0].management(), DONE);
        assert_eq!((said[1].tag(), said[1].status()), (stays, ScsiStatus::GOOD));
        assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
        assert_eq!(world.log, ["read"; 3]);
        assert_eq!(managed(&mut world, function, lun(7), None), TaskResponse::NO_SUCH_LUN);
        assert_eq!(managed(&mut world, function, lun(0), None), DONE, "there is nothing to end");
    }
}

#[test]
fn functions_that_there_are_not_are_not_supported() {
    let mut world = World::connected(Default::default());
    for function in [3, 9, 10, 11, 12, 0, 0x7f].map(TaskFunction) {
        let response = managed(&mut world, function, lun(0), None);
        assert_eq!(response, TaskResponse::NOT_SUPPORTED, "{function}");
    }
    let response = managed(&mut world, TaskFunction::TASK_REASSIGN, lun(0), Some(1));
    assert_eq!(response, TaskResponse::REASSIGNMENT_NOT_SUPPORTED);
}

const RESET: AdditionalSense = AdditionalSense::BUS_DEVICE_RESET;

/// A read of LUN 0 or 300 by some link.
fn asks(world: &mut World, link: usize, number: u16) -> Said {
    world.command(link, Order { lun: lun(number), ..read(0, 512) }, &[]);
    world.said_one(link)
}

#[test]
fn a_reset_of_a_unit_ends_the_tasks_of_all_sessions_and_tells_the_others() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    world.hold_requests = true;
    world.command(0, read(0, 512), &[]);
    world.command(other, write(0, 65_536), &[]);
    assert!(matches!(world.said_one(other), Said::R2t(_)));
    let ended = world.command(other, write(0, 512), &[3; 512]);
    let stays = Order { lun: lun(300), ..read(0, 512) };
    world.command(other, stays, &[]);
    manage(&mut world, TaskFunction::LOGICAL_UNIT_RESET, lun(0), None);
    for _ in 0..2 {
        assert_eq!(world.said(0), [], "something of it is below");
        world.release_one(0);
        world.run();
    }
    assert_eq!(world.said_one(0).management(), DONE);
    world.hold_requests = false;
    world.run();
    let said = world.said_one(other);
    assert_eq!(said.status(), ScsiStatus::GOOD, "the other unit's");
    assert_ne!(said.tag(), ended);
    // Who asked knows, and the others are told: of that unit alone.
    assert!(world.lives());
    assert_eq!(asks(&mut world, other, 300).status(), ScsiStatus::GOOD);
    refused(&asks(&mut world, other, 0), SenseKey::UNIT_ATTENTION, RESET);
    assert_eq!(asks(&mut world, other, 0).status(), ScsiStatus::GOOD, "once");
    let response = managed(&mut world, TaskFunction::LOGICAL_UNIT_RESET, lun(9), None);
    assert_eq!(response, TaskResponse::NO_SUCH_LUN);
}

#[test]
fn a_reset_of_the_target_ends_the_tasks_of_all_units() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    world.hold_requests = true;
    world.command(other, read(0, 512), &[]);
    world.command(other, Order { lun: lun(300), ..write(0, 65_536) }, &[]);
    world.said(other);
    manage(&mut world, TaskFunction::TARGET_WARM_RESET, lun(0), None);
    assert_eq!(world.said(0), []);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).management(), DONE);
    assert_eq!(world.said(other), []);
    for number in [0, 1, 300] {
        refused(&asks(&mut world, other, number), SenseKey::UNIT_ATTENTION, RESET);
        assert_eq!(asks(&mut world, other, number).status(), ScsiStatus::GOOD);
    }
}

#[test]
fn a_cold_reset_is_answered_and_then_all_sessions_of_the_target_end() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    world.hold_requests = true;
    world.command(other, read(0, 512), &[]);
    manage(&mut world, TaskFunction::TARGET_COLD_RESET, lun(0), None);
    assert_eq!(world.said(0), []);
    assert_eq!(world.links[0].pipe.close, None);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert_eq!(said[0].management(), DONE);
    assert!(matches!(said[1..], [Said::Async(_)]), "{said:?}");
    assert!(matches!(world.said(other)[..], [Said::Async(_)]));
    for link in [0, other] {
        assert_eq!(world.links[link].pipe.close, Some(true));
        let reason = world.links[link].connection.reason();
        assert_eq!(reason, Some(&Reason::Asked(CloseReason::ColdReset)));
    }
    assert_eq!(world.shard.shared.session_count(), 0);
}

/// The data of a task are on their way into its buffer when another session resets the unit.
#[test]
fn a_reset_ends_a_task_whose_data_are_coming_when_they_have_come() {
    for bytes in [8192, 65_536, 262_144] {
        for is_last in [false, true] {
            let mut world = World::connected_with(&[("MaxBurstLength", "8192")]);
            let other = world.join(&[]);
            let data = pattern(bytes, 1);
            let r2t = world.ask(write(0, bytes as u32), &[]).r2t();
            let part = if is_last { 8192 } else { 4096 };
            let pdu = world.links[0].host.give(&r2t, 0, &data[..part]);
            let (head, tail) = pdu.split_at(3000);
            world.send(0, head);
            let (_, reset) =
                world.links[other].host.manage(TaskFunction::LOGICAL_UNIT_RESET, lun(0), None, ());
            world.send(other, &reset);
            assert_eq!(world.said(other), [], "they are on their way");
            world.send(0, tail);
            assert_eq!(world.said_one(other).management(), DONE);
            assert_eq!(world.said(0), [], "neither an answer nor another R2T");
            assert_eq!(world.links[0].connection.outstanding(), 0);
            assert!(world.log.is_empty());
            refused(&asks(&mut world, 0, 0), SenseKey::UNIT_ATTENTION, RESET);
        }
    }
}

#[test]
fn a_reset_ends_a_direct_receive_when_it_is_complete() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    let data = pattern(262_144, 1);
    let r2t = world.ask(write(0, 262_144), &[]).r2t();
    let pdu = world.links[0].host.give(&r2t, 0, &data);
    world.send(0, &pdu[..100_000]);
    assert!(world.links[0].pipe.directs > 0);
    let (_, reset) =
        world.links[other].host.manage(TaskFunction::TARGET_WARM_RESET, lun(0), None, ());
    world.send(other, &reset);
    world.send(0, &pdu[100_000..]);
    assert_eq!(world.said_one(other).management(), DONE);
    assert_eq!(world.said(0), []);
    assert!(world.log.is_empty());
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn a_session_that_ends_keeps_no_reset_waiting() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    world.hold_requests = true;
    world.command(other, read(0, 512), &[]);
    manage(&mut world, TaskFunction::LOGICAL_UNIT_RESET, lun(0), None);
    let loss = contract::Loss::Error(104);
    world.with(other, |connection, ctx| connection.handle_lost(loss, ctx));
    world.run();
    assert_eq!(world.said(0), []);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).management(), DONE);
}

#[test]
fn who_asked_for_a_reset_may_be_gone_when_it_is_done() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    world.hold_requests = true;
    world.command(other, read(0, 512), &[]);
    manage(&mut world, TaskFunction::LOGICAL_UNIT_RESET, lun(0), None);
    let loss = contract::Loss::Error(104);
    world.with(0, |connection, ctx| connection.handle_lost(loss, ctx));
    world.run();
    world.closed(0);
    world.hold_requests = false;
    world.run();
    refused(&asks(&mut world, other, 0), SenseKey::UNIT_ATTENTION, RESET);
}

#[test]
fn a_command_of_several_steps_ends_between_two_of_them() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let order = Order::write(0, Cdb::orwrite_16(0, 8, false), 4096);
    let tag = world.command(0, order, &pattern(4096, 1));
    manage(&mut world, ABORT, lun(0), Some(tag));
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).management(), DONE);
    assert_eq!(world.log, ["read"], "what was read is not written");
}

#[test]
fn a_function_takes_its_turn_where_it_is_not_immediate() {
    let mut world = World::connected(Default::default());
    let (_, mut bytes) = world.links[0].host.manage(TaskFunction::ABORT_TASK_SET, lun(0), None, ());
    bytes[0] &= 0x3f;
    world.links[0].host.numbers(false);
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).management(), DONE);
    assert!(world.lives());
    assert_ne!(world.links[0].host.cmd_sn, RESERVED_TAG);
}

/// It would reach through the mask.
#[test]
fn who_may_not_use_all_of_a_target_does_not_reset_all_of_it() {
    let mut masking = target();
    masking.units[1].hosts = Hosts::List(vec![name("iqn.2026-11.net.plateway:other")]);
    let mut world = World::exporting([masking]);
    world.join(&[]);
    for function in [TaskFunction::TARGET_WARM_RESET, TaskFunction::TARGET_COLD_RESET] {
        let response = managed(&mut world, function, lun(0), None);
        assert_eq!(response, TaskResponse::AUTHORIZATION_FAILED);
    }
    assert_eq!(managed(&mut world, TaskFunction::LOGICAL_UNIT_RESET, lun(0), None), DONE);
    assert!(world.lives());
}
