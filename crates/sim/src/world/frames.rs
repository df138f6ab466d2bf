//! Frames in the world: batches that leave bit by bit and come back, frames on the wire, rings, and
//! links that go down and come up.

use block::Instant;
use contract::{Event, FrameBatch, Intake, LinkFacts, LinkId, Machine, Spread, VlanTag};

use super::{Host, MICROSECOND, What, World};
use crate::ethernet::{LinkFaults, Owner, Port, untag};

/// Frames that a ring of a shard holds, of one link.
const RING: usize = 256;
/// What every Ethernet carries in a frame.
const MTU_MIN: u32 = 1500;
/// The shortest frame that a machine may send.
const FRAME_MIN: usize = 60;

/// A batch that a driver has.
#[derive(Debug)]
pub(super) struct Batch {
    host: usize,
    life: u32,
    shard: usize,
    token: u32,
    batch: FrameBatch,
    /// How many of its frames have left.
    left: usize,
    /// All have, and the driver keeps it.
    is_kept: bool,
}

/// A frame in the ring of a shard.
#[derive(Debug)]
pub(crate) struct Ringed {
    pub(crate) link: LinkId,
    pub(crate) tag: Option<VlanTag>,
    pub(crate) bytes: Vec<u8>,
}

impl<M: Machine> World<M> {
    /// Hangs a link of a host on a LAN, for good. Returns the port's number.
    pub fn plug(
        &mut self,
        host: usize,
        link: LinkId,
        lan: usize,
        facts: LinkFacts,
        intake: Intake,
    ) -> usize {
        let (owner, intake) = (Owner::Host { host, link }, Some(intake));
        self.add_port(lan, owner, facts, intake, false);
        self.ethernet.ports.len() - 1
    }

    /// Hangs a station without a host on a LAN. Returns its number.
    pub fn plug_station(&mut self, lan: usize, mac: [u8; 6]) -> usize {
        let ring_frames = RING as u32;
        let facts = LinkFacts { mac, mtu: 9000, vlan: None, ring_frames, is_shared: false };
        self.add_station(lan, facts, false)
    }

    /// Hangs on a LAN what hears all that is sent there, and sends what it has from elsewhere: a bridge's
    /// port, or a circuit. Returns the number of its station.
    pub fn plug_circuit(&mut self, lan: usize, facts: LinkFacts) -> usize {
        self.add_station(lan, facts, true)
    }

    fn add_station(&mut self, lan: usize, facts: LinkFacts, hears_all: bool) -> usize {
        let station = self.ethernet.stations.len();
        self.ethernet.stations.push(Default::default());
        self.add_port(lan, Owner::Station(station), facts, None, hears_all);
        station
    }

    fn add_port(
        &mut self,
        lan: usize,
        owner: Owner,
        facts: LinkFacts,
        intake: Option<Intake>,
        hears_all: bool,
    ) {
        let port = Port { lan, owner, facts, intake, is_up: true, hears_all, last_arrival: 0 };
        self.ethernet.ports.push(port);
    }

    /// A station sends a frame, with whatever addresses.
    pub fn send_frame(&mut self, station: usize, bytes: &[u8]) {
        let is_its = |port: &Port| port.owner == Owner::Station(station);
        let port = self.ethernet.ports.iter().position(is_its).expect("a station has a port");
        self.carry(port, bytes);
    }

    /// What came for a station.
    pub fn receive_frame(&mut self, station: usize) -> Option<Vec<u8>> {
        self.ethernet.stations[station].pop_front()
    }

    /// Tells the shards of a host that has just started of its links that are up.
    pub(super) fn tell_links(&mut self, host: usize) {
        for port in self.ethernet.ports_of(host).collect::<Vec<_>>() {
            if self.ethernet.ports[port].is_up {
                self.tell_link(port);
            }
        }
    }

    /// Tells the shards that use a port how it is.
    fn tell_link(&mut self, port: usize) {
        let Port { owner, facts, is_up, .. } = self.ethernet.ports[port];
        let Owner::Host { host, link } = owner else { return };
        for shard in 0..self.hosts[host].nodes.len() {
            let spread = self.ethernet.ports[port].intake.as_ref().map(|intake| &intake.spread);
            if matches!(spread, Some(Spread::One(one, _)) if one.index() != shard) {
                continue;
            }
            let node = &mut self.hosts[host].nodes[shard];
            if is_up {
                node.inbox.push_back(Event::LinkUp { link, facts });
            } else {
                node.ring.retain(|frame| frame.link != link);
                node.inbox.push_back(Event::LinkDown { link });
            }
            self.wake(host, shard);
        }
    }

    /// A machine sends a batch: it leaves soon, with copies of what it names that is lent.
    pub(super) fn send_frames(
        &mut self,
        host: usize,
        shard: usize,
        token: u32,
        mut batch: FrameBatch,
    ) {
        assert!(!batch.is_empty(), "an empty batch of frames is sent");
        batch.own_all(&mut self.hosts[host].nodes[shard].lent);
        let life = self.hosts[host].life;
        self.next_number += 1;
        let id = self.next_number;
        self.batches.insert(id, Batch { host, life, shard, token, batch, left: 0, is_kept: false });
        let delay = self.draw_us(self.timing.turn_us);
        self.schedule(delay, What::Frames { id });
    }

    /// Some frames of a batch leave: only now they are read. When all have, it goes back after a
    /// while.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(mut batch) = self.batches.remove(&id) else { return };
        let Batch { host, life, shard, .. } = batch;
        if !self.is_alive(host, life) {
            return;
        }
        let count = batch.batch.frames.len();
        if batch.left == count && self.timing.keep_us > 0 && !batch.is_kept {
            batch.is_kept = true;
            self.batches.insert(id, batch);
            self.injected.kept += 1;
            let delay = self.draw_us(self.timing.keep_us);
            return self.schedule(delay, What::Frames { id });
        }
        if batch.left == count {
            let Batch { token, batch, .. } = batch;
            self.hosts[host].nodes[shard].inbox.push_back(Event::FramesSent { token, batch });
            self.wake(host, shard);
            return;
        }
        let until = batch.left + 1 + self.random.below((count - batch.left) as u64) as usize;
        self.trace.note(
            Instant(self.now),
            "frames",
            &[host as u64, shard as u64, batch.left as u64, until as u64],
        );
        for at in batch.left..until {
            let frame = batch.batch.frames[at];
            let bytes = batch.batch.to_bytes(&frame, &self.hosts[host].nodes[shard].memory);
            assert!(bytes.len() >= FRAME_MIN, "a frame of {} bytes is sent", bytes.len());
            let owner = Owner::Host { host, link: frame.link };
            // What is sent where no link is, is dropped.
            if let Some(port) = self.ethernet.ports.iter().position(|port| port.owner == owner) {
                self.carry(port, &bytes);
            }
        }
        batch.left = until;
        self.batches.insert(id, batch);
        let delay = self.draw_us(8 * self.timing.turn_us);
        self.schedule(delay, What::Frames { id });
    }

    /// Whether drivers of this host have batches that machines have not seen again.
    pub fn has_batches(&self, host: usize) -> bool {
        let Host { life, nodes, .. } = &self.hosts[host];
        let is_back = |event: &Event<M::Mail>| matches!(event, Event::FramesSent { .. });
        self.batches.values().any(|batch| batch.host == host && batch.life == *life)
            || nodes.iter().any(|node| node.inbox.iter().any(is_back))
    }

    /// Puts a frame on the wire.
    fn carry(&mut self, from: usize, bytes: &[u8]) {
        let port = &self.ethernet.ports[from];
        if !port.is_up {
            return;
        }
        if !port.fits(bytes) {
            self.ethernet.fates.oversize += 1;
            return;
        }
        self.ethernet.fates.sent += 1;
        let LinkFaults { lost, repeated, held, hold_ms, wire_us, reorders } =
            self.ethernet.faults_on(self.ethernet.ports[from].lan);
        for to in self.ethernet.reached(from, bytes) {
            if self.random.chance(lost, 1000) {
                self.ethernet.fates.lost += 1;
                self.trace.note(Instant(self.now), "frame lost", &[from as u64, to as u64]);
                continue;
            }
            let is_repeated = self.random.chance(repeated, 1000);
            self.ethernet.fates.repeated += u64::from(is_repeated);
            for _ in 0..1 + u8::from(is_repeated) {
                let delay = 1 + self.random.below(wire_us * MICROSECOND);
                let at = if self.random.chance(held, 1000) {
                    self.ethernet.fates.held += 1;
                    self.now + delay + self.random.below(hold_ms * 1_000 * MICROSECOND)
                } else if reorders {
                    self.now + delay
                } else {
                    let last = &mut self.ethernet.ports[to].last_arrival;
                    *last = (self.now + delay).max(*last + 1);
                    *last
                };
                self.schedule_at(at, What::Frame { to, bytes: bytes.to_vec() });
            }
        }
    }

    /// A frame arrives.
    pub(super) fn deliver_frame(&mut self, to: usize, bytes: Vec<u8>) {
        let port = &self.ethernet.ports[to];
        if !port.is_up {
            return;
        }
        if !port.fits(&bytes) {
            self.ethernet.fates.oversize += 1;
            return;
        }
        self.trace.note(Instant(self.now), "frame", &[to as u64, bytes.len() as u64]);
        self.trace.note_bytes(&bytes);
        let (host, link) = match port.owner {
            Owner::Host { host, link } => (host, link),
            Owner::Station(station) => {
                self.ethernet.stations[station].push_back(bytes);
                self.raw_news = true;
                return;
            }
        };
        let shards = self.hosts[host].nodes.len();
        if shards == 0 {
            return;
        }
        let (tag, bytes) = untag(bytes);
        for shard in self.ethernet.ports[to].takers(&bytes, shards) {
            let ring = &mut self.hosts[host].nodes[shard].ring;
            if ring.iter().filter(|frame| frame.link == link).count() >= RING {
                self.ethernet.fates.overrun += 1;
                continue;
            }
            ring.push_back(Ringed { link, tag, bytes: bytes.clone() });
            self.wake(host, shard);
        }
    }

    /// Takes a link of some host down, for up to `most_ms`; or gives it one of these MTUs, at once
    /// or when it comes back.
    pub fn disturb_link(&mut self, most_ms: u64, mtus: &[u32]) {
        let up: Vec<usize> = (0..self.ethernet.ports.len())
            .filter(|port| {
                let port = &self.ethernet.ports[*port];
                port.is_up && matches!(port.owner, Owner::Host { .. })
            })
            .collect();
        if up.is_empty() {
            return;
        }
        let port = up[self.random.below(up.len() as u64) as usize];
        if self.random.chance(1, 3) {
            self.change_mtu(port, mtus);
            return self.tell_link(port);
        }
        self.ethernet.fates.downs += 1;
        self.trace.note(Instant(self.now), "link down", &[port as u64]);
        self.ethernet.ports[port].is_up = false;
        self.tell_link(port);
        if self.random.chance(1, 3) {
            self.change_mtu(port, mtus);
        }
        let delay = self.random.below(most_ms * 1_000 * MICROSECOND);
        self.schedule(delay, What::LinkUp { port });
    }

    fn change_mtu(&mut self, port: usize, mtus: &[u32]) {
        let mtu = mtus[self.random.below(mtus.len() as u64) as usize];
        self.ethernet.fates.mtus += u64::from(mtu != self.ethernet.ports[port].facts.mtu);
        self.ethernet.ports[port].facts.mtu = mtu;
        self.trace.note(Instant(self.now), "mtu", &[port as u64, u64::from(mtu)]);
    }

    pub(super) fn raise_link(&mut self, port: usize) {
        if self.ethernet.ports[port].is_up {
            return;
        }
        self.trace.note(Instant(self.now), "link up", &[port as u64]);
        self.ethernet.ports[port].is_up = true;
        self.tell_link(port);
    }

    /// Nothing goes wrong on the Ethernet any more: all links are up, with an MTU that an Ethernet
    /// has.
    pub fn calm_ethernet(&mut self) {
        self.ethernet.faults = LinkFaults::NONE;
        for port in 0..self.ethernet.ports.len() {
            let mtu = &mut self.ethernet.ports[port].facts.mtu;
            if *mtu < MTU_MIN {
                *mtu = MTU_MIN;
                self.tell_link(port);
            }
            self.raise_link(port);
        }
    }
}
