//! The two words of the house: a [`Request`] goes down, exactly one [`Completion`] comes up.
//!
//! Units: extents are bytes of the disk or volume that is asked. Errors: an [`Outcome`] tells
//! *done* from *not done* from *unknown*, and never claims more than is known. The payload of a
//! request comes back with its completion, whatever the outcome, because it belongs to a pool.

use core::fmt;

use crate::ByteCount;
use crate::buffer::Buffer;
use crate::memory::Memory;
use crate::ticket::{DiskId, Ticket, VolumeId};
use crate::units::Extent;

/// What is asked of a disk or a volume.
#[derive(Debug)]
pub struct Request {
    /// Who asks; comes back in the completion.
    pub ticket: Ticket,
    /// What is asked.
    pub operation: Operation,
}

/// Where requests to volumes go.
pub trait Submit {
    /// Takes a request. Its one completion comes later, never within the call.
    fn submit(&mut self, volume: VolumeId, request: Request);

    /// Where a read of `extent` finds memory that can be lent ([`Memory::lend`]), if one disk has
    /// all of it and nothing speaks against it: then the read is counted, and the asker has its
    /// data lent at once. `None`: it is to be submitted like any request.
    fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let _ = (volume, extent, memory);
        None
    }

    /// Where a write of `extent` finds memory that takes it at once ([`Memory::land`]), if one disk
    /// has all of it and nothing speaks against it. Whoever then has it land says so by
    /// [`landed`](Self::landed). `None`: it is to be submitted like any request.
    fn find_landing(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let _ = (volume, extent, memory);
        None
    }

    /// A write that found a landing on this disk has landed: it is counted.
    fn landed(&mut self, volume: VolumeId, disk: DiskId, length: ByteCount) {
        let _ = (volume, disk, length);
    }
}

impl Submit for Vec<(VolumeId, Request)> {
    /// Keeps it.
    #[inline]
    fn submit(&mut self, volume: VolumeId, request: Request) {
        self.push((volume, request));
    }
}

/// The operations. A payload's length equals its extent's, and its phase the extent's offset modulo
/// 4096.
#[derive(Debug)]
pub enum Operation {
    /// Fill `buffer` from `extent`. The buffer may be reserved: the disk gives it pages or leases
    /// its own.
    Read {
        /// What to read.
        extent: Extent,
        /// Where to put it.
        buffer: Buffer,
    },
    /// Put `buffer` at `extent`. Each block ends as before or as asked, also when the power fails.
    Write {
        /// Where to write.
        extent: Extent,
        /// What to write. Its pages may come back exchanged for others of unknown content.
        buffer: Buffer,
        /// Force unit access: complete only once these blocks are durable.
        durable: bool,
    },
    /// Complete once all writes that were completed before are durable.
    Flush,
    /// The contents of these ranges are of no interest any more; reads return zeros or what was
    /// there.
    Discard {
        /// The ranges, at most [`DISCARD_RANGES_MAX`](crate::limits::DISCARD_RANGES_MAX).
        extents: Vec<Extent>,
    },
    /// Make `extent` read as zeros.
    WriteZeroes {
        /// What to clear.
        extent: Extent,
        /// Whether the space may be given up (NVMe DEAC).
        deallocate: bool,
        /// Complete only once durable.
        durable: bool,
    },
    /// Compare `buffer` with `extent`: done when equal, else [`Outcome::Miscompare`].
    Compare {
        /// What to compare with.
        extent: Extent,
        /// The expected bytes.
        buffer: Buffer,
    },
    /// If `extent` holds `expected`, write `replacement`, as one step with respect to every other
    /// write of the volume. Volumes answer it; disks are never asked.
    CompareAndWrite {
        /// What to compare and write.
        extent: Extent,
        /// The expected bytes; boxed, so that the requests that are many stay small.
        expected: Box<Buffer>,
        /// The bytes to write then.
        replacement: Buffer,
        /// Complete only once durable.
        durable: bool,
    },
    /// Check that `extent` can be read from the media; no data are returned.
    Verify {
        /// What to check.
        extent: Extent,
    },
    /// Look for the first byte of `extent` that is what is sought: [`Outcome::Found`], or done when
    /// none is. What a disk does not know it takes for data.
    Seek {
        /// Where to look, at most [`SEEK_MAX`](crate::limits::SEEK_MAX).
        extent: Extent,
        /// What to look for.
        sought: Sought,
    },
}

/// What a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sought {
    /// Bytes for which there is space below, or may be.
    Data,
    /// Bytes for which there is none: they read as zeros.
    Hole,
}

impl Sought {
    /// What a seek comes to where all is data, or may be.
    pub fn in_data(self) -> Outcome {
        match self {
            Sought::Data => Outcome::Found(0),
            Sought::Hole => Outcome::Done,
        }
    }
}

/// The one answer to a request.
#[derive(Debug)]
pub struct Completion {
    /// Whose request it was.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Outcome,
    /// The request's payload (of compare-and-write: the replacement), or an empty buffer.
    pub buffer: Buffer,
    /// The expected bytes of a compare-and-write.
    pub expected: Option<Box<Buffer>>,
}

impl Completion {
    /// The completion of a request that had `buffer` as its payload.
    #[inline]
    pub fn new(ticket: Ticket, outcome: Outcome, buffer: Buffer) -> Completion {
        Completion { ticket, outcome, buffer, expected: None }
    }
}

impl Request {
    /// Answers the request with `outcome` and gives its payload back.
    #[inline]
    pub fn complete(self, outcome: Outcome) -> Completion {
        let Request { ticket, operation } = self;
        match operation {
            Operation::Read { buffer, .. }
            | Operation::Write { buffer, .. }
            | Operation::Compare { buffer, .. } => Completion::new(ticket, outcome, buffer),
            Operation::CompareAndWrite { expected, replacement, .. } => {
                Completion { ticket, outcome, buffer: replacement, expected: Some(expected) }
            }
            Operation::Flush
            | Operation::Discard { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Verify { .. }
            | Operation::Seek { .. } => Completion::new(ticket, outcome, Buffer::empty()),
        }
    }
}

impl Operation {
    /// Whether it may change what the disk holds.
    #[inline]
    pub fn changes_data(&self) -> bool {
        matches!(
            self,
            Operation::Write { .. }
                | Operation::Discard { .. }
                | Operation::WriteZeroes { .. }
                | Operation::CompareAndWrite { .. }
        )
    }

    /// The range that it concerns; `None` for a flush and for a discard, which has several.
    #[inline]
    pub fn extent(&self) -> Option<Extent> {
        match self {
            Operation::Read { extent, .. }
            | Operation::Write { extent, .. }
            | Operation::WriteZeroes { extent, .. }
            | Operation::Compare { extent, .. }
            | Operation::CompareAndWrite { extent, .. }
            | Operation::Verify { extent }
            | Operation::Seek { extent, .. } => Some(*extent),
            Operation::Flush | Operation::Discard { .. } => None,
        }
    }

    /// Bytes that it reads or writes below, as they are counted.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Operation::Seek { .. } => 0,
            Operation::Discard { extents } => extents.iter().map(|extent| extent.length.0).sum(),
            other => other.extent().map_or(0, |extent| extent.length.0),
        }
    }

    /// Moves it to another place of the same length: from a volume to its member. Panics for what
    /// has no one place.
    #[inline]
    pub fn move_to(&mut self, place: Extent) {
        match self {
            Operation::Read { extent, .. }
            | Operation::Write { extent, .. }
            | Operation::WriteZeroes { extent, .. }
            | Operation::Compare { extent, .. }
            | Operation::CompareAndWrite { extent, .. }
            | Operation::Verify { extent }
            | Operation::Seek { extent, .. } => *extent = place,
            Operation::Flush | Operation::Discard { .. } => {
                panic!("{} has no one place", self.name())
            }
        }
    }

    /// Whether it is complete only once what it writes is durable.
    #[inline]
    pub fn is_durable(&self) -> bool {
        matches!(
            self,
            Operation::Write { durable: true, .. }
                | Operation::WriteZeroes { durable: true, .. }
                | Operation::CompareAndWrite { durable: true, .. }
        )
    }

    /// The operation's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Flush => "flush",
            Operation::Discard { .. } => "discard",
            Operation::WriteZeroes { .. } => "write zeroes",
            Operation::Compare { .. } => "compare",
            Operation::CompareAndWrite { .. } => "compare and write",
            Operation::Verify { .. } => "verify",
            Operation::Seek { .. } => "seek",
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// A compare found a difference, first in this byte of the payload; nothing was written.
    Miscompare(u32),
    /// A seek found what was sought, first in this byte of its extent.
    Found(u32),
    /// It was not carried out, or not wholly: each block is as before or as asked, and nothing
    /// comes later.
    NotDone(Failure),
    /// It may have been carried out, not, or in part, and no more will happen to it.
    Unknown(Failure),
}

impl Outcome {
    /// Why it was not, or may not have been, carried out.
    #[inline]
    pub fn failure(self) -> Option<Failure> {
        match self {
            Outcome::NotDone(failure) | Outcome::Unknown(failure) => Some(failure),
            Outcome::Done | Outcome::Miscompare(_) | Outcome::Found(_) => None,
        }
    }

    /// Whether it was carried out.
    #[inline]
    pub fn is_done(self) -> bool {
        matches!(self, Outcome::Done)
    }

    /// Of the outcomes of two parts of a request, the one that the whole has: doubt before failure
    /// before what was found or differs before success.
    #[must_use]
    pub fn worse(self, other: Outcome) -> Outcome {
        let rank = |outcome| match outcome {
            Outcome::Done => 0,
            Outcome::Miscompare(_) | Outcome::Found(_) => 1,
            Outcome::NotDone(_) => 2,
            Outcome::Unknown(_) => 3,
        };
        match (self, other) {
            (Outcome::Miscompare(a), Outcome::Miscompare(b)) => Outcome::Miscompare(a.min(b)),
            (Outcome::Found(a), Outcome::Found(b)) => Outcome::Found(a.min(b)),
            _ if rank(other) > rank(self) => other,
            _ => self,
        }
    }

    /// What it means for the whole, of a part that begins `start` bytes into the payload.
    #[must_use]
    pub fn of_part(self, start: u32) -> Outcome {
        match self {
            Outcome::Miscompare(at) => Outcome::Miscompare(start + at),
            Outcome::Found(at) => Outcome::Found(start + at),
            other => other,
        }
    }
}

/// Why a request was not, or may not have been, carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// It reaches beyond the end.
    OutOfRange,
    /// The disk takes no writes: it is read-only, or a flush failed before.
    WriteProtected,
    /// The media cannot be read there.
    MediumRead,
    /// The media cannot be written there.
    MediumWrite,
    /// There is no room left below (a sparse file on a full file system).
    NoSpace,
    /// The disk cannot do this operation.
    Unsupported,
    /// The volume or disk is gone or going.
    Removed,
    /// The disk is not there at present; a retry may help.
    NotReady,
    /// It was cancelled before it began.
    Aborted,
    /// No answer came in time.
    TimedOut,
    /// We were wrong, or the system below us was.
    Internal,
}

impl Failure {
    pub const ALL: [Failure; 11] = [
        Failure::OutOfRange,
        Failure::WriteProtected,
        Failure::MediumRead,
        Failure::MediumWrite,
        Failure::NoSpace,
        Failure::Unsupported,
        Failure::Removed,
        Failure::NotReady,
        Failure::Aborted,
        Failure::TimedOut,
        Failure::Internal,
    ];
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::OutOfRange => "beyond the end",
            Failure::WriteProtected => "write protected",
            Failure::MediumRead => "unrecovered read error",
            Failure::MediumWrite => "write fault",
            Failure::NoSpace => "no space left",
            Failure::Unsupported => "not supported",
            Failure::Removed => "removed",
            Failure::NotReady => "not ready",
            Failure::Aborted => "aborted",
            Failure::TimedOut => "timed out",
            Failure::Internal => "internal error",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Miscompare(at) => write!(f, "miscompare at byte {at}"),
            Outcome::Found(at) => write!(f, "found at byte {at}"),
            Outcome::NotDone(why) => write!(f, "not done: {why}"),
            Outcome::Unknown(why) => write!(f, "unknown whether done: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_returns_the_payload() {
        let request = Request {
            ticket: Ticket::default(),
            operation: Operation::Write {
                extent: Extent::new(0, 4096),
                buffer: Buffer::reserved(4096, 0),
                durable: false,
            },
        };
        let completion = request.complete(Outcome::NotDone(Failure::Removed));
        assert_eq!(completion.buffer.len(), 4096);
    }

    #[test]
    fn the_worst_outcome_of_the_parts_is_the_whole() {
        let failed = Outcome::NotDone(Failure::MediumRead);
        assert_eq!(Outcome::Done.worse(failed), failed);
        let unknown = Outcome::Unknown(Failure::TimedOut);
        assert_eq!((failed.worse(unknown), unknown.worse(failed)), (unknown, unknown));
        let differs = Outcome::Miscompare(9).worse(Outcome::Miscompare(1).of_part(3));
        assert_eq!(differs, Outcome::Miscompare(4));
        let found = Outcome::Found(9).worse(Outcome::Found(1).of_part(3));
        assert_eq!((found, found.worse(Outcome::Done)), (Outcome::Found(4), Outcome::Found(4)));
        assert_eq!(found.worse(failed), failed);
    }

    #[test]
    fn requests_stay_small_enough_to_move() {
        // A request moves through four hands on its way, a million times a second.
        assert!(size_of::<Request>() <= 80, "{}", size_of::<Request>());
        assert!(size_of::<Completion>() <= 64, "{}", size_of::<Completion>());
    }
}
