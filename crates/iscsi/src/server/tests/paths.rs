//! Groups of listeners: what a path refuses in which state, how hosts tell and set the states, and that
//! each group is a port of its own to them.

use block::Class;
use contract::{ListenerId, Loss};
use reservation::{PathGroup, PathState};
use wire::iscsi::LoginStatus;
use wire::scsi::alua::{AccessReason, AccessState, PortGroups, SetPortGroups};
use wire::scsi::persistent::{FullStatusList, ReserveOut};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, SenseKey, ServiceAction};

use super::memory::{give, hog};
use super::world::{
    Host, Order, Said, TARGET, World, flush, pattern, read, refused, target, write,
};
use crate::target::{Portal, Target};

const STANDBY: AdditionalSense = AdditionalSense::ALUA_STANDBY;
const CHANGED: AdditionalSense = AdditionalSense::ASYMMETRIC_ACCESS_CHANGED;

fn group(number: u16) -> PathGroup {
    PathGroup::new(number).expect("a group")
}

/// A world with listeners of groups 1 and 2, in which the next connections come by this one.
fn come_by(world: &mut World, number: u16) {
    let portal = |number| Portal { group: group(number), ..Portal::default() };
    world.shard.shared.set_portal(ListenerId(0), portal(number));
    world.shard.shared.set_portal(ListenerId(1), portal(3 - number));
}

/// A session by group 1 and one by group 2.
fn two() -> (World, [usize; 2]) {
    let mut world = World::exporting([settable()]);
    let links = [1, 2].map(|number| {
        come_by(&mut world, number);
        world.join(&[("InitialR2T", "No")])
    });
    (world, links)
}

/// [`target`], whose hosts may set states.
fn settable() -> Target {
    let mut target = target();
    target.units.iter_mut().for_each(|unit| unit.unit.hosts_set_paths = true);
    target
}

/// SET TARGET PORT GROUPS from a link.
fn set(world: &mut World, link: usize, states: &[(u16, AccessState)]) {
    let list = SetPortGroups(states.into()).emit();
    let mut cdb = Cdb::with_action(ServiceAction::SET_TARGET_PORT_GROUPS);
    cdb.0[6..10].copy_from_slice(&(list.len() as u32).to_be_bytes());
    world.command(link, Order::write(0, cdb, list.len() as u32), &list);
}

fn groups(world: &mut World, link: usize) -> PortGroups {
    let mut cdb = Cdb::with_action(ServiceAction::REPORT_TARGET_PORT_GROUPS);
    cdb.0[8] = 1;
    world.command(link, Order::read(0, cdb, 256), &[]);
    let said = world.said(link);
    PortGroups::parse(data(&said[0])).expect("groups")
}

/// The data that came.
fn data(said: &Said) -> &[u8] {
    match said {
        Said::Data(_, data) => data,
        other => panic!("expected data, got {other:?}"),
    }
}

fn on(world: &mut World, link: usize, order: Order) -> Said {
    world.command(link, order, &[]);
    world.said(link).pop().expect("an answer")
}

#[test]
fn blocks_are_reached_by_a_listener_that_serves_and_by_no_other() {
    for (state, code) in [
        (PathState::Standby, STANDBY),
        (PathState::Unavailable, AdditionalSense::ALUA_UNAVAILABLE),
        (PathState::Transitioning, AdditionalSense::ALUA_TRANSITION),
    ] {
        let (mut world, [first, second]) = two();
        world.set_path(group(1), state);
        // Every port tells of all, so hosts of every port are told.
        for link in [first, second] {
            refused(&on(&mut world, link, flush()), SenseKey::UNIT_ATTENTION, CHANGED);
        }
        for order in [flush(), read(0, 512), Order::new(0, Cdb::test_unit_ready())] {
            refused(&on(&mut world, first, order), SenseKey::NOT_READY, code);
        }
        world.command(first, write(0, 512), &pattern(512, 1));
        refused(&world.said_one(first), SenseKey::NOT_READY, code);
        assert!(world.log.is_empty(), "{state}");
        assert_eq!(on(&mut world, second, flush()).status(), ScsiStatus::GOOD);
        let inquiry = on(&mut world, first, Order::read(0, Cdb::inquiry(96), 96));
        assert_eq!(inquiry.status(), ScsiStatus::GOOD, "{state}");
        world.set_path(group(1), PathState::NonOptimized);
        refused(&on(&mut world, first, flush()), SenseKey::UNIT_ATTENTION, CHANGED);
        assert_eq!(on(&mut world, first, flush()).status(), ScsiStatus::GOOD);
    }
}

#[test]
fn who_waits_is_judged_by_the_state_when_it_starts() {
    // Its data come.
    let (mut world, [first, _]) = two();
    world.command(first, write(0, 16_384), &[]);
    let r2t = world.said_one(first).r2t();
    world.set_path(group(1), PathState::Standby);
    refused(&world.granted(&r2t, &pattern(16_384, 1), 8192), SenseKey::NOT_READY, STANDBY);
    // It waits for memory.
    let (mut world, [first, _]) = two();
    let pages = hog(&mut world, Class::Transfer, 4096);
    world.command(first, read(0, 4096), &[]);
    assert!(world.said(first).is_empty());
    world.set_path(group(1), PathState::Standby);
    give(&mut world, pages);
    assert!(!world.wake(first));
    refused(&world.said_one(first), SenseKey::NOT_READY, STANDBY);
    assert!(world.log.is_empty());
    // It has several steps, and one is below.
    let (mut world, [first, _]) = two();
    world.hold_requests = true;
    let same = Order::write(0, Cdb::write_same_16(0, 256, false, false), 512);
    world.command(first, same, &pattern(512, 3));
    assert_eq!(world.shard.below.held.len(), 1);
    world.set_path(group(1), PathState::Standby);
    world.release_requests();
    world.run();
    refused(&world.said_one(first), SenseKey::NOT_READY, STANDBY);
    assert_eq!((world.log.len(), world.shard.below.held.len()), (1, 0));
}

#[test]
fn hosts_tell_and_set_the_states_and_all_others_hear_of_it() {
    let (mut world, [first, second]) = two();
    set(&mut world, second, &[(1, AccessState::STANDBY), (2, AccessState::ACTIVE_NON_OPTIMIZED)]);
    assert_eq!(world.said_one(second).status(), ScsiStatus::GOOD);
    assert_eq!(on(&mut world, second, flush()).status(), ScsiStatus::GOOD, "it knows");
    refused(&on(&mut world, first, flush()), SenseKey::UNIT_ATTENTION, CHANGED);
    for link in [first, second] {
        let PortGroups(told) = groups(&mut world, link);
        let told: Vec<_> =
            told.iter().map(|one| (one.id, one.state, one.reason, one.ports.clone())).collect();
        let set = AccessReason::SET;
        assert_eq!(
            told,
            [
                (1, AccessState::STANDBY, set, vec![1]),
                (2, AccessState::ACTIVE_NON_OPTIMIZED, set, vec![2])
            ]
        );
    }
    // A path in standby is a way to open itself.
    set(&mut world, first, &[(1, AccessState::ACTIVE_OPTIMIZED)]);
    assert_eq!(world.said_one(first).status(), ScsiStatus::GOOD);
    assert_eq!(on(&mut world, first, flush()).status(), ScsiStatus::GOOD);
    refused(&on(&mut world, second, flush()), SenseKey::UNIT_ATTENTION, CHANGED);
    set(&mut world, first, &[(3, AccessState::STANDBY)]);
    let invalid = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
    refused(&world.said_one(first), SenseKey::ILLEGAL_REQUEST, invalid);
    world.is_broken = true;
    set(&mut world, first, &[(1, AccessState::STANDBY)]);
    let failed = AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED;
    refused(&world.said_one(first), SenseKey::HARDWARE_ERROR, failed);
    assert_eq!(on(&mut world, first, flush()).status(), ScsiStatus::GOOD);
}

#[test]
fn a_state_that_a_session_asked_for_as_it_went_is_set_and_answered_to_nobody() {
    let (mut world, [first, second]) = two();
    world.hold_changes = true;
    set(&mut world, first, &[(1, AccessState::UNAVAILABLE)]);
    world.with(first, |connection, ctx| connection.handle_lost(Loss::EndOfStream, ctx));
    world.run();
    world.closed(first);
    assert!(!world.links[first].connection.is_gone(), "its change is undecided");
    world.hold_changes = false;
    world.run();
    assert!(world.links[first].connection.is_gone());
    assert_eq!(world.shard.paths.state(group(1)), PathState::Unavailable);
    refused(&on(&mut world, second, flush()), SenseKey::UNIT_ATTENTION, CHANGED);
}

#[test]
fn hosts_set_nothing_where_the_configuration_does_not_say_so() {
    let mut world = World::connected_with(&[("InitialR2T", "No")]);
    set(&mut world, 0, &[(1, AccessState::STANDBY)]);
    let unknown = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    refused(&world.said_one(0), SenseKey::ILLEGAL_REQUEST, unknown);
    assert_eq!(world.ask(flush(), &[]).status(), ScsiStatus::GOOD);
}

#[test]
fn each_group_is_a_port_with_sessions_and_registrants_of_its_own() {
    let mut world = World::exporting([target()]);
    let links = [1, 2].map(|number| {
        come_by(&mut world, number);
        let link = world.accept();
        world.links[link].host = Host::new([0x80, 0, 0, 0, 0, 9], 1);
        let said = world.log_in(link, Some(TARGET), &[("InitialR2T", "No")]);
        assert_eq!(said.login(), LoginStatus::SUCCESS);
        link
    });
    // The same ISID by another port reinstates nothing.
    assert!(world.links.iter().all(|link| link.connection.is_open()));
    let list = ReserveOut { key: 0, action_key: 5, ..ReserveOut::default() };
    let register = |world: &mut World, link, list: &ReserveOut| {
        let list = list.emit();
        let action = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
        let cdb = Cdb::persistent_reserve_out(action, 0, list.len() as u32);
        world.command(link, Order::write(0, cdb, list.len() as u32), &list);
        world.said_one(link).status()
    };
    let status = |world: &mut World| {
        let action = ServiceAction::PERSISTENT_RESERVE_IN_READ_FULL_STATUS;
        let order = Order::read(0, Cdb::persistent_reserve_in(action, 4096), 4096);
        world.command(links[0], order, &[]);
        let said = world.said(links[0]);
        let list = FullStatusList::parse(data(&said[0])).expect("full status");
        list.registrants.iter().map(|one| (one.relative_port, one.key)).collect::<Vec<_>>()
    };
    assert_eq!(register(&mut world, links[1], &list), ScsiStatus::GOOD);
    assert_eq!(status(&mut world), [(2, 5)]);
    // By all ports at once (ALL_TG_PT), and by none.
    let all = ReserveOut { all_ports: true, action_key: 7, ..list };
    assert_eq!(register(&mut world, links[0], &all), ScsiStatus::GOOD);
    assert_eq!(status(&mut world), [(2, 7), (1, 7)]);
    let none = ReserveOut { key: 7, action_key: 0, ..all };
    assert_eq!(register(&mut world, links[1], &none), ScsiStatus::GOOD);
    assert_eq!(status(&mut world), []);
}
