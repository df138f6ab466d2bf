//! The load: jobs that ask a volume for blocks, and the clock that decides what counts.
//!
//! *Closed loop*: each job keeps `depth` requests in flight. *Open loop* (`rate`): each job has a
//! schedule, even or drawn ([`Arrivals`]), and a request that finds no free slot leaves late; its
//! latency counts from the scheduled start either way, so a stall of the target is seen by every
//! request that was due in it and not only by those that happened to be in flight ("coordinated
//! omission", Tene). Latency ends when the completion reaches the job.
//!
//! ```text
//!   Warming --warm_up--> Measuring --time--> Draining --(verify: flush)--> Verifying --> Done
//! ```
//!
//! With `verify` jobs keep to parts of their own and never have two requests on one block in
//! flight, so what a read must see is known exactly; every read is checked, and at the end each
//! block that was written is read back. A load ends when its time is over, or once each job has asked
//! for as many bytes as it may. Loads that work beside each other on a shard are [`Several`]. Units:
//! bytes, nanoseconds of the shard clock. Errors: the first is kept and all are counted; a load that
//! sees little else ends early. In the steady state nothing is allocated.

mod due;
mod ledger;
mod several;
mod tally;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use block::{Account, Buffer, Extent, Instant, Operation, Outcome};

use crate::guest::{Desk, Guest, Phase, Place, Progress};
use crate::stamp;
use crate::workload::{Draw, Kind, Part, Sharing, Stream, Workload};
use due::Due;
use ledger::{Judgement, Ledger};
pub use ledger::{LEDGER_BLOCKS_MAX, Mismatch, Verified};
pub use several::Several;
pub(crate) use tally::histogram;
pub use tally::{FirstError, Looked, Second, Side, Tally};
pub use windows::WindowLatencies;

/// How long it works at most without looking whether it is to stop.
const BEAT: Duration = Duration::from_secs(1);
/// Errors after which a load that has more errors than successes ends.
const ERRORS_ENOUGH: u64 = 100;

/// What a load does; the same value for every shard that carries a part of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which requests.
    pub workload: Workload,
    /// Jobs of all shards together.
    pub jobs: u32,
    /// Requests that a job has in flight at most.
    pub depth: u32,
    /// Requests a second of all jobs together: an open loop.
    pub rate: Option<u64>,
    /// How those of an open loop are spread.
    pub arrivals: Arrivals,
    /// How long nothing counts at first.
    pub warm_up: Duration,
    /// How long it counts then.
    pub time: Duration,
    /// How many bytes a job asks for at most, those of the warm-up included; once all jobs did, it ends.
    pub bytes_max: Option<u64>,
    /// Whether each write is to be durable when it is completed.
    pub sync: bool,
    /// After how many writes a job flushes.
    pub fsync: Option<u32>,
    /// Whether to check what is read.
    pub verify: bool,
    /// Whether every byte of a write is its own, also where nothing is checked; else its first ones.
    pub whole: bool,
    /// Marks what is written, and decides what is drawn ...
    pub seed: u64,
    /// ... unless that is to be the same each time.
    pub draws: Option<u64>,
}

/// When requests of an open loop are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At even distances.
    #[default]
    Fixed,
    /// Independently of each other, so many a second on average: distances are exponential.
    Poisson,
}

impl Plan {
    /// Bytes that are worked on: fewer than the workload's where a record is kept of each block.
    pub fn range_bytes(&self) -> u64 {
        let Workload { range_bytes, block_bytes, .. } = self.workload;
        match self.verify {
            true => range_bytes.min(LEDGER_BLOCKS_MAX * u64::from(block_bytes)),
            false => range_bytes,
        }
    }

    /// Jobs that there are: those that verify need a block of their own each.
    pub fn jobs_carried(&self) -> u32 {
        let is_cut = self.verify && !matches!(self.workload.sharing, Sharing::Steps(_));
        let blocks = self.range_bytes() / u64::from(self.workload.block_bytes);
        if is_cut { u64::from(self.jobs).min(blocks) as u32 } else { self.jobs }
    }
}

/// One shard's part of a load.
#[derive(Debug)]
pub struct Load {
    plan: Plan,
    place: Place,
    phase: Phase,
    /// When the present phase ends; of Warming and Measuring. Zero before them, past behind them.
    phase_ends: Instant,
    jobs: Vec<Job>,
    /// The requests that may be in flight: `depth` for each job, job by job.
    slots: Vec<Slot>,
    in_flight: u32,
    /// Some job could not go on, for want of memory or of a block that is free.
    stalled: bool,
    flushing: bool,
    scratch: Vec<u8>,
    verified: Verified,
    tally: Tally,
    progress: Arc<Progress>,
    /// That came back, and their bytes.
    requests: u64,
    bytes: u64,
    /// Jobs that asked for all that they may.
    spent: usize,
    /// The last turn.
    turned: Instant,
}

#[derive(Debug)]
struct Job {
    part: Part,
    stream: Stream,
    /// Drawn, but not yet submitted.
    held: Option<Draw>,
    free: Vec<u32>,
    ledger: Option<Ledger>,
    /// Writes since the last flush.
    unflushed: u32,
    /// Bytes that it may still ask for.
    left: u64,
    due: Due,
}

/// A request that may be in flight.
#[derive(Debug, Default)]
struct Slot {
    began: Instant,
    offset: u64,
    bytes: u32,
    job: u32,
    kind: Kind,
    account: Account,
}

impl Load {
    /// The jobs `first`, `first + step`, and so on of the plan, for the volume `place`. The
    /// workload's range must hold at least one block.
    pub fn new(
        mut plan: Plan,
        place: Place,
        first: u32,
        step: usize,
        progress: Arc<Progress>,
    ) -> Load {
        plan.workload.range_bytes = plan.range_bytes();
        let range_bytes = plan.workload.range_bytes;
        assert!(plan.workload.blocks() > 0, "a range of {range_bytes} bytes");
        plan.jobs = plan.jobs_carried();
        let numbers = (first..plan.jobs).step_by(step.max(1));
        let jobs: Vec<Job> = numbers.map(|number| Job::new(&plan, number)).collect();
        let mut load = Load {
            place,
            phase: Phase::New,
            phase_ends: Instant::ZERO,
            slots: Vec::with_capacity(jobs.len() * plan.depth as usize),
            in_flight: 0,
            stalled: false,
            flushing: false,
            scratch: vec![0; plan.workload.request_bytes_max() as usize],
            verified: Verified::default(),
            tally: Tally::default(),
            progress,
            requests: 0,
            bytes: 0,
            spent: 0,
            turned: Instant::ZERO,
            jobs,
            plan,
        };
        for (index, job) in load.jobs.iter_mut().enumerate() {
            for _ in 0..load.plan.depth {
                job.free.push(load.slots.len() as u32);
                load.slots.push(Slot { job: index as u32, ..Slot::default() });
            }
            // What is freed last is taken first; begin in order.
            job.free.reverse();
        }
        load
    }

    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What checking came to; all zeros without `verify`.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Moves on to the phase that the time asks for, if it does.
    #[inline]
    fn advance(&mut self, now: Instant) {
        let is_same = now < self.phase_ends && self.tally.errors < ERRORS_ENOUGH;
        if !is_same || self.progress.is_stopped() {
            self.move_on(now);
        }
    }

    /// Moves on, if time, errors or whoever watches ask for it.
    #[cold]
    fn move_on(&mut self, now: Instant) {
        if self.phase == Phase::New {
            self.phase = Phase::Warming;
            self.phase_ends = now + self.plan.warm_up;
            self.tally.began = now;
        }
        if self.phase == Phase::Warming && now >= self.phase_ends {
            self.phase = Phase::Measuring;
            self.phase_ends = now + self.plan.time;
            self.tally.open(now, self.plan.time);
        }
        let hopeless =
            || self.tally.errors >= ERRORS_ENOUGH && self.tally.errors > self.requests / 2;
        if self.phase < Phase::Draining
            && ((self.phase == Phase::Measuring && now >= self.phase_ends)
                || self.progress.is_stopped()
                || (self.spent == self.jobs.len() && self.in_flight == 0)
                || hopeless())
        {
            self.phase = Phase::Draining;
            self.tally.close(now);
            self.progress.tell_measured(&self.tally, &self.verified);
        }
    }

    /// Starts what job `index` may start.
    #[inline]
    fn start(&mut self, desk: &mut dyn Desk, index: usize) {
        match self.phase {
            Phase::Warming | Phase::Measuring => self.issue(desk, index),
            Phase::Verifying => self.read_back(desk, index),
            Phase::New | Phase::Draining | Phase::Done => {}
        }
    }

    #[inline]
    fn issue(&mut self, desk: &mut dyn Desk, index: usize) {
        let now = desk.now();
        while !self.jobs[index].free.is_empty() {
            let job = &mut self.jobs[index];
            if job.left == 0 {
                return;
            }
            let began = match self.plan.rate {
                None => now,
                Some(rate) => job.due.at(&self.plan, self.tally.began, rate),
            };
            if began > now {
                return;
            }
            if self.plan.fsync.is_some_and(|every| job.unflushed >= every) {
                self.submit_flush(desk, index, now);
                continue;
            }
            let Some(draw) = job.next_draw() else {
                self.stalled = true;
                return;
            };
            if !self.submit(desk, index, draw, began) {
                return;
            }
            let job = &mut self.jobs[index];
            job.due.advance(&self.plan);
            job.left = job.left.saturating_sub(u64::from(draw.bytes));
            self.spent += usize::from(job.left == 0);
            job.unflushed += u32::from(draw.kind == Kind::Write);
            if let Some(ledger) = &mut job.ledger {
                ledger.begin(draw.block);
            }
        }
    }

    /// Submits a job's block in a slot that is free; holds it, and returns false, where memory is
    /// short.
    #[inline]
    fn submit(&mut self, desk: &mut dyn Desk, index: usize, draw: Draw, began: Instant) -> bool {
        let Draw { kind, bytes: length, block } = draw;
        let Workload { offset_bytes, block_bytes, .. } = self.plan.workload;
        let job = &mut self.jobs[index];
        let offset = offset_bytes + (job.part.first + block) * u64::from(block_bytes);
        let number = *job.free.last().expect("the caller saw a free slot");
        let slot = &mut self.slots[number as usize];
        let extent = Extent::new(offset, u64::from(length));
        // Each operation is made where it is submitted: in one variable, all of them would be moved
        // once more, as soon as they are written.
        let place = self.place;
        if kind == Kind::Trim {
            self.occupy(number, kind, extent, began);
            desk.submit(place, number, Operation::Discard { extents: vec![extent] });
            return true;
        }
        let Some(buffer) = desk.take(&mut slot.account, length, (offset % 4096) as u32) else {
            (job.held, self.stalled) = (Some(draw), true);
            return false;
        };
        self.occupy(number, kind, extent, began);
        if kind == Kind::Read {
            desk.submit(place, number, Operation::Read { extent, buffer });
        } else {
            let mut buffer = buffer;
            self.fill(desk, index, draw.block, offset, &mut buffer);
            let durable = self.plan.sync;
            desk.submit(place, number, Operation::Write { extent, buffer, durable });
        }
        true
    }

    /// Takes a slot, the one that its job freed last, for a request that is submitted now.
    #[inline]
    fn occupy(&mut self, number: u32, kind: Kind, extent: Extent, began: Instant) {
        let slot = &mut self.slots[number as usize];
        (slot.began, slot.offset, slot.kind) = (began, extent.offset.0, kind);
        slot.bytes = extent.length.0 as u32;
        self.jobs[slot.job as usize].free.pop();
        self.in_flight += 1;
    }

    /// Puts into a buffer what is to be written to a job's block, at `offset`.
    fn fill(
        &mut self,
        desk: &mut dyn Desk,
        index: usize,
        block: u64,
        offset: u64,
        buffer: &mut Buffer,
    ) {
        let memory = desk.memory();
        let generation = match &self.jobs[index].ledger {
            Some(ledger) => Some(ledger.generation(block) + 1),
            None => self.plan.whole.then_some(self.requests),
        };
        if let Some(generation) = generation {
            let data = &mut self.scratch[..buffer.len() as usize];
            stamp::fill(data, offset, generation, self.plan.seed);
            memory.write(buffer, 0, data);
        } else {
            // Enough to make each write's data its own; the rest is what the pages held.
            memory.materialize(buffer);
            let header = stamp::header(offset, self.requests, self.plan.seed);
            memory.write(buffer, 0, &header);
        }
    }

    /// Flushes what a job wrote, in a slot that is free.
    fn submit_flush(&mut self, desk: &mut dyn Desk, index: usize, began: Instant) {
        let job = &mut self.jobs[index];
        let number = job.free.pop().expect("the caller saw a free slot");
        job.unflushed = 0;
        let slot = &mut self.slots[number as usize];
        (slot.began, slot.offset, slot.bytes, slot.kind) = (began, 0, 0, Kind::Flush);
        self.in_flight += 1;
        desk.submit(self.place, number, Operation::Flush);
    }

    /// Reads back the next blocks that were written, as many as may be in flight.
    fn read_back(&mut self, desk: &mut dyn Desk, index: usize) {
        // With a record of each block, requests are of one size.
        let bytes = self.plan.workload.block_bytes;
        while !self.jobs[index].free.is_empty() && !self.progress.is_stopped() {
            let job = &mut self.jobs[index];
            let written = || {
                let block = job.ledger.as_mut()?.next_written()?;
                Some(Draw { kind: Kind::Read, bytes, block })
            };
            let Some(draw) = job.held.take().or_else(written) else { return };
            let now = desk.now();
            if !self.submit(desk, index, draw, now) {
                return;
            }
        }
    }

    /// Once all is back: flushes, begins to read back, or is done.
    fn drained(&mut self, desk: &mut dyn Desk) {
        // A load without a job has no slot for a flush either.
        let read_back = self.plan.verify && self.plan.workload.writes() && !self.jobs.is_empty();
        match self.phase {
            Phase::Draining if read_back && !self.flushing && !self.progress.is_stopped() => {
                // A read-back that the target's cache answers is worth less.
                self.flushing = true;
                self.in_flight += 1;
                desk.submit(self.place, 0, Operation::Flush);
            }
            Phase::Draining if self.flushing => {
                self.phase = Phase::Verifying;
                self.jobs.iter_mut().for_each(|job| job.held = None);
                self.start_all(desk);
                if self.in_flight == 0 {
                    self.phase = Phase::Done;
                }
            }
            Phase::Draining | Phase::Verifying => self.phase = Phase::Done,
            Phase::New | Phase::Warming | Phase::Measuring | Phase::Done => {}
        }
    }

    fn start_all(&mut self, desk: &mut dyn Desk) {
        self.stalled = false;
        for index in 0..self.jobs.len() {
            self.start(desk, index);
        }
    }

    /// Looks whether a read found anything.
    #[cold]
    fn look(&mut self, desk: &mut dyn Desk, number: u32, outcome: Outcome, buffer: &Buffer) {
        if outcome.is_done() {
            let found = &mut self.scratch[..self.slots[number as usize].bytes as usize];
            desk.memory().read(buffer, 0, found);
            self.tally.looked.reads += 1;
            self.tally.looked.zeros += u64::from(found.iter().all(|byte| *byte == 0));
        }
    }

    /// Compares what came with what must be there.
    fn check(&mut self, desk: &mut dyn Desk, number: u32, outcome: Outcome, buffer: &Buffer) {
        let slot = &self.slots[number as usize];
        let job = &mut self.jobs[slot.job as usize];
        let Some(ledger) = &mut job.ledger else { return };
        let Workload { offset_bytes, block_bytes, .. } = self.plan.workload;
        let block = (slot.offset - offset_bytes) / u64::from(block_bytes) - job.part.first;
        if slot.kind == Kind::Write {
            ledger.end_write(block, outcome);
            return;
        }
        ledger.end_read(block);
        if !outcome.is_done() {
            return;
        }
        desk.memory().read(buffer, 0, &mut self.scratch);
        let finding = stamp::examine(&self.scratch, slot.offset);
        let judgement = ledger.judge(block, finding, self.plan.seed, self.plan.workload.writes());
        match judgement {
            Judgement::Right => self.verified.checked += 1,
            Judgement::Unknown => self.verified.unchecked += 1,
            Judgement::Wrong { expected } => {
                self.verified.wrong += 1;
                let offset = slot.offset;
                self.verified.first.get_or_insert(Mismatch { offset, expected, finding });
            }
        }
    }
}

impl Guest for Load {
    #[inline]
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        number: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        let now = desk.now();
        self.in_flight -= 1;
        self.advance(now);
        if self.flushing && self.phase == Phase::Draining {
            // The flush before reading back.
            if !outcome.is_done() {
                self.tally.fail(now, Kind::Flush, 0, outcome);
            }
            return;
        }
        let kind = self.slots[number as usize].kind;
        if self.plan.verify && kind != Kind::Flush {
            self.check(desk, number, outcome, &buffer);
        } else if kind == Kind::Read && self.requests.is_multiple_of(LOOK_EVERY) {
            self.look(desk, number, outcome, &buffer);
        }
        let slot = &mut self.slots[number as usize];
        if !buffer.is_empty() {
            desk.give(&mut slot.account, buffer);
        }
        let (index, bytes) = (slot.job as usize, u64::from(slot.bytes));
        self.requests += u64::from(kind != Kind::Flush);
        self.bytes += bytes;
        if !outcome.is_done() {
            self.tally.fail(now, kind, slot.offset, outcome);
        } else if self.phase == Phase::Measuring {
            let latency = now.0.saturating_sub(slot.began.0);
            self.tally.count(now, kind, bytes, latency);
        }
        self.jobs[index].free.push(number);
        self.start(desk, index);
        if self.in_flight == 0 && self.spent == self.jobs.len() {
            self.move_on(now);
        }
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        let fresh = self.phase == Phase::New;
        self.turned = desk.now();
        self.advance(self.turned);
        let windows = self.progress.windows();
        if windows != self.tally.windows_begun() {
            self.tally.begin_window(windows);
        }
        if fresh || self.stalled || self.plan.rate.is_some() {
            self.start_all(desk);
        }
        if self.stalled {
            self.tally.stalls += 1;
        }
        if self.in_flight == 0 && self.phase >= Phase::Draining {
            self.drained(desk);
        }
        self.progress.tell(self.requests, self.bytes);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.phase >= Phase::Draining {
            return None;
        }
        let rate = self.plan.rate;
        let can_ask = |job: &&Job| rate.is_some() && job.left > 0 && !job.free.is_empty();
        let waiting = self.jobs.iter().filter(can_ask);
        let due = waiting.map(|job| job.due.at(&self.plan, self.tally.began, rate.unwrap_or(1)));
        due.chain([self.phase_ends, self.turned + BEAT]).min()
    }

    fn phase(&self) -> Phase {
        self.phase
    }
}

impl Job {
    fn new(plan: &Plan, number: u32) -> Job {
        let part = plan.workload.part(number, plan.jobs, plan.verify);
        // Neighbouring seeds of SplitMix64 give unrelated streams.
        let shared = plan.draws.unwrap_or(plan.seed);
        let seed = shared.wrapping_add(u64::from(number));
        Job {
            part,
            stream: Stream::new(&plan.workload, part, seed, !shared),
            held: None,
            free: Vec::with_capacity(plan.depth as usize),
            ledger: plan.verify.then(|| Ledger::new(part.count)),
            unflushed: 0,
            left: plan.bytes_max.unwrap_or(u64::MAX),
            due: Due::new(plan, number, seed),
        }
    }

    /// The next request, unless its block is in use.
    #[inline]
    fn next_draw(&mut self) -> Option<Draw> {
        let Some(ledger) = &self.ledger else {
            return Some(self.held.take().unwrap_or_else(|| self.stream.draw()));
        };
        // With a ledger, a block in use is passed over at random and waited for in order.
        for _ in 0..DRAWS {
            let draw = self.held.take().unwrap_or_else(|| self.stream.draw());
            if !ledger.is_busy(draw.block) {
                return Some(draw);
            }
            if !self.stream.is_random() {
                self.held = Some(draw);
                return None;
            }
        }
        None
    }
}

/// So many requests lie between two of whose reads it is looked at what they found.
const LOOK_EVERY: u64 = 256;
/// Tries to find a block that is not in use.
const DRAWS: u32 = 16;

#[cfg(test)]
mod tests;
