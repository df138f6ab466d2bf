//! Receive buffers: a shard's few large ones, small ones for when those are lent, and the line before them.
//!
//! One receive should take everything there is, so the buffers are large and few. A connection holds one only while bytes
//! wait in it or a receive is posted. A peer that stalls in the middle of a PDU keeps its buffer, so the
//! large ones may all be lent; then others go on with small ones, which hold any capsule, and when these are
//! used up too, they wait in line.
//!
//! ```text
//!   0        start            end                  capacity
//!   |  done   |  not consumed  |  room for receives  |
//! ```

use std::collections::VecDeque;

use block::limits::{CAPSULE_DATA_MAX, DIRECT_RECEIVE_MIN, RECEIVE_BUFFER, RECEIVE_BUFFERS};
use block::table::Slot;

/// A small buffer holds a capsule, or a payload that is not received directly, with headers and digests.
pub(crate) const SMALL: u32 = 24 << 10;
/// Small buffers: as many bytes in all as the large ones.
const SMALL_COUNT: usize = RECEIVE_BUFFERS * (RECEIVE_BUFFER / SMALL) as usize;

const _: () = assert!(SMALL > CAPSULE_DATA_MAX + 4096 && SMALL > DIRECT_RECEIVE_MIN + 4096);

/// A receive buffer and what of it is filled.
pub(crate) struct Stage {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Stage {
    fn new(capacity: u32) -> Stage {
        Stage { bytes: vec![0; capacity as usize].into_boxed_slice(), start: 0, end: 0 }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn is_large(&self) -> bool {
        self.capacity() > SMALL
    }

    /// What was received and not consumed.
    #[inline]
    pub(crate) fn unconsumed(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How much was received and not consumed.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        (self.end - self.start) as u32
    }

    /// Counts bytes as consumed.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        let left = self.end - self.start;
        assert!(count <= left, "{count} of {left} shown bytes were consumed");
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Room for a receive: moves what is left to the front when it is in the way. Returns the bytes moved.
    #[inline]
    pub(crate) fn make_room(&mut self) -> usize {
        let left = self.end - self.start;
        // Little is moved at once, so that the whole buffer can be used; much only when the room gets short.
        let short = self.bytes.len() - self.end < self.bytes.len() / 2;
        if self.start == 0 || !(short || left <= 4096) {
            return 0;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.start = 0;
        self.end = left;
        left
    }

    /// Where the next receive goes, and how much it can take.
    #[inline]
    pub(crate) fn room(&mut self) -> (*mut u8, u32) {
        let room = &mut self.bytes[self.end..];
        (room.as_mut_ptr(), room.len() as u32)
    }

    /// Counts bytes as received.
    #[inline]
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len(), "more was received than there was room");
    }

    /// Takes over what another one holds.
    fn take_over(&mut self, other: &Stage) {
        let bytes = other.unconsumed();
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
    }
}

/// Lends buffers out.
pub(crate) struct Lender {
    large_free: Vec<Stage>,
    large_left: usize,
    small_free: Vec<Stage>,
    small_left: usize,
    lent: usize,
    line: VecDeque<Slot>,
}

impl Lender {
    /// Buffers are made when they are first lent.
    pub(crate) fn new(large: usize) -> Lender {
        Lender {
            large_free: Vec::new(),
            large_left: large.max(1),
            small_free: Vec::new(),
            small_left: SMALL_COUNT,
            lent: 0,
            line: VecDeque::new(),
        }
    }

    /// A buffer that holds at least `least` bytes.
    #[inline]
    pub(crate) fn lend(&mut self, least: u32) -> Option<Stage> {
        let stage =
            self.take_large().or_else(|| if least <= SMALL { self.take_small() } else { None })?;
        self.lent += 1;
        Some(stage)
    }

    /// Takes a buffer back; what it held is dropped.
    #[inline]
    pub(crate) fn give(&mut self, mut stage: Stage) {
        (stage.start, stage.end) = (0, 0);
        self.lent -= 1;
        let free = if stage.is_large() { &mut self.large_free } else { &mut self.small_free };
        free.push(stage);
    }

    /// Whether connections without unconsumed bytes should give their buffers up and poll instead.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        !self.line.is_empty()
            || (self.large_left + self.large_free.len() == 0
                && self.small_left + self.small_free.len() < SMALL_COUNT / 4)
    }

    /// Exchanges a large buffer with little in it for a small one when somebody waits. Returns the bytes moved.
    pub(crate) fn demote(&mut self, stage: &mut Stage, least: u32) -> usize {
        if self.line.is_empty() || !stage.is_large() || stage.len().max(least) > SMALL / 2 {
            return 0;
        }
        let Some(mut small) = self.take_small() else { return 0 };
        small.take_over(stage);
        self.lent += 1;
        let large = std::mem::replace(stage, small);
        self.give(large);
        stage.len() as usize
    }

    /// Exchanges a small buffer for a large one; `false` when all are lent.
    pub(crate) fn promote(&mut self, stage: &mut Stage) -> bool {
        let Some(mut large) = self.take_large() else { return false };
        large.take_over(stage);
        self.lent += 1;
        let small = std::mem::replace(stage, large);
        self.give(small);
        true
    }

    /// Puts a connection at the end of the line.
    pub(crate) fn wait(&mut self, slot: Slot) {
        self.line.push_back(slot);
    }

    /// Whose turn it is, if a buffer is free.
    pub(crate) fn next_in_line(&mut self) -> Option<Slot> {
        let any = self.large_left + self.large_free.len() > 0
            || self.small_left + self.small_free.len() > 0;
        if any { self.line.pop_front() } else { None }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Buffers that are lent.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Frees the memory of buffers that nobody has; returns whether there were any.
    pub(crate) fn shrink(&mut self) -> bool {
        let any = !self.large_free.is_empty() || !self.small_free.is_empty();
        self.large_left += self.large_free.len();
        self.small_left += self.small_free.len();
        self.large_free = Vec::new();
        self.small_free = Vec::new();
        any
    }

    fn take_large(&mut self) -> Option<Stage> {
        if let Some(stage) = self.large_free.pop() {
            return Some(stage);
        }
        self.large_left = self.large_left.checked_sub(1)?;
        Some(Stage::new(RECEIVE_BUFFER))
    }

    fn take_small(&mut self) -> Option<Stage> {
        if let Some(stage) = self.small_free.pop() {
            return Some(stage);
        }
        self.small_left = self.small_left.checked_sub(1)?;
        Some(Stage::new(SMALL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(stage: &mut Stage, bytes: &[u8]) {
        stage.make_room();
        let end = stage.end;
        stage.bytes[end..end + bytes.len()].copy_from_slice(bytes);
        stage.received(bytes.len());
    }

    fn slot(index: u32) -> Slot {
        Slot { index, generation: 0 }
    }

    #[test]
    fn what_was_not_consumed_stays_in_front() {
        let mut lender = Lender::new(1);
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, b"header, half of a pay");
        stage.consume(8);
        filled(&mut stage, b"load");
        assert_eq!(stage.unconsumed(), b"half of a payload");
        stage.consume(17);
        assert_eq!(stage.room().1, RECEIVE_BUFFER);
    }

    #[test]
    fn when_the_large_ones_are_lent_small_ones_serve() {
        let mut lender = Lender::new(1);
        let large = lender.lend(1).unwrap();
        assert_eq!(lender.lend(1).unwrap().capacity(), SMALL);
        assert!(lender.lend(SMALL + 1).is_none());
        lender.give(large);
        assert_eq!(lender.lend(SMALL + 1).unwrap().capacity(), RECEIVE_BUFFER);
    }

    #[test]
    fn the_line_is_served_in_order_as_buffers_come_back() {
        let mut lender = Lender { small_left: 0, ..Lender::new(1) };
        let large = lender.lend(1).unwrap();
        assert!(lender.lend(1).is_none());
        lender.wait(slot(1));
        lender.wait(slot(2));
        assert!(lender.is_scarce());
        assert_eq!(lender.next_in_line(), None);
        lender.give(large);
        assert_eq!(lender.next_in_line(), Some(slot(1)));
        assert_eq!(lender.next_in_line(), Some(slot(2)));
    }

    #[test]
    fn a_stalled_connection_gives_its_large_buffer_to_who_waits() {
        let mut lender = Lender::new(1);
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, b"half a header");
        assert_eq!(lender.demote(&mut stage, 24), 0, "nobody waits");
        lender.wait(slot(7));
        assert_eq!(lender.demote(&mut stage, 24), 13);
        assert_eq!((stage.capacity(), stage.unconsumed()), (SMALL, &b"half a header"[..]));
        assert!(lender.lend(SMALL + 1).is_some());
    }

    #[test]
    fn a_promotion_keeps_the_bytes() {
        let mut lender = Lender::new(1);
        let large = lender.lend(1).unwrap();
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, b"begun");
        assert!(!lender.promote(&mut stage));
        lender.give(large);
        assert!(lender.promote(&mut stage));
        assert_eq!((stage.capacity(), stage.unconsumed()), (RECEIVE_BUFFER, &b"begun"[..]));
        assert_eq!(lender.lent(), 1);
    }

    #[test]
    fn idle_memory_is_freed() {
        let mut lender = Lender::new(2);
        let stage = lender.lend(1).unwrap();
        assert!(!lender.shrink());
        lender.give(stage);
        assert!(lender.shrink());
        assert!(lender.lend(1).is_some() && lender.lend(1).is_some());
    }
}
