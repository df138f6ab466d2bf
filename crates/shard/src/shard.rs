//! The shard: routes what happens on one core to the machines that it concerns, and gathers what they want.
//!
//! The way of a read: the driver shows bytes ([`Machine::handle_received`]); the connection parses them and either has the data lent at once or asks the
//! volume (`routing`), which wants a disk asked; the driver takes those requests in bulk. Up again: [`Event::Completed`] goes to the volumes by its ticket, the
//! volume's completion to the connection by its own, and when the turn settles the connection's replies leave as one batch.
//!
//! Only machines that were touched in a turn are settled. Who waits for memory stands in a line that is served round robin.
//! Names: a *connection* has the driver's [`ConnectionId`] while its socket lives, and a [`Slot`] on the switchboard (its machine number) until nothing
//! of it is below any more; the driver may use its name again before that.

mod frames;
mod orders;
mod routing;

use std::collections::{BTreeMap, VecDeque};

use block::{
    Completion, DiskId, Instant, MachineId, Memory, Pool, Request, ShardId, Slot, Table, VolumeId,
};
use contract::{
    Ask, ConnectionId, Direct, Effect, Endpoint, Event, InFrame, Machine, Next, Receive,
};
use nvme::controllers::{CloseReason, Controllers};
use nvme::tcp::target::{Connection, Counters, Identity, Reason};
use volume::{Layout, Outbox, Volumes};

use crate::imports::Imports;
use crate::machine;
use crate::mail::{Mail, News};
use crate::timers::Timers;
use frames::Frames;
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
    /// Memory for the outbox's requests while those for imports are taken out.
    asks: Vec<Ask>,
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
    frames: Frames,
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
            asks: Vec::new(),
            controllers: Controllers::new(now, shard, shards),
            places: Table::new(),
            sockets: Vec::new(),
            touched: Vec::new(),
            line: VecDeque::new(),
            line_served_at: 0,
            timers: Timers::default(),
            imports: Imports::new(settings),
            frames: Frames::new(settings),
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

    /// Of each connection the entries of its queue, and the bytes that it holds outside the pool for answers that were not given to
    /// the driver.
    pub fn unsent(&self) -> impl Iterator<Item = (u16, usize)> {
        self.places.iter().map(|(_, place)| {
            let machine = &place.machine;
            (machine.queue().map_or(1, |queue| queue.depth), machine.bytes_gathered())
        })
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
            Event::LinkUp { link, facts } => self.link_up(now, link, facts),
            Event::LinkDown { link } => self.link_down(now, link),
            Event::FramesSent { token, batch } => self.frames_sent(now, token, batch, memory),
            Event::ConnectFailed { token, error } => {
                self.imports.connect_failed(now, token, error, memory);
            }
            Event::Mail { from, mail } => match mail {
                Mail::Volume(message) => {
                    self.volumes.handle_message(now, from, message, &mut self.outbox);
                    self.route_outbox(now, memory);
                }
                Mail::Nvme(message) => self.controllers.handle_message(now, from, message),
                Mail::Control(message) => self.handle_control_mail(from, message),
                Mail::Reservation(message) => self.handle_reservation_mail(from, message),
                Mail::Stored { key, version, stored } => self.handle_stored(key, version, stored),
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

    #[inline]
    fn handle_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        self.take_frame(now, frame, memory);
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
        if self.frames.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.with_target(now, memory, |target, _| target.handle_timeout(now));
        }
        self.route_outbox(now, memory);
    }

    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            self.serve_line(now, memory);
            self.settle_touched(now, memory);
            self.settle_frames(now, memory);
            self.route_controllers(now, memory);
            self.route_imports(now, memory);
            self.route_outbox(now, memory);
            let served = self.line.is_empty() || self.pool.used() >= self.line_served_at;
            let is_settled = self.touched.is_empty()
                && !self.imports.needs_settle()
                && !self.frames.needs_settle();
            if is_settled && served {
                break;
            }
        }
        self.answer_pending();
    }

    #[inline]
    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        if self.outbox.submit.is_empty() {
            return;
        }
        if self.imports.is_empty() && asks.is_empty() {
            core::mem::swap(asks, &mut self.outbox.submit);
            return;
        }
        // What is for imports waits for the next settle.
        let mut mixed = core::mem::take(&mut self.asks);
        core::mem::swap(&mut mixed, &mut self.outbox.submit);
        for (disk, request) in mixed.drain(..) {
            let list = match self.imports.get_mut(disk) {
                Some(_) => &mut self.outbox.submit,
                None => &mut *asks,
            };
            list.push((disk, request));
        }
        self.asks = mixed;
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
            self.frames.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
