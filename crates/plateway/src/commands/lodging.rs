//! Shards that carry guests of the lab: how `bench` and `copy` reach disks and volumes in this process, through the machines that serve hosts.
//!
//! The control thread puts a [`lab::Task`] for each shard into the [`Lobby`] and wakes the shards; each takes its own, lets it work at the end of every
//! turn, and hands it back when it is done. At every change of a guest's phase the shard reads the processor time, so that what a window cost is known to the turn.
//! Units: nanoseconds. Errors: none; what requests came to is in the task.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use block::pool::Class;
use block::{Account, Buffer, Instant, Memory, Operation, Request, ShardId, Ticket, VolumeId};
use contract::{Ask, ConnectionId, Direct, Effect, Event, InFrame, Machine, Next, Receive};
use lab::{Desk, Guest, Phase, Place, Task};
use shard::{Mail, Shard, machine};

use crate::run::Visited;

/// The visitor's number of guests; the control thread is 0.
const VISITOR: u32 = 1;

/// Where tasks wait for their shards.
#[derive(Debug)]
pub(crate) struct Lobby {
    waiting: Mutex<Vec<Errand>>,
    told: Sender<Told>,
}

/// A task, and where it goes.
#[derive(Debug)]
struct Errand {
    shard: ShardId,
    task: Task,
    volumes: Vec<VolumeId>,
}

/// What a shard tells the control thread.
#[derive(Debug)]
pub(crate) enum Told {
    /// A guest is in another phase.
    Phase(Reading),
    /// A guest is done.
    Done(ShardId, Box<Task>),
}

/// What the clock and the processor said when a guest changed its phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Whose.
    pub(crate) shard: ShardId,
    /// The phase that begins.
    pub(crate) phase: Phase,
    /// The guest's clock, which is the shard's read more often.
    pub(crate) now: Instant,
    /// Processor time of the shard's own thread so far.
    pub(crate) thread_ns: u64,
    /// Processor time of the whole process so far.
    pub(crate) process_ns: u64,
}

impl Lobby {
    /// An empty lobby, and what is told.
    pub(crate) fn new() -> (Arc<Lobby>, Receiver<Told>) {
        let (told, hear) = mpsc::channel();
        (Arc::new(Lobby { waiting: Mutex::default(), told }), hear)
    }

    /// Puts a task there for a shard, which has to be woken then. `volumes` are the task's places.
    pub(crate) fn put(&self, shard: ShardId, task: Task, volumes: Vec<VolumeId>) {
        self.lock().push(Errand { shard, task, volumes });
    }

    fn take(&self, shard: ShardId) -> Option<Errand> {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|errand| errand.shard == shard)?;
        Some(waiting.swap_remove(at))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Errand>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shard that carries a guest.
#[derive(Debug)]
pub(crate) struct Carrier {
    shard: ShardId,
    visited: Visited,
    lobby: Arc<Lobby>,
    told: Sender<Told>,
    guest: Option<Carried>,
    /// The driver's time at the first settle, and when that was. The driver reads its clock once a turn, and a disk that answers at once answers many
    /// times in a turn: to a guest that measures, each round has its own time.
    clock: Option<(Instant, std::time::Instant)>,
}

#[derive(Debug)]
struct Carried {
    task: Task,
    volumes: Vec<VolumeId>,
    phase: Phase,
}

impl Carrier {
    /// A shard without a guest.
    pub(crate) fn new(shard: ShardId, visited: Visited, lobby: &Arc<Lobby>) -> Carrier {
        let (lobby, told) = (lobby.clone(), lobby.told.clone());
        Carrier { shard, visited, lobby, told, guest: None, clock: None }
    }

    /// Lets the guest work; returns whether it submitted anything.
    fn serve_guest(&mut self, now: Instant, memory: &mut dyn Memory) -> bool {
        let Some(Carried { task, volumes, phase }) = &mut self.guest else { return false };
        let (base, since) = *self.clock.get_or_insert_with(|| (now, std::time::Instant::now()));
        let now = base + since.elapsed();
        let mut submitted = false;
        while let Some(completion) = self.visited.poll_other() {
            let (shard, machine) = (self.visited.shard_mut(), self.shard);
            let mut counter = Counter { shard, memory, now, volumes, machine, submitted };
            let slot = completion.ticket.slot;
            task.handle_completion(&mut counter, slot, completion.outcome, completion.buffer);
            submitted = counter.submitted;
        }
        let (shard, machine) = (self.visited.shard_mut(), self.shard);
        let mut counter = Counter { shard, memory, now, volumes, machine, submitted };
        task.handle_turn(&mut counter);
        submitted = counter.submitted;
        if task.phase() != *phase {
            *phase = task.phase();
            self.tell_phase(now);
        }
        submitted
    }

    #[cold]
    fn tell_phase(&mut self, now: Instant) {
        let Some(carried) = &self.guest else { return };
        let (shard, phase) = (self.shard, carried.phase);
        let reading = Reading {
            shard,
            phase,
            now,
            thread_ns: thread_time_ns(),
            process_ns: u64::try_from(reactor::processor_time().as_nanos()).unwrap_or(u64::MAX),
        };
        // Nobody listens any more only while the process ends.
        let _ = self.told.send(Told::Phase(reading));
        if phase == Phase::Done
            && let Some(Carried { task, .. }) = self.guest.take()
        {
            let _ = self.told.send(Told::Done(shard, Box::new(task)));
        }
    }
}

/// Processor time of the calling thread so far, in nanoseconds; 0 where the system does not tell.
fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The desk of a shard.
struct Counter<'a> {
    shard: &'a mut Shard,
    memory: &'a mut dyn Memory,
    now: Instant,
    volumes: &'a [VolumeId],
    machine: ShardId,
    submitted: bool,
}

impl Desk for Counter<'_> {
    #[inline]
    fn now(&self) -> Instant {
        self.now
    }

    #[inline]
    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.shard.pool().take(account, Class::Transfer, length, phase)
    }

    #[inline]
    fn give(&mut self, account: &mut Account, buffer: Buffer) {
        self.shard.pool().give(account, self.memory, buffer);
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.memory
    }

    #[inline]
    fn submit(&mut self, place: Place, slot: u32, operation: Operation) {
        let machine = machine::visitor(VISITOR);
        let ticket = Ticket { machine, generation: 0, slot, shard: self.machine };
        let volume = self.volumes[usize::from(place.0)];
        self.submitted = true;
        self.shard.visit(self.now, volume, Request { ticket, operation });
    }
}

impl Machine for Carrier {
    type Mail = Mail;

    fn handle_event(&mut self, now: Instant, event: Event<Mail>, memory: &mut dyn Memory) {
        let is_order = matches!(&event, Event::Mail { from: ShardId::CONTROL, .. });
        self.visited.handle_event(now, event, memory);
        if is_order
            && self.guest.is_none()
            && let Some(Errand { task, volumes, .. }) = self.lobby.take(self.shard)
        {
            self.guest = Some(Carried { task, volumes, phase: Phase::New });
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
        self.visited.handle_received(now, connection, bytes, memory)
    }

    #[inline]
    fn handle_direct(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        self.visited.handle_direct(now, connection, direct, memory)
    }

    #[inline]
    fn handle_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        self.visited.handle_frame(now, frame, memory);
    }

    fn handle_timeout(&mut self, now: Instant, memory: &mut dyn Memory) {
        // The guest is called at every settle, so only the shard's own moment needs care.
        if self.visited.poll_timeout().is_some_and(|at| at <= now) {
            self.visited.handle_timeout(now, memory);
        }
    }

    fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            self.visited.settle(now, memory);
            // What was submitted leaves with the next settle, in this turn.
            if !self.serve_guest(now, memory) {
                return;
            }
        }
    }

    #[inline]
    fn take_requests(&mut self, asks: &mut Vec<Ask>) {
        self.visited.take_requests(asks);
    }

    #[inline]
    fn poll_effect(&mut self) -> Option<Effect<Mail>> {
        self.visited.poll_effect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let guest = self.guest.as_ref().and_then(|carried| carried.task.poll_timeout());
        self.visited.poll_timeout().into_iter().chain(guest).min()
    }
}
