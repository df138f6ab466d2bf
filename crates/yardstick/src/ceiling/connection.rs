//! One connection of the ceiling: parse what has arrived, queue what answers it.
//!
//! In: received bytes. Out: an [`Outbox`] with all replies of the turn. Data of a write are copied
//! once when they came with other things, and not at all when only their header had arrived: then
//! the next receive has the RAM area as its first vector and a small piece of the buffer as its
//! second. Errors: what cannot be parsed closes the connection.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue, types};
use socket2::Socket;

use super::admin;
use crate::memory::Area;
use crate::outbox::Outbox;
use crate::pdu::{self, flag, kind};

/// Bytes taken along behind a payload that is received in place, or while payloads are due: enough
/// for the headers that follow, little enough that almost nothing of a payload has to be copied.
const BESIDE: usize = 4096;
/// Bytes of a block.
pub(super) const BLOCK: usize = 512;
/// Data a command capsule may carry.
pub(super) const IN_CAPSULE: usize = 8192;
/// Longest data of one H2CData.
const MAX_H2C_DATA: u32 = 4 << 20;

/// The rest of an H2CData's payload, on its way into the RAM area.
struct Payload {
    at: usize,
    left: usize,
    /// The command to complete behind it, if it is the last.
    completes: Option<u16>,
}

/// State of one connection.
pub(super) struct Connection {
    socket: Socket,
    buffer: Area,
    filled: usize,
    payload: Option<Payload>,
    outbox: Outbox,
    vectors: [libc::iovec; 2],
    message: libc::msghdr,
    /// Where a command's data go, by CID, for those that were sent an R2T.
    places: Vec<usize>,
    /// R2Ts whose data are not complete.
    due: usize,
    pub(super) admin: admin::State,
    /// A poll for room in the socket is posted.
    pub(super) waits_for_room: bool,
    /// Closed as soon as that poll is over.
    pub(super) dead: bool,
}

impl Connection {
    pub(super) fn new(socket: Socket, buffer: usize, number: u16) -> std::io::Result<Self> {
        // SAFETY: iovec and msghdr are plain data for which zeroes are valid.
        let (vectors, message) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Ok(Self {
            socket,
            buffer: Area::new(buffer.max(4 * IN_CAPSULE), false)?,
            filled: 0,
            payload: None,
            outbox: Outbox::new()?,
            vectors,
            message,
            places: Vec::new(),
            due: 0,
            admin: admin::State::new(number),
            waits_for_room: false,
            dead: false,
        })
    }

    /// The next receive: in place behind a header whose data are due, else into the buffer.
    pub(super) fn receive(&mut self, slot: u32, ram: &Area) -> squeue::Entry {
        let room = self.buffer.len() - self.filled;
        let wanted = if self.due > 0 { BESIDE.min(room) } else { room };
        let into = self.buffer.at(self.filled, wanted);
        let into = into.expect("the buffer has room for what is asked");
        let Some(payload) = &self.payload else {
            return opcode::Recv::new(types::Fixed(slot), into, wanted as u32).build();
        };
        let place = ram.at(payload.at, payload.left);
        self.vectors = [
            libc::iovec {
                iov_base: place.expect("checked with the header").cast(),
                iov_len: payload.left,
            },
            libc::iovec { iov_base: into.cast(), iov_len: BESIDE.min(room) },
        ];
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = 2;
        opcode::RecvMsg::new(types::Fixed(slot), &raw mut self.message).build()
    }

    /// Sends what is queued; false if the socket is full.
    pub(super) fn flush(&mut self) -> std::io::Result<bool> {
        self.outbox.flush(self.socket.as_fd())
    }

    pub(super) fn shutdown(&self) {
        // The poll completes by it; a socket that is already gone has completed it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Takes `got` received bytes; false if the connection has to be closed.
    pub(super) fn consume(&mut self, mut got: usize, ram: &mut Area) -> bool {
        if let Some(payload) = &mut self.payload {
            let part = got.min(payload.left);
            payload.at += part;
            payload.left -= part;
            got -= part;
            if payload.left > 0 {
                return true;
            }
            let completes = payload.completes;
            self.payload = None;
            self.complete(completes);
        }
        self.filled += got;
        let mut at = 0;
        while self.filled - at >= 8 {
            match self.pdu(at, ram) {
                Ok(0) => break,
                Ok(used) => at += used,
                Err(Malformed) => return false,
            }
        }
        if at == self.filled {
            self.filled = 0;
        } else if at > 0 {
            let end = self.filled;
            self.buffer.bytes_mut(0, end).copy_within(at.., 0);
            self.filled -= at;
        }
        true
    }

    /// Handles the PDU at `at`; how many bytes it took, 0 if it is not all there.
    #[inline]
    fn pdu(&mut self, at: usize, ram: &mut Area) -> Result<usize, Malformed> {
        let there = self.filled - at;
        let bytes = self.buffer.bytes(at, self.filled);
        let length = pdu::u32_at(bytes, 4) as usize;
        match bytes[0] {
            kind::CAPSULE_CMD => {
                if length < pdu::CAPSULE_CMD_LEN || length > self.buffer.len() {
                    return Err(Malformed);
                }
                if there < length {
                    return Ok(0);
                }
                if self.admin.is_io() {
                    self.command(at, length, ram)?;
                } else {
                    let bytes = self.buffer.bytes(at, at + length);
                    self.admin.answer(bytes, ram.len(), &mut self.outbox);
                }
                Ok(length)
            }
            kind::H2C_DATA => self.data(at, length, there, ram),
            kind::IC_REQ => {
                if there < pdu::IC_LEN {
                    return Ok(0);
                }
                let mut answer = [0; pdu::IC_LEN];
                pdu::put_common(&mut answer, kind::IC_RESP, 0, 128, 0, pdu::IC_LEN);
                pdu::put(&mut answer, 12, &MAX_H2C_DATA.to_le_bytes());
                self.outbox.copy(&answer);
                Ok(pdu::IC_LEN)
            }
            _ => Err(Malformed),
        }
    }

    /// A command of an I/O queue, wholly in the buffer.
    #[inline]
    fn command(&mut self, at: usize, length: usize, ram: &mut Area) -> Result<(), Malformed> {
        let bytes = self.buffer.bytes(at, at + length);
        let entry = &bytes[pdu::SQE..pdu::CAPSULE_CMD_LEN];
        let cid = pdu::u16_at(entry, 2);
        let place = (pdu::u64_at(entry, 40) as usize).wrapping_mul(BLOCK);
        let size = pdu::u32_at(entry, 32);
        match entry[0] {
            pdu::opcode::READ => {
                let data = ram.at(place, size as usize).ok_or(Malformed)?;
                let success = self.admin.flow_control_off;
                self.outbox.header::<{ pdu::SHORT_LEN }>(|pdu| {
                    let flags = flag::LAST | if success { flag::SUCCESS } else { 0 };
                    *pdu = pdu::data_header(kind::C2H_DATA, flags, cid, 0, 0, size);
                });
                // SAFETY: the RAM area outlives every connection.
                unsafe { self.outbox.data(data, size as usize) };
                if !success {
                    self.complete(Some(cid));
                }
            }
            pdu::opcode::WRITE if entry[39] == pdu::SGL_IN_CAPSULE => {
                let from = usize::from(bytes[3]).max(pdu::CAPSULE_CMD_LEN).min(length);
                if !ram.store(place, &bytes[from..]) {
                    return Err(Malformed);
                }
                self.complete(Some(cid));
            }
            pdu::opcode::WRITE => {
                ram.at(place, size as usize).ok_or(Malformed)?;
                if self.places.len() <= usize::from(cid) {
                    self.places.resize(usize::from(cid) + 1, 0);
                }
                self.places[usize::from(cid)] = place;
                self.due += 1;
                self.outbox.header::<{ pdu::SHORT_LEN }>(|pdu| *pdu = pdu::r2t(cid, cid, 0, size));
            }
            _ => self.complete(Some(cid)),
        }
        Ok(())
    }

    /// The data an R2T asked for: what has arrived is copied, the rest is received in place.
    fn data(
        &mut self,
        at: usize,
        length: usize,
        there: usize,
        ram: &mut Area,
    ) -> Result<usize, Malformed> {
        if there < pdu::SHORT_LEN {
            return Ok(0);
        }
        let bytes = self.buffer.bytes(at, self.filled);
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
            self.due = self.due.saturating_sub(1);
        }
        if part == size {
            self.complete(completes);
        } else {
            self.payload = Some(Payload { at: place + part, left: size - part, completes });
        }
        Ok(pdu::SHORT_LEN + part)
    }

    /// Answers a command with success.
    #[inline]
    fn complete(&mut self, cid: Option<u16>) {
        let Some(cid) = cid else { return };
        let sqhd = self.admin.next_head();
        self.outbox.header::<{ pdu::SHORT_LEN }>(|pdu| *pdu = pdu::capsule_resp(cid, sqhd, 0, 0));
    }
}

/// The peer speaks something else.
struct Malformed;
