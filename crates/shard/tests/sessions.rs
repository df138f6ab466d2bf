//! Sessions of a shard: which connections are served, and which are turned away.

use core::time::Duration;

use block::limits::DISK_STUCK;
use block::{BlockCount, BlockSize, ByteCount, DiskId, Instant, ShardId, VolumeId};
use contract::{Ask, ConnectionId, DiskFacts, Effect, Endpoint, Event, ListenerId, Machine};
use nvme::subsystem::{Hosts, Namespace, Subsystem};
use reservation::Reservation;
use shard::report::ShardCounters;
use shard::{Export, Mail, Order, Protocol, Settings, Shard};
use testkit::Pages;
use testkit::nvme::{Said, capsule, configure, connect, hear, nqn};
use testkit::pipe::bytes_of;
use volume::{Layout, Member};
use wire::nvme::Command;
use wire::nvme::fabrics::ConnectData;
use wire::nvme_tcp::{Digests, ICReq};

const LISTENER: ListenerId = ListenerId(3);
const NOW: Instant = Instant(1_000_000);
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:test";
const DISK: DiskId = DiskId(0);
const SIZE: u64 = 1 << 20;

struct World {
    shard: Shard,
    memory: Pages,
    now: Instant,
    /// What was said on connections.
    sent: Vec<u8>,
    /// What disks were asked; nothing of it is answered.
    below: Vec<Ask>,
}

impl World {
    fn new() -> World {
        let settings =
            Settings { shard: ShardId(0), shards: 1, pages: 4096, seed: 5, secret: [7; 32] };
        World {
            shard: Shard::new(Instant::ZERO, settings),
            memory: Pages::default(),
            now: NOW,
            sent: Vec::new(),
            below: Vec::new(),
        }
    }

    /// Tells the shard something; what it wants of its driver's connections then, and whether the
    /// peer is to be heard before they close.
    fn tell(&mut self, event: Event<Mail>) -> Vec<(ConnectionId, bool)> {
        self.shard.handle_event(self.now, event, &mut self.memory);
        self.settle()
    }

    fn settle(&mut self) -> Vec<(ConnectionId, bool)> {
        let mut closes = Vec::new();
        loop {
            self.shard.settle(self.now, &mut self.memory);
            self.shard.take_requests(&mut self.below);
            let Some(effect) = self.shard.poll_effect() else { return closes };
            match effect {
                Effect::Close { connection, after_send } => closes.push((connection, after_send)),
                Effect::Send { connection, batch } => {
                    self.sent.extend(bytes_of(&batch, &self.memory));
                    let sent = Event::Sent { connection, batch };
                    self.shard.handle_event(self.now, sent, &mut self.memory);
                }
                Effect::Mail { to: ShardId::CONTROL, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Says something on a connection, which stays; what is answered.
    fn say(&mut self, slot: u32, bytes: &[u8]) -> Vec<Said> {
        let receive = self.shard.handle_received(self.now, id(slot), bytes, &mut self.memory);
        assert_eq!((receive.consumed, self.settle()), (bytes.len(), Vec::new()));
        let (sent, mut at) = (core::mem::take(&mut self.sent), 0);
        let mut said = Vec::new();
        while at < sent.len() {
            let (pdu, length) = hear(&sent[at..], Digests::NONE);
            said.push(pdu);
            at += length;
        }
        said
    }

    /// Connects a queue of a controller, or of a new one; its CNTLID.
    fn connect(&mut self, slot: u32, queue_id: u16, controller_id: u16) -> u16 {
        self.accept(slot);
        self.say(slot, &ICReq::new(Digests::NONE, 0).emit());
        let data = ConnectData {
            host_id: [7; 16],
            controller_id,
            subsystem: nqn(SUBSYSTEM),
            host: Some(nqn("nqn.2014-08.org.nvmexpress:uuid:1")),
        };
        let command = Command::connect(&connect(queue_id, 0));
        let said = self.say(slot, &capsule(command, &data.emit(), Digests::NONE));
        let entry = said[0].response();
        assert!(entry.status.is_success(), "{entry}");
        entry.result as u16
    }

    fn order(&mut self, order: Order) -> Vec<(ConnectionId, bool)> {
        let mail = Mail::Order { number: 7, order: Box::new(order) };
        self.tell(Event::Mail { from: ShardId::CONTROL, mail })
    }

    fn accept(&mut self, slot: u32) -> Vec<(ConnectionId, bool)> {
        let address = "127.0.0.1:4420".parse().expect("an address");
        let endpoint = Endpoint { listener: LISTENER, peer: address, local: address };
        self.tell(Event::Accepted { connection: id(slot), endpoint })
    }
}

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 9 }
}

#[test]
fn a_listener_says_what_its_connections_speak_before_it_listens() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, listening: Protocol::NvmeTcp.into() });
    assert_eq!(world.accept(0), []);
    assert_eq!(world.shard.report().connections.len(), 1);
}

#[test]
fn a_connection_of_a_listener_that_is_gone_is_turned_away_whatever_it_says() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, listening: Protocol::NvmeTcp.into() });
    assert_eq!(world.accept(0), []);
    assert_eq!(world.order(Order::RemoveListener(LISTENER)), [(id(0), true)]);
    assert_eq!(world.accept(1), [(id(1), false)]);
    // The driver may have had something for it before it was asked to close.
    let receive = world.shard.handle_received(world.now, id(1), b"late", &mut world.memory);
    assert_eq!(receive.consumed, 0);
    for slot in 0..2 {
        let closed = Event::Closed { connection: id(slot), direct: None, batch: None };
        assert_eq!(world.tell(closed), []);
    }
    let report = world.shard.report();
    assert_eq!(
        (report.connections.len(), report.counters),
        (0, ShardCounters { accepted: 2, misbehaved: 0 })
    );
}

#[test]
fn a_connection_that_comes_while_the_shard_drains_is_closed() {
    let mut world = World::new();
    world.order(Order::AddListener { listener: LISTENER, listening: Protocol::NvmeTcp.into() });
    assert_eq!(world.order(Order::Drain), []);
    assert_eq!(world.accept(0), [(id(0), true)]);
}

#[test]
fn a_disk_that_does_not_answer_fails_the_paths_of_hosts_that_use_it() {
    let mut world = World::new();
    let facts = DiskFacts::of_memory(ByteCount(SIZE));
    world.order(Order::AddDisk { disk: DISK, facts });
    let layout = Layout::single(Member { disk: DISK, base: 0, length: SIZE });
    let (volume, reservation) = (VolumeId(1), Reservation::default());
    world.order(Order::AddVolume { volume, layout, reservation });
    let namespace = Namespace {
        nsid: 1,
        volume,
        uuid: [1; 16],
        block_size: BlockSize::B512,
        blocks: BlockCount(SIZE / 512),
        read_only: false,
        cache_volatile: false,
        discards: false,
        discard_zeroes: false,
        physical_block: 512,
    };
    let subsystem = Subsystem::new(nqn(SUBSYSTEM), Hosts::Any).with_namespace(namespace);
    world.order(Order::SetExport(Export::Nvme(Box::new(subsystem))));
    world.order(Order::ConfigurationComplete);
    world.order(Order::AddListener { listener: LISTENER, listening: Protocol::NvmeTcp.into() });
    let controller = world.connect(0, 0, ConnectData::CONTROLLER_ANY);
    world.say(0, &capsule(configure(true, 0), &[], Digests::NONE));
    world.connect(1, 1, controller);
    world.say(1, &capsule(Command::read(1, 0, 1, 512), &[], Digests::NONE));
    assert_eq!(world.below.len(), 1);
    let stuck = world.now + DISK_STUCK;
    let mut closes = Vec::new();
    while closes.is_empty() {
        let at = world.shard.poll_timeout().expect("it waits for something");
        world.now = world.now.max(at);
        assert!(world.now < stuck + Duration::from_secs(60), "its hosts wait on");
        world.shard.handle_timeout(world.now, &mut world.memory);
        closes = world.settle();
    }
    closes.sort_unstable_by_key(|(connection, _)| connection.slot);
    let connections: Vec<ConnectionId> = closes.iter().map(|(connection, _)| *connection).collect();
    assert_eq!((connections, world.now), (vec![id(0), id(1)], stuck));
}
