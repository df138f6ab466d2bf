//! SCSI commands: each is answered, gets a slot, or stops the stream until there is memory for the
//! data that came with it.
//!
//! Errors: an [`Ending`], answered at once, or behind the data that its host has announced. The
//! session stays. Spec: RFC 7143, 4.2.5.2, 11.3, 11.4; SAM-5, 5. Not here: what a CDB asks for
//! (`scsi`), commands of several steps (`steps`, `copy`).

use block::limits::LOANS_TOGETHER;
use block::{Buffer, Class, Extent, Landing, Loan, Operation, VolumeId};
use scsi::{Facts, Payload, Work};
use wire::iscsi::{ScsiCommand, TaskAttribute};
use wire::scsi::{AdditionalSense, Cdb, Lun, OpCode, ScsiStatus, Sense, SenseKey};

use super::memory::{Need, phase};
use super::receive::Stream;
use super::slots::{Incoming, Judged, Kind, Refused, Task, TaskState};
use super::{Connection, Context, facts};
use crate::limits::DATA_AFTER_R2T;

/// How a command ends whose data, if it had some, are moved: by a status, with sense data if there is
/// something to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) status: ScsiStatus,
    pub(super) sense: Option<Sense>,
}

impl Ending {
    pub(super) const fn bare(status: ScsiStatus) -> Ending {
        Ending { status, sense: None }
    }

    const fn aborted(code: AdditionalSense) -> Ending {
        let sense = Sense::new(SenseKey::ABORTED_COMMAND, code);
        Ending { status: ScsiStatus::CHECK_CONDITION, sense: Some(sense) }
    }

    pub(super) const NO_UNIT: Ending = Ending {
        status: ScsiStatus::CHECK_CONDITION,
        sense: Some(Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)),
    };
    /// Its session has ended.
    pub(super) const ABORTED: Ending = Ending::bare(ScsiStatus::TASK_ABORTED);
    pub(super) const FULL: Ending = Ending::bare(ScsiStatus::TASK_SET_FULL);
    /// There are data with it, or announced, that were not agreed to.
    pub(super) const UNEXPECTED_DATA: Ending =
        Ending::aborted(AdditionalSense::UNEXPECTED_UNSOLICITED_DATA);
    /// What surrounds the CDB does not fit it.
    pub(super) const WRONG_FRAME: Ending = Ending {
        status: ScsiStatus::CHECK_CONDITION,
        sense: Some(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)),
    };
    pub(super) const CORRUPT: Ending = Ending::aborted(AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
}

impl From<Sense> for Ending {
    #[inline]
    fn from(sense: Sense) -> Ending {
        Ending { status: ScsiStatus::CHECK_CONDITION, sense: Some(sense) }
    }
}

/// A command as its session sees it.
pub(super) struct Asked<'a> {
    pub(super) task: Task,
    pub(super) attribute: TaskAttribute,
    pub(super) cdb: Cdb,
    pub(super) lun: Option<u16>,
    /// Bytes that its host has for it, or takes of it.
    pub(super) to_target: u32,
    pub(super) to_host: u32,
    /// Whether nothing comes unasked behind it.
    pub(super) is_final: bool,
    /// Data that came with it.
    pub(super) data: &'a [u8],
}

impl<'a> Asked<'a> {
    #[inline]
    pub(super) fn new(command: &ScsiCommand, data: &'a [u8]) -> Asked<'a> {
        let expected = command.expected_data_transfer_length;
        let lun = Lun(command.lun).number();
        let (is_read, is_write) = (command.flags.is_read(), command.flags.is_write());
        let task = Task {
            tag: command.initiator_task_tag,
            cmd_sn: command.cmd_sn,
            expected,
            length: 0,
            lun: lun.unwrap_or(u16::MAX),
            r2ts: 0,
            is_immediate: command.operation.is_immediate(),
            is_aborted: false,
            descriptor_sense: false,
        };
        Asked {
            task,
            attribute: command.attribute(),
            cdb: Cdb(command.cdb),
            lun,
            to_target: if is_write { expected } else { 0 },
            to_host: if is_read { expected } else { 0 },
            is_final: command.flags.is_final() || !is_write,
            data,
        }
    }
}

impl Connection {
    /// Takes a command with the data that came with it. False when it has to wait at the front of
    /// the stream: then nothing happened yet.
    #[inline]
    pub(super) fn take_command(
        &mut self,
        command: &ScsiCommand,
        data: &[u8],
        is_right: bool,
        ctx: &mut Context<'_>,
    ) -> bool {
        let mut asked = Asked::new(command, data);
        let usual = self.check_usual(command, is_right);
        match usual.and_then(|()| self.start(&mut asked, ctx)) {
            Ok(taken) => taken,
            Err(refusal) => {
                self.refuse(&asked, refusal, ctx);
                true
            }
        }
    }

    /// Refuses what no command for a disk has.
    #[inline]
    pub(super) fn check_usual(
        &mut self,
        command: &ScsiCommand,
        is_right: bool,
    ) -> Result<(), Ending> {
        if is_right && command.total_ahs_length == 0 && is_known(command.attribute()) {
            return Ok(());
        }
        self.refuse_unusual(command, is_right)
    }

    #[cold]
    fn refuse_unusual(&mut self, command: &ScsiCommand, is_right: bool) -> Result<(), Ending> {
        if !is_right {
            self.counters.corrupt += 1;
            return Err(Ending::CORRUPT);
        }
        if command.total_ahs_length != 0 {
            // Longer CDBs and commands that move data both ways: there are none for a disk.
            let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
            return Err(Sense::illegal(code).into());
        }
        // There is no ACA condition that a task could belong to.
        Err(Ending::WRONG_FRAME)
    }

    #[inline]
    fn start(&mut self, asked: &mut Asked<'_>, ctx: &mut Context<'_>) -> Result<bool, Ending> {
        let Some(unit) = self.unit(asked, ctx) else { return self.start_without_unit(asked, ctx) };
        let work = self.admit(asked, unit, ctx)?;
        let volume = unit.volume;
        if self.has_order(asked.attribute, asked.task.lun) && !is_told(&work) {
            if let Payload::ToHost(length) | Payload::FromHost(length) = work.payload() {
                asked.task.length = length;
            }
            match work.payload() {
                Payload::FromHost(0) => {
                    let block = unit.block_size.bytes() as u32;
                    return self.start_odd_write(asked, (volume, block), work, ctx);
                }
                Payload::FromHost(length) if asked.to_target != length => {
                    return Err(Ending::WRONG_FRAME);
                }
                Payload::ToHost(_) => asked.task.expected = asked.to_host,
                Payload::None if work == Work::LbaStatus => {
                    asked.task.expected = asked.to_host;
                }
                _ => {}
            }
            let judged = Judged::of(asked.cdb, unit);
            return self.hold(asked, judged, work, ctx);
        }
        match work.payload() {
            Payload::ToHost(length) => {
                let Work::Read(extent) = work else { unreachable!("{work:?} returns no blocks") };
                asked.task.length = length;
                if length != asked.to_host || !asked.is_final {
                    return self.start_odd_read(asked, volume, extent, ctx);
                }
                self.start_read(asked, volume, extent, ctx);
                Ok(true)
            }
            Payload::FromHost(length) => {
                asked.task.length = length;
                if asked.to_target != length || length == 0 {
                    let block = unit.block_size.bytes() as u32;
                    return self.start_odd_write(asked, (volume, block), work, ctx);
                }
                if asked.data.len() as u32 == length && asked.is_final {
                    return self.start_with_data(asked, volume, work, ctx);
                }
                let judged = Judged::of(asked.cdb, unit);
                self.start_granted(asked, judged, work, ctx)
            }
            Payload::None => self.start_without_data(asked, volume, work, ctx),
        }
    }

    /// What is asked of a LUN under which there is nothing: what there is instead.
    #[cold]
    fn start_without_unit(
        &mut self,
        asked: &mut Asked<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        scsi::judge_absent(&asked.cdb)?;
        if asked.cdb.opcode() == OpCode::REPORT_LUNS {
            // Whoever is given the list knows that it has changed, whichever LUN it asks.
            self.attentions.take(asked.task.lun, OpCode::REPORT_LUNS);
        }
        self.tell(asked, None, ctx)
    }

    /// A read of which its host takes what it returns.
    #[inline]
    fn start_read(
        &mut self,
        asked: &Asked<'_>,
        volume: VolumeId,
        extent: Extent,
        ctx: &mut Context<'_>,
    ) {
        let length = extent.length.0 as u32;
        let phase = phase(&extent);
        let Some(buffer) = self.read_buffer(length, phase, ctx) else {
            return self.wait_to_read(asked, length, phase, ctx);
        };
        match ctx.volumes.find_loan(volume, extent, ctx.memory) {
            Some((disk, extent)) => {
                self.intake.loans.push(Loan { disk, extent, buffer, who: asked.task });
                if self.intake.loans.len() == LOANS_TOGETHER {
                    self.take_loans(ctx);
                }
            }
            None => {
                let slot = self.slots.insert(asked.task, TaskState::InFlight(Kind::Read));
                self.submit(slot, volume, Operation::Read { extent, buffer }, ctx);
            }
        }
    }

    #[cold]
    fn wait_to_read(&mut self, asked: &Asked<'_>, length: u32, phase: u32, ctx: &Context<'_>) {
        let judged = self.judged(asked, ctx).expect("it was just judged");
        self.wait(asked.task, judged, Need { length, phase, count: 1 });
    }

    /// A read that returns more or less than its host takes.
    #[cold]
    fn start_odd_read(
        &mut self,
        asked: &mut Asked<'_>,
        volume: VolumeId,
        extent: Extent,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        asked.task.expected = asked.to_host;
        if asked.to_host == 0 && asked.to_target > 0 {
            // Its host has the direction wrong: nothing can be moved, and what comes passes.
            return Err(Ending::bare(ScsiStatus::GOOD));
        }
        self.start_read(asked, volume, extent, ctx);
        Ok(true)
    }

    /// A write of which its host has more or less data than it takes. Of more, the first are taken;
    /// of less, as many blocks as there are are written.
    #[cold]
    fn start_odd_write(
        &mut self,
        asked: &mut Asked<'_>,
        (volume, block): (VolumeId, u32),
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        let (length, came) = (asked.task.length, asked.data.len() as u32);
        if matches!(work, Work::CompareAndWrite(..)) && asked.to_target != length {
            // NUMBER OF LOGICAL BLOCKS is not half of the blocks that came.
            return Err(Sense::invalid_field(13, 7).into());
        }
        let is_read = asked.to_target == 0 && asked.to_host > 0;
        if matches!(work, Work::WriteSame { .. }) || is_read {
            return Err(Ending::WRONG_FRAME);
        }
        if length == 0 {
            return Err(Ending::bare(ScsiStatus::GOOD));
        }
        if asked.to_target > length {
            // What follows unasked of that has no place.
            if !asked.is_final && asked.to_target.min(self.parameters.first_burst) > length {
                return Err(Ending::WRONG_FRAME);
            }
            asked.data = &asked.data[..came.min(length) as usize];
            if asked.data.len() as u32 == length && asked.is_final {
                return self.start_with_data(asked, volume, work, ctx);
            }
            return self.start_granted(asked, self.judged(asked, ctx)?, work, ctx);
        }
        let shorter = |extent: Extent| Extent::new(extent.offset.0, u64::from(came));
        let work = match work {
            Work::Write(extent, durable) => Work::Write(shorter(extent), durable),
            Work::WriteAndVerify(extent) => Work::WriteAndVerify(shorter(extent)),
            _ => return Err(Ending::WRONG_FRAME),
        };
        if came != asked.to_target || !asked.is_final || came % block != 0 {
            return Err(Ending::WRONG_FRAME);
        }
        match came {
            0 => Err(Ending::bare(ScsiStatus::GOOD)),
            _ => self.start_with_data(asked, volume, work, ctx),
        }
    }

    /// A command that is answered with what is known here: of the device, or, of a volume, of its
    /// reservation and the session's copies.
    #[cold]
    fn tell(
        &mut self,
        asked: &mut Asked<'_>,
        of: Option<(VolumeId, Work)>,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        if self.outbox.is_crowded() {
            self.intake.stream = Stream::Unread;
            return Ok(false);
        }
        let data = match of {
            Some((volume, Work::ReserveIn)) => self.reservation_data(asked, volume, ctx)?,
            Some((_, Work::CopyResults)) => self.copy_data(asked)?,
            _ => self.device_data(asked, ctx)?,
        };
        asked.task.expected = asked.to_host;
        self.send_reply(&asked.task, &data);
        Ok(true)
    }

    /// Answers a task with data that were made here.
    pub(super) fn send_reply(&mut self, task: &Task, data: &[u8]) {
        self.counters.sent_bytes += (data.len() as u64).min(task.expected.into());
        self.outbox.push_reply(task, data);
    }

    fn device_data(&mut self, asked: &Asked<'_>, ctx: &mut Context<'_>) -> Result<Vec<u8>, Ending> {
        let session = self.state.session().expect("a command is a session's");
        let luns = ctx.shared.luns(session);
        let pending = match asked.cdb.opcode() {
            OpCode::REQUEST_SENSE => self.attentions.take_as_data(asked.task.lun),
            _ => None,
        };
        let name = ctx.shared.nexus(session).map_or("", |nexus| nexus.target.as_str());
        let groups = self.groups(ctx);
        let unit = self.unit(asked, ctx);
        let reply = |facts: &Facts<'_>| scsi::reply(&asked.cdb, unit, facts);
        let data = facts::with(name, self.group, &groups, &luns, pending, reply)?;
        if scsi::tells_whose(&asked.cdb) {
            ctx.shared.identified(session, asked.task.lun);
        }
        Ok(data)
    }

    /// A command that moves no data; those that come with it all the same pass.
    fn start_without_data(
        &mut self,
        asked: &mut Asked<'_>,
        volume: VolumeId,
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        match work {
            Work::Reply | Work::ReserveIn | Work::CopyResults => {
                return self.tell(asked, Some((volume, work)), ctx);
            }
            Work::Nothing => return Err(Ending::bare(ScsiStatus::GOOD)),
            // There is no cache that it would fill: the condition is not met, and nothing is promised.
            Work::Prefetch(_) => return Err(Ending::bare(ScsiStatus::GOOD)),
            _ if !asked.is_final => return Err(Ending::UNEXPECTED_DATA),
            Work::LbaStatus => {
                let judged = self.judged(asked, ctx)?;
                asked.task.expected = asked.to_host;
                let taken = TaskState::InFlight(Kind::Steps(Class::Transfer));
                let slot = self.slots.insert(asked.task, taken);
                self.begin_search(slot, volume, judged, ctx);
                return Ok(true);
            }
            Work::Hold | Work::EndHold => {
                let taken = TaskState::InFlight(Kind::Plain(Class::Transfer));
                let slot = self.slots.insert(asked.task, taken);
                self.change_hold(slot, volume, work, ctx);
                return Ok(true);
            }
            _ => {}
        }
        let operation = work.operation(Buffer::empty());
        let slot = self.slots.insert(asked.task, TaskState::InFlight(Kind::Plain(Class::Transfer)));
        self.submit(slot, volume, operation, ctx);
        Ok(true)
    }

    /// A command whose data all came with it; false when there is no memory for them. A write that
    /// may be volatile lands where the volume's memory takes it.
    #[inline]
    fn start_with_data(
        &mut self,
        asked: &Asked<'_>,
        volume: VolumeId,
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        if !self.parameters.immediate_data && !asked.data.is_empty() {
            return Err(Ending::UNEXPECTED_DATA);
        }
        let Work::Write(extent, durable) = work else {
            return self.start_other_with_data(asked, volume, work, ctx);
        };
        if !durable
            && let Some((disk, extent)) = ctx.volumes.find_landing(volume, extent, ctx.memory)
        {
            let (from, who) = (self.intake.data_from, self.intake.landing_tasks.len() as u16);
            self.intake.landings.push(Landing { volume, disk, extent, from, who });
            self.intake.landing_tasks.push(asked.task);
            return Ok(true);
        }
        let length = asked.data.len() as u32;
        let Some(mut buffer) = self.immediate_buffer(length, work.phase(), ctx) else {
            return Ok(false);
        };
        ctx.memory.write(&mut buffer, 0, asked.data);
        let slot =
            self.slots.insert(asked.task, TaskState::InFlight(Kind::Plain(Class::Immediate)));
        self.submit(slot, volume, Operation::Write { extent, buffer, durable }, ctx);
        Ok(true)
    }

    fn start_other_with_data(
        &mut self,
        asked: &Asked<'_>,
        volume: VolumeId,
        work: Work,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        let length = asked.data.len() as u32;
        let judged = self.judged(asked, ctx)?;
        let need = Need::of(&work, &asked.cdb, length);
        let Some(buffers) = self.immediate_buffers(need, ctx) else { return Ok(false) };
        let mut data = Incoming::new(buffers, length, ctx.now);
        data.write(0, asked.data, ctx.memory);
        let state = TaskState::InFlight(Kind::Plain(Class::Immediate));
        let slot = self.slots.insert(asked.task, state);
        self.carry_out(slot, (volume, work), &judged, data, Class::Immediate, ctx);
        Ok(true)
    }

    /// Refuses a command that has no slot: now, or once the data have passed that come unasked.
    #[cold]
    pub(super) fn refuse(&mut self, asked: &Asked<'_>, refusal: Ending, ctx: &Context<'_>) {
        if asked.is_final {
            return self.answer(&asked.task, refusal);
        }
        let Ending { status, sense } = refusal;
        let refused = Box::new(Refused { status, sense, since: ctx.now });
        self.slots.insert(asked.task, TaskState::Refused(refused));
        self.arm(ctx.now + DATA_AFTER_R2T);
    }

    /// The unsolicited data of a task that can only fail have passed.
    pub(super) fn refused_is_over(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let TaskState::Refused(refused) = self.slots.state(slot) else {
            panic!("slot {slot} was refused");
        };
        let refusal = Ending { status: refused.status, sense: refused.sense };
        self.end(slot, refusal, ctx);
    }
}

/// Whether a command is answered from what is known here, at once and whatever its order.
#[inline]
fn is_told(work: &Work) -> bool {
    matches!(
        work,
        Work::Reply | Work::ReserveIn | Work::CopyResults | Work::Prefetch(_) | Work::Nothing
    )
}

/// Whether a task may have this attribute.
#[inline]
fn is_known(attribute: TaskAttribute) -> bool {
    attribute <= TaskAttribute::HEAD_OF_QUEUE
}
