//! From a URI to what the shards need to reach a namespace: addresses, who we are, and for how long to try.

use std::time::Duration;

use ::nvme::tcp::initiator::Settings;
use contract::LinkId;
use shard::ImportSettings;
use uuid::Uuid;
use wire::nvme_tcp::Digests;

use super::uri::{NamespaceUri, SCHEME};
use crate::config::address::HostPort;
use crate::protocols::{Remote, RemoteUri};
use crate::run::state::StateDirectory;
use crate::run::{RunError, open};

impl Remote for NamespaceUri {
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let blocks = |uri: &Self| (uri.address.clone(), uri.subsystem.clone(), uri.nsid);
        matches!(other, RemoteUri::NvmeTcp(other) if blocks(self) == blocks(other))
    }

    fn backing(&self) -> String {
        format!("{SCHEME}://{}/{}/{}", self.address, self.subsystem, self.nsid)
    }

    fn listener(&self) -> Option<&HostPort> {
        Some(&self.address)
    }

    fn settings(&self, state: &StateDirectory, _: &[LinkId]) -> Result<ImportSettings, RunError> {
        settings(self, state.host()?).map(ImportSettings::NvmeTcp)
    }

    fn who_answers(&self) -> String {
        "plateway discover shows what a target has for us".to_owned()
    }

    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let mut uri = self.clone();
        uri.options.queues = uri.options.queues.max(connections);
        uri.options.depth = uri.options.depth.max(depth);
        RemoteUri::NvmeTcp(uri)
    }
}

/// How to reach a remote disk; its host's name is resolved.
pub(crate) fn settings(uri: &NamespaceUri, host_id: Uuid) -> Result<Settings, RunError> {
    let addresses = open::resolve(&uri.address)?;
    let host = match &uri.host_nqn {
        Some(nqn) => nqn.to_wire(),
        None => {
            let name = format!("nqn.2026-11.net.plateway:host:{}", host_id.simple());
            wire::nvme::Nqn::new(&name).map_err(|error| RunError::new(error.to_string()))?
        }
    };
    let keep_alive = Duration::from_millis(uri.options.keep_alive_ms.into());
    let usual =
        Settings::new(addresses[0], uri.subsystem.to_wire(), uri.nsid, host, *host_id.as_bytes());
    Ok(Settings {
        addresses,
        queues: uri.options.queues,
        depth: uri.options.depth,
        digests: Digests { header: uri.options.hdgst == 1, data: uri.options.ddgst == 1 },
        keep_alive,
        deadline: Duration::from_secs(uri.options.deadline_s.into()),
        quiesce: keep_alive + Duration::from_millis(uri.options.quiesce_ms.into()),
        ..usual
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::uri::DiskUri;

    #[test]
    fn a_remote_disk_takes_its_options_from_the_uri() {
        let uri = "nvme+tcp://127.0.0.1:4421/nqn.2026-11.net.plateway:v0/3?queues=4&depth=64&ddgst=0&quiesce_ms=1000";
        let Ok(DiskUri::Remote(RemoteUri::NvmeTcp(uri))) = uri.parse() else { panic!() };
        let settings = settings(&uri, Uuid::new_v4()).unwrap();
        assert_eq!(settings.addresses, ["127.0.0.1:4421".parse().unwrap()]);
        assert_eq!((settings.nsid, settings.queues, settings.depth), (3, 4, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(6));
    }
}
