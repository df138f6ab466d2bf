//! A disk behind a pseudowire that ends in this process: a router's shard reaches it for all shards, by
//! the routers of two hosts, over a link that loses, repeats, reorders, delays and changes frames and
//! goes down.
//!
//! ```text
//!   shard 0 --+ mail                                              a host of one shard
//!   shard 1 --+----> import | pseudowire | router === link === router | pseudowire | export | disk
//!   shard 2 --+
//! ```
//! Checked: each request is answered once, by whichever shard it was made, with its buffer; what is read
//! is what was written last, by whichever shard, unless frames were changed; no order is refused, also
//! while requests are under way; the disk goes and comes back; nothing is stuck, and no page is lost in
//! the end.
#![no_main]

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use aoe::{Control, ExportId};
use block::{
    Buffer, ByteCount, Completion, Extent, Instant, Memory, Operation, Outcome, ShardId, VolumeId,
};
use contract::{
    Ask, DiskFacts, DiskId, Effect, Event, FrameBatch, InFrame, LinkFacts, LinkId, MacAddress,
    Machine,
};
use libfuzzer_sys::fuzz_target;
use mpls::{
    Change, Core, Fec, Labels, NhlfeId, Origin, Path, PortKind, Pseudowire, PseudowireId, RouterId,
    Sequencing, Via, Way,
};
use plateway_fuzz::Choices;
use reservation::Reservation;
use shard::{
    Answer, AoeExport, ClientContext, Export, ImportSettings, InternalClient, Mail, News, Order,
    Settings, Shard,
};
use testkit::{Pages, perform};
use volume::{Layout, Member};
use wire::aoe::Address;
use wire::mpls::Label;

const LINK: LinkId = LinkId(4);
/// Where the pseudowire ends.
const WIRED: LinkId = LinkId(20);
const VOLUME: VolumeId = VolumeId(1);
const DISK: DiskId = DiskId(0);
const SIZE: u64 = 64 << 10;
const SECTORS: u64 = SIZE / 512;
const ADDRESS: Address = Address { shelf: 7, slot: 3 };
/// Addresses of the two hosts: the one that asks, and the one whose disk it is.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]];
const ASKS: usize = 0;
const SERVES: usize = 1;
/// A link's: frames of AoE with two sectors, with what routers put around them.
const MTU: u32 = 36 + 1024 + 18;
/// How often something may happen until all is over.
const RESTS: usize = 20_000;

/// What an internal client asks, and where the answer comes.
#[derive(Debug)]
struct Visit {
    operation: Option<Operation>,
    answer: Arc<Mutex<Vec<Completion>>>,
    is_over: bool,
}

impl InternalClient for Visit {
    fn handle_completion(&mut self, completion: Completion, _: &mut ClientContext<'_>) {
        self.is_over = true;
        self.answer.lock().expect("nobody panics with it").push(completion);
    }

    fn handle_turn(&mut self, context: &mut ClientContext<'_>) {
        if let Some(operation) = self.operation.take() {
            context.submit(VOLUME, 0, operation);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A host's shards, its disk, and what they have to say.
struct Host {
    shards: Vec<Shard>,
    memory: Pages,
    disk: Vec<u8>,
    /// From whom and to whom.
    mail: VecDeque<(usize, usize, Mail)>,
    control: VecDeque<(usize, Mail)>,
    /// Batches that the driver has, and whose.
    out: VecDeque<(usize, u32, FrameBatch)>,
    sent: VecDeque<Vec<u8>>,
    /// The shard of the router.
    router: usize,
    orders: u64,
}

impl Host {
    fn new(who: usize, count: usize, router: usize, sequencing: Sequencing) -> Host {
        let shard = |number: usize| {
            let settings = Settings {
                shard: ShardId(number as u16),
                shards: count as u16,
                pages: 4096,
                seed: 5,
                secret: [7; 32],
            };
            Shard::new(Instant::ZERO, settings)
        };
        let mut host = Host {
            shards: (0..count).map(shard).collect(),
            memory: Pages::default(),
            disk: vec![0; SIZE as usize],
            mail: VecDeque::new(),
            control: VecDeque::new(),
            out: VecDeque::new(),
            sent: VecDeque::new(),
            router,
            orders: 0,
        };
        let label = Label::new(100).expect("it is ordinary");
        let pseudowire = Pseudowire {
            fec: Fec::all_of(WIRED),
            label_in: label,
            label_out: label,
            origins: vec![Origin { port: LINK, tunnel: None, way: Way::Primary }],
            nhlfe: NhlfeId(0),
            backup: None,
            control_word: Some(sequencing),
            clamp: None,
        };
        let path = Path {
            port: LINK,
            via: Some(Via::Mac(MacAddress(MACS[1 - who]))),
            labels: Labels::NONE,
            mtu: None,
            backup: None,
        };
        let start = Instant(1_000_000);
        for change in [
            Change::SetPort(LINK, PortKind::Core(Core::default())),
            Change::SetPort(WIRED, PortKind::Virtual { mac: MacAddress(MACS[who]) }),
            Change::SetPath(NhlfeId(0), path),
            Change::SetPseudowire(PseudowireId(0), pseudowire),
        ] {
            host.order(start, || Order::Route(RouterId(0), Box::new(change.clone())));
        }
        host.raise(start, who, true);
        host
    }

    /// The link is up, or down.
    fn raise(&mut self, now: Instant, who: usize, is_up: bool) {
        let facts =
            LinkFacts { mac: MACS[who], mtu: MTU, vlan: None, ring_frames: 256, is_shared: false };
        let event = match is_up {
            true => Event::LinkUp { link: LINK, facts },
            false => Event::LinkDown { link: LINK },
        };
        self.tell(now, self.router, event);
    }

    /// Gives an order to all shards.
    fn order(&mut self, now: Instant, order: impl Fn() -> Order) {
        self.orders += 1;
        for shard in 0..self.shards.len() {
            let mail = Mail::Order { number: self.orders, order: Box::new(order()) };
            self.tell(now, shard, Event::Mail { from: ShardId::CONTROL, mail });
        }
    }

    fn tell(&mut self, now: Instant, shard: usize, event: Event<Mail>) {
        self.shards[shard].handle_event(now, event, &mut self.memory);
        self.turn(now, shard);
    }

    fn come(&mut self, now: Instant, bytes: &[u8]) {
        let frame = InFrame::new(LINK, None, bytes);
        self.shards[self.router].handle_frame(now, frame, &mut self.memory);
        self.turn(now, self.router);
    }

    /// Settles a shard, and does what it wants.
    fn turn(&mut self, now: Instant, shard: usize) {
        loop {
            let (machine, memory) = (&mut self.shards[shard], &mut self.memory);
            machine.settle(now, memory);
            let mut asks: Vec<Ask> = Vec::new();
            machine.take_requests(&mut asks);
            while let Some(effect) = machine.poll_effect() {
                match effect {
                    Effect::SendFrames { token, batch } => {
                        self.sent.extend(batch.to_frames(memory).into_iter().map(
                            |(link, bytes)| {
                                assert_eq!(link, LINK, "it leaves by the router's link");
                                assert!(bytes.len() <= MTU as usize + 14, "{} bytes", bytes.len());
                                bytes
                            },
                        ));
                        self.out.push_back((shard, token, batch));
                    }
                    Effect::Mail { to: ShardId::CONTROL, mail } => {
                        self.control.push_back((shard, mail));
                    }
                    Effect::Mail { to, mail } => self.mail.push_back((shard, to.index(), mail)),
                    other => panic!("{other:?}"),
                }
            }
            if asks.is_empty() {
                return;
            }
            for (disk, request) in asks {
                assert_eq!(disk, DISK);
                let done = perform(&mut self.disk, request, Outcome::Done, memory);
                machine.handle_event(now, Event::Completed(done), memory);
            }
        }
    }

    /// A letter arrives: the first between some two, since they are in order.
    fn deliver(&mut self, now: Instant, which: usize) -> bool {
        let Some((from, to, _)) = self.mail.get(which) else { return false };
        let (from, to) = (*from, *to);
        let is_between = |letter: &(usize, usize, Mail)| (letter.0, letter.1) == (from, to);
        let first = self.mail.iter().position(is_between).expect("there is one");
        let (_, _, mail) = self.mail.remove(first).expect("it was found");
        self.tell(now, to, Event::Mail { from: ShardId(from as u16), mail });
        true
    }

    fn give_back(&mut self, now: Instant, which: usize) -> bool {
        let Some((shard, token, mut batch)) = self.out.remove(which) else { return false };
        batch.frames.clear();
        self.tell(now, shard, Event::FramesSent { token, batch });
        true
    }

    fn timeout(&mut self, now: Instant) {
        for shard in 0..self.shards.len() {
            if self.shards[shard].poll_timeout().is_some_and(|at| at <= now) {
                self.shards[shard].handle_timeout(now, &mut self.memory);
                self.turn(now, shard);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.shards.iter().filter_map(Machine::poll_timeout).min()
    }
}

/// What was asked.
struct Asked {
    answer: Arc<Mutex<Vec<Completion>>>,
    first: u64,
    count: u64,
    /// What is written to each sector; `None` for a read.
    value: Option<u8>,
    began: u64,
}

/// A write to a sector: when it began, when nothing more could happen to it, and whether it did happen.
#[derive(Clone, Copy)]
struct Written {
    value: u8,
    began: u64,
    ended: Option<u64>,
    done: bool,
}

/// What a sector holds at first.
const ZEROS: Written = Written { value: 0, began: 0, ended: Some(0), done: true };

struct Play {
    now: Instant,
    hosts: [Host; 2],
    /// Frames on the wire, to each host.
    wires: [VecDeque<Vec<u8>>; 2],
    asked: Vec<Asked>,
    /// Of each sector that was written, all writes.
    sectors: BTreeMap<u64, Vec<Written>>,
    /// Counts what happens, so that before and after are told.
    clock: u64,
    next_value: u8,
    tampered: bool,
    /// Whether the disk was found, and whether the volume is there.
    facts: Option<DiskFacts>,
    has_volume: bool,
}

impl Play {
    fn new(choices: &mut Choices<'_>) -> Play {
        let shards = 1 + choices.below(3);
        let router = choices.below(shards);
        let sequencing = choices.of(&[Sequencing::Drop, Sequencing::Reorder]);
        let now = Instant(1_000_000);
        let hosts =
            [Host::new(ASKS, shards, router, sequencing), Host::new(SERVES, 1, 0, sequencing)];
        let mut play = Play {
            now,
            hosts,
            wires: Default::default(),
            asked: Vec::new(),
            sectors: BTreeMap::new(),
            clock: 0,
            next_value: 1,
            tampered: false,
            facts: None,
            has_volume: false,
        };
        play.serve();
        play.import();
        play.wait(RESTS, |play| play.facts.is_some());
        assert!(play.facts.is_some(), "the disk is not found");
        play.add_volume();
        play
    }

    fn serve(&mut self) {
        let host = &mut self.hosts[SERVES];
        let facts = DiskFacts::of_memory(ByteCount(SIZE));
        host.order(self.now, || Order::AddDisk { disk: DISK, facts: facts.clone() });
        host.order(self.now, || Order::AddVolume {
            volume: VOLUME,
            layout: layout(),
            reservation: Reservation::default(),
        });
        let export = aoe::Export::new(ADDRESS, &[WIRED], VOLUME, ByteCount(SIZE));
        let export = Box::new(AoeExport { id: ExportId(0), export, control: Control::default() });
        host.order(self.now, || Order::SetExport(Export::Aoe(export.clone())));
    }

    fn import(&mut self) {
        let host = &mut self.hosts[ASKS];
        let by = ShardId(host.router as u16);
        let settings = ImportSettings::Aoe(aoe::initiator::Settings::new(&[WIRED], ADDRESS));
        host.order(self.now, || Order::AddImport {
            disk: DISK,
            settings: Box::new(settings.clone()),
            by: Some(by),
        });
    }

    fn add_volume(&mut self) {
        let facts = self.facts.clone().expect("it was found");
        let host = &mut self.hosts[ASKS];
        host.order(self.now, || Order::AddReached { disk: DISK, facts: facts.clone() });
        host.order(self.now, || Order::AddVolume {
            volume: VOLUME,
            layout: layout(),
            reservation: Reservation::default(),
        });
        self.has_volume = true;
    }

    /// The volume and its disk go, and the disk is asked for again: all that was asked is answered
    /// before.
    fn replug(&mut self) {
        if !self.has_volume {
            return;
        }
        let host = &mut self.hosts[ASKS];
        host.order(self.now, || Order::QuiesceVolume(VOLUME));
        self.has_volume = false;
        self.wait(RESTS, |play| play.hosts[ASKS].mail.is_empty() && play.asked.is_empty());
        assert!(self.asked.is_empty(), "requests are not answered while their volume goes");
        let host = &mut self.hosts[ASKS];
        host.order(self.now, || Order::ForgetVolume(VOLUME));
        host.order(self.now, || Order::RemoveDisk(DISK));
        // What was begun with it ends.
        self.facts = None;
        self.wait(64, |_| false);
        self.import();
        self.wait(RESTS, |play| play.facts.is_some());
        assert!(self.facts.is_some(), "the disk is not found again");
        self.add_volume();
    }

    fn ask(&mut self, choices: &mut Choices<'_>) {
        if !self.has_volume || self.asked.len() >= 16 {
            return;
        }
        let shard = choices.below(self.hosts[ASKS].shards.len());
        let count = choices.of(&[1, 1, 2, 3, 5, 8]);
        let first = u64::from(choices.byte()) % (SECTORS - count + 1);
        let first = if choices.flag() { first % 8 } else { first };
        let (bytes, place) = ((count * 512) as u32, (first * 512 % 4096) as u32);
        let extent = Extent::new(first * 512, count * 512);
        let mut buffer = Buffer::reserved(bytes, place);
        self.clock += 1;
        let value = choices.flag().then(|| {
            self.next_value = self.next_value % 255 + 1;
            self.next_value
        });
        let operation = match value {
            Some(value) => {
                self.hosts[ASKS].memory.write(&mut buffer, 0, &vec![value; bytes as usize]);
                let written = Written { value, began: self.clock, ended: None, done: false };
                for sector in first..first + count {
                    self.sectors.entry(sector).or_insert_with(|| vec![ZEROS]).push(written);
                }
                Operation::Write { extent, buffer, durable: choices.flag() }
            }
            None => Operation::Read { extent, buffer },
        };
        let answer = Arc::default();
        let visit =
            Visit { operation: Some(operation), answer: Arc::clone(&answer), is_over: false };
        self.asked.push(Asked { answer, first, count, value, began: self.clock });
        let mail = Mail::Order { number: 0, order: Box::new(Order::AddClient(Box::new(visit))) };
        let event = Event::Mail { from: ShardId::CONTROL, mail };
        self.hosts[ASKS].tell(self.now, shard, event);
    }

    /// Takes what came of requests, and what shards told.
    fn look(&mut self) {
        for at in (0..self.asked.len()).rev() {
            let mut answers =
                core::mem::take(&mut *self.asked[at].answer.lock().expect("nobody panics with it"));
            assert!(answers.len() <= 1, "a request is answered twice");
            if let Some(completion) = answers.pop() {
                let asked = self.asked.swap_remove(at);
                self.answered(&asked, completion);
            }
        }
        while let Some((_, mail)) = self.hosts[ASKS].control.pop_front() {
            match mail {
                Mail::Answer { answer, .. } => match *answer {
                    Answer::Import(Ok(facts)) => self.facts = Some(facts),
                    // It was not found in its time, and is asked for again.
                    Answer::Import(Err(_)) => self.import(),
                    Answer::Refused(why) => panic!("an order is refused: {why}"),
                    _ => {}
                },
                // A durable write whose end nobody knows: somebody looks, and lets writes pass again.
                Mail::News(news) => {
                    if let (News::DiskProtected(..), Some(facts)) = (&*news, self.facts.clone()) {
                        let renew = || Order::RenewDisk { disk: DISK, facts: facts.clone() };
                        self.hosts[ASKS].order(self.now, renew);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        self.hosts[SERVES].control.clear();
        for (from, to) in [(ASKS, SERVES), (SERVES, ASKS)] {
            let sent = core::mem::take(&mut self.hosts[from].sent);
            self.wires[to].extend(sent);
        }
    }

    fn answered(&mut self, asked: &Asked, completion: Completion) {
        let Asked { first, count, value, began, .. } = asked;
        self.clock += 1;
        let done = completion.outcome.is_done();
        match value {
            Some(value) => {
                for sector in *first..first + count {
                    let all = self.sectors.get_mut(&sector).expect("it was written");
                    let is_it = |one: &&mut Written| (one.value, one.began) == (*value, *began);
                    let one = all.iter_mut().find(is_it).expect("it was begun");
                    (one.ended, one.done) = (Some(self.clock), done);
                }
            }
            None if done => {
                let bytes = self.hosts[ASKS].memory.bytes(&completion.buffer);
                for (sector, bytes) in (*first..).zip(bytes.chunks(512)) {
                    self.judge(sector, bytes, *began);
                }
            }
            None => {}
        }
        self.hosts[ASKS].memory.release(completion.buffer);
    }

    /// A sector was read by who asked then.
    fn judge(&self, sector: u64, bytes: &[u8], began: u64) {
        if self.tampered {
            return;
        }
        let value = bytes[0];
        assert!(bytes.iter().all(|byte| *byte == value), "sector {sector} is of two writes");
        let all = self.sectors.get(&sector).map_or(&[ZEROS][..], Vec::as_slice);
        // A write is replaced by one that began when it was over, and was done before the read began.
        let replaces = |one: &Written, by: &Written| {
            let is_over = by.done && by.ended.is_some_and(|ended| ended < began);
            is_over && one.ended.is_some_and(|ended| ended < by.began)
        };
        let may_be = |one: &&Written| !all.iter().any(|by| replaces(one, by));
        let held: Vec<u8> = all.iter().filter(may_be).map(|one| one.value).collect();
        assert!(held.contains(&value), "sector {sector} has {value}, and may have {held:?}");
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let now = self.now;
        match choices.below(16) {
            0..=3 => self.ask(choices),
            4 | 5 => {
                let to = choices.below(2);
                let which = choices.below(self.wires[to].len().max(1));
                self.arrive(to, which);
            }
            6 => {
                let wire = &mut self.wires[choices.below(2)];
                let which = choices.below(wire.len().max(1));
                match choices.below(3) {
                    0 => drop(wire.remove(which)),
                    1 => wire.extend(wire.get(which).cloned()),
                    _ => {
                        let (at, value) = (choices.below(80), choices.byte());
                        let byte = wire.get_mut(which).and_then(|bytes| bytes.get_mut(at));
                        if let Some(byte) = byte {
                            (*byte, self.tampered) = (value, true);
                        }
                    }
                }
            }
            7 | 8 => {
                let host = &mut self.hosts[ASKS];
                let which = choices.below(host.mail.len().max(1));
                host.deliver(now, which);
            }
            9 => {
                let host = &mut self.hosts[choices.below(2)];
                let which = choices.below(host.out.len().max(1));
                host.give_back(now, which);
            }
            10 => {
                let millis = choices.of(&[0, 1, 30, 250, 1_000, 11_000, 61_000]);
                self.now = self.now + Duration::from_millis(millis);
                let now = self.now;
                self.hosts.iter_mut().for_each(|host| host.timeout(now));
            }
            11 => {
                let who = choices.below(2);
                let is_up = choices.flag();
                self.hosts[who].raise(now, who, is_up);
            }
            12 if choices.below(4) == 0 => {
                self.raise_all();
                self.replug();
            }
            _ => {
                for _ in 0..8 {
                    self.go_on();
                }
            }
        }
        self.look();
    }

    fn raise_all(&mut self) {
        for who in [ASKS, SERVES] {
            self.hosts[who].raise(self.now, who, true);
        }
    }

    fn arrive(&mut self, to: usize, which: usize) -> bool {
        let Some(bytes) = self.wires[to].remove(which) else { return false };
        self.hosts[to].come(self.now, &bytes);
        true
    }

    /// One round of all that goes on by itself. Returns whether anything did.
    fn go_on(&mut self) -> bool {
        let now = self.now;
        let mut moved = self.arrive(ASKS, 0) | self.arrive(SERVES, 0);
        for host in &mut self.hosts {
            moved |= host.deliver(now, 0) | host.give_back(now, 0);
        }
        self.look();
        moved
    }

    /// Goes on, with time passing whenever nothing else happens, until it is over or for so long.
    fn wait(&mut self, rests: usize, over: impl Fn(&Play) -> bool) {
        for _ in 0..rests {
            while self.go_on() {}
            if over(self) {
                return;
            }
            let Some(at) = self.hosts.iter().filter_map(Host::next).min() else { return };
            self.now = at.max(self.now + Duration::from_micros(1));
            let now = self.now;
            self.hosts.iter_mut().for_each(|host| host.timeout(now));
        }
    }

    /// All that was asked ends, all shards drain, and nothing is left.
    fn end(mut self) {
        self.raise_all();
        self.wait(RESTS, |play| play.asked.is_empty());
        let left = self.asked.len();
        assert_eq!(left, 0, "requests are not answered");
        for who in [ASKS, SERVES] {
            self.hosts[who].order(self.now, || Order::Drain);
        }
        self.wait(64, |_| false);
        for host in &self.hosts {
            assert_eq!(host.memory.held(), 0, "pages are lost");
            for shard in &host.shards {
                assert_eq!((shard.pages_used(), shard.in_flight()), (0, 0));
            }
        }
    }
}

fn layout() -> Layout {
    Layout::single(Member { disk: DISK, base: 0, length: SIZE })
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = Play::new(&mut choices);
    while !choices.is_empty() {
        play.step(&mut choices);
    }
    play.end();
});
