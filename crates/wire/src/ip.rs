//! IPv4 and IPv6: from the network layer of a captured packet to its transport.
//!
//! A capture may hold less than a packet announces (snap length) or announce nothing (segmentation
//! offload leaves the total length 0): [`Packet`] keeps both lengths. Fragments are told, not
//! reassembled. Big-endian. Spec: RFC 791, RFC 8200.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ethernet::EtherType;
use crate::field::{be16, be32, need};
use crate::{Expected, ParseError};

codes! {
    /// Protocol or next header.
    pub struct Protocol(u8) {
        HOP_BY_HOP = 0 "hop-by-hop",
        ICMP = 1 "ICMP",
        TCP = 6 "TCP",
        UDP = 17 "UDP",
        ROUTING = 43 "routing",
        FRAGMENT = 44 "fragment",
        GRE = 47 "GRE",
        AUTHENTICATION = 51 "AH",
        ICMPV6 = 58 "ICMPv6",
        DESTINATION = 60 "destination options",
        L2TP = 115 "L2TPv3",
    }
}

/// What a packet of either version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// From whom.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// What the payload is.
    pub protocol: Protocol,
    /// Fragment offset in bytes and whether more follow; `None` for a whole packet.
    pub fragment: Option<(u32, bool)>,
    /// Bytes of payload as announced; as captured where nothing is announced.
    pub payload_length: usize,
    /// The payload as captured, without Ethernet padding.
    pub payload: &'a [u8],
}

/// Most IPv6 extension headers followed.
const EXTENSIONS_MAX: usize = 8;

impl<'a> Packet<'a> {
    /// Reads a packet of the version `ether_type` announces.
    pub fn parse(ether_type: EtherType, bytes: &'a [u8]) -> Result<Self, ParseError> {
        match ether_type {
            EtherType::IPV4 => Self::parse_v4(bytes),
            EtherType::IPV6 => Self::parse_v6(bytes),
            other => {
                let expected = Expected::Words("IPv4 or IPv6");
                Err(ParseError::new("EtherType", 0, expected, other.0.into()))
            }
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Ipv4Header::parse(bytes)?;
        let captured = need(bytes, header.header_length.into())?;
        let payload_length = match usize::from(header.total_length) {
            0 => captured.len(),
            total => total - usize::from(header.header_length),
        };
        let fragmented = header.more_fragments || header.fragment_offset != 0;
        Ok(Self {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol: header.protocol,
            fragment: fragmented.then_some((header.fragment_offset, header.more_fragments)),
            payload_length,
            payload: &captured[..captured.len().min(payload_length)],
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Ipv6Header::parse(bytes)?;
        let mut rest = &bytes[Ipv6Header::SIZE..];
        let mut left = match usize::from(header.payload_length) {
            0 => rest.len(),
            length => length,
        };
        rest = &rest[..rest.len().min(left)];
        let mut protocol = header.next_header;
        let mut fragment = None;
        for _ in 0..EXTENSIONS_MAX {
            let length = match (protocol, rest) {
                (
                    Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION,
                    [_, length, ..],
                ) => (usize::from(*length) + 1) * 8,
                (Protocol::AUTHENTICATION, [_, length, ..]) => (usize::from(*length) + 2) * 4,
                (Protocol::FRAGMENT, [_, _, high, low, ..]) => {
                    let word = u16::from_be_bytes([*high, *low]);
                    fragment = Some(((word & 0xfff8).into(), word & 1 != 0));
                    8
                }
                _ => break,
            };
            protocol = Protocol(rest[0]);
            rest = need(rest, length)?;
            left = left.saturating_sub(length);
            // Behind a later fragment's header lies the middle of something.
            if matches!(fragment, Some((offset, _)) if offset != 0) {
                break;
            }
        }
        Ok(Self {
            source: header.source.into(),
            destination: header.destination.into(),
            protocol,
            fragment,
            payload_length: left,
            payload: rest,
        })
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {} {} length {}",
            self.source, self.destination, self.protocol, self.payload_length
        )
    }
}

/// The IPv4 header, options skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Bytes of the header with its options, 20 to 60.
    pub header_length: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Bytes of the packet; 0 where offload was to fill it in.
    pub total_length: u16,
    /// Identification.
    pub identification: u16,
    /// DF.
    pub do_not_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// Bytes, a multiple of 8.
    pub fragment_offset: u32,
    /// Time to live.
    pub ttl: u8,
    /// What follows.
    pub protocol: Protocol,
    /// Header checksum as seen; `emit` computes its own.
    pub checksum: u16,
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
}

impl Ipv4Header {
    /// Size without options, in bytes.
    pub const SIZE: usize = 20;

    /// Reads the header. Errors: short, another version, a header length below 20, a total length
    /// below the header's. The checksum is not checked: offload leaves it undone.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        need(bytes, Self::SIZE)?;
        let version = bytes[0] >> 4;
        if version != 4 {
            let expected = Expected::Exactly(4);
            return Err(ParseError::new("version", 0, expected, version.into()));
        }
        let header_length = (bytes[0] & 0xf) * 4;
        if usize::from(header_length) < Self::SIZE {
            let seen = header_length.into();
            return Err(ParseError::new("IHL", 0, Expected::AtLeast(20), seen));
        }
        let total_length = be16(bytes, 2);
        if total_length != 0 && total_length < header_length.into() {
            let expected = Expected::AtLeast(header_length.into());
            let seen = total_length.into();
            return Err(ParseError::new("total length", 2, expected, seen));
        }
        let fragment = be16(bytes, 6);
        Ok(Self {
            header_length,
            traffic_class: bytes[1],
            total_length,
            identification: be16(bytes, 4),
            do_not_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: u32::from(fragment & 0x1fff) * 8,
            ttl: bytes[8],
            protocol: Protocol(bytes[9]),
            checksum: be16(bytes, 10),
            source: be32(bytes, 12).into(),
            destination: be32(bytes, 16).into(),
        })
    }

    /// The header without options (`header_length` is written as 20), its checksum computed.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = 0x45;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&self.total_length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        let fragment = u16::from(self.do_not_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | (self.fragment_offset / 8) as u16 & 0x1fff;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol.0;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..].copy_from_slice(&self.destination.octets());
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// The internet checksum of `bytes`, RFC 1071; 0 over a header that holds its right checksum.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    if let [last] = odd {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Bytes behind this header; 0 for a jumbogram or where offload was to fill it in.
    pub payload_length: u16,
    /// What follows.
    pub next_header: Protocol,
    /// Time to live.
    pub hop_limit: u8,
    /// From whom.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// Size in bytes.
    pub const SIZE: usize = 40;

    /// Reads the header. Errors: short, another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        need(bytes, Self::SIZE)?;
        let first = be32(bytes, 0);
        if first >> 28 != 6 {
            let expected = Expected::Exactly(6);
            let seen = (first >> 28).into();
            return Err(ParseError::new("version", 0, expected, seen));
        }
        let address = |at: usize| -> Ipv6Addr {
            let octets: [u8; 16] = core::array::from_fn(|index| bytes[at + index]);
            octets.into()
        };
        Ok(Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_length: be16(bytes, 4),
            next_header: Protocol(bytes[6]),
            hop_limit: bytes[7],
            source: address(8),
            destination: address(24),
        })
    }

    /// The header as bytes; the flow label is cut to 20 bits.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        bytes[6] = self.next_header.0;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..].copy_from_slice(&self.destination.octets());
        bytes
    }
}

impl fmt::Display for Ipv4Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.source, self.destination);
        write!(f, "{from} > {to} {} ttl {} length {}", self.protocol, self.ttl, self.total_length)
    }
}

impl fmt::Display for Ipv6Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.source, self.destination);
        let (next, hops) = (self.next_header, self.hop_limit);
        write!(f, "{from} > {to} {next} hlim {hops} length {}", self.payload_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of "Internet checksum" on Wikipedia: a UDP packet, checksum 0xb861.
    const V4: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn ipv4_both_ways_with_checksum() {
        let header = Ipv4Header::parse(&V4).unwrap();
        assert_eq!(header.emit(), V4);
        assert_eq!(checksum(&V4), 0);
        assert_eq!(header.to_string(), "192.168.0.1 > 192.168.0.199 UDP ttl 64 length 115");
    }

    #[test]
    fn ipv4_refusals_name_the_field() {
        let with = |at: usize, byte| {
            let mut bytes = V4;
            bytes[at] = byte;
            Ipv4Header::parse(&bytes).unwrap_err().field
        };
        assert_eq!(with(0, 0x65), "version");
        assert_eq!(with(0, 0x44), "IHL");
        assert_eq!(with(3, 19), "total length");
        assert_eq!(Ipv4Header::parse(&V4[..19]).unwrap_err().field, "length");
        assert!(Packet::parse(EtherType::AOE, &V4).is_err());
    }

    #[test]
    fn ethernet_padding_is_cut_and_offload_length_is_believed() {
        let mut bytes = [0u8; 46];
        bytes[..20].copy_from_slice(&V4);
        bytes[3] = 22;
        let packet = Packet::parse(EtherType::IPV4, &bytes).unwrap();
        assert_eq!((packet.payload_length, packet.payload.len()), (2, 2));
        bytes[3] = 0;
        let packet = Packet::parse(EtherType::IPV4, &bytes).unwrap();
        assert_eq!(packet.payload.len(), 26);
    }

    #[test]
    fn ipv6_both_ways_and_extensions_skipped() {
        let header = Ipv6Header {
            traffic_class: 0xb8,
            flow_label: 0x12345,
            payload_length: 8 + 8 + 3,
            next_header: Protocol::HOP_BY_HOP,
            hop_limit: 64,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        };
        assert_eq!(Ipv6Header::parse(&header.emit()), Ok(header));
        assert_eq!(header.to_string(), "::1 > ::1 hop-by-hop hlim 64 length 19");
        let mut bytes = header.emit().to_vec();
        bytes.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([6, 0, 0, 1, 0, 0, 0, 7]);
        bytes.extend([1, 2, 3]);
        let packet = Packet::parse(EtherType::IPV6, &bytes).unwrap();
        assert_eq!(packet.protocol, Protocol::TCP);
        assert_eq!(packet.fragment, Some((0, true)));
        assert_eq!((packet.payload_length, packet.payload), (3, &[1, 2, 3][..]));
        bytes[41] = 9;
        assert!(Packet::parse(EtherType::IPV6, &bytes).is_err());
        bytes[0] = 0x45;
        assert_eq!(Ipv6Header::parse(&bytes).unwrap_err().field, "version");
    }
}
