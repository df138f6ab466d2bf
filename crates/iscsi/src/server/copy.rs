//! EXTENDED COPY: its segments are copied part by part, each part a read and a write in the name of
//! its task; and RECEIVE COPY RESULTS, which tells how far a copy is or was.
//!
//! A copy holds the memory that its list came into: it stands for the parts, whose pages come from
//! there and go back to it. Before each request it is asked again whether it may be made: an abort, a
//! path that was closed, a reservation, a LUN that became another volume's or may no more be written
//! end the copy there. A task that copies from or to a LUN is one of those that a reset of that LUN
//! ends. Errors: COPY ABORTED with the number of the segment. Spec: SPC-4, "EXTENDED COPY(LID1)
//! command", "RECEIVE COPY STATUS(LID1) command". Not here: what a list asks for (`scsi`).

use std::collections::{BTreeMap, VecDeque};

use block::{Buffer, Class, Completion, Copying, Operation, planted};
use reservation::Access;
use scsi::limits::COPIES_KEPT;
use scsi::{CopyState, LogicalUnit};
use wire::scsi::{AdditionalSense, ScsiStatus, Sense};

use super::command::Asked;
use super::slots::{Incoming, Kind, TaskState};
use super::{Connection, Context, Ending};
use crate::target::UnitIdentity;

/// The copies of a session.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Those under way, by their slots.
    running: BTreeMap<u16, Copy>,
    /// Those that ended last, the newest at the back.
    kept: VecDeque<Kept>,
}

/// A copy under way.
#[derive(Debug)]
struct Copy {
    copying: Copying,
    /// Source and destination of each segment.
    ends: Vec<[End; 2]>,
    /// With what it ends behind the last segment, unless that is GOOD.
    flaw: Option<Sense>,
    /// The memory that stands for its parts.
    memory: Buffer,
    list_id: Option<u8>,
}

/// The LUN of a volume that a segment is copied from or to.
type End = (u16, UnitIdentity);

/// A copy that ended.
#[derive(Debug)]
struct Kept {
    lun: u16,
    list_id: u8,
    state: CopyState,
}

impl Copies {
    /// Whether the task in `slot` copies from or to a LUN.
    pub(super) fn concerns(&self, slot: u16, lun: u16) -> bool {
        let ends = self.running.get(&slot).map_or(&[][..], |copy| &copy.ends);
        ends.iter().flatten().any(|(other, _)| *other == lun)
    }

    /// A unit was reset, or all: nobody asks for its copies any more.
    pub(super) fn forget(&mut self, lun: Option<u16>) {
        self.kept.retain(|kept| lun.is_some_and(|lun| kept.lun != lun));
    }

    fn keep(&mut self, kept: Kept) {
        self.kept.retain(|older| (older.lun, older.list_id) != (kept.lun, kept.list_id));
        self.kept.push_back(kept);
        if self.kept.len() > COPIES_KEPT {
            self.kept.pop_front();
        }
    }
}

impl Connection {
    /// EXTENDED COPY, whose list is there, in `slot`.
    #[cold]
    pub(super) fn begin_copy(
        &mut self,
        slot: u16,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        let mut list = vec![0; data.length as usize];
        ctx.memory.read(&data.buffer, 0, &mut list);
        let memory = Buffer::reserved(data.buffer.len(), data.buffer.phase());
        ctx.memory.release(data.buffer);
        match self.copy_of(slot, &list, ctx) {
            Ok((copying, ends, flaw, list_id)) => {
                *self.slots.state(slot) = TaskState::InFlight(Kind::Copy(class));
                self.copies.running.insert(slot, Copy { copying, ends, flaw, memory, list_id });
                self.copy_goes_on(slot, class, Buffer::empty(), ctx);
            }
            Err(refusal) => {
                self.give(memory, class, ctx);
                self.end(slot, refusal, ctx);
            }
        }
    }

    /// What a list asks for, if it may be begun.
    #[expect(clippy::type_complexity, reason = "the parts of a copy")]
    fn copy_of(
        &mut self,
        slot: u16,
        list: &[u8],
        ctx: &Context<'_>,
    ) -> Result<(Copying, Vec<[End; 2]>, Option<Sense>, Option<u8>), Ending> {
        let session = self.state.session().ok_or(Ending::ABORTED)?;
        let luns = ctx.shared.luns(session);
        let found = luns.iter().filter_map(|&lun| Some((lun, ctx.shared.unit(session, lun)?)));
        let units: Vec<(u16, &LogicalUnit)> = found.collect();
        let order = scsi::copy(list, self.slots.task(slot).lun, &units)?;
        let is_busy = |copy: &Copy| copy.list_id.is_some() && copy.list_id == order.list_id;
        if self.copies.running.values().any(is_busy) {
            return Err(scsi::copy_in_progress().into());
        }
        let identity = |lun: u16| {
            let unit = units.iter().find(|(other, _)| *other == lun);
            (lun, UnitIdentity::of(unit.expect("a copy is among the units that it was given").1))
        };
        let ends = order.luns.iter().map(|ends| ends.map(identity)).collect();
        Ok((Copying::new(order.segments, false), ends, order.flaw, order.list_id))
    }

    /// A request of a copy came back.
    pub(super) fn copy_part_done(
        &mut self,
        slot: u16,
        class: Class,
        completion: Completion,
        ctx: &mut Context<'_>,
    ) {
        let Completion { outcome, buffer, .. } = completion;
        if outcome.is_done() {
            return self.copy_goes_on(slot, class, buffer, ctx);
        }
        ctx.memory.release(buffer);
        let segment = self.copy(slot).copying.segments_done();
        let failure = AdditionalSense::THIRD_PARTY_DEVICE_FAILURE;
        self.copy_ends(slot, class, scsi::copy_aborted(failure, segment).into(), ctx);
    }

    /// Asks for the next part, with what came of the one before, or ends the copy.
    fn copy_goes_on(&mut self, slot: u16, class: Class, came: Buffer, ctx: &mut Context<'_>) {
        let copy = self.copy(slot);
        let Some((volume, operation)) = copy.copying.go_on(came, ctx.memory) else {
            let end = copy.flaw.map_or(Ending::bare(ScsiStatus::GOOD), Ending::from);
            return self.copy_ends(slot, class, end, ctx);
        };
        match self.check_part(slot, &operation, ctx) {
            Ok(()) => self.submit(slot, volume, operation, ctx),
            Err(refusal) => {
                Copying::give_up(operation, ctx.memory);
                self.copy_ends(slot, class, refusal, ctx);
            }
        }
    }

    /// Whether a request of a copy may be made now.
    fn check_part(
        &mut self,
        slot: u16,
        operation: &Operation,
        ctx: &Context<'_>,
    ) -> Result<(), Ending> {
        if self.slots.task(slot).is_aborted {
            return Err(Ending::ABORTED);
        }
        if planted("copy-is-not-judged-again") {
            return Ok(());
        }
        scsi::check_blocks(ctx.paths.state(self.group))?;
        let copy = self.copy(slot);
        let segment = copy.copying.segments_done();
        let is_write = operation.changes_data();
        let (lun, identity) = copy.ends[segment][usize::from(is_write)];
        let aborted = |code| Ending::from(scsi::copy_aborted(code, segment));
        let unit = self.same_unit(lun, identity, ctx);
        let unit = unit.ok_or_else(|| aborted(AdditionalSense::COPY_TARGET_NOT_REACHABLE))?;
        if is_write {
            scsi::check_destination(unit).map_err(aborted)?;
        }
        let access = Some(Access::to_data(is_write));
        let allowed = self.check_reservation(unit.volume, access, ctx);
        allowed.map_err(|_| aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE))
    }

    /// A copy is over, and its task is answered.
    fn copy_ends(&mut self, slot: u16, class: Class, end: Ending, ctx: &mut Context<'_>) {
        let copy = self.copies.running.remove(&slot).expect("a copy is under way until it ends");
        let task = *self.slots.task(slot);
        if let Some(list_id) = copy.list_id.filter(|_| !task.is_aborted) {
            let state = CopyState { end: Some((end.status, end.sense)), ..copy.state() };
            self.copies.keep(Kept { lun: task.lun, list_id, state });
        }
        self.give(copy.memory, class, ctx);
        self.end(slot, end, ctx);
    }

    fn copy(&mut self, slot: u16) -> &mut Copy {
        self.copies.running.get_mut(&slot).expect("a copy is under way until it ends")
    }

    /// The data of RECEIVE COPY STATUS and FAILURE DETAILS.
    pub(super) fn copy_data(&mut self, asked: &Asked<'_>) -> Result<Vec<u8>, Ending> {
        let state = self.copy_state(asked.task.lun, asked.cdb.list_identifier());
        Ok(scsi::copy_results(&asked.cdb, state.as_ref(), asked.task.descriptor_sense)?)
    }

    /// How far the copy of this list is or was that a unit was asked for.
    fn copy_state(&mut self, lun: u16, list_id: u8) -> Option<CopyState> {
        let is_it = |copy: &Copy| copy.list_id == Some(list_id);
        let under_way = self.copies.running.iter().find(|(_, copy)| is_it(copy));
        if let Some((&slot, copy)) = under_way {
            let state = copy.state();
            return (self.slots.task(slot).lun == lun).then_some(state);
        }
        let kept = self.copies.kept.iter();
        let mut kept = kept.filter(|kept| (kept.lun, kept.list_id) == (lun, list_id));
        kept.next().map(|kept| kept.state)
    }
}

impl Copy {
    fn state(&self) -> CopyState {
        let segments = self.copying.segments_done() as u16;
        CopyState { segments, bytes: self.copying.bytes_done(), end: None }
    }
}
