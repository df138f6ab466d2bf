//! Listeners: names to addresses, sockets to numbers, and a change of behaviour without losing connections.

use reactor::ListenOptions;
use shard::Order;

use super::error::RunError;
use super::patience::insist;
use super::{OpenListener, Running, open};
use crate::config::model::Listener;

impl Running {
    /// Listens at an address of the configuration.
    pub(super) fn add_listener(&mut self, config: &Listener) -> Result<(), RunError> {
        let opened = self.open_listener(config, None)?;
        self.listeners.insert(config.address.to_string(), opened);
        self.args.listeners.push(config.clone());
        Ok(())
    }

    /// Listens at the first address of the host that can be bound, or at `known` ones again.
    fn open_listener(
        &self,
        config: &Listener,
        known: Option<&[std::net::SocketAddr]>,
    ) -> Result<OpenListener, RunError> {
        let fail = |why: String| {
            RunError::new(format!("listener {}: {why}", config.address))
                .help("`ss -ltnp` shows who listens where; port 0 lets the system choose")
        };
        let options =
            ListenOptions { poll_us: config.poll_us, max_connections: config.connections_max };
        let mut opened = OpenListener {
            config: config.clone(),
            addresses: Vec::new(),
            ids: Vec::new(),
            former: Vec::new(),
        };
        let mut listen = |address: std::net::SocketAddr| {
            let id = self.numbers.listener();
            let bound = insist(
                || self.shards.handle().listen(address, id, options),
                |error| error.kind() == std::io::ErrorKind::AddrInUse,
            )
            .map_err(|error| format!("cannot listen at {address}: {error}"))?;
            opened.addresses.push(bound);
            opened.ids.push(id);
            Ok::<_, String>(bound)
        };
        let done = match known {
            Some(addresses) => addresses.iter().try_for_each(|address| listen(*address).map(drop)),
            None => {
                let addresses = open::resolve(&config.address).map_err(fail)?;
                let mut result = Err(String::new());
                for address in addresses {
                    result = listen(address);
                    if result.is_ok() {
                        break;
                    }
                }
                result.and_then(|bound| match bound {
                    // A socket of IPv6 takes no IPv4 of its own accord here, and `[::]` means every address.
                    std::net::SocketAddr::V6(six) if six.ip().is_unspecified() => {
                        let four = std::net::Ipv4Addr::UNSPECIFIED;
                        listen((four, six.port()).into()).map(drop)
                    }
                    _ => Ok(()),
                })
            }
        };
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
        for id in listener.ids.iter().chain(&listener.former) {
            let id = *id;
            self.order(&format!("remove listener {key}"), || Order::RemoveListener(id))?;
        }
        Ok(())
    }

    /// Gives a listener other values: its socket is replaced, connections that stand go on as they were.
    pub(super) fn change_listener(&mut self, to: &Listener) -> Result<(), RunError> {
        let key = to.address.to_string();
        let Some(old) = self.listeners.remove(&key) else { return self.add_listener(to) };
        old.ids.iter().for_each(|id| self.shards.handle().unlisten(*id));
        let former = [old.former, old.ids].concat();
        let (mut opened, result) = match self.open_listener(to, Some(&old.addresses)) {
            Ok(opened) => (opened, Ok(())),
            Err(error) => (self.open_listener(&old.config, Some(&old.addresses))?, Err(error)),
        };
        opened.former = former;
        let config = opened.config.clone();
        self.listeners.insert(key, opened);
        let place = self.args.listeners.iter_mut().find(|other| other.address == to.address);
        if let Some(place) = place {
            *place = config;
        }
        result
    }
}
