//! A run of routers between which pairs of paths are watched: each core link in turn fails, in each of
//! the ways in which one can, routers stall, and customers send meanwhile.
//!
//! Promised is: what is sent comes out, once a detection time has passed since a path failed, if the
//! other one is up; traffic moves to a path that is up, not without a cause, and back after the wait;
//! nobody is followed as one who began anew who did not; the ends agree about a path once they had
//! time to; a router that stalls for less than a detection time moves nothing; all counters add up; and
//! what holds of customers everywhere.

use core::time::Duration;

use block::Random;
use mpls::{Sequencing, Way};

use super::health::Times;
use super::oracle::Tally;
use super::orders::WATCH;
use super::running::{Network, Seen};
use super::topology::*;

/// Of which a run takes some.
const WIRES: [Wire; 6] = [
    protected(0, [&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], Sequencing::Drop),
    protected(1, [&[LER1, LSR2, LER2], &[LER1, LSR1, LER2]], Sequencing::Reorder),
    protected(2, [&[LER1, LSR1, LSR2, LER3], &[LER1, LSR2, LER2, LSR1, LER3]], Sequencing::Drop),
    protected(3, [&[LER2, LSR2, LER3], &[LER2, LSR1, LER3]], Sequencing::Off),
    protected(4, [&[LER1, LER3], &[LER1, LSR1, LER3]], Sequencing::Drop),
    protected(5, [&[LER1, LSR2, LER3], &[LER1, LER3]], Sequencing::Reorder),
];
const TAKEN: usize = 3;
const ROUNDS: u64 = 3;

/// What goes wrong at a link, or at a router beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nobody is told, and both directions or one fail.
    Silent([bool; 2]),
    /// Both ends of the link are told.
    Told,
    /// The link comes and goes.
    Flaps,
    /// A router stands still for less than a detection time, and for longer.
    Hiccup,
    Stalls,
    /// It stalls with very many frames of one customer, who sends no more.
    Buried,
}

const FAULTS: [Fault; 8] = [
    Fault::Silent([true; 2]),
    Fault::Silent([true, false]),
    Fault::Silent([false, true]),
    Fault::Told,
    Fault::Flaps,
    Fault::Hiccup,
    Fault::Stalls,
    Fault::Buried,
];

const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<(Tally, Seen), String> {
    let mut random = Random::new(seed);
    let faults = [0, 5, 30][random.below(3) as usize];
    let mut wires = WIRES.to_vec();
    while wires.len() > TAKEN {
        wires.swap_remove(random.below(wires.len() as u64) as usize);
    }
    let times = Times::new(faults > 0, WATCH.revert_after);
    let mut network = Network::new(random, wires, faults, times);
    network.pass(times.back());
    network.judge_calm(true);
    for round in 0..ROUNDS {
        // All links in turn, and of each all that can go wrong.
        let turn = seed * ROUNDS + round;
        let link = (turn % LINKS.len() as u64) as usize;
        let fault = FAULTS[(turn / LINKS.len() as u64 % FAULTS.len() as u64) as usize];
        network.round(link, fault);
    }
    network.carry(times.back());
    network.judge_calm(true);
    network.begin_anew();
    network.oracle.broken.map_or(Ok((network.oracle.tally, network.events)), Err)
}

impl Network {
    fn round(&mut self, link: usize, fault: Fault) {
        let router = LINKS[link][self.random.below(2) as usize];
        match fault {
            Fault::Flaps => self.flap(link),
            Fault::Hiccup => {
                self.stall(router, true);
                let time = self.random.below(240);
                self.carry(millis(time));
                self.resume(router);
            }
            Fault::Buried => self.bury(),
            fault => {
                self.begin(fault, link, router);
                self.carry_for([300, 1_000, 3_000, 7_000]);
                let reloaded = self.random.below(ROUTERS as u64) as usize;
                if !self.is_stalled(reloaded) {
                    self.reload(reloaded);
                }
                if self.random.chance(1, 3) {
                    self.fail_also(link, router);
                }
                self.judge_calm(false);
                self.end(fault, link, router);
            }
        }
        self.carry_for([500, 3_000, 6_000, 14_000]);
        self.judge_calm(false);
    }

    fn carry_for(&mut self, times: [u64; 4]) {
        let time = times[self.random.below(4) as usize];
        self.carry(millis(time));
    }

    fn begin(&mut self, fault: Fault, link: usize, router: usize) {
        match fault {
            Fault::Silent(ends) => self.cut(link, ends),
            Fault::Told => self.tell(link, false),
            _ => self.stall(router, false),
        }
    }

    fn end(&mut self, fault: Fault, link: usize, router: usize) {
        match fault {
            Fault::Silent(_) => self.cut(link, [false; 2]),
            Fault::Told => self.tell(link, true),
            _ => self.resume(router),
        }
    }

    /// Something else goes wrong while that does, elsewhere, and is over first.
    fn fail_also(&mut self, link: usize, router: usize) {
        let fault = [Fault::Silent([true; 2]), Fault::Told, Fault::Stalls];
        let fault = fault[self.random.below(3) as usize];
        let other = (link + 1 + self.random.below(LINKS.len() as u64 - 1) as usize) % LINKS.len();
        let another = (router + 1 + self.random.below(ROUTERS as u64 - 1) as usize) % ROUTERS;
        self.begin(fault, other, another);
        self.carry_for([300, 1_000, 3_000, 7_000]);
        self.judge_calm(false);
        self.end(fault, other, another);
        self.carry_for([300, 1_000, 3_000, 7_000]);
    }

    fn flap(&mut self, link: usize) {
        for _ in 0..2 + self.random.below(5) {
            let is_both = self.random.chance(3, 4);
            self.cut(link, [is_both, true]);
            let [gone, back] = [0, 0].map(|_| self.random.below(1_500));
            self.carry(millis(gone));
            self.cut(link, [false; 2]);
            self.carry(millis(back));
        }
    }

    /// At the end an edge is away, knows nothing when it comes back, and is followed once it is heard.
    fn begin_anew(&mut self) {
        let edge = [LER1, LER2, LER3][self.random.below(3) as usize];
        self.stall(edge, false);
        self.carry_for([100, 500, 3_000, 7_000]);
        let before = self.events.began_anew;
        self.start_anew(edge);
        let back = self.health.times.back();
        self.carry(back);
        self.settle();
        self.judge_paths(true);
        // Each of its other ends followed it once, though both of its paths tell.
        let followed = self.events.began_anew - before;
        let ends = self.wires.iter().filter(|wire| wire.ends().contains(&edge)).count() as u64;
        if followed > ends {
            let what = format!(
                "router {edge} began anew and was followed {followed} times by {ends} ends"
            );
            self.oracle.broke(what);
        }
    }

    /// A customer's burst is in the ring of a router that stalls; some more frames go around it, and
    /// then the router goes on.
    fn bury(&mut self) {
        let wire = self.random.below(self.wires.len() as u64) as usize;
        let end = self.random.below(2) as usize;
        let router = self.wires[wire].path_from(0, end)[1];
        self.stall(router, false);
        for _ in 0..self.random.below(300) {
            self.send(wire, end);
            self.pass(Duration::from_micros(20));
        }
        let time = 500 + self.random.below(3_000);
        self.pass(millis(time));
        for _ in 0..self.random.below(5) {
            self.send(wire, end);
            self.pass(millis(30));
        }
        self.resume(router);
    }

    /// Nothing changes at present: who had time to know, knows. `is_all_well`: and all is well.
    pub(super) fn judge_calm(&mut self, is_all_well: bool) {
        self.settle();
        if let Err(what) = self.check_balance() {
            self.oracle.broke(what);
        }
        self.judge_paths(is_all_well);
    }

    fn judge_paths(&mut self, is_all_well: bool) {
        let ends = self.wires.iter().flat_map(|wire| wire.ends().map(|end| (*wire, end)));
        let ends = ends.filter(|(_, me)| !self.is_stalled(*me));
        let broken = ends.filter_map(|(wire, me)| self.look_at(&wire, me, is_all_well).err());
        if let Some(what) = broken.collect::<Vec<_>>().first() {
            self.oracle.broke(what.clone());
        }
    }

    fn look_at(&self, wire: &Wire, me: usize, is_all_well: bool) -> Result<(), String> {
        let (now, health) = (self.now, &self.health);
        let told = || format!("router {me}, {}", health.tell(now, wire.number));
        for way in Way::BOTH {
            let key = (wire.number, way as usize);
            let is_up = self.is_session_up(me, wire.number, way);
            let must = health.is_up(now, key);
            if must != is_up && (must || health.is_down(now, key)) {
                return Err(format!("its {way} session is up: {is_up}: {}", told()));
            }
            if is_all_well && !must {
                return Err(format!("not all is well: {}", told()));
            }
        }
        let [primary, backup] = [0, 1].map(|path| (wire.number, path));
        let active = self.active(me, wire.number);
        let right = match () {
            () if health.is_whole_for(now, primary, health.times.back()) => Way::Primary,
            () if health.is_down(now, primary) && health.is_up(now, backup) => Way::Backup,
            () => active,
        };
        if active != right {
            return Err(format!("frames take the {active} path: {}", told()));
        }
        Ok(())
    }

    /// The path that a router's frames of a wire take.
    pub(super) fn active(&self, me: usize, wire: usize) -> Way {
        let report = self.routers[me].report(self.now, super::orders::R).expect("it is there");
        let its = report.pseudowires.iter().find(|one| one.id.0 as usize == wire);
        its.and_then(|one| one.watch.as_ref()).expect("it is watched").active
    }
}
