//! From a URI to what the shards need to reach a namespace: addresses, who we are, and for how long
//! to try.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ::nvme::tcp::initiator::Settings;
use contract::{LinkId, Poll};
use shard::ImportSettings;
use uuid::Uuid;
use wire::nvme_tcp::Digests;

use super::nqn::Nqn;
use super::uri::{NamespaceUri, SCHEME};
use crate::config::address::HostPort;
use crate::config::volume::parse_uuid;
use crate::protocols::{Remote, RemoteUri};
use crate::run::RunError;
use crate::run::state::StateDirectory;

impl Remote for NamespaceUri {
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let blocks = |uri: &Self| (uri.address.clone(), uri.subsystem.clone(), uri.nsid);
        matches!(other, RemoteUri::NvmeTcp(other) if blocks(self) == blocks(other))
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(self.options.deadline_s.into())
    }

    fn backing(&self) -> String {
        format!("{SCHEME}://{}/{}/{}", self.address, self.subsystem, self.nsid)
    }

    fn listener(&self) -> Option<&HostPort> {
        Some(&self.address)
    }

    fn look(&self, state: &StateDirectory, _: &Path) -> Result<(), RunError> {
        let stored = || Ok(state.stored_host()?.unwrap_or_default());
        host(self, Path::new(NVME_CLI), stored).map(drop)
    }

    fn settings(
        &self,
        _: &str,
        state: &StateDirectory,
        _: &[LinkId],
        addresses: &[SocketAddr],
        poll: Poll,
    ) -> Result<ImportSettings, RunError> {
        let settings = settings(self, state, addresses)?;
        Ok(ImportSettings::NvmeTcp(Settings { poll, ..settings }))
    }

    fn who_answers(&self, settings: &ImportSettings) -> String {
        let shows = format!(
            "plateway discover {SCHEME}://{} shows whether a target answers there, and what it has for us",
            self.address
        );
        match settings {
            ImportSettings::NvmeTcp(settings) => format!(
                "{shows}; we ask as {}, which its export needs among its hosts",
                settings.host
            ),
            _ => shows,
        }
    }

    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let mut uri = self.clone();
        uri.options.queues = uri.options.queues.max(connections);
        uri.options.depth = uri.options.depth.max(depth);
        RemoteUri::NvmeTcp(uri)
    }
}

/// Where nvme-cli keeps who this machine is; targets that admit its kernel admit us then.
const NVME_CLI: &str = "/etc/nvme";

/// Who we are to a target: by the URI, else as this machine's kernel is, else by the UUID that is
/// stored.
fn host(
    uri: &NamespaceUri,
    nvme_cli: &Path,
    stored: impl Fn() -> Result<Uuid, RunError>,
) -> Result<(wire::nvme::Nqn, Uuid), RunError> {
    let read = |name: &str| {
        let text = fs::read_to_string(nvme_cli.join(name)).unwrap_or_default();
        let line = text.trim().to_owned();
        if line.is_empty() { None } else { Some(line) }
    };
    let odd = |name: &str, why: String| {
        RunError::new(format!("cannot use {}: {why}", nvme_cli.join(name).display()))
            .help("targets know this machine by it: mend it, or remove it")
    };
    let id = match read("hostid") {
        Some(id) => {
            let seen = |expected| odd("hostid", format!("expected {expected}, seen {id:?}"));
            parse_uuid(&id).map_err(seen)?
        }
        None => stored()?,
    };
    if let Some(nqn) = &uri.host_nqn {
        return Ok((nqn.to_wire(), id));
    }
    if let Some(name) = read("hostnqn") {
        let nqn: Nqn = name.parse().map_err(|error| odd("hostnqn", format!("{error}")))?;
        return Ok((nqn.to_wire(), id));
    }
    let name = format!("nqn.2026-11.net.plateway:host:{}", stored()?.simple());
    let nqn = wire::nvme::Nqn::new(&name).expect("no longer than a name may be");
    Ok((nqn, id))
}

/// How to reach a remote disk at the addresses of its host.
pub(super) fn settings(
    uri: &NamespaceUri,
    state: &StateDirectory,
    addresses: &[SocketAddr],
) -> Result<Settings, RunError> {
    let (host, host_id) = host(uri, Path::new(NVME_CLI), || state.host())?;
    let keep_alive = Duration::from_millis(uri.options.keep_alive_ms.into());
    let usual =
        Settings::new(addresses[0], uri.subsystem.to_wire(), uri.nsid, host, *host_id.as_bytes());
    Ok(Settings {
        addresses: addresses.to_vec(),
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
        let directory = tempfile::tempdir().unwrap();
        let addresses = ["127.0.0.1:4421".parse().unwrap()];
        let settings = settings(&uri, &StateDirectory::new(directory.path()), &addresses).unwrap();
        assert_eq!(settings.addresses, addresses);
        assert_eq!((settings.nsid, settings.queues, settings.depth), (3, 4, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(6));
    }

    #[test]
    fn we_are_who_the_kernel_of_this_machine_is_and_else_who_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let (nvme_cli, state) = (directory.path().join("nvme"), directory.path().join("state"));
        let state = StateDirectory::new(&state);
        let named = |uri: &str| match uri.parse() {
            Ok(DiskUri::Remote(RemoteUri::NvmeTcp(uri))) => host(&uri, &nvme_cli, || state.host()),
            other => panic!("{other:?}"),
        };
        let plain = "nvme+tcp://127.0.0.1:4421/nqn.2026-11.net.plateway:v0/3";
        let stored = state.host().unwrap();
        let (nqn, id) = named(plain).unwrap();
        assert_eq!(id, stored);
        assert_eq!(nqn.as_str(), format!("nqn.2026-11.net.plateway:host:{}", stored.simple()));
        let uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        let kernel = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
        fs::create_dir(&nvme_cli).unwrap();
        fs::write(nvme_cli.join("hostnqn"), format!("{kernel}\n")).unwrap();
        assert_eq!(named(plain).map(|(nqn, id)| (nqn.to_string(), id)), Ok((kernel, stored)));
        fs::write(nvme_cli.join("hostid"), format!("{uuid}\n")).unwrap();
        let (nqn, id) = named(&format!("{plain}?host_nqn=nqn.2026-11.a:me")).unwrap();
        assert_eq!((nqn.as_str(), id.to_string()), ("nqn.2026-11.a:me", uuid.to_owned()));
        fs::write(nvme_cli.join("hostnqn"), "me\n").unwrap();
        let error = named(plain).unwrap_err().line();
        assert!(error.contains("nvme/hostnqn: NQN \"me\": expected"), "{error}");
    }
}
