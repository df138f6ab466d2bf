//! The four rings of an AF_XDP socket: memory of the kernel's, one side of each ours.
//!
//! A ring is a producer's counter, a consumer's counter and a power of two of entries. Whoever produces
//! writes entries and then its counter; counters run on and wrap at 2^32. Both ends keep a copy of the
//! other's counter and look again only when it does not suffice.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::aoe::packet::{map_ring, option};

/// All rings of a socket.
pub(super) struct Rings {
    /// Chunks for the kernel to fill.
    pub(super) fill: Producer<u64>,
    /// Chunks that the kernel has sent.
    pub(super) completion: Consumer<u64>,
    /// Frames received.
    pub(super) receive: Consumer<libc::xdp_desc>,
    /// Frames to send.
    pub(super) transmit: Producer<libc::xdp_desc>,
}

impl Rings {
    /// Makes and maps the rings, of `entries` each (a power of two).
    pub(super) fn new(socket: &OwnedFd, entries: u32) -> Result<Self> {
        for name in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            option(socket, libc::SOL_XDP, name, &entries).context("a ring is refused")?;
        }
        let offsets = offsets(socket)?;
        let pages = |offset: u64| offset as libc::off_t;
        Ok(Self {
            fill: Producer(Shared::map(
                socket,
                &offsets.fr,
                entries,
                pages(libc::XDP_UMEM_PGOFF_FILL_RING),
            )?),
            completion: Consumer(Shared::map(
                socket,
                &offsets.cr,
                entries,
                pages(libc::XDP_UMEM_PGOFF_COMPLETION_RING),
            )?),
            receive: Consumer(Shared::map(socket, &offsets.rx, entries, libc::XDP_PGOFF_RX_RING)?),
            transmit: Producer(Shared::map(socket, &offsets.tx, entries, libc::XDP_PGOFF_TX_RING)?),
        })
    }
}

fn offsets(socket: &OwnedFd) -> Result<libc::xdp_mmap_offsets> {
    // SAFETY: xdp_mmap_offsets is plain data for which all zeroes is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `offsets`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &mut len,
        )
    };
    ensure!(result == 0, "XDP_MMAP_OFFSETS: {}", io::Error::last_os_error());
    Ok(offsets)
}

/// A mapped ring.
struct Shared<T> {
    base: NonNull<u8>,
    len: usize,
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
    /// Our counter, not yet told to the kernel.
    own: u32,
    /// The kernel's counter as last seen.
    other: u32,
    _entries: std::marker::PhantomData<T>,
}

impl<T: Copy> Shared<T> {
    fn map(
        socket: &OwnedFd,
        at: &libc::xdp_ring_offset,
        entries: u32,
        offset: libc::off_t,
    ) -> Result<Self> {
        let len = at.desc as usize + entries as usize * size_of::<T>();
        Ok(Self {
            base: map_ring(socket, len, offset)?,
            len,
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            entries: at.desc as usize,
            mask: entries - 1,
            own: 0,
            other: 0,
            _entries: std::marker::PhantomData,
        })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel put an aligned counter at this offset of the mapping, which lives as long as
        // `self`; both sides change it atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.entries + (number & self.mask) as usize * size_of::<T>();
        // SAFETY: the number is masked, so the entry lies inside the mapping.
        unsafe { self.base.as_ptr().add(at).cast() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, of which no reference is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring into which we put.
pub(super) struct Producer<T>(Shared<T>);

impl<T: Copy> Producer<T> {
    /// Adds an entry, which the kernel sees after [`Self::publish`]. The caller never has more entries
    /// under way than the ring holds.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        // SAFETY: the entry is ours: the kernel has taken what was there before.
        unsafe { self.0.entry(self.0.own).write(entry) };
        self.0.own = self.0.own.wrapping_add(1);
    }

    /// Tells the kernel what was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.0.counter(self.0.producer).store(self.0.own, Ordering::Release);
    }

    /// Whether the kernel has not yet taken all of it.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.0.counter(self.0.consumer).load(Ordering::Acquire) != self.0.own
    }
}

/// A ring out of which we take.
pub(super) struct Consumer<T>(Shared<T>);

impl<T: Copy> Consumer<T> {
    /// The next entry, if there is one. The kernel may use its place after [`Self::publish`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.0.own == self.0.other {
            self.0.other = self.0.counter(self.0.producer).load(Ordering::Acquire);
            if self.0.own == self.0.other {
                return None;
            }
        }
        // SAFETY: the acquire above ordered the kernel's write of this entry before our read.
        let entry = unsafe { self.0.entry(self.0.own).read() };
        self.0.own = self.0.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of what was popped back to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.0.counter(self.0.consumer).store(self.0.own, Ordering::Release);
    }
}
