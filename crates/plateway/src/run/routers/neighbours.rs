//! Neighbours as orders: a port for the packets of BFD, the link of datagrams to it, and then the
//! neighbour itself.
//!
//! Errors: if not all shards carry out an order, all are told again what is in the book.

use contract::{LinkId, Poll};
use mpls::limits::NEIGHBOURS_MAX;
use mpls::{Change, Neighbour, NeighbourId, PortKind, RouterId, Subject};
use reactor::{Datagrams, PeerOptions};
use wire::bfd::UDP_PORT_SINGLE_HOP;

use super::{RunError, look_at_neighbour};
use crate::config::thing::Configured as _;
use crate::protocols::mpls::NeighbourConfig;
use crate::run::Running;

/// What a port of BFD is known by: that of another router is another.
fn key(config: &NeighbourConfig) -> String {
    format!("{} of {}", port_name(config), config.router)
}

/// What people call it.
pub(super) fn port_name(config: &NeighbourConfig) -> String {
    format!("BFD to {} on {}", config.address, config.link)
}

impl Running {
    fn neighbour_id(&mut self, config: &NeighbourConfig) -> Result<NeighbourId, RunError> {
        let numbers = &mut self.routers.neighbour_numbers;
        numbers.give(&key(config), NEIGHBOURS_MAX).map(NeighbourId)
    }

    /// A neighbour as the shards are told, whose port of BFD has a number.
    fn neighbour_of(&mut self, config: &NeighbourConfig) -> Result<Change, RunError> {
        self.find_next_hop(&config.router, &config.link, Some(config.next_hop))?;
        let port = self.routers.port(&config.router, &config.link)?;
        let (bfd, via) = (self.routed_link(key(config))?, config.next_hop);
        let neighbour = Neighbour { port, via, bfd, watch: config.bfd.watch() };
        Ok(Change::SetNeighbour(self.neighbour_id(config)?, neighbour))
    }

    /// Returns what deserves to be told.
    pub(super) fn add_neighbour(
        &mut self,
        config: &NeighbourConfig,
    ) -> Result<Option<String>, RunError> {
        let router = self.routers.id(&config.router)?;
        let told = self.interface_of(&config.link).and_then(|one| look_at_neighbour(config, &one));
        self.open_bfd_port(router, config)?;
        let subject = Subject::Neighbour(self.neighbour_id(config)?);
        self.shards.event_log().name_routed((router, subject), &config.title());
        self.set_neighbour(config).inspect_err(|_| {
            self.shards.event_log().forget_routed((router, subject));
            let _ = self.close_bfd_port(router, config);
        })?;
        Ok(told)
    }

    pub(super) fn set_neighbour(&mut self, config: &NeighbourConfig) -> Result<(), RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let change = self.neighbour_of(config)?;
        let back = match self.routers.neighbours.get(&title).cloned() {
            Some(before) => self.neighbour_of(&before)?,
            None => Change::RemoveNeighbour(self.neighbour_id(config)?),
        };
        self.route(router, &title, &change, Some(&back))?;
        self.routers.neighbours.insert(title, config.clone());
        Ok(())
    }

    pub(super) fn remove_neighbour(
        &mut self,
        config: &NeighbourConfig,
    ) -> Result<Option<String>, RunError> {
        let (router, title) = (self.routers.id(&config.router)?, config.title());
        let Some(before) = self.routers.neighbours.get(&title).cloned() else { return Ok(None) };
        let (id, back) = (self.neighbour_id(&before)?, self.neighbour_of(&before)?);
        self.route(router, &title, &Change::RemoveNeighbour(id), Some(&back))?;
        self.routers.neighbours.shift_remove(&title);
        self.shards.event_log().forget_routed((router, Subject::Neighbour(id)));
        Ok(self.close_bfd_port(router, &before))
    }

    /// The interface of a link.
    pub(super) fn interface_of(&self, link: &str) -> Option<String> {
        Some(self.links.get(link)?.config.ethernet.interface.clone())
    }

    /// A port for BFD's packets, and then the link by which they go.
    fn open_bfd_port(
        &mut self,
        router: RouterId,
        config: &NeighbourConfig,
    ) -> Result<(), RunError> {
        let title = config.title();
        let Some(interface) = self.interface_of(&config.link) else {
            // Unrecorded: a neighbour comes after its port, and that after its link.
            return Err(RunError::new(format!("link {} is not open", config.link)));
        };
        let link = self.routed_link(key(config))?;
        let options = PeerOptions {
            peer: config.address,
            local: None,
            datagrams: Datagrams::UdpTo { port: UDP_PORT_SINGLE_HOP },
            neighbour_on: Some(interface),
            shard: self.shard_of(router),
            poll: Poll::default(),
        };
        let name = port_name(config);
        self.open_peer(router, (&title, &name), (link, PortKind::Bfd), &options)
    }

    fn close_bfd_port(&mut self, router: RouterId, config: &NeighbourConfig) -> Option<String> {
        let link = self.routers.bfd_port(config)?;
        self.let_go_of_link(link);
        self.forget(router, &config.title(), &Change::RemovePort(link))
    }
}

impl super::Routers {
    /// The port of BFD to a neighbour.
    pub(super) fn bfd_port(&self, config: &NeighbourConfig) -> Option<LinkId> {
        self.links.get(&key(config)).copied()
    }

    pub(super) fn neighbour_number(&self, config: &NeighbourConfig) -> Option<NeighbourId> {
        self.neighbour_numbers.of(&key(config)).map(NeighbourId)
    }
}
