//! For tests: a desk with volumes in memory, where answers come in an order that a seed decides and time stands still unless a guest waits for it.

use block::checksum::Crc32c;
use block::{
    Account, Buffer, Class, Failure, Instant, Memory, Operation, Outcome, PageId, Pool, Random,
    Segment,
};

use crate::guest::{Desk, Guest, Phase, Place};

/// Pages by number.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Box<[u8; 4096]>>,
    free: Vec<PageId>,
}

impl Pages {
    fn run(&self, segment: Segment) -> &[u8] {
        let start = segment.offset as usize;
        &self.pages[segment.page.0 as usize][start..start + segment.length as usize]
    }

    fn run_mut(&mut self, segment: Segment) -> &mut [u8] {
        let start = segment.offset as usize;
        &mut self.pages[segment.page.0 as usize][start..start + segment.length as usize]
    }
}

impl Memory for Pages {
    fn materialize(&mut self, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            let page = self.free.pop().unwrap_or_else(|| {
                self.pages.push(Box::new([0xa5; 4096]));
                PageId(self.pages.len() as u32 - 1)
            });
            buffer.push_page(page);
        }
    }

    fn release(&mut self, mut buffer: Buffer) {
        self.free.extend(buffer.take_pages());
    }

    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let mut rest = bytes;
        for segment in buffer.segments(at, bytes.len() as u32) {
            let (part, left) = rest.split_at(segment.length as usize);
            self.run_mut(segment).copy_from_slice(part);
            rest = left;
        }
    }

    fn read(&self, buffer: &Buffer, at: u32, into: &mut [u8]) {
        let mut rest = into;
        for segment in buffer.segments(at, rest.len() as u32) {
            let (part, left) = rest.split_at_mut(segment.length as usize);
            part.copy_from_slice(self.run(segment));
            rest = left;
        }
    }

    fn zero(&mut self, buffer: &mut Buffer, at: u32, length: u32) {
        self.write(buffer, at, &vec![0; length as usize]);
    }

    fn crc32c(&self, buffer: &Buffer, at: u32, length: u32, running: Crc32c) -> Crc32c {
        buffer.segments(at, length).fold(running, |crc, segment| crc.update(self.run(segment)))
    }

    fn first_difference(&self, a: &Buffer, b: &Buffer) -> Option<u32> {
        let bytes = |buffer: &Buffer| {
            let mut bytes = vec![0; buffer.len() as usize];
            self.read(buffer, 0, &mut bytes);
            bytes
        };
        let differs = |(a, b): (&u8, &u8)| a != b;
        bytes(a).iter().zip(&bytes(b)).position(differs).map(|at| at as u32)
    }
}

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
    /// Nanoseconds that a request takes.
    pub(crate) service_ns: u64,
    pub(crate) writes: u64,
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
            service_ns: 1_000,
            writes: 0,
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
        match operation {
            Operation::Read { extent, mut buffer } => {
                assert_eq!(u64::from(buffer.phase()), extent.offset.0 % 4096);
                if fails {
                    return (Outcome::NotDone(Failure::MediumRead), buffer);
                }
                let range = extent.offset.0 as usize..extent.end().0 as usize;
                self.memory.write(&mut buffer, 0, &volume[range]);
                (Outcome::Done, buffer)
            }
            Operation::Write { extent, buffer, .. } => {
                if fails {
                    return (Outcome::NotDone(Failure::MediumWrite), buffer);
                }
                self.writes += 1;
                if self.lose_writes_from.is_none_or(|from| self.writes < from) {
                    let range = extent.offset.0 as usize..extent.end().0 as usize;
                    self.memory.read(&buffer, 0, &mut volume[range]);
                }
                (Outcome::Done, buffer)
            }
            Operation::Flush => {
                self.flushes += 1;
                (Outcome::Done, Buffer::empty())
            }
            other => panic!("the lab does not ask for {}", other.name()),
        }
    }
}

impl Desk for Bench {
    fn now(&self) -> Instant {
        self.now
    }

    fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.pool.take(account, Class::Transfer, length, phase)
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
