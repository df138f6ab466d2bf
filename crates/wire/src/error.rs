//! The one parse error of this crate: which field, where, what was expected, what was seen.
//!
//! Offsets count bytes from the start of the header or structure that was parsed, so an NVMe/TCP
//! target can put [`ParseError::offset`] into the Fatal Error Information field as it is.

use core::fmt;

/// What a field should have held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This value and no other.
    Exactly(u64),
    /// This value or more.
    AtLeast(u64),
    /// This value or less.
    AtMost(u64),
    /// Said in words, where a number cannot say it.
    Words(&'static str),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "{value}"),
            Self::AtLeast(value) => write!(f, "at least {value}"),
            Self::AtMost(value) => write!(f, "at most {value}"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// Bytes that are not what they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The field's name as its standard spells it; `"length"` for an input that ends too early.
    pub field: &'static str,
    /// Offset of the field in bytes from the start of what was parsed.
    pub offset: usize,
    /// What the field should have held.
    pub expected: Expected,
    /// What it held.
    pub seen: u64,
}

impl ParseError {
    /// An error at `field`, `offset` bytes into the structure.
    pub const fn new(field: &'static str, offset: usize, expected: Expected, seen: u64) -> Self {
        Self { field, offset, expected, seen }
    }

    /// An input of `seen` bytes where a structure of `expected` bytes was announced.
    #[cold]
    pub const fn short(expected: usize, seen: usize) -> Self {
        Self::new("length", seen, Expected::AtLeast(expected as u64), seen as u64)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: expected {}, seen {} ({:#x})",
            self.field, self.offset, self.expected, self.seen, self.seen
        )
    }
}

impl core::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_field_offset_expected_and_seen() {
        let error = ParseError::new("HLEN", 2, Expected::Exactly(24), 26);
        assert_eq!(error.to_string(), "HLEN at byte 2: expected 24, seen 26 (0x1a)");
        assert_eq!(
            ParseError::short(8, 3).to_string(),
            "length at byte 3: expected at least 8, seen 3 (0x3)"
        );
    }
}
