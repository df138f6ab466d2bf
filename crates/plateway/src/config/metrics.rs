//! `[server] metrics`: an address at which monitoring reads what is counted.
//!
//! It stands among the keys of `[server]`, and unlike them it is a thing: `apply` brings it, moves
//! it and takes it away.

use super::address::{AddressError, HostPort};
use super::listener::ListenerConfig;
use super::mistake::Mistake;
use super::resolve::Resolver;
use super::server::LowServer;
use super::text::quoted;
use super::thing::{Configured, Thing};

/// Where metrics are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsConfig {
    pub(crate) address: HostPort,
}

impl Configured for MetricsConfig {
    fn title(&self) -> String {
        format!("metrics {}", self.address)
    }

    fn excludes(&self, other: &Thing) -> bool {
        other.tcp_address().is_some_and(|other| self.address.overlaps(other))
    }

    /// A line of `[server]`.
    fn text(&self) -> String {
        format!("metrics = {}\n", quoted(&self.address.to_string()))
    }
}

impl Resolver<'_> {
    pub(super) fn metrics(
        &mut self,
        low: &LowServer,
        listeners: &[ListenerConfig],
    ) -> Option<MetricsConfig> {
        let written = low.metrics.as_ref()?;
        let address: HostPort = match written.get_ref().parse() {
            Ok(address) => address,
            Err(AddressError { message, offset }) => {
                let span = self.within(written, offset..written.get_ref().len());
                self.error(span, format!("metrics: {message}"));
                return None;
            }
        };
        if let Some(other) = listeners.iter().find(|other| other.address.overlaps(&address)) {
            let message = format!(
                "metrics {address} and listener {} overlap: both answer on TCP port {}",
                other.address, address.tcp_port
            );
            let first = self.place_of(&other.title(), "");
            self.push(Mistake::error(written.span(), message).first(&first));
        }
        let metrics = MetricsConfig { address };
        self.place(metrics.title(), "", written.span());
        Some(metrics)
    }
}
