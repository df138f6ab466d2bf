//! Target and initiators over an Ethernet that loses, repeats, delays and reorders, with processes that are killed and power that fails; and an oracle that
//! knows what each sector may hold. Everything is drawn from one seed.
//!
//! The oracle: a read may return a write that began before the read ended, unless another one that is known to be done began after it ended and was itself over before the
//! read began. So each sector is one register. A write that ended *unknown* or *not done*, or whose host was killed, may have happened, and
//! supersedes nothing; no more happens to it after its end.
//!
//! What is promised only within limits is played within them: frames live at most [`DELAY_MAX_MS`], hosts that write the same sectors are not
//! combined with kills of the target, which forgets what it carried out.

mod machines;
mod media;
mod oracle;

use core::time::Duration;
use std::collections::BTreeMap;

use block::{
    Buffer, ByteCount, Completion, Extent, Failure, Instant, MachineId, Memory, Operation, Outcome,
    Pool, Random, Request, ShardId, Ticket, VolumeId,
};
use contract::{InFrame, LinkFacts, LinkId};
use testkit::Pages;
use wire::aoe::{Address, AtaArgument, Command, Header, sectors_for_mtu};
use wire::ata::Opcode;

use crate::export::{Export, ExportId};
use crate::initiator::{Initiator, InitiatorEffect, Settings};
use crate::target::{Context, Target, TargetEffect};

const SECTORS: u64 = 96;
const HOSTS: usize = 2;
const LINKS: u32 = 2;
/// A frame is dead after so long. Copy, answer and disk together stay below the second that the target remembers.
const DELAY_MAX_MS: u64 = 250;
const DISK_MAX_MS: u64 = 60;

/// What a run does.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    seed: u64,
    /// Frames in a thousand that are lost, come twice, and are held back.
    lost: u64,
    twice: u64,
    late: u64,
    mtus: [u32; LINKS as usize],
    /// Whether hosts write the same sectors.
    shared: bool,
    volatile: bool,
    kills: bool,
    power_cuts: bool,
    host_kills: bool,
    link_faults: bool,
    requests: u32,
    window: u16,
    /// The longest that the disk takes.
    disk_ms: u64,
    /// The target is another one: it carries out each frame that comes, in whatever order its disk likes.
    plain: bool,
}

/// A write, as the oracle sees it. Number 0 are the zeros at the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Write {
    start: u64,
    /// When nothing more could happen to it.
    end: Option<u64>,
    done: bool,
}

/// What happens at a moment.
#[derive(Debug)]
enum Event {
    /// A frame reaches the target, or a host.
    ToTarget(LinkId, Vec<u8>),
    ToHost(usize, LinkId, Vec<u8>),
    /// The disk answers; of a target's life.
    Disk(u32, usize),
    /// The disk of a plain target carries out a frame.
    Plain(LinkId, Vec<u8>),
    /// A host asks for something more.
    Ask(usize),
    /// Somebody dies, and comes again.
    KillTarget,
    StartTarget,
    KillHost(usize),
    StartHost(usize),
    LinkDown(usize, LinkId),
    LinkUp(usize, LinkId),
}

/// A request of a host.
#[derive(Debug)]
struct Asked {
    extent: Extent,
    since: u64,
    /// The number of the write, or 0 for a read.
    write: u64,
}

struct Host {
    initiator: Option<Initiator>,
    memory: Pages,
    asked: BTreeMap<u32, Asked>,
    next: u32,
    seed: u64,
    lives: u64,
    left: u32,
    downs: [bool; LINKS as usize],
}

struct World {
    scenario: Scenario,
    random: Random,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    target: Option<Target>,
    life: u32,
    pool: Pool,
    memory: Pages,
    requests: Vec<(VolumeId, Request)>,
    below: Vec<Option<Request>>,
    /// What each sector holds: a write's number; and what a power cut would leave.
    held: Vec<u64>,
    durable: Vec<u64>,
    hosts: Vec<Host>,
    writes: Vec<Vec<(u64, Write)>>,
    next_write: u64,
    outcomes: BTreeMap<&'static str, u64>,
    /// What each machine counted, of all its lives.
    retransmitted: u64,
    repeated: u64,
}

fn station(kind: u8, host: usize, link: LinkId) -> [u8; 6] {
    [2, kind, 0, 0, host as u8, link.0 as u8]
}

/// A sector of a write: its number and place, over and over.
fn fill(number: u64, sector: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    if number > 0 {
        for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            let word = number << 24 | sector << 8 | at as u64;
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// The write that a sector is of; panics if it is torn or of another place.
fn number_of(bytes: &[u8], sector: u64) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let number = word >> 24;
    assert_eq!(bytes, fill(number, sector), "sector {sector} is torn or misplaced");
    number
}

impl World {
    fn new(scenario: Scenario) -> World {
        let mut random = Random::new(scenario.seed);
        let mut world = World {
            scenario,
            random: random.fork(),
            now: Instant(1_000_000_000),
            events: BTreeMap::new(),
            next_event: 0,
            target: None,
            life: 0,
            pool: Pool::new(4096),
            memory: Pages::default(),
            requests: Vec::new(),
            below: Vec::new(),
            held: vec![0; SECTORS as usize],
            durable: vec![0; SECTORS as usize],
            hosts: Vec::new(),
            writes: vec![vec![(0, Write { start: 0, end: Some(0), done: true })]; SECTORS as usize],
            next_write: 1,
            outcomes: BTreeMap::new(),
            retransmitted: 0,
            repeated: 0,
        };
        for host in 0..HOSTS {
            world.hosts.push(Host {
                initiator: None,
                memory: Pages::default(),
                asked: BTreeMap::new(),
                next: 0,
                seed: random.next_u64(),
                lives: 0,
                left: scenario.requests,
                downs: [false; LINKS as usize],
            });
            world.start_host(host);
        }
        world.start_target();
        if scenario.kills || scenario.power_cuts {
            world.after_ms(500, 4000, Event::KillTarget);
        }
        if scenario.host_kills {
            world.after_ms(500, 4000, Event::KillHost(0));
        }
        if scenario.link_faults {
            world.after_ms(200, 3000, Event::LinkDown(0, LinkId(0)));
        }
        world
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    fn after_ms(&mut self, least: u64, most: u64, event: Event) {
        let nanos = least * 1_000_000 + self.random.below((most - least).max(1) * 1_000_000);
        self.at(self.now + Duration::from_nanos(nanos), event);
    }

    fn facts(&self, mac: [u8; 6], link: LinkId) -> LinkFacts {
        let mtu = self.scenario.mtus[link.0 as usize];
        LinkFacts { mac, mtu, vlan: None, ring_frames: 64 }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToTarget(link, bytes) if self.scenario.plain => {
                self.after_ms(0, self.scenario.disk_ms, Event::Plain(link, bytes));
            }
            Event::Plain(link, bytes) => self.plain(link, &bytes),
            Event::ToTarget(link, bytes) => {
                let frame = InFrame { link, tag: None, bytes: &bytes };
                self.with_target(|target, ctx| target.handle_frame(frame, ctx));
                self.settle_target();
            }
            Event::ToHost(host, link, bytes) => {
                let now = self.now;
                let Host { initiator, memory, downs, .. } = &mut self.hosts[host];
                if let Some(initiator) = initiator
                    && !downs[link.0 as usize]
                {
                    initiator.handle_frame(now, InFrame { link, tag: None, bytes: &bytes }, memory);
                }
                self.settle_host(host);
            }
            Event::Disk(life, index) if life == self.life => self.disk(index),
            Event::Disk(..) => {}
            Event::Ask(host) => self.ask(host),
            Event::KillTarget => {
                self.kill_target();
                self.after_ms(10, 3000, Event::StartTarget);
            }
            Event::StartTarget => {
                self.start_target();
                if self.hosts.iter().any(|host| host.left > 0) {
                    self.after_ms(500, 6000, Event::KillTarget);
                }
            }
            Event::KillHost(host) => {
                self.kill_host(host);
                // Nothing of it is on the wire any more then, nor in the target.
                let rest = DELAY_MAX_MS + 20 * DISK_MAX_MS;
                self.after_ms(rest, rest + 500, Event::StartHost(host));
            }
            Event::StartHost(host) => {
                self.bury(host);
                self.start_host(host);
                if self.hosts[host].left > 0 {
                    self.after_ms(500, 5000, Event::KillHost(host));
                }
            }
            Event::LinkDown(host, link) => {
                let now = self.now;
                self.hosts[host].downs[link.0 as usize] = true;
                if let Some(initiator) = &mut self.hosts[host].initiator {
                    initiator.link_down(now, link);
                }
                self.settle_host(host);
                self.after_ms(50, 2000, Event::LinkUp(host, link));
            }
            Event::LinkUp(host, link) => {
                let (now, facts) = (self.now, self.facts(station(1, host, link), link));
                self.hosts[host].downs[link.0 as usize] = false;
                if let Some(initiator) = &mut self.hosts[host].initiator {
                    initiator.link_up(now, link, facts);
                }
                self.settle_host(host);
                if self.hosts[host].left > 0 {
                    let next = LinkId(self.random.below(LINKS.into()) as u32);
                    self.after_ms(200, 3000, Event::LinkDown(host, next));
                }
            }
        }
    }

    /// Lets time pass until nothing is left to do.
    fn run(&mut self) {
        for _ in 0..2_000_000 {
            let event = self.events.first_key_value().map(|(key, _)| key.0);
            let target = self.target.as_ref().and_then(Target::poll_timeout);
            let hosts: Vec<Option<Instant>> = self
                .hosts
                .iter()
                .map(|host| host.initiator.as_ref().and_then(Initiator::poll_timeout))
                .collect();
            let next = hosts.iter().copied().chain([event, target]).flatten().min();
            let Some(next) = next else { return };
            let is_idle = self.events.is_empty()
                && self.hosts.iter().all(|host| host.left == 0 && host.asked.is_empty());
            if is_idle {
                return;
            }
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.events.pop_first().expect("it was there");
                self.happen(event);
            }
            if target.is_some_and(|at| at <= self.now) {
                self.settle_target();
            }
            for (host, at) in hosts.iter().enumerate() {
                if at.is_some_and(|at| at <= self.now) {
                    self.settle_host(host);
                }
            }
        }
        panic!("seed {}: it never ends", self.scenario.seed);
    }

    /// All is answered and nothing is lost; then each sector is read once more.
    fn finish(&mut self) {
        let seed = self.scenario.seed;
        for host in &self.hosts {
            assert!(host.asked.is_empty(), "seed {seed}: {} requests unanswered", host.asked.len());
            assert_eq!(host.memory.held(), 0, "seed {seed}: pages of a host are lost");
        }
        if let Some(target) = self.target.take() {
            assert_eq!(target.in_flight(), 0, "seed {seed}: commands are stuck");
            self.count_target(&target);
        }
        assert_eq!((self.pool.used(), self.memory.held()), (0, 0), "seed {seed}: pages are lost");
        for sector in 0..SECTORS {
            self.check_read(sector, self.held[sector as usize], self.now.0);
            if self.scenario.volatile {
                self.check_read(sector, self.durable[sector as usize], self.now.0);
            }
        }
        for host in 0..HOSTS {
            self.kill_host(host);
        }
    }
}

fn play(scenario: Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world.finish();
    world
}

const CALM: Scenario = Scenario {
    seed: 0,
    lost: 0,
    twice: 0,
    late: 0,
    mtus: [9000, 1500],
    shared: true,
    volatile: false,
    kills: false,
    power_cuts: false,
    host_kills: false,
    link_faults: false,
    requests: 150,
    window: 6,
    disk_ms: 4,
    plain: false,
};

const WILD: Scenario =
    Scenario { lost: 30, twice: 30, late: 60, window: 12, disk_ms: DISK_MAX_MS, ..CALM };

fn seeds(count: u64, scenario: Scenario) -> BTreeMap<&'static str, u64> {
    let mut outcomes: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 1..=count {
        let world = play(Scenario { seed, ..scenario });
        for (name, number) in world.outcomes {
            *outcomes.entry(name).or_default() += number;
        }
        *outcomes.entry("retransmitted").or_default() += world.retransmitted;
        *outcomes.entry("repeated").or_default() += world.repeated;
    }
    outcomes
}

#[test]
fn a_calm_ethernet_loses_nothing_and_repeats_nothing() {
    let outcomes = seeds(20, CALM);
    assert_eq!(outcomes["done"], 20 * 2 * 150, "{outcomes:?}");
    assert_eq!((outcomes["retransmitted"], outcomes["repeated"]), (0, 0));
}

#[test]
fn frames_that_are_lost_repeated_and_late_change_nothing() {
    let outcomes = seeds(60, WILD);
    assert_eq!(outcomes["done"], 60 * 2 * 150, "{outcomes:?}");
    assert!(outcomes["retransmitted"] > 1000 && outcomes["repeated"] > 1000, "{outcomes:?}");
}

#[test]
fn what_is_answered_survives_kills_and_power_cuts_of_the_target() {
    for (volatile, power_cuts) in [(true, true), (true, false), (false, false)] {
        let shared = false;
        let outcomes = seeds(30, Scenario { volatile, power_cuts, shared, kills: true, ..WILD });
        assert!(outcomes["done"] > 30 * 2 * 140, "{outcomes:?}");
    }
}

#[test]
fn an_initiator_that_is_restarted_with_its_old_tags_is_heard() {
    let outcomes = seeds(40, Scenario { host_kills: true, ..WILD });
    assert!(outcomes["done"] > 40 * 250, "{outcomes:?}");
}

#[test]
fn links_that_come_and_go_lose_nothing_that_is_answered() {
    for mtus in [[9000, 1500], [1500, 9000], [1500, 1500]] {
        let outcomes = seeds(20, Scenario { link_faults: true, mtus, ..WILD });
        assert!(outcomes["done"] > 20 * 2 * 140, "{outcomes:?}");
    }
}

/// Without what our target does about order and copies, an initiator alone still keeps its own writes apart. (A network that repeats frames of its own accord would be more
/// than it can know.)
#[test]
fn an_initiator_keeps_its_writes_apart_at_any_target() {
    for link_faults in [false, true] {
        let (plain, shared, twice) = (true, false, 0);
        let outcomes = seeds(40, Scenario { plain, shared, twice, link_faults, ..WILD });
        assert!(outcomes["done"] > 40 * 2 * 140, "{outcomes:?}");
        assert!(outcomes["retransmitted"] > 500, "{outcomes:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let world = play(Scenario { seed: 99, volatile: true, host_kills: true, ..WILD });
        (world.now, world.next_event, world.held, world.outcomes)
    };
    assert_eq!(run(), run());
}
