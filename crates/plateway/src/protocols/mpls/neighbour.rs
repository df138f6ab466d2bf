//! `[[neighbour]]`: the next router on a link, which BFD watches there (RFC 5881).
//!
//! Paths know a next hop by its MAC address, or by an IP address where the kernel finds that; BFD's
//! packets go to its IP address. Both are configured, and the neighbour has a session with us. A path and
//! a neighbour are about the same where both are at one MAC address. Errors are pushed as
//! mistakes at what was written.

use core::fmt;
use std::collections::BTreeMap;
use std::net::IpAddr;

use mpls::Via;

use super::port::{Ports, port_title};
use super::router::router_title;
use super::watch::{BfdConfig, LowBfd};
use super::words::{ADDRESS, Hop, LINK, NEXT_HOP, own_device, time};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, TableReader, Written};
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::Resolver;
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

/// `[[neighbour]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowNeighbour {
    pub(crate) span: Span,
    pub(crate) link: Low<String>,
    pub(crate) next_hop: Low<String>,
    pub(crate) address: Low<String>,
    pub(crate) bfd: Option<LowBfd>,
}

impl Written for LowNeighbour {
    const TITLE: &'static str = "[[neighbour]]";
    const KEYS: &'static [&'static str] = &["link", "next_hop", "address", "bfd"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            link: table.take("link", LINK),
            next_hop: table.take("next_hop", NEXT_HOP),
            address: table.take("address", ADDRESS),
            bfd: table.table("bfd"),
        }
    }
}

/// `[[neighbour]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourConfig {
    /// The link on which it is, which is a port.
    pub(crate) link: String,
    /// That of its link.
    pub(crate) router: String,
    /// Its address there, as paths have it, ...
    pub(crate) next_hop: Via,
    /// ... and as BFD has it; by it and its link it is known.
    pub(crate) address: IpAddr,
    pub(crate) bfd: BfdConfig,
}

impl NeighbourConfig {
    /// Whether a path goes to it; `None`: that is known once the kernel has found where it is.
    pub(super) fn is_of(&self, hop: &Hop) -> Option<bool> {
        let Some(via) = hop.next_hop.filter(|_| hop.link == self.link) else { return Some(false) };
        let is_it = via == self.next_hop || via == Via::Ip(self.address);
        let are_alike = via.ip().is_some() == self.next_hop.ip().is_some();
        (is_it || are_alike).then_some(is_it)
    }
}

impl Configured for NeighbourConfig {
    fn title(&self) -> String {
        format!("neighbour {} on {}", self.address, self.link)
    }

    fn details(&self) -> String {
        let BfdConfig { interval, multiplier, .. } = self.bfd;
        format!(": {}, BFD every {} times {multiplier}", self.next_hop, time(interval))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![("next_hop", self.next_hop.to_string()), ("bfd", self.bfd.text())]
    }

    fn stands_on(&self) -> Vec<String> {
        vec![router_title(&self.router), port_title(&self.link)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        let Some(Routed::Neighbour(other)) = routed(other) else { return false };
        self.link == other.link
            && (self.address == other.address || self.next_hop == other.next_hop)
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        // Where it is the same one by another address, its session stays; who it is the kernel says.
        let may_be = |to: Via| to == self.next_hop || to.ip().or(self.next_hop.ip()).is_some();
        let stays = matches!(routed(to), Some(Routed::Neighbour(to))
            if to.router == self.router && may_be(to.next_hop));
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let Self { next_hop, address, .. } = self;
        let (link, bfd) = (quoted(&self.link), self.bfd.text());
        format!(
            "[[neighbour]]\nlink = {link}\nnext_hop = \"{next_hop}\"\naddress = \"{address}\"\nbfd = {bfd}\n"
        )
    }
}

/// What a neighbour has alone on its link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KnownBy {
    Address(IpAddr),
    NextHop(Via),
}

impl fmt::Display for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "address {address}"),
            Self::NextHop(via) => write!(f, "next_hop {via}"),
        }
    }
}

impl Resolver<'_> {
    /// The neighbours.
    pub(super) fn neighbours(
        &mut self,
        low: &LowArgs,
        (ports, links): (&Ports, &Links),
    ) -> Vec<NeighbourConfig> {
        let mut all: Vec<NeighbourConfig> = Vec::new();
        let mut earlier: BTreeMap<(String, KnownBy), usize> = BTreeMap::new();
        for one in &low.neighbours {
            let Some(new) = self.neighbour(one, (ports, links)) else { continue };
            let keys = [
                (new.link.clone(), KnownBy::Address(new.address)),
                (new.link.clone(), KnownBy::NextHop(new.next_hop)),
            ];
            let before = keys.iter().find_map(|key| Some((key.1, *earlier.get(key)?)));
            match before {
                Some((what, at)) => {
                    let other: &NeighbourConfig = &all[at];
                    let message = format!("{what} on {} is that of {}", new.link, other.title());
                    let first = self.place_of(&other.title(), "");
                    self.push(Mistake::error(one.span.clone(), message).first(&first));
                }
                None => {
                    self.place(new.title(), "", one.span.clone());
                    earlier.extend(keys.map(|key| (key, all.len())));
                    all.push(new);
                }
            }
        }
        all
    }

    fn neighbour(
        &mut self,
        low: &LowNeighbour,
        (ports, links): (&Ports, &Links),
    ) -> Option<NeighbourConfig> {
        for (written, key, example) in [
            (low.link.is_some(), "link", "link = \"eth1\""),
            (low.next_hop.is_some(), "next_hop", "next_hop = \"02:00:00:00:00:02\""),
            (
                low.address.is_some(),
                "address",
                "address = \"10.0.1.2\", its IP address on that link",
            ),
        ] {
            if !written {
                self.missing(&low.span, LowNeighbour::TITLE, key, example);
            }
        }
        let port = low.link.as_ref().and_then(|written| self.port(written, ports, links));
        let next_hop = low.next_hop.as_ref();
        let next_hop = next_hop.and_then(|written| self.via(written, &None, links));
        let address = self.address(&low.address, "address");
        let bfd = match &low.bfd {
            Some(bfd) => self.bfd(bfd),
            None => Some(BfdConfig::default()),
        };
        let port = port?;
        if let (Some(_), Some(written)) = (port.udp, &low.link) {
            let message = format!(
                "link {} is in UDP, and BFD watches neighbours on links of Ethernet",
                port.link
            );
            let help = "have pseudowires watched from end to end: bfd = {}";
            self.push(Mistake::error(written.span(), message).help(help));
            return None;
        }
        // The kernel's IP has a device of its own for a VLAN, whose name is not known here.
        let vlan = links.named(&port.link).and_then(|link| link.ethernet.vlan);
        if let (Some(vlan), Some(written)) = (vlan, &low.link) {
            let message = format!(
                "link {} is VLAN {vlan} of an interface, and BFD needs one that has IP addresses",
                port.link
            );
            self.push(Mistake::error(written.span(), message).help(own_device(vlan)));
            return None;
        }
        let (link, router) = (port.link.clone(), port.router.clone());
        Some(NeighbourConfig { link, router, next_hop: next_hop?, address: address?, bfd: bfd? })
    }
}
