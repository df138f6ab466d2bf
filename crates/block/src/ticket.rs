//! Tickets: who is waiting for a completion. A ticket is opaque below its maker; a completion whose
//! generation is gone only returns its buffers.

/// A core's shard, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// Not a shard: the control thread, which sends and receives mail like one.
    pub const CONTROL: ShardId = ShardId(u16::MAX);

    /// The shard, of `shards`, that owns what has this number: what must be one has one owner,
    /// which every shard knows without asking.
    #[inline]
    pub fn owner_of(number: u32, shards: u16) -> ShardId {
        ShardId((number % u32::from(shards.max(1))) as u16)
    }

    /// The shard's number as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A machine on its shard: a connection, a volume, a gate. What the number means is the shard's
/// business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// Who asked: carried down with a request and up with its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The machine that made the request.
    pub machine: MachineId,
    /// Which life of `slot` (or of the machine) this is.
    pub generation: u32,
    /// The machine's own number of the request.
    pub slot: u32,
    /// The shard on which the machine lives.
    pub shard: ShardId,
}

/// A volume of the process, named by whoever configured it; every shard knows it by the same
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// A disk of the process, named by whoever configured it; every shard that uses it knows it by the
/// same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u32);

impl DiskId {
    /// The shard, of `shards`, that groups the disk's flushes and knows whether it takes writes.
    pub fn owner(self, shards: u16) -> ShardId {
        ShardId::owner_of(self.0, shards)
    }
}
