//! NHLFE, next hop label forwarding entry: where packets go, and with which labels on top.
//!
//! One kind of entry does for all: its labels take the place of the one by which a packet came
//! (none pops it, one swaps it, more also push), or go on top of a pseudowire's, where a frame
//! enters. Two labels and more are a tunnel in a tunnel, as around a failed link.
//!
//! ```text
//!   labels [300, 200] on 100 S:   Ethernet | 300 | 200 | 100 S | ...
//! ```
//! The entries put on a packet have the traffic class and the outgoing TTL of the one that they
//! replace, so that a class holds through the core and a loop ends; S stays below. Where the label
//! of a link's VLAN tag has a priority, it is the traffic class. By a port without Ethernet a packet
//! leaves from its label stack on: the kernel puts UDP and IP around it. A next router whose address
//! on Ethernet is not known now gets none: what would go there is dropped and counted.
//! Units: bytes from the label stack on. Errors: a packet larger than the next hop takes is
//! dropped, never cut (RFC 4448 has no fragments). Spec: RFC 3031 clause 3.10, RFC 3032 clauses 2.1
//! and 2.4, RFC 3443 (TTL), RFC 5462 (TC).

use block::{IdMap, planted};
use contract::{LinkId, MacAddress, counters};
use wire::Front;
use wire::ethernet::{EtherType, TagControl};
use wire::mpls::{Label, LabelStackEntry};

use crate::limits::{FRONT_MAX, LABELS_MAX};
use crate::port::{Over, PortState, Role};
use crate::refused::Refused;
use crate::verdict::{DropReason, Verdict};

/// The number of an NHLFE, given by whoever configured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NhlfeId(pub u32);

/// The next router of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The core port towards it.
    pub port: LinkId,
    /// Which of those on the port.
    pub reach: Reach,
}

/// How a port leads to the next router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It leads to a single one, without Ethernet.
    Alone,
    /// It has Ethernet, and this is the router there.
    At(Adjacency),
    /// It has Ethernet, and at which address the router is there is not known now.
    Unresolved,
}

impl NextHop {
    /// Its address on the port, if it has one that is known.
    #[inline]
    pub fn mac(&self) -> Option<MacAddress> {
        if let Reach::At(there) = self.reach { Some(there.mac) } else { None }
    }

    /// Whether it has one, and that is not known now.
    #[inline]
    pub fn is_unresolved(&self) -> bool {
        self.reach == Reach::Unresolved
    }

    /// Whether a port is one that leads there.
    #[inline]
    fn is_by(&self, role: Role) -> bool {
        let Role::Core(core) = role else { return false };
        match core.over {
            Over::Ethernet => matches!(self.reach, Reach::At(_)),
            Over::Udp => self.reach == Reach::Alone,
        }
    }

    /// Why nothing can be sent there by a port that is for this; `None`: there is no such port.
    #[cold]
    fn why_not(&self, role: Option<Role>) -> DropReason {
        match role {
            Some(Role::Core(core)) if core.over == Over::Ethernet && self.is_unresolved() => {
                DropReason::Unresolved
            }
            _ => DropReason::NoNextHop,
        }
    }
}

/// A router on a port with Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The port's own address.
    pub own: MacAddress,
    /// The router's.
    pub mac: MacAddress,
    /// The VLAN in which it is.
    pub vlan: Option<u16>,
}

/// Labels to be put on a packet, from the top; maybe none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    labels: [Label; LABELS_MAX],
    count: u8,
}

impl Labels {
    /// No label.
    pub const NONE: Self = Self { labels: [Label::MAX; LABELS_MAX], count: 0 };

    /// These labels. Errors: too many, and special ones but for explicit null, which a neighbour may
    /// want in place of a label (RFC 3032 clause 2.1); implicit null is never sent.
    pub fn new(labels: &[Label]) -> Result<Self, Refused> {
        let is_null =
            |label| matches!(label, Label::IPV4_EXPLICIT_NULL | Label::IPV6_EXPLICIT_NULL);
        if let Some(label) = labels.iter().find(|label| label.is_special() && !is_null(**label)) {
            return Err(Refused::Special(*label));
        }
        let mut list = Self { count: labels.len() as u8, ..Self::NONE };
        let room = list.labels.get_mut(..labels.len());
        room.ok_or(Refused::TooManyLabels(labels.len()))?.copy_from_slice(labels);
        Ok(list)
    }

    /// The labels, from the top.
    #[inline]
    pub fn as_slice(&self) -> &[Label] {
        &self.labels[..usize::from(self.count)]
    }
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nhlfe {
    pub next_hop: NextHop,
    pub labels: Labels,
    /// Bytes from the label stack on that a packet may have.
    pub mtu: u32,
}

counters! {
    /// What an NHLFE sent.
    pub struct NhlfeCounters {
        /// Packets that left.
        packets: Frames,
        /// Their bytes, from the label stack on.
        packet_bytes: Bytes,
        /// Packets that were dropped: larger than the next hop takes.
        over_mtu: Frames,
    }
}

/// An NHLFE as the router has it: one line of cache, since with many of them each packet fetches
/// another one.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct NhlfeState {
    pub(crate) nhlfe: Nhlfe,
    pub(crate) counters: NhlfeCounters,
}

impl NhlfeState {
    /// A packet whose top entry, `entry`, was taken off goes on, with one hop less.
    #[inline]
    pub(crate) fn switch<'a>(
        &mut self,
        ports: &mut IdMap<PortState>,
        front: &mut Front<FRONT_MAX>,
        entry: &LabelStackEntry,
        ttl: u8,
        below: &'a [u8],
    ) -> Result<Verdict<'a>, DropReason> {
        if entry.is_bottom && self.nhlfe.labels.count == 0 {
            return Err(DropReason::BottomPopped);
        }
        let like = LabelStackEntry { ttl, ..*entry };
        let port = self.send(ports, front, like, below.len())?;
        Ok(Verdict::Send { port, rest: below })
    }

    /// A packet of `front` and `rest` bytes behind it goes to the next hop, by the port that is
    /// returned; the labels and, if the port has Ethernet, its header are put in front. `like` has
    /// what their entries say beside the label; the lowest of them is the bottom if that one is.
    #[inline]
    pub(crate) fn send(
        &mut self,
        ports: &mut IdMap<PortState>,
        front: &mut Front<FRONT_MAX>,
        like: LabelStackEntry,
        rest: usize,
    ) -> Result<LinkId, DropReason> {
        let NextHop { port, reach } = self.nhlfe.next_hop;
        let mut is_bottom = like.is_bottom && !planted("swap-forgets-the-bottom");
        for &label in self.nhlfe.labels.as_slice().iter().rev() {
            front.push(&LabelStackEntry { label, is_bottom, ..like }.emit());
            is_bottom = false;
        }
        let bytes = front.len() + rest;
        if bytes > self.nhlfe.mtu as usize {
            self.counters.over_mtu += 1;
            return Err(DropReason::OverMtu);
        }
        match ports.get_mut(port.0) {
            Some(out) if self.nhlfe.next_hop.is_by(out.role) => out.count_sent(bytes),
            other => return Err(self.nhlfe.next_hop.why_not(other.map(|out| out.role))),
        }
        self.counters.packets += 1;
        self.counters.packet_bytes += bytes as u64;
        if let Reach::At(there) = reach {
            there.address(front, like.traffic_class);
        }
        Ok(port)
    }
}

impl Adjacency {
    /// Puts the header of Ethernet in front of a packet.
    #[inline]
    fn address(&self, front: &mut Front<FRONT_MAX>, traffic_class: u8) {
        let Self { own, mac, vlan } = self;
        front.push(&EtherType::MPLS.0.to_be_bytes());
        if let Some(vid) = vlan {
            let control = TagControl(0).with_vid(*vid).with_priority(u16::from(traffic_class & 7));
            front.push(&control.0.to_be_bytes());
            front.push(&EtherType::VLAN.0.to_be_bytes());
        }
        front.push(&own.0);
        front.push(&mac.0);
    }
}

const _: () = assert!(size_of::<Option<NhlfeState>>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn label(number: u32) -> Label {
        Label::new(number).unwrap()
    }

    #[test]
    fn labels_are_ordinary_or_explicit_null_and_no_more_than_there_is_room_for() {
        assert_eq!(Labels::new(&[]), Ok(Labels::NONE));
        let three = [label(16), label(0), Label::MAX];
        assert_eq!(Labels::new(&three).unwrap().as_slice(), three);
        let four = [three.as_slice(), &[label(17)]].concat();
        assert_eq!(Labels::new(&four), Err(Refused::TooManyLabels(4)));
        for number in 0..16 {
            let labels = Labels::new(&[label(16), label(number)]);
            let may = number == 0 || number == 2;
            assert_eq!(labels.is_ok(), may, "{number}");
            assert!(may || labels == Err(Refused::Special(label(number))));
        }
    }
}
