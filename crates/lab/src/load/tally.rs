//! What a load counted: requests, bytes, latencies, errors.
//!
//! Units: nanoseconds, bytes. Latencies are kept in HDR histograms, three digits exact up to ten
//! minutes; longer ones count as ten minutes.

use std::time::Duration;

use block::{Instant, Outcome};
use hdrhistogram::Histogram;

/// The longest latency that is told apart.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Side {
    /// Their payloads.
    pub bytes: u64,
    /// Their latencies, in nanoseconds; its length is their number.
    pub latency: Histogram<u64>,
}

impl Side {
    fn new() -> Side {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
        Side { bytes: 0, latency: latency.expect("bounds that a histogram takes") }
    }

    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.latency.len()
    }

    pub(crate) fn add(&mut self, other: &Side) {
        self.bytes += other.bytes;
        self.latency.add(&other.latency).expect("histograms of the same bounds");
    }
}

/// The first request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// What was asked.
    pub operation: &'static str,
    /// Where, in bytes.
    pub offset: u64,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a load counted in its window.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Reads.
    pub reads: Side,
    /// Writes.
    pub writes: Side,
    /// Requests that failed, at any time.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<FirstError>,
    /// Turns that ended with a job that lacked memory or a free block.
    pub stalls: u64,
    pub(super) began: Instant,
    opened: Option<Instant>,
    closed: Option<Instant>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            reads: Side::new(),
            writes: Side::new(),
            errors: 0,
            first_error: None,
            stalls: 0,
            began: Instant::ZERO,
            opened: None,
            closed: None,
        }
    }
}

impl Tally {
    pub(super) fn open(&mut self, now: Instant) {
        self.opened = Some(now);
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.closed = Some(now);
    }

    #[inline]
    pub(super) fn count(&mut self, write: bool, bytes: u64, latency_ns: u64) {
        let side = if write { &mut self.writes } else { &mut self.reads };
        side.bytes += bytes;
        side.latency.saturating_record(latency_ns);
    }

    #[cold]
    pub(super) fn fail(&mut self, operation: &'static str, offset: u64, outcome: Outcome) {
        self.errors += 1;
        self.first_error.get_or_insert(FirstError { operation, offset, outcome });
    }

    /// How long the window was open.
    pub fn window(&self) -> Duration {
        match (self.opened, self.closed) {
            (Some(opened), Some(closed)) => closed.since(opened),
            _ => Duration::ZERO,
        }
    }

    /// Requests in the window.
    pub fn requests(&self) -> u64 {
        self.reads.requests() + self.writes.requests()
    }

    /// Adds what another shard counted in the same window.
    pub fn add(&mut self, other: &Tally) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.errors += other.errors;
        self.stalls += other.stalls;
        self.first_error = self.first_error.or(other.first_error);
        if self.window() < other.window() {
            (self.opened, self.closed) = (other.opened, other.closed);
        }
    }
}
