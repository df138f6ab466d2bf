//! The four rings of an AF_XDP socket, shared with the kernel: one writer and one reader each.
//!
//! ```text
//!   fill        we -> kernel    chunks to receive into        receive   kernel -> we    frames
//!   send        we -> kernel    frames                        done      kernel -> we    chunks that were sent from
//! ```
//!
//! A ring is a power of two of entries and two counters that only grow, modulo 2^32. The writer
//! publishes what it wrote by storing its counter (release), the reader sees it by loading that
//! counter (acquire), and gives entries back by storing its own. Errors: those of the system when a
//! ring is made.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::io::Errno;
use rustix::mm::MapFlags;
use rustix::net::xdp::XdpRingOffset;

use crate::memory::mapping::Mapping;

/// A ring of `T`, of which we are the writer or the reader.
pub(super) struct Ring<T> {
    mapping: Mapping,
    producer: u64,
    consumer: u64,
    flags: u64,
    entries: u64,
    mask: u32,
    /// Our own counter.
    own: u32,
    kind: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring that the kernel was told to make of so many entries, a power of two.
    pub(super) fn new(
        socket: &OwnedFd,
        page: u64,
        at: &XdpRingOffset,
        count: u32,
    ) -> Result<Ring<T>, Errno> {
        assert!(count.is_power_of_two(), "a ring of {count} entries");
        let length = at.desc as usize + count as usize * size_of::<T>();
        Ok(Ring {
            mapping: Mapping::shared(socket, length, page, MapFlags::POPULATE)?,
            producer: at.producer,
            consumer: at.consumer,
            // Kernels before 5.4 have none.
            flags: at.flags.ok_or(Errno::OPNOTSUPP)?,
            entries: at.desc,
            mask: count - 1,
            own: 0,
            kind: std::marker::PhantomData,
        })
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: an aligned word within the mapping (`at` checks it) that kernel and process
        // access as a whole.
        unsafe { AtomicU32::from_ptr(self.mapping.at(at, 4).cast()) }
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        let at = self.entries + u64::from(number & self.mask) * size_of::<T>() as u64;
        self.mapping.at(at, size_of::<T>() as u32).cast()
    }

    /// Whether the kernel wants to be called before it goes on.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// As the reader: entries that wait.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.word(self.producer).load(Acquire).wrapping_sub(self.own)
    }

    /// As the reader: the entry this many behind the next one, which must wait.
    #[inline]
    pub(super) fn peek(&self, behind: u32) -> T {
        // SAFETY: the entry lies in the ring and waits: the kernel has written it and leaves it
        // alone until it is taken.
        unsafe { self.entry(self.own.wrapping_add(behind)).read() }
    }

    /// As the reader: gives entries back to the kernel.
    #[inline]
    pub(super) fn take(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        self.word(self.consumer).store(self.own, Release);
    }

    /// As the writer: entries that can be written.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.mask + 1 - self.untaken()
    }

    /// As the writer: entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn untaken(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.consumer).load(Acquire))
    }

    /// As the writer: writes an entry, for which there must be room; the kernel sees it by
    /// [`publish`](Self::publish).
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        // SAFETY: the entry lies in the ring, and the kernel has taken what was there (the caller
        // asked for room).
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// As the writer: lets the kernel see what was written.
    #[inline]
    pub(super) fn publish(&self) {
        self.word(self.producer).store(self.own, Release);
    }
}
