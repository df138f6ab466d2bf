//! Messages of the kernel's table of neighbours.
//!
//! ```text
//!   ndmsg      family (1) | pad (3) | index of the interface (4) | state (2) | flags (1) | type (1)
//! ```
//! In: bytes of a netlink socket, in the machine's own order. Out: one value a message; what concerns
//! nothing here is [`Message::Other`]. Errors: none is told, since whoever reads looks at the whole
//! table again after what it does not understand. Spec: rtnetlink(7), and the kernel's
//! include/uapi/linux/neighbour.h.

use std::net::IpAddr;

use crate::{attributes, family, flag, half, kind, push, request, word};

/// States of an entry (`NUD_*`).
pub mod state {
    pub const NONE: u16 = 0;
    pub const INCOMPLETE: u16 = 0x1;
    pub const REACHABLE: u16 = 0x2;
    pub const STALE: u16 = 0x4;
    pub const DELAY: u16 = 0x8;
    pub const PROBE: u16 = 0x10;
    pub const FAILED: u16 = 0x20;
    pub const NOARP: u16 = 0x40;
    pub const PERMANENT: u16 = 0x80;
}

/// `NDA_DST`, `NDA_LLADDR`: attributes of an entry.
const DESTINATION: u16 = 1;
const LINK_ADDRESS: u16 = 2;
/// `NTF_USE`: as if something were sent there.
const USE: u8 = 1;

/// What the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An entry of the table is so now.
    Neighbour(Entry),
    /// One is gone.
    Gone(i32, IpAddr),
    /// An interface is not what it was.
    Interface,
    /// Something else.
    Other,
    /// The rest makes no sense, or messages were lost.
    Broken,
}

/// An entry of the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The interface's number.
    pub index: i32,
    /// Its address of IP.
    pub address: IpAddr,
    /// Of those in [`state`].
    pub state: u16,
    /// Where it is, if it has an address like Ethernet's.
    pub mac: Option<[u8; 6]>,
}

impl Entry {
    /// At which address of Ethernet its station is, as far as the kernel knows: what it has asked for
    /// and not heard yet is not known, and what it doubts is (STALE and those behind it).
    pub fn valid(&self) -> Option<[u8; 6]> {
        const VALID: u16 = state::PERMANENT
            | state::NOARP
            | state::REACHABLE
            | state::PROBE
            | state::STALE
            | state::DELAY;
        self.mac.filter(|_| self.state & VALID != 0)
    }
}

/// Bytes of `ndmsg`.
const BODY: usize = 12;

/// The messages of what a socket received.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Message> + '_ {
    crate::messages(bytes).map(|message| match message {
        crate::Message::Of(kind, body) => of(kind, body),
        crate::Message::Done { .. } | crate::Message::Answer(_) => Message::Other,
        crate::Message::Broken => Message::Broken,
    })
}

/// A message of this type.
pub fn of(of: u16, body: &[u8]) -> Message {
    let message = match of {
        kind::NEWNEIGH => entry(body).map(|entry| entry.map(Message::Neighbour)),
        kind::DELNEIGH => {
            entry(body).map(|entry| entry.map(|entry| Message::Gone(entry.index, entry.address)))
        }
        kind::NEWLINK | kind::DELLINK => Some(Some(Message::Interface)),
        _ => Some(None),
    };
    message.unwrap_or(Some(Message::Broken)).unwrap_or(Message::Other)
}

/// `Some(None)`: one of no address of IP, such as a bridge's.
fn entry(body: &[u8]) -> Option<Option<Entry>> {
    let (of, index, state) = (*body.first()?, word(body, 4)?.cast_signed(), half(body, 8)?);
    let (mut address, mut mac) = (None, None);
    for attribute in attributes(body.get(BODY..)?) {
        let (kind, value) = attribute?;
        match kind {
            DESTINATION => address = ip(of, value),
            LINK_ADDRESS => mac = value.try_into().ok(),
            _ => {}
        }
    }
    Some(address.map(|address| Entry { index, address, state, mac }))
}

fn ip(of: u8, value: &[u8]) -> Option<IpAddr> {
    match of {
        family::INET => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        family::INET6 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

/// That all of the table is told, of IPv4 and IPv6.
pub fn dump() -> Vec<u8> {
    crate::dump(kind::GETNEIGH, &body(family::UNSPEC, 0, 0, &[]))
}

/// That the kernel asks for an address on an interface, as if something were sent there: what is not
/// there is made and asked for, and what is in doubt is probed. No answer but of an error.
pub fn use_it(index: i32, address: IpAddr) -> Vec<u8> {
    let flags = flag::REQUEST | flag::CREATE | flag::ACK;
    let (of, value) = match address {
        IpAddr::V4(four) => (family::INET, four.octets().to_vec()),
        IpAddr::V6(six) => (family::INET6, six.octets().to_vec()),
    };
    request(kind::NEWNEIGH, flags, &body(of, index, USE, &value))
}

/// Of no state and no type of route.
fn body(of: u8, index: i32, used: u8, address: &[u8]) -> Vec<u8> {
    let mut bytes = vec![of, 0, 0, 0];
    bytes.extend(index.to_ne_bytes());
    bytes.extend([0, 0, used, 0]);
    if !address.is_empty() {
        push(&mut bytes, DESTINATION, address);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEADER;

    /// A message as the kernel sends it: `RTM_NEWNEIGH` of 10.0.0.2 on interface 7, with what this
    /// room skips (`NDA_PROBES`) in between.
    fn told(of: u16, state: u16, mac: &[u8]) -> Vec<u8> {
        let mut bytes = body(family::INET, 7, 0, &[10, 0, 0, 2]);
        bytes[8..10].copy_from_slice(&state.to_ne_bytes());
        push(&mut bytes, PROBES, &[1, 0, 0, 0]);
        push(&mut bytes, LINK_ADDRESS, mac);
        request(of, 0, &bytes)
    }

    const PROBES: u16 = 4;
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn address() -> IpAddr {
        "10.0.0.2".parse().unwrap()
    }

    #[test]
    fn an_entry_is_read_with_where_its_station_is_if_that_is_known() {
        for (state, is_known) in [
            (state::INCOMPLETE, false),
            (state::FAILED, false),
            (state::NONE, false),
            (state::REACHABLE, true),
            (state::STALE, true),
            (state::DELAY, true),
            (state::PROBE, true),
            (state::PERMANENT, true),
            (state::NOARP, true),
        ] {
            let bytes = told(kind::NEWNEIGH, state, &MAC);
            let entry = Entry { index: 7, address: address(), state, mac: Some(MAC) };
            let seen: Vec<Message> = messages(&bytes).collect();
            assert_eq!(seen, [Message::Neighbour(entry)]);
            assert_eq!(entry.valid(), is_known.then_some(MAC), "{state:#x}");
        }
        // Addresses that are none of Ethernet's.
        for mac in [&[][..], &[1; 4], &[1; 20]] {
            let bytes = told(kind::NEWNEIGH, state::REACHABLE, mac);
            let Some(Message::Neighbour(entry)) = messages(&bytes).next() else { panic!() };
            assert_eq!(entry.valid(), None);
        }
    }

    #[test]
    fn messages_come_one_behind_the_other_and_others_are_passed_over() {
        let mut all = told(kind::DELNEIGH, 0, &MAC);
        all.extend(request(kind::NEWLINK, 0, &[]));
        all.extend(request(kind::NEWADDR, 0, &[]));
        all.extend(request(kind::DONE, 0, &[0; 4]));
        // A neighbour of a bridge has no address of IP.
        let mut bridge = told(kind::NEWNEIGH, state::REACHABLE, &MAC);
        bridge[HEADER] = family::BRIDGE;
        all.extend(bridge);
        let seen: Vec<Message> = messages(&all).collect();
        let wanted = [
            Message::Gone(7, address()),
            Message::Interface,
            Message::Other,
            Message::Other,
            Message::Other,
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn what_is_asked_is_read_as_it_was_written() {
        for text in ["10.0.0.2", "fe80::2"] {
            let address = text.parse().unwrap();
            let bytes = use_it(7, address);
            let seen: Vec<Message> = messages(&bytes).collect();
            assert_eq!(
                seen,
                [Message::Neighbour(Entry { index: 7, address, state: 0, mac: None })]
            );
            assert_eq!(bytes[HEADER + 10], USE);
        }
        assert_eq!(dump().len(), HEADER + BODY);
    }

    /// Cut anywhere, and with any byte another one, it is read to an end, and an entry that is cut is
    /// never taken for a whole one.
    #[test]
    fn whatever_comes_is_read_to_an_end() {
        let mut good = told(kind::NEWNEIGH, state::REACHABLE, &MAC);
        for end in 0..good.len() {
            let seen: Vec<Message> = messages(&good[..end]).collect();
            assert!(seen.iter().all(|one| *one == Message::Broken), "{end}: {seen:?}");
            assert!(end == 0 || seen.len() == 1);
        }
        good.extend(told(kind::DELNEIGH, 0, &MAC));
        for at in 0..good.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = good.clone();
                bytes[at] = byte;
                assert!(messages(&bytes).count() <= good.len() / HEADER);
            }
        }
    }
}
