//! A host of NVMe by which a fencer asks: a controller of its own with one I/O queue, and one thing at a
//! time. Its HOSTID may be that of a raw host or of a client, which works on the volume meanwhile: then
//! both are the same registrant.
//!
//! ```text
//!   resting -> Connect, CC.EN=1, CSTS.RDY? -> Connect of queue 1 -> live -> (asks, is answered)*
//!      ^                     |                                        |
//!      |<--------------------+----------------------------------------'  a connection is lost
//! ```
//! What a lost connection had asked is still decided on, though nothing of it that the target had not
//! taken yet. Errors: the target said what it must not. Units: virtual nanoseconds.

mod words;

use std::collections::BTreeMap;

use block::Random;
use testkit::nvme::configure;
use testkit::nvme::host::{Fault, Heard};
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::fabrics::{ConnectData, ConnectResult, ControllerStatus};
use wire::nvme::{Command, Completion, Nqn};
use wire::nvme_tcp::Digests;

use super::raw_host::line::Line;
use super::raw_host::work::Asked;
use super::raw_host::{Step, controller_status};
use super::subsystem_name;
use crate::client::SimWorld;
use crate::fences::nodes::{Alarm, Event, Look, Node, PATIENCE, Question};
use crate::run::MILLISECOND;
pub(super) use words::Words;

/// The lines.
const ADMIN: usize = 0;
const IO: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Resting(u64),
    Climbing,
    Live,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Host {
    nqn: Nqn,
    host_id: [u8; 16],
    digests: Digests,
    strict: bool,
    random: Random,
    words: Words,
    lines: Vec<Line>,
    controller: u16,
    phase: Phase,
    alarm: Alarm,
    poll_at: Option<u64>,
    asked: Option<Question>,
    /// When it asked, or heard something last.
    since: u64,
}

impl Host {
    /// One of this HOSTNQN and HOSTID. A strict one is never left by the target.
    pub(super) fn new(
        random: Random,
        (nqn, host_id): (Nqn, [u8; 16]),
        words: Words,
        digests: Digests,
        strict: bool,
    ) -> Host {
        Host {
            nqn,
            host_id,
            digests,
            strict,
            random,
            words,
            lines: Vec::new(),
            controller: 0,
            phase: Phase::Resting(0),
            alarm: Alarm::default(),
            poll_at: None,
            asked: None,
            since: 0,
        }
    }

    fn begin(&mut self, world: &mut SimWorld, target: usize) {
        if !world.is_up(target) {
            let later = world.now + 100 * MILLISECOND;
            self.phase = Phase::Resting(later);
            return self.alarm.set(world, later);
        }
        self.words.reset();
        self.connect(world, target);
        (self.phase, self.since) = (Phase::Climbing, world.now);
    }

    fn connect(&mut self, world: &mut SimWorld, target: usize) {
        self.lines.push(Line::connect(world, target, self.digests, self.random.fork()));
    }

    fn hear(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) -> Result<(), String> {
        for at in 0..self.lines.len() {
            if self.lines.get_mut(at).is_some_and(|line| line.take(world)) {
                self.since = world.now;
            }
            while let Some(heard) = self.lines.get_mut(at).and_then(|line| line.next().transpose())
            {
                let why = match heard {
                    Ok(Heard::Terminated(term)) => format!("a fencer was terminated: {term:?}"),
                    Err(Fault::Garbled(why)) => format!("a fencer heard nonsense: {why}"),
                    Err(Fault::Broken(why)) => return Err(why),
                    Ok(heard) => {
                        self.handle(world, at, heard, events)?;
                        continue;
                    }
                };
                if self.strict {
                    return Err(why);
                }
                // Bits flip on the wire, and digests told so.
                self.lose(world, events);
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        world: &mut SimWorld,
        at: usize,
        heard: Heard<Asked>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        match heard {
            Heard::Greeted(_) => {
                let is_first = at == ADMIN;
                let controller_id =
                    if is_first { ConnectData::CONTROLLER_ANY } else { self.controller };
                let data = ConnectData {
                    host_id: self.host_id,
                    controller_id,
                    subsystem: subsystem_name(),
                    host: Some(self.nqn.clone()),
                };
                let step = if is_first { Step::Connect } else { Step::Queue(at) };
                self.lines[at].join(world, at as u16, 0, &data, step);
            }
            Heard::Granted(grant) => self.lines[at].grant(world.now, grant),
            Heard::Answered(asked, entry) => match asked.what {
                Asked::Step(step) => self.stepped(world, step, &entry, events)?,
                Asked::Event => self.noticed(world, &entry)?,
                Asked::Change { .. } => self.answered(&entry, &[], events)?,
                Asked::Page { bytes, .. } => self.answered(&entry, &bytes, events)?,
                asked => unreachable!("a fencer asks no {asked:?}"),
            },
            Heard::Terminated(_) | Heard::Data { .. } => unreachable!("they are taken before"),
        }
        Ok(())
    }

    /// An event came, and the next is awaited.
    fn noticed(&mut self, world: &mut SimWorld, entry: &Completion) -> Result<(), String> {
        match AsyncEvent::from_result(entry.result32()) {
            AsyncEvent::RESERVATION_NOTIFICATION if entry.status.is_success() => {
                self.words.noticed();
            }
            // Of the size of the volume, or of what is exported.
            event if self.strict => return Err(format!("a fencer was told {event:?}: {entry}")),
            _ => {}
        }
        self.await_event(world);
        Ok(())
    }

    fn await_event(&mut self, world: &mut SimWorld) {
        self.lines[ADMIN].ask(world, Command::async_event_request(), &[], Asked::Event);
    }

    fn answered(
        &mut self,
        entry: &Completion,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let asked = self.asked.take().expect("a command is one of a question");
        events.push(Event::Answered(self.words.answer(&asked, entry, bytes)?));
        Ok(())
    }

    /// An answer on the way up.
    fn stepped(
        &mut self,
        world: &mut SimWorld,
        step: Step,
        entry: &Completion,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if !entry.status.is_success() {
            // A target that is just starting asks us to come again: without DNR.
            let comes_again = matches!(step, Step::Connect | Step::Queue(_)) && !entry.status.dnr();
            if self.strict && !comes_again {
                return Err(format!("{step:?} of a fencer was answered: {entry}"));
            }
            self.lose(world, events);
            return Ok(());
        }
        match step {
            Step::Connect => {
                self.controller = ConnectResult(entry.result as u32).controller_id() as u16;
                let asked = Asked::Step(Step::Enable);
                self.lines[ADMIN].ask(world, configure(true, 0), &[], asked);
            }
            Step::Enable => self.poll_at = Some(world.now),
            Step::Ready if ControllerStatus(entry.result as u32).ready() => {
                let target = self.lines[ADMIN].target;
                self.connect(world, target);
            }
            Step::Ready => self.poll_at = Some(world.now + 5 * MILLISECOND),
            Step::Queue(_) => {
                self.phase = Phase::Live;
                self.await_event(world);
                events.push(Event::LoggedIn);
            }
            step => unreachable!("a fencer takes no {step:?}"),
        }
        Ok(())
    }

    /// Asks again for what takes its time, and notices that it was left, or is not answered.
    fn wait(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) -> Result<(), String> {
        if self.poll_at.is_some_and(|at| at <= world.now) {
            self.poll_at = None;
            let asked = Asked::Step(Step::Ready);
            self.lines[ADMIN].ask(world, controller_status(), &[], asked);
        }
        let waits = self.asked.is_some() || self.phase == Phase::Climbing;
        let is_silent = waits && world.now > self.since + PATIENCE;
        let is_left = self.lines.iter().any(|line| line.is_over(world));
        if is_left || is_silent {
            if self.strict {
                let how = if is_left { "was left" } else { "is not answered" };
                return Err(format!("a fencer {how}: {}", self.state()));
            }
            self.lose(world, events);
        }
        for line in &mut self.lines {
            line.serve_grants(world, &BTreeMap::new());
        }
        let grants = self.lines.iter().filter_map(Line::next_grant);
        let patience = waits.then_some(self.since + PATIENCE + 1);
        if let Some(at) = grants.chain(patience).chain(self.poll_at).min() {
            self.alarm.set(world, at);
        }
        Ok(())
    }

    fn lose(&mut self, world: &mut SimWorld, events: &mut Vec<Event>) {
        self.hang_up(world, true);
        let until = world.now + self.random.below(300 * MILLISECOND) + 1;
        self.phase = Phase::Resting(until);
        self.alarm.set(world, until);
        events.push(Event::Lost);
    }

    fn hang_up(&mut self, world: &mut SimWorld, reset: bool) {
        self.lines.drain(..).for_each(|mut line| line.hang_up(world, reset));
        (self.asked, self.poll_at) = (None, None);
    }
}

impl Node for Host {
    fn is_scsi(&self) -> bool {
        false
    }

    fn looks(&self) -> &'static [Look] {
        &[Look::Persistence, Look::Registrants, Look::Told]
    }

    fn is_ready(&self) -> bool {
        self.phase == Phase::Live && self.asked.is_none()
    }

    fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    fn asks(&self) -> bool {
        self.asked.is_some()
    }

    fn ask(&mut self, world: &mut SimWorld, question: Question) {
        let (is_admin, command, asked) = self.words.command(world.now, &question);
        (self.asked, self.since) = (Some(question), world.now);
        // Data lie in the capsule, or are asked for.
        let inside = match &asked {
            Asked::Change { data } if self.random.chance(1, 2) => data.clone(),
            _ => Vec::new(),
        };
        let line = &mut self.lines[if is_admin { ADMIN } else { IO }];
        line.ask(world, command, &inside, asked);
    }

    fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        match self.phase {
            Phase::Resting(until) if until <= world.now => self.begin(world, target),
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
        if !cuts {
            self.hang_up(world, false);
        }
        self.lose(world, &mut events);
        events
    }

    fn give_up(&mut self, world: &mut SimWorld) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.lines.is_empty() {
            self.lose(world, &mut events);
        }
        events
    }

    fn part(&mut self, world: &mut SimWorld) {
        self.hang_up(world, false);
        self.phase = Phase::Resting(u64::MAX);
    }

    fn state(&self) -> String {
        let asked = self.lines.iter().map(|line| format!("{:?}", line.host.asked));
        let asked: Vec<String> = asked.collect();
        format!("{:?}, asked {}", self.phase, asked.join("; "))
    }
}
