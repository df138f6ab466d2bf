//! Next hops that are known by an address of IP: nobody knows where they are, they are found, move,
//! and are lost again.

use core::net::{IpAddr, Ipv4Addr};

use contract::{InFrame, LinkFacts, VirtualLinks};
use testkit::Pages;
use wire::bfd::Diagnostic;

use super::neighbour::{AROUND, BACKUP, Beside, FACTS, N, PRIMARY, R, goes, neighbour, primary};
use super::*;
use crate::{Change, Event, Forwarder, HopState, Neighbour, Path, PortKind, Via};

const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn resolve(mac: Option<MacAddress>) -> Change {
    Change::Resolve(core(2), THERE, mac)
}

/// Labels 300 and 301 are swapped, one towards an address of IP on port 2, the other one towards one
/// of Ethernet there. All ports are up.
fn forwarder() -> Forwarder {
    let mut it = Forwarder::new(7);
    for number in 1..=2 {
        let port = Change::SetPort(core(number), PortKind::Core(Core::default()));
        it.change(NOW, R, port).unwrap();
        it.handle_link(NOW, core(number), Some(FACTS));
    }
    for (number, via) in [(1, Via::Ip(THERE)), (2, Via::Mac(AROUND))] {
        let (via, labels) = (Some(via), labels(&[800 + number]));
        let path = Path { port: core(2), via, labels, mtu: None, backup: None };
        it.change(NOW, R, Change::SetPath(NhlfeId(number), path)).unwrap();
        let (space, label, fec) = (Space::Platform, label(299 + number), FecId(number));
        let action = Action::Forward(NhlfeId(number));
        it.change(NOW, R, Change::SetLabel { space, label, fec, action }).unwrap();
    }
    it
}

/// Where a packet with a label goes; `None`: nowhere.
fn to(it: &mut Forwarder, number: u32) -> Option<MacAddress> {
    let bytes = stack(&[entry(number, true)], &FRAME);
    let frame = [&OWN.0[..], &NEIGHBOUR.0, &EtherType::MPLS.0.to_be_bytes(), &bytes].concat();
    assert!(it.receive(NOW, &InFrame::new(core(1), None, &frame)).is_none());
    let batch = it.poll_batch()?;
    let [(link, bytes)] = &batch.to_frames(&Pages::new())[..] else { panic!("{batch:?}") };
    assert_eq!(*link, core(2));
    let mac = MacAddress(*bytes.first_chunk().expect("a header"));
    it.handle_sent(batch);
    Some(mac)
}

fn unresolved(it: &Forwarder) -> u64 {
    it.report(NOW, R).unwrap().ports[0].drops.of(DropReason::Unresolved)
}

#[test]
fn packets_to_a_next_hop_that_nobody_found_are_dropped_by_that_name_and_others_go_on() {
    let mut it = forwarder();
    assert_eq!((to(&mut it, 300), to(&mut it, 301)), (None, Some(AROUND)));
    assert_eq!(unresolved(&it), 1);
    it.change(NOW, R, resolve(Some(NEIGHBOUR))).unwrap();
    assert_eq!((to(&mut it, 300), to(&mut it, 301)), (Some(NEIGHBOUR), Some(AROUND)));
    // Elsewhere now; what was counted goes on.
    let moved = MacAddress([2, 0, 0, 0, 0, 7]);
    it.change(NOW, R, resolve(Some(moved))).unwrap();
    assert_eq!((to(&mut it, 300), to(&mut it, 301)), (Some(moved), Some(AROUND)));
    assert_eq!(it.report(NOW, R).unwrap().nhlfes[0].counters.packets, 2);
    it.change(NOW, R, resolve(None)).unwrap();
    assert_eq!((to(&mut it, 300), unresolved(&it)), (None, 2));
    // The same address on another port is somebody else.
    it.change(NOW, R, Change::Resolve(core(1), THERE, Some(NEIGHBOUR))).unwrap();
    assert_eq!((to(&mut it, 300), unresolved(&it)), (None, 3));
}

#[test]
fn where_a_next_hop_is_may_be_told_before_anything_goes_there() {
    let mut it = forwarder();
    it.change(NOW, R, resolve(Some(NEIGHBOUR))).unwrap();
    for change in [Change::RemovePath(NhlfeId(1)), Change::RemovePort(core(2))] {
        it.change(NOW, R, change).unwrap();
    }
    let port = Change::SetPort(core(2), PortKind::Core(Core::default()));
    it.change(NOW, R, port).unwrap();
    let (via, labels) = (Some(Via::Ip(THERE)), labels(&[801]));
    let path = Path { port: core(2), via, labels, mtu: None, backup: None };
    it.change(NOW, R, Change::SetPath(NhlfeId(1), path)).unwrap();
    it.handle_link(NOW, core(2), Some(FACTS));
    assert_eq!(to(&mut it, 300), Some(NEIGHBOUR));
    // A path that goes while it is not resolved leaves nothing behind.
    it.change(NOW, R, resolve(None)).unwrap();
    it.change(NOW, R, Change::RemovePath(NhlfeId(1))).unwrap();
    assert_eq!((to(&mut it, 300), to(&mut it, 301)), (None, Some(AROUND)));
}

/// As in [`Beside`], but nobody is watched, and the primary next hop is known by its address of IP.
fn unwatched() -> Beside {
    let mut beside = Beside::new();
    let path = Path { via: Some(Via::Ip(THERE)), ..primary() };
    for change in
        [Change::RemoveNeighbour(N), resolve(Some(NEIGHBOUR)), Change::SetPath(NhlfeId(1), path)]
    {
        beside.it.change(beside.now, R, change).unwrap();
    }
    beside
}

#[test]
fn packets_go_around_a_next_hop_for_as_long_as_it_is_not_resolved() {
    let mut beside = unwatched();
    goes(&mut beside, PRIMARY);
    beside.it.change(beside.now, R, resolve(None)).unwrap();
    goes(&mut beside, BACKUP);
    beside.it.change(beside.now, R, resolve(Some(AROUND))).unwrap();
    goes(&mut beside, PRIMARY);
    // Nothing is amiss for ever: a path that was not resolved goes with what was counted of it.
    beside.it.change(beside.now, R, resolve(None)).unwrap();
    beside.it.change(beside.now, R, Change::SetPath(NhlfeId(1), primary())).unwrap();
    goes(&mut beside, PRIMARY);
    // A way around that is not resolved either is not taken.
    let around = Path { backup: None, ..primary() };
    let around = Path { port: core(3), via: Some(Via::Ip(THERE)), ..around };
    beside.it.change(beside.now, R, Change::SetPath(NhlfeId(2), around)).unwrap();
    beside.it.handle_link(beside.now, core(2), None);
    goes(&mut beside, PRIMARY);
}

fn by_ip() -> Neighbour {
    Neighbour { via: Via::Ip(THERE), ..neighbour() }
}

#[test]
fn a_neighbour_that_was_resolved_and_is_not_comes_back_after_the_wait() {
    let mut beside = unwatched();
    beside.it.change(beside.now, R, resolve(None)).unwrap();
    beside.it.change(beside.now, R, Change::SetNeighbour(N, by_ip())).unwrap();
    beside.pass(4_000);
    goes(&mut beside, BACKUP);
    beside.take_events();
    // One that never was resolved has lost nothing: it is taken at once.
    beside.it.change(beside.now, R, resolve(Some(NEIGHBOUR))).unwrap();
    goes(&mut beside, PRIMARY);
    assert_eq!((beside.state(), beside.take_events()), (HopState::Up, vec![]));
    beside.it.change(beside.now, R, resolve(None)).unwrap();
    goes(&mut beside, BACKUP);
    beside.pass(10);
    assert_eq!(beside.state(), HopState::Failed);
    assert_eq!(beside.take_events(), [Event::NeighbourMoved(N, Way::Backup)]);
    beside.it.change(beside.now, R, resolve(Some(NEIGHBOUR))).unwrap();
    beside.pass(4_900);
    goes(&mut beside, BACKUP);
    assert_eq!(beside.state(), HopState::Waiting);
    beside.pass(200);
    goes(&mut beside, PRIMARY);
}

#[test]
fn a_path_and_its_neighbour_meet_by_where_both_are() {
    for (path, near) in [
        (Via::Ip(THERE), Via::Mac(NEIGHBOUR)),
        (Via::Mac(NEIGHBOUR), Via::Ip(THERE)),
        (Via::Ip(THERE), Via::Ip(THERE)),
    ] {
        let mut beside = Beside::new();
        for change in [
            resolve(Some(NEIGHBOUR)),
            Change::SetPath(NhlfeId(1), Path { via: Some(path), ..primary() }),
            Change::SetNeighbour(N, Neighbour { via: near, ..neighbour() }),
        ] {
            beside.it.change(beside.now, R, change).unwrap();
        }
        beside.pass(4_000);
        goes(&mut beside, PRIMARY);
        beside.is_cut = true;
        beside.pass(200);
        goes(&mut beside, BACKUP);
        // By where it was last, too, while nobody knows where it is.
        beside.it.change(beside.now, R, resolve(None)).unwrap();
        goes(&mut beside, BACKUP);
    }
}

#[test]
fn a_neighbour_that_is_known_by_its_other_address_keeps_its_session() {
    let mut beside = Beside::up();
    let ups = |beside: &Beside| {
        let report = beside.it.report(beside.now, R).unwrap().neighbours[0];
        report.session.map(|session| session.status.state)
    };
    let up = ups(&beside);
    beside.it.change(beside.now, R, resolve(Some(NEIGHBOUR))).unwrap();
    beside.it.change(beside.now, R, Change::SetNeighbour(N, by_ip())).unwrap();
    assert_eq!((ups(&beside), beside.take_events()), (up, vec![]));
    // Where somebody else is, it is another one.
    beside.it.change(beside.now, R, resolve(None)).unwrap();
    let elsewhere = Neighbour { via: Via::Mac(AROUND), ..neighbour() };
    beside.it.change(beside.now, R, Change::SetNeighbour(N, elsewhere)).unwrap();
    assert_ne!(ups(&beside), up);
}

#[test]
fn a_watched_path_fails_with_its_next_hop_and_not_after_the_time_of_detection() {
    let mut pair = super::protection::Pair::up();
    let now = pair.now;
    let there = Path {
        port: core(1),
        via: Some(Via::Ip(THERE)),
        labels: Labels::NONE,
        mtu: None,
        backup: None,
    };
    let at = Change::Resolve(core(1), THERE, Some(MacAddress([2, 0, 0, 0, 1, 1])));
    for change in [at.clone(), Change::SetPath(NhlfeId(1), there)] {
        pair.ends[0].change(now, R, change).unwrap();
    }
    pair.pass(10);
    assert_eq!(pair.way(0), Way::Primary);
    pair.ends[0].change(now, R, Change::Resolve(core(1), THERE, None)).unwrap();
    assert_eq!(pair.way(0), Way::Backup);
    pair.pass(1);
    let down = Event::Down(PseudowireId(1), Way::Primary, Diagnostic::PATH_DOWN);
    assert!(pair.take_events(0).contains(&down));
    let now = pair.now;
    pair.ends[0].change(now, R, at).unwrap();
    pair.pass(10_000);
    assert_eq!(pair.way(0), Way::Primary);
}

#[test]
fn a_virtual_link_is_down_while_the_next_hop_of_its_path_is_not_resolved() {
    let (mut it, inside) = (forwarder(), LinkId(21));
    let mac = MacAddress([6, 0, 0, 0, 0, 1]);
    it.change(NOW, R, Change::SetPort(inside, PortKind::Virtual { mac })).unwrap();
    let wire = Pseudowire { fec: Fec::all_of(inside), nhlfe: NhlfeId(1), ..pseudowire() };
    it.change(NOW, R, Change::SetPseudowire(PseudowireId(1), wire)).unwrap();
    let up = |it: &mut Forwarder| -> Vec<bool> {
        let news = core::iter::from_fn(|| it.poll_link());
        news.map(|(_, facts): (LinkId, Option<LinkFacts>)| facts.is_some()).collect()
    };
    assert_eq!(up(&mut it), [false; 0]);
    it.change(NOW, R, resolve(Some(NEIGHBOUR))).unwrap();
    assert_eq!(up(&mut it), [true]);
    it.change(NOW, R, resolve(None)).unwrap();
    assert_eq!(up(&mut it), [false]);
}
