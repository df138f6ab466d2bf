//! What leaves: PDUs are appended to the [`Batches`] of the connection, each with the numbers that
//! it bears when it is appended, which is the order in which all of them leave.
//!
//! StatSN counts what carries a status; MaxCmdSN goes up by one with each answer to a command that
//! was not immediate, so the window is what the host may have outstanding. Spec: RFC 7143, 4.2.2.

use core::ops::{Deref, DerefMut};

use block::checksum::{Crc32c, crc32c};
use block::{Buffer, Instant, Memory};
use contract::Batches;
use wire::iscsi::{Bhs, DataIn, Digests, R2t, Residual, ScsiResponse, TargetNumbers, padding};
use wire::scsi::{ScsiStatus, Sense};

use super::slots::Task;

/// The numbers of a connection's PDUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// Of the next status.
    pub(super) stat_sn: u32,
    /// Of the next command.
    pub(super) exp_cmd_sn: u32,
    /// Of the last command that is taken.
    pub(super) max_cmd_sn: u32,
    /// The same as the host was told it at most, by what has been given to the driver: so many
    /// commands, and no more, it may have sent.
    pub(super) told_max_cmd_sn: u32,
}

impl Numbers {
    /// What a PDU says that bears no status.
    #[inline]
    pub(super) fn now(&self) -> TargetNumbers {
        let Numbers { stat_sn, exp_cmd_sn, max_cmd_sn, .. } = *self;
        TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn }
    }

    /// What a PDU says that bears one.
    #[inline]
    pub(super) fn of_status(&mut self) -> TargetNumbers {
        let now = self.now();
        self.stat_sn = self.stat_sn.wrapping_add(1);
        now
    }
}

/// What a connection sends.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    batches: Batches,
    pub(super) numbers: Numbers,
    pub(super) digests: Digests,
    /// The most data that the host takes in one PDU.
    pub(super) segment_max: u32,
    /// The most data of one sequence.
    pub(super) burst_max: u32,
}

impl Deref for Outbox {
    type Target = Batches;

    #[inline]
    fn deref(&self) -> &Batches {
        &self.batches
    }
}

impl DerefMut for Outbox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Batches {
        &mut self.batches
    }
}

impl Outbox {
    /// A command is answered: the host may send another one.
    #[inline]
    pub(super) fn answered(&mut self, is_immediate: bool) {
        self.batches.answers += 1;
        if !is_immediate {
            self.numbers.max_cmd_sn = self.numbers.max_cmd_sn.wrapping_add(1);
        }
    }

    /// What was gathered goes out.
    #[inline]
    pub(super) fn send(&mut self, now: Instant) {
        self.numbers.told_max_cmd_sn = self.numbers.max_cmd_sn;
        self.batches.send(now);
    }

    /// A command ends without an answer: the host may send another one all the same.
    pub(super) fn forgotten(&mut self, is_immediate: bool) {
        if !is_immediate {
            self.numbers.max_cmd_sn = self.numbers.max_cmd_sn.wrapping_add(1);
        }
    }

    #[inline]
    fn push_header(&mut self, header: &[u8; Bhs::SIZE]) {
        if !self.digests.header {
            return self.batches.filling.push_head(header);
        }
        let mut bytes = [0; Bhs::SIZE + Digests::SIZE];
        bytes[..Bhs::SIZE].copy_from_slice(header);
        bytes[Bhs::SIZE..].copy_from_slice(&crc32c(header).to_le_bytes());
        self.batches.filling.push_head(&bytes);
    }

    /// Appends a PDU whose data, if it has some, lie nowhere else.
    pub(super) fn push(&mut self, header: &[u8; Bhs::SIZE], data: &[u8]) {
        self.push_header(header);
        if data.is_empty() {
            return;
        }
        self.batches.count_reply_data(header.len() + data.len());
        let padding = &[0; 4][..padding(data.len() as u32) as usize];
        self.batches.filling.push_head(data);
        self.push_padding(padding);
        if self.digests.data {
            let digest = Crc32c::new().update(data).update(padding).value();
            self.batches.filling.push_head(&digest.to_le_bytes());
        }
    }

    #[inline]
    fn push_padding(&mut self, padding: &[u8]) {
        if !padding.is_empty() {
            self.batches.filling.push_head(padding);
        }
    }

    /// Appends an R2T.
    pub(super) fn push_r2t(&mut self, lun: [u8; 8], tag: u32, transfer: &Transfer) {
        let Transfer { transfer_tag, r2t_sn, offset, length } = *transfer;
        let now = self.numbers.now();
        let r2t = R2t::new(lun, tag, transfer_tag, r2t_sn, offset, length, now);
        self.push_header(&r2t.emit());
    }

    /// Appends the answer to a task of which nothing was sent before.
    #[inline]
    pub(super) fn push_response(&mut self, task: &Task, status: ScsiStatus, sense: Option<Sense>) {
        let r2ts = task.r2ts;
        self.answered(task.is_immediate);
        // Of what failed nothing has moved, but for what its host has no room for.
        let moves = status == ScsiStatus::GOOD || task.length > task.expected;
        let moved = if moves { u64::from(task.length) } else { 0 };
        let residual = Residual::between(task.expected, moved);
        let numbers = self.numbers.of_status();
        let Some(sense) = sense else {
            let response = ScsiResponse::new(task.tag, status.0, residual, r2ts, 0, numbers);
            return self.push_header(&response.emit());
        };
        let sense = sense.emit(task.descriptor_sense);
        let mut data = (sense.len() as u16).to_be_bytes().to_vec();
        data.extend_from_slice(&sense);
        let length = data.len() as u32;
        let response = ScsiResponse::new(task.tag, status.0, residual, r2ts, length, numbers);
        self.push(&response.emit(), &data);
    }

    /// Appends all data of a read, whose last PDU is the answer as well. Digests are computed over
    /// the bytes that leave: nobody changes the buffer from here on.
    #[inline]
    pub(super) fn push_read(&mut self, task: &Task, buffer: Buffer, memory: &dyn Memory) {
        self.answered(task.is_immediate);
        let residual = Residual::between(task.expected, u64::from(task.length));
        let length = task.length.min(task.expected);
        if length == 0 {
            let numbers = self.numbers.of_status();
            let response = ScsiResponse::new(task.tag, ScsiStatus::GOOD.0, residual, 0, 0, numbers);
            self.push_header(&response.emit());
            self.batches.filling.push_buffer(buffer);
            return;
        }
        let index = self.batches.filling.push_buffer(buffer);
        let (mut at, mut data_sn) = (0, 0);
        loop {
            let in_burst = self.burst_max - at % self.burst_max;
            let part = (length - at).min(self.segment_max).min(in_burst);
            let end = at + part;
            let is_last = end == length;
            let ends_burst = part == in_burst;
            let mut header =
                DataIn::new(task.tag, data_sn, at, part, ends_burst, self.numbers.now());
            if is_last {
                let stat_sn = self.numbers.of_status().stat_sn;
                header = header.with_status(ScsiStatus::GOOD.0, residual, stat_sn);
            }
            self.push_header(&header.emit());
            self.push_part(index, at, part, memory);
            if is_last {
                return;
            }
            (at, data_sn) = (end, data_sn + 1);
        }
    }

    /// Appends a part of a buffer that was pushed, with padding and digest.
    #[inline]
    fn push_part(&mut self, index: u32, at: u32, length: u32, memory: &dyn Memory) {
        self.batches.filling.push_data(index, at, length);
        let padding = &[0; 4][..padding(length) as usize];
        self.push_padding(padding);
        if self.digests.data {
            let buffer = &self.batches.filling.buffers[index as usize];
            let digest = memory.crc32c(buffer, at, length, Crc32c::new()).update(padding);
            self.batches.filling.push_head(&digest.value().to_le_bytes());
        }
    }

    /// Appends data that lie in no buffer, `bytes` of them, as the answer to a task.
    pub(super) fn push_reply(&mut self, task: &Task, bytes: &[u8]) {
        self.answered(task.is_immediate);
        let residual = Residual::between(task.expected, bytes.len() as u64);
        let mut rest = &bytes[..bytes.len().min(task.expected as usize)];
        if rest.is_empty() {
            let numbers = self.numbers.of_status();
            let response = ScsiResponse::new(task.tag, ScsiStatus::GOOD.0, residual, 0, 0, numbers);
            return self.push_header(&response.emit());
        }
        let (mut at, mut data_sn) = (0, 0);
        while !rest.is_empty() {
            let in_burst = self.burst_max - at % self.burst_max;
            let most = self.segment_max.min(in_burst) as usize;
            let (part, behind) = rest.split_at(rest.len().min(most));
            let length = part.len() as u32;
            let ends_burst = length == in_burst;
            let mut header =
                DataIn::new(task.tag, data_sn, at, length, ends_burst, self.numbers.now());
            if behind.is_empty() {
                let stat_sn = self.numbers.of_status().stat_sn;
                header = header.with_status(ScsiStatus::GOOD.0, residual, stat_sn);
            }
            self.push(&header.emit(), part);
            (at, data_sn, rest) = (at + length, data_sn + 1, behind);
        }
    }
}

/// What an R2T asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) transfer_tag: u32,
    pub(super) r2t_sn: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}
