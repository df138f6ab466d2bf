//! GRE: the header of what is carried over IP as protocol 47.
//!
//! ```text
//!   0  C . K S . . . .  . . . . . version   2  protocol type (an EtherType)
//!      C: checksum u16, reserved u16   K: key u32   S: sequence number u32   payload
//! ```
//! Each of the three is there if its bit is set, in this order. In: the payload of an IP packet,
//! without padding, since the checksum covers all of it. Units: bytes. Errors: what ends early, another
//! version than 0, bits of RFC 1701 that change the header, a wrong checksum. Key and sequence number
//! survive; what they must be is known to the tunnel. Big-endian. Spec: RFC 2784, RFC 2890.

use core::fmt;

use crate::checksum::Checksum;
use crate::ethernet::EtherType;
use crate::field::be16;
use crate::{Expected, Front, ParseError};

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Those of bits 1 to 5 that RFC 2890 leaves to RFC 1701 (routing, strict source route, recursion
/// control): a receiver that does not know it discards what has one. Bits 6 to 12 are ignored.
const RFC_1701: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// A GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the payload is: [`EtherType::TRANSPARENT_ETHERNET`] a frame, [`EtherType::MPLS`] a packet
    /// with a label stack.
    pub protocol_type: EtherType,
    /// Whether it has a checksum of itself and its payload.
    pub has_checksum: bool,
    /// Which tunnel between the two ends it belongs to.
    pub key: Option<u32>,
    /// Which packet of the tunnel it is, of [`Numbers::GRE`](crate::sequence::Numbers::GRE).
    pub sequence: Option<u32>,
}

impl Header {
    /// Bytes of a header without and with all of its options.
    pub const SIZE_MIN: usize = 4;
    /// See [`Self::SIZE_MIN`].
    pub const SIZE_MAX: usize = 16;

    /// A header without options.
    pub const fn new(protocol_type: EtherType) -> Self {
        Self { protocol_type, has_checksum: false, key: None, sequence: None }
    }

    /// Bytes of this header.
    pub const fn size(&self) -> usize {
        let options = [self.has_checksum, self.key.is_some(), self.sequence.is_some()];
        Self::SIZE_MIN + 4 * (options[0] as usize + options[1] as usize + options[2] as usize)
    }

    /// Takes the header off: it, and its payload.
    #[inline]
    pub fn pop(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some(first) = bytes.first_chunk::<{ Self::SIZE_MIN }>() else {
            return Err(ParseError::short(Self::SIZE_MIN, bytes.len()));
        };
        let flags = be16(first, 0);
        if flags & RFC_1701 != 0 {
            let expected = Expected::Words("no flags of RFC 1701 but C, K and S");
            return Err(ParseError::new("flags", 0, expected, flags.into()));
        }
        if flags & VERSION != 0 {
            let version = u64::from(flags & VERSION);
            return Err(ParseError::new("version", 1, Expected::Exactly(0), version));
        }
        let options = flags & (CHECKSUM | KEY | SEQUENCE);
        let size = Self::SIZE_MIN + 4 * options.count_ones() as usize;
        let Some((head, payload)) = bytes.split_at_checked(size) else {
            return Err(ParseError::short(size, bytes.len()));
        };
        let mut words = head[Self::SIZE_MIN..].as_chunks().0.iter();
        let mut option = |flag| match flags & flag {
            0 => None,
            _ => words.next().copied().map(u32::from_be_bytes),
        };
        let (checksum, key, sequence) = (option(CHECKSUM), option(KEY), option(SEQUENCE));
        if checksum.is_some() && Checksum::default().with(bytes).finish() != 0 {
            let right = Checksum::default().with(&head[..4]).with(&head[6..]).with(payload);
            let expected = Expected::Exactly(right.finish().into());
            return Err(ParseError::new("checksum", 4, expected, be16(head, 4).into()));
        }
        let protocol_type = EtherType(be16(head, 2));
        Ok((Self { protocol_type, has_checksum: checksum.is_some(), key, sequence }, payload))
    }

    /// The header as bytes. `payload` is the sum of what stands behind it, which counts only with a
    /// checksum.
    #[inline]
    pub fn emit(&self, payload: Checksum) -> Front<{ Self::SIZE_MAX }> {
        let mut front = Front::new();
        let mut flags = 0;
        if let Some(sequence) = self.sequence {
            front.push(&sequence.to_be_bytes());
            flags |= SEQUENCE;
        }
        if let Some(key) = self.key {
            front.push(&key.to_be_bytes());
            flags |= KEY;
        }
        if self.has_checksum {
            flags |= CHECKSUM;
        }
        let ([a, b], [c, d]) = (u16::to_be_bytes(flags), self.protocol_type.0.to_be_bytes());
        if self.has_checksum {
            let sum = Checksum::default().with(&[a, b, c, d]).with(&front).with_sum(payload);
            let [high, low] = sum.finish().to_be_bytes();
            front.push(&[high, low, 0, 0]);
        }
        front.push(&[a, b, c, d]);
        front
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.protocol_type)?;
        if self.has_checksum {
            f.write_str(" checksum")?;
        }
        if let Some(key) = self.key {
            write!(f, " key {key}")?;
        }
        match self.sequence {
            Some(sequence) => write!(f, " sequence {sequence}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands behind the headers: three bytes, so that the checksum has an odd one.
    const PAYLOAD: [u8; 3] = [0xaa, 0xbb, 0xcc];

    fn sum() -> Checksum {
        Checksum::default().with(&PAYLOAD)
    }

    #[test]
    fn headers_with_each_option_both_ways() {
        let plain = Header::new(EtherType::TRANSPARENT_ETHERNET);
        let full = Header { has_checksum: true, key: Some(42), sequence: Some(7), ..plain };
        for (header, bytes, text) in [
            (plain, &[0, 0, 0x65, 0x58][..], "transparent Ethernet"),
            (Header::new(EtherType::MPLS), &[0, 0, 0x88, 0x47], "MPLS"),
            (
                Header { key: Some(0x0102_0304), ..plain },
                &[0x20, 0, 0x65, 0x58, 1, 2, 3, 4],
                "transparent Ethernet key 16909060",
            ),
            (
                Header { sequence: Some(u32::MAX), ..plain },
                &[0x10, 0, 0x65, 0x58, 255, 255, 255, 255],
                "transparent Ethernet sequence 4294967295",
            ),
            (
                Header { key: Some(42), sequence: Some(7), ..plain },
                &[0x30, 0, 0x65, 0x58, 0, 0, 0, 42, 0, 0, 0, 7],
                "transparent Ethernet key 42 sequence 7",
            ),
            (
                // 8000 + 6558 + AABB + CC00 = 2 5C13, folded 5C15.
                Header { has_checksum: true, ..plain },
                &[0x80, 0, 0x65, 0x58, 0xa3, 0xea, 0, 0],
                "transparent Ethernet checksum",
            ),
            (
                // B000 + 6558 + 2A + 7 + AABB + CC00 = 2 8C44, folded 8C46.
                full,
                &[0xb0, 0, 0x65, 0x58, 0x73, 0xb9, 0, 0, 0, 0, 0, 42, 0, 0, 0, 7],
                "transparent Ethernet checksum key 42 sequence 7",
            ),
        ] {
            assert_eq!(*header.emit(sum()), *bytes);
            assert_eq!(header.size(), bytes.len());
            let packet = [bytes, &PAYLOAD].concat();
            assert_eq!(Header::pop(&packet), Ok((header, &PAYLOAD[..])));
            assert_eq!(header.to_string(), text);
            for length in 0..bytes.len() {
                let size = if length < 4 { 4 } else { bytes.len() };
                let seen = Header::pop(&packet[..length]);
                assert_eq!(seen, Err(ParseError::short(size, length)), "{text}");
            }
        }
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let bytes = [&[0x80, 0, 0x65, 0x58, 0xa3, 0xea, 0, 0][..], &PAYLOAD].concat();
        for at in (2..bytes.len()).filter(|at| !matches!(at, 4 | 5)) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let error = Header::pop(&changed).unwrap_err();
            assert_eq!((error.field, error.seen), ("checksum", 0xa3ea), "byte {at}");
        }
        let mut changed = bytes;
        changed[5] = 0xeb;
        assert_eq!(
            Header::pop(&changed).unwrap_err().to_string(),
            "checksum at byte 4: expected 41962, seen 41963 (0xa3eb)"
        );
    }

    #[test]
    fn another_version_is_refused() {
        for version in 1..8 {
            let error = Header::pop(&[0, version, 0x88, 0x0b]).unwrap_err();
            let seen = version.into();
            assert_eq!(error, ParseError::new("version", 1, Expected::Exactly(0), seen));
        }
    }

    #[test]
    fn bits_1_to_5_but_key_and_sequence_are_refused_and_others_ignored() {
        for bit in 0..13 {
            let flags = 0x8000_u16 >> bit;
            let [high, low] = flags.to_be_bytes();
            let bytes = [high, low, 0x65, 0x58, 0, 0, 0, 0];
            let seen = Header::pop(&bytes);
            match bit {
                1 | 4 | 5 => {
                    assert_eq!(
                        seen.unwrap_err().to_string(),
                        format!(
                            "flags at byte 0: expected no flags of RFC 1701 but C, K and S, \
                             seen {flags} ({flags:#x})"
                        )
                    );
                }
                // C, with a checksum that is wrong.
                0 => assert_eq!(seen.unwrap_err().field, "checksum"),
                _ => assert!(seen.is_ok(), "bit {bit}: {seen:?}"),
            }
        }
    }
}
