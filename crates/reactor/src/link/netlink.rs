//! Messages of rtnetlink: how one stands behind the other, what is in them, and how the kernel is asked.
//!
//! ```text
//!   nlmsghdr   length (4) | type (2) | flags (2) | sequence (4) | port (4)
//!   body       as the type has it, in front of attributes
//!   rtattr     length (2) | type (2) | value, padded to 4 bytes
//! ```
//! In and out: bytes in the machine's own order. Errors: what makes no sense ends the messages, or the
//! attributes, with `None`; of asking, the system's. Spec: netlink(7), rtnetlink(7).

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::packet::set_option;

/// Bytes of `nlmsghdr` and `rtattr`.
pub(super) const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
/// Bytes that the kernel puts into a message at most.
pub(super) const ROOM: usize = 32 << 10;
/// The kernel answers at once; so long nobody waits for it.
const ANSWER: Duration = Duration::from_secs(5);

const DONE: u16 = libc::NLMSG_DONE as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const OVERRUN: u16 = libc::NLMSG_OVERRUN as u16;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// It is of this type, with what stands behind its header.
    Of(u16, &'a [u8]),
    /// All that was asked for has been said; whether it changed meanwhile, so that it may not fit.
    Done { is_torn: bool },
    /// What was asked for was done, or the system's number for why not.
    Answer(i32),
    /// The rest makes no sense, or messages were lost.
    Broken,
}

/// The messages of what a socket received.
pub(super) fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = word(rest, 0).map_or(0, |length| length as usize);
        if !(HEADER..=rest.len()).contains(&length) {
            rest = &[];
            return Some(Message::Broken);
        }
        let (message, behind) = rest.split_at(length);
        rest = behind.get(aligned(length) - length..).unwrap_or_default();
        Some(parse(message).unwrap_or(Message::Broken))
    })
}

/// One message, whose header is there.
fn parse(message: &[u8]) -> Option<Message<'_>> {
    let (kind, flags) = (half(message, 4)?, half(message, 6)?);
    let body = &message[HEADER..];
    Some(match kind {
        DONE => Message::Done { is_torn: flags & libc::NLM_F_DUMP_INTR as u16 != 0 },
        // The number is negative, or 0.
        ERROR => Message::Answer(word(body, 0)?.cast_signed().wrapping_neg()),
        OVERRUN => Message::Broken,
        kind => Message::Of(kind, body),
    })
}

/// The attributes of a body, from behind what its type has first: types without their flags, and
/// values.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    /// Bits of an attribute's type that are none of it.
    const FLAGS: u16 = 0xc000;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let attribute = || {
            let length = usize::from(half(rest, 0)?);
            let value = rest.get(ATTRIBUTE..length)?;
            Some((half(rest, 2)? & !FLAGS, value, rest.get(aligned(length)..).unwrap_or_default()))
        };
        let Some((kind, value, behind)) = attribute() else {
            rest = &[];
            return Some(None);
        };
        rest = behind;
        Some(Some((kind, value)))
    })
}

/// A message for the kernel.
pub(super) fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend(body);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// That all of a table is told.
pub(super) fn dump(kind: u16, body: &[u8]) -> Vec<u8> {
    request(kind, (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16, body)
}

/// Appends an attribute.
pub(super) fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
}

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

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stand_one_behind_the_other_padded() {
        let torn = libc::NLM_F_DUMP_INTR as u16;
        let mut all = request(libc::RTM_NEWQDISC, 0, &[1, 2, 3, 4, 5]);
        all.resize(aligned(all.len()), 0);
        all.extend(request(DONE, torn, &[]));
        all.extend(request(ERROR, 0, &(-libc::EPERM).to_ne_bytes()));
        all.extend(request(ERROR, 0, &[0; 4]));
        all.extend(request(OVERRUN, 0, &[]));
        all.extend([7; 15]);
        let seen: Vec<Message<'_>> = messages(&all).collect();
        let wanted = [
            Message::Of(libc::RTM_NEWQDISC, &[1, 2, 3, 4, 5]),
            Message::Done { is_torn: true },
            Message::Answer(libc::EPERM),
            Message::Answer(0),
            Message::Broken,
            Message::Broken,
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn attributes_end_where_one_makes_no_sense() {
        let mut bytes = Vec::new();
        push(&mut bytes, 1, b"fq_codel\0");
        push(&mut bytes, 0x8002, &[]);
        let good: Vec<_> = attributes(&bytes).collect();
        assert_eq!(good, [Some((1, &b"fq_codel\0"[..])), Some((2, &[][..]))]);
        for length in [0_u16, 3, 9] {
            let mut bad = bytes.clone();
            bad.extend(length.to_ne_bytes());
            bad.extend([0; 6]);
            assert_eq!(attributes(&bad).collect::<Vec<_>>()[2..], [None], "{length}");
        }
    }
}
