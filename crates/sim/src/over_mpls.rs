//! AoE across a network: in place of a cable between clients and target lie routers, those of the
//! `mpls` crate as they run in production, and links between them that fail. What hosts send enters at
//! the circuit of their LAN and leaves at the circuit of the other one.
//!
//! What goes wrong, one thing after the other and now and then two at once: a link of the core is cut,
//! in silence or with a word, in one direction or both, or comes and goes; an LSR stands still with
//! frames in its ring, and sends them when it goes on; customers' frames are lost, overtaken, and come
//! again seconds later. Configurations are loaded again, and bottom labels change hands, meanwhile.
//! Each is over after some seconds, so that no request of a client may fail for it. Beside the clients
//! there is another customer with the same addresses ([`other`]), whose data would be seen here.
//!
//! A circuit is a station on its LAN that hears all. Nothing is kept back by the LANs themselves: what
//! an Ethernet holds for a second may wait in front of a router that stands still, and be older than
//! what AoE reckons with (docs/faults.md). Units: virtual nanoseconds. Errors: what the other customer
//! saw that must not be. Read `tables` first, then this.

mod links;
mod other;
mod tables;

use std::collections::{BTreeMap, VecDeque};

use block::{Instant, Random};
use contract::{InFrame, LinkId, VirtualLinks, counters};
use mpls::{Change, Event, Forwarder, Refused, Sequencing, Way};

use crate::client::SimWorld;
use crate::ethernet::untag;
use crate::memory::SimMemory;
use crate::over_aoe::mac_of;
use crate::run::{MILLISECOND, Run, TARGET};
use crate::seed::Plant;
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
const REST_MAX: u64 = 4_000 * MILLISECOND;

counters! {
    /// What the network did.
    pub struct Activity {
        /// Links of the core that were cut, told or not.
        cuts: Events,
        /// Times that a router stood still.
        stalls: Events,
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
}

/// The routers, what is on its way between them, and the other customer.
#[derive(Debug)]
pub(crate) struct Network {
    random: Random,
    routers: Vec<Forwarder>,
    links: Links,
    /// The station of each circuit.
    stations: BTreeMap<LinkId, usize>,
    wires: Vec<Wire>,
    /// What came to routers that stand still.
    stalled: BTreeMap<usize, VecDeque<(LinkId, Vec<u8>)>>,
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
        vlan: Option<u16>,
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
            down: Vec::new(),
            troubles: Vec::new(),
            next_trouble: world.now + 3_000 * MILLISECOND,
            broken_at: [world.now; 2],
            healed: false,
            mixes_labels: plant == Some(Plant::MixesLabels),
            other: Other::new(random.fork(), others, macs, vlan),
            alarmed_at: 0,
            did: Activity::default(),
            random,
        };
        for router in 0..ROUTERS {
            network.load(world.instant(), router);
            for link in tables::links_of(router) {
                network.routers[router].handle_link(
                    world.instant(),
                    link,
                    Some(tables::facts(link)),
                );
            }
        }
        (0..ROUTERS).for_each(|router| network.pump(world, router));
        network
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
        for (_, trouble) in core::mem::take(&mut self.troubles) {
            self.end(world, trouble);
        }
        self.other.stop();
    }

    /// Whether the other customer waits for nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        self.other.is_quiet()
    }

    /// What the other customer waits for, in words.
    pub(crate) fn state(&self) -> String {
        self.other.state()
    }

    /// What was done so far.
    pub(crate) fn did(&self, now: Instant) -> Activity {
        let mut did = self.did;
        for router in &self.routers {
            let report = router.report(now, R).expect("it was configured");
            did.late += report.pseudowires.iter().map(|one| one.drops.late).sum::<u64>();
            did.quarantined += report.ports.iter().map(|port| port.drops.quarantined).sum::<u64>();
        }
        (did.lost, did.copies) = (self.links.lost, self.links.copies);
        (did.other_done, did.other_again) = (self.other.done, self.other.again);
        did
    }

    /// Does all that is due, and has itself woken for what comes next.
    pub(crate) fn drive(&mut self, world: &mut SimWorld) -> Result<(), String> {
        let circuits: Vec<(LinkId, usize)> = self.stations.iter().map(|(a, b)| (*a, *b)).collect();
        for (circuit, station) in circuits {
            while let Some(bytes) = world.receive_frame(station) {
                let (_, edge) = tables::of_circuit(circuit).expect("it is one");
                self.came(world, EDGES[edge], circuit, bytes);
            }
        }
        while let Some((port, bytes)) = self.links.arrive(world.now) {
            if !self.down.contains(&(port.0 as usize / 2)) {
                self.came(world, tables::router_of(port), port, bytes);
            }
        }
        for router in 0..ROUTERS {
            let is_due =
                self.routers[router].poll_timeout().is_some_and(|at| at <= world.instant());
            if is_due && !self.stalled.contains_key(&router) {
                self.routers[router].handle_timeout(world.instant());
                self.pump(world, router);
            }
        }
        self.disturb(world);
        self.other.drive(world)?;
        self.judge(world.now)?;
        let runs = |(router, it): (usize, &Forwarder)| {
            if self.stalled.contains_key(&router) { None } else { it.poll_timeout() }
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
            let path = match trouble {
                Trouble::Cut(link, _) | Trouble::Down(link) => tables::path_of(*link),
                Trouble::Stall(router) => *router - LSRS[0],
            };
            self.broken_at[path] = now;
        }
        let whole = self.broken_at.iter().position(|at| *at + WHOLE_MIN <= now);
        let since = self.other.waits_since().filter(|since| *since + ANSWER_MAX <= now);
        match whole.zip(since) {
            Some((path, since)) => Err(format!(
                "the other customer has waited for an answer since {since}, and path {path} was whole: {}",
                self.other.state()
            )),
            None => Ok(()),
        }
    }

    /// A frame comes to a router.
    fn came(&mut self, world: &mut SimWorld, router: usize, link: LinkId, bytes: Vec<u8>) {
        match self.stalled.get_mut(&router) {
            Some(ring) if ring.len() < RING_FRAMES => ring.push_back((link, bytes)),
            Some(_) => {}
            None => {
                let (tag, bytes) = untag(bytes);
                let frame = InFrame { link, tag, bytes: &bytes };
                let inside = self.routers[router].receive(world.instant(), frame);
                assert!(inside.is_none(), "no link is virtual");
                self.pump(world, router);
            }
        }
    }

    /// What a router sends is on its way, and what it tells is counted.
    fn pump(&mut self, world: &mut SimWorld, router: usize) {
        while let Some(batch) = self.routers[router].poll_batch() {
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
                if !self.stalled.contains_key(&router) {
                    self.did.reloads += 1;
                    self.load(world.instant(), router);
                    self.pump(world, router);
                }
            }
            1 | 2 => self.relabel(world),
            // Where one goes on, both paths may fail at once.
            _ if self.troubles.len() < 2 => {
                let trouble = self.draw();
                let until = now + 1 + self.random.below(TROUBLE_MAX);
                self.troubles.push((until, trouble));
                self.begin(world, trouble);
            }
            _ => {}
        }
    }

    fn draw(&mut self) -> Trouble {
        let link = self.random.below(LINKS as u64) as usize;
        match self.random.below(6) {
            0 => Trouble::Down(link),
            1 => Trouble::Cut(link, [true; 2]),
            2 => Trouble::Cut(link, [true, false]),
            3 => Trouble::Cut(link, [false, true]),
            _ => Trouble::Stall(LSRS[self.random.below(2) as usize]),
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
                for (link, bytes) in self.stalled.remove(&router).into_iter().flatten() {
                    self.came(world, router, link, bytes);
                }
                self.routers[router].handle_timeout(world.instant());
                self.pump(world, router);
            }
        }
    }

    /// The routers at both ends of a link are told.
    fn tell(&mut self, world: &mut SimWorld, link: usize, is_up: bool) {
        for port in tables::ends(link) {
            let router = tables::router_of(port);
            let facts = is_up.then(|| tables::facts(port));
            self.routers[router].handle_link(world.instant(), port, facts);
            self.pump(world, router);
        }
    }

    /// A customer gets other bottom labels at both ends, if neither is kept from him: it was the other
    /// customer's a moment ago. What is on its way with the old ones is lost.
    fn relabel(&mut self, world: &mut SimWorld) {
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

impl Run {
    /// Puts the network between the LANs, if there is to be one.
    pub(crate) fn plug_network(&mut self) {
        let Some(lan) = self.setup.lan.as_ref().filter(|lan| lan.routed) else { return };
        let (client, vlan) = (self.clients[0].host, lan.vlan);
        let random = self.random.fork();
        self.network = Some(Network::new(random, &mut self.world, client, vlan, self.plant));
    }

    /// Lets the network do what is its turn.
    pub(crate) fn drive_network(&mut self) -> Result<(), String> {
        self.network.as_mut().map_or(Ok(()), |network| network.drive(&mut self.world))
    }
}
