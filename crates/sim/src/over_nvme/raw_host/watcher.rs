//! A host that looks at the discovery log: now and then it reads it and leaves, else it stays (a
//! persistent discovery controller), is told of changes by events, and reads the log anew after
//! each.
//!
//! ```text
//!   resting -> greeting, Connect, CC.EN=1, CSTS.RDY? -> [events on] -> log -> [event -> log]...
//!      ^------------------------------------------------------------------ | the log was read once, or the connection is lost
//! ```
//! What it saw is judged by the run, which knows what it may have seen. A watcher that stays and
//! was told nothing must have seen what there is: a change that no event tells is found at the end.
//! Units: virtual nanoseconds.

use std::collections::BTreeSet;

use block::Random;
use testkit::nvme;
use testkit::nvme::host::{self, Fault, Heard};
use wire::nvme::async_event::AsyncEvent;
use wire::nvme::fabrics::{ConnectData, ControllerStatus};
use wire::nvme::feature::{AsyncEventMask, FeatureId};
use wire::nvme::log::{DiscoveryEntry, DiscoveryHeader, LogId};
use wire::nvme::{Command, Completion, Nqn};
use wire::nvme_tcp::Digests;

use super::line::Line;
use super::work::Asked;
use super::{MILLISECOND, PATIENCE, Step, controller_status};
use crate::client::SimWorld;

/// KATO of a watcher that stays.
const KEEP_ALIVE: u64 = 4_000 * MILLISECOND;
/// Room for the header and 15 entries.
const PAGE: usize = 16 * DiscoveryEntry::SIZE;

/// A log as it was read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// When it was asked for, and when it was there.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The subsystems in it.
    pub(crate) names: BTreeSet<Nqn>,
}

/// A host; see the module.
#[derive(Debug)]
pub(crate) struct Watcher {
    random: Random,
    pub(crate) nqn: Nqn,
    host_id: [u8; 16],
    digests: Digests,
    strict: bool,
    line: Option<Line>,
    rest_until: u64,
    stays: bool,
    poll_at: Option<u64>,
    alive_at: Option<u64>,
    /// When it was last given a turn.
    now: u64,
    heard_at: u64,
    alarm: Option<u64>,
    stopping: bool,
    /// It stays, and has seen what it was told of.
    settled: bool,
    read_again: bool,
    /// GENCTR and what the log held, as this controller told it last.
    known: Option<(u64, BTreeSet<Nqn>)>,
    /// Logs read since they were last taken.
    pub(crate) seen: Vec<Seen>,
    /// The subsystems in the last of them.
    pub(crate) last_seen: Option<BTreeSet<Nqn>>,
    /// Events heard since they were last counted.
    pub(crate) events: u64,
    /// When this connection was made, and the events that it told.
    pub(crate) told: (u64, u64),
}

impl Watcher {
    /// Watcher number `index`. A strict one is never left by the target.
    pub(crate) fn new(random: Random, digests: Digests, index: usize, strict: bool) -> Watcher {
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:sim-watcher-{index}");
        Watcher {
            random,
            nqn: Nqn::new(&name).expect("a valid name"),
            host_id: [0xc0 + index as u8; 16],
            digests,
            strict,
            line: None,
            rest_until: 0,
            stays: false,
            poll_at: None,
            alive_at: None,
            now: 0,
            heard_at: 0,
            alarm: None,
            stopping: false,
            settled: false,
            read_again: false,
            known: None,
            seen: Vec::new(),
            last_seen: None,
            events: 0,
            told: (0, 0),
        }
    }

    /// From now on it stays.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether it stays and waits for events alone.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled && self.stopping
    }

    /// How it is, in words.
    pub(crate) fn state(&self) -> String {
        let asked = self.line.as_ref().map(|line| format!("{:?}", line.host.asked));
        format!("settled {}, asked {asked:?}", self.settled)
    }

    /// Hears what came, and goes on. An error is the target's fault.
    pub(crate) fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<(), String> {
        self.now = world.now;
        if self.line.is_none() && self.rest_until <= self.now {
            self.stays = self.stopping || self.random.chance(2, 3);
            self.line = Some(Line::connect(world, target, self.digests, self.random.fork()));
            (self.heard_at, self.told) = (self.now, (self.now, 0));
        }
        self.hear(world)?;
        self.keep_on(world);
        // An event may never come.
        let waits = |line: &Line| {
            let mut asked = line.host.asked.values();
            line.host.greeting.is_none() || asked.any(|asked| !matches!(asked.what, Asked::Event))
        };
        let waits = self.line.as_ref().is_some_and(waits);
        if waits && self.now > self.heard_at + PATIENCE {
            if self.strict {
                return Err(format!("a watcher is not answered: {}", self.state()));
            }
            self.leave(world);
        }
        self.set_alarm(world, waits);
        Ok(())
    }

    fn set_alarm(&mut self, world: &mut SimWorld, waits: bool) {
        let rest = self.line.is_none().then_some(self.rest_until);
        let patience = waits.then_some(self.heard_at + PATIENCE + 1);
        let next = rest.into_iter().chain(patience).chain(self.poll_at).chain(self.alive_at).min();
        let Some(next) = next else { return };
        if self.alarm.is_none_or(|alarm| alarm <= self.now || next < alarm) {
            let next = next.max(self.now + 1);
            self.alarm = Some(next);
            world.alarm_at(next);
        }
    }

    fn hear(&mut self, world: &mut SimWorld) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        if line.take(world) {
            self.heard_at = self.now;
        }
        loop {
            let Some(line) = &mut self.line else { return Ok(()) };
            let heard = match line.next() {
                Ok(Some(heard)) => heard,
                Ok(None) => break,
                Err(Fault::Garbled(_)) if !self.strict => {
                    self.leave(world);
                    return Ok(());
                }
                Err(why) => return Err(format!("a watcher heard nonsense: {why}")),
            };
            match heard {
                Heard::Greeted(_) => self.connect(world),
                Heard::Terminated(_) if !self.strict => self.leave(world),
                Heard::Answered(asked, entry) => self.answered(world, asked.what, &entry)?,
                heard => return Err(format!("a watcher was told {heard:?}")),
            }
        }
        if self.line.as_ref().is_some_and(|line| line.is_over(world)) {
            if self.strict {
                return Err(format!("the target left a watcher: {}", self.state()));
            }
            self.leave(world);
        }
        Ok(())
    }

    fn ask(&mut self, world: &mut SimWorld, command: Command, asked: Asked) {
        let line = self.line.as_mut().expect("it is connected");
        line.ask(world, command, &[], asked);
    }

    fn connect(&mut self, world: &mut SimWorld) {
        let keep_alive = if self.stays { KEEP_ALIVE } else { 0 };
        let data = ConnectData {
            host_id: self.host_id,
            controller_id: ConnectData::CONTROLLER_ANY,
            subsystem: Nqn::discovery(),
            host: Some(self.nqn.clone()),
        };
        let line = self.line.as_mut().expect("it is connected");
        line.join(world, 0, keep_alive, &data, Step::Connect);
    }

    fn answered(
        &mut self,
        world: &mut SimWorld,
        asked: Asked,
        entry: &Completion,
    ) -> Result<(), String> {
        if !entry.status.is_success() {
            let comes_again = matches!(asked, Asked::Step(Step::Connect)) && !entry.status.dnr();
            if self.strict && !comes_again {
                return Err(format!("a watcher asked {asked:?} and was answered: {entry}"));
            }
            self.leave(world);
            return Ok(());
        }
        match asked {
            Asked::Step(Step::Connect) => {
                self.alive_at = self.stays.then_some(self.now + KEEP_ALIVE / 2);
                self.ask(world, nvme::configure(true, 0), Asked::Step(Step::Enable));
            }
            Asked::Step(Step::Enable) => self.poll_at = Some(self.now),
            Asked::Step(Step::Ready) if !ControllerStatus(entry.result as u32).ready() => {
                self.poll_at = Some(self.now + 5 * MILLISECOND);
            }
            Asked::Step(Step::Ready) if self.stays => {
                let mask = AsyncEventMask::default().with_discovery_changed(true);
                let feature = FeatureId::ASYNC_EVENT_CONFIGURATION.0;
                let command = Command::set_features(feature, 0, mask.0, 0);
                self.ask(world, command, Asked::Step(Step::Disabled));
            }
            Asked::Step(Step::Ready) => self.read(world),
            // Events are on.
            Asked::Step(_) => {
                self.ask(world, Command::async_event_request(), Asked::Event);
                self.read(world);
            }
            Asked::AliveOver if entry.result == 0 => {
                self.ask(world, Command::async_event_request(), Asked::Event);
            }
            Asked::Event | Asked::AliveOver => {
                let is_over = matches!(asked, Asked::AliveOver);
                let event = AsyncEvent::from_result(entry.result as u32);
                if event != AsyncEvent::DISCOVERY_CHANGED {
                    return Err(format!("a watcher was told {event:?}"));
                }
                self.events += 1;
                self.told.1 += 1;
                self.settled = false;
                match is_over {
                    // The event came first: what has its CID now is answered next.
                    true => self.line.as_mut().expect("it is connected").await_alive(entry),
                    false => self.ask(world, Command::async_event_request(), Asked::Event),
                }
                self.read(world);
            }
            Asked::Page { start, bytes } => self.look(world, start, &bytes)?,
            _ => {}
        }
        Ok(())
    }

    fn read(&mut self, world: &mut SimWorld) {
        let line = self.line.as_ref().expect("it is connected");
        let mut asked = line.host.asked.values();
        if asked.any(|asked| matches!(asked.what, Asked::Page { .. })) {
            self.read_again = true;
            return;
        }
        let command = Command::get_log(LogId::DISCOVERY, 0, 0, PAGE as u32, false);
        let asked = Asked::Page { start: self.now, bytes: vec![0; PAGE] };
        self.ask(world, command, asked);
    }

    /// A log came.
    fn look(&mut self, world: &mut SimWorld, start: u64, bytes: &[u8]) -> Result<(), String> {
        let wrong = |error: wire::ParseError| format!("a discovery log is wrong: {error}");
        let header = DiscoveryHeader::parse(bytes).map_err(wrong)?;
        let mut names = BTreeSet::new();
        for entry in bytes.chunks(DiscoveryEntry::SIZE).skip(1).take(header.records as usize) {
            let entry = DiscoveryEntry::parse(entry).map_err(wrong)?;
            if !names.insert(entry.subsystem().map_err(wrong)?) {
                return Err("a discovery log names a subsystem twice".to_owned());
            }
        }
        if let Some((generation, before)) = self.known.replace((header.generation, names.clone()))
            && generation == header.generation
            && before != names
        {
            return Err(format!("GENCTR stays {generation} while {before:?} becomes {names:?}"));
        }
        self.seen.push(Seen { start, end: self.now, names });
        if core::mem::take(&mut self.read_again) {
            self.read(world);
        } else if self.stays {
            self.settled = true;
        } else {
            self.leave(world);
        }
        Ok(())
    }

    /// Asks for what is due.
    fn keep_on(&mut self, world: &mut SimWorld) {
        let now = self.now;
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if self.line.is_some() && due(self.poll_at) {
            self.poll_at = None;
            self.ask(world, controller_status(), Asked::Step(Step::Ready));
        }
        if self.line.is_some() && due(self.alive_at) {
            self.alive_at = Some(self.now + KEEP_ALIVE / 2);
            let line = self.line.as_mut().expect("just seen");
            let is_event = |(id, asked): (&u16, &host::Asked<Asked>)| {
                matches!(asked.what, Asked::Event).then_some(*id)
            };
            let held = line.host.asked.iter().find_map(is_event);
            // As SPDK's host does when it leaves.
            match held.filter(|_| self.random.chance(1, 4)) {
                Some(held) => line.keep_alive_over(world, held),
                None => self.ask(world, Command::keep_alive(), Asked::Alive),
            }
            // One that stays leaves now and then, too.
            if !self.stopping && self.random.chance(1, 8) {
                self.leave(world);
            }
        }
    }

    fn leave(&mut self, world: &mut SimWorld) {
        if let Some(mut line) = self.line.take() {
            line.hang_up(world, self.random.chance(1, 2));
        }
        (self.poll_at, self.alive_at, self.settled) = (None, None, false);
        self.known = None;
        self.read_again = false;
        self.rest_until = self.now + self.random.below(1_000 * MILLISECOND);
    }
}
