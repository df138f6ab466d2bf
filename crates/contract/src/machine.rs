//! The machine's side of the contract: one trait, its events and its effects.

use core::fmt;
use std::net::SocketAddr;

use block::{Completion, DiskId, Instant, Memory, Request, ShardId};

use crate::connection::{ConnectionId, Direct, Endpoint, Next, Receive, SendBatch};
use crate::link::{FrameBatch, InFrame, LinkFacts, LinkId};
use crate::poll::Poll;

/// One core's logic. The driver calls it in this order, over and over:
///
/// 1. [`handle_event`](Machine::handle_event), [`handle_received`](Machine::handle_received),
///    [`handle_direct`](Machine::handle_direct) and [`handle_frame`](Machine::handle_frame), for
///    everything that happened;
/// 2. [`handle_timeout`](Machine::handle_timeout), when the moment of
///    [`poll_timeout`](Machine::poll_timeout) has come;
/// 3. [`settle`](Machine::settle), once: the end of the turn, when replies are gathered into
///    batches;
/// 4. [`take_requests`](Machine::take_requests) and [`poll_effect`](Machine::poll_effect), until
///    there are none; a disk that answers at once (RAM) answers in between, by 1, and then 3 and 4
///    come again;
/// 5. [`poll_timeout`](Machine::poll_timeout), and sleep until then or until something happens.
///
/// Requests and effects may also be taken between events (the driver does so to ask disks early);
/// they are complete only after `settle`. What a machine has no use for (connections, links, disks,
/// time) it leaves out.
pub trait Machine {
    /// What shards and the control thread send each other.
    type Mail: Send + fmt::Debug + 'static;

    /// Something happened.
    fn handle_event(&mut self, now: Instant, event: Event<Self::Mail>, memory: &mut dyn Memory);

    /// Bytes came on a connection: those not consumed before, then new ones. Never called with
    /// none, for a connection that is gone, while a direct receive is under way, or while paused.
    fn handle_received(
        &mut self,
        _now: Instant,
        connection: ConnectionId,
        _bytes: &[u8],
        _memory: &mut dyn Memory,
    ) -> Receive {
        unreachable!("bytes came on {connection}, and the machine has no connections")
    }

    /// A direct receive is complete: all its bytes are in the buffer. Says what should come next.
    fn handle_direct(
        &mut self,
        _now: Instant,
        connection: ConnectionId,
        _direct: Direct,
        _memory: &mut dyn Memory,
    ) -> Next {
        unreachable!("{connection} received directly, which the machine never wanted")
    }

    /// A frame came on a link that is up. It is lent for this call.
    fn handle_frame(&mut self, _now: Instant, _frame: InFrame<'_>, _memory: &mut dyn Memory) {}

    /// The moment that `poll_timeout` named has come.
    fn handle_timeout(&mut self, _now: Instant, _memory: &mut dyn Memory) {}

    /// The end of a turn: whatever was touched makes up its mind.
    fn settle(&mut self, _now: Instant, _memory: &mut dyn Memory) {}

    /// Appends what disks are to be asked to `asks`, in order, and keeps none of it. For each
    /// exactly one [`Event::Completed`] comes, maybe at once. They come in bulk because there are
    /// many: a machine that gathers them in a `Vec` of its own swaps it with an empty `asks`.
    fn take_requests(&mut self, _asks: &mut Vec<Ask>) {}

    /// What else is to be done next.
    fn poll_effect(&mut self) -> Option<Effect<Self::Mail>>;

    /// When `handle_timeout` wants to be called, if at all. `None` costs nothing while idle.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// What can happen to a machine, apart from received bytes.
#[derive(Debug)]
pub enum Event<M> {
    /// A listener accepted a connection and gave it to this shard, for good. The driver receives as
    /// for [`Next::Idle`](crate::Next::Idle).
    Accepted {
        /// Its name from now on.
        connection: ConnectionId,
        /// Its two ends.
        endpoint: Endpoint,
    },
    /// A connection that was asked for is there.
    Connected {
        /// The asker's mark.
        token: u64,
        /// Its name from now on.
        connection: ConnectionId,
        /// The address on our side.
        local: SocketAddr,
    },
    /// A connection that was asked for could not be had; there is nothing to close.
    ConnectFailed {
        /// The asker's mark.
        token: u64,
        /// Why: an error number of the system.
        error: i32,
    },
    /// Some bytes of the batch that is out have left; it goes on.
    SendProgress {
        /// The connection.
        connection: ConnectionId,
    },
    /// The batch has left. Told before a loss if it left before the loss.
    Sent {
        /// The connection.
        connection: ConnectionId,
        /// The batch, with its buffers.
        batch: SendBatch,
    },
    /// The connection can carry nothing more (the other side closed its direction, reset, or the
    /// network failed). Told at most once, and not after [`Effect::Close`]. The machine must still
    /// close it; batches and direct receives come back with `Closed`.
    Lost {
        /// The connection.
        connection: ConnectionId,
        /// How.
        loss: Loss,
    },
    /// The connection is gone, as [`Effect::Close`] asked; nothing that was lent to it is used any
    /// more. Always told, exactly once, last.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The direct receive that was under way.
        direct: Option<Direct>,
        /// The batch that was under way.
        batch: Option<SendBatch>,
    },
    /// A link is up, or is not what it was.
    LinkUp {
        /// The link.
        link: LinkId,
        /// What is known of it now.
        facts: LinkFacts,
    },
    /// A link is down: no frame comes until it is up again, and what is sent there is dropped.
    LinkDown {
        /// The link.
        link: LinkId,
    },
    /// The frames of a batch have left, or were dropped; none of its bytes is looked at any more.
    FramesSent {
        /// The sender's mark.
        token: u32,
        /// The batch, with its buffers.
        batch: FrameBatch,
    },
    /// A disk answered.
    Completed(Completion),
    /// A shard or the control thread ([`ShardId::CONTROL`]) wrote. First in, first out between two.
    Mail {
        /// Who.
        from: ShardId,
        /// What.
        mail: M,
    },
}

/// What a disk is to be asked.
pub type Ask = (DiskId, Request);

/// How a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The other side closed.
    EndOfStream,
    /// An error number of the system.
    Error(i32),
}

impl Loss {
    /// What an initiator says of it.
    pub fn of_target(self) -> String {
        match self {
            Loss::EndOfStream => "the target closed the connection".to_owned(),
            Loss::Error(error) => {
                format!("the connection broke: {}", std::io::Error::from_raw_os_error(error))
            }
        }
    }
}

/// What a machine wants done.
#[derive(Debug)]
pub enum Effect<M> {
    /// Send a batch; one at a time per connection.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// What.
        batch: SendBatch,
    },
    /// Send frames; answered by [`Event::FramesSent`], maybe later than batches that were handed
    /// out after it.
    SendFrames {
        /// The sender's mark.
        token: u32,
        /// What.
        batch: FrameBatch,
    },
    /// Go on showing received bytes after [`Next::Pause`](crate::Next::Pause): first those that
    /// were not consumed.
    Resume {
        /// The connection.
        connection: ConnectionId,
    },
    /// Open a connection; answered by `Connected` or `ConnectFailed`, within the driver's own time
    /// limit.
    Connect {
        /// The asker's mark.
        token: u64,
        /// Where to.
        address: SocketAddr,
        /// How long to look for what comes over it.
        poll: Poll,
    },
    /// Close a connection: after the batch that is out has left if `after_send` (then what still
    /// comes in is read and dropped for a moment, so that the last words are not lost to a reset),
    /// else at once. Nothing is shown or told of it any more but `Sent` and `Closed`.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Whether the batch that is out should leave first.
        after_send: bool,
    },
    /// Write to a shard or to the control thread.
    Mail {
        /// To whom.
        to: ShardId,
        /// What.
        mail: M,
    },
}
