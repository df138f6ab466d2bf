//! A host of our own making that speaks NVMe/TCP to the target and does what our initiator never
//! does: copies, fused compare-and-write pairs, aborts, resets (CC.EN 1 to 0) and shutdowns (CC.SHN)
//! with commands under way, and the loss of an admin queue or of one I/O queue.
//!
//! ```text
//!   resting -> greeting, Connect, CC.EN=1, CSTS.RDY? -> I/O queues, who is it? -> live -> reset -> (live again, or resting)
//!      ^                                                                          |----> shutdown -----------> resting
//!      |<-------------------------------------------------------------------------+----> a connection is cut -----|
//!      |<-------------------------------------------------------------------------+----> silence, until KATO -----|
//! ```
//! It tells the oracle of its writes. A write ends with its answer; with the answer to a reset that
//! covers it, or to an abort that says that it succeeded (after either nothing may reach the media
//! any more, P3); or, when connections are lost, after a quiesce time. It is strict: an answer that
//! was not asked for, data out of place, a wrong digest, or a C2HTermReq fails the run. While
//! nothing else goes wrong (*strict* in [`HostBehaviour`]), so does every status that it did not
//! provoke.
//! Units: blocks of the oracle ([`SECTOR`] bytes) where a log names them, logical blocks on the
//! wire; virtual nanoseconds.

mod behaviour;
mod copying;
mod ending;
pub(super) mod line;
mod watcher;
pub(super) mod work;

use std::collections::BTreeMap;

use block::Random;
use testkit::nvme::configure;
use testkit::nvme::host::{Fault, Heard};
use testkit::oracle::WriteId;
use wire::nvme::fabrics::{ConnectData, ConnectResult, ControllerStatus, Register};
use wire::nvme::identify::{Cns, IDENTIFY_SIZE, IdentifyNamespace};
use wire::nvme::{Command, Completion, Nqn};

use crate::client::SimWorld;
use crate::disk::SECTOR;
use crate::fences::FENCED_LATE;
use crate::over_nvme::swap::UUID;
use crate::writer::{Ids, Log, Write, Writer};
pub use behaviour::{Actions, HostBehaviour};
use line::Line;
pub(crate) use watcher::{Seen, Watcher};
use work::{Asked, NSID, Pair};

const MILLISECOND: u64 = 1_000_000;
/// After the loss of its connections nothing of a host reaches the media any more: resets arrive
/// within milliseconds, and disks answer within a second.
const QUIESCE: u64 = 10_000 * MILLISECOND;
/// So late the target may notice that KATO is over: shards ask each other first.
const LATE: u64 = 1_000 * MILLISECOND;
/// So long the target may be silent while something is asked.
const PATIENCE: u64 = 120_000 * MILLISECOND;

/// Entries of an I/O queue of a raw host.
pub(crate) const QUEUE_ENTRIES: usize = 32;
/// So long the target may take to leave a host that does not read: a send may be without progress
/// for 30 s, and data may be late as long before it.
const DEAF_MAX: u64 = 90_000 * MILLISECOND;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(u64),
    Admin,
    Queues,
    Live,
    /// CC.EN=0 was sent.
    Resetting,
    /// CC.SHN was sent, at this moment.
    ShuttingDown(u64),
    /// The admin connection was cut: the target must close the others.
    Orphaned,
    /// It says nothing more: the target must close all, after KATO and not before.
    Silent,
    /// Since then it reads nothing more, with more asked than the network holds.
    Deaf(u64),
    Done,
}

/// What the admin queue is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Connect,
    Enable,
    Ready,
    Queue(usize),
    Disable,
    Disabled,
    Shutdown,
    ShutdownStatus,
}

/// A host; see the module.
#[derive(Debug)]
pub struct RawHost {
    random: Random,
    behaviour: HostBehaviour,
    nqn: Nqn,
    subsystem: Nqn,
    host_id: [u8; 16],
    phase: Phase,
    /// The admin connection, then one for each I/O queue.
    lines: Vec<Line>,
    controller: u16,
    pairs: BTreeMap<u64, Pair>,
    next_pair: u64,
    /// Commands until this life ends.
    left: u64,
    next_at: u64,
    poll_at: Option<u64>,
    /// When it was last given a turn.
    now: u64,
    heard_at: u64,
    /// Until when it does not read.
    deaf_until: u64,
    alarm: Option<u64>,
    stopping: bool,
    pub(crate) writer: Writer,
    /// What it did, in numbers.
    pub actions: Actions,
}

impl RawHost {
    pub(crate) fn new(
        random: Random,
        behaviour: HostBehaviour,
        subsystem: Nqn,
        index: usize,
        writer: Writer,
    ) -> RawHost {
        let (nqn, host_id) = identity_of(index);
        RawHost {
            random,
            behaviour,
            nqn,
            subsystem,
            host_id,
            phase: Phase::Resting(0),
            lines: Vec::new(),
            controller: 0,
            pairs: BTreeMap::new(),
            next_pair: 0,
            left: 0,
            next_at: 0,
            poll_at: None,
            now: 0,
            heard_at: 0,
            deaf_until: 0,
            alarm: None,
            stopping: false,
            writer,
            actions: Actions::default(),
        }
    }

    /// Begins nothing new; it leaves when all is answered.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// HOSTNQN.
    pub fn name(&self) -> &Nqn {
        &self.nqn
    }

    /// Writes that are under way.
    pub(crate) fn writes_under_way(&self) -> Vec<Write> {
        let asked = self.lines.iter().flat_map(|line| line.host.asked.values());
        let writes = asked.filter_map(|asked| match &asked.what {
            Asked::Write { write, over: false, .. } => Some(*write),
            _ => None,
        });
        writes.chain(self.pairs.values().filter_map(Pair::write)).collect()
    }

    /// Those of them whose data the target has asked for.
    pub(crate) fn writes_there(&self) -> Vec<Write> {
        let there = self.lines.iter().flat_map(|line| line.writes_there(&self.pairs));
        there.map(|(write, _)| write).collect()
    }

    /// Whether data of a write that it was asked for have not left it: it cannot be done.
    pub(crate) fn owes_data(&self, id: WriteId) -> bool {
        let mut there = self.lines.iter().flat_map(|line| line.writes_there(&self.pairs));
        there.any(|(write, owes)| write.id == id && owes)
    }

    /// Whether it has left.
    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Done
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        let asked: Vec<String> =
            self.lines.iter().map(|line| format!("{:?}", line.host.asked)).collect();
        format!("{:?}, asked {}", self.phase, asked.join("; "))
    }

    /// Hears what came, and goes on. An error is the target's fault.
    pub(crate) fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<(), String> {
        self.now = world.now;
        if self.deaf_until <= self.now && !matches!(self.phase, Phase::Deaf(_)) {
            self.hear(world)?;
        }
        self.notice_losses(world)?;
        match self.phase {
            Phase::Resting(_) if self.stopping => self.phase = Phase::Done,
            Phase::Resting(until) if until <= self.now => self.begin(world, target),
            Phase::Live => self.live(world),
            _ => {}
        }
        self.poll(world);
        if self.alive_at().is_some_and(|at| at <= self.now) {
            self.lines[0].ask(world, Command::keep_alive(), &[], Asked::Alive);
        }
        for line in &mut self.lines {
            line.serve_grants(world, &self.pairs);
        }
        let asked = self.lines.iter().any(Line::is_waiting);
        let hears = !matches!(self.phase, Phase::Deaf(_));
        if hears && asked && self.now > self.heard_at + PATIENCE {
            if self.behaviour.strict {
                return Err(format!("a raw host is not answered: {}", self.state()));
            }
            self.lose(world);
        }
        self.set_alarm(world);
        Ok(())
    }

    fn set_alarm(&mut self, world: &mut SimWorld) {
        let phase = match self.phase {
            Phase::Resting(until) => Some(until),
            Phase::Orphaned => Some(self.heard_at + PATIENCE + 1),
            Phase::Silent => Some(self.given_up_by() + 1).filter(|by| *by > self.now),
            Phase::Deaf(since) => Some(since + DEAF_MAX + 1),
            Phase::Live if !self.stopping && self.under_way() < self.depth() => Some(self.next_at),
            _ => None,
        };
        let deaf = Some(self.deaf_until).filter(|until| *until > self.now);
        let asked = self.lines.iter().any(Line::is_waiting);
        let hears = !matches!(self.phase, Phase::Deaf(_));
        let patience = (hears && asked).then_some(self.heard_at + PATIENCE + 1);
        let grants = self.lines.iter().filter_map(Line::next_grant);
        let next = phase.into_iter().chain(patience).chain(self.poll_at).chain(grants);
        let next = next.chain(self.alive_at()).chain(deaf).min();
        let Some(next) = next else { return };
        if self.alarm.is_none_or(|alarm| alarm <= self.now || next < alarm) {
            let next = next.max(self.now + 1);
            self.alarm = Some(next);
            world.alarm_at(next);
        }
    }

    /// When it asked something last.
    fn said_at(&self) -> u64 {
        self.lines.iter().map(|line| line.said_at).max().unwrap_or(0)
    }

    /// When it has to say that it lives.
    fn alive_at(&self) -> Option<u64> {
        let lives = matches!(self.phase, Phase::Queues | Phase::Live);
        let half = self.behaviour.keep_alive / 2;
        (lives && half > 0).then(|| self.said_at() + half)
    }

    /// When the target must have given it up, if it is silent: KATO after the last that it said was
    /// taken, which was before it was answered.
    fn given_up_by(&self) -> u64 {
        self.said_at().max(self.heard_at) + self.behaviour.keep_alive + LATE
    }

    /// Commands that it may have under way. Deaf, it asks as much as one queue takes.
    fn depth(&self) -> usize {
        match self.deaf_until > self.now {
            _ if self.behaviour.greedy => QUEUE_ENTRIES * (self.lines.len() - 1),
            true => 28,
            false => self.behaviour.depth,
        }
    }

    /// Commands on I/O queues that are not answered.
    fn under_way(&self) -> usize {
        self.lines.iter().skip(1).map(|line| line.host.asked.len()).sum()
    }

    fn begin(&mut self, world: &mut SimWorld, target: usize) {
        if !world.is_up(target) {
            self.phase = Phase::Resting(self.now + 100 * MILLISECOND);
            return;
        }
        self.connect(world, target);
        (self.phase, self.heard_at) = (Phase::Admin, self.now);
    }

    fn connect(&mut self, world: &mut SimWorld, target: usize) {
        let digests = self.behaviour.digests;
        let mut line = Line::connect(world, target, digests, self.random.fork());
        if self.behaviour.is_fenced {
            line.late = FENCED_LATE;
        }
        self.lines.push(line);
    }

    fn hear(&mut self, world: &mut SimWorld) -> Result<(), String> {
        for at in 0..self.lines.len() {
            if self.lines.get_mut(at).is_some_and(|line| line.take(world)) {
                self.heard_at = self.now;
            }
            while let Some(heard) = self.lines.get_mut(at).and_then(|line| line.next().transpose())
            {
                let why = match heard {
                    Ok(Heard::Terminated(term)) => format!("a raw host was terminated: {term:?}"),
                    Err(Fault::Garbled(why)) => format!("a raw host heard nonsense: {why}"),
                    Err(Fault::Broken(why)) => return Err(why),
                    Ok(heard) => {
                        self.handle(world, at, heard)?;
                        continue;
                    }
                };
                if self.behaviour.strict {
                    return Err(why);
                }
                // Bits flip on the wire, and digests told so.
                self.lose(world);
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        world: &mut SimWorld,
        at: usize,
        heard: Heard<Asked>,
    ) -> Result<(), String> {
        match heard {
            Heard::Greeted(_) => {
                let step = if at == 0 { Step::Connect } else { Step::Queue(at) };
                let controller =
                    if at == 0 { ConnectData::CONTROLLER_ANY } else { self.controller };
                let data = ConnectData {
                    host_id: self.host_id,
                    controller_id: controller,
                    subsystem: self.subsystem.clone(),
                    host: Some(self.nqn.clone()),
                };
                let keep_alive = if at == 0 { self.behaviour.keep_alive } else { 0 };
                self.lines[at].join(world, at as u16, keep_alive, &data, step);
                Ok(())
            }
            Heard::Terminated(_) => unreachable!("a C2HTermReq ends the line"),
            Heard::Data { .. } => unreachable!("the line takes them"),
            Heard::Answered(asked, entry) => match asked.what {
                Asked::Step(step) => self.stepped(world, step, &entry),
                Asked::Identify { bytes } => {
                    let seen = IdentifyNamespace::parse(&bytes).expect("a whole page");
                    self.identified(world, &seen);
                    Ok(())
                }
                Asked::Alive => match entry.status.is_success() || self.phase != Phase::Live {
                    true => Ok(()),
                    false if !self.behaviour.strict => Ok(()),
                    false => Err(format!("Keep Alive was answered: {entry}")),
                },
                asked => {
                    self.actions.answered += 1;
                    self.answered(asked, &entry)
                }
            },
            Heard::Granted(grant) => {
                self.actions.grants += 1;
                self.lines[at].grant(self.now, grant);
                Ok(())
            }
        }
    }

    fn ask_admin(&mut self, world: &mut SimWorld, step: Step, command: Command) {
        self.lines[0].ask(world, command, &[], Asked::Step(step));
    }

    /// An answer on the way up or down.
    fn stepped(
        &mut self,
        world: &mut SimWorld,
        step: Step,
        entry: &Completion,
    ) -> Result<(), String> {
        if !entry.status.is_success() {
            // A target that is just starting, or that drains an old association of ours, asks us to
            // come again: without DNR.
            let comes_again = matches!(step, Step::Connect | Step::Queue(_)) && !entry.status.dnr();
            if self.behaviour.strict && !comes_again {
                return Err(format!("{step:?} of a raw host was answered: {entry}"));
            }
            self.lose(world);
            return Ok(());
        }
        let status = ControllerStatus(entry.result as u32);
        match step {
            Step::Connect => {
                self.controller = ConnectResult(entry.result as u32).controller_id() as u16;
                self.ask_admin(world, Step::Enable, configure(true, 0));
            }
            Step::Enable => self.ask_admin(world, Step::Ready, controller_status()),
            Step::Ready if status.ready() => {
                self.phase = Phase::Queues;
                let target = self.lines[0].target;
                for _ in 0..self.behaviour.queues {
                    self.connect(world, target);
                }
            }
            Step::Queue(at) => {
                self.lines[at].live = true;
                if self.behaviour.greedy {
                    self.lines[at].host.ids = QUEUE_ENTRIES as u16;
                }
                if self.lines.iter().skip(1).all(|line| line.live) {
                    let asked = Asked::Identify { bytes: vec![0; IDENTIFY_SIZE] };
                    let command = Command::identify(Cns::NAMESPACE, NSID);
                    self.lines[0].ask(world, command, &[], asked);
                }
            }
            Step::Disable if self.phase == Phase::Resetting => self.reset_done(world),
            Step::Disabled if self.phase == Phase::Resetting && !status.ready() => {
                self.reset_done(world);
            }
            Step::ShutdownStatus => {
                let Phase::ShuttingDown(start) = self.phase else { return Ok(()) };
                if status.shst() == SHUTDOWN_COMPLETE {
                    self.actions.shutdowns += 1;
                    // What was acknowledged before is durable now.
                    self.writer.log.push(Log::Flushed { start, by: Ids::NONE });
                    self.hang_up(world, false);
                    return Ok(());
                }
                if status.fatal() {
                    if self.behaviour.strict {
                        return Err("a shutdown ends in CSTS.CFS".to_owned());
                    }
                    self.lose(world);
                    return Ok(());
                }
                self.poll_at = Some(self.now + 5 * MILLISECOND);
            }
            Step::Ready => self.poll_at = Some(self.now + 5 * MILLISECOND),
            Step::Shutdown => self.poll_at = Some(self.now),
            Step::Disable | Step::Disabled => {}
        }
        Ok(())
    }

    /// Lives if it is the volume that it knows; else it comes again.
    fn identified(&mut self, world: &mut SimWorld, seen: &IdentifyNamespace) {
        if seen.nguid != UUID {
            return self.hang_up(world, false);
        }
        self.phase = Phase::Live;
        self.next_at = self.now;
        let is_short = self.behaviour.resets || self.behaviour.keep_alive > 0;
        let most = if is_short { 40 } else { 400 };
        self.left = 1 + self.random.below(most);
    }

    /// Asks again for what takes its time.
    fn poll(&mut self, world: &mut SimWorld) {
        if self.poll_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.poll_at = None;
        match self.phase {
            Phase::Admin => self.ask_admin(world, Step::Ready, controller_status()),
            Phase::ShuttingDown(_) => {
                self.ask_admin(world, Step::ShutdownStatus, controller_status());
            }
            _ => {}
        }
    }

    /// The target says that the controller is reset: from now on nothing of it reaches the media.
    fn reset_done(&mut self, world: &mut SimWorld) {
        self.actions.resets += 1;
        self.actions.reset_commands += self.under_way() as u64;
        for mut line in self.lines.split_off(1) {
            self.abandon(&mut line, self.now);
            line.hang_up(world, false);
        }
        if self.stopping || self.random.chance(1, 2) {
            self.hang_up(world, false);
        } else {
            self.phase = Phase::Admin;
            self.ask_admin(world, Step::Enable, configure(true, 0));
        }
    }

    /// Lives on, or ends this life in one of the ways that there are.
    fn live(&mut self, world: &mut SimWorld) {
        while !self.stopping
            && self.left > 0
            && self.next_at <= self.now
            && self.under_way() < self.depth()
        {
            self.left -= 1;
            if self.behaviour.deaf && self.random.chance(1, 40) {
                self.actions.deafs += 1;
                self.deaf_until = self.now + self.random.below(3_000 * MILLISECOND);
            }
            self.work(world);
            if self.random.chance(1, self.behaviour.depth as u64) {
                let most = 2 * self.behaviour.interval_us * self.behaviour.depth as u64 * 1_000;
                self.next_at = self.now + self.random.below(most + 1);
            }
        }
        if self.stopping {
            if self.under_way() == 0 {
                self.shut_down(world);
            }
            return;
        }
        if self.left > 0 {
            return;
        }
        if self.behaviour.greedy && self.random.chance(1, 2) {
            return self.read_no_more(world);
        }
        // Life ends while commands are under way, mostly.
        if self.under_way() > 0 && self.random.chance(1, 4) {
            return;
        }
        if self.behaviour.keep_alive > 0 && self.random.chance(1, 3) {
            self.phase = Phase::Silent;
            return;
        }
        match self.random.below(if self.behaviour.resets { 6 } else { 2 }) {
            0 => self.shut_down(world),
            1..=3 => self.reset(world),
            4 => {
                self.actions.losses += 1;
                let mut admin = self.lines.remove(0);
                admin.hang_up(world, true);
                self.abandon(&mut admin, self.now + QUIESCE);
                self.phase = Phase::Orphaned;
                self.heard_at = self.now;
            }
            _ => {
                // One queue is lost, and the controller reset: its answer covers that queue, too.
                self.actions.losses += 1;
                let at = 1 + self.random.below(self.lines.len() as u64 - 1) as usize;
                self.lines[at].hang_up(world, true);
                self.reset(world);
            }
        }
    }

    fn reset(&mut self, world: &mut SimWorld) {
        (self.phase, self.deaf_until) = (Phase::Resetting, 0);
        for line in &mut self.lines[1..] {
            line.may_end = true;
        }
        self.ask_admin(world, Step::Disable, configure(false, 0));
        if self.random.chance(1, 2) {
            self.ask_admin(world, Step::Disabled, controller_status());
        }
    }

    fn shut_down(&mut self, world: &mut SimWorld) {
        if !self.behaviour.shuts_down {
            return self.hang_up(world, false);
        }
        (self.phase, self.deaf_until) = (Phase::ShuttingDown(self.now), 0);
        for line in &mut self.lines[1..] {
            line.may_end = true;
        }
        self.ask_admin(world, Step::Shutdown, configure(true, 1));
    }
}

/// CSTS.SHST: the shutdown is complete.
const SHUTDOWN_COMPLETE: u32 = 2;

pub(super) fn controller_status() -> Command {
    Command::property_get(Register::CSTS.0, false)
}

/// HOSTNQN and HOSTID of a raw host.
pub(super) fn identity_of(index: usize) -> (Nqn, [u8; 16]) {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:sim-raw-{index}");
    (Nqn::new(&name).expect("a valid name"), [0x80 + index as u8; 16])
}

/// Bytes of `count` logical blocks.
fn bytes_of(unit: u64, count: u64) -> usize {
    (unit * count) as usize * SECTOR
}
