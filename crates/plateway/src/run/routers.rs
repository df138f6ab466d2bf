//! Routers that run: their ports and circuits, which are links of the driver's, and their tables,
//! each changed by an order to all shards.
//!
//! A router is on one shard, its number modulo the shards, and so are its links (decision 0018). A
//! link is a port before the driver has it, and no port any more once the driver let it go. Ports and
//! circuits keep their numbers as long as the process lives, by what they are called, as paths and
//! pseudowires do: what refers to one that is gone for a moment finds it again, and whoever had a
//! label is known by the same number (`labels`). If not all shards carry out an order, all are told
//! again what is in the book.
//!
//! Here: the book, routers, ports and circuits. `tables` has labels, paths and pseudowires, `tunnels`
//! those through IP, `udp` ports through it, `neighbours` those whom BFD watches, `next_hops` where
//! next routers are, `sight` what was found of interfaces, `labels` who may have a label now, `view` how it all is. Units:
//! bytes behind the Ethernet header. Errors name the thing.

mod bins;
mod labels;
mod neighbours;
mod next_hops;
mod sight;
mod tables;
mod tunnels;
mod udp;
mod view;

use std::collections::BTreeMap;

use block::ShardId;
use contract::{EtherType, Intake, LinkId, Spread, Takes};
use indexmap::IndexMap;
use mpls::limits::PORTS_MAX;
use mpls::{Change, Core, FecId, Over, PortKind, PseudowireId, RouterId, RouterReport};
use reactor::PeerOptions;
use shard::{Answer, Order};

use super::Running;
use super::error::RunError;
use super::shards::ORDER_LIMIT;
use crate::config::link::{Ethernet, LinkAccess, PSEUDOWIRE_PREFIX, pseudowire_link};
use crate::config::model::HiArgs;
use crate::config::thing::Configured;
use crate::protocols::mpls::{
    CircuitConfig, IlmConfig, LspConfig, NeighbourConfig, PortConfig, PseudowireConfig, Routed,
    RouterConfig, Routing, TunnelConfig,
};
pub(crate) use bins::MILLISECONDS_MAX;
use labels::{Holder, Withdrawn};
use next_hops::NextHops;
pub(crate) use sight::{
    RoutedSight, circles, look_at_circuit, look_at_neighbour, look_at_next_hops, look_at_port,
    look_at_tunnel, refusal,
};
pub(crate) use udp::look_at_port_in_udp;

/// The routers of a process.
#[derive(Debug, Default)]
pub(super) struct Routers {
    /// By name, as all else here is by what it is called.
    routers: IndexMap<String, (RouterId, RouterConfig)>,
    ports: IndexMap<String, (LinkId, PortConfig)>,
    circuits: IndexMap<String, (LinkId, CircuitConfig)>,
    /// By title.
    ilms: IndexMap<String, (FecId, IlmConfig)>,
    lsps: IndexMap<String, LspConfig>,
    pseudowires: IndexMap<String, PseudowireConfig>,
    tunnels: IndexMap<String, TunnelConfig>,
    /// By title.
    neighbours: IndexMap<String, NeighbourConfig>,
    next_hops: NextHops,
    withdrawn: Withdrawn,
    next_router: super::Counter,
    next_fec: super::Counter,
    links: BTreeMap<String, LinkId>,
    paths: Numbers,
    pseudowire_numbers: Numbers,
    tunnel_numbers: Numbers,
    neighbour_numbers: Numbers,
    /// Until when what leaves by these is counted by the millisecond.
    recorded: BTreeMap<LinkId, std::time::Instant>,
}

/// Where a link of a router's is.
pub(super) enum Place<'a> {
    /// On the interface of a link of this name.
    Link(&'a str),
    Circuit(&'a CircuitConfig),
}

/// Numbers that were given to names, from 0 on.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<String, u32>);

impl Numbers {
    fn of(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    /// The number of a name, which may be a new one below `max`.
    fn give(&mut self, name: &str, max: u32) -> Result<u32, RunError> {
        if let Some(number) = self.of(name) {
            return Ok(number);
        }
        let next = self.0.len() as u32;
        if next >= max {
            // Unrecorded: a million names.
            return Err(used_up(max, "names of paths and pseudowires"));
        }
        self.0.insert(name.to_owned(), next);
        Ok(next)
    }
}

fn used_up(max: u32, what: &str) -> RunError {
    // Unrecorded: its callers say why.
    RunError::new(format!(
        "this process has had {max} {what}, which are all that it can tell apart"
    ))
    .help("restart plateway")
}

impl Routers {
    /// What runs.
    pub(super) fn config(&self) -> Routing {
        Routing {
            routers: self.routers.values().map(|(_, one)| one.clone()).collect(),
            ports: self.ports.values().map(|(_, one)| one.clone()).collect(),
            circuits: self.circuits.values().map(|(_, one)| one.clone()).collect(),
            ilms: self.ilms.values().map(|(_, one)| one.clone()).collect(),
            lsps: self.lsps.values().cloned().collect(),
            pseudowires: self.pseudowires.values().cloned().collect(),
            tunnels: self.tunnels.values().cloned().collect(),
            neighbours: self.neighbours.values().cloned().collect(),
        }
    }

    /// Once all of `to` runs, in its order.
    pub(super) fn arrange(&mut self, to: &Routing) {
        fn sort<T>(open: &mut IndexMap<String, T>, wanted: impl Iterator<Item = String>) {
            let places: BTreeMap<String, usize> = wanted.zip(0..).collect();
            open.sort_by_cached_key(|name, _| places.get(name).copied());
        }
        sort(&mut self.routers, to.routers.iter().map(|one| one.name.clone()));
        sort(&mut self.ports, to.ports.iter().map(|one| one.link.clone()));
        sort(&mut self.circuits, to.circuits.iter().map(|one| one.name.clone()));
        sort(&mut self.ilms, to.ilms.iter().map(Configured::title));
        sort(&mut self.lsps, to.lsps.iter().map(|one| one.name.clone()));
        sort(&mut self.pseudowires, to.pseudowires.iter().map(|one| one.name.clone()));
        sort(&mut self.tunnels, to.tunnels.iter().map(|one| one.name.clone()));
        sort(&mut self.neighbours, to.neighbours.iter().map(Configured::title));
    }

    fn id(&self, router: &str) -> Result<RouterId, RunError> {
        let found = self.routers.get(router).map(|(id, _)| *id);
        // Unrecorded: what needs a router comes after it.
        found.ok_or_else(|| RunError::new(format!("router {router} is not there")))
    }

    /// The link of a port, also of one that is yet to come.
    fn port(&self, router: &str, link: &str) -> Result<LinkId, RunError> {
        let found = self.links.get(&port_key(router, link)).copied();
        // Unrecorded: what names a port comes after it.
        found.ok_or_else(|| RunError::new(format!("port {link} is not there")))
    }

    /// The circuit of a pseudowire.
    fn circuit_of(&self, config: &PseudowireConfig) -> Option<LinkId> {
        match &config.circuit {
            Some(circuit) => self.circuits.get(circuit).map(|(link, _)| *link),
            None => self.links.get(&virtual_key(&config.router, &config.name)).copied(),
        }
    }

    /// The interfaces of ports and circuits, and the links that are open there. Those of ports the
    /// links of exports name.
    pub(super) fn opened(&self) -> impl Iterator<Item = (Place<'_>, LinkId)> {
        let ports = self.ports.values().map(|(id, one)| (Place::Link(&one.link), *id));
        let circuits = self.circuits.values().map(|(id, one)| (Place::Circuit(one), *id));
        ports.chain(circuits)
    }

    fn holder(&self, config: &PseudowireConfig) -> Option<Holder> {
        let id = PseudowireId(self.pseudowire_numbers.of(&config.name)?);
        Some(Holder::Pseudowire(id, self.circuit_of(config)?))
    }
}

fn circuit_kind(config: &CircuitConfig) -> PortKind {
    let CircuitConfig { traffic_classes, split: classifier, .. } = *config;
    PortKind::Circuit { traffic_classes, classifier }
}

/// What has a number: that of another router is another.
fn port_key(router: &str, link: &str) -> String {
    format!("port {link} of {router}")
}

fn circuit_key(config: &CircuitConfig) -> String {
    format!("{} of {}", config.title(), config.router)
}

fn virtual_key(router: &str, pseudowire: &str) -> String {
    format!("{} of {router}", pseudowire_link(pseudowire))
}

/// The key of a path that a label goes on by; those of paths with a name begin otherwise.
fn path_of(ilm: &IlmConfig) -> String {
    format!("{} of router {}", ilm.title(), ilm.router)
}

/// The key of what a path's packets take while its next hop fails.
fn backup_of(path: &str) -> String {
    format!("backup of {path}")
}

fn path_named(lsp: &str) -> String {
    format!("lsp {lsp}")
}

impl Running {
    /// A thing of a router is there. Returns what deserves to be told.
    pub(super) fn add_routed(&mut self, thing: &Routed) -> Result<Option<String>, RunError> {
        match thing {
            Routed::Router(one) => self.set_router(one)?,
            Routed::Port(one) => return self.add_port(one),
            Routed::Circuit(one) => return self.add_circuit(one),
            Routed::Ilm(one) => self.set_ilm(one)?,
            Routed::Lsp(one) => self.set_lsp(one)?,
            Routed::Pseudowire(one) => self.add_pseudowire(one)?,
            Routed::Tunnel(one) => return self.add_tunnel(one),
            Routed::Neighbour(one) => return self.add_neighbour(one),
        }
        Ok(None)
    }

    /// A thing of a router that is there is to be otherwise.
    pub(super) fn change_routed(&mut self, thing: &Routed) -> Result<(), RunError> {
        match thing {
            Routed::Router(one) => self.set_router(one),
            Routed::Port(one) => self.change_port(one),
            Routed::Circuit(one) => self.change_circuit(one),
            Routed::Ilm(one) => self.set_ilm(one),
            Routed::Lsp(one) => self.set_lsp(one),
            Routed::Pseudowire(one) => self.set_pseudowire(one),
            Routed::Tunnel(one) => self.set_tunnel(one),
            Routed::Neighbour(one) => self.set_neighbour(one),
        }
    }

    /// A thing of a router is there no more. Returns what deserves to be told.
    pub(super) fn remove_routed(&mut self, thing: &Routed) -> Result<Option<String>, RunError> {
        match thing {
            Routed::Router(one) => self.remove_router(one)?,
            Routed::Port(one) => return Ok(self.remove_port(one)),
            Routed::Circuit(one) => return Ok(self.remove_circuit(one)),
            Routed::Ilm(one) => return self.remove_ilm(one),
            Routed::Lsp(one) => self.remove_lsp(one)?,
            Routed::Pseudowire(one) => return self.remove_pseudowire(one),
            Routed::Tunnel(one) => return self.remove_tunnel(one),
            Routed::Neighbour(one) => return self.remove_neighbour(one),
        }
        Ok(None)
    }

    /// What is gone for good is so even if a shard did not hear of it: returns that.
    fn forget(&self, router: RouterId, title: &str, change: &Change) -> Option<String> {
        self.route(router, title, change, None).err().map(|error| error.line())
    }

    /// Changes a router on all shards; where not all do, all are told `back`.
    fn route(
        &self,
        router: RouterId,
        title: &str,
        change: &Change,
        back: Option<&Change>,
    ) -> Result<(), RunError> {
        let order = |change: &Change| Order::Route(router, Box::new(change.clone()));
        self.order(title, || order(change)).inspect_err(|_| {
            if let Some(back) = back {
                let _ = self.order(title, || order(back));
            }
        })
    }

    fn set_router(&mut self, config: &RouterConfig) -> Result<(), RunError> {
        let known = self.routers.routers.get(&config.name);
        let (id, back) = match known {
            Some((id, before)) => (*id, Change::SetQuarantine(before.quarantine)),
            None => (RouterId(self.routers.next_router.next()), Change::RemoveRouter),
        };
        let change = Change::SetQuarantine(config.quarantine);
        self.route(id, &config.title(), &change, Some(&back))?;
        self.routers.routers.insert(config.name.clone(), (id, config.clone()));
        Ok(())
    }

    fn remove_router(&mut self, config: &RouterConfig) -> Result<(), RunError> {
        let Some((id, before)) = self.routers.routers.get(&config.name) else { return Ok(()) };
        let back = Change::SetQuarantine(before.quarantine);
        self.route(*id, &config.title(), &Change::RemoveRouter, Some(&back))?;
        self.routers.routers.shift_remove(&config.name);
        // Another one of its name is told where they are.
        self.routers.next_hops.forget_router(&config.name);
        Ok(())
    }

    /// The number of a link that a router takes, by what it is called.
    fn routed_link(&mut self, key: String) -> Result<LinkId, RunError> {
        if let Some(link) = self.routers.links.get(&key) {
            return Ok(*link);
        }
        let link = LinkId(self.numbers.link.next());
        if link.0 >= PORTS_MAX {
            // Unrecorded: of that many links.
            return Err(used_up(PORTS_MAX, "links"));
        }
        self.routers.links.insert(key, link);
        Ok(link)
    }

    /// A link becomes a port, and then is opened.
    fn open_routed(
        &mut self,
        router: RouterId,
        (title, name): (&str, &str),
        (link, kind): (LinkId, PortKind),
        (ethernet, takes): (&Ethernet, Takes),
        (access, poll): (LinkAccess, contract::Poll),
    ) -> Result<Option<String>, RunError> {
        let intake = Intake { takes, spread: Spread::One(self.shard_of(router), Vec::new()) };
        let gone = Change::RemovePort(link);
        self.route(router, title, &Change::SetPort(link, kind), Some(&gone))?;
        let how = (access, poll, true);
        let off = self
            .open_link_as(link, name, ethernet, how, intake)
            .inspect_err(|_| drop(self.route(router, title, &gone, None)))
            .map_err(|error| error.within(title))?;
        let off: Vec<String> = off.iter().map(ToString::to_string).collect();
        Ok((!off.is_empty()).then(|| {
            format!(
                "{title}: {} of {} is off while frames are sent on from there",
                off.join(" and "),
                ethernet.interface
            )
        }))
    }

    /// A link through IP becomes a port, and then is opened.
    fn open_peer(
        &self,
        router: RouterId,
        (title, name): (&str, &str),
        (link, kind): (LinkId, PortKind),
        options: &PeerOptions,
    ) -> Result<(), RunError> {
        let gone = Change::RemovePort(link);
        self.route(router, title, &Change::SetPort(link, kind), Some(&gone))?;
        self.shards.event_log().name_link(link, name);
        match self.shards.handle().add_peer(link, options) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.shards.event_log().forget_link(link);
                let _ = self.route(router, title, &gone, None);
                Err(RunError::new(error.to_string()).within(title))
            }
        }
    }

    /// Where a router is.
    fn shard_of(&self, router: RouterId) -> ShardId {
        ShardId((router.0 % u32::from(self.shards.handle().shards())) as u16)
    }

    fn add_port(&mut self, config: &PortConfig) -> Result<Option<String>, RunError> {
        let router = self.routers.id(&config.router)?;
        let told = match &config.udp {
            Some(way) => self.open_port_in_udp(router, config, way)?,
            None => self.open_port(router, config)?,
        };
        let link = self.routers.port(&config.router, &config.link)?;
        self.routers.ports.insert(config.link.clone(), (link, config.clone()));
        Ok(told)
    }

    /// A port with Ethernet, whose link is there. Returns what deserves to be told.
    fn open_port(
        &mut self,
        router: RouterId,
        config: &PortConfig,
    ) -> Result<Option<String>, RunError> {
        let title = config.title();
        let Some(open) = self.links.get(&config.link) else {
            // Unrecorded: a port comes after its link.
            return Err(RunError::new(format!("link {} is not open", config.link)));
        };
        let (ethernet, access) = (open.config.ethernet.clone(), open.config.access);
        let poll = open.config.poll;
        let link = self.routed_link(port_key(&config.router, &config.link))?;
        let takes = Takes::Type(EtherType::MPLS);
        self.open_routed(
            router,
            (&title, &config.link),
            (link, core(config)),
            (&ethernet, takes),
            (access, poll),
        )
    }

    fn change_port(&mut self, to: &PortConfig) -> Result<(), RunError> {
        let router = self.routers.id(&to.router)?;
        let Some((link, before)) = self.routers.ports.get(&to.link) else { return Ok(()) };
        let (change, back) =
            (Change::SetPort(*link, core(to)), Change::SetPort(*link, core(before)));
        self.route(router, &to.title(), &change, Some(&back))?;
        if let Some(way) = &to.udp {
            self.shards.handle().poll_link(*link, way.poll);
        }
        self.routers.ports[&to.link].1.clone_from(to);
        Ok(())
    }

    fn remove_port(&mut self, config: &PortConfig) -> Option<String> {
        let router = self.routers.id(&config.router).ok()?;
        let (link, _) = self.routers.ports.shift_remove(&config.link)?;
        self.let_go_of_link(link);
        self.forget(router, &config.title(), &Change::RemovePort(link))
    }

    fn add_circuit(&mut self, config: &CircuitConfig) -> Result<Option<String>, RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let told = look_at_circuit(config, self)?.told;
        let link = self.routed_link(circuit_key(config))?;
        let kind = circuit_kind(config);
        let off = self.open_routed(
            router,
            (&title, &config.name),
            (link, kind),
            (&config.ethernet(), Takes::Whole),
            (LinkAccess::Packet, config.poll),
        )?;
        self.routers.circuits.insert(config.name.clone(), (link, config.clone()));
        Ok(joined([told, off]))
    }

    fn change_circuit(&mut self, to: &CircuitConfig) -> Result<(), RunError> {
        let router = self.routers.id(&to.router)?;
        let Some((link, before)) = self.routers.circuits.get(&to.name) else { return Ok(()) };
        let set = |config: &CircuitConfig| Change::SetPort(*link, circuit_kind(config));
        self.route(router, &to.title(), &set(to), Some(&set(before)))?;
        self.shards.handle().poll_link(*link, to.poll);
        self.routers.circuits[&to.name].1.clone_from(to);
        Ok(())
    }

    fn remove_circuit(&mut self, config: &CircuitConfig) -> Option<String> {
        let router = self.routers.id(&config.router).ok()?;
        let (link, _) = self.routers.circuits.shift_remove(&config.name)?;
        self.let_go_of_link(link);
        self.forget(router, &config.title(), &Change::RemovePort(link))
    }

    /// What comes over a link is looked for in another way, also what comes to its router.
    pub(super) fn poll_port(&self, link: &str, poll: contract::Poll) {
        if let Some((id, _)) = self.routers.ports.get(link) {
            self.shards.handle().poll_link(*id, poll);
        }
    }

    /// The link of a pseudowire that ends in this process, by the name of exports.
    pub(super) fn pseudowire_link(&self, name: &str) -> Option<LinkId> {
        self.pseudowire_end(name.strip_prefix(PSEUDOWIRE_PREFIX)?).map(|(link, _)| link)
    }

    /// The link of a pseudowire that ends in this process, and the one shard that has it.
    pub(super) fn pseudowire_end(&self, name: &str) -> Option<(LinkId, ShardId)> {
        let config = self.routers.pseudowires.get(name).filter(|one| one.circuit.is_none())?;
        let router = self.routers.id(&config.router).ok()?;
        Some((self.routers.circuit_of(config)?, self.shard_of(router)))
    }

    /// The links that routers have open, and where.
    pub(super) fn routed_links(&self) -> Vec<(Ethernet, LinkId)> {
        let place = |(place, id)| match place {
            Place::Link(name) => Some((self.links.get(name)?.config.ethernet.clone(), id)),
            Place::Circuit(circuit) => Some((circuit.ethernet(), id)),
        };
        self.routers.opened().filter_map(place).collect()
    }

    /// How things are with a router, on the shard where it is.
    fn router_report(&self, name: &str) -> Result<RouterReport, RunError> {
        let id = self.routers.id(name)?;
        let what = format!("report of router {name}");
        let answers = self.shards.order(&what, ORDER_LIMIT, || Order::ReportRouter(id))?;
        let shard = id.0 as usize % answers.len();
        match answers.into_iter().nth(shard) {
            Some(Answer::Router(Some(report))) => Ok(*report),
            // Unrecorded: it is in the book, so the shards have it.
            _ => Err(RunError::new(format!("router {name} is not there"))),
        }
    }
}

/// What deserves to be told, in one line.
fn joined<const N: usize>(told: [Option<String>; N]) -> Option<String> {
    let told: Vec<String> = told.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// What a port is to its router.
fn core(config: &PortConfig) -> PortKind {
    let over = if config.udp.is_some() { Over::Udp } else { Over::Ethernet };
    PortKind::Core(Core { takes_explicit_null: config.explicit_null, over, rate: config.rate })
}

/// Refuses what goes in a circle, as far as it is seen, before anything is done.
pub(super) fn check_circles(args: &HiArgs) -> Result<(), RunError> {
    match circles(args).first() {
        Some(circle) => Err(refusal(circle).within(&circle.title)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
