//! How a session ends: why, what is dropped, what is awaited; and the time limits.
//!
//! From the moment it ends no request is submitted. Tasks that wait for memory or data are dropped
//! and their memory is given back; what is in flight is awaited, and only then a logout is
//! answered. Answers that were gathered, and a Reject, leave first where there is still somebody to
//! read them. Units: moments of the shard clock. Spec: RFC 7143, 7, 11.9, 11.14, 11.15.

use core::fmt;

use block::limits::{LAST_SEND_PROGRESS, SEND_PROGRESS};
use block::record::passed;
use block::{Class, Instant, planted};
use contract::{Direct, Loss, SendBatch, SessionEnd};
use wire::iscsi::{AsyncEvent, AsyncMessage, LoginStatus, LogoutResponse, LogoutResponseCode};

use super::receive::Stream;
use super::slots::{Incoming, TaskState};
use super::{Connection, Context, State};
use crate::limits::{
    DATA_AFTER_R2T, HANDSHAKE, PDU_COMPLETE, SESSION_IDLE, TIME_TO_RETAIN, TIME_TO_WAIT,
};
use crate::pdu_stream::Violation;
use crate::targets::CloseReason;

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The transport was lost, or the host closed.
    Lost(Loss),
    /// The host broke the rules; it was told so.
    Violation(Violation),
    /// The login was refused.
    Refused(LoginStatus),
    /// The host logged out.
    LoggedOut,
    /// The targets asked for it.
    Asked(CloseReason),
    /// The shard asked for it.
    Ended(SessionEnd),
    /// A time limit has passed: which.
    TimedOut(TimeLimit),
}

/// The time limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// The login.
    Handshake,
    /// A PDU once begun.
    Pdu,
    /// Data that were asked for or announced.
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
            Reason::Refused(status) => write!(f, "its login was refused: {status}"),
            Reason::LoggedOut => f.write_str("the host logged out"),
            Reason::Asked(reason) => write!(f, "closed by its target: {}", reason.words()),
            Reason::Ended(end) => write!(f, "closed by the server: {end:?}"),
            Reason::TimedOut(limit) => f.write_str(match limit {
                TimeLimit::Handshake => "no login in time",
                TimeLimit::Pdu => "a PDU was not completed in time",
                TimeLimit::Data => "data that were asked for did not come in time",
                TimeLimit::Send => "the host did not read in time",
            }),
        }
    }
}

impl Reason {
    /// Why a host left, for people.
    fn words(&self) -> &'static str {
        match self {
            Reason::Lost(_) => "its connection was closed or lost",
            Reason::Violation(_) => "it broke the protocol",
            Reason::Refused(_) => "its login was refused",
            Reason::LoggedOut => "it logged out",
            Reason::Asked(reason) => reason.words(),
            Reason::Ended(SessionEnd::ListenerRemoved) => "its listener is gone",
            Reason::Ended(SessionEnd::ServerStopping) => "the server stops",
            Reason::TimedOut(_) => "it did not do what was awaited in time",
        }
    }
}

impl Connection {
    /// The shard asks for its end. Answers that were gathered leave first.
    pub fn close(&mut self, end: SessionEnd, ctx: &mut Context<'_>) {
        self.tell_drop();
        self.end_after_send(Reason::Ended(end), ctx);
        if end == SessionEnd::ServerStopping
            && let State::Ending { send_limit, .. } = &mut self.state
        {
            *send_limit = LAST_SEND_PROGRESS;
            self.arm(ctx.now + LAST_SEND_PROGRESS);
        }
    }

    /// Says that the session is being dropped, and when the host may come again.
    fn tell_drop(&mut self) {
        if matches!(self.state, State::Session(_)) {
            let event = AsyncEvent::SESSION_DROP;
            let numbers = self.outbox.numbers.of_status();
            let times = [0, TIME_TO_WAIT, TIME_TO_RETAIN];
            self.outbox.push(&AsyncMessage::new(event, times, numbers).emit(), &[]);
        }
    }

    /// The targets ask for its end. Answers that were gathered leave first, unless the host has
    /// come again by another connection and listens here no more.
    pub(super) fn handle_close(&mut self, reason: CloseReason, ctx: &mut Context<'_>) {
        match reason {
            CloseReason::Reinstated => self.end_at_once(Reason::Asked(reason), ctx),
            _ => {
                self.tell_drop();
                self.end_after_send(Reason::Asked(reason), ctx);
            }
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

    /// The peer broke the rules: it is told so, and the session ends.
    #[cold]
    pub(super) fn violated(&mut self, violation: Violation, pdu: &[u8], ctx: &mut Context<'_>) {
        passed("status", violation.reason);
        match self.state {
            State::Login(_) => self.refuse_login(LoginStatus::INVALID_DURING_LOGIN, pdu),
            _ => self.reject(violation.reason, pdu),
        }
        self.end_after_send(Reason::Violation(violation), ctx);
    }

    /// A logout: the session ends, and is answered once nothing of it is in flight.
    pub(super) fn log_out(&mut self, tag: u32, ctx: &mut Context<'_>) {
        let logout = Some(tag);
        let reason = Reason::LoggedOut;
        self.stop(State::Ending { reason, logout, send_limit: SEND_PROGRESS }, ctx);
    }

    /// Ends once what was gathered has left.
    pub(super) fn end_after_send(&mut self, reason: Reason, ctx: &mut Context<'_>) {
        if self.is_open() {
            self.stop(State::Ending { reason, logout: None, send_limit: SEND_PROGRESS }, ctx);
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
        let session = self.state.session();
        if let State::Login(_) = self.state {
            ctx.shared.abandon(self.place());
        }
        self.state = next;
        if let Some(session) = session {
            let why = self.reason().map_or("", Reason::words);
            ctx.shared.session_ends(session, why);
            self.drains = Some(session);
        }
        self.give_reserved(ctx);
        for loan in core::mem::take(&mut self.intake).loans {
            ctx.pool.give(&mut self.transfers, ctx.memory, loan.buffer);
        }
        self.managements.clear();
        self.resets.clear();
        self.order = Default::default();
        self.text = Default::default();
        for slot in self.slots.taken() {
            self.drop_task(slot, ctx);
        }
        self.drained_maybe(ctx);
    }

    /// Drops a task that is not in flight, and says whether it was one.
    pub(super) fn drop_task(&mut self, slot: u16, ctx: &mut Context<'_>) -> bool {
        match self.slots.state(slot) {
            TaskState::InFlight(_) => return false,
            TaskState::Granted(grant) => {
                let buffers = grant.data.take_buffers();
                self.give_all(buffers, Class::Transfer, ctx);
            }
            TaskState::Held(held) => {
                let buffers = held.data().map(Incoming::take_buffers).unwrap_or_default();
                self.give_all(buffers, Class::Transfer, ctx);
            }
            // A change that is under way may still be made; nobody hears of it.
            TaskState::Free
            | TaskState::Waiting(_)
            | TaskState::Changing(_)
            | TaskState::Refused(_) => {}
        }
        self.slots.remove(slot);
        self.order.task_is_gone(slot);
        true
    }

    /// Once it takes nothing more, nothing is in flight and nothing that it asked for is undecided,
    /// a logout is answered, and the targets may go on with what waits for that.
    pub(super) fn drained_maybe(&mut self, ctx: &mut Context<'_>) {
        if self.is_open() || (self.in_flight > 0 && !planted("session-is-drained-early")) {
            return;
        }
        if self.drains.is_some_and(|session| ctx.shared.has_undecided(session)) {
            return;
        }
        if let State::Ending { logout, .. } = &mut self.state
            && let Some(tag) = logout.take()
        {
            let numbers = self.outbox.numbers.of_status();
            let response = LogoutResponse::new(tag, LogoutResponseCode::CLOSED, numbers);
            self.outbox.push(&response.emit(), &[]);
        }
        self.tell_traffic(ctx);
        if let Some(session) = self.drains.take() {
            ctx.shared.session_drained(session);
        }
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come: limits that have passed end the
    /// session, the others are waited for.
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
        if let State::Login(login) = &self.state {
            // While other shards are asked the time is theirs.
            let began = if login.is_with_targets() { now } else { login.since() };
            if self.is_over(began + HANDSHAKE, now) {
                return self.end_after_send(Reason::TimedOut(TimeLimit::Handshake), ctx);
            }
        }
        if let Some(begun) = self.intake.begun
            && self.is_over(begun + PDU_COMPLETE, now)
        {
            return self.end_after_send(Reason::TimedOut(TimeLimit::Pdu), ctx);
        }
        if let Some(since) = self.oldest_data()
            && self.is_over(self.since_read(since, now) + DATA_AFTER_R2T, now)
        {
            return self.end_after_send(Reason::TimedOut(TimeLimit::Data), ctx);
        }
        self.look_at_idleness(now);
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
            Stream::OutOfMemory(_) | Stream::Unread | Stream::Halted => now,
            _ => since.max(self.intake.resumed),
        }
    }

    /// Since when the task that waits longest for its data had none.
    fn oldest_data(&mut self) -> Option<Instant> {
        let since = |state: &TaskState| match state {
            TaskState::Granted(grant) => Some(grant.data.since),
            TaskState::Refused(refused) => Some(refused.since),
            _ => None,
        };
        self.slots.states().filter_map(since).min()
    }

    /// From the first command on, looks now and then whether there are none any more: at moments
    /// that are the same for all sessions, so that the shard wakes up once for all of them.
    #[cold]
    pub(super) fn watch_idleness(&mut self, now: Instant) {
        self.intake.idle_mark = Some(self.counters.commands);
        self.arm((now + SESSION_IDLE).round_up(SESSION_IDLE));
    }

    fn look_at_idleness(&mut self, now: Instant) {
        let Some(mark) = self.intake.idle_mark else { return };
        if mark != self.counters.commands || !self.outbox.is_quiet() {
            return self.watch_idleness(now);
        }
        self.slots.shrink();
        self.outbox.shrink();
        self.intake.loans = Vec::new();
        self.intake.landings = Vec::new();
        self.intake.landing_tasks = Vec::new();
        self.intake.waiting.shrink_to_fit();
        self.intake.idle_mark = None;
    }
}
