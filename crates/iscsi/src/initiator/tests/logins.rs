//! Logins: against the real target with CHAP, and against one that the test plays.

use core::time::Duration;

use wire::iscsi::{Digests, LoginFlags, LoginResponse, LoginStatus, Stage};

use super::fixtures::{BOTH, settings, target, unit};
use super::pair::Pair;
use super::played::Played;
use crate::auth::{Challenges, Credentials, Login, Required, Secret};
use crate::initiator::{Auth, Settings};
use crate::limits::{HANDSHAKE, LOGIN_REQUESTS_MAX};
use crate::target::Target;

const SECURITY: Stage = Stage::SECURITY;
const OPERATIONAL: Stage = Stage::OPERATIONAL;

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret.as_bytes()).unwrap() }
}

/// A pair whose target wants the host's secret, and has one of its own.
fn guarded(auth: Option<Auth>) -> Pair {
    let mut pair = Pair::new(1, Settings { auth, ..settings(BOTH) }, false);
    let required = Required {
        users: vec![credentials("host", "the host's own")],
        own: Some(credentials("target", "the target's own")),
    };
    let target = Target { required: Some(required), ..target(Some(unit(false))) };
    pair.shard.shared.set_target(target);
    pair
}

fn login(secret: &str, target: Option<&str>) -> Auth {
    let target = target.map(|secret| credentials("target", secret));
    let login = Login { own: credentials("host", secret), target };
    Auth { login, challenges: Challenges::new([5; 32]) }
}

#[test]
fn chap_lets_in_whoever_knows_the_secret() {
    for target in [None, Some("the target's own")] {
        let mut pair = guarded(Some(login("the host's own", target)));
        pair.run_until("connected", |pair| pair.initiator.facts().is_some());
        // And again after a break, with another challenge.
        pair.cut(0);
        pair.run_until("here again", |pair| pair.news.len() == 3);
        pair.read(1, 0, 512);
        assert!(pair.finish(1).0.is_done());
    }
}

#[test]
fn a_wrong_secret_none_and_a_target_that_proves_nothing_are_told_apart() {
    for (auth, words) in [
        (None, "authentication failure (0201): the name or the secret is wrong, or one is wanted"),
        (Some(login("some other secret", None)), "authentication failure (0201)"),
        (Some(login("the host's own", Some("not the target's"))), "does not know its secret"),
    ] {
        let mut pair = guarded(auth);
        pair.run_until("refused", |pair| pair.initiator.is_refused());
        let why = pair.initiator.explain();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_login_says_who_logs_in_to_what_and_offers_what_it_has() {
    let mut played = Played::new(Digests { header: true, data: false });
    played.connect();
    let (request, keys) = played.hear_login();
    assert_eq!(
        keys,
        "InitiatorName=iqn.2026-11.net.plateway:host SessionType=Normal \
         TargetName=iqn.2026-11.net.plateway:test AuthMethod=None"
    );
    assert_eq!((request.isid, request.tsih), ([0x80, 0, 0, 0, 0, 1], 0));
    assert_eq!(request.flags, LoginFlags::transit(SECURITY, OPERATIONAL));
    played.answer_login(&request, LoginFlags::transit(SECURITY, OPERATIONAL), "AuthMethod=None");
    let (request, keys) = played.hear_login();
    assert_eq!(request.flags, LoginFlags::transit(OPERATIONAL, Stage::FULL_FEATURE));
    assert!(keys.contains("HeaderDigest=CRC32C DataDigest=None"), "{keys}");
    assert!(keys.contains("InitialR2T=No ImmediateData=Yes"), "{keys}");
    assert_eq!(request.exp_stat_sn, 101);
}

#[test]
fn texts_may_come_in_pieces_and_stages_may_take_several_requests() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    let (request, _) = played.hear_login();
    // Nothing but the first half of a key.
    let numbers = played.status();
    let flags = LoginFlags::stay(SECURITY).with_continue(true);
    let half = LoginResponse::new(&request, flags, 0, 7, numbers);
    played.say(&half.emit(), b"AuthMet");
    let (request, keys) = played.hear_login();
    assert_eq!((request.flags, keys.as_str()), (LoginFlags::stay(SECURITY), ""));
    let numbers = played.status();
    let rest = LoginResponse::new(&request, LoginFlags::stay(SECURITY), 0, 9, numbers);
    played.say(&rest.emit(), b"hod=None\0");
    // All is said, so the next stage is asked for again.
    let (request, keys) = played.hear_login();
    let next = LoginFlags::transit(SECURITY, OPERATIONAL);
    assert_eq!((request.flags, keys.as_str()), (next, ""));
    played.answer_login(&request, next, "");
    let (request, _) = played.hear_login();
    // A key of the target's own is answered before the login is over.
    played.answer_login(&request, LoginFlags::stay(OPERATIONAL), "X-net.example.speed=11");
    let (request, keys) = played.hear_login();
    assert_eq!(keys, "X-net.example.speed=NotUnderstood");
    let last = LoginFlags::transit(OPERATIONAL, Stage::FULL_FEATURE);
    played.answer_login(&request, last, "MaxBurstLength=65536");
    played.identify();
    assert!(played.initiator.state().starts_with("connected"));
}

#[test]
fn a_target_that_moved_is_followed_once() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    played.refuse_login(LoginStatus::MOVED_TEMPORARILY, "TargetAddress=192.0.2.7:3261,1");
    played.shut();
    // At once, without a rest.
    assert_eq!(
        played.asked.last().map(|(_, address)| address.to_string()).as_deref(),
        Some("192.0.2.7:3261")
    );
    assert!(played.initiator.explain().contains("the target moved to 192.0.2.7:3261"));
    played.bring_up("MaxBurstLength=65536");
    assert_eq!(played.initiator.state(), "connected to 192.0.2.7:3261");
    // After a break it is sought where it was configured.
    played.cut();
    played.rest();
    assert_eq!(played.asked.last().map(|(_, address)| address.port()), Some(3260));
    played.connect();
    played.refuse_login(LoginStatus::MOVED_PERMANENTLY, "TargetAddress=192.0.2.7,1");
    played.shut();
    played.connect();
    played.refuse_login(LoginStatus::MOVED_TEMPORARILY, "TargetAddress=192.0.2.8,1");
    played.shut();
    assert!(played.asked.is_empty(), "it rests");
    assert!(played.initiator.explain().contains("moved twice"), "{}", played.initiator.explain());
    played.rest();
    assert_eq!(played.asked.last().map(|(_, address)| address.port()), Some(3260));
}

#[test]
fn addresses_are_tried_one_after_the_other() {
    let mut both = settings(Digests::NONE);
    both.addresses.push("192.0.2.2:3260".parse().unwrap());
    let mut played = Played::with(both);
    for expected in ["127.0.0.1:3260", "192.0.2.2:3260", "127.0.0.1:3260"] {
        played.rest();
        let (token, address) = played.asked.pop().unwrap();
        assert_eq!(address.to_string(), expected);
        played.initiator.handle_connect_failed(played.now, token, 111);
        assert!(played.initiator.explain().contains("no connection"));
    }
}

#[test]
fn what_a_target_may_not_do_in_a_login_ends_it() {
    let stay = LoginFlags::stay(SECURITY);
    let next = LoginFlags::transit(SECURITY, OPERATIONAL);
    for (flags, keys, rule) in [
        (LoginFlags::transit(SECURITY, Stage::FULL_FEATURE), "", "the one that was asked for"),
        (LoginFlags::stay(OPERATIONAL), "", "stays in its stage"),
        (next.with_continue(true), "", "C"),
        (next, "AuthMethod=CHAP", "wants a name and a secret"),
        (next, "AuthMethod=None AuthMethod=None", "twice"),
        (stay, "CHAP_A=5", "no place here"),
        (next, "MaxBurstLength", "key"),
        (next, "TargetPortalGroupTag=x", "expected 0 to 65535"),
    ] {
        let mut played = Played::new(Digests::NONE);
        played.connect();
        let (request, _) = played.hear_login();
        played.answer_login(&request, flags, keys);
        let why = played.initiator.explain();
        assert!(played.closes && why.contains(rule), "{keys}: {why}");
    }
    // Whoever has to prove something does so before the next stage.
    let mutual = Some(login("the host's own", Some("the target's own")));
    let mut played = Played::with(Settings { auth: mutual, ..settings(Digests::NONE) });
    played.connect();
    let (request, keys) = played.hear_login();
    assert!(keys.ends_with("AuthMethod=CHAP") && request.flags == stay, "{keys}");
    played.answer_login(&request, stay, "AuthMethod=CHAP");
    let (request, keys) = played.hear_login();
    assert_eq!(keys, "CHAP_A=8,7,6,5");
    played.answer_login(&request, stay, "CHAP_A=7 CHAP_I=1 CHAP_C=0x0102030405060708");
    let (request, keys) = played.hear_login();
    assert!(keys.starts_with("CHAP_N=host CHAP_R=0x") && keys.contains("CHAP_C=0x"), "{keys}");
    assert_eq!(request.flags, next);
    played.answer_login(&request, next, "");
    let why = played.initiator.explain();
    assert!(played.closes && why.contains("has not proved who it is"), "{why}");
}

#[test]
fn digests_are_insisted_on() {
    let mut played = Played::new(BOTH);
    played.connect();
    let (request, _) = played.hear_login();
    let next = LoginFlags::transit(SECURITY, OPERATIONAL);
    played.answer_login(&request, next, "AuthMethod=None");
    let (request, _) = played.hear_login();
    let last = LoginFlags::transit(OPERATIONAL, Stage::FULL_FEATURE);
    played.answer_login(&request, last, "HeaderDigest=None");
    let why = played.initiator.explain();
    assert!(why.contains("HeaderDigest: expected CRC32C; to do without, say hdgst=0"), "{why}");
}

#[test]
fn a_session_has_a_number() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    let (request, _) = played.hear_login();
    let next = LoginFlags::transit(SECURITY, OPERATIONAL);
    played.answer_login(&request, next, "");
    let (request, _) = played.hear_login();
    let flags = LoginFlags::transit(OPERATIONAL, Stage::FULL_FEATURE);
    let response = LoginResponse::new(&request, flags, 0, 0, played.status());
    played.say(&response.emit(), &[]);
    assert!(played.initiator.explain().contains("a session has a TSIH"));
}

#[test]
fn a_login_that_does_not_come_to_an_end_is_given_up() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    for _ in 0..LOGIN_REQUESTS_MAX {
        let (request, _) = played.hear_login();
        played.answer_login(&request, LoginFlags::stay(SECURITY), "");
    }
    assert!(played.closes, "{}", played.initiator.explain());
    assert!(played.initiator.explain().contains("does not come to an end"));
    // Nor one that is silent.
    let mut played = Played::new(Digests::NONE);
    played.connect();
    let limit = played.now + HANDSHAKE;
    played.pass(limit);
    assert!(played.closes && played.initiator.explain().contains("no end of the login in time"));
}

#[test]
fn a_unit_that_does_not_get_ready_is_told_with_the_question() {
    let mut played = Played::new(Digests::NONE);
    played.connect();
    played.log_in("");
    played.hear_command();
    let limit = played.now + HANDSHAKE * 2 + Duration::from_secs(1);
    played.pass(limit);
    assert!(played.closes);
    let why = played.initiator.explain();
    assert!(why.contains("INQUIRY") || why.contains("is silent"), "{why}");
}
