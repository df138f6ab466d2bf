//! The supervisor of links: knows the links, watches their interfaces, and gives shards their
//! sockets. Those through IP, which stand on no interface, are [`super::peers`]'.
//!
//! One for a reactor. In: links that are added and removed (the control thread), and the system's
//! word that some interface has changed (netlink, on a thread that sleeps otherwise). Out: commands
//! to the shards. Whatever has changed, interfaces are looked at anew and compared with what the
//! shards were told, so that a message that was lost or came twice does no harm:
//!
//! ```text
//!              up: open, Take                 other address, MTU of another ring: Give, open, Take
//!     down  --------------------------->  up  ---------------------------------------------------> up
//!           <---------------------------      other MTU: Tell
//!              down or deleted: Give
//! ```
//!
//! A socket is with one owner at a time: the supervisor opens it, `Take` moves it to the shard,
//! `Give` asks for it back, and it is closed here. Where frames are forwarded, nobody else is to do so
//! ([`Claim`]), and what the interface has to do without ([`Quiet`]) is switched off: when a link is
//! added, so that one that comes up later comes up so, and again whenever it is opened. Both end with
//! the link, and when its name becomes another interface's or nobody's. Errors: of adding a link, to
//! whoever adds it; later ones are written to the standard error, and tried again.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::ShardId;
use contract::{EtherType, LinkFacts, LinkId, Poll, Spread, Takes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::claim::Claim;
use super::counters::{Counters, LinkStats};
use super::interface::{self, Interface};
use super::packet::set_option;
use super::peers::Peer;
use super::quiet::Quiet;
use super::socket::LinkSocket;
use super::xdp::Umems;
use super::{AddedLink, LinkAccess, LinkOptions, packet, xdp};
use crate::mailbox::{event_descriptor, ring};
use crate::process::{AbortOnPanic, lock};

/// A link whose interface is up and that could not be opened is tried again after so long.
pub(super) const RETRY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Between two looks, however many changes the system tells of: a host that learns a whole table of
/// routes does not keep a processor busy with it.
const PAUSE: Duration = Duration::from_millis(10);

/// What a shard is to do with a link.
pub(crate) enum LinkCommand {
    /// Use this socket; the machine is told that the link is up.
    Take(Box<LinkSocket>, LinkFacts, Poll),
    /// Give the socket back, once nothing looks at it any more; without one, just answer.
    Give {
        link: LinkId,
        /// The machine is told that the link is down; else another one comes at once.
        down: bool,
        told: Sender<Option<Box<LinkSocket>>>,
    },
    /// Frames are looked for so from now on.
    Poll(LinkId, Poll),
    /// Tell the machine what is known now.
    Tell(LinkId, LinkFacts),
    /// The link was removed.
    Forget(LinkId),
    /// Tell the machine that the link is down: the socket that was given back has no successor.
    Lose(LinkId),
}

/// A shard's mailbox, for commands.
pub(crate) trait LinkMailbox: Send + Sync {
    fn command(&self, command: LinkCommand);
}

/// The links of a reactor.
pub(crate) struct LinkSupervisor {
    pub(super) shards: Vec<Arc<dyn LinkMailbox>>,
    links: Mutex<Vec<Supervised>>,
    /// Memories of links over AF_XDP that send frames on.
    umems: Umems,
    pub(super) peers: Mutex<Vec<Peer>>,
    /// Rung when something is to be looked at of which the system tells nothing.
    pub(super) again: Arc<OwnedFd>,
    watcher: Mutex<Option<Watcher>>,
}

struct Supervised {
    id: LinkId,
    options: LinkOptions,
    counters: Vec<(ShardId, Arc<Counters>)>,
    /// What the shards were told, while it is up.
    open: Option<Interface>,
    /// That nobody else forwards the frames of its interface.
    claim: Option<Claim>,
    /// What its interface does without meanwhile.
    quiet: Quiet,
    /// It could not be opened although its interface is up; has been written of.
    failed: bool,
}

impl Supervised {
    /// Makes an interface ready for it.
    fn prepare(&mut self, interface: &Interface) -> io::Result<()> {
        self.follow(Some(interface));
        if self.options.forwards && self.claim.is_none() {
            self.claim = Some(Claim::new(&self.options, interface.index)?);
        }
        self.quiet.begin(&self.options, interface)
    }

    /// Its name is this interface's now, or nobody's: leaves another one that was made ready.
    fn follow(&mut self, found: Option<&Interface>) {
        let index = found.map(|found| found.index);
        if self.claim.as_ref().is_some_and(|claim| Some(claim.index) != index) {
            self.leave();
        }
    }

    /// Leaves its interface as it was. The claim goes last: whoever has it next is to find what was
    /// on.
    fn leave(&mut self) {
        self.quiet.end();
        self.claim = None;
    }
}

struct Watcher {
    thread: JoinHandle<()>,
    /// By which the system tells of changes, and whether of those of paths.
    changes: Arc<OwnedFd>,
    hears_paths: bool,
    stop: Arc<OwnedFd>,
}

impl LinkSupervisor {
    pub(crate) fn new(shards: Vec<Arc<dyn LinkMailbox>>) -> io::Result<Arc<LinkSupervisor>> {
        Ok(Arc::new(LinkSupervisor {
            shards,
            links: Mutex::default(),
            umems: Umems::default(),
            peers: Mutex::default(),
            again: Arc::new(event_descriptor()?),
            watcher: Mutex::default(),
        }))
    }

    /// Begins to keep a link; see [`Handle::add_link`](crate::Handle::add_link).
    pub(crate) fn add(
        self: &Arc<Self>,
        id: LinkId,
        options: &LinkOptions,
    ) -> io::Result<AddedLink> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("interface {}: {error}", options.interface))
        };
        self.try_add(id, options).map_err(named)
    }

    fn try_add(self: &Arc<Self>, id: LinkId, options: &LinkOptions) -> io::Result<AddedLink> {
        let shards = self.check(options)?;
        self.refuse_number(id)?;
        let mut links = lock(&self.links);
        // Before the first look, so that no change falls between.
        self.watch()?;
        let found = interface::find(&options.interface)?;
        let found = found.ok_or_else(interface::missing)?;
        let counters = shards.into_iter().map(|shard| (shard, Arc::default())).collect();
        let mut kept = Supervised {
            id,
            options: options.clone(),
            counters,
            open: None,
            claim: None,
            quiet: Quiet::default(),
            failed: false,
        };
        let ring_frames = self.begin(&mut kept, found);
        let ring_frames = ring_frames.inspect_err(|_| kept.leave())?;
        let facts = facts(options, &found, ring_frames);
        let switched_off = kept.quiet.off().to_vec();
        links.push(kept);
        Ok(AddedLink { facts, switched_off })
    }

    /// Refuses a number that a link has. Links are added and removed by one thread.
    pub(super) fn refuse_number(&self, id: LinkId) -> io::Result<()> {
        if lock(&self.links).iter().any(|kept| kept.id == id) || self.has_peer(id) {
            let text = "there is a link of this number already; remove that one first";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }

    /// Opens a link that is new, if its interface is up. Returns how many frames its rings hold.
    fn begin(&self, kept: &mut Supervised, found: Interface) -> io::Result<u32> {
        if found.up {
            return self.open(kept, found);
        }
        // It is opened when it comes up; whether that is permitted is told now.
        packet::probe()?;
        kept.prepare(&found)?;
        Ok(0)
    }

    /// Forgets a link; its sockets are closed then.
    pub(crate) fn remove(&self, id: LinkId) {
        self.remove_peer(id);
        let mut links = lock(&self.links);
        let Some(at) = links.iter().position(|kept| kept.id == id) else { return };
        let mut kept = links.remove(at);
        self.close(&mut kept, true);
        self.tell_all(&kept, || LinkCommand::Forget(id));
        for other in links.iter_mut() {
            kept.quiet.leave_to(&mut other.quiet, &other.options);
        }
        kept.leave();
    }

    /// Has shards look for a link's frames in another way, now and when its sockets are others.
    pub(crate) fn poll(&self, id: LinkId, poll: Poll) {
        let mut links = lock(&self.links);
        if let Some(kept) = links.iter_mut().find(|kept| kept.id == id) {
            kept.options.poll = poll;
            self.tell_all(kept, || LinkCommand::Poll(id, poll));
        }
        self.poll_peer(id, poll);
    }

    /// Tells all shards that a link concerns.
    fn tell_all(&self, kept: &Supervised, command: impl Fn() -> LinkCommand) {
        for (shard, _) in &kept.counters {
            self.shards[shard.index()].command(command());
        }
    }

    /// What the links have carried.
    pub(crate) fn stats(&self) -> Vec<LinkStats> {
        let look = |kept: &Supervised| -> Vec<LinkStats> {
            let (id, name) = (kept.id, &kept.options.interface);
            kept.counters.iter().map(|(shard, counters)| counters.look(id, name, *shard)).collect()
        };
        let links: Vec<LinkStats> = lock(&self.links).iter().flat_map(look).collect();
        links.into_iter().chain(self.peer_stats()).collect()
    }

    /// Ends the watch. Before the shards are stopped: they would not answer it.
    pub(crate) fn stop(&self) {
        if let Some(watcher) = lock(&self.watcher).take() {
            ring(&watcher.stop);
            // A panic has ended the process already.
            let _ = watcher.thread.join();
        }
    }

    /// Leaves interfaces as they were. After the shards have stopped, which are the last to have
    /// sockets.
    pub(crate) fn leave_interfaces(&self) {
        lock(&self.links).iter_mut().for_each(Supervised::leave);
    }

    /// Refuses what no interface could make right; returns the shards that are concerned.
    fn check(&self, options: &LinkOptions) -> io::Result<Vec<ShardId>> {
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if let Some(vlan) = options.vlan
            && !(1..=4094).contains(&vlan)
        {
            return refuse(format!("VLAN {vlan}: expected 1 to 4094"));
        }
        match options.intake.takes {
            // Smaller numbers are lengths, or mean several types to the kernel.
            Takes::Type(EtherType(seen @ ..0x0600)) => {
                return refuse(format!("EtherType {seen:#06x}: expected 0x0600 or more"));
            }
            Takes::Type(_) => {}
            Takes::Whole => {
                if let Some(why) = no_circuit(options) {
                    return refuse(why);
                }
            }
        }
        let count = self.shards.len();
        let shards: Vec<ShardId> = match &options.intake.spread {
            Spread::One(shard, _) => vec![*shard],
            Spread::Steered(..) => (0..count as u16).map(ShardId).collect(),
            Spread::Each(programs) => (0..programs.len() as u16).map(ShardId).collect(),
        };
        if shards.is_empty() || shards.iter().any(|shard| shard.index() >= count) {
            return refuse(format!("it is for shards that are not there: expected up to {count}"));
        }
        if options.access == LinkAccess::Xdp && shards.len() > 1 {
            let text = "a link over AF_XDP is for one shard: its queues deal frames out, not a program; use packet sockets";
            return refuse(text.to_owned());
        }
        Ok(shards)
    }

    /// Opens a link's sockets and gives them to their shards. Returns how many frames the smallest
    /// ring holds.
    fn open(&self, kept: &mut Supervised, mut interface: Interface) -> io::Result<u32> {
        kept.prepare(&interface)?;
        let sockets = match kept.options.access {
            LinkAccess::Xdp => {
                if interface.strips_tags {
                    interface::leave_tags(&kept.options.interface)?;
                    interface.strips_tags = false;
                }
                xdp::open(kept.id, &kept.options, &interface, &kept.counters, &self.umems)
            }
            LinkAccess::Packet => packet::open(kept.id, &kept.options, &interface, &kept.counters),
        }?;
        let ring_frames =
            sockets.iter().map(|(_, socket)| socket.counters.ring_frames()).min().unwrap_or(0);
        for (shard, socket) in sockets {
            let facts = facts(&kept.options, &interface, socket.counters.ring_frames());
            self.shards[shard.index()].command(LinkCommand::Take(socket, facts, kept.options.poll));
        }
        kept.open = Some(interface);
        kept.failed = false;
        Ok(ring_frames)
    }

    /// Takes a link's sockets from their shards and closes them.
    fn close(&self, kept: &mut Supervised, down: bool) {
        if kept.open.take().is_none() {
            return;
        }
        self.take_back(kept.id, kept.counters.iter().map(|(shard, _)| *shard), down);
    }

    /// Takes the sockets of a link from shards and closes them.
    pub(super) fn take_back(
        &self,
        link: LinkId,
        shards: impl IntoIterator<Item = ShardId>,
        down: bool,
    ) {
        let (told, given) = mpsc::channel();
        for shard in shards {
            let told = told.clone();
            self.shards[shard.index()].command(LinkCommand::Give { link, down, told });
        }
        drop(told);
        // Each shard answers once, and is closed here, where waiting for the kernel stops nobody.
        given.iter().flatten().for_each(drop);
    }

    /// Compares all interfaces and paths with what the shards know. Returns after how long they are to
    /// be looked at again, if ever.
    fn look(&self) -> Option<Timespec> {
        let mut links = lock(&self.links);
        for kept in links.iter_mut() {
            // What cannot be looked at, or is no Ethernet any more, is down.
            let found = interface::find(&kept.options.interface).ok().flatten();
            self.compare(kept, found.filter(|found| found.up));
            kept.follow(found.as_ref());
        }
        let has_failed = links.iter().any(|kept| kept.failed);
        drop(links);
        let again = self.look_at_peers();
        if has_failed { Some(RETRY) } else { again }
    }

    fn compare(&self, kept: &mut Supervised, found: Option<Interface>) {
        let Some(found) = found else {
            self.close(kept, true);
            kept.failed = false;
            return;
        };
        let was_open = kept.open;
        match was_open {
            Some(open) if open == found => return,
            Some(open) if is_alike(&kept.options, &open, &found) => {
                for (shard, counters) in &kept.counters {
                    let facts = facts(&kept.options, &found, counters.ring_frames());
                    self.shards[shard.index()].command(LinkCommand::Tell(kept.id, facts));
                }
                kept.open = Some(found);
                return;
            }
            // Another interface of the same name: whatever was on the wire of the first one is
            // gone.
            Some(open) => self.close(kept, open.index != found.index),
            None => {}
        }
        if let Err(error) = self.open(kept, found) {
            if was_open.is_some_and(|open| open.index == found.index) {
                self.tell_all(kept, || LinkCommand::Lose(kept.id));
            }
            if !kept.failed {
                eprintln!("interface {}: {error}", kept.options.interface);
            }
            kept.failed = true;
        }
    }

    /// Starts the watch, if there is none.
    pub(super) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let mut watcher = lock(&self.watcher);
        if watcher.is_some() {
            return Ok(());
        }
        let changes = Arc::new(subscribe()?);
        let stop = Arc::new(event_descriptor()?);
        let (supervisor, heard, stopped) = (self.clone(), changes.clone(), stop.clone());
        let thread = thread::Builder::new()
            .name("links".to_owned())
            .spawn(move || supervisor.watch_changes(&heard, &stopped))?;
        *watcher = Some(Watcher { thread, changes, hears_paths: false, stop });
        Ok(())
    }

    /// The same, also of routes and addresses, which some hosts change all the time: whoever has no
    /// link through IP does not hear of them.
    pub(super) fn watch_paths(self: &Arc<Self>) -> io::Result<()> {
        self.watch()?;
        match &mut *lock(&self.watcher) {
            Some(watcher) if !watcher.hears_paths => {
                hear_paths(&watcher.changes)?;
                watcher.hears_paths = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sleeps until an interface or a path changes or is to be looked at, for as long as the watch is
    /// not stopped.
    fn watch_changes(&self, changes: &OwnedFd, stop: &OwnedFd) {
        let _guard = AbortOnPanic;
        let (mut again, mut looked) = (None, None::<Instant>);
        loop {
            let mut all = [changes, stop, &self.again].map(|fd| PollFd::new(fd, PollFlags::IN));
            // What an interruption leaves unseen is looked at all the same.
            let _ = poll(&mut all, again.as_ref());
            if !all[1].revents().is_empty() {
                return;
            }
            // What comes in the meantime is looked at with it.
            let rest = looked.map_or(Duration::ZERO, |at| PAUSE.saturating_sub(at.elapsed()));
            let rest = Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() };
            let mut stopped = [PollFd::new(stop, PollFlags::IN)];
            let _ = poll(&mut stopped, Some(&rest));
            if !stopped[0].revents().is_empty() {
                return;
            }
            drain(changes);
            // It counts, and is read as a whole.
            let _ = rustix::io::read(&self.again, &mut [0; 8]);
            again = self.look();
            looked = Some(Instant::now());
        }
    }
}

/// Why a link that takes every frame cannot be had so.
fn no_circuit(options: &LinkOptions) -> Option<String> {
    if let Some(vlan) = options.vlan {
        let name = &options.interface;
        return Some(format!(
            "a circuit takes the frames of every VLAN, with their tags, not those of VLAN {vlan} alone: leave the VLAN out, or give the VLAN an interface of its own (`ip link add link {name} name {name}.{vlan} type vlan id {vlan}`) and name that one"
        ));
    }
    if options.access == LinkAccess::Xdp {
        let text = "a circuit over AF_XDP is not to be had: the interface's program would have to take every frame, so that nothing else worked on it; use packet sockets";
        return Some(text.to_owned());
    }
    let text = "a circuit is for one shard: its frames stay in order, and no program may choose a shard by what customers send";
    (!matches!(options.intake.spread, Spread::One(..))).then(|| text.to_owned())
}

/// What a machine is told.
fn facts(options: &LinkOptions, interface: &Interface, ring_frames: u32) -> LinkFacts {
    let is_shared = !matches!(options.intake.spread, Spread::One(..));
    let Interface { mac, mtu, .. } = *interface;
    LinkFacts { mac, mtu, vlan: options.vlan, ring_frames, is_shared }
}

/// Whether the sockets of one serve the other.
fn is_alike(options: &LinkOptions, one: &Interface, other: &Interface) -> bool {
    let memory = options.access != LinkAccess::Xdp && packet::is_cut_alike(one.mtu, other.mtu);
    // A socket knows how long a frame may be that is sent on.
    let longest = options.forwarded_max(one) == options.forwarded_max(other);
    (one.index, one.mac) == (other.index, other.mac) && memory && longest
}

/// A socket that becomes readable when an interface changes.
fn subscribe() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol is that of routes and interfaces (NETLINK_ROUTE).
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32))?;
    Ok(socket)
}

/// Has it become readable also when an address or a route changes.
fn hear_paths(socket: &OwnedFd) -> io::Result<()> {
    let groups = [
        libc::RTNLGRP_IPV4_IFADDR,
        libc::RTNLGRP_IPV6_IFADDR,
        libc::RTNLGRP_IPV4_ROUTE,
        libc::RTNLGRP_IPV6_ROUTE,
    ];
    groups.iter().try_for_each(|group| {
        let name = libc::NETLINK_ADD_MEMBERSHIP;
        set_option(socket.as_raw_fd(), libc::SOL_NETLINK, name, group)
    })
}

/// Drops what has come; also what was lost for want of room is told so, once.
fn drain(changes: &OwnedFd) {
    let mut bytes = [0u8; 4096];
    loop {
        match recv(changes, &mut bytes, RecvFlags::empty()) {
            Ok((count, _)) if count > 0 => {}
            Err(Errno::NOBUFS | Errno::INTR) => {}
            _ => return,
        }
    }
}
