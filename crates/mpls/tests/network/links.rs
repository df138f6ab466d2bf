//! What links do with frames: they take their time, lose, repeat, reorder and corrupt, hold back, and
//! are cut, one direction or both.
//!
//! A link corrupts one bit of a label stack, or of an L2TP session's ID and cookie, once in a frame's
//! life: what else it corrupts, a check sequence or checksum catches, and nothing guards GRE's key. Of
//! messages about a path no two in a row are lost but by a cut: what would have to be called a failure
//! otherwise is up to chance.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use block::{Instant, Random};
use contract::LinkId;
use mpls::TunnelPort;
use mpls::limits::TTL_FIRST;
use wire::ethernet::Header;
use wire::mpls::{LabelStack, LabelStackEntry};
use wire::pseudowire::{AssociatedChannelHeader, ChannelType};

use super::customers::number_in;
use super::topology::{is_tunnels, is_udp, tunnel_port};

pub(super) const MICROSECOND: u64 = 1_000;
/// The longest that a link takes while it holds back.
pub(super) const HELD_MAX: u64 = 8_000 * MICROSECOND;
/// What a link adds at most to the time that it takes, where it reorders.
const LATE_MAX: u64 = 1_000 * MICROSECOND;

/// Where a packet of BFD says whose it is (RFC 5880 clause 4.1).
const MY_DISCRIMINATOR: Range<usize> = 4..8;

/// A frame on its way to a port.
pub(super) struct Flight {
    pub(super) port: LinkId,
    pub(super) bytes: Vec<u8>,
    pub(super) is_corrupt: bool,
}

/// What became of the frames that left by a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) launched: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
    pub(super) on_the_way: u64,
}

pub(super) struct Links {
    random: Random,
    flights: BTreeMap<(Instant, u64), Flight>,
    launched: u64,
    /// Chances in 1000.
    pub(super) faults: u64,
    pub(super) corrupts: bool,
    /// What each takes, by the port by which frames leave; all others take the least.
    pub(super) delays: BTreeMap<LinkId, u64>,
    /// Frames that leave by this port are held back, each as long as it comes.
    pub(super) held: Option<LinkId>,
    /// Frames that leave by these are lost.
    pub(super) cut: BTreeSet<LinkId>,
    /// Messages about paths of which the last one was lost, by whose they are.
    missed: BTreeSet<Vec<u8>>,
    fates: BTreeMap<LinkId, Fate>,
}

impl Links {
    pub(super) fn new(random: Random, faults: u64) -> Self {
        Self {
            random,
            flights: BTreeMap::new(),
            launched: 0,
            faults,
            corrupts: false,
            delays: BTreeMap::new(),
            held: None,
            cut: BTreeSet::new(),
            missed: BTreeSet::new(),
            fates: BTreeMap::new(),
        }
    }

    /// When the next frame arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.flights.first_key_value().map(|((at, _), _)| *at)
    }

    /// When the last one does.
    pub(super) fn last(&self) -> Option<Instant> {
        self.flights.last_key_value().map(|((at, _), _)| *at)
    }

    /// The frame that arrives next.
    pub(super) fn arrive(&mut self) -> Option<Flight> {
        let (_, flight) = self.flights.pop_first()?;
        self.fate(LinkId(flight.port.0 ^ 1)).on_the_way -= 1;
        Some(flight)
    }

    /// What became of all that left by a port.
    pub(super) fn fate(&mut self, from: LinkId) -> &mut Fate {
        self.fates.entry(from).or_default()
    }

    /// A frame leaves by a port, and whatever the link makes of it is on its way. Returns whether it
    /// is lost.
    pub(super) fn launch(
        &mut self,
        now: Instant,
        from: LinkId,
        bytes: &[u8],
        is_corrupt: bool,
    ) -> bool {
        self.fate(from).launched += 1;
        if self.cut.contains(&from) || self.loses(from, bytes) {
            self.fate(from).lost += 1;
            return true;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults, 1000));
        for _ in 0..copies {
            let mut flight = Flight { port: LinkId(from.0 ^ 1), bytes: bytes.to_vec(), is_corrupt };
            if self.corrupts && !is_corrupt && self.random.chance(self.faults, 1000) {
                flight.is_corrupt = corrupt(&mut self.random, from, &mut flight.bytes);
            }
            let mut delay = self.delays.get(&from).copied().unwrap_or(10 * MICROSECOND);
            if self.held == Some(from) {
                delay += self.random.below(HELD_MAX);
            } else if self.random.chance(self.faults, 200) {
                delay += self.random.below(LATE_MAX);
            }
            self.launched += 1;
            self.flights.insert((now + Duration::from_nanos(delay), self.launched), flight);
        }
        let fate = self.fate(from);
        fate.repeated += copies - 1;
        fate.on_the_way += copies;
        false
    }

    /// The network sends something that nobody gave to it, to a port.
    pub(super) fn forge(&mut self, at: Instant, port: LinkId, bytes: Vec<u8>) {
        let fate = self.fate(LinkId(port.0 ^ 1));
        fate.repeated += 1;
        fate.on_the_way += 1;
        self.launched += 1;
        self.flights.insert((at, self.launched), Flight { port, bytes, is_corrupt: false });
    }

    /// Of the customer's frame that arrives next there is a copy, which arrives then. Old messages of
    /// BFD would show what is no longer so, and nothing in them tells that they are old.
    pub(super) fn repeat_any(&mut self, at: Instant) {
        let mut flights = self.flights.values();
        let first = flights.find(|flight| number_in(&flight.bytes).is_some());
        if let Some(Flight { port, bytes, .. }) = first {
            let (port, bytes) = (*port, bytes.clone());
            self.forge(at, port, bytes);
        }
    }

    /// All that is on its way, and to which port.
    pub(super) fn all(&self) -> Vec<(LinkId, Vec<u8>)> {
        self.flights.values().map(|flight| (flight.port, flight.bytes.clone())).collect()
    }

    /// Whether chance has it that a frame is lost.
    fn loses(&mut self, from: LinkId, bytes: &[u8]) -> bool {
        let is_lost = self.random.chance(self.faults, 1000);
        let whose = if self.corrupts { None } else { whose_message(from, bytes) };
        let Some((whose, is_first)) = whose else { return is_lost };
        // Further on it would be one of those that come by several ways.
        if is_first && is_lost && self.missed.insert(whose.to_vec()) {
            return true;
        }
        self.missed.remove(whose);
        false
    }
}

/// Whose a message of an associated channel is: a session's of BFD by its discriminator, whatever its
/// path's labels are, else by all that is in front of it. And whether it leaves the router that made it,
/// so that no other one has taken anything from its TTL. `None`: a frame is no such message.
fn whose_message(from: LinkId, bytes: &[u8]) -> Option<(&[u8], bool)> {
    let stack_at = if is_udp(from) { 0 } else { Header::SIZE };
    if is_tunnels(from) {
        return None;
    }
    let stack = LabelStack::parse(&bytes[stack_at..], 16).expect("it was sent");
    let end = stack_at + stack.depth() * LabelStackEntry::SIZE;
    let is_first = bytes[stack_at + LabelStackEntry::SIZE - 1] == TTL_FIRST;
    let (front, message) = bytes.split_at(end + AssociatedChannelHeader::SIZE);
    let header = AssociatedChannelHeader::parse(&front[end..]).ok()?;
    let is_bfd = header.channel_type == ChannelType::BFD;
    Some((if is_bfd { &message[MY_DISCRIMINATOR] } else { front }, is_first))
}

/// Flips one bit of what tells whose a frame is, if it is noticed there.
fn corrupt(random: &mut Random, port: LinkId, frame: &mut [u8]) -> bool {
    let guarded = if port >= tunnel_port(TunnelPort::L2tp, 0) {
        4..12
    } else if is_tunnels(port) || is_udp(port) {
        return false;
    } else {
        let stack = LabelStack::parse(&frame[Header::SIZE..], 16);
        let depth = stack.expect("it was sent").depth();
        Header::SIZE..Header::SIZE + depth * LabelStackEntry::SIZE
    };
    let bit = random.below(guarded.len() as u64 * 8) as usize;
    frame[guarded.start + bit / 8] ^= 1 << (bit % 8);
    true
}
