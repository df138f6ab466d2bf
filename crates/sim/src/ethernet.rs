//! The virtual Ethernet: LANs that ports hang on. A port is a link of a host, with a MAC address,
//! an MTU and the programs that say which shard takes which frame; or a station without a host, for
//! those who send what no machine of ours does.
//!
//! Frames may be lost, come twice, late and in another order; each goes to who has its destination
//! address, or to all. What is over an MTU, at either end, is dropped. A frame lives less than a
//! second, whoever holds it ([`HOLD_MAX_MS`]): that is what both AoE machines rely on
//! (docs/faults.md).

use std::collections::VecDeque;

use contract::filter::run;
use contract::{Intake, LinkFacts, LinkId, Spread, Takes, VlanTag, counters};
use wire::ethernet::{HEADER_SIZE, Tagged, VLAN_TAG_SIZE};

/// The longest that a frame may be held back, in milliseconds. With a shard's turn and the driver
/// it stays below a second.
pub const HOLD_MAX_MS: u64 = 900;

/// How the Ethernet behaves. Chances are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFaults {
    /// The chance that a frame is lost.
    pub lost: u64,
    /// The chance that it comes twice.
    pub repeated: u64,
    /// The chance that it is held back, for up to `hold_ms`.
    pub held: u64,
    /// The longest that one is held back, in milliseconds.
    pub hold_ms: u64,
    /// How long one takes at most otherwise, in microseconds.
    pub wire_us: u64,
    /// Whether frames that are not held back may overtake each other.
    pub reorders: bool,
}

impl LinkFaults {
    /// Nothing goes wrong.
    pub const NONE: LinkFaults =
        LinkFaults { lost: 0, repeated: 0, held: 0, hold_ms: 0, wire_us: 100, reorders: false };
}

counters! {
    /// What became of frames.
    pub struct Fates {
        /// Frames that left.
        sent: Frames,
        /// Frames that were lost.
        lost: Frames,
        /// Frames that came twice.
        repeated: Frames,
        /// Frames that were held back.
        held: Frames,
        /// Frames that were over an MTU.
        oversize: Frames,
        /// Frames for which a ring had no room.
        overrun: Frames,
        /// Links that went down.
        downs: Events,
        /// MTUs that were changed.
        mtus: Events,
    }
}

/// Whose a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Host { host: usize, link: LinkId },
    Station(usize),
}

/// A place where something hangs on a LAN.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) lan: usize,
    pub(crate) owner: Owner,
    pub(crate) facts: LinkFacts,
    /// What it takes; `None` takes all, on the first shard.
    pub(crate) intake: Option<Intake>,
    pub(crate) is_up: bool,
    /// Whether it hears what is for others, too.
    pub(crate) hears_all: bool,
    /// When the last frame that was not held back arrives.
    pub(crate) last_arrival: u64,
}

/// All LANs.
#[derive(Debug)]
pub struct Ethernet {
    /// How it behaves at present.
    pub faults: LinkFaults,
    /// LANs from this one on lose frames, and hold, repeat and reorder none.
    pub(crate) orderly_from: Option<usize>,
    /// What became of frames so far.
    pub fates: Fates,
    pub(crate) ports: Vec<Port>,
    /// What came for stations without a host.
    pub(crate) stations: Vec<VecDeque<Vec<u8>>>,
}

impl Ethernet {
    pub(crate) fn new() -> Ethernet {
        Ethernet {
            faults: LinkFaults::NONE,
            orderly_from: None,
            fates: Fates::default(),
            ports: Vec::new(),
            stations: Vec::new(),
        }
    }

    /// How a LAN behaves at present.
    pub(crate) fn faults_on(&self, lan: usize) -> LinkFaults {
        let orderly = LinkFaults { held: 0, repeated: 0, reorders: false, ..self.faults };
        if self.orderly_from.is_some_and(|from| lan >= from) { orderly } else { self.faults }
    }

    /// The ports of a host, by number.
    pub(crate) fn ports_of(&self, host: usize) -> impl Iterator<Item = usize> {
        let is_its =
            move |port: &Port| matches!(port.owner, Owner::Host { host: own, .. } if own == host);
        self.ports.iter().enumerate().filter(move |(_, port)| is_its(port)).map(|(at, _)| at)
    }

    /// The ports that a frame of `from` reaches: those with its address, or all, and those that hear
    /// all.
    pub(crate) fn reached(&self, from: usize, bytes: &[u8]) -> Vec<usize> {
        let destination: [u8; 6] = bytes[..6].try_into().expect("a frame has addresses");
        let lan = self.ports[from].lan;
        let takes = |(at, port): &(usize, &Port)| {
            let is_its = destination == [0xff; 6] || destination == port.facts.mac;
            let is_meant = is_its || port.hears_all;
            port.lan == lan && *at != from && is_meant
        };
        self.ports.iter().enumerate().filter(takes).map(|(at, _)| at).collect()
    }
}

impl Port {
    /// Whether a frame is short enough for it.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        let is_tagged = Tagged::parse(bytes).is_ok_and(|frame| frame.tag.is_some());
        let header = HEADER_SIZE + if is_tagged { VLAN_TAG_SIZE } else { 0 };
        bytes.len() <= self.facts.mtu as usize + header
    }

    /// The shards that take a frame, from which the kernel has taken the tag off.
    pub(crate) fn takers(&self, bytes: &[u8], shards: usize) -> Vec<usize> {
        let Some(Intake { takes, spread }) = &self.intake else { return vec![0] };
        if let Takes::Type(ether_type) = takes
            && bytes.get(12..14) != Some(&ether_type.0.to_be_bytes())
        {
            return Vec::new();
        }
        match spread {
            Spread::One(shard, program) if run(program, bytes) > 0 => vec![shard.index()],
            Spread::Steered(program, steer) if run(program, bytes) > 0 => {
                vec![run(steer, bytes) as usize % shards]
            }
            Spread::Each(programs) => {
                let takes = |shard: &usize| run(&programs[*shard], bytes) > 0;
                (0..shards.min(programs.len())).filter(takes).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Takes the outermost tag off a frame, as the kernel does: the tag, and what is left.
pub(crate) fn untag(bytes: Vec<u8>) -> (Option<VlanTag>, Vec<u8>) {
    match Tagged::parse(&bytes) {
        Ok(Tagged { addresses, tag: Some(tag), rest }) => {
            (Some(tag), [&addresses[..], rest].concat())
        }
        _ => (None, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ethernet::{EtherType, TagControl};

    fn port(lan: usize, last: u8, intake: Intake) -> Port {
        let facts = LinkFacts {
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1500,
            vlan: None,
            ring_frames: 64,
            is_shared: true,
        };
        let owner = Owner::Host { host: 0, link: LinkId(0) };
        let intake = Some(intake);
        Port { lan, owner, facts, intake, is_up: true, hears_all: false, last_arrival: 0 }
    }

    fn frame(to: [u8; 6], flags: u8, tag: u32) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&to);
        frame[12..14].copy_from_slice(&[0x88, 0xa2]);
        frame[14] = 0x10 | flags;
        frame[20..24].copy_from_slice(&tag.to_be_bytes());
        frame
    }

    #[test]
    fn a_frame_reaches_who_has_its_address_on_its_lan_or_all() {
        let all = || aoe::filter::serving(1);
        let mut ethernet = Ethernet::new();
        ethernet.ports = vec![port(0, 1, all()), port(0, 2, all()), port(1, 2, all())];
        assert_eq!(ethernet.reached(0, &frame([2, 0, 0, 0, 0, 2], 0, 1)), [1]);
        assert_eq!(ethernet.reached(1, &frame([0xff; 6], 0, 1)), [0]);
        assert_eq!(ethernet.reached(0, &frame([2, 0, 0, 0, 0, 1], 0, 1)), [0; 0]);
        ethernet.ports[1].hears_all = true;
        assert_eq!(ethernet.reached(0, &frame([2, 0, 0, 0, 0, 9], 0, 1)), [1]);
    }

    #[test]
    fn programs_say_which_shard_takes_a_frame() {
        let importing = port(0, 1, aoe::filter::importing(3));
        let answer = frame([0; 6], 8, 2 << 25 | 77);
        assert_eq!(importing.takers(&answer, 3), [2]);
        assert_eq!(importing.takers(&frame([0; 6], 8, 0), 3), [0, 1, 2], "an announcement");
        let serving = port(0, 2, aoe::filter::serving(4));
        let mut request = frame([0; 6], 0, 5);
        assert_eq!(serving.takers(&request, 4).len(), 1);
        assert_eq!(serving.takers(&answer, 4), [0; 0]);
        request[13] = 0xa3;
        assert_eq!(serving.takers(&request, 4), [0; 0], "another EtherType");
    }

    #[test]
    fn the_tag_is_taken_off_and_does_not_count_for_the_mtu() {
        let mut bytes = frame([0; 6], 0, 1);
        bytes.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        let mut exact = bytes.clone();
        exact.resize(1518, 0);
        let own = port(0, 1, aoe::filter::serving(1));
        assert!(own.fits(&exact));
        assert!(!own.fits(&[&exact[..], &[0]].concat()));
        for ether_type in [EtherType::VLAN, EtherType::SERVICE_VLAN] {
            bytes[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
            let tag = VlanTag { ether_type, control: TagControl(0x2005) };
            assert_eq!(untag(bytes.clone()), (Some(tag), frame([0; 6], 0, 1)));
        }
    }
}
