//! A run in which tables become others (`reloads`) while links fail and traffic moves (`cuts`): before
//! anybody noticed, while the ends move to the other path, while that one is not up yet, and while
//! traffic goes back. Beside that paths are taken away, also the one that traffic is on, and given back.
//!
//! ```text
//!   link fails | changes | detected, traffic moves | changes | link is whole | changes | up, waited, back
//! ```
//! Promised is what both promise: what is sent by a path that is whole, or by the other one once a
//! detection time has passed, comes out, and no change takes from that but what it names; nothing
//! goes down and nothing moves without a cause; a label that was another's is refused for the
//! quarantine; and when all is over traffic is on the primary paths, and all counters add up.

use core::time::Duration;

use block::Random;

use super::oracle::Tally;
use super::reloads::{WIRES, World};
use super::running::Seen;

const ROUNDS: u64 = 4;
/// As many changes, at most, before a link fails, while it does, and after that.
const CHANGES: u64 = 6;

/// What a run did beside what it carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) refused: u64,
    /// Paths that were taken away, and those of them that traffic was on.
    pub(crate) taken: u64,
    pub(crate) taken_under_way: u64,
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<(Tally, Seen, Changed), String> {
    let mut play = Play { world: World::new(Random::new(seed), 0), changed: Changed::default() };
    for round in 0..ROUNDS {
        // The links of which the wires' paths consist, in turn.
        let link = ((seed * ROUNDS + round) % 6) as usize;
        play.round(link);
    }
    play.give_all_back();
    let Play { world: World { mut network, refused, .. }, changed } = play;
    let back = network.health.times.back();
    network.carry(back);
    network.judge_calm(true);
    let done = (network.oracle.tally, network.events, Changed { refused, ..changed });
    network.oracle.broken.map_or(Ok(done), Err)
}

struct Play {
    world: World,
    changed: Changed,
}

impl Play {
    fn round(&mut self, link: usize) {
        self.change();
        let is_told = self.world.network.random.chance(1, 3);
        let ends = [[true; 2], [true, false], [false, true]];
        let ends = ends[self.world.network.random.below(3) as usize];
        match is_told {
            true => self.world.network.tell(link, false),
            false => self.world.network.cut(link, ends),
        }
        self.change();
        self.carry_for([0, 900, 2_000, 5_000]);
        self.change();
        match is_told {
            true => self.world.network.tell(link, true),
            false => self.world.network.cut(link, [false; 2]),
        }
        self.change();
        self.carry_for([500, 2_000, 4_000, 7_000]);
    }

    fn carry_for(&mut self, times: [u64; 4]) {
        let time = times[self.world.network.random.below(4) as usize];
        self.world.carry(Duration::from_millis(time));
    }

    /// Some things become others, one soon after the other.
    fn change(&mut self) {
        for _ in 0..self.world.network.random.below(CHANGES + 1) {
            if self.world.network.oracle.broken.is_some() {
                return;
            }
            match self.world.network.random.below(4) {
                0 => self.take_or_give_back(),
                _ => self.world.step(),
            }
        }
    }

    /// A wire is left one of its paths, or has both again.
    fn take_or_give_back(&mut self) {
        let number = self.world.network.random.below(WIRES as u64) as usize;
        if self.world.removed.contains_key(&number) {
            return;
        }
        let wire = self.world.network.wires[number];
        if wire.is_single {
            return self.give_back(number);
        }
        let kept = self.world.network.random.below(2) as usize;
        let was_active = wire.ends().map(|me| self.world.network.active(me, number) as usize);
        self.changed.taken += 1;
        self.changed.taken_under_way += u64::from(was_active != [kept; 2]);
        self.world.lead(number, [wire.paths[kept]; 2], true);
    }

    fn give_back(&mut self, number: usize) {
        let kept = self.world.network.wires[number].paths[0];
        let others = super::reloads::ways_of(number);
        let other = if others[0] == kept { others[1] } else { others[0] };
        self.world.lead(number, [kept, other], false);
    }

    fn give_all_back(&mut self) {
        for number in self.world.removed.keys().copied().collect::<Vec<_>>() {
            self.world.make_again(number);
        }
        for number in 0..WIRES {
            // A label may be in quarantine, and another one is taken then.
            while self.world.network.wires[number].is_single
                && self.world.network.oracle.broken.is_none()
            {
                self.give_back(number);
            }
        }
    }
}
