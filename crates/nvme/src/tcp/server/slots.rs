//! The commands that a connection has outstanding: a slot each, found by slot number from
//! completions (the ticket) and from the host's data (TTAG). Whether a CID is in use: a few
//! commands are looked through, more have a bit for each CID.
//!
//! Slots grow to the most that were outstanding at once; they and the bits (8 KiB) are given back
//! while idle, so that an idle connection of depth 1024 holds nothing, and one that waits for
//! events next to nothing. Nothing allocates once grown.

use block::{Buffer, Class, Instant, planted};
use wire::nvme::{Command, Status};

use super::Context;
use super::copying::Copy;
use super::memory::Need;
use crate::controllers::QueueHandle;
use crate::controllers::health::Origin;
use crate::subsystem::{Namespace, NamespaceIdentity};

/// An outstanding command.
#[derive(Debug)]
pub(super) struct Slot {
    /// What the error log would say of it.
    pub(super) origin: Origin,
    pub(super) state: CommandState,
}

/// Where a command stands.
///
/// ```text
///            Waiting -- memory --> Granted -- all data --> InFlight --> answered
///               `-- (a read) --------------------------------^
///  capsule -----'-- Pair, Second -- both whole --------------'
///            |- Proposed (its data may have been granted) --> answered
///            |- Copying (its ranges may have been granted) --> answered
///            `- Controllers --> answered
/// ```
#[derive(Debug)]
pub(super) enum CommandState {
    /// Nobody's.
    Free,
    /// In line for memory. A read is submitted then; a write asks for its data.
    Waiting(Box<Waiting>),
    /// Holds its whole buffer and has asked for the data (R2T). Boxed, as `Waiting` is, because a
    /// slot of a small command is moved about a million times a second.
    Granted(Box<Grant>),
    /// The first of a fused pair, with the memory of both, or in line for it.
    Pair(Box<Pair>),
    /// The second of a fused pair; its data are kept by the first, in this slot.
    Second(u16),
    /// With the volume.
    InFlight(InFlight),
    /// A copy, of which one request is with the volume.
    Copying(Box<Copy>),
    /// With the controllers, which answer later; the host takes so many bytes of data.
    Controllers(u32),
    /// The change of a reservation that it asks for is being decided.
    Proposed,
}

/// A command in line for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) judged: Judged,
    pub(super) need: Need,
}

/// A command that was judged and has to wait: when it starts it is judged anew.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judged {
    /// For the controllers.
    Control(Command),
    Io(JudgedIo),
}

/// An I/O command that was judged and will be again. It is for the same namespace or for none:
/// another one that has its NSID by now is none of the command's business.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedIo {
    pub(super) command: Command,
    queue: QueueHandle,
    namespace: Option<NamespaceIdentity>,
    /// Whether somebody ended the commands of its host.
    preempted: bool,
}

impl Judged {
    /// The command.
    pub(super) fn command(&self) -> &Command {
        let (Judged::Control(command) | Judged::Io(JudgedIo { command, .. })) = self;
        command
    }
}

impl JudgedIo {
    pub(super) fn new(command: &Command, queue: QueueHandle, ctx: &Context<'_>) -> JudgedIo {
        let found = ctx.shared.namespace(queue, command.nsid());
        JudgedIo {
            command: *command,
            queue,
            namespace: found.map(Namespace::identity),
            preempted: false,
        }
    }

    /// Somebody ended the commands of its host: it does not start, or go on.
    pub(super) fn preempt(&mut self) {
        self.preempted = !planted("preempted-goes-on");
    }

    /// The namespace, if it may still be used.
    pub(super) fn namespace_again<'a>(
        &self,
        ctx: &'a Context<'_>,
    ) -> Result<&'a Namespace, Status> {
        ctx.shared.io_allowed(self.queue)?;
        if self.preempted {
            return Err(Status::PREEMPTED);
        }
        let found = ctx.shared.namespace(self.queue, self.command.nsid());
        let same = found.filter(|namespace| Some(namespace.identity()) == self.namespace);
        same.ok_or(Status::INVALID_NAMESPACE.with_dnr())
    }
}

/// A command whose data come from the host when asked.
#[derive(Debug)]
pub(super) struct Grant {
    /// The command, to be judged anew once its data are whole.
    pub(super) judged: Judged,
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
        Incoming::of(buffer.len(), buffer)
    }

    /// So many data, in memory that may be longer.
    pub(super) fn of(length: u32, buffer: Buffer) -> Incoming {
        Incoming { buffer, length, received: 0, corrupt: false, since: None }
    }

    /// Data that have no memory yet.
    pub(super) fn without_memory(length: u32) -> Incoming {
        Incoming::of(length, Buffer::empty())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.received == self.length
    }
}

/// A fused compare and write that is coming together.
#[derive(Debug)]
pub(super) struct Pair {
    /// The compare.
    pub(super) first: JudgedIo,
    pub(super) expected: Incoming,
    /// The write's slot and the write, once it came.
    pub(super) second: Option<(u16, Command)>,
    /// What it writes; the memory is taken with the first's, so that nobody waits while holding.
    pub(super) replacement: Incoming,
    /// The memory of both.
    pub(super) need: Need,
    /// Whose memory it is: of transfers, if data of either have to be asked for.
    pub(super) class: Class,
    /// Set when the first can only fail; it is answered once its data are whole.
    pub(super) fate: Option<Status>,
    /// When it came.
    pub(super) since: Instant,
}

impl Pair {
    /// Whether it is in line for memory: nothing was asked for, and something is missing.
    pub(super) fn is_in_line(&self) -> bool {
        self.expected.since.is_none() && !self.expected.is_whole()
    }
}

/// A command that the volume works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// Requests that have not come back.
    pub(super) parts: u16,
    /// What its answer does.
    pub(super) kind: Kind,
    /// The worst of what came back.
    pub(super) status: Status,
}

impl CommandState {
    /// With the volume by one request, nothing of which has come back.
    #[inline]
    pub(super) fn in_flight(kind: Kind) -> CommandState {
        CommandState::InFlight(InFlight { parts: 1, kind, status: Status::SUCCESS })
    }
}

/// What the completion of a command that was in flight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sends the buffer to the host.
    Read,
    /// Gives a buffer that came in a capsule back.
    Capsule,
    /// Gives a buffer that was granted back, if there is one.
    Transfer,
    /// Gives what stands for the ranges of a discard back, which is memory of this class.
    Ranges(Class),
    /// Answers both of a fused pair, whose second has this slot and whose memory is of this class.
    Pair(u16, Class),
}

/// The outstanding commands of a connection.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Slot>,
    free: Vec<u16>,
    /// A bit for each CID, set while its command is outstanding; empty while there are at most
    /// [`FEW`] slots. Hosts use few CIDs, side by side, so few lines of it are touched, and neither
    /// a hash nor a probe stands in the way of each command.
    in_use: Vec<u64>,
}

impl Slots {
    #[inline]
    pub(super) fn len(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    /// Whether a command with this CID is outstanding.
    #[inline]
    pub(super) fn holds(&self, command_id: u16) -> bool {
        let (word, bit) = place(command_id);
        match self.in_use.get(word) {
            Some(word) => word & bit != 0,
            None => self.position(command_id).is_some(),
        }
    }

    #[inline]
    fn position(&self, command_id: u16) -> Option<usize> {
        let is_it = |slot: &Slot| {
            slot.origin.command_id == command_id && !matches!(slot.state, CommandState::Free)
        };
        self.entries.iter().position(is_it)
    }

    /// Gives the command a slot. Its CID must not be in use.
    #[inline]
    pub(super) fn insert(&mut self, origin: Origin, state: CommandState) -> u16 {
        let command_id = origin.command_id;
        debug_assert!(!self.holds(command_id), "CID {command_id:#x} is in use");
        let slot = Slot { origin, state };
        let number = match self.free.pop() {
            Some(free) => {
                self.entries[usize::from(free)] = slot;
                free
            }
            None => {
                self.entries.push(slot);
                (self.entries.len() - 1) as u16
            }
        };
        let (word, bit) = place(command_id);
        match self.in_use.get_mut(word) {
            Some(word) => *word |= bit,
            None if self.entries.len() > FEW => self.take_bits(),
            None => {}
        }
        number
    }

    #[cold]
    fn take_bits(&mut self) {
        self.in_use = vec![0; CID_WORDS];
        for slot in self.entries.iter().filter(|slot| !matches!(slot.state, CommandState::Free)) {
            let (word, bit) = place(slot.origin.command_id);
            self.in_use[word] |= bit;
        }
    }

    /// Frees a slot, whose buffers were taken out before; returns its CID.
    #[inline]
    pub(super) fn remove(&mut self, slot: u16) -> u16 {
        let entry = &mut self.entries[usize::from(slot)];
        assert!(!matches!(entry.state, CommandState::Free), "slot {slot} was freed twice");
        entry.state = CommandState::Free;
        let command_id = entry.origin.command_id;
        let (word, bit) = place(command_id);
        if let Some(word) = self.in_use.get_mut(word) {
            *word &= !bit;
        }
        self.free.push(slot);
        command_id
    }

    /// The slot of an outstanding CID: looks through all slots, so it is for replies that come
    /// late, which are few.
    pub(super) fn find(&self, command_id: u16) -> Option<u16> {
        self.position(command_id).map(|slot| slot as u16)
    }

    #[inline]
    pub(super) fn command_id(&self, slot: u16) -> u16 {
        self.origin(slot).command_id
    }

    #[inline]
    pub(super) fn origin(&self, slot: u16) -> Origin {
        self.entries[usize::from(slot)].origin
    }

    #[inline]
    pub(super) fn state(&mut self, slot: u16) -> &mut CommandState {
        &mut self.entries[usize::from(slot)].state
    }

    /// The fused pair whose first is in `slot`.
    pub(super) fn pair(&mut self, slot: u16) -> &mut Pair {
        match self.state(slot) {
            CommandState::Pair(pair) => pair,
            state => panic!("slot {slot} holds no first of a pair but {state:?}"),
        }
    }

    /// The I/O command in `slot` that is to be judged anew, because it waits or is a copy; of a pair
    /// the first.
    pub(super) fn judged_io(&mut self, slot: u16) -> Option<&mut JudgedIo> {
        let judged = match self.state(slot) {
            CommandState::Waiting(waiting) => &mut waiting.judged,
            CommandState::Granted(grant) => &mut grant.judged,
            CommandState::Pair(pair) => return Some(&mut pair.first),
            CommandState::Copying(copy) => return Some(&mut copy.judged),
            _ => return None,
        };
        match judged {
            Judged::Io(judged) => Some(judged),
            Judged::Control(_) => None,
        }
    }

    /// Where the data of the command in `slot` go, if there is one that takes data. The number may
    /// come from outside.
    #[inline]
    pub(super) fn incoming(&mut self, slot: u16) -> Option<&mut Incoming> {
        let data = match self.entries.get(usize::from(slot))?.state {
            CommandState::Granted(_) | CommandState::Pair(_) => slot,
            CommandState::Second(first) => first,
            _ => return None,
        };
        let of_second = data != slot;
        match &mut self.entries[usize::from(data)].state {
            CommandState::Granted(grant) => Some(&mut grant.data),
            CommandState::Pair(pair) => {
                Some(if of_second { &mut pair.replacement } else { &mut pair.expected })
            }
            _ => None,
        }
    }

    /// The numbers of all slots, free ones too.
    pub(super) fn numbers(&self) -> core::ops::Range<u16> {
        0..self.entries.len() as u16
    }

    /// Gives back what is not needed now; all of it if nothing is outstanding.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            *self = Slots::default();
            return;
        }
        let last = self.entries.iter().rposition(|slot| !matches!(slot.state, CommandState::Free));
        self.entries.truncate(last.map_or(0, |last| last + 1));
        let left = self.entries.len();
        self.free.retain(|slot| usize::from(*slot) < left);
        self.entries.shrink_to_fit();
        self.free.shrink_to_fit();
        if left <= FEW {
            self.in_use = Vec::new();
        }
    }
}

/// Up to so many commands are looked through; most admin queues never have more.
const FEW: usize = 8;
/// Words that have a bit for each CID.
const CID_WORDS: usize = (1 << 16) / 64;

/// Where a CID's bit is.
#[inline]
fn place(command_id: u16) -> (usize, u64) {
    (usize::from(command_id >> 6), 1 << (command_id & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::random::Random;

    fn origin(command_id: u16) -> Origin {
        Origin { command_id, ..Origin::default() }
    }

    #[test]
    #[should_panic(expected = "is in use")]
    fn two_commands_with_one_cid_are_a_bug() {
        let mut slots = Slots::default();
        slots.insert(origin(7), CommandState::Controllers(0));
        slots.insert(origin(7), CommandState::Controllers(0));
    }

    #[test]
    fn what_is_outstanding_is_found_and_nothing_else() {
        let mut slots = Slots::default();
        let mut random = Random::new(1);
        let mut held = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let command_id = (random.below(40) * 0x0403) as u16;
            if let Some(slot) = held.remove(&command_id) {
                assert_eq!(slots.find(command_id), Some(slot));
                assert!(slots.holds(command_id));
                assert_eq!(slots.remove(slot), command_id);
                assert_eq!(slots.find(command_id), None);
                assert!(!slots.holds(command_id));
            } else {
                let slot = slots.insert(origin(command_id), CommandState::Controllers(0));
                held.insert(command_id, slot);
            }
            assert_eq!(slots.len() as usize, held.len());
            for (command_id, slot) in &held {
                assert_eq!(slots.find(*command_id), Some(*slot));
            }
        }
    }

    #[test]
    fn an_event_request_that_is_held_keeps_its_slot_alone() {
        let mut slots = Slots::default();
        let held = slots.insert(origin(3), CommandState::Controllers(0));
        let others: Vec<u16> =
            (10..90).map(|id| slots.insert(origin(id), CommandState::Controllers(0))).collect();
        assert!(!slots.in_use.is_empty());
        others.into_iter().for_each(|slot| {
            slots.remove(slot);
        });
        slots.shrink();
        assert!(slots.in_use.is_empty() && slots.entries.len() == 1 && slots.free.is_empty());
        assert!(slots.holds(3) && !slots.holds(10));
        assert_eq!(slots.find(3), Some(held));
        let next = slots.insert(origin(10), CommandState::Controllers(0));
        assert_ne!(next, held);
    }

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 32, "{}", size_of::<Slot>());
    }
}
