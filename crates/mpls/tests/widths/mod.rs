//! Two routers with two paths between them, each direction of which takes frames up to a width that
//! changes, and meanwhile loses, repeats and delays packets, answers to probes for minutes. A path whose
//! width changed goes down and comes up again, as one does that was led elsewhere, or stays up, as one does
//! of which a router far away goes around a link.
//!
//! Promised is: what is said to fit did fit while it was asked; once the network is well, what fits
//! is known to the byte; and frames do not take a path that is too narrow where the other one carries
//! them.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Instant, Random};
use contract::{InFrame, LinkFacts, LinkId, MacAddress, VirtualLinks};
use mpls::{
    Change, Core, Fec, Forwarder, Labels, NhlfeId, Origin, Path, PortKind, Proof, Pseudowire,
    PseudowireId, RouterId, Sequencing, Via, Watch, Way,
};
use testkit::Pages;
use wire::mpls::Label;
use wire::probe::{Probe, ProbeKind};

const R: RouterId = RouterId(0);
const P: PseudowireId = PseudowireId(0);
const CIRCUIT: LinkId = LinkId(10);
const WATCH: Watch =
    Watch { interval_us: 300_000, detect_mult: 3, revert_after: Duration::from_secs(5) };
/// Ethernet, a label, and a channel header.
const AROUND: usize = 14 + 4 + 4;
const PROMISED: u32 = 1514;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Longer than a search takes at its slowest.
const SEARCH_MAX: u64 = 40 * SECOND;
/// Longer than all that: the last one did not find all, the next one begins after a minute, traffic
/// moves back after the wait.
const CALM: u64 = 120 * SECOND;
const ROUNDS: u64 = 6;

/// What became of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Paths that were found to be too narrow, and not to be, once all was well.
    pub(crate) narrow: u64,
    pub(crate) whole: u64,
    /// Ends whose frames took the backup for the size of its frames alone.
    pub(crate) moved: u64,
    pub(crate) strays: u64,
}

/// A direction of a path: from which end, and which.
type Direction = (usize, usize);

struct World {
    now: Instant,
    random: Random,
    ends: [Forwarder; 2],
    flights: BTreeMap<(Instant, u64), (usize, LinkId, Vec<u8>)>,
    launched: u64,
    is_faulty: bool,
    is_cut: [bool; 2],
    /// Since when a direction has this width, and which it had before.
    widths: BTreeMap<Direction, (Instant, u32, u32)>,
    proofs: BTreeMap<Direction, Proof>,
    tally: Tally,
}

fn mac(end: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, end as u8])
}

fn port(way: usize) -> LinkId {
    LinkId(1 + way as u32)
}

fn end(number: usize, seed: u64) -> Forwarder {
    let mut it = Forwarder::new(seed);
    let label = Label::new(100).unwrap();
    let path = |way: usize| {
        let (port, mac) = (port(way), mac(1 - number));
        Path { port, via: Some(Via::Mac(mac)), labels: Labels::NONE, mtu: None, backup: None }
    };
    let traffic_classes = [0; 8];
    let pseudowire = Pseudowire {
        fec: Fec::all_of(CIRCUIT),
        label_in: label,
        label_out: label,
        origins: Way::BOTH
            .map(|way| Origin { port: port(way as usize), tunnel: None, way })
            .to_vec(),
        nhlfe: NhlfeId(0),
        backup: Some(NhlfeId(1)),
        control_word: Some(Sequencing::Drop),
        clamp: None,
    };
    for change in [
        Change::SetPort(port(0), PortKind::Core(Core::default())),
        Change::SetPort(port(1), PortKind::Core(Core::default())),
        Change::SetPort(CIRCUIT, PortKind::Circuit { traffic_classes, classifier: None }),
        Change::SetPath(NhlfeId(0), path(0)),
        Change::SetPath(NhlfeId(1), path(1)),
        Change::SetPseudowire(P, pseudowire),
        Change::SetWatch(P, Some(WATCH)),
    ] {
        it.change(Instant(1), R, change).unwrap();
    }
    for (link, mtu) in [(port(0), 1600), (port(1), 1600), (CIRCUIT, 1500)] {
        let MacAddress(mac) = mac(number);
        let facts = LinkFacts { mac, mtu, vlan: None, ring_frames: 64, is_shared: false };
        it.handle_link(Instant(1), link, Some(facts));
    }
    it
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<Tally, String> {
    let mut world = World {
        now: Instant(1),
        random: Random::new(seed),
        ends: [end(0, seed * 2), end(1, seed * 2 + 1)],
        flights: BTreeMap::new(),
        launched: 0,
        is_faulty: false,
        is_cut: [false; 2],
        widths: BTreeMap::new(),
        proofs: BTreeMap::new(),
        tally: Tally::default(),
    };
    for _ in 0..ROUNDS {
        world.change();
        world.is_faulty = world.random.chance(2, 3);
        world.pass(60 * SECOND)?;
        world.is_faulty = false;
        world.pass(CALM)?;
        world.judge()?;
    }
    for end in &world.ends {
        let report = end.report(world.now, R).unwrap();
        let probes = report.pseudowires[0].watch.as_ref().unwrap().probes;
        world.tally.strays += probes.probe_answers_stray;
    }
    Ok(world.tally)
}

impl World {
    /// Some paths are led elsewhere.
    fn change(&mut self) {
        for way in [0, 1] {
            if self.random.chance(1, 4) {
                continue;
            }
            self.is_cut[way] = self.random.chance(1, 2);
            for from in [0, 1] {
                let before = self.width((from, way));
                let width = match self.random.below(4) {
                    0 => 60 + self.random.below(1454) as u32,
                    1 => 1513,
                    _ => 1514 + self.random.below(100) as u32,
                };
                self.widths.insert((from, way), (self.now, width, before));
            }
        }
        let silence = self.now.0 + 3 * SECOND;
        while self.now.0 < silence {
            self.turn(Instant(silence));
        }
        self.is_cut = [false; 2];
    }

    fn width(&self, direction: Direction) -> u32 {
        self.widths.get(&direction).map_or(u32::MAX, |(_, width, _)| *width)
    }

    /// Lets so much time pass, and looks every now and then at what is said.
    fn pass(&mut self, time: u64) -> Result<(), String> {
        let until = self.now.0 + time;
        while self.now.0 < until {
            let next = (self.now.0 + 100 * MS).min(until);
            while self.now.0 < next {
                self.turn(Instant(next));
            }
            self.look()?;
        }
        Ok(())
    }

    /// Goes on to what comes next, but not beyond this moment.
    fn turn(&mut self, until: Instant) {
        (0..2).for_each(|from| self.send(from));
        let due = self.ends.iter().filter_map(VirtualLinks::poll_timeout).min();
        let first = self.flights.first_key_value().map(|((at, _), _)| *at);
        let next = Instant::earliest(due, first).filter(|at| *at <= until);
        self.now = self.now.max(next.unwrap_or(until));
        while let Some(((at, number), _)) = self.flights.first_key_value()
            && *at <= self.now
        {
            let (at, number) = (*at, *number);
            let (to, link, bytes) = self.flights.remove(&(at, number)).unwrap();
            let frame = InFrame::new(link, None, &bytes);
            assert!(self.ends[to].receive(self.now, &frame).is_none());
        }
        for end in &mut self.ends {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
            while end.poll_event().is_some() {}
        }
    }

    fn send(&mut self, from: usize) {
        while let Some(batch) = self.ends[from].poll_batch() {
            let frames = batch.to_frames(&Pages::new());
            self.ends[from].handle_sent(batch);
            for (link, bytes) in frames {
                let way = link.0 as usize - 1;
                let is_lost = self.is_faulty && self.random.chance(1, 50);
                let room = AROUND + self.width((from, way)).min(10_000) as usize;
                if self.is_cut[way] || is_lost || bytes.len() > room {
                    continue;
                }
                self.launch(1 - from, link, bytes, MS);
            }
        }
    }

    /// A packet is on its way, and if the network is not well it takes longer, or comes twice. An
    /// answer comes many times.
    fn launch(&mut self, to: usize, link: LinkId, bytes: Vec<u8>, delay: u64) {
        let probe = Probe::receive(&bytes[AROUND..]);
        let is_answer = probe.is_ok_and(|probe| probe.kind == ProbeKind::ANSWER);
        let mut delays = vec![delay];
        if self.is_faulty {
            delays[0] += self.random.below(30 * MS);
            let again = if self.random.chance(1, 10) { 1 } else { 0 };
            delays.extend((0..again).map(|_| self.random.below(60 * MS)));
            let late = if is_answer { 8 } else { 0 };
            delays.extend((0..late).map(|_| 2 * SEARCH_MAX + self.random.below(200 * SECOND)));
        }
        for delay in delays {
            self.launched += 1;
            let at = self.now + Duration::from_nanos(delay);
            self.flights.insert((at, self.launched), (to, link, bytes.clone()));
        }
    }

    /// What is said of paths that was not said before did fit a moment ago.
    fn look(&mut self) -> Result<(), String> {
        for (end, way) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let Some((_, proof)) = self.proof((end, way)) else { continue };
            let before = self.proofs.insert((end, way), proof);
            let fits = match proof {
                Proof::Nothing => continue,
                Proof::Whole => PROMISED,
                Proof::Only(fits) => fits,
            };
            let (since, width, old) =
                self.widths.get(&(end, way)).copied().unwrap_or((self.now, u32::MAX, u32::MAX));
            let was =
                if self.now.since(since) > Duration::from_nanos(SEARCH_MAX) { 0 } else { old };
            if before != Some(proof) && fits > width.max(was) {
                return Err(format!(
                    "end {end} says that path {way} carries {fits}, and it carries {width}"
                ));
            }
        }
        Ok(())
    }

    /// Which path an end's frames take, and what it says of one.
    fn proof(&self, (end, way): Direction) -> Option<(Way, Proof)> {
        let report = self.ends[end].report(self.now, R)?;
        let watch = report.pseudowires[0].watch.as_ref()?;
        Some((watch.active, watch.proofs[way]?.proof))
    }

    /// The network has been well for long enough.
    fn judge(&mut self) -> Result<(), String> {
        for end in [0, 1] {
            let wanted = [0, 1].map(|way| match self.width((end, way)) {
                PROMISED.. => Proof::Whole,
                width => Proof::Only(width),
            });
            let said = [0, 1].map(|way| self.proof((end, way)).map(|(_, proof)| proof));
            if said != wanted.map(Some) {
                return Err(format!("end {end}: {wanted:?} are the paths, it says {said:?}"));
            }
            self.tally.whole += wanted.iter().filter(|one| **one == Proof::Whole).count() as u64;
            self.tally.narrow += wanted.iter().filter(|one| **one != Proof::Whole).count() as u64;
            let active = self.proof((end, 0)).map(|(active, _)| active);
            let is_better = wanted[0] != Proof::Whole && wanted[1] == Proof::Whole;
            let right = if is_better { Way::Backup } else { Way::Primary };
            if active != Some(right) {
                return Err(format!("end {end}: {wanted:?} are the paths, it takes {active:?}"));
            }
            self.tally.moved += u64::from(is_better);
        }
        Ok(())
    }
}
