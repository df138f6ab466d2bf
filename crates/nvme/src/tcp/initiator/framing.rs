//! One connection's framing: batches that leave, and the greeting (ICReq, ICResp) that opens it.
//!
//! One batch is with the driver at a time; what is pushed meanwhile gathers in the next. A payload
//! is lent to its batch: its buffer moves into the batch and comes back when the batch does, to the
//! job whose number was pushed with it. Errors: a [`Fault`] ends the connection, and with it the
//! association. Times: shard clock. Spec: NVMe/TCP, "Connection establishment", "Digests".

use block::checksum::{Crc32c, crc32c};
use block::limits::SEND_PROGRESS;
use block::{Buffer, Instant, Memory};
use contract::{ConnectionId, SendBatch, StreamEffect};
use remote::{JobKind, PayloadPlace};
use wire::nvme::Command;
use wire::nvme_tcp::{
    CommonHeader, DataHeader, Digests, FatalErrorStatus, ICReq, ICResp, PduFlags, PduType, TermReq,
};

use super::exchange::Job;
use crate::limits::GRANTS_MAX;
use crate::tcp::pdu_stream::Violation;

/// Why an association has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The target broke the rules; it is told so.
    Violation(Violation),
    /// Anything else, for people.
    Reason(String),
    /// The same, of what the target says would be no other if it were asked again.
    Final(String),
    /// The controller was reset; `drained`: none of its commands is carried out any more.
    Reset { drained: bool },
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
            Fault::Reset { .. } => f.write_str("the controller was reset"),
        }
    }
}

/// A rule that was broken: FES, FEI and the rule in words.
pub(super) fn broken<T>(fes: FatalErrorStatus, fei: u32, rule: &'static str) -> Result<T, Fault> {
    Err(Violation::new(fes, fei, rule).into())
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

/// A connection's sending side.
#[derive(Debug)]
pub(super) struct Framing {
    pub(super) socket: Socket,
    pub(super) digests: Digests,
    /// Most data of one H2CData.
    pub(super) max_h2c_data: u32,
    /// The greeting is over.
    pub(super) greeted: bool,
    asked: Digests,
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
    /// No connection yet; one that comes will ask for `asked`.
    pub(super) fn new(asked: Digests) -> Framing {
        Framing {
            socket: Socket::Absent,
            digests: Digests::NONE,
            max_h2c_data: ICResp::MAX_H2C_DATA_MIN,
            greeted: false,
            asked,
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

    /// The connection is there: the first PDU is ICReq.
    pub(super) fn open(&mut self, connection: ConnectionId) {
        self.socket = Socket::Open(connection);
        self.digests = Digests::NONE;
        self.greeted = false;
        let request = ICReq::new(self.asked, GRANTS_MAX as u32 - 1);
        self.gathering.push_head(&request.emit());
    }

    /// The driver is to close the connection.
    pub(super) fn close(&mut self, connection: ConnectionId, after_send: bool) -> StreamEffect {
        self.socket = Socket::Closing(connection);
        StreamEffect::Close { connection, after_send }
    }

    /// Takes ICResp from the front of the stream; the bytes it took, 0 when there are too few.
    pub(super) fn handle_greeting(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if bytes.first() == Some(&PduType::C2H_TERM_REQ.0) {
            return if bytes.len() < 24 { Ok(0) } else { fault(terminated(bytes)) };
        }
        let Ok(response) = ICResp::parse(bytes) else { return Ok(0) };
        response.check().map_err(|error| Violation::field(&error))?;
        if response.digests() != self.asked {
            let (asked, seen) = (self.asked.bits(), response.digests().bits());
            return fault(format!(
                "digests differ: asked for {asked:#x}, the target grants {seen:#x}; ask with hdgst=, ddgst="
            ));
        }
        if response.controller_data_alignment != 0 {
            let cpda = response.controller_data_alignment;
            return fault(format!(
                "the target wants aligned data (CPDA {cpda}), which we do not send"
            ));
        }
        self.digests = response.digests();
        self.max_h2c_data = response.max_h2c_data;
        self.greeted = true;
        Ok(ICResp::SIZE)
    }

    /// Appends the digest of the header that begins at `start`, if headers have one.
    #[inline]
    fn end_header(&mut self, start: usize) {
        if self.digests.header {
            let digest = crc32c(&self.gathering.head[start..]);
            self.gathering.push_head(&digest.to_le_bytes());
        }
    }

    /// Appends a command whose capsule has `length` bytes of data, which follow. It is moved once,
    /// to where it leaves from.
    #[inline]
    fn push_capsule(&mut self, command: &Command, length: u32) {
        let (kind, flags) = (PduType::CAPSULE_COMMAND, PduFlags::NONE);
        let common = CommonHeader::for_pdu(kind, flags, self.digests, length);
        let start = self.gathering.head.len();
        self.gathering.push_head(&common.emit());
        self.gathering.push_head(&command.0);
        self.end_header(start);
    }

    /// Appends a command without data in its capsule.
    #[inline]
    pub(super) fn push_command(&mut self, command: &Command) {
        self.push_capsule(command, 0);
    }

    /// Appends a command with `data` in its capsule; its SGL says so already.
    pub(super) fn push_command_with(&mut self, command: &Command, data: &[u8]) {
        self.push_capsule(command, data.len() as u32);
        self.push_bytes(data);
    }

    /// Appends a command with a part of a job's payload in its capsule.
    #[inline]
    pub(super) fn push_command_lending(
        &mut self,
        command: &Command,
        part: PayloadPart<'_>,
        memory: &mut dyn Memory,
    ) {
        self.push_capsule(command, part.length);
        self.push_part(part, memory);
    }

    /// Appends the answer to an R2T: a part of a job's payload, in PDUs of at most MAXH2CDATA.
    pub(super) fn push_answer(
        &mut self,
        command_id: u16,
        tag: u16,
        mut part: PayloadPart<'_>,
        memory: &mut dyn Memory,
    ) {
        while part.length > 0 {
            let length = part.length.min(self.max_h2c_data);
            let last = length == part.length;
            let header = DataHeader::h2c(command_id, tag, part.at, length, last, self.digests);
            let start = self.gathering.head.len();
            self.gathering.push_head(&header.emit());
            self.end_header(start);
            let PayloadPart { owner, at, .. } = part;
            self.push_part(PayloadPart { owner, at, length, job: &mut *part.job }, memory);
            (part.at, part.length) = (part.at + length, part.length - length);
        }
    }

    fn push_bytes(&mut self, data: &[u8]) {
        self.gathering.push_head(data);
        if self.digests.data {
            self.gathering.push_head(&crc32c(data).to_le_bytes());
        }
    }

    /// Appends a part of a payload, moving its buffer into the batch unless it is there already.
    #[inline]
    fn push_part(&mut self, part: PayloadPart<'_>, memory: &mut dyn Memory) {
        let PayloadPart { owner, at, length, job } = part;
        if job.kind == JobKind::Discard {
            return self.push_bytes(&job.wire.ranges[at as usize..(at + length) as usize]);
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
        if self.digests.data {
            let buffer = &self.gathering.buffers[place as usize];
            let digest = memory.crc32c(buffer, at, length, Crc32c::new()).value();
            self.gathering.push_head(&digest.to_le_bytes());
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

    /// A batch of its own that tells the target of its violation, if no batch is out. What gathered
    /// must have been dropped.
    pub(super) fn term_batch(&mut self, now: Instant, violation: &Violation) -> Option<SendBatch> {
        if self.out.is_some() {
            return None;
        }
        let mut bytes = [0; TermReq::SIZE_MAX];
        let length = violation.term_req(PduType::H2C_TERM_REQ, &[]).emit(&mut bytes);
        let mut batch = core::mem::take(&mut self.spare);
        batch.push_head(&bytes[..length]);
        self.out = Some(now);
        Some(batch)
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
        self.greeted = false;
        self.out = None;
        assert!(
            self.gathering.is_empty() && self.out_owners.is_empty(),
            "a closed connection still held buffers"
        );
    }
}

/// A part of a job's payload.
pub(super) struct PayloadPart<'a> {
    /// The job.
    pub(super) owner: u32,
    /// Where the part begins.
    pub(super) at: u32,
    /// Its bytes.
    pub(super) length: u32,
    pub(super) job: &'a mut Job,
}

/// What a C2HTermReq says, from its first 24 bytes.
pub(super) fn terminated(bytes: &[u8]) -> String {
    let fes = FatalErrorStatus(u16::from_le_bytes([bytes[8], bytes[9]]));
    let fei = u32::from_le_bytes([bytes[10], bytes[11], bytes[12], bytes[13]]);
    format!("the target ended the connection: {fes}, fei {fei:#x}")
}
