//! The jobs of an initiator: every request from its arrival to its one completion, whatever is lost meanwhile.
//!
//! A job is cut into parts that fit a frame; each part is a [`Command`] until it is answered. A job is in exactly one place:
//!
//! ```text
//!   waiting --> active (its parts are sent, some are answered) --> completed
//!      ^          |  deadline: a read is given up; a change is stopped -----> held until its copies are surely dead --> unknown
//!   blocked ------+  overlaps a change that is under way, or in doubt
//! ```
//!
//! **Doubt.** A change that was sent more often than it was answered may have a copy on the wire still. Its sectors are *in doubt* until the copy is answered, or the
//! time is over that a frame can live (`Settings::stray`); changes that overlap it wait. So no two overlapping writes of one initiator are ever on
//! the wire.
//!
//! **Unknown.** A change that fails while a copy of it may be on the wire, or that passes its deadline while it is sent, ends *unknown*, and not before the copy is dead:
//! no more happens to it then. What was never sent ends *not done*.

use block::{Buffer, Completion, Extent, Failure, Instant, Operation, Outcome, Request, Ticket};

/// What a job asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write { durable: bool },
    Zeroes { durable: bool },
    Compare,
    Verify,
    Flush,
}

impl Kind {
    pub(super) fn changes(self) -> bool {
        matches!(self, Kind::Write { .. } | Kind::Zeroes { .. })
    }

    pub(super) fn is_durable(self) -> bool {
        matches!(self, Kind::Write { durable: true } | Kind::Zeroes { durable: true })
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Blocked,
    Active,
    /// Its deadline has passed, or it failed, and its copies may live until then.
    Held(Instant),
}

/// A request.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) kind: Kind,
    pub(super) extent: Extent,
    /// The payload; empty while it is lent to a batch.
    pub(super) buffer: Buffer,
    /// Its number in the batch that is gathered.
    pub(super) gathered: Option<u32>,
    /// Whether the payload is in a batch.
    pub(super) lent: bool,
    /// Bytes that were cut into commands.
    pub(super) cut: u64,
    /// Commands that are not answered.
    pub(super) unanswered: u32,
    pub(super) state: State,
    pub(super) outcome: Outcome,
    /// Whether the flush of a durable change, or a flush, was sent.
    pub(super) flushed: bool,
    /// Until when a copy of one of its commands may live.
    pub(super) doubt_until: Option<Instant>,
    pub(super) deadline: Instant,
    /// Its outcome stands, and only its payload is waited for.
    pub(super) over: bool,
}

impl Job {
    /// Takes a request; gives back one that an initiator does not carry out, completed.
    pub(super) fn new(request: Request, deadline: Instant) -> Result<Job, Completion> {
        let Request { ticket, operation } = request;
        let none = Extent::default();
        let (kind, extent, buffer) = match operation {
            Operation::Read { extent, buffer } => (Kind::Read, extent, buffer),
            Operation::Write { extent, buffer, durable } => {
                (Kind::Write { durable }, extent, buffer)
            }
            Operation::WriteZeroes { extent, durable, .. } => {
                (Kind::Zeroes { durable }, extent, Buffer::empty())
            }
            Operation::Compare { extent, buffer } => (Kind::Compare, extent, buffer),
            Operation::Verify { extent } => (Kind::Verify, extent, Buffer::empty()),
            Operation::Flush => (Kind::Flush, none, Buffer::empty()),
            // Reads return zeros or what was there: nothing needs to be done.
            Operation::Discard { .. } => {
                return Err(Completion::new(ticket, Outcome::Done, Buffer::empty()));
            }
            operation @ Operation::CompareAndWrite { .. } => {
                let request = Request { ticket, operation };
                return Err(request.complete(Outcome::NotDone(Failure::Unsupported)));
            }
        };
        Ok(Job {
            ticket,
            kind,
            extent,
            buffer,
            gathered: None,
            lent: false,
            cut: 0,
            unanswered: 0,
            state: State::Waiting,
            outcome: Outcome::Done,
            flushed: false,
            doubt_until: None,
            deadline,
            over: false,
        })
    }

    /// Whether no further command is made of it.
    pub(super) fn is_cut(&self) -> bool {
        self.cut >= self.extent.length.0
    }

    /// Takes in what became of a part that began `at` bytes into the payload.
    pub(super) fn note(&mut self, outcome: Outcome) {
        let rank = |outcome: &Outcome| match outcome {
            Outcome::Done => 0,
            Outcome::Miscompare(_) => 1,
            Outcome::NotDone(_) => 2,
            Outcome::Unknown(_) => 3,
        };
        match (self.outcome, outcome) {
            (Outcome::Miscompare(a), Outcome::Miscompare(b)) => {
                self.outcome = Outcome::Miscompare(a.min(b));
            }
            (old, new) if rank(&new) > rank(&old) => self.outcome = new,
            _ => {}
        }
    }

    /// Notes that a copy may live until then.
    pub(super) fn doubt(&mut self, until: Instant) {
        self.doubt_until = Some(self.doubt_until.map_or(until, |known| known.max(until)));
    }
}

/// Slots of jobs; batches name them by number.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    slots: Vec<Option<Job>>,
    free: Vec<u32>,
}

impl Jobs {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, job: Job) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(job);
                index
            }
            None => {
                self.slots.push(Some(job));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// A job that somebody holds the number of.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Job {
        self.slots[index as usize].as_mut().expect("a job stays until nobody names it")
    }

    pub(super) fn remove(&mut self, index: u32) -> Job {
        self.free.push(index);
        self.slots[index as usize].take().expect("a job ends once")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Job)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, job)| Some((index as u32, job.as_ref()?)))
    }
}

/// Sectors that may not be changed at present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) extent: Extent,
    /// The job that changes them; of a doubt: none.
    pub(super) job: Option<u32>,
    /// The tag of the command whose copies are in doubt, how many were not answered, and when they are surely dead.
    pub(super) tag: u32,
    pub(super) missing: u32,
    pub(super) until: Instant,
}

/// A part of a job, on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) tag: u32,
    pub(super) job: u32,
    /// Where in the job's extent it begins, in bytes.
    pub(super) at: u64,
    /// Sectors; 0 for a flush.
    pub(super) count: u8,
    /// Which path it was last sent on.
    pub(super) path: u32,
    /// Whether it counts in the path's window.
    pub(super) counted: bool,
    /// Copies that were sent, and when the last of them was.
    pub(super) copies: u32,
    pub(super) sent: Instant,
    /// When it counts as lost; `None` while that is not watched.
    pub(super) due: Option<Instant>,
    /// Whether it was aborted once, and the path asked what it takes.
    pub(super) doubted: bool,
}

/// The commands that are not answered, found by the low bits of their tags.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Vec<Option<Command>>,
    len: usize,
    lane: u32,
    last_tag: u32,
}

/// Tags with the highest bit are for tools of the user; the next ones are the lane, the rest counts up.
const LANE_SHIFT: u32 = 25;
const COUNT_MASK: u32 = (1 << LANE_SHIFT) - 1;
/// So that one command of any size can become commands of one sector.
const SLOTS_MIN: usize = 512;

impl Commands {
    /// Room for `limit` commands; tags of `lane`, which is below [`LANES_MAX`](super::LANES_MAX), count up from `first` on.
    pub(super) fn new(limit: u32, lane: u8, first: u32) -> Commands {
        let slots = vec![None; (4 * limit as usize).next_power_of_two().max(SLOTS_MIN)];
        Commands { slots, len: 0, lane: u32::from(lane) << LANE_SHIFT, last_tag: first }
    }

    /// Whether so many more commands find room.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.len + more < self.slots.len()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn slot(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    /// A tag that no command has.
    pub(super) fn next_tag(&mut self) -> u32 {
        loop {
            let count = self.last_tag.wrapping_add(1) & COUNT_MASK;
            self.last_tag = self.lane | count;
            if self.slots[self.slot(self.last_tag)].is_none() {
                return self.last_tag;
            }
        }
    }

    /// The lane of a tag.
    pub(super) fn lane_of(tag: u32) -> u8 {
        (tag >> LANE_SHIFT) as u8
    }

    /// Files a command under its tag, which is of `next_tag`.
    pub(super) fn insert(&mut self, command: Command) {
        let slot = self.slot(command.tag);
        assert!(self.slots[slot].replace(command).is_none(), "tag {:#x} is used", command.tag);
        self.len += 1;
    }

    #[inline]
    pub(super) fn get_mut(&mut self, tag: u32) -> Option<&mut Command> {
        let slot = self.slot(tag);
        self.slots[slot].as_mut().filter(|command| command.tag == tag)
    }

    #[inline]
    pub(super) fn remove(&mut self, tag: u32) -> Option<Command> {
        self.get_mut(tag)?;
        self.len -= 1;
        let slot = self.slot(tag);
        self.slots[slot].take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Command> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Command> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_until_its_command_is_answered_and_never_has_the_highest_bit() {
        let mut commands = Commands::new(4, 63, COUNT_MASK - 3);
        let command = Command {
            tag: 0,
            job: 0,
            at: 0,
            count: 1,
            path: 0,
            counted: true,
            copies: 1,
            sent: Instant::ZERO,
            due: None,
            doubted: false,
        };
        let mut tags = Vec::new();
        for _ in 0..SLOTS_MIN - 1 {
            assert!(commands.has_room(1));
            let tag = commands.next_tag();
            assert_eq!((tag >> 31, Commands::lane_of(tag)), (0, 63));
            commands.insert(Command { tag, ..command });
            tags.push(tag);
        }
        tags.dedup();
        assert_eq!((tags.len(), commands.len()), (SLOTS_MIN - 1, SLOTS_MIN - 1));
        assert!(!commands.has_room(1));
        assert_eq!(commands.remove(tags[3]).unwrap().tag, tags[3]);
        assert!(commands.remove(tags[3]).is_none());
        // A slot is used again under another tag.
        assert!(!tags.contains(&commands.next_tag()));
    }
}
