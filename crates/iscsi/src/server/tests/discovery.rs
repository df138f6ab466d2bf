//! Discovery sessions and SendTargets: who is told of what, in how many parts, and what such a session
//! is refused.

use reservation::PathGroup;
use testkit::iscsi::text;
use wire::iscsi::{LogoutReason, RESERVED_TAG, RejectReason, TaskFunction, TextFlags, TextRequest};
use wire::scsi::Cdb;

use super::world::{HOST, Order, Said, TARGET, VOLUME, World, read, seal, target, write};
use crate::fixtures::{self, name};
use crate::server::Reason;
use crate::target::{Hosts, Portal, Target};

const SECOND: &str = "iqn.2026-11.net.plateway:second";
const HIDDEN: &str = "iqn.2026-11.net.plateway:hidden";

/// Three targets, of which the last is another host's.
fn three() -> [Target; 3] {
    let one = |name| fixtures::target(name, [(0, fixtures::unit(0, VOLUME))]);
    let mut hidden = one(HIDDEN);
    hidden.units[0].hosts = Hosts::List(vec![name("iqn.2026-11.net.plateway:other")]);
    [target(), one(SECOND), hidden]
}

/// A discovery session over these targets.
fn discovering(targets: impl IntoIterator<Item = Target>, keys: &[(&str, &str)]) -> World {
    let mut world = World::exporting(targets);
    world.accept();
    assert!(world.log_in(0, None, keys).login().is_success());
    world
}

/// Asks SendTargets, and goes on until all was said: the parts.
fn send_targets(world: &mut World, which: &str) -> Vec<Said> {
    let mut parts = Vec::new();
    let (mut words, mut transfer_tag) = (text(&[("SendTargets", which)]), None);
    loop {
        let (_, bytes) = world.links[0].host.text(&words, transfer_tag, ());
        world.send(0, &bytes);
        let said = world.said_one(0);
        let Said::Text(response, _) = &said else { panic!("{said:?}") };
        let (tag, flags) = (response.target_transfer_tag, response.flags);
        parts.push(said);
        if flags.is_final() {
            return parts;
        }
        assert!(flags.is_continue(), "{flags}");
        (words, transfer_tag) = (Vec::new(), Some(tag));
    }
}

fn told(parts: &[Said]) -> Vec<(String, String)> {
    let whole = parts.iter().flat_map(|part| match part {
        Said::Text(_, text) => text.clone(),
        other => panic!("{other:?}"),
    });
    testkit::iscsi::pairs(&whole.collect::<Vec<_>>())
}

fn lines(world: &mut World, which: &str) -> Vec<String> {
    let parts = send_targets(world, which);
    told(&parts).iter().map(|(key, value)| format!("{key}={value}")).collect()
}

#[test]
fn a_host_is_told_of_all_targets_of_which_it_may_use_something() {
    let mut world = discovering(three(), &[]);
    let expected = [
        format!("TargetName={SECOND}"),
        "TargetAddress=127.0.0.1:3260,1".to_owned(),
        format!("TargetName={TARGET}"),
        "TargetAddress=127.0.0.1:3260,1".to_owned(),
    ];
    assert_eq!(lines(&mut world, "All"), expected);
}

#[test]
fn a_host_is_told_of_the_one_target_that_it_names() {
    let mut world = discovering(three(), &[]);
    assert_eq!(lines(&mut world, SECOND).len(), 2);
    assert_eq!(lines(&mut world, HIDDEN), [""; 0]);
    assert_eq!(lines(&mut world, "iqn.2026-11.net.plateway:none"), [""; 0]);
    assert_eq!(lines(&mut world, "no name"), ["SendTargets=Reject"]);
    assert_eq!(lines(&mut world, ""), ["SendTargets=Reject"], "there is no target of the session");
}

#[test]
fn a_normal_session_is_told_of_its_own_target() {
    let mut world = World::exporting(three());
    world.join(&[]);
    assert_eq!(lines(&mut world, "").len(), 2);
    assert_eq!(lines(&mut world, TARGET)[0], format!("TargetName={TARGET}"));
    assert_eq!(lines(&mut world, "All"), ["SendTargets=Reject"]);
    assert!(world.lives());
}

#[test]
fn an_address_is_the_one_by_which_the_host_came() {
    for (local, told) in [
        ("[2001:db8::1]:3260", "TargetAddress=[2001:db8::1]:3260,1"),
        ("[::ffff:192.0.2.1]:3261", "TargetAddress=192.0.2.1:3261,1"),
    ] {
        let mut world = World::exporting([target()]);
        world.local = local;
        world.accept();
        assert!(world.log_in(0, None, &[]).login().is_success());
        assert_eq!(lines(&mut world, "All")[1], told);
    }
}

#[test]
fn what_else_is_told_of_addresses_is_what_listeners_say() {
    let mut world = discovering([target()], &[]);
    let other = Portal { address: Some("192.0.2.7:3260".to_owned()), ..Portal::default() };
    world.shard.shared.set_portal(contract::ListenerId(7), other);
    assert_eq!(lines(&mut world, "All")[2], "TargetAddress=192.0.2.7:3260,1");
    let group = PathGroup::new(2).expect("a group");
    let far = Portal { address: Some("192.0.2.7:3260".to_owned()), group, ..Portal::default() };
    world.shard.shared.set_portal(contract::ListenerId(7), far);
    assert_eq!(lines(&mut world, "All")[2], "TargetAddress=192.0.2.7:3260,2");
    world.shard.shared.remove_portal(contract::ListenerId(7));
    assert_eq!(lines(&mut world, "All").len(), 2);
    let own = Some("gateway.example:3260".to_owned());
    let own = Portal { address: own, is_advertised: true, ..Portal::default() };
    world.shard.shared.set_portal(contract::ListenerId(0), own);
    assert_eq!(lines(&mut world, "All")[1..], ["TargetAddress=gateway.example:3260,1"]);
}

/// It would look for it on itself.
#[test]
fn a_host_of_elsewhere_is_told_no_loopback_address() {
    for (local, count) in [("192.0.2.1:3260", 2), ("127.0.0.1:3261", 3)] {
        let mut world = World::exporting([target()]);
        world.local = local;
        world.accept();
        assert!(world.log_in(0, None, &[]).login().is_success());
        let here = Portal { address: Some("127.0.0.1:3260".to_owned()), ..Portal::default() };
        world.shard.shared.set_portal(contract::ListenerId(8), here);
        assert_eq!(lines(&mut world, "All").len(), count, "came by {local}");
    }
}

/// Each part is as long as the host takes, the last is final, and all of them are one text.
#[test]
fn what_is_longer_than_a_host_takes_comes_in_parts() {
    let target = |number| {
        let name = format!("iqn.2026-11.net.plateway:number-{number}");
        fixtures::target(&name, [(0, fixtures::unit(0, VOLUME))])
    };
    let mut world = discovering((0..100).map(target), &[("MaxRecvDataSegmentLength", "512")]);
    for _ in 0..2 {
        let parts = send_targets(&mut world, "All");
        assert_eq!(told(&parts).len(), 200);
        assert!(parts.len() > 10);
        let (last, first) = parts.split_last().expect("some parts");
        for part in first {
            let Said::Text(response, text) = part else { panic!("{part:?}") };
            assert_eq!((response.flags, text.len()), (TextFlags::CONTINUE, 512));
            assert_ne!(response.target_transfer_tag, RESERVED_TAG);
        }
        let Said::Text(response, _) = last else { panic!("{last:?}") };
        assert_eq!(response.target_transfer_tag, RESERVED_TAG);
    }
}

#[test]
fn a_negotiation_that_begins_anew_ends_the_one_before() {
    let many = (0..20).map(|number| {
        fixtures::target(
            &format!("iqn.2026-11.net.plateway:{number}"),
            [(0, fixtures::unit(0, VOLUME))],
        )
    });
    let mut world = discovering(many, &[("MaxRecvDataSegmentLength", "512")]);
    let (_, bytes) = world.links[0].host.text(&text(&[("SendTargets", "All")]), None, ());
    world.send(0, &bytes);
    let Said::Text(first, _) = world.said_one(0) else { panic!("no text") };
    assert!(first.flags.is_continue());
    assert_eq!(lines(&mut world, "iqn.2026-11.net.plateway:7").len(), 2);
    // And the old one is not gone on with: there is nothing more to be said.
    let tag = first.target_transfer_tag;
    let (_, bytes) = world.links[0].host.text(&[], Some(tag), ());
    world.send(0, &bytes);
    let Said::Text(response, text) = world.said_one(0) else { panic!("no text") };
    assert!(response.flags.is_final() && text.is_empty());
}

#[test]
fn a_question_may_come_in_several_requests() {
    let whole = text(&[("SendTargets", SECOND)]);
    for cut in [0, 1, 11, 12, 20, whole.len() - 1, whole.len()] {
        let mut world = discovering(three(), &[]);
        let (head, tail) = whole.split_at(cut);
        let (_, mut bytes) = world.links[0].host.text(head, None, ());
        let request = TextRequest::parse(&bytes).expect("a text request");
        bytes[..48].copy_from_slice(&TextRequest { flags: TextFlags::CONTINUE, ..request }.emit());
        world.send(0, &bytes);
        let Said::Text(response, text) = world.said_one(0) else { panic!("no text") };
        assert!(text.is_empty() && !response.flags.is_final() && !response.flags.is_continue());
        let tag = response.target_transfer_tag;
        let (_, bytes) = world.links[0].host.text(tail, Some(tag), ());
        world.send(0, &bytes);
        assert_eq!(world.said_one(0).pairs()[0].1, SECOND, "cut at {cut}");
    }
}

/// RFC 7143, 4.3: all other requests are rejected, and the session stays.
#[test]
fn a_discovery_session_takes_no_commands() {
    let mut world = discovering(three(), &[]);
    let orders = [
        (read(0, 512), &[][..]),
        (Order::read(0, Cdb::inquiry(255), 255), &[]),
        (Order::read(9, Cdb::report_luns(255), 255), &[]),
        (write(0, 512), &[1; 512]),
        (write(0, 8192).unfinished(), &[1; 512]),
    ];
    for (order, data) in orders {
        assert_eq!(
            world.ask(order, data).reject(),
            RejectReason::COMMAND_NOT_SUPPORTED,
            "{order:?}"
        );
        assert!(!world.links[0].host.asked.values().any(|asked| asked.order().is_some()));
    }
    let (_, bytes) = world.links[0].host.manage(TaskFunction::TARGET_COLD_RESET, [0; 8], None, ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).management(), wire::iscsi::TaskResponse::REJECTED);
    assert!(world.log.is_empty());
    assert_eq!(lines(&mut world, "All").len(), 4, "and it stays");
    let window = world.links[0].host.max_cmd_sn.wrapping_sub(world.links[0].host.cmd_sn);
    assert_eq!(window, 255, "a command that was rejected takes no place");
}

#[test]
fn signs_of_life_are_answered_in_a_discovery_session_too() {
    let mut world = discovering(three(), &[]);
    let (_, bytes) = world.links[0].host.nop(b"are you there?", ());
    world.send(0, &bytes);
    assert!(matches!(world.said_one(0), Said::Nop(_, data) if data == b"are you there?"));
}

#[test]
fn a_discovery_session_is_logged_out() {
    let mut world = discovering(three(), &[]);
    let (_, bytes) = world.links[0].host.logout(LogoutReason::CLOSE_SESSION, ());
    world.send(0, &bytes);
    assert!(matches!(world.said_one(0), Said::Logout(_)));
    assert_eq!(world.links[0].pipe.close, Some(true));
    assert_eq!(world.links[0].connection.reason(), Some(&Reason::LoggedOut));
}

#[test]
fn a_discovery_session_ends_no_other_session_of_its_host() {
    let mut world = World::exporting(three());
    world.join(&[]);
    let second = world.accept();
    world.links[second].host.isid = world.links[0].host.isid;
    let bytes = world.links[second].host.log_in(HOST, None, &[], ());
    world.send(second, &bytes);
    assert!(world.said_one(second).login().is_success());
    assert!(world.lives());
}

/// What is wrong with one text is told of that text, and takes no place in the window.
#[test]
fn texts_that_are_none_are_rejected_and_the_session_stays() {
    let mut world = discovering(three(), &[]);
    world.links[0].host.lenient = true;
    for words in [&b"SendTargets"[..], b"=\0", b"MaxRecvDataSegmentLength=1\0"] {
        let (_, bytes) = world.links[0].host.text(words, None, ());
        world.send(0, &bytes);
        assert_eq!(world.said_one(0).reject(), RejectReason::PROTOCOL_ERROR, "{words:?}");
    }
    let (_, bytes) = world.links[0].host.text(&[], Some(0x1234), ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), RejectReason::INVALID_PDU_FIELD, "no such text");
    let (_, bytes) = world.links[0].host.text(b"", None, ());
    let request = TextRequest::parse(&bytes).expect("a text request");
    let both = TextFlags::FINAL.with_continue(true);
    let request = TextRequest { flags: both, ..request };
    world.send(0, &seal(&request.emit(), &[], Default::default()));
    assert_eq!(world.said_one(0).reject(), RejectReason::INVALID_PDU_FIELD, "F and C");
    assert_eq!(lines(&mut world, "All").len(), 4);
    let window = world.links[0].host.max_cmd_sn.wrapping_sub(world.links[0].host.cmd_sn);
    assert_eq!(window, 255);
}

#[test]
fn a_host_may_say_later_how_much_it_takes() {
    let many = (0..20).map(|number| {
        fixtures::target(
            &format!("iqn.2026-11.net.plateway:{number}"),
            [(0, fixtures::unit(0, VOLUME))],
        )
    });
    let mut world = discovering(many, &[]);
    assert_eq!(send_targets(&mut world, "All").len(), 1);
    let words = text(&[("MaxRecvDataSegmentLength", "600"), ("MaxBurstLength", "512")]);
    let (_, bytes) = world.links[0].host.text(&words, None, ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).pairs(), [("MaxBurstLength".to_owned(), "Reject".to_owned())]);
    let parts = send_targets(&mut world, "All");
    assert!(parts.len() > 1);
    assert!(parts.iter().all(|part| matches!(part, Said::Text(_, text) if text.len() <= 600)));
}

/// One list is kept for a host: two in one text would be as long as it likes.
#[test]
fn targets_are_asked_for_once_in_a_text() {
    let mut world = discovering(three(), &[]);
    world.links[0].host.lenient = true;
    let words = text(&[("SendTargets", "All"), ("SendTargets", "All")]);
    let (_, bytes) = world.links[0].host.text(&words, None, ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), RejectReason::PROTOCOL_ERROR);
    assert_eq!(lines(&mut world, "All").len(), 4);
}

#[test]
fn a_text_that_fails_leaves_everything_as_it_was() {
    let mut world = discovering(three(), &[]);
    world.links[0].host.lenient = true;
    let ask = |world: &mut World, words: &[u8]| {
        let (_, bytes) = world.links[0].host.text(words, None, ());
        world.send(0, &bytes);
        world.said_one(0)
    };
    let wrong = b"MaxRecvDataSegmentLength=600\0InitiatorAlias=a\0=\0";
    assert_eq!(ask(&mut world, wrong).reject(), RejectReason::PROTOCOL_ERROR);
    assert!(matches!(ask(&mut world, b"InitiatorAlias=b\0"), Said::Text(..)));
    let wrong = ask(&mut world, b"MaxRecvDataSegmentLength=1\0");
    assert_eq!(wrong.reject(), RejectReason::PROTOCOL_ERROR);
    assert!(matches!(ask(&mut world, b"MaxRecvDataSegmentLength=65536\0"), Said::Text(..)));
}

#[test]
fn a_host_that_has_more_to_say_is_not_told_that_it_is_over() {
    let mut world = discovering(three(), &[]);
    let words = text(&[("SendTargets", "All")]);
    let (_, mut bytes) = world.links[0].host.text(&words, None, ());
    bytes[1] = TextFlags::default().0;
    world.send(0, &bytes);
    let Said::Text(response, _) = world.said_one(0) else { panic!("no text") };
    assert_eq!(response.flags, TextFlags::default());
    let (_, bytes) = world.links[0].host.text(&[], Some(response.target_transfer_tag), ());
    world.send(0, &bytes);
    let Said::Text(response, rest) = world.said_one(0) else { panic!("no text") };
    assert!(response.flags.is_final() && rest.is_empty());
}
