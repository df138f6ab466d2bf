//! One I/O queue at work: the hot path of the bare NVMe/TCP client.
//!
//! In: received bytes. Out: completions counted, new commands in the outbox. Data that were read are
//! received into the queue's inbox, where they stay until the next receive: they land in memory, as
//! for any user of data, and only their length is looked at. Errors: a status other than success, or
//! a PDU that does not belong here, ends the run. Times: nanoseconds since the run's start.

use std::rc::Rc;

use anyhow::{Result, bail, ensure};

use super::pdu::{self, flag, kind, opcode};
use super::session::{Session, Wire};
use crate::bytes::{digest, put};
use crate::load::{self, Flow, Work};
use crate::report::Tally;

/// State of a queue.
pub(crate) struct Queue {
    flow: Flow,
    header_digest: bool,
    data_digest: bool,
    /// Longest data of one H2CData.
    max_h2c: usize,
    /// Data fit into the capsule.
    in_capsule: bool,
    /// Bytes of the present PDU that are still to come and to be dropped.
    skip: usize,
    /// The command that ends with them.
    ends: Option<u16>,
    /// The capsules of reads and of writes but for CID and block.
    templates: [[u8; pdu::CAPSULE_CMD_LEN]; 2],
    /// Digest of the whole pattern.
    whole: [u8; 4],
    /// The controller's admin queue, which lives as long.
    _session: Rc<Session>,
}

impl Queue {
    /// A queue of `session` on its connection; `buffer` is the size of the inbox.
    pub(super) fn new(
        session: &Rc<Session>,
        wire: Wire,
        work: Work,
        buffer: usize,
    ) -> Result<Self> {
        let in_capsule = work.size <= session.in_capsule.min(8192);
        let templates = [false, true].map(|write| {
            let carried = if write && in_capsule { work.size } else { 0 };
            template(&work, session.nsid(), &wire, write, carried)
        });
        Ok(Self {
            header_digest: wire.header_digest,
            data_digest: wire.data_digest,
            max_h2c: wire.max_h2c,
            in_capsule,
            skip: 0,
            ends: None,
            templates,
            whole: digest(work.pattern.bytes(0, work.size)),
            flow: Flow::new(wire.socket, work, buffer)?,
            _session: Rc::clone(session),
        })
    }

    #[inline]
    fn finish(&mut self, cid: u16, now: u64, refill: bool, tally: &mut Tally) -> Result<()> {
        self.flow.finish(cid, now, tally)?;
        if refill {
            self.submit(cid, now);
        } else {
            self.flow.release(cid);
        }
        Ok(())
    }

    /// Queues one command; false if the disk has been filled.
    #[inline]
    fn submit(&mut self, cid: u16, now: u64) -> bool {
        let Some(next) = self.flow.next(cid, now) else { return false };
        let (template, whole) = (&self.templates[usize::from(next.write)], self.whole);
        let Flow { outbox, work, .. } = &mut self.flow;
        let fill = |pdu: &mut [u8; pdu::CAPSULE_CMD_LEN]| {
            *pdu = *template;
            put(pdu, pdu::SQE + 2, &cid.to_le_bytes());
            put(pdu, pdu::SQE + 40, &next.block.to_le_bytes());
        };
        if self.header_digest {
            outbox.header::<{ pdu::CAPSULE_CMD_LEN + 4 }>(|bytes| {
                let (pdu, sum) = bytes.split_at_mut(pdu::CAPSULE_CMD_LEN);
                let pdu: &mut [u8; pdu::CAPSULE_CMD_LEN] = pdu.try_into().expect("that length");
                fill(pdu);
                sum.copy_from_slice(&digest(pdu));
            });
        } else {
            outbox.header::<{ pdu::CAPSULE_CMD_LEN }>(fill);
        }
        if next.write && self.in_capsule {
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { outbox.data(work.data(0, work.size), work.size) };
            if self.data_digest {
                outbox.header::<4>(|sum| *sum = whole);
            }
        }
        true
    }

    /// Answers an R2T with as many H2CData as the target's limit asks for.
    fn send_data(&mut self, cid: u16, ttag: u16, offset: u32, asked: u32) -> Result<()> {
        let (mut at, mut left) = (offset as usize, asked as usize);
        let Flow { outbox, work, .. } = &mut self.flow;
        ensure!(at + left <= work.size, "an R2T beyond the data");
        while left > 0 {
            let part = left.min(self.max_h2c);
            left -= part;
            let last = if left == 0 { flag::LAST } else { 0 };
            let length = part as u32;
            let mut header = pdu::data_header(kind::H2C_DATA, last, cid, ttag, at as u32, length);
            let hdgst = if self.header_digest { 4 } else { 0 };
            let ddgst = if self.data_digest { 4 } else { 0 };
            header[1] |= if hdgst > 0 { flag::HDGST } else { 0 };
            header[1] |= if ddgst > 0 { flag::DDGST } else { 0 };
            header[3] += hdgst;
            let total = pdu::SHORT_LEN + usize::from(hdgst) + part + ddgst;
            put(&mut header, 4, &(total as u32).to_le_bytes());
            outbox.copy(&header);
            if hdgst > 0 {
                outbox.copy(&digest(&header));
            }
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { outbox.data(work.data(at, part), part) };
            if ddgst > 0 {
                let sum = if part == work.size {
                    self.whole
                } else {
                    digest(work.pattern.bytes(at, at + part))
                };
                outbox.copy(&sum);
            }
            at += part;
        }
        Ok(())
    }
}

impl load::Queue for Queue {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn flow_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }

    fn issue(&mut self, since: u64) -> bool {
        let Some(cid) = self.flow.take_slot() else { return false };
        self.submit(cid, since)
    }

    fn consume(&mut self, now: u64, refill: bool, tally: &mut Tally) -> Result<()> {
        let mut at = 0;
        loop {
            let step = self.skip.min(self.flow.inbox.filled() - at);
            at += step;
            self.skip -= step;
            if self.skip > 0 {
                break;
            }
            if let Some(cid) = self.ends.take() {
                self.finish(cid, now, refill, tally)?;
            }
            if self.flow.inbox.filled() - at < pdu::SHORT_LEN {
                break;
            }
            let header = self.flow.inbox.bytes(at, at + pdu::SHORT_LEN);
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
        self.flow.inbox.drop_front(at);
        Ok(())
    }
}

/// The capsule of this work's reads or writes but for CID and block; `carried` data are in it.
fn template(
    work: &Work,
    nsid: u32,
    wire: &Wire,
    write: bool,
    carried: usize,
) -> [u8; pdu::CAPSULE_CMD_LEN] {
    let kind = if write { opcode::WRITE } else { opcode::READ };
    let mut entry = pdu::transfer(kind, nsid, work.size as u32, work.blocks());
    if carried > 0 {
        entry[39] = pdu::SGL_IN_CAPSULE;
    }
    pdu::capsule_cmd(&entry, carried, wire.header_digest, wire.data_digest)
}
