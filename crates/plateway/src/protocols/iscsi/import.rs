//! From a URI to what the shards need to reach a logical unit: addresses, who we are, and for how
//! long to try.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ::iscsi::initiator::Settings;
use block::random::mix;
use contract::{LinkId, Poll};
use shard::ImportSettings;
use wire::iscsi::{Digests, IscsiName};

use super::uri::{SCHEME, UnitUri};
use crate::config::address::HostPort;
use crate::protocols::{Remote, RemoteUri};
use crate::run::RunError;
use crate::run::state::StateDirectory;

impl Remote for UnitUri {
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let blocks = |uri: &Self| (uri.address.clone(), uri.target.clone(), uri.lun);
        matches!(other, RemoteUri::Iscsi(other) if blocks(self) == blocks(other))
    }

    fn backing(&self) -> String {
        format!("{SCHEME}://{}/{}/{}", self.address, self.target, self.lun)
    }

    fn listener(&self) -> Option<&HostPort> {
        Some(&self.address)
    }

    fn settings(
        &self,
        state: &StateDirectory,
        _: &[LinkId],
        addresses: &[SocketAddr],
        poll: Poll,
    ) -> Result<ImportSettings, RunError> {
        let settings = settings(self, state, addresses)?;
        Ok(ImportSettings::Iscsi(Settings { poll, ..settings }))
    }

    fn who_answers(&self, settings: &ImportSettings) -> String {
        let shows = format!(
            "plateway discover {SCHEME}://{} shows whether a target answers there, and what it has for us",
            self.address
        );
        match settings {
            ImportSettings::Iscsi(settings) => format!(
                "{shows}; we ask as {}, which its LUN needs among its hosts",
                settings.initiator
            ),
            _ => shows,
        }
    }

    fn widened(&self, _: u16, depth: u16) -> RemoteUri {
        let mut uri = self.clone();
        uri.options.depth = uri.options.depth.max(depth);
        RemoteUri::Iscsi(uri)
    }
}

/// Where open-iscsi keeps who this machine is; targets that admit its kernel admit us then.
pub(super) const OPEN_ISCSI: &str = "/etc/iscsi/initiatorname.iscsi";

/// Who we are to a target: by the URI, else as this machine's kernel is, else by the stored UUID.
pub(super) fn initiator(
    named: Option<&IscsiName>,
    open_iscsi: &Path,
    state: &StateDirectory,
) -> Result<IscsiName, RunError> {
    if let Some(name) = named {
        return Ok(name.clone());
    }
    let text = fs::read_to_string(open_iscsi).unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("InitiatorName="));
    if let Some(written) = line {
        return super::name(written.trim()).map_err(|(message, _)| {
            RunError::new(format!("cannot use {}: {message}", open_iscsi.display()))
                .help("targets know this machine by it: mend it, or remove it")
        });
    }
    let name = format!("iqn.2026-11.net.plateway:host:{}", state.host()?.simple());
    Ok(IscsiName::new(&name).expect("no longer than a name may be"))
}

/// How to reach a remote disk at the addresses of its host.
fn settings(
    uri: &UnitUri,
    state: &StateDirectory,
    addresses: &[SocketAddr],
) -> Result<Settings, RunError> {
    let initiator = initiator(uri.initiator.as_ref(), Path::new(OPEN_ISCSI), state)?;
    let isid = isid(&format!("{} {}", state.host()?, uri.backing()));
    let usual = Settings::new(addresses[0], uri.target.clone(), uri.lun, initiator, isid);
    Ok(Settings {
        addresses: addresses.to_vec(),
        depth: uri.options.depth,
        digests: Digests { header: uri.options.hdgst == 1, data: uri.options.ddgst == 1 },
        keep_alive: Duration::from_millis(uri.options.keep_alive_ms.into()),
        deadline: Duration::from_secs(uri.options.deadline_s.into()),
        quiesce: Duration::from_millis(uri.options.quiesce_ms.into()),
        ..usual
    })
}

/// An ISID of the random format (RFC 7143, 11.12.5) that follows from who asks whom, so that it is
/// the same after a restart; the last byte is the shard's.
fn isid(of: &str) -> [u8; 6] {
    let bits = mix(of.as_bytes()).to_be_bytes();
    [0x80, bits[0], bits[1], bits[2], bits[3], 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::uri::DiskUri;

    fn uri(text: &str) -> UnitUri {
        match text.parse() {
            Ok(DiskUri::Remote(RemoteUri::Iscsi(uri))) => uri,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_remote_disk_takes_its_options_from_the_uri() {
        let uri = uri(
            "iscsi://127.0.0.1:3261/iqn.2026-11.net.plateway:v0/3?depth=64&ddgst=0&quiesce_ms=1000",
        );
        let directory = tempfile::tempdir().unwrap();
        let addresses = ["127.0.0.1:3261".parse().unwrap()];
        let settings = settings(&uri, &StateDirectory::new(directory.path()), &addresses).unwrap();
        assert_eq!(settings.addresses, addresses);
        assert_eq!((settings.lun, settings.depth), (3, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(1));
        assert_eq!((settings.isid[0], settings.isid[5]), (0x80, 0));
    }

    #[test]
    fn two_disks_have_two_ports_and_each_keeps_its_own() {
        let of = |lun: u16| isid(&format!("host iscsi://127.0.0.1:3260/iqn.2026-11.a:b/{lun}"));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn we_are_who_the_kernel_of_this_machine_is_and_else_who_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("initiatorname.iscsi");
        let state = StateDirectory::new(&directory.path().join("state"));
        let stored = format!("iqn.2026-11.net.plateway:host:{}", state.host().unwrap().simple());
        let who = |named: Option<&IscsiName>| initiator(named, &file, &state);
        assert_eq!(who(None).unwrap().as_str(), stored);
        fs::write(&file, "## as Debian writes it\nInitiatorName=iqn.1993-08.org.debian:01:ab\n")
            .unwrap();
        assert_eq!(who(None).unwrap().as_str(), "iqn.1993-08.org.debian:01:ab");
        let named = IscsiName::new("iqn.2026-11.a:me").unwrap();
        assert_eq!(who(Some(&named)).unwrap(), named);
        fs::write(&file, "InitiatorName=me\n").unwrap();
        let error = who(None).unwrap_err().line();
        assert!(error.contains("initiatorname.iscsi: iSCSI name \"me\": expected"), "{error}");
    }
}
