//! AoE through whole shards: frames in, frames out, and what two shards, the control thread and an
//! initiator of another host agree on.
//!
//! Each test is a small world: shards with one disk in memory that answers at once, mail that is
//! carried in order, one Ethernet segment.

mod elsewhere;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aoe::{Control, ExportId};
use block::limits::{DISK_SLOW, DISK_STUCK};
use block::{
    Buffer, ByteCount, Completion, Extent, Instant, Memory, Operation, Outcome, Request, ShardId,
    VolumeId,
};
use contract::{
    Ask, DiskFacts, DiskId, Effect, Event, FrameBatch, InFrame, LinkFacts, LinkId, Machine,
    Misfits, OutFrame, Station, VirtualLinks,
};
use mpls::{
    Action, Change, Core, Fec, FecId, Labels, NhlfeId, Origin, Path, PortKind, PseudowireId,
    RouterId, Sequencing, Space, Via, Way,
};
use reservation::{Change as ReservationChange, Reservation, Value};
use shard::{
    Answer, AoeExport, ClientContext, Export, ExportKey, ImportSettings, InternalClient, Mail,
    News, Order, Settings, Shard, StoreKey,
};
use testkit::{Pages, Pseudowire, perform};
use volume::gate::Health;
use volume::{Layout, Member};
use wire::aoe::Address;
use wire::ethernet::MacAddress;
use wire::mpls::Label;

const LINK: LinkId = LinkId(4);
/// A virtual link of a router.
const WIRED: LinkId = LinkId(20);
const EXPORT: ExportId = ExportId(9);
const VOLUME: VolumeId = VolumeId(1);
const DISK: DiskId = DiskId(0);
const SIZE: u64 = 1 << 20;
const ADDRESS: Address = Address { shelf: 7, slot: 3 };
const TARGET: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A host's shards on an Ethernet.
struct Host {
    now: Instant,
    shards: Vec<Shard>,
    /// All of them have their pages of one arena, as in a process.
    memory: Pages,
    disk: Vec<u8>,
    mail: VecDeque<(ShardId, ShardId, Mail)>,
    control: Vec<(ShardId, Mail)>,
    sent: Vec<Vec<u8>>,
    /// How they lay in their batches.
    shapes: Vec<OutFrame>,
    /// Frames that left when the volume was exported.
    announced: usize,
    orders: u64,
    /// Whether requests below wait for the test.
    slow: bool,
    below: Vec<(usize, Request)>,
}

impl Host {
    fn new(mac: [u8; 6], count: u16) -> Host {
        let shard = |number| {
            let settings = Settings {
                shard: ShardId(number),
                shards: count,
                pages: 4096,
                seed: 5,
                secret: [7; 32],
            };
            Shard::new(Instant::ZERO, settings)
        };
        let mut host = Host {
            now: Instant(1_000_000),
            shards: (0..count).map(shard).collect(),
            memory: Pages::default(),
            disk: vec![0; SIZE as usize],
            mail: VecDeque::new(),
            control: Vec::new(),
            sent: Vec::new(),
            shapes: Vec::new(),
            announced: 0,
            orders: 0,
            slow: false,
            below: Vec::new(),
        };
        for number in 0..host.shards.len() {
            host.tell(number, Event::LinkUp { link: LINK, facts: facts(mac) });
        }
        host
    }

    /// One whose volume is exported.
    fn target(count: u16) -> Host {
        Host::with_reservation(count, Reservation::default())
    }

    /// The same, with a reservation that was stored.
    fn with_reservation(count: u16, reservation: Reservation) -> Host {
        let mut host = Host::new(TARGET, count);
        host.serve(LINK, reservation);
        host
    }

    /// Has a disk and a volume, and exports it.
    fn serve(&mut self, link: LinkId, reservation: Reservation) {
        let facts = DiskFacts::of_memory(ByteCount(SIZE));
        self.order(|| Order::AddDisk { disk: DISK, facts: facts.clone() });
        self.add_volume(reservation);
        self.export(link, Control::default());
    }

    fn add_volume(&mut self, reservation: Reservation) {
        let layout = layout();
        self.order(|| Order::AddVolume {
            volume: VOLUME,
            layout: layout.clone(),
            reservation: reservation.clone(),
        });
    }

    fn resume_volume(&mut self, reservation: Reservation) {
        let layout = layout();
        self.order(|| Order::ResumeVolume {
            volume: VOLUME,
            layout: layout.clone(),
            reservation: reservation.clone(),
        });
    }

    fn export(&mut self, link: LinkId, control: Control) {
        let export = aoe::Export::new(ADDRESS, &[link], VOLUME, ByteCount(SIZE));
        let export = Box::new(AoeExport { id: EXPORT, export, control });
        self.order(|| Order::SetExport(Export::Aoe(export.clone())));
        // Told earlier, an initiator asks at once, and a shard that knows nothing of it may answer.
        assert!(self.sent.is_empty(), "announced before all shards show it");
        self.order(|| Order::AnnounceExports);
        self.announced = core::mem::take(&mut self.sent).len();
    }

    /// Orders all shards, which answer when they can.
    fn begin(&mut self, order: impl Fn() -> Order) {
        self.orders += 1;
        (0..self.shards.len()).for_each(|shard| self.order_one(shard, self.orders, order()));
        self.carry();
    }

    fn order_one(&mut self, shard: usize, number: u64, order: Order) {
        let mail = Mail::Order { number, order: Box::new(order) };
        self.tell(shard, Event::Mail { from: ShardId::CONTROL, mail });
    }

    /// Orders all shards, which must all carry it out.
    fn order(&mut self, order: impl Fn() -> Order) {
        self.begin(order);
        let before = self.control.len();
        self.control.retain(|(_, mail)| {
            !matches!(mail, Mail::Answer { answer, .. } if matches!(**answer, Answer::Done))
        });
        assert_eq!(before - self.control.len(), self.shards.len(), "{:?}", self.control);
    }

    fn tell(&mut self, shard: usize, event: Event<Mail>) {
        let (machine, memory) = (&mut self.shards[shard], &mut self.memory);
        machine.handle_event(self.now, event, memory);
        self.turn(shard);
    }

    fn frame(&mut self, shard: usize, bytes: &[u8]) {
        let (machine, memory) = (&mut self.shards[shard], &mut self.memory);
        machine.handle_frame(self.now, InFrame::new(LINK, None, bytes), memory);
        self.turn(shard);
        self.carry();
    }

    /// Settles a shard and does what it wants; mail waits for [`carry`](Self::carry).
    fn turn(&mut self, shard: usize) {
        loop {
            let (machine, memory) = (&mut self.shards[shard], &mut self.memory);
            machine.settle(self.now, memory);
            let mut asks: Vec<Ask> = Vec::new();
            machine.take_requests(&mut asks);
            let mut events = Vec::new();
            while let Some(effect) = machine.poll_effect() {
                match effect {
                    Effect::SendFrames { token, mut batch } => {
                        self.shapes.extend(&batch.frames);
                        self.sent.extend(batch.to_frames(memory).into_iter().map(|(_, f)| f));
                        batch.frames.clear();
                        events.push(Event::FramesSent { token, batch });
                    }
                    // Links are the world's: it knows how they are.
                    Effect::Mail { to: ShardId::CONTROL, mail: Mail::News(news) }
                        if matches!(*news, News::Link(..)) => {}
                    Effect::Mail { to: ShardId::CONTROL, mail } => {
                        self.control.push((ShardId(shard as u16), mail));
                    }
                    Effect::Mail { to, mail } => {
                        self.mail.push_back((ShardId(shard as u16), to, mail));
                    }
                    other => panic!("{other:?}"),
                }
            }
            if asks.is_empty() && events.is_empty() {
                return;
            }
            if self.slow {
                self.below.extend(asks.drain(..).map(|(_, request)| (shard, request)));
            }
            for (_, request) in asks {
                let done = perform(&mut self.disk, request, Outcome::Done, memory);
                events.push(Event::Completed(done));
            }
            for event in events {
                machine.handle_event(self.now, event, memory);
            }
        }
    }

    /// Looks for the disk of another host, on each shard.
    fn import(&mut self, link: LinkId) {
        let settings = ImportSettings::Aoe(aoe::initiator::Settings::new(&[link], ADDRESS));
        for shard in 0..self.shards.len() {
            let settings = Box::new(settings.clone());
            self.order_one(shard, 77, Order::AddImport { disk: DISK, settings, by: None });
        }
    }

    /// Every shard has found it.
    fn is_connected(&mut self) {
        let is_there = |(_, mail): &(ShardId, Mail)| match mail {
            Mail::Answer { number: 77, answer } => match &**answer {
                Answer::Import(Ok(facts)) => facts.size == ByteCount(SIZE),
                other => panic!("{other:?}"),
            },
            _ => false,
        };
        let before = self.control.len();
        self.control.retain(|letter| !is_there(letter));
        assert_eq!(before - self.control.len(), self.shards.len());
    }

    /// Lets the disk answer what waits.
    fn answer_below(&mut self) {
        for (shard, request) in core::mem::take(&mut self.below) {
            let completion = perform(&mut self.disk, request, Outcome::Done, &mut self.memory);
            self.tell(shard, Event::Completed(completion));
        }
        self.carry();
    }

    /// What the shards have answered to orders since.
    fn answers(&mut self) -> Vec<String> {
        let answer = |(_, mail): (ShardId, Mail)| match mail {
            Mail::Answer { answer, .. } => format!("{answer:?}"),
            other => panic!("{other:?}"),
        };
        core::mem::take(&mut self.control).into_iter().map(answer).collect()
    }

    fn carry(&mut self) {
        while let Some((from, to, mail)) = self.mail.pop_front() {
            self.tell(to.index(), Event::Mail { from, mail });
        }
    }

    /// What is to be stored: who asks, and its key and version.
    fn wish(&mut self) -> (ShardId, StoreKey, u64, String) {
        let (from, mail) = self.control.pop().expect("a value is to be stored");
        let Mail::News(news) = mail else { panic!("{mail:?}") };
        let News::Store { key, version, value } = *news else { panic!("{news:?}") };
        (from, key, version, format!("{value:?}"))
    }

    fn stored(&mut self, (to, key, version, _): (ShardId, StoreKey, u64, String), stored: bool) {
        let mail = Mail::Stored { key, version, stored };
        self.tell(to.index(), Event::Mail { from: ShardId::CONTROL, mail });
        self.carry();
    }
}

fn layout() -> Layout {
    Layout::single(Member { disk: DISK, base: 0, length: SIZE })
}

fn facts(mac: [u8; 6]) -> LinkFacts {
    LinkFacts { mac, mtu: 1500, vlan: None, ring_frames: 256, is_shared: true }
}

/// A frame to the target.
fn request(source: [u8; 6], command: u8, tag: u32, body: &[u8]) -> Vec<u8> {
    let message = testkit::aoe::request(ADDRESS, command, tag, body);
    testkit::aoe::frame(MacAddress(TARGET), MacAddress(source), None, &message)
}

/// READ SECTORS EXT and WRITE SECTORS EXT.
fn ata(source: [u8; 6], tag: u32, op: u8, lba: u8, data: &[u8]) -> Vec<u8> {
    request(source, 0, tag, &testkit::aoe::ata(op, lba.into(), 1, data))
}

fn reserve(source: [u8; 6], tag: u32, list: &[[u8; 6]]) -> Vec<u8> {
    let body = [&[1, list.len() as u8], list.concat().as_slice()].concat();
    request(source, 3, tag, &body)
}

/// The only frame that was sent.
fn answer(host: &mut Host) -> Vec<u8> {
    let sent = core::mem::take(&mut host.sent);
    assert_eq!(sent.len(), 1, "{sent:x?}");
    sent.into_iter().next().expect("one")
}

#[test]
fn an_export_is_announced_once_however_many_shards_there_are() {
    assert_eq!(Host::target(3).announced, 1);
}

#[test]
fn a_write_and_a_read_go_through() {
    let mut host = Host::target(2);
    host.frame(1, &ata(ONE, 5, 0x34, 8, &[0xab; 512]));
    let written = answer(&mut host);
    assert_eq!((&written[..12], written[27]), (&[ONE, TARGET].concat()[..], 0x40));
    assert_eq!(host.disk[8 * 512..9 * 512], [0xab; 512]);
    host.frame(0, &ata(OTHER, 6, 0x24, 8, &[]));
    assert_eq!(answer(&mut host)[36..], [0xab; 512]);
    assert_eq!(host.memory.held(), 0);
    for shard in &host.shards {
        assert_eq!((shard.pages_used(), shard.in_flight()), (0, 0));
    }
}

#[test]
fn a_reservation_is_answered_once_it_is_stored_and_in_force_on_every_shard() {
    let mut host = Host::target(2);
    host.frame(0, &reserve(ONE, 1, &[ONE]));
    assert!(host.sent.is_empty(), "it is not stored");
    let store = host.wish();
    assert!(store.1 == StoreKey::Reservation(VOLUME), "{store:?}");
    // A stranger still writes.
    host.frame(1, &ata(OTHER, 2, 0x34, 0, &[1; 512]));
    assert_eq!(answer(&mut host)[27], 0x40);
    host.stored(store, true);
    let told = answer(&mut host);
    assert_eq!((told[19], told[25], &told[26..32]), (3, 1, &ONE[..]));
    for shard in 0..2 {
        host.frame(shard, &ata(OTHER, 3 + shard as u32, 0x34, 0, &[2; 512]));
        let refused = answer(&mut host);
        assert_eq!((refused[14], refused[15]), (0x1c, 6), "reserved");
        host.frame(shard, &ata(ONE, 3, 0x24, 0, &[]));
        assert_eq!(answer(&mut host)[27], 0x40);
    }
    assert_eq!(host.disk[..512], [1; 512]);
}

#[test]
fn a_reservation_is_answered_once_nothing_of_a_stranger_is_below_on_any_shard() {
    let mut host = Host::target(2);
    host.slow = true;
    host.frame(0, &ata(OTHER, 1, 0x34, 0, &[1; 512]));
    // Behind the first, and of the one who reserves.
    host.frame(0, &ata(OTHER, 2, 0x34, 0, &[2; 512]));
    host.frame(1, &ata(ONE, 3, 0x34, 4, &[3; 512]));
    assert_eq!(host.below.len(), 2);
    host.frame(1, &reserve(ONE, 4, &[ONE]));
    let store = host.wish();
    host.stored(store, true);
    assert!(host.sent.is_empty(), "a stranger's write is below on the other shard");
    host.below.retain(|(shard, _)| *shard == 0);
    host.answer_below();
    let told: Vec<(u8, u8)> = host.sent.drain(..).map(|frame| (frame[23], frame[14])).collect();
    assert_eq!(told, [(1, 0x18), (2, 0x1c), (4, 0x18)], "its own write is no matter");
    assert_eq!((host.below.len(), &host.disk[..512]), (0, &[1; 512][..]));
}

#[test]
fn a_reservation_of_a_resumed_volume_awaits_what_was_below_before() {
    let mut host = Host::target(2);
    host.slow = true;
    host.frame(0, &ata(OTHER, 1, 0x34, 0, &[1; 512]));
    host.begin(|| Order::QuiesceVolume(VOLUME));
    assert_eq!(host.answers(), ["Done"], "the other shard has nothing of it below");
    host.resume_volume(Reservation::default());
    host.frame(1, &reserve(ONE, 2, &[ONE]));
    let store = host.wish();
    host.stored(store, true);
    assert!(host.sent.is_empty(), "a stranger's write is below since before");
    host.answer_below();
    let told: Vec<u8> = host.sent.drain(..).map(|frame| frame[23]).collect();
    assert_eq!(told, [1, 2]);
    assert!(host.answers().is_empty(), "nobody waits for the quiesce");
    // The shards know better than who resumes it, to whom the file said something.
    host.order(|| Order::QuiesceVolume(VOLUME));
    host.resume_volume(Reservation::default());
    for shard in 0..2 {
        host.frame(shard, &ata(OTHER, 3, 0x34, 0, &[1; 512]));
        assert_eq!(answer(&mut host)[15], 6, "reserved");
    }
    // One that was forgotten is added.
    host.order(|| Order::QuiesceVolume(VOLUME));
    host.order(|| Order::ForgetVolume(VOLUME));
    assert!(host.shards.iter().all(|shard| shard.report().reservations.is_empty()));
    host.resume_volume(reserved_by_other());
    host.frame(0, &ata(ONE, 3, 0x34, 0, &[1; 512]));
    assert_eq!(answer(&mut host)[15], 6, "reserved");
}

#[test]
fn a_stop_awaits_what_stations_have_below_and_begins_nothing_more() {
    let mut host = Host::target(2);
    host.slow = true;
    host.frame(0, &ata(ONE, 1, 0x34, 0, &[1; 512]));
    host.begin(|| Order::Drain);
    assert_eq!(host.answers(), ["Done"], "the other shard has nothing below");
    host.frame(0, &ata(ONE, 2, 0x34, 1, &[2; 512]));
    host.frame(1, &ata(ONE, 3, 0x34, 2, &[3; 512]));
    assert_eq!((host.sent.len(), host.below.len()), (0, 1));
    host.answer_below();
    assert_eq!(host.answers(), ["Done"]);
    assert_eq!((answer(&mut host)[23], host.disk[0]), (1, 1));
}

#[test]
fn a_disk_that_does_not_answer_is_told_of_as_slow_and_then_as_stuck() {
    let mut host = Host::target(1);
    host.slow = true;
    host.frame(0, &ata(ONE, 1, 0x34, 0, &[1; 512]));
    let asked = host.now;
    let mut told = Vec::new();
    while told.len() < 2 {
        host.pass();
        for (_, mail) in core::mem::take(&mut host.control) {
            if let Mail::News(news) = mail
                && let News::DiskHealth(DISK, health) = *news
            {
                told.push((health, host.now));
            }
        }
    }
    let [slow, stuck] = [DISK_SLOW, DISK_STUCK].map(|limit| asked + limit);
    assert_eq!(told, [(Health::Slow, slow), (Health::Stuck, stuck)]);
}

#[test]
fn an_order_frees_a_volume_once_that_is_stored_and_in_force() {
    let mut host = Host::with_reservation(2, reserved_by_other());
    host.begin(|| Order::ClearReservation(VOLUME));
    let store = host.wish();
    assert_eq!(host.answers(), ["Done"], "the shard that does not decide about it");
    host.frame(0, &ata(ONE, 1, 0x24, 0, &[]));
    assert_eq!(answer(&mut host)[15], 6, "it is not stored");
    host.stored(store, false);
    let refused = host.answers();
    assert!(refused[0].contains("could not be stored"), "{refused:?}");
    host.begin(|| Order::ClearReservation(VOLUME));
    let store = host.wish();
    host.stored(store, true);
    assert_eq!(host.answers(), ["Done", "Done"]);
    for shard in 0..2 {
        host.frame(shard, &ata(ONE, 2, 0x24, 0, &[]));
        assert_eq!(answer(&mut host)[27], 0x40);
        assert!(host.shards[shard].report().reservations.is_empty());
    }
    host.begin(|| Order::ClearReservation(VOLUME));
    assert_eq!(host.answers(), ["Done", "Done"], "nothing is to be stored");
}

#[test]
fn a_config_string_that_cannot_be_stored_is_refused() {
    let mut host = Host::target(2);
    // SET, one byte of string.
    let set = request(ONE, 1, 7, &[0, 0, 0, 0, 0, 0x13, 0, 1, b'x']);
    host.frame(0, &set);
    let store = host.wish();
    host.stored(store, false);
    let refused = answer(&mut host);
    assert_eq!((refused[14] & 4, refused[15]), (4, 3), "device unavailable");
    host.frame(1, &set);
    let store = host.wish();
    host.stored(store, true);
    let told = answer(&mut host);
    assert_eq!((told[14], &told[30..33]), (0x18, &[0, 1, b'x'][..]));
}

fn reserved_by_other() -> Reservation {
    let change = ReservationChange::ForceList { list: vec![OTHER.into()] };
    Reservation::default().apply(&change).0.expect("a change")
}

#[test]
fn a_stored_reservation_is_in_force_from_the_start_and_whatever_is_exported() {
    let mut host = Host::with_reservation(1, reserved_by_other());
    let held = vec![(VOLUME, reserved_by_other())];
    for tag in 1..3 {
        host.frame(0, &ata(ONE, tag, 0x24, 0, &[]));
        assert_eq!(answer(&mut host)[15], 6, "reserved");
        host.order(|| Order::RemoveExport(ExportKey::Aoe(EXPORT)));
        assert_eq!(host.shards[0].report().reservations, held);
        host.frame(0, &ata(ONE, tag, 0x24, 0, &[]));
        assert!(host.sent.is_empty(), "nothing answers there");
        host.export(LINK, Control::default());
    }
}

#[test]
fn an_import_reaches_an_export_of_another_host_and_each_shard_hears_its_own_answers() {
    let mut target = Host::target(1);
    let mut client = Host::new(ONE, 2);
    client.import(LINK);
    meet(&mut client, &mut target);
    client.is_connected();
    let waiting: Vec<Instant> = client.shards.iter().filter_map(Machine::poll_timeout).collect();
    assert!(waiting.is_empty(), "an import that has nothing to do wakes nobody: {waiting:?}");
}

/// Lets two hosts exchange frames until none is left; every shard of the client is shown every
/// frame.
fn meet(client: &mut Host, target: &mut Host) {
    for _ in 0..64 {
        let (questions, answers) =
            (core::mem::take(&mut client.sent), core::mem::take(&mut target.sent));
        if questions.is_empty() && answers.is_empty() {
            return;
        }
        questions.iter().for_each(|frame| target.frame(0, frame));
        for frame in answers.iter().filter(|frame| frame[..6] == ONE) {
            (0..client.shards.len()).for_each(|shard| client.frame(shard, frame));
        }
    }
    panic!("they never end");
}

#[test]
fn what_is_for_nobody_reaches_no_protocol_and_is_counted() {
    let mut host = Host::target(1);
    let good = ata(ONE, 1, 0x34, 0, &[9; 512]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    // A label whose first byte AoE would take for version 1 and a response, and one that it would
    // take for a request.
    for label in [0x18, 0x10] {
        let mut labelled = with(13, 0x47);
        (labelled[12], labelled[14]) = (0x88, label);
        host.frame(0, &labelled);
    }
    host.frame(0, &good[..13]);
    host.frame(0, &[&good[..12], &[0x81, 0, 0, 5], &good[12..]].concat());
    host.frame(0, &with(5, 0x0a));
    host.frame(0, &with(0, 0x01));
    host.frame(0, &with(6, 0x03));
    assert!(host.sent.is_empty());
    let report = host.shards[0].report();
    let expected = Misfits {
        runt: 1,
        other_vlan: 1,
        other_station: 2,
        group_source: 1,
        other_type: 2,
        link_down: 0,
    };
    assert_eq!(report.misfits, expected);
    let aoe = report.protocols.aoe.counters;
    assert_eq!((aoe.frames, aoe.responses_heard), (0, 0));
    assert_eq!(host.disk[..512], [0; 512]);
    host.frame(0, &good);
    assert_eq!(answer(&mut host)[27], 0x40);
}

impl Host {
    /// One with a virtual link over the real one, which is in a VLAN and whose MTU leaves room for
    /// two sectors, and one less inside.
    fn with_pipe(mac: [u8; 6]) -> Host {
        let mut host = Host::new(mac, 1);
        host.order(|| Order::SetVirtualLinks(Box::<Pseudowire>::default()));
        host.raise(mac, 0);
        host
    }

    /// The same, and the virtual link is a pseudowire of a router, to one like it. That one is on one
    /// shard, and so is its link.
    fn with_pseudowire(mac: [u8; 6], other: [u8; 6], shards: u16, router: usize) -> Host {
        let mut host = Host::new(mac, shards);
        let others = (0..host.shards.len()).filter(|shard| *shard != router);
        others.for_each(|shard| host.tell(shard, Event::LinkDown { link: LINK }));
        let label = Label::new(100).unwrap();
        let pseudowire = mpls::Pseudowire {
            fec: Fec::all_of(WIRED),
            label_in: label,
            label_out: label,
            origins: vec![Origin { port: LINK, tunnel: None, way: Way::Primary }],
            nhlfe: NhlfeId(0),
            backup: None,
            control_word: Some(Sequencing::Drop),
            clamp: None,
        };
        let path = Path {
            port: LINK,
            via: Some(Via::Mac(MacAddress(other))),
            labels: Labels::NONE,
            mtu: None,
            backup: None,
        };
        for change in [
            Change::SetPort(LINK, PortKind::Core(Core::default())),
            Change::SetPort(WIRED, PortKind::Virtual { mac: MacAddress(mac) }),
            Change::SetPath(NhlfeId(0), path),
            Change::SetPseudowire(PseudowireId(0), pseudowire),
        ] {
            host.order(|| Order::Route(RouterId(0), Box::new(change.clone())));
        }
        host.raise(mac, router);
        host
    }

    fn raise(&mut self, mac: [u8; 6], shard: usize) {
        let facts = LinkFacts { mtu: 36 + 1024 + 17, vlan: Some(7), ..facts(mac) };
        self.tell(shard, Event::LinkUp { link: LINK, facts });
    }

    /// Lets time pass until it wants to be called.
    fn pass(&mut self) {
        self.pass_on(0);
    }

    fn pass_on(&mut self, shard: usize) {
        let (machine, memory) = (&mut self.shards[shard], &mut self.memory);
        self.now = self.now.max(machine.poll_timeout().expect("it waits for something"));
        machine.handle_timeout(self.now, memory);
        self.turn(shard);
        self.carry();
    }

    /// Lets time pass until something has come to be.
    fn pass_until(&mut self, shard: usize, mut is_so: impl FnMut(&mut Host) -> bool) {
        for _ in 0..1000 {
            if is_so(self) {
                return;
            }
            self.pass_on(shard);
        }
        panic!("it never is");
    }

    /// Has an internal client ask the volume; what it is answered comes here.
    fn visit(&mut self, operation: Operation) -> Answered {
        self.visit_on(0, operation)
    }

    fn visit_on(&mut self, shard: usize, operation: Operation) -> Answered {
        let answered = Answered::default();
        let visit = Visit { operation: Some(operation), answer: answered.clone(), is_over: false };
        self.order_one(shard, 78, Order::AddClient(Box::new(visit)));
        self.control.retain(|(_, mail)| !matches!(mail, Mail::Answer { number: 78, .. }));
        answered
    }
}

/// Where an answer comes.
type Answered = Arc<Mutex<Option<Completion>>>;

/// Asks the volume once.
#[derive(Debug)]
struct Visit {
    operation: Option<Operation>,
    answer: Answered,
    is_over: bool,
}

impl InternalClient for Visit {
    fn handle_completion(&mut self, completion: Completion, _: &mut ClientContext<'_>) {
        self.is_over = true;
        *self.answer.lock().unwrap() = Some(completion);
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

/// What was answered, if it is done.
fn done(answered: &Answered) -> Buffer {
    let completion = answered.lock().unwrap().take().expect("it is answered");
    assert_eq!(completion.outcome, Outcome::Done);
    completion.buffer
}

#[test]
fn a_target_and_an_initiator_live_on_a_virtual_link_and_do_not_know() {
    let (target, client) = (Host::with_pipe(TARGET), Host::with_pipe(ONE));
    let label = [&[0x88, 0xb5], &Pseudowire::LABEL[..]].concat();
    live_on(target, client, Pseudowire::over(LINK), &label);
}

#[test]
fn they_live_on_a_pseudowire_of_a_router_as_on_any_link() {
    let target = Host::with_pseudowire(TARGET, ONE, 1, 0);
    let client = Host::with_pseudowire(ONE, TARGET, 1, 0);
    // A label of 100 at the bottom with TTL 255, and the first half of a control word.
    live_on(target, client, WIRED, &[0x88, 0x47, 0, 6, 0x41, 255, 0, 0]);
}

#[test]
fn a_router_refuses_what_does_not_fit_and_tells_how_things_are() {
    let mut host = Host::with_pseudowire(ONE, TARGET, 1, 0);
    let label = Label::new(100).unwrap();
    let taken =
        Change::SetLabel { space: Space::Platform, label, fec: FecId(1), action: Action::Pop };
    host.begin(|| Order::Route(RouterId(0), Box::new(taken.clone())));
    assert_eq!(host.answers(), ["Refused(\"label 100 is that of pseudowire 0 (of link 20)\")"]);
    host.begin(|| Order::ReportRouter(RouterId(0)));
    let answers = host.answers();
    assert!(answers[0].contains("RouterReport") && answers[0].contains("label_in: Label(100)"));
    host.begin(|| Order::ReportRouter(RouterId(1)));
    assert_eq!(host.answers(), ["Router(None)"]);
    // What came to its port and has no labels is counted with all that nobody took.
    let tagged = [&ONE[..], &TARGET, &[0x81, 0, 0, 7, 0x88, 0xa2], &[0; 46]].concat();
    host.frame(0, &tagged);
    assert_eq!(host.shards[0].report().misfits.other_type, 1);
}

/// Writes and reads through a link that is inside the real one, behind a tag and these bytes.
fn live_on(mut target: Host, mut client: Host, inside: LinkId, around: &[u8]) {
    target.serve(inside, Reservation::default());
    target.shapes.clear();
    client.import(inside);
    meet(&mut client, &mut target);
    client.is_connected();
    client.add_volume(Reservation::default());
    let extent = Extent::new(512, 8192);
    let bytes: Vec<u8> = (0..8192_u32).map(|at| (at / 5) as u8).collect();
    let mut buffer = Buffer::reserved(8192, 512);
    client.memory.write(&mut buffer, 0, &bytes);
    let writing = client.visit(Operation::Write { extent, buffer, durable: false });
    // All that is on the wire is in the real link's VLAN, and labelled.
    let is_labelled =
        |frame: &Vec<u8>| frame[12..16] == [0x81, 0, 0, 7] && frame[16..].starts_with(around);
    assert!(!client.sent.is_empty() && client.sent.iter().all(is_labelled));
    meet(&mut client, &mut target);
    client.memory.release(done(&writing));
    assert_eq!(target.disk[512..512 + 8192], bytes);
    let reading = client.visit(Operation::Read { extent, buffer: Buffer::reserved(8192, 512) });
    meet(&mut client, &mut target);
    let read = done(&reading);
    assert_eq!(client.memory.bytes(&read), bytes);
    client.memory.release(read);
    // A sector a frame, which is what the virtual link carries; from where it lies, behind what was
    // put in front.
    for host in [&client, &target] {
        let with_data: Vec<&OutFrame> =
            host.shapes.iter().filter(|frame| frame.data_length > 0).collect();
        assert_eq!(with_data.len(), 16);
        let is_carried = |frame: &&OutFrame| {
            let prefix = frame.prefix_length as usize;
            (frame.link, frame.data_length) == (LINK, 512) && prefix >= 16 + around.len()
        };
        assert!(with_data.iter().all(is_carried), "{with_data:?}");
        let (shard, memory) = (&host.shards[0], &host.memory);
        assert_eq!((memory.held(), shard.pages_used()), (0, 0));
    }
    // Without the real link there is no virtual one, and with it there is again.
    target.tell(0, Event::LinkDown { link: LINK });
    let reading = client.visit(Operation::Read { extent, buffer: Buffer::reserved(8192, 512) });
    meet(&mut client, &mut target);
    assert!(reading.lock().unwrap().is_none());
    target.raise(TARGET, 0);
    meet(&mut client, &mut target);
    while client.shards[0].in_flight() > 0 {
        client.pass();
        meet(&mut client, &mut target);
    }
    let read = done(&reading);
    assert_eq!(client.memory.bytes(&read), bytes);
    client.memory.release(read);
}

/// Carries nothing, and says hello on a link every second, by one batch.
#[derive(Debug)]
struct Hello {
    link: Option<(LinkId, LinkFacts)>,
    next_at: Instant,
    batch: Option<FrameBatch>,
    is_due: bool,
}

impl VirtualLinks for Hello {
    fn handle_link(&mut self, _: Instant, link: LinkId, facts: Option<LinkFacts>) {
        self.link = facts.map(|facts| (link, facts));
    }

    fn poll_link(&mut self) -> Option<(LinkId, Option<LinkFacts>)> {
        None
    }

    fn takes(&self, _: LinkId) -> bool {
        false
    }

    fn receive<'a>(&mut self, _: Instant, _: &InFrame<'a>) -> Option<InFrame<'a>> {
        unreachable!("it takes nothing")
    }

    fn encapsulate(&mut self, _: Instant, _: &mut FrameBatch, _: &dyn Memory) {}

    fn poll_batch(&mut self) -> Option<FrameBatch> {
        let (link, facts) = self.link.filter(|_| core::mem::take(&mut self.is_due))?;
        let mut batch = self.batch.take().expect("the last one came back");
        batch.clear();
        batch.push(&facts, &Station::all(link), Pseudowire::ETHER_TYPE, b"hello");
        Some(batch)
    }

    fn handle_sent(&mut self, batch: FrameBatch) {
        self.batch = Some(batch);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        (self.next_at, self.is_due) = (now + Duration::from_secs(1), true);
    }
}

#[test]
fn who_carries_virtual_links_has_timers_and_frames_of_its_own() {
    let mut host = Host::new(ONE, 1);
    let (next_at, batch) = (host.now + Duration::from_secs(1), Some(FrameBatch::default()));
    let hello = Hello { link: None, next_at, batch, is_due: false };
    host.order_one(0, 1, Order::SetVirtualLinks(Box::new(hello)));
    assert_eq!((host.answers(), host.sent.len()), (vec!["Done".to_owned()], 0));
    for second in 1..4 {
        host.pass();
        assert_eq!(host.now, Instant(1_000_000) + Duration::from_secs(second));
        assert_eq!(answer(&mut host)[12..19], *b"\x88\xb5hello");
    }
}
