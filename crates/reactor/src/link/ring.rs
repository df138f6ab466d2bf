//! The receive ring of a packet socket: TPACKET_V2 in memory shared with the kernel.
//!
//! The kernel copies a frame into the next slot and marks it ours; we look at it there and mark it
//! the kernel's again. When the next slot is still ours the kernel drops the frame. Version 3,
//! which packs frames into blocks, tells of a block only when it is full or its timer ends, a
//! millisecond later.
//!
//! ```text
//!   block (64 KiB, or more for one very large frame)                                  next block
//!   | header, address, gap | frame ... | header, address, gap | frame ... | rest unused | ...
//!   +------- slot: 66 + 14 + MTU + 8, rounded up to 64 ------+
//! ```
//!
//! Slots are not rounded up to powers of two: 9000 bytes would take 16 KiB and their headers the
//! same few lines of the cache. Memory: that of [`FRAMES_MIN`], which the kernel holds and does not
//! swap, for each link and shard: 448 KiB at MTU 1500, 2.3 MiB at 9000.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use contract::{EtherType, TagControl, VlanTag};
use libc::{sockaddr_ll, tpacket_req, tpacket2_hdr};
use rustix::mm::MapFlags;

use super::packet::set_option;
use crate::memory::lines::{self, prefetch, prefetch_all, prefetch_to_write};
use crate::memory::mapping::Mapping;

/// Frames of a ring at least: the windows of some hosts, and half a millisecond of frames at
/// 500,000 a second. The kernel goes round and round in it, so a ring that is larger than the
/// second-level cache has every frame come from further away: 1 KiB writes took a quarter longer
/// with 1,280. In a flood more of them help nothing.
const FRAMES_MIN: u32 = 256;
/// And so many bytes at most, for an MTU that no Ethernet has.
const BYTES_MAX: u32 = 4 << 20;
/// What the kernel takes in one piece, or, where memory is in pieces, maps as one.
const BLOCK: u32 = 64 << 10;
/// Where the kernel puts the Ethernet header: header (32), address (20) and 16 bytes, rounded up to
/// 16, less the 14 of the header.
const FRAME_AT: u32 = 66;
/// Room for a header with two tags.
const HEADER: u32 = 14 + 8;
const LINE: u32 = lines::LINE as u32;
/// Frames are fetched so many ahead of the one that is shown: enough for that to be over.
pub(super) const AHEAD: u32 = 4;
/// Which of those behind a frame it is that is told with it: one whose begin was fetched a while ago, and that is not
/// shown before what it needs can have come.
pub(super) const SOON: u32 = 2;
/// Lines of a frame that are fetched ahead of their use: of one that is read, and of one that is lent to be
/// sent on, of which headers are.
const LINES_AHEAD: u32 = 16;
const LINES_OF_HEADERS: u32 = 2;

/// How a ring is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    slot: u32,
    block: u32,
    blocks: u32,
}

impl Geometry {
    /// A ring for frames of this MTU.
    pub(super) fn for_mtu(mtu: u32) -> Geometry {
        let slot = (FRAME_AT + HEADER + mtu).next_multiple_of(LINE);
        let block = BLOCK.max(slot.next_power_of_two());
        // An MTU beyond the ring (no Ethernet has one) gets two frames all the same.
        let blocks = FRAMES_MIN.div_ceil(block / slot).min(BYTES_MAX / block).max(2);
        Geometry { slot, block, blocks }
    }

    /// A ring of a relay, which sleeps between frames and copies each once more: 8 MiB, so that it may
    /// be late by some milliseconds.
    pub(super) fn for_relay(mtu: u32) -> Geometry {
        const BYTES: u32 = 8 << 20;
        let Geometry { slot, block, .. } = Geometry::for_mtu(mtu);
        Geometry { slot, block, blocks: BYTES / block }
    }

    /// Frames that it holds.
    pub(super) fn frames(&self) -> u32 {
        self.block / self.slot * self.blocks
    }

    pub(super) fn bytes(&self) -> usize {
        self.block as usize * self.blocks as usize
    }
}

/// A frame in its slot.
pub(crate) struct Slot<'a> {
    /// The outermost tag, which the kernel has taken off.
    pub(crate) tag: Option<VlanTag>,
    pub(crate) bytes: &'a [u8],
    /// Bytes that it had on the wire.
    pub(super) length: u32,
    /// Its checksum was left to the sender's hardware: it never was on a wire, or it was merged
    /// here.
    pub(super) is_unsummed: bool,
    /// It is for another station, or in a VLAN that nobody here has.
    pub(super) is_for_others: bool,
    /// The frame that is shown second after it, if frames are lent.
    pub(crate) soon: Option<&'a [u8]>,
    /// Where it stays, if it is lent.
    pub(crate) lies: Option<Lies>,
}

impl<'a> Slot<'a> {
    /// A frame of which nothing else is said, which had so many bytes.
    pub(super) fn plain(bytes: &'a [u8], length: u32) -> Slot<'a> {
        let [is_unsummed, is_for_others] = [false; 2];
        Slot { tag: None, bytes, length, is_unsummed, is_for_others, soon: None, lies: None }
    }
}

/// Where a frame that is lent lies, in memory that is its alone until it is given back.
#[derive(Clone, Copy)]
pub(crate) struct Lies {
    /// Its first byte; it may be written over from [`room`](Self::room) in front of it on, once nobody looks at it.
    pub(crate) at: *mut u8,
    pub(crate) length: usize,
    /// Bytes in front of it that nobody needs.
    pub(crate) room: usize,
}

/// Where a slot is.
#[derive(Clone, Copy)]
struct Place {
    /// Where it begins.
    at: u32,
    /// Slots of its block behind it.
    left: u32,
}

/// A mapped ring.
pub(super) struct Ring {
    memory: Mapping,
    geometry: Geometry,
    /// The next slot.
    place: Place,
    /// Whether frames stay where they are until [`give_back`](Self::give_back).
    lends: bool,
    /// Frames that the kernel says are for these, or for those behind them in its list, are for others.
    others: u32,
    /// The slots that were shown and are ours still: the first, and how many.
    kept: (Place, u32),
    /// The kernel has said that frames were lost.
    pub(super) is_losing: bool,
}

impl Ring {
    /// Gives a socket that is not bound yet a ring, which lends frames for longer than a call or not, and says of
    /// those for `others` (`PACKET_OTHERHOST` or another of its list) that they are that.
    pub(super) fn new(
        socket: &OwnedFd,
        geometry: Geometry,
        lends: bool,
        others: u32,
    ) -> io::Result<Ring> {
        let fd = socket.as_raw_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let wanted = tpacket_req {
            tp_block_size: geometry.block,
            tp_block_nr: geometry.blocks,
            tp_frame_size: geometry.slot,
            tp_frame_nr: geometry.frames(),
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &wanted)?;
        let memory = Mapping::shared(socket, geometry.bytes(), 0, MapFlags::empty())?;
        let place = Place { at: 0, left: geometry.block / geometry.slot - 1 };
        Ok(Ring { memory, geometry, place, lends, others, kept: (place, 0), is_losing: false })
    }

    pub(super) fn frames(&self) -> u32 {
        self.geometry.frames()
    }

    /// Whether a frame waits. No system call.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.status(self.place).load(Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows at most so many frames, and gives the slot of each back right after, unless it lends them.
    /// Returns how many.
    #[inline]
    pub(super) fn receive(&mut self, most: u32, mut show: impl FnMut(Slot<'_>)) -> u32 {
        self.receive_timed(most, |_, slot| show(slot))
    }

    /// The same, with when each frame came: nanoseconds since 1970, by the kernel's clock.
    #[inline]
    pub(super) fn receive_timed(&mut self, most: u32, mut show: impl FnMut(u64, Slot<'_>)) -> u32 {
        // What lies before the slot that is shown and is fetched already.
        let (mut ahead, mut fetched) = (self.place, 0);
        // Behind the last one that is free lies the first that is kept.
        let most = most.min(self.frames() - self.kept.1);
        for count in 0..most {
            while fetched < most.min(count + AHEAD) {
                let status = self.status(ahead).load(Acquire);
                if status & libc::TP_STATUS_USER == 0 {
                    break;
                }
                let bytes = self.slot(ahead, status).bytes;
                fetch_frame(bytes.as_ptr(), bytes.len() as u32, self.lends);
                (ahead, fetched) = (self.behind(ahead), fetched + 1);
                self.fetch(self.behind(ahead));
            }
            if fetched == count {
                return count;
            }
            let status = self.status(self.place).load(Acquire);
            self.is_losing |= status & libc::TP_STATUS_LOSING != 0;
            let mut slot = self.slot(self.place, status);
            if self.lends && fetched > count + SOON {
                let place = (0..SOON).fold(self.place, |place, _| self.behind(place));
                slot.soon = Some(self.slot(place, self.status(place).load(Acquire)).bytes);
            }
            show(self.came_ns(self.place), slot);
            if self.lends {
                self.kept.1 += 1;
            } else {
                self.status(self.place).store(libc::TP_STATUS_KERNEL, Release);
            }
            self.place = self.behind(self.place);
        }
        most
    }

    /// Gives the slots back whose frames were lent.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let (mut place, count) = self.kept;
        for _ in 0..count {
            self.status(place).store(libc::TP_STATUS_KERNEL, Release);
            place = self.behind(place);
        }
        self.kept = (self.place, 0);
    }

    /// The frame in a slot, which must be ours.
    #[inline]
    fn slot(&self, place: Place, status: u32) -> Slot<'_> {
        // SAFETY: the slot lies within the mapping and begins with this header, which the kernel
        // has written before the status that says that the slot is ours, and leaves alone until we
        // give it back.
        let header = unsafe { &*self.memory.base().add(place.at as usize).cast::<tpacket2_hdr>() };
        // SAFETY: as above; behind the header lies this, by the same line of cache.
        let address = unsafe { &*std::ptr::from_ref(header).add(1).cast::<sockaddr_ll>() };
        let begin = u32::from(header.tp_mac);
        let end = begin + header.tp_snaplen;
        assert!(end <= self.geometry.slot, "the kernel put bytes {begin}..{end} into a slot");
        // SAFETY: as above; the bytes lie within the slot, as was just checked, and nobody writes
        // to them while the slot is ours.
        let bytes = unsafe {
            let first = self.memory.base().add((place.at + begin) as usize);
            std::slice::from_raw_parts(first, header.tp_snaplen as usize)
        };
        let tag = tag(status, header.tp_vlan_tpid, header.tp_vlan_tci);
        let is_unsummed = status & libc::TP_STATUS_CSUMNOTREADY != 0;
        let lies = self.lends.then(|| Lies {
            at: self.memory.base().wrapping_add((place.at + begin) as usize),
            length: bytes.len(),
            room: (begin as usize).saturating_sub(size_of::<tpacket2_hdr>()),
        });
        let is_for_others = u32::from(address.sll_pkttype) >= self.others;
        Slot { tag, bytes, length: header.tp_len, is_unsummed, is_for_others, soon: None, lies }
    }

    /// When the frame in a slot came, which must be ours.
    #[inline]
    fn came_ns(&self, place: Place) -> u64 {
        // SAFETY: as in `slot`.
        let header = unsafe { &*self.memory.base().add(place.at as usize).cast::<tpacket2_hdr>() };
        u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec)
    }

    #[inline]
    fn status(&self, place: Place) -> &AtomicU32 {
        // SAFETY: a slot begins, aligned to 64 bytes, with its status, which kernel and process
        // only access as a whole word; it lives as long as the mapping.
        unsafe { AtomicU32::from_ptr(self.memory.base().add(place.at as usize).cast()) }
    }

    /// The slot behind this one.
    #[inline]
    fn behind(&self, Place { at, left }: Place) -> Place {
        let Geometry { slot, block, .. } = self.geometry;
        if left > 0 {
            return Place { at: at + slot, left: left - 1 };
        }
        let begin = (at / block + 1) * block;
        let at = if begin as usize == self.geometry.bytes() { 0 } else { begin };
        Place { at, left: block / slot - 1 }
    }

    /// Has the processor fetch a slot's header, to be given back, and the begin of its frame, which
    /// another one has just written.
    #[inline]
    fn fetch(&self, Place { at, .. }: Place) {
        let header = self.memory.base().wrapping_add(at as usize);
        prefetch_to_write(header);
        prefetch(header.wrapping_add(LINE as usize));
    }
}

/// The tag that the kernel tells of beside a frame.
#[inline]
fn tag(status: u32, kind: u16, control: u16) -> Option<VlanTag> {
    let tells = |what| status & what != 0;
    // Kernels before 3.14 do not say of which kind it is.
    let ether_type = match tells(libc::TP_STATUS_VLAN_TPID_VALID) {
        true => EtherType(kind),
        false => EtherType::VLAN,
    };
    let tag = VlanTag { ether_type, control: TagControl(control) };
    tells(libc::TP_STATUS_VLAN_VALID).then_some(tag)
}

/// Has the processor fetch a frame. Another one has just written it, so that each line comes from
/// its cache, one after the other; behind [`LINES_AHEAD`] of them the processor has seen that they
/// follow each other.
#[inline]
pub(super) fn fetch_frame(at: *const u8, length: u32, is_lent: bool) {
    let lines = if is_lent { LINES_OF_HEADERS } else { LINES_AHEAD };
    prefetch_all(at, length.min(lines * LINE) as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_what_the_kernel_says_of_it() {
        let (valid, kind) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        let of = |ether_type| Some(VlanTag { ether_type, control: TagControl(0xa005) });
        assert_eq!(tag(valid | kind, 0x88a8, 0xa005), of(EtherType::SERVICE_VLAN));
        assert_eq!(tag(valid | kind, 0x8100, 0xa005), of(EtherType::VLAN));
        assert_eq!(tag(valid, 0, 0xa005), of(EtherType::VLAN));
        assert_eq!(tag(libc::TP_STATUS_USER, 0x8100, 0xa005), None);
    }

    #[test]
    fn a_ring_holds_what_its_documentation_says_in_bounded_memory() {
        let [usual, jumbo] = [1500, 9000].map(Geometry::for_mtu);
        assert_eq!((usual.frames(), usual.bytes()), (280, 448 << 10));
        assert_eq!((jumbo.frames(), jumbo.bytes()), (259, 37 << 16));
        for mtu in [68, 576, 1500, 2034, 4000, 9000, 16110, 65_535] {
            let geometry = Geometry::for_mtu(mtu);
            assert!(geometry.bytes() as u32 <= BYTES_MAX, "MTU {mtu}");
            assert_eq!(geometry.block % 4096, 0);
            assert!(geometry.slot.is_multiple_of(LINE) && geometry.slot <= geometry.block);
            assert!(geometry.slot >= FRAME_AT + 14 + 4 + mtu);
            assert!(geometry.frames() >= 32);
            let relay = Geometry::for_relay(mtu);
            assert!(relay.bytes() == 8 << 20 && relay.slot == geometry.slot, "MTU {mtu}");
        }
    }
}
