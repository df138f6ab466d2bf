//! The routers of a shard, as a machine among its others: frames of their links come in, batches of
//! frames go out.
//!
//! ```text
//!   receive      core port: opened if it has Ethernet,
//!                then `Router::handle_labelled`                        -> queue of the port by which it leaves
//!                circuit: whole, `Router::handle_circuit`              -> the same, or the frame of a virtual link
//!   poll_received  a frame of a virtual link that had to wait for others
//!   encapsulate  a frame that was sent on a virtual link               -> the same batch, headers put in front
//!   poll_batch   what waits for a port, at the end of the turn
//! ```
//! A frame that is forwarded and that its driver lends is named in its port's batch, with its new headers,
//! and copied where it has to wait for the port's rate (`queue`). Each port has batches of its own, so that
//! one whose interface takes nothing holds up no other; of frames that wait for it or are with the
//! driver there are at most [`QUEUE_MAX`](crate::limits::QUEUE_MAX), the next are dropped and counted;
//! as many messages about paths may wait beside them. Frames of virtual links are counted by whoever
//! lives there.
//!
//! What a change says and what is known of links meets here: a path takes its port's own address,
//! VLAN and MTU, and where the next router is, a circuit its MTU, and a virtual link is up while the
//! path of its pseudowire has a port that is up and a next hop that is resolved. Which next hops are
//! taken, and who finds out, is `neighbour`. Order of calls: [`VirtualLinks`]; [`Forwarder::change`] at
//! any time.
//! Units: those of the tables. Errors: changes are refused; frames are dropped and counted.

mod neighbour;
mod probes;
mod queue;
mod watch;

use core::mem::discriminant;
use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use bfd::Sessions;
use block::{IdMap, Instant, Memory, Random};
use contract::{FrameBatch, InFrame, LinkFacts, LinkId, Links, MacAddress, Misfits, VirtualLinks};
use wire::ethernet::{EtherType, HEADER_SIZE};

use crate::change::{Change, Path, PortKind, RouterId, Via};
use crate::ftn::{Fec, Wire};
use crate::limits::{FRONT_MAX, PORTS_MAX};
use crate::nhlfe::{Adjacency, NextHop, Nhlfe, NhlfeId, Reach};
use crate::port::{Circuit, Core, Over, PortCounters, Role};
use crate::protection::Protection;
use crate::pseudowire::PseudowireId;
use crate::refused::Refused;
use crate::report::{PortReport, RouterReport};
use crate::router::Router;
use crate::tunnel::Tunnel;
use crate::verdict::{Drops, Verdict};

use neighbour::Near;
pub use neighbour::{Neighbour, NeighbourId, NeighbourReport};
pub use queue::QueueCounters;
use queue::{Due, Queue};
use watch::Watched;
pub use watch::{Event, Narrow, PathProof, SessionReport, Subject, Watch, WatchReport};

/// A link of a router's.
#[derive(Debug)]
struct Port {
    router: RouterId,
    kind: PortKind,
    /// What is known of it while it is up; of a virtual one, what was told.
    facts: Option<LinkFacts>,
    /// Of a core port, that of its next hops that are no neighbours.
    protection: Protection,
    /// What leaves by it.
    queue: Queue,
}

/// A router, and its paths as they were configured.
#[derive(Debug, Default)]
struct Routed {
    router: Router,
    paths: IdMap<Path>,
    /// Where routers are that somebody knows by an address of IP, by their port.
    resolved: BTreeMap<(LinkId, IpAddr), MacAddress>,
}

impl Routed {
    /// At which address a router on a port is now.
    fn find(&self, port: LinkId, via: Via) -> Option<MacAddress> {
        match via {
            Via::Mac(mac) => Some(mac),
            Via::Ip(address) => self.resolved.get(&(port, address)).copied(),
        }
    }
}

/// The routers of a shard.
#[derive(Debug)]
pub struct Forwarder {
    routers: IdMap<Routed>,
    ports: IdMap<Port>,
    /// The core ports with Ethernet that are up: they open what comes.
    cores: Links,
    /// The virtual ports.
    virtuals: Vec<LinkId>,
    /// Ports for which something waits.
    due: Due,
    news: VecDeque<(LinkId, Option<LinkFacts>)>,
    /// Of all pseudowires and neighbours that are watched.
    sessions: Sessions,
    watched: BTreeMap<(RouterId, PseudowireId), Watched>,
    /// When the traffic of one of them moves next, if nothing happens until then.
    next_move: Option<Instant>,
    /// What is drawn for probes, and when the next of them is due, or a moment before.
    random: Random,
    next_probe: Option<Instant>,
    near: BTreeMap<(RouterId, NeighbourId), Near>,
    /// When packets go to one of their next hops again, if nothing happens until then.
    next_revert: Option<Instant>,
    events: VecDeque<(RouterId, Event)>,
    /// Routers with frames that came early.
    early: Vec<RouterId>,
    /// Frames of virtual links that had to wait.
    received: VecDeque<(LinkId, Vec<u8>)>,
}

impl Forwarder {
    /// No router. The seed decides what BFD draws at random; another start takes another one.
    pub fn new(seed: u64) -> Self {
        Self {
            routers: IdMap::default(),
            ports: IdMap::default(),
            cores: Links::default(),
            virtuals: Vec::new(),
            due: Due::default(),
            news: VecDeque::new(),
            sessions: Sessions::new(seed),
            watched: BTreeMap::new(),
            next_move: None,
            random: Random::new(!seed),
            next_probe: None,
            near: BTreeMap::new(),
            next_revert: None,
            events: VecDeque::new(),
            early: Vec::new(),
            received: VecDeque::new(),
        }
    }

    /// Changes a router, which is there from its first change on.
    pub fn change(&mut self, now: Instant, id: RouterId, change: Change) -> Result<(), Refused> {
        if self.routers.get(id.0).is_none() {
            self.routers.insert(id.0, Routed::default());
        }
        let Routed { router, paths, .. } = &mut self.routers[id.0];
        match change {
            Change::SetQuarantine(quarantine) => router.set_quarantine(quarantine),
            Change::SetPort(port, kind) => {
                self.set_port(id, port, kind);
                self.renew_next_hops(now, port);
            }
            Change::RemovePort(port) => {
                self.remove_port(port);
                self.renew_next_hops(now, port);
                self.renew_watched(now, id, |_| true);
            }
            Change::Record(port, milliseconds) => self.record(now, port, milliseconds),
            Change::SetPath(number, path) => {
                router.set_backup(number, path.backup);
                paths.insert(number.0, path);
                self.renew_path(id, number);
                self.renew_watched(now, id, |path| path == number);
            }
            Change::RemovePath(number) => {
                paths.remove(number.0);
                router.remove_nhlfe(number);
                self.renew_watched(now, id, |path| path == number);
            }
            Change::Resolve(port, address, mac) => self.resolve(now, id, (port, address), mac),
            Change::SetLabel { space, label, fec, action } => {
                router.set_label(now, space, label, fec, action)?;
            }
            Change::WithdrawLabel { space, label, fec } => {
                router.withdraw_label(now, space, label, fec);
            }
            Change::SetPseudowire(number, pseudowire) => {
                router.set_pseudowire(now, number, pseudowire)?;
                self.renew_sessions(now, id, number);
            }
            Change::RemovePseudowire(number) => {
                router.remove_pseudowire(now, number);
                self.set_watch(now, id, number, None);
            }
            Change::SetWatch(number, watch) => {
                if let Some(watch) = watch {
                    Sessions::check(&watch.settings()).map_err(Refused::Watch)?;
                }
                self.set_watch(now, id, number, watch);
            }
            Change::SetNeighbour(number, neighbour) => {
                Sessions::check(&neighbour.watch.of_link()).map_err(Refused::Watch)?;
                self.set_neighbour(now, id, number, neighbour);
            }
            Change::RemoveNeighbour(number) => self.remove_neighbour(now, id, number),
            Change::SetTunnel(number, tunnel) => router.set_tunnel(number, tunnel)?,
            Change::RemoveTunnel(number) => router.remove_tunnel(number),
            Change::RemoveRouter => self.remove_router(now, id),
        }
        self.look_at_virtual_links();
        self.deliver_early(now);
        Ok(())
    }

    fn set_port(&mut self, id: RouterId, link: LinkId, kind: PortKind) {
        assert!(link.0 < PORTS_MAX, "{link} is none of {PORTS_MAX}");
        // One of another kind is another port: who lives on a virtual link is told that it is gone.
        let is_kind = |port: &Port| {
            discriminant(&port.kind) == discriminant(&kind) && over(&port.kind) == over(&kind)
        };
        if self.ports.get(link.0).is_some_and(|port| !is_kind(port)) {
            self.remove_port(link);
        }
        match self.ports.get_mut(link.0) {
            Some(port) => {
                assert_eq!(port.router, id, "{link} is a port of another router");
                port.kind = kind;
            }
            None => {
                let port = Port {
                    router: id,
                    kind,
                    facts: None,
                    protection: neighbour::by_its_port(),
                    queue: Queue::default(),
                };
                self.ports.insert(link.0, port);
            }
        }
        self.set_rate(link, if let PortKind::Core(core) = kind { core.rate } else { None });
        self.virtuals.retain(|other| *other != link);
        if matches!(kind, PortKind::Virtual { .. }) {
            self.virtuals.push(link);
        }
        self.renew_port(link);
    }

    fn remove_port(&mut self, link: LinkId) {
        let Some(port) = self.ports.remove(link.0) else { return };
        self.cores.set(link, None);
        self.due.forget(link);
        self.virtuals.retain(|other| *other != link);
        if let Some(routed) = self.routers.get_mut(port.router.0) {
            routed.router.remove_port(link);
        }
        if matches!(port.kind, PortKind::Virtual { .. }) && port.facts.is_some() {
            self.news.push_back((link, None));
        }
    }

    fn remove_router(&mut self, now: Instant, id: RouterId) {
        let its = self.routers[id.0].router.pseudowires().map(|(number, ..)| number);
        let watched = self.watched.keys().filter(|(of, _)| *of == id).map(|(_, number)| *number);
        for number in its.chain(watched).collect::<Vec<PseudowireId>>() {
            self.routers[id.0].router.remove_pseudowire(now, number);
            self.set_watch(now, id, number, None);
        }
        self.remove_neighbours(now, id);
        let its = self.ports.iter().filter(|(_, port)| port.router == id);
        let its: Vec<LinkId> = its.map(|(link, _)| LinkId(link)).collect();
        its.into_iter().for_each(|link| self.remove_port(link));
        self.routers.remove(id.0);
    }

    /// The router has its port as it is known now.
    fn renew_port(&mut self, link: LinkId) {
        let Some(Port { router: id, kind, facts, .. }) = self.ports.get(link.0) else { return };
        let (id, Routed { router, paths, .. }) = (*id, &mut self.routers[id.0]);
        // Before it was up nothing is known of a circuit, and what is sent there the driver drops.
        let mtu = facts.map_or(MTU_UNKNOWN, |facts| facts.mtu);
        match *kind {
            PortKind::Core(core) => {
                router.set_port(link, Role::Core(core));
                let its = paths.iter().filter(|(_, path)| path.port == link);
                let its: Vec<NhlfeId> = its.map(|(number, _)| NhlfeId(number)).collect();
                its.into_iter().for_each(|number| self.renew_path(id, number));
            }
            PortKind::Circuit { traffic_classes, classifier } => {
                let circuit = Circuit { mtu, traffic_classes, classifier };
                router.set_port(link, Role::Circuit(circuit));
            }
            PortKind::Virtual { .. } => router.set_port(link, Role::Circuit(Circuit::new(mtu))),
            PortKind::Tunnels(kind) => router.set_port(link, Role::Tunnels { kind, mtu }),
            // Nobody's frames go by it.
            PortKind::Bfd => {}
        }
    }

    /// A path is an NHLFE once its port was up: then the port's own address is known. While it is
    /// down again, the driver drops what is sent there.
    fn renew_path(&mut self, id: RouterId, number: NhlfeId) {
        let routed = &mut self.routers[id.0];
        let path = routed.paths.get(number.0).copied();
        let Some(Path { port, via, labels, mtu: narrowest, .. }) = path else { return };
        let facts = self.ports.get(port.0).and_then(|port| port.facts);
        let Some(LinkFacts { mac: own, mtu, vlan, .. }) = facts else { return };
        let at = |mac| Reach::At(Adjacency { own: MacAddress(own), mac, vlan });
        let reach = match via {
            None => Reach::Alone,
            Some(via) => routed.find(port, via).map_or(Reach::Unresolved, at),
        };
        let next_hop = NextHop { port, reach };
        let mtu = narrowest.map_or(mtu, |narrowest| narrowest.min(mtu));
        routed.router.set_nhlfe(number, Nhlfe { next_hop, labels, mtu });
    }

    /// The router with this address on a port is there now, or nobody knows where: the paths to it change,
    /// in place, and no other.
    fn resolve(
        &mut self,
        now: Instant,
        id: RouterId,
        (port, address): (LinkId, IpAddr),
        mac: Option<MacAddress>,
    ) {
        let Routed { paths, resolved, .. } = &mut self.routers[id.0];
        let key = (port, address);
        let before = match mac {
            Some(mac) => resolved.insert(key, mac),
            None => resolved.remove(&key),
        };
        if before == mac {
            return;
        }
        let to = Some(Via::Ip(address));
        let its = paths.iter().filter(|(_, path)| (path.port, path.via) == (port, to));
        let its: Vec<NhlfeId> = its.map(|(number, _)| NhlfeId(number)).collect();
        its.into_iter().for_each(|number| self.renew_path(id, number));
        self.resolve_neighbours(now, id, port);
        self.renew_watched(now, id, |_| true);
    }

    /// Virtual links that are not what they were are news.
    pub(in crate::forwarder) fn look_at_virtual_links(&mut self) {
        for index in 0..self.virtuals.len() {
            let link = self.virtuals[index];
            let facts = self.facts_of_virtual(link);
            let port = &mut self.ports[link.0];
            if port.facts != facts {
                port.facts = facts;
                self.news.push_back((link, facts));
                self.renew_port(link);
            }
        }
    }

    /// What is known of a virtual link; `None` while nothing carries it, or what does has no port that
    /// is up.
    fn facts_of_virtual(&self, circuit: LinkId) -> Option<LinkFacts> {
        let Port { router, kind, .. } = self.ports.get(circuit.0)?;
        let PortKind::Virtual { mac } = kind else { return None };
        let router = &self.routers[router.0].router;
        let id = match router.wire_of(Fec::all_of(circuit))? {
            Wire::Pseudowire(id) => id,
            Wire::Tunnel(id) => {
                let Tunnel { port, session, sequencing, .. } = router.tunnel(id)?;
                let below = self.ports.get(port.0)?.facts?;
                let around = session.header_size(*sequencing) + HEADER_SIZE;
                let mtu = below.mtu.checked_sub(around as u32)?;
                return Some(LinkFacts { mac: mac.0, mtu, vlan: None, ..below });
            }
        };
        let (pseudowire, way) = router.pseudowire(id)?;
        let NextHop { port, reach } = router.nhlfe_taken(pseudowire.nhlfe_of(way)?)?.next_hop;
        let below = self.ports.get(port.0)?.facts.filter(|_| reach != Reach::Unresolved)?;
        let mtu = router.fits(id)?.checked_sub(HEADER_SIZE as u32)?;
        Some(LinkFacts { mac: mac.0, mtu, vlan: None, ..below })
    }

    /// Does with a frame what was found; the frame of a virtual link is returned.
    #[inline]
    fn carry_out<'a>(
        &mut self,
        now: Instant,
        router: RouterId,
        came: &InFrame<'a>,
        verdict: Verdict<'a>,
    ) -> Option<InFrame<'a>> {
        match verdict {
            Verdict::Copy => self.copy(now, router, came),
            Verdict::Send { port, rest } => {
                let front = self.routers[router.0].router.front();
                self.due.put(&mut self.ports, now, port, front, came.part(rest));
            }
            Verdict::Deliver { circuit, frame } => {
                let kind = self.ports.get(circuit.0)?.kind;
                if matches!(kind, PortKind::Virtual { .. }) {
                    return Some(InFrame::new(circuit, None, frame));
                }
                self.due.put(&mut self.ports, now, circuit, &[], came.part(frame));
            }
            Verdict::DeliverChanged { circuit, rest } => {
                let front = self.routers[router.0].router.front();
                match self.ports.get(circuit.0)?.kind {
                    PortKind::Virtual { .. } => {
                        self.received.push_back((circuit, [front, rest].concat()));
                    }
                    _ => self.due.put(&mut self.ports, now, circuit, front, came.part(rest)),
                }
            }
            Verdict::Channel { pseudowire, way, header, message } => {
                self.handle_message(now, (router, pseudowire, way), header, message);
            }
            Verdict::Wait => {
                if !self.early.contains(&router) {
                    self.early.push(router);
                }
            }
            Verdict::Drop(_) => {}
        }
        None
    }

    /// A frame that is for all classes of its circuit goes by all that these go by, copied: one that is lent
    /// may leave from where it lies once.
    #[cold]
    fn copy(&mut self, now: Instant, id: RouterId, frame: &InFrame<'_>) {
        let wires: Vec<Wire> = self.routers[id.0].router.classes_of(frame.link).collect();
        for wire in wires {
            let router = &mut self.routers[id.0].router;
            let verdict = router.copy_to(wire, frame.link, frame.tag, frame.bytes);
            if let Verdict::Send { port, rest } = verdict {
                self.due.put(&mut self.ports, now, port, router.front(), rest.into());
            }
        }
    }

    /// Frames that came early and wait no longer leave.
    #[inline]
    fn deliver_early(&mut self, now: Instant) {
        if !self.early.is_empty() {
            self.take_early(now);
        }
    }

    #[cold]
    fn take_early(&mut self, now: Instant) {
        let mut routers = core::mem::take(&mut self.early);
        routers.retain(|id| {
            while let Some(routed) = self.routers.get_mut(id.0)
                && let Some((circuit, frame)) = routed.router.poll_early(now)
            {
                match self.ports.get(circuit.0).map(|port| port.kind) {
                    Some(PortKind::Virtual { .. }) => self.received.push_back((circuit, frame)),
                    _ => self.due.put(&mut self.ports, now, circuit, &[], frame[..].into()),
                }
            }
            self.early_of(*id).is_some()
        });
        self.early = routers;
    }

    /// When the next frame of a router that came early waits no longer.
    fn early_of(&self, id: RouterId) -> Option<Instant> {
        self.routers.get(id.0)?.router.poll_timeout()
    }

    /// What became of a pseudowire of a router, for people.
    pub fn poll_event(&mut self) -> Option<(RouterId, Event)> {
        self.events.pop_front()
    }

    /// How things are with a router; `None`: there is no such one.
    pub fn report(&self, now: Instant, id: RouterId) -> Option<RouterReport> {
        let Routed { router, .. } = self.routers.get(id.0)?;
        let port = |(link, _, counters, drops): (LinkId, _, &PortCounters, &Drops)| {
            let Port { kind, facts, queue, .. } = &self.ports[link.0];
            PortReport {
                link,
                kind: *kind,
                facts: *facts,
                counters: *counters,
                queue: queue.counters,
                bins: queue.bins(),
                drops: *drops,
            }
        };
        let ports = router.ports().map(port).collect();
        let neighbours = self.neighbour_reports(id);
        let watch = |number| self.watch_report(id, number);
        Some(RouterReport::new(now, id, router, ports, neighbours, watch))
    }

    /// What came on core ports and was not for this station, or was no packet with labels.
    pub fn misfits(&self) -> &Misfits {
        &self.cores.misfits
    }
}

/// What is around the packets of a core port; `None` of any other.
fn over(kind: &PortKind) -> Option<Over> {
    if let PortKind::Core(core) = kind { Some(core.over) } else { None }
}

/// An MTU to which whatever goes in front may be added.
const MTU_UNKNOWN: u32 = u32::MAX - FRONT_MAX as u32;

impl VirtualLinks for Forwarder {
    fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        let Some(port) = self.ports.get_mut(link.0) else { return };
        let router = port.router;
        port.facts = facts;
        if over(&port.kind) == Some(Over::Ethernet) {
            self.cores.set(link, facts);
        }
        if facts.is_some() {
            self.renew_port(link);
        }
        self.renew_next_hops(now, link);
        self.renew_watched(now, router, |_| true);
        self.look_at_virtual_links();
    }

    fn poll_link(&mut self) -> Option<(LinkId, Option<LinkFacts>)> {
        self.news.pop_front()
    }

    #[inline]
    fn takes(&self, link: LinkId) -> bool {
        self.ports.get(link.0).is_some()
    }

    #[inline]
    fn receive<'a>(&mut self, now: Instant, frame: &InFrame<'a>) -> Option<InFrame<'a>> {
        let link = frame.link;
        let Port { router: id, kind, .. } = self.ports.get(link.0)?;
        let (id, router) = (*id, &mut self.routers[id.0].router);
        let verdict = match kind {
            PortKind::Core(Core { over: Over::Udp, .. }) => {
                router.handle_labelled(now, link, frame.bytes)
            }
            PortKind::Core(_) => {
                // Mostly without a tag, as this one.
                if let Some(soon) = frame.soon
                    && let Some(packet) = soon.bytes.get(HEADER_SIZE..)
                {
                    router.fetch(soon.fetch, packet);
                }
                let frame = self.cores.open(frame)?;
                if frame.ether_type != EtherType::MPLS {
                    self.cores.misfits.other_type += 1;
                    return None;
                }
                router.handle_labelled(now, link, frame.payload)
            }
            PortKind::Tunnels(_) => router.handle_tunnelled(now, link, frame.bytes),
            PortKind::Bfd => {
                self.handle_control_packet(now, id, link, frame.bytes);
                return None;
            }
            PortKind::Circuit { .. } | PortKind::Virtual { .. } => {
                router.handle_circuit(link, frame.tag, frame.bytes)
            }
        };
        let inside = self.carry_out(now, id, frame, verdict);
        self.deliver_early(now);
        inside
    }

    #[inline]
    fn poll_received(&mut self) -> Option<(LinkId, Vec<u8>)> {
        self.received.pop_front()
    }

    #[inline]
    fn encapsulate(&mut self, now: Instant, batch: &mut FrameBatch, memory: &dyn Memory) {
        if self.virtuals.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        for index in 0..batch.frames.len() {
            let frame = batch.frames[index];
            let Some(port) = self.ports.get(frame.link.0) else { continue };
            if !matches!(port.kind, PortKind::Virtual { .. }) {
                continue;
            }
            let router = &mut self.routers[port.router.0].router;
            let [_, head] = batch.heads(&frame);
            if let Ok(by) = router.handle_own(frame.link, head, frame.len() as usize) {
                batch.put_in_front(index, by, router.front());
                let bytes = batch.frames[index].len() as usize;
                if !self.ports[by.0].queue.lets_pass(now, bytes) {
                    waiting.push(index);
                }
            }
        }
        if !waiting.is_empty() {
            self.wait(now, batch, &waiting, memory);
        }
    }

    fn poll_batch(&mut self) -> Option<FrameBatch> {
        self.next_batch()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let early = self.early.iter().filter_map(|id| self.early_of(*id)).min();
        let moves = Instant::earliest(self.next_move, self.next_revert);
        let moves = Instant::earliest(moves, self.next_probe);
        let moves = Instant::earliest(moves, self.next_release());
        Instant::earliest(Instant::earliest(self.sessions.poll_timeout(), moves), early)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sessions.handle_timeout(now);
        self.work(now);
        self.probe_when_due(now);
        self.move_when_due(now);
        self.revert_when_due(now);
        self.deliver_early(now);
        self.release_when_due(now);
    }

    fn handle_sent(&mut self, batch: FrameBatch) {
        self.batch_is_back(batch);
    }
}
