//! What a link has carried: written by its shard, read by anybody.
//!
//! Drops are counted by the kernel, in the socket, until they are asked for; asking takes them
//! away. So whoever asks, the shard that sees that frames were lost or the control thread that
//! wants figures, adds them up here.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, Weak};

use block::ShardId;
use contract::LinkId;

use super::{datagram, packet, xdp};
use crate::process::lock;
use crate::stats::{set, shared_counters};

/// A link on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    pub link: LinkId,
    /// Its name; of a link through IP, what goes where.
    pub interface: String,
    pub shard: ShardId,
    pub up: bool,
    /// How frames come: `packet ring`, `xdp` or `datagrams`; `-` while it is down.
    pub method: &'static str,
    pub counters: LinkCounters,
}

shared_counters! {
    /// What a link has carried on a shard so far. Bytes are those of whole frames, without check
    /// sequence.
    pub struct LinkCounters in LinkCells {
        /// Frames that the receive ring holds.
        ring_frames: Frames now,
        /// Frames that were shown to the machine.
        received: Frames,
        /// Bytes of frames that were shown to the machine.
        received_bytes: Bytes,
        /// Frames that came cut short.
        unreadable: Frames,
        /// Frames for other stations, or of a VLAN that nobody has here, which a filter of the kernel's did not keep out.
        for_others: Frames,
        /// Frames to be forwarded that were longer than the MTU: never cut by a sender that leaves
        /// it to hardware (there: ethtool -K IF tso off gso off), merged by the interface (here:
        /// ethtool -K IF rx-gro-hw off), or of a larger MTU there.
        over_mtu: Frames,
        /// Frames to be forwarded whose checksum their sender left to hardware that is not there
        /// (there: ethtool -K IF tx off).
        unsummed: Frames,
        /// Frames that the kernel dropped, because the receive ring was full.
        dropped: Frames,
        /// Frames that were handed to the kernel.
        sent: Frames,
        /// Bytes of frames that were handed to the kernel.
        sent_bytes: Bytes,
        /// Frames that were to be sent and could not: refused by the kernel, stuck for too long, or
        /// on a link that is down.
        send_failed: Frames,
        /// Times that frames waited for room in the socket's send buffer.
        send_waits: Events,
    }
}

/// The counters of a link on a shard. They outlive its sockets.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cells: LinkCells,
    source: Mutex<Source>,
}

/// Where the kernel's counts are.
#[derive(Debug, Default)]
pub(super) enum Source {
    /// It has no sockets.
    #[default]
    Down,
    Packet(Weak<OwnedFd>),
    /// It counts from its beginning, so much when it was last asked.
    Datagram {
        socket: Weak<OwnedFd>,
        seen: u64,
    },
    /// Of all sockets in all, so much when they were last asked.
    Xdp {
        sockets: Vec<Weak<OwnedFd>>,
        seen: u64,
    },
}

impl Counters {
    /// Begins to count on other sockets.
    pub(super) fn begin(&self, source: Source, ring_frames: u32) {
        set(&self.cells.ring_frames, ring_frames.into());
        *lock(&self.source) = source;
    }

    /// The sockets are about to be closed.
    pub(crate) fn end(&self) {
        self.take_drops();
        set(&self.cells.ring_frames, 0);
        *lock(&self.source) = Source::default();
    }

    /// Frames that the ring holds.
    pub(crate) fn ring_frames(&self) -> u32 {
        self.cells.look().ring_frames as u32
    }

    /// Adds up what the kernel has dropped since it was last asked.
    pub(crate) fn take_drops(&self) {
        let dropped = match &mut *lock(&self.source) {
            Source::Down => 0,
            Source::Packet(socket) => socket.upgrade().map_or(0, |one| packet::take_drops(&one)),
            Source::Datagram { socket, seen } => {
                let all = socket.upgrade().map_or(*seen, |socket| datagram::drops(&socket));
                all.saturating_sub(std::mem::replace(seen, all))
            }
            Source::Xdp { sockets, seen } => {
                let sockets = sockets.iter().filter_map(Weak::upgrade);
                let all: u64 = sockets.map(|socket| xdp::drops(&socket)).sum();
                all.saturating_sub(std::mem::replace(seen, all))
            }
        };
        self.cells.dropped.fetch_add(dropped, Relaxed);
    }

    /// A look at all of them; each is right by itself.
    pub(crate) fn look(&self, link: LinkId, interface: &str, shard: ShardId) -> LinkStats {
        self.take_drops();
        let (up, method) = match *lock(&self.source) {
            Source::Down => (false, "-"),
            Source::Packet(_) => (true, "packet ring"),
            Source::Datagram { .. } => (true, "datagrams"),
            Source::Xdp { .. } => (true, "xdp"),
        };
        let (interface, counters) = (interface.to_owned(), self.cells.look());
        LinkStats { link, interface, shard, up, method, counters }
    }
}
