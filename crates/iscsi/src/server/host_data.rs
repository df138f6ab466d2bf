//! Data-Out: data of the host go where they belong as they come.
//!
//! What is here never depends on how the stream was cut into segments. From
//! [`DIRECT_RECEIVE_MIN`] bytes on the rest of a PDU is received straight into its buffer. A PDU
//! for a task that takes no data any more is passed over. Errors: a [`Violation`] where the data
//! cannot belong anywhere; a flaw, with which the task ends once its data have come, where they do.
//! Spec: RFC 7143, 7.8 (digest errors), 7.9 (sequence errors), 11.8.

use block::limits::{DIRECT_ALONE_MIN, DIRECT_RECEIVE_MIN};
use block::planted;
use contract::Direct;
use wire::iscsi::{DataOut, Digests, RESERVED_TAG, RejectReason, padding};
use wire::scsi::{AdditionalSense, Sense, SenseKey};

use super::receive::{Step, Stream};
use super::slots::TaskState;
use super::{Connection, Context};
use crate::pdu_stream::{PduHead, Violation, digest_at};

/// Bytes received together with a large payload that is all that is awaited, behind it: the next
/// header and some commands. More would be the next payload's own, which then were copied.
const HEADERS_BESIDE: u32 = 512;

/// The data of one Data-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The task's slot.
    pub(super) slot: u16,
    /// Whether it is the last of what is awaited.
    pub(super) is_final: bool,
    /// Where the PDU's data begin in the task's.
    pub(super) start: u32,
    /// Bytes of data in the PDU.
    pub(super) length: u32,
    /// Bytes of them that have not come.
    pub(super) left: u32,
}

impl Connection {
    /// The header of a Data-Out: data of a task that takes some, the next ones, within what was
    /// asked for or announced. What nobody takes any more is passed over.
    pub(super) fn host_data(
        &mut self,
        bytes: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let header = DataOut::parse(bytes).map_err(|error| Violation::field(&error))?;
        let is_final = header.flags.is_final();
        let slot = match header.target_transfer_tag {
            RESERVED_TAG => self.slots.find(header.initiator_task_tag),
            asked => self.slots.asked_by(asked),
        };
        let Some(slot) = slot else { return Ok(self.pass(head)) };
        if self.slots.task(slot).tag != header.initiator_task_tag {
            return Err(Violation::new(RejectReason::INVALID_PDU_FIELD, "the task tag of the R2T"));
        }
        if matches!(self.slots.state(slot), TaskState::Refused(_)) {
            return self.refused_data(slot, head, is_final, ctx);
        }
        let Some(data) = self.slots.incoming(slot) else { return Ok(self.pass(head)) };
        if data.transfer_tag != header.target_transfer_tag {
            return Ok(self.pass(head));
        }
        if header.buffer_offset != data.received {
            return Err(Violation::protocol("BufferOffset follows what came before"));
        }
        if head.data_length > data.until - data.received {
            return Err(Violation::protocol("no more data than were asked for"));
        }
        let out_of_order =
            Sense::new(SenseKey::ABORTED_COMMAND, AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
        if header.data_sn != data.data_sn && !planted("data-sn-is-not-looked-at") {
            data.flaw = Some(out_of_order);
        }
        data.data_sn = data.data_sn.wrapping_add(1);
        data.since = ctx.now;
        let (start, length) = (header.buffer_offset, head.data_length);
        let part = Part { slot, is_final, start, length, left: length };
        if length == 0 {
            self.part_is_done(part, ctx);
        } else {
            self.intake.stream = Stream::Data(part);
        }
        Ok(Step::Consumed(head.data_at as usize))
    }

    /// Data of a task that can only fail: they pass, and with the last of them it is answered.
    fn refused_data(
        &mut self,
        slot: u16,
        head: &PduHead,
        is_final: bool,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let step = self.pass(head);
        if is_final {
            self.refused_is_over(slot, ctx);
        }
        Ok(step)
    }

    /// Data of the host: what is there goes into the buffer.
    pub(super) fn data(&mut self, mut part: Part, bytes: &[u8], ctx: &mut Context<'_>) -> Step {
        let count = bytes.len().min(part.left as usize);
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        let at = part.start + part.length - part.left;
        data.write(at, &bytes[..count], ctx.memory);
        data.since = ctx.now;
        let is_one = data.more.is_empty();
        self.counters.received_bytes += count as u64;
        part.left -= count as u32;
        if part.left > 0 {
            self.intake.stream = Stream::Data(part);
            if part.left >= DIRECT_RECEIVE_MIN && is_one {
                return Step::Direct(self.lend(part, ctx));
            }
        } else {
            self.part_is_there(part, ctx);
        }
        Step::Consumed(count)
    }

    /// All data of a PDU came: padding and digest are next, or they are done.
    pub(super) fn part_is_there(&mut self, part: Part, ctx: &mut Context<'_>) {
        if self.trailer_bytes(part.length) > 0 {
            self.intake.stream = Stream::Trailer(part);
            return;
        }
        self.part_is_done(part, ctx);
    }

    pub(super) fn trailer(&mut self, part: Part, bytes: &[u8], ctx: &mut Context<'_>) -> Step {
        let length = self.trailer_bytes(part.length);
        if bytes.len() < length as usize {
            return Step::Short(length);
        }
        let digest = length as usize - if self.outbox.digests.data { Digests::SIZE } else { 0 };
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        if self.outbox.digests.data {
            let computed =
                data.crc32c(part.start, part.length, ctx.memory).update(&bytes[..digest]);
            if computed.value() != digest_at(bytes, digest) {
                // The task fails once all its data came: they are on their way, and have to belong
                // to something.
                let code = AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR;
                if !planted("bad-data-is-written") {
                    data.flaw = Some(Sense::new(SenseKey::ABORTED_COMMAND, code));
                }
                self.counters.corrupt += 1;
            }
        }
        self.part_is_done(part, ctx);
        Step::Consumed(length as usize)
    }

    fn part_is_done(&mut self, part: Part, ctx: &mut Context<'_>) {
        self.intake.stream = Stream::Header;
        // One that was ended while they came takes nothing more.
        let is_aborted = self.slots.task(part.slot).is_aborted;
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        data.received += part.length;
        if !part.is_final && !is_aborted {
            return;
        }
        if data.received < data.until && data.flaw.is_none() {
            let code = AdditionalSense::NOT_ENOUGH_UNSOLICITED_DATA;
            data.flaw = Some(Sense::new(SenseKey::ABORTED_COMMAND, code));
        }
        self.sequence_is_done(part.slot, ctx);
    }

    /// What a task awaited has come: it asks for more, or has all.
    pub(super) fn sequence_is_done(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let is_aborted = self.slots.task(slot).is_aborted;
        let data = self.slots.incoming(slot).expect("a task that takes data");
        self.intake.asked -= 1;
        self.intake.asked_large -= u32::from(data.length >= DIRECT_ALONE_MIN);
        if data.is_whole() || data.flaw.is_some() || is_aborted {
            self.data_is_whole(slot, ctx);
        } else {
            self.ask_for_data(slot, ctx);
        }
    }

    /// Whether data of the task in `slot` are on their way into its buffer.
    pub(super) fn is_receiving(&self, slot: u16) -> bool {
        match self.intake.stream {
            Stream::Data(part) | Stream::Trailer(part) => part.slot == slot,
            _ => false,
        }
    }

    /// Begins with the data that come in the PDU of their command, to the task in `slot`.
    pub(super) fn begin_part(&mut self, slot: u16, head: &PduHead, is_final: bool) -> Step {
        let (start, length) = (0, head.data_length);
        let part = Part { slot, is_final, start, length, left: length };
        self.intake.stream = Stream::Data(part);
        Step::Consumed(head.data_at as usize)
    }

    /// Bytes of padding and digest behind so much data.
    #[inline]
    pub(super) fn trailer_bytes(&self, length: u32) -> u32 {
        padding(length) + self.outbox.digests.data_bytes(length)
    }

    /// Lends the buffer of a part to the driver, to be filled with what is left of it.
    pub(super) fn lend(&mut self, part: Part, ctx: &mut Context<'_>) -> Direct {
        let beside = if self.awaits_one() { HEADERS_BESIDE } else { u32::MAX };
        let data = self.slots.incoming(part.slot).expect("a part has a place");
        let mut buffer = core::mem::take(&mut data.buffer);
        ctx.memory.materialize(&mut buffer);
        let at = part.start + part.length - part.left;
        Direct { buffer, at, length: part.left, beside, token: u64::from(part.slot) }
    }
}
