//! Target and initiators over an Ethernet that loses, repeats, delays and reorders, with processes that are killed and power that fails; and an oracle that
//! knows what each sector may hold. Everything is drawn from one seed.
//!
//! The oracle: a read may return a write that began before the read ended, unless another one that is known to be done began after it ended and was itself over before the
//! read began. So each sector is one register. A write that ended *unknown* or *not done*, or whose host was killed, may have happened, and
//! supersedes nothing; no more happens to it after its end.
//!
//! What is promised only within limits is played within them: frames live at most [`DELAY_MAX_MS`], hosts that write the same sectors are not
//! combined with kills of the target, which forgets what it carried out.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{
    Buffer, ByteCount, Completion, Extent, Failure, Instant, MachineId, Memory, Operation, Outcome,
    Pool, Random, Request, ShardId, Ticket, VolumeId,
};
use contract::suite::Pages;
use contract::{InFrame, LinkFacts, LinkId};
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

    fn start_target(&mut self) {
        let mut target = Target::new(MachineId(1), ShardId(0));
        let links: Vec<LinkId> = (0..LINKS).map(LinkId).collect();
        for link in &links {
            target.link_up(*link, self.facts(station(9, 0, *link), *link));
        }
        let size = ByteCount(SECTORS * 512);
        let mut export = Export::new(Address::new(7, 0), &links, VolumeId(0), size);
        export.uuid = [7; 16];
        export.cache_volatile = self.scenario.volatile;
        export.buffers = 16;
        let added = target.add_export(ExportId(0), export, Default::default(), &Default::default());
        assert_eq!(added, Ok(()));
        self.target = Some(target);
        self.life += 1;
        self.settle_target();
    }

    /// The process dies: what it asked of its disk happens or not; its memory is gone. With the power, what was not flushed may be gone, too.
    fn kill_target(&mut self) {
        let Some(target) = self.target.take() else { return };
        self.count_target(&target);
        self.life += 1;
        for request in core::mem::take(&mut self.below).into_iter().flatten() {
            if self.random.chance(1, 2) {
                self.apply(&request.operation);
            }
        }
        self.requests.clear();
        self.memory = Pages::default();
        self.pool = Pool::new(4096);
        if self.scenario.power_cuts && self.scenario.volatile {
            for sector in 0..SECTORS as usize {
                if self.random.chance(1, 2) {
                    self.held[sector] = self.durable[sector];
                }
                self.durable[sector] = self.held[sector];
            }
        }
    }

    fn start_host(&mut self, host: usize) {
        let window = self.scenario.window;
        let links: Vec<LinkId> = (0..LINKS).map(LinkId).collect();
        let mut settings = Settings::new(&links, Address::new(7, 0));
        settings.window = window;
        // The same tags in each life.
        let mut initiator = Initiator::new(self.now, settings, self.hosts[host].seed);
        for link in links {
            if !self.hosts[host].downs[link.0 as usize] {
                initiator.link_up(self.now, link, self.facts(station(1, host, link), link));
            }
        }
        let state = &mut self.hosts[host];
        state.initiator = Some(initiator);
        state.lives += 1;
        for _ in 0..6 {
            self.after_ms(0, 50, Event::Ask(host));
        }
        self.settle_host(host);
    }

    /// The host dies: its writes may have happened, and what of them is on the wire arrives or not before it comes again.
    fn kill_host(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let Some(initiator) = state.initiator.take() else { return };
        self.retransmitted += initiator.counters().retransmitted;
        state.memory = Pages::default();
    }

    /// What the dead host asked is over: nothing of it is on the wire any more.
    fn bury(&mut self, host: usize) {
        let now = self.now.0;
        for (_, asked) in core::mem::take(&mut self.hosts[host].asked) {
            self.end_write(&asked, now, false);
        }
    }

    fn count_target(&mut self, target: &Target) {
        let (counters, drops) = (target.counters(), target.drops());
        self.repeated += counters.repeated_answered + drops.repeated_superseded;
        self.repeated += drops.repeated_in_flight;
    }

    /// Puts a frame on the wire: it may be lost, come twice, and come late.
    fn carry(&mut self, make: impl Fn(Vec<u8>) -> Event, bytes: &[u8]) {
        let Scenario { lost, twice, late, .. } = self.scenario;
        if self.random.chance(lost, 1000) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(twice, 1000));
        for _ in 0..copies {
            let micros = match self.random.chance(late, 1000) {
                true => self.random.below(DELAY_MAX_MS * 1000),
                false => 20 + self.random.below(200),
            };
            self.at(self.now + Duration::from_micros(micros), make(bytes.to_vec()));
        }
    }

    fn with_target(&mut self, act: impl FnOnce(&mut Target, &mut Context<'_>)) {
        let mut ctx = Context {
            now: self.now,
            memory: &mut self.memory,
            pool: &mut self.pool,
            below: &mut self.requests,
        };
        if let Some(target) = &mut self.target {
            act(target, &mut ctx);
        }
    }

    fn settle_target(&mut self) {
        loop {
            self.with_target(|target, ctx| {
                if target.poll_timeout().is_some_and(|at| at <= ctx.now) {
                    target.handle_timeout(ctx.now);
                }
                target.settle(ctx);
            });
            for (_, request) in core::mem::take(&mut self.requests) {
                self.below.push(Some(request));
                let event = Event::Disk(self.life, self.below.len() - 1);
                self.after_ms(0, self.scenario.disk_ms, event);
            }
            let effect = self.target.as_mut().and_then(Target::poll_effect);
            let Some(TargetEffect::Send(batch)) = effect else { return };
            for (link, bytes) in batch.to_frames(&self.memory) {
                let to: [u8; 6] = bytes[..6].try_into().expect("6 bytes");
                for host in 0..HOSTS {
                    if to == [0xff; 6] || to == station(1, host, link) {
                        self.carry(|bytes| Event::ToHost(host, link, bytes), &bytes);
                    }
                }
            }
            self.with_target(|target, ctx| target.handle_sent(batch, ctx));
        }
    }

    fn settle_host(&mut self, host: usize) {
        loop {
            let now = self.now;
            let Host { initiator, downs, .. } = &mut self.hosts[host];
            let Some(initiator) = initiator else { return };
            if initiator.poll_timeout().is_some_and(|at| at <= now) {
                initiator.handle_timeout(now);
            }
            initiator.settle(now);
            let effect = initiator.poll_effect();
            let downs = *downs;
            while let Some(completion) = self.poll_completion(host) {
                self.completed(host, completion);
            }
            let Some(InitiatorEffect::Send(batch)) = effect else { return };
            for (link, bytes) in batch.to_frames(&self.hosts[host].memory) {
                assert!(bytes.len() <= self.scenario.mtus[link.0 as usize] as usize + 14);
                if !downs[link.0 as usize] {
                    self.carry(|bytes| Event::ToTarget(link, bytes), &bytes);
                }
            }
            if let Some(initiator) = &mut self.hosts[host].initiator {
                initiator.handle_sent(now, batch);
                while initiator.poll_news().is_some() {}
            }
        }
    }

    fn poll_completion(&mut self, host: usize) -> Option<Completion> {
        self.hosts[host].initiator.as_mut()?.poll_completion()
    }

    fn ask(&mut self, host: usize) {
        if self.hosts[host].left == 0 || self.hosts[host].initiator.is_none() {
            return;
        }
        let (from, to) = match self.scenario.shared {
            true => (0, SECTORS),
            false => {
                let part = SECTORS / HOSTS as u64;
                (host as u64 * part, (host as u64 + 1) * part)
            }
        };
        let first = from + self.random.below(to - from);
        let most = if self.random.chance(1, 3) { to - first } else { 3.min(to - first) };
        let count = 1 + self.random.below(most);
        let extent = Extent::new(first * 512, count * 512);
        let mut buffer = Buffer::reserved((count * 512) as u32, (first * 512 % 4096) as u32);
        let choice = self.random.below(10);
        let write = if choice < 5 { self.begin_write(first, count) } else { 0 };
        let state = &mut self.hosts[host];
        state.left -= 1;
        let operation = if write > 0 {
            let bytes: Vec<u8> =
                (first..first + count).flat_map(|sector| fill(write, sector)).collect();
            state.memory.write(&mut buffer, 0, &bytes);
            Operation::Write { extent, buffer, durable: choice == 0 }
        } else if choice == 9 {
            Operation::Flush
        } else {
            Operation::Read { extent, buffer }
        };
        let slot = state.next;
        state.next += 1;
        state.asked.insert(slot, Asked { extent, since: self.now.0, write });
        let generation = state.lives as u32;
        let ticket = Ticket { machine: MachineId(3), generation, slot, shard: ShardId(0) };
        if let Some(initiator) = &mut state.initiator {
            initiator.handle_request(self.now, Request { ticket, operation });
        }
        self.settle_host(host);
    }

    fn begin_write(&mut self, first: u64, count: u64) -> u64 {
        let number = self.next_write;
        self.next_write += 1;
        for sector in first..first + count {
            let write = Write { start: self.now.0, end: None, done: false };
            self.writes[sector as usize].push((number, write));
        }
        number
    }

    fn end_write(&mut self, asked: &Asked, now: u64, done: bool) {
        if asked.write == 0 {
            return;
        }
        for sector in asked.extent.offset.0 / 512..asked.extent.end().0 / 512 {
            let list = &mut self.writes[sector as usize];
            for (number, write) in list.iter_mut().rev() {
                if *number == asked.write {
                    (write.end, write.done) = (Some(now), done);
                    break;
                }
            }
        }
    }

    fn completed(&mut self, host: usize, completion: Completion) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        let state = &mut self.hosts[host];
        assert_eq!(u64::from(ticket.generation), state.lives, "an answer to another life");
        let asked = state.asked.remove(&ticket.slot).expect("it is answered once");
        let bytes = match (asked.write, buffer.is_empty() || buffer.is_reserved()) {
            (0, false) => state.memory.bytes(&buffer),
            _ => Vec::new(),
        };
        state.memory.release(buffer);
        let (now, name) = (
            self.now.0,
            match outcome {
                Outcome::Done => "done",
                Outcome::NotDone(Failure::TimedOut) => "timed out",
                Outcome::NotDone(_) => "not done",
                Outcome::Unknown(_) => "unknown",
                Outcome::Miscompare(_) => unreachable!("nothing is compared"),
            },
        );
        *self.outcomes.entry(name).or_default() += 1;
        self.end_write(&asked, now, outcome.is_done());
        if outcome.is_done() && asked.write == 0 {
            let first = asked.extent.offset.0 / 512;
            for (index, sector) in bytes.chunks_exact(512).enumerate() {
                let sector_number = first + index as u64;
                let number = number_of(sector, sector_number);
                self.check_read(sector_number, number, asked.since);
            }
        }
        self.after_ms(0, 20, Event::Ask(host));
    }

    /// Whether a read that began at `since` and ends now may return write `number`.
    fn check_read(&self, sector: u64, number: u64, since: u64) {
        let list = &self.writes[sector as usize];
        let seen = list.iter().find(|(other, _)| *other == number);
        let Some((_, seen)) = seen else {
            panic!(
                "seed {}: sector {sector} holds write {number}, which is of elsewhere",
                self.scenario.seed
            )
        };
        let Some(end) = seen.end else { return };
        for (other, write) in list {
            let supersedes =
                write.done && write.start > end && write.end.is_some_and(|end| end < since);
            assert!(
                !supersedes,
                "seed {}: at {} sector {sector} holds write {number} {seen:?}, superseded by {other} {write:?}",
                self.scenario.seed, self.now.0
            );
        }
    }

    /// Carries out a request of the target's disk.
    fn apply(&mut self, operation: &Operation) -> Option<Vec<u8>> {
        let sectors = |extent: &Extent| extent.offset.0 / 512..extent.end().0 / 512;
        match operation {
            Operation::Read { extent, .. } => Some(
                sectors(extent)
                    .flat_map(|sector| fill(self.held[sector as usize], sector))
                    .collect(),
            ),
            Operation::Write { extent, buffer, durable } => {
                let bytes = self.memory.bytes(buffer);
                for (index, sector) in sectors(extent).enumerate() {
                    let number = number_of(&bytes[index * 512..index * 512 + 512], sector);
                    self.held[sector as usize] = number;
                    if *durable || !self.scenario.volatile {
                        self.durable[sector as usize] = number;
                    }
                }
                None
            }
            Operation::Flush => {
                self.durable.clone_from(&self.held);
                None
            }
            other => panic!("the target asked for {}", other.name()),
        }
    }

    fn disk(&mut self, index: usize) {
        let Some(mut request) = self.below[index].take() else { return };
        let data = self.apply(&request.operation);
        if let (Operation::Read { buffer, .. }, Some(data)) = (&mut request.operation, data) {
            self.memory.write(buffer, 0, &data);
        }
        let completion = request.complete(Outcome::Done);
        self.with_target(|target, ctx| target.handle_completion(completion, ctx));
        self.settle_target();
    }

    /// A target that knows neither order nor copies, as there are some.
    fn plain(&mut self, link: LinkId, bytes: &[u8]) {
        let header = Header::parse(&bytes[14..]).expect("a whole header");
        let body = &bytes[24..];
        let own = Address::new(7, 0);
        let mut answer = [&bytes[6..12], &station(9, 0, link), &bytes[12..14]].concat();
        answer.extend(header.response(own).emit());
        if header.command == Command::CONFIG {
            let sectors = sectors_for_mtu(self.scenario.mtus[link.0 as usize]);
            answer.extend([0, 16, 0, 1, sectors, 0x10, 0, 0]);
        } else {
            let argument = AtaArgument::parse(body).expect("a whole argument");
            let done = AtaArgument { count: 0, command_status: 0x40, ..argument };
            answer.extend(done.emit());
            let sectors = argument.lba48()..argument.lba48() + u64::from(argument.count);
            match Opcode(argument.command_status) {
                Opcode::IDENTIFY_DEVICE => {
                    answer.extend(crate::export::identify(&[7; 16], SECTORS, false, 512).emit());
                }
                Opcode::READ_SECTORS_EXT => {
                    for sector in sectors {
                        answer.extend(fill(self.held[sector as usize], sector));
                    }
                }
                Opcode::WRITE_SECTORS_EXT => {
                    for (data, sector) in body[12..].chunks_exact(512).zip(sectors) {
                        self.held[sector as usize] = number_of(data, sector);
                    }
                }
                other => panic!("a plain target knows no {other}"),
            }
        }
        answer.resize(answer.len().max(60), 0);
        for host in 0..HOSTS {
            if answer[..6] == station(1, host, link) {
                self.carry(|bytes| Event::ToHost(host, link, bytes), &answer);
            }
        }
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
