//! The completion queue entry: 16 bytes.
//!
//! ```text
//!  0 result (DW0-1) | 8 SQHD | 10 reserved over fabrics | 12 CID | 14 status word, phase bit 0
//! ```
//! Spec: NVMe base, "Common Completion Queue Entry".

use core::fmt;

use super::Status;
use crate::ParseError;
use crate::field::Field;

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// DW0-1: what the command returns; most use DW0 alone.
    pub result: u64,
    /// SQHD: head of the submission queue, 0xffff once SQ flow control is disabled.
    pub sq_head: u16,
    /// CID of the command that is complete.
    pub command_id: u16,
    /// What became of it.
    pub status: Status,
}

impl Completion {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 16;
    /// SQHD when SQ flow control is disabled.
    pub const SQ_HEAD_DISABLED: u16 = 0xffff;

    /// An entry that returns nothing but `status`; SQHD is set by the owner of the queue.
    #[inline]
    #[must_use]
    pub const fn new(command_id: u16, status: Status) -> Self {
        Self { result: 0, sq_head: 0, command_id, status }
    }

    /// With DW0 set.
    #[inline]
    #[must_use]
    pub const fn with_result(mut self, result: u32) -> Self {
        self.result = result as u64;
        self
    }

    /// DW0.
    #[inline]
    #[must_use]
    pub const fn result32(&self) -> u32 {
        self.result as u32
    }

    /// Reads the first 16 bytes; the only error is a shorter input.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        match bytes.first_chunk::<{ Self::SIZE }>() {
            Some(bytes) => Ok(Self::get(bytes, 0)),
            None => Err(ParseError::short(Self::SIZE, bytes.len())),
        }
    }

    /// The entry as bytes.
    #[inline]
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        self.put(&mut bytes, 0);
        bytes
    }
}

impl Field for Completion {
    const SIZE: usize = 16;
    #[inline(always)]
    fn get(bytes: &[u8], at: usize) -> Self {
        Self {
            result: u64::get(bytes, at),
            sq_head: u16::get(bytes, at + 8),
            command_id: u16::get(bytes, at + 12),
            status: Status::from_word(u16::get(bytes, at + 14)),
        }
    }
    #[inline(always)]
    fn put(&self, bytes: &mut [u8], at: usize) {
        self.result.put(bytes, at);
        self.sq_head.put(bytes, at + 8);
        0u16.put(bytes, at + 10);
        self.command_id.put(bytes, at + 12);
        self.status.to_word().put(bytes, at + 14);
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cid {} sqhd {} result {:#x} {}",
            self.command_id, self.sq_head, self.result, self.status
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_both_ways() {
        let completion = Completion {
            result: 0x1122_3344_5566_7788,
            sq_head: 0xffff,
            command_id: 0x0102,
            status: Status::COMPARE_FAILURE.with_dnr(),
        };
        let bytes = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xff, 0xff, 0, 0, 0x02, 0x01, 0x0a,
            0x85,
        ];
        assert_eq!(completion.emit(), bytes);
        assert_eq!(Completion::parse(&bytes), Ok(completion));
        assert_eq!(completion.result32(), 0x5566_7788);
        assert_eq!(
            completion.to_string(),
            "cid 258 sqhd 65535 result 0x1122334455667788 compare failure (0x285) dnr"
        );
        assert_eq!(Completion::new(1, Status::SUCCESS).with_result(7).result, 7);
        assert_eq!(Completion::parse(&bytes[..15]), Err(ParseError::short(16, 15)));
    }
}
