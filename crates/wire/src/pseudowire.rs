//! What stands between a pseudowire's label and the frame that it carries, where the pseudowire has
//! a control word: that word, or the header of its associated channel.
//!
//! ```text
//!   0  0000 << 4 | flags   1  FRG << 6 | length   2  sequence number   4  frame, from its destination on
//!   0  0001 << 4 | version   1  reserved   2  channel type   4  message of the channel
//! ```
//! The first four bits tell one from the other, so [`Packet::parse`] is the edge; a pseudowire
//! without a control word has the frame at byte 0, and nothing here is asked. Units: offsets in
//! bytes from behind the label stack. Errors: what ends early, other first bits, another version of
//! the channel. An Ethernet pseudowire sends zeros for all but the sequence number and ignores what
//! comes there. Big-endian. Spec: RFC 4385, RFC 4448 clause 4.6, RFC 4623 (FRG), RFC 5586.

use core::fmt;

use crate::field::be16;
use crate::sequence::PseudowireSequence;
use crate::{Expected, ParseError};

codes! {
    /// FRG: which part of a payload a packet has; two bits.
    pub struct Fragment(u8) {
        WHOLE = 0 "whole",
        FIRST = 1 "first fragment",
        LAST = 2 "last fragment",
        INTERMEDIATE = 3 "intermediate fragment",
    }
}

codes! {
    /// What a message of an associated channel is.
    pub struct ChannelType(u16) {
        BFD = 0x0007 "BFD control",
        IPV4 = 0x0021 "IPv4",
        IPV6 = 0x0057 "IPv6",
        MTU_PROBE = 0x7ff8 "MTU probe",
    }
}

/// What the first nibble is of a control word.
const DATA: u8 = 0;
/// What it is of an associated channel header.
const CHANNEL: u8 = 1;

/// The four bytes, if their first nibble is `nibble`.
#[inline]
fn word(bytes: &[u8], nibble: u8) -> Result<&[u8; 4], ParseError> {
    match bytes.first_chunk() {
        None => Err(ParseError::short(4, bytes.len())),
        Some(word) if word[0] >> 4 == nibble => Ok(word),
        Some(word) => {
            let expected = Expected::Exactly(nibble.into());
            Err(ParseError::new("first nibble", 0, expected, (word[0] >> 4).into()))
        }
    }
}

/// The control word in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ControlWord {
    /// Flags of the payload's kind; four bits. Ethernet has none.
    pub flags: u8,
    /// FRG.
    pub fragment: Fragment,
    /// Bytes of control word and payload where the packet is so short that a link may have padded
    /// it, else 0; six bits. Ethernet does not use it.
    pub length: u8,
    /// Which frame of the pseudowire it is.
    pub sequence: PseudowireSequence,
}

impl ControlWord {
    /// Size in bytes.
    pub const SIZE: usize = 4;

    /// That of an Ethernet frame.
    #[inline]
    pub const fn ethernet(sequence: PseudowireSequence) -> Self {
        Self { flags: 0, fragment: Fragment::WHOLE, length: 0, sequence }
    }

    /// Reads the word; an error is one that ends early or has another first nibble than 0.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let word = word(bytes, DATA)?;
        Ok(Self {
            flags: word[0] & 0xf,
            fragment: Fragment(word[1] >> 6),
            length: word[1] & 0x3f,
            sequence: PseudowireSequence(be16(word, 2)),
        })
    }

    /// The word as bytes; flags, FRG and length are cut to their width.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        let [high, low] = self.sequence.0.to_be_bytes();
        let first = DATA << 4 | self.flags & 0xf;
        [first, self.fragment.0 << 6 | self.length & 0x3f, high, low]
    }
}

impl fmt::Display for ControlWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}", self.sequence)?;
        if self.flags != 0 {
            write!(f, " flags {:#x}", self.flags)?;
        }
        if self.fragment != Fragment::WHOLE {
            write!(f, " {}", self.fragment)?;
        }
        if self.length != 0 {
            write!(f, " length {}", self.length)?;
        }
        Ok(())
    }
}

/// The header of a message of an associated channel (ACH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssociatedChannelHeader {
    /// What the message is.
    pub channel_type: ChannelType,
}

impl AssociatedChannelHeader {
    /// Size in bytes.
    pub const SIZE: usize = 4;

    /// Reads the header; an error is one that ends early, has another first nibble than 1 or another
    /// version than 0.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let word = word(bytes, CHANNEL)?;
        match word[0] & 0xf {
            0 => Ok(Self { channel_type: ChannelType(be16(word, 2)) }),
            version => Err(ParseError::new("version", 0, Expected::Exactly(0), u64::from(version))),
        }
    }

    /// The header as bytes.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        let [high, low] = self.channel_type.0.to_be_bytes();
        [CHANNEL << 4, 0, high, low]
    }
}

impl fmt::Display for AssociatedChannelHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.channel_type)
    }
}

/// A packet of a pseudowire with a control word, from behind its label on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A frame.
    Data(ControlWord, &'a [u8]),
    /// A message of the associated channel, which is never delivered as a frame.
    Channel(AssociatedChannelHeader, &'a [u8]),
}

impl<'a> Packet<'a> {
    /// Reads a packet. Errors: those of the two headers. A first nibble that neither has, as of a
    /// peer that sends no control word, is told as one that is not a control word's.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.first().is_some_and(|first| first >> 4 == CHANNEL) {
            let header = AssociatedChannelHeader::parse(bytes)?;
            return Ok(Self::Channel(header, &bytes[AssociatedChannelHeader::SIZE..]));
        }
        Ok(Self::Data(ControlWord::parse(bytes)?, &bytes[ControlWord::SIZE..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_of_ethernet_is_its_sequence_number() {
        let word = ControlWord::ethernet(PseudowireSequence(0x1234));
        assert_eq!(word.emit(), [0, 0, 0x12, 0x34]);
        assert_eq!(ControlWord::parse(&[0, 0, 0x12, 0x34, 9]), Ok(word));
        assert_eq!(word.to_string(), "sequence 4660");
    }

    #[test]
    fn all_fields_of_a_control_word_both_ways() {
        for (bytes, word, text) in [
            (
                [0x0f, 0, 0, 0],
                ControlWord { flags: 15, ..ControlWord::default() },
                "sequence 0 flags 0xf",
            ),
            (
                [0, 0x40, 0, 1],
                ControlWord {
                    fragment: Fragment::FIRST,
                    ..ControlWord::ethernet(PseudowireSequence::FIRST)
                },
                "sequence 1 first fragment",
            ),
            (
                [0, 0xbf, 0xff, 0xff],
                ControlWord {
                    fragment: Fragment::LAST,
                    length: 63,
                    ..ControlWord::ethernet(PseudowireSequence(65_535))
                },
                "sequence 65535 last fragment length 63",
            ),
        ] {
            assert_eq!(ControlWord::parse(&bytes), Ok(word));
            assert_eq!(word.emit(), bytes);
            assert_eq!(word.to_string(), text);
        }
    }

    #[test]
    fn fields_are_cut_to_their_width() {
        let wide = ControlWord {
            flags: 0xff,
            fragment: Fragment(0xff),
            length: 0xff,
            ..ControlWord::default()
        };
        assert_eq!(wide.emit(), [0x0f, 0xff, 0, 0]);
    }

    #[test]
    fn channel_headers_both_ways() {
        for (bytes, kind, text) in [
            ([0x10, 0, 0, 0x07], ChannelType::BFD, "channel BFD control"),
            ([0x10, 0, 0, 0x21], ChannelType::IPV4, "channel IPv4"),
            ([0x10, 0, 0, 0x57], ChannelType::IPV6, "channel IPv6"),
            ([0x10, 0, 0x7f, 0xf8], ChannelType::MTU_PROBE, "channel MTU probe"),
            ([0x10, 0, 0x7f, 0xff], ChannelType(0x7fff), "channel 0x7fff"),
        ] {
            let header = AssociatedChannelHeader { channel_type: kind };
            assert_eq!(AssociatedChannelHeader::parse(&bytes), Ok(header));
            assert_eq!((header.emit(), header.to_string()), (bytes, text.into()));
        }
        // The reserved byte is ignored, another version is not.
        assert!(AssociatedChannelHeader::parse(&[0x10, 0xff, 0, 7]).is_ok());
        assert_eq!(
            AssociatedChannelHeader::parse(&[0x11, 0, 0, 7]).unwrap_err().to_string(),
            "version at byte 0: expected 0, seen 1 (0x1)"
        );
    }

    #[test]
    fn the_first_nibble_tells_data_from_the_channel() {
        for nibble in 0..16 {
            let bytes = [nibble << 4, 0, 0, 7, 0xaa];
            match (nibble, Packet::parse(&bytes)) {
                (0, Ok(Packet::Data(word, frame))) => {
                    assert_eq!((word.sequence.0, frame), (7, &[0xaa][..]));
                }
                (1, Ok(Packet::Channel(header, message))) => {
                    assert_eq!((header.channel_type, message), (ChannelType::BFD, &[0xaa][..]));
                }
                (2.., Err(error)) => {
                    let expected = Expected::Exactly(0);
                    let seen = nibble.into();
                    assert_eq!(error, ParseError::new("first nibble", 0, expected, seen));
                }
                (_, other) => panic!("{nibble}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_ends_too_early_is_refused() {
        for first in [0, 0x10, 0x40] {
            for length in 0..4 {
                let bytes = [first, 0, 0, 7];
                let seen = Packet::parse(&bytes[..length]);
                assert_eq!(seen, Err(ParseError::short(4, length)));
            }
        }
        assert_eq!(AssociatedChannelHeader::parse(&[0x10]), Err(ParseError::short(4, 1)));
        assert!(AssociatedChannelHeader::parse(&[0, 0, 0, 7]).is_err());
    }
}
