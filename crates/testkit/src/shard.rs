//! What a shard gives the targets on it: the time, pages and a budget, volumes below, reservations,
//! and what the machines of a protocol share.

use block::{Instant, Pool, VolumeId};
use contract::{Receive, TargetContext};
use reservation::replica::Answer;
use reservation::{
    Change, Consequences, InForce, PathChange, PathGroup, Paths, Reservation, SetBy, Value, Verdict,
};

use crate::pipe::{Pipe, Shown};
use crate::{Below, Pages};

/// What becomes of a change of a reservation.
pub type Decision = Answer<Verdict, Reservation>;

/// A shard as its targets see it; `S` is what they share.
#[derive(Debug)]
pub struct ShardStub<S> {
    pub now: Instant,
    pub memory: Pages,
    pub pool: Pool,
    pub below: Below,
    pub reservations: InForce,
    pub paths: Paths,
    pub shared: S,
}

impl<S> ShardStub<S> {
    /// One with a budget of `pages`.
    pub fn new(now: Instant, pages: u32, shared: S) -> ShardStub<S> {
        ShardStub {
            now,
            memory: Pages::default(),
            pool: Pool::new(pages),
            below: Below::default(),
            reservations: InForce::default(),
            paths: Paths::default(),
            shared,
        }
    }

    /// For a call of a target.
    pub fn context(&mut self) -> TargetContext<'_, S> {
        let ShardStub { now, memory, pool, below, reservations, paths, shared } = self;
        TargetContext { now: *now, memory, pool, volumes: below, reservations, paths, shared }
    }

    /// A change of a reservation, decided as by the only shard: what becomes of it is in force, and
    /// did this to others.
    pub fn decide(&mut self, volume: VolumeId, change: &Change) -> (Decision, Consequences) {
        let held = self.reservations.get(volume).cloned().unwrap_or_default();
        let (next, verdict) = held.apply(change);
        let Some(mut next) = next else {
            return (Answer::Decided(verdict, held), Consequences::default());
        };
        let consequences = next.take_consequences();
        self.reservations.set(volume, next.clone());
        (Answer::Decided(verdict, next), consequences)
    }

    /// A change of states of paths, decided likewise; which groups are in other states now.
    pub fn decide_paths(
        &mut self,
        change: &PathChange,
    ) -> (Answer<(), Paths>, Vec<(PathGroup, SetBy)>) {
        let (next, ()) = self.paths.apply(change);
        let before = self.paths.clone();
        self.paths = next.unwrap_or_else(|| before.clone());
        let changed = self.paths.changed_since(&before).collect();
        (Answer::Decided((), self.paths.clone()), changed)
    }

    /// Shows a session what arrived for it, as [`Pipe::show`] does.
    pub fn show(
        &mut self,
        pipe: &mut Pipe,
        mut session: impl FnMut(Shown<'_>, &mut TargetContext<'_, S>) -> Receive,
    ) -> bool {
        let ShardStub { now, memory, pool, below, reservations, paths, shared } = self;
        pipe.show(memory, |shown, memory| {
            let now = *now;
            session(
                shown,
                &mut TargetContext {
                    now,
                    memory,
                    pool,
                    volumes: below,
                    reservations,
                    paths,
                    shared,
                },
            )
        })
    }
}
