//! Asking the kernel by rtnetlink: a question, and all that is answered. What is said is the `netlink`
//! crate's.
//!
//! Errors: the system's. Spec: netlink(7).

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use netlink::{Message, messages};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::packet::set_option;

/// Bytes that the kernel puts into a message at most.
pub(super) const ROOM: usize = 32 << 10;
/// The kernel answers at once; so long nobody waits for it.
const ANSWER: Duration = Duration::from_secs(5);

/// Asks the kernel, by a socket on which nobody has been answered. Returns whether what was said may
/// not fit.
pub(super) fn ask(request: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let limit = libc::timeval { tv_sec: ANSWER.as_secs() as libc::time_t, tv_usec: 0 };
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit)?;
    send(&socket, request, SendFlags::empty())?;
    let mut bytes = [0; ROOM];
    loop {
        let count = match recv(&socket, &mut bytes, RecvFlags::empty()) {
            Ok((count, _)) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in messages(&bytes[..count]) {
            match message {
                Message::Of(kind, body) => each(kind, body),
                Message::Done { is_torn } => return Ok(is_torn),
                Message::Answer(0) => return Ok(false),
                Message::Answer(why) => return Err(io::Error::from_raw_os_error(why)),
                Message::Broken => return Ok(true),
            }
        }
    }
}
