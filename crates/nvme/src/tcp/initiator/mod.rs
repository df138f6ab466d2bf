//! The initiator: a remote NVMe/TCP namespace that answers block requests like a disk. The mirror of [`target`](super::target).
//!
//! In: requests, what the driver tells of connections, received bytes, the present. Out: completions, [`StreamEffect`]s, [`InitiatorNews`]. Pure: no
//! socket, no clock. Order of calls: `handle_*` for everything that happened, then [`Initiator::settle`] once, then the `poll_*` until
//! they are empty. Units: bytes; times on the shard clock.
//!
//! One association at a time: an admin queue and `queues` I/O queues, each on a connection of its own.
//!
//! ```text
//!   resting --> opening --> steps --> queues --> live          a fault anywhere: breaking
//!      ^       (ICReq/Resp) (Connect, CC.EN,  (ICReq/Resp,        |
//!      |                     Identify, ...)    Connect)           v
//!      +----------------- when the driver has closed every connection --- breaking
//! ```
//!
//! **Exactly one completion.** A request is a [job](jobs) until it is over; a connection that breaks only takes its command away. A payload that is lent (to a
//! batch that leaves, to a direct receive) must be back before its request is completed or asked again, even if the answer came earlier:
//! so nothing is decided about the requests of a broken connection before the driver has said `Closed`, which returns everything.
//! **Silence.** The admin queue has Keep Alive; an I/O queue has nothing of the kind, so [`silence`] listens to it.
//! **A break** is told in [`jobs`]: what is replayed, when, and what ends *unknown*; and which flushes fail.
//! **Errors**: a target that breaks the protocol is told so (TermReq) and left; we come back after a rest that doubles up to 10 s, for ever.
//! What waits ends *not done* at its deadline. Compare-and-write is refused: volumes make it of compare and write.
//!
//! Here: [`queue`] (the hot path), [`link`] (batches, greeting), [`admin`], [`bring_up`] (the steps), [`facts`], [`plan`], [`jobs`],
//! [`outcome`] (statuses), [`breaks`], [`timers`], [`silence`], and [`discovery`], a small machine of its own. Not here: authentication and TLS.
//! Spec: NVMe/TCP transport; NVMe base, "Fabrics".

mod admin;
mod breaks;
mod bring_up;
mod discovery;
mod facts;
mod jobs;
mod link;
mod outcome;
mod plan;
mod queue;
mod settings;
mod silence;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::VecDeque;
use std::net::SocketAddr;

use block::limits::{HANDSHAKE, IO_QUEUES_MAX, QUEUE_DEPTH_MAX};
use block::random::Random;
use block::{Completion, Failure, Instant, Memory, Outcome, Request};
use contract::{ConnectionId, Direct, DiskFacts, Next, Receive, SendBatch, StreamEffect};

use admin::Admin;
use bring_up::{Controller, Step};
use facts::{Identity, Limits};
use jobs::{Jobs, Kind, State};
use link::{Fault, Link, Socket};
use plan::{Plan, plan};
use queue::Queue;
use silence::Silences;

pub use discovery::Discovery;
pub use settings::Settings;

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorNews {
    /// The association stands, for the first time or again.
    Connected,
    /// It broke, for this reason.
    Lost(String),
    /// The namespace is not as it was.
    FactsChanged,
    /// The namespace cannot be used any more, for this reason.
    Unusable(String),
}

/// How far an association is; see the diagram above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(Instant),
    Opening,
    Steps,
    Queues,
    Live,
    /// An I/O queue is silent: the controller is being reset.
    Resetting,
    Breaking,
    Gone,
}

/// What is known of the namespace while the association is live. Only one that was identified and
/// not changed since gets commands: another one under its number would take them for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Known,
    /// It changed. What was sent before may still be on its way, so who it is is asked once all of
    /// that is answered: a target may let nothing through until it was asked (ours does), and
    /// what comes late must not profit from that.
    Changed,
    /// It is being identified.
    Asked,
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
    jobs: Jobs,
    phase: Phase,
    admin: Admin,
    queues: Vec<Queue>,
    step: Option<Step>,
    /// When the step under way, or the opening of connections, has to be over.
    step_by: Option<Instant>,
    /// When to ask again whether the controller is ready.
    ask_again_at: Option<Instant>,
    controller: Controller,
    limits: Option<Limits>,
    identity: Option<Identity>,
    facts: Option<DiskFacts>,
    keep_alive_at: Option<Instant>,
    keep_alive_by: Option<Instant>,
    period: u32,
    expire_at: Option<Instant>,
    attempts: u32,
    silences: Silences,
    /// The target said that no command of the broken association is carried out any more.
    known_dead: bool,
    /// Which address is tried.
    address_at: usize,
    /// Commands on each queue, in this association.
    depth: u16,
    /// The association stood at least once.
    stood: bool,
    standing: Standing,
    next_token: u32,
    last_fault: String,
    closing: bool,
    draining: bool,
    returned: Vec<u32>,
    effects: VecDeque<StreamEffect>,
    news: VecDeque<InitiatorNews>,
}

impl Initiator {
    /// An initiator that connects at the next [`settle`](Self::settle). `shared` tells that others write to the same disk through associations of
    /// their own; `seed` decides the jitter of its rests.
    pub fn new(now: Instant, mut settings: Settings, shared: bool, seed: u64) -> Initiator {
        assert!(!settings.addresses.is_empty(), "a remote disk without an address");
        settings.queues = settings.queues.clamp(1, IO_QUEUES_MAX);
        settings.depth = settings.depth.clamp(1, QUEUE_DEPTH_MAX as u16);
        Initiator {
            admin: Admin::new(settings.digests),
            settings,
            shared,
            random: Random::new(seed),
            jobs: Jobs::default(),
            phase: Phase::Resting(now),
            queues: Vec::new(),
            step: None,
            step_by: None,
            ask_again_at: None,
            controller: Controller::default(),
            limits: None,
            identity: None,
            facts: None,
            keep_alive_at: None,
            keep_alive_by: None,
            period: 0,
            expire_at: None,
            attempts: 0,
            silences: Silences::default(),
            known_dead: false,
            address_at: 0,
            depth: 0,
            stood: false,
            standing: Standing::Known,
            next_token: 0,
            last_fault: "no answer yet".to_owned(),
            closing: false,
            draining: false,
            returned: Vec::new(),
            effects: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// What is known of the disk: `None` until it was connected for the first time.
    pub fn facts(&self) -> Option<&DiskFacts> {
        self.facts.as_ref().filter(|_| self.stood)
    }

    /// Requests and parts of requests that are not completed.
    pub fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// Whether the connection is of this initiator.
    #[inline]
    pub fn owns(&self, connection: ConnectionId) -> bool {
        self.admin.link.is(connection) || self.queues.iter().any(|queue| queue.link.is(connection))
    }

    /// Finishes what can be finished, shuts the controller down, and is gone then.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// The process is about to end: requests are carried out while the association stands, but do not wait for one.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing of it is left: no connection, no request, no completion.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone && self.jobs.len() == 0 && self.jobs.completions.is_empty()
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        match self.phase {
            Phase::Live => {
                format!("connected to {} with {} queues", self.address(), self.queues.len())
            }
            Phase::Gone => "closed".to_owned(),
            _ => format!("connecting to {}: {}", self.address(), self.last_fault),
        }
    }

    /// Why it is not connected: the address and what was seen there.
    pub fn explain(&self) -> String {
        let Settings { subsystem, nsid, .. } = &self.settings;
        format!(
            "cannot use namespace {nsid} of {subsystem} at {}: {}",
            self.address(),
            self.last_fault
        )
    }

    /// News in words.
    pub fn tell(&self, news: &InitiatorNews) -> String {
        let size = self.facts.as_ref().map_or(0, |facts| facts.size.0);
        match news {
            InitiatorNews::Connected => format!("connected to {}, {size} bytes", self.address()),
            InitiatorNews::Lost(why) => format!("lost {}: {why}", self.address()),
            InitiatorNews::FactsChanged => format!("changed: it has {size} bytes now"),
            InitiatorNews::Unusable(why) => format!("cannot be used any more: {why}"),
        }
    }

    fn address(&self) -> SocketAddr {
        let addresses = &self.settings.addresses;
        addresses[self.address_at % addresses.len()]
    }

    /// A request; exactly one completion comes.
    #[inline]
    pub fn handle_request(&mut self, now: Instant, request: Request) {
        if self.closing {
            let refused = request.complete(Outcome::NotDone(Failure::Removed));
            self.jobs.completions.push_back(refused);
            return;
        }
        let deadline = now + self.settings.deadline;
        self.jobs.admit(request, deadline);
        if self.expire_at.is_none() {
            self.expire_at = Some(deadline);
        }
    }

    /// A completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.jobs.completions.pop_front()
    }

    /// What the driver should do next.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.effects.pop_front()
    }

    /// What people should know next.
    pub fn poll_news(&mut self) -> Option<InitiatorNews> {
        self.news.pop_front()
    }

    fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        let queues = self.queues.iter_mut().map(|queue| &mut queue.link);
        core::iter::once(&mut self.admin.link).chain(queues)
    }

    #[inline]
    fn queue_of(&self, connection: ConnectionId) -> Option<usize> {
        self.queues.iter().position(|queue| queue.link.is(connection))
    }

    /// A connection that was asked for is there.
    pub fn handle_connected(&mut self, now: Instant, token: u32, connection: ConnectionId) {
        let asked =
            |link: &&mut Link| matches!(link.socket, Socket::Asked { token: t, .. } if t == token);
        let Some(link) = self.links().find(asked) else { return };
        if matches!(link.socket, Socket::Asked { unwanted: true, .. }) {
            link.socket = Socket::Closing(connection);
            self.effects.push_back(StreamEffect::Close { connection, after_send: false });
            return;
        }
        link.open(connection);
        self.step_by = Some(now + HANDSHAKE);
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
            Some(index) if self.queues[index].link.is_open() => {
                self.queues[index].handle_received(now, bytes, &mut self.jobs, memory)
            }
            None if self.admin.link.is(connection) && self.admin.link.is_open() => {
                self.admin.handle_received(now, bytes)
            }
            // We have just decided to close it, and the driver does not know yet.
            _ => return Receive { consumed: bytes.len(), next: Next::Pause },
        };
        received.unwrap_or_else(|fault| {
            self.break_off(now, Some(connection), &fault);
            Receive { consumed: bytes.len(), next: Next::Pause }
        })
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
        if !queue.link.is_open() {
            self.jobs.take_home(direct.token as u32, direct.buffer);
            return Next::Pause;
        }
        let next = queue.handle_direct(now, direct, &mut self.jobs, memory);
        next.unwrap_or_else(|fault| {
            self.break_off(now, Some(connection), &fault);
            Next::Pause
        })
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
                let (jobs, returned) = (&mut self.jobs, &mut self.returned);
                self.queues[index].handle_sent(now, batch, jobs, returned, memory);
            }
            None => self.admin.link.take_back(batch, |_, _| {}),
        }
    }

    /// Some of a batch has left.
    pub fn handle_progress(&mut self, now: Instant, connection: ConnectionId) {
        match self.queue_of(connection) {
            Some(index) => self.queues[index].handle_progress(now),
            None => self.admin.link.handle_progress(now),
        }
    }

    /// The end of a turn: what was learned is acted on, waiting commands go to queues, batches leave.
    #[inline]
    pub fn settle(&mut self, now: Instant, memory: &mut dyn Memory) {
        let is_calm = self.phase == Phase::Live && self.standing == Standing::Known;
        if !is_calm || !self.admin.replies.is_empty() || self.closing {
            self.advance(now);
        }
        if self.phase == Phase::Live && self.standing == Standing::Known {
            self.dispatch(now, memory);
        }
        // What is being reset gets no more commands.
        let queues = if self.phase == Phase::Resetting { &mut [] } else { &mut self.queues[..] };
        let queues = queues.iter_mut().map(|queue| &mut queue.link);
        for link in core::iter::once(&mut self.admin.link).chain(queues) {
            if let (Socket::Open(connection), Some(batch)) = (link.socket, link.take_batch(now)) {
                self.effects.push_back(StreamEffect::Send { connection, batch });
            }
        }
    }

    /// Everything that is not the data path.
    #[cold]
    fn advance(&mut self, now: Instant) {
        if let Err(fault) = self.bring_up(now) {
            self.break_off(now, None, &fault);
        }
        if self.phase == Phase::Live {
            self.look_again(now);
            if self.closing && self.jobs.len() == 0 {
                self.shut_down(now);
            }
            return;
        }
        if self.closing || self.draining {
            let why = if self.closing { Failure::Removed } else { Failure::NotReady };
            self.jobs.expire(now, true, why);
        }
        match self.phase {
            Phase::Resting(_) if self.closing => self.phase = Phase::Gone,
            Phase::Resting(until) if until <= now => self.open(now),
            Phase::Opening | Phase::Steps | Phase::Queues if self.closing => {
                self.break_off(now, None, &Fault::Reason("closed".to_owned()));
            }
            _ => {}
        }
    }

    /// Hands waiting jobs to the queues, the one with the fewest commands first.
    #[inline]
    fn dispatch(&mut self, now: Instant, memory: &mut dyn Memory) {
        let Some(limits) = self.limits else { return };
        while let Some(&index) = self.jobs.waiting.front() {
            let with_room = self.queues.iter_mut().filter(|queue| queue.has_room());
            let Some(queue) = with_room.min_by_key(|queue| queue.outstanding()) else { return };
            if self.jobs.block_if_overlapping(index) {
                self.jobs.waiting.pop_front();
                continue;
            }
            if self.jobs[index].kind == Kind::Flush {
                match self.jobs.flush_covers() {
                    Some(covers) => self.jobs[index].covers = covers,
                    None => {
                        self.jobs.fail_flushes();
                        continue;
                    }
                }
            }
            match plan(&mut self.jobs[index], &limits, self.settings.nsid) {
                Plan::Command { command, sends } => {
                    self.jobs.waiting.pop_front();
                    let job = &mut self.jobs[index];
                    (job.state, job.period) = (State::Queued, self.period);
                    queue.expect_answers(now);
                    queue.submit(index, command, sends, &mut self.jobs, &limits, memory);
                }
                Plan::Split => self.jobs.split(index, limits.transfer),
                Plan::Finish(outcome) => {
                    self.jobs.waiting.pop_front();
                    self.jobs.finish(index, outcome);
                }
            }
        }
    }
}
