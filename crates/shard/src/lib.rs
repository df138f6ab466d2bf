//! The shard: one core's machines behind one [`contract::Machine`]. Events in, effects out, no I/O.
//!
//! What lives here: the ways from bytes to sessions and from frames to targets, of requests to volumes and of completions back; the line of those who
//! wait for memory; timers; imports (initiators that stand in for disks); mail between shards and orders of the control thread.
//! What does not: protocol meaning (a crate for each), what a volume does (`volume`), sockets, disks and clocks (`reactor`, `sim`).
//! Read [`shard`] first, then `mail`. Which protocols there are is said in [`protocols`] and, for disks that are reached by one, in `remote`.

mod imports;
pub mod mail;
pub mod protocols;
mod remote;
pub mod report;
pub mod shard;
mod timers;

pub use mail::{Answer, Mail, News, Order};
pub use protocols::{AoeExport, Export, ExportKey, Protocol, StoreKey, StoredValue};
pub use remote::ImportSettings;
pub use report::Report;
pub use shard::{Settings, Shard};

/// The kinds of machines on a shard: the top four bits of a [`block::MachineId`].
pub mod machine {
    use block::MachineId;

    /// A session; the rest of the number is its place on the shard.
    pub const SESSION: u32 = 0;
    /// Requests that volumes have in flight.
    pub const FLIGHTS: MachineId = MachineId(1 << 28);
    /// Flushes of the gates.
    pub const GATES: MachineId = MachineId(2 << 28);
    /// Requests of somebody who has no place on the shard: `bench` and `copy` in process. The rest of the number is the visitor's.
    pub const VISITOR: u32 = 3;

    /// The kind of targets without sessions, which answer frames.
    pub const TARGET: u32 = 4;
    /// The only one of them.
    pub const FRAMES: MachineId = MachineId(TARGET << 28);

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
