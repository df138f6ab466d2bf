//! Who waits for memory, in which order, and that nobody waits for ever.

use block::limits::TRANSFER_MAX;
use block::{Account, Buffer, Class, Memory};
use wire::scsi::{Cdb, ScsiStatus};

use super::world::{ALL_DIGESTS, Order, Said, World, flush, pattern, read, write};
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
fn a_command_with_its_data_without_memory_stops_the_stream_and_nothing_of_it_is_lost() {
    for digests in ALL_DIGESTS {
        let mut world = World::connected(digests);
        let held = hog(&mut world, Class::Immediate, 4096);
        let data = pattern(4096, 8);
        let first = world.command(0, write(0, 4096), &data);
        let second = world.command(0, flush(), &[]);
        assert!(world.links[0].pipe.is_paused() && world.said(0).is_empty());
        assert!(world.links[0].connection.waits_for_memory(Class::Immediate));
        assert_eq!(world.links[0].connection.counters().waits, 1);
        assert!(world.wake(0), "there is none yet");
        give(&mut world, held);
        assert!(!world.wake(0));
        let tags: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
        assert_eq!(tags, [first, second]);
        assert_eq!(world.volumes[0][..4096], data);
    }
}

/// A command of several buffers waits for all of them, and gets what was kept for it.
#[test]
fn a_command_of_several_buffers_waits_for_all_of_them() {
    let caw = Order::write(0, Cdb::compare_and_write(0, 4, false), 4096);
    let or = Order::write(0, Cdb::orwrite_16(0, 8, false), 4096);
    for (order, log) in [(caw, vec!["compare and write"]), (or, vec!["read", "compare and write"])]
    {
        let mut world = World::connected(Default::default());
        let held = hog(&mut world, Class::Immediate, 4096);
        let same = world.volumes[0][..2048].to_vec();
        let data = [&same[..], &pattern(2048, 1)].concat();
        world.command(0, order, &data);
        assert!(world.links[0].pipe.is_paused());
        assert!(world.wake(0));
        give(&mut world, held);
        assert!(!world.wake(0));
        assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
        assert_eq!(world.log, log);
    }
}

#[test]
fn reads_wait_in_line_while_the_stream_goes_on() {
    let mut world = World::connected(Default::default());
    let held = hog(&mut world, Class::Transfer, 4096);
    for _ in 0..4 {
        world.command(0, read(0, 4096), &[]);
    }
    world.command(0, write(0, 32_768), &[]);
    let with = world.command(0, write(8, 512), &[3; 512]);
    let last = world.command(0, flush(), &[]);
    assert!(!world.links[0].pipe.is_paused());
    let tags: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
    assert_eq!(tags, [with, last]);
    assert_eq!(world.links[0].connection.counters().waits, 5);
    assert!(world.wake(0));
    give(&mut world, held);
    assert!(!world.wake(0));
    let said = world.said(0);
    assert_eq!(said.len(), 5, "four reads and an R2T: {said:?}");
    let r2t = said.iter().find_map(|said| match said {
        Said::R2t(r2t) => Some(*r2t),
        _ => None,
    });
    let answer = world.granted(&r2t.expect("an R2T"), &pattern(32_768, 0), 32_768);
    assert_eq!(answer.status(), ScsiStatus::GOOD);
}

/// Nobody in the stream waits for memory that hangs on data further back in it.
#[test]
fn a_part_of_the_data_without_memory_for_all_of_them_finds_the_task_set_full() {
    let mut world = World::connected(Default::default());
    let held = hog(&mut world, Class::Transfer, 4096);
    let said = world.ask(write(0, 65_536), &pattern(4096, 1));
    assert_eq!(said.status(), ScsiStatus::TASK_SET_FULL);
    let tag = world.command(0, write(0, 65_536).unfinished(), &[]);
    assert_eq!(world.said(0), [], "its data are on their way");
    let bytes = world.links[0].host.unasked(tag, 0, &pattern(8192, 1), true);
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).status(), ScsiStatus::TASK_SET_FULL);
    give(&mut world, held);
    assert!(world.log.is_empty() && world.lives());
    // More than is taken in one piece with a command.
    let mut world = World::connected_with(&[]);
    let held = hog(&mut world, Class::Transfer, 4096);
    let said = world.ask(write(0, 65_536), &pattern(65_536, 1));
    assert_eq!(said.status(), ScsiStatus::TASK_SET_FULL);
    give(&mut world, held);
    assert!(world.log.is_empty() && world.lives());
}

#[test]
fn a_large_transfer_does_not_starve_behind_small_ones() {
    let mut world = World::connected(Default::default());
    let mut held = hog(&mut world, Class::Transfer, 4096);
    let large = world.command(0, read(0, TRANSFER_MAX), &[]);
    let some = held.split_off(held.len() - 100);
    give(&mut world, some);
    let small = world.command(0, read(0, 4096), &[]);
    assert!(world.said(0).is_empty(), "there was memory for it, but it came later");
    give(&mut world, held);
    // The large one alone is more than the connection's share, so the small one goes when it has
    // left.
    assert!(world.wake(0));
    assert!(!world.wake(0));
    let tags: Vec<u32> = world.said(0).iter().map(Said::tag).collect();
    assert_eq!(tags, [large, small]);
}

/// The largest of several buffers are more than any share, and are granted all the same.
#[test]
fn the_largest_command_of_several_buffers_finds_memory() {
    let bytes = TRANSFER_MAX;
    let (blocks, data) = (bytes / 512, pattern(bytes as usize, 1));
    let verify = Cdb([0x8e, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
    for cdb in [Cdb::orwrite_16(0, blocks, false), verify] {
        let mut world = World::connected(Default::default());
        let before = world.volumes[0].clone();
        let answer = world.write_all(Order::write(0, cdb, bytes), &data);
        assert_eq!(answer.status(), ScsiStatus::GOOD, "{cdb:?}");
        let is_or = cdb.opcode() == wire::scsi::OpCode::ORWRITE_16;
        let expected: Vec<u8> = match is_or {
            true => data.iter().zip(&before).map(|(a, b)| a | b).collect(),
            false => data.clone(),
        };
        assert!(world.volumes[0][..expected.len()] == expected[..]);
    }
}

/// A stopped stream must not wait for memory that hangs on data further back in the same stream.
#[test]
fn data_with_a_command_get_memory_while_transfers_hold_all_that_the_session_may_have() {
    let mut world = World::connected(Default::default());
    let mut asked = Vec::new();
    for _ in 0..64 {
        world.command(0, write(0, 65_536), &[]);
        asked.extend(world.said(0));
    }
    assert!(world.links[0].connection.waits_for_memory(Class::Transfer), "its share is used up");
    assert_eq!(world.ask(write(0, 512), &[1; 512]).status(), ScsiStatus::GOOD);
    // And each grant that is used makes room for the next.
    let mut done = 0;
    while let Some(said) = asked.pop() {
        world.grant(&said.r2t(), &pattern(65_536, 1), 65_536);
        world.wake(0);
        for said in world.said(0) {
            match said {
                Said::R2t(_) => asked.push(said),
                answer => {
                    assert_eq!(answer.status(), ScsiStatus::GOOD);
                    done += 1;
                }
            }
        }
    }
    assert_eq!(done, 64);
}

#[test]
fn who_waits_for_memory_may_be_closed() {
    for has_data in [false, true] {
        let mut world = World::connected(Default::default());
        let class = if has_data { Class::Immediate } else { Class::Transfer };
        let held = hog(&mut world, class, 4096);
        if has_data {
            world.command(0, write(0, 512), &[1; 512]);
        } else {
            world.command(0, read(0, 4096), &[]);
        }
        give(&mut world, held);
        if has_data {
            // The memory is taken, and the connection is lost before the stream goes on.
            world.with(0, |connection, ctx| {
                connection.handle_memory(class, ctx);
                assert!(!connection.waits_for_memory(class));
                connection.handle_lost(contract::Loss::Error(104), ctx);
            });
            world.run();
        }
    }
}

/// Its data, which were asked for, stand behind the command that stopped the stream.
#[test]
fn a_host_whose_stream_we_stopped_is_late_with_nothing() {
    let mut world = World::connected(Default::default());
    let r2t = world.ask(write(0, 16_384), &[]).r2t();
    let held = hog(&mut world, Class::Immediate, 4096);
    world.command(0, write(64, 512), &[2; 512]);
    for _ in 0..3 {
        world.pass(0, DATA_AFTER_R2T);
        assert_eq!(world.links[0].pipe.close, None);
    }
    give(&mut world, held);
    assert!(!world.wake(0));
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    world.pass(0, DATA_AFTER_R2T - core::time::Duration::from_secs(1));
    assert_eq!(world.links[0].pipe.close, None, "it was read again 29 s ago");
    let answer = world.granted(&r2t, &pattern(16_384, 1), 16_384);
    assert_eq!(answer.status(), ScsiStatus::GOOD);
    // Once it is read its time runs.
    world.ask(write(0, 16_384), &[]).r2t();
    world.pass(0, DATA_AFTER_R2T);
    assert!(world.links[0].pipe.close.is_some());
}

#[test]
fn a_unit_that_goes_while_its_commands_wait_for_memory_is_not_read() {
    let mut world = World::connected(Default::default());
    let held = hog(&mut world, Class::Transfer, 4096);
    world.command(0, read(0, 4096), &[]);
    let mut target = super::world::target();
    target.units.remove(0);
    world.shard.shared.set_target(target);
    give(&mut world, held);
    assert!(!world.wake(0));
    assert_eq!(world.said_one(0).status(), ScsiStatus::CHECK_CONDITION);
    assert!(world.log.is_empty());
}
