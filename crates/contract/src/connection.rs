//! Connections: how bytes come in and go out.
//!
//! **Receiving.** The driver receives what there is into a large buffer of its own and shows it to
//! the machine ([`Machine::handle_received`](crate::Machine::handle_received)), which says how much
//! it consumed and what should come [`Next`]. What was not consumed is shown again, in front of
//! what came after. A large payload goes straight into its block buffer: the machine takes what has
//! already arrived and asks for the rest with [`Next::Direct`].
//!
//! **Sending.** A machine gives one [`SendBatch`] at a time per connection: headers in the batch's
//! own bytes, data where they lie. The driver sends it with as few system calls as it can, reads
//! data when a segment leaves and not before, and returns the batch when the last byte is with the
//! transport, or with the loss of the connection. While a batch is out the machine fills the next.

use core::fmt;
use std::net::SocketAddr;

use block::Buffer;

/// A connection of a shard, named by its driver: a slot and the slot's generation, so that what is
/// late finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The driver's slot; small numbers, used again.
    pub slot: u32,
    /// Which life of the slot.
    pub generation: u32,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.slot, self.generation)
    }
}

/// A listening socket of the process, named by whoever configured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// The two ends of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener that accepted it.
    pub listener: ListenerId,
    /// The address of the other side.
    pub peer: SocketAddr,
    /// The address on our side that the other one used.
    pub local: SocketAddr,
}

/// A machine's answer to received bytes.
#[derive(Debug)]
pub struct Receive {
    /// How many of the shown bytes it is done with.
    pub consumed: usize,
    /// What should come next.
    pub next: Next,
}

/// What a machine wants of a connection's stream next.
#[derive(Debug)]
pub enum Next {
    /// More of the stream. Show it once at least `at_least` bytes (1 or more, counting those that
    /// were not consumed) are there, and receive at most `at_most` beyond those at once, so that a
    /// payload that could be received directly is not swallowed.
    Stream {
        /// Bytes without which the machine cannot go on.
        at_least: u32,
        /// Bytes to receive at most; `u32::MAX` for no bound.
        at_most: u32,
    },
    /// The next bytes of the stream belong in this buffer. All shown bytes must have been consumed.
    Direct(Direct),
    /// The budget of the turn is used up: show the rest again in a later turn, after the other
    /// connections.
    Yield,
    /// Show nothing more until [`Effect::Resume`](crate::Effect::Resume): something has to come
    /// back from below first. Loss of the connection is still told.
    Pause,
    /// As `Stream` from 1 byte on, and nothing is under way: everything shown was consumed. The
    /// driver may take the receive buffer away.
    Idle,
}

/// A part of a buffer that is to be filled from the stream.
#[derive(Debug)]
pub struct Direct {
    /// Where the bytes go; has pages.
    pub buffer: Buffer,
    /// The first byte to fill.
    pub at: u32,
    /// Bytes to fill: more than 0.
    pub length: u32,
    /// So many bytes that follow them may be received with them, which then need no receive of their
    /// own: headers, or all there is (`u32::MAX`). They are shown when the buffer has come back, so
    /// whoever asks for some asks for no other direct receive in the same breath.
    pub beside: u32,
    /// The machine's own mark, given back unchanged.
    pub token: u64,
}

/// What one send carries: headers in `head`, data in `buffers`, in the order of `segments`.
///
/// Machines keep two of them per connection and use their memory over and over; `Default` is an
/// empty one.
#[derive(Debug, Default)]
pub struct SendBatch {
    /// The bytes of headers, small replies and digests.
    pub head: Vec<u8>,
    /// The payloads. They come back with the batch, to be given to their pool.
    pub buffers: Vec<Buffer>,
    /// What leaves, in order.
    pub segments: Vec<SendSegment>,
    /// Bytes of all segments.
    pub length: u64,
}

/// A run of bytes of a [`SendBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendSegment {
    /// `head[start..start + length]`.
    Head {
        /// Where in `head` it begins.
        start: u32,
        /// Its bytes.
        length: u32,
    },
    /// `length` bytes of `buffers[buffer]` from `at` on.
    Data {
        /// Which buffer.
        buffer: u32,
        /// Where in it the run begins.
        at: u32,
        /// Its bytes.
        length: u32,
    },
    /// So many zeros, which lie nowhere: what a peer asks for behind the end of something costs no
    /// memory.
    Zeros {
        /// Their number.
        length: u32,
    },
}

impl SendBatch {
    /// Bytes that it holds outside the pool, as far as they are in use.
    pub fn bytes_held(&self) -> usize {
        self.head.len() + size_of_val(&self.segments[..]) + size_of_val(&self.buffers[..])
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Appends bytes to be sent; neighbours are joined to one segment.
    #[inline]
    pub fn push_head(&mut self, bytes: &[u8]) {
        let (start, added) = head_run(self.head.len(), bytes.len());
        self.head.extend_from_slice(bytes);
        self.length += u64::from(added);
        if let Some(SendSegment::Head { length, .. }) = self.segments.last_mut() {
            *length += added;
            return;
        }
        self.segments.push(SendSegment::Head { start, length: added });
    }

    /// Takes a buffer in, to be sent in part or whole by [`push_data`](Self::push_data); returns
    /// its index.
    #[inline]
    pub fn push_buffer(&mut self, buffer: Buffer) -> u32 {
        self.buffers.push(buffer);
        (self.buffers.len() - 1) as u32
    }

    /// Appends `length` bytes of buffer `buffer` from `at` on.
    #[inline]
    pub fn push_data(&mut self, buffer: u32, at: u32, length: u32) {
        self.segments.push(SendSegment::Data { buffer, at, length });
        self.length += u64::from(length);
    }

    /// Appends `length` zeros.
    pub fn push_zeros(&mut self, length: u32) {
        if length > 0 {
            self.segments.push(SendSegment::Zeros { length });
            self.length += u64::from(length);
        }
    }

    /// Empties it and keeps its memory; the buffers must have been taken out before.
    #[inline]
    pub fn clear(&mut self) {
        assert!(self.buffers.is_empty(), "{} buffers would be lost", self.buffers.len());
        self.head.clear();
        self.segments.clear();
        self.length = 0;
    }
}

/// Where `added` more bytes of a head of `length` begin, and their number. A segment counts in 32
/// bits, and so no head is longer than that: a machine that lets it grow so far has bounded
/// nothing.
#[inline]
fn head_run(length: usize, added: usize) -> (u32, u32) {
    let end = length + added;
    assert!(u32::try_from(end).is_ok(), "the head of a batch would be of {end} bytes");
    (length as u32, added as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_headers_are_one_segment() {
        let mut batch = SendBatch::default();
        batch.push_head(&[1; 24]);
        batch.push_head(&[2; 24]);
        let buffer = batch.push_buffer(Buffer::reserved(512, 0));
        batch.push_data(buffer, 0, 512);
        batch.push_head(&[3; 4]);
        assert_eq!(batch.length, 564);
        assert_eq!(batch.segments.len(), 3);
        assert_eq!(batch.segments[0], SendSegment::Head { start: 0, length: 48 });
        assert_eq!(batch.segments[2], SendSegment::Head { start: 48, length: 4 });
    }

    #[test]
    fn zeros_are_sent_and_kept_nowhere() {
        let mut batch = SendBatch::default();
        batch.push_head(&[1; 24]);
        batch.push_zeros(1 << 20);
        batch.push_zeros(0);
        batch.push_head(&[2; 4]);
        assert_eq!((batch.length, batch.head.len()), ((1 << 20) + 28, 28));
        assert_eq!(batch.segments[1], SendSegment::Zeros { length: 1 << 20 });
        assert_eq!(batch.segments[2], SendSegment::Head { start: 24, length: 4 });
    }

    #[test]
    fn a_head_is_counted_in_32_bits() {
        assert_eq!(head_run(u32::MAX as usize - 24, 24), (u32::MAX - 24, 24));
    }

    #[test]
    #[should_panic(expected = "would be of 4294967296 bytes")]
    fn a_head_that_does_not_fit_them_is_a_bug() {
        head_run(u32::MAX as usize - 23, 24);
    }
}
