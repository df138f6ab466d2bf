//! The initiator: a remote shelf.slot that answers block requests like a disk. The mirror of
//! [`server`](crate::server).
//!
//! In: requests, frames (lent for the call), batches that were sent, what links are, the present.
//! Out: completions, batches, news. Pure: no socket, no clock. Order of calls: `handle_*` for
//! everything that happened, then [`Initiator::settle`] once, then the `poll_*` until they are
//! empty. Units: bytes above, sectors of 512 bytes on the wire; times on the shard clock.
//!
//! The target is asked for on every link; each station that answers is a path ([`paths`]), is asked
//! who it is, and used if it is the disk that the others are. Requests are cut to frames
//! ([`commands`]) and sent on the path with the most room ([`sending`]); a command that is not
//! answered in time is sent again with its tag, which lets a target see that it is a copy. Replies
//! come in any order and any number ([`receiving`]).
//!
//! **Errors.** What the device cannot do ends at once; what is not answered ends at its deadline:
//! *not done* if it was never sent or changes nothing, *unknown* if it may have been carried out,
//! and then only when it surely will not be any more. What is not the protocol is counted and
//! dropped: anybody can send frames. Writes to a target whose IDENTIFY says that it has a volatile
//! cache on are flushed where durability is asked for; others promise that what they answered is
//! durable. Not here: [`discovery`] of all targets of a link, which is a small machine of its own.

mod commands;
mod discovery;
mod paths;
mod receiving;
mod sending;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use block::{ByteCount, Completion, Failure, Instant, Operation, Outcome, Request, planted};
use contract::{Cache, DiskFacts, FrameBatch, LinkFacts, LinkId, counters};
use remote::{JobKind, PayloadPlace, Reach, Verdict};
use wire::aoe::{Address, SECTOR};
use wire::ascii_text;
use wire::ata::IdentifyDevice;

pub(crate) use commands::PARTITION_SHIFT;
use commands::{Commands, Disk};
pub use discovery::{Discovery, Found};
use paths::{Path, PathState};
pub use remote::InitiatorNews;

use crate::limits::{TAG_PARTITIONS_MAX, WINDOW_MAX};
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
    /// Initiators of this process that use the disk (one a shard), each with a tag partition of its
    /// own: they share what the target holds.
    pub sharers: u16,
    /// Which of them this is, below [`TAG_PARTITIONS_MAX`]: initiators behind one MAC address tell
    /// their answers by it, since it is part of each tag.
    pub tag_partition: u8,
    /// A request that was not answered after so long ends.
    pub deadline: Duration,
    /// A frame that was sent is surely dead after so long.
    pub stray: Duration,
    /// What a target may do with a command that it has, it has done after so long.
    pub quiesce: Duration,
}

impl Settings {
    /// Usual settings: a window of 64, which the Linux driver has, a deadline of 60 s, a second for
    /// frames (twice what a bridge may hold one back is less, and it is as long as our target knows
    /// copies), 10 s for targets.
    pub fn new(links: &[LinkId], address: Address) -> Settings {
        Settings {
            links: links.to_vec(),
            address,
            window: 64,
            sharers: 1,
            tag_partition: 0,
            deadline: Duration::from_secs(60),
            stray: Duration::from_secs(1),
            quiesce: Duration::from_secs(10),
        }
    }
}

counters! {
    /// What an initiator counts.
    pub struct InitiatorCounters {
        /// Frames of commands that were sent, copies among them.
        sent: Frames,
        /// Copies of commands that were sent.
        retransmitted: Frames,
        /// Commands that were answered.
        answered: Operations,
        /// Answers to what had been answered, or was given up.
        late: Frames,
        /// Frames that were no answer to anything, or not whole.
        strange: Frames,
        /// Answers with the E flag.
        refused: Frames,
        /// Changes that waited for sectors under way or in doubt.
        blocked: Operations,
    }
}

/// A link as the initiator uses it.
#[derive(Debug)]
struct Port {
    id: LinkId,
    up: Option<Up>,
}

/// What there is of a link that is up.
#[derive(Debug)]
struct Up {
    facts: LinkFacts,
    /// When the target is asked for next, and how often it was.
    ask_at: Instant,
    asked: u32,
}

/// A remote disk; see the module.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    ports: Vec<Port>,
    paths: Vec<Path>,
    /// What the disk is; `None` before it answered.
    device: Option<IdentifyDevice>,
    /// When it was last told of a station that is another disk.
    refusal_told: Option<Instant>,
    disk: Disk,
    commands: Commands,
    /// Jobs of which commands are to be made.
    active: VecDeque<u32>,
    /// Commands that are to be sent again, by tag.
    resend: VecDeque<u32>,
    /// When the first command counts as lost, at the earliest.
    due_at: Option<Instant>,
    /// How often the target may have been started anew, and have lost what its cache held.
    restarts: u64,
    outbox: Outbox,
    /// The number of the batch that is gathered.
    batch: u32,
    counters: InitiatorCounters,
}

impl Initiator {
    /// An initiator that asks for its target once a link is up. `seed` decides where its tags
    /// begin.
    pub fn new(mut settings: Settings, seed: u64) -> Initiator {
        assert!(!settings.links.is_empty(), "a remote disk without a link");
        assert!(!settings.address.is_wildcard(), "{} is no disk", settings.address);
        assert!(
            settings.tag_partition < TAG_PARTITIONS_MAX,
            "tag partition {} of {TAG_PARTITIONS_MAX}",
            settings.tag_partition
        );
        settings.window = settings.window.clamp(1, WINDOW_MAX);
        let port = |id: &LinkId| Port { id: *id, up: None };
        Initiator {
            ports: settings.links.iter().map(port).collect(),
            paths: Vec::new(),
            device: None,
            refusal_told: None,
            disk: Disk::default(),
            commands: Commands::new(
                settings.window.into(),
                settings.tag_partition,
                (seed ^ seed >> 32) as u32,
            ),
            active: VecDeque::new(),
            resend: VecDeque::new(),
            due_at: None,
            restarts: 0,
            outbox: Outbox::default(),
            batch: 0,
            counters: InitiatorCounters::default(),
            settings,
        }
    }

    /// Whether a response from this address with this tag may be for this initiator: one of its
    /// own, or an announcement.
    #[inline]
    pub fn wants(&self, address: Address, tag: u32) -> bool {
        address == self.settings.address
            && (tag == 0 || Commands::partition_of(tag) == self.settings.tag_partition)
    }

    /// Where the disk is.
    pub fn address(&self) -> Address {
        self.settings.address
    }

    /// What is known of the disk: `None` until it answered for the first time.
    pub fn facts(&self) -> Option<DiskFacts> {
        self.disk.presence.facts().cloned()
    }

    /// Requests that are not completed.
    pub fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    /// What was counted.
    pub fn counters(&self) -> InitiatorCounters {
        InitiatorCounters { blocked: self.disk.blocked_count, ..self.counters }
    }

    /// Finishes what can be finished, and is gone then.
    pub fn close(&mut self) {
        self.disk.close();
    }

    /// Whether it is refused, and would be if it came again.
    pub fn is_refused(&self) -> bool {
        self.disk.presence.is_refused
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closing(&self) -> bool {
        self.disk.presence.is_closing()
    }

    /// The process is about to end: requests are carried out while the disk answers, but do not
    /// wait for it.
    pub fn drain(&mut self) {
        self.disk.drain();
    }

    /// Whether nothing of it is left: no request, no answer to one, no batch.
    pub fn is_gone(&self) -> bool {
        self.is_closing() && self.disk.is_empty() && self.outbox.out() == 0
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        let live: Vec<String> = self
            .paths
            .iter()
            .filter(|path| path.state == PathState::Live)
            .map(|path| {
                let rtt = path.smooth().map_or_else(String::new, |rtt| format!(", {rtt:?}"));
                format!("{} on {} (window {}{rtt})", path.mac, path.link, path.window())
            })
            .collect();
        match live.is_empty() {
            false => format!("connected to {} at {}", self.settings.address, live.join(" and ")),
            true => self.disk.presence.explain(format_args!("looking for {}", self.address())),
        }
    }

    /// Which disk it is, wherever it is met, if its serial number says so.
    pub fn identity(&self) -> Option<String> {
        let device = self.device.as_ref()?;
        let (serial, model) = (ascii_text(&device.serial), ascii_text(&device.model));
        (!serial.is_empty()).then(|| format!("serial {serial} of {model}"))
    }

    /// Why it is not connected.
    pub fn explain(&self) -> String {
        self.disk.presence.explain(format_args!("cannot use {}", self.address()))
    }

    /// News in words.
    pub fn tell(&self, news: &InitiatorNews) -> String {
        self.disk.presence.tell(news, self.address(), self.state())
    }

    /// A link is up, or is not what it was.
    pub fn link_up(&mut self, now: Instant, id: LinkId, facts: LinkFacts) {
        let Some(port) = self.ports.iter_mut().find(|port| port.id == id) else { return };
        port.up = Some(Up { facts, ask_at: now, asked: 0 });
        self.paths.iter_mut().filter(|path| path.link == id).for_each(|path| path.ask(now));
        self.note_life();
        self.ask(now);
    }

    /// A link is down: what was sent there is sent on others.
    pub fn link_down(&mut self, now: Instant, id: LinkId) {
        let Some(port) = self.ports.iter_mut().find(|port| port.id == id) else { return };
        port.up = None;
        for index in 0..self.paths.len() {
            if self.paths[index].link == id {
                self.paths[index].ask(now);
                self.recall(index as u32);
                self.doubt_cache();
            }
        }
        self.note_life();
        self.ask(now);
    }

    /// A request, taken out of where it lies; exactly one completion comes.
    #[inline]
    pub fn handle_request(&mut self, now: Instant, request: &mut Request) {
        match request.operation {
            // Reads return zeros or what was there: nothing needs to be done.
            Operation::Discard { .. } if !self.is_closing() => {
                self.disk.answer(request, Outcome::Done);
            }
            _ => self.disk.admit(request, now + self.settings.deadline),
        }
    }

    /// A completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.disk.poll_completion()
    }

    /// All completions there are.
    #[inline]
    pub fn take_completions(&mut self, into: &mut Vec<Completion>) {
        self.disk.take_completions(into);
    }

    /// Frames to be sent; the batch comes back by [`handle_sent`](Self::handle_sent).
    #[inline]
    pub fn poll_batch(&mut self) -> Option<FrameBatch> {
        self.outbox.poll()
    }

    /// What people should know next.
    pub fn poll_news(&mut self) -> Option<InitiatorNews> {
        self.disk.presence.news.pop_front()
    }

    /// Frames have left, or were given up; their payloads come back.
    pub fn handle_sent(&mut self, now: Instant, mut batch: FrameBatch) {
        for (buffer, index) in batch.buffers.drain(..) {
            self.disk.take_home(index, buffer);
            match self.disk[index].verdict.take() {
                Some(Verdict::Finish(outcome)) => self.disk.finish(index, outcome),
                _ => self.try_finish(index, now),
            }
        }
        self.outbox.take_back(batch);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due_at.is_some_and(|at| at <= now) {
            self.note_lost(now);
        }
        for (index, why) in self.disk.handle_timeout(now) {
            self.give_up(now, index, why);
        }
        self.ask(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`settle`](Self::settle) want to be
    /// called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.due_at, self.disk.poll_timeout(), self.ask_at()].into_iter().flatten().min()
    }

    /// The end of a turn: commands and copies leave.
    pub fn settle(&mut self, now: Instant) {
        if self.disk.presence.reach() == Reach::Here {
            self.send(now);
        }
        if self.outbox.hand_out() {
            self.batch = self.batch.wrapping_add(1);
        }
    }

    /// The time of an active job is over.
    #[cold]
    fn give_up(&mut self, now: Instant, index: u32, why: Failure) {
        let job = &mut self.disk[index];
        let is_late = job.deadline <= now;
        if job.verdict.is_some() || (job.wire.held && !is_late) {
            return;
        }
        let may_be_done = job.kind.changes() && (job.wire.cut > 0 || job.wire.flushed);
        if may_be_done && !job.wire.held {
            self.hold(index, now + self.settings.quiesce);
            // If all that was sent is answered, it is known what became of it.
            return self.try_finish(index, now);
        }
        let held = job.wire.held;
        job.wire.note(if held { Outcome::Unknown(why) } else { Outcome::NotDone(why) });
        self.forget_commands(index);
        self.complete(index);
    }

    /// Makes no further commands of a job, and ends it then at the latest.
    fn hold(&mut self, index: u32, until: Instant) {
        self.disk[index].wire.held = true;
        self.disk.postpone(index, until);
        self.active.retain(|other| *other != index);
    }

    /// Ends a job if all of it is answered.
    fn try_finish(&mut self, index: u32, now: Instant) {
        let volatile = self.device.as_ref().is_some_and(|device| device.write_cache);
        let job = &mut self.disk[index];
        let changes = job.kind.changes();
        let (is_durable, is_cut) = (changes && job.durable, job.wire.cut >= job.extent.length.0);
        let progress = &mut job.wire;
        if progress.unanswered > 0 || job.place != PayloadPlace::Home {
            return;
        }
        let is_new_start = progress.restarts != self.restarts && !planted("new-start-is-not-seen");
        if is_new_start && is_cut && !progress.has_failed() {
            // What was answered before the target was away may be lost.
            progress.restarts = self.restarts;
            if changes && !progress.held {
                (progress.cut, progress.flushed) = (0, false);
                self.active.push_back(index);
                return;
            }
            if job.kind == JobKind::Flush && self.disk.has_flush_doubt() {
                self.disk.fail_flushes();
                self.disk[index].wire.note(Outcome::NotDone(Failure::MediumWrite));
                return self.complete(index);
            }
        }
        let progress = &mut self.disk[index].wire;
        if !progress.has_failed() && !is_cut {
            if !progress.held {
                return;
            }
            progress.note(Outcome::NotDone(Failure::TimedOut));
        } else if !progress.has_failed() && is_durable && volatile && !progress.flushed {
            if !progress.held {
                // The flush is its last command.
                self.active.push_back(index);
                return;
            }
            progress.note(Outcome::Unknown(Failure::TimedOut));
        }
        if let (Outcome::NotDone(why) | Outcome::Unknown(why), true) = (progress.outcome, changes)
            && let Some(until) = progress.doubt_until.filter(|until| *until > now)
        {
            // A copy may still be carried out: it is told when that is over.
            progress.note(Outcome::Unknown(why));
            return self.hold(index, until);
        }
        self.complete(index);
    }

    /// Completes a job, once its payload is here.
    fn complete(&mut self, index: u32) {
        let progress = &self.disk[index].wire;
        if progress.has_failed() {
            self.active.retain(|other| *other != index);
        }
        self.disk.finish_when_home(index, progress.outcome);
    }

    /// The target is not heard, or announces itself: it may have been started anew.
    #[cold]
    fn doubt_cache(&mut self) {
        if self.device.as_ref().is_some_and(|device| device.write_cache) {
            self.restarts += 1;
            self.disk.doubt_flushes(self.settings.sharers > 1);
        }
    }

    /// Whether the disk is there may have changed.
    fn note_life(&mut self) {
        let is_live = |path: &Path| path.state == PathState::Live;
        if self.paths.iter().any(is_live) { self.disk.came() } else { self.disk.lost() }
    }
}

/// What a target says of itself, as facts of a disk.
fn facts(device: &IdentifyDevice) -> DiskFacts {
    DiskFacts {
        size: ByteCount(device.sectors.saturating_mul(SECTOR as u64)),
        logical_block: SECTOR as u32,
        physical_block: (SECTOR as u32) << device.physical_exponent,
        cache: if device.write_cache { Cache::Volatile } else { Cache::None },
        read_only: false,
        discards: false,
        discard_zeroes: false,
    }
}
