//! Get Log Page.
//!
//! A log is made when it is read and cut by LPO and NUMD; what lies behind its end reads as zeros.
//! Units: bytes. Errors: an unknown log is 0x109, an offset that is not a multiple of 4 or lies
//! beyond the log 0x002, a length beyond MDTS 0x002; all with DNR. Spec: NVMe base, "Get Log Page
//! command".

use core::time::Duration;
use std::collections::VecDeque;

use block::limits::TRANSFER_MAX;
use reservation::Paths;
use wire::ascii_field;
use wire::nvme::command::{AdminOpcode, IoOpcode, NSID_ALL};
use wire::nvme::feature::FeatureId;
use wire::nvme::log::{
    AnaLog, ChangedNamespaces, CommandEffects, ErrorEntry, FirmwareSlots, GetLog, LogId, Smart,
};
use wire::nvme::{Command, Status};

use crate::controllers::controller::Controller;
use crate::controllers::{Export, ReplyData};
use crate::feature;
use crate::limits::{ERROR_ENTRIES_MAX, NAMESPACES_MAX};
use crate::paths;
use contract::Traffic;

/// CDW14 bit 23: the offset is an index into the log's entries, which is not offered (LPA bit 5 of
/// an entry's support).
const OFFSET_TYPE: u32 = 1 << 23;
/// Supported log pages and supported features: one dword for each identifier.
const IDENTIFIERS: usize = 256;
/// Bit 0 of such a dword: it is supported.
const SUPPORTED: u32 = 1;

/// Checks what is common to all logs; returns what is asked for.
pub(crate) fn parse(command: &Command) -> Result<GetLog, Status> {
    let wanted = GetLog::from_command(command);
    let valid = wanted.offset.is_multiple_of(4)
        && wanted.bytes <= u64::from(TRANSFER_MAX)
        && command.cdw(14) & OFFSET_TYPE == 0;
    if !valid {
        return Err(Status::INVALID_FIELD);
    }
    if u64::from(command.sgl().length) < wanted.bytes {
        return Err(Status::INVALID_SGL_LENGTH);
    }
    if command.nsid() > NAMESPACES_MAX && command.nsid() != NSID_ALL {
        return Err(Status::INVALID_NAMESPACE);
    }
    Ok(wanted)
}

/// Whether what is asked for begins within a log of so many bytes.
pub(crate) fn check_offset(wanted: &GetLog, length: u64) -> Result<(), Status> {
    if wanted.offset > length { Err(Status::INVALID_FIELD) } else { Ok(()) }
}

/// The part of a whole log that is asked for.
pub(crate) fn cut(log: &[u8], wanted: &GetLog) -> Result<ReplyData, Status> {
    check_offset(wanted, log.len() as u64)?;
    let start = wanted.offset as usize;
    let end = log.len().min(start + wanted.bytes as usize);
    Ok(part(log[start..end].to_vec(), wanted))
}

/// What a log has of the part that is asked for, and zeros behind its end: they are as many as a
/// host likes, and not made.
pub(crate) fn part(bytes: Vec<u8>, wanted: &GetLog) -> ReplyData {
    let zeros = wanted.bytes as u32 - bytes.len() as u32;
    ReplyData { bytes, zeros }
}

/// What logs are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) export: Option<&'a Export>,
    pub(crate) paths: &'a Paths,
}

/// A log, whole; those of all shards are made in `controllers::health`, that of discovery in
/// `discovery`.
pub(crate) fn page(wanted: &GetLog, context: Context<'_>) -> Result<Vec<u8>, Status> {
    let Context { controller, export, paths } = context;
    match wanted.id {
        LogId::SUPPORTED => Ok(identifiers(|id| is_known(LogId(id), controller.is_discovery()))),
        LogId::FIRMWARE_SLOT => Ok(firmware().emit().to_vec()),
        LogId::CHANGED_NAMESPACES => {
            let nsids: Vec<u32> = controller.changed_namespaces.iter().copied().collect();
            Ok(ChangedNamespaces::emit(&nsids).to_vec())
        }
        LogId::COMMAND_EFFECTS => Ok(effects().emit().to_vec()),
        LogId::ANA => {
            let namespaces = export.into_iter().flat_map(Export::namespaces);
            let is_wanted = wanted.specific & AnaLog::GROUPS_ONLY == 0;
            let nsids = namespaces.map(|one| one.nsid).filter(|_| is_wanted);
            Ok(paths::log(paths, controller.group, nsids.collect()).emit())
        }
        LogId::RESERVATION_NOTIFICATION => Ok(controller.notifications.page().emit().to_vec()),
        LogId::FEATURE_EFFECTS => {
            let cache_volatile = export.is_some_and(Export::is_cache_volatile);
            Ok(identifiers(|id| feature::is_known(FeatureId(id), false, cache_volatile)))
        }
        _ => Err(Status::INVALID_LOG_PAGE),
    }
}

/// The logs there are.
pub(crate) fn is_known(id: LogId, discovery: bool) -> bool {
    if discovery {
        return matches!(id, LogId::SUPPORTED | LogId::DISCOVERY);
    }
    matches!(
        id,
        LogId::SUPPORTED
            | LogId::ERROR
            | LogId::SMART
            | LogId::FIRMWARE_SLOT
            | LogId::CHANGED_NAMESPACES
            | LogId::COMMAND_EFFECTS
            | LogId::ANA
            | LogId::FEATURE_EFFECTS
            | LogId::RESERVATION_NOTIFICATION
    )
}

/// A dword for each identifier, with bit 0 set where `known` says so.
fn identifiers(known: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut log = vec![0; IDENTIFIERS * 4];
    for (id, dword) in (0..=u8::MAX).zip(log.as_chunks_mut::<4>().0) {
        if known(id) {
            *dword = SUPPORTED.to_le_bytes();
        }
    }
    log
}

/// Whether a log is about what happens on all shards.
pub(crate) fn is_shared(id: LogId) -> bool {
    matches!(id, LogId::ERROR | LogId::SMART)
}

/// Bytes of a log of all shards.
pub(crate) fn shared_size(id: LogId) -> u64 {
    let size = match id {
        LogId::ERROR => ERROR_ENTRIES_MAX * ErrorEntry::SIZE,
        _ => Smart::SIZE,
    };
    size as u64
}

/// The error log of these entries, the newest first.
pub(crate) fn errors(entries: &VecDeque<ErrorEntry>) -> Vec<u8> {
    let mut log = vec![0; ERROR_ENTRIES_MAX * ErrorEntry::SIZE];
    for (slot, entry) in log.as_chunks_mut::<{ ErrorEntry::SIZE }>().0.iter_mut().zip(entries) {
        *slot = entry.emit();
    }
    log
}

/// Health: nothing wears out here, and power is that of the process.
pub(crate) fn smart(traffic: &Traffic, error_entries: u64, power_on: Duration) -> Smart {
    // Data units: thousands of 512 bytes, rounded up.
    let units = |bytes: u64| u128::from(bytes.div_ceil(512 * 1000));
    Smart {
        available_spare: 100,
        available_spare_threshold: 10,
        data_units_read: units(traffic.read_bytes),
        data_units_written: units(traffic.write_bytes),
        host_reads: traffic.reads.into(),
        host_writes: traffic.writes.into(),
        power_on_hours: u128::from(power_on.as_secs() / 3600),
        power_cycles: 1,
        media_errors: traffic.media_errors.into(),
        error_entries: error_entries.into(),
        ..Smart::default()
    }
}

/// One slot, in use.
fn firmware() -> FirmwareSlots {
    let mut slots = FirmwareSlots { active: 1, ..FirmwareSlots::default() };
    slots.revisions[0] = ascii_field(env!("CARGO_PKG_VERSION"));
    slots
}

fn effects() -> CommandEffects {
    let mut effects = CommandEffects::default();
    for opcode in [
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::IDENTIFY,
        AdminOpcode::ABORT,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::KEEP_ALIVE,
    ] {
        effects.admin[usize::from(opcode.0)] = CommandEffects::SUPPORTED;
    }
    for opcode in [
        IoOpcode::FLUSH,
        IoOpcode::READ,
        IoOpcode::COMPARE,
        IoOpcode::VERIFY,
        IoOpcode::RESERVATION_REGISTER,
        IoOpcode::RESERVATION_REPORT,
        IoOpcode::RESERVATION_ACQUIRE,
        IoOpcode::RESERVATION_RELEASE,
    ] {
        effects.io[usize::from(opcode.0)] = CommandEffects::SUPPORTED;
    }
    for opcode in
        [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES, IoOpcode::DATASET_MANAGEMENT, IoOpcode::COPY]
    {
        effects.io[usize::from(opcode.0)] =
            CommandEffects::SUPPORTED | CommandEffects::CHANGES_BLOCKS;
    }
    effects
}
