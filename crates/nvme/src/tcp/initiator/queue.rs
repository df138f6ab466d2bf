//! One I/O queue: its slots, and what comes in on its connection. This is the hot path.
//!
//! In: commands of jobs, received bytes. Out: jobs that are over, by [`Disk::conclude`]. A
//! command's identifier is its slot (12 bits) and the slot's generation (4 bits), so that an answer
//! that comes twice finds nothing. A slot is free again when its command was answered *and* the
//! payload that was lent to a batch is back. Data of small reads are copied out of the stream; what
//! is missing of a large one is received straight into its buffer.
//!
//! How data of reads are taken is in [`data`]. Errors: a [`Fault`] for everything that a target
//! must not do. A wrong data digest only has its command asked again. Spec: NVMe/TCP, "Command data
//! transfer", "Data digest".

mod data;

use block::limits::DIRECT_ALONE_MIN;
use block::{Failure, Instant, Memory, Outcome, planted};
use contract::{Direct, Next, Receive, SendBatch};
use remote::{JobKind, PayloadPlace, Verdict};
use wire::nvme::command::SglDescriptor;
use wire::nvme::fabrics::Register;
use wire::nvme::{Command, Completion, Status};
use wire::nvme_tcp::{CapsuleResponse, Digests, FatalErrorStatus, PduType, R2T};

use super::exchange::{Disk, Grant, Job};
use super::facts::Limits;
use super::framing::{Fault, Framing, PayloadPart, broken, fault, terminated};
use super::outcome::verdict;
use crate::limits::{
    ANSWERS_PER_SHARE, GRANTS_MAX, QUEUE_DEPTH_MAX, QUEUE_QUIET, QUEUE_SILENT,
    QUEUE_SILENT_BEHIND_DATA,
};
use crate::tcp::pdu_stream::{Front, PduHead, Violation, peek};
use data::Incoming;

/// No job.
const NONE: u32 = u32::MAX;
/// Bits of a command identifier that are the slot.
const SLOT_BITS: u32 = 12;
/// The identifier of Connect: no slot's.
const CONNECT_ID: u16 = u16::MAX;
/// The identifier of the command that asks for a sign of life: no slot's either.
const PROBE_ID: u16 = u16::MAX - 1;
const _: () = assert!(QUEUE_DEPTH_MAX < (1 << SLOT_BITS) - 2);
/// What may arrive beyond the header that we wait for while one large read is all that is under way:
/// a response, a digest, the next header.
const HEADERS_AHEAD: u32 = 96;
/// What one receive takes of everything else.
const UNBOUNDED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    job: u32,
    generation: u16,
}

/// What else came out of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueNews {
    /// The connection is greeted: Connect may follow.
    Greeted,
    /// Connect was answered.
    Connected(Completion),
}

/// An I/O queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) framing: Framing,
    /// Connect was answered well.
    pub(super) live: bool,
    slots: Vec<Slot>,
    free: Vec<u16>,
    outstanding: u32,
    /// Those of the outstanding that are large reads.
    large_reads: u32,
    /// Those that have their data in the capsule.
    laden: u32,
    incoming: Option<Incoming>,
    pub(super) news: Option<QueueNews>,
    /// A command made in this period of the keep-alive timer was answered.
    pub(super) answered_period: u32,
    /// When something came or left last, or when the first of the commands under way was sent.
    heard: Instant,
    /// A sign of life was asked for and has not come.
    probing: bool,
}

impl Queue {
    /// A queue without connection.
    pub(super) fn new(asked: Digests) -> Queue {
        Queue {
            framing: Framing::new(asked),
            live: false,
            slots: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            large_reads: 0,
            laden: 0,
            incoming: None,
            news: None,
            answered_period: u32::MAX,
            heard: Instant::ZERO,
            probing: false,
        }
    }

    /// Gives it `depth` slots. None is taken.
    pub(super) fn set_depth(&mut self, depth: u16) {
        assert_eq!(self.outstanding, 0, "slots are taken");
        self.slots = vec![Slot { job: NONE, generation: 0 }; usize::from(depth)];
        self.free = (0..depth).rev().collect();
    }

    /// Sends Connect.
    pub(super) fn connect(&mut self, command: Command, data: &[u8]) {
        self.framing.push_command_with(&command.with_command_id(CONNECT_ID), data);
    }

    /// Whether it takes a command.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.live && !self.free.is_empty()
    }

    /// Commands under way.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// A command is about to be sent: from now on the target owes us something.
    #[inline]
    pub(super) fn expect_answers(&mut self, now: Instant) {
        if self.outstanding == 0 {
            self.heard = now;
        }
    }

    /// Some of a batch left: the peer's kernel takes bytes.
    pub(super) fn handle_progress(&mut self, now: Instant) {
        self.framing.handle_progress(now);
        self.heard = self.heard.max(now);
    }

    /// When [`probe`](Self::probe) wants to be called: nothing was heard for `slack` times the
    /// usual while something is asked.
    #[inline]
    pub(super) fn quiet_at(&self, slack: u32) -> Option<Instant> {
        if self.outstanding == 0 || !self.live {
            return None;
        }
        if !self.probing {
            return Some(self.heard + QUEUE_QUIET * slack);
        }
        let least = if self.laden > 0 { QUEUE_SILENT_BEHIND_DATA } else { QUEUE_SILENT };
        let silent = ((QUEUE_QUIET + QUEUE_SILENT) * slack).max(QUEUE_QUIET + least);
        Some(self.heard + silent)
    }

    /// Asks a quiet queue for a sign of life; returns whether it was asked before and is silent.
    pub(super) fn probe(&mut self, now: Instant, slack: u32) -> bool {
        if self.quiet_at(slack).is_none_or(|at| at > now) {
            return false;
        }
        if self.probing {
            return true;
        }
        // Property Get belongs on admin queues: every target refuses it here at once, without
        // memory or a disk. And a queue has one entry more than we use for disk.
        let probe = Command::property_get(Register::CSTS.0, false).with_command_id(PROBE_ID);
        self.framing.push_command(&probe);
        self.probing = true;
        false
    }

    /// Sends a job's command. There must be room.
    #[inline]
    pub(super) fn submit(
        &mut self,
        index: u32,
        command: &mut Command,
        sends: u32,
        disk: &mut Disk,
        limits: &Limits,
        memory: &mut dyn Memory,
    ) {
        let slot = self.free.pop().expect("the caller saw that there is room");
        let entry = &mut self.slots[usize::from(slot)];
        entry.job = index;
        let id = slot | entry.generation << SLOT_BITS;
        self.outstanding += 1;
        let job = &mut disk[index];
        self.large_reads += u32::from(is_large_read(job));
        let wire = &mut job.wire;
        (wire.slot, wire.batch) = (slot, self.framing.gathering_number());
        (wire.received, wire.granted, wire.grants, wire.bad_digest) = (0, 0, 0, false);
        wire.is_laden = sends > 0 && sends <= limits.capsule;
        self.laden += u32::from(wire.is_laden);
        *command = command.with_command_id(id);
        if !wire.is_laden {
            self.framing.push_command(command);
            return;
        }
        wire.granted = sends;
        *command = command.with_sgl(SglDescriptor::in_capsule(sends));
        let part = PayloadPart { owner: index, at: 0, length: sends, job };
        self.framing.push_command_lending(command, part, memory);
    }

    /// The job and slot of a command identifier.
    #[inline]
    fn find(&self, id: u16) -> Result<(u16, u32), Fault> {
        let slot = id & ((1 << SLOT_BITS) - 1);
        match self.slots.get(usize::from(slot)) {
            Some(entry) if entry.job != NONE && entry.generation == id >> SLOT_BITS => {
                Ok((slot, entry.job))
            }
            _ => {
                let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
                broken(fes, 8, "a command identifier that is not under way")
            }
        }
    }

    /// Takes received bytes, of a few answers at most: then [`Next::Yield`] asks to be shown the
    /// rest at once, when what the answers came to is no longer in the way.
    #[inline]
    pub(super) fn handle_received(
        &mut self,
        now: Instant,
        bytes: &[u8],
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<Receive, Fault> {
        self.heard = now;
        let mut at = 0;
        if !self.framing.greeted {
            at = self.framing.handle_greeting(bytes)?;
            if at == 0 {
                let next = Next::Stream { at_least: 128, at_most: UNBOUNDED };
                return Ok(Receive { consumed: 0, next });
            }
            self.news = Some(QueueNews::Greeted);
        }
        if let Some(mut incoming) = self.incoming {
            let (used, next) = self.take_data(now, &mut incoming, &bytes[at..], disk, memory)?;
            at += used;
            if let Some(next) = next {
                return Ok(Receive { consumed: at, next });
            }
        }
        let (before, mut incoming) = (self.outstanding, Incoming::default());
        loop {
            if at == bytes.len() {
                return Ok(Receive { consumed: at, next: self.front() });
            }
            if before - self.outstanding >= ANSWERS_PER_SHARE {
                return Ok(Receive { consumed: at, next: Next::Yield });
            }
            match peek(&bytes[at..], self.framing.digests)? {
                Front::Short(at_least) => {
                    let next = Next::Stream { at_least, at_most: self.at_most() };
                    return Ok(Receive { consumed: at, next });
                }
                Front::Pdu(head) if head.common.kind == PduType::C2H_DATA => {
                    self.begin_data(head, &bytes[at..], disk, &mut incoming)?;
                    at += head.data_at as usize;
                    let (used, next) =
                        self.take_data(now, &mut incoming, &bytes[at..], disk, memory)?;
                    at += used;
                    if let Some(next) = next {
                        return Ok(Receive { consumed: at, next });
                    }
                }
                Front::Pdu(head) => {
                    self.handle_pdu(now, head, &bytes[at..], disk, memory)?;
                    at += head.data_at as usize;
                }
            }
        }
    }

    /// What to ask for at the front of a PDU.
    #[inline]
    fn front(&self) -> Next {
        if self.outstanding == 0 && self.live {
            return Next::Idle;
        }
        Next::Stream { at_least: 1, at_most: self.at_most() }
    }

    #[inline]
    fn at_most(&self) -> u32 {
        let awaits_one = self.outstanding == 1 && self.large_reads == 1;
        if awaits_one { HEADERS_AHEAD } else { UNBOUNDED }
    }

    #[inline]
    fn handle_pdu(
        &mut self,
        now: Instant,
        head: PduHead,
        bytes: &[u8],
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<(), Fault> {
        match head.common.kind {
            PduType::CAPSULE_RESPONSE => {
                let response = CapsuleResponse::parse(bytes).expect("the header is whole");
                self.handle_response(now, response.completion, disk)
            }
            PduType::R2T => {
                let grant = R2T::parse(bytes).expect("the header is whole");
                self.handle_grant(grant, disk, memory)
            }
            PduType::C2H_TERM_REQ => fault(terminated(bytes)),
            _ => Err(Violation::sequence("a PDU that only a host sends").into()),
        }
    }

    #[inline]
    fn handle_response(
        &mut self,
        now: Instant,
        completion: Completion,
        disk: &mut Disk,
    ) -> Result<(), Fault> {
        if !self.live {
            if completion.command_id != CONNECT_ID {
                return Err(Violation::sequence("a response before Connect was answered").into());
            }
            self.news = Some(QueueNews::Connected(completion));
            return Ok(());
        }
        if completion.command_id == PROBE_ID && core::mem::take(&mut self.probing) {
            return Ok(());
        }
        let (slot, index) = self.find(completion.command_id)?;
        self.answer(now, slot, index, completion.status, disk)
    }

    /// A command was answered.
    #[inline]
    fn answer(
        &mut self,
        now: Instant,
        slot: u16,
        index: u32,
        status: Status,
        disk: &mut Disk,
    ) -> Result<(), Fault> {
        let job = &mut disk[index];
        if job.verdict.is_some() {
            // It keeps its slot only until its payload is back.
            let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
            return broken(fes, 8, "one answer to a command");
        }
        let mut verdict = verdict(status);
        if verdict == Verdict::Finish(Outcome::Done) {
            if job.kind == JobKind::Read && u64::from(job.wire.received) != job.extent.length.0 {
                let rule = "a read that succeeded without all its data";
                return Err(Violation::sequence(rule).into());
            }
            if job.wire.bad_digest {
                verdict = Verdict::Retry(Failure::MediumRead);
            }
        }
        job.wire.grants = 0;
        self.answered_period = job.wire.period;
        self.large_reads -= u32::from(is_large_read(job));
        self.laden -= u32::from(job.wire.is_laden);
        self.outstanding -= 1;
        if job.place == PayloadPlace::Home {
            self.free_slot(slot);
            disk.conclude(now, index, verdict);
        } else {
            // The payload is still with the transport: the slot is freed when it is back.
            job.verdict = Some(verdict);
        }
        Ok(())
    }

    #[inline]
    fn free_slot(&mut self, slot: u16) {
        let entry = &mut self.slots[usize::from(slot)];
        entry.job = NONE;
        entry.generation = (entry.generation + 1) & 0xf;
        self.free.push(slot);
    }

    /// R2T: the target wants a part of a command's data.
    fn handle_grant(
        &mut self,
        grant: R2T,
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<(), Fault> {
        let (_, index) = self.find(grant.command_id)?;
        let job = &mut disk[index];
        let sends = match job.kind {
            JobKind::Discard => job.wire.ranges.len() as u64,
            JobKind::Write | JobKind::Compare => job.extent.length.0,
            _ => 0,
        };
        let wire = &mut job.wire;
        let end = u64::from(grant.offset) + u64::from(grant.length);
        let in_order = grant.length > 0 && grant.offset == wire.granted;
        if !in_order || end > sends || job.verdict.is_some() {
            let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
            return broken(fes, 12, "an R2T in order and within the command");
        }
        wire.granted = end as u32;
        if usize::from(wire.grants) == GRANTS_MAX {
            let fes = FatalErrorStatus::LIMIT_EXCEEDED;
            return broken(fes, 0, "no more R2Ts at once than ICReq says");
        }
        let waiting = Grant { tag: grant.transfer_tag, at: grant.offset, length: grant.length };
        wire.waiting_grants[usize::from(wire.grants)] = waiting;
        wire.grants += 1;
        self.serve_grants(index, grant.command_id, disk, memory);
        Ok(())
    }

    /// Sends what was asked for, if the payload is at home.
    fn serve_grants(&mut self, index: u32, id: u16, disk: &mut Disk, memory: &mut dyn Memory) {
        let job = &mut disk[index];
        let batch = self.framing.gathering_number();
        if job.wire.grants == 0 || !job.place.is_within_reach(batch) {
            return;
        }
        let grants = core::mem::take(&mut job.wire.grants);
        for at in 0..usize::from(grants) {
            let Grant { tag, at, length } = job.wire.waiting_grants[at];
            let part = PayloadPart { owner: index, at, length, job: &mut *job };
            self.framing.push_answer(id, tag, part, memory);
        }
    }

    /// A batch is back: payloads go home, what waited for them goes on.
    #[inline]
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        batch: SendBatch,
        disk: &mut Disk,
        returned: &mut Vec<u32>,
        memory: &mut dyn Memory,
    ) {
        self.framing.take_back(batch, |index, buffer| {
            disk.take_home(index, buffer);
            let job = &disk[index];
            if job.verdict.is_some() || job.wire.grants > 0 {
                returned.push(index);
            }
        });
        for index in returned.drain(..) {
            let slot = disk[index].wire.slot;
            if let Some(verdict) = disk[index].verdict.take() {
                self.free_slot(slot);
                disk.conclude(now, index, verdict);
            } else {
                let id = slot | self.slots[usize::from(slot)].generation << SLOT_BITS;
                self.serve_grants(index, id, disk, memory);
            }
        }
    }

    /// The connection is gone: takes back what was lent, empties the slots and tells which jobs
    /// lost their command, and whether it may have left.
    pub(super) fn handle_closed(
        &mut self,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
        disk: &mut Disk,
    ) -> Vec<(u32, bool)> {
        if let Some(direct) = direct {
            disk.take_home(direct.token as u32, direct.buffer);
        }
        if let Some(batch) = batch {
            self.framing.take_back(batch, |index, buffer| disk.take_home(index, buffer));
        }
        self.drop_gathering(disk);
        self.framing.closed();
        (self.live, self.probing) = (false, false);
        (self.incoming, self.news) = (None, None);
        (self.outstanding, self.large_reads, self.laden) = (0, 0, 0);
        let mut lost = Vec::new();
        for slot in 0..self.slots.len() as u16 {
            let index = self.slots[usize::from(slot)].job;
            if index != NONE {
                let left = disk[index].wire.batch != self.framing.gathering_number();
                lost.push((index, left && !planted("what-left-is-forgotten")));
                self.free_slot(slot);
            }
        }
        lost
    }

    /// Drops what has not left.
    pub(super) fn drop_gathering(&mut self, disk: &mut Disk) {
        self.framing.drop_gathering(|index, buffer| disk.take_home(index, buffer));
    }
}

#[inline]
fn is_large_read(job: &Job) -> bool {
    job.kind == JobKind::Read && job.extent.length.0 >= u64::from(DIRECT_ALONE_MIN)
}
