//! Mode parameters: what MODE SENSE returns, and what MODE SELECT may change.
//!
//! Four pages: read-write error recovery, caching, control and informational exceptions. A host may
//! change D_SENSE and SWP, for all hosts; everything else must be sent as it is, so that a host
//! which writes back what it read succeeds. Nothing is saved. Whether there is a volatile cache is
//! what the volume does, and not a host's to switch. Errors: pages that are not there, fields that
//! cannot be changed, lists that are cut. Spec: SPC-4, "MODE SENSE (6) command", "MODE SELECT (6)
//! command", "Control mode page"; SBC-3, "Caching mode page".

use wire::scsi::mode::{
    BlockDescriptor, Caching, CachingFlags, Control, ControlFlags, DeviceSpecific, ErrorRecovery,
    InformationalExceptions, ModeData, ModeFormat, ModePage, ModePageCode,
};
use wire::scsi::{AdditionalSense, Cdb, OpCode, Sense};

use crate::judge::{illegal, invalid_field, invalid_parameter};
use crate::unit::{LogicalUnit, ModeState};

/// The pages, ascending.
const PAGES: [ModePageCode; 4] = [
    ModePageCode::ERROR_RECOVERY,
    ModePageCode::CACHING,
    ModePageCode::CONTROL,
    ModePageCode::INFORMATIONAL_EXCEPTIONS,
];
/// SUBPAGE CODE: all of them.
const ALL_SUBPAGES: u8 = 0xff;
/// TST: each nexus has a task set of its own.
const OWN_TASK_SETS: u32 = 1;
/// QUEUE ALGORITHM MODIFIER: simple tasks are carried out in any order.
const ANY_ORDER: u32 = 1;
/// DEXCPT: informational exceptions are never reported.
const NO_EXCEPTIONS: u8 = 0x08;

/// Which values of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Those in force.
    Current,
    /// A 1 for each bit that can be changed.
    Changeable,
    /// Those after a start.
    Default,
}

/// The data of MODE SENSE, all of them.
pub(crate) fn sense(cdb: &Cdb, unit: &LogicalUnit) -> Result<Vec<u8>, Sense> {
    let values = match cdb.page_control() {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ => return Err(illegal(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED)),
    };
    let wanted = ModePageCode(cdb.page_code());
    let is_all = wanted == ModePageCode::ALL;
    if !is_all && !PAGES.contains(&wanted) {
        return Err(invalid_field(2, 5));
    }
    if !matches!(cdb.subpage_code(), 0 | ALL_SUBPAGES) {
        return Err(invalid_field(3, 7));
    }
    let pages = PAGES.into_iter().filter(|&code| is_all || code == wanted);
    let descriptor = BlockDescriptor {
        blocks: unit.blocks.0,
        block_length: unit.block_bytes(),
        is_long: cdb.long_lba(),
    };
    let data = ModeData {
        medium_type: 0,
        device: DeviceSpecific(0)
            .with_write_protected(unit.is_write_protected())
            .with_dpo_fua(true),
        descriptor: (!cdb.dbd()).then_some(descriptor),
        pages: pages.flat_map(|code| page(code, unit, values)).collect(),
    };
    Ok(data.emit(format(cdb)))
}

fn format(cdb: &Cdb) -> ModeFormat {
    match cdb.opcode() {
        OpCode::MODE_SENSE_6 | OpCode::MODE_SELECT_6 => ModeFormat::Six,
        _ => ModeFormat::Ten,
    }
}

/// A page of [`PAGES`].
fn page(code: ModePageCode, unit: &LogicalUnit, values: Values) -> Vec<u8> {
    let is_mask = values == Values::Changeable;
    match code {
        ModePageCode::ERROR_RECOVERY => ErrorRecovery::new().emit().to_vec(),
        ModePageCode::CACHING => {
            let flags = CachingFlags(0).with_write_cache(unit.cache_volatile && !is_mask);
            Caching { flags, ..Caching::new() }.emit().to_vec()
        }
        ModePageCode::CONTROL => {
            let mode = match values {
                Values::Current => unit.mode,
                Values::Changeable => {
                    ModeState { descriptor_sense: true, software_write_protect: true }
                }
                Values::Default => ModeState::default(),
            };
            let flags = ControlFlags(0)
                .with_descriptor_sense(mode.descriptor_sense)
                .with_software_write_protect(mode.software_write_protect)
                .with_task_set_type(if is_mask { 0 } else { OWN_TASK_SETS })
                .with_queue_algorithm(if is_mask { 0 } else { ANY_ORDER });
            Control { flags, ..Control::new() }.emit().to_vec()
        }
        _ => {
            let flags = if is_mask { 0 } else { NO_EXCEPTIONS };
            let page = InformationalExceptions::new();
            InformationalExceptions { flags, ..page }.emit().to_vec()
        }
    }
}

/// What a list of MODE SELECT makes of a unit.
pub(crate) fn select(cdb: &Cdb, data: &[u8], unit: &LogicalUnit) -> Result<ModeState, Sense> {
    let cut = || illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let format = format(cdb);
    let list = ModeData::parse(data, format).map_err(|_| cut())?;
    if let Some(descriptor) = list.descriptor {
        check_descriptor(&descriptor, unit, format.header())?;
    }
    let first = data.len() - list.pages.len();
    let mut mode = unit.mode;
    for page in list.pages() {
        let page = page.map_err(|_| cut())?;
        mode = select_page(&page, unit, mode, first + page.at)?;
    }
    Ok(mode)
}

/// The unit stays as large as it is, which a host may say or leave open.
fn check_descriptor(
    descriptor: &BlockDescriptor,
    unit: &LogicalUnit,
    at: usize,
) -> Result<(), Sense> {
    let (short, long) = (u64::from(u32::MAX), u64::MAX);
    let same = [0, unit.blocks.0, if descriptor.is_long { long } else { short }];
    if !same.contains(&descriptor.blocks) {
        return Err(invalid_parameter(at));
    }
    if descriptor.block_length != 0 && descriptor.block_length != unit.block_bytes() {
        return Err(invalid_parameter(at + if descriptor.is_long { 12 } else { 5 }));
    }
    Ok(())
}

/// What a page makes of the mode; `at` is where in the list it begins.
fn select_page(
    page: &ModePage<'_>,
    unit: &LogicalUnit,
    mode: ModeState,
    at: usize,
) -> Result<ModeState, Sense> {
    if page.subpage.is_some() || !PAGES.contains(&page.code) {
        return Err(invalid_parameter(at));
    }
    let current = self::page(page.code, unit, Values::Current);
    let mask = self::page(page.code, unit, Values::Changeable);
    if page.bytes.len() != current.len() {
        return Err(invalid_parameter(at + 1));
    }
    // PS, bit 7 of the first byte, is reserved here: hosts that send back what they read leave it.
    let fixed = page.bytes.iter().zip(current.iter().zip(&mask)).enumerate().skip(1);
    for (offset, (sent, (is, may_change))) in fixed {
        // The mask's second byte is the page's length, which cannot be changed either.
        let may_change = if offset == 1 { 0 } else { *may_change };
        if (sent ^ is) & !may_change != 0 {
            return Err(invalid_parameter(at + offset));
        }
    }
    if page.code != ModePageCode::CONTROL {
        return Ok(mode);
    }
    let Ok(control) = Control::parse(page.bytes) else { return Err(invalid_parameter(at)) };
    Ok(ModeState {
        descriptor_sense: control.flags.descriptor_sense(),
        software_write_protect: control.flags.software_write_protect(),
    })
}

#[cfg(test)]
mod tests;
