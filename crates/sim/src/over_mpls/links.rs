//! The links of the core: what is on its way between routers. Frames take their time, overtake each
//! other, are lost, come again seconds later, and are cut off, in one direction or both.
//!
//! Chance loses, delays and repeats customers' frames alone. A message of BFD that is lost is a path
//! that may have failed, and a copy of one that is seconds late would show what is no longer so: how
//! many may be lost is played by the simulations of the routers' own room. Units: virtual nanoseconds.
//! No errors: whoever counts, counts here.

use std::collections::{BTreeMap, BTreeSet};

use block::Random;
use contract::LinkId;
use wire::ethernet::HEADER_SIZE;
use wire::mpls::{LabelStack, LabelStackEntry};

use super::tables::other_end;
use crate::run::MILLISECOND;

/// A link takes between these.
const WIRE_MIN: u64 = MILLISECOND / 20;
const WIRE_MAX: u64 = 2 * MILLISECOND;
/// What one more takes that is overtaken.
const LATE_MAX: u64 = 3 * MILLISECOND;
/// How late a copy is, at most: far beyond what an Ethernet keeps a frame for.
pub(super) const COPY_MAX: u64 = 4_000 * MILLISECOND;
/// As many labels as a packet has here, and some.
const DEPTH_MAX: usize = 8;

/// How links behave. Chances are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkChances {
    pub(super) lost: u64,
    pub(super) overtaken: u64,
    pub(super) copied: u64,
}

/// What is on its way.
#[derive(Debug)]
pub(super) struct Links {
    random: Random,
    pub(super) chances: LinkChances,
    /// By when it arrives, and in which order it left.
    flights: BTreeMap<(u64, u64), (LinkId, Vec<u8>)>,
    launched: u64,
    /// What each direction takes, by the port by which frames leave.
    delays: BTreeMap<LinkId, u64>,
    /// Frames that leave by these ports are lost.
    pub(super) cut: BTreeSet<LinkId>,
    pub(super) copies: u64,
    pub(super) lost: u64,
}

impl Links {
    pub(super) fn new(mut random: Random, chances: LinkChances, ports: u32) -> Links {
        let draw = |port| (LinkId(port), WIRE_MIN + random.below(WIRE_MAX - WIRE_MIN));
        let delays = (0..ports).map(draw).collect();
        Links {
            random,
            chances,
            flights: BTreeMap::new(),
            launched: 0,
            delays,
            cut: BTreeSet::new(),
            copies: 0,
            lost: 0,
        }
    }

    /// When the next frame arrives.
    pub(super) fn next(&self) -> Option<u64> {
        self.flights.first_key_value().map(|((at, _), _)| *at)
    }

    /// The port at which the next frame arrives, and the frame, if that is so by now.
    pub(super) fn arrive(&mut self, now: u64) -> Option<(LinkId, Vec<u8>)> {
        self.next().filter(|at| *at <= now)?;
        self.flights.pop_first().map(|(_, flight)| flight)
    }

    /// A frame leaves by a port.
    pub(super) fn launch(&mut self, now: u64, from: LinkId, bytes: Vec<u8>) {
        let LinkChances { lost, overtaken, copied } = self.chances;
        let is_customers = !is_message(&bytes);
        if self.cut.contains(&from) || is_customers && self.random.chance(lost, 1000) {
            self.lost += 1;
            return;
        }
        let mut at = now + self.delays[&from];
        if is_customers && self.random.chance(overtaken, 1000) {
            at += self.random.below(LATE_MAX);
        }
        if is_customers && self.random.chance(copied, 1000) {
            self.copies += 1;
            let late = at + self.random.below(COPY_MAX);
            self.add(late, from, bytes.clone());
        }
        self.add(at, from, bytes);
    }

    fn add(&mut self, at: u64, from: LinkId, bytes: Vec<u8>) {
        self.launched += 1;
        self.flights.insert((at, self.launched), (other_end(from), bytes));
    }
}

/// Whether a packet is a message about its path: what follows its labels begins with 0001 (RFC 5586).
fn is_message(bytes: &[u8]) -> bool {
    let stack = LabelStack::parse(&bytes[HEADER_SIZE..], DEPTH_MAX).expect("a router sent it");
    bytes[HEADER_SIZE + stack.depth() * LabelStackEntry::SIZE] >> 4 == 1
}
