//! How a connection ends: why, what is dropped, what is awaited; and the time limits.
//!
//! From the moment it ends no request is submitted. Commands that wait for memory or data are
//! dropped and their memory is given back; what is in flight is awaited; replies that were
//! gathered, and a C2HTermReq, leave first where there is still somebody to read them. Units:
//! moments of the shard clock. Spec: NVMe/TCP, "Error handling model".

use core::fmt;

use block::limits::{LAST_SEND_PROGRESS, SEND_PROGRESS};
use block::record::passed;
use block::{Instant, planted};
use contract::{Direct, Loss, SendBatch, SessionEnd};
use wire::nvme::Status;
use wire::nvme_tcp::{FatalErrorStatus, PduType, TermReq};

use super::receive::Stream;
use super::slots::CommandState;
use super::{Connection, Context, Fused, State};
use crate::controllers::CloseReason;
use crate::limits::{DATA_AFTER_R2T, HANDSHAKE, PDU_COMPLETE, QUEUE_IDLE};
use crate::tcp::pdu_stream::Violation;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The transport was lost, or the host closed.
    Lost(Loss),
    /// The host broke the rules; it was told so.
    Violation(Violation),
    /// The host said that we broke the rules.
    Terminated(FatalErrorStatus),
    /// The controllers asked for it.
    Asked(CloseReason),
    /// The shard asked for it.
    Ended(SessionEnd),
    /// The last answer said so: a refused Connect, a Disconnect.
    Answered,
    /// A time limit has passed: which.
    TimedOut(TimeLimit),
}

/// The time limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// ICReq and Connect.
    Handshake,
    /// A PDU once begun.
    Pdu,
    /// Data that were asked for.
    Data,
    /// A send without progress.
    Send,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Lost(Loss::EndOfStream) => f.write_str("the host closed"),
            Reason::Lost(Loss::Error(error)) => write!(f, "lost with system error {error}"),
            Reason::Violation(violation) => write!(f, "protocol error of the host: {violation}"),
            Reason::Terminated(fes) => write!(f, "the host terminated it: {fes}"),
            Reason::Asked(reason) => write!(f, "closed by its controller: {reason:?}"),
            Reason::Ended(end) => write!(f, "closed by the server: {end:?}"),
            Reason::Answered => f.write_str("closed with its last answer"),
            Reason::TimedOut(limit) => f.write_str(match limit {
                TimeLimit::Handshake => "no ICReq and Connect in time",
                TimeLimit::Pdu => "a PDU was not completed in time",
                TimeLimit::Data => "data after an R2T did not come in time",
                TimeLimit::Send => "the host did not read in time",
            }),
        }
    }
}

impl Connection {
    /// The shard asks for its end. Replies that were gathered leave first.
    pub fn close(&mut self, end: SessionEnd, ctx: &mut Context<'_>) {
        self.end_after_send(Reason::Ended(end), ctx);
        if end == SessionEnd::ServerStopping
            && let State::Ending { send_limit, .. } = &mut self.state
        {
            *send_limit = LAST_SEND_PROGRESS;
            self.arm(ctx.now + LAST_SEND_PROGRESS);
        }
    }

    /// The controllers ask for its end. Replies that were gathered leave first, unless the host is
    /// silent anyway.
    pub(super) fn handle_close(&mut self, reason: CloseReason, ctx: &mut Context<'_>) {
        match reason {
            CloseReason::KeepAliveExpired => self.end_at_once(Reason::Asked(reason), ctx),
            _ => self.end_after_send(Reason::Asked(reason), ctx),
        }
    }

    /// The connection can carry nothing more.
    pub fn handle_lost(&mut self, loss: Loss, ctx: &mut Context<'_>) {
        self.end_at_once(Reason::Lost(loss), ctx);
    }

    /// The driver closed; what was lent to it comes back.
    pub fn handle_closed(
        &mut self,
        direct: Option<Direct>,
        batch: Option<SendBatch>,
        ctx: &mut Context<'_>,
    ) {
        self.end_at_once(Reason::Lost(Loss::EndOfStream), ctx);
        if let Some(direct) = direct {
            ctx.pool.give(&mut self.transfers, ctx.memory, direct.buffer);
        }
        if let Some(batch) = batch {
            self.take_back(batch, ctx);
        }
        self.give_unsent(ctx);
        if let State::Closing { reason, .. } = self.state {
            self.state = State::Closed(reason);
        }
        self.wake = None;
    }

    /// The peer broke the rules: it is told so, and the connection ends.
    #[cold]
    pub(super) fn violated(&mut self, violation: Violation, pdu: &[u8], ctx: &mut Context<'_>) {
        passed("status", violation.fes);
        let mut bytes = [0; TermReq::SIZE_MAX];
        let length = violation.term_req(PduType::C2H_TERM_REQ, pdu).emit(&mut bytes);
        self.outbox.push_raw(&bytes[..length]);
        self.end_after_send(Reason::Violation(violation), ctx);
    }

    /// Ends once what was gathered has left.
    pub(super) fn end_after_send(&mut self, reason: Reason, ctx: &mut Context<'_>) {
        if self.is_open() {
            let (entries, send_limit) = (self.entries(), SEND_PROGRESS);
            self.stop(State::Ending { reason, entries, send_limit }, ctx);
        }
    }

    /// Ends now: nothing more is sent.
    pub(super) fn end_at_once(&mut self, reason: Reason, ctx: &mut Context<'_>) {
        let closing = |reason| State::Closing { reason, after_send: Some(false) };
        match self.state {
            State::Closing { .. } | State::Closed(_) => return,
            State::Ending { reason, .. } => self.state = closing(reason),
            _ => self.stop(closing(reason), ctx),
        }
        self.give_unsent(ctx);
        self.wake = None;
    }

    fn give_unsent(&mut self, ctx: &mut Context<'_>) {
        for buffer in self.outbox.abandon() {
            ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
        }
    }

    /// Takes nothing more from here on: drops all that is not in flight.
    fn stop(&mut self, next: State, ctx: &mut Context<'_>) {
        self.tell_health(ctx);
        ctx.shared.connection_gone(ctx.now, self.key());
        self.state = next;
        self.give_reserved(ctx);
        for loan in core::mem::take(&mut self.intake).loans {
            ctx.pool.give(&mut self.transfers, ctx.memory, loan.buffer);
        }
        for slot in self.slots.numbers() {
            match self.slots.state(slot) {
                CommandState::Free | CommandState::InFlight(_) | CommandState::Copying(_) => {
                    continue;
                }
                CommandState::Granted(grant) => {
                    let buffer = core::mem::take(&mut grant.data.buffer);
                    ctx.pool.give(&mut self.transfers, ctx.memory, buffer);
                }
                CommandState::Pair(_) => self.dissolve(slot, ctx),
                CommandState::Waiting(_)
                | CommandState::Second(_)
                | CommandState::Proposed
                | CommandState::Controllers(_) => {}
            }
            self.slots.remove(slot);
        }
        self.drained_maybe(ctx);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come: limits that have passed end the
    /// connection, the others are waited for.
    pub fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now;
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        self.wake = None;
        if let Some(since) = self.outbox.since().filter(|_| !planted("who-never-reads-is-kept"))
            && self.is_over(since + self.send_limit(), now)
        {
            return self.end_at_once(Reason::TimedOut(TimeLimit::Send), ctx);
        }
        if !self.is_open() {
            return;
        }
        // While a Connect is with the controllers the time is theirs.
        if let State::Handshake { since } | State::Connecting { since } = self.state {
            let began = if self.slots.len() == 0 { since } else { now };
            if self.is_over(began + HANDSHAKE, now) {
                return self.end_after_send(Reason::TimedOut(TimeLimit::Handshake), ctx);
            }
        }
        if let Some(begun) = self.intake.begun
            && self.is_over(begun + PDU_COMPLETE, now)
        {
            return self.end_after_send(Reason::TimedOut(TimeLimit::Pdu), ctx);
        }
        if self.intake.asked > 0
            && let Some(since) = self.oldest_data()
            && self.is_over(self.since_read(since, now) + DATA_AFTER_R2T, now)
        {
            return self.end_after_send(Reason::TimedOut(TimeLimit::Data), ctx);
        }
        self.look_at_fused(ctx);
        self.look_at_idleness(ctx);
    }

    /// Whether a limit has passed; if not, asks to be woken then.
    fn is_over(&mut self, limit: Instant, now: Instant) -> bool {
        if limit <= now {
            return true;
        }
        self.arm(limit);
        false
    }

    /// Since when, at the earliest, the host may be late with what was asked for at `since`: what
    /// stands in a stream that we do not read may be there.
    fn since_read(&self, since: Instant, now: Instant) -> Instant {
        match self.intake.stream {
            Stream::OutOfMemory(_) | Stream::Unread => now,
            _ => since.max(self.intake.resumed),
        }
    }

    /// Since when the command that waits longest for its data had none.
    fn oldest_data(&mut self) -> Option<Instant> {
        let mut oldest: Option<Instant> = None;
        for slot in self.slots.numbers() {
            if let Some(data) = self.slots.incoming(slot)
                && !data.is_whole()
                && let Some(since) = data.since
            {
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
        oldest
    }

    /// The first of a pair does not hold memory for a second that never comes.
    fn look_at_fused(&mut self, ctx: &mut Context<'_>) {
        let State::Io { fused: Fused::Pending(slot), .. } = self.state else { return };
        let limit = self.slots.pair(slot).since + DATA_AFTER_R2T;
        if self.is_over(limit, ctx.now) {
            self.note_fused(Fused::Refused);
            self.fail_first(slot, Status::FUSED_MISSING, ctx);
        }
    }

    /// From the first command on, looks now and then whether there are none any more: at moments that
    /// are the same for all connections, so that the shard wakes up once for all of them.
    #[cold]
    pub(super) fn watch_idleness(&mut self, ctx: &Context<'_>) {
        self.intake.idle_mark = Some(self.counters.commands);
        self.arm((ctx.now + QUEUE_IDLE).round_up(QUEUE_IDLE));
    }

    fn look_at_idleness(&mut self, ctx: &mut Context<'_>) {
        let Some(mark) = self.intake.idle_mark else { return };
        if mark != self.counters.commands || !self.outbox.is_quiet() {
            return self.watch_idleness(ctx);
        }
        // A held Asynchronous Event Request is no reason to keep the rest.
        self.slots.shrink();
        self.outbox.shrink();
        self.intake.loans = Vec::new();
        self.intake.landings = Vec::new();
        self.intake.waiting.shrink_to_fit();
        self.intake.idle_mark = None;
    }
}
