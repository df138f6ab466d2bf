//! Tunnels as orders, and the ports that they share: a link through IP to each peer, there as long as
//! a tunnel goes by it.
//!
//! A port is there before its link is open, and its first tunnel comes behind it. Errors: if not all
//! shards carry out an order, all are told again what is in the book.

use std::collections::BTreeMap;

use block::ShardId;
use contract::{LinkId, Poll};
use mpls::limits::TUNNELS_MAX;
use mpls::{Change, Fec, PortKind, RouterId, Tunnel, TunnelId};
use reactor::{Datagrams, PeerOptions};

use super::neighbours::port_name;
use super::{RunError, look_at_tunnel};
use crate::config::thing::Configured as _;
use crate::protocols::mpls::TunnelConfig;
use crate::protocols::mpls::split::ClassConfig;
use crate::protocols::mpls::tunnel::TunnelWay;
use crate::run::Running;

/// What a port of tunnels is known by: that of another router is another.
fn key(router: &str, way: &TunnelWay) -> String {
    let local = way.local.map(|local| format!(" from {local}")).unwrap_or_default();
    format!("{}{local} of {router}", way.title())
}

/// The link through IP by which tunnels of a way go.
pub(super) fn peer_options(way: &TunnelWay, shard: ShardId) -> PeerOptions {
    PeerOptions {
        peer: way.peer,
        local: way.local,
        datagrams: match way.ports {
            None => Datagrams::Gre,
            Some((local_port, peer_port)) => Datagrams::Udp { local_port, peer_port },
        },
        neighbour_on: None,
        shard,
        poll: Poll::default(),
    }
}

impl Running {
    /// A tunnel as the shards are told, whose port is there.
    fn tunnel_of(&mut self, config: &TunnelConfig) -> Result<(TunnelId, Tunnel), RunError> {
        let port = self.routed_link(key(&config.router, &config.way))?;
        let Some((circuit, _)) = self.routers.circuits.get(&config.circuit) else {
            // Unrecorded: a circuit comes before its tunnel.
            return Err(RunError::new(format!("{}: its circuit is not there", config.title())));
        };
        let fec = Fec { circuit: *circuit, class: config.class.map(ClassConfig::key) };
        let tunnel = Tunnel { fec, port, session: config.session, sequencing: config.sequence };
        let number = self.routers.tunnel_numbers.give(&config.name, TUNNELS_MAX)?;
        Ok((TunnelId(number), tunnel))
    }

    /// Returns what deserves to be told.
    pub(super) fn add_tunnel(&mut self, config: &TunnelConfig) -> Result<Option<String>, RunError> {
        let router = self.routers.id(&config.router)?;
        let is_first = !self.routers.has_tunnel_by(config);
        if is_first {
            self.open_tunnel_port(router, config)?;
        }
        self.set_tunnel(config).inspect_err(|_| {
            if is_first {
                let _ = self.close_tunnel_port(router, config);
            }
        })?;
        let circuit = self.routers.circuits.get(&config.circuit);
        Ok(circuit.and_then(|(_, circuit)| look_at_tunnel(config, &circuit.interface)))
    }

    pub(super) fn set_tunnel(&mut self, config: &TunnelConfig) -> Result<(), RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let before = self.routers.tunnels.get(&config.name).cloned();
        let (id, tunnel) = self.tunnel_of(config)?;
        let back = match &before {
            Some(before) => {
                let (id, tunnel) = self.tunnel_of(before)?;
                Change::SetTunnel(id, tunnel)
            }
            None => Change::RemoveTunnel(id),
        };
        self.route(router, &title, &Change::SetTunnel(id, tunnel), Some(&back))?;
        self.routers.tunnels.insert(config.name.clone(), config.clone());
        Ok(())
    }

    pub(super) fn remove_tunnel(
        &mut self,
        config: &TunnelConfig,
    ) -> Result<Option<String>, RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let Some(before) = self.routers.tunnels.get(&config.name).cloned() else {
            return Ok(None);
        };
        let (id, tunnel) = self.tunnel_of(&before)?;
        let back = Change::SetTunnel(id, tunnel);
        self.route(router, &title, &Change::RemoveTunnel(id), Some(&back))?;
        self.routers.tunnels.shift_remove(&config.name);
        if self.routers.has_tunnel_by(&before) {
            return Ok(None);
        }
        Ok(self.close_tunnel_port(router, &before))
    }

    /// A port for the tunnels to a peer, and then the link to it.
    fn open_tunnel_port(
        &mut self,
        router: RouterId,
        config: &TunnelConfig,
    ) -> Result<(), RunError> {
        let (title, way) = (config.title(), config.way);
        let link = self.routed_link(key(&config.router, &way))?;
        let options = peer_options(&way, self.shard_of(router));
        let port = (link, PortKind::Tunnels(way.kind()));
        self.open_peer(router, (&title, &way.title()), port, &options)
    }

    fn close_tunnel_port(&mut self, router: RouterId, config: &TunnelConfig) -> Option<String> {
        let link = self.routers.tunnel_port(config)?;
        self.let_go_of_link(link);
        self.forget(router, &config.title(), &Change::RemovePort(link))
    }
}

impl super::Routers {
    /// Whether a tunnel goes by the same port.
    fn has_tunnel_by(&self, config: &TunnelConfig) -> bool {
        let way = (&config.router, &config.way);
        self.tunnels.values().any(|one| (&one.router, &one.way) == way)
    }

    /// The links through IP, what they are called, and how many share each: ports in UDP, tunnels to one
    /// peer, and neighbours that BFD watches.
    pub(in crate::run) fn peer_links(&self) -> BTreeMap<LinkId, (String, u64)> {
        let tunnels = self.tunnels.values();
        let tunnels = tunnels.map(|one| (self.tunnel_port(one), one.way.title()));
        let neighbours = self.neighbours.values();
        let neighbours = neighbours.map(|one| (self.bfd_port(one), port_name(one)));
        let in_udp = self.ports.values();
        let in_udp = in_udp.filter_map(|(link, one)| Some((Some(*link), one.udp?.to_string())));
        let mut links = BTreeMap::new();
        for (link, name) in in_udp.chain(tunnels).chain(neighbours) {
            let Some(link) = link else { continue };
            let (_, uses) = links.entry(link).or_insert((name, 0));
            *uses += 1;
        }
        links
    }

    /// The port by which a tunnel goes.
    pub(super) fn tunnel_port(&self, config: &TunnelConfig) -> Option<LinkId> {
        self.links.get(&key(&config.router, &config.way)).copied()
    }
}
