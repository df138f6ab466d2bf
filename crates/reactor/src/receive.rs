//! Receive buffers: a shard's few large ones, small ones for when those are taken, and the line
//! before them.
//!
//! One receive should take everything there is, so the buffers are large and few. A connection
//! holds one only while bytes wait in it or a receive is posted. When the large ones are taken,
//! small ones serve, which hold any command with its data; when these are taken too, connections
//! wait in line, and those that stall within a PDU have what they hold *stowed*: moved to memory of
//! its exact size, much less than the kernel holds for the same socket.
//!
//! ```text
//!   0        start            end                  capacity
//!   |  done   |  not consumed  |  room for receives  |
//! ```

use std::collections::VecDeque;

use block::limits::{RECEIVE_BUFFER, RECEIVE_BUFFER_SMALL};
use block::table::Slot;

/// A receive buffer and what of it is filled.
pub(crate) struct ReceiveBuffer {
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

impl ReceiveBuffer {
    fn new(capacity: u32, size: Size) -> ReceiveBuffer {
        let bytes = vec![0; capacity as usize].into_boxed_slice();
        ReceiveBuffer { bytes, start: 0, end: 0, size }
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

    /// Room for a receive: moves what is left to the front when it is in the way. Returns the bytes
    /// moved.
    #[inline]
    pub(crate) fn make_room(&mut self) -> usize {
        let left = self.end - self.start;
        // Little is moved at once, so that the whole buffer can be used; much only when the room
        // gets short.
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

    /// Holds these bytes, and nothing else.
    fn take_over(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
    }
}

/// Buffers of one size.
struct Shelf {
    size: Size,
    capacity: u32,
    /// Those that nobody has.
    free: Vec<ReceiveBuffer>,
    /// How many may still be made.
    left: usize,
}

impl Shelf {
    fn new(size: Size, capacity: u32, count: usize) -> Shelf {
        Shelf { size, capacity, free: Vec::new(), left: count }
    }

    #[inline]
    fn take(&mut self) -> Option<ReceiveBuffer> {
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        self.left = self.left.checked_sub(1)?;
        Some(ReceiveBuffer::new(self.capacity, self.size))
    }

    /// How many can be taken.
    #[inline]
    fn len(&self) -> usize {
        self.left + self.free.len()
    }

    /// Frees the memory of those that nobody has; returns whether there were any.
    fn shrink(&mut self) -> bool {
        let free = std::mem::take(&mut self.free);
        self.left += free.len();
        !free.is_empty()
    }
}

/// Lends buffers out.
pub(crate) struct ReceivePool {
    large: Shelf,
    small: Shelf,
    /// Below so many free small buffers, connections should do without where they can.
    reserve: usize,
    taken: usize,
    line: VecDeque<Slot>,
}

impl ReceivePool {
    /// So many large buffers, and as many bytes of small ones, made when they are first taken.
    pub(crate) fn new(large: usize) -> ReceivePool {
        let large = large.max(1);
        let small = large * (RECEIVE_BUFFER / RECEIVE_BUFFER_SMALL) as usize;
        ReceivePool {
            large: Shelf::new(Size::Large, RECEIVE_BUFFER, large),
            small: Shelf::new(Size::Small, RECEIVE_BUFFER_SMALL, small),
            reserve: small / 4,
            taken: 0,
            line: VecDeque::new(),
        }
    }

    /// A buffer that holds at least `least` bytes.
    #[inline]
    pub(crate) fn take(&mut self, least: u32) -> Option<ReceiveBuffer> {
        let mut buffer = self.large.take();
        if buffer.is_none() && least <= RECEIVE_BUFFER_SMALL {
            buffer = self.small.take();
        }
        self.taken += usize::from(buffer.is_some());
        buffer
    }

    /// Takes a buffer back; what it held is dropped.
    #[inline]
    pub(crate) fn give(&mut self, mut buffer: ReceiveBuffer) {
        (buffer.start, buffer.end) = (0, 0);
        match buffer.size {
            Size::Large => self.large.free.push(buffer),
            Size::Small => self.small.free.push(buffer),
            Size::Own => return,
        }
        self.taken -= 1;
    }

    /// Whether connections should do without a buffer where they can: poll before they receive,
    /// stow what waits.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        !self.line.is_empty() || (self.large.len() == 0 && self.small.len() < self.reserve)
    }

    /// A buffer that holds these bytes, with room for more, or of their size if none is free.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> ReceiveBuffer {
        let length = bytes.len() as u32;
        let free = self.take(length + 1);
        let mut buffer = free.unwrap_or_else(|| ReceiveBuffer::new(length, Size::Own));
        buffer.take_over(bytes);
        buffer
    }

    /// Moves the little that a buffer holds to memory of its own size. Returns the bytes moved; 0:
    /// it holds too much.
    pub(crate) fn stow(&mut self, buffer: &mut ReceiveBuffer) -> u32 {
        if buffer.is_stowed() || buffer.len() > RECEIVE_BUFFER_SMALL {
            return 0;
        }
        let mut own = ReceiveBuffer::new(buffer.len(), Size::Own);
        own.take_over(buffer.unconsumed());
        let shared = std::mem::replace(buffer, own);
        self.give(shared);
        buffer.len()
    }

    /// Exchanges a buffer for one that holds at least `least` bytes; `false` when none is free.
    pub(crate) fn exchange(&mut self, buffer: &mut ReceiveBuffer, least: u32) -> bool {
        let Some(mut larger) = self.take(least) else { return false };
        larger.take_over(buffer.unconsumed());
        let old = std::mem::replace(buffer, larger);
        self.give(old);
        true
    }

    /// Puts a connection at the end of the line.
    pub(crate) fn wait(&mut self, slot: Slot) {
        self.line.push_back(slot);
    }

    /// Whose turn it is, if a buffer is free.
    pub(crate) fn next_in_line(&mut self) -> Option<Slot> {
        let any = self.large.len() + self.small.len() > 0;
        if any { self.line.pop_front() } else { None }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Buffers that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Frees the memory of buffers that nobody has; returns whether there were any.
    pub(crate) fn shrink(&mut self) -> bool {
        self.large.shrink() | self.small.shrink()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffer: &mut ReceiveBuffer, bytes: &[u8]) {
        buffer.make_room();
        let end = buffer.end;
        buffer.bytes[end..end + bytes.len()].copy_from_slice(bytes);
        buffer.received(bytes.len());
    }

    /// No small ones.
    fn one_large() -> ReceivePool {
        ReceivePool { small: Shelf::new(Size::Small, 0, 0), ..ReceivePool::new(1) }
    }

    fn slot(index: u32) -> Slot {
        Slot { index, generation: 0 }
    }

    #[test]
    fn what_was_not_consumed_stays_in_front() {
        let mut pool = ReceivePool::new(1);
        let mut buffer = pool.take(1).unwrap();
        filled(&mut buffer, b"header, half of a pay");
        buffer.consume(8);
        filled(&mut buffer, b"load");
        assert_eq!(buffer.unconsumed(), b"half of a payload");
        buffer.consume(17);
        assert_eq!(buffer.room().1, RECEIVE_BUFFER);
    }

    #[test]
    fn when_the_large_ones_are_lent_small_ones_serve() {
        let mut pool = ReceivePool::new(1);
        let large = pool.take(1).unwrap();
        assert_eq!(pool.take(1).unwrap().capacity(), RECEIVE_BUFFER_SMALL);
        assert!(pool.take(RECEIVE_BUFFER_SMALL + 1).is_none());
        pool.give(large);
        assert_eq!(pool.take(RECEIVE_BUFFER_SMALL + 1).unwrap().capacity(), RECEIVE_BUFFER);
    }

    #[test]
    fn the_line_is_served_in_order_as_buffers_come_back() {
        let mut pool = one_large();
        let large = pool.take(1).unwrap();
        assert!(pool.take(1).is_none());
        pool.wait(slot(1));
        pool.wait(slot(2));
        assert!(pool.is_scarce());
        assert_eq!(pool.next_in_line(), None);
        pool.give(large);
        assert_eq!(pool.next_in_line(), Some(slot(1)));
        assert_eq!(pool.next_in_line(), Some(slot(2)));
    }

    #[test]
    fn what_a_stalled_connection_holds_is_stowed() {
        let mut pool = one_large();
        let mut buffer = pool.take(1).unwrap();
        filled(&mut buffer, b"half a header");
        assert!(pool.take(1).is_none());
        assert_eq!(pool.stow(&mut buffer), 13);
        assert_eq!((buffer.capacity(), buffer.unconsumed()), (13, &b"half a header"[..]));
        assert_eq!(pool.taken(), 0);
        assert!(pool.exchange(&mut buffer, 24));
        assert_eq!(
            (buffer.capacity(), buffer.unconsumed()),
            (RECEIVE_BUFFER, &b"half a header"[..])
        );
        assert_eq!(pool.taken(), 1);
    }

    #[test]
    fn bytes_that_were_received_elsewhere_are_kept_with_room_for_more_or_at_their_size() {
        let mut pool = one_large();
        let buffer = pool.keep(b"half a header");
        assert_eq!(
            (buffer.capacity(), buffer.unconsumed()),
            (RECEIVE_BUFFER, &b"half a header"[..])
        );
        let own = pool.keep(b"and another");
        assert_eq!((own.capacity(), own.is_stowed(), pool.taken()), (11, true, 1));
        pool.give(own);
        assert_eq!(pool.taken(), 1);
    }

    #[test]
    fn more_than_a_small_buffer_is_not_stowed() {
        let mut pool = ReceivePool::new(1);
        let mut buffer = pool.take(1).unwrap();
        filled(&mut buffer, &vec![7; RECEIVE_BUFFER_SMALL as usize + 1]);
        assert_eq!(pool.stow(&mut buffer), 0);
        assert!(!buffer.is_stowed());
    }

    #[test]
    fn an_exchange_for_a_larger_one_keeps_the_bytes() {
        let mut pool = ReceivePool::new(1);
        let large = pool.take(1).unwrap();
        let mut buffer = pool.take(1).unwrap();
        filled(&mut buffer, b"begun");
        assert!(!pool.exchange(&mut buffer, RECEIVE_BUFFER_SMALL + 1));
        pool.give(large);
        assert!(pool.exchange(&mut buffer, RECEIVE_BUFFER_SMALL + 1));
        assert_eq!((buffer.capacity(), buffer.unconsumed()), (RECEIVE_BUFFER, &b"begun"[..]));
        assert_eq!(pool.taken(), 1);
    }

    #[test]
    fn idle_memory_is_freed() {
        let mut pool = ReceivePool::new(2);
        let buffer = pool.take(1).unwrap();
        assert!(!pool.shrink());
        pool.give(buffer);
        assert!(pool.shrink());
        assert!(pool.take(1).is_some() && pool.take(1).is_some());
    }
}
