//! What is answered is durable, and one flush makes many writes so.

use block::{Failure, Operation, Outcome};

use super::world::*;
use crate::Export;

fn volatile(export: &mut Export) {
    export.cache_volatile = true;
}

fn is_flush(world: &World, at: usize) -> bool {
    matches!(world.below[at].1.operation, Operation::Flush)
}

#[test]
fn a_write_that_is_answered_survives_a_power_cut() {
    let mut world = World::with(9000, volatile);
    for tag in 0..50u32 {
        world.come_all(
            (0..=tag % 4).map(|more| write(A, tag * 8 + more, u64::from(tag * 8 + more), 7, 1)),
        );
        for frame in world.take() {
            let lba = tag_of(&frame) as usize;
            assert_eq!(world.disks[0].durable[lba * 512..][..512], [7; 512]);
        }
    }
    assert!(world.disks[0].flushes > 0);
    world.is_clean();
}

#[test]
fn one_flush_makes_all_writes_durable_that_were_done_before() {
    let mut world = World::slow(volatile);
    world.come_all((0..8).map(|tag| write(A, tag, u64::from(tag), 1, 1)));
    // The first was alone when it came, and asked for durability itself.
    let durable =
        |at: usize| matches!(world.below[at].1.operation, Operation::Write { durable: true, .. });
    assert_eq!((0..8).map(durable).filter(|durable| *durable).count(), 1);
    world.answer_below(0, Outcome::Done);
    assert_eq!(world.take().len(), 1);
    // The second is done: a flush for it begins. Four more are done meanwhile: they wait for the
    // next one.
    world.answer_below(0, Outcome::Done);
    assert!(is_flush(&world, 6));
    for _ in 0..4 {
        world.answer_below(0, Outcome::Done);
    }
    assert_eq!((world.take().len(), world.below.len()), (0, 3));
    world.answer_below(2, Outcome::Done);
    assert_eq!((world.take().len(), world.below.len()), (1, 3));
    assert!(is_flush(&world, 2));
    world.answer_below(2, Outcome::Done);
    assert_eq!(world.take().len(), 4);
    world.answer_below(0, Outcome::Done);
    world.answer_below(0, Outcome::Done);
    world.answer_all();
    assert_eq!(world.take().len(), 2);
    assert!(world.disks[0].flushes <= 4);
    world.is_clean();
}

#[test]
fn the_a_flag_does_not_make_an_answer_come_early() {
    let mut world = World::slow(volatile);
    world.come(&read(A, 9, 500, 1));
    let mut bytes = write(A, 1, 0, 1, 1);
    bytes[24] |= 0x02;
    world.come_all([bytes.clone()]);
    world.answer_below(1, Outcome::Done);
    assert_eq!(world.take().len(), 0);
    assert!(is_flush(&world, 1));
}

#[test]
fn no_memory_is_held_for_durability() {
    let mut world = World::slow(volatile);
    world.come_all([write(A, 1, 0, 1, 17), write(A, 2, 20, 1, 17)]);
    world.answer_below(1, Outcome::Done);
    world.answer_below(0, Outcome::Done);
    assert!(is_flush(&world, 0));
    assert_eq!(world.shard.pool.used(), 0);
    // The write that waits for its flush, which is no command.
    assert_eq!(world.target.in_flight(), 1);
}

#[test]
fn a_failed_flush_fails_the_writes_that_it_covers() {
    let mut world = World::slow(volatile);
    world.come_all((0..3).map(|tag| write(A, tag, u64::from(tag), 1, 1)));
    for _ in 0..3 {
        world.answer_below(0, Outcome::Done);
    }
    world.take();
    world.answer_below(0, Outcome::NotDone(Failure::MediumWrite));
    let sent = world.take();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|frame| registers(frame) == (0x61, 0x04, 1)));
    // And they are no repeats when they come again.
    world.mood = Mood::Honest;
    world.run();
    world.answer_all();
    world.take();
    assert_eq!(registers(&world.answer(&write(A, 1, 1, 1, 1))), (0x40, 0, 0));
    assert_eq!(world.target.counters().repeated_answered, 0);
}

#[test]
fn a_copy_of_a_write_that_waits_for_its_flush_is_dropped_and_a_newer_write_goes_on() {
    let mut world = World::slow(volatile);
    world.come_all([read(A, 9, 500, 1), write(A, 1, 0, 1, 1)]);
    world.answer_below(1, Outcome::Done);
    world.silence(&write(A, 1, 0, 1, 1));
    assert_eq!(world.target.drops().repeated_in_flight, 1);
    // The media have it: what overlaps need not wait for the flush.
    world.come_all([write(A, 2, 0, 2, 1)]);
    assert_eq!(world.below.len(), 3);
}

#[test]
fn a_volume_without_volatile_cache_is_never_flushed() {
    let mut world = World::new();
    for tag in 0..20 {
        world.answer(&write(A, tag, u64::from(tag), 1, 1));
    }
    assert_eq!((world.disks[0].flushes, world.target.counters().flushes), (0, 0));
}
