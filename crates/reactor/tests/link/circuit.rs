//! Circuits: links that take every frame of an interface, whoever it is for; and what their
//! interfaces do without meanwhile.

use super::*;
use net::{
    LeftToHardware, merge, merges, promiscuity, rename, send_unfinished, silence_ipv6, speaks_ipv6,
};
use reactor::SwitchedOff;

const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Another type for experiments, which the links beside do not take.
const OTHER: [u8; 2] = [0x88, 0xb6];

/// A test starts itself again by its whole name, where it is not root.
fn on_each(name: &str, test: impl Fn(Bench) + Send + Sync) {
    super::on_each(&format!("circuit::{name}"), test);
}

impl Bench {
    fn circuit(&self, interface: &str) -> LinkOptions {
        let intake = Intake { takes: Takes::Whole, spread: one(ON_LEFT) };
        LinkOptions { intake, forwards: true, ..self.options(interface, None, one(ON_LEFT)) }
    }

    /// One that no frame is shown on: what the host at the other end says is no matter.
    fn silent_circuit(&self) -> LinkOptions {
        let intake = Intake { takes: Takes::Whole, spread: nothing() };
        LinkOptions { intake, ..self.circuit("left") }
    }

    fn add_circuit(&self) -> LinkFacts {
        // What the host says of itself is no matter here.
        silence_ipv6("right");
        self.handle.add_link(LEFT, &self.circuit("left")).unwrap();
        self.wait_up(LEFT)
    }

    /// The circuit, a link beside it, and the other end.
    fn begin_circuit(&self) {
        let facts = self.add_circuit();
        assert_eq!((facts.mac, facts.vlan, facts.is_shared), (LEFT_MAC, None, false));
        self.add_all([
            (BESIDE, "left", None, one(ON_RIGHT)),
            (RIGHT, "right", None, one(ON_RIGHT)),
        ]);
        self.meet();
    }
}

/// No frame.
fn nothing() -> Spread {
    Spread::One(ON_LEFT, vec![Instruction::ret(0)])
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Clock::now();
    while !is_so() {
        assert!(begin.elapsed() < HANG, "never seen: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A frame as it was on the wire.
fn restored((shard, link, tag, bytes): &Shown) -> (ShardId, LinkId, Vec<u8>) {
    let tag = tag.map_or(Vec::new(), |tag| tag.emit().to_vec());
    (*shard, *link, [&bytes[..12], &tag, &bytes[12..]].concat())
}

#[test]
fn a_circuit_has_every_frame_that_comes_byte_for_byte_and_none_that_leaves() {
    let name = "a_circuit_has_every_frame_that_comes_byte_for_byte_and_none_that_leaves";
    on_each(name, |bench| {
        bench.begin_circuit();
        let of = |to: [u8; 6], tags: &[u8], number: u8| {
            [&to[..], &RIGHT_MAC, tags, &OTHER, &[number; 60]].concat()
        };
        let group = [1, 0, 0x5e, 0, 0, 1];
        let frames = [
            of(STRANGER, &[], 1),
            of(LEFT_MAC, &[], 2),
            of(group, &[], 3),
            of(ALL, &[], 4),
            // A VLAN of nobody's, with priority and DEI; one that only tells a priority.
            of(STRANGER, &[0x81, 0, 0xb0, 5], 5),
            of(STRANGER, &[0x81, 0, 0x60, 0], 6),
            // An S-tag, alone, around another tag, and of VLAN 0.
            of(STRANGER, &[0x88, 0xa8, 0x2f, 0xff], 7),
            of(STRANGER, &[0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 8], 8),
            of(ALL, &[0x88, 0xa8, 0x10, 0], 9),
            // Two of 802.1Q, and a kind that the kernel does not know.
            of(STRANGER, &[0x81, 0, 0, 7, 0x81, 0, 0, 8], 10),
            of(STRANGER, &[0x91, 0, 0, 7], 11),
            // A length in place of a type, as spanning trees have it.
            [&[1, 0x80, 0xc2, 0, 0, 0][..], &RIGHT_MAC, &[0, 46], &[12; 46]].concat(),
        ];
        let sent = frames.iter().map(|bytes| whole(RIGHT, bytes.clone())).collect();
        bench.send(ON_RIGHT, 1, sent);
        let mut shown: Vec<_> = bench.shown((1, 12), 12).iter().map(restored).collect();
        let mut expected = frames.map(|bytes| (ON_LEFT, LEFT, bytes));
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected);
        // What the host sends by any other way is not for the circuit, nor what it sends itself.
        let leaves = |link, number| whole(link, frame(RIGHT_MAC, LEFT_MAC, &[number; 46]));
        bench.send(ON_RIGHT, 2, vec![leaves(BESIDE, 1)]);
        bench.send(ON_LEFT, 3, vec![leaves(LEFT, 2)]);
        let mut batches = 0;
        let mut shown = Vec::new();
        while batches < 2 || shown.len() < 2 {
            match bench.next() {
                (_, Report::FramesSent(2 | 3, 1)) => batches += 1,
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => shown.push(bytes[14]),
                other => panic!("expected frames at the other end, saw {other:?}"),
            }
        }
        // Nothing of them comes late.
        let last = of(STRANGER, &[], 13);
        bench.send(ON_RIGHT, 4, vec![whole(RIGHT, last.clone())]);
        assert_eq!(bench.shown((4, 1), 1), [(ON_LEFT, LEFT, None, last)]);
    });
}

#[test]
fn an_interface_hears_all_as_long_as_it_has_a_circuit() {
    on_each("an_interface_hears_all_as_long_as_it_has_a_circuit", |bench| {
        assert_eq!(promiscuity("left"), 0);
        bench.begin_circuit();
        // A veth hands up every frame; other interfaces look at this.
        assert_eq!((promiscuity("left"), promiscuity("right")), (1, 0));
        set_mtu("left", 9000);
        assert_eq!(bench.wait_up(LEFT).mtu, 9000);
        assert_eq!(bench.wait_up(BESIDE).mtu, 9000);
        assert_eq!(promiscuity("left"), 1, "of its new sockets");
        bench.remove(ON_LEFT, LEFT);
        assert_eq!(promiscuity("left"), 0);
    });
}

/// A frame of IPv4 with this protocol and so many bytes behind its header, all zeros but for what a
/// sender that has it cut says of TCP: a header of 20 bytes.
fn of_ipv4(protocol: u8, length: u16) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
    let mut behind = vec![0; length.into()];
    behind[12] = 0x50;
    [&STRANGER[..], &RIGHT_MAC, &[8, 0], &ip, &behind].concat()
}

#[test]
fn frames_that_cannot_be_sent_on_are_counted_and_not_shown() {
    on_each("frames_that_cannot_be_sent_on_are_counted_and_not_shown", |bench| {
        let (unsummed, uncut) = (of_ipv4(17, 60), of_ipv4(6, 4000));
        let send_both = || {
            send_unfinished("right", LeftToHardware::CHECKSUM, &unsummed);
            send_unfinished("right", LeftToHardware::PIECES, &uncut);
        };
        // A cable of two MTUs lets frames through that are as long as one with a tag.
        set_mtu("right", 1600);
        bench.begin_circuit();
        let long = |length: usize| frame(STRANGER, RIGHT_MAC, &vec![7; length - 14]);
        let mut tagged = long(1514);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        send_both();
        let sent = [long(1514), long(1515), tagged, long(1518)];
        bench.send(ON_RIGHT, 1, sent.map(|bytes| whole(RIGHT, bytes)).to_vec());
        let shown = bench.shown((1, 4), 2);
        let expected = [None, vlan(5)].map(|tag| (ON_LEFT, LEFT, tag, long(1514)));
        assert!(shown == expected || shown == [expected[1].clone(), expected[0].clone()]);
        wait_for("three too long and one unsummed", || {
            let seen = bench.counted(LEFT);
            (seen.over_mtu, seen.unsummed) == (3, 1)
        });
        assert_eq!(bench.counted(LEFT).unreadable, 0);
        // A little less, for which the ring is the same.
        set_mtu("left", 1499);
        for _ in 0..2 {
            assert!(
                matches!(bench.next().1, Report::LinkUp(LEFT | BESIDE, facts) if facts.mtu == 1499)
            );
        }
        bench.send(ON_RIGHT, 2, [long(1514), long(1513)].map(|bytes| whole(RIGHT, bytes)).to_vec());
        assert!(bench.shown((2, 2), 1) == [(ON_LEFT, LEFT, None, long(1513))]);
        assert_eq!(bench.counted(LEFT).over_mtu, 4);
        // Who sends nothing on is shown what there is.
        bench.remove(ON_LEFT, LEFT);
        let reads = LinkOptions { forwards: false, ..bench.circuit("left") };
        bench.handle.add_link(LEFT, &reads).unwrap();
        bench.wait_up(LEFT);
        send_both();
        assert_eq!(bench.next(), (ON_LEFT, Report::Frame(LEFT, None, unsummed.clone())));
        wait_for("one cut short", || bench.counted(LEFT).unreadable == 1);
        let counted = bench.counted(LEFT);
        assert_eq!((counted.over_mtu, counted.unsummed), (0, 0));
    });
}

#[test]
fn a_full_frame_leaves_with_a_tag_of_802_1q_and_with_another_where_the_mtu_is_larger() {
    let name = "a_full_frame_leaves_with_a_tag_of_802_1q_and_with_another_where_the_mtu_is_larger";
    on_each(name, |bench| {
        set_mtu("right", 1504);
        bench.begin_circuit();
        let full = frame(RIGHT_MAC, STRANGER, &[7; 1500]);
        let with =
            |kind: [u8; 2]| whole(LEFT, [&full[..12], &kind, &[0x20, 5], &full[12..]].concat());
        let [customer, service] = [with([0x81, 0]), with([0x88, 0xa8])];
        let send = |part: &FramePart, token| {
            let before = bench.counted(LEFT);
            bench.send(ON_LEFT, token, vec![part.clone()]);
            assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(token, 1)));
            let counted = bench.counted(LEFT).since(&before);
            (counted.sent, counted.send_failed)
        };
        assert_eq!((send(&customer, 1), send(&service, 2)), ((1, 0), (0, 1)));
        set_mtu("left", 1504);
        for _ in 0..2 {
            assert!(matches!(bench.next().1, Report::LinkUp(LEFT | BESIDE, _)));
        }
        assert_eq!(send(&service, 3), (1, 0));
    });
}

#[test]
fn what_an_interface_does_beside_is_off_as_long_as_frames_are_forwarded() {
    let name = "what_an_interface_does_beside_is_off_as_long_as_frames_are_forwarded";
    on_each(name, |bench| {
        merge("left");
        if !speaks_ipv6("left") {
            eprintln!("skipped: this kernel has no IPv6");
            return;
        }
        let is = || (merges("left"), speaks_ipv6("left"));
        let core = LinkOptions { forwards: true, ..bench.options("left", None, one(ON_RIGHT)) };
        let circuit = bench.silent_circuit();
        let add = |link, options: &LinkOptions| bench.handle.add_link(link, options).unwrap();
        let both = [SwitchedOff::Gro, SwitchedOff::Ipv6];

        assert_eq!(add(LEFT, &circuit).switched_off, both);
        bench.wait_up(LEFT);
        assert_eq!(is(), (false, false));
        // A link that needs less of it off has nothing to do, and is left what it needs.
        assert_eq!(add(BESIDE, &core).switched_off, []);
        bench.wait_up(BESIDE);
        bench.remove(ON_LEFT, LEFT);
        assert_eq!(is(), (false, true));
        bench.remove(ON_RIGHT, BESIDE);
        assert_eq!(is(), (true, true));

        // What was off before stays off.
        silence_ipv6("left");
        assert_eq!(add(LEFT, &circuit).switched_off, [SwitchedOff::Gro]);
        bench.wait_up(LEFT);
        bench.remove(ON_LEFT, LEFT);
        assert_eq!(is(), (true, false));
        net::speak_ipv6("left");

        // One that only reads switches nothing off.
        let reads = LinkOptions { forwards: false, ..circuit.clone() };
        assert_eq!(add(LEFT, &reads).switched_off, []);
        bench.wait_up(LEFT);
        assert_eq!(is(), (true, true));
        bench.remove(ON_LEFT, LEFT);

        // A link that cannot be had leaves all as it was.
        let endless = Spread::One(ON_LEFT, vec![Instruction::load_byte(0)]);
        let intake = Intake { takes: Takes::Whole, spread: endless };
        bench.handle.add_link(LEFT, &LinkOptions { intake, ..circuit.clone() }).unwrap_err();
        assert_eq!(is(), (true, true));

        // An interface that is down comes up without.
        set_up("left", false);
        assert_eq!(add(LEFT, &circuit).switched_off, both);
        assert_eq!(is(), (false, false));
        set_up("left", true);
        bench.wait_up(LEFT);
        // Somebody switches it on; the next sockets are without again.
        merge("left");
        set_mtu("left", 9000);
        bench.wait_up(LEFT);
        assert_eq!(is(), (false, false));
        // Another interface of the name has its own, and what the first had is gone with it.
        delete("left");
        assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(LEFT)));
        assert!(make_pair("left", "right", 1));
        prepare_pair();
        // It may be up, down and up again before anybody has looked at its carrier.
        wait_for("the link is up", || bench.stats_of(LEFT).up && is() == (false, false));
        bench.handle.stop();
        assert_eq!(is(), (false, true), "a veth does not merge unless it is told to");
    });
}

#[test]
fn an_interface_that_was_renamed_is_left_as_it_was() {
    on_each("an_interface_that_was_renamed_is_left_as_it_was", |bench| {
        merge("left");
        let is = |name: &str| (merges(name), speaks_ipv6(name));
        let before = is("left");
        let begin = || {
            bench.handle.add_link(LEFT, &bench.silent_circuit()).unwrap();
            bench.wait_up(LEFT);
            assert_eq!(is("left"), (false, false));
        };
        let move_away = || {
            set_up("left", false);
            rename("left", "other");
        };
        begin();
        move_away();
        assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(LEFT)));
        bench.handle.remove_link(LEFT);
        assert_eq!(is("other"), before);
        // Nor does it wait for that, and the name may be another one's by then.
        rename("other", "left");
        set_up("left", true);
        begin();
        move_away();
        assert!(make_pair("left", "beside", 1));
        merge("left");
        assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(LEFT)));
        wait_for("the first one is as it was", || is("other") == before);
        // The link is the new one's.
        set_up("left", true);
        set_up("beside", true);
        bench.wait_up(LEFT);
        assert_eq!((is("left"), is("other")), ((false, false), before));
        bench.remove(ON_LEFT, LEFT);
        assert!(merges("left"));
    });
}

#[test]
fn what_another_server_forwards_is_refused_as_long_as_it_does() {
    on_each("what_another_server_forwards_is_refused_as_long_as_it_does", |bench| {
        let (other, _) = common::start(&two_shards());
        let other = Bench { handle: other, access: bench.access };
        let core = |vlan| LinkOptions { forwards: true, ..bench.options("left", vlan, nothing()) };
        let circuit = bench.silent_circuit();
        merge("left");
        bench.handle.add_link(LEFT, &circuit).unwrap();
        bench.wait_up(LEFT);
        let refused = |options: &LinkOptions| {
            let error = other.handle.add_link(LEFT, options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            error.to_string()
        };
        let number = || reactor::look_at_interface("left").unwrap().index;
        let index = number();
        let text = refused(&circuit);
        assert!(text.starts_with("interface left: another server"), "{text}");
        assert!(text.ends_with(&format!("`ss -xlp` shows who has @plateway-forwards/all/{index}")));
        assert!(!merges("left"), "who is refused changes nothing");
        // Other frames of it are another's to forward, and whoever reads them does no harm.
        let reads = LinkOptions { forwards: false, ..circuit.clone() };
        for options in [core(None), core(Some(7)), reads] {
            other.handle.add_link(RIGHT, &options).unwrap();
            other.wait_up(RIGHT);
            other.remove(ON_LEFT, RIGHT);
        }
        bench.handle.add_link(BESIDE, &core(Some(7))).unwrap();
        bench.wait_up(BESIDE);
        assert!(refused(&core(Some(7))).ends_with(&format!("/88b5.7/{index}")));
        bench.remove(ON_LEFT, BESIDE);

        // One that is down is still the first one's.
        set_up("left", false);
        assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(LEFT)));
        refused(&circuit);
        set_up("left", true);
        bench.wait_up(LEFT);
        // When it is made anew, so is the claim, with another number.
        delete("left");
        assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(LEFT)));
        assert!(make_pair("left", "right", 1));
        prepare_pair();
        wait_for("the link is up", || bench.stats_of(LEFT).up);
        let anew = number();
        assert_ne!(anew, index);
        assert!(refused(&circuit).ends_with(&format!("/all/{anew}")));

        bench.handle.remove_link(LEFT);
        // A test that starts a program beside this one may hold the name a moment longer.
        let mut seen = None;
        wait_for("the second one has it", || {
            seen = Some(other.handle.add_link(LEFT, &circuit));
            !matches!(&seen, Some(Err(error)) if error.kind() == ErrorKind::AddrInUse)
        });
        seen.unwrap().unwrap();
        other.wait_up(LEFT);
        // Nor is it held by one that has stopped.
        let error = bench.handle.add_link(LEFT, &circuit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        other.handle.stop();
        wait_for("the first one has it again", || bench.handle.add_link(LEFT, &circuit).is_ok());
    });
}

#[test]
fn what_may_not_be_switched_off_is_refused_with_what_to_type() {
    on_each("what_may_not_be_switched_off_is_refused_with_what_to_type", |bench| {
        merge("left");
        let mut rights = rustix::thread::capabilities(None).unwrap();
        rights.effective.remove(rustix::thread::CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, rights).unwrap();
        let circuit = bench.circuit("left");
        let speaks = speaks_ipv6("left");
        let text = bench.handle.add_link(LEFT, &circuit).unwrap_err().to_string();
        assert!(text.starts_with("interface left: GRO makes long frames"), "{text}");
        assert!(text.contains("`ethtool -K left gro off`"), "{text}");
        assert_eq!((merges("left"), speaks_ipv6("left")), (true, speaks));
        // Without a need there is no right to ask for.
        let reads = LinkOptions { forwards: false, ..circuit };
        assert_eq!(bench.handle.add_link(LEFT, &reads).unwrap().switched_off, []);
    });
}

#[test]
fn a_circuit_that_cannot_be_is_refused_with_why() {
    on_each("a_circuit_that_cannot_be_is_refused_with_why", |bench| {
        let refused = |options: LinkOptions| {
            bench.handle.add_link(LEFT, &options).expect_err("it must be refused").to_string()
        };
        let circuit = || bench.circuit("left");
        let text = refused(LinkOptions { vlan: Some(5), ..circuit() });
        assert!(text.contains("ip link add link left name left.5 type vlan id 5"), "{text}");
        let text = refused(LinkOptions { access: LinkAccess::Xdp, ..circuit() });
        assert!(text.contains("use packet sockets"), "{text}");
        let spreads = [
            Spread::Steered(everything(), vec![Instruction::ret(0)]),
            Spread::Each(vec![everything()]),
        ];
        for spread in spreads {
            let intake = Intake { takes: Takes::Whole, spread };
            let text = refused(LinkOptions { intake, ..circuit() });
            assert!(text.contains("for one shard"), "{text}");
        }
    });
}
