//! Requests in flight: what a volume remembers of a request until its completion, and how the
//! completions of a request's pieces become one.

use block::{Buffer, Extent, Instant, Outcome, Slot, Ticket};
use contract::DiskId;

use crate::message::HoldId;

/// A request, or a piece of one, that is in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Who asked the volume; of a piece: nobody.
    pub(crate) ticket: Ticket,
    /// The volume's number.
    pub(crate) volume: u32,
    /// The disk that was asked; of a request in pieces: the first.
    pub(crate) disk: DiskId,
    /// The bytes of the volume that it concerns.
    pub(crate) extent: Extent,
    /// Counts up with every flight, to tell what was in flight when a hold began.
    pub(crate) number: u64,
    /// When it was submitted.
    pub(crate) begun: Instant,
    /// Whether it may change data: holds wait for those.
    pub(crate) changes_data: bool,
    /// Whether it promises durability: then its failure protects the disk.
    pub(crate) durable: bool,
    pub(crate) what: What,
}

/// The kinds of flights.
#[derive(Debug)]
pub(crate) enum What {
    /// A request that one disk answers.
    Whole,
    /// A piece of a request.
    Piece {
        /// The request.
        parent: Slot,
        /// Which piece, from 0.
        index: u32,
    },
    /// A request in pieces.
    Joined(Box<Join>),
    /// A compare-and-write, which sends requests of its own.
    CompareAndWrite(Box<CompareAndWrite>),
}

/// The completions of pieces, on their way to become one.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) left: u32,
    pub(crate) outcome: Outcome,
    /// The payloads that came back, by piece.
    pub(crate) parts: Vec<Buffer>,
    /// Where each piece begins in the payload.
    pub(crate) starts: Vec<u32>,
}

impl Join {
    /// Waits for as many pieces as are pushed.
    pub(crate) fn new() -> Join {
        Join { left: 0, outcome: Outcome::Done, parts: Vec::new(), starts: Vec::new() }
    }

    /// One more piece, which begins `start` bytes into the payload; returns its index.
    pub(crate) fn push(&mut self, start: u32) -> u32 {
        self.left += 1;
        self.parts.push(Buffer::empty());
        self.starts.push(start);
        (self.starts.len() - 1) as u32
    }

    /// A piece came back. Returns the whole, once all have.
    pub(crate) fn came_back(
        &mut self,
        index: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) -> Option<(Outcome, Buffer)> {
        let index = index as usize;
        self.parts[index] = buffer;
        self.outcome = self.outcome.worse(outcome.of_part(self.starts[index]));
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let mut whole = Buffer::empty();
        for part in self.parts.drain(..) {
            whole.append(part);
        }
        Some((self.outcome, whole))
    }
}

/// A compare-and-write under its hold.
#[derive(Debug)]
pub(crate) struct CompareAndWrite {
    pub(crate) hold: HoldId,
    pub(crate) expected: Box<Buffer>,
    pub(crate) replacement: Buffer,
    pub(crate) step: Step,
}

/// How far a compare-and-write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for its hold.
    Holding,
    Comparing,
    Writing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miscompare_counts_from_the_start_of_the_payload() {
        let mut join = Join::new();
        join.push(0);
        join.push(4096);
        assert!(join.came_back(1, Outcome::Miscompare(7), Buffer::reserved(4096, 0)).is_none());
        let (outcome, whole) = join.came_back(0, Outcome::Done, Buffer::reserved(4096, 0)).unwrap();
        assert_eq!((outcome, whole.len()), (Outcome::Miscompare(4103), 8192));
    }
}
