//! A router beside a neighbour that is watched, and the way around the link between them. The
//! neighbour is a BFD session that is shown what is sent to it.

use core::time::Duration;

use bfd::{Carrier, Role as BfdRole, SessionState, Sessions, Settings};
use contract::{InFrame, LinkFacts, VirtualLinks};
use testkit::Pages;
use wire::bfd::Diagnostic;

use super::*;
use crate::{
    Change, Event, Forwarder, HopState, Neighbour, NeighbourId, Path, PortKind, RouterId, Via,
    Watch,
};

pub(super) const R: RouterId = RouterId(0);
pub(super) const N: NeighbourId = NeighbourId(4);
const BFD: LinkId = LinkId(9);
const WATCH: Watch =
    Watch { interval_us: 50_000, detect_mult: 3, revert_after: Duration::from_secs(5) };
const MS: u64 = 1_000_000;
pub(super) const AROUND: MacAddress = MacAddress([2, 0, 0, 0, 0, 3]);
pub(super) const FACTS: LinkFacts =
    LinkFacts { mac: OWN.0, mtu: 1600, vlan: None, ring_frames: 64, is_shared: false };

/// Label 300 is swapped for 800 to the neighbour on port 2, or goes around by port 3.
pub(super) struct Beside {
    pub(super) now: Instant,
    pub(super) it: Forwarder,
    peer: Sessions,
    /// Nobody hears the other.
    pub(super) is_cut: bool,
    events: Vec<Event>,
}

pub(super) fn neighbour() -> Neighbour {
    Neighbour { port: core(2), via: Via::Mac(NEIGHBOUR), bfd: BFD, watch: WATCH }
}

pub(super) fn primary() -> Path {
    let labels = labels(&[800]);
    Path {
        port: core(2),
        via: Some(Via::Mac(NEIGHBOUR)),
        labels,
        mtu: None,
        backup: Some(NhlfeId(2)),
    }
}

impl Beside {
    pub(super) fn new() -> Self {
        let mut it = Forwarder::new(1);
        let mut change = |change| it.change(NOW, R, change).unwrap();
        for number in 1..=3 {
            change(Change::SetPort(core(number), PortKind::Core(Core::default())));
        }
        change(Change::SetPort(BFD, PortKind::Bfd));
        let labels = labels(&[900, 800]);
        let around =
            Path { port: core(3), via: Some(Via::Mac(AROUND)), labels, mtu: None, backup: None };
        change(Change::SetPath(NhlfeId(2), around));
        change(Change::SetPath(NhlfeId(1), primary()));
        let action = Action::Forward(NhlfeId(1));
        let (space, fec) = (Space::Platform, FecId(1));
        change(Change::SetLabel { space, label: label(300), fec, action });
        change(Change::SetNeighbour(N, neighbour()));
        let settings = Settings {
            role: BfdRole::Active,
            desired_min_tx_interval_us: 50_000,
            required_min_rx_interval_us: 50_000,
            detect_mult: 3,
            is_carrier_bound: false,
        };
        let mut peer = Sessions::new(2);
        peer.add(NOW, Carrier(0), settings).unwrap();
        for link in [core(1), core(2), core(3), BFD] {
            it.handle_link(NOW, link, Some(FACTS));
        }
        Self { now: NOW, it, peer, is_cut: false, events: Vec::new() }
    }

    /// BFD is Up, and what was told of it is forgotten.
    pub(super) fn up() -> Self {
        let mut beside = Self::new();
        beside.pass(4_000);
        assert_eq!(beside.take_events(), [Event::NeighbourUp(N)]);
        beside
    }

    fn exchange(&mut self) {
        loop {
            let mut shown = false;
            while let Some(batch) = self.it.poll_batch() {
                for (link, bytes) in batch.to_frames(&Pages::new()) {
                    assert_eq!(link, BFD, "a neighbour hears BFD there alone");
                    shown = true;
                    if !self.is_cut {
                        // One that is switched off takes none.
                        let _ = self.peer.handle_packet(self.now, Carrier(0), &bytes);
                    }
                }
                self.it.handle_sent(batch);
            }
            while let Some((_, bytes)) = self.peer.poll_transmit(self.now) {
                shown = true;
                if !self.is_cut {
                    self.hear(BFD, &bytes);
                }
            }
            while let Some((_, event)) = self.it.poll_event() {
                self.events.push(event);
            }
            if !shown {
                return;
            }
        }
    }

    fn hear(&mut self, link: LinkId, bytes: &[u8]) {
        let frame = InFrame::new(link, None, bytes);
        assert!(self.it.receive(self.now, &frame).is_none());
    }

    /// Lets so many milliseconds pass.
    pub(super) fn pass(&mut self, milliseconds: u64) {
        let until = Instant(self.now.0 + milliseconds * MS);
        loop {
            self.exchange();
            let due = Instant::earliest(self.it.poll_timeout(), self.peer.poll_timeout());
            let Some(at) = due.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.it.handle_timeout(self.now);
            self.peer.handle_timeout(self.now);
        }
        self.now = until;
    }

    /// A packet with label 300 comes: by which port it leaves, and with which labels.
    pub(super) fn send(&mut self) -> (u32, Vec<u32>) {
        let bytes = stack(&[entry(300, true)], &FRAME);
        let frame = [&OWN.0[..], &NEIGHBOUR.0, &EtherType::MPLS.0.to_be_bytes(), &bytes].concat();
        self.hear(core(1), &frame);
        let batch = self.it.poll_batch().expect("it is sent");
        let [(link, bytes)] = &batch.to_frames(&Pages::new())[..] else { panic!("{batch:?}") };
        let packet = wire::mpls::LabelStack::parse(&bytes[14..], 4).unwrap();
        let labels = packet.entries().map(|entry| entry.label.get()).collect();
        let link = link.0;
        self.it.handle_sent(batch);
        (link, labels)
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    pub(super) fn state(&self) -> HopState {
        self.it.report(self.now, R).unwrap().neighbours[0].state
    }
}

pub(super) const PRIMARY: (u32, [u32; 1]) = (2, [800]);
pub(super) const BACKUP: (u32, [u32; 2]) = (3, [900, 800]);

#[track_caller]
pub(super) fn goes<const N: usize>(beside: &mut Beside, (port, labels): (u32, [u32; N])) {
    assert_eq!(beside.send(), (port, labels.to_vec()));
}

#[test]
fn packets_go_around_a_silent_neighbour_and_return_after_the_wait() {
    let mut beside = Beside::up();
    goes(&mut beside, PRIMARY);
    beside.is_cut = true;
    beside.pass(200);
    goes(&mut beside, BACKUP);
    let down = Event::NeighbourDown(N, Diagnostic::DETECTION_TIME_EXPIRED);
    let moved = |way| Event::NeighbourMoved(N, way);
    assert_eq!(beside.take_events(), [down, moved(Way::Backup)]);
    let ways = |beside: &Beside| -> Vec<(u32, Way)> {
        let report = beside.it.report(beside.now, R).unwrap();
        report.nhlfes.iter().map(|one| (one.id.0, one.way)).collect()
    };
    assert_eq!(ways(&beside), [(1, Way::Backup), (2, Way::Primary)]);
    beside.is_cut = false;
    beside.pass(4_500);
    assert_eq!(
        (beside.take_events(), beside.state()),
        (vec![Event::NeighbourUp(N)], HopState::Waiting)
    );
    goes(&mut beside, BACKUP);
    beside.pass(5_000);
    assert_eq!((beside.take_events(), beside.state()), (vec![moved(Way::Primary)], HopState::Up));
    goes(&mut beside, PRIMARY);
    let report = beside.it.report(beside.now, R).unwrap().neighbours[0];
    assert_eq!((report.protection.to_backup, report.protection.to_primary), (1, 1));
    assert_eq!(report.session.unwrap().status.state, SessionState::Up);
}

#[test]
fn a_neighbour_that_never_was_up_takes_nothing_away() {
    let mut beside = Beside::new();
    beside.is_cut = true;
    beside.pass(20_000);
    goes(&mut beside, PRIMARY);
    assert_eq!(beside.take_events(), []);
}

#[test]
fn a_neighbour_that_switches_bfd_off_takes_nothing_away() {
    let mut beside = Beside::up();
    beside.peer.admin_down(beside.now, Carrier(0), Diagnostic::ADMINISTRATIVELY_DOWN);
    beside.pass(1_000);
    assert_eq!(beside.take_events(), [Event::NeighbourUnwatched(N)]);
    goes(&mut beside, PRIMARY);
    beside.peer.admin_up(beside.now, Carrier(0));
    beside.pass(4_000);
    assert_eq!(beside.take_events(), [Event::NeighbourUp(N)]);
}

#[test]
fn a_neighbour_that_is_heard_again_with_bfd_switched_off_is_waited_for_and_taken() {
    let mut beside = Beside::up();
    beside.is_cut = true;
    beside.pass(200);
    beside.peer.admin_down(beside.now, Carrier(0), Diagnostic::ADMINISTRATIVELY_DOWN);
    beside.is_cut = false;
    beside.pass(2_000);
    assert_eq!(beside.state(), HopState::Waiting);
    beside.pass(5_000);
    goes(&mut beside, PRIMARY);
}

#[test]
fn a_port_that_goes_down_is_left_at_once_with_bfd_and_without() {
    for is_watched in [true, false] {
        let mut beside = Beside::up();
        if !is_watched {
            beside.it.change(beside.now, R, Change::RemoveNeighbour(N)).unwrap();
            assert!(beside.it.report(beside.now, R).unwrap().neighbours.is_empty());
        }
        beside.it.handle_link(beside.now, core(2), None);
        goes(&mut beside, BACKUP);
        beside.exchange();
        let events = match is_watched {
            true => vec![
                Event::NeighbourDown(N, Diagnostic::PATH_DOWN),
                Event::NeighbourMoved(N, Way::Backup),
            ],
            false => vec![Event::PortMoved(core(2), Way::Backup)],
        };
        assert_eq!(beside.take_events(), events);
        beside.it.handle_link(beside.now, core(2), Some(FACTS));
        beside.pass(4_900);
        goes(&mut beside, BACKUP);
        beside.pass(5_000);
        goes(&mut beside, PRIMARY);
    }
}

#[test]
fn a_backup_that_fails_too_or_is_not_there_is_not_taken() {
    let mut beside = Beside::up();
    beside.is_cut = true;
    beside.pass(200);
    goes(&mut beside, BACKUP);
    beside.it.handle_link(beside.now, core(3), None);
    goes(&mut beside, PRIMARY);
    beside.it.handle_link(beside.now, core(3), Some(FACTS));
    goes(&mut beside, BACKUP);
    beside.it.change(beside.now, R, Change::RemovePath(NhlfeId(2))).unwrap();
    goes(&mut beside, PRIMARY);
}

#[test]
fn a_path_that_gets_or_loses_its_backup_while_its_neighbour_fails_moves_at_once() {
    let mut beside = Beside::up();
    beside.is_cut = true;
    beside.pass(200);
    let alone = Path { backup: None, ..primary() };
    beside.it.change(beside.now, R, Change::SetPath(NhlfeId(1), alone)).unwrap();
    goes(&mut beside, PRIMARY);
    beside.it.change(beside.now, R, Change::SetPath(NhlfeId(1), primary())).unwrap();
    goes(&mut beside, BACKUP);
    // A neighbour that is set as it is stays as it is; without it, its port is up.
    beside.it.change(beside.now, R, Change::SetNeighbour(N, neighbour())).unwrap();
    goes(&mut beside, BACKUP);
    beside.it.change(beside.now, R, Change::RemoveNeighbour(N)).unwrap();
    goes(&mut beside, PRIMARY);
}

#[test]
fn packets_of_bfd_leave_before_data() {
    let mut beside = Beside::up();
    let bytes = stack(&[entry(300, true)], &FRAME);
    let frame = [&OWN.0[..], &NEIGHBOUR.0, &EtherType::MPLS.0.to_be_bytes(), &bytes].concat();
    beside.hear(core(1), &frame);
    beside.now = beside.it.poll_timeout().unwrap();
    beside.it.handle_timeout(beside.now);
    let order: Vec<LinkId> =
        core::iter::from_fn(|| beside.it.poll_batch()).map(|batch| batch.frames[0].link).collect();
    assert_eq!(order, [BFD, core(2)]);
}

#[test]
fn what_is_no_packet_of_the_session_is_counted_there() {
    let mut beside = Beside::up();
    beside.hear(BFD, b"no packet of BFD");
    let stranger =
        wire::bfd::ControlPacket::new(wire::bfd::State::DOWN, Diagnostic::NONE, 3, 77, 78);
    beside.hear(BFD, &stranger.emit());
    // Nobody's port, and a core port, have no sessions.
    beside.hear(core(2), &stranger.emit());
    let session = beside.it.report(beside.now, R).unwrap().neighbours[0].session.unwrap();
    let dropped: u64 = contract::Counters::each(&session.drops).map(|(_, count)| count).sum();
    assert_eq!((dropped, session.status.state), (2, SessionState::Up));
}

#[test]
fn an_interval_that_bfd_refuses_changes_nothing() {
    let mut beside = Beside::up();
    let hasty = Neighbour { watch: Watch { interval_us: 1, ..WATCH }, ..neighbour() };
    let refused = beside.it.change(beside.now, R, Change::SetNeighbour(N, hasty));
    assert_eq!(refused, Err(crate::Refused::Watch(bfd::Refused::Interval(1))));
    assert_eq!(beside.it.report(beside.now, R).unwrap().neighbours[0].neighbour, neighbour());
}

#[test]
fn a_neighbour_elsewhere_is_another_one_and_a_router_that_goes_takes_its_own_along() {
    let mut beside = Beside::up();
    let elsewhere = Neighbour { via: Via::Mac(AROUND), ..neighbour() };
    beside.it.change(beside.now, R, Change::SetNeighbour(N, elsewhere)).unwrap();
    let report = beside.it.report(beside.now, R).unwrap().neighbours[0];
    assert_eq!(report.session.unwrap().status.state, SessionState::Down);
    beside.it.change(beside.now, R, Change::RemoveRouter).unwrap();
    while let Some(batch) = beside.it.poll_batch() {
        beside.it.handle_sent(batch);
    }
    assert_eq!(beside.it.poll_timeout(), None, "nobody is left to send");
}
