//! Sends whose bytes the kernel takes from where they lie (`MSG_ZEROCOPY`), and what it says of them afterwards.
//!
//! In: a socket, and how many such sends it was asked for. Out: how many of them the kernel copied all the same, as it does
//! where nothing between both ends can read a program's pages: over loopback and between network namespaces, for one. What it says
//! stands in the socket's error queue, and is taken from there ([`ZeroCopy::take`]) as soon as it can be: a queue with something
//! in it looks like an error to whoever waits for the socket. Errors: those of `setsockopt` and `recvmsg`, and something
//! else in that queue.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

/// How the data of writes leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Send {
    /// Copied into the socket, as any program's bytes are.
    #[default]
    Copied,
    /// Sent from where they lie.
    ZeroCopy,
}

/// What became of a socket's sends that asked for no copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sends: u64,
    /// Those that were copied.
    pub(crate) copied: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sends += other.sends;
        self.copied += other.copied;
    }
}

/// The sends of one socket.
#[derive(Debug)]
pub(crate) struct ZeroCopy {
    counts: Counts,
    /// Those of which the kernel has not said that it is done with their bytes.
    open: u64,
}

/// What the kernel says at once: how many sends it is done with, one after the other, and whether it copied them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notice {
    sends: u64,
    copied: bool,
}

/// `ee_origin` and a bit of `ee_code`, of `linux/errqueue.h`.
const ORIGIN: u8 = 5;
const COPIED: u8 = 1;
/// Bytes of what the kernel says about one message, and more.
const CONTROL: usize = 256;

impl ZeroCopy {
    /// Has a socket take such sends.
    pub(crate) fn ask(socket: BorrowedFd<'_>) -> Result<Self> {
        let on: libc::c_int = 1;
        // SAFETY: the option is an int, whose address and length are given.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ZEROCOPY,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        let error = (done != 0).then(io::Error::last_os_error);
        error.map_or(Ok(()), Err).context("the kernel sends nothing from where it lies")?;
        Ok(Self { counts: Counts::default(), open: 0 })
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// One send, by these flags; with a copy where the kernel has no room to remember more of them.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: libc::c_int,
        send: impl Fn(libc::c_int) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_full = |sent: &io::Result<usize>| matches!(sent, Err(error) if error.raw_os_error() == Some(libc::ENOBUFS));
        let mut sent = send(flags);
        if is_full(&sent) && self.take(socket)? {
            sent = send(flags);
        }
        if is_full(&sent) {
            let sent = send(flags & !libc::MSG_ZEROCOPY)?;
            self.counts += Counts { sends: 1, copied: 1 };
            return Ok(sent);
        }
        let sent = sent?;
        // The kernel will say when it is done with it.
        self.counts.sends += 1;
        self.open += 1;
        Ok(sent)
    }

    /// Takes what the kernel has said; whether that was anything.
    pub(crate) fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let before = self.open;
        while self.open > 0 {
            let Some(Notice { sends, copied }) = notice(socket)? else { break };
            self.open = self.open.saturating_sub(sends);
            self.counts.copied += if copied { sends } else { 0 };
        }
        Ok(self.open < before)
    }
}

/// The next one in the queue, if there is one.
fn notice(socket: BorrowedFd<'_>) -> io::Result<Option<Notice>> {
    // As aligned as the kernel's headers.
    let mut control = [0_u64; CONTROL / 8];
    // SAFETY: msghdr is plain data for which all zeroes means: no name, no bytes, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL;
    // SAFETY: the message names our own memory, with its length, and nothing else.
    let got = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if got < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has written whole headers into the control memory, and its length.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: a header that is there, with as many bytes behind it as it says.
    let about = unsafe { first.as_ref() }.filter(|head| {
        [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)]
            .contains(&(head.cmsg_level, head.cmsg_type))
    });
    let Some(head) = about else { return Err(io::Error::other("an error queue without errors")) };
    // SAFETY: such a header is followed by this, which may be read where it lies whatever its alignment.
    let told: libc::sock_extended_err =
        unsafe { libc::CMSG_DATA(head).cast::<libc::sock_extended_err>().read_unaligned() };
    if told.ee_origin != ORIGIN {
        return Err(io::Error::from_raw_os_error(told.ee_errno as i32));
    }
    let sends = u64::from(told.ee_data.wrapping_sub(told.ee_info)) + 1;
    Ok(Some(Notice { sends, copied: told.ee_code & COPIED != 0 }))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_socket_that_cannot_is_told() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let why = ZeroCopy::ask(near.as_fd()).expect_err("no such sends there");
        assert!(format!("{why:#}").contains("from where it lies"), "{why:#}");
    }

    #[test]
    fn an_empty_queue_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a socket");
        let mut sends = ZeroCopy::ask(socket.as_fd()).expect("TCP can");
        assert_eq!(notice(socket.as_fd()).expect("no error"), None);
        assert!(!sends.take(socket.as_fd()).expect("nothing is open"));
    }

    #[test]
    fn what_the_kernel_has_no_room_for_is_copied_and_counted_as_that() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a socket");
        let mut sends = ZeroCopy::ask(socket.as_fd()).expect("TCP can");
        let full = |flags| match flags & libc::MSG_ZEROCOPY {
            0 => Ok(7),
            _ => Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
        };
        assert_eq!(sends.send(socket.as_fd(), libc::MSG_ZEROCOPY, full).ok(), Some(7));
        assert_eq!(sends.counts(), Counts { sends: 1, copied: 1 });
        let gone = |_| Err(io::ErrorKind::BrokenPipe.into());
        assert!(sends.send(socket.as_fd(), libc::MSG_ZEROCOPY, gone).is_err());
        assert_eq!(sends.counts().sends, 1, "it did not leave");
    }
}
