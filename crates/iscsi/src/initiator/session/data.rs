//! Data of reads as they come in (Data-In): copied out of the stream where they are small, received
//! straight into the buffer where they are not.
//!
//! In: headers, bytes, filled direct receives. Errors: a [`Fault`] for data that nobody asked for
//! or that are out of order; a wrong digest marks its job. Spec: RFC 7143, 11.7; 13.18 and 13.19
//! (in order).

use block::checksum::Crc32c;
use block::limits::DIRECT_RECEIVE_MIN;
use block::{Buffer, Instant, Memory, planted};
use contract::{Direct, Next};
use remote::{JobKind, PayloadPlace};
use wire::iscsi::{DataIn, Digests, Residual, TargetNumbers};
use wire::scsi::ScsiStatus;

use super::super::exchange::Disk;
use super::super::framing::{Fault, broken};
use super::super::numbers::numbers_of;
use super::{End, Session, UNBOUNDED};
use crate::pdu_stream::{PduHead, Violation, digest_at};

/// Data of a read that are coming in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incoming {
    slot: u16,
    job: u32,
    /// Where in the job's buffer the next byte goes.
    at: u32,
    /// Bytes to come, and of padding and digest behind them.
    left: u32,
    trailer: u32,
    running: Crc32c,
    digest: bool,
    /// The status that comes with them, and its StatSN.
    status: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    status: u8,
    residual: Residual,
    numbers: TargetNumbers,
}

impl Session {
    /// A direct receive has filled its part.
    pub(in crate::initiator) fn handle_direct(
        &mut self,
        now: Instant,
        direct: Direct,
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<Next, Fault> {
        self.heard = now;
        let mut incoming = self.incoming.expect("a direct receive belongs to incoming data");
        if incoming.digest {
            let Direct { at, length, .. } = direct;
            incoming.running = memory.crc32c(&direct.buffer, at, length, incoming.running);
        }
        disk.take_home(incoming.job, direct.buffer);
        incoming.at += direct.length;
        incoming.left -= direct.length;
        let (_, next) = self.take_data(now, &mut incoming, &[], disk, memory)?;
        Ok(next.unwrap_or_else(|| self.front()))
    }

    /// Data-In of a job: the header is whole, the data begin behind it. What is coming is noted in
    /// place: it would be moved as soon as it is written.
    #[inline]
    pub(super) fn begin_data(
        &mut self,
        head: PduHead,
        bytes: &[u8],
        disk: &mut Disk,
        incoming: &mut Incoming,
    ) -> Result<(), Fault> {
        let header = DataIn::parse(bytes).expect("the header is whole");
        header.check().map_err(|error| Violation::field(&error))?;
        let numbers = numbers_of!(header);
        self.numbers.note_window(numbers.exp_cmd_sn, numbers.max_cmd_sn);
        let (slot, index) = self.find(header.initiator_task_tag)?;
        let job = &mut disk[index];
        if job.kind != JobKind::Read {
            return broken("data for a command that reads none");
        }
        let length = head.data_length;
        let end = u64::from(header.buffer_offset) + u64::from(length);
        let in_order =
            header.buffer_offset == job.wire.received && header.data_sn == job.wire.data_sn;
        if !in_order || end > job.extent.length.0 {
            return broken("read data in order and within the command");
        }
        if length == 0 && !header.flags.is_status() {
            return broken("data in a Data-In");
        }
        job.wire.data_sn = header.data_sn.wrapping_add(1);
        let digests = self.framing.digests;
        let (status, residual) = (header.status, header.residual());
        *incoming = Incoming {
            slot,
            job: index,
            at: header.buffer_offset,
            left: length,
            trailer: head.trailer(digests),
            running: Crc32c::new(),
            digest: digests.data && length > 0,
            status: header.flags.is_status().then_some(Ending { status, residual, numbers }),
        };
        Ok(())
    }

    /// Takes data, their padding and their digest; says how many bytes it used, and what it wants
    /// if that was not all.
    #[inline]
    pub(super) fn take_data(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        bytes: &[u8],
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<(usize, Option<Next>), Fault> {
        let mut used = 0;
        let here = (incoming.left as usize).min(bytes.len());
        if here > 0 {
            let data = &bytes[..here];
            memory.write(&mut disk[incoming.job].buffer, incoming.at, data);
            if incoming.digest {
                incoming.running = incoming.running.update(data);
            }
            used = here;
            incoming.at += here as u32;
            incoming.left -= here as u32;
        }
        if incoming.left > 0 {
            self.incoming = Some(*incoming);
            return Ok((used, Some(self.rest(*incoming, disk, memory))));
        }
        if incoming.trailer > 0 {
            let Some(trailer) = bytes[used..].get(..incoming.trailer as usize) else {
                self.incoming = Some(*incoming);
                let next = Next::Stream { at_least: incoming.trailer, at_most: self.at_most() };
                return Ok((used, Some(next)));
            };
            if incoming.digest {
                let (pad, _) = trailer.split_at(trailer.len() - Digests::SIZE);
                let is_bad = digest_at(trailer, pad.len()) != incoming.running.update(pad).value();
                disk[incoming.job].wire.bad_digest |= is_bad && !planted("bad-data-is-read");
            }
            used += incoming.trailer as usize;
        }
        self.incoming = None;
        disk[incoming.job].wire.received = incoming.at;
        if let Some(Ending { status, residual, numbers }) = incoming.status {
            self.numbers.note_status(numbers)?;
            let end = End { status: ScsiStatus(status), sense: None, residual };
            self.answer(now, (incoming.slot, incoming.job), end, disk)?;
        }
        Ok((used, None))
    }

    /// How the rest of incoming data is to be received.
    fn rest(&mut self, incoming: Incoming, disk: &mut Disk, memory: &mut dyn Memory) -> Next {
        if incoming.left < DIRECT_RECEIVE_MIN {
            let at_least = incoming.left + incoming.trailer;
            return Next::Stream { at_least, at_most: UNBOUNDED };
        }
        let job = &mut disk[incoming.job];
        job.place = PayloadPlace::Receive;
        let mut buffer: Buffer = core::mem::take(&mut job.buffer);
        memory.materialize(&mut buffer);
        let (at, length) = (incoming.at, incoming.left);
        let beside = self.at_most();
        let token = incoming.job.into();
        Next::Direct(Direct { buffer, at, length, beside, token })
    }
}
