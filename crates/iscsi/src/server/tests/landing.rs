//! Reads that are lent and writes that land, where the volume is memory: what does, what is a request all
//! the same, and what comes between them.

use block::limits::{LANDINGS_TOGETHER, LOANS_TOGETHER};
use block::{ByteCount, Class, VolumeId};
use contract::Traffic;
use wire::iscsi::{Digests, LogoutReason, TaskAttribute};
use wire::scsi::{AdditionalSense, ByteCheck, Cdb, Lun, ScsiStatus, SenseKey};

use super::commands::held;
use super::memory::{give, hog};
use super::world::{ALL_DIGESTS, Order, Said, VOLUME, World, flush, pattern, read, refused, write};

/// A world whose volumes 0 and 1 are memory that takes writes, of zeros.
fn landing(digests: Digests) -> World {
    over_memory(World::connected(digests))
}

fn over_memory(mut world: World) -> World {
    world.shard.below.lands = true;
    world.shard.memory.lends = vec![vec![0; VOLUME]; 2];
    world
}

fn data(lba: u32, bytes: u32) -> Vec<u8> {
    pattern(bytes as usize, lba as usize + 1)
}

/// The bytes of a write with its data.
fn words(world: &mut World, lba: u32, bytes: u32) -> Vec<u8> {
    world.links[0].host.command(write(lba, bytes), &data(lba, bytes), ()).1
}

fn has_landed(world: &World, lba: u32, bytes: u32) -> bool {
    let from = lba as usize * 512;
    world.shard.memory.lends[0][from..from + bytes as usize] == data(lba, bytes)
}

#[test]
fn a_write_with_its_data_lands_and_is_no_request() {
    for digests in ALL_DIGESTS {
        for cut in [usize::MAX, 13] {
            let mut world = landing(digests);
            world.links[0].cut = cut;
            for (lba, bytes) in [(0, 4096), (9, 512), (101, 8192)] {
                let said = world.ask(write(lba, bytes), &data(lba, bytes));
                assert_eq!(said.status(), ScsiStatus::GOOD);
                assert!(has_landed(&world, lba, bytes));
            }
            assert!(world.log.is_empty(), "{:?}", world.log);
            let landed = [4096, 512, 8192].map(|bytes| (VolumeId(0), ByteCount(bytes)));
            assert_eq!(world.shard.below.landed, landed);
        }
    }
}

/// Of more data than the command writes, only those.
#[test]
fn a_write_of_which_its_host_has_more_or_less_lands_as_far_as_it_goes() {
    let mut world = landing(Digests::NONE);
    let said = world.ask(Order { expected: 1024, ..write(0, 512) }, &[3; 1024]);
    assert_eq!(said.status(), ScsiStatus::GOOD);
    let said = world.ask(Order { expected: 512, ..write(8, 1024) }, &[4; 512]);
    assert_eq!(said.status(), ScsiStatus::GOOD);
    let memory = &world.shard.memory.lends[0];
    assert!(
        memory[..512].iter().all(|byte| *byte == 3)
            && memory[512..4096].iter().all(|byte| *byte == 0)
    );
    assert!(memory[4096..4608].iter().all(|byte| *byte == 4));
    assert!(memory[4608..5120].iter().all(|byte| *byte == 0));
}

#[test]
fn a_write_that_lands_needs_no_memory_of_the_pool() {
    let mut world = landing(Digests::NONE);
    let held = hog(&mut world, Class::Immediate, 4096);
    assert_eq!(world.ask(write(8, 4096), &data(8, 4096)).status(), ScsiStatus::GOOD);
    assert!(has_landed(&world, 8, 4096));
    give(&mut world, held);
}

#[test]
fn a_read_behind_a_write_in_one_segment_sees_it() {
    for digests in ALL_DIGESTS {
        let mut world = landing(digests);
        let mut bytes = Vec::new();
        for lba in 0..5 {
            bytes.extend(words(&mut world, lba, 512));
            bytes.extend(world.links[0].host.command(read(lba, 512), &[], ()).1);
        }
        world.send(0, &bytes);
        let said = world.said(0);
        let read: Vec<&Vec<u8>> = said
            .iter()
            .filter_map(|said| match said {
                Said::Data(_, data) => Some(data),
                _ => None,
            })
            .collect();
        assert_eq!(read.len(), 5);
        assert!((0..5).all(|lba| *read[lba as usize] == data(lba, 512)));
        assert!(world.log.is_empty());
    }
}

/// Its session is drained in the turn in which it wrote.
#[test]
fn what_is_written_right_before_a_logout_is_counted() {
    let mut world = landing(Digests::NONE);
    let mut bytes = words(&mut world, 0, 4096);
    bytes.extend(world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ()).1);
    world.send(0, &bytes);
    assert_eq!(world.shard.shared.session_count(), 0);
    let told = world.shard.shared.traffic_report();
    let written: Vec<_> = told.iter().map(|one| &one.traffic).collect();
    assert_eq!(written, [&Traffic { writes: 1, write_bytes: 4096, ..Traffic::default() }]);
}

#[test]
fn a_read_before_a_write_in_one_segment_does_not_see_it() {
    let mut world = landing(Digests::NONE);
    world.shard.memory.lends[0].fill(9);
    let host = &mut world.links[0].host;
    let mut bytes = host.command(read(0, 512), &[], ()).1;
    bytes.extend(host.command(write(0, 512), &[1; 512], ()).1);
    bytes.extend(host.command(read(0, 512), &[], ()).1);
    world.send(0, &bytes);
    let read: Vec<u8> = world
        .said(0)
        .iter()
        .filter_map(|said| match said {
            Said::Data(_, data) => Some(data[0]),
            _ => None,
        })
        .collect();
    // The first may be either: it is under way when the write is asked. The last is the write's.
    assert_eq!(read[1], 1);
    assert!(read[0] == 9 || read[0] == 1);
}

/// Shows a write of block 8 to a world in which it must not land, and returns its answer.
fn must_not_land(world: &mut World, order: Order) -> Said {
    let said = world.ask(order, &data(8, 512));
    assert!(!has_landed(world, 8, 512), "{order:?}");
    assert!(world.shard.below.landed.is_empty());
    said
}

#[test]
fn what_is_more_than_a_volatile_write_is_a_request() {
    let fua = Order::write(0, Cdb::write_10(8, 1, true), 512);
    let compare = Order::write(0, Cdb::verify_10(8, 1, ByteCheck::COMPARE), 512);
    for (order, log) in [(fua, "write"), (compare, "compare")] {
        let mut world = landing(Digests::NONE);
        must_not_land(&mut world, order);
        assert_eq!(world.log, [log]);
    }
    let mut world = landing(Digests::NONE);
    world.shard.below.lands = false;
    must_not_land(&mut world, write(8, 512));
    assert_eq!(world.log, ["write"]);
}

#[test]
fn what_is_refused_does_not_land() {
    let mut world = landing(Digests::NONE);
    let protected = Order { lun: Lun::of(1).0, ..write(8, 512) };
    let said = must_not_land(&mut world, protected);
    refused(&said, SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED);
    world.shard.reservations.set(VolumeId(0), held());
    let said = must_not_land(&mut world, write(8, 512));
    assert_eq!(said.status(), ScsiStatus::RESERVATION_CONFLICT);
    let ordered = write(8, 512).with_attribute(TaskAttribute::ORDERED);
    must_not_land(&mut world, ordered);
    assert!(world.log.is_empty());
}

#[test]
fn what_comes_with_a_wrong_digest_does_not_land() {
    let mut world = landing(Digests { header: false, data: true });
    let mut bytes = words(&mut world, 8, 512);
    *bytes.last_mut().expect("a digest") ^= 1;
    world.send(0, &bytes);
    let code = AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR;
    refused(&world.said_one(0), SenseKey::ABORTED_COMMAND, code);
    assert!(!has_landed(&world, 8, 512) && world.log.is_empty());
}

#[test]
fn many_land_and_are_lent_together_and_each_is_answered_once() {
    let mut world = landing(Digests::NONE);
    let mut bytes = Vec::new();
    for number in 0..(LANDINGS_TOGETHER + LOANS_TOGETHER) as u32 + 7 {
        bytes.extend(words(&mut world, number, 512));
        let behind = world.links[0].host.command(read(number, 512), &[], ()).1;
        bytes.extend(behind);
    }
    world.send(0, &bytes);
    assert_eq!(world.said(0).len(), 2 * (LANDINGS_TOGETHER + LOANS_TOGETHER + 7));
    assert!(world.links[0].host.asked.is_empty() && world.log.is_empty());
}

/// Its own answer comes after theirs.
#[test]
fn what_is_no_plain_read_or_write_finds_them_landed() {
    let host_says: [fn(&mut World) -> Vec<u8>; 4] = [
        |world| world.links[0].host.nop(b"x", ()).1,
        |world| world.links[0].host.text(b"a=b\0", None, ()).1,
        |world| world.links[0].host.command(Order::new(0, Cdb::test_unit_ready()), &[], ()).1,
        |world| world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ()).1,
    ];
    for say in host_says {
        let mut world = landing(Digests::NONE);
        let mut bytes = words(&mut world, 8, 512);
        bytes.extend(say(&mut world));
        world.send(0, &bytes);
        let said = world.said(0);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0].status(), ScsiStatus::GOOD);
        assert!(has_landed(&world, 8, 512));
    }
}

#[test]
fn a_flush_behind_them_is_asked_for_when_they_have_landed() {
    let mut world = landing(Digests::NONE);
    world.hold_requests = true;
    let mut bytes = words(&mut world, 8, 512);
    bytes.extend(world.links[0].host.command(flush(), &[], ()).1);
    world.send(0, &bytes);
    assert!(has_landed(&world, 8, 512));
    assert_eq!(world.said(0).len(), 1);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
}
