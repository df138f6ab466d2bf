//! The commands of an initiator: what its jobs are cut into, one frame each, under the tags by
//! which answers find them.
//!
//! What becomes of a job is told in the crate `remote`; over frames this is added:
//!
//! **Overlap.** A change claims its sectors from its first command on. A command that was sent more
//! often than it was answered may have a copy on the wire still: a stray, which claims its sectors
//! until it is answered, too, or dead (`Settings::stray`). So no two overlapping writes of one
//! initiator are ever on the wire.
//!
//! **Unknown.** A change that fails while a copy of it may be on the wire, or that passes its
//! deadline while it is sent, is *held*: no more commands are made of it, and it ends *unknown*,
//! but not before its copies are dead. What was never sent ends *not done*.
//!
//! **Flush doubt.** A target with a volatile cache that was silent or announced itself may have
//! been started anew, and have lost what it answered. What was completed makes the next flush fail;
//! a change that is under way is cut into commands once more when all of it is answered.

use block::{Instant, Outcome};

pub(super) type Disk = remote::Disk<Progress>;

/// How far an active job is.
#[derive(Debug)]
pub(super) struct Progress {
    /// Bytes that were cut into commands.
    pub(super) cut: u64,
    /// Commands that are not answered.
    pub(super) unanswered: u32,
    /// Whether the flush of a durable change, or a flush, was sent.
    pub(super) flushed: bool,
    /// What became of the commands that were answered.
    pub(super) outcome: Outcome,
    /// Until when a copy of one of its commands may live.
    pub(super) doubt_until: Option<Instant>,
    /// No more commands are made of it.
    pub(super) held: bool,
    /// How often the target may have been started anew before the first of its commands.
    pub(super) restarts: u64,
}

impl Default for Progress {
    fn default() -> Progress {
        let outcome = Outcome::Done;
        Progress {
            cut: 0,
            unanswered: 0,
            flushed: false,
            outcome,
            doubt_until: None,
            held: false,
            restarts: 0,
        }
    }
}

impl Progress {
    /// Takes in what became of a command.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.outcome = self.outcome.worse(outcome);
    }

    /// Whether a command has failed: no more are made.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::NotDone(_) | Outcome::Unknown(_))
    }
}

/// A part of a job, on the wire.
#[derive(Clone, Copy, Debug, Default)]
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
    partition: u32,
    last_tag: u32,
}

/// Tags with the highest bit are for tools of the user; the next ones are its partition, the rest
/// counts up.
pub(crate) const PARTITION_SHIFT: u32 = 25;
const COUNT_MASK: u32 = (1 << PARTITION_SHIFT) - 1;
/// So that one command of any size can become commands of one sector.
const SLOTS_MIN: usize = 512;

impl Commands {
    /// Room for `limit` commands; tags of `partition`, which is below
    /// [`TAG_PARTITIONS_MAX`](crate::limits::TAG_PARTITIONS_MAX), count up from `first` on.
    pub(super) fn new(limit: u32, partition: u8, first: u32) -> Commands {
        let slots = vec![None; (4 * limit as usize).next_power_of_two().max(SLOTS_MIN)];
        Commands {
            slots,
            len: 0,
            partition: u32::from(partition) << PARTITION_SHIFT,
            last_tag: first,
        }
    }

    /// Whether so many more commands find room.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.len + more < self.slots.len()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slot(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    /// A tag that no command has.
    pub(super) fn next_tag(&mut self) -> u32 {
        loop {
            let count = self.last_tag.wrapping_add(1) & COUNT_MASK;
            self.last_tag = self.partition | count;
            if self.slots[self.slot(self.last_tag)].is_none() {
                return self.last_tag;
            }
        }
    }

    /// The partition of a tag.
    pub(super) fn partition_of(tag: u32) -> u8 {
        (tag >> PARTITION_SHIFT) as u8
    }

    /// Files a command under a tag of its own.
    #[inline]
    pub(super) fn insert(&mut self, command: Command) -> u32 {
        let tag = self.next_tag();
        let slot = self.slot(tag);
        self.slots[slot] = Some(Command { tag, ..command });
        self.len += 1;
        tag
    }

    #[inline]
    pub(super) fn get(&self, tag: u32) -> Option<&Command> {
        self.slots[self.slot(tag)].as_ref().filter(|command| command.tag == tag)
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
        let mut tags = Vec::new();
        for _ in 0..SLOTS_MIN - 1 {
            assert!(commands.has_room(1));
            let tag = commands.insert(Command::default());
            assert_eq!((tag >> 31, Commands::partition_of(tag)), (0, 63));
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
