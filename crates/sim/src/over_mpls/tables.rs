//! The routers of the network, the ways through it, and what each router is ordered: as whoever
//! configures it orders it.
//!
//! ```text
//!   LAN 1: clients         ----+                                    +---- LAN 0: the target
//!                              EDGE 0 ---- LSR 0 (router 2) ---- EDGE 1
//!   LAN 3: the other host  ----+   \------ LSR 1 (router 3) ------/ +---- LAN 2: the other disk
//! ```
//! Each of the two customers has a pseudowire between its circuits, with a path by either LSR that BFD
//! watches. The tunnels are shared: the bottom label alone tells whose a packet is. No errors: what is
//! made here is never nonsense.

use core::time::Duration;

use contract::{LinkFacts, LinkId, MacAddress};
use mpls::{
    Action, Change, Core, Fec, FecId, Labels, NhlfeId, Origin, Path, PortKind, Pseudowire,
    PseudowireId, RouterId, Sequencing, Space, Via, Watch, Way,
};
use wire::mpls::Label;

/// All routers: two edges, and as many label switching routers, each on a path of its own.
pub(super) const ROUTERS: usize = 4;
pub(super) const EDGES: [usize; 2] = [0, 1];
pub(super) const LSRS: [usize; 2] = [2, 3];
/// Links of the core: of a path's LSR with either edge.
pub(super) const LINKS: usize = 4;
/// As the number that each process has for its only router.
pub(super) const R: RouterId = RouterId(0);
/// The customers: whose disk is the target's, and the other one.
pub(super) const CUSTOMERS: usize = 2;

/// The first of his LANs: the others are those of the clients and the target.
pub(super) const LANS_OF_OTHERS: usize = 2;

/// What circuits carry, and links of the core, in bytes behind the Ethernet header: two labels, a
/// control word, a header and a tag more.
pub(super) const CIRCUIT_MTU: u32 = 9000;
const CORE_MTU: u32 = CIRCUIT_MTU + 30;

/// How pseudowires are watched: a path that fails is left within 0.9 s.
const WATCH: Watch =
    Watch { interval_us: 300_000, detect_mult: 3, revert_after: Duration::from_secs(2) };
/// How long a label is nobody's: longer than a router stands still and a copy is late together.
pub(super) const QUARANTINE: Duration = Duration::from_secs(9);

/// A customer's pseudowire as it is configured at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) customer: usize,
    /// The path that is its primary.
    pub(super) primary: usize,
    /// Of its bottom labels: no two wires have the same.
    pub(super) row: usize,
    pub(super) sequencing: Sequencing,
}

/// The port of a path's LSR (`end` 1) or of an edge (`end` 0) on the link between them.
fn port(path: usize, edge: usize, end: usize) -> LinkId {
    LinkId((path * 4 + edge * 2 + end) as u32)
}

/// Where a customer's frames enter and leave an edge.
pub(super) fn circuit(customer: usize, edge: usize) -> LinkId {
    LinkId((100 + customer * 2 + edge) as u32)
}

/// Whose circuit a link is, and at which edge; `None`: it is one of the core's.
pub(super) fn of_circuit(link: LinkId) -> Option<(usize, usize)> {
    let number = link.0.checked_sub(100)? as usize;
    Some((number / 2, number % 2))
}

/// The LAN on which a customer's circuit hangs.
pub(super) fn lan(customer: usize, edge: usize) -> usize {
    customer * 2 + 1 - edge
}

/// The port at the other end of a link of the core.
pub(super) fn other_end(port: LinkId) -> LinkId {
    LinkId(port.0 ^ 1)
}

/// The router that has a port of the core.
pub(super) fn router_of(port: LinkId) -> usize {
    let (path, edge) = (port.0 as usize / 4, port.0 as usize / 2 % 2);
    if port.0.is_multiple_of(2) { EDGES[edge] } else { LSRS[path] }
}

/// The two ends of a link of the core.
pub(super) fn ends(link: usize) -> [LinkId; 2] {
    [0, 1].map(|end| LinkId((link * 2 + end) as u32))
}

/// Whose link of the core a link is, of the two paths.
pub(super) fn path_of(link: usize) -> usize {
    link / 2
}

fn mac(port: LinkId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, port.0 as u8])
}

/// What is known of a link that is up.
pub(super) fn facts(link: LinkId) -> LinkFacts {
    let mtu = if of_circuit(link).is_some() { CIRCUIT_MTU } else { CORE_MTU };
    LinkFacts { mac: mac(link).0, mtu, vlan: None, ring_frames: 64, is_shared: false }
}

fn label(number: usize) -> Label {
    Label::new(number as u32).expect("it is small")
}

/// With which label packets of an edge by a path come to its LSR (`hop` 0), and to the other edge.
fn tunnel(path: usize, from: usize, hop: usize) -> Label {
    label(16 + path * 4 + from * 2 + hop)
}

impl Wire {
    /// With which bottom label its packets come to an edge.
    fn bottom(&self, edge: usize) -> Label {
        label([2000, 1000][edge] + self.row)
    }

    pub(super) fn id(&self) -> PseudowireId {
        PseudowireId(self.customer as u32)
    }

    /// Its end at an edge.
    pub(super) fn end(&self, edge: usize) -> Pseudowire {
        let way = |path| if path == self.primary { Way::Primary } else { Way::Backup };
        let origin = |path| Origin {
            port: port(path, edge, 0),
            tunnel: Some(tunnel(path, 1 - edge, 1)),
            way: way(path),
        };
        Pseudowire {
            fec: Fec::all_of(circuit(self.customer, edge)),
            label_in: self.bottom(edge),
            label_out: self.bottom(1 - edge),
            origins: [0, 1].map(origin).to_vec(),
            nhlfe: NhlfeId(self.primary as u32),
            backup: Some(NhlfeId(1 - self.primary as u32)),
            control_word: Some(self.sequencing),
            clamp: None,
        }
    }
}

/// All that a router has.
pub(super) fn all(router: usize, wires: &[Wire]) -> Vec<Change> {
    let mut all = vec![Change::SetQuarantine(QUARANTINE)];
    let core = |port| Change::SetPort(port, PortKind::Core(Core::default()));
    all.extend(links_of(router).filter(|link| of_circuit(*link).is_none()).map(core));
    let path = |from: LinkId, labels: Label| Path {
        port: from,
        via: Some(Via::Mac(mac(other_end(from)))),
        labels: Labels::new(&[labels]).expect("it is ordinary"),
        mtu: None,
        backup: None,
    };
    let set_label = |label: Label, action| {
        let fec = FecId(label.get());
        Change::SetLabel { space: Space::Platform, label, fec, action }
    };
    if let Some(number) = LSRS.iter().position(|lsr| *lsr == router) {
        for from in [0, 1] {
            let (id, out) = (NhlfeId(from as u32), port(number, 1 - from, 1));
            all.push(Change::SetPath(id, path(out, tunnel(number, from, 1))));
            all.push(set_label(tunnel(number, from, 0), Action::Forward(id)));
        }
        return all;
    }
    for number in [0, 1] {
        let out = path(port(number, router, 0), tunnel(number, router, 0));
        all.push(Change::SetPath(NhlfeId(number as u32), out));
        all.push(set_label(tunnel(number, 1 - router, 1), Action::Pop));
    }
    let kind = PortKind::Circuit { traffic_classes: [0, 1, 2, 3, 4, 5, 6, 7], classifier: None };
    for wire in wires {
        all.push(Change::SetPort(circuit(wire.customer, router), kind));
        all.push(Change::SetPseudowire(wire.id(), wire.end(router)));
        all.push(Change::SetWatch(wire.id(), Some(WATCH)));
    }
    all
}

/// All links of a router.
pub(super) fn links_of(router: usize) -> impl Iterator<Item = LinkId> {
    let core = (0..LINKS).flat_map(ends).filter(move |port| router_of(*port) == router);
    let circuits = (0..CUSTOMERS).map(move |customer| circuit(customer, router));
    core.chain(circuits.filter(move |_| EDGES.contains(&router)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_of_the_core_joins_an_edge_and_an_lsr() {
        for link in 0..LINKS {
            let [edge, lsr] = ends(link).map(router_of);
            assert!(
                EDGES.contains(&edge) && lsr == LSRS[path_of(link)],
                "{link}: {edge} and {lsr}"
            );
        }
        assert_eq!(EDGES.map(|edge| links_of(edge).count()), [4, 4]);
        assert_eq!(LSRS.map(|lsr| links_of(lsr).count()), [2, 2]);
    }

    #[test]
    fn a_circuit_is_known_by_its_number() {
        for (customer, edge) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert_eq!(of_circuit(circuit(customer, edge)), Some((customer, edge)));
        }
        assert_eq!(of_circuit(ends(LINKS - 1)[1]), None);
        assert_eq!((lan(0, 1), lan(0, 0)), (0, 1), "the target is on the first LAN");
    }
}
