//! `[[listener]]`: an address at which a protocol of connections is answered.
//!
//! The key of the address is the protocol's. A listener with [`LINK_KEY`] is a link in its former
//! spelling (`link`).

use contract::Poll;
use reservation::PathGroup;
use shard::Protocol;
use toml::Spanned;

use super::address::{AddressError, HostPort};
use super::file::{Low, NUMBER, TableReader, Written};
use super::link::{ACCESS, INTERFACE};
use super::mistake::{Mistake, Span};
use super::plan::Refused;
use super::poll::{POLL, POLL_KEY};
use super::resolve::Resolver;
use super::server::Server;
use super::thing::{Change, Configured, Thing};
use crate::protocols::{
    self, LINK_KEY, LISTENER_EXAMPLE, LISTENER_KEYS, LowPortal, PORTAL_PROTOCOL, PortalConfig,
    Proof, STREAMS, Stream, stream_key,
};

/// `[[listener]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowListener {
    pub(crate) span: Span,
    pub(crate) address: Option<(Protocol, Spanned<String>)>,
    /// Of another protocol, and one too many.
    pub(crate) second: Option<(Protocol, Spanned<String>)>,
    pub(crate) poll: Low<String>,
    pub(crate) poll_us: Low<i64>,
    pub(crate) max_connections: Low<i64>,
    pub(crate) group: Low<i64>,
    /// Of one protocol alone.
    pub(crate) portal: LowPortal,
    /// Of a link, as are its `access` and VLAN.
    pub(crate) interface: Low<String>,
    pub(crate) access: Low<String>,
    pub(crate) vlan: Low<i64>,
}

impl Written for LowListener {
    const TITLE: &'static str = "[[listener]]";
    const KEYS: &'static [&'static str] = LISTENER_KEYS;

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        let mut take = |Stream { key, protocol, tcp_port }| {
            let expected = format!("an address in quotes, such as \"127.0.0.1:{tcp_port}\"");
            Some((protocol, table.take(key, &expected)?))
        };
        let all: Vec<_> = STREAMS.into_iter().filter_map(&mut take).collect();
        let mut addresses = all.into_iter();
        Self {
            span: table.span.clone(),
            address: addresses.next(),
            second: addresses.next(),
            poll: table.take(POLL_KEY, POLL),
            poll_us: table.take("poll_us", "a whole number of microseconds"),
            max_connections: table.take("max_connections", NUMBER),
            group: table.take("group", NUMBER),
            portal: LowPortal::read(table),
            interface: table.take(LINK_KEY, INTERFACE),
            access: table.take("link", ACCESS),
            vlan: table.take("vlan", NUMBER),
        }
    }
}

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerConfig {
    pub(crate) protocol: Protocol,
    /// Where it is answered.
    pub(crate) address: HostPort,
    /// How long a shard looks for more from its connections before it sleeps.
    pub(crate) poll: Poll,
    /// Connections of this listener; at most the server's.
    pub(crate) connections_max: u32,
    /// The group of listeners of which it is: what hosts take for one path.
    pub(crate) group: PathGroup,
    /// What it says to its protocol alone.
    pub(crate) portal: PortalConfig,
}

impl Configured for ListenerConfig {
    fn title(&self) -> String {
        format!("listener {} {}", stream_key(self.protocol), self.address)
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let (poll, connections) = (self.poll.to_string(), self.connections_max.to_string());
        let group = ("group", self.group.to_string());
        let common = [(POLL_KEY, poll), ("max_connections", connections), group];
        common.into_iter().chain(self.portal.values()).collect()
    }

    fn details(&self) -> String {
        let group = Some(self.group).filter(|group| *group != PathGroup::DEFAULT);
        let group = group.map_or_else(String::new, |group| format!(", group {group}"));
        group + &self.portal.details()
    }

    /// To the hosts of a listener another group is another port of what they use.
    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Thing::Listener(to) = to else { return Ok(Change::Replace) };
        Ok(if self.group == to.group { Change::InPlace } else { Change::Replace })
    }

    fn proof(&self) -> Option<&Proof> {
        self.portal.chap.as_ref()
    }

    fn excludes(&self, other: &Thing) -> bool {
        other.tcp_address().is_some_and(|other| self.address.overlaps(other))
    }

    fn text(&self) -> String {
        let key = stream_key(self.protocol);
        let Self { address, poll, connections_max, group, .. } = self;
        let portal = self.portal.text();
        format!(
            "[[listener]]\n{key} = \"{address}\"\n{POLL_KEY} = \"{poll}\"\nmax_connections = {connections_max}\ngroup = {group}\n{portal}"
        )
    }
}

impl Resolver<'_> {
    /// `server` has what a listener does not say.
    pub(super) fn listeners(
        &mut self,
        low: &[LowListener],
        server: &Server,
    ) -> Vec<ListenerConfig> {
        let limit = server.connections_max;
        let mut listeners: Vec<(ListenerConfig, Span)> = Vec::new();
        for one in low {
            if self.is_link(one) {
                continue;
            }
            let poll = self.poll_or_us(&one.poll, &one.poll_us).unwrap_or(server.poll);
            let range = 1..=u64::from(limit);
            let connections_max =
                self.number(&one.max_connections, "max_connections", range).unwrap_or(limit);
            let Some((protocol, written)) = &one.address else {
                let mut keys = STREAMS.iter().map(|stream| stream.key).chain([LINK_KEY]);
                if !keys.any(|key| self.is_reported(&one.span, "[[listener]]", key)) {
                    self.missing(&one.span, "[[listener]]", STREAMS[0].key, LISTENER_EXAMPLE);
                }
                continue;
            };
            let address: HostPort = match written.get_ref().parse() {
                Ok(address) => address,
                Err(AddressError { message, offset }) => {
                    let span = self.within(written, offset..written.get_ref().len());
                    self.error(span, message);
                    continue;
                }
            };
            if let Some((other, first)) =
                listeners.iter().find(|(other, _)| other.address.overlaps(&address))
            {
                let message = if other.address == address {
                    format!("two listeners on {address}")
                } else {
                    format!(
                        "listeners {} and {address} overlap: both answer on TCP port {}",
                        other.address, address.tcp_port
                    )
                };
                self.push(Mistake::error(written.span(), message).first(first));
            }
            let (protocol, portal) = (*protocol, protocols::resolve_portal(self, &one.portal));
            let group = self.number(&one.group, "group", 1..=u64::from(PathGroup::MAX));
            let group = group.and_then(|group| PathGroup::new(group as u16)).unwrap_or_default();
            let listener =
                ListenerConfig { protocol, address, poll, connections_max, group, portal };
            self.place(listener.title(), "", written.span());
            for (key, span) in
                one.portal.keys().into_iter().filter_map(|(key, at)| Some((key, at?)))
            {
                self.place(listener.title(), key, span);
            }
            listeners.push((listener, written.span()));
        }
        listeners.into_iter().map(|(listener, _)| listener).collect()
    }

    /// Whether it is a link in its former spelling; keys of the other kind are mistakes.
    fn is_link(&mut self, low: &LowListener) -> bool {
        fn at<T>(low: &Low<T>) -> Option<Span> {
            low.as_ref().map(Spanned::span)
        }
        let streams = low.address.iter().chain(&low.second);
        let streams = streams.map(|(protocol, written)| (stream_key(*protocol), written.span()));
        let link = at(&low.interface).map(|span| (LINK_KEY, span));
        if let [(first, other), .., (last, span)] = &streams.chain(link).collect::<Vec<_>>()[..] {
            let message = format!("a listener has either {first} or {last}");
            let mistake = Mistake::error(span.clone(), message);
            let help = "write a [[listener]] for each";
            self.push(mistake.help(help).also(other, "and this"));
        }
        let (others, for_whom, seen, help) = match (&low.interface, &low.address) {
            (Some(_), _) => (
                vec![
                    ("poll_us", at(&low.poll_us)),
                    ("max_connections", at(&low.max_connections)),
                    ("group", at(&low.group)),
                ],
                "listeners of connections",
                LINK_KEY,
                "frames have no connections; for how they are looked for write poll",
            ),
            (None, Some((protocol, _))) => (
                vec![("link", at(&low.access)), ("vlan", at(&low.vlan))],
                "links",
                stream_key(*protocol),
                "write a [[link]] for frames",
            ),
            (None, None) => return false,
        };
        let portal = low.address.as_ref().is_none_or(|(protocol, _)| *protocol != PORTAL_PROTOCOL);
        let portal = low.portal.keys().into_iter().filter(|_| portal);
        let for_portals = format!("listeners of {}", stream_key(PORTAL_PROTOCOL));
        let all = others.into_iter().map(|(key, span)| (key, span, for_whom, Some(help)));
        let all = all.chain(portal.map(|(key, span)| (key, span, &*for_portals, None)));
        for (key, span, for_whom, help) in all {
            let Some(span) = span else { continue };
            let message = format!("{key} is for {for_whom}, and this is a listener of {seen}");
            self.push(Mistake::error(span, message).meant(help.map(str::to_owned)));
        }
        low.interface.is_some()
    }
}
