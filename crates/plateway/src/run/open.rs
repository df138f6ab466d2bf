//! From a disk's URI to an open disk: what the reactor opens, and what the shards reach over the network.
//!
//! Names of hosts are resolved here, by the system's resolver, so that no shard ever waits for it. Who we say we are to other targets follows from
//! the machine's identity, so that it is the same after a restart. Errors name the disk, its URI and what was seen.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use block::checksum::crc32c;
use contract::LinkId;
use nvme::tcp::initiator::Settings;
use reactor::disk::{OpenError, OpenSpec};
use shard::ImportSettings;
use wire::nvme_tcp::Digests;

use super::error::RunError;
use crate::config::address::HostPort;
use crate::config::model::DiskConfig;
use crate::config::uri::{AoeUri, DiskUri, NvmeTcpUri};

/// What a URI leads to.
#[derive(Debug)]
pub(crate) enum Target {
    /// A disk of this process.
    Local(OpenSpec),
    /// A disk of another target.
    Remote(Box<ImportSettings>),
    /// A disk of another target, on links that are to be opened.
    Aoe(AoeUri),
}

/// What to open for a disk of the configuration.
pub(crate) fn target(disk: &DiskConfig) -> Result<Target, RunError> {
    match &disk.uri {
        DiskUri::NvmeTcp(uri) => import_settings(uri)
            .map(|settings| Target::Remote(Box::new(ImportSettings::NvmeTcp(settings))))
            .map_err(|error| error.within(&format!("disk {}", disk.name))),
        DiskUri::Aoe(uri) => Ok(Target::Aoe(uri.clone())),
        uri => match open_spec(uri) {
            Some(spec) => Ok(Target::Local(spec)),
            None => Err(RunError::new(format!(
                "disk {}: expected a disk of this machine inside delay: and faulty:, seen {uri}",
                disk.name
            ))
            .help("use the remote disk without the instrument")),
        },
    }
}

/// Why a disk could not be opened, with what to do about it.
pub(crate) fn refused(disk: &DiskConfig, error: &OpenError) -> RunError {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let failed = RunError::new(format!("disk {}: {error}", disk.name));
    let kind = match error {
        OpenError::System { source, .. } => source.kind(),
        OpenError::InUse { path, .. } => {
            return failed.help(format!(
                "`fuser -v {}` shows who has it; a server of yours is asked by: plateway disks list --control SOCKET",
                path.display()
            ));
        }
        OpenError::BadSize { .. } if matches!(disk.uri.innermost(), DiskUri::File { .. }) => {
            return failed.help("a file that is there is given a size by: truncate -s SIZE PATH");
        }
        _ => return failed,
    };
    match (kind, disk.uri.innermost()) {
        (NotFound, DiskUri::File { create_bytes: None, .. }) => {
            failed.help("a file is made with file:PATH?create=SIZE, in a folder that is there")
        }
        (NotFound, DiskUri::File { .. }) => failed.help("its folder must be there: mkdir -p"),
        (NotFound, _) => failed.help("`lsblk -p` lists the block devices of this machine"),
        (PermissionDenied, _) => {
            failed.help("`ls -l` shows who may; the user of the server needs to read and write it")
        }
        _ => failed,
    }
}

/// What the reactor opens, if the URI leads to a disk of this machine.
pub(crate) fn open_spec(uri: &DiskUri) -> Option<OpenSpec> {
    let inner = |inner: &DiskUri| open_spec(inner).map(Box::new);
    Some(match uri {
        DiskUri::Ram { bytes } => OpenSpec::Ram { bytes: *bytes },
        DiskUri::Null { bytes } => OpenSpec::Null { bytes: *bytes },
        DiskUri::File { path, create_bytes } => {
            OpenSpec::File { path: path.clone(), create: *create_bytes }
        }
        DiskUri::BlockDevice { path } => OpenSpec::BlockDevice { path: path.clone() },
        DiskUri::Delay { delay_us, inner: disk } => {
            OpenSpec::Delay { us: *delay_us, inner: inner(disk)? }
        }
        DiskUri::Faulty { seed, inner: disk } => {
            OpenSpec::Faulty { seed: *seed, inner: inner(disk)? }
        }
        DiskUri::NvmeTcp(_) | DiskUri::Aoe(_) | DiskUri::Volume { .. } => return None,
    })
}

/// How to reach a remote disk; its host's name is resolved.
pub(crate) fn import_settings(uri: &NvmeTcpUri) -> Result<Settings, RunError> {
    let addresses = resolve(&uri.address)?;
    let host_id = host_id();
    let host = match &uri.host_nqn {
        Some(nqn) => nqn.to_wire(),
        None => {
            let name = format!("nqn.2026-11.net.plateway:host:{}", hex(&host_id));
            wire::nvme::Nqn::new(&name).map_err(|error| RunError::new(error.to_string()))?
        }
    };
    let keep_alive = Duration::from_millis(uri.keep_alive_ms.into());
    let usual = Settings::new(addresses[0], uri.subsystem.to_wire(), uri.nsid, host, host_id);
    Ok(Settings {
        addresses,
        queues: uri.queues,
        depth: uri.depth,
        digests: Digests { header: uri.header_digest, data: uri.data_digest },
        keep_alive,
        deadline: Duration::from_secs(uri.deadline_s.into()),
        quiesce: keep_alive + Duration::from_millis(uri.quiesce_ms.into()),
        ..usual
    })
}

/// How to reach a disk of AoE on links that are open.
pub(crate) fn aoe_settings(uri: &AoeUri, links: &[LinkId]) -> ImportSettings {
    ImportSettings::Aoe(aoe::initiator::Settings {
        window: uri.window,
        deadline: Duration::from_secs(uri.deadline_s.into()),
        quiesce: Duration::from_millis(uri.quiesce_ms.into()),
        ..aoe::initiator::Settings::new(links, uri.address)
    })
}

/// The addresses of a host; one at least.
pub(crate) fn resolve(address: &HostPort) -> Result<Vec<SocketAddr>, RunError> {
    let found = (address.host.as_str(), address.tcp_port).to_socket_addrs();
    let seen = match found.map(Vec::from_iter) {
        Ok(addresses) if addresses.is_empty() => "no address".to_owned(),
        Ok(addresses) => return Ok(addresses),
        Err(error) => error.to_string(),
    };
    let host = &address.host;
    Err(RunError::new(format!("{address}: expected a host that has an address, seen: {seen}"))
        .help(format!("`getent hosts {host}` asks as we do; or write the address itself")))
}

/// Who this machine is, as a UUID of version 8: hashed from `/etc/machine-id`, which itself is not to be shown to others.
fn host_id() -> [u8; 16] {
    let read = |path: &str| std::fs::read(Path::new(path)).ok().filter(|bytes| !bytes.is_empty());
    let seed = read("/etc/machine-id")
        .or_else(|| read("/proc/sys/kernel/hostname"))
        .unwrap_or_else(|| b"plateway".to_vec());
    let mut id = [0; 16];
    for (part, place) in id.chunks_exact_mut(4).enumerate() {
        let text = [b"plateway host ", &[part as u8][..], &seed].concat();
        place.copy_from_slice(&crc32c(&text).to_be_bytes());
    }
    id[6] = 0x80 | id[6] & 0x0f;
    id[8] = 0x80 | id[8] & 0x3f;
    id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(uri: &str) -> DiskConfig {
        DiskConfig { name: "d0".to_owned(), uri: uri.parse().unwrap() }
    }

    #[test]
    fn instruments_stand_around_what_they_change() {
        let Ok(Target::Local(spec)) = target(&disk("delay:5,faulty:7,ram:1MiB")) else { panic!() };
        let OpenSpec::Delay { us: 5, inner } = spec else { panic!("{spec:?}") };
        assert_eq!(
            *inner,
            OpenSpec::Faulty { seed: 7, inner: Box::new(OpenSpec::Ram { bytes: 1 << 20 }) }
        );
    }

    #[test]
    fn a_remote_disk_takes_its_options_from_the_uri() {
        let uri = "nvme+tcp://127.0.0.1:4421/nqn.2026-11.net.plateway:v0/3?queues=4&depth=64&ddgst=0&quiesce_ms=1000";
        let Ok(Target::Remote(settings)) = target(&disk(uri)) else { panic!() };
        let ImportSettings::NvmeTcp(settings) = *settings else { panic!("{settings:?}") };
        assert_eq!(settings.addresses, ["127.0.0.1:4421".parse().unwrap()]);
        assert_eq!((settings.nsid, settings.queues, settings.depth), (3, 4, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(6));
    }

    #[test]
    fn an_instrument_around_a_remote_disk_is_refused_by_name() {
        let remote = "delay:5,nvme+tcp://127.0.0.1/nqn.2026-11.net.plateway:v0/1";
        let error = target(&disk(remote)).unwrap_err();
        assert!(error.line().starts_with("disk d0: expected a disk of this machine"), "{error}");
    }
}
