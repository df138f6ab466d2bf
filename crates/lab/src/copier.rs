//! The copier: reads one volume and writes another, many pieces at a time, then flushes, reads both
//! back and compares.
//!
//! ```text
//!   Measuring: read source -> write destination, `depth` pieces at once    Draining: flush
//!   Verifying: read source -> read destination -> compare                  Done
//! ```
//!
//! Units: bytes. While it copies it flushes every [`FLUSH_EVERY`] bytes, so that the last flush
//! finds little left to do. Errors: the first failure or difference ends the copy; nothing is tried
//! twice, since the volumes below have done so. Not here: going on with a copy that ended early.
//! What of it is right nobody knows, so it begins anew.

use std::sync::Arc;

use block::{Account, Buffer, Extent, Instant, Operation, Outcome};

use crate::guest::{Desk, Guest, Phase, Place, Progress};

/// Bytes between two flushes. One flush of all that a page cache may hold would take longer than a
/// disk may be silent.
pub const FLUSH_EVERY: u64 = 256 << 20;

/// What to copy.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From where.
    pub source: Place,
    /// To where.
    pub destination: Place,
    /// Bytes to copy, from the start of both; a multiple of the block size of both.
    pub size: u64,
    /// Bytes of a request: a multiple of the block size of both, at most 1 MiB.
    pub piece: u32,
    /// Pieces in flight.
    pub depth: u32,
    /// Whether to read back and compare.
    pub verify: bool,
}

/// Why a copy ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The source could not be read there.
    Read(u64, Outcome),
    /// The destination could not be written there.
    Write(u64, Outcome),
    /// The destination could not be flushed.
    Flush(Outcome),
    /// The destination could not be read back there.
    ReadBack(u64, Outcome),
    /// Source and destination differ in this byte.
    Differs(u64),
}

/// Copies one volume to another.
#[derive(Debug)]
pub struct Copier {
    plan: Plan,
    phase: Phase,
    pieces: Vec<Piece>,
    /// The pieces that are not in flight.
    free: Vec<u32>,
    /// Where the next piece begins.
    next: u64,
    /// Whether a flush is under way.
    flushing: bool,
    /// `next` when the last flush began.
    flushed: u64,
    failed: Option<Failed>,
    progress: Arc<Progress>,
    requests: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Piece {
    offset: u64,
    length: u32,
    account: Account,
    step: Step,
    /// Of a comparison, the other buffer, which was granted with the first so that nobody holds one
    /// and waits for another: empty until the source was read, then the source's bytes.
    other: Option<Buffer>,
    other_account: Account,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    ReadSource,
    Write,
    ReadBack,
}

/// The slot of the flush: behind those of the pieces.
const FLUSH: u32 = u32::MAX;

impl Copier {
    /// A copy that has not begun.
    pub fn new(plan: Plan, progress: Arc<Progress>) -> Copier {
        assert!(plan.piece > 0, "{plan:?}");
        Copier {
            phase: Phase::New,
            pieces: (0..plan.depth).map(|_| Piece::default()).collect(),
            free: (0..plan.depth).rev().collect(),
            next: 0,
            flushing: false,
            flushed: 0,
            failed: None,
            progress,
            requests: 0,
            bytes: 0,
            plan,
        }
    }

    /// Why it ended early, if it did.
    pub fn failed(&self) -> Option<Failed> {
        self.failed
    }

    /// Whether all was copied (and compared).
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Done && self.failed.is_none() && self.next >= self.plan.size
    }

    /// Whether pieces may be begun.
    fn goes_on(&self) -> bool {
        self.failed.is_none() && !self.progress.is_stopped()
    }

    /// Begins pieces while there are free slots and memory.
    fn begin(&mut self, desk: &mut dyn Desk) {
        while self.goes_on() && self.next < self.plan.size {
            let Some(slot) = self.free.last().copied() else { return };
            let offset = self.next;
            let length = u64::from(self.plan.piece).min(self.plan.size - offset) as u32;
            let piece = &mut self.pieces[slot as usize];
            piece.offset = offset;
            piece.length = length;
            piece.step = Step::ReadSource;
            let phase = (offset % 4096) as u32;
            let Some(buffer) = desk.take(&mut piece.account, length, phase) else { return };
            if self.phase == Phase::Verifying {
                piece.other = desk.take(&mut piece.other_account, length, phase);
                if piece.other.is_none() {
                    desk.give(&mut piece.account, buffer);
                    return;
                }
            }
            self.read(desk, slot, self.plan.source, buffer);
            self.free.pop();
            self.next += u64::from(length);
        }
    }

    fn read(&self, desk: &mut dyn Desk, slot: u32, place: Place, buffer: Buffer) {
        let piece = &self.pieces[slot as usize];
        let extent = Extent::new(piece.offset, u64::from(piece.length));
        desk.submit(place, slot, Operation::Read { extent, buffer });
    }

    /// Whether no piece is in flight.
    fn is_idle(&self) -> bool {
        self.free.len() == self.pieces.len()
    }

    fn start_flush(&mut self, desk: &mut dyn Desk) {
        self.flushing = true;
        self.flushed = self.next;
        desk.submit(self.plan.destination, FLUSH, Operation::Flush);
    }

    fn fail(&mut self, why: Failed) {
        self.failed.get_or_insert(why);
    }

    /// A piece is finished, well or not.
    fn finish(&mut self, slot: u32) {
        let piece = &self.pieces[slot as usize];
        self.free.push(slot);
        self.requests += 1;
        self.bytes += u64::from(piece.length);
    }

    /// The source's bytes are here: write them, or read what the destination has.
    fn source_read(&mut self, desk: &mut dyn Desk, slot: u32, buffer: Buffer) {
        let destination = self.plan.destination;
        let piece = &mut self.pieces[slot as usize];
        if self.phase == Phase::Verifying {
            piece.step = Step::ReadBack;
            let other = piece.other.replace(buffer).expect("granted with the first");
            self.read(desk, slot, destination, other);
            return;
        }
        piece.step = Step::Write;
        let extent = Extent::new(piece.offset, u64::from(piece.length));
        let operation = Operation::Write { extent, buffer, durable: false };
        desk.submit(destination, slot, operation);
    }

    fn compare(&mut self, desk: &mut dyn Desk, slot: u32, outcome: Outcome, buffer: Buffer) {
        let piece = &mut self.pieces[slot as usize];
        let expected = piece.other.take().expect("the source was read before");
        let offset = piece.offset;
        let both = outcome.is_done();
        let differs = both.then(|| desk.memory().first_difference(&expected, &buffer)).flatten();
        // Both are of one size, so it does not matter which account is credited with which.
        desk.give(&mut piece.account, expected);
        desk.give(&mut piece.other_account, buffer);
        self.finish(slot);
        if !outcome.is_done() {
            self.fail(Failed::ReadBack(offset, outcome));
        } else if let Some(at) = differs {
            self.fail(Failed::Differs(offset + u64::from(at)));
        }
    }

    /// Moves on once everything of the present phase is back.
    fn advance(&mut self, desk: &mut dyn Desk) {
        let quiet = self.is_idle() && !self.flushing;
        let through = self.next >= self.plan.size || !self.goes_on();
        match self.phase {
            Phase::New => {
                self.phase = Phase::Measuring;
                self.begin(desk);
                // Nothing to copy, or told to stop: on to the flush.
                if self.is_idle() {
                    self.advance(desk);
                }
            }
            Phase::Measuring if quiet && through => {
                self.phase = Phase::Draining;
                self.start_flush(desk);
            }
            Phase::Draining if quiet => {
                if self.plan.verify && self.goes_on() {
                    self.phase = Phase::Verifying;
                    self.next = 0;
                    self.begin(desk);
                } else {
                    self.phase = Phase::Done;
                }
                if self.is_idle() {
                    self.phase = Phase::Done;
                }
            }
            Phase::Verifying if quiet && through => self.phase = Phase::Done,
            _ => {}
        }
    }
}

impl Guest for Copier {
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        if slot == FLUSH {
            self.flushing = false;
            if !outcome.is_done() {
                self.fail(Failed::Flush(outcome));
            }
            return;
        }
        let piece = &mut self.pieces[slot as usize];
        let offset = piece.offset;
        match piece.step {
            Step::ReadSource if outcome.is_done() && self.failed.is_none() => {
                self.source_read(desk, slot, buffer);
            }
            Step::ReadSource => {
                desk.give(&mut piece.account, buffer);
                if let Some(other) = piece.other.take() {
                    desk.give(&mut piece.other_account, other);
                }
                self.finish(slot);
                if !outcome.is_done() {
                    self.fail(Failed::Read(offset, outcome));
                }
            }
            Step::Write => {
                desk.give(&mut piece.account, buffer);
                self.finish(slot);
                if !outcome.is_done() {
                    self.fail(Failed::Write(offset, outcome));
                }
            }
            Step::ReadBack => self.compare(desk, slot, outcome, buffer),
        }
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        if matches!(self.phase, Phase::Measuring | Phase::Verifying) {
            self.begin(desk);
        }
        if self.phase == Phase::Measuring
            && !self.flushing
            && self.next >= self.flushed + FLUSH_EVERY
        {
            self.start_flush(desk);
        }
        self.advance(desk);
        self.progress.tell(self.requests, self.bytes);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn phase(&self) -> Phase {
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Bench;

    fn plan(size: u64) -> Plan {
        Plan {
            source: Place(0),
            destination: Place(1),
            size,
            piece: 64 << 10,
            depth: 4,
            verify: true,
        }
    }

    fn bench(size: usize) -> Bench {
        let mut bench = Bench::new(&[size, size + 8192]);
        for (at, byte) in bench.volumes[0].iter_mut().enumerate() {
            *byte = (at / 3 + at / 4096) as u8;
        }
        bench
    }

    fn run(bench: &mut Bench, plan: Plan) -> Copier {
        bench.run(Copier::new(plan, Arc::default()))
    }

    #[test]
    fn what_is_copied_is_the_same() {
        for size in [512, 64 << 10, (1 << 20) + 512] {
            let mut bench = bench(size);
            let copier = run(&mut bench, plan(size as u64));
            assert!(copier.is_complete(), "{:?}", copier.failed());
            assert!(bench.volumes[0] == bench.volumes[1][..size]);
            assert!(bench.volumes[1][size..].iter().all(|byte| *byte == 0));
            assert!(bench.depth_seen <= 4);
        }
    }

    #[test]
    fn a_write_that_was_lost_is_a_difference() {
        let mut bench = bench(1 << 20);
        bench.lose_writes_from = Some(16);
        let copier = run(&mut bench, plan(1 << 20));
        assert!(matches!(copier.failed(), Some(Failed::Differs(_))), "{:?}", copier.failed());
        assert!(!copier.is_complete());
    }

    #[test]
    fn without_verify_nothing_is_read_back() {
        let mut bench = bench(1 << 20);
        bench.lose_writes_from = Some(16);
        let copier = run(&mut bench, Plan { verify: false, ..plan(1 << 20) });
        assert!(copier.is_complete());
    }

    #[test]
    fn the_first_failure_ends_the_copy() {
        let mut bench = bench(1 << 20);
        bench.fail_at = Some(300_000);
        let copier = run(&mut bench, plan(1 << 20));
        let expected = 300_000 / 65_536 * 65_536;
        assert!(matches!(copier.failed(), Some(Failed::Read(at, _)) if at == expected));
        assert!(bench.writes < 16);
    }

    #[test]
    fn large_pieces_verify_in_a_small_pool() {
        let mut bench = bench(32 << 20);
        let copier = run(&mut bench, Plan { piece: 1 << 20, depth: 64, ..plan(32 << 20) });
        assert!(copier.is_complete(), "{:?}", copier.failed());
    }

    #[test]
    fn one_that_is_stopped_is_not_complete() {
        let progress = Arc::new(Progress::default());
        progress.stop();
        let mut bench = bench(1 << 20);
        let copier = bench.run(Copier::new(plan(1 << 20), progress));
        assert!(!copier.is_complete());
        assert_eq!(copier.failed(), None);
    }
}
