//! What the shards' parts of volumes write to each other. The owner of a disk groups its flushes
//! and knows whether it takes writes; the owner of a volume grants its holds.

use block::{Extent, Failure, ShardId, VolumeId};
use contract::DiskId;

/// A hold, named by the shard that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId {
    /// The shard that asked.
    pub shard: ShardId,
    /// Its own count.
    pub number: u64,
}

/// A message between the volumes of two shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// To a disk's owner: flush it; all that was completed before this was written must become
    /// durable.
    FlushAsk { disk: DiskId },
    /// From a disk's owner: the flush that covers the oldest unanswered ask is over.
    FlushAnswer {
        disk: DiskId,
        /// Why it failed, if it did.
        failure: Option<Failure>,
    },
    /// To everybody: the disk takes no more writes, since a flush or a durable write failed.
    Protect {
        disk: DiskId,
        /// How it failed.
        failure: Failure,
    },
    /// To a volume's owner: hold `extent`, so that I can change it as one step.
    HoldAsk {
        volume: VolumeId,
        hold: HoldId,
        /// The range.
        extent: Extent,
    },
    /// From a volume's owner to every shard: let no new change of `extent` be submitted, and answer
    /// once none is in flight.
    Hold {
        volume: VolumeId,
        hold: HoldId,
        /// The range.
        extent: Extent,
    },
    /// To a volume's owner: nothing of the held range is in flight on my shard.
    HoldReady { volume: VolumeId, hold: HoldId },
    /// From a volume's owner: the hold stands on every shard.
    HoldGranted { volume: VolumeId, hold: HoldId },
    /// To a volume's owner: the change is made. And from it to every shard: what was held may go
    /// on.
    Release { volume: VolumeId, hold: HoldId },
}
