//! Frames that came before others that were sent earlier, and wait for them.
//!
//! ```text
//!   expected 5:   7 comes and waits,  5 comes and passes,  6 comes and passes, and 7 with it
//! ```
//! At most [`EARLY_MAX`] frames wait for [`EARLY_WAIT`] each; then those before them are given up, and
//! are late if they come after all. What waits is a copy: a tunnel whose frames keep their order has
//! none, and each that comes early costs an allocation.
//! Units: frames; moments on the shard's clock. No errors. Spec: RFC 4385 clause 4.2 and RFC 3931
//! clause 4.6.1 permit it; how many and how long is ours.

use std::collections::VecDeque;

use block::{Instant, planted};
use wire::sequence::{Arrival, Numbers};

use crate::limits::{EARLY_MAX, EARLY_WAIT};

/// A frame that came early.
#[derive(Debug)]
struct Early {
    number: u32,
    /// When it waits no longer.
    until: Instant,
    frame: Vec<u8>,
}

/// The frames that wait, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    early: VecDeque<Early>,
    /// They wait for nothing any more: their sender counts otherwise now.
    is_over: bool,
}

impl Waiting {
    /// A frame that is ahead of the expected one waits; `false`: one with this number does already.
    pub(crate) fn put(
        &mut self,
        now: Instant,
        (numbers, expected): (Numbers, u32),
        number: u32,
        frame: &[u8],
    ) -> bool {
        let distance = |number| match numbers.arrival(Some(number), expected) {
            Arrival::Ahead(missing) => missing,
            _ => 0,
        };
        let is_before = |one: &Early| {
            distance(one.number) < distance(number) || planted("early-frames-are-not-sorted")
        };
        let place = self.early.partition_point(is_before);
        if self.early.get(place).is_some_and(|one| one.number == number) {
            return false;
        }
        let early = Early { number, until: now + EARLY_WAIT, frame: frame.to_vec() };
        self.early.insert(place, early);
        true
    }

    /// The next frame that waits no longer, with its number if that still means something.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        expected: Option<u32>,
    ) -> Option<(Option<u32>, Vec<u8>)> {
        let first = self.early.front()?;
        let is_due = self.is_over
            || expected == Some(first.number)
            || self.early.len() > EARLY_MAX
            || self.poll_timeout().is_some_and(|at| at <= now);
        let first = if is_due { self.early.pop_front()? } else { return None };
        let number = (!self.is_over).then_some(first.number);
        self.is_over &= !self.early.is_empty();
        Some((number, first.frame))
    }

    /// What waits is delivered next, whatever comes.
    pub(crate) fn end(&mut self) {
        self.is_over = !self.early.is_empty();
    }

    /// Nothing waits any more, and what did goes nowhere. Returns how many frames did.
    pub(crate) fn forget(&mut self) -> u64 {
        let frames = self.early.len() as u64;
        (self.early, self.is_over) = (VecDeque::new(), false);
        frames
    }

    /// When the next frame waits no longer, if nothing comes until then.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.early.iter().map(|one| one.until).min()
    }
}
