//! Listeners: whether each address can be had. It is bound for a moment and never listened at, so no host is answered.

use std::io;
use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::Serialize;

use super::Look;
use crate::config::model::Listener;
use crate::run::listen::LISTEN_HELP;
use crate::run::{RunError, open};

/// An address, as it would be found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListenerRow {
    /// As configured.
    pub(crate) nvme: String,
    /// What would be done with it, in a few words.
    pub(crate) finding: String,
    /// Whether a start would refuse it.
    pub(crate) refused: bool,
}

impl Look<'_> {
    pub(super) fn listeners(&mut self) -> Vec<ListenerRow> {
        let checked = self.checked;
        let mut rows = Vec::new();
        for (index, listener) in checked.args.listeners.iter().enumerate() {
            let nvme = listener.address.to_string();
            rows.push(match self.listener(listener) {
                Ok(finding) => ListenerRow { nvme, finding, refused: false },
                Err(error) => {
                    let finding = format!("refused: {error}");
                    self.mistakes.push(error.at(checked.places.listener(index)));
                    ListenerRow { nvme, finding, refused: true }
                }
            });
        }
        rows
    }

    fn listener(&self, listener: &Listener) -> Result<String, RunError> {
        let address = &listener.address;
        let is_served =
            |other: &Listener| other.address == *address || other.address.overlaps(address);
        if self.served.is_some_and(|served| served.listeners.iter().any(is_served)) {
            return Ok("the server has it now".to_owned());
        }
        let fail = |why: String| RunError::new(format!("listener {address}: {why}"));
        let found = open::resolve(address).map_err(|error| error.within("listener"))?;
        let mut result = Ok(());
        // As a start does: the first one that can be had.
        for address in found {
            result = bind(address).map_err(|error| format!("cannot listen at {address}: {error}"));
            if result.is_ok() {
                break;
            }
        }
        result.map_err(|why| fail(why).help(LISTEN_HELP))?;
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
