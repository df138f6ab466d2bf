//! `[[listener]]`: an address at which a protocol of connections is answered.
//!
//! The key of the address is the protocol's. A listener with `aoe` is a link in its former spelling (`link`).

use std::fmt::Write as _;

use shard::Protocol;
use toml::Spanned;

use super::address::{AddressError, HostPort};
use super::file::{Low, NUMBER, Table, Written};
use super::mistake::{Mistake, Span};
use super::resolve::Resolver;
use super::thing::{Configured, Thing};
use crate::protocols::{LISTENER_KEYS, STREAMS, stream_key};

/// The longest busy poll of a listener; beyond it the processor is simply not shared.
const POLL_US_MAX: u64 = 10_000;

/// `[[listener]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowListener {
    pub(crate) span: Span,
    pub(crate) address: Option<(Protocol, Spanned<String>)>,
    pub(crate) poll_us: Low<i64>,
    pub(crate) max_connections: Low<i64>,
    pub(crate) aoe: Low<String>,
    pub(crate) link: Low<String>,
    pub(crate) vlan: Low<i64>,
}

impl Written for LowListener {
    const TITLE: &'static str = "[[listener]]";
    const KEYS: &'static [&'static str] = LISTENER_KEYS;

    fn read(table: &mut Table<'_, '_>) -> Self {
        let mut take = |(key, protocol)| {
            let expected = "an address in quotes, such as \"127.0.0.1:4420\"";
            Some((protocol, table.take(key, expected)?))
        };
        let address = STREAMS.into_iter().find_map(&mut take);
        Self {
            span: table.span.clone(),
            address,
            poll_us: table.take("poll_us", "a whole number of microseconds"),
            max_connections: table.take("max_connections", NUMBER),
            aoe: table.take("aoe", "the name of an interface in quotes, such as \"eth1\""),
            link: table.take("link", "\"packet\" or \"xdp\""),
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
    /// How long a shard spins on a quiet connection before it sleeps; 0 never spins.
    pub(crate) poll_us: u32,
    /// Connections of this listener; at most the server's.
    pub(crate) connections_max: u32,
}

impl Configured for ListenerConfig {
    fn title(&self) -> String {
        format!("listener {} {}", stream_key(self.protocol), self.address)
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let (poll_us, connections) = (self.poll_us.to_string(), self.connections_max.to_string());
        vec![("poll_us", poll_us), ("max_connections", connections)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        matches!(other, Thing::Listener(other) if self.address.overlaps(&other.address))
    }

    fn text(&self) -> String {
        let mut text =
            format!("[[listener]]\n{} = \"{}\"\n", stream_key(self.protocol), self.address);
        for (key, value) in self.values() {
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }
}

impl Resolver<'_> {
    pub(super) fn listeners(&mut self, low: &[LowListener], limit: u32) -> Vec<ListenerConfig> {
        let mut listeners: Vec<(ListenerConfig, Span)> = Vec::new();
        for one in low {
            if self.is_link(one) {
                continue;
            }
            let poll_us = self.number(&one.poll_us, "poll_us", 0..=POLL_US_MAX).unwrap_or(0);
            let range = 1..=u64::from(limit);
            let connections_max =
                self.number(&one.max_connections, "max_connections", range).unwrap_or(limit);
            let Some((protocol, written)) = &one.address else {
                if !self.is_reported(&one.span, "[[listener]]", "aoe") {
                    let example = "nvme = \"127.0.0.1:4420\", or aoe = \"eth1\"";
                    self.missing(&one.span, "[[listener]]", "nvme", example);
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
            let protocol = *protocol;
            let listener = ListenerConfig { protocol, address, poll_us, connections_max };
            self.place(listener.title(), "", written.span());
            listeners.push((listener, written.span()));
        }
        listeners.into_iter().map(|(listener, _)| listener).collect()
    }

    /// Whether it is a link in its former spelling; keys of the other kind are mistakes.
    fn is_link(&mut self, low: &LowListener) -> bool {
        fn at<T>(low: &Low<T>) -> Option<Span> {
            low.as_ref().map(Spanned::span)
        }
        match (&low.aoe, &low.address) {
            (Some(aoe), address) => {
                if let Some((protocol, written)) = address {
                    let message = format!("a listener has either {} or aoe", stream_key(*protocol));
                    let help = "write a [[listener]] for each";
                    let mistake = Mistake::error(aoe.span(), message).help(help);
                    self.push(mistake.also(&written.span(), "and this"));
                }
                let keys =
                    [("poll_us", at(&low.poll_us)), ("max_connections", at(&low.max_connections))];
                for (key, span) in keys.into_iter().filter_map(|(key, span)| Some((key, span?))) {
                    let message =
                        format!("{key} is for listeners of NVMe/TCP, and this one is aoe");
                    let help = "frames have no connections, and are received by interrupt";
                    self.push(Mistake::error(span, message).help(help));
                }
                true
            }
            (None, Some((protocol, _))) => {
                let keys = [("link", at(&low.link)), ("vlan", at(&low.vlan))];
                for (key, span) in keys.into_iter().filter_map(|(key, span)| Some((key, span?))) {
                    let message = format!(
                        "{key} is for listeners of AoE, and this one is {}",
                        stream_key(*protocol)
                    );
                    self.push(Mistake::error(span, message).help("aoe = \"eth1\""));
                }
                false
            }
            (None, None) => false,
        }
    }
}
