//! A run: time, links and what is on them.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Instant, Random};
use contract::{InFrame, LinkFacts, LinkId, VirtualLinks};
use mpls::Forwarder;
use testkit::Pages;
use wire::ethernet::{EtherType, Header};
use wire::mpls::LabelStackEntry;

use super::oracle::{Oracle, Tally};
use super::{
    A, B, C, D, HOPS, LINKS, LSPS, OUTSIDE, ROUTERS, bfd_port, bypass, configure, label_at,
    label_out, mac, outside, port, routers_of,
};

const MS: u64 = 1_000_000;
/// What a frame takes on a link, at most.
const DELAY_MAX: u64 = 2 * MS;
/// Links change so often in a run.
const CHANGES: u64 = 12;

/// How a link is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// Who sends to these ends is not heard, and is not told.
    Silent([bool; 2]),
    /// Both ends know.
    Down,
}

struct World {
    now: Instant,
    random: Random,
    routers: Vec<Forwarder>,
    watched: [[bool; 2]; 5],
    states: [State; LINKS.len()],
    flights: BTreeMap<(Instant, u64), (LinkId, Vec<u8>)>,
    launched: u64,
    oracle: Oracle,
}

/// Runs a seed. What became of its frames, or the promise that was broken.
pub(crate) fn run(seed: u64) -> Result<Tally, String> {
    let mut world = World::new(seed);
    world.pass(12_000 * MS);
    for _ in 0..CHANGES {
        world.change();
        let silence = world.random.below(10);
        let time = [500, 1_000, 4_000, 6_000, 15_000][world.random.below(5) as usize];
        // Frames come again at any moment of what the routers do meanwhile.
        world.pass(silence * 50 * MS);
        world.carry(time * MS);
        if world.oracle.broken.is_some() {
            break;
        }
    }
    world.oracle.broken.map_or(Ok(world.oracle.tally), Err)
}

fn facts(port: LinkId) -> LinkFacts {
    LinkFacts { mac: mac(port).0, mtu: 1600, vlan: None, ring_frames: 64, is_shared: false }
}

/// The router that has a port, of the core or of BFD.
fn router_of(LinkId(port): LinkId) -> usize {
    match port {
        40.. => port as usize - 40,
        _ => LINKS[(port % 20 / 2) as usize][(port & 1) as usize],
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Some links are watched by nobody, and some by one end, who hears nothing there.
        let mut watch = || match random.below(8) {
            0 => [false; 2],
            1 => [true, false],
            _ => [true; 2],
        };
        let watched = [watch(), watch(), watch(), watch(), watch()];
        let mut world = Self {
            now: Instant(1),
            routers: (0..ROUTERS as u64).map(|at| Forwarder::new(seed * 8 + at)).collect(),
            watched,
            states: [State::Whole; LINKS.len()],
            flights: BTreeMap::new(),
            launched: 0,
            oracle: Oracle::new(),
            random,
        };
        for me in 0..ROUTERS {
            configure(&mut world.routers[me], world.now, me, &watched);
            if me != D && me != B {
                let link = outside(me);
                world.routers[me].handle_link(world.now, link, Some(facts(link)));
            }
        }
        (0..LINKS.len()).for_each(|number| world.tell(number, true));
        world
    }

    /// The ends of a link are told that it is up or down.
    fn tell(&mut self, number: usize, is_up: bool) {
        for end in [0, 1] {
            let port = LinkId((number * 2 + end) as u32);
            // That of datagrams may come first, or later.
            let mut ports = [port, bfd_port(port)];
            if self.random.chance(1, 2) {
                ports.reverse();
            }
            let me = LINKS[number][end];
            for link in ports {
                let facts = is_up.then(|| facts(port));
                self.routers[me].handle_link(self.now, link, facts);
            }
            self.pump(me);
        }
    }

    /// A link fails or comes back, or somebody loads a configuration in which nothing is new.
    fn change(&mut self) {
        if self.random.chance(1, 6) {
            let me = self.random.below(ROUTERS as u64) as usize;
            configure(&mut self.routers[me], self.now, me, &self.watched);
            return self.pump(me);
        }
        let number = self.random.below(LINKS.len() as u64) as usize;
        let before = self.states[number];
        let is_heard = self.watched[number] == [true; 2];
        self.states[number] = match (before, self.random.below(4)) {
            (State::Whole, 0) if is_heard => State::Silent([true; 2]),
            (State::Whole, 1) if is_heard => State::Silent([true, false]),
            (State::Whole, 2) if is_heard => State::Silent([false, true]),
            (State::Whole, _) => State::Down,
            _ => State::Whole,
        };
        let after = self.states[number];
        self.oracle.changed(self.now, number, after == State::Whole);
        if before == State::Down || after == State::Down {
            self.tell(number, after != State::Down);
        }
    }

    /// Customers send for so many nanoseconds.
    fn carry(&mut self, time: u64) {
        let until = self.now + Duration::from_nanos(time);
        while self.now < until {
            for lsp in 0..LSPS {
                self.send(lsp);
            }
            let pause = self.random.below(200) * MS;
            self.pass(pause);
        }
        self.pass(8 * DELAY_MAX);
        self.oracle.drained(self.now);
    }

    fn send(&mut self, lsp: usize) {
        let number = self.oracle.sent(self.now, lsp);
        let [first, ..] = routers_of(lsp);
        let entry = LabelStackEntry {
            label: label_at(lsp, first),
            traffic_class: 0,
            is_bottom: true,
            ttl: 255,
        };
        let (destination, ether_type) = (mac(outside(first)), EtherType::MPLS);
        let header = Header { destination, source: OUTSIDE, ether_type }.emit();
        let frame = [&header[..], &entry.emit(), &number.to_be_bytes(), &[0; 40]].concat();
        self.arrive(outside(first), &frame);
    }

    /// A frame comes to a router.
    fn arrive(&mut self, port: LinkId, bytes: &[u8]) {
        let me = router_of(port);
        let frame = InFrame::new(port, None, bytes);
        assert!(self.routers[me].receive(self.now, &frame).is_none());
        self.pump(me);
    }

    /// What a router sends is on its way.
    fn pump(&mut self, me: usize) {
        while let Some(batch) = self.routers[me].poll_batch() {
            let frames = batch.to_frames(&Pages::new());
            self.routers[me].handle_sent(batch);
            for (port, bytes) in frames {
                self.launch(port, bytes);
            }
        }
        while self.routers[me].poll_event().is_some() {}
    }

    fn launch(&mut self, from: LinkId, bytes: Vec<u8>) {
        if [outside(A), outside(C)].contains(&from) {
            return self.came_out(&bytes);
        }
        let number = (from.0 % 20 / 2) as usize;
        if from.0 < 20 {
            self.look_at(from, &bytes);
        }
        let to = (from.0 ^ 1) & 1;
        let is_lost = match self.states[number] {
            State::Whole => false,
            State::Silent(ends) => ends[to as usize],
            State::Down => true,
        };
        let peer_listens = from.0 < 20 || self.watched[number][to as usize];
        if is_lost || !peer_listens {
            return;
        }
        self.launched += 1;
        let at = self.now + Duration::from_nanos(self.random.below(DELAY_MAX));
        self.flights.insert((at, self.launched), (LinkId(from.0 ^ 1), bytes));
    }

    /// Which way a frame of a path goes.
    fn look_at(&mut self, from: LinkId, bytes: &[u8]) {
        let (entry, _) = LabelStackEntry::pop(&bytes[Header::SIZE..]).expect("it has labels");
        let here = router_of(from);
        if let Some(hop) = (0..HOPS.len()).find(|hop| bypass(*hop) == entry.label) {
            assert_eq!(from, port(HOPS[hop][0], D));
            self.oracle.went_around(self.now, hop);
        } else if here != D {
            let there = router_of(LinkId(from.0 ^ 1));
            self.oracle.went(self.now, [here, there], false);
        }
    }

    fn came_out(&mut self, bytes: &[u8]) {
        let (entry, behind) = LabelStackEntry::pop(&bytes[Header::SIZE..]).expect("it has labels");
        let lsp = (0..LSPS).find(|lsp| label_out(*lsp) == entry.label);
        let number = behind.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        match (lsp, number) {
            (Some(lsp), Some(number)) => self.oracle.delivered(lsp, number),
            _ => self.oracle.broke(format!("{entry} came out")),
        }
    }

    /// Time passes: what is on its way arrives, and routers do what is due.
    fn pass(&mut self, time: u64) {
        let until = self.now + Duration::from_nanos(time);
        loop {
            let due = self.routers.iter().filter_map(VirtualLinks::poll_timeout).min();
            let first = self.flights.first_key_value().map(|((at, _), _)| *at);
            let next = Instant::earliest(due, first);
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if first == Some(next) {
                let (_, (port, bytes)) = self.flights.pop_first().expect("it is the first");
                self.arrive(port, &bytes);
            }
            for me in 0..ROUTERS {
                if self.routers[me].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.routers[me].handle_timeout(self.now);
                    self.pump(me);
                }
            }
        }
        self.now = self.now.max(until);
    }
}
