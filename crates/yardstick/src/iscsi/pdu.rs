//! The few offsets of iSCSI that the yardstick needs, by hand.
//!
//! Not the `wire` crate on purpose, as with NVMe/TCP: a yardstick that shared the parser of what it
//! measures would hide the parser's cost. Nothing is validated beyond what keeps memory safe. Units:
//! bytes; all integers big-endian but for digests. Spec: RFC 7143, 11.
//!
//! ```text
//! basic header 48 | header digest 0 or 4 | data, padded to a multiple of 4 | data digest 0 or 4
//! ```

use crate::bytes::{digest, put};
use crate::outbox::Outbox;

/// Length of a basic header segment.
pub(super) const BHS_LEN: usize = 48;
/// Length of a digest.
pub(super) const DIGEST_LEN: usize = 4;
/// A tag that is none.
pub(super) const NO_TAG: u32 = 0xffff_ffff;

/// A basic header segment.
pub(super) type Bhs = [u8; BHS_LEN];

/// Opcodes (byte 0 without the bit for immediate delivery).
pub(super) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const SCSI_COMMAND: u8 = 0x01;
    pub(crate) const LOGIN_REQUEST: u8 = 0x03;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT_REQUEST: u8 = 0x06;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const SCSI_RESPONSE: u8 = 0x21;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const REJECT: u8 = 0x3f;
    /// The bit for immediate delivery, and all others.
    pub(crate) const IMMEDIATE: u8 = 0x40;
    pub(crate) const MASK: u8 = 0x3f;
}

/// Flags (byte 1).
pub(super) mod flag {
    /// The last PDU of a sequence; in a login, the wish to go on to the next stage.
    pub(crate) const FINAL: u8 = 0x80;
    /// Of a login: the text goes on in another PDU.
    pub(crate) const CONTINUE: u8 = 0x40;
    /// Of a command: it reads, it writes; simple task attribute.
    pub(crate) const READ: u8 = 0x40;
    pub(crate) const WRITE: u8 = 0x20;
    pub(crate) const SIMPLE: u8 = 0x01;
    /// Of a Data-In or a response: residual overflow, residual underflow.
    pub(crate) const OVERFLOW: u8 = 0x04;
    pub(crate) const UNDERFLOW: u8 = 0x02;
    /// Of a Data-In: it carries the status.
    pub(crate) const STATUS: u8 = 0x01;
}

/// Where the fields of the headers stand. Those of one direction share an offset with others of the
/// other one.
pub(super) mod at {
    pub(crate) const FLAGS: usize = 1;
    /// Of a response: iSCSI's own code, and the SCSI status.
    pub(crate) const RESPONSE: usize = 2;
    pub(crate) const STATUS: usize = 3;
    pub(crate) const AHS_LEN: usize = 4;
    /// Length of the data segment, three bytes.
    pub(crate) const DATA_LEN: usize = 5;
    pub(crate) const LUN: usize = 8;
    /// Of a login: who asks (6 bytes), and the session's handle.
    pub(crate) const ISID: usize = 8;
    pub(crate) const TSIH: usize = 14;
    /// Initiator task tag.
    pub(crate) const ITT: usize = 16;
    /// Target transfer tag; of a command, how much it expects to move.
    pub(crate) const TTT: usize = 20;
    pub(crate) const EDTL: usize = 20;
    /// From the initiator.
    pub(crate) const CMD_SN: usize = 24;
    pub(crate) const EXP_STAT_SN: usize = 28;
    /// From the target.
    pub(crate) const STAT_SN: usize = 24;
    pub(crate) const EXP_CMD_SN: usize = 28;
    pub(crate) const MAX_CMD_SN: usize = 32;
    pub(crate) const CDB: usize = 32;
    /// DataSN or R2TSN; of a login, class and detail of the status.
    pub(crate) const DATA_SN: usize = 36;
    pub(crate) const LOGIN_STATUS: usize = 36;
    /// Of data and R2T: where they begin in those of the command.
    pub(crate) const OFFSET: usize = 40;
    /// Of an R2T: how much it asks for; of a response: the residual count.
    pub(crate) const LENGTH: usize = 44;
    pub(crate) const RESIDUAL: usize = 44;
}

/// Reads a `u16` at `at`.
#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a `u32` at `at`.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// Reads a `u64` at `at`.
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

/// Writes a `u32` at `at`.
#[inline]
pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_be_bytes());
}

/// Length of a header's data segment, without its padding.
#[inline]
pub(super) fn data_len(bhs: &[u8]) -> usize {
    (u32_at(bhs, at::AHS_LEN) & 0x00ff_ffff) as usize
}

/// Writes it.
#[inline]
pub(super) fn put_data_len(bhs: &mut [u8], len: usize) {
    put(bhs, at::DATA_LEN, &(len as u32).to_be_bytes()[1..]);
}

/// A length with its padding.
#[inline]
pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// A header with nothing but an opcode, flags and a task tag.
#[inline]
pub(super) fn head(opcode: u8, flags: u8, itt: u32) -> Bhs {
    let mut bhs = [0; BHS_LEN];
    bhs[0] = opcode;
    bhs[at::FLAGS] = flags;
    put_u32(&mut bhs, at::ITT, itt);
    bhs
}

/// A logical unit number below 256 in eight bytes: peripheral device addressing (SAM-5, 4.7).
pub(super) fn lun(number: u8) -> [u8; 8] {
    [0, number, 0, 0, 0, 0, 0, 0]
}

/// Queues a header that `fill` writes whole, and its digest where that was agreed.
#[inline]
pub(super) fn push(outbox: &mut Outbox, header_digest: bool, fill: impl FnOnce(&mut Bhs)) {
    if !header_digest {
        outbox.header::<BHS_LEN>(fill);
        return;
    }
    outbox.header::<{ BHS_LEN + DIGEST_LEN }>(|bytes| {
        let (bhs, sum) = bytes.split_at_mut(BHS_LEN);
        let bhs: &mut Bhs = bhs.try_into().expect("that length");
        fill(bhs);
        sum.copy_from_slice(&digest(bhs));
    });
}

/// A data segment as it goes out, padded and with its digest where that was agreed; of nothing,
/// nothing.
pub(super) fn segment(data: &[u8], data_digest: bool) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(padded(data.len()), 0);
    if data_digest && !data.is_empty() {
        let sum = digest(&bytes);
        bytes.extend_from_slice(&sum);
    }
    bytes
}

/// Whether `a` comes after `b`, as serial numbers (RFC 1982).
#[inline]
pub(super) fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_data_is_three_bytes_behind_that_of_further_headers() {
        let mut bhs = head(opcode::DATA_IN, flag::FINAL, 0x0102_0304);
        bhs[at::AHS_LEN] = 0xff;
        put_data_len(&mut bhs, 0x0001_e000);
        assert_eq!(bhs[..8], [0x25, 0x80, 0, 0, 0xff, 0x01, 0xe0, 0x00]);
        assert_eq!(data_len(&bhs), 0x0001_e000);
        assert_eq!(u32_at(&bhs, at::ITT), 0x0102_0304);
        assert_eq!(u16_at(&bhs, at::ITT), 0x0102);
        assert_eq!(u64_at(&bhs, at::ITT) >> 32, 0x0102_0304);
    }

    #[test]
    fn a_segment_is_padded_and_its_digest_covers_the_padding() {
        assert_eq!(segment(b"abc", false), b"abc\0");
        assert_eq!(segment(b"abc", true)[4..], digest(b"abc\0"));
        assert!(segment(b"", true).is_empty());
    }

    #[test]
    fn serial_numbers_go_round() {
        assert!(is_after(0, u32::MAX) && is_after(5, 4));
        assert!(!is_after(4, 4) && !is_after(u32::MAX, 0));
    }
}
