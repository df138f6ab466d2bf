//! Sessions: what a machine that serves an accepted connection is given, and what it wants,
//! whatever its protocol. What the other end wants, which opens its connections itself, is a
//! [`StreamEffect`].
//!
//! In: received bytes, completions, what became of a batch; with each call a [`TargetContext`].
//! Out: requests (pushed to the context at once), and by polling a [`SessionEffect`] for the
//! session's own connection. A target without connections (one that answers frames) is given the
//! same context. Not here: which protocols there are (the shard), what they mean (their crates).

use std::net::SocketAddr;

use block::{Instant, MachineId, Memory, Pool, ShardId, Submit, Ticket};
use reservation::InForce;

use crate::connection::{ConnectionId, SendBatch};
use crate::counters;
use crate::machine::Effect;

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
        let TargetContext { now, memory, pool, volumes, reservations, shared } = self;
        let shared = part(shared);
        TargetContext { now: *now, memory: *memory, pool, volumes: *volumes, reservations, shared }
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
    Connect { token: u32, address: SocketAddr },
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
            StreamEffect::Connect { token, address } => {
                Effect::Connect { token: u64::from(initiator) << 32 | u64::from(token), address }
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
