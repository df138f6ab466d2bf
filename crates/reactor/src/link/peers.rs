//! The supervisor of links through IP: finds the path to each peer, and gives shards their sockets.
//!
//! A path is looked at anew when the system tells that a route, an address or an interface is
//! another one, and when something that was sent did not fit. What routers said of a path, the kernel
//! forgets after a while and tells nobody: so all are looked at as often as it does.
//!
//! ```text
//!              path: open, Take           another address of ours: Give, open, Take
//!     down  ----------------------->  up  ------------------------------------------> up
//!           <-----------------------      other MTU: Tell, or anew if more than when it was opened
//!              no path: Give
//! ```
//! Errors: of adding a link, to whoever adds it; later ones are written to the standard error, and
//! tried again.

use std::io;
use std::sync::Arc;

use contract::{LinkFacts, LinkId, Poll};
use rustix::event::Timespec;

use super::AddedLink;
use super::counters::{Counters, LinkStats};
use super::datagram::{self, Path, PeerOptions};
use super::supervisor::{LinkCommand, LinkSupervisor, RETRY};
use crate::process::lock;

/// For how many seconds the kernel remembers what a router said of a path.
const REMEMBERS: [&str; 2] =
    ["/proc/sys/net/ipv4/route/mtu_expires", "/proc/sys/net/ipv6/route/mtu_expires"];
/// The same, if nobody changed it (RFC 1191, 6.3).
const TEN_MINUTES: u64 = 600;

/// A link through IP.
pub(super) struct Peer {
    id: LinkId,
    pub(super) options: PeerOptions,
    counters: Arc<Counters>,
    /// While it is up.
    open: Option<Open>,
    /// It could not be opened although there is a path; has been written of.
    failed: bool,
}

#[derive(Clone, Copy)]
struct Open {
    /// On which the sockets were opened.
    first: Path,
    /// What the shard was told.
    told: Path,
}

impl LinkSupervisor {
    /// Begins to keep a link; see [`Handle::add_peer`](crate::Handle::add_peer).
    pub(crate) fn add_peer(
        self: &Arc<Self>,
        id: LinkId,
        options: &PeerOptions,
    ) -> io::Result<AddedLink> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", options.name()));
        self.try_add_peer(id, options).map_err(named)
    }

    fn try_add_peer(self: &Arc<Self>, id: LinkId, options: &PeerOptions) -> io::Result<AddedLink> {
        options.check(self.shards.len())?;
        self.refuse_number(id)?;
        // Before the first look, so that no change falls between.
        self.watch_paths()?;
        let mut peers = lock(&self.peers);
        let mut peer = Peer {
            id,
            options: options.clone(),
            counters: Arc::default(),
            open: None,
            failed: false,
        };
        let path = datagram::find(options)?;
        let facts = match path {
            Some(path) => self.open_peer(&mut peer, path)?,
            // It is opened when there is one; whether that is permitted is told now.
            None => datagram::probe(options).map(|()| facts(0, 0))?,
        };
        peers.push(peer);
        Ok(AddedLink { facts, switched_off: Vec::new() })
    }

    /// Forgets a link, if it is one of these.
    pub(super) fn remove_peer(&self, id: LinkId) {
        let mut peers = lock(&self.peers);
        let Some(at) = peers.iter().position(|peer| peer.id == id) else { return };
        let mut peer = peers.remove(at);
        self.close_peer(&mut peer, true);
        self.shards[peer.options.shard.index()].command(LinkCommand::Forget(id));
    }

    /// Has a shard look for a link's frames in another way.
    pub(super) fn poll_peer(&self, id: LinkId, poll: Poll) {
        if let Some(peer) = lock(&self.peers).iter_mut().find(|peer| peer.id == id) {
            peer.options.poll = poll;
            let shard = &self.shards[peer.options.shard.index()];
            shard.command(LinkCommand::Poll(id, poll));
        }
    }

    pub(super) fn peer_stats(&self) -> Vec<LinkStats> {
        let look =
            |peer: &Peer| peer.counters.look(peer.id, &peer.options.name(), peer.options.shard);
        lock(&self.peers).iter().map(look).collect()
    }

    pub(super) fn has_peer(&self, id: LinkId) -> bool {
        lock(&self.peers).iter().any(|peer| peer.id == id)
    }

    /// Compares all paths with what the shards know. Returns after how long they are to be looked at
    /// again, if ever.
    pub(super) fn look_at_peers(&self) -> Option<Timespec> {
        let mut peers = lock(&self.peers);
        for peer in peers.iter_mut() {
            // What cannot be looked at is no path.
            let path = datagram::find(&peer.options).ok().flatten();
            self.compare_peer(peer, path);
        }
        let has_failed = peers.iter().any(|peer| peer.failed);
        if has_failed { Some(RETRY) } else { (!peers.is_empty()).then(until_forgotten) }
    }

    fn compare_peer(&self, peer: &mut Peer, path: Option<Path>) {
        let Some(path) = path else {
            self.close_peer(peer, true);
            peer.failed = false;
            return;
        };
        let was_open = peer.open;
        match was_open {
            Some(open) if open.told == path => return,
            Some(open) if open.first.serves(&path) => {
                let facts = facts(path.mtu, peer.counters.ring_frames());
                let shard = &self.shards[peer.options.shard.index()];
                shard.command(LinkCommand::Tell(peer.id, facts));
                peer.open = Some(Open { told: path, ..open });
                return;
            }
            Some(_) => self.close_peer(peer, false),
            None => {}
        }
        if let Err(error) = self.open_peer(peer, path) {
            if was_open.is_some() {
                self.shards[peer.options.shard.index()].command(LinkCommand::Lose(peer.id));
            }
            if !peer.failed {
                eprintln!("{}: {error}", peer.options.name());
            }
            peer.failed = true;
        }
    }

    fn open_peer(&self, peer: &mut Peer, path: Path) -> io::Result<LinkFacts> {
        let counters = peer.counters.clone();
        let socket = datagram::open(peer.id, &peer.options, &path, counters, &self.again)?;
        let facts = facts(path.mtu, socket.counters.ring_frames());
        let shard = &self.shards[peer.options.shard.index()];
        shard.command(LinkCommand::Take(socket, facts, peer.options.poll));
        (peer.open, peer.failed) = (Some(Open { first: path, told: path }), false);
        Ok(facts)
    }

    fn close_peer(&self, peer: &mut Peer, down: bool) {
        if peer.open.take().is_some() {
            self.take_back(peer.id, [peer.options.shard], down);
        }
    }
}

/// After how long what the kernel has learnt of a path now may be forgotten.
fn until_forgotten() -> Timespec {
    let seconds = REMEMBERS.iter().filter_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse().ok()
    });
    Timespec {
        tv_sec: seconds.min().unwrap_or(TEN_MINUTES).clamp(1, TEN_MINUTES) as i64,
        tv_nsec: 0,
    }
}

/// What a machine is told: there is no Ethernet, so no address.
fn facts(mtu: u32, ring_frames: u32) -> LinkFacts {
    LinkFacts { mac: [0; 6], mtu, vlan: None, ring_frames, is_shared: false }
}
