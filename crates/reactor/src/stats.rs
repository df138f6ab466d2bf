//! Counters: what a shard has done, written by its own thread and read by anybody.
//!
//! Units: as the names say; bytes are payload of the connections. A counter costs its thread a load and a
//! store, never a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a shard.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// What a shard has done so far, and what it does now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ShardStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Whether its thread sleeps.
            pub sleeping: bool,
        }

        impl Counters {
            /// A look at all of them; each is right by itself.
            pub(crate) fn look(&self, sleeping: bool) -> ShardStats {
                ShardStats { $($name: self.$name.load(Relaxed),)* sleeping }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// System calls: entering the ring, or waiting, receiving and sending; registrations.
    system_calls,
    /// Connections that came here.
    accepted,
    /// Connections that a limit refused (shard 0 counts for all).
    refused,
    /// How often accepting paused because descriptors had run out.
    accept_pauses,
    /// Connections here now.
    connections,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Bytes received straight into block buffers; part of `bytes_in`.
    bytes_direct,
    /// Bytes that were moved within or between receive buffers.
    bytes_moved,
    /// Operations to receive that ended.
    receives,
    /// Operations to send that ended.
    sends,
    /// Requests given to disks.
    disk_requests,
    /// Of these, those that the kernel or a disk thread had to work on.
    disk_works,
    /// Receive buffers that are taken.
    receive_buffers,
    /// Connections that wait for a receive buffer.
    receive_line,
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
