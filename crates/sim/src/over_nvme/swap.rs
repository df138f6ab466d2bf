//! An administrator who puts another volume under the volume's NSID, and the volume back, while
//! hosts write.
//!
//! The other volume is nobody's: our hosts look who is there before they begin, and those that had
//! the volume go on writing until they know. Nothing of it may reach the other, which is full of
//! bytes that no write leaves; and no read may return those. What is there is gone from all shards
//! before anything else is shown, as `apply` does it.

use block::{BlockCount, BlockSize, Extent, VolumeId};
use contract::DiskId;
use nvme::subsystem::Namespace;
use shard::Order;
use volume::{Layout, Member};

use crate::client::VOLUME;
use crate::disk::SimDisk;
use crate::run::{MILLISECOND, Orders, Run, TARGET};
use crate::setup::Fault;

/// The identity of the volume, and of the other one.
pub(crate) const UUID: [u8; 16] = [0x5a; 16];
const UUID_OTHER: [u8; 16] = [0xa5; 16];
const OTHER: VolumeId = VolumeId(1);
/// Behind all disks of the volume.
const OTHER_DISK: DiskId = DiskId(100);
/// What the other volume is full of.
const CONTENT: u8 = 0xb7;

/// What is under the NSID.
#[derive(Debug, Default)]
pub(crate) struct Swap {
    /// Whether it is the other volume, or will be.
    other: bool,
    /// While it is neither: the orders that take away what was there.
    removal: Option<Orders>,
}

impl Run {
    /// The other volume's disk, in a world that has one.
    pub(crate) fn plug_other(&mut self) {
        if self.setup.faults[Fault::Swap] > 0 {
            let size = self.setup.disk_size;
            let mut disk = SimDisk::new(size, self.setup.behaviour);
            disk.fill(CONTENT);
            self.world.hosts[TARGET].disks.insert(OTHER_DISK, disk);
        }
    }

    /// A target starts: it has the other volume, and exports its own.
    pub(crate) fn add_other(&mut self) {
        (self.nvme.swap.other, self.nvme.swap.removal) = (false, None);
        let Some(disk) = self.world.hosts[TARGET].disks.get(&OTHER_DISK) else { return };
        let facts = disk.facts();
        let layout = Layout::single(Member { disk: OTHER_DISK, base: 0, length: facts.size.0 });
        self.order_all(|| Order::AddDisk { disk: OTHER_DISK, facts: facts.clone() });
        self.order_all(|| Order::AddVolume {
            volume: OTHER,
            layout: layout.clone(),
            reservation: Default::default(),
        });
    }

    /// What is exported now, if anything is.
    pub(crate) fn exported(&self) -> Option<Namespace> {
        if self.nvme.swap.removal.is_some() {
            return None;
        }
        let (volume, uuid, size) = match self.nvme.swap.other {
            true => (OTHER, UUID_OTHER, self.setup.disk_size),
            false => (VOLUME, UUID, self.size),
        };
        Some(Namespace {
            nsid: 1,
            volume,
            uuid,
            block_size: BlockSize::new(self.setup.block_size).expect("512 or 4096"),
            blocks: BlockCount(size / self.setup.block_size),
            read_only: false,
            cache_volatile: self.setup.behaviour.volatile,
            discards: true,
            discard_zeroes: true,
            physical_block: self.setup.block_size as u32,
        })
    }

    /// The other volume comes, or the volume comes back. Not while a client takes what is there for
    /// its disk.
    pub(crate) fn swap(&mut self) {
        let begun = self.clients.iter().all(|client| client.working);
        if !begun
            || self.is_to_export()
            || self.nvme.swap.removal.is_some()
            || self.nvme.exports.removed
        {
            return;
        }
        self.nvme.swap.other = !self.nvme.swap.other;
        self.did.counts.swaps += u64::from(self.nvme.swap.other);
        let count = self.world.hosts[TARGET].nodes.len() * (1 + usize::from(self.setup.twice));
        self.nvme.swap.removal = Some(self.orders_of(count));
        self.export();
    }

    /// An order was answered.
    pub(crate) fn swap_answered(&mut self, number: u64) {
        let removal = &mut self.nvme.swap.removal;
        if removal.as_mut().is_some_and(|orders| orders.answered(number)) {
            *removal = None;
            self.export();
        }
    }

    /// The volume stays from now on.
    pub(crate) fn end_swaps(&mut self) {
        if self.nvme.swap.removal.is_some() {
            self.nvme.swap.other = false;
        } else if self.nvme.swap.other {
            self.swap();
        }
    }

    /// Hosts hear some time after it that the volume is back, and are refused until then.
    pub(crate) fn let_news_spread(&mut self) -> Result<(), String> {
        if self.did.counts.swaps > 0 { self.pass(1_000 * MILLISECOND) } else { Ok(()) }
    }

    /// Whether the other volume is as it was.
    pub(crate) fn look_at_other(&self) -> Result<(), String> {
        let Some(disk) = self.world.hosts[TARGET].disks.get(&OTHER_DISK) else { return Ok(()) };
        let bytes = disk.read(Extent::new(0, disk.facts().size.0));
        match bytes.iter().position(|byte| *byte != CONTENT) {
            None => Ok(()),
            Some(at) => {
                Err(format!("byte {at} of another volume was changed by hosts that never had it"))
            }
        }
    }
}
