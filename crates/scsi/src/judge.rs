//! Commands: from a command descriptor block to what is asked of the unit, or to the sense data that
//! refuse it.
//!
//! In: the command and the facts of its unit. Out: [`Work`], which knows its extent in bytes of the
//! volume and which way its data go. Units: LBAs and block counts are logical blocks of the unit,
//! extents are bytes. Errors: the sense data of CHECK CONDITION. Pure and without memory of earlier
//! commands: who waits for data keeps the command and has it judged anew before it is submitted, so
//! that a unit that was removed, resized or write-protected meanwhile counts.
//!
//! Choices that the standard leaves: a transfer of no blocks is nothing, also at the end of the
//! unit; WRITE SAME of no blocks is refused (WSNZ), since its length would be no host's to see; a
//! service action that we do not have is refused as its opcode would be, which hosts understand as
//! "not there", but for those of persistent reservations; reserved bits and the group number are not
//! looked at; NACA is refused. Spec: SBC-3, "Commands for direct access block devices"; SPC-4,
//! "Commands for all device types".

use block::limits::TRANSFER_MAX;
use block::record::passed;
use block::{BlockCount, Extent, Lba};
use wire::scsi::{AdditionalSense, ByteCheck, Cdb, OpCode, Sense, SenseKey, ServiceAction};

use crate::copy;
use crate::limits::{COMPARE_AND_WRITE_MAX, MODE_LIST_MAX, UNMAP_LIST_MAX, WRITE_SAME_MAX};
use crate::paths;
use crate::reserve;
use crate::unit::LogicalUnit;
use crate::work::Work;

/// Says what a command asks of `unit`, or why it is refused.
#[inline]
pub fn judge(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    match cdb.opcode() {
        OpCode::READ_10 | OpCode::READ_16 => {
            check_plain(cdb)?;
            Ok(some(transfer(cdb, unit)?, Work::Read))
        }
        OpCode::WRITE_10 | OpCode::WRITE_16 => {
            check_writable(unit)?;
            check_plain(cdb)?;
            let durable = cdb.fua();
            Ok(some(transfer(cdb, unit)?, |extent| Work::Write(extent, durable)))
        }
        _ => judge_other(cdb, unit),
    }
}

/// Says what a command asks of a unit that is not there: REPORT LUNS is answered all the same, and
/// INQUIRY and REQUEST SENSE say so by [`reply`](crate::reply()).
#[cold]
pub fn judge_absent(cdb: &Cdb) -> Result<Work, Sense> {
    check_naca(cdb)?;
    match cdb.opcode() {
        OpCode::INQUIRY | OpCode::REPORT_LUNS | OpCode::REQUEST_SENSE => Ok(Work::Reply),
        _ => Err(illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)),
    }
}

fn judge_other(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    check_naca(cdb)?;
    match cdb.opcode() {
        OpCode::READ_6 => Ok(Work::Read(transfer(cdb, unit)?)),
        OpCode::READ_12 => {
            check_plain(cdb)?;
            Ok(some(transfer(cdb, unit)?, Work::Read))
        }
        OpCode::VERIFY_10 | OpCode::VERIFY_12 | OpCode::VERIFY_16 => {
            check_plain(cdb)?;
            let work = match check_bytes(cdb)? {
                ByteCheck::COMPARE => Work::Compare,
                _ => Work::Verify,
            };
            Ok(some(transfer(cdb, unit)?, work))
        }
        OpCode::PRE_FETCH_10 | OpCode::PRE_FETCH_16 => Ok(Work::Prefetch(to_end(cdb, unit)?)),
        OpCode::SYNCHRONIZE_CACHE_10 | OpCode::SYNCHRONIZE_CACHE_16 => {
            to_end(cdb, unit).map(|_| Work::Flush)
        }
        OpCode::TEST_UNIT_READY => Ok(Work::Nothing),
        OpCode::START_STOP_UNIT => start_stop(cdb),
        OpCode::MODE_SELECT_6 | OpCode::MODE_SELECT_10 => mode_select(cdb),
        OpCode::INQUIRY
        | OpCode::REQUEST_SENSE
        | OpCode::REPORT_LUNS
        | OpCode::READ_CAPACITY_10
        | OpCode::MODE_SENSE_6
        | OpCode::MODE_SENSE_10 => Ok(Work::Reply),
        OpCode::PERSISTENT_RESERVE_IN
        | OpCode::PERSISTENT_RESERVE_OUT
        | OpCode::RESERVE_6
        | OpCode::RESERVE_10
        | OpCode::RELEASE_6
        | OpCode::RELEASE_10 => reserve::judge(cdb),
        OpCode::EXTENDED_COPY | OpCode::RECEIVE_COPY_RESULTS => copy::judge(cdb),
        _ => match cdb.action() {
            ServiceAction::READ_CAPACITY_16
            | ServiceAction::REPORT_TARGET_PORT_GROUPS
            | ServiceAction::REPORT_SUPPORTED_OPERATION_CODES => Ok(Work::Reply),
            ServiceAction::GET_LBA_STATUS => within(unit, cdb.lba(), 1).map(|_| Work::LbaStatus),
            ServiceAction::SET_TARGET_PORT_GROUPS => paths::judge_set(cdb, unit),
            _ => judge_change(cdb, unit),
        },
    }
}

/// What changes the blocks, but for the usual ways to write.
fn judge_change(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    let unknown = || Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    match cdb.opcode() {
        OpCode::WRITE_6 => {
            check_writable(unit)?;
            Ok(Work::Write(transfer(cdb, unit)?, false))
        }
        OpCode::WRITE_12 => {
            check_writable(unit)?;
            check_plain(cdb)?;
            Ok(some(transfer(cdb, unit)?, |extent| Work::Write(extent, cdb.fua())))
        }
        OpCode::WRITE_AND_VERIFY_10 | OpCode::WRITE_AND_VERIFY_12 | OpCode::WRITE_AND_VERIFY_16 => {
            check_writable(unit)?;
            check_plain(cdb)?;
            check_bytes(cdb)?;
            Ok(some(transfer(cdb, unit)?, Work::WriteAndVerify))
        }
        OpCode::ORWRITE_16 => {
            check_writable(unit)?;
            check_plain(cdb)?;
            Ok(some(transfer(cdb, unit)?, |extent| Work::OrWrite(extent, cdb.fua())))
        }
        OpCode::COMPARE_AND_WRITE => {
            check_writable(unit)?;
            check_plain(cdb)?;
            let extent = within(unit, cdb.lba(), cdb.blocks())?;
            check_length(extent, COMPARE_AND_WRITE_MAX, 13)?;
            // Also of no blocks: whoever has its data sees whether there are twice as many.
            Ok(Work::CompareAndWrite(extent, cdb.fua()))
        }
        OpCode::WRITE_SAME_10 | OpCode::WRITE_SAME_16 => write_same(cdb, unit),
        OpCode::UNMAP if unit.discards => unmap(cdb, unit),
        // REPORT SUPPORTED OPERATION CODES does not offer them.
        _ => unknown(),
    }
}

fn write_same(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    check_writable(unit)?;
    check_plain(cdb)?;
    // Nothing is ever anchored.
    if cdb.anchor() {
        return Err(invalid_field(1, 4));
    }
    let deallocate = cdb.unmap();
    if deallocate && !unit.discards {
        return Err(invalid_field(1, 3));
    }
    if cdb.pbdata_lbdata() != 0 {
        return Err(invalid_field(1, 2));
    }
    let extent = within(unit, cdb.lba(), cdb.blocks())?;
    if extent.length.0 == 0 {
        return Err(invalid_field(length_byte(cdb), 7));
    }
    check_length(extent, WRITE_SAME_MAX, length_byte(cdb))?;
    Ok(match cdb.ndob() {
        true => Work::WriteZeroes { extent, deallocate },
        false => Work::WriteSame { extent, deallocate, block: unit.block_bytes() },
    })
}

fn unmap(cdb: &Cdb, unit: &LogicalUnit) -> Result<Work, Sense> {
    check_writable(unit)?;
    if cdb.anchor() {
        return Err(invalid_field(1, 0));
    }
    match cdb.parameter_list_length() {
        0 => Ok(Work::Nothing),
        length @ 8..=UNMAP_LIST_MAX => Ok(Work::Parameters(length)),
        _ => Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)),
    }
}

/// A unit is always started. Stopping it is refused nobody, and makes its blocks durable, as a stop
/// of a disk does.
fn start_stop(cdb: &Cdb) -> Result<Work, Sense> {
    if cdb.power_condition() != 0 {
        return Err(invalid_field(4, 7));
    }
    Ok(match !cdb.start() && !cdb.no_flush() {
        true => Work::Flush,
        false => Work::Nothing,
    })
}

fn mode_select(cdb: &Cdb) -> Result<Work, Sense> {
    if cdb.save_pages() {
        return Err(invalid_field(1, 0));
    }
    if !cdb.page_format() && cdb.parameter_list_length() != 0 {
        return Err(invalid_field(1, 4));
    }
    match cdb.parameter_list_length() {
        0 => Ok(Work::Nothing),
        length @ 1..=MODE_LIST_MAX => Ok(Work::Parameters(length)),
        _ => Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)),
    }
}

/// The work of an extent, or nothing if it has no bytes.
#[inline]
fn some(extent: Extent, work: impl FnOnce(Extent) -> Work) -> Work {
    if extent.length.0 == 0 { Work::Nothing } else { work(extent) }
}

#[inline]
pub(crate) fn within(unit: &LogicalUnit, lba: u64, blocks: u32) -> Result<Extent, Sense> {
    let blocks = u64::from(blocks);
    let fits = lba.checked_add(blocks).is_some_and(|end| end <= unit.blocks.0);
    let extent = unit.block_size.extent(Lba(lba), BlockCount(blocks));
    extent.filter(|_| fits).ok_or_else(|| illegal(AdditionalSense::LBA_OUT_OF_RANGE))
}

/// The extent of a command that moves its blocks: no more than a transfer may have.
#[inline]
fn transfer(cdb: &Cdb, unit: &LogicalUnit) -> Result<Extent, Sense> {
    let extent = within(unit, cdb.lba(), cdb.blocks())?;
    if extent.length.0 > u64::from(TRANSFER_MAX) {
        return Err(invalid_field(length_byte(cdb), 7));
    }
    Ok(extent)
}

/// The extent of a command whose 0 means all blocks from its LBA on, and which moves none.
fn to_end(cdb: &Cdb, unit: &LogicalUnit) -> Result<Extent, Sense> {
    let extent = within(unit, cdb.lba(), cdb.blocks())?;
    if cdb.blocks() != 0 {
        return Ok(extent);
    }
    let rest = BlockCount(unit.blocks.0 - cdb.lba());
    let rest = unit.block_size.extent(Lba(cdb.lba()), rest);
    rest.ok_or_else(|| illegal(AdditionalSense::LBA_OUT_OF_RANGE))
}

fn check_length(extent: Extent, most: u32, byte: u16) -> Result<(), Sense> {
    match extent.length.0 > u64::from(most) {
        true => Err(invalid_field(byte, 7)),
        false => Ok(()),
    }
}

/// Where the number of blocks begins.
#[cold]
fn length_byte(cdb: &Cdb) -> u16 {
    match cdb.length() {
        6 => 4,
        10 => 7,
        12 => 6,
        _ => 10,
    }
}

#[inline]
pub(crate) fn check_writable(unit: &LogicalUnit) -> Result<(), Sense> {
    if unit.read_only {
        return Err(refuse(SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED));
    }
    if unit.mode.software_write_protect {
        return Err(refuse(SenseKey::DATA_PROTECT, AdditionalSense::SOFTWARE_WRITE_PROTECTED));
    }
    Ok(())
}

/// What a command on blocks must not say: that they have protection information, or NACA.
#[inline]
fn check_plain(cdb: &Cdb) -> Result<(), Sense> {
    if cdb.protect() != 0 {
        return Err(invalid_field(1, 7));
    }
    check_naca(cdb)
}

#[inline]
fn check_naca(cdb: &Cdb) -> Result<(), Sense> {
    if cdb.naca() {
        return Err(invalid_field(cdb.length() as u16 - 1, 2));
    }
    Ok(())
}

/// BYTCHK of a command whose blocks all come with it, if they come.
fn check_bytes(cdb: &Cdb) -> Result<ByteCheck, Sense> {
    match cdb.byte_check() {
        check @ (ByteCheck::MEDIUM | ByteCheck::COMPARE) => Ok(check),
        _ => Err(invalid_field(1, 2)),
    }
}

/// Sense data that refuse a command.
#[cold]
pub(crate) fn refuse(key: SenseKey, code: AdditionalSense) -> Sense {
    passed("status", code.name().unwrap_or_default());
    Sense::new(key, code)
}

/// The command asks for what it must not.
#[cold]
pub(crate) fn illegal(code: AdditionalSense) -> Sense {
    refuse(SenseKey::ILLEGAL_REQUEST, code)
}

/// This field of the command says what it must not.
#[cold]
pub(crate) fn invalid_field(byte: u16, bit: u8) -> Sense {
    passed("status", AdditionalSense::INVALID_FIELD_IN_CDB.name().unwrap_or_default());
    Sense::invalid_field(byte, bit)
}

/// The field of the command's list that begins with this byte says what it must not.
#[cold]
pub(crate) fn invalid_parameter(byte: usize) -> Sense {
    passed("status", AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST.name().unwrap_or_default());
    Sense::invalid_parameter(byte as u16)
}

#[cfg(test)]
mod tests;
