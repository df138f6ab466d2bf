//! The initiator: a remote logical unit over iSCSI that answers block requests like a disk. The
//! mirror of `server`.
//!
//! In: requests, what the driver tells of its connection, received bytes, the present. Out:
//! completions, [`StreamEffect`]s, [`InitiatorNews`]. Pure: no socket, no clock. Order of calls:
//! `handle_*` for everything that happened, then [`Initiator::settle`] once, then the `poll_*`
//! until they are empty. Units: bytes; times on the shard clock.
//!
//! One session at a time, with one connection. Its [`State`] says how far it is, and holds what
//! only that state needs:
//!
//! ```text
//!   resting --> opening --> logging in --> identifying --> live --> leaving
//!      ^        (connect)   (security,     (INQUIRY, ...)    |       (logout)
//!      |                     operational)                    |
//!      +-- when the driver has closed the connection -- breaking <-- a fault anywhere
//! ```
//!
//! **Exactly one completion.** A request is a job of the [disk](remote::Disk) until it is over; a
//! connection that breaks only takes its command away. A payload that is with the transport (in a
//! batch that leaves, in a direct receive) must be back before its request is completed or asked
//! again, even if the answer came earlier: so nothing is decided about the requests of a broken
//! connection before the driver has said `Closed`, which returns everything.
//!
//! **A break**: what is replayed, when, and what ends *unknown*, and which flushes fail, is told in
//! the crate `remote`; when the doubt is over, in [`breaks`].
//!
//! **Durable writes** say FUA where the unit knows it; where it does not, and its cache is volatile,
//! the request is done when a SYNCHRONIZE CACHE behind the write is.
//!
//! **Errors**: a target that breaks the protocol is left; we come back after a rest that doubles up
//! to 10 s, for ever. What waits ends *not done* at its deadline. Compare-and-write is refused:
//! volumes make it of compare and write.
//!
//! Here: [`session`] (the hot path), [`exchange`] (what it keeps with a job), [`framing`] (batches),
//! [`numbers`] (windows), [`login`], [`bring_up`] (the steps), [`facts`], [`plan`], [`outcome`]
//! (statuses), [`breaks`], [`liveness`], and [`discovery`], a small machine of its own. Not here:
//! several connections in one session, recovery within one (ErrorRecoveryLevel 0), TLS. Spec: RFC
//! 7143; SBC-3.

mod breaks;
mod bring_up;
mod discovery;
mod exchange;
mod facts;
mod framing;
mod liveness;
mod login;
mod numbers;
mod outcome;
mod plan;
mod session;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;

use block::random::Random;
use block::{Completion, Instant, Memory, Request};
use contract::{ConnectionId, Direct, DiskFacts, Next, Receive, SendBatch, StreamEffect};
use wire::scsi::Lun;

use bring_up::Identifying;
use exchange::Disk;
use facts::{Identity, Limits};
use framing::Socket;
use liveness::Silences;
use plan::{Plan, plan};
use session::Session;

pub use discovery::{Discovered, Discovery, Portal};
pub use remote::InitiatorNews;
pub use settings::{Auth, Settings};

use crate::limits::{HANDSHAKE, INITIATOR_DEPTH_MAX, UNIT_CHECK};

/// How far the session is; see the diagram above.
#[derive(Debug)]
enum State {
    /// There is none, until the next attempt.
    Resting {
        until: Instant,
    },
    /// The connection is asked for.
    Opening,
    LoggingIn {
        by: Instant,
    },
    Identifying {
        identifying: Identifying,
        by: Instant,
    },
    Live(Live),
    /// The target is told that we leave.
    Leaving {
        by: Instant,
    },
    /// A fault was found, and is about to be broken off for.
    Failed,
    /// The connection is being closed. `follows`: the next one is asked for at once, where the
    /// target moved to.
    Breaking {
        follows: bool,
    },
    Gone,
}

/// A session that stands.
#[derive(Debug)]
struct Live {
    limits: Limits,
    /// Whether the target is one of ours, whose word counts.
    is_ours: bool,
    unit: Unit,
    /// The target wants us to log out by then.
    leave_by: Option<Instant>,
}

/// What is known of the unit while the session stands. Only one that was identified and has not
/// changed since gets commands: another one under its number would take them for its own.
#[derive(Debug)]
enum Unit {
    Known,
    /// It changed. What was sent before may still be on its way, so who it is is asked once all of
    /// that is answered: a target may let nothing through until it was asked (ours does), and what
    /// comes late must not profit from that.
    Changed,
    /// It is being identified; `again`: it changed once more meanwhile.
    Asked {
        identifying: Identifying,
        again: bool,
    },
    /// There is none any more: requests are refused until there is one again.
    Gone,
}

impl Live {
    /// When the unit is asked whether there is something to know.
    fn check_at(&self, session: &Session) -> Instant {
        session.sent + UNIT_CHECK
    }
}

/// A remote disk; see the module.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    /// Others write to the same disk through sessions of their own.
    shared: bool,
    random: Random,
    disk: Disk,
    state: State,
    session: Session,
    /// Which unit it was when it was met for the first time.
    identity: Option<Identity>,
    silences: Silences,
    /// Attempts since a session stood, and which address is tried.
    attempts: u32,
    address_at: usize,
    /// Where the target said to go instead.
    moved_to: Option<SocketAddr>,
    next_token: u32,
    returned: Vec<u32>,
    effects: VecDeque<StreamEffect>,
}

impl Initiator {
    /// An initiator that connects. `shared` tells that others write to the same disk through
    /// sessions of their own; `seed` decides the jitter of its rests.
    pub fn new(mut settings: Settings, shared: bool, seed: u64) -> Initiator {
        assert!(!settings.addresses.is_empty(), "a remote disk without an address");
        settings.depth = settings.depth.clamp(1, INITIATOR_DEPTH_MAX);
        if let Some(auth) = &mut settings.auth {
            auth.challenges = auth.challenges.of(&settings.isid);
        }
        let lun = Lun::of(settings.lun).0;
        let mut initiator = Initiator {
            session: Session::new(lun, settings.depth, Socket::Absent),
            settings,
            shared,
            random: Random::new(seed),
            disk: Disk::default(),
            state: State::Opening,
            identity: None,
            silences: Silences::default(),
            attempts: 0,
            address_at: 0,
            moved_to: None,
            next_token: 1,
            returned: Vec::new(),
            effects: VecDeque::new(),
        };
        initiator.open();
        initiator
    }

    /// What is known of the disk: `None` until it was connected for the first time.
    pub fn facts(&self) -> Option<&DiskFacts> {
        self.disk.presence.facts()
    }

    /// Requests and parts of requests that are not completed.
    pub fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    /// Whether the connection is of this initiator.
    #[inline]
    pub fn owns(&self, connection: ConnectionId) -> bool {
        self.session.framing.is(connection)
    }

    /// Finishes what can be finished, logs out, and is gone then.
    pub fn close(&mut self) {
        self.disk.close();
        if let State::Resting { .. } = self.state {
            self.state = State::Gone;
        }
    }

    /// Whether it is refused, and would be if it came again.
    pub fn is_refused(&self) -> bool {
        self.disk.presence.is_refused
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closing(&self) -> bool {
        self.disk.presence.is_closing()
    }

    /// The process is about to end: requests are carried out while the session stands, but do not
    /// wait for one.
    pub fn drain(&mut self) {
        self.disk.drain();
    }

    /// Whether nothing of it is left: no connection, no request, no completion.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone) && self.disk.is_empty()
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        let address = self.address();
        match self.state {
            State::Live(_) => format!("connected to {address}"),
            State::Gone => "closed".to_owned(),
            _ => self.disk.presence.explain(format_args!("connecting to {address}")),
        }
    }

    /// Which unit it is, wherever it is met, if it says so.
    pub fn identity(&self) -> Option<String> {
        self.identity.as_ref().filter(|identity| identity.is_told()).map(ToString::to_string)
    }

    /// Why it is not connected: the address and what was seen there.
    pub fn explain(&self) -> String {
        let Settings { target, lun, .. } = &self.settings;
        let address = self.address();
        let what = format_args!("cannot use LUN {lun} of {target} at {address}");
        self.disk.presence.explain(what)
    }

    /// News in words.
    pub fn tell(&self, news: &InitiatorNews) -> String {
        self.disk.presence.tell(news, self.address(), self.state())
    }

    fn address(&self) -> SocketAddr {
        let addresses = &self.settings.addresses;
        self.moved_to.unwrap_or(addresses[self.address_at % addresses.len()])
    }

    /// A request, taken out of where it lies; exactly one completion comes.
    #[inline]
    pub fn handle_request(&mut self, now: Instant, request: &mut Request) {
        self.disk.admit(request, now + self.settings.deadline);
    }

    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.disk.poll_completion()
    }

    /// All completions there are.
    #[inline]
    pub fn take_completions(&mut self, into: &mut Vec<Completion>) {
        self.disk.take_completions(into);
    }

    /// What the driver should do next.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.effects.pop_front()
    }

    /// What people should know next.
    pub fn poll_news(&mut self) -> Option<InitiatorNews> {
        self.disk.presence.news.pop_front()
    }

    /// A connection that was asked for is there.
    pub fn handle_connected(&mut self, now: Instant, token: u32, connection: ConnectionId) {
        if !self.asked_for(token) {
            return;
        }
        if matches!(self.session.framing.socket, Socket::Asked { unwanted: true, .. }) {
            let close = self.session.framing.close(connection);
            return self.effects.push_back(close);
        }
        let who = self.who();
        self.session.open(now, connection, who);
        self.state = State::LoggingIn { by: now + HANDSHAKE };
        self.go_on(now);
    }

    /// Bytes came: those not consumed before, then new ones.
    #[inline]
    pub fn handle_received(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Receive {
        if !self.owns(connection) || !self.session.framing.is_open() {
            // We have just decided to close it, and the driver does not know yet.
            return Receive { consumed: bytes.len(), next: Next::Pause };
        }
        let received = self.session.handle_received(now, bytes, &mut self.disk, memory);
        let received = match received {
            Ok(Receive { consumed, next }) => Receive { consumed, next: self.take_news(now, next) },
            Err(fault) => {
                self.break_off(now, &fault);
                Receive { consumed: bytes.len(), next: Next::Pause }
            }
        };
        self.go_on(now);
        received
    }

    /// Handles what came out of received bytes; says what is wanted next after that.
    #[inline]
    fn take_news(&mut self, now: Instant, next: Next) -> Next {
        while let Some(news) = self.session.news.pop_front() {
            if let Err(fault) = self.handle_news(now, news) {
                if let Next::Direct(direct) = next {
                    self.disk.take_home(direct.token as u32, direct.buffer);
                }
                self.break_off(now, &fault);
                return Next::Pause;
            }
        }
        next
    }

    /// A direct receive is complete.
    #[inline]
    pub fn handle_direct(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        direct: Direct,
        memory: &mut dyn Memory,
    ) -> Next {
        assert!(self.owns(connection), "a direct receive belongs to the session");
        if !self.session.framing.is_open() {
            self.disk.take_home(direct.token as u32, direct.buffer);
            return Next::Pause;
        }
        let next = self.session.handle_direct(now, direct, &mut self.disk, memory);
        let next = match next {
            Ok(next) => self.take_news(now, next),
            Err(fault) => {
                self.break_off(now, &fault);
                Next::Pause
            }
        };
        self.go_on(now);
        next
    }

    /// A batch has left.
    #[inline]
    pub fn handle_sent(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        batch: SendBatch,
        memory: &mut dyn Memory,
    ) {
        assert!(self.owns(connection), "a batch belongs to the session");
        let (disk, returned) = (&mut self.disk, &mut self.returned);
        self.session.handle_sent(now, batch, disk, returned, memory);
        self.go_on(now);
    }

    /// Some of a batch has left.
    pub fn handle_progress(&mut self, now: Instant, connection: ConnectionId) {
        assert!(self.owns(connection), "a batch belongs to the session");
        self.session.handle_progress(now);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        match self.state {
            State::Resting { until } if is_due(until) => self.open(),
            State::LoggingIn { by } if is_due(by) => {
                self.give_up(now, "no end of the login in time");
            }
            State::Identifying { by, .. } if is_due(by) => {
                let step = self.session.question().unwrap_or("the last question");
                self.give_up(now, format!("the logical unit is not ready; it stood at {step}"));
            }
            State::Leaving { by } if is_due(by) => self.give_up(now, "no answer to the logout"),
            _ => {}
        }
        if let Err(fault) = self.session.handle_timeout(now) {
            self.break_off(now, &fault);
        }
        self.probe(now);
        let over = self.disk.handle_timeout(now);
        self.end_late(now, over);
        self.look_again(now);
        self.go_on(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be
    /// called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.state {
            State::Resting { until } => Some(*until),
            State::LoggingIn { by } | State::Identifying { by, .. } | State::Leaving { by } => {
                Some(*by)
            }
            State::Live(live) => self.live_timeout(live),
            _ => None,
        };
        let (keep_alive, slack) = (self.settings.keep_alive, self.silences.slack());
        let quiet = match self.session.framing.is_open() {
            true => self.session.quiet_at(keep_alive, slack),
            false => None,
        };
        let session = Instant::earliest(self.session.poll_timeout(), quiet);
        Instant::earliest(Instant::earliest(own, session), self.disk.poll_timeout())
    }

    #[inline]
    fn live_timeout(&self, live: &Live) -> Option<Instant> {
        if live.leave_by.is_some() {
            return live.leave_by;
        }
        let is_idle = matches!(live.unit, Unit::Known | Unit::Gone);
        let checks = is_idle && self.session.question().is_none();
        checks.then(|| live.check_at(&self.session))
    }

    /// Whether requests become commands, and nothing else is to be done.
    #[inline]
    fn is_calm(&self) -> bool {
        matches!(self.state, State::Live(Live { unit: Unit::Known, leave_by: None, .. }))
            && !self.disk.presence.is_closing()
    }

    /// What may follow from what has just happened.
    #[inline]
    fn go_on(&mut self, now: Instant) {
        if !self.is_calm() {
            self.advance(now);
        }
    }

    #[cold]
    fn advance(&mut self, now: Instant) {
        self.look_again(now);
        let is_closing = self.disk.presence.is_closing();
        match &self.state {
            State::Live(live) => {
                let asks = matches!(live.unit, Unit::Asked { .. });
                let is_late = live.leave_by.is_some_and(|by| by <= now);
                let is_idle = live.leave_by.is_some() && self.session.outstanding() == 0;
                let is_done = is_closing && !asks && self.disk.in_flight() == 0;
                if is_late || (is_idle && !asks) || is_done {
                    self.leave(now);
                }
            }
            State::Opening | State::LoggingIn { .. } | State::Identifying { .. } if is_closing => {
                self.give_up(now, "closed");
            }
            _ => {}
        }
    }

    /// Tells the target that we leave; its answer ends the session.
    fn leave(&mut self, now: Instant) {
        self.session.log_out();
        self.state = State::Leaving { by: now + HANDSHAKE };
    }

    /// The end of a turn: waiting commands go to the session, a batch leaves.
    #[inline]
    pub fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.dispatch(now, memory);
        if self.session.question().is_some() {
            self.session.send_question(now);
        }
        self.effects.extend(self.session.framing.poll_send(now));
    }

    /// Makes commands of waiting jobs, as many as the session takes.
    #[inline]
    fn dispatch(&mut self, now: Instant, memory: &mut dyn Memory) {
        let State::Live(Live { unit, limits, leave_by, .. }) = &self.state else { return };
        self.session.send_held(now, &mut self.disk);
        if !matches!(unit, Unit::Known) || leave_by.is_some() {
            return;
        }
        while self.session.has_room()
            && let Some(index) = self.disk.front()
        {
            match plan(&mut self.disk[index], limits) {
                Plan::Command(command) => {
                    self.disk.start();
                    self.session.submit(now, index, &command, &mut self.disk, memory);
                }
                Plan::Split => self.disk.split(limits.transfer),
                Plan::Finish(outcome) => {
                    self.disk.start();
                    self.disk.finish(index, outcome);
                }
            }
        }
    }
}
