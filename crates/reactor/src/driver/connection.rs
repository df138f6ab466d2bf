//! What the driver knows of a connection, and the messages that system calls read.

use std::os::fd::{AsRawFd, OwnedFd};

use block::Instant;
use block::table::Slot;
use contract::SendBatch;
use libc::{iovec, msghdr};
use socket2::SockAddr;

use super::direct::{DirectReceive, Together};
use crate::accept::Admitted;
use crate::engine::Socket;
use crate::receive::ReceiveBuffer;

/// A connection.
pub(super) struct Connection {
    pub(super) fd: OwnedFd,
    /// Gives the connection's place up when it goes.
    _admitted: Option<Admitted>,
    /// By which more is looked for after its activity.
    pub(super) source: Slot,
    pub(super) phase: Phase,
    /// Lost has been told.
    pub(super) lost: bool,
    /// The receiving operation that is out.
    pub(super) input: Input,
    pub(super) want: Want,
    /// Bytes that the last receive had room for, and whether there were fewer.
    pub(super) asked: u32,
    pub(super) drained: bool,
    pub(super) receive_buffer: Option<ReceiveBuffer>,
    pub(super) direct: Option<DirectReceive>,
    /// Whether payloads are received together with what follows them.
    pub(super) together: Together,
    /// It is in the list of those that are shown again.
    pub(super) is_ready: bool,
    /// It is in the line for a receive buffer.
    pub(super) in_line: bool,
    /// It was silent: it has no buffer until something comes.
    pub(super) quiet: bool,
    pub(super) outgoing: Option<Outgoing>,
    /// A send or a connect is out.
    pub(super) output: bool,
    /// A watch for the other side's end is out.
    pub(super) hangup: bool,
    /// When bytes last came.
    pub(super) touched: Instant,
}

/// Where a connection is in its life.
pub(super) enum Phase {
    /// A connect is out; the address stays in place for it.
    Connecting { token: u64, _address: Box<SockAddr> },
    /// In use.
    Open,
    /// The machine has closed it; the batch that is out leaves first. So much of it had left when
    /// it was last looked at.
    Flushing { sent: u64 },
    /// The machine has closed it and all has left; what comes is dropped, at most so many bytes
    /// more and not longer than until then.
    Lingering { left: u32, until: Instant },
    /// It goes as soon as nothing is out any more.
    Gone,
}

/// The receiving operation that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    None,
    Readable,
    Receive,
    /// A receive into memory that the engine lends.
    Lent,
    Direct,
    Discard,
}

/// What the machine wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Stream { at_least: u32, at_most: u32 },
    Direct,
    Yield,
    Pause,
    Idle,
}

/// A batch that is out and how far it is.
pub(super) struct Outgoing {
    pub(super) batch: SendBatch,
    /// The first segment that has not wholly left.
    pub(super) segment: usize,
    /// Bytes of it that have.
    pub(super) at: u32,
    /// Bytes of the batch that have left.
    pub(super) sent: u64,
    pub(super) message: Option<Box<Message>>,
}

impl Connection {
    pub(super) fn new(
        fd: OwnedFd,
        admitted: Option<Admitted>,
        source: Slot,
        phase: Phase,
        now: Instant,
    ) -> Connection {
        Connection {
            fd,
            _admitted: admitted,
            source,
            phase,
            lost: false,
            input: Input::None,
            want: Want::Idle,
            asked: 0,
            drained: false,
            receive_buffer: None,
            direct: None,
            together: Together::default(),
            is_ready: false,
            in_line: false,
            quiet: true,
            outgoing: None,
            output: false,
            hangup: false,
            touched: now,
        }
    }

    /// Whether bytes may be received and shown.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.lost && matches!(self.phase, Phase::Open)
    }

    /// Whether the machine has closed it.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Flushing { .. } | Phase::Lingering { .. } | Phase::Gone)
    }

    /// Whether no operation is out.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.input == Input::None && !self.output && !self.hangup
    }

    #[inline]
    pub(super) fn socket(&self, slot: Slot) -> Socket {
        Socket { slot: slot.index, fd: self.fd.as_raw_fd() }
    }

    /// How many bytes the machine wants to see at least, and how many may be received at most.
    #[inline]
    pub(super) fn wanted(&self) -> (u32, u32) {
        match self.want {
            Want::Stream { at_least, at_most } => (at_least, at_most.max(1)),
            _ => (1, u32::MAX),
        }
    }

    /// Whether it has a receive buffer.
    pub(super) fn holds_buffer(&self) -> bool {
        let beside = self.direct.as_ref().is_some_and(DirectReceive::holds_buffer);
        beside || self.receive_buffer.is_some()
    }

    /// Bytes that were received and not consumed.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.receive_buffer.as_ref().map_or(0, ReceiveBuffer::len)
    }
}

/// A message header with its vectors; it stays in place while the kernel reads it.
pub(super) struct Message {
    header: msghdr,
    pub(super) vectors: Vec<iovec>,
}

impl Message {
    fn new() -> Box<Message> {
        // SAFETY: a message header of zeros names nothing, which is valid.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Message { header, vectors: Vec::new() })
    }

    /// The header, naming the vectors as they are now. Valid until the vectors change or the
    /// message goes.
    #[inline]
    pub(super) fn header(&mut self) -> *mut msghdr {
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len() as _;
        &raw mut self.header
    }
}

/// Messages that are not in use: an idle connection has none.
#[derive(Default)]
pub(super) struct MessagePool(
    #[allow(clippy::vec_box, reason = "a message must stay in place while the kernel has it")]
    Vec<Box<Message>>,
);

impl MessagePool {
    #[inline]
    pub(super) fn take(&mut self) -> Box<Message> {
        self.0.pop().unwrap_or_else(Message::new)
    }

    #[inline]
    pub(super) fn give(&mut self, message: Option<Box<Message>>) {
        // More than are ever in use in a turn are not worth keeping.
        if let Some(mut message) = message
            && self.0.len() < 64
        {
            message.vectors.clear();
            self.0.push(message);
        }
    }
}
