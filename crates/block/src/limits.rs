//! The bounds of the data path that hold for every protocol, and how they relate; those of a
//! protocol stand in its own `limits.rs`. A number here is either derived in the line above it or
//! says where it comes from. Sizes in bytes, times as `Duration`, unless the name says otherwise.

use core::time::Duration;

use crate::buffer::PAGE_SIZE;

/// The largest transfer of one command (MDTS): 1 MiB.
pub const TRANSFER_MAX: u32 = 1 << 20;
/// Pages of the largest transfer at the least favourable phase.
pub const PAGES_PER_TRANSFER: u32 = TRANSFER_MAX / PAGE_SIZE + 1;
/// Bytes of a part of a copy within the server: so many that a disk which turns and has to seek
/// between source and destination still moves some, so few that a copy holds half a transfer and asks
/// often whether it may go on.
pub const COPY_PART: u32 = 512 << 10;
/// Pages that a copy holds: a part; or half of one as it lies at its source, and the same as it lies
/// at its destination.
pub const COPY_PAGES: u32 = COPY_PART / PAGE_SIZE + 1;
/// Bytes that one command may copy: a second or two of a disk that does not rotate fast, far below
/// the 30 s that hosts wait for an answer.
pub const COPY_MAX: u64 = 64 << 20;
/// Bytes that one seek looks at, so that a RAM disk is done with it in some microseconds and a stripe
/// has few pieces of it.
pub const SEEK_MAX: u64 = 16 << 20;
/// Ranges in one discard (dataset management).
pub const DISCARD_RANGES_MAX: usize = 256;

/// The smallest budget of a shard: 16 MiB.
pub const POOL_PAGES_MIN: u32 = (16 << 20) / PAGE_SIZE;
/// An account may hold 1/32 of the free pages: 8 MiB of 256 MiB, which is 64 transfers of 128 KiB;
/// and 64 hogs leave a third of the pool free.
pub const POOL_SHARE: u32 = 32;
/// An eighth of the pool is left to data that come with their command.
pub const POOL_IMMEDIATE_RESERVE: u32 = 8;
/// The default budget of the data path: 256 MiB.
pub const MEMORY_DEFAULT: u64 = 256 << 20;

/// Loans that are taken together: so many that their cache misses overlap, so few that what they
/// touch stays in the first-level cache.
pub const LOANS_TOGETHER: usize = 32;
/// Landings that are taken together, for the same reasons.
pub const LANDINGS_TOGETHER: usize = LOANS_TOGETHER;
/// Bytes of one connection that are handled in a turn.
pub const TURN_BYTES: u32 = 1 << 20;
/// The small buffer of a receive: it holds a command with the data that come with it, or a payload
/// that is not received directly, with headers and digests.
pub const RECEIVE_BUFFER_SMALL: u32 = 24 << 10;
/// The large buffer of a receive: what one receive can take at once.
pub const RECEIVE_BUFFER: u32 = 512 << 10;
/// Large receive buffers of a shard; a connection that finds none waits for one in line.
pub const RECEIVE_BUFFERS: usize = 32;
/// From this payload on, what has not arrived yet is received straight into its buffer: below, one
/// large receive with copies is cheaper than receives of their own.
pub const DIRECT_RECEIVE_MIN: u32 = 16 << 10;
/// From this payload on, one that is all that is awaited is received straight into its buffer, and
/// nothing but headers with it. Where more are awaited, or a smaller one, whatever there is comes
/// together: one is received straight into its buffer and the rest are copied, which costs less
/// than a receive for each (32 writes of 16 KiB at once: a third).
pub const DIRECT_ALONE_MIN: u32 = 96 << 10;
/// Bytes of a socket's send and receive buffer each: bounded, so that connections cannot make the
/// kernel hold more than `2 * SOCKET_BUFFER` each. The kernel doubles what is asked for to cover
/// its bookkeeping.
pub const SOCKET_BUFFER: u32 = 2 << 20;

/// Data of replies (identify or inquiry data, logs, text) that a connection may have unsent before it
/// takes another command that is answered with some: 64 KiB, which is 16 structures of Identify, more
/// than any host asks for at once.
pub const REPLY_DATA_MAX: u32 = 64 << 10;
/// Memory of a batch that came back that is worth keeping for the next, in bytes.
pub const BATCH_HEAD_KEPT_MAX: usize = 64 << 10;

/// Connections of the whole process.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Connections from one address. A host with 128 queues to each of 8 subsystems fits.
pub const CONNECTIONS_PER_HOST_MAX: u32 = 12_288;
/// Shards of a process.
pub const SHARDS_MAX: usize = 64;

/// A send that makes no progress for so long closes its connection.
pub const SEND_PROGRESS: Duration = Duration::from_secs(30);
/// The same for a connection that is closed because the server stops.
pub const LAST_SEND_PROGRESS: Duration = Duration::from_secs(2);
/// A disk that has not answered for so long is slow, and shown as such.
pub const DISK_SLOW: Duration = Duration::from_secs(5);
/// A disk that has not answered for so long is stuck: its paths are failed.
pub const DISK_STUCK: Duration = Duration::from_secs(60);
/// A drain at SIGTERM takes at most so long.
pub const SHUTDOWN_DRAIN: Duration = Duration::from_secs(5);
/// Targets have so long to answer that we leave them.
pub const LEAVE: Duration = Duration::from_secs(1);

// How the bounds relate.
const _: () = {
    assert!(TRANSFER_MAX.is_multiple_of(PAGE_SIZE));
    // What a copy holds is granted like a transfer.
    assert!(COPY_PAGES <= PAGES_PER_TRANSFER && COPY_PART.is_multiple_of(PAGE_SIZE));
    // The reserve of immediate data has room for a copy whose ranges came with their command.
    assert!(COPY_PAGES <= POOL_PAGES_MIN / POOL_IMMEDIATE_RESERVE);
    // The smallest pool can grant one largest transfer beside the reserve of immediate data, twice
    // over.
    assert!(POOL_PAGES_MIN - POOL_PAGES_MIN / POOL_IMMEDIATE_RESERVE >= 2 * PAGES_PER_TRANSFER);
    // A turn's bytes let at least one largest transfer pass.
    assert!(TURN_BYTES >= TRANSFER_MAX);
    assert!(DIRECT_ALONE_MIN > DIRECT_RECEIVE_MIN);
    // What is not received directly fits a small buffer, with its headers.
    assert!(RECEIVE_BUFFER_SMALL > DIRECT_RECEIVE_MIN + 4096);
    assert!(CONNECTIONS_PER_HOST_MAX <= CONNECTIONS_MAX);
    // Who does not read keeps no server from stopping in order.
    assert!(LAST_SEND_PROGRESS.as_secs() < SHUTDOWN_DRAIN.as_secs());
    assert!(LEAVE.as_secs() < SHUTDOWN_DRAIN.as_secs());
    assert!(DISK_SLOW.as_secs() < DISK_STUCK.as_secs());
};
