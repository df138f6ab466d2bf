//! Builders: the commands an initiator sends, one function each.
//!
//! Each takes what the command asks for and leaves the rest zero; allocation and parameter list
//! lengths are bytes. Counts that their field cannot hold are the caller's to split.

use super::{ByteCheck, Cdb, OpCode, ServiceAction};
use crate::scsi::put;

const DPO: u8 = 0x10;
const FUA: u8 = 0x08;

impl Cdb {
    /// A command with `opcode`, everything else zero.
    #[inline]
    pub const fn new(opcode: OpCode) -> Self {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = opcode.0;
        Self(bytes)
    }

    /// A command with opcode and service action, everything else zero.
    pub const fn with_action(action: ServiceAction) -> Self {
        let mut cdb = Self::new(action.opcode());
        cdb.0[1] = action.action();
        cdb
    }

    /// TEST UNIT READY.
    pub const fn test_unit_ready() -> Self {
        Self::new(OpCode::TEST_UNIT_READY)
    }

    /// REQUEST SENSE, with descriptors if told.
    pub const fn request_sense(descriptors: bool, allocation: u8) -> Self {
        let mut cdb = Self::new(OpCode::REQUEST_SENSE);
        (cdb.0[1], cdb.0[4]) = (descriptors as u8, allocation);
        cdb
    }

    /// INQUIRY for the standard data.
    pub fn inquiry(allocation: u16) -> Self {
        let mut cdb = Self::new(OpCode::INQUIRY);
        put(&mut cdb.0, 3, allocation.to_be_bytes());
        cdb
    }

    /// INQUIRY for a page of vital product data.
    pub fn vital_product_data(page: u8, allocation: u16) -> Self {
        let mut cdb = Self::inquiry(allocation);
        (cdb.0[1], cdb.0[2]) = (1, page);
        cdb
    }

    /// REPORT LUNS for those that are no well-known ones.
    pub fn report_luns(allocation: u32) -> Self {
        let mut cdb = Self::new(OpCode::REPORT_LUNS);
        put(&mut cdb.0, 6, allocation.to_be_bytes());
        cdb
    }

    /// READ CAPACITY(10).
    pub const fn read_capacity_10() -> Self {
        Self::new(OpCode::READ_CAPACITY_10)
    }

    /// READ CAPACITY(16).
    pub fn read_capacity_16(allocation: u32) -> Self {
        let mut cdb = Self::with_action(ServiceAction::READ_CAPACITY_16);
        put(&mut cdb.0, 10, allocation.to_be_bytes());
        cdb
    }

    /// GET LBA STATUS from `lba` on.
    pub fn get_lba_status(lba: u64, allocation: u32) -> Self {
        let mut cdb = Self::with_action(ServiceAction::GET_LBA_STATUS);
        put(&mut cdb.0, 2, lba.to_be_bytes());
        put(&mut cdb.0, 10, allocation.to_be_bytes());
        cdb
    }

    /// MODE SENSE(6): current values of `page` (3Fh for all), with block descriptors unless `dbd`.
    pub const fn mode_sense_6(page: u8, dbd: bool, allocation: u8) -> Self {
        let mut cdb = Self::new(OpCode::MODE_SENSE_6);
        (cdb.0[1], cdb.0[2], cdb.0[4]) = ((dbd as u8) << 3, page & 0x3f, allocation);
        cdb
    }

    /// MODE SENSE(10), likewise.
    pub fn mode_sense_10(page: u8, dbd: bool, allocation: u16) -> Self {
        let mut cdb = Self::new(OpCode::MODE_SENSE_10);
        (cdb.0[1], cdb.0[2]) = ((dbd as u8) << 3, page & 0x3f);
        put(&mut cdb.0, 7, allocation.to_be_bytes());
        cdb
    }

    /// MODE SELECT(6) of a list of so many bytes, in page format, not to be saved.
    pub const fn mode_select_6(length: u8) -> Self {
        let mut cdb = Self::new(OpCode::MODE_SELECT_6);
        (cdb.0[1], cdb.0[4]) = (0x10, length);
        cdb
    }

    /// MODE SELECT(10), likewise.
    pub fn mode_select_10(length: u16) -> Self {
        let mut cdb = Self::new(OpCode::MODE_SELECT_10);
        cdb.0[1] = 0x10;
        put(&mut cdb.0, 7, length.to_be_bytes());
        cdb
    }

    #[inline]
    fn blocks_10(opcode: OpCode, flags: u8, lba: u32, blocks: u16) -> Self {
        let mut cdb = Self::new(opcode);
        cdb.0[1] = flags;
        put(&mut cdb.0, 2, lba.to_be_bytes());
        put(&mut cdb.0, 7, blocks.to_be_bytes());
        cdb
    }

    #[inline]
    fn blocks_16(opcode: OpCode, flags: u8, lba: u64, blocks: u32) -> Self {
        let mut cdb = Self::new(opcode);
        cdb.0[1] = flags;
        put(&mut cdb.0, 2, lba.to_be_bytes());
        put(&mut cdb.0, 10, blocks.to_be_bytes());
        cdb
    }

    /// READ(10).
    #[inline]
    pub fn read_10(lba: u32, blocks: u16) -> Self {
        Self::blocks_10(OpCode::READ_10, 0, lba, blocks)
    }

    /// READ(16).
    #[inline]
    pub fn read_16(lba: u64, blocks: u32) -> Self {
        Self::blocks_16(OpCode::READ_16, 0, lba, blocks)
    }

    /// WRITE(10), durable when it ends if `fua`.
    #[inline]
    pub fn write_10(lba: u32, blocks: u16, fua: bool) -> Self {
        Self::blocks_10(OpCode::WRITE_10, if fua { FUA } else { 0 }, lba, blocks)
    }

    /// WRITE(16), durable when it ends if `fua`.
    #[inline]
    pub fn write_16(lba: u64, blocks: u32, fua: bool) -> Self {
        Self::blocks_16(OpCode::WRITE_16, if fua { FUA } else { 0 }, lba, blocks)
    }

    /// COMPARE AND WRITE, whose data are the expected blocks and then the new ones.
    pub fn compare_and_write(lba: u64, blocks: u8, fua: bool) -> Self {
        let mut cdb = Self::new(OpCode::COMPARE_AND_WRITE);
        cdb.0[1] = if fua { FUA } else { 0 };
        put(&mut cdb.0, 2, lba.to_be_bytes());
        cdb.0[13] = blocks;
        cdb
    }

    /// VERIFY(10).
    pub fn verify_10(lba: u32, blocks: u16, check: ByteCheck) -> Self {
        Self::blocks_10(OpCode::VERIFY_10, (check.0 & 3) << 1, lba, blocks)
    }

    /// VERIFY(16).
    pub fn verify_16(lba: u64, blocks: u32, check: ByteCheck) -> Self {
        Self::blocks_16(OpCode::VERIFY_16, (check.0 & 3) << 1, lba, blocks)
    }

    /// ORWRITE(16).
    pub fn orwrite_16(lba: u64, blocks: u32, fua: bool) -> Self {
        Self::blocks_16(OpCode::ORWRITE_16, if fua { FUA } else { 0 }, lba, blocks)
    }

    /// SYNCHRONIZE CACHE(10) of the whole unit.
    #[inline]
    pub const fn synchronize_cache_10() -> Self {
        Self::new(OpCode::SYNCHRONIZE_CACHE_10)
    }

    /// SYNCHRONIZE CACHE(16) of the whole unit.
    pub const fn synchronize_cache_16() -> Self {
        Self::new(OpCode::SYNCHRONIZE_CACHE_16)
    }

    /// WRITE SAME(10) of one block of data.
    pub fn write_same_10(lba: u32, blocks: u16, unmap: bool) -> Self {
        Self::blocks_10(OpCode::WRITE_SAME_10, (unmap as u8) << 3, lba, blocks)
    }

    /// WRITE SAME(16) of one block of data, or of zeros without data if `ndob`.
    pub fn write_same_16(lba: u64, blocks: u32, unmap: bool, ndob: bool) -> Self {
        let flags = (unmap as u8) << 3 | ndob as u8;
        Self::blocks_16(OpCode::WRITE_SAME_16, flags, lba, blocks)
    }

    /// UNMAP with a list of so many bytes.
    pub fn unmap_list(length: u16) -> Self {
        let mut cdb = Self::new(OpCode::UNMAP);
        put(&mut cdb.0, 7, length.to_be_bytes());
        cdb
    }

    /// PERSISTENT RESERVE IN; `action` is one of its service actions.
    pub fn persistent_reserve_in(action: ServiceAction, allocation: u16) -> Self {
        let mut cdb = Self::with_action(action);
        put(&mut cdb.0, 7, allocation.to_be_bytes());
        cdb
    }

    /// PERSISTENT RESERVE OUT with scope "logical unit"; `action` is one of its service actions.
    pub fn persistent_reserve_out(action: ServiceAction, kind: u8, length: u32) -> Self {
        let mut cdb = Self::with_action(action);
        cdb.0[2] = kind & 0xf;
        put(&mut cdb.0, 5, length.to_be_bytes());
        cdb
    }

    /// EXTENDED COPY(LID1) with a list of so many bytes.
    pub fn extended_copy(length: u32) -> Self {
        let mut cdb = Self::with_action(ServiceAction::EXTENDED_COPY_LID1);
        put(&mut cdb.0, 10, length.to_be_bytes());
        cdb
    }

    /// RECEIVE COPY RESULTS of the copy whose list has this identifier; `action` is one of its
    /// service actions.
    pub fn receive_copy_results(action: ServiceAction, list_id: u8, allocation: u32) -> Self {
        let mut cdb = Self::with_action(action);
        cdb.0[2] = list_id;
        put(&mut cdb.0, 10, allocation.to_be_bytes());
        cdb
    }

    /// REPORT SUPPORTED OPERATION CODES: all of them.
    pub fn report_opcodes(timeouts: bool, allocation: u32) -> Self {
        let mut cdb = Self::with_action(ServiceAction::REPORT_SUPPORTED_OPERATION_CODES);
        cdb.0[2] = (timeouts as u8) << 7;
        put(&mut cdb.0, 6, allocation.to_be_bytes());
        cdb
    }

    /// REPORT SUPPORTED OPERATION CODES: one of them, with its service action if it has any.
    pub fn report_opcode(opcode: OpCode, action: Option<u16>, allocation: u32) -> Self {
        let mut cdb = Self::report_opcodes(false, allocation);
        (cdb.0[2], cdb.0[3]) = (if action.is_some() { 2 } else { 1 }, opcode.0);
        put(&mut cdb.0, 4, action.unwrap_or(0).to_be_bytes());
        cdb
    }

    /// REPORT TARGET PORT GROUPS, length only header format.
    pub fn report_target_port_groups(allocation: u32) -> Self {
        let mut cdb = Self::with_action(ServiceAction::REPORT_TARGET_PORT_GROUPS);
        put(&mut cdb.0, 6, allocation.to_be_bytes());
        cdb
    }

    /// With DPO.
    #[must_use]
    pub const fn with_dpo(mut self) -> Self {
        self.0[1] |= DPO;
        self
    }
}
