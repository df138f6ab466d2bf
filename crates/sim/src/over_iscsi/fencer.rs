//! Somebody who changes reservations over iSCSI, by several initiator ports, while others work on
//! the volume: registers itself and others, reserves, releases, clears, moves, preempts, and
//! aborts. One change at a time, then all look; sessions are lost and come back with the same ISID.
//!
//! It knows what each answer must be (`fences::model`), what each look must show, and which port is
//! owed which unit attention. A change whose answer was lost was made or not: then two worlds are
//! possible, until the next answer or look. Until the port that asked is there again nobody asks
//! for another change, since the lost one may still be made. Errors: the target said what cannot
//! be, and the run fails. Units: virtual nanoseconds.
//!
//! ```text
//!  node 0 ---- change ---->|            |
//!              answer <----| all look   | rest | node 1 ---- change ---->
//! ```

mod draw;
mod look;
mod node;

use std::collections::VecDeque;

use block::Random;
use contract::counters;
use testkit::iscsi::Said;
use wire::scsi::{AdditionalSense, ScsiStatus, SenseKey};

use crate::client::SimWorld;
use crate::fences::history::History;
use crate::fences::model::{After, Change, Ending, Model, Who};
use crate::run::MILLISECOND;
use look::{Look, Seen};
use node::{Alarm, Event, Node};

/// What a session that is gone had asked is decided on, or lost, within so long: mail takes
/// milliseconds.
const DECIDED: u64 = 100 * MILLISECOND;

/// How a fencer behaves.
#[derive(Clone, Debug)]
pub(crate) struct FencerSettings {
    /// Initiator ports of its own.
    pub(crate) ports: usize,
    /// Names and ISIDs of others, whom it may register.
    pub(crate) others: Vec<(String, [u8; 6])>,
    pub(crate) digests: bool,
    /// How long it rests after a change, at most.
    pub(crate) fence: u64,
    /// Whether not every change can be stored.
    pub(crate) may_not_store: bool,
    /// Whether nothing goes wrong but what hosts do.
    pub(crate) strict: bool,
}

counters! {
    /// What a fencer did.
    pub struct Actions {
        /// Changes that were made.
        changes: Operations,
        /// Changes that were a conflict, or not what is held.
        refusals: Operations,
        /// Changes that could not be stored, and were not made.
        not_stored: Operations,
        /// Changes after which somebody held the volume.
        holds: Operations,
        /// Registrations that were preempted.
        preempted: Operations,
        /// Of these, those whose tasks ended.
        aborted: Operations,
        /// Changes whose answer was lost.
        lost: Operations,
        /// Looks that showed what they must.
        looks: Operations,
        /// Unit attentions that were heard.
        told: Operations,
        /// Restarts that left registrations there, as was seen.
        kept: Events,
        /// Restarts that left none of those that there were.
        forgotten: Events,
        /// Sessions that it ended by itself.
        losses: Events,
    }
}

/// What others have to know.
#[derive(Debug)]
pub(crate) enum News {
    /// PREEMPT AND ABORT of these is asked for.
    Aborts(Vec<Who>),
    /// It was answered as done.
    Aborted,
}

/// A change that is not answered.
#[derive(Debug)]
struct Asked {
    node: usize,
    change: Change,
    before: Vec<Model>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Fencer {
    random: Random,
    settings: FencerSettings,
    /// Of all ports, its own first.
    names: Vec<(String, [u8; 6])>,
    nodes: Vec<Node>,
    asked: Option<Asked>,
    /// The port that has to be there again before anybody asks for a change.
    missed: Option<usize>,
    /// Who is told what by the change that is asked for, or was lost.
    told: Vec<(Who, AdditionalSense)>,
    looks: VecDeque<(usize, Look)>,
    looking: Option<(usize, Look)>,
    next_at: u64,
    alarm: Alarm,
    stopping: bool,
    done: bool,
    was_restarted: bool,
    /// Nobody has read the keys in this life of the target, nor changed them; whether somebody was
    /// registered in the last one.
    is_new_life: bool,
    were_registered: bool,
    news: Vec<News>,
    pub(crate) actions: Actions,
}

impl Fencer {
    pub(crate) fn new(mut random: Random, settings: FencerSettings) -> Fencer {
        let own = |index: usize| {
            let name = format!("iqn.2026-11.net.plateway:sim-fencer-{}", index / 2);
            (name, [0x80, 0, 0, 2, 0, index as u8])
        };
        let names: Vec<_> = (0..settings.ports).map(own).collect();
        let FencerSettings { digests, strict, .. } = settings;
        let nodes = names.iter().map(|who| Node::new(random.fork(), who.clone(), digests, strict));
        let nodes = nodes.collect();
        let names = names.into_iter().chain(settings.others.iter().cloned()).collect();
        Fencer {
            random,
            settings,
            names,
            nodes,
            asked: None,
            missed: None,
            told: Vec::new(),
            looks: VecDeque::new(),
            looking: None,
            next_at: 0,
            alarm: Alarm::default(),
            stopping: false,
            done: false,
            was_restarted: false,
            is_new_life: false,
            were_registered: false,
            news: Vec::new(),
            actions: Actions::default(),
        }
    }

    /// Lets everybody in again, and leaves.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether everybody is let in and it has left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.done
    }

    /// The target is another process.
    pub(crate) fn target_restarted(&mut self) {
        (self.was_restarted, self.missed) = (true, None);
        self.told.clear();
    }

    /// How it is, in words.
    pub(crate) fn state(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(Node::state).collect();
        let Fencer { asked, missed, looks, looking, next_at, .. } = self;
        format!(
            "{asked:?}, missed {missed:?}, looks at {looking:?} and {looks:?}, goes on at {next_at}; {}",
            nodes.join("; ")
        )
    }

    /// Hears what came, and goes on. An error is the target's fault.
    pub(crate) fn drive(
        &mut self,
        world: &mut SimWorld,
        target: usize,
        history: &mut History,
    ) -> Result<Vec<News>, String> {
        if self.done {
            return Ok(Vec::new());
        }
        let is_new = core::mem::take(&mut self.was_restarted);
        self.is_new_life |= is_new;
        for index in 0..self.nodes.len() {
            let events = match is_new {
                // What its last life said and was not heard is nobody's concern.
                true => self.nodes[index].give_up(world),
                false => self.nodes[index].drive(world, target)?,
            };
            for event in events {
                self.handle(world.now, index, event, history)?;
            }
        }
        self.go_on(world, history)?;
        Ok(core::mem::take(&mut self.news))
    }

    fn handle(
        &mut self,
        now: u64,
        index: usize,
        event: Event,
        history: &mut History,
    ) -> Result<(), String> {
        if matches!(event, Event::Lost) {
            // Its new session may be told of what is decided on now.
            let told = self.told.iter().filter(|(who, _)| *who == Who(index as u16));
            self.nodes[index].maybe = told.map(|(_, code)| *code).collect();
        }
        match event {
            Event::LoggedIn if self.missed == Some(index) => {
                self.missed = None;
                self.next_at = self.next_at.max(now + DECIDED);
            }
            Event::LoggedIn if self.is_new_life => self.look_around(),
            Event::LoggedIn => {}
            Event::Lost => {
                if self.looking.is_some_and(|(node, _)| node == index) {
                    self.looking = None;
                }
                if self.asked.as_ref().is_some_and(|asked| asked.node == index) {
                    self.asked = None;
                    self.actions.lost += 1;
                    // Of a process that is gone nothing comes any more.
                    self.missed = (!history.is_settled()).then_some(index);
                    self.look_around();
                }
            }
            Event::Answered(said, bytes) => match self.looking.take() {
                Some((node, look)) => {
                    assert_eq!(node, index, "one asks at a time");
                    self.looked(index, look, &said, &bytes, history)?;
                }
                None => self.answered(now, index, &said, history)?,
            },
        }
        Ok(())
    }

    /// Asks what is next, if nobody is asking.
    fn go_on(&mut self, world: &mut SimWorld, history: &mut History) -> Result<(), String> {
        if self.nodes.iter().any(Node::asks) {
            return Ok(());
        }
        if let Some(Asked { node, change, .. }) = &self.asked {
            // Told something instead of being answered, it asks again.
            if self.nodes[*node].is_ready() {
                let (order, list) = draw::order(change, &self.names);
                self.nodes[*node].ask(world, order, list);
            }
            return Ok(());
        }
        while let Some((node, look)) = self.looks.pop_front() {
            if self.nodes[node].is_ready() {
                self.looking = Some((node, look));
                self.nodes[node].ask(world, look.order(), Vec::new());
                return Ok(());
            }
        }
        let is_over = history.is_settled() && history.worlds().iter().all(Model::is_empty);
        if self.stopping && is_over {
            self.nodes.iter_mut().for_each(|node| node.part(world));
            self.done = true;
            return Ok(());
        }
        if world.now < self.next_at && !(self.stopping && self.missed.is_none()) {
            self.alarm.set(world, self.next_at);
            return Ok(());
        }
        let ready = (0..self.nodes.len()).filter(|index| self.nodes[*index].is_ready());
        let ready: Vec<usize> = ready.collect();
        if ready.is_empty() || self.missed.is_some() {
            return Ok(());
        }
        let node = ready[self.random.below(ready.len() as u64) as usize];
        if !self.stopping && self.random.chance(1, 12) {
            return self.end_a_session(world, node, history);
        }
        self.begin(world, node, history);
        Ok(())
    }

    fn end_a_session(
        &mut self,
        world: &mut SimWorld,
        node: usize,
        history: &mut History,
    ) -> Result<(), String> {
        self.actions.losses += 1;
        let (mut events, cuts) = (Vec::new(), self.random.chance(1, 2));
        self.nodes[node].leave(world, &mut events, cuts);
        self.next_at = world.now + self.random.below(300 * MILLISECOND);
        self.alarm.set(world, self.next_at);
        events.into_iter().try_for_each(|event| self.handle(world.now, node, event, history))
    }

    /// A change that is new: what it would become of the volume is in doubt from now on.
    fn begin(&mut self, world: &mut SimWorld, node: usize, history: &mut History) {
        let by = Who(node as u16);
        let before = history.worlds().to_vec();
        let seen = &before[self.random.below(before.len() as u64) as usize];
        let change = match self.stopping {
            true => self.last_change(by, &before),
            false => draw::change(&mut self.random, seen, by, self.names.len() as u16),
        };
        let afters: Vec<After> = before.iter().map(|model| model.apply(by, &change)).collect();
        history.ask(world.now, &afters);
        self.told = afters.iter().flat_map(|after| after.told.iter().copied()).collect();
        self.told.sort_by_key(|(who, code)| (*who, code.0));
        self.told.dedup();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.is_fresh = !node.is_live();
            let mine = self.told.iter().filter(|(who, _)| *who == Who(index as u16));
            node.maybe.extend(mine.map(|(_, code)| *code));
        }
        // Those whose tasks end whatever is true.
        let surely = |who: &&Who| afters.iter().all(|after| after.ended.contains(who));
        let victims = afters[0].ended.iter().filter(surely).copied().collect();
        self.news.push(News::Aborts(victims));
        let (order, list) = draw::order(&change, &self.names);
        self.asked = Some(Asked { node, change, before });
        self.nodes[node].ask(world, order, list);
    }

    /// What leads to a volume that is everybody's.
    fn last_change(&self, by: Who, worlds: &[Model]) -> Change {
        let own = worlds[0].key_of(by);
        match own.filter(|_| worlds.iter().all(|world| world.key_of(by) == own)) {
            Some(key) => Change::Clear { key },
            None => Change::Register { guard: None, key: 1, also: Vec::new(), persists: false },
        }
    }

    /// A change was answered.
    fn answered(
        &mut self,
        now: u64,
        index: usize,
        said: &Said,
        history: &mut History,
    ) -> Result<(), String> {
        let Some(ending) = self.ending(index, said)? else { return Ok(()) };
        let Asked { change, before, .. } = self.asked.take().expect("a change is answered");
        let by = Who(index as u16);
        let after = |model: &Model| match ending {
            Ending::NotStored => model.not_stored(by, &change),
            _ => Some(model.apply(by, &change)).filter(|after| after.ending == ending),
        };
        let afters: Vec<After> = before.iter().filter_map(after).collect();
        if afters.is_empty() {
            return Err(format!("{change:?} of {by:?} was answered {ending:?} in {before:?}"));
        }
        self.count(ending, &afters[0]);
        (self.is_new_life, self.were_registered) = (false, !afters[0].model.is_empty());
        self.owe(&afters);
        history.answer(now, afters.iter().map(|after| after.model.clone()).collect());
        if ending == Ending::Good {
            self.news.push(News::Aborted);
        }
        self.look_around();
        self.next_at = now + self.random.below(self.settings.fence) + 1;
        Ok(())
    }

    fn count(&mut self, ending: Ending, after: &After) {
        match ending {
            Ending::Good => self.actions.changes += 1,
            Ending::NotStored => self.actions.not_stored += 1,
            _ => self.actions.refusals += 1,
        }
        self.actions.holds += u64::from(after.model.held.is_some());
        let is_gone = |(_, code): &&(Who, _)| *code == AdditionalSense::REGISTRATIONS_PREEMPTED;
        self.actions.preempted += after.told.iter().filter(is_gone).count() as u64;
        self.actions.aborted += after.ended.len() as u64;
    }

    /// Who is told in all worlds has to hear it; in some, he may.
    fn owe(&mut self, afters: &[After]) {
        self.told.clear();
        let nodes = self.nodes.iter_mut().enumerate();
        // Without a session all the time nobody is surely told.
        for (index, node) in nodes.filter(|(_, node)| !node.is_fresh) {
            let who = Who(index as u16);
            let told = |after: &After| {
                let mine = after.told.iter().filter(|(other, _)| *other == who);
                mine.map(|(_, code)| *code).collect::<Vec<_>>()
            };
            for code in told(&afters[0]) {
                let is_sure = afters.iter().all(|after| told(after).contains(&code));
                // Each kind waits once.
                if is_sure && !node.owed.contains(&code) {
                    node.maybe.retain(|maybe| *maybe != code);
                    node.owed.push(code);
                }
            }
        }
    }

    /// How a change ended; `None` if it has to be asked for again.
    fn ending(&mut self, index: usize, said: &Said) -> Result<Option<Ending>, String> {
        Ok(match said.status() {
            ScsiStatus::GOOD => Some(Ending::Good),
            ScsiStatus::RESERVATION_CONFLICT => Some(Ending::Conflict),
            ScsiStatus::CHECK_CONDITION => {
                let sense = said.sense();
                match sense.key {
                    SenseKey::UNIT_ATTENTION => {
                        self.actions.told += 1;
                        self.nodes[index].attend(sense.code)?;
                        None
                    }
                    SenseKey::ILLEGAL_REQUEST => Some(Ending::Illegal(sense.code)),
                    SenseKey::HARDWARE_ERROR if self.settings.may_not_store => {
                        Some(Ending::NotStored)
                    }
                    _ => return Err(format!("{:?} was answered {sense:?}", self.asked)),
                }
            }
            ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL => None,
            _ => return Err(format!("{:?} was answered {said:?}", self.asked)),
        })
    }

    /// Each node looks at some of what there is.
    fn look_around(&mut self) {
        self.looks.clear();
        for node in 0..self.nodes.len() {
            for look in Look::ALL {
                let is_often = look == Look::Ready;
                if self.random.chance(if is_often { 4 } else { 2 }, 5) {
                    self.looks.push_back((node, look));
                }
            }
        }
    }

    fn looked(
        &mut self,
        index: usize,
        look: Look,
        said: &Said,
        bytes: &[u8],
        history: &mut History,
    ) -> Result<(), String> {
        match said.status() {
            ScsiStatus::GOOD => {}
            ScsiStatus::CHECK_CONDITION if said.sense().key == SenseKey::UNIT_ATTENTION => {
                self.actions.told += 1;
                self.nodes[index].attend(said.sense().code)?;
                self.looks.push_front((index, look));
                return Ok(());
            }
            ScsiStatus::TASK_SET_FULL => return Ok(()),
            _ => return Err(format!("{look:?} was answered {said:?}")),
        }
        if !self.nodes[index].owed.is_empty() {
            let state = self.nodes[index].state();
            return Err(format!("{look:?} was answered, and node {index} is not told: {state}"));
        }
        let seen = Seen::parse(look, bytes)?;
        let names = &self.names;
        let worlds = history.worlds();
        if !worlds.iter().any(|world| seen.is_of(world, names)) {
            return Err(format!("node {index} sees {seen:?}, of {worlds:?}"));
        }
        self.actions.looks += 1;
        if let (Seen::Keys(_, keys), true) = (&seen, self.is_new_life) {
            self.is_new_life = false;
            self.actions.kept += u64::from(!keys.is_empty());
            self.actions.forgotten += u64::from(keys.is_empty() && self.were_registered);
        }
        // While a change may be under way, what was is still seen on some shard.
        if history.is_settled() {
            history.narrow(|world| seen.is_of(world, names));
            self.nodes[index].maybe.clear();
        }
        Ok(())
    }
}
