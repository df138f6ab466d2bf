//! A run of routers as tables and verdicts: links that also corrupt, customers who forge, and whoever
//! changes tables meanwhile; all of it drawn from a seed. At the end the network heals, and every
//! wire must carry again.
//!
//! ```text
//!   wire 0  customer 0   LER1 .. LER2   a tunnel label and its own
//!   wire 1  customer 1   LER1 .. LER2   the same, in another tunnel
//!   wire 2  customer 0   LER1 .. LER3   LSR2 pops the tunnel label
//!   wire 3  customer 1   LER1 .. LER3   its label alone, no control word
//!   wire 4  customer 1   LER1 .. LER2   gets what wire 0 had
//!   wire 5  customer 0   LER1 .. LER3   by labels in UDP, or around by routers
//!   wires 6, 7  both     LER1 .. LER3   in GRE, each with its key
//!   wires 8, 9  both     LER1 .. LER3   in L2TPv3, each with its session
//! ```
//! Each wire of labels has a path that it goes by at first and, but for wire 3, another one. Those
//! through IP go from end to end by themselves. Nothing is late by half of all sequence numbers, and
//! while a router starts anew nothing is on its way: what a receiver cannot know then is told in
//! `sequencing`.

use core::time::Duration;

use block::{Instant, Random};
use contract::{InFrame, LinkFacts, LinkId};
use mpls::limits::{EARLY_WAIT, RESYNC_FRAMES, RESYNC_TIME};
use mpls::{
    Action, Adjacency, Circuit, Nhlfe, NhlfeId, Reach, Refused, Role, Router, Session, Space,
    TunnelId, TunnelPort, Verdict,
};
use wire::ethernet::{EtherType, Header, MacAddress};
use wire::l2tp::{Cookie, DataHeader, L2SpecificSublayer, Transport};
use wire::mpls::{Label, LabelStackEntry};
use wire::pseudowire::{AssociatedChannelHeader, ChannelType, ControlWord};
use wire::sequence::PseudowireSequence;

use super::customers::{Customers, ORDINARY};
use super::links::{Flight, Links, MICROSECOND};
use super::oracle::{Oracle, Tally};
use super::topology::*;

/// Longer than a frame's life: at most five links of at most [`HELD_MAX`](super::links::HELD_MAX).
const QUARANTINE: Duration = Duration::from_millis(60);
const STEPS: usize = 1500;
/// Frames with which each wire shows at the end that it carries, behind those after which a
/// receiver has found its sender again.
const SHOWN: u32 = 40;

const WIRES: usize = 10;
/// The wires of labels.
const LABELLED: usize = 6;
/// Those of L2TPv3.
const SESSIONS: [usize; 2] = [8, 9];
/// Two wires of different customers, of which one at a time has the labels of the first.
const SHARING: [usize; 2] = [0, 4];

const TABLE: [Wire; WIRES] = [
    wire(0, [&[LER1, LSR1, LSR2, LER2], &[LER1, LSR2, LER2]], 0, Tunnel::Label),
    wire(1, [&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], 1, Tunnel::Label),
    wire(2, [&[LER1, LSR2, LER3], &[LER1, LSR1, LER2, LSR2, LER3]], 2, Tunnel::Popped),
    wire(3, [&[LER1, LSR1, LER3], &[LER1, LSR1, LER3]], 3, Tunnel::None),
    wire(4, [&[LER1, LSR1, LSR2, LER2], &[LER1, LSR2, LER2]], 0, Tunnel::Label),
    wire(5, [&[LER1, LER3], &[LER1, LSR1, LSR2, LER3]], 4, Tunnel::Label),
    wire(6, [&[LER1, LER3]; 2], 0, Tunnel::Ip(TunnelPort::Gre)),
    wire(7, [&[LER1, LER3]; 2], 1, Tunnel::Ip(TunnelPort::Gre)),
    wire(8, [&[LER1, LER3]; 2], 0, Tunnel::Ip(TunnelPort::L2tp)),
    wire(9, [&[LER1, LER3]; 2], 1, Tunnel::Ip(TunnelPort::L2tp)),
];

struct World {
    random: Random,
    now: Instant,
    routers: [Router; ROUTERS],
    opened: contract::Links,
    links: Links,
    customers: Customers,
    /// The path by which each wire sends.
    in_use: [usize; WIRES],
    /// Of the wires that share labels the one that has them, or had, and the ends where it does.
    sharing: usize,
    has_ends: [bool; 2],
    oracle: Oracle,
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let faults = [0, 5, 30][random.below(3) as usize];
    let mut links = Links::new(random.fork(), faults);
    links.corrupts = true;
    let mut world = World {
        random,
        now: Instant::ZERO,
        routers: Default::default(),
        opened: contract::Links::default(),
        links,
        customers: Customers::default(),
        in_use: [0; WIRES],
        sharing: 0,
        has_ends: [true; 2],
        oracle: Oracle::default(),
    };
    for port in (0..2 * LINKS.len() as u32).map(LinkId) {
        let MacAddress(mac) = mac(port);
        let facts = LinkFacts { mac, mtu: CORE_MTU, vlan: None, ring_frames: 64, is_shared: false };
        world.opened.set(port, Some(facts));
    }
    (0..ROUTERS).for_each(|router| world.configure(router));
    for _ in 0..STEPS {
        world.step();
        if let Some(broken) = world.oracle.broken {
            return Err(broken);
        }
    }
    world.heal();
    world.oracle.broken.map_or(Ok(world.oracle.tally), Err)
}

impl World {
    /// Gives a router everything, as a start and a reload do.
    fn configure(&mut self, me: usize) {
        let router = &mut self.routers[me];
        router.set_quarantine(QUARANTINE);
        set_paths(router, me, self.now, &self.in_use);
        let unshared = (0..WIRES).filter(|wire| !SHARING.contains(wire));
        for (wire, end) in unshared.flat_map(|wire| [(wire, 0), (wire, 1)]) {
            if TABLE[wire].ends()[end] == me {
                assert!(set_wire(router, self.now, &TABLE[wire], end), "its label is no other's");
            }
        }
        self.give_shared_labels();
        self.release();
    }

    /// The wire whose turn it is gets its labels where it may.
    fn give_shared_labels(&mut self) {
        for end in [0, 1] {
            let router = &mut self.routers[TABLE[self.sharing].ends()[end]];
            self.has_ends[end] = set_wire(router, self.now, &TABLE[self.sharing], end);
        }
    }

    fn carries(&self, wire: usize) -> bool {
        !SHARING.contains(&wire) || (wire == self.sharing && self.has_ends == [true; 2])
    }

    fn step(&mut self) {
        let pause = Duration::from_nanos(self.random.below(60) * MICROSECOND);
        self.pass(self.now + pause);
        match self.random.below(200) {
            0..2 => {
                let router = self.random.below(ROUTERS as u64) as usize;
                self.configure(router);
            }
            2..4 => {
                let wire = self.random.below(LABELLED as u64) as usize;
                self.reroute(wire);
            }
            4 => self.hand_over(),
            5 => self.restart(),
            6 => self.hold_back(),
            7..12 => self.send_channel_message(),
            12..27 => self.forge(),
            27..30 => self.forge_session(),
            30..34 => self.send_what_stays(),
            _ => {
                let wire = self.random.below(WIRES as u64) as usize;
                let end = self.random.below(2) as usize;
                self.send(wire, end);
            }
        }
        if self.has_ends != [true; 2] {
            self.give_shared_labels();
        }
    }

    /// A wire goes by its other path from now on.
    fn reroute(&mut self, wire: usize) {
        self.in_use[wire] ^= 1;
        for from in [0, 1] {
            let to = TABLE[wire].nhlfe(self.in_use[wire], from, 0);
            let id = TABLE[wire].nhlfe_id(0, from);
            self.routers[TABLE[wire].ends()[from]].set_nhlfe(id, to);
        }
    }

    /// The labels of a wire go to one of another customer's, once they may. Whoever changes it waits
    /// until both ends have what they were given before: an end sends with the label that the other
    /// one has for it, or means to have.
    fn hand_over(&mut self) {
        if self.has_ends != [true; 2] {
            return;
        }
        let gone = self.sharing;
        for end in [0, 1] {
            let id = TABLE[gone].id();
            self.routers[TABLE[gone].ends()[end]].remove_pseudowire(self.now, id);
        }
        self.sharing = SHARING[usize::from(gone == SHARING[0])];
        self.in_use[self.sharing] = self.in_use[gone];
        self.give_shared_labels();
    }

    /// A router starts anew, after a silence.
    fn restart(&mut self) {
        self.drain();
        let router = self.random.below(ROUTERS as u64) as usize;
        self.routers[router] = Router::default();
        self.configure(router);
    }

    /// A link holds back a burst of a wire's, which goes another way meanwhile.
    fn hold_back(&mut self) {
        let wire = self.random.below(3) as usize;
        let end = self.random.below(2) as usize;
        let [here, next, ..] = TABLE[wire].path_from(self.in_use[wire], end)[..] else {
            unreachable!()
        };
        self.links.held = Some(port(here, next));
        for _ in 0..200 {
            self.send(wire, end);
        }
        self.links.held = None;
        self.reroute(wire);
        self.send(wire, end);
        self.drain();
    }

    /// A customer sends a frame.
    fn send(&mut self, wire: usize, end: usize) {
        let frame = self.customers.make_any(&mut self.random);
        self.enter(wire, end, &frame);
    }

    /// One of another kind.
    fn make_frame(&mut self, ether_type: EtherType, data: &[u8]) -> Vec<u8> {
        self.customers.make(&mut self.random, false, ether_type, data)
    }

    fn enter(&mut self, wire: usize, end: usize, frame: &[u8]) {
        let is_sequenced = TABLE[wire].sequencing.is_some();
        self.oracle.sent(TABLE[wire].circuit(1 - end), is_sequenced, frame);
        let at = TABLE[wire].ends()[end];
        let verdict = self.routers[at].handle_circuit(TABLE[wire].circuit(end), None, frame);
        self.carry_out(at, verdict, false);
    }

    /// A customer sends what a router sends, with the labels of anybody. It is also shown as a
    /// packet with labels, as by a driver that does not tell ports apart. What is inside reaches
    /// nobody.
    fn forge(&mut self) {
        let wire = self.random.below(WIRES as u64) as usize;
        let end = self.random.below(2) as usize;
        let here = TABLE[wire].ends()[end];
        let inside = self.make_frame(ORDINARY, b"forged");
        let (victim, path, from) = (
            self.random.below(LABELLED as u64) as usize,
            self.random.below(2) as usize,
            self.random.below(2) as usize,
        );
        let tunnel = TABLE[victim].label_at(path, from, here);
        let stack = [(tunnel, false), (TABLE[victim].bottom_label(1 - from), true)];
        let number =
            PseudowireSequence(self.random.below(2) as u16 * self.random.next_u64() as u16);
        let word = ControlWord::ethernet(number).emit();
        let packet = [&emit(&stack[self.random.below(2) as usize..]), &word[..], &inside].concat();
        let frame = self.make_frame(EtherType::MPLS, &packet);
        self.enter(wire, end, &frame);
        let verdict =
            self.routers[here].handle_labelled(self.now, TABLE[wire].circuit(end), &packet);
        self.carry_out(here, verdict, false);
    }

    /// A stranger sends in a session of L2TPv3, with another's address, and guesses the cookie.
    fn forge_session(&mut self) {
        let wire = SESSIONS[self.random.below(2) as usize];
        let end = self.random.below(2) as usize;
        let Session::L2tp { session_in, .. } = TABLE[wire].tunnel(end, TunnelPort::L2tp).session
        else {
            unreachable!("it is one of L2TPv3")
        };
        let guess = Cookie::Short((self.random.next_u64() as u32).to_be_bytes());
        let sublayer = Some(L2SpecificSublayer::UNSEQUENCED);
        let header = DataHeader { session_id: session_in, cookie: guess, sublayer };
        let inside = self.make_frame(ORDINARY, b"forged");
        let packet = [&header.emit(Transport::Udp)[..], &inside].concat();
        let port = tunnel_port(TunnelPort::L2tp, end);
        let at = router_of(port);
        let verdict = self.routers[at].handle_tunnelled(self.now, port, &packet);
        self.carry_out(at, verdict, false);
    }

    /// A customer sends what no network forwards, and what is too large for this one.
    fn send_what_stays(&mut self) {
        let wire = self.random.below(WIRES as u64) as usize;
        let end = self.random.below(2) as usize;
        let frame = match self.random.below(3) {
            0 => self.make_frame(EtherType::MAC_CONTROL, b"pause"),
            1 => [&[1, 0x80, 0xc2, 0, 0, 2][..], &[2; 6], &[0x88, 9], &[0; 46]].concat(),
            _ => self.make_frame(ORDINARY, &vec![0; CORE_MTU as usize]),
        };
        let at = TABLE[wire].ends()[end];
        let verdict = self.routers[at].handle_circuit(TABLE[wire].circuit(end), None, &frame);
        self.carry_out(at, verdict, false);
    }

    /// A router sends a message to the other end of a pseudowire itself.
    fn send_channel_message(&mut self) {
        let (wire, end) = (self.random.below(3) as usize, self.random.below(2) as usize);
        let Nhlfe { next_hop, labels, .. } = TABLE[wire].nhlfe(self.in_use[wire], end, 0);
        let tunnel = labels.as_slice().iter().map(|label| (*label, false));
        let stack: Vec<_> = tunnel.chain([(TABLE[wire].bottom_label(1 - end), true)]).collect();
        let header = AssociatedChannelHeader { channel_type: ChannelType::BFD }.emit();
        let Reach::At(Adjacency { own, mac, .. }) = next_hop.reach else {
            panic!("it has Ethernet")
        };
        let ethernet = Header { destination: mac, source: own, ether_type: EtherType::MPLS };
        let message = [0x20; 24];
        let frame = [&ethernet.emit()[..], &emit(&stack), &header, &message].concat();
        self.launch(next_hop.port, &frame, false);
    }

    /// Does what router number `at` has found for a frame.
    fn carry_out(&mut self, at: usize, verdict: Verdict<'_>, is_corrupt: bool) {
        match verdict {
            Verdict::Send { port, rest } => {
                let frame = [self.routers[at].front(), rest].concat();
                self.launch(port, &frame, is_corrupt);
            }
            Verdict::Deliver { circuit, frame } => self.oracle.delivered(circuit, frame),
            Verdict::Channel { message, .. } => {
                // Forged and corrupt frames may look like one; they are told apart by what is inside.
                self.oracle.tally.channel_messages += u64::from(message == [0x20; 24]);
            }
            Verdict::DeliverChanged { .. } => unreachable!("no wire has a clamp"),
            Verdict::Copy => unreachable!("no circuit is split"),
            Verdict::Wait => self.oracle.tally.waited += 1,
            Verdict::Drop(_) => {}
        }
    }

    /// What came early and waits no longer leaves.
    fn release(&mut self) {
        for router in &mut self.routers {
            while let Some((circuit, frame)) = router.poll_early(self.now) {
                self.oracle.delivered(circuit, &frame);
            }
        }
    }

    fn launch(&mut self, port: LinkId, bytes: &[u8], is_corrupt: bool) {
        self.links.launch(self.now, port, bytes, is_corrupt);
    }

    /// Time passes, and what was on its way arrives.
    fn pass(&mut self, until: Instant) {
        loop {
            let early = self.routers.iter().filter_map(Router::poll_timeout).min();
            let first = self.links.next();
            let next = Instant::earliest(early, first);
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if first == Some(next)
                && let Some(flight) = self.links.arrive()
            {
                self.arrive(&flight);
            }
            self.release();
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, flight: &Flight) {
        let Flight { port, bytes, is_corrupt } = flight;
        let at = router_of(*port);
        let router = &mut self.routers[at];
        let verdict = if is_tunnels(*port) {
            router.handle_tunnelled(self.now, *port, bytes)
        } else if is_udp(*port) {
            router.handle_labelled(self.now, *port, bytes)
        } else {
            let frame = InFrame::new(*port, None, bytes);
            let opened = self.opened.open(&frame).expect("frames go to the next router");
            assert_eq!(opened.ether_type, EtherType::MPLS);
            router.handle_labelled(self.now, *port, opened.payload)
        };
        self.carry_out(at, verdict, *is_corrupt);
    }

    fn drain(&mut self) {
        while let Some(last) = self.links.last() {
            self.pass(last + EARLY_WAIT);
        }
    }

    /// Links are well again, and so are the wires.
    fn heal(&mut self) {
        self.drain();
        self.links.faults = 0;
        self.pass(self.now + QUARANTINE);
        self.give_shared_labels();
        for (wire, end) in (0..WIRES).flat_map(|wire| [(wire, 0), (wire, 1)]) {
            self.show(wire, end);
        }
    }

    /// What an end of a wire sends comes out, unless somebody else has its labels.
    fn show(&mut self, wire: usize, end: usize) {
        let before = self.oracle.tally;
        for number in 0..RESYNC_FRAMES + 1 + SHOWN {
            let heard = self.oracle.tally.delivered;
            self.send(wire, end);
            self.drain();
            self.pass(self.now + RESYNC_TIME / RESYNC_FRAMES);
            let is_heard = self.oracle.tally.delivered > heard
                && self.oracle.last(TABLE[wire].circuit(1 - end)) == self.oracle.tally.sent;
            if is_heard != self.carries(wire) && number > RESYNC_FRAMES {
                let why = if is_heard { "carries" } else { "does not carry" };
                self.oracle.broke(format!("wire {wire} {why} from end {end}: {before:?}"));
            }
        }
    }
}

/// A label stack with these labels.
fn emit(labels: &[(Label, bool)]) -> Vec<u8> {
    let entry = |&(label, is_bottom): &(Label, bool)| {
        LabelStackEntry { label, traffic_class: 0, is_bottom, ttl: 255 }.emit()
    };
    labels.iter().flat_map(entry).collect()
}

/// Gives a router all that it has but the pseudowires, which go by these paths.
fn set_paths(router: &mut Router, me: usize, now: Instant, in_use: &[usize; WIRES]) {
    core_ports(me).for_each(|port| router.set_port(port, Role::Core(core(port))));
    for (wire, from) in TABLE.iter().flat_map(|wire| [(wire, 0), (wire, 1)]) {
        if wire.ends()[from] == me {
            let role = Role::Circuit(Circuit::new(CIRCUIT_MTU));
            router.set_port(wire.circuit(from), role);
            if let Tunnel::Ip(kind) = wire.tunnel {
                let role = Role::Tunnels { kind, mtu: TUNNEL_MTU };
                router.set_port(tunnel_port(kind, from), role);
                continue;
            }
            let to = wire.nhlfe(in_use[wire.number], from, 0);
            router.set_nhlfe(wire.nhlfe_id(0, from), to);
        }
        for path in [0, 1].into_iter().filter(|_| wire.number < LABELLED) {
            set_lsp(router, me, now, wire, (path, from));
        }
    }
}

/// Gives a router its entry of a path, if it has one.
fn set_lsp(
    router: &mut Router,
    me: usize,
    now: Instant,
    wire: &Wire,
    (path, from): (usize, usize),
) {
    let routers = wire.path_from(path, from);
    let Some(place) = routers.iter().position(|router| *router == me) else { return };
    let fec = wire.fec(path, from);
    let action = match place {
        0 => return,
        _ if place + 1 == routers.len() => Action::Pop,
        _ => {
            router.set_nhlfe(NhlfeId(fec.0), wire.nhlfe(path, from, place));
            Action::Forward(NhlfeId(fec.0))
        }
    };
    let label = wire.label_at(path, from, me);
    router.set_label(now, Space::Platform, label, fec, action).unwrap();
}

/// Gives a router the end of a wire, unless its label was another's a moment ago.
fn set_wire(router: &mut Router, now: Instant, wire: &Wire, end: usize) -> bool {
    if let Tunnel::Ip(kind) = wire.tunnel {
        router.set_tunnel(TunnelId(wire.number as u32), wire.tunnel(end, kind)).unwrap();
        return true;
    }
    match router.set_pseudowire(now, wire.id(), wire.pseudowire(end)) {
        Ok(()) => true,
        Err(Refused::Quarantined { .. }) => false,
        Err(other) => panic!("{wire:?} at end {end}: {other}"),
    }
}
