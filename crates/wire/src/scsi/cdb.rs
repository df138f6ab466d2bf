//! The command descriptor block: 16 bytes, read in place.
//!
//! ```text
//!  6   opcode | 1 LBA 20:16 | 2 LBA          | 4 blocks                          | 5 CONTROL
//! 10   opcode | 1 flags     | 2 LBA          | 6 group | 7 blocks                | 9 CONTROL
//! 12   opcode | 1 flags     | 2 LBA          | 6 blocks          | 10 group      | 11 CONTROL
//! 16   opcode | 1 flags     | 2 LBA (64)     | 10 blocks         | 14 group      | 15 CONTROL
//! ```
//! [`Cdb`] keeps the bytes as they came and reads a field when asked; the group of the opcode, its
//! bits 7:5, says where a field lies. Blocks of 6, 10 and 12 bytes are followed by zeros.
//! Accessors may be called for any opcode and then mean only what lies there. Units: LBAs and
//! counts are logical blocks, lengths bytes. The one parse error is an input that ends too early.
//! Not here: blocks longer than 16 bytes. Spec: SPC-4, "The request/response model"; SBC-3,
//! "Commands for direct access block devices".

use core::fmt;

use super::{be16, be24, be32, be64};
use crate::ParseError;

codes! {
    /// The operation code, byte 0.
    pub struct OpCode(u8) {
        TEST_UNIT_READY = 0x00 "TEST UNIT READY",
        REQUEST_SENSE = 0x03 "REQUEST SENSE",
        FORMAT_UNIT = 0x04 "FORMAT UNIT",
        REASSIGN_BLOCKS = 0x07 "REASSIGN BLOCKS",
        READ_6 = 0x08 "READ(6)",
        WRITE_6 = 0x0a "WRITE(6)",
        INQUIRY = 0x12 "INQUIRY",
        MODE_SELECT_6 = 0x15 "MODE SELECT(6)",
        RESERVE_6 = 0x16 "RESERVE(6)",
        RELEASE_6 = 0x17 "RELEASE(6)",
        MODE_SENSE_6 = 0x1a "MODE SENSE(6)",
        START_STOP_UNIT = 0x1b "START STOP UNIT",
        RECEIVE_DIAGNOSTIC_RESULTS = 0x1c "RECEIVE DIAGNOSTIC RESULTS",
        SEND_DIAGNOSTIC = 0x1d "SEND DIAGNOSTIC",
        PREVENT_ALLOW_MEDIUM_REMOVAL = 0x1e "PREVENT ALLOW MEDIUM REMOVAL",
        READ_CAPACITY_10 = 0x25 "READ CAPACITY(10)",
        READ_10 = 0x28 "READ(10)",
        WRITE_10 = 0x2a "WRITE(10)",
        WRITE_AND_VERIFY_10 = 0x2e "WRITE AND VERIFY(10)",
        VERIFY_10 = 0x2f "VERIFY(10)",
        PRE_FETCH_10 = 0x34 "PRE-FETCH(10)",
        SYNCHRONIZE_CACHE_10 = 0x35 "SYNCHRONIZE CACHE(10)",
        READ_DEFECT_DATA_10 = 0x37 "READ DEFECT DATA(10)",
        WRITE_BUFFER = 0x3b "WRITE BUFFER",
        READ_BUFFER = 0x3c "READ BUFFER",
        WRITE_SAME_10 = 0x41 "WRITE SAME(10)",
        UNMAP = 0x42 "UNMAP",
        SANITIZE = 0x48 "SANITIZE",
        LOG_SELECT = 0x4c "LOG SELECT",
        LOG_SENSE = 0x4d "LOG SENSE",
        MODE_SELECT_10 = 0x55 "MODE SELECT(10)",
        RESERVE_10 = 0x56 "RESERVE(10)",
        RELEASE_10 = 0x57 "RELEASE(10)",
        MODE_SENSE_10 = 0x5a "MODE SENSE(10)",
        PERSISTENT_RESERVE_IN = 0x5e "PERSISTENT RESERVE IN",
        PERSISTENT_RESERVE_OUT = 0x5f "PERSISTENT RESERVE OUT",
        VARIABLE_LENGTH = 0x7f "variable length",
        EXTENDED_COPY = 0x83 "EXTENDED COPY",
        RECEIVE_COPY_RESULTS = 0x84 "RECEIVE COPY RESULTS",
        ATA_PASS_THROUGH_16 = 0x85 "ATA PASS-THROUGH(16)",
        READ_16 = 0x88 "READ(16)",
        COMPARE_AND_WRITE = 0x89 "COMPARE AND WRITE",
        WRITE_16 = 0x8a "WRITE(16)",
        ORWRITE_16 = 0x8b "ORWRITE(16)",
        WRITE_AND_VERIFY_16 = 0x8e "WRITE AND VERIFY(16)",
        VERIFY_16 = 0x8f "VERIFY(16)",
        PRE_FETCH_16 = 0x90 "PRE-FETCH(16)",
        SYNCHRONIZE_CACHE_16 = 0x91 "SYNCHRONIZE CACHE(16)",
        WRITE_SAME_16 = 0x93 "WRITE SAME(16)",
        WRITE_ATOMIC_16 = 0x9c "WRITE ATOMIC(16)",
        SERVICE_ACTION_IN_16 = 0x9e "SERVICE ACTION IN(16)",
        REPORT_LUNS = 0xa0 "REPORT LUNS",
        ATA_PASS_THROUGH_12 = 0xa1 "ATA PASS-THROUGH(12)",
        MAINTENANCE_IN = 0xa3 "MAINTENANCE IN",
        MAINTENANCE_OUT = 0xa4 "MAINTENANCE OUT",
        READ_12 = 0xa8 "READ(12)",
        WRITE_12 = 0xaa "WRITE(12)",
        WRITE_AND_VERIFY_12 = 0xae "WRITE AND VERIFY(12)",
        VERIFY_12 = 0xaf "VERIFY(12)",
        READ_DEFECT_DATA_12 = 0xb7 "READ DEFECT DATA(12)",
    }
}

/// An opcode with the service action that says what is asked for; its name is the command's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAction(pub u16);

names! {
    ServiceAction by |action| action.0;
    PERSISTENT_RESERVE_IN_READ_KEYS = 0x5e00 "PERSISTENT RESERVE IN, READ KEYS",
    PERSISTENT_RESERVE_IN_READ_RESERVATION = 0x5e01 "PERSISTENT RESERVE IN, READ RESERVATION",
    PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES = 0x5e02 "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
    PERSISTENT_RESERVE_IN_READ_FULL_STATUS = 0x5e03 "PERSISTENT RESERVE IN, READ FULL STATUS",
    PERSISTENT_RESERVE_OUT_REGISTER = 0x5f00 "PERSISTENT RESERVE OUT, REGISTER",
    PERSISTENT_RESERVE_OUT_RESERVE = 0x5f01 "PERSISTENT RESERVE OUT, RESERVE",
    PERSISTENT_RESERVE_OUT_RELEASE = 0x5f02 "PERSISTENT RESERVE OUT, RELEASE",
    PERSISTENT_RESERVE_OUT_CLEAR = 0x5f03 "PERSISTENT RESERVE OUT, CLEAR",
    PERSISTENT_RESERVE_OUT_PREEMPT = 0x5f04 "PERSISTENT RESERVE OUT, PREEMPT",
    PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT = 0x5f05 "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
    PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE = 0x5f06 "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
    PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE = 0x5f07 "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
    EXTENDED_COPY_LID1 = 0x8300 "EXTENDED COPY(LID1)",
    RECEIVE_COPY_STATUS_LID1 = 0x8400 "RECEIVE COPY STATUS(LID1)",
    RECEIVE_COPY_OPERATING_PARAMETERS = 0x8403 "RECEIVE COPY OPERATING PARAMETERS",
    RECEIVE_COPY_FAILURE_DETAILS_LID1 = 0x8404 "RECEIVE COPY FAILURE DETAILS(LID1)",
    READ_CAPACITY_16 = 0x9e10 "READ CAPACITY(16)",
    GET_LBA_STATUS = 0x9e12 "GET LBA STATUS",
    REPORT_TARGET_PORT_GROUPS = 0xa30a "REPORT TARGET PORT GROUPS",
    REPORT_SUPPORTED_OPERATION_CODES = 0xa30c "REPORT SUPPORTED OPERATION CODES",
    REPORT_SUPPORTED_TASK_MANAGEMENT = 0xa30d "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
    SET_TARGET_PORT_GROUPS = 0xa40a "SET TARGET PORT GROUPS",
}

impl ServiceAction {
    /// The opcode.
    #[inline]
    pub const fn opcode(self) -> OpCode {
        OpCode((self.0 >> 8) as u8)
    }

    /// The service action, 0 to 31.
    #[inline]
    pub const fn action(self) -> u8 {
        self.0 as u8 & 0x1f
    }
}

codes! {
    /// BYTCHK: what VERIFY and WRITE AND VERIFY compare.
    pub struct ByteCheck(u8) {
        MEDIUM = 0 "verify the medium",
        COMPARE = 1 "compare with the data",
        COMPARE_ONE = 3 "compare with one block",
    }
}

/// A command descriptor block, 16 bytes as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cdb(pub [u8; 16]);

impl Cdb {
    /// Size of the field that a transport has for it, in bytes.
    pub const SIZE: usize = 16;

    /// Copies the first 16 bytes; the only error is a shorter input.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        match bytes.first_chunk() {
            Some(bytes) => Ok(Self(*bytes)),
            None => Err(ParseError::short(Self::SIZE, bytes.len())),
        }
    }

    /// The bytes of the wire.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::SIZE] {
        self.0
    }

    /// The opcode.
    #[inline]
    pub const fn opcode(&self) -> OpCode {
        OpCode(self.0[0])
    }

    /// Bytes that belong to the command, as the group of its opcode says; 16 where it does not.
    #[inline]
    pub const fn length(&self) -> usize {
        match self.0[0] >> 5 {
            0 => 6,
            1 | 2 => 10,
            5 => 12,
            _ => 16,
        }
    }

    /// CONTROL, the last byte.
    #[inline]
    pub const fn control(&self) -> u8 {
        self.0[self.length() - 1]
    }

    /// NACA of CONTROL: the initiator wants an auto contingent allegiance.
    #[inline]
    pub const fn naca(&self) -> bool {
        self.control() & 4 != 0
    }

    /// Whether the opcode alone does not say what is asked for.
    #[inline]
    pub const fn has_service_action(&self) -> bool {
        matches!(
            self.opcode(),
            OpCode::SANITIZE
                | OpCode::PERSISTENT_RESERVE_IN
                | OpCode::PERSISTENT_RESERVE_OUT
                | OpCode::EXTENDED_COPY
                | OpCode::RECEIVE_COPY_RESULTS
                | OpCode::SERVICE_ACTION_IN_16
                | OpCode::MAINTENANCE_IN
                | OpCode::MAINTENANCE_OUT
        )
    }

    /// SERVICE ACTION, byte 1 bits 4:0.
    #[inline]
    pub const fn service_action(&self) -> u8 {
        self.0[1] & 0x1f
    }

    /// The opcode with its service action.
    #[inline]
    pub const fn action(&self) -> ServiceAction {
        ServiceAction((self.0[0] as u16) << 8 | self.service_action() as u16)
    }

    /// LOGICAL BLOCK ADDRESS: 21 bits of READ(6) and WRITE(6), 32 of 10 and 12 bytes, 64 of 16.
    #[inline]
    pub fn lba(&self) -> u64 {
        match self.0[0] >> 5 {
            0 => u64::from(be24(&self.0, 1) & 0x1f_ffff),
            4 => be64(&self.0, 2),
            _ => u64::from(be32(&self.0, 2)),
        }
    }

    /// Number of logical blocks: TRANSFER LENGTH and its like. 0 of READ(6) and WRITE(6) is 256; of
    /// the others it stays 0, and the command says whether that means none or all.
    #[inline]
    pub fn blocks(&self) -> u32 {
        match self.0[0] >> 5 {
            0 if self.0[4] == 0 => 256,
            0 => u32::from(self.0[4]),
            1 | 2 => u32::from(be16(&self.0, 7)),
            5 => be32(&self.0, 6),
            _ if self.opcode() == OpCode::COMPARE_AND_WRITE => u32::from(self.0[13]),
            _ => be32(&self.0, 10),
        }
    }

    /// RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT, byte 1 bits 7:5.
    #[inline]
    pub const fn protect(&self) -> u8 {
        self.0[1] >> 5
    }

    /// DPO, byte 1 bit 4: the blocks are not likely to be read soon.
    #[inline]
    pub const fn dpo(&self) -> bool {
        self.0[1] & 0x10 != 0
    }

    /// FUA, byte 1 bit 3: from the medium, or on it before the status.
    #[inline]
    pub const fn fua(&self) -> bool {
        self.0[1] & 0x08 != 0
    }

    /// BYTCHK, byte 1 bits 2:1 of VERIFY and WRITE AND VERIFY.
    #[inline]
    pub const fn byte_check(&self) -> ByteCheck {
        ByteCheck(self.0[1] >> 1 & 3)
    }

    /// UNMAP, byte 1 bit 3 of WRITE SAME.
    #[inline]
    pub const fn unmap(&self) -> bool {
        self.0[1] & 0x08 != 0
    }

    /// ANCHOR: byte 1 bit 4 of WRITE SAME, bit 0 of UNMAP.
    #[inline]
    pub const fn anchor(&self) -> bool {
        let bit = if self.0[0] == OpCode::UNMAP.0 { 0x01 } else { 0x10 };
        self.0[1] & bit != 0
    }

    /// NDOB, byte 1 bit 0 of WRITE SAME(16): no data come, the blocks become zeros.
    #[inline]
    pub fn ndob(&self) -> bool {
        self.opcode() == OpCode::WRITE_SAME_16 && self.0[1] & 0x01 != 0
    }

    /// PBDATA and LBDATA, byte 1 bits 2:1 of WRITE SAME, which are obsolete.
    #[inline]
    pub const fn pbdata_lbdata(&self) -> u8 {
        self.0[1] >> 1 & 3
    }

    /// IMMED: byte 1 bit 0 of START STOP UNIT, else bit 1.
    #[inline]
    pub const fn immediate(&self) -> bool {
        let bit = if self.0[0] == OpCode::START_STOP_UNIT.0 { 0x01 } else { 0x02 };
        self.0[1] & bit != 0
    }

    /// ALLOCATION LENGTH of the command: how many bytes it may return. READ CAPACITY(10), which has
    /// none, returns 8.
    pub fn allocation_length(&self) -> u32 {
        match self.opcode() {
            OpCode::READ_CAPACITY_10 => 8,
            OpCode::INQUIRY => u32::from(be16(&self.0, 3)),
            _ => match self.0[0] >> 5 {
                0 => u32::from(self.0[4]),
                1 | 2 => u32::from(be16(&self.0, 7)),
                5 => be32(&self.0, 6),
                _ => be32(&self.0, 10),
            },
        }
    }

    /// PARAMETER LIST LENGTH of the command: how many bytes it sends.
    pub fn parameter_list_length(&self) -> u32 {
        match self.opcode() {
            OpCode::PERSISTENT_RESERVE_OUT => be32(&self.0, 5),
            _ => self.allocation_length(),
        }
    }

    /// EVPD, byte 1 bit 0 of INQUIRY.
    #[inline]
    pub const fn evpd(&self) -> bool {
        self.0[1] & 1 != 0
    }

    /// CMDDT, byte 1 bit 1 of INQUIRY, which is obsolete.
    #[inline]
    pub const fn cmddt(&self) -> bool {
        self.0[1] & 2 != 0
    }

    /// PAGE CODE: byte 2, all of INQUIRY's and bits 5:0 of MODE SENSE's.
    #[inline]
    pub const fn page_code(&self) -> u8 {
        match self.opcode() {
            OpCode::INQUIRY => self.0[2],
            _ => self.0[2] & 0x3f,
        }
    }

    /// PC, byte 2 bits 7:6 of MODE SENSE: current, changeable, default or saved values.
    #[inline]
    pub const fn page_control(&self) -> u8 {
        self.0[2] >> 6
    }

    /// SUBPAGE CODE, byte 3 of MODE SENSE.
    #[inline]
    pub const fn subpage_code(&self) -> u8 {
        self.0[3]
    }

    /// DBD, byte 1 bit 3 of MODE SENSE: no block descriptors.
    #[inline]
    pub const fn dbd(&self) -> bool {
        self.0[1] & 0x08 != 0
    }

    /// LLBAA, byte 1 bit 4 of MODE SENSE(10): block descriptors may be long ones.
    #[inline]
    pub fn long_lba(&self) -> bool {
        self.opcode() == OpCode::MODE_SENSE_10 && self.0[1] & 0x10 != 0
    }

    /// PF, byte 1 bit 4 of MODE SELECT: the pages are as the standard has them.
    #[inline]
    pub const fn page_format(&self) -> bool {
        self.0[1] & 0x10 != 0
    }

    /// SP, byte 1 bit 0 of MODE SELECT: save the pages.
    #[inline]
    pub const fn save_pages(&self) -> bool {
        self.0[1] & 1 != 0
    }

    /// DESC, byte 1 bit 0 of REQUEST SENSE: sense data with descriptors.
    #[inline]
    pub const fn descriptors(&self) -> bool {
        self.0[1] & 1 != 0
    }

    /// SELECT REPORT, byte 2 of REPORT LUNS.
    #[inline]
    pub const fn select_report(&self) -> u8 {
        self.0[2]
    }

    /// START, byte 4 bit 0 of START STOP UNIT.
    #[inline]
    pub const fn start(&self) -> bool {
        self.0[4] & 1 != 0
    }

    /// LOEJ, byte 4 bit 1 of START STOP UNIT.
    #[inline]
    pub const fn load_eject(&self) -> bool {
        self.0[4] & 2 != 0
    }

    /// NO_FLUSH, byte 4 bit 2 of START STOP UNIT.
    #[inline]
    pub const fn no_flush(&self) -> bool {
        self.0[4] & 4 != 0
    }

    /// POWER CONDITION, byte 4 bits 7:4 of START STOP UNIT.
    #[inline]
    pub const fn power_condition(&self) -> u8 {
        self.0[4] >> 4
    }

    /// RCTD, byte 2 bit 7 of REPORT SUPPORTED OPERATION CODES: with timeouts.
    #[inline]
    pub const fn timeouts(&self) -> bool {
        self.0[2] & 0x80 != 0
    }

    /// REPORTING OPTIONS, byte 2 bits 2:0 of REPORT SUPPORTED OPERATION CODES.
    #[inline]
    pub const fn reporting_options(&self) -> u8 {
        self.0[2] & 7
    }

    /// REQUESTED OPERATION CODE and SERVICE ACTION of REPORT SUPPORTED OPERATION CODES.
    #[inline]
    pub fn requested(&self) -> (OpCode, u16) {
        (OpCode(self.0[3]), be16(&self.0, 4))
    }

    /// SCOPE and TYPE, byte 2 of PERSISTENT RESERVE OUT.
    #[inline]
    pub const fn scope_and_type(&self) -> (u8, u8) {
        (self.0[2] >> 4, self.0[2] & 0xf)
    }

    /// PARAMETER DATA FORMAT, byte 1 of REPORT TARGET PORT GROUPS: 0 a length, 1 a header with a
    /// transition time.
    #[inline]
    pub const fn parameter_data_format(&self) -> u8 {
        self.0[1] >> 5
    }

    /// LIST IDENTIFIER, byte 2 of RECEIVE COPY RESULTS.
    #[inline]
    pub const fn list_identifier(&self) -> u8 {
        self.0[2]
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cdb({self}; {:02x?})", &self.0[..self.length()])
    }
}

mod build;
mod describe;

#[cfg(test)]
mod tests;
