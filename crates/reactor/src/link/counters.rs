//! What a link has carried: written by its shard, read by anybody.
//!
//! Drops are counted by the kernel, in the socket, until they are asked for; asking takes them
//! away. So whoever asks, the shard that sees that frames were lost or the control thread that
//! wants figures, adds them up here.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use block::ShardId;
use contract::LinkId;

use super::{packet, xdp};
use crate::stats::{set, shared_counters};

/// A link on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    pub link: LinkId,
    pub interface: String,
    pub shard: ShardId,
    pub up: bool,
    /// How frames come: `packet ring` or `xdp`; `-` while it is down.
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
        /// Frames that came cut short, or with a tag that is not 802.1Q.
        unreadable: Frames,
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
pub(crate) struct Source {
    pub(crate) method: Option<&'static str>,
    pub(crate) sockets: Vec<Weak<OwnedFd>>,
    /// What the kernel counted on a socket: since it was last asked, or in all.
    pub(crate) drops: Option<Drops>,
    /// What it had counted in all when it was last asked.
    pub(crate) seen: u64,
}

/// How the kernel tells what it dropped on a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drops {
    /// Since it was last asked.
    Since(fn(&OwnedFd) -> u64),
    /// In all.
    InAll(fn(&OwnedFd) -> u64),
}

impl Counters {
    /// Begins to count on other sockets.
    pub(crate) fn begin(&self, source: Source, ring_frames: u32) {
        set(&self.cells.ring_frames, ring_frames.into());
        *self.source() = source;
    }

    /// The sockets are about to be closed.
    pub(crate) fn end(&self) {
        self.take_drops();
        set(&self.cells.ring_frames, 0);
        *self.source() = Source::default();
    }

    /// Frames that the ring holds.
    pub(crate) fn ring_frames(&self) -> u32 {
        self.cells.look().ring_frames as u32
    }

    /// Adds up what the kernel has dropped since it was last asked.
    pub(crate) fn take_drops(&self) {
        let mut source = self.source();
        let Some(drops) = source.drops else { return };
        let sockets = source.sockets.iter().filter_map(Weak::upgrade);
        let dropped = match drops {
            Drops::Since(ask) => sockets.map(|socket| ask(&socket)).sum(),
            Drops::InAll(ask) => {
                let all: u64 = sockets.map(|socket| ask(&socket)).sum();
                all.saturating_sub(std::mem::replace(&mut source.seen, all))
            }
        };
        self.cells.dropped.fetch_add(dropped, Relaxed);
    }

    /// A look at all of them; each is right by itself.
    pub(crate) fn look(&self, link: LinkId, interface: &str, shard: ShardId) -> LinkStats {
        self.take_drops();
        let method = self.source().method;
        LinkStats {
            link,
            interface: interface.to_owned(),
            shard,
            up: method.is_some(),
            method: method.unwrap_or("-"),
            counters: self.cells.look(),
        }
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// A packet socket.
    pub(crate) fn packet(socket: Weak<OwnedFd>) -> Source {
        let drops = Some(Drops::Since(packet::take_drops));
        Source { method: Some("packet ring"), sockets: vec![socket], drops, seen: 0 }
    }

    /// AF_XDP sockets.
    pub(crate) fn xdp(sockets: Vec<Weak<OwnedFd>>) -> Source {
        Source { method: Some("xdp"), sockets, drops: Some(Drops::InAll(xdp::drops)), seen: 0 }
    }
}
