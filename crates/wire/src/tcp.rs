//! TCP: the header in front of each segment of a stream.
//!
//! ```text
//!   0  source port   2  destination port   4  sequence number   8  acknowledgement number
//!  12  data offset << 12 | flags   14  window   16  checksum   18  urgent pointer
//!  20  options, up to 4 * data offset   payload
//! ```
//! As far as it takes to count what a stream costs on the wire: options are passed over but for
//! [`Timestamps`], which most segments have. In: the payload of an IP packet, without padding. Units:
//! bytes. Errors: what ends early, a data offset that cannot be, a wrong checksum. Not here: streams,
//! which the kernel makes of segments. Big-endian. Spec: RFC 9293 clause 3.1, RFC 7323 (timestamps).

use core::fmt;

use crate::checksum::Checksum;
use crate::field::be32;
use crate::ip::{Protocol, PseudoHeader};
use crate::{Expected, ParseError};

bits! {
    /// Where the payload begins, and what the segment means.
    pub struct OffsetFlags(u16) {
        fields {
            /// Header and options in units of 4 bytes, at least 5.
            data_offset / with_data_offset: 12, 4;
        }
        flags {
            /// ACK: the acknowledgement number counts.
            is_ack / with_ack: 4;
            /// PSH: the receiver is not to wait for more.
            is_push / with_push: 3;
            /// RST: there is no such connection.
            is_reset / with_reset: 2;
            /// SYN: the first of its stream.
            is_syn / with_syn: 1;
            /// FIN: the last of its stream.
            is_fin / with_fin: 0;
        }
    }
}

layout! {
    big_endian:
    /// A TCP header without its options.
    pub struct Header[20] {
        /// Whence.
        0 => source_port: u16,
        /// Whereto.
        2 => destination_port: u16,
        /// Which byte of the stream the payload begins with.
        4 => sequence: u32,
        /// Which byte of the other stream is awaited.
        8 => acknowledgement: u32,
        /// Data offset and flags.
        12 => offset_flags: OffsetFlags,
        /// How much of the other stream is taken, as the ends scale it.
        14 => window: u16,
        /// Over pseudo-header, header, options and payload.
        16 => checksum: u16,
        /// Where urgent data end, with a flag that nobody sets.
        18 => urgent_pointer: u16,
    }
}

impl Header {
    /// The header of a segment in the midst of a stream (ACK), without a checksum. `options` is their
    /// length; panics unless it is a multiple of 4 and at most 40.
    pub fn segment(
        source_port: u16,
        destination_port: u16,
        sequence: u32,
        acknowledgement: u32,
        options: usize,
    ) -> Self {
        assert!(options.is_multiple_of(4) && options <= 40, "TCP options of {options} bytes");
        let words = (Self::SIZE + options) as u16 / 4;
        Self {
            source_port,
            destination_port,
            sequence,
            acknowledgement,
            offset_flags: OffsetFlags(0).with_data_offset(words).with_ack(true),
            window: u16::MAX,
            checksum: 0,
            urgent_pointer: 0,
        }
    }

    /// The same with a checksum, `behind` being the sum of the `length` bytes of options and payload.
    #[must_use]
    pub fn with_checksum(self, pseudo: PseudoHeader, behind: Checksum, length: usize) -> Self {
        let header = Self { checksum: 0, ..self };
        let sum = pseudo.checksum(Protocol::TCP, (Self::SIZE + length) as u32);
        let checksum = sum.with(&header.emit()).with_sum(behind).finish();
        Self { checksum, ..self }
    }

    /// Takes the header and its options off a segment: it, the options, the payload. Errors: what
    /// ends early, a data offset below 5 or beyond the segment, a wrong checksum.
    pub fn pop(bytes: &[u8], pseudo: PseudoHeader) -> Result<(Self, &[u8], &[u8]), ParseError> {
        let header = Self::parse(bytes)?;
        let words = header.offset_flags.data_offset();
        let wrong = |expected| ParseError::new("data offset", 12, expected, words.into());
        let Some(options) = usize::from(words).checked_sub(Self::SIZE / 4) else {
            return Err(wrong(Expected::AtLeast(Self::SIZE as u64 / 4)));
        };
        let behind = &bytes[Self::SIZE..];
        let Some((options, payload)) = behind.split_at_checked(options * 4) else {
            return Err(wrong(Expected::AtMost(bytes.len() as u64 / 4)));
        };
        let sum = Checksum::default().with(behind);
        // Computed anew rather than added up with the field in it, for which 0xffff would be as good
        // as 0. No sender writes that: the sum over a pseudo-header is never 0, and TCP, unlike UDP,
        // has no other meaning for 0.
        let right = header.with_checksum(pseudo, sum, behind.len());
        if right != header {
            let expected = Expected::Exactly(right.checksum.into());
            return Err(ParseError::new("checksum", 16, expected, header.checksum.into()));
        }
        Ok((header, options, payload))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source_port, destination_port, sequence, acknowledgement, .. } = self;
        write!(f, "port {source_port} > {destination_port} sequence {sequence}")?;
        let flags = self.offset_flags;
        if flags.is_ack() {
            write!(f, " acknowledges {acknowledgement}")?;
        }
        for (set, name) in [
            (flags.is_push(), " PSH"),
            (flags.is_reset(), " RST"),
            (flags.is_syn(), " SYN"),
            (flags.is_fin(), " FIN"),
        ] {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// The timestamps of a segment, as the only option of it: two bytes that mean nothing, so that the
/// numbers are aligned, kind 8, length 10, and the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the clock of the other end, as it was heard last.
    pub echo_reply: u32,
}

impl Timestamps {
    /// Size in bytes.
    pub const SIZE: usize = 12;
    const BEFORE: u32 = 0x0101_080a;

    /// Reads the options of a segment that are timestamps alone; an error is what ends early or is
    /// another option.
    pub fn parse(options: &[u8]) -> Result<Self, ParseError> {
        let Some(options) = options.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, options.len()));
        };
        match be32(options, 0) {
            Self::BEFORE => Ok(Self { value: be32(options, 4), echo_reply: be32(options, 8) }),
            other => {
                let expected = Expected::Exactly(Self::BEFORE.into());
                Err(ParseError::new("option", 0, expected, other.into()))
            }
        }
    }

    /// The option as bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [Self::BEFORE, self.value, self.echo_reply];
        for (slot, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *slot = word.to_be_bytes();
        }
        bytes
    }
}

impl fmt::Display for Timestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timestamp {} echo {}", self.value, self.echo_reply)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const PSEUDO: PseudoHeader =
        PseudoHeader::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));

    /// "Hi" from port 3260 to port 40000. The pseudo-header adds up to A00 + 1 + A00 + 2 + 6 + 16 =
    /// 141F, header and payload to CBC + 9C40 + 7 + 9 + 5010 + FFFF + 4869 = 2 4184; together 2 55A3,
    /// folded 55A5.
    const HI: [u8; 22] = [
        0x0c, 0xbc, 0x9c, 0x40, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 0xff, 0xff, 0xaa, 0x5a, 0, 0,
        b'H', b'i',
    ];

    fn refusal(bytes: &[u8]) -> String {
        Header::pop(bytes, PSEUDO).unwrap_err().to_string()
    }

    #[test]
    fn a_header_both_ways() {
        let sum = Checksum::default().with(b"Hi");
        let header = Header::segment(3260, 40_000, 7, 9, 0).with_checksum(PSEUDO, sum, 2);
        assert_eq!(header.emit(), HI[..20]);
        assert_eq!(Header::pop(&HI, PSEUDO), Ok((header, &[][..], &b"Hi"[..])));
        assert_eq!(header.to_string(), "port 3260 > 40000 sequence 7 acknowledges 9");
        let flags = OffsetFlags(0).with_push(true).with_reset(true).with_syn(true).with_fin(true);
        let header = Header { offset_flags: flags, ..header };
        assert_eq!(header.to_string(), "port 3260 > 40000 sequence 7 PSH RST SYN FIN");
    }

    #[test]
    fn timestamps_both_ways() {
        let bytes = [1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 1, 0];
        let timestamps = Timestamps { value: 3, echo_reply: 256 };
        assert_eq!(timestamps.emit(), bytes);
        assert_eq!(Timestamps::parse(&bytes), Ok(timestamps));
        assert_eq!(timestamps.to_string(), "timestamp 3 echo 256");
        assert_eq!(Timestamps::parse(&bytes[..11]), Err(ParseError::short(12, 11)));
        let error = Timestamps::parse(&[2, 4, 5, 0xb4, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err();
        assert_eq!((error.field, error.seen), ("option", 0x0204_05b4));
    }

    #[test]
    fn options_stand_between_header_and_payload() {
        let behind = [&Timestamps { value: 1, echo_reply: 2 }.emit()[..], &[7, 8, 9]].concat();
        let sum = Checksum::default().with(&behind);
        let header = Header::segment(1, 2, 3, 4, Timestamps::SIZE);
        let header = header.with_checksum(PSEUDO, sum, behind.len());
        let bytes = [&header.emit()[..], &behind].concat();
        assert_eq!(Header::pop(&bytes, PSEUDO), Ok((header, &behind[..12], &[7, 8, 9][..])));
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let mut bytes = HI;
        bytes[21] += 1;
        assert_eq!(refusal(&bytes), "checksum at byte 16: expected 43609, seen 43610 (0xaa5a)");
        // The addresses are covered, too.
        let other = PseudoHeader::V4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        assert!(Header::pop(&HI, other).is_err());
    }

    #[test]
    fn data_offsets_that_cannot_be_are_refused() {
        for (byte, refused) in [
            (0x40, "data offset at byte 12: expected at least 5, seen 4 (0x4)"),
            (0x60, "data offset at byte 12: expected at most 5, seen 6 (0x6)"),
        ] {
            let mut bytes = HI;
            bytes[12] = byte;
            assert_eq!(refusal(&bytes), refused);
        }
        for length in 0..20 {
            assert_eq!(Header::pop(&HI[..length], PSEUDO), Err(ParseError::short(20, length)));
        }
    }

    #[test]
    #[should_panic(expected = "TCP options of 10 bytes")]
    fn options_of_no_whole_words_are_our_mistake() {
        Header::segment(1, 2, 3, 4, 10);
    }
}
