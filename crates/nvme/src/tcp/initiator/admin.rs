//! An admin queue on its connection: one question at a time, and beside it a Keep Alive and an
//! Asynchronous Event Request.
//!
//! In: questions, received bytes, the present. Out: [`AdminNews`]. Data of answers are small (at
//! most [`INITIATOR_REPLY_MAX`]) and come as bytes. A status of the controller that has to change
//! (CSTS.RDY) is asked for again until it did, or the time is over. Errors: a [`Fault`] for
//! everything that a controller must not do, and for what it does not do in time. Both the
//! initiator and the discovery use it. Spec: NVMe base, "Keep Alive", "Asynchronous Event Request".

use core::time::Duration;

use block::Instant;
use block::checksum::crc32c;
use contract::{Next, Receive, SendBatch};
use wire::nvme::fabrics::{ControllerStatus, Register};
use wire::nvme::{Command, Status};
use wire::nvme_tcp::{CapsuleResponse, DataHeader, Digests, FatalErrorStatus, PduFlags, PduType};

use super::framing::{Fault, Framing, broken, fault, terminated};
use crate::limits::{HANDSHAKE, INITIATOR_REPLY_MAX, READY_INTERVAL};
use crate::tcp::pdu_stream::{Front, PduHead, Violation, digest_at, peek};

/// What an admin command was sent for; its command identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Purpose {
    Question = 1,
    KeepAlive = 2,
    Event = 3,
}

/// What came of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdminNews {
    /// The connection is greeted: Connect may follow.
    Greeted,
    Answered(Reply),
    /// An event, as the result of its request says.
    Event(u32),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// What was asked, for messages.
    what: &'static str,
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

impl Reply {
    /// A fault that tells how it was answered, unless it was answered well.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.status {
            status if status.is_success() => Ok(()),
            status if status.dnr() => Err(Fault::Final(self.refusal())),
            _ => fault(self.refusal()),
        }
    }

    /// How it was answered, in words.
    pub(super) fn refusal(&self) -> String {
        format!("{} was answered with {}", self.what, self.status)
    }

    pub(super) fn parse<T>(
        &self,
        parse: impl Fn(&[u8]) -> Result<T, wire::ParseError>,
    ) -> Result<T, Fault> {
        parse(&self.data).or_else(|error| fault(format!("{}: {error}", self.what)))
    }
}

/// The question under way.
#[derive(Clone, Copy, Debug)]
struct Question {
    what: &'static str,
    /// When it has to be answered, with the status that is awaited.
    by: Instant,
    /// Which CSTS.RDY is awaited, and when it is asked for again; `None` while that is under way.
    ready: Option<bool>,
    again_at: Option<Instant>,
}

/// The Keep Alive timer, twice per KATO. A period in which a command was made and answered needs no
/// Keep Alive if the controller counts traffic (TBKAS); then the next period is half as long.
#[derive(Clone, Copy, Debug)]
struct KeepAlive {
    timeout: Duration,
    next_at: Instant,
    /// When the one that is under way has to be answered.
    by: Option<Instant>,
}

/// An admin queue.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) framing: Framing,
    /// Which purposes have a command under way, by identifier.
    under_way: [bool; 4],
    question: Option<Question>,
    keep_alive: Option<KeepAlive>,
    /// Counts the periods of the keep-alive timer.
    pub(super) period: u32,
    /// Data that the question may return, and those that came.
    expected: usize,
    data: Vec<u8>,
    pub(super) news: Vec<AdminNews>,
}

impl Admin {
    /// A queue without connection.
    pub(super) fn new(asked: Digests) -> Admin {
        Admin {
            framing: Framing::new(asked),
            under_way: [false; 4],
            question: None,
            keep_alive: None,
            period: 0,
            expected: 0,
            data: Vec::new(),
            news: Vec::new(),
        }
    }

    /// What is asked at present.
    pub(super) fn question(&self) -> Option<&'static str> {
        self.question.map(|question| question.what)
    }

    /// Asks `what`. `data` go in its capsule.
    pub(super) fn ask(&mut self, now: Instant, what: &'static str, command: Command, data: &[u8]) {
        self.expected = if data.is_empty() { command.sgl().length as usize } else { 0 };
        self.question = Some(Question { what, by: now + HANDSHAKE, ready: None, again_at: None });
        self.send(Purpose::Question, command, data);
    }

    /// Asks for CSTS until its RDY is `ready`, or the controller failed.
    pub(super) fn await_ready(&mut self, what: &'static str, ready: bool, by: Instant) {
        self.question = Some(Question { what, by, ready: Some(ready), again_at: None });
        self.ask_status();
    }

    fn ask_status(&mut self) {
        self.expected = 0;
        self.send(Purpose::Question, Command::property_get(Register::CSTS.0, false), &[]);
    }

    /// Asks for the next event.
    pub(super) fn ask_for_event(&mut self) {
        self.send(Purpose::Event, Command::async_event_request(), &[]);
    }

    /// The controller counts from now on: it gives us up after `timeout` without a word, and we it.
    /// Zero for never.
    pub(super) fn keep_alive(&mut self, now: Instant, timeout: Duration) {
        let next_at = now + timeout / 2;
        self.keep_alive = (!timeout.is_zero()).then_some(KeepAlive { timeout, next_at, by: None });
    }

    /// A controller that is not enabled takes no Keep Alive.
    pub(super) fn end_keep_alive(&mut self) {
        self.keep_alive = None;
    }

    fn send(&mut self, purpose: Purpose, command: Command, data: &[u8]) {
        let under_way = &mut self.under_way[purpose as usize];
        assert!(!core::mem::replace(under_way, true), "two commands for {purpose:?}");
        let command = command.with_command_id(purpose as u16);
        if data.is_empty() {
            self.framing.push_command(&command);
        } else {
            self.framing.push_command_with(&command, data);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if !self.framing.is_open() {
            return None;
        }
        let question =
            self.question.map(|Question { by, again_at, .. }| again_at.unwrap_or(by).min(by));
        let keep_alive =
            self.keep_alive.map(|KeepAlive { next_at, by, .. }| by.unwrap_or(next_at).min(next_at));
        Instant::earliest(Instant::earliest(question, keep_alive), self.framing.overdue_at())
    }

    /// Time has passed. `counts`: traffic of this period counts as a Keep Alive.
    pub(super) fn handle_timeout(&mut self, now: Instant, counts: bool) -> Result<(), Fault> {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.framing.overdue_at().is_some_and(|at| at <= now) {
            return fault("the target takes no more bytes");
        }
        if let Some(question) = &mut self.question {
            if question.by <= now {
                return fault(format!("no answer to {} in time", question.what));
            }
            if question.again_at.is_some_and(|at| at <= now) {
                question.again_at = None;
                self.ask_status();
            }
        }
        let Some(KeepAlive { timeout, next_at, by }) = self.keep_alive else { return Ok(()) };
        if by.is_some_and(|by| by <= now) {
            return fault("the target does not answer Keep Alive");
        }
        if next_at <= now {
            // The command may have been at the beginning of the period: another half would make a
            // whole KATO of silence.
            let next_at = now + timeout / if counts { 4 } else { 2 };
            let sends = !counts && by.is_none();
            let by = if sends { Some(now + timeout) } else { by };
            self.keep_alive = Some(KeepAlive { timeout, next_at, by });
            self.period = self.period.wrapping_add(1);
            if sends {
                self.send(Purpose::KeepAlive, Command::keep_alive(), &[]);
            }
        }
        Ok(())
    }

    /// Takes received bytes.
    pub(super) fn handle_received(&mut self, now: Instant, bytes: &[u8]) -> Result<Receive, Fault> {
        let mut at = 0;
        if !self.framing.greeted {
            at = self.framing.handle_greeting(bytes)?;
            if at == 0 {
                return Ok(Receive { consumed: 0, next: stream(128) });
            }
            self.news.push(AdminNews::Greeted);
        }
        while at < bytes.len() {
            let front = &bytes[at..];
            let head = match peek(front, self.framing.digests)? {
                Front::Short(at_least) => {
                    return Ok(Receive { consumed: at, next: stream(at_least) });
                }
                Front::Pdu(head) => head,
            };
            if head.data_length as usize > INITIATOR_REPLY_MAX {
                let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
                return broken(fes, 4, "no more data than was asked for");
            }
            let whole = head.common.length as usize;
            if front.len() < whole {
                return Ok(Receive { consumed: at, next: stream(head.common.length) });
            }
            self.handle_pdu(now, head, &front[..whole])?;
            at += whole;
        }
        Ok(Receive { consumed: at, next: stream(1) })
    }

    fn handle_pdu(&mut self, now: Instant, head: PduHead, bytes: &[u8]) -> Result<(), Fault> {
        match head.common.kind {
            PduType::CAPSULE_RESPONSE => {
                let completion =
                    CapsuleResponse::parse(bytes).expect("the header is whole").completion;
                self.reply(now, completion.command_id, completion.status, completion.result)
            }
            PduType::C2H_DATA => self.take_data(now, head, bytes),
            PduType::C2H_TERM_REQ => fault(terminated(bytes)),
            PduType::R2T => fault("the target asks for data that were in the capsule"),
            _ => Err(Violation::sequence("a PDU that only a host sends").into()),
        }
    }

    fn take_data(&mut self, now: Instant, head: PduHead, bytes: &[u8]) -> Result<(), Fault> {
        let header = DataHeader::parse(bytes).expect("the header is whole");
        let data = &bytes[head.data_at as usize..][..head.data_length as usize];
        let in_order = header.offset as usize == self.data.len()
            && header.length == head.data_length
            && self.data.len() + data.len() <= self.expected;
        let expected = header.command_id == Purpose::Question as u16 && self.under_way[1];
        if !in_order || !expected {
            let fes = FatalErrorStatus::DATA_OUT_OF_RANGE;
            return broken(fes, 12, "data in order and within the command");
        }
        if head.common.flags.contains(PduFlags::DDGST) {
            let digest = digest_at(bytes, head.data_at as usize + data.len());
            if digest != crc32c(data) {
                return fault("a data digest of an admin command was wrong");
            }
        }
        self.data.extend_from_slice(data);
        if header.is_success() && header.is_last() {
            return self.reply(now, header.command_id, Status::SUCCESS, 0);
        }
        Ok(())
    }

    fn reply(&mut self, now: Instant, id: u16, status: Status, result: u64) -> Result<(), Fault> {
        let under_way = self.under_way.get_mut(usize::from(id));
        if !under_way.is_some_and(core::mem::take) {
            let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
            return broken(fes, 8, "a command identifier that is not under way");
        }
        if id == Purpose::Question as u16 {
            self.answered(now, status, result);
        } else if id == Purpose::Event as u16 {
            if status.is_success() {
                self.news.push(AdminNews::Event(result as u32));
            }
        } else if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.by = None;
            if !status.is_success() {
                return fault(format!("Keep Alive was answered with {status}"));
            }
        }
        Ok(())
    }

    fn answered(&mut self, now: Instant, status: Status, result: u64) {
        let data = core::mem::take(&mut self.data);
        let Some(question) = &mut self.question else { return };
        let csts = ControllerStatus(result as u32);
        let is_final = |ready| !status.is_success() || csts.fatal() || csts.ready() == ready;
        if !question.ready.is_none_or(is_final) {
            question.again_at = Some(now + READY_INTERVAL);
            return;
        }
        let what = question.what;
        self.question = None;
        self.news.push(AdminNews::Answered(Reply { what, status, result, data }));
    }

    /// A batch has left.
    pub(super) fn handle_sent(&mut self, batch: SendBatch) {
        self.framing.take_back(batch, |_, _| {});
    }

    /// The connection is gone, and what was lent to it is back.
    pub(super) fn handle_closed(&mut self, batch: Option<SendBatch>) {
        batch.into_iter().for_each(|batch| self.handle_sent(batch));
        self.framing.drop_gathering(|_, _| {});
        self.framing.closed();
    }
}

fn stream(at_least: u32) -> Next {
    Next::Stream { at_least, at_most: u32::MAX }
}
