//! The world: hosts, the network between them and the clock, which moves from one event to the
//! next. It is the third way to keep the driver contract, beside io_uring and epoll: effects are
//! performed here, later, in any order that the contract leaves open.
//!
//! Units: nanoseconds of virtual time. Everything drawn comes from one [`Random`].

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use block::{Buffer, Instant, Operation, Random, ShardId};
use contract::{
    ConnectionId, DiskId, Effect, Event, Fetch, InFrame, ListenerId, Loss, Machine, Soon, counters,
};

mod disks;
mod faults;
mod frames;
mod raw;
mod streams;

use crate::disk::SimDisk;
use crate::ethernet::Ethernet;
use crate::network::{End, Link};
use crate::node::Node;
use crate::trace::Trace;
use disks::Pending;
use frames::Batch;
pub(crate) use frames::Ringed;
use raw::Raw;

const MICROSECOND: u64 = 1_000;

/// How the world's time passes. Longest delays, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From a segment's departure to its arrival.
    pub network_us: u64,
    /// Of a mail between shards.
    pub mail_us: u64,
    /// Until a shard gets its turn.
    pub turn_us: u64,
    /// The longest segment, in bytes.
    pub segment_max: u64,
    /// Until a batch that has left is given back; 0 is at once.
    pub keep_us: u64,
}

/// A machine with several shards, disks and an address.
#[derive(Debug)]
pub struct Host<M: Machine> {
    /// The shards; empty while the host is down.
    pub nodes: Vec<Node<M>>,
    /// Disks, by number; they survive the host.
    pub disks: BTreeMap<DiskId, SimDisk>,
    /// Where it listens.
    pub listeners: Vec<(SocketAddr, ListenerId)>,
    /// What its shards wrote to the control thread.
    pub control: VecDeque<(ShardId, M::Mail)>,
    /// Which life it is in.
    pub life: u32,
    /// Its own address, from which it connects.
    pub address: SocketAddr,
    accepted: usize,
    mail_arrival: BTreeMap<(ShardId, ShardId), u64>,
}

/// What can happen next.
#[derive(Debug)]
enum What<Mail> {
    Turn { host: usize, life: u32, shard: usize },
    Deliver { link: usize, to: End },
    Transmit { link: usize, from: End },
    Part { id: u64 },
    Apply { id: u64 },
    Answer { id: u64 },
    Mail { host: usize, life: u32, to: usize, from: ShardId, mail: Mail },
    Connect { host: usize, life: u32, shard: usize, token: u64, address: SocketAddr },
    Sent { host: usize, life: u32, shard: usize, connection: ConnectionId },
    LateWrite { host: usize, disk: DiskId, offset: u64, bytes: Vec<u8> },
    Frames { id: u64 },
    Frame { to: usize, bytes: Vec<u8> },
    LinkUp { port: usize },
    Order { host: usize, life: u32, shard: usize, mail: Mail },
    Alarm,
}

/// Errors that the world plants, to see that they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Now and then a disk's answer is given twice.
    pub completes_twice: bool,
    /// A write that was under way when its host died is applied long after.
    pub applies_late: bool,
}

counters! {
    /// Faults that were injected into a world.
    pub struct Injected {
        /// Connections that were cut.
        cuts: Events,
        /// Of these, those whose far end got what was on its way, and heard of the cut, later.
        late_cuts: Events,
        /// I/O connections that went silent alone.
        hushes: Events,
        /// Bits that were flipped.
        corruptions: Events,
        /// Processes that were killed.
        kills: Events,
        /// Hosts that lost their power.
        power_cuts: Events,
        /// Batches that were given back long after they had left.
        kept: Events,
        /// Writes that landed in parts.
        parts: Operations,
    }
}

/// Hosts in virtual time.
#[derive(Debug)]
pub struct World<M: Machine> {
    /// The clock, in nanoseconds.
    pub now: u64,
    /// Where all chance comes from.
    pub random: Random,
    /// What happened.
    pub trace: Trace,
    /// The hosts.
    pub hosts: Vec<Host<M>>,
    /// How time passes.
    pub timing: Timing,
    /// Planted errors.
    pub planted: Planted,
    pub injected: Injected,
    /// Whether what has come may be shown in parts: off for those who count showings.
    pub cuts: bool,
    /// Where a raw peer listens.
    pub raw_listener: Option<SocketAddr>,
    /// Set when something came for a raw peer, or an alarm was due; whoever plays the peers takes
    /// it back.
    pub raw_news: bool,
    /// The Ethernet.
    pub ethernet: Ethernet,
    batches: BTreeMap<u64, Batch>,
    corrupt_next: bool,
    raws: Vec<Raw>,
    links: Vec<Link>,
    queue: BTreeMap<(u64, u64), What<M::Mail>>,
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
}

impl<M: Machine> World<M> {
    /// An empty world.
    pub fn new(random: Random, timing: Timing, trace: Trace) -> World<M> {
        World {
            now: 1_000_000_000,
            random,
            trace,
            hosts: Vec::new(),
            timing,
            planted: Planted::default(),
            injected: Injected::default(),
            cuts: true,
            raw_listener: None,
            raw_news: false,
            ethernet: Ethernet::new(),
            batches: BTreeMap::new(),
            corrupt_next: false,
            raws: Vec::new(),
            links: Vec::new(),
            queue: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// The present.
    pub fn instant(&self) -> Instant {
        Instant(self.now)
    }

    /// A host that is down, with an address of its own.
    pub fn add_host(&mut self) -> usize {
        let index = self.hosts.len();
        let address = SocketAddr::from(([10, 0, 0, index as u8 + 1], 40_000));
        self.hosts.push(Host {
            nodes: Vec::new(),
            disks: BTreeMap::new(),
            listeners: Vec::new(),
            control: VecDeque::new(),
            life: 0,
            address,
            accepted: 0,
            mail_arrival: BTreeMap::new(),
        });
        index
    }

    /// Starts a host with these machines, one a shard.
    pub fn start(&mut self, host: usize, machines: Vec<M>) {
        let found = &mut self.hosts[host];
        assert!(found.nodes.is_empty(), "host {host} is up");
        found.life += 1;
        found.control.clear();
        found.mail_arrival.clear();
        found.nodes = machines.into_iter().map(Node::new).collect();
        self.trace.note(Instant(self.now), "start", &[host as u64]);
        self.tell_links(host);
        for shard in 0..self.hosts[host].nodes.len() {
            self.wake(host, shard);
        }
    }

    /// Writes to a shard as the control thread.
    pub fn order(&mut self, host: usize, shard: usize, mail: M::Mail) {
        let life = self.hosts[host].life;
        self.post(host, life, ShardId::CONTROL, ShardId(shard as u16), mail);
    }

    /// Writes to a shard as the control thread, before anybody can reach the shard.
    pub fn order_first(&mut self, host: usize, shard: usize, mail: M::Mail) {
        let told = Event::Mail { from: ShardId::CONTROL, mail };
        self.hosts[host].nodes[shard].inbox.push_back(told);
    }

    /// Writes to a shard as the control thread, at a later moment, if the host still lives then.
    pub fn order_at(&mut self, at: u64, host: usize, shard: usize, mail: M::Mail) {
        let life = self.hosts[host].life;
        self.schedule_at(at, What::Order { host, life, shard, mail });
    }

    fn schedule(&mut self, delay: u64, what: What<M::Mail>) {
        self.next_number += 1;
        self.queue.insert((self.now + delay, self.next_number), what);
    }

    fn schedule_at(&mut self, at: u64, what: What<M::Mail>) {
        self.schedule(at.saturating_sub(self.now), what);
    }

    fn draw_us(&mut self, most: u64) -> u64 {
        // Mostly short, sometimes as long as it gets.
        let most = if self.random.chance(7, 8) { most / 8 } else { most };
        self.random.below(most * MICROSECOND + 1)
    }

    /// Gives a shard a turn soon.
    fn wake(&mut self, host: usize, shard: usize) {
        let delay = self.draw_us(self.timing.turn_us);
        self.wake_at(host, shard, self.now + delay);
    }

    fn wake_at(&mut self, host: usize, shard: usize, at: u64) {
        let life = self.hosts[host].life;
        let node = &mut self.hosts[host].nodes[shard];
        if node.turn_at.is_some_and(|turn| turn <= at) {
            return;
        }
        node.turn_at = Some(at);
        self.schedule_at(at, What::Turn { host, life, shard });
    }

    /// Gives the shards of a host a turn: something was asked of them from outside.
    pub fn nudge(&mut self, host: usize) {
        for shard in 0..self.hosts[host].nodes.len() {
            self.wake(host, shard);
        }
    }

    fn is_alive(&self, host: usize, life: u32) -> bool {
        self.hosts[host].life == life && !self.hosts[host].nodes.is_empty()
    }

    /// Lets the next thing happen. Returns whose turn it was, if it was a turn; `None` when nothing
    /// is to happen any more.
    pub fn step(&mut self) -> Option<Option<(usize, usize)>> {
        let ((at, _), what) = self.queue.pop_first()?;
        assert!(at >= self.now, "time runs backwards");
        self.now = at;
        match what {
            What::Turn { host, life, shard } => {
                if self.is_alive(host, life) && self.hosts[host].nodes[shard].turn_at == Some(at) {
                    self.turn(host, shard);
                    return Some(Some((host, shard)));
                }
            }
            What::Deliver { link, to } => self.deliver(link, to),
            What::Transmit { link, from } => self.transmit(link, from),
            What::Part { id } => self.land_part(id),
            What::Apply { id } => self.apply(id),
            What::Answer { id } => self.answer(id),
            What::Mail { host, life, to, from, mail } => {
                if self.is_alive(host, life) {
                    self.hosts[host].nodes[to].inbox.push_back(Event::Mail { from, mail });
                    self.wake(host, to);
                }
            }
            What::Connect { host, life, shard, token, address } => {
                if self.is_alive(host, life) {
                    self.connect(host, shard, token, address);
                }
            }
            What::Sent { host, life, shard, connection } => {
                if self.is_alive(host, life) {
                    self.give_back(host, shard, connection);
                }
            }
            What::Frames { id } => self.leave(id),
            What::Frame { to, bytes } => self.deliver_frame(to, bytes),
            What::LinkUp { port } => self.raise_link(port),
            What::Order { host, life, shard, mail } => {
                if self.is_alive(host, life) {
                    self.order(host, shard, mail);
                }
            }
            What::Alarm => {
                self.trace.note(Instant(at), "alarm", &[]);
                self.raw_news = true;
            }
            What::LateWrite { host, disk, offset, bytes } => {
                self.trace.note(Instant(at), "late write", &[host as u64, offset]);
                let disk = self.hosts[host].disks.get_mut(&disk).expect("disks stay");
                let mut memory = crate::memory::SimMemory::default();
                let mut buffer = Buffer::reserved(bytes.len() as u32, (offset % 4096) as u32);
                block::Memory::write(&mut memory, &mut buffer, 0, &bytes);
                let extent = block::Extent::new(offset, bytes.len() as u64);
                let mut write = Operation::Write { extent, buffer, durable: true };
                disk.perform(&mut write, 0, &mut memory, &mut self.random);
            }
        }
        Some(None)
    }

    fn turn(&mut self, host: usize, shard: usize) {
        let now = Instant(self.now);
        self.trace.note(now, "turn", &[host as u64, shard as u64]);
        self.hosts[host].nodes[shard].turn_at = None;
        self.flush_events(host, shard);
        let node = &self.hosts[host].nodes[shard];
        if !node.ring.is_empty() {
            self.show_frames(host, shard);
        }
        let mut again = false;
        let count = self.hosts[host].nodes[shard].sockets.len();
        let first = if count > 0 { self.random.below(count as u64) as usize } else { 0 };
        for step in 0..count {
            let slot = (first + step) % count;
            let Host { nodes, disks, .. } = &mut self.hosts[host];
            let node = &mut nodes[shard];
            if node.is_readable(slot) {
                // What a RAM disk lends is found while bytes are shown.
                core::mem::swap(&mut node.memory.lends.disks, disks);
                let (consumed, yields) = node.show(now, slot, self.cuts, &mut self.random);
                core::mem::swap(&mut node.memory.lends.disks, disks);
                again |= yields;
                self.credit(host, shard, slot, consumed);
                // As the driver does, so that disks begin while the turn goes on.
                self.perform_effects(host, shard);
                self.flush_events(host, shard);
            }
            again |= self.tell_loss(host, shard, slot);
        }
        let node = &mut self.hosts[host].nodes[shard];
        if node.machine.poll_timeout().is_some_and(|at| at <= now) {
            node.machine.handle_timeout(now, &mut node.memory);
        }
        loop {
            self.flush_events(host, shard);
            let Host { nodes, disks, .. } = &mut self.hosts[host];
            let node = &mut nodes[shard];
            core::mem::swap(&mut node.memory.lends.disks, disks);
            node.machine.settle(now, &mut node.memory);
            core::mem::swap(&mut node.memory.lends.disks, disks);
            if !self.perform_effects(host, shard) {
                break;
            }
        }
        let node = &mut self.hosts[host].nodes[shard];
        node.lent.end_turn();
        let readable = (0..node.sockets.len()).any(|slot| node.is_readable(slot));
        if again || readable || !node.inbox.is_empty() {
            self.wake(host, shard);
        }
        if let Some(at) = self.hosts[host].nodes[shard].machine.poll_timeout() {
            let late = self.random.below(self.timing.turn_us * MICROSECOND + 1);
            self.wake_at(host, shard, at.0.max(self.now) + 1 + late);
        }
    }

    /// Tells a machine what has happened.
    fn flush_events(&mut self, host: usize, shard: usize) {
        let now = Instant(self.now);
        let node = &mut self.hosts[host].nodes[shard];
        for event in core::mem::take(&mut node.inbox) {
            node.machine.handle_event(now, event, &mut node.memory);
        }
    }

    /// Does what a machine wants. Returns whether a disk answered at once.
    fn perform_effects(&mut self, host: usize, shard: usize) -> bool {
        let mut asks = Vec::new();
        self.hosts[host].nodes[shard].machine.take_requests(&mut asks);
        let mut answered = false;
        for (disk, request) in asks {
            answered |= self.submit(host, shard, disk, request);
        }
        while let Some(effect) = self.hosts[host].nodes[shard].machine.poll_effect() {
            self.perform(host, shard, effect);
        }
        answered
    }

    /// Lends a machine the frames in its rings, one after the other, until the turn ends, each with the second one
    /// behind it.
    fn show_frames(&mut self, host: usize, shard: usize) {
        let now = Instant(self.now);
        let Host { nodes, disks, .. } = &mut self.hosts[host];
        let node = &mut nodes[shard];
        // What a RAM disk lends is found while frames are shown.
        core::mem::swap(&mut node.memory.lends.disks, disks);
        let frames: Vec<_> = core::mem::take(&mut node.ring)
            .into_iter()
            .map(|Ringed { link, tag, bytes }| (link, tag, node.lent.lend(bytes)))
            .collect();
        for (at, &(link, tag, lent)) in frames.iter().enumerate() {
            let bytes = node.lent.get(lent);
            let soon = frames.get(at + 2).map(|&(_, _, behind)| Soon {
                bytes: node.lent.get(behind),
                fetch: Fetch::NOTHING,
            });
            let frame = InFrame { lent: Some(lent), soon, ..InFrame::new(link, tag, bytes) };
            node.machine.handle_frame(now, frame, &mut node.memory);
        }
        core::mem::swap(&mut node.memory.lends.disks, disks);
    }

    /// Tells a machine that a connection is lost, after all that came before.
    fn tell_loss(&mut self, host: usize, shard: usize, slot: usize) -> bool {
        let now = Instant(self.now);
        let node = &mut self.hosts[host].nodes[shard];
        let generation = node.sockets[slot].generation;
        let Some(open) = &mut node.sockets[slot].open else { return false };
        let is_told = open.pipe.lost || !open.pipe.is_open();
        let Some(loss) = open.loss.filter(|_| !is_told) else { return false };
        // A reset may overtake what came before it; an end does not, unless the machine does not
        // want more.
        if loss == Loss::EndOfStream && open.pipe.has_news() {
            return true;
        }
        open.pipe.lose();
        let connection = ConnectionId { slot: slot as u32, generation };
        node.machine.handle_event(now, Event::Lost { connection, loss }, &mut node.memory);
        false
    }

    /// The receiver consumed bytes: the sender may have stopped for them.
    fn credit(&mut self, host: usize, shard: usize, slot: usize, consumed: usize) {
        if consumed == 0 {
            return;
        }
        let Some(open) = &self.hosts[host].nodes[shard].sockets[slot].open else { return };
        let (link, end) = (open.link, open.end);
        let flow = &mut self.links[link].flows[end];
        flow.outstanding -= consumed;
        if core::mem::take(&mut flow.blocked) {
            self.schedule(0, What::Transmit { link, from: 1 - end });
        }
    }

    /// Performs an effect.
    fn perform(&mut self, host: usize, shard: usize, effect: Effect<M::Mail>) {
        let life = self.hosts[host].life;
        match effect {
            Effect::Send { connection, batch } => self.send(host, shard, connection, batch),
            Effect::Resume { connection } => {
                let node = &mut self.hosts[host].nodes[shard];
                if let Some(open) = node.find(connection) {
                    open.pipe.resume();
                    self.wake(host, shard);
                }
            }
            Effect::Connect { token, address, poll: _ } => {
                let delay = self.draw_us(self.timing.network_us);
                self.schedule(delay, What::Connect { host, life, shard, token, address });
            }
            Effect::Close { connection, after_send } => {
                let node = &mut self.hosts[host].nodes[shard];
                let open = node.find(connection).expect("a machine closes what is open");
                open.pipe.end(after_send);
                if !open.pipe.is_sending() || !after_send {
                    self.finish_close(host, shard, connection);
                }
            }
            Effect::SendFrames { token, batch } => self.send_frames(host, shard, token, batch),
            Effect::Mail { to, mail } => {
                self.post(host, life, ShardId(shard as u16), to, mail);
            }
        }
    }

    fn post(&mut self, host: usize, life: u32, from: ShardId, to: ShardId, mail: M::Mail) {
        if to == ShardId::CONTROL {
            self.hosts[host].control.push_back((from, mail));
            return;
        }
        let delay = self.draw_us(self.timing.mail_us);
        let last = self.hosts[host].mail_arrival.entry((from, to)).or_default();
        let at = (self.now + delay).max(*last + 1);
        *last = at;
        self.schedule_at(at, What::Mail { host, life, to: to.index(), from, mail });
    }
}
