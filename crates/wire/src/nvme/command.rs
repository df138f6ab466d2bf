//! The submission queue entry: 64 bytes, read in place.
//!
//! ```text
//!  0 opcode | 1 FUSE, PSDT | 2 CID | 4 NSID (FCTYPE) | 8 CDW2-3 | 16 MPTR | 24 SGL1 | 40 CDW10-15
//! ```
//! [`Command`] keeps the bytes as they came and reads a field when asked: a target copies 64 bytes
//! once and touches six of them. Builders start from [`Command::new`]; the command identifier is
//! set last, by whoever owns the queue. Units: LBA and blocks are logical blocks of the namespace;
//! counts here are plain (1-based), the wire's 0-based counts are converted at the edge.
//! Spec: NVMe base, "Submission Queue Entry"; NVM command set, "NVM Commands".

use core::fmt;

use crate::ParseError;
use crate::field::Field;

codes! {
    /// Opcodes of the admin queue.
    pub struct AdminOpcode(u8) {
        DELETE_IO_SQ = 0x00 "Delete I/O Submission Queue",
        CREATE_IO_SQ = 0x01 "Create I/O Submission Queue",
        GET_LOG_PAGE = 0x02 "Get Log Page",
        DELETE_IO_CQ = 0x04 "Delete I/O Completion Queue",
        CREATE_IO_CQ = 0x05 "Create I/O Completion Queue",
        IDENTIFY = 0x06 "Identify",
        ABORT = 0x08 "Abort",
        SET_FEATURES = 0x09 "Set Features",
        GET_FEATURES = 0x0a "Get Features",
        ASYNC_EVENT_REQUEST = 0x0c "Asynchronous Event Request",
        NAMESPACE_MANAGEMENT = 0x0d "Namespace Management",
        FIRMWARE_COMMIT = 0x10 "Firmware Commit",
        FIRMWARE_DOWNLOAD = 0x11 "Firmware Image Download",
        DEVICE_SELF_TEST = 0x14 "Device Self-test",
        NAMESPACE_ATTACHMENT = 0x15 "Namespace Attachment",
        KEEP_ALIVE = 0x18 "Keep Alive",
        FABRICS = 0x7f "Fabrics",
        FORMAT_NVM = 0x80 "Format NVM",
        SECURITY_SEND = 0x81 "Security Send",
        SECURITY_RECEIVE = 0x82 "Security Receive",
        SANITIZE = 0x84 "Sanitize",
    }
}

codes! {
    /// Opcodes of the I/O queues, NVM command set.
    pub struct IoOpcode(u8) {
        FLUSH = 0x00 "Flush",
        WRITE = 0x01 "Write",
        READ = 0x02 "Read",
        WRITE_UNCORRECTABLE = 0x04 "Write Uncorrectable",
        COMPARE = 0x05 "Compare",
        WRITE_ZEROES = 0x08 "Write Zeroes",
        DATASET_MANAGEMENT = 0x09 "Dataset Management",
        VERIFY = 0x0c "Verify",
        RESERVATION_REGISTER = 0x0d "Reservation Register",
        RESERVATION_REPORT = 0x0e "Reservation Report",
        RESERVATION_ACQUIRE = 0x11 "Reservation Acquire",
        RESERVATION_RELEASE = 0x15 "Reservation Release",
        COPY = 0x19 "Copy",
        FABRICS = 0x7f "Fabrics",
    }
}

codes! {
    /// FUSE: whether a command is half of a fused operation.
    pub struct Fuse(u8) {
        NONE = 0 "not fused",
        FIRST = 1 "first of a fused pair",
        SECOND = 2 "second of a fused pair",
    }
}

codes! {
    /// SGL descriptor type and sub type, byte 15 of a descriptor.
    pub struct SglKind(u8) {
        DATA_BLOCK_ADDRESS = 0x00 "data block, address",
        IN_CAPSULE = 0x01 "data block, offset in capsule",
        SEGMENT = 0x20 "segment",
        LAST_SEGMENT = 0x30 "last segment",
        KEYED = 0x40 "keyed data block",
        TRANSPORT = 0x5a "transport data block",
    }
}

/// NSID that means every namespace.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// One SGL descriptor: where a command's data are. Over TCP a command has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglDescriptor {
    /// Offset into the capsule's data for [`SglKind::IN_CAPSULE`], else unused.
    pub address: u64,
    /// Bytes of data.
    pub length: u32,
    /// Type and sub type.
    pub kind: SglKind,
}

impl SglDescriptor {
    /// Data stay with the host until the transport moves them; length 0 for no data at all.
    #[inline]
    pub const fn transport(length: u32) -> Self {
        Self { address: 0, length, kind: SglKind::TRANSPORT }
    }

    /// Data follow the command in its capsule.
    #[inline]
    pub const fn in_capsule(length: u32) -> Self {
        Self { address: 0, length, kind: SglKind::IN_CAPSULE }
    }
}

impl fmt::Display for SglDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SglKind::TRANSPORT if self.length == 0 => f.write_str("no data"),
            SglKind::TRANSPORT => write!(f, "{} bytes", self.length),
            SglKind::IN_CAPSULE => write!(f, "{} bytes in capsule", self.length),
            kind => write!(f, "{} bytes, sgl {kind}", self.length),
        }
    }
}

/// A submission queue entry, 64 bytes as on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Command(pub [u8; 64]);

impl Command {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 64;
    /// PSDT 01b: the data pointer is an SGL and the metadata pointer an address, as Fabrics demand.
    const PSDT_SGL: u8 = 0x40;

    /// A command with `opcode`, the SGL flag, no data and everything else zero.
    #[inline]
    pub const fn new(opcode: u8) -> Self {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = opcode;
        bytes[1] = Self::PSDT_SGL;
        bytes[39] = SglKind::TRANSPORT.0;
        Self(bytes)
    }

    /// Copies the first 64 bytes; the only error is a shorter input.
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

    /// OPC; an [`AdminOpcode`] or an [`IoOpcode`], as the queue decides.
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// OPC on an admin queue.
    #[inline]
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.0[0])
    }

    /// OPC on an I/O queue.
    #[inline]
    pub const fn io_opcode(&self) -> IoOpcode {
        IoOpcode(self.0[0])
    }

    /// True for a Fabrics command (Connect, Property Get, ...), on either kind of queue.
    #[inline]
    pub const fn is_fabrics(&self) -> bool {
        self.0[0] == AdminOpcode::FABRICS.0
    }

    /// FUSE.
    #[inline]
    pub const fn fuse(&self) -> Fuse {
        Fuse(self.0[1] & 3)
    }

    /// PSDT: 1 over fabrics (an SGL), 0 would be PRPs.
    #[inline]
    pub const fn psdt(&self) -> u8 {
        self.0[1] >> 6
    }

    /// CID: names the command among those in flight on its queue.
    #[inline]
    pub fn command_id(&self) -> u16 {
        u16::get(&self.0, 2)
    }

    /// NSID.
    #[inline]
    pub fn nsid(&self) -> u32 {
        u32::get(&self.0, 4)
    }

    /// SGL1: where the data are.
    #[inline]
    pub fn sgl(&self) -> SglDescriptor {
        SglDescriptor {
            address: u64::get(&self.0, 24),
            length: u32::get(&self.0, 32),
            kind: SglKind(self.0[39]),
        }
    }

    /// CDW10 to CDW15: `cdw(10)` to `cdw(15)`; also 0 to 9, though those have names of their own.
    /// Panics above 15.
    #[inline]
    pub fn cdw(&self, index: usize) -> u32 {
        u32::get(&self.0, index * 4)
    }

    /// SLBA, CDW10-11: first logical block.
    #[inline]
    pub fn lba(&self) -> u64 {
        u64::get(&self.0, 40)
    }

    /// NLB + 1: number of logical blocks, 1 to 65536.
    #[inline]
    pub fn blocks(&self) -> u32 {
        u32::from(u16::get(&self.0, 48)) + 1
    }

    /// FUA, CDW12 bit 30: on stable media before completion.
    #[inline]
    pub const fn force_unit_access(&self) -> bool {
        self.0[51] & 0x40 != 0
    }

    /// DEAC, CDW12 bit 25 of Write Zeroes: blocks may be deallocated.
    #[inline]
    pub const fn deallocate(&self) -> bool {
        self.0[51] & 0x02 != 0
    }

    /// With this CID.
    #[inline]
    #[must_use]
    pub fn with_command_id(mut self, command_id: u16) -> Self {
        command_id.put(&mut self.0, 2);
        self
    }

    /// With this NSID.
    #[inline]
    #[must_use]
    pub fn with_nsid(mut self, nsid: u32) -> Self {
        nsid.put(&mut self.0, 4);
        self
    }

    /// With this FUSE.
    #[inline]
    #[must_use]
    pub const fn with_fuse(mut self, fuse: Fuse) -> Self {
        self.0[1] = self.0[1] & !3 | fuse.0 & 3;
        self
    }

    /// With this SGL1.
    #[inline]
    #[must_use]
    pub fn with_sgl(mut self, sgl: SglDescriptor) -> Self {
        sgl.address.put(&mut self.0, 24);
        sgl.length.put(&mut self.0, 32);
        self.0[36..39].fill(0);
        self.0[39] = sgl.kind.0;
        self
    }

    /// With this dword, 0 to 15. Panics above 15.
    #[inline]
    #[must_use]
    pub fn with_cdw(mut self, index: usize, value: u32) -> Self {
        value.put(&mut self.0, index * 4);
        self
    }

    /// With FUA set as told.
    #[inline]
    #[must_use]
    pub const fn with_force_unit_access(mut self, fua: bool) -> Self {
        self.0[51] = self.0[51] & !0x40 | (fua as u8) << 6;
        self
    }

    /// With DEAC set as told.
    #[inline]
    #[must_use]
    pub const fn with_deallocate(mut self, deallocate: bool) -> Self {
        self.0[51] = self.0[51] & !0x02 | (deallocate as u8) << 1;
        self
    }
}

impl Field for Command {
    const SIZE: usize = 64;
    #[inline(always)]
    fn get(bytes: &[u8], at: usize) -> Self {
        let mut raw = [0; 64];
        raw.copy_from_slice(&bytes[at..at + 64]);
        Self(raw)
    }
    #[inline(always)]
    fn put(&self, bytes: &mut [u8], at: usize) {
        bytes[at..at + 64].copy_from_slice(&self.0);
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({self}; {:02x?})", self.0)
    }
}

impl fmt::Display for Command {
    /// One line without the queue known: the opcode as a number. See [`Command::describe`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_fabrics() {
            return write!(f, "{}", self.describe(true));
        }
        write!(
            f,
            "opcode {:#04x} cid {} nsid {} cdw10 {:#x} cdw11 {:#x} cdw12 {:#x}, {}",
            self.opcode(),
            self.command_id(),
            self.nsid(),
            self.cdw(10),
            self.cdw(11),
            self.cdw(12),
            self.sgl()
        )
    }
}

mod build;
mod copy;
mod describe;
mod dsm;

pub use copy::{CopyDword, CopyRange};
pub use describe::Describe;
pub use dsm::DsmRange;

#[cfg(test)]
mod tests;
