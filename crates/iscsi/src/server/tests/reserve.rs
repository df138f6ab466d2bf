//! Reservations over a session: a change is answered once all have agreed on it, whatever becomes of
//! its task meanwhile; others are told, and their tasks end. What a change does is `reservation`'s,
//! what commands ask for is `scsi`'s.

use block::VolumeId;
use contract::Loss;
use reservation::Change;
use reservation::change::REGISTRANTS_MAX;
use reservation::replica::PROPOSALS_MAX;
use wire::iscsi::{LogoutReason, TaskFunction, TaskResponse};
use wire::scsi::persistent::{
    FullStatusList, RegisterAndMove, ReservationKeys, ReservationType, ReserveOut, TransportId,
};
use wire::scsi::{AdditionalSense, Cdb, Lun, OpCode, ScsiStatus, SenseKey, ServiceAction};

use super::world::{HOST, Order, Said, TARGET, World, flush, pattern, refused, write};
use crate::fixtures;

const REGISTER: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
const IGNORE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE;
const RESERVE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE;
const RELEASE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_RELEASE;
const CLEAR: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_CLEAR;
const ABORT: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;
const MOVE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE;
const CONFLICT: ScsiStatus = ScsiStatus::RESERVATION_CONFLICT;

/// PERSISTENT RESERVE OUT of LUN 0 with a list, from a link; its task tag.
fn propose(
    world: &mut World,
    link: usize,
    action: ServiceAction,
    kind: ReservationType,
    list: &[u8],
) -> u32 {
    let cdb = Cdb::persistent_reserve_out(action, kind.0, list.len() as u32);
    world.command(link, Order::write(0, cdb, list.len() as u32), list)
}

/// The same with two keys, and the status.
fn out(
    world: &mut World,
    link: usize,
    action: ServiceAction,
    kind: ReservationType,
    keys: (u64, u64),
) -> ScsiStatus {
    let list = ReserveOut { key: keys.0, action_key: keys.1, ..ReserveOut::default() };
    propose(world, link, action, kind, &list.emit());
    world.said_one(link).status()
}

/// Registers a link under a key.
fn register(world: &mut World, link: usize, key: u64) {
    let kind = ReservationType(0);
    assert_eq!(out(world, link, REGISTER, kind, (0, key)), ScsiStatus::GOOD);
}

/// PERSISTENT RESERVE IN of LUN 0.
fn told(world: &mut World, action: ServiceAction) -> Vec<u8> {
    let (data, answer) =
        world.read_all(Order::read(0, Cdb::persistent_reserve_in(action, 8192), 8192));
    assert_eq!(answer.status(), ScsiStatus::GOOD, "{answer:?}");
    data
}

fn keys(world: &mut World) -> Vec<u64> {
    let told = told(world, ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS);
    ReservationKeys::parse(&told).expect("keys").keys
}

/// A command of LUN 0 that moves nothing, from a link; its status.
fn plain(world: &mut World, link: usize, opcode: OpCode) -> ScsiStatus {
    world.command(link, Order::new(0, Cdb::new(opcode)), &[]);
    world.said_one(link).status()
}

/// What link 0 is told by a unit attention of a LUN.
#[track_caller]
fn is_told(world: &mut World, link: usize, lun: u16, code: AdditionalSense) {
    let order = Order::new(lun, Cdb::test_unit_ready());
    world.command(link, order, &[]);
    refused(&world.said_one(link), SenseKey::UNIT_ATTENTION, code);
}

fn two() -> (World, usize) {
    let mut world = World::connected(Default::default());
    let other = world.join(&[]);
    (world, other)
}

#[test]
fn a_host_registers_reserves_and_keeps_the_other_out() {
    let (mut world, other) = two();
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    assert_eq!(out(&mut world, 0, RESERVE, kind, (5, 0)), CONFLICT, "it is not registered");
    register(&mut world, 0, 5);
    assert_eq!(out(&mut world, 0, RESERVE, kind, (5, 0)), ScsiStatus::GOOD);
    assert_eq!(keys(&mut world), [5]);
    world.command(other, write(0, 512), &[1; 512]);
    assert_eq!(world.said_one(other).status(), CONFLICT);
    assert_eq!(out(&mut world, other, CLEAR, kind, (5, 0)), CONFLICT);
    let status = told(&mut world, ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS);
    let status = FullStatusList::parse(&status).expect("full status").registrants;
    let isid = world.links[0].host.isid;
    assert_eq!((status[0].held, status[0].relative_port), (Some(kind), 1));
    assert_eq!(status[0].transport, TransportId::iscsi(HOST, isid));
    let wrong = ReservationType::EXCLUSIVE_ACCESS;
    propose(&mut world, 0, RELEASE, wrong, &ReserveOut { key: 5, ..Default::default() }.emit());
    let code = AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
    refused(&world.said_one(0), SenseKey::ILLEGAL_REQUEST, code);
    register(&mut world, other, 6);
    assert_eq!(out(&mut world, 0, RELEASE, kind, (5, 0)), ScsiStatus::GOOD);
    is_told(&mut world, other, 0, AdditionalSense::RESERVATIONS_RELEASED);
}

#[test]
fn the_list_may_come_in_answer_to_an_r2t() {
    let mut world = World::connected_with(&[("ImmediateData", "No")]);
    let list = ReserveOut { action_key: 7, ..ReserveOut::default() }.emit();
    let cdb = Cdb::persistent_reserve_out(IGNORE, 0, 24);
    let r2t = world.ask(Order::write(0, cdb, 24), &[]).r2t();
    assert_eq!(world.granted(&r2t, &list, u32::MAX).status(), ScsiStatus::GOOD);
    assert_eq!(keys(&mut world), [7]);
    // Its host has less than the command says, or says less than there has to be.
    let shorter = world.ask(Order::write(0, cdb, 16), &list[..16]);
    let code = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
    refused(&shorter, SenseKey::ILLEGAL_REQUEST, code);
    let cdb = Cdb::persistent_reserve_out(IGNORE, 0, 16);
    let short = world.ask(Order::write(0, cdb, 16), &[]);
    refused(&short, SenseKey::ILLEGAL_REQUEST, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn other_ports_are_named_as_they_log_in() {
    let (mut world, other) = two();
    let isid = world.links[other].host.isid;
    let also = Some(vec![TransportId::iscsi(HOST, isid)]);
    let list = ReserveOut { action_key: 5, also, ..ReserveOut::default() };
    propose(&mut world, 0, REGISTER, ReservationType(0), &list.emit());
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    assert_eq!(out(&mut world, other, RESERVE, kind, (5, 0)), ScsiStatus::GOOD, "it is registered");
    let mut to = RegisterAndMove {
        key: 5,
        action_key: 6,
        unregister: true,
        persist: false,
        relative_port: 1,
        to: TransportId::iscsi(HOST, world.links[0].host.isid),
    };
    for name in ["iqn.2026-11.net.plateway:host", "no name,i,0x1", "iqn.2026-11.a:b,i,0xg"] {
        let name = name.as_bytes().to_vec();
        to.to = TransportId { name, ..to.to };
        propose(&mut world, other, MOVE, kind, &to.emit());
        let code = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
        refused(&world.said_one(other), SenseKey::ILLEGAL_REQUEST, code);
    }
    to.to = TransportId::iscsi(HOST, world.links[0].host.isid);
    propose(&mut world, other, MOVE, kind, &to.emit());
    assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
    assert_eq!(keys(&mut world), [6]);
    assert!(world.lives(), "it holds the volume");
    assert_eq!(plain(&mut world, other, OpCode::SYNCHRONIZE_CACHE_10), CONFLICT);
}

#[test]
fn a_change_is_answered_when_all_have_agreed() {
    let mut world = World::connected(Default::default());
    world.hold_changes = true;
    let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
    propose(&mut world, 0, REGISTER, ReservationType(0), &list);
    assert_eq!(world.said(0), []);
    assert!(keys(&mut world).is_empty() && world.lives(), "others go on meanwhile");
    world.hold_changes = false;
    world.run();
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD);
    assert_eq!(keys(&mut world), [5]);
    // It may not be stored.
    world.is_broken = true;
    let list = ReserveOut { key: 5, action_key: 6, ..ReserveOut::default() }.emit();
    propose(&mut world, 0, REGISTER, ReservationType(0), &list);
    let code = AdditionalSense::INTERNAL_TARGET_FAILURE;
    refused(&world.said_one(0), SenseKey::HARDWARE_ERROR, code);
    assert_eq!(keys(&mut world), [5]);
}

#[test]
fn a_task_that_is_aborted_meanwhile_is_not_answered() {
    for function in [TaskFunction::ABORT_TASK, TaskFunction::LOGICAL_UNIT_RESET] {
        let mut world = World::connected(Default::default());
        world.hold_changes = true;
        let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
        let tag = propose(&mut world, 0, REGISTER, ReservationType(0), &list);
        let (_, bytes) = world.links[0].host.manage(function, Lun::of(0).0, Some(tag), ());
        world.send(0, &bytes);
        assert_eq!(world.said_one(0).management(), TaskResponse::COMPLETE);
        world.hold_changes = false;
        world.run();
        assert_eq!(world.said(0), []);
        assert_eq!(keys(&mut world), [5], "it was made");
    }
}

#[test]
fn a_session_has_drained_when_what_it_proposed_is_decided() {
    for logs_out in [true, false] {
        let mut world = World::connected(Default::default());
        world.hold_changes = true;
        let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
        propose(&mut world, 0, REGISTER, ReservationType(0), &list);
        if logs_out {
            let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
            world.send(0, &bytes);
            assert_eq!(world.said(0), []);
        } else {
            world.with(0, |connection, ctx| connection.handle_lost(Loss::Error(104), ctx));
            world.run();
            world.closed(0);
        }
        assert!(!world.links[0].connection.is_gone());
        assert_eq!(world.shard.shared.session_count(), 1);
        world.hold_changes = false;
        world.run();
        assert_eq!(world.shard.shared.session_count(), 0);
        assert_eq!(world.said(0).len(), usize::from(logs_out));
    }
}

#[test]
fn whoever_is_preempted_is_told_on_each_unit_of_the_volume() {
    let first = fixtures::unit(0, 1 << 20);
    let units = [(0, first.clone()), (4, first), (9, fixtures::unit(1, 1 << 20))];
    let mut world = World::exporting([fixtures::target(TARGET, units)]);
    let (_, other) = (world.join(&[]), world.join(&[]));
    register(&mut world, 0, 5);
    register(&mut world, other, 6);
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert_eq!(out(&mut world, other, ABORT, kind, (6, 5)), ScsiStatus::GOOD);
    for lun in [0, 4] {
        is_told(&mut world, 0, lun, AdditionalSense::REGISTRATIONS_PREEMPTED);
    }
    world.command(0, Order::new(9, Cdb::test_unit_ready()), &[]);
    assert_eq!(world.said_one(0).status(), ScsiStatus::GOOD, "it is another volume");
    register(&mut world, 0, 5);
    let generation = world.shard.reservations.get(VolumeId(0)).map(|held| held.generation());
    assert_eq!(out(&mut world, other, CLEAR, kind, (6, 0)), ScsiStatus::GOOD);
    is_told(&mut world, 0, 0, AdditionalSense::RESERVATIONS_PREEMPTED);
    let none = told(&mut world, ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS);
    let none = ReservationKeys::parse(&none).expect("keys");
    assert_eq!((none.keys.len(), Some(none.generation.into())), (0, generation.map(|one| one + 1)));
    assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), ScsiStatus::GOOD);
}

#[test]
fn tasks_of_a_preempted_host_end_and_can_not_go_below_afterwards() {
    let (mut world, other) = two();
    register(&mut world, 0, 5);
    register(&mut world, other, 6);
    let data = pattern(65_536, 1);
    // One takes data, one has half of a piece, one is below with a step behind it.
    let waits = world.ask(write(0, 65_536), &[]).r2t();
    let comes = world.ask(write(256, 65_536), &[]).r2t();
    let half = world.links[0].host.give(&comes, 0, &data[..8192]);
    world.send(0, &half[..3000]);
    world.hold_requests = true;
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert_eq!(out(&mut world, other, ABORT, kind, (6, 5)), ScsiStatus::GOOD);
    world.send(0, &half[3000..]);
    let late = world.links[0].host.give_all(&waits, &data, u32::MAX);
    world.send(0, &late);
    world.hold_requests = false;
    world.run();
    assert_eq!(world.said(0), []);
    assert!(world.log.is_empty(), "{:?}", world.log);
    assert_eq!(world.links[0].connection.outstanding(), 0);
    // Nobody holds the volume: what it asks from now on is new.
    is_told(&mut world, 0, 0, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert!(world.lives());
}

#[test]
fn a_step_of_a_preempted_host_is_its_last() {
    let (mut world, other) = two();
    register(&mut world, 0, 5);
    register(&mut world, other, 6);
    world.hold_requests = true;
    let order = Order::write(0, Cdb::orwrite_16(0, 8, false), 4096);
    world.command(0, order, &pattern(4096, 1));
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert_eq!(out(&mut world, other, ABORT, kind, (6, 5)), ScsiStatus::GOOD);
    world.hold_requests = false;
    world.run();
    assert_eq!((world.said(0), &world.log[..]), (Vec::new(), &["read"][..]));
}

#[test]
fn a_host_of_another_protocol_takes_all_and_a_session_hears_of_it() {
    let mut world = World::connected(Default::default());
    register(&mut world, 0, 5);
    let list = vec![[2, 0, 0, 0, 0, 1].into()];
    world.change(Change::ForceList { list });
    is_told(&mut world, 0, 0, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert_eq!(world.ask(write(0, 512), &[1; 512]).status(), CONFLICT);
    assert_eq!(keys(&mut world), [0x0200_0000_0001]);
}

#[test]
fn a_volume_is_reserved_for_a_session_until_it_releases_it_or_ends() {
    let (mut world, other) = two();
    for (reserve, release) in
        [(OpCode::RESERVE_6, OpCode::RELEASE_6), (OpCode::RESERVE_10, OpCode::RELEASE_10)]
    {
        assert_eq!(plain(&mut world, 0, reserve), ScsiStatus::GOOD);
        assert_eq!(plain(&mut world, 0, reserve), ScsiStatus::GOOD, "it has it");
        for opcode in [reserve, OpCode::TEST_UNIT_READY, OpCode::SYNCHRONIZE_CACHE_10] {
            assert_eq!(plain(&mut world, other, opcode), CONFLICT, "{opcode}");
        }
        assert_eq!(plain(&mut world, other, release), ScsiStatus::GOOD, "it has no effect");
        assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), CONFLICT);
        let inquiry = Order::read(0, Cdb::inquiry(36), 36);
        world.command(other, inquiry, &[]);
        assert_eq!(world.said_one(other).status(), ScsiStatus::GOOD);
        let order = Cdb::persistent_reserve_in(ServiceAction::PERSISTENT_RESERVE_IN_READ_KEYS, 8);
        assert_eq!(world.ask(Order::read(0, order, 8), &[]).status(), CONFLICT, "also to itself");
        let kind = ReservationType(0);
        assert_eq!(out(&mut world, 0, REGISTER, kind, (0, 5)), CONFLICT);
        assert!(world.lives());
        assert_eq!(plain(&mut world, 0, release), ScsiStatus::GOOD);
        assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), ScsiStatus::GOOD);
    }
    // Persistent reservations exclude it.
    register(&mut world, 0, 5);
    assert_eq!(plain(&mut world, other, OpCode::RESERVE_6), CONFLICT);
    assert_eq!(plain(&mut world, 0, OpCode::RELEASE_6), CONFLICT);
    assert_eq!(out(&mut world, 0, CLEAR, ReservationType(0), (5, 0)), ScsiStatus::GOOD);

    assert_eq!(plain(&mut world, 0, OpCode::RESERVE_6), ScsiStatus::GOOD);
    let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
    world.hold_changes = true;
    world.send(0, &bytes);
    assert_eq!(world.said(0), [], "it has it still");
    world.hold_changes = false;
    world.run();
    assert!(matches!(world.said_one(0), Said::Logout(_)));
    assert_eq!(plain(&mut world, other, OpCode::RESERVE_6), ScsiStatus::GOOD);
    world.with(other, |connection, ctx| connection.handle_lost(Loss::EndOfStream, ctx));
    world.run();
    assert!(world.shard.reservations.held(VolumeId(0)).is_none());
}

#[test]
fn a_reservation_for_a_session_takes_its_turn() {
    let (mut world, other) = two();
    world.hold_requests = true;
    world.command(0, flush(), &[]);
    let ordered = wire::iscsi::TaskAttribute::ORDERED;
    let order = Order::new(0, Cdb::new(OpCode::RESERVE_6)).with_attribute(ordered);
    world.command(0, order, &[]);
    assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), ScsiStatus::GOOD, "not yet");
    world.hold_requests = false;
    world.run();
    let said = world.said(0);
    assert!(said.iter().all(|said| said.status() == ScsiStatus::GOOD) && said.len() == 2);
    assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), CONFLICT);
}

#[test]
fn a_reset_ends_what_a_session_has_before_it_is_answered() {
    for function in [TaskFunction::LOGICAL_UNIT_RESET, TaskFunction::TARGET_WARM_RESET] {
        let (mut world, other) = two();
        assert_eq!(plain(&mut world, other, OpCode::RESERVE_6), ScsiStatus::GOOD);
        world.hold_changes = true;
        let (_, bytes) = world.links[0].host.manage(function, Lun::of(0).0, None, ());
        world.send(0, &bytes);
        assert_eq!(world.said(0), [], "it has it still");
        world.hold_changes = false;
        world.run();
        assert_eq!(world.said_one(0).management(), TaskResponse::COMPLETE);
        assert!(world.lives());
        is_told(&mut world, other, 0, AdditionalSense::BUS_DEVICE_RESET);
    }
}

#[test]
fn what_could_not_be_given_up_is_given_up_later() {
    let (mut world, other) = two();
    assert_eq!(plain(&mut world, 0, OpCode::RESERVE_6), ScsiStatus::GOOD);
    world.is_broken = true;
    world.with(0, |connection, ctx| connection.handle_lost(Loss::EndOfStream, ctx));
    world.run();
    world.closed(0);
    assert_eq!(world.shard.shared.session_count(), 1, "it waits for nothing");
    assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), CONFLICT);
    world.is_broken = false;
    let at = world.shard.shared.poll_timeout().expect("it is tried again");
    let rest = at.since(world.shard.now);
    world.pass(other, rest);
    assert_eq!(plain(&mut world, other, OpCode::TEST_UNIT_READY), ScsiStatus::GOOD);
    assert_eq!(world.shard.shared.poll_timeout(), None);
}

#[test]
fn as_many_as_there_is_room_for_are_registered_at_once() {
    let mut world = World::connected(Default::default());
    let also = |count: usize| {
        let isid = |number: usize| [0x40, 0, 0, 0, (number >> 8) as u8, number as u8];
        let ids = (0..count).map(|number| TransportId::iscsi(HOST, isid(number)));
        let also = Some(ids.collect());
        ReserveOut { action_key: 5, also, ..ReserveOut::default() }.emit()
    };
    for (count, status) in
        [(REGISTRANTS_MAX, ScsiStatus::CHECK_CONDITION), (REGISTRANTS_MAX - 1, ScsiStatus::GOOD)]
    {
        let list = also(count);
        let length = list.len() as u32;
        let cdb = Cdb::persistent_reserve_out(REGISTER, 0, length);
        let said = world.write_all(Order::write(0, cdb, length), &list);
        assert_eq!(said.status(), status, "{count} beside itself");
    }
    assert_eq!(keys(&mut world).len(), REGISTRANTS_MAX);
    let other = world.join(&[]);
    let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
    propose(&mut world, other, REGISTER, ReservationType(0), &list);
    let code = AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES;
    refused(&world.said_one(other), SenseKey::ILLEGAL_REQUEST, code);
}

#[test]
fn more_changes_than_may_wait_are_answered_busy() {
    let mut world = World::connected(Default::default());
    world.hold_changes = true;
    let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
    for _ in 0..PROPOSALS_MAX + 10 {
        propose(&mut world, 0, IGNORE, ReservationType(0), &list);
    }
    world.hold_changes = false;
    world.run();
    let said = world.said(0);
    let busy = said.iter().filter(|said| said.status() == ScsiStatus::BUSY).count();
    // One is being made, and others wait for it.
    assert_eq!((said.len(), busy), (PROPOSALS_MAX + 10, 9));
}

#[test]
fn a_volume_that_is_gone_is_no_unit() {
    let third = fixtures::unit(3, 1 << 20);
    let mut world = World::exporting([fixtures::target(TARGET, [(0, third)])]);
    world.join(&[]);
    // It has a LUN still, and its reservation is gone.
    let list = ReserveOut { action_key: 5, ..ReserveOut::default() }.emit();
    propose(&mut world, 0, REGISTER, ReservationType(0), &list);
    let code = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
    refused(&world.said_one(0), SenseKey::ILLEGAL_REQUEST, code);
    assert_eq!(plain(&mut world, 0, OpCode::RESERVE_6), ScsiStatus::CHECK_CONDITION);
}
