//! Ethernet: addresses, what a frame carries, and how long its head is.
//!
//! ```text
//!   0  destination   6  source   12  EtherType   14  payload
//!   0  destination   6  source   12  8100h   14  PCP, DEI, VID   16  EtherType   18  payload
//! ```
//! Frames are opened and built in one step each where links live (crate `contract`); [`Header`] and
//! [`Tagged`] are for those who carry frames of others or look at them. Units: bytes. Errors: what
//! ends early. Big-endian. Spec: IEEE 802.3, 802.1Q, 802.1D (reserved addresses).

use core::fmt;

use crate::field::be16;
use crate::{Expected, ParseError};

/// Bytes in front of the payload of a frame without a VLAN tag.
pub const HEADER_SIZE: usize = 14;
/// Bytes by which a VLAN tag makes it longer.
pub const VLAN_TAG_SIZE: usize = 4;
/// The shortest payload, without a check sequence; what is shorter is padded with zeros. One with a
/// tag is as long: without its tag it is still a frame.
pub const PAYLOAD_MIN: usize = 46;
/// What a frame takes on the wire besides its bytes: preamble and start delimiter 8, check sequence 4,
/// and 12 until the next one may begin.
pub const AROUND_FRAME: usize = 8 + 4 + 12;

codes! {
    /// What an Ethernet frame carries.
    pub struct EtherType(u16) {
        IPV4 = 0x0800 "IPv4",
        TRANSPARENT_ETHERNET = 0x6558 "transparent Ethernet",
        VLAN = 0x8100 "802.1Q",
        IPV6 = 0x86dd "IPv6",
        MAC_CONTROL = 0x8808 "MAC control",
        SLOW_PROTOCOLS = 0x8809 "slow protocols",
        MPLS = 0x8847 "MPLS",
        MPLS_UPSTREAM = 0x8848 "MPLS upstream-assigned",
        AOE = 0x88a2 "AoE",
        SERVICE_VLAN = 0x88a8 "802.1ad",
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

stands_as!(MacAddress([u8; 6]));

impl MacAddress {
    /// To everybody.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names a group of stations: no frame may come from such an address.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it is one of 01:80:c2:00:00:00 to 0f, which no bridge forwards: PAUSE, LACP and others
    /// between the two ends of a cable.
    #[inline]
    pub const fn is_bridge_reserved(self) -> bool {
        self.to_u64() >> 4 == 0x0180_c200_0000 >> 4
    }

    /// The address as a number, for comparisons in one step.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address of a number; what exceeds 48 bits is cut.
    #[inline]
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

layout! {
    big_endian:
    /// The header of a frame without a VLAN tag, or the one around its tag.
    pub struct Header[14] {
        /// Whom it is for.
        0 => destination: MacAddress,
        /// Who sent it.
        6 => source: MacAddress,
        /// What it carries.
        12 => ether_type: EtherType,
    }
}

impl Header {
    /// Takes the header off: it, and the bytes behind it.
    #[inline]
    pub fn pop(frame: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        Ok((Self::parse(frame)?, &frame[Self::SIZE..]))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.source, self.destination, self.ether_type)
    }
}

bits! {
    /// TCI: what a VLAN tag says.
    pub struct TagControl(u16) {
        fields {
            /// VID: the VLAN; 0 only tells a priority.
            vid / with_vid: 0, 12;
            /// PCP: the class of service.
            priority / with_priority: 13, 3;
        }
        flags {
            /// DEI: to be dropped before others.
            is_drop_eligible / with_drop_eligible: 12;
        }
    }
}

layout! {
    big_endian:
    /// A VLAN tag, as it stands behind the addresses.
    pub struct VlanTag[4] {
        /// TPID: [`EtherType::VLAN`], or [`EtherType::SERVICE_VLAN`] of the outer of two.
        0 => ether_type: EtherType,
        /// What it says.
        2 => control: TagControl,
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = self.control;
        write!(f, "{} vid {} priority {}", self.ether_type, control.vid(), control.priority())?;
        if control.is_drop_eligible() { f.write_str(" DEI") } else { Ok(()) }
    }
}

/// A frame, cut where its outermost VLAN tag is or belongs: `addresses`, the tag, `rest` is the
/// frame with it, `addresses` and `rest` the frame without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged<'a> {
    /// Destination and source.
    pub addresses: &'a [u8; 12],
    /// The tag, if there is one.
    pub tag: Option<VlanTag>,
    /// What stands behind it, from an EtherType on.
    pub rest: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// Cuts a frame; the only error is one that ends before its EtherType does.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        let cut = frame.split_first_chunk().filter(|(_, rest)| rest.len() >= 2);
        let Some((addresses, rest)) = cut else {
            return Err(ParseError::short(HEADER_SIZE, frame.len()));
        };
        let ether_type = EtherType(be16(rest, 0));
        if ether_type != EtherType::VLAN && ether_type != EtherType::SERVICE_VLAN {
            return Ok(Self { addresses, tag: None, rest });
        }
        match rest.split_at_checked(VLAN_TAG_SIZE).filter(|(_, rest)| rest.len() >= 2) {
            Some((tag, rest)) => Ok(Self { addresses, tag: Some(VlanTag::parse(tag)?), rest }),
            None => Err(ParseError::short(HEADER_SIZE + VLAN_TAG_SIZE, frame.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To 02:00:00:00:00:01 from 02:00:00:00:00:02.
    const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    #[test]
    fn a_header_both_ways() {
        let bytes = [&ADDRESSES[..], &[0x88, 0x48, 7]].concat();
        let header = Header {
            destination: MacAddress([2, 0, 0, 0, 0, 1]),
            source: MacAddress([2, 0, 0, 0, 0, 2]),
            ether_type: EtherType::MPLS_UPSTREAM,
        };
        assert_eq!(Header::pop(&bytes), Ok((header, &[7][..])));
        assert_eq!(header.emit(), bytes[..14]);
        assert_eq!(
            header.to_string(),
            "02:00:00:00:00:02 > 02:00:00:00:00:01 MPLS upstream-assigned"
        );
        assert_eq!(Header::pop(&bytes[..13]), Err(ParseError::short(14, 13)));
    }

    #[test]
    fn a_tag_both_ways() {
        let tag = VlanTag {
            ether_type: EtherType::VLAN,
            control: TagControl(0).with_vid(0xabc).with_priority(5),
        };
        assert_eq!(tag.emit(), [0x81, 0, 0xaa, 0xbc]);
        assert_eq!(VlanTag::parse(&tag.emit()), Ok(tag));
        assert_eq!(tag.to_string(), "802.1Q vid 2748 priority 5");
        let control = TagControl(0).with_drop_eligible(true);
        let tag = VlanTag { ether_type: EtherType::SERVICE_VLAN, control };
        assert_eq!(tag.emit(), [0x88, 0xa8, 0x10, 0]);
        assert_eq!(tag.to_string(), "802.1ad vid 0 priority 0 DEI");
    }

    #[test]
    fn a_frame_is_cut_at_its_outermost_tag() {
        let plain = [&ADDRESSES[..], &[0x88, 0xa2, 9]].concat();
        let cut = Tagged::parse(&plain).unwrap();
        assert_eq!((cut.addresses, cut.tag, cut.rest), (&ADDRESSES, None, &plain[12..]));
        for (outer, inner) in [([0x81, 0], [0x88, 0xa2]), ([0x88, 0xa8], [0x81, 0])] {
            let frame = [&ADDRESSES[..], &outer, &[0, 7], &inner, &[1]].concat();
            let cut = Tagged::parse(&frame).unwrap();
            let tag = cut.tag.unwrap();
            assert_eq!((tag.control.vid(), cut.rest), (7, &[inner[0], inner[1], 1][..]));
            // Put together again it is the same frame.
            assert_eq!([&cut.addresses[..], &tag.emit(), cut.rest].concat(), frame);
            for length in 14..18 {
                let seen = Tagged::parse(&frame[..length]);
                assert_eq!(seen, Err(ParseError::short(18, length)));
            }
        }
        for length in 0..14 {
            assert_eq!(Tagged::parse(&plain[..length]), Err(ParseError::short(14, length)));
        }
    }

    #[test]
    fn what_no_bridge_forwards() {
        let mac = |text: &str| text.parse::<MacAddress>().unwrap();
        for (text, reserved) in [
            ("01:80:c2:00:00:00", true),
            ("01:80:c2:00:00:01", true),
            ("01:80:c2:00:00:02", true),
            ("01:80:c2:00:00:0f", true),
            ("01:80:c2:00:00:10", false),
            ("01:80:c1:ff:ff:ff", false),
            ("00:80:c2:00:00:01", false),
            ("ff:ff:ff:ff:ff:ff", false),
        ] {
            assert_eq!(mac(text).is_bridge_reserved(), reserved, "{text}");
        }
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
}
