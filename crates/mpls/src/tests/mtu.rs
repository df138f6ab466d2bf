//! What paths carry is asked, and what is found is used: two routers with two paths between them, of
//! which some lose what is longer than they take.

use core::time::Duration;

use contract::{InFrame, LinkFacts, VirtualLinks};
use wire::aoe::{Address, Command, ConfigArgument, ConfigCommand, Header};
use wire::clamp::Clamp;
use wire::ethernet::{TagControl, VlanTag};
use wire::probe::Probe;
use wire::pseudowire::{AssociatedChannelHeader, ChannelType};

use super::protection::{P, Pair, R, WATCH};
use super::*;
use crate::{Change, Event, Forwarder, Narrow, Path, PathProof, PortKind, Proof, Via, Watch};

/// Ethernet, a label, and a control word or a channel header.
const AROUND: usize = 14 + 4 + 4;
/// A circuit's frame of 1500 bytes and a header.
const PROMISED: u32 = 1514;

/// A path takes packets with frames of so many bytes.
fn narrow(pair: &mut Pair, from: usize, port: u32, frame: usize) {
    pair.narrow.insert((from, port), AROUND + frame);
}

fn proof(pair: &Pair, end: usize, way: Way) -> PathProof {
    let report = pair.ends[end].report(NOW, R).unwrap();
    report.pseudowires[0].watch.as_ref().unwrap().proofs[way as usize].unwrap()
}

fn proofs(pair: &Pair, end: usize) -> [Proof; 2] {
    Way::BOTH.map(|way| proof(pair, end, way).proof)
}

#[test]
fn paths_that_carry_what_was_promised_are_shown_to_when_they_come_up() {
    let pair = Pair::up();
    for end in [0, 1] {
        assert_eq!(proofs(&pair, end), [Proof::Whole; 2]);
        let report = pair.ends[end].report(NOW, R).unwrap();
        let probes = report.pseudowires[0].watch.as_ref().unwrap().probes;
        assert_eq!((probes.probes, probes.probe_answers, probes.probe_answers_stray), (2, 2, 0));
    }
    assert_eq!(proof(&pair, 0, Way::Primary).promised, PROMISED);
}

#[test]
fn the_largest_frame_that_fits_is_found_to_the_byte() {
    for fits in [1513, 1512, 1400, 61, 60] {
        let mut pair = Pair::new();
        for port in [1, 2] {
            narrow(&mut pair, 0, port, fits);
        }
        pair.pass(12_000);
        let fits = fits as u32;
        assert_eq!(proofs(&pair, 0), [Proof::Only(fits); 2], "{fits}");
        // The other direction carries all.
        assert_eq!(proofs(&pair, 1), [Proof::Whole; 2]);
        let told = Event::Narrow(P, Way::Primary, Narrow { fits, promised: PROMISED });
        let events = pair.take_events(0);
        assert_eq!(events.iter().filter(|event| **event == told).count(), 1, "{events:?}");
        assert_eq!(
            told.to_string(),
            format!("its primary path carries frames of {fits} bytes at most, not of 1514")
        );
        // No path does, so the frames stay.
        assert_eq!(pair.send(0), 1);
    }
}

#[test]
fn what_was_lost_for_a_moment_alone_is_not_too_large() {
    let mut pair = Pair::new();
    let probes = |pair: &Pair| {
        let report = pair.ends[0].report(NOW, R).unwrap();
        report.pseudowires[0].watch.as_ref().unwrap().probes.probes
    };
    // All of the largest ones are lost, and then none.
    narrow(&mut pair, 0, 1, 1513);
    narrow(&mut pair, 0, 2, 1513);
    while probes(&pair) <= 2 * 3 {
        pair.pass(1);
    }
    pair.narrow.clear();
    pair.pass(3_000);
    assert_eq!(proofs(&pair, 0), [Proof::Whole; 2]);
    let events = pair.take_events(0);
    assert!(!events.iter().any(|event| matches!(event, Event::Narrow(..))), "{events:?}");
}

#[test]
fn a_path_that_is_too_narrow_is_left_for_one_that_is_not_until_it_is_wide_again() {
    let mut pair = Pair::new();
    narrow(&mut pair, 0, 1, 1400);
    pair.pass(12_000);
    assert_eq!((pair.send(0), pair.send(1)), (2, 1));
    let events = pair.take_events(0);
    let told = Event::Narrow(P, Way::Primary, Narrow { fits: 1400, promised: PROMISED });
    let at = |wanted: Event| events.iter().position(|event| *event == wanted).unwrap();
    assert!(at(told) < at(Event::Moved(P, Way::Backup)), "{events:?}");
    pair.narrow.clear();
    // It is asked once a minute, and then waited for.
    pair.pass(70_000);
    assert_eq!(pair.send(0), 1);
    let events = pair.take_events(0);
    assert_eq!(events, [Event::Whole(P, Way::Primary, PROMISED), Event::Moved(P, Way::Primary)]);
}

#[test]
fn a_path_that_becomes_narrower_while_it_is_up_is_left_within_half_a_minute() {
    let mut pair = Pair::up();
    pair.take_events(0);
    narrow(&mut pair, 0, 1, 1400);
    pair.pass(25_000);
    assert_eq!((pair.send(0), pair.send(1)), (2, 1));
    let told = Event::Narrow(P, Way::Primary, Narrow { fits: 1400, promised: PROMISED });
    assert_eq!(pair.take_events(0), [told, Event::Moved(P, Way::Backup)], "nothing went down");
    // The backup that is taken is asked as well, and so both may be too narrow.
    narrow(&mut pair, 0, 2, 1300);
    pair.pass(25_000);
    assert_eq!(proofs(&pair, 0), [Proof::Only(1400), Proof::Only(1300)]);
    assert_eq!(pair.send(0), 1, "after the wait that is between two paths of a kind");
}

#[test]
fn a_whole_path_is_asked_one_frame_a_quarter_of_a_minute_and_one_that_is_silent_stays_whole() {
    let probes = |pair: &Pair| {
        let report = pair.ends[0].report(NOW, R).unwrap();
        report.pseudowires[0].watch.as_ref().unwrap().probes
    };
    let mut pair = Pair::up();
    let before = probes(&pair);
    pair.pass(61_000);
    let after = probes(&pair);
    assert_eq!((after.probes - before.probes, after.probe_answers - before.probe_answers), (8, 8));
    // Silence alone shows nothing: the other end may be another one now.
    pair.is_mute = true;
    pair.pass(61_000);
    assert!(probes(&pair).probes > after.probes + 8);
    assert_eq!((proofs(&pair, 0), pair.send(0)), ([Proof::Whole; 2], 1));
}

#[test]
fn a_backup_that_was_taken_away_is_told_of_anew_once_it_is_there_again() {
    let mut pair = Pair::up();
    narrow(&mut pair, 0, 2, 1300);
    pair.pass(25_000);
    let told = Event::Narrow(P, Way::Backup, Narrow { fits: 1300, promised: PROMISED });
    assert!(pair.take_events(0).contains(&told));
    let with = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    let without = Pseudowire { backup: None, ..with.clone() };
    for (change, is_there) in [(without, false), (with, true)] {
        pair.ends[0].change(pair.now, R, Change::SetPseudowire(P, change)).unwrap();
        pair.pass(25_000);
        let report = pair.ends[0].report(NOW, R).unwrap();
        let known = report.pseudowires[0].watch.as_ref().unwrap().proofs[Way::Backup as usize];
        assert_eq!(known.map(|known| known.proof), is_there.then_some(Proof::Only(1300)));
        assert_eq!(pair.take_events(0).contains(&told), is_there);
    }
}

#[test]
fn a_narrow_path_is_taken_where_the_other_one_is_down() {
    let mut pair = Pair::new();
    narrow(&mut pair, 0, 1, 1400);
    pair.pass(12_000);
    pair.cut.extend([(0, 2), (1, 2)]);
    pair.pass(300);
    assert_eq!(pair.send(0), 1);
}

#[test]
fn frames_do_not_move_back_before_the_path_was_asked() {
    let mut pair = Pair::up();
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(300);
    assert_eq!(pair.send(0), 2);
    for end in &mut pair.ends {
        let watch = Watch { revert_after: Duration::ZERO, ..WATCH };
        end.change(pair.now, R, Change::SetWatch(P, Some(watch))).unwrap();
    }
    // What came up again is narrower than it was.
    narrow(&mut pair, 0, 1, 1400);
    pair.cut.clear();
    pair.take_events(0);
    pair.pass(12_000);
    assert_eq!((pair.send(0), pair.send(1)), (2, 1));
    assert!(!pair.take_events(0).contains(&Event::Moved(P, Way::Primary)));
}

#[test]
fn a_path_is_asked_again_once_its_frames_take_it() {
    let mut pair = Pair::up();
    // The backup became narrower a moment ago, and was not asked since.
    pair.pass(100);
    narrow(&mut pair, 0, 2, 1300);
    assert_eq!(proof(&pair, 0, Way::Backup).proof, Proof::Whole);
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(300);
    assert_eq!((pair.send(0), proof(&pair, 0, Way::Backup).is_asked), (2, true));
    pair.pass(8_000);
    assert_eq!(proof(&pair, 0, Way::Backup).proof, Proof::Only(1300));
}

#[test]
fn a_path_is_asked_when_its_packets_go_around_a_link_and_when_they_return() {
    let mut pair = Pair::new();
    // BFD would not hear of it.
    for end in &mut pair.ends {
        let watch = Watch { interval_us: 1_000_000, detect_mult: 255, ..WATCH };
        end.change(NOW, R, Change::SetWatch(P, Some(watch))).unwrap();
    }
    pair.pass(10_000);
    assert_eq!(proofs(&pair, 0), [Proof::Whole; 2]);
    let (mac, labels) = (MacAddress([2, 0, 0, 0, 1, 1]), Labels::NONE);
    let around = Path { port: core(2), via: Some(Via::Mac(mac)), labels, mtu: None, backup: None };
    let over = Path { port: core(1), backup: Some(NhlfeId(3)), ..around };
    for (number, path) in [(3, around), (1, over)] {
        let change = Change::SetPath(NhlfeId(number), path);
        pair.ends[0].change(pair.now, R, change).unwrap();
    }
    pair.ends[0].handle_link(pair.now, core(1), None);
    pair.pass(1_000);
    // By the other port nobody there takes it for this path.
    assert_eq!(proofs(&pair, 0), [Proof::Nothing, Proof::Whole]);
    let mac = [2, 0, 0, 0, 1, 0];
    let facts = LinkFacts { mtu: 1600, mac, vlan: None, ring_frames: 64, is_shared: false };
    pair.ends[0].handle_link(pair.now, core(1), Some(facts));
    pair.pass(4_900);
    assert_eq!(proofs(&pair, 0), [Proof::Nothing, Proof::Whole]);
    pair.pass(200);
    assert_eq!(proofs(&pair, 0), [Proof::Whole; 2]);
}

#[test]
fn who_knows_no_probes_is_taken_for_nothing() {
    let mut pair = Pair::new();
    pair.is_mute = true;
    pair.pass(200_000);
    assert_eq!((pair.send(0), proofs(&pair, 0)), (1, [Proof::Nothing; 2]));
    let events = pair.take_events(0);
    assert!(events.iter().all(|event| matches!(event, Event::Up(..))), "{events:?}");
    // And once it does.
    pair.is_mute = false;
    pair.pass(60_000);
    assert_eq!(proofs(&pair, 0), [Proof::Whole; 2]);
}

#[test]
fn what_the_port_itself_takes_needs_no_probe() {
    let mut pair = Pair::new();
    pair.is_mute = true;
    let wide = LinkFacts { mtu: 1600, mac: [2; 6], vlan: None, ring_frames: 64, is_shared: false };
    pair.ends[0].handle_link(NOW, circuit(1), Some(wide));
    pair.pass(12_000);
    // Of the port's 1600 a label and the word are no frame's.
    assert_eq!(proofs(&pair, 0), [Proof::Only(1592); 2]);
}

#[test]
fn an_answer_to_nothing_that_is_asked_shows_nothing() {
    let mut pair = Pair::up();
    pair.cut.extend([(1, 1), (1, 2)]);
    // It is asked anew, and hears no answers.
    let wide = LinkFacts { mtu: 1501, mac: [2; 6], vlan: None, ring_frames: 64, is_shared: false };
    pair.ends[0].handle_link(pair.now, circuit(1), Some(wide));
    let mut asked = Vec::new();
    while let Some(batch) = pair.ends[0].poll_batch() {
        asked.extend(batch.to_frames(&testkit::Pages::new()));
        pair.ends[0].handle_sent(batch);
    }
    let (link, request) = asked.into_iter().find(|(link, _)| *link == core(1)).unwrap();
    assert_eq!((link, request.len()), (core(1), AROUND + 1515));
    let request = Probe::receive(&request[AROUND..]).unwrap();
    let mut show = |port: u32, answer: Probe| {
        let header = AssociatedChannelHeader { channel_type: ChannelType::MTU_PROBE };
        let message = [&header.emit()[..], &answer.emit()].concat();
        let bytes = [
            &[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 1, 0x88, 0x47][..],
            &stack(&[entry(100, true)], &message),
        ];
        let bytes = bytes.concat();
        let frame = InFrame::new(core(port), None, &bytes);
        assert!(pair.ends[0].receive(pair.now, &frame).is_none());
        let report = pair.ends[0].report(NOW, R).unwrap();
        let watch = report.pseudowires[0].watch.as_ref().unwrap();
        (watch.proofs[0].unwrap().proof, watch.probes.probe_answers_stray)
    };
    let answer = request.answer();
    let nothing = Proof::Nothing;
    // Another nonce, number or length, and the right one by the other path.
    assert_eq!(show(1, Probe { nonce: !answer.nonce, ..answer }), (nothing, 1));
    assert_eq!(show(1, Probe { sequence: answer.sequence + 1, ..answer }), (nothing, 2));
    assert_eq!(show(1, Probe { length: 1514, ..answer }), (nothing, 3));
    assert_eq!(show(2, answer), (nothing, 4));
    assert_eq!(show(1, Probe { version: 2, ..answer }), (nothing, 4));
    assert_eq!(show(1, answer), (Proof::Whole, 4));
    assert_eq!(show(1, answer), (Proof::Whole, 5), "twice");
}

#[test]
fn who_is_not_watched_answers_and_asks_nothing() {
    let mut pair = Pair::up();
    pair.ends[1].change(pair.now, R, Change::SetWatch(P, None)).unwrap();
    while pair.ends[1].poll_batch().is_some() {}
    let mut request = Probe::request(1514, 3, 9).emit().to_vec();
    request.resize(1514, 0);
    let header = AssociatedChannelHeader { channel_type: ChannelType::MTU_PROBE }.emit();
    for (port, bytes) in [(1, &request[..]), (2, &request[..]), (1, &request[..1513])] {
        let packet = stack(&[entry(100, true)], &[&header[..], bytes].concat());
        let frame = [&[2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 0, 0x88, 0x47][..], &packet].concat();
        let frame = InFrame::new(core(port), None, &frame);
        assert!(pair.ends[1].receive(pair.now, &frame).is_none());
        let answered = pair.ends[1].poll_batch();
        let Some(answer) = answered else {
            assert_eq!(bytes.len(), 1513, "it is whole");
            continue;
        };
        // By the path by which it came, and as short as can be.
        let [(link, answer)] = &answer.to_frames(&testkit::Pages::new())[..] else { panic!() };
        assert_eq!((link.0, answer.len()), (port, AROUND + Probe::SIZE));
        assert_eq!(Probe::receive(&answer[AROUND..]), Ok(Probe::request(1514, 3, 9).answer()));
        assert!(pair.ends[1].poll_batch().is_none());
    }
    assert_eq!(pair.ends[1].poll_timeout(), None);
}

#[test]
fn a_circuit_that_comes_up_later_or_with_another_mtu_is_asked_for_then() {
    let mut pair = Pair::new();
    pair.ends[0].handle_link(NOW, circuit(1), None);
    pair.pass(5_000);
    let report = pair.ends[0].report(NOW, R).unwrap();
    assert!(report.pseudowires[0].watch.as_ref().unwrap().proofs.iter().all(Option::is_none));
    let facts = |mtu| LinkFacts { mtu, mac: [2; 6], vlan: None, ring_frames: 64, is_shared: false };
    for (mtu, proof) in [(1400, Proof::Whole), (1570, Proof::Whole), (1579, Proof::Only(1592))] {
        pair.ends[0].handle_link(pair.now, circuit(1), Some(facts(mtu)));
        pair.pass(100);
        assert_eq!(proofs(&pair, 0), [proof; 2], "{mtu}");
        assert_eq!(self::proof(&pair, 0, Way::Backup).promised, mtu + 14);
    }
    // Told again, nothing is asked again.
    let probes = |pair: &Pair| {
        let report = pair.ends[0].report(NOW, R).unwrap();
        report.pseudowires[0].watch.as_ref().unwrap().probes.probes
    };
    let before = probes(&pair);
    pair.ends[0].handle_link(pair.now, circuit(1), Some(facts(1579)));
    pair.pass(100);
    assert_eq!(probes(&pair), before);
}

#[test]
fn a_circuit_that_is_split_by_vlan_is_promised_a_tag() {
    let mut pair = Pair::up();
    let (traffic_classes, key) = ([0; 8], wire::classify::ClassKey::vlan(7));
    let classifier = Some(wire::classify::Classifier::Vlan);
    let kind = PortKind::Circuit { traffic_classes, classifier };
    let whole = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    let fec = Fec { circuit: circuit(1), class: Some(key) };
    let end = &mut pair.ends[0];
    end.change(pair.now, R, Change::SetPort(circuit(1), kind)).unwrap();
    end.change(pair.now, R, Change::SetPseudowire(P, Pseudowire { fec, ..whole })).unwrap();
    pair.pass(100);
    let seen = proof(&pair, 0, Way::Primary);
    assert_eq!((seen.promised, seen.proof), (PROMISED + 4, Proof::Whole));
}

#[test]
fn the_mtu_of_a_virtual_link_is_what_its_path_carries() {
    let mut pair = Pair::new();
    let inside = LinkId(21);
    let mac = MacAddress([6, 0, 0, 0, 0, 1]);
    let both = pair.ends[0].report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
    for change in [
        Change::SetQuarantine(Duration::ZERO),
        Change::RemovePseudowire(P),
        Change::SetPort(inside, PortKind::Virtual { mac }),
        Change::SetPseudowire(P, Pseudowire { fec: Fec::all_of(inside), backup: None, ..both }),
        Change::SetWatch(P, Some(WATCH)),
    ] {
        pair.ends[0].change(NOW, R, change).unwrap();
    }
    narrow(&mut pair, 0, 1, 1414);
    pair.pass(12_000);
    let mtu = |end: &mut Forwarder| end.poll_link().map(|(_, facts)| facts.unwrap().mtu);
    let end = &mut pair.ends[0];
    // What its port takes, and then what was found.
    assert_eq!([mtu(end), mtu(end), mtu(end)], [Some(1600 - 8 - 14), Some(1400), None]);
    // It stays while the path is down, and when it comes back as it was.
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(1_000);
    pair.cut.clear();
    pair.pass(12_000);
    assert_eq!(mtu(&mut pair.ends[0]), None);
    pair.narrow.clear();
    pair.pass(60_000);
    assert_eq!(mtu(&mut pair.ends[0]), Some(1600 - 8 - 14));
    // Who does not watch knows the port alone.
    narrow(&mut pair, 0, 1, 1414);
    pair.cut.extend([(0, 1), (1, 1)]);
    pair.pass(1_000);
    pair.cut.clear();
    pair.pass(12_000);
    let end = &mut pair.ends[0];
    assert_eq!(mtu(end), Some(1400));
    end.change(pair.now, R, Change::SetWatch(P, None)).unwrap();
    assert_eq!(mtu(end), Some(1600 - 8 - 14));
}

/// A Config response that offers 17 sectors, with its count where it is in a frame without a tag.
fn config_response() -> Vec<u8> {
    let request = Header::request(Address::ANY, Command::CONFIG, 7);
    let mut argument = ConfigArgument::request(ConfigCommand::READ, 0);
    argument.sector_count = 17;
    let header = request.response(Address::new(7, 0)).emit();
    [&FRAME[..14], &header, &argument.emit(), &[0; 28]].concat()
}

const COUNT: usize = 28;

fn clamped() -> Pseudowire {
    Pseudowire { clamp: Some(Clamp::AoeSectors), ..pseudowire() }
}

fn clamps(router: &Router) -> u64 {
    router.pseudowires().next().unwrap().2.clamped
}

#[test]
fn a_frame_that_enters_asks_for_what_fits_and_is_the_same_in_all_else() {
    let mut router = router();
    let both = Pseudowire { backup: Some(NhlfeId(2)), ..clamped() };
    router.set_pseudowire(NOW, PseudowireId(1), both).unwrap();
    router.set_nhlfe(NhlfeId(1), Nhlfe { mtu: 1526, ..nhlfe(2, &[800]) });
    router.set_nhlfe(NhlfeId(2), nhlfe(3, &[801]));
    let frame = config_response();
    let mut lowered = frame.clone();
    lowered[COUNT] = 2;
    let control = TagControl(0).with_vid(7);
    let tag = VlanTag { ether_type: EtherType::VLAN, control };
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &frame), &router);
    assert_eq!(packet[12..], lowered);
    // With a tag that the driver took out, or in it.
    let tagged = |frame: &[u8]| [&frame[..12], &tag.emit(), &frame[12..]].concat();
    let packet = sent_packet(router.handle_circuit(circuit(1), Some(tag), &frame), &router);
    assert_eq!(packet[12..], tagged(&lowered));
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &tagged(&frame)), &router);
    assert_eq!(packet[12..], tagged(&lowered));
    assert_eq!(clamps(&router), 3);
    // What was found of the path counts, if it is less, and of the path that is taken.
    router.set_narrow(PseudowireId(1), Way::Backup, Some(36 + 2 * 512));
    router.set_narrow(PseudowireId(1), Way::Primary, Some(36 + 512));
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &frame), &router);
    assert_eq!(packet[12 + COUNT], 1);
    router.take_way(PseudowireId(1), Way::Backup);
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &frame), &router);
    assert_eq!(packet[12 + COUNT], 2);
    // Others are as they were.
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &FRAME), &router);
    assert_eq!((&packet[12..], clamps(&router)), (&FRAME[..], 5));
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire()).unwrap();
    let packet = sent_packet(router.handle_circuit(circuit(1), None, &frame), &router);
    assert_eq!((&packet[12..], clamps(&router)), (&frame[..], 5));
}

#[test]
fn a_frame_that_leaves_asks_for_what_fits_also_if_it_came_early() {
    let mut router = router();
    let pseudowire = Pseudowire { control_word: Some(Sequencing::Reorder), ..clamped() };
    router.set_pseudowire(NOW, PseudowireId(1), pseudowire).unwrap();
    router.set_narrow(PseudowireId(1), Way::Primary, Some(1514));
    let frame = config_response();
    let mut lowered = frame.clone();
    lowered[COUNT] = 2;
    let packet = |number: u16| {
        let word = ControlWord::ethernet(PseudowireSequence(number)).emit();
        stack(&[entry(200, false), entry(100, true)], &[&word[..], &frame].concat())
    };
    match router.handle_labelled(NOW, core(1), &packet(1)) {
        Verdict::DeliverChanged { circuit: by, rest } => {
            assert_eq!((by, [router.front(), rest].concat()), (circuit(1), lowered.clone()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(router.handle_labelled(NOW, core(1), &packet(3)), Verdict::Wait);
    let late = Instant(NOW.0 + 1_000_000_000);
    assert_eq!(router.poll_early(late), Some((circuit(1), lowered)));
    assert_eq!(clamps(&router), 2);
    let delivered = router.pseudowires().next().unwrap().2.delivered;
    assert_eq!(delivered, 2);
}

#[test]
fn whoever_stands_at_the_narrow_end_lowers_what_goes_either_way() {
    let mut pair = Pair::new();
    for end in &mut pair.ends {
        let with = end.report(NOW, R).unwrap().pseudowires[0].pseudowire.clone();
        let with = Pseudowire { clamp: Some(Clamp::AoeSectors), ..with };
        end.change(NOW, R, Change::SetPseudowire(P, with)).unwrap();
    }
    for port in [1, 2] {
        narrow(&mut pair, 0, port, 36 + 512 + 20);
    }
    pair.pass(12_000);
    for (from, to) in [(0, 1), (1, 0)] {
        pair.send_frame(from, &config_response());
        let seen = pair.delivered[to].pop().unwrap();
        let mut lowered = config_response();
        lowered[COUNT] = 1;
        assert!(seen == lowered, "from {from}: {}", seen[COUNT]);
    }
}
