//! Loads that work on one shard at the same time, each with a plan, a window and a tally of its own.
//!
//! They share the clock and the disk, and nothing else. Slots of each are numbered behind those of
//! the loads before it. It warms up until the first of them counts, measures until none does that
//! any more, and is done when all are. Units: as in [`super`]. Errors: those of the loads.

use block::{Account, Buffer, Instant, Memory, Operation, Outcome};

use super::Load;
use crate::guest::{Desk, Guest, Phase, Place};

/// Several loads.
#[derive(Debug)]
pub struct Several {
    loads: Vec<Load>,
    /// The first slot of each.
    firsts: Vec<u32>,
    phase: Phase,
}

impl Several {
    pub fn new(loads: Vec<Load>) -> Several {
        let mut next = 0;
        let first = |load: &Load| {
            let first = next;
            next += load.slots.len() as u32;
            first
        };
        Several { firsts: loads.iter().map(first).collect(), phase: Phase::New, loads }
    }

    /// The loads, in the order in which they were given.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Where all of them stand together; never where they stood before.
    fn phase_now(&self) -> Phase {
        let phases = || self.loads.iter().map(|load| load.phase);
        let least = phases().min().unwrap_or(Phase::Done);
        let now = match phases().any(|phase| phase == Phase::Measuring) {
            true => Phase::Measuring,
            false => least,
        };
        self.phase.max(now)
    }
}

impl Guest for Several {
    #[inline]
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        let index = self.firsts.partition_point(|first| *first <= slot) - 1;
        let first = self.firsts[index];
        let mut behind = Behind { desk, first };
        self.loads[index].handle_completion(&mut behind, slot - first, outcome, buffer);
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        for (load, first) in self.loads.iter_mut().zip(&self.firsts) {
            if load.phase != Phase::Done {
                load.handle_turn(&mut Behind { desk, first: *first });
            }
        }
        self.phase = self.phase_now();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.loads.iter().filter_map(Load::poll_timeout).min()
    }

    fn phase(&self) -> Phase {
        self.phase
    }
}

/// The desk, as one of several loads sees it: with slots of its own.
struct Behind<'d> {
    desk: &'d mut dyn Desk,
    first: u32,
}

impl Desk for Behind<'_> {
    #[inline]
    fn now(&self) -> Instant {
        self.desk.now()
    }

    #[inline]
    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.desk.take(account, length, phase)
    }

    #[inline]
    fn give(&mut self, account: &mut Account, buffer: Buffer) {
        self.desk.give(account, buffer);
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.desk.memory()
    }

    #[inline]
    fn submit(&mut self, place: Place, slot: u32, operation: Operation) {
        self.desk.submit(place, self.first + slot, operation);
    }
}
