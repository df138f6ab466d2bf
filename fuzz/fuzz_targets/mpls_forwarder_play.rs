//! The routers of a shard, whose tables, links and time change while frames come by every link.
//!
//! Checked: nobody is shown a frame but on a virtual link that was told to be up; what leaves does so
//! by a port that is there; a port never waits for more frames than its queue has; batches that came
//! back leave nothing behind; a time that is asked for is not in the past once it was called.
#![no_main]

use core::net::{IpAddr, Ipv4Addr};
use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;
use contract::{
    Fetch, FrameBatch, InFrame, LentFrames, LinkFacts, LinkId, MacAddress, Soon, Station,
    VirtualLinks, VlanTag,
};
use libfuzzer_sys::fuzz_target;
use mpls::limits::QUEUE_MAX;
use mpls::{
    Action, Change, Core, Fec, FecId, Forwarder, Labels, Neighbour, NeighbourId, NhlfeId, Origin,
    Over, Path, PortKind, Pseudowire, PseudowireId, Rate, RouterId, Sequencing, Session, Space,
    Tunnel, TunnelId, TunnelPort, Via, Watch, Way,
};
use plateway_fuzz::{Choices, one_line};
use testkit::Pages;
use wire::bfd::{ControlPacket, Diagnostic, State};
use wire::checksum::Checksum;
use wire::clamp::Clamp;
use wire::classify::{ClassKey, Classifier};
use wire::ethernet::{EtherType, HEADER_SIZE, TagControl};
use wire::gre::Header;
use wire::l2tp::Cookie;
use wire::mpls::Label;

const LINKS: u32 = 6;
const LABELS: [u32; 6] = [16, 17, 18, 19, 0, 3];
const OWN: MacAddress = MacAddress([2; 6]);
const THERE: MacAddress = MacAddress([4; 6]);
/// Of a router that is where a change says.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

struct Play {
    it: Forwarder,
    now: Instant,
    /// Which links are ports, and of which router.
    ports: BTreeMap<LinkId, (RouterId, PortKind)>,
    /// What was told of virtual links that are up.
    inside: BTreeMap<LinkId, LinkFacts>,
    /// Batches that the driver has.
    out: Vec<FrameBatch>,
    /// Frames that were shown in this turn.
    lent: LentFrames<Vec<u8>>,
}

fn facts(choices: &mut Choices<'_>) -> LinkFacts {
    let (mtu, vlan) = (choices.of(&[1500, 9000, 60]), choices.of(&[None, None, Some(7)]));
    LinkFacts { mac: OWN.0, mtu, vlan, ring_frames: 64, is_shared: false }
}

fn draw_label(choices: &mut Choices<'_>) -> Label {
    Label::new(choices.of(&LABELS)).expect("20 bits")
}

fn draw_link(choices: &mut Choices<'_>) -> LinkId {
    LinkId(choices.below(LINKS as usize) as u32)
}

fn draw_nhlfe(choices: &mut Choices<'_>) -> NhlfeId {
    NhlfeId(choices.below(3) as u32)
}

/// MPLS in UDP.
const UDP: Core = Core { takes_explicit_null: false, over: Over::Udp, rate: None };

fn draw_kind(choices: &mut Choices<'_>) -> PortKind {
    let traffic_classes = [0, 1, 2, 3, 4, 5, 6, 7];
    choices.of(&[
        PortKind::Core(Core {
            takes_explicit_null: true,
            over: Over::Ethernet,
            rate: Rate::new(64_000),
        }),
        PortKind::Core(Core { takes_explicit_null: true, over: Over::Udp, rate: None }),
        PortKind::Core(UDP),
        PortKind::Core(Core::default()),
        PortKind::Circuit { traffic_classes, classifier: None },
        PortKind::Circuit { traffic_classes, classifier: Some(Classifier::Vlan) },
        PortKind::Circuit { traffic_classes, classifier: Some(Classifier::Aoe) },
        PortKind::Virtual { mac: OWN },
        PortKind::Tunnels(TunnelPort::Gre),
        PortKind::Tunnels(TunnelPort::L2tp),
        PortKind::Bfd,
    ])
}

fn is_udp(kind: PortKind) -> bool {
    matches!(kind, PortKind::Core(Core { over: Over::Udp, .. }))
}

fn draw_tunnel(choices: &mut Choices<'_>) -> Tunnel {
    let key = |choices: &mut Choices<'_>| choices.of(&[None, Some(1), Some(2)]);
    let session = |choices: &mut Choices<'_>| NonZeroU32::new(choices.of(&[1, 2])).expect("not 0");
    let cookie = |choices: &mut Choices<'_>| {
        choices.of(&[Cookie::None, Cookie::Short([0; 4]), Cookie::Long([0; 8])])
    };
    Tunnel {
        fec: draw_fec(choices),
        port: draw_link(choices),
        session: if choices.flag() {
            Session::Gre { key_in: key(choices), key_out: key(choices) }
        } else {
            Session::L2tp {
                session_in: session(choices),
                cookie_in: cookie(choices),
                session_out: session(choices),
                cookie_out: cookie(choices),
                has_sublayer: choices.flag(),
            }
        },
        sequencing: draw_sequencing(choices),
    }
}

fn draw_sequencing(choices: &mut Choices<'_>) -> Sequencing {
    choices.of(&[Sequencing::Drop, Sequencing::Off, Sequencing::Reorder])
}

/// A packet from GRE's or L2TP's header on, or any bytes.
fn draw_packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut packet = Vec::new();
    if choices.flag() {
        let header = Header {
            protocol_type: choices.of(&[EtherType::TRANSPARENT_ETHERNET, EtherType::MPLS]),
            has_checksum: false,
            key: choices.of(&[None, Some(1), Some(2)]),
            sequence: choices.flag().then(|| choices.byte().into()),
        };
        packet.extend_from_slice(&header.emit(Checksum::default()));
    } else {
        packet.extend([0, 3, 0, 0, 0, 0, 0, choices.of(&[1, 2, 0])]);
        packet.resize(8 + choices.of(&[0, 4, 8]), 0);
        packet.extend(choices.of(&[[0; 4], [0x40, 0, 0, 1], [0x40, 0, 0, 4]]));
    }
    let length = choices.below(80);
    packet.extend((0..length).map(|_| choices.byte()));
    packet
}

fn draw_fec(choices: &mut Choices<'_>) -> Fec {
    let class = choices.of(&[None, None, Some(ClassKey::vlan(0)), Some(ClassKey::vlan(1))]);
    Fec { circuit: draw_link(choices), class }
}

fn draw_pseudowire(choices: &mut Choices<'_>) -> Pseudowire {
    let origin = |choices: &mut Choices<'_>| Origin {
        port: draw_link(choices),
        tunnel: choices.flag().then(|| draw_label(choices)),
        way: choices.of(&Way::BOTH),
    };
    Pseudowire {
        fec: draw_fec(choices),
        label_in: draw_label(choices),
        label_out: draw_label(choices),
        origins: (0..choices.below(4)).map(|_| origin(choices)).collect(),
        nhlfe: draw_nhlfe(choices),
        backup: choices.flag().then(|| draw_nhlfe(choices)),
        control_word: choices.flag().then(|| draw_sequencing(choices)),
        clamp: choices.flag().then_some(Clamp::AoeSectors),
    }
}

fn draw_watch(choices: &mut Choices<'_>) -> Watch {
    let interval_us = choices.of(&[50_000, 3_300, 0, 1_000_000]);
    let (detect_mult, seconds) = (choices.of(&[3, 1, 0, 255]), choices.of(&[5, 0]));
    let revert_after = Duration::from_secs(seconds);
    Watch { interval_us, detect_mult, revert_after }
}

fn draw_neighbour(choices: &mut Choices<'_>) -> Neighbour {
    let via = choices.of(&[Via::Mac(THERE), Via::Mac(OWN), Via::Ip(ADDRESS), Via::Mac(OWN)]);
    Neighbour { port: draw_link(choices), via, bfd: draw_link(choices), watch: draw_watch(choices) }
}

/// A control packet of a session that comes up where nobody knows the other yet.
fn draw_control_packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let state = choices.of(&[State::DOWN, State::INIT, State::ADMIN_DOWN, State::UP]);
    ControlPacket::new(state, Diagnostic::NONE, 3, 77, choices.of(&[0, 0, 1])).emit().to_vec()
}

/// A frame from its destination address on: labelled, of a customer's, or any bytes.
fn draw_frame(choices: &mut Choices<'_>) -> Vec<u8> {
    let how = choices.byte();
    let to = choices.of(&[OWN.0, OWN.0, [0xff; 6], [1, 0x80, 0xc2, 0, 0, 1]]);
    let mut frame = [&to[..], &THERE.0].concat();
    if how & 1 == 0 {
        frame.extend(EtherType::MPLS.0.to_be_bytes());
        for depth in (0..choices.below(4)).rev() {
            let label = draw_label(choices).get();
            let bottom = u32::from(depth == 0);
            frame.extend((label << 12 | bottom << 8 | u32::from(choices.byte())).to_be_bytes());
        }
        frame.extend(choices.of(&[
            [0, 0, 0, 1],
            [0x10, 0, 0, 7],
            [0x10, 0, 0x7f, 0xf8],
            [0, 0, 0xff, 0xff],
            [2, 0, 0, 0],
        ]));
    } else {
        frame.extend(choices.of(&[[0x88, 0xa2], [0x81, 0], [0x88, 0x08]]));
    }
    let length = choices.below(80);
    frame.extend((0..length).map(|_| choices.byte()));
    frame.truncate(if how & 0x80 == 0 { usize::MAX } else { choices.below(frame.len() + 1) });
    frame
}

impl Play {
    fn draw_change(&mut self, choices: &mut Choices<'_>) -> Option<(RouterId, Change)> {
        let router = RouterId(choices.below(2) as u32);
        let id = PseudowireId(choices.below(3) as u32);
        let tunnel = TunnelId(choices.below(3) as u32);
        let neighbour = NeighbourId(choices.below(3) as u32);
        let change = match choices.below(15) {
            0 | 1 => {
                let (link, kind) = (draw_link(choices), draw_kind(choices));
                if self.ports.get(&link).is_some_and(|(of, _)| *of != router) {
                    return None;
                }
                self.ports.insert(link, (router, kind));
                Change::SetPort(link, kind)
            }
            2 => {
                let link = draw_link(choices);
                if self.ports.get(&link).is_some_and(|(of, _)| *of != router) {
                    return None;
                }
                self.ports.remove(&link);
                Change::RemovePort(link)
            }
            3 | 4 => {
                let labels: Vec<Label> =
                    (0..choices.below(4)).map(|_| draw_label(choices)).collect();
                let labels = Labels::new(&labels).ok()?;
                let (port, mtu) = (draw_link(choices), choices.of(&[None, Some(70)]));
                let backup = choices.flag().then(|| draw_nhlfe(choices));
                let there = Some(Via::Mac(THERE));
                let via = choices.of(&[there, None, Some(Via::Ip(ADDRESS)), None]);
                let path = Path { port, via, labels, mtu, backup };
                Change::SetPath(draw_nhlfe(choices), path)
            }
            5 => Change::RemovePath(draw_nhlfe(choices)),
            6 => {
                let nhlfe = draw_nhlfe(choices);
                let action = choices.of(&[Action::Pop, Action::Forward(nhlfe)]);
                let (label, fec) = (draw_label(choices), FecId(choices.below(3) as u32));
                Change::SetLabel { space: Space::Platform, label, fec, action }
            }
            7 => Change::SetPseudowire(id, draw_pseudowire(choices)),
            8 => Change::SetWatch(id, choices.flag().then(|| draw_watch(choices))),
            9 => Change::RemovePseudowire(id),
            10 => Change::SetTunnel(tunnel, draw_tunnel(choices)),
            11 => Change::RemoveTunnel(tunnel),
            12 => Change::SetNeighbour(neighbour, draw_neighbour(choices)),
            13 => Change::RemoveNeighbour(neighbour),
            _ if choices.below(8) == 0 => {
                self.ports.retain(|_, (of, _)| *of != router);
                Change::RemoveRouter
            }
            _ => match choices.of(&[0, 60, 1, 2]) {
                1 => Change::Resolve(draw_link(choices), ADDRESS, Some(THERE)),
                2 => Change::Resolve(draw_link(choices), ADDRESS, None),
                seconds => Change::SetQuarantine(Duration::from_secs(seconds)),
            },
        };
        Some((router, change))
    }

    fn come(&mut self, link: LinkId, tag: Option<VlanTag>, bytes: &[u8]) {
        assert_eq!(self.it.takes(link), self.ports.contains_key(&link));
        if !self.it.takes(link) || matches!(self.ports[&link].1, PortKind::Virtual { .. }) {
            return;
        }
        // Some drivers lend frames until the turn ends, others for a call.
        let lent = bytes.len().is_multiple_of(2).then(|| self.lent.lend(bytes.to_vec()));
        let bytes = lent.map_or(bytes, |lent| self.lent.get(lent));
        // Whatever is told to come soon.
        let soon = Some(Soon { bytes, fetch: Fetch::NOTHING });
        let frame = InFrame { lent, soon, ..InFrame::new(link, tag, bytes) };
        if let Some(shown) = self.it.receive(self.now, &frame) {
            let (_, kind) = self.ports[&shown.link];
            assert!(matches!(kind, PortKind::Virtual { .. }), "{shown:?}");
            assert!(shown.bytes.len() <= bytes.len());
        }
        self.received();
    }

    /// What left by a core port comes back as it is, as from a router at the other end that has the
    /// same labels: by it sessions come up, and probes are answered.
    fn mirror(&mut self, choices: &mut Choices<'_>) {
        if self.out.is_empty() {
            return;
        }
        let batch = &self.out[choices.below(self.out.len())];
        let frame = batch.frames[choices.below(batch.frames.len())];
        let [prefix, head] = batch.heads(&frame);
        let mut bytes = [prefix, head].concat();
        let is_datagram = self.ports.get(&frame.link).is_some_and(|(_, kind)| is_udp(*kind));
        if !is_datagram
            && let Some((to, rest)) = bytes.split_first_chunk_mut::<6>()
            && let Some(from) = rest.first_chunk_mut::<6>()
        {
            core::mem::swap(to, from);
        }
        self.come(frame.link, None, &bytes);
    }

    /// What had to wait for other frames.
    fn received(&mut self) {
        while let Some((link, _)) = self.it.poll_received() {
            assert!(matches!(self.ports[&link].1, PortKind::Virtual { .. }), "{link}");
        }
    }

    /// The end of a turn.
    fn settle(&mut self) {
        self.received();
        while let Some((link, facts)) = self.it.poll_link() {
            match facts {
                Some(facts) => self.inside.insert(link, facts),
                None => self.inside.remove(&link),
            };
        }
        for link in self.inside.keys() {
            assert!(matches!(self.ports[link].1, PortKind::Virtual { .. }));
        }
        while let Some((_, event)) = self.it.poll_event() {
            one_line(&event);
        }
        while let Some(mut batch) = self.it.poll_batch() {
            batch.own_all(&mut self.lent);
            assert!(!batch.is_empty() && batch.buffers.is_empty());
            for frame in &batch.frames {
                assert!(self.ports.contains_key(&frame.link), "{frame:?}");
            }
            self.out.push(batch);
        }
        self.lent.end_turn();
        for router in [RouterId(0), RouterId(1)] {
            for port in self.it.report(self.now, router).into_iter().flat_map(|one| one.ports) {
                // Messages about paths wait whatever else does.
                assert!(port.queue.queued <= 2 * u64::from(QUEUE_MAX), "{port:?}");
            }
        }
    }

    fn send_inside(&mut self, choices: &mut Choices<'_>) {
        let Some((link, facts)) = self.inside.iter().next() else { return };
        let mut batch = FrameBatch::default();
        let length = choices.below(facts.mtu as usize + 2);
        let to = Station::new(*link, THERE);
        batch.push(facts, &to, EtherType::AOE, &vec![7; length]);
        let before = batch.frames[0];
        self.it.encapsulate(self.now, &mut batch, &Pages::new());
        // One that waits for its port's rate is among those that leave by it.
        let Some(after) = batch.frames.first() else { return };
        assert_eq!((before.head, before.head_length), (after.head, after.head_length));
        if after.link != *link {
            let (_, kind) = self.ports[&after.link];
            let least = match kind {
                PortKind::Core(Core { over: Over::Udp, .. }) => 4,
                PortKind::Core(_) => 14 + 4,
                PortKind::Tunnels(TunnelPort::Gre) => 4,
                PortKind::Tunnels(TunnelPort::L2tp) => 8,
                other => panic!("{other:?}"),
            };
            assert!(after.prefix_length >= least);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut play = Play {
        it: Forwarder::new(u64::from(choices.byte())),
        now: Instant(1_000_000_000),
        ports: BTreeMap::new(),
        inside: BTreeMap::new(),
        out: Vec::new(),
        lent: LentFrames::default(),
    };
    while !choices.is_empty() {
        match choices.below(9) {
            0..=2 => {
                if let Some((router, change)) = play.draw_change(&mut choices)
                    && let Err(refused) = play.it.change(play.now, router, change)
                {
                    one_line(&refused);
                }
            }
            3 => {
                let link = draw_link(&mut choices);
                let facts = choices.flag().then(|| facts(&mut choices));
                let is_virtual =
                    |(_, kind): &(RouterId, PortKind)| matches!(kind, PortKind::Virtual { .. });
                if !play.ports.get(&link).is_some_and(is_virtual) {
                    play.it.handle_link(play.now, link, facts);
                }
            }
            4 | 5 => {
                let link = draw_link(&mut choices);
                let control = TagControl(choices.word());
                let ether_type = choices.of(&[EtherType::VLAN, EtherType::SERVICE_VLAN]);
                let tag = choices.flag().then_some(VlanTag { ether_type, control });
                let frame = match play.ports.get(&link) {
                    Some((_, PortKind::Tunnels(_))) => draw_packet(&mut choices),
                    Some((_, PortKind::Bfd)) if choices.flag() => draw_control_packet(&mut choices),
                    // From the label stack on.
                    Some((_, kind)) if is_udp(*kind) => {
                        draw_frame(&mut choices).get(HEADER_SIZE..).unwrap_or_default().to_vec()
                    }
                    _ => draw_frame(&mut choices),
                };
                play.come(link, tag, &frame);
            }
            6 => play.mirror(&mut choices),
            7 => {
                play.now = play.now + Duration::from_micros(u64::from(choices.word()) * 100);
                if play.it.poll_timeout().is_some_and(|at| at <= play.now) {
                    play.it.handle_timeout(play.now);
                    assert!(play.it.poll_timeout().is_none_or(|at| at > play.now));
                }
            }
            _ => {
                play.send_inside(&mut choices);
                let count = choices.below(play.out.len() + 1);
                play.out.drain(..count).for_each(|batch| play.it.handle_sent(batch));
            }
        }
        play.settle();
    }
});
