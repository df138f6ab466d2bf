//! What one connection has received and not handled: the counterpart of an outbox.
//!
//! In: bytes that the kernel writes behind what is there. Out: the same as a slice, from which whole
//! PDUs are taken at the front; what is left of a torn one moves there. Units: bytes. Errors: none;
//! a range outside what was received is a bug of the caller and panics.

use crate::memory::Area;

/// Received bytes of one connection.
pub(crate) struct Inbox {
    area: Area,
    filled: usize,
}

impl Inbox {
    /// An empty inbox for `len` bytes.
    pub(crate) fn new(len: usize) -> std::io::Result<Self> {
        Ok(Self { area: Area::new(len, false)?, filled: 0 })
    }

    /// How much it holds at most.
    pub(crate) fn size(&self) -> usize {
        self.area.len()
    }

    /// How much it holds.
    #[inline]
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Where the next bytes go, and how many of at most `wanted` there is room for.
    pub(crate) fn room(&self, wanted: usize) -> (*mut u8, usize) {
        let room = wanted.min(self.area.len() - self.filled);
        let into = self.area.at(self.filled, room);
        (into.expect("the room of the inbox lies inside it"), room)
    }

    /// `got` bytes have been written there.
    #[inline]
    pub(crate) fn fill(&mut self, got: usize) {
        self.filled += got;
        debug_assert!(self.filled <= self.area.len(), "{} of {}", self.filled, self.area.len());
    }

    /// Takes bytes that were received elsewhere; false if there is no room for them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let fits = self.area.store(self.filled, bytes);
        self.filled += if fits { bytes.len() } else { 0 };
        fits
    }

    /// The bytes of a range.
    #[inline]
    pub(crate) fn bytes(&self, from: usize, to: usize) -> &[u8] {
        self.area.bytes(from, to)
    }

    /// All bytes from `from` on.
    #[inline]
    pub(crate) fn rest(&self, from: usize) -> &[u8] {
        self.area.bytes(from, self.filled)
    }

    /// Forgets the first `used` bytes.
    pub(crate) fn drop_front(&mut self, used: usize) {
        if used > 0 && used < self.filled {
            let end = self.filled;
            self.area.bytes_mut(0, end).copy_within(used.., 0);
        }
        self.filled -= used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(inbox: &mut Inbox, bytes: &[u8]) {
        let from = inbox.filled;
        inbox.area.bytes_mut(from, from + bytes.len()).copy_from_slice(bytes);
        inbox.fill(bytes.len());
    }

    #[test]
    fn what_is_left_of_a_torn_pdu_moves_to_the_front() {
        let mut inbox = Inbox::new(8).expect("memory");
        write(&mut inbox, &[1, 2, 3, 4, 5]);
        assert_eq!((inbox.room(2).1, inbox.room(100).1), (2, 3));
        inbox.drop_front(3);
        assert_eq!((inbox.filled(), inbox.rest(0)), (2, &[4, 5][..]));
        write(&mut inbox, &[6]);
        assert_eq!(inbox.bytes(1, 3), [5, 6]);
        inbox.drop_front(3);
        assert_eq!((inbox.filled(), inbox.room(100).1, inbox.size()), (0, 8, 8));
    }
}
