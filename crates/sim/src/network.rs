//! The virtual network: byte streams between two ends that keep their order and nothing else.
//! Segments leave when the sender's data are read, have any length, arrive after any delay, and may
//! never arrive when the connection is cut.

use std::collections::VecDeque;

use contract::ConnectionId;

/// One of the two directions, named by its sender: 0 is who asked for the connection.
pub type End = usize;

/// Where an end is: a socket of a shard of a host, in one life of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The host.
    pub host: usize,
    /// Which life of it.
    pub life: u32,
    /// The shard.
    pub shard: usize,
    /// The shard's name of the connection.
    pub connection: ConnectionId,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    /// The ends; `None` once closed there.
    pub ends: [Option<Attachment>; 2],
    /// What is on its way to each end.
    pub flows: [Flow; 2],
    /// Whether nothing gets through any more, without anybody being told: a cable was pulled.
    pub silent: bool,
    /// Ends that are no host's.
    pub raw: [Option<usize>; 2],
    /// Whether what goes over it is covered by no digest, at present: no bit of it flips.
    pub bare: bool,
}

impl Link {
    pub(crate) fn new(ends: [Option<Attachment>; 2], raw: [Option<usize>; 2]) -> Link {
        Link { ends, flows: [Flow::default(), Flow::default()], silent: false, raw, bare: false }
    }
}

/// What is on its way to one end.
#[derive(Debug, Default)]
pub struct Flow {
    /// Segments, in order.
    pub segments: VecDeque<Segment>,
    /// When the last of them arrives: none overtakes it.
    pub last_arrival: u64,
    /// The network holds back what is on its way until then.
    pub held_until: u64,
    /// Bytes that left and were not yet consumed by the receiver: the window.
    pub outstanding: usize,
    /// Whether the sender stopped for the window.
    pub blocked: bool,
}

/// What arrives at once.
#[derive(Debug)]
pub enum Segment {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The sender closed.
    End,
    /// The connection is reset.
    Reset,
}

/// Bytes that a sender may have outstanding.
pub const WINDOW: usize = 256 << 10;
