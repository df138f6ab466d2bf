//! What each block of a job's part must hold: how often it was written in this run, and whether a
//! request is on it.
//!
//! A block is written by one request at a time and never read meanwhile, so a completed write
//! decides what the next read must return. A write that failed leaves either content: the block is
//! not judged until it is written again.

use block::Outcome;

use crate::stamp::Finding;

/// Blocks that all ledgers of a load cover together; the range of a verified load is cut to as
/// many. 4 bytes and a bit each.
pub const LEDGER_BLOCKS_MAX: u64 = 1 << 24;

/// The last write failed.
const UNDECIDED: u32 = 1 << 31;

/// What reads were found to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Right.
    pub checked: u64,
    /// Neither right nor wrong: blocks that nobody has stamped.
    pub unchecked: u64,
    /// Wrong.
    pub wrong: u64,
    /// The first that was wrong.
    pub first: Option<Mismatch>,
}

impl Verified {
    /// Adds what another shard found.
    pub fn add(&mut self, other: &Verified) {
        self.checked += other.checked;
        self.unchecked += other.unchecked;
        self.wrong += other.wrong;
        self.first = self.first.or(other.first);
    }
}

/// A block that did not hold what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its offset on the volume, in bytes.
    pub offset: u64,
    /// The write of this run that it must hold; 0: of any run.
    pub expected: u64,
    /// What it held.
    pub finding: Finding,
}

/// What a read was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Right,
    Unknown,
    Wrong { expected: u64 },
}

/// The blocks of a part.
#[derive(Debug)]
pub(super) struct Ledger {
    generations: Vec<u32>,
    busy: Vec<u64>,
    /// The next block to look at when reading back.
    cursor: usize,
}

impl Ledger {
    pub(super) fn new(blocks: u64) -> Ledger {
        let blocks = usize::try_from(blocks).expect("a ledger is bounded");
        Ledger { generations: vec![0; blocks], busy: vec![0; blocks.div_ceil(64)], cursor: 0 }
    }

    pub(super) fn is_busy(&self, block: u64) -> bool {
        self.busy[block as usize / 64] >> (block % 64) & 1 != 0
    }

    /// How often the block was written in this run.
    pub(super) fn generation(&self, block: u64) -> u64 {
        u64::from(self.generations[block as usize] & !UNDECIDED)
    }

    pub(super) fn begin(&mut self, block: u64) {
        self.busy[block as usize / 64] |= 1 << (block % 64);
    }

    pub(super) fn end_read(&mut self, block: u64) {
        self.busy[block as usize / 64] &= !(1 << (block % 64));
    }

    pub(super) fn end_write(&mut self, block: u64, outcome: Outcome) {
        self.end_read(block);
        let entry = &mut self.generations[block as usize];
        *entry = (*entry & !UNDECIDED) + 1;
        if !outcome.is_done() {
            *entry |= UNDECIDED;
        }
    }

    /// The next block that was written, each once.
    pub(super) fn next_written(&mut self) -> Option<u64> {
        let rest = &self.generations[self.cursor..];
        let found = rest.iter().position(|entry| *entry != 0 && *entry & UNDECIDED == 0)?;
        self.cursor += found + 1;
        Some((self.cursor - 1) as u64)
    }

    /// Whether a read of `block` in run `seed` is right. `mixed`: the run also writes, so that
    /// blocks it has not written yet may hold anything.
    pub(super) fn judge(&self, block: u64, finding: Finding, seed: u64, mixed: bool) -> Judgement {
        let entry = self.generations[block as usize];
        if entry & UNDECIDED != 0 {
            return match finding {
                Finding::Stamped { .. } => Judgement::Right,
                Finding::Blank => Judgement::Unknown,
                _ => Judgement::Wrong { expected: 0 },
            };
        }
        if entry != 0 {
            let expected = u64::from(entry);
            let right = Finding::Stamped { generation: expected, seed };
            return if finding == right { Judgement::Right } else { Judgement::Wrong { expected } };
        }
        match finding {
            Finding::Stamped { .. } => Judgement::Right,
            Finding::Blank => Judgement::Unknown,
            // What was there before the run is none of its business.
            _ if mixed => Judgement::Unknown,
            _ => Judgement::Wrong { expected: 0 },
        }
    }
}
