//! The run of a seed, from an empty world to a verdict: set up, trouble (`faults`), healing, and the last
//! look at every block (`ending`).
//!
//! It orders what a control thread would order, and tells the oracle what clients and raw hosts
//! did. A seed fails when a read returns what it must not, when a request is not answered although
//! the world has healed, when memory or requests are left over, when a raw host is answered what it
//! must not be, or when any assertion of the code under test fails.

use core::ops::RangeInclusive;

use block::{Failure, Outcome, Random, ShardId};
use contract::DiskId;
use shard::{Answer, Mail, News, Order, Settings, Shard};
use testkit::oracle::Oracle;
use volume::{Layout, Member};

use crate::client::{Simulated, VOLUME};
use crate::clients::{ClientState, PREPARES};
use crate::disk::{SECTOR, SimDisk};
use crate::faults::Plan;
use crate::fences::{Fences, Party, fencer_of};
use crate::over_aoe::{self, LanState};
use crate::over_iscsi::IscsiState;
use crate::over_mpls::Network;
use crate::over_nvme::{NvmeState, client_name};
use crate::paths::PathFaults;
use crate::scenario::Scenario;
use crate::seed::{Activity, Passed, Plant};
use crate::setup::{Fault, Setup};
use crate::trace::Trace;
use crate::world::{Planted, World};
use crate::writer::Log;

/// The target is the first host.
pub(crate) const TARGET: usize = 0;
pub(crate) const MILLISECOND: u64 = 1_000_000;
/// What is under way when the world has healed must end within so long: longer than every time
/// limit together.
pub(crate) const PATIENCE: u64 = 900_000 * MILLISECOND;

/// More than any seed needs.
pub(crate) const STEPS_MAX: u64 = 1_000_000;

/// An order to each shard of the target, of which some are not answered.
#[derive(Debug)]
pub(crate) struct Orders {
    numbers: RangeInclusive<u64>,
    left: usize,
}

impl Orders {
    /// An order was answered. Returns whether it was the last of these.
    pub(crate) fn answered(&mut self, number: u64) -> bool {
        let is_one = self.numbers.contains(&number);
        self.left -= usize::from(is_one);
        is_one && self.left == 0
    }
}

/// What the target is ordered once all that it was ordered before is answered, as a server does that
/// waits for each step: who exports has the volume on every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The exports of a start, and then its end.
    Start,
    /// The exports of a volume that was replugged.
    Exports,
    Complete,
}

/// What begins again some time after its end.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    Target,
    Client(usize),
    /// An export over AoE that went.
    Export,
    /// A shard of a client asks for a disk that was refused it.
    Import {
        client: usize,
        shard: usize,
    },
}

/// The state of a run.
pub(crate) struct Run {
    pub(crate) world: World<Simulated>,
    pub(crate) setup: Setup,
    pub(crate) oracle: Oracle,
    pub(crate) random: Random,
    pub(crate) healed: bool,
    /// Bytes of the volume now, and the layout's generation.
    pub(crate) size: u64,
    /// Orders to the target that were not answered.
    pub(crate) unanswered: u64,
    /// What it is ordered next.
    pub(crate) next: Option<Next>,
    /// Hosts are to be told of exports once all orders are answered.
    pub(crate) is_to_announce: bool,
    pub(crate) orders: u64,
    /// A removal of the volume under way.
    pub(crate) replug: Option<Orders>,
    /// A stop of the target under way.
    pub(crate) stop: Option<Orders>,
    pub(crate) paths: PathFaults,
    pub(crate) clients: Vec<ClientState>,
    pub(crate) next_fault: Plan,
    pub(crate) nvme: NvmeState,
    pub(crate) iscsi: IscsiState,
    pub(crate) lan: LanState,
    /// What lies between clients and target, if that is more than a cable.
    pub(crate) network: Option<Network>,
    /// What is in force of SCSI's reservations, where somebody changes them.
    pub(crate) fences: Option<Fences>,
    /// What begins again, and when.
    pub(crate) starts: Vec<(u64, Start)>,
    pub(crate) plant: Option<Plant>,
    /// What was done in lives that are over.
    pub(crate) did: Activity,
}

impl Run {
    pub(crate) fn new(
        seed: u64,
        scenario: &Scenario,
        plant: Option<Plant>,
        keep_lines: bool,
    ) -> Run {
        let mut random = Random::new(seed ^ 0x706c_6174_6577_6179);
        let setup = scenario.setup(&mut random);
        let mut world = World::new(random.fork(), setup.timing, Trace::new(keep_lines));
        world.planted = Planted {
            completes_twice: plant == Some(Plant::CompletesTwice),
            applies_late: plant == Some(Plant::AppliesLate),
        };
        world.add_host();
        let client_shards = u64::from(setup.client_shards);
        let clients = (0..setup.clients)
            .map(|index| {
                let first = index as u64 * client_shards + 1;
                ClientState::new(world.add_host(), setup.client_shards, first)
            })
            .collect();
        for disk in 0..setup.disks {
            let more = if setup.concat { u64::from(disk) * (20 << 10) } else { 0 };
            let mut made = SimDisk::new(setup.disk_size + more, setup.behaviour);
            made.drops_flushes = plant == Some(Plant::DropsFlush);
            made.serves_stale = plant == Some(Plant::ServesStale);
            world.hosts[TARGET].disks.insert(DiskId(disk), made);
        }
        let size = layout_of(&setup, &world).size().0;
        // Room for all that `grow` may add.
        let grown = 8 * setup.disk_size * u64::from(setup.disks);
        let most = if setup.faults[Fault::Grow] == 0 { size } else { size + grown };
        let visitors = setup.clients as u64 * client_shards;
        let nvme = NvmeState::new(&mut random, &setup, visitors);
        let iscsi = IscsiState::new(&mut random, &setup, visitors + setup.raw_hosts as u64);
        let fences = fencer_of(&mut random, &setup).map(Fences::new);
        let flushes_count = !setup.behaviour.lies;
        let oracle = Oracle::new(most / SECTOR as u64, flushes_count);
        let mut run = Run {
            world,
            setup,
            oracle,
            random,
            healed: false,
            size,
            unanswered: 0,
            next: None,
            is_to_announce: false,
            orders: 0,
            replug: None,
            stop: None,
            paths: PathFaults::default(),
            clients,
            next_fault: Plan::default(),
            nvme,
            iscsi,
            lan: LanState::default(),
            network: None,
            fences,
            starts: Vec::new(),
            plant,
            did: Activity::default(),
        };
        run.plug_lan();
        run.plug_network();
        run.plug_other();
        run
    }

    /// All of it, to its verdict.
    pub(crate) fn run(&mut self) -> Result<Passed, String> {
        self.start_target();
        for index in 0..self.clients.len() {
            self.start_client(index);
        }
        self.world.raw_news = true;
        let begin = self.world.now;
        let heal_at = begin + self.setup.trouble_ms * MILLISECOND;
        self.plan_faults();
        while self.world.now < heal_at {
            self.step()?;
            self.fault();
        }
        self.heal();
        self.finish(self.world.now + PATIENCE)?;
        self.let_news_spread()?;
        self.look_at_sizes()?;
        for index in 0..self.clients.len() {
            self.collect(self.clients[index].host);
        }
        self.look_at_everything()?;
        self.look_at_other()?;
        self.collect(TARGET);
        self.shut_down()?;
        Ok(Passed {
            hash: self.world.trace.hash(),
            steps: self.world.trace.steps(),
            checked: self.oracle.checked(),
            requests: self.did.counts.done
                + self.did.counts.failed
                + self.did.raw.answered
                + self.did.initiators.answered,
            did: self.did,
        })
    }

    /// Adds up what a host did in a life that is over.
    pub(crate) fn collect(&mut self, host: usize) {
        for node in &mut self.world.hosts[host].nodes {
            let report = node.machine.shard().report();
            self.did.counts.misbehaved += report.counters.misbehaved;
            self.did.nvme += report.protocols.nvme.sessions;
            self.did.iscsi += report.protocols.iscsi.sessions;
            let aoe = &report.protocols.aoe;
            self.did.aoe += over_aoe::Activity { target: aoe.counters, drops: aoe.drops };
            let direct = node.machine.direct;
            match node.machine.client() {
                Some(client) => {
                    self.did.counts.direct_out += direct;
                    self.did.counts.done += client.done;
                    self.did.counts.failed += client.failed;
                    self.did.counts.refused += client.refused;
                }
                None => self.did.counts.direct_in += direct,
            }
        }
        self.did.shards = self.setup.shards;
        self.did.client_shards = self.setup.client_shards;
        self.did.injected = self.world.injected;
        self.did.fates = self.world.ethernet.fates;
        let now = self.world.instant();
        self.did.network = self.network.as_ref().map(|it| it.did(now)).unwrap_or_default();
        self.did.raw = self.nvme.raw_hosts.iter().map(|raw| raw.actions).sum();
        self.did.initiators = self.iscsi.raw_hosts.iter().map(|raw| raw.actions).sum();
        self.did.fencer = self.fences.iter().map(|fences| fences.fencer.actions).sum();
    }

    pub(crate) fn step(&mut self) -> Result<(), String> {
        if self.world.trace.steps() > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} things happened: somebody runs in circles"));
        }
        let Some(turn) = self.world.step() else {
            return Err("nothing happens any more".to_owned());
        };
        self.check_path()?;
        if let Some((host, shard)) = turn {
            self.tell_oracle(host, shard)?;
            self.check_unsent(host, shard)?;
            self.check_sessions(host, shard)?;
        }
        if core::mem::take(&mut self.world.raw_news) {
            self.drive_raw_hosts()?;
            self.drive_fencer()?;
            self.drive_initiators()?;
            self.nvme.garbage.drive(&mut self.world, self.healed);
            self.drive_lan()?;
            self.drive_network()?;
            self.start_again();
        }
        self.read_control()
    }

    /// Something begins again after `delay`.
    pub(crate) fn start_after(&mut self, delay: u64, start: Start) {
        let at = self.world.now + delay;
        self.starts.push((at, start));
        self.world.alarm_at(at);
    }

    fn start_again(&mut self) {
        let now = self.world.now;
        let due: Vec<Start> =
            self.starts.extract_if(.., |(at, _)| *at <= now).map(|(_, start)| start).collect();
        for start in due {
            match start {
                Start::Target => self.start_target(),
                Start::Client(index) => self.start_client(index),
                Start::Export => self.export_again(),
                Start::Import { client, shard } => self.import(client, shard),
            }
        }
    }

    pub(crate) fn shard_settings(&mut self, shard: u16, shards: u16, pages: u32) -> Settings {
        Settings {
            shard: ShardId(shard),
            shards,
            pages,
            seed: self.random.next_u64(),
            secret: [7; 32],
        }
    }

    pub(crate) fn start_target(&mut self) {
        let now = self.world.instant();
        let shards = self.setup.shards;
        let machines = (0..shards)
            .map(|shard| {
                let settings = self.shard_settings(shard, shards, self.setup.pages);
                let mut made = Simulated::new(Shard::new(now, settings));
                made.forgets_holds = self.plant == Some(Plant::ForgetsHold);
                made.forgets_fences = self.plant == Some(Plant::ForgetsFence);
                self.prepare_lan(&mut made, TARGET);
                made
            })
            .collect();
        self.world.start(TARGET, machines);
        self.fences_restart();
        self.carry_virtual_links(TARGET);
        (self.unanswered, self.next) = (0, Some(Next::Start));
        (self.replug, self.stop) = (None, None);
        self.lan.forget_unexported();
        self.nvme.exports.restart(self.world.now);
        self.restore_paths();
        self.listen();
        self.name_hosts();
        for disk in 0..self.setup.disks {
            let disk = DiskId(disk);
            let facts = self.world.hosts[TARGET].disks[&disk].facts();
            self.order_all(|| Order::AddDisk { disk, facts: facts.clone() });
        }
        self.add_other();
        self.add_volume();
    }

    fn add_volume(&mut self) {
        let layout = layout_of(&self.setup, &self.world);
        self.size = layout.size().0;
        let reservation = self.lan.reservation.clone();
        self.order_all(|| Order::AddVolume {
            volume: VOLUME,
            layout: layout.clone(),
            reservation: reservation.clone(),
        });
    }

    /// Whether the volume is about to be exported as it is then.
    pub(crate) fn is_to_export(&self) -> bool {
        matches!(self.next, Some(Next::Start | Next::Exports))
    }

    /// All that was ordered is answered.
    fn order_next(&mut self) {
        match self.next.take() {
            Some(next @ (Next::Start | Next::Exports)) => {
                self.next = (next == Next::Start).then_some(Next::Complete);
                self.export();
                self.set_aoe_export();
                if self.healed {
                    // One that was to end meanwhile could not.
                    self.end_swaps();
                }
            }
            Some(Next::Complete) => self.order_all(|| Order::ConfigurationComplete),
            None if core::mem::take(&mut self.is_to_announce) => {
                let orders = self.next_orders();
                self.order_all(|| Order::AnnounceExports);
                self.nvme.exports.announced(orders);
            }
            None => {}
        }
    }

    pub(crate) fn order_all(&mut self, order: impl Fn() -> Order) {
        for shard in 0..self.world.hosts[TARGET].nodes.len() {
            let mail = self.next_order(order());
            self.world.order(TARGET, shard, mail);
        }
    }

    /// What [`order_all`](Self::order_all) orders next.
    pub(crate) fn next_orders(&self) -> Orders {
        self.orders_of(self.world.hosts[TARGET].nodes.len())
    }

    /// The next orders, so many.
    pub(crate) fn orders_of(&self, left: usize) -> Orders {
        Orders { numbers: self.orders + 1..=self.orders + left as u64, left }
    }

    pub(crate) fn next_order(&mut self, order: Order) -> Mail {
        self.orders += 1;
        self.unanswered += 1;
        Mail::Order { number: self.orders, order: Box::new(order) }
    }

    /// Takes what shards wrote to the control thread.
    fn read_control(&mut self) -> Result<(), String> {
        self.settle_stores(false);
        while let Some((from, mail)) = self.world.hosts[TARGET].control.pop_front() {
            if let Mail::News(news) = &mail
                && let News::Store { key, version, value } = &**news
            {
                self.store(from, *key, *version, value.clone());
            }
            if let Mail::News(news) = &mail
                && let News::Closed { peer, reason } = &**news
                && self.setup.is_strict()
                && self.setup.faults[Fault::Garbage] == 0
                && !self.setup.raw_greedy
                && !self.setup.initiators_greedy
            {
                return Err(format!("the target left {peer}, who did nothing wrong: {reason}"));
            }
            if let Mail::Answer { number, answer } = mail
                && number != PREPARES
            {
                assert!(!matches!(*answer, Answer::Refused(_)), "the target refused an order");
                self.unanswered -= 1;
                if self.unanswered == 0 {
                    self.world.hosts[TARGET].disks.values_mut().for_each(SimDisk::mended);
                    self.order_next();
                }
                self.nvme.exports.answered(self.world.now, number);
                self.swap_answered(number);
                self.unexport_answered(number);
                self.path_answered(number);
                if self.stop.as_mut().is_some_and(|orders| orders.answered(number)) {
                    self.stopped()?;
                    continue;
                }
                if self.replug.as_mut().is_some_and(|orders| orders.answered(number)) {
                    self.replug = None;
                    self.order_all(|| Order::ForgetVolume(VOLUME));
                    self.add_volume();
                    self.next.get_or_insert(Next::Exports);
                }
            }
        }
        self.read_clients_control()
    }

    /// Tells the oracle what a client did in its turn.
    pub(crate) fn tell_oracle(&mut self, host: usize, shard: usize) -> Result<(), String> {
        let node = self.world.hosts[host].nodes.get_mut(shard);
        let Some(mut client) = node.and_then(|node| node.machine.client()) else { return Ok(()) };
        let index = self.clients.iter().position(|client| client.host == host);
        let index = index.expect("a client");
        let (logs, last_failure) = (core::mem::take(&mut client.writer.log), client.last_failure);
        drop(client);
        let name = client_name(index);
        for log in logs {
            match log {
                Log::Read { start, end, .. } | Log::Changed { start, end }
                    if self.must_refuse(index, start, end) =>
                {
                    return Err(format!(
                        "client {index} was served from {start} to {end}, though it was shut out"
                    ));
                }
                _ if self.setup.is_aoe(index) => {}
                _ => self.nvme.exports.refuse(&name, &log)?,
            }
            let begun = log.begun();
            self.tell_of(Party::Client(index, shard), log)?;
            let fenced = self.lan.fenced.filter(|_| !self.setup.is_aoe(index));
            if let (Some(since), Some(write)) = (fenced, begun) {
                self.oracle.fence(since, write.id, write.first, write.count);
            }
        }
        match last_failure {
            // After a break a flush may fail, and what comes in parts then fails in part.
            Some(Outcome::Unknown(Failure::MediumWrite)) if !self.setup.is_strict() => Ok(()),
            // That was judged with what was refused.
            Some(
                Outcome::NotDone(Failure::MediumWrite)
                | Outcome::Unknown(
                    Failure::MediumWrite | Failure::WriteProtected | Failure::NotReady,
                ),
            ) if self.fences.is_some() => Ok(()),
            Some(outcome @ (Outcome::NotDone(Failure::TimedOut) | Outcome::Unknown(_)))
                if self.setup.is_prompt() && !self.may_be_ended(index) =>
            {
                Err(format!("a request ended {outcome:?} and had time enough"))
            }
            Some(outcome) if self.setup.is_strict() && !self.may_be_ended(index) => {
                Err(format!("a request ended {outcome:?} and nothing was wrong"))
            }
            _ => Ok(()),
        }
    }
}

/// The target's volume over its disks as they are.
pub(crate) fn layout_of(setup: &Setup, world: &World<Simulated>) -> Layout {
    let member = |(disk, found): (&DiskId, &SimDisk)| Member {
        disk: *disk,
        base: 0,
        length: found.facts().size.0,
    };
    let members: Vec<Member> =
        world.hosts[TARGET].disks.range(..DiskId(setup.disks)).map(member).collect();
    match members.len() {
        1 => Layout::single(members[0]),
        _ if setup.concat => Layout::concat(members).expect("a drawn concatenation is one"),
        _ => Layout::stripe(members, setup.chunk).expect("a drawn stripe is one"),
    }
}
