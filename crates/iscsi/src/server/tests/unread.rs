//! Hosts that ask and do not read: what is held for them outside the pool has its bound, and whoever
//! reads again is served again.

use core::time::Duration;

use block::limits::{LAST_SEND_PROGRESS, REPLY_DATA_MAX};
use contract::SessionEnd;
use testkit::iscsi::text;
use wire::iscsi::{LogoutReason, RESERVED_TAG, Snack, SnackKind};
use wire::scsi::{Cdb, ScsiStatus};

use super::world::{Order, Said, World, flush, pattern, read, write};
use crate::limits::{COMMANDS_MAX, IMMEDIATE_MAX};

/// Bytes of an answer and of what sends it: a header with digest, and its segments.
const ANSWER: usize = 160;
/// The longest reply here.
const REPLY_MAX: usize = 8192;
/// Replies' data, once more as what sends them, and one more reply, the longest there is here; and
/// the answers of two batches.
const HELD_MAX: usize = 3 * REPLY_DATA_MAX as usize
    + REPLY_MAX
    + 2 * (2 * COMMANDS_MAX + IMMEDIATE_MAX) as usize * ANSWER;

/// Says this until it says nothing more, or so often, and reads nothing.
fn flood(world: &mut World, count: usize, mut say: impl FnMut(&mut World) -> Vec<u8>) -> usize {
    world.links[0].hold_sends = true;
    for said in 0..count {
        if world.links[0].pipe.is_paused() {
            return said;
        }
        let bytes = say(world);
        world.send(0, &bytes);
        let held = world.held(0);
        assert!(held <= HELD_MAX, "{held} bytes are held for a host that does not read");
    }
    count
}

fn reply(world: &mut World) -> Vec<u8> {
    let order = Order::read(0, Cdb::report_opcodes(true, REPLY_MAX as u32), REPLY_MAX as u32);
    world.links[0].host.command(order, &[], ()).1
}

fn nop(world: &mut World) -> Vec<u8> {
    world.links[0].host.nop(&pattern(4096, 1), ()).1
}

fn snack(_: &mut World) -> Vec<u8> {
    Snack::new(SnackKind::STATUS, [0; 8], RESERVED_TAG, RESERVED_TAG, 0, 0, 0).emit().to_vec()
}

fn targets(world: &mut World) -> Vec<u8> {
    world.links[0].host.text(&text(&[("SendTargets", "")]), None, ()).1
}

fn wrong_text(world: &mut World) -> Vec<u8> {
    world.links[0].host.text(b"=\0", None, ()).1
}

#[test]
fn replies_with_data_stop_the_stream_until_they_have_left() {
    for say in [reply, nop] {
        let mut world = World::connected(Default::default());
        let asked = flood(&mut world, 200, say);
        assert!(world.links[0].pipe.is_paused() && asked < 200, "{asked} were taken");
        world.pass(0, Duration::from_secs(29));
        assert!(world.links[0].pipe.close.is_none(), "it is slow, and does nothing wrong");
        world.release_sends(0);
        assert_eq!(world.said(0).len(), asked);
        assert!(!world.links[0].pipe.is_paused() && world.lives());
    }
}

#[test]
fn rejects_and_texts_stop_the_stream_as_well() {
    for say in [snack, targets, wrong_text] {
        let mut world = World::connected(Default::default());
        world.links[0].host.lenient = true;
        let asked = flood(&mut world, 2000, say);
        assert!(asked < 2000 || !world.links[0].host.may_ask(), "{asked} were taken");
        world.release_sends(0);
        assert!(world.said(0).len() <= asked);
        let host = &mut world.links[0].host;
        host.cmd_sn = host.max_cmd_sn.wrapping_sub(COMMANDS_MAX - 1);
        assert!(world.lives());
    }
}

#[test]
fn what_asks_for_no_data_does_not_wait_for_replies_that_do() {
    let mut world = World::connected(Default::default());
    let fill = flood(&mut world, 200, reply);
    let mut world = World::connected(Default::default());
    flood(&mut world, fill - 1, reply);
    flood(&mut world, 10, |world| world.links[0].host.command(flush(), &[], ()).1);
    assert!(!world.links[0].pipe.is_paused());
    flood(&mut world, 1, reply);
    assert!(world.links[0].pipe.is_paused());
    world.release_sends(0);
    assert_eq!(world.said(0).len(), fill + 10);
}

#[test]
fn a_host_that_never_reads_is_closed_with_its_stream_stopped() {
    let mut world = World::connected(Default::default());
    flood(&mut world, 3000, nop);
    assert!(world.links[0].pipe.is_paused());
    world.pass(0, Duration::from_secs(31));
    assert_eq!(world.links[0].pipe.close, Some(false));
}

/// It may send what it was told, and it was told by what it may have seen.
#[test]
fn a_host_that_never_reads_has_one_window_and_no_more() {
    let ready = Order::new(0, Cdb::test_unit_ready());
    let refuses = write(u32::MAX, 512);
    for (order, data) in [(ready, vec![]), (refuses, pattern(512, 1)), (flush(), vec![])] {
        let mut world = World::connected(Default::default());
        // One batch is out, which the host may see; all others it has not seen.
        let first = flood(&mut world, 1, |world| world.links[0].host.command(order, &data, ()).1);
        let before = world.links[0].connection.counters().commands;
        flood(&mut world, 2 * COMMANDS_MAX as usize, |world| {
            world.links[0].host.command(order, &data, ()).1
        });
        let taken = world.links[0].connection.counters().commands - before;
        assert_eq!(taken, u64::from(COMMANDS_MAX), "those beyond are passed over in silence");
        world.links[0].host.lenient = true;
        world.release_sends(0);
        assert_eq!(world.said(0).len() as u64, first as u64 + taken);
        world.links[0].host.cmd_sn = world.links[0].host.max_cmd_sn.wrapping_sub(COMMANDS_MAX - 1);
        assert!(world.lives());
    }
}

/// What is immediate takes no place that was promised.
#[test]
fn signs_of_life_take_no_place_in_the_window() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    flood(&mut world, 10, |world| world.links[0].host.nop(b"x", ()).1);
    let before = world.links[0].connection.counters().commands;
    while world.links[0].host.may_ask() {
        flood(&mut world, 1, |world| world.links[0].host.command(flush(), &[], ()).1);
    }
    let taken = world.links[0].connection.counters().commands - before;
    assert_eq!(taken, u64::from(COMMANDS_MAX));
    world.hold_requests = false;
    world.run();
    world.release_sends(0);
    assert_eq!(world.said(0).len(), 10 + COMMANDS_MAX as usize);
}

#[test]
fn a_host_that_reads_has_its_whole_window_again_and_again() {
    let mut world = World::connected(Default::default());
    for _ in 0..20 {
        world.links[0].hold_sends = true;
        let mut asked = 0;
        while world.links[0].host.may_ask() {
            asked += flood(&mut world, 1, |world| world.links[0].host.command(flush(), &[], ()).1);
        }
        assert_eq!(asked, COMMANDS_MAX as usize);
        world.release_sends(0);
        assert_eq!(world.said(0).len(), asked);
    }
}

#[test]
fn reads_that_are_lent_and_writes_that_landed_count_while_nothing_has_left() {
    let mut world = World::connected(Default::default());
    world.shard.memory.lends = vec![vec![7; 4096]];
    world.shard.below.lands = true;
    let host = &mut world.links[0].host;
    let mut bytes = Vec::new();
    for number in 0..COMMANDS_MAX + 40 {
        let (order, data) =
            if number % 2 == 0 { (read(0, 512), vec![]) } else { (write(0, 512), vec![1; 512]) };
        bytes.extend(host.command(order, &data, ()).1);
    }
    host.lenient = true;
    world.links[0].hold_sends = true;
    world.links[0].pipe.receive(&bytes);
    world.run();
    world.release_sends(0);
    let said = world.said(0);
    assert!(said.iter().all(|said| said.status() == ScsiStatus::GOOD));
    // What left with the first batches was told, so more may have been taken than one window.
    assert!(said.len() >= COMMANDS_MAX as usize, "{}", said.len());
}

#[test]
fn who_does_not_read_keeps_no_server_from_stopping() {
    let stop = |world: &mut World| {
        world.with(0, |connection, ctx| connection.close(SessionEnd::ServerStopping, ctx));
        world.run();
        world.pass(0, LAST_SEND_PROGRESS);
        assert_eq!(world.links[0].pipe.close, Some(false));
    };
    for violates in [false, true] {
        let mut world = World::connected(Default::default());
        flood(&mut world, 10, nop);
        if violates {
            world.send(0, &[0x3f; 48]);
        }
        stop(&mut world);
    }
    // Whoever reads in that time gets all that was gathered, and is told that it is dropped.
    let mut world = World::connected(Default::default());
    flood(&mut world, 60, |world| world.links[0].host.command(flush(), &[], ()).1);
    world.with(0, |connection, ctx| connection.close(SessionEnd::ServerStopping, ctx));
    world.pass(0, LAST_SEND_PROGRESS / 2);
    world.finish_send(0);
    world.run();
    world.pass(0, LAST_SEND_PROGRESS * 3 / 4);
    world.release_sends(0);
    let said = world.said(0);
    assert_eq!((said.len(), world.links[0].pipe.close), (61, Some(true)));
    assert!(matches!(said[60], Said::Async(_)));
}

#[test]
fn a_logout_that_is_not_read_ends_all_the_same() {
    let mut world = World::connected(Default::default());
    flood(&mut world, 3, nop);
    let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
    world.send(0, &bytes);
    world.pass(0, Duration::from_secs(31));
    assert_eq!(world.links[0].pipe.close, Some(false));
}
