//! Any guest, by value: so that a shard can carry one without a box and hand it back as what it was.

use block::{Buffer, Instant, Outcome};

use crate::copier::Copier;
use crate::guest::{Desk, Guest, Phase};
use crate::load::Load;
use crate::probe::Probe;

/// A guest.
#[derive(Debug)]
pub enum Task {
    /// Is the disk blank?
    Probe(Probe),
    /// Measures.
    Load(Box<Load>),
    /// Copies.
    Copy(Box<Copier>),
}

impl Task {
    #[inline]
    fn guest(&self) -> &dyn Guest {
        match self {
            Task::Probe(guest) => guest,
            Task::Load(guest) => &**guest,
            Task::Copy(guest) => &**guest,
        }
    }

    #[inline]
    fn guest_mut(&mut self) -> &mut dyn Guest {
        match self {
            Task::Probe(guest) => guest,
            Task::Load(guest) => &mut **guest,
            Task::Copy(guest) => &mut **guest,
        }
    }
}

impl Guest for Task {
    #[inline]
    fn handle_completion(
        &mut self,
        desk: &mut dyn Desk,
        slot: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        self.guest_mut().handle_completion(desk, slot, outcome, buffer);
    }

    fn handle_turn(&mut self, desk: &mut dyn Desk) {
        self.guest_mut().handle_turn(desk);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.guest().poll_timeout()
    }

    fn phase(&self) -> Phase {
        self.guest().phase()
    }
}
