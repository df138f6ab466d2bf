//! Task attributes: what waits for what within one session and unit. Spec: SAM-5, 8.

use wire::iscsi::TaskAttribute;
use wire::scsi::{AdditionalSense, Cdb, Lun, OpCode, ScsiStatus, SenseKey};

use super::memory::{give, hog};
use super::world::{Order, Said, World, flush, pattern, read, refused, write};

const ORDERED: TaskAttribute = TaskAttribute::ORDERED;
const HEAD: TaskAttribute = TaskAttribute::HEAD_OF_QUEUE;

fn below(world: &World) -> Vec<&'static str> {
    world.shard.below.held.iter().map(|(_, request)| request.operation.name()).collect()
}

fn tags(world: &mut World) -> Vec<u32> {
    world.said(0).iter().map(Said::tag).collect()
}

/// A world whose volumes answer when they are told to.
fn held() -> World {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world
}

#[test]
fn an_ordered_task_starts_when_all_older_ones_have_ended() {
    let mut world = held();
    let first = world.command(0, read(0, 512), &[]);
    let second = world.command(0, flush(), &[]);
    let ordered = world.command(0, write(0, 512).with_attribute(ORDERED), &[1; 512]);
    assert_eq!(below(&world), ["read", "flush"]);
    world.release_one(0);
    world.run();
    assert_eq!(below(&world), ["flush"], "one is not over");
    world.release_one(0);
    world.run();
    assert_eq!(below(&world), ["write"]);
    world.release_one(0);
    world.run();
    assert_eq!(tags(&mut world), [first, second, ordered]);
}

#[test]
fn what_comes_after_an_ordered_task_starts_when_it_has_ended() {
    let mut world = held();
    let ordered = world.command(0, flush().with_attribute(ORDERED), &[]);
    let second = world.command(0, write(0, 512), &[1; 512]);
    let third = world.command(0, read(0, 65_536), &[]);
    assert_eq!(below(&world), ["flush"]);
    world.release_one(0);
    world.run();
    assert_eq!(below(&world), ["write", "read"]);
    world.hold_requests = false;
    world.run();
    assert_eq!(tags(&mut world), [ordered, second, third]);
}

#[test]
fn ordered_tasks_run_one_after_the_other() {
    let mut world = held();
    let all: Vec<u32> = (0..4)
        .map(|lba| world.command(0, write(lba, 512).with_attribute(ORDERED), &[1; 512]))
        .collect();
    for left in (0..4).rev() {
        assert_eq!(below(&world), ["write"], "{left} wait");
        world.release_one(0);
        world.run();
    }
    assert_eq!(tags(&mut world), all);
}

#[test]
fn the_head_of_the_queue_and_other_units_wait_for_nobody() {
    let mut world = held();
    world.command(0, flush().with_attribute(ORDERED), &[]);
    world.command(0, flush().with_attribute(ORDERED), &[]);
    world.command(0, read(0, 512).with_attribute(HEAD), &[]);
    world.command(0, Order { lun: Lun::of(300).0, ..write(0, 512) }, &[1; 512]);
    let ready = Order::new(0, Cdb::test_unit_ready());
    let ready = world.command(0, ready, &[]);
    assert_eq!(below(&world), ["flush", "read", "write"]);
    assert_eq!(tags(&mut world), [ready]);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said(0).len(), 4);
}

#[test]
fn a_simple_task_waits_only_for_ordered_ones() {
    let mut world = held();
    world.command(0, flush(), &[]);
    world.command(0, write(0, 512), &[1; 512]);
    world.command(0, read(0, 512).with_attribute(TaskAttribute::UNTAGGED), &[]);
    assert_eq!(below(&world), ["flush", "write", "read"]);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said(0).len(), 3);
}

#[test]
fn an_ordered_write_keeps_its_data_or_asks_for_them_when_it_starts() {
    for with in [0, 512] {
        let mut world = held();
        world.command(0, flush(), &[]);
        let data = pattern(65_536, 1);
        let bytes = if with == 0 { 65_536 } else { 512 };
        let order = write(0, bytes).with_attribute(ORDERED);
        world.command(0, order, &data[..with]);
        assert_eq!(world.said(0), []);
        world.hold_requests = false;
        world.run();
        let said = world.said(0);
        assert_eq!(said[0].status(), ScsiStatus::GOOD);
        let answer = match with {
            0 => world.granted(&said[1].r2t(), &data, 8192),
            _ => said[1].clone(),
        };
        assert_eq!(answer.status(), ScsiStatus::GOOD);
        assert!(world.volumes[0][..bytes as usize] == data[..bytes as usize]);
    }
}

#[test]
fn data_that_were_not_agreed_to_are_refused_of_an_ordered_write_too() {
    let mut world = World::connected_with(&[("ImmediateData", "No")]);
    for attribute in [TaskAttribute::SIMPLE, ORDERED] {
        let said = world.ask(write(0, 512).with_attribute(attribute), &[1; 512]);
        let code = AdditionalSense::UNEXPECTED_UNSOLICITED_DATA;
        refused(&said, SenseKey::ABORTED_COMMAND, code);
    }
    assert!(world.log.is_empty());
}

/// Its data would hang on the host.
#[test]
fn an_ordered_write_with_a_part_of_its_data_finds_the_task_set_full() {
    let mut world = held();
    world.command(0, flush(), &[]);
    let order = write(0, 8192).with_attribute(ORDERED);
    assert_eq!(world.ask(order, &pattern(512, 1)).status(), ScsiStatus::TASK_SET_FULL);
    let memory = hog(&mut world, block::Class::Transfer, 4096);
    let whole = write(0, 512).with_attribute(ORDERED);
    assert_eq!(world.ask(whole, &pattern(512, 1)).status(), ScsiStatus::TASK_SET_FULL);
    give(&mut world, memory);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["flush"]);
}

#[test]
fn a_task_that_is_held_is_judged_anew_when_it_starts() {
    let mut world = held();
    world.command(0, flush(), &[]);
    world.command(0, write(0, 512).with_attribute(ORDERED), &[1; 512]);
    let mut target = super::world::target();
    target.units[0].unit.read_only = true;
    world.shard.shared.set_target(target);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert_eq!(said[0].status(), ScsiStatus::GOOD);
    assert_eq!(said[1].sense().key, wire::scsi::SenseKey::DATA_PROTECT);
    assert_eq!(world.log, ["flush"]);
}

#[test]
fn an_abort_of_a_task_that_is_held_or_holds_lets_the_others_go() {
    for which in [0, 1] {
        let mut world = held();
        let first = world.command(0, flush(), &[]);
        let ordered = world.command(0, flush().with_attribute(ORDERED), &[]);
        let last = world.command(0, read(0, 512), &[]);
        let abort = wire::iscsi::TaskFunction::ABORT_TASK;
        let task = [first, ordered][which];
        let (_, bytes) = world.links[0].host.manage(abort, [0; 8], Some(task), ());
        world.send(0, &bytes);
        world.hold_requests = false;
        world.run();
        let said = world.said(0);
        let mut answered: Vec<u32> = said.iter().map(Said::tag).collect();
        answered.retain(|tag| [first, ordered, last].contains(tag));
        assert_eq!(answered, [[ordered, last], [first, last]][which]);
    }
}

/// A read that moves less, or the wrong way, is held as any other and then moves what it may.
#[test]
fn odd_reads_are_held_too() {
    let mut world = held();
    world.command(0, flush().with_attribute(ORDERED), &[]);
    world.command(0, Order { expected: 512, ..read(0, 1024) }, &[]);
    let flags = wire::iscsi::ScsiCommandFlags::WRITE;
    world.command(0, Order { flags, ..read(0, 1024) }, &[]);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert_eq!(said.len(), 3);
    assert!(matches!(&said[1], Said::Data(_, data) if data.len() == 512));
    assert!(matches!(&said[2], Said::Response(..)));
    assert!(said.iter().all(|said| said.status() == ScsiStatus::GOOD));
}

/// It would hold memory that the one before it waits for, which waits for it.
#[test]
fn data_behind_a_held_task_that_will_need_memory_are_refused() {
    let mut world = held();
    world.command(0, flush(), &[]);
    let whole = 1 << 20;
    world.command(0, read(0, whole).with_attribute(ORDERED), &[]);
    let refused = world.command(0, write(0, 512), &[7; 512]);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    let status = said.iter().find(|said| said.tag() == refused).map(Said::status);
    assert_eq!(status, Some(ScsiStatus::TASK_SET_FULL));
    let moved: usize =
        said.iter().map(|said| if let Said::Data(_, data) = said { data.len() } else { 0 }).sum();
    assert_eq!(moved, whole as usize, "the read is answered");
}

/// Whatever a command asks for: one that is held is answered like one that is not.
#[test]
fn every_command_may_be_ordered() {
    let statuses = |attribute, opcode: u8, kind: usize| {
        let mut world = World::connected(Default::default());
        let mut statuses = Vec::new();
        for action in 0..32 {
            let mut cdb = Cdb::new(OpCode(opcode));
            // One block, or as much of a list as fits.
            let count = [4, 8, 8, 0, 13, 9, 0, 0][usize::from(opcode >> 5)];
            (cdb.0[1], cdb.0[count.max(2)]) = (action, 1);
            if matches!(cdb.opcode(), OpCode::RESERVE_6 | OpCode::RESERVE_10) {
                continue;
            }
            let (order, data) = match kind {
                0 => (Order::new(0, cdb), vec![]),
                1 => (Order::read(0, cdb, 512), vec![]),
                _ => (Order::write(0, cdb, 512), vec![7; 512]),
            };
            world.hold_requests = true;
            world.command(0, flush().with_attribute(ORDERED), &[]);
            world.command(0, order.with_attribute(attribute), &data);
            world.hold_requests = false;
            world.run();
            let mut said = world.said(0);
            said.retain(|said| !matches!(said, Said::R2t(_)));
            statuses.push(said.len());
            assert!(world.links[0].pipe.close.is_none(), "{cdb} of kind {kind} ends the session");
        }
        statuses
    };
    for opcode in 0..=255 {
        for kind in 0..3 {
            let ordered = statuses(ORDERED, opcode, kind);
            assert_eq!(ordered, statuses(HEAD, opcode, kind), "{opcode:#x} of kind {kind}");
            assert_eq!(ordered, statuses(TaskAttribute::SIMPLE, opcode, kind), "{opcode:#x}");
        }
    }
}

/// Of a write with more data than are taken in one piece, nothing can be held.
#[test]
fn a_write_whose_data_stream_in_keeps_its_place() {
    let whole = 16_384;
    let held = || {
        let mut world = World::connected_with(&[("InitialR2T", "No")]);
        world.hold_requests = true;
        world
    };
    let write = |attribute| write(0, whole).with_attribute(attribute);
    let data = pattern(whole as usize, 3);
    // Somebody else is there: it is to come again.
    let mut world = held();
    world.command(0, flush(), &[]);
    let refused = world.command(0, write(ORDERED), &data);
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    let status = said.iter().find(|said| said.tag() == refused).map(Said::status);
    assert_eq!(status, Some(ScsiStatus::TASK_SET_FULL));
    // Nobody is: it starts, and others wait for it.
    let mut world = held();
    let ordered = world.command(0, write(ORDERED), &data);
    let last = world.command(0, flush(), &[]);
    assert_eq!(below(&world), ["write"]);
    world.hold_requests = false;
    world.run();
    assert_eq!(tags(&mut world), [ordered, last]);
    assert!(world.volumes[0][..data.len()] == data[..]);
    // An attribute that there is not.
    let mut world = held();
    world.command(0, write(TaskAttribute(7)), &data);
    assert_eq!(world.said_one(0).status(), ScsiStatus::CHECK_CONDITION);
    world.hold_requests = false;
    assert!(world.lives());
}
