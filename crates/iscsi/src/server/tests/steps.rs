//! Commands that ask their volume more than once: what they ask, in which order, and what comes between.

use block::{BlockCount, Failure, VolumeId};
use scsi::LogicalUnit;
use wire::iscsi::TaskAttribute;
use wire::scsi::provisioning::{LbaStatus, LbaStatusList, ProvisioningStatus};
use wire::scsi::{AdditionalSense, Cdb, Lun, OpCode, ScsiStatus, SenseKey};

use super::commands::held;
use super::world::{Order, Said, VOLUME, World, pattern, refused, target};
use crate::fixtures::unit;
use crate::target::{Hosts, Target, Unit};

fn or_write(lba: u64, bytes: u32) -> Order {
    Order::write(0, Cdb::orwrite_16(lba, bytes / 512, false), bytes)
}

fn write_same(lba: u64, blocks: u32) -> Order {
    Order::write(0, Cdb::write_same_16(lba, blocks, false, false), 512)
}

/// WRITE AND VERIFY(10), with BYTCHK or without.
fn write_and_verify(lba: u8, bytes: u32, compares: bool) -> Order {
    let mut cdb = Cdb::new(OpCode::WRITE_AND_VERIFY_10);
    (cdb.0[1], cdb.0[5]) = (u8::from(compares) << 1, lba);
    cdb.0[7..9].copy_from_slice(&((bytes / 512) as u16).to_be_bytes());
    Order::write(0, cdb, bytes)
}

#[test]
fn what_is_written_and_verified_is_on_the_medium() {
    for (compares, second) in [(false, "verify"), (true, "compare")] {
        let mut world = World::connected(Default::default());
        for bytes in [512, 4096, 65_536] {
            world.log.clear();
            let data = pattern(bytes as usize, 1);
            let answer = world.write_all(write_and_verify(3, bytes, compares), &data);
            assert_eq!(answer.status(), ScsiStatus::GOOD);
            assert_eq!(world.log, ["write", second]);
            assert!(world.volumes[0][1536..][..data.len()] == data[..]);
        }
        assert_eq!(world.links[0].connection.pages(), 0);
    }
}

#[test]
fn what_was_not_written_is_not_verified() {
    let mut world = World::connected(Default::default());
    world.fail_next = Some(Failure::MediumWrite);
    let said = world.ask(write_and_verify(3, 512, true), &[1; 512]);
    refused(&said, SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR);
    assert_eq!(world.log, ["write"]);
}

#[test]
fn what_is_not_there_when_it_is_verified_is_told() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write_and_verify(0, 512, true), &[1; 512]);
    world.release_one(0);
    world.run();
    world.volumes[0][7] = 0;
    world.hold_requests = false;
    world.run();
    let code = AdditionalSense::MISCOMPARE_DURING_VERIFY;
    refused(&world.said_one(0), SenseKey::MISCOMPARE, code);
}

#[test]
fn or_write_joins_what_comes_with_what_is_there() {
    let mut world = World::connected(Default::default());
    for bytes in [512, 4096, 40_960] {
        let before = world.volumes[0].clone();
        let data = pattern(bytes as usize, 7);
        world.log.clear();
        assert_eq!(world.write_all(or_write(5, bytes), &data).status(), ScsiStatus::GOOD);
        assert_eq!(world.log, ["read", "compare and write"]);
        let joined: Vec<u8> = data.iter().zip(&before[2560..]).map(|(a, b)| a | b).collect();
        assert!(world.volumes[0][2560..][..joined.len()] == joined[..]);
    }
    assert_eq!(world.links[0].connection.pages(), 0);
}

/// What it writes replaces what it read, or nothing.
#[test]
fn or_write_begins_again_when_somebody_else_wrote_in_between() {
    let mut world = World::connected(Default::default());
    world.volumes[0][..512].fill(0);
    world.hold_requests = true;
    world.command(0, or_write(0, 512), &[0x0f; 512]);
    world.release_one(0);
    world.run();
    world.volumes[0][..512].fill(0x30);
    for _ in 0..3 {
        world.release_one(0);
        world.run();
    }
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["read", "compare and write", "read", "compare and write"]);
    assert_eq!(world.volumes[0][..512], [0x3f; 512]);
}

#[test]
fn or_write_gives_up_when_somebody_always_writes_in_between() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, or_write(0, 512), &[0x0f; 512]);
    let mut rounds = 0u8;
    while !world.shard.below.held.is_empty() {
        world.release_one(0);
        world.run();
        rounds += 1;
        world.volumes[0][..512].fill(rounds);
        assert!(rounds < 100, "it goes round in circles");
    }
    assert_eq!(world.said_one(0).status(), ScsiStatus::BUSY);
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn or_write_that_cannot_read_or_replace_says_why() {
    for (at, log) in [(0, 1), (1, 2)] {
        let mut world = World::connected(Default::default());
        world.hold_requests = true;
        world.command(0, or_write(0, 512), &[0x0f; 512]);
        for step in 0..=at {
            world.fail_next = (step == at).then_some(Failure::MediumRead);
            world.release_one(0);
            world.run();
        }
        let code = AdditionalSense::UNRECOVERED_READ_ERROR;
        refused(&world.said_one(0), SenseKey::MEDIUM_ERROR, code);
        assert_eq!(world.log.len(), log);
        assert_eq!(world.links[0].connection.pages(), 0);
    }
}

#[test]
fn a_reservation_that_comes_between_two_steps_ends_the_command() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, or_write(0, 512), &[0x0f; 512]);
    world.shard.reservations.set(VolumeId(0), held());
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::RESERVATION_CONFLICT);
    assert_eq!(world.log, ["read"]);
}

#[test]
fn one_block_is_written_to_all_of_an_extent() {
    let end = (VOLUME / 512) as u64;
    for (lba, blocks) in [(0, 1), (3, 127), (7, 128), (9, 129), (1, 1000), (end - 300, 300)] {
        let mut world = World::connected(Default::default());
        let before = world.volumes[0].clone();
        let block = pattern(512, 5);
        let answer = world.ask(write_same(lba, blocks), &block);
        assert_eq!(answer.status(), ScsiStatus::GOOD, "{lba} {blocks}");
        let (from, to) = (lba as usize * 512, (lba as usize + blocks as usize) * 512);
        assert!(world.volumes[0][from..to].chunks(512).all(|written| written == block));
        assert!(world.volumes[0][..from] == before[..from]);
        assert!(world.volumes[0][to..] == before[to..]);
        assert!(world.log.iter().all(|name| *name == "write"));
        assert_eq!(world.log.len(), (blocks as usize * 512).div_ceil(65_536));
        assert_eq!(world.links[0].connection.pages(), 0);
    }
}

/// Begins a command of several steps and has its first one come back, with the next one below.
fn begun(order: Order, data: &[u8]) -> World {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, order, data);
    world.release_one(0);
    world.run();
    assert_eq!(world.shard.below.held.len(), 1, "the second request is below");
    world
}

/// What is under LUN 0 changes, and the command is answered.
fn ends_with(mut world: World, first: Option<Unit>) -> Said {
    let mut target = target();
    target.units.remove(0);
    world.shard.shared.set_target(first.into_iter().fold(target, Target::with_unit));
    let requests = world.log.len() + world.shard.below.held.len();
    world.hold_requests = false;
    world.run();
    assert_eq!(world.log.len(), requests, "nothing more went below");
    assert_eq!(world.links[0].connection.pages(), 0);
    world.said_one(0)
}

/// What was begun of a command ends where its host could not begin it any more.
#[test]
fn a_step_is_judged_as_the_command_was() {
    let (protected, gone, beyond) = (
        (SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED),
        (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
        (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE),
    );
    let is = |unit| Some(Unit { lun: 0, hosts: Hosts::Any, unit });
    let shorter = LogicalUnit { blocks: BlockCount(4), ..unit(0, VOLUME) };
    let masked = Unit { lun: 0, hosts: Hosts::List(vec![]), unit: unit(0, VOLUME) };
    let cases = [
        (is(LogicalUnit { read_only: true, ..unit(0, VOLUME) }), protected),
        (is(unit(2, VOLUME)), gone),
        (is(shorter), beyond),
        (Some(masked), gone),
        (None, gone),
    ];
    for (first, (key, code)) in cases {
        // The second of many parts of a WRITE SAME; an ORWRITE that was too late; a verification.
        let world = begun(write_same(0, 1000), &[5; 512]);
        refused(&ends_with(world, first.clone()), key, code);
        let mut late = begun(or_write(0, 4096), &[5; 4096]);
        late.volumes[0][7] ^= 1;
        refused(&ends_with(late, first.clone()), key, code);
        let mut world = World::connected(Default::default());
        world.hold_requests = true;
        world.command(0, write_and_verify(0, 4096, true), &[5; 4096]);
        refused(&ends_with(world, first.clone()), key, code);
        if key != SenseKey::DATA_PROTECT {
            let mut search = begun(lba_status(8, 1000), &[]);
            // Data end within what is sought now: something follows.
            search.volumes[0][VOLUME / 2..].fill(0);
            refused(&ends_with(search, first), key, code);
        }
    }
}

/// Nothing more is asked, so nothing can be refused: what was done is told.
#[test]
fn what_comes_with_the_last_step_does_not_undo_the_command() {
    let mut same = begun(write_same(0, 256), &[5; 512]);
    same.shard.reservations.set(VolumeId(0), held());
    let mut or = begun(or_write(0, 4096), &[5; 4096]);
    or.shard.reservations.set(VolumeId(0), held());
    for world in [same, or] {
        assert_eq!(ends_with(world, None).status(), ScsiStatus::GOOD);
    }
}

fn lba_status(lba: u64, room: u32) -> Order {
    Order::read(0, Cdb::get_lba_status(lba, room), room)
}

/// Of each run: the first block, how many there are, and whether they are mapped.
fn runs(bytes: &[u8]) -> Vec<(u64, u32, bool)> {
    let list = LbaStatusList::parse(bytes).expect("a list").0;
    let told = |run: &LbaStatus| (run.lba, run.blocks, run.status == ProvisioningStatus::MAPPED);
    list.iter().map(told).collect()
}

#[test]
fn which_blocks_are_mapped_is_what_the_volume_says() {
    let mut world = World::connected(Default::default());
    world.volumes[0].fill(0);
    world.volumes[0][8192..16_384].fill(1);
    let end = (VOLUME / 512) as u32;
    let whole = [(0, 16, false), (16, 16, true), (32, end - 32, false)];
    let (data, answer) = world.read_all(lba_status(0, 1000));
    assert_eq!((answer.status(), runs(&data)), (ScsiStatus::GOOD, whole.to_vec()));
    assert!(world.log.iter().all(|name| *name == "seek"));
    // A list for one descriptor, and one for none.
    assert_eq!(runs(&world.read_all(lba_status(20, 24)).0), [(20, 12, true)]);
    assert_eq!(runs(&world.read_all(lba_status(0, 8)).0), []);
    assert_eq!(world.ask(lba_status(0, 0), &[]).status(), ScsiStatus::GOOD);
    let beyond = world.ask(lba_status(end.into(), 24), &[]);
    refused(&beyond, SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE);
    // A unit that is not thin has nothing else.
    let thick = Order { lun: Lun::of(300).0, ..lba_status(0, 24) };
    world.log.clear();
    assert!(runs(&world.read_all(thick).0)[0].2);
    assert!(world.log.is_empty());
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn a_search_is_ordered_as_other_commands_are() {
    let mut world = World::connected(Default::default());
    world.volumes[0].fill(0);
    world.hold_requests = true;
    let write = world.command(0, super::world::write(0, 512), &[1; 512]);
    let ordered = lba_status(0, 24).with_attribute(TaskAttribute::ORDERED);
    let search = world.command(0, ordered, &[]);
    let last = world.command(0, super::world::flush(), &[]);
    assert_eq!(world.shard.below.held.len(), 1, "the write alone is below");
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert_eq!(said.iter().map(Said::tag).collect::<Vec<_>>(), [write, search, last]);
    let Said::Data(_, data) = &said[1] else { panic!("no data") };
    assert_eq!(runs(data), [(0, 8, true)]);
    let beyond = lba_status(1 << 40, 24).with_attribute(TaskAttribute::ORDERED);
    let code = AdditionalSense::LBA_OUT_OF_RANGE;
    refused(&world.ask(beyond, &[]), SenseKey::ILLEGAL_REQUEST, code);
}

#[test]
fn a_search_ends_with_what_comes_between_its_seeks() {
    let begun = || {
        let mut world = World::connected(Default::default());
        world.hold_requests = true;
        let search = world.command(0, lba_status(0, 1000), &[]);
        world.release_one(0);
        world.run();
        assert_eq!(world.shard.below.held.len(), 1, "the second seek is below");
        (world, search)
    };
    let end = |mut world: World| {
        world.hold_requests = false;
        world.run();
        assert_eq!(world.links[0].connection.pages(), 0);
        world.said(0)
    };
    let (mut world, _) = begun();
    world.fail_next = Some(Failure::MediumRead);
    let code = AdditionalSense::UNRECOVERED_READ_ERROR;
    refused(&end(world)[0], SenseKey::MEDIUM_ERROR, code);
    // It reads: what keeps others from writing does not keep it.
    let (mut world, _) = begun();
    world.shard.reservations.set(VolumeId(0), held());
    assert!(matches!(end(world)[0], Said::Data(..)));
    let (mut world, _) = begun();
    world.volumes[0][VOLUME / 2..].fill(0);
    let exclusive = held().to_string().replace("write-exclusive", "exclusive-access");
    world.shard.reservations.set(VolumeId(0), exclusive.parse().expect("a reservation"));
    assert_eq!(end(world)[0].status(), ScsiStatus::RESERVATION_CONFLICT);
    let (mut world, search) = begun();
    let abort = wire::iscsi::TaskFunction::ABORT_TASK;
    let (_, bytes) = world.links[0].host.manage(abort, [0; 8], Some(search), ());
    world.send(0, &bytes);
    assert!(end(world).iter().all(|said| said.tag() != search));
}

#[test]
fn a_block_of_zeros_is_no_write() {
    for asks in [false, true] {
        let mut world = World::connected(Default::default());
        world.volumes[0].fill(7);
        let answer = match asks {
            false => world.ask(write_same(8, 1000), &[0; 512]),
            true => {
                let r2t = world.ask(write_same(8, 1000), &[]).r2t();
                world.granted(&r2t, &[0; 512], 512)
            }
        };
        assert_eq!(answer.status(), ScsiStatus::GOOD);
        assert_eq!(world.log, ["write zeroes"]);
        assert!(world.volumes[0][4096..][..512_000].iter().all(|byte| *byte == 0));
        assert_eq!(world.links[0].connection.pages(), 0);
    }
}

#[test]
fn a_block_that_cannot_be_written_everywhere_says_so() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write_same(0, 1000), &[5; 512]);
    world.release_one(0);
    world.run();
    world.fail_next = Some(Failure::NoSpace);
    world.release_one(0);
    world.run();
    let code = AdditionalSense::SPACE_ALLOCATION_FAILED;
    refused(&world.said_one(0), SenseKey::DATA_PROTECT, code);
    assert_eq!(world.log.len(), 2);
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn the_data_of_write_same_are_one_block() {
    let mut world = World::connected(Default::default());
    for bytes in [0, 511, 1024] {
        let order = Order { expected: bytes, ..write_same(0, 8) };
        let said = world.ask(order, &pattern(bytes as usize, 1));
        let code = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
        refused(&said, SenseKey::ILLEGAL_REQUEST, code);
    }
    assert!(world.log.is_empty());
}
