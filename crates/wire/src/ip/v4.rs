//! The IPv4 header.
//!
//! ```text
//!   0  version << 4 | IHL   1  DSCP << 2 | ECN   2  total length   4  identification
//!   6  DF, MF, fragment offset   8  TTL   9  protocol   10  checksum   12  source   16  destination
//!  20  options, up to 4 * IHL
//! ```
//! Spec: RFC 791 clause 3.1, RFC 2474 and 3168 (DSCP, ECN), RFC 6864 (identification).

use core::fmt;
use core::net::Ipv4Addr;

use super::{Protocol, PseudoHeader};
use crate::checksum::Checksum;
use crate::{Expected, ParseError};

bits! {
    /// The first byte.
    pub struct VersionLength(u8) {
        fields {
            /// 4.
            version / with_version: 4, 4;
            /// IHL: the header in units of 4 bytes, at least 5.
            length / with_length: 0, 4;
        }
        flags {}
    }
}

bits! {
    /// Whether the packet is, or may become, a fragment.
    pub struct FragmentField(u16) {
        fields {
            /// Where in the whole it belongs, in units of 8 bytes.
            offset / with_offset: 0, 13;
        }
        flags {
            /// DF: it must not be cut.
            dont_fragment / with_dont_fragment: 14;
            /// MF: others follow it.
            more_fragments / with_more_fragments: 13;
        }
    }
}

layout! {
    big_endian:
    /// An IPv4 header without options.
    pub struct Ipv4Header[20] {
        /// Version and IHL.
        0 => version_length: VersionLength,
        /// DSCP and ECN, as IPv6 calls them.
        1 => traffic_class: u8,
        /// Bytes of the packet, header included.
        2 => total_length: u16,
        /// Which fragments belong together.
        4 => identification: u16,
        /// Flags and fragment offset.
        6 => fragment: FragmentField,
        /// TTL: hops that are left.
        8 => ttl: u8,
        /// What the packet carries.
        9 => protocol: Protocol,
        /// Over the header.
        10 => checksum: u16,
        /// Who sends it.
        12 => source: Ipv4Addr,
        /// Whom it is for.
        16 => destination: Ipv4Addr,
    }
}

impl Ipv4Header {
    /// Bytes of the largest payload.
    pub const PAYLOAD_MAX: usize = u16::MAX as usize - Self::SIZE;

    /// The header of a packet that must not be cut (DF), its checksum right. Panics if the payload is
    /// larger than [`Self::PAYLOAD_MAX`], which no MTU allows.
    pub fn new(
        protocol: Protocol,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        ttl: u8,
        traffic_class: u8,
        payload_length: usize,
    ) -> Self {
        assert!(payload_length <= Self::PAYLOAD_MAX, "an IPv4 packet of {payload_length} bytes");
        let header = Self {
            version_length: VersionLength(0).with_version(4).with_length(Self::SIZE as u8 / 4),
            traffic_class,
            total_length: (Self::SIZE + payload_length) as u16,
            identification: 0,
            fragment: FragmentField(0).with_dont_fragment(true),
            ttl,
            protocol,
            checksum: 0,
            source,
            destination,
        };
        Self { checksum: Checksum::default().with(&header.emit()).finish(), ..header }
    }

    /// Takes the header and its options off a packet: it, and its payload without padding. Errors:
    /// what ends early, another version, lengths that contradict each other or go beyond the bytes,
    /// a wrong checksum.
    #[inline]
    pub fn pop(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let header = Self::parse(bytes)?;
        let wrong = |field, at, expected, seen| Err(ParseError::new(field, at, expected, seen));
        let (version, ihl) = (header.version_length.version(), header.version_length.length());
        let (size, total) = (usize::from(ihl) * 4, usize::from(header.total_length));
        if version != 4 {
            return wrong("version", 0, Expected::Exactly(4), version.into());
        }
        if size < Self::SIZE {
            return wrong("IHL", 0, Expected::AtLeast(Self::SIZE as u64 / 4), ihl.into());
        }
        if total < size {
            return wrong("total length", 2, Expected::AtLeast(size as u64), total as u64);
        }
        if total > bytes.len() {
            return wrong("total length", 2, Expected::AtMost(bytes.len() as u64), total as u64);
        }
        let sum = Checksum::default().with(&bytes[..size]);
        if sum.finish() != 0 {
            let zeroed = Checksum::default().with(&bytes[..10]).with(&bytes[12..size]).finish();
            let expected = Expected::Exactly(zeroed.into());
            return wrong("header checksum", 10, expected, header.checksum.into());
        }
        Ok((header, &bytes[size..total]))
    }

    /// Whether the packet is a part of another one.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.more_fragments() || self.fragment.offset() != 0
    }

    /// What checksums above it cover of it.
    #[inline]
    pub const fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::V4(self.source, self.destination)
    }
}

impl fmt::Display for Ipv4Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {} {} ttl {} length {}",
            self.source, self.destination, self.protocol, self.ttl, self.total_length
        )?;
        if self.is_fragment() {
            write!(f, " fragment at {}", u32::from(self.fragment.offset()) * 8)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header by which IPv4's checksum is commonly explained; its payload is 95 bytes.
    const HEADER: [u8; 20] = [
        0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
        0xc7,
    ];

    /// A packet with these bytes changed and its checksum made right again.
    fn changed(mut packet: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
        for (at, byte) in changes {
            packet[*at] = *byte;
        }
        let size = usize::from(packet[0] & 0xf) * 4;
        packet[10..12].fill(0);
        let sum = Checksum::default().with(&packet[..size.min(packet.len())]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn packet() -> Vec<u8> {
        [&HEADER[..], &[7; 95]].concat()
    }

    fn refusal(bytes: &[u8]) -> String {
        Ipv4Header::pop(bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_header_both_ways() {
        let (source, destination) = ([192, 168, 0, 1].into(), [192, 168, 0, 199].into());
        let header = Ipv4Header::new(Protocol::UDP, source, destination, 64, 0, 95);
        assert_eq!(header.emit(), HEADER);
        assert_eq!(Ipv4Header::pop(&packet()), Ok((header, &[7; 95][..])));
        assert_eq!(header.to_string(), "192.168.0.1 > 192.168.0.199 UDP ttl 64 length 115");
    }

    #[test]
    fn padding_is_no_payload() {
        let padded = [packet(), vec![0; 9]].concat();
        assert_eq!(Ipv4Header::pop(&padded).unwrap().1.len(), 95);
    }

    #[test]
    fn options_are_passed_over() {
        let mut bytes = packet();
        bytes[20..24].copy_from_slice(&[1, 1, 1, 0]);
        let bytes = changed(bytes, &[(0, 0x46)]);
        assert_eq!(Ipv4Header::pop(&bytes).unwrap().1, [7; 91]);
        // The checksum covers them.
        let mut bytes = bytes;
        bytes[20] = 2;
        assert!(refusal(&bytes).starts_with("header checksum at byte 10"));
    }

    #[test]
    fn fragments_are_recognised() {
        for (high, low, is_fragment) in
            [(0x40, 0, false), (0, 0, false), (0x20, 0, true), (0, 1, true), (0x1f, 0xff, true)]
        {
            let bytes = changed(packet(), &[(6, high), (7, low)]);
            let (header, _) = Ipv4Header::pop(&bytes).unwrap();
            assert_eq!(header.is_fragment(), is_fragment, "{high:#x} {low:#x}");
        }
        let bytes = changed(packet(), &[(6, 0x3f), (7, 0xff)]);
        let text = Ipv4Header::pop(&bytes).unwrap().0.to_string();
        assert!(text.ends_with(" fragment at 65528"), "{text}");
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let mut bytes = packet();
        bytes[8] -= 1;
        assert_eq!(
            refusal(&bytes),
            "header checksum at byte 10: expected 47457, seen 47201 (0xb861)"
        );
        // A hop that counts the TTL down and computes anew is right.
        assert!(Ipv4Header::pop(&changed(bytes, &[])).is_ok());
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for (changes, refused) in [
            (&[(0, 0x65)][..], "version at byte 0: expected 4, seen 6 (0x6)"),
            (&[(0, 0x44)], "IHL at byte 0: expected at least 5, seen 4 (0x4)"),
            (&[(3, 19)], "total length at byte 2: expected at least 20, seen 19 (0x13)"),
            (&[(0, 0x4f), (3, 59)], "total length at byte 2: expected at least 60, seen 59 (0x3b)"),
            (&[(3, 116)], "total length at byte 2: expected at most 115, seen 116 (0x74)"),
        ] {
            assert_eq!(refusal(&changed(packet(), changes)), refused);
        }
        for length in 0..20 {
            assert_eq!(Ipv4Header::pop(&HEADER[..length]), Err(ParseError::short(20, length)));
        }
    }

    #[test]
    #[should_panic(expected = "an IPv4 packet of 65516 bytes")]
    fn a_payload_that_no_length_counts_is_our_mistake() {
        let nobody = Ipv4Addr::UNSPECIFIED;
        Ipv4Header::new(Protocol::UDP, nobody, nobody, 1, 0, 65_516);
    }
}
