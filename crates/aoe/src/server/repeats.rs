//! Writes of the last moments, so that a copy of one is not carried out behind a newer write.
//!
//! A *repeat* has the source, address, tag, header and payload CRC of a write of the last moments
//! ([`MEMORY`]). Its time begins when the write is answered, and anew whenever a copy is. What the
//! target does with a repeat is in `ata`; what is remembered, and for how long, is decided here:
//!
//! ```text
//!   sets    by source, address and tag: 8 marks of (fingerprint, number)
//!           tags that count up touch neighbouring sets
//!   heads   by address and 64 KiB of its sectors: the number of the last write there
//!   chunks  by number: 1024 records each; a record names the write before it
//!           in each of the 64 KiB that it touches
//! ```
//!
//! So finding that a write is new costs one cache line of marks, and remembering it one record,
//! written in sequence. Only for a repeat the chain of its 64 KiB is walked, from the newest write
//! back to it, to see whether one overlaps it.
//!
//! A write that was refused is remembered as well, since its initiator takes it for over: a copy
//! of it that comes when the reason has gone would change sectors behind its back. It is in no
//! chain, as it supersedes nothing.
//!
//! Memory is bounded: at most [`CHUNKS_MAX`] chunks (12 MiB) beside 2 MiB of marks, taken in the
//! course of use, and given back after [`QUIET`]. A chunk is used again when the time of its last
//! write is over; a write that is below for longer finds its record gone when it is done, and gets
//! a new one ([`Repeats::end`]). A shard that takes more than 262,144 writes in that time remembers
//! so many of them; what is lost before its time, a chunk or a mark, is counted
//! ([`Repeats::lapsed`]). Nothing is remembered across a restart. `docs/faults.md` says what that
//! means.

use core::time::Duration;

use block::{Instant, planted};

use crate::export::ExportId;

/// For so long a write is remembered after its answer. An Ethernet keeps a frame for a second at
/// most. An initiator sends copies until an answer reaches it, which takes up to a second, and the
/// last of them is on its way for another.
pub(super) const MEMORY: Duration = Duration::from_secs(2);
/// After so long without a write the memory is given back.
const QUIET: Duration = Duration::from_secs(3);

const RECORDS: u32 = 1024;
const CHUNKS_MAX: u32 = 256;
/// Chunks are numbered as their records are, and begin anew with them.
const CHUNK_MASK: u32 = u32::MAX / RECORDS;
const SETS: usize = 1 << 15;
const WAYS: usize = 8;
const HEADS: usize = 1 << 14;
/// The base-2 logarithm of the sectors of a region: more than a frame carries, so a write touches
/// at most two.
const REGION_SHIFT: u32 = 7;
/// Writes of a region that are looked at for one repeat; behind more of them it counts as
/// superseded.
const WALK_MAX: u32 = 256;

/// What tells one write from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The source, 48 bits.
    pub(super) source: u64,
    pub(super) export: ExportId,
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

    /// Whether it may touch any sector, as a trim may, which has no count.
    #[inline]
    pub(super) fn is_wide(self) -> bool {
        self.count() == 0
    }

    fn regions(self) -> (u64, u64) {
        let last = self.lba + self.count().max(1) - 1;
        (self.lba >> REGION_SHIFT, last >> REGION_SHIFT)
    }
}

/// What is known of a frame that looks like one that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing that speaks against it: it is new, or failed when it came first.
    New,
    /// It was carried out, and nothing has changed its sectors since.
    Done,
    /// It came before, and something may have changed its sectors since.
    Superseded,
    /// It was refused when it came first.
    Refused,
}

/// What became of a remembered write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running = 0,
    Done = 1,
    Failed = 2,
    Refused = 3,
}

impl State {
    #[inline]
    fn of(record: &Record) -> State {
        match record[0] >> STATE_SHIFT {
            0 => State::Running,
            1 => State::Done,
            2 => State::Failed,
            _ => State::Refused,
        }
    }

    /// Whether it may have changed its sectors and is not known to have left them as they were.
    #[inline]
    fn supersedes(self) -> bool {
        matches!(self, State::Running | State::Done)
    }
}

/// The state stands above the 48 bits of the source.
const STATE_SHIFT: u32 = 48;
const SOURCE: u64 = (1 << STATE_SHIFT) - 1;

/// A record as words, so that a chunk is zeros that cost nothing before they are used: source and
/// state, export and tag, LBA, shape and CRC, time, and the writes before it in its two regions.
type Record = [u64; 6];

#[derive(Debug, Default)]
struct Chunk {
    number: u32,
    /// When the last of its writes came or was answered.
    newest: Instant,
    records: Vec<Record>,
}

/// The writes of the last moments of one shard.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    sets: Vec<[u64; WAYS]>,
    heads: Vec<u32>,
    chunks: Vec<Chunk>,
    /// The oldest chunk that is kept.
    oldest: u32,
    /// The number of the last write; 0 is none.
    last: u32,
    /// When the last write came or was answered.
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
fn head_of(export: ExportId, region: u64) -> usize {
    // Neighbouring regions have neighbouring heads.
    (u64::from(export.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).wrapping_add(region) as usize
        % HEADS
}

impl Repeats {
    /// Chunks and marks that were given up before their time.
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
        let base = mix(key.source, u64::from(key.export.0));
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

    /// Writes down what became of a write and when; returns whether its record is still there.
    #[inline]
    fn set_state(&mut self, now: Instant, number: u32, state: State) -> bool {
        let chunk = self.chunks.get_mut((number / RECORDS % CHUNKS_MAX) as usize);
        let chunk = chunk.filter(|chunk| chunk.number == number / RECORDS);
        let Some(chunk) = chunk else { return false };
        let record = chunk.records.get_mut((number % RECORDS) as usize);
        let Some(record) = record else { return false };
        record[0] = record[0] & SOURCE | (state as u64) << STATE_SHIFT;
        record[4] = now.0;
        (chunk.newest, self.last_at) = (now, now);
        true
    }

    #[inline]
    fn key(record: &Record) -> Key {
        Key {
            source: record[0] & SOURCE,
            export: ExportId((record[1] >> 32) as u32),
            tag: record[1] as u32,
            lba: record[2],
            shape: (record[3] >> 32) as u32,
            crc: record[3] as u32,
        }
    }

    /// What is known of this write. `wide` is the last change of the export that could touch any
    /// sector, `last` the last of any kind.
    #[inline]
    pub(super) fn look_up(&self, now: Instant, key: &Key, wide: u32, last: u32) -> Known {
        if self.sets.is_empty() {
            return Known::New;
        }
        match self.find(now, key) {
            Some(number) => self.examine(key, number, wide, last),
            None => Known::New,
        }
    }

    /// The number of the last write of this key, if it is remembered.
    #[inline]
    fn find(&self, now: Instant, key: &Key) -> Option<u32> {
        let (set, fingerprint) = Self::place(key);
        // The newest stands first.
        let marks = self.sets[set].iter().filter(|mark| (*mark >> 32) as u32 == fingerprint);
        marks.map(|mark| *mark as u32).find(|number| self.is_of(now, key, *number))
    }

    #[cold]
    fn is_of(&self, now: Instant, key: &Key, number: u32) -> bool {
        let record = self.record(number);
        record.is_some_and(|record| Self::is_young(now, record) && Self::key(record) == *key)
    }

    /// Whether its time is not over, which has not begun while it is below.
    fn is_young(now: Instant, record: &Record) -> bool {
        State::of(record) == State::Running || now.since(Instant(record[4])) < MEMORY
    }

    #[cold]
    fn examine(&self, key: &Key, number: u32, wide: u32, last: u32) -> Known {
        // A number that is not kept any more is an old one, whatever comparing it says.
        let is_newer =
            |other: u32| other != 0 && self.record(other).is_some() && is_after(other, number);
        let (first, second) = key.regions();
        let is_superseded = is_newer(wide)
            || (key.is_wide() && is_newer(last))
            || self.is_overlapped(key, first, number)
            || (second != first && self.is_overlapped(key, second, number));
        match self.record(number).map(State::of) {
            _ if is_superseded && planted("copy-undoes-a-newer-write") => Known::New,
            _ if is_superseded => Known::Superseded,
            Some(State::Done) => Known::Done,
            Some(State::Refused) => Known::Refused,
            // One that is below is found among those in flight before anybody asks here.
            Some(State::Running | State::Failed) | None => Known::New,
        }
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
            if overlaps && State::of(record).supersedes() {
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

    /// Remembers a write that goes below now; returns its number.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, key: &Key) -> u32 {
        let number = self.next_number(now);
        let mut links = 0;
        if !key.is_wide() {
            let (first, second) = key.regions();
            let head = head_of(key.export, first);
            links = u64::from(core::mem::replace(&mut self.heads[head], number)) << 32;
            let other = head_of(key.export, second);
            if other != head {
                links |= u64::from(core::mem::replace(&mut self.heads[other], number));
            }
        }
        self.put(now, key, number, State::Running, links);
        number
    }

    /// A remembered write is over; its time begins now. Returns whether it was still remembered:
    /// what was below for very long may not be, and then has to begin and end anew.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, number: u32, done: bool) -> bool {
        self.set_state(now, number, if done { State::Done } else { State::Failed })
    }

    /// A copy of a write that was done is answered: its time begins anew. The answers before may
    /// all have been lost, and copies sent until this one arrives.
    #[cold]
    pub(super) fn answered_again(&mut self, now: Instant, key: &Key) {
        if let Some(number) = self.find(now, key) {
            self.set_state(now, number, State::Done);
        }
    }

    /// A write is refused and not carried out: neither are its copies.
    #[cold]
    pub(super) fn refuse(&mut self, now: Instant, key: &Key) {
        let known = if self.sets.is_empty() { None } else { self.find(now, key) };
        let state = known.and_then(|number| Some((number, State::of(self.record(number)?))));
        match state {
            // It was carried out, or will be, and this is a copy.
            Some((_, State::Running | State::Done)) => {}
            Some((number, State::Failed | State::Refused)) => {
                self.set_state(now, number, State::Refused);
            }
            None => {
                let number = self.next_number(now);
                self.put(now, key, number, State::Refused, 0);
            }
        }
    }

    /// The number of a new record, for which there is room.
    #[inline]
    fn next_number(&mut self, now: Instant) -> u32 {
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
        number
    }

    #[inline]
    fn put(&mut self, now: Instant, key: &Key, number: u32, state: State, links: u64) {
        let (set, fingerprint) = Self::place(key);
        let mark = u64::from(fingerprint) << 32 | u64::from(number);
        // The oldest way goes.
        let [a, b, c, d, e, f, g, oldest] = self.sets[set];
        self.sets[set] = [mark, a, b, c, d, e, f, g];
        // Seldom is its record still there: by then its chunk is used by others.
        let chunks_since = |first: u32| (number / RECORDS).wrapping_sub(first) & CHUNK_MASK;
        if oldest != 0 && chunks_since(oldest as u32 / RECORDS) <= chunks_since(self.oldest) {
            self.count_lapse(now, oldest as u32);
        }
        let chunk = &mut self.chunks[(number / RECORDS % CHUNKS_MAX) as usize];
        chunk.newest = now;
        chunk.records[(number % RECORDS) as usize] = [
            key.source | (state as u64) << STATE_SHIFT,
            u64::from(key.export.0) << 32 | u64::from(key.tag),
            key.lba,
            u64::from(key.shape) << 32 | u64::from(key.crc),
            now.0,
            links,
        ];
    }

    /// The mark of a write went; that is a loss if it was to be known for longer.
    #[cold]
    fn count_lapse(&mut self, now: Instant, number: u32) {
        let is_young = self.record(number).is_some_and(|record| Self::is_young(now, record));
        self.lapsed += u64::from(is_young);
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
            Chunk { number: chunk, records: vec![[0; 6]; RECORDS as usize], ..Chunk::default() };
    }

    /// Makes room for the next thousand records: in the oldest chunk, if its time is over or there
    /// are too many, else in a new one.
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
            let is_over = now.since(oldest.newest) >= MEMORY;
            if is_over || kept >= CHUNKS_MAX || oldest.number != self.oldest {
                self.lapsed += u64::from(!is_over);
                records = core::mem::take(&mut oldest.records);
                self.oldest = (self.oldest + 1) & CHUNK_MASK;
            }
        }
        if records.is_empty() {
            records = vec![[0; 6]; RECORDS as usize];
        }
        self.chunks[(number % CHUNKS_MAX) as usize] = Chunk { number, newest: now, records };
    }

    /// When the memory may be given back.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.sets.is_empty()).then(|| self.last_at + QUIET)
    }

    /// Gives the memory back if nothing was written, nor answered, for long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            (self.sets, self.heads, self.chunks) = (Vec::new(), Vec::new(), Vec::new());
            // Begin with the next chunk: what carries a number of this one finds nothing.
            self.last = (self.last / RECORDS + 1).wrapping_mul(RECORDS).wrapping_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
