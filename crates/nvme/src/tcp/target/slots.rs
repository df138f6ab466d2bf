//! The commands that a connection has outstanding: a slot each, found by slot number from below (the ticket) and
//! from the host's data (TTAG), and by CID when a new command comes.
//!
//! Sized by use: slots and CIDs grow to the most that were outstanding at once and are given back while idle, so that
//! an idle connection of depth 1024 holds nothing. Nothing allocates once grown.

use block::{Buffer, Instant};
use wire::nvme::{Command, Status};

/// An outstanding command.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) command_id: u16,
    pub(super) state: State,
}

/// Where a command stands.
///
/// ```text
///            Waiting -- memory --> Granted -- all data --> Below --> answered
///               `-- (a read) --------------------------------^
///  capsule -----'-- Pair, Second -- both whole --------------'
///            `- Admin --> answered
/// ```
#[derive(Debug)]
pub(super) enum State {
    /// Nobody's.
    Free,
    /// In line for memory. A read goes below then; a write asks for its data.
    Waiting(Box<Command>),
    /// Holds its whole buffer and has asked for the data (R2T). Boxed, as `Waiting` is, because a slot of a small command is moved about
    /// a million times a second.
    Granted(Box<Grant>),
    /// The first of a fused pair, with the memory of both.
    Pair(Box<Pair>),
    /// The second of a fused pair; its data are kept by the first, in this slot.
    Second(u16),
    /// With the volume.
    Below(Below),
    /// With the controllers, which answer later. Room that the host has for data.
    Admin(u32),
}

/// A command whose data come from the host when asked.
#[derive(Debug)]
pub(super) struct Grant {
    /// The command, to be judged anew once its data are whole.
    pub(super) command: Command,
    /// What has come of them.
    pub(super) data: Incoming,
}

/// Data on their way from the host.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Where they go. Empty while a direct receive fills it.
    pub(super) buffer: Buffer,
    /// Bytes in all.
    pub(super) length: u32,
    /// Bytes that came; the next ones belong here.
    pub(super) received: u32,
    /// Whether a data digest was wrong.
    pub(super) corrupt: bool,
    /// When the last of them came, or were asked for; `None` when nothing was asked for.
    pub(super) since: Option<Instant>,
}

impl Incoming {
    pub(super) fn new(buffer: Buffer) -> Incoming {
        let length = buffer.len();
        Incoming { buffer, length, received: 0, corrupt: false, since: None }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.received == self.length
    }
}

/// A fused compare and write that is coming together.
#[derive(Debug)]
pub(super) struct Pair {
    /// The compare.
    pub(super) first: Command,
    /// What it expects.
    pub(super) expected: Incoming,
    /// The write's slot and the write, once it came.
    pub(super) second: Option<(u16, Command)>,
    /// What it writes; the memory is taken with the first's, so that nobody waits while holding.
    pub(super) replacement: Incoming,
    /// Set when the first can only fail; it is answered once its data are whole.
    pub(super) fate: Option<Status>,
    /// When it came.
    pub(super) since: Instant,
}

/// A command that the volume works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    /// Requests that have not come back.
    pub(super) parts: u16,
    /// What its answer does.
    pub(super) kind: Kind,
    /// The worst of what came back.
    pub(super) status: Status,
}

/// What the completion of a command that was below does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sends the buffer to the host.
    Read,
    /// Gives a buffer that came in a capsule back.
    Capsule,
    /// Gives a buffer that was granted back, if there is one.
    Transfer,
    /// Answers both of a fused pair; the second has this slot.
    Pair(u16),
}

/// The outstanding commands of a connection.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Slot>,
    free: Vec<u16>,
    /// Open addressing, a power of two, at most half full: CID in the high half, slot + 1 in the low one, 0 is free.
    index: Vec<u32>,
    len: u32,
}

const SMALLEST_INDEX: usize = 16;

impl Slots {
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Gives the command a slot, or `None` when its CID is in use.
    #[inline]
    pub(super) fn insert(&mut self, command_id: u16, state: State) -> Option<u16> {
        if self.index.len() <= 2 * self.len as usize {
            self.grow();
        }
        let mask = self.index.len() - 1;
        let mut at = home(command_id, mask);
        while self.index[at] != 0 {
            if (self.index[at] >> 16) as u16 == command_id {
                return None;
            }
            at = (at + 1) & mask;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[usize::from(slot)] = Slot { command_id, state };
                slot
            }
            None => {
                self.entries.push(Slot { command_id, state });
                (self.entries.len() - 1) as u16
            }
        };
        self.index[at] = u32::from(command_id) << 16 | (u32::from(slot) + 1);
        self.len += 1;
        Some(slot)
    }

    /// Frees a slot, whose buffers were taken out before.
    #[inline]
    pub(super) fn remove(&mut self, slot: u16) {
        let entry = &mut self.entries[usize::from(slot)];
        assert!(!matches!(entry.state, State::Free), "slot {slot} was freed twice");
        entry.state = State::Free;
        let command_id = entry.command_id;
        self.free.push(slot);
        self.len -= 1;
        self.forget(command_id);
    }

    /// Takes a CID out of the index and closes the gap, so that no probe ends early.
    #[inline]
    fn forget(&mut self, command_id: u16) {
        let mask = self.index.len() - 1;
        let mut at = home(command_id, mask);
        while (self.index[at] >> 16) as u16 != command_id || self.index[at] == 0 {
            at = (at + 1) & mask;
        }
        let mut gap = at;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry == 0 {
                break;
            }
            // An entry may move to the gap unless its home lies behind the gap, cyclically.
            let from_home = at.wrapping_sub(home((entry >> 16) as u16, mask)) & mask;
            if from_home >= (at.wrapping_sub(gap) & mask) {
                self.index[gap] = entry;
                gap = at;
            }
        }
        self.index[gap] = 0;
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.index.len() * 2).max(SMALLEST_INDEX);
        let old = core::mem::replace(&mut self.index, vec![0; size]);
        for entry in old.into_iter().filter(|entry| *entry != 0) {
            let mut at = home((entry >> 16) as u16, size - 1);
            while self.index[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.index[at] = entry;
        }
    }

    /// The slot of an outstanding CID.
    pub(super) fn find(&self, command_id: u16) -> Option<u16> {
        if self.len == 0 {
            return None;
        }
        let mask = self.index.len() - 1;
        let mut at = home(command_id, mask);
        while self.index[at] != 0 {
            if (self.index[at] >> 16) as u16 == command_id {
                return Some((self.index[at] as u16) - 1);
            }
            at = (at + 1) & mask;
        }
        None
    }

    #[inline]
    pub(super) fn command_id(&self, slot: u16) -> u16 {
        self.entries[usize::from(slot)].command_id
    }

    #[inline]
    pub(super) fn state(&mut self, slot: u16) -> &mut State {
        &mut self.entries[usize::from(slot)].state
    }

    /// A slot by a number that came from outside.
    #[inline]
    pub(super) fn get(&self, slot: u16) -> Option<&Slot> {
        self.entries.get(usize::from(slot))
    }

    /// Where the data of the command in `slot` go, if it was asked for data.
    #[inline]
    pub(super) fn incoming(&mut self, slot: u16) -> Option<&mut Incoming> {
        let data = match self.entries.get(usize::from(slot))?.state {
            State::Granted(_) | State::Pair(_) => slot,
            State::Second(first) => first,
            _ => return None,
        };
        let of_second = data != slot;
        match &mut self.entries[usize::from(data)].state {
            State::Granted(grant) => Some(&mut grant.data),
            State::Pair(pair) => {
                Some(if of_second { &mut pair.replacement } else { &mut pair.expected })
            }
            _ => None,
        }
    }

    /// The numbers of all slots, free ones too.
    pub(super) fn numbers(&self) -> core::ops::Range<u16> {
        0..self.entries.len() as u16
    }

    /// Gives all memory back; nothing may be outstanding.
    pub(super) fn shrink(&mut self) {
        assert!(self.len == 0, "{} commands would be lost", self.len);
        *self = Slots::default();
    }
}

/// Where a CID is looked for first: hosts count CIDs up, some with a generation in the high bits, and the golden
/// ratio spreads both.
#[inline]
fn home(command_id: u16, mask: usize) -> usize {
    (u32::from(command_id).wrapping_mul(0x9e37_79b1) >> 16) as usize & mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::random::Random;

    #[test]
    fn a_cid_in_use_is_refused_until_its_command_is_answered() {
        let mut slots = Slots::default();
        let a = slots.insert(7, State::Admin(0)).expect("free");
        assert!(slots.insert(7, State::Admin(0)).is_none());
        slots.remove(a);
        assert!(slots.insert(7, State::Admin(0)).is_some());
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn the_index_finds_all_that_is_outstanding_and_nothing_else() {
        let mut slots = Slots::default();
        let mut random = Random::new(1);
        let mut held = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            // Few bits in odd places, so that homes collide.
            let command_id = (random.below(40) * 0x0403) as u16;
            if let Some(slot) = held.remove(&command_id) {
                assert_eq!(slots.find(command_id), Some(slot));
                slots.remove(slot);
                assert_eq!(slots.find(command_id), None);
            } else {
                let slot = slots.insert(command_id, State::Admin(0)).expect("free");
                held.insert(command_id, slot);
            }
            assert_eq!(slots.len() as usize, held.len());
            for (command_id, slot) in &held {
                assert_eq!(slots.find(*command_id), Some(*slot));
            }
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 24, "{}", size_of::<Slot>());
    }
}
