//! iSCSI: the PDUs between an initiator and a target, and the texts they negotiate with.
//!
//! ```text
//!  0        1       2            4      5                    8             16    20          48
//! +--------+-------+------------+------+--------------------+-------------+-----+-----------+
//! | opcode | flags | specific   | AHS  | DataSegmentLength  | LUN or ISID | ITT | specific  |
//! +--------+-------+------------+------+--------------------+-------------+-----+-----------+
//!  BHS (48) | AHS (4 * TotalAHSLength) | HDGST? | data | pad to 4 | DDGST?
//! ```
//! [`Bhs`] is what a receiver reads first: it says how long everything behind it is. Then the same
//! 48 bytes are read as the PDU that [`Bhs::opcode`] names, a table in `command`, `task`, `data`,
//! `login`, `control` or `event`; [`Pdu`] is any of them. What lies behind the BHS belongs to
//! whoever owns the receive buffer; [`AdditionalHeaders`] and [`keys`] read it. A digest is the
//! CRC32C of BHS and AHS, or of data and padding; it is sent low byte first, and computed by
//! whoever owns the bytes.
//!
//! Units: bytes, big-endian. A LUN is the 8 bytes of SAM, a CDB is 16 bytes; both are read by
//! `scsi`. Errors: [`ParseError`], offsets from the start of the BHS. Not here: which value is
//! acceptable now, sequence numbers but for how two of them compare ([`serial`]). Spec: RFC 7143
//! clause 11, RFC 7144 for the later task management functions.

use core::fmt;

use crate::{Expected, ParseError};

/// What a table of a PDU cannot say: its opcode, and what it has in common with all others.
macro_rules! pdu {
    ($name:ident $opcode:ident) => {
        impl $name {
            /// What the PDU is.
            pub const OPCODE: Opcode = Opcode::$opcode;

            /// What all PDUs have in common: lengths above all.
            #[inline]
            pub const fn bhs(&self) -> Bhs {
                Bhs {
                    operation: self.operation,
                    flags: self.flags.0,
                    total_ahs_length: self.total_ahs_length,
                    data_segment_length: self.data_segment_length,
                    initiator_task_tag: self.initiator_task_tag,
                }
            }
        }
    };
}

mod additional;
mod command;
mod control;
mod data;
mod event;
pub mod keys;
mod login;
mod name;
mod pdu;
pub mod serial;
mod show;
mod task;
#[cfg(test)]
mod tests;

pub use additional::{AdditionalHeader, AdditionalHeaderKind, AdditionalHeaders};
pub use command::{
    Residual, ResponseCode, ResponseFlags, ScsiCommand, ScsiCommandFlags, ScsiResponse,
    TaskAttribute,
};
pub use control::{
    LogoutFlags, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, NopIn, NopOut,
    TextFlags, TextRequest, TextResponse,
};
pub use data::{DataIn, DataInFlags, DataOut, R2t, Snack, SnackFlags, SnackKind};
pub use event::{AsyncEvent, AsyncMessage, Reject, RejectReason};
pub use login::{LoginFlags, LoginRequest, LoginResponse, LoginStatus, Stage};
pub use name::IscsiName;
pub use pdu::Pdu;
pub use task::{
    TaskFunction, TaskFunctionFlags, TaskManagementRequest, TaskManagementResponse, TaskResponse,
};

/// The TCP port of targets.
pub const PORT: u16 = 3260;
/// A tag that names nothing: no task, no transfer.
pub const RESERVED_TAG: u32 = 0xffff_ffff;

codes! {
    /// What a PDU is: 6 bits, of which the highest tells targets from initiators.
    pub struct Opcode(u8) {
        NOP_OUT = 0x00 "NOP-Out",
        SCSI_COMMAND = 0x01 "SCSI Command",
        TASK_MANAGEMENT_REQUEST = 0x02 "Task Management Function Request",
        LOGIN_REQUEST = 0x03 "Login Request",
        TEXT_REQUEST = 0x04 "Text Request",
        DATA_OUT = 0x05 "SCSI Data-Out",
        LOGOUT_REQUEST = 0x06 "Logout Request",
        SNACK = 0x10 "SNACK Request",
        NOP_IN = 0x20 "NOP-In",
        SCSI_RESPONSE = 0x21 "SCSI Response",
        TASK_MANAGEMENT_RESPONSE = 0x22 "Task Management Function Response",
        LOGIN_RESPONSE = 0x23 "Login Response",
        TEXT_RESPONSE = 0x24 "Text Response",
        DATA_IN = 0x25 "SCSI Data-In",
        LOGOUT_RESPONSE = 0x26 "Logout Response",
        R2T = 0x31 "R2T",
        ASYNC_MESSAGE = 0x32 "Asynchronous Message",
        REJECT = 0x3f "Reject",
    }
}

impl Opcode {
    /// True for what an initiator sends.
    #[inline]
    pub const fn is_from_initiator(self) -> bool {
        self.0 & 0x20 == 0
    }

    /// True for PDUs that may have a data segment. The length of the others must be 0.
    #[inline]
    pub const fn carries_data(self) -> bool {
        !matches!(
            self,
            Self::TASK_MANAGEMENT_REQUEST
                | Self::TASK_MANAGEMENT_RESPONSE
                | Self::LOGOUT_REQUEST
                | Self::LOGOUT_RESPONSE
                | Self::R2T
                | Self::SNACK
        )
    }
}

/// Byte 0: the opcode and the immediate bit, above which one bit is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Operation(pub u8);

stands_as!(Operation(u8));

impl Operation {
    const IMMEDIATE: u8 = 0x40;

    /// A PDU that is not immediate.
    #[inline]
    pub const fn new(opcode: Opcode) -> Self {
        Self(opcode.0)
    }

    /// A PDU of an initiator that the target takes at once, outside the order of CmdSN.
    #[inline]
    pub const fn immediate(opcode: Opcode) -> Self {
        Self(opcode.0 | Self::IMMEDIATE)
    }

    /// What the PDU is.
    #[inline]
    pub const fn opcode(self) -> Opcode {
        Opcode(self.0 & 0x3f)
    }

    /// The I bit; means nothing in what a target sends.
    #[inline]
    pub const fn is_immediate(self) -> bool {
        self.0 & Self::IMMEDIATE != 0
    }
}

/// A length of 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct U24(u32);

impl U24 {
    /// The largest.
    pub const MAX: u32 = 0xff_ffff;

    /// This number; panics above [`Self::MAX`], since a data segment so long was never agreed to.
    #[inline]
    pub const fn new(value: u32) -> Self {
        assert!(value <= Self::MAX, "more than a data segment can be");
        Self(value)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl crate::field::BigEndianField for U24 {
    const SIZE: usize = 3;
    #[inline(always)]
    fn get(bytes: &[u8], at: usize) -> Self {
        Self(u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]))
    }
    #[inline(always)]
    fn put(&self, bytes: &mut [u8], at: usize) {
        bytes[at..at + 3].copy_from_slice(&self.0.to_be_bytes()[1..]);
    }
}

impl fmt::Display for U24 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which digests a connection uses, as agreed by login; none before the full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Digests {
    /// CRC32C of every header, AHS included.
    pub header: bool,
    /// CRC32C of every data segment, padding included.
    pub data: bool,
}

impl Digests {
    /// Neither digest.
    pub const NONE: Self = Self { header: false, data: false };
    /// Size of one digest in bytes.
    pub const SIZE: usize = 4;

    /// Bytes of a header digest: 4 or 0.
    #[inline]
    pub const fn header_bytes(self) -> u32 {
        if self.header { 4 } else { 0 }
    }

    /// Bytes of a data digest behind `data_length` bytes of data: 4 or 0, 0 without data.
    #[inline]
    pub const fn data_bytes(self, data_length: u32) -> u32 {
        if self.data && data_length != 0 { 4 } else { 0 }
    }
}

/// Bytes of zeros behind `length` bytes of data, which make it a multiple of 4.
#[inline]
pub const fn padding(length: u32) -> u32 {
    length.wrapping_neg() & 3
}

/// The StatSN of this PDU, and the window in which the target takes commands: what every PDU of a
/// target says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TargetNumbers {
    /// The number of the status, or the next one to come.
    pub stat_sn: u32,
    /// The next CmdSN that is awaited.
    pub exp_cmd_sn: u32,
    /// The last CmdSN that is taken.
    pub max_cmd_sn: u32,
}

/// What nearly every PDU of an initiator says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InitiatorNumbers {
    /// The number of this command; of an immediate one, the number of the next.
    pub cmd_sn: u32,
    /// All statuses before this one have arrived.
    pub exp_stat_sn: u32,
}

bits! {
    /// Byte 1 of PDUs that have nothing to say there: F, always set.
    pub struct FinalFlag(u8) {
        fields {}
        flags {
            /// F.
            is_final / with_final: 7;
        }
    }
}

impl FinalFlag {
    /// As it is always sent.
    pub const SET: Self = Self(0x80);
}

impl fmt::Display for FinalFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"F       ", 0)
    }
}

layout! {
    big_endian:
    /// The basic header segment, as far as it is the same in every PDU.
    pub struct Bhs[48] {
        /// Opcode and immediate bit.
        0 => operation: Operation,
        /// What the bits mean depends on the opcode; the highest is F, or T of a login.
        1 => flags: u8,
        /// TotalAHSLength: words of 4 bytes of additional headers.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of data, without padding.
        5 => data_segment_length: U24,
        /// The task the PDU belongs to, or [`RESERVED_TAG`].
        16 => initiator_task_tag: u32,
    }
}

impl Bhs {
    /// What the PDU is.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.operation.opcode()
    }

    /// The I bit; means nothing in what a target sends.
    #[inline]
    pub const fn is_immediate(&self) -> bool {
        self.operation.is_immediate()
    }

    /// Bytes of additional headers: 0 to 1020.
    #[inline]
    pub const fn additional_bytes(&self) -> u32 {
        self.total_ahs_length as u32 * 4
    }

    /// Bytes up to the data: BHS, additional headers, header digest.
    #[inline]
    pub const fn header_bytes(&self, digests: Digests) -> u32 {
        Self::SIZE as u32 + self.additional_bytes() + digests.header_bytes()
    }

    /// Bytes of data with their padding.
    #[inline]
    pub const fn data_padded(&self) -> u32 {
        self.data_segment_length.get() + padding(self.data_segment_length.get())
    }

    /// Bytes from the data to the end of the PDU: data, padding, data digest.
    #[inline]
    pub const fn data_bytes(&self, digests: Digests) -> u32 {
        self.data_padded() + digests.data_bytes(self.data_segment_length.get())
    }

    /// Bytes of the whole PDU.
    #[inline]
    pub const fn length(&self, digests: Digests) -> u32 {
        self.header_bytes(digests) + self.data_bytes(digests)
    }

    /// Checks what can be known without knowing the session: an opcode of the standard, additional
    /// headers only where there can be any, data only where there can be any. Where the peer
    /// stands, and how much data it may send, is the caller's to say. The lengths can be
    /// believed even if this fails, so that a receiver may skip the PDU and reject it.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        if self.opcode().name().is_none() {
            let expected = Expected::Words("a known opcode");
            return Err(ParseError::new("Opcode", 0, expected, self.opcode().0.into()));
        }
        if self.total_ahs_length != 0 && self.opcode() != Opcode::SCSI_COMMAND {
            let seen = self.total_ahs_length.into();
            return Err(ParseError::new("TotalAHSLength", 4, Expected::Exactly(0), seen));
        }
        if self.data_segment_length.get() != 0 && !self.opcode().carries_data() {
            let seen = self.data_segment_length.get().into();
            return Err(ParseError::new("DataSegmentLength", 5, Expected::Exactly(0), seen));
        }
        Ok(())
    }
}

impl fmt::Display for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &format_args!("{:#04x}", self.flags))?;
        write!(f, " itt {}", show::Tag(self.initiator_task_tag))?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
