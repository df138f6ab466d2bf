//! NFS version 3: the results of a READ, in the reply of an RPC.
//!
//! ```text
//!   0  status   4  1: attributes follow, 84 bytes   88  count   92  EOF   96  length, data
//!   0  status   4  0: no attributes   8  count   12  EOF   16  length, data
//! ```
//! As far as it takes to count what a file's blocks cost on the wire: other procedures and errors are
//! not here. Units: bytes. Errors: what ends early, a status that is none of success, numbers that
//! contradict each other. Big-endian; data are padded to a multiple of 4 (XDR).
//! Spec: RFC 1813 clauses 2.6 and 3.3.6.

use core::fmt;

use crate::field::be32;
use crate::{Expected, Front, ParseError};

/// The TCP port of servers.
pub const PORT: u16 = 2049;

layout! {
    big_endian:
    /// fattr3: what a server tells of a file. Times are seconds and nanoseconds.
    pub struct FileAttributes[84] {
        /// What it is: 1 a file, 2 a directory, and so on.
        0 => kind: u32,
        /// Who may do what with it.
        4 => mode: u32,
        /// Its names.
        8 => links: u32,
        /// Its owner.
        12 => user: u32,
        /// Its group.
        16 => group: u32,
        /// Its bytes.
        20 => size: u64,
        /// Bytes that it takes on the disk.
        28 => used: u64,
        /// Which device it is, if it is one.
        36 => device: [u32; 2],
        /// The file system.
        44 => file_system: u64,
        /// Its number there.
        52 => file: u64,
        /// When it was read.
        60 => accessed: [u32; 2],
        /// When it was written.
        68 => modified: [u32; 2],
        /// When its attributes were.
        76 => changed: [u32; 2],
    }
}

impl fmt::Display for FileAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {} kind {} mode {:o} size {}", self.file, self.kind, self.mode, self.size)
    }
}

/// The results of a READ that succeeded, up to its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// What the file is like now, if the server tells.
    pub attributes: Option<FileAttributes>,
    /// Bytes that were read.
    pub count: u32,
    /// Whether they are the last of the file.
    pub is_end: bool,
}

impl ReadReply {
    /// Bytes with attributes.
    pub const SIZE_MAX: usize = 104;

    /// Takes the results apart: what precedes the data, and the data. Padding behind them is passed
    /// over, as is whatever else is there, and is not missed: the record says where a reply ends.
    pub fn pop(results: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let word = |at| match results.len() {
            length if length < at + 4 => Err(ParseError::short(at + 4, length)),
            _ => Ok(be32(results, at)),
        };
        let exactly = |field, at, right: u32| match word(at)? {
            seen if seen == right => Ok(()),
            seen => Err(ParseError::new(field, at, Expected::Exactly(right.into()), seen.into())),
        };
        let flag = |field, at| match word(at)? {
            seen @ (0 | 1) => Ok(seen == 1),
            seen => Err(ParseError::new(field, at, Expected::AtMost(1), seen.into())),
        };
        exactly("status", 0, 0)?;
        let (attributes, at) = match flag("attributes follow", 4)? {
            false => (None, 8),
            true => {
                let at = 8 + FileAttributes::SIZE;
                let short = |_| ParseError::short(at, results.len());
                (Some(FileAttributes::parse(&results[8..]).map_err(short)?), at)
            }
        };
        let (count, is_end) = (word(at)?, flag("EOF", at + 4)?);
        exactly("data length", at + 8, count)?;
        let begin = at + 12;
        match results[begin..].get(..count as usize) {
            Some(data) => Ok((Self { attributes, count, is_end }, data)),
            None => Err(ParseError::short(begin + count as usize, results.len())),
        }
    }

    /// What precedes the data, as bytes.
    pub fn emit(&self) -> Front<{ Self::SIZE_MAX }> {
        let mut front = Front::new();
        for word in [self.count, u32::from(self.is_end), self.count] {
            front.push(&word.to_be_bytes());
        }
        if let Some(attributes) = self.attributes {
            front.push(&attributes.emit());
        }
        front.push(&u32::from(self.attributes.is_some()).to_be_bytes());
        front.push(&0_u32.to_be_bytes());
        front
    }
}

impl fmt::Display for ReadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read {}", self.count)?;
        if self.is_end {
            f.write_str(" up to the end")?;
        }
        match self.attributes {
            Some(attributes) => write!(f, " of {attributes}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte of it tells where it stands.
    fn attributes() -> ([u8; 84], FileAttributes) {
        let bytes: [u8; 84] = core::array::from_fn(|at| at as u8);
        let pair = |at: u32| {
            let word = |at: u32| at << 24 | (at + 1) << 16 | (at + 2) << 8 | (at + 3);
            [word(at), word(at + 4)]
        };
        let long = |at| u64::from(pair(at)[0]) << 32 | u64::from(pair(at)[1]);
        let attributes = FileAttributes {
            kind: pair(0)[0],
            mode: pair(4)[0],
            links: pair(8)[0],
            user: pair(12)[0],
            group: pair(16)[0],
            size: long(20),
            used: long(28),
            device: pair(36),
            file_system: long(44),
            file: long(52),
            accessed: pair(60),
            modified: pair(68),
            changed: pair(76),
        };
        (bytes, attributes)
    }

    #[test]
    fn attributes_both_ways() {
        let (bytes, attributes) = attributes();
        assert_eq!(FileAttributes::parse(&bytes), Ok(attributes));
        assert_eq!(attributes.emit(), bytes);
        let plain = FileAttributes { kind: 1, mode: 0o644, size: 9, file: 7, ..attributes };
        assert_eq!(plain.to_string(), "file 7 kind 1 mode 644 size 9");
    }

    #[test]
    fn results_with_and_without_attributes_both_ways() {
        let (bytes, attributes) = attributes();
        let end = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let [without, with] = [0, 1].map(|follow| [0, 0, 0, 0, 0, 0, 0, follow]);
        for (head, attributes) in [
            ([&without[..], &end].concat(), None),
            ([&with[..], &bytes, &end].concat(), Some(attributes)),
        ] {
            let reply = ReadReply { attributes, count: 2, is_end: true };
            assert_eq!(*reply.emit(), head);
            let results = [&head[..], b"Hi\0\0"].concat();
            assert_eq!(ReadReply::pop(&results), Ok((reply, &b"Hi"[..])));
            for length in 0..head.len() + 2 {
                let error = ReadReply::pop(&results[..length]).unwrap_err();
                assert_eq!((error.field, error.seen), ("length", length as u64));
            }
        }
        let reply = ReadReply { attributes: None, count: 2, is_end: true };
        assert_eq!(reply.to_string(), "read 2 up to the end");
        let attributes = Some(FileAttributes { file: 7, ..FileAttributes::default() });
        let reply = ReadReply { attributes, count: 2, is_end: false };
        assert_eq!(reply.to_string(), "read 2 of file 7 kind 0 mode 0 size 0");
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let head = ReadReply { attributes: None, count: 2, is_end: false }.emit();
        for (at, refused) in [
            (3, "status at byte 0: expected 0, seen 64 (0x40)"),
            (7, "attributes follow at byte 4: expected at most 1, seen 64 (0x40)"),
            (15, "EOF at byte 12: expected at most 1, seen 64 (0x40)"),
            (19, "data length at byte 16: expected 2, seen 66 (0x42)"),
        ] {
            let mut bytes = [&head[..], b"Hi\0\0"].concat();
            bytes[at] |= 0x40;
            assert_eq!(ReadReply::pop(&bytes).unwrap_err().to_string(), refused);
        }
    }
}
