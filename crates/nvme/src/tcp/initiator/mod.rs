//! The initiator: a remote NVMe/TCP namespace that answers block requests like a disk. The mirror
//! of [`server`](super::server).
//!
//! In: requests, what the driver tells of connections, received bytes, the present. Out:
//! completions, [`StreamEffect`]s, [`InitiatorNews`]. Pure: no socket, no clock. Order of calls:
//! `handle_*` for everything that happened, then [`Initiator::settle`] once, then the `poll_*`
//! until they are empty. Units: bytes; times on the shard clock.
//!
//! One association at a time: an admin queue and `queues` I/O queues, each on a connection of its
//! own. Its [`State`] says how far it is, and holds what only that state needs:
//!
//! ```text
//!   resting --> opening --> enabling --> identifying --> joining --> live --> resetting
//!      ^       (ICReq/Resp) (Connect,    (Identify, ...) (ICReq/Resp,  |  \-> leaving
//!      |                     CC.EN)                       Connect)     |
//!      +-- when the driver has closed every connection -- breaking <---+--- a fault anywhere
//! ```
//!
//! **Exactly one completion.** A request is a job of the [disk](remote::Disk) until it is over; a
//! connection that breaks only takes its command away. A payload that is with the transport (in a
//! batch that leaves, in a direct receive) must be back before its request is completed or asked
//! again, even if the answer came earlier: so nothing is decided about the requests of a broken
//! connection before the driver has said `Closed`, which returns everything.
//!
//! **Silence.** The admin queue has Keep Alive; an I/O queue has nothing of the kind, so it is
//! [probed](liveness).
//!
//! **A break**: what is replayed, when, and what ends *unknown*, and which flushes fail, is told in
//! the crate `remote`.
//!
//! **Errors**: a target that breaks the protocol is told so (TermReq) and left; we come back after
//! a rest that doubles up to 10 s, for ever. What waits ends *not done* at its deadline.
//! Compare-and-write is refused: volumes make it of compare and write.
//!
//! Here: [`queue`] (the hot path), [`exchange`] (what it keeps with a job), [`framing`] (batches,
//! greeting), [`admin`], [`bring_up`] (the steps), [`facts`], [`plan`], [`outcome`] (statuses),
//! [`breaks`], [`liveness`], and [`discovery`], a small machine of its own. Not here:
//! authentication and TLS. Spec: NVMe/TCP transport; NVMe base, "Fabrics".

mod admin;
mod breaks;
mod bring_up;
mod discovery;
mod exchange;
mod facts;
mod framing;
mod liveness;
mod outcome;
mod plan;
mod queue;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;

use block::random::Random;
use block::{Completion, Failure, Instant, Memory, Request};
use contract::{ConnectionId, Direct, DiskFacts, Next, Receive, SendBatch, StreamEffect};

use admin::Admin;
use bring_up::{Controller, Enabling, Identifying, Look};
use exchange::Disk;
use facts::{Identity, Limits};
use framing::{Fault, Framing, Socket, fault};
use liveness::{ResetStep, Silences};
use plan::{Plan, plan};
use queue::Queue;

pub use discovery::Discovery;
pub use remote::InitiatorNews;
pub use settings::Settings;

use crate::limits::{HANDSHAKE, IO_QUEUES_MAX, QUEUE_DEPTH_MAX};

/// How far the association is; see the diagram above.
#[derive(Debug)]
enum State {
    /// There is none, until the next attempt.
    Resting {
        until: Instant,
    },
    /// The admin queue's connection is asked for, then greeted: by then.
    Opening {
        by: Option<Instant>,
    },
    Enabling(Enabling),
    Identifying(Identifying),
    /// The I/O queues, of `depth` commands each, are connected one by one.
    Joining {
        live: Live,
        facts: DiskFacts,
        depth: u16,
        by: Instant,
    },
    Live(Live),
    /// The controller is told that we leave.
    Leaving,
    /// An I/O queue is silent: the controller is being reset. `drains`: its answer proves that
    /// nothing of the old queues is carried out any more.
    Resetting {
        step: ResetStep,
        drains: bool,
    },
    /// A fault was found, and is about to be broken off for.
    Failed,
    /// The connections are being closed. `drained`: the target said that no command of theirs is
    /// carried out any more.
    Breaking {
        drained: bool,
    },
    Gone,
}

/// An association that stands.
#[derive(Debug)]
struct Live {
    controller: Controller,
    limits: Limits,
    namespace: Namespace,
}

/// What is known of the namespace while the association stands. Only one that was identified and
/// has not changed since gets commands: another one under its number would take them for its own.
#[derive(Debug)]
enum Namespace {
    Known,
    /// It changed. What was sent before may still be on its way, so who it is is asked once all of
    /// that is answered: a target may let nothing through until it was asked (ours does), and what
    /// comes late must not profit from that.
    Changed,
    /// It is being identified; `again`: it changed once more meanwhile.
    Asked {
        look: Look,
        again: bool,
    },
    /// There is none any more: requests are refused until it changes again.
    Gone,
}

/// A remote disk; see the module.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    /// Others write to the same disk through associations of their own.
    shared: bool,
    random: Random,
    disk: Disk,
    state: State,
    admin: Admin,
    queues: Vec<Queue>,
    /// Which namespace it was when it was met for the first time.
    identity: Option<Identity>,
    silences: Silences,
    /// Attempts since an association stood, and which address is tried.
    attempts: u32,
    address_at: usize,
    next_token: u32,
    returned: Vec<u32>,
    effects: VecDeque<StreamEffect>,
}

impl Initiator {
    /// An initiator that connects. `shared` tells that others write to the same disk through
    /// associations of their own; `seed` decides the jitter of its rests.
    pub fn new(mut settings: Settings, shared: bool, seed: u64) -> Initiator {
        assert!(!settings.addresses.is_empty(), "a remote disk without an address");
        settings.queues = settings.queues.clamp(1, IO_QUEUES_MAX);
        settings.depth = settings.depth.clamp(1, QUEUE_DEPTH_MAX as u16);
        let mut initiator = Initiator {
            admin: Admin::new(settings.digests),
            settings,
            shared,
            random: Random::new(seed),
            disk: Disk::default(),
            state: State::Opening { by: None },
            queues: Vec::new(),
            identity: None,
            silences: Silences::default(),
            attempts: 0,
            address_at: 0,
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
        self.admin.framing.is(connection)
            || self.queues.iter().any(|queue| queue.framing.is(connection))
    }

    /// Finishes what can be finished, shuts the controller down, and is gone then.
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

    /// The process is about to end: requests are carried out while the association stands, but do
    /// not wait for one.
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
            State::Live(_) => {
                let count = self.queues.len();
                let plural = if count == 1 { "" } else { "s" };
                format!("connected to {address} with {count} queue{plural}")
            }
            State::Gone => "closed".to_owned(),
            _ => self.disk.presence.explain(format_args!("connecting to {address}")),
        }
    }

    /// Which namespace it is, wherever it is met, if it says so.
    pub fn identity(&self) -> Option<String> {
        self.identity.as_ref().filter(|identity| identity.is_told()).map(ToString::to_string)
    }

    /// Why it is not connected: the address and what was seen there.
    pub fn explain(&self) -> String {
        let Settings { subsystem, nsid, .. } = &self.settings;
        let address = self.address();
        let what = format_args!("cannot use namespace {nsid} of {subsystem} at {address}");
        self.disk.presence.explain(what)
    }

    /// News in words.
    pub fn tell(&self, news: &InitiatorNews) -> String {
        self.disk.presence.tell(news, self.address(), self.state())
    }

    fn address(&self) -> SocketAddr {
        let addresses = &self.settings.addresses;
        addresses[self.address_at % addresses.len()]
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

    #[inline]
    fn queue_of(&self, connection: ConnectionId) -> Option<usize> {
        self.queues.iter().position(|queue| queue.framing.is(connection))
    }

    /// A connection that was asked for is there.
    pub fn handle_connected(&mut self, now: Instant, token: u32, connection: ConnectionId) {
        let Some(framing) = self.asked_for(token) else { return };
        if matches!(framing.socket, Socket::Asked { unwanted: true, .. }) {
            let close = framing.close(connection, false);
            return self.effects.push_back(close);
        }
        framing.open(connection);
        match &mut self.state {
            State::Opening { by } => *by = Some(now + HANDSHAKE),
            State::Joining { by, .. } => *by = now + HANDSHAKE,
            _ => {}
        }
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
        let received = match self.queue_of(connection) {
            Some(index) if self.queues[index].framing.is_open() => {
                self.queues[index].handle_received(now, bytes, &mut self.disk, memory)
            }
            None if self.admin.framing.is(connection) && self.admin.framing.is_open() => {
                self.admin_received(now, bytes)
            }
            // We have just decided to close it, and the driver does not know yet.
            _ => return Receive { consumed: bytes.len(), next: Next::Pause },
        };
        let received = received.unwrap_or_else(|fault| {
            self.break_off(now, Some(connection), &fault);
            Receive { consumed: bytes.len(), next: Next::Pause }
        });
        self.go_on(now);
        received
    }

    #[cold]
    fn admin_received(&mut self, now: Instant, bytes: &[u8]) -> Result<Receive, Fault> {
        let received = self.admin.handle_received(now, bytes)?;
        for news in core::mem::take(&mut self.admin.news) {
            self.handle_admin_news(now, news)?;
        }
        Ok(received)
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
        let index = self.queue_of(connection).expect("a direct receive belongs to a queue");
        let queue = &mut self.queues[index];
        if !queue.framing.is_open() {
            self.disk.take_home(direct.token as u32, direct.buffer);
            return Next::Pause;
        }
        let next = queue.handle_direct(now, direct, &mut self.disk, memory);
        let next = next.unwrap_or_else(|fault| {
            self.break_off(now, Some(connection), &fault);
            Next::Pause
        });
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
        match self.queue_of(connection) {
            Some(index) => {
                let (disk, returned) = (&mut self.disk, &mut self.returned);
                self.queues[index].handle_sent(now, batch, disk, returned, memory);
                self.go_on(now);
            }
            None => self.admin.handle_sent(batch),
        }
    }

    /// Some of a batch has left.
    pub fn handle_progress(&mut self, now: Instant, connection: ConnectionId) {
        match self.queue_of(connection) {
            Some(index) => self.queues[index].handle_progress(now),
            None => self.admin.framing.handle_progress(now),
        }
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        match self.state {
            State::Resting { until } if is_due(until) => self.open(),
            State::Opening { by: Some(by) } | State::Joining { by, .. } if is_due(by) => {
                self.give_up(now, "no answer to its greeting or a Connect in time");
            }
            _ => {}
        }
        if let Err(fault) = self.handle_queue_timeouts(now) {
            self.break_off(now, None, &fault);
        }
        self.probe(now);
        let over = self.disk.handle_timeout(now);
        if over.into_iter().any(|(_, why)| why == Failure::TimedOut) {
            let why = format!("a command was not answered within {:?}", self.settings.deadline);
            self.give_up(now, why);
        }
        self.go_on(now);
    }

    fn handle_queue_timeouts(&mut self, now: Instant) -> Result<(), Fault> {
        let period = self.admin.period;
        let answered = self.queues.iter().any(|queue| queue.answered_period == period);
        let counts = matches!(&self.state, State::Live(live) if live.controller.counts_traffic());
        self.admin.handle_timeout(now, counts && answered)?;
        let mut overdue = self.queues.iter().filter_map(|queue| queue.framing.overdue_at());
        if overdue.any(|at| at <= now) { fault("the target takes no more bytes") } else { Ok(()) }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be
    /// called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let slack = self.silences.slack();
        let is_live = matches!(self.state, State::Live(_));
        let own = match self.state {
            State::Resting { until } => Some(until),
            State::Opening { by } => by,
            State::Joining { by, .. } => Some(by),
            _ => None,
        };
        let queues = self.queues.iter().map(|queue| {
            Instant::earliest(queue.framing.overdue_at(), queue.quiet_at(slack).filter(|_| is_live))
        });
        let all = [own, self.disk.poll_timeout(), self.admin.poll_timeout()];
        all.into_iter().chain(queues).flatten().min()
    }

    /// Whether requests become commands, and nothing else is to be done.
    #[inline]
    fn is_calm(&self) -> bool {
        matches!(self.state, State::Live(Live { namespace: Namespace::Known, .. }))
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
        if let Err(fault) = self.join() {
            self.break_off(now, None, &fault);
        }
        self.look_again(now);
        if !self.disk.presence.is_closing() {
            return;
        }
        match &self.state {
            State::Live(live) => {
                let asks = matches!(live.namespace, Namespace::Asked { .. });
                if !asks && self.disk.in_flight() == 0 {
                    self.shut_down(now);
                }
            }
            State::Opening { .. }
            | State::Enabling(_)
            | State::Identifying(_)
            | State::Joining { .. } => {
                self.give_up(now, "closed");
            }
            _ => {}
        }
    }

    /// The end of a turn: waiting commands go to queues, batches leave.
    #[inline]
    pub fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.dispatch(now, memory);
        // What is being reset gets no more commands.
        let is_reset = matches!(self.state, State::Resetting { .. });
        let queues = if is_reset { &mut [] } else { &mut self.queues[..] };
        let framings = framings(&mut self.admin, queues);
        self.effects.extend(framings.filter_map(|framing| framing.poll_send(now)));
    }

    /// Hands waiting jobs to the queues, the one with the fewest commands first.
    #[inline]
    fn dispatch(&mut self, now: Instant, memory: &mut dyn Memory) {
        let State::Live(Live { namespace: Namespace::Known, limits, .. }) = &self.state else {
            return;
        };
        while let Some(index) = self.disk.front() {
            let with_room = self.queues.iter_mut().filter(|queue| queue.has_room());
            let Some(queue) = with_room.min_by_key(|queue| queue.outstanding()) else { return };
            match plan(&mut self.disk[index], limits, self.settings.nsid) {
                Plan::Command { mut command, sends } => {
                    self.disk.start().wire.period = self.admin.period;
                    queue.expect_answers(now);
                    queue.submit(index, &mut command, sends, &mut self.disk, limits, memory);
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

/// The admin queue's connection, and those of I/O queues.
fn framings<'a>(
    admin: &'a mut Admin,
    queues: &'a mut [Queue],
) -> impl Iterator<Item = &'a mut Framing> {
    let queues = queues.iter_mut().map(|queue| &mut queue.framing);
    core::iter::once(&mut admin.framing).chain(queues)
}
