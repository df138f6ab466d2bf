//! Frames on their way out: gathered during a turn, handed out as a batch, and the memory of batches used over and over.

use std::collections::VecDeque;

use block::Buffer;
use contract::{FrameBatch, LinkId};
use wire::aoe::FRAME_MIN;
use wire::ethernet::EtherType;

/// Frames that are gathered while the driver does not take them; more are dropped.
const FRAMES_MAX: usize = 8192;
/// Bytes of a batch's head that are kept for the next one.
const KEPT_MAX: usize = 256 << 10;
/// Zeros to be written.
const ZEROS: [u8; 4096] = [0; 4096];
/// Batches that may be out at once.
const OUT_MAX: u32 = 8;

/// Bytes of the shortest frame with this head: without its tag it is still long enough.
#[inline]
fn shortest(head: &[u8]) -> u32 {
    let is_tagged = head[12..14] == EtherType::VLAN.0.to_be_bytes();
    FRAME_MIN as u32 + if is_tagged { 4 } else { 0 }
}

/// The outbox of a machine.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    gathering: FrameBatch,
    ready: VecDeque<FrameBatch>,
    spare: Vec<FrameBatch>,
    out: u32,
}

impl Outbox {
    /// Whether no frame may be added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.gathering.frames.len() >= FRAMES_MAX
    }

    /// Appends a frame of these bytes, padded to the shortest that there is.
    #[inline]
    pub(crate) fn push(&mut self, link: LinkId, bytes: &[u8]) {
        self.gathering.push(link, bytes);
        self.gathering.pad(shortest(bytes));
    }

    /// Appends a frame of a head and more bytes.
    pub(crate) fn push_two(&mut self, link: LinkId, head: &[u8], body: &[u8]) {
        self.gathering.push(link, head);
        self.extend(body);
        self.gathering.pad(shortest(head));
    }

    /// Appends a frame of a head and zeros.
    pub(crate) fn push_zeros(&mut self, link: LinkId, head: &[u8], length: u32) {
        self.gathering.push(link, head);
        let (whole, rest) = (length as usize / ZEROS.len(), length as usize % ZEROS.len());
        for _ in 0..whole {
            self.extend(&ZEROS);
        }
        self.extend(&ZEROS[..rest]);
    }

    /// Appends bytes to the last frame's own.
    fn extend(&mut self, bytes: &[u8]) {
        let frame = self.gathering.frames.last_mut().expect("a frame was pushed");
        self.gathering.head.extend_from_slice(bytes);
        frame.head_length += bytes.len() as u32;
    }

    /// Appends a frame of a head and all of a buffer, which comes back with `mark`.
    #[inline]
    pub(crate) fn push_buffer(&mut self, link: LinkId, head: &[u8], buffer: Buffer, mark: u32) {
        let length = buffer.len();
        let number = self.gathering.push_buffer(buffer, mark);
        self.gathering.push_with_data(link, head, number, 0, length);
    }

    /// The batch that is being gathered.
    #[inline]
    pub(crate) fn gathering(&mut self) -> &mut FrameBatch {
        &mut self.gathering
    }

    /// The end of a turn: what was gathered is ready. Returns whether that was so: not if there was nothing, or too many batches are out.
    #[inline]
    pub(crate) fn hand_out(&mut self) -> bool {
        if self.gathering.is_empty() || self.out >= OUT_MAX {
            return false;
        }
        let next = self.spare.pop().unwrap_or_default();
        self.ready.push_back(core::mem::replace(&mut self.gathering, next));
        self.out += 1;
        true
    }

    /// Batches that have not come back.
    pub(crate) fn out(&self) -> u32 {
        self.out
    }

    /// A batch to send.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<FrameBatch> {
        self.ready.pop_front()
    }

    /// Keeps the memory of a batch that came back, whose buffers were taken out. What was gathered meanwhile is ready then.
    #[inline]
    pub(crate) fn take_back(&mut self, mut batch: FrameBatch) {
        batch.clear();
        self.out -= 1;
        // The memory of an uncommon burst is not kept.
        if batch.head.capacity() <= KEPT_MAX {
            self.spare.push(batch);
        }
    }
}
