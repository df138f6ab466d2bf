//! Tunnels through IP: another way for a circuit's frames to reach the circuit at the other end, in
//! GRE or in L2TPv3.
//!
//! ```text
//!   GRE:      IP | GRE, transparent Ethernet | key | sequence number | frame
//!   L2TPv3:   IP | UDP | session ID | cookie | sublayer with the sequence number | frame
//! ```
//! A tunnel's packets come and go by a port of its own kind, which leads to one other host; what is
//! in front of GRE's and L2TP's own header is the kernel's. Several tunnels share a port and are told
//! by key or session ID. What comes with another cookie was sent by somebody who does not know it.
//! What enters and leaves is what would enter and leave a pseudowire ([`crate::ler`]); what both have
//! of sequence numbers is [`crate::sequencing`]'s. A checksum of GRE is checked where there is one,
//! and none is sent.
//! Units: frames, and their bytes from the destination address on; a port's from GRE's or L2TP's
//! header on. Errors: the key or session ID, or the circuit, is another's; packets are dropped and
//! counted. Spec: RFC 2784, RFC 2890; RFC 3931, RFC 4719.

use core::fmt;
use core::num::NonZeroU32;

use block::{IdMap, Instant, planted};
use contract::{LinkId, counters};
use wire::Front;
use wire::checksum::Checksum;
use wire::ethernet::EtherType;
use wire::gre;
use wire::l2tp::{Cookie, DataHeader, L2SpecificSublayer, SessionFormat, Transport, session_id};
use wire::sequence::Numbers;

use crate::ftn::{Fec, Wire};
use crate::ler::{deliver, deliver_early, whole};
use crate::limits::FRONT_MAX;
use crate::port::{PortState, Role, TunnelPort};
use crate::refused::Refused;
use crate::router::Router;
use crate::sequencing::{Receiver, Sender, Sequencing, Taken};
use crate::verdict::{DropReason, Drops, Verdict};

/// The number of a tunnel, given by whoever configured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelId(pub u32);

impl fmt::Display for TunnelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tunnel {}", self.0)
    }
}

/// What tells a tunnel from others between the same two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// GRE's keys; `None` is a header without one.
    Gre { key_in: Option<u32>, key_out: Option<u32> },
    /// L2TPv3's session IDs and cookies, each as the receiving end gave them, and whether there is
    /// the default L2-specific sublayer, without which there are no sequence numbers.
    L2tp {
        session_in: NonZeroU32,
        cookie_in: Cookie,
        session_out: NonZeroU32,
        cookie_out: Cookie,
        has_sublayer: bool,
    },
}

impl Session {
    /// The kind of port by which its packets come and go.
    pub const fn port(&self) -> TunnelPort {
        match self {
            Self::Gre { .. } => TunnelPort::Gre,
            Self::L2tp { .. } => TunnelPort::L2tp,
        }
    }

    /// By which its packets are known on their port.
    pub const fn key(&self) -> SessionKey {
        match self {
            Self::Gre { key_in, .. } => SessionKey::Gre(*key_in),
            Self::L2tp { session_in, .. } => SessionKey::L2tp(*session_in),
        }
    }

    /// Bytes of GRE's or L2TP's header in front of a frame.
    pub const fn header_size(&self, sequencing: Sequencing) -> usize {
        match self {
            Self::Gre { key_out, .. } => {
                let sequence = if matches!(sequencing, Sequencing::Off) { None } else { Some(0) };
                gre::Header { key: *key_out, sequence, ..PLAIN }.size()
            }
            Self::L2tp { cookie_out, has_sublayer, .. } => {
                let sublayer = if *has_sublayer { size_of::<L2SpecificSublayer>() } else { 0 };
                Transport::Udp.header_size() + cookie_out.bytes().len() + sublayer
            }
        }
    }

    const fn numbers(&self) -> Numbers {
        match self {
            Self::Gre { .. } => Numbers::GRE,
            Self::L2tp { .. } => Numbers::L2TP,
        }
    }
}

const PLAIN: gre::Header = gre::Header::new(EtherType::TRANSPARENT_ETHERNET);

/// By which packets of a tunnel are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionKey {
    Gre(Option<u32>),
    L2tp(NonZeroU32),
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gre(None) => f.write_str("GRE without a key"),
            Self::Gre(Some(key)) => write!(f, "GRE key {key}"),
            Self::L2tp(session) => write!(f, "L2TP session {session}"),
        }
    }
}

/// A tunnel's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Which frames go by it.
    pub fec: Fec,
    /// The port towards the other end.
    pub port: LinkId,
    pub session: Session,
    /// What is done with sequence numbers. The same at the other end.
    pub sequencing: Sequencing,
}

impl Tunnel {
    /// Whether it can be as it is.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        match (self.session, self.sequencing) {
            (_, Sequencing::Off) | (Session::Gre { .. }, _) => Ok(()),
            (Session::L2tp { has_sublayer: true, .. }, _) => Ok(()),
            (Session::L2tp { .. }, _) => Err(Refused::NoNumbers),
        }
    }
}

counters! {
    /// What went through a tunnel, by way of this end.
    pub struct TunnelCounters {
        /// Frames that were sent to the other end.
        sent: Frames,
        /// Their bytes.
        sent_bytes: Bytes,
        /// Frames of the other end that were delivered.
        delivered: Frames,
        /// Their bytes.
        delivered_bytes: Bytes,
    }
}

/// A tunnel as the router has it.
#[derive(Debug)]
pub(crate) struct TunnelState {
    pub(crate) tunnel: Tunnel,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) counters: TunnelCounters,
    /// Of both directions, as far as they were known to be its frames.
    pub(crate) drops: Drops,
}

impl TunnelState {
    pub(crate) fn new(tunnel: Tunnel) -> Self {
        let numbers = tunnel.session.numbers();
        Self {
            tunnel,
            sender: Sender::new(numbers),
            receiver: Receiver::new(numbers),
            counters: TunnelCounters::default(),
            drops: Drops::default(),
        }
    }

    /// Takes another value; counters stay, and so does what is known of sequence numbers, as those
    /// of a pseudowire do.
    pub(crate) fn renew(&mut self, tunnel: Tunnel) {
        let before = core::mem::replace(&mut self.tunnel, tunnel);
        if before.session.numbers() != tunnel.session.numbers() {
            self.sender = Sender::new(tunnel.session.numbers());
        }
        if before.fec.circuit != tunnel.fec.circuit {
            self.drops.no_circuit += self.receiver.begin_for_another(tunnel.session.numbers());
        } else if before.session.key() != tunnel.session.key()
            || before.sequencing != tunnel.sequencing
            || planted("renewed-tunnel-forgets-the-sequence")
        {
            self.receiver.begin_anew(tunnel.session.numbers());
        }
    }

    /// A frame enters and is sent to the other end.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        ports: &mut IdMap<PortState>,
        front: &mut Front<FRONT_MAX>,
        rest: usize,
    ) -> Result<LinkId, DropReason> {
        let frame_bytes = front.len() + rest;
        let Tunnel { port, session, sequencing, .. } = self.tunnel;
        let number = self.sender.number(sequencing);
        match session {
            Session::Gre { key_out, .. } => {
                let header = gre::Header { key: key_out, sequence: number, ..PLAIN };
                front.push(&header.emit(Checksum::default()));
            }
            Session::L2tp { session_out, cookie_out, has_sublayer, .. } => {
                let sublayer = has_sublayer.then(|| L2SpecificSublayer::new(number));
                let header = DataHeader { session_id: session_out, cookie: cookie_out, sublayer };
                front.push(&header.emit(Transport::Udp));
            }
        }
        let bytes = front.len() + rest;
        let sent = send(ports, port, session.port(), bytes);
        match sent {
            Ok(()) => {
                self.sender.sent(number);
                self.counters.sent += 1;
                self.counters.sent_bytes += frame_bytes as u64;
            }
            Err(reason) => self.drops.count(reason),
        }
        sent.map(|()| port)
    }

    /// The frame of a packet whose key or session ID is this tunnel's.
    #[inline]
    fn open<'a>(&mut self, header: Header<'a>) -> Result<(&'a [u8], Option<u32>), DropReason> {
        match (self.tunnel.session, header) {
            (Session::Gre { .. }, Header::Gre(header, frame)) => {
                let is_ethernet = header.protocol_type == EtherType::TRANSPARENT_ETHERNET;
                if !is_ethernet && !planted("any-protocol-is-ethernet") {
                    return Err(DropReason::NotEthernet);
                }
                Ok((frame, header.sequence))
            }
            (Session::L2tp { cookie_in, has_sublayer, .. }, Header::L2tp(message)) => {
                let format =
                    SessionFormat { transport: Transport::Udp, cookie: cookie_in, has_sublayer };
                let (header, frame) =
                    DataHeader::pop(message, format).map_err(|_| DropReason::Runt)?;
                if header.cookie != cookie_in && !planted("cookie-is-not-looked-at") {
                    return Err(DropReason::WrongCookie);
                }
                Ok((frame, header.sublayer.and_then(L2SpecificSublayer::number)))
            }
            _ => unreachable!("a port's packets are of one kind, and so are its tunnels"),
        }
    }

    /// A packet leaves by the circuit.
    #[inline]
    fn leave<'a>(
        &mut self,
        now: Instant,
        ports: &mut IdMap<PortState>,
        header: Header<'a>,
    ) -> Result<Verdict<'a>, DropReason> {
        let circuit = self.tunnel.fec.circuit;
        let left = self.open(header).and_then(|(frame, number)| {
            let frame = whole(frame)?;
            let sequencing = match self.tunnel.sequencing {
                Sequencing::Drop if planted("tunnels-take-what-is-late") => Sequencing::Off,
                sequencing => sequencing,
            };
            match self.receiver.receive(now, sequencing, number, frame) {
                Taken::Passes => deliver(ports, circuit, frame)?,
                Taken::Waits => return Ok(Verdict::Wait),
                Taken::IsLate => return Err(DropReason::Late),
            }
            self.counters.delivered += 1;
            self.counters.delivered_bytes += frame.len() as u64;
            Ok(Verdict::Deliver { circuit, frame })
        });
        left.inspect_err(|reason| self.drops.count(*reason))
    }

    /// The next frame that came early and leaves now.
    pub(crate) fn take_early(
        &mut self,
        now: Instant,
        ports: &mut IdMap<PortState>,
    ) -> Option<(LinkId, Vec<u8>)> {
        let circuit = self.tunnel.fec.circuit;
        let frame = deliver_early(now, ports, circuit, &mut self.receiver, &mut self.drops)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += frame.len() as u64;
        Some((circuit, frame))
    }
}

/// A packet of so many bytes leaves by a port that is of this kind and takes it.
#[inline]
fn send(
    ports: &mut IdMap<PortState>,
    port: LinkId,
    kind: TunnelPort,
    bytes: usize,
) -> Result<(), DropReason> {
    let port = ports.get_mut(port.0).ok_or(DropReason::NoNextHop)?;
    let Role::Tunnels { kind: its, mtu } = port.role else { return Err(DropReason::NoNextHop) };
    if its != kind {
        return Err(DropReason::NoNextHop);
    }
    if bytes > mtu as usize {
        return Err(DropReason::OverMtu);
    }
    port.count_sent(bytes);
    Ok(())
}

/// What is known of a packet before its tunnel is.
#[derive(Clone, Copy)]
enum Header<'a> {
    /// GRE's header, and what is behind it.
    Gre(gre::Header, &'a [u8]),
    /// A whole message of L2TP: where its header ends says its session.
    L2tp(&'a [u8]),
}

impl Router {
    /// What is done with a packet that came by a port of tunnels, from GRE's or L2TP's header on.
    #[inline]
    pub fn handle_tunnelled<'a>(
        &mut self,
        now: Instant,
        port: LinkId,
        packet: &'a [u8],
    ) -> Verdict<'a> {
        match self.leave_tunnel(now, port, packet) {
            Ok(verdict) => verdict,
            Err(reason) => self.drop_frame(port, reason),
        }
    }

    #[inline]
    fn leave_tunnel<'a>(
        &mut self,
        now: Instant,
        link: LinkId,
        packet: &'a [u8],
    ) -> Result<Verdict<'a>, DropReason> {
        let port = self.ports.get_mut(link.0).ok_or(DropReason::NoTunnel)?;
        let Role::Tunnels { kind, .. } = port.role else { return Err(DropReason::NoTunnel) };
        port.count_received(packet.len());
        let (key, header) = match kind {
            TunnelPort::Gre => {
                let (header, behind) =
                    gre::Header::pop(packet).map_err(|_| DropReason::Misformed)?;
                (SessionKey::Gre(header.key), Header::Gre(header, behind))
            }
            TunnelPort::L2tp => {
                let session = session_id(Transport::Udp, packet);
                let session = session.map_err(|_| DropReason::Misformed)?;
                (SessionKey::L2tp(session), Header::L2tp(packet))
            }
        };
        let found = match self.sessions.get(&(link, key)) {
            None if planted("key-is-not-looked-at") => self.sessions.values().next(),
            found => found,
        };
        let id = *found.ok_or(DropReason::NoTunnel)?;
        let left = self.tunnels[id.0].leave(now, &mut self.ports, header)?;
        if left == Verdict::Wait {
            self.early.put(Wire::Tunnel(id));
        }
        Ok(left)
    }
}
