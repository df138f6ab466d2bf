//! What lets a guest of the lab, sent by `bench` or `copy`, work on a shard, as an internal client:
//! through the machines that serve hosts.
//!
//! At every change of the guest's phase it reads the processor time, so that what a window cost is
//! known to the turn. Units: nanoseconds. Errors: none; what requests came to is in the guest.

use std::fmt::Debug;
use std::sync::mpsc::Sender;
use std::time::{self, Duration};

use block::{Account, Buffer, Completion, Instant, Memory, Operation, ShardId, VolumeId};
use lab::{Desk, Guest, Phase, Place};
use shard::{ClientContext, InternalClient};

/// What a host of workloads tells the control thread.
#[derive(Debug)]
pub(crate) enum Told<G> {
    /// A guest is in another phase.
    Phase(Reading),
    /// A guest is done.
    Done(ShardId, Box<G>),
}

/// What the clock and the processor said when a guest changed its phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
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

/// A guest on a shard.
#[derive(Debug)]
pub(crate) struct WorkloadHost<G> {
    /// `None` once it was handed back.
    guest: Option<Box<G>>,
    /// The guest's places.
    volumes: Vec<VolumeId>,
    phase: Phase,
    told: Sender<Told<G>>,
    clock: Clock,
    /// From when its clock counts.
    began: time::Instant,
    /// The time of this round, once it was read.
    now: Option<Instant>,
}

/// The guest's clock. The driver reads its own once a turn, and a disk that answers at once answers many
/// times in a turn: to a guest that measures, each round has its own time. That is never behind the
/// driver's: a guest that is woken when something of it is due must see that it is.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// What is to be added to the system's, once that was read.
    ahead: Option<(Instant, Duration)>,
}

impl Clock {
    /// The time, where the driver's turn began at `turn` and the system's clock says `system` now.
    fn read(&mut self, turn: Instant, system: Duration) -> Instant {
        let known = self.ahead.map(|(at, then)| at + system.saturating_sub(then));
        match known.filter(|now| *now >= turn) {
            Some(now) => now,
            None => {
                self.ahead = Some((turn, system));
                turn
            }
        }
    }
}

impl<G: Guest> WorkloadHost<G> {
    pub(crate) fn new(guest: G, volumes: Vec<VolumeId>, told: Sender<Told<G>>) -> Self {
        let guest = Some(Box::new(guest));
        let (clock, phase) = (Clock::default(), Phase::New);
        WorkloadHost { guest, volumes, phase, told, clock, began: time::Instant::now(), now: None }
    }

    fn work(
        &mut self,
        context: &mut ClientContext<'_>,
        work: impl FnOnce(&mut G, &mut Below<'_, '_>),
    ) {
        let Some(guest) = &mut self.guest else { return };
        let (clock, began) = (&mut self.clock, self.began);
        let now = *self.now.get_or_insert_with(|| clock.read(context.now, began.elapsed()));
        work(guest, &mut Below { now, volumes: &self.volumes, context });
    }

    #[cold]
    fn tell_phase(&mut self, shard: ShardId, now: Instant) {
        let process_ns = u64::try_from(reactor::processor_time().as_nanos()).unwrap_or(u64::MAX);
        let reading =
            Reading { shard, phase: self.phase, now, thread_ns: thread_time_ns(), process_ns };
        // Nobody listens any more only while the process ends.
        let _ = self.told.send(Told::Phase(reading));
        if self.phase == Phase::Done
            && let Some(guest) = self.guest.take()
        {
            let _ = self.told.send(Told::Done(shard, guest));
        }
    }
}

/// Processor time of the calling thread so far, in nanoseconds; 0 where the system does not tell.
fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl<G: Guest + Debug + Send> InternalClient for WorkloadHost<G> {
    #[inline]
    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        self.work(context, |guest, below| {
            guest.handle_completion(below, ticket.slot, outcome, buffer);
        });
    }

    fn handle_turn(&mut self, context: &mut ClientContext<'_>) {
        let mut now = context.now;
        let mut phase = self.phase;
        self.work(context, |guest, below| {
            guest.handle_turn(below);
            (now, phase) = (below.now, guest.phase());
        });
        self.now = None;
        if phase != self.phase {
            self.phase = phase;
            self.tell_phase(context.shard, now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.guest.as_ref().and_then(|guest| guest.poll_timeout())
    }

    fn is_over(&self) -> bool {
        self.guest.is_none()
    }
}

/// The volumes of a shard, as a guest sees them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_clock_is_never_behind_the_turn_and_goes_on_within_it() {
        let us = Duration::from_micros;
        let at = |micros: u64| Instant(micros * 1_000);
        let mut clock = Clock::default();
        // The first turn is read late: 300 us after it began.
        assert_eq!(clock.read(at(1_000), us(300)), at(1_000));
        assert_eq!(clock.read(at(1_000), us(350)), at(1_050));
        // Woken at 2,000 by something that is due then, 20 us after which it looks.
        assert_eq!(clock.read(at(2_000), us(1_020)), at(2_000));
        assert_eq!(clock.read(at(2_000), us(1_030)), at(2_010));
        // From now on it is those 20 us behind at most.
        assert_eq!(clock.read(at(3_000), us(2_005)), at(3_000));
        assert_eq!(clock.read(at(3_000), us(2_100)), at(3_095));
        assert_eq!(clock.read(at(2_900), us(2_110)), at(3_105), "it never goes back");
    }
}
