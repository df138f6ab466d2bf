//! Each key's result, at both ends.

use wire::iscsi::{Digests, LoginStatus};

use super::{Offer, Parameters, Responder};
use crate::limits::{BURST_MAX, FIRST_BURST_MAX, SEGMENT_MAX};

/// What a new responder answers to `keys`, one `key=value` a word.
fn answers(keys: &str) -> (Responder, Result<String, LoginStatus>) {
    let (mut responder, mut text) = (Responder::new(), Vec::new());
    for key in keys.split(' ') {
        let (key, value) = key.split_once('=').expect("a key with a value");
        if let Err(status) = responder.take(key, value, &mut text) {
            return (responder, Err(status));
        }
    }
    (responder, Ok(words(&text)))
}

fn words(text: &[u8]) -> String {
    String::from_utf8(text.to_vec()).unwrap().trim_end_matches('\0').replace('\0', " ")
}

fn answer(key: &str) -> String {
    answers(key).1.unwrap()
}

#[test]
fn numbers_have_the_result_that_their_key_wants() {
    for (offered, answered) in [
        ("MaxConnections=8", "MaxConnections=1"),
        ("MaxBurstLength=16776192", "MaxBurstLength=1048576"),
        ("MaxBurstLength=512", "MaxBurstLength=512"),
        ("MaxBurstLength=0x10000", "MaxBurstLength=65536"),
        ("FirstBurstLength=262144", "FirstBurstLength=8192"),
        ("FirstBurstLength=4096", "FirstBurstLength=4096"),
        ("DefaultTime2Wait=0", "DefaultTime2Wait=2"),
        ("DefaultTime2Wait=3600", "DefaultTime2Wait=3600"),
        ("DefaultTime2Retain=20", "DefaultTime2Retain=0"),
        ("MaxOutstandingR2T=16", "MaxOutstandingR2T=1"),
        ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
        ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
        ("iSCSIProtocolLevel=0", "iSCSIProtocolLevel=0"),
    ] {
        assert_eq!(answer(offered), answered);
    }
}

#[test]
fn a_number_out_of_range_and_a_value_of_another_kind_end_the_login() {
    for wrong in [
        "MaxConnections=0",
        "MaxBurstLength=511",
        "MaxBurstLength=16777216",
        "FirstBurstLength=",
        "FirstBurstLength=+8192",
        "FirstBurstLength=0x",
        "FirstBurstLength=8192.",
        "MaxRecvDataSegmentLength=99999999999999999999",
        "DefaultTime2Wait=3601",
        "ErrorRecoveryLevel=3",
        "InitialR2T=yes",
        "ImmediateData=1",
        "DataPDUInOrder=Irrelevant",
        "HeaderDigest=CRC64",
        "DataDigest=",
        "TaskReporting=FastAbort",
        "InitiatorName=host",
        "TargetAlias=mine",
        "TargetPortalGroupTag=1",
    ] {
        assert_eq!(answers(wrong).1, Err(LoginStatus::INITIATOR_ERROR), "{wrong}");
    }
    assert_eq!(answers("TargetName=disk").1, Err(LoginStatus::NOT_FOUND));
    let status = LoginStatus::SESSION_TYPE_NOT_SUPPORTED;
    assert_eq!(answers("SessionType=normal").1, Err(status));
}

#[test]
fn a_rejected_value_is_told() {
    let mut text = Vec::new();
    assert!(Responder::new().take("ErrorRecoveryLevel", "7", &mut text).is_err());
    assert_eq!(words(&text), "ErrorRecoveryLevel=Reject");
}

#[test]
fn unasked_data_are_as_the_host_wants_them() {
    for (offered, initial_r2t, immediate_data) in [
        ("InitialR2T=Yes ImmediateData=Yes", true, true),
        ("InitialR2T=Yes ImmediateData=No", true, false),
        ("InitialR2T=No ImmediateData=Yes", false, true),
        ("InitialR2T=No ImmediateData=No", false, false),
    ] {
        let (responder, answered) = answers(offered);
        assert_eq!(answered.unwrap(), offered);
        let agreed = responder.parameters();
        assert_eq!((agreed.initial_r2t, agreed.immediate_data), (initial_r2t, immediate_data));
        assert_eq!(agreed.unasked() == 0, initial_r2t && !immediate_data);
    }
}

#[test]
fn data_come_in_order_whatever_a_host_can_do_without() {
    assert_eq!(
        answer("DataPDUInOrder=No DataSequenceInOrder=Yes"),
        "DataPDUInOrder=Yes DataSequenceInOrder=Yes"
    );
}

#[test]
fn the_first_digest_of_the_hosts_that_both_have_is_taken() {
    for (offered, chosen) in [
        ("CRC32C,None", "CRC32C"),
        ("None,CRC32C", "None"),
        ("X-other,CRC32C", "CRC32C"),
        ("CRC32C", "CRC32C"),
        ("None", "None"),
    ] {
        let (responder, answered) =
            answers(&format!("HeaderDigest={offered} DataDigest={offered}"));
        assert_eq!(answered.unwrap(), format!("HeaderDigest={chosen} DataDigest={chosen}"));
        let Parameters { header_digest, data_digest, .. } = responder.parameters();
        assert_eq!((header_digest, data_digest), (chosen == "CRC32C", chosen == "CRC32C"));
    }
}

#[test]
fn what_is_obsolete_is_declined_and_what_is_unknown_not_understood() {
    assert_eq!(
        answer("IFMarker=No OFMarker=Yes IFMarkInt=2048~4096 OFMarkInt=1"),
        "IFMarker=No OFMarker=No IFMarkInt=Reject OFMarkInt=Reject"
    );
    assert_eq!(
        answer("X-com.example.speed=11 AuthSpeed=fast TaskReporting=FastAbort,RFC3720"),
        "X-com.example.speed=NotUnderstood AuthSpeed=NotUnderstood TaskReporting=RFC3720"
    );
}

#[test]
fn a_key_that_comes_twice_ends_the_login() {
    let twice = "MaxBurstLength=4096 MaxBurstLength=4096";
    assert_eq!(answers(twice).1, Err(LoginStatus::INITIATOR_ERROR));
    let mut text = Vec::new();
    let mut responder = answers("MaxRecvDataSegmentLength=4096").0;
    let again = responder.take("MaxRecvDataSegmentLength", "4096", &mut text);
    assert_eq!(again, Err(LoginStatus::INITIATOR_ERROR));
}

#[test]
fn in_a_discovery_session_what_is_about_data_is_irrelevant() {
    let (responder, answered) = answers(
        "SessionType=Discovery InitialR2T=No ImmediateData=Yes MaxBurstLength=1 MaxConnections=1 \
         FirstBurstLength=512 MaxOutstandingR2T=1 DataPDUInOrder=Yes DataSequenceInOrder=Yes \
         TaskReporting=RFC3720 iSCSIProtocolLevel=1",
    );
    assert!(responder.is_discovery());
    let answered = answered.unwrap();
    assert_eq!(answered.split(' ').count(), 10);
    assert!(answered.split(' ').all(|answer| answer.ends_with("=Irrelevant")), "{answered}");
    assert_eq!(
        answers("SessionType=Discovery HeaderDigest=None ErrorRecoveryLevel=0").1.unwrap(),
        "HeaderDigest=None ErrorRecoveryLevel=0"
    );
}

#[test]
fn the_first_burst_is_never_longer_than_a_burst() {
    let (responder, answered) = answers("MaxBurstLength=4096 FirstBurstLength=8192");
    assert_eq!(answered.unwrap(), "MaxBurstLength=4096 FirstBurstLength=4096");
    assert_eq!(responder.parameters().first_burst, 4096);
    // The other way round it was answered already.
    let (responder, answered) = answers("FirstBurstLength=8192 MaxBurstLength=4096");
    assert_eq!(answered.unwrap(), "FirstBurstLength=8192 MaxBurstLength=4096");
    assert_eq!(responder.parameters().first_burst, 4096);
}

#[test]
fn names_are_remembered_and_not_answered() {
    let (responder, answered) = answers(
        "InitiatorName=iqn.2005-03.org.open-iscsi:a InitiatorAlias=a\x1bb SessionType=Normal \
         TargetName=iqn.2026-11.net.plateway:v0 MaxRecvDataSegmentLength=262144",
    );
    assert_eq!(answered.unwrap(), "");
    assert_eq!(responder.initiator().unwrap().to_string(), "iqn.2005-03.org.open-iscsi:a");
    assert_eq!(responder.target().unwrap().to_string(), "iqn.2026-11.net.plateway:v0");
    assert_eq!(responder.initiator_alias(), Some("a\u{fffd}b"));
    assert!(!responder.is_discovery());
    assert_eq!(responder.parameters().peer_segment, 262_144);
}

#[test]
fn our_segment_length_is_declared_once() {
    let (mut responder, mut text) = (Responder::new(), Vec::new());
    responder.declare(&mut text);
    responder.declare(&mut text);
    assert_eq!(words(&text), format!("MaxRecvDataSegmentLength={SEGMENT_MAX}"));
}

#[test]
fn in_the_full_feature_phase_only_what_may_change_is_taken() {
    let (mut responder, _) = answers("MaxRecvDataSegmentLength=8192 MaxBurstLength=65536");
    responder.renegotiate();
    let mut text = Vec::new();
    for (key, value) in [("MaxRecvDataSegmentLength", "4096"), ("MaxBurstLength", "4096")] {
        responder.take(key, value, &mut text).unwrap();
    }
    assert_eq!(words(&text), "MaxBurstLength=Reject");
    let Parameters { peer_segment, max_burst, .. } = responder.parameters();
    assert_eq!((peer_segment, max_burst), (4096, 65_536));
}

/// An offer to which the target answers `keys`, one `key=value` a word.
fn offer(digests: Digests, keys: &str) -> (Offer, Result<String, String>) {
    let (mut offer, mut replies) = (Offer::new(digests, false), Vec::new());
    offer.emit(&mut Vec::new());
    for key in keys.split(' ') {
        let (key, value) = key.split_once('=').expect("a key with a value");
        if let Err(why) = offer.take(key, value, &mut replies) {
            return (offer, Err(why));
        }
    }
    (offer, Ok(words(&replies)))
}

#[test]
fn both_ends_come_to_the_same_result() {
    for digests in [Digests::NONE, Digests { header: true, data: true }] {
        let mut offer = Offer::new(digests, false);
        let (mut offers, mut answered, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        offer.emit(&mut offers);
        let mut responder = Responder::new();
        for pair in words(&offers).split(' ') {
            let (key, value) = pair.split_once('=').unwrap();
            responder.take(key, value, &mut answered).unwrap();
        }
        responder.declare(&mut answered);
        for pair in words(&answered).split(' ') {
            let (key, value) = pair.split_once('=').unwrap();
            offer.take(key, value, &mut replies).unwrap();
        }
        assert!(replies.is_empty());
        let (ours, theirs) = (offer.parameters().unwrap(), responder.parameters());
        assert_eq!(Parameters { peer_segment: theirs.peer_segment, ..ours }, theirs);
        assert_eq!((ours.header_digest, ours.data_digest), (digests.header, digests.data));
        assert_eq!((ours.max_burst, ours.first_burst), (BURST_MAX, FIRST_BURST_MAX));
        assert_eq!(ours.peer_segment, SEGMENT_MAX);
        assert!(!ours.initial_r2t && ours.immediate_data);
    }
}

#[test]
fn a_discovery_session_offers_nothing_about_data() {
    let mut offers = Vec::new();
    Offer::new(Digests::NONE, true).emit(&mut offers);
    assert_eq!(
        words(&offers),
        "MaxRecvDataSegmentLength=16384 HeaderDigest=None DataDigest=None DefaultTime2Wait=2 \
         DefaultTime2Retain=0 ErrorRecoveryLevel=0"
    );
}

#[test]
fn a_result_that_there_cannot_be_is_refused_in_words() {
    for (answered, expected) in [
        ("MaxBurstLength=16776192", "MaxBurstLength: expected 512 to 1048576, seen \"16776192\""),
        ("MaxConnections=2", "expected 1 to 1"),
        ("ErrorRecoveryLevel=1", "expected 0 to 0"),
        ("DefaultTime2Wait=1", "expected 2 to 3600"),
        ("DefaultTime2Retain=20", "expected 0 to 0"),
        ("MaxOutstandingR2T=5", "expected 1 to 4"),
        ("FirstBurstLength=Reject", "seen \"Reject\""),
        ("DataPDUInOrder=No", "expected Yes"),
        ("InitialR2T=NotUnderstood", "expected Yes or No"),
        ("HeaderDigest=None", "hdgst=0"),
        ("DataDigest=Reject", "ddgst=0"),
        ("MaxRecvDataSegmentLength=12", "expected 512 to 16777215"),
        ("TargetPortalGroupTag=65536", "expected 0 to 65535"),
        ("ImmediateData=Yes ImmediateData=Yes", "twice"),
    ] {
        let error = offer(Digests { header: true, data: true }, answered).1.unwrap_err();
        assert!(error.contains(expected), "{answered}: {error}");
    }
    let error = offer(Digests::NONE, "HeaderDigest=CRC32C").1.unwrap_err();
    assert!(error.contains("hdgst=1"), "{error}");
}

#[test]
fn what_a_target_does_not_answer_is_as_the_standard_has_it() {
    let (quiet, _) = offer(Digests::NONE, "TargetPortalGroupTag=1");
    assert_eq!(quiet.parameters(), Ok(Parameters::default()));
    assert_eq!(quiet.portal_group(), Some(1));
    let (quiet, _) = offer(Digests { header: true, data: false }, "DataDigest=None");
    assert!(quiet.parameters().unwrap_err().contains("digests"));
}

#[test]
fn a_target_that_offers_on_its_own_is_answered() {
    let (_, replies) = offer(Digests::NONE, "X-edu.speed=11 iSCSIProtocolLevel=1 Y=NotUnderstood");
    assert_eq!(replies.unwrap(), "X-edu.speed=NotUnderstood iSCSIProtocolLevel=Reject");
}

#[test]
fn a_first_burst_above_the_burst_is_cut() {
    let (offer, taken) = offer(Digests::NONE, "MaxBurstLength=65536 FirstBurstLength=262144");
    assert_eq!(taken, Ok(String::new()));
    assert_eq!(offer.parameters().unwrap().first_burst, 65_536);
}
