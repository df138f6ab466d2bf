//! Hosts that ask and do not read: what is held for them outside the pool has its bound, and
//! whoever reads again is served again.

use core::time::Duration;

use block::limits::{LAST_SEND_PROGRESS, TRANSFER_MAX};
use contract::SessionEnd;
use wire::nvme::identify::Cns;
use wire::nvme::log::{DiscoveryHeader, LogId};
use wire::nvme::{Command, Nqn, Status};
use wire::nvme_tcp::{Digests, FatalErrorStatus};

use super::transfer::{ADMIN, IO};
use super::world::{ALL_DIGESTS, SUBSYSTEM, Said, World, capsule};
use block::limits::REPLY_DATA_MAX;

const DISCOVERY: &str = Nqn::DISCOVERY;
/// Entries of the queues here.
const DEPTH: u32 = 128;
/// Bytes of an answer and of what sends it: two headers with digests, and their segments.
const ANSWER: usize = 160;
/// Replies' data, and one more reply, the longest there is here; and the answers of two batches.
const HELD_MAX: usize = REPLY_DATA_MAX as usize + 4096 + 2 * DEPTH as usize * ANSWER;

/// The admin queue of a controller of `subsystem`, of [`DEPTH`] entries.
fn admin_queue(subsystem: &str, digests: Digests) -> (World, usize) {
    let mut world = World::new();
    let (link, _) = world.connect_admin_to(subsystem, DEPTH as u16 - 1, digests);
    (world, link)
}

/// Says `command` `count` times, with CIDs of its own, and reads nothing.
fn flood(world: &mut World, link: usize, command: Command, count: u16) {
    world.links[link].hold_sends = true;
    let digests = world.links[link].digests;
    let words: Vec<u8> =
        (0..count).flat_map(|id| capsule(command.with_command_id(id), &[], digests)).collect();
    for piece in words.chunks(4096) {
        world.send(link, piece);
        let held = world.held(link);
        assert!(held <= HELD_MAX, "{held} bytes are held for a host that does not read");
    }
}

/// The statuses, and how many bytes of data came before each.
fn answers(said: &[Said]) -> Vec<(u16, Status, usize)> {
    let mut bytes = 0;
    let answer = |said: &Said| match said {
        Said::Data(_, data) => {
            bytes += data.len();
            None
        }
        said => {
            let entry = said.response();
            Some((entry.command_id, entry.status, core::mem::take(&mut bytes)))
        }
    };
    said.iter().filter_map(answer).collect()
}

#[test]
fn replies_with_data_stop_the_stream_until_they_have_left() {
    let log = |id, bytes| Command::get_log(id, 0, 0, bytes, true);
    let asked = [
        (DISCOVERY, log(LogId::DISCOVERY, 1 << 16), 1 << 16),
        (DISCOVERY, log(LogId::SUPPORTED, 4096), 4096),
        (DISCOVERY, Command::identify(Cns(1), 0), 4096),
        (SUBSYSTEM, Command::identify(Cns(1), 0), 4096),
        (SUBSYSTEM, log(LogId::COMMAND_EFFECTS, 1 << 15), 1 << 15),
    ];
    for (subsystem, command, bytes) in asked {
        let (mut world, link) = admin_queue(subsystem, Digests::NONE);
        let before = world.links[link].connection.counters().commands;
        flood(&mut world, link, command, 100);
        let taken = world.links[link].connection.counters().commands - before;
        assert!(world.links[link].pipe.is_paused() && taken < 100, "{command}: {taken} were taken");
        world.pass(link, Duration::from_secs(29));
        assert!(world.links[link].pipe.close.is_none(), "it is slow, and does nothing wrong");
        world.release_sends(link);
        let expected: Vec<_> = (0..100).map(|id| (id, Status::SUCCESS, bytes)).collect();
        assert_eq!(answers(&world.said(link)), expected, "{command}");
        assert!(!world.links[link].pipe.is_paused());
    }
}

#[test]
fn what_asks_for_no_data_does_not_wait_for_replies_that_do() {
    let identify = Command::identify(Cns(1), 0);
    let mut fill = 0;
    let (mut world, link) = admin_queue(SUBSYSTEM, Digests::NONE);
    while !world.links[link].pipe.is_paused() {
        flood(&mut world, link, identify, 1);
        fill += 1;
    }
    let (mut world, link) = admin_queue(SUBSYSTEM, Digests::NONE);
    (1..fill).for_each(|_| flood(&mut world, link, identify, 1));
    flood(&mut world, link, Command::keep_alive(), 10);
    assert!(!world.links[link].pipe.is_paused());
    flood(&mut world, link, identify, 1);
    assert!(world.links[link].pipe.is_paused());
    world.release_sends(link);
    assert_eq!(answers(&world.said(link)).len(), fill + 10);
}

#[test]
fn a_host_that_never_reads_is_closed_with_its_stream_stopped() {
    let (mut world, link) = admin_queue(DISCOVERY, Digests::NONE);
    let command = Command::get_log(LogId::DISCOVERY, 0, 0, TRANSFER_MAX, true);
    flood(&mut world, link, command, 3000);
    assert!(world.links[link].pipe.is_paused());
    world.pass(link, Duration::from_secs(31));
    assert_eq!(world.links[link].pipe.close, Some(false));
}

#[test]
fn who_does_not_read_keeps_no_server_from_stopping() {
    let stop = |world: &mut World, link| {
        world.with(link, |connection, ctx| connection.close(SessionEnd::ServerStopping, ctx));
        world.run();
        world.pass(link, LAST_SEND_PROGRESS);
        assert_eq!(world.links[link].pipe.close, Some(false));
    };
    let command = Command::get_log(LogId::DISCOVERY, 0, 0, TRANSFER_MAX, true);
    for violates in [false, true] {
        let (mut world, link) = admin_queue(DISCOVERY, Digests::NONE);
        flood(&mut world, link, command, 10);
        if violates {
            world.send(link, &[0x0b; 8]);
        }
        stop(&mut world, link);
    }
    // Whoever reads in that time gets all that was gathered.
    let (mut world, link) = admin_queue(DISCOVERY, Digests::NONE);
    flood(&mut world, link, Command::keep_alive(), 60);
    world.with(link, |connection, ctx| connection.close(SessionEnd::ServerStopping, ctx));
    world.pass(link, LAST_SEND_PROGRESS / 2);
    world.finish_send(link);
    world.run();
    world.pass(link, LAST_SEND_PROGRESS * 3 / 4);
    world.release_sends(link);
    assert_eq!((world.said(link).len(), world.links[link].pipe.close), (60, Some(true)));
}

#[test]
fn unseen_answers_count_as_commands_outstanding() {
    let refused = Command::read(77, 0, 1, 512);
    for (link, command) in [(ADMIN, Command::keep_alive()), (IO, refused)] {
        let mut world = World::new();
        let depth = DEPTH as u16 - 1;
        let (_, controller) = world.connect_admin_to(SUBSYSTEM, depth, Digests::NONE);
        world.connect_io(Digests::NONE, controller, depth, false);
        // Those of the first piece leave as a batch, which the host may see; all others it has not
        // seen.
        let first = 4096 / 72;
        flood(&mut world, link, command, first + DEPTH as u16);
        assert!(world.links[link].pipe.close.is_none(), "{command} within the queue's depth");
        flood(&mut world, link, command, 1);
        assert_eq!(world.links[link].pipe.close, None, "the last words are behind a batch");
        world.release_sends(link);
        let mut said = world.said(link);
        let fes = said.pop().expect("the last words").term().fes;
        assert_eq!(fes, FatalErrorStatus::SEQUENCE_ERROR, "{command}");
        assert_eq!(said.len(), usize::from(first) + DEPTH as usize, "what was taken is answered");
    }
}

#[test]
fn reads_whose_data_are_the_answer_count_as_well() {
    let mut world = World::connected_with(Digests::NONE, DEPTH as u16 - 1, true);
    let read = Command::read(1, 0, 1, 512);
    flood(&mut world, IO, read, 4096 / 72 + DEPTH as u16);
    assert!(world.links[IO].pipe.close.is_none());
    flood(&mut world, IO, read, 1);
    world.release_sends(IO);
    let fes = world.said(IO).pop().expect("the last words").term().fes;
    assert_eq!(fes, FatalErrorStatus::SEQUENCE_ERROR);
}

#[test]
fn a_host_that_reads_has_its_whole_queue_again_and_again() {
    let (mut world, link) = admin_queue(DISCOVERY, Digests::NONE);
    for _ in 0..20 {
        flood(&mut world, link, Command::keep_alive(), DEPTH as u16);
        world.release_sends(link);
        assert_eq!(world.said(link).len(), DEPTH as usize);
    }
}

#[test]
fn reads_that_are_lent_count_while_nothing_has_left() {
    for flow_control_off in [false, true] {
        let mut world = World::connected_with(Digests::NONE, 7, flow_control_off);
        world.shard.below.lends = true;
        world.shard.memory.lends = vec![vec![7; 512]];
        let read = capsule(Command::read(1, 0, 1, 512), &[], Digests::NONE);
        world.send(IO, &read.repeat(8));
        let pdus_each = if flow_control_off { 1 } else { 2 };
        assert_eq!(world.said(IO).len(), 8 * pdus_each);
        world.send(IO, &read.repeat(9));
        let mut said = world.said(IO);
        let fes = said.pop().expect("the last words").term().fes;
        assert_eq!((said.len(), fes), (8 * pdus_each, FatalErrorStatus::SEQUENCE_ERROR));
    }
}

#[test]
fn a_long_log_is_read_whole_and_ends_in_zeros() {
    for digests in ALL_DIGESTS {
        let (mut world, link) = admin_queue(DISCOVERY, digests);
        for bytes in [1024, 2048, 5000, TRANSFER_MAX] {
            let command = Command::get_log(LogId::DISCOVERY, 0, 0, bytes, true);
            world.command(link, command);
            let said = world.said(link);
            assert!(said[1].status().is_success());
            // Its digest was compared on the way.
            let Said::Data(_, data) = &said[0] else { panic!("no data") };
            assert_eq!(data.len(), bytes as usize);
            assert_eq!(DiscoveryHeader::parse(data).expect("a header").records, 1);
            let name = &data.get(1024 + 256..).unwrap_or_default();
            assert!(bytes < 2048 || name.starts_with(SUBSYSTEM.as_bytes()));
            assert!(data.iter().skip(2048).all(|byte| *byte == 0));
        }
    }
}
