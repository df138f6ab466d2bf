//! How sessions end: from every state nothing is lost, nothing new goes below, and what is below is
//! awaited.

use core::time::Duration;

use block::limits::SEND_PROGRESS;
use contract::{Loss, SessionEnd};
use wire::iscsi::LogoutReason;
use wire::scsi::Cdb;

use super::world::{BOTH, HOST, Order, Said, TARGET, World, flush, pattern, read, write};
use crate::limits::{DATA_AFTER_R2T, PDU_COMPLETE};
use crate::server::{Reason, TimeLimit};
use crate::targets::CloseReason;

const JUST_BEFORE: Duration = Duration::from_nanos(1);

/// A state by name, and how a session comes into it.
type Reach = (&'static str, fn(&mut World));

/// All of them are ended by every cause.
fn states() -> Vec<Reach> {
    vec![
        ("idle", |_| ()),
        ("a read below", |world| {
            world.hold_requests = true;
            world.command(0, read(0, 4096), &[]);
        }),
        ("a write with its data and a flush below", |world| {
            world.hold_requests = true;
            world.command(0, write(0, 4096), &pattern(4096, 0));
            world.command(0, flush(), &[]);
        }),
        ("an R2T out", |world| {
            world.command(0, write(0, 131_072), &[]);
            world.said(0);
        }),
        ("data half there", |world| {
            let r2t = world.ask(write(0, 8192), &[]).r2t();
            let pdu = world.links[0].host.give(&r2t, 0, &pattern(8192, 0));
            world.send(0, &pdu[..5000]);
        }),
        ("a direct receive", |world| {
            let r2t = world.ask(write(0, 131_072), &[]).r2t();
            let pdu = world.links[0].host.give(&r2t, 0, &pattern(131_072, 0));
            world.send(0, &pdu[..70_000]);
        }),
        ("half a header", |world| {
            let (_, pdu) = world.links[0].host.command(flush(), &[], ());
            world.send(0, &pdu[..30]);
        }),
        ("a batch out and one gathered", |world| {
            world.links[0].hold_sends = true;
            world.command(0, read(0, 4096), &[]);
            world.command(0, read(0, 4096), &[]);
        }),
        ("data that follow unasked", |world| {
            world.command(0, write(0, 16_384).unfinished(), &pattern(512, 0));
        }),
        ("data of a command that can only fail", |world| {
            world.command(0, write(u32::MAX, 16_384).unfinished(), &pattern(512, 0));
        }),
        ("data that pass", |world| {
            let (tag, mut pdu) =
                world.links[0].host.command(write(u32::MAX, 8192).unfinished(), &[], ());
            pdu.extend(world.links[0].host.unasked(tag, 0, &pattern(8192, 0), true));
            world.send(0, &pdu[..3000]);
        }),
        ("a command of several steps below", |world| {
            world.hold_requests = true;
            world.command(0, Order::write(0, Cdb::orwrite_16(0, 1, false), 512), &[1; 512]);
            let same = Order::write(0, Cdb::write_same_16(0, 2000, false, false), 512);
            world.command(0, same, &[1; 512]);
        }),
        ("a discard below", |world| {
            world.hold_requests = true;
            let list = unmap_list();
            let order = Order::write(0, Cdb::unmap_list(list.len() as u16), list.len() as u32);
            world.command(0, order, &list);
        }),
        ("a task that waits for its turn", |world| {
            world.hold_requests = true;
            world.command(0, read(0, 4096), &[]);
            let ordered = wire::iscsi::TaskAttribute::ORDERED;
            world.command(0, write(0, 4096).with_attribute(ordered), &pattern(4096, 0));
            world.command(0, read(0, 4096), &[]);
        }),
        ("a change of a reservation that is not decided", |world| {
            world.hold_changes = true;
            world.command(0, Order::new(0, Cdb::new(wire::scsi::OpCode::RESERVE_6)), &[]);
        }),
        ("an abort that waits", |world| {
            world.hold_requests = true;
            let tag = world.command(0, read(0, 4096), &[]);
            let abort = wire::iscsi::TaskFunction::ABORT_TASK;
            let (_, bytes) = world.links[0].host.manage(abort, [0; 8], Some(tag), ());
            world.send(0, &bytes);
        }),
        ("a reset that waits", |world| {
            world.hold_requests = true;
            world.command(0, read(0, 4096), &[]);
            let reset = wire::iscsi::TaskFunction::TARGET_WARM_RESET;
            let (_, bytes) = world.links[0].host.manage(reset, [0; 8], None, ());
            world.send(0, &bytes);
        }),
        ("a logout that waits", |world| {
            world.hold_requests = true;
            world.command(0, read(0, 4096), &[]);
            let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
            world.send(0, &bytes);
        }),
    ]
}

/// An UNMAP list of one range.
pub(super) fn unmap_list() -> Vec<u8> {
    use wire::scsi::provisioning::{UnmapList, UnmapRange};
    UnmapList(vec![UnmapRange { lba: 8, blocks: 16 }]).emit()
}

#[test]
fn a_loss_in_every_state_gives_all_memory_back() {
    for digests in [Default::default(), BOTH] {
        for (name, reach) in states() {
            let mut world = World::connected(digests);
            reach(&mut world);
            let before = world.log.len() + world.shard.below.held.len();
            world.with(0, |connection, ctx| connection.handle_lost(Loss::Error(104), ctx));
            world.run();
            assert_eq!(world.links[0].pipe.close, Some(false), "{name}");
            let after = world.log.len() + world.shard.below.held.len();
            assert_eq!(after, before, "{name}: something new went below");
        }
    }
}

#[test]
fn a_close_by_the_targets_in_every_state_gives_all_memory_back() {
    for reason in [CloseReason::Administrator, CloseReason::Reinstated] {
        for (name, reach) in states() {
            let mut world = World::connected(Default::default());
            reach(&mut world);
            if name == "a logout that waits" {
                continue;
            }
            world.with(0, |connection, ctx| connection.handle_close(reason, ctx));
            world.run();
            world.release_sends(0);
            let after_send = reason == CloseReason::Administrator;
            assert_eq!(world.links[0].pipe.close, Some(after_send), "{name}");
            assert_eq!(world.links[0].connection.reason(), Some(&Reason::Asked(reason)));
            if after_send {
                let said = world.said(0);
                assert!(matches!(said.last(), Some(Said::Async(_))), "{name}: {said:?}");
            }
        }
    }
}

#[test]
fn a_violation_in_every_state_gives_all_memory_back() {
    for (name, reach) in states() {
        let mut world = World::connected(Default::default());
        reach(&mut world);
        world.send(0, &[0xff; 200]);
        world.release_sends(0);
        // In the midst of data the bytes are data, in the midst of a header they are a command, and
        // behind a logout nothing is heard.
        let is_stream = ["data half there", "a direct receive", "half a header", "data that pass"];
        let is_heard = !is_stream.contains(&name) && name != "a logout that waits";
        assert!(!is_heard || world.links[0].pipe.close == Some(true), "{name}");
    }
}

#[test]
fn a_server_that_stops_in_every_state_gives_all_memory_back() {
    for (name, reach) in states() {
        let mut world = World::connected(Default::default());
        reach(&mut world);
        world.with(0, |connection, ctx| connection.close(SessionEnd::ServerStopping, ctx));
        world.run();
        world.release_sends(0);
        let waits = name == "a logout that waits";
        assert_eq!(world.links[0].pipe.close, if waits { None } else { Some(true) }, "{name}");
    }
}

/// What the targets wait for is that nothing is below, whatever becomes of the connection.
#[test]
fn what_is_below_is_awaited_before_the_targets_hear_that_the_session_has_drained() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 4096), &pattern(4096, 0));
    world.with(0, |connection, ctx| connection.handle_lost(Loss::Error(104), ctx));
    world.run();
    world.closed(0);
    assert!(!world.links[0].connection.is_gone(), "a write is below");
    assert_eq!(world.shard.shared.session_count(), 1);
    world.release_requests();
    assert!(world.links[0].connection.is_gone());
    assert_eq!(world.shard.shared.session_count(), 0);
}

#[test]
fn a_login_is_closed_in_every_state() {
    let begun: fn(&mut World) = |_| ();
    let half: fn(&mut World) = |world| {
        let bytes = world.links[0].host.log_in(HOST, Some(TARGET), &[], ());
        world.send(0, &bytes[..60]);
    };
    let more: fn(&mut World) = |world| {
        let flags = wire::iscsi::LoginFlags::stay(wire::iscsi::Stage::OPERATIONAL);
        let bytes = world.links[0].host.login(flags.with_continue(true), b"Initiat", ());
        world.send(0, &bytes);
        world.said(0);
    };
    for reach in [begun, half, more] {
        for way in 0..3 {
            let mut world = World::new();
            world.accept();
            reach(&mut world);
            world.with(0, |connection, ctx| match way {
                0 => connection.handle_lost(Loss::EndOfStream, ctx),
                1 => connection.close(SessionEnd::ServerStopping, ctx),
                _ => {}
            });
            world.run();
            assert_eq!(world.links[0].pipe.close, [Some(false), Some(true), None][way]);
        }
    }
}

fn timed_out(world: &mut World, limit: Duration, which: TimeLimit) {
    world.pass(0, limit - JUST_BEFORE);
    assert_eq!(world.links[0].pipe.close, None, "{which:?} too early");
    world.pass(0, JUST_BEFORE);
    assert!(world.links[0].pipe.close.is_some(), "{which:?} did not end it");
    assert_eq!(world.links[0].connection.reason(), Some(&Reason::TimedOut(which)));
    assert!(world.links[0].connection.misconduct().is_some());
}

#[test]
fn a_pdu_once_begun_must_be_completed() {
    let mut world = World::connected(Default::default());
    let (_, pdu) = world.links[0].host.command(flush(), &[], ());
    world.send(0, &pdu[..30]);
    timed_out(&mut world, PDU_COMPLETE, TimeLimit::Pdu);
    // Also one of which nothing but the data are missing that nobody takes.
    let mut world = World::connected(Default::default());
    let (_, pdu) = world.links[0].host.command(write(u32::MAX, 8192), &pattern(8192, 1), ());
    world.send(0, &pdu[..3000]);
    timed_out(&mut world, PDU_COMPLETE, TimeLimit::Pdu);
}

#[test]
fn a_pdu_that_is_cut_by_every_receive_is_no_slow_pdu() {
    let mut world = World::connected(Default::default());
    let mut rest = Vec::new();
    for _ in 0..20 {
        let (_, pdu) = world.links[0].host.command(flush(), &[], ());
        let next = [&rest[..], &pdu[..30]].concat();
        world.send(0, &next);
        world.pass(0, PDU_COMPLETE - Duration::from_secs(1));
        rest = pdu[30..].to_vec();
    }
    assert_eq!(world.links[0].pipe.close, None);
}

#[test]
fn data_that_were_asked_for_must_come() {
    let mut world = World::connected(Default::default());
    let r2t = world.ask(write(0, 32_768), &[]).r2t();
    world.pass(0, DATA_AFTER_R2T - JUST_BEFORE);
    // Progress counts.
    let piece = world.links[0].host.give(&r2t, 0, &pattern(4096, 0));
    world.send(0, &piece);
    timed_out(&mut world, DATA_AFTER_R2T, TimeLimit::Data);
}

#[test]
fn data_that_were_announced_must_come() {
    for lba in [0, u32::MAX] {
        let mut world = World::connected(Default::default());
        world.command(0, write(lba, 8192).unfinished(), &[]);
        timed_out(&mut world, DATA_AFTER_R2T, TimeLimit::Data);
    }
}

#[test]
fn progress_of_one_command_does_not_excuse_another() {
    let mut world = World::connected(Default::default());
    let r2t = world.ask(write(0, 32_768), &[]).r2t();
    world.command(0, write(0, 32_768), &[]);
    for piece in 0..3 {
        world.pass(0, DATA_AFTER_R2T / 4);
        let bytes = world.links[0].host.give(&r2t, piece * 4096, &pattern(4096, 0));
        world.send(0, &bytes);
    }
    timed_out(&mut world, DATA_AFTER_R2T / 4, TimeLimit::Data);
}

#[test]
fn a_host_that_does_not_read_is_closed_unless_it_reads_a_little() {
    let mut world = World::connected(Default::default());
    world.links[0].hold_sends = true;
    world.command(0, read(0, 4096), &[]);
    world.pass(0, SEND_PROGRESS - JUST_BEFORE);
    let now = world.shard.now;
    world.links[0].connection.handle_progress(now);
    timed_out(&mut world, SEND_PROGRESS, TimeLimit::Send);
    assert_eq!(world.links[0].pipe.close, Some(false));
}

#[test]
fn last_words_that_are_not_read_do_not_keep_a_connection() {
    let mut world = World::connected(Default::default());
    world.links[0].hold_sends = true;
    world.send(0, &[0x3f; 48]);
    assert_eq!(world.links[0].pipe.close, None, "the last words are out");
    world.pass(0, SEND_PROGRESS);
    assert_eq!(world.links[0].pipe.close, Some(false));
}

#[test]
fn a_session_that_is_idle_asks_for_no_wakening() {
    let mut world = World::connected(Default::default());
    for _ in 0..4 {
        world.pass(0, Duration::from_secs(60));
    }
    assert_eq!(world.links[0].connection.poll_timeout(), None);
    assert_eq!(world.links[0].pipe.close, None);
}

/// Each would wake the shard by itself.
#[test]
fn sessions_are_looked_at_for_idleness_together() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    for link in [0, other, 0, other] {
        world.pass(link, Duration::from_secs(30));
    }
    assert_eq!([0, other].map(|link| world.links[link].connection.poll_timeout()), [None; 2]);
    // Both within the same five seconds.
    world.command(0, read(0, 4096), &[]);
    world.pass(0, Duration::from_millis(1_700));
    world.command(other, read(0, 4096), &[]);
    let moments = [0, other].map(|link| world.links[link].connection.poll_timeout());
    assert!(moments[0].is_some() && moments[0] == moments[1], "{moments:?}");
}

#[test]
fn a_session_that_is_idle_gives_its_tables_back() {
    let mut world = World::connected(Default::default());
    for _ in 0..100 {
        world.command(0, read(0, 4096), &[]);
    }
    world.said(0);
    world.pass(0, Duration::from_secs(60));
    world.pass(0, Duration::from_secs(60));
    assert_eq!(world.links[0].connection.poll_timeout(), None);
    assert!(world.lives(), "and takes commands again");
    assert!(world.links[0].connection.poll_timeout().is_some());
}

#[test]
fn how_a_session_ended_is_told_in_words() {
    let mut world = World::connected(Default::default());
    world.send(0, &[0xff; 48]);
    let reason = world.links[0].connection.reason().expect("it ended").to_string();
    assert!(reason.starts_with("protocol error of the host: "), "{reason}");
    assert_eq!(Reason::LoggedOut.to_string(), "the host logged out");
    assert_eq!(
        Reason::TimedOut(TimeLimit::Data).to_string(),
        "data that were asked for did not come in time"
    );
}
