//! EXTENDED COPY over a session: what it asks the volumes, what comes between two parts, that its
//! memory is given back on every way out; and what RECEIVE COPY RESULTS tells.

use block::limits::{COPY_PART, POOL_PAGES_MIN};
use block::{BlockCount, BlockSize, Class, Failure, Pool};
use reservation::{Change, PathGroup, PathState};
use scsi::LogicalUnit;
use scsi::limits::COPIES_KEPT;
use wire::iscsi::{TaskFunction, TaskResponse};
use wire::scsi::copy::{CopyFailureDetails, CopyList, CopyPlace, CopySegment, CopyStatus};
use wire::scsi::vpd::{Association, CodeSet, DesignatorKind};
use wire::scsi::{AdditionalSense, Cdb, Lun, ScsiStatus, Sense, SenseKey, ServiceAction};

use super::memory::{give, hog};
use super::world::{Order, Said, VOLUME, World, pattern, refused, target};
use crate::fixtures::unit;
use crate::target::{Hosts, Unit};

const STATUS: ServiceAction = ServiceAction::RECEIVE_COPY_STATUS_LID1;
const DETAILS: ServiceAction = ServiceAction::RECEIVE_COPY_FAILURE_DETAILS_LID1;
const DEVICE_FAILURE: AdditionalSense = AdditionalSense::THIRD_PARTY_DEVICE_FAILURE;
const NOT_REACHABLE: AdditionalSense = AdditionalSense::COPY_TARGET_NOT_REACHABLE;
/// Blocks of a part.
const PART: u64 = COPY_PART as u64 / 512;

/// The LUN on a volume.
fn place(volume: u32) -> CopyPlace {
    CopyPlace::Identification {
        device_type: 0,
        null: false,
        relative_initiator_port: 0,
        code_set: CodeSet::BINARY,
        association: Association::LOGICAL_UNIT,
        kind: DesignatorKind::NAA,
        designator: unit(volume, VOLUME).naa().to_vec(),
        block_length: 512,
        pad: false,
    }
}

/// A segment between the volumes of these numbers.
fn segment(ends: [u16; 2], source_lba: u64, destination_lba: u64, blocks: u64) -> CopySegment {
    CopySegment::Blocks {
        destination_counts: false,
        concatenate: false,
        source: ends[0],
        destination: ends[1],
        blocks: blocks as u16,
        source_lba,
        destination_lba,
    }
}

/// A list whose places are the volumes, under this identifier.
fn list(id: u8, segments: &[CopySegment]) -> Vec<u8> {
    let places = (0..3).map(place).collect();
    CopyList { id, places, segments: segments.to_vec(), ..CopyList::default() }.emit()
}

fn order(list: &[u8]) -> Order {
    Order::write(0, Cdb::extended_copy(list.len() as u32), list.len() as u32)
}

fn start(world: &mut World, id: u8, segments: &[CopySegment]) -> u32 {
    let list = list(id, segments);
    world.command(0, order(&list), &list)
}

fn copied(world: &mut World, id: u8, segments: &[CopySegment]) -> Said {
    start(world, id, segments);
    world.said_one(0)
}

#[track_caller]
fn aborted(said: &Said, code: AdditionalSense, segment: u16) {
    refused(said, SenseKey::COPY_ABORTED, code);
    assert_eq!(said.sense().segment, Some(segment));
}

fn results(world: &mut World, action: ServiceAction, id: u8) -> Result<Vec<u8>, Sense> {
    let cdb = Cdb::receive_copy_results(action, id, 256);
    let (data, answer) = world.read_all(Order::read(0, cdb, 256));
    match answer.status() {
        ScsiStatus::GOOD => Ok(data),
        _ => Err(answer.sense()),
    }
}

/// Segments and bytes that are copied of a list, and how it stands.
fn state(world: &mut World, id: u8) -> (u16, u32, u8) {
    let data = results(world, STATUS, id).expect("its state");
    let status = CopyStatus::parse(&data).expect("its state");
    (status.segments, status.transferred, status.status.0)
}

#[test]
fn what_is_there_is_copied_part_by_part() {
    let mut world = World::connected(Default::default());
    let bytes = 2 * COPY_PART as usize;
    let segments = [segment([0, 2], 0, 0, 2 * PART), segment([2, 0], 1, 2 * PART, 1)];
    assert_eq!(copied(&mut world, 1, &segments).status(), ScsiStatus::GOOD);
    assert!(world.volumes[2][..bytes] == world.volumes[0][..bytes]);
    assert_eq!(world.volumes[0][bytes..][..512], world.volumes[0][512..1024]);
    assert_eq!(world.log, ["read", "write", "read", "write", "read", "write"]);
    assert_eq!(state(&mut world, 1), (2, bytes as u32 + 512, 1));
    assert_eq!(world.links[0].connection.pages(), 0);
    // A list that is asked for is one that came.
    world.links[0].host.agreed.immediate_data = false;
    let list = list(2, &segments);
    world.volumes[2].fill(0);
    assert_eq!(world.write_all(order(&list), &list).status(), ScsiStatus::GOOD);
    assert!(world.volumes[2][..bytes] == world.volumes[0][..bytes]);
}

#[test]
fn a_copy_onto_itself_ends_with_what_was_there() {
    let mut world = World::connected(Default::default());
    let before = world.volumes[0].clone();
    let said = copied(&mut world, 1, &[segment([0, 0], 0, 3, 2 * PART + 1)]);
    assert_eq!(said.status(), ScsiStatus::GOOD);
    let bytes = 2 * COPY_PART as usize + 512;
    assert!(world.volumes[0][1536..][..bytes] == before[..bytes]);
}

#[test]
fn an_empty_list_copies_nothing() {
    let mut world = World::connected(Default::default());
    assert_eq!(world.ask(Order::new(0, Cdb::extended_copy(0)), &[]).status(), ScsiStatus::GOOD);
    assert_eq!(copied(&mut world, 1, &[]).status(), ScsiStatus::GOOD);
    assert_eq!(copied(&mut world, 1, &[segment([0, 2], 0, 0, 0)]).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, [""; 0]);
}

#[test]
fn what_is_wrong_with_a_list_copies_nothing() {
    let mut world = World::connected(Default::default());
    let mut wrong = list(1, &[segment([0, 2], 0, 0, 8)]);
    wrong[16] = 0xe0;
    let said = world.ask(order(&wrong), &wrong);
    let code = AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR;
    refused(&said, SenseKey::ILLEGAL_REQUEST, code);
    let short = &list(1, &[segment([0, 2], 0, 0, 8)])[..100];
    let said = world.ask(order(short), short);
    refused(&said, SenseKey::ILLEGAL_REQUEST, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(results(&mut world, STATUS, 1), Err(Sense::invalid_field(2, 7)));
    assert_eq!((world.log.len(), world.links[0].connection.pages()), (0, 0));
}

#[test]
fn segments_in_front_of_a_flawed_one_are_copied() {
    let mut world = World::connected(Default::default());
    let segments = [segment([0, 2], 0, 0, 8), segment([0, 1], 0, 0, 8), segment([0, 2], 8, 8, 8)];
    aborted(&copied(&mut world, 7, &segments), AdditionalSense::WRITE_PROTECTED, 1);
    assert_eq!(world.volumes[2][..4096], world.volumes[0][..4096]);
    assert_eq!(world.volumes[2][4096..8192], [0; 4096]);
    assert_eq!(state(&mut world, 7), (1, 4096, 2));
    let details = results(&mut world, DETAILS, 7).expect("why");
    let details = CopyFailureDetails::parse(&details).expect("why");
    let sense = Sense::copy_aborted(AdditionalSense::WRITE_PROTECTED, 1);
    assert_eq!(Sense::parse(&details.sense), Ok(sense));
}

/// Its ends: units that are not in the list, that are said to be no disks, or whose blocks are larger
/// than what is copied.
#[test]
fn a_segment_without_two_disks_that_it_fits_ends_a_copy() {
    let large = |lun, volume| {
        let blocks = BlockCount(VOLUME as u64 / 4096);
        let unit = LogicalUnit { block_size: BlockSize::B4096, blocks, ..unit(volume, VOLUME) };
        Unit { lun, hosts: Hosts::Any, unit }
    };
    let mut world = World::exporting([target().with_unit(large(300, 2))]);
    world.join(&[]);
    let mut places: Vec<CopyPlace> = [0, 1, 2, 0].map(place).into();
    let block_lengths = [512, 512, 0, 512];
    for (at, (place, length)) in places.iter_mut().zip(block_lengths).enumerate() {
        let CopyPlace::Identification { device_type, block_length, .. } = place else { continue };
        // The last one is said to be a tape.
        (*device_type, *block_length) = (u8::from(at == 3), length);
    }
    for (ends, code) in [
        ([0, 4], AdditionalSense::UNREACHABLE_COPY_TARGET),
        ([0, 3], AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE),
        ([0, 2], AdditionalSense::UNEXPECTED_INEXACT_SEGMENT),
    ] {
        let segments = vec![segment([0, 0], 0, 64, 8), segment(ends, 0, 0, 7)];
        let list = CopyList { id: 1, places: places.clone(), segments, ..CopyList::default() };
        let list = list.emit();
        world.command(0, order(&list), &list);
        aborted(&world.said_one(0), code, 1);
        assert_eq!(state(&mut world, 1), (1, 4096, 2), "{code:?}");
    }
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn a_part_that_fails_is_the_last() {
    for (failing, log) in [(0, vec!["read"]), (1, vec!["read", "write"])] {
        let mut world = World::connected(Default::default());
        world.hold_requests = true;
        start(&mut world, 1, &[segment([0, 2], 0, 0, 2 * PART)]);
        (0..failing).for_each(|_| world.release_one(0));
        world.fail_next = Some(Failure::MediumRead);
        world.hold_requests = false;
        world.run();
        aborted(&world.said_one(0), DEVICE_FAILURE, 0);
        assert_eq!(world.log, log);
        assert_eq!(world.links[0].connection.pages(), 0);
    }
}

/// Lets something happen between two requests of a copy of two parts from LUN 300 to LUN 0.
fn between(steps: usize, event: impl FnOnce(&mut World)) -> (World, Vec<Said>) {
    let mut world = World::connected(Default::default());
    world.volumes[2] = pattern(VOLUME, 3);
    world.hold_requests = true;
    start(&mut world, 1, &[segment([2, 0], 0, 0, 2 * PART)]);
    for _ in 0..steps {
        world.release_one(0);
    }
    event(&mut world);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    (world, said)
}

/// Requests of a copy that ends after so many steps: the one that is below is awaited.
const STEPS: [&str; 4] = ["read", "write", "read", "write"];

#[test]
fn a_reservation_of_another_host_ends_a_copy() {
    for steps in 0..4 {
        let (world, said) = between(steps, |world| {
            let list = vec![[2, 0, 0, 0, 0, 1].into()];
            world.change(Change::ForceList { list });
        });
        // What is read of the source may be read still; nothing more is written.
        let reads = [1, 3, 3, 4][steps];
        assert_eq!(world.log, STEPS[..reads], "after {steps}");
        match steps {
            3 => assert_eq!(said[0].status(), ScsiStatus::GOOD),
            _ => aborted(&said[0], DEVICE_FAILURE, 0),
        }
    }
}

#[test]
fn a_path_that_is_closed_ends_a_copy() {
    for steps in 0..3 {
        let (world, said) =
            between(steps, |world| world.set_path(PathGroup::DEFAULT, PathState::Standby));
        assert_eq!(world.log, STEPS[..=steps]);
        refused(&said[0], SenseKey::NOT_READY, AdditionalSense::ALUA_STANDBY);
    }
}

#[test]
fn a_lun_that_is_gone_or_another_volumes_ends_a_copy() {
    let without = |lun| {
        let mut target = target();
        target.units.retain(|unit| unit.lun != lun);
        target
    };
    let other = |lun: u16, volume| {
        target().with_unit(Unit { lun, hosts: Hosts::Any, unit: unit(volume, VOLUME) })
    };
    for target in [without(0), without(300), other(0, 1), other(300, 1)] {
        let (world, said) = between(1, |world| {
            world.shard.shared.set_target(target.clone());
            world.shard.shared.announce();
            world.run();
        });
        aborted(&said[0], NOT_REACHABLE, 0);
        assert!(world.log == STEPS[..2] || world.log == STEPS[..3], "{:?}", world.log);
        assert!(
            world.volumes[0][COPY_PART as usize..][..512]
                != pattern(VOLUME, 3)[COPY_PART as usize..][..512]
        );
    }
}

#[test]
fn a_lun_that_takes_no_writes_any_more_ends_a_copy() {
    let (world, said) = between(1, |world| {
        let protected = LogicalUnit { read_only: true, ..unit(0, VOLUME) };
        let target = target().with_unit(Unit { lun: 0, hosts: Hosts::Any, unit: protected });
        world.shard.shared.set_target(target);
        world.shard.shared.announce();
        world.run();
    });
    aborted(&said[0], AdditionalSense::WRITE_PROTECTED, 0);
    assert_eq!(world.log, STEPS[..3]);
}

#[test]
fn a_copy_that_is_aborted_writes_nothing_more() {
    for function in [TaskFunction::ABORT_TASK_SET, TaskFunction::LOGICAL_UNIT_RESET] {
        for steps in 0..4 {
            let (mut world, said) = between(steps, |world| {
                let (_, bytes) = world.links[0].host.manage(function, Lun::of(0).0, None, ());
                world.send(0, &bytes);
            });
            assert_eq!(said[0].management(), TaskResponse::COMPLETE);
            assert_eq!((world.log.len(), said.len()), (steps + 1, 1), "{function:?} after {steps}");
            assert_eq!(results(&mut world, STATUS, 1), Err(Sense::invalid_field(2, 7)));
        }
    }
}

/// The task is LUN 0's, but what is read is LUN 300's.
#[test]
fn a_reset_ends_the_copies_that_read_or_write_the_unit_and_an_abort_of_its_tasks_does_not() {
    for (function, requests) in
        [(TaskFunction::LOGICAL_UNIT_RESET, 2), (TaskFunction::ABORT_TASK_SET, 4)]
    {
        let (world, said) = between(1, |world| {
            let (_, bytes) = world.links[0].host.manage(function, Lun::of(300).0, None, ());
            world.send(0, &bytes);
        });
        assert_eq!((world.log.len(), said[0].management()), (requests, TaskResponse::COMPLETE));
        assert_eq!(said.len(), if requests == 4 { 2 } else { 1 });
    }
}

#[test]
fn a_session_that_ends_leaves_nothing_of_a_copy() {
    for steps in 0..4 {
        let (world, _) = between(steps, |world| {
            let loss = contract::Loss::Error(104);
            world.with(0, |connection, ctx| connection.handle_lost(loss, ctx));
            world.run();
            world.closed(0);
        });
        assert_eq!(world.log.len(), steps + 1);
    }
}

#[test]
fn a_copy_waits_for_its_memory() {
    let mut world = World::connected(Default::default());
    let held = hog(&mut world, Class::Immediate, 4096);
    start(&mut world, 1, &[segment([0, 2], 0, 0, 2 * PART)]);
    assert!(world.links[0].pipe.is_paused() && world.wake(0));
    give(&mut world, held);
    assert!(!world.wake(0));
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    let held = hog(&mut world, Class::Transfer, 4096);
    let list = list(2, &[segment([0, 2], 0, 0, 2 * PART)]);
    world.command(0, order(&list), &[]);
    assert!(world.wake(0) && world.said(0).is_empty());
    give(&mut world, held);
    assert!(!world.wake(0));
    let Said::R2t(r2t) = world.said_one(0) else { panic!("its list is asked for") };
    assert_eq!(world.granted(&r2t, &list, u32::MAX).status(), ScsiStatus::GOOD);
}

#[test]
fn the_state_of_a_copy_is_told_while_it_goes_on() {
    let mut world = World::connected(Default::default());
    world.shard.pool = Pool::new(4 * POOL_PAGES_MIN);
    world.hold_requests = true;
    let segments = [segment([0, 2], 0, 0, 8), segment([0, 2], 0, 0, 2 * PART)];
    let tag = start(&mut world, 1, &segments);
    for expected in [(0, 0), (0, 0), (1, 4096), (1, 4096), (1, 4096 + COPY_PART)] {
        assert_eq!(state(&mut world, 1), (expected.0, expected.1, 0));
        world.release_one(0);
    }
    assert_eq!(results(&mut world, DETAILS, 1), Err(Sense::invalid_field(2, 7)));
    // Another copy may not have its identifier; one without may run beside it.
    let said = copied(&mut world, 1, &segments);
    refused(&said, SenseKey::ILLEGAL_REQUEST, AdditionalSense::OPERATION_IN_PROGRESS);
    let mut nameless = list(0, &[segment([0, 2], 8, 8, 8)]);
    nameless[1] = 3 << 3;
    world.command(0, order(&nameless), &nameless);
    world.hold_requests = false;
    world.run();
    let mut said = world.said(0);
    said.sort_by_key(|said| said.tag() != tag);
    assert_eq!(said.iter().map(Said::status).collect::<Vec<_>>(), [ScsiStatus::GOOD; 2]);
    assert_eq!(state(&mut world, 1), (2, 4096 + 2 * COPY_PART, 1));
    // Of another unit it is not there.
    let cdb = Cdb::receive_copy_results(STATUS, 1, 12);
    let said = world.ask(Order::read(300, cdb, 12), &[]);
    assert_eq!(said.sense(), Sense::invalid_field(2, 7));
}

#[test]
fn the_newest_copies_are_remembered() {
    let mut world = World::connected(Default::default());
    for id in 0..=COPIES_KEPT as u8 {
        copied(&mut world, id, &[segment([0, 2], 0, 0, 8)]);
    }
    assert!(results(&mut world, STATUS, 0).is_err());
    assert_eq!(state(&mut world, 1), (1, 4096, 1));
    // One of the same identifier takes the place of the older one.
    aborted(
        &copied(&mut world, 1, &[segment([1, 1], 0, 0, 8)]),
        AdditionalSense::WRITE_PROTECTED,
        0,
    );
    assert_eq!(state(&mut world, 1), (0, 0, 2));
    assert_eq!(state(&mut world, 2), (1, 4096, 1));
}

#[test]
fn a_unit_that_its_host_may_not_see_is_not_copied_from() {
    let stranger = crate::fixtures::name("iqn.2026-11.net.other:host");
    let hidden = Unit { lun: 300, hosts: Hosts::List(vec![stranger]), unit: unit(2, VOLUME) };
    let mut world = World::exporting([target().with_unit(hidden)]);
    world.join(&[("InitialR2T", "No")]);
    aborted(&copied(&mut world, 1, &[segment([2, 0], 0, 0, 8)]), NOT_REACHABLE, 0);
    assert_eq!(world.log, [""; 0]);
}

#[test]
fn an_ordered_copy_waits_for_its_turn() {
    let mut world = World::connected(Default::default());
    world.shard.pool = Pool::new(4 * POOL_PAGES_MIN);
    world.hold_requests = true;
    world.command(0, super::world::read(0, 512), &[]);
    let list = list(1, &[segment([0, 2], 0, 0, 8)]);
    let ordered = order(&list).with_attribute(wire::iscsi::TaskAttribute::ORDERED);
    world.command(0, ordered, &list);
    let tag = world.command(0, super::world::read(0, 512), &[]);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.log, ["read", "read", "write", "read"]);
    assert_eq!(world.said(0).last().map(Said::tag), Some(tag));
}
