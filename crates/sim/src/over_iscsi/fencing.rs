//! An initiator port by which a fencer asks: it logs in, with the same ISID each time, and asks one
//! thing at a time.
//!
//! ```text
//!   resting -> logging in -> live -> (asks, is answered)*
//!      ^           |           |
//!      |<----------+-----------'  the connection is lost, by itself or by others; or it logs out
//! ```
//! Its next login ends what its last session had asked. Errors: the target said what it must not.
//! Units: virtual nanoseconds.

mod words;

use block::Random;
use testkit::iscsi::Said;
use testkit::iscsi::host::{Fault, Heard};
use wire::iscsi::{LoginStatus, LogoutReason};

use super::raw_host::DOWN;
use super::raw_host::line::Line;
use super::raw_host::work::Asked;
use crate::client::SimWorld;
use crate::fences::nodes::{Alarm, Event, Look, Names, Node, PATIENCE, Question};
use crate::run::MILLISECOND;
use words::Words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(u64),
    LoggingIn,
    Live,
    LoggingOut,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Port {
    name: String,
    isid: [u8; 6],
    digests: bool,
    strict: bool,
    random: Random,
    words: Words,
    line: Option<Line>,
    phase: Phase,
    alarm: Alarm,
    asked: Option<Question>,
    /// When it asked, or heard something last.
    since: u64,
}

impl Port {
    /// One of this name and ISID. A strict one is never left by the target; of one that `may_not_store`
    /// not every change is made.
    pub(super) fn new(
        random: Random,
        (name, isid): (String, [u8; 6]),
        names: Names,
        (digests, strict, may_not_store): (bool, bool, bool),
    ) -> Port {
        Port {
            name,
            isid,
            digests,
            strict,
            random,
            words: Words { names, strict, may_not_store },
            line: None,
            phase: Phase::Resting(0),
            alarm: Alarm::default(),
            asked: None,
            since: 0,
        }
    }

    /// Notices that it was left, or is not answered.
    fn wait(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) -> Result<(), String> {
        let is_over = self.line.as_ref().is_some_and(|line| line.is_over(world));
        let may_end = self.line.as_ref().is_some_and(|line| line.host.is_over());
        if is_over {
            if self.strict && !may_end {
                return Err(format!("the target left a fencer: {}", self.state()));
            }
            self.lose(world, events);
        }
        let waits =
            self.asked.is_some() || matches!(self.phase, Phase::LoggingIn | Phase::LoggingOut);
        if waits && world.now > self.since + PATIENCE {
            if self.strict {
                return Err(format!("a fencer is not answered: {}", self.state()));
            }
            self.lose(world, events);
        }
        if let Some(line) = &mut self.line {
            line.serve_grants(world);
            let grant = line.next_grant();
            let patience = waits.then_some(self.since + PATIENCE + 1);
            if let Some(at) = grant.into_iter().chain(patience).min() {
                self.alarm.set(world, at);
            }
        }
        Ok(())
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
            let asked = self.asked.take().expect("a command is one of a question");
            events.push(Event::Answered(self.words.answer(&asked, &said, &bytes)?));
        }
        Ok(())
    }

    fn lose(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) {
        if let Some(mut line) = self.line.take() {
            line.hang_up(world, true);
        }
        self.asked = None;
        let until = world.now + self.random.below(300 * MILLISECOND) + 1;
        self.phase = Phase::Resting(until);
        self.alarm.set(world, until);
        events.push(Event::Lost);
    }
}

impl Node for Port {
    fn is_scsi(&self) -> bool {
        true
    }

    fn looks(&self) -> &'static [Look] {
        &Look::ALL
    }

    fn is_ready(&self) -> bool {
        let may_ask = self.line.as_ref().is_some_and(|line| line.host.may_ask());
        self.phase == Phase::Live && self.asked.is_none() && may_ask
    }

    fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    fn asks(&self) -> bool {
        self.asked.is_some()
    }

    fn ask(&mut self, world: &mut SimWorld, question: Question) {
        let (order, list) = self.words.order(&question);
        (self.asked, self.since) = (Some(question), world.now);
        let line = self.line.as_mut().expect("a node that is ready has a line");
        line.ask(world, order, Asked::Reservation(list));
    }

    fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        match self.phase {
            Phase::Resting(until) if until <= world.now => self.log_in(world, target),
            Phase::Resting(_) => {}
            _ => {
                self.hear(world, &mut events)?;
                self.wait(world, &mut events)?;
            }
        }
        Ok(events)
    }

    fn leave(&mut self, world: &mut SimWorld, cuts: bool) -> Vec<Event> {
        let mut events = Vec::new();
        if cuts || self.asked.is_some() {
            self.lose(world, &mut events);
            return events;
        }
        let line = self.line.as_mut().expect("it is live");
        let (_, bytes) = line.host.logout(LogoutReason::CLOSE_SESSION, Asked::Logout);
        line.say(world, &bytes);
        (self.phase, self.since) = (Phase::LoggingOut, world.now);
        events
    }

    fn give_up(&mut self, world: &mut SimWorld) -> Vec<Event> {
        let mut events = Vec::new();
        if self.line.is_some() {
            self.lose(world, &mut events);
        }
        events
    }

    fn part(&mut self, world: &mut SimWorld) {
        if let Some(mut line) = self.line.take() {
            line.hang_up(world, false);
        }
        self.phase = Phase::Resting(u64::MAX);
    }

    fn state(&self) -> String {
        let asked = self.line.as_ref().map(|line| format!("{:?}", line.host.asked));
        format!("{:?}, asked {}", self.phase, asked.unwrap_or_default())
    }
}
