//! Received bytes: the stream is cut into PDUs, commands go to `command`, data of the host to where
//! they belong.
//!
//! What is here never depends on how the stream was cut into segments: a PDU is acted upon once its
//! header is whole, one with text or immediate data once all of it is there, the data of Data-Out
//! as they come. From [`DIRECT_RECEIVE_MIN`] bytes on the rest of a Data-Out is received straight
//! into its buffer. Errors: a [`Violation`], told by a Reject; then the session ends. Spec: RFC
//! 7143, 4.2.2 (numbering), 4.2.5.2 (data), 7.8 (digest errors), 11.8 (Data-Out).

use block::limits::{DIRECT_RECEIVE_MIN, LANDINGS_TOGETHER, TURN_BYTES};
use contract::{Direct, Next, Receive};
use wire::iscsi::serial;
use wire::iscsi::{
    Bhs, NopOut, Opcode, RESERVED_TAG, RejectReason, ScsiCommand, TaskAttribute, TextRequest,
};
use wire::scsi::OpCode;

use super::host_data::Part;
use super::memory::Need;
use super::{Connection, Context, State};
use crate::limits::{
    COMMANDS_MAX, FIRST_BURST_MAX, IMMEDIATE_MAX, PDU_COMPLETE, SEGMENT_MAX, TEXT_SEGMENT_MAX,
    TURN_PDUS,
};
use crate::pdu_stream::{Front, PduHead, Violation, peek};

/// Bytes received beyond what is needed while one large payload is awaited: enough for many
/// headers, few enough that most of a large payload is received directly.
const HEADERS_AHEAD: u32 = 4096;
/// The smallest PDU.
const SMALLEST: u32 = Bhs::SIZE as u32;

/// Where in a PDU the stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stream {
    /// Before a PDU.
    #[default]
    Header,
    /// In the data of a Data-Out.
    Data(Part),
    /// Before their padding and digest.
    Trailer(Part),
    /// In what is of no use to anybody: so many bytes.
    Skip(u32),
    /// Before a command that needs memory.
    OutOfMemory(Need),
    /// Before a PDU that asks for data of a reply, of which too much is unsent.
    Unread,
    /// Behind a login that waits for other shards.
    Halted,
    /// Before the same PDU, or behind what halted it: bytes are to be shown again.
    Resuming,
}

/// What one step did with the front of the stream.
pub(super) enum Step {
    /// It is done with so many bytes.
    Consumed(usize),
    /// It needs so many bytes.
    Short(u32),
    /// It is done with all bytes, and the next ones belong there.
    Direct(Direct),
    /// It waits for memory, or until the host reads.
    Pause,
    /// It is done with so many bytes, and waits for other shards.
    Halt(usize),
    /// The connection ends.
    End,
}

/// What becomes of a command by its CmdSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the next one, or immediate.
    Now,
    /// It is none of the window's: nothing is done and nothing said.
    Never,
    /// It is one more immediate command than is kept.
    Rejected,
}

impl Connection {
    /// Bytes came. See [`contract::Machine::handle_received`].
    pub fn handle_received(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Receive {
        let receive = self.take_stream(bytes, ctx);
        if !self.intake.landings.is_empty() {
            self.take_landings(bytes, ctx);
        }
        if !self.intake.loans.is_empty() {
            self.take_loans(ctx);
        }
        receive
    }

    fn take_stream(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Receive {
        let mut at = 0;
        let mut pdus = 0;
        while self.is_open() {
            if !self.intake.landings.is_empty() && !may_join(&bytes[at..]) {
                self.take_landings(bytes, ctx);
            }
            self.intake.front = at;
            let step = match self.step(&bytes[at..], ctx) {
                Ok(step) => step,
                Err(violation) => {
                    // What came before it is answered before it.
                    self.take_landings(bytes, ctx);
                    self.take_loans(ctx);
                    self.violated(violation, &bytes[at..], ctx);
                    break;
                }
            };
            match step {
                Step::Consumed(count) => at += count,
                Step::Short(at_least) => {
                    self.begin(ctx);
                    let next = Next::Stream { at_least, at_most: self.at_most() };
                    return Receive { consumed: at, next };
                }
                Step::Direct(direct) => {
                    self.begin(ctx);
                    return Receive { consumed: bytes.len(), next: Next::Direct(direct) };
                }
                Step::Pause => {
                    self.intake.begun = None;
                    return Receive { consumed: at, next: Next::Pause };
                }
                Step::Halt(count) => {
                    self.intake.begun = None;
                    return Receive { consumed: at + count, next: Next::Pause };
                }
                Step::End => break,
            }
            pdus += 1;
            if self.intake.stream == Stream::Header {
                self.intake.begun = None;
            }
            if self.intake.landings.len() == LANDINGS_TOGETHER {
                self.take_landings(bytes, ctx);
            }
            if at == bytes.len() {
                let next = self.next_at_end(ctx);
                return Receive { consumed: at, next };
            }
            if pdus >= TURN_PDUS || at >= TURN_BYTES as usize {
                self.intake.begun = None;
                return Receive { consumed: at, next: Next::Yield };
            }
        }
        Receive { consumed: bytes.len(), next: Next::Pause }
    }

    /// What stopped the stream is over: what is at its front is shown again.
    pub(super) fn resume(&mut self, now: block::Instant) {
        (self.intake.stream, self.intake.resumed) = (Stream::Resuming, now);
    }

    /// A direct receive is complete. See [`contract::Machine::handle_direct`].
    pub fn handle_direct(&mut self, direct: Direct, ctx: &mut Context<'_>) -> Next {
        if !self.is_open() {
            ctx.pool.give(&mut self.transfers, ctx.memory, direct.buffer);
            return Next::Pause;
        }
        let Stream::Data(mut part) = self.intake.stream else {
            panic!(
                "a direct receive of {} bytes came back at {:?}",
                direct.length, self.intake.stream
            );
        };
        let slot = part.slot;
        assert!(
            u64::from(slot) == direct.token && part.left == direct.length,
            "asked for {} bytes of slot {slot}, got {} of {}",
            part.left,
            direct.length,
            direct.token
        );
        self.counters.received_bytes += u64::from(direct.length);
        part.left = 0;
        let data = self.slots.incoming(slot).expect("whoever lent its buffer still takes data");
        data.buffer = direct.buffer;
        data.since = ctx.now;
        self.part_is_there(part, ctx);
        if self.intake.stream == Stream::Header {
            self.intake.begun = None;
        }
        self.next_at_end(ctx)
    }

    /// Something of a PDU came and it is not whole: its time runs.
    #[inline]
    pub(super) fn begin(&mut self, ctx: &Context<'_>) {
        if self.intake.begun.is_none() {
            self.intake.begun = Some(ctx.now);
            self.arm(ctx.now + PDU_COMPLETE);
        }
    }

    /// How much may be received beyond what is needed.
    #[inline]
    fn at_most(&self) -> u32 {
        if self.awaits_one() { HEADERS_AHEAD } else { u32::MAX }
    }

    /// Whether all that was asked for is one payload, and a large one.
    #[inline]
    pub(super) fn awaits_one(&self) -> bool {
        self.intake.asked == 1 && self.intake.asked_large == 1
    }

    /// What should come next once all shown bytes are consumed.
    #[inline]
    pub(super) fn next_at_end(&mut self, ctx: &mut Context<'_>) -> Next {
        if !self.is_open() {
            return Next::Pause;
        }
        let at_least = match self.intake.stream {
            Stream::Header => {
                if self.intake.asked == 0 {
                    return Next::Idle;
                }
                SMALLEST
            }
            Stream::Data(part) => {
                self.begin(ctx);
                if part.left >= DIRECT_RECEIVE_MIN {
                    return Next::Direct(self.lend(part, ctx));
                }
                let at_most = self.at_most().saturating_add(part.left);
                return Next::Stream { at_least: part.left, at_most };
            }
            Stream::Trailer(part) => {
                self.begin(ctx);
                self.trailer_bytes(part.length)
            }
            Stream::Skip(left) => {
                self.begin(ctx);
                left.min(SMALLEST)
            }
            Stream::OutOfMemory(_) | Stream::Unread | Stream::Halted | Stream::Resuming => {
                return Next::Pause;
            }
        };
        Next::Stream { at_least, at_most: self.at_most() }
    }

    /// Takes what is at the front of the stream; `bytes` is never empty.
    #[inline]
    fn step(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Result<Step, Violation> {
        match self.intake.stream {
            Stream::Header => self.pdu(bytes, ctx),
            Stream::Data(part) => Ok(self.data(part, bytes, ctx)),
            Stream::Trailer(part) => Ok(self.trailer(part, bytes, ctx)),
            Stream::Skip(left) => Ok(self.skip(left, bytes)),
            stopped => panic!("bytes were shown to a stream that is {stopped:?}"),
        }
    }

    #[inline]
    fn pdu(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Result<Step, Violation> {
        let is_login = matches!(self.state, State::Login(_));
        let segment_max = if is_login { TEXT_SEGMENT_MAX } else { SEGMENT_MAX };
        let head = match peek(bytes, self.outbox.digests, segment_max)? {
            Front::Pdu(head) => head,
            Front::Short(at_least) => return Ok(Step::Short(at_least)),
        };
        let opcode = head.bhs.opcode();
        if is_login != (opcode == Opcode::LOGIN_REQUEST) {
            return Err(Violation::protocol("login first, and once"));
        }
        match opcode {
            Opcode::SCSI_COMMAND if !matches!(self.state, State::Session(None)) => {
                self.command(bytes, &head, ctx)
            }
            Opcode::SCSI_COMMAND => self.command_in_discovery(bytes, &head),
            Opcode::DATA_OUT => self.host_data(bytes, &head, ctx),
            // At level 0 nothing is asked for again.
            Opcode::SNACK => Ok(self.refuse_pdu(RejectReason::SNACK, bytes, &head)),
            _ if !opcode.is_from_initiator() => {
                Err(Violation::protocol("a PDU that initiators send"))
            }
            _ => self.control(bytes, &head, ctx),
        }
    }

    /// A PDU other than commands and their data: acted upon when all of it is there.
    fn control(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        if head.data_length > TEXT_SEGMENT_MAX {
            return self.refuse_long(bytes, head);
        }
        let total = head.total(self.outbox.digests);
        if bytes.len() < total as usize {
            return Ok(Step::Short(total));
        }
        if !head.data_are_right(bytes, self.outbox.digests) {
            self.counters.corrupt += 1;
            return Err(Violation::new(RejectReason::DATA_DIGEST_ERROR, "data digest"));
        }
        self.take_control(&bytes[..total as usize], head, ctx)
    }

    /// Rejects a PDU, whose data pass: not while too much is unsent.
    #[cold]
    fn refuse_pdu(&mut self, reason: RejectReason, bytes: &[u8], head: &PduHead) -> Step {
        if self.outbox.is_crowded() {
            self.intake.stream = Stream::Unread;
            return Step::Pause;
        }
        self.reject(reason, bytes);
        self.pass(head)
    }

    /// Is done with a PDU whose data are of no use.
    pub(super) fn pass(&mut self, head: &PduHead) -> Step {
        let left = head.data_length + head.trailer(self.outbox.digests);
        if left > 0 {
            self.intake.stream = Stream::Skip(left);
        }
        Step::Consumed(head.data_at as usize)
    }

    fn skip(&mut self, left: u32, bytes: &[u8]) -> Step {
        let count = bytes.len().min(left as usize);
        let left = left - count as u32;
        self.intake.stream = if left == 0 { Stream::Header } else { Stream::Skip(left) };
        Step::Consumed(count)
    }

    /// Whose turn a command is. One that takes its turn is counted by
    /// [`take_turn`](Self::take_turn).
    #[inline]
    pub(super) fn turn(&self, is_immediate: bool, cmd_sn: u32) -> Result<Turn, Violation> {
        let numbers = &self.outbox.numbers;
        if is_immediate {
            let waits = (self.managements.len() + self.resets.len()) as u32;
            return match self.unanswered() + waits >= COMMANDS_MAX + IMMEDIATE_MAX {
                true => Ok(Turn::Rejected),
                false => Ok(Turn::Now),
            };
        }
        if !serial::is_within(cmd_sn, numbers.exp_cmd_sn, numbers.told_max_cmd_sn) {
            return Ok(Turn::Never);
        }
        match cmd_sn == numbers.exp_cmd_sn {
            true => Ok(Turn::Now),
            // There is one connection, on which commands come in their order.
            false => Err(Violation::protocol("CmdSN in order on a connection")),
        }
    }

    /// A command takes its turn.
    #[inline]
    pub(super) fn take_turn(&mut self, is_immediate: bool) {
        if !is_immediate {
            let numbers = &mut self.outbox.numbers;
            numbers.exp_cmd_sn = numbers.exp_cmd_sn.wrapping_add(1);
        }
    }

    /// A command could not take its turn after all.
    pub(super) fn give_turn_back(&mut self, is_immediate: bool) {
        if !is_immediate {
            let numbers = &mut self.outbox.numbers;
            numbers.exp_cmd_sn = numbers.exp_cmd_sn.wrapping_sub(1);
        }
    }

    #[inline]
    fn command(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        if head.data_length > self.parameters.first_burst {
            return Err(Violation::protocol("immediate data within FirstBurstLength"));
        }
        if head.data_length > FIRST_BURST_MAX {
            return self.long_command(bytes, head, ctx);
        }
        let total = head.total(self.outbox.digests) as usize;
        if bytes.len() < total {
            return Ok(Step::Short(total as u32));
        }
        let command = ScsiCommand::parse(bytes).map_err(|error| Violation::field(&error))?;
        let is_immediate = command.operation.is_immediate();
        match self.turn(is_immediate, command.cmd_sn)? {
            Turn::Now => {}
            Turn::Never => return Ok(Step::Consumed(total)),
            Turn::Rejected => return Ok(self.reject_immediate(bytes, head)),
        }
        let data = head.data(bytes);
        self.intake.data_from = self.intake.front + head.data_at as usize;
        let is_right = head.data_are_right(bytes, self.outbox.digests);
        self.take_turn(is_immediate);
        if !self.take_command(&command, data, is_right, ctx) {
            self.give_turn_back(is_immediate);
            return Ok(Step::Pause);
        }
        self.counters.commands += 1;
        self.counters.received_bytes += data.len() as u64;
        if !self.intake.reserved.is_empty() {
            self.give_reserved(ctx);
        }
        if self.intake.idle_mark.is_none() {
            self.watch_idleness(ctx.now);
        }
        Ok(Step::Consumed(total))
    }

    /// A command with more data than are awaited in one piece with it, as a host may send that was
    /// content with the standard's FirstBurstLength.
    #[cold]
    fn long_command(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let command = ScsiCommand::parse(bytes).map_err(|error| Violation::field(&error))?;
        let is_immediate = command.operation.is_immediate();
        match self.turn(is_immediate, command.cmd_sn)? {
            Turn::Now => {}
            Turn::Never => return Ok(self.pass(head)),
            Turn::Rejected => return Ok(self.reject_immediate(bytes, head)),
        }
        self.take_turn(is_immediate);
        self.counters.commands += 1;
        Ok(self.take_streamed(&command, head, ctx))
    }

    /// An immediate command, one more than is kept.
    #[cold]
    pub(super) fn reject_immediate(&mut self, bytes: &[u8], head: &PduHead) -> Step {
        self.refuse_pdu(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, bytes, head)
    }

    /// A session of discovery takes no commands: they are rejected (RFC 7143, 4.3).
    #[cold]
    fn command_in_discovery(&mut self, bytes: &[u8], head: &PduHead) -> Result<Step, Violation> {
        let command = ScsiCommand::parse(bytes).map_err(|error| Violation::field(&error))?;
        self.refuse_in_turn(command.cmd_sn, RejectReason::COMMAND_NOT_SUPPORTED, bytes, head)
    }

    /// A PDU with more data than is taken of its kind. What has a place in the order takes it.
    #[cold]
    fn refuse_long(&mut self, bytes: &[u8], head: &PduHead) -> Result<Step, Violation> {
        let reason = RejectReason::LONG_OPERATION;
        let cmd_sn = match head.bhs.opcode() {
            Opcode::NOP_OUT if head.bhs.initiator_task_tag != RESERVED_TAG => {
                NopOut::parse(bytes).map(|nop| nop.cmd_sn)
            }
            Opcode::TEXT_REQUEST => TextRequest::parse(bytes).map(|text| text.cmd_sn),
            _ => return Ok(self.refuse_pdu(reason, bytes, head)),
        };
        let cmd_sn = cmd_sn.map_err(|error| Violation::field(&error))?;
        self.refuse_in_turn(cmd_sn, reason, bytes, head)
    }

    /// Rejects what has a place in the order, if it comes in its turn.
    fn refuse_in_turn(
        &mut self,
        cmd_sn: u32,
        reason: RejectReason,
        bytes: &[u8],
        head: &PduHead,
    ) -> Result<Step, Violation> {
        let is_immediate = head.bhs.is_immediate();
        if self.turn(is_immediate, cmd_sn)? == Turn::Never {
            return Ok(self.pass(head));
        }
        let step = self.refuse_pdu(reason, bytes, head);
        if !matches!(step, Step::Pause) {
            self.take_turn(is_immediate);
            self.outbox.forgotten(is_immediate);
        }
        Ok(step)
    }

    /// Says that a PDU was not taken. `pdu` holds it from its start on.
    pub(super) fn reject(&mut self, reason: RejectReason, pdu: &[u8]) {
        let header = &pdu[..pdu.len().min(Bhs::SIZE)];
        self.push_reject(reason, header);
    }
}

/// Whether writes that are about to land may wait for what is at the front of the stream: a plain
/// read or write, which may be another. All else finds them landed, as what was asked before it.
#[inline]
fn may_join(bytes: &[u8]) -> bool {
    const PLAIN: [OpCode; 4] =
        [OpCode::READ_10, OpCode::READ_16, OpCode::WRITE_10, OpCode::WRITE_16];
    const SIMPLE: u8 = TaskAttribute::SIMPLE.0;
    let (opcode, flags) = (bytes.get(CDB_AT).copied(), bytes.get(1).copied());
    bytes[0] == Opcode::SCSI_COMMAND.0
        && flags.is_some_and(|flags| flags & 7 <= SIMPLE)
        && PLAIN.iter().any(|plain| opcode == Some(plain.0))
}

/// Where in a command its CDB is.
const CDB_AT: usize = 32;
