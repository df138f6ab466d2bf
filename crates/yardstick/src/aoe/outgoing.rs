//! Frames of AoE on their way out: heads written in place, data named by address, a batch to a call.
//!
//! In: heads and data. Out: nothing but the frames. Errors: those of `sendmmsg`. Units: bytes.

use std::io;
use std::os::fd::OwnedFd;

use super::wire::{FRAME_MIN, Head};
use crate::packet::{BATCH, send_all};

/// Frames that leave with the next call.
pub(super) struct Outgoing {
    heads: Box<[Head; BATCH]>,
    vectors: Box<[[libc::iovec; 2]; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    count: usize,
    /// Frames that the interface or the socket did not take.
    pub(super) refused: u64,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        let mut heads = Box::new([[0; FRAME_MIN]; BATCH]);
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = Box::new([[nothing; 2]; BATCH]);
        // SAFETY: mmsghdr is plain data for which all zeroes means: no name, no vectors, no
        // control.
        let mut messages: Box<[libc::mmsghdr; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
        for at in 0..BATCH {
            // The boxes never move, so the addresses are good for the whole life of this value.
            vectors[at][0].iov_base = heads[at].as_mut_ptr().cast();
            messages[at].msg_hdr.msg_iov = vectors[at].as_mut_ptr();
        }
        Self { heads, vectors, messages, count: 0, refused: 0 }
    }

    /// Whether the next frame has to wait for [`Self::send`].
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// The head of the next frame, to be filled in before it is pushed.
    #[inline]
    pub(super) fn head(&mut self) -> &mut Head {
        &mut self.heads[self.count]
    }

    /// The frame is its head alone, with its padding.
    #[inline]
    pub(super) fn push(&mut self) {
        self.vectors[self.count][0].iov_len = FRAME_MIN;
        self.messages[self.count].msg_hdr.msg_iovlen = 1;
        self.count += 1;
    }

    /// The frame is the first `head` bytes of its head and `len` bytes at `data`.
    ///
    /// # Safety
    /// The data stay mapped until the batch is sent.
    #[inline]
    pub(super) unsafe fn push_with(&mut self, head: usize, data: *mut u8, len: usize) {
        debug_assert!(head <= FRAME_MIN && head + len >= FRAME_MIN, "no runts");
        let vectors = &mut self.vectors[self.count];
        vectors[0].iov_len = head;
        vectors[1] = libc::iovec { iov_base: data.cast(), iov_len: len };
        self.messages[self.count].msg_hdr.msg_iovlen = 2;
        self.count += 1;
    }

    /// Sends everything. What is refused for want of room is dropped and counted: the other side
    /// asks again.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let count = std::mem::take(&mut self.count);
        // SAFETY: the messages name heads of ours and data that `push_with`'s caller vouched for;
        // their vectors lie in boxes that live as long as `self`.
        self.refused += unsafe { send_all(socket, &mut self.messages[..count]) }?;
        Ok(())
    }
}
