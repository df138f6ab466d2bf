//! Tunnels through IP: what is put in front of a frame and taken off, and which packets are whose.
//! Port 21 is one of GRE, port 22 one of L2TPv3; tunnel 1 goes by the one, tunnel 2 by the other.

use core::num::NonZeroU32;
use core::time::Duration;

use wire::l2tp::Cookie;

use super::*;
use crate::{Refused, Session, SessionKey, Tunnel, TunnelId, TunnelPort};

const GRE: LinkId = LinkId(21);
const L2TP: LinkId = LinkId(22);

fn id(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn gre(number: u32) -> Tunnel {
    Tunnel {
        fec: Fec::all_of(circuit(number)),
        port: GRE,
        session: Session::Gre { key_in: Some(number), key_out: Some(100 + number) },
        sequencing: Sequencing::Drop,
    }
}

fn l2tp() -> Tunnel {
    Tunnel {
        fec: Fec::all_of(circuit(2)),
        port: L2TP,
        session: Session::L2tp {
            session_in: id(7),
            cookie_in: Cookie::Short([1, 2, 3, 4]),
            session_out: id(8),
            cookie_out: Cookie::Long([9; 8]),
            has_sublayer: true,
        },
        sequencing: Sequencing::Drop,
    }
}

fn tunnels() -> Router {
    let mut router = Router::default();
    for number in 1..=3 {
        router.set_port(circuit(number), Role::Circuit(Circuit::new(1500)));
    }
    router.set_port(GRE, Role::Tunnels { kind: TunnelPort::Gre, mtu: 1480 });
    router.set_port(L2TP, Role::Tunnels { kind: TunnelPort::L2tp, mtu: 1472 });
    router.set_tunnel(TunnelId(1), gre(1)).unwrap();
    router.set_tunnel(TunnelId(2), l2tp()).unwrap();
    router
}

fn drops_of(router: &Router, number: u32) -> Drops {
    let tunnel = router.tunnels().find(|(id, ..)| *id == TunnelId(number));
    *tunnel.map(|(_, _, _, _, drops)| drops).unwrap()
}

/// A packet of GRE with these flags, options and a frame.
fn in_gre(flags: u8, options: &[u32]) -> Vec<u8> {
    let options: Vec<u8> = options.iter().flat_map(|word| word.to_be_bytes()).collect();
    [&[flags, 0, 0x65, 0x58], &options[..], &FRAME].concat()
}

fn in_l2tp(session: u32, cookie: &[u8], sublayer: u32) -> Vec<u8> {
    [&[0, 3, 0, 0][..], &session.to_be_bytes(), cookie, &sublayer.to_be_bytes(), &FRAME].concat()
}

const NUMBERED: u32 = 0x4000_0000;

#[track_caller]
fn delivered(router: &mut Router, port: LinkId, packet: &[u8], number: u32) {
    let verdict = router.handle_tunnelled(NOW, port, packet);
    assert_eq!(verdict, Verdict::Deliver { circuit: circuit(number), frame: &FRAME });
}

#[track_caller]
fn refused(router: &mut Router, port: LinkId, packet: &[u8], reason: DropReason) {
    let before = drops(router, port).0.of(reason);
    assert_eq!(router.handle_tunnelled(NOW, port, packet), Verdict::Drop(reason));
    assert_eq!(drops(router, port).0.of(reason), before + 1);
}

#[test]
fn a_frame_enters_with_the_other_end_s_key_or_session_and_the_next_number() {
    let mut router = tunnels();
    for number in 0..3_u8 {
        let front = [0x30, 0, 0x65, 0x58, 0, 0, 0, 101, 0, 0, 0, number];
        let (port, packet) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
        assert_eq!((port, packet), (GRE.0, [&front[..], &FRAME].concat()));
        let front = [0, 3, 0, 0, 0, 0, 0, 8, 9, 9, 9, 9, 9, 9, 9, 9, 0x40, 0, 0, number];
        let (port, packet) = sent(router.handle_circuit(circuit(2), None, &FRAME), &router);
        assert_eq!((port, packet), (L2TP.0, [&front[..], &FRAME].concat()));
    }
    let (_, _, counters, ..) = router.tunnels().next().unwrap();
    assert_eq!((counters.sent, counters.sent_bytes), (3, 180));
}

#[test]
fn what_waits_for_a_circuit_reaches_no_other_one_that_has_its_tunnel_next() {
    let mut router = tunnels();
    let ordered = Tunnel { sequencing: Sequencing::Reorder, ..gre(1) };
    router.set_tunnel(TunnelId(1), ordered).unwrap();
    delivered(&mut router, GRE, &in_gre(0x30, &[1, 7]), 1);
    assert_eq!(router.handle_tunnelled(NOW, GRE, &in_gre(0x30, &[1, 9])), Verdict::Wait);
    router.set_tunnel(TunnelId(1), Tunnel { fec: gre(3).fec, ..ordered }).unwrap();
    assert_eq!(router.poll_early(NOW + Duration::from_secs(1)), None);
    delivered(&mut router, GRE, &in_gre(0x30, &[1, 8]), 3);
    assert_eq!(drops_of(&router, 1).no_circuit, 1);
}

#[test]
fn headers_have_the_size_that_is_said_of_them() {
    let mut router = tunnels();
    let no_cookie = Session::L2tp {
        session_in: id(7),
        cookie_in: Cookie::None,
        session_out: id(8),
        cookie_out: Cookie::None,
        has_sublayer: false,
    };
    for (tunnel, size) in [
        (gre(1), 12),
        (Tunnel { sequencing: Sequencing::Off, ..gre(1) }, 8),
        (Tunnel { session: Session::Gre { key_in: None, key_out: None }, ..gre(1) }, 8),
        (Tunnel { fec: gre(1).fec, ..l2tp() }, 20),
        (Tunnel { fec: gre(1).fec, session: no_cookie, sequencing: Sequencing::Off, ..l2tp() }, 8),
    ] {
        router.remove_tunnel(TunnelId(2));
        router.set_tunnel(TunnelId(1), tunnel).unwrap();
        let (_, packet) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
        assert_eq!(packet.len() - FRAME.len(), size);
        assert_eq!(tunnel.session.header_size(tunnel.sequencing), size);
    }
}

#[test]
fn a_frame_leaves_by_the_circuit_of_its_key_or_session() {
    let mut router = tunnels();
    let plain = Session::Gre { key_in: None, key_out: None };
    let without = Tunnel { session: plain, ..gre(3) };
    router.set_tunnel(TunnelId(3), without).unwrap();
    delivered(&mut router, GRE, &in_gre(0x20, &[1]), 1);
    delivered(&mut router, GRE, &in_gre(0, &[]), 3);
    delivered(&mut router, L2TP, &in_l2tp(7, &[1, 2, 3, 4], 0), 2);
    refused(&mut router, GRE, &in_gre(0x20, &[2]), DropReason::NoTunnel);
    refused(&mut router, GRE, &in_gre(0x20, &[101]), DropReason::NoTunnel);
    refused(&mut router, L2TP, &in_l2tp(8, &[1, 2, 3, 4], 0), DropReason::NoTunnel);
    // One kind's packets are nobody's on a port of the other.
    refused(&mut router, GRE, &in_l2tp(7, &[1, 2, 3, 4], 0), DropReason::Misformed);
    refused(&mut router, L2TP, &in_gre(0x20, &[1]), DropReason::Misformed);
    // Nor are labels looked at there, nor circuits asked.
    let labelled = packet(&[200, 100], 1);
    let labelled = router.handle_labelled(NOW, GRE, &labelled);
    assert_eq!(labelled, Verdict::Drop(DropReason::NotCore));
    refused(&mut router, circuit(1), &in_gre(0x20, &[1]), DropReason::NoTunnel);
    assert_eq!(
        router.handle_tunnelled(NOW, LinkId(9), &FRAME),
        Verdict::Drop(DropReason::NoTunnel)
    );
}

#[test]
fn who_does_not_know_the_cookie_reaches_no_circuit() {
    let mut router = tunnels();
    for cookie in [[1, 2, 3, 5], [0; 4], [9; 4]] {
        refused(&mut router, L2TP, &in_l2tp(7, &cookie, 0), DropReason::WrongCookie);
    }
    assert_eq!(drops_of(&router, 2).wrong_cookie, 3);
    let (_, _, counters, ..) = router.tunnels().nth(1).unwrap();
    assert_eq!(counters.delivered, 0);
}

#[test]
fn late_frames_are_dropped_in_both_kinds() {
    let mut router = tunnels();
    for (number, passes) in [(5, true), (6, true), (5, false), (9, true), (8, false)] {
        for (port, packet, circuit) in [
            (GRE, in_gre(0x30, &[1, number]), 1),
            (L2TP, in_l2tp(7, &[1, 2, 3, 4], NUMBERED | number), 2),
        ] {
            match passes {
                true => delivered(&mut router, port, &packet, circuit),
                false => refused(&mut router, port, &packet, DropReason::Late),
            }
        }
    }
    // The numbers go around, and one without a number passes.
    for (number, passes) in
        [(u32::MAX, false), (0x7fff_ffff, true), (u32::MAX - 5, true), (3, true)]
    {
        let packet = in_gre(0x30, &[1, number]);
        match passes {
            true => delivered(&mut router, GRE, &packet, 1),
            false => refused(&mut router, GRE, &packet, DropReason::Late),
        }
    }
    delivered(&mut router, GRE, &in_gre(0x20, &[1]), 1);
    let off = Tunnel { sequencing: Sequencing::Off, ..gre(1) };
    router.set_tunnel(TunnelId(1), off).unwrap();
    for number in [9, 2, 2] {
        delivered(&mut router, GRE, &in_gre(0x30, &[1, number]), 1);
    }
}

#[test]
fn what_is_no_whole_frame_in_a_header_of_its_kind_is_dropped() {
    let mut router = tunnels();
    let gre = in_gre(0x30, &[1, 1]);
    for length in 0..12 {
        refused(&mut router, GRE, &gre[..length], DropReason::Misformed);
    }
    for length in 12..26 {
        refused(&mut router, GRE, &gre[..length], DropReason::Runt);
    }
    let l2tp = in_l2tp(7, &[1, 2, 3, 4], 0);
    for length in 0..8 {
        refused(&mut router, L2TP, &l2tp[..length], DropReason::Misformed);
    }
    for length in 8..30 {
        refused(&mut router, L2TP, &l2tp[..length], DropReason::Runt);
    }
    let ip = [&[0x20, 0, 8, 0, 0, 0, 0, 1][..], &FRAME].concat();
    refused(&mut router, GRE, &ip, DropReason::NotEthernet);
    // None of them took a number.
    delivered(&mut router, GRE, &gre, 1);
}

#[test]
fn a_checksum_of_gre_is_looked_at_where_there_is_one() {
    let mut router = tunnels();
    let header = wire::gre::Header {
        has_checksum: true,
        key: Some(1),
        sequence: None,
        protocol_type: EtherType::TRANSPARENT_ETHERNET,
    };
    let sum = wire::checksum::Checksum::default().with(&FRAME);
    let mut packet = [&header.emit(sum)[..], &FRAME].concat();
    delivered(&mut router, GRE, &packet, 1);
    packet[40] ^= 1;
    refused(&mut router, GRE, &packet, DropReason::Misformed);
}

#[test]
fn what_is_larger_than_the_port_or_the_circuit_takes_is_dropped() {
    let mut router = tunnels();
    let mut frame = vec![0x5a; 1468];
    assert_eq!(sent(router.handle_circuit(circuit(1), None, &frame), &router).1.len(), 1480);
    frame.push(0);
    let over = router.handle_circuit(circuit(1), None, &frame);
    assert_eq!(over, Verdict::Drop(DropReason::OverMtu));
    assert_eq!(drops_of(&router, 1).over_mtu, 1);
    router.set_port(circuit(1), Role::Circuit(Circuit::new(46)));
    delivered(&mut router, GRE, &in_gre(0x30, &[1, 1]), 1);
    let longer = [&in_gre(0x30, &[1, 2])[..], &[0]].concat();
    refused(&mut router, GRE, &longer, DropReason::OverCircuitMtu);
}

#[test]
fn a_tunnel_may_become_another_one_while_frames_come() {
    let mut router = tunnels();
    delivered(&mut router, GRE, &in_gre(0x30, &[1, 50]), 1);
    sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    // The same again changes nothing.
    router.set_tunnel(TunnelId(1), gre(1)).unwrap();
    refused(&mut router, GRE, &in_gre(0x30, &[1, 50]), DropReason::Late);
    assert_eq!(sent(router.handle_circuit(circuit(1), None, &FRAME), &router).1[11], 1);
    // Another key is another other end, of whose numbers nothing is known.
    let key = Session::Gre { key_in: Some(5), key_out: Some(105) };
    router.set_tunnel(TunnelId(1), Tunnel { session: key, ..gre(1) }).unwrap();
    refused(&mut router, GRE, &in_gre(0x30, &[1, 51]), DropReason::NoTunnel);
    delivered(&mut router, GRE, &in_gre(0x30, &[5, 3]), 1);
    assert_eq!(sent(router.handle_circuit(circuit(1), None, &FRAME), &router).1[11], 2);
    // Another kind, whose numbers begin anew, and it counts on.
    router.remove_tunnel(TunnelId(2));
    router.set_tunnel(TunnelId(1), Tunnel { fec: gre(1).fec, ..l2tp() }).unwrap();
    let (port, packet) = sent(router.handle_circuit(circuit(1), None, &FRAME), &router);
    assert_eq!((port, packet[19]), (L2TP.0, 0));
    delivered(&mut router, L2TP, &in_l2tp(7, &[1, 2, 3, 4], NUMBERED | 1), 1);
    let (_, _, counters, ..) = router.tunnels().next().unwrap();
    assert_eq!((counters.sent, counters.delivered), (4, 3));
    router.remove_tunnel(TunnelId(1));
    let gone = router.handle_circuit(circuit(1), None, &FRAME);
    assert_eq!(gone, Verdict::Drop(DropReason::NoPseudowire));
}

#[test]
fn keys_sessions_and_circuits_are_one_tunnel_s() {
    let mut router = tunnels();
    let same_key = Tunnel { fec: gre(3).fec, ..gre(1) };
    let key = SessionKey::Gre(Some(1));
    let refused = router.set_tunnel(TunnelId(3), same_key);
    assert_eq!(refused, Err(Refused::SessionTaken { key, by: TunnelId(1) }));
    assert_eq!(refused.unwrap_err().to_string(), "GRE key 1 is that of tunnel 1");
    let same_circuit = Tunnel { fec: gre(1).fec, ..gre(3) };
    let by = Wire::Tunnel(TunnelId(1));
    let refused = router.set_tunnel(TunnelId(3), same_circuit);
    assert_eq!(refused, Err(Refused::FecTaken { fec: gre(1).fec, by }));
    let refused = router.set_pseudowire(NOW, PseudowireId(1), pseudowire());
    assert_eq!(refused, Err(Refused::FecTaken { fec: gre(1).fec, by }));
    let Session::L2tp { session_in, cookie_in, session_out, cookie_out, .. } = l2tp().session
    else {
        panic!("it is one of L2TP")
    };
    let without =
        Session::L2tp { session_in, cookie_in, session_out, cookie_out, has_sublayer: false };
    let refused = router.set_tunnel(TunnelId(2), Tunnel { session: without, ..l2tp() });
    assert_eq!(refused, Err(Refused::NoNumbers));
    // What was refused changed nothing.
    delivered(&mut router, GRE, &in_gre(0x20, &[1]), 1);
    delivered(&mut router, L2TP, &in_l2tp(7, &[1, 2, 3, 4], 0), 2);
}

#[test]
fn a_tunnel_whose_port_is_not_there_or_of_another_kind_sends_nothing() {
    let mut router = tunnels();
    router.remove_port(GRE);
    router.set_port(L2TP, Role::Tunnels { kind: TunnelPort::Gre, mtu: 1480 });
    for number in [1, 2] {
        let seen = router.handle_circuit(circuit(number), None, &FRAME);
        assert_eq!(seen, Verdict::Drop(DropReason::NoNextHop));
        assert_eq!(drops_of(&router, number).no_next_hop, 1);
    }
}
