//! The control side of the NVMe-oF target: which controllers there are, and what they answer.
//!
//! One [`Controllers`] value per shard. In: Connects, admin and Fabrics commands, the loss of
//! connections, messages of other shards, changes of the configuration. Out, by polling: messages,
//! late replies, connections to be closed, flushes to be made. Pure: time is an argument. A
//! connection is named by its [`MachineKey`]; per I/O only the [`QueueHandle`] is used, which is an
//! index.
//!
//! The order of calls for a connection's machine:
//! 1. [`Controllers::connect`] with the first command; a [`Reply`] whose `queue` is set, now or
//!    later, makes it a queue.
//! 2. [`Controllers::admin_command`] (queue 0) or [`Controllers::fabrics_command_on_io_queue`]; per
//!    I/O command [`Controllers::command_heard`]; [`Controllers::io_allowed`] and
//!    [`Controllers::namespace`] for one that waited.
//! 3. [`Controllers::connection_gone`] when the transport is lost, or the machine closes by itself;
//!    or a close comes out of [`Controllers::poll_event`]. Either way no request is submitted from
//!    then on.
//! 4. [`Controllers::queue_drained`], once, when nothing of the connection is in flight any more.
//!    The key is forgotten then.
//!
//! After each call the shard polls [`Controllers::poll_message`],
//! [`poll_event`](Controllers::poll_event) and
//! [`poll_reservation_change`](Controllers::poll_reservation_change) until they are empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use block::record::passed;
use block::{Instant, MachineId, ShardId, Slot, Table, VolumeId, planted};
use contract::traffic::ByHost;
use contract::{Endpoint, HostEvent, HostNews, ListenerId, Peer, Traffic};
use reservation::{Applicant, NamedHosts, PathGroup, Registrant};
use wire::nvme::{Nqn, Status};

pub use crate::message::{Association, CloseReason, ControllerRef, Host, Message};
use crate::subsystem::{Namespace, Subsystem};

mod admin;
mod configure;
mod connect;
pub(crate) mod controller;
mod events;
pub mod health;
mod identity;
pub(crate) mod keep_alive;
mod lifecycle;
mod paths;
mod properties;
mod reservations;
#[cfg(test)]
mod tests;

use controller::Controller;
pub(crate) use identity::Mistaken;

/// A connection's machine on its shard: its number and which life of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineKey {
    pub machine: MachineId,
    /// Which life of it.
    pub generation: u32,
}

/// A queue of this shard, to be used with each I/O: an index and a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueHandle(Slot);

/// What a machine has to know of its queue once it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// For the calls made per command.
    pub handle: QueueHandle,
    /// CNTLID.
    pub controller: u16,
    /// QID; 0 is the admin queue.
    pub queue_id: u16,
    /// Entries of the queue: SQSIZE + 1.
    pub depth: u16,
    /// Whether the host disabled SQ flow control (CATTR bit 2): SQHD is 0xffff, and SUCCESS may
    /// stand for a completion.
    pub flow_control_off: bool,
    /// The group of the listener by which it came.
    pub group: PathGroup,
}

/// An answer to a command: now, or by [`Controllers::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Now(Reply),
    /// It comes later, or never if the connection is closed before.
    Later,
}

/// A completion, with the data that go to the host before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// CID.
    pub command_id: u16,
    /// DW0-1 of the completion.
    pub result: u64,
    /// What became of the command.
    pub status: Status,
    /// Data for the host, at most what the command's SGL has room for.
    pub data: ReplyData,
    /// Set by a Connect that succeeded: the connection is this queue from now on.
    pub queue: Option<QueueView>,
    /// Whether the connection is to be closed once the reply has left.
    pub close: bool,
    /// Whether nothing is sent: the command was discarded by a reset, and its CID is free again.
    pub discarded: bool,
}

/// Data for the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyData {
    /// Those that there are.
    pub bytes: Vec<u8>,
    /// Zeros behind them, which are held nowhere.
    pub zeros: u32,
}

impl ReplyData {
    /// How many bytes the host gets.
    pub fn len(&self) -> u32 {
        self.bytes.len() as u32 + self.zeros
    }

    /// Whether the host gets none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for ReplyData {
    fn from(bytes: Vec<u8>) -> ReplyData {
        ReplyData { bytes, zeros: 0 }
    }
}

/// What a connection is to hear of its controller.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// To a command that was answered [`Answer::Later`].
    Reply(Reply),
    /// No new request of it is submitted; once nothing is in flight any more,
    /// [`Controllers::queue_drained`] is called and it closes. Replies to what was in flight need
    /// not be sent.
    Close(CloseReason),
    /// A shutdown waits for a flush of this volume: a request in the name of the admin connection,
    /// whose end is told by [`Controllers::flush_done`].
    Flush(VolumeId),
    /// The change of a reservation that the command in this slot asked for was decided.
    Decided {
        /// The connection's slot.
        slot: u16,
        /// What became of it.
        status: Status,
    },
    /// Somebody preempted the host's registration with this volume, and its commands: none that
    /// waits goes below any more.
    Preempted(VolumeId),
}

/// What is known of a controller, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerReport {
    /// CNTLID.
    pub controller: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    pub host: Host,
    /// The shard that owns it.
    pub shard: ShardId,
    /// The host's address.
    pub peer: SocketAddr,
    /// What it is doing.
    pub state: ControllerState,
    /// KATO in milliseconds, 0 for none.
    pub keep_alive_ms: u32,
    /// I/O queues: QID and the shard it is on.
    pub queues: Vec<(u16, ShardId)>,
    /// Commands that failed, on whatever queue.
    pub errors: u64,
}

/// What a controller is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// CSTS.RDY is 0.
    Disabled,
    /// CSTS.RDY is 1.
    Ready,
    /// CC.EN went to 0 and I/O queues still have something in flight.
    Resetting,
    /// A shutdown was asked for; caches are being flushed, or were.
    ShutDown,
    /// Failed: all its connections are being closed and drained.
    Failed,
}

/// The controllers of one shard, and the I/O queues on it.
///
/// Every method is a step of pure logic; the outputs are polled. See the module's text for the
/// order of calls.
#[derive(Debug)]
pub struct Controllers {
    shard: ShardId,
    shards: u16,
    started: Instant,
    /// Whether the configuration is complete: an unknown subsystem is then refused for good (DNR).
    configured: bool,
    exports: Table<Export>,
    export_of: BTreeMap<Nqn, Slot>,
    /// Controllers whose hosts are told of changes once all shards know them, and the namespaces
    /// that changed; of the discovery log where there are none.
    untold: BTreeMap<ControllerRef, BTreeSet<u32>>,
    /// GENCTR of the discovery log.
    discovery_generation: u64,
    queues: Table<Queue>,
    /// Local queues that take nothing more and still drain: while 0, nobody searches for them.
    draining: usize,
    keys: BTreeMap<MachineKey, KeyState>,
    pending: Table<connect::Pending>,
    log_readers: Table<health::LogReader>,
    identifications: Table<identity::Identification>,
    /// Local I/O queues of controllers that other shards own.
    foreign: BTreeMap<ControllerRef, Vec<Slot>>,
    controllers: BTreeMap<u16, Controller>,
    /// Controllers of other shards, with their subsystem.
    others: BTreeMap<u16, Nqn>,
    next_id: u32,
    next_instance: u32,
    waiters: Vec<connect::HostWaiter>,
    timers: BTreeSet<(Instant, Timer)>,
    messages: VecDeque<(ShardId, Message)>,
    events: VecDeque<(MachineKey, ConnectionEvent)>,
    host_news: VecDeque<HostNews>,
    proposals: reservations::Proposals,
    /// The group of each listener.
    groups: BTreeMap<ListenerId, PathGroup>,
    named: Arc<NamedHosts>,
}

/// A subsystem of the configuration, its namespaces by NSID - 1.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) subsystem: Subsystem,
    by_nsid: Vec<Option<Namespace>>,
    /// What went through queues of this shard that are gone, by the hosts that the list names; of
    /// all others under none.
    ended: ByHost<Nqn>,
}

/// A queue whose connection is on this shard.
#[derive(Debug)]
struct Queue {
    key: MachineKey,
    /// QID, 0 for an admin queue.
    id: u16,
    controller: ControllerRef,
    owner: ShardId,
    /// `None` for a discovery controller's.
    export: Option<Slot>,
    who: Arc<Association>,
    /// When its last command came.
    heard: Instant,
    /// Whether we do not read what it says: commands may wait there.
    stopped: bool,
    /// Whether it takes commands; else it drains.
    open: bool,
    traffic: Traffic,
    /// NSIDs that are closed to it until its controller has identified them.
    mistaken: Mistaken,
    /// NSIDs under which something came that it is not mistaken about, and was not identified yet.
    came: BTreeSet<u32>,
}

/// What a connection is to us.
#[derive(Clone, Copy, Debug)]
enum KeyState {
    /// Its Connect waits for other shards.
    Pending(Slot),
    /// It is a queue.
    Queue(Slot),
}

/// What a moment was set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A controller's keep-alive time may be over.
    KeepAlive(ControllerRef),
    /// A Connect that was held has to be answered.
    HostHold,
}

impl Queue {
    /// When its host was last heard, or could not be.
    fn heard(&self, now: Instant) -> Instant {
        if self.stopped { now } else { self.heard }
    }
}

impl Export {
    /// The namespace of this number, if it is there.
    #[inline]
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get((nsid as usize).wrapping_sub(1))?.as_ref()
    }

    /// The namespaces in ascending order of their numbers.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.iter().flatten()
    }
}

impl Controllers {
    /// No controllers and no subsystems, on `shard` of `shards` (1 or more). Until
    /// [`Self::configuration_complete`], Connects to unknown subsystems are refused without DNR, so
    /// that hosts come again.
    pub fn new(now: Instant, shard: ShardId, shards: u16) -> Self {
        assert!(shard.0 < shards, "{shard:?} is not one of {shards}");
        Controllers {
            shard,
            shards,
            started: now,
            configured: false,
            exports: Table::new(),
            export_of: BTreeMap::new(),
            untold: BTreeMap::new(),
            discovery_generation: 1,
            queues: Table::new(),
            draining: 0,
            keys: BTreeMap::new(),
            pending: Table::new(),
            log_readers: Table::new(),
            identifications: Table::new(),
            foreign: BTreeMap::new(),
            controllers: BTreeMap::new(),
            others: BTreeMap::new(),
            next_id: u32::from(shard.0),
            next_instance: 0,
            waiters: Vec::new(),
            timers: BTreeSet::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            host_news: VecDeque::new(),
            proposals: reservations::Proposals::default(),
            groups: BTreeMap::new(),
            named: Arc::default(),
        }
    }

    /// A connection stopped its stream, or goes on with it. Meanwhile its host may have said
    /// anything, and is not silent.
    pub fn stream_stopped(&mut self, now: Instant, key: MachineKey, stopped: bool) {
        if let Some(queue) = self.queue_of(key).and_then(|slot| self.queues.get_mut(slot)) {
            (queue.heard, queue.stopped) = (now, stopped);
        }
    }

    /// An I/O command came on a queue, for namespace `nsid`: traffic keeps a controller alive
    /// (TBKAS). Finds the namespace in the queue's subsystem; `None` asks for
    /// [`Status::INVALID_NAMESPACE`]: there is none, or another than the controller knows. Errors:
    /// as [`io_allowed`](Self::io_allowed). One look-up of the queue, one of the namespace.
    #[inline]
    pub fn command_heard(
        &mut self,
        now: Instant,
        queue: QueueHandle,
        nsid: u32,
    ) -> Result<Option<&Namespace>, Status> {
        let queue = self.queues.get_mut(queue.0).ok_or(Status::SQ_DELETED)?;
        queue.heard = now;
        if !queue.open {
            return Err(Status::SQ_DELETED);
        }
        if !queue.knows(nsid) {
            return Ok(None);
        }
        let export = queue.export.and_then(|export| self.exports.get(export));
        Ok(export.and_then(|export| export.namespace(nsid)))
    }

    /// Whether I/O commands of this queue may be submitted; else the status to refuse them with
    /// (the queue is being closed).
    #[inline]
    pub fn io_allowed(&self, queue: QueueHandle) -> Result<(), Status> {
        match self.queues.get(queue.0) {
            Some(queue) if queue.open => Ok(()),
            _ => Err(Status::SQ_DELETED),
        }
    }

    /// The namespace `nsid` of the queue's subsystem; `None` asks for
    /// [`Status::INVALID_NAMESPACE`]. Two indexed look-ups. Who was judged before compares its
    /// identity with what it was then.
    #[inline]
    pub fn namespace(&self, queue: QueueHandle, nsid: u32) -> Option<&Namespace> {
        self.exports.get(self.queues.get(queue.0)?.export?)?.namespace(nsid)
    }

    /// The host of a queue, as reservations know it.
    pub fn registrant(&self, queue: QueueHandle) -> Option<Registrant> {
        Some(self.registrant_of(&self.queues.get(queue.0)?.who))
    }

    /// HOSTID of the host of a queue.
    pub(crate) fn host_id(&self, queue: QueueHandle) -> Option<[u8; 16]> {
        Some(self.queues.get(queue.0)?.who.host.id)
    }

    /// The host of a queue, as it is registered.
    pub(crate) fn applicant(&self, queue: QueueHandle) -> Option<Applicant> {
        Some(self.applicant_of(&self.queues.get(queue.0)?.who))
    }

    /// A host that the configuration names, or else its HOSTID.
    fn applicant_of(&self, who: &Association) -> Applicant {
        let named = self.named.nvme(who.host.nqn.as_str());
        let named = named.filter(|_| !planted("named-host-is-two"));
        named.cloned().unwrap_or_else(|| Registrant::NvmeHost(who.host.id).into())
    }

    fn registrant_of(&self, who: &Association) -> Registrant {
        self.applicant_of(who).id
    }

    /// From now on these are the hosts that have a name: who a queue's is is to be asked again.
    pub fn set_named_hosts(&mut self, named: Arc<NamedHosts>) {
        self.named = named;
    }

    /// All namespaces of the queue's subsystem: a flush with NSID 0xffffffff goes to each.
    pub fn namespaces(&self, queue: QueueHandle) -> impl Iterator<Item = &Namespace> {
        let export = self.queues.get(queue.0).and_then(|queue| self.exports.get(queue.export?));
        export.into_iter().flat_map(Export::namespaces)
    }

    /// The next message for another shard.
    pub fn poll_message(&mut self) -> Option<(ShardId, Message)> {
        self.messages.pop_front()
    }

    /// What a connection is to hear. It may be gone.
    pub fn poll_event(&mut self) -> Option<(MachineKey, ConnectionEvent)> {
        self.events.pop_front()
    }

    /// Who came, left or was refused.
    pub fn poll_host_news(&mut self) -> Option<HostNews> {
        self.host_news.pop_front()
    }

    /// What people should know of a host that uses, or would use, a subsystem.
    fn tell_of_host(&mut self, who: &Association, endpoint: &Endpoint, event: HostEvent) {
        // Discovery comes and goes.
        if who.subsystem.is_discovery() {
            return;
        }
        self.host_news.push_back(HostNews {
            host: who.host.nqn.to_string(),
            export: who.subsystem.to_string(),
            peer: Peer::Address(endpoint.peer),
            event,
        });
    }

    /// When [`Self::handle_timeout`] wants to be called, if at all.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The moment of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::KeepAlive(controller) => self.keep_alive_due(now, controller),
                Timer::HostHold => self.answer_hosts(now),
            }
        }
    }

    /// Another shard's controllers wrote.
    pub fn handle_message(&mut self, now: Instant, from: ShardId, message: Message) {
        match message {
            Message::ConnectAsk { ask, wanted } => {
                let answer = self.admit_queue(now, from, &wanted);
                self.send(from, Message::ConnectAnswer { ask, answer });
            }
            Message::ConnectAnswer { ask, answer } => self.queue_answered(now, from, ask, answer),
            Message::CloseQueues { controller, reason } => {
                for slot in self.foreign.get(&controller).cloned().unwrap_or_default() {
                    self.close_queue(slot, reason);
                }
            }
            Message::QueueLost { controller, queue_id } => {
                self.owned_queue_lost(controller, queue_id)
            }
            Message::QueueGone { controller, queue_id, quiet } => {
                self.owned_queue_gone(now, controller, queue_id, keep_alive::earlier(now, quiet));
            }
            Message::HeardAsk { controller } => {
                let quiet = self.quiet(now, controller);
                self.send(from, Message::HeardAnswer { controller, quiet });
            }
            Message::HeardAnswer { controller, quiet } => {
                self.heard_answered(now, controller, quiet)
            }
            Message::HostAsk { ask, who } => self.hold_for_host(now, from, ask, who),
            Message::CommandsFailed { controller, failures } => {
                self.owned_commands_failed(controller, &failures);
            }
            Message::TrafficAsk { ask, subsystem } => self.answer_traffic(from, ask, &subsystem),
            Message::TrafficAnswer { ask, traffic } => self.traffic_answered(now, ask, &traffic),
            Message::Identified { ask, controller, nsid, identity } => {
                self.foreign_identified(controller, nsid, identity);
                self.send(from, Message::IdentifiedAnswer { ask });
            }
            Message::IdentifiedAnswer { ask } => self.identification_known(ask),
            Message::HostAnswer { ask, busy } => self.host_answered(now, ask, busy),
            Message::VolumeStuck { volume } => self.fail_users_of(now, volume),
            Message::ControllerMade { controller, subsystem } => {
                self.others.insert(controller, subsystem);
            }
            Message::ControllerGone { controller } => {
                self.others.remove(&controller);
            }
        }
    }

    /// What there is: one entry for each controller that this shard owns, in the order of CNTLIDs.
    pub fn report(&self) -> Vec<ControllerReport> {
        self.controllers.values().map(|controller| controller.report(self.shard)).collect()
    }

    /// Queues on this shard: admin and I/O, open and draining.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    fn send(&mut self, to: ShardId, message: Message) {
        assert_ne!(to, self.shard, "a shard does not write to itself");
        self.messages.push_back((to, message));
    }

    fn send_all(&mut self, message: &Message) {
        for shard in (0..self.shards).map(ShardId).filter(|&shard| shard != self.shard) {
            self.messages.push_back((shard, message.clone()));
        }
    }

    fn reply(&mut self, key: MachineKey, reply: Reply) {
        self.events.push_back((key, ConnectionEvent::Reply(reply)));
    }

    /// The controller, unless it is gone and another has its CNTLID.
    pub(crate) fn controller_mut(&mut self, name: ControllerRef) -> Option<&mut Controller> {
        self.controllers.get_mut(&name.id).filter(|controller| controller.name == name)
    }

    fn queue_of(&self, key: MachineKey) -> Option<Slot> {
        match self.keys.get(&key) {
            Some(&KeyState::Queue(slot)) => Some(slot),
            _ => None,
        }
    }
}

impl Reply {
    /// A completion without data.
    pub fn new(command_id: u16, status: Status) -> Self {
        passed("status", status.name().unwrap_or_default());
        Reply { command_id, status, ..Reply::default() }
    }

    /// With DW0 set.
    pub fn with_result(mut self, result: u32) -> Self {
        self.result = u64::from(result);
        self
    }

    /// With the connection to be closed after it.
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }
}
