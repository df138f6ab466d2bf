//! Circuits whose frames go several ways. Circuit 1 is split; pseudowires 1 and 2 have a class each,
//! and so has a tunnel.

use wire::aoe;
use wire::classify::{ClassKey, Classifier};
use wire::ethernet::{TagControl, VlanTag};

use super::*;
use crate::{Session, Tunnel, TunnelId, TunnelPort};

const GRE: LinkId = LinkId(21);
const NEAR: aoe::Address = aoe::Address::new(7, 0);
const FAR: aoe::Address = aoe::Address::new(7, 1);

fn split(classifier: Classifier, classes: [ClassKey; 2]) -> Router {
    let mut router = router();
    let role = Circuit { classifier: Some(classifier), ..Circuit::new(1500) };
    router.set_port(circuit(1), Role::Circuit(role));
    for (number, class) in (0..).zip(classes) {
        let wire = Pseudowire {
            fec: Fec { circuit: circuit(1), class: Some(class) },
            label_in: label(100 + number),
            label_out: label(900 + number),
            ..pseudowire()
        };
        router.set_pseudowire(NOW, PseudowireId(1 + number), wire).unwrap();
    }
    router
}

/// A frame of AoE, a request, to this station.
fn query(to: [u8; 6], shelf: u16, slot: u8) -> Vec<u8> {
    let [high, low] = shelf.to_be_bytes();
    let aoe = [0x88, 0xa2, 0x10, 0, high, low, slot, 1, 0, 0, 0, 1];
    [&to[..], &[2; 6], &aoe, &[0; 36]].concat()
}

/// The label of the pseudowire by which a frame goes.
#[track_caller]
fn by(router: &mut Router, tag: Option<VlanTag>, frame: &[u8]) -> u32 {
    bottom(&sent_packet(router.handle_circuit(circuit(1), tag, frame), router))
}

fn bottom(packet: &[u8]) -> u32 {
    LabelStackEntry::parse(&packet[4..]).unwrap().label.get()
}

#[track_caller]
fn goes_nowhere(router: &mut Router, frame: &[u8]) {
    let before = drops(router, circuit(1)).0.no_class;
    let verdict = router.handle_circuit(circuit(1), None, frame);
    assert_eq!(verdict, Verdict::Drop(DropReason::NoClass));
    assert_eq!(drops(router, circuit(1)).0.no_class, before + 1);
}

/// The labels of the pseudowires by which a frame goes that is for all, and where else it goes.
fn copies(router: &mut Router, tag: Option<VlanTag>, frame: &[u8]) -> Vec<u32> {
    assert_eq!(router.handle_circuit(circuit(1), tag, frame), Verdict::Copy);
    let wires: Vec<Wire> = router.classes_of(circuit(1)).collect();
    let copy = |wire| match sent(router.copy_to(wire, circuit(1), tag, frame), router) {
        (port, packet) if port == GRE.0 => {
            assert!(packet.ends_with(frame));
            port
        }
        (_, packet) => bottom(&packet[14..]),
    };
    wires.into_iter().map(copy).collect()
}

#[test]
fn what_is_for_one_target_goes_to_it_and_queries_for_several_go_once_to_each() {
    let mut router = split(Classifier::Aoe, [NEAR, FAR].map(ClassKey::aoe));
    for to in [[2, 0, 0, 0, 0, 9], [0xff; 6]] {
        assert_eq!(by(&mut router, None, &query(to, 7, 0)), 900);
        assert_eq!(by(&mut router, None, &query(to, 7, 1)), 901);
        goes_nowhere(&mut router, &query(to, 7, 2));
        goes_nowhere(&mut router, &query(to, 8, 0));
        for (shelf, slot) in [(0xffff, 0xff), (7, 0xff), (0xffff, 0)] {
            let query = query(to, shelf, slot);
            assert_eq!(copies(&mut router, None, &query), [900, 901]);
        }
    }
    // What is no AoE goes nowhere, and what stays on its cable does so before all else.
    goes_nowhere(&mut router, &[&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 46]].concat());
    let pause = [&[1, 0x80, 0xc2, 0, 0, 1][..], &[2; 6], &[0x88, 8], &[0; 46]].concat();
    let stays = router.handle_circuit(circuit(1), None, &pause);
    assert_eq!(stays, Verdict::Drop(DropReason::BridgeReserved));
    // A tunnel is one of them, and gets its copy.
    router.set_port(GRE, Role::Tunnels { kind: TunnelPort::Gre, mtu: 1480 });
    let tunnel = Tunnel {
        fec: Fec { circuit: circuit(1), class: Some(ClassKey::aoe(aoe::Address::new(6, 0))) },
        port: GRE,
        session: Session::Gre { key_in: None, key_out: None },
        sequencing: Sequencing::Off,
    };
    router.set_tunnel(TunnelId(1), tunnel).unwrap();
    assert_eq!(copies(&mut router, None, &query([0xff; 6], 0xffff, 0xff)), [GRE.0, 900, 901]);
    assert_eq!(
        sent(router.handle_circuit(circuit(1), None, &query([2; 6], 6, 0)), &router).0,
        GRE.0
    );
    // Each copy is a frame of its pseudowire, and the circuit received one.
    let counts: Vec<u64> = router.pseudowires().map(|(_, _, counters, ..)| counters.sent).collect();
    assert_eq!(counts, [9, 9]);
}

#[test]
fn a_query_for_all_of_a_circuit_that_has_no_classes_yet_is_counted() {
    let mut router = split(Classifier::Aoe, [NEAR, FAR].map(ClassKey::aoe));
    for number in 1..=2 {
        router.remove_pseudowire(NOW, PseudowireId(number));
    }
    goes_nowhere(&mut router, &query([0xff; 6], 0xffff, 0xff));
}

#[test]
fn frames_are_told_apart_by_vlan_station_or_type() {
    let mut router = split(Classifier::Vlan, [0, 7].map(ClassKey::vlan));
    let tagged = |vid| VlanTag {
        ether_type: EtherType::VLAN,
        control: TagControl(0).with_vid(vid).with_priority(3),
    };
    assert_eq!(by(&mut router, None, &FRAME), 900);
    assert_eq!(by(&mut router, Some(tagged(0)), &FRAME), 900, "a tag of priority alone");
    assert_eq!(by(&mut router, Some(tagged(7)), &FRAME), 901);
    let inside = [&FRAME[..12], &tagged(7).emit(), &FRAME[12..]].concat();
    assert_eq!(by(&mut router, None, &inside), 901);
    let other = router.handle_circuit(circuit(1), Some(tagged(8)), &FRAME);
    assert_eq!(other, Verdict::Drop(DropReason::NoClass));

    let stations = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let classes = stations.map(|mac| ClassKey::destination(MacAddress(mac)));
    let mut router = split(Classifier::Destination, classes);
    assert_eq!(by(&mut router, None, &query(stations[0], 7, 0)), 900);
    assert_eq!(by(&mut router, None, &query(stations[1], 0xffff, 0xff)), 901);
    goes_nowhere(&mut router, &query([2, 0, 0, 0, 0, 3], 7, 0));
    assert_eq!(copies(&mut router, None, &query([0xff; 6], 7, 0)), [900, 901]);
    // The tag and its priority are on each copy.
    let broadcast = query([0xff; 6], 7, 0);
    for wire in router.classes_of(circuit(1)).collect::<Vec<_>>() {
        let copy = router.copy_to(wire, circuit(1), Some(tagged(7)), &broadcast);
        let packet = sent_packet(copy, &router);
        assert_eq!(LabelStackEntry::parse(&packet).unwrap().traffic_class, 3);
        let whole = [&broadcast[..12], &tagged(7).emit(), &broadcast[12..]].concat();
        assert!(packet.ends_with(&whole));
    }

    let types = [EtherType::AOE, EtherType(0x800)].map(ClassKey::ether_type);
    let mut router = split(Classifier::EtherType, types);
    assert_eq!(by(&mut router, None, &FRAME), 900);
    let ip = [&FRAME[..12], &[8, 0], &FRAME[14..]].concat();
    assert_eq!(by(&mut router, None, &ip), 901);
    goes_nowhere(&mut router, &[&FRAME[..12], &[8, 6], &FRAME[14..]].concat());
}

#[test]
fn all_pseudowires_of_a_split_circuit_deliver_there_and_to_nobody_else() {
    let mut router = split(Classifier::Aoe, [NEAR, FAR].map(ClassKey::aoe));
    for bottom in [100, 101] {
        let packet = packet(&[200, bottom], 1);
        let verdict = router.handle_labelled(NOW, core(1), &packet);
        assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &FRAME });
    }
}

#[test]
fn a_class_is_one_pseudowire_s_and_a_circuit_that_is_not_split_has_none() {
    let mut router = split(Classifier::Aoe, [NEAR, FAR].map(ClassKey::aoe));
    let again = Pseudowire {
        fec: Fec { circuit: circuit(1), class: Some(ClassKey::aoe(FAR)) },
        label_in: label(110),
        ..pseudowire()
    };
    let refused = router.set_pseudowire(NOW, PseudowireId(3), again.clone()).unwrap_err();
    let text = "what comes by link 11 in class 0x701 goes by pseudowire 2";
    assert_eq!(refused.to_string(), text);
    // The class is free once its pseudowire is gone, or has another one.
    let other = Pseudowire {
        fec: Fec { circuit: circuit(1), class: Some(ClassKey::aoe(aoe::Address::new(9, 9))) },
        label_in: label(101),
        label_out: label(901),
        ..pseudowire()
    };
    router.set_pseudowire(NOW, PseudowireId(2), other).unwrap();
    router.set_pseudowire(NOW, PseudowireId(3), again).unwrap();
    assert_eq!(by(&mut router, None, &query([2; 6], 7, 1)), 900);
    assert_eq!(by(&mut router, None, &query([2; 6], 9, 9)), 901);
    // As a whole again, none of them is its pseudowire.
    router.set_port(circuit(1), Role::Circuit(Circuit::new(1500)));
    let far = query([2; 6], 7, 1);
    let whole = router.handle_circuit(circuit(1), None, &far);
    assert_eq!(whole, Verdict::Drop(DropReason::NoPseudowire));
    router.set_port(
        circuit(1),
        Role::Circuit(Circuit { classifier: Some(Classifier::Vlan), ..Circuit::new(1500) }),
    );
    goes_nowhere(&mut router, &query([2; 6], 7, 1));
    // Who lives on a circuit has no classes there.
    let own = router.handle_own(circuit(1), &FRAME, FRAME.len());
    assert_eq!(own, Err(DropReason::NoClass));
}
