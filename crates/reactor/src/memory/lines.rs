//! The lines of the processor's cache, and the hints that have them fetched ahead: none of them can
//! fault, whatever the address. Where the processor has no such hint they do nothing.

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Asks the processor to fetch the cache line at `at`. Any address is allowed.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that cannot fault, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same, for a line that will be written to.
#[inline]
pub(crate) fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that cannot fault, whatever the address; a processor that does
    // not know this one ignores it.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Has the lines of `length` bytes from `at` on fetched.
#[inline]
pub(crate) fn prefetch_all(at: *const u8, length: usize) {
    (0..length).step_by(LINE).for_each(|offset| prefetch(at.wrapping_add(offset)));
}
