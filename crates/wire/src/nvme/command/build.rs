//! Builders: the commands an initiator sends, one function each.
//!
//! All return a command with CID 0; data are described by an SGL of the `transport` kind, which the
//! initiator replaces by `in_capsule` where it sends them along.

use super::{AdminOpcode, Command, CopyDword, CopyRange, IoOpcode, SglDescriptor};
use crate::field::Field as _;
use crate::nvme::fabrics::{Connect, ConnectData, FabricsType};
use crate::nvme::identify::Cns;
use crate::nvme::log::{GetLog, LogId};

impl Command {
    /// Flush: what was completed before is on stable media when this completes.
    #[inline]
    pub fn flush(nsid: u32) -> Self {
        Self::new(IoOpcode::FLUSH.0).with_nsid(nsid)
    }

    /// Read `blocks` (1 to 65536) logical blocks at `lba` into `bytes` bytes.
    #[inline]
    pub fn read(nsid: u32, lba: u64, blocks: u32, bytes: u32) -> Self {
        Self::blocks_command(IoOpcode::READ, nsid, lba, blocks, bytes)
    }

    /// Write `blocks` (1 to 65536) logical blocks at `lba` from `bytes` bytes.
    #[inline]
    pub fn write(nsid: u32, lba: u64, blocks: u32, bytes: u32) -> Self {
        Self::blocks_command(IoOpcode::WRITE, nsid, lba, blocks, bytes)
    }

    /// Compare `blocks` (1 to 65536) logical blocks at `lba` with `bytes` bytes.
    #[inline]
    pub fn compare(nsid: u32, lba: u64, blocks: u32, bytes: u32) -> Self {
        Self::blocks_command(IoOpcode::COMPARE, nsid, lba, blocks, bytes)
    }

    /// Write Zeroes to `blocks` (1 to 65536) logical blocks at `lba`.
    #[inline]
    pub fn write_zeroes(nsid: u32, lba: u64, blocks: u32, deallocate: bool) -> Self {
        Self::blocks_command(IoOpcode::WRITE_ZEROES, nsid, lba, blocks, 0)
            .with_deallocate(deallocate)
    }

    /// Verify: read `blocks` (1 to 65536) logical blocks at `lba` without moving them.
    #[inline]
    pub fn verify(nsid: u32, lba: u64, blocks: u32) -> Self {
        Self::blocks_command(IoOpcode::VERIFY, nsid, lba, blocks, 0)
    }

    #[inline]
    fn blocks_command(opcode: IoOpcode, nsid: u32, lba: u64, blocks: u32, bytes: u32) -> Self {
        debug_assert!((1..=65536).contains(&blocks), "{blocks} blocks");
        Self::new(opcode.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(bytes))
            .with_cdw(10, lba as u32)
            .with_cdw(11, (lba >> 32) as u32)
            .with_cdw(12, blocks.wrapping_sub(1) & 0xffff)
    }

    /// Dataset Management over `ranges` (1 to 256) ranges; `deallocate` is AD.
    pub fn dataset_management(nsid: u32, ranges: u32, deallocate: bool) -> Self {
        debug_assert!((1..=256).contains(&ranges), "{ranges} ranges");
        Self::new(IoOpcode::DATASET_MANAGEMENT.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(ranges * 16))
            .with_cdw(10, ranges.wrapping_sub(1) & 0xff)
            .with_cdw(11, u32::from(deallocate) << 2)
    }

    /// Copy of `ranges` (1 to 256) source ranges in descriptor format 0 to the blocks from `lba` on.
    pub fn copy(nsid: u32, lba: u64, ranges: u32) -> Self {
        debug_assert!((1..=256).contains(&ranges), "{ranges} ranges");
        Self::new(IoOpcode::COPY.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(ranges * CopyRange::SIZE as u32))
            .with_cdw(10, lba as u32)
            .with_cdw(11, (lba >> 32) as u32)
            .with_cdw(12, CopyDword::default().with_nr(ranges.wrapping_sub(1)).0)
    }

    /// Identify with this CNS; CNTID and CSI are 0 unless set with [`Command::with_cdw`] (CNTID is
    /// CDW10 31:16, CSI is CDW11 31:24).
    pub fn identify(cns: Cns, nsid: u32) -> Self {
        Self::new(AdminOpcode::IDENTIFY.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(4096))
            .with_cdw(10, cns.0.into())
    }

    /// Get Log Page: `bytes` (a multiple of 4, not 0) of log `id` from byte `offset` on.
    pub fn get_log(id: LogId, nsid: u32, offset: u64, bytes: u32, retain_event: bool) -> Self {
        GetLog { id, specific: 0, retain_event, bytes: bytes.into(), offset }.to_command(nsid)
    }

    /// Get Features: the current value of `feature`, with room for `bytes` of data.
    pub fn get_features(feature: u8, nsid: u32, bytes: u32) -> Self {
        Self::new(AdminOpcode::GET_FEATURES.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(bytes))
            .with_cdw(10, feature.into())
    }

    /// Set Features: `feature` to `value` (CDW11), with `bytes` of data.
    pub fn set_features(feature: u8, nsid: u32, value: u32, bytes: u32) -> Self {
        Self::new(AdminOpcode::SET_FEATURES.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(bytes))
            .with_cdw(10, feature.into())
            .with_cdw(11, value)
    }

    /// Keep Alive.
    pub const fn keep_alive() -> Self {
        Self::new(AdminOpcode::KEEP_ALIVE.0)
    }

    /// Abort command `command_id` of submission queue `queue_id`.
    pub fn abort(queue_id: u16, command_id: u16) -> Self {
        Self::new(AdminOpcode::ABORT.0)
            .with_cdw(10, u32::from(command_id) << 16 | u32::from(queue_id))
    }

    /// Asynchronous Event Request.
    pub const fn async_event_request() -> Self {
        Self::new(AdminOpcode::ASYNC_EVENT_REQUEST.0)
    }

    /// A Fabrics command of `kind`, everything else zero.
    pub const fn fabrics(kind: FabricsType) -> Self {
        let mut command = Self::new(AdminOpcode::FABRICS.0);
        command.0[4] = kind.0;
        command
    }

    /// Connect; its 1024 bytes of [`ConnectData`] go in the capsule.
    pub fn connect(connect: &Connect) -> Self {
        let mut command = Self::fabrics(FabricsType::CONNECT)
            .with_sgl(SglDescriptor::in_capsule(ConnectData::SIZE as u32));
        connect.put(&mut command.0, 40);
        command
    }

    /// Property Get of `offset`; `wide` for an 8-byte property.
    pub fn property_get(offset: u32, wide: bool) -> Self {
        Self::fabrics(FabricsType::PROPERTY_GET).with_cdw(10, wide.into()).with_cdw(11, offset)
    }

    /// Property Set of the 4-byte property at `offset`.
    pub fn property_set(offset: u32, value: u32) -> Self {
        Self::fabrics(FabricsType::PROPERTY_SET).with_cdw(11, offset).with_cdw(12, value)
    }

    /// Disconnect, on the I/O queue that is to go.
    pub const fn disconnect() -> Self {
        Self::fabrics(FabricsType::DISCONNECT)
    }
}
