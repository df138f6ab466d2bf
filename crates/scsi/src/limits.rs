//! The bounds of SCSI that hold for every transport. What holds for every protocol stands in
//! [`block::limits`]. A number here is either derived in the comment above it or says where it comes
//! from. Sizes in bytes, unless the name says otherwise.

use block::limits::{COPY_MAX, COPY_PAGES, DISCARD_RANGES_MAX, TRANSFER_MAX};
use reservation::PathGroup;
use reservation::change::REGISTRANTS_MAX;
use wire::scsi::Lun;
use wire::scsi::copy::{CopyList, CopyPlace};
use wire::scsi::provisioning::UnmapList;

/// The largest logical unit number: what a LUN of one level can say.
pub const LUN_MAX: u16 = Lun::NUMBER_MAX;
/// The most that COMPARE AND WRITE may concern: what its atomicity is promised for, as over NVMe.
/// At least one block of every block size, which is what clustered file systems ask for.
pub const COMPARE_AND_WRITE_MAX: u32 = 4096;
/// The most that WRITE SAME may write: as much as a transfer, which some initiators take for granted
/// (libiscsi's tests write as much at once before they unmap it), and ESXi's own unit.
pub const WRITE_SAME_MAX: u32 = TRANSFER_MAX;
/// Bytes of the longest UNMAP list.
pub const UNMAP_LIST_MAX: u32 =
    (UnmapList::HEADER + DISCARD_RANGES_MAX * UnmapList::DESCRIPTOR) as u32;
/// Bytes of the longest list that MODE SELECT takes: a header, a long block descriptor and all
/// pages fit several times over.
pub const MODE_LIST_MAX: u32 = 512;
/// Bytes of the longest list that PERSISTENT RESERVE OUT takes: as many TransportIDs as a volume may
/// have registrants, each of the longest name with its ISID.
pub const RESERVE_LIST_MAX: u32 = 64 << 10;
/// Bytes of the longest list that SET TARGET PORT GROUPS takes: each group once.
pub const GROUP_LIST_MAX: u32 = 4 + 4 * PathGroup::MAX as u32;
/// Seeks of one GET LBA STATUS: so many that a host learns of a gigabyte at once, so few that it waits
/// for no more than as many reads.
pub const SEEKS_MAX: u32 = 64;
/// CSCD descriptors of one copy, and segments: far more than hosts send, which have two and one.
pub const COPY_PLACES_MAX: usize = 64;
/// As many segments.
pub const COPY_SEGMENTS_MAX: usize = 64;
/// Bytes of the longest list that EXTENDED COPY takes: as many of both, without inline data.
pub const COPY_LIST_MAX: u32 =
    (CopyList::HEADER + COPY_PLACES_MAX * CopyPlace::SIZE + COPY_SEGMENTS_MAX * 28) as u32;
/// Bytes of the longest segment of a copy.
pub const COPY_SEGMENT_MAX: u64 = COPY_MAX;
/// Copies of one session whose states are kept for its host, the newest of them.
pub const COPIES_KEPT: usize = 16;
/// Copies that a host may ask for at once: memory is what bounds them, and those that find none wait.
pub const COPIES_MAX: usize = 128;
/// The same of all hosts: there is no number.
pub const COPIES_TOTAL: u16 = u16::MAX;
/// Unit attentions that may wait for one logical unit: one of each kind that we raise, with room.
pub const ATTENTIONS_PER_UNIT: usize = 8;
/// Unit attentions of one nexus.
pub const ATTENTIONS_MAX: usize = 4096;

// How the bounds relate.
const _: () = {
    assert!(COMPARE_AND_WRITE_MAX <= TRANSFER_MAX);
    // NUMBER OF LOGICAL BLOCKS of COMPARE AND WRITE has 8 bits.
    assert!(COMPARE_AND_WRITE_MAX / 512 <= 255);
    assert!(WRITE_SAME_MAX >= TRANSFER_MAX);
    assert!(UNMAP_LIST_MAX <= u16::MAX as u32);
    // The list of a copy is received into the memory that the copy then works with.
    assert!(COPY_LIST_MAX <= COPY_PAGES * block::PAGE_SIZE);
    // 223 bytes of name, `,i,0x` and 12 digits, a NUL, in words of 4 behind a header of 4.
    assert!(RESERVE_LIST_MAX as usize >= 28 + REGISTRANTS_MAX * (4 + 244));
};
