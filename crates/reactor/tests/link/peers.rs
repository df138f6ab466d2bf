//! Links through IP: payloads that come and go by datagrams, between addresses of the test's own
//! loopback interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use reactor::{Datagrams, PeerOptions};
use socket2::{Domain, Protocol, Socket, Type};

use super::*;
use net::{forget_path_mtus_after, give_address, index_of, take_address};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const LO: &str = "lo";
/// The service of both ends.
const PORT: u16 = 3784;

fn from_to(local: IpAddr, peer: IpAddr, datagrams: Datagrams, shard: ShardId) -> PeerOptions {
    let (local, neighbour_on) = (Some(local), None);
    PeerOptions { peer, local, datagrams, neighbour_on, shard, poll: Poll::Auto }
}

fn udp(local_port: u16, peer_port: u16) -> Datagrams {
    Datagrams::Udp { local_port, peer_port }
}

/// The two ends, of the left link and the right one.
fn ends(datagrams: [Datagrams; 2], [left, right]: [IpAddr; 2]) -> [PeerOptions; 2] {
    [from_to(left, right, datagrams[0], ON_LEFT), from_to(right, left, datagrams[1], ON_RIGHT)]
}

impl Bench {
    /// Both ends are up; what is known of the left one.
    fn add_ends(&self, [left, right]: [PeerOptions; 2]) -> LinkFacts {
        let added = self.handle.add_peer(LEFT, &left).unwrap();
        assert_eq!(self.wait_up(LEFT), added.facts);
        self.handle.add_peer(RIGHT, &right).unwrap();
        self.wait_up(RIGHT);
        added.facts
    }

    fn remove_ends(&self) {
        self.remove(ON_LEFT, LEFT);
        self.remove(ON_RIGHT, RIGHT);
    }

    /// What the right end is shown of frames that the left one sends, and the other way.
    fn exchange(&self, frames: usize, length: usize) {
        for (shard, from, to) in [(ON_LEFT, LEFT, RIGHT), (ON_RIGHT, RIGHT, LEFT)] {
            let payload = |number: usize| vec![number as u8; length];
            let parts = (0..frames).map(|number| {
                let (head, data) = (payload(number)[..9].to_vec(), payload(number)[9..].to_vec());
                with_data(from, head, data)
            });
            self.send(shard, 7, parts.collect());
            let shown = self.shown((7, frames), frames);
            for (number, (_, link, tag, bytes)) in shown.into_iter().enumerate() {
                assert_eq!((link, tag, bytes), (to, None, payload(number)));
            }
        }
    }

    /// Nothing is shown of what was sent before this frame, which is.
    fn only(&self, shard: ShardId, from: LinkId, to: LinkId) {
        self.send(shard, 9, vec![whole(from, vec![0x77; 40])]);
        let shown = self.shown((9, 1), 1);
        assert_eq!((shown[0].1, &shown[0].3), (to, &vec![0x77; 40]));
    }
}

#[test]
fn payloads_come_and_go_whole_by_udp_and_gre_of_both_families() {
    on_each("peers::payloads_come_and_go_whole_by_udp_and_gre_of_both_families", |bench| {
        set_up(LO, true);
        set_mtu(LO, 1500);
        let gre = [Datagrams::Gre; 2];
        let both_ways = [udp(1701, 1702), udp(1702, 1701)];
        let apart = [Datagrams::UdpTo { port: PORT }; 2];
        for (datagrams, addresses, mtu) in [
            (both_ways, [HERE, THERE], 1500 - 28),
            (both_ways, [SIX, SIX], 1500 - 48),
            (apart, [HERE, THERE], 1500 - 28),
            (gre, [HERE, THERE], 1500 - 20),
        ] {
            let facts = bench.add_ends(ends(datagrams, addresses));
            assert_eq!((facts.mac, facts.mtu, facts.is_shared), ([0; 6], mtu, false));
            // More than a call takes, and more than a turn shows.
            bench.exchange(150, 60);
            bench.exchange(3, mtu as usize);
            let counted = bench.counted(LEFT);
            assert_eq!((counted.received, counted.sent), (153, 153));
            assert_eq!(bench.stats_of(LEFT).method, "datagrams");
            bench.remove_ends();
        }
        // There is one address of IPv6, whose socket hears itself.
        let both = from_to(SIX, SIX, Datagrams::Gre, ON_LEFT);
        bench.handle.add_peer(LEFT, &both).unwrap();
        assert_eq!(bench.wait_up(LEFT).mtu, 1500 - 40);
        bench.only(ON_LEFT, LEFT, LEFT);
    });
}

#[test]
fn nobody_else_is_heard_nor_a_neighbour_beyond_a_router() {
    on_each("peers::nobody_else_is_heard_nor_a_neighbour_beyond_a_router", |bench| {
        set_up(LO, true);
        let neighbour_on = Some(LO.to_owned());
        let apart = Datagrams::UdpTo { port: PORT };
        let near = ends([apart; 2], [HERE, THERE]);
        bench.add_ends(near.map(|end| PeerOptions { neighbour_on: neighbour_on.clone(), ..end }));
        let say = |from: Ipv4Addr, hops: u32| {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.set_ttl(hops).unwrap();
            socket.send_to(&[0x55; 40], (HERE, PORT)).unwrap();
        };
        let IpAddr::V4(there) = THERE else { unreachable!() };
        say(STRANGER, 255);
        say(there, 254);
        say(there, 64);
        bench.only(ON_RIGHT, RIGHT, LEFT);
        say(there, 255);
        let (_, Report::Frame(LEFT, None, bytes)) = bench.next() else { panic!("it is not heard") };
        assert_eq!(bytes, [0x55; 40]);
        bench.remove_ends();

        // One that is no neighbour comes over as many routers as it likes, and another still not.
        bench.add_ends(ends([udp(PORT, 1701), udp(1701, PORT)], [HERE, THERE]));
        say(STRANGER, 255);
        say(there, 255);
        bench.only(ON_RIGHT, RIGHT, LEFT);
    });
}

#[test]
fn neighbours_of_ipv6_meet_on_their_cable_and_nobody_comes_over_a_router() {
    let name = "peers::neighbours_of_ipv6_meet_on_their_cable_and_nobody_comes_over_a_router";
    on_each(name, |bench| {
        let apart = Datagrams::UdpTo { port: PORT };
        let end = |interface: &str, peer: Ipv6Addr, shard| PeerOptions {
            local: None,
            neighbour_on: Some(interface.to_owned()),
            ..from_to(SIX, peer.into(), apart, shard)
        };
        // The addresses that interfaces give themselves, once they know that nobody else has them.
        bench.handle.add_peer(LEFT, &end("left", LINK_LOCAL[1], ON_LEFT)).unwrap();
        bench.handle.add_peer(RIGHT, &end("right", LINK_LOCAL[0], ON_RIGHT)).unwrap();
        let mut up = [bench.next(), bench.next()];
        up.sort_by_key(|(shard, _)| shard.index());
        for ((shard, report), link) in up.into_iter().zip([LEFT, RIGHT]) {
            let Report::LinkUp(seen, facts) = report else { panic!("{shard:?}: {report:?}") };
            assert_eq!((seen, facts.mtu), (link, 1500 - 48));
        }
        bench.exchange(40, 1500 - 48);
        let say = |hops: u32| {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
            socket.set_unicast_hops_v6(hops).unwrap();
            let right = index_of("right") as u32;
            socket.bind(&SocketAddrV6::new(LINK_LOCAL[1], 0, 0, right).into()).unwrap();
            let to = SocketAddrV6::new(LINK_LOCAL[0], PORT, 0, right);
            socket.send_to(&[0x55; 40], &to.into()).unwrap();
        };
        say(254);
        say(64);
        bench.only(ON_RIGHT, RIGHT, LEFT);
        say(255);
        assert_eq!(bench.next(), (ON_LEFT, Report::Frame(LEFT, None, vec![0x55; 40])));
    });
}

/// What [`LEFT_MAC`] and [`RIGHT_MAC`] give themselves (RFC 4291, appendix A).
const LINK_LOCAL: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x00ff, 0xfe00, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x00ff, 0xfe00, 2),
];

#[test]
fn two_neighbours_have_a_port_each_has() {
    on_each("peers::two_neighbours_have_a_port_each_has", |bench| {
        set_up(LO, true);
        let apart = Datagrams::UdpTo { port: PORT };
        let [left, right] = ends([apart; 2], [HERE, THERE]);
        let other = from_to(HERE, STRANGER.into(), apart, ON_LEFT);
        bench.add_ends([left, right]);
        bench.handle.add_peer(BESIDE, &other).unwrap();
        bench.wait_up(BESIDE);
        let socket = UdpSocket::bind((STRANGER, 0)).unwrap();
        socket.send_to(&[0x66; 40], (HERE, PORT)).unwrap();
        let heard = bench.next();
        assert_eq!(heard, (ON_LEFT, Report::Frame(BESIDE, None, vec![0x66; 40])));
        bench.only(ON_RIGHT, RIGHT, LEFT);
        // A port that somebody has for all is not to be had.
        let taken = UdpSocket::bind((HERE, 1701)).unwrap();
        let error = bench.handle.add_peer(LinkId(9), &from_to(HERE, THERE, udp(1701, 1), ON_LEFT));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let text = "UDP to 127.0.0.2:1: port 1701 of 127.0.0.1 is another's";
        assert_eq!(error.to_string(), text);
        drop(taken);
    });
}

#[test]
fn a_path_is_told_when_it_is_there_takes_less_or_more_or_is_gone() {
    on_each("peers::a_path_is_told_when_it_is_there_takes_less_or_more_or_is_gone", |bench| {
        let [left, right] = ends([udp(1, 2), udp(2, 1)], [HERE, THERE]);
        let added = bench.handle.add_peer(LEFT, &left).unwrap();
        assert_eq!(added.facts.mtu, 0, "loopback is down");
        set_mtu(LO, 1500);
        set_up(LO, true);
        assert_eq!(bench.wait_up(LEFT).mtu, 1472);
        bench.handle.add_peer(RIGHT, &right).unwrap();
        bench.wait_up(RIGHT);
        bench.exchange(3, 1472);
        for mtu in [1400, 9000, 1300] {
            set_mtu(LO, mtu);
            let mut told = [bench.next(), bench.next()];
            told.sort_by_key(|(shard, _)| shard.index());
            for ((shard, report), link) in told.into_iter().zip([LEFT, RIGHT]) {
                let Report::LinkUp(seen, facts) = report else { panic!("{shard:?}: {report:?}") };
                assert_eq!((seen, facts.mtu), (link, mtu - 28));
            }
            bench.exchange(3, mtu as usize - 28);
        }
        // What does not fit is not cut in pieces.
        bench.send(ON_LEFT, 5, vec![whole(LEFT, vec![0x44; 1273])]);
        assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(5, 1)));
        bench.only(ON_LEFT, LEFT, RIGHT);
        assert_eq!(bench.counted(LEFT).send_failed, 1);
        bench.remove_ends();
        // Behind an interface that goes and comes.
        let far = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let beyond = PeerOptions { local: None, ..from_to(far, far, udp(1, 2), ON_LEFT) };
        assert_eq!(bench.handle.add_peer(BESIDE, &beyond).unwrap().facts.mtu, 0);
        for _ in 0..2 {
            give_address("left", [10, 0, 0, 1]);
            assert_eq!(bench.wait_up(BESIDE).mtu, 1472);
            set_up("left", false);
            assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(BESIDE)));
            set_up("left", true);
            assert_eq!(bench.wait_up(BESIDE).mtu, 1472);
            take_address("left", [10, 0, 0, 1]);
            assert_eq!(bench.next(), (ON_LEFT, Report::LinkDown(BESIDE)));
        }
    });
}

#[test]
fn a_router_on_the_path_that_takes_less_is_believed_until_the_kernel_forgets() {
    let name = "peers::a_router_on_the_path_that_takes_less_is_believed_until_the_kernel_forgets";
    on_each(name, |bench| {
        set_up(LO, true);
        give_address("left", NEAR.octets());
        for (datagrams, protocol, around) in [(udp(1, 2), 17, 28), (Datagrams::Gre, 47, 20)] {
            forget_path_mtus_after(600);
            let beyond = from_to(NEAR.into(), FAR.into(), datagrams, ON_LEFT);
            let added = bench.handle.add_peer(LEFT, &beyond).unwrap();
            assert_eq!((bench.wait_up(LEFT), added.facts.mtu), (added.facts, 1500 - around));
            too_long(protocol, 1400);
            assert_eq!(bench.wait_up(LEFT).mtu, 1400 - around);
            // It is the kernel that refuses what is longer, and no piece of it leaves.
            let before = bench.counted(LEFT);
            bench.send(ON_LEFT, 5, vec![whole(LEFT, vec![0x44; 1401 - around as usize])]);
            assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(5, 1)));
            let after = bench.counted(LEFT);
            let grown = [after.send_failed - before.send_failed, after.sent - before.sent];
            assert_eq!(grown, [1, 0]);
            // Another answer, which the kernel soon forgets, maybe before anybody asks; it tells nobody.
            if forget_path_mtus_after(1) {
                too_long(protocol, 1300);
                let mut told = bench.wait_up(LEFT);
                if told.mtu == 1300 - around {
                    told = bench.wait_up(LEFT);
                }
                assert_eq!(told, added.facts);
            }
            bench.remove(ON_LEFT, LEFT);
        }
    });
}

/// Of the cable's left end, and of a host on it that does not answer.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// What a router answers to a packet from [`NEAR`] to [`FAR`] that is longer than its next wire takes
/// (RFC 1191): of UDP from port 1 to port 2, or of GRE.
fn too_long(protocol: u8, mtu: u16) {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend([0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    message.extend([NEAR.octets(), FAR.octets()].concat());
    message.extend([0, 1, 0, 2, 0, 0, 0, 0]);
    let words = message.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    socket.send_to(&message, &SocketAddr::from((NEAR, 0)).into()).unwrap();
}

#[test]
fn a_payload_longer_than_our_path_takes_finds_room_the_next_time() {
    let name = "peers::a_payload_longer_than_our_path_takes_finds_room_the_next_time";
    on_each(name, |bench| {
        set_up(LO, true);
        set_mtu(LO, 1500);
        let there = UdpSocket::bind((THERE, 2)).unwrap();
        bench.handle.add_peer(LEFT, &from_to(HERE, THERE, udp(1, 2), ON_LEFT)).unwrap();
        bench.wait_up(LEFT);
        // In fragments, of which the kernel makes one again. Nothing is shown of one that was cut.
        for (number, length) in [3000, 9000, 65_507].into_iter().enumerate() {
            there.send_to(&vec![0x21; length], (HERE, 1)).unwrap();
            there.send_to(&[0x22; 40], (HERE, 1)).unwrap();
            let heard = bench.next();
            assert_eq!(heard, (ON_LEFT, Report::Frame(LEFT, None, vec![0x22; 40])));
            assert_eq!(bench.counted(LEFT).unreadable, number as u64 + 1);
            there.send_to(&vec![0x23; length], (HERE, 1)).unwrap();
            let heard = bench.next();
            assert_eq!(heard, (ON_LEFT, Report::Frame(LEFT, None, vec![0x23; length])));
        }
        // And one without a byte is a frame as any.
        there.send_to(&[], (HERE, 1)).unwrap();
        assert_eq!(bench.next(), (ON_LEFT, Report::Frame(LEFT, None, Vec::new())));
    });
}

#[test]
fn a_link_that_goes_gives_all_batches_back() {
    on_each("peers::a_link_that_goes_gives_all_batches_back", |bench| {
        const BATCHES: u32 = 100;
        set_up(LO, true);
        bench.add_ends(ends([udp(1, 2), udp(2, 1)], [HERE, THERE]));
        for token in 1..=BATCHES {
            let frame = || with_data(LEFT, vec![1; 40], vec![2; 1000]);
            bench.send(ON_LEFT, token, (0..100).map(|_| frame()).collect());
        }
        bench.handle.remove_link(LEFT);
        let (mut back, mut is_down) = (1, false);
        while back <= BATCHES || !is_down {
            match bench.next() {
                (ON_LEFT, Report::FramesSent(token, 100)) if token == back => back += 1,
                (ON_LEFT, Report::LinkDown(LEFT)) => is_down = true,
                (ON_RIGHT, Report::Frame(RIGHT, None, bytes)) => assert_eq!(bytes.len(), 1040),
                other => panic!("expected batches and the end of the link, saw {other:?}"),
            }
        }
        bench.nothing_is_lent_beside_frames(ON_LEFT);
        // And the port is free for the next one.
        bench.handle.add_peer(BESIDE, &from_to(HERE, THERE, udp(1, 2), ON_LEFT)).unwrap();
    });
}

#[test]
fn a_peer_that_hears_nothing_ends_nothing() {
    on_each("peers::a_peer_that_hears_nothing_ends_nothing", |bench| {
        set_up(LO, true);
        let [left, right] = ends([udp(1, 2), udp(2, 1)], [HERE, THERE]);
        bench.handle.add_peer(LEFT, &left).unwrap();
        bench.wait_up(LEFT);
        // ICMP says that the port is nobody's.
        for token in 1..=20 {
            bench.send(ON_LEFT, token, vec![whole(LEFT, vec![0x33; 40]); 3]);
            assert_eq!(bench.next(), (ON_LEFT, Report::FramesSent(token, 3)));
        }
        bench.handle.add_peer(RIGHT, &right).unwrap();
        bench.wait_up(RIGHT);
        // An answer to the last of them may still be on its way.
        bench.send(ON_LEFT, 21, vec![whole(LEFT, vec![0x33; 40]); 2]);
        bench.shown((21, 2), 1);
        wait_for_rest(&bench.handle);
        bench.nothing_is_lent_beside_frames(ON_LEFT);
    });
}

#[test]
fn what_finds_no_room_is_counted_and_the_link_recovers() {
    static GATE: Mutex<()> = Mutex::new(());
    on_each("peers::what_finds_no_room_is_counted_and_the_link_recovers", |bench| {
        set_up(LO, true);
        bench.add_ends(ends([udp(1, 2), udp(2, 1)], [HERE, THERE]));
        let closed = GATE.lock().unwrap();
        let wait = Command::Call(|| drop(GATE.lock().unwrap()));
        bench.handle.send(ON_LEFT, Note::Command(wait));
        let begin = Clock::now();
        let mut sent = 0;
        while bench.counted(LEFT).dropped == 0 {
            bench.send(ON_RIGHT, 1, vec![whole(RIGHT, vec![1; 1000]); 500]);
            assert_eq!(bench.next(), (ON_RIGHT, Report::FramesSent(1, 500)));
            sent += 500;
            assert!(begin.elapsed() < HANG, "nothing is dropped: {:#?}", bench.stats());
        }
        drop(closed);
        bench.send(ON_RIGHT, 2, vec![whole(RIGHT, vec![2; 40])]);
        let mut shown = 0;
        loop {
            match bench.next() {
                (_, Report::Frame(LEFT, None, bytes)) if bytes.len() == 1000 => shown += 1,
                (_, Report::Frame(LEFT, None, _)) => break,
                (_, Report::FramesSent(2, 1)) => {
                    // The room that there is for it is made by what is shown.
                    bench.send(ON_RIGHT, 2, vec![whole(RIGHT, vec![2; 40])]);
                }
                other => panic!("expected frames, saw {other:?}"),
            }
        }
        let counted = bench.counted(LEFT);
        assert!(shown >= counted.ring_frames / 2, "{shown} were shown: {counted:?}");
        assert!(shown + counted.dropped >= sent, "{shown} of {sent}: {counted:?}");
    });
}

#[test]
fn a_quiet_link_costs_no_turns() {
    on_each("peers::a_quiet_link_costs_no_turns", |bench| {
        set_up(LO, true);
        bench.add_ends(ends([udp(1, 2), udp(2, 1)], [HERE, THERE]));
        bench.exchange(3, 60);
        wait_for_rest(&bench.handle);
    });
}

#[test]
fn numbers_are_those_of_all_links() {
    on_each("peers::numbers_are_those_of_all_links", |bench| {
        set_up(LO, true);
        let [left, _] = ends([udp(1, 2), udp(2, 1)], [HERE, THERE]);
        bench.handle.add_peer(LEFT, &left).unwrap();
        bench.wait_up(LEFT);
        let options = bench.options("left", None, one(ON_LEFT));
        let text = "interface left: there is a link of this number already; remove that one first";
        assert_eq!(bench.handle.add_link(LEFT, &options).unwrap_err().to_string(), text);
        let error = bench.handle.add_peer(LEFT, &left).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        bench.remove(ON_LEFT, LEFT);
        bench.handle.add_link(LEFT, &options).unwrap();
        bench.wait_up(LEFT);
        assert!(bench.handle.add_peer(LEFT, &left).is_err());
    });
}
