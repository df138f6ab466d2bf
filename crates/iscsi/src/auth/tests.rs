//! CHAP between both ends, and against ends that cheat.

use wire::iscsi::LoginStatus;
use wire::iscsi::keys::values::{Base64, Hex};
use wire::iscsi::keys::{Pair, Pairs};

use super::{
    Algorithm, Asker, Challenge, Challenges, Credentials, Login, Required, Responder, Secret,
};

const CHALLENGE: Challenge = Challenge { identifier: 0x25, bytes: [0xa5; 32] };
const OURS: Challenge = Challenge { identifier: 7, bytes: [0x5a; 32] };

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret.as_bytes()).unwrap() }
}

fn required() -> Required {
    Required {
        users: vec![credentials("other", "another secret"), credentials("host", "the host's own")],
        own: Some(credentials("target", "the target's own")),
    }
}

fn login() -> Login {
    Login { own: credentials("host", "the host's own"), target: None }
}

fn mutual() -> Login {
    Login { target: Some(credentials("target", "the target's own")), ..login() }
}

/// A responder's answer to a text.
fn answer(responder: &mut Responder, text: &str) -> Result<String, LoginStatus> {
    for pair in text.split_terminator(' ') {
        let (key, value) = pair.split_once('=').unwrap();
        responder.take(key, value)?;
    }
    let mut answers = Vec::new();
    responder.answer(&mut answers)?;
    Ok(words(&answers))
}

fn words(text: &[u8]) -> String {
    String::from_utf8(text.to_vec()).unwrap().trim_end_matches('\0').replace('\0', " ")
}

/// How a login of both ends goes: what each of the two says of it.
fn play(login: Option<Login>, required: Option<Required>) -> Result<Responder, String> {
    let mut asker = Asker::new(login.map(|login| (login, OURS)));
    let mut responder = Responder::new(required, CHALLENGE);
    let mut text = Vec::new();
    asker.begin(&mut text);
    for _ in 0..4 {
        let answered =
            answer(&mut responder, &words(&text)).map_err(|status| status.to_string())?;
        text.clear();
        let answered = format!("{}\0", answered.replace(' ', "\0"));
        for pair in Pairs::new(answered.as_bytes()) {
            let Pair { key, value } = pair.unwrap();
            asker.take(key, value)?;
        }
        asker.go_on(&mut text)?;
        if asker.is_done() {
            return if responder.is_done() { Ok(responder) } else { Err("not done".to_owned()) };
        }
    }
    Err("it does not end".to_owned())
}

/// Computed with Python's hashlib.
#[test]
fn responses_are_those_of_other_implementations() {
    let secret = Secret::new(b"a secret of us two").unwrap();
    let challenge: Vec<u8> = (0..16).collect();
    for (algorithm, expected) in [
        (Algorithm::Md5, "0x41561b40056fc816139e6fc76504ecb9"),
        (Algorithm::Sha1, "0x8226f4e991a8be1c184914eb5e52f8dd34e61acc"),
        (Algorithm::Sha256, "0xaec6df2b815c48c8e272f2d12ff99ae83fd27bcd4296b8bf7e6d5531cc37c3b5"),
        (Algorithm::Sha3, "0xd1efcb84d3f1e019d9d424a176466754730741c8ba5b985123374312d48c12c0"),
    ] {
        let response = algorithm.response(&secret, 0x25, &challenge);
        assert_eq!(Hex(&response).to_string(), expected, "{algorithm:?}");
    }
}

#[test]
fn whoever_knows_the_secret_is_let_in_and_known_by_name() {
    let responder = play(Some(login()), Some(required())).unwrap();
    assert_eq!(responder.user(), Some("host"));
    assert!(play(Some(mutual()), Some(required())).is_ok());
    // Nobody is asked.
    for login in [None, Some(login())] {
        assert_eq!(play(login, None).unwrap().user(), None);
    }
}

#[test]
fn a_wrong_secret_an_unknown_name_and_no_method_are_all_refused_alike() {
    let refused = Err(LoginStatus::AUTHENTICATION_FAILURE.to_string());
    for own in [credentials("host", "another secret"), credentials("guest", "the host's own")] {
        let login = Login { own, target: None };
        assert_eq!(play(Some(login), Some(required())).map(|_| ()), refused);
    }
    assert_eq!(play(None, Some(required())).map(|_| ()), refused);
    // A target that has no secret of its own cannot prove anything.
    let without = Required { own: None, ..required() };
    assert_eq!(play(Some(mutual()), Some(without)).map(|_| ()), refused);
    assert_eq!(play(Some(mutual()), None).map(|_| ()), refused);
}

#[test]
fn a_target_that_does_not_know_its_secret_is_left() {
    let wrong = Required { own: Some(credentials("target", "what it may be")), ..required() };
    let error = play(Some(mutual()), Some(wrong)).unwrap_err();
    assert_eq!(error, "the target does not know its secret");
    let another = Required { own: Some(credentials("another", "the target's own")), ..required() };
    let error = play(Some(mutual()), Some(another)).unwrap_err();
    assert!(error.contains("calls itself \"another\", expected \"target\""), "{error}");
}

#[test]
fn a_target_that_skips_its_proof_is_left() {
    let mut asker = Asker::new(Some((mutual(), OURS)));
    let mut text = Vec::new();
    asker.begin(&mut text);
    assert_eq!((words(&text), asker.is_last()), ("AuthMethod=CHAP".to_owned(), false));
    asker.take("AuthMethod", "CHAP").unwrap();
    asker.go_on(&mut text).unwrap();
    let challenge = Hex(&CHALLENGE.bytes).to_string();
    for (key, value) in [("CHAP_A", "5"), ("CHAP_I", "0"), ("CHAP_C", &challenge)] {
        asker.take(key, value).unwrap();
    }
    asker.go_on(&mut text).unwrap();
    assert!(asker.is_last() && !asker.is_done());
    let error = asker.go_on(&mut text).unwrap_err();
    assert!(error.contains("not proved"), "{error}");
    assert!(!asker.is_done());
}

#[test]
fn a_target_that_would_do_without_proof_is_left_if_it_has_to_prove_something() {
    let mut asker = Asker::new(Some((mutual(), OURS)));
    asker.take("AuthMethod", "None").unwrap();
    let error = asker.go_on(&mut Vec::new()).unwrap_err();
    assert_eq!(error, "AuthMethod: expected CHAP, seen \"None\"");
    let mut asker = Asker::new(None);
    asker.take("AuthMethod", "CHAP").unwrap();
    assert!(asker.go_on(&mut Vec::new()).unwrap_err().contains("wants a name and a secret"));
}

#[test]
fn the_first_algorithm_of_the_hosts_that_the_target_has_is_taken() {
    for (offered, chosen) in [("5", 5), ("6,5", 6), ("7", 7), ("8,5", 8), ("99,0x6,5", 6)] {
        let mut responder = Responder::new(Some(required()), CHALLENGE);
        assert_eq!(answer(&mut responder, "AuthMethod=None,CHAP").unwrap(), "AuthMethod=CHAP");
        let answered = answer(&mut responder, &format!("CHAP_A={offered}")).unwrap();
        let start = format!("CHAP_A={chosen} CHAP_I=37 CHAP_C=0xa5a5");
        assert!(answered.starts_with(&start), "{answered}");
        assert!(!responder.is_done());
    }
    let mut responder = Responder::new(Some(required()), CHALLENGE);
    answer(&mut responder, "AuthMethod=CHAP").unwrap();
    let refused = answer(&mut responder, "CHAP_A=99");
    assert_eq!(refused, Err(LoginStatus::AUTHENTICATION_FAILURE));
}

/// A responder that has told its challenge, and the right response to it.
fn challenged() -> (Responder, String) {
    let mut responder = Responder::new(Some(required()), CHALLENGE);
    answer(&mut responder, "AuthMethod=CHAP").unwrap();
    answer(&mut responder, "CHAP_A=7").unwrap();
    let secret = login().own.secret;
    let response = Algorithm::Sha256.response(&secret, 0x25, &CHALLENGE.bytes);
    (responder, format!("CHAP_N=host CHAP_R={}", Base64(&response)))
}

#[test]
fn binary_values_may_be_base64() {
    let (mut responder, response) = challenged();
    assert_eq!(answer(&mut responder, &response), Ok(String::new()));
    assert!(responder.is_done());
}

#[test]
fn a_reflected_challenge_gets_no_answer() {
    let (mut responder, response) = challenged();
    let reflected = format!("{response} CHAP_I=37 CHAP_C={}", Hex(&CHALLENGE.bytes));
    assert_eq!(answer(&mut responder, &reflected), Err(LoginStatus::AUTHENTICATION_FAILURE));
    let mut asker = Asker::new(Some((mutual(), OURS)));
    asker.take("AuthMethod", "CHAP").unwrap();
    asker.go_on(&mut Vec::new()).unwrap();
    let ours = Hex(&OURS.bytes).to_string();
    for (key, value) in [("CHAP_A", "5"), ("CHAP_I", "7"), ("CHAP_C", &ours)] {
        asker.take(key, value).unwrap();
    }
    assert!(asker.go_on(&mut Vec::new()).is_err());
}

#[test]
fn what_comes_twice_out_of_place_or_malformed_ends_the_login() {
    let wrong = Err(LoginStatus::INITIATOR_ERROR);
    for text in [
        "AuthMethod=CHAP AuthMethod=CHAP",
        "AuthMethod=CHAP CHAP_A=5",
        "CHAP_N=host",
        "CHAP_I=256",
        "CHAP_C=abc",
        "CHAP_R=0xzz",
        "SendTargets=All",
    ] {
        let mut responder = Responder::new(Some(required()), CHALLENGE);
        assert_eq!(answer(&mut responder, text), wrong, "{text}");
    }
    let (mut responder, response) = challenged();
    assert_eq!(answer(&mut responder, &format!("{response} CHAP_I=1")), wrong);
    let (mut responder, response) = challenged();
    answer(&mut responder, &response).unwrap();
    assert_eq!(answer(&mut responder, &response), wrong);
    // A name alone proves nothing.
    let (mut responder, _) = challenged();
    let failed = Err(LoginStatus::AUTHENTICATION_FAILURE);
    assert_eq!(answer(&mut responder, "CHAP_N=host"), failed);
}

#[test]
fn a_text_with_nothing_in_it_changes_nothing() {
    let (mut responder, response) = challenged();
    assert_eq!(answer(&mut responder, ""), Ok(String::new()));
    assert!(!responder.is_done());
    assert_eq!(answer(&mut responder, &response), Ok(String::new()));
}

#[test]
fn secrets_are_long_enough_and_never_shown() {
    let error = Secret::new(b"eleven byte").unwrap_err();
    assert_eq!(error, "expected a secret of at least 12 bytes, seen 11");
    assert!(Secret::new(&[1; 256]).unwrap_err().contains("at most 255"));
    let shown = format!("{:?} {:?} {:?}", login(), required(), Challenges::new([7; 32]));
    assert!(shown.contains("***") && !shown.contains("own\""), "{shown}");
    assert!(!shown.contains('7'), "{shown}");
}

#[test]
fn one_secret_for_both_ways_is_refused() {
    assert_eq!((login().check(), mutual().check(), required().check()), (Ok(()), Ok(()), Ok(())));
    let same = Login { target: Some(credentials("target", "the host's own")), ..login() };
    assert!(same.check().unwrap_err().contains("give each its own"));
    let same = Required { own: Some(credentials("target", "another secret")), ..required() };
    assert!(same.check().unwrap_err().contains("give each its own"));
    let mut twice = required();
    twice.users.push(credentials("host", "a third secret"));
    assert!(twice.check().unwrap_err().contains("\"host\" twice"));
}

#[test]
fn no_challenge_is_made_twice() {
    let mut challenges = Challenges::new([1; 32]);
    let (first, second) = (challenges.make(), challenges.make());
    assert!(first.bytes != second.bytes && first.identifier != second.identifier);
    assert_ne!(Challenges::new([2; 32]).make().bytes, first.bytes);
    let of = |name: &[u8]| Challenges::new([1; 32]).of(name).make().bytes;
    assert!(of(b"a") != of(b"b") && of(b"a") != first.bytes);
}
