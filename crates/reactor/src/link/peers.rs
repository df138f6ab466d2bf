//! The supervisor of links through IP: finds the path to each peer, and gives shards their sockets.
//!
//! A path is looked at anew when the system tells that a route, an address or an interface is
//! another one, and when something that was sent did not fit:
//!
//! ```text
//!              path: open, Take           another address of ours: Give, open, Take
//!     down  ----------------------->  up  ------------------------------------------> up
//!           <-----------------------      other MTU: Tell, or anew if more comes in a frame
//!              no path: Give
//! ```
//! Errors: of adding a link, to whoever adds it; later ones are written to the standard error, and
//! tried again.

use std::io;
use std::sync::Arc;

use contract::{LinkFacts, LinkId, Poll};

use super::AddedLink;
use super::counters::{Counters, LinkStats};
use super::datagram::{self, Path, PeerOptions};
use super::supervisor::{LinkCommand, LinkSupervisor};
use crate::process::lock;

/// A link through IP.
pub(super) struct Peer {
    id: LinkId,
    pub(super) options: PeerOptions,
    counters: Arc<Counters>,
    /// What the shard was told, while it is up.
    open: Option<Path>,
    /// It could not be opened although there is a path; has been written of.
    failed: bool,
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
        self.watch()?;
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
            None => facts(0, 0),
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

    /// Compares all paths with what the shards know. Returns whether one is to be tried again.
    pub(super) fn look_at_peers(&self) -> bool {
        let mut peers = lock(&self.peers);
        for peer in peers.iter_mut() {
            // What cannot be looked at is no path.
            let path = datagram::find(&peer.options).ok().flatten();
            self.compare_peer(peer, path);
        }
        peers.iter().any(|peer| peer.failed)
    }

    fn compare_peer(&self, peer: &mut Peer, path: Option<Path>) {
        let Some(path) = path else {
            self.close_peer(peer, true);
            peer.failed = false;
            return;
        };
        let was_open = peer.open;
        match was_open {
            Some(open) if open == path => return,
            Some(open) if open.takes_no_less_than(&path) => {
                let facts = facts(path.mtu, peer.counters.ring_frames());
                let shard = &self.shards[peer.options.shard.index()];
                shard.command(LinkCommand::Tell(peer.id, facts));
                peer.open = Some(path);
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
        (peer.open, peer.failed) = (Some(path), false);
        Ok(facts)
    }

    fn close_peer(&self, peer: &mut Peer, down: bool) {
        if peer.open.take().is_some() {
            self.take_back(peer.id, [peer.options.shard], down);
        }
    }
}

/// What a machine is told: there is no Ethernet, so no address.
fn facts(mtu: u32, ring_frames: u32) -> LinkFacts {
    LinkFacts { mac: [0; 6], mtu, vlan: None, ring_frames, is_shared: false }
}
