//! Links on both engines: two ends of a cable (veth), each a link of the same reactor, in a
//! namespace of the test's own.
//!
//! Ethernet promises nothing, so what starts a conversation is sent again until it is heard
//! ([`Bench::meet`]).

mod circuit;
#[path = "../common/mod.rs"]
mod common;
mod forwarding;
mod net;
mod peers;
mod stations;

use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant as Clock};

use block::ShardId;
use contract::{
    Counters, EtherType, Instruction, Intake, LinkFacts, LinkId, Poll, Spread, TagControl, Takes,
    VlanTag,
};
use reactor::{Config, Handle, LinkAccess, LinkCounters, LinkOptions, LinkStats};
use testkit::suite::{CABLE_SCENES, Cable, Command, End, FramePart, Note, Report, SendOn};

use common::{HANG, on_each_engine, two_shards, wait_for_rest};
use net::{delete, in_namespace, make_pair, set_mac, set_mtu, set_up, strip_tags, strips_tags};

/// A type for experiments (IEEE 802).
const TYPE: u16 = 0x88b5;
const LEFT: LinkId = LinkId(1);
const RIGHT: LinkId = LinkId(2);
/// Another one on the left: what the host has there beside.
const BESIDE: LinkId = LinkId(4);
const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ALL: [u8; 6] = [0xff; 6];
/// The shards that the two ends are on.
const ON_LEFT: ShardId = ShardId(0);
const ON_RIGHT: ShardId = ShardId(1);
/// The first byte of what is sent to find out whether anybody hears.
const HELLO: u8 = 0xee;

type Link = (LinkId, &'static str, Option<u16>, Spread);

struct Bench {
    handle: Handle<Note>,
    access: LinkAccess,
}

const PACKET: [LinkAccess; 1] = [LinkAccess::Packet];
const ALL_WAYS: [LinkAccess; 2] = [LinkAccess::Packet, LinkAccess::Xdp];

/// Runs a test on each engine that works here, over packet sockets, on a cable of its own from
/// `left` to `right`.
fn on_each(name: &str, test: impl Fn(Bench) + Send + Sync) {
    on_each_with(name, (&PACKET, 1), test);
}

/// The same, and over AF_XDP.
fn on_all(name: &str, test: impl Fn(Bench) + Send + Sync) {
    on_each_with(name, (&ALL_WAYS, 1), test);
}

fn on_each_with(
    name: &str,
    (ways, queues): (&[LinkAccess], u32),
    test: impl Fn(Bench) + Send + Sync,
) {
    on_each_engine(|driver| {
        for access in ways {
            in_namespace(name, || {
                eprintln!("{access:?}");
                if !make_pair("left", "right", queues) {
                    return;
                }
                prepare_pair();
                let (handle, _) = common::start(&Config { driver, ..two_shards() });
                let bench = Bench { handle, access: *access };
                if bench.is_permitted() {
                    test(bench);
                }
            });
        }
    });
}

fn prepare_pair() {
    set_mac("left", LEFT_MAC);
    set_mac("right", RIGHT_MAC);
    set_up("left", true);
    set_up("right", true);
}

fn everything() -> Vec<Instruction> {
    Vec::new()
}

fn one(shard: ShardId) -> Spread {
    Spread::One(shard, everything())
}

fn plain() -> [Link; 2] {
    [(LEFT, "left", None, one(ON_LEFT)), (RIGHT, "right", None, one(ON_RIGHT))]
}

/// A frame's bytes before its payload.
fn header(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    [&to[..], &from, &TYPE.to_be_bytes()].concat()
}

fn frame(to: [u8; 6], from: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&header(to, from), payload].concat()
}

/// A frame from right to left, with this tag or none.
fn leftward(tag: &[u8], number: u8) -> Vec<u8> {
    [&LEFT_MAC[..], &RIGHT_MAC, tag, &TYPE.to_be_bytes(), &[number; 50]].concat()
}

fn whole(link: LinkId, bytes: Vec<u8>) -> FramePart {
    with_data(link, bytes, Vec::new())
}

fn with_data(link: LinkId, head: Vec<u8>, data: Vec<u8>) -> FramePart {
    FramePart { link, head, data, inside: None }
}

impl Bench {
    fn options(&self, interface: &str, vlan: Option<u16>, spread: Spread) -> LinkOptions {
        let interface = interface.to_owned();
        let intake = Intake { takes: Takes::Type(EtherType(TYPE)), spread };
        let (access, poll) = (self.access, Poll::Auto);
        LinkOptions { interface, vlan, access, poll, intake, forwards: false }
    }

    /// Whether links can be had, which for AF_XDP is not so in the namespace of an ordinary user.
    fn is_permitted(&self) -> bool {
        match self.handle.add_link(LEFT, &self.options("left", None, one(ON_LEFT))) {
            Ok(_) => {
                self.wait_up(LEFT);
                self.remove(ON_LEFT, LEFT);
                true
            }
            Err(error) if self.access == LinkAccess::Xdp => {
                eprintln!("skipped: {error}");
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported));
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds a link. What a link over AF_XDP had before it a test that starts a program beside this one
    /// may hold a moment longer: from its fork to its exec it has our descriptors.
    fn add(&self, (link, interface, vlan, spread): Link) -> LinkFacts {
        let (options, begin) = (self.options(interface, vlan, spread), Clock::now());
        loop {
            match self.handle.add_link(link, &options) {
                Ok(added) => return added.facts,
                Err(error) if error.kind() == ErrorKind::ResourceBusy && begin.elapsed() < HANG => {
                    std::thread::yield_now();
                }
                Err(error) => panic!("{interface}: {error}"),
            }
        }
    }

    /// Adds links, and waits until each is up on each of its shards.
    fn add_all<const N: usize>(&self, links: [Link; N]) {
        for (link, interface, vlan, spread) in links {
            let shards = if matches!(spread, Spread::One(..)) { 1 } else { 2 };
            self.add((link, interface, vlan, spread));
            for _ in 0..shards {
                self.wait_up(link);
            }
        }
    }

    /// Waits until a link is up; nothing else may be told before.
    fn wait_up(&self, link: LinkId) -> LinkFacts {
        match self.next() {
            (_, Report::LinkUp(up, facts)) if up == link => facts,
            other => panic!("expected that {link} is up, saw {other:?}"),
        }
    }

    /// Both ends of the cable, which hear each other.
    fn begin(&self) {
        self.begin_with(one(ON_LEFT));
    }

    /// The same, where the left one spreads its frames so.
    fn begin_with(&self, spread: Spread) {
        let [(left, interface, vlan, _), right] = plain();
        self.add_all([(left, interface, vlan, spread), right]);
        self.meet();
    }

    /// Removes a link that is on one shard.
    fn remove(&self, shard: ShardId, link: LinkId) {
        self.handle.remove_link(link);
        assert_eq!(self.next(), (shard, Report::LinkDown(link)));
    }

    /// Lets both ends send until each hears the other: once the cable carries frames, it carries
    /// them all.
    fn meet(&self) {
        self.meet_whatever(|_| false);
    }

    /// The same, whatever of this kind is told meanwhile.
    fn meet_whatever(&self, ignored: impl Fn(&Report) -> bool) {
        self.until_heard((ON_LEFT, LEFT), RIGHT, frame(ALL, LEFT_MAC, &[HELLO]), &ignored);
        self.until_heard((ON_RIGHT, RIGHT), LEFT, frame(ALL, RIGHT_MAC, &[HELLO]), &ignored);
    }

    fn until_heard(
        &self,
        (shard, from): (ShardId, LinkId),
        to: LinkId,
        bytes: Vec<u8>,
        ignored: &dyn Fn(&Report) -> bool,
    ) {
        let begin = Clock::now();
        loop {
            self.send(shard, 0, vec![whole(from, bytes.clone())]);
            let moment = Clock::now();
            while moment.elapsed() < Duration::from_millis(100) {
                match self.handle.receive_mail(Duration::from_millis(10)) {
                    Some((_, Note::Report(Report::Frame(link, _, seen)))) => {
                        assert_eq!(seen[14], HELLO, "{link} was shown what nobody sent");
                        if link == to && seen[6..12] == bytes[6..12] {
                            return;
                        }
                    }
                    Some((_, Note::Report(Report::FramesSent(0, _)))) | None => {}
                    Some((_, Note::Report(report))) if ignored(&report) => {}
                    other => panic!("expected a frame, saw {other:?}"),
                }
            }
            assert!(begin.elapsed() < HANG, "{to} hears nothing: {:#?}", self.stats());
        }
    }

    fn send(&self, shard: ShardId, token: u32, frames: Vec<FramePart>) {
        self.handle.send(shard, Note::Command(Command::SendFrames(token, frames)));
    }

    /// The next report that is not about hellos.
    fn next(&self) -> (ShardId, Report) {
        loop {
            match common::report(&self.handle) {
                (_, Report::Frame(_, _, seen)) if seen.get(14) == Some(&HELLO) => {}
                (_, Report::FramesSent(0, _)) => {}
                report => return report,
            }
        }
    }

    /// Waits until a batch has come back and so many frames were shown, in any order; returns them
    /// with where they were shown, sorted.
    fn shown(&self, batch: (u32, usize), frames: usize) -> Vec<Shown> {
        let (mut sent, mut shown) = (false, Vec::new());
        while !sent || shown.len() < frames {
            match self.next() {
                (shard, Report::Frame(link, tag, bytes)) => shown.push((shard, link, tag, bytes)),
                (_, Report::FramesSent(token, count)) => {
                    assert_eq!((token, count, sent), (batch.0, batch.1, false));
                    sent = true;
                }
                other => panic!("expected frames, saw {other:?}"),
            }
        }
        shown.sort_by(|one, other| (one.1, &one.3).cmp(&(other.1, &other.3)));
        shown
    }

    fn nothing_is_lent(&self, shard: ShardId) {
        self.handle.send(shard, Note::Command(Command::CountLent));
        assert_eq!(self.next(), (shard, Report::Lent(0)));
    }

    /// The same, while frames and batches may still be told.
    fn nothing_is_lent_beside_frames(&self, shard: ShardId) {
        self.handle.send(shard, Note::Command(Command::CountLent));
        loop {
            match self.next() {
                (_, Report::Frame(..) | Report::FramesSent(..) | Report::LinkDown(_)) => {}
                other => break assert_eq!(other, (shard, Report::Lent(0))),
            }
        }
    }

    fn stats(&self) -> Vec<LinkStats> {
        self.handle.link_stats()
    }

    fn counted(&self, link: LinkId) -> LinkCounters {
        self.stats_of(link).counters
    }

    fn stats_of(&self, link: LinkId) -> LinkStats {
        self.stats().into_iter().find(|stats| stats.link == link).expect("the link is there")
    }
}

type Shown = (ShardId, LinkId, Option<VlanTag>, Vec<u8>);

/// A tag of 802.1Q.
fn vlan(control: u16) -> Option<VlanTag> {
    Some(VlanTag { ether_type: EtherType::VLAN, control: TagControl(control) })
}

impl Cable for &Bench {
    fn ends(&mut self) -> [End; 2] {
        let end = |(link, interface, vlan, spread): Link, shard| {
            self.add((link, interface, vlan, spread));
            End { shard, link, facts: self.wait_up(link) }
        };
        let [left, right] = plain();
        [end(left, ON_LEFT), end(right, ON_RIGHT)]
    }

    fn command(&mut self, to: ShardId, command: Command) {
        self.handle.send(to, Note::Command(command));
    }

    fn report(&mut self) -> (ShardId, Report) {
        self.next()
    }
}

#[test]
fn the_contract_is_kept() {
    for (number, (scene, play)) in CABLE_SCENES.iter().enumerate() {
        on_all("the_contract_is_kept", |bench| {
            eprintln!("scene {number}: {scene}");
            play(&mut &bench);
        });
    }
}

#[test]
fn frames_arrive_whole_and_batches_come_back() {
    on_all("frames_arrive_whole_and_batches_come_back", |bench| {
        set_mtu("left", 9000);
        set_mtu("right", 9000);
        bench.begin();
        let ends = [
            (ON_LEFT, LEFT, LEFT_MAC, ON_RIGHT, RIGHT, RIGHT_MAC),
            (ON_RIGHT, RIGHT, RIGHT_MAC, ON_LEFT, LEFT, LEFT_MAC),
        ];
        for (shard, from, from_mac, peer_shard, to, to_mac) in ends {
            let before = (bench.counted(from), bench.counted(to));
            let head = |number: u8| frame(to_mac, from_mac, &[number; 20]);
            let data = |length: u32| (0..length).map(|at| (at / 7) as u8).collect::<Vec<u8>>();
            // In one piece, with a page, and with a buffer that lies in several.
            let parts: Vec<FramePart> = [0, 1024, 4096, 8704]
                .into_iter()
                .zip(1..)
                .map(|(length, n)| with_data(from, head(n), data(length)))
                .collect();
            bench.send(shard, 7, parts.clone());
            let shown = bench.shown((7, 4), 4);
            for (part, shown) in parts.iter().zip(shown) {
                let bytes = [&part.head[..], &part.data].concat();
                assert!(shown == (peer_shard, to, None, bytes), "{} bytes", shown.3.len());
            }
            bench.nothing_is_lent(shard);
            let after = (bench.counted(from), bench.counted(to));
            let (sent, received) = (after.0.since(&before.0), after.1.since(&before.1));
            assert_eq!((sent.sent, sent.sent_bytes), (4, 4 * 34 + 1024 + 4096 + 8704));
            assert!(received.received >= 4, "{after:?}");
            assert_eq!((after.0.send_failed, after.1.dropped), (0, 0));
            assert!(bench.stats_of(from).up);
        }
        let method = match bench.access {
            LinkAccess::Packet => "packet ring",
            LinkAccess::Xdp => "xdp",
        };
        assert_eq!(bench.stats_of(LEFT).method, method);
    });
}

#[test]
fn more_frames_than_a_call_or_a_turn_takes_are_all_sent() {
    on_all("more_frames_than_a_call_or_a_turn_takes_are_all_sent", |bench| {
        bench.begin();
        // Each call and turn is bounded; what the other end's ring holds of them is another matter.
        let frames = |count: u32| -> Vec<FramePart> {
            let one = |n: u32| whole(LEFT, frame(RIGHT_MAC, LEFT_MAC, &n.to_be_bytes()));
            (0..count).map(one).collect()
        };
        let before = bench.counted(LEFT).sent;
        bench.send(ON_LEFT, 1, frames(3000));
        loop {
            match bench.next() {
                (_, Report::FramesSent(1, 3000)) => break,
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => assert_eq!(bytes.len(), 18),
                other => panic!("expected frames, saw {other:?}"),
            }
        }
        assert_eq!(bench.counted(LEFT).sent - before, 3000);
    });
}

#[test]
fn a_vlan_has_its_own_frames_and_others_do_not() {
    const TAGGED: LinkId = LinkId(3);
    on_each("a_vlan_has_its_own_frames_and_others_do_not", |bench| {
        bench.begin();
        bench.add_all([(TAGGED, "left", Some(5), one(ON_LEFT))]);
        let sent = |tag: &[u8], number| whole(RIGHT, leftward(tag, number));
        let frames = vec![
            sent(&[0x81, 0, 0x20, 6], 1),
            sent(&[0x81, 0, 0x20, 5], 2),
            sent(&[0x88, 0xa8, 0, 5], 3),
            sent(&[0x81, 0, 0x60, 0], 4),
            sent(&[], 5),
        ];
        bench.send(ON_RIGHT, 1, frames);
        let seen = |number| leftward(&[], number);
        let expected = [
            (ON_LEFT, LEFT, None, seen(4)),
            (ON_LEFT, LEFT, None, seen(5)),
            (ON_LEFT, TAGGED, vlan(0x2005), seen(2)),
        ];
        assert_eq!(bench.shown((1, 5), 3), expected);
        // Nothing of the others comes late, nor of another station's; those of any VLAN came to the link without one,
        // which has no filter.
        let stranger = || whole(RIGHT, frame([2, 0, 0, 0, 0, 9], RIGHT_MAC, &[1; 46]));
        bench.send(ON_RIGHT, 2, vec![stranger(), sent(&[], 6)]);
        assert_eq!(bench.shown((2, 2), 1), [(ON_LEFT, LEFT, None, seen(6))]);
        let for_others = || [LEFT, TAGGED].map(|link| bench.counted(link).for_others);
        assert_eq!(for_others(), [4, 0]);
        // As long as no more of these come than a few.
        for token in 3..11 {
            let mut frames: Vec<FramePart> = (0..60).map(|_| stranger()).collect();
            frames.push(sent(&[], token as u8));
            bench.send(ON_RIGHT, token, frames);
            let shown = bench.shown((token, 61), 1);
            assert_eq!(shown, [(ON_LEFT, LEFT, None, seen(token as u8))]);
        }
        // Of 484. The kernel was asked to keep them out when 256 had come, and at most a turn's more.
        let [left, tagged] = for_others();
        assert!((256..256 + 64).contains(&left) && tagged == 0, "{left}, {tagged}");
    });
}

#[test]
fn frames_for_others_and_those_that_the_program_refuses_are_not_shown() {
    on_all("frames_for_others_and_those_that_the_program_refuses_are_not_shown", |bench| {
        let program = vec![
            Instruction::load_byte(14),
            Instruction::if_equal(9, 1, 0),
            Instruction::ret(u32::MAX),
            Instruction::ret(0),
        ];
        bench.begin_with(Spread::One(ON_LEFT, program));
        let group = [1, 0, 0x5e, 0, 0, 1];
        let stranger = [2, 0, 0, 0, 0, 9];
        let to = |mac, first: u8| whole(RIGHT, frame(mac, RIGHT_MAC, &[first; 46]));
        let other_type = [&LEFT_MAC[..], &RIGHT_MAC, &[0x88, 0xb6], &[3; 46]].concat();
        let frames = vec![
            to(stranger, 1),
            to(LEFT_MAC, 9),
            whole(RIGHT, other_type),
            to(group, 2),
            to(LEFT_MAC, 3),
        ];
        bench.send(ON_RIGHT, 1, frames);
        let seen = |mac, first: u8| (ON_LEFT, LEFT, None, frame(mac, RIGHT_MAC, &[first; 46]));
        assert_eq!(bench.shown((1, 5), 2), [seen(group, 2), seen(LEFT_MAC, 3)]);
        bench.send(ON_RIGHT, 2, vec![to(ALL, 4)]);
        assert_eq!(bench.shown((2, 1), 1), [seen(ALL, 4)]);
    });
}

#[test]
fn steered_frames_go_to_one_shard_each() {
    on_each("steered_frames_go_to_one_shard_each", |bench| {
        set_mtu("left", 9000);
        set_mtu("right", 9000);
        // By the source's last byte and one behind the header: one lies before what a fanout
        // program sees, one in the pages of a large frame.
        let steering = vec![
            Instruction::load_byte(11),
            Instruction::to_index(),
            Instruction::load_word(16),
            Instruction::xor_index(),
            Instruction::ret_accumulator(),
        ];
        bench.begin_with(Spread::Steered(everything(), steering));
        let of = |source: u8, number: u8, length: usize| {
            let from = [2, 0, 0, 0, 7, source];
            frame(LEFT_MAC, from, &[&[1, 2, 3, 4, 5, number][..], &vec![source; length]].concat())
        };
        let mut expected: Vec<Shown> = Vec::new();
        for number in 0..30 {
            let bytes = of(number / 3, number, if number % 2 == 0 { 60 } else { 8000 });
            // Bytes 16 to 19 are 3, 4, 5 and the number.
            let shard = ShardId(u16::from(((number / 3) ^ number) & 1));
            expected.push((shard, LEFT, None, bytes));
        }
        let frames = expected.iter().map(|(.., bytes)| whole(RIGHT, bytes.clone())).collect();
        bench.send(ON_RIGHT, 1, frames);
        expected.sort_by(|one, other| one.3.cmp(&other.3));
        let shown = bench.shown((1, 30), 30);
        for (shown, expected) in shown.iter().zip(&expected) {
            assert_eq!((shown.0, &shown.3[..20]), (expected.0, &expected.3[..20]));
            assert!(shown.3 == expected.3);
        }
        // Each of its shards may send.
        for shard in [ON_LEFT, ON_RIGHT] {
            let bytes = frame(RIGHT_MAC, LEFT_MAC, &[shard.0 as u8; 46]);
            bench.send(shard, 2, vec![whole(LEFT, bytes.clone())]);
            assert_eq!(bench.shown((2, 1), 1), [(ON_RIGHT, RIGHT, None, bytes)]);
        }
        let left = bench.stats().into_iter().filter(|stats| stats.link == LEFT);
        let left: Vec<_> = left.map(|stats| stats.counters).collect();
        assert_eq!(left.len(), 2);
        assert!(left.iter().all(|one| one.received >= 10 && one.dropped == 0), "{left:?}");
    });
}

#[test]
fn each_shard_takes_what_its_program_takes() {
    on_each("each_shard_takes_what_its_program_takes", |bench| {
        let of = |lane: u32| {
            vec![
                Instruction::load_byte(14),
                Instruction::if_equal(HELLO.into(), 1, 0),
                Instruction::if_equal(lane, 0, 1),
                Instruction::ret(u32::MAX),
                Instruction::ret(0),
            ]
        };
        bench.begin_with(Spread::Each(vec![of(7), of(8)]));
        let sent = |lane: u8| frame(LEFT_MAC, RIGHT_MAC, &[lane; 46]);
        let frames = [9, 8, 7].map(|lane| whole(RIGHT, sent(lane)));
        bench.send(ON_RIGHT, 1, frames.to_vec());
        let expected = [(ON_LEFT, LEFT, None, sent(7)), (ON_RIGHT, LEFT, None, sent(8))];
        assert_eq!(bench.shown((1, 3), 2), expected);
    });
}

#[test]
fn another_mtu_or_address_is_told_and_served() {
    on_all("another_mtu_or_address_is_told_and_served", |bench| {
        bench.begin();
        let before = bench.counted(LEFT).ring_frames;
        for (link, interface) in [(LEFT, "left"), (RIGHT, "right")] {
            set_mtu(interface, 9000);
            let facts = bench.wait_up(link);
            assert_eq!((facts.mtu, facts.vlan), (9000, None));
            let less = u64::from(facts.ring_frames) < before;
            assert!(less, "the same memory holds fewer: {facts:?}");
            // A little less asks for no other ring.
            set_mtu(interface, 8990);
            let less = LinkFacts { mtu: 8990, ..facts };
            assert_eq!(bench.wait_up(link), less);
        }
        bench.meet();
        let other = [2, 0, 0, 0, 0, 0x33];
        set_mac("left", other);
        assert_eq!(bench.wait_up(LEFT).mac, other);
        bench.meet();
        let bytes = frame(other, RIGHT_MAC, &[5; 8500]);
        bench.send(ON_RIGHT, 1, vec![whole(RIGHT, bytes.clone())]);
        assert!(bench.shown((1, 1), 1) == [(ON_LEFT, LEFT, None, bytes)]);
    });
}

#[test]
fn down_up_and_made_anew_are_told() {
    on_all("down_up_and_made_anew_are_told", |bench| {
        bench.begin();
        let both = |told: &dyn Fn(&Report) -> Option<LinkId>| {
            let mut seen = [bench.next().1, bench.next().1].map(|report| told(&report));
            seen.sort();
            assert_eq!(seen, [Some(LEFT), Some(RIGHT)]);
        };
        let down = |report: &Report| match report {
            Report::LinkDown(link) => Some(*link),
            _ => None,
        };
        let up = |report: &Report| match report {
            Report::LinkUp(link, _) => Some(*link),
            _ => None,
        };
        // The other end has no carrier then.
        set_up("left", false);
        both(&down);
        let failed = bench.counted(LEFT).send_failed;
        let lost = with_data(LEFT, header(RIGHT_MAC, LEFT_MAC), vec![1; 46]);
        bench.send(ON_LEFT, 1, vec![lost.clone(), lost]);
        assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(1, 2)));
        bench.nothing_is_lent(ON_LEFT);
        let stats = bench.stats_of(LEFT);
        assert_eq!((stats.counters.send_failed - failed, stats.up, stats.method), (2, false, "-"));
        set_up("left", true);
        both(&up);
        bench.meet();
        delete("left");
        both(&down);
        assert!(make_pair("left", "right", 1));
        prepare_pair();
        // A new interface counts as ready before anybody has looked at its carrier: it may be up,
        // down and up again.
        bench.meet_whatever(|report| up(report).is_some() || down(report).is_some());
        assert!(bench.stats().iter().all(|stats| stats.up));
    });
}

#[test]
fn a_batch_may_have_frames_for_several_links_and_for_none() {
    on_each("a_batch_may_have_frames_for_several_links_and_for_none", |bench| {
        bench.begin();
        bench.add_all([(LinkId(4), "right", None, one(ON_LEFT))]);
        let to_right = frame(RIGHT_MAC, LEFT_MAC, &[1; 46]);
        let to_left = frame(LEFT_MAC, RIGHT_MAC, &[2; 46]);
        let too_long = frame(RIGHT_MAC, LEFT_MAC, &[3; 2000]);
        let frames = vec![
            whole(LEFT, to_right.clone()),
            whole(LinkId(77), to_right.clone()),
            whole(LinkId(4), to_left.clone()),
            whole(LEFT, too_long),
            whole(LEFT, to_right.clone()),
        ];
        bench.send(ON_LEFT, 1, frames);
        let at_right = [(ON_RIGHT, RIGHT), (ON_LEFT, LinkId(4))];
        let mut expected = vec![(ON_LEFT, LEFT, None, to_left)];
        for (shard, link) in at_right {
            expected.extend(vec![(shard, link, None, to_right.clone()); 2]);
        }
        assert_eq!(bench.shown((1, 5), 5), expected);
        assert_eq!(bench.counted(LEFT).send_failed, 1, "the one that is longer than the MTU");
    });
}

#[test]
fn a_removed_link_leaves_nothing_behind() {
    on_all("a_removed_link_leaves_nothing_behind", |bench| {
        let sockets = || {
            let text = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
            text.lines().count() - 1
        };
        for _ in 0..3 {
            bench.begin();
            // Said twice, and of a link that is not there any more.
            for _ in 0..2 {
                bench.handle.poll_link(LEFT, Poll::Fixed(100));
            }
            // Each link has one that receives and one that sends.
            assert_eq!(sockets(), if bench.access == LinkAccess::Xdp { 0 } else { 4 });
            bench.remove(ON_LEFT, LEFT);
            bench.remove(ON_RIGHT, RIGHT);
            assert_eq!(sockets(), 0);
            assert_eq!(bench.stats(), []);
            bench.handle.remove_link(RIGHT);
            bench.handle.poll_link(RIGHT, Poll::Never);
            bench.send(ON_LEFT, 1, vec![whole(LEFT, frame(ALL, LEFT_MAC, &[1; 46]))]);
            assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(1, 1)));
        }
        // Also with links that are up.
        bench.begin();
        bench.handle.stop();
    });
}

#[test]
fn what_cannot_be_had_is_refused_with_what_to_do() {
    on_each("what_cannot_be_had_is_refused_with_what_to_do", |bench| {
        let refused = |options: LinkOptions| {
            bench.handle.add_link(LEFT, &options).expect_err("it must be refused").to_string()
        };
        let options = |name: &str| bench.options(name, None, one(ON_LEFT));
        let missing = refused(options("no-such-if"));
        assert!(missing.starts_with("interface no-such-if: expected an Ethernet"));
        assert!(missing.contains("(there are: ") && missing.contains("left"), "{missing}");
        assert!(refused(options("lo")).contains("loopback"));
        for vlan in [0, 4095] {
            let text = refused(LinkOptions { vlan: Some(vlan), ..options("left") });
            assert!(text.contains("expected 1 to 4094"), "{text}");
        }
        let intake = Intake { takes: Takes::Type(EtherType(5)), spread: one(ON_LEFT) };
        assert!(refused(LinkOptions { intake, ..options("left") }).contains("EtherType"));
        let elsewhere = bench.options("left", None, one(ShardId(2)));
        assert!(refused(elsewhere).contains("shards"));
        let endless = Spread::One(ON_LEFT, vec![Instruction::load_byte(0)]);
        assert!(refused(bench.options("left", None, endless)).contains("BPF"));
        // An interface that is down is taken, and up later.
        set_up("left", false);
        let facts = bench.handle.add_link(LEFT, &options("left")).unwrap().facts;
        assert_eq!((facts.mac, facts.mtu, facts.ring_frames), (LEFT_MAC, 1500, 0));
        assert!(refused(options("left")).contains("already"));
        set_up("left", true);
        bench.wait_up(LEFT);
        bench.remove(ON_LEFT, LEFT);
        // Rights are each thread's own.
        let mut rights = rustix::thread::capabilities(None).unwrap();
        rights.effective.remove(rustix::thread::CapabilitySet::NET_RAW);
        rustix::thread::set_capabilities(None, rights).unwrap();
        let text = refused(options("left"));
        assert!(text.contains("setcap cap_net_raw+ep") && text.contains("Ambient"), "{text}");
    });
}

#[test]
fn a_quiet_link_costs_no_turns() {
    on_each("a_quiet_link_costs_no_turns", |bench| {
        bench.begin();
        wait_for_rest(&bench.handle);
    });
}

#[test]
fn frames_beyond_the_ring_are_dropped_and_counted_and_the_link_recovers() {
    let name = "frames_beyond_the_ring_are_dropped_and_counted_and_the_link_recovers";
    static GATE: Mutex<()> = Mutex::new(());
    on_all(name, |bench| {
        bench.begin();
        let closed = GATE.lock().unwrap();
        let wait = Command::Call(|| drop(GATE.lock().unwrap()));
        bench.handle.send(ON_LEFT, Note::Command(wait));
        let begin = Clock::now();
        let before = bench.counted(LEFT);
        // Nobody takes them: sooner or later the ring is full.
        while bench.counted(LEFT).dropped == 0 {
            let one = whole(RIGHT, frame(LEFT_MAC, RIGHT_MAC, &[1; 46]));
            bench.send(ON_RIGHT, 1, vec![one; 500]);
            assert_eq!(bench.next(), (ON_RIGHT, Report::FramesSent(1, 500)));
            assert!(begin.elapsed() < HANG, "nothing is dropped: {:#?}", bench.stats());
        }
        drop(closed);
        // What the ring held is shown, the rest is counted, and what comes then is heard.
        let mark = frame(LEFT_MAC, RIGHT_MAC, &[2; 46]);
        let (mut shown, mut heard) = (0, false);
        while !heard {
            bench.send(ON_RIGHT, 2, vec![whole(RIGHT, mark.clone())]);
            loop {
                match bench.next() {
                    (_, Report::Frame(LEFT, None, bytes)) => {
                        shown += 1;
                        heard |= bytes == mark;
                    }
                    (_, Report::FramesSent(2, 1)) => break,
                    other => panic!("expected frames, saw {other:?}"),
                }
            }
            assert!(begin.elapsed() < HANG, "nothing is heard: {:#?}", bench.stats());
        }
        let stats = bench.counted(LEFT);
        let lost = stats.dropped - before.dropped;
        assert!(lost > 0 && shown >= 100, "{shown} were shown: {stats:?}");
        assert!(shown >= stats.ring_frames, "{shown} were shown: {stats:?}");
    });
}

/// Gives an interface a queue that lets 100 megabits a second through: what waits in it fills the send
/// buffer. Returns whether there is one.
fn slows(interface: &str) -> bool {
    let arguments =
        format!("qdisc add dev {interface} root tbf rate 100mbit burst 128kb limit 64mb");
    let tc = std::process::Command::new("tc").args(arguments.split(' ')).output();
    let is_slow = tc.as_ref().is_ok_and(|output| output.status.success());
    if !is_slow {
        eprintln!("skipped: no queue that is slow is to be had: {tc:?}");
    }
    is_slow
}

#[test]
fn frames_that_find_no_room_wait_for_it() {
    on_each("frames_that_find_no_room_wait_for_it", |bench| {
        if !slows("left") {
            return;
        }
        bench.begin();
        let before = bench.counted(LEFT);
        let part = with_data(LEFT, header(RIGHT_MAC, LEFT_MAC), vec![1; 1486]);
        let begin = Clock::now();
        let mut batches = 0;
        // A machine that sends them too slowly to fill the buffer tries again.
        while bench.counted(LEFT).send_waits == before.send_waits {
            for token in [1, 2] {
                bench.send(ON_LEFT, token, vec![part.clone(); 2000]);
            }
            for expected in [1, 2] {
                loop {
                    match bench.next() {
                        (_, Report::FramesSent(token, 2000)) => break assert_eq!(token, expected),
                        (ON_RIGHT, Report::Frame(..)) => {}
                        other => panic!("expected frames, saw {other:?}"),
                    }
                }
                batches += 1;
            }
            assert!(begin.elapsed() < HANG, "it never waits: {:#?}", bench.stats());
        }
        let after = bench.counted(LEFT);
        assert_eq!((after.sent - before.sent, after.send_failed), (batches * 2000, 0));
        bench.nothing_is_lent_beside_frames(ON_LEFT);
        // What waits when the link goes comes back.
        for token in 4..7 {
            bench.send(ON_LEFT, token, vec![part.clone(); 2000]);
        }
        bench.handle.remove_link(LEFT);
        bench.nothing_is_lent_beside_frames(ON_LEFT);
    });
}

/// What AF_XDP does in its own way.
fn on_xdp(name: &str, queues: u32, test: impl Fn(Bench) + Send + Sync) {
    on_each_with(name, (&[LinkAccess::Xdp], queues), test);
}

#[test]
fn xdp_takes_a_vlan_and_leaves_the_rest_to_packet_sockets() {
    on_xdp("xdp_takes_a_vlan_and_leaves_the_rest_to_packet_sockets", 1, |bench| {
        let plain = |interface| LinkOptions {
            access: LinkAccess::Packet,
            ..bench.options(interface, None, one(ON_RIGHT))
        };
        let tagged = bench.options("left", Some(5), one(ON_LEFT));
        bench.handle.add_link(LEFT, &tagged).unwrap();
        bench.wait_up(LEFT);
        for (link, interface) in [(LinkId(3), "left"), (RIGHT, "right")] {
            bench.handle.add_link(link, &plain(interface)).unwrap();
            bench.wait_up(link);
        }
        bench
            .until_heard((ON_RIGHT, RIGHT), LinkId(3), frame(ALL, RIGHT_MAC, &[HELLO]), &|_| false);
        let sent = |tag: &[u8], number| whole(RIGHT, leftward(tag, number));
        let frames = vec![
            sent(&[0x81, 0, 0x20, 6], 1),
            sent(&[0x81, 0, 0x20, 5], 2),
            sent(&[0x81, 0, 0x60, 0], 3),
            // An S-tag of the same VLAN, alone and before another tag: neither takes it.
            sent(&[0x88, 0xa8, 0x20, 5], 5),
            sent(&[0x88, 0xa8, 0x20, 5, 0x81, 0, 0x20, 5], 6),
            sent(&[], 4),
        ];
        bench.send(ON_RIGHT, 1, frames);
        let seen = |number| leftward(&[], number);
        let expected = [
            (ON_LEFT, LEFT, vlan(0x2005), seen(2)),
            (ON_RIGHT, LinkId(3), None, seen(3)),
            (ON_RIGHT, LinkId(3), None, seen(4)),
        ];
        assert_eq!(bench.shown((1, 6), 3), expected);
        // Nothing of the others comes late.
        bench.send(ON_RIGHT, 2, vec![sent(&[0x81, 0, 0x20, 5], 7)]);
        assert_eq!(bench.shown((2, 1), 1), [(ON_LEFT, LEFT, vlan(0x2005), seen(7))]);
        // A second one cannot have the same door.
        let error = bench.handle.add_link(LinkId(4), &bench.options("left", None, one(ON_LEFT)));
        assert!(error.unwrap_err().to_string().contains("already"));
        let spread = Spread::Steered(everything(), vec![Instruction::ret(0)]);
        let error = bench.handle.add_link(LinkId(4), &bench.options("left", Some(5), spread));
        assert!(error.unwrap_err().to_string().contains("one shard"));
    });
}

#[test]
fn xdp_has_an_interface_leave_tags_in_frames_and_packet_sockets_leave_it_as_it_is() {
    on_all(
        "xdp_has_an_interface_leave_tags_in_frames_and_packet_sockets_leave_it_as_it_is",
        |bench| {
            let is_xdp = bench.access == LinkAccess::Xdp;
            strip_tags("left");
            bench.add_all([(LEFT, "left", None, one(ON_LEFT))]);
            assert_eq!(strips_tags("left"), !is_xdp);
            if is_xdp {
                // Somebody switches it on again: the link is opened anew, without it.
                strip_tags("left");
                bench.wait_up(LEFT);
                assert!(!strips_tags("left"));
            }
        },
    );
}

#[test]
fn xdp_runs_the_program_as_the_kernel_does_for_packet_sockets() {
    on_xdp("xdp_runs_the_program_as_the_kernel_does_for_packet_sockets", 1, |bench| {
        // Every instruction that there is, on frames that end in different places.
        let program = vec![
            Instruction::load_length(),
            Instruction::if_at_least(60, 0, 9),
            Instruction::load_word(16),
            Instruction::to_index(),
            Instruction::load_half(8),
            Instruction::xor_index(),
            Instruction::multiply(0x9e37_79b1),
            Instruction::shift_right(3),
            Instruction::and(7),
            Instruction::if_any_bit(3, 1, 0),
            Instruction::ret_accumulator(),
            Instruction::load_byte(40),
            Instruction::if_equal(7, 0, 1),
            Instruction::ret(u32::MAX),
            Instruction::ret(0),
        ];
        assert!(contract::filter::is_sound(&program));
        bench.begin();
        bench.remove(ON_LEFT, LEFT);
        bench.add_all([(LEFT, "left", None, Spread::One(ON_LEFT, program.clone()))]);
        let mut frames = Vec::new();
        for number in 0..80_u8 {
            let length = [4, 20, 26, 27, 46, 200][usize::from(number) % 6];
            let mut payload = vec![number.wrapping_mul(73); length];
            payload[0] = number;
            if let Some(byte) = payload.get_mut(26) {
                *byte = number % 3 * 7 / 2;
            }
            frames.push(frame(LEFT_MAC, RIGHT_MAC, &payload));
        }
        let mut taken: Vec<_> = frames
            .iter()
            .filter(|frame| contract::filter::run(&program, frame) != 0)
            .cloned()
            .collect();
        assert!(taken.len() > 5 && taken.len() < 75, "{} are taken", taken.len());
        taken.sort();
        let sent = frames.into_iter().map(|frame| whole(RIGHT, frame)).collect();
        bench.send(ON_RIGHT, 1, sent);
        let shown = bench.shown((1, 80), taken.len());
        let shown: Vec<_> = shown.into_iter().map(|(.., bytes)| bytes).collect();
        assert!(shown == taken);
    });
}

#[test]
fn xdp_serves_every_queue() {
    on_xdp("xdp_serves_every_queue", 4, |bench| {
        bench.begin();
        // Which queue a frame comes to is up to the kernel, by a hash of its header.
        let of = |number: u8| frame(LEFT_MAC, [2, 0, 0, 0, 9, number], &[number; 46]);
        let sent = (0..64).map(|number| whole(RIGHT, of(number))).collect();
        bench.send(ON_RIGHT, 1, sent);
        let shown: Vec<_> = bench.shown((1, 64), 64);
        for (number, shown) in (0..).zip(shown) {
            assert_eq!(shown, (ON_LEFT, LEFT, None, of(number)));
        }
    });
}
