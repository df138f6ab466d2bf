//! Messages of rtnetlink, by which Linux tells of interfaces and neighbours and is asked about them: how one
//! stands behind the other, what is in them, and how a question is written.
//!
//! ```text
//!   nlmsghdr   length (4) | type (2) | flags (2) | sequence (4) | port (4)
//!   body       as the type has it, in front of attributes
//!   rtattr     length (2) | type (2) | value, padded to 4 bytes
//! ```
//! In and out: bytes in the machine's own order. Sockets are the reactor's. What stands in a body:
//! [`neighbour`], [`discipline`]. Errors: what makes no sense ends the messages, or the attributes, with
//! [`Message::Broken`] or `None`; who reads looks at the whole again. Spec: netlink(7), rtnetlink(7), and
//! the kernel's include/uapi/linux/netlink.h and rtnetlink.h, whose names the numbers have.

pub mod discipline;
pub mod neighbour;

/// Bytes of `nlmsghdr` and `rtattr`.
pub const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

/// Types of messages.
pub mod kind {
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const OVERRUN: u16 = 4;
    pub const NEWLINK: u16 = 16;
    pub const DELLINK: u16 = 17;
    pub const NEWADDR: u16 = 20;
    pub const NEWNEIGH: u16 = 28;
    pub const DELNEIGH: u16 = 29;
    pub const GETNEIGH: u16 = 30;
    pub const NEWQDISC: u16 = 36;
    pub const GETQDISC: u16 = 38;
}

/// Flags of messages.
pub mod flag {
    pub const REQUEST: u16 = 0x1;
    pub const ACK: u16 = 0x4;
    /// What was told changed meanwhile.
    pub const DUMP_INTR: u16 = 0x10;
    pub const DUMP: u16 = 0x300;
    pub const CREATE: u16 = 0x400;
}

/// Families of addresses.
pub mod family {
    pub const UNSPEC: u8 = 0;
    pub const INET: u8 = 2;
    pub const BRIDGE: u8 = 7;
    pub const INET6: u8 = 10;
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
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
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
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
    let (of, flags) = (half(message, 4)?, half(message, 6)?);
    let body = &message[HEADER..];
    Some(match of {
        kind::DONE => Message::Done { is_torn: flags & flag::DUMP_INTR != 0 },
        // The number is negative, or 0.
        kind::ERROR => Message::Answer(word(body, 0)?.cast_signed().wrapping_neg()),
        kind::OVERRUN => Message::Broken,
        of => Message::Of(of, body),
    })
}

/// The attributes of a body, from behind what its type has first: types without their flags, and
/// values.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
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
pub fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend(body);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// That all of a table is told.
pub fn dump(kind: u16, body: &[u8]) -> Vec<u8> {
    request(kind, flag::REQUEST | flag::DUMP, body)
}

/// Appends an attribute.
pub fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// The 2 bytes at a place.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 4 bytes at a place.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPERM: i32 = 1;

    #[test]
    fn messages_stand_one_behind_the_other_padded() {
        let torn = flag::DUMP_INTR;
        let mut all = request(kind::NEWQDISC, 0, &[1, 2, 3, 4, 5]);
        all.resize(aligned(all.len()), 0);
        all.extend(request(kind::DONE, torn, &[]));
        all.extend(request(kind::ERROR, 0, &(-EPERM).to_ne_bytes()));
        all.extend(request(kind::ERROR, 0, &[0; 4]));
        all.extend(request(kind::OVERRUN, 0, &[]));
        all.extend([7; 15]);
        let seen: Vec<Message<'_>> = messages(&all).collect();
        let wanted = [
            Message::Of(kind::NEWQDISC, &[1, 2, 3, 4, 5]),
            Message::Done { is_torn: true },
            Message::Answer(EPERM),
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
