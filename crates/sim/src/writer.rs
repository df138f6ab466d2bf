//! Who writes patterns: the numbers of its writes, what it knows the blocks to hold, and the log of
//! what it did, which the run tells the oracle in order. Units: blocks of the oracle, virtual
//! nanoseconds.

use std::collections::BTreeMap;

use testkit::oracle::{Content, Oracle, WriteId};
use wire::scsi::AdditionalSense;

use crate::disk::SECTOR;

/// The number of a write, and its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) id: WriteId,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Write {
    pub(crate) fn pattern(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.count as usize * SECTOR];
        Oracle::pattern(self.id, self.first, &mut bytes);
        bytes
    }
}

/// The writes of a host: those of all of its shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) first: WriteId,
    pub(crate) count: u64,
    pub(crate) step: u64,
}

impl Ids {
    /// Of somebody whose flushes cover what anybody can see, and no more.
    pub(crate) const NONE: Ids = Ids { first: 0, count: 0, step: 1 };

    pub(crate) fn contain(self, id: WriteId) -> bool {
        id >= self.first && (id - self.first) % self.step < self.count
    }
}

/// What somebody did.
#[derive(Debug)]
pub(crate) enum Log {
    Begin {
        at: u64,
        write: Write,
        content: Content,
    },
    /// A copy of ranges, one behind the other.
    BeginCopy {
        at: u64,
        write: Write,
        ranges: Vec<(u64, u64)>,
    },
    End {
        at: u64,
        write: Write,
        done: bool,
        durable: bool,
    },
    /// A write was carried out between its beginning and its answer.
    Changed {
        start: u64,
        end: u64,
    },
    /// A write never happened.
    Never {
        write: Write,
    },
    /// Something was refused since others hold the volume.
    Refused {
        start: u64,
        end: u64,
        changes: bool,
        /// Or perhaps since a flush was refused before.
        is_after: bool,
    },
    /// A unit attention about reservations.
    Told {
        at: u64,
        code: AdditionalSense,
    },
    /// A task is not known any more that was never answered.
    Vanished {
        at: u64,
    },
    /// A flush that began at `start` is done.
    Flushed {
        start: u64,
        by: Ids,
    },
    /// A flush failed: what it was to cover may be gone.
    Doubted {
        by: Ids,
    },
    Read {
        start: u64,
        end: u64,
        first: u64,
        bytes: Vec<u8>,
    },
    /// A compare-and-write, one step by itself, found `expected`.
    Swapped {
        start: u64,
        end: u64,
        write: Write,
        expected: Vec<u8>,
    },
}

impl Log {
    /// The write that begins with it.
    pub(crate) fn begun(&self) -> Option<Write> {
        match self {
            Log::Begin { write, .. } | Log::BeginCopy { write, .. } => Some(*write),
            _ => None,
        }
    }

    pub(crate) fn tell(self, oracle: &mut Oracle) -> Result<(), String> {
        match self {
            Log::Begin { at, write: Write { id, first, count }, content } => {
                oracle.begin(at, id, content, first, count);
            }
            Log::BeginCopy { at, write, ranges } => {
                oracle.begin_copy(at, write.id, write.first, &ranges);
            }
            Log::End { at, write: Write { id, first, count }, done, durable } => {
                oracle.end(at, id, first, count, done, durable);
            }
            Log::Changed { .. } | Log::Refused { .. } | Log::Told { .. } | Log::Vanished { .. } => {
            }
            Log::Never { write: Write { id, first, count } } => oracle.never(id, first, count),
            Log::Flushed { start, by } => oracle.flushed(start, |id| by.contain(id)),
            Log::Doubted { by } => oracle.doubted(|id| by.contain(id)),
            Log::Read { start, end, first, bytes } => oracle.check(start, end, first, &bytes)?,
            Log::Swapped { start, end, write, expected } => {
                oracle.swapped((start, end), write.first, write.id, &expected)?;
            }
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The number that the next write gets.
    pub(crate) next_id: WriteId,
    id_step: u64,
    /// When those began that have not ended.
    begun: BTreeMap<WriteId, u64>,
    /// What each block was last seen to hold.
    seen: BTreeMap<u64, Vec<u8>>,
    pub(crate) log: Vec<Log>,
}

impl Writer {
    /// One whose writes are numbered `first_id`, `first_id + id_step` and so on.
    pub(crate) fn new(first_id: WriteId, id_step: u64) -> Writer {
        let (begun, seen) = (BTreeMap::new(), BTreeMap::new());
        Writer { next_id: first_id, id_step, begun, seen, log: Vec::new() }
    }

    pub(crate) fn begin(&mut self, at: u64, content: Content, first: u64, count: u64) -> Write {
        let write = Write { id: self.next_id, first, count };
        self.next_id += self.id_step;
        self.begun.insert(write.id, at);
        self.log.push(Log::Begin { at, write, content });
        write
    }

    /// A copy of ranges (first block and count) to the blocks from `first` on.
    pub(crate) fn begin_copy(&mut self, at: u64, first: u64, ranges: Vec<(u64, u64)>) -> Write {
        let count = ranges.iter().map(|(_, count)| count).sum();
        let write = Write { id: self.next_id, first, count };
        self.next_id += self.id_step;
        self.begun.insert(write.id, at);
        self.log.push(Log::BeginCopy { at, write, ranges });
        write
    }

    /// What is not known to have been done is not durable either.
    pub(crate) fn end(&mut self, at: u64, write: Write, done: bool, durable: bool) {
        let start = self.begun.remove(&write.id).unwrap_or(at);
        if done {
            self.log.push(Log::Changed { start, end: at });
        }
        self.log.push(Log::End { at, write, done, durable: durable && done });
    }

    /// Of a write the first blocks were written, and perhaps more.
    pub(crate) fn end_in_part(&mut self, at: u64, write: Write, whole: u64, durable: bool) {
        let Write { id, first, count } = write;
        if whole > 0 {
            self.end(at, Write { id, first, count: whole }, true, durable);
        }
        self.end(at, Write { id, first: first + whole, count: count - whole }, false, false);
    }

    /// A write never happened.
    pub(crate) fn never(&mut self, write: Write) {
        self.begun.remove(&write.id);
        self.log.push(Log::Never { write });
    }

    /// A write was refused since others hold the volume: it never happened.
    pub(crate) fn refused(&mut self, end: u64, write: Write) {
        self.hindered(end, write);
        self.never(write);
    }

    /// A write of several parts ended since others hold the volume: some of it may have happened.
    pub(crate) fn hindered(&mut self, end: u64, write: Write) {
        let start = self.begun.get(&write.id).copied().unwrap_or(end);
        self.log.push(Log::Refused { start, end, changes: true, is_after: false });
    }

    /// What blocks hold from `first` on.
    pub(crate) fn remember(&mut self, first: u64, bytes: &[u8]) {
        self.seen.extend((first..).zip(bytes.chunks(SECTOR).map(<[u8]>::to_vec)));
    }

    pub(crate) fn forget(&mut self, write: &Write) {
        self.seen.retain(|block, _| !(write.first..write.first + write.count).contains(block));
    }

    pub(crate) fn knows(&self, first: u64, count: u64) -> bool {
        (first..first + count).all(|block| self.seen.contains_key(&block))
    }

    /// What the blocks were last seen to hold, or zeros: often right.
    pub(crate) fn expectation(&self, first: u64, count: u64) -> Vec<u8> {
        let block = |number| self.seen.get(&number).map_or(&[0; SECTOR][..], |seen| seen);
        (first..first + count).flat_map(block).copied().collect()
    }
}
