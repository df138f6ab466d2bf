//! The memory of a simulated shard: pages that are watched, and disks that lend theirs.

use std::cell::Cell;
use std::collections::BTreeMap;

use block::{DiskId, Extent};
use testkit::pages::{Lender, Pages};

use crate::disk::SimDisk;

/// Pages of one shard.
pub type SimMemory = Pages<LentDisks>;

/// The host's disks, while the world lets a machine look for what they can lend.
#[derive(Debug, Default)]
pub struct LentDisks {
    pub(crate) disks: BTreeMap<DiskId, SimDisk>,
    asked: Cell<u32>,
}

impl Lender for LentDisks {
    fn lends(&self, disk: DiskId, extent: Extent) -> bool {
        let asked = self.asked.get().wrapping_add(1);
        self.asked.set(asked);
        // A disk that lends may as well be asked, and answer late: both ways are to be met.
        !asked.is_multiple_of(3) && self.disks.get(&disk).is_some_and(|disk| disk.lends(extent))
    }

    fn read(&self, disk: DiskId, extent: Extent) -> Vec<u8> {
        self.disks.get(&disk).expect("it said that it lends").read(extent)
    }

    fn land(&mut self, disk: DiskId, extent: Extent, bytes: &[u8]) {
        self.disks.get_mut(&disk).expect("it said that it lends").land(extent, bytes);
    }
}
