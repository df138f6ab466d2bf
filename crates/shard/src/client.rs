//! Internal clients: who asks volumes on a shard without a protocol. The control thread, for labels
//! and flushes; what `bench` and `copy` let work.
//!
//! A client comes by [`Order::AddClient`](crate::Order::AddClient), has each answer as it comes and
//! works at the end of each turn, after the machines that serve hosts: what it asks takes the way
//! of data, through gates and instruments, and no second path to the media exists. It tells by
//! itself what it came to, and is dropped once it is over. A shard without one pays one comparison
//! a turn.
//!
//! A client is no host: it works in the name of whoever runs the program. No reservation holds it
//! off, and none waits for what it has below.

use block::{
    Account, Buffer, Completion, Instant, Memory, Operation, Pool, Request, ShardId, Ticket,
    VolumeId,
};
use core::fmt::Debug;
use volume::Volumes;

use crate::machine;

/// Somebody who asks volumes.
pub trait InternalClient: Debug + Send {
    /// An answer, under the slot that the request was given. The turn's end follows.
    fn handle_completion(&mut self, completion: Completion, context: &mut ClientContext<'_>);

    /// The end of a turn, or the moment of [`poll_timeout`](Self::poll_timeout).
    fn handle_turn(&mut self, context: &mut ClientContext<'_>);

    /// When it wants to be called at the latest.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether it has no buffers, nothing in flight and nothing more to ask.
    fn is_over(&self) -> bool;
}

/// What an internal client may do while it is called.
#[expect(missing_debug_implementations, reason = "memory has none")]
pub struct ClientContext<'a> {
    /// The time of this turn.
    pub now: Instant,
    pub shard: ShardId,
    /// The memory behind buffers.
    pub memory: &'a mut dyn Memory,
    pub(crate) pool: &'a mut Pool,
    pub(crate) volumes: &'a mut Volumes,
    pub(crate) number: u32,
    pub(crate) has_asked: bool,
}

impl ClientContext<'_> {
    /// A buffer of `length` bytes at `phase`, charged to `account`, or `None` where memory is short
    /// at present.
    #[inline]
    pub fn take(&mut self, account: &mut Account, length: u32, phase: u32) -> Option<Buffer> {
        self.pool.take(account, length, phase)
    }

    /// Takes a buffer back.
    #[inline]
    pub fn give(&mut self, account: &mut Account, buffer: Buffer) {
        self.pool.give(account, self.memory, buffer);
    }

    /// Asks a volume; exactly one completion comes for `slot`.
    #[inline]
    pub fn submit(&mut self, volume: VolumeId, slot: u32, operation: Operation) {
        let machine = machine::client(self.number);
        let ticket = Ticket { machine, generation: 0, slot, shard: self.shard };
        self.has_asked = true;
        self.volumes.handle_request(self.now, volume, Request { ticket, operation });
    }
}

/// The internal clients of a shard, each with the number of its machine.
#[derive(Debug, Default)]
pub(crate) struct InternalClients {
    all: Vec<(u32, Box<dyn InternalClient>)>,
    last: u32,
}

impl InternalClients {
    pub(crate) fn push(&mut self, client: Box<dyn InternalClient>) {
        self.last = self.last.wrapping_add(1);
        self.all.push((self.last, client));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Hands an answer to the client that asked.
    #[inline]
    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        context: &mut ClientContext<'_>,
    ) {
        let asked = completion.ticket.machine;
        let (number, client) = self
            .all
            .iter_mut()
            .find(|(number, _)| machine::client(*number) == asked)
            .expect("a client stays until nothing of it is below");
        context.number = *number;
        client.handle_completion(completion, context);
    }

    /// Lets each work; whether one asked for something.
    pub(crate) fn work(&mut self, context: &mut ClientContext<'_>) -> bool {
        for (number, client) in &mut self.all {
            context.number = *number;
            client.handle_turn(context);
        }
        self.all.retain(|(_, client)| !client.is_over());
        context.has_asked
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.all.iter().filter_map(|(_, client)| client.poll_timeout()).min()
    }
}
