//! A connection that goes silent while the others live: noticed in seconds, and told from a disk
//! that is slow.

use core::time::Duration;

use block::{Account, Class, Memory, Outcome};
use wire::nvme_tcp::Digests;

use super::pair::{Pair, settings};
use crate::limits::{QUEUE_QUIET, QUEUE_SILENT, QUEUE_SILENT_BEHIND_DATA, SILENCE_AGAIN};
use crate::tcp::initiator::InitiatorNews;

/// What a reset and a reconnect take beside the silence itself.
const REST: Duration = Duration::from_secs(1);

/// A connected pair: connection 0 is the admin queue's, 1 and 2 are the I/O queues'.
fn connected(seed: u64) -> Pair {
    let mut pair = Pair::connected(seed, settings(Digests::NONE), false);
    while pair.turn() {}
    assert_eq!(pair.connections(), 3);
    assert!(pair.initiator.state().ends_with(" with 2 queues"), "{}", pair.initiator.state());
    pair
}

fn losses(pair: &Pair) -> Vec<&str> {
    let mut lost = Vec::new();
    for news in &pair.news {
        if let InitiatorNews::Lost(why) = news {
            lost.push(why.as_str());
        }
    }
    lost
}

#[test]
fn a_queue_that_is_silent_alone_is_noticed_within_seconds() {
    let mut pair = connected(1);
    pair.hush(1);
    let hushed_at = pair.shard.now;
    pair.read(1, 0, 4096);
    let (outcome, bytes) = pair.finish(1);
    assert_eq!(outcome, Outcome::Done);
    assert!(bytes == pair.disk[..4096]);
    let took = pair.shard.now.since(hushed_at);
    assert!(
        (QUEUE_QUIET + QUEUE_SILENT..QUEUE_QUIET + QUEUE_SILENT + REST).contains(&took),
        "{took:?}"
    );
    assert_eq!(losses(&pair), ["I/O queue 1 is silent"]);
}

#[test]
fn a_write_on_a_silent_queue_is_asked_again_as_soon_as_the_reset_is_answered() {
    let mut pair = connected(2);
    pair.write(1, 0, &[1; 4096]);
    // It is carried out; its answer is lost.
    pair.chances.disk = Duration::from_millis(1);
    while pair.turn() {}
    pair.hush(1);
    let hushed_at = pair.shard.now;
    assert_eq!(pair.finish(1).0, Outcome::Done);
    let noticed = QUEUE_QUIET + QUEUE_SILENT_BEHIND_DATA + REST;
    assert!(pair.shard.now.since(hushed_at) < noticed, "no quiesce time");
    assert_eq!(pair.log.iter().filter(|name| **name == "write").count(), 2);
}

#[test]
fn a_write_that_a_disk_still_has_is_not_asked_again_before_the_disk_answered() {
    let mut pair = connected(3);
    pair.chances.disk = Duration::from_secs(9);
    pair.write(1, 0, &[1; 4096]);
    while pair.turn() {}
    pair.hush(1);
    pair.run_until("lost", |pair| pair.news.len() > 1);
    pair.chances.disk = Duration::ZERO;
    pair.write(2, 0, &[2; 4096]);
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert_eq!(pair.disk[0], 2, "the later write stays");
}

#[test]
fn a_slow_disk_is_no_silence() {
    let mut pair = connected(4);
    pair.chances.disk = Duration::from_secs(50);
    for slot in 0..8 {
        pair.read(slot, u64::from(slot) * 4096, 4096);
    }
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

#[test]
fn a_sign_of_life_has_room_beside_a_full_queue() {
    let mut shallow = settings(Digests { header: true, data: true });
    (shallow.queues, shallow.depth) = (1, 2);
    let mut pair = Pair::connected(5, shallow, false);
    assert!(pair.initiator.state().ends_with(" with 1 queue"), "{}", pair.initiator.state());
    // Two at a time, all six are through before the first deadline.
    pair.chances.disk = Duration::from_secs(19);
    for slot in 0..6 {
        pair.write(slot, u64::from(slot) * 4096, &[7; 4096]);
    }
    (0..6).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

/// Not even the probe is read before there is memory for the capsules before it.
#[test]
fn a_target_that_has_no_memory_for_capsules_is_not_silent() {
    let mut pair = connected(9);
    let mut held = Vec::new();
    loop {
        let mut account = Account::new(Class::Immediate);
        let Some(buffer) = pair.shard.pool.take(&mut account, 4096, 0) else { break };
        held.push((account, buffer));
    }
    (0..8).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[7; 4096]));
    let until = pair.shard.now + QUEUE_QUIET + QUEUE_SILENT_BEHIND_DATA / 2;
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    for (mut account, buffer) in held {
        let memory: &mut dyn Memory = &mut pair.shard.memory;
        pair.shard.pool.give(&mut account, memory, buffer);
    }
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
    assert_eq!(pair.log.iter().filter(|name| **name == "write").count(), 8, "each is asked once");
}

#[test]
fn a_queue_that_is_silent_behind_small_writes_is_noticed_within_half_a_minute() {
    let mut pair = connected(10);
    pair.hush(1);
    let hushed_at = pair.shard.now;
    pair.write(1, 0, &[1; 4096]);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    let took = pair.shard.now.since(hushed_at);
    let usual = QUEUE_QUIET + QUEUE_SILENT_BEHIND_DATA;
    assert!((usual..usual + REST).contains(&took), "{took:?}");
    assert_eq!(losses(&pair), ["I/O queue 1 is silent"]);
}

#[test]
fn an_idle_queue_is_not_listened_to() {
    let mut pair = connected(6);
    (1..3).for_each(|index| pair.hush(index));
    let until = pair.shard.now + Duration::from_secs(600);
    pair.run_until("ten minutes later", move |pair| pair.shard.now >= until);
    assert!(losses(&pair).is_empty(), "{:?}", pair.news);
}

#[test]
fn when_all_is_silent_writes_wait_for_the_quiesce_time() {
    let mut pair = connected(7);
    pair.chances.disk = Duration::from_millis(1);
    pair.write(1, 0, &[1; 4096]);
    while pair.turn() {}
    (0..3).for_each(|index| pair.hush(index));
    let hushed_at = pair.shard.now;
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert!(
        pair.shard.now.since(hushed_at) >= Duration::from_secs(10),
        "nobody said that it is dead"
    );
}

#[test]
fn silences_one_after_the_other_are_met_with_more_patience_for_a_while() {
    let mut pair = connected(8);
    let notice = |pair: &mut Pair, slot| {
        // Old connections may linger in front of those of the association.
        pair.hush(pair.connections() - 2);
        let hushed_at = pair.shard.now;
        pair.read(slot, 0, 512);
        assert_eq!(pair.finish(slot).0, Outcome::Done);
        while pair.turn() {}
        pair.shard.now.since(hushed_at)
    };
    let usual = QUEUE_QUIET + QUEUE_SILENT;
    assert!(notice(&mut pair, 1) < usual + REST);
    assert!(notice(&mut pair, 2) < usual + REST, "the first repetition raises the patience");
    let third = notice(&mut pair, 3);
    assert!((usual * 2..usual * 2 + REST).contains(&third), "{third:?} {:?}", losses(&pair));
    let until = pair.shard.now + SILENCE_AGAIN * 5;
    pair.run_until("some time later", move |pair| pair.shard.now >= until);
    assert!(notice(&mut pair, 4) < usual + REST);
}
