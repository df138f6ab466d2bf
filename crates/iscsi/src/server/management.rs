//! Task management: what is to become of other tasks.
//!
//! A function is answered when nothing that it concerns will reach the media any more: tasks that
//! wait for memory or data are dropped at once, those that are with the volume are awaited. None of
//! them is answered itself. A task set is one nexus's (TST 001b), so CLEAR TASK SET is ABORT TASK
//! SET. A reset concerns all sessions, which the targets reach ([`Targets::reset`]); one of a whole
//! target is refused to a host that may not use all of its logical units. PREEMPT AND
//! ABORT ends tasks of other sessions in the same way. Spec: RFC 7143, 11.5 and 11.6; SAM-5, 7.
//!
//! [`Targets::reset`]: crate::targets::Targets::reset

use block::limits::DIRECT_ALONE_MIN;
use wire::iscsi::{TaskFunction, TaskManagementRequest, TaskManagementResponse, TaskResponse};
use wire::scsi::Lun;

use super::slots::TaskState;
use super::{Connection, Context};
use crate::targets::SessionHandle;

/// What waits for tasks to end.
#[derive(Debug)]
pub(super) struct Management {
    who: Who,
    /// The slots of the tasks.
    waits_for: Vec<u16>,
}

/// Who is told.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// The host, by the request of this task tag.
    Host { tag: u32, is_immediate: bool },
    /// The targets: the tasks of this LUN, or of all, have ended.
    Targets { session: SessionHandle, lun: Option<u16> },
    /// Nobody: the shard sees what is below.
    Nobody,
}

/// What a function asks for.
enum Asked {
    /// That these tasks end.
    Tasks(Vec<u16>),
    /// A reset of a LUN or of all.
    Reset { lun: Option<u16>, is_cold: bool },
}

impl Connection {
    /// Carries out a function that has taken its turn.
    pub(super) fn manage(&mut self, request: &TaskManagementRequest, ctx: &mut Context<'_>) {
        let tag = request.initiator_task_tag;
        let is_immediate = request.operation.is_immediate();
        let Some(session) = self.state.session() else {
            return self.answer_management(tag, is_immediate, TaskResponse::REJECTED);
        };
        match self.asked(session, request, ctx) {
            Ok(Asked::Tasks(slots)) => self.end_tasks(Who::Host { tag, is_immediate }, slots, ctx),
            Ok(Asked::Reset { lun, is_cold }) => {
                self.resets.push((tag, is_immediate));
                ctx.shared.reset(session, tag, lun, is_cold);
            }
            Err(response) => self.answer_management(tag, is_immediate, response),
        }
    }

    /// What a function asks for, or its answer.
    fn asked(
        &mut self,
        session: SessionHandle,
        request: &TaskManagementRequest,
        ctx: &Context<'_>,
    ) -> Result<Asked, TaskResponse> {
        let lun = Lun(request.lun).number();
        let unit = lun.filter(|lun| ctx.shared.unit(session, *lun).is_some());
        match request.function() {
            TaskFunction::ABORT_TASK => {
                let found = self.slots.find(request.referenced_task_tag);
                let found = found.filter(|slot| Some(self.slots.task(*slot).lun) == lun);
                // One that is not there was answered before: on one connection none is missing.
                Ok(Asked::Tasks(vec![found.ok_or(TaskResponse::NO_SUCH_TASK)?]))
            }
            TaskFunction::ABORT_TASK_SET | TaskFunction::CLEAR_TASK_SET => {
                let lun = unit.ok_or(TaskResponse::NO_SUCH_LUN)?;
                Ok(Asked::Tasks(self.tasks_of(Some(lun), false)))
            }
            TaskFunction::LOGICAL_UNIT_RESET => {
                let lun = Some(unit.ok_or(TaskResponse::NO_SUCH_LUN)?);
                Ok(Asked::Reset { lun, is_cold: false })
            }
            TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET => {
                // It would reach through the masks to the tasks of others.
                if ctx.shared.is_masked(session) {
                    return Err(TaskResponse::AUTHORIZATION_FAILED);
                }
                let is_cold = request.function() == TaskFunction::TARGET_COLD_RESET;
                Ok(Asked::Reset { lun: None, is_cold })
            }
            TaskFunction::TASK_REASSIGN => Err(TaskResponse::REASSIGNMENT_NOT_SUPPORTED),
            _ => Err(TaskResponse::NOT_SUPPORTED),
        }
    }

    /// The slots of the tasks of a LUN, or of all; with those that copy from or to it, if told so.
    fn tasks_of(&mut self, lun: Option<u16>, with_copies: bool) -> Vec<u16> {
        let mut slots = self.slots.taken();
        slots.retain(|slot| {
            lun.is_none_or(|lun| {
                self.slots.task(*slot).lun == lun
                    || (with_copies && self.copies.concerns(*slot, lun))
            })
        });
        slots
    }

    /// The targets want all tasks of a LUN, or of all, to end.
    pub(super) fn abort_for_reset(
        &mut self,
        session: SessionHandle,
        lun: Option<u16>,
        ctx: &mut Context<'_>,
    ) {
        // Of one that ends or has ended the targets hear by itself.
        if self.state.session() == Some(session) {
            self.copies.forget(lun);
            let slots = self.tasks_of(lun, true);
            self.end_tasks(Who::Targets { session, lun }, slots, ctx);
        }
    }

    /// Somebody has preempted the host's registration, and its tasks of a LUN.
    pub(super) fn end_tasks_of(&mut self, lun: u16, ctx: &mut Context<'_>) {
        if self.state.session().is_some() {
            let slots = self.tasks_of(Some(lun), true);
            self.end_tasks(Who::Nobody, slots, ctx);
        }
    }

    /// A reset that this host asked for is over.
    pub(super) fn reset_is_done(&mut self, tag: u32) {
        let Some(at) = self.resets.iter().position(|(other, _)| *other == tag) else { return };
        let (_, is_immediate) = self.resets.remove(at);
        if self.is_open() {
            self.answer_management(tag, is_immediate, TaskResponse::COMPLETE);
        }
    }

    fn end_tasks(&mut self, who: Who, slots: Vec<u16>, ctx: &mut Context<'_>) {
        let waits_for = slots.into_iter().filter(|slot| !self.abort(*slot, ctx)).collect();
        self.managements.push(Management { who, waits_for });
        self.managements_may_be_over(ctx);
    }

    /// Ends a task. False when it is with the volume, or its data are on their way into its buffer:
    /// then it ends when they come back.
    fn abort(&mut self, slot: u16, ctx: &mut Context<'_>) -> bool {
        self.slots.task(slot).is_aborted = true;
        if self.is_receiving(slot) {
            return false;
        }
        match self.slots.state(slot) {
            TaskState::Waiting(_) => self.leave_line(slot, ctx),
            TaskState::Granted(grant) => {
                let is_large = grant.data.length >= DIRECT_ALONE_MIN;
                self.intake.asked -= 1;
                self.intake.asked_large -= u32::from(is_large);
            }
            _ => {}
        }
        let is_immediate = self.slots.task(slot).is_immediate;
        let is_gone = self.drop_task(slot, ctx);
        if is_gone {
            self.outbox.forgotten(is_immediate);
        }
        is_gone
    }

    /// A task that was ended is gone.
    #[cold]
    pub(super) fn aborted_is_gone(&mut self, slot: u16, ctx: &mut Context<'_>) {
        for management in &mut self.managements {
            management.waits_for.retain(|other| *other != slot);
        }
        self.managements_may_be_over(ctx);
    }

    /// Who waits for tasks, and for nothing more, is told.
    fn managements_may_be_over(&mut self, ctx: &mut Context<'_>) {
        let is_over = |management: &mut Management| management.waits_for.is_empty();
        let over: Vec<Management> = self.managements.extract_if(.., is_over).collect();
        for Management { who, .. } in over {
            match who {
                Who::Host { tag, is_immediate } => {
                    self.answer_management(tag, is_immediate, TaskResponse::COMPLETE);
                }
                Who::Targets { session, lun } => ctx.shared.aborted(session, lun),
                Who::Nobody => {}
            }
        }
    }

    fn answer_management(&mut self, tag: u32, is_immediate: bool, response: TaskResponse) {
        self.outbox.answered(is_immediate);
        let numbers = self.outbox.numbers.of_status();
        self.outbox.push(&TaskManagementResponse::new(tag, response, numbers).emit(), &[]);
    }
}
