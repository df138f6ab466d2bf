//! Queues of one controller on several shards, with mail that arrives in any order that is first
//! in, first out between two.

use wire::nvme::log::{ErrorEntry, LogId, Smart};

use super::*;
use crate::controllers::health::{Failures, Origin};
use contract::Traffic;

#[test]
fn a_connection_that_is_lost_while_its_owner_is_asked_gives_its_number_back() {
    let (mut world, _, view) = World::ready_on(2);
    let ask = Ask::io(1, view.controller, 1);
    let line = world.start_later(&ask);
    world.lose(line);
    world.settle();
    assert_eq!(world.take_reply(line), None);
    world.join(&ask);
}

#[test]
fn a_connection_that_is_lost_while_the_shards_are_asked_leaves_nothing() {
    let mut world = World::new(2);
    let line = world.start_later(&Ask::default());
    world.lose(line);
    world.settle();
    world.assert_empty();
}

#[test]
fn a_reset_that_crosses_a_connect_closes_the_queue_that_it_made() {
    let (mut world, admin, view) = World::ready_on(2);
    let io = world.start_later(&Ask::io(1, view.controller, 1));
    // The owner admits the queue, and is reset before the answer arrives.
    assert!(world.deliver(1, 0));
    world.admin_later(admin, &Command::property_set(0x14, 0));
    world.settle();
    assert_eq!(world.take_reply(io).map(|reply| reply.status), Some(Status::SUCCESS));
    assert_eq!(world.take_close(io), Some(CloseReason::Reset));
    assert_eq!(world.take_reply(admin), None);
    world.drained(io);
    world.settle();
    assert_eq!(world.take_reply(admin).map(|reply| reply.status), Some(Status::SUCCESS));
}

#[test]
fn a_subsystem_that_goes_while_the_shards_are_asked_is_refused() {
    let mut world = World::new(2);
    let line = world.start_later(&Ask::default());
    world.remove(SUBSYSTEM);
    world.settle();
    let reply = world.take_reply(line).expect("an answer");
    assert_eq!(reply.status, Status::CONNECT_INVALID_PARAMETERS.with_dnr());
    world.assert_empty();
}

/// A connection of the random world.
#[derive(Debug)]
struct Open {
    line: Line,
    host: Host,
    view: Option<QueueView>,
    closing: bool,
}

/// Hosts connect, reset, lose connections and drain in an order that the seed decides, with mail
/// delivered in between. At the end everything is lost and drained, and nothing may be left; on the
/// way no invariant (the `assert!`s and `expect`s) breaks. Returns how many queues were made, and
/// how many of them joined a controller of another shard.
fn random_life(seed: u64, shards: u16) -> (usize, usize) {
    let mut random = Random::new(seed);
    let mut world = World::new(shards);
    let mut open: Vec<Open> = Vec::new();
    let mut made = (0, 0);
    for _ in 0..400 {
        let shard = random.below(u64::from(shards)) as u16;
        let who = host(random.below(3) as u8);
        match random.below(24) {
            0 => {
                let ask = Ask { shard, host: who, keep_alive_ms: 3000, ..Ask::default() };
                start(&mut world, &mut open, &ask);
            }
            1..=4 => {
                let joined: Vec<(u16, Host)> = open
                    .iter()
                    .filter_map(|open| Some((open.view?.controller, open.host.clone())))
                    .collect();
                if !joined.is_empty() {
                    let (controller, own) =
                        joined[random.below(joined.len() as u64) as usize].clone();
                    let who = if random.chance(1, 8) { who } else { own };
                    let queue_id = 1 + random.below(6) as u16;
                    let ask = Ask { host: who, ..Ask::io(shard, controller, queue_id) };
                    start(&mut world, &mut open, &ask);
                }
            }
            5..=7 => with_admin(&mut world, &open, &mut random, ENABLE),
            8 if random.chance(1, 4) => with_admin(&mut world, &open, &mut random, 0),
            9 if !open.is_empty() && random.chance(1, 2) => {
                let index = random.below(open.len() as u64) as usize;
                let line = open[index].line;
                world.cut(line);
                open[index].closing = true;
                world.collect();
            }
            10..=12 => {
                if let Some(index) = open.iter().position(|open| open.closing) {
                    let gone = open.swap_remove(index);
                    world.drained(gone.line);
                }
            }
            13 => {
                world.now = world.now + Duration::from_millis(random.below(400));
                let now = world.now;
                world.shards.iter_mut().for_each(|controllers| controllers.handle_timeout(now));
                world.collect();
            }
            _ => {
                world.deliver_any(&mut random);
            }
        }
        notice(&mut world, &mut open, &mut made);
    }
    // The end: everything is lost and drains, in whatever order the mail comes.
    for open in &open {
        let (line, now) = (open.line, world.now);
        world.of(line).connection_gone(now, line.key);
        world.collect();
        world.deliver_any(&mut random);
    }
    for open in open {
        world.drained(open.line);
        world.deliver_any(&mut random);
    }
    world.settle();
    world.pass(crate::limits::HOST_HOLD);
    world.assert_empty();
    made
}

fn start(world: &mut World, open: &mut Vec<Open>, ask: &Ask) {
    let (line, answer) = world.start(ask);
    let view = match answer {
        Answer::Now(reply) if reply.queue.is_none() => return,
        Answer::Now(reply) => reply.queue,
        Answer::Later => None,
    };
    open.push(Open { line, host: ask.host.clone(), view, closing: false });
}

fn with_admin(world: &mut World, open: &[Open], random: &mut Random, cc: u32) {
    let admins: Vec<Line> = open
        .iter()
        .filter(|open| open.view.is_some_and(|view| view.queue_id == 0) && !open.closing)
        .map(|open| open.line)
        .collect();
    if !admins.is_empty() {
        let line = admins[random.below(admins.len() as u64) as usize];
        world.start_command(line, &Command::property_set(0x14, cc), &[]);
    }
}

/// What the shards answered and asked for since.
fn notice(world: &mut World, open: &mut Vec<Open>, made: &mut (usize, usize)) {
    for (key, reply) in world.replies.split_off(0) {
        let Some(index) = open.iter().position(|open| open.line.key == key) else { continue };
        if let Some(view) = reply.queue {
            open[index].view = Some(view);
            let elsewhere = view.controller % world.shards.len() as u16 != open[index].line.shard;
            (made.0, made.1) = (made.0 + 1, made.1 + usize::from(elsewhere));
        } else if reply.close {
            open.swap_remove(index);
        }
    }
    for (key, _) in world.closes.split_off(0) {
        let open = open.iter_mut().find(|open| open.line.key == key);
        open.expect("only a connection that is there is closed").closing = true;
    }
}

fn lives(seeds: u64, shards: u16) -> (usize, usize) {
    let lives = (0..seeds).map(|seed| random_life(seed, shards));
    lives.fold((0, 0), |sum, made| (sum.0 + made.0, sum.1 + made.1))
}

#[test]
fn nothing_is_left_of_any_history_on_one_shard() {
    lives(200, 1);
}

#[test]
fn nothing_is_left_of_any_history_on_several_shards() {
    for shards in [2, 4] {
        let (made, elsewhere) = lives(300, shards);
        assert!(made > 600 && elsewhere > 300, "the histories are too poor: {made}, {elsewhere}");
    }
}

fn read_log(world: &mut World, line: Line, id: LogId, bytes: u32) -> Vec<u8> {
    let command = Command::get_log(id, u32::MAX, 0, bytes, true);
    world.admin_later(line, &command);
    world.settle();
    let reply = world.take_reply(line).expect("the last answer completes the log");
    assert_eq!(reply.status, Status::SUCCESS);
    reply.data.bytes
}

#[test]
fn health_and_errors_are_those_of_all_shards() {
    let (mut world, admin, view) = World::ready_on(3);
    let (far, queue) = world.join(&Ask::io(2, view.controller, 1));
    let (near, own) = world.join(&Ask::io(0, view.controller, 2));
    let traffic = Traffic { reads: 2, read_bytes: 512_000, ..Traffic::default() };
    world.of(far).count_traffic(queue.handle, &traffic);
    let traffic = Traffic { writes: 1, write_bytes: 512_001, media_errors: 1, ..traffic };
    world.of(near).count_traffic(own.handle, &traffic);
    let failed = |count: u16, lba| {
        let mut failures = Failures::default();
        for command_id in 1..=count {
            let origin = Origin { lba, nsid: 1, command_id };
            failures.note(1, &origin, Status::UNRECOVERED_READ_ERROR);
        }
        Box::new(failures)
    };
    world.of(far).commands_failed(queue.handle, failed(40, 7));
    world.of(near).commands_failed(own.handle, failed(1, 8));
    let errors = read_log(&mut world, admin, LogId::ERROR, 1024);
    let entry = |index: usize| ErrorEntry::parse(&errors[64 * index..]).expect("an entry");
    let of_far = (entry(0).error_count, entry(0).command_id, entry(0).lba, entry(0).nsid);
    assert_eq!(of_far, (41, 40, 7, 1), "its mail came before its answer");
    assert_eq!((entry(15).error_count, entry(15).command_id), (26, 25));
    let health = read_log(&mut world, admin, LogId::SMART, 512);
    let health = Smart::parse(&health).expect("health");
    assert_eq!((health.host_reads, health.host_writes), (4, 1));
    assert_eq!((health.data_units_read, health.data_units_written), (2, 2));
    assert_eq!((health.media_errors, health.error_entries), (1, 41));
    // What went through a queue stays with its host when the queue is gone.
    let reads = |world: &mut World| {
        let told = world.of(far).traffic_report();
        told.iter().map(|one| (one.host.is_some(), one.traffic.reads)).collect::<Vec<_>>()
    };
    let before = reads(&mut world);
    assert_eq!(before.iter().map(|(_, reads)| reads).sum::<u64>(), 2, "{before:?}");
    world.drained(far);
    assert_eq!(reads(&mut world), before);
}

#[test]
fn a_log_that_is_read_when_its_controller_ends_leaves_nothing() {
    let (mut world, admin, _) = World::ready_on(2);
    let command = Command::get_log(LogId::SMART, u32::MAX, 0, 512, true);
    world.admin_later(admin, &command);
    world.lose(admin);
    world.settle();
    assert_eq!(world.take_reply(admin), None);
    world.assert_empty();
    let beyond = Command::get_log(LogId::SMART, u32::MAX, 516, 4, true);
    let (admin, _) = world.ready(&Ask::default());
    world.refuses(admin, &beyond, Status::INVALID_FIELD);
}
