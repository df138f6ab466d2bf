//! Fused compare and write: two commands, one behind the other on the same queue, that become one
//! request.
//!
//! The memory of both is taken with the first, so that a pair never waits for memory while it holds
//! some; their data come in the capsules or are asked for one by one. A pair that cannot be: either
//! command gets its own status, or 0x009 because its mate failed, or 0x00A because its mate is
//! missing. A first whose data are still on their way is answered once they came. A first whose
//! second does not come within the time for data fails with 0x00A. Spec: NVMe base, "Fused
//! Operations"; NVM command set, "Compare and Write".

use block::{Buffer, Extent, Operation, VolumeId};
use reservation::{Access, InForce};
use wire::nvme::command::Fuse;
use wire::nvme::{Command, Status};

use super::capsule::check_place;
use super::slots::{CommandState, Incoming, JudgedIo, Kind, Pair};
use super::{Connection, Context, Fused, State};
use crate::controllers::QueueHandle;
use crate::io;
use crate::limits::DATA_AFTER_R2T;
use crate::subsystem::Namespace;

impl Connection {
    /// A command that is part of a fused pair, follows the first of one, or came with corrupt data.
    /// False when it waits for memory.
    #[cold]
    pub(super) fn take_unusual(
        &mut self,
        command: &Command,
        data: &[u8],
        corrupt: bool,
        ctx: &mut Context<'_>,
    ) -> bool {
        let fused = self.note_fused(Fused::None);
        let queue = self.io_queue(command);
        let status = match (fused, command.fuse(), queue) {
            (Fused::Pending(first), Fuse::SECOND, Some(_)) => {
                self.take_second(first, command, data, corrupt, ctx);
                return true;
            }
            (Fused::Refused, Fuse::SECOND, Some(_)) => Status::FUSED_FAILED,
            (Fused::Pending(first), ..) => {
                self.fail_first(first, Status::FUSED_MISSING, ctx);
                return self.take_unusual(command, data, corrupt, ctx);
            }
            _ if corrupt => {
                self.counters.corrupt += 1;
                if command.fuse() == Fuse::FIRST {
                    self.note_fused(Fused::Refused);
                }
                Status::TRANSIENT_TRANSPORT_ERROR
            }
            (_, Fuse::NONE, _) => return self.take_plain(command, data, ctx),
            (_, Fuse::SECOND, Some(_)) => Status::FUSED_MISSING,
            (_, Fuse::FIRST, Some(queue)) => match self.take_first(queue, command, data, ctx) {
                Ok(taken) => return taken,
                Err(status) => {
                    self.note_fused(Fused::Refused);
                    status
                }
            },
            _ => Status::INVALID_FIELD.with_dnr(),
        };
        self.refuse(command, status);
        true
    }

    /// A command whose CID is in use. A pair that it belongs to, or comes in between of, is broken.
    #[cold]
    pub(super) fn take_conflicting(&mut self, command: &Command, ctx: &mut Context<'_>) {
        let is_first = command.fuse() == Fuse::FIRST;
        let after = if is_first { Fused::Refused } else { Fused::None };
        let before = self.note_fused(after);
        self.refuse(command, Status::COMMAND_ID_CONFLICT.with_dnr());
        if let Fused::Pending(first) = before {
            let is_second = command.fuse() == Fuse::SECOND;
            let fate = if is_second { Status::FUSED_FAILED } else { Status::FUSED_MISSING };
            self.fail_first(first, fate, ctx);
        }
    }

    /// Notes how the next command will see this one; returns how this one sees the last. Only I/O
    /// queues have pairs.
    pub(super) fn note_fused(&mut self, next: Fused) -> Fused {
        match &mut self.state {
            State::Io { fused, .. } => core::mem::replace(fused, next),
            _ => Fused::None,
        }
    }

    fn take_first(
        &mut self,
        queue: QueueHandle,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        let namespace = ctx.shared.command_heard(ctx.now, queue, command.nsid())?;
        io::check_pointer(command)?;
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
        let (_, extent) = self.judge_first(command, namespace, ctx.reservations)?;
        let in_capsule = check_place(command, data)?;
        let (length, phase) = (extent.length.0 as u32, io::phase(&extent));
        let Some((expected, replacement)) = self.pair_memory(length, phase, ctx) else {
            return Ok(false);
        };
        let mut pair = Pair {
            first: JudgedIo::new(command, queue, ctx),
            expected: Incoming::new(expected),
            second: None,
            replacement: Incoming::new(replacement),
            fate: None,
            since: ctx.now,
        };
        if in_capsule {
            fill(&mut pair.expected, data, ctx);
        }
        let slot = self.occupy(command, CommandState::Pair(Box::new(pair)));
        if !in_capsule {
            self.ask_for_data(slot, ctx);
        }
        self.note_fused(Fused::Pending(slot));
        self.arm(ctx.now + DATA_AFTER_R2T);
        Ok(true)
    }

    /// What a pair concerns, as its first says, if it may.
    fn judge_first(
        &self,
        command: &Command,
        namespace: &Namespace,
        reservations: &InForce,
    ) -> Result<(VolumeId, Extent), Status> {
        let extent = io::judge_fused_first(command, namespace)?;
        self.check_reservation(namespace.volume, Access::Write, reservations)?;
        Ok((namespace.volume, extent))
    }

    fn take_second(
        &mut self,
        first: u16,
        command: &Command,
        data: &[u8],
        corrupt: bool,
        ctx: &mut Context<'_>,
    ) {
        let pair = self.slots.pair(first);
        let place = io::check_pointer(command)
            .and_then(|()| io::check_fused(&pair.first.command, command))
            .and_then(|()| {
                let same_length = command.sgl().length == pair.replacement.length;
                if same_length { Ok(()) } else { Err(Status::INVALID_SGL_LENGTH.with_dnr()) }
            })
            .and_then(|()| check_place(command, data));
        let in_capsule = match place {
            _ if corrupt => {
                self.counters.corrupt += 1;
                self.refuse(command, Status::TRANSIENT_TRANSPORT_ERROR);
                return self.fail_first(first, Status::FUSED_FAILED, ctx);
            }
            Ok(in_capsule) => in_capsule,
            Err(status) => {
                self.refuse(command, status);
                let mismatch = io::check_fused(&self.slots.pair(first).first.command, command);
                let fate = mismatch.err().unwrap_or(Status::FUSED_FAILED);
                return self.fail_first(first, fate, ctx);
            }
        };
        if in_capsule {
            fill(&mut pair.replacement, data, ctx);
        }
        let second = self.occupy(command, CommandState::Second(first));
        self.slots.pair(first).second = Some((second, *command));
        if !in_capsule {
            self.ask_for_data(second, ctx);
        }
        self.try_pair(first, ctx);
    }

    /// The first of a pair will not get its second.
    pub(super) fn fail_first(&mut self, first: u16, fate: Status, ctx: &mut Context<'_>) {
        self.slots.pair(first).fate = Some(fate);
        self.try_pair(first, ctx);
    }

    /// Goes on with a pair if all that it waits for is there.
    pub(super) fn try_pair(&mut self, first: u16, ctx: &mut Context<'_>) {
        let pair = self.slots.pair(first);
        if !pair.expected.is_whole() {
            return;
        }
        if let Some(fate) = pair.fate {
            let corrupt = pair.expected.corrupt;
            self.dissolve(first, ctx);
            let status = if corrupt { Status::TRANSIENT_TRANSPORT_ERROR } else { fate };
            return self.finish(first, status);
        }
        let Some((second, write)) = pair.second.filter(|_| pair.replacement.is_whole()) else {
            return;
        };
        let compare = pair.first;
        let judged = match (pair.expected.corrupt, pair.replacement.corrupt) {
            (true, _) => Err((Status::TRANSIENT_TRANSPORT_ERROR, Status::FUSED_FAILED)),
            (_, true) => Err((Status::FUSED_FAILED, Status::TRANSIENT_TRANSPORT_ERROR)),
            // The namespace may have changed while the data were coming.
            _ => compare
                .namespace_again(ctx)
                .and_then(|it| self.judge_first(&compare.command, it, ctx.reservations))
                .map_err(|status| (status, Status::FUSED_FAILED)),
        };
        let (volume, extent) = match judged {
            Ok(judged) => judged,
            Err((of_first, of_second)) => {
                self.dissolve(first, ctx);
                self.finish(first, of_first);
                return self.finish(second, of_second);
            }
        };
        let (expected, replacement) = self.pair_buffers(first);
        let durable = write.force_unit_access() || compare.command.force_unit_access();
        *self.slots.state(first) = CommandState::in_flight(Kind::Pair(second));
        let expected = Box::new(expected);
        let operation = Operation::CompareAndWrite { extent, expected, replacement, durable };
        self.submit(first, volume, operation, ctx);
    }

    fn pair_buffers(&mut self, first: u16) -> (Buffer, Buffer) {
        let pair = self.slots.pair(first);
        let expected = core::mem::take(&mut pair.expected.buffer);
        (expected, core::mem::take(&mut pair.replacement.buffer))
    }

    /// Gives the memory of a pair back.
    pub(super) fn dissolve(&mut self, first: u16, ctx: &mut Context<'_>) {
        let (expected, replacement) = self.pair_buffers(first);
        ctx.pool.give(&mut self.capsules, ctx.memory, expected);
        ctx.pool.give(&mut self.capsules, ctx.memory, replacement);
    }
}

/// Data that came in the capsule are whole at once.
fn fill(incoming: &mut Incoming, data: &[u8], ctx: &mut Context<'_>) {
    ctx.memory.write(&mut incoming.buffer, 0, data);
    incoming.received = incoming.length;
}
