//! A run of two edges with a network of IP between them that loses, reorders, repeats, keeps and
//! forges: circuits by GRE, by L2TPv3 and by labels in UDP, each with numbers that nobody looks at,
//! that are dropped when they are late, and that are put in order.
//!
//! Promised is, of all three carriers alike: what no link lost comes out, without numbers whatever the
//! order, with `Reorder` in order, with `Drop` if nothing overtook it; the rest is what holds of
//! customers everywhere. Whoever knows a key of GRE, or sends labels with the peer's address, is the
//! peer; so strangers have other keys, other sessions, cookies that they guess, and headers that are none.

use core::time::Duration;

use block::{Instant, Random};
use contract::LinkId;
use mpls::{Drops, Sequencing, Session, TunnelPort};
use wire::checksum::Checksum;
use wire::ethernet::EtherType;
use wire::gre;
use wire::l2tp::{Cookie, DataHeader, L2SpecificSublayer, Transport};

use super::customers::ORDINARY;
use super::health::Times;
use super::oracle::Tally;
use super::orders::R;
use super::running::{LIFE, Network};
use super::topology::*;

const STEPS: usize = 700;
/// The longest that the network keeps a packet of which it sends a copy.
const KEPT_MAX: u64 = 3_000_000_000;

const SEQUENCINGS: [Sequencing; 3] = [Sequencing::Off, Sequencing::Drop, Sequencing::Reorder];

/// Three of each kind, with rows of labels, keys and sessions that the others of the kind do not have.
fn wires() -> Vec<Wire> {
    let by = |kind: usize, row: usize| {
        let tunnel = [Tunnel::Ip(TunnelPort::Gre), Tunnel::Ip(TunnelPort::L2tp), Tunnel::Label];
        let plain = wire(kind * 3 + row, [&[LER1, LER3]; 2], row, tunnel[kind]);
        Wire { sequencing: Some(SEQUENCINGS[row]), ..plain }
    };
    (0..9).map(|number| by(number / 3, number % 3)).collect()
}

/// Runs a seed, and says what was dropped; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<(Tally, Drops), String> {
    let mut random = Random::new(seed);
    let faults = [0, 10, 50][random.below(3) as usize];
    let times = Times::new(false, Duration::ZERO);
    let mut network = Network::new(random, wires(), 0, times);
    // Whoever hears nothing yet takes what comes first for the first.
    for (wire, end) in (0..network.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]) {
        network.send(wire, end);
    }
    network.pass(LIFE);
    network.links.faults = faults;
    for _ in 0..STEPS {
        network.step();
        if network.oracle.broken.is_some() {
            break;
        }
    }
    network.pass(Duration::from_nanos(KEPT_MAX));
    network.settle();
    if let Err(what) = network.check_balance() {
        network.oracle.broke(what);
    }
    let drops = network.drops();
    network.oracle.broken.map_or(Ok((network.oracle.tally, drops)), Err)
}

impl Network {
    fn step(&mut self) {
        let pause = self.random.below(60_000);
        self.pass(Duration::from_nanos(pause));
        match self.random.below(100) {
            0..8 => self.forge_gre(),
            8..16 => self.forge_session(),
            16..18 => {
                let router = [LER1, LER3][self.random.below(2) as usize];
                self.reload(router);
            }
            18 => self.hold_back(),
            19 if self.random.chance(1, 4) => self.replay(),
            _ => {
                let wire = self.random.below(self.wires.len() as u64) as usize;
                let end = self.random.below(2) as usize;
                self.send(wire, end);
            }
        }
        // A copy of something, maybe long after.
        if self.random.chance(1, 20) {
            let delay = self.random.below(KEPT_MAX);
            self.links.repeat_any(self.now + Duration::from_nanos(delay));
        }
    }

    /// A burst comes in any order.
    fn hold_back(&mut self) {
        let wire = self.random.below(self.wires.len() as u64) as usize;
        let end = self.random.below(2) as usize;
        let port = match self.wires[wire].tunnel {
            Tunnel::Ip(kind) => tunnel_port(kind, end),
            _ => LinkId((UDP_LINK * 2 + end) as u32),
        };
        self.links.held = Some(port);
        let since = self.now;
        for _ in 0..self.random.below(30) {
            self.send(wire, end);
        }
        self.links.held = None;
        self.excuse_numbered(wire, end, since);
    }

    /// Of a burst more may come early than wait for others.
    fn excuse_numbered(&mut self, wire: usize, end: usize, since: Instant) {
        if self.wires[wire].sequencing != Some(Sequencing::Off) {
            self.oracle.excuse(since, Some(self.wires[wire].circuit(1 - end)));
        }
    }

    /// A burst comes once more, long after, bit by bit and in any order, and nothing else meanwhile.
    fn replay(&mut self) {
        self.pass(LIFE);
        let wire = self.random.below(self.wires.len() as u64) as usize;
        let end = self.random.below(2) as usize;
        for _ in 0..100 {
            self.send(wire, end);
        }
        let began = self.now;
        self.excuse_numbered(wire, end, began);
        for (port, bytes) in self.links.all() {
            let delay = Duration::from_nanos(self.random.below(KEPT_MAX));
            self.links.forge(began + LIFE + delay, port, bytes);
        }
        self.pass(LIFE + Duration::from_nanos(KEPT_MAX));
    }

    /// A frame that nobody sent.
    fn stranger(&mut self) -> Vec<u8> {
        self.customers.make(&mut self.random, false, ORDINARY, b"forged")
    }

    fn forge_gre(&mut self) {
        let end = self.random.below(2) as usize;
        let inside = self.stranger();
        let known = self.wires[0].tunnel(end, TunnelPort::Gre);
        let Session::Gre { key_in, .. } = known.session else { unreachable!("it is one of GRE") };
        let sequence = Some(self.random.next_u64() as u32);
        let header =
            |protocol_type, key| gre::Header { key, sequence, ..gre::Header::new(protocol_type) };
        let ethernet = EtherType::TRANSPARENT_ETHERNET;
        let front = match self.random.below(4) {
            0 => header(ethernet, Some(0x9000)).emit(Checksum::default()).to_vec(),
            1 => header(ethernet, None).emit(Checksum::default()).to_vec(),
            2 => header(EtherType::IPV4, key_in).emit(Checksum::default()).to_vec(),
            // Version 1 is PPTP's.
            _ => vec![0x00, 0x01, 0x65, 0x58],
        };
        let port = tunnel_port(TunnelPort::Gre, end);
        self.links.forge(self.now, port, [&front[..], &inside].concat());
    }

    fn forge_session(&mut self) {
        let end = self.random.below(2) as usize;
        let inside = self.stranger();
        let wire = 3 + self.random.below(3) as usize;
        let Session::L2tp { session_in, .. } =
            self.wires[wire].tunnel(end, TunnelPort::L2tp).session
        else {
            unreachable!("it is one of L2TPv3")
        };
        let cookie = Cookie::Short((self.random.next_u64() as u32).to_be_bytes());
        let unknown = session_in.checked_add(0x9000).expect("it is small");
        let session_id = if self.random.chance(1, 3) { unknown } else { session_in };
        let sublayer = Some(L2SpecificSublayer::new(Some(self.random.below(1 << 24) as u32)));
        let header = DataHeader { session_id, cookie, sublayer }.emit(Transport::Udp);
        let mut packet = [&header[..], &inside].concat();
        if self.random.chance(1, 4) {
            packet.truncate(self.random.below(14) as usize);
        }
        self.links.forge(self.now, tunnel_port(TunnelPort::L2tp, end), packet);
    }

    /// What all routers dropped.
    fn drops(&self) -> Drops {
        let reports = [LER1, LER3].map(|me| self.routers[me].report(self.now, R));
        let ports = reports.into_iter().flatten().flat_map(|report| report.ports);
        ports.map(|port| port.drops).sum()
    }
}
