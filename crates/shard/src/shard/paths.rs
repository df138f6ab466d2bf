//! Paths: in which state each group of listeners is, for every protocol.
//!
//! One value of the whole server, of which every shard has a copy; it is changed by an order or in a
//! host's name, as [reservations](super::reservations) are. Protocols are handed it with every call
//! and ask it for each command when it comes, and again when one that waited starts. Who changed it
//! is answered when every shard has it and nothing is below any more that came by a path which does
//! not serve now: so an administrator who closed a path, or a host that did, may take what is behind
//! it away.

use block::{ShardId, Slot, Ticket, VolumeId, planted};
use contract::Effect;
use reservation::replica::{self, Outbox};
use reservation::{PathChange, PathGroup, PathState, Paths, Replicas, SetBy};

use super::Shard;
use super::proposers::{Proposer, Proposers};
use crate::machine;
use crate::mail::{Answer, Mail, News};
use crate::protocols::{StoreKey, StoredValue};

/// The one value, by which its owner is found.
const KEY: u32 = 0;

/// A shard's part of the states of paths.
#[derive(Debug)]
pub(super) struct PathStates {
    /// What their owner decides on.
    replicas: Replicas<Paths>,
    pub(super) in_force: Paths,
    /// The version that was installed while something was below that it forbids.
    draining: Option<u64>,
    proposers: Proposers,
}

impl PathStates {
    pub(super) fn new(shard: ShardId, shards: u16) -> PathStates {
        let mut replicas = Replicas::new(shard, shards);
        replicas.add(KEY, Paths::default());
        let (in_force, proposers) = (Paths::default(), Proposers::default());
        PathStates { replicas, in_force, draining: None, proposers }
    }

    /// As they were stored, before anybody uses them.
    pub(super) fn restore(&mut self, stored: Paths) {
        self.in_force = stored.clone();
        self.replicas.add(KEY, stored);
    }

    pub(super) fn propose(&mut self, by: Proposer, change: PathChange) {
        let number = self.proposers.add(by);
        self.replicas.propose(KEY, number, change);
    }

    /// Sets states for an administrator, if this shard decides about them. Returns whether it does:
    /// then the order is answered later.
    pub(super) fn order(&mut self, states: Vec<(PathGroup, PathState)>, order: u64) -> bool {
        let decides = self.replicas.value(KEY).is_some();
        if decides {
            let by = SetBy::Administrator;
            self.propose(Proposer::Order(order), PathChange { states, by });
        }
        decides
    }

    pub(super) fn handle_mail(&mut self, from: ShardId, message: replica::Message<Paths>) {
        self.replicas.handle_message(from, message);
    }

    pub(super) fn handle_stored(&mut self, version: u64, stored: bool) {
        self.replicas.handle_stored(KEY, version, stored);
    }

    /// Whether something is to be carried.
    #[inline]
    pub(super) fn needs_settle(&self) -> bool {
        !self.replicas.outbox.is_empty()
    }
}

impl Shard {
    /// Carries proposals, messages, values and answers, until nothing follows from it but that
    /// something is awaited.
    #[inline]
    pub(super) fn settle_paths(&mut self) {
        if self.paths.draining.is_some() {
            self.drain_paths();
        }
        while self.paths.needs_settle() {
            self.carry_paths();
        }
    }

    #[cold]
    fn carry_paths(&mut self) {
        let Outbox { messages, store, install, answers } =
            core::mem::take(&mut self.paths.replicas.outbox);
        let mail = |(to, message)| Effect::Mail { to, mail: Mail::Paths(message) };
        self.effects.extend(messages.into_iter().map(mail));
        for (_, version, value) in store {
            let value = StoredValue::Paths(value);
            self.tell(News::Store { key: StoreKey::Paths, version, value });
        }
        for (_, version, value) in install {
            let before = core::mem::replace(&mut self.paths.in_force, value);
            let changed: Vec<_> = self.paths.in_force.changed_since(&before).collect();
            self.protocols.paths_changed(&changed);
            self.tell_paths(&before, &changed);
            self.paths.draining = Some(version);
        }
        for (number, answer) in answers {
            match self.paths.proposers.take(number) {
                Proposer::Protocol(proposal) => {
                    self.protocols.handle_path_answer(proposal, &answer);
                }
                Proposer::Order(number) => self.answer(number, order_answer(&answer)),
            }
        }
        self.drain_paths();
    }

    /// The shard that decides tells people of what is another, once.
    fn tell_paths(&mut self, before: &Paths, changed: &[(PathGroup, SetBy)]) {
        if self.paths.replicas.value(KEY).is_none() {
            return;
        }
        for (group, by) in changed.iter().copied() {
            let (was, is) = (before.state(group), self.paths.in_force.state(group));
            self.tell(News::Path { group, was, is, by });
        }
    }

    /// Tells their owner that the states are in force here, once nothing is below that they forbid.
    fn drain_paths(&mut self) {
        let Some(version) = self.paths.draining else { return };
        if self.paths_are_clear() || planted("paths-in-force-early") {
            self.paths.draining = None;
            self.paths.replicas.installed(KEY, version);
        }
    }

    /// Whether all that is outstanding came by paths that serve.
    fn paths_are_clear(&self) -> bool {
        let volumes = self.members.keys().map(|volume| VolumeId(*volume));
        volumes.flat_map(|volume| self.volumes.outstanding(volume)).all(
            |volume::Outstanding { ticket, .. }| {
                self.group(ticket).is_none_or(|group| self.paths.in_force.state(group).serves())
            },
        )
    }

    /// By which group of listeners a request came, if by one.
    fn group(&self, ticket: Ticket) -> Option<PathGroup> {
        let Ticket { machine, generation, .. } = ticket;
        match machine::kind(machine) {
            machine::SESSION => Some(self.places.get(Slot { index: machine.0, generation })?.group),
            _ => None,
        }
    }
}

/// What an order is answered that asked for other states.
fn order_answer(answer: &replica::Answer<(), Paths>) -> Answer {
    let why = match answer {
        replica::Answer::Decided((), _) => return Answer::Done,
        replica::Answer::NotStored => "the change could not be stored, and was not made",
        replica::Answer::Busy => "too many changes of it wait",
        replica::Answer::Gone => unreachable!("the states of paths are always there"),
    };
    Answer::Refused(why.to_owned())
}
