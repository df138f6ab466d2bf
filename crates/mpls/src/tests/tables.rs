//! How tables change.

use core::time::Duration;

use super::*;
use crate::limits::{ORIGINS_MAX, QUARANTINE_DEFAULT};
use crate::{Owner, Refused};

const OWNER: Owner = Owner::Pseudowire(PseudowireId(1), LinkId(11));

fn after(time: Duration) -> Instant {
    NOW + time
}

fn other() -> Pseudowire {
    Pseudowire { fec: Fec::all_of(circuit(2)), label_in: label(101), ..pseudowire() }
}

#[test]
fn what_is_set_again_keeps_counters_and_sequence() {
    let mut router = router();
    let bytes = packet(&[200, 100], 7);
    assert!(matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. }));
    sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    sent(router.handle_labelled(NOW, core(1), &packet(&[300], 1)), &router);
    for number in 1..=3 {
        router.set_port(core(number), Role::Core(Core::default()));
        router.set_port(circuit(number), Role::Circuit(Circuit::new(1500)));
    }
    router.set_nhlfe(NhlfeId(1), nhlfe(3, &[800]));
    set_label(&mut router, 300, Action::Forward(NhlfeId(1)));
    set_label(&mut router, 200, Action::Pop);
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire()).unwrap();
    // That one again is late.
    dropped(&mut router, &bytes, DropReason::Late);
    let (port, frame) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    assert_eq!((port, &frame[22..26]), (3, &[0, 0, 0, 2][..]));
    let (_, _, counters, ..) = router.pseudowires().next().unwrap();
    assert_eq!((counters.sent, counters.delivered), (2, 1));
    assert_eq!(router.nhlfes().next().unwrap().2.packets, 3);
    assert_eq!(router.ports().next().unwrap().2.received, 3);
    let labels = router.labels(Space::Platform).unwrap();
    let packets = |number| labels.get(label(number)).unwrap().counters.packets;
    assert_eq!([100, 200, 300].map(packets), [2, 2, 1]);
}

#[test]
fn numbers_that_were_ignored_are_not_known_afterwards() {
    let mut router = router();
    let off = Pseudowire { control_word: Some(Sequencing::Off), ..pseudowire() };
    let delivers = |router: &mut Router, number| {
        let bytes = packet(&[200, 100], number);
        matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. })
    };
    assert!(delivers(&mut router, 9));
    router.set_pseudowire(NOW, PseudowireId(1), off).unwrap();
    assert!(delivers(&mut router, 3));
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire()).unwrap();
    assert!(delivers(&mut router, 4) && !delivers(&mut router, 4));
}

#[test]
fn the_label_of_a_removed_pseudowire_is_nobody_s_for_a_while() {
    let mut router = router();
    router.remove_pseudowire(NOW, PseudowireId(1));
    let bytes = packet(&[200, 100], 1);
    dropped(&mut router, &bytes, DropReason::Quarantined);
    assert_eq!(
        router.handle_circuit(circuit(1), None, &FRAME),
        Verdict::Drop(DropReason::NoPseudowire)
    );
    let next = Pseudowire { label_in: label(100), ..other() };
    let until = after(QUARANTINE_DEFAULT);
    let left = Duration::from_nanos(1);
    let refused = Refused::Quarantined { label: label(100), left };
    let just_before = Instant(until.0 - 1);
    let mut set = |now, id| router.set_pseudowire(now, PseudowireId(id), next.clone());
    assert_eq!(set(just_before, 2), Err(refused));
    // For another circuit it is another one, whatever its number.
    assert_eq!(set(just_before, 1), Err(refused));
    assert_eq!(set(until, 2), Ok(()));
    let verdict = router.handle_labelled(until, core(1), &bytes);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(2), frame: &FRAME });
}

#[test]
fn a_quarantine_that_nobody_follows_ends_as_an_unknown_label() {
    let mut router = router();
    router.set_quarantine(Duration::from_secs(1));
    router.withdraw_label(NOW, Space::Platform, label(300), FecId(300));
    let bytes = packet(&[300], 1);
    dropped(&mut router, &bytes, DropReason::Quarantined);
    let entry = router.labels(Space::Platform).unwrap().get(label(300)).unwrap();
    assert_eq!(entry.counters.dropped, 1);
    let verdict = router.handle_labelled(after(Duration::from_secs(1)), core(1), &bytes);
    assert_eq!(verdict, Verdict::Drop(DropReason::UnknownLabel));
}

#[test]
fn a_pseudowire_that_is_set_again_soon_has_its_label_and_begins_anew() {
    let mut router = router();
    let bytes = packet(&[200, 100], 7);
    assert!(matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. }));
    router.remove_pseudowire(NOW, PseudowireId(1));
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire()).unwrap();
    assert!(matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. }));
}

#[test]
fn a_pseudowire_with_another_label_gives_the_one_before_back() {
    let mut router = router();
    let moved = Pseudowire { label_in: label(110), ..pseudowire() };
    router.set_pseudowire(NOW, PseudowireId(1), moved).unwrap();
    dropped(&mut router, &packet(&[200, 100], 1), DropReason::Quarantined);
    let bytes = packet(&[200, 110], 1);
    assert!(matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. }));
}

#[test]
fn another_circuit_needs_another_label() {
    let mut router = router();
    let fec = Fec::all_of(circuit(2));
    let moved = Pseudowire { fec, ..pseudowire() };
    let taken = Refused::Taken { label: label(100), by: OWNER };
    assert_eq!(router.set_pseudowire(NOW, PseudowireId(1), moved.clone()), Err(taken));
    sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    let relabelled = Pseudowire { label_in: label(110), ..moved };
    router.set_pseudowire(NOW, PseudowireId(1), relabelled).unwrap();
    sent(router.handle_circuit(circuit(2), None, &FRAME), &router);
    assert_eq!(
        router.handle_circuit(circuit(1), None, &FRAME),
        Verdict::Drop(DropReason::NoPseudowire)
    );
    dropped(&mut router, &packet(&[200, 100], 1), DropReason::Quarantined);
}

#[test]
fn what_waits_for_a_circuit_reaches_no_other_one_that_has_its_pseudowire_next() {
    let mut router = router();
    let ordered = Pseudowire { control_word: Some(Sequencing::Reorder), ..pseudowire() };
    router.set_pseudowire(NOW, PseudowireId(1), ordered.clone()).unwrap();
    let first = packet(&[200, 100], 1);
    assert!(matches!(router.handle_labelled(NOW, core(1), &first), Verdict::Deliver { .. }));
    for number in [3, 4] {
        let early = packet(&[200, 100], number);
        assert_eq!(router.handle_labelled(NOW, core(1), &early), Verdict::Wait);
    }
    let fec = Fec::all_of(circuit(2));
    let moved = Pseudowire { fec, label_in: label(110), ..ordered };
    router.set_pseudowire(NOW, PseudowireId(1), moved).unwrap();
    assert_eq!(router.poll_early(NOW + Duration::from_secs(1)), None);
    // Its frames begin with any number.
    let begins = packet(&[200, 110], 2);
    let verdict = router.handle_labelled(NOW, core(1), &begins);
    assert!(matches!(verdict, Verdict::Deliver { circuit: LinkId(12), .. }), "{verdict:?}");
    let (.., drops) = router.pseudowires().next().unwrap();
    assert_eq!(drops.no_circuit, 2);
}

#[test]
fn what_is_another_s_is_refused_and_nothing_changes() {
    let mut router = router();
    let id = PseudowireId(2);
    let cases = [
        (
            Pseudowire { label_in: label(100), ..other() },
            Refused::Taken { label: label(100), by: OWNER },
        ),
        (
            Pseudowire { label_in: label(300), ..other() },
            Refused::Taken { label: label(300), by: Owner::Fec(FecId(300)) },
        ),
        (Pseudowire { label_in: label(3), ..other() }, Refused::Special(label(3))),
        (Pseudowire { label_out: label(3), ..other() }, Refused::Special(label(3))),
        (
            Pseudowire { fec: pseudowire().fec, ..other() },
            Refused::FecTaken { fec: pseudowire().fec, by: Wire::Pseudowire(PseudowireId(1)) },
        ),
        (Pseudowire { origins: vec![], ..other() }, Refused::Origins(0)),
        (
            Pseudowire { origins: vec![pseudowire().origins[0]; ORIGINS_MAX + 1], ..other() },
            Refused::Origins(ORIGINS_MAX + 1),
        ),
    ];
    for (wrong, refused) in cases {
        assert_eq!(router.set_pseudowire(NOW, id, wrong), Err(refused));
        let action = Action::Pop;
        let set = router.set_label(NOW, Space::Platform, label(100), FecId(100), action);
        assert_eq!(set, Err(Refused::Taken { label: label(100), by: OWNER }));
    }
    assert_eq!(router.pseudowires().count(), 1);
    assert_eq!(router.labels(Space::Platform).unwrap().iter().count(), 3);
    router.set_pseudowire(NOW, id, other()).unwrap();
}

#[test]
fn refusals_say_what_stands_against_them() {
    for (refused, text) in [
        (Refused::Special(label(3)), "expected a label of 16 or more, seen 3 (implicit null)"),
        (
            Refused::Taken { label: label(100), by: OWNER },
            "label 100 is that of pseudowire 1 (of link 11)",
        ),
        (
            Refused::Taken { label: label(300), by: Owner::Fec(FecId(7)) },
            "label 300 is that of FEC 7",
        ),
        (
            Refused::Quarantined { label: label(100), left: Duration::from_millis(8_001) },
            "label 100 was another's, and is nobody's for 9 s more",
        ),
        (
            Refused::FecTaken { fec: pseudowire().fec, by: Wire::Pseudowire(PseudowireId(1)) },
            "what comes by link 11 goes by pseudowire 1",
        ),
        (Refused::TooManyLabels(4), "expected at most 3 labels, seen 4"),
        (Refused::Origins(0), "expected 1 to 8 ways for packets to come, seen 0"),
    ] {
        assert_eq!(refused.to_string(), text);
    }
}
