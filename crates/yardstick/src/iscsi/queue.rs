//! One session at work: the hot path of the bare iSCSI client.
//!
//! In: received bytes. Out: completions counted, new commands in the outbox, their units in turn.
//! Data that were read are received into the session's inbox, where they stay until the next
//! receive, or go to pages of their command (`landing.rs`): they land in memory, as for any user of
//! data; what is looked at is their length, and their digest where that was agreed. A command leaves
//! only while the target's window for command
//! numbers is open. Errors: a status other than good, a residual, data out of order, too few or too
//! many of them, a status out of turn, a wrong digest, or a PDU that does not belong here, ends the
//! run. Times: nanoseconds since the run's start.

use anyhow::{Result, bail, ensure};

use super::landing::{Handling, Landing};
use super::pdu::{self, BHS_LEN, Bhs, DIGEST_LEN, at, flag, opcode};
use super::scsi::{operation, status};
use super::session::{self, Capacity, Session};
use super::terms::Terms;
use crate::bytes::{digest, put};
use crate::load::{self, Flow, Room, Work};
use crate::report::Tally;

/// State of a session.
pub(crate) struct Queue {
    flow: Flow,
    terms: Terms,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    luns: Vec<[u8; 8]>,
    /// The command of each slot.
    tasks: Vec<Task>,
    /// The present data segment, as far as it has not come.
    landing: Landing,
    /// The command that ends with them.
    ends: Option<u16>,
    /// The commands of reads and of writes but for unit, tag, numbers and block.
    templates: [Bhs; 2],
    /// Data that a write has with it, and their digest.
    immediate: usize,
    immediate_digest: [u8; DIGEST_LEN],
}

/// A command that is outstanding.
#[derive(Clone, Copy, Default)]
struct Task {
    writes: bool,
    /// Bytes of its data that have been sent, or have come.
    moved: usize,
}

impl Queue {
    /// The load of a session on its units, which all have this capacity; `buffer` is the size of the
    /// inbox.
    pub(super) fn new(
        session: Session,
        luns: &[u8],
        capacity: Capacity,
        work: Work,
        (buffer, handling): (usize, Handling),
    ) -> Result<Self> {
        let Session { socket, terms, cmd_sn, max_cmd_sn, exp_stat_sn, .. } = session;
        let first = if terms.immediate { terms.first_burst.min(terms.max_send) } else { 0 };
        let immediate = work.size.min(first as usize);
        ensure!(immediate.is_multiple_of(4), "{immediate} bytes with a command need padding");
        let templates = [false, true].map(|writes| template(&work, capacity, writes, immediate));
        let queue = Self {
            terms,
            cmd_sn,
            max_cmd_sn,
            exp_stat_sn,
            luns: luns.iter().map(|number| pdu::lun(*number)).collect(),
            tasks: vec![Task::default(); usize::from(work.depth)],
            landing: Landing::new(handling, work.depth, work.size)?,
            ends: None,
            templates,
            immediate,
            immediate_digest: digest(work.pattern.bytes(0, immediate)),
            flow: Flow::new(socket, work, buffer)?,
        };
        ensure!(queue.is_open(), "the target takes no commands");
        Ok(queue)
    }

    /// Whether the target takes another command.
    #[inline]
    fn is_open(&self) -> bool {
        !pdu::is_after(self.cmd_sn, self.max_cmd_sn)
    }

    /// Queues one command; false if the disk has been filled.
    #[inline]
    fn submit(&mut self, slot: u16, since: u64) -> bool {
        let Some(next) = self.flow.next(slot, since) else { return false };
        let (template, writes) = (&self.templates[usize::from(next.write)], next.write);
        let moved = if writes { self.immediate } else { 0 };
        self.tasks[usize::from(slot)] = Task { writes, moved };
        let lun = &self.luns[next.unit];
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let Flow { outbox, work, .. } = &mut self.flow;
        pdu::push(outbox, self.terms.header_digest, |bhs| {
            *bhs = *template;
            put(bhs, at::LUN, lun);
            pdu::put_u32(bhs, at::ITT, slot.into());
            pdu::put_u32(bhs, at::CMD_SN, cmd_sn);
            pdu::put_u32(bhs, at::EXP_STAT_SN, exp_stat_sn);
            put_block(&mut bhs[at::CDB..], next.block);
        });
        if moved > 0 {
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { outbox.data(work.data(0, moved), moved) };
            if self.terms.data_digest {
                let sum = self.immediate_digest;
                outbox.header::<DIGEST_LEN>(|bytes| *bytes = sum);
            }
        }
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        true
    }

    #[inline]
    fn finish(&mut self, slot: u16, now: u64, refill: bool, tally: &mut Tally) -> Result<()> {
        self.flow.finish(slot, now, tally)?;
        if refill && self.is_open() {
            self.submit(slot, now);
        } else {
            self.flow.release(slot);
        }
        Ok(())
    }

    /// Handles a header, whose digest has been compared; what follows it is begun then.
    #[inline]
    fn header(&mut self, head: &Bhs) -> Result<()> {
        let max_cmd_sn = pdu::u32_at(head, at::MAX_CMD_SN);
        if pdu::is_after(max_cmd_sn, self.max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        if session::counts_status(head) {
            let stat_sn = pdu::u32_at(head, at::STAT_SN);
            ensure!(stat_sn == self.exp_stat_sn, "status {stat_sn} after {}", self.exp_stat_sn);
            self.exp_stat_sn = stat_sn.wrapping_add(1);
        }
        let len = pdu::data_len(head);
        ensure!(head[at::AHS_LEN] == 0, "a further header from the target");
        let read = if head[0] == opcode::DATA_IN { Some(self.data_in(head, len)?) } else { None };
        self.landing.begin(pdu::padded(len), self.terms.data_digest, read);
        match head[0] {
            opcode::DATA_IN => Ok(()),
            opcode::SCSI_RESPONSE => {
                self.ends = Some(self.done(head)?);
                Ok(())
            }
            opcode::R2T => self.send_data(head),
            opcode::NOP_IN => {
                if let Some(mut pong) = session::pong(head) {
                    pdu::put_u32(&mut pong, at::CMD_SN, self.cmd_sn);
                    pdu::put_u32(&mut pong, at::EXP_STAT_SN, self.exp_stat_sn);
                    pdu::push(&mut self.flow.outbox, self.terms.header_digest, |bhs| *bhs = pong);
                }
                Ok(())
            }
            opcode::REJECT => bail!("the target rejects a PDU: reason {:#04x}", head[2]),
            other => bail!("PDU type {other:#04x} in a session at work"),
        }
    }

    /// The command that a header of the target is about, and its slot.
    #[inline]
    fn task(&mut self, head: &Bhs) -> Result<(u16, &mut Task)> {
        let itt = pdu::u32_at(head, at::ITT);
        match self.tasks.get_mut(itt as usize) {
            Some(task) => Ok((itt as u16, task)),
            None => bail!("PDU type {:#04x} for task {itt:#x}, which there is not", head[0]),
        }
    }

    /// Data of a read: the next in order, and the status if it is there. Whose they are, and where they
    /// begin.
    #[inline]
    fn data_in(&mut self, head: &Bhs, len: usize) -> Result<(u16, usize)> {
        let offset = pdu::u32_at(head, at::OFFSET) as usize;
        let size = self.flow.work.size;
        let (slot, task) = self.task(head)?;
        ensure!(!task.writes, "data in answer to a write");
        ensure!(offset == task.moved, "data at {offset} behind {}", task.moved);
        task.moved += len;
        // With what fills them up to whole words.
        ensure!(offset + pdu::padded(len) <= size, "{} bytes of {size} moved", task.moved);
        if head[at::FLAGS] & flag::STATUS != 0 {
            self.ends = Some(self.done(head)?);
        }
        Ok((slot, offset))
    }

    /// The slot of a command that a header ends; an error if it has not done all that it had to.
    #[inline]
    fn done(&mut self, head: &Bhs) -> Result<u16> {
        let size = self.flow.work.size;
        let (slot, task) = self.task(head)?;
        let (flags, code) = (head[at::FLAGS], head[at::STATUS]);
        let response = if head[0] == opcode::SCSI_RESPONSE { head[at::RESPONSE] } else { 0 };
        ensure!(
            code == status::GOOD && response == 0,
            "a command failed: response {response:#04x}, status {code:#04x}"
        );
        ensure!(
            flags & (flag::OVERFLOW | flag::UNDERFLOW) == 0,
            "a residual of {} bytes",
            pdu::u32_at(head, at::RESIDUAL)
        );
        ensure!(task.moved == size, "{} bytes of {size} moved", task.moved);
        Ok(slot)
    }

    /// Answers an R2T with as many Data-Out as the target's limit asks for.
    fn send_data(&mut self, head: &Bhs) -> Result<()> {
        let (offset, asked) = (pdu::u32_at(head, at::OFFSET), pdu::u32_at(head, at::LENGTH));
        let (mut at, end) = (offset as usize, offset as usize + asked as usize);
        let size = self.flow.work.size;
        let (_, task) = self.task(head)?;
        ensure!(task.writes && at == task.moved, "an R2T at {at} behind {}", task.moved);
        ensure!(end <= size && asked > 0, "an R2T for {at}..{end} of {size} bytes");
        task.moved = end;
        let mut data_out = pdu::head(opcode::DATA_OUT, 0, pdu::u32_at(head, at::ITT));
        put(&mut data_out, at::LUN, &head[at::LUN..at::ITT]);
        put(&mut data_out, at::TTT, &head[at::TTT..at::CMD_SN]);
        pdu::put_u32(&mut data_out, at::EXP_STAT_SN, self.exp_stat_sn);
        let Flow { outbox, work, .. } = &mut self.flow;
        let mut data_sn = 0;
        while at < end {
            let part = (end - at).min(self.terms.max_send as usize);
            if at + part == end {
                data_out[at::FLAGS] = flag::FINAL;
            }
            pdu::put_data_len(&mut data_out, part);
            pdu::put_u32(&mut data_out, at::DATA_SN, data_sn);
            pdu::put_u32(&mut data_out, at::OFFSET, at as u32);
            pdu::push(outbox, self.terms.header_digest, |bhs| *bhs = data_out);
            // SAFETY: the pattern is shared by the queue and outlives its outbox.
            unsafe { outbox.data(work.data(at, part), part) };
            if self.terms.data_digest {
                let sum = digest(work.pattern.bytes(at, at + part));
                outbox.header::<DIGEST_LEN>(|bytes| *bytes = sum);
            }
            at += part;
            data_sn += 1;
        }
        Ok(())
    }

    /// What the command of a slot has read.
    #[cfg(test)]
    pub(super) fn pages(&self, slot: u16) -> &[u8] {
        self.landing.pages(slot)
    }

    /// Bytes of a header.
    fn head_len(&self) -> usize {
        BHS_LEN + if self.terms.header_digest { DIGEST_LEN } else { 0 }
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
        if !self.is_open() {
            return false;
        }
        let Some(slot) = self.flow.take_slot() else { return false };
        self.submit(slot, since)
    }

    fn room(&mut self) -> Room<'_> {
        let head = self.head_len().saturating_sub(self.flow.inbox.filled());
        // A write has no data to come.
        let task = self.tasks[0];
        let moved = if task.writes { self.flow.work.size } else { task.moved };
        self.landing.room(&self.flow.inbox, head, moved)
    }

    fn fill(&mut self, got: usize) {
        self.landing.fill(&mut self.flow.inbox, got);
    }

    fn consume(&mut self, now: u64, refill: bool, tally: &mut Tally) -> Result<()> {
        let head_len = self.head_len();
        let mut at = 0;
        loop {
            at = self.landing.pass(&self.flow.inbox, at);
            if self.landing.is_open() {
                break;
            }
            if self.landing.is_summed() {
                let Some(sent) = self.flow.inbox.rest(at).get(..DIGEST_LEN) else { break };
                let is_right = self.landing.take_sum().is_some_and(|sum| sent == sum);
                ensure!(is_right, "a data digest is wrong");
                at += DIGEST_LEN;
            }
            if let Some(slot) = self.ends.take() {
                self.finish(slot, now, refill, tally)?;
            }
            let Some(bytes) = self.flow.inbox.rest(at).get(..head_len) else { break };
            let (head, sum) = bytes.split_at(BHS_LEN);
            ensure!(sum.is_empty() || digest(head) == sum, "a header digest is wrong");
            let head: Bhs = head.try_into().expect("that length");
            self.header(&head)?;
            at += head_len;
            self.landing.settle(&mut self.flow.inbox)?;
        }
        self.flow.inbox.drop_front(at);
        // What the window kept back until now.
        while refill && self.issue(now) {}
        ensure!(
            !refill || self.flow.outstanding > 0 || self.is_open(),
            "the target takes no commands any more"
        );
        Ok(())
    }
}

/// The command of this work's reads or writes but for unit, tag, numbers and block; `immediate` data
/// come with those that write.
fn template(work: &Work, capacity: Capacity, writes: bool, immediate: usize) -> Bhs {
    let direction = if writes { flag::WRITE } else { flag::READ };
    let mut bhs =
        pdu::head(opcode::SCSI_COMMAND, flag::FINAL | flag::SIMPLE | direction, pdu::NO_TAG);
    pdu::put_u32(&mut bhs, at::EDTL, work.size as u32);
    if writes {
        pdu::put_data_len(&mut bhs, immediate);
    }
    let cdb = &mut bhs[at::CDB..];
    let blocks = work.blocks();
    // As an operating system does: the short form wherever it reaches.
    if capacity.blocks <= 1 << 32 && blocks <= u64::from(u16::MAX) {
        cdb[0] = if writes { operation::WRITE_10 } else { operation::READ_10 };
        put(cdb, 7, &(blocks as u16).to_be_bytes());
    } else {
        cdb[0] = if writes { operation::WRITE_16 } else { operation::READ_16 };
        put(cdb, 10, &(blocks as u32).to_be_bytes());
    }
    bhs
}

/// Writes the first block of a READ or WRITE.
#[inline]
fn put_block(cdb: &mut [u8], block: u64) {
    match cdb[0] {
        operation::READ_10 | operation::WRITE_10 => put(cdb, 2, &(block as u32).to_be_bytes()),
        _ => put(cdb, 2, &block.to_be_bytes()),
    }
}
