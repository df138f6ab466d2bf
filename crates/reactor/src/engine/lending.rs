//! What a ring lends to receives of quiet connections: a few buffers of which the kernel takes one
//! only when something has come (a ring-mapped group of provided buffers).
//!
//! ```text
//!   0                    page
//!   |  entries, 16 B each  |  buffer 0  |  buffer 1  |  ...
//!      ^ the kernel takes from the head, we put behind the tail
//! ```
//!
//! A buffer is the kernel's while its number is in the group, and ours from the end that names it
//! until [`Lending::take_back`]. When the group is empty a receive ends with `-ENOBUFS` and has
//! taken nothing from its socket. Memory is committed as buffers are first used. Units: bytes.
//! Errors: those of registering the group, which kernels before 5.19 do not know.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};
use rustix::mm::{MapFlags, ProtFlags};

use super::{LENT_MAX, Lent};
use crate::memory::mapping::Mapping;

/// The group's number in its ring, which has no other.
pub(super) const GROUP: u16 = 0;
/// How many buffers a ring has: what comes from more quiet connections in one turn is received as
/// on a ring that lends nothing. A power of two, as the kernel wants it.
pub(super) const COUNT: u16 = 64;
/// The entries have a page of their own, where the kernel wants them.
const PAGE: usize = 4096;

/// A group of buffers, and the memory that it is in. It must outlive the ring it is registered with.
pub(super) struct Lending {
    memory: Mapping,
    count: u16,
    tail: u16,
}

impl Lending {
    /// Registers `count` buffers with a ring.
    pub(super) fn register(ring: &IoUring, count: u16) -> io::Result<Lending> {
        assert!(count.is_power_of_two() && usize::from(count) * size_of::<BufRingEntry>() <= PAGE);
        let length = PAGE + usize::from(count) * LENT_MAX as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let memory = Mapping::anonymous(length, protection, MapFlags::empty())?;
        let entries = memory.base() as u64;
        // SAFETY: the entries lie in the first page of the mapping, which the engine keeps until its
        // ring is gone.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries, count, GROUP, 0)? };
        let mut lending = Lending { memory, count, tail: 0 };
        (0..count).for_each(|number| lending.take_back(Lent(number)));
        Ok(lending)
    }

    /// The first bytes of a buffer that has been filled and not been taken back.
    #[inline]
    pub(super) fn bytes(&self, lent: Lent, length: u32) -> &[u8] {
        assert!(length <= LENT_MAX, "{length} bytes of a buffer of {LENT_MAX}");
        let at = self.memory.at(self.place(lent), length);
        // SAFETY: within the mapping, which is of zeros at first, so all of it is initialised; the
        // kernel has given the buffer to us, and gets it back only by a call that borrows the whole.
        unsafe { std::slice::from_raw_parts(at, length as usize) }
    }

    /// Gives a buffer to the kernel again.
    #[inline]
    pub(super) fn take_back(&mut self, lent: Lent) {
        let place = self.memory.at(self.place(lent), LENT_MAX);
        let entries = self.memory.base().cast::<BufRingEntry>();
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: the index is within the page of entries. The kernel only reads entries, and this
        // one not before the tail has moved behind it. The tail lies in the first entry, aligned,
        // and is written here alone.
        let tail = unsafe {
            let entry = &mut *entries.add(index);
            entry.set_addr(place as u64);
            entry.set_len(LENT_MAX);
            entry.set_bid(lent.0);
            AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut())
        };
        self.tail = self.tail.wrapping_add(1);
        tail.store(self.tail, Ordering::Release);
    }

    #[inline]
    fn place(&self, lent: Lent) -> u64 {
        assert!(lent.0 < self.count, "buffer {} of {}", lent.0, self.count);
        PAGE as u64 + u64::from(lent.0) * u64::from(LENT_MAX)
    }
}
