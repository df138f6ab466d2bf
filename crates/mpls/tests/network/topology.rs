//! The routers, the links between them, and the wires of customers: by which paths each goes, with
//! which labels, keys or sessions.
//!
//! ```text
//!             LSR1 ------ LSR2        each of LER1, LER2 and LER3 has a link to both;
//!            / |  \      / |  \       between LER1 and LER3 there is also a network of IP, by which
//!           /  |   \    /  |   \      go labels in UDP, GRE and L2TPv3
//! ```
//! A value says all of a wire, so that whoever loads another one says what changed. Labels are chosen
//! so that one wrong bit makes of each the label of somebody else.

use core::num::NonZeroU32;

use contract::{LinkId, MacAddress};
use mpls::{
    Adjacency, Core, Fec, FecId, Labels, NextHop, Nhlfe, NhlfeId, Origin, Over, Path, Pseudowire,
    PseudowireId, Reach, Sequencing, Session, TunnelPort, Via, Way,
};
use wire::l2tp::Cookie;
use wire::mpls::Label;

pub(super) const ROUTERS: usize = 5;
pub(super) const LER1: usize = 0;
pub(super) const LER2: usize = 1;
pub(super) const LER3: usize = 2;
pub(super) const LSR1: usize = 3;
pub(super) const LSR2: usize = 4;
pub(super) const LINKS: [[usize; 2]; 8] = [
    [LER1, LSR1],
    [LER1, LSR2],
    [LER2, LSR1],
    [LER2, LSR2],
    [LER3, LSR1],
    [LER3, LSR2],
    [LSR1, LSR2],
    [LER1, LER3],
];
/// The one that is labels in UDP.
pub(super) const UDP_LINK: usize = 7;
/// Bytes behind the Ethernet header on links between routers, and on circuits.
pub(super) const CORE_MTU: u32 = 1526;
pub(super) const CIRCUIT_MTU: u32 = 1500;
/// Bytes of a packet of GRE or L2TPv3 between the edges.
pub(super) const TUNNEL_MTU: u32 = 1534;

/// What a wire's packets have around their bottom label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    Label,
    /// On the first path the last router but one pops it.
    Popped,
    /// The pseudowire's label is the only one, and swapped on the way.
    None,
    /// No labels at all.
    Ip(TunnelPort),
}

/// What customers have between two circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    /// Of its pseudowire or tunnel, and of its paths.
    pub(super) number: usize,
    /// Of its two circuits.
    pub(super) circuits: usize,
    /// From the first end to the second.
    pub(super) paths: [&'static [usize]; 2],
    /// Whose packets those of its paths are; wires that share this share the paths.
    pub(super) fecs: usize,
    /// Of which row the labels of its paths are, and its own; of one through IP its key or session.
    pub(super) labels: usize,
    pub(super) bottom: usize,
    pub(super) tunnel: Tunnel,
    /// What is done with numbers, where there is a place for them.
    pub(super) sequencing: Option<Sequencing>,
    /// The second path is taken while the first fails, and not when somebody says so.
    pub(super) is_protected: bool,
    /// It is watched, and has no second path at present: what comes by one is heard all the same.
    pub(super) is_single: bool,
}

pub(super) const fn wire(
    number: usize,
    paths: [&'static [usize]; 2],
    labels: usize,
    tunnel: Tunnel,
) -> Wire {
    let sequencing = match tunnel {
        Tunnel::None => None,
        // Of two wires of a kind one drops what is late, and one puts it in order.
        _ if labels == 1 => Some(Sequencing::Reorder),
        _ => Some(Sequencing::Drop),
    };
    Wire {
        number,
        circuits: number,
        paths,
        fecs: labels,
        labels,
        bottom: labels,
        tunnel,
        sequencing,
        is_protected: false,
        is_single: false,
    }
}

/// One whose two paths are watched.
pub(super) const fn protected(
    number: usize,
    paths: [&'static [usize]; 2],
    sequencing: Sequencing,
) -> Wire {
    let plain = wire(number, paths, number, Tunnel::Label);
    Wire { sequencing: Some(sequencing), is_protected: true, ..plain }
}

/// The port of a router towards a neighbour. The one at the other end of the link differs in the
/// lowest bit.
pub(super) fn port(router: usize, neighbour: usize) -> LinkId {
    let at = |[a, b]: &[usize; 2]| {
        [[*a, *b], [*b, *a]].iter().position(|ends| *ends == [router, neighbour])
    };
    let (link, end) =
        LINKS.iter().enumerate().find_map(|(link, ends)| Some((link, at(ends)?))).unwrap();
    LinkId((link * 2 + end) as u32)
}

/// The ports of a router towards others.
pub(super) fn core_ports(me: usize) -> impl Iterator<Item = LinkId> {
    (0..).zip(LINKS).filter_map(move |(link, ends)| {
        let end = ends.iter().position(|end| *end == me)?;
        Some(LinkId(link * 2 + end as u32))
    })
}

pub(super) fn is_udp(port: LinkId) -> bool {
    port.0 as usize / 2 == UDP_LINK
}

pub(super) fn core(port: LinkId) -> Core {
    Core { over: if is_udp(port) { Over::Udp } else { Over::Ethernet }, ..Core::default() }
}

/// The port of an end by which its tunnels of a kind go. The other end's differs in the lowest bit.
pub(super) fn tunnel_port(kind: TunnelPort, end: usize) -> LinkId {
    LinkId([50, 52][usize::from(kind == TunnelPort::L2tp)] + end as u32)
}

/// Whether packets of this port begin with a header of GRE or L2TPv3.
pub(super) fn is_tunnels(port: LinkId) -> bool {
    port >= tunnel_port(TunnelPort::Gre, 0)
}

pub(super) fn router_of(port: LinkId) -> usize {
    match LINKS.get(port.0 as usize / 2) {
        Some(ends) => ends[port.0 as usize & 1],
        None => [LER1, LER3][port.0 as usize & 1],
    }
}

pub(super) fn mac(port: LinkId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, port.0 as u8])
}

pub(super) fn circuit(circuits: usize, end: usize) -> LinkId {
    LinkId((100 + circuits * 2 + end) as u32)
}

fn label(number: usize) -> Label {
    Label::new(number as u32).unwrap()
}

/// A place among eight that a path has in each direction. The two directions differ in two bits: of a
/// wire with one label, a frame that turned back would be taken for the other end's.
fn place(row: usize, path: usize, from: usize) -> usize {
    row * 8 + path * 2 + from * 5
}

impl Wire {
    pub(super) fn ends(&self) -> [usize; 2] {
        let [first, .., last] = self.paths[0] else { unreachable!("a path has two ends") };
        [*first, *last]
    }

    pub(super) fn id(&self) -> PseudowireId {
        PseudowireId(self.number as u32)
    }

    pub(super) fn circuit(&self, end: usize) -> LinkId {
        circuit(self.circuits, end)
    }

    /// The routers of a path, beginning with this end.
    pub(super) fn path_from(&self, path: usize, from: usize) -> Vec<usize> {
        let mut routers = self.paths[path].to_vec();
        if from == 1 {
            routers.reverse();
        }
        routers
    }

    /// Whose packets those are that an end sends by a path.
    pub(super) fn fec(&self, path: usize, from: usize) -> FecId {
        FecId(place(self.fecs, path, from) as u32)
    }

    /// How a router calls them.
    pub(super) fn label_at(&self, path: usize, from: usize, router: usize) -> Label {
        label(16 + (place(self.labels, path, from) ^ router))
    }

    /// The bottom label with which packets come to an end.
    pub(super) fn bottom_label(&self, end: usize) -> Label {
        label([2000, 1000][end] + self.bottom)
    }

    /// Where an end's packets go by a path.
    pub(super) fn nhlfe_id(&self, path: usize, from: usize) -> NhlfeId {
        NhlfeId((1000 + self.number * 4 + path * 2 + from) as u32)
    }

    /// Where the router at a place of a path sends its packets, and with which labels.
    fn hop(&self, path: usize, from: usize, place: usize) -> (LinkId, Labels) {
        let routers = self.path_from(path, from);
        let (here, next) = (routers[place], routers[place + 1]);
        let is_last = place + 2 == routers.len();
        let labels = match self.tunnel {
            Tunnel::Popped if is_last && path == 0 => vec![],
            Tunnel::None if place == 0 => vec![],
            Tunnel::None if is_last => vec![self.bottom_label(1 - from)],
            _ => vec![self.label_at(path, from, next)],
        };
        (port(here, next), Labels::new(&labels).unwrap())
    }

    /// The same, as a router has it.
    pub(super) fn nhlfe(&self, path: usize, from: usize, place: usize) -> Nhlfe {
        let (port, labels) = self.hop(path, from, place);
        let mac_there = mac(LinkId(port.0 ^ 1));
        let adjacency = Adjacency { own: mac(port), mac: mac_there, vlan: None };
        let reach = if is_udp(port) { Reach::Alone } else { Reach::At(adjacency) };
        Nhlfe { next_hop: NextHop { port, reach }, labels, mtu: CORE_MTU }
    }

    /// The same, as it is configured.
    pub(super) fn path(&self, path: usize, from: usize, place: usize) -> Path {
        let (port, labels) = self.hop(path, from, place);
        let via = (!is_udp(port)).then(|| Via::Mac(mac(LinkId(port.0 ^ 1))));
        Path { port, via, labels, mtu: None, backup: None }
    }

    /// How packets come to an end by a path.
    pub(super) fn origin(&self, path: usize, end: usize) -> Origin {
        let [.., before, here] = self.path_from(path, 1 - end)[..] else { unreachable!() };
        let tunnel = match self.tunnel {
            Tunnel::Label => true,
            Tunnel::Popped => path == 1,
            Tunnel::None | Tunnel::Ip(_) => false,
        };
        let label = self.label_at(path, 1 - end, here);
        let way = if self.is_protected { Way::BOTH[path] } else { Way::Primary };
        Origin { port: port(here, before), tunnel: tunnel.then_some(label), way }
    }

    /// Its end, which hears all paths.
    pub(super) fn pseudowire(&self, end: usize) -> Pseudowire {
        let label_out = match self.tunnel {
            Tunnel::None => self.label_at(0, end, self.path_from(0, end)[1]),
            Tunnel::Ip(_) => unreachable!("{self:?} has no labels"),
            _ => self.bottom_label(1 - end),
        };
        Pseudowire {
            fec: Fec::all_of(self.circuit(end)),
            label_in: self.bottom_label(end),
            label_out,
            origins: [0, 1].map(|path| self.origin(path, end)).to_vec(),
            nhlfe: self.nhlfe_id(0, end),
            backup: (self.is_protected && !self.is_single).then(|| self.nhlfe_id(1, end)),
            control_word: self.sequencing,
            clamp: None,
        }
    }

    /// Its end through IP.
    pub(super) fn tunnel(&self, end: usize, kind: TunnelPort) -> mpls::Tunnel {
        let of = |end: usize| (0x10 + self.bottom * 2 + end) as u32;
        let session = match kind {
            TunnelPort::Gre => Session::Gre { key_in: Some(of(end)), key_out: Some(of(1 - end)) },
            TunnelPort::L2tp => Session::L2tp {
                session_in: NonZeroU32::new(of(end)).unwrap(),
                cookie_in: self.cookie(end),
                session_out: NonZeroU32::new(of(1 - end)).unwrap(),
                cookie_out: self.cookie(1 - end),
                has_sublayer: true,
            },
        };
        let (fec, port) = (Fec::all_of(self.circuit(end)), tunnel_port(kind, end));
        let sequencing = self.sequencing.expect("there is a place for numbers");
        mpls::Tunnel { fec, port, session, sequencing }
    }

    /// What packets to an end bring. Not one bit more than the other's: what is corrupt is to be seen.
    fn cookie(&self, end: usize) -> Cookie {
        let number = 0x5eed_1234 ^ ((self.number as u32) << 4) ^ (0x0303 * end as u32);
        Cookie::Short(number.to_be_bytes())
    }
}
