//! The IPv6 header.
//!
//! ```text
//!   0  version << 28 | traffic class << 20 | flow label   4  payload length   6  next header
//!   7  hop limit   8  source   24  destination
//! ```
//! Spec: RFC 8200 clause 3; the flow label as entropy of a tunnel: RFC 6438.

use core::fmt;
use core::net::Ipv6Addr;

use super::{Protocol, PseudoHeader};
use crate::{Expected, ParseError};

bits! {
    /// The first four bytes.
    pub struct VersionClassFlow(u32) {
        fields {
            /// 6.
            version / with_version: 28, 4;
            /// DSCP and ECN.
            traffic_class / with_traffic_class: 20, 8;
            /// What routers may spread flows by.
            flow_label / with_flow_label: 0, 20;
        }
        flags {}
    }
}

layout! {
    big_endian:
    /// An IPv6 header.
    pub struct Ipv6Header[40] {
        /// Version, traffic class and flow label.
        0 => version_class_flow: VersionClassFlow,
        /// Bytes behind the header.
        4 => payload_length: u16,
        /// What the packet carries, an extension header perhaps.
        6 => next_header: Protocol,
        /// Hops that are left.
        7 => hop_limit: u8,
        /// Who sends it.
        8 => source: Ipv6Addr,
        /// Whom it is for.
        24 => destination: Ipv6Addr,
    }
}

impl Ipv6Header {
    /// The header of a packet. Panics if the payload is larger than 65535 bytes, which no MTU allows.
    pub fn new(
        next_header: Protocol,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        traffic_class: u8,
        payload_length: usize,
    ) -> Self {
        assert!(payload_length <= u16::MAX.into(), "an IPv6 payload of {payload_length} bytes");
        Self {
            version_class_flow: VersionClassFlow(0)
                .with_version(6)
                .with_traffic_class(traffic_class.into()),
            payload_length: payload_length as u16,
            next_header,
            hop_limit,
            source,
            destination,
        }
    }

    /// Takes the header off a packet: it, and its payload without padding. Errors: what ends early,
    /// another version, a length beyond the bytes.
    #[inline]
    pub fn pop(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let header = Self::parse(bytes)?;
        let version = header.version_class_flow.version();
        if version != 6 {
            return Err(ParseError::new("version", 0, Expected::Exactly(6), version.into()));
        }
        let (length, available) = (header.payload_length.into(), bytes.len() - Self::SIZE);
        match bytes[Self::SIZE..].get(..length) {
            Some(payload) => Ok((header, payload)),
            None => {
                let expected = Expected::AtMost(available as u64);
                Err(ParseError::new("payload length", 4, expected, length as u64))
            }
        }
    }

    /// What checksums above it cover of it, if no extension header changes the destination.
    #[inline]
    pub const fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::V6(self.source, self.destination)
    }
}

impl fmt::Display for Ipv6Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {} {} hop limit {} length {}",
            self.source, self.destination, self.next_header, self.hop_limit, self.payload_length
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv6Header {
        let (source, destination) = ("fe80::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut header = Ipv6Header::new(Protocol::GRE, source, destination, 64, 0xb8, 5);
        header.version_class_flow = header.version_class_flow.with_flow_label(0xf_ffff);
        header
    }

    #[test]
    fn a_header_both_ways() {
        let bytes = header().emit();
        assert_eq!(bytes[..10], [0x6b, 0x8f, 0xff, 0xff, 0, 5, 47, 64, 0xfe, 0x80]);
        assert_eq!((bytes[23], &bytes[24..28], bytes[39]), (1, &[0x20, 1, 0x0d, 0xb8][..], 2));
        let packet = [&bytes[..], &[9; 12]].concat();
        assert_eq!(Ipv6Header::pop(&packet), Ok((header(), &[9; 5][..])));
        assert_eq!(header().to_string(), "fe80::1 > 2001:db8::2 GRE hop limit 64 length 5");
    }

    #[test]
    fn what_ends_too_early_is_refused() {
        let bytes = header().emit();
        for length in 0..40 {
            assert_eq!(Ipv6Header::pop(&bytes[..length]), Err(ParseError::short(40, length)));
        }
        assert_eq!(
            Ipv6Header::pop(&[&bytes[..], &[9; 4]].concat()).unwrap_err().to_string(),
            "payload length at byte 4: expected at most 4, seen 5 (0x5)"
        );
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = header().emit();
        bytes[0] = 0x45;
        let error = Ipv6Header::pop(&bytes).unwrap_err();
        assert_eq!(error, ParseError::new("version", 0, Expected::Exactly(6), 4));
    }
}
