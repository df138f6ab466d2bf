//! Cuts at random moments, late bytes, slow disks and unreachable targets, against an oracle that knows for each block what it may hold.
//!
//! The oracle: no two writes under way share a block. A block may hold what was last written for certain, and whatever writes that ended
//! *unknown* or *not done* wanted since. A read without a write beside it settles a block that may hold several values: nothing comes later.

use core::time::Duration;
use std::collections::BTreeMap;

use block::random::Random;
use block::{Buffer, Extent, Operation, Outcome};
use wire::nvme_tcp::Digests;

use super::pair::{Pair, settings};

const BLOCK: usize = 512;
const BLOCKS: usize = 1024;

#[derive(Debug)]
enum Asked {
    Write {
        first: usize,
        count: usize,
        value: u64,
    },
    /// What each block may return, and whether a write was beside the read.
    Read {
        first: usize,
        may: Vec<Vec<u64>>,
        beside: Vec<bool>,
    },
    Flush,
}

struct Oracle {
    /// What each block may hold.
    may: Vec<Vec<u64>>,
    /// What is being written to it.
    writing: Vec<Option<u64>>,
    asked: BTreeMap<u32, Asked>,
    next_slot: u32,
    next_value: u64,
    ended: BTreeMap<&'static str, u32>,
}

fn fill(count: usize, value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(count * BLOCK / 8)
}

impl Oracle {
    fn new() -> Oracle {
        Oracle {
            may: vec![vec![0]; BLOCKS],
            writing: vec![None; BLOCKS],
            asked: BTreeMap::new(),
            next_slot: 0,
            next_value: 1,
            ended: BTreeMap::new(),
        }
    }

    fn ask(&mut self, pair: &mut Pair, random: &mut Random) {
        let count = [1, 2, 8, 16, 64, 256][random.below(6) as usize];
        let first = random.below((BLOCKS - count) as u64) as usize;
        let slot = self.next_slot;
        self.next_slot += 1;
        let (offset, length) = ((first * BLOCK) as u64, (count * BLOCK) as u32);
        let kind = random.below(10);
        if kind == 0 {
            self.asked.insert(slot, Asked::Flush);
            return pair.ask(slot, Operation::Flush);
        }
        let is_free = self.writing[first..first + count].iter().all(Option::is_none);
        if kind < 6 && is_free {
            // Some writes are of zeros, which other commands make, too.
            let value = if kind == 1 { 0 } else { self.next_value };
            self.next_value += 1;
            self.writing[first..first + count].fill(Some(value));
            for asked in self.asked.values_mut() {
                let Asked::Read { first: read, may, beside } = asked else { continue };
                for block in first.max(*read)..(first + count).min(*read + may.len()) {
                    may[block - *read].push(value);
                    beside[block - *read] = true;
                }
            }
            self.asked.insert(slot, Asked::Write { first, count, value });
            if kind == 1 {
                let extent = Extent::new(offset, length.into());
                let zeroes = Operation::WriteZeroes { extent, deallocate: false, durable: false };
                return pair.ask(slot, zeroes);
            }
            return pair.write(slot, offset, &fill(count, value));
        }
        let writing = &self.writing[first..first + count];
        let may = self.may[first..first + count].iter().zip(writing);
        let may = may.map(|(may, writing)| may.iter().copied().chain(*writing).collect()).collect();
        let beside = writing.iter().map(Option::is_some).collect();
        self.asked.insert(slot, Asked::Read { first, may, beside });
        let buffer = Buffer::reserved(length, (offset % 4096) as u32);
        pair.ask(slot, Operation::Read { extent: Extent::new(offset, length.into()), buffer });
    }

    fn check(&mut self, pair: &mut Pair, seed: u64) {
        while let Some(slot) = pair.done.first().map(|done| done.ticket.slot) {
            let (outcome, bytes) = pair.take(slot).expect("it is the first");
            let asked = self.asked.remove(&slot).expect("every request ends once");
            let name = match outcome {
                Outcome::Done => "done",
                Outcome::NotDone(_) => "not done",
                Outcome::Unknown(_) => "unknown",
                Outcome::Miscompare(_) => "miscompare",
            };
            *self.ended.entry(name).or_default() += 1;
            match asked {
                Asked::Flush => {}
                Asked::Write { first, count, value } => {
                    for block in first..first + count {
                        assert_eq!(self.writing[block].take(), Some(value));
                        if outcome.is_done() {
                            self.may[block].clear();
                        }
                        self.may[block].push(value);
                    }
                }
                Asked::Read { first, may, beside } if outcome.is_done() => {
                    for (at, sector) in bytes.chunks_exact(BLOCK).enumerate() {
                        let value = u64::from_le_bytes(*sector.first_chunk().expect("8 bytes"));
                        let block = first + at;
                        assert!(fill(1, value) == sector, "seed {seed}: block {block} is torn");
                        let allowed = if beside[at] { &may[at] } else { &self.may[block] };
                        assert!(
                            allowed.contains(&value),
                            "seed {seed}: block {block} holds {value}, it may hold {allowed:?}"
                        );
                        if !beside[at] && self.writing[block].is_none() {
                            self.may[block] = vec![value];
                        }
                    }
                }
                Asked::Read { .. } => assert!(!matches!(outcome, Outcome::Unknown(_))),
            }
        }
    }
}

fn run(seed: u64, quiesce: Duration) -> BTreeMap<&'static str, u32> {
    let mut random = Random::new(seed);
    let digests = Digests { header: random.chance(1, 2), data: random.chance(1, 2) };
    let mut chosen = settings(digests);
    chosen.depth = 1 + random.below(16) as u16;
    chosen.queues = 1 + random.below(3) as u16;
    chosen.quiesce = quiesce;
    chosen.deadline = Duration::from_secs([8, 30, 60][random.below(3) as usize]);
    let mut pair = Pair::new(random.next_u64(), chosen, random.chance(1, 2));
    pair.disk.fill(0);
    pair.chances.bytes = [300, 5000, 100_000, usize::MAX][random.below(4) as usize];
    pair.chances.disk = Duration::from_millis([0, 5, 500, 2500][random.below(4) as usize]);
    pair.chances.late = Duration::from_millis([1, 500, 3000][random.below(3) as usize]);
    let mut oracle = Oracle::new();
    let mut heals_at = pair.now;
    while oracle.next_slot < 400 {
        if oracle.asked.len() < 24 && random.chance(2, 3) {
            oracle.ask(&mut pair, &mut random);
        }
        for _ in 0..random.below(6) {
            pair.step();
        }
        if pair.initiator.state().starts_with("connected") && random.chance(1, 60) {
            // Some commands have just left.
            while oracle.asked.len() < 24 {
                oracle.ask(&mut pair, &mut random);
            }
            let only = random.below(2 * pair.connections() as u64) as usize;
            for index in 0..pair.connections() {
                if only >= pair.connections() || only == index {
                    pair.cut(index);
                }
            }
            pair.unreachable = random.chance(1, 4);
            heals_at = pair.now + Duration::from_millis(random.below(20_000));
        }
        if pair.now >= heals_at {
            pair.unreachable = false;
        }
        oracle.check(&mut pair, seed);
    }
    pair.unreachable = false;
    let limit = pair.now + Duration::from_secs(3600);
    while !oracle.asked.is_empty() {
        assert!(pair.now < limit, "seed {seed}: {:?} never end", oracle.asked.keys());
        pair.step();
        oracle.check(&mut pair, seed);
    }
    assert_eq!(pair.initiator.in_flight(), 0, "seed {seed}");
    // Once more all of it, in peace.
    for first in (0..BLOCKS).step_by(64) {
        let slot = oracle.next_slot;
        oracle.next_slot += 1;
        let may = oracle.may[first..first + 64].to_vec();
        oracle.asked.insert(slot, Asked::Read { first, may, beside: vec![false; 64] });
        pair.read(slot, (first * BLOCK) as u64, (64 * BLOCK) as u32);
    }
    while !oracle.asked.is_empty() {
        pair.step();
        oracle.check(&mut pair, seed);
    }
    pair.initiator.close();
    pair.run_until("gone", |pair| pair.initiator.is_gone() && pair.connections() == 0);
    assert_eq!(pair.pages_held(), 0, "seed {seed}: pages were lost");
    oracle.ended
}

#[test]
fn whatever_breaks_every_request_ends_once_and_reads_return_what_blocks_may_hold() {
    let mut ended: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..24 {
        for (name, count) in run(seed, Duration::from_secs(10)) {
            *ended.entry(name).or_default() += count;
        }
    }
    // The seeds reach what they are for.
    assert!(ended["done"] > 1000, "{ended:?}");
    assert!(ended["not done"] > 10 && ended["unknown"] > 10, "{ended:?}");
}

#[test]
fn the_oracle_sees_when_writes_are_replayed_too_early() {
    let is_seen = |seed| std::panic::catch_unwind(|| run(seed, Duration::ZERO)).is_err();
    assert!((0..60).any(is_seen), "a write that came late was not noticed");
}
