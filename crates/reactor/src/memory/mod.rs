//! The bytes behind the data path: the arena of 4 KiB pages that all shards share, and a shard's
//! view of it.
//!
//! Read [`arena`] first (what a page is, who owns it), then [`leases`] (who may read and change one
//! that a RAM disk holds), [`homes`] (which page is meant for which of its slots), then
//! [`shard_memory`] (what a shard does with buffers). Units: pages of 4096 bytes. Not here: how much
//! a shard may use (`block::Pool`), RAM disks (`disk::ram`).

pub(crate) mod arena;
pub(crate) mod homes;
mod leases;
pub(crate) mod mapping;
pub(crate) mod shard_memory;

pub use arena::{Arena, ArenaError};
pub(crate) use shard_memory::ShardMemory;
