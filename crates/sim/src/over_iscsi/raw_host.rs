//! A host of our own making that speaks iSCSI to the target and does what our initiator never does:
//! copies, compare-and-write, aborts of tasks that may well be done, data out of their order, logouts
//! with tasks under way, and logins of a port that has a session still (reinstatement).
//!
//! ```text
//!   resting -> logging in -> live ---> logging out ----------> resting
//!      ^           |           |-----> comes again by another connection, the old one open
//!      |<- 0301 ---'           |-----> its connection is cut
//!      |<----------------------+-----> reads nothing more, until it is left
//! ```
//! It tells the oracle of its writes. A write ends with its answer; with the answer to an abort that
//! ended it, or to a logout; with the answer to the next login of its port (after each of these nothing
//! of it may reach the media any more, P3); or, when its connection is lost and no login follows, after
//! a quiesce time. It is strict: what `testkit::iscsi` says that a host may not hear fails the run. While
//! nothing else goes wrong (*strict* in [`HostBehaviour`]), so does every status that it did not
//! provoke.
//! Units: blocks of the oracle ([`SECTOR`] bytes) where a log names them, logical blocks on the wire;
//! virtual nanoseconds.

mod copying;
pub(super) mod line;
pub(super) mod work;

use block::Random;
use contract::counters;
use testkit::iscsi::Said;
use testkit::iscsi::host::{Fault, Heard};
use testkit::oracle::WriteId;
use wire::iscsi::{LoginStatus, LogoutReason};

use crate::client::SimWorld;
use crate::disk::SECTOR;
use crate::fences::FENCED_LATE;
use crate::network::WINDOW;
use crate::run::MILLISECOND;
use crate::writer::{Write, Writer};
use line::Line;
use work::Asked;

/// After the loss of its connection nothing of a host reaches the media any more: resets arrive within
/// milliseconds, and disks answer within a second.
const QUIESCE: u64 = 10_000 * MILLISECOND;
/// So long the target may be silent while something is asked.
const PATIENCE: u64 = 120_000 * MILLISECOND;
/// How long after it a host that found nobody listening tries again.
pub(super) const DOWN: u64 = 100 * MILLISECOND;
/// Of what is not answered within so long a host asks whether it is known at all.
const DOUBT: u64 = 3_000 * MILLISECOND;
/// So long the target may take to leave a host that does not read: a send may be without progress for
/// 30 s, and data may be late as long before it.
const DEAF_MAX: u64 = 90_000 * MILLISECOND;

/// How a raw host behaves.
#[derive(Clone, Copy, Debug)]
pub struct HostBehaviour {
    /// Sectors of a logical block.
    pub unit: u64,
    /// Logical blocks that it works on, from the first on.
    pub span: u64,
    /// Whether it copies, to as many logical blocks behind those as twice.
    pub copies: bool,
    /// Commands under way at most.
    pub depth: usize,
    /// Mean time between two commands, in microseconds.
    pub interval_us: u64,
    /// Whether lives end soon, by logouts, losses and logins of the same port.
    pub returns: bool,
    /// Whether it asks as much as it may, and stops reading for ever now and then.
    pub greedy: bool,
    /// Whether it asks for digests.
    pub digests: bool,
    /// Whether somebody may end its tasks, without a word.
    pub is_fenced: bool,
    /// Whether nothing else goes wrong: then every error must have been provoked.
    pub strict: bool,
}

counters! {
    /// What a raw host did.
    pub struct Actions {
        /// Commands that were answered.
        answered: Operations,
        /// Compare-and-writes that wrote.
        swaps: Operations,
        /// Compare-and-writes that found something else.
        miscompares: Operations,
        /// Runs of blocks without space below that it was told of.
        holes: Events,
        /// Copies that were done.
        copies: Operations,
        /// Copies that ended in their midst, some segments copied.
        part_copies: Operations,
        /// Tasks that somebody else's PREEMPT AND ABORT ended.
        vanished: Operations,
        /// Tasks that an abort ended.
        aborts: Operations,
        /// Writes whose data came out of their order.
        skewed: Operations,
        /// Logouts that were answered.
        logouts: Operations,
        /// Tasks that were under way at a logout.
        logout_tasks: Operations,
        /// Logins that ended a session of their port.
        returns: Operations,
        /// Tasks that were under way in such a session.
        return_tasks: Operations,
        /// Logins that were told to come again.
        held: Operations,
        /// Times that it cut its connection.
        losses: Events,
        /// R2Ts.
        grants: Events,
        /// Times that it never read again, and was left.
        left: Events,
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(u64),
    LoggingIn,
    Live,
    LoggingOut,
    /// Since then it reads nothing more, with more asked than the network holds.
    Deaf(u64),
    Done,
}

/// A host; see the module.
#[derive(Debug)]
pub struct RawHost {
    random: Random,
    behaviour: HostBehaviour,
    name: String,
    isid: [u8; 6],
    phase: Phase,
    line: Option<Line>,
    /// Connections that it left open when it came again.
    old: Vec<Line>,
    /// Writes of sessions that are lost, until when they may happen at most.
    orphans: Vec<(Write, u64)>,
    /// Commands until this life ends.
    left: u64,
    next_at: u64,
    /// When it was last given a turn.
    now: u64,
    heard_at: u64,
    /// When it asked last whether what is under way is known.
    doubted_at: u64,
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
        index: usize,
        writer: Writer,
    ) -> RawHost {
        RawHost {
            random,
            behaviour,
            name: name_of(index),
            isid: isid_of(index),
            phase: Phase::Resting(0),
            line: None,
            old: Vec::new(),
            orphans: Vec::new(),
            left: 0,
            next_at: 0,
            now: 0,
            heard_at: 0,
            doubted_at: 0,
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

    /// Writes that are under way, also those of sessions that are lost.
    pub(crate) fn writes_under_way(&self) -> Vec<Write> {
        let asked = self.line.iter().flat_map(|line| line.host.asked.values());
        let writes = asked.filter_map(|asked| asked.what.write());
        writes.chain(self.orphans.iter().map(|(write, _)| *write)).collect()
    }

    /// Those of them that the target has shown to have.
    pub(crate) fn writes_there(&self) -> Vec<Write> {
        let asked = self.line.iter().flat_map(|line| line.host.asked.values());
        asked.filter(|asked| asked.is_known()).filter_map(|asked| asked.what.write()).collect()
    }

    /// Whether data of a write that it was asked for have not left it: it cannot be done.
    pub(crate) fn owes_data(&self, id: WriteId) -> bool {
        let mut asked = self.line.iter().flat_map(|line| line.host.asked.values());
        let is_it = |write: Write| write.id == id;
        asked.any(|asked| asked.what.write().is_some_and(is_it) && asked.owes_data())
    }

    /// Whether it has left.
    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Done
    }

    /// How it is, in words.
    pub fn state(&self) -> String {
        let asked = self.line.as_ref().map(|line| format!("{:?}", line.host.asked));
        format!("{:?}, asked {}", self.phase, asked.unwrap_or_default())
    }

    /// Hears what came, and goes on. An error is the target's fault.
    pub(crate) fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<(), String> {
        self.now = world.now;
        if !self.is_waiting() {
            // Nothing is owed to it.
            self.heard_at = self.now;
        }
        if !matches!(self.phase, Phase::Deaf(_)) {
            self.hear(world)?;
        }
        self.old.iter_mut().for_each(|line| line.forget_what_came(world));
        self.notice_loss(world)?;
        match self.phase {
            Phase::Resting(_) if self.stopping => self.leave(world),
            Phase::Resting(until) if until <= self.now => self.begin(world, target),
            Phase::Live => self.live(world),
            _ => {}
        }
        if self.doubts_at().is_some_and(|at| at <= self.now) {
            self.doubted_at = self.now;
            self.abort_all(world);
        }
        if let Some(line) = &mut self.line {
            line.serve_grants(world);
        }
        let hears = !matches!(self.phase, Phase::Deaf(_));
        if hears && self.is_waiting() && self.now > self.heard_at + PATIENCE {
            if self.behaviour.strict {
                return Err(format!("a raw host of iSCSI is not answered: {}", self.state()));
            }
            self.lose(world);
        }
        self.end_orphans();
        self.set_alarm(world);
        Ok(())
    }

    fn set_alarm(&mut self, world: &mut SimWorld) {
        let phase = match self.phase {
            Phase::Resting(until) => Some(until),
            Phase::Deaf(since) => Some(since + DEAF_MAX + 1),
            Phase::Live if !self.stopping && self.under_way() < self.behaviour.depth => {
                Some(self.next_at)
            }
            _ => None,
        };
        let hears = !matches!(self.phase, Phase::Deaf(_));
        let patience = (hears && self.is_waiting()).then_some(self.heard_at + PATIENCE + 1);
        let grant = self.line.as_ref().and_then(Line::next_grant);
        let orphan = self.orphans.iter().map(|(_, until)| *until + 1).min();
        let next = [phase, patience, grant, orphan, self.doubts_at()].into_iter().flatten().min();
        let Some(next) = next else { return };
        if self.alarm.is_none_or(|alarm| alarm <= self.now || next < alarm) {
            let next = next.max(self.now + 1);
            self.alarm = Some(next);
            world.alarm_at(next);
        }
    }

    /// When it asks whether what is under way is known.
    fn doubts_at(&self) -> Option<u64> {
        let waits = self.behaviour.is_fenced && self.phase == Phase::Live && self.is_waiting();
        waits.then(|| self.heard_at.max(self.doubted_at) + DOUBT)
    }

    fn is_waiting(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.host.asked.is_empty())
    }

    /// Commands that are not answered.
    fn under_way(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.host.asked.len())
    }

    fn begin(&mut self, world: &mut SimWorld, target: usize) {
        if !world.is_up(target) {
            self.phase = Phase::Resting(self.now + DOWN);
            return;
        }
        let random = self.random.fork();
        let digests = self.behaviour.digests;
        let who = (&*self.name, self.isid);
        let mut line = Line::log_in(world, target, who, digests, random);
        line.host.may_be_reset = self.behaviour.is_fenced;
        if self.behaviour.is_fenced {
            line.late = FENCED_LATE;
        }
        self.line = Some(line);
        (self.phase, self.heard_at) = (Phase::LoggingIn, self.now);
    }

    fn hear(&mut self, world: &mut SimWorld) -> Result<(), String> {
        if self.line.as_mut().is_some_and(|line| line.take(world)) {
            self.heard_at = self.now;
        }
        while let Some(heard) = self.line.as_mut().and_then(|line| line.host.next().transpose()) {
            let why = match heard {
                Ok(Heard { said: Said::Reject(reject, _), .. }) => {
                    format!("a raw host of iSCSI was told: {reject}")
                }
                Err(Fault::Garbled(why)) => format!("a raw host of iSCSI heard nonsense: {why}"),
                Err(Fault::Broken(why)) => return Err(why),
                Ok(heard) => {
                    self.handle(world, heard)?;
                    continue;
                }
            };
            if self.behaviour.strict {
                return Err(why);
            }
            // Bits flip on the wire, and digests told so.
            self.lose(world);
        }
        Ok(())
    }

    fn handle(&mut self, world: &mut SimWorld, heard: Heard<Asked>) -> Result<(), String> {
        let Heard { said, ended, aborted } = heard;
        for asked in aborted {
            self.actions.aborts += u64::from(matches!(said, Said::Management(_)));
            self.over(&asked.what);
        }
        match &said {
            Said::Login(response, _) => return self.logged_in(world, response.status),
            Said::Logout(_) => {
                self.actions.logouts += 1;
                self.hang_up(world, false);
                return Ok(());
            }
            Said::R2t(r2t) => {
                self.actions.grants += 1;
                let line = self.line.as_mut().expect("it is heard on a line");
                line.grant(self.now, *r2t);
            }
            Said::Data(data, bytes) => {
                let line = self.line.as_mut().expect("it is heard on a line");
                line.note_data(data.initiator_task_tag, data.buffer_offset, bytes);
            }
            _ => {}
        }
        let Some(ended) = ended else { return Ok(()) };
        self.actions.answered += 1;
        let line = self.line.as_mut().expect("it is heard on a line");
        let bytes = line.reads.remove(&said.tag()).unwrap_or_default();
        self.answered(ended.what, &said, bytes)
    }

    /// The answer to a login: nothing that its port asked before reaches the media any more.
    fn logged_in(&mut self, world: &mut SimWorld, status: LoginStatus) -> Result<(), String> {
        if !status.is_success() {
            // A target that is just starting, or that drains an old session of ours, asks us to come
            // again.
            let comes_again = status == LoginStatus::SERVICE_UNAVAILABLE;
            if self.behaviour.strict && !comes_again {
                return Err(format!("the login of a raw host was refused: {status}"));
            }
            self.actions.held += 1;
            self.lose(world);
            return Ok(());
        }
        self.actions.returns += u64::from(!self.old.is_empty());
        self.actions.return_tasks +=
            if self.old.is_empty() { 0 } else { self.orphans.len() as u64 };
        for (write, _) in core::mem::take(&mut self.orphans) {
            self.writer.end(self.now, write, false, false);
        }
        self.old.drain(..).for_each(|mut line| line.hang_up(world, false));
        if let Some(line) = &mut self.line {
            line.is_logged_in(world);
        }
        self.phase = Phase::Live;
        self.next_at = self.now;
        let most = if self.behaviour.returns { 40 } else { 400 };
        self.left = 1 + self.random.below(most);
        Ok(())
    }

    /// Lives on, or ends this life in one of the ways that there are.
    fn live(&mut self, world: &mut SimWorld) {
        while !self.stopping
            && self.left > 0
            && self.next_at <= self.now
            && self.under_way() < self.behaviour.depth
            && self.line.as_ref().is_some_and(|line| line.host.may_ask())
        {
            self.left -= 1;
            self.work(world);
            if self.random.chance(1, self.behaviour.depth as u64) {
                let depth = self.behaviour.depth as u64;
                let most = 2 * self.behaviour.interval_us * depth * 1_000;
                self.next_at = self.now + self.random.below(most + 1);
            }
        }
        if self.stopping {
            if self.under_way() == 0 {
                self.log_out(world);
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
        match self.random.below(if self.behaviour.returns { 6 } else { 2 }) {
            0 | 1 => self.log_out(world),
            2 => {
                self.actions.losses += 1;
                self.lose(world);
            }
            _ => self.come_again(),
        }
    }

    fn log_out(&mut self, world: &mut SimWorld) {
        self.actions.logout_tasks += self.under_way() as u64;
        self.phase = Phase::LoggingOut;
        let line = self.line.as_mut().expect("it is live");
        let (_, bytes) = line.host.logout(LogoutReason::CLOSE_SESSION, Asked::Logout);
        line.say(world, &bytes);
    }

    /// Logs in by another connection while this one is open.
    fn come_again(&mut self) {
        let line = self.line.take().expect("it is live");
        self.abandon(&line);
        self.old.push(line);
        let rest = self.random.below(20 * MILLISECOND);
        self.phase = Phase::Resting(self.now + rest);
    }

    /// Asks for more than the network holds, and never reads again.
    fn read_no_more(&mut self, world: &mut SimWorld) {
        self.phase = Phase::Deaf(self.now);
        while self.line.as_ref().is_some_and(|line| line.host.may_ask()) {
            self.read(world, 0, self.behaviour.span);
        }
    }

    fn notice_loss(&mut self, world: &mut SimWorld) -> Result<(), String> {
        let is_over = self.line.as_ref().is_some_and(|line| line.is_over(world));
        if let Phase::Deaf(since) = self.phase {
            return self.await_leave(world, since, is_over);
        }
        // What was refused, or logged out, is closed by its target.
        let may_end = self.line.as_ref().is_some_and(|line| line.host.is_over());
        if is_over && self.behaviour.strict && !may_end {
            return Err(format!("the target left a raw host of iSCSI: {}", self.state()));
        }
        if is_over {
            self.lose(world);
        }
        Ok(())
    }

    /// Whether the target leaves a host that reads nothing more.
    fn await_leave(
        &mut self,
        world: &mut SimWorld,
        since: u64,
        is_over: bool,
    ) -> Result<(), String> {
        if is_over {
            self.actions.left += 1;
            self.lose(world);
        } else if self.now > since + DEAF_MAX {
            let asked = self.line.as_ref().map_or(0, Line::read_bytes);
            if self.behaviour.strict && asked > WINDOW + WINDOW / 4 {
                return Err(format!("a host that reads none of {asked} bytes is not left"));
            }
            self.lose(world);
        }
        Ok(())
    }

    /// Gives a session up that broke.
    fn lose(&mut self, world: &mut SimWorld) {
        self.hang_up(world, true);
    }

    /// The connection is closed, and what was under way may happen for a while.
    fn hang_up(&mut self, world: &mut SimWorld, reset: bool) {
        if let Some(mut line) = self.line.take() {
            self.abandon(&line);
            line.hang_up(world, reset);
        }
        let rest = self.random.below(500 * MILLISECOND);
        self.phase = Phase::Resting(self.now + rest);
    }

    /// Leaves for good.
    fn leave(&mut self, world: &mut SimWorld) {
        self.old.drain(..).for_each(|mut line| line.hang_up(world, false));
        for (write, until) in core::mem::take(&mut self.orphans) {
            self.writer.end(until, write, false, false);
        }
        self.phase = Phase::Done;
    }

    /// Nobody waits any more for what is asked on a line.
    fn abandon(&mut self, line: &Line) {
        let until = self.now + QUIESCE;
        let writes = line.host.asked.values().filter_map(|asked| asked.what.write());
        self.orphans.extend(writes.map(|write| (write, until)));
    }

    fn end_orphans(&mut self) {
        let now = self.now;
        for (write, until) in self.orphans.extract_if(.., |(_, until)| *until < now) {
            self.writer.end(until, write, false, false);
        }
    }

    /// A task is over without an answer.
    fn over(&mut self, asked: &Asked) {
        if let Some(write) = asked.write() {
            self.writer.end(self.now, write, false, false);
        }
    }
}

/// The name of a host.
pub(super) fn name_of(index: usize) -> String {
    format!("iqn.2026-11.net.plateway:sim-raw-{index}")
}

/// Its ISID.
pub(super) fn isid_of(index: usize) -> [u8; 6] {
    [0x80, 0, 0, 0, 0, index as u8]
}

/// Bytes of `count` logical blocks.
fn bytes_of(unit: u64, count: u64) -> usize {
    (unit * count) as usize * SECTOR
}
