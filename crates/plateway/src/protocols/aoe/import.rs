//! From a URI to what the shards need to reach a target, on links that are open.

use std::net::SocketAddr;
use std::time::Duration;

use ::aoe::filter;
use ::aoe::initiator::Settings;
use ::aoe::limits::WINDOW_MAX;
use contract::{LinkId, Poll};
use shard::ImportSettings;

use super::uri::{Over, TargetOptions, TargetUri};
use crate::config::link::Ethernet;
use crate::protocols::{IntakeOf, Remote, RemoteUri};
use crate::run::RunError;
use crate::run::state::StateDirectory;

impl Remote for TargetUri {
    /// Two interfaces may lead to one station, and then only one initiator may think that it owns
    /// the disk.
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let RemoteUri::Aoe(other) = other else { return false };
        let shares = match (&self.over, &other.over) {
            (Over::Interfaces(one), Over::Interfaces(other)) => {
                one.iter().any(|name| other.contains(name))
            }
            (one, other) => one == other,
        };
        self.address == other.address && self.options.vlan == other.options.vlan && shares
    }

    /// The first interface: others are more ways to it.
    fn deadline(&self) -> Duration {
        Duration::from_secs(self.options.deadline_s.into())
    }

    fn backing(&self) -> String {
        let over = match &self.over {
            Over::Interfaces(names) => {
                Over::Interfaces(names.first().cloned().into_iter().collect())
            }
            wire @ Over::Pseudowire(_) => wire.clone(),
        };
        let options = TargetOptions { vlan: self.options.vlan, ..TargetOptions::default() };
        Self { over, options, ..self.clone() }.to_string()
    }

    fn links(&self) -> Option<(Vec<Ethernet>, IntakeOf)> {
        let Over::Interfaces(interfaces) = &self.over else { return None };
        let vlan = (self.options.vlan > 0).then_some(self.options.vlan);
        Some((Ethernet::each(interfaces, vlan).collect(), filter::importing))
    }

    fn pseudowire(&self) -> Option<&str> {
        match &self.over {
            Over::Interfaces(_) => None,
            Over::Pseudowire(name) => Some(name),
        }
    }

    fn settings(
        &self,
        _: &str,
        _: &StateDirectory,
        links: &[LinkId],
        _: &[SocketAddr],
        _: Poll,
    ) -> Result<ImportSettings, RunError> {
        Ok(ImportSettings::Aoe(Settings {
            window: self.options.window,
            deadline: Duration::from_secs(self.options.deadline_s.into()),
            quiesce: Duration::from_millis(self.options.quiesce_ms.into()),
            ..Settings::new(links, self.address)
        }))
    }

    fn who_answers(&self, _: &ImportSettings) -> String {
        let look = match &self.over {
            Over::Interfaces(_) => {
                format!("plateway discover aoe://{} shows who answers there", self.over)
            }
            Over::Pseudowire(name) => {
                format!("plateway route show says of a server whether pseudowire {name} is up")
            }
        };
        format!("{look}; targets are silent to MAC addresses that their hosts do not name")
    }

    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let window = connections.saturating_mul(depth).min(WINDOW_MAX).max(self.options.window);
        let options = TargetOptions { window, ..self.options.clone() };
        RemoteUri::Aoe(Self { options, ..self.clone() })
    }
}
