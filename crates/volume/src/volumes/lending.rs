//! Reads and writes of volumes that lie in memory of the shard: nothing of them is in flight.

use block::{ByteCount, DiskId, Extent, Memory, VolumeId};

use super::Volumes;
use crate::latency::Class;

impl Volumes {
    /// Where a read finds what can be lent; see [`Submit::find_loan`](block::Submit::find_loan). No
    /// hold stands in the way of a read, and what is lent is never in flight.
    #[inline]
    pub fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let (disk, place) = self.find_memory(volume, extent, memory)?;
        self.count_lent(volume, disk, false, extent.length);
        Some((disk, place))
    }

    /// Where a write finds memory that takes it at once; see
    /// [`Submit::find_landing`](block::Submit::find_landing). A hold stands in its way, and a disk
    /// that takes no writes. What lands is never in flight.
    #[inline]
    pub fn find_landing(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let (disk, place) = self.find_memory(volume, extent, memory)?;
        let is_free = !self.volumes[volume.0].held.blocks(extent);
        let takes_writes = self.gates[disk.0].protected().is_none();
        (is_free && takes_writes).then_some((disk, place))
    }

    /// A write has landed.
    #[inline]
    pub fn landed(&mut self, volume: VolumeId, disk: DiskId, length: ByteCount) {
        self.count_lent(volume, disk, true, length);
    }

    /// The memory that holds all of `extent`, if one disk does that is memory.
    #[inline]
    fn find_memory(
        &self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let found = self.volumes.get(volume.0)?;
        if found.removed || extent.length.0 == 0 || !extent.fits(found.layout.size()) {
            return None;
        }
        let piece = found.layout.first_piece(extent);
        let is_whole = piece.extent.length == extent.length;
        let is_memory = is_whole && memory.can_lend(piece.disk, piece.extent);
        is_memory.then_some((piece.disk, piece.extent))
    }

    #[inline]
    fn count_lent(&mut self, volume: VolumeId, disk: DiskId, changes: bool, length: ByteCount) {
        let class = Class::changing(changes);
        let (found, gate) = (&mut self.volumes[volume.0], &mut self.gates[disk.0]);
        found.counters.count(changes, length.0);
        found.latencies.of_mut(class).record_at_once();
        gate.counters.count(changes, length.0);
        gate.latencies.of_mut(class).record_at_once();
    }
}
