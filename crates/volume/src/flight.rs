//! Requests in flight: what a volume remembers of a request until its completion.

use block::{Buffer, Extent, Instant, Join, Slot, Ticket, VolumeId};
use contract::DiskId;

use crate::latency::Class;
use crate::message::HoldId;

/// A request, or a piece of one, that is in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Who asked the volume; of a piece: nobody.
    pub(crate) ticket: Ticket,
    pub(crate) volume: VolumeId,
    /// The disk that was asked; of a request in pieces: the first.
    pub(crate) disk: DiskId,
    /// The bytes of the volume that it concerns; of a piece: those of its disk, if it has a place.
    pub(crate) extent: Extent,
    /// Counts up with every flight, to tell what was in flight when a hold began.
    pub(crate) number: u64,
    /// When it was submitted.
    pub(crate) begun: Instant,
    /// Whether it may change data: holds wait for those.
    pub(crate) changes_data: bool,
    /// Whether it promises durability: then its failure protects the disk.
    pub(crate) durable: bool,
    pub(crate) class: Class,
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
        /// Where in the request's payload it begins.
        start: u32,
    },
    /// A request in pieces.
    Joined(Box<Join>),
    /// A compare-and-write, which sends requests of its own.
    CompareAndWrite(Box<CompareAndWrite>),
}

impl Flight {
    /// What a compare-and-write, which alone holds and has steps, is at.
    pub(crate) fn compare_and_write(&mut self) -> &mut CompareAndWrite {
        match &mut self.what {
            What::CompareAndWrite(work) => work,
            other => unreachable!("{other:?} has no steps"),
        }
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
