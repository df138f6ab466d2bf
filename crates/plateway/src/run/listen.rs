//! Listeners: names to addresses, sockets to numbers, and a change of behaviour that no connection notices.

use reactor::ListenOptions;
use shard::{Order, Protocol};

use super::error::RunError;
use super::patience::insist;
use super::{OpenListener, Running, open};
use crate::config::model::Listener;

impl Running {
    /// Listens at an address of the configuration.
    pub(super) fn add_listener(&mut self, config: &Listener) -> Result<(), RunError> {
        let opened = self.open_listener(config)?;
        self.listeners.insert(config.address.to_string(), opened);
        self.args.listeners.push(config.clone());
        Ok(())
    }

    /// Listens at the first address of the host that can be bound.
    fn open_listener(&self, config: &Listener) -> Result<OpenListener, RunError> {
        let fail = |why: String| {
            RunError::new(format!("listener {}: {why}", config.address)).help(LISTEN_HELP)
        };
        let options = options(config);
        let what = format!("add listener {}", config.address);
        let mut opened =
            OpenListener { config: config.clone(), addresses: Vec::new(), ids: Vec::new() };
        let mut listen = |address: std::net::SocketAddr| {
            let id = self.numbers.listener();
            let protocol = Protocol::NvmeTcp;
            self.order(&what, || Order::AddListener { listener: id, protocol })
                .map_err(|error| error.line())?;
            let bound = insist(
                || self.shards.handle().listen(address, id, options),
                |error| error.kind() == std::io::ErrorKind::AddrInUse,
            )
            .map_err(|error| format!("cannot listen at {address}: {error}"))?;
            opened.addresses.push(bound);
            opened.ids.push(id);
            Ok::<_, String>(bound)
        };
        let mut done = Err(String::new());
        for address in open::resolve(&config.address).map_err(|error| error.within("listener"))? {
            done = listen(address);
            if done.is_ok() {
                break;
            }
        }
        // A socket of IPv6 takes no IPv4 of its own accord here, and `[::]` means every address.
        let done = done.and_then(|bound| match bound {
            std::net::SocketAddr::V6(six) if six.ip().is_unspecified() => {
                let four = std::net::Ipv4Addr::UNSPECIFIED;
                listen((four, six.port()).into()).map(drop)
            }
            _ => Ok(()),
        });
        match done {
            Ok(()) => Ok(opened),
            Err(why) => {
                opened.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
                Err(fail(why))
            }
        }
    }

    /// Closes a listener and its connections.
    pub(super) fn remove_listener(&mut self, config: &Listener) -> Result<(), RunError> {
        let key = config.address.to_string();
        let Some(listener) = self.listeners.remove(&key) else { return Ok(()) };
        self.args.listeners.retain(|other| other.address != config.address);
        listener.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        for id in listener.ids {
            self.order(&format!("remove listener {key}"), || Order::RemoveListener(id))?;
        }
        Ok(())
    }

    /// Gives a listener other values. Its sockets stay, and so do its connections.
    pub(super) fn change_listener(&mut self, to: &Listener) -> Result<(), RunError> {
        let Some(listener) = self.listeners.get_mut(&to.address.to_string()) else {
            return self.add_listener(to);
        };
        listener.config = to.clone();
        let options = options(to);
        listener.ids.iter().for_each(|id| self.shards.handle().change_listener(*id, options));
        let place = self.args.listeners.iter_mut().find(|other| other.address == to.address);
        if let Some(place) = place {
            *place = to.clone();
        }
        Ok(())
    }
}

/// What to do about an address that cannot be had.
pub(crate) const LISTEN_HELP: &str = "`ss -ltnp` shows who listens where, `ip -br address` which addresses this machine has; ports below 1024 are root's; \
     port 0 lets the system choose";

fn options(config: &Listener) -> ListenOptions {
    ListenOptions { poll_us: config.poll_us, max_connections: config.connections_max }
}
