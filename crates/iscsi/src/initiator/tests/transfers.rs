//! Every operation and size against the real target, with and without digests, with the stream cut
//! anywhere.

use core::time::Duration;

use block::{Buffer, Extent, Failure, Operation, Outcome};
use contract::Cache;
use wire::iscsi::Digests;

use super::fixtures::{ALL_DIGESTS, BOTH, DISK, pattern, settings};
use super::pair::Pair;
use crate::initiator::Settings;

#[test]
fn facts_come_from_inquiry_and_its_pages() {
    let pair = Pair::connected(1, settings(Digests::NONE), true);
    let facts = pair.initiator.facts().expect("it is connected");
    assert_eq!((facts.size.0, facts.logical_block), (DISK as u64, 512));
    assert_eq!(facts.cache, Cache::Volatile);
    assert!(facts.discards && !facts.read_only);
}

#[test]
fn what_is_written_is_read_at_every_size_digest_and_phase() {
    for digests in ALL_DIGESTS {
        let mut pair = Pair::connected(2, settings(digests), false);
        for (round, length) in
            [512, 4096, 8192, 12_288, 65_536, 131_072, 1 << 20].into_iter().enumerate()
        {
            for offset in [0u64, 512, 4096 + 1536] {
                let bytes = pattern(length, round);
                pair.write(1, offset, &bytes);
                assert_eq!(pair.finish(1).0, Outcome::Done, "{digests:?} {length} at {offset}");
                assert_eq!(pair.disk[offset as usize..][..length], bytes[..]);
                pair.read(2, offset, length as u32);
                let (outcome, read) = pair.finish(2);
                assert_eq!(outcome, Outcome::Done);
                assert!(read == bytes, "{digests:?} {length} at {offset}");
            }
        }
        assert_eq!(pair.news.len(), 1, "{:?}", pair.news);
    }
}

#[test]
fn the_stream_may_be_cut_anywhere() {
    for bytes in [1, 7, 97, 5000] {
        let mut pair = Pair::new(3, settings(BOTH), false);
        pair.chances.bytes = bytes;
        let length = if bytes < 97 { 24_576 } else { 262_144 };
        for (slot, offset) in [(0, 0u64), (1, 512_000), (2, 1 << 20)] {
            pair.write(slot, offset, &pattern(length, slot as usize));
        }
        (0..3).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
        for (slot, offset) in [(0, 0u64), (1, 512_000), (2, 1 << 20)] {
            pair.read(slot, offset, length as u32);
        }
        for slot in 0..3 {
            assert!(pair.finish(slot).1 == pattern(length, slot as usize), "{bytes} {slot}");
        }
    }
}

#[test]
fn more_than_one_command_may_carry_is_split_and_joined() {
    let mut pair = Pair::connected(4, settings(Digests::NONE), false);
    let bytes = pattern(3 << 20, 5);
    pair.write(1, 1536, &bytes[..(3 << 20) - 4096]);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    pair.read(1, 1536, (3 << 20) - 4096);
    assert!(pair.finish(1).1 == bytes[..(3 << 20) - 4096]);
    let mut differs = bytes[..2 << 20].to_vec();
    differs[(1 << 20) + 4096] ^= 1;
    let buffer = pair.filled(1536, &differs);
    let extent = Extent::new(1536, differs.len() as u64);
    pair.ask(2, Operation::Compare { extent, buffer });
    assert!(matches!(pair.finish(2).0, Outcome::Miscompare(at) if at >= (1 << 20) - 1536));
}

#[test]
fn operations_without_data_reach_the_disk() {
    let mut pair = Pair::connected(5, settings(Digests::NONE), false);
    let zeroes = Operation::WriteZeroes {
        extent: Extent::new(4096, 2 << 20),
        deallocate: true,
        durable: true,
    };
    pair.ask(1, zeroes);
    assert_eq!(pair.finish(1).0, Outcome::Done);
    assert!(pair.disk[4096..4096 + (2 << 20)].iter().all(|byte| *byte == 0));
    let extents = (0..200).map(|at| Extent::new((3 << 20) + at * 4096, 2048)).collect();
    pair.ask(2, Operation::Discard { extents });
    assert_eq!(pair.finish(2).0, Outcome::Done);
    assert!(pair.disk[3 << 20..(3 << 20) + 2048].iter().all(|byte| *byte == 0));
    pair.ask(3, Operation::Verify { extent: Extent::new(0, 1 << 20) });
    assert_eq!(pair.finish(3).0, Outcome::Done);
    pair.ask(4, Operation::Flush);
    assert_eq!(pair.finish(4).0, Outcome::Done);
    let expected = pair.filled(0, &[0; 512]);
    let replacement = pair.filled(0, &[1; 512]);
    let extent = Extent::new(0, 512);
    pair.ask(
        5,
        Operation::CompareAndWrite {
            extent,
            expected: Box::new(expected),
            replacement,
            durable: false,
        },
    );
    assert_eq!(pair.finish(5).0, Outcome::NotDone(Failure::Unsupported));
    pair.read(6, DISK as u64, 512);
    assert_eq!(pair.finish(6).0, Outcome::NotDone(Failure::OutOfRange));
}

#[test]
fn more_requests_than_slots_wait_their_turn_and_all_end_once() {
    let mut narrow = settings(Digests::NONE);
    narrow.depth = 3;
    let mut pair = Pair::new(6, narrow, false);
    for slot in 0..100 {
        pair.write(slot, u64::from(slot) * 8192, &pattern(4096, slot as usize));
    }
    (0..100).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    for slot in 0..100u32 {
        assert!(pair.disk[slot as usize * 8192..][..4096] == pattern(4096, slot as usize));
    }
    assert!(pair.done.is_empty() && pair.initiator.in_flight() == 0);
    pair.run_until("quiet", |pair| pair.pages_held() == 0);
}

#[test]
fn an_idle_session_is_kept_alive() {
    let mut pair = Pair::connected(7, settings(Digests::NONE), false);
    let until = pair.shard.now + Duration::from_secs(120);
    pair.run_until("later", |pair| pair.shard.now >= until);
    assert_eq!(pair.news.len(), 1, "{:?}", pair.news);
    let buffer = Buffer::reserved(512, 0);
    pair.ask(1, Operation::Read { extent: Extent::new(0, 512), buffer });
    assert_eq!(pair.finish(1).0, Outcome::Done);
}

#[test]
fn closing_logs_out() {
    let mut pair = Pair::connected(8, settings(Digests::NONE), false);
    pair.write(1, 0, &[7; 4096]);
    pair.initiator.close();
    assert_eq!(pair.finish(1).0, Outcome::Done, "what was asked before is finished");
    pair.run_until("gone", |pair| pair.initiator.is_gone());
    pair.run_until("no connection is left", |pair| pair.connections() == 0);
    pair.read(2, 0, 512);
    assert_eq!(pair.finish(2).0, Outcome::NotDone(Failure::Removed));
}

#[test]
fn closing_waits_for_all_that_was_asked() {
    let narrow = Settings { depth: 2, ..settings(Digests::NONE) };
    let mut pair = Pair::connected(9, narrow, false);
    pair.chances.disk = Duration::from_secs(3);
    (0..8).for_each(|slot| pair.write(slot, u64::from(slot) * 4096, &[7; 4096]));
    pair.initiator.close();
    (0..8).for_each(|slot| assert_eq!(pair.finish(slot).0, Outcome::Done));
    assert_eq!(pair.log.len(), 8, "each is asked once");
    pair.run_until("gone", |pair| pair.initiator.is_gone());
}
