//! Sessions: what a machine that serves an accepted connection is given, and what it wants,
//! whatever its protocol. What the other end wants, which opens its connections itself, is a
//! [`StreamEffect`].
//!
//! In: received bytes, completions, what became of a batch; with each call a [`TargetContext`].
//! Out: requests (pushed to the context at once), and by polling a [`SessionEffect`] for the
//! session's own connection. A target without connections (one that answers frames) is given the
//! same context. Not here: which protocols there are (the shard), what they mean (their crates).

use std::fmt;
use std::net::SocketAddr;

use block::{Instant, MachineId, Memory, Pool, ShardId, Submit, Ticket};
use reservation::{InForce, Paths};

use crate::connection::{ConnectionId, SendBatch};
use crate::counters;
use crate::link::LinkId;
use crate::machine::Effect;
use crate::poll::Poll;

/// What a target's machine works with during a call.
pub struct TargetContext<'a, S> {
    /// The present.
    pub now: Instant,
    /// The bytes behind the buffers.
    pub memory: &'a mut dyn Memory,
    /// The shard's budget.
    pub pool: &'a mut Pool,
    /// Where requests go: to their volumes.
    pub volumes: &'a mut dyn Submit,
    /// Who may use which volume.
    pub reservations: &'a InForce,
    /// By which listeners.
    pub paths: &'a Paths,
    /// What the machines of its protocol share on the shard.
    pub shared: &'a mut S,
}

impl<S> TargetContext<'_, S> {
    /// The same for a machine that shares but a part of it.
    #[inline]
    pub fn of<'b, T>(
        &'b mut self,
        part: impl FnOnce(&'b mut S) -> &'b mut T,
    ) -> TargetContext<'b, T> {
        let TargetContext { now, memory, pool, volumes, reservations, paths, shared } = self;
        let (now, shared) = (*now, part(shared));
        TargetContext { now, memory: *memory, pool, volumes: *volumes, reservations, paths, shared }
    }
}

/// What a session is called on its shard; its tickets carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionIdentity {
    pub machine: MachineId,
    /// Which life of the machine.
    pub generation: u32,
    pub shard: ShardId,
}

impl SessionIdentity {
    /// The ticket of a request of its own, whose completion is to find `slot`.
    #[inline]
    pub fn ticket(self, slot: u32) -> Ticket {
        let SessionIdentity { machine, generation, shard } = self;
        Ticket { machine, generation, slot, shard }
    }
}

/// Why a shard asks a session to finish what is below and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    ListenerRemoved,
    ServerStopping,
}

/// What a session wants of the driver of its connection.
#[derive(Debug)]
pub enum SessionEffect {
    /// Send this; there is none out.
    Send(SendBatch),
    /// Show bytes again after a pause.
    Resume,
    /// Close.
    Close {
        /// Whether what was sent should reach the peer first.
        after_send: bool,
    },
}

impl SessionEffect {
    /// The same for a driver, which has to be told of which connection.
    #[inline]
    pub fn on<M>(self, connection: ConnectionId) -> Effect<M> {
        match self {
            SessionEffect::Send(batch) => Effect::Send { connection, batch },
            SessionEffect::Resume => Effect::Resume { connection },
            SessionEffect::Close { after_send } => Effect::Close { connection, after_send },
        }
    }
}

/// What an initiator wants of the driver of its connections, with tokens that are its own.
#[derive(Debug)]
pub enum StreamEffect {
    /// Open a connection; the token comes back with the answer.
    Connect { token: u32, address: SocketAddr, poll: Poll },
    /// Send a batch; there is none out.
    Send { connection: ConnectionId, batch: SendBatch },
    /// Close a connection.
    Close {
        connection: ConnectionId,
        /// Whether the batch that is out should leave first.
        after_send: bool,
    },
}

impl StreamEffect {
    /// The same for a driver, whose tokens name the initiator first.
    #[inline]
    pub fn of<M>(self, initiator: u32) -> Effect<M> {
        match self {
            StreamEffect::Connect { token, address, poll } => {
                let token = u64::from(initiator) << 32 | u64::from(token);
                Effect::Connect { token, address, poll }
            }
            StreamEffect::Send { connection, batch } => Effect::Send { connection, batch },
            StreamEffect::Close { connection, after_send } => {
                Effect::Close { connection, after_send }
            }
        }
    }
}

counters! {
    /// What a session did since it began.
    pub struct SessionCounters {
        /// Commands that came, of every kind.
        commands: Operations,
        /// Commands that were answered with another status than success.
        failed: Operations,
        /// Bytes of data received.
        received_bytes: Bytes,
        /// Bytes of data sent.
        sent_bytes: Bytes,
        /// Data digests that were wrong.
        corrupt: Events,
        /// Held event requests that were forgotten, since another command came with their CID.
        forgotten: Events,
        /// Times that a command, or data that came with one, had to wait for memory.
        waits: Events,
    }
}

/// A host came, left or was refused: for people to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNews {
    /// What it calls itself.
    pub host: String,
    /// What it wants to use, by the name that hosts know.
    pub export: String,
    /// From where.
    pub peer: Peer,
    pub event: HostEvent,
}

/// Where a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Address(SocketAddr),
    /// It is a station there, known by the name that it has.
    Link(LinkId),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Link(link) => link.fmt(f),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    Connected,
    /// Why its session ended.
    Left(&'static str),
    /// Why, and what lets it in, if something does.
    Refused(Refused),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No list of hosts names it.
    NotNamed,
    /// The MAC mask of the export, which initiators set, does not name it.
    NotInMask,
    /// There is no such export.
    NotExported,
    /// It has not proved who it is, and what was wrong with it.
    NotProved(&'static str),
}

impl fmt::Display for HostNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostNews { host, export, peer, event } = self;
        match event {
            HostEvent::Connected => write!(f, "host {host} connected to {export} from {peer}"),
            HostEvent::Left(why) => write!(f, "host {host} left {export}: {why}"),
            HostEvent::Refused(Refused::NotNamed) => write!(
                f,
                "host {host} at {peer} was refused: it is not among the hosts of {export}; to let it in, add {host:?} to them"
            ),
            HostEvent::Refused(Refused::NotInMask) => write!(
                f,
                "host {host} at {peer} was refused: it is not in the MAC mask that an initiator has given {export}"
            ),
            HostEvent::Refused(Refused::NotExported) => {
                write!(f, "host {host} at {peer} was refused: {export} is not exported")
            }
            HostEvent::Refused(Refused::NotProved(why)) => {
                write!(f, "host {host} at {peer} was refused: CHAP of {export}: {why}")
            }
        }
    }
}
