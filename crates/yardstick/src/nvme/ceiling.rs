//! What the bare NVMe/TCP responder makes of a connection's bytes.
//!
//! In: PDUs in the stream's inbox. Out: replies in its outbox. A command capsule is handled when it
//! is wholly there; of an H2CData what has arrived is copied and the rest received in place. No
//! checks but those that keep memory safe, no digests. Admin answers are in `admin.rs`. Errors: what
//! cannot be parsed closes the connection.

use super::admin;
use super::pdu::{self, flag, kind};
use crate::bytes::put;
use crate::memory::Area;
use crate::outbox::Outbox;
use crate::responder::{Malformed, Speaker};

/// A stream whose payloads end with the completion of a command, if with anything.
type Stream = crate::responder::Stream<Option<u16>>;

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;
/// Data a command capsule may carry.
pub(super) const IN_CAPSULE: usize = 8192;
/// Longest data of one H2CData.
const MAX_H2C_DATA: u32 = 4 << 20;

/// State of one connection.
pub(crate) struct Connection {
    /// Where a command's data go, by CID, for those that were sent an R2T.
    places: Vec<usize>,
    admin: admin::State,
}

impl Speaker for Connection {
    const BUFFER_MIN: usize = 4 * IN_CAPSULE;
    type Ends = Option<u16>;

    fn new(number: u64) -> Self {
        Self { places: Vec::new(), admin: admin::State::new(number as u16) }
    }

    #[inline]
    fn pdu(&mut self, stream: &mut Stream, at: usize, ram: &mut Area) -> Result<usize, Malformed> {
        let there = stream.inbox.filled() - at;
        if there < pdu::COMMON_LEN {
            return Ok(0);
        }
        let bytes = stream.inbox.rest(at);
        let length = pdu::u32_at(bytes, 4) as usize;
        match bytes[0] {
            kind::CAPSULE_CMD => {
                if length < pdu::CAPSULE_CMD_LEN || length > stream.inbox.size() {
                    return Err(Malformed);
                }
                if there < length {
                    return Ok(0);
                }
                if self.admin.is_io() {
                    self.command(stream, at, length, ram)?;
                } else {
                    let bytes = stream.inbox.bytes(at, at + length);
                    self.admin.answer(bytes, ram.len(), &mut stream.outbox);
                }
                Ok(length)
            }
            kind::H2C_DATA => self.data(stream, at, length, ram),
            kind::IC_REQ => {
                if there < pdu::IC_LEN {
                    return Ok(0);
                }
                let mut answer = [0; pdu::IC_LEN];
                pdu::put_common(&mut answer, kind::IC_RESP, 0, 128, 0, pdu::IC_LEN);
                put(&mut answer, 12, &MAX_H2C_DATA.to_le_bytes());
                stream.outbox.copy(&answer);
                Ok(pdu::IC_LEN)
            }
            _ => Err(Malformed),
        }
    }

    #[inline]
    fn ended(
        &mut self,
        stream: &mut Stream,
        ends: Option<u16>,
        _ram: &mut Area,
    ) -> Result<(), Malformed> {
        self.complete(&mut stream.outbox, ends);
        Ok(())
    }
}

impl Connection {
    /// A command of an I/O queue, wholly in the buffer.
    #[inline]
    fn command(
        &mut self,
        stream: &mut Stream,
        at: usize,
        length: usize,
        ram: &mut Area,
    ) -> Result<(), Malformed> {
        let Stream { inbox, outbox, due, .. } = stream;
        let bytes = inbox.bytes(at, at + length);
        let entry = &bytes[pdu::SQE..pdu::CAPSULE_CMD_LEN];
        let cid = pdu::u16_at(entry, 2);
        let place = (pdu::u64_at(entry, 40) as usize).wrapping_mul(BLOCK);
        let size = pdu::u32_at(entry, 32);
        match entry[0] {
            pdu::opcode::READ => {
                let data = ram.at(place, size as usize).ok_or(Malformed)?;
                let success = self.admin.flow_control_off;
                outbox.header::<{ pdu::SHORT_LEN }>(|pdu| {
                    let flags = flag::LAST | if success { flag::SUCCESS } else { 0 };
                    *pdu = pdu::data_header(kind::C2H_DATA, flags, cid, 0, 0, size);
                });
                // SAFETY: the RAM area outlives every connection.
                unsafe { outbox.data(data, size as usize) };
                if !success {
                    self.complete(outbox, Some(cid));
                }
            }
            pdu::opcode::WRITE if entry[39] == pdu::SGL_IN_CAPSULE => {
                let from = usize::from(bytes[3]).max(pdu::CAPSULE_CMD_LEN).min(length);
                if !ram.store(place, &bytes[from..]) {
                    return Err(Malformed);
                }
                self.complete(outbox, Some(cid));
            }
            pdu::opcode::WRITE => {
                ram.at(place, size as usize).ok_or(Malformed)?;
                if self.places.len() <= usize::from(cid) {
                    self.places.resize(usize::from(cid) + 1, 0);
                }
                self.places[usize::from(cid)] = place;
                *due += 1;
                outbox.header::<{ pdu::SHORT_LEN }>(|pdu| *pdu = pdu::r2t(cid, cid, 0, size));
            }
            _ => self.complete(outbox, Some(cid)),
        }
        Ok(())
    }

    /// The data an R2T asked for: what has arrived is copied, the rest is received in place.
    fn data(
        &mut self,
        stream: &mut Stream,
        at: usize,
        length: usize,
        ram: &mut Area,
    ) -> Result<usize, Malformed> {
        let there = stream.inbox.filled() - at;
        if there < pdu::SHORT_LEN {
            return Ok(0);
        }
        let bytes = stream.inbox.rest(at);
        let size = pdu::u32_at(bytes, 16) as usize;
        let ttag = pdu::u16_at(bytes, 10);
        let start = *self.places.get(usize::from(ttag)).ok_or(Malformed)?;
        let place = start.checked_add(pdu::u32_at(bytes, 12) as usize).ok_or(Malformed)?;
        if length != pdu::SHORT_LEN + size || ram.at(place, size).is_none() {
            return Err(Malformed);
        }
        let completes = (bytes[1] & flag::LAST != 0).then_some(ttag);
        let part = size.min(there - pdu::SHORT_LEN);
        ram.store(place, &bytes[pdu::SHORT_LEN..pdu::SHORT_LEN + part]);
        if completes.is_some() {
            stream.due = stream.due.saturating_sub(1);
        }
        if part == size {
            self.complete(&mut stream.outbox, completes);
        } else {
            stream.receive_in_place(place + part, size - part, completes);
        }
        Ok(pdu::SHORT_LEN + part)
    }

    /// Answers a command with success.
    #[inline]
    fn complete(&mut self, outbox: &mut Outbox, cid: Option<u16>) {
        let Some(cid) = cid else { return };
        let sqhd = self.admin.next_head();
        outbox.header::<{ pdu::SHORT_LEN }>(|pdu| *pdu = pdu::capsule_resp(cid, sqhd, 0, 0));
    }
}
