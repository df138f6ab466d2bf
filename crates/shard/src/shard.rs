//! The shard: routes what happens on one core to the machines that it concerns, and gathers what they want.
//!
//! The way of a read: the driver shows bytes ([`Shard::handle_received`]); the connection parses them and pushes requests; [`Shard::route_requests`] hands them to
//! their volumes, which push requests for disks; the driver takes those in bulk. Up again: [`Event::Completed`] goes to the volumes by its ticket, the volume's completion to
//! the connection by its own, and at [`Shard::settle`] the connection's replies leave as one batch.
//!
//! Only machines that were touched in a turn are settled. Who waits for memory stands in a line that is served round robin.
//! Names: a *connection* has the driver's [`ConnectionId`] while its socket lives, and a [`Slot`] on the switchboard (its machine number) until nothing
//! of it is below any more; the driver may use its name again before that.

mod orders;

use std::collections::{BTreeMap, VecDeque};

use block::{
    Completion, DiskId, Extent, Instant, MachineId, Memory, Pool, Request, ShardId, Slot, Submit,
    Table, Ticket, VolumeId,
};
use contract::{Ask, ConnectionId, Direct, Effect, Endpoint, Event, Machine, Next, Receive};
use nvme::controllers::{CloseReason, Controllers, MachineKey};
use nvme::tcp::target::{Connection, ConnectionEffect, Context, Counters, Identity, Reason};
use volume::gate::Health;
use volume::{Layout, Notice, Outbox, Volumes};

use crate::imports::Imports;
use crate::machine;
use crate::mail::{Answer, Mail, News};
use crate::timers::Timers;
use orders::Pending;

/// What a shard has to know at its start.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its number.
    pub shard: ShardId,
    /// How many there are.
    pub shards: u16,
    /// Pages of its part of the memory budget.
    pub pages: u32,
    /// Seed for back-off and the like.
    pub seed: u64,
}

/// A connection's place on the switchboard.
#[derive(Debug)]
struct Place {
    machine: Connection,
    /// The driver's name; `None` once the driver said `Closed`.
    socket: Option<ConnectionId>,
    endpoint: Endpoint,
    touched: bool,
    in_line: bool,
    armed: Option<Instant>,
}

/// The volumes, as a connection sees them.
struct Below<'a> {
    now: Instant,
    volumes: &'a mut Volumes,
    outbox: &'a mut Outbox,
}

impl Submit for Below<'_> {
    #[inline]
    fn submit(&mut self, volume: VolumeId, request: Request) {
        self.volumes.handle_request(self.now, volume, request, self.outbox);
    }

    #[inline]
    fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        self.volumes.find_loan(volume, extent, memory)
    }
}

/// Whose a socket is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Target(Slot),
    Import(DiskId),
}

/// One core's machines.
#[derive(Debug)]
pub struct Shard {
    settings: Settings,
    pool: Pool,
    volumes: Volumes,
    outbox: Outbox,
    controllers: Controllers,
    places: Table<Place>,
    /// The owner of each of the driver's slots, with the slot's generation.
    sockets: Vec<Option<(u32, Owner)>>,
    touched: Vec<Slot>,
    /// Who waits for memory, and the pool's use when the line was last served.
    line: VecDeque<Slot>,
    line_served_at: u32,
    timers: Timers,
    imports: Imports,
    effects: VecDeque<Effect<Mail>>,
    /// Completions of requests that a visitor made.
    visits: VecDeque<Completion>,
    members: BTreeMap<u32, Layout>,
    pending: Vec<Pending>,
    draining: bool,
    accepted: u64,
    misbehaved: u64,
    /// What connections did that are gone.
    served: Counters,
}

impl Shard {
    /// A shard without disks, volumes and connections.
    pub fn new(now: Instant, settings: Settings) -> Shard {
        let Settings { shard, shards, pages, .. } = settings;
        Shard {
            settings,
            pool: Pool::new(pages),
            volumes: Volumes::new(shard, shards, machine::FLIGHTS, machine::GATES),
            outbox: Outbox::default(),
            controllers: Controllers::new(now, shard, shards),
            places: Table::new(),
            sockets: Vec::new(),
            touched: Vec::new(),
            line: VecDeque::new(),
            line_served_at: 0,
            timers: Timers::default(),
            imports: Imports::new(settings),
            effects: VecDeque::new(),
            visits: VecDeque::new(),
            members: BTreeMap::new(),
            pending: Vec::new(),
            draining: false,
            accepted: 0,
            misbehaved: 0,
            served: Counters::default(),
        }
    }

    /// A request of a visitor, whose machine is [`machine::visitor`]; answered by [`poll_visit`](Self::poll_visit).
    pub fn visit(&mut self, now: Instant, volume: VolumeId, request: Request) {
        debug_assert_eq!(machine::kind(request.ticket.machine), machine::VISITOR);
        self.volumes.handle_request(now, volume, request, &mut self.outbox);
    }

    /// A completion for a visitor.
    pub fn poll_visit(&mut self) -> Option<Completion> {
        self.visits.pop_front()
    }

    /// A buffer for a visitor, charged to its account.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Bytes of a volume.
    pub fn volume_size(&self, volume: VolumeId) -> Option<block::ByteCount> {
        self.volumes.size(volume)
    }

    /// Pages of the pool, those lent out, and requests in flight: all lent pages must be back when nothing is connected.
    pub fn pages_used(&self) -> u32 {
        self.pool.used()
    }

    /// Requests and pieces that are below.
    pub fn in_flight(&self) -> usize {
        self.volumes.in_flight()
    }

    fn owner_of(&self, connection: ConnectionId) -> Option<Owner> {
        match self.sockets.get(connection.slot as usize)? {
            Some((generation, owner)) if *generation == connection.generation => Some(*owner),
            _ => None,
        }
    }

    fn set_owner(&mut self, connection: ConnectionId, owner: Owner) {
        let index = connection.slot as usize;
        if self.sockets.len() <= index {
            self.sockets.resize(index + 1, None);
        }
        self.sockets[index] = Some((connection.generation, owner));
    }

    /// Runs `work` on a connection's machine and marks it as touched.
    #[inline]
    fn with_connection<R>(
        &mut self,
        now: Instant,
        slot: Slot,
        memory: &mut dyn Memory,
        work: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let place = self.places.get_mut(slot)?;
        if !place.touched {
            place.touched = true;
            self.touched.push(slot);
        }
        let mut below = Below { now, volumes: &mut self.volumes, outbox: &mut self.outbox };
        let mut context = Context {
            now,
            memory,
            pool: &mut self.pool,
            controllers: &mut self.controllers,
            below: &mut below,
        };
        Some(work(&mut place.machine, &mut context))
    }

    /// Hands what volumes want to whom it concerns, until nothing is left to route.
    #[inline]
    fn route_outbox(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.imports.is_empty() {
            self.ask_imports(now, memory);
        }
        if !self.outbox.messages.is_empty() {
            let mail = |(to, message)| Effect::Mail { to, mail: Mail::Volume(message) };
            self.effects.extend(self.outbox.messages.drain(..).map(mail));
        }
        if !self.outbox.notices.is_empty() {
            self.handle_notices(now);
        }
        if !self.outbox.complete.is_empty() {
            let mut complete = core::mem::take(&mut self.outbox.complete);
            for completion in complete.drain(..) {
                self.route_completion(now, completion, memory);
            }
            if self.outbox.complete.is_empty() {
                self.outbox.complete = complete;
            }
        }
    }

    /// Takes what is for imports out of what disks are to be asked.
    fn ask_imports(&mut self, now: Instant, memory: &mut dyn Memory) {
        for (disk, request) in core::mem::take(&mut self.outbox.submit) {
            match self.imports.get_mut(disk) {
                Some(import) => import.handle_request(now, request, memory),
                None => self.outbox.submit.push((disk, request)),
            }
        }
    }

    /// A disk answered. For nearly all requests what follows is that their asker is told.
    #[inline]
    fn handle_completion(&mut self, now: Instant, completion: Completion, memory: &mut dyn Memory) {
        if let Some(told) = self.volumes.handle_completion(now, completion, &mut self.outbox) {
            self.route_completion(now, told, memory);
        }
        if !self.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    /// Gives a volume's completion to whoever asked the volume.
    #[inline]
    fn route_completion(&mut self, now: Instant, completion: Completion, memory: &mut dyn Memory) {
        let Ticket { machine, generation, .. } = completion.ticket;
        match machine::kind(machine) {
            machine::CONNECTION => {
                let slot = Slot { index: machine.0, generation };
                self.with_connection(now, slot, memory, |connection, context| {
                    connection.handle_completion(completion, context);
                })
                .expect("a connection stays until nothing of it is below");
            }
            machine::VISITOR => self.visits.push_back(completion),
            other => unreachable!("a volume completed a request of machine kind {other}"),
        }
    }

    fn handle_notices(&mut self, now: Instant) {
        for notice in core::mem::take(&mut self.outbox.notices) {
            let news = match notice {
                Notice::Health(disk, health) => {
                    if health == Health::Stuck {
                        for volume in self.volumes_on(disk) {
                            self.controllers.volume_stuck(now, volume);
                        }
                    }
                    News::DiskHealth(disk, health)
                }
                Notice::Protected(disk, failure) => News::DiskProtected(disk, failure),
            };
            self.tell(news);
        }
    }

    fn volumes_on(&self, disk: DiskId) -> Vec<VolumeId> {
        let uses = |layout: &Layout| layout.members().iter().any(|member| member.disk == disk);
        let volumes = self.members.iter().filter(|(_, layout)| uses(layout));
        volumes.map(|(volume, _)| VolumeId(*volume)).collect()
    }

    /// Carries what the controllers want: messages, late replies, closes, flushes.
    fn route_controllers(&mut self, now: Instant, memory: &mut dyn Memory) {
        while let Some((to, message)) = self.controllers.poll_message() {
            if to == self.settings.shard {
                self.controllers.handle_message(now, to, message);
            } else {
                self.effects.push_back(Effect::Mail { to, mail: Mail::Nvme(message) });
            }
        }
        while let Some((key, reply)) = self.controllers.poll_reply() {
            self.with_connection(now, place_of(key), memory, |connection, context| {
                connection.handle_reply(reply, context);
            });
        }
        while let Some((key, reason)) = self.controllers.poll_close() {
            self.with_connection(now, place_of(key), memory, |connection, context| {
                connection.close(reason, context);
            });
        }
        while let Some(flush) = self.controllers.poll_flush() {
            self.with_connection(now, place_of(flush.key), memory, |connection, context| {
                connection.handle_flush(flush.volume, context);
            });
        }
    }

    /// Settles the machines that were touched and takes their effects.
    fn settle_touched(&mut self, now: Instant, memory: &mut dyn Memory) {
        let mut touched = core::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let Some(place) = self.places.get_mut(slot) else { continue };
            place.touched = false;
            let mut below = Below { now, volumes: &mut self.volumes, outbox: &mut self.outbox };
            let mut context = Context {
                now,
                memory: &mut *memory,
                pool: &mut self.pool,
                controllers: &mut self.controllers,
                below: &mut below,
            };
            place.machine.settle(&mut context);
            while let Some(effect) = place.machine.poll_effect() {
                let Some(connection) = place.socket else { continue };
                self.effects.push_back(match effect {
                    ConnectionEffect::Send(batch) => Effect::Send { connection, batch },
                    ConnectionEffect::Resume => Effect::Resume { connection },
                    ConnectionEffect::Close { after_send } => {
                        Effect::Close { connection, after_send }
                    }
                });
            }
            if place.machine.waits_for_memory() && !place.in_line {
                place.in_line = true;
                self.line.push_back(slot);
                // Memory may have come back since it tried: the line is served at once, whatever the pool's use was.
                self.line_served_at = u32::MAX;
            }
            self.timers.arm(slot, &mut place.armed, place.machine.poll_timeout());
            if place.machine.is_gone() && place.socket.is_none() {
                self.served.add(place.machine.counters());
                self.places.remove(slot);
            }
        }
        self.touched = touched;
    }

    /// Lets those who wait for memory try again, the longest waiting first, when there is more of it than when they last tried.
    fn serve_line(&mut self, now: Instant, memory: &mut dyn Memory) {
        if self.line.is_empty() || self.pool.used() >= self.line_served_at {
            self.line_served_at = self.line_served_at.max(self.pool.used());
            if self.line.is_empty() {
                self.line_served_at = 0;
            }
            return;
        }
        for _ in 0..self.line.len() {
            let Some(slot) = self.line.pop_front() else { break };
            let Some(place) = self.places.get_mut(slot) else { continue };
            place.in_line = false;
            self.with_connection(now, slot, memory, |connection, context| {
                connection.handle_memory(context);
            });
            let place = self.places.get_mut(slot).expect("it was there");
            if place.machine.waits_for_memory() {
                place.in_line = true;
                self.line.push_back(slot);
            }
        }
        self.line_served_at = self.pool.used();
    }

    fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        endpoint: Endpoint,
        memory: &mut dyn Memory,
    ) {
        self.accepted += 1;
        // The machine must know its own place, which the table gives: so it is filled in two steps.
        let shard = self.settings.shard;
        let slot = self.places.insert_with(|slot| {
            let identity =
                Identity { machine: MachineId(slot.index), generation: slot.generation, shard };
            Place {
                machine: Connection::new(now, identity, connection, endpoint, Default::default()),
                socket: Some(connection),
                endpoint,
                touched: false,
                in_line: false,
                armed: None,
            }
        });
        self.set_owner(connection, Owner::Target(slot));
        let place = self.places.get_mut(slot).expect("it was just filled");
        self.timers.arm(slot, &mut place.armed, place.machine.poll_timeout());
        if self.draining {
            self.with_connection(now, slot, memory, |machine, context| {
                machine.close(CloseReason::ServerStopping, context);
            });
        }
    }

    /// A connection's socket is gone: counts it, and tells when its peer misbehaved.
    fn note_end(&mut self, slot: Slot) {
        let Some(place) = self.places.get_mut(slot) else { return };
        place.socket = None;
        let Some(reason @ (Reason::Violation(_) | Reason::Terminated(_) | Reason::TimedOut(_))) =
            place.machine.reason()
        else {
            return;
        };
        let news = News::Closed { peer: place.endpoint.peer, reason: reason.to_string() };
        self.misbehaved += 1;
        self.tell(news);
    }

    /// Takes what imports want, and hands their completions to the volumes.
    fn route_imports(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !self.imports.needs_settle() {
            return;
        }
        self.imports.settle(now, memory);
        for (connection, disk) in self.imports.take_connected() {
            self.set_owner(connection, Owner::Import(disk));
        }
        self.effects.extend(self.imports.take_effects());
        while let Some(completion) = self.imports.poll_completion() {
            let told = self.volumes.handle_completion(now, completion, &mut self.outbox);
            self.outbox.complete.extend(told);
        }
        for (number, disk, result) in self.imports.take_ready() {
            if let Ok(facts) = &result {
                self.volumes.add_disk(disk, facts.clone());
            }
            self.answer(number, Answer::Import(result));
        }
        for (disk, facts) in self.imports.take_renewed() {
            self.volumes.follow_disk(disk, facts.clone());
            self.tell(News::DiskChanged(disk, facts));
        }
        for (disk, news) in self.imports.take_news() {
            self.tell(News::Import(disk, news));
        }
    }

    /// Whatever happens that is no answer of a disk.
    fn handle_happening(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        match event {
            Event::Completed(_) => unreachable!("handle_completion takes those"),
            Event::Sent { connection, batch } => match self.owner_of(connection) {
                Some(Owner::Target(slot)) => {
                    self.with_connection(now, slot, memory, |machine, context| {
                        machine.handle_sent(batch, context);
                    });
                }
                Some(Owner::Import(disk)) => {
                    self.imports.sent(now, disk, connection, batch, memory)
                }
                None => unreachable!("{connection} sent after it was closed"),
            },
            Event::SendProgress { connection } => match self.owner_of(connection) {
                Some(Owner::Target(slot)) => {
                    self.with_connection(now, slot, memory, |machine, _| {
                        machine.handle_progress(now);
                    });
                }
                Some(Owner::Import(disk)) => self.imports.progress(now, disk, connection),
                None => {}
            },
            Event::Accepted { connection, endpoint } => {
                self.accept(now, connection, endpoint, memory);
            }
            Event::Lost { connection, loss } => match self.owner_of(connection) {
                Some(Owner::Target(slot)) => {
                    self.with_connection(now, slot, memory, |machine, context| {
                        machine.handle_lost(loss, context);
                    });
                }
                Some(Owner::Import(disk)) => self.imports.lost(now, disk, connection, loss, memory),
                None => {}
            },
            Event::Closed { connection, direct, batch } => {
                let owner = self.owner_of(connection);
                self.sockets[connection.slot as usize] = None;
                match owner {
                    Some(Owner::Target(slot)) => {
                        self.with_connection(now, slot, memory, |machine, context| {
                            machine.handle_closed(direct, batch, context);
                        });
                        self.note_end(slot);
                    }
                    Some(Owner::Import(disk)) => {
                        self.imports.closed(now, disk, connection, direct, batch, memory);
                    }
                    None => unreachable!("{connection} was closed twice"),
                }
            }
            Event::Connected { token, connection, local } => {
                self.imports.connected(now, token, connection, local, memory);
                if let Some(disk) = self.imports.disk_of(token) {
                    self.set_owner(connection, Owner::Import(disk));
                } else {
                    self.effects.push_back(Effect::Close { connection, after_send: false });
                }
            }
            Event::ConnectFailed { token, error } => {
                self.imports.connect_failed(now, token, error, memory);
            }
            Event::Mail { from, mail } => match mail {
                Mail::Volume(message) => {
                    self.volumes.handle_message(now, from, message, &mut self.outbox);
                    self.route_outbox(now, memory);
                }
                Mail::Nvme(message) => self.controllers.handle_message(now, from, message),
                Mail::Order { number, order } => {
                    self.handle_order(now, number, *order, memory);
                    self.route_outbox(now, memory);
                }
                Mail::Answer { .. } | Mail::News(_) => {
                    unreachable!("{from:?} wrote to a shard what is for the control thread")
                }
            },
        }
    }
}

/// A machine's place on the switchboard.
fn place_of(key: MachineKey) -> Slot {
    Slot { index: key.machine.0, generation: key.generation }
}

impl Machine for Shard {
    type Mail = Mail;

    #[inline]
    fn handle_event(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        match event {
            Event::Completed(completion) => self.handle_completion(now, completion, memory),
            event => self.handle_happening(now, event, memory),
        }
    }
    #[inline]
    fn handle_received(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        match self.owner_of(connection) {
            Some(Owner::Target(slot)) => {
                let receive = self
                    .with_connection(now, slot, memory, |machine, context| {
                        machine.handle_received(bytes, context)
                    })
                    .expect("a socket's machine is there");
                self.route_outbox(now, memory);
                receive
            }
            Some(Owner::Import(disk)) => {
                self.imports.received(now, disk, connection, bytes, memory)
            }
            None => unreachable!("{connection} received after it was closed"),
        }
    }

    fn handle_direct(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        match self.owner_of(connection) {
            Some(Owner::Target(slot)) => {
                let next = self
                    .with_connection(now, slot, memory, |machine, context| {
                        machine.handle_direct(direct, context)
                    })
                    .expect("a socket's machine is there");
                self.route_outbox(now, memory);
                next
            }
            Some(Owner::Import(disk)) => self.imports.direct(now, disk, connection, direct, memory),
            None => unreachable!("{connection} received after it was closed"),
        }
    }

    fn handle_timeout(&mut self, now: Instant, memory: &mut dyn Memory) {
        while let Some((at, slot)) = self.timers.pop_due(now) {
            let Some(place) = self.places.get_mut(slot) else { continue };
            if place.armed == Some(at) {
                place.armed = None;
            }
            if place.machine.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.with_connection(now, slot, memory, |machine, context| {
                    machine.handle_timeout(context);
                });
            } else {
                self.timers.arm(slot, &mut place.armed, place.machine.poll_timeout());
            }
        }
        self.volumes.handle_timeout(now, &mut self.outbox);
        if self.controllers.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.controllers.handle_timeout(now);
        }
        self.imports.handle_timeout(now, memory);
        self.route_outbox(now, memory);
    }

    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            self.serve_line(now, memory);
            self.settle_touched(now, memory);
            self.route_controllers(now, memory);
            self.route_imports(now, memory);
            self.route_outbox(now, memory);
            let served = self.line.is_empty() || self.pool.used() >= self.line_served_at;
            if self.touched.is_empty() && !self.imports.needs_settle() && served {
                break;
            }
        }
        self.answer_pending();
    }

    #[inline]
    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        if self.imports.is_empty() && asks.is_empty() {
            core::mem::swap(asks, &mut self.outbox.submit);
            return;
        }
        // What is for imports waits for the next settle.
        for (disk, request) in core::mem::take(&mut self.outbox.submit) {
            match self.imports.get_mut(disk) {
                Some(_) => self.outbox.submit.push((disk, request)),
                None => asks.push((disk, request)),
            }
        }
    }

    #[inline]
    fn poll_effect(&mut self) -> Option<Effect<Mail>> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [
            self.timers.next(),
            self.volumes.poll_timeout(),
            self.controllers.poll_timeout(),
            self.imports.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
