//! Writes that were carried out a moment ago, so that a copy of one is not carried out behind a newer write.
//!
//! A *repeat* has the source, address, tag, header and payload CRC of a write of the last second. What the target does with it is in `ata`; what
//! is remembered, and for how long, is decided here:
//!
//! ```text
//!   sets    by source, address and tag: 8 marks of (fingerprint, number)      tags that count up touch neighbouring sets
//!   heads   by address and 64 KiB of its sectors: the number of the last write there
//!   chunks  by number: 1024 records each; a record names the write before it in each of the 64 KiB that it touches
//! ```
//!
//! So finding that a write is new costs one cache line of marks, and remembering it one record, written in sequence. Only for a repeat
//! the chain of its 64 KiB is walked, from the newest write back to it, to see whether one overlaps it.
//!
//! Memory is bounded: at most [`CHUNKS_MAX`] chunks (12 MiB) beside 2 MiB of marks, taken in the course of use, and given back after [`QUIET`]. A shard that takes
//! more than 262,144 writes in a second remembers so many of them; each loss of a chunk before its time is counted ([`Repeats::lapsed`]).
//! Nothing is remembered across a restart. `docs/faults.md` says what that means.

use core::time::Duration;

use block::Instant;

/// For so long a write is remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(1);
/// After so long without a write the memory is given back.
const QUIET: Duration = Duration::from_secs(3);

const RECORDS: u32 = 1024;
const CHUNKS_MAX: u32 = 256;
/// Chunks are numbered as their records are, and begin anew with them.
const CHUNK_MASK: u32 = u32::MAX / RECORDS;
const SETS: usize = 1 << 15;
const WAYS: usize = 8;
const HEADS: usize = 1 << 14;
/// The base-2 logarithm of the sectors of a region: more than a frame carries, so a write touches at most two.
const REGION_SHIFT: u32 = 7;
/// Writes of a region that are looked at for one repeat; behind more of them it counts as superseded.
const WALK_MAX: u32 = 256;

/// What tells one write from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The source, 48 bits.
    pub(super) source: u64,
    /// The export.
    pub(super) export: u32,
    /// The tag.
    pub(super) tag: u32,
    /// The first sector, 48 bits.
    pub(super) lba: u64,
    /// Flags, feature, count and command, as they stand in the frame.
    pub(super) shape: u32,
    /// CRC32C of the payload.
    pub(super) crc: u32,
}

impl Key {
    fn count(self) -> u64 {
        u64::from((self.shape >> 8) as u8)
    }

    fn regions(self) -> (u64, u64) {
        let last = self.lba + self.count().max(1) - 1;
        (self.lba >> REGION_SHIFT, last >> REGION_SHIFT)
    }
}

/// What is known of a frame that looks like one that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: it is new, or failed when it came first.
    New,
    /// It was carried out, and nothing has changed its sectors since.
    Done,
    /// It was carried out, and something may have changed its sectors since.
    Superseded,
}

/// What became of a remembered write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running = 0,
    Done = 1,
    Failed = 2,
}

/// A record as words, so that a chunk is zeros that cost nothing before they are used:
/// source and state, export and tag, LBA, shape and CRC, time, and the writes before it in its two regions.
type Record = [u64; 6];

#[derive(Debug, Default)]
struct Chunk {
    number: u32,
    records: Vec<Record>,
}

/// The writes of the last second of one shard.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    sets: Vec<[u64; WAYS]>,
    heads: Vec<u32>,
    chunks: Vec<Chunk>,
    /// The oldest chunk that is kept.
    oldest: u32,
    /// The number of the last write; 0 is none.
    last: u32,
    last_at: Instant,
    lapsed: u64,
}

/// Whether number `a` was given after `b`.
#[inline]
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

#[inline]
fn head_of(export: u32, region: u64) -> usize {
    // Neighbouring regions have neighbouring heads.
    (u64::from(export).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).wrapping_add(region) as usize
        % HEADS
}

impl Repeats {
    /// Chunks that were given up before their time.
    pub(super) fn lapsed(&self) -> u64 {
        self.lapsed
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.records.capacity());
        chunks.sum::<usize>() * size_of::<Record>()
            + self.sets.capacity() * size_of::<[u64; WAYS]>()
            + self.heads.capacity() * size_of::<u32>()
    }

    /// The set and fingerprint of a write.
    #[inline]
    fn place(key: &Key) -> (usize, u32) {
        let base = mix(key.source, u64::from(key.export));
        let tag = key.tag.wrapping_add(key.tag >> 16);
        let set = (base as u32).wrapping_add(tag) as usize % SETS;
        // 0 marks an empty way.
        (set, (mix(base, u64::from(key.tag)) >> 32) as u32 | 1)
    }

    #[inline]
    fn record(&self, number: u32) -> Option<&Record> {
        let chunk = self.chunks.get((number / RECORDS % CHUNKS_MAX) as usize)?;
        if chunk.number != number / RECORDS {
            return None;
        }
        chunk.records.get((number % RECORDS) as usize)
    }

    #[inline]
    fn key(record: &Record) -> Key {
        Key {
            source: record[0] & 0xffff_ffff_ffff,
            export: (record[1] >> 32) as u32,
            tag: record[1] as u32,
            lba: record[2],
            shape: (record[3] >> 32) as u32,
            crc: record[3] as u32,
        }
    }

    /// What is known of this write. `wide` is the last change of the export that could touch any sector, `last` the last of any kind.
    #[inline]
    pub(super) fn look_up(&self, now: Instant, key: &Key, wide: u32, last: u32) -> Known {
        if self.sets.is_empty() {
            return Known::New;
        }
        let (set, fingerprint) = Self::place(key);
        for mark in &self.sets[set] {
            if (mark >> 32) as u32 == fingerprint {
                let known = self.examine(now, key, *mark as u32, wide, last);
                if known != Known::New {
                    return known;
                }
            }
        }
        Known::New
    }

    #[cold]
    fn examine(&self, now: Instant, key: &Key, number: u32, wide: u32, last: u32) -> Known {
        let Some(record) = self.record(number) else { return Known::New };
        let is_done = record[0] >> 48 == State::Done as u64;
        let is_young = now.since(Instant(record[4])) < MEMORY;
        if !is_done || !is_young || Self::key(record) != *key {
            return Known::New;
        }
        let is_wide = key.count() == 0;
        // A number that is not kept any more is an old one, whatever comparing it says.
        let is_newer =
            |other: u32| other != 0 && self.record(other).is_some() && is_after(other, number);
        if is_newer(wide) || (is_wide && is_newer(last)) {
            return Known::Superseded;
        }
        let (first, second) = key.regions();
        let overlapped = self.is_overlapped(key, first, number)
            || (second != first && self.is_overlapped(key, second, number));
        if overlapped { Known::Superseded } else { Known::Done }
    }

    /// Whether a write after `number` overlaps the one of `key` in a region, as far as can be told.
    fn is_overlapped(&self, key: &Key, region: u64, number: u32) -> bool {
        let head = head_of(key.export, region);
        let mut at = self.heads[head];
        for _ in 0..WALK_MAX {
            if at == 0 || !is_after(at, number) {
                return false;
            }
            // What is gone is older than all that is kept, and so than `number`.
            let Some(record) = self.record(at) else { return false };
            let other = Self::key(record);
            let overlaps = other.export == key.export
                && other.lba < key.lba + key.count()
                && key.lba < other.lba + other.count();
            if overlaps && record[0] >> 48 != State::Failed as u64 {
                return true;
            }
            let (first, _) = other.regions();
            let links = record[5];
            at = if head_of(other.export, first) == head {
                (links >> 32) as u32
            } else {
                links as u32
            };
        }
        true
    }

    /// Remembers a write that goes below now; returns its number. A write of no count (a trim) is one that may touch any sector.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, key: &Key) -> u32 {
        if self.sets.is_empty() {
            self.commit();
        }
        let mut number = self.last.wrapping_add(1);
        if number == 0 {
            number = 1;
        }
        self.last = number;
        self.last_at = now;
        if number.is_multiple_of(RECORDS) || number == 1 {
            self.begin_chunk(now, number / RECORDS);
        }
        let mut links = 0;
        if key.count() > 0 {
            let (first, second) = key.regions();
            let head = head_of(key.export, first);
            links = u64::from(core::mem::replace(&mut self.heads[head], number)) << 32;
            let other = head_of(key.export, second);
            if other != head {
                links |= u64::from(core::mem::replace(&mut self.heads[other], number));
            }
        }
        let (set, fingerprint) = Self::place(key);
        let mark = u64::from(fingerprint) << 32 | u64::from(number);
        // The oldest way goes.
        let [a, b, c, d, e, f, g, _] = self.sets[set];
        self.sets[set] = [mark, a, b, c, d, e, f, g];
        let chunk = &mut self.chunks[(number / RECORDS % CHUNKS_MAX) as usize];
        chunk.records[(number % RECORDS) as usize] = [
            key.source | (State::Running as u64) << 48,
            u64::from(key.export) << 32 | u64::from(key.tag),
            key.lba,
            u64::from(key.shape) << 32 | u64::from(key.crc),
            now.0,
            links,
        ];
        number
    }

    /// A remembered write is over; its second begins now.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, number: u32, done: bool) {
        let Some(chunk) = self.chunks.get_mut((number / RECORDS % CHUNKS_MAX) as usize) else {
            return;
        };
        if chunk.number == number / RECORDS
            && let Some(record) = chunk.records.get_mut((number % RECORDS) as usize)
        {
            let state = if done { State::Done } else { State::Failed };
            record[0] = record[0] & 0xffff_ffff_ffff | (state as u64) << 48;
            record[4] = now.0;
        }
    }

    #[cold]
    fn commit(&mut self) {
        self.sets = vec![[0; WAYS]; SETS];
        self.heads = vec![0; HEADS];
        self.chunks.resize_with(CHUNKS_MAX as usize, Chunk::default);
        self.oldest = self.last.wrapping_add(1).max(1) / RECORDS;
        // Numbers go on, so that a chunk that was given back is never taken for one that is kept.
        let chunk = self.oldest;
        self.chunks[(chunk % CHUNKS_MAX) as usize] =
            Chunk { number: chunk, records: vec![[0; 6]; RECORDS as usize] };
    }

    /// Makes room for the next thousand records: in the oldest chunk, if its time is over or there are too many, else in a new one.
    #[cold]
    fn begin_chunk(&mut self, now: Instant, number: u32) {
        let is_there = |chunk: &Chunk| chunk.number == number && !chunk.records.is_empty();
        if is_there(&self.chunks[(number % CHUNKS_MAX) as usize]) {
            return;
        }
        let kept = number.wrapping_sub(self.oldest) & CHUNK_MASK;
        let mut records = Vec::new();
        if kept > 0 {
            let oldest = &mut self.chunks[(self.oldest % CHUNKS_MAX) as usize];
            let newest = oldest.records.last().map_or(0, |record| record[4]);
            let is_over = now.since(Instant(newest)) >= MEMORY;
            if is_over || kept >= CHUNKS_MAX || oldest.number != self.oldest {
                self.lapsed += u64::from(!is_over);
                records = core::mem::take(&mut oldest.records);
                self.oldest = (self.oldest + 1) & CHUNK_MASK;
            }
        }
        if records.is_empty() {
            records = vec![[0; 6]; RECORDS as usize];
        }
        self.chunks[(number % CHUNKS_MAX) as usize] = Chunk { number, records };
    }

    /// When the memory may be given back.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.sets.is_empty()).then(|| self.last_at + QUIET)
    }

    /// Gives the memory back if nothing was written for long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            (self.sets, self.heads, self.chunks) = (Vec::new(), Vec::new(), Vec::new());
            // Begin with the next chunk: what carries a number of this one finds nothing.
            self.last = (self.last / RECORDS + 1).wrapping_mul(RECORDS).wrapping_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Random;

    fn key(tag: u32, lba: u64, count: u8) -> Key {
        Key {
            source: 0x0200_0000_0001,
            export: 3,
            tag,
            lba,
            shape: 0x4100_0034 | u32::from(count) << 8,
            crc: 77,
        }
    }

    fn at(micros: u64) -> Instant {
        Instant(1_000_000_000 + micros * 1000)
    }

    fn write(repeats: &mut Repeats, now: Instant, key: Key) -> u32 {
        let number = repeats.begin(now, &key);
        repeats.end(now, number, true);
        number
    }

    #[test]
    fn a_copy_within_a_second_is_known_and_then_forgotten() {
        let mut repeats = Repeats::default();
        write(&mut repeats, at(0), key(1, 100, 8));
        let look = |repeats: &Repeats, now, key: Key| repeats.look_up(now, &key, 0, 0);
        assert_eq!(look(&repeats, at(999_999), key(1, 100, 8)), Known::Done);
        assert_eq!(look(&repeats, at(1_000_000), key(1, 100, 8)), Known::New);
        for other in [
            Key { source: 2, ..key(1, 100, 8) },
            Key { export: 4, ..key(1, 100, 8) },
            Key { tag: 2, ..key(1, 100, 8) },
            Key { lba: 101, ..key(1, 100, 8) },
            Key { shape: 0x4100_0835, ..key(1, 100, 8) },
            Key { crc: 78, ..key(1, 100, 8) },
        ] {
            assert_eq!(look(&repeats, at(1), other), Known::New, "{other:?}");
        }
    }

    #[test]
    fn a_newer_write_that_overlaps_supersedes_and_a_neighbour_does_not() {
        // Within a region, and across the edge of two.
        for base in [1000, 127, 128] {
            let mut repeats = Repeats::default();
            write(&mut repeats, at(0), key(1, base, 2));
            write(&mut repeats, at(1), key(2, base + 2, 2));
            write(&mut repeats, at(1), key(3, base - 2, 2));
            write(&mut repeats, at(1), Key { export: 9, ..key(4, base, 2) });
            let look = |repeats: &Repeats| repeats.look_up(at(2), &key(1, base, 2), 0, 0);
            assert_eq!(look(&repeats), Known::Done);
            let failed = repeats.begin(at(2), &key(5, base + 1, 1));
            assert_eq!(look(&repeats), Known::Superseded);
            repeats.end(at(2), failed, false);
            assert_eq!(look(&repeats), Known::Done);
            write(&mut repeats, at(3), key(6, base + 1, 17));
            assert_eq!(look(&repeats), Known::Superseded);
        }
    }

    #[test]
    fn one_that_failed_is_carried_out_again() {
        let mut repeats = Repeats::default();
        let number = repeats.begin(at(0), &key(1, 5, 1));
        repeats.end(at(0), number, false);
        assert_eq!(repeats.look_up(at(1), &key(1, 5, 1), 0, 0), Known::New);
    }

    #[test]
    fn a_trim_supersedes_all_of_its_export_and_is_superseded_by_all() {
        let mut repeats = Repeats::default();
        write(&mut repeats, at(0), key(1, 5, 1));
        let trim = write(&mut repeats, at(1), key(2, 0, 0));
        assert_eq!(repeats.look_up(at(2), &key(1, 5, 1), trim, trim), Known::Superseded);
        assert_eq!(repeats.look_up(at(2), &key(2, 0, 0), trim, trim), Known::Done);
        let later = write(&mut repeats, at(3), key(3, 9, 1));
        assert_eq!(repeats.look_up(at(4), &key(2, 0, 0), trim, later), Known::Superseded);
    }

    /// Against a list that remembers all: whatever is found is right, and with fewer writes than there is room for all is found.
    #[test]
    fn what_is_found_agrees_with_a_list_of_all_writes() {
        let mut random = Random::new(5);
        let mut repeats = Repeats::default();
        let mut all: Vec<(Instant, Key)> = Vec::new();
        let mut now = at(0);
        let mut found = [0; 3];
        for round in 0..20_000 {
            now = now + Duration::from_micros(random.below(120));
            if random.chance(1, 4) && !all.is_empty() {
                let back = random.below(40).min(all.len() as u64 - 1) as usize;
                let (since, key) = all[all.len() - 1 - back];
                let later = &all[all.len() - back..];
                let overlapped = later.iter().any(|(_, other)| {
                    other.lba < key.lba + key.count() && key.lba < other.lba + other.count()
                });
                let expected = match (now.since(since) < MEMORY, overlapped) {
                    (false, _) => Known::New,
                    (true, true) => Known::Superseded,
                    (true, false) => Known::Done,
                };
                assert_eq!(repeats.look_up(now, &key, 0, 0), expected, "round {round}");
                found[expected as usize] += 1;
            } else {
                let key = key(round, random.below(4000), 1 + random.below(20) as u8);
                write(&mut repeats, now, key);
                all.push((now, key));
            }
        }
        assert!(found[1] > 100 && found[2] > 100, "{found:?}");
    }

    #[test]
    fn memory_is_bounded_recycled_and_given_back() {
        let mut repeats = Repeats::default();
        let few =
            |repeats: &Repeats| repeats.chunks.iter().filter(|c| !c.records.is_empty()).count();
        // Slowly: two chunks follow each other.
        let mut now = at(0);
        for tag in 0..20_000 {
            now = now + Duration::from_millis(2);
            write(&mut repeats, now, key(tag, u64::from(tag), 1));
        }
        assert!(few(&repeats) <= 3, "{} chunks", few(&repeats));
        assert_eq!(repeats.lapsed(), 0);
        // Faster than can be remembered.
        for tag in 0..300_000 {
            write(&mut repeats, now, key(tag, u64::from(tag) * 8, 8));
        }
        assert!(few(&repeats) <= CHUNKS_MAX as usize);
        assert!(repeats.lapsed() > 0);
        assert!(repeats.bytes() < 16 << 20, "{} bytes", repeats.bytes());
        assert_eq!(repeats.look_up(now, &key(299_999, 299_999 * 8, 8), 0, 0), Known::Done);
        now = now + QUIET;
        repeats.handle_timeout(now);
        assert_eq!((repeats.bytes(), repeats.poll_timeout()), (0, None));
        write(&mut repeats, now, key(1, 1, 1));
        assert_eq!(repeats.look_up(now, &key(1, 1, 1), 0, 0), Known::Done);
    }

    #[test]
    fn numbers_may_begin_anew() {
        let mut repeats = Repeats { last: u32::MAX - 1500, ..Repeats::default() };
        for tag in 0..4000 {
            write(&mut repeats, at(u64::from(tag)), key(tag, u64::from(tag) * 8, 8));
            for back in [0, 1, 100] {
                if tag >= back {
                    let key = key(tag - back, u64::from(tag - back) * 8, 8);
                    let known = repeats.look_up(at(u64::from(tag)), &key, 0, 0);
                    assert_eq!(known, Known::Done, "tag {tag} back {back}");
                }
            }
        }
    }
}
