//! The bounds of AoE, of this target and these initiators. What holds for every protocol stands in
//! [`block::limits`]. A number here is either derived in the comment above it or says where it
//! comes from. Sizes in bytes unless the name says otherwise.

use core::time::Duration;

use block::limits::SHARDS_MAX;
use wire::aoe::{Directive, Header, MaskArgument, ReserveArgument};

/// Data of a frame at the MTU that every Ethernet has.
const PAYLOAD: usize = 1500;

/// Addresses that a mask may have: their list fits into a frame of MTU 1500.
pub const MASK_MAX: usize = 128;
/// Addresses that a reserve list may have: it fits into a frame of MTU 1500.
pub const RESERVE_MAX: usize = 240;
/// The fewest commands that an export may hold: Linux divides the number by two, and stalls at 0.
pub const BUFFERS_MIN: u16 = 2;
/// The usual number of commands that an export holds: Linux uses no more.
pub const BUFFERS_DEFAULT: u16 = 64;
/// The most commands that an export may hold: each one that is in flight is looked at when another
/// comes.
pub const BUFFERS_MAX: u16 = 1024;
/// Numbers of exports are small, so that marks hold them.
pub const EXPORTS_MAX: u32 = 1 << 24;
/// Stations of an export that were refused and of which people were told, ...
pub const REFUSED_MAX: usize = 8;
/// ... and when they are told again.
pub const REFUSED_AGAIN: Duration = Duration::from_secs(60);
/// Changes of an export's config string or reservation that may be under way; more are dropped.
pub const CHANGES_MAX: usize = 64;
/// Wildcard queries that are answered at the same time.
pub const SWEEPS_MAX: usize = 16;
/// Answers to wildcard queries, and announcements, that go out at once, and the time between two
/// such bursts.
pub const SWEEP_BURST: u32 = 64;
pub const SWEEP_PACE: Duration = Duration::from_millis(1);
/// An announcement is not answered, so it is made again so long after it was made before, in case
/// it was lost.
pub const ANNOUNCED_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// A command that waited for so long is not carried out: its initiator has asked again, or given
/// up.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// Frames that are gathered while the driver does not take them; more are dropped.
pub const FRAMES_MAX: usize = 8192;
/// Batches that may be out at once.
pub const BATCHES_OUT_MAX: u32 = 8;
/// Bytes of a batch's head that are kept for the next one.
pub const BATCH_HEAD_KEPT_MAX: usize = 256 << 10;

/// Partitions that tags tell apart: as many as there may be shards.
pub const TAG_PARTITIONS_MAX: u8 = 64;
/// The most commands outstanding that an initiator may have.
pub const WINDOW_MAX: u16 = 1024;
/// Paths that one initiator follows.
pub const PATHS_MAX: usize = 16;
/// Targets that a discovery gathers.
pub const DISCOVERED_MAX: usize = 1 << 16;
/// How long a disk is looked for before it is given up: many queries.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// The first rest between two queries for a target that does not answer, and the longest.
pub const QUERY_REST_FIRST: Duration = Duration::from_millis(250);
pub const QUERY_REST_MAX: Duration = Duration::from_secs(16);
/// Between the first questions to a path who it is, and how many these are: a network that goes around
/// a failure does so within some 200 ms, and whoever asks then need not wait much longer. After them
/// the rest doubles, up to the longest.
pub const ASK_REST_FIRST: Duration = Duration::from_millis(50);
pub const ASKED_SOON_MAX: u32 = 8;
pub const ASK_REST_MAX: Duration = Duration::from_secs(2);
/// When a command counts as lost before anything is known of its path: what iPXE waits.
pub const RTO_FIRST: Duration = Duration::from_millis(250);
/// A busy target's scheduler may hold a read back for so long.
pub const RTO_READ_MIN: Duration = Duration::from_millis(30);
/// A disk may take so long for a write now and then, and a copy of a write costs a second in which
/// its sectors cannot be written again.
pub const RTO_WRITE_MIN: Duration = Duration::from_millis(120);
/// The first copies of a command that is lost follow each other no later than this, for the same
/// reason: one for each time-out up to where the path is asked ([`TIMEOUTS_SUSPECT`]).
pub const RTO_SOON_MAX: Duration = RTO_WRITE_MIN;
pub const RTO_MAX: Duration = Duration::from_secs(10);
/// Time-outs in a row after which a path is asked who it is.
pub const TIMEOUTS_SUSPECT: u32 = 4;
/// Between two that are told of stations which have a disk's address and are another disk.
pub const REFUSALS_REST: Duration = Duration::from_secs(1);
/// Commands on a path before anything is known of it.
pub const WINDOW_FIRST: u32 = 8;

// How the bounds relate.
const _: () = {
    assert!(TAG_PARTITIONS_MAX as usize >= SHARDS_MAX);
    assert!(Header::SIZE + MaskArgument::SIZE + MASK_MAX * Directive::SIZE <= PAYLOAD);
    // A MAC address has six bytes.
    assert!(Header::SIZE + ReserveArgument::SIZE + RESERVE_MAX * 6 <= PAYLOAD);
    assert!(BUFFERS_MIN <= BUFFERS_DEFAULT && BUFFERS_DEFAULT <= BUFFERS_MAX);
    assert!(WINDOW_FIRST <= WINDOW_MAX as u32);
    assert!(RTO_READ_MIN.as_millis() <= RTO_FIRST.as_millis());
    assert!(RTO_WRITE_MIN.as_millis() <= RTO_MAX.as_millis());
    assert!(ASK_REST_FIRST.as_millis() <= ASK_REST_MAX.as_millis());
    // Several queries before a disk is given up.
    assert!(CONNECT_DEADLINE.as_millis() > 8 * QUERY_REST_FIRST.as_millis());
};
