//! Somebody who changes reservations by several nodes, initiator ports and hosts of NVMe, while others
//! work on the volume: registers itself and others, reserves, releases, clears, moves, preempts, and
//! aborts. One change at a time, then all look; sessions are lost, now and then with a change on its
//! way, and come back as who they were.
//!
//! It knows what each answer must be (`fences::model`), what each look must show, and which node is
//! owed which word of what others did. A change whose answer was lost was made or not: then two worlds
//! are possible, until the next answer or look. Until the node that asked is there again nobody asks
//! for another change, since the lost one may still be made. Errors: the target said what cannot
//! be, and the run fails. Units: virtual nanoseconds.
//!
//! ```text
//!  node 0 ---- change ---->|            |
//!              answer <----| all look   | rest | node 1 ---- change ---->
//! ```

mod debts;
mod draw;

use std::collections::VecDeque;

use block::Random;
use contract::counters;
use wire::scsi::AdditionalSense;

use super::history::History;
use super::model::{After, Change, Ending, Guard, Model, Who};
use super::nodes::{Alarm, Answer, Event, Look, Names, Node, Question, Seen};
use crate::client::SimWorld;
use crate::run::MILLISECOND;
use debts::Debts;

/// What a session that is gone had asked is decided on, or lost, within so long: mail takes
/// milliseconds.
const DECIDED: u64 = 100 * MILLISECOND;

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

/// Somebody by whom it asks.
#[derive(Debug)]
struct Member {
    who: Who,
    node: Box<dyn Node>,
    debts: Debts,
}

/// A change that is not answered.
#[derive(Debug)]
struct Asked {
    node: usize,
    change: Change,
    before: Vec<Model>,
    /// When its node cuts its connection, if it is not answered before.
    cut_at: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Fencer {
    random: Random,
    /// How long it rests after a change, at most.
    rest: u64,
    /// Who has an initiator port, and may be registered by others.
    ports: Vec<Who>,
    members: Vec<Member>,
    asked: Option<Asked>,
    /// The node that has to be there again before anybody asks for a change.
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
    pub(crate) fn new(
        random: Random,
        rest: u64,
        names: &Names,
        nodes: Vec<(Who, Box<dyn Node>)>,
    ) -> Fencer {
        let member = |(who, node)| Member { who, node, debts: Debts::default() };
        let has_port = |(who, identity): (&Who, &super::nodes::Identity)| {
            identity.port.is_some().then_some(*who)
        };
        Fencer {
            random,
            rest,
            ports: names.iter().filter_map(has_port).collect(),
            members: nodes.into_iter().map(member).collect(),
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
        let one =
            |Member { who, node, debts }: &Member| format!("{who:?}: {}, {debts:?}", node.state());
        let nodes: Vec<String> = self.members.iter().map(one).collect();
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
        for index in 0..self.members.len() {
            let node = &mut self.members[index].node;
            let events = match is_new {
                // What its last life said and was not heard is nobody's concern.
                true => node.give_up(world),
                false => node.drive(world, target)?,
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
        match event {
            Event::LoggedIn if self.missed == Some(index) => {
                self.missed = None;
                self.next_at = self.next_at.max(now + DECIDED);
            }
            Event::LoggedIn if self.is_new_life => self.look_around(),
            Event::LoggedIn => {}
            Event::Lost => {
                // Its new session may be told of what is decided on now.
                let Member { who, debts, .. } = &mut self.members[index];
                debts.lost(told_to(*who, &self.told));
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
            Event::Answered(answer) => match self.looking.take() {
                Some((node, look)) => {
                    assert_eq!(node, index, "one asks at a time");
                    self.looked(index, look, answer, history)?;
                }
                None => self.answered(now, index, answer, history)?,
            },
        }
        Ok(())
    }

    /// Asks what is next, if nobody is asking.
    fn go_on(&mut self, world: &mut SimWorld, history: &mut History) -> Result<(), String> {
        if let Some(Asked { node, cut_at: Some(at), .. }) = self.asked
            && at <= world.now
        {
            return self.leave(world, node, true, history);
        }
        if self.members.iter().any(|member| member.node.asks()) {
            return Ok(());
        }
        if let Some(Asked { node, change, .. }) = &self.asked {
            // Told something instead of being answered, it asks again.
            let node = &mut self.members[*node].node;
            if node.is_ready() {
                node.ask(world, Question::Change(change.clone()));
            }
            return Ok(());
        }
        while let Some((index, look)) = self.looks.pop_front() {
            let node = &mut self.members[index].node;
            if node.is_ready() {
                self.looking = Some((index, look));
                node.ask(world, Question::Look(look));
                return Ok(());
            }
        }
        let is_over = history.is_settled() && history.worlds().iter().all(Model::is_empty);
        if self.stopping && is_over {
            self.members.iter_mut().for_each(|member| member.node.part(world));
            self.done = true;
            return Ok(());
        }
        if world.now < self.next_at && !(self.stopping && self.missed.is_none()) {
            self.alarm.set(world, self.next_at);
            return Ok(());
        }
        let is_ready = |index: &usize| self.members[*index].node.is_ready();
        let ready: Vec<usize> = (0..self.members.len()).filter(is_ready).collect();
        if ready.is_empty() || self.missed.is_some() {
            return Ok(());
        }
        let node = ready[self.random.below(ready.len() as u64) as usize];
        if !self.stopping && self.random.chance(1, 12) {
            let cuts = self.random.chance(1, 2);
            self.leave(world, node, cuts, history)?;
            self.next_at = world.now + self.random.below(300 * MILLISECOND);
            self.alarm.set(world, self.next_at);
            return Ok(());
        }
        self.begin(world, node, history);
        Ok(())
    }

    /// A node leaves, to come again.
    fn leave(
        &mut self,
        world: &mut SimWorld,
        node: usize,
        cuts: bool,
        history: &mut History,
    ) -> Result<(), String> {
        self.actions.losses += 1;
        let events = self.members[node].node.leave(world, cuts);
        events.into_iter().try_for_each(|event| self.handle(world.now, node, event, history))
    }

    /// A change that is new: what it would become of the volume is in doubt from now on.
    fn begin(&mut self, world: &mut SimWorld, node: usize, history: &mut History) {
        let Member { who: by, node: asker, .. } = &self.members[node];
        let (by, ports) = (*by, asker.is_scsi().then_some(&*self.ports));
        let before = history.worlds().to_vec();
        let seen = &before[self.random.below(before.len() as u64) as usize];
        let change = match self.stopping {
            true => last_change(by, &before),
            false => draw::change(&mut self.random, seen, by, ports),
        };
        let afters: Vec<After> = before.iter().map(|model| model.apply(by, &change)).collect();
        history.ask(world.now, &afters);
        self.told = afters.iter().flat_map(|after| after.told.iter().copied()).collect();
        self.told.sort_by_key(|(who, code)| (*who, code.0));
        self.told.dedup();
        for Member { who, node, debts } in &mut self.members {
            debts.begin(told_to(*who, &self.told), node.is_live());
        }
        // Those whose tasks end whatever is true.
        let surely = |who: &&Who| afters.iter().all(|after| after.ended.contains(who));
        let victims = afters[0].ended.iter().filter(surely).copied().collect();
        self.news.push(News::Aborts(victims));
        let is_cut = !self.stopping && self.random.chance(1, 16);
        let cut_at = is_cut.then(|| world.now + self.random.below(30 * MILLISECOND) + 1);
        if let Some(at) = cut_at {
            world.alarm_at(at);
        }
        self.members[node].node.ask(world, Question::Change(change.clone()));
        self.asked = Some(Asked { node, change, before, cut_at });
    }

    /// A change was answered.
    fn answered(
        &mut self,
        now: u64,
        index: usize,
        answer: Answer,
        history: &mut History,
    ) -> Result<(), String> {
        let endings = match answer {
            Answer::Again | Answer::Other => return Ok(()),
            Answer::Told(code) => return self.hear(index, code),
            Answer::Ended(endings) => endings,
            Answer::Seen(seen) => return Err(format!("{:?} was answered {seen:?}", self.asked)),
        };
        let Asked { change, before, .. } = self.asked.take().expect("a change is answered");
        let by = self.members[index].who;
        let after = |model: &Model| match *endings {
            [Ending::NotStored] => model.not_stored(by, &change),
            _ => Some(model.apply(by, &change)).filter(|after| endings.contains(&after.ending)),
        };
        let afters: Vec<After> = before.iter().filter_map(after).collect();
        let Some(first) = afters.first() else {
            return Err(format!("{change:?} of {by:?} was answered {endings:?} in {before:?}"));
        };
        self.actions.count(first);
        (self.is_new_life, self.were_registered) = (false, !first.model.is_empty());
        self.owe(&afters);
        let is_good = first.ending == Ending::Good;
        history.answer(now, afters.into_iter().map(|after| after.model).collect());
        if is_good {
            self.news.push(News::Aborted);
        }
        self.look_around();
        self.next_at = now + self.random.below(self.rest) + 1;
        Ok(())
    }

    /// Who is told in all worlds has to hear it; in some, he may.
    fn owe(&mut self, afters: &[After]) {
        self.told.clear();
        for Member { who, node, debts } in &mut self.members {
            for code in told_to(*who, &afters[0].told) {
                if afters.iter().all(|after| after.told.contains(&(*who, code))) {
                    debts.owe(code, node.is_scsi());
                }
            }
        }
    }

    /// A node was told something.
    fn hear(&mut self, index: usize, code: AdditionalSense) -> Result<(), String> {
        self.actions.told += 1;
        let heard = self.members[index].debts.hear(code);
        heard.map_err(|why| format!("{why}: {}", self.state()))
    }

    /// Each node looks at some of what there is.
    fn look_around(&mut self) {
        self.looks.clear();
        for (index, Member { node, .. }) in self.members.iter().enumerate() {
            for look in node.looks() {
                let is_often = *look == Look::Told;
                if self.random.chance(if is_often { 4 } else { 2 }, 5) {
                    self.looks.push_back((index, *look));
                }
            }
        }
    }

    fn looked(
        &mut self,
        index: usize,
        look: Look,
        answer: Answer,
        history: &mut History,
    ) -> Result<(), String> {
        let seen: Seen = match answer {
            Answer::Again => return Ok(()),
            Answer::Told(code) => {
                self.looks.push_front((index, look));
                return self.hear(index, code);
            }
            Answer::Other => {
                self.looks.push_front((index, look));
                return Ok(());
            }
            Answer::Seen(seen) => seen,
            Answer::Ended(endings) => return Err(format!("{look:?} was answered {endings:?}")),
        };
        if seen.is_told_all {
            self.members[index].debts.heard_all().map_err(|why| format!("{why} by {look:?}"))?;
        }
        let worlds = history.worlds();
        if !worlds.iter().any(|world| seen.is_of(world)) {
            return Err(format!("node {index} sees {seen:?}, of {worlds:?}"));
        }
        self.actions.looks += 1;
        if let (Some(is_registered), true) = (seen.is_registered(), self.is_new_life) {
            self.is_new_life = false;
            self.actions.kept += u64::from(is_registered);
            self.actions.forgotten += u64::from(!is_registered && self.were_registered);
        }
        // While a change may be under way, what was is still seen on some shard.
        if history.is_settled() {
            history.narrow(|world| seen.is_of(world));
            if seen.is_told_all {
                self.members[index].debts.settle();
            }
        }
        Ok(())
    }
}

impl Actions {
    /// A change was answered.
    fn count(&mut self, after: &After) {
        match after.ending {
            Ending::Good => self.changes += 1,
            Ending::NotStored => self.not_stored += 1,
            _ => self.refusals += 1,
        }
        self.holds += u64::from(after.model.held.is_some());
        let is_gone = |(_, code): &&(Who, _)| *code == AdditionalSense::REGISTRATIONS_PREEMPTED;
        self.preempted += after.told.iter().filter(is_gone).count() as u64;
        self.aborted += after.ended.len() as u64;
    }
}

/// What leads to a volume that is everybody's.
fn last_change(by: Who, worlds: &[Model]) -> Change {
    let own = worlds[0].key_of(by);
    match own.filter(|_| worlds.iter().all(|world| world.key_of(by) == own)) {
        Some(key) => Change::Clear { key },
        None => {
            let (guard, persists) = (Guard::Any, Some(false));
            Change::Register { guard, key: 1, also: Vec::new(), persists }
        }
    }
}

/// What somebody is told.
fn told_to(who: Who, told: &[(Who, AdditionalSense)]) -> impl Iterator<Item = AdditionalSense> {
    told.iter().filter(move |(other, _)| *other == who).map(|(_, code)| *code)
}
