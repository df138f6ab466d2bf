//! What a driver tells of a disk: facts derived from what the backing does, never set by hand.

use block::{ByteCount, PAGE_SIZE};

/// Where a completed write may still be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// A completed write is as durable as the disk ever makes it (RAM, a remote disk that says so).
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

impl DiskFacts {
    /// Of a disk that is memory, in pages: it takes writes, loses none, and gives back what is
    /// discarded.
    pub fn of_memory(size: ByteCount) -> DiskFacts {
        DiskFacts {
            size,
            logical_block: 512,
            physical_block: PAGE_SIZE,
            cache: Cache::None,
            read_only: false,
            discards: true,
            discard_zeroes: true,
        }
    }
}
