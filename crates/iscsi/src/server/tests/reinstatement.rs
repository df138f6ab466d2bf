//! An initiator port that logs in again: what it had before ends, and nothing of that is below any more
//! when it is answered. Spec: RFC 7143, 6.3.5.

use core::time::Duration;

use wire::iscsi::LoginStatus;
use wire::scsi::ScsiStatus;

use super::world::{HOST, TARGET, World, flush, pattern, read, write};
use crate::limits::{HANDSHAKE, REINSTATEMENT_HOLD};
use crate::server::Reason;
use crate::targets::CloseReason;

/// The port of link 0 logs in by another connection, which is returned; nothing is awaited.
fn again(world: &mut World) -> usize {
    let link = world.accept();
    world.links[link].host.isid = world.links[0].host.isid;
    let bytes = world.links[link].host.log_in(HOST, Some(TARGET), &[], ());
    world.send(link, &bytes);
    link
}

#[test]
fn a_port_that_logs_in_again_has_a_new_session_and_no_old_one() {
    let mut world = World::connected(Default::default());
    let link = again(&mut world);
    assert!(world.said_one(link).login().is_success());
    assert_ne!(world.links[link].host.tsih, world.links[0].host.tsih);
    assert_eq!(world.links[0].pipe.close, Some(false), "nobody reads there any more");
    let reason = world.links[0].connection.reason();
    assert_eq!(reason, Some(&Reason::Asked(CloseReason::Reinstated)));
    assert_eq!(world.said(0), []);
    assert_eq!(world.shard.shared.report().len(), 1);
    world.command(link, read(0, 512), &[]);
    assert_eq!(world.said_one(link).status(), ScsiStatus::GOOD);
}

/// Nothing that its host asked before may reach the media afterwards.
#[test]
fn a_login_is_answered_once_nothing_of_the_old_session_is_below() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 4096), &pattern(4096, 1));
    world.command(0, flush(), &[]);
    let link = again(&mut world);
    assert_eq!(world.said(link), []);
    assert!(world.links[link].pipe.is_paused(), "what stands behind it is not read yet");
    world.closed(0);
    world.release_one(0);
    world.run();
    assert_eq!(world.said(link), [], "the flush is below still");
    world.release_one(0);
    world.run();
    assert!(world.said_one(link).login().is_success());
    assert!(world.links[0].connection.is_gone() && !world.links[link].pipe.is_paused());
    assert_eq!(world.log, ["write", "flush"]);
}

#[test]
fn what_a_host_says_right_behind_such_a_login_is_heard_when_it_is_answered() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 4096), &pattern(4096, 1));
    let link = world.accept();
    let isid = world.links[0].host.isid;
    let host = &mut world.links[link].host;
    host.isid = isid;
    let login = host.log_in(HOST, Some(TARGET), &[], ());
    let command = host.command(read(0, 4096), &[], ()).1;
    world.send(link, &[login, command].concat());
    assert_eq!(world.said(link), []);
    world.hold_requests = false;
    world.run();
    let said = world.said(link);
    assert!(said[0].login().is_success());
    assert_eq!(said[1].status(), ScsiStatus::GOOD);
    assert_eq!(world.log, ["write", "read"]);
}

#[test]
fn what_was_granted_and_has_not_come_is_never_written() {
    let mut world = World::connected(Default::default());
    world.command(0, write(0, 65_536), &[]);
    let r2t = world.said_one(0).r2t();
    let data = world.links[0].host.give_all(&r2t, &pattern(65_536, 1), 8192);
    world.send(0, &data[..30_000]);
    let link = again(&mut world);
    assert!(world.said_one(link).login().is_success());
    assert!(world.log.is_empty());
}

#[test]
fn a_login_that_waits_too_long_is_told_to_come_again() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, write(0, 4096), &pattern(4096, 1));
    let link = again(&mut world);
    let due = world.shard.shared.poll_timeout().expect("a login waits");
    assert_eq!(due, world.shard.now + REINSTATEMENT_HOLD);
    world.pass(link, REINSTATEMENT_HOLD - Duration::from_nanos(1));
    assert_eq!(world.said(link), []);
    world.pass(link, Duration::from_nanos(1));
    assert_eq!(world.said_one(link).login(), LoginStatus::SERVICE_UNAVAILABLE);
    assert_eq!(world.links[link].pipe.close, Some(true));
    assert_eq!(world.shard.shared.poll_timeout(), None);
    // And once it has drained, it may come.
    world.release_requests();
    world.run();
    let link = again(&mut world);
    assert!(world.said_one(link).login().is_success());
}

/// The time while others are waited for is not the host's.
#[test]
fn a_login_that_waits_for_an_old_session_is_not_late() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, flush(), &[]);
    let link = again(&mut world);
    world.shard.now = world.shard.now + HANDSHAKE;
    world.with(link, |connection, ctx| connection.handle_timeout(ctx));
    assert_eq!(world.links[link].pipe.close, None);
    world.release_requests();
    world.run();
    assert!(world.said_one(link).login().is_success());
}

#[test]
fn of_two_logins_at_once_one_comes_again() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, flush(), &[]);
    let (first, second) = (again(&mut world), again(&mut world));
    assert_eq!(world.said_one(second).login(), LoginStatus::SERVICE_UNAVAILABLE);
    assert_eq!(world.said(first), []);
    world.release_requests();
    world.run();
    assert!(world.said_one(first).login().is_success());
}

#[test]
fn a_login_whose_connection_is_lost_while_it_waits_becomes_no_session() {
    let mut world = World::connected(Default::default());
    world.hold_requests = true;
    world.command(0, flush(), &[]);
    let link = again(&mut world);
    let loss = contract::Loss::EndOfStream;
    world.with(link, |connection, ctx| connection.handle_lost(loss, ctx));
    world.run();
    world.closed(link);
    world.release_requests();
    world.run();
    assert_eq!(world.shard.shared.report(), []);
    let link = again(&mut world);
    assert!(world.said_one(link).login().is_success());
}

/// A login that names the session, and the connection that it had, takes its place under its number.
#[test]
fn a_session_that_is_named_goes_on_under_its_number() {
    let mut world = World::connected(Default::default());
    let (isid, tsih) = (world.links[0].host.isid, world.links[0].host.tsih);
    let link = world.accept();
    let host = &mut world.links[link].host;
    (host.isid, host.tsih) = (isid, tsih);
    assert!(world.log_in(link, Some(TARGET), &[]).login().is_success());
    assert_eq!(world.links[link].host.tsih, tsih);
    assert_eq!(world.links[0].pipe.close, Some(false));
}

#[test]
fn another_port_another_host_and_another_target_have_sessions_of_their_own() {
    let second =
        crate::fixtures::target("iqn.2026-11.net.plateway:b", [(0, crate::fixtures::unit(0, 512))]);
    let mut world = World::exporting([super::world::target(), second]);
    world.join(&[]);
    world.join(&[]);
    let link = world.accept();
    world.links[link].host.isid = world.links[0].host.isid;
    let said = world.log_in(link, Some("iqn.2026-11.net.plateway:b"), &[]);
    assert!(said.login().is_success());
    let link = world.accept();
    world.links[link].host.isid = world.links[0].host.isid;
    let other = "iqn.2026-11.net.plateway:other-host";
    let bytes = world.links[link].host.log_in(other, Some(TARGET), &[], ());
    world.send(link, &bytes);
    assert!(world.said_one(link).login().is_success());
    assert_eq!(world.shard.shared.report().len(), 4);
    assert!(world.lives());
}

#[test]
fn sessions_have_numbers_of_their_own_that_do_not_come_again_soon() {
    let mut world = World::connected(Default::default());
    let mut seen = vec![world.links[0].host.tsih];
    for _ in 0..20 {
        let link = again(&mut world);
        assert!(world.said_one(link).login().is_success());
        let tsih = world.links[link].host.tsih;
        assert!(tsih != 0 && !seen.contains(&tsih), "{tsih}: {seen:?}");
        seen.push(tsih);
    }
}
