//! Simulated disks: sectors with a volatile cache before them, which a power cut loses or tears;
//! slow, failing, lying, or never answering, as the scenario and the seed say.
//!
//! A request takes effect at one moment between its submission and its answer, sector by sector in
//! any order; so overlapping requests in flight leave each sector as one of them. Units: bytes; a
//! sector has 512.

use std::collections::BTreeMap;

use block::{ByteCount, Extent, Failure, Operation, Outcome, Random, Sought};
use contract::{Cache, DiskFacts};

use crate::memory::SimMemory;

/// Bytes of a sector: what is written atomically.
pub const SECTOR: usize = testkit::oracle::BLOCK;

/// How a disk behaves; by default it is durable, prompt and well. Chances are in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behaviour {
    /// Whether completed writes lie in a volatile cache.
    pub volatile: bool,
    /// How long an answer takes at most, in microseconds.
    pub latency_us: u64,
    /// The chance that a read fails.
    pub read_fails: u64,
    /// The chance that a write fails: in part, or, if it is to be durable, once it is written and
    /// should last. What it wrote is then lost as after a flush that fails.
    pub write_fails: u64,
    /// The chance that a flush fails. As with Linux it fails once: what it should have made durable
    /// can be read until the next power cut, but no later flush writes it, and they say done.
    pub flush_fails: u64,
    /// The chance that a request is never answered.
    pub sticks: u64,
    /// Whether a flush does nothing and says it did.
    pub lies: bool,
    /// The chance that a write lands in two parts, one after the other.
    pub parts: u64,
    /// Whether reads lease pages and writes keep them, as RAM disks do.
    pub leases: bool,
}

/// A disk's sectors, which survive their host.
#[derive(Debug)]
pub struct SimDisk {
    behaviour: Behaviour,
    media: Vec<u8>,
    /// What was written since it was last known durable.
    cache: BTreeMap<u64, [u8; SECTOR]>,
    /// What a failed flush should have written, and nothing will.
    given_up: BTreeMap<u64, [u8; SECTOR]>,
    is_being_mended: bool,
    /// A durable write could not be made to last: the next flush, by an open file of its own, is
    /// told so, too.
    owes_failure: bool,
    /// Set for good by a plant: flushes are dropped.
    pub drops_flushes: bool,
    /// Set for good by a plant: now and then a sector is read as it was before the last write of
    /// it.
    pub serves_stale: bool,
    previous: BTreeMap<u64, [u8; SECTOR]>,
}

impl SimDisk {
    /// A disk of zeros.
    pub fn new(size: u64, behaviour: Behaviour) -> SimDisk {
        SimDisk {
            behaviour,
            media: vec![0; size as usize],
            cache: BTreeMap::new(),
            given_up: BTreeMap::new(),
            is_being_mended: false,
            owes_failure: false,
            drops_flushes: false,
            serves_stale: false,
            previous: BTreeMap::new(),
        }
    }

    /// Makes it hold nothing but this byte.
    pub fn fill(&mut self, byte: u8) {
        self.media.fill(byte);
    }

    /// What a driver tells of it.
    pub fn facts(&self) -> DiskFacts {
        DiskFacts {
            physical_block: SECTOR as u32,
            cache: if self.behaviour.volatile { Cache::Volatile } else { Cache::None },
            ..DiskFacts::of_memory(ByteCount(self.media.len() as u64))
        }
    }

    /// How it behaves.
    pub fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    /// Lets it behave otherwise from now on.
    pub fn set_behaviour(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
    }

    /// Makes it longer, with zeros.
    pub fn grow(&mut self, size: u64) {
        assert!(size as usize >= self.media.len(), "a disk shrinks");
        self.media.resize(size as usize, 0);
    }

    fn read_sector(&self, number: u64) -> [u8; SECTOR] {
        if let Some(sector) = self.cache.get(&number).or_else(|| self.given_up.get(&number)) {
            return *sector;
        }
        let at = number as usize * SECTOR;
        self.media[at..at + SECTOR].try_into().expect("a sector")
    }

    fn write_sector(&mut self, number: u64, bytes: &[u8], durable: bool) {
        if self.serves_stale {
            self.previous.insert(number, self.read_sector(number));
        }
        let at = number as usize * SECTOR;
        self.given_up.remove(&number);
        if self.behaviour.volatile && !durable {
            self.cache.insert(number, bytes.try_into().expect("a sector"));
        } else {
            self.cache.remove(&number);
            self.media[at..at + SECTOR].copy_from_slice(bytes);
        }
    }

    /// Whether it lends its memory for reading, as a RAM disk does: one that errs has to be asked,
    /// so that it can.
    pub fn lends(&self, extent: Extent) -> bool {
        let errs = self.behaviour.read_fails > 0 || self.serves_stale;
        self.behaviour.leases && !errs && extent.end().0 <= self.media.len() as u64
    }

    /// Takes the bytes of a range at once, as a RAM disk does.
    pub fn land(&mut self, extent: Extent, bytes: &[u8]) {
        for (number, sector) in sectors(extent).zip(bytes.chunks(SECTOR)) {
            self.write_sector(number, sector, true);
        }
    }

    /// The bytes of a range.
    pub fn read(&self, extent: Extent) -> Vec<u8> {
        sectors(extent).flat_map(|number| self.read_sector(number)).collect()
    }

    /// Lets the first sectors of a write land, `most` of them; returns how many did.
    pub fn land_part(&mut self, extent: Extent, bytes: &[u8], most: u64) -> u64 {
        if extent.end().0 > self.media.len() as u64 {
            return 0;
        }
        for (number, sector) in sectors(extent).zip(bytes.chunks(SECTOR)).take(most as usize) {
            self.write_sector(number, sector, false);
        }
        most
    }

    /// Carries a request out, now, but for the first `landed` sectors of a write. The payload of a
    /// read is filled; a write's is left to rubbish by the caller.
    pub fn perform(
        &mut self,
        operation: &mut Operation,
        landed: u64,
        memory: &mut SimMemory,
        random: &mut Random,
    ) -> Outcome {
        let behaviour = self.behaviour;
        if let Some(extent) = operation.extent()
            && extent.end().0 > self.media.len() as u64
        {
            return Outcome::NotDone(Failure::OutOfRange);
        }
        match operation {
            Operation::Read { extent, buffer } => {
                if random.chance(behaviour.read_fails, 1000) {
                    return Outcome::NotDone(Failure::MediumRead);
                }
                let mut bytes = self.read(*extent);
                if self.serves_stale && random.chance(1, 8) {
                    for (number, sector) in sectors(*extent).zip(bytes.chunks_mut(SECTOR)) {
                        let previous = self.previous.get(&number);
                        sector.copy_from_slice(previous.map_or(&[0; SECTOR], |old| old));
                    }
                }
                if behaviour.leases {
                    memory.lease(buffer, &bytes);
                } else {
                    block::Memory::write(memory, buffer, 0, &bytes);
                }
                Outcome::Done
            }
            Operation::Write { extent, buffer, durable } => {
                let bytes = memory.bytes(buffer);
                let fails = random.chance(behaviour.write_fails, 1000);
                let durable = *durable && !behaviour.lies;
                if fails && durable && random.chance(1, 2) {
                    return self.lose(*extent, &bytes, random);
                }
                let rest = sectors(*extent).zip(bytes.chunks(SECTOR)).skip(landed as usize);
                for (number, sector) in rest {
                    if !fails || random.chance(1, 2) {
                        self.write_sector(number, sector, durable && !fails);
                    }
                }
                if fails { Outcome::NotDone(Failure::MediumWrite) } else { Outcome::Done }
            }
            Operation::WriteZeroes { extent, durable, .. } => {
                let durable = *durable && !behaviour.lies;
                for number in sectors(*extent) {
                    self.write_sector(number, &[0; SECTOR], durable);
                }
                Outcome::Done
            }
            Operation::Discard { extents } => {
                for extent in extents.iter() {
                    for number in sectors(*extent) {
                        self.write_sector(number, &[0; SECTOR], false);
                    }
                }
                Outcome::Done
            }
            Operation::Compare { extent, buffer } => {
                let (ours, theirs) = (self.read(*extent), memory.bytes(buffer));
                match ours.iter().zip(&theirs).position(|(a, b)| a != b) {
                    None => Outcome::Done,
                    Some(at) => Outcome::Miscompare(at as u32),
                }
            }
            Operation::Verify { .. } => Outcome::Done,
            Operation::Seek { extent, sought } => {
                let bytes = self.read(*extent);
                let is_hole = |sector: &[u8]| sector.iter().all(|&byte| byte == 0);
                let mut sectors = bytes.chunks(SECTOR);
                let found = sectors.position(|sector| is_hole(sector) == (*sought == Sought::Hole));
                found.map_or(Outcome::Done, |at| Outcome::Found((at * SECTOR) as u32))
            }
            Operation::Flush => self.flush(random),
            Operation::CompareAndWrite { .. } => unreachable!("disks are never asked that"),
        }
    }

    /// A durable write is carried out, and its sync fails.
    fn lose(&mut self, extent: Extent, bytes: &[u8], random: &mut Random) -> Outcome {
        for (number, sector) in sectors(extent).zip(bytes.chunks(SECTOR)) {
            self.write_sector(number, sector, false);
            self.given_up.extend(self.cache.remove_entry(&number));
        }
        self.owes_failure = self.behaviour.volatile;
        let failures = [Failure::MediumWrite, Failure::NoSpace, Failure::TimedOut];
        Outcome::Unknown(failures[random.below(failures.len() as u64) as usize])
    }

    fn flush(&mut self, random: &mut Random) -> Outcome {
        if self.behaviour.lies || self.drops_flushes {
            return Outcome::Done;
        }
        let fails = random.chance(self.behaviour.flush_fails, 1000) || self.owes_failure;
        self.owes_failure = false;
        if fails && !self.is_being_mended {
            self.given_up.append(&mut self.cache);
            return Outcome::NotDone(Failure::MediumWrite);
        }
        for (number, sector) in core::mem::take(&mut self.cache) {
            let at = number as usize * SECTOR;
            self.media[at..at + SECTOR].copy_from_slice(&sector);
        }
        Outcome::Done
    }

    /// A person looks at it, and writes again what a failed flush had lost; until
    /// [`mended`](Self::mended) no flush fails, as every shard is to take writes again without one
    /// being missed.
    pub fn mend(&mut self) {
        (self.is_being_mended, self.owes_failure) = (true, false);
        for (number, sector) in core::mem::take(&mut self.given_up) {
            self.write_sector(number, &sector, false);
        }
    }

    /// Every shard takes writes again.
    pub fn mended(&mut self) {
        self.is_being_mended = false;
    }

    /// The power goes: of what lay in the cache some sectors reached the media and some did not.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.given_up.clear();
        for (number, sector) in core::mem::take(&mut self.cache) {
            if random.chance(1, 2) {
                let at = number as usize * SECTOR;
                self.media[at..at + SECTOR].copy_from_slice(&sector);
            }
        }
    }
}

fn sectors(extent: Extent) -> core::ops::Range<u64> {
    assert!(
        extent.offset.0.is_multiple_of(SECTOR as u64)
            && extent.length.0.is_multiple_of(SECTOR as u64),
        "{extent} is not in sectors"
    );
    extent.offset.0 / SECTOR as u64..extent.end().0 / SECTOR as u64
}
