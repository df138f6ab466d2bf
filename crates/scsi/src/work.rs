//! What a command asks of its unit's volume, once it was judged.
//!
//! Extents are bytes of the volume, and have some unless a variant says otherwise; a payload's
//! length follows from the work. What is more than one request (WRITE SAME with a pattern, ORWRITE,
//! WRITE AND VERIFY) is the caller's to carry out, as each variant says. Spec: SBC-3, "Commands for
//! direct access block devices"; for reservations SPC-4, "Commands that are allowed in the presence
//! of various reservations", and SBC-3, "Reservations".

use block::{Buffer, Extent, Operation};
use reservation::Access;
use wire::scsi::{Cdb, OpCode, ServiceAction};

/// What a command asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read and send to the host.
    Read(Extent),
    /// Take from the host and write; the flag is FUA.
    Write(Extent, bool),
    /// Take from the host and compare.
    Compare(Extent),
    /// Take from the host, write it durably, then verify it from the medium.
    WriteAndVerify(Extent),
    /// Take from the host what is expected at the extent and then, as much again, what to write if
    /// it is there; the flag is FUA. Whoever takes the data refuses other lengths than twice the
    /// extent's, which may have no bytes and then needs no request.
    CompareAndWrite(Extent, bool),
    /// Write zeros, without data of the host.
    WriteZeroes {
        /// What to clear.
        extent: Extent,
        /// Whether the space may be given up.
        deallocate: bool,
    },
    /// Take one logical block from the host and write it to each block of the extent. If it is all
    /// zeros, it is [`Work::of_same`]'s `WriteZeroes`.
    WriteSame {
        /// What to fill.
        extent: Extent,
        /// Whether the space may be given up where the block is all zeros.
        deallocate: bool,
        /// Bytes of the block.
        block: u32,
    },
    /// Take from the host, and write the bitwise OR of that and of what is there, as one step; the
    /// flag is FUA.
    OrWrite(Extent, bool),
    /// Read from the media and say whether it worked.
    Verify(Extent),
    /// Make completed writes durable.
    Flush,
    /// Read ahead, or not: GOOD promises nothing. At the end of the unit the extent has no bytes.
    Prefetch(Extent),
    /// Answer with the data of [`reply`](crate::reply()).
    Reply,
    /// Take a list of this many bytes from the host for [`parameters`](crate::parameters()).
    Parameters(u32),
    /// Answer with what [`reserve_in`](crate::reserve_in()) tells of the reservation.
    ReserveIn,
    /// Take a list of this many bytes from the host for [`reserve_out`](crate::reserve_out()), and
    /// propose the change that it asks for.
    ReserveOut(u32),
    /// Take a list of this many bytes from the host for [`set_paths`](crate::set_paths()), and propose
    /// that groups of ports be in the states that it asks for.
    SetPaths(u32),
    /// Take a list of this many bytes from the host for [`copy`](crate::copy()), and copy what it says.
    Copy(u32),
    /// Answer with what [`copy_results`](crate::copy_results()) tells of a copy.
    CopyResults,
    /// Answer with what an [`LbaSearch`](crate::LbaSearch) finds.
    LbaStatus,
    /// Have the volume for a session.
    Hold,
    /// Have it no more.
    EndHold,
    /// GOOD at once.
    Nothing,
}

/// Which way a command's data go, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// There are none, or a reply whose length its data say.
    None,
    /// From the volume to the host.
    ToHost(u32),
    /// From the host.
    FromHost(u32),
}

impl Work {
    /// Which way its data go and how many there are.
    #[inline]
    pub fn payload(&self) -> Payload {
        match self {
            Work::Read(extent) => Payload::ToHost(extent.length.0 as u32),
            Work::Write(extent, _)
            | Work::Compare(extent)
            | Work::WriteAndVerify(extent)
            | Work::OrWrite(extent, _) => Payload::FromHost(extent.length.0 as u32),
            Work::CompareAndWrite(extent, _) => Payload::FromHost(2 * extent.length.0 as u32),
            Work::WriteSame { block, .. } => Payload::FromHost(*block),
            Work::Parameters(length)
            | Work::ReserveOut(length)
            | Work::SetPaths(length)
            | Work::Copy(length) => Payload::FromHost(*length),
            Work::WriteZeroes { .. }
            | Work::Verify(_)
            | Work::Flush
            | Work::Prefetch(_)
            | Work::Reply
            | Work::ReserveIn
            | Work::CopyResults
            | Work::LbaStatus
            | Work::Hold
            | Work::EndHold
            | Work::Nothing => Payload::None,
        }
    }

    /// What it is to a reservation; `None` for what is allowed whoever holds one, or is judged where
    /// reservations are changed. `cdb` is the command that it was judged from.
    #[inline]
    pub fn access(&self, cdb: &Cdb) -> Option<Access> {
        match self {
            Work::Read(_)
            | Work::Compare(_)
            | Work::Verify(_)
            | Work::Prefetch(_)
            | Work::LbaStatus => Some(Access::Read),
            Work::Write(..)
            | Work::WriteAndVerify(_)
            | Work::CompareAndWrite(..)
            | Work::WriteZeroes { .. }
            | Work::WriteSame { .. }
            | Work::OrWrite(..)
            | Work::Flush
            // Of the unit that has the command; those of its segments are asked as it goes on.
            | Work::Copy(_)
            | Work::CopyResults => Some(Access::Write),
            Work::ReserveIn | Work::ReserveOut(_) | Work::Hold | Work::EndHold => None,
            Work::Reply | Work::Parameters(_) | Work::SetPaths(_) | Work::Nothing => {
                access_of_other(cdb)
            }
        }
    }

    /// The request; `buffer` is its payload, empty if it has none. Panics for what is none, or more
    /// than one.
    #[inline]
    pub fn operation(self, buffer: Buffer) -> Operation {
        match self {
            Work::Read(extent) => Operation::Read { extent, buffer },
            Work::Write(extent, durable) => Operation::Write { extent, buffer, durable },
            Work::Compare(extent) => Operation::Compare { extent, buffer },
            Work::WriteZeroes { extent, deallocate } => {
                Operation::WriteZeroes { extent, deallocate, durable: false }
            }
            Work::Verify(extent) => Operation::Verify { extent },
            Work::Flush => Operation::Flush,
            _ => panic!("{self:?} is not one request"),
        }
    }

    /// What WRITE SAME is once its block came: zeros, if the block is all zeros, else itself.
    #[must_use]
    pub fn of_same(self, data: &[u8]) -> Work {
        match self {
            Work::WriteSame { extent, deallocate, .. } if data.iter().all(|&byte| byte == 0) => {
                Work::WriteZeroes { extent, deallocate }
            }
            work => work,
        }
    }

    /// Where in its first page its payload begins, as the volume's pages lie.
    #[inline]
    pub fn phase(&self) -> u32 {
        match self {
            Work::Read(extent)
            | Work::Write(extent, _)
            | Work::Compare(extent)
            | Work::WriteAndVerify(extent)
            | Work::OrWrite(extent, _)
            | Work::CompareAndWrite(extent, _) => {
                (extent.offset.0 % u64::from(block::PAGE_SIZE)) as u32
            }
            _ => 0,
        }
    }
}

/// Commands without blocks. Those that ask who is there are allowed to everybody; those that say
/// what a unit is, to everybody unless a session has it by RESERVE(6); what changes or tells how it
/// is set is the holder's.
#[cold]
fn access_of_other(cdb: &Cdb) -> Option<Access> {
    match cdb.opcode() {
        OpCode::INQUIRY | OpCode::REPORT_LUNS | OpCode::REQUEST_SENSE => None,
        OpCode::TEST_UNIT_READY | OpCode::READ_CAPACITY_10 => Some(Access::Other),
        OpCode::START_STOP_UNIT if cdb.start() && cdb.power_condition() == 0 => Some(Access::Other),
        // Transfers of no blocks.
        OpCode::READ_10
        | OpCode::READ_12
        | OpCode::READ_16
        | OpCode::VERIFY_10
        | OpCode::VERIFY_12
        | OpCode::VERIFY_16 => Some(Access::Read),
        _ => match cdb.action() {
            ServiceAction::READ_CAPACITY_16 | ServiceAction::REPORT_TARGET_PORT_GROUPS => {
                Some(Access::Other)
            }
            _ => Some(Access::Write),
        },
    }
}
