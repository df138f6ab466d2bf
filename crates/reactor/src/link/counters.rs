//! What a link has carried: written by its shard, read by anybody.
//!
//! Drops are counted by the kernel, in the socket, until they are asked for; asking takes them away. So whoever asks, the
//! shard that sees that frames were lost or the control thread that wants figures, adds them up here.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use block::ShardId;
use contract::LinkId;

use super::{packet, xdp};

/// What a link has carried on a shard so far. Bytes are those of whole frames, without check sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// The link.
    pub link: LinkId,
    /// Its interface.
    pub interface: String,
    /// The shard.
    pub shard: ShardId,
    /// Whether it is up.
    pub up: bool,
    /// How frames come: `packet ring` or `xdp`; `-` while it is down.
    pub method: &'static str,
    /// Frames that the receive ring holds.
    pub ring_frames: u32,
    /// Frames that were shown to the machine.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that came cut short, or with a tag that is not 802.1Q.
    pub unreadable: u64,
    /// Frames that the kernel dropped, because the receive ring was full.
    pub dropped: u64,
    /// Frames that were handed to the kernel.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that were to be sent and could not: refused by the kernel, stuck for too long, or on a link that is down.
    pub send_failed: u64,
    /// How often frames waited for room in the socket's send buffer.
    pub send_waits: u64,
}

/// The counters of a link on a shard. They outlive its sockets.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) received: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) unreadable: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) send_failed: AtomicU64,
    pub(crate) send_waits: AtomicU64,
    ring_frames: AtomicU32,
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
    Since(fn(RawFd) -> u64),
    /// In all.
    InAll(fn(RawFd) -> u64),
}

impl Counters {
    /// Begins to count on other sockets.
    pub(crate) fn begin(&self, source: Source, ring_frames: u32) {
        self.ring_frames.store(ring_frames, Relaxed);
        *self.source() = source;
    }

    /// The sockets are about to be closed.
    pub(crate) fn end(&self) {
        self.take_drops();
        self.ring_frames.store(0, Relaxed);
        *self.source() = Source::default();
    }

    /// Frames that the ring holds.
    pub(crate) fn ring_frames(&self) -> u32 {
        self.ring_frames.load(Relaxed)
    }

    /// Adds up what the kernel has dropped since it was last asked.
    pub(crate) fn take_drops(&self) {
        let mut source = self.source();
        let Some(drops) = source.drops else { return };
        let sockets = source.sockets.iter().filter_map(Weak::upgrade);
        let dropped = match drops {
            Drops::Since(ask) => sockets.map(|socket| ask(socket.as_raw_fd())).sum(),
            Drops::InAll(ask) => {
                let all: u64 = sockets.map(|socket| ask(socket.as_raw_fd())).sum();
                all.saturating_sub(std::mem::replace(&mut source.seen, all))
            }
        };
        self.dropped.fetch_add(dropped, Relaxed);
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
            ring_frames: self.ring_frames(),
            received: self.received.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            unreadable: self.unreadable.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            sent: self.sent.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            send_failed: self.send_failed.load(Relaxed),
            send_waits: self.send_waits.load(Relaxed),
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
