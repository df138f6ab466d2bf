//! The shard: one core's machines behind one [`contract::Machine`]. Events in, effects out, no I/O.
//!
//! What lives here: the switchboard that takes bytes to connections and frames to the AoE target, requests to volumes and completions back; the line of those who
//! wait for memory; timers; imports (initiators that stand in for disks); mail between shards and orders of the control thread.
//! What does not: protocol meaning (`nvme`), what a volume does (`volume`), sockets, disks and clocks (`reactor`, `sim`).
//! Read [`shard`] first, then `mail`.

pub mod imports;
pub mod mail;
mod remote;
pub mod report;
pub mod shard;
mod timers;

pub use imports::ImportSettings;
pub use mail::{Answer, Mail, News, Order, StoreKey, StoredValue};
pub use report::Report;
pub use shard::{Settings, Shard};

/// The kinds of machines on a shard: the top four bits of a [`block::MachineId`].
pub mod machine {
    use block::MachineId;

    /// A target's connection; the rest of the number is its place on the switchboard.
    pub const CONNECTION: u32 = 0;
    /// Requests that volumes have in flight.
    pub const FLIGHTS: MachineId = MachineId(1 << 28);
    /// Flushes of the gates.
    pub const GATES: MachineId = MachineId(2 << 28);
    /// Requests of somebody who is not on the switchboard: `bench` and `copy` in process. The rest of the number is the visitor's.
    pub const VISITOR: u32 = 3;

    /// The kind of the AoE target's requests.
    pub const AOE: u32 = 4;
    /// The AoE target.
    pub const AOE_TARGET: MachineId = MachineId(AOE << 28);

    /// Which kind a machine is of.
    #[inline]
    pub fn kind(machine: MachineId) -> u32 {
        machine.0 >> 28
    }

    /// A visitor's machine.
    pub fn visitor(number: u32) -> MachineId {
        assert!(number < 1 << 28, "visitor {number}");
        MachineId(VISITOR << 28 | number)
    }
}
