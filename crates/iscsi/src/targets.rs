//! What all iSCSI sessions of a shard share: which targets there are, who is logged in, and that an
//! initiator port has one session with a target, wherever its connections are.
//!
//! One [`Targets`] value per shard. In: logins, the loss of connections, messages of other shards,
//! changes of the configuration. Out, by polling: messages, what sessions are to hear, what people
//! are. Pure: time is an argument. A session is named by its place on the shard; per command only
//! its [`SessionHandle`] is used, which is an index.
//!
//! The order of calls for a session:
//! 1. [`Targets::open`] when its login is over; the answer may come later as
//!    [`SessionEvent::Opened`].
//! 2. Per command [`Targets::unit`], and again for one that waited.
//! 3. [`Targets::session_ends`] when no request is submitted any more, or a close comes out of
//!    [`Targets::poll_event`].
//! 4. [`Targets::session_drained`], once, when nothing of it is in flight any more and
//!    [`Targets::has_undecided`] says that no change of it is.
//!
//! Spec: RFC 7143, 6.3.5 (session reinstatement), 4.2.7.

mod change;
mod decisions;
mod login;
mod modes;
mod paths;
mod reserve;
pub mod reset;
#[cfg(test)]
mod tests;
pub mod traffic;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use block::{IdMap, Instant, ShardId, Slot, Table, VolumeId};
use contract::traffic::ByHost;
use contract::{Endpoint, HostEvent, HostNews, ListenerId, Peer, Traffic};
use reservation::{Change, NamedHosts, PathChange, PathGroup, Registrant};
use scsi::LogicalUnit;
use wire::iscsi::{IscsiName, LoginStatus};
use wire::scsi::{ScsiStatus, Sense};

use crate::auth::{Challenges, Required, Responder};
pub use crate::message::Message;
use crate::target::{Hosts, Portal, Target, UnitIdentity};
use login::Pending;
use modes::Modes;

/// An initiator port and a target port: what may have one session (RFC 7143, 4.2.7.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus {
    pub initiator: IscsiName,
    pub isid: [u8; 6],
    pub target: IscsiName,
    /// The portal group of the target, which is its port.
    pub group: PathGroup,
}

/// The session that a login asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub nexus: Nexus,
    /// 0 for a new session, else the one that its connection is to belong to.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
}

/// A session of this shard, to be used with each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHandle(Slot);

/// What a connection has to know of its session once it is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub handle: SessionHandle,
    /// TSIH, never 0.
    pub tsih: u16,
}

/// An answer to a login: now, or by [`Targets::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Now(Result<Opened, LoginStatus>),
    Later,
}

/// What a connection is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// What became of a login that was answered [`Opening::Later`].
    Opened(Result<Opened, LoginStatus>),
    /// No new request of it is submitted; it drains and closes.
    Close(CloseReason),
    /// A unit attention, of one LUN or of all.
    Attention(Option<u16>, Sense),
    /// End all tasks of a LUN, or of all; [`Targets::aborted`] follows when none of them is below.
    Abort { of: SessionHandle, lun: Option<u16> },
    /// A reset that this session asked for, by the request of this task tag, is over.
    ResetDone { tag: u32 },
    /// End all tasks of a LUN: the host's registration was preempted.
    EndTasks { lun: u16 },
    /// What became of the change of a reservation, of states of paths or of a unit's mode that has
    /// this number.
    Changed { number: u64, status: ScsiStatus, sense: Option<Sense> },
    /// Of a session that ends, all that it asked for is decided.
    Decided,
}

/// Why a session is to be closed by its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its initiator port logged in again.
    Reinstated,
    /// A disk does not come back: the path is failed.
    DiskStuck,
    /// No LUN names its host any more.
    HostRemoved,
    /// The target is not exported any more.
    TargetRemoved,
    /// An administrator asked for it; the host may come again.
    Administrator,
    /// A host has reset the target.
    ColdReset,
}

impl CloseReason {
    /// Why a host left, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            CloseReason::Reinstated => "it logged in again",
            CloseReason::DiskStuck => "a disk of what it uses does not answer",
            CloseReason::HostRemoved => "no LUN names it any more",
            CloseReason::TargetRemoved => "it is not exported any more",
            CloseReason::Administrator => "an administrator closed its session",
            CloseReason::ColdReset => "a host has reset the target",
        }
    }
}

/// What is known of a session, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    pub nexus: Nexus,
    /// TSIH.
    pub tsih: u16,
    /// The shard that it is on.
    pub shard: ShardId,
    /// The host's address.
    pub peer: SocketAddr,
    /// LUNs that its host may use.
    pub luns: u32,
}

/// A session.
#[derive(Debug)]
struct Session {
    nexus: Nexus,
    tsih: u16,
    cid: u16,
    peer: SocketAddr,
    /// The place of its connection.
    place: Slot,
    target: Slot,
    /// Whose it is, as reservations know it.
    registrant: Registrant,
    /// A number that no other session has, on any shard.
    life: u64,
    /// Volumes that it may have by RESERVE(6).
    holds: Vec<VolumeId>,
    /// Changes of reservations, paths and modes that it proposed and that are not decided.
    undecided: u32,
    /// Which LUNs it may not use: none in most cases.
    masked: Vec<u16>,
    /// Whose blocks it takes LUNs for, where others' are there now, or nothing: it has not asked again.
    mistaken: Vec<(u16, UnitIdentity)>,
    /// Whether it takes no more commands.
    ends: bool,
    /// What its host has read and written.
    traffic: Traffic,
}

/// A target and how it is found.
#[derive(Debug)]
struct Entry {
    target: Target,
    /// Its logical units, by LUN.
    units: IdMap<LogicalUnit>,
    /// What was read and written in sessions that are gone.
    ended: ByHost<IscsiName>,
}

/// The targets of a shard and the sessions on it. See the module's text for the order of calls.
#[derive(Debug)]
pub struct Targets {
    shard: ShardId,
    shards: u16,
    /// Whether the first configuration is complete: before that hosts are told to come again.
    configured: bool,
    entries: Table<Entry>,
    by_name: BTreeMap<IscsiName, Slot>,
    portals: BTreeMap<ListenerId, Portal>,
    sessions: Table<Session>,
    /// Sessions of the shard by nexus; while one drains there may be another.
    by_nexus: BTreeMap<Nexus, Vec<Slot>>,
    /// Logins that wait for sessions to drain, here or elsewhere.
    pending: Table<Pending>,
    waiters: Vec<login::Waiter>,
    /// Resets that hosts of this shard asked for, and parts of resets that it carries out.
    resets: Table<reset::Reset>,
    modes: Modes,
    parts: Vec<reset::Part>,
    parts_begun: u64,
    /// Counted up for each session that has a new TSIH, and for each session.
    sessions_made: u32,
    lives: u64,
    challenges: Challenges,
    named: Arc<NamedHosts>,
    /// By what hosts prove that they have a name, whichever target they want.
    proofs: BTreeMap<IscsiName, Required>,
    /// Changes of reservations that are to be agreed on, and those that are under way.
    changes: VecDeque<(VolumeId, u64, Change)>,
    /// The same of states of paths.
    path_changes: VecDeque<(u64, PathChange)>,
    proposed: Table<decisions::Proposed>,
    owed: Vec<reserve::Owed>,
    /// The latest moment that it was told.
    now: Instant,
    /// Attentions that are told once every shard has what they are about.
    withheld: Vec<(Slot, SessionEvent)>,
    messages: VecDeque<(ShardId, Message)>,
    events: VecDeque<(Slot, SessionEvent)>,
    news: VecDeque<HostNews>,
}

impl Targets {
    /// A shard without targets. `secret`: random bytes, of which it makes challenges.
    pub fn new(shard: ShardId, shards: u16, secret: [u8; 32]) -> Targets {
        Targets {
            shard,
            shards,
            configured: false,
            entries: Table::new(),
            by_name: BTreeMap::new(),
            portals: BTreeMap::new(),
            sessions: Table::new(),
            by_nexus: BTreeMap::new(),
            pending: Table::new(),
            waiters: Vec::new(),
            resets: Table::new(),
            modes: Modes::default(),
            parts: Vec::new(),
            parts_begun: 0,
            sessions_made: 0,
            lives: 0,
            challenges: Challenges::new(secret),
            named: Arc::default(),
            proofs: BTreeMap::new(),
            changes: VecDeque::new(),
            path_changes: VecDeque::new(),
            proposed: Table::new(),
            owed: Vec::new(),
            now: Instant::ZERO,
            withheld: Vec::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// All of the first configuration is there.
    pub fn configuration_complete(&mut self) {
        self.configured = true;
    }

    /// What is under a LUN of a session's target, if its host may use it.
    #[inline]
    pub fn unit(&self, session: SessionHandle, lun: u16) -> Option<&LogicalUnit> {
        let session = self.sessions.get(session.0)?;
        let unit = self.entries.get(session.target)?.units.get(u32::from(lun))?;
        (session.masked.is_empty() || !session.masked.contains(&lun)).then_some(unit)
    }

    /// Whether the host of a session has been told whose blocks are under a LUN: after it became
    /// another's a host has to ask before it reads or writes.
    #[inline]
    pub fn knows(&self, session: SessionHandle, lun: u16) -> bool {
        let session = self.sessions.get(session.0);
        session.is_none_or(|session| session.mistaken.iter().all(|(other, _)| *other != lun))
    }

    /// The host of a session was told whose blocks are under a LUN.
    pub fn identified(&mut self, session: SessionHandle, lun: u16) {
        if let Some(session) = self.sessions.get_mut(session.0) {
            session.mistaken.retain(|(other, _)| *other != lun);
        }
    }

    /// Whether the host of a session may not use some of the target's LUNs.
    pub fn is_masked(&self, session: SessionHandle) -> bool {
        self.sessions.get(session.0).is_none_or(|session| !session.masked.is_empty())
    }

    /// The LUNs that the host of a session may use, in ascending order.
    pub fn luns(&self, session: SessionHandle) -> Vec<u16> {
        let Some(session) = self.sessions.get(session.0) else { return Vec::new() };
        let Some(entry) = self.entries.get(session.target) else { return Vec::new() };
        entry.target.luns_of(&session.nexus.initiator).collect()
    }

    /// How whoever logs in to a target, or by a listener for discovery, proves who it is. A host
    /// that has a secret of its own is asked for that one by every target, and no other lets it in:
    /// whoever knows a target's could else come in its name.
    pub fn authentication(
        &mut self,
        listener: ListenerId,
        target: Option<&IscsiName>,
        host: Option<&IscsiName>,
    ) -> Responder {
        let own = host.and_then(|host| self.proofs.get(host));
        let required = match target {
            Some(_) if own.is_some() => own.cloned(),
            Some(name) => {
                let entry = self.by_name.get(name).and_then(|slot| self.entries.get(*slot));
                entry.and_then(|entry| entry.target.required.clone())
            }
            None => self.portals.get(&listener).and_then(|portal| portal.required.clone()),
        };
        Responder::new(required, self.challenges.make())
    }

    /// A listener is there, or is something else to hosts.
    pub fn set_portal(&mut self, listener: ListenerId, portal: Portal) {
        self.portals.insert(listener, portal);
    }

    /// A listener is gone.
    pub fn remove_portal(&mut self, listener: ListenerId) {
        self.portals.remove(&listener);
    }

    /// The group of a listener.
    pub fn group_of(&self, listener: ListenerId) -> PathGroup {
        self.portals.get(&listener).map_or(PathGroup::DEFAULT, |portal| portal.group)
    }

    /// The groups of all listeners and that of a session, which are the ports of every target,
    /// ascending.
    pub fn groups(&self, own: PathGroup) -> Vec<PathGroup> {
        let all = self.portals.values().map(|portal| portal.group).chain([own]);
        let all: BTreeSet<PathGroup> = all.collect();
        all.into_iter().collect()
    }

    /// The addresses of all targets and their portal groups, for a host that came this way: first
    /// that by which it came, since that one works for it, then those of other listeners.
    pub fn addresses(&self, endpoint: &Endpoint) -> Vec<(String, PathGroup)> {
        // A listener on [::] sees IPv4 hosts under mapped addresses, which they would not know.
        let mut local = endpoint.local;
        local.set_ip(local.ip().to_canonical());
        // Whoever came from elsewhere would find itself at a loopback address.
        let is_reached = |address: &String| {
            let loopback = address.parse().is_ok_and(|at: SocketAddr| at.ip().is_loopback());
            !loopback || local.ip().is_loopback()
        };
        let own = self.portals.get(&endpoint.listener).filter(|portal| portal.is_advertised);
        let own = own.and_then(|portal| portal.address.clone());
        let own = own.unwrap_or_else(|| local.to_string());
        let mut addresses = vec![(own, self.group_of(endpoint.listener))];
        let others = self.portals.iter().filter(|(listener, _)| **listener != endpoint.listener);
        let others =
            others.filter_map(|(_, portal)| Some((portal.address.as_ref()?, portal.group)));
        for (address, group) in others.filter(|(address, _)| is_reached(address)) {
            if !addresses.iter().any(|(other, _)| other == address) {
                addresses.push((address.clone(), group));
            }
        }
        addresses
    }

    /// The nexus of a session that is there.
    pub fn nexus(&self, session: SessionHandle) -> Option<&Nexus> {
        Some(&self.sessions.get(session.0)?.nexus)
    }

    /// The targets of which a host may use something, in order.
    pub fn targets_of(&self, host: &IscsiName) -> impl Iterator<Item = &IscsiName> {
        let allowed = move |slot: &Slot| {
            let entry = self.entries.get(*slot).expect("names lead to targets");
            entry.target.luns_of(host).next().is_some()
        };
        self.by_name.iter().filter(move |(_, slot)| allowed(slot)).map(|(name, _)| name)
    }

    /// What is to be told to the targets of another shard.
    #[inline]
    pub fn poll_message(&mut self) -> Option<(ShardId, Message)> {
        self.messages.pop_front()
    }

    /// What the session at a place is to hear. It may be gone.
    #[inline]
    pub fn poll_event(&mut self) -> Option<(Slot, SessionEvent)> {
        self.events.pop_front()
    }

    /// Who came, left or was refused.
    #[inline]
    pub fn poll_host_news(&mut self) -> Option<HostNews> {
        self.news.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, if at all.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiters = self.waiters.iter().map(|waiter| waiter.until);
        waiters.chain(self.owed.iter().map(|owed| owed.at)).min()
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.try_owed(now);
        self.answer_late(now);
    }

    /// Another shard's targets have written.
    pub fn handle_message(&mut self, now: Instant, from: ShardId, message: Message) {
        self.now = now;
        match message {
            Message::NexusAsk { ask, wanted } => self.nexus_asked(from, ask, &wanted),
            Message::NexusAnswer { ask, found } => self.conclude(ask, found),
            Message::ResetAsk { ask, scope } => self.begin_part(from, ask, *scope, None),
            Message::ResetAnswer { ask } => self.reset_answered(ask),
            Message::ModeSet { uuid, mode, stamp, number } => {
                self.take_mode(None, uuid, mode, stamp);
                self.messages.push_back((from, Message::ModeAnswer { number }));
            }
            Message::ModeAnswer { number } => self.mode_is_set(number),
        }
    }

    /// A session takes no commands any more, for this reason.
    pub fn session_ends(&mut self, handle: SessionHandle, why: &'static str) {
        let Some(session) = self.sessions.get_mut(handle.0) else { return };
        if !core::mem::replace(&mut session.ends, true) {
            self.news.push_back(HostNews {
                host: session.nexus.initiator.to_string(),
                export: session.nexus.target.to_string(),
                peer: Peer::Address(session.peer),
                event: HostEvent::Left(why),
            });
            self.give_up_holds(handle.0);
        }
    }

    /// Nothing of a session is in flight any more, nothing that it proposed is undecided, and it
    /// takes no commands.
    pub fn session_drained(&mut self, handle: SessionHandle) {
        let Some(session) = self.sessions.remove(handle.0) else { return };
        let left = self.by_nexus.get_mut(&session.nexus).expect("a session is found by its nexus");
        left.retain(|slot| *slot != handle.0);
        if left.is_empty() {
            self.by_nexus.remove(&session.nexus);
        }
        self.keep_traffic(&session);
        self.answer_waiters();
        self.has_ended(handle.0, |_| true);
    }

    /// Sessions that have not drained.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Closes a session, if it is open.
    fn close(&mut self, slot: Slot, reason: CloseReason) {
        let Some(session) = self.sessions.get(slot).filter(|session| !session.ends) else {
            return;
        };
        let place = session.place;
        self.session_ends(SessionHandle(slot), reason.words());
        self.events.push_back((place, SessionEvent::Close(reason)));
    }

    /// Closes the sessions of a host; returns how many there were.
    pub fn close_sessions(&mut self, host: &IscsiName) -> u32 {
        let of_host = |session: &Session| session.nexus.initiator == *host;
        self.close_where(of_host, CloseReason::Administrator)
    }

    /// A disk of the volume does not answer: paths to it are failed.
    pub fn volume_stuck(&mut self, volume: block::VolumeId) {
        let stuck: Vec<Slot> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.units.iter().any(|(_, unit)| unit.volume == volume))
            .map(|(slot, _)| slot)
            .collect();
        self.close_where(|session| stuck.contains(&session.target), CloseReason::DiskStuck);
    }

    fn close_where(&mut self, which: impl Fn(&Session) -> bool, reason: CloseReason) -> u32 {
        let open = self.sessions.iter().filter(|(_, session)| !session.ends && which(session));
        let open: Vec<Slot> = open.map(|(slot, _)| slot).collect();
        open.iter().for_each(|slot| self.close(*slot, reason));
        open.len() as u32
    }

    /// How sessions are.
    pub fn report(&self) -> Vec<SessionReport> {
        let report = |(_, session): (Slot, &Session)| {
            let entry = self.entries.get(session.target)?;
            Some(SessionReport {
                nexus: session.nexus.clone(),
                tsih: session.tsih,
                shard: self.shard,
                peer: session.peer,
                luns: (entry.target.units.len() - session.masked.len()) as u32,
            })
        };
        self.sessions.iter().filter_map(report).collect()
    }
}

/// The LUNs of a target that a host may not use.
fn masked(target: &Target, host: &IscsiName) -> Vec<u16> {
    let masked = |hosts: &Hosts| !hosts.allow(host);
    target.units.iter().filter(|unit| masked(&unit.hosts)).map(|unit| unit.lun).collect()
}
