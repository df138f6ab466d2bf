//! What waits for what, what is a repeat, and how much is held.

use core::time::Duration;

use block::Outcome;

use super::world::*;

fn tags(frames: Vec<Vec<u8>>) -> Vec<u32> {
    frames.iter().map(|frame| tag_of(frame)).collect()
}

/// A trim of four sectors.
fn trim(tag: u32, lba: u64) -> Vec<u8> {
    let range = (lba | 4 << 48).to_le_bytes();
    let mut bytes = ata(A, tag, 0x06, 0, 1, &[&range[..], &[0; 504]].concat());
    bytes[25] = 1;
    bytes
}

#[test]
fn a_frame_that_overlaps_one_in_flight_of_its_source_waits() {
    let mut world = World::slow(|_| {});
    world.come_all([
        write(A, 1, 10, 1, 4),
        write(A, 2, 12, 2, 4),
        read(A, 3, 13, 1),
        write(A, 4, 100, 4, 1),
        write(B, 5, 10, 5, 1),
        read(A, 6, 14, 4),
    ]);
    // 2 waits for 1, 3 for both, 6 for 2; 4 overlaps nothing, 5 is another's.
    assert_eq!(world.below.len(), 3);
    world.answer_below(0, Outcome::Done);
    assert_eq!((tags(world.take()), world.below.len()), (vec![1], 3));
    world.mood = Mood::Honest;
    world.answer_all();
    let frames = world.take();
    let read_of = |tag| frames.iter().find(|frame| tag_of(frame) == tag).unwrap()[36];
    assert_eq!((read_of(3), read_of(6)), (2, 2));
    assert_eq!(world.target.counters().waited, 3);
    world.is_clean();
}

#[test]
fn reads_do_not_wait_for_reads() {
    let mut world = World::slow(|_| {});
    world.come_all((0..4).map(|tag| read(A, tag, 10, 4)));
    assert_eq!(world.below.len(), 4);
}

#[test]
fn overlapping_writes_of_one_source_are_applied_in_the_order_of_their_arrival() {
    let mut world = World::slow(|_| {});
    world.come_all((1..=10).map(|tag| write(A, tag, 10, tag as u8, 1)));
    for tag in 1..=10 {
        assert_eq!(world.below.len(), 1);
        world.answer_below(0, Outcome::Done);
        assert_eq!(tags(world.take()), [tag]);
        assert_eq!(world.sectors(10, 1), [tag as u8; 512]);
    }
    world.is_clean();
}

#[test]
fn a_write_waits_for_whoever_is_before_it_in_line() {
    let mut world = World::slow(|_| {});
    world.come_all([
        write(A, 1, 10, 1, 4),
        // Both wait for the first, and the third for the second of them alone.
        write(A, 2, 10, 2, 1),
        write(A, 3, 13, 3, 4),
        write(A, 4, 16, 4, 1),
        write(A, 5, 500, 5, 1),
    ]);
    assert_eq!(world.below.len(), 2);
    world.answer_below(1, Outcome::Done);
    assert_eq!((tags(world.take()), world.below.len()), (vec![5], 1));
    world.answer_below(0, Outcome::Done);
    assert_eq!((tags(world.take()), world.below.len()), (vec![1], 2));
    world.answer_all();
    assert_eq!(tags(world.take()), [2, 3, 4]);
    assert_eq!(world.sectors(16, 1), [4; 512]);
    world.is_clean();
}

#[test]
fn a_copy_of_a_write_in_flight_is_dropped() {
    let mut world = World::slow(|_| {});
    world.come(&write(A, 1, 10, 1, 1));
    world.come(&write(A, 2, 10, 2, 1));
    world.come(&write(A, 1, 10, 1, 1));
    world.come(&write(A, 2, 10, 2, 1));
    assert_eq!(world.target.drops().repeated_in_flight, 2);
    // The same tag with other data is another write.
    world.come_all([write(A, 2, 10, 3, 1)]);
    world.mood = Mood::Honest;
    world.answer_below(0, Outcome::Done);
    assert_eq!(tags(world.take()), [1, 2, 2]);
    assert_eq!(world.sectors(10, 1), [3; 512]);
    world.is_clean();
}

#[test]
fn a_copy_of_a_write_within_two_seconds_is_answered_and_not_carried_out() {
    let mut world = World::new();
    let bytes = write(A, 1, 10, 1, 2);
    let first = world.answer(&bytes);
    // Somebody writes there by another way; the copy must not undo it.
    world.disks[0].now[10 * 512..11 * 512].fill(0xaa);
    for copies in 1..4 {
        // Each answer may be lost, and the next copy be sent before another one comes.
        world.pass(Duration::from_millis(1999));
        assert_eq!(world.answer(&bytes), first);
        assert_eq!(world.sectors(10, 1), [0xaa; 512]);
        assert_eq!(world.target.counters().repeated_answered, copies);
    }
    // After that it is a new one.
    world.pass(Duration::from_millis(2000));
    assert_eq!(world.answer(&bytes), first);
    assert_eq!(world.sectors(10, 1), [1; 512]);
}

#[test]
fn a_copy_behind_an_overlapping_write_is_dropped_until_its_time_is_over() {
    let mut world = World::new();
    let bytes = write(A, 1, 10, 1, 2);
    world.answer(&bytes);
    // A neighbour and a read change nothing.
    world.answer(&write(A, 2, 12, 2, 2));
    world.answer(&read(A, 3, 10, 2));
    assert_eq!(registers(&world.answer(&bytes)), (0x40, 0, 0));
    world.answer(&write(B, 4, 11, 4, 1));
    world.silence(&bytes);
    assert_eq!(world.target.drops().repeated_superseded, 1);
    assert_eq!(world.sectors(11, 1), [4; 512]);
    // A restarted initiator that really means it is heard then.
    world.pass(Duration::from_secs(2));
    world.answer(&bytes);
    assert_eq!(world.sectors(11, 1), [1; 512]);
}

#[test]
fn a_write_that_failed_is_carried_out_when_it_comes_again() {
    let mut world = World::new();
    world.mood = Mood::Fails(block::Failure::NoSpace);
    let bytes = write(A, 1, 10, 1, 1);
    assert_eq!(registers(&world.answer(&bytes)), (0x41, 0x04, 1));
    world.mood = Mood::Honest;
    assert_eq!(registers(&world.answer(&bytes)), (0x40, 0, 0));
    assert_eq!(world.sectors(10, 1), [1; 512]);
}

#[test]
fn a_write_that_failed_is_dropped_when_it_comes_behind_a_newer_one() {
    let mut world = World::new();
    world.mood = Mood::Fails(block::Failure::NoSpace);
    let bytes = write(A, 1, 10, 1, 2);
    assert_eq!(registers(&world.answer(&bytes)), (0x41, 0x04, 2));
    world.mood = Mood::Slow;
    // The newer one waits when the copy comes, so that both wait; it is done first.
    world.come_all([write(A, 2, 12, 2, 1), write(A, 3, 11, 3, 2), bytes.clone()]);
    assert_eq!(world.below.len(), 1);
    world.answer_all();
    assert_eq!((tags(world.take()), world.below.len()), (vec![2, 3], 0));
    // And when it comes later still.
    world.silence(&bytes);
    assert_eq!(world.target.drops().repeated_superseded, 2);
    assert_eq!(world.sectors(10, 3), [[0; 512], [3; 512], [3; 512]].concat());
    world.is_clean();
}

#[test]
fn a_write_that_was_refused_is_dropped_while_it_may_be_a_copy() {
    let mut world = World::with(9000, |export| export.read_only = true);
    let bytes = write(A, 1, 10, 1, 1);
    let beyond = write(A, 2, SECTORS, 2, 1);
    assert_eq!(registers(&world.answer(&bytes)), (0x41, 0x04, 1));
    assert_eq!(registers(&world.answer(&beyond)), (0x41, 0x10, 1));
    world.renew(|export| export.read_only = false);
    world.run();
    world.sent.clear();
    world.silence(&bytes);
    assert_eq!(registers(&world.answer(&beyond)), (0x41, 0x10, 1));
    assert_eq!(world.target.drops().repeated_refused, 1);
    // Another one is heard, and a copy behind it is one behind it.
    world.answer(&write(A, 3, 10, 3, 1));
    world.silence(&bytes);
    assert_eq!(world.sectors(10, 1), [3; 512]);
    world.pass(Duration::from_secs(2));
    world.answer(&bytes);
    assert_eq!(world.sectors(10, 1), [1; 512]);
    // What was done and can no longer be is answered as it was.
    world.renew(|export| export.read_only = true);
    assert_eq!(registers(&world.answer(&bytes)), (0x40, 0, 0));
}

#[test]
fn a_copy_of_a_slow_write_is_known_from_its_end_on() {
    let mut world = World::with(1500, |export| export.discards = true);
    let bytes = write(A, 1, 10, 1, 1);
    let trim = trim(2, 100);
    world.mood = Mood::Slow;
    world.come_all([bytes.clone(), trim.clone()]);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.target.counters().repeat_bytes, 0);
    world.answer_all();
    assert_eq!(tags(world.take()), [1, 2]);
    world.mood = Mood::Honest;
    // The trim ended last, and touches who knows what.
    world.silence(&bytes);
    world.answer(&trim);
    assert_eq!(world.target.counters().repeated_answered, 1);
    world.pass(Duration::from_secs(2));
    world.answer(&bytes);
    assert_eq!(world.sectors(10, 1), [1; 512]);
    world.is_clean();
}

#[test]
fn a_repeated_read_is_read_again() {
    let mut world = World::new();
    let bytes = read(A, 1, 10, 1);
    assert_eq!(world.answer(&bytes)[36], 0);
    world.answer(&write(A, 2, 10, 9, 1));
    assert_eq!(world.answer(&bytes)[36], 9);
}

#[test]
fn commands_beyond_the_buffer_count_are_dropped_and_later_ones_are_not() {
    let mut world = World::with(1500, |export| export.buffers = 4);
    world.mood = Mood::Slow;
    for tag in 0..10 {
        world.come(&write(A, tag, u64::from(tag), 1, 1));
        world.come(&ata(B, tag, 0xea, 0, 0, &[]));
    }
    world.run();
    assert_eq!(world.below.len(), 4);
    assert_eq!(world.target.drops().over_buffers, 16);
    assert_eq!(world.target.traffic(EXPORT).unwrap().over_buffers, 16);
    world.answer_all();
    assert_eq!(world.take().len(), 4);
    world.mood = Mood::Honest;
    assert_eq!(world.answer(&read(A, 50, 0, 1)).len(), 548);
    world.is_clean();
}

#[test]
fn a_window_of_full_frames_fits_the_smallest_pool() {
    let mut world = World::new();
    world.shard.pool = block::Pool::new(block::limits::POOL_PAGES_MIN);
    world.mood = Mood::Slow;
    for tag in 0..32u32 {
        world.come(&read(A, tag, u64::from(tag) * 13 % 900, 17));
        world.come(&write(B, tag, u64::from(tag) * 29 % 900, 1, 17));
    }
    world.run();
    assert_eq!(world.target.drops().no_memory, 0);
    assert_eq!(world.target.in_flight(), 64);
}

#[test]
fn a_command_that_finds_no_memory_is_dropped() {
    let mut world = World::with(9000, |export| export.buffers = 64);
    world.shard.pool = block::Pool::new(8);
    world.mood = Mood::Slow;
    world.come_all((0..20).map(|tag| write(A, tag, u64::from(tag) * 17, 1, 17)));
    assert!(world.target.drops().no_memory > 10);
    world.answer_all();
    world.take();
    world.mood = Mood::Honest;
    world.answer(&write(A, 50, 0, 1, 17));
    world.is_clean();
}

#[test]
fn what_waited_for_seconds_is_not_carried_out() {
    let mut world = World::slow(|_| {});
    world.come_all([write(A, 1, 10, 1, 1), write(A, 2, 10, 2, 1), read(A, 3, 10, 1)]);
    world.pass(Duration::from_secs(6));
    world.answer_below(0, Outcome::Done);
    assert_eq!(tags(world.take()), [1]);
    assert_eq!(world.target.drops().stale, 2);
    assert_eq!(world.sectors(10, 1), [1; 512]);
    world.is_clean();
}

#[test]
fn a_trim_and_writes_are_each_others_newer_changes() {
    let mut world = World::with(1500, |export| export.discards = true);
    let bytes = write(A, 1, 10, 1, 1);
    world.answer(&bytes);
    world.answer(&trim(2, 10));
    world.silence(&bytes);
    assert_eq!(registers(&world.answer(&trim(2, 10))), (0x40, 0, 0));
    assert_eq!(world.target.counters().repeated_answered, 1);
    world.answer(&write(A, 3, 10, 3, 1));
    world.silence(&trim(2, 10));
    assert_eq!(world.sectors(10, 1), [3; 512]);
}

#[test]
fn many_frames_of_a_turn_are_each_answered() {
    let mut world = World::new();
    for round in 0..3 {
        for tag in 0..32 {
            world.come(&write(A, round * 100 + tag, u64::from(tag) * 8, 1, 8));
            world.come(&read(A, round * 100 + 50 + tag, 500 + u64::from(tag), 1));
        }
        world.run();
        assert_eq!(world.take().len(), 64);
    }
    world.is_clean();
}

#[test]
fn memory_that_can_be_lent_is_lent_and_nothing_goes_below() {
    let mut world = World::new();
    let disk: Vec<u8> = (0..SECTORS * 512).map(|at| (at / 512) as u8).collect();
    world.shard.memory.lends = vec![disk];
    world.mood = Mood::Slow;
    world.come_all((0..70).map(|tag| read(A, tag, u64::from(tag), 1)));
    let frames = world.take();
    assert_eq!(frames.len(), 70);
    for frame in &frames {
        assert_eq!(frame[36..], [tag_of(frame) as u8; 512]);
    }
    assert!(world.below.is_empty());
    assert_eq!(world.target.traffic(EXPORT).unwrap().reads, 70);
    // Behind a write in flight of the same source a read waits, and then asks.
    world.shard.below.lands = false;
    world.come_all([write(A, 100, 5, 9, 1), read(A, 101, 5, 1), read(B, 102, 5, 1)]);
    assert_eq!((tags(world.take()), world.below.len()), (vec![102], 1));
    world.answer_below(0, Outcome::Done);
    assert_eq!((tags(world.take()), world.below.len()), (vec![100], 1));
    world.answer_below(0, Outcome::Done);
    assert_eq!(tags(world.take()), [101]);
    world.is_clean();
}

#[test]
fn memory_takes_writes_from_the_frame_and_knows_their_copies() {
    let mut world = World::new();
    world.shard.memory.lends = vec![vec![0; SECTORS as usize * 512]];
    world.mood = Mood::Slow;
    world.come_all([
        read(A, 1, 5, 2),
        write(A, 2, 5, 9, 2),
        read(A, 3, 5, 2),
        write(A, 2, 5, 9, 2),
    ]);
    let frames = world.take();
    // Reads leave together, at the end of the turn if nothing comes between.
    assert_eq!(frames.iter().map(|frame| tag_of(frame)).collect::<Vec<_>>(), [1, 2, 2, 3]);
    assert_eq!(frames[0][36..], [0; 1024], "what came before the write is what was there before");
    assert_eq!(frames[3][36..], [9; 1024]);
    assert!(world.below.is_empty());
    let traffic = world.target.traffic(EXPORT).unwrap();
    assert_eq!((traffic.reads, traffic.writes, traffic.write_bytes), (2, 1, 1024));
    assert_eq!(world.target.counters().repeated_answered, 1);
    // A copy behind a newer write is dropped.
    world.come_all([write(A, 4, 6, 7, 1), write(A, 2, 5, 9, 2)]);
    assert_eq!(tags(world.take()), [4]);
    assert_eq!(world.shard.memory.lends[0][6 * 512..7 * 512], [7; 512]);
    world.is_clean();
}
