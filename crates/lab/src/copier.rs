//! The copier: reads one volume and writes another, many pieces at a time, then flushes, reads both
//! back and compares.
//!
//! ```text
//!   Measuring: read source -> write destination, `depth` pieces at once    Draining: flush
//!              (a hole: write zeroes)
//!   Verifying: read source -> read destination -> compare                  Done
//! ```
//!
//! Units: bytes. While it copies it flushes every [`FLUSH_EVERY`] bytes and every [`FLUSH_AFTER`],
//! so that the last flush finds little left to do and an end at any moment loses little. **What is
//! durable** is what lies before the first byte that is not: a flush covers only what was answered
//! as written before it began, and never what lies behind a piece that is under way or failed. Once
//! a flush has failed no later one is believed in this life: Linux tells the error of writing back
//! once. Errors: the first failure or difference ends the copy; nothing is tried twice, since the
//! volumes below have done so. Not here: what is kept between two lives (`journal`).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use block::{Account, Buffer, Extent, Failure, Instant, Operation, Outcome};

use crate::guest::{Desk, Guest, Phase, Place, Progress};

/// Bytes between two flushes. One flush of all that a page cache may hold would take longer than a
/// disk may be silent.
pub const FLUSH_EVERY: u64 = 256 << 20;
/// Time between two flushes: what a slow disk did in it is all that a crash costs.
pub const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// Bytes of a hole that are cleared by one request: so many that a large hole takes few, so few
/// that a disk which has to write zeros for them answers soon.
const CLEAR_MAX: u64 = 8 << 20;

/// What to copy.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From where.
    pub source: Place,
    /// To where.
    pub destination: Place,
    /// Bytes of the copy, from the start of both; a multiple of the block size of both.
    pub size: u64,
    /// Where copying begins, a multiple of both block sizes: what lies before was copied and is
    /// durable.
    pub from: u64,
    /// Parts of the source that are known to be zeros, in order and apart, in whole blocks of both.
    pub holes: Vec<Extent>,
    /// Bytes of a request: a multiple of the block size of both, at most 1 MiB.
    pub piece: u32,
    /// Pieces in flight.
    pub depth: u32,
    /// What to read back and compare once all is copied; nothing where it is empty.
    pub compare: Range<u64>,
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
    /// The first hole that ends behind `next`.
    hole: usize,
    /// Holes that the destination cannot clear: they are copied like data.
    uncleared: Vec<Extent>,
    /// The first byte of the destination that could not be written.
    unwritten: Option<u64>,
    /// The flush under way, by what it makes durable.
    flushing: Option<u64>,
    /// `next` when the last flush began.
    flushed: u64,
    /// When the next flush is due; none before the first turn.
    flush_due: Option<Instant>,
    /// Whether a flush failed: no later one is believed.
    flush_failed: bool,
    /// What lies before is written and flushed.
    durable: u64,
    failed: Option<Failed>,
    /// All that was asked for is copied, flushed and compared.
    complete: bool,
    progress: Arc<Progress>,
    requests: u64,
    /// Bytes that this pass, of copying or comparing, is through with.
    bytes: u64,
    cleared: u64,
}

#[derive(Debug, Default)]
struct Piece {
    extent: Extent,
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
    Idle,
    ReadSource,
    Write,
    Clear,
    ReadBack,
}

/// The slot of the flush: behind those of the pieces.
const FLUSH: u32 = u32::MAX;

impl Copier {
    /// A copy that has not begun.
    pub fn new(plan: Plan, progress: Arc<Progress>) -> Copier {
        let Plan { from, size, piece, ref compare, .. } = plan;
        assert!(piece > 0 && from <= size && compare.end <= size, "{plan:?}");
        Copier {
            phase: Phase::New,
            pieces: (0..plan.depth).map(|_| Piece::default()).collect(),
            free: (0..plan.depth).rev().collect(),
            next: from,
            hole: 0,
            uncleared: Vec::new(),
            unwritten: None,
            flushing: None,
            flushed: from,
            flush_due: None,
            flush_failed: false,
            durable: from,
            failed: None,
            complete: false,
            progress,
            requests: 0,
            bytes: 0,
            cleared: 0,
            plan,
        }
    }

    /// Why it ended early, if it did.
    pub fn failed(&self) -> Option<Failed> {
        self.failed
    }

    /// Whether all was copied, is durable, and was compared as far as was asked.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The end of what is durable at the destination, whatever became of the rest.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Bytes of holes that the destination cleared and was not sent.
    pub fn cleared(&self) -> u64 {
        self.cleared
    }

    /// Whether pieces may be begun.
    fn goes_on(&self) -> bool {
        self.failed.is_none() && !self.progress.is_stopped()
    }

    /// Where this pass ends.
    fn end(&self) -> u64 {
        if self.phase == Phase::Verifying { self.plan.compare.end } else { self.plan.size }
    }

    /// What the next piece is, and how it begins.
    fn ahead(&mut self) -> Option<(Extent, Step)> {
        let piece = u64::from(self.plan.piece);
        if let Some(hole) = self.uncleared.last() {
            let length = piece.min(hole.length.0);
            return Some((Extent::new(hole.offset.0, length), Step::ReadSource));
        }
        let (next, left) = (self.next, self.end().saturating_sub(self.next));
        if left == 0 {
            return None;
        }
        if self.phase == Phase::Verifying {
            return Some((Extent::new(next, piece.min(left)), Step::ReadSource));
        }
        while self.plan.holes.get(self.hole).is_some_and(|hole| hole.end().0 <= next) {
            self.hole += 1;
        }
        let (length, step) = match self.plan.holes.get(self.hole) {
            Some(hole) if hole.offset.0 <= next => {
                (CLEAR_MAX.min(hole.end().0 - next), Step::Clear)
            }
            Some(hole) => (piece.min(hole.offset.0 - next), Step::ReadSource),
            None => (piece, Step::ReadSource),
        };
        Some((Extent::new(next, length.min(left)), step))
    }

    /// The piece that was ahead is begun.
    fn pass(&mut self, extent: Extent) {
        match self.uncleared.pop() {
            Some(hole) if hole.length != extent.length => {
                let rest = hole.length.0 - extent.length.0;
                self.uncleared.push(Extent::new(extent.end().0, rest));
            }
            Some(_) => {}
            None => self.next = extent.end().0,
        }
    }

    /// Whether what was read of the source is of use yet. What lies before a piece that failed is:
    /// with it more is durable.
    fn is_wanted(&self, extent: Extent) -> bool {
        match self.unwritten {
            Some(first) => extent.offset.0 < first,
            None => self.failed.is_none(),
        }
    }

    /// Begins pieces while there are free slots and memory.
    fn begin(&mut self, desk: &mut dyn Desk) {
        while self.goes_on() {
            let Some(slot) = self.free.last().copied() else { return };
            let Some((extent, step)) = self.ahead() else { return };
            let piece = &mut self.pieces[slot as usize];
            (piece.extent, piece.step) = (extent, Step::Idle);
            if step == Step::Clear {
                let clear = Operation::WriteZeroes { extent, deallocate: true, durable: false };
                desk.submit(self.plan.destination, slot, clear);
            } else {
                let (length, phase) = (extent.length.0 as u32, (extent.offset.0 % 4096) as u32);
                let Some(buffer) = desk.take(&mut piece.account, length, phase) else { return };
                if self.phase == Phase::Verifying {
                    piece.other = desk.take(&mut piece.other_account, length, phase);
                    if piece.other.is_none() {
                        desk.give(&mut piece.account, buffer);
                        return;
                    }
                }
                desk.submit(self.plan.source, slot, Operation::Read { extent, buffer });
            }
            self.pieces[slot as usize].step = step;
            self.free.pop();
            self.pass(extent);
        }
    }

    /// Whether no piece is in flight.
    fn is_idle(&self) -> bool {
        self.free.len() == self.pieces.len()
    }

    /// The end of what was answered as written, without a gap.
    fn written(&self) -> u64 {
        let in_flight = self.pieces.iter().filter(|piece| piece.step != Step::Idle);
        let in_flight = in_flight.map(|piece| piece.extent.offset.0);
        let uncleared = self.uncleared.iter().map(|hole| hole.offset.0);
        let gaps = in_flight.chain(uncleared).chain(self.unwritten);
        gaps.fold(self.next, u64::min)
    }

    fn start_flush(&mut self, desk: &mut dyn Desk) {
        self.flushing = Some(self.written());
        self.flushed = self.next;
        self.flush_due = Some(desk.now() + FLUSH_AFTER);
        desk.submit(self.plan.destination, FLUSH, Operation::Flush);
    }

    fn flush_ended(&mut self, outcome: Outcome) {
        let covered = self.flushing.take().expect("it was begun");
        if !outcome.is_done() {
            self.flush_failed = true;
            self.fail(Failed::Flush(outcome));
        } else if !self.flush_failed {
            self.durable = self.durable.max(covered);
        }
    }

    fn fail(&mut self, why: Failed) {
        self.failed.get_or_insert(why);
    }

    /// A piece is finished, well or not.
    fn finish(&mut self, slot: u32) {
        let piece = &mut self.pieces[slot as usize];
        piece.step = Step::Idle;
        self.free.push(slot);
        self.requests += 1;
        self.bytes += piece.extent.length.0;
    }

    /// A piece is not at the destination.
    fn miss(&mut self, extent: Extent) {
        let offset = extent.offset.0;
        self.unwritten = Some(self.unwritten.map_or(offset, |first| first.min(offset)));
    }

    /// The source's bytes are here: write them, or read what the destination has.
    fn source_read(&mut self, desk: &mut dyn Desk, slot: u32, buffer: Buffer) {
        let destination = self.plan.destination;
        let piece = &mut self.pieces[slot as usize];
        let extent = piece.extent;
        if self.phase == Phase::Verifying {
            piece.step = Step::ReadBack;
            let buffer = piece.other.replace(buffer).expect("granted with the first");
            desk.submit(destination, slot, Operation::Read { extent, buffer });
            return;
        }
        piece.step = Step::Write;
        desk.submit(destination, slot, Operation::Write { extent, buffer, durable: false });
    }

    fn written_or_not(&mut self, slot: u32, outcome: Outcome) {
        let Piece { extent, step, .. } = self.pieces[slot as usize];
        self.finish(slot);
        match outcome {
            Outcome::Done if step == Step::Clear => self.cleared += extent.length.0,
            Outcome::Done => {}
            Outcome::NotDone(Failure::Unsupported) if step == Step::Clear => {
                // From here on holes are data.
                self.plan.holes.clear();
                self.uncleared.push(extent);
                self.bytes -= extent.length.0;
            }
            outcome => {
                self.miss(extent);
                self.fail(Failed::Write(extent.offset.0, outcome));
            }
        }
    }

    fn compare(&mut self, desk: &mut dyn Desk, slot: u32, outcome: Outcome, buffer: Buffer) {
        let piece = &mut self.pieces[slot as usize];
        let expected = piece.other.take().expect("the source was read before");
        let offset = piece.extent.offset.0;
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
        let quiet = self.is_idle() && self.flushing.is_none();
        let through = self.next >= self.end() && self.uncleared.is_empty();
        match self.phase {
            Phase::New => {
                self.phase = Phase::Measuring;
                self.begin(desk);
                // Nothing to copy, or told to stop: on to the flush.
                if self.is_idle() {
                    self.advance(desk);
                }
            }
            Phase::Measuring if quiet && (through || !self.goes_on()) => {
                self.phase = Phase::Draining;
                self.start_flush(desk);
            }
            Phase::Draining if quiet => {
                let copied = self.durable >= self.plan.size;
                assert!(copied || !through || self.failed.is_some(), "{self:?}");
                if copied && self.goes_on() && !self.plan.compare.is_empty() {
                    self.phase = Phase::Verifying;
                    (self.next, self.bytes) = (self.plan.compare.start, 0);
                    self.begin(desk);
                    self.advance(desk);
                } else {
                    self.phase = Phase::Done;
                    let compared = self.plan.compare.is_empty();
                    self.complete = copied && compared && self.failed.is_none();
                }
            }
            Phase::Verifying if quiet && (through || !self.goes_on()) => {
                self.phase = Phase::Done;
                self.complete = through && self.failed.is_none();
            }
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
            return self.flush_ended(outcome);
        }
        let Piece { extent, step, .. } = self.pieces[slot as usize];
        let is_wanted = self.is_wanted(extent);
        let piece = &mut self.pieces[slot as usize];
        match step {
            Step::ReadSource if outcome.is_done() && is_wanted => {
                self.source_read(desk, slot, buffer);
            }
            Step::ReadSource => {
                desk.give(&mut piece.account, buffer);
                if let Some(other) = piece.other.take() {
                    desk.give(&mut piece.other_account, other);
                }
                self.finish(slot);
                if self.phase != Phase::Verifying {
                    self.miss(extent);
                }
                if !outcome.is_done() {
                    self.fail(Failed::Read(extent.offset.0, outcome));
                }
            }
            Step::Write => {
                desk.give(&mut piece.account, buffer);
                self.written_or_not(slot, outcome);
            }
            Step::Clear => self.written_or_not(slot, outcome),
            Step::ReadBack => self.compare(desk, slot, outcome, buffer),
            Step::Idle => unreachable!("slot {slot} asked for nothing"),
        }
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        if matches!(self.phase, Phase::Measuring | Phase::Verifying) {
            self.begin(desk);
        }
        if self.phase == Phase::Measuring && self.flushing.is_none() && self.goes_on() {
            let due = *self.flush_due.get_or_insert(desk.now() + FLUSH_AFTER);
            let new = self.next - self.flushed;
            if new >= FLUSH_EVERY || (new > 0 && desk.now() >= due) {
                self.start_flush(desk);
            }
        }
        self.advance(desk);
        self.progress.tell(self.requests, self.bytes);
        self.progress.tell_durable(self.durable);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn phase(&self) -> Phase {
        self.phase
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Bench;

    fn plan(size: u64) -> Plan {
        Plan {
            source: Place(0),
            destination: Place(1),
            size,
            from: 0,
            holes: Vec::new(),
            piece: 64 << 10,
            depth: 4,
            compare: 0..size,
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
        let copier = run(&mut bench, Plan { compare: 0..0, ..plan(1 << 20) });
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
    fn holes_are_cleared_where_that_can_be_and_copied_where_not() {
        let size = 20 << 20;
        for clears in [true, false] {
            let mut bench = bench(size);
            bench.clears = clears;
            let holes = vec![Extent::new(0, 4096), Extent::new(1 << 20, 18 << 20)];
            for hole in &holes {
                bench.volumes[0][hole.offset.0 as usize..hole.end().0 as usize].fill(0);
            }
            bench.volumes[1].fill(7);
            let copier = run(&mut bench, Plan { holes, ..plan(size as u64) });
            assert!(copier.is_complete(), "{:?}", copier.failed());
            assert!(bench.volumes[0] == bench.volumes[1][..size]);
            let (cleared, writes) = if clears { ((18 << 20) + 4096, 32) } else { (0, 321) };
            assert_eq!((copier.cleared(), bench.writes), (cleared, writes));
        }
    }

    #[test]
    fn what_was_copied_before_is_not_copied_again() {
        let mut bench = bench(1 << 20);
        let plan = Plan { from: 1 << 19, compare: 1 << 19..1 << 20, ..plan(1 << 20) };
        let progress = Arc::<Progress>::default();
        let copier = bench.run(Copier::new(plan, progress.clone()));
        assert!(copier.is_complete());
        assert_eq!((bench.writes, copier.durable()), (8, 1 << 20));
        assert_eq!(progress.durable(), 1 << 20, "it is told");
        assert!(bench.volumes[1][..1 << 19].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_slow_copy_is_made_durable_time_and_again() {
        let mut bench = bench(4 << 20);
        bench.service_ns = 1_000_000_000;
        let copier = run(&mut bench, Plan { compare: 0..0, ..plan(4 << 20) });
        assert!(copier.is_complete());
        assert!(bench.flushes > 10, "{} flushes in 128 s", bench.flushes);
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
