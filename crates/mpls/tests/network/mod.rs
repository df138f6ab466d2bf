//! The network that tests run: five routers, seven links between them, and the pseudowires of two
//! customers, with the labels that each router has for them.
//!
//! ```text
//!             LSR1 ------ LSR2        wire 0  customer 0   LER1 .. LER2   a tunnel label and its own
//!            / |  \      / |  \       wire 1  customer 1   LER1 .. LER2   the same, in another tunnel
//!           /  |   \    /  |   \      wire 2  customer 0   LER1 .. LER3   LSR2 pops the tunnel label
//!        each of LER1, LER2, LER3     wire 3  customer 1   LER1 .. LER3   its label alone, no control word
//!        has a link to both           wire 4  customer 1   LER1 .. LER2   gets what wire 0 had
//!                                      wires 5, 6  both       LER1 .. LER3   in GRE, each with its key
//!                                      wires 7, 8  both       LER1 .. LER3   in L2TPv3, each with its session
//! ```
//! Labels are chosen so that one wrong bit makes of each the label of somebody else. Each wire of
//! labels has a path that it goes by at first and, but for wire 3, another one. Those through IP go
//! from end to end by themselves.

mod oracle;
mod world;

use core::num::NonZeroU32;

use block::Instant;
use contract::{LinkId, MacAddress};
use mpls::{
    Action, Adjacency, Circuit, Core, Fec, FecId, Labels, NextHop, Nhlfe, NhlfeId, Origin,
    Pseudowire, PseudowireId, Refused, Role, Router, Sequencing, Session, Space, TunnelId,
    TunnelPort, Way,
};
use wire::l2tp::Cookie;
use wire::mpls::Label;

pub(crate) use world::run;

const ROUTERS: usize = 5;
const LER1: usize = 0;
const LER2: usize = 1;
const LER3: usize = 2;
const LSR1: usize = 3;
const LSR2: usize = 4;
const LINKS: [[usize; 2]; 7] = [
    [LER1, LSR1],
    [LER1, LSR2],
    [LER2, LSR1],
    [LER2, LSR2],
    [LER3, LSR1],
    [LER3, LSR2],
    [LSR1, LSR2],
];
/// Bytes behind the Ethernet header on links between routers, and on circuits.
const CORE_MTU: u32 = 1526;
const CIRCUIT_MTU: u32 = 1500;
/// Bytes of a packet of GRE or L2TPv3 between the edges.
const TUNNEL_MTU: u32 = 1534;

/// What a wire's packets have around their bottom label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tunnel {
    Label,
    /// On the first path the last router but one pops it.
    Popped,
    /// The pseudowire's label is the only one, and swapped on the way.
    None,
    /// No labels at all.
    Ip(TunnelPort),
}

struct Wire {
    ends: [usize; 2],
    /// From the first end to the second.
    paths: [&'static [usize]; 2],
    /// Whose labels it uses; of one through IP, whose key or session.
    lsps: usize,
    tunnel: Tunnel,
    /// What is done with numbers, where there are such.
    sequencing: Option<Sequencing>,
}

const WIRES: usize = 9;
/// Two wires of different customers, of which one at a time has the labels of the first.
const SHARING: [usize; 2] = [0, 4];

const fn wire(paths: [&'static [usize]; 2], lsps: usize, tunnel: Tunnel) -> Wire {
    let ends = [paths[0][0], paths[0][paths[0].len() - 1]];
    let sequencing = match tunnel {
        Tunnel::None => None,
        // Of two wires of a kind one drops what is late, and one puts it in order.
        _ if lsps == 1 => Some(Sequencing::Reorder),
        _ => Some(Sequencing::Drop),
    };
    Wire { ends, paths, lsps, tunnel, sequencing }
}

const TABLE: [Wire; WIRES] = [
    wire([&[LER1, LSR1, LSR2, LER2], &[LER1, LSR2, LER2]], 0, Tunnel::Label),
    wire([&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], 1, Tunnel::Label),
    wire([&[LER1, LSR2, LER3], &[LER1, LSR1, LER2, LSR2, LER3]], 2, Tunnel::Popped),
    wire([&[LER1, LSR1, LER3], &[LER1, LSR1, LER3]], 3, Tunnel::None),
    wire([&[LER1, LSR1, LSR2, LER2], &[LER1, LSR2, LER2]], 0, Tunnel::Label),
    wire([&[LER1, LER3]; 2], 0, Tunnel::Ip(TunnelPort::Gre)),
    wire([&[LER1, LER3]; 2], 1, Tunnel::Ip(TunnelPort::Gre)),
    wire([&[LER1, LER3]; 2], 0, Tunnel::Ip(TunnelPort::L2tp)),
    wire([&[LER1, LER3]; 2], 1, Tunnel::Ip(TunnelPort::L2tp)),
];

/// The wires of labels.
const LABELLED: usize = 5;

/// The port of a router towards a neighbour. The one at the other end of the link differs in the
/// lowest bit.
fn port(router: usize, neighbour: usize) -> LinkId {
    let at = |[a, b]: &[usize; 2]| {
        [[*a, *b], [*b, *a]].iter().position(|ends| *ends == [router, neighbour])
    };
    let (link, end) =
        LINKS.iter().enumerate().find_map(|(link, ends)| Some((link, at(ends)?))).unwrap();
    LinkId((link * 2 + end) as u32)
}

/// The port of an end by which its tunnels of a kind go. The other end's differs in the lowest bit.
fn tunnel_port(kind: TunnelPort, end: usize) -> LinkId {
    LinkId([50, 52][usize::from(kind == TunnelPort::L2tp)] + end as u32)
}

fn router_of(port: LinkId) -> usize {
    match LINKS.get(port.0 as usize / 2) {
        Some(ends) => ends[port.0 as usize & 1],
        None => [LER1, LER3][port.0 as usize & 1],
    }
}

fn mac(port: LinkId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, port.0 as u8])
}

fn circuit(wire: usize, end: usize) -> LinkId {
    LinkId((100 + wire * 2 + end) as u32)
}

fn label(number: usize) -> Label {
    Label::new(number as u32).unwrap()
}

/// The number of what carries a wire's packets from an end by a path. The two directions differ in
/// two bits: of a wire with one label, a frame that turned back would be taken for the other end's.
fn lsp(wire: usize, path: usize, from: usize) -> usize {
    TABLE[wire].lsps * 8 + path * 2 + from * 5
}

/// What a router calls it.
fn lsp_label(lsp: usize, router: usize) -> Label {
    label(16 + (lsp ^ router))
}

/// The bottom label with which packets come to an end.
fn bottom_label(wire: usize, end: usize) -> Label {
    label([2000, 1000][end] + TABLE[wire].lsps)
}

/// The routers of a path, beginning with this end.
fn path_from(wire: usize, path: usize, from: usize) -> Vec<usize> {
    let mut routers = TABLE[wire].paths[path].to_vec();
    if from == 1 {
        routers.reverse();
    }
    routers
}

fn nhlfe_id(wire: usize, from: usize) -> NhlfeId {
    NhlfeId((100 + wire * 2 + from) as u32)
}

/// Where the router at a place of a path sends its packets, and with which label.
fn hop(wire: usize, path: usize, from: usize, place: usize) -> Nhlfe {
    let routers = path_from(wire, path, from);
    let (here, next) = (routers[place], routers[place + 1]);
    let is_last = place + 2 == routers.len();
    let labels = match TABLE[wire].tunnel {
        Tunnel::Popped if is_last && path == 0 => vec![],
        Tunnel::None if place == 0 => vec![],
        Tunnel::None if is_last => vec![bottom_label(wire, 1 - from)],
        _ => vec![lsp_label(lsp(wire, path, from), next)],
    };
    let port = port(here, next);
    let mac_there = mac(LinkId(port.0 ^ 1));
    let next_hop =
        NextHop { port, adjacency: Some(Adjacency { own: mac(port), mac: mac_there, vlan: None }) };
    Nhlfe { next_hop, labels: Labels::new(&labels).unwrap(), mtu: CORE_MTU }
}

/// A wire's end, which sends by a path and hears all of them.
fn pseudowire(wire: usize, end: usize) -> Pseudowire {
    let routers = path_from(wire, 0, end);
    let label_out = match TABLE[wire].tunnel {
        Tunnel::None => lsp_label(lsp(wire, 0, end), routers[1]),
        Tunnel::Ip(_) => unreachable!("wire {wire} has no labels"),
        _ => bottom_label(wire, 1 - end),
    };
    let origins = [0, 1].map(|path| {
        let [.., before, here] = path_from(wire, path, 1 - end)[..] else { unreachable!() };
        let tunnel = match TABLE[wire].tunnel {
            Tunnel::Label => true,
            Tunnel::Popped => path == 1,
            Tunnel::None | Tunnel::Ip(_) => false,
        };
        let label = lsp_label(lsp(wire, path, 1 - end), here);
        Origin { port: port(here, before), tunnel: tunnel.then_some(label), way: Way::Primary }
    });
    Pseudowire {
        fec: Fec::all_of(circuit(wire, end)),
        label_in: bottom_label(wire, end),
        label_out,
        origins: origins.to_vec(),
        nhlfe: nhlfe_id(wire, end),
        backup: None,
        control_word: TABLE[wire].sequencing,
        clamp: None,
    }
}

/// A wire's end through IP.
fn tunnel(wire: usize, end: usize, kind: TunnelPort) -> mpls::Tunnel {
    let of = |end: usize| (0x10 + TABLE[wire].lsps * 2 + end) as u32;
    let session = match kind {
        TunnelPort::Gre => Session::Gre { key_in: Some(of(end)), key_out: Some(of(1 - end)) },
        TunnelPort::L2tp => Session::L2tp {
            session_in: NonZeroU32::new(of(end)).unwrap(),
            cookie_in: cookie(wire, end),
            session_out: NonZeroU32::new(of(1 - end)).unwrap(),
            cookie_out: cookie(wire, 1 - end),
            has_sublayer: true,
        },
    };
    let (fec, port) = (Fec::all_of(circuit(wire, end)), tunnel_port(kind, end));
    let sequencing = TABLE[wire].sequencing.expect("it is numbered");
    mpls::Tunnel { fec, port, session, sequencing }
}

/// What packets to an end bring. Not one bit more than the other's: what is corrupt is to be seen.
fn cookie(wire: usize, end: usize) -> Cookie {
    Cookie::Short((0x5eed_1234 ^ ((wire as u32) << 4) ^ (0x0303 * end as u32)).to_be_bytes())
}

/// Gives a router all that it has but the pseudowires, which go by these paths.
fn set_paths(router: &mut Router, me: usize, now: Instant, in_use: &[usize; WIRES]) {
    for (number, ends) in (0..).zip(LINKS) {
        let mine = ends.iter().position(|end| *end == me);
        let port = mine.map(|end| LinkId(number * 2 + end as u32));
        port.into_iter().for_each(|port| router.set_port(port, Role::Core(Core::default())));
    }
    let all = (0..WIRES).flat_map(|wire| [0, 1].map(|from| (wire, from)));
    for (wire, from) in all {
        if TABLE[wire].ends[from] == me {
            let role = Role::Circuit(Circuit::new(CIRCUIT_MTU));
            router.set_port(circuit(wire, from), role);
            if let Tunnel::Ip(kind) = TABLE[wire].tunnel {
                let role = Role::Tunnels { kind, mtu: TUNNEL_MTU };
                router.set_port(tunnel_port(kind, from), role);
                continue;
            }
            router.set_nhlfe(nhlfe_id(wire, from), hop(wire, in_use[wire], from, 0));
        }
        for path in [0, 1].into_iter().filter(|_| wire < LABELLED) {
            set_lsp(router, me, now, (wire, path, from));
        }
    }
}

/// Gives a router its entry of a path, if it has one.
fn set_lsp(
    router: &mut Router,
    me: usize,
    now: Instant,
    (wire, path, from): (usize, usize, usize),
) {
    let number = lsp(wire, path, from);
    let routers = path_from(wire, path, from);
    let Some(place) = routers.iter().position(|router| *router == me) else { return };
    let action = match place {
        0 => return,
        _ if place + 1 == routers.len() => Action::Pop,
        _ => {
            let id = NhlfeId(number as u32);
            router.set_nhlfe(id, hop(wire, path, from, place));
            Action::Forward(id)
        }
    };
    let fec = FecId(number as u32);
    router.set_label(now, Space::Platform, lsp_label(number, me), fec, action).unwrap();
}

/// Gives a router the end of a wire, unless its label was another's a moment ago.
fn set_wire(router: &mut Router, now: Instant, wire: usize, end: usize) -> bool {
    if let Tunnel::Ip(kind) = TABLE[wire].tunnel {
        router.set_tunnel(TunnelId(wire as u32), tunnel(wire, end, kind)).unwrap();
        return true;
    }
    match router.set_pseudowire(now, PseudowireId(wire as u32), pseudowire(wire, end)) {
        Ok(()) => true,
        Err(Refused::Quarantined { .. }) => false,
        Err(other) => panic!("wire {wire} at end {end}: {other}"),
    }
}
