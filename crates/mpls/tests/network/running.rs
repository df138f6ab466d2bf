//! Routers that run: time, what is on links, what routers send and tell, and which of them stand
//! still.
//!
//! A router that stalls hears nothing and does nothing; what comes meanwhile waits in its ring, up to
//! [`RING_FRAMES`], as does what it would be told of its links, and is shown in that order before
//! anything else once it runs again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use block::{Instant, Random};
use contract::{InFrame, LentFrames, LinkId, VirtualLinks};
use mpls::pseudowire::PseudowireCounters;
use mpls::{Event, Forwarder, Sequencing, Way};
use testkit::Pages;

use super::customers::Customers;
use super::health::{Failing, Health, PathKey, Times};
use super::links::{Flight, Links};
use super::oracle::Oracle;
use super::orders::{self, R};
use super::topology::*;

/// The longest that a frame is on its way through routers that run: four links of at most 3 ms, and
/// a millisecond of waiting for others.
pub(super) const LIFE: Duration = Duration::from_millis(20);
/// As many as wait for a port of a router.
const RING_FRAMES: usize = 1000;

pub(super) struct Network {
    pub(super) random: Random,
    pub(super) now: Instant,
    pub(super) routers: Vec<Forwarder>,
    /// The frame that a router is shown.
    lent: LentFrames<Vec<u8>>,
    pub(super) links: Links,
    pub(super) customers: Customers,
    pub(super) wires: Vec<Wire>,
    pub(super) oracle: Oracle,
    pub(super) health: Health,
    /// Links that are down, and both ends know.
    down: BTreeSet<usize>,
    /// What came to routers that stall.
    stalled: BTreeMap<usize, Vec<Came>>,
    /// Those that stall for no longer than goes unnoticed.
    hidden: BTreeSet<usize>,
    /// Packets that came to a port and were not shown: its ring was full, or its link down.
    pub(super) unseen: BTreeMap<LinkId, u64>,
    /// What customers heard, where they do something with it.
    pub(super) came_out: Option<Vec<(LinkId, Vec<u8>)>>,
    /// Wires of which an end began anew, and when: the other end has to hear of it first.
    pub(super) anew: BTreeMap<usize, Instant>,
    /// Wires of which an end ever began anew.
    pub(super) began_anew: BTreeSet<usize>,
    /// What pseudowires counted that are gone, by router, and the frames that waited in them for
    /// others when their circuit was another's.
    pub(super) gone: BTreeMap<usize, (PseudowireCounters, u64)>,
    /// Since when each router has called each path up.
    up_since: BTreeMap<(usize, PathKey), Instant>,
    /// When each end of a wire last sent.
    sent_at: BTreeMap<LinkId, Instant>,
    pub(super) events: Seen,
}

/// What comes to a router.
enum Came {
    Frame(LinkId, Vec<u8>),
    /// A link of its is up, or no longer.
    News(LinkId, bool),
}

/// What routers told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) downs: u64,
    pub(crate) to_backup: u64,
    pub(crate) to_primary: u64,
    pub(crate) began_anew: u64,
}

impl Network {
    /// All routers have started, and all links are up.
    pub(super) fn new(mut random: Random, wires: Vec<Wire>, faults: u64, times: Times) -> Self {
        let mut links = Links::new(random.fork(), faults);
        for port in (0..2 * LINKS.len() as u32).map(LinkId) {
            links.delays.insert(port, 50_000 + random.below(1_950_000));
        }
        let seed = random.next_u64();
        let mut network = Self {
            now: Instant(1),
            routers: (0..ROUTERS as u64).map(|at| Forwarder::new(seed ^ at)).collect(),
            links,
            customers: Customers::default(),
            oracle: Oracle::default(),
            health: Health::new(times),
            down: BTreeSet::new(),
            stalled: BTreeMap::new(),
            lent: LentFrames::default(),
            hidden: BTreeSet::new(),
            unseen: BTreeMap::new(),
            came_out: None,
            anew: BTreeMap::new(),
            began_anew: BTreeSet::new(),
            gone: BTreeMap::new(),
            up_since: BTreeMap::new(),
            sent_at: BTreeMap::new(),
            events: Seen::default(),
            wires,
            random,
        };
        for me in 0..ROUTERS {
            let router = &mut network.routers[me];
            orders::give(router, network.now, orders::all(me, &network.wires));
            orders::put_up(router, network.now, me, &network.wires);
        }
        network.look_at_paths();
        (0..ROUTERS).for_each(|me| network.pump(me));
        network
    }

    /// Links fail, in both directions or one, or none any more.
    pub(super) fn cut(&mut self, link: usize, ends: [bool; 2]) {
        for (end, is_cut) in (0..).zip(ends) {
            let port = LinkId(link as u32 * 2 + end);
            if is_cut {
                self.links.cut.insert(port)
            } else {
                self.links.cut.remove(&port)
            };
        }
        self.look_at_paths();
    }

    /// Both ends of a link are told that it is down, or up again.
    pub(super) fn tell(&mut self, link: usize, is_up: bool) {
        if is_up {
            self.down.remove(&link)
        } else {
            self.down.insert(link)
        };
        self.look_at_paths();
        for end in [0, 1] {
            let port = LinkId(link as u32 * 2 + end);
            self.comes(router_of(port), Came::News(port, is_up));
        }
    }

    /// A router stands still; nobody is to notice if it is for a moment.
    pub(super) fn stall(&mut self, me: usize, is_hidden: bool) {
        self.stalled.insert(me, Vec::new());
        if is_hidden {
            self.hidden.insert(me);
        }
        self.look_at_paths();
    }

    /// It runs again.
    pub(super) fn resume(&mut self, me: usize) {
        self.hidden.remove(&me);
        let came = self.stalled.remove(&me).unwrap_or_default();
        self.look_at_paths();
        for wire in self.wires.iter().filter(|wire| wire.is_protected) {
            for path in (0..2).filter(|path| wire.paths[*path].contains(&me)) {
                self.health.doubt(self.now, (wire.number, path));
            }
        }
        came.into_iter().for_each(|came| self.comes(me, came));
        self.routers[me].handle_timeout(self.now);
        self.pump(me);
    }

    /// A router that stalls is another one that knows nothing, and runs. What came to it is lost, and
    /// its counters are gone.
    pub(super) fn start_anew(&mut self, me: usize) {
        self.stalled.remove(&me);
        self.routers[me] = Forwarder::new(self.random.next_u64());
        orders::give(&mut self.routers[me], self.now, orders::all(me, &self.wires));
        orders::put_up(&mut self.routers[me], self.now, me, &self.wires);
        self.up_since.retain(|(router, _), _| *router != me);
        self.look_at_paths();
        for wire in self.wires.iter().filter(|wire| wire.ends().contains(&me)) {
            self.anew.insert(wire.number, self.now);
            self.began_anew.insert(wire.number);
            for path in [0, 1] {
                let failing = self.failing(wire.paths[path]);
                self.health.begin(self.now, (wire.number, path), failing);
            }
        }
        self.pump(me);
    }

    pub(super) fn is_stalled(&self, me: usize) -> bool {
        self.stalled.contains_key(&me)
    }

    /// The frames that wait in the ring of a port.
    pub(super) fn in_ring(&self, port: LinkId) -> u64 {
        let rings = self.stalled.values().flatten();
        rings.filter(|came| matches!(came, Came::Frame(its, _) if *its == port)).count() as u64
    }

    /// Something changed: which paths are whole, and what is on its way promises nothing.
    pub(super) fn look_at_paths(&mut self) {
        let since = Instant(self.now.0.saturating_sub(LIFE.as_nanos() as u64));
        self.oracle.excuse(since, None);
        for wire in self.wires.iter().filter(|wire| wire.is_protected) {
            for path in [0, 1] {
                let failing = self.failing(wire.paths[path]);
                self.health.set(self.now, (wire.number, path), failing);
            }
        }
    }

    /// A wire is this one from now on, which may go other ways. A second path that it had not begins.
    pub(super) fn set_wire(&mut self, wire: Wire) {
        let before = core::mem::replace(&mut self.wires[wire.number], wire);
        for path in [0, 1] {
            let (key, failing) = ((wire.number, path), self.failing(wire.paths[path]));
            match before.is_single && !wire.is_single && path == 1 {
                true => self.health.begin(self.now, key, failing),
                false => self.health.set(self.now, key, failing),
            }
        }
    }

    /// What of a path fails at present.
    pub(super) fn failing(&self, path: &[usize]) -> Failing {
        let stalls = |me: &usize| self.is_stalled(*me) && !self.hidden.contains(me);
        let [first, between @ .., last] = path else { unreachable!("a path has two ends") };
        let is_cut = |from: usize, to: usize| {
            let port = port(from, to);
            self.down.contains(&(port.0 as usize / 2)) || self.links.cut.contains(&port)
        };
        let stops = between.iter().any(stalls);
        let there = stops || path.windows(2).any(|hop| is_cut(hop[0], hop[1]));
        let back = stops || path.windows(2).any(|hop| is_cut(hop[1], hop[0]));
        Failing { directions: [there, back], ends: [first, last].map(stalls) }
    }

    /// A customer sends a frame.
    pub(super) fn send(&mut self, wire: usize, end: usize) {
        let frame = self.customers.make_any(&mut self.random);
        self.enter(wire, end, &frame);
    }

    pub(super) fn enter(&mut self, index: usize, end: usize, frame: &[u8]) {
        let wire = self.wires[index];
        let [from, to] = [wire.circuit(end), wire.circuit(1 - end)];
        let sequencing = wire.sequencing.unwrap_or(Sequencing::Off);
        self.oracle.sent(to, sequencing != Sequencing::Off, frame);
        // One that is overtaken is late, and may be lost; but no link alone keeps it for longer than
        // those that came before it wait.
        let keeps_all = match sequencing {
            Sequencing::Off => true,
            Sequencing::Drop => false,
            Sequencing::Reorder => wire.paths.iter().all(|path| path.len() == 2),
        };
        let before = self.sent_at.insert(from, self.now);
        if let Some(before) = before.filter(|before| !keeps_all && self.now.since(*before) <= LIFE)
        {
            self.oracle.excuse(before, Some(to));
        }
        let why = if wire.is_protected {
            self.health.promises(self.now, wire.number)
        } else {
            Some("nothing is wrong".to_owned())
        };
        let anew = self.anew.get(&wire.number);
        let is_known = anew.is_none_or(|at| self.now.since(*at) >= self.health.times.up_again);
        let runs = is_known && wire.ends().iter().all(|end| !self.is_stalled(*end));
        if let Some(why) = why.filter(|_| runs && self.hidden.is_empty()) {
            self.oracle.promise(self.now, to, frame, why);
        }
        self.comes(wire.ends()[end], Came::Frame(from, frame.to_vec()));
    }

    /// Something comes to a router.
    fn comes(&mut self, me: usize, came: Came) {
        match (self.stalled.get_mut(&me), came) {
            (None, Came::Frame(link, bytes)) => {
                let lent = self.lent.lend(bytes);
                let bytes = self.lent.get(lent);
                let frame = InFrame { lent: Some(lent), ..InFrame::new(link, None, bytes) };
                let kept = self.routers[me].receive(self.now, &frame);
                assert!(kept.is_none(), "no link is virtual");
                self.pump(me);
                self.lent.end_turn();
            }
            (None, Came::News(link, is_up)) => {
                let facts = is_up.then(|| orders::facts_of(link));
                self.routers[me].handle_link(self.now, link, facts);
                self.pump(me);
            }
            (Some(ring), Came::Frame(port, _)) if ring.len() >= RING_FRAMES => {
                *self.unseen.entry(port).or_default() += 1;
            }
            (Some(ring), came) => ring.push(came),
        }
    }

    /// What a router sends is on its way, and what it tells is looked at.
    pub(super) fn pump(&mut self, me: usize) {
        while let Some(mut batch) = self.routers[me].poll_batch() {
            batch.own_all(&mut self.lent);
            let frames = batch.to_frames(&Pages::new());
            self.routers[me].handle_sent(batch);
            for (port, bytes) in frames {
                if port >= circuit(0, 0) {
                    self.oracle.delivered(port, &bytes);
                    self.came_out.iter_mut().for_each(|came| came.push((port, bytes.clone())));
                } else if self.links.launch(self.now, port, &bytes, false) {
                    self.oracle.lost(&bytes);
                }
            }
        }
        while let Some((_, event)) = self.routers[me].poll_event() {
            if let Err(what) = self.judge(me, event) {
                let at = Duration::from_nanos(self.now.0);
                self.oracle.broke(format!("at {at:?} router {me}: {event:?}: {what}"));
            }
        }
    }

    /// What a router tells has a cause, and traffic moves to where it may.
    fn judge(&mut self, me: usize, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Up(id, way) => {
                let key = (id.0 as usize, way as usize);
                self.up_since.insert((me, key), now);
                if self.health.is_down(now, key) {
                    return Err(format!("has no cause: {}", self.health.tell(now, key.0)));
                }
            }
            Event::Down(id, way, _) => {
                self.events.downs += 1;
                let wire = id.0 as usize;
                self.up_since.remove(&(me, (wire, way as usize)));
                // A path that was taken away is not up any more.
                if self.has_path(me, wire, way) && !self.health.may_fail(now, (wire, way as usize))
                {
                    return Err(format!("has no cause: {}", self.health.tell(now, wire)));
                }
            }
            Event::Moved(id, way) => {
                let wire = id.0 as usize;
                let count = [&mut self.events.to_primary, &mut self.events.to_backup];
                *count[usize::from(way == Way::Backup)] += 1;
                return self.judge_move(me, wire, way);
            }
            Event::BeganAnew(id) => {
                self.events.began_anew += 1;
                if !self.began_anew.contains(&(id.0 as usize)) {
                    return Err("neither end did".to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_move(&mut self, me: usize, wire: usize, way: Way) -> Result<(), String> {
        let (now, health) = (self.now, &self.health);
        let (to, from) = ((wire, way as usize), (wire, 1 - way as usize));
        let up_since = self.up_since.get(&(me, to));
        if up_since.is_none() {
            return Err(format!("that path is not up: {}", health.tell(now, wire)));
        }
        if health.is_down(now, to) {
            return Err(format!("that path fails: {}", health.tell(now, wire)));
        }
        let has_waited = up_since.is_some_and(|since| now.since(*since) >= health.times.wait);
        let is_due = way == Way::Primary && has_waited;
        if !is_due && !health.may_fail(now, from) {
            return Err(format!("has no cause: {}", health.tell(now, wire)));
        }
        Ok(())
    }

    /// Whether a wire has this path at a router.
    fn has_path(&self, me: usize, wire: usize, way: Way) -> bool {
        let report = self.routers[me].report(self.now, R).expect("it was configured");
        let its = report.pseudowires.iter().find(|one| one.id.0 as usize == wire);
        its.is_some_and(|one| one.pseudowire.nhlfe_of(way).is_some())
    }

    /// Whether a router says that a path of a wire is up.
    pub(super) fn is_session_up(&self, me: usize, wire: usize, way: Way) -> bool {
        let report = self.routers[me].report(self.now, R).expect("it was configured");
        let its = report.pseudowires.iter().find(|one| one.id.0 as usize == wire);
        let session = its.and_then(|one| one.watch.as_ref()?.sessions[way as usize]);
        session.is_some_and(|session| session.status.state == bfd::SessionState::Up)
    }

    /// Time passes: what is on its way arrives, and routers do what is due.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.oracle.broken.is_none() {
            let runs = |(me, router): (usize, &Forwarder)| {
                if self.is_stalled(me) { None } else { router.poll_timeout() }
            };
            let due = self.routers.iter().enumerate().filter_map(runs).min();
            let first = self.links.next();
            let next = Instant::earliest(due, first).filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if first == Some(next) {
                let Flight { port, bytes, .. } = self.links.arrive().expect("it is the first");
                let is_down = !is_tunnels(port) && self.down.contains(&(port.0 as usize / 2));
                match is_down {
                    true => *self.unseen.entry(port).or_default() += 1,
                    false => self.comes(router_of(port), Came::Frame(port, bytes)),
                }
            }
            for me in 0..ROUTERS {
                let is_due = self.routers[me].poll_timeout().is_some_and(|at| at <= self.now);
                if is_due && !self.is_stalled(me) {
                    self.routers[me].handle_timeout(self.now);
                    self.pump(me);
                }
            }
        }
        self.now = self.now.max(until);
    }

    /// Customers send every now and then, for so long.
    pub(super) fn carry(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until && self.oracle.broken.is_none() {
            let wire = self.random.below(self.wires.len() as u64) as usize;
            let end = self.random.below(2) as usize;
            for _ in 0..1 + self.random.below(4) {
                self.send(wire, end);
                let gap = self.random.below(200_000);
                self.pass(Duration::from_nanos(gap));
            }
            let pause = Duration::from_micros(self.random.below(100_000));
            self.pass(pause.min(until.since(self.now)));
        }
    }

    /// A router is ordered again all that it has.
    pub(super) fn reload(&mut self, me: usize) {
        orders::give(&mut self.routers[me], self.now, orders::all(me, &self.wires));
        self.pump(me);
    }

    /// Nothing but messages about paths is on its way, and what had to arrive did.
    pub(super) fn settle(&mut self) {
        self.pass(2 * LIFE);
        self.oracle.settle(self.now);
    }
}
