//! The tasks that a session has outstanding: a slot each, found by slot number from completions
//! (the ticket) and from the host's data (the target transfer tag).
//!
//! A transfer tag is the slot's number and a count of transfers, so that data for a task that was
//! aborted never reach another one in its slot. Slots grow to the most that were outstanding at
//! once and are given back while idle. Plain reads and writes of memory have none. Spec: RFC 7143,
//! 4.2.5, 11.8.

use block::checksum::Crc32c;
use block::{Buffer, Class, Instant, Memory};
use scsi::LogicalUnit;
use wire::iscsi::RESERVED_TAG;
use wire::scsi::{Cdb, ScsiStatus, Sense};

use super::memory::Need;
use super::order::Held;
use crate::target::UnitIdentity;

/// What is known of a task as long as it is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// Initiator task tag.
    pub(super) tag: u32,
    pub(super) cmd_sn: u32,
    /// Bytes that its initiator expects to be moved.
    pub(super) expected: u32,
    /// Bytes that it moves by its CDB.
    pub(super) length: u32,
    pub(super) lun: u16,
    /// R2Ts that it was sent.
    pub(super) r2ts: u32,
    /// Whether it stands outside the command window.
    pub(super) is_immediate: bool,
    /// Whether a task management function ended it: it is not answered.
    pub(super) is_aborted: bool,
    /// Whether its unit's sense data are in descriptor format (D_SENSE).
    pub(super) descriptor_sense: bool,
}

/// An outstanding task.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) task: Task,
    pub(super) state: TaskState,
}

/// Where a task stands.
///
/// ```text
///  command -- (a read, all data there) ---------------------> InFlight --> answered
///     |  `-- Waiting -- memory --> (a read) ----------------------^
///     |                 `--> Granted -- all data -----------------'
///     |---- (all data there) -- Changing -- decided --> answered
///     `---- Refused -- the data that come unasked --> answered
/// ```
#[derive(Debug)]
pub(super) enum TaskState {
    /// Nobody's.
    Free,
    /// In line for memory. A read is submitted then; a write asks for its data.
    Waiting(Box<Waiting>),
    /// Holds its whole buffer and takes data.
    Granted(Box<Grant>),
    /// With the volume.
    InFlight(Kind),
    /// Waits for older tasks, as task attributes ask for.
    Held(Box<Held>),
    /// Waits until the change that has this number is decided: of a reservation, of paths or of a mode.
    Changing(u64),
    /// Can only fail; its answer waits for the data that its host announced with it.
    Refused(Box<Refused>),
}

/// A task in line for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) judged: Judged,
    pub(super) need: Need,
}

/// A command that was judged and has to wait: when it starts it is judged anew, against the same
/// logical unit. Another one that has its LUN by now is none of its business.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) cdb: Cdb,
    pub(super) unit: UnitIdentity,
}

impl Judged {
    /// A command that was judged by a unit.
    #[inline]
    pub(super) fn of(cdb: Cdb, unit: &LogicalUnit) -> Judged {
        Judged { cdb, unit: UnitIdentity::of(unit) }
    }
}

/// A task whose data come from the host.
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
    /// Where they go, or their first half. Empty while a direct receive fills it.
    pub(super) buffer: Buffer,
    /// Where their second half goes, of a command whose data are two things, and what else it works
    /// with.
    pub(super) more: Vec<Buffer>,
    /// Bytes in all.
    pub(super) length: u32,
    /// Bytes that came; the next ones belong here.
    pub(super) received: u32,
    /// What is awaited now ends here.
    pub(super) until: u32,
    /// By which tag it comes: that of the R2T, or none for what comes unasked.
    pub(super) transfer_tag: u32,
    /// DataSN of the next PDU of it.
    pub(super) data_sn: u32,
    /// What was wrong with them.
    pub(super) flaw: Option<Sense>,
    /// When the last of them came, or were asked for.
    pub(super) since: Instant,
}

impl Incoming {
    /// Data of `length` bytes for the first of `buffers`, of which there is one at least; what does
    /// not fit it is for the second.
    pub(super) fn new(mut buffers: Vec<Buffer>, length: u32, now: Instant) -> Incoming {
        let buffer = buffers.remove(0);
        Incoming {
            buffer,
            more: buffers,
            length,
            received: 0,
            until: 0,
            transfer_tag: RESERVED_TAG,
            data_sn: 0,
            flaw: None,
            since: now,
        }
    }

    /// Puts bytes of the data where they belong.
    pub(super) fn write(&mut self, at: u32, bytes: &[u8], memory: &mut dyn Memory) {
        let first = self.buffer.len();
        let split = bytes.len().min(first.saturating_sub(at) as usize);
        if split > 0 {
            memory.write(&mut self.buffer, at, &bytes[..split]);
        }
        if split < bytes.len() {
            let at = at.max(first) - first;
            memory.write(&mut self.more[0], at, &bytes[split..]);
        }
    }

    /// The checksum of a part of the data that is there.
    pub(super) fn crc32c(&self, at: u32, length: u32, memory: &dyn Memory) -> Crc32c {
        let first = self.buffer.len();
        let split = length.min(first.saturating_sub(at));
        let mut running = Crc32c::new();
        if split > 0 {
            running = memory.crc32c(&self.buffer, at, split, running);
        }
        if split < length {
            let at = at.max(first) - first;
            running = memory.crc32c(&self.more[0], at, length - split, running);
        }
        running
    }

    /// The buffers, of which a direct receive may have one.
    pub(super) fn take_buffers(&mut self) -> Vec<Buffer> {
        let mut buffers = core::mem::take(&mut self.more);
        buffers.push(core::mem::take(&mut self.buffer));
        buffers
    }

    pub(super) fn is_whole(&self) -> bool {
        self.received == self.length
    }
}

/// What a task is answered once its unsolicited data have passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) status: ScsiStatus,
    pub(super) sense: Option<Sense>,
    pub(super) since: Instant,
}

/// What the completion of a task that was in flight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sends the buffer to the host.
    Read,
    /// Gives a buffer of this class back, if there is one.
    Plain(Class),
    /// Gives back what stands for the ranges of a discard, which is memory of this class.
    Ranges(Class),
    /// Is one of the requests of a command that has several, whose memory is of this class.
    Steps(Class),
    /// Is one of the requests of a copy, whose memory is of this class.
    Copy(Class),
}

/// The outstanding tasks of a session.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Slot>,
    free: Vec<u16>,
    /// Counts transfers.
    transfers: u16,
}

impl Slots {
    #[inline]
    pub(super) fn len(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    /// Gives the task a slot.
    #[inline]
    pub(super) fn insert(&mut self, task: Task, state: TaskState) -> u16 {
        let slot = Slot { task, state };
        match self.free.pop() {
            Some(free) => {
                self.entries[usize::from(free)] = slot;
                free
            }
            None => {
                self.entries.push(slot);
                (self.entries.len() - 1) as u16
            }
        }
    }

    /// Frees a slot, whose buffers were taken out before.
    #[inline]
    pub(super) fn remove(&mut self, slot: u16) -> Task {
        let entry = &mut self.entries[usize::from(slot)];
        assert!(!matches!(entry.state, TaskState::Free), "slot {slot} was freed twice");
        entry.state = TaskState::Free;
        self.free.push(slot);
        entry.task
    }

    #[inline]
    pub(super) fn task(&mut self, slot: u16) -> &mut Task {
        &mut self.entries[usize::from(slot)].task
    }

    #[inline]
    pub(super) fn state(&mut self, slot: u16) -> &mut TaskState {
        &mut self.entries[usize::from(slot)].state
    }

    /// A transfer tag for the task in `slot`, never the reserved one.
    pub(super) fn transfer_tag(&mut self, slot: u16) -> u32 {
        self.transfers = (self.transfers + 1) % u16::MAX;
        u32::from(self.transfers) << 16 | u32::from(slot)
    }

    /// The slot whose task has asked for data by this tag, which may come from outside.
    #[inline]
    pub(super) fn asked_by(&self, transfer_tag: u32) -> Option<u16> {
        let slot = transfer_tag as u16;
        match &self.entries.get(usize::from(slot))?.state {
            TaskState::Granted(grant) if grant.data.transfer_tag == transfer_tag => Some(slot),
            _ => None,
        }
    }

    /// The slot of an outstanding task: looks through all, so it is for what is rare.
    pub(super) fn find(&self, tag: u32) -> Option<u16> {
        let is_it = |slot: &Slot| slot.task.tag == tag && !matches!(slot.state, TaskState::Free);
        self.entries.iter().position(is_it).map(|slot| slot as u16)
    }

    /// The slot of the task that waits for the change of this number.
    pub(super) fn changing(&self, number: u64) -> Option<u16> {
        let is_it =
            |slot: &Slot| matches!(slot.state, TaskState::Changing(other) if other == number);
        self.entries.iter().position(is_it).map(|slot| slot as u16)
    }

    /// Where the data of the task in `slot` go, if it takes some.
    #[inline]
    pub(super) fn incoming(&mut self, slot: u16) -> Option<&mut Incoming> {
        match &mut self.entries.get_mut(usize::from(slot))?.state {
            TaskState::Granted(grant) => Some(&mut grant.data),
            _ => None,
        }
    }

    /// How tasks are, and slots without one.
    pub(super) fn states(&self) -> impl Iterator<Item = &TaskState> {
        self.entries.iter().map(|slot| &slot.state)
    }

    /// The slots of outstanding tasks.
    pub(super) fn taken(&self) -> Vec<u16> {
        let taken = self.entries.iter().enumerate();
        let taken = taken.filter(|(_, slot)| !matches!(slot.state, TaskState::Free));
        taken.map(|(number, _)| number as u16).collect()
    }

    /// Gives back what is not needed now: all of it if nothing is outstanding.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            self.entries = Vec::new();
            self.free = Vec::new();
        }
    }
}
