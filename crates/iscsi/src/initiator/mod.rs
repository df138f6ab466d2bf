//! The initiator: a remote logical unit over iSCSI that answers block requests like a disk. The
//! mirror of `server`.
//!
//! In: requests, what the driver tells of its connection, received bytes, the present. Out:
//! completions, [`StreamEffect`]s, [`InitiatorNews`]. Pure: no socket, no clock. Order of calls:
//! `handle_*` for everything that happened, then [`Initiator::settle`] once, then the `poll_*`
//! until they are empty. Units: bytes; times on the shard clock.
//!
//! One disk, and `sessions` of our [ports](port) that each have a session with its unit, or seek
//! one: a port's state is drawn there. A request goes to the session with the fewest commands.
//!
//! ```text
//!   requests --> disk: jobs, claims, doubt ---+--> port 0: its session (one connection)
//!   completions <--  (one for all sessions)   +--> port 1: ...
//! ```
//! The disk is there as soon as the first session stands; the others are opened then, and come and
//! go by themselves: one that is refused or breaks rests alone, and the disk is lost with the last.
//!
//! **Exactly one completion.** A request is a job of the [disk](remote::Disk) until it is over; a
//! connection that breaks only takes its command away. A payload that is with the transport (in a
//! batch that leaves, in a direct receive) must be back before its request is completed or asked
//! again, even if the answer came earlier: so nothing is decided about the requests of a broken
//! connection before the driver has said `Closed`, which returns everything.
//!
//! **A break**: what is replayed, when, and what ends *unknown*, and which flushes fail, is told in
//! the crate `remote`; when the doubt is over, in [`breaks`]. Since all sessions have one disk, what
//! one of them left in doubt holds back what overlaps it on all of them.
//!
//! **Flushes** go to the session that stands longest ([`Initiator::eldest`]), whatever session the
//! writes went by: the cache is the unit's, and an answer by a session that was there before them
//! proves that it is the same cache.
//!
//! **Durable writes** say FUA where the unit knows it; where it does not, and its cache is volatile,
//! the request is done when a SYNCHRONIZE CACHE behind the write is.
//!
//! **Errors**: a target that breaks the protocol is left; we come back after a rest that doubles up
//! to 10 s, for ever. What waits ends *not done* at its deadline. Compare-and-write is refused:
//! volumes make it of compare and write.
//!
//! Here: [`session`] (the hot path), [`exchange`] (what it keeps with a job), [`framing`] (batches),
//! [`numbers`] (windows), [`port`] (a session's life), [`login`], [`bring_up`] (the steps),
//! [`facts`], [`plan`], [`outcome`] (statuses), [`breaks`], [`liveness`], and [`discovery`], a small
//! machine of its own. Not here: several connections in one session, recovery within one (ErrorRecoveryLevel 0), TLS. Spec: RFC
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
mod port;
mod session;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;

use block::random::Random;
use block::{Completion, Instant, Memory, Request, planted};
use contract::{ConnectionId, Direct, DiskFacts, Next, Receive, SendBatch, StreamEffect};
use remote::JobKind;

use exchange::Disk;
use facts::Identity;
use framing::Socket;
use plan::{Plan, plan};
use port::{Port, State, Unit};

pub use discovery::{Discovered, Discovery, Portal};
pub use remote::InitiatorNews;
pub use settings::{Auth, SESSION_BITS, Settings};

use crate::limits::{HANDSHAKE, INITIATOR_DEPTH_MAX, INITIATOR_SESSIONS_MAX};

/// A remote disk; see the module.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    /// Others write to the same disk through sessions of their own.
    shared: bool,
    random: Random,
    disk: Disk,
    /// At least one. The first is the one that is opened first.
    ports: Vec<Port>,
    /// Which unit it was when it was met for the first time.
    identity: Option<Identity>,
    /// When the questions were begun whose answers are the facts of the disk.
    facts_at: Instant,
    /// Sessions that stood so far.
    stood: u64,
    /// All of the sessions stand, and people know.
    is_whole: bool,
    next_token: u32,
    returned: Vec<u32>,
    /// Flushes that wait for the eldest session while others are dispatched.
    aside: Vec<u32>,
    effects: VecDeque<StreamEffect>,
}

impl Initiator {
    /// An initiator that connects. `shared` tells that others write to the same disk through
    /// sessions of their own; `seed` decides the jitter of its rests.
    pub fn new(mut settings: Settings, shared: bool, seed: u64) -> Initiator {
        assert!(!settings.addresses.is_empty(), "a remote disk without an address");
        settings.depth = settings.depth.clamp(1, INITIATOR_DEPTH_MAX);
        settings.sessions = settings.sessions.clamp(1, INITIATOR_SESSIONS_MAX);
        let ports = (0..settings.sessions).map(|number| Port::new(&settings, number));
        let mut initiator = Initiator {
            ports: ports.collect(),
            settings,
            shared,
            random: Random::new(seed),
            disk: Disk::default(),
            identity: None,
            facts_at: Instant::ZERO,
            stood: 0,
            is_whole: false,
            next_token: 1,
            returned: Vec::new(),
            aside: Vec::new(),
            effects: VecDeque::new(),
        };
        initiator.open(0);
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
        self.port_of(connection).is_some()
    }

    #[inline]
    fn port_of(&self, connection: ConnectionId) -> Option<usize> {
        self.ports.iter().position(|port| port.session.framing.is(connection))
    }

    /// Finishes what can be finished, logs out, and is gone then.
    pub fn close(&mut self) {
        self.disk.close();
        for port in &mut self.ports {
            if let State::Unopened | State::Resting { .. } = port.state {
                port.state = State::Gone;
            }
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
        let is_gone = |port: &Port| matches!(port.state, State::Gone);
        self.ports.iter().all(is_gone) && self.disk.is_empty()
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        let (address, all) = (self.address(), self.ports.len());
        match self.ports.iter().filter(|port| port.is_live()).count() {
            0 if self.ports.iter().all(|port| matches!(port.state, State::Gone)) => {
                "closed".to_owned()
            }
            0 => self.disk.presence.explain(format_args!("connecting to {address}")),
            _ if all == 1 => format!("connected to {address}"),
            live if live == all => format!("connected to {address} with {all} sessions"),
            live => {
                let some = format!("connected to {address} with {live} of {all} sessions");
                let is_missed = |port: &Port| !port.is_live() && !port.fault.is_empty();
                match self.ports.iter().position(is_missed) {
                    Some(at) => format!("{some}; session {}: {}", at + 1, self.ports[at].fault),
                    None => some,
                }
            }
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

    /// Where the disk is reached, or sought.
    fn address(&self) -> SocketAddr {
        let live = self.ports.iter().find(|port| port.is_live());
        live.unwrap_or(&self.ports[0]).address(&self.settings)
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
        let Some(at) = self.asked_for(token) else { return };
        let port = &mut self.ports[at];
        if matches!(port.session.framing.socket, Socket::Asked { unwanted: true, .. }) {
            let close = port.session.framing.close(connection);
            return self.effects.push_back(close);
        }
        let who = port.who(&self.settings);
        port.session.open(now, connection, who);
        port.state = State::LoggingIn { by: now + HANDSHAKE };
        self.go_on(now, at);
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
        let is_open = |at: &usize| self.ports[*at].session.framing.is_open();
        let Some(at) = self.port_of(connection).filter(is_open) else {
            // We have just decided to close it, and the driver does not know yet.
            return Receive { consumed: bytes.len(), next: Next::Pause };
        };
        let session = &mut self.ports[at].session;
        let received = session.handle_received(now, bytes, &mut self.disk, memory);
        let received = match received {
            Ok(Receive { consumed, next }) => {
                Receive { consumed, next: self.take_news(now, at, next) }
            }
            Err(fault) => {
                self.break_off(now, at, &fault);
                Receive { consumed: bytes.len(), next: Next::Pause }
            }
        };
        self.go_on(now, at);
        received
    }

    /// Handles what came out of received bytes; says what is wanted next after that.
    #[inline]
    fn take_news(&mut self, now: Instant, at: usize, next: Next) -> Next {
        while let Some(news) = self.ports[at].session.news.pop_front() {
            if let Err(fault) = self.handle_news(now, at, news) {
                if let Next::Direct(direct) = next {
                    self.disk.take_home(direct.token as u32, direct.buffer);
                }
                self.break_off(now, at, &fault);
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
        let at = self.port_of(connection).expect("a direct receive belongs to a session");
        let session = &mut self.ports[at].session;
        if !session.framing.is_open() {
            self.disk.take_home(direct.token as u32, direct.buffer);
            return Next::Pause;
        }
        let next = session.handle_direct(now, direct, &mut self.disk, memory);
        let next = match next {
            Ok(next) => self.take_news(now, at, next),
            Err(fault) => {
                self.break_off(now, at, &fault);
                Next::Pause
            }
        };
        self.go_on(now, at);
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
        let at = self.port_of(connection).expect("a batch belongs to a session");
        let (disk, returned) = (&mut self.disk, &mut self.returned);
        self.ports[at].session.handle_sent(now, batch, disk, returned, memory);
        self.go_on(now, at);
    }

    /// Some of a batch has left.
    pub fn handle_progress(&mut self, now: Instant, connection: ConnectionId) {
        let at = self.port_of(connection).expect("a batch belongs to a session");
        self.ports[at].session.handle_progress(now);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.ports.len() {
            self.handle_port_timeout(now, at);
        }
        let over = self.disk.handle_timeout(now);
        self.end_late(now, over);
        for at in 0..self.ports.len() {
            self.look_again(now, at);
            self.go_on(now, at);
        }
    }

    fn handle_port_timeout(&mut self, now: Instant, at: usize) {
        let is_due = |at: Instant| at <= now;
        let port = &mut self.ports[at];
        match port.state {
            State::Resting { until } if is_due(until) => self.open(at),
            State::LoggingIn { by } if is_due(by) => {
                self.give_up(now, at, "no end of the login in time");
            }
            State::Identifying { by, .. } if is_due(by) => {
                let step = port.session.question().unwrap_or("the last question");
                let why = format!("the logical unit is not ready; it stood at {step}");
                self.give_up(now, at, why);
            }
            State::Leaving { by } if is_due(by) => self.give_up(now, at, "no answer to the logout"),
            _ => {}
        }
        if let Err(fault) = self.ports[at].session.handle_timeout(now) {
            self.break_off(now, at, &fault);
        }
        self.probe(now, at);
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be
    /// called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let keep_alive = self.settings.keep_alive;
        let ports = self.ports.iter().map(|port| port.poll_timeout(keep_alive));
        ports.fold(self.disk.poll_timeout(), Instant::earliest)
    }

    /// Whether requests become commands, and nothing else is to be done by a port.
    #[inline]
    fn is_calm(&self, at: usize) -> bool {
        self.ports[at].takes_requests() && !self.disk.presence.is_closing()
    }

    /// What may follow from what has just happened to a port.
    #[inline]
    fn go_on(&mut self, now: Instant, at: usize) {
        if !self.is_calm(at) {
            self.advance(now, at);
        }
    }

    #[cold]
    fn advance(&mut self, now: Instant, at: usize) {
        if !self.disk.presence.is_closing() {
            return self.advance_port(now, at);
        }
        // The last request of any of them lets all of them leave.
        for at in 0..self.ports.len() {
            self.advance_port(now, at);
        }
    }

    fn advance_port(&mut self, now: Instant, at: usize) {
        self.look_again(now, at);
        let is_closing = self.disk.presence.is_closing();
        let Port { state, session, .. } = &mut self.ports[at];
        match state {
            State::Live(live) => {
                let asks = matches!(live.unit, Unit::Asked { .. });
                let is_late = live.leave_by.is_some_and(|by| by <= now);
                let is_idle = live.leave_by.is_some() && session.outstanding() == 0;
                let is_done = is_closing && !asks && self.disk.in_flight() == 0;
                if is_late || (is_idle && !asks) || is_done {
                    // Its answer ends the session.
                    session.log_out();
                    *state = State::Leaving { by: now + HANDSHAKE };
                }
            }
            State::Opening | State::LoggingIn { .. } | State::Identifying { .. } if is_closing => {
                self.give_up(now, at, "closed");
            }
            _ => {}
        }
    }

    /// The end of a turn: waiting commands go to sessions, batches leave.
    #[inline]
    pub fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.dispatch(now, memory);
        for port in &mut self.ports {
            if port.session.question().is_some() {
                port.session.send_question(now);
            }
            self.effects.extend(port.session.framing.poll_send(now));
        }
    }

    /// Makes commands of waiting jobs, as many as the sessions take.
    #[inline]
    fn dispatch(&mut self, now: Instant, memory: &mut dyn Memory) {
        for port in self.ports.iter_mut().filter(|port| port.is_live()) {
            port.session.send_held(now, &mut self.disk);
        }
        while let Some(mut at) = self.least_busy()
            && let Some(index) = self.disk.front()
        {
            if self.disk[index].kind == JobKind::Flush && self.goes_by_eldest() {
                let Some(eldest) = self.eldest().filter(|at| self.ports[*at].has_room()) else {
                    self.disk.start();
                    self.aside.push(index);
                    continue;
                };
                at = eldest;
            }
            let Port { state: State::Live(live), session, .. } = &mut self.ports[at] else {
                unreachable!("a port that has room has a session")
            };
            match plan(&mut self.disk[index], &live.limits) {
                Plan::Command(command) => {
                    self.disk.start().wire.port = at as u16;
                    session.submit(now, index, &command, &mut self.disk, memory);
                }
                Plan::Split => self.disk.split(live.limits.transfer),
                Plan::Finish(outcome) => {
                    self.disk.start();
                    self.disk.finish(index, outcome);
                }
            }
        }
        for index in self.aside.drain(..) {
            self.disk.put_back(index);
        }
    }

    /// Of the ports that take a command, the one whose session has the fewest.
    #[inline]
    fn least_busy(&self) -> Option<usize> {
        let with_room = (0..self.ports.len()).filter(|at| self.ports[*at].has_room());
        with_room.min_by_key(|at| self.ports[*at].session.outstanding())
    }

    /// The port whose session stands longest, until that has ended.
    ///
    /// What it has flushed lasts: if the target had been started anew since the writes were
    /// carried out, which whichever session asked for, this one would have ended with it. Of a
    /// younger one that is not known: it may have come after the start, while the session of a
    /// write, which is silent since, has not been given up.
    fn eldest(&self) -> Option<usize> {
        let standing = (0..self.ports.len()).filter(|at| self.ports[*at].stands_since.is_some());
        standing.min_by_key(|at| self.ports[*at].stands_since)
    }

    /// Whether it matters by which session a flush goes.
    #[inline]
    fn goes_by_eldest(&self) -> bool {
        self.ports.len() > 1 && !planted("flush-by-any-session")
    }
}
