//! Third-party copies: what the list of EXTENDED COPY asks for, and what RECEIVE COPY RESULTS tells.
//!
//! In: the list, and all units that the host may use. Out: the segments as extents of volumes, up to
//! the first that cannot be copied, and the sense data that end the copy there; or what refuses the
//! list as a whole. The caller copies the segments in order, and keeps a [`CopyState`] of each copy
//! for the host to ask for. Units: blocks of a segment are the source's, or with DC the
//! destination's, and bytes from here on. Errors: what is wrong with the list is an ILLEGAL REQUEST
//! before anything is copied; what is wrong with a segment is COPY ABORTED with its number, when the
//! segments before it are copied.
//!
//! Choices that the standard leaves: a copy stays within the units of one target that its host may
//! use, which it names by their NAA or EUI-64 designators, or by number FFFFh if it is the one that
//! has the command; the relative initiator port, PRIORITY and STR mean nothing; CAT has nothing
//! to join, since every segment ends in whole blocks of both ends or is refused; the states of the
//! last copies are kept until others take their place. Spec: SPC-4, "EXTENDED COPY(LID1) command",
//! "RECEIVE COPY STATUS(LID1) command", "Errors detected before starting processing of the segment
//! descriptors", "Errors detected during processing of segment descriptors".

use block::{ByteOffset, CopySegment as Segment, Extent};
use wire::scsi::copy::{
    CopyFailureDetails, CopyList, CopyOperatingParameters, CopyPlace, CopySegment, CopyStatus,
    CopyStatusCode,
};
use wire::scsi::inquiry::Peripheral;
use wire::scsi::vpd::{Association, DesignatorKind, ThirdPartyCopy};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, Sense, ServiceAction};

use crate::judge::{illegal, invalid_field, invalid_parameter};
use crate::limits::{
    COPIES_MAX, COPIES_TOTAL, COPY_LIST_MAX, COPY_PLACES_MAX, COPY_SEGMENT_MAX, COPY_SEGMENTS_MAX,
};
use crate::unit::LogicalUnit;
use crate::work::Work;

/// LIST ID USAGE: the identifier means nothing.
const WITHOUT_ID: u8 = 3;
/// LIST ID USAGE that is reserved.
const RESERVED_USAGE: u8 = 1;
/// Type codes of the descriptors that are taken, ascending.
const TYPES: [u8; 2] = [CopySegment::BLOCKS, CopyPlace::IDENTIFICATION];

/// What a list asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOrder {
    /// LIST IDENTIFIER, unless it means nothing.
    pub list_id: Option<u8>,
    /// What is copied, in order.
    pub segments: Vec<Segment>,
    /// The LUNs of source and destination of each of them.
    pub luns: Vec<[u16; 2]>,
    /// What is wrong with the segment behind the last of them, if anything is.
    pub flaw: Option<Sense>,
}

/// How far a copy is, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// Segments that are copied.
    pub segments: u16,
    /// Bytes that are copied.
    pub bytes: u64,
    /// Its answer, once it has one.
    pub end: Option<(ScsiStatus, Option<Sense>)>,
}

/// EXTENDED COPY and RECEIVE COPY RESULTS.
#[cold]
pub(crate) fn judge(cdb: &Cdb) -> Result<Work, Sense> {
    match cdb.action() {
        ServiceAction::EXTENDED_COPY_LID1 => match cdb.parameter_list_length() {
            0 => Ok(Work::Nothing),
            length if length > COPY_LIST_MAX => {
                Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))
            }
            length => Ok(Work::Copy(length)),
        },
        ServiceAction::RECEIVE_COPY_OPERATING_PARAMETERS => Ok(Work::Reply),
        ServiceAction::RECEIVE_COPY_STATUS_LID1
        | ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1 => Ok(Work::CopyResults),
        _ => Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
    }
}

/// Says what a list asks for that came with EXTENDED COPY for the unit `this`. `units` are all that
/// the host may use, with their LUNs.
pub fn copy(data: &[u8], this: u16, units: &[(u16, &LogicalUnit)]) -> Result<CopyOrder, Sense> {
    let list = CopyList::parse(data);
    let list = list.map_err(|_| illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))?;
    check_list(&list)?;
    let list_id = (list.id_usage != WITHOUT_ID).then_some(list.id);
    let mut order = CopyOrder { list_id, segments: Vec::new(), luns: Vec::new(), flaw: None };
    for (number, segment) in list.segments.iter().enumerate() {
        let CopySegment::Blocks { source, destination, .. } = segment else {
            panic!("{segment:?} was refused with its list")
        };
        let find = |place: u16| find(&list, place, this, units);
        let found = find(*source).and_then(|source| Ok([source, find(*destination)?]));
        match found.and_then(|ends| Ok((part(segment, ends)?, ends))) {
            Ok((segment, ends)) => {
                order.segments.push(segment);
                order.luns.push(ends.map(|(lun, _)| lun));
            }
            Err(code) => {
                order.flaw = Some(copy_aborted(code, number));
                break;
            }
        }
    }
    Ok(order)
}

/// Errors that are there before any segment is looked at.
fn check_list(list: &CopyList) -> Result<(), Sense> {
    let places_end = CopyList::HEADER + list.places.len() * CopyPlace::SIZE;
    if list.id_usage == RESERVED_USAGE {
        return Err(invalid_parameter(1));
    }
    if list.id_usage == WITHOUT_ID && list.id != 0 {
        return Err(invalid_parameter(0));
    }
    if list.places.len() > COPY_PLACES_MAX {
        return Err(illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS));
    }
    if list.segments.len() > COPY_SEGMENTS_MAX {
        return Err(illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    if !list.inline.is_empty() {
        return Err(illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED));
    }
    for (number, place) in list.places.iter().enumerate() {
        match place {
            CopyPlace::Identification { .. } => {}
            // A designator that does not fit: DESIGNATOR LENGTH.
            CopyPlace::Other(CopyPlace::IDENTIFICATION, _) => {
                return Err(invalid_parameter(CopyList::HEADER + number * CopyPlace::SIZE + 7));
            }
            CopyPlace::Other(..) => {
                return Err(illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR));
            }
        }
    }
    for segment in &list.segments {
        match segment {
            CopySegment::Blocks { .. } => {}
            // Of another length than it has.
            CopySegment::Other(CopySegment::BLOCKS, _) => {
                return Err(invalid_parameter(places_end));
            }
            CopySegment::Other(..) => {
                return Err(illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR));
            }
        }
    }
    Ok(())
}

type Place<'a> = (u16, &'a LogicalUnit);

/// The unit of a place, by the number that a segment gives.
fn find<'a>(
    list: &CopyList,
    number: u16,
    this: u16,
    units: &[Place<'a>],
) -> Result<Place<'a>, AdditionalSense> {
    let unreachable = AdditionalSense::UNREACHABLE_COPY_TARGET;
    if number == CopyPlace::THIS_UNIT {
        return units.iter().find(|(lun, _)| *lun == this).copied().ok_or(unreachable);
    }
    let Some(CopyPlace::Identification {
        device_type,
        null,
        association,
        kind,
        designator,
        block_length,
        ..
    }) = list.places.get(usize::from(number))
    else {
        return Err(unreachable);
    };
    if *null || *association != Association::LOGICAL_UNIT {
        return Err(unreachable);
    }
    let is_it = |(_, unit): &&Place<'_>| has_name(unit, *kind, designator);
    let found = units.iter().find(is_it).ok_or(AdditionalSense::COPY_TARGET_NOT_REACHABLE)?;
    // Who does not know the length of its blocks says 0.
    let is_disk = *device_type == Peripheral::DISK.0
        && (*block_length == 0 || *block_length == found.1.block_bytes());
    is_disk.then_some(*found).ok_or(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE)
}

/// Whether a unit has this name. Its other names have more bytes than there is room for.
fn has_name(unit: &LogicalUnit, kind: DesignatorKind, name: &[u8]) -> bool {
    match kind {
        DesignatorKind::NAA => name == unit.naa(),
        DesignatorKind::EUI64 => name == unit.eui64(),
        _ => false,
    }
}

/// A segment in bytes, or why it cannot be copied.
fn part(
    segment: &CopySegment,
    [(_, source), (_, destination)]: [Place<'_>; 2],
) -> Result<Segment, AdditionalSense> {
    let CopySegment::Blocks { destination_counts, blocks, source_lba, destination_lba, .. } =
        *segment
    else {
        panic!("{segment:?} is no copy of blocks")
    };
    let counted = if destination_counts { destination } else { source };
    let bytes = u64::from(blocks) * u64::from(counted.block_bytes());
    let place = |unit: &LogicalUnit, lba: u64| {
        let block = u64::from(unit.block_bytes());
        if !bytes.is_multiple_of(block) {
            return Err(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT);
        }
        let fits = lba.checked_add(bytes / block).is_some_and(|end| end <= unit.blocks.0);
        if !fits || bytes > COPY_SEGMENT_MAX {
            return Err(AdditionalSense::NONE);
        }
        Ok(lba * block)
    };
    let (from, to) = (place(source, source_lba)?, place(destination, destination_lba)?);
    if destination.is_write_protected() {
        return Err(AdditionalSense::WRITE_PROTECTED);
    }
    Ok(Segment {
        source: (source.volume, Extent::new(from, bytes)),
        destination: (destination.volume, ByteOffset(to)),
    })
}

/// Whether a copy may still write to a unit.
pub fn check_destination(unit: &LogicalUnit) -> Result<(), AdditionalSense> {
    match unit.is_write_protected() {
        true => Err(AdditionalSense::WRITE_PROTECTED),
        false => Ok(()),
    }
}

/// The sense data of a copy of which this segment cannot be copied, failed below, or was in the way of
/// somebody.
#[cold]
pub fn copy_aborted(code: AdditionalSense, segment: usize) -> Sense {
    block::record::passed("status", code.name().unwrap_or_default());
    Sense::copy_aborted(code, segment as u16)
}

/// The list has the identifier of a copy that its host has under way.
#[cold]
pub fn copy_in_progress() -> Sense {
    illegal(AdditionalSense::OPERATION_IN_PROGRESS)
}

/// The data of a command that [`judge`](crate::judge()) calls
/// [`Work::CopyResults`](crate::Work::CopyResults); `state` is that of the copy whose identifier it
/// names, if the host has or had one.
pub fn copy_results(
    cdb: &Cdb,
    state: Option<&CopyState>,
    descriptor_sense: bool,
) -> Result<Vec<u8>, Sense> {
    let state = state.ok_or_else(|| invalid_field(2, 7))?;
    let mut data = match cdb.action() {
        ServiceAction::RECEIVE_COPY_STATUS_LID1 => status(state).emit().to_vec(),
        _ => {
            let failed = state.end.filter(|(status, _)| *status != ScsiStatus::GOOD);
            let (status, sense) = failed.ok_or_else(|| invalid_field(2, 7))?;
            let sense = sense.map(|sense| sense.emit(descriptor_sense)).unwrap_or_default();
            CopyFailureDetails { status, sense }.emit()
        }
    };
    data.truncate(cdb.allocation_length() as usize);
    Ok(data)
}

fn status(state: &CopyState) -> CopyStatus {
    let code = match state.end {
        None => CopyStatusCode::IN_PROGRESS,
        Some((ScsiStatus::GOOD, _)) => CopyStatusCode::COMPLETED,
        Some(_) => CopyStatusCode::FAILED,
    };
    // In bytes, or in KiB where those are too many.
    let (units, transferred) = match u32::try_from(state.bytes) {
        Ok(bytes) => (0, bytes),
        Err(_) => (1, (state.bytes >> 10) as u32),
    };
    let available = CopyStatus::SIZE as u32 - 4;
    CopyStatus { available, status: code, segments: state.segments, units, transferred }
}

/// The data of RECEIVE COPY OPERATING PARAMETERS.
pub(crate) fn operating_parameters(unit: &LogicalUnit) -> Vec<u8> {
    CopyOperatingParameters {
        needs_no_id: true,
        places_max: COPY_PLACES_MAX as u16,
        segments_max: COPY_SEGMENTS_MAX as u16,
        list_max: COPY_LIST_MAX - CopyList::HEADER as u32,
        segment_max: COPY_SEGMENT_MAX as u32,
        total_copies_max: COPIES_TOTAL,
        copies_max: COPIES_MAX as u8,
        granularity: unit.block_bytes().ilog2() as u8,
        types: TYPES.to_vec(),
        ..CopyOperatingParameters::default()
    }
    .emit()
}

/// The body of the third-party copy page.
pub(crate) fn page(unit: &LogicalUnit) -> Vec<u8> {
    let of = |action: ServiceAction| action.action();
    ThirdPartyCopy {
        commands: vec![
            (OpCode::EXTENDED_COPY, vec![of(ServiceAction::EXTENDED_COPY_LID1)]),
            (
                OpCode::RECEIVE_COPY_RESULTS,
                vec![
                    of(ServiceAction::RECEIVE_COPY_STATUS_LID1),
                    of(ServiceAction::RECEIVE_COPY_OPERATING_PARAMETERS),
                    of(ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1),
                ],
            ),
        ],
        places_max: COPY_PLACES_MAX as u16,
        segments_max: COPY_SEGMENTS_MAX as u16,
        list_max: COPY_LIST_MAX - CopyList::HEADER as u32,
        inline_max: 0,
        types: TYPES.to_vec(),
        place_ids: vec![CopyPlace::THIS_UNIT],
        copies_max: COPIES_TOTAL.into(),
        identified_max: COPIES_MAX as u32,
        segment_max: COPY_SEGMENT_MAX as u32,
        granularity: unit.block_bytes().ilog2() as u8,
    }
    .emit()
}

#[cfg(test)]
mod tests;
