//! The connection's framing: batches that leave, with padding and digests.
//!
//! One batch is with the driver at a time; what is pushed meanwhile gathers in the next. A payload
//! is lent to its batch: its buffer moves into the batch and comes back when the batch does, to the
//! job whose number was pushed with it. Errors: a [`Fault`] ends the connection, and with it the
//! session. Times: shard clock. Spec: RFC 7143, 11.2.

use std::net::SocketAddr;

use block::checksum::{Crc32c, crc32c};
use block::limits::SEND_PROGRESS;
use block::{Buffer, Instant, Memory};
use contract::{ConnectionId, SendBatch, StreamEffect};
use remote::{JobKind, PayloadPlace};
use wire::iscsi::{Digests, padding};

use super::exchange::Job;
use crate::pdu_stream::Violation;

/// Why a session has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The target broke the rules.
    Violation(Violation),
    /// Anything else, for people.
    Reason(String),
    /// The same, of what the target says would be no other if it were asked again.
    Final(String),
    /// The target is to be found there.
    Moved(SocketAddr),
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Fault {
        Fault::Violation(violation)
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Fault::Violation(violation) => write!(f, "the target broke the protocol: {violation}"),
            Fault::Reason(reason) | Fault::Final(reason) => f.write_str(reason),
            Fault::Moved(address) => write!(f, "the target moved to {address}"),
        }
    }
}

/// A rule that was broken, in words.
pub(super) fn broken<T>(rule: &'static str) -> Result<T, Fault> {
    Err(Violation::protocol(rule).into())
}

/// A fault in words.
pub(super) fn fault<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Reason(reason.into()))
}

/// A connection's life with the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// None.
    Absent,
    /// Asked for; `unwanted` if it is to be closed as soon as it is there.
    Asked {
        token: u32,
        unwanted: bool,
    },
    Open(ConnectionId),
    /// Closing: the driver has yet to say that it is closed.
    Closing(ConnectionId),
}

/// Zeros that are sent and have to be known by their digest.
const ZEROS: [u8; 4096] = [0; 4096];

/// A connection's sending side.
#[derive(Debug)]
pub(super) struct Framing {
    pub(super) socket: Socket,
    /// None before the full feature phase.
    pub(super) digests: Digests,
    gathering: SendBatch,
    /// The jobs whose buffers are in the gathering batch, by place.
    owners: Vec<u32>,
    /// Number of the gathering batch.
    number: u32,
    spare: SendBatch,
    out_owners: Vec<u32>,
    /// When the batch that is out made its last progress.
    out: Option<Instant>,
}

impl Framing {
    /// No connection yet.
    pub(super) fn new(socket: Socket) -> Framing {
        Framing {
            socket,
            digests: Digests::NONE,
            gathering: SendBatch::default(),
            owners: Vec::new(),
            number: 0,
            spare: SendBatch::default(),
            out_owners: Vec::new(),
            out: None,
        }
    }

    /// Whether the connection is this one.
    #[inline]
    pub(super) fn is(&self, connection: ConnectionId) -> bool {
        matches!(self.socket, Socket::Open(id) | Socket::Closing(id) if id == connection)
    }

    /// Whether it can carry anything.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self.socket, Socket::Open(_))
    }

    /// The driver is to close the connection.
    pub(super) fn close(&mut self, connection: ConnectionId) -> StreamEffect {
        self.socket = Socket::Closing(connection);
        StreamEffect::Close { connection, after_send: false }
    }

    /// Appends a header, and its digest if headers have one.
    #[inline]
    pub(super) fn push_header(&mut self, header: &[u8]) {
        self.gathering.push_head(header);
        if self.digests.header {
            self.gathering.push_head(&crc32c(header).to_le_bytes());
        }
    }

    /// Appends data that lie in no buffer, with padding and digest.
    pub(super) fn push_bytes(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.gathering.push_head(data);
        self.end_data(data.len() as u32, Crc32c::new().update(data));
    }

    fn push_zeros(&mut self, length: u32) {
        self.gathering.push_zeros(length);
        let mut running = Crc32c::new();
        let mut left = if self.digests.data { length as usize } else { 0 };
        while left > 0 {
            let here = left.min(ZEROS.len());
            running = running.update(&ZEROS[..here]);
            left -= here;
        }
        self.end_data(length, running);
    }

    /// Appends a part of what a job sends, moving its buffer into the batch unless it is there
    /// already.
    #[inline]
    pub(super) fn push_part(&mut self, part: PayloadPart<'_>, memory: &mut dyn Memory) {
        let PayloadPart { owner, at, length, job } = part;
        match job.kind {
            JobKind::Discard if !job.wire.ranges.is_empty() => {
                return self.push_bytes(&job.wire.ranges[at as usize..(at + length) as usize]);
            }
            // The block that WRITE SAME repeats.
            JobKind::Discard | JobKind::Zeroes { .. } => return self.push_zeros(length),
            _ => {}
        }
        let place = match job.place {
            PayloadPlace::Batch { number, place } if number == self.number => place,
            PayloadPlace::Home => {
                let place = self.gathering.push_buffer(core::mem::take(&mut job.buffer));
                self.owners.push(owner);
                job.place = PayloadPlace::Batch { number: self.number, place };
                place
            }
            elsewhere => unreachable!("a payload is sent while it is lent: {elsewhere:?}"),
        };
        self.gathering.push_data(place, at, length);
        let mut running = Crc32c::new();
        if self.digests.data {
            let buffer = &self.gathering.buffers[place as usize];
            running = memory.crc32c(buffer, at, length, running);
        }
        self.end_data(length, running);
    }

    /// Appends what follows `length` bytes of data: padding, and a digest of both.
    #[inline]
    fn end_data(&mut self, length: u32, running: Crc32c) {
        let pad = &ZEROS[..padding(length) as usize];
        if !pad.is_empty() {
            self.gathering.push_head(pad);
        }
        if self.digests.data {
            let digest = if pad.is_empty() { running } else { running.update(pad) };
            self.gathering.push_head(&digest.value().to_le_bytes());
        }
    }

    /// What gathered leaves, if anything did and no batch is out.
    #[inline]
    pub(super) fn poll_send(&mut self, now: Instant) -> Option<StreamEffect> {
        let Socket::Open(connection) = self.socket else { return None };
        if self.out.is_some() || self.gathering.is_empty() {
            return None;
        }
        self.out = Some(now);
        self.number = self.number.wrapping_add(1);
        core::mem::swap(&mut self.owners, &mut self.out_owners);
        let batch = core::mem::replace(&mut self.gathering, core::mem::take(&mut self.spare));
        Some(StreamEffect::Send { connection, batch })
    }

    /// The batch came back: each buffer goes to `home` with the number of its job.
    #[inline]
    pub(super) fn take_back(&mut self, mut batch: SendBatch, mut home: impl FnMut(u32, Buffer)) {
        self.out = None;
        for (buffer, owner) in batch.buffers.drain(..).zip(self.out_owners.drain(..)) {
            home(owner, buffer);
        }
        batch.clear();
        self.spare = batch;
    }

    /// Drops what gathers; the buffers go `home`.
    pub(super) fn drop_gathering(&mut self, mut home: impl FnMut(u32, Buffer)) {
        let buffers = self.gathering.buffers.drain(..);
        for (buffer, owner) in buffers.zip(self.owners.drain(..)) {
            home(owner, buffer);
        }
        self.gathering.clear();
    }

    /// The number of the batch that gathers.
    #[inline]
    pub(super) fn gathering_number(&self) -> u32 {
        self.number
    }

    /// Some of the batch left.
    pub(super) fn handle_progress(&mut self, now: Instant) {
        if let Some(out) = &mut self.out {
            *out = now;
        }
    }

    /// When the batch that is out is overdue.
    #[inline]
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        if self.is_open() { self.out.map(|progress| progress + SEND_PROGRESS) } else { None }
    }

    /// The connection is gone, all that was lent is back.
    pub(super) fn closed(&mut self) {
        self.socket = Socket::Absent;
        self.digests = Digests::NONE;
        self.out = None;
        assert!(
            self.gathering.is_empty() && self.out_owners.is_empty(),
            "a closed connection still held buffers"
        );
    }
}

/// A part of what a job sends.
pub(super) struct PayloadPart<'a> {
    /// The job.
    pub(super) owner: u32,
    /// Where the part begins.
    pub(super) at: u32,
    /// Its bytes.
    pub(super) length: u32,
    pub(super) job: &'a mut Job,
}
