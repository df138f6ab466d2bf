//! `[[link]]`: where frames come and go. Exports of protocols that live on frames stand on it.
//!
//! A link is an Ethernet interface, or a VLAN of one; its key says so. One in UDP is a port of a router
//! and nothing else: here it has its name, and all else is the router's (`protocols/mpls/udp`). A link
//! that nobody wrote is made with the defaults by the export that names its interface. A `[[listener]]` with an interface is the former spelling of one. Not here:
//! whether an interface is there.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use contract::Poll;
use toml::Spanned;

use super::file::{Low, NAME, NUMBER, TableReader, Written};
use super::listener::LowListener;
use super::mistake::{Mistake, Span};
use super::plan::Refused;
use super::poll::{POLL, POLL_KEY};
use super::resolve::{Names, Resolver};
use super::text::quoted;
use super::thing::{Change, Configured, Thing};
use super::uri::{VLANS, check_interface, check_name};
use crate::protocols::{LowUdp, MPLS, RATE, pseudowire_title};

pub(crate) const INTERFACE: &str = "the name of an interface in quotes, such as \"eth1\"";
pub(super) const ACCESS: &str = "\"packet\" or \"xdp\"";

/// `[[link]]` as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct LowLink {
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) ethernet: Low<String>,
    pub(crate) udp: Option<LowUdp>,
    pub(crate) vlan: Low<i64>,
    pub(crate) access: Low<String>,
    pub(crate) poll: Low<String>,
    pub(crate) mpls: Low<bool>,
    pub(crate) router: Low<String>,
    pub(crate) explicit_null: Low<bool>,
    pub(crate) rate: Low<String>,
}

impl Written for LowLink {
    const TITLE: &'static str = "[[link]]";
    const KEYS: &'static [&'static str] = &[
        "name",
        "ethernet",
        "udp",
        "vlan",
        "access",
        "poll",
        "mpls",
        "router",
        "explicit_null",
        "rate",
    ];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            ethernet: table.take("ethernet", INTERFACE),
            udp: table.table("udp"),
            vlan: table.take("vlan", NUMBER),
            access: table.take("access", ACCESS),
            poll: table.take("poll", POLL),
            mpls: table.take("mpls", MPLS),
            router: table.take("router", "the name of a router in quotes"),
            explicit_null: table.take("explicit_null", MPLS),
            rate: table.take("rate", RATE),
        }
    }
}

impl LowLink {
    /// Whether the link that was made of it is the one at this place.
    pub(crate) fn is_at(&self, at: &Span) -> bool {
        let written = self.name.as_ref().or(self.ethernet.as_ref());
        written.is_some_and(|written| written.span() == *at)
    }
}

/// `[[link]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkConfig {
    /// Unique among links; that of its interface unless it was given another.
    pub(crate) name: String,
    /// Unique among links.
    pub(crate) ethernet: Ethernet,
    pub(crate) access: LinkAccess,
    /// Whether AF_XDP is for the frames of a router that has the link as a port. Over packet sockets
    /// all who stand on a link have their own.
    pub(crate) xdp_is_for_mpls: bool,
    /// How long a shard looks for more frames before it sleeps.
    pub(crate) poll: Poll,
}

/// An interface, or a VLAN of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ethernet {
    /// As `ip link` shows it.
    pub(crate) interface: String,
    /// 1 to 4094; `None` is frames without a tag.
    pub(crate) vlan: Option<u16>,
}

impl Ethernet {
    /// Several interfaces in one VLAN.
    pub(crate) fn each(interfaces: &[String], vlan: Option<u16>) -> impl Iterator<Item = Self> {
        interfaces.iter().map(move |interface| Self { interface: interface.clone(), vlan })
    }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        self.vlan.map_or(Ok(()), |vlan| write!(f, " vlan {vlan}"))
    }
}

/// How frames of a link are received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkAccess {
    /// A packet socket with a ring.
    #[default]
    Packet,
    /// AF_XDP.
    Xdp,
}

impl LinkAccess {
    /// Every spelling, in the order of the documentation.
    pub(super) const NAMES: [(&str, LinkAccess); 2] =
        [("packet", LinkAccess::Packet), ("xdp", LinkAccess::Xdp)];
}

impl fmt::Display for LinkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == LinkAccess::Xdp { "xdp" } else { "packet" })
    }
}

/// How the link of a pseudowire that ends in this process is named: by this and the pseudowire's
/// name. No other can be named so.
pub(crate) const PSEUDOWIRE_PREFIX: &str = "pw:";

impl LinkConfig {
    /// How frames come and go of those who stand on the link beside a router: an interface has AF_XDP
    /// sockets of one kind of frames, so they have packet sockets where the router has those.
    pub(crate) fn access_of_exports(&self) -> LinkAccess {
        if self.xdp_is_for_mpls { LinkAccess::Packet } else { self.access }
    }
}

/// What the link of a pseudowire is called.
pub(crate) fn pseudowire_link(name: &str) -> String {
    format!("{PSEUDOWIRE_PREFIX}{name}")
}

/// What a link is called in steps.
pub(crate) fn link_title(name: &str) -> String {
    match name.strip_prefix(PSEUDOWIRE_PREFIX) {
        Some(pseudowire) => pseudowire_title(pseudowire),
        None => format!("link {name}"),
    }
}

impl Configured for LinkConfig {
    fn title(&self) -> String {
        link_title(&self.name)
    }

    fn details(&self) -> String {
        match self.ethernet.to_string() {
            ethernet if ethernet == self.name => format!(": {}", self.access),
            ethernet => format!(": {ethernet}, {}", self.access),
        }
    }

    fn excludes(&self, other: &Thing) -> bool {
        match other {
            Thing::Link(other) => self.name == other.name || self.ethernet == other.ethernet,
            Thing::Routed(other) => {
                other.takes_all_of(&self.ethernet.interface) || other.is_link(&self.name)
            }
            _ => false,
        }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![(POLL_KEY, self.poll.to_string())]
    }

    /// One that is received in another way is another link.
    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Thing::Link(to) = to else { return Ok(Change::Replace) };
        let is_same = Self { poll: to.poll, ..self.clone() } == *to;
        Ok(if is_same { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let mut text = String::from("[[link]]\n");
        // The name that it has by itself is none that could be given.
        if self.name != self.ethernet.to_string() {
            let _ = writeln!(text, "name = {}", quoted(&self.name));
        }
        let _ = writeln!(text, "ethernet = {}", quoted(&self.ethernet.interface));
        if let Some(vlan) = self.ethernet.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
        }
        let _ = writeln!(text, "access = \"{}\"\n{POLL_KEY} = \"{}\"", self.access, self.poll);
        text
    }
}

/// The links of a configuration as far as they are known, each with where it was written.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) list: Vec<(LinkConfig, Span)>,
    /// Those that are ports of routers, by name.
    pub(crate) carriers: BTreeSet<String>,
    /// Those in UDP, which are in no list: their routers have them.
    pub(crate) in_udp: Names,
    /// The links of pseudowires that end in this process.
    pub(crate) pseudowires: Names,
    /// What those would be that have a circuit.
    pub(crate) wired: Names,
    /// Of links that nobody wrote.
    pub(crate) poll: Poll,
}

impl Links {
    pub(crate) fn named(&self, name: &str) -> Option<&LinkConfig> {
        self.iter().find(|link| link.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LinkConfig> {
        self.list.iter().map(|(link, _)| link)
    }

    /// Whether exports may be on a link of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some() || self.pseudowires.has(name)
    }

    /// Of those that may be ports of routers, for messages.
    pub(crate) fn names_for_routers(&self) -> Names {
        let mut names = self.names();
        self.in_udp.list.iter().for_each(|(name, span)| names.push(name, span.clone()));
        names
    }

    fn names(&self) -> Names {
        let mut names = Names::default();
        self.list.iter().for_each(|(link, span)| names.push(&link.name, span.clone()));
        names
    }

    /// Of those that exports may be on, for messages.
    pub(crate) fn names_for_exports(&self) -> Names {
        let mut names = self.names();
        self.pseudowires.list.iter().for_each(|(name, span)| names.push(name, span.clone()));
        names
    }
}

impl Resolver<'_> {
    /// `poll` is the server's.
    pub(super) fn links(
        &mut self,
        low: &[LowLink],
        listeners: &[LowListener],
        poll: Poll,
    ) -> Links {
        let mut links = Links { poll, ..Links::default() };
        for one in low {
            if let Some(udp) = &one.udp {
                self.link_in_udp(one, &udp.span, &mut links);
                continue;
            }
            // A wrong value of the other key was reported.
            if one.ethernet.is_none() && !self.is_reported(&one.span, "[[link]]", "udp") {
                self.missing(&one.span, "[[link]]", "ethernet", "ethernet = \"eth1\"");
            }
            self.link(one, ("link", "access"), &mut links);
        }
        for one in listeners.iter().filter(|one| one.interface.is_some()) {
            let low = LowLink {
                span: one.span.clone(),
                name: None,
                ethernet: one.interface.clone(),
                vlan: one.vlan.clone(),
                access: one.access.clone(),
                poll: one.poll.clone(),
                ..LowLink::default()
            };
            self.link(&low, ("listener", "link"), &mut links);
        }
        links
    }

    /// `what` it is called where it was written, and its key for [`LinkAccess`].
    fn link(&mut self, low: &LowLink, (what, key): (&str, &str), links: &mut Links) {
        let access = self.word(&low.access, key, &LinkAccess::NAMES);
        let poll = self.poll(&low.poll).unwrap_or(links.poll);
        let vlan = self.vlan(&low.vlan);
        let Some(written) = &low.ethernet else { return };
        let Some(interface) = self.interface(written) else { return };
        let ethernet = Ethernet { interface, vlan };
        if let Some((_, first)) = links.list.iter().find(|(link, _)| link.ethernet == ethernet) {
            let mistake = Mistake::error(written.span(), format!("two {what}s on {ethernet}"));
            return self.push(mistake.first(first));
        }
        let (name, at) = match &low.name {
            Some(name) => (name.get_ref().clone(), name.span()),
            None => (ethernet.to_string(), written.span()),
        };
        if let Some(Err(expected)) = low.name.as_ref().map(|name| check_name(name.get_ref())) {
            self.error(at.clone(), format!("expected {expected}, seen {name:?}"));
        }
        let is_port = low.mpls.as_ref().is_some_and(|yes| *yes.get_ref());
        let xdp_is_for_mpls = is_port && access == LinkAccess::Xdp;
        self.add_link(LinkConfig { name, ethernet, access, xdp_is_for_mpls, poll }, at, links);
    }

    /// Notes the name of a link in UDP, and refuses what only Ethernet has.
    fn link_in_udp(&mut self, low: &LowLink, udp: &Span, links: &mut Links) {
        let spans = [
            ("ethernet", low.ethernet.as_ref().map(Spanned::span)),
            ("vlan", low.vlan.as_ref().map(Spanned::span)),
            ("access", low.access.as_ref().map(Spanned::span)),
        ];
        for (key, span) in spans {
            let Some(span) = span else { continue };
            let message = format!("a [[link]] has either udp or {key}");
            let help = "udp goes through IP as the kernel routes it, by whichever interface";
            self.push(Mistake::error(span, message).help(help).also(udp, "and this"));
        }
        let Some(written) = &low.name else {
            let example = "name = \"wan\", by which others name it";
            return self.missing(&low.span, "[[link]]", "name", example);
        };
        let (name, at) = (written.get_ref(), written.span());
        if let Err(expected) = check_name(name) {
            self.error(at, format!("expected {expected}, seen {name:?}"));
        } else if !self.is_taken(name, "this one", &at, links) {
            links.in_udp.push(name, at);
        }
    }

    /// Refuses a second link of a name.
    fn is_taken(&mut self, name: &str, which: &str, at: &Span, links: &Links) -> bool {
        let mut list = links.list.iter();
        let (other, first) =
            match (list.find(|(link, _)| link.name == name), links.in_udp.first(name)) {
                (Some((other, first)), _) => (format!("on {}", other.ethernet), first),
                (None, Some(first)) => ("in UDP".to_owned(), first),
                (None, None) => return false,
            };
        let message = format!("there is a link {name:?} already, {other}");
        let help = format!("give {which} another name");
        self.push(Mistake::error(at.clone(), message).first(first).help(help));
        true
    }

    fn add_link(&mut self, link: LinkConfig, at: Span, links: &mut Links) {
        if !self.is_taken(&link.name, &format!("the one on {}", link.ethernet), &at, links) {
            self.place(link.title(), "", at.clone());
            links.list.push((link, at));
        }
    }

    /// The name of the link on an interface, which is added with the defaults where nobody wrote
    /// one.
    pub(crate) fn link_on(&mut self, ethernet: Ethernet, at: Span, links: &mut Links) -> String {
        if let Some(link) = links.iter().find(|link| link.ethernet == ethernet) {
            return link.name.clone();
        }
        let name = ethernet.to_string();
        let (access, poll) = (LinkAccess::default(), links.poll);
        let link =
            LinkConfig { name: name.clone(), ethernet, access, xdp_is_for_mpls: false, poll };
        self.add_link(link, at, links);
        name
    }

    pub(crate) fn vlan(&mut self, low: &Low<i64>) -> Option<u16> {
        self.number(low, "vlan", VLANS).map(|vlan| vlan as u16)
    }

    /// The name of an interface, as the kernel takes it.
    pub(crate) fn interface(&mut self, written: &Spanned<String>) -> Option<String> {
        let seen = written.get_ref();
        match check_interface(seen) {
            Ok(()) => Some(seen.clone()),
            Err(expected) => {
                self.error(written.span(), format!("expected {expected}, seen {seen:?}"));
                None
            }
        }
    }
}
