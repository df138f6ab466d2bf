//! Logins: stages, keys that decide who talks to whom, and what is refused. Which value a key gets is
//! the negotiation's to test.

use core::time::Duration;

use testkit::iscsi::text;
use wire::iscsi::{LoginFlags, LoginRequest, LoginStatus, Stage};
use wire::scsi::ScsiStatus;

use super::world::{CMD_SN, HOST, Said, TARGET, World, read, target};
use crate::auth::{Asker, Challenge, Credentials, Login, Required, Secret};
use crate::fixtures::{self, name};
use crate::limits::{HANDSHAKE, LOGIN_REQUESTS_MAX, SEGMENT_MAX, TEXT_MAX};
use crate::server::{Reason, TimeLimit};
use crate::target::{Hosts, Target};

const SECURITY: Stage = Stage::SECURITY;
const OPERATIONAL: Stage = Stage::OPERATIONAL;
const FULL: Stage = Stage::FULL_FEATURE;

const NAMES: [(&str, &str); 2] = [("InitiatorName", HOST), ("TargetName", TARGET)];

/// Sends a login request with these keys on link 0, which is there; what is said to it.
fn ask(world: &mut World, flags: LoginFlags, keys: &[(&str, &str)]) -> Said {
    ask_text(world, flags, &text(keys))
}

fn ask_text(world: &mut World, flags: LoginFlags, text: &[u8]) -> Said {
    let bytes = world.links[0].host.login(flags, text, ());
    world.send(0, &bytes);
    world.said_one(0)
}

fn accepted() -> World {
    let mut world = World::new();
    world.accept();
    world
}

/// The status with which a login ends that asks for these keys at once. The connection is closed
/// behind it.
fn ends(world: &mut World, keys: &[(&str, &str)]) -> LoginStatus {
    let status = ask(world, LoginFlags::transit(OPERATIONAL, FULL), keys).login();
    let reason = world.links[0].connection.reason();
    assert_eq!(reason, (!status.is_success()).then_some(&Reason::Refused(status)));
    assert_eq!(world.links[0].pipe.close, (!status.is_success()).then_some(true));
    status
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
}

#[test]
fn a_login_may_begin_with_the_operational_stage() {
    let mut world = accepted();
    let keys = [&NAMES[..], &[("HeaderDigest", "CRC32C,None"), ("MaxConnections", "8")]].concat();
    let said = ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &keys);
    let Said::Login(response, _) = &said else { panic!("{said:?}") };
    assert_eq!(response.flags, LoginFlags::transit(OPERATIONAL, FULL));
    assert_eq!((response.status, response.version_active), (LoginStatus::SUCCESS, 0));
    assert_ne!(response.tsih, 0);
    // Nothing that nobody asked about but what a target has to declare.
    let segment = SEGMENT_MAX.to_string();
    let expected = [
        ("HeaderDigest", "CRC32C"),
        ("MaxConnections", "1"),
        ("TargetPortalGroupTag", "1"),
        ("MaxRecvDataSegmentLength", &segment),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(said.pairs(), expected);
    assert!(world.lives());
}

#[test]
fn the_window_opens_with_the_first_answer_of_the_login() {
    let mut world = accepted();
    let said = ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES);
    let numbers = said.numbers();
    assert_eq!(numbers.exp_cmd_sn, CMD_SN);
    assert_eq!(numbers.max_cmd_sn.wrapping_sub(CMD_SN), 255);
}

#[test]
fn who_has_nothing_to_prove_passes_the_security_stage() {
    let none = [("AuthMethod", "CHAP,None")];
    let mut world = accepted();
    let said = ask(&mut world, LoginFlags::stay(SECURITY), &[&NAMES[..], &none].concat());
    assert_eq!(value(&said.pairs(), "AuthMethod"), Some("None"));
    assert_eq!(value(&said.pairs(), "TargetPortalGroupTag"), Some("1"));
    let said = ask(&mut world, LoginFlags::transit(SECURITY, OPERATIONAL), &[]);
    let Said::Login(response, _) = &said else { panic!("{said:?}") };
    assert_eq!(response.flags, LoginFlags::transit(SECURITY, OPERATIONAL));
    assert_eq!((response.tsih, said.pairs()), (0, vec![]));
    let said = ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &[("DataDigest", "None")]);
    assert_eq!(value(&said.pairs(), "TargetPortalGroupTag"), None, "it is told once");
    assert!(value(&said.pairs(), "MaxRecvDataSegmentLength").is_some());
    assert!(world.lives());
}

#[test]
fn the_operational_stage_may_be_left_out() {
    let mut world = accepted();
    let keys = [&NAMES[..], &[("AuthMethod", "None")]].concat();
    let said = ask(&mut world, LoginFlags::transit(SECURITY, FULL), &keys);
    assert!(said.login().is_success() && world.links[0].host.is_logged_in);
    assert_eq!(value(&said.pairs(), "MaxRecvDataSegmentLength"), None, "no stage to say it in");
    assert!(world.lives());
}

#[test]
fn the_first_text_says_who_wants_what() {
    let [initiator, target] = NAMES;
    for keys in [&[][..], &[target], &[initiator], &[target, ("SessionType", "Discovery")]] {
        for flags in [LoginFlags::transit(OPERATIONAL, FULL), LoginFlags::stay(SECURITY)] {
            let mut world = accepted();
            let status = ask(&mut world, flags, keys).login();
            assert_eq!(status, LoginStatus::MISSING_PARAMETER, "{keys:?}");
        }
    }
    let discovery = [("SessionType", "Discovery"), initiator];
    assert_eq!(ends(&mut accepted(), &discovery), LoginStatus::SUCCESS);
}

#[test]
fn a_target_that_is_not_there_is_not_found() {
    let keys = [("InitiatorName", HOST), ("TargetName", "iqn.2026-11.net.plateway:none")];
    assert_eq!(ends(&mut accepted(), &keys), LoginStatus::NOT_FOUND);
    let keys = [("InitiatorName", HOST), ("TargetName", "no name")];
    assert_eq!(ends(&mut accepted(), &keys), LoginStatus::NOT_FOUND);
}

/// It may come with the rest of the configuration.
#[test]
fn a_target_that_is_not_there_yet_is_unavailable() {
    let mut world = accepted();
    world.shard.shared = fixtures::targets(0, 1);
    assert_eq!(ends(&mut world, &NAMES), LoginStatus::SERVICE_UNAVAILABLE);
}

#[test]
fn who_is_not_named_is_not_authorized() {
    let only = |hosts: Hosts| {
        let mut target = target();
        target.units.iter_mut().for_each(|unit| unit.hosts = hosts.clone());
        target
    };
    let nobody = Hosts::List(Vec::new());
    let other = Hosts::List(vec![name("iqn.2026-11.net.plateway:other")]);
    for target in [only(nobody), only(other), Target::new(name(TARGET))] {
        let mut world = World::exporting([target]);
        world.accept();
        assert_eq!(ends(&mut world, &NAMES), LoginStatus::AUTHORIZATION_FAILURE);
    }
    let mut world = World::exporting([only(Hosts::List(vec![name(HOST)]))]);
    world.accept();
    assert_eq!(ends(&mut world, &NAMES), LoginStatus::SUCCESS);
}

fn credentials(secret: &str) -> Credentials {
    let secret = Secret::new(secret.as_bytes()).expect("a long secret");
    Credentials { name: "host".to_owned(), secret }
}

/// Targets that want a proof.
fn guarded() -> World {
    let users = vec![credentials("the host's secret")];
    let required = Some(Required { users, own: None });
    let mut world = World::exporting([Target { required, ..target() }]);
    world.accept();
    world
}

/// How a login ends that proves itself by this secret.
fn proves(world: &mut World, secret: &str) -> LoginStatus {
    let login = Login { own: credentials(secret), target: None };
    let mut asker = Asker::new(Some((login, Challenge { identifier: 1, bytes: [3; 32] })));
    let mut ours = text(&NAMES);
    asker.begin(&mut ours);
    loop {
        let flags = match asker.is_last() {
            true => LoginFlags::transit(SECURITY, FULL),
            false => LoginFlags::stay(SECURITY),
        };
        let said = ask_text(world, flags, &ours);
        if !said.login().is_success() || world.links[0].host.is_logged_in {
            return said.login();
        }
        for (key, value) in said.pairs().iter().filter(|(key, _)| crate::auth::is_key(key)) {
            asker.take(key, value).expect("what a target says");
        }
        ours.clear();
        asker.go_on(&mut ours).expect("a target that goes on");
    }
}

#[test]
fn a_host_of_which_proof_is_wanted_proves_who_it_is() {
    let mut world = guarded();
    assert_eq!(proves(&mut world, "the host's secret"), LoginStatus::SUCCESS);
    assert!(world.lives());
    let failure = LoginStatus::AUTHENTICATION_FAILURE;
    let told = |world: &mut World| {
        let news = world.shard.shared.poll_host_news().expect("people are told");
        news.to_string().rsplit_once(": ").expect("a reason").1.to_owned()
    };
    let mut world = guarded();
    assert_eq!(proves(&mut world, "another's secret"), failure);
    assert_eq!(told(&mut world), "its secret is not that of the user");
    let mut world = guarded();
    assert_eq!(ends(&mut world, &NAMES), failure, "the stage is left out");
    assert_eq!(told(&mut world), "it leaves the proof of who it is out");
    let keys = [&NAMES[..], &[("AuthMethod", "None")]].concat();
    let mut world = guarded();
    let status = ask(&mut world, LoginFlags::transit(SECURITY, FULL), &keys).login();
    assert_eq!(status, failure);
    assert_eq!(told(&mut world), "it offers no proof of who it is");
}

/// In any place, also within a key, and with nothing but a part of it.
#[test]
fn a_text_may_come_in_several_requests() {
    let keys = [&NAMES[..], &[("HeaderDigest", "CRC32C"), ("X-other", "1")]].concat();
    let whole = text(&keys);
    for cut in 0..=whole.len() {
        let mut world = accepted();
        let (head, tail) = whole.split_at(cut);
        let more = LoginFlags::stay(OPERATIONAL).with_continue(true);
        let said = ask_text(&mut world, more, head);
        let Said::Login(response, text) = &said else { panic!("{said:?}") };
        assert_eq!(response.flags, LoginFlags::stay(OPERATIONAL), "neither T nor C");
        assert!(response.status.is_success() && text.is_empty());
        let said = ask_text(&mut world, LoginFlags::transit(OPERATIONAL, FULL), tail);
        assert_eq!(value(&said.pairs(), "HeaderDigest"), Some("CRC32C"), "cut at {cut}");
        assert_eq!(value(&said.pairs(), "X-other"), Some("NotUnderstood"));
        assert!(world.links[0].host.is_logged_in);
    }
}

#[test]
fn keys_that_are_not_known_are_answered_so_and_harm_nothing() {
    let mut world = accepted();
    let keys = [&NAMES[..], &[("X-com.example.key", "1"), ("iSCSIFuture", "a,b")]].concat();
    let said = ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &keys);
    for key in ["X-com.example.key", "iSCSIFuture"] {
        assert_eq!(value(&said.pairs(), key), Some("NotUnderstood"));
    }
    assert!(world.lives());
}

#[test]
fn markers_are_declined_in_the_words_of_the_standard() {
    let mut world = accepted();
    let keys =
        [("OFMarker", "Yes"), ("IFMarker", "No"), ("OFMarkInt", "1~65535"), ("IFMarkInt", "2048")];
    let said =
        ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &[&NAMES[..], &keys].concat());
    let pairs = said.pairs();
    for (key, answer) in
        [("OFMarker", "No"), ("IFMarker", "No"), ("OFMarkInt", "Reject"), ("IFMarkInt", "Reject")]
    {
        assert_eq!(value(&pairs, key), Some(answer));
    }
    assert!(world.lives());
}

#[test]
fn a_wrong_value_and_a_key_that_comes_twice_end_the_login() {
    let error = LoginStatus::INITIATOR_ERROR;
    for wrong in [
        ("MaxBurstLength", "511"),
        ("ErrorRecoveryLevel", "3"),
        ("HeaderDigest", "MD5"),
        ("InitialR2T", "maybe"),
        ("InitiatorName", HOST),
        ("TargetPortalGroupTag", "1"),
    ] {
        assert_eq!(ends(&mut accepted(), &[&NAMES[..], &[wrong]].concat()), error, "{wrong:?}");
    }
    let wrong = [("SessionType", "Other"), NAMES[0]];
    assert_eq!(ends(&mut accepted(), &wrong), LoginStatus::SESSION_TYPE_NOT_SUPPORTED);
    // Also in another request of the same login.
    let mut world = accepted();
    assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES).login().is_success());
    assert_eq!(ends(&mut world, &[NAMES[1]]), error);
}

#[test]
fn a_text_that_is_none_ends_the_login() {
    for garbage in [&b"InitiatorName"[..], b"=x\0", b"InitiatorName=a", b"a b=c\0", b"\xff=1\0"] {
        let mut world = accepted();
        let said = ask_text(&mut world, LoginFlags::transit(OPERATIONAL, FULL), garbage);
        assert_eq!(said.login(), LoginStatus::INITIATOR_ERROR, "{garbage:?}");
    }
}

#[test]
fn stages_are_gone_through_in_their_order() {
    let wrong = [
        LoginFlags::transit(OPERATIONAL, SECURITY),
        LoginFlags::transit(OPERATIONAL, OPERATIONAL),
        LoginFlags::transit(OPERATIONAL, Stage(2)),
        LoginFlags::transit(FULL, FULL),
        LoginFlags::stay(Stage(2)),
        LoginFlags::transit(OPERATIONAL, FULL).with_continue(true),
    ];
    for flags in wrong {
        let mut world = accepted();
        assert_eq!(ask(&mut world, flags, &NAMES).login(), LoginStatus::INITIATOR_ERROR, "{flags}");
        assert_eq!(world.links[0].pipe.close, Some(true));
    }
    // Where it stands is what was agreed on before.
    for (first, second) in [
        (LoginFlags::stay(SECURITY), LoginFlags::stay(OPERATIONAL)),
        (LoginFlags::transit(SECURITY, OPERATIONAL), LoginFlags::stay(SECURITY)),
        (LoginFlags::stay(OPERATIONAL), LoginFlags::stay(SECURITY)),
    ] {
        let mut world = accepted();
        assert!(ask(&mut world, first, &NAMES).login().is_success());
        assert_eq!(ask(&mut world, second, &[]).login(), LoginStatus::INITIATOR_ERROR, "{second}");
    }
}

#[test]
fn requests_of_a_login_are_of_one_connection() {
    let change: [fn(&mut LoginRequest); 3] =
        [|request| request.isid[5] ^= 1, |request| request.tsih = 7, |request| request.cid += 1];
    for change in change {
        let mut world = accepted();
        world.links[0].host.lenient = true;
        assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES).login().is_success());
        let flags = LoginFlags::transit(OPERATIONAL, FULL);
        let bytes = world.links[0].host.login(flags, &[], ());
        let mut request = LoginRequest::parse(&bytes).expect("a login request");
        change(&mut request);
        world.send(0, &request.emit());
        assert_eq!(world.said_one(0).login(), LoginStatus::INITIATOR_ERROR);
    }
}

#[test]
fn another_version_is_not_spoken() {
    let mut world = accepted();
    let bytes = world.links[0].host.login(LoginFlags::stay(OPERATIONAL), &text(&NAMES), ());
    let mut request = LoginRequest::parse(&bytes).expect("a login request");
    (request.version_min, request.version_max) = (1, 2);
    let bytes = [&request.emit()[..], &bytes[48..]].concat();
    world.send(0, &bytes);
    let said = world.said_one(0);
    let Said::Login(response, _) = &said else { panic!("{said:?}") };
    assert_eq!(response.status, LoginStatus::UNSUPPORTED_VERSION);
    assert_eq!((response.version_max, response.version_active), (0, 0));
}

#[test]
fn a_login_has_no_more_text_than_may_be_sent() {
    let more = LoginFlags::stay(OPERATIONAL).with_continue(true);
    let mut world = accepted();
    let mut left = TEXT_MAX;
    while left > 0 {
        let part = left.min(3000);
        assert!(ask_text(&mut world, more, &vec![b'a'; part]).login().is_success());
        left -= part;
    }
    assert_eq!(ask_text(&mut world, more, b"a").login(), LoginStatus::INITIATOR_ERROR);
    // In one PDU it is more than a login's may have.
    let mut world = accepted();
    let said = ask_text(&mut world, more, &vec![b'a'; TEXT_MAX + 1]);
    assert_eq!(said.login(), LoginStatus::INVALID_DURING_LOGIN);
    assert!(matches!(world.links[0].connection.reason(), Some(Reason::Violation(_))));
}

#[test]
fn a_login_does_not_go_round_in_circles() {
    let mut world = accepted();
    assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES).login().is_success());
    for _ in 1..LOGIN_REQUESTS_MAX {
        assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &[]).login().is_success());
    }
    let said = ask(&mut world, LoginFlags::stay(OPERATIONAL), &[]);
    assert_eq!(said.login(), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn a_session_that_is_not_there_cannot_be_joined() {
    let mut world = accepted();
    world.links[0].host.tsih = 5;
    assert_eq!(ends(&mut world, &NAMES), LoginStatus::NO_SUCH_SESSION);
}

#[test]
fn a_session_has_one_connection() {
    let mut world = World::connected_with(&[]);
    let second = world.accept();
    let first = &world.links[0].host;
    let (tsih, isid, cid) = (first.tsih, first.isid, first.cid);
    let host = &mut world.links[second].host;
    (host.tsih, host.isid, host.cid) = (tsih, isid, cid + 1);
    let said = world.log_in(second, Some(TARGET), &[]);
    assert_eq!(said.login(), LoginStatus::TOO_MANY_CONNECTIONS);
    assert!(world.lives());
}

#[test]
fn what_comes_before_a_login_is_refused() {
    let command = |world: &mut World| world.links[0].host.command(read(0, 512), &[], ()).1;
    let nop = |world: &mut World| world.links[0].host.nop(&[], ()).1;
    let noise = |_: &mut World| vec![0xff; 48];
    for make in [command as fn(&mut World) -> Vec<u8>, nop, noise] {
        let mut world = accepted();
        world.links[0].host.lenient = true;
        let bytes = make(&mut world);
        world.send(0, &bytes);
        assert_eq!(world.said_one(0).login(), LoginStatus::INVALID_DURING_LOGIN);
        assert_eq!(world.links[0].pipe.close, Some(true));
    }
}

#[test]
fn a_login_comes_once() {
    let mut world = World::connected_with(&[]);
    let flags = LoginFlags::transit(OPERATIONAL, FULL);
    let bytes = world.links[0].host.login(flags, &text(&NAMES), ());
    world.send(0, &bytes);
    assert_eq!(world.said_one(0).reject(), wire::iscsi::RejectReason::PROTOCOL_ERROR);
    assert_eq!(world.links[0].pipe.close, Some(true));
}

#[test]
fn digests_begin_behind_the_login_whatever_its_last_request_says() {
    let mut world = accepted();
    let keys = [&NAMES[..], &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]].concat();
    assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &keys).login().is_success());
    let said = ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &[]);
    assert!(said.login().is_success());
    assert!(world.lives());
    assert_eq!(world.ask(read(0, 512), &[]).status(), ScsiStatus::GOOD);
}

#[test]
fn who_does_not_log_in_in_time_is_closed() {
    for has_begun in [false, true] {
        let mut world = accepted();
        if has_begun {
            ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES);
        }
        world.pass(0, HANDSHAKE - Duration::from_nanos(1));
        assert_eq!(world.links[0].pipe.close, None);
        // Looked at in whole seconds, so that many that came together cost one wake-up.
        let looked_at = world.links[0].connection.poll_timeout().expect("it is looked at");
        assert!(looked_at.0.is_multiple_of(1_000_000_000));
        world.pass(0, Duration::from_secs(1));
        assert!(world.links[0].pipe.close.is_some());
        let reason = world.links[0].connection.reason();
        assert_eq!(reason, Some(&Reason::TimedOut(TimeLimit::Handshake)));
    }
}

#[test]
fn what_a_host_says_right_behind_its_login_is_heard() {
    let mut world = accepted();
    let login = world.links[0].host.log_in(HOST, Some(TARGET), &[], ());
    let (_, command) = world.links[0].host.command(read(0, 512), &[], ());
    world.send(0, &[login, command].concat());
    let said = world.said(0);
    assert!(said[0].login().is_success());
    assert_eq!(said[1].status(), ScsiStatus::GOOD);
}

#[test]
fn how_a_login_is_cut_makes_no_difference() {
    for cut in [1, 7, 47, 48, 49] {
        let mut world = accepted();
        world.links[0].cut = cut;
        assert!(
            ask(&mut world, LoginFlags::transit(OPERATIONAL, FULL), &NAMES).login().is_success()
        );
        assert!(world.lives(), "cut into pieces of {cut}");
    }
}

#[test]
fn padding_of_a_text_is_passed_over() {
    for length in 0..4 {
        let mut world = accepted();
        let more = "a".repeat(length);
        let keys = [&NAMES[..], &[("X-a", more.as_str())]].concat();
        let flags = LoginFlags::transit(OPERATIONAL, FULL);
        assert!(ask(&mut world, flags, &keys).login().is_success());
        assert!(world.lives());
    }
}

/// What has to be proved to whom is decided by the first text: a later one changes neither.
#[test]
fn who_wants_what_is_not_said_again() {
    for key in [("SessionType", "Discovery"), ("SessionType", "Normal"), ("TargetName", TARGET)] {
        let mut world = accepted();
        let first = [("InitiatorName", HOST), ("TargetName", "iqn.2000-01.x:none")];
        let first =
            if key.0 == "TargetName" { [first[0], ("SessionType", "Discovery")] } else { first };
        assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &first).login().is_success());
        assert_eq!(ends(&mut world, &[key]), LoginStatus::INITIATOR_ERROR, "{key:?}");
    }
}

#[test]
fn a_login_is_answered_no_more_than_a_pdu_holds_and_sends_no_more_in_all_than_a_text() {
    let mut world = accepted();
    let many: String = (0..700).map(|key| format!("k{key}=\0")).collect();
    let words = [&text(&NAMES)[..], many.as_bytes()].concat();
    let said = ask_text(&mut world, LoginFlags::stay(OPERATIONAL), &words);
    assert_eq!(said.login(), LoginStatus::INITIATOR_ERROR);
    let mut world = accepted();
    assert!(ask(&mut world, LoginFlags::stay(OPERATIONAL), &NAMES).login().is_success());
    let part = vec![b'a'; 2000];
    let more = LoginFlags::stay(OPERATIONAL).with_continue(true);
    for _ in 0..(TEXT_MAX / part.len()) {
        let said = ask_text(&mut world, more, &part);
        if !said.login().is_success() {
            break;
        }
    }
    let status = ask_text(&mut world, more, &part);
    assert_eq!(status.login(), LoginStatus::INITIATOR_ERROR);
}
