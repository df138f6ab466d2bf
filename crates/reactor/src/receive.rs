//! Receive buffers: a shard's few large ones, small ones for when those are lent, and the line before them.
//!
//! One receive should take everything there is, so the buffers are large and few. A connection holds one only while bytes
//! wait in it or a receive is posted. When the large ones are lent, small ones serve, which hold any command with its data; when these
//! are lent too, connections wait in line, and those that stall within a PDU have what they hold *stowed*: moved to
//! memory of its exact size, much less than the kernel holds for the same socket.
//!
//! ```text
//!   0        start            end                  capacity
//!   |  done   |  not consumed  |  room for receives  |
//! ```

use std::collections::VecDeque;

use block::limits::{RECEIVE_BUFFER, RECEIVE_BUFFER_SMALL};
use block::table::Slot;

/// A receive buffer and what of it is filled.
pub(crate) struct Stage {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Large,
    Small,
    /// The connection's own, exactly as large as what it holds.
    Own,
}

impl Stage {
    fn new(capacity: u32, size: Size) -> Stage {
        let bytes = vec![0; capacity as usize].into_boxed_slice();
        Stage { bytes, start: 0, end: 0, size }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Whether it is the connection's own and cannot be received into.
    #[inline]
    pub(crate) fn is_stowed(&self) -> bool {
        self.size == Size::Own
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
    /// Below so many free small buffers, connections should do without where they can.
    reserve: usize,
    lent: usize,
    line: VecDeque<Slot>,
}

impl Lender {
    /// So many large buffers, and as many bytes of small ones, made when they are first lent.
    pub(crate) fn new(large: usize) -> Lender {
        let large = large.max(1);
        let small = large * (RECEIVE_BUFFER / RECEIVE_BUFFER_SMALL) as usize;
        Lender {
            large_free: Vec::new(),
            large_left: large,
            small_free: Vec::new(),
            small_left: small,
            reserve: small / 4,
            lent: 0,
            line: VecDeque::new(),
        }
    }

    /// A buffer that holds at least `least` bytes.
    #[inline]
    pub(crate) fn lend(&mut self, least: u32) -> Option<Stage> {
        let stage = self
            .take_large()
            .or_else(|| if least <= RECEIVE_BUFFER_SMALL { self.take_small() } else { None })?;
        self.lent += 1;
        Some(stage)
    }

    /// Takes a buffer back; what it held is dropped.
    #[inline]
    pub(crate) fn give(&mut self, mut stage: Stage) {
        (stage.start, stage.end) = (0, 0);
        match stage.size {
            Size::Large => self.large_free.push(stage),
            Size::Small => self.small_free.push(stage),
            Size::Own => return,
        }
        self.lent -= 1;
    }

    /// Whether connections should do without a buffer where they can: poll before they receive, stow what waits.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        !self.line.is_empty()
            || (self.large_left + self.large_free.len() == 0
                && self.small_left + self.small_free.len() < self.reserve)
    }

    /// Moves the little that a buffer holds to memory of its own size. Returns the bytes moved; 0: it holds too much.
    pub(crate) fn stow(&mut self, stage: &mut Stage) -> u32 {
        if stage.is_stowed() || stage.len() > RECEIVE_BUFFER_SMALL {
            return 0;
        }
        let mut own = Stage::new(stage.len(), Size::Own);
        own.take_over(stage);
        let lent = std::mem::replace(stage, own);
        self.give(lent);
        stage.len()
    }

    /// Exchanges a buffer for one that holds at least `least` bytes; `false` when none is free.
    pub(crate) fn exchange(&mut self, stage: &mut Stage, least: u32) -> bool {
        let Some(mut larger) = self.lend(least) else { return false };
        larger.take_over(stage);
        let old = std::mem::replace(stage, larger);
        self.give(old);
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
        Some(Stage::new(RECEIVE_BUFFER, Size::Large))
    }

    fn take_small(&mut self) -> Option<Stage> {
        if let Some(stage) = self.small_free.pop() {
            return Some(stage);
        }
        self.small_left = self.small_left.checked_sub(1)?;
        Some(Stage::new(RECEIVE_BUFFER_SMALL, Size::Small))
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
        assert_eq!(lender.lend(1).unwrap().capacity(), RECEIVE_BUFFER_SMALL);
        assert!(lender.lend(RECEIVE_BUFFER_SMALL + 1).is_none());
        lender.give(large);
        assert_eq!(lender.lend(RECEIVE_BUFFER_SMALL + 1).unwrap().capacity(), RECEIVE_BUFFER);
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
    fn what_a_stalled_connection_holds_is_stowed() {
        let mut lender = Lender { small_left: 0, ..Lender::new(1) };
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, b"half a header");
        assert!(lender.lend(1).is_none());
        assert_eq!(lender.stow(&mut stage), 13);
        assert_eq!((stage.capacity(), stage.unconsumed()), (13, &b"half a header"[..]));
        assert_eq!(lender.lent(), 0);
        assert!(lender.exchange(&mut stage, 24));
        assert_eq!((stage.capacity(), stage.unconsumed()), (RECEIVE_BUFFER, &b"half a header"[..]));
        assert_eq!(lender.lent(), 1);
    }

    #[test]
    fn more_than_a_small_buffer_is_not_stowed() {
        let mut lender = Lender::new(1);
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, &vec![7; RECEIVE_BUFFER_SMALL as usize + 1]);
        assert_eq!(lender.stow(&mut stage), 0);
        assert!(!stage.is_stowed());
    }

    #[test]
    fn an_exchange_for_a_larger_one_keeps_the_bytes() {
        let mut lender = Lender::new(1);
        let large = lender.lend(1).unwrap();
        let mut stage = lender.lend(1).unwrap();
        filled(&mut stage, b"begun");
        assert!(!lender.exchange(&mut stage, RECEIVE_BUFFER_SMALL + 1));
        lender.give(large);
        assert!(lender.exchange(&mut stage, RECEIVE_BUFFER_SMALL + 1));
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
