//! Commands in flight: a slot each, found by number from below (the ticket), and what of them is looked at when another command comes.

use block::{Instant, Operation};
use contract::LinkId;

use crate::export::ExportId;
use crate::head::Head;

/// What a command is, as far as its completion needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sends the buffer to the initiator.
    Read,
    /// Answers once it is durable.
    Write,
    /// A trim, remembered as a write.
    Trim,
    /// Answers with registers alone: verify, flush.
    Plain,
    /// A flush of ours, for all writes that the export's group covers.
    Sync,
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) generation: u32,
    pub(super) kind: Kind,
    /// The write asks for durability itself, and needs no flush.
    pub(super) durable: bool,
    /// Which account of the export's its memory is of.
    pub(super) account: u8,
    pub(super) link: LinkId,
    pub(super) export: ExportId,
    /// Its place among the export's active commands.
    pub(super) place: u32,
    /// Its number in `repeats`; 0 for none.
    pub(super) record: u32,
    /// CRC32C of its payload.
    pub(super) crc: u32,
    /// Flags, feature, count and command, as they stand in the frame.
    pub(super) shape: u32,
    /// When it came.
    pub(super) since: Instant,
    /// What is to be asked, while it waits.
    pub(super) held: Option<Box<Operation>>,
    pub(super) head: Head,
}

/// How far an active command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for one that it overlaps.
    Waiting,
    /// Below.
    Running,
    /// Done, and not durable.
    Syncing,
}

/// What is looked at of a command in flight when another comes. Kept side by side, since all of an export's are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    /// The first sector, and the first behind.
    pub(super) first: u64,
    pub(super) end: u64,
    /// The source, as a number.
    pub(super) source: u64,
    pub(super) tag: u32,
    pub(super) slot: u32,
    pub(super) stage: Stage,
    pub(super) changes: bool,
}

impl Active {
    /// Whether two commands must not be below at once: they share sectors and a source, and one of them changes data.
    #[inline]
    pub(super) fn conflicts(&self, other: &Active) -> bool {
        self.first < other.end
            && other.first < self.end
            && self.source == other.source
            && (self.changes || other.changes)
    }
}

/// Slots of commands in flight.
#[derive(Debug, Default)]
pub(super) struct Flights {
    slots: Vec<Option<Flight>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Flights {
    /// Commands in flight.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a command a slot.
    #[inline]
    pub(super) fn insert(&mut self, mut flight: Flight) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                flight.generation = self.generations[slot as usize];
                self.slots[slot as usize] = Some(flight);
                slot
            }
            None => {
                self.slots.push(Some(flight));
                self.generations.push(0);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The command in a slot that is filled.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        self.slots[slot as usize].as_mut().expect("the slot of a command in flight is filled")
    }

    /// Which life of a slot this is.
    #[inline]
    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.generations[slot as usize]
    }

    /// Empties a slot.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> Flight {
        let flight = self.slots[slot as usize].take().expect("a slot is emptied once");
        self.generations[slot as usize] = self.generations[slot as usize].wrapping_add(1);
        self.free.push(slot);
        flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_conflict_if_they_share_sectors_and_source_and_one_changes_data() {
        let write = Active {
            first: 8,
            end: 16,
            source: 1,
            tag: 0,
            slot: 0,
            stage: Stage::Running,
            changes: true,
        };
        let read = Active { first: 15, end: 17, changes: false, ..write };
        assert!(write.conflicts(&write) && write.conflicts(&read) && read.conflicts(&write));
        assert!(!read.conflicts(&read));
        assert!(!write.conflicts(&Active { source: 2, ..write }));
        assert!(!write.conflicts(&Active { first: 16, end: 20, ..write }));
    }

    #[test]
    fn what_is_looked_at_for_each_frame_is_small() {
        assert!(size_of::<Active>() <= 40, "{}", size_of::<Active>());
        assert!(size_of::<Flight>() <= 128, "{}", size_of::<Flight>());
    }
}
