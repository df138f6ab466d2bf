//! The initiator: a remote shelf.slot that answers block requests like a disk. The mirror of [`target`](crate::target).
//!
//! In: requests, frames (lent for the call), batches that were sent, what links are, the present. Out: completions, batches, news. Pure: no socket, no clock.
//! Order of calls: `handle_*` for everything that happened, then [`Initiator::settle`] once, then the `poll_*` until they are empty. Units: bytes
//! above, sectors of 512 bytes on the wire; times on the shard clock.
//!
//! The target is asked for on every link; each station that answers is a path ([`paths`]), is asked who it is, and used if it is the disk that the
//! others are. Requests are cut to frames ([`jobs`]) and sent on the path with the most room ([`sending`]); a command that is not answered in time is sent again
//! with its tag, which lets a target see that it is a copy. Replies come in any order and any number ([`receiving`]).
//!
//! **Errors.** What the device cannot do ends at once; what is not answered ends at its deadline: *not done* if it was never sent or changes nothing, *unknown* if it may
//! have been carried out, and then only when it surely will not be any more. What is not the protocol is counted and dropped: anybody can send frames.
//! Writes to a target whose IDENTIFY says that it has a volatile cache on are flushed where durability is asked for; others promise that what they answered is durable.
//! Not here: [`discovery`] of all targets of a link, which is a small machine of its own.

mod discovery;
mod jobs;
mod paths;
mod receiving;
mod sending;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use block::{ByteCount, Completion, Failure, Instant, Outcome, Request};
use contract::{Cache, DiskFacts, FrameBatch, LinkFacts, LinkId};
use wire::aoe::{Address, SECTOR};
use wire::ata::IdentifyDevice;

pub use discovery::{Discovery, Found};
use jobs::{Claim, Commands, Job, Jobs, State};
use paths::Path;

use crate::outbox::Outbox;

/// Where a remote disk is and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The links on which it may be.
    pub links: Vec<LinkId>,
    /// Its address.
    pub address: Address,
    /// Commands outstanding, at most; the target may hold fewer.
    pub window: u16,
    /// Initiators of this process that use the disk (one a shard), each with a lane of its own: they share what the target holds.
    pub sharers: u16,
    /// Which of them this is, below [`LANES_MAX`]: initiators behind one MAC address tell their answers by it, since it is part of each tag.
    pub lane: u8,
    /// A request that was not answered after so long ends.
    pub deadline: Duration,
    /// A frame that was sent is surely dead after so long.
    pub stray: Duration,
    /// What a target may do with a command that it has, it has done after so long.
    pub quiesce: Duration,
}

impl Settings {
    /// Usual settings: a window of 64, which the Linux driver has, a deadline of 60 s, a second for frames (twice what a bridge may hold one back is less,
    /// and it is as long as our target knows copies), 10 s for targets.
    #[must_use]
    pub fn new(links: &[LinkId], address: Address) -> Settings {
        Settings {
            links: links.to_vec(),
            address,
            window: 64,
            sharers: 1,
            lane: 0,
            deadline: Duration::from_secs(60),
            stray: Duration::from_secs(1),
            quiesce: Duration::from_secs(10),
        }
    }
}

/// Lanes that tags tell apart: as many as there may be shards.
pub const LANES_MAX: u8 = 64;
const _: () = assert!(LANES_MAX as usize >= block::limits::SHARDS_MAX);
/// The most commands outstanding that an initiator may have.
pub const WINDOW_MAX: u16 = 1024;
/// Paths that one initiator follows.
const PATHS_MAX: usize = 16;

/// What an initiator wants of its driver.
#[derive(Debug)]
pub enum InitiatorEffect {
    /// Send these frames; the batch comes back by [`Initiator::handle_sent`].
    Send(FrameBatch),
}

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorNews {
    /// The disk is there, for the first time or again.
    Connected,
    /// No path answers.
    Lost(String),
    /// The disk has another size.
    FactsChanged,
    /// A station has the address and is another disk.
    Refused(String),
}

/// What an initiator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitiatorCounters {
    /// Frames of commands that were sent, copies among them.
    pub sent: u64,
    /// Copies.
    pub retransmitted: u64,
    /// Commands that were answered.
    pub answered: u64,
    /// Answers to what had been answered, or was given up.
    pub late: u64,
    /// Frames that were no answer to anything, or not whole.
    pub strange: u64,
    /// Answers with the E flag.
    pub refused: u64,
    /// Changes that waited for sectors under way or in doubt.
    pub blocked: u64,
}

/// A link as the initiator uses it.
#[derive(Debug)]
struct Port {
    id: LinkId,
    facts: Option<LinkFacts>,
    /// When the target is asked for next, and how often it was.
    ask_at: Instant,
    asked: u32,
}

/// What tells one disk from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    serial: [u8; 20],
    model: [u8; 40],
}

/// A remote disk; see the module.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    ports: Vec<Port>,
    paths: Vec<Path>,
    /// What the disk is; `None` before it answered.
    device: Option<IdentifyDevice>,
    is_live: bool,
    jobs: Jobs,
    commands: Commands,
    /// Jobs that wait for their turn, jobs that wait for sectors, and jobs of which commands are to be made.
    waiting: VecDeque<u32>,
    blocked: VecDeque<u32>,
    active: VecDeque<u32>,
    /// Commands that are to be sent again, by tag.
    resend: VecDeque<u32>,
    claims: Vec<Claim>,
    /// Jobs whose payloads are in the batch that is gathered.
    gathered: Vec<u32>,
    /// When the first command counts as lost, the first doubt ends, the first job passes its deadline: at the earliest.
    due_at: Option<Instant>,
    doubt_at: Option<Instant>,
    expire_at: Option<Instant>,
    outbox: Outbox,
    completions: VecDeque<Completion>,
    news: VecDeque<InitiatorNews>,
    last_fault: String,
    counters: InitiatorCounters,
    closing: bool,
    draining: bool,
}

impl Initiator {
    /// An initiator that asks for its target once a link is up. `seed` decides where its tags begin.
    #[must_use]
    pub fn new(now: Instant, mut settings: Settings, seed: u64) -> Initiator {
        assert!(!settings.links.is_empty(), "a remote disk without a link");
        assert!(!settings.address.is_wildcard(), "{} is no disk", settings.address);
        assert!(settings.lane < LANES_MAX, "lane {} of {LANES_MAX}", settings.lane);
        settings.window = settings.window.clamp(1, WINDOW_MAX);
        let port = |id: &LinkId| Port { id: *id, facts: None, ask_at: now, asked: 0 };
        Initiator {
            ports: settings.links.iter().map(port).collect(),
            paths: Vec::new(),
            device: None,
            is_live: false,
            jobs: Jobs::default(),
            commands: Commands::new(
                settings.window.into(),
                settings.lane,
                (seed ^ seed >> 32) as u32,
            ),
            waiting: VecDeque::new(),
            blocked: VecDeque::new(),
            active: VecDeque::new(),
            resend: VecDeque::new(),
            claims: Vec::new(),
            gathered: Vec::new(),
            due_at: None,
            doubt_at: None,
            expire_at: None,
            outbox: Outbox::default(),
            completions: VecDeque::new(),
            news: VecDeque::new(),
            last_fault: "no answer yet".to_owned(),
            counters: InitiatorCounters::default(),
            closing: false,
            draining: false,
            settings,
        }
    }

    /// Whether a response from this address with this tag may be for this initiator: one of its own, or an announcement.
    #[inline]
    #[must_use]
    pub fn wants(&self, address: Address, tag: u32) -> bool {
        address == self.settings.address
            && (tag == 0 || Commands::lane_of(tag) == self.settings.lane)
    }

    /// Where the disk is.
    #[must_use]
    pub fn address(&self) -> Address {
        self.settings.address
    }

    /// What is known of the disk: `None` until it answered for the first time.
    #[must_use]
    pub fn facts(&self) -> Option<DiskFacts> {
        let device = self.device.as_ref()?;
        Some(DiskFacts {
            size: ByteCount(device.sectors.saturating_mul(SECTOR as u64)),
            logical_block: SECTOR as u32,
            physical_block: (SECTOR as u32) << device.physical_exponent,
            cache: if device.write_cache { Cache::Volatile } else { Cache::None },
            read_only: false,
            discards: false,
            discard_zeroes: false,
        })
    }

    /// What the target says of itself.
    #[must_use]
    pub fn device(&self) -> Option<&IdentifyDevice> {
        self.device.as_ref()
    }

    /// Requests that are not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> InitiatorCounters {
        self.counters
    }

    /// Finishes what can be finished, and is gone then.
    pub fn close(&mut self) {
        self.closing = true;
        self.expire_at = Some(Instant::ZERO);
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// The process is about to end: requests are carried out while the disk answers, but do not wait for it.
    pub fn drain(&mut self) {
        self.draining = true;
        self.expire_at = Some(Instant::ZERO);
    }

    /// Whether nothing of it is left: no request, no batch.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.closing && self.jobs.len() == 0 && self.outbox.out() == 0
    }

    /// How it is, in words.
    #[must_use]
    pub fn state(&self) -> String {
        let live: Vec<String> = self
            .paths
            .iter()
            .filter(|path| path.state == paths::State::Live)
            .map(|path| {
                let rtt = path.smooth().map_or_else(String::new, |rtt| format!(", {rtt:?}"));
                format!("{} on {} (window {}{rtt})", path.mac, path.link, path.window())
            })
            .collect();
        match live.is_empty() {
            false => format!("connected to {} at {}", self.settings.address, live.join(" and ")),
            true => format!("looking for {}: {}", self.settings.address, self.last_fault),
        }
    }

    /// Why it is not connected.
    #[must_use]
    pub fn explain(&self) -> String {
        format!("cannot use {}: {}", self.settings.address, self.last_fault)
    }

    /// News in words.
    #[must_use]
    pub fn tell(&self, news: &InitiatorNews) -> String {
        let size = self.facts().map_or(0, |facts| facts.size.0);
        match news {
            InitiatorNews::Connected => format!("{}, {size} bytes", self.state()),
            InitiatorNews::Lost(why) => format!("lost {}: {why}", self.settings.address),
            InitiatorNews::FactsChanged => format!("changed: it has {size} bytes now"),
            InitiatorNews::Refused(why) => why.clone(),
        }
    }

    /// A link is up, or is not what it was.
    pub fn link_up(&mut self, now: Instant, id: LinkId, facts: LinkFacts) {
        let Some(port) = self.ports.iter_mut().find(|port| port.id == id) else { return };
        (port.facts, port.ask_at, port.asked) = (Some(facts), now, 0);
        self.paths.iter_mut().filter(|path| path.link == id).for_each(|path| path.ask(now));
        self.note_life();
    }

    /// A link is down: what was sent there is sent on others.
    pub fn link_down(&mut self, now: Instant, id: LinkId) {
        let Some(port) = self.ports.iter_mut().find(|port| port.id == id) else { return };
        port.facts = None;
        for index in 0..self.paths.len() {
            if self.paths[index].link == id {
                self.paths[index].ask(now);
                self.recall(index as u32);
            }
        }
        self.note_life();
    }

    /// A request; exactly one completion comes.
    #[inline]
    pub fn handle_request(&mut self, now: Instant, request: Request) {
        if self.closing {
            let refused = request.complete(Outcome::NotDone(Failure::Removed));
            self.completions.push_back(refused);
            return;
        }
        let deadline = now + self.settings.deadline;
        match Job::new(request, deadline) {
            Ok(job) => {
                let index = self.jobs.insert(job);
                self.waiting.push_back(index);
                let deadline = if self.draining { Instant::ZERO } else { deadline };
                self.expire_at = Some(self.expire_at.map_or(deadline, |at| at.min(deadline)));
            }
            Err(completion) => self.completions.push_back(completion),
        }
    }

    /// A completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// What the driver should do next.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<InitiatorEffect> {
        self.outbox.poll().map(InitiatorEffect::Send)
    }

    /// What people should know next.
    pub fn poll_news(&mut self) -> Option<InitiatorNews> {
        self.news.pop_front()
    }

    /// Frames have left, or were given up; their payloads come back.
    pub fn handle_sent(&mut self, now: Instant, mut batch: FrameBatch) {
        for (buffer, index) in batch.buffers.drain(..) {
            let job = self.jobs.at(index);
            (job.buffer, job.lent) = (buffer, false);
            self.try_finish(index, now);
        }
        self.outbox.take_back(batch);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come; [`settle`](Self::settle) does the rest.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.due_at) {
            self.note_lost(now);
        }
        if due(self.doubt_at) {
            self.end_doubts(now);
        }
        if due(self.expire_at) {
            self.expire(now);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be called.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [self.due_at, self.doubt_at, self.expire_at];
        timers.into_iter().flatten().chain(self.ask_at()).min()
    }

    /// The end of a turn: what is to be asked is asked, commands and copies leave.
    pub fn settle(&mut self, now: Instant) {
        if self.ask_at().is_some_and(|at| at <= now) {
            self.ask(now);
        }
        if self.is_live {
            self.send(now);
        }
        if self.outbox.hand_out() {
            for index in self.gathered.drain(..) {
                self.jobs.at(index).gathered = None;
            }
        }
    }

    /// Ends what has passed its deadline.
    #[cold]
    fn expire(&mut self, now: Instant) {
        let hurried = (self.draining || self.closing) && !self.is_live;
        let mut next: Option<Instant> = None;
        let mut over = Vec::new();
        for (index, job) in self.jobs.iter().filter(|(_, job)| !job.over) {
            let at = match job.state {
                State::Held(until) => until,
                _ if hurried => now,
                _ => job.deadline,
            };
            if at <= now {
                over.push(index);
            } else {
                next = Some(next.map_or(at, |known| known.min(at)));
            }
        }
        self.expire_at = next;
        for index in over {
            let job = self.jobs.at(index);
            let is_doubtful = job.kind.changes() && (job.cut > 0 || job.flushed);
            match job.state {
                State::Held(_) => job.note(Outcome::Unknown(Failure::TimedOut)),
                State::Active if is_doubtful => {
                    self.hold(index, now + self.settings.quiesce);
                    // If all that was sent is answered, it is known what became of it.
                    self.try_finish(index, now);
                    continue;
                }
                _ => job.note(Outcome::NotDone(Failure::TimedOut)),
            }
            self.forget_commands(index);
            for queue in [&mut self.waiting, &mut self.blocked, &mut self.active] {
                queue.retain(|other| *other != index);
            }
            self.complete(index);
        }
    }

    /// Makes no further commands of a job, and ends it then at the latest.
    fn hold(&mut self, index: u32, until: Instant) {
        self.jobs.at(index).state = State::Held(until);
        self.active.retain(|other| *other != index);
        self.expire_at = Some(self.expire_at.map_or(until, |known| known.min(until)));
    }

    /// Ends a job if all of it is answered.
    fn try_finish(&mut self, index: u32, now: Instant) {
        let volatile = self.device.as_ref().is_some_and(|device| device.write_cache);
        let job = self.jobs.at(index);
        if job.over {
            return self.complete(index);
        }
        if job.unanswered > 0 || job.lent || matches!(job.state, State::Waiting | State::Blocked) {
            return;
        }
        let failed = matches!(job.outcome, Outcome::NotDone(_) | Outcome::Unknown(_));
        let is_held = matches!(job.state, State::Held(_));
        if !failed && !job.is_cut() {
            if !is_held {
                return;
            }
            job.note(Outcome::NotDone(Failure::TimedOut));
        } else if !failed && job.kind.is_durable() && volatile && !job.flushed {
            if !is_held {
                // The flush is its last command.
                self.active.push_back(index);
                return;
            }
            job.note(Outcome::Unknown(Failure::TimedOut));
        }
        if let (Outcome::NotDone(why) | Outcome::Unknown(why), true) =
            (job.outcome, job.kind.changes())
            && let Some(until) = job.doubt_until.filter(|until| *until > now)
        {
            // A copy may still be carried out: it is told when that is over.
            job.note(Outcome::Unknown(why));
            return self.hold(index, until);
        }
        if failed {
            self.active.retain(|other| *other != index);
        }
        self.complete(index);
    }

    /// Completes a job, once its payload is here.
    fn complete(&mut self, index: u32) {
        let job = self.jobs.at(index);
        job.over = true;
        if job.lent {
            // Its batch brings it back.
            return;
        }
        let job = self.jobs.remove(index);
        if job.kind.changes() {
            self.claims.retain(|claim| claim.job != Some(index));
            self.unblock();
        }
        self.completions.push_back(Completion::new(job.ticket, job.outcome, job.buffer));
    }

    /// Sectors may be free: who waits for some is looked at again.
    fn unblock(&mut self) {
        while let Some(index) = self.blocked.pop_back() {
            self.jobs.at(index).state = State::Waiting;
            self.waiting.push_front(index);
        }
    }

    /// Doubts whose copies are surely dead end.
    #[cold]
    fn end_doubts(&mut self, now: Instant) {
        self.claims.retain(|claim| claim.job.is_some() || claim.until > now);
        let doubts = self.claims.iter().filter(|claim| claim.job.is_none());
        self.doubt_at = doubts.map(|claim| claim.until).min();
        self.unblock();
    }

    /// Whether the disk is there, and that is news or not.
    fn note_life(&mut self) {
        let is_live = self.paths.iter().any(|path| path.state == paths::State::Live);
        if !is_live && (self.draining || self.closing) {
            self.expire_at = Some(Instant::ZERO);
        }
        if is_live != core::mem::replace(&mut self.is_live, is_live) {
            self.news.push_back(match is_live {
                true => InitiatorNews::Connected,
                false => InitiatorNews::Lost(self.last_fault.clone()),
            });
        }
    }
}
