//! Who waits for memory, and goes on once there may be some: commands in a line, the oldest first, and the
//! capsule at the front of a stopped stream.
//!
//! Two accounts keep a connection from waiting for itself. Data in capsules are freed by volumes alone, so a stopped
//! stream goes on whatever the peer does; buffers of transfers may hang on H2CData further back in the same stream, and
//! nobody in the stream waits for those.

use block::limits::{DATA_AFTER_R2T, DIRECT_RECEIVE_MIN};
use block::{Buffer, Class, Operation, VolumeId};
use wire::nvme::{Command, Status};

use super::slots::{Below, Grant, Incoming, Judged, Kind, State};
use super::{Connection, Context};
use crate::io::{self, Payload, Work};
use crate::subsystem::Namespace;

/// Memory that the capsule at the front of the stream needs: `count` buffers of one length and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) length: u32,
    pub(super) phase: u32,
    pub(super) count: u8,
}

impl Connection {
    /// Whether commands or the stream wait for memory of the pool.
    #[inline]
    #[must_use]
    pub fn waits_for_memory(&self) -> bool {
        self.paused.is_some() || !self.waiting.is_empty()
    }

    /// There may be memory again: who waits goes on as far as there is. Returns whether somebody still waits.
    pub fn handle_memory(&mut self, ctx: &mut Context<'_>) -> bool {
        while let Some(&slot) = self.waiting.front() {
            if !self.go_on(slot, ctx) {
                break;
            }
            self.waiting.pop_front();
        }
        if let Some(need) = self.paused
            && self.reserve(need, ctx)
        {
            self.paused = None;
            self.resume = true;
        }
        self.waits_for_memory()
    }

    /// Takes memory for the capsule at the front of the stream, all or nothing.
    fn reserve(&mut self, need: Need, ctx: &mut Context<'_>) -> bool {
        self.give_reserved(ctx);
        for _ in 0..need.count {
            match ctx.pool.take(&mut self.capsules, Class::Capsule, need.length, need.phase) {
                Some(buffer) => self.reserved.push(buffer),
                None => {
                    self.give_reserved(ctx);
                    return false;
                }
            }
        }
        true
    }

    /// Gives memory back that a capsule turned out not to need.
    pub(super) fn give_reserved(&mut self, ctx: &mut Context<'_>) {
        while let Some(buffer) = self.reserved.pop() {
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
        if let Some(buffer) = self.reserved.pop() {
            if buffer.len() == length && buffer.phase() == phase {
                return Some(buffer);
            }
            ctx.pool.give(&mut self.capsules, ctx.memory, buffer);
        }
        let buffer = ctx.pool.take(&mut self.capsules, Class::Capsule, length, phase);
        if buffer.is_none() {
            self.pause(Need { length, phase, count: 1 });
        }
        buffer
    }

    /// Two buffers for a fused pair, or `None`: then the stream stops.
    pub(super) fn pair_memory(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<(Buffer, Buffer)> {
        let need = Need { length, phase, count: 2 };
        let fits = |buffer: &Buffer| buffer.len() == length && buffer.phase() == phase;
        let held = self.reserved.len() == 2 && self.reserved.iter().all(fits);
        if !held && !self.reserve(need, ctx) {
            self.pause(need);
            return None;
        }
        Some((self.reserved.pop()?, self.reserved.pop()?))
    }

    fn pause(&mut self, need: Need) {
        self.counters.waits += 1;
        self.paused = Some(need);
    }

    /// A buffer of a transfer, unless somebody waits for one already or there is none.
    #[inline]
    pub(super) fn transfer_memory(
        &mut self,
        length: u32,
        phase: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Buffer> {
        if !self.waiting.is_empty() {
            return None;
        }
        ctx.pool.take(&mut self.transfers, Class::Transfer, length, phase)
    }

    /// Puts a command in line for memory.
    pub(super) fn wait(&mut self, command: &Command, ctx: &Context<'_>) {
        let judged = self.judged(command, ctx);
        let slot = self.occupy(command, State::Waiting(Box::new(judged)));
        self.counters.waits += 1;
        self.waiting.push_back(slot);
    }

    /// The command in `slot` is the first in line: judges it anew and takes its memory. False when there is none.
    fn go_on(&mut self, slot: u16, ctx: &mut Context<'_>) -> bool {
        let State::Waiting(judged) = self.slots.state(slot) else {
            panic!("slot {slot} is in line for memory and does not wait");
        };
        let judged = **judged;
        let command = judged.command;
        let (volume, work) = match self.judge_again(&judged, ctx) {
            Ok(judged) => judged,
            Err(status) => {
                self.finish(slot, status);
                return true;
            }
        };
        let (length, to_host) = match work.map(|work| work.payload()) {
            Some(Payload::ToHost(length)) => (length, true),
            _ => (command.sgl().length, false),
        };
        let phase = work.map_or(0, |work| work.phase());
        let taken = ctx.pool.take(&mut self.transfers, Class::Transfer, length, phase);
        let Some(buffer) = taken else { return false };
        match work {
            Some(Work::Read(extent)) if to_host => {
                *self.slots.state(slot) = State::Below(Below::one(Kind::Read));
                self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
            }
            _ => {
                let data = Incoming::new(buffer);
                *self.slots.state(slot) = State::Granted(Box::new(Grant { judged, data }));
                self.ask_for_data(slot, ctx);
            }
        }
        true
    }

    /// A command that has just been judged and has to wait.
    pub(super) fn judged(&self, command: &Command, ctx: &Context<'_>) -> Judged {
        let queue = self.queue.as_ref().filter(|_| !self.is_control(command));
        let found = queue.and_then(|queue| ctx.shared.namespace(queue.handle, command.nsid()));
        Judged { command: *command, namespace: found.map(Namespace::identity) }
    }

    /// The namespace of an I/O command that waited, if it may still be used. Another one that has its NSID
    /// by now is none of the command's business.
    pub(super) fn namespace_again<'a>(
        &self,
        judged: &Judged,
        ctx: &'a Context<'_>,
    ) -> Result<&'a Namespace, Status> {
        let queue = self.queue.as_ref().expect("an I/O command came on a queue");
        ctx.shared.io_allowed(queue.handle)?;
        let found = ctx.shared.namespace(queue.handle, judged.command.nsid());
        let same = found.filter(|namespace| Some(namespace.identity()) == judged.namespace);
        same.ok_or(Status::INVALID_NAMESPACE.with_dnr())
    }

    /// What a command that waited asks of its volume, if it still may; no work for a control command.
    pub(super) fn judge_again(
        &self,
        judged: &Judged,
        ctx: &Context<'_>,
    ) -> Result<(VolumeId, Option<Work>), Status> {
        if self.is_control(&judged.command) {
            return Ok((VolumeId::default(), None));
        }
        let namespace = self.namespace_again(judged, ctx)?;
        let work = io::judge(&judged.command, namespace)?;
        self.check_reservation(namespace.volume, work.access(), ctx.reservations)?;
        Ok((namespace.volume, Some(work)))
    }

    /// Asks for all data of the command in `slot`: the grant.
    pub(super) fn ask_for_data(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let command_id = self.slots.command_id(slot);
        let data =
            self.slots.incoming(slot).expect("a command that takes data has a place for them");
        data.since = Some(ctx.now);
        let length = data.length;
        self.asked += 1;
        self.asked_large += u32::from(length >= DIRECT_RECEIVE_MIN);
        self.outbox.push_r2t(command_id, slot, length, self.digests);
        self.arm(ctx.now + DATA_AFTER_R2T);
    }
}

impl Below {
    /// One request, nothing of which has come back.
    #[inline]
    pub(super) fn one(kind: Kind) -> Below {
        Below { parts: 1, kind, status: Status::SUCCESS }
    }
}
