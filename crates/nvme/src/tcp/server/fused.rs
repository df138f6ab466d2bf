//! Fused compare and write: two commands, one behind the other on the same queue, that become one
//! request.
//!
//! The memory of both is taken with the first, so that a pair never waits for memory while it holds
//! some. If the data are in the capsules it is that of capsules, and the stream stops where there
//! is none. If they are asked for it is that of transfers, since it hangs on H2CData further back,
//! and the pair waits in line like them. What a pair is shows with its first; one whose data are in
//! one capsule alone, which no known host sends, needs memory of transfers at once or is
//! interrupted: its data cannot wait anywhere. A pair that cannot be: either command gets its own
//! status, or 0x009 because its mate failed, or 0x00A because its mate is missing. A first whose
//! data are still on their way is answered once they came. A first whose second does not come
//! within the time for data fails with 0x00A. Spec: NVMe base, "Fused Operations"; NVM command set,
//! "Compare and Write".

use block::{Buffer, Class, Extent, Operation, VolumeId};
use reservation::{Access, InForce, Paths};
use wire::nvme::command::Fuse;
use wire::nvme::{Command, Status};

use super::capsule::check_place;
use super::memory::Need;
use super::slots::{CommandState, Incoming, JudgedIo, Kind, Pair};
use super::{Connection, Context, Fused, State};
use crate::controllers::QueueHandle;
use crate::io;
use crate::limits::DATA_AFTER_R2T;
use crate::paths::check_path;
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
        let (_, extent) = self.judge_first(command, namespace, (ctx.reservations, ctx.paths))?;
        let in_capsule = check_place(command, data)?;
        let (length, phase) = (extent.length.0 as u32, io::phase(&extent));
        let need = Need { length, phase, count: 2 };
        let (class, memory) = match in_capsule {
            true => (Class::Immediate, self.pair_memory(need, ctx)),
            false => (Class::Transfer, self.pair_transfer_memory(need, ctx)),
        };
        if in_capsule && memory.is_none() {
            return Ok(false);
        }
        let has_memory = memory.is_some();
        let [expected, replacement] = match memory {
            Some(buffers) => buffers.map(Incoming::new),
            None => [(); 2].map(|()| Incoming::without_memory(length)),
        };
        let mut pair = Pair {
            first: JudgedIo::new(command, queue, ctx),
            expected,
            second: None,
            replacement,
            need,
            class,
            fate: None,
            since: ctx.now,
        };
        if in_capsule {
            fill(&mut pair.expected, data, ctx);
        }
        let slot = self.occupy(command, CommandState::Pair(Box::new(pair)));
        match (in_capsule, has_memory) {
            (true, _) => {}
            (false, true) => self.ask_for_data(slot, ctx),
            (false, false) => self.join_line(slot),
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
        (reservations, paths): (&InForce, &Paths),
    ) -> Result<(VolumeId, Extent), Status> {
        check_path(paths.state(self.group))?;
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
        if !self.suits(first, in_capsule, ctx) {
            self.refuse(command, Status::COMMAND_INTERRUPTED);
            return self.fail_first(first, Status::FUSED_FAILED, ctx);
        }
        let pair = self.slots.pair(first);
        if in_capsule {
            fill(&mut pair.replacement, data, ctx);
        }
        let is_asked = !in_capsule && !pair.is_in_line();
        let second = self.occupy(command, CommandState::Second(first));
        self.slots.pair(first).second = Some((second, *command));
        if is_asked {
            self.ask_for_data(second, ctx);
        }
        self.try_pair(first, ctx);
    }

    /// Whether the memory of a pair, or its place in line, suits the way of its second's data. One
    /// whose first came with its data, and whose second does not, takes memory of transfers for
    /// both, if there is some at once.
    fn suits(&mut self, first: u16, in_capsule: bool, ctx: &mut Context<'_>) -> bool {
        let pair = self.slots.pair(first);
        if in_capsule || pair.class == Class::Transfer {
            return !(in_capsule && pair.is_in_line());
        }
        let need = pair.need;
        let Some(pages) = self.pair_transfer_memory(need, ctx) else { return false };
        // The buffers are as many pages as those that the pair has: the accounts change places.
        for buffer in pages {
            ctx.pool.give(&mut self.capsules, ctx.memory, buffer);
        }
        self.slots.pair(first).class = Class::Transfer;
        true
    }

    /// The pair whose first is in `first` was the first in line for memory: judges it anew and
    /// takes memory for both. False when there is none.
    pub(super) fn pair_goes_on(&mut self, first: u16, ctx: &mut Context<'_>) -> bool {
        let pair = self.slots.pair(first);
        let (compare, second, need) = (pair.first, pair.second, pair.need);
        if let Err(status) = self.judge_pair(&compare, ctx) {
            if second.is_none() {
                self.note_fused(Fused::Refused);
            }
            self.fail_pair(first, second, status, Status::FUSED_FAILED, ctx);
            return true;
        }
        // The namespace is the same, and so are its blocks: what is needed has not changed.
        let taken = ctx.pool.take_two(&mut self.transfers, need.length, need.phase);
        let Some([expected, replacement]) = taken else {
            ctx.pool.keep(&self.transfers, need.pages());
            return false;
        };
        let pair = self.slots.pair(first);
        (pair.expected.buffer, pair.replacement.buffer) = (expected, replacement);
        self.ask_for_data(first, ctx);
        if let Some((second, _)) = second {
            self.ask_for_data(second, ctx);
        }
        true
    }

    /// Somebody ended the commands of the host: the pair whose first is in `first` ends once its
    /// data are there, or at once if none were asked for.
    pub(super) fn preempt_pair(&mut self, first: u16, ctx: &mut Context<'_>) {
        let pair = self.slots.pair(first);
        let (second, is_in_line, fails) = (pair.second, pair.is_in_line(), pair.fate.is_some());
        match second {
            None if fails => {}
            None => {
                self.note_fused(Fused::Refused);
                self.fail_first(first, Status::PREEMPTED, ctx);
            }
            Some(_) if is_in_line => {
                self.leave_line(first, ctx);
                self.fail_pair(first, second, Status::PREEMPTED, Status::FUSED_FAILED, ctx);
            }
            Some(_) => {}
        }
    }

    /// What a pair concerns, if it still may.
    fn judge_pair(
        &self,
        compare: &JudgedIo,
        ctx: &Context<'_>,
    ) -> Result<(VolumeId, Extent), Status> {
        let namespace = compare.namespace_again(ctx)?;
        self.judge_first(&compare.command, namespace, (ctx.reservations, ctx.paths))
    }

    /// Ends a pair that is not carried out, or its first alone if that is all there is.
    fn fail_pair(
        &mut self,
        first: u16,
        second: Option<(u16, Command)>,
        of_first: Status,
        of_second: Status,
        ctx: &mut Context<'_>,
    ) {
        self.dissolve(first, ctx);
        self.finish(first, of_first);
        if let Some((second, _)) = second {
            self.finish(second, of_second);
        }
    }

    /// The first of a pair will not get its second.
    pub(super) fn fail_first(&mut self, first: u16, fate: Status, ctx: &mut Context<'_>) {
        self.slots.pair(first).fate = Some(fate);
        self.try_pair(first, ctx);
    }

    /// Goes on with a pair if all that it waits for is there.
    pub(super) fn try_pair(&mut self, first: u16, ctx: &mut Context<'_>) {
        let pair = self.slots.pair(first);
        let is_in_line = pair.is_in_line();
        if !pair.expected.is_whole() && !is_in_line {
            return;
        }
        if let Some(fate) = pair.fate {
            let corrupt = pair.expected.corrupt;
            if is_in_line {
                self.leave_line(first, ctx);
            }
            let status = if corrupt { Status::TRANSIENT_TRANSPORT_ERROR } else { fate };
            return self.fail_pair(first, None, status, status, ctx);
        }
        let Some((second, write)) = pair.second.filter(|_| pair.replacement.is_whole()) else {
            return;
        };
        let compare = pair.first;
        let judged = match (pair.expected.corrupt, pair.replacement.corrupt) {
            (true, _) => Err((Status::TRANSIENT_TRANSPORT_ERROR, Status::FUSED_FAILED)),
            (_, true) => Err((Status::FUSED_FAILED, Status::TRANSIENT_TRANSPORT_ERROR)),
            // The namespace may have changed while the data were coming.
            _ => self.judge_pair(&compare, ctx).map_err(|status| (status, Status::FUSED_FAILED)),
        };
        let (volume, extent) = match judged {
            Ok(judged) => judged,
            Err((of_first, of_second)) => {
                let second = Some((second, write));
                return self.fail_pair(first, second, of_first, of_second, ctx);
            }
        };
        let (class, expected, replacement) = self.pair_buffers(first);
        let durable = write.force_unit_access() || compare.command.force_unit_access();
        *self.slots.state(first) = CommandState::in_flight(Kind::Pair(second, class));
        let expected = Box::new(expected);
        let operation = Operation::CompareAndWrite { extent, expected, replacement, durable };
        self.submit(first, volume, operation, ctx);
    }

    fn pair_buffers(&mut self, first: u16) -> (Class, Buffer, Buffer) {
        let pair = self.slots.pair(first);
        let expected = core::mem::take(&mut pair.expected.buffer);
        (pair.class, expected, core::mem::take(&mut pair.replacement.buffer))
    }

    /// Gives the memory of a pair back.
    pub(super) fn dissolve(&mut self, first: u16, ctx: &mut Context<'_>) {
        let (class, expected, replacement) = self.pair_buffers(first);
        let account = match class {
            Class::Transfer => &mut self.transfers,
            Class::Immediate => &mut self.capsules,
        };
        ctx.pool.give(account, ctx.memory, expected);
        ctx.pool.give(account, ctx.memory, replacement);
    }
}

/// Data that came in the capsule are whole at once.
fn fill(incoming: &mut Incoming, data: &[u8], ctx: &mut Context<'_>) {
    ctx.memory.write(&mut incoming.buffer, 0, data);
    incoming.received = incoming.length;
}
