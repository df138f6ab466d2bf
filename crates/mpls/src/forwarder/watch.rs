//! Watched pseudowires: BFD sessions in their associated channels, one for each path, and what
//! becomes of the traffic when one of them goes down or comes up.
//!
//! ```text
//!   Ethernet | tunnel labels | pseudowire's label, S | 0001 0000 00 0007 | BFD control packet
//! ```
//! A session is there while its path has a port that is up and a next hop that is resolved, so a shard
//! that has no such port has no session and no timer, and an interface that goes down is a path that
//! fails at once. A packet
//! belongs to the session of the path by which it came. Packets leave before the data of their turn,
//! by a batch of their own. Which path is taken then is [`crate::protection`]'s to say, and how large
//! frames it carries is asked when it comes up and when it is taken (`probes`).
//! Units: microseconds in settings. Errors: settings that BFD refuses; packets are dropped and
//! counted by the session. Spec: RFC 5885 (type 0x0007, CC type 1), RFC 5880.

use core::fmt;
use core::time::Duration;

use bfd::{Carrier, Event as BfdEvent, Role, SessionState, Settings, Status};
use block::{Instant, planted};
use contract::LinkId;
use wire::bfd::Diagnostic;
use wire::pseudowire::{AssociatedChannelHeader, ChannelType};

use super::Forwarder;
use super::neighbour::{self, NeighbourId};
use super::probes;
use crate::change::RouterId;
use crate::nhlfe::NhlfeId;
use crate::probe::{ProbeCounters, Prober, Proof};
use crate::protection::{Protection, ProtectionCounters, Way};
use crate::pseudowire::PseudowireId;

/// How a pseudowire is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// How often packets are sent and wanted, in microseconds.
    pub interval_us: u32,
    /// After how many intervals of silence a path has failed.
    pub detect_mult: u8,
    /// For how long a primary path has to be up again before traffic moves back.
    pub revert_after: Duration,
}

impl Watch {
    /// Whether BFD takes it so, of a neighbour: its session is known by the discriminator alone (RFC
    /// 5881 clause 3).
    pub(super) fn of_link(&self) -> Settings {
        Settings { is_carrier_bound: false, ..self.settings() }
    }

    /// Whether BFD takes it so.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            role: Role::Active,
            desired_min_tx_interval_us: self.interval_us,
            required_min_rx_interval_us: self.interval_us,
            detect_mult: self.detect_mult,
            is_carrier_bound: true,
        }
    }
}

/// What became of a pseudowire or a next router, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends hear each other by this path.
    Up(PseudowireId, Way),
    /// They no longer do, and why.
    Down(PseudowireId, Way, Diagnostic),
    /// Its frames take this path now.
    Moved(PseudowireId, Way),
    /// This path carries frames of so many bytes at most, and more were promised.
    Narrow(PseudowireId, Way, Narrow),
    /// It carries all that was promised, so many bytes, and did not before.
    Whole(PseudowireId, Way, u32),
    /// The other end began anew.
    BeganAnew(PseudowireId),
    /// Both hear each other on the link.
    NeighbourUp(NeighbourId),
    /// They no longer do, and why.
    NeighbourDown(NeighbourId, Diagnostic),
    /// It says that it is not to be watched now.
    NeighbourUnwatched(NeighbourId),
    /// Packets to it take this way now, where they have a backup.
    NeighbourMoved(NeighbourId, Way),
    /// Packets by a port do.
    PortMoved(LinkId, Way),
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Pseudowire(PseudowireId),
    Neighbour(NeighbourId),
    Port(LinkId),
}

impl Event {
    /// Whose it is.
    pub fn subject(&self) -> Subject {
        match *self {
            Self::Up(id, _)
            | Self::Down(id, ..)
            | Self::Moved(id, _)
            | Self::Narrow(id, ..)
            | Self::Whole(id, ..)
            | Self::BeganAnew(id) => Subject::Pseudowire(id),
            Self::NeighbourUp(id)
            | Self::NeighbourDown(id, _)
            | Self::NeighbourUnwatched(id)
            | Self::NeighbourMoved(id, _) => Subject::Neighbour(id),
            Self::PortMoved(link, _) => Subject::Port(link),
        }
    }

    /// The path that carries less than it should from now on (`true`), or does so no more.
    pub fn narrows(&self) -> Option<(Way, bool)> {
        match *self {
            Self::Narrow(_, way, _) => Some((way, true)),
            Self::Whole(_, way, _) => Some((way, false)),
            _ => None,
        }
    }

    /// Whether somebody should look.
    pub fn is_bad(&self) -> bool {
        match self {
            Self::Down(..)
            | Self::Narrow(..)
            | Self::NeighbourDown(..)
            | Self::NeighbourUnwatched(_) => true,
            Self::Moved(_, way) | Self::NeighbourMoved(_, way) | Self::PortMoved(_, way) => {
                *way == Way::Backup
            }
            Self::Up(..) | Self::Whole(..) | Self::BeganAnew(_) | Self::NeighbourUp(_) => false,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up(_, way) => write!(f, "its {way} path is up"),
            Self::Down(_, way, why) => write!(f, "its {way} path is down: {why}"),
            Self::Moved(_, way) => write!(f, "its frames take the {way} path from now on"),
            Self::Narrow(_, way, Narrow { fits, promised }) => write!(
                f,
                "its {way} path carries frames of {fits} bytes at most, not of {promised}"
            ),
            Self::Whole(_, way, promised) => {
                write!(f, "its {way} path carries frames of {promised} bytes, as it should")
            }
            Self::BeganAnew(_) => f.write_str("the router at its other end began anew"),
            Self::NeighbourUp(_) => f.write_str("BFD is up"),
            Self::NeighbourDown(_, why) => write!(f, "BFD is down: {why}"),
            Self::NeighbourUnwatched(_) => {
                f.write_str("BFD was switched off there (AdminDown); packets go on")
            }
            Self::NeighbourMoved(_, Way::Backup) | Self::PortMoved(_, Way::Backup) => {
                f.write_str("packets that have a backup take it from now on")
            }
            Self::NeighbourMoved(_, Way::Primary) | Self::PortMoved(_, Way::Primary) => {
                f.write_str("packets take it again, and no backup")
            }
        }
    }
}

/// The largest frame that a path carries, and the largest one that it should, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    pub fits: u32,
    pub promised: u32,
}

/// A pseudowire that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Watch,
    pub(super) protection: Protection,
    /// What each path is asked.
    pub(super) probers: [Prober; 2],
    /// How often the other end began anew, as the session of each path noticed; `None`: it has not
    /// heard of it.
    lives: [Option<u32>; 2],
}

impl Watched {
    /// The session of a path noticed that the other end began anew; whether that is news: the other
    /// path's notices it, too, and frames were followed since.
    fn begins_anew(&mut self, way: Way) -> bool {
        let others = self.lives[1 - way as usize].unwrap_or_default();
        let life = self.lives[way as usize].get_or_insert_default();
        let is_news = *life >= others || planted("each-path-begins-anew");
        *life = if is_news { *life + 1 } else { others };
        is_news
    }

    /// The session of a path hears the other end for the first time; whether that is news, since the
    /// other path's has not.
    fn is_first_heard(&mut self, way: Way) -> bool {
        let is_news = self.lives == [None; 2];
        let [primary, backup] = self.lives;
        self.lives[way as usize] = primary.max(backup).or(Some(0));
        is_news
    }
}

/// What is known of how large frames a path carries.
#[derive(Clone, Copy, Debug)]
pub struct PathProof {
    /// Bytes of the largest frame that it should carry.
    pub promised: u32,
    pub proof: Proof,
    /// Whether it is being asked.
    pub is_asked: bool,
}

/// How a watched pseudowire is at present.
#[derive(Clone, Debug)]
pub struct WatchReport {
    pub watch: Watch,
    /// The path that its frames take.
    pub active: Way,
    pub protection: ProtectionCounters,
    /// The session of each path; `None` while the path has no port that is up, or no next hop that is
    /// resolved.
    pub sessions: [Option<SessionReport>; 2],
    /// `None` of a path that was never up, so nothing was asked.
    pub proofs: [Option<PathProof>; 2],
    /// What was asked of both paths.
    pub probes: ProbeCounters,
}

/// A session.
#[derive(Clone, Copy, Debug)]
pub struct SessionReport {
    pub status: Status,
    pub counters: bfd::SessionCounters,
    pub drops: bfd::Drops,
}

/// The number by which BFD knows a path of a pseudowire.
fn carrier(RouterId(router): RouterId, PseudowireId(id): PseudowireId, way: Way) -> Carrier {
    Carrier(u64::from(router) << 32 | u64::from(id) << 1 | way as u64)
}

/// The path that BFD knows by this number.
fn path(Carrier(number): Carrier) -> (RouterId, PseudowireId, Way) {
    let way = Way::BOTH[(number & 1) as usize];
    (RouterId((number >> 32) as u32), PseudowireId((number as u32) >> 1), way)
}

impl Forwarder {
    /// A pseudowire is watched so from now on, or no longer.
    pub(super) fn set_watch(
        &mut self,
        now: Instant,
        router: RouterId,
        id: PseudowireId,
        watch: Option<Watch>,
    ) {
        match watch {
            Some(watch) => {
                let protection = || Protection::new(watch.revert_after);
                let new = || Watched {
                    watch,
                    protection: protection(),
                    probers: <_>::default(),
                    lives: [None; 2],
                };
                if planted("reload-forgets-what-is-up") {
                    self.watched.remove(&(router, id));
                }
                let watched = self.watched.entry((router, id)).or_insert_with(new);
                (watched.watch, watched.protection.wait) = (watch, watch.revert_after);
            }
            None => {
                self.watched.remove(&(router, id));
                self.find_next_move();
                self.forget_probes(router, id);
                self.take_way(now, router, id, Way::Primary);
            }
        }
        self.renew_sessions(now, router, id);
    }

    /// The sessions of a pseudowire are those that its paths can have now.
    pub(super) fn renew_sessions(&mut self, now: Instant, router: RouterId, id: PseudowireId) {
        for way in Way::BOTH {
            let carrier = carrier(router, id, way);
            let watch = self.watched.get(&(router, id)).map(|watched| watched.watch);
            let wanted = watch.filter(|_| self.has_path(router, id, way));
            let status = self.sessions.status(carrier);
            let is_there = status.is_some();
            if is_there && planted("reload-begins-sessions-anew") {
                self.sessions.remove(now, carrier);
            }
            match wanted.map(|watch| watch.settings()) {
                Some(settings) if is_there && !planted("reload-begins-sessions-anew") => {
                    self.sessions.set(now, carrier, settings)
                }
                Some(settings) => self.sessions.add(now, carrier, settings),
                None => {
                    self.end_session(now, (router, id), carrier);
                    // Who does not watch any more has lost nothing.
                    let was_up = status.is_some_and(|one| one.state == SessionState::Up);
                    if was_up && watch.is_some() {
                        self.path_changed(now, (router, id, way), Err(Diagnostic::PATH_DOWN));
                    }
                    continue;
                }
            }
            .expect("a change whose settings BFD refuses was refused");
        }
        self.keep_to_paths(router, id);
        self.renew_probes(now, router, id);
        self.transmit(now);
    }

    /// A path has no session now. As long as its pseudowire is there, numbers of frames go on, and to
    /// the other end it is the same one that comes again.
    fn end_session(
        &mut self,
        now: Instant,
        (router, id): (RouterId, PseudowireId),
        carrier: Carrier,
    ) {
        let is_there = self.routers[router.0].router.pseudowire(id).is_some();
        if is_there && !planted("port-that-was-down-begins-anew") {
            self.sessions.pause(now, carrier);
        } else {
            self.sessions.remove(now, carrier);
        }
    }

    /// A pseudowire without a backup, or none that is watched, is on its only path: one that gets a
    /// backup later begins there.
    fn keep_to_paths(&mut self, router: RouterId, id: PseudowireId) {
        let known = self.routers[router.0].router.pseudowire(id);
        let has_backup = known.is_some_and(|(pseudowire, _)| pseudowire.backup.is_some());
        if let Some(watched) = self.watched.get_mut(&(router, id)).filter(|_| !has_backup) {
            watched.protection.stay();
            watched.probers[Way::Backup as usize].forget();
            self.find_next_move();
        }
    }

    /// A router's ports, or what goes by these paths, are not what they were.
    pub(super) fn renew_watched(
        &mut self,
        now: Instant,
        router: RouterId,
        paths: impl Fn(NhlfeId) -> bool,
    ) {
        let its = self.watched.range((router, PseudowireId(0))..=(router, PseudowireId(u32::MAX)));
        let known = &self.routers[router.0].router;
        let is_concerned = |id: &PseudowireId| {
            let Some((pseudowire, _)) = known.pseudowire(*id) else { return false };
            Way::BOTH.into_iter().filter_map(|way| pseudowire.nhlfe_of(way)).any(&paths)
        };
        let its = its.map(|((_, id), _)| *id).filter(is_concerned);
        let its: Vec<PseudowireId> = its.collect();
        its.into_iter().for_each(|id| self.renew_sessions(now, router, id));
    }

    fn has_path(&self, router: RouterId, id: PseudowireId, way: Way) -> bool {
        let router = &self.routers[router.0].router;
        let Some((pseudowire, _)) = router.pseudowire(id) else { return false };
        let nhlfe = pseudowire.nhlfe_of(way).and_then(|nhlfe| router.nhlfe_taken(nhlfe));
        let hop = nhlfe.map(|nhlfe| nhlfe.next_hop).filter(|hop| !hop.is_unresolved());
        let port = hop.and_then(|hop| self.ports.get(hop.port.0));
        port.is_some_and(|port| port.facts.is_some())
    }

    /// A message of an associated channel came.
    pub(super) fn handle_message(
        &mut self,
        now: Instant,
        (router, id, way): (RouterId, PseudowireId, Way),
        header: AssociatedChannelHeader,
        message: &[u8],
    ) {
        if header.channel_type == ChannelType::BFD {
            // What is discarded is counted there.
            let way = if planted("paths-are-mixed-up") { Way::Primary } else { way };
            let _ = self.sessions.handle_packet(now, carrier(router, id, way), message);
            self.work(now);
        } else if header.channel_type == ChannelType::MTU_PROBE {
            self.handle_probe(now, (router, id, way), message);
        }
    }

    /// Sends what sessions have to send, and does what became of them.
    pub(super) fn work(&mut self, now: Instant) {
        self.transmit(now);
        while let Some((carrier, event)) = self.sessions.poll_event() {
            if let Some(key) = neighbour::of_carrier(carrier) {
                self.neighbour_changed(now, key, event);
                continue;
            }
            let (router, id, way) = path(carrier);
            match event {
                BfdEvent::Up => self.path_changed(now, (router, id, way), Ok(())),
                BfdEvent::Down(why) => self.path_changed(now, (router, id, way), Err(why)),
                // It may have begun when BFD was not there to tell.
                BfdEvent::FirstHeard => {
                    let watched = self.watched.get_mut(&(router, id));
                    if watched.is_some_and(|watched| watched.is_first_heard(way))
                        && let Some(routed) = self.routers.get_mut(router.0)
                    {
                        routed.router.doubt(id);
                    }
                }
                BfdEvent::DiscriminatorChanged => {
                    let watched = self.watched.get_mut(&(router, id));
                    if !watched.is_some_and(|watched| watched.begins_anew(way)) {
                        continue;
                    }
                    if let Some(routed) = self.routers.get_mut(router.0) {
                        routed.router.follow_anew(id);
                    }
                    self.events.push_back((router, Event::BeganAnew(id)));
                }
            }
        }
    }

    pub(super) fn transmit(&mut self, now: Instant) {
        while let Some((carrier, packet)) = self.sessions.poll_transmit(now) {
            if let Some(key) = neighbour::of_carrier(carrier) {
                self.transmit_to_neighbour(now, key, &packet);
                continue;
            }
            let (router, id, way) = path(carrier);
            let header = AssociatedChannelHeader { channel_type: ChannelType::BFD };
            let router = &mut self.routers[router.0].router;
            if let Some(port) = router.channel(id, way, header, packet.len()) {
                self.due.put_first(&mut self.ports, now, port, [router.front(), &packet]);
            }
        }
    }

    /// A path is Up, or why it no longer is.
    fn path_changed(
        &mut self,
        now: Instant,
        (router, id, way): (RouterId, PseudowireId, Way),
        is_up: Result<(), Diagnostic>,
    ) {
        let event = match is_up {
            Ok(()) => Event::Up(id, way),
            Err(why) => Event::Down(id, way, why),
        };
        self.events.push_back((router, event));
        let Some(watched) = self.watched.get_mut(&(router, id)) else { return };
        let moved = watched.protection.handle(now, way, is_up.is_ok());
        if let Some(way) = moved {
            self.take_way(now, router, id, way);
        }
        match is_up {
            // One that is taken at once is asked already.
            Ok(()) if moved != Some(way) => self.probe_anew(now, (router, id, way)),
            Ok(()) => {}
            Err(_) => self.probe_no_more(now, (router, id, way)),
        }
        self.find_next_move();
    }

    pub(super) fn find_next_move(&mut self) {
        let moves = self.watched.values().filter_map(|one| one.protection.poll_timeout());
        self.next_move = moves.min();
    }

    /// Moments at which traffic moves may have come.
    pub(super) fn move_when_due(&mut self, now: Instant) {
        if self.next_move.is_none_or(|at| at > now) {
            return;
        }
        let moves: Vec<_> = self
            .watched
            .iter_mut()
            .filter_map(|(key, one)| Some((*key, one.protection.handle_timeout(now)?)))
            .collect();
        moves.into_iter().for_each(|((router, id), way)| self.take_way(now, router, id, way));
        self.find_next_move();
    }

    pub(super) fn take_way(&mut self, now: Instant, router: RouterId, id: PseudowireId, way: Way) {
        let Some(routed) = self.routers.get_mut(router.0) else { return };
        let before = routed.router.pseudowire(id).map(|(_, way)| way);
        if before.is_some_and(|before| before != way) {
            routed.router.take_way(id, way);
            self.events.push_back((router, Event::Moved(id, way)));
            self.probe_anew(now, (router, id, way));
            // Its circuit may be a virtual link, which is what its path is.
            self.look_at_virtual_links();
        }
    }

    /// How a session is; `None`: there is none.
    pub(super) fn session_report(&self, carrier: Carrier) -> Option<SessionReport> {
        let status = self.sessions.status(carrier)?;
        let (counters, drops) = self.sessions.counted(carrier)?;
        Some(SessionReport { status, counters: *counters, drops: *drops })
    }

    /// How a pseudowire is watched; `None`: it is not.
    pub(super) fn watch_report(&self, router: RouterId, id: PseudowireId) -> Option<WatchReport> {
        let Watched { watch, protection, probers, .. } = self.watched.get(&(router, id))?;
        let session = |way| self.session_report(carrier(router, id, way));
        Some(WatchReport {
            watch: *watch,
            active: protection.active(),
            protection: protection.counters,
            sessions: Way::BOTH.map(session),
            proofs: probers.each_ref().map(probes::report),
            probes: probers.iter().map(|prober| prober.counters).sum(),
        })
    }
}
