//! Primary copy: a small value that all shards hold a copy of, that one of them changes, and that
//! survives a restart. Reservations are one; what initiators may change of an export may be
//! another.
//!
//! ```text
//!  proposer            owner of the key                  program        every shard (proposer and owner too)
//!     |--- Propose ------>|  applies the change              |               |
//!     |                   |--- store ----------------------->|               |
//!     |                   |<-- handle_stored ----------------|               |
//!     |                   |--- Install ------------------------------------->|  takes the copy over, and answers once
//!     |                   |<--------------------------------- Installed -----|  nothing is below that it forbids
//!     |<-- Answer --------|  when all have
//! ```
//!
//! So a change is answered only when it is stored and no shard acts on the old value any more:
//! after a reservation is answered, no command of a stranger reaches the media. Changes of one key
//! are made one after the other, in the order in which they reach the owner. A change that alters
//! nothing is answered at once, with the value that stands. A change that cannot be stored is not
//! made. Whoever changes two keys at once gets no promise about their order. Mailboxes are first
//! in, first out, which this relies on.
//!
//! In: proposals, messages, what the program stored. Out: an [`Outbox`], which the caller empties.
//! Not here: what a value means ([`Value`]).

use core::fmt;
use std::collections::{BTreeMap, VecDeque};

use block::ShardId;

/// Proposals for one key that wait at its owner; who comes later is told that it is busy.
pub const PROPOSALS_MAX: usize = 64;

/// A value that shards have copies of.
pub trait Value: Clone + fmt::Debug {
    /// What may be proposed.
    type Change: Clone + fmt::Debug;
    /// What the proposer is told.
    type Answer: Clone + fmt::Debug;

    /// Applies a change: the value that follows, or `None` if this one stays, and the answer.
    fn apply(&self, change: &Self::Change) -> (Option<Self>, Self::Answer);
}

/// An answer to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<A, V> {
    /// It was decided: the answer, and the value that stands now.
    Decided(A, V),
    /// The change could not be stored, and was not made.
    NotStored,
    /// Too many proposals wait.
    Busy,
    /// There is no such key any more.
    Gone,
}

/// What shards write to each other.
#[derive(Clone, Debug)]
pub enum Message<V: Value> {
    /// To the owner: a change.
    Propose {
        /// Of which value.
        key: u32,
        /// The proposer's own number of it.
        number: u64,
        /// What.
        change: V::Change,
    },
    /// To every shard: take this over.
    Install {
        /// Which value.
        key: u32,
        /// Counts up with every change.
        version: u64,
        /// The value.
        value: V,
    },
    /// To the owner: it is in force here.
    Installed {
        /// Which value.
        key: u32,
        /// Of the change.
        version: u64,
    },
    /// To the proposer.
    Answer {
        /// The number of the proposal.
        number: u64,
        /// The answer.
        answer: Answer<V::Answer, V>,
    },
}

/// What replicas want done. Whoever calls it empties it.
#[derive(Debug)]
pub struct Outbox<V: Value> {
    /// Messages for other shards.
    pub messages: Vec<(ShardId, Message<V>)>,
    /// Values to store, on the owner: key, version, value. Answered by [`Replicas::handle_stored`].
    pub store: Vec<(u32, u64, V)>,
    /// Values that are in force on this shard from now on: key, version, value. Answered by
    /// [`Replicas::installed`] once nothing is below that they forbid.
    pub install: Vec<(u32, u64, V)>,
    /// Answers to proposals of this shard, by number.
    pub answers: Vec<(u64, Answer<V::Answer, V>)>,
}

impl<V: Value> Default for Outbox<V> {
    fn default() -> Self {
        Outbox { messages: Vec::new(), store: Vec::new(), install: Vec::new(), answers: Vec::new() }
    }
}

impl<V: Value> Outbox<V> {
    /// Whether nothing is wanted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let Outbox { messages, store, install, answers } = self;
        messages.is_empty() && store.is_empty() && install.is_empty() && answers.is_empty()
    }
}

/// A shard's part of the values of one kind: those that it owns.
#[derive(Debug)]
pub struct Replicas<V: Value> {
    shard: ShardId,
    shards: u16,
    /// The values that this shard owns.
    owned: BTreeMap<u32, Owned<V>>,
    /// What is wanted of the caller.
    pub outbox: Outbox<V>,
}

#[derive(Debug)]
struct Owned<V: Value> {
    value: V,
    version: u64,
    running: Option<Running<V>>,
    waiting: VecDeque<Proposal<V>>,
}

#[derive(Debug)]
struct Proposal<V: Value> {
    from: ShardId,
    number: u64,
    change: V::Change,
}

/// The change that is being made.
#[derive(Debug)]
struct Running<V: Value> {
    from: ShardId,
    number: u64,
    answer: V::Answer,
    next: V,
    /// Shards that have not installed it; `None` while it is being stored.
    left: Option<u16>,
}

impl<V: Value> Replicas<V> {
    /// No values yet.
    pub fn new(shard: ShardId, shards: u16) -> Replicas<V> {
        Replicas { shard, shards, owned: BTreeMap::new(), outbox: Outbox::default() }
    }

    /// A value is there, as it was stored or new; every shard is told, and only the owner keeps it.
    pub fn add(&mut self, key: u32, value: V) {
        if ShardId::owner_of(key, self.shards) == self.shard {
            let owned = Owned { value, version: 0, running: None, waiting: VecDeque::new() };
            self.owned.insert(key, owned);
        }
    }

    /// A value is gone; who waits is told.
    pub fn remove(&mut self, key: u32) {
        let Some(owned) = self.owned.remove(&key) else { return };
        let running = owned.running.map(|running| (running.from, running.number));
        let waiting = owned.waiting.into_iter().map(|proposal| (proposal.from, proposal.number));
        for (from, number) in running.into_iter().chain(waiting) {
            self.answer(from, number, Answer::Gone);
        }
    }

    /// The value, on its owner.
    pub fn value(&self, key: u32) -> Option<&V> {
        self.owned.get(&key).map(|owned| &owned.value)
    }

    /// Proposes a change; answered under `number` in the outbox of this shard.
    pub fn propose(&mut self, key: u32, number: u64, change: V::Change) {
        let to = ShardId::owner_of(key, self.shards);
        self.send(to, Message::Propose { key, number, change });
    }

    /// The program stored what it was given, or could not.
    pub fn handle_stored(&mut self, key: u32, version: u64, stored: bool) {
        let Some(owned) = self.owned.get_mut(&key) else { return };
        let due = |running: &Running<V>| running.left.is_none() && owned.version + 1 == version;
        if !owned.running.as_ref().is_some_and(due) {
            return;
        }
        if !stored {
            let running = owned.running.take().expect("it was there");
            self.answer(running.from, running.number, Answer::NotStored);
            return self.go_on(key);
        }
        let running = owned.running.as_mut().expect("it was there");
        running.left = Some(self.shards.max(1));
        owned.version = version;
        owned.value = running.next.clone();
        let value = owned.value.clone();
        for shard in 0..self.shards.max(1) {
            let message = Message::Install { key, version, value: value.clone() };
            self.send(ShardId(shard), message);
        }
    }

    /// A value that the outbox said to install is in force on this shard.
    pub fn installed(&mut self, key: u32, version: u64) {
        let to = ShardId::owner_of(key, self.shards);
        self.send(to, Message::Installed { key, version });
    }

    /// A message from another shard (or from this one).
    pub fn handle_message(&mut self, from: ShardId, message: Message<V>) {
        match message {
            Message::Propose { key, number, change } => {
                let Some(owned) = self.owned.get_mut(&key) else {
                    return self.answer(from, number, Answer::Gone);
                };
                if owned.waiting.len() >= PROPOSALS_MAX {
                    return self.answer(from, number, Answer::Busy);
                }
                owned.waiting.push_back(Proposal { from, number, change });
                self.go_on(key);
            }
            Message::Install { key, version, value } => {
                self.outbox.install.push((key, version, value))
            }
            Message::Installed { key, version } => {
                let Some(owned) = self.owned.get_mut(&key) else { return };
                let Some(running) = &mut owned.running else { return };
                let Some(left) = &mut running.left else { return };
                if owned.version != version {
                    return;
                }
                *left -= 1;
                if *left == 0 {
                    let Running { from, number, answer, next, .. } =
                        owned.running.take().expect("it was there");
                    self.answer(from, number, Answer::Decided(answer, next));
                    self.go_on(key);
                }
            }
            Message::Answer { number, answer } => self.outbox.answers.push((number, answer)),
        }
    }

    /// Begins the next change of a key, if none runs.
    fn go_on(&mut self, key: u32) {
        loop {
            let Some(owned) = self.owned.get_mut(&key) else { return };
            if owned.running.is_some() {
                return;
            }
            let Some(Proposal { from, number, change }) = owned.waiting.pop_front() else { return };
            match owned.value.apply(&change) {
                (Some(next), answer) => {
                    self.outbox.store.push((key, owned.version + 1, next.clone()));
                    owned.running = Some(Running { from, number, answer, next, left: None });
                }
                (None, answer) => {
                    let answer = Answer::Decided(answer, owned.value.clone());
                    self.answer(from, number, answer);
                }
            }
        }
    }

    fn answer(&mut self, to: ShardId, number: u64, answer: Answer<V::Answer, V>) {
        self.send(to, Message::Answer { number, answer });
    }

    /// Sends a message; to this shard itself, by handling it.
    fn send(&mut self, to: ShardId, message: Message<V>) {
        if to == self.shard {
            self.handle_message(to, message);
        } else {
            self.outbox.messages.push((to, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that may only grow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Growing(u32);

    impl Value for Growing {
        type Change = u32;
        type Answer = bool;

        fn apply(&self, change: &u32) -> (Option<Growing>, bool) {
            ((*change > self.0).then_some(Growing(*change)), *change >= self.0)
        }
    }

    struct World {
        shards: Vec<Replicas<Growing>>,
    }

    impl World {
        fn new(count: u16) -> World {
            let shard = |number| {
                let mut replicas = Replicas::new(ShardId(number), count);
                replicas.add(7, Growing(0));
                replicas
            };
            World { shards: (0..count).map(shard).collect() }
        }

        fn ask(&mut self, shard: usize, number: u64, change: u32) {
            self.shards[shard].propose(7, number, change);
            self.carry();
        }

        /// Carries messages until none is left.
        fn carry(&mut self) {
            loop {
                let mut mail = Vec::new();
                for (from, replicas) in (0..).map(ShardId).zip(&mut self.shards) {
                    let messages = replicas.outbox.messages.drain(..);
                    mail.extend(messages.map(|(to, message)| (from, to, message)));
                }
                if mail.is_empty() {
                    return;
                }
                for (from, to, message) in mail {
                    self.shards[to.index()].handle_message(from, message);
                }
            }
        }

        fn owner(&mut self) -> &mut Replicas<Growing> {
            let owner = ShardId::owner_of(7, self.shards.len() as u16);
            &mut self.shards[owner.index()]
        }

        fn stored(&mut self, well: bool) {
            let (key, version, _) = self.owner().outbox.store.remove(0);
            self.owner().handle_stored(key, version, well);
            self.carry();
        }

        fn installed(&mut self, shard: usize) {
            let replicas = &mut self.shards[shard];
            let (key, version, _) = replicas.outbox.install.remove(0);
            replicas.installed(key, version);
            self.carry();
        }

        fn answers(&mut self, shard: usize) -> Vec<(u64, Answer<bool, Growing>)> {
            core::mem::take(&mut self.shards[shard].outbox.answers)
        }
    }

    #[test]
    fn a_change_is_answered_once_it_is_stored_and_in_force_everywhere() {
        let mut world = World::new(3);
        world.ask(2, 41, 5);
        assert!(world.shards.iter().all(|replicas| replicas.outbox.install.is_empty()));
        world.stored(true);
        for shard in 0..3 {
            assert_eq!(world.answers(2), []);
            assert_eq!(world.shards[shard].outbox.install[0], (7, 1, Growing(5)));
            world.installed(shard);
        }
        assert_eq!(world.answers(2), [(41, Answer::Decided(true, Growing(5)))]);
        assert_eq!(world.owner().value(7), Some(&Growing(5)));
    }

    #[test]
    fn an_outbox_is_empty_once_all_that_was_wanted_is_taken() {
        let mut world = World::new(2);
        let owner = ShardId::owner_of(7, 2).index();
        let wants = |world: &World| {
            let wants = |shard: usize| !world.shards[shard].outbox.is_empty();
            (wants(owner), wants(1 - owner))
        };
        assert_eq!(wants(&world), (false, false));
        world.shards[1 - owner].propose(7, 1, 5);
        assert_eq!(wants(&world), (false, true), "a message");
        world.carry();
        assert_eq!(wants(&world), (true, false), "to be stored");
        world.stored(true);
        assert_eq!(wants(&world), (true, true), "to be installed");
        world.installed(owner);
        assert_eq!(wants(&world), (false, true));
        world.installed(1 - owner);
        assert_eq!(wants(&world), (false, true), "an answer");
        assert_eq!(world.answers(1 - owner), [(1, Answer::Decided(true, Growing(5)))]);
        assert_eq!(wants(&world), (false, false));
    }

    #[test]
    fn changes_of_one_key_are_made_one_after_the_other() {
        let mut world = World::new(2);
        world.ask(0, 1, 5);
        world.ask(1, 2, 4);
        world.ask(0, 3, 6);
        assert_eq!(world.owner().outbox.store.len(), 1);
        world.stored(true);
        world.installed(0);
        world.installed(1);
        assert_eq!(world.answers(0), [(1, Answer::Decided(true, Growing(5)))]);
        // The second was judged by what the first left, and changed nothing.
        assert_eq!(world.answers(1), [(2, Answer::Decided(false, Growing(5)))]);
        assert_eq!(world.owner().outbox.store, [(7, 2, Growing(6))]);
    }

    #[test]
    fn what_cannot_be_stored_is_not_changed() {
        let mut world = World::new(1);
        world.ask(0, 1, 5);
        world.ask(0, 2, 3);
        world.stored(false);
        assert_eq!(world.answers(0), [(1, Answer::NotStored)]);
        world.stored(true);
        world.installed(0);
        assert_eq!(world.answers(0), [(2, Answer::Decided(true, Growing(3)))]);
    }

    #[test]
    fn who_waits_for_a_value_that_goes_away_is_told() {
        let mut world = World::new(1);
        world.ask(0, 1, 5);
        world.ask(0, 2, 6);
        world.owner().remove(7);
        world.owner().handle_stored(7, 1, true);
        assert_eq!(world.answers(0), [(1, Answer::Gone), (2, Answer::Gone)]);
        world.ask(0, 3, 7);
        assert_eq!(world.answers(0), [(3, Answer::Gone)]);
    }

    #[test]
    fn proposals_that_wait_are_bounded() {
        let mut world = World::new(1);
        for number in 0..100 {
            world.ask(0, number, number as u32 + 1);
        }
        let busy = world.answers(0);
        assert_eq!(busy.len(), 100 - 1 - PROPOSALS_MAX);
        assert!(busy.iter().all(|(_, answer)| *answer == Answer::Busy));
    }
}
