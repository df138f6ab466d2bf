//! Circuits: links that take every frame of an interface, whoever it is for.

use super::*;
use net::{promiscuity, silence_ipv6};

/// Another link on the circuit's interface: what the host has there beside.
const BESIDE: LinkId = LinkId(4);
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Another type for experiments, which the links beside do not take.
const OTHER: [u8; 2] = [0x88, 0xb6];

impl Bench {
    fn circuit(&self, interface: &str) -> LinkOptions {
        let intake = Intake { takes: Takes::Whole, spread: one(ON_LEFT) };
        LinkOptions { intake, ..self.options(interface, None, one(ON_LEFT)) }
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
