//! Calls to the kernel about a file, and the bytes that they move: runs of memory that iovecs name,
//! and the scratch memory of a thread.
//!
//! Errors: those of the kernel. Unsafe: iovecs point into pages of a request's buffer, which whoever
//! calls keeps until the call is over.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::iovec;
use rustix::io::{Errno, ReadWriteFlags};

use super::work::Call;

/// Bytes of scratch memory of a thread that compares, verifies or bounces.
pub(super) const SCRATCH: usize = 128 << 10;

/// Moves past `moved` bytes; returns the first iovec with bytes left.
pub(super) fn advance(iovecs: &mut [iovec], mut first: usize, moved: u64) -> usize {
    let mut moved = moved as usize;
    while first < iovecs.len() && moved >= iovecs[first].iov_len {
        moved -= iovecs[first].iov_len;
        first += 1;
    }
    if moved > 0 {
        let run = &mut iovecs[first];
        run.iov_base = run.iov_base.wrapping_byte_add(moved);
        run.iov_len -= moved;
    }
    first
}

/// Walks the bytes of iovecs, run by run.
pub(super) struct Bytes<'a> {
    pub(super) iovecs: &'a [iovec],
    pub(super) index: usize,
    pub(super) at: usize,
}

impl<'a> Bytes<'a> {
    /// The next run, at most `most` bytes; there must be one.
    pub(super) fn next(&mut self, most: usize) -> &'a [u8] {
        let run = self.iovecs[self.index];
        let length = (run.iov_len - self.at).min(most);
        // SAFETY: the iovecs point into pages of the buffer of the `Work` that lends them; it is
        // borrowed for 'a and no call that writes to them is with the kernel while a job runs.
        let part =
            unsafe { std::slice::from_raw_parts(run.iov_base.cast::<u8>().add(self.at), length) };
        self.at += length;
        if self.at == run.iov_len {
            self.index += 1;
            self.at = 0;
        }
        part
    }
}

/// Aligned memory of a thread.
#[repr(align(4096))]
pub(super) struct Scratch(pub(super) [u8; SCRATCH]);

impl Scratch {
    pub(super) fn new() -> Box<Scratch> {
        // SAFETY: bytes are valid when zero.
        unsafe { Box::new_zeroed().assume_init() }
    }
}

/// Writes all of `bytes`.
pub(super) fn write_all(
    fd: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], offset, write_flags(false)) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => (bytes, offset) = (&bytes[count..], offset + count as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(super) fn write_flags(durable: bool) -> ReadWriteFlags {
    if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() }
}

/// Makes one call that is not `Blocking` or `Finished`.
pub(super) fn perform(fd: BorrowedFd<'_>, call: Call<'_>) -> Result<usize, Errno> {
    match call {
        Call::Read { offset, iovecs } => {
            // Not by rustix, which would want exclusive slices made of what is only lent.
            let (count, offset) = (iovecs.len() as libc::c_int, offset as libc::off_t);
            // SAFETY: the kernel reads the iovecs and writes to the runs, which are private pages
            // of the buffer that the work owns, made by `iovecs_mut`.
            let read = unsafe { libc::preadv(fd.as_raw_fd(), iovecs.as_ptr(), count, offset) };
            usize::try_from(read).map_err(|_| {
                let error = std::io::Error::last_os_error();
                Errno::from_io_error(&error).expect("a call that failed says why")
            })
        }
        Call::Write { offset, iovecs, durable } => {
            // SAFETY: IoSlice has the layout of iovec. The runs are pages of the buffer that the
            // work owns, or zeros, and nobody changes them.
            let slices = unsafe {
                std::slice::from_raw_parts(iovecs.as_ptr().cast::<IoSlice<'_>>(), iovecs.len())
            };
            rustix::io::pwritev2(fd, slices, offset, write_flags(durable))
        }
        Call::Sync => rustix::fs::fdatasync(fd).map(|()| 0),
        Call::Allocate { mode, offset, length } => {
            rustix::fs::fallocate(fd, mode, offset, length).map(|()| 0)
        }
        Call::Blocking | Call::Finished => Ok(0),
    }
}
