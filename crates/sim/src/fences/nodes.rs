//! Those by whom a fencer asks, whatever they speak: what it wants of them, what they tell it, and by
//! which names all are known to each other.
//!
//! In: a question, a change or a look, in no protocol's words. Out: how a change ended, what was
//! seen, what they were told of the deeds of others. What a node sees are facts, of which each look
//! shows some; names are resolved where they are read. Not here: what a command looks like, and how a
//! node comes to its target (rooms of the protocols). Units: virtual nanoseconds.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;

use wire::scsi::AdditionalSense;
use wire::scsi::persistent::ReservationType;

use super::model::{Change, Ending, Model, Who};
use crate::client::SimWorld;
use crate::run::MILLISECOND;

/// So long the target may be silent while something is asked.
pub(crate) const PATIENCE: u64 = 120_000 * MILLISECOND;

/// The digest of the name of the host that the configuration names.
pub(crate) const NAMED_ID: [u8; 16] = [0xa5; 16];

/// By what somebody is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Name and ISID, or one of several.
    pub(crate) port: Option<(String, [u8; 6])>,
    /// HOSTID, of a host of NVMe; else what NVMe shows in its place.
    pub(crate) host_id: [u8; 16],
}

/// All who may be registered.
pub(crate) type Names = Rc<BTreeMap<Who, Identity>>;

/// Something that a node is to ask.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Change(Change),
    Look(Look),
}

/// Something to look at; how much of it a look shows is the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Keys,
    Reservation,
    Persistence,
    Registrants,
    /// What the node is told of the deeds of others.
    Told,
}

impl Look {
    pub(crate) const ALL: [Look; 5] =
        [Look::Keys, Look::Reservation, Look::Persistence, Look::Registrants, Look::Told];
}

/// A registrant as it is shown: its key, who it is, and what it holds.
pub(crate) type Shown = (u64, Who, Option<ReservationType>);

/// What was seen; what a look does not show is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) generation: Option<u32>,
    /// Ascending.
    pub(crate) keys: Option<Vec<u64>>,
    /// What is held, and the key of who holds it, 0 for all.
    pub(crate) held: Option<Option<(u64, ReservationType)>>,
    /// What is held, whoever holds it.
    pub(crate) kind: Option<Option<ReservationType>>,
    pub(crate) persists: Option<bool>,
    /// Ascending.
    pub(crate) registrants: Option<Vec<Shown>>,
    /// Whether the node was told all that it is to be told.
    pub(crate) is_told_all: bool,
}

impl Seen {
    /// Whether somebody is registered, if it shows that.
    pub(crate) fn is_registered(&self) -> Option<bool> {
        let keys = self.keys.as_ref().map(|keys| !keys.is_empty());
        keys.or_else(|| self.registrants.as_ref().map(|all| !all.is_empty()))
    }

    /// Whether this is what there is.
    pub(crate) fn is_of(&self, model: &Model) -> bool {
        let mut keys: Vec<u64> = model.keys.iter().map(|(_, key)| *key).collect();
        keys.sort_unstable();
        let kind = model.held.map(|(kind, _)| kind);
        let key_of = |holder| model.key_of(holder).unwrap_or(0);
        let held = model.held.map(|(kind, holder)| (holder.map_or(0, key_of), kind));
        let one = |(who, key): &(Who, u64)| (*key, *who, kind.filter(|_| model.is_holder(*who)));
        let mut registrants: Vec<Shown> = model.keys.iter().map(one).collect();
        registrants.sort_by_key(|(key, who, _)| (*key, *who));
        self.generation.is_none_or(|seen| seen == model.generation)
            && self.keys.as_ref().is_none_or(|seen| *seen == keys)
            && self.held.is_none_or(|seen| seen == held)
            && self.kind.is_none_or(|seen| seen == kind)
            && self.persists.is_none_or(|seen| seen == model.persists)
            && self.registrants.as_ref().is_none_or(|seen| *seen == registrants)
    }
}

/// How a question was answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Not now.
    Again,
    /// By what others did to reservations, in its place.
    Told(AdditionalSense),
    /// By something else that happened, in its place.
    Other,
    /// The change ended in one of these ways.
    Ended(Vec<Ending>),
    Seen(Seen),
}

/// What happened to a node.
#[derive(Debug)]
pub(crate) enum Event {
    /// It can ask, anew.
    LoggedIn,
    /// It cannot any more, and what it had asked is not answered. What of that may still be made is
    /// decided on soon after it is there again.
    Lost,
    /// What it asked was answered.
    Answered(Answer),
}

/// Somebody by whom a fencer asks, one thing at a time.
pub(crate) trait Node: Debug {
    /// Which changes it has words for: those of SCSI, or those of NVMe.
    fn is_scsi(&self) -> bool;

    /// What it can look at.
    fn looks(&self) -> &'static [Look];

    /// Whether it may ask something.
    fn is_ready(&self) -> bool;

    /// Whether it is there.
    fn is_live(&self) -> bool;

    /// Whether it is not answered.
    fn asks(&self) -> bool;

    /// Asks something, if it is ready.
    fn ask(&mut self, world: &mut SimWorld, question: Question);

    /// Hears what came, and comes to its target if it is time. An error is the target's fault.
    fn drive(&mut self, world: &mut SimWorld, target: usize) -> Result<Vec<Event>, String>;

    /// Leaves, to come again: in order, or by the loss of its connections.
    fn leave(&mut self, world: &mut SimWorld, cuts: bool) -> Vec<Event>;

    /// The target that it spoke to is gone.
    fn give_up(&mut self, world: &mut SimWorld) -> Vec<Event>;

    /// It asks no more, and leaves for ever.
    fn part(&mut self, world: &mut SimWorld);

    /// How it is, in words.
    fn state(&self) -> String;
}

/// When somebody is woken next: once for each time.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<u64>);

impl Alarm {
    pub(crate) fn set(&mut self, world: &mut SimWorld, at: u64) {
        let at = at.max(world.now + 1);
        if self.0.is_none_or(|set| set <= world.now || at < set) {
            self.0 = Some(at);
            world.alarm_at(at);
        }
    }
}
