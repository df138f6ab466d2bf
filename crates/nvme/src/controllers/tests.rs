//! A world of shards for tests: mail that is delivered when told to, a clock turned by hand, and
//! hosts that speak in whole commands.

use std::collections::{BTreeMap, VecDeque};

use block::random::Random;
use block::{BlockCount, Instant, MachineId, ShardId, VolumeId};
use core::time::Duration;
use reservation::{InForce, Paths};
use wire::nvme::fabrics::{Connect, ConnectAttributes, ConnectData, Register};
use wire::nvme::{Command, Nqn, Status};

use super::{
    Answer, CloseReason, ConnectionEvent, ControllerState, Controllers, Host, MachineKey, Message,
    QueueView, Reply,
};
use crate::fixtures::{self, SUBSYSTEM, endpoint, nqn};
use crate::subsystem::{Hosts, Namespace, Subsystem};

mod admin;
mod connect;
mod events;
mod identify;
mod identity;
mod keep_alive;
mod notifications;
mod shards;
mod state;

/// A second subsystem.
const OTHER: &str = "nqn.2026-11.net.plateway:other";
/// CC as Linux writes it to enable.
const ENABLE: u32 = 0x0046_0061;
const READY: u64 = 1;
const FATAL: u64 = 2;

fn host(number: u8) -> Host {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:host-{number}");
    Host { nqn: nqn(&name), id: [number; 16] }
}

fn namespace(nsid: u32) -> Namespace {
    fixtures::namespace(nsid, nsid, 1 << 20)
}

fn durable(nsid: u32) -> Namespace {
    Namespace { cache_volatile: false, ..namespace(nsid) }
}

/// A connection of a host, and what it became.
#[derive(Clone, Copy, Debug)]
struct Line {
    shard: u16,
    key: MachineKey,
}

/// What a Connect asks for; `Default` is an admin queue of host 1.
#[derive(Clone, Debug)]
struct Ask {
    shard: u16,
    queue_id: u16,
    sq_size: u16,
    keep_alive_ms: u32,
    record_format: u16,
    controller: u16,
    subsystem: String,
    host: Host,
    /// Whether HOSTNQN is left empty.
    nameless: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Ask {
            shard: 0,
            queue_id: 0,
            sq_size: 31,
            keep_alive_ms: 0,
            record_format: 0,
            controller: ConnectData::CONTROLLER_ANY,
            subsystem: SUBSYSTEM.into(),
            host: host(1),
            nameless: false,
        }
    }
}

impl Ask {
    fn io(shard: u16, controller: u16, queue_id: u16) -> Self {
        Ask { shard, controller, queue_id, sq_size: 127, ..Ask::default() }
    }

    fn command(&self) -> Command {
        let connect = Connect {
            record_format: self.record_format,
            queue_id: self.queue_id,
            sq_size: self.sq_size,
            attributes: ConnectAttributes(4),
            keep_alive_ms: self.keep_alive_ms,
        };
        Command::connect(&connect).with_command_id(7)
    }

    fn data(&self) -> [u8; ConnectData::SIZE] {
        let data = ConnectData {
            host_id: self.host.id,
            controller_id: self.controller,
            subsystem: nqn(&self.subsystem),
            host: (!self.nameless).then(|| self.host.nqn.clone()),
        };
        data.emit()
    }
}

struct World {
    now: Instant,
    shards: Vec<Controllers>,
    /// [`SUBSYSTEM`], as it is exported.
    subsystem: Subsystem,
    /// First in, first out between two shards, and no order beyond that.
    mail: BTreeMap<(u16, u16), VecDeque<Message>>,
    replies: Vec<(MachineKey, Reply)>,
    closes: Vec<(MachineKey, CloseReason)>,
    flushes: Vec<(MachineKey, VolumeId)>,
    /// What became of changes of reservations: the slot that asked, and the status.
    decided: Vec<(MachineKey, u16, Status)>,
    preempted: Vec<(MachineKey, VolumeId)>,
    /// What is in force of reservations.
    reservations: InForce,
    connections: u32,
}

impl World {
    /// `shards` shards that export [`SUBSYSTEM`] with namespace 1 to every host.
    fn new(shards: u16) -> World {
        let now = Instant(1_000_000_000);
        let controllers = |shard| Controllers::new(now, ShardId(shard), shards);
        let mut world = World {
            now,
            shards: (0..shards).map(controllers).collect(),
            subsystem: fixtures::subsystem([namespace(1)]),
            mail: BTreeMap::new(),
            replies: Vec::new(),
            closes: Vec::new(),
            flushes: Vec::new(),
            decided: Vec::new(),
            preempted: Vec::new(),
            reservations: InForce::default(),
            connections: 0,
        };
        world.change(|_| ());
        world.configure(|controllers, _| controllers.configuration_complete());
        world
    }

    /// The same with an enabled controller, on its admin queue.
    fn ready_on(shards: u16) -> (World, Line, QueueView) {
        World::ready_as(shards, &Ask::default())
    }

    fn ready_as(shards: u16, ask: &Ask) -> (World, Line, QueueView) {
        let mut world = World::new(shards);
        let (line, view) = world.ready(ask);
        (world, line, view)
    }

    /// A change of the configuration, told to every shard.
    fn configure(&mut self, change: impl Fn(&mut Controllers, Instant)) {
        for controllers in &mut self.shards {
            change(controllers, self.now);
        }
        self.shards.iter_mut().for_each(Controllers::announce_exports);
        self.collect();
    }

    fn export(&mut self, subsystem: &Subsystem) {
        self.configure(|controllers, now| controllers.set_subsystem(now, subsystem.clone()));
    }

    /// Exports a subsystem without namespaces to these hosts.
    fn export_to(&mut self, name: &str, hosts: &[Host]) {
        let hosts = hosts.iter().map(|host| host.nqn.clone()).collect();
        self.export(&Subsystem::new(nqn(name), Hosts::List(hosts)));
    }

    /// Exports a subsystem no more.
    fn remove(&mut self, name: &str) {
        self.configure(|controllers, now| controllers.remove_subsystem(now, &nqn(name)));
    }

    /// Changes [`SUBSYSTEM`].
    fn change(&mut self, change: impl FnOnce(&mut Subsystem)) {
        change(&mut self.subsystem);
        let subsystem = self.subsystem.clone();
        self.export(&subsystem);
    }

    /// Puts namespaces into [`SUBSYSTEM`], or others in their place.
    fn put(&mut self, namespaces: impl IntoIterator<Item = Namespace>) {
        let subsystem = self.subsystem.clone();
        let with = namespaces.into_iter().fold(subsystem, Subsystem::with_namespace);
        self.change(|subsystem| *subsystem = with);
    }

    /// Takes a namespace out of [`SUBSYSTEM`].
    fn take_out(&mut self, nsid: u32) {
        self.change(|subsystem| subsystem.namespaces.retain(|it| it.nsid != nsid));
    }

    /// Lets these hosts alone use [`SUBSYSTEM`].
    fn admit(&mut self, hosts: &[Host]) {
        let hosts = hosts.iter().map(|host| host.nqn.clone()).collect();
        self.change(|subsystem| subsystem.hosts = Hosts::List(hosts));
    }

    /// Takes what the shards have to say; mail waits to be delivered.
    fn collect(&mut self) {
        for (from, controllers) in (0..).zip(&mut self.shards) {
            while let Some((to, message)) = controllers.poll_message() {
                self.mail.entry((from, to.0)).or_default().push_back(message);
            }
            while let Some((key, event)) = controllers.poll_event() {
                match event {
                    ConnectionEvent::Reply(reply) => self.replies.push((key, reply)),
                    ConnectionEvent::Close(reason) => self.closes.push((key, reason)),
                    ConnectionEvent::Flush(volume) => self.flushes.push((key, volume)),
                    ConnectionEvent::Decided { slot, status } => {
                        self.decided.push((key, slot, status));
                    }
                    ConnectionEvent::Preempted(volume) => self.preempted.push((key, volume)),
                }
            }
        }
    }

    /// Delivers one message between two shards; false if there is none.
    fn deliver(&mut self, from: u16, to: u16) -> bool {
        let Some(message) = self.mail.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.shards[usize::from(to)].handle_message(self.now, ShardId(from), message);
        self.collect();
        true
    }

    /// Delivers one message of a pair that `random` chooses; false if there is none.
    fn deliver_any(&mut self, random: &mut Random) -> bool {
        let pairs: Vec<(u16, u16)> =
            self.mail.iter().filter(|(_, mail)| !mail.is_empty()).map(|(pair, _)| *pair).collect();
        if pairs.is_empty() {
            return false;
        }
        let (from, to) = pairs[random.below(pairs.len() as u64) as usize];
        self.deliver(from, to)
    }

    /// Delivers all mail.
    fn settle(&mut self) {
        self.collect();
        while let Some(pair) = self.mail.iter().find(|(_, mail)| !mail.is_empty()) {
            let (from, to) = *pair.0;
            self.deliver(from, to);
        }
    }

    /// Turns the clock, moment by moment of what is due, with all mail delivered at once.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let due = self.shards.iter().filter_map(Controllers::poll_timeout).min();
            self.now = due.map_or(end, |due| due.clamp(self.now, end));
            for controllers in &mut self.shards {
                controllers.handle_timeout(self.now);
            }
            self.settle();
            if self.now == end {
                return;
            }
        }
    }

    fn line(&mut self, shard: u16) -> Line {
        self.connections += 1;
        let key = MachineKey { machine: MachineId(self.connections), generation: 1 };
        Line { shard, key }
    }

    fn of(&mut self, line: Line) -> &mut Controllers {
        &mut self.shards[usize::from(line.shard)]
    }

    fn take_reply(&mut self, line: Line) -> Option<Reply> {
        let at = self.replies.iter().position(|(key, _)| *key == line.key)?;
        Some(self.replies.remove(at).1)
    }

    fn take_close(&mut self, line: Line) -> Option<CloseReason> {
        let at = self.closes.iter().position(|(key, _)| *key == line.key)?;
        Some(self.closes.remove(at).1)
    }

    /// Sends a Connect; the reply may come later.
    fn start(&mut self, ask: &Ask) -> (Line, Answer) {
        let line = self.line(ask.shard);
        (line, self.start_on(line, ask, &ask.data()))
    }

    fn start_on(&mut self, line: Line, ask: &Ask, data: &[u8]) -> Answer {
        let (now, endpoint) = (self.now, endpoint("192.0.2.1:4420"));
        let answer = self.of(line).connect(now, line.key, &endpoint, &ask.command(), data);
        self.collect();
        answer
    }

    /// Sends a Connect about which other shards are asked.
    fn start_later(&mut self, ask: &Ask) -> Line {
        let (line, answer) = self.start(ask);
        assert_eq!(answer, Answer::Later, "{ask:?}");
        line
    }

    /// Connects, with all mail delivered, and returns the reply.
    fn connect(&mut self, ask: &Ask) -> (Line, Reply) {
        let (line, answer) = self.start(ask);
        self.settle();
        let reply = match answer {
            Answer::Now(reply) => reply,
            Answer::Later => self.take_reply(line).expect("a Connect is answered"),
        };
        (line, reply)
    }

    /// Connects, which must succeed.
    fn join(&mut self, ask: &Ask) -> (Line, QueueView) {
        let (line, reply) = self.connect(ask);
        assert_eq!(reply.status, Status::SUCCESS, "{ask:?}");
        (line, reply.queue.expect("a Connect that succeeds makes a queue"))
    }

    /// An admin queue whose controller is enabled.
    fn ready(&mut self, ask: &Ask) -> (Line, QueueView) {
        let (line, view) = self.join(ask);
        assert_eq!(self.set_cc(line, ENABLE).status, Status::SUCCESS);
        assert_eq!(self.csts(line) & READY, READY);
        (line, view)
    }

    fn start_command(&mut self, line: Line, command: &Command, data: &[u8]) -> Answer {
        let now = self.now;
        let held = core::mem::take(&mut self.reservations);
        let answer =
            self.of(line).admin_command(now, line.key, command, data, (&held, &Paths::default()));
        self.reservations = held;
        self.collect();
        answer
    }

    /// An admin command that is answered at once.
    fn admin(&mut self, line: Line, command: &Command) -> Reply {
        self.admin_with(line, command, &[])
    }

    fn admin_with(&mut self, line: Line, command: &Command, data: &[u8]) -> Reply {
        match self.start_command(line, command, data) {
            Answer::Now(reply) => reply,
            Answer::Later => panic!("{command} is not answered at once"),
        }
    }

    /// An admin command that is refused with this status, and DNR.
    fn refuses(&mut self, line: Line, command: &Command, status: Status) {
        assert_eq!(self.admin(line, command).status, status.with_dnr(), "{command}");
    }

    /// An admin command that other shards or queues have a part in.
    fn admin_later(&mut self, line: Line, command: &Command) {
        assert_eq!(self.start_command(line, command, &[]), Answer::Later, "{command}");
    }

    fn set_cc(&mut self, line: Line, value: u32) -> Reply {
        self.admin(line, &Command::property_set(Register::CC.0, value))
    }

    fn csts(&mut self, line: Line) -> u64 {
        self.admin(line, &Command::property_get(Register::CSTS.0, false)).result
    }

    /// The connection is lost and nothing of it is in flight.
    fn lose(&mut self, line: Line) {
        self.cut(line);
        self.drained(line);
    }

    /// The connection is lost.
    fn cut(&mut self, line: Line) {
        let now = self.now;
        self.of(line).connection_gone(now, line.key);
    }

    fn drained(&mut self, line: Line) {
        let now = self.now;
        self.of(line).queue_drained(now, line.key);
        self.collect();
    }

    /// Nothing is left of any controller or queue.
    fn assert_empty(&self) {
        for controllers in &self.shards {
            assert_eq!(controllers.report(), Vec::new());
            assert_eq!(controllers.queue_count(), 0);
            assert!(controllers.keys.is_empty(), "{:?}", controllers.keys);
            assert!(controllers.foreign.is_empty(), "{:?}", controllers.foreign);
            assert!(controllers.others.is_empty(), "{:?}", controllers.others);
            assert!(controllers.pending.is_empty(), "{:?}", controllers.pending);
            assert!(controllers.log_readers.is_empty(), "{:?}", controllers.log_readers);
            assert!(controllers.identifications.is_empty());
            assert_eq!(controllers.draining, 0);
            assert!(controllers.proposals.is_empty(), "{:?}", controllers.proposals);
        }
    }
}
