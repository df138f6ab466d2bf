//! Ports in UDP: the links of datagrams that they are, and what is found of the path to their peers.
//!
//! Units: bytes of payloads. Errors name the port.

use block::ShardId;
use mpls::RouterId;
use reactor::{Datagrams, PeerOptions, look_at_peer};
use wire::mpls::UDP_PORT;

use super::{RoutedSight, RunError, core};
use crate::config::thing::Configured as _;
use crate::protocols::mpls::PortConfig;
use crate::protocols::mpls::udp::UdpWay;
use crate::run::Running;
use crate::run::look::Inventory;

/// Both ends receive on the port of MPLS in UDP. We send from one other port, always, so that the
/// network keeps the order of what is sent; the peer may send from any (RFC 7510 clause 3).
fn options(way: &UdpWay, shard: ShardId) -> PeerOptions {
    PeerOptions {
        peer: way.peer,
        local: way.local,
        datagrams: Datagrams::UdpTo { port: UDP_PORT },
        neighbour_on: None,
        shard,
        poll: way.poll,
    }
}

/// Looks for the path to the peer of a port in UDP. Nothing is sent.
pub(crate) fn look_at_port_in_udp(
    config: &PortConfig,
    way: &UdpWay,
    inventory: &impl Inventory,
) -> Result<RoutedSight, RunError> {
    let title = config.title();
    let path = look_at_peer(&options(way, ShardId(0)))
        // Unrecorded: what no host could make right was refused in the file.
        .map_err(|error| RunError::new(error.to_string()).within(&title))?;
    let is_it = |other: &PortConfig| other.udp.is_some_and(|other| other.is_same(way));
    let is_served = inventory.served().is_some_and(|one| one.args.routing.ports.iter().any(is_it));
    let (words, told) = match (path, is_served) {
        // It may be in a network namespace of its own.
        (_, true) => ("the server has it now".to_owned(), None),
        (Some(_), _) => ("there is a route".to_owned(), None),
        (None, _) => {
            let words = format!("no route to {}: it carries packets once there is one", way.peer);
            (words.clone(), Some(format!("{title}: {words}")))
        }
    };
    Ok(RoutedSight { words, mac: None, mtu: path, told })
}

impl Running {
    /// The port, and then the link. Returns what deserves to be told.
    pub(super) fn open_port_in_udp(
        &mut self,
        router: RouterId,
        config: &PortConfig,
        way: &UdpWay,
    ) -> Result<Option<String>, RunError> {
        let told = look_at_port_in_udp(config, way, self)?.told;
        let link = self.routed_link(super::port_key(&config.router, &config.link))?;
        let options = options(way, self.shard_of(router));
        self.open_peer(router, (&config.title(), &config.link), (link, core(config)), &options)?;
        Ok(told)
    }
}
