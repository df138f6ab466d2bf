//! The four rings of an AF_XDP socket and the memory that they name: shared with the kernel, one
//! writer and one reader each.
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

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::mm::{MapFlags, ProtFlags};

use crate::link::packet::set_option;

/// Memory that is mapped, and unmapped when it goes.
pub(super) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to its owner alone, and nothing in it depends on the thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Memory of our own, of zeros.
    pub(super) fn anonymous(length: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces no other.
        let base = unsafe {
            let nowhere = std::ptr::null_mut();
            rustix::mm::mmap_anonymous(nowhere, length, protection, MapFlags::PRIVATE)?
        };
        Ok(Mapping { base: not_null(base), length })
    }

    fn shared(socket: &OwnedFd, length: usize, offset: u64) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe {
            let nowhere = std::ptr::null_mut();
            rustix::mm::mmap(nowhere, length, protection, flags, socket.as_fd(), offset)?
        };
        Ok(Mapping { base: not_null(base), length })
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Where byte `at` lies, of `length` that must be in the mapping.
    #[inline]
    pub(super) fn at(&self, at: u64, length: u32) -> *mut u8 {
        let end = at.saturating_add(length.into());
        assert!(end <= self.length as u64, "bytes {at}+{length} of a mapping of {}", self.length);
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is the owner's own. It can only fail for an address that is not
        // mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

fn not_null(base: *mut std::ffi::c_void) -> NonNull<u8> {
    NonNull::new(base.cast()).expect("a mapping is not at address 0")
}

/// Where the parts of each ring lie, as the kernel says.
pub(super) fn offsets(fd: RawFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: of zeros it is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes, those of a local.
    let result = unsafe {
        let value = (&raw mut offsets).cast();
        libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, value, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(offsets) }
}

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
    /// Makes a ring of so many entries, a power of two.
    pub(super) fn new(
        socket: &OwnedFd,
        (option, page): (i32, u64),
        at: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Ring<T>> {
        assert!(count.is_power_of_two(), "a ring of {count} entries");
        set_option(socket.as_raw_fd(), libc::SOL_XDP, option, &count)?;
        let length = at.desc as usize + count as usize * size_of::<T>();
        Ok(Ring {
            mapping: Mapping::shared(socket, length, page)?,
            producer: at.producer,
            consumer: at.consumer,
            flags: at.flags,
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
