//! From a URI to what the shards need to reach a target, on links that are open.

use std::net::SocketAddr;
use std::time::Duration;

use ::aoe::filter;
use ::aoe::initiator::Settings;
use ::aoe::limits::WINDOW_MAX;
use contract::{LinkId, Poll};
use shard::ImportSettings;

use super::uri::{TargetOptions, TargetUri};
use crate::config::link::Ethernet;
use crate::protocols::{IntakeOf, Remote, RemoteUri};
use crate::run::RunError;
use crate::run::state::StateDirectory;

impl Remote for TargetUri {
    /// Two interfaces may lead to one station, and then only one initiator may think that it owns
    /// the disk.
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let RemoteUri::Aoe(other) = other else { return false };
        let shares = self.interfaces.iter().any(|name| other.interfaces.contains(name));
        self.address == other.address && self.options.vlan == other.options.vlan && shares
    }

    /// The first interface: others are more ways to it.
    fn backing(&self) -> String {
        let interfaces = self.interfaces.first().cloned().into_iter().collect();
        let options = TargetOptions { vlan: self.options.vlan, ..TargetOptions::default() };
        Self { interfaces, options, ..self.clone() }.to_string()
    }

    fn links(&self) -> Option<(Vec<Ethernet>, IntakeOf)> {
        let vlan = (self.options.vlan > 0).then_some(self.options.vlan);
        Some((Ethernet::each(&self.interfaces, vlan).collect(), filter::importing))
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
        format!(
            "plateway discover aoe://{} shows who answers there; targets are silent to MAC addresses that their hosts do not name",
            self.interfaces.join(",")
        )
    }

    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let window = connections.saturating_mul(depth).min(WINDOW_MAX).max(self.options.window);
        let options = TargetOptions { window, ..self.options.clone() };
        RemoteUri::Aoe(Self { options, ..self.clone() })
    }
}
