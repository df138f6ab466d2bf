//! The bytes behind the data path: the arena of 4 KiB pages that all shards share, and a shard's
//! view of it.
//!
//! Read [`arena`] first (what a page is, who owns it), then [`leases`] (who may read and change one
//! that a RAM disk holds), [`homes`] (which page is meant for which of its slots), then
//! [`shard_memory`] (what a shard does with buffers). Beside them: [`lines`] (what is fetched into
//! the processor's cache ahead) and [`page_crc`] (the CRC32C of pages). Units: pages of 4096 bytes.
//! Not here: how much a shard may use (`block::Pool`), RAM disks (`disk::ram`).

pub(crate) mod arena;
pub(crate) mod homes;
mod leases;
pub(crate) mod lines;
pub(crate) mod mapping;
mod page_crc;
pub(crate) mod shard_memory;

pub use arena::{Arena, ArenaError};
pub(crate) use shard_memory::ShardMemory;
