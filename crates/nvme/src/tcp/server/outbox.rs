//! What leaves: PDUs are appended to the [`Batches`] of the connection.

use core::ops::{Deref, DerefMut};

use block::checksum::{Crc32c, crc32c};
use block::{Buffer, Memory, PAGE_SIZE};
use contract::Batches;
use wire::nvme::Completion;
use wire::nvme_tcp::{CapsuleResponse, DataHeader, Digests, PduFlags, R2T};

use crate::controllers::ReplyData;

/// What a connection sends.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    batches: Batches,
    /// HPDA: data begin at a multiple of so many dwords, less one.
    host_alignment: u8,
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
        self.count_reply_data(data.bytes.len());
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
