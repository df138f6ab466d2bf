//! The rules of a router, one small test each: [`labels`] switches packets, [`edge`] lets frames in
//! and out, [`split`] by several ways, [`tunnels`] through IP, [`tables`] changes what is known,
//! [`neighbour`] goes around a link, [`mtu`] knows what a path carries, [`udp`] has ports without
//! Ethernet. The router here has core
//! ports 1, 2 and 3 and circuits 11, 12 and 13.

use block::Instant;
use contract::{LinkId, MacAddress};
use wire::ethernet::EtherType;
use wire::mpls::{Label, LabelStackEntry};
use wire::pseudowire::ControlWord;
use wire::sequence::PseudowireSequence;

use crate::{
    Action, Adjacency, Circuit, Core, DropReason, Drops, Fec, FecId, Labels, NextHop, Nhlfe,
    NhlfeId, Origin, Pseudowire, PseudowireId, Reach, Role, Router, Sequencing, Space, Verdict,
    Way, Wire,
};

mod edge;
mod forwarder;
mod labels;
mod mtu;
mod neighbour;
mod protection;
mod resolve;
mod split;
mod tables;
mod tunnels;
mod udp;

const NOW: Instant = Instant(5_000_000_000);
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const NEIGHBOUR: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// A frame of a customer's: AoE, without a tag.
const FRAME: [u8; 60] = {
    let mut frame = [0x5a; 60];
    (frame[12], frame[13]) = (0x88, 0xa2);
    frame
};

fn core(number: u32) -> LinkId {
    LinkId(number)
}

fn circuit(number: u32) -> LinkId {
    LinkId(10 + number)
}

fn label(number: u32) -> Label {
    Label::new(number).unwrap()
}

fn labels(numbers: &[u32]) -> Labels {
    Labels::new(&numbers.iter().map(|number| label(*number)).collect::<Vec<_>>()).unwrap()
}

/// An entry with TTL 64 and traffic class 5.
fn entry(number: u32, is_bottom: bool) -> LabelStackEntry {
    LabelStackEntry { label: label(number), traffic_class: 5, is_bottom, ttl: 64 }
}

fn stack(entries: &[LabelStackEntry], payload: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(LabelStackEntry::emit).collect();
    bytes.extend_from_slice(payload);
    bytes
}

/// A pseudowire's packet: these labels, the last of which is the bottom, and a frame behind a
/// control word.
fn packet(numbers: &[u32], sequence: u16) -> Vec<u8> {
    let entries: Vec<_> =
        (1..).zip(numbers).map(|(at, number)| entry(*number, at == numbers.len())).collect();
    let word = ControlWord::ethernet(PseudowireSequence(sequence)).emit();
    stack(&entries, &[&word[..], &FRAME].concat())
}

const ADJACENCY: Adjacency = Adjacency { own: OWN, mac: NEIGHBOUR, vlan: None };

fn nhlfe(port: u32, numbers: &[u32]) -> Nhlfe {
    let next_hop = NextHop { port: core(port), reach: Reach::At(ADJACENCY) };
    Nhlfe { next_hop, labels: labels(numbers), mtu: 1600 }
}

/// Comes by core port 1 in tunnel 200 with label 100, leaves by NHLFE 1 with label 900.
fn pseudowire() -> Pseudowire {
    Pseudowire {
        fec: Fec::all_of(circuit(1)),
        label_in: label(100),
        label_out: label(900),
        origins: vec![Origin { port: core(1), tunnel: Some(label(200)), way: Way::Primary }],
        nhlfe: NhlfeId(1),
        backup: None,
        control_word: Some(Sequencing::Drop),
        clamp: None,
    }
}

/// Label 300 is switched by NHLFE 1, tunnel 200 ends here, and pseudowire 1 does.
fn router() -> Router {
    let mut router = Router::default();
    for number in 1..=3 {
        router.set_port(core(number), Role::Core(Core::default()));
        router.set_port(circuit(number), Role::Circuit(Circuit::new(1500)));
    }
    router.set_nhlfe(NhlfeId(1), nhlfe(2, &[800]));
    set_label(&mut router, 300, Action::Forward(NhlfeId(1)));
    set_label(&mut router, 200, Action::Pop);
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire()).unwrap();
    router
}

fn set_label(router: &mut Router, number: u32, action: Action) {
    router.set_label(NOW, Space::Platform, label(number), FecId(number), action).unwrap();
}

/// The frame that a router's last verdict sends, and where.
#[track_caller]
fn sent(verdict: Verdict<'_>, router: &Router) -> (u32, Vec<u8>) {
    match verdict {
        Verdict::Send { port, rest } => (port.0, [router.front(), rest].concat()),
        other => panic!("{other:?}"),
    }
}

/// What follows the Ethernet header of a frame that was sent.
#[track_caller]
fn sent_packet(verdict: Verdict<'_>, router: &Router) -> Vec<u8> {
    let (_, frame) = sent(verdict, router);
    assert_eq!(frame[..14], [&NEIGHBOUR.0[..], &OWN.0, &[0x88, 0x47]].concat());
    frame[14..].to_vec()
}

/// The drops of a port, and those of pseudowire 1.
fn drops(router: &Router, port: LinkId) -> (Drops, Drops) {
    let port = router.ports().find(|(id, ..)| *id == port).map(|(_, _, _, drops)| *drops);
    let pseudowire = router.pseudowires().next().map(|(_, _, _, _, drops)| *drops);
    (port.unwrap_or_default(), pseudowire.unwrap_or_default())
}

/// A packet by core port 1 is dropped, and counted once there.
#[track_caller]
fn dropped(router: &mut Router, packet: &[u8], reason: DropReason) {
    let before = drops(router, core(1)).0.of(reason);
    assert_eq!(router.handle_labelled(NOW, core(1), packet), Verdict::Drop(reason));
    assert_eq!(drops(router, core(1)).0.of(reason), before + 1);
}
