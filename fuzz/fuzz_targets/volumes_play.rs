//! The volumes of one to three shards, over disks that answer when they are told to, fail, and lose
//! their power at the end.
//!
//! Checked: each request is answered once; what reads return and what survives the power cut is
//! what the simulator's oracle allows; two compare-and-writes never replace the same content of a
//! block; no page is lost.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::{
    Buffer, ByteCount, Completion, Extent, Instant, MachineId, Memory, Operation, Outcome, Random,
    Request, ShardId, Sought, Ticket, VolumeId,
};
use contract::DiskId;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use sim::disk::{Behaviour, SECTOR, SimDisk};
use sim::memory::SimMemory;
use testkit::oracle::{Content, Oracle};
use volume::{Layout, Member, Message, Volumes};

const FLIGHTS: MachineId = MachineId(1 << 28);
const GATES: MachineId = MachineId(2 << 28);
const VOLUME: VolumeId = VolumeId(1);
const DISK_BYTES: u64 = 32 << 10;
const LENGTHS: [u64; 6] = [1, 1, 2, 4, 9, 20];

/// A request under way.
struct Visit {
    start: u64,
    first: u64,
    count: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Compare,
    Seek(Sought),
    Other,
    Flush,
    Change {
        id: u64,
        durable: bool,
    },
    Discard {
        id: u64,
    },
    /// With what the block was expected to hold.
    Swap {
        id: u64,
        durable: bool,
        expected: u64,
    },
}

struct Play {
    time: u64,
    volumes: Vec<Volumes>,
    layout: Layout,
    small: Layout,
    disks: Vec<SimDisk>,
    held: Vec<(DiskId, Request)>,
    mail: BTreeMap<(usize, usize), VecDeque<Message>>,
    memory: SimMemory,
    oracle: Oracle,
    /// The number of the last write.
    last_write: u64,
    random: Random,
    visits: BTreeMap<u32, Visit>,
    next: u32,
    /// What each block was last seen or known to hold, to be expected.
    seen: BTreeMap<u64, u64>,
    swapped: BTreeSet<(u64, u64)>,
    removed: Vec<bool>,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = Play::new(&mut choices);
    while !choices.is_empty() {
        play.act(&mut choices);
    }
    play.end();
});

fn now(time: u64) -> Instant {
    Instant(time * 1_000_000)
}

impl Play {
    /// A number for a write.
    fn next_write(&mut self) -> u64 {
        self.last_write += 1;
        self.last_write
    }

    fn new(choices: &mut Choices<'_>) -> Play {
        let way = choices.byte();
        let shards = 1 + u16::from(way & 3).min(2);
        let (volatile, leases) = (way & 4 == 0, way & 8 != 0);
        let behaviour = Behaviour { volatile, leases, ..Behaviour::default() };
        let member = |disk: u32, length: u64| Member { disk: DiskId(disk), base: 0, length };
        let members =
            |last: u64| vec![member(0, DISK_BYTES), member(1, DISK_BYTES), member(2, last)];
        let make = |short: bool| {
            let last = if short { DISK_BYTES / 2 } else { DISK_BYTES };
            match way >> 4 & 3 {
                0 => Layout::single(member(0, last)),
                1 => Layout::concat(members(last)).expect("a concat"),
                _ => Layout::stripe(members(last), if way & 0x40 == 0 { 4096 } else { 8192 })
                    .expect("a stripe"),
            }
        };
        let layout = make(false);
        let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new(DISK_BYTES, behaviour)).collect();
        let volumes = (0..shards).map(|shard| {
            let mut volumes = Volumes::new(ShardId(shard), shards, FLIGHTS, GATES);
            for (number, disk) in disks.iter().enumerate() {
                volumes.add_disk(DiskId(number as u32), disk.facts());
            }
            volumes.add_volume(VOLUME, layout.clone());
            volumes
        });
        Play {
            time: 1,
            volumes: volumes.collect(),
            last_write: 0,
            oracle: Oracle::new(layout.size().0 / SECTOR as u64, true),
            small: make(true),
            layout,
            disks,
            held: Vec::new(),
            mail: BTreeMap::new(),
            memory: SimMemory::default(),
            random: Random::new(u64::from(way)),
            visits: BTreeMap::new(),
            next: 0,
            seen: BTreeMap::new(),
            swapped: BTreeSet::new(),
            removed: vec![false; usize::from(shards)],
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>) {
        self.time += 1;
        let what = choices.byte();
        let shard = usize::from(what >> 5) % self.volumes.len();
        match what & 0x1f {
            0..=13 => self.ask(shard, what & 0x1f, choices),
            14..=20 => {
                let which = choices.below(self.held.len().max(1));
                self.answer(which, choices.byte());
            }
            21..=24 => {
                let which = choices.below(self.mail.len().max(1));
                self.deliver(which);
            }
            25 => {
                let layout = if choices.flag() { &self.small } else { &self.layout };
                self.volumes[shard].resize_volume(VOLUME, layout.clone());
            }
            26 => {
                self.time += 1000 * u64::from(choices.byte());
                self.volumes[shard].handle_timeout(now(self.time));
                self.take(shard);
            }
            27 => {
                // A reopened disk, on one shard after the other.
                let disk = choices.below(3);
                self.disks[disk].mend();
                self.disks[disk].mended();
                let facts = self.disks[disk].facts();
                self.volumes[shard].renew_disk(DiskId(disk as u32), facts);
            }
            28 => self.remove(shard),
            29 => self.settle(),
            _ => {
                self.deliver(0);
                self.answer(0, 0);
            }
        }
    }

    fn remove(&mut self, shard: usize) {
        if !self.removed[shard] {
            self.volumes[shard].remove_volume(VOLUME);
            self.removed[shard] = true;
        } else if self.removed.iter().all(|removed| *removed)
            && self.volumes.iter().all(|volumes| volumes.is_drained(VOLUME))
        {
            // Held everywhere and drained everywhere: only then is it forgotten, and may come
            // again.
            for (shard, volumes) in self.volumes.iter_mut().enumerate() {
                volumes.forget_volume(VOLUME);
                volumes.add_volume(VOLUME, self.layout.clone());
                self.removed[shard] = false;
            }
        }
        self.take(shard);
    }

    fn ask(&mut self, shard: usize, what: u8, choices: &mut Choices<'_>) {
        let blocks = self.layout.size().0 / SECTOR as u64;
        let count = choices.of(&LENGTHS);
        let place = choices.byte();
        // Places meet often: half of them are the first few blocks, or lie around an edge.
        let first = match place & 3 {
            0 => u64::from(place >> 2) % 4,
            1 => (u64::from(place >> 2) * 8 + 8).saturating_sub(2) % (blocks - count),
            _ => u64::from(place) * 37 % (blocks - count),
        };
        let durable = place & 0x80 != 0;
        let extent = Extent::new(first * SECTOR as u64, count * SECTOR as u64);
        let (operation, kind) = match what {
            0..=2 => (Operation::Read { extent, buffer: buffer(extent) }, Kind::Read),
            3..=6 => {
                let id = self.next_write();
                let buffer = self.pattern(id, extent);
                (Operation::Write { extent, buffer, durable }, Kind::Change { id, durable })
            }
            7 => {
                let id = self.next_write();
                let operation = Operation::WriteZeroes { extent, deallocate: false, durable };
                (operation, Kind::Change { id, durable })
            }
            8 => {
                let id = self.next_write();
                (Operation::Discard { extents: vec![extent] }, Kind::Discard { id })
            }
            9 | 10 => (Operation::Flush, Kind::Flush),
            11 => {
                let id = self.seen.get(&first).copied().unwrap_or(0);
                let buffer = self.pattern(id, extent);
                (Operation::Compare { extent, buffer }, Kind::Compare)
            }
            12 => {
                let extent = Extent::new(extent.offset.0, SECTOR as u64);
                let expected = self.seen.get(&first).copied().unwrap_or(0);
                let id = self.next_write();
                let (old, new) =
                    (Box::new(self.pattern(expected, extent)), self.pattern(id, extent));
                let operation =
                    Operation::CompareAndWrite { extent, expected: old, replacement: new, durable };
                (operation, Kind::Swap { id, durable, expected })
            }
            _ if durable => {
                let sought = if first & 1 == 0 { Sought::Data } else { Sought::Hole };
                (Operation::Seek { extent, sought }, Kind::Seek(sought))
            }
            _ => (Operation::Verify { extent }, Kind::Other),
        };
        let count = if matches!(kind, Kind::Swap { .. }) { 1 } else { count };
        match kind {
            Kind::Change { id, .. } | Kind::Discard { id } | Kind::Swap { id, .. } => {
                let zeros =
                    matches!(operation, Operation::WriteZeroes { .. } | Operation::Discard { .. });
                let content = if zeros { Content::Zeros } else { Content::Pattern };
                self.oracle.begin(self.time, id, content, first, count);
            }
            _ => {}
        }
        self.visits.insert(self.next, Visit { start: self.time, first, count, kind });
        let ticket = Ticket {
            machine: MachineId(7),
            generation: 5,
            slot: self.next,
            shard: ShardId(shard as u16),
        };
        self.next += 1;
        let request = Request { ticket, operation };
        self.volumes[shard].handle_request(now(self.time), VOLUME, request);
        self.take(shard);
    }

    fn pattern(&mut self, id: u64, extent: Extent) -> Buffer {
        let mut bytes = vec![0; extent.length.0 as usize];
        if id > 0 {
            Oracle::pattern(id, extent.offset.0 / SECTOR as u64, &mut bytes);
        }
        let mut buffer = buffer(extent);
        self.memory.write(&mut buffer, 0, &bytes);
        buffer
    }

    /// A disk answers. It fails as `how` says.
    fn answer(&mut self, which: usize, how: u8) {
        if which >= self.held.len() {
            return;
        }
        self.time += 1;
        let (disk, mut request) = self.held.remove(which);
        let (fails, unknown) = (how & 7 == 7, how & 8 != 0);
        let disk = &mut self.disks[disk.0 as usize];
        let mut behaviour = disk.behaviour();
        let rate = if fails { 1000 } else { 0 };
        (behaviour.write_fails, behaviour.flush_fails, behaviour.read_fails) = (rate, rate, rate);
        disk.set_behaviour(behaviour);
        let mut outcome =
            disk.perform(&mut request.operation, 0, &mut self.memory, &mut self.random);
        if let (Outcome::NotDone(failure), true) = (outcome, unknown) {
            outcome = Outcome::Unknown(failure);
        }
        if how & 0x10 != 0
            && let Operation::Write { buffer, .. } = &mut request.operation
        {
            if disk.behaviour().leases {
                self.memory.keep_pages(buffer);
            } else {
                self.memory.fill_with_rubbish(buffer, &mut self.random);
            }
        }
        let mut completion = request.complete(outcome);
        let shard = completion.ticket.shard.index();
        if self.volumes[shard].handle_completion(now(self.time), &mut completion) {
            self.volumes[shard].outbox.complete.push(completion);
        }
        self.take(shard);
    }

    /// The oldest letter between two shards arrives.
    fn deliver(&mut self, which: usize) {
        let Some((&(from, to), letters)) = self.mail.iter_mut().nth(which) else { return };
        let letter = letters.pop_front().expect("empty ones are dropped");
        if letters.is_empty() {
            self.mail.remove(&(from, to));
        }
        let from = ShardId(from as u16);
        self.volumes[to].handle_message(now(self.time), from, letter);
        self.take(to);
    }

    fn take(&mut self, shard: usize) {
        let out = core::mem::take(&mut self.volumes[shard].outbox);
        for (disk, request) in out.submit {
            assert_eq!(request.ticket.shard.index(), shard, "whoever asks is told");
            if let Some(extent) = request.operation.extent() {
                assert!(extent.fits(ByteCount(DISK_BYTES)), "{extent} on a disk");
            }
            self.held.push((disk, request));
        }
        for (to, message) in out.messages {
            assert_ne!(to.index(), shard, "a shard writes to itself");
            self.mail.entry((shard, to.index())).or_default().push_back(message);
        }
        for completion in out.complete {
            self.completed(shard, completion);
        }
    }

    fn completed(&mut self, shard: usize, completion: Completion) {
        let Completion { ticket, outcome, buffer, expected } = completion;
        assert_eq!((ticket.machine, ticket.generation), (MachineId(7), 5));
        assert_eq!(ticket.shard.index(), shard, "whoever asked is told");
        let visit = self.visits.remove(&ticket.slot).expect("it is answered once");
        let Visit { start, first, count, kind } = visit;
        // Two requests of which one ended before the other began have different moments.
        self.time += 1;
        let end = self.time;
        self.time += 1;
        let done = outcome.is_done();
        match kind {
            Kind::Read if done => {
                let bytes = self.memory.bytes(&buffer);
                self.oracle.check(start, end, first, &bytes).unwrap_or_else(|why| panic!("{why}"));
                for (index, block) in bytes.chunks(SECTOR).enumerate() {
                    let id = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
                    self.seen.insert(first + index as u64, id);
                }
            }
            // Up to the first data there are zeros; at the first hole there is one.
            Kind::Seek(sought) if outcome.failure().is_none() => {
                let zeros = match (sought, outcome) {
                    (Sought::Data, Outcome::Found(at)) => 0..u64::from(at) / SECTOR as u64,
                    (Sought::Data, _) => 0..count,
                    (Sought::Hole, Outcome::Found(at)) => {
                        let at = u64::from(at) / SECTOR as u64;
                        at..at + 1
                    }
                    (Sought::Hole, _) => 0..0,
                };
                let bytes = vec![0; (zeros.end - zeros.start) as usize * SECTOR];
                let seen = self.oracle.check(start, end, first + zeros.start, &bytes);
                seen.unwrap_or_else(|why| panic!("{sought:?} {outcome}: {why}"));
            }
            Kind::Change { id, durable } => {
                self.oracle.end(end, id, first, count, done, done && durable);
            }
            // A hint: it may have done nothing, and then nothing is superseded.
            Kind::Discard { id } => self.oracle.end(end, id, first, count, false, false),
            Kind::Swap { id, durable, expected } => {
                if let Outcome::Miscompare(_) = outcome {
                    self.oracle.never(id, first, count);
                } else {
                    self.oracle.end(end, id, first, count, done, done && durable);
                }
                if done {
                    // Patterns are never written twice: who replaces one is the only one. Zeros may
                    // come again.
                    let fresh = expected == 0 || self.swapped.insert((first, expected));
                    assert!(fresh, "two compare-and-writes replaced {expected} in block {first}");
                    self.seen.insert(first, id);
                }
            }
            Kind::Flush if done => self.oracle.flushed(start, |_| false),
            Kind::Read | Kind::Compare | Kind::Seek(_) | Kind::Other | Kind::Flush => {}
        }
        self.memory.release(buffer);
        if let Some(expected) = expected {
            self.memory.release(*expected);
        }
    }

    fn settle(&mut self) {
        while !self.held.is_empty() || !self.mail.is_empty() {
            self.deliver(0);
            self.answer(0, 0);
        }
    }

    fn end(mut self) {
        self.settle();
        assert!(self.visits.is_empty(), "{} requests are not answered", self.visits.len());
        for volumes in &self.volumes {
            assert!(volumes.is_drained(VOLUME) && volumes.in_flight() == 0);
        }
        assert_eq!(self.memory.held(), 0, "pages are lost");
        // What was promised survives the power.
        self.oracle.power_cut(self.time);
        for disk in &mut self.disks {
            disk.cut_power(&mut self.random);
        }
        let blocks = self.layout.size().0 / SECTOR as u64;
        for first in 0..blocks {
            let extent = Extent::new(first * SECTOR as u64, SECTOR as u64);
            let piece = self.layout.first_piece(extent);
            let bytes = self.disks[piece.disk.0 as usize].read(piece.extent);
            let seen = self.oracle.check(self.time + 5, self.time + 6, first, &bytes);
            seen.unwrap_or_else(|why| panic!("after the power cut: {why}"));
        }
    }
}

fn buffer(extent: Extent) -> Buffer {
    Buffer::reserved(extent.length.0 as u32, (extent.offset.0 % 4096) as u32)
}
