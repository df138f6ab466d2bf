//! What `bench` and `copy` have to know of a server that runs in their own process.

use block::VolumeId;
use shard::Order;

use super::error::RunError;
use super::{Running, shape, shards};

/// A volume, for somebody who works on it without a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// How the shards know it.
    pub(crate) volume: VolumeId,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
    /// The smallest unit that can be addressed.
    pub(crate) block_size: u32,
    /// Whether it refuses writes.
    pub(crate) read_only: bool,
}

impl Running {
    /// Where a volume is.
    pub(crate) fn site(&self, name: &str) -> Result<Site, RunError> {
        let volume = self.volume(name)?;
        let mut read_only = false;
        for disk in volume.config.layout.disks() {
            read_only |= self.disk(disk)?.facts.read_only;
        }
        Ok(Site {
            volume: volume.id,
            bytes: shape::size(&volume.config, &volume.layout)?,
            block_size: volume.config.block_size,
            read_only,
        })
    }

    /// Wakes all shards, and returns once each has taken a turn.
    pub(crate) fn wake(&self) -> Result<(), RunError> {
        self.shards.order("wake", shards::ORDER_LIMIT, || Order::Report).map(drop)
    }
}
