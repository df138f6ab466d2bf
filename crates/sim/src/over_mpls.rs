//! AoE across a network: in place of a cable between clients and target lie routers, those of the
//! `mpls` crate as they run in production, and links between them that fail. What hosts send enters at
//! the circuit of their LAN and leaves at the circuit of the other one.
//!
//! What goes wrong, one thing after the other and now and then two at once: a link of the core is cut,
//! in silence or with a word, in one direction or both, or comes and goes; an LSR stands still with
//! frames in its ring, and sends them when it goes on; an edge's process dies, and another one begins
//! in its place; customers' frames are lost, overtaken, and come again seconds later. Configurations
//! are loaded again, and bottom labels change hands, meanwhile. Each is over after some seconds, so that
//! no request of a client may fail for it. Beside the clients there is another customer with the same
//! addresses ([`other`]), whose data would be seen here.
//!
//! Two things are more than numbers promise (docs/faults.md), and are not played. An edge that begins
//! takes what comes first, and who follows one does so, too: so it begins once nothing of before is on
//! its way, after a blink where nothing is kept for longer. And numbers are given at the edge: a frame
//! that a LAN held, or repeated, is one like others from there on, so where the LANs of the clients and
//! the target do that, no router stands still for so long that a frame lives for a second in all. Those
//! of the other customer, whose disk knows no copies, keep their order and repeat nothing.
//!
//! A circuit is a station on its LAN that hears all. Units: virtual nanoseconds. Errors: what the other
//! customer saw that must not be. Read `tables` first, then this.

mod links;
mod other;
mod tables;

use std::collections::{BTreeMap, VecDeque};

use block::{Instant, Random};
use contract::{InFrame, LentFrames, LinkId, VirtualLinks, counters};
use mpls::{Change, Event, Forwarder, Refused, Sequencing, Way};

use crate::client::SimWorld;
use crate::ethernet::untag;
use crate::memory::SimMemory;
use crate::over_aoe::mac_of;
use crate::run::{MILLISECOND, Run, TARGET};
use crate::seed::Plant;
use crate::setup::Lan;
use links::{LinkChances, Links};
use other::Other;
use tables::{CUSTOMERS, EDGES, LINKS, LSRS, R, ROUTERS, Wire};

/// As many frames wait for a router that stands still.
const RING_FRAMES: usize = 1000;
/// Bottom labels that customers have in turn: one more than there are customers.
const ROWS: usize = CUSTOMERS + 1;
/// Whoever waits for an answer has it within the first, if one path was whole for the second: BFD needs
/// four seconds to find that a path is up, and one to find that the other is not.
const ANSWER_MAX: u64 = 6_000 * MILLISECOND;
const WHOLE_MIN: u64 = 10_000 * MILLISECOND;
/// How long a thing goes wrong at most, and how long nothing does between two.
const TROUBLE_MAX: u64 = 4_000 * MILLISECOND;
/// How long a router stands still at most where LANs hold frames, each for [`LAN_HOLD_MAX_MS`] at most:
/// with both LANs and the core's delays that stays below a second.
const STALL_SHORT_MAX: u64 = 300 * MILLISECOND;
pub(crate) const LAN_HOLD_MAX_MS: u64 = 300;
/// How long an edge is away, if nothing is kept in the network for longer, and else: as long as a label
/// is nobody's, for the same reason.
const BLINK_MIN: u64 = 50 * MILLISECOND;
const BLINK_MAX: u64 = 2_000 * MILLISECOND;
const AWAY: u64 = tables::QUARANTINE.as_nanos() as u64;
const REST_MAX: u64 = 4_000 * MILLISECOND;

counters! {
    /// What the network did.
    pub struct Activity {
        /// Links of the core that were cut, told or not.
        cuts: Events,
        /// Times that a router stood still.
        stalls: Events,
        /// Times that an edge died, and another one began.
        restarts: Events,
        /// Times that a router was given its configuration again.
        reloads: Events,
        /// Times that a customer got other bottom labels.
        relabels: Events,
        /// Times that a label could not be given, since it was another's a moment ago.
        refusals: Events,
        /// Times that an end moved its frames to the backup.
        to_backup: Events,
        /// Times that it moved them back.
        to_primary: Events,
        /// Frames of customers that were late, so that no one got them.
        late: Frames,
        /// Frames with a label that is nobody's at present.
        quarantined: Frames,
        /// Frames that links of the core lost.
        lost: Frames,
        /// Frames of customers that the network sent again.
        copies: Frames,
        /// What the other customer was answered.
        other_done: Operations,
        /// What it sent again.
        other_again: Operations,
    }
}

/// What goes wrong, and is over at some moment.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Frames that leave by these ends of a link are lost.
    Cut(usize, [bool; 2]),
    /// Both ends know that the link is down.
    Down(usize),
    Stall(usize),
    /// An edge is away, and knows nothing when it is back.
    Away(usize),
}

/// What comes to a router.
#[derive(Debug)]
enum Came {
    Frame(LinkId, Vec<u8>),
    /// A link of its is up, or no longer.
    News(LinkId, bool),
}

/// The routers, what is on its way between them, and the other customer.
#[derive(Debug)]
pub(crate) struct Network {
    random: Random,
    routers: Vec<Forwarder>,
    /// The frame that a router is shown.
    lent: LentFrames<Vec<u8>>,
    links: Links,
    /// The station of each circuit.
    stations: BTreeMap<LinkId, usize>,
    wires: Vec<Wire>,
    /// What came to routers that stand still.
    stalled: BTreeMap<usize, VecDeque<Came>>,
    /// Edges that are not there.
    away: Vec<usize>,
    /// LANs hold frames, so that no router may for long.
    lans_hold: bool,
    /// When labels may change hands: an edge that began knows none that was another's a moment ago.
    relabels_from: u64,
    /// Links of which both ends know that they are down.
    down: Vec<usize>,
    /// What goes wrong at present, and until when.
    troubles: Vec<(u64, Trouble)>,
    next_trouble: u64,
    /// When each path was last not whole.
    broken_at: [u64; 2],
    healed: bool,
    /// An error is planted: the other customer's labels are given to the first one's edge.
    mixes_labels: bool,
    other: Other,
    alarmed_at: u64,
    did: Activity,
}

impl Network {
    /// Hangs the network between the LANs of hosts, and the other customer on LANs of his own.
    pub(crate) fn new(
        mut random: Random,
        world: &mut SimWorld,
        client: usize,
        lan: &Lan,
        plant: Option<Plant>,
    ) -> Network {
        let chances = LinkChances {
            lost: [0, 5, 20][random.below(3) as usize],
            overtaken: [0, 50][random.below(2) as usize],
            copied: [0, 20][random.below(2) as usize],
        };
        let wires = (0..CUSTOMERS).map(|customer| Wire {
            customer,
            primary: random.below(2) as usize,
            row: customer,
            sequencing: [Sequencing::Drop, Sequencing::Reorder][random.below(2) as usize],
        });
        let wires: Vec<Wire> = wires.collect();
        let mut stations = BTreeMap::new();
        for (customer, edge) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let circuit = tables::circuit(customer, edge);
            let station = world.plug_circuit(tables::lan(customer, edge), tables::facts(circuit));
            stations.insert(circuit, station);
        }
        let macs = [mac_of(client, 0), mac_of(TARGET, 0)];
        let at = |world: &mut SimWorld, edge: usize| {
            world.plug_station(tables::lan(1, edge), macs[edge])
        };
        let others = [at(world, 0), at(world, 1)];
        let seed = random.next_u64();
        let mut network = Network {
            routers: (0..ROUTERS as u64).map(|at| Forwarder::new(seed ^ at)).collect(),
            links: Links::new(random.fork(), chances, LINKS as u32 * 2),
            stations,
            wires,
            stalled: BTreeMap::new(),
            lent: LentFrames::default(),
            away: Vec::new(),
            lans_hold: lan.faults.held + lan.faults.repeated > 0,
            relabels_from: 0,
            down: Vec::new(),
            troubles: Vec::new(),
            next_trouble: world.now + 3_000 * MILLISECOND,
            broken_at: [world.now; 2],
            healed: false,
            mixes_labels: plant == Some(Plant::MixesLabels),
            other: Other::new(random.fork(), others, macs, lan.vlan),
            alarmed_at: 0,
            did: Activity::default(),
            random,
        };
        (0..ROUTERS).for_each(|router| network.begin_router(world, router));
        network
    }

    /// A router begins: it is given all that it has, and told of its links.
    fn begin_router(&mut self, world: &mut SimWorld, router: usize) {
        let now = world.instant();
        self.load(now, router);
        let is_down = |link: &LinkId| self.down.contains(&(link.0 as usize / 2));
        let up: Vec<LinkId> = tables::links_of(router).filter(|link| !is_down(link)).collect();
        for link in up {
            self.routers[router].handle_link(now, link, Some(tables::facts(link)));
        }
        self.pump(world, router);
    }

    /// A router is given all that it has.
    fn load(&mut self, now: Instant, router: usize) {
        for change in tables::all(router, &self.wires) {
            let what = format!("{change:?}");
            let done = self.routers[router].change(now, R, change);
            done.unwrap_or_else(|refused| panic!("{refused}: {what}"));
        }
    }

    /// Nothing goes wrong any more, and the other customer begins nothing new.
    pub(crate) fn heal(&mut self, world: &mut SimWorld) {
        self.healed = true;
        self.links.chances = LinkChances::default();
        // An edge is back when it is its time.
        let is_over = |(_, trouble): &mut (u64, Trouble)| !matches!(trouble, Trouble::Away(_));
        let over: Vec<_> = self.troubles.extract_if(.., is_over).collect();
        over.into_iter().for_each(|(_, trouble)| self.end(world, trouble));
        self.other.stop();
    }

    /// Whether the other customer waits for nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        self.other.is_quiet()
    }

    /// What the other customer waits for, in words.
    pub(crate) fn state(&self) -> String {
        self.other.customer.state()
    }

    /// What was done so far.
    pub(crate) fn did(&self, now: Instant) -> Activity {
        let mut did = self.did;
        did += self.routers.iter().map(|router| dropped_by(router, now)).sum();
        (did.lost, did.copies) = (self.links.lost, self.links.copies);
        (did.other_done, did.other_again) = (self.other.customer.done, self.other.customer.again);
        did
    }

    /// Does all that is due, and has itself woken for what comes next.
    pub(crate) fn drive(&mut self, world: &mut SimWorld) -> Result<(), String> {
        let circuits: Vec<(LinkId, usize)> = self.stations.iter().map(|(a, b)| (*a, *b)).collect();
        for (circuit, station) in circuits {
            while let Some(bytes) = world.receive_frame(station) {
                let (_, edge) = tables::of_circuit(circuit).expect("it is one");
                self.comes(world, EDGES[edge], Came::Frame(circuit, bytes));
            }
        }
        while let Some((port, bytes)) = self.links.arrive(world.now) {
            if !self.down.contains(&(port.0 as usize / 2)) {
                self.comes(world, tables::router_of(port), Came::Frame(port, bytes));
            }
        }
        for router in 0..ROUTERS {
            let is_due =
                self.routers[router].poll_timeout().is_some_and(|at| at <= world.instant());
            if is_due && self.runs(router) {
                self.routers[router].handle_timeout(world.instant());
                self.pump(world, router);
            }
        }
        self.disturb(world);
        self.other.drive(world)?;
        self.judge(world.now)?;
        let runs = |(router, it): (usize, &Forwarder)| {
            if self.runs(router) { it.poll_timeout() } else { None }
        };
        let due = self.routers.iter().enumerate().filter_map(runs).map(|at| at.0);
        let troubles = self.troubles.iter().map(|(until, _)| *until);
        let next = due.chain(troubles).chain(self.links.next()).chain(self.other.next());
        let next = next.chain((!self.healed).then_some(self.next_trouble)).min();
        if let Some(next) = next
            && (self.alarmed_at <= world.now || next < self.alarmed_at)
        {
            self.alarmed_at = next.max(world.now + 1);
            world.alarm_at(self.alarmed_at);
        }
        Ok(())
    }

    /// Who could be answered was.
    fn judge(&mut self, now: u64) -> Result<(), String> {
        for (_, trouble) in &self.troubles {
            let paths = match trouble {
                Trouble::Cut(link, _) | Trouble::Down(link) => &[tables::path_of(*link)][..],
                Trouble::Stall(router) => &[*router - LSRS[0]],
                Trouble::Away(_) => &[0, 1],
            };
            paths.iter().for_each(|path| self.broken_at[*path] = now);
        }
        let whole = self.broken_at.iter().position(|at| *at + WHOLE_MIN <= now);
        let since = self.other.customer.waits_since().map(|Instant(since)| since);
        let since = since.filter(|since| since + ANSWER_MAX <= now);
        match whole.zip(since) {
            Some((path, since)) => Err(format!(
                "the other customer has waited for an answer since {since}, and path {path} was whole: {}",
                self.other.customer.state()
            )),
            None => Ok(()),
        }
    }

    fn runs(&self, router: usize) -> bool {
        !self.stalled.contains_key(&router) && !self.away.contains(&router)
    }

    /// Something comes to a router.
    fn comes(&mut self, world: &mut SimWorld, router: usize, came: Came) {
        if self.away.contains(&router) {
            return;
        }
        match (self.stalled.get_mut(&router), came) {
            (Some(ring), Came::Frame(..)) if ring.len() >= RING_FRAMES => {}
            (Some(ring), came) => ring.push_back(came),
            (None, Came::Frame(link, bytes)) => {
                let (tag, bytes) = untag(bytes);
                let lent = self.lent.lend(bytes);
                let frame =
                    InFrame { lent: Some(lent), ..InFrame::new(link, tag, self.lent.get(lent)) };
                let inside = self.routers[router].receive(world.instant(), &frame);
                assert!(inside.is_none(), "no link is virtual");
                self.pump(world, router);
                self.lent.end_turn();
            }
            (None, Came::News(link, is_up)) => {
                let facts = is_up.then(|| tables::facts(link));
                self.routers[router].handle_link(world.instant(), link, facts);
                self.pump(world, router);
            }
        }
    }

    /// What a router sends is on its way, and what it tells is counted.
    fn pump(&mut self, world: &mut SimWorld, router: usize) {
        while let Some(mut batch) = self.routers[router].poll_batch() {
            batch.own_all(&mut self.lent);
            let frames = batch.to_frames(&SimMemory::default());
            self.routers[router].handle_sent(batch);
            for (link, bytes) in frames {
                match self.stations.get(&link) {
                    Some(station) => world.send_frame(*station, &bytes),
                    None => self.links.launch(world.now, link, bytes),
                }
            }
        }
        while let Some((_, event)) = self.routers[router].poll_event() {
            if let Event::Moved(id, way) = event {
                let numbers = [router as u64, id.0.into(), way as u64];
                world.trace.note(world.instant(), "frames take another path", &numbers);
                match way {
                    Way::Primary => self.did.to_primary += 1,
                    Way::Backup => self.did.to_backup += 1,
                }
            }
        }
    }

    /// Ends what has gone wrong for long enough, and lets the next thing go wrong.
    fn disturb(&mut self, world: &mut SimWorld) {
        let now = world.now;
        let over: Vec<(u64, Trouble)> =
            self.troubles.extract_if(.., |(until, _)| *until <= now).collect();
        over.into_iter().for_each(|(_, trouble)| self.end(world, trouble));
        if self.healed || self.next_trouble > now {
            return;
        }
        self.next_trouble = now + 1 + self.random.below(REST_MAX);
        match self.random.below(8) {
            0 => {
                let router = self.random.below(ROUTERS as u64) as usize;
                if self.runs(router) {
                    self.did.reloads += 1;
                    self.load(world.instant(), router);
                    self.pump(world, router);
                }
            }
            1 | 2 => self.relabel(world),
            // Where one goes on, both paths may fail at once.
            _ if self.troubles.len() < 2 => {
                if let Some(trouble) = self.draw() {
                    let until = now + 1 + self.draw_time(trouble);
                    self.troubles.push((until, trouble));
                    self.begin(world, trouble);
                }
            }
            _ => {}
        }
    }

    /// What goes wrong next; nothing, if that would keep frames of an edge's former life.
    fn draw(&mut self) -> Option<Trouble> {
        let link = self.random.below(LINKS as u64) as usize;
        let [edge, lsr] = [EDGES, LSRS].map(|some| some[self.random.below(2) as usize]);
        Some(match self.random.below(7) {
            0 => Trouble::Down(link),
            1 => Trouble::Cut(link, [true; 2]),
            2 => Trouble::Cut(link, [true, false]),
            3 => Trouble::Cut(link, [false, true]),
            4 if self.away.contains(&edge) => return None,
            4 => Trouble::Away(edge),
            _ if self.away.is_empty() => Trouble::Stall(lsr),
            _ => return None,
        })
    }

    /// How long that takes.
    fn draw_time(&mut self, trouble: Trouble) -> u64 {
        match trouble {
            Trouble::Away(_) if self.links.chances.copied > 0 || !self.stalled.is_empty() => AWAY,
            Trouble::Away(_) => BLINK_MIN + self.random.below(BLINK_MAX),
            Trouble::Stall(_) if self.lans_hold => self.random.below(STALL_SHORT_MAX),
            _ => self.random.below(TROUBLE_MAX),
        }
    }

    fn begin(&mut self, world: &mut SimWorld, trouble: Trouble) {
        match trouble {
            Trouble::Cut(link, cut) => {
                self.did.cuts += 1;
                world.trace.note(world.instant(), "cut", &[link as u64]);
                let cut = tables::ends(link).into_iter().zip(cut).filter(|(_, is_cut)| *is_cut);
                self.links.cut.extend(cut.map(|(port, _)| port));
            }
            Trouble::Down(link) => {
                self.did.cuts += 1;
                world.trace.note(world.instant(), "link of the core down", &[link as u64]);
                self.down.push(link);
                self.tell(world, link, false);
            }
            Trouble::Stall(router) => {
                self.did.stalls += 1;
                world.trace.note(world.instant(), "router stands still", &[router as u64]);
                self.stalled.entry(router).or_default();
            }
            Trouble::Away(edge) => {
                self.did.restarts += 1;
                world.trace.note(world.instant(), "edge dies", &[edge as u64]);
                self.away.push(edge);
            }
        }
    }

    fn end(&mut self, world: &mut SimWorld, trouble: Trouble) {
        match trouble {
            Trouble::Cut(link, _) => {
                tables::ends(link).iter().for_each(|port| {
                    self.links.cut.remove(port);
                });
            }
            Trouble::Down(link) => {
                self.down.retain(|down| *down != link);
                self.tell(world, link, true);
            }
            Trouble::Stall(router) => {
                world.trace.note(world.instant(), "router goes on", &[router as u64]);
                for came in self.stalled.remove(&router).into_iter().flatten() {
                    self.comes(world, router, came);
                }
                self.routers[router].handle_timeout(world.instant());
                self.pump(world, router);
            }
            Trouble::Away(edge) => {
                world.trace.note(world.instant(), "edge begins anew", &[edge as u64]);
                self.away.retain(|away| *away != edge);
                self.did += dropped_by(&self.routers[edge], world.instant());
                self.routers[edge] = Forwarder::new(self.random.next_u64());
                self.relabels_from = world.now + AWAY;
                self.begin_router(world, edge);
            }
        }
    }

    /// The routers at both ends of a link are told.
    fn tell(&mut self, world: &mut SimWorld, link: usize, is_up: bool) {
        for port in tables::ends(link) {
            self.comes(world, tables::router_of(port), Came::News(port, is_up));
        }
    }

    /// A customer gets other bottom labels at both ends, if neither is kept from him: it was the other
    /// customer's a moment ago. What is on its way with the old ones is lost.
    fn relabel(&mut self, world: &mut SimWorld) {
        if !self.away.is_empty() || world.now < self.relabels_from {
            return;
        }
        let customer = self.random.below(CUSTOMERS as u64) as usize;
        let is_taken = |row: &usize| self.wires.iter().any(|wire| wire.row == *row);
        let Some(row) = (0..ROWS).find(|row| !is_taken(row)) else { return };
        let before = self.wires[customer];
        let after = Wire { row, ..before };
        for (at, edge) in EDGES.into_iter().enumerate() {
            let change = Change::SetPseudowire(after.id(), after.end(edge));
            match self.routers[edge].change(world.instant(), R, change) {
                Ok(()) => self.pump(world, edge),
                Err(refused) => {
                    let is_kept = matches!(refused, Refused::Quarantined { .. });
                    assert!(is_kept && at == 0, "edge {edge}: {refused}");
                    self.did.refusals += 1;
                    return;
                }
            }
        }
        world.trace.note(world.instant(), "other labels", &[customer as u64, row as u64]);
        self.did.relabels += 1;
        self.wires[customer] = after;
        if core::mem::take(&mut self.mixes_labels) {
            let [mut first, second] = [0, 1].map(|of| self.wires[of].end(EDGES[0]));
            first.label_out = second.label_out;
            let change = Change::SetPseudowire(self.wires[0].id(), first);
            self.routers[EDGES[0]].change(world.instant(), R, change).expect("its own label");
        }
    }
}

/// What a router dropped since it began.
fn dropped_by(router: &Forwarder, now: Instant) -> Activity {
    let report = router.report(now, R).expect("it was configured");
    Activity {
        late: report.pseudowires.iter().map(|one| one.drops.late).sum(),
        quarantined: report.ports.iter().map(|port| port.drops.quarantined).sum(),
        ..Activity::default()
    }
}

impl Run {
    /// Puts the network between the LANs, if there is to be one.
    pub(crate) fn plug_network(&mut self) {
        let Some(lan) = self.setup.lan.as_ref().filter(|lan| lan.routed) else { return };
        let (client, random) = (self.clients[0].host, self.random.fork());
        self.world.ethernet.orderly_from = Some(tables::LANS_OF_OTHERS);
        self.network = Some(Network::new(random, &mut self.world, client, lan, self.plant));
    }

    /// Lets the network do what is its turn.
    pub(crate) fn drive_network(&mut self) -> Result<(), String> {
        self.network.as_mut().map_or(Ok(()), |network| network.drive(&mut self.world))
    }
}
