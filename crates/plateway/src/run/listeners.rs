//! Listeners: names to addresses, sockets to numbers, and a change of behaviour that no connection
//! notices.
//!
//! A look binds each address for a moment and never listens, so no host is answered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use contract::ListenerId;
use reactor::ListenOptions;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use shard::Order;

use super::error::RunError;
use super::look::Inventory;
use super::retry::retry_in_use;
use super::{OpenListener, Running, open};
use crate::config::address::HostPort;
use crate::config::listener::ListenerConfig;
use crate::config::thing::Configured;
use crate::protocols;

/// Looks whether an address can be had: what was found, in a few words.
pub(crate) fn look(address: &HostPort, inventory: &impl Inventory) -> Result<String, RunError> {
    let is_served = |other: &HostPort| other == address || other.overlaps(address);
    let served = inventory.served().map(|served| &served.args);
    let taken = served.into_iter().flat_map(|args| {
        let metrics = args.metrics.iter().map(|one| &one.address);
        args.listeners.iter().map(|one| &one.address).chain(metrics)
    });
    if taken.into_iter().any(is_served) {
        return Ok("the server has it now".to_owned());
    }
    take_each(address, bind)?;
    Ok(match address.tcp_port {
        0 => "free; the system would choose a port".to_owned(),
        _ => "free".to_owned(),
    })
}

/// Binds an address as a listener does, and lets go of it. Returns it with the port that it got.
fn bind(address: SocketAddr) -> io::Result<SocketAddr> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // What lingers of connections that are over is no reason to refuse.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(rustix::net::getsockname(&socket)?.try_into()?)
}

/// Takes the first address of a host that can be had; `take` returns it with its port.
///
/// A socket of IPv6 takes no IPv4 of its own accord here, and `[::]` means every address, so that
/// of IPv4 is taken beside it.
pub(super) fn take_each(
    address: &HostPort,
    mut take: impl FnMut(SocketAddr) -> io::Result<SocketAddr>,
) -> Result<(), RunError> {
    let mut take = |one| take(one).map_err(|error| cannot_listen(address, one, &error));
    let mut had = Err(RunError::new(""));
    for one in open::resolve(address).map_err(|error| error.within("listener"))? {
        had = take(one);
        if had.is_ok() {
            break;
        }
    }
    match had? {
        SocketAddr::V6(six) if six.ip().is_unspecified() => {
            take((Ipv4Addr::UNSPECIFIED, six.port()).into()).map(drop)
        }
        _ => Ok(()),
    }
}

fn cannot_listen(address: &HostPort, one: SocketAddr, error: &io::Error) -> RunError {
    let failed = RunError::new(format!("listener {address}: cannot listen at {one}: {error}"));
    let failed = failed.help(
        "`ss -ltnp` shows who listens where, `ip -br address` which addresses this machine has; ports below 1024 are root's; \
         port 0 lets the system choose",
    );
    if error.kind() == io::ErrorKind::AddrInUse { failed.in_use() } else { failed }
}

impl Running {
    /// Listens at the first address of the host that can be bound.
    pub(super) fn add_listener(&mut self, config: &ListenerConfig) -> Result<(), RunError> {
        retry_in_use(|| look(&config.address, self))?;
        let options = options(config);
        let mut open =
            OpenListener { config: config.clone(), addresses: Vec::new(), ids: Vec::new() };
        let what = format!("add {}", config.title());
        let listen = |address: SocketAddr| {
            let listener = ListenerId(self.numbers.listener.next());
            open.ids.push(listener);
            let show = |bound| self.show_listener(&what, config, listener, bound);
            show(None).map_err(|error| io::Error::other(error.line()))?;
            let bound = self.shards.handle().listen(address, listener, options)?;
            open.addresses.push(bound);
            // Now its port is known.
            show(Some(bound)).map_err(|error| io::Error::other(error.line()))?;
            Ok(bound)
        };
        take_each(&config.address, listen).inspect_err(|_| drop(self.close_listener(&open)))?;
        self.listeners.insert(config.title(), open);
        Ok(())
    }

    /// Closes a listener and its connections.
    pub(super) fn remove_listener(&mut self, config: &ListenerConfig) -> Result<(), RunError> {
        let title = config.title();
        let Some(listener) = self.listeners.shift_remove(&title) else { return Ok(()) };
        // Its sockets are closed then: what is there again is another one.
        self.close_listener(&listener).inspect_err(|_| drop(self.add_listener(config)))
    }

    /// Tells the shards what connections of a listener speak, and what it is to their hosts.
    fn show_listener(
        &self,
        what: &str,
        config: &ListenerConfig,
        listener: ListenerId,
        bound: Option<SocketAddr>,
    ) -> Result<(), RunError> {
        let listening = || protocols::listening(config, bound, &self.secrets);
        self.order(what, || Order::AddListener { listener, listening: listening() })
    }

    /// The same of one that listens, as it is now.
    pub(super) fn renew_listener(&self, config: &ListenerConfig) -> Result<(), RunError> {
        let Some(open) = self.listeners.get(&config.title()) else { return Ok(()) };
        let what = format!("change {}", config.title());
        let mut sockets = open.ids.iter().zip(&open.addresses);
        sockets.try_for_each(|(id, bound)| self.show_listener(&what, config, *id, Some(*bound)))
    }

    fn close_listener(&self, listener: &OpenListener) -> Result<(), RunError> {
        listener.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        let what = format!("remove {}", listener.config.title());
        listener.ids.iter().try_for_each(|id| self.order(&what, || Order::RemoveListener(*id)))
    }

    /// Gives a listener other values. Its sockets stay, and so do its connections.
    pub(super) fn change_listener(&mut self, to: &ListenerConfig) -> Result<(), RunError> {
        let Some(listener) = self.listeners.get(&to.title()) else {
            return self.add_listener(to);
        };
        if listener.config.portal != to.portal {
            self.renew_listener(to).inspect_err(|_| drop(self.renew_listener(&listener.config)))?;
        }
        let listener = self.listeners.get_mut(&to.title()).expect("it was just there");
        listener.config.clone_from(to);
        let options = options(to);
        listener.ids.iter().for_each(|id| self.shards.handle().change_listener(*id, options));
        Ok(())
    }
}

fn options(config: &ListenerConfig) -> ListenOptions {
    ListenOptions { poll: config.poll, max_connections: config.connections_max }
}
