//! Requests of several sizes in one stream, for each kind its own: so many of a hundred of each size.
//!
//! Units: bytes. At random, a request begins at a multiple of the smallest size of its kind, as fio has
//! it. Errors: none; who makes one has checked that percentages add up to 100.

use block::Random;

use super::{Kind, Workload};

/// Sizes that a kind may have, as in fio.
pub const SIZES_MAX: usize = 64;

/// The sizes of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of reads, writes and trims.
    splits: [Split; 3],
}

/// The sizes of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    bytes_min: u32,
    bytes_max: u32,
    /// One size, or one for each of a hundred draws.
    drawn: Box<[u32]>,
}

impl Split {
    /// Sizes with their percentages, of which there are a hundred together; of one alone none is asked.
    pub fn new(sizes: &[(u32, u8)]) -> Split {
        let drawn: Box<[u32]> = match sizes {
            [(bytes, _)] => [*bytes].into(),
            several => {
                let each = |(bytes, percent): &(u32, u8)| {
                    std::iter::repeat_n(*bytes, usize::from(*percent))
                };
                several.iter().flat_map(each).collect()
            }
        };
        assert!(matches!(drawn.len(), 1 | 100), "expected 100 percent, seen {}", drawn.len());
        let smallest = drawn.iter().min().copied().unwrap_or_default();
        let largest = drawn.iter().max().copied().unwrap_or_default();
        Split { bytes_min: smallest, bytes_max: largest, drawn }
    }

    /// The smallest.
    pub fn bytes_min(&self) -> u32 {
        self.bytes_min
    }

    /// The largest.
    pub fn bytes_max(&self) -> u32 {
        self.bytes_max
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        match &*self.drawn {
            [only] => *only,
            several => several[random.below(several.len() as u64) as usize],
        }
    }
}

impl Sizes {
    /// Those of reads, writes and trims.
    pub fn new(splits: [Split; 3]) -> Sizes {
        Sizes { splits }
    }

    /// Those of a kind that is drawn.
    #[inline]
    pub fn of(&self, kind: Kind) -> &Split {
        match kind {
            Kind::Read => &self.splits[0],
            Kind::Write | Kind::Flush => &self.splits[1],
            Kind::Trim => &self.splits[2],
        }
    }

    pub(super) fn bytes_max(&self, workload: &Workload) -> u32 {
        let kinds = [Kind::Read, Kind::Write, Kind::Trim].into_iter();
        let used = kinds.filter(|kind| workload.has(*kind));
        used.map(|kind| self.of(kind).bytes_max()).max().unwrap_or(workload.block_bytes)
    }

    /// Places at which a request may begin, in a part of so many blocks, where all kinds have the same
    /// smallest size.
    pub(super) fn cells(&self, block_bytes: u32, blocks: u64) -> u64 {
        let step = u64::from(self.splits[0].bytes_min / block_bytes);
        (blocks / step).max(1)
    }
}
