//! Volumes: a request to a volume becomes requests to its member disks, and their completions
//! become one.
//!
//! What lives here: the layouts (single, concat, stripe), the table of requests in flight, holds
//! (which make compare-and-write, removal and resize one step across shards), the gate before each
//! disk (grouped flushes, no writes after a failed one, slow and stuck disks), and the label that a
//! member carries. What does not: protocols, who may use a volume (`reservation`), I/O, threads,
//! clocks. Read [`volumes`] first: it is a shard's part of all volumes.

pub mod assemble;
mod flight;
pub mod gate;
pub mod hold;
pub mod label;
pub mod latency;
pub mod layout;
pub mod message;
pub mod volumes;

pub use layout::{Layout, LayoutError, Member};
pub use message::Message;
pub use volumes::{Notice, Outbox, Outstanding, Volumes};
