//! The batches of a session: what leaves is gathered in one while another one is out. The memory of
//! both is used over and over.
//!
//! In: whole PDUs, which the protocol's own outbox appends to [`filling`](Batches::filling). Out: a
//! [`SendBatch`] at a time. Units: bytes. Not here: what a PDU is.

use block::limits::{BATCH_HEAD_KEPT_MAX, REPLY_DATA_MAX};
use block::{Buffer, Instant};

use crate::connection::SendBatch;

/// What a session gathers, has ready and has out.
#[derive(Debug, Default)]
pub struct Batches {
    /// What is being gathered.
    pub filling: SendBatch,
    /// Commands that what is being gathered answers: no host has seen these answers.
    pub answers: u32,
    /// The other batch while none is out, and none of its memory is in use.
    spare: SendBatch,
    /// The batch that the driver has not fetched.
    ready: Option<SendBatch>,
    /// Since when a batch is out without progress.
    out: Option<Instant>,
    /// Bytes of replies' data in what is being gathered, and in the batch that is out.
    reply_data: [u32; 2],
}

impl Batches {
    /// Whether there is something to send and nothing is out.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        self.out.is_none() && !self.filling.is_empty()
    }

    /// Whether there is nothing to send and nothing is out.
    pub fn is_quiet(&self) -> bool {
        self.out.is_none() && self.filling.is_empty()
    }

    /// Answers that are still here, all of them: of a batch that is out the host may have seen
    /// some.
    #[inline]
    pub fn answers(&self) -> u32 {
        self.answers
    }

    /// Bytes of what is being gathered, and of what the driver has not fetched.
    pub fn bytes_gathered(&self) -> usize {
        self.filling.bytes_held() + self.ready.as_ref().map_or(0, SendBatch::bytes_held)
    }

    /// Data of a reply, which lie in no buffer of the pool, were appended.
    pub fn count_reply_data(&mut self, length: usize) {
        self.reply_data[0] += length as u32;
    }

    /// Whether so much of replies' data is unsent that nobody should ask for more.
    pub fn is_crowded(&self) -> bool {
        self.reply_data[0] + self.reply_data[1] >= REPLY_DATA_MAX
    }

    /// Makes what was gathered the batch that goes out.
    #[inline]
    pub fn send(&mut self, now: Instant) {
        assert!(self.out.is_none(), "one batch goes out at a time");
        self.answers = 0;
        self.reply_data = [0, self.reply_data[0]];
        let next = core::mem::take(&mut self.spare);
        self.ready = Some(core::mem::replace(&mut self.filling, next));
        self.out = Some(now);
    }

    /// The batch for the driver.
    #[inline]
    pub fn take(&mut self) -> Option<SendBatch> {
        self.ready.take()
    }

    /// Since when the batch that is out made no progress.
    pub fn since(&self) -> Option<Instant> {
        self.out
    }

    /// The batch that is out made progress.
    pub fn progress(&mut self, now: Instant) {
        if self.out.is_some() {
            self.out = Some(now);
        }
    }

    /// The batch came back; its buffers were taken out.
    #[inline]
    pub fn came_back(&mut self, mut batch: SendBatch) {
        batch.clear();
        if batch.head.capacity() > BATCH_HEAD_KEPT_MAX {
            batch.head = Vec::new();
        }
        self.out = None;
        self.reply_data[1] = 0;
        self.spare = batch;
    }

    /// What will not be sent any more: its buffers are to be given back.
    pub fn abandon(&mut self) -> Vec<Buffer> {
        let mut buffers = core::mem::take(&mut self.filling).buffers;
        if let Some(ready) = self.ready.take() {
            buffers.extend(ready.buffers);
            self.out = None;
        }
        buffers
    }

    /// Gives the memory of idle batches back.
    pub fn shrink(&mut self) {
        if self.filling.is_empty() {
            self.filling = SendBatch::default();
        }
        self.spare = SendBatch::default();
    }
}
