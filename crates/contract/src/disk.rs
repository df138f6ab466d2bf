//! What a driver tells of a disk: facts derived from what the backing does, never set by hand.

use block::{ByteCount, ShardId};

/// A disk of the process, named by whoever configured it; every shard that uses it knows it by the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u32);

impl DiskId {
    /// The shard, of `shards`, that groups the disk's flushes and knows whether it takes writes.
    pub fn owner(self, shards: u16) -> ShardId {
        ShardId((self.0 % u32::from(shards.max(1))) as u16)
    }
}

/// Where a completed write may still be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// A completed write is as durable as the disk ever makes it (RAM, write-through).
    None,
    /// A completed write may be lost with the power until a flush is done.
    Volatile,
}

/// What is known about an open disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    /// Bytes that can be addressed.
    pub size: ByteCount,
    /// The smallest unit that can be addressed, in bytes: 512 or 4096 for most.
    pub logical_block: u32,
    /// What is written atomically, in bytes, at least `logical_block`.
    pub physical_block: u32,
    /// Whether completed writes may be volatile.
    pub cache: Cache,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether a discard gives space back.
    pub discards: bool,
    /// Whether discarded ranges read as zeros.
    pub discard_zeroes: bool,
}
