//! How connections end: from every state nothing is lost, nothing new goes below, and what is below
//! is awaited.

use core::time::Duration;

use block::limits::SEND_PROGRESS;
use contract::Loss;
use wire::nvme::command::CopyRange;
use wire::nvme::fabrics::Configuration;
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::fused::{compare, write};
use super::reserving::{keys, register};
use super::transfer::{ADMIN, IO};
use super::world::{BOTH, SUBSYSTEM, World, capsule, host_data, pattern};
use crate::controllers::CloseReason;
use crate::limits::{DATA_AFTER_R2T, PDU_COMPLETE};
use crate::tcp::server::{Reason, TimeLimit};

const JUST_BEFORE: Duration = Duration::from_nanos(1);

/// A state by name, and how a queue comes into it.
type Reach = (&'static str, fn(&mut World));

/// All of them are ended by every cause.
fn states() -> Vec<Reach> {
    vec![
        ("idle", |_| ()),
        ("a read below", |world| {
            world.hold_requests = true;
            world.command(IO, Command::read(1, 0, 8, 4096));
        }),
        ("a capsule write and a flush of all below", |world| {
            world.hold_requests = true;
            world.command_with(IO, Command::write(1, 0, 8, 4096), &pattern(4096, 0));
            world.command(IO, Command::flush(0xffff_ffff).with_command_id(1));
        }),
        ("an R2T out", |world| {
            world.command(IO, Command::write(1, 0, 256, 131_072));
            world.said(IO);
        }),
        ("data half there", |world| {
            let r2t = world.ask(IO, Command::write(1, 0, 16, 8192)).r2t();
            let pdu = host_data(&r2t, 0, &pattern(8192, 0), true, world.links[IO].digests);
            world.send(IO, &pdu[..5000]);
        }),
        ("a direct receive", |world| {
            let r2t = world.ask(IO, Command::write(1, 0, 256, 131_072)).r2t();
            let pdu = host_data(&r2t, 0, &pattern(131_072, 0), true, world.links[IO].digests);
            world.send(IO, &pdu[..70_000]);
        }),
        ("half a header", |world| {
            let pdu = capsule(Command::flush(1), &[], world.links[IO].digests);
            world.send(IO, &pdu[..30]);
        }),
        ("a batch out and one gathered", |world| {
            world.links[IO].hold_sends = true;
            world.command(IO, Command::read(1, 0, 8, 4096));
            world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(1));
        }),
        ("the first of a pair", |world| {
            world.command_with(IO, compare(0), &[0; 512]);
        }),
        ("a pair half asked for", |world| {
            world.command(IO, compare(0));
            world.command(IO, write(0));
            world.said(IO);
        }),
        ("a reservation being decided", |world| {
            world.hold_changes = true;
            world.command_with(IO, register(0), &keys(0, 5));
        }),
        ("the keys of a reservation asked for", |world| {
            world.command(IO, register(0));
            world.said(IO);
        }),
        ("a copy below", |world| {
            world.hold_requests = true;
            world.command_with(IO, Command::copy(1, 0, 1), &CopyRange::new(8, 8).emit());
        }),
        ("the ranges of a copy asked for", |world| {
            world.command(IO, Command::copy(1, 0, 1));
            world.said(IO);
        }),
        ("a pair below", |world| {
            world.hold_requests = true;
            world.command_with(IO, compare(0), &[0; 512]);
            world.command_with(IO, write(0), &[1; 512]);
        }),
    ]
}

#[test]
fn a_loss_in_every_state_gives_all_memory_back() {
    for digests in [Digests::NONE, BOTH] {
        for (name, reach) in states() {
            let mut world = World::connected(digests);
            reach(&mut world);
            let before = world.log.len() + world.shard.below.held.len();
            world.with(IO, |connection, ctx| connection.handle_lost(Loss::Error(104), ctx));
            world.run();
            assert_eq!(world.links[IO].pipe.close, Some(false), "{name}");
            assert_eq!(
                world.log.len() + world.shard.below.held.len(),
                before,
                "{name}: something new went below"
            );
        }
    }
}

#[test]
fn a_close_by_the_controllers_in_every_state_gives_all_memory_back() {
    for reason in [CloseReason::Reset, CloseReason::KeepAliveExpired] {
        for (name, reach) in states() {
            let mut world = World::connected(Digests::NONE);
            reach(&mut world);
            world.with(IO, |connection, ctx| connection.handle_close(reason, ctx));
            world.run();
            world.release_sends(IO);
            let after_send = reason == CloseReason::Reset;
            assert_eq!(world.links[IO].pipe.close, Some(after_send), "{name}");
            assert_eq!(world.links[IO].connection.reason(), Some(&Reason::Asked(reason)));
        }
    }
}

#[test]
fn a_violation_in_every_state_gives_all_memory_back() {
    for (name, reach) in states() {
        let mut world = World::connected(Digests::NONE);
        reach(&mut world);
        let pdu = [0xff; 200];
        world.send(IO, &pdu);
        world.release_sends(IO);
        // In the midst of data the bytes are data, and in the midst of a header they are a command.
        let is_stream = ["data half there", "a direct receive", "half a header"].contains(&name);
        assert!(is_stream || world.links[IO].pipe.close == Some(true), "{name}");
    }
}

/// 17: a reset is not answered before the queue has drained, so nothing reaches the media
/// afterwards.
#[test]
fn what_is_below_is_awaited_before_the_controllers_hear_that_the_queue_is_drained() {
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    world.command_with(IO, Command::write(1, 0, 8, 4096), &pattern(4096, 0));
    let cc = Configuration(0).with_iosqes(6).with_iocqes(4);
    world.command(0, Command::property_set(0x14, cc.0).with_command_id(1));
    assert!(world.links[IO].pipe.close.is_some(), "the reset closes the I/O queue");
    world.closed(IO);
    assert!(!world.links[IO].connection.is_gone(), "a write is below");
    assert_eq!(world.shard.shared.queue_count(), 2);
    world.release_requests();
    world.run();
    assert!(world.links[IO].connection.is_gone());
    assert_eq!(world.shard.shared.queue_count(), 1);
}

#[test]
fn a_refused_connect_is_answered_and_then_the_connection_closes() {
    let mut world = World::new();
    let link = world.greet(Digests::NONE);
    let entry = world.connect(link, SUBSYSTEM, 77, 31, false);
    assert_eq!(entry.status.code(), Status::CONNECT_INVALID_PARAMETERS.0);
    assert_eq!(world.links[link].pipe.close, Some(true));
    assert_eq!(world.links[link].connection.reason(), Some(&Reason::Answered));
}

#[test]
fn held_admin_commands_are_dropped_with_their_connection() {
    let mut world = World::connected(Digests::NONE);
    world.command(0, Command::async_event_request().with_command_id(1));
    assert_eq!(world.links[0].connection.outstanding(), 1);
}

#[test]
fn a_shutdown_flushes_the_volumes_in_the_name_of_the_admin_queue() {
    let mut world = World::connected(Digests::NONE);
    world.hold_requests = true;
    let cc = Configuration(0).with_enable(true).with_iosqes(6).with_iocqes(4).with_shn(1);
    world.command(0, Command::property_set(0x14, cc.0).with_command_id(1));
    assert!(!world.shard.below.held.is_empty());
}

fn timed_out(world: &mut World, limit: Duration, which: TimeLimit) {
    world.pass(IO, limit - JUST_BEFORE);
    assert_eq!(world.links[IO].pipe.close, None, "{which:?} too early");
    world.pass(IO, JUST_BEFORE);
    assert!(world.links[IO].pipe.close.is_some(), "{which:?} did not end it");
    assert_eq!(world.links[IO].connection.reason(), Some(&Reason::TimedOut(which)));
}

#[test]
fn a_pdu_once_begun_must_be_completed() {
    let mut world = World::connected(Digests::NONE);
    let pdu = capsule(Command::flush(1), &[], Digests::NONE);
    world.send(IO, &pdu[..30]);
    timed_out(&mut world, PDU_COMPLETE, TimeLimit::Pdu);
}

#[test]
fn a_pdu_that_is_cut_by_every_receive_is_no_slow_pdu() {
    let mut world = World::connected(Digests::NONE);
    let pdu = capsule(Command::flush(1), &[], Digests::NONE);
    world.send(IO, &pdu[..30]);
    for _ in 0..20 {
        world.pass(IO, PDU_COMPLETE - Duration::from_secs(1));
        let next: Vec<u8> = pdu[30..].iter().chain(&pdu[..30]).copied().collect();
        world.send(IO, &next);
    }
    assert_eq!(world.links[IO].pipe.close, None);
}

#[test]
fn data_that_were_asked_for_must_come() {
    let mut world = World::connected(Digests::NONE);
    let r2t = world.ask(IO, Command::write(1, 0, 64, 32_768).with_command_id(1)).r2t();
    world.pass(IO, DATA_AFTER_R2T - JUST_BEFORE);
    // Progress counts.
    let piece = host_data(&r2t, 0, &pattern(4096, 0), false, Digests::NONE);
    world.send(IO, &piece);
    timed_out(&mut world, DATA_AFTER_R2T, TimeLimit::Data);
}

#[test]
fn progress_of_one_command_does_not_excuse_another() {
    let mut world = World::connected(Digests::NONE);
    world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(1));
    world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(2));
    let r2t = world.said(IO)[0].r2t();
    for piece in 0..3 {
        world.pass(IO, DATA_AFTER_R2T / 4);
        let bytes = host_data(&r2t, piece * 4096, &pattern(4096, 0), false, Digests::NONE);
        world.send(IO, &bytes);
    }
    timed_out(&mut world, DATA_AFTER_R2T / 4, TimeLimit::Data);
}

#[test]
fn a_host_that_does_not_read_is_closed_unless_it_reads_a_little() {
    let mut world = World::connected(Digests::NONE);
    world.links[IO].hold_sends = true;
    world.command(IO, Command::read(1, 0, 8, 4096));
    world.pass(IO, SEND_PROGRESS - JUST_BEFORE);
    let now = world.shard.now;
    world.links[IO].connection.handle_progress(now);
    timed_out(&mut world, SEND_PROGRESS, TimeLimit::Send);
    assert_eq!(world.links[IO].pipe.close, Some(false));
}

#[test]
fn last_words_that_are_not_read_do_not_keep_a_connection() {
    let mut world = World::connected(Digests::NONE);
    world.links[IO].hold_sends = true;
    world.send(IO, &[0xff; 8]);
    assert_eq!(world.links[IO].pipe.close, None, "the last words are out");
    world.pass(IO, SEND_PROGRESS);
    assert_eq!(world.links[IO].pipe.close, Some(false));
}

/// Each would wake the shard by itself.
#[test]
fn connections_are_looked_at_for_idleness_together() {
    let mut world = World::connected(Digests::NONE);
    for link in [ADMIN, IO, ADMIN, IO] {
        world.pass(link, Duration::from_secs(30));
    }
    assert_eq!([ADMIN, IO].map(|link| world.links[link].connection.poll_timeout()), [None; 2]);
    // Both within the same five seconds.
    world.command(IO, Command::read(1, 0, 8, 4096));
    world.pass(IO, Duration::from_millis(1_700));
    world.command(ADMIN, Command::set_features(0xc0, 0, 0, 0));
    let moments = [ADMIN, IO].map(|link| world.links[link].connection.poll_timeout());
    assert!(moments[0].is_some() && moments[0] == moments[1], "{moments:?}");
}

#[test]
fn a_queue_that_is_idle_gives_its_tables_back() {
    let mut world = World::connected(Digests::NONE);
    for command_id in 0..100 {
        world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(command_id));
    }
    world.said(IO);
    world.pass(IO, Duration::from_secs(60));
    world.pass(IO, Duration::from_secs(60));
    assert_eq!(world.links[IO].connection.poll_timeout(), None);
    world.command(IO, Command::read(1, 0, 8, 4096));
    assert_eq!(world.said(IO).len(), 2, "and takes commands again");
    assert!(world.links[IO].connection.poll_timeout().is_some());
}
