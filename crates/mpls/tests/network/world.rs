//! A run: links that lose, repeat, reorder and corrupt, customers who also forge, and whoever
//! changes tables meanwhile; all of it drawn from a seed. At the end the network heals, and every
//! wire must carry again.
//!
//! A link corrupts one bit of a label stack, or of an L2TP session's ID and cookie, once in a frame's
//! life: what else it corrupts, the Ethernet check sequence catches, and nothing guards GRE's key. Nothing is late by half of all sequence numbers, and while a
//! router starts anew nothing is on its way: what a receiver cannot know then is told in
//! `sequencing`.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Instant, Random};
use contract::{InFrame, LinkFacts, LinkId, Links};
use mpls::limits::{EARLY_WAIT, RESYNC_FRAMES};
use mpls::{Adjacency, PseudowireId, Router, Verdict};
use wire::ethernet::{EtherType, Header, MacAddress};
use wire::l2tp::{DataHeader, L2SpecificSublayer, Transport};
use wire::mpls::{Label, LabelStackEntry};
use wire::pseudowire::{AssociatedChannelHeader, ChannelType, ControlWord};
use wire::sequence::PseudowireSequence;

use super::oracle::{Oracle, Tally};
use super::*;

const MICROSECOND: u64 = 1_000;
/// Longer than a frame's life: at most five links of at most [`HELD_MAX`].
const QUARANTINE: Duration = Duration::from_millis(60);
/// The longest that a link takes while it holds back.
const HELD_MAX: u64 = 8_000 * MICROSECOND;
const STEPS: usize = 1500;
/// Frames with which each wire shows at the end that it carries, behind those after which a
/// receiver has found its sender again.
const SHOWN: u32 = 40;

/// A frame on its way to a port.
struct Flight {
    port: LinkId,
    bytes: Vec<u8>,
    is_corrupt: bool,
}

struct World {
    random: Random,
    now: Instant,
    routers: [Router; ROUTERS],
    links: Links,
    flights: BTreeMap<(Instant, u64), Flight>,
    launched: u64,
    frames: u64,
    /// Chances in 1000 of what links do.
    faults: u64,
    /// Frames that leave by this port are held back, each as long as it comes.
    held: Option<LinkId>,
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
    let mut world = World {
        random,
        now: Instant::ZERO,
        routers: Default::default(),
        links: Links::default(),
        flights: BTreeMap::new(),
        launched: 0,
        frames: 0,
        faults,
        held: None,
        in_use: [0; WIRES],
        sharing: 0,
        has_ends: [true; 2],
        oracle: Oracle::default(),
    };
    for port in (0..2 * LINKS.len() as u32).map(LinkId) {
        let MacAddress(mac) = mac(port);
        let facts = LinkFacts { mac, mtu: CORE_MTU, vlan: None, ring_frames: 64, is_shared: false };
        world.links.set(port, Some(facts));
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
            if TABLE[wire].ends[end] == me {
                assert!(set_wire(router, self.now, wire, end), "its label is no other's");
            }
        }
        self.give_shared_labels();
        self.release();
    }

    /// The wire whose turn it is gets its labels where it may.
    fn give_shared_labels(&mut self) {
        for end in [0, 1] {
            let router = &mut self.routers[TABLE[self.sharing].ends[end]];
            self.has_ends[end] = set_wire(router, self.now, self.sharing, end);
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
            let to = hop(wire, self.in_use[wire], from, 0);
            self.routers[TABLE[wire].ends[from]].set_nhlfe(nhlfe_id(wire, from), to);
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
            let id = PseudowireId(gone as u32);
            self.routers[TABLE[gone].ends[end]].remove_pseudowire(self.now, id);
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
        let [here, next, ..] = path_from(wire, self.in_use[wire], end)[..] else { unreachable!() };
        self.held = Some(port(here, next));
        for _ in 0..200 {
            self.send(wire, end);
        }
        self.held = None;
        self.reroute(wire);
        self.send(wire, end);
        self.drain();
    }

    /// A customer sends a frame.
    fn send(&mut self, wire: usize, end: usize) {
        let is_tagged = self.random.chance(1, 4);
        let length = self.random.below(u64::from(CIRCUIT_MTU) - 100);
        let frame = self.make_frame(is_tagged, EtherType(0x88b5), &vec![0xa5; length as usize]);
        self.enter(wire, end, &frame);
    }

    /// A frame that no other is like.
    fn make_frame(&mut self, is_tagged: bool, ether_type: EtherType, behind: &[u8]) -> Vec<u8> {
        self.frames += 1;
        // Destinations that look like IPv4 and IPv6, and like control words.
        let first = [0x02, 0x40, 0x60, 0x10, 0x00][self.random.below(5) as usize];
        let mut frame = vec![first, 0, 0, 0, 0, 1, 2];
        frame.extend_from_slice(&self.frames.to_be_bytes()[3..]);
        if is_tagged {
            frame.extend_from_slice(&[0x81, 0, (self.frames as u8) << 5, 7]);
        }
        frame.extend_from_slice(&ether_type.0.to_be_bytes());
        frame.extend_from_slice(behind);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn enter(&mut self, wire: usize, end: usize, frame: &[u8]) {
        let is_sequenced = TABLE[wire].sequencing.is_some();
        self.oracle.sent(circuit(wire, 1 - end), is_sequenced, frame);
        let router = &mut self.routers[TABLE[wire].ends[end]];
        let verdict = router.handle_circuit(circuit(wire, end), None, frame);
        self.carry_out(verdict, false);
    }

    /// A customer sends what a router sends, with the labels of anybody. It is also shown as a
    /// packet with labels, as by a driver that does not tell ports apart. What is inside reaches
    /// nobody.
    fn forge(&mut self) {
        let wire = self.random.below(WIRES as u64) as usize;
        let end = self.random.below(2) as usize;
        let here = TABLE[wire].ends[end];
        let inside = self.make_frame(false, EtherType(0x88b5), b"forged");
        let (victim, path, from) = (
            self.random.below(LABELLED as u64) as usize,
            self.random.below(2) as usize,
            self.random.below(2) as usize,
        );
        let tunnel = lsp_label(lsp(victim, path, from), here);
        let stack = [(tunnel, false), (bottom_label(victim, 1 - from), true)];
        let number =
            PseudowireSequence(self.random.below(2) as u16 * self.random.next_u64() as u16);
        let word = ControlWord::ethernet(number).emit();
        let packet = [&emit(&stack[self.random.below(2) as usize..]), &word[..], &inside].concat();
        let frame = self.make_frame(false, EtherType::MPLS, &packet);
        self.enter(wire, end, &frame);
        let verdict = self.routers[here].handle_labelled(self.now, circuit(wire, end), &packet);
        self.carry_out(verdict, false);
    }

    /// A stranger sends in a session of L2TPv3, with another's address, and guesses the cookie.
    fn forge_session(&mut self) {
        let (wire, end) = (7 + self.random.below(2) as usize, self.random.below(2) as usize);
        let Session::L2tp { session_in, .. } = tunnel(wire, end, TunnelPort::L2tp).session else {
            unreachable!("it is one of L2TPv3")
        };
        let guess = Cookie::Short((self.random.next_u64() as u32).to_be_bytes());
        let sublayer = Some(L2SpecificSublayer::UNSEQUENCED);
        let header = DataHeader { session_id: session_in, cookie: guess, sublayer };
        let inside = self.make_frame(false, EtherType(0x88b5), b"forged");
        let packet = [&header.emit(Transport::Udp)[..], &inside].concat();
        let port = tunnel_port(TunnelPort::L2tp, end);
        let verdict = self.routers[router_of(port)].handle_tunnelled(self.now, port, &packet);
        self.carry_out(verdict, false);
    }

    /// A customer sends what no network forwards, and what is too large for this one.
    fn send_what_stays(&mut self) {
        let wire = self.random.below(WIRES as u64) as usize;
        let end = self.random.below(2) as usize;
        let frame = match self.random.below(3) {
            0 => self.make_frame(false, EtherType::MAC_CONTROL, b"pause"),
            1 => [&[1, 0x80, 0xc2, 0, 0, 2][..], &[2; 6], &[0x88, 9], &[0; 46]].concat(),
            _ => self.make_frame(false, EtherType(0x88b5), &vec![0; CORE_MTU as usize]),
        };
        let router = &mut self.routers[TABLE[wire].ends[end]];
        let verdict = router.handle_circuit(circuit(wire, end), None, &frame);
        self.carry_out(verdict, false);
    }

    /// A router sends a message to the other end of a pseudowire itself.
    fn send_channel_message(&mut self) {
        let (wire, end) = (self.random.below(3) as usize, self.random.below(2) as usize);
        let Nhlfe { next_hop, labels, .. } = hop(wire, self.in_use[wire], end, 0);
        let tunnel = labels.as_slice().iter().map(|label| (*label, false));
        let stack: Vec<_> = tunnel.chain([(bottom_label(wire, 1 - end), true)]).collect();
        let header = AssociatedChannelHeader { channel_type: ChannelType::BFD }.emit();
        let Adjacency { own, mac, .. } = next_hop.adjacency.expect("it has Ethernet");
        let ethernet = Header { destination: mac, source: own, ether_type: EtherType::MPLS };
        let message = [0x20; 24];
        let frame = [&ethernet.emit()[..], &emit(&stack), &header, &message].concat();
        self.launch(next_hop.port, frame, false);
    }

    fn carry_out(&mut self, verdict: Verdict<'_>, is_corrupt: bool) {
        match verdict {
            Verdict::Send { port, front, rest } => {
                self.launch(port, [&front[..], rest].concat(), is_corrupt);
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

    /// A frame leaves by a port, and whatever a link makes of it arrives.
    fn launch(&mut self, port: LinkId, bytes: Vec<u8>, is_corrupt: bool) {
        if self.random.chance(self.faults, 1000) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults, 1000));
        for _ in 0..copies {
            let mut flight = Flight { port: LinkId(port.0 ^ 1), bytes: bytes.clone(), is_corrupt };
            if !is_corrupt && self.random.chance(self.faults, 1000) {
                flight.is_corrupt = corrupt(&mut self.random, port, &mut flight.bytes);
            }
            let mut delay = 10 * MICROSECOND;
            if self.held == Some(port) {
                delay = self.random.below(HELD_MAX);
            } else if self.random.chance(self.faults, 200) {
                delay += self.random.below(1000 * MICROSECOND);
            }
            self.launched += 1;
            let at = self.now + Duration::from_nanos(delay);
            self.flights.insert((at, self.launched), flight);
        }
    }

    /// Time passes, and what was on its way arrives.
    fn pass(&mut self, until: Instant) {
        loop {
            let early = self.routers.iter().filter_map(Router::poll_timeout).min();
            let first = self.flights.first_key_value().map(|((at, _), _)| *at);
            let next = Instant::earliest(early, first);
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if first == Some(next)
                && let Some((_, flight)) = self.flights.pop_first()
            {
                self.arrive(&flight);
            }
            self.release();
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, flight: &Flight) {
        if flight.port >= tunnel_port(TunnelPort::Gre, 0) {
            let router = &mut self.routers[router_of(flight.port)];
            let verdict = router.handle_tunnelled(self.now, flight.port, &flight.bytes);
            return self.carry_out(verdict, flight.is_corrupt);
        }
        let frame = InFrame { link: flight.port, tag: None, bytes: &flight.bytes };
        let opened = self.links.open(&frame).expect("frames go to the next router");
        assert_eq!(opened.ether_type, EtherType::MPLS);
        let router = &mut self.routers[router_of(flight.port)];
        let verdict = router.handle_labelled(self.now, flight.port, opened.payload);
        self.carry_out(verdict, flight.is_corrupt);
    }

    fn drain(&mut self) {
        while let Some((last, _)) = self.flights.last_key_value().map(|(key, _)| *key) {
            self.pass(last + EARLY_WAIT);
        }
    }

    /// Links are well again, and so are the wires.
    fn heal(&mut self) {
        self.drain();
        self.faults = 0;
        self.pass(self.now + QUARANTINE);
        self.give_shared_labels();
        for wire in 0..WIRES {
            for end in [0, 1] {
                let before = self.oracle.tally;
                for number in 0..RESYNC_FRAMES + 1 + SHOWN {
                    let heard = self.oracle.tally.delivered;
                    self.send(wire, end);
                    self.drain();
                    let is_heard = self.oracle.tally.delivered > heard
                        && self.oracle.last(circuit(wire, 1 - end)) == self.oracle.tally.sent;
                    if is_heard != self.carries(wire) && number > RESYNC_FRAMES {
                        let why = if is_heard { "carries" } else { "does not carry" };
                        self.oracle.broke(format!("wire {wire} {why} from end {end}: {before:?}"));
                    }
                }
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

/// Flips one bit of what tells whose a frame is, if it is noticed there.
fn corrupt(random: &mut Random, port: LinkId, frame: &mut [u8]) -> bool {
    let guarded = if port >= tunnel_port(TunnelPort::L2tp, 0) {
        4..12
    } else if port >= tunnel_port(TunnelPort::Gre, 0) {
        return false;
    } else {
        let stack = wire::mpls::LabelStack::parse(&frame[Header::SIZE..], 16);
        let depth = stack.expect("it was sent").depth();
        Header::SIZE..Header::SIZE + depth * LabelStackEntry::SIZE
    };
    let bit = random.below(guarded.len() as u64 * 8) as usize;
    frame[guarded.start + bit / 8] ^= 1 << (bit % 8);
    true
}
