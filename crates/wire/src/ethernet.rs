//! Ethernet and whatever else a capture has below IP: VLAN tags, Linux cooked captures, loopback.
//!
//! [`network`] takes a captured packet to its network layer whatever the link was. Big-endian, but
//! the BSD loopback header, which is in the byte order of whoever captured. Spec: IEEE 802.3,
//! 802.1Q; tcpdump.org's link-layer header types.

use core::fmt;

use crate::field::{be16, be32, need};
use crate::{Expected, ParseError};

codes! {
    /// What an Ethernet frame carries.
    pub struct EtherType(u16) {
        IPV4 = 0x0800 "IPv4",
        ARP = 0x0806 "ARP",
        VLAN = 0x8100 "802.1Q",
        IPV6 = 0x86dd "IPv6",
        MPLS = 0x8847 "MPLS",
        AOE = 0x88a2 "AoE",
        SERVICE_VLAN = 0x88a8 "802.1ad",
        OLD_SERVICE_VLAN = 0x9100 "QinQ",
    }
}

codes! {
    /// Link-layer header type of a capture.
    pub struct LinkType(u16) {
        NULL = 0 "BSD loopback",
        ETHERNET = 1 "Ethernet",
        RAW = 101 "raw IP",
        LOOP = 108 "OpenBSD loopback",
        LINUX_SLL = 113 "Linux cooked",
        IPV4 = 228 "raw IPv4",
        IPV6 = 229 "raw IPv6",
        LINUX_SLL2 = 276 "Linux cooked v2",
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// To everybody.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names a group of stations: no frame may come from such an address.
    #[inline]
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The address as a number, for comparisons in one step.
    #[inline]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address of a number; what exceeds 48 bits is cut.
    #[inline]
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl core::str::FromStr for MacAddress {
    type Err = ParseError;

    /// Reads six numbers of two hexadecimal digits with colons or dashes between them. The offset
    /// of an error counts characters.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut mac = [0; 6];
        let bytes = text.as_bytes();
        if bytes.len() != 17 {
            let expected = Expected::Words("17 characters, like 02:00:00:00:00:01");
            return Err(ParseError::new("MAC address", 0, expected, bytes.len() as u64));
        }
        for (index, byte) in mac.iter_mut().enumerate() {
            let at = index * 3;
            let digit = |at: usize| match char::from(bytes[at]).to_digit(16) {
                Some(digit) => Ok(digit as u8),
                None => {
                    let expected = Expected::Words("a hexadecimal digit");
                    Err(ParseError::new("MAC address", at, expected, bytes[at].into()))
                }
            };
            *byte = digit(at)? << 4 | digit(at + 1)?;
            if index < 5 && !matches!(bytes[at + 2], b':' | b'-') {
                let expected = Expected::Words("a colon");
                let seen = bytes[at + 2].into();
                return Err(ParseError::new("MAC address", at + 2, expected, seen));
            }
        }
        Ok(Self(mac))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The 14 bytes in front of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// To whom.
    pub destination: MacAddress,
    /// From whom.
    pub source: MacAddress,
    /// What follows; below 1536 it is a length, of a frame we do not read.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Size in bytes.
    pub const SIZE: usize = 14;

    /// Reads the header; the only error is a frame of less than 14 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        let mac = |at: usize| MacAddress(core::array::from_fn(|index| bytes[at + index]));
        Ok(Self { destination: mac(0), source: mac(6), ether_type: EtherType(be16(bytes, 12)) })
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.0.to_be_bytes());
        bytes
    }
}

impl fmt::Display for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.source, self.destination, self.ether_type)
    }
}

/// A VLAN tag: the 4 bytes behind its own EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// PCP, 0 to 7.
    pub priority: u8,
    /// DEI.
    pub drop_eligible: bool,
    /// VID, 0 to 4095.
    pub id: u16,
    /// What follows.
    pub ether_type: EtherType,
}

impl VlanTag {
    /// Size in bytes, without the EtherType that announced it.
    pub const SIZE: usize = 4;
    /// Tags [`network`] follows before it calls a frame nonsense.
    pub const DEPTH_MAX: usize = 4;

    /// Reads the tag; the only error is less than 4 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        need(bytes, Self::SIZE)?;
        let control = be16(bytes, 0);
        Ok(Self {
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            id: control & 0xfff,
            ether_type: EtherType(be16(bytes, 2)),
        })
    }

    /// The tag as bytes; priority and id are cut to their width.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let control = u16::from(self.priority & 7) << 13
            | u16::from(self.drop_eligible) << 12
            | self.id & 0xfff;
        let ([a, b], [c, d]) = (control.to_be_bytes(), self.ether_type.0.to_be_bytes());
        [a, b, c, d]
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vlan {} p {} {}", self.id, self.priority, self.ether_type)
    }
}

/// The network layer of a packet captured on `link`: its EtherType and its bytes, VLAN tags and
/// link headers taken off. Errors: a packet that ends within them, more than [`VlanTag::DEPTH_MAX`]
/// tags, a link type this crate does not read, an address family that is not IP.
pub fn network(link: LinkType, bytes: &[u8]) -> Result<(EtherType, &[u8]), ParseError> {
    match link {
        LinkType::ETHERNET => {
            let header = EthernetHeader::parse(bytes)?;
            untag(header.ether_type, EthernetHeader::SIZE, bytes)
        }
        LinkType::LINUX_SLL => {
            need(bytes, 16)?;
            untag(EtherType(be16(bytes, 14)), 16, bytes)
        }
        LinkType::LINUX_SLL2 => {
            need(bytes, 20)?;
            untag(EtherType(be16(bytes, 0)), 20, bytes)
        }
        LinkType::NULL => {
            need(bytes, 4)?;
            // The family is in the capturing host's byte order; AF values are small, so the order
            // shows itself.
            let family = be32(bytes, 0);
            loopback(if family > 0xffff { family.swap_bytes() } else { family }, bytes)
        }
        LinkType::LOOP => {
            need(bytes, 4)?;
            loopback(be32(bytes, 0), bytes)
        }
        LinkType::IPV4 => Ok((EtherType::IPV4, bytes)),
        LinkType::IPV6 => Ok((EtherType::IPV6, bytes)),
        LinkType::RAW => match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Ok((EtherType::IPV4, bytes)),
            Some(6) => Ok((EtherType::IPV6, bytes)),
            Some(version) => {
                let expected = Expected::Words("IP version 4 or 6");
                Err(ParseError::new("version", 0, expected, version.into()))
            }
            None => Err(ParseError::short(1, 0)),
        },
        other => {
            let expected = Expected::Words("a link type with IP");
            Err(ParseError::new("link type", 0, expected, other.0.into()))
        }
    }
}

fn untag(
    mut ether_type: EtherType,
    mut at: usize,
    bytes: &[u8],
) -> Result<(EtherType, &[u8]), ParseError> {
    for _ in 0..=VlanTag::DEPTH_MAX {
        match ether_type {
            EtherType::VLAN | EtherType::SERVICE_VLAN | EtherType::OLD_SERVICE_VLAN => {
                ether_type = VlanTag::parse(need(bytes, at)?)?.ether_type;
                at += VlanTag::SIZE;
            }
            _ => return Ok((ether_type, need(bytes, at)?)),
        }
    }
    let expected = Expected::Words("at most 4 VLAN tags");
    Err(ParseError::new("EtherType", at, expected, ether_type.0.into()))
}

fn loopback(family: u32, bytes: &[u8]) -> Result<(EtherType, &[u8]), ParseError> {
    match family {
        2 => Ok((EtherType::IPV4, &bytes[4..])),
        // AF_INET6 on Linux, NetBSD, FreeBSD and macOS.
        10 | 24 | 28 | 30 => Ok((EtherType::IPV6, &bytes[4..])),
        family => {
            let expected = Expected::Words("an IP address family");
            Err(ParseError::new("family", 0, expected, family.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 14] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00];

    #[test]
    fn header_both_ways() {
        let header = EthernetHeader::parse(&FRAME).unwrap();
        assert_eq!(header.emit(), FRAME);
        assert_eq!(header.to_string(), "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff IPv4");
        assert_eq!(EthernetHeader::parse(&FRAME[..13]), Err(ParseError::short(14, 13)));
    }

    #[test]
    fn mac_addresses_both_ways() {
        let mac = MacAddress([0x02, 0, 0, 0xab, 0, 1]);
        assert_eq!("02:00:00:ab:00:01".parse(), Ok(mac));
        assert_eq!("02-00-00-AB-00-01".parse(), Ok(mac));
        assert_eq!(MacAddress::from_u64(mac.to_u64()), mac);
        assert_eq!(mac.to_u64(), 0x0200_00ab_0001);
        assert!(MacAddress::BROADCAST.is_group() && !mac.is_group());
        let offset = |text: &str| text.parse::<MacAddress>().unwrap_err().offset;
        assert_eq!(offset("02:00:00:ab:00:0g"), 16);
        assert_eq!(offset("02:00.00:ab:00:01"), 5);
        assert_eq!(offset("02:00:00:ab:00:1"), 0);
    }

    #[test]
    fn tag_both_ways() {
        let tag = VlanTag::parse(&[0xb0, 0x64, 0x86, 0xdd]).unwrap();
        assert_eq!((tag.priority, tag.drop_eligible, tag.id), (5, true, 100));
        assert_eq!(tag.emit(), [0xb0, 0x64, 0x86, 0xdd]);
        assert_eq!(tag.to_string(), "vlan 100 p 5 IPv6");
    }

    #[test]
    fn network_layer_behind_any_link() {
        let ip = [0x45, 1, 2, 3];
        let behind = |link, head: &[u8]| {
            let bytes = [head, &ip].concat();
            network(link, &bytes).map(|(kind, rest)| (kind, rest.to_vec()))
        };
        let expected = Ok((EtherType::IPV4, ip.to_vec()));
        assert_eq!(behind(LinkType::ETHERNET, &FRAME), expected);
        let tagged = [&FRAME[..12], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
        assert_eq!(behind(LinkType::ETHERNET, &tagged), expected);
        let sll = [0, 0, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        assert_eq!(behind(LinkType::LINUX_SLL, &sll), expected);
        let mut sll2 = [0; 20];
        sll2[0] = 8;
        assert_eq!(behind(LinkType::LINUX_SLL2, &sll2), expected);
        assert_eq!(behind(LinkType::NULL, &[2, 0, 0, 0]), expected);
        assert_eq!(behind(LinkType::NULL, &[0, 0, 0, 2]), expected);
        assert_eq!(behind(LinkType::LOOP, &[0, 0, 0, 2]), expected);
        assert_eq!(behind(LinkType::RAW, &[]), expected);
        assert_eq!(behind(LinkType::IPV4, &[]), expected);
    }

    #[test]
    fn refused_links_name_the_field() {
        let field = |link, bytes: &[u8]| network(link, bytes).unwrap_err().field;
        assert_eq!(field(LinkType(9), &FRAME), "link type");
        assert_eq!(field(LinkType::RAW, &[0x75]), "version");
        assert_eq!(field(LinkType::LOOP, &[0, 0, 0, 9]), "family");
        let mut deep = FRAME[..12].to_vec();
        for _ in 0..6 {
            deep.extend([0x81, 0, 0, 1]);
        }
        assert_eq!(field(LinkType::ETHERNET, &deep), "EtherType");
        assert_eq!(field(LinkType::LINUX_SLL2, &[0; 19]), "length");
    }
}
