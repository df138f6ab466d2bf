//! Listeners: whether each address can be had. It is bound for a moment and never listened at, so no host is answered.

use std::io;
use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::Serialize;
use serde::ser::SerializeMap;

use super::{Examined, Finding};
use crate::config::listener::ListenerConfig;
use crate::protocols::stream_key;
use crate::run::RunError;
use crate::run::listen::first_of;

/// An address, as it would be found.
#[derive(Debug)]
pub(crate) struct ListenerRow {
    /// The key of its protocol.
    pub(crate) protocol: &'static str,
    /// As configured.
    pub(crate) address: String,
    pub(crate) found: Finding,
}

impl ListenerRow {
    pub(super) fn new(config: &ListenerConfig, found: Finding) -> Self {
        Self { protocol: stream_key(config.protocol), address: config.address.to_string(), found }
    }
}

/// The address is under the key of its protocol, as in the configuration.
impl Serialize for ListenerRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(self.protocol, &self.address)?;
        map.serialize_entry("finding", &self.found.finding)?;
        map.serialize_entry("refused", &self.found.refused)?;
        map.end()
    }
}

impl Examined<'_> {
    pub(super) fn listener(&self, listener: &ListenerConfig) -> Result<String, RunError> {
        let address = &listener.address;
        let is_served =
            |other: &ListenerConfig| other.address == *address || other.address.overlaps(address);
        if self.served.is_some_and(|served| served.listeners.iter().any(is_served)) {
            return Ok("the server has it now".to_owned());
        }
        first_of(address, bind)?;
        Ok(match address.tcp_port {
            0 => "free; the system would choose a port".to_owned(),
            _ => "free".to_owned(),
        })
    }
}

/// Binds an address as a listener does, and lets go of it.
fn bind(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // What lingers of connections that are over is no reason to refuse.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(rustix::net::bind(&socket, &address)?)
}
