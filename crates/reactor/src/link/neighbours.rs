//! The kernel's table of neighbours (ARP, ND): at which address of Ethernet a station is that is known
//! by its address of IP, followed for as long as somebody wants to know.
//!
//! In: which addresses on which interfaces are wanted. Out: where each is now, and a call when one is
//! elsewhere. The kernel finds them; what nobody uses it forgets, and what it doubts it only asks for
//! when something is sent there. So it is told that an address is in use (`NTF_USE`): when it is
//! wanted first, when its entry is gone or failed, each second, and when it is in doubt (`STALE`).
//! Nothing else runs by time.
//!
//! ```text
//!   netlink  RTM_NEWNEIGH, RTM_DELNEIGH  -> the entry that is wanted
//!            RTM_NEWLINK, RTM_DELLINK, what was lost (ENOBUFS) or broken -> interfaces and table anew
//!   then     use what needs it, wait a moment for what follows, tell what is another
//! ```
//! The wait lets a burst be one change, and an entry that is flushed and found again none. Errors: of
//! the start, to whoever starts it; later ones leave entries unknown, and are tried again. Spec:
//! RFC 826, RFC 4861 clause 7.3, and the kernel's names for its clauses (rtnetlink(7)).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netlink::neighbour::{self, Entry, Message, state};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::interface;
use super::netlink::{ROOM, ask};
use crate::mailbox::{event_descriptor, ring};
use crate::process::{AbortOnPanic, lock};

/// Between two times at which something is told, however much the kernel tells.
const PAUSE: Duration = Duration::from_millis(10);
/// What is not there is asked for again after so long.
const RETRY: Duration = Duration::from_secs(1);
/// The kernel has given up asking after three seconds, unless somebody told it otherwise, and says so.
const GIVES_UP: Duration = Duration::from_secs(5);
/// A table that changes while it is told is asked for so often.
const TRIES: usize = 3;

/// Where a station is, as the kernel's table of neighbours has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// It is at this address of Ethernet.
    At([u8; 6]),
    /// The kernel is asking.
    Asked,
    /// Nobody answered.
    Failed,
    /// It is not in the table.
    #[default]
    Unknown,
    /// Its interface is not there, or down.
    Away,
}

impl Found {
    fn of(entry: Option<&Entry>) -> Self {
        match entry {
            None => Self::Unknown,
            Some(entry) => match (entry.valid(), entry.state) {
                (Some(mac), _) => Self::At(mac),
                (None, known) if known & state::INCOMPLETE != 0 => Self::Asked,
                (None, known) if known & state::FAILED != 0 => Self::Failed,
                (None, _) => Self::Unknown,
            },
        }
    }
}

/// Looks where stations are on an interface, in their order, which takes no right and asks nobody.
pub fn look_at_stations(interface: &str, addresses: &[IpAddr]) -> io::Result<Vec<Found>> {
    let index = up(interface);
    let table = match index.filter(|_| !addresses.is_empty()) {
        Some(_) => table()?,
        None => BTreeMap::new(),
    };
    let found = |address: &IpAddr| {
        index.map_or(Found::Away, |index| Found::of(table.get(&(index, *address))))
    };
    Ok(addresses.iter().map(found).collect())
}

/// The number of an interface, if it is up.
fn up(interface: &str) -> Option<i32> {
    let found = interface::find(interface).ok().flatten();
    found.filter(|found| found.up).map(|found| found.index)
}

/// By interface, and there by address.
type Key = (String, IpAddr);

/// Stations whose addresses of Ethernet are followed. Dropped, it ends.
#[derive(Debug)]
pub struct Stations {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    wanted: Mutex<BTreeMap<Key, Wanted>>,
    /// That something was looked at.
    looked: Condvar,
    /// Rung when something else is wanted, or it is to end.
    bell: OwnedFd,
    /// Nobody wants anything any more.
    is_over: Mutex<bool>,
}

/// A station that somebody wants to know of.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// What was told of it.
    told: Found,
    /// Whether the kernel was told that it is in use, since it was wanted.
    was_used: bool,
}

impl Stations {
    /// Begins with none. `changed` is called, in another thread, when one is elsewhere.
    pub fn start(changed: impl Fn() + Send + 'static) -> io::Result<Stations> {
        let shared = Arc::new(Shared {
            wanted: Mutex::default(),
            looked: Condvar::new(),
            bell: event_descriptor()?,
            is_over: Mutex::default(),
        });
        // Before the first look, so that no change falls between.
        let mut follower = Follower {
            shared: shared.clone(),
            changes: subscribe()?,
            entries: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: None,
            is_stale: true,
        };
        let thread = thread::Builder::new().name("stations".to_owned()).spawn(move || {
            let _guard = AbortOnPanic;
            follower.follow(changed);
        })?;
        Ok(Stations { shared, thread: Some(thread) })
    }

    /// Wants to know of a station. Returns where it is, as the table has it now.
    pub fn follow(&self, interface: &str, address: IpAddr) -> io::Result<Found> {
        let key = (interface.to_owned(), address);
        if let Some(known) = lock(&self.shared.wanted).get(&key) {
            return Ok(known.told);
        }
        let told = look_at_stations(interface, &[address])?[0];
        lock(&self.shared.wanted).entry(key).or_insert(Wanted { told, was_used: false });
        ring(&self.shared.bell);
        Ok(told)
    }

    /// Wants to know of those alone that this holds for.
    pub fn keep(&self, is_wanted: impl Fn(&str, IpAddr) -> bool) {
        lock(&self.shared.wanted).retain(|(interface, address), _| is_wanted(interface, *address));
        ring(&self.shared.bell);
    }

    /// Where a station is that is followed.
    pub fn find(&self, interface: &str, address: IpAddr) -> Found {
        let wanted = lock(&self.shared.wanted);
        wanted.get(&(interface.to_owned(), address)).map(|one| one.told).unwrap_or_default()
    }

    /// Waits until of each of these it is known where it is, or that nobody answers, or for so long.
    pub fn settle(&self, stations: &[(String, IpAddr)], limit: Duration) {
        let is_open = |wanted: &mut BTreeMap<Key, Wanted>| {
            stations.iter().filter_map(|key| wanted.get(key)).any(|one| match one.told {
                Found::Asked => true,
                Found::Unknown => !one.was_used,
                Found::At(_) | Found::Failed | Found::Away => false,
            })
        };
        let wanted = lock(&self.shared.wanted);
        let waited = self.shared.looked.wait_timeout_while(wanted, limit, is_open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Stations {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        ring(&self.shared.bell);
        if let Some(thread) = self.thread.take() {
            // A panic has ended the process already.
            let _ = thread.join();
        }
    }
}

/// Who follows the table.
struct Follower {
    shared: Arc<Shared>,
    /// By which the kernel tells of changes.
    changes: OwnedFd,
    /// What the table has on interfaces of wanted stations.
    entries: BTreeMap<(i32, IpAddr), Entry>,
    /// The numbers of these interfaces; `None` of one that is not there, or down.
    interfaces: BTreeMap<String, Option<i32>>,
    /// When the kernel was told last that a station is in use which is not there.
    asked: BTreeMap<Key, Instant>,
    /// When something is to be tried again.
    next: Option<Instant>,
    /// Something was lost: all is to be looked at anew.
    is_stale: bool,
}

impl Follower {
    fn follow(&mut self, changed: impl Fn()) {
        loop {
            self.hear();
            self.work();
            // What follows is looked at with it, and told as one.
            thread::sleep(PAUSE);
            self.hear();
            self.work();
            if self.tell() {
                changed();
            }
            if *lock(&self.shared.is_over) {
                return;
            }
            self.sleep();
        }
    }

    /// Until the kernel tells something, something else is wanted, or something is to be tried again.
    fn sleep(&self) {
        let next = self.next.map(|at| at.saturating_duration_since(Instant::now()));
        let next = next.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut all = [&self.changes, &self.shared.bell].map(|fd| PollFd::new(fd, PollFlags::IN));
        // What an interruption leaves unseen is looked at all the same.
        let _ = poll(&mut all, next.as_ref());
    }

    /// Takes what the kernel has told.
    fn hear(&mut self) {
        // It counts, and is read as a whole.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        let mut bytes = [0; ROOM];
        loop {
            match recv(&self.changes, &mut bytes, RecvFlags::empty()) {
                Ok((count, whole)) if whole > 0 => {
                    neighbour::messages(&bytes[..count]).for_each(|one| self.handle(one));
                    self.is_stale |= whole > count;
                }
                Err(Errno::INTR) => {}
                // More came than there was room for.
                Err(Errno::NOBUFS) => self.is_stale = true,
                _ => return,
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Neighbour(entry) => {
                if self.interfaces.values().any(|index| *index == Some(entry.index)) {
                    self.entries.insert((entry.index, entry.address), entry);
                }
            }
            Message::Gone(index, address) => drop(self.entries.remove(&(index, address))),
            Message::Interface | Message::Broken => self.is_stale = true,
            Message::Other => {}
        }
    }

    /// Looks at what is not known, and has the kernel use what needs it.
    fn work(&mut self) {
        let wanted: Vec<Key> = lock(&self.shared.wanted).keys().cloned().collect();
        self.asked.retain(|key, _| wanted.binary_search(key).is_ok());
        self.next = None;
        let is_new = wanted.iter().any(|(interface, _)| !self.interfaces.contains_key(interface));
        if self.is_stale || is_new {
            self.look(&wanted);
        }
        if self.is_stale {
            self.try_again(Instant::now() + RETRY);
        }
        for key in wanted {
            self.use_it(&key);
        }
    }

    /// Interfaces and the table, anew.
    fn look(&mut self, wanted: &[Key]) {
        let names = wanted.iter().map(|(interface, _)| interface);
        self.interfaces = names.map(|name| (name.clone(), up(name))).collect();
        if let Ok(table) = table() {
            let ours: Vec<i32> = self.interfaces.values().flatten().copied().collect();
            self.entries = table;
            self.entries.retain(|(index, _), _| ours.contains(index));
            self.is_stale = false;
        }
    }

    fn try_again(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn entry(&self, (interface, address): &Key) -> Option<&Entry> {
        let index = (*self.interfaces.get(interface)?)?;
        self.entries.get(&(index, *address))
    }

    /// Has the kernel use a station, if that is due: nobody knows where it is, or that is in doubt. An
    /// entry that somebody made for good would be none any more, and is left alone. What was known a
    /// moment ago is asked for at once.
    fn use_it(&mut self, key: &Key) {
        let index = self.interfaces.get(&key.0).copied().flatten();
        let entry = self.entry(key).copied();
        let found = Found::of(entry.as_ref());
        let is_doubted = entry.is_some_and(|one| one.state & state::STALE != 0);
        let (is_missing, pause) = match found {
            Found::Failed | Found::Unknown => (true, RETRY),
            Found::Asked => (true, GIVES_UP),
            Found::At(_) | Found::Away => (false, RETRY),
        };
        let Some(index) = index.filter(|_| is_doubted || is_missing) else {
            if matches!(found, Found::At(_)) {
                self.asked.remove(key);
            }
            return self.was_used(key);
        };
        let now = Instant::now();
        if let Some(last) = self.asked.get(key).filter(|last| now < **last + pause) {
            return self.try_again(*last + pause);
        }
        // That nobody answered is told before somebody is asked again.
        if found == Found::Failed && self.told(key) != found {
            return self.try_again(now + RETRY);
        }
        let used = use_it(index, &key.0, key.1);
        self.was_used(key);
        match self.entries.get_mut(&(index, key.1)) {
            // So it is from now on, of which the kernel tells nothing before it asks.
            Some(entry) if is_doubted && used.is_ok() => entry.state = state::DELAY,
            _ => {
                self.asked.insert(key.clone(), now);
                // And that it asks, it does not tell either.
                let state = state::INCOMPLETE;
                let entry = Entry { index, address: key.1, state, mac: None };
                if is_missing && used.is_ok() {
                    self.entries.insert((index, key.1), entry);
                }
                self.try_again(now + if used.is_ok() { GIVES_UP } else { RETRY });
            }
        }
    }

    fn told(&self, key: &Key) -> Found {
        lock(&self.shared.wanted).get(key).map(|one| one.told).unwrap_or_default()
    }

    fn was_used(&self, key: &Key) {
        if let Some(one) = lock(&self.shared.wanted).get_mut(key) {
            one.was_used = true;
        }
    }

    /// Whether something is not what was told.
    fn tell(&self) -> bool {
        let mut is_news = false;
        for (key, one) in lock(&self.shared.wanted).iter_mut() {
            let found = match self.interfaces.get(&key.0) {
                Some(Some(_)) => Found::of(self.entry(key)),
                // It is looked at in the next turn.
                None => continue,
                Some(None) => Found::Away,
            };
            is_news |= one.told != found;
            one.told = found;
        }
        self.shared.looked.notify_all();
        is_news
    }
}

/// A socket that becomes readable when an entry or an interface changes.
fn subscribe() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol is that of routes and interfaces (NETLINK_ROUTE).
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let groups = (libc::RTMGRP_LINK | libc::RTMGRP_NEIGH) as u32;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// All of the table.
fn table() -> io::Result<BTreeMap<(i32, IpAddr), Entry>> {
    let mut entries = BTreeMap::new();
    for _ in 0..TRIES {
        entries.clear();
        let mut is_broken = false;
        let is_torn = ask(&neighbour::dump(), |kind, body| match neighbour::of(kind, body) {
            Message::Neighbour(entry) => {
                entries.insert((entry.index, entry.address), entry);
            }
            other => is_broken |= other == Message::Broken,
        })? || is_broken;
        if !is_torn {
            break;
        }
    }
    Ok(entries)
}

/// Has the kernel use an address on an interface. For that it wants CAP_NET_ADMIN; whoever lacks it
/// sends there what nobody takes.
fn use_it(index: i32, interface: &str, address: IpAddr) -> io::Result<()> {
    match ask(&neighbour::use_it(index, address), |_, _| {}) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            send_there(index, interface, address)
        }
        answered => answered.map(drop),
    }
}

/// An empty datagram to a station of an interface's, for a service that takes what comes (RFC 863).
fn send_there(index: i32, interface: &str, address: IpAddr) -> io::Result<()> {
    const DISCARD: u16 = 9;
    let socket =
        Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    let to: SocketAddr = match address {
        IpAddr::V4(_) => (address, DISCARD).into(),
        IpAddr::V6(six) => SocketAddrV6::new(six, DISCARD, 0, index.cast_unsigned()).into(),
    };
    // No router is asked for what is on the link.
    socket.send_to_with_flags(&[], &SockAddr::from(to), libc::MSG_DONTROUTE).map(drop)
}
