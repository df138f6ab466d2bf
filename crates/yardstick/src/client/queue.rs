//! One I/O queue at work: the hot path of the bare client.
//!
//! In: received bytes. Out: completions counted, new commands in the outbox. Data that were read are
//! received into the queue's buffer, where they stay until the next receive: they land in memory, as
//! for any user of data, and only their length is looked at. Errors: a status other than success, or
//! a PDU that does not belong here, ends the run. Times: nanoseconds since the run's start.

use std::os::fd::AsFd;
use std::rc::Rc;

use anyhow::{Result, bail, ensure};

use super::session::{Wire, digest};
use crate::memory::Area;
use crate::outbox::Outbox;
use crate::pdu::{self, flag, kind, opcode, put};
use crate::places::Places;
use crate::report::Tally;

/// What a queue does.
pub(super) struct Work {
    /// Of a hundred commands, how many read; the others write.
    pub(super) reads: u8,
    /// Bytes of a command's data.
    pub(super) size: usize,
    /// Commands outstanding.
    pub(super) depth: u16,
    /// Namespace.
    pub(super) nsid: u32,
    /// Bytes of a block.
    pub(super) block: u64,
    /// First block of the queue's range.
    pub(super) first: u64,
    /// The range, in commands.
    pub(super) places: Places,
    /// Data fit into the capsule.
    pub(super) in_capsule: bool,
    /// The data of all writes.
    pub(super) pattern: Rc<Area>,
}

/// State of a queue.
pub(super) struct Queue {
    pub(super) wire: Wire,
    pub(super) buffer: Area,
    pub(super) filled: usize,
    pub(super) outbox: Outbox,
    pub(super) waits_for_room: bool,
    pub(super) outstanding: u16,
    work: Work,
    /// Bytes of the present PDU that are still to come and to be dropped.
    skip: usize,
    /// The command that ends with them.
    ends: Option<u16>,
    started: Vec<u64>,
    /// Commands that are not outstanding.
    free: Vec<u16>,
    /// The capsules of reads and of writes but for CID and block.
    templates: [[u8; pdu::CAPSULE_CMD_LEN]; 2],
    /// Digest of the whole pattern.
    whole: [u8; 4],
}

impl Queue {
    pub(super) fn new(wire: Wire, work: Work, buffer: usize) -> Result<Self> {
        wire.socket.set_nonblocking(true)?;
        let templates = [false, true].map(|write| template(&work, &wire, write));
        let whole = digest(work.pattern.bytes(0, work.size));
        Ok(Self {
            wire,
            buffer: Area::new(buffer, false)?,
            filled: 0,
            outbox: Outbox::new()?,
            waits_for_room: false,
            outstanding: 0,
            skip: 0,
            ends: None,
            started: vec![0; usize::from(work.depth)],
            free: (0..work.depth).rev().collect(),
            templates,
            whole,
            work,
        })
    }

    /// Queues as many commands as may be outstanding.
    pub(super) fn start(&mut self, now: u64) {
        while self.issue(now) {}
    }

    /// Queues one command, whose latency counts from `since`; false if none may be outstanding
    /// beside those that are, or the disk has been filled.
    pub(super) fn issue(&mut self, since: u64) -> bool {
        let Some(cid) = self.free.pop() else { return false };
        self.submit(cid, since)
    }

    /// Sends what is queued; false if the socket is full.
    pub(super) fn flush(&mut self) -> std::io::Result<bool> {
        self.outbox.flush(self.wire.socket.as_fd())
    }

    /// Handles `got` new bytes; `refill` starts a new command for each that has ended.
    pub(super) fn consume(
        &mut self,
        got: usize,
        now: u64,
        refill: bool,
        tally: &mut Tally,
    ) -> Result<()> {
        self.filled += got;
        let mut at = 0;
        loop {
            let step = self.skip.min(self.filled - at);
            at += step;
            self.skip -= step;
            if self.skip > 0 {
                break;
            }
            if let Some(cid) = self.ends.take() {
                self.finish(cid, now, refill, tally);
            }
            if self.filled - at < pdu::SHORT_LEN {
                break;
            }
            let header = self.buffer.bytes(at, at + pdu::SHORT_LEN);
            let length = pdu::u32_at(header, 4) as usize;
            ensure!(length >= pdu::SHORT_LEN, "a PDU of {length} bytes");
            self.skip = length - pdu::SHORT_LEN;
            match header[0] {
                kind::C2H_DATA => {
                    if header[1] & flag::SUCCESS != 0 {
                        self.ends = Some(pdu::u16_at(header, 8));
                    }
                }
                kind::CAPSULE_RESP => {
                    let status = pdu::u16_at(header, 22) >> 1;
                    ensure!(status == 0, "a command failed: {:#x}", status & 0x7ff);
                    self.ends = Some(pdu::u16_at(header, 20));
                }
                kind::R2T => {
                    let (cid, ttag) = (pdu::u16_at(header, 8), pdu::u16_at(header, 10));
                    let (offset, asked) = (pdu::u32_at(header, 12), pdu::u32_at(header, 16));
                    self.send_data(cid, ttag, offset, asked)?;
                }
                other => bail!("PDU type {other:#04x} on an I/O queue"),
            }
            at += pdu::SHORT_LEN;
        }
        if at < self.filled {
            let end = self.filled;
            self.buffer.bytes_mut(0, end).copy_within(at.., 0);
        }
        self.filled -= at;
        Ok(())
    }

    #[inline]
    fn finish(&mut self, cid: u16, now: u64, refill: bool, tally: &mut Tally) {
        self.outstanding -= 1;
        tally.record(now.saturating_sub(self.started[usize::from(cid)]));
        if refill {
            self.submit(cid, now);
        } else {
            self.free.push(cid);
        }
    }

    /// Whether the next command writes.
    #[inline]
    fn draws_write(&mut self) -> bool {
        match self.work.reads {
            0 => true,
            100 => false,
            reads => self.work.places.draw(100) >= u64::from(reads),
        }
    }

    /// Queues one command; false if the disk has been filled.
    #[inline]
    fn submit(&mut self, cid: u16, now: u64) -> bool {
        let Some(place) = self.work.places.next() else { return false };
        let write = self.draws_write();
        let block = self.work.first + place * (self.work.size as u64 / self.work.block);
        let (template, whole) = (&self.templates[usize::from(write)], self.whole);
        self.outstanding += 1;
        self.started[usize::from(cid)] = now;
        let fill = |pdu: &mut [u8; pdu::CAPSULE_CMD_LEN]| {
            *pdu = *template;
            put(pdu, pdu::SQE + 2, &cid.to_le_bytes());
            put(pdu, pdu::SQE + 40, &block.to_le_bytes());
        };
        if self.wire.header_digest {
            self.outbox.header::<{ pdu::CAPSULE_CMD_LEN + 4 }>(|bytes| {
                let (pdu, sum) = bytes.split_at_mut(pdu::CAPSULE_CMD_LEN);
                let pdu: &mut [u8; pdu::CAPSULE_CMD_LEN] = pdu.try_into().expect("that length");
                fill(pdu);
                sum.copy_from_slice(&digest(pdu));
            });
        } else {
            self.outbox.header::<{ pdu::CAPSULE_CMD_LEN }>(fill);
        }
        if write && self.work.in_capsule {
            let data = self.work.pattern.at(0, self.work.size);
            let data = data.expect("the pattern is as long as a write");
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { self.outbox.data(data, self.work.size) };
            if self.wire.data_digest {
                self.outbox.header::<4>(|sum| *sum = whole);
            }
        }
        true
    }

    /// Answers an R2T with as many H2CData as the target's limit asks for.
    fn send_data(&mut self, cid: u16, ttag: u16, offset: u32, asked: u32) -> Result<()> {
        let (mut at, mut left) = (offset as usize, asked as usize);
        ensure!(at + left <= self.work.size, "an R2T beyond the data");
        while left > 0 {
            let part = left.min(self.wire.max_h2c);
            left -= part;
            let data = self.work.pattern.at(at, part);
            let data = data.expect("checked against the length above");
            let last = if left == 0 { flag::LAST } else { 0 };
            let length = part as u32;
            let mut header = pdu::data_header(kind::H2C_DATA, last, cid, ttag, at as u32, length);
            let hdgst = if self.wire.header_digest { 4 } else { 0 };
            let ddgst = if self.wire.data_digest { 4 } else { 0 };
            header[1] |= if hdgst > 0 { flag::HDGST } else { 0 };
            header[1] |= if ddgst > 0 { flag::DDGST } else { 0 };
            header[3] += hdgst;
            let total = pdu::SHORT_LEN + usize::from(hdgst) + part + ddgst;
            put(&mut header, 4, &(total as u32).to_le_bytes());
            self.outbox.copy(&header);
            if hdgst > 0 {
                self.outbox.copy(&digest(&header));
            }
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { self.outbox.data(data, part) };
            if ddgst > 0 {
                let sum = if part == self.work.size {
                    self.whole
                } else {
                    digest(self.work.pattern.bytes(at, at + part))
                };
                self.outbox.copy(&sum);
            }
            at += part;
        }
        Ok(())
    }
}

/// The capsule of this work's reads or writes but for CID and block.
fn template(work: &Work, wire: &Wire, write: bool) -> [u8; pdu::CAPSULE_CMD_LEN] {
    let blocks = work.size as u64 / work.block;
    let kind = if write { opcode::WRITE } else { opcode::READ };
    let mut entry = pdu::transfer(kind, work.nsid, work.size as u32, blocks);
    let carried = if write && work.in_capsule { work.size } else { 0 };
    if carried > 0 {
        entry[39] = pdu::SGL_IN_CAPSULE;
    }
    pdu::capsule_cmd(&entry, carried, wire.header_digest, wire.data_digest)
}
