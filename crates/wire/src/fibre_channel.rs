//! Fibre Channel frames as FCIP and iFCP carry them in a stream.
//!
//! ```text
//!   0  protocol   1  version   2  -protocol   3  -version   4  protocol specific
//!  12  flags << 10 | frame length   14  -flags << 10 | -frame length   16  time stamp   24  CRC
//!  28  SOF word   32  FC header   56  data, a multiple of 4 bytes   CRC of the FC frame   EOF word
//! ```
//! A minus is the ones' complement, by which a receiver knows that it stands at the start of a frame;
//! for the same reason an SOF or EOF word is the code twice and its complement twice.
//! [`Encapsulation`] is the first 28 bytes, [`FrameHeader`] the FC header. Units: the frame length is
//! in words of 4 bytes and counts all of the above. Errors: what ends early, another version,
//! complements and lengths that cannot be. Not here: CRCs, which whoever owns the bytes computes;
//! what gateways say to each other. Big-endian. Spec: RFC 3643, RFC 3821 (FCIP), RFC 4172 (iFCP),
//! FC-FS (the FC header).

use core::fmt;

use crate::field::be16;
use crate::{Expected, ParseError};

/// The TCP port of FCIP.
pub const FCIP_PORT: u16 = 3225;
/// The TCP port of iFCP.
pub const IFCP_PORT: u16 = 3420;
/// Bytes of data in an FC frame as adapters cut a transfer: 2112 may stand behind the header, of which
/// 64 are left to optional headers.
pub const DATA_MAX: usize = 2048;

codes! {
    /// Who encapsulates.
    pub struct EncapsulatedBy(u8) {
        FCIP = 1 "FCIP",
        IFCP = 2 "iFCP",
    }
}

/// A delimiter of FC frames, a word on the wire.
macro_rules! delimiter {
    ($name:ident $field:literal) => {
        impl $name {
            /// Size in bytes.
            pub const SIZE: usize = 4;

            /// Reads the word; an error is one that ends early or is not the code twice and its
            /// complement twice.
            pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
                let Some(word) = bytes.first_chunk::<{ Self::SIZE }>() else {
                    return Err(ParseError::short(Self::SIZE, bytes.len()));
                };
                let delimiter = Self(word[0]);
                if delimiter.emit() == *word {
                    return Ok(delimiter);
                }
                let expected = Expected::Exactly(u32::from_be_bytes(delimiter.emit()).into());
                let seen = u32::from_be_bytes(*word);
                Err(ParseError::new($field, 0, expected, seen.into()))
            }

            /// The word as bytes.
            pub const fn emit(&self) -> [u8; Self::SIZE] {
                [self.0, self.0, !self.0, !self.0]
            }
        }
    };
}

codes! {
    /// SOF: how a frame begins, by its class of service.
    pub struct StartOfFrame(u8) {
        FABRIC = 0x28 "SOFf",
        INITIATE_2 = 0x2d "SOFi2",
        INITIATE_3 = 0x2e "SOFi3",
        NORMAL_2 = 0x35 "SOFn2",
        NORMAL_3 = 0x36 "SOFn3",
    }
}
delimiter!(StartOfFrame "SOF");

codes! {
    /// EOF: how a frame ends.
    pub struct EndOfFrame(u8) {
        NORMAL = 0x41 "EOFn",
        TERMINATE = 0x42 "EOFt",
        NORMAL_INVALID = 0x49 "EOFni",
        ABORT = 0x50 "EOFa",
    }
}
delimiter!(EndOfFrame "EOF");

/// What stands in front of an encapsulated frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// Who encapsulates.
    pub protocol: EncapsulatedBy,
    /// What that protocol says besides.
    pub specific: [u8; 8],
    /// Six bits: the lowest says that there is a CRC.
    pub flags: u8,
    /// The encapsulated frame in words of 4 bytes, this header included; ten bits.
    pub frame_words: u16,
    /// When it was sent, as NTP has it: seconds and their fraction; 0 where nobody measures.
    pub time: [u32; 2],
    /// Over this header, where the flags say so; else 0.
    pub crc: u32,
}

impl Encapsulation {
    /// Size in bytes.
    pub const SIZE: usize = 28;
    /// The version that everybody speaks.
    pub const VERSION: u8 = 1;
    /// What a frame has besides its data: this header, SOF, FC header, CRC, EOF.
    pub const WITHOUT_DATA: usize =
        Self::SIZE + StartOfFrame::SIZE + FrameHeader::SIZE + size_of::<u32>() + EndOfFrame::SIZE;

    /// That of a frame with `data` bytes, neither with a time nor a CRC. Panics if `data` is no
    /// multiple of 4 or more than ten bits of words count.
    fn new(protocol: EncapsulatedBy, specific: [u8; 8], data: usize) -> Self {
        let size = Self::WITHOUT_DATA + data;
        assert!(size.is_multiple_of(4) && size / 4 < 1 << 10, "an FC frame with {data} bytes");
        Self { protocol, specific, flags: 0, frame_words: size as u16 / 4, time: [0; 2], crc: 0 }
    }

    /// That of FCIP, which repeats the first word and says that it is no special frame.
    pub fn fcip(data: usize) -> Self {
        let [a, b, c, d] = Self::first_word(EncapsulatedBy::FCIP);
        Self::new(EncapsulatedBy::FCIP, [a, b, c, d, 0, 0, 0xff, 0xff], data)
    }

    /// That of iFCP, which repeats what the delimiters say.
    pub fn ifcp(start: StartOfFrame, end: EndOfFrame, data: usize) -> Self {
        Self::new(EncapsulatedBy::IFCP, [0, 0, 0, 0, 0, 0, start.0, end.0], data)
    }

    const fn first_word(protocol: EncapsulatedBy) -> [u8; 4] {
        [protocol.0, Self::VERSION, !protocol.0, !Self::VERSION]
    }

    /// Takes the header off a stream: it, and the frame from its SOF to its EOF. Errors: what ends
    /// early, another version, wrong complements, a length of less than an empty frame's.
    pub fn pop(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some(head) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, bytes.len()));
        };
        let wrong = |field, at, expected: u64, seen: u64| {
            Err(ParseError::new(field, at, Expected::Exactly(expected), seen))
        };
        let protocol = EncapsulatedBy(head[0]);
        let right = Self::first_word(protocol);
        for (at, field) in [(1, "version"), (2, "-protocol"), (3, "-version")] {
            if head[at] != right[at] {
                return wrong(field, at, right[at].into(), head[at].into());
            }
        }
        let (flags_length, complement) = (be16(head, 12), be16(head, 14));
        if complement != !flags_length {
            let expected = (!flags_length).into();
            return wrong("-flags and -frame length", 14, expected, complement.into());
        }
        let frame_words = flags_length & 0x3ff;
        let size = usize::from(frame_words) * 4;
        if size < Self::WITHOUT_DATA {
            let expected = Expected::AtLeast(Self::WITHOUT_DATA as u64 / 4);
            return Err(ParseError::new("frame length", 12, expected, frame_words.into()));
        }
        let Some(frame) = bytes.get(Self::SIZE..size) else {
            return Err(ParseError::short(size, bytes.len()));
        };
        let word = |at| crate::field::be32(head, at);
        let specific = core::array::from_fn(|at| head[4 + at]);
        let (flags, time, crc) = ((flags_length >> 10) as u8, [word(16), word(20)], word(24));
        Ok((Self { protocol, specific, flags, frame_words, time, crc }, frame))
    }

    /// The header as bytes; flags and length are cut to their width.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let flags_length = u16::from(self.flags) << 10 | self.frame_words & 0x3ff;
        bytes[..4].copy_from_slice(&Self::first_word(self.protocol));
        bytes[4..12].copy_from_slice(&self.specific);
        bytes[12..14].copy_from_slice(&flags_length.to_be_bytes());
        bytes[14..16].copy_from_slice(&(!flags_length).to_be_bytes());
        let words = [self.time[0], self.time[1], self.crc];
        for (slot, word) in bytes[16..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *slot = word.to_be_bytes();
        }
        bytes
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frame of {} words", self.protocol, self.frame_words)?;
        if self.flags != 0 {
            write!(f, " flags {:#04x}", self.flags)?;
        }
        Ok(())
    }
}

codes! {
    /// TYPE: what a frame carries.
    pub struct FrameType(u8) {
        BASIC_LINK_SERVICE = 0x00 "basic link service",
        EXTENDED_LINK_SERVICE = 0x01 "extended link service",
        FCP = 0x08 "FCP",
    }
}

layout! {
    big_endian:
    /// The header of an FC frame.
    pub struct FrameHeader[24] {
        /// R_CTL: what the frame is for.
        0 => routing: u8,
        /// D_ID: whom it is for.
        1 => destination: [u8; 3],
        /// CS_CTL: class or priority.
        4 => class: u8,
        /// S_ID: who sent it.
        5 => source: [u8; 3],
        /// TYPE.
        8 => frame_type: FrameType,
        /// F_CTL.
        9 => control: [u8; 3],
        /// SEQ_ID: the sequence it belongs to.
        12 => sequence: u8,
        /// DF_CTL: which optional headers follow.
        13 => data_field: u8,
        /// SEQ_CNT: its place there.
        14 => count: u16,
        /// OX_ID: the exchange, as its originator calls it.
        16 => originator_exchange: u16,
        /// RX_ID: as its responder calls it.
        18 => responder_exchange: u16,
        /// Where the data belong, in a frame of data.
        20 => parameter: u32,
    }
}

impl FrameHeader {
    /// R_CTL of data that were asked for.
    pub const SOLICITED_DATA: u8 = 0x01;
}

impl fmt::Display for FrameHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |[a, b, c]: [u8; 3]| u32::from_be_bytes([0, a, b, c]);
        let (source, destination) = (id(self.source), id(self.destination));
        write!(f, "{source:06x} > {destination:06x} {} ", self.frame_type)?;
        write!(f, "ox {:#06x} rx {:#06x}", self.originator_exchange, self.responder_exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of FCIP in front of a frame with 4 bytes of data: 17 words.
    const FCIP: [u8; 28] = [
        1, 1, 0xfe, 0xfe, 1, 1, 0xfe, 0xfe, 0, 0, 0xff, 0xff, 0, 17, 0xff, 0xee, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0,
    ];

    fn stream(head: &[u8]) -> Vec<u8> {
        [head, &[7; 40]].concat()
    }

    #[test]
    fn headers_of_both_protocols_both_ways() {
        let mut ifcp = FCIP;
        ifcp[..12].copy_from_slice(&[2, 1, 0xfd, 0xfe, 0, 0, 0, 0, 0, 0, 0x2e, 0x42]);
        let (start, end) = (StartOfFrame::INITIATE_3, EndOfFrame::TERMINATE);
        for (bytes, header, text) in [
            (FCIP, Encapsulation::fcip(4), "FCIP frame of 17 words"),
            (ifcp, Encapsulation::ifcp(start, end, 4), "iFCP frame of 17 words"),
        ] {
            assert_eq!(header.emit(), bytes);
            assert_eq!(Encapsulation::pop(&stream(&bytes)), Ok((header, &[7; 40][..])));
            assert_eq!(header.to_string(), text);
        }
    }

    #[test]
    fn time_flags_and_crc_both_ways() {
        let mut bytes = FCIP;
        bytes[12..].copy_from_slice(&[4, 17, 0xfb, 0xee, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        let header = Encapsulation { flags: 1, time: [1, 2], crc: 3, ..Encapsulation::fcip(4) };
        assert_eq!(header.emit(), bytes);
        assert_eq!(Encapsulation::pop(&stream(&bytes)), Ok((header, &[7; 40][..])));
        assert_eq!(header.to_string(), "FCIP frame of 17 words flags 0x01");
    }

    #[test]
    fn what_a_receiver_tells_a_header_by_must_be_right() {
        for (at, field) in [
            (0, "-protocol"),
            (1, "version"),
            (2, "-protocol"),
            (3, "-version"),
            (12, "-flags and -frame length"),
            (15, "-flags and -frame length"),
        ] {
            let mut bytes = stream(&FCIP);
            bytes[at] ^= 0x10;
            assert_eq!(Encapsulation::pop(&bytes).unwrap_err().field, field, "byte {at}");
        }
        let mut bytes = stream(&FCIP);
        (bytes[13], bytes[15]) = (15, 0xf0);
        assert_eq!(
            Encapsulation::pop(&bytes).unwrap_err().to_string(),
            "frame length at byte 12: expected at least 16, seen 15 (0xf)"
        );
    }

    #[test]
    fn what_ends_too_early_is_refused() {
        let bytes = stream(&FCIP);
        for length in 0..bytes.len() {
            let size = if length < 28 { 28 } else { 68 };
            let seen = Encapsulation::pop(&bytes[..length]);
            assert_eq!(seen, Err(ParseError::short(size, length)));
        }
        assert_eq!(StartOfFrame::parse(&[0x2e; 3]), Err(ParseError::short(4, 3)));
    }

    #[test]
    fn delimiters_both_ways() {
        assert_eq!(StartOfFrame::NORMAL_3.emit(), [0x36, 0x36, 0xc9, 0xc9]);
        assert_eq!(StartOfFrame::parse(&[0x36, 0x36, 0xc9, 0xc9]), Ok(StartOfFrame::NORMAL_3));
        assert_eq!(EndOfFrame::TERMINATE.emit(), [0x42, 0x42, 0xbd, 0xbd]);
        assert_eq!(EndOfFrame::parse(&[0x42, 0x42, 0xbd, 0xbd]), Ok(EndOfFrame::TERMINATE));
        assert_eq!(EndOfFrame::TERMINATE.to_string(), "EOFt");
        let error = EndOfFrame::parse(&[0x42, 0x42, 0xbd, 0xbc]).unwrap_err();
        assert_eq!((error.field, error.seen), ("EOF", 0x4242_bdbc));
    }

    #[test]
    fn an_fc_header_both_ways() {
        let bytes: [u8; 24] = core::array::from_fn(|at| if at == 8 { 8 } else { at as u8 });
        let header = FrameHeader {
            routing: 0,
            destination: [1, 2, 3],
            class: 4,
            source: [5, 6, 7],
            frame_type: FrameType::FCP,
            control: [9, 10, 11],
            sequence: 12,
            data_field: 13,
            count: 0x0e0f,
            originator_exchange: 0x1011,
            responder_exchange: 0x1213,
            parameter: 0x1415_1617,
        };
        assert_eq!(FrameHeader::parse(&bytes), Ok(header));
        assert_eq!(header.emit(), bytes);
        assert_eq!(header.to_string(), "050607 > 010203 FCP ox 0x1011 rx 0x1213");
    }

    #[test]
    #[should_panic(expected = "an FC frame with 5 bytes")]
    fn data_of_no_whole_words_are_our_mistake() {
        Encapsulation::fcip(5);
    }
}
