//! Checklist 13 to 16 and 18: properties, the enable cycle, shutdown, commands before RDY, the loss
//! of queues.

use block::{Failure, Outcome};
use wire::nvme::fabrics::{Capabilities, FabricsType};

use super::*;

const SHUTDOWN_NORMAL: u32 = 1 << 14;

fn shst(csts: u64) -> u64 {
    csts >> 2 & 3
}

#[test]
fn properties_have_their_size_and_no_other() {
    let mut world = World::new(1);
    let (line, _) = world.join(&Ask::default());
    for (register, wide) in
        [(0x00, true), (0x08, false), (0x14, false), (0x1c, false), (0x68, false)]
    {
        let get = |wide| Command::property_get(register, wide);
        assert_eq!(world.admin(line, &get(wide)).status, Status::SUCCESS, "{register:#x}");
        world.refuses(line, &get(!wide), Status::INVALID_FIELD);
    }
    for register in [0x04, 0x0c, 0x20, 0x24, 0x28, 0x30, 0x1000] {
        world.refuses(line, &Command::property_get(register, false), Status::INVALID_FIELD);
        world.refuses(line, &Command::property_set(register, 0), Status::INVALID_FIELD);
    }
    for register in [0x00, 0x08, 0x1c, 0x68] {
        // They are read-only.
        world.refuses(line, &Command::property_set(register, 1), Status::INVALID_FIELD);
    }
    let wide_cc = Command::property_set(0x14, 1).with_cdw(10, 1);
    world.refuses(line, &wide_cc, Status::INVALID_FIELD);
}

#[test]
fn capabilities_are_those_that_hosts_need() {
    let mut world = World::new(1);
    let (line, _) = world.join(&Ask::default());
    let cap = Capabilities(world.admin(line, &Command::property_get(0, true)).result);
    assert_eq!((cap.mqes(), cap.cqr(), cap.mpsmin(), cap.mpsmax()), (1023, true, 0, 0));
    assert!(cap.css_nvm() && cap.css_io_sets() && cap.timeout() > 0);
    // CRMS bit 0 makes hosts read CRTO, which has to say how long.
    assert_eq!(cap.crms(), 1);
    let crto = world.admin(line, &Command::property_get(0x68, false)).result;
    assert_eq!(crto, cap.timeout());
    assert_eq!(world.admin(line, &Command::property_get(8, false)).result, 0x0002_0000);
}

#[test]
fn other_fabrics_commands_are_refused() {
    let (mut world, line, view) = World::ready_on(1);
    let (io, _) = world.join(&Ask::io(0, view.controller, 1));
    for (kind, on_admin, on_io) in [
        (FabricsType::DISCONNECT, Status::INVALID_QUEUE_TYPE, Status::INVALID_OPCODE),
        (FabricsType::AUTHENTICATION_SEND, Status::INVALID_OPCODE, Status::INVALID_OPCODE),
        (FabricsType::AUTHENTICATION_RECEIVE, Status::INVALID_OPCODE, Status::INVALID_OPCODE),
        (FabricsType(0x77), Status::INVALID_OPCODE, Status::INVALID_OPCODE),
    ] {
        let command = Command::fabrics(kind);
        world.refuses(line, &command, on_admin);
        let now = world.now;
        let answer = world.of(io).fabrics_command_on_io_queue(now, io.key, &command);
        assert_eq!(answer, Answer::Now(Reply::new(0, on_io.with_dnr())));
    }
}

#[test]
fn before_rdy_only_fabrics_commands_are_taken() {
    let mut world = World::new(1);
    let (line, _) = world.join(&Ask::default());
    let commands = [
        Command::keep_alive(),
        Command::async_event_request(),
        Command::identify(wire::nvme::identify::Cns::CONTROLLER, 0),
        Command::new(0xc7),
    ];
    for command in commands {
        world.refuses(line, &command, Status::COMMAND_SEQUENCE_ERROR);
    }
    assert_eq!(world.csts(line), 0);
    world.set_cc(line, ENABLE);
    assert_eq!(world.csts(line), READY);
    assert_eq!(world.admin(line, &commands[0]).status, Status::SUCCESS);
}

#[test]
fn a_configuration_that_cannot_be_had_is_fatal_until_the_reset() {
    let mut world = World::new(1);
    let (line, _) = world.join(&Ask::default());
    world.set_cc(line, 0x0047_0001);
    assert_eq!(world.csts(line), FATAL);
    world.set_cc(line, 0);
    assert_eq!(world.csts(line), 0);
    world.set_cc(line, ENABLE);
    assert_eq!(world.csts(line), READY);
}

#[test]
fn a_reset_is_answered_once_the_io_queues_have_drained() {
    for shards in [1, 2] {
        let (mut world, admin, view) = World::ready_on(shards);
        let (here, _) = world.join(&Ask::io(0, view.controller, 1));
        let (there, there_view) = world.join(&Ask::io(shards - 1, view.controller, 2));
        world.admin_later(admin, &Command::async_event_request());

        let disable = Command::property_set(0x14, ENABLE & !1).with_command_id(9);
        world.admin_later(admin, &disable);
        world.settle();
        let event = world.take_reply(admin).expect("event requests are discarded");
        assert!(event.discarded);
        assert_eq!(world.take_close(here), Some(CloseReason::Reset));
        assert_eq!(world.take_close(there), Some(CloseReason::Reset));
        assert!(world.of(there).io_allowed(there_view.handle).is_err());
        assert_eq!(world.csts(admin) & READY, READY);
        world.refuses(admin, &Command::keep_alive(), Status::COMMAND_SEQUENCE_ERROR);

        world.drained(here);
        world.settle();
        assert_eq!(world.take_reply(admin), None, "one queue has still something below");
        world.drained(there);
        world.settle();
        let reply = world.take_reply(admin).expect("both have drained");
        assert_eq!((reply.command_id, reply.status), (9, Status::SUCCESS));
        assert_eq!(world.csts(admin), 0);

        // The same association goes on.
        world.set_cc(admin, ENABLE);
        world.join(&Ask::io(shards - 1, view.controller, 1));
    }
}

#[test]
fn a_shutdown_is_complete_once_every_volatile_volume_is_flushed() {
    let mut world = World::new(1);
    world.put([namespace(2), durable(3)]);
    let (line, view) = world.ready(&Ask::default());
    world.set_cc(line, ENABLE | SHUTDOWN_NORMAL);
    assert_eq!(shst(world.csts(line)), 1);
    let volumes: Vec<VolumeId> = world.flushes.iter().map(|(_, volume)| *volume).collect();
    assert_eq!(volumes, [VolumeId(1), VolumeId(2)]);
    assert!(world.flushes.iter().all(|(key, _)| *key == line.key));
    let refused = world.connect(&Ask::io(0, view.controller, 1)).1.status;
    assert_eq!(refused, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    world.of(line).flush_done(line.key, Outcome::Done);
    assert_eq!(shst(world.csts(line)), 1);
    world.of(line).flush_done(line.key, Outcome::Done);
    assert_eq!(shst(world.csts(line)), 2);
    // As Linux goes on: disable, and begin anew.
    world.set_cc(line, 0);
    world.set_cc(line, ENABLE);
    assert_eq!(world.csts(line), READY);
}

#[test]
fn a_shutdown_that_is_asked_for_again_is_flushed_again_but_not_at_once() {
    let (mut world, line, _) = World::ready_on(1);
    for _ in 0..100 {
        world.set_cc(line, ENABLE | SHUTDOWN_NORMAL);
        world.set_cc(line, ENABLE);
    }
    world.set_cc(line, ENABLE | SHUTDOWN_NORMAL);
    assert_eq!(world.flushes.len(), 1);
    world.of(line).flush_done(line.key, Outcome::Done);
    world.collect();
    assert_eq!((world.flushes.len(), shst(world.csts(line))), (2, 1));
    world.of(line).flush_done(line.key, Outcome::Done);
    assert_eq!(shst(world.csts(line)), 2);
}

#[test]
fn a_failed_flush_is_never_a_complete_shutdown() {
    let (mut world, line, _) = World::ready_on(1);
    world.set_cc(line, ENABLE | SHUTDOWN_NORMAL);
    world.of(line).flush_done(line.key, Outcome::NotDone(Failure::MediumWrite));
    let csts = world.csts(line);
    assert_eq!((shst(csts), csts & FATAL), (1, FATAL));
}

#[test]
fn a_shutdown_without_a_volatile_cache_is_complete_at_once() {
    let mut world = World::new(1);
    world.put([durable(1)]);
    let (line, _) = world.ready(&Ask::default());
    world.set_cc(line, ENABLE | SHUTDOWN_NORMAL);
    assert_eq!(shst(world.csts(line)), 2);
    assert!(world.flushes.is_empty());
}

#[test]
fn the_loss_of_the_admin_queue_closes_the_io_queues_everywhere() {
    let (mut world, admin, view) = World::ready_on(3);
    let lines: Vec<Line> = (1..=6)
        .map(|queue_id| world.join(&Ask::io(queue_id % 3, view.controller, queue_id)).0)
        .collect();
    world.lose(admin);
    world.settle();
    for &line in &lines {
        assert_eq!(world.take_close(line), Some(CloseReason::AdminQueueLost));
    }
    assert_eq!(world.shards[0].report().len(), 1, "it keeps its number until all have drained");
    for &line in &lines {
        world.drained(line);
    }
    world.settle();
    world.assert_empty();
}

#[test]
fn the_loss_of_an_io_queue_leaves_the_controller() {
    let (mut world, admin, view) = World::ready_on(2);
    let (io, _) = world.join(&Ask::io(1, view.controller, 1));
    world.lose(io);
    world.settle();
    assert_eq!(world.csts(admin), READY);
    assert!(world.closes.is_empty());
    assert!(world.shards[0].report()[0].queues.is_empty());
}

#[test]
fn a_disk_that_does_not_come_back_fails_the_controllers_of_its_subsystem() {
    let (mut world, admin, view) = World::ready_on(2);
    let (io, _) = world.join(&Ask::io(1, view.controller, 1));
    // The queue's shard notices, and not the controller's.
    let now = world.now;
    world.shards[1].volume_stuck(now, VolumeId(1));
    world.settle();
    assert_eq!(world.take_close(admin), Some(CloseReason::DiskStuck));
    assert_eq!(world.take_close(io), Some(CloseReason::DiskStuck));
    world.drained(admin);
    assert_eq!(world.shards[0].report()[0].state, ControllerState::Failed);
    world.drained(io);
    world.settle();
    world.assert_empty();
}

#[test]
fn the_sessions_of_one_host_are_closed_once_and_those_of_others_stay() {
    let (mut world, line, view) = World::ready_on(1);
    let (io, _) = world.join(&Ask::io(0, view.controller, 1));
    let (stays, _) = world.ready(&Ask { host: host(2), ..Ask::default() });
    let now = world.now;
    let of = |number| host(number).nqn;
    assert_eq!(world.shards[0].close_sessions(now, &of(3)), 0);
    assert_eq!(world.shards[0].close_sessions(now, &of(1)), 1);
    assert_eq!(world.shards[0].close_sessions(now, &of(1)), 0, "it is on its way out");
    world.settle();
    for closed in [line, io] {
        assert_eq!(world.take_close(closed), Some(CloseReason::Administrator));
    }
    assert!(world.closes.is_empty());
    assert_eq!(world.csts(stays), READY);
}

#[test]
fn a_removed_host_is_closed_and_others_notice_nothing() {
    let (mut world, out, _) = World::ready_on(2);
    let (stays, _) = world.ready(&Ask { shard: 1, host: host(2), ..Ask::default() });
    world.admit(&[host(2)]);
    world.settle();
    assert_eq!(world.closes, [(out.key, CloseReason::HostRemoved)]);
    world.closes.clear();
    assert_eq!(world.csts(stays), READY);
    // The same configuration again is no change.
    world.change(|_| ());
    world.settle();
    assert!(world.closes.is_empty() && world.replies.is_empty());
    world.remove(SUBSYSTEM);
    assert_eq!(world.closes, [(stays.key, CloseReason::SubsystemRemoved)]);
}
