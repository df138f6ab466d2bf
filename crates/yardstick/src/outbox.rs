//! What one connection has to send: headers in an arena, data where they lie, one `sendmsg` a turn.
//!
//! In: headers (copied) and data (by address). Out: bytes on a non-blocking socket. A flush goes on
//! until everything is gone or the socket is full; then the caller polls for room and flushes
//! again. Data may leave without a copy of the kernel's: then headers, whose arena is written again
//! in the next turn, and data are sent by turns, a call each. Errors: those of `sendmsg` but EAGAIN
//! and EINTR; a full arena is a bug of the caller's bounds.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::memory::Area;
use crate::zero_copy::{Counts, ZeroCopy};

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
    /// Data leave without a copy, if the kernel can.
    zero_copy: Option<ZeroCopy>,
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
            zero_copy: None,
        })
    }

    /// Sends data from where they lie from now on, over this socket, which is the only one. They may be read until the
    /// kernel is done with them: so they stay mapped for as long as the socket is open, and nobody writes there who cares
    /// what arrives.
    pub(crate) fn send_without_copies(&mut self, socket: BorrowedFd<'_>) -> anyhow::Result<()> {
        self.zero_copy = Some(ZeroCopy::ask(socket)?);
        Ok(())
    }

    /// What became of sends without a copy, if there are any.
    pub(crate) fn without_copies(&self) -> Option<Counts> {
        self.zero_copy.as_ref().map(ZeroCopy::counts)
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
            let (end, flags) = self.next_send();
            let window = &mut self.vectors[self.first..end];
            // SAFETY: msghdr is plain data for which all zeroes means: no name, no control.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = window.as_mut_ptr();
            message.msg_iovlen = window.len();
            let send = |flags| {
                // SAFETY: every vector is a header in our arena or data that `data`'s caller
                // vouched for.
                let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
                usize::try_from(sent).map_err(|_| io::Error::last_os_error())
            };
            let sent = match &mut self.zero_copy {
                Some(sends) if flags & libc::MSG_ZEROCOPY != 0 => sends.send(socket, flags, send),
                _ => send(flags),
            };
            match sent {
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.hear(socket)?;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.hear(socket)?;
        self.vectors.clear();
        self.first = 0;
        self.used = 0;
        self.tail = std::ptr::null();
        Ok(true)
    }

    /// Where the vectors of the next call end, and how it sends them: all there are, or headers and data by turns where
    /// data are not to be copied.
    fn next_send(&self) -> (usize, libc::c_int) {
        const ALWAYS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let count = self.vectors.len();
        let most = count.min(self.first + IOV_MAX);
        if self.zero_copy.is_none() {
            return (most, ALWAYS);
        }
        let is_header = |vector: &libc::iovec| self.arena.has(vector.iov_base.cast());
        let kind = is_header(&self.vectors[self.first]);
        let others = self.vectors[self.first..most].iter().position(|one| is_header(one) != kind);
        let end = others.map_or(most, |others| self.first + others);
        let how = if kind { 0 } else { libc::MSG_ZEROCOPY };
        // What follows belongs to the same segment, if it fits.
        (end, ALWAYS | how | if end < count { libc::MSG_MORE } else { 0 })
    }

    /// Takes what the kernel has said of sends without a copy.
    fn hear(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.zero_copy.as_mut().map_or(Ok(false), |sends| sends.take(socket)).map(|_| ())
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
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn short_sends_and_more_vectors_than_one_call_takes_keep_the_byte_order() {
        let (near, far) = UnixStream::pair().expect("a socket pair");
        near.set_nonblocking(true).expect("a flag");
        let outbox = keeps_the_byte_order(Outbox::new().expect("memory"), near, far);
        assert_eq!(outbox.without_copies(), None);
    }

    #[test]
    fn so_do_headers_and_data_by_turns_and_what_the_kernel_copies_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a socket");
        let (far, _) = listener.accept().expect("it came");
        near.set_nonblocking(true).expect("a flag");
        let mut outbox = Outbox::new().expect("memory");
        outbox.send_without_copies(near.as_fd()).expect("TCP can");
        let outbox = keeps_the_byte_order(outbox, near, far);
        let Counts { sends, copied } = outbox.without_copies().expect("it was asked for");
        // One for each piece of data at least; over loopback the receiver is the kernel itself, which copies.
        assert!(sends >= 3000, "{sends}");
        assert!(copied > 0 && copied <= sends, "{copied} of {sends}");
    }

    /// Sends 3,000 headers with data behind each; the outbox that has done so.
    fn keeps_the_byte_order(
        mut outbox: Outbox,
        near: impl AsFd,
        mut far: impl Read + std::marker::Send + 'static,
    ) -> Outbox {
        let mut data = Area::new(4096, true).expect("memory");
        let mut expected = Vec::new();
        for round in 0..3000_u32 {
            outbox.copy(&round.to_le_bytes());
            expected.extend_from_slice(&round.to_le_bytes());
            data.bytes_mut(0, 4096)[..4].copy_from_slice(&[1, 2, 3, 4]);
            let base = data.at(0, 1000).expect("inside");
            // SAFETY: `data` lives until all of it has been received.
            unsafe { outbox.data(base, 1000) };
            expected.extend_from_slice(data.bytes(0, 1000));
        }
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            far.read_to_end(&mut seen).expect("the stream ends");
            seen
        });
        while !outbox.flush(near.as_fd()).expect("the peer reads") {
            std::thread::yield_now();
        }
        assert!(outbox.is_empty());
        drop(near);
        assert!(reader.join().expect("no panic") == expected);
        outbox
    }
}
