//! A mapping of memory: its owner's alone, and unmapped when it goes.
//!
//! Units: bytes. Errors: those of the system, when it is made. What is in it, who may look at it
//! and when is up to its owner.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to its owner alone, and nothing in it depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; who may touch its bytes when, its owner says.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of our own, of zeros.
    pub(crate) fn anonymous(
        length: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        // SAFETY: a new mapping at a place of the kernel's choice replaces no other.
        let base = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), length, protection, flags | MapFlags::PRIVATE)?
        };
        Ok(Mapping::at_base(base, length))
    }

    /// Memory that a socket shares with the kernel, from `offset` on.
    pub(crate) fn shared(
        socket: impl AsFd,
        length: usize,
        offset: u64,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let base = unsafe {
            rustix::mm::mmap(
                null_mut(),
                length,
                protection,
                flags | MapFlags::SHARED,
                socket,
                offset,
            )?
        };
        Ok(Mapping::at_base(base, length))
    }

    /// Has the kernel use large pages, where it has some: fewer entries of the processor's tables cover it.
    pub(crate) fn prefer_large_pages(&self) {
        // SAFETY: the mapping is ours, and what is asked for changes none of its bytes.
        let _ = unsafe {
            rustix::mm::madvise(self.base().cast(), self.length, rustix::mm::Advice::LinuxHugepage)
        };
    }

    fn at_base(base: *mut std::ffi::c_void, length: usize) -> Mapping {
        Mapping { base: NonNull::new(base.cast()).expect("a mapping is not at address 0"), length }
    }

    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Where byte `at` lies, of `length` that must be in the mapping.
    #[inline]
    pub(crate) fn at(&self, at: u64, length: u32) -> *mut u8 {
        let end = at.saturating_add(length.into());
        assert!(end <= self.length as u64, "bytes {at}+{length} of a mapping of {}", self.length);
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is the owner's own, and nobody can reach it any more. It can only
        // fail for an address that is not mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
