//! Copies within a namespace: a command that asks its volume part by part.
//!
//! The memory for it is granted as a whole before anything begins, and stands reserved until it is
//! answered; what the parts hold meanwhile is the memory's alone. Between two requests nothing of
//! the command is below, and it is judged as if it came then: a path, a reservation, a preemption or
//! a change of the namespace ends it there. Errors: the status of whatever ended it, and the lowest
//! number of a source range that is not copied whole as the result; all before that one are. Spec:
//! NVM command set 1.0, "Copy command". Not here: what is copied part by part, and in which order
//! ([`block::Copying`]); what the ranges may be (`io`).

use block::{Buffer, Class, CopySegment, Copying, Outcome, VolumeId, planted};
use wire::nvme::Status;

use super::slots::{CommandState, Judged, JudgedIo, Kind};
use super::{Connection, Context};
use crate::io;
use crate::status::status_of;

/// A copy that is being carried out.
#[derive(Debug)]
pub(super) struct Copy {
    /// The command, to be judged anew before each request.
    pub(super) judged: JudgedIo,
    copying: Copying,
    /// Where the last of its blocks end, in bytes of the volume.
    end: u64,
    /// Stands for what its parts hold; memory of this class.
    memory: Buffer,
    class: Class,
}

impl Connection {
    /// Begins a copy; `slot` is where it waited for its ranges, if it did. Takes memory that was
    /// granted for it, of this class, and has no pages.
    pub(super) fn begin_copy(
        &mut self,
        slot: Option<u16>,
        judged: JudgedIo,
        segments: Vec<CopySegment>,
        (memory, class): (Buffer, Class),
        ctx: &mut Context<'_>,
    ) {
        let command = judged.command;
        let ends = segments.iter().map(|CopySegment { source, destination }| {
            source.1.end().0.max(destination.1.0 + source.1.length.0)
        });
        let end = ends.max().unwrap_or_default();
        let copying = Copying::new(segments, command.force_unit_access());
        let copy = Copy { judged, copying, end, memory, class };
        let slot = self.place(slot, &command, CommandState::Copying(Box::new(copy)));
        self.copy_goes_on(slot, Buffer::empty(), ctx);
    }

    /// The ranges of a copy came, into the memory that was granted for it.
    pub(super) fn copy_granted(
        &mut self,
        slot: u16,
        judged: JudgedIo,
        data: &[u8],
        buffer: Buffer,
        ctx: &mut Context<'_>,
    ) {
        let found = judged.namespace_again(ctx);
        match found.and_then(|namespace| io::segments(&judged.command, data, namespace)) {
            Ok(segments) => {
                let memory = Buffer::reserved(buffer.len(), buffer.phase());
                ctx.memory.release(buffer);
                self.begin_copy(Some(slot), judged, segments, (memory, Class::Transfer), ctx);
            }
            Err(status) => {
                ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                self.finish(slot, status);
            }
        }
    }

    /// What the copy in `slot` asked for came back.
    pub(super) fn part_done(
        &mut self,
        slot: u16,
        outcome: Outcome,
        buffer: Buffer,
        ctx: &mut Context<'_>,
    ) {
        if outcome.is_done() && self.is_open() {
            return self.copy_goes_on(slot, buffer, ctx);
        }
        ctx.memory.release(buffer);
        self.copy_ends(slot, status_of(outcome), ctx);
    }

    /// Asks for the next part of the copy in `slot`, if it still may; `came` is what the one before
    /// brought.
    fn copy_goes_on(&mut self, slot: u16, came: Buffer, ctx: &mut Context<'_>) {
        let copy = self.copy(slot);
        let Some((volume, operation)) = copy.copying.go_on(came, ctx.memory) else {
            return self.copy_ends(slot, Status::SUCCESS, ctx);
        };
        let (judged, end) = (copy.judged, copy.end);
        let Err(status) = self.judge_copy_again(judged, volume, end, ctx) else {
            return self.submit(slot, volume, operation, ctx);
        };
        Copying::give_up(operation, ctx.memory);
        self.copy_ends(slot, status, ctx);
    }

    /// Whether a copy may go on with its volume.
    fn judge_copy_again(
        &self,
        judged: JudgedIo,
        volume: VolumeId,
        end: u64,
        ctx: &Context<'_>,
    ) -> Result<(), Status> {
        if planted("copy-is-not-judged-again") {
            return Ok(());
        }
        self.judge_again(&Judged::Io(judged), ctx)?;
        let namespace = judged.namespace_again(ctx)?;
        if namespace.volume != volume {
            // It was removed and is back: what was read is not known to be there any more.
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        }
        io::check_end(namespace, end)
    }

    /// Answers the copy in `slot`, of which nothing is below any more.
    fn copy_ends(&mut self, slot: u16, status: Status, ctx: &mut Context<'_>) {
        let done = CommandState::in_flight(Kind::Transfer);
        let CommandState::Copying(copy) = core::mem::replace(self.slots.state(slot), done) else {
            panic!("slot {slot} holds no copy");
        };
        let account = match copy.class {
            Class::Immediate => &mut self.capsules,
            Class::Transfer => &mut self.transfers,
        };
        ctx.pool.give(account, ctx.memory, copy.memory);
        if !self.is_open() {
            self.slots.remove(slot);
            return self.drained_maybe(ctx);
        }
        let not_copied = copy.copying.segments_done() as u64;
        let result = if status.is_success() { 0 } else { not_copied };
        self.finish_with(slot, status, result);
    }

    fn copy(&mut self, slot: u16) -> &mut Copy {
        match self.slots.state(slot) {
            CommandState::Copying(copy) => copy,
            state => panic!("slot {slot} holds no copy but {state:?}"),
        }
    }
}
