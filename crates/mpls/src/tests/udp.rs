//! Core ports without Ethernet: packets come and go from their label stack on, to and from the one
//! router at the other end.

use contract::{InFrame, LinkFacts, VirtualLinks};

use super::*;
use crate::{Change, Forwarder, Over, Path, PortKind, RouterId};

const UDP: Core = Core { takes_explicit_null: false, over: Over::Udp, rate: None };

fn by_udp(port: u32, numbers: &[u32]) -> Nhlfe {
    let next_hop = NextHop { port: core(port), reach: Reach::Alone };
    Nhlfe { next_hop, ..nhlfe(port, numbers) }
}

/// The router of all, whose core ports 1 and 2 are MPLS in UDP.
fn in_udp() -> Router {
    let mut router = router();
    for number in [1, 2] {
        router.set_port(core(number), Role::Core(UDP));
    }
    router.set_nhlfe(NhlfeId(1), by_udp(2, &[800]));
    router
}

#[test]
fn a_frame_enters_and_is_sent_from_its_labels_on() {
    let mut router = in_udp();
    let (port, packet) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    assert_eq!(port, 2);
    let [tunnel, bottom] = [(800, false), (900, true)].map(|(number, is_bottom)| LabelStackEntry {
        ttl: 255,
        traffic_class: 0,
        ..entry(number, is_bottom)
    });
    assert_eq!(packet, stack(&[tunnel, bottom], &[&[0, 0, 0, 1], &FRAME[..]].concat()));
}

#[test]
fn a_packet_is_switched_between_ports_of_both_kinds() {
    let mut router = in_udp();
    router.set_nhlfe(NhlfeId(2), nhlfe(3, &[700]));
    router.set_nhlfe(NhlfeId(3), by_udp(2, &[]));
    set_label(&mut router, 301, Action::Forward(NhlfeId(2)));
    set_label(&mut router, 302, Action::Forward(NhlfeId(3)));
    let swapped = |number| LabelStackEntry { ttl: 63, ..entry(number, true) };
    for port in [1, 3] {
        let came = core(port);
        let bytes = stack(&[entry(300, true)], b"below");
        let out = sent(router.handle_labelled(NOW, came, &bytes), &router);
        assert_eq!(out, (2, stack(&[swapped(800)], b"below")), "to UDP, by {came}");
        let bytes = stack(&[entry(301, true)], b"below");
        let out = sent_packet(router.handle_labelled(NOW, came, &bytes), &router);
        assert_eq!(out, stack(&[swapped(700)], b"below"), "to Ethernet, by {came}");
        let bytes = stack(&[entry(302, false), entry(16, true)], b"below");
        let out = sent(router.handle_labelled(NOW, came, &bytes), &router);
        assert_eq!(out, (2, stack(&[entry(16, true)], b"below")), "the penultimate hop");
    }
}

#[test]
fn a_packet_leaves_its_pseudowire_if_it_came_by_the_port_of_that() {
    let mut router = in_udp();
    let bytes = packet(&[200, 100], 1);
    for other in [2, 3] {
        let verdict = router.handle_labelled(NOW, core(other), &bytes);
        assert_eq!(verdict, Verdict::Drop(DropReason::WrongPort), "port {other}");
    }
    let verdict = router.handle_labelled(NOW, core(1), &bytes);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &FRAME });
    dropped(&mut router, &packet(&[100], 2), DropReason::WrongTunnel);
    // What it would be with Ethernet is none of its packets.
    let framed = [&OWN.0[..], &NEIGHBOUR.0, &[0x88, 0x47], &bytes].concat();
    let verdict = router.handle_labelled(NOW, core(1), &framed);
    assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
}

#[test]
fn a_label_of_such_a_port_goes_before_one_of_the_platform() {
    let mut router = in_udp();
    let space = Space::Port(core(1));
    router.set_label(NOW, space, label(300), FecId(9), Action::Pop).unwrap();
    let bytes = packet(&[300, 200, 100], 1);
    let verdict = router.handle_labelled(NOW, core(1), &bytes);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(1), frame: &FRAME });
    assert_eq!(sent(router.handle_labelled(NOW, core(3), &bytes), &router).0, 2);
}

#[test]
fn a_next_hop_with_an_address_is_by_no_port_without_ethernet_and_the_other_way_around() {
    let mut router = in_udp();
    let bytes = stack(&[entry(300, true)], b"below");
    for wrong in [nhlfe(2, &[800]), by_udp(3, &[800])] {
        router.set_nhlfe(NhlfeId(1), wrong);
        dropped(&mut router, &bytes, DropReason::NoNextHop);
    }
}

#[test]
fn what_is_larger_than_a_datagram_may_be_is_dropped() {
    let mut router = in_udp();
    // Two labels, a control word and the frame.
    let bytes = 4 + 4 + 4 + FRAME.len() as u32;
    router.set_nhlfe(NhlfeId(1), Nhlfe { mtu: bytes, ..by_udp(2, &[800]) });
    assert_eq!(
        sent(router.handle_circuit(circuit(1), None, &FRAME), &router).1.len(),
        bytes as usize
    );
    router.set_nhlfe(NhlfeId(1), Nhlfe { mtu: bytes - 1, ..by_udp(2, &[800]) });
    let verdict = router.handle_circuit(circuit(1), None, &FRAME);
    assert_eq!(verdict, Verdict::Drop(DropReason::OverMtu));
}

const R: RouterId = RouterId(0);

/// What is known of a link of datagrams: there is no address.
fn facts(mtu: u32) -> LinkFacts {
    LinkFacts { mac: [0; 6], mtu, vlan: None, ring_frames: 64, is_shared: false }
}

fn path(port: u32, number: u32, backup: Option<NhlfeId>) -> Path {
    Path { port: core(port), via: None, labels: labels(&[number]), mtu: None, backup }
}

fn change(it: &mut Forwarder, change: Change) {
    it.change(NOW, R, change).unwrap();
}

/// Ports 1, 2 and 3 are MPLS in UDP, and up; 300 goes on by port 2, or by port 3 around that.
fn forwarder() -> Forwarder {
    let mut it = Forwarder::new(7);
    for number in 1..=3 {
        change(&mut it, Change::SetPort(core(number), PortKind::Core(UDP)));
        it.handle_link(NOW, core(number), Some(facts(1472)));
    }
    change(&mut it, Change::SetPath(NhlfeId(2), path(3, 900, None)));
    change(&mut it, Change::SetPath(NhlfeId(1), path(2, 800, Some(NhlfeId(2)))));
    let (space, label, fec) = (Space::Platform, label(300), FecId(1));
    let action = Action::Forward(NhlfeId(1));
    change(&mut it, Change::SetLabel { space, label, fec, action });
    it
}

/// What leaves when a packet with label 300 and so many bytes behind it comes by port 1.
fn leaves(it: &mut Forwarder, length: usize) -> Option<(LinkId, Vec<u8>)> {
    let bytes = stack(&[entry(300, true)], &vec![7; length]);
    assert!(it.receive(NOW, &InFrame::new(core(1), None, &bytes)).is_none());
    let batch = it.poll_batch()?;
    let mut frames = batch.to_frames(&testkit::Pages::new());
    it.handle_sent(batch);
    assert_eq!((frames.len(), it.poll_batch().is_none()), (1, true));
    frames.pop()
}

#[test]
fn a_path_has_the_room_of_its_datagrams_and_no_address() {
    let mut it = forwarder();
    let swapped = LabelStackEntry { ttl: 63, ..entry(800, true) };
    let expected = (core(2), stack(&[swapped], &[7; 1468]));
    assert_eq!(leaves(&mut it, 1468), Some(expected));
    assert_eq!(leaves(&mut it, 1469), None);
    it.handle_link(NOW, core(2), Some(facts(1473)));
    assert!(leaves(&mut it, 1469).is_some());
    // Nothing of it is looked at as a frame.
    assert_eq!(*it.misfits(), contract::Misfits::default());
    let report = it.report(NOW, R).unwrap();
    assert_eq!(report.nhlfes[0].nhlfe.next_hop, NextHop { port: core(2), reach: Reach::Alone });
}

#[test]
fn without_a_route_packets_take_the_backup() {
    let mut it = forwarder();
    assert_eq!(leaves(&mut it, 40).unwrap().0, core(2));
    it.handle_link(NOW, core(2), None);
    let (port, packet) = leaves(&mut it, 40).unwrap();
    let swapped = LabelStackEntry { ttl: 63, ..entry(900, true) };
    assert_eq!((port, packet), (core(3), stack(&[swapped], &[7; 40])));
    // It is Up again, and not long enough.
    it.handle_link(NOW, core(2), Some(facts(1472)));
    assert_eq!(leaves(&mut it, 40).unwrap().0, core(3));
    let at = it.poll_timeout().expect("it goes back");
    it.handle_timeout(at);
    assert_eq!(leaves(&mut it, 40).unwrap().0, core(2));
}

#[test]
fn a_port_that_gets_ethernet_is_another_port() {
    let mut it = forwarder();
    change(&mut it, Change::SetPort(core(1), PortKind::Core(Core::default())));
    assert_eq!(leaves(&mut it, 40), None, "it is not up");
    let with_mac = LinkFacts { mac: OWN.0, ..facts(1500) };
    it.handle_link(NOW, core(1), Some(with_mac));
    assert_eq!(leaves(&mut it, 40), None, "packets are frames there");
    let bytes = stack(&[entry(300, true)], &[7; 40]);
    let bytes = [&OWN.0[..], &NEIGHBOUR.0, &[0x88, 0x47], &bytes].concat();
    assert!(it.receive(NOW, &InFrame::new(core(1), None, &bytes)).is_none());
    assert_eq!(it.poll_batch().map(|batch| batch.frames[0].link), Some(core(2)));
    // And back: what it was as Ethernet is forgotten.
    change(&mut it, Change::SetPort(core(1), PortKind::Core(UDP)));
    it.handle_link(NOW, core(1), Some(facts(1472)));
    assert_eq!(leaves(&mut it, 40).unwrap().0, core(2));
}
