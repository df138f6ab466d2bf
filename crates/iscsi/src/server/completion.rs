//! What comes back: completions from the volumes become answers, batches that left give their
//! buffers back.

use block::{Buffer, Class, Completion, Landing, Loan, Outcome};
use contract::SendBatch;
use wire::scsi::ScsiStatus;

use super::receive::Stream;
use super::slots::{Kind, Task, TaskState};
use super::{Connection, Context, Ending};

impl Connection {
    /// A request came back. Its ticket must be one of this connection's.
    pub fn handle_completion(&mut self, completion: Completion, ctx: &mut Context<'_>) {
        self.in_flight -= 1;
        let slot = completion.ticket.slot as u16;
        let &mut TaskState::InFlight(kind) = self.slots.state(slot) else {
            panic!("a completion came for slot {slot}, which is not in flight");
        };
        match kind {
            Kind::Read => self.read_done(slot, completion.outcome, completion.buffer, ctx),
            Kind::Steps(class) => self.step_done(slot, class, completion, ctx),
            Kind::Copy(class) => self.copy_part_done(slot, class, completion, ctx),
            Kind::Plain(class) | Kind::Ranges(class) => {
                let Completion { outcome, buffer, expected, .. } = completion;
                self.give(buffer, class, ctx);
                if let Some(expected) = expected {
                    self.give(*expected, class, ctx);
                }
                if let Kind::Ranges(_) = kind {
                    let memory = self.ranges.remove(&slot);
                    let memory = memory.expect("a discard keeps memory for its ranges");
                    self.give(memory, class, ctx);
                }
                self.end(slot, ending_of(outcome), ctx);
            }
        }
    }

    #[inline]
    fn read_done(&mut self, slot: u16, outcome: Outcome, buffer: Buffer, ctx: &mut Context<'_>) {
        if !outcome.is_done() || self.slots.task(slot).is_aborted || !self.is_open() {
            self.give(buffer, Class::Transfer, ctx);
            return self.end(slot, ending_of(outcome), ctx);
        }
        let task = self.slots.remove(slot);
        self.order.task_is_gone(slot);
        self.send_read(&task, buffer, ctx);
    }

    /// What a read asked for goes to the host, and with it the answer.
    #[inline]
    fn send_read(&mut self, task: &Task, buffer: Buffer, ctx: &mut Context<'_>) {
        self.counters.sent_bytes += u64::from(task.length.min(task.expected));
        self.outbox.push_read(task, buffer, ctx.memory);
    }

    /// Answers the reads whose data can be lent.
    pub(super) fn take_loans(&mut self, ctx: &mut Context<'_>) {
        let mut loans = core::mem::take(&mut self.intake.loans);
        Loan::prefetch(&loans, ctx.memory);
        for loan in loans.drain(..) {
            self.traffic.read(loan.extent.length.0);
            let (task, buffer) = loan.lend(ctx.memory);
            self.send_read(&task, buffer, ctx);
        }
        self.intake.loans = loans;
    }

    /// Has the writes land that found where, and answers them.
    pub(super) fn take_landings(&mut self, received: &[u8], ctx: &mut Context<'_>) {
        let mut landings = core::mem::take(&mut self.intake.landings);
        let mut tasks = core::mem::take(&mut self.intake.landing_tasks);
        ctx.memory.land_all(&landings, received);
        for (landing, task) in landings.drain(..).zip(tasks.drain(..)) {
            let Landing { volume, disk, extent, .. } = landing;
            self.traffic.wrote(extent.length.0);
            ctx.volumes.landed(volume, disk, extent.length);
            self.answer(&task, Ending::bare(ScsiStatus::GOOD));
        }
        self.intake.landings = landings;
        self.intake.landing_tasks = tasks;
    }

    /// Frees a slot that holds no memory and answers its task, if its host is to hear of it.
    #[inline]
    pub(super) fn end(&mut self, slot: u16, end: Ending, ctx: &mut Context<'_>) {
        let task = self.slots.remove(slot);
        self.order.task_is_gone(slot);
        if task.is_aborted {
            self.outbox.forgotten(task.is_immediate);
            self.aborted_is_gone(slot, ctx);
        } else if self.is_open() {
            self.answer(&task, end);
        }
        self.drained_maybe(ctx);
    }

    /// Answers a task that has no slot any more.
    #[inline]
    pub(super) fn answer(&mut self, task: &Task, end: Ending) {
        let Ending { status, sense } = end;
        self.counters.failed += u64::from(status != ScsiStatus::GOOD);
        self.outbox.push_response(task, status, sense);
    }

    /// Gives a buffer back to the account that it is of.
    #[inline]
    pub(super) fn give(&mut self, buffer: Buffer, class: Class, ctx: &mut Context<'_>) {
        let account = match class {
            Class::Transfer => &mut self.transfers,
            Class::Immediate => &mut self.immediate,
        };
        ctx.pool.give(account, ctx.memory, buffer);
    }

    pub(super) fn give_all(&mut self, buffers: Vec<Buffer>, class: Class, ctx: &mut Context<'_>) {
        buffers.into_iter().for_each(|buffer| self.give(buffer, class, ctx));
    }

    /// The batch that was out has left.
    pub fn handle_sent(&mut self, batch: SendBatch, ctx: &mut Context<'_>) {
        let batch = self.take_back(batch, ctx);
        self.outbox.came_back(batch);
        if self.intake.stream == Stream::Unread && !self.outbox.is_crowded() {
            self.resume(ctx.now);
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
}

/// What a task is answered whose request ended so.
#[inline]
pub(super) fn ending_of(outcome: Outcome) -> Ending {
    let (status, sense) = scsi::status_of(outcome);
    Ending { status, sense }
}
