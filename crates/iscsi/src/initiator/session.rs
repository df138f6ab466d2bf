//! The session with its one connection: its commands, and what comes in. This is the hot path.
//!
//! In: commands of jobs, received bytes. Out: jobs that are over, by [`Disk::conclude`], and
//! [`News`]. A task tag is a slot (11 bits), whether an abort of its task is meant (1 bit), and the
//! slot's generation (20 bits), so that an answer that comes twice finds nothing. A slot is free
//! again when its command was answered *and* the payload that was lent to a batch is back. Data of
//! small reads are copied out of the stream; what is missing of a large one is received straight
//! into its buffer.
//!
//! How commands and their data leave is in [`send`], how data of reads are taken in [`data`], and
//! what else a target says in [`control`]. Errors: a [`Fault`] for everything that a target must
//! not do. A wrong data digest only has its command asked again. Spec: RFC 7143, 4.2 and 11.

mod control;
mod data;
mod send;

use std::collections::VecDeque;

use block::limits::DIRECT_ALONE_MIN;
use block::{Failure, Instant, Memory, Outcome, planted};
use contract::{ConnectionId, Direct, Next, Receive, SendBatch};
use remote::{JobKind, PayloadPlace, Verdict, backoff};
use wire::iscsi::{Bhs, Digests, Opcode, Residual, ResponseCode, ScsiResponse};
use wire::scsi::{ScsiStatus, Sense};

use super::exchange::{Disk, Job, Sync};
use super::framing::{Fault, Framing, Socket, broken, fault};
use super::login::{Login, Who};
use super::numbers::{Numbers, numbers_of};
use super::outcome::{Attention, attention, verdict};
use crate::limits::{
    ANSWERS_PER_SHARE, FULL_REST_FIRST, FULL_REST_MAX, INITIATOR_DEPTH_MAX, INITIATOR_REPLY_MAX,
    INITIATOR_SEGMENT_MAX, TEXT_SEGMENT_MAX,
};
use crate::negotiation::Parameters;
use crate::pdu_stream::{Front, PduHead, peek};
use control::{Abort, Question};
use data::Incoming;

pub(super) use control::Reply;

/// No job.
const NONE: u32 = u32::MAX;
/// Bits of a task tag that are the slot.
const SLOT_BITS: u32 = 12;
const GENERATIONS: u32 = (1 << (32 - SLOT_BITS)) - 1;
/// What stands for the slot of a request to abort a task, with the task's own slot.
const ABORT: u32 = 1 << (SLOT_BITS - 1);
/// Tags of what is no task: no slot's either.
const QUESTION: u32 = (1 << SLOT_BITS) - 2;
const PING_TAG: u32 = (1 << SLOT_BITS) - 3;
const LOGOUT_TAG: u32 = (1 << SLOT_BITS) - 4;
const _: () = assert!((INITIATOR_DEPTH_MAX as u32) < ABORT - 4);
/// What may arrive beyond the header that we wait for while one large read is all that is under way:
/// a response, its digest, the next header.
const HEADERS_AHEAD: u32 = 112;
/// What one receive takes of everything else.
const UNBOUNDED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    job: u32,
    generation: u32,
    /// The task is over, and the payload that it lent is not back.
    is_over: bool,
}

/// How far the connection is.
#[derive(Debug)]
enum Phase {
    Absent,
    Login(Box<Login>),
    FullFeature,
}

/// What else came out of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    LoggedIn,
    /// A question was answered.
    Answered(Reply),
    Attention(Attention),
    /// The target wants us to log out within so many seconds.
    LogoutWanted(u16),
    LoggedOut,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) framing: Framing,
    lun: [u8; 8],
    phase: Phase,
    numbers: Numbers,
    parameters: Parameters,
    slots: Vec<Slot>,
    free: Vec<u16>,
    outstanding: u32,
    /// Those of the outstanding that are large reads.
    large_reads: u32,
    /// Those that sent data unasked.
    laden: u32,
    /// Jobs that are done but for a command that makes them durable.
    held: VecDeque<u32>,
    incoming: Option<Incoming>,
    question: Option<Question>,
    questions_asked: u32,
    aborts: Vec<Abort>,
    /// Answers to questions of the target in the batch of this number.
    pongs: (u32, u32),
    pub(super) news: VecDeque<News>,
    /// When something came or left last.
    heard: Instant,
    /// When the last command was sent.
    pub(super) sent: Instant,
    /// A sign of life was asked for and has not come.
    probing: bool,
    /// The target had no room for a command: none is sent until then. And how often in a row.
    rests_until: Option<Instant>,
    rests: u32,
}

impl Session {
    /// Of a unit, with `depth` commands at most. The connection may have been asked for.
    pub(super) fn new(lun: [u8; 8], depth: u16, socket: Socket) -> Session {
        Session {
            framing: Framing::new(socket),
            lun,
            phase: Phase::Absent,
            numbers: Numbers::new(),
            parameters: Parameters::default(),
            slots: vec![Slot { job: NONE, generation: 0, is_over: false }; usize::from(depth)],
            free: (0..depth).rev().collect(),
            outstanding: 0,
            large_reads: 0,
            laden: 0,
            held: VecDeque::new(),
            incoming: None,
            question: None,
            questions_asked: 0,
            aborts: Vec::new(),
            pongs: (0, 0),
            news: VecDeque::new(),
            heard: Instant::ZERO,
            sent: Instant::ZERO,
            probing: false,
            rests_until: None,
            rests: 0,
        }
    }

    /// The connection is there: the login begins.
    pub(super) fn open(&mut self, now: Instant, connection: ConnectionId, who: Who) {
        self.framing.socket = Socket::Open(connection);
        (self.heard, self.sent) = (now, now);
        let login = Login::begin(who, &mut self.framing, &self.numbers);
        self.phase = Phase::Login(Box::new(login));
    }

    #[inline]
    fn is_live(&self) -> bool {
        matches!(self.phase, Phase::FullFeature)
    }

    /// Whether it takes a command of a job.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let is_there_room = !self.free.is_empty() && self.numbers.has_room();
        self.is_live() && is_there_room && self.rests_until.is_none()
    }

    /// Commands of jobs under way.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The job and slot of a task tag.
    #[inline]
    fn find(&self, tag: u32) -> Result<(u16, u32), Fault> {
        let slot = tag & ((1 << SLOT_BITS) - 1);
        match self.slots.get(slot as usize) {
            Some(entry)
                if entry.job != NONE && entry.generation == tag >> SLOT_BITS && !entry.is_over =>
            {
                Ok((slot as u16, entry.job))
            }
            _ => broken("a tag of a task that is under way"),
        }
    }

    /// The tag of the task that has a slot.
    #[inline]
    fn tag(&self, slot: u16) -> u32 {
        u32::from(slot) | self.slots[usize::from(slot)].generation << SLOT_BITS
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
        if let Some(mut incoming) = self.incoming {
            let (used, next) = self.take_data(now, &mut incoming, bytes, disk, memory)?;
            at = used;
            if let Some(next) = next {
                return Ok(Receive { consumed: at, next });
            }
        }
        let (before, mut incoming) = (self.outstanding, Incoming::default());
        loop {
            if at == bytes.len() {
                return Ok(Receive { consumed: at, next: self.front() });
            }
            if before.saturating_sub(self.outstanding) >= ANSWERS_PER_SHARE {
                return Ok(Receive { consumed: at, next: Next::Yield });
            }
            let front = &bytes[at..];
            let (digests, most) = (self.framing.digests, self.segment_max());
            let head = match peek(front, digests, most)? {
                Front::Pdu(head) => head,
                Front::Short(at_least) => {
                    let next = Next::Stream { at_least, at_most: self.at_most() };
                    return Ok(Receive { consumed: at, next });
                }
            };
            if self.is_of_job(head.bhs) {
                self.begin_data(head, front, disk, &mut incoming)?;
                at += head.data_at as usize;
                let (used, next) =
                    self.take_data(now, &mut incoming, &bytes[at..], disk, memory)?;
                at += used;
                if let Some(next) = next {
                    return Ok(Receive { consumed: at, next });
                }
                continue;
            }
            if head.data_length > INITIATOR_REPLY_MAX {
                return broken("no more data than was asked for");
            }
            let whole = head.total(digests);
            if front.len() < whole as usize {
                let next = Next::Stream { at_least: whole, at_most: self.at_most() };
                return Ok(Receive { consumed: at, next });
            }
            self.handle_pdu(now, head, &front[..whole as usize], disk, memory)?;
            at += whole as usize;
        }
    }

    /// Data of a PDU that may come now.
    #[inline]
    fn segment_max(&self) -> u32 {
        if self.is_live() { INITIATOR_SEGMENT_MAX } else { TEXT_SEGMENT_MAX }
    }

    /// Whether a PDU holds data for a job.
    #[inline]
    fn is_of_job(&self, bhs: Bhs) -> bool {
        let slot = bhs.initiator_task_tag & ((1 << SLOT_BITS) - 1);
        bhs.opcode() == Opcode::DATA_IN && self.is_live() && slot != QUESTION
    }

    /// What to ask for at the front of a PDU.
    #[inline]
    fn front(&self) -> Next {
        if self.outstanding == 0 && self.is_live() && self.question.is_none() {
            return Next::Idle;
        }
        Next::Stream { at_least: 1, at_most: self.at_most() }
    }

    #[inline]
    fn at_most(&self) -> u32 {
        let awaits_one = self.outstanding == 1 && self.large_reads == 1;
        if awaits_one { HEADERS_AHEAD } else { UNBOUNDED }
    }

    /// A PDU that is all there.
    #[inline]
    fn handle_pdu(
        &mut self,
        now: Instant,
        head: PduHead,
        pdu: &[u8],
        disk: &mut Disk,
        memory: &mut dyn Memory,
    ) -> Result<(), Fault> {
        if !head.data_are_right(pdu, self.framing.digests) {
            return fault(format!("the data digest of a {} was wrong", head.bhs.opcode()));
        }
        let data = head.data(pdu);
        match (&self.phase, head.bhs.opcode()) {
            (Phase::FullFeature, Opcode::SCSI_RESPONSE) => {
                self.handle_response(now, pdu, data, disk)
            }
            (Phase::FullFeature, Opcode::R2T) => self.handle_r2t(pdu, disk, memory),
            (Phase::FullFeature, _) => self.handle_control(now, head.bhs, pdu, data, disk),
            (_, Opcode::LOGIN_RESPONSE) => self.log_in(pdu, data),
            _ => broken("a login before everything else"),
        }
    }

    #[cold]
    fn log_in(&mut self, pdu: &[u8], text: &[u8]) -> Result<(), Fault> {
        let response = wire::iscsi::LoginResponse::parse(pdu).expect("the header is whole");
        let Phase::Login(login) = &mut self.phase else {
            return broken("one login");
        };
        let done = login.handle(&response, text, &mut self.framing, &mut self.numbers)?;
        if let Some(parameters) = done {
            let Parameters { header_digest: header, data_digest: data, .. } = parameters;
            self.framing.digests = Digests { header, data };
            self.parameters = parameters;
            self.phase = Phase::FullFeature;
            self.news.push_back(News::LoggedIn);
        }
        Ok(())
    }

    #[inline]
    fn handle_response(
        &mut self,
        now: Instant,
        pdu: &[u8],
        data: &[u8],
        disk: &mut Disk,
    ) -> Result<(), Fault> {
        let response = ScsiResponse::parse(pdu).expect("the header is whole");
        self.numbers.note_status(numbers_of!(response))?;
        // What is known of a task that failed in the target's own hands is nothing.
        let status = match response.response {
            ResponseCode::COMPLETED => ScsiStatus(response.status),
            _ => ScsiStatus::TASK_ABORTED,
        };
        let sense = if data.is_empty() { None } else { sense_of(data) };
        if self.is_question(response.initiator_task_tag) {
            self.answer_question(status, sense);
            return Ok(());
        }
        let (slot, index) = self.find(response.initiator_task_tag)?;
        let end = End { status, sense, residual: response.residual() };
        self.answer(now, (slot, index), end, disk)
    }

    /// A command was answered.
    #[inline]
    fn answer(
        &mut self,
        now: Instant,
        (slot, index): (u16, u32),
        end: End,
        disk: &mut Disk,
    ) -> Result<(), Fault> {
        let job = &mut disk[index];
        let Some(mut verdict) = verdict(job.kind, end.status, end.sense.as_ref()) else {
            self.put_back(now, slot, index, disk);
            return Ok(());
        };
        if let Some(sense) = &end.sense
            && let Some(attention) = attention(sense)
        {
            self.news.push_back(News::Attention(attention));
        }
        if verdict == Verdict::Finish(Outcome::Done) {
            self.rests = 0;
            check_moved(job, end.residual)?;
            if job.wire.bad_digest {
                verdict = Verdict::Retry(Failure::MediumRead);
            } else if job.wire.sync == Sync::Owed {
                self.hold(slot, index, job);
                return Ok(());
            }
        }
        self.end_task(now, slot, index, verdict, disk);
        Ok(())
    }

    /// A job is done but for what makes it durable: it keeps its slot, under another tag.
    #[cold]
    fn hold(&mut self, slot: u16, index: u32, job: &mut Job) {
        self.laden -= u32::from(core::mem::take(&mut job.wire.is_laden));
        (job.wire.grants, job.wire.sends) = (0, 0);
        job.wire.sync = Sync::UnderWay;
        self.renew(slot);
        self.held.push_back(index);
    }

    /// A task is over, and its job as soon as its payload is at home.
    #[inline]
    fn end_task(&mut self, now: Instant, slot: u16, index: u32, verdict: Verdict, disk: &mut Disk) {
        if self.leave(slot, &mut disk[index]) {
            disk.conclude(now, index, verdict);
        } else {
            disk[index].verdict = Some(verdict);
        }
    }

    /// The target had no room for a command: its job waits again, as soon as its payload is at home,
    /// and nothing is sent for a while.
    #[cold]
    fn put_back(&mut self, now: Instant, slot: u16, index: u32, disk: &mut Disk) {
        if self.rests_until.is_none() {
            self.rests_until = Some(now + backoff(FULL_REST_FIRST, self.rests, FULL_REST_MAX));
            self.rests += 1;
        }
        if self.leave(slot, &mut disk[index]) {
            disk.put_back(index);
        } else {
            disk[index].wire.is_put_back = true;
        }
    }

    /// A task is over; whether its payload is at home. If not, it is still with the transport, and
    /// the slot is freed when it is back.
    #[inline]
    fn leave(&mut self, slot: u16, job: &mut Job) -> bool {
        job.wire.grants = 0;
        self.large_reads -= u32::from(is_large_read(job));
        self.laden -= u32::from(job.wire.is_laden);
        self.outstanding -= 1;
        let is_home = job.place == PayloadPlace::Home;
        if is_home {
            self.free_slot(slot);
        } else {
            self.slots[usize::from(slot)].is_over = true;
        }
        is_home
    }

    /// What came with the old tag of a slot finds nothing.
    #[inline]
    fn renew(&mut self, slot: u16) {
        let entry = &mut self.slots[usize::from(slot)];
        entry.generation = (entry.generation + 1) & GENERATIONS;
    }

    #[inline]
    fn free_slot(&mut self, slot: u16) {
        self.renew(slot);
        let entry = &mut self.slots[usize::from(slot)];
        (entry.job, entry.is_over) = (NONE, false);
        self.free.push(slot);
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
            if job.verdict.is_some() || job.wire.is_put_back || job.wire.grants > 0 {
                returned.push(index);
            }
        });
        for index in returned.drain(..) {
            if let Some(verdict) = disk[index].verdict.take() {
                self.free_slot(disk[index].wire.slot);
                disk.conclude(now, index, verdict);
            } else if core::mem::take(&mut disk[index].wire.is_put_back) {
                self.free_slot(disk[index].wire.slot);
                disk.put_back(index);
            } else {
                self.serve_grants(index, disk, memory);
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
        self.phase = Phase::Absent;
        let mut lost = Vec::new();
        for slot in 0..self.slots.len() as u16 {
            let index = self.slots[usize::from(slot)].job;
            if index != NONE {
                let left = self.may_have_left(&disk[index]);
                disk[index].wire.is_put_back = false;
                lost.push((index, left && !planted("what-left-is-forgotten")));
                self.free_slot(slot);
            }
        }
        lost
    }

    /// Whether the command that a job had when the connection broke may be carried out.
    fn may_have_left(&self, job: &Job) -> bool {
        let is_here = job.wire.batch == self.framing.gathering_number();
        job.wire.sync == Sync::UnderWay || !(is_here || job.wire.is_put_back)
    }

    /// Claims what may still be changed by commands that were not answered, before anything else is
    /// sent by another session: that the connection is closed, and they are in doubt, is heard of
    /// later.
    pub(super) fn claim_changes(&self, disk: &mut Disk) {
        for slot in self.slots.iter().filter(|slot| slot.job != NONE && !slot.is_over) {
            let job = &disk[slot.job];
            if job.kind.changes() && self.may_have_left(job) {
                disk.claim(slot.job);
            }
        }
    }

    /// Drops what has not left.
    pub(super) fn drop_gathering(&mut self, disk: &mut Disk) {
        self.framing.drop_gathering(|index, buffer| disk.take_home(index, buffer));
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug)]
struct End {
    status: ScsiStatus,
    sense: Option<Sense>,
    residual: Residual,
}

/// The sense data in the data of a response: a length, then they.
fn sense_of(data: &[u8]) -> Option<Sense> {
    let (length, sense) = data.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length)).min(sense.len());
    Sense::parse(&sense[..length]).ok()
}

/// Whether a command that succeeded moved what it had to.
#[inline]
fn check_moved(job: &Job, residual: Residual) -> Result<(), Fault> {
    let is_whole = match job.kind {
        _ if job.wire.sync == Sync::UnderWay => true,
        JobKind::Read => u64::from(job.wire.received) == job.extent.length.0,
        JobKind::Write | JobKind::Compare => residual == Residual::None,
        _ => true,
    };
    if is_whole { Ok(()) } else { broken("a command that succeeds moves all its data") }
}

#[inline]
fn is_large_read(job: &Job) -> bool {
    job.kind == JobKind::Read && job.extent.length.0 >= u64::from(DIRECT_ALONE_MIN)
}
