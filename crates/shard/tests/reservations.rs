//! Reservations through whole shards: a host that NVMe fences is fenced on every shard when the one
//! who fenced it is answered.
//!
//! Two shards, a host on each, one volume. The test answers for the disk, stores values, and carries
//! the mail.

use std::collections::VecDeque;

use block::{
    BlockCount, BlockSize, ByteCount, DiskId, Instant, Outcome, Request, ShardId, VolumeId,
};
use contract::{ConnectionId, DiskFacts, Effect, Endpoint, Event, ListenerId, Machine};
use nvme::subsystem::{Hosts, Namespace, Subsystem};
use reservation::Reservation;
use shard::{Export, Mail, News, Order, Protocol, Settings, Shard};
use testkit::nvme::{Said, capsule, configure, connect, hear, host_data, nqn};
use testkit::pipe::bytes_of;
use testkit::{Pages, perform};
use volume::{Layout, Member};
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::reservation::{
    AcquireAction, ChangePersist, RegisterAction, ReservationKeys, ReservationType,
};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{Digests, ICReq};

const LISTENER: ListenerId = ListenerId(3);
const NOW: Instant = Instant(1_000_000);
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:test";
const DISK: DiskId = DiskId(0);
const VOLUME: VolumeId = VolumeId(1);
const SIZE: u64 = 1 << 20;
const ADMIN: u32 = 0;
const IO: u32 = 1;
/// The hosts, by their shards.
const A: usize = 0;
const B: usize = 1;
const WE: ReservationType = ReservationType::WRITE_EXCLUSIVE;

struct World {
    shards: Vec<(Shard, Pages)>,
    disk: Vec<u8>,
    mail: VecDeque<(ShardId, usize, Mail)>,
    /// Whether requests below wait for the test.
    slow: bool,
    below: Vec<(usize, Request)>,
    /// What was said on each connection.
    sent: Vec<[Vec<u8>; 2]>,
}

impl World {
    /// Both hosts are connected and registered, under the keys 7 and 9, and the first holds.
    fn new() -> World {
        let shard = |number| {
            let (shard, shards) = (ShardId(number), 2);
            let settings = Settings { shard, shards, pages: 4096, seed: 5, secret: [7; 32] };
            (Shard::new(Instant::ZERO, settings), Pages::default())
        };
        let mut world = World {
            shards: (0..2).map(shard).collect(),
            disk: vec![0; SIZE as usize],
            mail: VecDeque::new(),
            slow: false,
            below: Vec::new(),
            sent: vec![<[Vec<u8>; 2]>::default(); 2],
        };
        world.serve();
        for host in [A, B] {
            let controller = world.connect(host, ADMIN, ConnectData::CONTROLLER_ANY);
            world.say(host, ADMIN, &capsule(configure(true, 0), &[], Digests::NONE));
            assert!(world.status(host, ADMIN).is_success());
            world.connect(host, IO, controller);
            let register = RegisterAction::REGISTER;
            let command = Command::reservation_register(1, register, ChangePersist::KEEP);
            world.tell_keys(host, command, 0, [7, 9][host]);
            assert_eq!(world.status(host, IO), Status::SUCCESS);
        }
        world.tell_keys(A, Command::reservation_acquire(1, AcquireAction::ACQUIRE, WE), 7, 0);
        assert_eq!(world.status(A, IO), Status::SUCCESS);
        world
    }

    fn serve(&mut self) {
        let facts = DiskFacts::of_memory(ByteCount(SIZE));
        self.order(|| Order::AddDisk { disk: DISK, facts: facts.clone() });
        let layout = Layout::single(Member { disk: DISK, base: 0, length: SIZE });
        self.order(|| {
            let (layout, reservation) = (layout.clone(), Reservation::default());
            Order::AddVolume { volume: VOLUME, layout, reservation }
        });
        let namespace = Namespace {
            nsid: 1,
            volume: VOLUME,
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
        self.order(|| Order::SetExport(Export::Nvme(Box::new(subsystem.clone()))));
        self.order(|| Order::ConfigurationComplete);
        self.order(|| {
            let listening = Protocol::NvmeTcp.into();
            Order::AddListener { listener: LISTENER, listening }
        });
    }

    fn order(&mut self, order: impl Fn() -> Order) {
        for shard in 0..self.shards.len() {
            let mail = Mail::Order { number: 7, order: Box::new(order()) };
            self.mail.push_back((ShardId::CONTROL, shard, mail));
        }
        self.carry();
    }

    fn tell(&mut self, shard: usize, event: Event<Mail>) {
        let (machine, memory) = &mut self.shards[shard];
        machine.handle_event(NOW, event, memory);
        self.turn(shard);
    }

    fn carry(&mut self) {
        while let Some((from, to, mail)) = self.mail.pop_front() {
            self.tell(to, Event::Mail { from, mail });
        }
    }

    /// Settles a shard and does what it wants; mail waits for [`carry`](Self::carry).
    fn turn(&mut self, shard: usize) {
        loop {
            let (machine, memory) = &mut self.shards[shard];
            machine.settle(NOW, memory);
            let mut asks = Vec::new();
            machine.take_requests(&mut asks);
            let mut events = Vec::new();
            for (_, request) in asks {
                match self.slow {
                    true => self.below.push((shard, request)),
                    false => {
                        let done = perform(&mut self.disk, request, Outcome::Done, memory);
                        events.push(Event::Completed(done));
                    }
                }
            }
            while let Some(effect) = machine.poll_effect() {
                match effect {
                    Effect::Send { connection, batch } => {
                        let sent = &mut self.sent[shard][connection.slot as usize];
                        sent.extend(bytes_of(&batch, memory));
                        events.push(Event::Sent { connection, batch });
                    }
                    Effect::Mail { to: ShardId::CONTROL, mail: Mail::News(news) } => {
                        if let News::Store { key, version, .. } = *news {
                            let stored = Mail::Stored { key, version, stored: true };
                            self.mail.push_back((ShardId::CONTROL, shard, stored));
                        }
                    }
                    Effect::Close { connection, .. } => {
                        let (direct, batch) = (None, None);
                        events.push(Event::Closed { connection, direct, batch });
                    }
                    Effect::Mail { to: ShardId::CONTROL, .. } => {}
                    Effect::Mail { to, mail } => {
                        self.mail.push_back((ShardId(shard as u16), to.index(), mail));
                    }
                    other => panic!("{other:?}"),
                }
            }
            if events.is_empty() {
                return;
            }
            for event in events {
                machine.handle_event(NOW, event, memory);
            }
        }
    }

    /// Lets the disk answer what waits.
    fn answer_below(&mut self) {
        for (shard, request) in core::mem::take(&mut self.below) {
            let memory = &mut self.shards[shard].1;
            let completion = perform(&mut self.disk, request, Outcome::Done, memory);
            self.tell(shard, Event::Completed(completion));
        }
        self.carry();
    }

    fn say(&mut self, host: usize, slot: u32, bytes: &[u8]) {
        let (machine, memory) = &mut self.shards[host];
        let receive = machine.handle_received(NOW, id(slot), bytes, memory);
        assert_eq!(receive.consumed, bytes.len());
        self.turn(host);
        self.carry();
    }

    fn said(&mut self, host: usize, slot: u32) -> Vec<Said> {
        let (sent, mut at) = (core::mem::take(&mut self.sent[host][slot as usize]), 0);
        let mut said = Vec::new();
        while at < sent.len() {
            let (pdu, length) = hear(&sent[at..], Digests::NONE);
            said.push(pdu);
            at += length;
        }
        said
    }

    /// The status of the only answer.
    fn status(&mut self, host: usize, slot: u32) -> Status {
        let said = self.said(host, slot);
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].response().status
    }

    /// Connects a queue of a controller, or of a new one; its CNTLID.
    fn connect(&mut self, host: usize, slot: u32, controller_id: u16) -> u16 {
        let address = "127.0.0.1:4420".parse().expect("an address");
        let endpoint = Endpoint { listener: LISTENER, peer: address, local: address };
        self.tell(host, Event::Accepted { connection: id(slot), endpoint });
        self.say(host, slot, &ICReq::new(Digests::NONE, 0).emit());
        self.said(host, slot);
        let data = ConnectData {
            host_id: [host as u8 + 1; 16],
            controller_id,
            subsystem: nqn(SUBSYSTEM),
            host: Some(nqn(&format!("nqn.2014-08.org.nvmexpress:uuid:{host}"))),
        };
        let command = Command::connect(&connect(slot as u16, 0));
        self.say(host, slot, &capsule(command, &data.emit(), Digests::NONE));
        let said = self.said(host, slot);
        assert!(said[0].status().is_success(), "{said:?}");
        said[0].response().result as u16
    }

    fn command(&mut self, host: usize, slot: u32, command: Command, data: &[u8]) {
        let length = data.len() as u32;
        let command = match length {
            0 => command,
            _ => command.with_sgl(SglDescriptor::in_capsule(length)),
        };
        self.say(host, slot, &capsule(command, data, Digests::NONE));
    }

    /// A command about the reservation, with its keys.
    fn tell_keys(&mut self, host: usize, command: Command, current: u64, other: u64) {
        let keys = ReservationKeys { current, other }.emit();
        self.command(host, IO, command.with_command_id(50), &keys);
    }

    /// The second host takes the reservation over.
    fn fence(&mut self, action: AcquireAction) {
        self.tell_keys(B, Command::reservation_acquire(1, action, WE), 9, 7);
    }
}

fn id(slot: u32) -> ConnectionId {
    ConnectionId { slot, generation: 9 }
}

fn write(lba: u64, command_id: u16) -> Command {
    Command::write(1, lba, 1, 512).with_command_id(command_id)
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();

#[test]
fn a_host_that_fences_another_is_answered_once_nothing_of_that_is_below() {
    for action in [AcquireAction::PREEMPT, AcquireAction::PREEMPT_AND_ABORT] {
        let mut world = World::new();
        world.command(A, ADMIN, Command::async_event_request().with_command_id(3), &[]);
        world.slow = true;
        world.command(A, IO, write(0, 1), &[1; 512]);
        assert_eq!(world.below.len(), 1);
        world.fence(action);
        assert!(world.said(B, IO).is_empty(), "a write of the other is below on its shard");
        // Nothing new of it goes below meanwhile, and it has been told.
        world.command(A, IO, write(0, 2), &[2; 512]);
        assert_eq!((world.status(A, IO), world.below.len()), (CONFLICT, 1));
        let event = world.said(A, ADMIN).remove(0).response();
        let told = AsyncEvent::RESERVATION_NOTIFICATION.to_result();
        assert_eq!((event.command_id, event.result), (3, told.into()));
        world.answer_below();
        assert_eq!(world.status(A, IO), Status::SUCCESS, "it was done before");
        assert_eq!(world.status(B, IO), Status::SUCCESS);
        world.slow = false;
        world.command(B, IO, write(0, 1), &[3; 512]);
        assert_eq!((world.status(B, IO), &world.disk[..512]), (Status::SUCCESS, &[3; 512][..]));
        world.command(A, IO, write(0, 3), &[4; 512]);
        assert_eq!((world.status(A, IO), &world.disk[..512]), (CONFLICT, &[3; 512][..]));
    }
}

#[test]
fn commands_that_are_ended_are_awaited_even_if_the_reservation_allows_them() {
    for (action, is_awaited) in
        [(AcquireAction::PREEMPT, false), (AcquireAction::PREEMPT_AND_ABORT, true)]
    {
        let mut world = World::new();
        world.slow = true;
        world.command(A, IO, Command::read(1, 0, 1, 512).with_command_id(1), &[]);
        world.fence(action);
        assert_eq!(world.said(B, IO).is_empty(), is_awaited, "{action}");
        world.answer_below();
        assert_eq!(world.said(B, IO).is_empty(), !is_awaited, "{action}");
    }
}

#[test]
fn what_waits_for_its_data_when_its_host_is_fenced_goes_nowhere() {
    for (action, status) in
        [(AcquireAction::PREEMPT, CONFLICT), (AcquireAction::PREEMPT_AND_ABORT, Status::PREEMPTED)]
    {
        let mut world = World::new();
        world.command(A, IO, write(0, 1), &[]);
        let r2t = world.said(A, IO).remove(0).r2t();
        world.fence(action);
        assert_eq!(world.status(B, IO), Status::SUCCESS, "nothing is below");
        world.say(A, IO, &host_data(&r2t, 0, &[1; 512], true, Digests::NONE));
        assert_eq!((world.status(A, IO), &world.disk[..512]), (status, &[0; 512][..]));
    }
}

#[test]
fn a_host_that_leaves_before_it_is_answered_leaves_nothing_behind() {
    let mut world = World::new();
    world.slow = true;
    world.command(A, IO, write(0, 1), &[1; 512]);
    world.fence(AcquireAction::PREEMPT);
    for slot in [ADMIN, IO] {
        let connection = id(slot);
        world.tell(B, Event::Lost { connection, loss: contract::Loss::EndOfStream });
    }
    world.slow = false;
    world.answer_below();
    assert_eq!(world.status(A, IO), Status::SUCCESS);
    // It was made all the same.
    world.command(A, IO, write(0, 2), &[2; 512]);
    assert_eq!(world.status(A, IO), CONFLICT);
    for (shard, memory) in &world.shards {
        assert_eq!((shard.pages_used(), memory.held(), shard.in_flight()), (0, 0, 0));
    }
}
