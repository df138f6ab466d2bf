//! UDP: ports, length and checksum in front of what a tunnel sends.
//!
//! ```text
//!   0  source port   2  destination port   4  length, header included   6  checksum
//! ```
//! In: the payload of an IP packet, which [`Header::pop`] takes the header off. Units: bytes. Errors:
//! a length below 8 or beyond the packet, a wrong checksum; whether there may be none, which over
//! IPv6 is for tunnels alone (RFC 6935), is up to whoever knows the port. Big-endian. Spec: RFC 768.

use core::fmt;

use crate::checksum::Checksum;
use crate::ip::{Protocol, PseudoHeader};
use crate::{Expected, ParseError};

layout! {
    big_endian:
    /// A UDP header.
    pub struct Header[8] {
        /// Whence: where answers go, or what routers spread a tunnel's flows by.
        0 => source_port: u16,
        /// Whereto.
        2 => destination_port: u16,
        /// Bytes of header and payload.
        4 => length: u16,
        /// Over pseudo-header, header and payload; 0: none.
        6 => checksum: u16,
    }
}

impl Header {
    /// A header without a checksum. Panics if header and payload are longer than 65535 bytes, which
    /// no MTU allows.
    pub fn new(source_port: u16, destination_port: u16, payload_length: usize) -> Self {
        let length = Self::SIZE + payload_length;
        assert!(length <= u16::MAX.into(), "a UDP datagram of {length} bytes");
        Self { source_port, destination_port, length: length as u16, checksum: 0 }
    }

    /// The same with a checksum, `payload` being the sum of all that stands behind the header.
    #[must_use]
    pub fn with_checksum(self, pseudo_header: PseudoHeader, payload: Checksum) -> Self {
        let header = Self { checksum: 0, ..self };
        let sum = pseudo_header.checksum(Protocol::UDP, self.length.into()).with(&header.emit());
        let checksum = match sum.with_sum(payload).finish() {
            // 0 would say that there is none; all ones are the same number.
            0 => 0xffff,
            checksum => checksum,
        };
        Self { checksum, ..self }
    }

    /// Takes the header off: it, and its payload. Errors: what ends early, a length that cannot be,
    /// a checksum that is there and wrong.
    #[inline]
    pub fn pop(bytes: &[u8], pseudo_header: PseudoHeader) -> Result<(Self, &[u8]), ParseError> {
        let header = Self::parse(bytes)?;
        let length = usize::from(header.length);
        let wrong = |expected| Err(ParseError::new("length", 4, expected, length as u64));
        if length < Self::SIZE {
            return wrong(Expected::AtLeast(Self::SIZE as u64));
        }
        let Some(payload) = bytes.get(Self::SIZE..length) else {
            return wrong(Expected::AtMost(bytes.len() as u64));
        };
        if header.checksum != 0 {
            let right = header.with_checksum(pseudo_header, Checksum::default().with(payload));
            if right != header {
                let expected = Expected::Exactly(right.checksum.into());
                return Err(ParseError::new("checksum", 6, expected, header.checksum.into()));
            }
        }
        Ok((header, payload))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} > {} length {}", self.source_port, self.destination_port, self.length)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const V4: PseudoHeader =
        PseudoHeader::V4(Ipv4Addr::new(192, 168, 0, 31), Ipv4Addr::new(192, 168, 0, 30));
    const V6: PseudoHeader = PseudoHeader::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);

    /// "Hi" from port 20 to port 10: C0A8 + 1F + C0A8 + 1E + 11 + A, then 14 + A + A + 4869, are
    /// 1 CA39, folded CA3A.
    const HI: [u8; 10] = [0, 20, 0, 10, 0, 10, 0x35, 0xc5, b'H', b'i'];

    fn sum(payload: &[u8]) -> Checksum {
        Checksum::default().with(payload)
    }

    #[test]
    fn a_header_with_a_checksum_both_ways() {
        let header = Header::new(20, 10, 2).with_checksum(V4, sum(b"Hi"));
        assert_eq!(header.emit(), HI[..8]);
        assert_eq!(Header::pop(&HI, V4), Ok((header, &b"Hi"[..])));
        assert_eq!(header.to_string(), "port 20 > 10 length 10");
    }

    #[test]
    fn a_header_without_a_checksum_both_ways() {
        let bytes = [&[0xc0, 1, 0x19, 0xeb, 0, 9, 0, 0][..], &[7]].concat();
        let header = Header::new(49_153, 6635, 1);
        assert_eq!(header.emit(), bytes[..8]);
        assert_eq!(Header::pop(&bytes, V4), Ok((header, &[7][..])));
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let mut bytes = HI;
        bytes[9] += 1;
        assert_eq!(
            Header::pop(&bytes, V4).unwrap_err().to_string(),
            "checksum at byte 6: expected 13764, seen 13765 (0x35c5)"
        );
        // The addresses are covered, too.
        assert!(Header::pop(&HI, V6).is_err());
    }

    #[test]
    fn a_checksum_of_0_is_sent_as_all_ones() {
        for pseudo_header in [V4, V6] {
            let header = Header::new(1, 2, 2);
            let without = header.with_checksum(pseudo_header, sum(&[0, 0])).checksum;
            // With this payload everything adds up to all ones.
            let payload = without.to_be_bytes();
            let header = header.with_checksum(pseudo_header, sum(&payload));
            assert_eq!(header.checksum, 0xffff);
            let bytes = [&header.emit()[..], &payload].concat();
            assert_eq!(Header::pop(&bytes, pseudo_header), Ok((header, &payload[..])));
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for length in 0..8 {
            assert_eq!(Header::pop(&HI[..length], V4), Err(ParseError::short(8, length)));
        }
        let with_length = |length| {
            let mut bytes = HI;
            bytes[5] = length;
            Header::pop(&bytes, V4).unwrap_err()
        };
        assert_eq!(with_length(7), ParseError::new("length", 4, Expected::AtLeast(8), 7));
        assert_eq!(with_length(11), ParseError::new("length", 4, Expected::AtMost(10), 11));
    }

    #[test]
    #[should_panic(expected = "a UDP datagram of 65536 bytes")]
    fn a_payload_that_no_length_counts_is_our_mistake() {
        Header::new(1, 2, 65_528);
    }
}
