//! A driver for an initiator and a target at once: pipes of bytes between them that are cut where
//! chance says, a disk in a vector, a clock turned by hand. It keeps the contract for both and
//! asserts that both do.

use core::time::Duration;
use std::collections::VecDeque;

use block::random::Random;
use block::{
    Buffer, Class, Completion, Extent, Instant, MachineId, Memory, Operation, Outcome, Request,
    ShardId, Ticket, limits,
};
use contract::{ConnectionId, Loss, Receive, SendBatch, SessionEffect, StreamEffect};
use scsi::LogicalUnit;
use testkit::pipe::{Pipe, Shown, bytes_of};
use testkit::{Pages, ShardStub, perform};

use super::fixtures::{DISK, accepted, target, unit};
use crate::initiator::{Initiator, InitiatorNews, Settings};
use crate::server::{Connection, Context};
use crate::targets::Targets;

/// One side of a connection, as its driver sees it.
#[derive(Debug, Default)]
struct Side {
    pipe: Pipe,
    /// What the kernel has not taken of the batch that is out.
    leaving: VecDeque<u8>,
    /// The other side is gone: what is in the pipe still comes, then the loss.
    other_gone: bool,
}

impl Side {
    fn send(&mut self, batch: SendBatch, memory: &Pages) {
        self.leaving = bytes_of(&batch, memory).into();
        self.pipe.send(batch);
    }

    /// Whether the driver closes now, with nothing out or in spite of it.
    fn closes(&self, at_once: bool) -> bool {
        let leaves = self.pipe.close == Some(true) && self.pipe.is_sending() && !at_once;
        self.pipe.close.is_some() && !self.pipe.closed && !leaves
    }
}

/// A connection between the two.
struct Wire {
    id: ConnectionId,
    host: Side,
    target: Side,
    machine: Connection,
    to_target: VecDeque<u8>,
    to_host: VecDeque<u8>,
    /// The network is down; the target hears nothing new, and of the loss only at this moment.
    cut: Option<Instant>,
    /// What was in the pipe to the target at the cut arrives then: the network held it back.
    late_at: Instant,
    /// Nothing arrives any more on either side, and neither is told.
    silent: bool,
}

/// A target's request that its disk has not answered.
struct Pending {
    due: Instant,
    request: Request,
}

/// What chance may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances {
    /// Most bytes that move at once.
    pub(super) bytes: usize,
    /// The disk answers within so much time.
    pub(super) disk: Duration,
    /// What was sent before a cut may arrive for so long after it.
    pub(super) late: Duration,
}

/// Both and all between.
pub(super) struct Pair {
    pub(super) shard: ShardStub<Targets>,
    pub(super) random: Random,
    pub(super) chances: Chances,
    pub(super) initiator: Initiator,
    pending: Vec<Pending>,
    wires: Vec<Wire>,
    asked: VecDeque<u32>,
    pub(super) disk: Vec<u8>,
    /// Names of the operations that reached the disk.
    pub(super) log: Vec<&'static str>,
    pub(super) done: Vec<Completion>,
    pub(super) news: Vec<InitiatorNews>,
    wires_made: u32,
    /// Turns in a row in which the initiator had something due.
    overdue: u32,
    /// Connections are refused: all, or those that a port of this number asks for.
    pub(super) unreachable: bool,
    pub(super) shut_out: Option<usize>,
}

impl Pair {
    pub(super) fn new(seed: u64, settings: Settings, volatile: bool) -> Pair {
        let now = Instant(1_000_000_000);
        let mut targets = Targets::new(ShardId(0), 1, [9; 32]);
        targets.set_target(target(Some(unit(volatile))));
        targets.configuration_complete();
        let mut random = Random::new(seed);
        let initiator = Initiator::new(settings, false, random.next_u64());
        Pair {
            shard: ShardStub::new(now, limits::POOL_PAGES_MIN, targets),
            random,
            chances: Chances {
                bytes: usize::MAX,
                disk: Duration::ZERO,
                late: Duration::from_secs(1),
            },
            initiator,
            pending: Vec::new(),
            wires: Vec::new(),
            asked: VecDeque::new(),
            disk: (0..DISK).map(|i| (i / 512 * 13 + i) as u8).collect(),
            log: Vec::new(),
            done: Vec::new(),
            news: Vec::new(),
            wires_made: 0,
            overdue: 0,
            unreachable: false,
            shut_out: None,
        }
    }

    /// A pair that is connected.
    pub(super) fn connected(seed: u64, settings: Settings, volatile: bool) -> Pair {
        let mut pair = Pair::new(seed, settings, volatile);
        pair.run_until("connected", |pair| pair.initiator.facts().is_some());
        pair
    }

    /// Puts this under [`LUN`], or nothing.
    pub(super) fn put(&mut self, unit: Option<LogicalUnit>) {
        self.shard.shared.set_target(target(unit));
        self.shard.shared.announce();
    }

    /// A buffer with these bytes for an extent that begins at `offset`.
    pub(super) fn filled(&mut self, offset: u64, bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::reserved(bytes.len() as u32, (offset % 4096) as u32);
        self.shard.memory.write(&mut buffer, 0, bytes);
        buffer
    }

    pub(super) fn ask(&mut self, slot: u32, operation: Operation) {
        let ticket = Ticket { machine: MachineId(1), generation: 0, slot, shard: ShardId(0) };
        self.initiator.handle_request(self.shard.now, &mut Request { ticket, operation });
    }

    pub(super) fn write(&mut self, slot: u32, offset: u64, bytes: &[u8]) {
        let buffer = self.filled(offset, bytes);
        let extent = Extent::new(offset, bytes.len() as u64);
        self.ask(slot, Operation::Write { extent, buffer, durable: false });
    }

    pub(super) fn read(&mut self, slot: u32, offset: u64, length: u32) {
        let buffer = Buffer::reserved(length, (offset % 4096) as u32);
        self.ask(slot, Operation::Read { extent: Extent::new(offset, length.into()), buffer });
    }

    /// The only completion, its buffer's bytes and its outcome; the buffer is given back.
    pub(super) fn take(&mut self, slot: u32) -> Option<(Outcome, Vec<u8>)> {
        let at = self.done.iter().position(|done| done.ticket.slot == slot)?;
        let Completion { outcome, buffer, .. } = self.done.remove(at);
        let mut bytes = vec![0; buffer.len() as usize];
        if !buffer.is_reserved() {
            self.shard.memory.read(&buffer, 0, &mut bytes);
        }
        self.shard.memory.release(buffer);
        Some((outcome, bytes))
    }

    /// Runs until a request is done, time passing as needed; at most an hour of it.
    pub(super) fn finish(&mut self, slot: u32) -> (Outcome, Vec<u8>) {
        let limit = self.shard.now + Duration::from_secs(3600);
        loop {
            if let Some(done) = self.take(slot) {
                return done;
            }
            assert!(
                self.shard.now < limit,
                "request {slot} never ends: {}",
                self.initiator.state()
            );
            self.step();
        }
    }

    /// Runs until `until` holds.
    pub(super) fn run_until(&mut self, what: &str, until: impl Fn(&Pair) -> bool) {
        let limit = self.shard.now + Duration::from_secs(3600);
        while !until(self) {
            assert!(self.shard.now < limit, "never {what}: {}", self.initiator.state());
            self.step();
        }
    }

    /// One turn; if nothing moved, time passes to the next moment at which something can.
    pub(super) fn step(&mut self) {
        if self.turn() {
            return;
        }
        if self.initiator.poll_timeout().is_some_and(|at| at <= self.shard.now) {
            self.overdue += 1;
            assert!(self.overdue < 10, "what is due is never done");
        } else {
            self.overdue = 0;
            self.shard.now = self.next_moment();
        }
        self.initiator.handle_timeout(self.shard.now);
        self.timeouts();
    }

    fn next_moment(&mut self) -> Instant {
        let cuts =
            self.wires.iter().filter_map(|wire| wire.cut.filter(|_| !wire.target.pipe.closed));
        let late = self.wires.iter().filter(|wire| wire.cut.is_some()).map(|wire| wire.late_at);
        let machines = self.wires.iter().filter(|wire| !wire.target.pipe.closed);
        [self.initiator.poll_timeout(), self.shard.shared.poll_timeout()]
            .into_iter()
            .flatten()
            .chain(self.pending.iter().map(|pending| pending.due))
            .chain(cuts)
            .chain(late)
            .chain(machines.filter_map(|wire| wire.machine.poll_timeout()))
            .filter(|at| *at > self.shard.now)
            .min()
            .unwrap_or(self.shard.now + Duration::from_millis(1))
    }

    fn timeouts(&mut self) {
        if self.shard.shared.poll_timeout().is_some_and(|at| at <= self.shard.now) {
            self.shard.shared.handle_timeout(self.shard.now);
        }
        for index in 0..self.wires.len() {
            if self.wires[index].machine.poll_timeout().is_some_and(|at| at <= self.shard.now) {
                self.with(index, |machine, ctx| machine.handle_timeout(ctx));
            }
        }
    }

    fn with<R>(
        &mut self,
        wire: usize,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> R {
        act(&mut self.wires[wire].machine, &mut self.shard.context())
    }

    /// Everything that can move does, in an order that chance decides; whether anything moved.
    pub(super) fn turn(&mut self) -> bool {
        let mut moved = self.settle_initiator();
        let start = self.random.below(self.wires.len().max(1) as u64) as usize;
        for index in 0..self.wires.len() {
            let index = (start + index) % self.wires.len();
            moved |= self.move_bytes(index);
            moved |= self.receive_host(index);
            moved |= self.receive_target(index);
            moved |= self.losses(index);
        }
        moved |= self.serve();
        moved |= self.control();
        for index in 0..self.wires.len() {
            moved |= self.settle_target(index);
        }
        moved |= self.settle_initiator();
        self.wires.retain(|wire| {
            !(wire.host.pipe.closed && wire.target.pipe.closed && wire.machine.is_gone())
        });
        moved
    }

    fn host_id(&self, index: usize) -> ConnectionId {
        self.wires[index].id
    }

    fn settle_initiator(&mut self) -> bool {
        let mut moved = false;
        while let Some(token) = self.asked.pop_front() {
            moved = true;
            let is_shut_out =
                self.initiator.asked_for(token).is_some_and(|at| self.shut_out == Some(at));
            if self.unreachable || is_shut_out {
                self.initiator.handle_connect_failed(self.shard.now, token, 111);
            } else {
                self.accept(token);
            }
        }
        self.initiator.settle(self.shard.now, &mut self.shard.memory);
        while let Some(effect) = self.initiator.poll_effect() {
            moved = true;
            match effect {
                StreamEffect::Connect { token, .. } => self.asked.push_back(token),
                StreamEffect::Send { connection, batch } => {
                    let wire = self.wire_of(connection);
                    self.wires[wire].host.send(batch, &self.shard.memory);
                }
                StreamEffect::Close { connection, after_send } => {
                    let wire = self.wire_of(connection);
                    self.wires[wire].host.pipe.end(after_send);
                }
            }
        }
        while let Some(done) = self.initiator.poll_completion() {
            moved = true;
            self.done.push(done);
        }
        while let Some(news) = self.initiator.poll_news() {
            self.news.push(news);
        }
        moved
    }

    fn wire_of(&self, connection: ConnectionId) -> usize {
        let find = |wire: &Wire| wire.id == connection;
        self.wires.iter().position(find).expect("a known connection")
    }

    fn accept(&mut self, token: u32) {
        let id = ConnectionId { slot: self.wires_made, generation: 0 };
        self.wires_made += 1;
        self.wires.push(Wire {
            host: Side::default(),
            target: Side::default(),
            id,
            machine: accepted(self.shard.now, id.slot),
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            cut: None,
            late_at: self.shard.now,
            silent: false,
        });
        self.initiator.handle_connected(self.shard.now, token, id);
    }

    fn chunk(random: &mut Random, bytes: usize, there: usize) -> usize {
        let most = there.min(bytes);
        if most == 0 { 0 } else { 1 + random.below(most as u64) as usize }
    }

    /// Bytes leave the sides and travel the pipes.
    fn move_bytes(&mut self, index: usize) -> bool {
        let (now, bytes) = (self.shard.now, self.chances.bytes);
        let random = &mut self.random;
        let wire = &mut self.wires[index];
        let mut moved = false;
        let mut sent = [None, None];
        let up = wire.cut.is_none();
        let silent = wire.silent;
        for (at, side, pipe) in
            [(0, &mut wire.host, &mut wire.to_target), (1, &mut wire.target, &mut wire.to_host)]
        {
            if side.pipe.closed || (at == 0 && !up) {
                continue;
            }
            if side.pipe.is_sending() {
                let count = Self::chunk(random, bytes, side.leaving.len());
                pipe.extend(side.leaving.drain(..count));
                moved = true;
                if side.leaving.is_empty() {
                    sent[at] = side.pipe.out.take();
                }
            }
        }
        let late = wire.cut.is_none_or(|heard_of| now >= wire.late_at && now < heard_of);
        let arriving = [
            (&mut wire.target, &mut wire.to_target, late),
            (&mut wire.host, &mut wire.to_host, up),
        ];
        for (side, pipe, open) in arriving {
            let count = Self::chunk(random, bytes, pipe.len());
            if open && !silent && count > 0 && !side.pipe.closed {
                side.pipe.receive(&pipe.drain(..count).collect::<Vec<u8>>());
                moved = true;
            }
        }
        let id = self.host_id(index);
        let [host, target] = sent;
        if let Some(batch) = host {
            self.initiator.handle_sent(now, id, batch, &mut self.shard.memory);
        }
        if let Some(batch) = target {
            self.with(index, |machine, ctx| machine.handle_sent(batch, ctx));
        }
        moved
    }

    fn receive_host(&mut self, index: usize) -> bool {
        let (now, id, initiator) = (self.shard.now, self.host_id(index), &mut self.initiator);
        self.wires[index].host.pipe.show(&mut self.shard.memory, |shown, memory| match shown {
            Shown::Bytes(bytes) => initiator.handle_received(now, id, bytes, memory),
            Shown::Direct(direct) => {
                Receive { consumed: 0, next: initiator.handle_direct(now, id, direct, memory) }
            }
        })
    }

    fn receive_target(&mut self, index: usize) -> bool {
        let Wire { target, machine, .. } = &mut self.wires[index];
        self.shard.show(&mut target.pipe, |shown, ctx| match shown {
            Shown::Bytes(bytes) => machine.handle_received(bytes, ctx),
            Shown::Direct(direct) => {
                Receive { consumed: 0, next: machine.handle_direct(direct, ctx) }
            }
        })
    }

    /// Cuts the connection of a port.
    pub(super) fn cut_port(&mut self, at: usize) {
        let is_its = |wire: &Wire| self.initiator.port_of(wire.id) == Some(at);
        let index = self.wires.iter().position(is_its).expect("it has a connection");
        self.cut(index);
    }

    /// Cuts a connection: the initiator hears of it at once, the target some time later. What the
    /// initiator's kernel had taken is on its way.
    pub(super) fn cut(&mut self, index: usize) {
        self.settle_initiator();
        let late = self.random.below(self.chances.late.as_nanos() as u64 + 1);
        let wire = &mut self.wires[index];
        if wire.cut.is_none() {
            wire.to_target.append(&mut wire.host.leaving);
            wire.cut = Some(self.shard.now + Duration::from_nanos(late));
            wire.late_at = self.shard.now + Duration::from_nanos(self.random.below(late + 1));
        }
    }

    /// A connection goes silent.
    pub(super) fn hush(&mut self, index: usize) {
        self.wires[index].silent = true;
    }

    pub(super) fn connections(&self) -> usize {
        self.wires.len()
    }

    /// Those there are, as the driver names them.
    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.wires.iter().map(|wire| wire.id).collect()
    }

    /// Losses are told and closes carried out.
    fn losses(&mut self, index: usize) -> bool {
        let (now, id) = (self.shard.now, self.host_id(index));
        let wire = &mut self.wires[index];
        let mut moved = false;
        if wire.host.closes(wire.cut.is_some()) {
            let (direct, batch) = wire.host.pipe.shut();
            wire.host.leaving.clear();
            wire.target.other_gone = !wire.silent;
            self.initiator.handle_closed(now, id, direct, batch);
            return true;
        }
        let host = &mut wire.host;
        let end = wire.cut.is_some() || (host.other_gone && wire.to_host.is_empty());
        if end && host.pipe.lose() {
            moved = true;
            self.initiator.handle_lost(now, id, Loss::EndOfStream);
        }
        let wire = &mut self.wires[index];
        let target = &mut wire.target;
        let gone = match wire.cut {
            Some(heard_of) => now >= heard_of,
            None => target.other_gone && wire.to_target.is_empty(),
        };
        if target.closes(gone) {
            let (direct, batch) = target.pipe.shut();
            target.leaving.clear();
            wire.host.other_gone = !wire.silent;
            self.with(index, |machine, ctx| machine.handle_closed(direct, batch, ctx));
            return true;
        }
        if gone && target.pipe.lose() {
            self.with(index, |machine, ctx| machine.handle_lost(Loss::EndOfStream, ctx));
            moved = true;
        }
        moved
    }

    fn settle_target(&mut self, index: usize) -> bool {
        if self.wires[index].target.pipe.closed {
            self.with(index, |machine, ctx| machine.settle(ctx));
            while self.wires[index].machine.poll_effect().is_some() {}
            return false;
        }
        self.with(index, |machine, ctx| {
            ctx.pool.begin_line();
            Class::ALL.into_iter().for_each(|class| machine.handle_memory(class, ctx));
            machine.settle(ctx);
        });
        let mut moved = false;
        while let Some(effect) = self.wires[index].machine.poll_effect() {
            moved = true;
            let side = &mut self.wires[index].target;
            match effect {
                SessionEffect::Send(batch) => side.send(batch, &self.shard.memory),
                SessionEffect::Resume => side.pipe.resume(),
                SessionEffect::Close { after_send } => side.pipe.end(after_send),
            }
        }
        moved
    }

    fn serve(&mut self) -> bool {
        let mut moved = false;
        for (_, request) in core::mem::take(&mut self.shard.below.held) {
            moved = true;
            let wait = self.random.below(self.chances.disk.as_nanos() as u64 + 1);
            self.pending
                .push(Pending { due: self.shard.now + Duration::from_nanos(wait), request });
        }
        while let Some(at) = self.pending.iter().position(|pending| pending.due <= self.shard.now) {
            moved = true;
            let Pending { request, .. } = self.pending.swap_remove(at);
            let machine = request.ticket.machine.0;
            self.log.push(request.operation.name());
            let completion =
                perform(&mut self.disk, request, Outcome::Done, &mut self.shard.memory);
            let index = self.wire_at(machine).expect("a connection waits for it");
            self.with(index, |machine, ctx| machine.handle_completion(completion, ctx));
        }
        moved
    }

    fn control(&mut self) -> bool {
        let mut moved = false;
        while let Some((place, event)) = self.shard.shared.poll_event() {
            moved = true;
            if let Some(index) = self.wire_at(place.index) {
                self.with(index, |machine, ctx| machine.handle_event(event, ctx));
            }
        }
        moved
    }

    fn wire_at(&self, slot: u32) -> Option<usize> {
        self.wires.iter().position(|wire| wire.id.slot == slot)
    }

    /// Pages that neither side has given back.
    pub(super) fn pages_held(&self) -> usize {
        self.shard.memory.held()
    }
}
