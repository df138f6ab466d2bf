//! Next hops: whether packets may go to them, by their port and, of a neighbour, by BFD on the link.
//!
//! ```text
//!   port of the neighbour   up, down                     \
//!   session of the neighbour   Up, no longer Up, AdminDown --> its Protection --> `repair`
//! ```
//! A neighbour is a next router on a core link that is watched by BFD; its packets go by a port of
//! their own, which knows nobody else. A next hop fails with its port, and with a session that was Up
//! and no longer is; one that is known by an address of IP also while it is not resolved any more. One
//! whose session never was Up takes nothing away, nor does a peer that says
//! AdminDown, which is not about the path (RFC 5882 clauses 3.2 and 4.2). What is up again is taken
//! after the wait. Next hops that are no neighbours go by their port alone.
//! Units: those of settings. Errors: settings that BFD refuses; packets are dropped and counted by
//! the session. Spec: RFC 5881, RFC 5880, RFC 5882.

use core::time::Duration;

use bfd::{Carrier, Event as BfdEvent, SessionState};
use block::{Instant, planted};
use contract::{LinkId, MacAddress};
use wire::bfd::Diagnostic;

use super::watch::{Event, SessionReport, Watch};
use super::{Forwarder, Port};
use crate::change::{PortKind, RouterId, Via};
use crate::limits::{NEIGHBOURS_MAX, REVERT_DEFAULT};
use crate::protection::{Protection, ProtectionCounters, Way};
use crate::repair::{HopState, Hops};

/// The number of a neighbour, given by whoever configured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourId(pub u32);

/// A next router, and how BFD watches the link to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The core port towards it.
    pub port: LinkId,
    /// Which one there.
    pub via: Via,
    /// The port by which packets of BFD go to it, and come.
    pub bfd: LinkId,
    pub watch: Watch,
}

/// A neighbour, and what is known of it.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) neighbour: Neighbour,
    /// Where it is on the port, or was when that was known last: by that paths to it are told.
    mac: Option<MacAddress>,
    /// That was known, and is not now.
    is_lost: bool,
    /// Its session was Up, and no longer is.
    has_failed: bool,
    protection: Protection,
}

impl Near {
    /// It is there on its port now, or nobody knows where.
    fn find(&mut self, mac: Option<MacAddress>) {
        self.is_lost = self.mac.is_some() && mac.is_none();
        self.mac = mac.or(self.mac);
    }
}

/// How a neighbour is at present.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourReport {
    pub id: NeighbourId,
    pub neighbour: Neighbour,
    pub state: HopState,
    /// How often packets that have a backup took it.
    pub protection: ProtectionCounters,
    /// `None` while one of its ports is down.
    pub session: Option<SessionReport>,
}

/// What sets carriers of neighbours apart from those of pseudowires.
const OF_A_NEIGHBOUR: u64 = 1 << 31;

fn carrier(RouterId(router): RouterId, NeighbourId(id): NeighbourId) -> Carrier {
    Carrier(u64::from(router) << 32 | OF_A_NEIGHBOUR | u64::from(id))
}

/// The neighbour that BFD knows by this number; `None`: it is a path's of a pseudowire.
pub(super) fn of_carrier(Carrier(number): Carrier) -> Option<(RouterId, NeighbourId)> {
    let id = (number & (OF_A_NEIGHBOUR - 1)) as u32;
    (number & OF_A_NEIGHBOUR > 0).then_some((RouterId((number >> 32) as u32), NeighbourId(id)))
}

/// A next hop of which it is not known otherwise than by its port.
pub(super) fn by_its_port() -> Protection {
    Protection::of_next_hop(if planted("next-hop-reverts-at-once") {
        Duration::ZERO
    } else {
        REVERT_DEFAULT
    })
}

fn state_of(protection: &Protection) -> HopState {
    match (protection.is_up(Way::Primary), protection.active()) {
        (false, _) => HopState::Failed,
        (true, Way::Primary) => HopState::Up,
        (true, Way::Backup) => HopState::Waiting,
    }
}

/// A next hop may be used, or no longer. Returns which way packets take from now on, if that is
/// another.
fn tell(protection: &mut Protection, now: Instant, is_up: bool) -> Option<Way> {
    // What never was up and is not has lost nothing.
    let is_news = protection.is_up(Way::Primary) != is_up;
    if is_news { protection.handle(now, Way::Primary, is_up) } else { None }
}

impl Forwarder {
    /// There is a neighbour, or it is another way now.
    pub(super) fn set_neighbour(
        &mut self,
        now: Instant,
        router: RouterId,
        id: NeighbourId,
        neighbour: Neighbour,
    ) {
        assert!(id.0 < NEIGHBOURS_MAX, "{id:?} is none of {NEIGHBOURS_MAX}");
        let key = (router, id);
        let mac = self.routers[router.0].find(neighbour.port, neighbour.via);
        let place = |one: &Neighbour| (one.port, one.bfd);
        // Elsewhere it is another one. The same one may be known by another address.
        let is_other = |one: &Near| {
            let is_alike =
                one.neighbour.via == neighbour.via || mac.is_some_and(|mac| one.mac == Some(mac));
            place(&one.neighbour) != place(&neighbour) || !is_alike
        };
        if self.near.get(&key).is_some_and(is_other) {
            self.remove_neighbour(now, router, id);
        }
        let near = self.near.entry(key).or_insert_with(|| Near {
            neighbour,
            mac,
            is_lost: false,
            has_failed: planted("who-never-was-up-has-failed"),
            protection: by_its_port(),
        });
        near.neighbour = neighbour;
        near.find(mac);
        near.protection.wait = neighbour.watch.revert_after;
        self.renew_neighbour(now, key);
        self.transmit(now);
    }

    /// Routers on a port are elsewhere there, or nobody knows where.
    pub(super) fn resolve_neighbours(&mut self, now: Instant, router: RouterId, port: LinkId) {
        let its = self.near.range((router, NeighbourId(0))..=(router, NeighbourId(u32::MAX)));
        let its = its.filter(|(_, near)| near.neighbour.port == port);
        let its: Vec<_> = its.map(|(key, near)| (*key, near.neighbour.via)).collect();
        for (key, via) in its {
            let mac = self.routers[router.0].find(port, via);
            if let Some(near) = self.near.get_mut(&key) {
                near.find(mac);
            }
            self.look_at_neighbour(now, key);
        }
        self.renew_hops(now, port);
    }

    pub(super) fn remove_neighbour(&mut self, now: Instant, router: RouterId, id: NeighbourId) {
        let Some(Near { neighbour, .. }) = self.near.remove(&(router, id)) else { return };
        self.sessions.remove(now, carrier(router, id));
        self.renew_hops(now, neighbour.port);
    }

    pub(super) fn remove_neighbours(&mut self, now: Instant, router: RouterId) {
        let its = self.near.range((router, NeighbourId(0))..=(router, NeighbourId(u32::MAX)));
        let its: Vec<NeighbourId> = its.map(|((_, id), _)| *id).collect();
        its.into_iter().for_each(|id| self.remove_neighbour(now, router, id));
    }

    /// A port came up, went down or is gone.
    pub(super) fn renew_next_hops(&mut self, now: Instant, link: LinkId) {
        let is_its = |near: &Near| [near.neighbour.port, near.neighbour.bfd].contains(&link);
        let its = self.near.iter().filter(|(_, near)| is_its(near));
        let its: Vec<_> = its.map(|(key, _)| *key).collect();
        let mut moved = None;
        if let Some(Port { router, kind: PortKind::Core(_), facts, protection, .. }) =
            self.ports.get_mut(link.0)
        {
            moved = tell(protection, now, facts.is_some()).map(|way| (*router, way));
        }
        // Of neighbours it is said by their names.
        if let Some((router, way)) = moved.filter(|_| its.is_empty()) {
            self.tell_of_port(router, link, way);
        }
        self.renew_hops(now, link);
        its.into_iter().for_each(|key| self.renew_neighbour(now, key));
        self.transmit(now);
    }

    /// The packets of a port's next hops move, if there are such that can.
    fn tell_of_port(&mut self, router: RouterId, link: LinkId, way: Way) {
        if self.routers[router.0].router.has_backups() {
            self.events.push_back((router, Event::PortMoved(link, way)));
        }
    }

    /// A neighbour has a session while both of its ports are up.
    fn renew_neighbour(&mut self, now: Instant, key: (RouterId, NeighbourId)) {
        let Some(Near { neighbour, .. }) = self.near.get(&key) else { return };
        let Neighbour { port, bfd, watch, .. } = *neighbour;
        let is_there = self.ports.get(bfd.0).is_some_and(|port| {
            port.kind == PortKind::Bfd && port.router == key.0 && port.facts.is_some()
        });
        let (is_wanted, carrier) =
            (is_there && self.is_core_up(key.0, port), carrier(key.0, key.1));
        let status = self.sessions.status(carrier);
        match (is_wanted, status) {
            (true, Some(_)) => self.sessions.set(now, carrier, watch.of_link()),
            (true, None) => self.sessions.add(now, carrier, watch.of_link()),
            (false, _) => {
                self.sessions.remove(now, carrier);
                Ok(())
            }
        }
        .expect("a change whose settings BFD refuses was refused");
        if !is_wanted && status.is_some_and(|one| one.state == SessionState::Up) {
            self.lose_neighbour(key, Diagnostic::PATH_DOWN);
        }
        self.look_at_neighbour(now, key);
    }

    fn is_core_up(&self, router: RouterId, port: LinkId) -> bool {
        self.ports.get(port.0).is_some_and(|port| {
            matches!(port.kind, PortKind::Core(_)) && port.router == router && port.facts.is_some()
        })
    }

    fn lose_neighbour(&mut self, key: (RouterId, NeighbourId), why: Diagnostic) {
        self.events.push_back((key.0, Event::NeighbourDown(key.1, why)));
        if let Some(near) = self.near.get_mut(&key) {
            near.has_failed = !planted("silence-is-no-failure");
        }
    }

    /// A packet of BFD came by a port of such.
    pub(super) fn handle_control_packet(
        &mut self,
        now: Instant,
        router: RouterId,
        link: LinkId,
        packet: &[u8],
    ) {
        let its = self.near.range((router, NeighbourId(0))..=(router, NeighbourId(u32::MAX)));
        let key = its.into_iter().find(|(_, near)| near.neighbour.bfd == link).map(|(key, _)| *key);
        let Some(key) = key else { return };
        // What is discarded is counted there.
        let _ = self.sessions.handle_packet(now, carrier(key.0, key.1), packet);
        self.work(now);
        if self.near.get(&key).is_some_and(|near| near.has_failed) && self.is_admin_down(key) {
            self.forgive(now, key);
        }
    }

    /// Whether the peer says that its session is not to be up.
    fn is_admin_down(&self, key: (RouterId, NeighbourId)) -> bool {
        let status = self.sessions.status(carrier(key.0, key.1));
        status.is_some_and(|status| status.remote_state == SessionState::AdminDown)
    }

    /// Nothing is held against a neighbour any more.
    fn forgive(&mut self, now: Instant, key: (RouterId, NeighbourId)) {
        if let Some(near) = self.near.get_mut(&key) {
            near.has_failed = false;
        }
        self.look_at_neighbour(now, key);
    }

    /// Something became of a neighbour's session.
    pub(super) fn neighbour_changed(
        &mut self,
        now: Instant,
        key: (RouterId, NeighbourId),
        event: BfdEvent,
    ) {
        match event {
            BfdEvent::Up => {
                self.events.push_back((key.0, Event::NeighbourUp(key.1)));
                self.forgive(now, key);
            }
            BfdEvent::Down(_) if self.is_admin_down(key) => {
                self.events.push_back((key.0, Event::NeighbourUnwatched(key.1)));
            }
            BfdEvent::Down(why) => {
                self.lose_neighbour(key, why);
                self.look_at_neighbour(now, key);
            }
            // It went down or comes up with it; what it carries are not its frames.
            BfdEvent::FirstHeard | BfdEvent::DiscriminatorChanged => {}
        }
    }

    /// Packets may go to a neighbour, or no longer.
    fn look_at_neighbour(&mut self, now: Instant, key: (RouterId, NeighbourId)) {
        let Some(near) = self.near.get(&key) else { return };
        let port = near.neighbour.port;
        let is_up = !near.has_failed && !near.is_lost && self.is_core_up(key.0, port);
        let Some(near) = self.near.get_mut(&key) else { return };
        if let Some(way) = tell(&mut near.protection, now, is_up) {
            self.events.push_back((key.0, Event::NeighbourMoved(key.1, way)));
        }
        self.renew_hops(now, port);
    }

    /// The router has the next hops of a port as they are now.
    fn renew_hops(&mut self, now: Instant, link: LinkId) {
        if let Some(Port { router, kind: PortKind::Core(_), protection, .. }) =
            self.ports.get(link.0)
        {
            let is_its = |(key, near): &(&(RouterId, NeighbourId), &Near)| {
                key.0 == *router && near.neighbour.port == link
            };
            let named = self.near.iter().filter(is_its);
            let named = named.filter_map(|(_, near)| Some((near.mac?, state_of(&near.protection))));
            let hops = Hops { others: state_of(protection), named: named.collect() };
            let router = *router;
            self.routers[router.0].router.set_hops(link, hops);
            self.renew_all_probes(now, router);
        }
        self.find_next_revert();
    }

    fn find_next_revert(&mut self) {
        let near = self.near.values().map(|near| &near.protection);
        let ports = self.ports.iter().map(|(_, port)| &port.protection);
        self.next_revert = near.chain(ports).filter_map(Protection::poll_timeout).min();
    }

    /// Moments at which packets go to a next hop again may have come.
    pub(super) fn revert_when_due(&mut self, now: Instant) {
        if self.next_revert.is_none_or(|at| at > now) {
            return;
        }
        let mut links = Vec::new();
        for ((router, id), near) in &mut self.near {
            if let Some(way) = near.protection.handle_timeout(now) {
                links.push(near.neighbour.port);
                self.events.push_back((*router, Event::NeighbourMoved(*id, way)));
            }
        }
        let has_neighbour =
            |link: u32| self.near.values().any(|near| near.neighbour.port == LinkId(link));
        let due = self
            .ports
            .iter()
            .filter(|(_, port)| port.protection.poll_timeout().is_some_and(|at| at <= now));
        let due: Vec<_> = due.map(|(link, _)| (link, has_neighbour(link))).collect();
        for (link, has_neighbour) in due {
            let Port { router, protection, .. } = &mut self.ports[link];
            let (router, way) = (*router, protection.handle_timeout(now));
            links.push(LinkId(link));
            if let Some(way) = way.filter(|_| !has_neighbour) {
                self.tell_of_port(router, LinkId(link), way);
            }
        }
        links.into_iter().for_each(|link| self.renew_hops(now, link));
        // Frees those whose links have no port of the core any more, too.
        self.find_next_revert();
        self.look_at_virtual_links();
    }

    pub(super) fn transmit_to_neighbour(
        &mut self,
        now: Instant,
        key: (RouterId, NeighbourId),
        packet: &[u8],
    ) {
        if let Some(Near { neighbour, .. }) = self.near.get(&key) {
            self.due.put_first(&mut self.ports, now, neighbour.bfd, [&[], packet]);
        }
    }

    pub(super) fn neighbour_reports(&self, router: RouterId) -> Vec<NeighbourReport> {
        let its = self.near.range((router, NeighbourId(0))..=(router, NeighbourId(u32::MAX)));
        let report = |(key, near): (&(RouterId, NeighbourId), &Near)| NeighbourReport {
            id: key.1,
            neighbour: near.neighbour,
            state: state_of(&near.protection),
            protection: near.protection.counters,
            session: self.session_report(carrier(key.0, key.1)),
        };
        its.map(report).collect()
    }
}
