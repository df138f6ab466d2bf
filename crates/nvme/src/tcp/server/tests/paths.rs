//! The state of the listener by which a host came: what it refuses, and what the host is told of it.
//! Who waits when it changes is in `judged_anew`. Checklist 24.

use contract::ListenerId;
use reservation::{PathChange, PathGroup, PathState, SetBy};
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::command::NSID_ALL;
use wire::nvme::identify::{Cns, IdentifyNamespace, IdentifyNamespaceIndependent};
use wire::nvme::log::{AnaLog, AnaState, LogId};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::Digests;

use super::fused::{compare, write};
use super::transfer::IO;
use super::world::{Said, World, pattern, statuses};

const ADMIN: usize = 0;

/// The groups of these listeners are in this state from now on, and hosts hear of it.
fn set(world: &mut World, group: PathGroup, state: PathState) {
    let change = PathChange { states: vec![(group, state)], by: SetBy::Administrator };
    let (_, changed) = world.shard.decide_paths(&change);
    world.shard.shared.paths_changed(&changed);
    world.run();
}

/// That by which the world's host came serves no more.
pub(super) fn close_path(world: &mut World) {
    set(world, PathGroup::DEFAULT, PathState::Standby);
}

fn log(world: &mut World, retain: bool, specific: u8) -> AnaLog {
    let mut command = Command::get_log(LogId::ANA, 0, 0, 64, retain);
    let cdw10 = command.cdw(10) | u32::from(specific) << 8;
    command.0[40..44].copy_from_slice(&cdw10.to_le_bytes());
    world.command(ADMIN, command);
    AnaLog::parse(&data(world, ADMIN)).expect("a log")
}

/// The data that came on a connection.
fn data(world: &mut World, link: usize) -> Vec<u8> {
    match &world.said(link)[0] {
        Said::Data(_, data) => data.clone(),
        other => panic!("expected data, got {other:?}"),
    }
}

/// The statuses of commands that go to a volume, of each kind.
fn outcomes(world: &mut World) -> Vec<Status> {
    let plain = [
        Command::read(1, 0, 1, 512),
        Command::verify(1, 0, 8),
        Command::write_zeroes(1, 3, 1, true),
        Command::flush(1),
        Command::flush(NSID_ALL),
    ];
    let mut seen: Vec<Status> = plain
        .into_iter()
        .map(|command| {
            world.command(IO, command);
            world.said(IO).last().expect("an answer").status()
        })
        .collect();
    seen.push(world.ask_with(IO, Command::write(1, 3, 1, 512), &pattern(512, 1)).status());
    seen
}

#[test]
fn blocks_are_reached_by_a_listener_that_serves_and_by_no_other() {
    for (state, expected) in [
        (PathState::NonOptimized, Status::SUCCESS),
        (PathState::Standby, Status::ANA_INACCESSIBLE),
        (PathState::Unavailable, Status::ANA_INACCESSIBLE),
        (PathState::Transitioning, Status::ANA_TRANSITION),
    ] {
        let mut world = World::connected(Digests::NONE);
        set(&mut world, PathGroup::DEFAULT, state);
        let seen = outcomes(&mut world);
        // Without DNR: hosts repeat it by another path.
        assert!(seen.iter().all(|status| *status == expected), "{state}: {seen:?}");
        assert_eq!(world.log.is_empty(), !state.serves(), "{state}");
        // A report is an I/O command, too.
        let report = Command::reservation_report(1, 4096);
        world.command(IO, report);
        assert_eq!(world.said(IO).last().expect("an answer").status(), expected, "{state}");
        set(&mut world, PathGroup::DEFAULT, PathState::Optimized);
        assert!(outcomes(&mut world).iter().all(|status| status.is_success()));
    }
}

#[test]
fn a_fused_pair_goes_by_no_path_that_does_not_serve() {
    let mut world = World::connected(Digests::NONE);
    close_path(&mut world);
    world.command_with(IO, compare(1), &[0; 512]);
    world.command_with(IO, write(1), &pattern(512, 1));
    let refused = [(1, Status::ANA_INACCESSIBLE), (2, Status::FUSED_FAILED)];
    assert_eq!(statuses(&mut world), refused);
    assert!(world.log.is_empty());
}

#[test]
fn no_memory_is_lent_by_a_path_that_does_not_serve() {
    let mut world = World::connected(Digests::NONE);
    close_path(&mut world);
    // It would panic: there is nothing to lend.
    world.shard.below.lends = true;
    let refused = world.ask(IO, Command::read(1, 0, 8, 4096)).status();
    assert_eq!(refused, Status::ANA_INACCESSIBLE);
}

#[test]
fn a_host_is_told_of_its_own_path_once_until_it_reads_the_log() {
    let mut world = World::connected(Digests::NONE);
    world.command(ADMIN, Command::set_features(0x0b, 0, 1 << 11, 0).with_command_id(1));
    assert!(world.said_one(ADMIN).status().is_success());
    for command_id in [2, 3] {
        world.command(ADMIN, Command::async_event_request().with_command_id(command_id));
    }
    let other = PathGroup::new(2).expect("a group");
    set(&mut world, other, PathState::Standby);
    assert!(world.said(ADMIN).is_empty(), "it is another's path");
    set(&mut world, PathGroup::DEFAULT, PathState::NonOptimized);
    let event = world.said_one(ADMIN).response();
    assert_eq!(
        (event.command_id, event.result),
        (2, AsyncEvent::ACCESS_CHANGED.to_result().into())
    );
    set(&mut world, PathGroup::DEFAULT, PathState::Transitioning);
    assert!(world.said(ADMIN).is_empty(), "it has not looked");
    let seen = log(&mut world, true, 0);
    assert_eq!((seen.change_count, seen.groups.len()), (2, 1));
    assert_eq!((seen.groups[0].id, seen.groups[0].state), (1, AnaState::CHANGE));
    assert_eq!(seen.groups[0].nsids, [1, 2, 5]);
    set(&mut world, PathGroup::DEFAULT, PathState::Standby);
    assert!(world.said(ADMIN).is_empty(), "RAE 1 leaves it masked");
    let seen = log(&mut world, false, AnaLog::GROUPS_ONLY);
    assert_eq!((seen.groups[0].state, seen.groups[0].nsids.len()), (AnaState::INACCESSIBLE, 0));
    set(&mut world, PathGroup::DEFAULT, PathState::Optimized);
    assert_eq!(world.said_one(ADMIN).response().command_id, 3);
}

#[test]
fn a_host_that_did_not_ask_for_it_is_not_told() {
    let mut world = World::connected(Digests::NONE);
    world.command(ADMIN, Command::set_features(0x0b, 0, 1 << 8, 0).with_command_id(1));
    assert!(world.said_one(ADMIN).status().is_success());
    world.command(ADMIN, Command::async_event_request().with_command_id(2));
    close_path(&mut world);
    assert!(world.said(ADMIN).is_empty());
}

#[test]
fn namespaces_are_in_the_group_of_the_listener_by_which_their_host_came() {
    let mut world = World::new();
    let group = PathGroup::new(3).expect("a group");
    world.shard.shared.set_listener(ListenerId(0), group);
    let (admin, controller) = world.connect_admin(Digests::NONE);
    let mut identify = |cns| {
        world.command(admin, Command::identify(cns, 1));
        data(&mut world, admin)
    };
    let namespace = IdentifyNamespace::parse(&identify(Cns::NAMESPACE)).expect("a namespace");
    let independent = IdentifyNamespaceIndependent::parse(&identify(Cns::NAMESPACE_INDEPENDENT));
    assert_eq!((namespace.anagrpid, independent.expect("a namespace").anagrpid), (3, 3));
    let io = world.connect_io(Digests::NONE, controller, 31, false);
    set(&mut world, PathGroup::DEFAULT, PathState::Unavailable);
    assert!(world.ask(io, Command::flush(1)).status().is_success());
    set(&mut world, group, PathState::Unavailable);
    assert_eq!(world.ask(io, Command::flush(1)).status(), Status::ANA_INACCESSIBLE);
}
