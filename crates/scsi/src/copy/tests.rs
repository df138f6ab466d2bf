//! Lists that ask for copies, each flaw of them, and what is told of copies.

use block::{BlockCount, BlockSize, VolumeId};
use wire::scsi::vpd::CodeSet;

use super::*;
use crate::fixtures::unit;
use crate::judge as judge_cdb;

fn other() -> LogicalUnit {
    LogicalUnit { volume: VolumeId(8), uuid: [9; 16], ..unit() }
}

fn named(unit: &LogicalUnit) -> CopyPlace {
    place(DesignatorKind::NAA, &unit.naa())
}

fn place(kind: DesignatorKind, name: &[u8]) -> CopyPlace {
    CopyPlace::Identification {
        device_type: 0,
        null: false,
        relative_initiator_port: 0,
        code_set: CodeSet::BINARY,
        association: Association::LOGICAL_UNIT,
        kind,
        designator: name.to_vec(),
        block_length: 512,
        pad: false,
    }
}

fn blocks(ends: [u16; 2], blocks: u16, source_lba: u64, destination_lba: u64) -> CopySegment {
    CopySegment::Blocks {
        destination_counts: false,
        concatenate: false,
        source: ends[0],
        destination: ends[1],
        blocks,
        source_lba,
        destination_lba,
    }
}

fn list(places: Vec<CopyPlace>, segments: Vec<CopySegment>) -> CopyList {
    CopyList { id: 5, places, segments, ..CopyList::default() }
}

/// Asks unit 3, of 3 and 4.
fn ask(list: &CopyList) -> Result<CopyOrder, Sense> {
    let (this, other) = (unit(), other());
    copy(&list.emit(), 3, &[(3, &this), (4, &other)])
}

fn extent(source: (u32, u64), destination: (u32, u64), length: u64) -> Segment {
    Segment {
        source: (VolumeId(source.0), Extent::new(source.1, length)),
        destination: (VolumeId(destination.0), ByteOffset(destination.1)),
    }
}

#[test]
fn segments_are_extents_of_the_volumes_that_they_name() {
    let places = vec![named(&other()), place(DesignatorKind::EUI64, &unit().eui64())];
    let segments = vec![blocks([1, 0], 8, 0, 100), blocks([CopyPlace::THIS_UNIT, 1], 1, 7, 9)];
    let order = ask(&list(places, segments)).expect("a copy");
    assert_eq!(order.list_id, Some(5));
    let expected = [extent((7, 0), (8, 51_200), 4096), extent((7, 7 * 512), (7, 9 * 512), 512)];
    assert_eq!(order.segments, expected);
    assert_eq!((order.luns, order.flaw), (vec![[3, 4], [3, 3]], None));
}

#[test]
fn an_identifier_may_mean_nothing() {
    let nothing = |id, id_usage| ask(&CopyList { id, id_usage, ..CopyList::default() });
    assert_eq!(nothing(0, 3).expect("no copy").list_id, None);
    assert_eq!(nothing(7, 3), Err(Sense::invalid_parameter(0)));
    assert_eq!(nothing(7, 1), Err(Sense::invalid_parameter(1)));
    assert_eq!(nothing(7, 2).expect("no copy").list_id, Some(7));
}

#[test]
fn a_flawed_segment_ends_the_copy_behind_those_in_front_of_it() {
    let last = unit().blocks.0 - 8;
    let mut null = named(&other());
    let CopyPlace::Identification { null: is_null, .. } = &mut null else { unreachable!() };
    *is_null = true;
    let mut tape = named(&other());
    let CopyPlace::Identification { device_type, .. } = &mut tape else { unreachable!() };
    *device_type = 1;
    let mut port = named(&other());
    let CopyPlace::Identification { association, .. } = &mut port else { unreachable!() };
    *association = Association::TARGET_PORT;
    let mut large_blocks = named(&other());
    let CopyPlace::Identification { block_length, .. } = &mut large_blocks else { unreachable!() };
    *block_length = 4096;
    let stranger = place(DesignatorKind::NAA, &[0x31; 8]);
    let places = vec![named(&unit()), null, tape, port, large_blocks, stranger];
    for (flawed, code) in [
        (blocks([0, 6], 8, 0, 0), AdditionalSense::UNREACHABLE_COPY_TARGET),
        (blocks([7, 0], 8, 0, 0), AdditionalSense::UNREACHABLE_COPY_TARGET),
        (blocks([0, 1], 8, 0, 0), AdditionalSense::UNREACHABLE_COPY_TARGET),
        (blocks([0, 2], 8, 0, 0), AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE),
        (blocks([0, 3], 8, 0, 0), AdditionalSense::UNREACHABLE_COPY_TARGET),
        (blocks([0, 4], 8, 0, 0), AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE),
        (blocks([5, 0], 8, 0, 0), AdditionalSense::COPY_TARGET_NOT_REACHABLE),
        (blocks([0, 0], 9, 0, last), AdditionalSense::NONE),
        (blocks([0, 0], 9, last, 0), AdditionalSense::NONE),
        (blocks([0, 0], 1, u64::MAX, 0), AdditionalSense::NONE),
        (blocks([0, 0], 0, 0, last + 9), AdditionalSense::NONE),
    ] {
        let segments = vec![blocks([0, 0], 8, 8, last), flawed.clone(), blocks([0, 0], 8, 0, 8)];
        let order = ask(&list(places.clone(), segments)).expect("the list is right");
        assert_eq!(order.segments, [extent((7, 4096), (7, last * 512), 4096)], "{flawed:?}");
        assert_eq!(order.flaw, Some(Sense::copy_aborted(code, 1)), "{flawed:?}");
    }
}

#[test]
fn what_is_wrong_with_a_list_is_refused_before_anything_is_copied() {
    let this = named(&unit());
    let segment = blocks([0, 0], 8, 0, 8);
    let good = list(vec![this.clone()], vec![segment.clone()]);
    let illegal = |code| Err(Sense::illegal(code));
    let length = illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let bytes = good.emit();
    let unit = unit();
    for end in 0..bytes.len() {
        assert_eq!(copy(&bytes[..end], 3, &[(3, &unit)]), length, "{end} bytes");
    }
    for (wrong, expected) in [
        (
            list(vec![this.clone(); COPY_PLACES_MAX + 1], vec![segment.clone()]),
            illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS),
        ),
        (
            list(vec![this.clone()], vec![segment.clone(); COPY_SEGMENTS_MAX + 1]),
            illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS),
        ),
        (
            CopyList { inline: vec![0], ..good.clone() },
            illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED),
        ),
        (
            list(vec![CopyPlace::Other(0xe0, [0; 31])], vec![segment.clone()]),
            illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR),
        ),
        (
            list(vec![this.clone(), CopyPlace::Other(0xe4, [0x40; 31])], vec![segment.clone()]),
            Err(Sense::invalid_parameter(16 + 32 + 7)),
        ),
        (
            list(vec![this.clone()], vec![segment.clone(), CopySegment::Other(3, vec![0; 20])]),
            illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR),
        ),
        (
            list(vec![this.clone()], vec![CopySegment::Other(2, vec![0; 20])]),
            Err(Sense::invalid_parameter(48)),
        ),
    ] {
        assert_eq!(ask(&wrong), expected, "{wrong:?}");
    }
    let most = vec![segment; COPY_SEGMENTS_MAX];
    let most = list(vec![this; COPY_PLACES_MAX], most);
    assert_eq!(most.emit().len() as u32, COPY_LIST_MAX);
    assert_eq!(ask(&most).expect("as many as are promised").segments.len(), COPY_SEGMENTS_MAX);
}

#[test]
fn units_of_other_blocks_are_copied_in_whole_blocks_of_both() {
    let large =
        LogicalUnit { block_size: BlockSize::B4096, blocks: BlockCount(1 << 18), ..other() };
    let small = unit();
    let order = |segment| {
        let mut place = named(&large);
        let CopyPlace::Identification { block_length, .. } = &mut place else { unreachable!() };
        *block_length = 0;
        let list = list(vec![named(&small), place], vec![segment]);
        copy(&list.emit(), 3, &[(3, &small), (4, &large)]).expect("the list is right")
    };
    let whole = order(blocks([0, 1], 16, 8, 1));
    assert_eq!(whole.segments, [extent((7, 4096), (8, 4096), 8192)]);
    let mut counted = blocks([0, 1], 2, 8, 1);
    let CopySegment::Blocks { destination_counts, .. } = &mut counted else { unreachable!() };
    *destination_counts = true;
    assert_eq!(order(counted), whole);
    let cut = order(blocks([0, 1], 15, 8, 1));
    let inexact = AdditionalSense::UNEXPECTED_INEXACT_SEGMENT;
    assert_eq!((cut.segments.len(), cut.flaw), (0, Some(Sense::copy_aborted(inexact, 0))));
}

#[test]
fn a_segment_longer_than_is_promised_or_to_where_nothing_may_be_written_is_refused() {
    let large = LogicalUnit { block_size: BlockSize::B4096, ..unit() };
    let most = (COPY_SEGMENT_MAX / 4096) as u16;
    let protected = LogicalUnit { read_only: true, ..other() };
    let order = |ends, blocks_| {
        let mut places = vec![named(&large), named(&protected)];
        let CopyPlace::Identification { block_length, .. } = &mut places[0] else { unreachable!() };
        *block_length = 0;
        let list = list(places, vec![blocks(ends, blocks_, 0, 1 << 20)]);
        copy(&list.emit(), 3, &[(3, &large), (4, &protected)]).expect("the list is right").flaw
    };
    assert_eq!(order([0, 0], most), None);
    let code = |flaw: Option<Sense>| flaw.map(|sense| sense.code);
    assert_eq!(code(order([0, 0], most + 1)), Some(AdditionalSense::NONE));
    assert_eq!(code(order([0, 1], 8)), Some(AdditionalSense::WRITE_PROTECTED));
    assert_eq!(order([1, 0], 8), None, "it is read");
    assert_eq!(check_destination(&protected), Err(AdditionalSense::WRITE_PROTECTED));
    assert_eq!(check_destination(&large), Ok(()));
}

#[test]
fn commands_are_known_by_their_service_actions() {
    let length = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(judge_cdb(&Cdb::extended_copy(0), &unit()), Ok(Work::Nothing));
    let most = COPY_LIST_MAX;
    assert_eq!(judge_cdb(&Cdb::extended_copy(most), &unit()), Ok(Work::Copy(most)));
    assert_eq!(judge_cdb(&Cdb::extended_copy(most + 1), &unit()), Err(length));
    let of = |action| judge_cdb(&Cdb::receive_copy_results(action, 5, 64), &unit());
    assert_eq!(of(ServiceAction::RECEIVE_COPY_STATUS_LID1), Ok(Work::CopyResults));
    assert_eq!(of(ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1), Ok(Work::CopyResults));
    assert_eq!(of(ServiceAction::RECEIVE_COPY_OPERATING_PARAMETERS), Ok(Work::Reply));
    let unknown = Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(of(ServiceAction(0x8401)), Err(unknown));
    assert_eq!(of(ServiceAction(0x8301)), Err(unknown));
}

#[test]
fn the_state_of_a_copy_is_told() {
    let status = ServiceAction::RECEIVE_COPY_STATUS_LID1;
    let details = ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1;
    let ask = |action, state: Option<&CopyState>| {
        copy_results(&Cdb::receive_copy_results(action, 5, 78), state, false)
    };
    let unknown = Sense::invalid_field(2, 7);
    assert_eq!((ask(status, None), ask(details, None)), (Err(unknown), Err(unknown)));
    let mut state = CopyState { segments: 1, bytes: 5 << 32, end: None };
    let told = ask(status, Some(&state)).expect("in progress");
    assert_eq!(told, [0, 0, 0, 8, 0, 0, 1, 1, 1, 0x40, 0, 0]);
    assert_eq!(ask(details, Some(&state)), Err(unknown));
    state = CopyState { bytes: 512, end: Some((ScsiStatus::GOOD, None)), ..state };
    let told = ask(status, Some(&state)).expect("done");
    assert_eq!(told, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 2, 0]);
    assert_eq!(ask(details, Some(&state)), Err(unknown));
    let sense = Sense::copy_aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE, 1);
    state.end = Some((ScsiStatus::CHECK_CONDITION, Some(sense)));
    assert_eq!(ask(status, Some(&state)).expect("failed")[4], 2);
    let told = ask(details, Some(&state)).expect("failed");
    let told = CopyFailureDetails::parse(&told).expect("details");
    assert_eq!(told.status, ScsiStatus::CHECK_CONDITION);
    assert_eq!(Sense::parse(&told.sense), Ok(sense));
    let short = Cdb::receive_copy_results(status, 5, 4);
    assert_eq!(copy_results(&short, Some(&state), false), Ok(vec![0, 0, 0, 8]));
}

#[test]
fn limits_are_the_same_by_the_page_and_by_the_command() {
    let unit = unit();
    let page = ThirdPartyCopy::parse(&page(&unit)).expect("the page");
    let limits = CopyOperatingParameters::parse(&operating_parameters(&unit)).expect("limits");
    assert_eq!((page.places_max, page.segments_max), (limits.places_max, limits.segments_max));
    assert_eq!((page.list_max, page.inline_max), (limits.list_max, limits.inline_max));
    assert_eq!((page.segment_max, page.granularity), (limits.segment_max, 9));
    assert_eq!((page.types, page.identified_max), (limits.types, limits.copies_max.into()));
    for (opcode, actions) in page.commands {
        for action in actions {
            assert!(crate::commands::find(&unit, opcode, action.into()).is_some(), "{opcode}");
        }
    }
}
