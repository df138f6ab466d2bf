//! Two routers with two paths between them, watched by BFD: each frame that one sends is shown to
//! the other, but where a path is cut.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use contract::{FrameBatch, InFrame, LinkFacts, VirtualLinks};
use testkit::Pages;
use wire::bfd::Diagnostic;

use super::*;
use crate::{Change, Event, Forwarder, Path, PortKind, RouterId, Via, Watch};

pub(super) const R: RouterId = RouterId(0);
pub(super) const P: PseudowireId = PseudowireId(1);
pub(super) const WATCH: Watch =
    Watch { interval_us: 50_000, detect_mult: 3, revert_after: Duration::from_secs(5) };
const MS: u64 = 1_000_000;

/// The primary path goes from port 1 to port 1, the backup from port 2 to port 2.
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [Forwarder; 2],
    /// Directions that lose all: from which end, by which port.
    pub(super) cut: BTreeSet<(usize, u32)>,
    /// Those that lose frames longer than so many bytes.
    pub(super) narrow: BTreeMap<(usize, u32), usize>,
    /// Both ends are routers that know no probes.
    pub(super) is_mute: bool,
    /// What end 0 sends by port 1 comes out of port 2.
    is_astray: bool,
    /// What customers were sent, by end.
    pub(super) delivered: [Vec<Vec<u8>>; 2],
    pub(super) events: [Vec<Event>; 2],
}

fn mac(end: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, end as u8])
}

fn facts(end: usize) -> LinkFacts {
    LinkFacts { mac: mac(end).0, mtu: 1600, vlan: None, ring_frames: 64, is_shared: false }
}

fn end(number: usize, seed: u64) -> Forwarder {
    let mut it = Forwarder::new(seed);
    let mut change = |change| it.change(NOW, R, change).unwrap();
    for port in [1, 2] {
        change(Change::SetPort(core(port), PortKind::Core(Core::default())));
        let path = Path {
            port: core(port),
            via: Some(Via::Mac(mac(1 - number))),
            labels: Labels::NONE,
            mtu: None,
            backup: None,
        };
        change(Change::SetPath(NhlfeId(port), path));
    }
    let traffic_classes = [0, 1, 2, 3, 4, 5, 6, 7];
    let kind = PortKind::Circuit { traffic_classes, classifier: None };
    change(Change::SetPort(circuit(1), kind));
    let origin = |port, way| Origin { port: core(port), tunnel: None, way };
    let both = Pseudowire {
        label_in: label(100),
        label_out: label(100),
        origins: vec![origin(1, Way::Primary), origin(2, Way::Backup)],
        nhlfe: NhlfeId(1),
        backup: Some(NhlfeId(2)),
        ..pseudowire()
    };
    change(Change::SetPseudowire(P, both));
    change(Change::SetWatch(P, Some(WATCH)));
    for link in [core(1), core(2)] {
        it.handle_link(NOW, link, Some(facts(number)));
    }
    it.handle_link(NOW, circuit(1), Some(LinkFacts { mtu: 1500, ..facts(number) }));
    it
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            now: NOW,
            ends: [end(0, 1), end(1, 2)],
            cut: BTreeSet::new(),
            narrow: BTreeMap::new(),
            is_mute: false,
            is_astray: false,
            delivered: Default::default(),
            events: Default::default(),
        }
    }

    /// Both paths are Up, and what was told of it is forgotten.
    pub(super) fn up() -> Self {
        let mut pair = Self::new();
        pair.pass(3_000);
        for end in [0, 1] {
            let events = pair.take_events(end);
            let ups = Way::BOTH.map(|way| Event::Up(P, way));
            assert!(events.len() == 2 && ups.iter().all(|up| events.contains(up)), "{events:?}");
        }
        pair
    }

    /// Shows what each end sent to the other.
    fn exchange(&mut self) {
        loop {
            let mut shown = false;
            for from in [0, 1] {
                while let Some(batch) = self.ends[from].poll_batch() {
                    let frames = batch.to_frames(&Pages::new());
                    self.ends[from].handle_sent(batch);
                    for (link, bytes) in frames {
                        shown = true;
                        if link == circuit(1) {
                            self.delivered[from].push(bytes);
                        } else if !self.loses(from, link.0, &bytes) {
                            let is_astray = self.is_astray && (from, link) == (0, core(1));
                            let link = if is_astray { core(2) } else { link };
                            let frame = InFrame::new(link, None, &bytes);
                            assert!(self.ends[1 - from].receive(self.now, &frame).is_none());
                        }
                    }
                }
                while let Some((_, event)) = self.ends[from].poll_event() {
                    self.events[from].push(event);
                }
            }
            if !shown {
                return;
            }
        }
    }

    fn loses(&self, from: usize, port: u32, bytes: &[u8]) -> bool {
        let longest = self.narrow.get(&(from, port)).copied().unwrap_or(usize::MAX);
        let is_probe = bytes.get(18..22) == Some(&[0x10, 0, 0x7f, 0xf8]);
        self.cut.contains(&(from, port)) || bytes.len() > longest || self.is_mute && is_probe
    }

    /// Lets so many milliseconds pass.
    pub(super) fn pass(&mut self, milliseconds: u64) {
        let until = Instant(self.now.0 + milliseconds * MS);
        loop {
            self.exchange();
            let due = self.ends.iter().filter_map(VirtualLinks::poll_timeout).min();
            let Some(at) = due.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            for end in &mut self.ends {
                if end.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.handle_timeout(self.now);
                }
            }
        }
        self.now = until;
    }

    /// A customer of this end sends a frame; by which port the packet leaves.
    pub(super) fn send(&mut self, from: usize) -> u32 {
        self.send_frame(from, &FRAME)
    }

    pub(super) fn send_frame(&mut self, from: usize, frame: &[u8]) -> u32 {
        let frame = InFrame::new(circuit(1), None, frame);
        assert!(self.ends[from].receive(self.now, &frame).is_none());
        let batch: FrameBatch = self.ends[from].poll_batch().expect("it is sent");
        let [frame] = &batch.to_frames(&Pages::new())[..] else { panic!("{batch:?}") };
        let (link, bytes) = frame.clone();
        self.ends[from].handle_sent(batch);
        if !self.loses(from, link.0, &bytes) {
            let frame = InFrame::new(link, None, &bytes);
            assert!(self.ends[1 - from].receive(self.now, &frame).is_none());
        }
        self.exchange();
        link.0
    }

    pub(super) fn way(&self, end: usize) -> Way {
        self.ends[end].report(NOW, R).unwrap().pseudowires[0].watch.as_ref().unwrap().active
    }

    pub(super) fn take_events(&mut self, end: usize) -> Vec<Event> {
        core::mem::take(&mut self.events[end])
    }
}

#[test]
fn traffic_leaves_a_path_that_goes_silent_and_returns_when_it_was_up_for_the_wait() {
    let mut pair = Pair::up();
    assert_eq!((pair.send(0), pair.send(1)), (1, 1));
    pair.cut.extend([(0, 1), (1, 1)]);
    // Three intervals, and what is left of the one that begins.
    pair.pass(201);
    assert_eq!((pair.send(0), pair.send(1)), (2, 2));
    let moved = [
        Event::Down(P, Way::Primary, Diagnostic::DETECTION_TIME_EXPIRED),
        Event::Moved(P, Way::Backup),
    ];
    assert_eq!((pair.take_events(0), pair.take_events(1)), (moved.to_vec(), moved.to_vec()));
    pair.cut.clear();
    pair.pass(5_000);
    assert_eq!(pair.send(0), 2, "it has not been up for five seconds yet");
    pair.pass(3_000);
    assert_eq!((pair.send(0), pair.send(1)), (1, 1));
    let back = [Event::Up(P, Way::Primary), Event::Moved(P, Way::Primary)];
    assert_eq!((pair.take_events(0), pair.take_events(1)), (back.to_vec(), back.to_vec()));
    assert_eq!(pair.delivered.each_ref().map(Vec::len), [3, 4]);
    assert!(pair.delivered.iter().flatten().all(|frame| *frame == FRAME));
    let report = pair.ends[0].report(NOW, R).unwrap();
    let watch = report.pseudowires[0].watch.as_ref().unwrap();
    assert_eq!((watch.protection.to_backup, watch.protection.to_primary), (1, 1));
    assert_eq!(watch.sessions.map(|one| one.unwrap().status.state), [bfd::SessionState::Up; 2]);
}

#[test]
fn a_path_that_loses_one_direction_is_left_by_both_ends() {
    let mut pair = Pair::up();
    pair.cut.insert((0, 1));
    pair.pass(300);
    assert_eq!((pair.way(0), pair.way(1)), (Way::Backup, Way::Backup));
    let told = Event::Down(P, Way::Primary, Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    assert_eq!(pair.take_events(0)[0], told);
}

#[test]
fn packets_of_one_path_that_come_by_the_other_show_nothing_of_it() {
    let mut pair = Pair::up();
    pair.is_astray = true;
    pair.pass(300);
    assert_eq!((pair.way(0), pair.way(1)), (Way::Backup, Way::Backup));
}

#[test]
fn an_interface_that_goes_down_is_a_path_that_fails_at_once() {
    let mut pair = Pair::up();
    pair.ends[0].handle_link(pair.now, core(1), None);
    assert_eq!(pair.send(0), 2);
    let down = Event::Down(P, Way::Primary, Diagnostic::PATH_DOWN);
    assert_eq!(pair.take_events(0), [down, Event::Moved(P, Way::Backup)]);
    pair.ends[0].handle_link(pair.now, core(1), Some(facts(0)));
    pair.pass(8_000);
    assert_eq!((pair.send(0), pair.way(1)), (1, Way::Primary));
}

#[test]
fn traffic_stays_where_no_path_is_up() {
    let mut pair = Pair::up();
    pair.cut.extend([(0, 1), (1, 1), (0, 2), (1, 2)]);
    pair.pass(300);
    let way = pair.way(0);
    assert_eq!(pair.send(0), way as u32 + 1);
    let moves =
        pair.take_events(0).iter().filter(|event| matches!(event, Event::Moved(..))).count();
    assert!(moves <= 1, "the paths do not fail at the same moment");
}

#[test]
fn who_is_not_watched_any_more_has_lost_no_path() {
    let mut pair = Pair::up();
    pair.ends[0].change(pair.now, R, Change::SetWatch(P, None)).unwrap();
    pair.exchange();
    assert_eq!((pair.take_events(0), pair.send(0)), (vec![], 1));
    // Nor who never had one that was up.
    let mut alone = end(0, 1);
    alone.handle_link(NOW, core(1), None);
    assert_eq!(alone.poll_event(), None);
}

#[test]
fn without_a_port_that_is_up_there_is_no_session_and_no_timer() {
    let mut pair = Pair::up();
    for port in [1, 2] {
        pair.ends[0].handle_link(pair.now, core(port), None);
    }
    assert_eq!(pair.ends[0].poll_timeout(), None);
    let mut idle = end(0, 1);
    idle.change(NOW, R, Change::SetWatch(P, None)).unwrap();
    assert_eq!(idle.poll_timeout(), None);
    idle.change(NOW, R, Change::SetWatch(P, Some(WATCH))).unwrap();
    assert!(idle.poll_timeout().is_some());
    idle.change(NOW, R, Change::RemovePseudowire(P)).unwrap();
    assert_eq!(idle.poll_timeout(), None);
}

#[test]
fn the_numbers_of_an_end_that_began_anew_are_followed_once_it_is_heard() {
    let mut pair = Pair::up();
    for _ in 0..100 {
        pair.send(0);
    }
    pair.ends[0] = end(0, 3);
    // Before that its frames are late.
    let before = pair.delivered[1].len();
    pair.send(0);
    assert_eq!(pair.delivered[1].len(), before);
    pair.pass(4_000);
    let anew = |pair: &mut Pair| {
        let events = pair.take_events(1);
        events.iter().filter(|event| **event == Event::BeganAnew(P)).count()
    };
    assert_eq!(anew(&mut pair), 1, "both paths notice it");
    pair.send(0);
    assert_eq!(pair.delivered[1].len(), before + 1);
    // The same if it was away for longer than a detection time.
    for _ in 0..100 {
        pair.send(0);
    }
    pair.cut.extend([(0, 1), (0, 2)]);
    pair.pass(5_000);
    pair.ends[0] = end(0, 4);
    pair.cut.clear();
    pair.pass(4_000);
    let before = pair.delivered[1].len();
    pair.send(0);
    assert_eq!((anew(&mut pair), pair.delivered[1].len()), (1, before + 1));
}

#[test]
fn an_end_whose_port_was_down_has_not_begun_anew() {
    let mut pair = Pair::up();
    pair.ends[0].handle_link(pair.now, core(1), None);
    pair.pass(20);
    pair.ends[0].handle_link(pair.now, core(1), Some(facts(0)));
    pair.pass(8_000);
    assert_eq!((pair.way(0), pair.way(1)), (Way::Primary, Way::Primary));
    // Nor has one that was not watched for a while.
    pair.ends[0].change(pair.now, R, Change::SetWatch(P, None)).unwrap();
    pair.ends[0].change(pair.now, R, Change::SetWatch(P, Some(WATCH))).unwrap();
    pair.pass(8_000);
    assert!(!pair.take_events(1).contains(&Event::BeganAnew(P)));
    // One whose pseudowire was removed counts from the beginning, and says so.
    let with = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    let anew = [
        Change::RemovePseudowire(P),
        Change::SetPseudowire(P, with),
        Change::SetWatch(P, Some(WATCH)),
    ];
    anew.into_iter().for_each(|change| pair.ends[0].change(pair.now, R, change).unwrap());
    pair.pass(8_000);
    assert!(pair.take_events(1).contains(&Event::BeganAnew(P)));
}

#[test]
fn they_are_followed_also_if_it_was_silent_for_long_or_got_bfd_only_now() {
    let mut pair = Pair::up();
    for _ in 0..100 {
        pair.send(0);
    }
    pair.ends[0] = Forwarder::new(9);
    pair.pass(5_000);
    pair.ends[0] = end(0, 5);
    pair.pass(4_000);
    let before = pair.delivered[1].len();
    pair.send(0);
    assert_eq!(pair.delivered[1].len(), before + 1);
    // The receiver that stays never was watched when its sender went.
    pair.ends[1] = end(1, 8);
    pair.ends[1].change(pair.now, R, Change::SetWatch(P, None)).unwrap();
    for _ in 0..100 {
        pair.send(0);
    }
    pair.ends[1].change(pair.now, R, Change::SetWatch(P, Some(WATCH))).unwrap();
    pair.ends[0] = end(0, 9);
    pair.pass(4_000);
    let before = pair.delivered[1].len();
    for _ in 0..5 {
        pair.pass(400);
        pair.send(0);
    }
    assert_eq!(pair.delivered[1].len(), before + 1, "four of them showed it");
}

#[test]
fn messages_about_paths_leave_before_the_data_of_their_turn() {
    let mut pair = Pair::up();
    let due = pair.ends[0].poll_timeout().unwrap();
    let frame = InFrame::new(circuit(1), None, &FRAME);
    assert!(pair.ends[0].receive(due, &frame).is_none());
    pair.ends[0].handle_timeout(due);
    let lengths = |batch: FrameBatch| batch.frames[0].len();
    let first = lengths(pair.ends[0].poll_batch().unwrap());
    // Ethernet, a label, the channel's header, a packet of BFD; then those and a frame.
    assert_eq!(first, 14 + 4 + 4 + 24);
    let mut rest = Vec::new();
    while let Some(batch) = pair.ends[0].poll_batch() {
        rest.push(lengths(batch));
    }
    assert_eq!(rest.last(), Some(&(14 + 4 + 4 + 60)));
}

#[test]
fn a_pseudowire_whose_backup_is_taken_away_is_on_its_only_path_and_begins_there_again() {
    let mut pair = Pair::up();
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(300);
    assert_eq!(pair.send(0), 2);
    let with = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    let without = Pseudowire { backup: None, ..with.clone() };
    pair.ends[0].change(pair.now, R, Change::SetPseudowire(P, without)).unwrap();
    assert_eq!((pair.way(0), pair.send(0)), (Way::Primary, 1));
    pair.ends[0].change(pair.now, R, Change::SetPseudowire(P, with)).unwrap();
    pair.pass(3_000);
    // The primary was up once, and is not.
    assert_eq!((pair.way(0), pair.send(0)), (Way::Backup, 2));
}

#[test]
fn a_virtual_link_is_what_the_path_is_that_is_taken() {
    let mut pair = Pair::new();
    let inside = LinkId(21);
    let mac = MacAddress([6, 0, 0, 0, 0, 1]);
    let both = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    let narrow = Path {
        port: core(2),
        via: Some(Via::Mac(self::mac(1))),
        labels: Labels::NONE,
        mtu: Some(1500),
        backup: None,
    };
    for change in [
        Change::SetQuarantine(Duration::ZERO),
        Change::RemovePseudowire(P),
        Change::SetPort(inside, PortKind::Virtual { mac }),
        Change::SetPath(NhlfeId(2), narrow),
        Change::SetPseudowire(P, Pseudowire { fec: Fec::all_of(inside), ..both }),
        Change::SetWatch(P, Some(WATCH)),
    ] {
        pair.ends[0].change(NOW, R, change).unwrap();
    }
    pair.pass(3_000);
    let mtu = |pair: &mut Pair| pair.ends[0].poll_link().map(|(_, facts)| facts.unwrap().mtu);
    // A label, a control word and the header inside.
    assert_eq!((mtu(&mut pair), mtu(&mut pair)), (Some(1600 - 8 - 14), None));
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(300);
    assert_eq!((mtu(&mut pair), mtu(&mut pair)), (Some(1500 - 8 - 14), None));
}

#[test]
fn what_bfd_refuses_is_refused() {
    let mut it = end(0, 1);
    let watch = Watch { interval_us: 0, ..WATCH };
    let refused = it.change(NOW, R, Change::SetWatch(P, Some(watch))).unwrap_err();
    assert!(refused.to_string().contains("interval"), "{refused}");
    assert_eq!(it.report(NOW, R).unwrap().pseudowires[0].watch.as_ref().unwrap().watch, WATCH);
}
