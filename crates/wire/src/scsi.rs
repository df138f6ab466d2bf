//! SCSI, whatever carries it: command descriptor blocks, statuses, sense data, logical unit numbers
//! and the parameter data of a disk.
//!
//! Here: bytes to values and back. [`Cdb`] is the 16 bytes of a command, read in place; [`Sense`]
//! says why one failed; the modules hold what commands return and take, one for each subject. Not
//! here: what a logical unit answers (crate `scsi`), and how a transport frames any of it. Units:
//! LBAs and counts are logical blocks, lengths bytes. All numbers are big-endian. Spec: SAM-5,
//! "Logical unit number (LUN)", "Status codes"; SPC-4 and SBC-3 for the rest, SPC-5 and SBC-4 where
//! a file says so.

use core::fmt;

pub mod alua;
pub mod capacity;
mod cdb;
pub mod copy;
pub mod inquiry;
mod lun;
pub mod mode;
pub mod opcodes;
pub mod persistent;
pub mod provisioning;
mod sense;
pub mod vpd;

pub use cdb::{ByteCheck, Cdb, OpCode, ServiceAction};
pub use lun::{Lun, LunList};
pub use sense::{AdditionalSense, FieldPointer, Sense, SenseKey};

codes! {
    /// How a command ended.
    pub struct ScsiStatus(u8) {
        GOOD = 0x00 "GOOD",
        CHECK_CONDITION = 0x02 "CHECK CONDITION",
        CONDITION_MET = 0x04 "CONDITION MET",
        BUSY = 0x08 "BUSY",
        RESERVATION_CONFLICT = 0x18 "RESERVATION CONFLICT",
        TASK_SET_FULL = 0x28 "TASK SET FULL",
        ACA_ACTIVE = 0x30 "ACA ACTIVE",
        TASK_ABORTED = 0x40 "TASK ABORTED",
    }
}

codes! {
    /// The protocol that an identifier belongs to. Spec: SPC-4, "Protocol identifiers".
    pub struct ProtocolId(u8) {
        FIBRE_CHANNEL = 0x0 "Fibre Channel",
        SRP = 0x4 "SRP",
        ISCSI = 0x5 "iSCSI",
        SAS = 0x6 "SAS",
        NONE = 0xf "no protocol",
    }
}

pub(crate) use crate::field::{be16, be32};

/// The big-endian 24-bit number at byte `at`; panics when the bytes end before it does.
#[inline(always)]
pub(crate) fn be24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// The big-endian 64-bit number at byte `at`; panics when the bytes end before it does.
#[inline(always)]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Puts bytes at byte `at`: a number's `to_be_bytes`, or a text; panics when they do not fit.
#[inline(always)]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Bytes in hexadecimal, for identifiers that have no other text.
pub(crate) fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
