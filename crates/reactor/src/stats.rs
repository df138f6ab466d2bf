//! What a shard has done, counted by its own thread and read by anybody.
//!
//! Units: as the names say; bytes are payload of the connections. A counter costs its thread a load
//! and a store, never a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes [`contract::counters`], and the cells that a thread counts them in.
macro_rules! shared_counters {
    ($(#[$meta:meta])* pub struct $name:ident in $cells:ident {
        $($(#[doc = $meaning:literal])+ $field:ident: $unit:ident $($now:ident)?,)*
    }) => {
        contract::counters! {
            $(#[$meta])*
            pub struct $name { $($(#[doc = $meaning])+ $field: $unit $($now)?,)* }
        }

        #[derive(Debug, Default)]
        pub(crate) struct $cells {
            $(pub(crate) $field: std::sync::atomic::AtomicU64,)*
        }

        impl $cells {
            /// A look at all of them; each is right by itself.
            pub(crate) fn look(&self) -> $name {
                $name { $($field: self.$field.load(std::sync::atomic::Ordering::Relaxed),)* }
            }
        }
    };
}
pub(crate) use shared_counters;

shared_counters! {
    /// What a shard has done so far, and what it does now.
    pub struct ShardStats in ShardCells {
        /// Turns of the loop.
        turns: Events,
        /// Turns that began by waiting for something; the others only looked.
        sleeps: Events,
        /// Waits that looked for more before they slept.
        looks: Events,
        /// Of these, those in which something came.
        looks_paid: Events,
        /// Of these, those that ended because another wanted the processor.
        looks_stopped: Events,
        /// Time that was spent looking.
        looked_ns: Nanoseconds,
        /// How often a processor stood still for 20 us or more while its shard looked: nothing came, and no
        /// other thread had it.
        pauses: Events,
        /// For how long in all.
        paused_ns: Nanoseconds,
        /// System calls: entering the ring, or waiting, receiving and sending; registrations.
        system_calls: Operations,
        /// Connections that came here.
        accepted: Connections,
        /// Connections that a limit refused (shard 0 counts for all).
        refused: Connections,
        /// How often accepting paused because descriptors had run out.
        accept_pauses: Events,
        /// Connections here now.
        connections: Connections now,
        /// Bytes received.
        received_bytes: Bytes,
        /// Bytes sent.
        sent_bytes: Bytes,
        /// Bytes received straight into block buffers; part of `received_bytes`.
        direct_bytes: Bytes,
        /// Bytes that were moved within or between receive buffers.
        moved_bytes: Bytes,
        /// Operations to receive that ended.
        receives: Operations,
        /// Operations to send that ended.
        sends: Operations,
        /// Requests given to disks.
        disk_requests: Operations,
        /// Of these, those that the kernel or a disk thread had to work on.
        disk_works: Operations,
        /// Receive buffers that are taken.
        receive_buffers: Buffers now,
        /// Connections that wait for a receive buffer.
        receive_line: Connections now,
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed) + count, Relaxed);
}

/// Sets a counter.
#[inline]
pub(crate) fn set(counter: &AtomicU64, value: u64) {
    counter.store(value, Relaxed);
}
