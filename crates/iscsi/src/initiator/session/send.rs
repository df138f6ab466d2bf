//! How commands and their data leave: what goes unasked, and what the target asks for (R2T).
//!
//! ```text
//!   FirstBurstLength
//!   |---- unasked ------------------|---- asked for, an R2T after the other --------------------|
//!   | immediate     | Data-Out ...  | Data-Out ... | Data-Out ... |
//!   | with command  | InitialR2T=No |
//! ```
//! Each PDU has at most the target's MaxRecvDataSegmentLength of data, from where they lie. In:
//! jobs with their commands, R2Ts. Errors: a [`Fault`] for an R2T out of order or range. Spec: RFC
//! 7143, 4.2.5.2, 11.7, 11.8, 13.11 to 13.14.

use block::{Instant, Memory};
use wire::iscsi::{DataOut, R2t, ScsiCommand, ScsiCommandFlags, TargetNumbers};

use super::super::exchange::{Disk, Grant, Job, Sync};
use super::super::framing::{Fault, PayloadPart, broken};
use super::super::numbers::numbers_of;
use super::super::plan::{Command, flush};
use super::{Session, is_large_read};

impl Session {
    /// Sends a job's command. There must be room.
    #[inline]
    pub(in crate::initiator) fn submit(
        &mut self,
        now: Instant,
        index: u32,
        command: &Command,
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) {
        let slot = self.free.pop().expect("the caller saw that there is room");
        self.slots[usize::from(slot)].job = index;
        self.outstanding += 1;
        self.sent = now;
        let sends = command.sends;
        let (immediate, unasked) = self.unasked(sends);
        let job = &mut disk[index];
        self.large_reads += u32::from(is_large_read(job));
        self.laden += u32::from(unasked > 0);
        let numbers = self.numbers.command();
        let wire = &mut job.wire;
        (wire.slot, wire.batch) = (slot, self.framing.gathering_number());
        (wire.cmd_sn, wire.data_sn, wire.received, wire.granted) = (numbers.cmd_sn, 0, 0, unasked);
        (wire.sends, wire.grants) = (sends, 0);
        (wire.bad_digest, wire.is_laden) = (false, unasked > 0);
        let flags = match command {
            Command { returns: 1.., .. } => ScsiCommandFlags::READ,
            Command { sends: 1.., .. } => ScsiCommandFlags::WRITE.with_final(unasked == immediate),
            _ => ScsiCommandFlags::NO_DATA,
        };
        let (tag, length) = (self.tag(slot), command.returns.max(sends));
        let cdb = command.cdb.emit();
        let command = ScsiCommand::new(self.lun, tag, flags, cdb, length, immediate, numbers);
        self.framing.push_header(&command.emit());
        if immediate > 0 {
            let part = PayloadPart { owner: index, at: 0, length: immediate, job };
            self.framing.push_part(part, memory);
        }
        if unasked > immediate {
            let grant = Grant {
                tag: wire::iscsi::RESERVED_TAG,
                at: immediate,
                length: unasked - immediate,
            };
            self.push_data(index, grant, job, memory);
        }
    }

    /// Of so many bytes that a command sends: how many go with it, and unasked in all.
    #[inline]
    fn unasked(&self, sends: u32) -> (u32, u32) {
        let p = &self.parameters;
        let most = sends.min(p.first_burst);
        let immediate = if p.immediate_data { most.min(p.peer_segment) } else { 0 };
        (immediate, if p.initial_r2t { immediate } else { most })
    }

    /// Sends a range of a job's data, in PDUs of at most the target's segment.
    fn push_data(&mut self, owner: u32, grant: Grant, job: &mut Job, memory: &mut dyn Memory) {
        let Grant { tag, mut at, length: mut left } = grant;
        let (task, exp_stat_sn) = (self.tag(job.wire.slot), self.numbers.exp_stat_sn());
        let mut data_sn = 0;
        while left > 0 {
            let length = left.min(self.parameters.peer_segment);
            let is_final = length == left;
            let unasked =
                DataOut::unsolicited(self.lun, task, data_sn, at, length, is_final, exp_stat_sn);
            let header = DataOut { target_transfer_tag: tag, ..unasked };
            self.framing.push_header(&header.emit());
            let part = PayloadPart { owner, at, length, job: &mut *job };
            self.framing.push_part(part, memory);
            (at, left, data_sn) = (at + length, left - length, data_sn + 1);
        }
    }

    /// Sends what jobs that are done owe for their durability, as far as there is room.
    #[inline]
    pub(in crate::initiator) fn send_held(&mut self, now: Instant, disk: &mut Disk) {
        while !self.held.is_empty() && self.numbers.has_room() {
            let index = self.held.pop_front().expect("there is one");
            let numbers = self.numbers.command();
            self.sent = now;
            let wire = &mut disk[index].wire;
            assert_eq!(wire.sync, Sync::UnderWay, "nothing else is held");
            (wire.batch, wire.cmd_sn) = (self.framing.gathering_number(), numbers.cmd_sn);
            let tag = self.tag(wire.slot);
            let (flags, cdb) = (ScsiCommandFlags::NO_DATA, flush().cdb.emit());
            let command = ScsiCommand::new(self.lun, tag, flags, cdb, 0, 0, numbers);
            self.framing.push_header(&command.emit());
        }
    }

    /// R2T: the target wants a part of a task's data.
    #[inline]
    pub(super) fn handle_r2t(
        &mut self,
        pdu: &[u8],
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<(), Fault> {
        let r2t = R2t::parse(pdu).expect("the header is whole");
        let TargetNumbers { exp_cmd_sn, max_cmd_sn, .. } = numbers_of!(r2t);
        self.numbers.note_window(exp_cmd_sn, max_cmd_sn);
        let (_, index) = self.find(r2t.initiator_task_tag)?;
        let job = &mut disk[index];
        let wire = &mut job.wire;
        let length = r2t.desired_data_transfer_length;
        let end = u64::from(r2t.buffer_offset) + u64::from(length);
        let in_order = r2t.buffer_offset == wire.granted && r2t.r2t_sn == wire.data_sn;
        if !in_order || end > u64::from(wire.sends) {
            return broken("an R2T in order and within the command");
        }
        if length == 0 || length > self.parameters.max_burst {
            return broken("an R2T of 1 to MaxBurstLength bytes");
        }
        if wire.grants >= self.parameters.max_outstanding_r2t as u8 {
            return broken("no more R2Ts at once than MaxOutstandingR2T");
        }
        (wire.granted, wire.data_sn) = (end as u32, wire.data_sn.wrapping_add(1));
        let grant = Grant { tag: r2t.target_transfer_tag, at: r2t.buffer_offset, length };
        wire.waiting_grants[usize::from(wire.grants)] = grant;
        wire.grants += 1;
        self.serve_grants(index, disk, memory);
        Ok(())
    }

    /// Sends what was asked for, if the payload is at home.
    pub(super) fn serve_grants(&mut self, index: u32, disk: &mut Disk, memory: &mut dyn Memory) {
        let job = &mut disk[index];
        let batch = self.framing.gathering_number();
        if job.wire.grants == 0 || !job.place.is_within_reach(batch) {
            return;
        }
        let grants = core::mem::take(&mut job.wire.grants);
        for at in 0..usize::from(grants) {
            let grant = job.wire.waiting_grants[at];
            self.push_data(index, grant, job, memory);
        }
    }
}
