//! A core port: a `[[link]]` with `mpls = true`, by which a router hears its neighbours, with Ethernet
//! or in UDP.
//!
//! It is a thing of its own, so that a link whose exports are in use becomes a port, and is none any
//! more, without being closed. Its lines stand in the link's table; one in UDP is all of its link.

use std::collections::BTreeMap;

use mpls::Rate;
use toml::Spanned;

use super::router::router_title;
use super::udp::UdpWay;
use super::words::YES;
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs};
use crate::config::link::{Links, LowLink, link_title};
use crate::config::mistake::Mistake;
use crate::config::plan::Refused;
use crate::config::poll::POLL_KEY;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

pub(crate) const MPLS: &str = YES;
pub(crate) const RATE: &str = "bits a second in quotes, such as \"100mbit\"";

/// The units of rates, in bits a second.
const UNITS: [(&str, u64); 4] =
    [("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];

/// A rate as people and `tc` write it.
fn parse_rate(text: &str) -> Option<Rate> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    Rate::new(number.parse::<u64>().ok()?.checked_mul(*factor)?)
}

/// `mpls` of a `[[link]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    /// The link, which is there, or is this.
    pub(crate) link: String,
    pub(crate) router: String,
    /// Whether tunnels end here whose last label is explicit null.
    pub(crate) explicit_null: bool,
    /// What it may send; `None`: whatever its interface takes.
    pub(crate) rate: Option<Rate>,
    /// Where its packets go that have no Ethernet; `None`: it is that of the link.
    pub(crate) udp: Option<UdpWay>,
}

pub(super) fn port_title(link: &str) -> String {
    format!("port {link}")
}

impl Configured for PortConfig {
    fn title(&self) -> String {
        port_title(&self.link)
    }

    fn details(&self) -> String {
        let null = if self.explicit_null { ", explicit null" } else { "" };
        let udp = self.udp.map(|way| format!(", {way}")).unwrap_or_default();
        let rate = self.rate.map(|rate| format!(", {rate}")).unwrap_or_default();
        format!(": of router {}{udp}{null}{rate}", self.router)
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let null = ("explicit_null", self.explicit_null.to_string());
        let poll = self.udp.map(|way| (POLL_KEY, way.poll.to_string()));
        let rate = self.rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string());
        [null, ("rate", rate)].into_iter().chain(poll).collect()
    }

    fn stands_on(&self) -> Vec<String> {
        let link = self.udp.is_none().then(|| link_title(&self.link));
        [router_title(&self.router)].into_iter().chain(link).collect()
    }

    fn excludes(&self, other: &Thing) -> bool {
        match (routed(other), other) {
            (Some(Routed::Port(other)), _) => {
                let meet = self.udp.zip(other.udp).is_some_and(|(one, other)| one.meets(&other));
                other.link == self.link || meet
            }
            (_, Thing::Link(other)) => self.udp.is_some() && other.name == self.link,
            _ => false,
        }
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Some(Routed::Port(to)) = routed(to) else { return Ok(Change::Replace) };
        let is_there = match (self.udp, to.udp) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(&other),
            _ => false,
        };
        let stays = is_there && to.router == self.router;
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    /// Lines of the link's table, or all of it.
    fn text(&self) -> String {
        let (router, explicit_null) = (quoted(&self.router), self.explicit_null);
        let udp = self.udp.map(|way| {
            let (name, udp, poll) = (quoted(&self.link), way.text(), way.poll);
            format!("[[link]]\nname = {name}\nudp = {udp}\n{POLL_KEY} = \"{poll}\"\n")
        });
        let rate = self.rate.map(|rate| format!("rate = \"{rate}\"\n")).unwrap_or_default();
        udp.unwrap_or_default()
            + &format!("mpls = true\nrouter = {router}\nexplicit_null = {explicit_null}\n{rate}")
    }
}

/// The ports of a configuration by the names of their links, and the names of all links that were
/// meant as one.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) list: Vec<PortConfig>,
    pub(super) by_link: BTreeMap<String, PortConfig>,
    names: Names,
}

impl Ports {
    /// One that is as it should be.
    pub(super) fn add(&mut self, port: PortConfig) {
        self.by_link.insert(port.link.clone(), port.clone());
        self.list.push(port);
    }
}

impl Resolver<'_> {
    /// The ports; `links` are told which of them carry MPLS.
    pub(super) fn ports(&mut self, low: &LowArgs, links: &mut Links, routers: &Names) -> Ports {
        let mut ports = Ports::default();
        for one in &low.links {
            if let Some(udp) = &one.udp {
                // A second one of a name was refused.
                let is_it = |name: &&Spanned<String>| {
                    links.in_udp.first(name.get_ref()) == Some(&name.span())
                };
                if let Some(name) = one.name.as_ref().filter(is_it) {
                    ports.names.push(name.get_ref(), one.span.clone());
                    self.udp_port((one, udp), &mut ports, (links, routers));
                }
                continue;
            }
            let is_port = one.mpls.as_ref().is_some_and(|yes| *yes.get_ref());
            // What is wrong was reported, and is none of a link that is no port.
            let is_meant = is_port || self.is_reported(&one.span, "[[link]]", "mpls");
            if !is_meant {
                self.refuse_keys_of_ports(one);
                continue;
            }
            let link = links.list.iter().find(|(_, span)| one.is_at(span)).map(|(link, _)| link);
            let Some(link) = link.cloned() else { continue };
            links.carriers.insert(link.name.clone());
            ports.names.push(&link.name, one.span.clone());
            if !is_port {
                continue;
            }
            let router = self.router_of(&one.router, (&one.span, "[[link]]"), routers);
            let Some(router) = router else { continue };
            let explicit_null = one.explicit_null.as_ref().is_some_and(|yes| *yes.get_ref());
            let rate = self.rate(&one.rate);
            let port = PortConfig { link: link.name, router, explicit_null, rate, udp: None };
            let at = one.mpls.as_ref().map_or(one.span.clone(), Spanned::span);
            self.place(port.title(), "", at);
            ports.add(port);
        }
        // In the order in which they are written out.
        ports.list.sort_by_key(|port| port.udp.is_some());
        ports
    }

    /// What a port may send.
    pub(super) fn rate(&mut self, written: &Low<String>) -> Option<Rate> {
        let written = written.as_ref()?;
        let seen = written.get_ref();
        let rate = parse_rate(seen);
        if rate.is_none() {
            let message = format!("rate: expected {RATE}, from 64kbit to 100gbit; seen {seen:?}");
            self.error(written.span(), message);
        }
        rate
    }

    /// What says something of a port, and this link is none.
    fn refuse_keys_of_ports(&mut self, low: &LowLink) {
        let router = low.router.as_ref().map(|written| ("router", written.span()));
        let null = low.explicit_null.as_ref().map(|written| ("explicit_null", written.span()));
        let rate = low.rate.as_ref().map(|written| ("rate", written.span()));
        for (key, span) in router.into_iter().chain(null).chain(rate) {
            let message = format!("{key} is for links that carry MPLS, and this one does not");
            self.push(Mistake::error(span, message).help("add mpls = true"));
        }
    }

    /// The port that a table names by its link; `None` if it is none, or a wrong one.
    pub(super) fn port<'p>(
        &mut self,
        written: &Spanned<String>,
        ports: &'p Ports,
        links: &Links,
    ) -> Option<&'p PortConfig> {
        let name = written.get_ref();
        if ports.names.has(name) {
            return ports.by_link.get(name);
        }
        if links.named(name).is_none() {
            self.unknown_name(written, "link", &links.names_for_routers());
        } else {
            let message = format!("link {name} carries no MPLS");
            let help = "add mpls = true to its [[link]]";
            self.push(Mistake::error(written.span(), message).help(help));
        }
        None
    }
}
