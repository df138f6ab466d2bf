//! The order that task attributes ask for, within one session and logical unit.
//!
//! An ORDERED task starts when all older ones have ended, and what comes after it when it has. HEAD
//! OF QUEUE waits for nobody. Everything else starts when it comes: QUEUE ALGORITHM MODIFIER is 1,
//! and TST says that a task set is one session's (SAM-5, 8; SPC-4, "Control mode page"). Commands
//! that only tell of the device are answered when they come. A command that is held keeps its data
//! in the memory of transfers, since it may hang on its host; without memory, or behind one that will
//! need some, it is answered TASK SET FULL. What is due is started at the end of the turn.

use block::Class;
use scsi::{Payload, Work};
use wire::iscsi::TaskAttribute;
use wire::scsi::ScsiStatus;

use super::command::Asked;
use super::memory::Need;
use super::slots::{Incoming, Judged, Kind, TaskState, Waiting};
use super::{Connection, Context, Ending};

/// Who is held, and by whom.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Held tasks in the order in which they came: slot, LUN, whether it is ORDERED.
    held: Vec<(u16, u16, bool)>,
    /// ORDERED tasks that have started: slot and LUN.
    running: Vec<(u16, u16)>,
    /// Whether somebody may start.
    is_due: bool,
}

impl Order {
    /// Whether nobody is held or holds: nearly always.
    #[inline]
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.running.is_empty()
    }

    fn concerns(&self, lun: u16) -> bool {
        self.held.iter().any(|(_, other, _)| *other == lun)
            || self.running.iter().any(|(_, other)| *other == lun)
    }

    /// A task has ended.
    #[inline]
    pub(super) fn task_is_gone(&mut self, slot: u16) {
        if !self.is_empty() {
            self.held.retain(|(other, ..)| *other != slot);
            self.running.retain(|(other, _)| *other != slot);
            self.is_due = true;
        }
    }
}

/// A command that was judged and is held.
#[derive(Debug)]
pub(super) struct Held {
    judged: Judged,
    need: Need,
    /// Its data, if it has some and all of them came with it.
    data: Option<Incoming>,
}

impl Held {
    pub(super) fn data(&mut self) -> Option<&mut Incoming> {
        self.data.as_mut()
    }
}

impl Connection {
    /// Whether a command of this attribute has to wait for others, or others for it.
    #[inline]
    pub(super) fn has_order(&self, attribute: TaskAttribute, lun: u16) -> bool {
        let is_ordered = attribute == TaskAttribute::ORDERED;
        (is_ordered || !self.order.is_empty())
            && attribute != TaskAttribute::HEAD_OF_QUEUE
            && (is_ordered || self.order.concerns(lun))
    }

    /// Whether a command of which nothing can be held may start now: nobody has to wait for another.
    #[cold]
    fn may_start(&mut self, attribute: TaskAttribute, lun: u16) -> bool {
        attribute == TaskAttribute::ORDERED && !self.order.concerns(lun) && !self.has_started(lun)
    }

    /// Begins a command whose data come piece by piece with it, if it is its turn: they are not held.
    #[inline]
    pub(super) fn check_turn(&mut self, attribute: TaskAttribute, lun: u16) -> Result<(), Ending> {
        match self.has_order(attribute, lun) && !self.may_start(attribute, lun) {
            true => Err(Ending::FULL),
            false => Ok(()),
        }
    }

    /// A command has started whose turn it was: what comes after it waits, if it is ORDERED.
    #[inline]
    pub(super) fn has_begun(&mut self, attribute: TaskAttribute, slot: u16) {
        if attribute == TaskAttribute::ORDERED {
            let lun = self.slots.task(slot).lun;
            self.order.running.push((slot, lun));
        }
    }

    /// Holds a command that was judged until it is its turn.
    #[cold]
    pub(super) fn hold(
        &mut self,
        asked: &Asked<'_>,
        judged: Judged,
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        let length = asked.task.length;
        let need = match work.payload() {
            Payload::ToHost(length) => Need { length, phase: work.phase(), count: 1 },
            _ => Need::of(&work, &asked.cdb, length),
        };
        let came = asked.data.len() as u32;
        let takes_data = matches!(work.payload(), Payload::FromHost(_));
        if !asked.is_final || (came > 0 && (!takes_data || came != length)) {
            return Err(Ending::bare(ScsiStatus::TASK_SET_FULL));
        }
        if came > 0 && !self.parameters.immediate_data {
            return Err(Ending::UNEXPECTED_DATA);
        }
        // Who is held and will need memory may get it only once this session holds none: data that are
        // held behind it would keep it from that for ever.
        if came > 0 && self.somebody_held_needs_memory() {
            return Err(Ending::bare(ScsiStatus::TASK_SET_FULL));
        }
        let data = match came {
            0 => None,
            _ => {
                let buffers = self.transfer_buffers(need, ctx);
                let buffers = buffers.ok_or(Ending::bare(ScsiStatus::TASK_SET_FULL))?;
                let mut data = Incoming::new(buffers, length, ctx.now);
                data.write(0, asked.data, ctx.memory);
                Some(data)
            }
        };
        self.take_loans(ctx);
        let held = Box::new(Held { judged, need, data });
        let slot = self.slots.insert(asked.task, TaskState::Held(held));
        let is_ordered = asked.attribute == TaskAttribute::ORDERED;
        self.order.held.push((slot, asked.task.lun, is_ordered));
        self.order.is_due = true;
        Ok(true)
    }

    /// Starts whose turn it is.
    #[inline]
    pub(super) fn start_held(&mut self, ctx: &mut Context<'_>) {
        while core::mem::take(&mut self.order.is_due) {
            self.start_due(ctx);
        }
    }

    #[cold]
    fn start_due(&mut self, ctx: &mut Context<'_>) {
        for (slot, lun, is_ordered) in self.order.held.clone() {
            let is_first = self.order.held.iter().find(|(_, other, _)| *other == lun)
                == Some(&(slot, lun, is_ordered));
            let is_behind = self.order.running.iter().any(|(_, other)| *other == lun);
            if !is_first || is_behind || (is_ordered && self.has_started(lun)) {
                continue;
            }
            self.order.held.retain(|(other, ..)| *other != slot);
            if is_ordered {
                self.order.running.push((slot, lun));
            }
            self.start_one(slot, ctx);
        }
    }

    fn somebody_held_needs_memory(&mut self) -> bool {
        let Connection { order, slots, .. } = self;
        order.held.iter().any(|(slot, ..)| match slots.state(*slot) {
            TaskState::Held(held) => held.data.is_none() && held.need.pages() > 0,
            _ => false,
        })
    }

    /// Whether a task of the LUN is outstanding that is not held.
    fn has_started(&mut self, lun: u16) -> bool {
        self.slots.taken().into_iter().any(|slot| {
            self.slots.task(slot).lun == lun
                && !matches!(self.slots.state(slot), TaskState::Held(_))
        })
    }

    fn start_one(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let started = TaskState::InFlight(Kind::Plain(Class::Transfer));
        let TaskState::Held(held) = core::mem::replace(self.slots.state(slot), started) else {
            panic!("slot {slot} is held");
        };
        let Held { judged, need, data } = *held;
        let lun = self.slots.task(slot).lun;
        let (volume, work) = match self.judge_again(lun, &judged, ctx) {
            Ok(found) => found,
            Err(refusal) => {
                if let Some(data) = data {
                    self.give_data(data, Class::Transfer, ctx);
                }
                return self.end(slot, refusal, ctx);
            }
        };
        match (data, work.payload()) {
            (Some(data), _) => {
                self.carry_out(slot, (volume, work), &judged, data, Class::Transfer, ctx);
            }
            (None, Payload::None) if matches!(work, Work::Hold | Work::EndHold) => {
                self.change_hold(slot, volume, work, ctx);
            }
            (None, Payload::None) if work == Work::LbaStatus => {
                self.begin_search(slot, volume, judged, ctx);
            }
            (None, Payload::None) => {
                self.submit(slot, volume, work.operation(block::Buffer::empty()), ctx);
            }
            (None, _) => {
                let waiting = Box::new(Waiting { judged, need });
                *self.slots.state(slot) = TaskState::Waiting(waiting);
                self.join_line(slot, ctx);
            }
        }
    }
}
