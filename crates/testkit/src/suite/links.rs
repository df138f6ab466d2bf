//! What drivers promise about links, as scenes over a [`Cable`]: two links of scripted machines,
//! each other's only neighbour.
//!
//! Ethernet promises nothing, so a frame that should arrive is sent again until it is shown, and
//! may be shown more than once: scenes look for its bytes. What a driver does promise, that each
//! batch comes back once and whole, is counted.

use block::ShardId;
use wire::ethernet::{EtherType, MacAddress};

use super::{Command, FramePart, Report, Wrapping};
use contract::{LinkFacts, LinkId, Station};

/// A type for experiments (IEEE 802).
const TYPE: EtherType = EtherType(0x88b5);

/// Two links of machines of the suite, on shards of one driver or two.
///
/// Calls that wait, wait as long as it takes; a harness may give up, with a panic, after a minute
/// or more without any news.
pub trait Cable {
    /// The two ends, both up, and what the machines were told of each.
    fn ends(&mut self) -> [End; 2];
    /// Gives a machine a command.
    fn command(&mut self, to: ShardId, command: Command);
    /// The next report of any machine.
    fn report(&mut self) -> (ShardId, Report);
}

/// An end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The shard that has it.
    pub shard: ShardId,
    /// Its name there.
    pub link: LinkId,
    /// What the machine was told.
    pub facts: LinkFacts,
}

/// A scene over a cable.
pub type CableScene = fn(&mut dyn Cable);

/// All scenes, by name; each on a fresh cable.
pub const CABLE_SCENES: &[(&str, CableScene)] = &[
    ("frames arrive whole, with their data behind their heads", whole),
    ("a frame arrives inside the one that it was put into", inside),
    ("each batch of frames comes back once, with its buffers", batches),
    ("frames of a link that is not there are dropped and come back", nowhere),
];

/// An Ethernet header from one end to the other.
fn header(from: &End, to: &End) -> Vec<u8> {
    [&to.facts.mac[..], &from.facts.mac, &TYPE.0.to_be_bytes()].concat()
}

/// Sends a frame until it is shown at the other end.
fn until_shown(cable: &mut dyn Cable, from: &End, to: &End, part: &FramePart) {
    let around = part.inside.as_ref().map(|around| [&header(from, to)[..], &around.bytes].concat());
    let bytes = [&around.unwrap_or_default()[..], &part.head, &part.data].concat();
    loop {
        cable.command(from.shard, Command::SendFrames(1, vec![part.clone()]));
        cable.command(to.shard, Command::Ping(1));
        let (mut sent, mut answered, mut shown) = (false, false, false);
        while !sent || !answered {
            match cable.report() {
                (shard, Report::FramesSent(1, 1)) if shard == from.shard && !sent => sent = true,
                (shard, Report::Pong(1)) if shard == to.shard && !answered => answered = true,
                // Maybe of one that was sent before, in either direction.
                (shard, Report::Frame(link, None, seen)) => {
                    shown |= (shard, link) == (to.shard, to.link) && seen == bytes;
                }
                other => panic!("expected a frame of {} bytes, saw {other:?}", bytes.len()),
            }
        }
        if shown {
            return;
        }
    }
}

fn whole(cable: &mut dyn Cable) {
    let ends = cable.ends();
    for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        assert_eq!(from.facts.mac[0] & 1, 0, "a station's own address is no group");
        let largest = from.facts.mtu.min(to.facts.mtu) - 46;
        for length in [0, 1, 512, largest] {
            let data: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
            let head = [header(&from, &to), vec![length as u8; 46]].concat();
            let part = FramePart { link: from.link, head, data, inside: None };
            until_shown(cable, &from, &to, &part);
        }
    }
}

fn inside(cable: &mut dyn Cable) {
    let [from, to] = cable.ends();
    let largest = from.facts.mtu.min(to.facts.mtu);
    for length in [0, 512, largest - 4 - 60] {
        let wrapping = Wrapping {
            facts: from.facts,
            to: Station::new(from.link, MacAddress(to.facts.mac)),
            ether_type: TYPE,
            bytes: vec![1, 2, 3, 4],
        };
        let part = FramePart {
            // Of a link that is not the driver's.
            link: LinkId(u32::MAX),
            head: vec![length as u8; 60],
            data: vec![7; length as usize],
            inside: Some(wrapping),
        };
        until_shown(cable, &from, &to, &part);
    }
    nothing_is_lent(cable, &from, &to);
}

fn batches(cable: &mut dyn Cable) {
    let [from, to] = cable.ends();
    let part = |number: u8| FramePart {
        link: from.link,
        head: header(&from, &to),
        data: vec![number; 100],
        inside: None,
    };
    until_shown(cable, &from, &to, &part(0));
    for token in 2..12 {
        let frames = (0..token as u8 * 10).map(part).collect();
        cable.command(from.shard, Command::SendFrames(token, frames));
    }
    let mut back = Vec::new();
    while back.len() < 10 {
        match cable.report() {
            (shard, Report::FramesSent(token, frames)) if shard == from.shard => {
                assert_eq!(frames, token as usize * 10);
                back.push(token);
            }
            (_, Report::Frame(link, ..)) if link == to.link => {}
            other => panic!("expected batches and frames, saw {other:?}"),
        }
    }
    back.sort_unstable();
    assert_eq!(back, (2..12).collect::<Vec<_>>());
    nothing_is_lent(cable, &from, &to);
}

fn nowhere(cable: &mut dyn Cable) {
    let [from, to] = cable.ends();
    let head = header(&from, &to);
    let part = FramePart { head, data: vec![1; 600], ..FramePart::default() };
    let to_nobody = FramePart { link: LinkId(u32::MAX), ..part.clone() };
    let to_other = FramePart { link: from.link, ..part };
    cable.command(from.shard, Command::SendFrames(7, vec![to_nobody, to_other]));
    loop {
        match cable.report() {
            (shard, Report::FramesSent(7, 2)) if shard == from.shard => break,
            (_, Report::Frame(link, ..)) if link == to.link => {}
            other => panic!("expected a batch and frames, saw {other:?}"),
        }
    }
    nothing_is_lent(cable, &from, &to);
}

fn nothing_is_lent(cable: &mut dyn Cable, from: &End, to: &End) {
    cable.command(from.shard, Command::CountLent);
    loop {
        match cable.report() {
            (_, Report::Frame(link, ..)) if link == to.link => {}
            other => return assert_eq!(other, (from.shard, Report::Lent(0))),
        }
    }
}

/// Runs every scene, each on a cable of its own; says which, so that a failure is found.
pub fn run_cable<C: Cable>(mut make: impl FnMut() -> C) {
    for (name, scene) in CABLE_SCENES {
        eprintln!("scene: {name}");
        scene(&mut make());
    }
}
