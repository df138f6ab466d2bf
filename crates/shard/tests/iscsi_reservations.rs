//! Reservations and paths of hosts with sessions, through two whole shards: what is answered on one of
//! them holds on the other.
//!
//! A small world: one volume under two LUNs, a disk that answers when it is told to, mail that is
//! carried in order, a control thread that stores at once.

use std::collections::VecDeque;

use block::{BlockCount, BlockSize, ByteCount, Instant, Outcome, Request, ShardId, VolumeId};
use contract::{
    Ask, ConnectionId, DiskFacts, DiskId, Effect, Endpoint, Event, ListenerId, Machine, Next,
};
use iscsi::target::{Hosts, LogicalUnit, ModeState, Portal, Target, Unit};
use reservation::{PathGroup, PathState, Reservation};
use shard::{Answer, Export, Listening, Mail, News, Order, Settings, Shard};
use testkit::iscsi::host::{Host, Order as Asked};
use testkit::iscsi::{Said, name};
use testkit::pipe::bytes_of;
use testkit::{Pages, perform};
use volume::{Layout, Member};
use wire::scsi::alua::{AccessState, SetPortGroups};
use wire::scsi::persistent::{ReservationType, ReserveOut};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, ServiceAction};

/// The listener by which the first shard's host comes; the other's comes by the next, of group 2.
const LISTENER: ListenerId = ListenerId(3);
const NOW: Instant = Instant(1_000_000);
const TARGET: &str = "iqn.2026-11.net.plateway:test";
const DISK: DiskId = DiskId(0);
const VOLUME: VolumeId = VolumeId(1);
const SIZE: u64 = 1 << 20;

const REGISTER: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_REGISTER;
const RESERVE: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_RESERVE;
const PREEMPT: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT;
const ABORT: ServiceAction = ServiceAction::PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT;

/// A shard with one connection.
struct Part {
    shard: Shard,
    memory: Pages,
    host: Host<()>,
    /// What came for the connection and was not taken.
    arrived: Vec<u8>,
}

struct World {
    parts: Vec<Part>,
    disk: Vec<u8>,
    mail: VecDeque<(ShardId, ShardId, Mail)>,
    /// Orders that were answered, by number.
    answered: Vec<u64>,
    /// Whether requests wait for the test.
    is_slow: bool,
    below: Vec<(usize, Request)>,
}

impl World {
    /// Two shards, with a session of a host on each.
    fn new() -> World {
        let part = |number: u16| {
            let settings = Settings {
                shard: ShardId(number),
                shards: 2,
                pages: 4096,
                seed: 5,
                secret: [7; 32],
            };
            let host = Host::new([0x80, 0, 0, 0, 0, number as u8], 1);
            let shard = Shard::new(Instant::ZERO, settings);
            Part { shard, memory: Pages::default(), host, arrived: Vec::new() }
        };
        let mut world = World {
            parts: (0..2).map(part).collect(),
            disk: vec![0; SIZE as usize],
            mail: VecDeque::new(),
            answered: Vec::new(),
            is_slow: false,
            below: Vec::new(),
        };
        world.serve();
        for at in 0..2 {
            world.log_in(at, at as u32);
        }
        world
    }

    fn serve(&mut self) {
        let facts = DiskFacts::of_memory(ByteCount(SIZE));
        self.order(|| Order::AddDisk { disk: DISK, facts: facts.clone() });
        let layout = Layout::single(Member { disk: DISK, base: 0, length: SIZE });
        self.order(|| Order::AddVolume {
            volume: VOLUME,
            layout: layout.clone(),
            reservation: Reservation::default(),
        });
        let unit = LogicalUnit {
            volume: VOLUME,
            uuid: [1; 16],
            block_size: BlockSize::B512,
            blocks: BlockCount(SIZE / 512),
            read_only: false,
            cache_volatile: false,
            discards: false,
            discard_zeroes: false,
            physical_block: 512,
            hosts_set_paths: true,
            mode: ModeState::default(),
        };
        let under = |lun| Unit { lun, hosts: Hosts::Any, unit: unit.clone() };
        let target = Target::new(name(TARGET)).with_unit(under(0)).with_unit(under(5));
        self.order(|| Order::SetExport(Export::Iscsi(Box::new(target.clone()))));
        self.order(|| Order::ConfigurationComplete);
        for number in 0..2 {
            let group = PathGroup::new(number + 1).expect("a group");
            let listener = ListenerId(LISTENER.0 + u32::from(number));
            let portal = Portal { group, ..Portal::default() };
            let listening = || Listening::Iscsi(Box::new(portal.clone()));
            self.order(|| Order::AddListener { listener, listening: listening() });
        }
    }

    fn order(&mut self, order: impl Fn() -> Order) {
        for at in 0..2 {
            let mail = Mail::Order { number: 7, order: Box::new(order()) };
            self.tell(at, Event::Mail { from: ShardId::CONTROL, mail });
        }
        self.run();
    }

    /// A host comes to a shard, by a connection of this number.
    fn log_in(&mut self, at: usize, number: u32) {
        let address = "127.0.0.1:3260".parse().expect("an address");
        let listener = ListenerId(LISTENER.0 + at as u32);
        let endpoint = Endpoint { listener, peer: address, local: address };
        self.tell(at, Event::Accepted { connection: id(number), endpoint });
        let host = format!("iqn.2026-11.net.plateway:host{at}");
        let keys = [("InitialR2T", "No"), ("MaxRecvDataSegmentLength", "262144")];
        let bytes = self.parts[at].host.log_in(&host, Some(TARGET), &keys, ());
        self.say(at, &bytes);
        assert!(self.hear(at)[0].login().is_success());
    }

    fn tell(&mut self, at: usize, event: Event<Mail>) {
        let Part { shard, memory, .. } = &mut self.parts[at];
        shard.handle_event(NOW, event, memory);
        self.turn(at);
    }

    /// Says something on the connection of a shard, and carries what follows.
    fn say(&mut self, at: usize, bytes: &[u8]) {
        let Part { shard, memory, arrived, .. } = &mut self.parts[at];
        arrived.extend_from_slice(bytes);
        let receive = shard.handle_received(NOW, id(at as u32), arrived, memory);
        assert!(!matches!(receive.next, Next::Direct(_)), "small data only");
        arrived.drain(..receive.consumed);
        self.turn(at);
        self.run();
    }

    /// Settles a shard and does what it wants; mail waits for [`run`](Self::run).
    fn turn(&mut self, at: usize) {
        loop {
            let Part { shard, memory, host, .. } = &mut self.parts[at];
            shard.settle(NOW, memory);
            let mut asks: Vec<Ask> = Vec::new();
            shard.take_requests(&mut asks);
            let mut events = Vec::new();
            while let Some(effect) = shard.poll_effect() {
                match effect {
                    Effect::Send { connection, batch } => {
                        host.hear(&bytes_of(&batch, memory));
                        events.push(Event::Sent { connection, batch });
                    }
                    Effect::Mail { to, mail } => {
                        self.mail.push_back((ShardId(at as u16), to, mail));
                    }
                    Effect::Close { connection, .. } => {
                        events.push(Event::Closed { connection, direct: None, batch: None });
                    }
                    Effect::Resume { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if asks.is_empty() && events.is_empty() {
                return;
            }
            if self.is_slow {
                self.below.extend(asks.drain(..).map(|(_, request)| (at, request)));
            }
            for (_, request) in asks {
                let done = perform(&mut self.disk, request, Outcome::Done, memory);
                events.push(Event::Completed(done));
            }
            for event in events {
                shard.handle_event(NOW, event, memory);
            }
        }
    }

    /// Carries all mail, in the order in which it was written.
    fn run(&mut self) {
        while let Some((from, to, mail)) = self.mail.pop_front() {
            match (to, mail) {
                (ShardId::CONTROL, Mail::News(news)) => {
                    if let News::Store { key, version, .. } = *news {
                        let mail = Mail::Stored { key, version, stored: true };
                        self.tell(from.index(), Event::Mail { from: ShardId::CONTROL, mail });
                    }
                }
                (ShardId::CONTROL, Mail::Answer { number, answer }) => {
                    assert!(matches!(*answer, Answer::Done), "{answer:?}");
                    self.answered.push(number);
                }
                (ShardId::CONTROL, _) => {}
                (to, mail) => self.tell(to.index(), Event::Mail { from, mail }),
            }
        }
    }

    /// Lets the disk answer what waits.
    fn answer_below(&mut self) {
        for (at, request) in core::mem::take(&mut self.below) {
            let memory = &mut self.parts[at].memory;
            let completion = perform(&mut self.disk, request, Outcome::Done, memory);
            self.tell(at, Event::Completed(completion));
        }
        self.run();
    }

    fn hear(&mut self, at: usize) -> Vec<Said> {
        let host = &mut self.parts[at].host;
        core::iter::from_fn(|| host.next().expect("nothing is wrong with it"))
            .map(|heard| heard.said)
            .collect()
    }

    /// Asks a shard; what is answered at once.
    fn ask(&mut self, at: usize, asked: Asked, data: &[u8]) -> Vec<Said> {
        let (_, bytes) = self.parts[at].host.command(asked, data, ());
        self.say(at, &bytes);
        self.hear(at)
    }

    /// A command without data; its status.
    fn plain(&mut self, at: usize, opcode: OpCode) -> ScsiStatus {
        self.ask(at, Asked::new(0, Cdb::new(opcode)), &[])[0].status()
    }

    /// PERSISTENT RESERVE OUT on a shard; what is answered at once.
    fn out(&mut self, at: usize, action: ServiceAction, keys: (u64, u64)) -> Vec<Said> {
        let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS.0;
        let list = ReserveOut { key: keys.0, action_key: keys.1, ..ReserveOut::default() }.emit();
        let cdb = Cdb::persistent_reserve_out(action, kind, list.len() as u32);
        self.ask(at, Asked::write(0, cdb, list.len() as u32), &list)
    }

    /// Both hosts are registered: the first under 5, which holds the volume, the other under 6.
    fn both_registered(&mut self) {
        for (at, key) in [(0, 5), (1, 6)] {
            assert_eq!(self.out(at, REGISTER, (0, key))[0].status(), ScsiStatus::GOOD);
        }
        assert_eq!(self.out(0, RESERVE, (5, 0))[0].status(), ScsiStatus::GOOD);
    }

    /// A write of the first host, forced to the media; what is answered at once.
    fn write(&mut self, byte: u8) -> Vec<Said> {
        let asked = Asked::write(0, Cdb::write_10(0, 1, true), 512);
        self.ask(0, asked, &[byte; 512])
    }
}

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 9 }
}

#[test]
fn nothing_of_a_preempted_host_reaches_the_media_once_that_is_answered() {
    for action in [PREEMPT, ABORT] {
        let mut world = World::new();
        world.both_registered();
        world.is_slow = true;
        assert!(world.write(7).is_empty());
        assert_eq!(world.below.len(), 1);
        // It is below, so the other waits.
        assert!(world.out(1, action, (6, 5)).is_empty());
        // What comes now finds the new reservation in force already.
        let told = world.write(8);
        assert_eq!(told[0].sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
        assert_eq!(world.write(8)[0].status(), ScsiStatus::RESERVATION_CONFLICT);
        assert!(world.hear(1).is_empty());
        world.answer_below();
        assert_eq!(world.hear(1)[0].status(), ScsiStatus::GOOD);
        let answers = world.hear(0);
        assert_eq!(answers.len(), usize::from(action == PREEMPT), "aborted tasks are not answered");
        assert!(world.below.is_empty() && world.disk[..512] == [7; 512]);
        // On its other LUN it is told as well.
        let other = world.ask(0, Asked::new(5, Cdb::test_unit_ready()), &[]);
        assert_eq!(other[0].sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
        assert_eq!(world.write(9)[0].status(), ScsiStatus::RESERVATION_CONFLICT);
        assert!(world.below.is_empty());
    }
}

#[test]
fn a_host_that_may_write_after_it_was_preempted_loses_what_it_had_begun() {
    // Nobody holds the volume, so that nothing but the abort ends its commands.
    let mut world = World::new();
    for (at, key) in [(0, 5), (1, 6)] {
        assert_eq!(world.out(at, REGISTER, (0, key))[0].status(), ScsiStatus::GOOD);
    }
    world.is_slow = true;
    assert!(world.write(7).is_empty());
    let r2t = world.ask(0, Asked::write(0, Cdb::write_10(8, 32, true), 16_384), &[]);
    let r2t = r2t[0].r2t();
    assert!(world.out(1, ABORT, (6, 5)).is_empty(), "something of it is below");
    let late = world.parts[0].host.give_all(&r2t, &[8; 16_384], 4096);
    world.say(0, &late);
    assert_eq!(world.below.len(), 1, "nothing of it went below");
    world.answer_below();
    assert_eq!(world.hear(1)[0].status(), ScsiStatus::GOOD);
    assert!(world.hear(0).is_empty());
    assert!(world.disk[..512] == [7; 512] && world.disk[4096..20_480].iter().all(|&b| b == 0));
}

#[test]
fn a_preempted_host_that_goes_on_asking_keeps_nobody_waiting() {
    // Nobody holds the volume, so that it may go on.
    let mut world = World::new();
    for (at, key) in [(0, 5), (1, 6)] {
        assert_eq!(world.out(at, REGISTER, (0, key))[0].status(), ScsiStatus::GOOD);
    }
    world.is_slow = true;
    assert!(world.write(7).is_empty());
    assert!(world.out(1, ABORT, (6, 5)).is_empty());
    let told = world.write(8);
    assert_eq!(told[0].sense().code, AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert!(world.write(8).is_empty());
    assert_eq!(world.below.len(), 2);
    // What was ended comes back; what began since stays below.
    let newer = world.below.split_off(1);
    world.answer_below();
    assert_eq!(world.hear(1)[0].status(), ScsiStatus::GOOD);
    world.below = newer;
    world.answer_below();
    assert_eq!(world.hear(0)[0].status(), ScsiStatus::GOOD);
}

#[test]
fn a_volume_that_a_session_has_on_one_shard_is_everybodys_when_it_is_gone() {
    let mut world = World::new();
    assert_eq!(world.plain(0, OpCode::RESERVE_6), ScsiStatus::GOOD);
    assert_eq!(world.plain(1, OpCode::TEST_UNIT_READY), ScsiStatus::RESERVATION_CONFLICT);
    assert_eq!(world.plain(1, OpCode::RESERVE_6), ScsiStatus::RESERVATION_CONFLICT);
    let (_, bytes) = world.parts[0].host.logout(wire::iscsi::LogoutReason::CLOSE_SESSION, ());
    world.say(0, &bytes);
    assert!(matches!(world.hear(0)[..], [Said::Logout(_)]));
    assert_eq!(world.plain(1, OpCode::RESERVE_6), ScsiStatus::GOOD);
}

/// The groups of the first host's listener and of the other's.
fn closes_first() -> Vec<u8> {
    SetPortGroups(vec![(1, AccessState::STANDBY)]).emit()
}

#[test]
fn nothing_that_came_by_a_path_is_below_once_it_is_closed() {
    let mut world = World::new();
    world.is_slow = true;
    assert!(world.write(7).is_empty());
    assert_eq!(world.below.len(), 1);
    // The other host closes the path of the first: its write is below, so it waits.
    let list = closes_first();
    let mut cdb = Cdb::with_action(ServiceAction::SET_TARGET_PORT_GROUPS);
    cdb.0[9] = list.len() as u8;
    assert!(world.ask(1, Asked::write(0, cdb, list.len() as u32), &list).is_empty());
    // What comes now finds it closed already.
    let told = world.write(8);
    assert_eq!(told[0].sense().code, AdditionalSense::ASYMMETRIC_ACCESS_CHANGED);
    assert_eq!(world.write(8)[0].sense().code, AdditionalSense::ALUA_STANDBY);
    assert!(world.hear(1).is_empty());
    world.answer_below();
    assert_eq!(world.hear(1)[0].status(), ScsiStatus::GOOD);
    assert_eq!(world.hear(0)[0].status(), ScsiStatus::GOOD, "it had begun before");
    assert!(world.below.is_empty() && world.disk[..512] == [7; 512]);
    world.is_slow = false;
    assert_eq!(world.plain(1, OpCode::TEST_UNIT_READY), ScsiStatus::GOOD);
}

#[test]
fn an_administrator_is_answered_when_nothing_is_below_on_any_shard() {
    let mut world = World::new();
    world.is_slow = true;
    assert!(world.write(7).is_empty());
    world.answered.clear();
    let first = PathGroup::DEFAULT;
    world.order(|| Order::SetPaths(vec![(first, PathState::Unavailable)]));
    assert_eq!(world.answered, [7], "of the shard that does not decide");
    world.answer_below();
    assert_eq!(world.answered, [7, 7]);
    // And with nothing below at once, also where it changes nothing.
    for _ in 0..2 {
        world.answered.clear();
        world.order(|| Order::SetPaths(vec![(first, PathState::Optimized)]));
        assert_eq!(world.answered, [7, 7]);
    }
    world.hear(0);
    let told = world.write(8);
    assert_eq!(told[0].sense().code, AdditionalSense::ASYMMETRIC_ACCESS_CHANGED);
    assert!(world.write(8).is_empty() && world.below.len() == 1);
    world.answer_below();
}
