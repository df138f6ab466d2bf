//! GET LBA STATUS: which blocks have space below, found out by seeks, one after the other.
//!
//! The volume is asked for the first data and the first hole in turn, [`SEEK_MAX`] bytes at a time,
//! until the host's list is full, the unit ends, or [`SEEKS_MAX`] seeks were made; a host that wants
//! to know more asks again from there, as the standard foresees. What is told was so when it was
//! asked: others may write meanwhile. A block of which a part is data is mapped. Units: bytes of the
//! volume, and logical blocks where said. Spec: SBC-3, "GET LBA STATUS command".

use block::limits::SEEK_MAX;
use block::{Extent, Outcome, Sought, planted};
use wire::scsi::Cdb;
use wire::scsi::provisioning::{LbaStatus, LbaStatusList, ProvisioningStatus};

use crate::LogicalUnit;
use crate::limits::SEEKS_MAX;

/// A GET LBA STATUS that is carried out: make the seek that [`next`](Self::next) says, tell
/// [`found`](Self::found) what it came to, and send [`data`](Self::data) when there is none.
#[derive(Clone, Debug)]
pub struct LbaSearch {
    /// Bytes of a logical block.
    block: u64,
    /// From where on it is not known yet, and where the unit ends.
    at: u64,
    end: u64,
    sought: Sought,
    runs: Vec<LbaStatus>,
    /// Descriptors that the host has room for.
    room: usize,
    seeks_left: u32,
    allocation: usize,
}

impl LbaSearch {
    /// What the command asks of the unit, which has the block that it begins with, as
    /// [`judge`](crate::judge()) has seen.
    pub fn new(cdb: &Cdb, unit: &LogicalUnit) -> LbaSearch {
        let block = u64::from(unit.block_bytes());
        let allocation = cdb.allocation_length() as usize;
        let room = allocation.saturating_sub(LbaStatusList::HEADER) / LbaStatus::SIZE;
        let mut search = LbaSearch {
            block,
            at: cdb.lba().min(unit.blocks.0) * block,
            end: unit.blocks.0 * block,
            sought: Sought::Data,
            runs: Vec::new(),
            room: room.max(1),
            seeks_left: SEEKS_MAX,
            allocation,
        };
        // Of a unit that is not thin, all is mapped.
        if !unit.discards {
            search.append(search.end - search.at, ProvisioningStatus::MAPPED);
            search.seeks_left = 0;
        }
        search
    }

    /// What to ask the volume next; nothing when [`data`](Self::data) is complete.
    pub fn next(&self) -> Option<(Extent, Sought)> {
        let length = (self.end - self.at).min(SEEK_MAX);
        let goes_on = length > 0 && self.seeks_left > 0 && self.runs.len() <= self.room;
        goes_on.then(|| (Extent::new(self.at, length), self.sought))
    }

    /// The seek that was asked for came to this: done, or found. Panics without one.
    pub fn found(&mut self, outcome: Outcome) {
        let (extent, sought) = self.next().expect("nothing was sought");
        self.seeks_left -= 1;
        let bytes = match outcome {
            Outcome::Found(at) => u64::from(at).min(extent.length.0),
            _ => extent.length.0,
        };
        let is_over = bytes == extent.length.0;
        match sought {
            Sought::Data => {
                self.append(bytes / self.block * self.block, ProvisioningStatus::DEALLOCATED);
                self.sought = if is_over { Sought::Data } else { Sought::Hole };
            }
            Sought::Hole => {
                // A block at least, whatever happened since data were found in it.
                let bytes = bytes.next_multiple_of(self.block).max(self.block);
                let is_kept = !planted("data-are-told-as-holes");
                let told = [ProvisioningStatus::DEALLOCATED, ProvisioningStatus::MAPPED];
                self.append(bytes, told[usize::from(is_kept)]);
                self.sought = if is_over { Sought::Hole } else { Sought::Data };
            }
        }
    }

    /// The data of the answer, no longer than the host has room for.
    pub fn data(mut self) -> Vec<u8> {
        self.runs.truncate(self.room);
        let mut data = LbaStatusList(self.runs).emit();
        data.truncate(self.allocation);
        data
    }

    /// So many bytes from here on are so.
    fn append(&mut self, bytes: u64, status: ProvisioningStatus) {
        let bytes = bytes.min(self.end - self.at);
        let (mut lba, mut blocks) = (self.at / self.block, bytes / self.block);
        self.at += bytes;
        while blocks > 0 {
            let part = match self.runs.last_mut() {
                Some(last) if last.status == status && last.blocks < u32::MAX => {
                    let part = blocks.min(u64::from(u32::MAX - last.blocks));
                    last.blocks += part as u32;
                    part
                }
                _ => {
                    let part = blocks.min(u32::MAX.into());
                    self.runs.push(LbaStatus { lba, blocks: part as u32, status });
                    part
                }
            };
            (lba, blocks) = (lba + part, blocks - part);
        }
    }
}

#[cfg(test)]
mod tests {
    use block::random::Random;
    use block::{BlockCount, BlockSize};

    use super::*;
    use crate::fixtures::unit;

    const SPACE: usize = 3 * SEEK_MAX as usize;

    /// A volume whose pages are data where this says so, asked until the search is over. Returns
    /// the descriptors as (first, blocks, mapped), and the seeks.
    fn search(
        cdb: &Cdb,
        unit: &LogicalUnit,
        is_data: impl Fn(u64) -> bool,
    ) -> (Vec<(u64, u32, bool)>, u32) {
        let mut search = LbaSearch::new(cdb, unit);
        let mut seeks = 0;
        while let Some((extent, sought)) = search.next() {
            assert!(extent.length.0 <= SEEK_MAX && extent.end().0 <= unit.blocks.0 * 512);
            let mut at = (extent.offset.0..extent.end().0).step_by(512);
            let found = at.find(|&at| is_data(at) == (sought == Sought::Data));
            search.found(
                found.map_or(Outcome::Done, |at| Outcome::Found((at - extent.offset.0) as u32)),
            );
            seeks += 1;
        }
        let list = LbaStatusList::parse(&search.data()).expect("a list").0;
        let told =
            |run: &LbaStatus| (run.lba, run.blocks, run.status == ProvisioningStatus::MAPPED);
        (list.iter().map(told).collect(), seeks)
    }

    fn thin() -> LogicalUnit {
        LogicalUnit { blocks: BlockCount(SPACE as u64 / 512), ..unit() }
    }

    #[test]
    fn runs_are_told_as_they_are_and_go_on_over_the_seeks() {
        let (first, last) = (5 * 512, 2 * SEEK_MAX + 512);
        let is_data = |at| (first..last).contains(&at);
        let blocks = (last / 512 - 5) as u32;
        let rest = (SPACE as u64 - last) / 512;
        let whole = [(0, 5, false), (5, blocks, true), (last / 512, rest as u32, false)];
        assert_eq!(search(&Cdb::get_lba_status(0, 1000), &thin(), is_data).0, whole);
        assert_eq!(search(&Cdb::get_lba_status(2, 24), &thin(), is_data).0, [(2, 3, false)]);
        let (list, seeks) = search(&Cdb::get_lba_status(7, 24), &thin(), is_data);
        assert_eq!(list, [(7, blocks - 2, true)]);
        assert!(seeks <= 6, "{seeks} seeks");
        assert!(search(&Cdb::get_lba_status(0, 8), &thin(), is_data).0.is_empty());
    }

    #[test]
    fn any_pattern_is_told_block_by_block_as_it_is() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let bits: Vec<bool> = (0..64).map(|_| random.chance(1, 2)).collect();
            let unit = LogicalUnit { blocks: BlockCount(64), ..unit() };
            let from = random.below(64);
            let room = 8 + 16 * random.below(40) as u32;
            let is_data = |at: u64| bits[(at / 512) as usize];
            let (list, _) = search(&Cdb::get_lba_status(from, room), &unit, is_data);
            let mut at = from;
            for (lba, blocks, mapped) in &list {
                assert_eq!(*lba, at, "seed {seed}: descriptors follow each other");
                let run = at..at + u64::from(*blocks);
                assert!(run.clone().all(|at| bits[at as usize] == *mapped), "seed {seed}");
                at = run.end;
            }
            let is_whole = at == 64 || list.len() == ((room - 8) / 16) as usize;
            assert!(is_whole, "seed {seed}: the list ends at {at}");
        }
    }

    #[test]
    fn a_block_of_which_a_part_is_data_is_mapped() {
        let large = LogicalUnit { block_size: BlockSize::B4096, blocks: BlockCount(4), ..unit() };
        let mut search = LbaSearch::new(&Cdb::get_lba_status(0, 1000), &large);
        for outcome in [Outcome::Found(5000), Outcome::Found(600), Outcome::Done] {
            search.found(outcome);
        }
        assert_eq!(search.next(), None);
        let list = LbaStatusList::parse(&search.data()).expect("a list").0;
        let told: Vec<_> = list.iter().map(|run| (run.lba, run.blocks, run.status.0)).collect();
        assert_eq!(told, [(0, 1, 1), (1, 1, 0), (2, 2, 1)]);
    }

    #[test]
    fn a_search_ends_whatever_it_is_told() {
        for outcome in [Outcome::Done, Outcome::Found(0), Outcome::Found(511), Outcome::Found(512)]
        {
            let mut search = LbaSearch::new(&Cdb::get_lba_status(0, u32::MAX), &thin());
            let mut seeks = 0;
            while search.next().is_some() {
                search.found(outcome);
                seeks += 1;
            }
            assert!(seeks <= SEEKS_MAX, "{outcome}: {seeks}");
            assert!(!LbaStatusList::parse(&search.data()).expect("a list").0.is_empty());
        }
    }

    #[test]
    fn of_a_unit_that_is_not_thin_all_is_mapped() {
        let thick = LogicalUnit { blocks: BlockCount(1 << 40), discards: false, ..unit() };
        let search = LbaSearch::new(&Cdb::get_lba_status(100, 24), &thick);
        assert_eq!(search.next(), None);
        let list = LbaStatusList::parse(&search.data()).expect("a list").0;
        let status = ProvisioningStatus::MAPPED;
        assert_eq!(list, [LbaStatus { lba: 100, blocks: u32::MAX, status }]);
    }
}
