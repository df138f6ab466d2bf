//! What comes back: completions from the volumes become replies, batches that left give their
//! buffers back.

use block::{
    Buffer, Class, Completion, Failure, Landing, Loan, Operation, Outcome, VolumeId, planted,
};
use contract::SendBatch;
use wire::nvme::Status;

use super::receive::Stream;
use super::slots::{CommandState, InFlight, Kind};
use super::{Connection, Context};
use crate::status::{status_of, statuses_of_fused};

/// The slot in the ticket of a flush that no command asked for.
const SHUTDOWN_SLOT: u32 = u32::MAX;

impl Connection {
    /// The controllers want a volume flushed for a shutdown that came on this admin queue; they are
    /// told the outcome.
    pub(super) fn handle_flush(&mut self, volume: VolumeId, ctx: &mut Context<'_>) {
        if self.is_open() {
            self.submit(SHUTDOWN_SLOT, volume, Operation::Flush, ctx);
        } else {
            let outcome = Outcome::NotDone(Failure::Aborted);
            ctx.shared.flush_done(self.key(), outcome);
        }
    }

    /// A request came back. Its ticket must be one of this connection's.
    pub fn handle_completion(&mut self, completion: Completion, ctx: &mut Context<'_>) {
        let Completion { ticket, outcome, buffer, expected } = completion;
        self.in_flight -= 1;
        if ticket.slot == SHUTDOWN_SLOT {
            ctx.shared.flush_done(self.key(), outcome);
            return self.drained_maybe(ctx);
        }
        let slot = ticket.slot as u16;
        let &mut CommandState::InFlight(flight) = self.slots.state(slot) else {
            return self.part_done(slot, outcome, buffer, ctx);
        };
        if flight.parts == 1 && self.is_open() {
            match flight.kind {
                Kind::Read => return self.read_done(slot, outcome, buffer, ctx),
                Kind::Capsule => {
                    ctx.pool.give(&mut self.capsules, ctx.memory, buffer);
                    return self.finish(slot, status_of(outcome));
                }
                _ => {}
            }
        }
        self.other_done(slot, flight, outcome, buffer, expected.map(|buffer| *buffer), ctx);
    }

    #[inline]
    fn read_done(&mut self, slot: u16, outcome: Outcome, buffer: Buffer, ctx: &mut Context<'_>) {
        if !outcome.is_done() {
            ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
            return self.finish(slot, status_of(outcome));
        }
        let command_id = self.slots.remove(slot);
        self.send_read(command_id, buffer, ctx);
    }

    /// What a read asked for goes to the host, and with it the answer.
    #[inline]
    pub(super) fn send_read(&mut self, command_id: u16, buffer: Buffer, ctx: &mut Context<'_>) {
        self.counters.sent_bytes += u64::from(buffer.len());
        // SUCCESS stands for the response capsule, but would leave SQHD untold where the host
        // counts on it.
        let success = self.state.queue().is_some_and(|queue| queue.view.flow_control_off);
        self.outbox.push_data(command_id, buffer, success, self.digests, ctx.memory);
        if !success {
            self.answer(command_id, Status::SUCCESS);
        }
    }

    /// Answers the reads whose data can be lent.
    pub(super) fn take_loans(&mut self, ctx: &mut Context<'_>) {
        let mut loans = core::mem::take(&mut self.intake.loans);
        Loan::prefetch(&loans, ctx.memory);
        for loan in loans.drain(..) {
            self.traffic.read(loan.extent.length.0);
            let (command_id, buffer) = loan.lend(ctx.memory);
            self.send_read(command_id, buffer, ctx);
        }
        self.intake.loans = loans;
    }

    /// Has the writes land that found where, and answers them.
    pub(super) fn take_landings(&mut self, received: &[u8], ctx: &mut Context<'_>) {
        let mut landings = core::mem::take(&mut self.intake.landings);
        ctx.memory.land_all(&landings, received);
        for Landing { volume, disk, extent, who, .. } in landings.drain(..) {
            self.traffic.wrote(extent.length.0);
            ctx.volumes.landed(volume, disk, extent.length);
            self.answer(who, Status::SUCCESS);
        }
        self.intake.landings = landings;
    }

    fn other_done(
        &mut self,
        slot: u16,
        flight: InFlight,
        outcome: Outcome,
        buffer: Buffer,
        expected: Option<Buffer>,
        ctx: &mut Context<'_>,
    ) {
        let account = match flight.kind {
            Kind::Capsule | Kind::Ranges(Class::Immediate) | Kind::Pair(_, Class::Immediate) => {
                &mut self.capsules
            }
            Kind::Read
            | Kind::Transfer
            | Kind::Ranges(Class::Transfer)
            | Kind::Pair(_, Class::Transfer) => &mut self.transfers,
        };
        ctx.pool.give(account, ctx.memory, buffer);
        if let Some(expected) = expected {
            ctx.pool.give(account, ctx.memory, expected);
        }
        if let Kind::Ranges(_) = flight.kind {
            let ranges = self.ranges.remove(&slot).expect("a discard keeps memory for its ranges");
            ctx.pool.give(account, ctx.memory, ranges);
        }
        let status = if flight.status.is_success() { status_of(outcome) } else { flight.status };
        if flight.parts > 1 {
            let parts = flight.parts - 1;
            *self.slots.state(slot) = CommandState::InFlight(InFlight { parts, status, ..flight });
            return;
        }
        if !self.is_open() {
            self.slots.remove(slot);
            return self.drained_maybe(ctx);
        }
        let Kind::Pair(second, _) = flight.kind else { return self.finish(slot, status) };
        let (of_first, of_second) = statuses_of_fused(outcome);
        self.finish(slot, of_first);
        self.finish(second, of_second);
    }

    /// Frees a slot that holds no memory and answers its command.
    #[inline]
    pub(super) fn finish(&mut self, slot: u16, status: Status) {
        self.finish_with(slot, status, 0);
    }

    /// The same with a result.
    #[inline]
    pub(super) fn finish_with(&mut self, slot: u16, status: Status, result: u64) {
        if !status.is_success() {
            let origin = self.slots.origin(slot);
            self.note_failure(&origin, status);
        }
        let command_id = self.slots.remove(slot);
        self.answer_with(command_id, status, result);
    }

    /// The batch that was out has left.
    pub fn handle_sent(&mut self, batch: SendBatch, ctx: &mut Context<'_>) {
        let batch = self.take_back(batch, ctx);
        self.outbox.came_back(batch);
        if self.intake.stream == Stream::Unread && !self.outbox.is_crowded() {
            self.resume(ctx);
        }
    }

    /// The batch that is out made progress.
    pub fn handle_progress(&mut self, now: block::Instant) {
        self.outbox.progress(now);
    }

    /// Gives the buffers of a batch back.
    pub(super) fn take_back(&mut self, mut batch: SendBatch, ctx: &mut Context<'_>) -> SendBatch {
        ctx.pool.give_all(&mut self.transfers, ctx.memory, &mut batch.buffers);
        batch
    }

    /// Once it takes nothing more and nothing is in flight the controllers may go on with what
    /// waits for that. Asked when it ends and when a request came back after that, so it is told
    /// once.
    pub(super) fn drained_maybe(&mut self, ctx: &mut Context<'_>) {
        if !self.is_open() && (self.in_flight == 0 || planted("queue-is-drained-early")) {
            ctx.shared.queue_drained(ctx.now, self.key());
        }
    }
}
