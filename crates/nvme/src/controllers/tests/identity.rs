//! Another volume under a number, on several shards: each controller gets it once it has asked who
//! is there, on all its queues.

use wire::nvme::identify::{Cns, IdentifyNamespace};

use super::*;
use crate::controllers::QueueHandle;

/// Under number 1: nothing, or the volume whose UUID is made of this.
fn put(controllers: &mut Controllers, now: Instant, volume: Option<u8>) {
    let namespace = volume.map(|volume| Namespace { uuid: [volume; 16], ..namespace(1) });
    controllers.set_subsystem(now, fixtures::subsystem(namespace));
}

fn replace(world: &mut World, volume: u8) {
    world.configure(|controllers, now| put(controllers, now, None));
    world.configure(|controllers, now| put(controllers, now, Some(volume)));
}

/// What a command to number 1 finds.
fn found(world: &mut World, line: Line, queue: QueueHandle) -> Option<u8> {
    let now = world.now;
    let found = world.of(line).command_heard(now, queue, 1).expect("an open queue");
    found.map(|namespace| namespace.uuid[0])
}

fn identify() -> Command {
    Command::identify(Cns::NAMESPACE, 1)
}

#[test]
fn identify_is_answered_when_the_queues_on_other_shards_are_open() {
    let (mut world, admin, view) = World::ready_on(3);
    let (near, near_view) = world.join(&Ask::io(0, view.controller, 1));
    let (far, far_view) = world.join(&Ask::io(1, view.controller, 2));
    assert!(matches!(world.start_command(admin, &identify(), &[]), Answer::Now(_)));
    replace(&mut world, 7);
    assert_eq!(found(&mut world, near, near_view.handle), None);
    assert_eq!(found(&mut world, far, far_view.handle), None);
    world.admin_later(admin, &identify());
    assert_eq!(found(&mut world, near, near_view.handle), Some(7));
    assert_eq!(found(&mut world, far, far_view.handle), None);
    world.deliver(0, 1);
    assert_eq!(found(&mut world, far, far_view.handle), Some(7));
    assert_eq!(world.take_reply(admin), None);
    world.settle();
    let reply = world.take_reply(admin).expect("an answer");
    let identified = IdentifyNamespace::parse(&reply.data.bytes).expect("a namespace");
    assert_eq!((reply.status, identified.nguid), (Status::SUCCESS, [7; 16]));
    assert!(matches!(world.start_command(admin, &identify(), &[]), Answer::Now(_)));
}

#[test]
fn a_queue_that_connects_later_knows_no_more_than_its_controller() {
    let (mut world, _, view) = World::ready_on(2);
    replace(&mut world, 7);
    for shard in 0..2 {
        let (line, queue) = world.join(&Ask::io(shard, view.controller, shard + 1));
        assert_eq!(found(&mut world, line, queue.handle), None);
    }
    let (_, view) = world.ready(&Ask::default());
    let (line, queue) = world.join(&Ask::io(1, view.controller, 1));
    assert_eq!(found(&mut world, line, queue.handle), Some(7), "a new controller asks by itself");
}

#[test]
fn an_answer_to_identify_may_come_after_its_controller() {
    let (mut world, admin, view) = World::ready_on(2);
    let (far, _) = world.join(&Ask::io(1, view.controller, 1));
    replace(&mut world, 7);
    world.admin_later(admin, &identify());
    world.lose(far);
    world.lose(admin);
    world.settle();
    world.assert_empty();
}

/// Shards follow the configuration at different times, mail comes when it likes, queues connect in
/// between: a command finds what its controller was told last, or is just being told, or nothing;
/// and in the end what is there.
#[test]
fn no_queue_ever_finds_what_its_controller_was_not_told() {
    for seed in 0..400 {
        let random = &mut Random::new(seed);
        let (mut world, admin, view) = World::ready_on(3);
        let (mut known, mut asked) = (1, None);
        let mut queues = Vec::new();
        let mut connecting = Vec::new();
        let mut next_queue = 1;
        // The change under way, and the shards that have not made it.
        let mut volume = Some(1);
        let mut behind: Vec<usize> = Vec::new();
        for _ in 0..200 {
            match random.below(8) {
                0 | 1 if behind.is_empty() => {
                    volume = [None, Some(1), Some(7), Some(8)][random.below(4) as usize];
                    behind = vec![0, 1, 2];
                }
                0..=2 if !behind.is_empty() => {
                    let at = random.below(behind.len() as u64) as usize;
                    let (shard, now) = (behind.remove(at), world.now);
                    put(&mut world.shards[shard], now, volume);
                    world.collect();
                }
                3 if asked.is_none() => {
                    let reply = world.start_command(admin, &identify(), &[]);
                    let export = world.shards[0].export_of.get(&nqn(SUBSYSTEM)).copied();
                    let told = world.shards[0].identity_of(export, 1);
                    asked = told.map(|identity| identity.uuid[0]);
                    if matches!(reply, Answer::Now(_)) {
                        known = asked.take().unwrap_or(known);
                    }
                }
                4 if next_queue <= 16 => {
                    let shard = random.below(3) as u16;
                    let ask = Ask::io(shard, view.controller, next_queue);
                    next_queue += 1;
                    let (line, answer) = world.start(&ask);
                    match answer {
                        Answer::Now(reply) => queues.push((line, reply.queue.expect("a queue"))),
                        Answer::Later => connecting.push(line),
                    }
                }
                _ => drop(world.deliver_any(random)),
            }
            if world.take_reply(admin).is_some() {
                known = asked.take().expect("an Identify was under way");
            }
            connecting.retain(|line| {
                let reply = world.take_reply(*line);
                let joined = reply.map(|reply| reply.queue.expect("a queue"));
                joined.inspect(|queue| queues.push((*line, *queue))).is_none()
            });
            for (line, queue) in &queues {
                let found = found(&mut world, *line, queue.handle);
                let right = found.is_none() || found == Some(known) || found == asked;
                assert!(right, "seed {seed}: {found:?} on {line:?}, told {known}, asked {asked:?}");
            }
        }
        for shard in behind {
            let now = world.now;
            put(&mut world.shards[shard], now, volume);
        }
        world.settle();
        world.start_command(admin, &identify(), &[]);
        world.settle();
        for (line, queue) in &queues {
            assert_eq!(found(&mut world, *line, queue.handle), volume, "seed {seed}: {line:?}");
        }
    }
}

/// The queue came to a shard that still had what its controller, made where nothing was any more,
/// never knew.
#[test]
fn a_queue_that_saw_an_older_volume_learns_what_its_controller_is_told() {
    let mut world = World::new(2);
    let now = world.now;
    put(&mut world.shards[1], now, Some(7));
    put(&mut world.shards[0], now, None);
    world.collect();
    let (admin, view) = world.ready(&Ask::default());
    let (far, queue) = world.join(&Ask::io(1, view.controller, 1));
    put(&mut world.shards[1], now, None);
    world.collect();
    world.configure(|controllers, now| put(controllers, now, Some(1)));
    world.admin_later(admin, &identify());
    world.settle();
    assert!(world.take_reply(admin).is_some());
    assert_eq!(found(&mut world, far, queue.handle), Some(1));
    replace(&mut world, 7);
    assert_eq!(found(&mut world, far, queue.handle), None, "nobody was told of that one");
}
