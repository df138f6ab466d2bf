//! Listeners: names to addresses, sockets to numbers, and a change of behaviour that no connection notices.

use std::net::{Ipv4Addr, SocketAddr};

use reactor::ListenOptions;
use shard::Order;

use super::error::RunError;
use super::retry::retry_in_use;
use super::{OpenListener, Running, open};
use crate::config::address::HostPort;
use crate::config::listener::ListenerConfig;
use crate::config::thing::Configured;

/// What the first address of a host that can be had gives, and why none could.
pub(crate) fn first_of<T>(
    address: &HostPort,
    mut take: impl FnMut(SocketAddr) -> std::io::Result<T>,
) -> Result<T, RunError> {
    let mut had = Err(RunError::new(""));
    for one in open::resolve(address).map_err(|error| error.within("listener"))? {
        had = take(one).map_err(|error| cannot_listen(address, one, &error));
        if had.is_ok() {
            break;
        }
    }
    had
}

fn cannot_listen(address: &HostPort, one: SocketAddr, error: &std::io::Error) -> RunError {
    RunError::new(format!("listener {address}: cannot listen at {one}: {error}")).help(
        "`ss -ltnp` shows who listens where, `ip -br address` which addresses this machine has; ports below 1024 are root's; \
         port 0 lets the system choose",
    )
}

impl Running {
    /// Listens at the first address of the host that can be bound.
    pub(super) fn add_listener(&mut self, config: &ListenerConfig) -> Result<(), RunError> {
        let options = options(config);
        let mut open =
            OpenListener { config: config.clone(), addresses: Vec::new(), ids: Vec::new() };
        let (protocol, what) = (config.protocol, format!("add {}", config.title()));
        let listen = |open: &mut OpenListener, address: SocketAddr| {
            let listener = self.numbers.listener();
            open.ids.push(listener);
            self.order(&what, || Order::AddListener { listener, protocol })
                .map_err(|error| std::io::Error::other(error.line()))?;
            let bound = retry_in_use(
                || self.shards.handle().listen(address, listener, options),
                |error| error.kind() == std::io::ErrorKind::AddrInUse,
            )?;
            open.addresses.push(bound);
            Ok::<_, std::io::Error>(bound)
        };
        let address = &config.address;
        let first = first_of(address, |one| listen(&mut open, one));
        // A socket of IPv6 takes no IPv4 of its own accord here, and `[::]` means every address.
        let listening = first.and_then(|bound| match bound {
            SocketAddr::V6(six) if six.ip().is_unspecified() => {
                let four = (Ipv4Addr::UNSPECIFIED, six.port()).into();
                let bound = listen(&mut open, four);
                bound.map(drop).map_err(|error| cannot_listen(address, four, &error))
            }
            _ => Ok(()),
        });
        listening.inspect_err(|_| drop(self.close_listener(&open)))?;
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

    fn close_listener(&self, listener: &OpenListener) -> Result<(), RunError> {
        listener.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        let what = format!("remove {}", listener.config.title());
        listener.ids.iter().try_for_each(|id| self.order(&what, || Order::RemoveListener(*id)))
    }

    /// Gives a listener other values. Its sockets stay, and so do its connections.
    pub(super) fn change_listener(&mut self, to: &ListenerConfig) -> Result<(), RunError> {
        let Some(listener) = self.listeners.get_mut(&to.title()) else {
            return self.add_listener(to);
        };
        listener.config.clone_from(to);
        let options = options(to);
        listener.ids.iter().for_each(|id| self.shards.handle().change_listener(*id, options));
        Ok(())
    }
}

fn options(config: &ListenerConfig) -> ListenOptions {
    ListenOptions { poll_us: config.poll_us, max_connections: config.connections_max }
}
