//! Who waits for memory, in which order, and that nobody waits for ever.

use block::limits::TRANSFER_MAX;
use block::{Account, Buffer, Class, Memory};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::transfer::{ADMIN, IO};
use super::world::{ALL_DIGESTS, Said, World, pattern};
use crate::limits::DATA_AFTER_R2T;

/// Takes pages of the pool until `class` finds none of `length` any more.
pub(super) fn hog(world: &mut World, class: Class, length: u32) -> Vec<(Account, Buffer)> {
    let mut held = Vec::new();
    loop {
        let mut account = Account::new(class);
        match world.shard.pool.take(&mut account, length, 0) {
            Some(buffer) => held.push((account, buffer)),
            None => return held,
        }
    }
}

pub(super) fn give(world: &mut World, held: Vec<(Account, Buffer)>) {
    for (mut account, buffer) in held {
        let memory: &mut dyn Memory = &mut world.shard.memory;
        world.shard.pool.give(&mut account, memory, buffer);
    }
}

#[test]
fn a_capsule_without_memory_stops_the_stream_and_nothing_of_it_is_lost() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        let held = hog(&mut world, Class::Immediate, 4096);
        let data = pattern(4096, 8);
        world.command_with(IO, Command::write(1, 0, 8, 4096).with_command_id(1), &data);
        world.command(IO, Command::flush(1).with_command_id(2));
        assert!(world.links[IO].pipe.is_paused() && world.said(IO).is_empty());
        assert!(world.links[IO].connection.waits_for_memory(Class::Immediate));
        assert_eq!(world.links[IO].connection.counters().waits, 1);
        assert!(world.wake(IO), "there is none yet");
        give(&mut world, held);
        assert!(!world.wake(IO));
        let said = world.said(IO);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!((said[0].response().command_id, said[1].response().command_id), (1, 2));
        assert_eq!(world.volumes[0][..4096], data);
    }
}

#[test]
fn reads_wait_in_line_while_the_stream_goes_on() {
    let mut world = World::connected(Digests::NONE);
    let held = hog(&mut world, Class::Transfer, 4096);
    for command_id in 0..4 {
        world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(command_id));
    }
    world.command(IO, Command::write(1, 0, 64, 32_768).with_command_id(4));
    world.command_with(IO, Command::write(1, 8, 1, 512).with_command_id(9), &[3; 512]);
    world.command(IO, Command::flush(1).with_command_id(10));
    assert!(!world.links[IO].pipe.is_paused());
    let said = world.said(IO);
    assert_eq!((said[0].response().command_id, said[1].response().command_id), (9, 10));
    assert_eq!(world.links[IO].connection.counters().waits, 5);
    assert!(world.wake(IO));
    give(&mut world, held);
    assert!(!world.wake(IO));
    let said = world.said(IO);
    assert_eq!(said.len(), 9, "four reads and an R2T: {said:?}");
    let r2t = said.iter().find_map(|said| match said {
        Said::R2T(r2t) => Some(*r2t),
        _ => None,
    });
    world.grant(IO, &r2t.expect("an R2T"), &pattern(32_768, 0), 32_768);
    assert!(world.said_one(IO).status().is_success());
}

#[test]
fn a_large_transfer_does_not_starve_behind_small_ones() {
    let mut world = World::connected(Digests::NONE);
    let mut held = hog(&mut world, Class::Transfer, 4096);
    world.command(IO, Command::read(1, 0, 2048, TRANSFER_MAX).with_command_id(1));
    let some = held.split_off(held.len() - 100);
    give(&mut world, some);
    world.command(IO, Command::read(1, 0, 8, 4096).with_command_id(2));
    assert!(world.said(IO).is_empty(), "there was memory for it, but it came later");
    give(&mut world, held);
    // The large one alone is more than the connection's share, so the small one goes when it has
    // left.
    assert!(world.wake(IO));
    assert!(!world.wake(IO));
    let said = world.said(IO);
    assert_eq!(said[1].response().command_id, 1);
    assert_eq!(said[3].response().command_id, 2);
}

/// A stopped stream must not wait for memory that hangs on data further back in the same stream.
#[test]
fn a_capsule_gets_memory_while_transfers_hold_all_that_the_connection_may_have() {
    let mut world = World::connected(Digests::NONE);
    let mut tags = Vec::new();
    for command_id in 0..64 {
        world.command(IO, Command::write(1, 0, 128, 65_536).with_command_id(command_id));
        tags.extend(world.said(IO));
    }
    assert!(world.links[IO].connection.waits_for_memory(Class::Transfer), "its share is used up");
    world.command_with(IO, Command::write(1, 0, 1, 512).with_command_id(100), &[1; 512]);
    assert_eq!(world.said_one(IO).response().command_id, 100);
    // And each grant that is used makes room for the next.
    let mut done = 0;
    while let Some(said) = tags.pop() {
        let r2t = said.r2t();
        world.grant(IO, &r2t, &pattern(65_536, 1), 65_536);
        world.wake(IO);
        for said in world.said(IO) {
            match said {
                Said::Response(entry) => {
                    assert_eq!(entry.status, Status::SUCCESS);
                    done += 1;
                }
                other => tags.push(other),
            }
        }
    }
    assert_eq!(done, 64);
}

#[test]
fn who_waits_for_memory_may_be_closed() {
    for capsule in [false, true] {
        let mut world = World::connected(Digests::NONE);
        let class = if capsule { Class::Immediate } else { Class::Transfer };
        let held = hog(&mut world, class, 4096);
        if capsule {
            world.command_with(IO, Command::write(1, 0, 1, 512), &[1; 512]);
        } else {
            world.command(IO, Command::read(1, 0, 8, 4096));
        }
        give(&mut world, held);
        if capsule {
            // The memory is taken, and the connection is lost before the stream goes on.
            world.with(IO, |connection, ctx| {
                connection.handle_memory(class, ctx);
                assert!(!connection.waits_for_memory(class));
                connection.handle_lost(contract::Loss::Error(104), ctx);
            });
            world.run();
        }
    }
}

/// Its data, which were asked for, and its signs of life stand behind the capsule that stopped the
/// stream.
#[test]
fn a_host_whose_stream_we_stopped_is_late_with_nothing() {
    let mut world = World::connected(Digests::NONE);
    let r2t = world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(1)).r2t();
    let held = hog(&mut world, Class::Immediate, 4096);
    world.command_with(IO, Command::write(1, 64, 1, 512).with_command_id(2), &[2; 512]);
    for _ in 0..3 {
        world.pass(IO, DATA_AFTER_R2T);
        assert_eq!(world.links[IO].pipe.close, None);
    }
    give(&mut world, held);
    assert!(!world.wake(IO));
    assert_eq!(world.said_one(IO).response().command_id, 2);
    world.pass(IO, DATA_AFTER_R2T - core::time::Duration::from_secs(1));
    assert_eq!(world.links[IO].pipe.close, None, "it was read again 29 s ago");
    assert!(world.granted(IO, &r2t, &pattern(16_384, 1), 16_384).status().is_success());
    // Once it is read its time runs.
    world.ask(IO, Command::write(1, 0, 32, 16_384).with_command_id(1)).r2t();
    world.pass(IO, DATA_AFTER_R2T);
    assert!(world.links[IO].pipe.close.is_some());
}

#[test]
fn the_controller_is_told_while_the_stream_is_stopped() {
    let mut world = World::connected(Digests::NONE);
    let keep_alive = Command::set_features(0x0f, 0, 5000, 0);
    assert!(world.ask(ADMIN, keep_alive).status().is_success());
    let seconds = core::time::Duration::from_secs;
    let expire = |world: &mut World| {
        world.pass(IO, seconds(6));
        let now = world.shard.now;
        world.shard.shared.handle_timeout(now);
        world.run();
        world.links[IO].pipe.close.is_some()
    };
    let held = hog(&mut world, Class::Immediate, 4096);
    world.command_with(IO, Command::write(1, 64, 1, 512), &[2; 512]);
    assert!(!expire(&mut world) && !expire(&mut world), "it is not read");
    give(&mut world, held);
    assert!(!world.wake(IO));
    assert!(expire(&mut world), "it is read, and silent");
}
