//! Commands in flight: a slot each, found by number from below (the ticket), and what of them is
//! looked at when another command comes.

use block::{Instant, Operation, Slot};
use reservation::Access;
use wire::ethernet::MacAddress;

use super::repeats::Key;
use crate::head::Reply;

/// That a slot of somebody in flight is filled.
pub(super) const FILLED: &str = "a command in flight has its slot";

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
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) kind: Kind,
    /// The write asks for durability itself, and needs no flush.
    pub(super) durable: bool,
    /// Which account of the export's its memory is of.
    pub(super) account: u8,
    /// Its place among the export's active commands.
    pub(super) place: u32,
    /// Its number in `repeats`; 0 for none.
    pub(super) record: u32,
    /// Of which export it is, and what tells copies of a change from other changes.
    pub(super) key: Key,
    /// When it came.
    pub(super) since: Instant,
    /// What is to be asked, while it waits.
    pub(super) held: Option<Box<Operation>>,
    pub(super) reply: Reply,
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

/// What is looked at of a command in flight when another comes. Kept side by side, since all of an
/// export's are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    /// The first sector, and the first behind.
    pub(super) first: u64,
    pub(super) end: u64,
    /// The source, as a number.
    pub(super) source: u64,
    pub(super) tag: u32,
    pub(super) slot: Slot,
    pub(super) stage: Stage,
    pub(super) changes: bool,
}

impl Active {
    /// Whose it is.
    pub(super) fn mac(&self) -> [u8; 6] {
        MacAddress::from_u64(self.source).0
    }

    /// What it is to a reservation.
    pub(super) fn access(&self) -> Access {
        Access::to_data(self.changes)
    }

    /// Whether two commands must not be below at once: they share sectors and a source, and one of
    /// them changes data.
    #[inline]
    pub(super) fn conflicts(&self, other: &Active) -> bool {
        self.first < other.end
            && other.first < self.end
            && self.source == other.source
            && (self.changes || other.changes)
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
            slot: Slot::default(),
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
