//! Four routers, five links between them, and four paths through three of them, each hop of which has
//! a backup around by the fourth. Links fail with a word or without, one direction or both, and come
//! back, as a seed has it.
//!
//! ```text
//!      outside -- A ------ B ------ C -- outside      paths  A B C and C B A, for two customers
//!                  \       |       /                  A to B, B to C and back: around by D, which
//!                   `----- D -----'                   pops the label of the bypass
//! ```
//! Promised is: a frame comes out as its customer's or nowhere; it does come out, once a detection
//! time has passed since links changed, where each hop or the way around it is whole; a hop that was
//! down is not taken before it has been up for the wait, and is taken again after it.

mod oracle;
mod world;

use core::time::Duration;

use block::Instant;
use contract::{LinkId, MacAddress};
use mpls::{
    Action, Change, Core, FecId, Forwarder, Labels, Neighbour, NeighbourId, NhlfeId, Path,
    PortKind, RouterId, Space, Via, Watch,
};
use wire::mpls::Label;

pub(crate) use world::run;

const ROUTERS: usize = 4;
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const LINKS: [[usize; 2]; 5] = [[A, B], [B, C], [A, D], [B, D], [C, D]];
const R: RouterId = RouterId(0);
const WATCH: Watch =
    Watch { interval_us: 50_000, detect_mult: 3, revert_after: Duration::from_secs(5) };

/// The paths: two customers, both directions.
const LSPS: usize = 4;

fn routers_of(lsp: usize) -> [usize; 3] {
    if lsp.is_multiple_of(2) { [A, B, C] } else { [C, B, A] }
}

/// The hops that have a way around.
const HOPS: [[usize; 2]; 4] = [[A, B], [B, C], [C, B], [B, A]];

/// The link between two routers.
fn link(here: usize, there: usize) -> usize {
    let is_it = |ends: &[usize; 2]| ends.contains(&here) && ends.contains(&there);
    LINKS.iter().position(is_it).unwrap()
}

/// The port of a router on a link. That of the other end differs in the lowest bit.
fn port(here: usize, there: usize) -> LinkId {
    let link = link(here, there);
    LinkId((link * 2 + usize::from(LINKS[link][1] == here)) as u32)
}

/// The port of BFD beside a port.
fn bfd_port(LinkId(port): LinkId) -> LinkId {
    LinkId(20 + port)
}

/// Where frames come from and go to.
fn outside(router: usize) -> LinkId {
    LinkId(40 + router as u32)
}

fn mac(port: LinkId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, port.0 as u8])
}

const OUTSIDE: MacAddress = MacAddress([2, 0, 0, 0, 2, 0]);

fn label(number: usize) -> Label {
    Label::new(number as u32).unwrap()
}

/// With which label a path's packets come to a router; the last one sends them on as `out`.
fn label_at(lsp: usize, router: usize) -> Label {
    label(1000 + lsp * 4 + router)
}

fn label_out(lsp: usize) -> Label {
    label(2000 + lsp)
}

/// The label of a hop's bypass, at D.
fn bypass(hop: usize) -> Label {
    label(3000 + hop)
}

fn hop_of(here: usize, there: usize) -> usize {
    HOPS.iter().position(|hop| *hop == [here, there]).unwrap()
}

/// All that a router has, as whoever configured it orders it; `watched` says which ends of links have
/// a neighbour.
fn orders(me: usize, watched: &[[bool; 2]; 5]) -> Vec<Change> {
    let core = |port| Change::SetPort(port, PortKind::Core(Core::default()));
    let mut all = Vec::new();
    for (number, ends) in LINKS.iter().enumerate() {
        let Some(end) = ends.iter().position(|end| *end == me) else { continue };
        let port = LinkId((number * 2 + end) as u32);
        all.push(core(port));
        if watched[number][end] {
            let (bfd, mac) = (bfd_port(port), mac(LinkId(port.0 ^ 1)));
            all.push(Change::SetPort(bfd, PortKind::Bfd));
            let neighbour = Neighbour { port, via: Via::Mac(mac), bfd, watch: WATCH };
            all.push(Change::SetNeighbour(NeighbourId(number as u32), neighbour));
        }
    }
    if me == D {
        for (number, [_, there]) in HOPS.into_iter().enumerate() {
            let path = (NhlfeId(number as u32), D, there, vec![], None);
            all.extend(switched(bypass(number), path));
        }
        return all;
    }
    all.push(core(outside(me)));
    for lsp in 0..LSPS {
        let routers = routers_of(lsp);
        let place = routers.iter().position(|router| *router == me).unwrap();
        let (id, around) = (NhlfeId(lsp as u32), NhlfeId((10 + lsp) as u32));
        let fec = label_at(lsp, me);
        let Some(next) = routers.get(place + 1).copied() else {
            let labels = Labels::new(&[label_out(lsp)]).unwrap();
            let path = Path {
                port: outside(me),
                via: Some(Via::Mac(OUTSIDE)),
                labels,
                mtu: None,
                backup: None,
            };
            all.push(Change::SetPath(id, path));
            all.push(set_label(fec, id));
            continue;
        };
        let labels = vec![bypass(hop_of(me, next)), label_at(lsp, next)];
        all.push(set_path((around, me, D, labels, None)));
        all.extend(switched(fec, (id, me, next, vec![label_at(lsp, next)], Some(around))));
    }
    all
}

type Hop = (NhlfeId, usize, usize, Vec<Label>, Option<NhlfeId>);

fn set_path((id, here, there, labels, backup): Hop) -> Change {
    let port = port(here, there);
    let labels = Labels::new(&labels).unwrap();
    Change::SetPath(
        id,
        Path { port, via: Some(Via::Mac(mac(LinkId(port.0 ^ 1)))), labels, mtu: None, backup },
    )
}

fn set_label(label: Label, id: NhlfeId) -> Change {
    let (space, fec) = (Space::Platform, FecId(label.get()));
    Change::SetLabel { space, label, fec, action: Action::Forward(id) }
}

fn switched(label: Label, hop: Hop) -> [Change; 2] {
    let id = hop.0;
    [set_path(hop), set_label(label, id)]
}

fn configure(router: &mut Forwarder, now: Instant, me: usize, watched: &[[bool; 2]; 5]) {
    for change in orders(me, watched) {
        router.change(now, R, change).unwrap();
    }
}
