//! One initiator port of a fencer: it logs in, with the same ISID each time, asks one thing at a
//! time, and knows what unit attentions it is owed.
//!
//! ```text
//!   resting -> logging in -> live -> (asks, is answered)*
//!      ^           |           |
//!      |<----------+-----------'  the connection is lost, by itself or by others; or it logs out
//! ```
//! What it is owed ends with its session. Errors: the target said what it must not. Units: virtual
//! nanoseconds.

use block::Random;
use testkit::iscsi::Said;
use testkit::iscsi::host::{Fault, Heard, Order};
use wire::iscsi::{LoginStatus, LogoutReason};
use wire::scsi::AdditionalSense;

use super::super::raw_host::DOWN;
use super::super::raw_host::line::Line;
use super::super::raw_host::work::{Asked, is_of_reservations};
use crate::client::SimWorld;
use crate::run::MILLISECOND;

/// So long the target may be silent while something is asked.
const PATIENCE: u64 = 120_000 * MILLISECOND;

/// When somebody is woken next: once for each time.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<u64>);

impl Alarm {
    pub(super) fn set(&mut self, world: &mut SimWorld, at: u64) {
        let at = at.max(world.now + 1);
        if self.0.is_none_or(|set| set <= world.now || at < set) {
            self.0 = Some(at);
            world.alarm_at(at);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(u64),
    LoggingIn,
    Live,
    LoggingOut,
}

/// What happened to a node.
#[derive(Debug)]
pub(super) enum Event {
    /// It is logged in anew.
    LoggedIn,
    /// Its session is gone, with what it had asked.
    Lost,
    /// What it asked was answered, with these data.
    Answered(Said, Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Node {
    name: String,
    isid: [u8; 6],
    digests: bool,
    strict: bool,
    random: Random,
    line: Option<Line>,
    phase: Phase,
    alarm: Alarm,
    asks: bool,
    /// When it asked, or heard something last.
    since: u64,
    /// What it has to be told, and what it may be told.
    pub(super) owed: Vec<AdditionalSense>,
    pub(super) maybe: Vec<AdditionalSense>,
    /// Whether its session is younger than the change that is asked for.
    pub(super) is_fresh: bool,
}

impl Node {
    pub(super) fn new(
        random: Random,
        (name, isid): (String, [u8; 6]),
        digests: bool,
        strict: bool,
    ) -> Node {
        Node {
            name,
            isid,
            digests,
            strict,
            random,
            line: None,
            phase: Phase::Resting(0),
            alarm: Alarm::default(),
            asks: false,
            since: 0,
            owed: Vec::new(),
            maybe: Vec::new(),
            is_fresh: true,
        }
    }

    /// Whether it may ask something.
    pub(super) fn is_ready(&self) -> bool {
        let may_ask = self.line.as_ref().is_some_and(|line| line.host.may_ask());
        self.phase == Phase::Live && !self.asks && may_ask
    }

    pub(super) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    pub(super) fn ask(&mut self, world: &mut SimWorld, order: Order, list: Vec<u8>) {
        (self.asks, self.since) = (true, world.now);
        let line = self.line.as_mut().expect("a node that is ready has a line");
        line.ask(world, order, Asked::Reservation(list));
    }

    /// Hears what came, and logs in if it is time.
    pub(super) fn drive(
        &mut self,
        world: &mut SimWorld,
        target: usize,
    ) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        if let Phase::Resting(until) = self.phase {
            if until <= world.now {
                self.log_in(world, target);
            }
            return Ok(events);
        }
        self.hear(world, &mut events)?;
        let is_over = self.line.as_ref().is_some_and(|line| line.is_over(world));
        let may_end = self.line.as_ref().is_some_and(|line| line.host.is_over());
        if is_over {
            if self.strict && !may_end {
                return Err(format!("the target left a fencer: {}", self.state()));
            }
            self.lose(world, &mut events);
        }
        let waits = self.asks || matches!(self.phase, Phase::LoggingIn | Phase::LoggingOut);
        if waits && world.now > self.since + PATIENCE {
            if self.strict {
                return Err(format!("a fencer is not answered: {}", self.state()));
            }
            self.lose(world, &mut events);
        }
        if let Some(line) = &mut self.line {
            line.serve_grants(world);
            let grant = line.next_grant();
            let patience = waits.then_some(self.since + PATIENCE + 1);
            if let Some(at) = grant.into_iter().chain(patience).min() {
                self.alarm.set(world, at);
            }
        }
        Ok(events)
    }

    fn log_in(&mut self, world: &mut SimWorld, target: usize) {
        if !world.is_up(target) {
            self.phase = Phase::Resting(world.now + DOWN);
            return self.alarm.set(world, world.now + DOWN);
        }
        let who = (&*self.name, self.isid);
        self.line = Some(Line::log_in(world, target, who, self.digests, self.random.fork()));
        (self.phase, self.since) = (Phase::LoggingIn, world.now);
    }

    fn hear(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) -> Result<(), String> {
        if self.line.as_mut().is_some_and(|line| line.take(world)) {
            self.since = world.now;
        }
        while let Some(heard) = self.line.as_mut().and_then(|line| line.host.next().transpose()) {
            match heard {
                Ok(heard) => self.handle(world, heard, events)?,
                Err(Fault::Broken(why)) => return Err(why),
                Err(Fault::Garbled(why)) if self.strict => return Err(why),
                // Bits flip on the wire, and digests told so.
                Err(Fault::Garbled(_)) => self.lose(world, events),
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        world: &mut SimWorld,
        heard: Heard<Asked>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let Heard { said, ended, .. } = heard;
        let line = self.line.as_mut().expect("it is heard on a line");
        match &said {
            Said::Login(response, _) if response.status.is_success() => {
                line.is_logged_in(world);
                self.phase = Phase::Live;
                events.push(Event::LoggedIn);
            }
            Said::Login(response, _) => {
                let comes_again = response.status == LoginStatus::SERVICE_UNAVAILABLE;
                if self.strict && !comes_again {
                    return Err(format!("the login of a fencer was refused: {}", response.status));
                }
                self.lose(world, events);
            }
            Said::Logout(_) => self.lose(world, events),
            Said::Reject(reject, _) if self.strict => {
                return Err(format!("a fencer was told: {reject}"));
            }
            Said::Reject(..) => self.lose(world, events),
            Said::R2t(r2t) => line.grant(world.now, *r2t),
            Said::Data(data, bytes) => {
                line.note_data(data.initiator_task_tag, data.buffer_offset, bytes);
            }
            _ => {}
        }
        if ended.is_some_and(|ended| matches!(ended.what, Asked::Reservation(_))) {
            let line = self.line.as_mut();
            let bytes = line.and_then(|line| line.reads.remove(&said.tag())).unwrap_or_default();
            self.asks = false;
            events.push(Event::Answered(said, bytes));
        }
        Ok(())
    }

    /// Ends its session: by a logout, or by the loss of its connection.
    pub(super) fn leave(&mut self, world: &mut SimWorld, events: &mut Vec<Event>, cuts: bool) {
        if cuts || self.asks {
            return self.lose(world, events);
        }
        let line = self.line.as_mut().expect("it is live");
        let (_, bytes) = line.host.logout(LogoutReason::CLOSE_SESSION, Asked::Logout);
        line.say(world, &bytes);
        (self.phase, self.since) = (Phase::LoggingOut, world.now);
    }

    /// The target that it spoke to is gone.
    pub(super) fn give_up(&mut self, world: &mut SimWorld) -> Vec<Event> {
        let mut events = Vec::new();
        if self.line.is_some() {
            self.lose(world, &mut events);
        }
        events
    }

    fn lose(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) {
        if let Some(mut line) = self.line.take() {
            line.hang_up(world, true);
        }
        self.asks = false;
        self.owed.clear();
        self.maybe.clear();
        self.is_fresh = true;
        let until = world.now + self.random.below(300 * MILLISECOND) + 1;
        self.phase = Phase::Resting(until);
        self.alarm.set(world, until);
        events.push(Event::Lost);
    }

    /// It heard a unit attention, which it must have been owed.
    pub(super) fn attend(&mut self, code: AdditionalSense) -> Result<(), String> {
        for list in [&mut self.owed, &mut self.maybe] {
            if let Some(at) = list.iter().position(|owed| *owed == code) {
                list.remove(at);
                return Ok(());
            }
        }
        // Of the size of the unit, or of what is exported.
        match is_of_reservations(code) || self.strict {
            true => Err(format!("a fencer was told {code}, which nobody did: {}", self.state())),
            false => Ok(()),
        }
    }

    /// It may ask no more, and has no session.
    pub(super) fn part(&mut self, world: &mut SimWorld) {
        if let Some(mut line) = self.line.take() {
            line.hang_up(world, false);
        }
        self.phase = Phase::Resting(u64::MAX);
    }

    /// How it is, in words.
    pub(super) fn state(&self) -> String {
        let asked = self.line.as_ref().map(|line| format!("{:?}", line.host.asked));
        let Node { phase, owed, maybe, .. } = self;
        format!("{phase:?}, owed {owed:?}, maybe {maybe:?}, asked {}", asked.unwrap_or_default())
    }
}
