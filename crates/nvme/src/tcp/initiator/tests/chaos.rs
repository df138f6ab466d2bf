//! Cuts at random moments, late bytes, slow disks and unreachable targets, against the oracle that
//! knows for each block what it may hold.
//!
//! No two writes under way share a block. The oracle's clock counts what was asked and answered:
//! the pair's stands still while bytes move.

use core::time::Duration;
use std::collections::BTreeMap;

use block::random::Random;
use block::{Extent, Operation, Outcome};
use testkit::oracle::{BLOCK, Content, Oracle};
use wire::nvme_tcp::Digests;

use super::pair::{Pair, settings};

const BLOCKS: usize = 1024;

#[derive(Debug)]
enum Asked {
    Write { first: usize, count: usize, id: u64 },
    Read { first: usize, start: u64 },
    Flush,
}

struct Work {
    oracle: Oracle,
    /// Blocks that are being written.
    writing: Vec<bool>,
    asked: BTreeMap<u32, Asked>,
    next_slot: u32,
    now: u64,
    ended: BTreeMap<&'static str, u32>,
}

impl Work {
    fn new() -> Work {
        Work {
            oracle: Oracle::new(BLOCKS as u64, false),
            writing: vec![false; BLOCKS],
            asked: BTreeMap::new(),
            next_slot: 0,
            now: 0,
            ended: BTreeMap::new(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn ask(&mut self, pair: &mut Pair, random: &mut Random) {
        let count = [1, 2, 8, 16, 64, 256][random.below(6) as usize];
        let first = random.below((BLOCKS - count) as u64) as usize;
        let kind = random.below(10);
        let is_free = !self.writing[first..first + count].contains(&true);
        match kind {
            0 => {
                let slot = self.note(Asked::Flush);
                pair.ask(slot, Operation::Flush);
            }
            1..6 if is_free => self.write(pair, first, count, kind == 1),
            _ => self.read(pair, first, count),
        }
    }

    fn note(&mut self, asked: Asked) -> u32 {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.asked.insert(slot, asked);
        slot
    }

    /// Some writes are of zeros, which other commands make, too.
    fn write(&mut self, pair: &mut Pair, first: usize, count: usize, zeros: bool) {
        let (now, id) = (self.tick(), u64::from(self.next_slot) + 1);
        let content = if zeros { Content::Zeros } else { Content::Pattern };
        self.oracle.begin(now, id, content, first as u64, count as u64);
        self.writing[first..first + count].fill(true);
        let slot = self.note(Asked::Write { first, count, id });
        let (offset, length) = ((first * BLOCK) as u64, count * BLOCK);
        if zeros {
            let extent = Extent::new(offset, length as u64);
            let zeroes = Operation::WriteZeroes { extent, deallocate: false, durable: false };
            return pair.ask(slot, zeroes);
        }
        let mut bytes = vec![0; length];
        Oracle::pattern(id, first as u64, &mut bytes);
        pair.write(slot, offset, &bytes);
    }

    fn read(&mut self, pair: &mut Pair, first: usize, count: usize) {
        let start = self.tick();
        let slot = self.note(Asked::Read { first, start });
        pair.read(slot, (first * BLOCK) as u64, (count * BLOCK) as u32);
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
                Outcome::Found(_) => unreachable!("nothing is sought"),
            };
            *self.ended.entry(name).or_default() += 1;
            let now = self.tick();
            match asked {
                Asked::Flush => {}
                Asked::Write { first, count, id } => {
                    self.writing[first..first + count].fill(false);
                    let done = outcome.is_done();
                    self.oracle.end(now, id, first as u64, count as u64, done, false);
                }
                Asked::Read { first, start } if outcome.is_done() => {
                    let judged = self.oracle.check(start, now, first as u64, &bytes);
                    judged.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
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
    let mut work = Work::new();
    let mut heals_at = pair.shard.now;
    while work.next_slot < 400 {
        if work.asked.len() < 24 && random.chance(2, 3) {
            work.ask(&mut pair, &mut random);
        }
        for _ in 0..random.below(6) {
            pair.step();
        }
        if pair.initiator.state().starts_with("connected") && random.chance(1, 60) {
            // Some commands have just left.
            while work.asked.len() < 24 {
                work.ask(&mut pair, &mut random);
            }
            let only = random.below(2 * pair.connections() as u64) as usize;
            for index in 0..pair.connections() {
                if only >= pair.connections() || only == index {
                    pair.cut(index);
                }
            }
            pair.unreachable = random.chance(1, 4);
            heals_at = pair.shard.now + Duration::from_millis(random.below(20_000));
        }
        if pair.shard.now >= heals_at {
            pair.unreachable = false;
        }
        work.check(&mut pair, seed);
    }
    pair.unreachable = false;
    let limit = pair.shard.now + Duration::from_secs(3600);
    while !work.asked.is_empty() {
        assert!(pair.shard.now < limit, "seed {seed}: {:?} never end", work.asked.keys());
        pair.step();
        work.check(&mut pair, seed);
    }
    assert_eq!(pair.initiator.in_flight(), 0, "seed {seed}");
    // Once more all of it, in peace.
    for first in (0..BLOCKS).step_by(64) {
        work.read(&mut pair, first, 64);
    }
    while !work.asked.is_empty() {
        pair.step();
        work.check(&mut pair, seed);
    }
    pair.initiator.close();
    pair.run_until("gone", |pair| pair.initiator.is_gone() && pair.connections() == 0);
    assert_eq!(pair.pages_held(), 0, "seed {seed}: pages were lost");
    work.ended
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
