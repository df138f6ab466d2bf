//! Commands: each that comes in a capsule is answered, gets a slot, or stops the stream until there is memory for
//! its data.
//!
//! Errors: a status, answered at once; the connection stays. Spec: NVMe base, "Submission Queue Entry", "Command
//! capsules"; NVMe/TCP, "Command data buffers", "R2T". Not here: fused pairs (`fused`).

use block::limits::{CAPSULE_DATA_MAX, LOANS_TOGETHER};
use block::{Loan, Operation, VolumeId};
use wire::nvme::command::{Fuse, IoOpcode, NSID_ALL, SglKind};
use wire::nvme::fabrics::FabricsType;
use wire::nvme::{Command, Status};

use super::slots::{Below, Grant, Incoming, Kind, State};
use super::{Connection, Context, Fused, Reason};
use crate::controllers::health::Origin;
use crate::controllers::{Answer, QueueView, Reply};
use crate::io::{self, Payload, Work};

/// Which way the data of an admin or Fabrics command go: bits 1:0 of OPC or FCTYPE.
fn direction(command: &Command) -> u8 {
    if command.is_fabrics() { FabricsType::of(command).0 & 3 } else { command.opcode() & 3 }
}
const FROM_HOST: u8 = 1;
const TO_HOST: u8 = 2;

impl Connection {
    /// Takes a command with the data in its capsule. False when it has to wait at the front of the stream: then
    /// nothing happened yet.
    #[inline]
    pub(super) fn take_command(
        &mut self,
        command: &Command,
        data: &[u8],
        corrupt: bool,
        ctx: &mut Context<'_>,
    ) -> bool {
        let command_id = command.command_id();
        if self.slots.holds(command_id) {
            self.take_conflicting(command, ctx);
            return true;
        }
        if self.fused != Fused::None || command.fuse() != Fuse::NONE || corrupt {
            return self.take_unusual(command, data, corrupt, ctx);
        }
        self.take_plain(command, data, ctx)
    }

    /// A command that is no part of a fused pair.
    #[inline]
    pub(super) fn take_plain(
        &mut self,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> bool {
        let started = match self.queue {
            Some(queue) if queue.queue_id != 0 && !command.is_fabrics() => {
                self.start_io(&queue, command, data, ctx)
            }
            _ => self.start_control(command, data, ctx),
        };
        match started {
            Ok(taken) => taken,
            Err(status) => {
                self.refuse(command, status);
                true
            }
        }
    }

    /// Whether a command goes to the controllers.
    pub(super) fn is_control(&self, command: &Command) -> bool {
        command.is_fabrics() || self.queue.is_none_or(|queue| queue.queue_id == 0)
    }

    /// Puts a command into a slot; its CID was seen to be free.
    #[inline]
    pub(super) fn occupy(&mut self, command: &Command, state: State) -> u16 {
        self.slots.insert(Origin::of(command), state)
    }

    #[inline]
    fn start_io(
        &mut self,
        queue: &QueueView,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        let namespace = ctx.shared.command_heard(ctx.now, queue.handle, command.nsid())?;
        io::check_pointer(command)?;
        if command.nsid() == NSID_ALL && command.io_opcode() == IoOpcode::FLUSH {
            return self.flush_all(queue, command, ctx);
        }
        let namespace = namespace.ok_or_else(|| io::without_namespace(command))?;
        let work = io::judge(command, namespace)?;
        let volume = namespace.volume;
        self.check_reservation(volume, work.access(), ctx.reservations)?;
        match work {
            Work::Read(_) => self.start_read(command, volume, work, data, ctx),
            _ if work.payload() == Payload::None => {
                check_no_data(data)?;
                self.start_without_data(command, volume, work, ctx);
                Ok(true)
            }
            _ if check_place(command, data)? => match work {
                Work::Ranges(_) => {
                    let extents = io::ranges(command, data, namespace)?;
                    self.discard(None, command, volume, extents, ctx);
                    Ok(true)
                }
                _ => Ok(self.start_with_data(command, volume, work, data, ctx)),
            },
            _ => {
                self.start_granted(command, work.phase(), ctx);
                Ok(true)
            }
        }
    }

    #[inline]
    fn start_read(
        &mut self,
        command: &Command,
        volume: VolumeId,
        work: Work,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        check_no_data(data)?;
        if command.sgl().kind != SglKind::TRANSPORT {
            return Err(Status::INVALID_SGL_TYPE.with_dnr());
        }
        let Work::Read(extent) = work else { panic!("{work:?} is no read") };
        match self.transfer_memory(extent.length.0 as u32, work.phase(), ctx) {
            Some(buffer) => match ctx.below.find_loan(volume, extent, ctx.memory) {
                Some((disk, extent)) => {
                    let who = command.command_id();
                    self.loans.push(Loan { disk, extent, buffer, who });
                    if self.loans.len() == LOANS_TOGETHER {
                        self.take_loans(ctx);
                    }
                }
                None => {
                    let slot = self.occupy(command, State::Below(Below::one(Kind::Read)));
                    self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
                }
            },
            None => self.wait(command, ctx),
        }
        Ok(true)
    }

    /// A write or compare whose data came with it; false when there is no memory for them.
    #[inline]
    fn start_with_data(
        &mut self,
        command: &Command,
        volume: VolumeId,
        work: Work,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> bool {
        let Some(mut buffer) = self.capsule_memory(data.len() as u32, work.phase(), ctx) else {
            return false;
        };
        ctx.memory.write(&mut buffer, 0, data);
        let slot = self.occupy(command, State::Below(Below::one(Kind::Capsule)));
        let operation = match work {
            Work::Write(extent, durable) => Operation::Write { extent, buffer, durable },
            Work::Compare(extent) => Operation::Compare { extent, buffer },
            _ => panic!("{work:?} takes no data"),
        };
        self.submit(slot, volume, operation, ctx);
        true
    }

    fn start_without_data(
        &mut self,
        command: &Command,
        volume: VolumeId,
        work: Work,
        ctx: &mut Context<'_>,
    ) {
        let operation = match work {
            Work::Flush => Operation::Flush,
            Work::WriteZeroes(extent, deallocate, durable) => {
                Operation::WriteZeroes { extent, deallocate, durable }
            }
            Work::Verify(extent) => Operation::Verify { extent },
            _ => panic!("{work:?} has data"),
        };
        let slot = self.occupy(command, State::Below(Below::one(Kind::Transfer)));
        self.submit(slot, volume, operation, ctx);
    }

    /// A command whose data have to be asked for: it gets its whole buffer first, or waits for it.
    fn start_granted(&mut self, command: &Command, phase: u32, ctx: &mut Context<'_>) {
        match self.transfer_memory(command.sgl().length, phase, ctx) {
            Some(buffer) => {
                let judged = self.judged(command, ctx);
                let grant = Box::new(Grant { judged, data: Incoming::new(buffer) });
                let slot = self.occupy(command, State::Granted(grant));
                self.ask_for_data(slot, ctx);
            }
            None => self.wait(command, ctx),
        }
    }

    /// A flush of all namespaces is a request to each of their volumes.
    fn flush_all(
        &mut self,
        queue: &QueueView,
        command: &Command,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        let volumes: Vec<VolumeId> =
            ctx.shared.namespaces(queue.handle).map(|namespace| namespace.volume).collect();
        for volume in &volumes {
            self.check_reservation(*volume, Work::Flush.access(), ctx.reservations)?;
        }
        if volumes.is_empty() {
            self.answer(command.command_id(), Status::SUCCESS);
            return Ok(true);
        }
        let below = Below { parts: volumes.len() as u16, ..Below::one(Kind::Transfer) };
        let slot = self.occupy(command, State::Below(below));
        for volume in volumes {
            self.submit(slot, volume, Operation::Flush, ctx);
        }
        Ok(true)
    }

    /// Discards what a Dataset Management command asks for; one that only gives hints is done.
    fn discard(
        &mut self,
        slot: Option<u16>,
        command: &Command,
        volume: VolumeId,
        extents: Vec<block::Extent>,
        ctx: &mut Context<'_>,
    ) {
        if extents.is_empty() {
            match slot {
                Some(slot) => self.finish(slot, Status::SUCCESS),
                None => self.answer(command.command_id(), Status::SUCCESS),
            }
            return;
        }
        let state = State::Below(Below::one(Kind::Transfer));
        let slot = match slot {
            Some(slot) => {
                *self.slots.state(slot) = state;
                slot
            }
            None => self.occupy(command, state),
        };
        self.submit(slot, volume, Operation::Discard { extents }, ctx);
    }

    /// All data that were asked for came.
    pub(super) fn data_is_whole(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let grant = match self.slots.state(slot) {
            State::Granted(grant) => grant,
            State::Pair(_) => return self.try_pair(slot, ctx),
            State::Second(first) => {
                let first = *first;
                return self.try_pair(first, ctx);
            }
            state => panic!("data came for slot {slot}, which is {state:?}"),
        };
        let judged = grant.judged;
        let corrupt = grant.data.corrupt;
        let buffer = core::mem::take(&mut grant.data.buffer);
        let length = buffer.len();
        if corrupt {
            ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
            return self.finish(slot, Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let (volume, work) = match self.judge_again(&judged, ctx) {
            Ok(judged) => judged,
            Err(status) => {
                ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                return self.finish(slot, status);
            }
        };
        let operation = match work {
            Some(Work::Write(extent, durable)) => Operation::Write { extent, buffer, durable },
            Some(Work::Compare(extent)) => Operation::Compare { extent, buffer },
            _ => {
                let mut data = vec![0; length as usize];
                ctx.memory.read(&buffer, 0, &mut data);
                ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                return match work {
                    Some(_) => self.discard_granted(slot, &judged.command, volume, &data, ctx),
                    None => self.control_granted(slot, &judged.command, &data, ctx),
                };
            }
        };
        *self.slots.state(slot) = State::Below(Below::one(Kind::Transfer));
        self.submit(slot, volume, operation, ctx);
    }

    fn discard_granted(
        &mut self,
        slot: u16,
        command: &Command,
        volume: VolumeId,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let handle = self.queue.as_ref().expect("an I/O command came on a queue").handle;
        let extents = match ctx.shared.namespace(handle, command.nsid()) {
            Some(namespace) => io::ranges(command, data, namespace),
            None => Err(Status::INVALID_NAMESPACE.with_dnr()),
        };
        match extents {
            Ok(extents) => self.discard(Some(slot), command, volume, extents, ctx),
            Err(status) => self.finish(slot, status),
        }
    }

    /// An admin or Fabrics command: to the controllers, once its data are there. One that has room for data of the reply stops
    /// the stream while too much of those is unsent: replies are not counted in the pool.
    fn start_control(
        &mut self,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        io::check_pointer(command)?;
        let sgl = command.sgl();
        if room(command) > 0 && self.outbox.is_crowded() {
            self.crowded = true;
            return Ok(false);
        }
        if check_place(command, data)? || sgl.length == 0 || direction(command) != FROM_HOST {
            self.ask_controllers(None, command, data, ctx);
            return Ok(true);
        }
        // Admin data from the host that did not come in the capsule, as every host may send them.
        if sgl.length > CAPSULE_DATA_MAX || self.queue.is_none() {
            return Err(Status::INVALID_SGL_LENGTH.with_dnr());
        }
        self.start_granted(command, 0, ctx);
        Ok(true)
    }

    fn control_granted(
        &mut self,
        slot: u16,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) {
        self.ask_controllers(Some(slot), command, data, ctx);
    }

    /// Gives a command to the controllers; `slot` is where it waited for its data, if it did.
    fn ask_controllers(
        &mut self,
        slot: Option<u16>,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let room = room(command);
        let (now, key) = (ctx.now, self.key());
        let answer = match &self.queue {
            None => ctx.shared.connect(now, key, &self.endpoint, command, data),
            Some(queue) if queue.queue_id == 0 => ctx.shared.admin_command(now, key, command, data),
            Some(_) => ctx.shared.fabrics_command_on_io_queue(now, key, command),
        };
        match (answer, slot) {
            (Answer::Now(reply), None) => self.deliver(reply, room, ctx),
            (Answer::Now(reply), Some(slot)) => {
                self.slots.remove(slot);
                self.deliver(reply, room, ctx);
            }
            (Answer::Later, None) => {
                self.occupy(command, State::Admin(room));
            }
            (Answer::Later, Some(slot)) => *self.slots.state(slot) = State::Admin(room),
        }
    }

    /// The controllers answer a command that they took before. One for a command that is gone is dropped.
    pub(super) fn handle_reply(&mut self, reply: Reply, ctx: &mut Context<'_>) {
        let Some(slot) = self.slots.find(reply.command_id).filter(|_| self.is_open()) else {
            return;
        };
        let State::Admin(room) = *self.slots.state(slot) else {
            panic!("the controllers answer command {}, which they have not", reply.command_id);
        };
        self.slots.remove(slot);
        if !reply.discarded {
            self.deliver(reply, room, ctx);
        }
    }

    /// Sends a reply of the controllers, its data first.
    fn deliver(&mut self, reply: Reply, room: u32, ctx: &mut Context<'_>) {
        if let Some(queue) = reply.queue {
            self.queue = Some(queue);
            self.registrant = ctx.shared.registrant(queue.handle);
            self.sq_head = 0;
        }
        let fits = reply.data.len() <= room;
        let status = if fits { reply.status } else { Status::INVALID_SGL_LENGTH.with_dnr() };
        if fits && !reply.data.is_empty() {
            self.counters.data_out += u64::from(reply.data.len());
            self.outbox.push_reply_data(reply.command_id, &reply.data, self.digests);
        }
        self.answer_with(reply.command_id, status, reply.result);
        if reply.close {
            self.end_after_send(Reason::Answered, ctx);
        }
    }
}

/// Bytes of data that the host takes as the reply of a command to the controllers.
fn room(command: &Command) -> u32 {
    let sgl = command.sgl();
    let to_host = direction(command) == TO_HOST && sgl.kind == SglKind::TRANSPORT;
    if to_host { sgl.length } else { 0 }
}

/// Whether the data of a command are in its capsule, all of them; false when they are to be asked for.
#[inline]
pub(super) fn check_place(command: &Command, data: &[u8]) -> Result<bool, Status> {
    let sgl = command.sgl();
    if sgl.kind == SglKind::IN_CAPSULE {
        if sgl.length as usize != data.len() {
            return Err(Status::INVALID_SGL_LENGTH.with_dnr());
        }
        return Ok(true);
    }
    check_no_data(data)?;
    Ok(false)
}

/// Data in a capsule belong to a command that says so.
#[inline]
fn check_no_data(data: &[u8]) -> Result<(), Status> {
    if data.is_empty() { Ok(()) } else { Err(Status::INVALID_SGL_LENGTH.with_dnr()) }
}
