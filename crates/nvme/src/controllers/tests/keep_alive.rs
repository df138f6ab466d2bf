//! Checklist 17 and 43: the keep-alive timer, and I/O that keeps a controller alive.

use super::*;

fn ask() -> Ask {
    Ask { keep_alive_ms: 5000, ..Ask::default() }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_silent_controller_fails_after_kato_and_not_before() {
    let (mut world, line, view) = World::ready_as(1, &ask());
    let (io, _) = world.join(&Ask::io(0, view.controller, 1));
    world.pass(seconds(4));
    assert!(world.closes.is_empty());
    world.pass(seconds(1));
    assert_eq!(world.take_close(io), Some(CloseReason::KeepAliveExpired));
    assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
    world.drained(io);
    world.drained(line);
    world.assert_empty();
    assert_eq!(world.shards[0].poll_timeout(), None, "nothing is left to be woken for");
}

#[test]
fn keep_alive_commands_keep_it_alive() {
    let (mut world, line, _) = World::ready_as(1, &ask());
    for _ in 0..10 {
        world.pass(seconds(4));
        assert_eq!(world.admin(line, &Command::keep_alive()).status, Status::SUCCESS);
    }
    world.pass(seconds(4));
    assert!(world.closes.is_empty());
    world.pass(seconds(1));
    assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
}

#[test]
fn a_keep_alive_sets_the_timer_back() {
    let (mut world, line, _) = World::ready_as(1, &ask());
    for _ in 0..4 {
        world.pass(seconds(2));
        assert_eq!(world.admin(line, &Command::keep_alive()).status, Status::SUCCESS);
        let due = world.shards[0].poll_timeout();
        assert_eq!(due, Some(world.now + seconds(5)), "nobody is woken to find that it lives");
    }
}

#[test]
fn io_alone_keeps_it_alive_on_every_shard() {
    for shard in [0, 1] {
        let (mut world, line, view) = World::ready_as(2, &ask());
        let (io, io_view) = world.join(&Ask::io(shard, view.controller, 1));
        for _ in 0..10 {
            world.pass(seconds(4));
            let now = world.now;
            world.of(io).command_heard(now, io_view.handle, 1).expect("the queue is open");
        }
        assert!(world.closes.is_empty());
        world.pass(seconds(5));
        assert_eq!(world.take_close(io), Some(CloseReason::KeepAliveExpired));
        assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
    }
}

#[test]
fn a_command_heard_while_the_shards_are_asked_counts() {
    let (mut world, line, view) = World::ready_as(2, &ask());
    world.join(&Ask::io(1, view.controller, 1));
    world.now = world.now + seconds(5);
    let now = world.now;
    world.shards[0].handle_timeout(now);
    world.collect();
    assert_eq!(world.mail[&(0, 1)].len(), 1, "the other shard is asked");
    world.admin(line, &Command::keep_alive());
    world.settle();
    assert!(world.closes.is_empty());
    world.pass(seconds(5));
    assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
}

#[test]
fn without_kato_there_is_no_timer() {
    let (mut world, line, _) = World::ready_on(1);
    assert_eq!(world.shards[0].poll_timeout(), None);
    let set = |value| Command::set_features(0x0f, 0, value, 0);
    assert_eq!(world.admin(line, &set(2000)).status, Status::SUCCESS);
    let now = world.now;
    assert_eq!(world.shards[0].poll_timeout(), Some(now + seconds(2)));
    assert_eq!(world.admin(line, &set(0)).status, Status::SUCCESS);
    assert_eq!(world.shards[0].poll_timeout(), None);
}

#[test]
fn a_controller_that_was_never_enabled_expires_too() {
    let mut world = World::new(1);
    let (line, _) = world.join(&ask());
    world.pass(seconds(5));
    assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
}

#[test]
fn the_answers_of_all_shards_are_awaited() {
    for heard in [1, 2] {
        let (mut world, line, view) = World::ready_as(3, &ask());
        let (first, first_view) = world.join(&Ask::io(1, view.controller, 1));
        let (second, second_view) = world.join(&Ask::io(2, view.controller, 2));
        world.pass(seconds(4));
        let now = world.now;
        let (io, handle) =
            if heard == 1 { (first, first_view.handle) } else { (second, second_view.handle) };
        world.of(io).command_heard(now, handle, 1).expect("the queue is open");
        world.pass(seconds(4));
        assert!(world.closes.is_empty(), "shard {heard} heard a command");
        world.pass(seconds(1));
        assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
    }
}

/// A discovery controller without KATO is not there to stay.
#[test]
fn a_discovery_controller_without_kato_ends_after_two_silent_minutes() {
    let mut world = World::new(1);
    let discovery = Ask { subsystem: Nqn::DISCOVERY.into(), ..Ask::default() };
    let (silent, _) = world.ready(&discovery);
    let (busy, _) = world.ready(&discovery);
    let (persistent, _) = world.ready(&Ask { keep_alive_ms: 600_000, ..discovery.clone() });
    let (io, _) = world.ready(&Ask::default());
    world.pass(seconds(100));
    assert_eq!(world.admin(busy, &Command::keep_alive()).status, Status::SUCCESS);
    world.pass(seconds(19));
    assert!(world.closes.is_empty());
    world.pass(seconds(1));
    assert_eq!(world.take_close(silent), Some(CloseReason::KeepAliveExpired));
    assert!(world.closes.is_empty());
    world.pass(seconds(100));
    assert_eq!(world.take_close(busy), Some(CloseReason::KeepAliveExpired));
    world.pass(seconds(300));
    assert!(world.closes.is_empty(), "others say how long, or stay for ever");
    for line in [persistent, io] {
        assert_eq!(world.admin(line, &Command::keep_alive()).status, Status::SUCCESS);
    }
}

/// A host in teardown closes its I/O queues before it says that it goes.
#[test]
fn what_a_queue_that_is_gone_heard_counts() {
    for shard in [0, 1] {
        let (mut world, line, view) = World::ready_as(2, &ask());
        let (io, io_view) = world.join(&Ask::io(shard, view.controller, 1));
        world.pass(seconds(4));
        let now = world.now;
        world.of(io).command_heard(now, io_view.handle, 1).expect("the queue is open");
        world.pass(Duration::from_millis(500));
        world.lose(io);
        world.settle();
        world.pass(seconds(4));
        assert!(world.closes.is_empty(), "shard {shard} heard a command 4.5 s ago");
        world.pass(Duration::from_millis(500));
        assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
    }
}

#[test]
fn a_host_that_waits_for_its_reset_is_not_silent() {
    for shard in [0, 1] {
        let (mut world, line, view) = World::ready_as(2, &ask());
        let (io, _) = world.join(&Ask::io(shard, view.controller, 1));
        world.admin_later(line, &Command::property_set(0x14, 0));
        world.settle();
        assert_eq!(world.take_close(io), Some(CloseReason::Reset));
        for _ in 0..4 {
            world.pass(seconds(4));
        }
        assert!(world.closes.is_empty(), "its queue drains on shard {shard}");
        world.drained(io);
        world.settle();
        assert_eq!(world.take_reply(line).map(|reply| reply.status), Some(Status::SUCCESS));
        world.pass(seconds(4));
        assert!(world.closes.is_empty());
        world.pass(seconds(1));
        assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired));
    }
}

/// What it says waits unread, its Keep Alive too.
#[test]
fn a_host_that_is_not_read_is_not_silent() {
    for stopped in ["the admin queue", "an I/O queue", "one of another shard"] {
        let (mut world, line, view) = World::ready_as(2, &ask());
        let (near, _) = world.join(&Ask::io(0, view.controller, 1));
        let (far, _) = world.join(&Ask::io(1, view.controller, 2));
        let queue = match stopped {
            "the admin queue" => line,
            "an I/O queue" => near,
            _ => far,
        };
        let now = world.now;
        world.of(queue).stream_stopped(now, queue.key, true);
        for _ in 0..10 {
            world.pass(seconds(4));
        }
        assert!(world.closes.is_empty(), "{stopped} is not read");
        let now = world.now;
        world.of(queue).stream_stopped(now, queue.key, false);
        world.pass(seconds(4));
        assert!(world.closes.is_empty(), "{stopped} was not read until 4 s ago");
        world.pass(seconds(1));
        assert_eq!(world.take_close(line), Some(CloseReason::KeepAliveExpired), "{stopped}");
    }
}
