//! The completion queue entry: 16 bytes.
//!
//! Bytes 10 and 11, the SQ identifier, are reserved over fabrics, and so is the phase bit. Spec:
//! NVMe base, "Common Completion Queue Entry".

use core::fmt;

use super::Status;

layout! {
    /// A completion queue entry.
    pub struct Completion[16] {
        /// DW0-1: what the command returns; most use DW0 alone.
        0 => result: u64,
        /// SQHD: head of the submission queue, 0xffff once SQ flow control is disabled.
        8 => sq_head: u16,
        /// CID of the command that is complete.
        12 => command_id: u16,
        /// What became of it.
        14 => status: Status,
    }
}

impl Completion {
    /// SQHD when SQ flow control is disabled.
    pub const SQ_HEAD_DISABLED: u16 = 0xffff;

    /// An entry that returns nothing but `status`; SQHD is set by the owner of the queue.
    #[inline]
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
    pub const fn result32(&self) -> u32 {
        self.result as u32
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
    use crate::ParseError;

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
