//! One or two whole shards: hosts on up to four connections, disks that answer later and as they
//! like, mail that takes its time, a station that reserves a volume over AoE and releases it, and
//! orders of the control thread in the sequences that `apply` uses, all interleaved.
//!
//! Checked: hosts hear what they must (`plateway_fuzz::host`), each order is answered once by each
//! shard, nothing of a host is below, nor comes, once it was answered that a station has reserved
//! the volume, and after a drain no connection, request, page or letter is left.
#![no_main]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::limits::POOL_PAGES_MIN;
use block::{ByteCount, Instant, Operation, Request, ShardId, VolumeId};
use contract::{
    Cache, ConnectionId, DiskFacts, DiskId, Effect, Event, InFrame, LinkFacts, LinkId, ListenerId,
    Loss, Machine, Receive,
};
use libfuzzer_sys::fuzz_target;
use nvme::subsystem::{Hosts, Subsystem};
use plateway_fuzz::Choices;
use plateway_fuzz::content::{self, Pattern, WISHES, Wish};
use plateway_fuzz::host::{Host, SIZE, SUBSYSTEM, nqn, tamper};
use plateway_fuzz::target::{endpoint, namespace};
use reservation::{Change, Reservation, Value};
use shard::{Answer, AoeExport, Export, ExportKey, Mail, News, Order, Protocol, Settings, Shard};
use testkit::Pages;
use testkit::pipe::{Pipe, Shown};
use volume::{Layout, Member};
use wire::aoe::Address;
use wire::ethernet::MacAddress;

const LINKS: usize = 4;
/// Where the station finds volume 1.
const LINK: LinkId = LinkId(1);
const ADDRESS: Address = Address { shelf: 7, slot: 1 };
const AOE: aoe::ExportId = aoe::ExportId(1);
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PAUSES: [u64; 6] = [1, 100, 1_000, 2_500, 6_000, 61_000];

struct Node {
    shard: Shard,
    memory: Pages,
}

struct Link {
    shard: usize,
    id: ConnectionId,
    pipe: Pipe,
    host: Host,
}

/// What the control thread does next, one step on all shards at a time.
#[derive(Clone, Copy, Debug)]
enum Step {
    AddDisk(u32),
    RemoveDisk(u32),
    RenewDisk(u32),
    AddVolume(u32),
    Resize(u32, bool),
    Hold(u32),
    Forget(u32),
    /// Export these of the namespaces 1 and 2.
    Export(bool, bool, u64),
    Unexport,
    /// Show volume 1 to stations, or no more.
    Station(bool),
    Clear(u32),
    Complete,
    AddListener,
    RemoveListener,
    Report,
    Drain,
}

struct Play {
    now: Instant,
    nodes: Vec<Node>,
    links: Vec<Link>,
    held: Vec<(usize, DiskId, Request)>,
    mail: BTreeMap<(ShardId, usize), VecDeque<Mail>>,
    steps: VecDeque<Step>,
    /// Shards whose answer to the step under way is missing.
    missing: Vec<usize>,
    number: u64,
    /// Whether volume 1 or 2 is there, as the steps that were queued leave it.
    there: [bool; 2],
    controller: Option<u16>,
    /// The station's changes that are not answered, and the tag of the last.
    changes: BTreeSet<u32>,
    tag: u32,
    /// Whether a volume is freed by the order under way, which may fail.
    clears: bool,
    /// Whether volume 1 is surely reserved by the station.
    fenced: bool,
    tampered: bool,
    lease: bool,
    drained: bool,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let mut play = Play::new(way);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

/// Namespace 1 lies on disk 1, namespace 2 striped on disks 2 and 3.
fn layout(volume: u32, size: u64) -> Layout {
    let member = |disk: u32, length: u64| Member { disk: DiskId(disk), base: 0, length };
    match volume {
        1 => Layout::single(member(1, size)),
        _ => Layout::stripe(vec![member(2, size / 2), member(3, size / 2)], 65_536)
            .expect("two members make a stripe"),
    }
}

fn fill(pattern: Pattern, nsid: u32, offset: u64, bytes: &mut [u8]) {
    let layout = layout(nsid, SIZE);
    let mut at = 0;
    for piece in layout.pieces(block::Extent::new(offset, bytes.len() as u64)) {
        let end = at + piece.extent.length.0 as usize;
        content::fill(pattern, piece.disk.0, piece.extent.offset.0, &mut bytes[at..end]);
        at = end;
    }
}

fn facts(disk: u32) -> DiskFacts {
    DiskFacts {
        cache: if disk == 3 { Cache::None } else { Cache::Volatile },
        discards: disk != 2,
        ..DiskFacts::of_memory(block::ByteCount(SIZE))
    }
}

/// The reservation that a volume comes with: sometimes the station's.
fn stored(number: u64) -> Reservation {
    let list = (number % 4 == 3).then_some(STATION.0.into());
    let change = Change::ForceList { list: list.into_iter().collect() };
    Reservation::default().apply(&change).0.unwrap_or_default()
}

/// Whether a request reads or changes volume 1.
fn is_data(disk: DiskId, request: &Request) -> bool {
    disk == DiskId(1) && !matches!(request.operation, Operation::Flush)
}

impl Play {
    fn new(way: u8) -> Play {
        let shards = 1 + u16::from(way & 1);
        let pages = if way & 2 == 0 { POOL_PAGES_MIN } else { POOL_PAGES_MIN / 2 };
        let now = Instant(1_000_000);
        let node = |shard| {
            let settings =
                Settings { shard: ShardId(shard), shards, pages, seed: 1, secret: [7; 32] };
            Node { shard: Shard::new(now, settings), memory: Pages::default() }
        };
        let mut play = Play {
            now,
            nodes: (0..shards).map(node).collect(),
            links: Vec::new(),
            held: Vec::new(),
            mail: BTreeMap::new(),
            steps: VecDeque::new(),
            missing: Vec::new(),
            number: 0,
            there: [true; 2],
            controller: None,
            changes: BTreeSet::new(),
            tag: 0,
            clears: false,
            fenced: false,
            tampered: false,
            lease: way & 4 != 0,
            drained: false,
        };
        for shard in 0..play.nodes.len() {
            let facts =
                LinkFacts { mac: OWN.0, mtu: 1500, vlan: None, ring_frames: 64, is_shared: true };
            play.tell(shard, Event::LinkUp { link: LINK, facts });
        }
        play.steps.push_back(Step::AddListener);
        play.steps.extend([1, 2, 3].map(Step::AddDisk));
        play.steps.extend([1, 2].map(Step::AddVolume));
        play.steps.extend([Step::Export(true, true, SIZE), Step::Station(true), Step::Complete]);
        // Most inputs begin with all of it done; some find out what hosts see meanwhile.
        if way & 8 == 0 {
            while !play.steps.is_empty() || !play.missing.is_empty() {
                play.order();
                while play.deliver(0) {}
            }
        }
        play
    }

    fn act(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let link = usize::from(what >> 5) % self.links.len().max(1);
        match what & 0x1f {
            0 => self.accept(choices),
            1..=14 if self.links.is_empty() => self.accept(choices),
            1..=7 => {
                let link_ = &mut self.links[link];
                let bytes = link_.host.speak(choices, &fill);
                link_.pipe.coming.extend(bytes);
                if what & 1 == 1 {
                    self.arrive(link, usize::MAX);
                }
            }
            8 | 9 => {
                let most = if what & 1 == 0 { 1 << 20 } else { 4096 };
                let link = &mut self.links[link];
                let bytes = link.host.grant(most, &fill);
                link.pipe.coming.extend(bytes);
            }
            10 | 11 => drop(self.arrive(link, usize::from(choices.word()))),
            12 => drop(self.leave(link)),
            13 => self.lose(link),
            14 => drop(self.shut(link)),
            15..=18 => {
                let which = choices.below(self.held.len().max(1));
                let wish = choices.of(&WISHES);
                self.answer(which, wish);
            }
            19..=21 => {
                let which = choices.below(self.mail.len().max(1));
                self.deliver(which);
            }
            22 | 23 => self.order(),
            24 | 25 => self.plan(choices),
            26 => self.pass(Duration::from_millis(choices.of(&PAUSES))),
            27 if !self.links.is_empty() => {
                let link = &mut self.links[link];
                if tamper(&mut link.pipe.coming, choices) {
                    link.host.hostile = true;
                    self.tampered = true;
                }
            }
            28 | 29 => self.reserve(what & 1 == 0, choices),
            _ => drop(self.go_on()),
        }
    }

    /// The station reserves volume 1, or releases it, whoever has it.
    fn reserve(&mut self, takes: bool, choices: &mut Choices<'_>) {
        let shard = choices.below(self.nodes.len());
        self.tag += 1;
        let list = if takes { &STATION.0[..] } else { &[] };
        let body = [&[2, u8::from(takes)], list].concat();
        let message = testkit::aoe::request(ADDRESS, 3, self.tag, &body);
        let bytes = testkit::aoe::frame(OWN, STATION, None, &message);
        let taken = |play: &Play| play.nodes[shard].shard.report().protocols.aoe.counters.changes;
        let before = taken(self);
        let Node { shard: machine, memory } = &mut self.nodes[shard];
        machine.handle_frame(self.now, InFrame::new(LINK, None, &bytes), memory);
        if taken(self) > before {
            self.changes.insert(self.tag);
            self.fenced = false;
        }
        self.settle(shard);
    }

    fn is_clearing(&self) -> bool {
        self.clears && !self.missing.is_empty()
    }

    /// A frame for the station: if all that it changed is answered, it knows whose volume 1 is.
    fn heard(&mut self, bytes: &[u8]) {
        let tag = u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
        if bytes[19] == 3 && self.changes.remove(&tag) {
            let is_held = bytes[14] & 0x04 == 0 && bytes[25] > 0;
            self.fenced = is_held && self.changes.is_empty() && !self.is_clearing();
            let below = self.held.iter().find(|(_, disk, request)| is_data(*disk, request));
            assert!(!self.fenced || below.is_none(), "reserved, and below is {below:?}");
        }
    }

    /// Queues one of the sequences of `apply`.
    fn plan(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let (one, two) = (self.there[0], self.there[1]);
        let volume = 1 + u32::from(what >> 7);
        let there = self.there[volume as usize - 1];
        let steps: Vec<Step> = match what % 11 {
            0 | 1 if there => {
                self.there[volume as usize - 1] = false;
                let disks = if volume == 1 { vec![1] } else { vec![2, 3] };
                let mut steps = vec![Step::Export(self.there[0], self.there[1], SIZE)];
                steps.extend((volume == 1).then_some(Step::Station(false)));
                steps.extend([Step::Hold(volume), Step::Forget(volume)]);
                steps.extend(disks.into_iter().map(Step::RemoveDisk));
                steps
            }
            0..=2 if !there => {
                self.there[volume as usize - 1] = true;
                let disks = if volume == 1 { vec![1] } else { vec![2, 3] };
                let mut steps: Vec<Step> = disks.into_iter().map(Step::AddDisk).collect();
                steps.push(Step::AddVolume(volume));
                steps.push(Step::Export(self.there[0], self.there[1], SIZE));
                steps.extend((volume == 1).then_some(Step::Station(true)));
                steps
            }
            3 if there => vec![Step::Export(one, two, SIZE / 2), Step::Resize(volume, true)],
            4 if there => vec![Step::Resize(volume, false), Step::Export(one, two, SIZE)],
            5 => vec![Step::Unexport],
            6 => vec![Step::Export(one, two, SIZE)],
            7 => vec![Step::RemoveListener, Step::AddListener],
            8 if one => vec![Step::RenewDisk(1)],
            9 => vec![Step::Clear(volume)],
            _ => vec![Step::Report],
        };
        self.steps.extend(steps);
    }

    /// Sends the next order to all shards, if all have answered the last.
    fn order(&mut self) {
        if !self.missing.is_empty() {
            return;
        }
        let Some(step) = self.steps.pop_front() else { return };
        self.number += 1;
        self.clears = matches!(step, Step::Clear(_));
        self.fenced &= !matches!(step, Step::Clear(1) | Step::Forget(1));
        for shard in 0..self.nodes.len() {
            let order = match step {
                Step::AddDisk(disk) => Order::AddDisk { disk: DiskId(disk), facts: facts(disk) },
                Step::RenewDisk(disk) => {
                    Order::RenewDisk { disk: DiskId(disk), facts: facts(disk) }
                }
                Step::RemoveDisk(disk) => Order::RemoveDisk(DiskId(disk)),
                Step::AddVolume(volume) => Order::AddVolume {
                    volume: VolumeId(volume),
                    layout: layout(volume, SIZE),
                    reservation: stored(self.number),
                },
                Step::Resize(volume, half) => Order::ResizeVolume {
                    volume: VolumeId(volume),
                    layout: layout(volume, if half { SIZE / 2 } else { SIZE }),
                },
                Step::Hold(volume) => Order::QuiesceVolume(VolumeId(volume)),
                Step::Forget(volume) => Order::ForgetVolume(VolumeId(volume)),
                Step::Export(one, two, size) => {
                    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), Hosts::Any);
                    for (nsid, there) in [(1, one), (2, two)] {
                        if there {
                            subsystem = subsystem.with_namespace(namespace(nsid, size));
                        }
                    }
                    Order::SetExport(Export::Nvme(Box::new(subsystem)))
                }
                Step::Unexport => Order::RemoveExport(ExportKey::Nvme(nqn(SUBSYSTEM))),
                Step::Station(true) => {
                    let export = aoe::Export::new(ADDRESS, &[LINK], VolumeId(1), ByteCount(SIZE));
                    let export = AoeExport { id: AOE, export, control: Default::default() };
                    Order::SetExport(Export::Aoe(Box::new(export)))
                }
                Step::Station(false) => Order::RemoveExport(ExportKey::Aoe(AOE)),
                Step::Clear(volume) => Order::ClearReservation(VolumeId(volume)),
                Step::Complete => Order::ConfigurationComplete,
                Step::AddListener => Order::AddListener {
                    listener: ListenerId(0),
                    listening: Protocol::NvmeTcp.into(),
                },
                Step::RemoveListener => Order::RemoveListener(ListenerId(0)),
                Step::Report => Order::Report,
                Step::Drain => {
                    self.drained = true;
                    Order::Drain
                }
            };
            self.missing.push(shard);
            let mail = Mail::Order { number: self.number, order: Box::new(order) };
            self.mail.entry((ShardId::CONTROL, shard)).or_default().push_back(mail);
        }
    }

    fn accept(&mut self, choices: &mut Choices<'_>) {
        if self.links.len() == LINKS {
            return;
        }
        let way = choices.byte();
        let queue = if self.controller.is_none() { 0 } else { u16::from(way & 3) };
        let controller = match queue {
            0 => 0xffff,
            _ => self.controller.unwrap_or(0xffff),
        };
        let shard = usize::from(way >> 7) % self.nodes.len();
        let id = ConnectionId { slot: self.links.len() as u32, generation: 1 };
        let host = Host::new(queue, controller);
        self.links.push(Link { shard, id, pipe: Pipe::default(), host });
        self.tell(shard, Event::Accepted { connection: id, endpoint: endpoint() });
    }

    fn tell(&mut self, shard: usize, event: Event<Mail>) {
        let node = &mut self.nodes[shard];
        node.shard.handle_event(self.now, event, &mut node.memory);
        self.settle(shard);
    }

    fn settle(&mut self, shard: usize) {
        let node = &mut self.nodes[shard];
        node.shard.settle(self.now, &mut node.memory);
        let mut asks = Vec::new();
        node.shard.take_requests(&mut asks);
        for (disk, request) in asks {
            assert_eq!(request.ticket.shard.index(), shard, "whoever asks is told");
            let is_fenced = self.fenced && is_data(disk, &request);
            assert!(!is_fenced, "reserved, and below comes {request:?}");
            self.held.push((shard, disk, request));
        }
        let mut left = Vec::new();
        while let Some(effect) = self.nodes[shard].shard.poll_effect() {
            match effect {
                Effect::Send { connection, batch } => self.link(connection).pipe.send(batch),
                Effect::Resume { connection } => self.link(connection).pipe.resume(),
                Effect::Close { connection, after_send } => {
                    self.link(connection).pipe.end(after_send);
                }
                Effect::Connect { .. } => panic!("nothing is imported"),
                Effect::SendFrames { token, mut batch } => {
                    for (_, bytes) in batch.to_frames(&self.nodes[shard].memory) {
                        self.heard(&bytes);
                    }
                    batch.frames.clear();
                    left.push(Event::FramesSent { token, batch });
                }
                Effect::Mail { to, mail } if to == ShardId::CONTROL => self.answered(shard, mail),
                Effect::Mail { to, mail } => {
                    assert_ne!(to.index(), shard, "a shard writes to itself");
                    let from = ShardId(shard as u16);
                    self.mail.entry((from, to.index())).or_default().push_back(mail);
                }
            }
        }
        for event in left {
            self.tell(shard, event);
        }
        let timeout = self.nodes[shard].shard.poll_timeout();
        assert!(timeout != Some(Instant::ZERO), "something waits for a settle that just was");
    }

    fn link(&mut self, connection: ConnectionId) -> &mut Link {
        self.links.iter_mut().find(|link| link.id == connection).expect("it is there")
    }

    fn answered(&mut self, shard: usize, mail: Mail) {
        match mail {
            Mail::Answer { number, answer } => {
                assert_eq!(number, self.number, "an answer to another order");
                let is_refused = matches!(*answer, Answer::Refused(_));
                assert!(!is_refused || self.clears, "{answer:?}");
                let at = self.missing.iter().position(|missing| *missing == shard);
                self.missing.remove(at.expect("an order is answered once"));
            }
            Mail::News(news) => {
                if let News::Store { key, version, .. } = *news {
                    let mail = Mail::Stored { key, version, stored: version % 5 != 4 };
                    self.mail.entry((ShardId::CONTROL, shard)).or_default().push_back(mail);
                }
            }
            other => panic!("{other:?} for the control thread"),
        }
    }

    fn arrive(&mut self, link: usize, count: usize) -> bool {
        let Link { shard, id, pipe, .. } = &mut self.links[link];
        let (now, id, shard) = (self.now, *id, *shard);
        let Node { shard: machine, memory } = &mut self.nodes[shard];
        let moved = pipe.come(count, memory, |shown, memory| match shown {
            Shown::Bytes(bytes) => machine.handle_received(now, id, bytes, memory),
            Shown::Direct(direct) => {
                let next = machine.handle_direct(now, id, direct, memory);
                Receive { consumed: 0, next }
            }
        });
        self.settle(shard);
        moved
    }

    fn leave(&mut self, link: usize) -> bool {
        let Link { shard, id, pipe, host } = &mut self.links[link];
        let (shard, connection) = (*shard, *id);
        let Some((bytes, batch)) = pipe.leave(&self.nodes[shard].memory) else { return false };
        host.hear(&bytes, &fill);
        if host.queue == 0 && host.told.is_some() {
            self.controller = host.told;
        }
        self.tell(shard, Event::Sent { connection, batch });
        true
    }

    fn lose(&mut self, link: usize) {
        let Link { shard, id, pipe, .. } = &mut self.links[link];
        let (shard, connection) = (*shard, *id);
        if pipe.lose() {
            self.tell(shard, Event::Lost { connection, loss: Loss::EndOfStream });
        }
    }

    fn shut(&mut self, link: usize) -> bool {
        let Link { shard, id, pipe, .. } = &mut self.links[link];
        let (shard, connection) = (*shard, *id);
        let Some((direct, batch)) = pipe.try_shut() else { return false };
        self.tell(shard, Event::Closed { connection, direct, batch });
        true
    }

    fn answer(&mut self, which: usize, wish: Wish) -> bool {
        if which >= self.held.len() {
            return false;
        }
        let (shard, disk, request) = self.held.remove(which);
        let memory = &mut self.nodes[shard].memory;
        let strict = !self.tampered;
        let completion =
            content::carry_out(disk.0, SIZE, request, wish, self.lease, strict, memory);
        self.tell(shard, Event::Completed(completion));
        true
    }

    fn deliver(&mut self, which: usize) -> bool {
        let Some((&(from, to), letters)) = self.mail.iter_mut().nth(which) else { return false };
        let mail = letters.pop_front().expect("empty ones are dropped");
        if letters.is_empty() {
            self.mail.remove(&(from, to));
        }
        self.tell(to, Event::Mail { from, mail });
        true
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for shard in 0..self.nodes.len() {
            let node = &mut self.nodes[shard];
            if node.shard.poll_timeout().is_some_and(|at| at <= self.now) {
                node.shard.handle_timeout(self.now, &mut node.memory);
                self.settle(shard);
            }
        }
    }

    /// One round of everything that goes on by itself. Returns whether anything did.
    fn go_on(&mut self) -> bool {
        let mut moved = false;
        for link in 0..self.links.len() {
            moved |= self.arrive(link, usize::MAX);
            moved |= self.leave(link);
        }
        while self.deliver(0) || self.answer(0, Wish::Honest) {
            moved = true;
        }
        let before = self.number;
        self.order();
        moved || self.number > before
    }

    fn run(&mut self) {
        loop {
            let mut moved = self.go_on();
            for link in &mut self.links {
                while link.host.has_grant() {
                    moved = true;
                    link.pipe.coming.extend(link.host.grant(1 << 20, &fill));
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn end(mut self) {
        self.run();
        // Connect may be answered only after a hold of a few seconds.
        for _ in 0..8 {
            let connecting = |link: &Link| {
                link.pipe.is_open() && link.host.is_connecting() && !link.host.is_answered()
            };
            if !self.links.iter().any(connecting) {
                break;
            }
            self.pass(Duration::from_millis(500));
            self.run();
        }
        assert!(self.missing.is_empty() && self.steps.is_empty(), "an order is not answered");
        for link in &self.links {
            let open = link.pipe.is_open() && !link.pipe.lost;
            assert!(!open || !link.pipe.is_paused(), "paused, and nothing is below");
            if open && !self.tampered {
                let unanswered: Vec<String> = link.host.unanswered().collect();
                assert!(unanswered.is_empty(), "unanswered: {unanswered:#?}");
            }
        }
        self.steps.push_back(Step::Drain);
        for _ in 0..3 {
            self.run();
            for link in 0..self.links.len() {
                self.lose(link);
                self.run();
                self.shut(link);
            }
            self.run();
        }
        assert!(self.missing.is_empty() && self.drained, "the drain is not answered");
        for link in &self.links {
            assert!(link.pipe.closed, "{} is not closed", link.id);
        }
        for Node { shard, memory } in &self.nodes {
            assert_eq!(shard.pages_used(), 0, "pages are lost to the pool");
            assert_eq!(shard.in_flight(), 0, "requests are lost");
            assert_eq!(memory.held(), 0, "pages are lost to the memory");
            let report = shard.report();
            assert!(report.connections.is_empty() && report.pool.waiting == 0, "{report:?}");
            assert!(
                report.protocols.nvme.controllers.is_empty(),
                "controllers are left: {report:?}"
            );
        }
    }
}
