//! Data of reads as they come in (C2HData): copied out of the stream where they are small, received
//! straight into the buffer where they are not.
//!
//! In: headers, bytes, filled direct receives. Errors: a [`Fault`] for data that nobody asked for
//! or that are out of order; a wrong digest marks its job. Spec: NVMe/TCP, "C2HData", "Data
//! digest".

use block::checksum::Crc32c;
use block::limits::DIRECT_RECEIVE_MIN;
use block::{Buffer, Instant, Memory, planted};
use contract::{Direct, Next};
use remote::{JobKind, PayloadPlace};
use wire::nvme::Status;
use wire::nvme_tcp::{DataHeader, Digests, FatalErrorStatus, PduFlags};

use super::super::exchange::Disk;
use super::super::framing::{Fault, broken};
use super::{Queue, UNBOUNDED};
use crate::tcp::pdu_stream::{PduHead, Violation, digest_at};

/// Data of a read that are coming in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incoming {
    slot: u16,
    job: u32,
    /// Where in the job's buffer the next byte goes.
    at: u32,
    /// Bytes to come.
    left: u32,
    running: Crc32c,
    digest: bool,
    success: bool,
}

impl Queue {
    /// A direct receive has filled its part.
    pub(in crate::tcp::initiator) fn handle_direct(
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

    /// C2HData: the header is whole, the data begin behind it. What is coming is noted in place: it
    /// would be moved as soon as it is written.
    #[inline]
    pub(super) fn begin_data(
        &mut self,
        head: PduHead,
        bytes: &[u8],
        disk: &mut Disk,
        incoming: &mut Incoming,
    ) -> Result<(), Fault> {
        let header = DataHeader::parse(bytes).expect("the header is whole");
        let (slot, index) = self.find(header.command_id)?;
        let job = &disk[index];
        if job.kind != JobKind::Read || job.verdict.is_some() {
            return Err(Violation::sequence("data for a command that reads none").into());
        }
        if header.length != head.data_length {
            let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
            return broken(fes, 16, "DATAL is what PLEN leaves room for");
        }
        let end = u64::from(header.offset) + u64::from(header.length);
        if header.offset != job.wire.received || end > job.extent.length.0 || header.length == 0 {
            let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
            return broken(fes, 12, "read data in order and within the command");
        }
        if header.is_success() && !header.is_last() {
            let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
            return broken(fes, 1, "SUCCESS only with LAST_PDU");
        }
        *incoming = Incoming {
            slot,
            job: index,
            at: header.offset,
            left: header.length,
            running: Crc32c::new(),
            digest: head.common.flags.contains(PduFlags::DDGST),
            success: header.is_success(),
        };
        Ok(())
    }

    /// Takes data and their digest; says how many bytes it used, and what it wants if that was not
    /// all.
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
        if incoming.digest {
            let Some(digest) = bytes.get(used..used + Digests::SIZE) else {
                self.incoming = Some(*incoming);
                let next = Next::Stream { at_least: 4, at_most: self.at_most() };
                return Ok((used, Some(next)));
            };
            let is_bad = digest_at(digest, 0) != incoming.running.value();
            disk[incoming.job].wire.bad_digest |= is_bad && !planted("bad-data-is-read");
            used += Digests::SIZE;
        }
        self.incoming = None;
        disk[incoming.job].wire.received = incoming.at;
        if incoming.success {
            self.answer(now, incoming.slot, incoming.job, Status::SUCCESS, disk)?;
        }
        Ok((used, None))
    }

    /// How the rest of incoming data is to be received.
    fn rest(&mut self, incoming: Incoming, disk: &mut Disk, memory: &mut dyn Memory) -> Next {
        let digest = if incoming.digest { Digests::SIZE as u32 } else { 0 };
        if incoming.left < DIRECT_RECEIVE_MIN {
            return Next::Stream { at_least: incoming.left + digest, at_most: UNBOUNDED };
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
