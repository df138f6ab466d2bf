//! Who waits for memory, and goes on once there may be some: commands in a line, the oldest first,
//! and the capsule at the front of a stopped stream.
//!
//! Two accounts keep a connection from waiting for itself. Data in capsules are freed by volumes
//! alone, so a stopped stream goes on whatever the peer does; buffers of transfers may hang on
//! H2CData further back in the same stream, and nobody in the stream waits for those.

use block::buffer::pages_for;
use block::limits::DIRECT_ALONE_MIN;
use block::{Buffer, Class, Operation, Pool, VolumeId, planted};
use wire::nvme::{Command, Status};

use super::receive::Stream;
use super::slots::{CommandState, Grant, Incoming, Judged, JudgedIo, Kind, Waiting};
use super::{Connection, Context};
use crate::io::{self, Work};
use crate::limits::DATA_AFTER_R2T;
use crate::paths::check_path;

/// A place in line whose command has left: no slot has this number.
const LEFT: u16 = u16::MAX;

/// Memory that somebody waits for: `count` buffers of one length and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) length: u32,
    pub(super) phase: u32,
    pub(super) count: u8,
}

impl Need {
    pub(super) fn pages(self) -> u32 {
        u32::from(self.count) * pages_for(self.length, self.phase)
    }
}

impl Connection {
    /// Whether it waits for memory of the pool: commands for that of transfers, the stream for that
    /// of immediate data.
    #[inline]
    pub fn waits_for_memory(&self, class: Class) -> bool {
        match class {
            Class::Transfer => !self.intake.waiting.is_empty(),
            Class::Immediate => matches!(self.intake.stream, Stream::OutOfMemory(_)),
        }
    }

    /// Pages that it holds of the pool for a class.
    pub fn pages_of(&self, class: Class) -> u32 {
        match class {
            Class::Transfer => self.transfers.pages(),
            Class::Immediate => self.capsules.pages(),
        }
    }

    /// Whether [`handle_memory`](Self::handle_memory) would find what it needs in `pool` now. If
    /// not, it is kept for it there, if it has to be. For checks: nobody who waits is forgotten.
    pub fn would_go_on(&mut self, class: Class, pool: &mut Pool) -> bool {
        let (account, need) = match (class, self.intake.stream) {
            (Class::Immediate, Stream::OutOfMemory(need)) => (&self.capsules, need),
            (Class::Immediate, _) => return false,
            (Class::Transfer, _) => {
                let Some(&slot) = self.intake.waiting.front() else { return false };
                if slot == LEFT {
                    return true;
                }
                let need = match self.slots.state(slot) {
                    CommandState::Waiting(waiting) => waiting.need,
                    CommandState::Pair(pair) if pair.is_in_line() => pair.need,
                    state => panic!("slot {slot} is in line for memory and is {state:?}"),
                };
                (&self.transfers, need)
            }
        };
        let found = pool.would_grant(account, need.pages());
        pool.keep(account, need.pages());
        found
    }

    /// There may be memory again: who waits goes on as far as there is.
    pub fn handle_memory(&mut self, class: Class, ctx: &mut Context<'_>) {
        if planted("who-waits-for-memory-starves") {
            return;
        }
        match class {
            Class::Transfer => {
                while let Some(slot) = self.intake.waiting.pop_front() {
                    if slot != LEFT && !self.go_on(slot, ctx) {
                        self.intake.waiting.push_front(slot);
                        break;
                    }
                }
            }
            Class::Immediate => {
                let Stream::OutOfMemory(need) = self.intake.stream else { return };
                if self.reserve(need, ctx) {
                    self.resume(ctx);
                } else {
                    ctx.pool.keep(&self.capsules, need.pages());
                }
            }
        }
    }

    /// Takes memory for the capsule at the front of the stream, all or nothing.
    fn reserve(&mut self, need: Need, ctx: &mut Context<'_>) -> bool {
        self.give_reserved(ctx);
        let Need { length, phase, count } = need;
        let account = &mut self.capsules;
        if count == 1 {
            self.intake.reserved.extend(ctx.pool.take(account, length, phase));
        } else {
            self.intake
                .reserved
                .extend(ctx.pool.take_two(account, length, phase).into_iter().flatten());
        }
        !self.intake.reserved.is_empty()
    }

    /// Gives memory back that a capsule turned out not to need.
    pub(super) fn give_reserved(&mut self, ctx: &mut Context<'_>) {
        while let Some(buffer) = self.intake.reserved.pop() {
            ctx.pool.give(&mut self.capsules, ctx.memory, buffer);
        }
    }

    /// A buffer for data that are in the capsule, or `None`: then the stream stops.
    #[inline]
    pub(super) fn capsule_memory(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Buffer> {
        if self.intake.reserved.is_empty()
            && let Some(buffer) = ctx.pool.take(&mut self.capsules, length, phase)
        {
            return Some(buffer);
        }
        self.capsule_memory_in_line(length, phase)
    }

    /// The same of a stream that stopped for it, or has to.
    #[cold]
    fn capsule_memory_in_line(&mut self, length: u32, phase: u32) -> Option<Buffer> {
        if let Some(reserved) = self.intake.reserved.pop() {
            return Some(fitting(reserved, length, phase));
        }
        self.pause(Need { length, phase, count: 1 });
        None
    }

    /// Two buffers for a fused pair whose data are in their capsules, as its first says, or `None`:
    /// then the stream stops.
    pub(super) fn pair_memory(&mut self, need: Need, ctx: &mut Context<'_>) -> Option<[Buffer; 2]> {
        if self.intake.reserved.is_empty() && !self.reserve(need, ctx) {
            self.pause(need);
            return None;
        }
        let buffers = [self.intake.reserved.pop()?, self.intake.reserved.pop()?];
        Some(buffers.map(|buffer| fitting(buffer, need.length, need.phase)))
    }

    fn pause(&mut self, need: Need) {
        self.counters.waits += 1;
        self.intake.stream = Stream::OutOfMemory(need);
    }

    /// A buffer of a transfer, unless somebody waits for one already or there is none.
    #[inline]
    pub(super) fn transfer_memory(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Buffer> {
        if !self.intake.waiting.is_empty() {
            return None;
        }
        ctx.pool.take(&mut self.transfers, length, phase)
    }

    /// Two buffers for a fused pair whose data are to be asked for, under the same terms.
    pub(super) fn pair_transfer_memory(
        &mut self,
        need: Need,
        ctx: &mut Context<'_>,
    ) -> Option<[Buffer; 2]> {
        if !self.intake.waiting.is_empty() {
            return None;
        }
        ctx.pool.take_two(&mut self.transfers, need.length, need.phase)
    }

    /// Puts a command in line for memory.
    pub(super) fn wait(&mut self, command: &Command, length: u32, phase: u32, ctx: &Context<'_>) {
        let judged = self.judged(command, ctx);
        let waiting = Waiting { judged, need: Need { length, phase, count: 1 } };
        let slot = self.occupy(command, CommandState::Waiting(Box::new(waiting)));
        self.join_line(slot);
    }

    /// The command in `slot` is the last in line for memory.
    pub(super) fn join_line(&mut self, slot: u16) {
        self.counters.waits += 1;
        self.intake.waiting.push_back(slot);
    }

    /// The command in `slot` ends without the memory that it is in line for. Its place stays until
    /// the line is tried: what comes meanwhile is behind those who stand there.
    pub(super) fn leave_line(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let place = self.intake.waiting.iter_mut().find(|waiting| **waiting == slot);
        *place.expect("it is in line") = LEFT;
        ctx.pool.try_lines();
    }

    /// The command in `slot` was the first in line: judges it anew and takes its memory. False when
    /// there is none.
    fn go_on(&mut self, slot: u16, ctx: &mut Context<'_>) -> bool {
        let Waiting { judged, need } = match self.slots.state(slot) {
            CommandState::Waiting(waiting) => **waiting,
            CommandState::Pair(_) => return self.pair_goes_on(slot, ctx),
            state => panic!("slot {slot} is in line for memory and is {state:?}"),
        };
        let work = match self.judge_again(&judged, ctx) {
            Ok(work) => work,
            Err(status) => {
                self.finish(slot, status);
                return true;
            }
        };
        // The namespace is the same, and so are its blocks: what is needed has not changed.
        let Some(buffer) = ctx.pool.take(&mut self.transfers, need.length, need.phase) else {
            ctx.pool.keep(&self.transfers, need.pages());
            return false;
        };
        if let Some((volume, Work::Read(extent))) = work {
            *self.slots.state(slot) = CommandState::in_flight(Kind::Read);
            self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
        } else {
            let data = Incoming::of(judged.command().sgl().length, buffer);
            *self.slots.state(slot) = CommandState::Granted(Box::new(Grant { judged, data }));
            self.ask_for_data(slot, ctx);
        }
        true
    }

    /// A command that has just been judged and has to wait.
    pub(super) fn judged(&self, command: &Command, ctx: &Context<'_>) -> Judged {
        match self.io_queue(command) {
            Some(queue) => Judged::Io(JudgedIo::new(command, queue, ctx)),
            None => Judged::Control(*command),
        }
    }

    /// What a command that waited asks of its volume, if it still may; nothing for a control
    /// command.
    pub(super) fn judge_again(
        &self,
        judged: &Judged,
        ctx: &Context<'_>,
    ) -> Result<Option<(VolumeId, Work)>, Status> {
        let Judged::Io(judged) = judged else { return Ok(None) };
        check_path(ctx.paths.state(self.group))?;
        let namespace = judged.namespace_again(ctx)?;
        let work = io::judge(&judged.command, namespace)?;
        if !planted("conflict-is-judged-once") {
            self.check_reservation(namespace.volume, work.access(), ctx.reservations)?;
        }
        Ok(Some((namespace.volume, work)))
    }

    /// Asks for all data of the command in `slot`: the grant.
    pub(super) fn ask_for_data(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let command_id = self.slots.command_id(slot);
        let data =
            self.slots.incoming(slot).expect("a command that takes data has a place for them");
        data.since = Some(ctx.now);
        let length = data.length;
        self.intake.asked += 1;
        self.intake.asked_large += u32::from(length >= DIRECT_ALONE_MIN);
        self.outbox.push_r2t(command_id, slot, length, self.digests);
        self.arm(ctx.now + DATA_AFTER_R2T);
    }
}

/// A buffer that was reserved for a capsule, which is the one at the front of the stream until it
/// is taken. It was as long as its SGL says, so its blocks are still of the same size and place.
fn fitting(buffer: Buffer, length: u32, phase: u32) -> Buffer {
    let reserved = (buffer.len(), buffer.phase());
    assert_eq!(reserved, (length, phase), "what was reserved is not for the capsule in front");
    buffer
}
