//! The edge: a frame of a circuit enters its pseudowire, and a packet leaves a pseudowire by its
//! circuit, as the frame that entered. What goes by a tunnel through IP instead is [`crate::tunnel`]'s.
//!
//! ```text
//!   circuit:   frame
//!   core:      Ethernet | tunnel labels | pseudowire's label, S | control word | frame
//! ```
//! A frame that enters is whole: with its VLAN tag, without check sequence. Nothing in it is looked
//! at but its length, whom it is for, its EtherType and its priority; one that has labels is a frame
//! like others. What lies between the two ends of a cable stays there: PAUSE and all of MAC control,
//! LACP and all slow protocols, and what is for an address that no bridge forwards.
//!
//! A packet that leaves came as its pseudowire's packets do, or it is dropped. Then the first four
//! bits behind its label are looked at, before all else: a message of the associated channel never
//! reaches a circuit. Then the sequence number, then whether the frame fits the circuit.
//! Units: bytes of a frame from its destination address on. Errors: frames are dropped and counted.
//! Spec: RFC 4448, RFC 4385; RFC 3443 (the labels' TTL says nothing of the frame's: "pipe").

use block::{IdMap, Instant, planted};
use contract::LinkId;
use wire::Front;
use wire::clamp::Lowered;
use wire::classify::Class;
use wire::ethernet::{EtherType, HEADER_SIZE, MacAddress, Tagged, VLAN_TAG_SIZE, VlanTag};
use wire::mpls::{Label, LabelStackEntry};
use wire::pseudowire::{AssociatedChannelHeader, ControlWord, Packet};
use wire::sequence::PseudowireSequence;

use crate::ftn::{Fec, Wire};
use crate::limits::{ADDRESSES, CHANNEL_CLASS, FRONT_MAX, TTL_FIRST};
use crate::nhlfe::{Labels, NhlfeState};
use crate::port::{Circuit, PortState, Role};
use crate::protection::Way;
use crate::pseudowire::{PseudowireId, PseudowireState};
use crate::router::Router;
use crate::sequencing::{Receiver, Taken};
use crate::verdict::{DropReason, Drops, Verdict};

impl Router {
    /// What is done with a frame that came by a circuit, whoever it is for. It is whole, from its
    /// destination address on, but for a `tag` that was taken out of it, which is put back. One that
    /// came by any other port is dropped.
    #[inline]
    pub fn handle_circuit<'a>(
        &mut self,
        circuit: LinkId,
        tag: Option<VlanTag>,
        frame: &'a [u8],
    ) -> Verdict<'a> {
        let bytes = frame.len() + if tag.is_some() { VLAN_TAG_SIZE } else { 0 };
        let (sent, rest) = match self.admit(circuit, tag, frame, bytes) {
            Ok((_, Goes::ByAll)) => return Verdict::Copy,
            Ok((class, Goes::By(wire))) => self.enter_whole(wire, class, tag, frame),
            Err(reason) => (Err(reason), frame),
        };
        self.sent_or_dropped(circuit, sent, rest)
    }

    /// A frame of a circuit leaves as what it became, or is dropped.
    #[inline]
    fn sent_or_dropped<'a>(
        &mut self,
        circuit: LinkId,
        sent: Result<LinkId, DropReason>,
        rest: &'a [u8],
    ) -> Verdict<'a> {
        match sent {
            Ok(port) => Verdict::Send { port, rest },
            Err(reason) => self.drop_frame(circuit, reason),
        }
    }

    /// What the classes of a circuit go by.
    pub fn classes_of(&self, circuit: LinkId) -> impl Iterator<Item = Wire> {
        self.ftn.classes_of(circuit)
    }

    /// How a frame that is for all classes of its circuit goes by one of what these go by.
    pub fn copy_to<'a>(
        &mut self,
        wire: Wire,
        circuit: LinkId,
        tag: Option<VlanTag>,
        frame: &'a [u8],
    ) -> Verdict<'a> {
        let (sent, rest) = match self.ports.get(circuit.0).map(|port| port.role) {
            Some(Role::Circuit(role)) => {
                let outermost = tag.or_else(|| Tagged::parse(frame).ok()?.tag);
                self.enter_whole(wire, role.traffic_class(outermost), tag, frame)
            }
            _ => (Err(DropReason::NoCircuit), frame),
        };
        self.sent_or_dropped(circuit, sent, rest)
    }

    /// Where a frame goes that somebody of this process sends by a circuit, with the router's front
    /// in front of it. `head` is its first bytes, with addresses and EtherType; all of it has `length`.
    #[inline]
    pub fn handle_own(
        &mut self,
        circuit: LinkId,
        head: &[u8],
        length: usize,
    ) -> Result<LinkId, DropReason> {
        self.front.clear();
        let entered = match self.admit(circuit, None, head, length) {
            Ok((class, Goes::By(wire))) => self.enter(wire, class, length),
            // Those who live here have one wire, and their circuit no classes.
            Ok((_, Goes::ByAll)) => Err(DropReason::NoClass),
            Err(reason) => Err(reason),
        };
        entered.inspect_err(|reason| {
            self.drop_frame(circuit, *reason);
        })
    }

    /// Whether a frame of so many bytes may enter by a circuit, with which traffic class, and what it
    /// goes by.
    #[inline]
    fn admit(
        &mut self,
        circuit: LinkId,
        tag: Option<VlanTag>,
        head: &[u8],
        bytes: usize,
    ) -> Result<(u8, Goes), DropReason> {
        let port = self.ports.get_mut(circuit.0).ok_or(DropReason::NoCircuit)?;
        let Role::Circuit(role) = port.role else { return Err(DropReason::NoCircuit) };
        port.count_received(bytes);
        let tagged = Tagged::parse(head).map_err(|_| DropReason::Runt)?;
        if stays_on_its_cable(&tagged) {
            return Err(DropReason::BridgeReserved);
        }
        let traffic_class = role.traffic_class(tag.or(tagged.tag));
        let wire = match role.classifier.map(|classifier| classifier.classify(tag, head)) {
            None => self.ftn.find(Fec::all_of(circuit)).ok_or(DropReason::NoPseudowire)?,
            Some(Class::All) => {
                let mut classes = self.ftn.classes_of(circuit);
                return classes
                    .next()
                    .map(|_| (traffic_class, Goes::ByAll))
                    .ok_or(DropReason::NoClass);
            }
            Some(Class::One(class)) => {
                let fec = Fec { circuit, class: Some(class) };
                self.ftn.find(fec).ok_or(DropReason::NoClass)?
            }
            Some(Class::Nowhere) => return Err(DropReason::NoClass),
        };
        Ok((traffic_class, Goes::By(wire)))
    }

    /// A frame that is here whole, but for a `tag` that was taken out of it, goes by this. Returns also
    /// what stays as it is, behind what is new in front.
    #[inline]
    fn enter_whole<'a>(
        &mut self,
        wire: Wire,
        traffic_class: u8,
        tag: Option<VlanTag>,
        frame: &'a [u8],
    ) -> (Result<LinkId, DropReason>, &'a [u8]) {
        let lowered = self.lower(wire, tag, frame);
        let rest = head(&mut self.front, tag, frame, lowered);
        (self.enter(wire, traffic_class, rest.len()), rest)
    }

    /// What is to be another in a frame of a pseudowire, so that those that it asks for fit.
    #[inline]
    fn lower(&mut self, wire: Wire, tag: Option<VlanTag>, frame: &[u8]) -> Option<Lowered> {
        let Wire::Pseudowire(id) = wire else { return None };
        let clamp = self.pseudowires.get(id.0)?.pseudowire.clamp?;
        let lowered = clamp.lower(tag, frame, || self.fits(id))?;
        self.pseudowires[id.0].counters.clamped += 1;
        Some(lowered)
    }

    /// A frame that leaves by a circuit, with what is to be another in it.
    #[inline]
    pub(crate) fn clamp<'a>(&mut self, id: PseudowireId, left: Verdict<'a>) -> Verdict<'a> {
        if let Verdict::Deliver { circuit, frame } = left
            && let Some(lowered) = self.lower(Wire::Pseudowire(id), None, frame)
        {
            let rest = head(&mut self.front, None, frame, Some(lowered));
            return Verdict::DeliverChanged { circuit, rest };
        }
        left
    }

    /// The same of one that came early.
    pub(crate) fn clamp_early(&mut self, wire: Wire, frame: &mut [u8]) {
        if let Some(Lowered { at, value }) = self.lower(wire, None, frame) {
            frame[at] = value;
        }
    }

    /// A frame of which the front and so many bytes behind it are to be sent goes by this.
    #[inline]
    fn enter(&mut self, wire: Wire, traffic_class: u8, rest: usize) -> Result<LinkId, DropReason> {
        let (ports, front) = (&mut self.ports, &mut self.front);
        let id = match wire {
            Wire::Pseudowire(id) => id,
            Wire::Tunnel(id) => return self.tunnels[id.0].enter(ports, front, rest),
        };
        let entered = &mut self.pseudowires[id.0];
        let nhlfe = entered.pseudowire.nhlfe_of(entered.way);
        let nhlfe = nhlfe.map(|nhlfe| self.repairs.taken(&self.nhlfes, nhlfe));
        let nhlfe = nhlfe.and_then(|nhlfe| self.nhlfes.get_mut(nhlfe.0));
        entered.enter(ports, nhlfe, traffic_class, front, rest)
    }

    /// By which port a message of a pseudowire's associated channel leaves, by one of its two paths,
    /// with the router's front in front of it. `None`: there is no such path now, or no control word, so no
    /// channel (RFC 5085).
    pub fn channel(
        &mut self,
        id: PseudowireId,
        way: Way,
        header: AssociatedChannelHeader,
        length: usize,
    ) -> Option<LinkId> {
        let PseudowireState { pseudowire, counters, .. } = self.pseudowires.get_mut(id.0)?;
        pseudowire.control_word?;
        let nhlfe = self.repairs.taken(&self.nhlfes, pseudowire.nhlfe_of(way)?);
        let nhlfe = self.nhlfes.get_mut(nhlfe.0)?;
        let front = &mut self.front;
        front.clear();
        front.push(&header.emit());
        let tunnel = LabelStackEntry {
            label: pseudowire.label_out,
            traffic_class: CHANNEL_CLASS,
            is_bottom: false,
            ttl: TTL_FIRST,
        };
        front.push(&LabelStackEntry { is_bottom: true, ..tunnel }.emit());
        let sent = nhlfe.send(&mut self.ports, front, tunnel, length).ok()?;
        counters.channel_messages_sent += 1;
        Some(sent)
    }
}

/// What a customer's frame goes by.
#[derive(Clone, Copy)]
enum Goes {
    By(Wire),
    /// By all that the classes of its circuit go by.
    ByAll,
}

/// A frame with the tag that was taken out of it, and with a byte that is another: what is new in
/// front is put there, and what stays where it is comes back.
#[inline]
fn head<'a>(
    front: &mut Front<FRONT_MAX>,
    tag: Option<VlanTag>,
    frame: &'a [u8],
    lowered: Option<Lowered>,
) -> &'a [u8] {
    front.clear();
    let Some((addresses, mut behind)) =
        frame.split_first_chunk::<ADDRESSES>().filter(|_| tag.is_some() || lowered.is_some())
    else {
        return frame;
    };
    if let Some(Lowered { at, value }) = lowered {
        front.push(&[value]);
        front.push(&frame[ADDRESSES..at]);
        behind = &frame[at + 1..];
    }
    if let Some(tag) = tag {
        front.push(&tag.emit());
    }
    front.push(addresses);
    behind
}

impl Circuit {
    /// The traffic class of frames with this outermost tag.
    #[inline]
    fn traffic_class(&self, tag: Option<VlanTag>) -> u8 {
        self.traffic_classes[usize::from(tag.map_or(0, |tag| tag.control.priority()))]
    }
}

/// Whether a frame is meant for the other end of its cable alone.
#[inline]
fn stays_on_its_cable(frame: &Tagged<'_>) -> bool {
    let [a, b, c, d, e, f, ..] = *frame.addresses;
    let ether_type = EtherType(u16::from_be_bytes([frame.rest[0], frame.rest[1]]));
    MacAddress([a, b, c, d, e, f]).is_bridge_reserved()
        || ether_type == EtherType::MAC_CONTROL
        || ether_type == EtherType::SLOW_PROTOCOLS
}

impl PseudowireState {
    /// A frame enters and is sent to the other end.
    #[inline]
    fn enter(
        &mut self,
        ports: &mut IdMap<PortState>,
        nhlfe: Option<&mut NhlfeState>,
        traffic_class: u8,
        front: &mut Front<FRONT_MAX>,
        rest: usize,
    ) -> Result<LinkId, DropReason> {
        let frame_bytes = front.len() + rest;
        let mut number = None;
        if let Some(sequencing) = self.pseudowire.control_word {
            number = self.sender.number(sequencing);
            front.push(&ControlWord::ethernet(PseudowireSequence::new(number)).emit());
        }
        let tunnel = LabelStackEntry {
            label: self.pseudowire.label_out,
            traffic_class,
            is_bottom: false,
            ttl: TTL_FIRST,
        };
        front.push(&LabelStackEntry { is_bottom: true, ..tunnel }.emit());
        let sent = match nhlfe {
            Some(nhlfe) if self.way == Way::Backup && planted("move-drops-the-label") => {
                let labels = core::mem::replace(&mut nhlfe.nhlfe.labels, Labels::NONE);
                let sent = nhlfe.send(ports, front, tunnel, rest);
                nhlfe.nhlfe.labels = labels;
                sent
            }
            Some(nhlfe) => nhlfe.send(ports, front, tunnel, rest),
            None => Err(DropReason::NoNextHop),
        };
        match sent {
            Ok(_) => {
                self.sender.sent(number);
                self.counters.sent += 1;
                self.counters.sent_bytes += frame_bytes as u64;
            }
            Err(reason) => self.drops.count(reason),
        }
        sent
    }

    /// A packet leaves, from behind the pseudowire's label on, which came by this port and, if its
    /// label was not popped before, in this tunnel; and whether that label was the bottom.
    #[inline]
    pub(crate) fn leave<'a>(
        &mut self,
        now: Instant,
        ports: &mut IdMap<PortState>,
        id: PseudowireId,
        came: (LinkId, Option<Label>, bool),
        packet: &'a [u8],
    ) -> Result<Verdict<'a>, DropReason> {
        let left = self.open(now, id, came, packet).and_then(|verdict| {
            if let Verdict::Deliver { circuit, frame } = verdict {
                deliver(ports, circuit, frame)?;
            }
            Ok(verdict)
        });
        match &left {
            Ok(Verdict::Deliver { frame, .. }) => {
                self.counters.delivered += 1;
                self.counters.delivered_bytes += frame.len() as u64;
            }
            Ok(Verdict::Wait) => {}
            Ok(_) => self.counters.channel_messages += 1,
            Err(reason) => self.drops.count(*reason),
        }
        left
    }

    /// The next frame that came early and leaves now.
    pub(crate) fn take_early(
        &mut self,
        now: Instant,
        ports: &mut IdMap<PortState>,
    ) -> Option<(LinkId, Vec<u8>)> {
        let circuit = self.pseudowire.fec.circuit;
        let frame = deliver_early(now, ports, circuit, &mut self.receiver, &mut self.drops)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += frame.len() as u64;
        Some((circuit, frame))
    }

    /// Whether a packet is one of this pseudowire's, and what is in it.
    #[inline]
    fn open<'a>(
        &mut self,
        now: Instant,
        id: PseudowireId,
        (port, tunnel, is_bottom): (LinkId, Option<Label>, bool),
        packet: &'a [u8],
    ) -> Result<Verdict<'a>, DropReason> {
        if !is_bottom {
            return Err(DropReason::NotBottom);
        }
        let way = self.pseudowire.check_origin(port, tunnel)?;
        let circuit = self.pseudowire.fec.circuit;
        let Some(sequencing) = self.pseudowire.control_word else {
            return Ok(Verdict::Deliver { circuit, frame: whole(packet)? });
        };
        match Packet::parse(packet) {
            Ok(Packet::Data(word, behind)) => {
                let frame = whole(behind)?;
                match self.receiver.receive(now, sequencing, word.sequence.number(), frame) {
                    Taken::Passes => Ok(Verdict::Deliver { circuit, frame }),
                    Taken::Waits => Ok(Verdict::Wait),
                    Taken::IsLate => Err(DropReason::Late),
                }
            }
            Ok(Packet::Channel(_, message)) if planted("channel-reaches-the-circuit") => {
                Ok(Verdict::Deliver { circuit, frame: message })
            }
            Ok(Packet::Channel(header, message)) => {
                Ok(Verdict::Channel { pseudowire: id, way, header, message })
            }
            Err(_) => Err(misread(packet)),
        }
    }
}

/// A frame with an Ethernet header.
#[inline]
pub(crate) fn whole(frame: &[u8]) -> Result<&[u8], DropReason> {
    if frame.len() < HEADER_SIZE { Err(DropReason::Runt) } else { Ok(frame) }
}

/// Why a packet is neither a frame nor a message of the channel.
#[cold]
fn misread(packet: &[u8]) -> DropReason {
    match packet.first_chunk() {
        None::<&[u8; ControlWord::SIZE]> => DropReason::Runt,
        Some([0x10..=0x1f, ..]) => DropReason::ChannelVersion,
        Some(_) => DropReason::ControlWordMismatch,
    }
}

/// A frame leaves by a circuit that is there and takes it.
#[inline]
pub(crate) fn deliver(
    ports: &mut IdMap<PortState>,
    circuit: LinkId,
    frame: &[u8],
) -> Result<(), DropReason> {
    let port = ports.get_mut(circuit.0).ok_or(DropReason::NoCircuit)?;
    let Role::Circuit(role) = port.role else { return Err(DropReason::NoCircuit) };
    let is_tagged = Tagged::parse(frame).is_ok_and(|frame| frame.tag.is_some());
    let header = HEADER_SIZE + if is_tagged { VLAN_TAG_SIZE } else { 0 };
    if frame.len() > header + role.mtu as usize {
        return Err(DropReason::OverCircuitMtu);
    }
    port.count_sent(frame.len());
    Ok(())
}

/// The next frame that came early, has waited long enough, and leaves by a circuit.
pub(crate) fn deliver_early(
    now: Instant,
    ports: &mut IdMap<PortState>,
    circuit: LinkId,
    receiver: &mut Receiver,
    drops: &mut Drops,
) -> Option<Vec<u8>> {
    loop {
        let frame = receiver.take_early(now)?;
        match deliver(ports, circuit, &frame) {
            Ok(()) => return Some(frame),
            Err(reason) => drops.count(reason),
        }
    }
}
