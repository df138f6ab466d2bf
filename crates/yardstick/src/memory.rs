//! Memory that the kernel reads and writes behind the borrow checker's back: our own, or a socket's.
//!
//! An [`Area`] is a mapping with a fixed address for its whole life: the RAM volume of the ceiling,
//! receive buffers, the header arena of an outbox, the rings of a socket. Units: bytes. Errors:
//! the mapping fails. Every access is checked against the length, so that a lying peer cannot reach
//! outside.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A mapping: private and anonymous ([`Area::new`]), or shared with a socket ([`Area::shared`]).
pub(crate) struct Area {
    base: NonNull<u8>,
    len: usize,
}

impl Area {
    /// Maps `len` bytes; `touched` fills every page now, in huge pages where the system has them.
    pub(crate) fn new(len: usize, touched: bool) -> std::io::Result<Self> {
        Self::mapped(len, touched.then_some(0xa5))
    }

    /// What a responder serves, every page of it there; `blank` as nobody wrote it.
    pub(crate) fn served(len: usize, blank: bool) -> std::io::Result<Self> {
        Self::mapped(len, Some(if blank { 0 } else { 0xa5 }))
    }

    fn mapped(len: usize, filled: Option<u8>) -> std::io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let area = Self::at_base(base, len);
        if let Some(byte) = filled {
            // SAFETY: advice about our own mapping changes no content; failure costs only speed.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
            // SAFETY: the range is the whole of the mapping made above.
            unsafe { std::ptr::write_bytes(area.base.as_ptr(), byte, len) };
        }
        Ok(area)
    }

    /// Maps `len` bytes, from `offset` on, that a socket shares with the kernel.
    pub(crate) fn shared(socket: impl AsFd, len: usize, offset: u64) -> std::io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours; what
        // the kernel writes there is for who knows the socket's protocol.
        let base = unsafe {
            mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, socket, offset)
        }?;
        Ok(Self::at_base(base, len))
    }

    fn at_base(base: *mut std::ffi::c_void, len: usize) -> Self {
        let base = NonNull::new(base.cast()).expect("mmap never returns null without MAP_FIXED");
        Self { base, len }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an address is inside.
    #[inline]
    pub(crate) fn has(&self, address: *const u8) -> bool {
        let base = self.base.as_ptr().cast_const();
        (base..base.wrapping_add(self.len)).contains(&address)
    }

    /// The address of `len` bytes from `offset`, or `None` outside the area.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: offset <= end <= self.len, so the result stays inside the mapping.
        (end <= self.len).then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// The bytes of a range. Panics outside the area.
    #[inline]
    pub(crate) fn bytes(&self, from: usize, to: usize) -> &[u8] {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        // SAFETY: the range lies inside the mapping, and callers hold no kernel write on it: a
        // receive into it has completed before its bytes are looked at.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(from), to - from) }
    }

    /// The bytes of a range, to be written. Panics outside the area.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, from: usize, to: usize) -> &mut [u8] {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        // SAFETY: the range lies inside the mapping and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(from), to - from) }
    }

    /// Copies `data` to `offset`; false if it does not fit.
    #[inline]
    pub(crate) fn store(&mut self, offset: usize, data: &[u8]) -> bool {
        let Some(to) = self.at(offset, data.len()) else {
            return false;
        };
        // SAFETY: `to` has room for the bytes, and `data` is a slice of another allocation.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        true
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` or `shared` with this address and length, and nobody
        // borrows it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
