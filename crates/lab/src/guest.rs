//! The contract between a lab machine and the shard that carries it.
//!
//! The shard calls [`Guest::handle_completion`] for each answer and then [`Guest::handle_turn`]
//! once, at the end of every turn in which anything happened; requests submitted at the [`Desk`]
//! leave when the call returns. Times are the shard clock's. A guest that is in [`Phase::Done`] has
//! nothing in flight and no buffers, and is handed back to whoever sent it. Errors: none here; what
//! requests came to is the guest's business.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use block::{Account, Buffer, Instant, Memory, Operation, Outcome};

use crate::load::{Tally, Verified};

/// One of the volumes that a guest was sent to, by its number in the order in which they were
/// named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u8);

/// What a guest may do while it is called.
pub trait Desk {
    /// The time of this turn.
    fn now(&self) -> Instant;

    /// A reserved buffer of `length` bytes at `phase`, charged to `account`, or `None` where memory
    /// is short at present.
    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer>;

    /// Takes a buffer back.
    fn give(&mut self, account: &mut Account, buffer: Buffer);

    /// The memory behind buffers.
    fn memory(&mut self) -> &mut dyn Memory;

    /// Asks a volume; exactly one completion comes for `slot`.
    fn submit(&mut self, place: Place, slot: u32, operation: Operation);
}

/// A machine of the lab.
pub trait Guest {
    /// An answer, with the payload that the request had.
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    );

    /// The end of a turn, or the moment of [`poll_timeout`](Self::poll_timeout): starts what may be
    /// started.
    fn handle_turn(&mut self, desk: &mut dyn Desk);

    /// When it wants to be called at the latest.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Where it stands.
    fn phase(&self) -> Phase;
}

/// Where a guest stands. Guests pass through them in this order and may leave some out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not called yet.
    New,
    /// Works, but nothing counts yet.
    Warming,
    /// Works, and it counts.
    Measuring,
    /// Begins nothing new; waits for what is in flight, or flushes.
    Draining,
    /// Reads back what it wrote.
    Verifying,
    /// Has nothing in flight.
    Done,
}

/// What a guest tells while it works, and the wish that it end early; shared with whoever watches.
#[derive(Debug, Default)]
pub struct Progress {
    requests: AtomicU64,
    bytes: AtomicU64,
    durable: AtomicU64,
    /// How many windows began, for who counts by windows.
    windows: AtomicU64,
    stop: AtomicBool,
    measured: OnceLock<(Tally, Verified)>,
}

impl Progress {
    /// Requests that came back so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Bytes of their payloads.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Of a copy, the end of what is durable at its destination.
    pub fn durable(&self) -> u64 {
        self.durable.load(Relaxed)
    }

    /// A window begins, and the one before it is over: a load keeps the latencies of the last few
    /// apart ([`Tally::last_windows`]).
    pub fn begin_window(&self) {
        self.windows.fetch_add(1, Relaxed);
    }

    pub(crate) fn windows(&self) -> u64 {
        self.windows.load(Relaxed)
    }

    /// Asks the guest to begin nothing new.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(crate) fn tell(&self, requests: u64, bytes: u64) {
        self.requests.store(requests, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }

    /// Of a load whose window is over: what it counted there, whatever comes of the requests that
    /// it waits for.
    pub fn measured(&self) -> Option<&(Tally, Verified)> {
        self.measured.get()
    }

    pub(crate) fn tell_measured(&self, tally: &Tally, verified: &Verified) {
        let _ = self.measured.set((tally.clone(), *verified));
    }

    pub(crate) fn tell_durable(&self, durable: u64) {
        self.durable.store(durable, Relaxed);
    }
}
