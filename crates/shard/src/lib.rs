//! The shard: one core's machines behind one [`contract::Machine`]. Events in, effects out, no I/O.
//!
//! What lives here: the ways from bytes to sessions and from frames to targets, of requests to
//! volumes and of completions back; the line of those who wait for memory; timers; imports
//! (initiators that stand in for disks, here or on another shard); mail between shards and orders of
//! the control thread. What does not: protocol meaning (a crate for each), what a volume does (`volume`), sockets, disks and
//! clocks (`reactor`, `sim`). Read [`shard`] first, then `mail`. Which protocols there are is said
//! in [`protocols`] and, for disks that are reached by one, in `remote`; who carries frames of
//! others, in `carriers`.

mod carriers;
pub mod client;
mod dispatch;
mod elsewhere;
mod imports;
pub mod mail;
pub mod protocols;
mod remote;
pub mod report;
pub mod shard;
mod timers;

pub use carriers::{RouterId, Subject, Way};
pub use client::{ClientContext, InternalClient};
pub use mail::{Answer, DiskMessage, ImportEvent, Mail, News, Order};
pub use protocols::{
    AoeExport, Export, ExportKey, Listening, NamedHosts, Protocol, StoreKey, StoredValue,
};
pub use remote::ImportSettings;
pub use report::Report;
pub use shard::{Settings, Shard, Waiter};

/// The kinds of machines on a shard: the top four bits of a [`block::MachineId`]. The rest is its
/// number among those of its kind.
mod machine {
    use block::MachineId;

    const NUMBER_BITS: u32 = 28;

    /// A session, by its place on the shard.
    pub(crate) const SESSION: u32 = 0;
    /// Requests that volumes have in flight.
    pub(crate) const FLIGHTS: MachineId = MachineId(1 << NUMBER_BITS);
    /// Flushes of the gates.
    pub(crate) const GATES: MachineId = MachineId(2 << NUMBER_BITS);
    /// An internal client.
    pub(crate) const CLIENT: u32 = 3;
    /// A target without sessions, which answers frames.
    pub(crate) const TARGET: u32 = 4;
    /// Whoever carries virtual links.
    pub(crate) const VIRTUAL_LINKS: MachineId = MachineId(5 << NUMBER_BITS);

    #[inline]
    pub(crate) fn kind(machine: MachineId) -> u32 {
        machine.0 >> NUMBER_BITS
    }

    #[inline]
    pub(crate) fn number(machine: MachineId) -> u32 {
        machine.0 & ((1 << NUMBER_BITS) - 1)
    }

    #[inline]
    pub(crate) fn client(number: u32) -> MachineId {
        MachineId(CLIENT << NUMBER_BITS | self::number(MachineId(number)))
    }

    #[inline]
    pub(crate) const fn target(number: u32) -> MachineId {
        MachineId(TARGET << NUMBER_BITS | number)
    }
}
