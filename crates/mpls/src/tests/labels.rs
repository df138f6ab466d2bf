//! What is done by labels alone.

use contract::Fetch;

use super::*;
use crate::limits::DEPTH_MAX;

#[test]
fn a_swap_keeps_the_bottom_and_the_class_and_takes_a_hop() {
    for is_bottom in [false, true] {
        let mut router = router();
        let bytes = stack(&[entry(300, is_bottom)], b"below");
        let out = sent_packet(router.handle_labelled(NOW, core(1), &bytes), &router);
        let swapped = LabelStackEntry { ttl: 63, ..entry(800, is_bottom) };
        assert_eq!(out, stack(&[swapped], b"below"));
    }
}

#[test]
fn a_packet_leaves_by_the_port_of_its_next_hop_with_its_tag() {
    let mut router = router();
    let mut to = nhlfe(3, &[800]);
    to.next_hop.reach = Reach::At(Adjacency { vlan: Some(7), ..ADJACENCY });
    router.set_nhlfe(NhlfeId(1), to);
    let bytes = stack(&[entry(300, true)], b"");
    let (port, frame) = sent(router.handle_labelled(NOW, core(1), &bytes), &router);
    assert_eq!(port, 3);
    let header = [&NEIGHBOUR.0[..], &OWN.0, &[0x81, 0, 5 << 5, 7, 0x88, 0x47]].concat();
    assert_eq!(frame[..18], header);
    assert_eq!(frame.len(), 18 + 4);
}

#[test]
fn a_packet_without_hops_goes_no_further() {
    let mut router = router();
    for ttl in [0, 1] {
        for number in [300, 200] {
            let top = LabelStackEntry { ttl, ..entry(number, false) };
            let bytes = stack(&[top, entry(100, true)], &packet(&[], 1));
            dropped(&mut router, &bytes, DropReason::TtlExpired);
        }
        let bottom = LabelStackEntry { ttl, ..entry(100, true) };
        let bytes = stack(&[entry(200, false), bottom], &packet(&[], 1));
        dropped(&mut router, &bytes, DropReason::TtlExpired);
    }
    let last = LabelStackEntry { ttl: 2, ..entry(300, true) };
    let out = sent_packet(router.handle_labelled(NOW, core(1), &stack(&[last], b"")), &router);
    assert_eq!(LabelStackEntry::parse(&out).unwrap().ttl, 1);
}

#[test]
fn the_penultimate_hop_pops_and_leaves_the_label_below_as_it_is() {
    let mut router = router();
    router.set_nhlfe(NhlfeId(1), nhlfe(2, &[]));
    let below = stack(&[LabelStackEntry { ttl: 9, ..entry(100, true) }], b"below");
    let bytes = stack(&[entry(300, false)], &below);
    assert_eq!(sent_packet(router.handle_labelled(NOW, core(1), &bytes), &router), below);
    // What would be left has no label.
    dropped(&mut router, &stack(&[entry(300, true)], b"below"), DropReason::BottomPopped);
}

#[test]
fn more_labels_are_a_tunnel_around_the_first() {
    let mut router = router();
    router.set_nhlfe(NhlfeId(1), nhlfe(2, &[700, 0, 800]));
    let bytes = stack(&[entry(300, true)], b"below");
    let out = sent_packet(router.handle_labelled(NOW, core(1), &bytes), &router);
    let like = |number, is_bottom| LabelStackEntry { ttl: 63, ..entry(number, is_bottom) };
    assert_eq!(out, stack(&[like(700, false), like(0, false), like(800, true)], b"below"));
}

#[test]
fn nothing_below_the_top_is_looked_at() {
    let mut router = router();
    for below in [&[][..], &[0xff; 3], &[0; 64], &[0xff; 64], &packet(&[200, 100], 1)] {
        let bytes = stack(&[entry(300, false)], below);
        match router.handle_labelled(NOW, core(1), &bytes) {
            Verdict::Send { port, rest, .. } => {
                assert_eq!((port, rest.as_ptr_range()), (core(2), bytes[4..].as_ptr_range()));
            }
            other => panic!("{below:?}: {other:?}"),
        }
    }
}

/// Of many labels, those that are told to come are fetched; nothing else becomes of them, whatever they are.
#[test]
fn what_comes_soon_changes_nothing() {
    let mut router = router();
    for number in 1_000..6_000 {
        set_label(&mut router, number, Action::Forward(NhlfeId(1 + number % 2)));
    }
    // Known, known without an NHLFE that is there, ending here, nobody's, special, cut short, none.
    let soon = [
        stack(&[entry(1_000, true)], b""),
        stack(&[entry(1_001, false)], b"below"),
        stack(&[entry(200, false)], b""),
        stack(&[entry(100, true)], b""),
        stack(&[entry(999, true)], b""),
        stack(&[entry(0, true)], b""),
        stack(&[entry(1_000, true)], b"")[..3].to_vec(),
        Vec::new(),
    ];
    let state = |router: &Router| {
        let labels: Vec<_> = router.labels.iter().map(|(label, entry)| (label, *entry)).collect();
        (labels, drops(router, core(1)))
    };
    let before = state(&router);
    for (packet, next) in soon.iter().zip(soon.iter().skip(1)) {
        router.fetch(Fetch::NOTHING, packet);
        router.fetch(Fetch::NOTHING, next);
    }
    assert_eq!(state(&router), before);
    let bytes = stack(&[entry(1_000, true)], b"below");
    let out = sent_packet(router.handle_labelled(NOW, core(1), &bytes), &router);
    assert_eq!(out[4..], *b"below");
}

#[test]
fn a_label_that_is_nobody_s_is_dropped() {
    let mut router = router();
    for number in [16, 299, 301, 0xf_ffff] {
        let bytes = stack(&[entry(number, true)], &FRAME);
        dropped(&mut router, &bytes, DropReason::UnknownLabel);
        let bytes = stack(&[entry(200, false), entry(number, true)], &FRAME);
        dropped(&mut router, &bytes, DropReason::UnknownLabel);
    }
}

#[test]
fn special_labels_are_dropped_but_for_explicit_null() {
    let mut router = router();
    router.set_port(core(1), Role::Core(Core { takes_explicit_null: true, ..Core::default() }));
    for number in 0..16 {
        let bytes = stack(&[entry(number, false), entry(300, true)], b"below");
        match number {
            0 | 2 => {
                let out = sent_packet(router.handle_labelled(NOW, core(1), &bytes), &router);
                assert_eq!(out[4..], *b"below");
            }
            1 | 7 | 13..=15 => dropped(&mut router, &bytes, DropReason::SpecialLabel),
            _ => dropped(&mut router, &bytes, DropReason::ReservedLabel),
        }
        let reason = match number {
            0 | 2 => DropReason::BottomPopped,
            13 | 14 => DropReason::SpecialLabel,
            _ => DropReason::ReservedLabel,
        };
        dropped(&mut router, &stack(&[entry(number, true)], b"below"), reason);
    }
    let spent = LabelStackEntry { ttl: 1, ..entry(0, false) };
    let bytes = stack(&[spent, entry(300, true)], b"below");
    dropped(&mut router, &bytes, DropReason::TtlExpired);
}

#[test]
fn explicit_null_is_popped_only_where_tunnels_end_with_it() {
    let mut router = router();
    let mut with_null = pseudowire();
    with_null.origins =
        vec![Origin { port: core(1), tunnel: Some(Label::IPV4_EXPLICIT_NULL), way: Way::Primary }];
    router.set_pseudowire(NOW, PseudowireId(1), with_null).unwrap();
    let bytes = packet(&[0, 100], 1);
    dropped(&mut router, &bytes, DropReason::ExplicitNull);
    router.set_port(core(1), Role::Core(Core { takes_explicit_null: true, ..Core::default() }));
    let verdict = router.handle_labelled(NOW, core(1), &bytes);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &FRAME });
}

#[test]
fn a_stack_without_a_bottom_is_dropped() {
    let mut router = router();
    for length in 0..4 {
        dropped(&mut router, &packet(&[300], 1)[..length], DropReason::Truncated);
        dropped(&mut router, &packet(&[200, 100], 1)[..4 + length], DropReason::Truncated);
    }
    dropped(&mut router, &stack(&[entry(200, true)], &FRAME), DropReason::BottomPopped);
}

#[test]
fn a_stack_is_popped_to_its_bound() {
    let mut router = router();
    for (tunnels, is_delivered) in [(DEPTH_MAX - 1, true), (DEPTH_MAX, false)] {
        let numbers: Vec<u32> = std::iter::repeat_n(200, tunnels).chain([100]).collect();
        let bytes = packet(&numbers, 1);
        match router.handle_labelled(NOW, core(1), &bytes) {
            Verdict::Deliver { frame, .. } => assert!(is_delivered && frame == FRAME),
            other => assert_eq!((other, is_delivered), (Verdict::Drop(DropReason::TooDeep), false)),
        }
    }
}

#[test]
fn what_is_larger_than_the_next_hop_takes_is_dropped_whole() {
    let mut router = router();
    let bytes = stack(&[entry(300, true)], &[0; 1597]);
    dropped(&mut router, &bytes, DropReason::OverMtu);
    let out = sent_packet(router.handle_labelled(NOW, core(1), &bytes[..1600]), &router);
    assert_eq!(out.len(), 1600);
    let (_, _, counters, _) = router.nhlfes().next().unwrap();
    assert_eq!((counters.packets, counters.packet_bytes, counters.over_mtu), (1, 1600, 1));
    let entry = router.labels(Space::Platform).unwrap().get(label(300)).unwrap();
    assert_eq!((entry.counters.packets, entry.counters.dropped), (2, 1));
    assert_eq!(entry.counters.packet_bytes, 1600 + 1601);
}

#[test]
fn a_next_hop_that_is_not_there_drops() {
    let mut router = router();
    let bytes = stack(&[entry(300, true)], &FRAME);
    // A circuit is none, whatever was configured.
    for to in [nhlfe(9, &[800]), nhlfe(11, &[800])] {
        router.set_nhlfe(NhlfeId(1), to);
        dropped(&mut router, &bytes, DropReason::NoNextHop);
    }
    router.remove_nhlfe(NhlfeId(1));
    dropped(&mut router, &bytes, DropReason::NoNextHop);
}

#[test]
fn labels_by_a_port_that_is_not_of_the_core_are_not_looked_at() {
    let mut router = router();
    for bytes in [packet(&[300], 1), packet(&[200, 100], 1)] {
        let verdict = router.handle_labelled(NOW, circuit(2), &bytes);
        assert_eq!(verdict, Verdict::Drop(DropReason::NotCore));
        assert_eq!(
            router.handle_labelled(NOW, LinkId(99), &bytes),
            Verdict::Drop(DropReason::NotCore)
        );
    }
    assert_eq!((drops(&router, circuit(2)).0.not_core, router.strays().not_core), (2, 2));
    let entry = router.labels(Space::Platform).unwrap().get(label(300)).unwrap();
    assert_eq!(entry.counters.packets, 0);
}

#[test]
fn a_label_of_a_port_goes_before_one_of_the_platform_and_only_on_top() {
    let mut router = router();
    router.set_nhlfe(NhlfeId(2), nhlfe(3, &[801]));
    let own = Space::Port(core(1));
    let action = Action::Forward(NhlfeId(2));
    router.set_label(NOW, own, label(300), FecId(77), action).unwrap();
    let port = |router: &mut Router, port, packet: &[u8]| {
        sent(router.handle_labelled(NOW, core(port), packet), router).0
    };
    assert_eq!(port(&mut router, 1, &packet(&[300], 1)), 3);
    assert_eq!(port(&mut router, 2, &packet(&[300], 1)), 2);
    assert_eq!(port(&mut router, 1, &packet(&[200, 300], 1)), 2, "below another label");
    assert_eq!(router.labels(own).unwrap().iter().count(), 1);
    router.withdraw_label(NOW, own, label(300), FecId(77));
    dropped(&mut router, &packet(&[300], 1), DropReason::Quarantined);
    router.remove_port(core(1));
    assert!(router.labels(own).is_none());
}
