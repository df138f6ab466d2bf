//! A run in which the customers are a host and a disk that speak AoE, with frames that are seconds
//! late: routers stand still with them in their rings while traffic goes around, and the network sends
//! copies of what it carried long before.
//!
//! The host is as Linux's driver: it sends a write that is not answered again, under another tag, and
//! writes to a sector no more until that one is answered. The disk carries out what comes, as one that
//! does not know copies. So nothing but the pseudowire's numbers keeps an old copy of a write from
//! landing behind a newer one (docs/faults.md).
//!
//! Promised is, where frames are numbered: what is answered is on the disk, or something newer.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Instant, Random};
use mpls::Sequencing;
use wire::aoe::{Address, AtaArgument, Body, Command, Header, Message};
use wire::ata::Opcode;
use wire::ethernet::{self, EtherType};

use super::health::Times;
use super::orders::WATCH;
use super::running::Network;
use super::topology::*;

const DISK: Address = Address::new(7, 0);
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

/// A write that waits for its answer.
struct Asked {
    /// Each write to a sector is one more than the one before.
    value: u64,
    sent_at: Instant,
    wait: Duration,
}

struct World {
    network: Network,
    next_tag: u32,
    /// By sector.
    asked: BTreeMap<u64, Asked>,
    answered: BTreeMap<u64, u64>,
    disk: BTreeMap<u64, u64>,
    /// Which write a tag is of.
    tags: BTreeMap<u32, (u64, u64)>,
    written: Written,
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64, sequencing: Sequencing) -> Result<Written, String> {
    let mut random = Random::new(seed);
    let faults = [0, 10][random.below(2) as usize];
    let wire = protected(0, [&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], sequencing);
    let times = Times::new(faults > 0, WATCH.revert_after);
    let mut network = Network::new(random, vec![wire], faults, times);
    network.came_out = Some(Vec::new());
    let (asked, answered, disk) = Default::default();
    let (tags, written) = Default::default();
    let mut world = World { network, next_tag: 1, asked, answered, disk, tags, written };
    world.work(times.up_again);
    for _ in 0..ROUNDS {
        let router = [LSR1, LSR2][world.network.random.below(2) as usize];
        world.network.stall(router, false);
        world.work_for(4_000);
        world.network.resume(router);
        world.work_for(10_000);
    }
    world.network.oracle.broken.map_or(Ok(world.written), Err)
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
            if writes && !self.asked.contains_key(&sector) {
                let value = self.answered.get(&sector).copied().unwrap_or(0) + 1;
                let wait = Duration::from_millis(150);
                self.asked.insert(sector, Asked { value, sent_at: self.network.now, wait });
                self.ask(sector, value);
            }
            self.ask_again();
            if self.network.random.chance(1, 50) {
                let delay = Duration::from_millis(self.network.random.below(LATE_MAX));
                self.network.links.repeat_any(self.network.now + delay);
            }
            self.network.pass(TURN);
            self.hear();
        }
    }

    fn ask(&mut self, sector: u64, value: u64) {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.tags.insert(tag, (sector, value));
        let header = Header::request(DISK, Command::ATA, tag);
        let argument = AtaArgument::request(Opcode::WRITE_SECTORS_EXT, sector, 1, true);
        let mut data = [0; wire::aoe::SECTOR];
        data[..8].copy_from_slice(&value.to_be_bytes());
        self.send(HOST, &[&header.emit()[..], &argument.emit(), &data].concat());
    }

    /// What is not answered is sent again, each time after twice as long.
    fn ask_again(&mut self) {
        let now = self.network.now;
        let mut due = Vec::new();
        for (sector, Asked { value, sent_at, wait }) in &mut self.asked {
            if now.since(*sent_at) >= *wait {
                (*sent_at, *wait) = (now, (*wait * 2).min(Duration::from_secs(1)));
                due.push((*sector, *value));
            }
        }
        self.written.again += due.len() as u64;
        due.into_iter().for_each(|(sector, value)| self.ask(sector, value));
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
            let message = Message::parse(&frame[ethernet::HEADER_SIZE..]).expect("it is whole");
            let Body::Ata(argument, data) = message.body else { panic!("{message:?}") };
            if circuit == self.network.wires[0].circuit(TARGET) {
                let value = *data.first_chunk().expect("a sector came");
                self.disk.insert(argument.lba48(), u64::from_be_bytes(value));
                let answer = message.header.response(DISK).emit();
                self.send(TARGET, &[&answer[..], &argument.emit()].concat());
            } else {
                self.answer(message.header.tag);
            }
            self.judge();
        }
    }

    /// A write is answered, unless it was before.
    fn answer(&mut self, tag: u32) {
        let (sector, value) = self.tags[&tag];
        if self.asked.get(&sector).is_some_and(|asked| asked.value == value) {
            self.asked.remove(&sector);
            self.answered.insert(sector, value);
            self.written.answered += 1;
        }
    }

    /// The disk has what was answered, or something newer.
    fn judge(&mut self) {
        for (sector, answered) in &self.answered {
            let value = self.disk.get(sector).copied().unwrap_or(0);
            if value < *answered {
                let what =
                    format!("sector {sector} has write {value}, and {answered} was answered");
                self.network.oracle.broke(what);
            }
        }
    }
}
