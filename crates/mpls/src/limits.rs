//! The bounds of a router. What holds for every protocol stands in [`block::limits`]. A number here
//! is either derived in the comment above it or says where it comes from. Sizes in bytes unless the
//! name says otherwise.

use core::time::Duration;

use wire::clamp::HEAD_MAX;
use wire::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use wire::gre;
use wire::l2tp::DataHeader;
use wire::mpls::LabelStackEntry;
use wire::pseudowire::ControlWord;

/// Labels that an NHLFE puts on a packet: a tunnel, one that carries it around a failed link or
/// router, and explicit null or another such one. With them an NHLFE is as large as a line of cache.
pub const LABELS_MAX: usize = 3;
/// Headers in front of a frame that leaves: Ethernet with a tag, the labels, that of a pseudowire
/// and its control word; and the frame's addresses with a tag of its own, where that is put back, or
/// all up to the byte that is lowered.
pub const FRONT_MAX: usize = HEADER_SIZE
    + VLAN_TAG_SIZE
    + (LABELS_MAX + 1) * LabelStackEntry::SIZE
    + ControlWord::SIZE
    + HEAD_MAX;
/// Of a frame: destination and source.
pub const ADDRESSES: usize = 12;
/// Frames that wait at most until a port has sent them; the next are dropped. As many as Linux lets
/// wait before an interface: 12 ms of the largest ordinary frames at 1 Gbit/s.
pub const QUEUE_MAX: u32 = 1000;
/// Emptied batches that are kept for the next frames.
pub const SPARE_BATCHES_MAX: usize = 16;
/// Entries of a packet that are looked at, of which all but the last are popped. Four times what a
/// router of ours puts on one.
pub const DEPTH_MAX: usize = 16;
/// What a label is sent with: what it carries does not count hops, so the tunnel shows none of its
/// own ("pipe", RFC 3443), and a loop ends.
pub const TTL_FIRST: u8 = 255;
/// The traffic class of messages about a path: that of the network's own control (IEEE 802.1Q's 6 is
/// internetwork control), so that queues of the core let them go before data.
pub const CHANNEL_CLASS: u8 = 6;
/// Ways by which a pseudowire's packets may come: its own, those around each link and router that
/// may fail, with as many tunnels each.
pub const ORIGINS_MAX: usize = 8;
/// How long a withdrawn label is nobody's: longer than a packet lives in the core, and than a
/// neighbour takes to load the labels that follow.
pub const QUARANTINE_DEFAULT: Duration = Duration::from_secs(60);
/// Late frames in a row, each the next of the one before, after which a receiver believes that its
/// sender began anew, if they came for as long as this. A network that repeats frames repeats fewer in
/// a row. One that kept frames while others went around, as a router that stood still, has more of
/// them, but sends them at once, and none that are older than a second are expected of it.
pub const RESYNC_FRAMES: u32 = 64;
pub const RESYNC_TIME: Duration = Duration::from_secs(1);
/// The same of a sender of little, who would not send that many for long: fewer, in a longer time in
/// which nothing else comes. Who kept frames sends them at once, so that a row of eight does not last.
pub const RESYNC_FRAMES_FEW: u32 = 8;
pub const RESYNC_TIME_FEW: Duration = Duration::from_secs(3);
/// The same of one whose other end is heard for the first time: it may have been there for long, or
/// not.
pub const RESYNC_FRAMES_DOUBTED: u32 = 4;

/// Frames that wait at most for others that were sent before them, and for how long: longer than two
/// paths of a network differ, shorter than any sender waits before it sends again.
pub const EARLY_MAX: usize = 64;
pub const EARLY_WAIT: Duration = Duration::from_millis(1);

/// For how long a next hop has to be up again before packets that have a backup go there, where nobody
/// says so.
pub const REVERT_DEFAULT: Duration = Duration::from_secs(5);

/// Numbers of ports, NHLFEs, pseudowires and tunnels are small, since each is a place in a list: no
/// more interfaces than a machine has, and no more of the others than there are labels.
pub const PORTS_MAX: u32 = 1 << 16;
pub const NHLFES_MAX: u32 = 1 << 20;
pub const PSEUDOWIRES_MAX: u32 = 1 << 20;
pub const TUNNELS_MAX: u32 = PSEUDOWIRES_MAX;
/// Each has a port for BFD.
pub const NEIGHBOURS_MAX: u32 = PORTS_MAX;

// How the bounds relate.
const _: () = {
    // What goes in front of a frame in a tunnel through IP.
    assert!(DataHeader::SIZE_MAX + ADDRESSES + VLAN_TAG_SIZE <= FRONT_MAX);
    assert!(ADDRESSES + VLAN_TAG_SIZE <= HEAD_MAX);
    assert!(gre::Header::SIZE_MAX <= DataHeader::SIZE_MAX);
    // The labels of one router do not make a stack that the next one refuses.
    assert!(LABELS_MAX < DEPTH_MAX);
    // A receiver follows a sender that began anew long before the window comes around.
    assert!(RESYNC_FRAMES < 1 << 15);
    // What came early has left before then.
    assert!(EARLY_WAIT.as_nanos() < RESYNC_TIME.as_nanos());
};
