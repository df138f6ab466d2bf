//! The machine of a shard: what a change and a link's facts make together, queues, virtual links.

use core::time::Duration;

use block::{Buffer, Memory};
use contract::{EtherType, FrameBatch, InFrame, LinkFacts, Station, VirtualLinks};
use testkit::Pages;
use wire::ethernet::{TagControl, VlanTag};

use super::*;
use crate::limits::QUEUE_MAX;
use crate::{Bins, Rate};
use crate::{
    Change, Forwarder, Path, PortKind, RouterId, Session, Tunnel, TunnelId, TunnelPort, Via,
};

const R: RouterId = RouterId(0);
/// A link that ends in this process.
const INSIDE: LinkId = LinkId(21);
const INSIDE_MAC: MacAddress = MacAddress([6, 0, 0, 0, 0, 1]);

fn facts(mtu: u32) -> LinkFacts {
    LinkFacts { mac: OWN.0, mtu, vlan: None, ring_frames: 64, is_shared: false }
}

fn change(forwarder: &mut Forwarder, change: Change) {
    forwarder.change(NOW, R, change).unwrap();
}

fn path(port: u32, numbers: &[u32]) -> Path {
    Path {
        port: core(port),
        via: Some(Via::Mac(NEIGHBOUR)),
        labels: labels(numbers),
        mtu: None,
        backup: None,
    }
}

/// Core ports 1 and 2, circuit 1 with the pseudowire of [`pseudowire`] over path 1 by port 2, and a
/// swap of label 300 to that path. No link is up.
fn forwarder() -> Forwarder {
    let mut it = Forwarder::new(7);
    for number in 1..=2 {
        change(&mut it, Change::SetPort(core(number), PortKind::Core(Core::default())));
    }
    let traffic_classes = [0, 1, 2, 3, 4, 5, 6, 7];
    let kind = PortKind::Circuit { traffic_classes, classifier: None };
    change(&mut it, Change::SetPort(circuit(1), kind));
    for (number, action) in [(300, Action::Forward(NhlfeId(1))), (200, Action::Pop)] {
        let (space, label, fec) = (Space::Platform, label(number), FecId(number));
        change(&mut it, Change::SetLabel { space, label, fec, action });
    }
    change(&mut it, Change::SetPseudowire(PseudowireId(1), pseudowire()));
    change(&mut it, Change::SetPath(NhlfeId(1), path(2, &[800])));
    it
}

/// The same with all links up.
fn up() -> Forwarder {
    let mut it = forwarder();
    for link in [core(1), core(2), circuit(1)] {
        it.handle_link(NOW, link, Some(facts(1600)));
    }
    it
}

/// A labelled frame as a neighbour sends it.
fn labelled(packet: &[u8]) -> Vec<u8> {
    [&OWN.0[..], &NEIGHBOUR.0, &EtherType::MPLS.0.to_be_bytes(), packet].concat()
}

/// Shows a frame; nothing of it is for who lives here.
#[track_caller]
fn show(it: &mut Forwarder, link: LinkId, tag: Option<VlanTag>, bytes: &[u8]) {
    assert!(it.takes(link), "{link}");
    assert!(it.receive(NOW, &InFrame::new(link, tag, bytes)).is_none());
}

/// All frames that leave now.
fn leave(it: &mut Forwarder) -> Vec<(LinkId, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(batch) = it.poll_batch() {
        frames.extend(batch.to_frames(&Pages::new()));
        it.handle_sent(batch);
    }
    frames
}

#[test]
fn a_path_is_used_once_its_port_was_up_and_has_its_address_vlan_and_mtu() {
    let mut it = forwarder();
    it.handle_link(NOW, core(1), Some(facts(1600)));
    let frame = labelled(&packet(&[300], 1));
    show(&mut it, core(1), None, &frame);
    assert_eq!(leave(&mut it), [], "nothing is known of port 2");
    let other = LinkFacts { mac: [2, 9, 9, 9, 9, 9], vlan: Some(7), ..facts(1600) };
    it.handle_link(NOW, core(2), Some(other));
    show(&mut it, core(1), None, &frame);
    let sent = leave(&mut it);
    assert_eq!((sent.len(), sent[0].0), (1, core(2)));
    let header = [&NEIGHBOUR.0[..], &other.mac, &[0x81, 0, 0xa0, 7, 0x88, 0x47]].concat();
    assert_eq!(sent[0].1[..18], header, "its class is the tag's priority");
    // 4 bytes of label, 4 of control word, 60 of frame.
    it.handle_link(NOW, core(2), Some(LinkFacts { mtu: 67, ..other }));
    show(&mut it, core(1), None, &frame);
    assert_eq!(leave(&mut it), []);
    let narrow = Path { mtu: Some(68), ..path(2, &[800]) };
    it.handle_link(NOW, core(2), Some(facts(1600)));
    change(&mut it, Change::SetPath(NhlfeId(1), narrow));
    show(&mut it, core(1), None, &frame);
    assert_eq!(leave(&mut it).len(), 1);
    change(&mut it, Change::SetPath(NhlfeId(1), Path { mtu: Some(67), ..narrow }));
    show(&mut it, core(1), None, &frame);
    assert_eq!(leave(&mut it), []);
    let report = it.report(NOW, R).unwrap();
    assert_eq!(report.nhlfes[0].counters.over_mtu, 2);
}

#[test]
fn a_tag_that_was_taken_off_a_customer_s_frame_is_in_it_again() {
    let mut it = up();
    let control = TagControl(0).with_vid(77).with_priority(3);
    for ether_type in [EtherType::VLAN, EtherType::SERVICE_VLAN] {
        let tag = VlanTag { ether_type, control };
        let whole = [&FRAME[..12], &tag.emit(), &FRAME[12..]].concat();
        show(&mut it, circuit(1), Some(tag), &FRAME);
        show(&mut it, circuit(1), None, &whole);
        let sent = leave(&mut it);
        // Ethernet, tunnel, pseudowire, control word.
        assert_eq!(sent[0].1[14 + 12..], whole);
        assert_eq!(sent[1].1[14 + 12..], whole);
        let entry = LabelStackEntry::parse(&sent[0].1[14..]).unwrap();
        assert_eq!((entry.traffic_class, sent[0].1[14..22] == sent[1].1[14..22]), (3, true));
    }
    let counters = it.report(NOW, R).unwrap().ports[2].counters;
    assert_eq!((counters.received, counters.received_bytes), (4, 4 * 64));
    show(&mut it, circuit(1), Some(VlanTag { ether_type: EtherType::VLAN, control }), &FRAME[..11]);
    assert_eq!((leave(&mut it).len(), it.report(NOW, R).unwrap().ports[2].drops.runt), (0, 1));
}

#[test]
fn what_a_circuit_s_customer_gets_leaves_by_the_circuit_as_it_is() {
    let mut it = up();
    show(&mut it, core(1), None, &labelled(&packet(&[200, 100], 1)));
    assert_eq!(leave(&mut it), [(circuit(1), FRAME.to_vec())]);
}

#[test]
fn frames_of_a_core_port_that_are_not_for_this_station_or_have_no_labels_are_counted() {
    let mut it = up();
    let good = labelled(&packet(&[300], 1));
    let mut other_station = good.clone();
    other_station[5] ^= 1;
    let mut other_type = good.clone();
    (other_type[12], other_type[13]) = (0x88, 0x48);
    show(&mut it, core(1), None, &other_station);
    show(&mut it, core(1), None, &other_type);
    it.handle_link(NOW, core(1), None);
    show(&mut it, core(1), None, &good);
    let misfits = it.misfits();
    assert_eq!((misfits.other_station, misfits.other_type, misfits.link_down), (1, 1, 1));
    assert_eq!(leave(&mut it), []);
}

#[test]
fn a_port_that_takes_nothing_holds_up_no_other_and_drops_what_is_too_much() {
    let mut it = up();
    let swapped = labelled(&packet(&[300], 1));
    let ended = labelled(&packet(&[200, 100], 0));
    let mut held = Vec::new();
    for _ in 0..QUEUE_MAX + 5 {
        show(&mut it, core(1), None, &swapped);
        // The driver keeps what is for port 2.
        held.extend(it.poll_batch());
    }
    show(&mut it, core(1), None, &ended);
    assert_eq!(leave(&mut it), [(circuit(1), FRAME.to_vec())]);
    let queue = it.report(NOW, R).unwrap().ports[1].queue;
    let most = u64::from(QUEUE_MAX);
    assert_eq!((queue.queue_full, queue.queued, queue.queued_max), (5, most, most));
    held.drain(..).for_each(|batch| it.handle_sent(batch));
    show(&mut it, core(1), None, &swapped);
    assert_eq!(leave(&mut it).len(), 1);
    assert_eq!(it.report(NOW, R).unwrap().ports[1].queue.queued, 0);
}

/// [`up`] with the pseudowire ending in this process.
fn inside() -> Forwarder {
    let mut it = up();
    change(&mut it, Change::SetPort(INSIDE, PortKind::Virtual { mac: INSIDE_MAC }));
    let other = Pseudowire {
        fec: Fec::all_of(INSIDE),
        label_in: label(101),
        label_out: label(901),
        ..pseudowire()
    };
    change(&mut it, Change::SetPseudowire(PseudowireId(2), other));
    it
}

#[test]
fn a_virtual_link_is_up_while_its_pseudowire_has_a_path_that_is_up() {
    let mut it = inside();
    // Two labels, a control word and the header inside.
    let expected = LinkFacts { mac: INSIDE_MAC.0, ..facts(1600 - 12 - 14) };
    assert_eq!(it.poll_link(), Some((INSIDE, Some(expected))));
    assert_eq!(it.poll_link(), None);
    it.handle_link(NOW, core(2), None);
    assert_eq!(it.poll_link(), Some((INSIDE, None)));
    it.handle_link(NOW, core(2), Some(facts(1500)));
    assert_eq!(it.poll_link(), Some((INSIDE, Some(LinkFacts { mtu: 1474, ..expected }))));
    change(&mut it, Change::SetPath(NhlfeId(1), path(1, &[])));
    let facts = LinkFacts { mtu: 1600 - 8 - 14, ..expected };
    assert_eq!(it.poll_link(), Some((INSIDE, Some(facts))), "another path, without a label");
    change(&mut it, Change::RemovePseudowire(PseudowireId(2)));
    assert_eq!(it.poll_link(), Some((INSIDE, None)));
    assert_eq!(it.poll_link(), None);
}

#[test]
fn who_lives_on_a_virtual_link_is_shown_what_came_for_it_and_sends_from_where_data_lie() {
    let mut it = inside();
    let (_, Some(facts)) = it.poll_link().unwrap() else { panic!() };
    let frame = labelled(&packet(&[200, 101], 1));
    let came = it.receive(NOW, &InFrame::new(core(1), None, &frame)).unwrap();
    assert_eq!((came.link, came.tag, came.bytes), (INSIDE, None, &FRAME[..]));
    let mut batch = FrameBatch::default();
    let to = Station::new(INSIDE, NEIGHBOUR);
    batch.push(&facts, &to, EtherType::AOE, &[9; 50]);
    batch.push(&facts, &Station::new(LinkId(77), NEIGHBOUR), EtherType::AOE, &[9; 50]);
    let before = batch.to_frames(&Pages::new());
    it.encapsulate(NOW, &mut batch, &Pages::new());
    let after = batch.to_frames(&Pages::new());
    assert_eq!(after[1], before[1], "of another link");
    assert_eq!((after[0].0, &after[0].1[14 + 12..]), (core(2), &before[0].1[..]));
    let [tunnel, own] =
        [14, 18].map(|at| LabelStackEntry::parse(&after[0].1[at..]).unwrap().label.get());
    assert_eq!((tunnel, own, after[0].1[25]), (800, 901, 1), "the first of its sequence numbers");
    // What is too large is left as it is, and counted.
    batch.clear();
    batch.push(&facts, &to, EtherType::AOE, &[9; 1575]);
    it.encapsulate(NOW, &mut batch, &Pages::new());
    assert_eq!(batch.frames[0].link, INSIDE);
    assert_eq!(it.report(NOW, R).unwrap().nhlfes[0].counters.over_mtu, 1);
}

#[test]
fn what_comes_early_waits_and_then_leaves_by_its_circuit_or_to_who_lives_there() {
    let mut it = inside();
    let ordered = Some(Sequencing::Reorder);
    let outside = Pseudowire { control_word: ordered, ..pseudowire() };
    let fec = Fec::all_of(INSIDE);
    let within = Pseudowire { fec, label_in: label(101), label_out: label(901), ..outside.clone() };
    change(&mut it, Change::SetPseudowire(PseudowireId(1), outside));
    change(&mut it, Change::SetPseudowire(PseudowireId(2), within));
    let came = |it: &mut Forwarder, now, bottom, number| {
        let frame = labelled(&packet(&[200, bottom], number));
        let inside = it.receive(now, &InFrame::new(core(1), None, &frame));
        inside.is_some()
    };
    let received = |it: &mut Forwarder| -> Vec<LinkId> {
        let all = core::iter::from_fn(|| it.poll_received());
        all.inspect(|(_, frame)| assert_eq!(frame[..], FRAME)).map(|(link, _)| link).collect()
    };
    assert!(!came(&mut it, NOW, 100, 1) && came(&mut it, NOW, 101, 1));
    assert_eq!(leave(&mut it).len(), 1);
    let at = |micros: u64| NOW + Duration::from_micros(micros);
    for bottom in [100, 101] {
        assert!(!came(&mut it, at(5), bottom, 3) && !came(&mut it, at(9), bottom, 5));
    }
    assert_eq!((leave(&mut it).len(), received(&mut it).len()), (0, 0));
    assert_eq!(it.poll_timeout(), Some(at(1005)));
    // The one in between takes those behind it along.
    assert!(!came(&mut it, at(10), 100, 2) && came(&mut it, at(10), 101, 2));
    assert_eq!((leave(&mut it).len(), received(&mut it)), (2, vec![INSIDE]));
    assert_eq!(it.poll_timeout(), Some(at(1009)));
    it.handle_timeout(at(1008));
    assert_eq!((leave(&mut it).len(), received(&mut it).len()), (0, 0));
    it.handle_timeout(at(1009));
    assert_eq!((leave(&mut it).len(), received(&mut it)), (1, vec![INSIDE]));
    assert_eq!(it.poll_timeout(), None);
    assert!(!came(&mut it, at(1010), 100, 4) && !came(&mut it, at(1010), 101, 4));
    for report in it.report(NOW, R).unwrap().pseudowires {
        let (counters, sequence) = (report.counters, report.sequence);
        assert_eq!((counters.delivered, sequence.reordered, sequence.missing), (4, 2, 1));
        assert_eq!(report.drops.late, 1);
    }
    // Whoever stops putting frames in order leaves none behind.
    assert!(!came(&mut it, at(1010), 100, 9));
    change(&mut it, Change::SetPseudowire(PseudowireId(1), pseudowire()));
    assert_eq!(leave(&mut it).len(), 1);
}

#[test]
fn a_virtual_link_by_a_tunnel_takes_what_its_port_does_less_the_headers() {
    let mut it = up();
    let port = LinkId(31);
    change(&mut it, Change::SetPort(INSIDE, PortKind::Virtual { mac: INSIDE_MAC }));
    change(&mut it, Change::SetPort(port, PortKind::Tunnels(TunnelPort::Gre)));
    let tunnel = Tunnel {
        fec: Fec::all_of(INSIDE),
        port,
        session: Session::Gre { key_in: Some(1), key_out: Some(1) },
        sequencing: Sequencing::Drop,
    };
    change(&mut it, Change::SetTunnel(TunnelId(1), tunnel));
    assert_eq!(it.poll_link(), None);
    it.handle_link(NOW, port, Some(facts(1480)));
    // GRE's header with a key and a number, and the header inside.
    let expected = LinkFacts { mac: INSIDE_MAC.0, ..facts(1480 - 12 - 14) };
    assert_eq!(it.poll_link(), Some((INSIDE, Some(expected))));
    it.handle_link(NOW, port, None);
    assert_eq!(it.poll_link(), Some((INSIDE, None)));
}

#[test]
fn a_virtual_link_that_becomes_a_port_of_another_kind_is_gone() {
    let mut it = inside();
    assert!(matches!(it.poll_link(), Some((INSIDE, Some(_)))));
    change(&mut it, Change::SetPort(INSIDE, PortKind::Core(Core::default())));
    assert_eq!((it.poll_link(), it.poll_link()), (Some((INSIDE, None)), None));
    // What was known of it is not what a driver says.
    assert_eq!(it.report(NOW, R).unwrap().ports.last().unwrap().facts, None);
}

#[test]
fn a_label_is_shown_as_withdrawn_until_its_quarantine_is_over() {
    let mut it = up();
    let (space, label, fec) = (Space::Platform, label(300), FecId(300));
    change(&mut it, Change::SetQuarantine(Duration::from_secs(1)));
    change(&mut it, Change::WithdrawLabel { space, label, fec });
    let count = |now| it.report(now, R).unwrap().labels.len();
    assert_eq!((count(NOW), count(NOW + Duration::from_secs(1))), (3, 2));
}

#[test]
fn routers_of_a_shard_do_not_know_each_other_s_labels() {
    let mut it = up();
    let other = RouterId(1);
    let port = LinkId(5);
    it.change(NOW, other, Change::SetPort(port, PortKind::Core(Core::default()))).unwrap();
    it.handle_link(NOW, port, Some(facts(1600)));
    show(&mut it, port, None, &labelled(&packet(&[300], 1)));
    assert_eq!(leave(&mut it), []);
    assert_eq!(it.report(NOW, other).unwrap().ports[0].drops.unknown_label, 1);
    it.change(NOW, R, Change::RemoveRouter).unwrap();
    assert!(!it.takes(core(1)) && !it.takes(circuit(1)) && it.takes(port));
    assert!(it.report(NOW, R).is_none() && it.report(NOW, other).is_some());
}

#[test]
fn a_port_that_is_gone_takes_what_waits_for_it_along() {
    let mut it = up();
    show(&mut it, core(1), None, &labelled(&packet(&[300], 1)));
    change(&mut it, Change::RemovePort(core(2)));
    assert_eq!(leave(&mut it), []);
    show(&mut it, core(1), None, &labelled(&packet(&[300], 1)));
    assert_eq!(leave(&mut it), []);
}

/// Core port 2 with this rate.
fn set_rate(it: &mut Forwarder, bits: Option<u64>) {
    let rate = bits.map(|bits| Rate::new(bits).unwrap());
    change(it, Change::SetPort(core(2), PortKind::Core(Core { rate, ..Core::default() })));
}

#[test]
fn what_is_more_than_a_port_s_rate_waits_and_leaves_in_order() {
    let mut it = up();
    set_rate(&mut it, Some(8_000_000));
    let packets: Vec<Vec<u8>> = (1..=40).map(|number| labelled(&packet(&[300], number))).collect();
    let mut out = Vec::new();
    for packet in &packets {
        show(&mut it, core(1), None, packet);
        out.extend(leave(&mut it));
    }
    // A byte takes a microsecond, a bucket holds a thousand, and the last frame may overdraw it.
    let length = packets[0].len();
    assert_eq!(out.len(), 1000 / length + 1, "{length}");
    let mut now = NOW;
    let began = out.len();
    while let Some(at) = it.poll_timeout() {
        assert!(at > now, "it does not ask for what it cannot use");
        now = at;
        it.handle_timeout(now);
        let left = leave(&mut it);
        assert!(!left.is_empty() && left.len() <= 500 / length + 2, "{}", left.len());
        out.extend(left);
    }
    let numbers: Vec<u8> = out.iter().map(|(_, frame)| frame[14 + 4 + 3]).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<u8>>());
    let micros = now.since(NOW).as_micros() as usize;
    let data = (40 - began) * length;
    assert!((data - 500..=data + 600).contains(&micros), "{micros} us for {data} bytes");
    let queue = it.report(NOW, R).unwrap().ports[1].queue;
    let delayed = 40 - began as u64;
    assert_eq!((queue.delayed, queue.queued, queue.queue_full), (delayed, 0, 0));
    assert!(queue.queued_max >= delayed, "{queue:?}");
}

#[test]
fn a_port_with_a_rate_holds_no_more_frames_than_others_and_lets_go_of_them_without_one() {
    let mut it = up();
    set_rate(&mut it, Some(Rate::LEAST));
    let swapped = labelled(&packet(&[300], 1));
    for _ in 0..QUEUE_MAX + 5 {
        show(&mut it, core(1), None, &swapped);
    }
    let queue = it.report(NOW, R).unwrap().ports[1].queue;
    assert_eq!((queue.queue_full, queue.queued), (5, QUEUE_MAX.into()));
    let first = leave(&mut it).len();
    assert!(first < 5);
    // Another rate is one for those that wait, too.
    set_rate(&mut it, Some(Rate::MOST));
    it.handle_timeout(NOW + Duration::from_secs(1));
    let more = leave(&mut it).len();
    assert_eq!(first + more, QUEUE_MAX as usize);
    set_rate(&mut it, Some(Rate::LEAST));
    (0..9).for_each(|_| show(&mut it, core(1), None, &swapped));
    let waiting = 9 - leave(&mut it).len();
    assert!(waiting > 0);
    set_rate(&mut it, None);
    assert_eq!((leave(&mut it).len(), it.poll_timeout()), (waiting, None));
    assert_eq!(it.report(NOW, R).unwrap().ports[1].queue.queued, 0);
    // Nor does a port that is gone keep any.
    set_rate(&mut it, Some(Rate::LEAST));
    (0..9).for_each(|_| show(&mut it, core(1), None, &swapped));
    change(&mut it, Change::RemovePort(core(2)));
    assert_eq!((leave(&mut it).len(), it.poll_timeout()), (0, None));
}

#[test]
fn frames_that_begin_here_wait_for_a_rate_as_any_do() {
    let mut it = inside();
    set_rate(&mut it, Some(8_000_000));
    change(&mut it, Change::Record(core(2), 9));
    let (to, facts) =
        (Station::new(INSIDE, NEIGHBOUR), LinkFacts { mac: INSIDE_MAC.0, ..facts(1500) });
    let (mut batch, mut memory) = (FrameBatch::default(), Pages::new());
    let mut data = Buffer::reserved(1024, 0);
    memory.write(&mut data, 0, &[3; 1024]);
    let buffer = batch.push_buffer(data, 0);
    for payload in [[7; 376], [8; 376]] {
        batch.push_with_data(&facts, &to, EtherType::AOE, &payload, (buffer, 0, 1024));
    }
    batch.push(&facts, &Station::new(LinkId(77), NEIGHBOUR), EtherType::AOE, &[9; 50]);
    it.encapsulate(NOW, &mut batch, &memory);
    // The bucket has a millisecond, and one frame overdraws it.
    let links: Vec<LinkId> = batch.frames.iter().map(|frame| frame.link).collect();
    assert_eq!(links, [core(2), LinkId(77)], "one waits, the others leave with their batch");
    let first = batch.to_bytes(&batch.frames[0], &memory);
    memory.release(batch.buffers.pop().unwrap().0);
    let swapped = labelled(&packet(&[300], 1));
    show(&mut it, core(1), None, &swapped);
    let queue = it.report(NOW, R).unwrap().ports[1].queue;
    assert_eq!((leave(&mut it).len(), queue.delayed, queue.queued), (0, 2, 2));
    let second = Duration::from_millis(2);
    it.handle_timeout(NOW + second);
    let left = leave(&mut it);
    let as_it_was =
        |bytes: &[u8]| bytes.iter().map(|byte| if *byte == 8 { 7 } else { *byte }).collect();
    let its: Vec<Vec<u8>> = left.iter().map(|(_, bytes)| as_it_was(bytes)).collect();
    // The second in its pseudowire, with its data, as they were when it was sent.
    assert_eq!(its[0][first.len() - 1400..], first[first.len() - 1400..]);
    assert_eq!((left[0].0, its[0].len()), (core(2), first.len()));
    it.handle_timeout(NOW + 2 * second);
    assert_eq!(leave(&mut it).len() + left.len(), 2, "and what was forwarded behind it");
    let bins = it.report(NOW, R).unwrap().ports[1].bins.clone().unwrap().bytes;
    assert_eq!(
        (bins[0] as usize, bins[2] as usize >= first.len()),
        (first.len(), true),
        "{bins:?}"
    );
    // Nor do more of them wait than of others.
    set_rate(&mut it, Some(Rate::LEAST));
    for _ in 0..QUEUE_MAX + 20 {
        let mut batch = FrameBatch::default();
        batch.push(&facts, &to, EtherType::AOE, &[9; 1400]);
        it.encapsulate(NOW + 3 * second, &mut batch, &memory);
    }
    let queue = it.report(NOW, R).unwrap().ports[1].queue;
    assert_eq!(queue.queued, QUEUE_MAX.into());
    assert!(queue.queue_full >= 19, "{queue:?}");
}

#[test]
fn what_left_in_each_millisecond_is_recorded_where_somebody_asked() {
    let mut it = up();
    let swapped = labelled(&packet(&[300], 1));
    let bytes = swapped.len() as u32;
    let bins = |it: &Forwarder| it.report(NOW, R).unwrap().ports[1].bins.clone();
    show(&mut it, core(1), None, &swapped);
    assert_eq!(bins(&it), None);
    change(&mut it, Change::Record(core(2), 3));
    for (micros, count) in [(0, 2), (1_999, 1), (2_000, 1), (3_000, 5)] {
        let frame = InFrame::new(core(1), None, &swapped);
        for _ in 0..count {
            assert!(it.receive(NOW + Duration::from_micros(micros), &frame).is_none());
        }
    }
    // Nobody took what left, so that it waits for the driver, with what was there before.
    let recorded = Bins { bytes: vec![2 * bytes, bytes, bytes], queued: vec![3, 4, 5] };
    assert_eq!(bins(&it), Some(recorded));
    change(&mut it, Change::Record(core(2), 2));
    assert_eq!(bins(&it), Some(Bins { bytes: vec![0, 0], queued: vec![0, 0] }), "anew");
    // What waits for a rate counts when it leaves.
    set_rate(&mut it, Some(8_000_000));
    leave(&mut it);
    let packets = 2000 / bytes;
    (0..packets).for_each(|_| show(&mut it, core(1), None, &swapped));
    it.handle_timeout(NOW + Duration::from_micros(1_000));
    let Bins { bytes: seen, queued } = bins(&it).unwrap();
    assert_eq!(queued, [packets, 0], "all of them came at once");
    assert!(seen[0].abs_diff(1000) <= 2 * bytes && seen[1].abs_diff(1000) <= 2 * bytes, "{seen:?}");
    change(&mut it, Change::Record(core(2), 0));
    assert_eq!(bins(&it), None);
}
