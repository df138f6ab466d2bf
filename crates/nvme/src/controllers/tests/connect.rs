//! Checklist 12, 19, 41 and 44: the error matrix of Connect, queue numbers, CNTLIDs, and who may
//! try again.

use contract::{HostEvent, ListenerId, Refused};
use reservation::PathGroup;

use super::*;

/// DW0 of 0x182: the offset, and that it lies in the data.
const IN_DATA: u64 = 1 << 16;

fn refused(world: &mut World, ask: &Ask) -> (Status, u64) {
    let (_, reply) = world.connect(ask);
    assert!(reply.queue.is_none() && reply.close, "{reply:?}");
    (reply.status, reply.result)
}

#[test]
fn connect_returns_the_controller_and_what_the_queue_is() {
    let mut world = World::new(1);
    let (_, reply) = world.connect(&Ask::default());
    let view = reply.queue.expect("a queue");
    assert_eq!((reply.command_id, reply.result), (7, u64::from(view.controller)));
    assert_eq!((view.queue_id, view.depth, view.flow_control_off), (0, 32, true));
}

#[test]
fn bad_parameters_are_named_by_their_offset() {
    let mut world = World::new(1);
    let bad = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
    let (_, admin) = world.ready(&Ask::default());
    let io = |queue_id| Ask::io(0, admin.controller, queue_id);
    for (ask, result) in [
        (Ask { sq_size: 0, ..Ask::default() }, 44),
        (Ask { sq_size: 128, ..Ask::default() }, 44),
        (Ask { controller: 1, ..Ask::default() }, IN_DATA | 16),
        (Ask { subsystem: OTHER.into(), ..Ask::default() }, IN_DATA | 256),
        (Ask { sq_size: 0, ..io(1) }, 44),
        (Ask { sq_size: 1024, ..io(1) }, 44),
        (io(129), 42),
        (Ask { controller: 0, ..io(1) }, IN_DATA | 16),
        (Ask { controller: 0xfff0, ..io(1) }, IN_DATA | 16),
        (Ask { controller: admin.controller + 1, ..io(1) }, IN_DATA | 16),
        (Ask { host: Host { id: [9; 16], ..host(1) }, ..io(1) }, IN_DATA),
        (Ask { host: host(2), ..io(1) }, IN_DATA | 512),
        (Ask { subsystem: OTHER.into(), ..io(1) }, IN_DATA | 256),
        (Ask { subsystem: Nqn::DISCOVERY.into(), ..io(1) }, 42),
    ] {
        assert_eq!(refused(&mut world, &ask), (bad, result), "{ask:?}");
    }
    // Not the admin queue's.
    world.export_to(OTHER, &[host(1)]);
    let other = Ask { subsystem: OTHER.into(), ..io(1) };
    assert_eq!(refused(&mut world, &other), (bad, IN_DATA | 256));
    // The largest that are allowed.
    world.join(&Ask { sq_size: 1023, ..io(128) });
    world.join(&Ask { sq_size: 127, ..Ask::default() });
}

#[test]
fn all_queues_of_a_controller_come_by_listeners_of_one_group() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let (_, admin) = world.ready(&Ask::default());
        let other = PathGroup::new(2).expect("a group");
        let to_all = |world: &mut World, group| {
            let all = world.shards.iter_mut();
            all.for_each(|controllers| controllers.set_listener(ListenerId(0), group));
        };
        to_all(&mut world, other);
        let io = Ask::io(shards - 1, admin.controller, 1);
        let bad = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        assert_eq!(refused(&mut world, &io), (bad, IN_DATA | 16));
        to_all(&mut world, PathGroup::DEFAULT);
        let (_, view) = world.join(&io);
        assert_eq!(view.group, PathGroup::DEFAULT);
    }
}

#[test]
fn names_that_are_none_are_refused_with_their_offset() {
    let mut world = World::new(1);
    // An empty HOSTNQN is none of them.
    for (at, byte) in [(256, 0), (256, 0xff), (512, 0xff)] {
        let line = world.line(0);
        let mut data = Ask::default().data();
        data[at..at + 256].fill(byte);
        let answer = world.start_on(line, &Ask::default(), &data);
        let Answer::Now(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(reply.status, Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        assert_eq!(reply.result, IN_DATA | at as u64);
        let answer = world.start_on(line, &Ask::default(), &data[..1023]);
        let Answer::Now(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(reply.status, Status::INVALID_SGL_LENGTH.with_dnr());
    }
    world.assert_empty();
}

#[test]
fn an_unknown_record_format_is_incompatible() {
    let mut world = World::new(1);
    let ask = Ask { record_format: 1, ..Ask::default() };
    let status = Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr();
    assert_eq!(refused(&mut world, &ask), (status, 0));
}

#[test]
fn a_host_that_is_not_named_is_denied() {
    let mut world = World::new(1);
    world.admit(&[host(2)]);
    let status = Status::CONNECT_INVALID_HOST.with_dnr();
    assert_eq!(refused(&mut world, &Ask::default()), (status, 0));
    world.join(&Ask { host: host(2), ..Ask::default() });
}

#[test]
fn a_host_without_a_name_is_known_by_its_hostid_where_every_host_may_connect() {
    let mut world = World::new(1);
    let nameless = |number| Ask { nameless: true, host: host(number), ..Ask::default() };
    let (_, first) = world.ready(&nameless(1));
    let (_, other) = world.ready(&nameless(2));
    world.join(&Ask { nameless: true, ..Ask::io(0, first.controller, 1) });
    // Its queues are its own: neither a host of another HOSTID nor one with a name joins them.
    let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
    let io = Ask { nameless: true, host: host(1), ..Ask::io(0, other.controller, 1) };
    assert_eq!(refused(&mut world, &io).0, status);
    assert_eq!(refused(&mut world, &Ask::io(0, first.controller, 2)).0, status);
    world.admit(&[host(1), host(2)]);
    let status = Status::CONNECT_INVALID_HOST.with_dnr();
    assert_eq!(refused(&mut world, &nameless(1)), (status, 0));
}

#[test]
fn a_subsystem_that_may_still_be_configured_is_refused_without_dnr() {
    let now = Instant(0);
    let mut world = World::new(1);
    world.shards = vec![Controllers::new(now, ShardId(0), 1)];
    let (status, result) = refused(&mut world, &Ask::default());
    assert_eq!((status, result), (Status::CONNECT_INVALID_PARAMETERS, IN_DATA | 256));
    world.change(|_| ());
    world.join(&Ask::default());
}

#[test]
fn a_first_command_that_is_no_connect_is_out_of_sequence() {
    let mut world = World::new(1);
    let line = world.line(0);
    let reply = world.admin(line, &Command::keep_alive());
    assert_eq!(reply.status, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    assert!(reply.close);
}

#[test]
fn a_second_connect_on_a_queue_is_out_of_sequence() {
    let (mut world, admin, view) = World::ready_on(1);
    let (io, _) = world.join(&Ask::io(0, view.controller, 1));
    let again = Ask::default().command();
    world.refuses(admin, &again, Status::COMMAND_SEQUENCE_ERROR);
    let now = world.now;
    let answer = world.of(io).fabrics_command_on_io_queue(now, io.key, &again);
    let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
    assert_eq!(answer, Answer::Now(Reply::new(7, status)));
}

#[test]
fn an_io_queue_needs_a_ready_controller() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let (admin, view) = world.join(&Ask::default());
        let io = Ask::io(shards - 1, view.controller, 1);
        let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
        assert_eq!(refused(&mut world, &io), (status, 0));
        world.set_cc(admin, ENABLE);
        world.join(&io);
    }
}

#[test]
fn a_queue_number_is_used_once_and_free_again_after_draining() {
    for shards in [1, 2] {
        let (mut world, _, view) = World::ready_on(shards);
        let ask = Ask::io(shards - 1, view.controller, 1);
        let (io, _) = world.join(&ask);
        let status = Status::COMMAND_SEQUENCE_ERROR;
        assert_eq!(refused(&mut world, &ask).0, status.with_dnr());
        // The connection is lost, but something is still below: come again later.
        world.cut(io);
        world.settle();
        assert_eq!(refused(&mut world, &ask).0, status);
        world.drained(io);
        world.settle();
        world.join(&ask);
    }
}

#[test]
fn queues_beyond_the_granted_number_are_refused() {
    let (mut world, admin, view) = World::ready_on(1);
    let four = Command::set_features(7, 0, 3 << 16 | 3, 0);
    assert_eq!(world.admin(admin, &four).result, 3 << 16 | 3);
    for queue_id in 1..=4 {
        world.join(&Ask::io(0, view.controller, queue_id));
    }
    let bad = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
    assert_eq!(refused(&mut world, &Ask::io(0, view.controller, 5)), (bad, 42));
}

#[test]
fn controllers_of_one_subsystem_have_numbers_of_their_own_that_name_their_shard() {
    let mut world = World::new(3);
    let mut seen = Vec::new();
    for round in 0..4_u8 {
        for shard in 0..3 {
            let ask = Ask { shard, host: host(round), ..Ask::default() };
            let (_, view) = world.join(&ask);
            assert_eq!(view.controller % 3, shard);
            assert!((1..=0xffef).contains(&view.controller));
            assert!(!seen.contains(&view.controller), "{} twice", view.controller);
            seen.push(view.controller);
        }
    }
}

#[test]
fn a_controller_number_comes_again_only_after_all_others() {
    let mut world = World::new(1);
    let (_, keep) = world.join(&Ask::default());
    let mut last = keep.controller;
    for _ in 0..0xffef {
        let (line, view) = world.join(&Ask::default());
        let next = if last == 0xffef { 2 } else { last + 1 };
        assert_eq!(view.controller, next, "after {last}");
        last = next;
        world.lose(line);
    }
    assert_eq!(keep.controller, 1);
}

#[test]
fn a_host_cannot_have_controllers_without_bound() {
    let mut world = World::new(1);
    for _ in 0..crate::limits::CONTROLLERS_PER_HOST_MAX {
        world.join(&Ask::default());
    }
    assert_eq!(refused(&mut world, &Ask::default()), (Status::CONNECT_BUSY, 0));
    world.join(&Ask { host: host(2), ..Ask::default() });
}

#[test]
fn a_host_whose_old_queue_hangs_is_busy_and_recovers_once_it_drains() {
    for shards in [1, 2] {
        let (mut world, admin, view) = World::ready_on(shards);
        let (io, _) = world.join(&Ask::io(shards - 1, view.controller, 1));
        world.lose(admin);
        world.settle();
        assert_eq!(world.take_close(io), Some(CloseReason::AdminQueueLost));
        // The disk below the I/O queue does not answer.
        let again = Ask { shard: shards - 1, ..Ask::default() };
        let line = world.start_later(&again);
        world.settle();
        assert_eq!(world.take_reply(line), None, "it waits a moment");
        world.pass(crate::limits::HOST_HOLD);
        let reply = world.take_reply(line).expect("then it is told");
        assert_eq!((reply.status, reply.close), (Status::CONNECT_BUSY, true));
        // Another host is not concerned.
        world.join(&Ask { host: host(2), ..Ask::default() });
        // The disk answers while the next Connect waits.
        let line = world.start_later(&again);
        world.settle();
        world.drained(io);
        world.settle();
        let reply = world.take_reply(line).expect("it is let in");
        assert_eq!(reply.status, Status::SUCCESS);
        assert_ne!(reply.result, u64::from(view.controller));
    }
}

#[test]
fn a_queue_that_drains_beside_a_live_controller_holds_the_next_connect_too() {
    for shards in [1, 2] {
        let (mut world, _, view) = World::ready_on(shards);
        let (io, _) = world.join(&Ask::io(shards - 1, view.controller, 1));
        world.cut(io);
        world.settle();
        let line = world.start_later(&Ask::default());
        world.settle();
        assert_eq!(world.take_reply(line), None);
        world.drained(io);
        world.settle();
        assert_eq!(world.take_reply(line).map(|reply| reply.status), Some(Status::SUCCESS));
    }
}

#[test]
fn who_comes_goes_and_is_refused_is_told_and_discovery_is_not() {
    let mut world = World::new(1);
    let told = |world: &mut World| -> Vec<(String, HostEvent)> {
        let news = core::iter::from_fn(|| world.shards[0].poll_host_news());
        news.map(|news| (news.host, news.event)).collect()
    };
    let (line, _) = world.ready(&Ask::default());
    let name = host(1).nqn.to_string();
    assert_eq!(told(&mut world), [(name.clone(), HostEvent::Connected)]);
    world.ready(&Ask { subsystem: Nqn::DISCOVERY.into(), ..Ask::default() });
    assert_eq!(told(&mut world), []);
    world.lose(line);
    let why = "its connection was closed or lost";
    assert_eq!(told(&mut world), [(name.clone(), HostEvent::Left(why))]);
    refused(&mut world, &Ask { subsystem: OTHER.into(), ..Ask::default() });
    world.admit(&[host(2)]);
    refused(&mut world, &Ask::default());
    let refusals = [Refused::NotExported, Refused::NotNamed].map(HostEvent::Refused);
    assert_eq!(told(&mut world), refusals.map(|event| (name.clone(), event)));
}
