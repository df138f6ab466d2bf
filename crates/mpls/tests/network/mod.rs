//! The network that tests run: the routers, links and wires of `topology`, what links do with frames
//! (`links`), customers and what they may hear (`customers`, `oracle`).
//!
//! In it are played, each from a seed:
//!
//! - `tables`: routers as tables and verdicts. Links also corrupt, customers forge, and tables change
//!   under traffic.
//! - `cuts`: routers that run (`running`), and pairs of paths that BFD watches. Links fail, with a word
//!   or without, and routers stall; `health` knows who has to know what, `balance` what counters say.
//! - `reloads`: such paths, whose labels, ways, bottom labels and circuits become others.
//! - `changes`: the same while links fail and traffic moves; paths are taken away and given back.
//! - `storage`: such a path, between a host and a disk of AoE, and frames that are seconds late.
//! - `tunnels`: two edges, and a network of IP between them: GRE, L2TPv3 and labels in UDP.

mod balance;
mod changes;
mod customers;
mod cuts;
mod health;
mod links;
mod oracle;
mod orders;
mod reloads;
mod running;
mod storage;
mod tables;
mod topology;
mod tunnels;

pub(crate) use changes::run as run_changes;
pub(crate) use cuts::run as run_cuts;
pub(crate) use reloads::run as run_reloads;
pub(crate) use storage::run as run_storage;
pub(crate) use tables::run as run_tables;
pub(crate) use tunnels::run as run_tunnels;
