//! What a router is ordered so that it carries wires: as whoever configures it orders it, in the
//! order of `apply`: ports, labels and what they lead to, paths, pseudowires and tunnels.

use core::time::Duration;

use block::Instant;
use contract::{LinkFacts, LinkId, VirtualLinks};
use mpls::{Action, Change, Forwarder, NhlfeId, PortKind, RouterId, Space, TunnelId, Watch};

use super::topology::*;

pub(super) const R: RouterId = RouterId(0);

/// How wires are watched.
pub(super) const WATCH: Watch =
    Watch { interval_us: 300_000, detect_mult: 3, revert_after: Duration::from_secs(2) };

/// All that a router has.
pub(super) fn all(me: usize, wires: &[Wire]) -> Vec<Change> {
    let mut all = ports(me, wires);
    for wire in wires.iter().filter(|wire| !matches!(wire.tunnel, Tunnel::Ip(_))) {
        for (path, from) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            all.extend(path_through(me, wire, path, from));
        }
    }
    all.extend(wires.iter().flat_map(|wire| end_of(me, wire)));
    all
}

pub(super) fn ports(me: usize, wires: &[Wire]) -> Vec<Change> {
    let core = |port| Change::SetPort(port, PortKind::Core(core(port)));
    let mut all: Vec<Change> = core_ports(me).map(core).collect();
    for (wire, end) in wires.iter().flat_map(|wire| [(wire, 0), (wire, 1)]) {
        if wire.ends()[end] == me {
            let traffic_classes = [0, 1, 2, 3, 4, 5, 6, 7];
            let kind = PortKind::Circuit { traffic_classes, classifier: None };
            all.push(Change::SetPort(wire.circuit(end), kind));
            if let Tunnel::Ip(kind) = wire.tunnel {
                all.push(Change::SetPort(tunnel_port(kind, end), PortKind::Tunnels(kind)));
            }
        }
    }
    all
}

/// What a router does with the packets that an end sends by a path, if it is on that path.
pub(super) fn path_through(me: usize, wire: &Wire, path: usize, from: usize) -> Vec<Change> {
    let routers = wire.path_from(path, from);
    let Some(place) = routers.iter().position(|router| *router == me) else { return vec![] };
    let (fec, label) = (wire.fec(path, from), wire.label_at(path, from, me));
    let set_label = |action| Change::SetLabel { space: Space::Platform, label, fec, action };
    let set_path = |id| Change::SetPath(id, wire.path(path, from, place));
    match place {
        0 => vec![set_path(wire.nhlfe_id(path, from))],
        _ if place + 1 == routers.len() => vec![set_label(Action::Pop)],
        _ => {
            let id = NhlfeId(fec.0);
            vec![set_path(id), set_label(Action::Forward(id))]
        }
    }
}

/// The ends of a wire that are on a router.
pub(super) fn end_of(me: usize, wire: &Wire) -> Vec<Change> {
    let Some(end) = wire.ends().iter().position(|end| *end == me) else { return vec![] };
    if let Tunnel::Ip(kind) = wire.tunnel {
        return vec![Change::SetTunnel(TunnelId(wire.number as u32), wire.tunnel(end, kind))];
    }
    let mut all = vec![Change::SetPseudowire(wire.id(), wire.pseudowire(end))];
    if wire.is_protected {
        all.push(Change::SetWatch(wire.id(), Some(WATCH)));
    }
    all
}

/// A router is ordered all of this, and refuses none.
pub(super) fn give(router: &mut Forwarder, now: Instant, orders: Vec<Change>) {
    for order in orders {
        let what = format!("{order:?}");
        router.change(now, R, order).unwrap_or_else(|refused| panic!("{refused}: {what}"));
    }
}

/// A router's links are up.
pub(super) fn put_up(router: &mut Forwarder, now: Instant, me: usize, wires: &[Wire]) {
    core_ports(me).for_each(|port| router.handle_link(now, port, Some(facts_of(port))));
    for (wire, end) in wires.iter().flat_map(|wire| [(wire, 0), (wire, 1)]) {
        if wire.ends()[end] == me {
            let circuit = wire.circuit(end);
            router.handle_link(
                now,
                circuit,
                Some(LinkFacts { mtu: CIRCUIT_MTU, ..facts_of(circuit) }),
            );
            if let Tunnel::Ip(kind) = wire.tunnel {
                let port = tunnel_port(kind, end);
                router.handle_link(now, port, Some(facts_of(port)));
            }
        }
    }
}

pub(super) fn facts_of(port: LinkId) -> LinkFacts {
    let mtu = if is_tunnels(port) { TUNNEL_MTU } else { CORE_MTU };
    LinkFacts { mac: mac(port).0, mtu, vlan: None, ring_frames: 64, is_shared: false }
}
