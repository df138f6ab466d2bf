//! Additional header segments (AHS): what a SCSI Command says beyond its 48 bytes.
//!
//! ```text
//!  0           2      3          3 + AHSLength, then zeros up to a multiple of 4
//! +-----------+------+------------------------+
//! | AHSLength | type | specific               |
//! +-----------+------+------------------------+
//! ```
//! AHSLength counts what is specific: byte 3, which both known types reserve, and what follows.
//! All of them together are at most 1020 bytes. Errors: one that ends beyond them; offsets
//! count from the first of them. Spec: RFC 7143 clause 11.2.2.

use core::fmt;

use super::show;
use crate::field::{be16, be32};
use crate::{Expected, ParseError};

codes! {
    /// What an additional header holds.
    pub struct AdditionalHeaderKind(u8) {
        EXTENDED_CDB = 1 "extended CDB",
        BIDIRECTIONAL_READ_LENGTH = 2 "bidirectional read expected data transfer length",
    }
}

/// One additional header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdditionalHeader<'a> {
    /// What it holds.
    pub kind: AdditionalHeaderKind,
    /// What is specific to the kind: AHSLength bytes.
    pub bytes: &'a [u8],
}

impl<'a> AdditionalHeader<'a> {
    /// The CDB from its 17th byte on, if this is an extended CDB.
    pub fn extended_cdb(&self) -> Option<&'a [u8]> {
        match self.kind {
            AdditionalHeaderKind::EXTENDED_CDB => self.bytes.get(1..),
            _ => None,
        }
    }

    /// How many bytes a bidirectional command is expected to read, if this says so.
    pub fn bidirectional_read_length(&self) -> Option<u32> {
        match self.kind {
            AdditionalHeaderKind::BIDIRECTIONAL_READ_LENGTH if self.bytes.len() == 5 => {
                Some(be32(self.bytes, 1))
            }
            _ => None,
        }
    }
}

impl fmt::Display for AdditionalHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        match (self.extended_cdb(), self.bidirectional_read_length()) {
            (Some(cdb), _) => show::hex(f, cdb),
            (_, Some(length)) => write!(f, "{length}"),
            _ => show::hex(f, self.bytes),
        }
    }
}

/// The additional headers of a PDU, in their order; ends after an error.
#[derive(Clone, Debug)]
pub struct AdditionalHeaders<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> AdditionalHeaders<'a> {
    /// Those in `bytes`, the [`Bhs::additional_bytes`](super::Bhs::additional_bytes) that follow
    /// the BHS.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for AdditionalHeaders<'a> {
    type Item = Result<AdditionalHeader<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, rest) = (self.at, &self.bytes[self.at..]);
        if rest.is_empty() {
            return None;
        }
        // Whatever is wrong, nothing behind it can be found.
        self.at = self.bytes.len();
        if rest.len() < 4 {
            return Some(Err(ParseError::short(at + 4, self.bytes.len())));
        }
        let length = usize::from(be16(rest, 0));
        if length > rest.len() - 3 {
            let expected = Expected::AtMost(rest.len() as u64 - 3);
            return Some(Err(ParseError::new("AHSLength", at, expected, length as u64)));
        }
        self.at = self.bytes.len().min(at + (3 + length).next_multiple_of(4));
        Some(Ok(AdditionalHeader {
            kind: AdditionalHeaderKind(rest[2]),
            bytes: &rest[3..3 + length],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additional_headers_one_after_the_other() {
        // A CDB of 18 bytes: 2 beyond the 16, and the reserved byte; then what is to be read.
        let bytes = [0, 3, 1, 0, 0xaa, 0xbb, 0, 0, 0, 5, 2, 0, 0, 0, 2, 0];
        let mut headers = AdditionalHeaders::new(&bytes);
        let cdb = headers.next().unwrap().unwrap();
        assert_eq!(cdb.extended_cdb(), Some(&[0xaa, 0xbb][..]));
        assert_eq!(cdb.bidirectional_read_length(), None);
        assert_eq!(cdb.to_string(), "extended CDB aabb");
        let read = headers.next().unwrap().unwrap();
        assert_eq!(read.bidirectional_read_length(), Some(512));
        assert_eq!(read.extended_cdb(), None);
        assert_eq!(read.to_string(), "bidirectional read expected data transfer length 512");
        assert_eq!(headers.next(), None);
    }

    #[test]
    fn an_unknown_additional_header_is_passed_over() {
        let bytes = [0, 1, 0x3f, 9, 0, 1, 1, 0];
        let headers: Vec<_> = AdditionalHeaders::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(headers[0].kind, AdditionalHeaderKind(0x3f));
        assert_eq!(headers[0].to_string(), "0x3f 09");
        assert_eq!(headers[1].extended_cdb(), Some(&[][..]));
    }

    #[test]
    fn an_additional_header_without_length_ends() {
        let headers = AdditionalHeaders::new(&[0; 12]);
        assert_eq!(headers.count(), 3);
    }

    #[test]
    fn additional_headers_that_end_too_late() {
        let refusal = |bytes: &[u8]| {
            let mut headers = AdditionalHeaders::new(bytes);
            let error = headers.find_map(Result::err).unwrap();
            assert_eq!(headers.next(), None, "nothing follows an error");
            error.to_string()
        };
        assert_eq!(
            refusal(&[0, 1, 1, 0, 0, 6, 1, 0, 0, 0, 0, 0]),
            "AHSLength at byte 4: expected at most 5, seen 6 (0x6)"
        );
        assert_eq!(refusal(&[0, 1, 1]), "length at byte 3: expected at least 4, seen 3 (0x3)");
    }
}
