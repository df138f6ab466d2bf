//! What tests of machines, the simulator, the fuzz targets and tests of processes stand on: each
//! puts its own driver around it.
//!
//! - `suite`: the driver contract, as scenes that run against every driver.
//! - `pages`: memory that watches its pages; `volumes`: volumes that answer when they are told to.
//! - `oracle`: what each block of a volume may hold.
//! - `shard`: what a shard gives its targets; `pipe`: the driver's side of one connection;
//!   `pseudowire`: virtual links.
//! - `agreement`: values that all shards hold copies of, on a host of one shard.
//! - `aoe`: a station that asks over AoE.
//! - `cases`: tables of what is said in which case.
//! - `nvme`: the host's side of NVMe/TCP, bytes in and bytes out; `iscsi`: an initiator's of iSCSI.
//!
//! It shares no logic with what it tests: of the product it knows `block`, `contract`,
//! `reservation` and `wire` alone, so a machine's own unit tests can use it. What does not live
//! here: whatever draws from a seed, threads, sockets.

pub mod agreement;
pub mod aoe;
pub mod cases;
pub mod iscsi;
pub mod nvme;
pub mod oracle;
pub mod pages;
pub mod pipe;
pub mod planted;
pub mod pseudowire;
pub mod shard;
pub mod suite;
pub mod volumes;

pub use agreement::Agreement;
pub use pages::Pages;
pub use pipe::Pipe;
pub use pseudowire::Pseudowire;
pub use shard::ShardStub;
pub use volumes::{Below, perform};

/// A test ends because this machine lacks what it needs: it is told, and recorded, so that what
/// such tests alone pass through is not missed.
pub fn skipped(why: impl core::fmt::Display) {
    eprintln!("skipped: {why}");
    block::record::passed("skipped", why);
}
