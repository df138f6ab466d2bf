//! What one connection has to send: headers in an arena, data where they lie, one `sendmsg` a turn.
//!
//! In: headers (copied) and data (by address). Out: bytes on a non-blocking socket. A flush goes on
//! until everything is gone or the socket is full; then the caller polls for room and flushes
//! again. Errors: those of `sendmsg` but EAGAIN and EINTR; a full arena is a bug of the caller's
//! bounds.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::memory::Area;

/// Kernel bound on the vectors of one call (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;
/// Headers of 1,024 commands, several times over; pages are touched only when used.
const ARENA: usize = 1 << 20;

/// Pending bytes of one connection.
pub(crate) struct Outbox {
    arena: Area,
    used: usize,
    vectors: Vec<libc::iovec>,
    first: usize,
    /// End of the last header, while the last vector is that header: headers in a row share one.
    tail: *const u8,
}

impl Outbox {
    /// An empty outbox.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            arena: Area::new(ARENA, false)?,
            used: 0,
            vectors: Vec::with_capacity(IOV_MAX),
            first: 0,
            tail: std::ptr::null(),
        })
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Appends `N` bytes that `fill` writes in place.
    #[inline]
    pub(crate) fn header<const N: usize>(&mut self, fill: impl FnOnce(&mut [u8; N])) {
        let from = self.used;
        self.used += N;
        let room = self.arena.bytes_mut(from, from + N);
        let bytes: &mut [u8; N] = room.try_into().expect("the range has N bytes");
        fill(bytes);
        let base = bytes.as_mut_ptr();
        self.append(base, N);
        self.tail = base.wrapping_add(N);
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        let from = self.used;
        self.used += bytes.len();
        let room = self.arena.bytes_mut(from, from + bytes.len());
        room.copy_from_slice(bytes);
        let base = room.as_mut_ptr();
        self.append(base, bytes.len());
        self.tail = base.wrapping_add(bytes.len());
    }

    #[inline]
    fn append(&mut self, base: *mut u8, len: usize) {
        if std::ptr::eq(base, self.tail)
            && let Some(last) = self.vectors.last_mut()
        {
            last.iov_len += len;
            return;
        }
        self.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: len });
    }

    /// Appends `len` bytes at `base` without a copy.
    ///
    /// # Safety
    /// They stay mapped until they are sent or the outbox is dropped.
    #[inline]
    pub(crate) unsafe fn data(&mut self, base: *mut u8, len: usize) {
        self.tail = std::ptr::null();
        self.append(base, len);
    }

    /// Sends until all is gone (true) or the socket is full (false).
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.first < self.vectors.len() {
            let end = self.vectors.len().min(self.first + IOV_MAX);
            let window = &mut self.vectors[self.first..end];
            // SAFETY: msghdr is plain data for which all zeroes means: no name, no control.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = window.as_mut_ptr();
            message.msg_iovlen = window.len();
            // SAFETY: every vector is a header in our arena or data that `data`'s caller vouched
            // for.
            let sent = unsafe {
                libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            self.advance(sent as usize);
        }
        self.vectors.clear();
        self.first = 0;
        self.used = 0;
        self.tail = std::ptr::null();
        Ok(true)
    }

    /// Forgets `sent` bytes from the front.
    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let vector = &mut self.vectors[self.first];
            if sent < vector.iov_len {
                vector.iov_base = vector.iov_base.cast::<u8>().wrapping_add(sent).cast();
                vector.iov_len -= sent;
                return;
            }
            sent -= vector.iov_len;
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn short_sends_and_more_vectors_than_one_call_takes_keep_the_byte_order() {
        let (near, mut far) = UnixStream::pair().expect("a socket pair");
        let mut data = Area::new(4096, true).expect("memory");
        let mut expected = Vec::new();
        let mut outbox = Outbox::new().expect("memory");
        for round in 0..3000_u32 {
            outbox.copy(&round.to_le_bytes());
            expected.extend_from_slice(&round.to_le_bytes());
            data.bytes_mut(0, 4096)[..4].copy_from_slice(&[1, 2, 3, 4]);
            let base = data.at(0, 1000).expect("inside");
            // SAFETY: `data` lives to the end of the test.
            unsafe { outbox.data(base, 1000) };
            expected.extend_from_slice(data.bytes(0, 1000));
        }
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            far.read_to_end(&mut seen).expect("the stream ends");
            seen
        });
        near.set_nonblocking(true).expect("a flag");
        while !outbox.flush(near.as_fd()).expect("the peer reads") {
            std::thread::yield_now();
        }
        assert!(outbox.is_empty());
        drop(near);
        assert!(reader.join().expect("no panic") == expected);
    }
}
