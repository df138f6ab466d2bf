//! For tests: a desk with volumes in memory, where answers come in an order that a seed decides and
//! time stands still unless a guest waits for it.

use block::{
    Account, Buffer, Failure, Instant, Memory, Operation, Outcome, Pool, Random, Request, Ticket,
};
use testkit::{Pages, perform};

use crate::guest::{Desk, Guest, Phase, Place};

#[derive(Debug)]
struct Asked {
    place: Place,
    slot: u32,
    operation: Operation,
}

/// Volumes, memory and time.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) volumes: Vec<Vec<u8>>,
    /// Requests that touch this byte fail.
    pub(crate) fail_at: Option<u64>,
    /// Writes from this one on (counted from 1) are said to be done and are not.
    pub(crate) lose_writes_from: Option<u64>,
    /// Whether volumes can clear what they are not sent.
    pub(crate) clears: bool,
    /// Nanoseconds that a request takes.
    pub(crate) service_ns: u64,
    pub(crate) writes: u64,
    pub(crate) durable_writes: u64,
    pub(crate) trims: u64,
    pub(crate) flushes: u64,
    /// The most requests that were in flight at once.
    pub(crate) depth_seen: usize,
    pub(crate) phases: Vec<(Phase, Instant)>,
    pub(crate) pool: Pool,
    memory: Pages,
    now: Instant,
    asked: Vec<Asked>,
    random: Random,
}

impl Bench {
    pub(crate) fn new(sizes: &[usize]) -> Bench {
        Bench {
            volumes: sizes.iter().map(|size| vec![0; *size]).collect(),
            fail_at: None,
            lose_writes_from: None,
            clears: true,
            service_ns: 1_000,
            writes: 0,
            durable_writes: 0,
            trims: 0,
            flushes: 0,
            depth_seen: 0,
            phases: Vec::new(),
            pool: Pool::new(block::limits::POOL_PAGES_MIN),
            memory: Pages::default(),
            now: Instant(1_000_000),
            asked: Vec::new(),
            random: Random::new(1),
        }
    }

    /// Carries a guest until it is done.
    pub(crate) fn run<G: Guest>(&mut self, mut guest: G) -> G {
        for _ in 0..10_000_000u64 {
            guest.handle_turn(self);
            self.depth_seen = self.depth_seen.max(self.asked.len());
            if self.phases.last().map(|(phase, _)| *phase) != Some(guest.phase()) {
                self.phases.push((guest.phase(), self.now));
            }
            if guest.phase() == Phase::Done {
                assert!(self.asked.is_empty(), "done with {} in flight", self.asked.len());
                assert_eq!(self.pool.used(), 0, "done with buffers in hand");
                return guest;
            }
            if self.asked.is_empty() {
                let until = guest.poll_timeout().expect("a guest that waits for something");
                self.now = self.now.max(until);
                continue;
            }
            self.now.0 += self.service_ns;
            let index = self.random.below(self.asked.len() as u64) as usize;
            let Asked { place, slot, operation } = self.asked.swap_remove(index);
            let (outcome, buffer) = self.carry_out(place, operation);
            guest.handle_completion(self, slot, outcome, buffer);
        }
        panic!("the guest does not end: {:?}", guest.phase());
    }

    fn carry_out(&mut self, place: Place, operation: Operation) -> (Outcome, Buffer) {
        let volume = &mut self.volumes[usize::from(place.0)];
        let fails = operation.extent().is_some_and(|extent| {
            self.fail_at.is_some_and(|at| extent.offset.0 <= at && at < extent.end().0)
        });
        let mut outcome = Outcome::Done;
        match &operation {
            Operation::Read { .. } if fails => outcome = Outcome::NotDone(Failure::MediumRead),
            Operation::Write { .. } if fails => outcome = Outcome::NotDone(Failure::MediumWrite),
            Operation::Read { .. } => {}
            Operation::Write { durable, .. } => {
                self.writes += 1;
                self.durable_writes += u64::from(*durable);
                if self.lose_writes_from.is_some_and(|from| self.writes >= from) {
                    let request = Request { ticket: Ticket::default(), operation };
                    return (Outcome::Done, request.complete(Outcome::Done).buffer);
                }
            }
            Operation::WriteZeroes { .. } if !self.clears => {
                outcome = Outcome::NotDone(Failure::Unsupported);
            }
            Operation::WriteZeroes { .. } => {}
            Operation::Discard { .. } => self.trims += 1,
            Operation::Flush => self.flushes += 1,
            other => panic!("the lab does not ask for {}", other.name()),
        }
        let request = Request { ticket: Ticket::default(), operation };
        let completion = perform(volume, request, outcome, &mut self.memory);
        (completion.outcome, completion.buffer)
    }
}

impl Desk for Bench {
    fn now(&self) -> Instant {
        self.now
    }

    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.pool.take(account, length, phase)
    }

    fn give(&mut self, account: &mut Account, buffer: Buffer) {
        self.pool.give(account, &mut self.memory, buffer);
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.memory
    }

    fn submit(&mut self, place: Place, slot: u32, operation: Operation) {
        self.asked.push(Asked { place, slot, operation });
    }
}
