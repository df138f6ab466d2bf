//! Headers on their way in front of a frame: pushed from the inside out, so that each one knows how
//! much it has behind it, and read from the outside in.
//!
//! ```text
//!   unused | Ethernet | IP | UDP | label stack entry | control word |   the frame, elsewhere
//!          ^ first                                  ^ pushed first
//! ```
//! `N` is the room in bytes, on the stack. Errors: none; more headers than room are our own mistake
//! and panic, since which headers are pushed is configured and never up to a peer.

use core::fmt;
use core::ops::Deref;

/// The bytes of headers, at most `N`.
#[derive(Clone, Copy)]
pub struct Front<const N: usize> {
    bytes: [u8; N],
    first: usize,
}

impl<const N: usize> Front<N> {
    /// No header.
    #[inline]
    pub const fn new() -> Self {
        Self { bytes: [0; N], first: N }
    }

    /// No header again.
    #[inline]
    pub fn clear(&mut self) {
        self.first = N;
    }

    /// Puts a header in front of those that are there; panics when there is no room for it.
    #[inline]
    pub fn push(&mut self, header: &[u8]) {
        let size = header.len();
        assert!(size <= self.first, "a header of {size} bytes, and room for {}", self.first);
        self.first -= size;
        self.bytes[self.first..self.first + size].copy_from_slice(header);
    }
}

impl<const N: usize> Default for Front<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Deref for Front<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

impl<const N: usize> PartialEq for Front<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for Front<N> {}

impl<const N: usize> fmt::Debug for Front<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_last_stands_first() {
        let mut front = Front::<5>::new();
        assert!(front.is_empty());
        front.push(&[4, 5]);
        front.push(&[1, 2, 3]);
        assert_eq!(*front, [1, 2, 3, 4, 5]);
        assert_eq!(format!("{front:?}"), "[1, 2, 3, 4, 5]");
        front.clear();
        assert!(front.is_empty());
        front.push(&[6]);
        assert_eq!(*front, [6]);
    }

    #[test]
    fn fronts_are_compared_by_what_was_pushed() {
        let (mut a, mut b) = (Front::<4>::new(), Front::<4>::new());
        a.push(&[0]);
        assert_ne!(a, b);
        b.push(&[0]);
        assert_eq!(a, b);
    }

    #[test]
    #[should_panic(expected = "a header of 3 bytes, and room for 2")]
    fn a_header_without_room_is_our_mistake() {
        let mut front = Front::<4>::new();
        front.push(&[1, 2]);
        front.push(&[1, 2, 3]);
    }
}
