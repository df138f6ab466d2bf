//! A job: a request, or a part of one, of which commands are made.
//!
//! Units: bytes of the disk; of payloads, bytes of the buffer.

use block::{
    Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Slot, Ticket,
};

/// What a job asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobKind {
    #[default]
    Read,
    Write,
    Compare,
    Flush,
    Discard,
    Zeroes {
        deallocate: bool,
    },
    Verify,
}

impl JobKind {
    /// Whether it may change what the disk holds.
    #[inline]
    pub fn changes(self) -> bool {
        matches!(self, JobKind::Write | JobKind::Discard | JobKind::Zeroes { .. })
    }

    /// Whether it carries no payload: then it is not cut when it is too large, but goes as one
    /// command after the other.
    fn is_stepwise(self) -> bool {
        matches!(self, JobKind::Discard | JobKind::Zeroes { .. } | JobKind::Verify)
    }
}

/// Where a job is. The way from one state to the next is drawn in [`disk`](crate::disk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    #[default]
    Free,
    Waiting,
    /// It overlaps a claim.
    Blocked,
    /// It waits until then before it is tried again.
    Resting(Instant),
    /// A command of it is under way.
    Active,
    /// It may still be carried out until then; `None` while that is not known.
    Doubtful(Option<Instant>),
}

/// Where a job's payload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadPlace {
    /// With the job.
    #[default]
    Home,
    /// In the sender's batch of this number, as its buffer `place`.
    Batch { number: u32, place: u32 },
    /// With the driver, to be filled.
    Receive,
}

impl PayloadPlace {
    /// Whether bytes of the payload can go into the batch of this number: it is at home, or in that
    /// batch already.
    #[inline]
    pub fn is_within_reach(self, batch: u32) -> bool {
        match self {
            PayloadPlace::Home => true,
            PayloadPlace::Batch { number, .. } => number == batch,
            PayloadPlace::Receive => false,
        }
    }
}

/// What is to be done about a command that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is over.
    Finish(Outcome),
    /// Try again after a rest; when tries or time run out, it ends as not done for this reason.
    Retry(Failure),
}

/// How far a job that goes as one command after the other has come: the extent that is next, and
/// how many of its bytes are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub extent: usize,
    pub done: u64,
}

impl Cursor {
    /// So many bytes of the only extent are done.
    pub fn after(done: u64, only: Extent) -> Cursor {
        let is_over = done >= only.length.0;
        Cursor { extent: usize::from(is_over), done: if is_over { 0 } else { done } }
    }
}

/// A request or a part of one. Its place in the table is used again and again: filled in place,
/// because moving all of it costs more than most of its life.
#[derive(Debug, Default)]
pub struct Job<W> {
    pub(crate) ticket: Ticket,
    pub kind: JobKind,
    pub durable: bool,
    pub state: JobState,
    /// It holds claims: it was begun, or may have been.
    pub(crate) claims: bool,
    pub(crate) tries: u8,
    /// Order of arrival.
    pub(crate) number: u64,
    /// The bytes that it concerns; of a flush and of a discard: none.
    pub extent: Extent,
    /// The ranges of a discard.
    ranges: Vec<Extent>,
    /// The command under way begins at `cursor`, and the next one at `then`.
    pub cursor: Cursor,
    pub then: Cursor,
    pub deadline: Instant,
    /// The request that it is a part of, and where it begins in the payload of that.
    pub(crate) part_of: Option<(Slot, u32)>,
    /// The payload; empty while it is elsewhere.
    pub buffer: Buffer,
    pub place: PayloadPlace,
    /// A command was answered so, and the payload is waited for.
    pub verdict: Option<Verdict>,
    /// What became of it, once it is over.
    pub(crate) outcome: Option<Outcome>,
    /// Completed writes when a flush was sent.
    pub(crate) covers: u64,
    /// What the protocol keeps with the commands under way. Left as it is from one job to the next.
    pub wire: W,
}

impl<W> Job<W> {
    /// Takes in what is asked, with nothing of what was here before. A finished job has neither
    /// payload nor ranges nor verdict nor claims. Panics for a compare-and-write
    /// and a seek, which are answered before.
    #[inline]
    pub(crate) fn begin(&mut self, request: &mut Request, number: u64, deadline: Instant) {
        (self.ticket, self.number, self.deadline) = (request.ticket, number, deadline);
        (self.state, self.tries, self.part_of) = (JobState::Waiting, 0, None);
        (self.cursor, self.then) = (Cursor::default(), Cursor::default());
        (self.extent, self.durable) = (Extent::default(), false);
        // Payloads change places with the empty one here: nothing is made and moved for that.
        self.kind = match &mut request.operation {
            Operation::Read { extent, buffer } => {
                self.extent = *extent;
                core::mem::swap(&mut self.buffer, buffer);
                JobKind::Read
            }
            Operation::Write { extent, buffer, durable } => {
                (self.extent, self.durable) = (*extent, *durable);
                core::mem::swap(&mut self.buffer, buffer);
                JobKind::Write
            }
            Operation::Compare { extent, buffer } => {
                self.extent = *extent;
                core::mem::swap(&mut self.buffer, buffer);
                JobKind::Compare
            }
            Operation::Flush => JobKind::Flush,
            Operation::WriteZeroes { extent, deallocate, durable } => {
                (self.extent, self.durable) = (*extent, *durable);
                JobKind::Zeroes { deallocate: *deallocate }
            }
            Operation::Verify { extent } => {
                self.extent = *extent;
                JobKind::Verify
            }
            Operation::Discard { extents } => {
                self.ranges = core::mem::take(extents);
                JobKind::Discard
            }
            Operation::CompareAndWrite { .. } | Operation::Seek { .. } => {
                unreachable!("it is answered at once")
            }
        };
    }

    /// The bytes that it concerns, extent by extent.
    #[inline]
    pub fn extents(&self) -> &[Extent] {
        match self.kind {
            JobKind::Discard => &self.ranges,
            _ => core::slice::from_ref(&self.extent),
        }
    }

    /// A command of it is done; whether another has to follow.
    #[inline]
    pub(crate) fn advance(&mut self) -> bool {
        self.cursor = self.then;
        self.kind.is_stepwise() && self.cursor.extent < self.extents().len()
    }

    /// It is over. Its payload stays until its completion is fetched.
    #[inline]
    pub(crate) fn end(&mut self, outcome: Outcome) {
        assert!(
            self.place == PayloadPlace::Home && self.state != JobState::Free,
            "a {:?} ended in state {:?} while its buffer was {:?}",
            self.kind,
            self.state,
            self.place
        );
        self.state = JobState::Free;
        self.outcome = Some(outcome);
        self.verdict = None;
        self.ranges = Vec::new();
    }

    /// What became of it, with its payload: the place is to be used for another.
    #[inline]
    pub(crate) fn leave(&mut self) -> Completion {
        let outcome = self.outcome.take().expect("a job that is over ended somehow");
        Completion::new(self.ticket, outcome, core::mem::take(&mut self.buffer))
    }
}
