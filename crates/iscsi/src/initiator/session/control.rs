//! What a session says beside reads and writes: questions about the unit, signs of life, aborts,
//! the logout; and what the target says of itself.
//!
//! A question is a command whose answer, with its data, is for the initiator and no job; there is
//! one at a time. A task that is to be aborted stays under way until the target says that it is
//! not; if both answers cross, the abort finds nothing. Errors: a [`Fault`] for everything that a
//! target must not do, and for what it does not do in time. Times: shard clock. Spec: RFC 7143,
//! 11.5, 11.6, 11.9, 11.14 to 11.19.

use core::time::Duration;

use block::{Failure, Instant, Outcome};
use remote::Verdict;
use wire::iscsi::{
    AsyncEvent, AsyncMessage, Bhs, DataIn, LogoutReason, LogoutRequest, LogoutResponse, NopIn,
    NopOut, Opcode, RESERVED_TAG, Reject, ScsiCommand, ScsiCommandFlags, TaskFunction,
    TaskManagementRequest, TaskManagementResponse, TaskResponse,
};
use wire::scsi::{Cdb, ScsiStatus, Sense};

use super::super::exchange::{Disk, Sync};
use super::super::framing::{Fault, broken, fault};
use super::super::login::CID;
use super::super::numbers::numbers_of;
use super::super::outcome::{Attention, attention};
use super::{
    ABORT, GENERATIONS, LOGOUT_TAG, News, PING_TAG, Phase, QUESTION, SLOT_BITS, Session, sense_of,
};
use crate::limits::{
    ABORT_PATIENCE, ABORTS_MAX, HANDSHAKE, INITIATOR_REPLY_MAX, PONGS_MAX, SILENT_BEHIND_DATA,
};

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::initiator) struct Reply {
    /// What was asked, for messages.
    what: &'static str,
    pub(in crate::initiator) status: ScsiStatus,
    pub(in crate::initiator) sense: Option<Sense>,
    pub(in crate::initiator) data: Vec<u8>,
}

impl Reply {
    #[cfg(test)]
    pub(in crate::initiator) fn new(status: ScsiStatus, sense: Option<Sense>) -> Reply {
        Reply { what: "a question", status, sense, data: Vec::new() }
    }

    pub(in crate::initiator) fn is_good(&self) -> bool {
        self.status == ScsiStatus::GOOD
    }

    /// How it was answered, in words.
    pub(in crate::initiator) fn refusal(&self) -> String {
        let Reply { what, status, .. } = self;
        match &self.sense {
            Some(sense) => format!("{what} was answered with {status}, {sense}"),
            None => format!("{what} was answered with {status}"),
        }
    }

    pub(in crate::initiator) fn parse<T>(
        &self,
        parse: impl Fn(&[u8]) -> Result<T, wire::ParseError>,
    ) -> Result<T, Fault> {
        parse(&self.data).or_else(|error| fault(format!("{}: {error}", self.what)))
    }
}

/// The question under way.
#[derive(Clone, Debug)]
pub(super) struct Question {
    what: &'static str,
    cdb: Cdb,
    /// Bytes that it may return.
    most: u32,
    /// When it is sent at the earliest, and when it has to be answered.
    at: Instant,
    by: Instant,
    /// Its tag, once it is sent.
    tag: Option<u32>,
    data_sn: u32,
    data: Vec<u8>,
}

/// A task that is to be aborted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abort {
    tag: u32,
    by: Instant,
}

impl Session {
    /// Asks `what`, not before `at`.
    pub(in crate::initiator) fn ask(
        &mut self,
        at: Instant,
        what: &'static str,
        cdb: Cdb,
        most: u32,
    ) {
        assert!(self.question.is_none(), "two questions at once: {what}");
        assert!(most <= INITIATOR_REPLY_MAX, "{what} would not be taken");
        let by = at + HANDSHAKE;
        let (tag, data_sn, data) = (None, 0, Vec::new());
        self.question = Some(Question { what, cdb, most, at, by, tag, data_sn, data });
    }

    /// What is asked at present.
    pub(in crate::initiator) fn question(&self) -> Option<&'static str> {
        self.question.as_ref().map(|question| question.what)
    }

    /// Sends the question, if it is time and there is room.
    pub(in crate::initiator) fn send_question(&mut self, now: Instant) {
        let Some(question) = &mut self.question else { return };
        if question.tag.is_some() || question.at > now || !self.numbers.has_room() {
            return;
        }
        self.questions_asked = (self.questions_asked + 1) % GENERATIONS;
        let tag = QUESTION | self.questions_asked << SLOT_BITS;
        question.tag = Some(tag);
        self.sent = now;
        let (numbers, cdb) = (self.numbers.command(), question.cdb.emit());
        let flags =
            if question.most > 0 { ScsiCommandFlags::READ } else { ScsiCommandFlags::NO_DATA };
        let command = ScsiCommand::new(self.lun, tag, flags, cdb, question.most, 0, numbers);
        self.framing.push_header(&command.emit());
    }

    /// Whether a tag is that of the question.
    #[inline]
    pub(super) fn is_question(&self, tag: u32) -> bool {
        tag & ((1 << SLOT_BITS) - 1) == QUESTION
            && self.question.as_ref().is_some_and(|question| question.tag == Some(tag))
    }

    /// The question was answered.
    #[cold]
    pub(super) fn answer_question(&mut self, status: ScsiStatus, sense: Option<Sense>) {
        if let Some(Question { what, data, .. }) = self.question.take() {
            self.news.push_back(News::Answered(Reply { what, status, sense, data }));
        }
    }

    /// A PDU that is nothing for a job.
    #[cold]
    pub(super) fn handle_control(
        &mut self,
        now: Instant,
        bhs: Bhs,
        pdu: &[u8],
        data: &[u8],
        disk: &mut Disk,
    ) -> Result<(), Fault> {
        match bhs.opcode() {
            Opcode::DATA_IN => self.take_reply(pdu, data),
            Opcode::NOP_IN => self.handle_nop(pdu),
            Opcode::TASK_MANAGEMENT_RESPONSE => self.end_abort(now, pdu, disk),
            Opcode::LOGOUT_RESPONSE => {
                let response = LogoutResponse::parse(pdu).expect("the header is whole");
                self.numbers.note_status(numbers_of!(response))?;
                self.news.push_back(News::LoggedOut);
                Ok(())
            }
            Opcode::ASYNC_MESSAGE => self.handle_message(pdu, data),
            Opcode::REJECT => {
                let reject = Reject::parse(pdu).expect("the header is whole");
                let what = Bhs::parse(data).map(|bhs| bhs.opcode().to_string());
                let what = what.unwrap_or_else(|_| "PDU".to_owned());
                fault(format!("the target rejected a {what}: {}", reject.reason))
            }
            Opcode::LOGIN_RESPONSE => broken("one login"),
            Opcode::TEXT_RESPONSE => broken("an answer to something that was asked"),
            _ => broken("a PDU that a target sends"),
        }
    }

    /// Data of the answer to the question.
    fn take_reply(&mut self, pdu: &[u8], data: &[u8]) -> Result<(), Fault> {
        let header = DataIn::parse(pdu).expect("the header is whole");
        let numbers = numbers_of!(header);
        self.numbers.note_window(numbers.exp_cmd_sn, numbers.max_cmd_sn);
        if !self.is_question(header.initiator_task_tag) {
            return broken("data that were asked for");
        }
        let question = self.question.as_mut().expect("it is the question");
        let in_order = header.buffer_offset as usize == question.data.len()
            && header.data_sn == question.data_sn
            && question.data.len() + data.len() <= question.most as usize;
        if !in_order {
            return broken("data in order and within the command");
        }
        question.data_sn += 1;
        question.data.extend_from_slice(data);
        if header.flags.is_status() {
            self.numbers.note_status(numbers)?;
            self.answer_question(ScsiStatus(header.status), None);
        }
        Ok(())
    }

    /// Asks for a sign of life.
    fn ping(&mut self) {
        self.probing = true;
        let ping = NopOut::ping(PING_TAG, 0, self.numbers.immediate());
        self.framing.push_header(&ping.emit());
    }

    /// A sign of life, or a question for one, or only the target's numbers.
    fn handle_nop(&mut self, pdu: &[u8]) -> Result<(), Fault> {
        let nop = NopIn::parse(pdu).expect("the header is whole");
        let numbers = numbers_of!(nop);
        if nop.initiator_task_tag != RESERVED_TAG {
            self.numbers.note_status(numbers)?;
            if nop.initiator_task_tag != PING_TAG || !core::mem::take(&mut self.probing) {
                return broken("a NOP-In that was asked for");
            }
            return Ok(());
        }
        self.numbers.note_window(numbers.exp_cmd_sn, numbers.max_cmd_sn);
        if nop.target_transfer_tag == RESERVED_TAG {
            return Ok(());
        }
        let batch = self.framing.gathering_number();
        let before = if self.pongs.0 == batch { self.pongs.1 } else { 0 };
        if before == PONGS_MAX {
            return fault("the target asks for signs of life and does not take them");
        }
        self.pongs = (batch, before + 1);
        let pong = NopOut::pong(&nop, self.numbers.immediate());
        self.framing.push_header(&pong.emit());
        Ok(())
    }

    fn handle_message(&mut self, pdu: &[u8], data: &[u8]) -> Result<(), Fault> {
        let message = AsyncMessage::parse(pdu).expect("the header is whole");
        self.numbers.note_status(numbers_of!(message))?;
        match message.async_event {
            AsyncEvent::SCSI if message.lun == self.lun => {
                let news = sense_of(data).as_ref().and_then(attention);
                self.news.push_back(News::Attention(news.unwrap_or(Attention::Changed)));
            }
            AsyncEvent::LOGOUT_REQUEST => {
                self.news.push_back(News::LogoutWanted(message.parameter3));
            }
            event @ (AsyncEvent::CONNECTION_DROP | AsyncEvent::SESSION_DROP) => {
                return fault(format!("the target says: {event}"));
            }
            // What is negotiated anew, and what vendors say, is for those who know of it.
            _ => {}
        }
        Ok(())
    }

    /// The target is told that we leave.
    pub(in crate::initiator) fn log_out(&mut self) {
        let numbers = self.numbers.immediate();
        let request = LogoutRequest::new(LogoutReason::CLOSE_SESSION, CID, LOGOUT_TAG, numbers);
        self.framing.push_header(&request.emit());
    }

    /// Has the task of a job that is late aborted. `is_believed`: the target's word that nothing of
    /// it is carried out any more is. False if that is no way out, and the session has to end.
    pub(in crate::initiator) fn abort(
        &mut self,
        now: Instant,
        index: u32,
        is_believed: bool,
        disk: &Disk,
    ) -> bool {
        let job = &disk[index];
        let task = self.tag(job.wire.slot);
        let tag = task | ABORT;
        let is_over = self.find(task).is_err();
        if is_over || self.aborts.iter().any(|abort| abort.tag == tag) {
            return true;
        }
        let is_safe = is_believed || !job.kind.changes();
        let was_sent = job.wire.batch != self.framing.gathering_number();
        let is_plain = was_sent && job.wire.sync != Sync::UnderWay;
        if !is_plain || !is_safe || self.aborts.len() == ABORTS_MAX {
            return false;
        }
        self.aborts.push(Abort { tag, by: now + ABORT_PATIENCE });
        let numbers = self.numbers.immediate();
        let request = TaskManagementRequest::new(TaskFunction::ABORT_TASK, self.lun, tag, numbers)
            .with_task(task, job.wire.cmd_sn);
        self.framing.push_header(&request.emit());
        true
    }

    /// The answer to an abort: nothing of the task comes any more.
    fn end_abort(&mut self, now: Instant, pdu: &[u8], disk: &mut Disk) -> Result<(), Fault> {
        let response = TaskManagementResponse::parse(pdu).expect("the header is whole");
        self.numbers.note_status(numbers_of!(response))?;
        let tag = response.initiator_task_tag;
        let Some(at) = self.aborts.iter().position(|abort| abort.tag == tag) else {
            return broken("an answer to an abort that is under way");
        };
        self.aborts.swap_remove(at);
        let Ok((slot, index)) = self.find(tag & !ABORT) else { return Ok(()) };
        if response.response != TaskResponse::COMPLETE {
            let response = response.response;
            return fault(format!("a task that was late could not be aborted: {response}"));
        }
        let late = Verdict::Finish(Outcome::NotDone(Failure::TimedOut));
        self.end_task(now, slot, index, late, disk);
        Ok(())
    }

    /// Some of a batch left: the peer's kernel takes bytes.
    pub(in crate::initiator) fn handle_progress(&mut self, now: Instant) {
        self.framing.handle_progress(now);
        self.heard = self.heard.max(now);
    }

    /// When [`probe`](Self::probe) wants to be called: nothing was heard for `slack` times the
    /// usual.
    #[inline]
    pub(in crate::initiator) fn quiet_at(
        &self,
        keep_alive: Duration,
        slack: u32,
    ) -> Option<Instant> {
        if keep_alive.is_zero() || !matches!(self.phase, Phase::FullFeature) {
            return None;
        }
        let quiet = keep_alive / 2;
        if !self.probing {
            return Some(self.heard + quiet * slack);
        }
        let least = if self.laden > 0 { quiet + SILENT_BEHIND_DATA } else { keep_alive };
        Some(self.heard + (keep_alive * slack).max(least))
    }

    /// Asks a quiet target for a sign of life; returns whether it was asked before and is silent.
    pub(in crate::initiator) fn probe(
        &mut self,
        now: Instant,
        keep_alive: Duration,
        slack: u32,
    ) -> bool {
        if self.quiet_at(keep_alive, slack).is_none_or(|at| at > now) {
            return false;
        }
        if !self.probing {
            self.ping();
            return false;
        }
        true
    }

    /// Time has passed.
    pub(in crate::initiator) fn handle_timeout(&mut self, now: Instant) -> Result<(), Fault> {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.framing.overdue_at().is_some_and(|at| at <= now) {
            return fault("the target takes no more bytes");
        }
        if let Some(question) = &self.question
            && question.by <= now
        {
            return fault(format!("no answer to {} in time", question.what));
        }
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
        }
        if self.aborts.iter().any(|abort| abort.by <= now) {
            return fault("a command was not answered in time, nor was its abort");
        }
        Ok(())
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, or the question to be
    /// sent.
    #[inline]
    pub(in crate::initiator) fn poll_timeout(&self) -> Option<Instant> {
        if !self.framing.is_open() {
            return None;
        }
        let question = self.question.as_ref().map(|question| match question.tag {
            None if self.numbers.has_room() => question.at.min(question.by),
            _ => question.by,
        });
        let abort = self.aborts.iter().map(|abort| abort.by).min();
        let rest = Instant::earliest(self.rests_until, self.framing.overdue_at());
        Instant::earliest(Instant::earliest(question, abort), rest)
    }
}
