//! Received bytes: the stream is cut into PDUs, capsules go to `capsule`, data of the host to where
//! they belong.
//!
//! What is here never depends on how the stream was cut into segments: a PDU is acted upon once its
//! header is whole, a capsule once all of it is there, the data of H2CData as they come. From
//! [`DIRECT_RECEIVE_MIN`] bytes on the rest of an H2CData is received straight into its buffer.
//! Errors: a [`Violation`], answered with C2HTermReq. Spec: NVMe/TCP, "ICReq", "CapsuleCmd",
//! "H2CData", "H2CTermReq".

use block::checksum::{Crc32c, crc32c};
use block::limits::{DIRECT_ALONE_MIN, DIRECT_RECEIVE_MIN, LANDINGS_TOGETHER, TURN_BYTES};
use block::planted;
use contract::{Direct, Next, Receive};
use wire::nvme::Command;
use wire::nvme::command::IoOpcode;
use wire::nvme_tcp::{
    DataHeader, Digests, FatalErrorStatus, ICReq, ICResp, Payload, PduType, TermReq,
};

use super::memory::Need;
use super::slots::Incoming;
use super::{Connection, Context, Reason, State};
use crate::limits::{CAPSULE_DATA_MAX, PDU_COMPLETE, TURN_PDUS};
use crate::tcp::pdu_stream::{COMMON, Front, PduHead, Violation, digest_at, peek};

/// Bytes received beyond what is needed while one large payload is awaited: enough for many
/// headers, few enough that most of a large payload is received directly.
const HEADERS_AHEAD: u32 = 4096;
/// Bytes received together with such a payload, behind it: the next header and some commands. More
/// would be the next payload's own, which then were copied.
const HEADERS_BESIDE: u32 = 512;
/// The smallest PDU that a host sends after ICReq: a header of H2CData, or a bare H2CTermReq.
const SMALLEST: u32 = DataHeader::SIZE as u32;

/// Where in a PDU the stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stream {
    /// Before a PDU.
    #[default]
    Header,
    /// In the data of an H2CData.
    Data(Part),
    /// Before their digest.
    Digest(Part),
    /// Before a capsule that needs memory.
    OutOfMemory(Need),
    /// Before a capsule that asks for data of a reply, of which too much is unsent.
    Unread,
    /// Before the same capsule: it is to be shown again.
    Resuming,
}

/// The data of one H2CData PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The command's slot, from TTAG.
    slot: u16,
    /// Where the PDU's data begin in the command's.
    start: u32,
    /// Bytes of data in the PDU.
    length: u32,
    /// Bytes of them that have not come.
    left: u32,
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
    /// The connection ends.
    End,
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
                    ctx.shared.stream_stopped(ctx.now, self.key(), true);
                    return Receive { consumed: at, next: Next::Pause };
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

    /// What stopped the stream is over: the capsule at its front is shown again.
    pub(super) fn resume(&mut self, ctx: &mut Context<'_>) {
        (self.intake.stream, self.intake.resumed) = (Stream::Resuming, ctx.now);
        ctx.shared.stream_stopped(ctx.now, self.key(), false);
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
        data.since = Some(ctx.now);
        self.part_is_there(part, ctx);
        if self.intake.stream == Stream::Header {
            self.intake.begun = None;
        }
        self.next_at_end(ctx)
    }

    /// Something of a PDU came and it is not whole: its time runs.
    #[inline]
    fn begin(&mut self, ctx: &Context<'_>) {
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
    fn awaits_one(&self) -> bool {
        self.intake.asked == 1 && self.intake.asked_large == 1
    }

    /// What should come next once all shown bytes are consumed.
    #[inline]
    fn next_at_end(&mut self, ctx: &mut Context<'_>) -> Next {
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
            Stream::Digest(_) => {
                self.begin(ctx);
                Digests::SIZE as u32
            }
            Stream::OutOfMemory(_) | Stream::Unread | Stream::Resuming => return Next::Pause,
        };
        Next::Stream { at_least, at_most: self.at_most() }
    }

    /// Lends the buffer of a part to the driver, to be filled with what is left of it.
    fn lend(&mut self, part: Part, ctx: &mut Context<'_>) -> Direct {
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        let mut buffer = core::mem::take(&mut data.buffer);
        ctx.memory.materialize(&mut buffer);
        let at = part.start + part.length - part.left;
        let beside = if self.awaits_one() { HEADERS_BESIDE } else { u32::MAX };
        Direct { buffer, at, length: part.left, beside, token: u64::from(part.slot) }
    }

    /// Takes what is at the front of the stream; `bytes` is never empty.
    #[inline]
    fn step(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Result<Step, Violation> {
        match self.intake.stream {
            Stream::Header => self.pdu(bytes, ctx),
            Stream::Data(part) => Ok(self.data(part, bytes, ctx)),
            Stream::Digest(part) => Ok(self.digest(part, bytes, ctx)),
            stopped => panic!("bytes were shown to a stream that is {stopped:?}"),
        }
    }

    #[inline]
    fn pdu(&mut self, bytes: &[u8], ctx: &mut Context<'_>) -> Result<Step, Violation> {
        let terminates = bytes[0] == PduType::H2C_TERM_REQ.0;
        let is_first = matches!(self.state, State::Handshake { .. });
        if is_first && bytes[0] != PduType::IC_REQ.0 && !terminates {
            return Err(Violation::sequence("the first PDU is ICReq"));
        }
        let head = match peek(bytes, self.digests)? {
            Front::Pdu(head) => head,
            Front::Short(at_least) => return Ok(Step::Short(at_least)),
        };
        match head.common.kind {
            PduType::CAPSULE_COMMAND => self.capsule(bytes, &head, ctx),
            PduType::H2C_DATA => self.host_data(bytes, &head, ctx),
            PduType::IC_REQ => self.initialize(bytes),
            PduType::H2C_TERM_REQ => Ok(self.terminated(bytes, &head, ctx)),
            _ => Err(Violation::sequence("a PDU that hosts do not send")),
        }
    }

    /// ICReq: agrees to what the host asks for, as far as it is known here.
    fn initialize(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        let State::Handshake { since } = self.state else {
            return Err(Violation::sequence("ICReq comes once"));
        };
        let request = ICReq::parse(bytes).map_err(|error| Violation::field(&error))?;
        if request.format_version != 0 {
            let fes = FatalErrorStatus::UNSUPPORTED_PARAMETER;
            return Err(Violation::new(fes, 8, "PFV is 0"));
        }
        request.check().map_err(|error| Violation::field(&error))?;
        self.outbox.align_data(request.host_data_alignment);
        // MAXR2T needs no look: one R2T is outstanding per command, and every host allows one.
        self.digests = request.digests();
        self.state = State::Connecting { since };
        let response = ICResp::new(self.digests, self.settings.max_h2c_data);
        self.outbox.push_raw(&response.emit());
        Ok(Step::Consumed(ICReq::SIZE))
    }

    /// H2CTermReq: the host gives up.
    fn terminated(&mut self, bytes: &[u8], head: &PduHead, ctx: &mut Context<'_>) -> Step {
        let total = head.common.length;
        if total as usize <= TermReq::SIZE_MAX && bytes.len() < total as usize {
            return Step::Short(total);
        }
        let fes = TermReq::parse(bytes).map(|term| term.fes).unwrap_or_default();
        self.end_at_once(Reason::Terminated(fes), ctx);
        Step::End
    }

    #[inline]
    fn capsule(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let depth = self.state.queue().map_or(1, |queue| u32::from(queue.view.depth));
        if head.data_length > CAPSULE_DATA_MAX {
            let fes = FatalErrorStatus::LIMIT_EXCEEDED;
            return Err(Violation::new(fes, 0, "in-capsule data within IOCCSZ"));
        }
        if self.unanswered() + u32::from(planted("last-entry-is-refused")) >= depth {
            return Err(Violation::sequence("no more commands than the queue has entries"));
        }
        let total = head.common.length as usize;
        if bytes.len() < total {
            return Ok(Step::Short(total as u32));
        }
        let command = Command::parse(&bytes[8..]).map_err(|error| Violation::field(&error))?;
        let data_end = (head.data_at + head.data_length) as usize;
        let data = &bytes[head.data_at as usize..data_end];
        self.intake.data_from = self.intake.front + head.data_at as usize;
        let corrupt =
            self.digests.data && !data.is_empty() && crc32c(data) != digest_at(bytes, data_end);
        if !self.take_command(&command, data, corrupt, ctx) {
            return Ok(Step::Pause);
        }
        self.counters.commands += 1;
        self.counters.received_bytes += u64::from(head.data_length);
        if !self.intake.reserved.is_empty() {
            self.give_reserved(ctx);
        }
        if self.intake.idle_mark.is_none() {
            self.watch_idleness(ctx);
        }
        Ok(Step::Consumed(total))
    }

    /// The header of an H2CData: data of a command that was granted its transfer, the next ones,
    /// within what was granted.
    fn host_data(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let header = DataHeader::parse(bytes).map_err(|error| Violation::field(&error))?;
        let payload = Payload { offset: head.data_at, length: head.data_length };
        header.check_length(payload).map_err(|error| Violation::field(&error))?;
        let invalid = |offset, rule| {
            Err(Violation::new(FatalErrorStatus::INVALID_HEADER_FIELD, offset, rule))
        };
        if header.length == 0 {
            return invalid(16, "DATAL is not 0");
        }
        if header.length > self.settings.max_h2c_data {
            let fes = FatalErrorStatus::LIMIT_EXCEEDED;
            return Err(Violation::new(fes, 0, "DATAL within MAXH2CDATA"));
        }
        let slot = header.transfer_tag;
        let is_asked = |data: &mut Incoming| data.since.is_some() && !data.is_whole();
        if !self.slots.incoming(slot).is_some_and(is_asked) {
            return invalid(10, "TTAG of an R2T");
        }
        if header.command_id != self.slots.command_id(slot) {
            return invalid(8, "CCCID of the R2T");
        }
        let data = self.slots.incoming(slot).expect("just seen");
        let out_of_range = FatalErrorStatus::DATA_OUT_OF_RANGE;
        if header.offset != data.received {
            return Err(Violation::new(out_of_range, 0, "DATAO follows what came before"));
        }
        if header.length > data.length - data.received {
            return Err(Violation::new(out_of_range, 0, "DATAO and DATAL within the R2T"));
        }
        if header.is_last() != (header.length == data.length - data.received) {
            return invalid(1, "LAST_PDU on the last PDU of the R2T");
        }
        data.since = Some(ctx.now);
        let (start, length) = (header.offset, header.length);
        self.intake.stream = Stream::Data(Part { slot, start, length, left: length });
        Ok(Step::Consumed(head.data_at as usize))
    }

    /// Data of the host: what is there goes into the buffer.
    fn data(&mut self, mut part: Part, bytes: &[u8], ctx: &mut Context<'_>) -> Step {
        let count = bytes.len().min(part.left as usize);
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        let at = part.start + part.length - part.left;
        ctx.memory.write(&mut data.buffer, at, &bytes[..count]);
        data.since = Some(ctx.now);
        self.counters.received_bytes += count as u64;
        part.left -= count as u32;
        if part.left > 0 {
            self.intake.stream = Stream::Data(part);
            if part.left >= DIRECT_RECEIVE_MIN {
                return Step::Direct(self.lend(part, ctx));
            }
        } else {
            self.part_is_there(part, ctx);
        }
        Step::Consumed(count)
    }

    /// All data of a PDU came: their digest is next, or they are done.
    fn part_is_there(&mut self, part: Part, ctx: &mut Context<'_>) {
        if self.digests.data {
            self.intake.stream = Stream::Digest(part);
            return;
        }
        self.part_is_done(part, ctx);
    }

    fn digest(&mut self, part: Part, bytes: &[u8], ctx: &mut Context<'_>) -> Step {
        if bytes.len() < Digests::SIZE {
            return Step::Short(Digests::SIZE as u32);
        }
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        let computed = ctx.memory.crc32c(&data.buffer, part.start, part.length, Crc32c::new());
        if computed.value() != digest_at(bytes, 0) {
            // The command fails once all its data came: they are on their way, and have to belong
            // to something.
            data.corrupt = !planted("bad-data-is-written");
            self.counters.corrupt += 1;
        }
        self.part_is_done(part, ctx);
        Step::Consumed(Digests::SIZE)
    }

    fn part_is_done(&mut self, part: Part, ctx: &mut Context<'_>) {
        self.intake.stream = Stream::Header;
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        data.received += part.length;
        if data.is_whole() {
            self.intake.asked -= 1;
            self.intake.asked_large -= u32::from(data.length >= DIRECT_ALONE_MIN);
            self.data_is_whole(part.slot, ctx);
        }
    }
}

/// Whether writes that are about to land may wait for what is at the front of the stream: a plain
/// read or write in its capsule, which may be another. All else finds them landed, as what was
/// asked before it.
#[inline]
fn may_join(bytes: &[u8]) -> bool {
    let opcode = bytes.get(COMMON as usize).copied();
    let is_plain = [IoOpcode::READ, IoOpcode::WRITE].iter().any(|plain| opcode == Some(plain.0));
    bytes[0] == PduType::CAPSULE_COMMAND.0 && is_plain
}

const _: () = assert!(COMMON <= SMALLEST);
