//! Commands about reservations: changes are proposed and answered once they are decided, Report is
//! answered at once from what is in force; and what waits here of a host whose commands somebody
//! ended.
//!
//! A command whose change is being decided has a slot and nothing else. If the connection ends
//! meanwhile, the change may be made all the same, and its answer is dropped. Spec: NVMe base,
//! "Reservation Register command" to "Reservation Report command", "Preempting a Reservation".

use block::VolumeId;
use wire::nvme::{Command, Status};

use super::receive::Stream;
use super::slots::CommandState;
use super::{Connection, Context};
use crate::reservations;

impl Connection {
    /// Proposes the change that a command asks for with its data; `slot` is where it waited for
    /// them, if it did.
    pub(super) fn propose(
        &mut self,
        slot: Option<u16>,
        command: &Command,
        volume: VolumeId,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), Status> {
        let by = self.state.queue().and_then(|queue| ctx.shared.applicant(queue.view.handle));
        let change = reservations::change(command, data, by)?;
        let slot = self.place(slot, command, CommandState::Proposed);
        ctx.shared.propose(self.key(), slot, volume, change);
        Ok(())
    }

    /// The change of the command in `slot` was decided. The command is gone if the connection ends.
    pub(super) fn decided(&mut self, slot: u16, status: Status) {
        if !self.is_open() {
            return;
        }
        let state = self.slots.state(slot);
        assert!(
            matches!(state, CommandState::Proposed),
            "slot {slot} waits for no change: {state:?}"
        );
        self.finish(slot, status);
    }

    /// Reservation Report. It stops the stream while too much of other answers is unsent: replies
    /// are not counted in the pool.
    pub(super) fn report(
        &mut self,
        command: &Command,
        volume: VolumeId,
        bytes: u32,
        ctx: &Context<'_>,
    ) -> bool {
        if self.outbox.is_crowded() {
            self.intake.stream = Stream::Unread;
            return false;
        }
        let id = self.state.queue().and_then(|queue| ctx.shared.host_id(queue.view.handle));
        let own = self.registrant.zip(id);
        let data = reservations::report(ctx.reservations.get(volume), bytes, own);
        self.counters.sent_bytes += u64::from(data.len());
        self.outbox.push_reply_data(command.command_id(), &data, self.digests);
        self.answer(command.command_id(), Status::SUCCESS);
        true
    }

    /// Somebody preempted the host's registration with a volume, and its commands: none of those
    /// that wait here goes below any more. One in line for memory ends now; one whose data are on
    /// their way, which have to belong to something, once they came. A capsule before which the
    /// stream stopped is as one that has not come.
    pub(super) fn preempted(&mut self, volume: VolumeId, ctx: &mut Context<'_>) {
        if !self.is_open() {
            return;
        }
        for slot in self.slots.numbers() {
            let Some(judged) = self.slots.judged_io(slot) else { continue };
            let namespace = judged.namespace_again(ctx);
            if !namespace.is_ok_and(|namespace| namespace.volume == volume) {
                continue;
            }
            judged.preempt();
            match self.slots.state(slot) {
                CommandState::Waiting(_) => {
                    self.leave_line(slot, ctx);
                    self.finish(slot, Status::PREEMPTED);
                }
                CommandState::Pair(_) => self.preempt_pair(slot, ctx),
                _ => {}
            }
        }
    }
}
