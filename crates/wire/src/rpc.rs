//! ONC RPC over TCP: the record mark, and the header of a reply that was accepted.
//!
//! ```text
//!   0  last << 31 | length   4  XID   8  REPLY   12  accepted   16  flavour   20  length, verifier
//!      accept status   results
//! ```
//! As far as it takes to count what NFS costs on the wire: calls and refusals are not here. Units:
//! bytes. Errors: what ends early, what is no accepted reply, a verifier that is too long. Which
//! verifier it is, is passed over. Big-endian. Spec: RFC 5531 clauses 9 and 11.

use core::fmt;

use crate::field::be32;
use crate::{Expected, ParseError};

/// Bytes of the longest verifier.
const VERIFIER_MAX: u32 = 400;

bits! {
    /// What stands in front of each fragment of a record in a stream.
    pub struct RecordMark(u32) {
        fields {
            /// Bytes behind it.
            length / with_length: 0, 31;
        }
        flags {
            /// It is the last fragment of its record.
            is_last / with_last: 31;
        }
    }
}

impl RecordMark {
    /// Size in bytes.
    pub const SIZE: usize = 4;

    /// That of a record in one fragment.
    pub const fn whole(length: u32) -> Self {
        Self(0).with_last(true).with_length(length)
    }

    /// Reads the mark; the only error is an input that ends before it does.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        match bytes.first_chunk::<{ Self::SIZE }>() {
            Some(word) => Ok(Self(u32::from_be_bytes(*word))),
            None => Err(ParseError::short(Self::SIZE, bytes.len())),
        }
    }

    /// The mark as bytes.
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for RecordMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fragment of {}", self.length())?;
        if self.is_last() { f.write_str(", the last") } else { Ok(()) }
    }
}

codes! {
    /// What became of a call that was accepted.
    pub struct AcceptStatus(u32) {
        SUCCESS = 0 "success",
        PROGRAM_UNAVAILABLE = 1 "program unavailable",
        PROGRAM_MISMATCH = 2 "program mismatch",
        PROCEDURE_UNAVAILABLE = 3 "procedure unavailable",
        GARBAGE_ARGUMENTS = 4 "garbage arguments",
        SYSTEM_ERROR = 5 "system error",
    }
}

/// The header of a reply to a call that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedReply {
    /// XID: the caller's mark, given back as it was.
    pub transaction: u32,
    /// What became of the call.
    pub status: AcceptStatus,
}

impl AcceptedReply {
    /// Bytes with an empty verifier.
    pub const SIZE: usize = 24;
    const REPLY: u32 = 1;
    const ACCEPTED: u32 = 0;

    /// Takes the header and its verifier off a record: it, and the results.
    pub fn pop(record: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some(head) = record.first_chunk::<{ Self::SIZE }>() else {
            return Err(ParseError::short(Self::SIZE, record.len()));
        };
        for (at, field, right) in
            [(4, "message type", Self::REPLY), (8, "reply status", Self::ACCEPTED)]
        {
            let seen = be32(head, at);
            if seen != right {
                let expected = Expected::Exactly(right.into());
                return Err(ParseError::new(field, at, expected, seen.into()));
            }
        }
        let length = be32(head, 16);
        if length > VERIFIER_MAX {
            let expected = Expected::AtMost(VERIFIER_MAX.into());
            return Err(ParseError::new("verifier length", 16, expected, length.into()));
        }
        let size = Self::SIZE + length.next_multiple_of(4) as usize;
        let Some((head, results)) = record.split_at_checked(size) else {
            return Err(ParseError::short(size, record.len()));
        };
        let status = AcceptStatus(be32(head, size - 4));
        Ok((Self { transaction: be32(head, 0), status }, results))
    }

    /// The header as bytes, with an empty verifier.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [self.transaction, Self::REPLY, Self::ACCEPTED, 0, 0, self.status.0];
        for (slot, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *slot = word.to_be_bytes();
        }
        bytes
    }
}

impl fmt::Display for AcceptedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reply {:#010x} {}", self.transaction, self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: [u8; 24] =
        [0xa, 0xb, 0xc, 0xd, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];

    #[test]
    fn a_record_mark_both_ways() {
        let mark = RecordMark::whole(0x1_0002);
        assert_eq!(mark.emit(), [0x80, 1, 0, 2]);
        assert_eq!(RecordMark::parse(&[0x80, 1, 0, 2]), Ok(mark));
        assert_eq!(mark.to_string(), "fragment of 65538, the last");
        assert_eq!(RecordMark(7).to_string(), "fragment of 7");
        assert_eq!(RecordMark::parse(&[0; 3]), Err(ParseError::short(4, 3)));
    }

    #[test]
    fn a_reply_both_ways() {
        let reply = AcceptedReply { transaction: 0x0a0b_0c0d, status: AcceptStatus::SYSTEM_ERROR };
        assert_eq!(reply.emit(), REPLY);
        assert_eq!(AcceptedReply::pop(&[&REPLY[..], &[7]].concat()), Ok((reply, &[7][..])));
        assert_eq!(reply.to_string(), "reply 0x0a0b0c0d system error");
        for length in 0..24 {
            let seen = AcceptedReply::pop(&REPLY[..length]);
            assert_eq!(seen, Err(ParseError::short(24, length)));
        }
    }

    #[test]
    fn a_verifier_is_passed_over_with_its_padding() {
        let mut bytes = REPLY[..20].to_vec();
        (bytes[15], bytes[19]) = (6, 5);
        bytes.extend([9; 8]);
        bytes.extend([0, 0, 0, 2, 0xee]);
        let (reply, results) = AcceptedReply::pop(&bytes).unwrap();
        assert_eq!((reply.status, results), (AcceptStatus::PROGRAM_MISMATCH, &[0xee][..]));
        assert_eq!(AcceptedReply::pop(&bytes[..31]), Err(ParseError::short(32, 31)));
    }

    #[test]
    fn what_is_no_accepted_reply_is_refused() {
        for (at, byte, refused) in [
            (7, 0, "message type at byte 4: expected 1, seen 0 (0x0)"),
            (11, 1, "reply status at byte 8: expected 0, seen 1 (0x1)"),
            (18, 2, "verifier length at byte 16: expected at most 400, seen 512 (0x200)"),
        ] {
            let mut bytes = REPLY;
            bytes[at] = byte;
            assert_eq!(AcceptedReply::pop(&bytes).unwrap_err().to_string(), refused);
        }
    }
}
