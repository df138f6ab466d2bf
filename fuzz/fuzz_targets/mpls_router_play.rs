//! A router whose tables change while packets with any labels and frames of customers come.
//!
//! Checked: what is sent leaves by a core port, fits it, and is what came behind other labels with
//! hops left; what is delivered came by the port and in the tunnel of the pseudowire whose label is
//! at the bottom, with a number that is not late; what is dropped is counted once; a label is never
//! two owners', nor soon another's.
#![no_main]

use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;
use contract::{Counters, LinkId, MacAddress};
use libfuzzer_sys::fuzz_target;
use mpls::limits::QUARANTINE_DEFAULT;
use mpls::{
    Action, Adjacency, Circuit, Core, DropReason, Fec, FecId, Labels, NextHop, Nhlfe, NhlfeId,
    Origin, Over, Owner, Pseudowire, PseudowireId, Reach, Refused, Role, Router, Sequencing, Space,
    Verdict, Way, ilm,
};
use plateway_fuzz::{Choices, one_line};
use wire::mpls::{Label, LabelStack, LabelStackEntry};
use wire::pseudowire::{ControlWord, Packet};
use wire::sequence::{Arrival, Numbers, PseudowireSequence};

const CORE: u32 = 3;
/// Circuits have the numbers behind those of core ports; the last port is not there at first.
const PORTS: usize = 7;
const LABELS: [u32; 12] = [16, 17, 18, 19, 20, 1040, 0xf_ffff, 0, 2, 1, 3, 7];
const OWN: MacAddress = MacAddress([2; 6]);
const THERE: MacAddress = MacAddress([4; 6]);

#[derive(Default)]
struct Play {
    router: Router,
    now: Instant,
    /// The last number that was delivered, by pseudowire, and how often its sender had begun anew.
    last: BTreeMap<u32, (PseudowireSequence, u64)>,
    /// Until when a label that was taken from somebody is nobody else's.
    withdrawn: BTreeMap<Label, (Owner, Instant)>,
}

fn draw_label(choices: &mut Choices<'_>) -> Label {
    Label::new(choices.of(&LABELS)).expect("20 bits")
}

fn draw_port(choices: &mut Choices<'_>) -> LinkId {
    LinkId(choices.below(PORTS) as u32)
}

fn at(vlan: Option<u16>) -> Reach {
    Reach::At(Adjacency { own: OWN, mac: THERE, vlan })
}

fn draw_nhlfe(choices: &mut Choices<'_>) -> Option<Nhlfe> {
    let next_hop = NextHop {
        port: draw_port(choices),
        reach: choices.of(&[
            at(None),
            at(Some(7)),
            Reach::Alone,
            at(None),
            at(Some(7)),
            Reach::Unresolved,
        ]),
    };
    let labels: Vec<Label> = (0..choices.below(6)).map(|_| draw_label(choices)).collect();
    let mtu = choices.of(&[1500, 60, 0]);
    match Labels::new(&labels) {
        Ok(labels) => Some(Nhlfe { next_hop, labels, mtu }),
        Err(refused) => {
            one_line(&refused);
            assert!(labels.len() > 3 || labels.iter().any(|label| label.is_special()));
            None
        }
    }
}

fn draw_pseudowire(choices: &mut Choices<'_>) -> Pseudowire {
    let origins = (0..1 + choices.below(2)).map(|_| Origin {
        port: draw_port(choices),
        tunnel: choices.flag().then(|| Label::new(17).expect("20 bits")),
        way: Way::Primary,
    });
    let origins = origins.collect();
    Pseudowire {
        fec: Fec::all_of(LinkId(CORE + choices.below(3) as u32)),
        label_in: draw_label(choices),
        label_out: draw_label(choices),
        origins,
        nhlfe: NhlfeId(choices.below(3) as u32),
        backup: None,
        control_word: choices.of(&[
            Some(Sequencing::Drop),
            Some(Sequencing::Off),
            None,
            Some(Sequencing::Reorder),
        ]),
        clamp: None,
    }
}

/// A packet from its label stack on: labels that are known here, or any bytes.
fn draw_packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let how = choices.byte();
    let mut packet = Vec::new();
    let depth = if how & 0x80 == 0 { usize::from(how & 3) } else { 20 };
    for above in (0..=depth).rev() {
        let label = draw_label(choices);
        let is_bottom = (above == 0) != (how & 0x40 != 0);
        let ttl = if how & 0x20 == 0 { 64 } else { choices.byte() & 3 };
        packet.extend(LabelStackEntry { label, traffic_class: how, is_bottom, ttl }.emit());
    }
    let number = PseudowireSequence(choices.word());
    packet.extend(ControlWord::ethernet(number).emit());
    packet.extend([0x5a; 60]);
    if how & 0x10 != 0 {
        let at = choices.below(packet.len());
        packet[at] = choices.byte();
        packet.truncate(choices.below(packet.len() + 1));
    }
    packet
}

fn draw_frame(choices: &mut Choices<'_>) -> Vec<u8> {
    let how = choices.byte();
    let mut frame = vec![how; 12];
    if how & 1 != 0 {
        frame.extend([0x81, 0, choices.byte(), 1]);
    }
    if how & 2 != 0 {
        frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, how >> 2]);
    }
    let ether_type = choices.of(&[0x88a2_u16, 0x8847, 0x8808, 0x8809, 0x8100]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(draw_packet(choices));
    frame.truncate(if how & 4 != 0 { choices.below(frame.len() + 1) } else { frame.len() });
    frame
}

impl Play {
    fn role(&self, port: LinkId) -> Option<Role> {
        self.router.ports().find(|(id, ..)| *id == port).map(|(_, role, ..)| *role)
    }

    fn drops(&self, port: LinkId) -> u64 {
        let port = self.router.ports().find(|(id, ..)| *id == port);
        let drops = port.map_or(self.router.strays(), |(_, _, _, drops)| drops);
        drops.values().sum()
    }

    fn pseudowire(&self, id: u32) -> Option<&Pseudowire> {
        self.router.pseudowires().find(|(other, ..)| other.0 == id).map(|(_, value, ..)| value)
    }

    /// A packet by any port.
    fn labelled(&mut self, choices: &mut Choices<'_>) {
        let (port, packet) = (draw_port(choices), draw_packet(choices));
        let before = self.drops(port);
        let verdict = self.router.handle_labelled(self.now, port, &packet);
        let is_core = matches!(self.role(port), Some(Role::Core(_)));
        assert!(is_core || verdict == Verdict::Drop(DropReason::NotCore));
        match verdict {
            Verdict::Drop(_) => {}
            Verdict::Send { port, rest } => {
                let front = self.router.front().to_vec();
                self.sent(port, &front, rest, &packet);
                let taken = packet.len() - rest.len();
                let came = LabelStackEntry::parse(&packet[taken - 4..]).expect("it was looked up");
                let entries = &front[self.header(port, &front)..];
                for entry in entries.chunks(4) {
                    let entry = LabelStackEntry::parse(entry).expect("entries have 4 bytes");
                    assert_eq!(entry.ttl, came.ttl - 1);
                    assert_eq!(entry.traffic_class, came.traffic_class);
                }
                // Into UDP there may be nothing in front of what is left.
                let last = entries.chunks(4).next_back().map(LabelStackEntry::parse);
                assert!(match last {
                    None => !came.is_bottom,
                    Some(last) => last.expect("4 bytes").is_bottom == came.is_bottom,
                });
            }
            Verdict::Deliver { circuit, frame } => self.delivered(port, &packet, circuit, frame),
            Verdict::Channel { pseudowire, message, .. } => {
                let value = self.came_to(port, &packet);
                assert_eq!(self.pseudowire(pseudowire.0), Some(value));
                assert!(value.control_word.is_some() && packet.ends_with(message));
            }
            Verdict::Wait => {
                let value = self.came_to(port, &packet);
                assert_eq!(value.control_word, Some(Sequencing::Reorder));
            }
            Verdict::DeliverChanged { .. } => panic!("no pseudowire has a clamp"),
            Verdict::Copy => panic!("no circuit is split"),
        }
        let is_dropped = matches!(verdict, Verdict::Drop(_));
        assert_eq!(self.drops(port) - before, u64::from(is_dropped), "{verdict:?}");
    }

    /// What came early and waits no longer.
    fn early(&mut self) {
        while let Some((circuit, frame)) = self.router.poll_early(self.now) {
            let Some(Role::Circuit(role)) = self.role(circuit) else { panic!("{circuit}") };
            assert!((14..=role.mtu as usize + 18).contains(&frame.len()));
        }
        assert!(self.router.poll_timeout().is_none_or(|at| at > self.now));
    }

    /// The pseudowire that a packet is one of, by what it has and where it came.
    fn came_to(&self, port: LinkId, packet: &[u8]) -> &Pseudowire {
        let stack = LabelStack::parse(packet, 16).expect("what leaves has a bottom");
        let mut labels = stack.entries().rev().map(|entry| entry.label);
        let (bottom, tunnel) = (labels.next(), labels.next());
        let is_it = |value: &&Pseudowire| Some(value.label_in) == bottom;
        let all = self.router.pseudowires().map(|(_, value, ..)| value);
        let value = all.into_iter().find(is_it).expect("a pseudowire has the label");
        assert!(
            value.origins.contains(&Origin { port, tunnel, way: Way::Primary }),
            "{value:?}: {tunnel:?}"
        );
        value
    }

    fn delivered(&mut self, port: LinkId, packet: &[u8], circuit: LinkId, frame: &[u8]) {
        let value = self.came_to(port, packet);
        assert_eq!(value.fec.circuit, circuit);
        assert!(packet.ends_with(frame) && frame.len() >= 14);
        let Some(Role::Circuit(role)) = self.role(circuit) else { panic!("{circuit}") };
        assert!(frame.len() <= role.mtu as usize + 18);
        let behind = LabelStack::parse(packet, 16).expect("it was popped").payload();
        let Some(sequencing) = value.control_word else { return assert_eq!(behind, frame) };
        let Ok(Packet::Data(word, inside)) = Packet::parse(behind) else { panic!("no frame") };
        assert_eq!(inside, frame);
        if sequencing == Sequencing::Drop && word.sequence != PseudowireSequence::UNSEQUENCED {
            let found = self.router.pseudowires().find(|(_, other, ..)| *other == value);
            let (id, resynced) =
                found.map(|(id, _, _, seen, _)| (id.0, seen.resynced)).expect("it is there");
            if let Some((last, known)) = self.last.insert(id, (word.sequence, resynced)) {
                let numbers = Numbers::PSEUDOWIRE;
                let expected = numbers.next(last.number().expect("it had one"));
                let arrival = numbers.arrival(word.sequence.number(), expected);
                assert!(known != resynced || arrival != Arrival::Late, "{last}, {word}");
            }
        }
    }

    /// What leaves: it fits, and its payload is what came, where it lies.
    fn sent(&self, port: LinkId, front: &[u8], rest: &[u8], came: &[u8]) {
        assert!(matches!(self.role(port), Some(Role::Core(_))), "{port}");
        assert!(came.as_ptr_range().contains(&rest.as_ptr()) || rest.is_empty());
        let header = self.header(port, front);
        if header > 0 {
            assert_eq!(front[..12], [THERE.0, OWN.0].concat());
            assert_eq!(front[header - 2..header], [0x88, 0x47]);
        }
        let largest = self.router.nhlfes().map(|(_, value, ..)| value.mtu).max();
        assert!(front.len() - header + rest.len() <= largest.expect("it was sent") as usize);
    }

    /// Bytes of the header of Ethernet in front of what leaves by a core port.
    fn header(&self, port: LinkId, front: &[u8]) -> usize {
        match self.role(port) {
            Some(Role::Core(Core { over: Over::Udp, .. })) => 0,
            _ if front[12] == 0x81 => 18,
            _ => 14,
        }
    }

    /// A frame by any port.
    fn circuit(&mut self, choices: &mut Choices<'_>) {
        let (port, frame) = (draw_port(choices), draw_frame(choices));
        let before = self.drops(port);
        let verdict = self.router.handle_circuit(port, None, &frame);
        let is_circuit = matches!(self.role(port), Some(Role::Circuit(_)));
        let reserved = frame.len() >= 6 && frame[..5] == [1, 0x80, 0xc2, 0, 0] && frame[5] < 16;
        match verdict {
            Verdict::Send { port: out, rest } => {
                let front = self.router.front().to_vec();
                assert!(is_circuit && !reserved && rest == frame);
                self.sent(out, &front, rest, &frame);
                let header = self.header(out, &front);
                let stack = LabelStack::parse(&front[header..], 5).expect("one that was pushed");
                assert!(stack.entries().all(|entry| entry.ttl == 255));
                let all = self.router.pseudowires();
                let mut own = all.filter(|(_, value, ..)| value.fec == Fec::all_of(port));
                let bottom = stack.entries().next_back().map(|entry| entry.label);
                assert_eq!(own.next().map(|(_, value, ..)| value.label_out), bottom);
                assert_eq!(own.next(), None, "one pseudowire a circuit");
            }
            Verdict::Drop(_) => assert_eq!(self.drops(port), before + 1),
            other => panic!("{other:?}"),
        }
    }

    /// Changes what is done with a label of a tunnel.
    fn change_label(&mut self, choices: &mut Choices<'_>) {
        let (label, fec) = (draw_label(choices), FecId(choices.below(3) as u32));
        if choices.below(3) == 2 {
            let entry = self.router.labels(Space::Platform).and_then(|all| all.get(label)).copied();
            self.router.withdraw_label(self.now, Space::Platform, label, fec);
            self.note(entry.map(|entry| (label, entry)), Owner::Fec(fec));
        } else {
            let action = choices.of(&[
                Action::Pop,
                Action::Forward(NhlfeId(0)),
                Action::Forward(NhlfeId(1)),
            ]);
            let set = self.router.set_label(self.now, Space::Platform, label, fec, action);
            self.assigned(label, Owner::Fec(fec), set);
        }
    }

    /// An entry may have been taken from its owner.
    fn note(&mut self, before: Option<(Label, ilm::IlmEntry)>, owner: Owner) {
        if let Some((label, entry)) = before
            && entry.owner == owner
            && !matches!(entry.state, ilm::State::Withdrawn { .. })
        {
            self.withdrawn.insert(label, (owner, self.now + QUARANTINE_DEFAULT));
        }
    }

    fn assigned(&mut self, label: Label, owner: Owner, set: Result<(), Refused>) {
        match set {
            Err(refused) => one_line(&refused),
            Ok(()) => {
                assert!(!label.is_special());
                let gone = self.withdrawn.remove(&label);
                let is_free = gone.is_none_or(|(by, until)| by == owner || until <= self.now);
                assert!(is_free, "{label} was another's a moment ago");
            }
        }
    }

    fn change_pseudowire(&mut self, choices: &mut Choices<'_>) {
        let id = choices.below(3) as u32;
        let before = self.pseudowire(id).cloned();
        let owner =
            before.as_ref().map(|before| Owner::Pseudowire(PseudowireId(id), before.fec.circuit));
        let entry = before.as_ref().and_then(|before| {
            let labels = self.router.labels(Space::Platform)?;
            Some((before.label_in, *labels.get(before.label_in)?))
        });
        if choices.below(3) == 2 {
            self.router.remove_pseudowire(self.now, PseudowireId(id));
            self.last.remove(&id);
            owner.into_iter().for_each(|owner| self.note(entry, owner));
            return;
        }
        let mut value = draw_pseudowire(choices);
        if let Some(before) = before.as_ref().filter(|_| choices.flag()) {
            // The same in all but little.
            value = Pseudowire {
                nhlfe: value.nhlfe,
                control_word: value.control_word,
                ..before.clone()
            };
        }
        let set = self.router.set_pseudowire(self.now, PseudowireId(id), value.clone());
        if set.is_ok() {
            // Of another circuit nothing is known, nor of numbers that were ignored.
            let is_same = |before: &Pseudowire| {
                let circuit = before.fec.circuit == value.fec.circuit;
                circuit && before.control_word == value.control_word
            };
            if !before.as_ref().is_some_and(is_same) {
                self.last.remove(&id);
            }
            if entry.is_some_and(|(label, _)| label != value.label_in) {
                owner.into_iter().for_each(|owner| self.note(entry, owner));
            }
        } else {
            assert_eq!(self.pseudowire(id), before.as_ref(), "a refusal changes nothing");
        }
        self.assigned(value.label_in, Owner::Pseudowire(PseudowireId(id), value.fec.circuit), set);
    }

    fn change_port(&mut self, choices: &mut Choices<'_>) {
        let port = draw_port(choices);
        match choices.below(4) {
            0 => {
                let over = choices.of(&[Over::Ethernet, Over::Udp]);
                self.router.set_port(
                    port,
                    Role::Core(Core { takes_explicit_null: true, over, rate: None }),
                );
            }
            1 => self.router.set_port(port, Role::Core(Core::default())),
            2 => self.router.set_port(port, Role::Circuit(Circuit::new(choices.byte().into()))),
            _ => self.router.remove_port(port),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..6 => self.labelled(choices),
            6..9 => self.circuit(choices),
            9 => self.change_port(choices),
            10 => {
                let id = NhlfeId(choices.below(3) as u32);
                match draw_nhlfe(choices) {
                    Some(value) => self.router.set_nhlfe(id, value),
                    None => self.router.remove_nhlfe(id),
                }
            }
            11 | 12 => self.change_label(choices),
            13 | 14 => self.change_pseudowire(choices),
            _ => {
                let seconds = choices.of(&[1, 30, 59, 60, 61]);
                self.now = self.now + Duration::from_secs(seconds);
            }
        }
        self.early();
    }
}

/// Core ports 0 to 2, circuits 3 to 5; label 16 is switched, 17 popped, 18 is that of pseudowire 0.
fn start() -> Play {
    let mut play = Play::default();
    let router = &mut play.router;
    for number in 0..3 {
        router.set_port(LinkId(number), Role::Core(Core::default()));
        router.set_port(LinkId(CORE + number), Role::Circuit(Circuit::new(1500)));
    }
    let label = |number| Label::new(number).expect("20 bits");
    let next_hop = NextHop { port: LinkId(1), reach: at(None) };
    let labels = Labels::new(&[label(19)]).expect("one that is ordinary");
    router.set_nhlfe(NhlfeId(0), Nhlfe { next_hop, labels, mtu: 1500 });
    for (number, action) in [(16, Action::Forward(NhlfeId(0))), (17, Action::Pop)] {
        let set = router.set_label(play.now, Space::Platform, label(number), FecId(0), action);
        set.expect("nobody has it");
    }
    let pseudowire = Pseudowire {
        fec: Fec::all_of(LinkId(CORE)),
        label_in: label(18),
        label_out: label(20),
        origins: vec![Origin { port: LinkId(0), tunnel: Some(label(17)), way: Way::Primary }],
        nhlfe: NhlfeId(0),
        backup: None,
        control_word: Some(Sequencing::Drop),
        clamp: None,
    };
    router.set_pseudowire(play.now, PseudowireId(0), pseudowire).expect("nobody has its label");
    play
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = start();
    while !choices.is_empty() {
        play.step(&mut choices);
    }
    let labels = play.router.labels(Space::Platform).expect("the platform has labels");
    assert!(labels.iter().all(|(label, _)| !label.is_special()));
});
