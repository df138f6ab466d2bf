//! Frames on their way out: gathered during a turn, handed out as a batch, and the memory of
//! batches used over and over.

use std::collections::VecDeque;

use contract::FrameBatch;

use crate::limits::{BATCH_HEAD_KEPT_MAX, BATCHES_OUT_MAX, FRAMES_MAX};

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

    /// The batch that is being gathered.
    #[inline]
    pub(crate) fn gathering(&mut self) -> &mut FrameBatch {
        &mut self.gathering
    }

    /// The end of a turn: what was gathered is ready. Returns whether that was so: not if there was
    /// nothing, or too many batches are out.
    #[inline]
    pub(crate) fn hand_out(&mut self) -> bool {
        if self.gathering.is_empty() || self.out >= BATCHES_OUT_MAX {
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

    /// Keeps the memory of a batch that came back, whose buffers were taken out. What was gathered
    /// meanwhile is ready then.
    #[inline]
    pub(crate) fn take_back(&mut self, mut batch: FrameBatch) {
        batch.clear();
        self.out -= 1;
        // The memory of an uncommon burst is not kept.
        if batch.head.capacity() <= BATCH_HEAD_KEPT_MAX {
            self.spare.push(batch);
        }
    }
}
