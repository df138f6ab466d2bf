//! What leaves: PDUs are gathered in one batch while another one is out. The memory of both is used
//! over and over.

use block::checksum::{Crc32c, crc32c};
use block::{Buffer, Instant, Memory, PAGE_SIZE};
use contract::SendBatch;
use wire::nvme::Completion;
use wire::nvme_tcp::{CapsuleResponse, DataHeader, Digests, PduFlags, R2T};

use crate::controllers::ReplyData;
use crate::limits::{BATCH_HEAD_KEPT_MAX, REPLY_DATA_MAX};

/// The batches of a connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// What is being gathered.
    filling: SendBatch,
    /// The other batch while none is out, and none of its memory is in use.
    spare: SendBatch,
    /// The batch that the driver has not fetched.
    ready: Option<SendBatch>,
    /// Since when a batch is out without progress.
    out: Option<Instant>,
    /// Commands that what is being gathered answers: no host has seen these answers.
    answers: u32,
    /// Bytes of replies' data in what is being gathered, and in the batch that is out.
    reply_data: [u32; 2],
    /// HPDA: data begin at a multiple of so many dwords, less one.
    host_alignment: u8,
}

impl Outbox {
    /// Whether there is something to send and nothing is out.
    #[inline]
    pub(super) fn has_to_send(&self) -> bool {
        self.out.is_none() && !self.filling.is_empty()
    }

    /// Whether there is nothing to send and nothing is out.
    pub(super) fn is_quiet(&self) -> bool {
        self.out.is_none() && self.filling.is_empty()
    }

    /// Answers that are still here, all of them: of a batch that is out the host may have seen
    /// some.
    #[inline]
    pub(super) fn answers(&self) -> u32 {
        self.answers
    }

    /// Bytes of what is being gathered, and of what the driver has not fetched.
    pub(super) fn bytes_gathered(&self) -> usize {
        self.filling.bytes_held() + self.ready.as_ref().map_or(0, SendBatch::bytes_held)
    }

    /// Whether so much of replies' data is unsent that nobody should ask for more.
    pub(super) fn is_crowded(&self) -> bool {
        self.reply_data[0] + self.reply_data[1] >= REPLY_DATA_MAX
    }

    /// Makes what was gathered the batch that goes out.
    #[inline]
    pub(super) fn send(&mut self, now: Instant) {
        assert!(self.out.is_none(), "one batch goes out at a time");
        self.answers = 0;
        self.reply_data = [0, self.reply_data[0]];
        let next = core::mem::take(&mut self.spare);
        self.ready = Some(core::mem::replace(&mut self.filling, next));
        self.out = Some(now);
    }

    /// The batch for the driver.
    #[inline]
    pub(super) fn take(&mut self) -> Option<SendBatch> {
        self.ready.take()
    }

    /// Since when the batch that is out made no progress.
    pub(super) fn since(&self) -> Option<Instant> {
        self.out
    }

    /// The batch that is out made progress.
    pub(super) fn progress(&mut self, now: Instant) {
        if self.out.is_some() {
            self.out = Some(now);
        }
    }

    /// The batch came back; its buffers were taken out.
    #[inline]
    pub(super) fn came_back(&mut self, mut batch: SendBatch) {
        batch.clear();
        if batch.head.capacity() > BATCH_HEAD_KEPT_MAX {
            batch.head = Vec::new();
        }
        self.out = None;
        self.reply_data[1] = 0;
        self.spare = batch;
    }

    /// What will not be sent any more: its buffers are to be given back.
    pub(super) fn abandon(&mut self) -> Vec<Buffer> {
        let mut buffers = core::mem::take(&mut self.filling).buffers;
        if let Some(ready) = self.ready.take() {
            buffers.extend(ready.buffers);
            self.out = None;
        }
        buffers
    }

    /// Gives the memory of idle batches back.
    pub(super) fn shrink(&mut self) {
        if self.filling.is_empty() {
            self.filling = SendBatch::default();
        }
        self.spare = SendBatch::default();
    }

    /// Appends bytes that carry their own digests.
    pub(super) fn push_raw(&mut self, bytes: &[u8]) {
        self.filling.push_head(bytes);
    }

    #[inline]
    fn push_header(&mut self, header: &[u8; 24], digests: Digests) {
        if !digests.header {
            return self.filling.push_head(header);
        }
        let mut bytes = [0; 28];
        bytes[..24].copy_from_slice(header);
        bytes[24..].copy_from_slice(&crc32c(header).to_le_bytes());
        self.filling.push_head(&bytes);
    }

    /// Data are to begin at a multiple of 4 * (`alignment` + 1) bytes of their PDU, as ICReq asked
    /// (HPDA, up to 31).
    pub(super) fn align_data(&mut self, alignment: u8) {
        self.host_alignment = alignment;
    }

    #[inline]
    fn push_data_header(&mut self, header: DataHeader, digests: Digests) {
        if self.host_alignment != 0 {
            return self.push_padded(header, digests);
        }
        self.push_header(&header.emit(), digests);
    }

    #[cold]
    fn push_padded(&mut self, mut header: DataHeader, digests: Digests) {
        let alignment = 4 * (self.host_alignment + 1);
        let aligned = header.common.data_offset.next_multiple_of(alignment);
        let padding = aligned - header.common.data_offset;
        header.common.data_offset = aligned;
        header.common.length += u32::from(padding);
        self.push_header(&header.emit(), digests);
        self.filling.push_head(&[0; 128][..usize::from(padding)]);
    }

    /// Appends a response capsule.
    #[inline]
    pub(super) fn push_response(&mut self, entry: Completion, digests: Digests) {
        self.answers += 1;
        self.push_header(&CapsuleResponse::new(entry, digests).emit(), digests);
    }

    /// Appends an R2T.
    pub(super) fn push_r2t(&mut self, command_id: u16, tag: u16, length: u32, digests: Digests) {
        self.push_header(&R2T::new(command_id, tag, 0, length, digests).emit(), digests);
    }

    /// Appends all data of a read as one C2HData PDU, which with `success` is the answer as well.
    /// The digest is computed over the bytes that leave: nobody changes the buffer from here on.
    #[inline]
    pub(super) fn push_data(
        &mut self,
        command_id: u16,
        buffer: Buffer,
        success: bool,
        digests: Digests,
        memory: &dyn Memory,
    ) {
        self.answers += u32::from(success);
        let length = buffer.len();
        let header = DataHeader::c2h(command_id, 0, length, flags(success), digests);
        self.push_data_header(header, digests);
        let digest = digests.data.then(|| memory.crc32c(&buffer, 0, length, Crc32c::new()).value());
        let index = self.filling.push_buffer(buffer);
        self.filling.push_data(index, 0, length);
        if let Some(digest) = digest {
            self.filling.push_head(&digest.to_le_bytes());
        }
    }

    /// Appends the data of a reply as one C2HData PDU.
    pub(super) fn push_reply_data(&mut self, command_id: u16, data: &ReplyData, digests: Digests) {
        let header = DataHeader::c2h(command_id, 0, data.len(), flags(false), digests);
        self.push_data_header(header, digests);
        self.filling.push_head(&data.bytes);
        self.filling.push_zeros(data.zeros);
        self.reply_data[0] += data.bytes.len() as u32;
        if digests.data {
            let mut digest = Crc32c::new().update(&data.bytes);
            let mut left = data.zeros as usize;
            while left > 0 {
                let step = left.min(PAGE_SIZE as usize);
                digest = digest.update(&[0; PAGE_SIZE as usize][..step]);
                left -= step;
            }
            self.filling.push_head(&digest.value().to_le_bytes());
        }
    }
}

#[inline]
fn flags(success: bool) -> PduFlags {
    PduFlags::LAST.with(PduFlags::SUCCESS, success)
}
