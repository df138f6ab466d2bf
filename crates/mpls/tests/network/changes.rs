//! A run in which tables become others (`reloads`) while links fail, routers stall and traffic moves
//! (`cuts`): before anybody noticed, while the ends move to the other path, while that one is not up
//! yet, and while traffic goes back; links lose meanwhile. Beside that paths are taken away, also the
//! one that traffic is on, and given back. Who stalls takes no orders: what names him waits.
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
use super::topology::ROUTERS;

const ROUNDS: u64 = 4;
/// As many changes, at most, before a link fails, while it does, and after that.
const CHANGES: u64 = 6;
/// How long a router stalls at most, but for what is begun then; and how long a label is nobody's: what
/// was in the ring of one that stalled is not for who has the label next.
const STALL_MAX: Duration = Duration::from_millis(2_000);
const QUARANTINE: Duration = Duration::from_millis(2_500);

/// What goes wrong.
#[derive(Clone, Copy)]
enum Fault {
    /// A link, in silence: both directions or one.
    Silent(usize, [bool; 2]),
    /// Both ends of a link are told.
    Told(usize),
    /// A router stalls, for less than a detection time or as long as it comes.
    Hiccup(usize),
    Stalls(usize),
}

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
    let mut random = Random::new(seed);
    let faults = [0, 5, 30][random.below(3) as usize];
    let world = World::new(random, faults, QUARANTINE);
    let mut play = Play { world, changed: Changed::default() };
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
        let fault = self.draw(link);
        self.begin(fault);
        let since = self.world.network.now;
        self.change();
        match fault {
            Fault::Hiccup(_) => {}
            // A change may take its time, and the next thing comes soon.
            Fault::Stalls(_) => {
                let lasted = self.world.network.now.since(since);
                let time = self.world.network.random.below(STALL_MAX.as_millis() as u64);
                self.world.carry(Duration::from_millis(time).saturating_sub(lasted));
            }
            Fault::Silent(..) | Fault::Told(_) => {
                self.carry_for([0, 900, 2_000, 5_000]);
                self.change();
            }
        }
        self.end(fault);
        self.change();
        self.carry_for([500, 2_000, 4_000, 7_000]);
    }

    fn draw(&mut self, link: usize) -> Fault {
        let random = &mut self.world.network.random;
        let router = random.below(ROUTERS as u64) as usize;
        match random.below(8) {
            0 | 1 => Fault::Told(link),
            2 => Fault::Silent(link, [true, false]),
            3 => Fault::Silent(link, [false, true]),
            4 | 5 => Fault::Silent(link, [true; 2]),
            6 => Fault::Hiccup(router),
            _ => Fault::Stalls(router),
        }
    }

    fn begin(&mut self, fault: Fault) {
        let network = &mut self.world.network;
        match fault {
            Fault::Silent(link, ends) => network.cut(link, ends),
            Fault::Told(link) => network.tell(link, false),
            Fault::Stalls(router) => network.stall(router, false),
            Fault::Hiccup(router) => {
                network.stall(router, true);
                let time = network.random.below(240);
                self.world.carry(Duration::from_millis(time));
                self.world.network.resume(router);
            }
        }
    }

    fn end(&mut self, fault: Fault) {
        let network = &mut self.world.network;
        match fault {
            Fault::Silent(link, _) => network.cut(link, [false; 2]),
            Fault::Told(link) => network.tell(link, true),
            Fault::Stalls(router) => network.resume(router),
            Fault::Hiccup(_) => {}
        }
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
        if self.world.removed.contains_key(&number) || !self.world.may_order(number, false) {
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
