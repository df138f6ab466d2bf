//! The simulator: whole hosts in virtual time, with faults drawn from one seed, and an oracle that
//! knows what each block may hold.
//!
//! The hosts run the same [`shard::Shard`] that the reactor runs: targets with disks, clients whose
//! disk is the target's namespace, imported by our initiator, raw hosts that do what our initiators
//! never do, and peers that talk garbage. Between them lie a network that delays, splits and
//! cuts, disks that are slow, fail, tear and forget, and mail that takes its time. Same seed, same
//! trace. What does not live here: real sockets, files, clocks, threads. Read [`world`] first, then
//! [`scenario`] and `testkit::oracle`.

pub mod client;
mod clients;
pub mod disk;
mod ending;
pub mod ethernet;
mod fairness;
mod faults;
pub mod fences;
pub mod memory;
pub mod network;
pub mod node;
pub mod over_aoe;
pub mod over_iscsi;
pub mod over_mpls;
pub mod over_nvme;
pub mod paths;
mod run;
pub mod scenario;
mod seed;
pub mod setup;
pub mod trace;
pub mod world;
mod writer;

pub use scenario::{SCENARIOS, Scenario};
pub use seed::{Activity, Counts, Failed, Passed, Plant, find_planted, run_seed, trace_seed};
