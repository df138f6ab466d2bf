//! What lets a [`lab::Task`] of `bench` or `copy` work on a shard, as an internal client: through
//! the machines that serve hosts.
//!
//! At every change of a task's phase it reads the processor time, so that what a window cost is
//! known to the turn. Units: nanoseconds. Errors: none; what requests came to is in the task.

use std::sync::mpsc::Sender;

use block::{Account, Buffer, Completion, Instant, Memory, Operation, ShardId, VolumeId};
use lab::{Desk, Guest, Phase, Place, Task};
use shard::{ClientContext, InternalClient};

/// What a host of workloads tells the control thread.
#[derive(Debug)]
pub(crate) enum Told {
    /// A task is in another phase.
    Phase(Reading),
    /// A task is done.
    Done(ShardId, Box<Task>),
}

/// What the clock and the processor said when a task changed its phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) shard: ShardId,
    /// The phase that begins.
    pub(crate) phase: Phase,
    /// The task's clock, which is the shard's read more often.
    pub(crate) now: Instant,
    /// Processor time of the shard's own thread so far.
    pub(crate) thread_ns: u64,
    /// Processor time of the whole process so far.
    pub(crate) process_ns: u64,
}

/// A task on a shard.
#[derive(Debug)]
pub(crate) struct WorkloadHost {
    /// `None` once it was handed back.
    task: Option<Box<Task>>,
    /// The task's places.
    volumes: Vec<VolumeId>,
    phase: Phase,
    told: Sender<Told>,
    /// The driver's time at the first turn, and when that was. The driver reads its clock once a
    /// turn, and a disk that answers at once answers many times in a turn: to a task that measures,
    /// each round has its own time.
    clock: Option<(Instant, std::time::Instant)>,
    /// The time of this round, once it was read.
    now: Option<Instant>,
}

impl WorkloadHost {
    pub(crate) fn new(task: Task, volumes: Vec<VolumeId>, told: Sender<Told>) -> WorkloadHost {
        let task = Some(Box::new(task));
        WorkloadHost { task, volumes, phase: Phase::New, told, clock: None, now: None }
    }

    fn work(
        &mut self,
        context: &mut ClientContext<'_>,
        work: impl FnOnce(&mut Task, &mut Below<'_, '_>),
    ) {
        let Some(task) = &mut self.task else { return };
        let now = *self.now.get_or_insert_with(|| {
            let start = || (context.now, std::time::Instant::now());
            let (base, since) = *self.clock.get_or_insert_with(start);
            base + since.elapsed()
        });
        work(task, &mut Below { now, volumes: &self.volumes, context });
    }

    #[cold]
    fn tell_phase(&mut self, shard: ShardId, now: Instant) {
        let process_ns = u64::try_from(reactor::processor_time().as_nanos()).unwrap_or(u64::MAX);
        let reading =
            Reading { shard, phase: self.phase, now, thread_ns: thread_time_ns(), process_ns };
        // Nobody listens any more only while the process ends.
        let _ = self.told.send(Told::Phase(reading));
        if self.phase == Phase::Done
            && let Some(task) = self.task.take()
        {
            let _ = self.told.send(Told::Done(shard, task));
        }
    }
}

/// Processor time of the calling thread so far, in nanoseconds; 0 where the system does not tell.
fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl InternalClient for WorkloadHost {
    #[inline]
    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        self.work(context, |task, below| {
            task.handle_completion(below, ticket.slot, outcome, buffer);
        });
    }

    fn handle_turn(&mut self, context: &mut ClientContext<'_>) {
        let mut now = context.now;
        let mut phase = self.phase;
        self.work(context, |task, below| {
            task.handle_turn(below);
            (now, phase) = (below.now, task.phase());
        });
        self.now = None;
        if phase != self.phase {
            self.phase = phase;
            self.tell_phase(context.shard, now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.task.as_ref().and_then(|task| task.poll_timeout())
    }

    fn is_over(&self) -> bool {
        self.task.is_none()
    }
}

/// The volumes of a shard, as a task sees them.
struct Below<'a, 'b> {
    now: Instant,
    volumes: &'a [VolumeId],
    context: &'a mut ClientContext<'b>,
}

impl Desk for Below<'_, '_> {
    #[inline]
    fn now(&self) -> Instant {
        self.now
    }

    #[inline]
    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.context.take(account, length, phase)
    }

    #[inline]
    fn give(&mut self, account: &mut Account, buffer: Buffer) {
        self.context.give(account, buffer);
    }

    fn memory(&mut self) -> &mut dyn Memory {
        self.context.memory
    }

    #[inline]
    fn submit(&mut self, place: Place, slot: u32, operation: Operation) {
        self.context.submit(self.volumes[usize::from(place.0)], slot, operation);
    }
}
