//! Routers of MPLS that carry Ethernet in pseudowires: what a configuration says of them, and what
//! runs.
//!
//! ```text
//!   [[circuit]] <-- [[pseudowire]] --> [[lsp]] --> [[link]] mpls = true
//!                        ^ label_in                    |
//!                        +------ [[ilm]] pop <---------+   what comes
//!                                [[ilm]] link ... ---->    what goes on
//!   [[circuit]] <-- [[tunnel]]     through IP, without labels
//!   [[neighbour]] --> [[link]] mpls = true     by its session the backup of an [[ilm]] or [[lsp]] is taken
//! ```
//! Each table is a room: `router`, `port` (of a `[[link]]`) and `udp` (of one without Ethernet), `circuit`, `ilm`, `lsp`, `pseudowire`,
//! `tunnel`, `neighbour`; `backup` and `watch` (BFD) are parts of several, `ends` is who is at the end of a pseudowire in this process, `split` is how a circuit's frames go several ways, `words` has what they have in common,
//! `reuse` what a label may not become, `loops` what goes around for ever, `status` how it all is.
//! Here is a thing of any of these kinds, and all of them. Ports come before what names them, then
//! labels by which packets come, paths, and at last pseudowires, tunnels and neighbours, so that no frame is sent
//! by what is not there yet; they go in the opposite order. What a packet is done with is not here
//! (crates/mpls).

pub(crate) mod backup;
pub(crate) mod bins;
pub(crate) mod circuit;
pub(crate) mod ends;
pub(crate) mod ilm;
pub(crate) mod loops;
pub(crate) mod lsp;
pub(crate) mod metrics;
pub(crate) mod neighbour;
pub(crate) mod port;
pub(crate) mod pseudowire;
mod reuse;
pub(crate) mod router;
pub(crate) mod split;
pub(crate) mod status;
pub(crate) mod tunnel;
pub(crate) mod udp;
pub(crate) mod watch;
pub(crate) mod words;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;

#[cfg(test)]
pub(crate) use backup::LowBackup;
pub(crate) use circuit::{CircuitConfig, LowCircuit};
pub(crate) use ilm::{IlmConfig, LowIlm};
pub(crate) use lsp::{LowLsp, LspConfig};
pub(crate) use neighbour::{LowNeighbour, NeighbourConfig};
pub(crate) use port::PortConfig;
#[cfg(test)]
pub(crate) use pseudowire::LowWay;
pub(crate) use pseudowire::{LowPseudowire, PseudowireConfig};
pub(crate) use router::{LowRouter, RouterConfig};
#[cfg(test)]
pub(crate) use tunnel::{LowGre, LowL2tp};
pub(crate) use tunnel::{LowTunnel, TunnelConfig};
pub(crate) use udp::LowUdp;
#[cfg(test)]
pub(crate) use watch::LowBfd;

use split::ClassConfig;
use words::Hop;

use crate::config::file::LowArgs;
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::thing::{Configured, Thing};

/// What routers consist of, each kind in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routing {
    pub(crate) routers: Vec<RouterConfig>,
    pub(crate) ports: Vec<PortConfig>,
    pub(crate) circuits: Vec<CircuitConfig>,
    pub(crate) ilms: Vec<IlmConfig>,
    pub(crate) lsps: Vec<LspConfig>,
    pub(crate) pseudowires: Vec<PseudowireConfig>,
    pub(crate) tunnels: Vec<TunnelConfig>,
    pub(crate) neighbours: Vec<NeighbourConfig>,
}

impl Routing {
    /// All of it, each after what it stands on.
    pub(crate) fn things(&self) -> impl Iterator<Item = Routed> + '_ {
        let routers = self.routers.iter().cloned().map(Routed::Router);
        let ports = self.ports.iter().cloned().map(Routed::Port);
        let circuits = self.circuits.iter().cloned().map(Routed::Circuit);
        let ilms = self.ilms.iter().cloned().map(Routed::Ilm);
        let lsps = self.lsps.iter().cloned().map(Routed::Lsp);
        let pseudowires = self.pseudowires.iter().cloned().map(Routed::Pseudowire);
        let tunnels = self.tunnels.iter().cloned().map(Routed::Tunnel);
        let neighbours = self.neighbours.iter().cloned().map(Routed::Neighbour);
        let tables = ilms.chain(lsps).chain(pseudowires).chain(tunnels).chain(neighbours);
        routers.chain(ports).chain(circuits).chain(tables)
    }

    /// One thing more.
    pub(crate) fn push(&mut self, thing: Routed) {
        match thing {
            Routed::Router(one) => self.routers.push(one),
            Routed::Port(one) => self.ports.push(one),
            Routed::Circuit(one) => self.circuits.push(one),
            Routed::Ilm(one) => self.ilms.push(one),
            Routed::Lsp(one) => self.lsps.push(one),
            Routed::Pseudowire(one) => self.pseudowires.push(one),
            Routed::Tunnel(one) => self.tunnels.push(one),
            Routed::Neighbour(one) => self.neighbours.push(one),
        }
    }

    /// The lines of a link's table that make it a port.
    pub(crate) fn text_of_link(&self, link: &str) -> String {
        let port = self.ports.iter().find(|port| port.link == link);
        port.map(Configured::text).unwrap_or_default()
    }
}

/// A thing of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    Router(RouterConfig),
    Port(PortConfig),
    Circuit(CircuitConfig),
    Ilm(IlmConfig),
    Lsp(LspConfig),
    Pseudowire(PseudowireConfig),
    Tunnel(TunnelConfig),
    Neighbour(NeighbourConfig),
}

impl Routed {
    /// How many kinds there are.
    pub(crate) const KINDS: usize = 8;

    /// Its kind's place among them, which is the order in which they come.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Routed::Router(_) => 0,
            Routed::Port(_) => 1,
            Routed::Circuit(_) => 2,
            Routed::Ilm(_) => 3,
            Routed::Lsp(_) => 4,
            Routed::Pseudowire(_) => 5,
            Routed::Tunnel(_) => 6,
            Routed::Neighbour(_) => 7,
        }
    }

    /// The links and addresses of IP by which it knows next routers.
    pub(crate) fn next_hops(&self) -> Vec<(&str, IpAddr)> {
        fn of(hop: &Hop) -> Option<(&str, IpAddr)> {
            Some((&hop.link, hop.next_hop?.ip()?))
        }
        match self {
            Routed::Ilm(one) => one.hops().filter_map(of).collect(),
            Routed::Lsp(one) => one.hops().filter_map(of).collect(),
            Routed::Neighbour(one) => {
                one.next_hop.ip().map(|address| (one.link.as_str(), address)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it is all that a link of this name is.
    pub(crate) fn is_link(&self, name: &str) -> bool {
        matches!(self, Routed::Port(port) if port.udp.is_some() && port.link == name)
    }

    /// Whether nobody else may have anything of an interface.
    pub(crate) fn takes_all_of(&self, interface: &str) -> bool {
        matches!(self, Routed::Circuit(circuit) if circuit.interface == interface)
    }
}

impl Deref for Routed {
    type Target = dyn Configured;

    fn deref(&self) -> &Self::Target {
        match self {
            Routed::Router(one) => one,
            Routed::Port(one) => one,
            Routed::Circuit(one) => one,
            Routed::Ilm(one) => one,
            Routed::Lsp(one) => one,
            Routed::Pseudowire(one) => one,
            Routed::Tunnel(one) => one,
            Routed::Neighbour(one) => one,
        }
    }
}

/// The thing of a router that it is, if it is one.
fn routed(thing: &Thing) -> Option<&Routed> {
    match thing {
        Thing::Routed(one) => Some(one),
        _ => None,
    }
}

/// The tables of routers as they were read, for what has to be asked once all exports are known.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) routing: Routing,
    circuits: Vec<(CircuitConfig, Span)>,
}

/// The routers; `links` get what they are to them. Exports are resolved behind it, and then
/// [`finish`] is called.
pub(crate) fn resolve(resolver: &mut Resolver<'_>, low: &LowArgs, links: &mut Links) -> Resolved {
    let (routers, router_names) = resolver.routers(low);
    let ports = resolver.ports(low, links, &router_names);
    let (circuits, circuit_names) = resolver.circuits(low, links, &router_names);
    let ilms = resolver.ilms(low, (&ports, links), &router_names);
    let (lsps, lsp_names) = resolver.lsps(low, &ports, links);
    let around = pseudowire::Around {
        ports: &ports,
        links,
        circuit_names: &circuit_names,
        circuits: circuits.iter().map(|(one, _)| (&*one.name, &*one.router)).collect(),
        splits: circuits.iter().filter_map(|(one, _)| Some((&*one.name, one.split?))).collect(),
        ilms: ilm::Ilms::new(&ilms, low.ilms.len()),
        lsp_names: &lsp_names,
        lsps: lsps.iter().map(|(one, _)| (&*one.name, &*one.router)).collect(),
    };
    let (pseudowires, names) = resolver.pseudowires(low, &around);
    ends::note(low, &names, links);
    let taken = pseudowires.iter().filter_map(|(one, _)| {
        Some(((one.circuit.as_deref()?, one.class.map(ClassConfig::key)), one.title()))
    });
    let tunnels = resolver.tunnels(
        low,
        &tunnel::Circuits {
            names: &circuit_names,
            routers: circuits.iter().map(|(one, _)| (&*one.name, &*one.router)).collect(),
            splits: circuits.iter().filter_map(|(one, _)| Some((&*one.name, one.split?))).collect(),
            taken: taken.collect(),
        },
    );
    let neighbours = resolver.neighbours(low, (&ports, links));
    resolver.labels_once(&ilms, &pseudowires);
    // Of what is wrong it is not known what it leads to.
    if resolver.errors() == 0 {
        let tunnelled = tunnels.iter().map(|one| one.circuit.as_str());
        resolver.warn_of_unused(&circuits, &lsps, &pseudowires, tunnelled);
        resolver.warn_of_unwatched(&ilms, &lsps, &neighbours);
    }
    let routing = Routing {
        routers,
        ports: ports.list,
        circuits: circuits.iter().map(|(one, _)| one.clone()).collect(),
        ilms: ilms.into_iter().map(|(one, _)| one).collect(),
        lsps: lsps.into_iter().map(|(one, _)| one).collect(),
        pseudowires: pseudowires.into_iter().map(|(one, _)| one).collect(),
        tunnels,
        neighbours,
    };
    Resolved { routing, circuits }
}

/// What can be said of routers only once all links are known, and who is on them.
pub(crate) fn finish(
    resolver: &mut Resolver<'_>,
    resolved: Resolved,
    links: &Links,
    users: &ends::Users<'_>,
) -> Routing {
    let Resolved { routing, circuits } = resolved;
    resolver.circuits_are_alone(&circuits, links);
    resolver.who_is_at_ends(&routing, links, users);
    routing
}

impl Resolver<'_> {
    /// What is there and carries nothing.
    fn warn_of_unused<'a>(
        &mut self,
        circuits: &[(CircuitConfig, Span)],
        lsps: &[(LspConfig, Span)],
        pseudowires: &'a [(PseudowireConfig, Span)],
        tunnelled: impl Iterator<Item = &'a str>,
    ) {
        let wired = pseudowires.iter().filter_map(|(one, _)| one.circuit.as_deref());
        let used: BTreeSet<&str> = wired.chain(tunnelled).collect();
        for (circuit, span) in circuits.iter().filter(|(one, _)| !used.contains(&*one.name)) {
            let message = format!("circuit {} goes by no pseudowire or tunnel", circuit.name);
            let help =
                format!("add circuit = {:?} to a [[pseudowire]] or a [[tunnel]]", circuit.name);
            self.push(Mistake::warning(span.clone(), message).help(help));
        }
        let taken = pseudowires.iter().flat_map(|(one, _)| [Some(&one.lsp), one.backup.as_ref()]);
        let used: BTreeSet<&str> = taken.flatten().map(String::as_str).collect();
        for (lsp, span) in lsps.iter().filter(|(one, _)| !used.contains(&*one.name)) {
            let message = format!("no pseudowire goes by lsp {}", lsp.name);
            let help = format!("add lsp = {:?} to a [[pseudowire]]", lsp.name);
            self.push(Mistake::warning(span.clone(), message).help(help));
        }
    }
}

#[cfg(test)]
mod tests;
