//! A run in which the customers are a host and a disk that speak AoE, with frames that are seconds
//! late: routers stand still with them in their rings while traffic goes around, and the network sends
//! copies of what it carried long before.
//!
//! Nothing but the pseudowire's numbers keeps an old copy of a write from landing behind a newer one
//! ([`Customer`]).
//!
//! Promised is, where frames are numbered: what is answered is on the disk, or something newer.

use core::time::Duration;

use block::Random;
use mpls::Sequencing;
use testkit::aoe::Customer;
use wire::aoe::Address;
use wire::ethernet::{self, EtherType};

use super::health::Times;
use super::orders::WATCH;
use super::running::Network;
use super::topology::*;

const SECTORS: u64 = 4;
const ROUNDS: u64 = 6;
const HOST: usize = 0;
const TARGET: usize = 1;
/// The longest that a copy is late.
const LATE_MAX: u64 = 5_000;
const TURN: Duration = Duration::from_millis(5);

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) answered: u64,
    /// Writes that were sent again.
    pub(crate) again: u64,
}

struct World {
    network: Network,
    customer: Customer,
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64, sequencing: Sequencing) -> Result<Written, String> {
    let mut random = Random::new(seed);
    let faults = [0, 10][random.below(2) as usize];
    let wire = protected(0, [&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], sequencing);
    let times = Times::new(faults > 0, WATCH.revert_after);
    let mut network = Network::new(random, vec![wire], faults, times);
    network.came_out = Some(Vec::new());
    let mut world = World { network, customer: Customer::new(Address::new(7, 0)) };
    world.work(times.up_again);
    for _ in 0..ROUNDS {
        let router = [LSR1, LSR2][world.network.random.below(2) as usize];
        world.network.stall(router, false);
        world.work_for(4_000);
        world.network.resume(router);
        world.work_for(10_000);
    }
    let World { network, customer: Customer { done, again, .. } } = world;
    network.oracle.broken.map_or(Ok(Written { answered: done, again }), Err)
}

impl World {
    fn work_for(&mut self, most_ms: u64) {
        let time = self.network.random.below(most_ms);
        self.work(Duration::from_millis(time));
    }

    /// Host and disk work for so long.
    fn work(&mut self, time: Duration) {
        let until = self.network.now + time;
        while self.network.now < until && self.network.oracle.broken.is_none() {
            let random = &mut self.network.random;
            let (writes, sector) = (random.chance(1, 8), random.below(SECTORS));
            let now = self.network.now;
            if writes && !self.customer.is_asked(sector) {
                let message = self.customer.begin(now, sector, true);
                self.send(HOST, &message);
            }
            for message in self.customer.ask_again(now) {
                self.send(HOST, &message);
            }
            if self.network.random.chance(1, 50) {
                let delay = Duration::from_millis(self.network.random.below(LATE_MAX));
                self.network.links.repeat_any(self.network.now + delay);
            }
            self.network.pass(TURN);
            self.hear();
        }
    }

    fn send(&mut self, end: usize, message: &[u8]) {
        let Network { customers, random, .. } = &mut self.network;
        let frame = customers.make(random, false, EtherType::AOE, message);
        self.network.enter(0, end, &frame);
    }

    /// What came out of the circuits.
    fn hear(&mut self) {
        let came = self.network.came_out.as_mut().map(core::mem::take).unwrap_or_default();
        for (circuit, frame) in came {
            let message = &frame[ethernet::HEADER_SIZE..];
            let done = match circuit == self.network.wires[0].circuit(TARGET) {
                true => self.customer.serve(message).map(|answer| self.send(TARGET, &answer)),
                false => self.customer.hear(message),
            };
            if let Err(what) = done {
                self.network.oracle.broke(what);
            }
        }
    }
}
