//! The bounds of AoE, of this target and these initiators. What holds for every protocol stands in
//! [`block::limits`]. A number here is either derived in the comment above it or says where it comes
//! from. Sizes in bytes unless the name says otherwise.

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
/// Changes of an export's config string or reservation that may be under way; more are dropped.
pub const CHANGES_MAX: usize = 64;
/// Wildcard queries that are answered at the same time.
pub const SWEEPS_MAX: usize = 16;
/// Frames that are gathered while the driver does not take them; more are dropped.
pub const FRAMES_MAX: usize = 8192;
/// Batches that may be out at once.
pub const BATCHES_OUT_MAX: u32 = 8;

/// Partitions that tags tell apart: as many as there may be shards.
pub const TAG_PARTITIONS_MAX: u8 = 64;
/// The most commands outstanding that an initiator may have.
pub const WINDOW_MAX: u16 = 1024;
/// Paths that one initiator follows.
pub const PATHS_MAX: usize = 16;
/// Targets that a discovery gathers.
pub const DISCOVERED_MAX: usize = 1 << 16;

// How the bounds relate.
const _: () = {
    assert!(TAG_PARTITIONS_MAX as usize >= SHARDS_MAX);
    assert!(Header::SIZE + MaskArgument::SIZE + MASK_MAX * Directive::SIZE <= PAYLOAD);
    // A MAC address has six bytes.
    assert!(Header::SIZE + ReserveArgument::SIZE + RESERVE_MAX * 6 <= PAYLOAD);
    assert!(BUFFERS_MIN <= BUFFERS_DEFAULT && BUFFERS_DEFAULT <= BUFFERS_MAX);
};
