//! How a raw host is to behave, as a scenario draws it, and what it did, in numbers. Units: blocks of the
//! oracle in a logical block, logical blocks, nanoseconds where nothing else is said.

use contract::counters;
use wire::nvme_tcp::Digests;

/// How a raw host behaves.
#[derive(Clone, Copy, Debug)]
pub struct HostBehaviour {
    /// Sectors of a logical block.
    pub unit: u64,
    /// Logical blocks that it works on, from the first on.
    pub span: u64,
    /// Whether it copies, to as many logical blocks behind those as twice.
    pub copies: bool,
    /// I/O queues.
    pub queues: u16,
    /// Commands under way at most.
    pub depth: usize,
    /// Mean time between two commands, in microseconds.
    pub interval_us: u64,
    /// Whether lives end soon, in resets, shutdowns and losses.
    pub resets: bool,
    /// Whether it shuts controllers down. That flushes, also by a closed path.
    pub shuts_down: bool,
    /// KATO, in nanoseconds, a multiple of a second; 0 for none. Lives may end in silence then.
    pub keep_alive: u64,
    /// Whether it stops reading for a while now and then.
    pub deaf: bool,
    /// Whether it fills its queues to the last entry, with as many CIDs, and stops reading for ever
    /// now and then.
    pub greedy: bool,
    /// Whether somebody may preempt it: then data are late enough to come when that is over.
    pub is_fenced: bool,
    /// Digests to ask for.
    pub digests: Digests,
    /// Whether nothing else goes wrong: then every error must have been provoked.
    pub strict: bool,
}

counters! {
    /// What a raw host did.
    pub struct Actions {
        /// Commands that were answered.
        answered: Operations,
        /// Fused pairs that wrote.
        swaps: Operations,
        /// Fused pairs whose compare failed.
        miscompares: Operations,
        /// Copies that were done.
        copies: Operations,
        /// Copies that ended in their midst, some ranges copied.
        part_copies: Operations,
        /// Aborts that succeeded.
        aborts: Operations,
        /// Commands that ended since somebody preempted them.
        preempted: Operations,
        /// Resets that were answered.
        resets: Operations,
        /// Commands that were under way at a reset.
        reset_commands: Operations,
        /// Shutdowns that were completed.
        shutdowns: Operations,
        /// Times that it cut a connection.
        losses: Events,
        /// R2Ts.
        grants: Events,
        /// Times that it was silent, and given up in time.
        expired: Events,
        /// Times that it did not read for a while.
        deafs: Events,
        /// Times that it filled a queue to the last entry.
        fulls: Events,
        /// Times that it never read again, and was left.
        left: Events,
    }
}
