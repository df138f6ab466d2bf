//! Commands: each that comes in a capsule is answered, gets a slot, or stops the stream until there
//! is memory for its data.
//!
//! Errors: a status, answered at once; the connection stays. Spec: NVMe base, "Submission Queue
//! Entry", "Command capsules"; NVMe/TCP, "Command data buffers", "R2T". Not here: fused pairs
//! (`fused`).

use block::limits::LOANS_TOGETHER;
use block::{Buffer, Class, Extent, Landing, Loan, Operation, VolumeId, planted};
use wire::nvme::command::{AdminOpcode, Fuse, IoOpcode, NSID_ALL, SglKind};
use wire::nvme::fabrics::FabricsType;
use wire::nvme::{Command, Status};

use super::receive::Stream;
use super::slots::{CommandState, Grant, InFlight, Incoming, Judged, JudgedIo, Kind};
use super::{Connection, Context, Fused, Reason, State};
use crate::controllers::health::Origin;
use crate::controllers::{Answer, QueueHandle, QueueView, Reply};
use crate::io::{self, Payload, Work};
use crate::limits::CAPSULE_DATA_MAX;
use crate::paths::check_path;

/// Which way the data of an admin or Fabrics command go: bits 1:0 of OPC or FCTYPE.
fn direction(command: &Command) -> u8 {
    if command.is_fabrics() { FabricsType::of(command).0 & 3 } else { command.opcode() & 3 }
}
const FROM_HOST: u8 = 1;
const TO_HOST: u8 = 2;

impl Connection {
    /// Takes a command with the data in its capsule. False when it has to wait at the front of the
    /// stream: then nothing happened yet.
    #[inline]
    pub(super) fn take_command(
        &mut self,
        command: &Command,
        data: &[u8],
        corrupt: bool,
        ctx: &mut Context<'_>,
    ) -> bool {
        let command_id = command.command_id();
        if self.slots.holds(command_id) && !self.forget_event_request(command, ctx) {
            self.take_conflicting(command, ctx);
            return true;
        }
        let in_pair = matches!(&self.state, State::Io { fused, .. } if *fused != Fused::None);
        if in_pair || command.fuse() != Fuse::NONE || corrupt {
            return self.take_unusual(command, data, corrupt, ctx);
        }
        self.take_plain(command, data, ctx)
    }

    /// Forgets the held Asynchronous Event Request whose CID another command has. SPDK's host, when
    /// it shuts down, gives the CIDs of its held requests to the commands that it shuts down with;
    /// two requests of one CID it does not make. One that has just been answered is told now.
    /// Returns whether there was one.
    #[cold]
    fn forget_event_request(&mut self, command: &Command, ctx: &mut Context<'_>) -> bool {
        let State::Admin(queue) = &self.state else { return false };
        let is_one =
            !command.is_fabrics() && command.admin_opcode() == AdminOpcode::ASYNC_EVENT_REQUEST;
        let (handle, command_id) = (queue.view.handle, command.command_id());
        if is_one || planted("held-event-keeps-its-cid") {
            return false;
        }
        if let Some(reply) = ctx.shared.take_event_reply(handle, command_id) {
            self.handle_reply(reply, ctx);
            return true;
        }
        if !ctx.shared.forget_event_request(handle, command_id) {
            return false;
        }
        let slot = self.slots.find(command_id).expect("a held request has a slot");
        self.slots.remove(slot);
        self.counters.forgotten += 1;
        true
    }

    /// A command that is no part of a fused pair.
    #[inline]
    pub(super) fn take_plain(
        &mut self,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> bool {
        let started = match self.state {
            State::Io { queue, .. } if !command.is_fabrics() => {
                self.start_io(&queue.view, command, data, ctx)
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

    /// The queue of an I/O command; `None` for one that goes to the controllers.
    pub(super) fn io_queue(&self, command: &Command) -> Option<QueueHandle> {
        match &self.state {
            State::Io { queue, .. } if !command.is_fabrics() => Some(queue.view.handle),
            _ => None,
        }
    }

    /// Puts a command into a slot; its CID was seen to be free.
    #[inline]
    pub(super) fn occupy(&mut self, command: &Command, state: CommandState) -> u16 {
        self.slots.insert(Origin::of(command), state)
    }

    /// Moves a command on in the slot that it has, or puts it into one.
    pub(super) fn place(
        &mut self,
        slot: Option<u16>,
        command: &Command,
        state: CommandState,
    ) -> u16 {
        let Some(slot) = slot else { return self.occupy(command, state) };
        *self.slots.state(slot) = state;
        slot
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
        check_path(ctx.paths.state(self.group))?;
        if command.nsid() == NSID_ALL && command.io_opcode() == IoOpcode::FLUSH {
            return self.flush_all(queue, command, ctx);
        }
        let namespace = namespace.ok_or_else(|| io::without_namespace(command))?;
        let work = io::judge(command, namespace)?;
        let volume = namespace.volume;
        self.check_reservation(volume, work.access(), ctx.reservations)?;
        match work {
            Work::Read(extent) => self.start_read(command, volume, extent, data, ctx),
            _ if work.payload() == Payload::None => {
                check_no_data(data)?;
                let slot = self.occupy(command, CommandState::in_flight(Kind::Transfer));
                self.submit(slot, volume, work.operation(Buffer::empty()), ctx);
                Ok(true)
            }
            _ if check_place(command, data)? => match work {
                Work::Ranges(_) => {
                    let extents = io::ranges(command, data, namespace)?;
                    if extents.is_empty() {
                        self.answer(command.command_id(), Status::SUCCESS);
                        return Ok(true);
                    }
                    let Some(memory) = self.capsule_memory(data.len() as u32, 0, ctx) else {
                        return Ok(false);
                    };
                    let state = CommandState::in_flight(Kind::Ranges(Class::Immediate));
                    let slot = self.occupy(command, state);
                    self.discard(slot, volume, extents, memory, ctx);
                    Ok(true)
                }
                Work::Copy(_) => {
                    let segments = io::segments(command, data, namespace)?;
                    let (length, phase) = work.memory();
                    let Some(memory) = self.capsule_memory(length, phase, ctx) else {
                        return Ok(false);
                    };
                    let judged = JudgedIo::new(command, queue.handle, ctx);
                    self.begin_copy(None, judged, segments, (memory, Class::Immediate), ctx);
                    Ok(true)
                }
                Work::Reserve(_) => {
                    self.propose(None, command, volume, data, ctx)?;
                    Ok(true)
                }
                _ => Ok(self.start_with_data(command, volume, work, data, ctx)),
            },
            Work::Report(bytes) => Ok(self.report(command, volume, bytes, ctx)),
            _ => {
                self.start_granted(command, work.memory(), ctx);
                Ok(true)
            }
        }
    }

    #[inline]
    fn start_read(
        &mut self,
        command: &Command,
        volume: VolumeId,
        extent: Extent,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        check_no_data(data)?;
        if command.sgl().kind != SglKind::TRANSPORT {
            return Err(Status::INVALID_SGL_TYPE.with_dnr());
        }
        let (length, phase) = (extent.length.0 as u32, io::phase(&extent));
        match self.transfer_memory(length, phase, ctx) {
            Some(buffer) => match ctx.volumes.find_loan(volume, extent, ctx.memory) {
                Some((disk, extent)) => {
                    let who = command.command_id();
                    self.intake.loans.push(Loan { disk, extent, buffer, who });
                    if self.intake.loans.len() == LOANS_TOGETHER {
                        self.take_loans(ctx);
                    }
                }
                None => {
                    let slot = self.occupy(command, CommandState::in_flight(Kind::Read));
                    self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
                }
            },
            None => self.wait(command, length, phase, ctx),
        }
        Ok(true)
    }

    /// A write or compare whose data came with it; false when there is no memory for them. A write
    /// that may be volatile lands where the volume's memory takes it.
    #[inline]
    fn start_with_data(
        &mut self,
        command: &Command,
        volume: VolumeId,
        work: Work,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> bool {
        if let Work::Write(extent, false) = work
            && let Some((disk, extent)) = ctx.volumes.find_landing(volume, extent, ctx.memory)
        {
            let (from, who) = (self.intake.data_from, command.command_id());
            self.intake.landings.push(Landing { volume, disk, extent, from, who });
            return true;
        }
        let (length, phase) = work.memory();
        let Some(mut buffer) = self.capsule_memory(length, phase, ctx) else {
            return false;
        };
        ctx.memory.write(&mut buffer, 0, data);
        let slot = self.occupy(command, CommandState::in_flight(Kind::Capsule));
        self.submit(slot, volume, work.operation(buffer), ctx);
        true
    }

    /// A command whose data have to be asked for: it gets its whole buffer first, or waits for it.
    fn start_granted(
        &mut self,
        command: &Command,
        (length, phase): (u32, u32),
        ctx: &mut Context<'_>,
    ) {
        match self.transfer_memory(length, phase, ctx) {
            Some(buffer) => {
                let judged = self.judged(command, ctx);
                let data = Incoming::of(command.sgl().length, buffer);
                let grant = Box::new(Grant { judged, data });
                let slot = self.occupy(command, CommandState::Granted(grant));
                self.ask_for_data(slot, ctx);
            }
            None => self.wait(command, length, phase, ctx),
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
        let (parts, status) = (volumes.len() as u16, Status::SUCCESS);
        let flight = InFlight { parts, kind: Kind::Transfer, status };
        let slot = self.occupy(command, CommandState::InFlight(flight));
        for volume in volumes {
            self.submit(slot, volume, Operation::Flush, ctx);
        }
        Ok(true)
    }

    /// Discards what a Dataset Management command asks for; `memory`, of the account that `slot`
    /// is in flight for, stands for its ranges until it is answered.
    fn discard(
        &mut self,
        slot: u16,
        volume: VolumeId,
        extents: Vec<Extent>,
        memory: Buffer,
        ctx: &mut Context<'_>,
    ) {
        self.ranges.insert(slot, memory);
        self.submit(slot, volume, Operation::Discard { extents }, ctx);
    }

    /// All data that were asked for came.
    pub(super) fn data_is_whole(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let grant = match self.slots.state(slot) {
            CommandState::Granted(grant) => grant,
            CommandState::Pair(_) => return self.try_pair(slot, ctx),
            CommandState::Second(first) => {
                let first = *first;
                return self.try_pair(first, ctx);
            }
            state => panic!("data came for slot {slot}, which is {state:?}"),
        };
        let judged = grant.judged;
        let (corrupt, length) = (grant.data.corrupt, grant.data.length);
        let buffer = core::mem::take(&mut grant.data.buffer);
        if corrupt {
            ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
            return self.finish(slot, Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let work = match self.judge_again(&judged, ctx) {
            Ok(work) => work,
            Err(status) => {
                ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                return self.finish(slot, status);
            }
        };
        let (volume, operation) = match work {
            Some((volume, work @ (Work::Write(..) | Work::Compare(_)))) => {
                (volume, work.operation(buffer))
            }
            _ => {
                let mut data = vec![0; length as usize];
                ctx.memory.read(&buffer, 0, &mut data);
                return match (judged, work) {
                    (Judged::Io(judged), Some((volume, Work::Reserve(_)))) => {
                        ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                        self.propose(Some(slot), &judged.command, volume, &data, ctx)
                            .unwrap_or_else(|status| self.finish(slot, status));
                    }
                    (Judged::Io(judged), Some((_, Work::Copy(_)))) => {
                        self.copy_granted(slot, judged, &data, buffer, ctx);
                    }
                    (Judged::Io(judged), _) => {
                        self.discard_granted(slot, &judged, &data, buffer, ctx);
                    }
                    (Judged::Control(command), _) => {
                        ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                        self.ask_controllers(Some(slot), &command, &data, ctx);
                    }
                };
            }
        };
        *self.slots.state(slot) = CommandState::in_flight(Kind::Transfer);
        self.submit(slot, volume, operation, ctx);
    }

    fn discard_granted(
        &mut self,
        slot: u16,
        judged: &JudgedIo,
        data: &[u8],
        buffer: Buffer,
        ctx: &mut Context<'_>,
    ) {
        let command = &judged.command;
        let extents = judged
            .namespace_again(ctx)
            .and_then(|namespace| Ok((namespace.volume, io::ranges(command, data, namespace)?)));
        let status = match extents {
            Ok((volume, extents)) if !extents.is_empty() => {
                let state = CommandState::in_flight(Kind::Ranges(Class::Transfer));
                *self.slots.state(slot) = state;
                let memory = Buffer::reserved(buffer.len(), buffer.phase());
                ctx.memory.release(buffer);
                return self.discard(slot, volume, extents, memory, ctx);
            }
            Ok(_) => Status::SUCCESS,
            Err(status) => status,
        };
        ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
        self.finish(slot, status);
    }

    /// An admin or Fabrics command: to the controllers, once its data are there. One that takes
    /// data of the reply stops the stream while too much of those is unsent: replies are not
    /// counted in the pool.
    fn start_control(
        &mut self,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<bool, Status> {
        io::check_pointer(command)?;
        let sgl = command.sgl();
        if host_length(command) > 0 && self.outbox.is_crowded() {
            self.intake.stream = Stream::Unread;
            return Ok(false);
        }
        if check_place(command, data)? || sgl.length == 0 || direction(command) != FROM_HOST {
            self.ask_controllers(None, command, data, ctx);
            return Ok(true);
        }
        // Admin data from the host that did not come in the capsule, as every host may send them.
        if sgl.length > CAPSULE_DATA_MAX || self.state.queue().is_none() {
            return Err(Status::INVALID_SGL_LENGTH.with_dnr());
        }
        self.start_granted(command, (sgl.length, 0), ctx);
        Ok(true)
    }

    /// Gives a command to the controllers; `slot` is where it waited for its data, if it did.
    fn ask_controllers(
        &mut self,
        slot: Option<u16>,
        command: &Command,
        data: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let host_length = host_length(command);
        let (now, key) = (ctx.now, self.key());
        let in_force = (ctx.reservations, ctx.paths);
        let answer = match &self.state {
            State::Admin(_) => ctx.shared.admin_command(now, key, command, data, in_force),
            State::Io { .. } => ctx.shared.fabrics_command_on_io_queue(now, key, command),
            _ => ctx.shared.connect(now, key, &self.endpoint, command, data),
        };
        match answer {
            Answer::Now(reply) => {
                if let Some(slot) = slot {
                    self.slots.remove(slot);
                }
                self.deliver(reply, host_length, ctx);
            }
            Answer::Later => {
                self.place(slot, command, CommandState::Controllers(host_length));
            }
        }
    }

    /// The controllers answer a command that they took before. One for a command that is gone is
    /// dropped.
    pub(super) fn handle_reply(&mut self, reply: Reply, ctx: &mut Context<'_>) {
        let Some(slot) = self.slots.find(reply.command_id).filter(|_| self.is_open()) else {
            return;
        };
        let CommandState::Controllers(host_length) = *self.slots.state(slot) else {
            panic!("the controllers answer command {}, which they have not", reply.command_id);
        };
        self.slots.remove(slot);
        if !reply.discarded {
            self.deliver(reply, host_length, ctx);
        }
    }

    /// Sends a reply of the controllers, its data first.
    fn deliver(&mut self, reply: Reply, host_length: u32, ctx: &mut Context<'_>) {
        if let Some(queue) = reply.queue {
            self.registrant = ctx.shared.registrant(queue.handle);
            self.group = queue.group;
            self.state = State::of(queue);
        }
        let fits = reply.data.len() <= host_length;
        let status = if fits { reply.status } else { Status::INVALID_SGL_LENGTH.with_dnr() };
        if fits && !reply.data.is_empty() {
            self.counters.sent_bytes += u64::from(reply.data.len());
            self.outbox.push_reply_data(reply.command_id, &reply.data, self.digests);
        }
        self.answer_with(reply.command_id, status, reply.result);
        if reply.close {
            self.end_after_send(Reason::Answered, ctx);
        }
    }
}

/// Bytes of data that the host takes as the reply of a command to the controllers.
fn host_length(command: &Command) -> u32 {
    let sgl = command.sgl();
    let to_host = direction(command) == TO_HOST && sgl.kind == SglKind::TRANSPORT;
    if to_host { sgl.length } else { 0 }
}

/// Whether the data of a command are in its capsule, all of them; false when they are to be asked
/// for.
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
