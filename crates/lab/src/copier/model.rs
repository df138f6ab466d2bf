//! Copies in a world that goes wrong, and what may be believed of them whatever happens.
//!
//! A seed draws disks, and then lives of one copy: each begins anew or resumes what the journal of
//! the lives before says, meets reads, writes and flushes that fail (a flush that fails loses what
//! it was for, and the next one says *done*, as Linux does), disks that lie, a journal that cannot
//! be written, and ends by itself, by a signal, or killed at any step, with or without the power.
//! Between two lives disks are changed, exchanged for others or for each other, and the journal is
//! lost, torn, or another copy's.
//!
//! What is judged: a copy that says *whole* holds what the source holds, on the medium; the journal
//! on the shelf never says more than the medium holds; a resume onto a disk that is not the
//! journal's changes nothing. A life is carried through the calls that the command makes.

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{
    Account, Buffer, Extent, Failure, Instant, Memory, Operation, Outcome, Pool, Random, Request,
    Ticket,
};
use testkit::{Pages, perform};

use super::{Copier, Failed, Plan};
use crate::guest::{Desk, Guest, Phase, Place, Progress};
use crate::journal::{End, Ending, Journal, Logbook, Shelf, Start, Verify};

const BLOCK: usize = 512;

/// A disk with a volatile cache.
#[derive(Clone, Debug)]
struct Disk {
    identity: u64,
    /// When it was last changed.
    changed: u64,
    /// As reads see it.
    seen: Vec<u8>,
    medium: Vec<u8>,
    /// Blocks that a flush would make durable.
    dirty: BTreeSet<usize>,
    /// Those that the flush under way makes durable.
    flushing: BTreeSet<usize>,
}

impl Disk {
    fn new(random: &mut Random, identity: u64, blocks: usize, blank: bool) -> Disk {
        let mut seen = vec![0; blocks * BLOCK];
        for block in seen.chunks_mut(BLOCK) {
            // Runs of zeros are holes.
            if !blank && random.chance(2, 3) {
                block.fill_with(|| 1 + random.below(255) as u8);
            }
        }
        let (dirty, flushing) = (BTreeSet::new(), BTreeSet::new());
        Disk { identity, changed: 1, medium: seen.clone(), seen, dirty, flushing }
    }

    fn end(&self, name: &str) -> End {
        End {
            name: name.to_owned(),
            identity: self.identity.to_string(),
            bytes: self.seen.len() as u64,
            changed: Some(self.changed.to_string()),
        }
    }

    fn flush(&mut self) {
        for block in std::mem::take(&mut self.flushing) {
            self.dirty.remove(&block);
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            self.medium[bytes.clone()].copy_from_slice(&self.seen[bytes]);
        }
    }

    fn lose_power(&mut self, random: &mut Random) {
        let dirty = std::mem::take(&mut self.dirty);
        for block in dirty.into_iter().filter(|_| random.chance(1, 2)) {
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            self.medium[bytes.clone()].copy_from_slice(&self.seen[bytes]);
        }
        self.seen.clone_from(&self.medium);
    }

    /// Somebody else writes to it, and it is on the medium.
    fn change(&mut self, random: &mut Random) {
        let block = random.below((self.seen.len() / BLOCK) as u64) as usize;
        let byte = &mut self.seen[block * BLOCK];
        *byte = byte.wrapping_add(1 + random.below(255) as u8);
        self.flushing.insert(block);
        self.flush();
        self.changed += 1;
    }
}

/// What goes wrong, each in so many of 1,000; of a world's own choosing.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    read: u64,
    write: u64,
    flush: u64,
    shelf: u64,
    kill: u64,
    stop: u64,
    /// Writes that are said to be done and are not.
    lies: u64,
    /// The planted bug: what failed counts as written.
    blind: bool,
}

#[derive(Debug)]
struct Asked {
    place: Place,
    slot: u32,
    operation: Operation,
}

/// Both disks, and the journal's shelf.
#[derive(Debug)]
struct World {
    source: Disk,
    destination: Disk,
    shelf: Option<String>,
    faults: Faults,
    /// Whether the destination can clear what it is not sent.
    clears: bool,
    /// The destination is not what the journal takes it for, in a way that nobody can see: it lied,
    /// or was written to after a crash. Only what was compared is known then.
    deceived: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    whole: u64,
    rest: u64,
    resumed: u64,
    refused: u64,
    differs: u64,
    killed: u64,
    cleared: u64,
    failed: u64,
}

/// One life's hardware: it ends with the life.
struct Machine<'a> {
    world: &'a mut World,
    random: &'a mut Random,
    pool: Pool,
    memory: Pages,
    now: Instant,
    asked: Vec<Asked>,
}

/// The process is dead.
#[derive(Debug)]
struct Killed;

/// How a life ended, if it was not killed.
#[derive(Debug)]
enum Told {
    Refused,
    Early,
    Differs,
    Whole,
}

struct Full;

impl Shelf for World {
    type Error = Full;

    fn put(&mut self, text: &str) -> Result<(), Full> {
        if self.faults.shelf > 0 && crc(text) % 1000 < self.faults.shelf {
            return Err(Full);
        }
        let journal = Journal::parse(text).expect("as it was written");
        let durable = journal.durable as usize;
        let copied = self.source.seen[..durable] == self.destination.medium[..durable];
        assert!(copied || self.deceived, "the journal says {durable}");
        self.shelf = Some(text.to_owned());
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Full> {
        self.shelf = None;
        Ok(())
    }
}

/// The text decides whether it is the one that cannot be written.
fn crc(text: &str) -> u64 {
    u64::from(block::checksum::crc32c(text.as_bytes()))
}

impl Machine<'_> {
    fn chance(&mut self, of: fn(&Faults) -> u64) -> bool {
        let permille = of(&self.world.faults);
        permille > 0 && self.random.chance(permille, 1000)
    }

    fn carry_out(&mut self, place: Place, operation: Operation) -> (Outcome, Buffer) {
        let failed = match operation {
            Operation::Read { .. } if self.chance(|faults| faults.read) => Failure::MediumRead,
            Operation::Flush if self.chance(|faults| faults.flush) => {
                let disk = &mut self.world.destination;
                let lost = std::mem::take(&mut disk.flushing);
                disk.dirty.retain(|block| !lost.contains(block));
                Failure::MediumWrite
            }
            Operation::WriteZeroes { .. } if !self.world.clears => Failure::Unsupported,
            Operation::Write { .. } | Operation::WriteZeroes { .. }
                if self.chance(|faults| faults.write) =>
            {
                Failure::NoSpace
            }
            operation => return self.perform(place, operation),
        };
        // What fails may have been done in part.
        let extent = operation.extent().filter(|_| failed == Failure::NoSpace);
        for at in extent.iter().flat_map(|extent| extent.offset.0..extent.end().0).step_by(BLOCK) {
            if self.random.chance(1, 3) {
                let block = at as usize / BLOCK;
                let disk = &mut self.world.destination;
                disk.seen[block * BLOCK..(block + 1) * BLOCK].fill(0xee);
                disk.dirty.insert(block);
            }
        }
        let blind = self.world.faults.blind && operation.changes_data();
        let outcome = match self.random.chance(1, 2) {
            _ if blind && failed == Failure::NoSpace => Outcome::Done,
            true if failed == Failure::NoSpace => Outcome::Unknown(failed),
            _ => Outcome::NotDone(failed),
        };
        let request = Request { ticket: Ticket::default(), operation };
        let mut completion = request.complete(outcome);
        self.memory.materialize(&mut completion.buffer);
        (outcome, completion.buffer)
    }

    fn perform(&mut self, place: Place, operation: Operation) -> (Outcome, Buffer) {
        if operation.changes_data() {
            let lies = self.chance(|faults| faults.lies);
            self.world.deceived |= lies;
            let disk = &mut self.world.destination;
            disk.changed += 1;
            let extent = operation.extent().expect("a range");
            if lies {
                let request = Request { ticket: Ticket::default(), operation };
                return (Outcome::Done, request.complete(Outcome::Done).buffer);
            }
            for at in (extent.offset.0..extent.end().0).step_by(BLOCK) {
                disk.dirty.insert(at as usize / BLOCK);
            }
        } else if matches!(operation, Operation::Flush) {
            self.world.destination.flush();
        }
        let disk = match place {
            Place(0) => &mut self.world.source,
            _ => &mut self.world.destination,
        };
        let request = Request { ticket: Ticket::default(), operation };
        let completion = perform(&mut disk.seen, request, Outcome::Done, &mut self.memory);
        (completion.outcome, completion.buffer)
    }

    /// Carries a copier to its end, telling `tick` at each turn how far it is.
    fn run(&mut self, plan: Plan, mut tick: impl FnMut(&mut World, u64)) -> Result<Copier, Killed> {
        let progress = Arc::new(Progress::default());
        let mut copier = Copier::new(plan, progress.clone());
        loop {
            copier.handle_turn(self);
            if self.chance(|faults| faults.stop) {
                progress.stop();
            }
            if self.random.chance(1, 4) {
                tick(self.world, progress.durable());
            }
            if self.chance(|faults| faults.kill) {
                return Err(self.die());
            }
            if copier.phase() == Phase::Done {
                assert!(self.asked.is_empty() && self.pool.used() == 0, "{copier:?}");
                return Ok(copier);
            }
            assert!(!self.asked.is_empty(), "it waits for nothing: {copier:?}");
            self.now.0 += self.random.below(2_000_000_000);
            let index = self.random.below(self.asked.len() as u64) as usize;
            let Asked { place, slot, operation } = self.asked.swap_remove(index);
            let (outcome, buffer) = self.carry_out(place, operation);
            copier.handle_completion(self, slot, outcome, buffer);
        }
    }

    /// What was asked is done, or is not; and the power may go, too.
    fn die(&mut self) -> Killed {
        for Asked { place, operation, .. } in std::mem::take(&mut self.asked) {
            if self.random.chance(1, 2) {
                self.carry_out(place, operation);
            }
        }
        if self.random.chance(1, 2) {
            self.world.destination.lose_power(self.random);
        }
        self.world.counts.killed += 1;
        Killed
    }
}

impl Desk for Machine<'_> {
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
        if matches!(operation, Operation::Flush) {
            let disk = &mut self.world.destination;
            disk.flushing.clone_from(&disk.dirty);
        }
        self.asked.push(Asked { place, slot, operation });
    }
}

impl World {
    fn new(random: &mut Random, faults: Faults) -> World {
        let blocks = 1 + random.below(96) as usize;
        let blank = random.chance(1, 2);
        let more = random.below(3) as usize;
        World {
            source: Disk::new(random, 1, blocks, false),
            destination: Disk::new(random, 2, blocks + more, blank),
            shelf: None,
            faults,
            clears: random.chance(1, 2),
            deceived: false,
            counts: Counts::default(),
        }
    }

    fn plan(&self, random: &mut Random, from: u64, verify: Verify) -> Plan {
        let size = self.source.seen.len() as u64;
        let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let mut holes: Vec<Extent> = Vec::new();
        for (index, block) in self.source.seen.chunks(BLOCK).enumerate() {
            let at = (index * BLOCK) as u64;
            match holes.last_mut() {
                _ if !is_hole(block) => {}
                Some(last) if last.end().0 == at => last.length.0 += BLOCK as u64,
                _ => holes.push(Extent::new(at, BLOCK as u64)),
            }
        }
        Plan {
            source: Place(0),
            destination: Place(1),
            size,
            from,
            holes,
            piece: BLOCK as u32 * (1 + random.below(6) as u32),
            depth: 1 + random.below(6) as u32,
            compare: verify.range(from, size),
        }
    }

    /// One life, as the command leads it.
    fn live(&mut self, random: &mut Random, resume: bool, verify: Verify) -> Result<Told, Killed> {
        let (source, destination) = (self.source.end("a"), self.destination.end("b"));
        let mut from = 0;
        let mut checks = Vec::new();
        if resume {
            let journal = self.shelf.as_deref().map(Journal::parse);
            let Some(Ok(journal)) = journal else { return Ok(Told::Refused) };
            let Ok(start) = journal.resume(&source, &destination) else { return Ok(Told::Refused) };
            if start == Start::Crashed(0) {
                return Ok(Told::Refused);
            }
            (from, checks) = (start.from(), start.checks());
            self.counts.resumed += 1;
        } else {
            self.deceived = false;
        }
        let plan = self.plan(random, from, verify);
        let (size, compare) = (plan.size as usize, plan.compare.clone());
        let mut machine = Machine {
            world: self,
            random,
            pool: Pool::new(block::limits::POOL_PAGES_MIN),
            memory: Pages::default(),
            now: Instant(1_000_000),
            asked: Vec::new(),
        };
        for range in checks {
            let (size, from) = (range.end, range.end);
            let check = Plan { size, from, compare: range, ..plan.clone() };
            let copier = machine.run(check, |_, _| {})?;
            match copier.failed() {
                None if copier.is_complete() => {}
                Some(Failed::Differs(_)) => {
                    let _ = machine.world.remove();
                    return Ok(Told::Differs);
                }
                _ => return Ok(Told::Early),
            }
        }
        // Without a journal that says so, nothing is begun that could not be resumed.
        let Ok(mut logbook) = Logbook::open(machine.world, source, destination, from) else {
            return Ok(Told::Refused);
        };
        let copier = machine.run(plan, |world, durable| {
            let _ = logbook.advance(world, durable);
        })?;
        let _ = logbook.advance(machine.world, copier.durable());
        let (ending, told) = match copier.failed() {
            None if copier.is_complete() => (Ending::Whole, Told::Whole),
            Some(Failed::Differs(_)) => (Ending::Differs, Told::Differs),
            _ => (Ending::Early, Told::Early),
        };
        machine.world.counts.failed += u64::from(copier.failed().is_some());
        machine.world.counts.cleared += copier.cleared();
        let changed = machine.world.destination.changed.to_string();
        let _ = logbook.close(machine.world, ending, Some(changed));
        if ending == Ending::Whole {
            let all = compare == (0..size as u64);
            let (source, destination) = (&self.source, &self.destination);
            let same = source.seen[..] == destination.seen[..size];
            assert!(same || (self.deceived && !all), "told the same after {compare:?}");
            let durable = source.seen[..] == destination.medium[..size];
            assert!(durable || self.deceived, "whole, and not durable");
        }
        Ok(told)
    }

    /// What others do between two lives.
    fn meddle(&mut self, random: &mut Random) {
        let blocks = |disk: &Disk| disk.seen.len() / BLOCK;
        let identity = random.next_u64();
        match random.below(16) {
            0 => self.source.change(random),
            1 => {
                self.destination.change(random);
                // After a crash nobody sees that somebody wrote to it.
                let journal = self.shelf.as_deref().and_then(|text| Journal::parse(text).ok());
                self.deceived |= journal.is_some_and(|one| one.destination.changed.is_none());
            }
            2 => {
                let blank = random.chance(1, 2);
                self.destination = Disk::new(random, identity, blocks(&self.destination), blank);
            }
            3 => self.source = Disk::new(random, identity, blocks(&self.source), false),
            4 if blocks(&self.source) == blocks(&self.destination) => {
                std::mem::swap(&mut self.source, &mut self.destination);
            }
            5 => self.shelf = None,
            6 => {
                if let Some(text) = &mut self.shelf {
                    text.truncate(random.below(text.len() as u64 + 1) as usize);
                }
            }
            7 => {
                let other = Disk::new(random, identity, blocks(&self.destination), true);
                let (source, destination) = (self.source.end("a"), other.end("b"));
                let journal = Journal { source, destination, durable: BLOCK as u64 };
                self.shelf = Some(journal.text());
            }
            8 => self.destination.lose_power(random),
            _ => {}
        }
    }
}

fn play(seed: u64, faults: impl Fn(&mut Random) -> Faults) -> Counts {
    let mut random = Random::new(seed);
    let faults = faults(&mut random);
    let mut world = World::new(&mut random, faults);
    for life in 0..8 {
        let resume = life > 0 && random.chance(if world.shelf.is_some() { 7 } else { 1 }, 8);
        let verify = match random.below(4) {
            0 => Verify::Nothing,
            1 => Verify::Rest,
            _ => Verify::All,
        };
        let journal = world.shelf.as_deref().and_then(|text| Journal::parse(text).ok());
        let is_known = |end: &Disk, journal: fn(&Journal) -> &End, of: &Option<Journal>| {
            of.as_ref().is_some_and(|of| journal(of).identity == end.identity.to_string())
        };
        let known = is_known(&world.source, |of| &of.source, &journal)
            && is_known(&world.destination, |of| &of.destination, &journal);
        let before = world.destination.seen.clone();
        let told = world.live(&mut random, resume, verify);
        if resume && !known {
            assert!(matches!(told, Ok(Told::Refused)), "{told:?} of ends that it does not know");
            assert!(world.destination.seen == before, "a refused resume wrote");
        }
        if let Ok(Told::Whole | Told::Differs) = told {
            assert_eq!(world.shelf, None, "{told:?}, and it might be resumed");
        }
        match told {
            Err(Killed) | Ok(Told::Early) => {}
            Ok(Told::Refused) => world.counts.refused += 1,
            Ok(Told::Differs) => world.counts.differs += 1,
            Ok(Told::Whole) => match verify {
                Verify::All => world.counts.whole += 1,
                Verify::Rest | Verify::Nothing => world.counts.rest += 1,
            },
        }
        world.meddle(&mut random);
    }
    world.counts
}

fn some(random: &mut Random, at_most: u64) -> u64 {
    if random.chance(1, 2) { random.below(at_most) } else { 0 }
}

/// Faults of all kinds.
fn faults(random: &mut Random) -> Faults {
    Faults {
        read: some(random, 30),
        write: some(random, 30),
        flush: some(random, 300),
        shelf: some(random, 300),
        kill: some(random, 30),
        stop: some(random, 30),
        lies: if random.chance(1, 6) { 20 } else { 0 },
        blind: false,
    }
}

#[test]
fn the_result_is_the_source_or_an_error() {
    let mut sum = Counts::default();
    for seed in 0..3_000 {
        // A failure shows its seed.
        println!("seed {seed}");
        let counts = play(seed, faults);
        for (sum, one) in [
            (&mut sum.whole, counts.whole),
            (&mut sum.rest, counts.rest),
            (&mut sum.resumed, counts.resumed),
            (&mut sum.refused, counts.refused),
            (&mut sum.differs, counts.differs),
            (&mut sum.killed, counts.killed),
            (&mut sum.cleared, counts.cleared),
            (&mut sum.failed, counts.failed),
        ] {
            *sum += one;
        }
    }
    // A world that reaches nothing shows nothing.
    let Counts { whole, rest, resumed, refused, differs, killed, cleared, failed } = sum;
    let all = [whole, rest, resumed, refused, differs, killed, cleared, failed];
    assert!(all.iter().all(|count| *count > 50), "{sum:?}");
}

#[test]
fn a_failed_piece_that_counts_as_written_is_found() {
    let blind = |_: &mut Random| Faults { write: 30, stop: 30, blind: true, ..Faults::default() };
    let found = (0..50).any(|seed| std::panic::catch_unwind(|| play(seed, blind)).is_err());
    assert!(found);
}
