//! How frames enter and leave.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::pseudowire::{AssociatedChannelHeader, ChannelType};

use super::*;

/// What a frame of circuit 1 is sent as, from the label stack on.
#[track_caller]
fn enter(router: &mut Router, frame: &[u8]) -> Vec<u8> {
    sent_packet(router.handle_circuit(circuit(1), None, frame), router)
}

#[track_caller]
fn refused(router: &mut Router, frame: &[u8], reason: DropReason) {
    let before = drops(router, circuit(1)).0.of(reason);
    assert_eq!(router.handle_circuit(circuit(1), None, frame), Verdict::Drop(reason));
    assert_eq!(drops(router, circuit(1)).0.of(reason), before + 1);
}

/// Which of these numbers are delivered, of frames that come 20 ms from each other.
fn delivered(router: &mut Router, numbers: impl IntoIterator<Item = u16>) -> Vec<u16> {
    let mut now = NOW;
    let comes = |number: &u16| {
        let bytes = packet(&[200, 100], *number);
        now = now + Duration::from_millis(20);
        match router.handle_labelled(now, core(1), &bytes) {
            Verdict::Deliver { .. } => true,
            Verdict::Drop(DropReason::Late) => false,
            other => panic!("{other:?}"),
        }
    };
    numbers.into_iter().filter(comes).collect()
}

/// A frame with a tag of this priority.
fn tagged(priority: u8) -> Vec<u8> {
    [&FRAME[..12], &[0x81, 0, priority << 5 | 1, 0x23], &FRAME[12..]].concat()
}

#[test]
fn a_frame_enters_behind_its_tunnel_its_label_and_its_number() {
    let mut router = router();
    for number in [1, 2, 3] {
        let like = |number, is_bottom| LabelStackEntry {
            traffic_class: 0,
            ttl: 255,
            ..entry(number, is_bottom)
        };
        let word = [0, 0, 0, number];
        let behind = [&word[..], &FRAME].concat();
        assert_eq!(
            enter(&mut router, &FRAME),
            stack(&[like(800, false), like(900, true)], &behind)
        );
    }
    // 14 of Ethernet, 4 each of two labels and a control word in front of the frame.
    let (_, frame) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    assert_eq!(frame.len(), FRAME.len() + 26);
    let (_, _, counters, ..) = router.pseudowires().next().unwrap();
    assert_eq!((counters.sent, counters.sent_bytes), (4, 240));
}

#[test]
fn without_a_tunnel_label_the_pseudowire_s_is_the_top_one() {
    let mut router = router();
    router.set_nhlfe(NhlfeId(1), nhlfe(2, &[]));
    let top = LabelStackEntry::parse(&enter(&mut router, &FRAME)).unwrap();
    assert!(top.is_bottom && top.label == label(900), "{top}");
}

#[test]
fn numbers_follow_each_other_and_1_follows_65535() {
    let mut router = router();
    let mut number = |_| {
        let packet = enter(&mut router, &FRAME);
        u16::from_be_bytes([packet[10], packet[11]])
    };
    let numbers: Vec<u16> = (0..65_537).map(&mut number).collect();
    assert!(numbers.iter().copied().eq((1..=65_535).chain([1, 2])));
}

#[test]
fn the_priority_of_a_tag_becomes_the_class_by_the_circuit_s_table() {
    let mut router = router();
    let traffic_classes = [3, 2, 1, 0, 7, 6, 5, 4];
    router.set_port(circuit(1), Role::Circuit(Circuit { traffic_classes, ..Circuit::new(1500) }));
    let classes = |packet: Vec<u8>| {
        let both = [0, 4].map(|at| LabelStackEntry::parse(&packet[at..]).unwrap());
        both.map(|entry| entry.traffic_class)
    };
    for priority in 0..8 {
        let class = traffic_classes[usize::from(priority)];
        assert_eq!(classes(enter(&mut router, &tagged(priority))), [class; 2]);
    }
    assert_eq!(classes(enter(&mut router, &FRAME)), [3; 2]);
}

#[test]
fn what_lies_between_the_ends_of_a_cable_does_not_enter() {
    let mut router = router();
    for last in 0..=16 {
        let mut frame = FRAME;
        frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, last]);
        match last {
            16 => drop(enter(&mut router, &frame)),
            _ => refused(&mut router, &frame, DropReason::BridgeReserved),
        }
    }
    for ether_type in [EtherType::MAC_CONTROL, EtherType::SLOW_PROTOCOLS] {
        let mut frame = FRAME;
        frame[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
        refused(&mut router, &frame, DropReason::BridgeReserved);
        let mut frame = tagged(0);
        frame[16..18].copy_from_slice(&ether_type.0.to_be_bytes());
        refused(&mut router, &frame, DropReason::BridgeReserved);
    }
}

#[test]
fn what_is_no_frame_or_belongs_to_nobody_does_not_enter() {
    let mut router = router();
    refused(&mut router, &FRAME[..13], DropReason::Runt);
    refused(&mut router, &tagged(0)[..17], DropReason::Runt);
    assert_eq!(
        router.handle_circuit(circuit(2), None, &FRAME),
        Verdict::Drop(DropReason::NoPseudowire)
    );
    for port in [core(1), LinkId(99)] {
        assert_eq!(router.handle_circuit(port, None, &FRAME), Verdict::Drop(DropReason::NoCircuit));
    }
    router.remove_nhlfe(NhlfeId(1));
    refused(&mut router, &FRAME, DropReason::NoNextHop);
    assert_eq!(drops(&router, circuit(1)).1.no_next_hop, 1);
}

#[test]
fn a_frame_with_labels_is_a_frame_like_others() {
    let mut router = router();
    let forged = [&FRAME[..12], &[0x88, 0x47], &packet(&[200, 100], 9)[..]].concat();
    assert!(enter(&mut router, &forged).ends_with(&forged));
    let labels = router.labels(Space::Platform).unwrap();
    assert!(labels.iter().all(|(_, entry)| entry.counters.packets == 0));
}

#[test]
fn a_frame_that_does_not_fit_the_core_is_dropped_and_takes_no_number() {
    let mut router = router();
    // With two labels and a control word it has 12 bytes more.
    let mut frame = FRAME.to_vec();
    frame.resize(1600 - 12 + 1, 0);
    refused(&mut router, &frame, DropReason::OverMtu);
    frame.pop();
    let out = enter(&mut router, &frame);
    assert_eq!((out.len(), &out[8..12]), (1600, &[0, 0, 0, 1][..]));
    let (_, _, counters, _) = router.nhlfes().next().unwrap();
    assert_eq!((counters.over_mtu, drops(&router, circuit(1)).1.over_mtu), (1, 1));
}

#[test]
fn a_frame_leaves_as_it_entered() {
    for frame in [FRAME.to_vec(), tagged(5), vec![0xff; 14]] {
        let mut router = router();
        let word = [0, 0, 0, 1];
        let behind = [&word[..], &frame].concat();
        let bytes = stack(&[entry(200, false), entry(100, true)], &behind);
        let verdict = router.handle_labelled(NOW, core(1), &bytes);
        assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &frame });
        let (_, _, counters, ..) = router.pseudowires().next().unwrap();
        assert_eq!((counters.delivered, counters.delivered_bytes), (1, frame.len() as u64));
    }
}

#[test]
fn reserved_bits_of_a_control_word_are_ignored() {
    let mut bytes = packet(&[200, 100], 1);
    (bytes[8], bytes[9]) = (0x0f, 0xff);
    let mut router = router();
    let verdict = router.handle_labelled(NOW, core(1), &bytes);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &FRAME });
}

#[test]
fn a_packet_that_does_not_come_as_its_pseudowire_s_do_is_dropped() {
    let mut router = router();
    set_label(&mut router, 201, Action::Pop);
    dropped(&mut router, &packet(&[100], 1), DropReason::WrongTunnel);
    dropped(&mut router, &packet(&[201, 100], 1), DropReason::WrongTunnel);
    dropped(&mut router, &packet(&[200, 201, 100], 1), DropReason::WrongTunnel);
    let bytes = packet(&[200, 100], 1);
    let by_other = router.handle_labelled(NOW, core(2), &bytes);
    assert_eq!(by_other, Verdict::Drop(DropReason::WrongPort));
    let not_last = stack(&[entry(200, false), entry(100, false)], &packet(&[100], 1));
    dropped(&mut router, &not_last, DropReason::NotBottom);
    let drops = drops(&router, core(1)).1;
    assert_eq!((drops.wrong_tunnel, drops.wrong_port, drops.not_bottom), (3, 1, 1));
    // None of them touched what is known of sequence numbers.
    assert_eq!(delivered(&mut router, [1]), [1]);
}

#[test]
fn each_way_is_a_port_with_its_tunnel() {
    let mut router = router();
    let mut two = pseudowire();
    two.origins.push(Origin { port: core(2), tunnel: None, way: Way::Primary });
    router.set_pseudowire(NOW, PseudowireId(1), two).unwrap();
    for (port, numbers, passes) in
        [(1, &[200, 100][..], true), (2, &[100], true), (1, &[100], false), (2, &[200, 100], false)]
    {
        let bytes = packet(numbers, 0);
        let verdict = router.handle_labelled(NOW, core(port), &bytes);
        assert_eq!(matches!(verdict, Verdict::Deliver { .. }), passes, "{port} {numbers:?}");
    }
}

#[test]
fn two_customers_with_the_same_bytes_are_kept_apart() {
    let mut router = router();
    let other = Pseudowire {
        fec: Fec::all_of(circuit(2)),
        label_in: label(101),
        label_out: label(901),
        ..pseudowire()
    };
    router.set_pseudowire(NOW, PseudowireId(2), other).unwrap();
    for (number, out) in [(100, circuit(1)), (101, circuit(2))] {
        let bytes = packet(&[200, number], 1);
        let verdict = router.handle_labelled(NOW, core(1), &bytes);
        assert_eq!(verdict, Verdict::Deliver { circuit: out, frame: &FRAME });
    }
    let label_of = |packet: Vec<u8>| LabelStackEntry::parse(&packet[4..]).unwrap().label;
    assert_eq!(label_of(enter(&mut router, &FRAME)), label(900));
    assert_eq!(
        label_of(sent_packet(router.handle_circuit(circuit(2), None, &FRAME), &router)),
        label(901)
    );
}

#[test]
fn a_message_of_the_channel_never_reaches_a_circuit() {
    let mut router = router();
    let header = AssociatedChannelHeader { channel_type: ChannelType::BFD };
    let bytes = stack(
        &[entry(200, false), entry(100, true)],
        &[&header.emit()[..], b"bfd that is as long as a frame"].concat(),
    );
    let message = b"bfd that is as long as a frame";
    let verdict = router.handle_labelled(NOW, core(1), &bytes);
    assert_eq!(
        verdict,
        Verdict::Channel { pseudowire: PseudowireId(1), way: Way::Primary, header, message }
    );
    dropped(&mut router, &packet(&[201, 100], 1), DropReason::UnknownLabel);
    let forged = [&bytes[4..]].concat();
    dropped(&mut router, &forged, DropReason::WrongTunnel);
    let mut version = bytes.clone();
    version[8] = 0x11;
    dropped(&mut router, &version, DropReason::ChannelVersion);
    let (_, _, counters, ..) = router.pseudowires().next().unwrap();
    assert_eq!((counters.channel_messages, counters.delivered), (1, 0));
}

#[test]
fn what_has_no_control_word_is_never_a_frame() {
    let mut router = router();
    for nibble in 2..16 {
        let mut bytes = packet(&[200, 100], 1);
        bytes[8] = nibble << 4;
        dropped(&mut router, &bytes, DropReason::ControlWordMismatch);
    }
    assert_eq!(drops(&router, core(1)).1.control_word_mismatch, 14);
    for length in 0..4 {
        dropped(&mut router, &packet(&[200, 100], 1)[..8 + length], DropReason::Runt);
    }
    for length in 0..14 {
        dropped(&mut router, &packet(&[200, 100], 1)[..12 + length], DropReason::Runt);
    }
    assert_eq!(delivered(&mut router, [1]), [1]);
}

#[test]
fn a_pseudowire_without_a_control_word_has_frames_alone() {
    let mut router = router();
    let plain = Pseudowire { control_word: None, ..pseudowire() };
    router.set_pseudowire(NOW, PseudowireId(1), plain).unwrap();
    for first in [0x00, 0x10, 0x45] {
        let mut frame = FRAME;
        frame[0] = first;
        let out = enter(&mut router, &frame);
        assert_eq!((out.len(), &out[8..]), (68, &frame[..]));
        let bytes = stack(&[entry(200, false), entry(100, true)], &frame);
        let verdict = router.handle_labelled(NOW, core(1), &bytes);
        assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &frame });
    }
    let short = stack(&[entry(200, false), entry(100, true)], &FRAME[..13]);
    dropped(&mut router, &short, DropReason::Runt);
}

#[test]
fn late_frames_are_dropped_and_the_window_ends_at_32767() {
    let mut router = router();
    assert_eq!(delivered(&mut router, [1, 2, 2, 4, 3, 0, 4, 5]), [1, 2, 4, 0, 5]);
    assert_eq!(delivered(&mut router, [6 + 32_768, 5, 6 + 32_767]), [6 + 32_767]);
    assert_eq!(delivered(&mut router, [65_535, 1, 65_535, 2]), [65_535, 1, 2]);
    assert_eq!(drops(&router, core(1)).1.late, 6);
    let (_, _, _, seen, _) = router.pseudowires().next().unwrap();
    assert_eq!(seen.missing, 1 + 32_767 + (65_535 - 6 - 32_768));
}

#[test]
fn a_peer_that_began_anew_is_followed_after_64_frames() {
    let mut router = router();
    assert_eq!(delivered(&mut router, [500]), [500]);
    assert_eq!(delivered(&mut router, 1..=70), (65..=70).collect::<Vec<_>>());
    assert_eq!(router.pseudowires().next().unwrap().3.resynced, 1);
}

#[test]
fn numbers_that_are_off_are_neither_sent_nor_looked_at() {
    let mut router = router();
    let off = Pseudowire { control_word: Some(Sequencing::Off), ..pseudowire() };
    router.set_pseudowire(NOW, PseudowireId(1), off).unwrap();
    assert_eq!(delivered(&mut router, [9, 9, 1]), [9, 9, 1]);
    assert_eq!(enter(&mut router, &FRAME)[8..12], [0; 4]);
}

#[test]
fn a_frame_that_does_not_fit_its_circuit_is_dropped() {
    let mut router = router();
    router.set_port(circuit(1), Role::Circuit(Circuit::new(46)));
    let mut larger = packet(&[200, 100], 1);
    larger.push(0);
    dropped(&mut router, &larger, DropReason::OverCircuitMtu);
    assert_eq!(delivered(&mut router, [2]), [2]);
    // A tag does not count.
    let behind = [&[0, 0, 0, 3][..], &tagged(1)].concat();
    let bytes = stack(&[entry(200, false), entry(100, true)], &behind);
    assert!(matches!(router.handle_labelled(NOW, core(1), &bytes), Verdict::Deliver { .. }));
    router.remove_port(circuit(1));
    dropped(&mut router, &packet(&[200, 100], 4), DropReason::NoCircuit);
    router.set_port(circuit(1), Role::Core(Core::default()));
    dropped(&mut router, &packet(&[200, 100], 5), DropReason::NoCircuit);
}

#[test]
fn ports_count_what_came_and_left() {
    let mut router = router();
    enter(&mut router, &FRAME);
    delivered(&mut router, [1]);
    let seen: BTreeSet<_> = router
        .ports()
        .map(|(id, _, seen, _)| {
            (id.0, seen.received, seen.received_bytes, seen.sent, seen.sent_bytes)
        })
        .filter(|seen| seen.1 + seen.3 > 0)
        .collect();
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [(1, 1, 72, 0, 0), (2, 0, 0, 1, 72), (11, 1, 60, 1, 60)]
    );
}
