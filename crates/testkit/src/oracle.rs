//! The oracle: what each block of a volume may hold.
//!
//! Every write gets a number, and fills its blocks with a pattern that names it, so a block that
//! was read says which write it is from. A read may return a write that began before the read ended
//! and was not *superseded* before the read began. A write is superseded by one that began after it
//! ended and is known to have happened: it was completed as done, or somebody read it. Of writes
//! that overlapped in time, whichever a read saw that began after the others had ended came last.
//! So each block behaves as one register (linearizable), across clients, shards and kills.
//!
//! A compare-and-write that succeeded is one step: no other one replaced the same write, and
//! whatever began after the replaced write had ended comes after the new one.
//!
//! A copy leaves in each of its blocks what another one held at some time while it was under way, the
//! patterns of which name the block for which they were made (`copied`).
//!
//! A reservation is a fence: what a host that it shuts out had under way when it was answered
//! happened before that or never, and what it begins afterwards never happens, until the fence is
//! lifted.
//!
//! A power cut takes that knowledge away from everything that was not made durable by a flush or a
//! durable write: then older values may come back. A write whose outcome is *not done* or *unknown*
//! may have happened and supersedes nothing; after its completion no more happens to it.

mod copied;

use std::collections::BTreeSet;

/// Bytes of a block: what is written atomically.
pub const BLOCK: usize = 512;

/// A write's number; 0 is what the disk held at first: zeros.
pub type WriteId = u64;

/// How a write may be told from others: what it leaves in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The pattern of its number.
    Pattern,
    /// Zeros.
    Zeros,
    /// What another block held while it was made. `range` counts the ranges of one copy, each of
    /// which is copied before the next one.
    Copied { from: u64, range: u16 },
}

/// What a block holds: the pattern of a write, for the block of this number, or zeros.
type Held = Option<(WriteId, u64)>;

#[derive(Clone, Debug)]
struct Entry {
    id: WriteId,
    content: Content,
    start: u64,
    /// When nothing more could happen to it.
    end: Option<u64>,
    /// Since when it is known to have happened.
    known: Option<u64>,
    /// The latest read that saw it, from when to when: what had ended before that came before it.
    seen: Option<(u64, u64)>,
    durable: bool,
    /// Its writer was told that it is done, and not since that it may be gone: a flush that its
    /// writer is told is done covers it, whatever came between.
    promised: bool,
    /// A power cut came before its answer, which may be older than the cut: then it says nothing of
    /// what is there now.
    shaken: bool,
    /// The compare-and-write that replaced it.
    swapped: Option<WriteId>,
    /// Of a compare-and-write: when the write that it replaced had ended. Nothing comes between the
    /// two, so what began after that comes after both.
    follows: Option<u64>,
    /// Since when its writer is shut out by a reservation: nothing of it happens after, until the
    /// fence is lifted.
    fenced: Option<u64>,
    /// The power cut since which it is known not to be there: before that it may have been, and may
    /// have been copied.
    gone: Option<u64>,
}

impl Entry {
    fn new(id: WriteId, content: Content, start: u64) -> Entry {
        Entry {
            id,
            content,
            start,
            end: None,
            known: None,
            seen: None,
            durable: false,
            promised: false,
            shaken: false,
            swapped: None,
            follows: None,
            fenced: None,
            gone: None,
        }
    }

    /// What began after this moment comes after it.
    fn order_end(&self) -> Option<u64> {
        self.follows.into_iter().chain(self.fenced).chain(self.end).min()
    }

    /// Whether `other` is known, for a read that begins at `start`, to have come after it.
    fn is_replaced_by(&self, other: &Entry, start: u64) -> bool {
        let began_later = self.order_end().is_some_and(|end| end < other.start)
            && other.known.is_some_and(|known| known < start);
        // A compare-and-write may have made its own write after what it replaced was read.
        let over = self.fenced.into_iter().chain(self.end).min();
        let was_left =
            over.is_some_and(|over| other.seen.is_some_and(|(from, to)| over < from && to < start));
        other.id != self.id && (began_later || was_left)
    }

    /// Whether it began when its writer was shut out, so that it may not happen at all.
    fn is_barred(&self) -> bool {
        self.fenced.is_some_and(|since| since <= self.start)
    }

    /// Whether somebody who looks from `start` to `end` may find it there, if nothing replaced it.
    fn may_be_there(&self, start: u64, end: u64) -> bool {
        let is_gone = self.gone.is_some_and(|since| since < start);
        self.start <= end && !self.is_barred() && !is_gone
    }
}

/// The history of every block of one volume.
#[derive(Clone, Debug)]
pub struct Oracle {
    blocks: Vec<Vec<Entry>>,
    /// Blocks that hold what a flush has not covered.
    dirty: BTreeSet<u64>,
    /// Blocks that something was copied from: their history is kept.
    sources: BTreeSet<u64>,
    /// Whether flushes mean anything: not when the disks lie about them.
    flushes_count: bool,
    /// When the power went last: what was read before says nothing of what is there since.
    cut_at: u64,
    checked: u64,
}

impl Oracle {
    /// A volume of `blocks` blocks of zeros.
    pub fn new(blocks: u64, flushes_count: bool) -> Oracle {
        let first = Entry {
            end: Some(0),
            known: Some(0),
            durable: true,
            ..Entry::new(0, Content::Zeros, 0)
        };
        Oracle {
            blocks: vec![vec![first]; blocks as usize],
            dirty: BTreeSet::new(),
            sources: BTreeSet::new(),
            flushes_count,
            cut_at: 0,
            checked: 0,
        }
    }

    /// Blocks that were read and found right.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// A write of `count` blocks from `first` on begins.
    pub fn begin(&mut self, now: u64, id: WriteId, content: Content, first: u64, count: u64) {
        self.dirty.extend(first..first + count);
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            block.push(Entry::new(id, content, now));
        }
    }

    /// A copy of ranges (first block and count), one behind the other to the blocks from `first` on,
    /// begins.
    pub fn begin_copy(&mut self, now: u64, id: WriteId, first: u64, ranges: &[(u64, u64)]) {
        let mut to = first;
        for (range, (source, count)) in (0..).zip(ranges) {
            for from in *source..source + count {
                self.sources.insert(from);
                self.begin(now, id, Content::Copied { from, range }, to, 1);
                to += 1;
            }
        }
    }

    /// A write ended: nothing more happens to it after `now`. `done` says that it happened;
    /// `durable` that it lasts.
    pub fn end(
        &mut self,
        now: u64,
        id: WriteId,
        first: u64,
        count: u64,
        done: bool,
        durable: bool,
    ) {
        for number in first..first + count {
            let block = &mut self.blocks[number as usize];
            block.retain(|entry| entry.id != id || done || !entry.is_barred());
            for entry in block.iter_mut().filter(|entry| entry.id == id) {
                entry.end = Some(entry.fenced.unwrap_or(now));
                if done {
                    entry.promised = true;
                    entry.durable |= durable && self.flushes_count;
                    if entry.durable || !entry.shaken {
                        entry.known = Some(now);
                    }
                }
            }
            prune(block, self.sources.contains(&number));
        }
    }

    /// Who makes a write is shut out since `since`: nothing of it happens after that, and if it
    /// began after that, nothing at all.
    pub fn fence(&mut self, since: u64, id: WriteId, first: u64, count: u64) {
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            for entry in block.iter_mut().filter(|entry| entry.id == id && entry.end.is_none()) {
                entry.fenced = Some(since);
            }
        }
    }

    /// Nobody is surely shut out any more: what is under way may happen.
    pub fn lift_fences(&mut self) {
        self.lift(|_| true);
    }

    /// The same of those whose writes are these.
    pub fn lift(&mut self, is_its: impl Fn(WriteId) -> bool) {
        let all = self.blocks.iter_mut().flatten();
        for entry in all.filter(|entry| entry.end.is_none() && is_its(entry.id)) {
            (entry.fenced, entry.gone) = (None, None);
        }
    }

    /// A compare-and-write that failed its compare never writes.
    pub fn never(&mut self, id: WriteId, first: u64, count: u64) {
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            block.retain(|entry| entry.id != id);
        }
    }

    /// A compare-and-write from `start` to `end` found `expected` in the blocks from `first` on,
    /// and replaced it in one step. So no other one may have replaced the same writes: two that did
    /// would not have been one step each.
    pub fn swapped(
        &mut self,
        (start, end): (u64, u64),
        first: u64,
        id: WriteId,
        expected: &[u8],
    ) -> Result<(), String> {
        self.check(start, end, first, expected)?;
        for (number, bytes) in (first..).zip(expected.chunks(BLOCK)) {
            // What may have been copied there says nothing of what was replaced.
            let block = &mut self.blocks[number as usize];
            let seen = match held(bytes)? {
                Some((seen, made_for)) if made_for == number && !copied::is_target(block) => seen,
                _ => continue,
            };
            // One that is not over may be carried out again (docs/decisions/0006): then it is
            // replaced twice.
            let is_replaced = |entry: &&mut Entry| {
                let over = entry.end.is_some_and(|end| end < start);
                entry.content == Content::Pattern && entry.id == seen && over
            };
            let Some(entry) = block.iter_mut().find(is_replaced) else { continue };
            if let Some(other) = entry.swapped.replace(id) {
                return Err(format!(
                    "block {number}: the compare-and-writes {other} and {id} both replaced write {seen}"
                ));
            }
            let follows = entry.end;
            for entry in block.iter_mut().filter(|entry| entry.id == id) {
                entry.follows = follows;
            }
        }
        Ok(())
    }

    /// A flush that began at `start` is done: what had ended by then lasts. Of the writes of
    /// whoever asked for it, whose `is_its`, so does what a power cut may have taken since, unless
    /// it was told so ([`doubted`](Self::doubted)).
    pub fn flushed(&mut self, start: u64, is_its: impl Fn(WriteId) -> bool) {
        if !self.flushes_count {
            return;
        }
        let blocks = &mut self.blocks;
        self.dirty.retain(|number| {
            let block = &mut blocks[*number as usize];
            for entry in block.iter_mut() {
                let Some(end) = entry.end.filter(|end| *end < start) else { continue };
                if entry.promised && is_its(entry.id) {
                    entry.known.get_or_insert(end);
                }
                entry.durable |= entry.known.is_some();
            }
            prune(block, self.sources.contains(number));
            block.iter().any(|entry| !entry.durable)
        });
    }

    /// A flush of somebody failed, or who asked for it is not there any more: what was not flushed
    /// may be gone, and that is known.
    pub fn doubted(&mut self, is_its: impl Fn(WriteId) -> bool) {
        for number in &self.dirty {
            for entry in &mut self.blocks[*number as usize] {
                entry.promised &= !is_its(entry.id);
            }
        }
    }

    /// The target lost its power: what does not last may be gone.
    pub fn power_cut(&mut self, now: u64) {
        self.cut_at = now;
        for entry in self.blocks.iter_mut().flatten() {
            // What was replaced may be back.
            (entry.swapped, entry.follows) = (None, None);
            // Also what is under way and was already read: it lay in the cache.
            if !entry.durable {
                (entry.known, entry.seen) = (None, None);
                entry.shaken = true;
            }
        }
    }

    /// Fills `bytes` with what write `id` leaves in `count` blocks from `first` on.
    pub fn pattern(id: WriteId, first: u64, bytes: &mut [u8]) {
        for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
            fill(id, first + index as u64, block);
        }
    }

    /// Judges what a read from `start` to `end` returned.
    pub fn check(&mut self, start: u64, end: u64, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (index, seen) in bytes.chunks(BLOCK).enumerate() {
            let number = first + index as u64;
            self.check_block(start, end, number, seen)
                .map_err(|why| format!("block {number}, read from {start} to {end}: {why}"))?;
            self.checked += 1;
        }
        Ok(())
    }

    fn check_block(
        &mut self,
        start: u64,
        end: u64,
        number: u64,
        seen: &[u8],
    ) -> Result<(), String> {
        let held = held(seen)?;
        let block = &self.blocks[number as usize];
        if held.is_some_and(|(_, made_for)| made_for != number) && !copied::is_target(block) {
            return Err(format!("of another block: begins with {:02x?}", &seen[..24]));
        }
        let is_there = |entry: &Entry| entry.may_be_there(start, end);
        let replaced_by = |entry: &Entry| {
            block.iter().rev().find(|other| entry.is_replaced_by(other, start)).map(|by| by.id)
        };
        let asked = &mut copied::Asked::new();
        let mut may_leave = |at: usize| self.may_leave((number, at), held, end, asked);
        let found: Vec<usize> = (0..block.len())
            .filter(|at| is_there(&block[*at]) && replaced_by(&block[*at]).is_none())
            .filter(|at| may_leave(*at))
            .collect();
        match &found[..] {
            [] => {
                let old = (0..block.len()).find(|at| is_there(&block[*at]) && may_leave(*at));
                return Err(match old.map(|at| (block[at].id, replaced_by(&block[at]))) {
                    Some((id, Some(by))) => format!("write {id}, which write {by} had replaced"),
                    _ => format!("write {}, which never was", held.map_or(0, |it| it.0)),
                });
            }
            [only] if held.is_some() => self.was_seen(start, end, number, *only),
            // It could be of any of them.
            _ => {}
        }
        Ok(())
    }

    /// A read saw that the block holds what the entry at this place left.
    fn was_seen(&mut self, start: u64, end: u64, number: u64, at: usize) {
        let cut_at = self.cut_at;
        let block = &mut self.blocks[number as usize];
        if block[at].durable || start > cut_at {
            block[at].known.get_or_insert(end);
            block[at].seen = block[at].seen.max(Some((start, end)));
        }
        // What began after it, is fenced, and was not there by then does not come any more.
        let (id, over) = (block[at].id, block[at].order_end());
        for entry in block.iter_mut().filter(|entry| over < Some(entry.start) && entry.id != id) {
            if over.is_some() && entry.fenced.is_some_and(|since| since <= start) {
                if entry.shaken {
                    entry.gone = Some(cut_at);
                } else {
                    entry.fenced = Some(entry.start);
                }
            }
        }
    }
}

/// Drops what can never be seen again: superseded for good by a durable write that is long known.
fn prune(block: &mut Vec<Entry>, is_source: bool) {
    if block.len() < 64 || is_source {
        return;
    }
    let latest = block
        .iter()
        .filter(|entry| entry.durable && entry.known.is_some())
        .map(|entry| entry.start)
        .max();
    let Some(latest) = latest else { return };
    // A read takes less than ten virtual minutes, or the run has failed anyway.
    let long_ago = latest.saturating_sub(600_000_000_000);
    block.retain(|entry| entry.end.is_none_or(|end| end >= long_ago));
}

fn fill(id: WriteId, number: u64, block: &mut [u8]) {
    let mut random = block::Random::new(id.wrapping_mul(0x9e37) ^ number.rotate_left(40));
    for word in block.chunks_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    block[..8].copy_from_slice(&id.to_le_bytes());
    block[8..16].copy_from_slice(&number.to_le_bytes());
}

/// What a block holds, which must be whole.
fn held(seen: &[u8]) -> Result<Held, String> {
    if seen.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let [id, number] =
        [0, 8].map(|at| u64::from_le_bytes(seen[at..at + 8].try_into().expect("8 bytes")));
    let mut expected = [0; BLOCK];
    fill(id, number, &mut expected);
    match seen == expected {
        true => Ok(Some((id, number))),
        false => Err(format!("torn, or not ours: begins with {:02x?}", &seen[..24])),
    }
}

#[cfg(test)]
mod tests;
