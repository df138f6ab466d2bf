//! Commands as a session carries them out: which request each is, what it answers, and what a host is
//! told when one fails. What a CDB means is `scsi`'s to test.

use block::{Failure, VolumeId};
use reservation::Reservation;
use wire::iscsi::{ScsiCommandFlags, TaskAttribute};
use wire::scsi::provisioning::{UnmapList, UnmapRange};
use wire::scsi::{AdditionalSense, ByteCheck, Cdb, Lun, LunList, ScsiStatus, SenseKey};

use super::closing::unmap_list;
use super::world::{Order, World, flush, pattern, read, refused, write};

const ILLEGAL: SenseKey = SenseKey::ILLEGAL_REQUEST;

#[test]
fn each_command_is_the_request_that_it_asks_for() {
    let fua = Order::write(0, Cdb::write_16(9, 1, true), 512);
    let verify = Cdb::verify_10(0, 8, ByteCheck::MEDIUM);
    let compare = Order::write(0, Cdb::verify_16(9, 1, ByteCheck::COMPARE), 512);
    let zeros = Order::new(0, Cdb::write_same_16(0, 8, false, true));
    for (order, with_data, log) in [
        (read(0, 512), false, "read"),
        (write(9, 512), true, "write"),
        (fua, true, "write"),
        (flush(), false, "flush"),
        (Order::new(0, Cdb::synchronize_cache_16()), false, "flush"),
        (Order::new(0, verify), false, "verify"),
        (compare, true, "compare"),
        (zeros, false, "write zeroes"),
    ] {
        let mut world = World::connected(Default::default());
        let data = if with_data { pattern(512, 1) } else { Vec::new() };
        if log == "compare" {
            world.volumes[0][9 * 512..10 * 512].copy_from_slice(&data);
        }
        let said = world.ask(order, &data);
        assert_eq!(said.status(), ScsiStatus::GOOD, "{order:?}: {said:?}");
        assert_eq!(world.log, [log], "{order:?}");
    }
}

#[test]
fn commands_that_need_no_volume_are_answered_without_one() {
    let mut world = World::connected(Default::default());
    let prefetch = Cdb([0x34, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    for order in [Order::new(0, Cdb::test_unit_ready()), Order::new(0, prefetch)] {
        assert_eq!(world.ask(order, &[]).status(), ScsiStatus::GOOD);
    }
    for cdb in [
        Cdb::inquiry(96),
        Cdb::vital_product_data(0x83, 255),
        Cdb::read_capacity_10(),
        Cdb::read_capacity_16(32),
        Cdb::mode_sense_6(0x3f, false, 255),
        Cdb::report_opcodes(false, 4096),
        Cdb::report_luns(256),
        Cdb::request_sense(false, 18),
    ] {
        let (data, answer) = world.read_all(Order::read(0, cdb, cdb.allocation_length()));
        assert_eq!(answer.status(), ScsiStatus::GOOD, "{cdb:?}");
        assert!(!data.is_empty());
    }
    assert!(world.log.is_empty());
}

#[test]
fn a_host_sees_the_units_that_name_it_and_no_other() {
    let mut world = World::connected(Default::default());
    let (data, _) = world.read_all(Order::read(300, Cdb::report_luns(256), 256));
    let LunList(luns) = LunList::parse(&data).expect("a list");
    assert_eq!(luns, [Lun::of(0), Lun::of(1), Lun::of(300)]);
    // Also under a LUN where nothing is.
    let (data, _) = world.read_all(Order::read(9, Cdb::report_luns(256), 256));
    assert_eq!(LunList::parse(&data).expect("a list").0.len(), 3);
    let (data, answer) = world.read_all(Order::read(9, Cdb::inquiry(96), 96));
    assert_eq!((answer.status(), data[0]), (ScsiStatus::GOOD, 0x7f));
    let other = Order { lun: [0xc1, 1, 0, 0, 0, 0, 0, 0], ..read(0, 512) };
    for order in [Order { lun: Lun::of(9).0, ..read(0, 512) }, other] {
        refused(&world.ask(order, &[]), ILLEGAL, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

#[test]
fn what_a_command_asks_is_within_its_unit() {
    let mut world = World::connected(Default::default());
    let beyond = AdditionalSense::LBA_OUT_OF_RANGE;
    for order in [read(4096, 512), read(4095, 1024), read(u32::MAX, 512)] {
        refused(&world.ask(order, &[]), ILLEGAL, beyond);
    }
    assert!(world.log.is_empty());
}

#[test]
fn what_failed_below_is_told() {
    let mut world = World::connected(Default::default());
    for (why, key, code) in [
        (Failure::MediumWrite, SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR),
        (Failure::NoSpace, SenseKey::DATA_PROTECT, AdditionalSense::SPACE_ALLOCATION_FAILED),
        (Failure::NotReady, SenseKey::NOT_READY, AdditionalSense::BECOMING_READY),
    ] {
        world.fail_next = Some(why);
        refused(&world.ask(write(0, 512), &[1; 512]), key, code);
        assert_eq!(world.links[0].connection.pages(), 0);
    }
    assert_eq!(world.links[0].connection.counters().failed, 3);
    assert!(world.lives());
}

#[test]
fn compare_and_write_replaces_what_is_there_or_says_where_it_differs() {
    let mut world = World::connected(Default::default());
    for with in [4096, 512, 0] {
        world.volumes[0][..4096].fill(1);
        let order = Order::write(0, Cdb::compare_and_write(0, 4, false), 4096);
        let (same, new) = ([1; 2048], pattern(2048, with));
        let data = [&same[..], &new].concat();
        let answer = match with {
            4096 => world.ask(order, &data),
            _ => {
                let r2t = world.ask(order, &data[..with]).r2t();
                world.granted(&r2t, &data, 700)
            }
        };
        assert_eq!(answer.status(), ScsiStatus::GOOD, "{with} with the command");
        assert_eq!(world.volumes[0][..2048], new);
        // It is not there any more.
        let said = world.ask(order, &data);
        refused(&said, SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY);
        let differs = new.iter().position(|byte| *byte != 1).map(|at| at as u64);
        assert_eq!(said.sense().information, differs);
        assert_eq!(world.volumes[0][..2048], new);
    }
}

#[test]
fn compare_and_write_has_twice_as_many_data_as_blocks() {
    let mut world = World::connected(Default::default());
    for (blocks, bytes) in [(1, 512), (1, 1536), (2, 1024), (0, 512)] {
        let order = Order::write(0, Cdb::compare_and_write(0, blocks, false), bytes);
        let said = world.ask(order, &pattern(bytes as usize, 1));
        refused(&said, ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
    }
    let nothing = Order::write(0, Cdb::compare_and_write(0, 0, false), 0);
    assert_eq!(world.ask(nothing, &[]).status(), ScsiStatus::GOOD);
    let ordered = nothing.with_attribute(TaskAttribute::ORDERED);
    assert_eq!(world.ask(ordered, &[]).status(), ScsiStatus::GOOD);
    assert!(world.log.is_empty());
}

#[test]
fn unmap_gives_its_ranges_back_and_nothing_else() {
    let mut world = World::connected(Default::default());
    world.volumes[0].fill(7);
    let list = unmap_list();
    let order = Order::write(0, Cdb::unmap_list(list.len() as u16), list.len() as u32);
    assert_eq!(world.ask(order, &list).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["discard"]);
    let (from, to) = (8 * 512, 24 * 512);
    assert!(world.volumes[0][from..to].iter().all(|byte| *byte == 0));
    assert!(world.volumes[0][..from].iter().chain(&world.volumes[0][to..]).all(|byte| *byte == 7));
    // Its list may be asked for; it may be empty; it may be wrong.
    let r2t = world.ask(order, &[]).r2t();
    assert_eq!(world.granted(&r2t, &list, 10).status(), ScsiStatus::GOOD);
    let empty = UnmapList(Vec::new()).emit();
    let order = Order::write(0, Cdb::unmap_list(empty.len() as u16), empty.len() as u32);
    assert_eq!(world.ask(order, &empty).status(), ScsiStatus::GOOD);
    let beyond = UnmapList(vec![UnmapRange { lba: 4095, blocks: 2 }]).emit();
    let order = Order::write(0, Cdb::unmap_list(beyond.len() as u16), beyond.len() as u32);
    refused(&world.ask(order, &beyond), ILLEGAL, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(world.log, ["discard", "discard"]);
    assert_eq!(world.links[0].connection.pages(), 0);
}

#[test]
fn an_unmap_keeps_the_memory_of_its_list_while_it_is_below() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    let list = unmap_list();
    let order = Order::write(0, Cdb::unmap_list(list.len() as u16), list.len() as u32);
    world.command(0, order, &list);
    assert_eq!(world.links[0].connection.pages(), 1);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.links[0].connection.pages(), 0);
}

/// The control page of MODE SELECT(6), with these flags in its third and fifth byte.
fn control_page(sense: bool, protect: bool) -> Vec<u8> {
    let mut data = vec![0; 16];
    data[4..6].copy_from_slice(&[0x0a, 0x0a]);
    data[6] = 0x20 | u8::from(sense) << 2;
    data[7] = 0x10;
    data[8] = u8::from(protect) << 3;
    data
}

fn select(world: &mut World, link: usize, sense: bool, protect: bool) {
    let data = control_page(sense, protect);
    let order = Order::write(0, Cdb::mode_select_6(data.len() as u8), data.len() as u32);
    world.command(link, order, &data);
    let said = world.said_one(link);
    assert_eq!(said.status(), ScsiStatus::GOOD, "{said:?}");
}

#[test]
fn what_one_host_sets_of_a_unit_holds_for_all_and_the_others_are_told() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    select(&mut world, 0, false, true);
    refused(
        &world.ask(write(0, 512), &[1; 512]),
        SenseKey::DATA_PROTECT,
        AdditionalSense::SOFTWARE_WRITE_PROTECTED,
    );
    world.command(other, read(0, 512), &[]);
    let changed = AdditionalSense::MODE_PARAMETERS_CHANGED;
    refused(&world.said_one(other), SenseKey::UNIT_ATTENTION, changed);
    world.command(other, write(0, 512), &[1; 512]);
    assert_eq!(world.said_one(other).sense().key, SenseKey::DATA_PROTECT);
    // The same once more is no change.
    select(&mut world, 0, false, true);
    world.command(other, read(0, 512), &[]);
    assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
    select(&mut world, other, false, false);
    refused(&world.ask(read(0, 512), &[]), SenseKey::UNIT_ATTENTION, changed);
    assert_eq!(world.ask(write(0, 512), &[1; 512]).status(), ScsiStatus::GOOD);
}

#[test]
fn sense_data_have_the_format_that_hosts_have_set() {
    let mut world = World::connected(Default::default());
    let format = |world: &mut World| {
        let said = world.ask(read(u32::MAX, 512), &[]);
        let super::world::Said::Response(_, data) = &said else { panic!("{said:?}") };
        refused(&said, ILLEGAL, AdditionalSense::LBA_OUT_OF_RANGE);
        data[2] & 0x7f
    };
    assert_eq!(format(&mut world), 0x70, "fixed");
    select(&mut world, 0, true, false);
    assert_eq!(format(&mut world), 0x72, "with descriptors");
    // Of that unit alone.
    let other = Order { lun: Lun::of(300).0, ..read(u32::MAX, 512) };
    let said = world.ask(other, &[]);
    let super::world::Said::Response(_, data) = &said else { panic!("{said:?}") };
    assert_eq!(data[2] & 0x7f, 0x70);
    // What was read below and fails has it as well.
    world.fail_next = Some(Failure::MediumRead);
    let said = world.ask(read(0, 512), &[]);
    let super::world::Said::Response(_, data) = &said else { panic!("{said:?}") };
    assert_eq!(data[2] & 0x7f, 0x72);
}

#[test]
fn what_waits_to_be_told_is_told_by_request_sense_too() {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    select(&mut world, 0, false, true);
    world.command(other, Order::read(0, Cdb::request_sense(false, 18), 18), &[]);
    let super::world::Said::Data(_, data) = world.said_one(other) else { panic!("no data") };
    assert_eq!((data[2] & 0xf, data[12], data[13]), (SenseKey::UNIT_ATTENTION.0, 0x2a, 1));
    world.command(other, read(0, 512), &[]);
    assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
}

#[test]
fn attributes_that_there_are_not_are_refused() {
    let mut world = World::connected(Default::default());
    for attribute in [4, 5, 7] {
        let order = read(0, 512).with_attribute(TaskAttribute(attribute));
        let code = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
        refused(&world.ask(order, &[]), ILLEGAL, code);
    }
    for attribute in 0..4 {
        let order = read(0, 512).with_attribute(TaskAttribute(attribute));
        assert_eq!(world.ask(order, &[]).status(), ScsiStatus::GOOD);
    }
}

#[test]
fn data_with_a_command_that_takes_none_pass() {
    let mut world = World::connected(Default::default());
    let flags = ScsiCommandFlags::WRITE;
    let ready = Order { flags, expected: 512, ..Order::new(0, Cdb::test_unit_ready()) };
    assert_eq!(world.ask(ready, &[1; 512]).status(), ScsiStatus::GOOD);
    let flushes = Order { flags, expected: 512, ..flush() };
    assert_eq!(world.ask(flushes, &[1; 512]).status(), ScsiStatus::GOOD);
    assert!(world.lives());
}

/// Somebody else holds volume 0, and no other may write.
pub(super) fn held() -> Reservation {
    let other = "mac:020000000001";
    let text = format!("generation 1 held write-exclusive by {other}: {other}=0");
    text.parse().expect("a reservation")
}

#[test]
fn what_a_reservation_forbids_conflicts() {
    let mut world = World::connected(Default::default());
    let conflict = ScsiStatus::RESERVATION_CONFLICT;
    world.shard.reservations.set(VolumeId(0), held());
    assert_eq!(world.ask(write(0, 512), &[1; 512]).status(), conflict);
    assert_eq!(world.ask(write(0, 65_536), &[]).status(), conflict);
    assert_eq!(world.ask(read(0, 512), &[]).status(), ScsiStatus::GOOD);
    assert!(!world.log.contains(&"write"));
    // Also while its data are on their way.
    world.shard.reservations.set(VolumeId(0), Reservation::default());
    let r2t = world.ask(write(0, 65_536), &[]).r2t();
    world.shard.reservations.set(VolumeId(0), held());
    assert_eq!(world.granted(&r2t, &pattern(65_536, 1), 8192).status(), conflict);
    assert!(!world.log.contains(&"write"));
}
