//! The shard: routes what happens on one core to the machines that it concerns, and gathers what
//! they want.
//!
//! The way of a read: the driver shows bytes ([`Machine::handle_received`]); the session parses
//! them and either has the data lent at once or asks the volume (`routing`), which wants a disk
//! asked; the driver takes those requests in bulk. Up again: [`Event::Completed`] goes to the
//! volumes by its ticket, the volume's completion to the session by its own, and when the turn
//! settles the session's replies leave as one batch.
//!
//! Only machines that were touched in a turn are settled. Who waits for memory stands in a line
//! (`lines`). Names: a *connection* is the driver's, and has its [`ConnectionId`]
//! while its socket lives. What serves it is a *session* ([`crate::protocols`]), which has a place,
//! its machine number, until nothing of it is below any more; the driver may use its name for the
//! connection again before that.

mod frames;
mod lines;
mod orders;
mod paths;
mod proposers;
mod reservations;
mod routing;

use std::collections::{BTreeMap, VecDeque};

use block::{Completion, DiskId, Instant, MachineId, Memory, Pool, ShardId, Slot, Table, planted};
use contract::{
    Ask, ConnectionId, Direct, Effect, Endpoint, Event, InFrame, ListenerId, Machine, Next,
    Receive, SessionEnd, SessionIdentity,
};
use reservation::PathGroup;
use volume::{Layout, Volumes};

use crate::client::{ClientContext, InternalClients};
use crate::elsewhere::Elsewhere;
use crate::imports::Imports;
use crate::machine;
use crate::mail::{Mail, News};
use crate::protocols::{Protocol, Protocols, Session};
use crate::report::{HostCounters, ShardCounters};
use crate::timers::Timers;
use frames::Frames;
use lines::Lines;
pub use lines::Waiter;
use orders::Pending;
use paths::PathStates;
use reservations::Reservations;

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
    /// Random bytes that nobody else knows, of which challenges are made.
    pub secret: [u8; 32],
}

/// The place of a session.
#[derive(Debug)]
struct Place {
    session: Session,
    /// The driver's name; `None` once the driver said `Closed`.
    socket: Option<ConnectionId>,
    endpoint: Endpoint,
    /// The group of its listener.
    group: PathGroup,
    touched: bool,
    /// Whether it stands in the line of each class.
    in_line: [bool; 2],
    /// How often it was served in each line.
    turns: [u64; 2],
    armed: Option<Instant>,
}

/// Whose a socket is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Session(Slot),
    Import(DiskId),
    /// It came for somebody who is gone, and is being closed.
    Nobody,
}

/// One core's machines.
#[derive(Debug)]
pub struct Shard {
    settings: Settings,
    pool: Pool,
    volumes: Volumes,
    /// Memory for the answers of imports while they are handed up.
    answers: Vec<Completion>,
    protocols: Protocols,
    /// What is spoken through each listener, and of which group it is.
    listeners: BTreeMap<ListenerId, (Protocol, PathGroup)>,
    places: Table<Place>,
    /// The owner of each of the driver's slots, with the slot's generation.
    sockets: Vec<Option<(u32, Owner)>>,
    touched: Vec<Slot>,
    lines: Lines,
    timers: Timers,
    imports: Imports,
    elsewhere: Elsewhere,
    frames: Frames,
    reservations: Reservations,
    paths: PathStates,
    effects: VecDeque<Effect<Mail>>,
    clients: InternalClients,
    members: BTreeMap<u32, Layout>,
    pending: Vec<Pending>,
    draining: bool,
    counters: ShardCounters,
    hosts: HostCounters,
}

impl Shard {
    /// A shard without disks, volumes and sessions.
    pub fn new(now: Instant, settings: Settings) -> Shard {
        let Settings { shard, shards, pages, .. } = settings;
        Shard {
            settings,
            pool: Pool::new(pages),
            volumes: Volumes::new(shard, shards, machine::FLIGHTS, machine::GATES),
            answers: Vec::new(),
            protocols: Protocols::new(now, settings),
            listeners: BTreeMap::new(),
            places: Table::new(),
            sockets: Vec::new(),
            touched: Vec::new(),
            lines: Lines::default(),
            timers: Timers::default(),
            imports: Imports::default(),
            elsewhere: Elsewhere::default(),
            frames: Frames::default(),
            reservations: Reservations::new(shard, shards),
            paths: PathStates::new(shard, shards),
            effects: VecDeque::new(),
            clients: InternalClients::default(),
            members: BTreeMap::new(),
            pending: Vec::new(),
            draining: false,
            counters: ShardCounters::default(),
            hosts: HostCounters::default(),
        }
    }

    /// Pages of the pool, those lent out, and requests in flight: all lent pages must be back when
    /// nothing is connected.
    pub fn pages_used(&self) -> u32 {
        self.pool.used()
    }

    /// Requests and pieces that are below.
    pub fn in_flight(&self) -> usize {
        self.volumes.in_flight()
    }

    /// When anything but an internal client wants to be called.
    #[inline]
    fn machines_timeout(&self) -> Option<Instant> {
        let hosts = Instant::earliest(self.timers.next(), self.protocols.poll_timeout());
        let below = Instant::earliest(self.volumes.poll_timeout(), self.imports.poll_timeout());
        Instant::earliest(Instant::earliest(hosts, below), self.frames.poll_timeout())
    }

    fn settle_machines(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            self.serve_lines(now, memory);
            self.settle_touched(now, memory);
            self.settle_frames(now, memory);
            self.settle_reservations(now, memory);
            self.settle_paths();
            self.route_protocols(now, memory);
            self.route_imports(now, memory);
            self.route_outbox(now, memory);
            let is_settled = self.touched.is_empty()
                && !self.imports.needs_settle()
                && !self.protocols.needs_settle()
                && !self.paths.needs_settle()
                && (!self.reservations.needs_settle() || planted("change-waits-for-a-turn"));
            if is_settled && !self.lines_are_due() {
                return;
            }
        }
    }

    /// Runs `work` on the internal clients.
    #[inline]
    fn with_clients<R>(
        &mut self,
        now: Instant,
        memory: &mut dyn Memory,
        work: impl FnOnce(&mut InternalClients, &mut ClientContext<'_>) -> R,
    ) -> R {
        let mut context = ClientContext {
            now,
            shard: self.settings.shard,
            memory,
            pool: &mut self.pool,
            volumes: &mut self.volumes,
            number: 0,
            has_asked: false,
        };
        work(&mut self.clients, &mut context)
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

    fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        endpoint: Endpoint,
        memory: &mut dyn Memory,
    ) {
        self.counters.accepted += 1;
        let Some((protocol, group)) = self.listeners.get(&endpoint.listener).copied() else {
            return self.turn_away(connection);
        };
        // The session must know its own place, which the table gives: so it is filled in two steps.
        let shard = self.settings.shard;
        let slot = self.places.insert_with(|slot| {
            let machine = MachineId(slot.index);
            let identity = SessionIdentity { machine, generation: slot.generation, shard };
            Place {
                session: Session::new(now, protocol, identity, endpoint),
                socket: Some(connection),
                endpoint,
                group,
                touched: false,
                in_line: [false; 2],
                turns: [0; 2],
                armed: None,
            }
        });
        self.set_owner(connection, Owner::Session(slot));
        let place = self.places.get_mut(slot).expect("it was just filled");
        self.timers.arm(slot, &mut place.armed, place.session.poll_timeout());
        if self.draining {
            self.with_session(now, slot, memory, |session, context| {
                session.close(SessionEnd::ServerStopping, context);
            });
        }
    }

    /// A connection came for a listener or an import that is gone.
    fn turn_away(&mut self, connection: ConnectionId) {
        self.set_owner(connection, Owner::Nobody);
        self.effects.push_back(Effect::Close { connection, after_send: false });
    }

    /// A connection's socket is gone: counts it, and tells when its peer misbehaved.
    fn note_end(&mut self, slot: Slot) {
        let Some(place) = self.places.get_mut(slot) else { return };
        place.socket = None;
        let Some(reason) = place.session.misconduct() else { return };
        let news = News::Closed { peer: place.endpoint.peer, reason };
        self.counters.misbehaved += 1;
        self.tell(news);
    }

    /// Something happened to a connection, but for what it received.
    #[inline]
    fn handle_connection(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        event: Event<Mail>,
        memory: &mut dyn Memory,
    ) {
        let owner = self.owner_of(connection);
        let is_closed = matches!(event, Event::Closed { .. });
        if is_closed {
            self.sockets[connection.slot as usize] = None;
        }
        match owner {
            Some(Owner::Session(slot)) => {
                self.with_session(now, slot, memory, |session, context| {
                    session.handle_connection(now, event, context);
                });
                if is_closed {
                    self.note_end(slot);
                }
            }
            Some(Owner::Import(disk)) => {
                self.imports.stream(disk, connection).handle_connection(now, event, memory);
            }
            Some(Owner::Nobody) | None => match event {
                Event::Sent { .. } => unreachable!("{connection} has nothing to send"),
                Event::Closed { .. } if owner.is_none() => {
                    unreachable!("{connection} was closed twice")
                }
                _ => {}
            },
        }
    }

    /// Whatever happens that is no answer of a disk.
    fn handle_happening(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        match event {
            Event::Completed(_) => unreachable!("handle_completion takes those"),
            Event::Sent { connection, .. }
            | Event::SendProgress { connection }
            | Event::Lost { connection, .. }
            | Event::Closed { connection, .. } => {
                self.handle_connection(now, connection, event, memory);
            }
            Event::Accepted { connection, endpoint } => {
                self.accept(now, connection, endpoint, memory);
            }
            Event::Connected { token, connection, local: _ } => {
                match self.imports.connected(now, token, connection) {
                    Some(disk) => self.set_owner(connection, Owner::Import(disk)),
                    None => self.turn_away(connection),
                }
            }
            Event::LinkUp { link, facts } => self.handle_link(now, link, Some(facts)),
            Event::LinkDown { link } => self.handle_link(now, link, None),
            Event::FramesSent { token, batch } => self.frames_sent(now, token, batch, memory),
            Event::ConnectFailed { token, error } => {
                self.imports.connect_failed(now, token, error);
            }
            Event::Mail { from, mail } => {
                mail.passed();
                match mail {
                    Mail::Volume(message) => {
                        self.volumes.handle_message(now, from, message);
                        self.route_outbox(now, memory);
                    }
                    Mail::Protocol(message) => self.protocols.handle_message(now, from, message),
                    Mail::Disk(message) => self.handle_disk_mail(now, *message, memory),
                    Mail::Reservation(message) => self.reservations.handle_mail(from, message),
                    Mail::Paths(message) => self.paths.handle_mail(from, message),
                    Mail::Stored { key, version, stored } => {
                        self.handle_stored(key, version, stored)
                    }
                    // Clients work when the turn ends.
                    Mail::Knock => {}
                    Mail::Order { number, order } => {
                        self.handle_order(now, number, *order, memory);
                        self.route_outbox(now, memory);
                    }
                    Mail::Answer { .. } | Mail::News(_) => {
                        unreachable!("{from:?} wrote to a shard what is for the control thread")
                    }
                }
            }
        }
    }
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
            Some(Owner::Session(slot)) => {
                let receive = self
                    .with_session(now, slot, memory, |session, context| {
                        session.handle_received(bytes, context)
                    })
                    .expect("a connection's session is there");
                self.route_outbox(now, memory);
                receive
            }
            Some(Owner::Import(disk)) => self.import_received(now, disk, connection, bytes, memory),
            Some(Owner::Nobody) => Receive { consumed: 0, next: Next::Pause },
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
            Some(Owner::Session(slot)) => {
                let next = self
                    .with_session(now, slot, memory, |session, context| {
                        session.handle_direct(direct, context)
                    })
                    .expect("a connection's session is there");
                self.route_outbox(now, memory);
                next
            }
            Some(Owner::Import(disk)) => {
                let initiator = self.imports.stream(disk, connection);
                let next = initiator.handle_direct(now, connection, direct, memory);
                self.route_import_answers(now, memory);
                next
            }
            Some(Owner::Nobody) | None => unreachable!("{connection} asked for no data"),
        }
    }

    #[inline]
    fn handle_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        self.take_frame(now, frame, memory);
    }

    fn handle_timeout(&mut self, now: Instant, memory: &mut dyn Memory) {
        // Internal clients are called whenever a turn ends.
        if !self.clients.is_empty() && self.machines_timeout().is_none_or(|at| at > now) {
            return;
        }
        while let Some((at, slot)) = self.timers.pop_due(now) {
            let Some(place) = self.places.get_mut(slot) else { continue };
            if place.armed == Some(at) {
                place.armed = None;
            }
            if place.session.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.with_session(now, slot, memory, |session, context| {
                    session.handle_timeout(context);
                });
            } else {
                self.timers.arm(slot, &mut place.armed, place.session.poll_timeout());
            }
        }
        self.volumes.handle_timeout(now);
        self.protocols.handle_timeout(now);
        self.frames.handle_timeout(now);
        self.take_received(now, memory);
        self.imports.handle_timeout(now);
        self.route_outbox(now, memory);
    }

    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.settle_machines(now, memory);
        while !self.clients.is_empty()
            && self.with_clients(now, memory, |clients, context| clients.work(context))
        {
            // What was asked leaves in this turn.
            self.settle_machines(now, memory);
        }
        self.answer_pending(now);
    }

    #[inline]
    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        let submit = &mut self.volumes.outbox.submit;
        if asks.is_empty() {
            core::mem::swap(asks, submit);
        } else {
            asks.append(submit);
        }
    }

    #[inline]
    fn poll_effect(&mut self) -> Option<Effect<Mail>> {
        let mut effect = self.effects.pop_front();
        if let Some(Effect::Mail { mail, .. }) = &mut effect {
            mail.passed();
        }
        effect
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machines = Instant::earliest(self.machines_timeout(), self.clients.poll_timeout());
        let pending = self.pending.iter().filter_map(Pending::answered_by).min();
        Instant::earliest(machines, pending)
    }
}
