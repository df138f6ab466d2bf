//! The reactor: runs shards on real sockets, disks and memory.
//!
//! One pinned thread and one [engine](EngineKind) a shard: io_uring, or epoll where the kernel or
//! the container's profile refuses it. [`Reactor::start`] gives each thread a
//! [`Machine`](contract::Machine) and returns a [`Handle`], through which the control thread
//! listens, adds disks and raw Ethernet links, and exchanges mail with the machines.
//!
//! What lives here: threads, rings, sockets, links, timers, the memory behind buffers, disks. What
//! deliberately does not: protocols and volumes. It is the one room with system calls and unsafe
//! code. Read `runtime` first, then `driver`, then `engine`; `memory`, `disk` and `link` stand for
//! themselves.

mod accept;
pub mod disk;
mod driver;
mod engine;
mod link;
mod mailbox;
pub mod memory;
mod process;
mod receive;
mod runtime;
mod sockets;
mod stats;

pub use accept::{ConnectionLimits, ListenOptions};
pub use engine::choice::{Choice, EngineKind, Preference, probe};
pub use link::{
    AddedLink, Datagrams, Found, Interface, LinkAccess, LinkCounters, LinkOptions, LinkStats,
    PeerOptions, RelayCounts, RelayOptions, Stations, SwitchedOff, delays_what_is_first,
    is_of_a_host, is_of_a_link, look_at_interface, look_at_peer, look_at_stations, may_open_links,
    relay,
};
pub use process::{allowed_cpus, processor_time};
pub use runtime::{Config, Handle, Pulse, Reactor};
pub use sockets::buffer_bound;
pub use stats::ShardStats;
