//! Writes in their capsules, where the volume is memory that takes them at once: what lands, what
//! is a request all the same, and what comes between them.

use block::limits::LANDINGS_TOGETHER;
use block::{ByteCount, Class, Failure, Outcome, VolumeId};
use reservation::Reservation;
use wire::nvme::command::{Fuse, SglDescriptor};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{Digests, FatalErrorStatus};

use super::commands::logs;
use super::memory::{give, hog};
use super::reservations::{OTHER, held, reserve};
use super::transfer::IO;
use super::world::{ALL_DIGESTS, Said, VOLUME, World, capsule, pattern, statuses, termination};
use crate::tcp::server::Reason;

/// A world whose volumes 0 and 1 are memory that takes writes, of zeros.
fn landing(digests: Digests) -> World {
    over_memory(World::connected(digests))
}

fn over_memory(mut world: World) -> World {
    world.shard.below.lands = true;
    world.shard.memory.lends = vec![vec![0; VOLUME]; 2];
    world
}

/// A write of `blocks` blocks from `lba` on, with its data.
fn write(command_id: u16, lba: u64, blocks: u16, digests: Digests) -> Vec<u8> {
    let length = u32::from(blocks) * 512;
    let command = Command::write(1, lba, u32::from(blocks), length).with_command_id(command_id);
    let command = command.with_sgl(SglDescriptor::in_capsule(length));
    capsule(command, &data(lba, blocks), digests)
}

fn data(lba: u64, blocks: u16) -> Vec<u8> {
    pattern(usize::from(blocks) * 512, lba as usize + 1)
}

fn has_landed(world: &World, lba: u64, blocks: u16) -> bool {
    let from = lba as usize * 512;
    world.shard.memory.lends[0][from..from + usize::from(blocks) * 512] == data(lba, blocks)
}

#[test]
fn a_write_in_its_capsule_lands_and_is_no_request() {
    for digests in ALL_DIGESTS {
        for cut in [usize::MAX, 13] {
            let mut world = landing(digests);
            world.links[IO].cut = cut;
            for (lba, blocks) in [(0, 8), (9, 1), (101, 16)] {
                world.send(IO, &write(4, lba, blocks, digests));
                assert_eq!(statuses(&mut world), [(4, Status::SUCCESS)]);
                assert!(has_landed(&world, lba, blocks));
            }
            assert!(world.log.is_empty(), "{:?}", world.log);
            let landed = [4096, 512, 8192].map(|bytes| (VolumeId(0), ByteCount(bytes)));
            assert_eq!(world.shard.below.landed, landed);
        }
    }
}

#[test]
fn what_landed_is_in_the_health_log() {
    let mut world = landing(Digests::NONE);
    for _ in 0..1000 {
        world.send(IO, &write(4, 0, 1, Digests::NONE));
    }
    let (_, health) = logs(&mut world);
    assert_eq!((health.host_writes, health.data_units_written), (1000, 1));
}

#[test]
fn a_write_that_lands_needs_no_memory_of_the_pool() {
    let mut world = landing(Digests::NONE);
    let held = hog(&mut world, Class::Immediate, 4096);
    world.send(IO, &write(4, 8, 8, Digests::NONE));
    assert_eq!(statuses(&mut world), [(4, Status::SUCCESS)]);
    assert!(has_landed(&world, 8, 8));
    give(&mut world, held);
}

/// Shows a write of block 8 to a world in which it must not land, and returns its status.
fn must_not_land(world: &mut World, command: Command) -> Status {
    let command = command.with_sgl(SglDescriptor::in_capsule(512));
    world.send(IO, &capsule(command, &data(8, 1), world.links[IO].digests));
    assert!(!has_landed(world, 8, 1), "{command:?}");
    assert!(world.shard.below.landed.is_empty());
    world.said_one(IO).status()
}

fn block_8() -> Command {
    Command::write(1, 8, 1, 512)
}

#[test]
fn a_durable_write_is_a_request() {
    let mut world = landing(Digests::NONE);
    assert!(must_not_land(&mut world, block_8().with_force_unit_access(true)).is_success());
    assert_eq!(world.log, ["write"]);
}

#[test]
fn a_write_that_finds_no_landing_is_a_request_and_may_fail() {
    let mut world = landing(Digests::NONE);
    world.shard.below.lands = false;
    assert!(must_not_land(&mut world, block_8()).is_success());
    world.fail_next = Some(Failure::WriteProtected);
    let status = crate::status::status_of(Outcome::NotDone(Failure::WriteProtected));
    assert_eq!(must_not_land(&mut world, block_8()), status);
    assert_eq!(world.log, ["write", "write"]);
}

#[test]
fn what_is_compared_is_a_request() {
    let mut world = landing(Digests::NONE);
    let compare = Command::compare(1, 8, 1, 512);
    assert_eq!(must_not_land(&mut world, compare), Status::COMPARE_FAILURE);
    assert_eq!(world.log, ["compare"]);
}

#[test]
fn a_write_of_a_read_only_namespace_does_not_land() {
    let mut world = landing(Digests::NONE);
    let status = must_not_land(&mut world, Command::write(2, 8, 1, 512));
    assert!(!status.is_success());
    assert!(world.log.is_empty());
}

#[test]
fn a_write_that_a_reservation_refuses_does_not_land() {
    let mut world = landing(Digests::NONE);
    reserve(&mut world, held("write-exclusive", OTHER, &[OTHER]));
    assert_eq!(must_not_land(&mut world, block_8()), Status::RESERVATION_CONFLICT.with_dnr());
    reserve(&mut world, Reservation::default());
    world.send(IO, &write(4, 8, 1, Digests::NONE));
    assert!(has_landed(&world, 8, 1));
}

#[test]
fn what_comes_with_a_wrong_digest_does_not_land() {
    let digests = Digests { header: false, data: true };
    let mut world = landing(digests);
    let mut bytes = write(4, 8, 1, digests);
    *bytes.last_mut().expect("a digest") ^= 1;
    world.send(IO, &bytes);
    assert_eq!(statuses(&mut world), [(4, Status::TRANSIENT_TRANSPORT_ERROR)]);
    assert!(!has_landed(&world, 8, 1) && world.log.is_empty());
}

#[test]
fn the_second_of_a_pair_does_not_land() {
    let mut world = landing(Digests::NONE);
    let compare = Command::compare(1, 8, 1, 512).with_fuse(Fuse::FIRST).with_command_id(1);
    let second = block_8().with_fuse(Fuse::SECOND).with_command_id(2);
    let mut bytes = Vec::new();
    for command in [compare, second] {
        let command = command.with_sgl(SglDescriptor::in_capsule(512));
        bytes.extend(capsule(command, &data(8, 1), Digests::NONE));
    }
    world.send(IO, &bytes);
    let failed = [(1, Status::COMPARE_FAILURE), (2, Status::FUSED_FAILED)];
    assert_eq!(statuses(&mut world), failed);
    assert!(!has_landed(&world, 8, 1));
    assert_eq!(world.log, ["compare and write"]);
}

#[test]
fn many_land_together_among_reads_and_each_is_answered_once() {
    let mut world = landing(Digests::NONE);
    let count = 2 * LANDINGS_TOGETHER as u16 + 7;
    let mut bytes = Vec::new();
    for number in 0..count {
        bytes.extend(write(number, u64::from(number), 1, Digests::NONE));
    }
    let read = Command::read(2, 0, 1, 512).with_command_id(count);
    bytes.splice(0..0, capsule(read, &[], Digests::NONE));
    world.send(IO, &bytes);
    let said = world.said(IO).into_iter().filter(|said| !matches!(said, Said::Data(..)));
    let mut answered: Vec<u16> = said.map(|said| said.response().command_id).collect();
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..=count));
    assert!((0..u64::from(count)).all(|lba| has_landed(&world, lba, 1)));
    assert!(world.log.is_empty());
}

#[test]
fn writes_that_landed_count_while_nothing_has_left() {
    let mut world = over_memory(World::connected_with(Digests::NONE, 7, false));
    world.send(IO, &write(4, 8, 1, Digests::NONE).repeat(9));
    let mut said = world.said(IO);
    let fes = said.pop().expect("the last words").term().fes;
    assert_eq!((said.len(), fes), (8, FatalErrorStatus::SEQUENCE_ERROR));
    assert!(has_landed(&world, 8, 1));
}

/// A flush behind them is asked for when they have landed: its own answer comes after theirs.
#[test]
fn what_is_no_plain_read_or_write_finds_them_landed() {
    let mut world = landing(Digests::NONE);
    let mut bytes = write(4, 8, 1, Digests::NONE);
    bytes.extend(capsule(Command::write(2, 0, 1, 512).with_command_id(5), &[], Digests::NONE));
    bytes.extend(capsule(Command::keep_alive().with_command_id(6), &[], Digests::NONE));
    world.send(IO, &bytes);
    // The refusal of the plain write overtakes, that of the other does not.
    let order: Vec<u16> = statuses(&mut world).iter().map(|(command_id, _)| *command_id).collect();
    assert_eq!(order, [5, 4, 6]);
}

/// As a request would be carried out whose host has left.
#[test]
fn a_host_that_terminates_has_written_what_came_before() {
    let mut world = landing(Digests::NONE);
    let mut bytes = write(4, 8, 1, Digests::NONE);
    let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
    bytes.extend(termination(fes, &[]));
    world.send(IO, &bytes);
    assert!(world.said(IO).is_empty());
    assert!(has_landed(&world, 8, 1));
    assert_eq!(world.links[IO].connection.reason(), Some(&Reason::Terminated(fes)));
}
