//! `udp = { ... }` of a `[[link]]`: a link without Ethernet, by which a router's labels go to one
//! other router in UDP, through IP as the kernel routes it.
//!
//! It is a port and nothing else, so that the whole table is that port's. Errors are pushed as
//! mistakes at what was written. Spec: RFC 7510.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use contract::Poll;
use toml::Spanned;
use wire::mpls::UDP_PORT;

use super::port::{PortConfig, Ports};
use super::words::ADDRESS;
use crate::config::file::table;
use crate::config::link::{Links, LowLink};
use crate::config::mistake::Mistake;
use crate::config::resolve::{Names, Resolver};
use crate::config::thing::Configured as _;

table! {
    #[derive(Clone)]
    LowUdp = "udp of [[link]]" {
        peer: String = ADDRESS,
        local: String = ADDRESS,
    }
}

/// Where the packets of a port go that are in UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpWay {
    pub(crate) peer: IpAddr,
    /// `None`: what the kernel chooses.
    pub(crate) local: Option<IpAddr>,
    /// How long a shard looks for more of them before it sleeps.
    pub(crate) poll: Poll,
}

impl UdpWay {
    /// Whether both would hear the same packets, as far as is known.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let same = |(one, other)| one == other;
        self.peer == other.peer && self.local.zip(other.local).is_none_or(same)
    }

    /// Whether both have the same packets.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.peer, self.local) == (other.peer, other.local)
    }

    /// Whether what one sends is what the other hears, both of them here.
    pub(super) fn is_heard_by(&self, other: &Self) -> bool {
        (Some(self.peer), self.local) == (other.local, Some(other.peer))
    }

    /// As a file has it.
    pub(super) fn text(&self) -> String {
        let local = self.local.map(|local| format!(", local = \"{local}\"")).unwrap_or_default();
        format!("{{ peer = \"{}\"{local} }}", self.peer)
    }
}

/// For people.
impl fmt::Display for UdpWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UDP to {}", SocketAddr::new(self.peer, UDP_PORT))?;
        self.local.map_or(Ok(()), |local| write!(f, " from {local}"))
    }
}

impl Resolver<'_> {
    /// The port that a link in UDP is.
    pub(super) fn udp_port(
        &mut self,
        (low, udp): (&LowLink, &LowUdp),
        ports: &mut Ports,
        (links, routers): (&Links, &Names),
    ) {
        let way = self.udp_way(low, udp, links);
        let is_port = low.mpls.as_ref().is_some_and(|yes| *yes.get_ref());
        if !is_port && !self.is_reported(&low.span, "[[link]]", "mpls") {
            let message = "a link in UDP carries MPLS, and this one does not";
            self.push(Mistake::error(udp.span.clone(), message).help("add mpls = true"));
        }
        let router = self.router_of(&low.router, (&low.span, "[[link]]"), routers);
        let (Some(way), Some(router), Some(name)) = (way, router, &low.name) else { return };
        let explicit_null = low.explicit_null.as_ref().is_some_and(|yes| *yes.get_ref());
        let (link, at, rate) = (name.get_ref().clone(), name.span(), self.rate(&low.rate));
        let port = PortConfig { link, router, explicit_null, rate, udp: Some(way) };
        let others = ports.list.iter().filter_map(|one| Some((one, one.udp?)));
        if let Some((other, its)) = others.into_iter().find(|(_, its)| its.meets(&way)) {
            let message = match its.is_same(&way) {
                true => format!("link {} is {its} already", other.link),
                false => format!(
                    "links {} and {} are to the same peer, and only one says from which address",
                    other.link, port.link
                ),
            };
            let first = self.place_of(&other.title(), "");
            let help = "one link carries all labels to a peer; a second one needs a local of its own, and so does the first";
            self.push(Mistake::error(udp.span.clone(), message).first(&first).help(help));
        }
        self.place(port.title(), "", at);
        ports.add(port);
    }

    fn udp_way(&mut self, low: &LowLink, udp: &LowUdp, links: &Links) -> Option<UdpWay> {
        if udp.peer.is_none() {
            let example = "peer = \"192.0.2.2\", the router at the other end";
            self.missing(&udp.span, "udp of [[link]]", "peer", example);
        }
        let hosts = self.peers(&udp.peer, &udp.local);
        let poll = self.poll(&low.poll).unwrap_or(links.poll);
        hosts.map(|(peer, local)| UdpWay { peer, local, poll })
    }

    /// A path by a link in UDP says to whom, and needs not.
    pub(super) fn refuse_next_hop(&mut self, written: &Spanned<String>, way: &UdpWay) {
        let message = format!("next_hop: its link is in UDP, and leads to {} alone", way.peer);
        self.push(Mistake::error(written.span(), message).help("leave it out"));
    }
}
