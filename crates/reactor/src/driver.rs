//! The driver: runs one machine on one thread, over whichever engine.
//!
//! A turn: take what has ended, show received bytes, tell events, ask disks (those that answer at
//! once answer there), then settle and carry effects out, until nothing follows; then wait, in one
//! system call, until something ends, mail comes or a moment is due; before it sleeps it looks for
//! more, where that pays (`poll`). Nothing ticks: without a deadline the wait has no limit.
//!
//! ```text
//!   wait -> ends -> receiving/sending/disks -> machine -> settle -> effects -> wait
//!                                                ^                    |
//!                                                +-- RAM completions -+
//! ```
//!
//! The parts are in files of their own, by subject: `receiving`, `direct`, `sending`, `closing` (and
//! connecting), `disks`, `listening`, `links`, `poll`. Here: the loop, the clock, timers and mail.
//! Units: times on the process's clock, whose origin is the reactor's start. Invariant: what an
//! operation of the engine points at belongs to its connection or work and stays until the
//! operation's end has been told; a connection leaves the table only then.

mod closing;
mod connection;
mod direct;
mod disks;
mod links;
mod listening;
mod poll;
mod receiving;
mod sending;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{self, Duration};

use block::table::{Slot, Table};
use block::{Instant, ShardId};
use contract::{ConnectionId, Effect, Event, Machine};

use crate::accept::Admission;
use crate::engine::workers::Workers;
use crate::engine::{Done, Engine, Key, Kind, NOW};
use crate::mailbox::{Delivery, Inbox};
use crate::memory::ShardMemory;
use crate::receive::ReceivePool;
use crate::stats::{ShardCells, add, set};

use connection::{Connection, MessagePool};
use disks::{Disks, Waiting};
use links::Links;
use listening::Listening;
use poll::{Look, Polls};

/// So often may a turn settle again before the engine is looked at.
const SETTLES_PER_TURN: u32 = 64;
/// A connection that was silent for so long gives its receive buffer up.
const QUIET: Duration = Duration::from_secs(1);
/// A shard that was idle for so long gives its memory back.
const REST: Duration = Duration::from_secs(1);
/// While memory is given back piece by piece, so long between pieces.
const REST_PIECE: Duration = Duration::from_millis(5);
/// How long a shard that was told to stop waits for what is with the kernel.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What the threads of a reactor share.
pub(crate) struct Shared<M> {
    pub(crate) inboxes: Vec<Arc<Inbox<M>>>,
    pub(crate) counters: Vec<ShardCells>,
    pub(crate) control: Sender<(ShardId, M)>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) origin: time::Instant,
    pub(crate) receive_buffers: usize,
}

/// What a moment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// A connect has taken too long.
    Connect(Slot),
    /// The last words of a connection have taken too long, or it has lingered enough.
    Closing(Slot),
    /// Accepting is tried again.
    Accept,
    /// A held back completion is due.
    Completion(Slot),
    /// A link is tried again, or has waited too long for room.
    Link(Slot),
}

/// One machine and all that it is run with.
///
/// Fields are dropped in order: the engine first, so that no operation outlives what it points at.
pub(crate) struct Driver<M: Machine, E: Engine> {
    engine: E,
    machine: M,
    memory: ShardMemory,
    shard: ShardId,
    shared: Arc<Shared<M::Mail>>,
    now: Instant,
    connections: Table<Connection>,
    receive_pool: ReceivePool,
    messages: MessagePool,
    /// Connections whose bytes are to be shown again.
    ready: VecDeque<Slot>,
    /// Events that have not been told yet.
    events: VecDeque<Event<M::Mail>>,
    disks: Disks,
    listening: Listening,
    links: Links,
    alarms: BinaryHeap<Reverse<(Instant, Alarm)>>,
    outboxes: Vec<Vec<Delivery<M::Mail>>>,
    deliveries: Vec<Delivery<M::Mail>>,
    done: Vec<Done>,
    /// When connections are looked at for silent ones.
    sweep_at: Option<Instant>,
    /// When memory is given back.
    rest_at: Option<Instant>,
    polls: Polls,
    /// There is more to settle: do not sleep.
    pressed: bool,
    /// What was waited for last had come before anybody looked, so the next may have, too.
    prompt: bool,
    stopping: bool,
}

impl<M: Machine, E: Engine> Driver<M, E> {
    pub(crate) fn new(
        shard: ShardId,
        engine: E,
        machine: M,
        memory: ShardMemory,
        shared: Arc<Shared<M::Mail>>,
    ) -> Self {
        let shards = shared.inboxes.len();
        Driver {
            engine,
            machine,
            memory,
            shard,
            now: Instant::ZERO,
            connections: Table::new(),
            receive_pool: ReceivePool::new(shared.receive_buffers),
            messages: MessagePool::default(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            disks: Disks::default(),
            listening: Listening::default(),
            links: Links::default(),
            alarms: BinaryHeap::new(),
            outboxes: (0..shards).map(|_| Vec::new()).collect(),
            deliveries: Vec::new(),
            done: Vec::with_capacity(256),
            sweep_at: None,
            rest_at: None,
            polls: Polls::default(),
            pressed: false,
            prompt: false,
            stopping: false,
            shared,
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        self.now = self.clock();
        self.settle();
        while !self.stopping {
            self.wait();
            self.turn();
        }
        self.stop();
    }

    #[inline]
    fn clock(&self) -> Instant {
        since(self.shared.origin)
    }

    #[inline]
    fn counters(&self) -> &ShardCells {
        &self.shared.counters[self.shard.index()]
    }

    #[inline]
    fn inbox(&self) -> &Arc<Inbox<M::Mail>> {
        &self.shared.inboxes[self.shard.index()]
    }

    /// Waits until something ends or is due; what has ended is in `done` then.
    fn wait(&mut self) {
        let mut limit = self.limit();
        if limit != NOW && self.polls.is_stirred() {
            // The turn has taken time: a wait is counted from here.
            self.now = self.clock();
            if let Some(look) = self.polls.begin(self.now) {
                let found = self.look(look, self.now, limit);
                limit = if found { NOW } else { self.limit() };
            }
        }
        if limit != NOW
            && let Some(due) = self.held_back_until()
        {
            self.now = self.clock();
            limit = match Waiting::until(due, self.now, limit) {
                Waiting::Sleep(limit) => limit,
                Waiting::Look(until) => {
                    // Also where another had the processor meanwhile.
                    while !self.look(Look { until, stubborn: false }, self.now, limit) {
                        self.now = self.clock();
                        limit = self.limit();
                        if limit == NOW {
                            break;
                        }
                    }
                    NOW
                }
            };
        }
        if limit != NOW && self.watch_links() {
            limit = NOW;
        }
        self.prompt &= limit == NOW;
        self.polls.waited(limit != NOW);
        if let Err(error) = self.sleep(limit) {
            panic!("{} cannot wait for events any more: {error}", self.shard.0);
        }
    }

    /// Sleeps at most so long, unless there is mail.
    #[inline]
    fn sleep(&mut self, mut limit: Option<Duration>) -> io::Result<()> {
        if limit != NOW && !self.inbox().fall_asleep() {
            limit = NOW;
        }
        let waited = self.engine.wait(limit, &mut self.done);
        if limit != NOW {
            add(&self.counters().sleeps, 1);
            self.inbox().wake_up();
        }
        self.now = self.clock();
        waited
    }

    /// How long to wait at most: [`NOW`] if there is something to do, `None` until something
    /// happens.
    fn limit(&self) -> Option<Duration> {
        let pressed = self.pressed || self.links.has_frames() || self.disks.is_clearing();
        if pressed || !self.ready.is_empty() || !self.events.is_empty() {
            return NOW;
        }
        let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
        let due = [self.machine.poll_timeout(), alarm, self.sweep_at, self.rest_at];
        let due = due.into_iter().flatten().min()?;
        Some(due.since(self.clock()))
    }

    /// One turn.
    fn turn(&mut self) {
        self.pressed = false;
        // What yielded before this turn is shown after what has come in it.
        let yielded = self.ready.len();
        let ends = self.take_ends();
        let letters = self.take_mail();
        let frames = self.show_frames();
        self.show_yielded(yielded);
        self.clear_some();
        self.flush_events();
        self.ring_alarms();
        if self.machine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.machine.handle_timeout(self.now, &mut self.memory);
        }
        self.settle();
        self.survey_links();
        self.post();
        self.rest(ends + letters + frames + yielded > 0);
        self.count();
    }

    /// Takes in what has ended; returns how much there was.
    #[inline]
    fn take_ends(&mut self) -> usize {
        let ends = self.done.len();
        for index in 0..ends {
            let done = self.done[index];
            self.ended(done);
        }
        self.done.clear();
        ends
    }

    fn ended(&mut self, done: Done) {
        let key = done.key;
        let slot = Slot { index: key.slot(), generation: key.generation() };
        match key.kind() {
            Kind::Input => {
                self.input_ended(slot, done.result, done.lent);
                // What it held was shown, or kept elsewhere.
                if let Some(lent) = done.lent {
                    self.engine.take_back(lent);
                }
            }
            Kind::Output => self.output_ended(slot, done.result),
            Kind::Hangup => self.hangup_ended(slot),
            Kind::Listener => self.listener_ended(slot, done.result),
            Kind::File => self.file_ended(slot, done.result),
            Kind::Frames => self.frames_ended(slot, done.result),
            Kind::Room => self.room_ended(slot),
            Kind::Wake | Kind::Ignored => {}
        }
    }

    /// Takes the mailbox in; returns how much there was.
    fn take_mail(&mut self) -> usize {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        self.inbox().take(&mut deliveries);
        let count = deliveries.len();
        for delivery in deliveries.drain(..) {
            match delivery {
                Delivery::Mail { from, mail } => self.tell(Event::Mail { from, mail }),
                Delivery::Arrival(arrival) => self.arrive(arrival),
                Delivery::Listen(listener) => self.listen(listener),
                Delivery::Unlisten(id, told) => self.unlisten(id, told),
                Delivery::ChangeListener(id, options, told) => {
                    self.change_listener(id, options);
                    let _ = told.send(());
                }
                Delivery::Poll(id, poll) => self.polls.change_listener(id, poll),
                Delivery::AcceptAgain => self.accept_again(),
                Delivery::AddDisk(id, disk, poll) => self.add_disk(id, disk, poll),
                Delivery::PollDisk(id, poll) => self.poll_disk(id, poll),
                Delivery::RemoveDisk(id, told) => {
                    self.memory.remove_lender(id);
                    self.remove_disk(id, told);
                }
                Delivery::Link(command) => self.handle_link_command(command),
                Delivery::Worked(number, work) => self.worked(number, work),
                Delivery::Stop => self.stopping = true,
            }
        }
        self.deliveries = deliveries;
        count
    }

    /// Keeps an event for the machine; told in order, before any bytes that are shown later.
    #[inline]
    fn tell(&mut self, event: Event<M::Mail>) {
        self.events.push_back(event);
    }

    #[inline]
    fn flush_events(&mut self) {
        while let Some(event) = self.events.pop_front() {
            self.machine.handle_event(self.now, event, &mut self.memory);
        }
    }

    /// Lets the machine make up its mind, and does what it wants, until nothing more follows from
    /// it at once.
    fn settle(&mut self) {
        for _ in 0..SETTLES_PER_TURN {
            self.flush_events();
            self.machine.settle(self.now, &mut self.memory);
            let answered = self.perform_effects();
            if !answered && self.events.is_empty() {
                return;
            }
        }
        self.pressed = true;
    }

    /// Does what the machine wants. Returns whether a disk answered at once.
    fn perform_effects(&mut self) -> bool {
        let answered = self.ask_disks();
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Send { connection, batch } => self.send(slot_of(connection), batch),
                Effect::Resume { connection } => self.resume(slot_of(connection)),
                Effect::Connect { token, address, poll } => self.connect(token, address, poll),
                Effect::Close { connection, after_send } => {
                    self.close(slot_of(connection), after_send);
                }
                Effect::SendFrames { token, batch } => self.send_frames(token, batch),
                Effect::Mail { to, mail } => self.mail(to, mail),
            }
        }
        answered
    }

    fn mail(&mut self, to: ShardId, mail: M::Mail) {
        let from = self.shard;
        if to == from {
            self.tell(Event::Mail { from, mail });
        } else if to == ShardId::CONTROL {
            // Nobody listens any more only while the reactor is being dropped.
            let _ = self.shared.control.send((from, mail));
        } else {
            self.outboxes[to.index()].push(Delivery::Mail { from, mail });
        }
    }

    /// Hands the turn's mail over.
    fn post(&mut self) {
        for (outbox, inbox) in self.outboxes.iter_mut().zip(&self.shared.inboxes) {
            if !outbox.is_empty() {
                inbox.post_all(outbox);
            }
        }
    }

    fn set_alarm(&mut self, after: Duration, alarm: Alarm) {
        self.alarms.push(Reverse((self.now + after, alarm)));
    }

    fn ring_alarms(&mut self) {
        while let Some(Reverse((at, alarm))) = self.alarms.peek().copied() {
            if at > self.now {
                break;
            }
            self.alarms.pop();
            match alarm {
                Alarm::Connect(slot) => self.connect_timed_out(slot),
                Alarm::Closing(slot) => self.closing_timed_out(slot),
                Alarm::Accept => self.accept_retry(),
                Alarm::Completion(slot) => self.release_completion(slot),
                Alarm::Link(slot) => self.link_alarm(slot),
            }
        }
        if self.sweep_at.is_some_and(|at| at <= self.now) {
            self.sweep();
        }
    }

    /// Gives memory back, once, some time after the last activity.
    fn rest(&mut self, active: bool) {
        if active {
            self.rest_at = Some(self.now + REST);
        } else if self.rest_at.is_some_and(|at| at <= self.now) {
            self.receive_pool.shrink();
            self.rest_at = self.memory.idle().then(|| self.now + REST_PIECE);
        }
    }

    fn count(&self) {
        let counters = self.counters();
        add(&counters.turns, 1);
        let calls = self.engine.system_calls() + self.links.system_calls();
        set(&counters.system_calls, calls);
        set(&counters.connections, self.connections.len() as u64);
        set(&counters.receive_buffers, self.receive_pool.taken() as u64);
        set(&counters.receive_line, self.receive_pool.waiting() as u64);
    }

    /// Closes everything, and waits for what is with the kernel: its memory must not go before.
    fn stop(mut self) {
        let open: Vec<Slot> = self.connections.iter().map(|(slot, _)| slot).collect();
        for slot in open {
            self.close(slot, false);
        }
        self.listening = Listening::default();
        let until = self.now + STOP_GRACE;
        loop {
            self.events.clear();
            self.alarms.clear();
            if self.connections.is_empty() && self.disks.is_quiet() {
                return;
            }
            if self.now >= until {
                break;
            }
            let limit = Some(until.since(self.now).min(REST));
            if self.sleep(limit).is_err() {
                break;
            }
            self.take_ends();
            self.take_mail();
        }
        // A disk does not answer. What the kernel may still write to is left alone: the process is
        // about to end.
        std::mem::forget(self);
    }

    #[inline]
    fn key(kind: Kind, slot: Slot) -> Key {
        Key::new(kind, slot.index, slot.generation)
    }
}

/// The present on the process's clock, which began at `origin`.
#[inline]
fn since(origin: time::Instant) -> Instant {
    Instant(origin.elapsed().as_nanos() as u64)
}

/// A connection's slot, as the machine names it.
#[inline]
fn slot_of(connection: ConnectionId) -> Slot {
    Slot { index: connection.slot, generation: connection.generation }
}

/// A connection's name, from its slot.
#[inline]
fn id_of(slot: Slot) -> ConnectionId {
    ConnectionId { slot: slot.index, generation: slot.generation }
}
