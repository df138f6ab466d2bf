//! What a shard and the driver that runs it say to each other: events in, effects out.
//!
//! A *driver* (the reactor's io_uring and epoll engines, the simulator) owns sockets, disks, memory and the clock. A
//! [`Machine`] (the shard, or a small one in a test) owns the logic. The *driver contract* (`testkit::suite`) says in code what each effect means,
//! and runs against every driver. What does not live here: I/O, protocol meaning, the shard itself.
//! Read [`machine`] first, then `connection`.
#![forbid(unsafe_code)]

pub mod connection;
pub mod disk;
pub mod filter;
pub mod link;
pub mod machine;

pub use block::DiskId;
pub use connection::{
    ConnectionId, Direct, Endpoint, ListenerId, Next, Receive, SendBatch, SendSegment,
};
pub use disk::{Cache, DiskFacts};
pub use link::{FrameBatch, InFrame, Instruction, LinkFacts, LinkId, OutFrame, Spread};
pub use machine::{Ask, Effect, Event, Loss, Machine};
