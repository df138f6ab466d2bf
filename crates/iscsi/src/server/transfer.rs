//! Commands whose data come from the host piece by piece: those with a part of them, or none, in
//! their PDU, and those with more than is taken in one piece.
//!
//! A command gets its whole buffer before any of its data is asked for: the grant. It waits for it in
//! line if nothing came with it; else it is answered TASK SET FULL, since nobody in the stream waits
//! for the memory of transfers. One R2T of a command is out at a time. Spec: RFC 7143, 4.2.5.2,
//! 11.7, 11.8. Not here: the data themselves (`host_data`), what is done once they are there
//! (`carry_out`).

use block::limits::DIRECT_ALONE_MIN;
use scsi::{Payload, Work};
use wire::iscsi::{RESERVED_TAG, ScsiCommand};
use wire::scsi::Lun;

use super::command::Asked;
use super::memory::Need;
use super::outbox::Transfer;
use super::receive::Step;
use super::slots::{Grant, Incoming, Judged, Task, TaskState};
use super::{Connection, Context, Ending};
use crate::limits::DATA_AFTER_R2T;
use crate::pdu_stream::PduHead;

impl Connection {
    /// A command whose data, or the rest of them, are still to come: it gets its whole buffer first,
    /// or waits for it if nothing came with it.
    pub(super) fn start_granted(
        &mut self,
        asked: &Asked<'_>,
        judged: Judged,
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        let (length, came) = (asked.task.length, asked.data.len() as u32);
        let is_agreed = (came == 0 || self.parameters.immediate_data)
            && (asked.is_final || !self.parameters.initial_r2t);
        if !is_agreed {
            return Err(Ending::UNEXPECTED_DATA);
        }
        if came > length || (came == length && !asked.is_final) {
            return Err(Ending::WRONG_FRAME);
        }
        let need = Need::of(&work, &asked.cdb, length);
        let Some(buffers) = self.transfer_buffers(need, ctx) else {
            if came > 0 || !asked.is_final {
                return Err(Ending::FULL);
            }
            self.wait(asked.task, judged, need);
            return Ok(true);
        };
        let mut data = Incoming::new(buffers, length, ctx.now);
        data.write(0, asked.data, ctx.memory);
        data.received = came;
        let slot =
            self.slots.insert(asked.task, TaskState::Granted(Box::new(Grant { judged, data })));
        match asked.is_final {
            true => self.ask_for_data(slot, ctx),
            false => self.await_data(slot, self.parameters.first_burst, ctx),
        }
        Ok(true)
    }

    /// A command with more data than are taken in one piece with it: they go where they belong as
    /// they come.
    pub(super) fn take_streamed(
        &mut self,
        command: &ScsiCommand,
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Step {
        let asked = Asked::new(command, &[]);
        let started = match self.check_usual(command, true) {
            Ok(()) => self.start_streamed(asked, head, ctx),
            Err(refusal) => Err((asked, refusal)),
        };
        match started {
            Ok(slot) => self.begin_part(slot, head, command.flags.is_final()),
            Err((asked, refusal)) => {
                self.refuse(&asked, refusal, ctx);
                self.pass(head)
            }
        }
    }

    fn start_streamed<'a>(
        &mut self,
        mut asked: Asked<'a>,
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<u16, (Asked<'a>, Ending)> {
        // All of it is data that come unasked, of which those in the first PDU are on their way.
        let is_final = core::mem::replace(&mut asked.is_final, false);
        let agreed = self.parameters.immediate_data && (is_final || !self.parameters.initial_r2t);
        let judged = match agreed {
            true => self.judge_streamed(&mut asked, ctx),
            false => Err(Ending::UNEXPECTED_DATA),
        };
        let found = judged.and_then(|(judged, work)| {
            let unasked = match is_final {
                true => head.data_length,
                false => asked.to_target.min(self.parameters.first_burst),
            };
            if unasked > asked.task.length || asked.task.length > asked.to_target {
                return Err(Ending::WRONG_FRAME);
            }
            let need = Need::of(&work, &asked.cdb, asked.task.length);
            Ok((judged, self.transfer_buffers(need, ctx).ok_or(Ending::FULL)?))
        });
        asked.is_final = is_final;
        let (judged, buffers) = match found {
            Ok(found) => found,
            Err(refusal) => return Err((asked, refusal)),
        };
        let data = Incoming::new(buffers, asked.task.length, ctx.now);
        let state = TaskState::Granted(Box::new(Grant { judged, data }));
        let slot = self.slots.insert(asked.task, state);
        self.has_begun(asked.attribute, slot);
        let until = if is_final { head.data_length } else { self.parameters.first_burst };
        self.await_data(slot, until, ctx);
        Ok(slot)
    }

    fn judge_streamed(
        &mut self,
        asked: &mut Asked<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(Judged, Work), Ending> {
        let unit = self.unit(asked, ctx).ok_or(Ending::NO_UNIT)?;
        let work = self.admit(asked, unit, ctx)?;
        let judged = Judged::of(asked.cdb, unit);
        let Payload::FromHost(length) = work.payload() else {
            return Err(Ending::UNEXPECTED_DATA);
        };
        asked.task.length = length;
        self.take_loans(ctx);
        self.check_turn(asked.attribute, asked.task.lun)?;
        Ok((judged, work))
    }

    /// Asks for the next data of the task in `slot`: the grant.
    pub(super) fn ask_for_data(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let transfer_tag = self.slots.transfer_tag(slot);
        let task = self.slots.task(slot);
        let Task { tag, lun, r2ts, .. } = *task;
        task.r2ts += 1;
        let data = self.slots.incoming(slot).expect("a task that takes data has a place for them");
        let offset = data.received;
        let length = (data.length - offset).min(self.parameters.max_burst);
        let transfer = Transfer { transfer_tag, r2t_sn: r2ts, offset, length };
        (data.transfer_tag, data.data_sn) = (transfer_tag, 0);
        self.outbox.push_r2t(Lun::of(lun).0, tag, &transfer);
        self.await_part(slot, offset + length, ctx);
    }

    /// Data of the task in `slot` come unasked, up to `until` in all.
    fn await_data(&mut self, slot: u16, until: u32, ctx: &mut Context<'_>) {
        let data = self.slots.incoming(slot).expect("a task that takes data has a place for them");
        data.transfer_tag = RESERVED_TAG;
        let until = until.min(data.length);
        self.await_part(slot, until, ctx);
    }

    fn await_part(&mut self, slot: u16, until: u32, ctx: &mut Context<'_>) {
        let data = self.slots.incoming(slot).expect("a task that takes data has a place for them");
        (data.until, data.since) = (until, ctx.now);
        let is_large = data.length >= DIRECT_ALONE_MIN;
        self.intake.asked += 1;
        self.intake.asked_large += u32::from(is_large);
        self.arm(ctx.now + DATA_AFTER_R2T);
    }
}
