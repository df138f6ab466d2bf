//! The cache of a model and its power, on a clock that is turned by hand, around a disk of numbers: what a
//! cache makes quicker and what it does not, and that what was promised is there after the power was gone.

use std::collections::BTreeMap;
use std::time::Duration;

use block::random::Random;
use block::{ByteCount, Extent, Failure, Instant, Outcome};

use super::super::Model;
use super::super::mechanism::{Answer, Asked, Mechanism};
use super::*;
use crate::disk::faulty::Fate;

const SIZE: ByteCount = ByteCount(1 << 30);
const PAGES: u64 = SIZE.0 / PAGE;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

fn page(number: u64) -> Extent {
    Extent::new(number * PAGE, PAGE)
}

fn cached() -> Model {
    Model { service_us: 1_000, cache_mib: 1, cache_us: 10, ..Model::PLAIN }
}

/// A disk each of whose pages holds a number.
#[derive(Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Contents for Numbers {
    fn image(&mut self, page: u64) -> Image {
        let number = self.0.get(&page);
        number.map_or(Image::Zeros, |number| Image::Bytes(Box::new(number.to_le_bytes())))
    }

    fn put_back(&mut self, page: u64, image: Image) {
        match image {
            Image::Zeros => self.0.remove(&page),
            Image::Bytes(bytes) => {
                self.0.insert(page, u64::from_le_bytes(bytes.as_ref().try_into().unwrap()))
            }
        };
    }
}

/// When it is done, in microseconds.
fn done(mechanism: &mut Mechanism, now: Instant, asked: Asked<'_>) -> f64 {
    let Answer { until, fate } = mechanism.accept(now, asked, SIZE, &mut ());
    assert_eq!(fate, Fate::Asked);
    until.0 as f64 / 1e3
}

#[test]
fn a_write_is_done_when_it_is_in_the_cache_and_a_flush_when_all_is_on_the_medium() {
    let mut mechanism = Mechanism::new(cached());
    let mut at = |us: u64, asked| done(&mut mechanism, Instant(us * 1_000), asked);
    assert_eq!(at(0, Asked::Write(page(0))), 10.0);
    // The first one went to the medium at 10, alone; these two wait for the channel, and go together.
    assert_eq!(at(100, Asked::Write(page(8))), 110.0);
    assert_eq!(at(100, Asked::Write(page(9))), 110.0);
    assert_eq!(at(200, Asked::Read(page(9))), 210.0, "it is in the cache");
    assert_eq!(at(300, Asked::Durable(page(20))), 2_010.0, "it is asked for before they are sent");
    assert_eq!(at(400, Asked::Flush), 3_010.0);
    assert_eq!(at(5_000, Asked::Read(page(9))), 6_000.0, "it is in the cache no longer");
    assert_eq!(at(7_000, Asked::Flush), 7_000.0);
    // What nobody asks for in the meantime is written all the same.
    assert_eq!(at(8_000, Asked::Write(page(1))), 8_010.0);
    assert_eq!(at(9_100, Asked::Flush), 9_100.0);
}

#[test]
fn a_full_cache_takes_what_the_medium_gives_room_for() {
    const PAGES_HELD: u64 = 256;
    // One behind the other they would be sent together.
    let apart = |number: u64| page(number * 2 % PAGES);
    let mut mechanism = Mechanism::new(cached());
    let mut now = Instant::ZERO;
    let mut times = Vec::new();
    for number in 0..4 * PAGES_HELD {
        let there = done(&mut mechanism, now, Asked::Write(apart(number)));
        times.push(there - now.0 as f64 / 1e3);
        now = Instant((there * 1e3) as u64);
    }
    let (held, waiting) = times.split_at(PAGES_HELD as usize);
    assert!(held.iter().all(|time| *time == 10.0), "{held:?}");
    let mean = waiting.iter().sum::<f64>() / waiting.len() as f64;
    assert!((995.0..1_005.0).contains(&mean), "{mean}");
    // What is there already needs no room.
    let again = done(&mut mechanism, now, Asked::Write(apart(4 * PAGES_HELD - 1)));
    assert_eq!(again, now.0 as f64 / 1e3 + 10.0);
    // What is larger than the cache goes past it.
    let large = Asked::Write(Extent::new(0, 2 << 20));
    assert!(done(&mut Mechanism::new(cached()), Instant::ZERO, large) == 1_000.0);
}

/// Random writes that a cache sorts by place cost the arm less.
#[test]
fn what_is_held_is_written_in_the_order_of_its_place() {
    let hdd = Model::named("hdd-10k").unwrap();
    let rate = |model: Model| {
        let (mut mechanism, mut random) = (Mechanism::new(model), Random::new(4));
        let mut now = Instant::ZERO;
        for _ in 0..8_000 {
            let asked = Asked::Write(page(random.below(PAGES)));
            now = Instant((done(&mut mechanism, now, asked) * 1e3) as u64);
        }
        8_000.0 / (done(&mut mechanism, now, Asked::Flush) / 1e6)
    };
    let [without, with] = [0, 16].map(|cache_mib| rate(Model { cache_mib, ..hdd }));
    assert!((120.0..135.0).contains(&without), "{without}");
    // The seek is nearly gone, half a turn and what a write needs to settle are left.
    assert!((1.6..2.4).contains(&(with / without)), "{with} {without}");
}

/// A read waits for the run that is being written and not for the whole cache.
#[test]
fn a_read_goes_before_what_the_cache_has_to_write() {
    let mut mechanism = Mechanism::new(cached());
    for number in 0..200 {
        done(&mut mechanism, Instant::ZERO, Asked::Write(page(number * 2)));
    }
    let read = done(&mut mechanism, Instant(5_500_000), Asked::Read(page(1_001)));
    assert_eq!(read, 5_010.0 + 1_000.0 + 1_000.0);
}

/// What a host knows of a page.
#[derive(Default)]
struct Known {
    /// Numbers that were written to it, in order.
    written: Vec<u64>,
    /// How many of these were written before the last of which it was told that it lasts.
    lasting: usize,
}

/// Asks at random until after the cut, and judges what is there then. Returns how many pages lost
/// something, and whether one was lost that was written before another that was not.
fn judge_cut(seed: u64) -> (usize, bool) {
    const PAGES: u64 = 48;
    let mut random = Random::new(seed);
    let model = Model {
        seed,
        channels: 1 + random.below(3),
        service: super::super::Spread::Exponential,
        service_us: 300,
        trim_us: 150,
        cache_mib: random.below(4).min(1),
        cache_us: 5,
        cut_ms: 40,
        off_ms: 10,
        ..Model::PLAIN
    };
    let (mut mechanism, mut disk) = (Mechanism::new(model), Numbers::default());
    let mut known: Vec<Known> = (0..PAGES).map(|_| Known::default()).collect();
    let (mut now, mut number, mut cut) = (0, 0, None);
    // What is told later that it lasts: when, and how many of each page's numbers.
    let mut told: Vec<(u64, Vec<(usize, usize)>)> = Vec::new();
    while cut.is_none_or(|cut| now <= cut) {
        now += random.below(200_000);
        let first = random.below(PAGES);
        let count = 1 + random.below(4.min(PAGES - first));
        let extent = Extent::new(first * PAGE, count * PAGE);
        let its = first as usize..(first + count) as usize;
        let kind = random.below(16);
        let asked = match kind {
            0 => Asked::Flush,
            1 => Asked::Trim(&[extent]),
            2 | 3 => Asked::Durable(extent),
            4 => Asked::Read(extent),
            _ => Asked::Write(extent),
        };
        let Answer { until, fate } = mechanism.accept(Instant(now), asked, SIZE, &mut disk);
        if cut.is_none() && kind != 0 && kind != 4 {
            cut = Some(now + 40 * MILLISECOND);
        }
        if matches!(fate, Fate::Asked | Fate::Denied(_)) && kind != 0 && kind != 4 {
            number += 1;
            for page in its.clone() {
                match kind {
                    1 => disk.0.remove(&(page as u64)),
                    _ => disk.0.insert(page as u64, number),
                };
                known[page].written.push(if kind == 1 { 0 } else { number });
            }
        }
        let lasts = match kind {
            0 => 0..PAGES as usize,
            1..=3 => its,
            _ => continue,
        };
        if fate == Fate::Asked {
            let these = lasts.map(|page| (page, known[page].written.len())).collect();
            told.push((until.0, these));
        }
    }
    for (at, these) in told {
        assert!(at <= cut.unwrap(), "what is told after the cut is that it failed");
        for (page, lasting) in these {
            known[page].lasting = known[page].lasting.max(lasting);
        }
    }
    // The next that is asked finds the power gone.
    let Answer { fate, .. } = mechanism.accept(Instant(now), Asked::Flush, SIZE, &mut disk);
    assert_eq!(fate, Fate::Refused(Outcome::NotDone(Failure::NotReady)));
    let (mut lost, mut first_lost, mut last_kept) = (0, u64::MAX, 0);
    for (page, known) in known.iter().enumerate() {
        let has = disk.0.get(&(page as u64)).copied().unwrap_or(0);
        let lasting = known.lasting.saturating_sub(1);
        let may_be = &known.written[lasting.min(known.written.len())..];
        let is_new = known.lasting == 0 && has == 0;
        assert!(is_new || may_be.contains(&has), "{seed}: page {page} has {has} of {may_be:?}");
        let last = known.written.last().copied().unwrap_or(0);
        if has != last {
            lost += 1;
            first_lost = first_lost.min(last);
        } else {
            last_kept = last_kept.max(last);
        }
    }
    assert!(model.cache_mib > 0 || lost == 0, "{seed}: without a cache {lost} pages are lost");
    (lost, first_lost < last_kept)
}

#[test]
fn what_was_told_to_last_is_there_after_a_cut_and_of_the_rest_some_is_lost_in_any_order() {
    let runs: Vec<(usize, bool)> = (0..3_000).map(judge_cut).collect();
    let count = |wanted: fn(&&(usize, bool)) -> bool| runs.iter().filter(wanted).count();
    assert!(count(|(lost, _)| *lost > 0) > 1_000);
    assert!(count(|(lost, _)| *lost > 5) > 300);
    assert!(count(|(_, reordered)| *reordered) > 500);
}

#[test]
fn without_power_all_fails_and_the_first_flush_behind_tells_of_what_was_lost_once() {
    let model = Model { cut_ms: 100, off_ms: 50, ..cached() };
    let (mut mechanism, mut disk) = (Mechanism::new(model), Numbers::default());
    let mut at =
        |ms: u64, asked| mechanism.accept(Instant(ms * MILLISECOND), asked, SIZE, &mut disk);
    let refused = |failure| Fate::Refused(Outcome::NotDone(failure));
    // Reads do not begin its time.
    assert_eq!(at(0, Asked::Read(page(0))).fate, Fate::Asked);
    for number in 0..250 {
        assert_eq!(at(1_000, Asked::Write(page(number * 2))).fate, Fate::Asked);
    }
    // What would be done later ends as the power goes.
    let flush = at(1_001, Asked::Flush);
    assert_eq!(flush.until, Instant(1_100 * MILLISECOND));
    assert_eq!(flush.fate, refused(Failure::NotReady));
    for (ms, asked) in [(1_100, Asked::Read(page(3))), (1_149, Asked::Write(page(3)))] {
        let answer = at(ms, asked);
        assert_eq!((answer.until.0, answer.fate), (ms * MILLISECOND, refused(Failure::NotReady)));
    }
    assert_eq!(at(1_150, Asked::Read(page(3))).fate, Fate::Asked);
    assert_eq!(at(1_151, Asked::Durable(page(3))).fate, Fate::Asked);
    assert_eq!(at(1_160, Asked::Flush).fate, refused(Failure::MediumWrite));
    assert_eq!(at(1_160, Asked::Flush).fate, Fate::Asked);
    assert_eq!(at(9_000, Asked::Write(page(3))).fate, Fate::Asked);
    assert_eq!(at(9_200, Asked::Flush).fate, Fate::Asked, "it is cut once");
    let lost = mechanism.lost();
    // Ninety-nine milliseconds are as many writes, and one under way was lost with the others.
    assert_eq!(lost, 250 - 99);
}

#[test]
fn what_nobody_loses_no_flush_fails_for() {
    let model = Model { cut_ms: 100, ..cached() };
    let (mut mechanism, mut disk) = (Mechanism::new(model), Numbers::default());
    let mut at = |at: u64, asked| mechanism.accept(Instant(at), asked, SIZE, &mut disk);
    assert_eq!(at(0, Asked::Write(page(0))).fate, Fate::Asked);
    // It was written long before.
    assert_eq!(at(2 * SECOND, Asked::Flush).fate, Fate::Asked);
    assert_eq!(mechanism.lost(), 0);
}

#[test]
fn a_cut_at_any_moment_keeps_the_number_that_the_medium_had_then() {
    // One page, written again and again while it is under way.
    for cut_ms in 1..20 {
        let model = Model { cut_ms, off_ms: 1, ..cached() };
        let (mut mechanism, mut disk) = (Mechanism::new(model), Numbers::default());
        for number in 1..=100u64 {
            let now = Instant::ZERO + Duration::from_micros(200 * (number - 1));
            let answer = mechanism.accept(now, Asked::Write(page(0)), SIZE, &mut disk);
            if answer.fate != Fate::Asked {
                break;
            }
            disk.0.insert(0, number);
        }
        // A write takes a millisecond from 10 us on: the first has the first number, each of the next what was
        // there as it began.
        let has = disk.0.get(&0).copied().unwrap_or(0);
        let expected = match cut_ms {
            1 => 0,
            2 => 1,
            later => ((later - 2) * 1_000 + 10) / 200 + 1,
        };
        assert_eq!(has, expected, "cut after {cut_ms} ms");
    }
}
