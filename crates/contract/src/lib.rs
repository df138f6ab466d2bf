//! What a shard and the driver that runs it say to each other: events in, effects out.
//!
//! A *driver* (the reactor's io_uring and epoll engines, the simulator) owns sockets, disks, memory
//! and the clock. A [`Machine`] (the shard, or a small one in a test) owns the logic. The *driver
//! contract* (`testkit::suite`) says in code what each effect means, and runs against every driver.
//! What does not live here: I/O, protocol meaning, the shard itself. Read [`machine`] first, then
//! `connection`.

pub mod batches;
pub mod connection;
pub mod counters;
pub mod disk;
pub mod filter;
pub mod link;
pub mod machine;
pub mod poll;
pub mod session;
pub mod traffic;

pub use batches::Batches;
pub use block::DiskId;
pub use connection::{
    ConnectionId, Direct, Endpoint, ListenerId, Next, Receive, SendBatch, SendSegment,
};
pub use counters::Counters;
pub use disk::{Cache, DiskFacts};
pub use link::{
    EtherType, Fetch, FrameBatch, InFrame, Instruction, Intake, Lent, LentFrames, LinkFacts,
    LinkId, Links, MacAddress, Misfits, OpenedFrame, OutFrame, Part, Soon, Spread, Station,
    TagControl, Takes, VirtualLinks, VlanTag,
};
pub use machine::{Ask, Effect, Event, Loss, Machine};
pub use poll::{POLL_US_MAX, Poll, PollError};
pub use session::{
    HostEvent, HostNews, Peer, Refused, SessionCounters, SessionEffect, SessionEnd,
    SessionIdentity, StreamEffect, TargetContext,
};
pub use traffic::Traffic;
