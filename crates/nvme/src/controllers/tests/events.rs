//! Checklist 20, 31 and 32: asynchronous events, the changed namespace list, the discovery log and
//! its event.

use wire::nvme::async_event::AsyncEvent;
use wire::nvme::log::{ChangedNamespaces, DiscoveryEntry, DiscoveryHeader, LogId};

use super::*;

const NAMESPACES: u32 = 1 << 8;
const DISCOVERY: u32 = 1 << 31;

fn request(world: &mut World, line: Line, command_id: u16) -> Answer {
    let command = Command::async_event_request().with_command_id(command_id);
    world.start_command(line, &command, &[])
}

fn want(world: &mut World, line: Line, events: u32) {
    let reply = world.admin(line, &Command::set_features(0x0b, 0, events, 0));
    assert_eq!(reply.status, Status::SUCCESS);
}

fn changed(world: &mut World, line: Line, retain: bool) -> Vec<u32> {
    let command = Command::get_log(LogId::CHANGED_NAMESPACES, 0, 0, 4096, retain);
    ChangedNamespaces::parse(&world.admin(line, &command).data.bytes).collect()
}

fn resize(world: &mut World, nsid: u32, blocks: u64) {
    world.put([Namespace { blocks: BlockCount(blocks), ..namespace(nsid) }]);
}

#[test]
fn more_requests_than_aerl_allows_are_refused() {
    let (mut world, line, _) = World::ready_on(1);
    for command_id in 0..4 {
        assert_eq!(request(&mut world, line, command_id), Answer::Later);
    }
    let status = Status::ASYNC_EVENT_LIMIT_EXCEEDED.with_dnr();
    assert_eq!(request(&mut world, line, 4), Answer::Now(Reply::new(4, status)));
}

#[test]
fn one_event_is_told_until_its_log_is_read() {
    let (mut world, line, _) = World::ready_on(1);
    want(&mut world, line, NAMESPACES);
    request(&mut world, line, 10);
    request(&mut world, line, 11);
    resize(&mut world, 1, 4096);
    let reply = world.take_reply(line).expect("an event");
    assert_eq!(reply.command_id, 10);
    assert_eq!(reply.result, u64::from(AsyncEvent::NAMESPACE_CHANGED.to_result()));
    resize(&mut world, 2, 4096);
    assert_eq!(world.take_reply(line), None, "masked until the log is read");
    assert_eq!(changed(&mut world, line, true), [1, 2]);
    resize(&mut world, 2, 8192);
    assert_eq!(world.take_reply(line), None, "RAE 1 leaves it masked");
    assert_eq!(changed(&mut world, line, false), [1, 2]);
    assert_eq!(changed(&mut world, line, false), []);
    world.take_out(2);
    assert_eq!(world.take_reply(line).map(|reply| reply.command_id), Some(11));
    assert_eq!(changed(&mut world, line, false), [2]);
}

#[test]
fn nothing_is_told_before_every_shard_has_it() {
    let (mut world, line, _) = World::ready_on(2);
    want(&mut world, line, NAMESPACES);
    request(&mut world, line, 10);
    let subsystem = fixtures::subsystem([namespace(1), namespace(5)]);
    for controllers in &mut world.shards {
        controllers.set_subsystem(world.now, subsystem.clone());
    }
    world.collect();
    assert_eq!(world.take_reply(line), None, "a queue of the other shard may not know it yet");
    assert_eq!(changed(&mut world, line, true), []);
    world.configure(|_, _| {});
    assert_eq!(world.take_reply(line).map(|reply| reply.command_id), Some(10));
    assert_eq!(changed(&mut world, line, false), [5]);
}

#[test]
fn an_event_waits_for_a_request() {
    let (mut world, line, _) = World::ready_on(1);
    want(&mut world, line, NAMESPACES);
    resize(&mut world, 1, 4096);
    let Answer::Now(reply) = request(&mut world, line, 3) else { panic!("there is an event") };
    assert_eq!(reply.result, u64::from(AsyncEvent::NAMESPACE_CHANGED.to_result()));
    assert_eq!(request(&mut world, line, 3), Answer::Later);
}

#[test]
fn an_event_that_is_not_wanted_is_not_told() {
    let (mut world, line, _) = World::ready_on(1);
    request(&mut world, line, 1);
    resize(&mut world, 1, 4096);
    assert_eq!(world.take_reply(line), None);
    assert_eq!(changed(&mut world, line, true), [1], "but it is in the log");
    want(&mut world, line, NAMESPACES);
    assert!(world.take_reply(line).is_some());
}

#[test]
fn a_change_that_changes_nothing_is_no_event() {
    let (mut world, line, view) = World::ready_on(1);
    want(&mut world, line, NAMESPACES);
    request(&mut world, line, 1);
    resize(&mut world, 1, 2048);
    assert_eq!(world.take_reply(line), None);
    resize(&mut world, 1, 4096);
    assert!(world.take_reply(line).is_some());
    let seen = world.of(line).namespace(view.handle, 1).map(|namespace| namespace.blocks);
    assert_eq!(seen, Some(BlockCount(4096)), "the data path sees the new size");
    for nsid in [0, 2, 1025, u32::MAX] {
        assert_eq!(world.of(line).namespace(view.handle, nsid), None);
    }
}

#[test]
fn the_namespaces_of_another_subsystem_are_not_ones_own() {
    let mut world = World::new(1);
    let other = Subsystem::new(nqn(OTHER), Hosts::Any);
    world.export(&other.clone().with_namespace(namespace(7)));
    let (line, view) = world.ready(&Ask::default());
    want(&mut world, line, NAMESPACES);
    request(&mut world, line, 1);
    world.export(&other);
    assert_eq!(world.take_reply(line), None);
    assert_eq!(world.of(line).namespace(view.handle, 7), None);
}

fn discovery_ask() -> Ask {
    Ask { subsystem: Nqn::DISCOVERY.into(), ..Ask::default() }
}

/// GENCTR and the names in the log, as a host reads it.
fn discover(world: &mut World, line: Line) -> (u64, Vec<String>) {
    let read = |world: &mut World, offset, bytes| {
        let command = Command::get_log(LogId::DISCOVERY, 0, offset, bytes, true);
        let reply = world.admin(line, &command);
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data.bytes
    };
    let header = DiscoveryHeader::parse(&read(world, 0, 1024)).expect("a header");
    let names = (1..=header.records).map(|record| {
        let data = read(world, record * 1024, 1024);
        let entry = DiscoveryEntry::parse(&data).expect("an entry");
        let address = [entry.address_text(), entry.service_text()];
        assert_eq!(address, ["192.0.2.1", "4420"]);
        assert_eq!((entry.controller_id, entry.admin_queue_size), (0xffff, 32));
        entry.subsystem().expect("a name").to_string()
    });
    (header.generation, names.collect())
}

#[test]
fn a_host_discovers_the_subsystems_it_may_use() {
    let mut world = World::new(1);
    let mine = "nqn.2026-11.net.plateway:mine";
    let (line, _) = world.ready(&discovery_ask());
    let (before, names) = discover(&mut world, line);
    assert_eq!(names, [SUBSYSTEM]);
    world.export_to(mine, &[host(1)]);
    world.export_to(OTHER, &[host(2)]);
    let (after, names) = discover(&mut world, line);
    assert_eq!(names, [mine, SUBSYSTEM]);
    assert!(after > before, "GENCTR {before} {after}");
    let beyond = Command::get_log(LogId::DISCOVERY, 0, 3 * 1024 + 4, 4, true);
    world.refuses(line, &beyond, Status::INVALID_FIELD);
}

#[test]
fn a_persistent_discovery_controller_is_told_of_changes_that_its_host_sees() {
    let mut world = World::new(2);
    let ask = Ask { shard: 1, keep_alive_ms: 120_000, ..discovery_ask() };
    let (line, _) = world.ready(&ask);
    want(&mut world, line, DISCOVERY);
    request(&mut world, line, 5);
    world.export_to(OTHER, &[host(2)]);
    assert_eq!(world.take_reply(line), None, "it is not for this host");
    world.export(&Subsystem::new(nqn(OTHER), Hosts::Any));
    let reply = world.take_reply(line).expect("an event");
    assert_eq!(reply.result, u64::from(AsyncEvent::DISCOVERY_CHANGED.to_result()));
    // Namespaces are no business of discovery; reading the log arms the event again.
    resize(&mut world, 1, 4096);
    request(&mut world, line, 6);
    world.admin(line, &Command::get_log(LogId::DISCOVERY, 0, 0, 1024, false));
    world.remove(OTHER);
    assert_eq!(world.take_reply(line).map(|reply| reply.command_id), Some(6));
    assert_eq!(discover(&mut world, line).1, [SUBSYSTEM]);
}

#[test]
fn a_discovery_controller_takes_no_other_commands() {
    let (mut world, line, _) = World::ready_as(1, &discovery_ask());
    let identify = |cns| Command::identify(wire::nvme::identify::Cns(cns), 1);
    let data = world.admin(line, &identify(1)).data.bytes;
    let controller = wire::nvme::identify::IdentifyController::parse(&data).expect("a controller");
    assert_eq!((controller.cntrltype, controller.oaes), (2, DISCOVERY));
    assert_eq!(controller.lpa & 1 << 1, 0, "it has no log of command effects");
    assert_eq!(controller.subsystem().expect("a name"), Nqn::discovery());
    for cns in [0, 2, 3, 8, 0x1c] {
        world.refuses(line, &identify(cns), Status::INVALID_FIELD);
    }
    for log in [LogId::SMART, LogId::ERROR, LogId::CHANGED_NAMESPACES] {
        let command = Command::get_log(log, 0, 0, 4, true);
        world.refuses(line, &command, Status::INVALID_LOG_PAGE);
    }
    for feature in [0x07, 0x06, 0x81] {
        let command = Command::get_features(feature, 0, 4096);
        world.refuses(line, &command, Status::INVALID_FIELD);
    }
    for feature in [0x0b, 0x0f] {
        let status = world.admin(line, &Command::get_features(feature, 0, 4096)).status;
        assert_eq!(status, Status::SUCCESS);
    }
    world.refuses(line, &Command::abort(0, 1), Status::INVALID_OPCODE);
    assert_eq!(world.admin(line, &Command::keep_alive()).status, Status::SUCCESS);
}
