//! CmdSN and the command window; that StatSN, ExpCmdSN and MaxCmdSN are right in every PDU is what the
//! host of these tests sees to.

use wire::iscsi::{Bhs, Operation, RejectReason, ScsiCommand, TaskFunction};
use wire::scsi::ScsiStatus;

use super::world::{Said, World, flush, read, write};
use crate::limits::{COMMANDS_MAX, IMMEDIATE_MAX};

/// Has the host send a command of this CmdSN: nothing may be said or done.
fn is_silent(world: &mut World, cmd_sn: u32) {
    let before = world.log.len() + world.shard.below.held.len();
    let host = &mut world.links[0].host;
    let next = core::mem::replace(&mut host.cmd_sn, cmd_sn);
    let (tag, bytes) = host.command(write(0, 512), &[7; 512], ());
    host.cmd_sn = next;
    host.asked.remove(&tag);
    world.send(0, &bytes);
    assert_eq!(world.said(0), []);
    assert_eq!(world.log.len() + world.shard.below.held.len(), before, "{cmd_sn:#x} was taken");
    assert_eq!(world.links[0].pipe.close, None);
}

#[test]
fn what_lies_beside_the_window_is_passed_over_in_silence() {
    let mut world = World::connected(Default::default());
    for _ in 0..3 {
        assert!(world.lives());
    }
    let next = world.links[0].host.cmd_sn;
    for before in [1, 2, 3, 1000, 1 << 30] {
        is_silent(&mut world, next.wrapping_sub(before));
    }
    let last = world.links[0].host.max_cmd_sn;
    for behind in [1, 2, 1000, 1 << 30] {
        is_silent(&mut world, last.wrapping_add(behind));
    }
    assert!(world.lives());
}

#[test]
fn a_command_that_comes_twice_is_carried_out_once() {
    let mut world = World::connected(Default::default());
    let (_, bytes) = world.links[0].host.command(write(0, 512), &[7; 512], ());
    world.send(0, &bytes.repeat(3));
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["write"]);
}

/// On one connection commands come in their order: none is missing that could still come.
#[test]
fn a_gap_in_the_numbers_breaks_the_protocol() {
    let mut world = World::connected(Default::default());
    world.links[0].host.cmd_sn = world.links[0].host.cmd_sn.wrapping_add(1);
    let said = world.ask(read(0, 512), &[]);
    assert_eq!(said.reject(), RejectReason::PROTOCOL_ERROR);
    assert_eq!(world.links[0].pipe.close, Some(true));
    assert!(world.log.is_empty());
}

#[test]
fn the_window_closes_with_the_last_command_and_opens_with_each_answer() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let mut commands = 0;
    while world.links[0].host.may_ask() {
        world.command(0, flush(), &[]);
        commands += 1;
        // Nobody tells the host what it knows.
        assert!(commands <= COMMANDS_MAX);
    }
    assert_eq!((commands, world.links[0].connection.outstanding()), (COMMANDS_MAX, COMMANDS_MAX));
    let next = world.links[0].host.cmd_sn;
    is_silent(&mut world, next);
    // What is immediate is heard all the same, and says that nothing more is taken.
    let (_, bytes) = world.links[0].host.nop(b"x", ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).numbers().max_cmd_sn, next.wrapping_sub(1));
    for open in 1..=3 {
        world.release_one(0);
        world.run();
        let said = world.said_one(0);
        assert_eq!(said.numbers().max_cmd_sn, next.wrapping_sub(1).wrapping_add(open));
    }
    for _ in 0..3 {
        assert!(world.links[0].host.may_ask());
        world.command(0, flush(), &[]);
    }
    assert!(!world.links[0].host.may_ask());
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said(0).len() as u32, COMMANDS_MAX);
}

#[test]
fn what_ends_without_an_answer_opens_the_window_as_well() {
    let mut world = World::connected(Default::default());
    let window = |world: &World| {
        let host = &world.links[0].host;
        host.max_cmd_sn.wrapping_sub(host.cmd_sn).wrapping_add(1)
    };
    // Aborted while it waits for data, and while it is below.
    for is_below in [false, true] {
        world.hold_requests = true;
        let order = if is_below { flush() } else { write(0, 65_536) };
        let tag = world.command(0, order, &[]);
        world.said(0);
        let (_, bytes) =
            world.links[0].host.manage(TaskFunction::ABORT_TASK, order.lun, Some(tag), ());
        world.send(0, &bytes);
        world.hold_requests = false;
        world.run();
        assert_eq!(world.said_one(0).management(), wire::iscsi::TaskResponse::COMPLETE);
        assert_eq!(window(&world), COMMANDS_MAX);
    }
}

#[test]
fn immediate_commands_stand_outside_the_order() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let ordered = world.command(0, read(0, 512), &[]);
    let mut order = read(8, 512);
    order.is_immediate = true;
    let before = world.links[0].host.cmd_sn;
    let immediate = world.command(0, order, &[]);
    assert_eq!(world.links[0].host.cmd_sn, before);
    let next = world.command(0, read(16, 512), &[]);
    world.hold_requests = false;
    world.run();
    let tags: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
    assert_eq!(tags, [ordered, immediate, next]);
}

/// RFC 7143, 4.2.2.1: they are not passed over in silence.
#[test]
fn immediate_commands_beyond_what_is_kept_are_rejected() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    while world.links[0].host.may_ask() {
        world.command(0, flush(), &[]);
    }
    let mut order = flush();
    order.is_immediate = true;
    for _ in 0..IMMEDIATE_MAX {
        world.command(0, order, &[]);
    }
    assert_eq!(world.said(0), []);
    for _ in 0..3 {
        let said = world.ask(order, &[]);
        assert_eq!(said.reject(), RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
        let Said::Reject(_, header) = &said else { panic!("{said:?}") };
        let bhs = Bhs::parse(header).expect("the header that was rejected");
        assert_eq!(bhs.operation, Operation::immediate(ScsiCommand::OPCODE));
    }
    let (_, bytes) = world.links[0].host.nop(b"x", ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said(0).len() as u32, COMMANDS_MAX + IMMEDIATE_MAX);
    assert!(world.lives());
}

#[test]
fn what_is_announced_with_a_command_that_is_not_taken_belongs_to_nobody() {
    let mut world = World::connected(Default::default());
    let host = &mut world.links[0].host;
    let next = host.cmd_sn;
    host.cmd_sn = next.wrapping_sub(1);
    let (tag, mut bytes) = host.command(write(0, 8192).unfinished(), &[1; 512], ());
    bytes.extend(host.unasked(tag, 512, &[2; 7680], true));
    host.cmd_sn = next;
    host.asked.remove(&tag);
    world.send(0, &bytes);
    assert_eq!(world.said(0), []);
    assert!(world.log.is_empty() && world.lives());
}

#[test]
fn every_answer_is_counted_over_a_long_session() {
    let mut world = World::connected(Default::default());
    for round in 0..2000u32 {
        let (order, data) = match round % 4 {
            0 => (read(round, 512), vec![]),
            1 => (write(round, 512), vec![round as u8; 512]),
            2 => (flush(), vec![]),
            _ => (read(u32::MAX, 512), vec![]),
        };
        world.command(0, order, &data);
    }
    let said = world.said(0);
    assert_eq!(said.len(), 2000);
    assert!(world.links[0].host.asked.is_empty());
}
