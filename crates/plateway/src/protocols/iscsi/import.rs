//! From a URI to what the shards need to reach a logical unit: addresses, who we are, and for how
//! long to try.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use ::iscsi::auth::{Challenges, Credentials, Login, Secret};
use ::iscsi::initiator::{Auth, Settings};
use ::iscsi::limits::INITIATOR_DEPTH_MAX;
use block::random::mix;
use contract::{LinkId, Poll};
use shard::ImportSettings;
use uuid::Uuid;
use wire::iscsi::{Digests, IscsiName};

use super::uri::{Portal, SCHEME, UnitUri};
use crate::config::address::HostPort;
use crate::config::uri::check_name;
use crate::protocols::{Remote, RemoteUri};
use crate::run::RunError;
use crate::run::state::StateDirectory;

impl Remote for UnitUri {
    fn same_backing(&self, other: &RemoteUri) -> bool {
        let blocks = |uri: &Self| (uri.portal.address.clone(), uri.target.clone(), uri.lun);
        matches!(other, RemoteUri::Iscsi(other) if blocks(self) == blocks(other))
    }

    fn backing(&self) -> String {
        format!("{SCHEME}://{}/{}/{}", self.portal.address, self.target, self.lun)
    }

    fn listener(&self) -> Option<&HostPort> {
        Some(&self.portal.address)
    }

    fn settings(
        &self,
        disk: &str,
        state: &StateDirectory,
        _: &[LinkId],
        addresses: &[SocketAddr],
        poll: Poll,
    ) -> Result<ImportSettings, RunError> {
        let settings = settings(self, disk, state, addresses)?;
        Ok(ImportSettings::Iscsi(Settings { poll, ..settings }))
    }

    fn who_answers(&self, settings: &ImportSettings) -> String {
        let shows = format!(
            "plateway discover {SCHEME}://{} shows whether a target answers there, and what it has for us",
            self.portal
        );
        match settings {
            ImportSettings::Iscsi(settings) => format!(
                "{shows}; we ask as {}, which its LUN needs among its hosts",
                settings.initiator
            ),
            _ => shows,
        }
    }

    /// A session has one connection, which takes the requests of all.
    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let mut uri = self.clone();
        let depth = connections.saturating_mul(depth).min(INITIATOR_DEPTH_MAX);
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

/// What holds the secret where no file is named.
const SECRET: &str = "PLATEWAY_CHAP_SECRET";

/// How we prove who we are; `secret` is that of the environment.
pub(super) fn login(portal: &Portal, secret: Option<&OsStr>) -> Result<Option<Login>, RunError> {
    let Some(user) = &portal.user else { return Ok(None) };
    let (bytes, from) = match (&portal.secret_file, secret) {
        (Some(path), _) => {
            let from = path.display().to_string();
            let failed = |error| RunError::new(format!("cannot read the secret {from}: {error}"));
            (fs::read(path).map_err(failed)?, from)
        }
        (None, Some(secret)) => (secret.as_bytes().to_vec(), SECRET.to_owned()),
        (None, None) => {
            let what = format!("no secret is configured for user {user}");
            return Err(RunError::new(what).help(format!(
                "write it into a file that nobody else may read, and {SCHEME}://{portal}/...?secret_file=PATH; or set {SECRET}"
            )));
        }
    };
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let secret = Secret::new(line.strip_suffix(b"\r").unwrap_or(line))
        .map_err(|why| RunError::new(format!("cannot use the secret of {from}: {why}")))?;
    let own = Credentials { name: user.clone(), secret };
    Ok(Some(Login { own, target: None }))
}

/// The same, with the environment of this process.
pub(super) fn login_here(portal: &Portal) -> Result<Option<Login>, RunError> {
    login(portal, env::var_os(SECRET).as_deref())
}

/// How to reach a remote disk at the addresses of its host.
fn settings(
    uri: &UnitUri,
    disk: &str,
    state: &StateDirectory,
    addresses: &[SocketAddr],
) -> Result<Settings, RunError> {
    let initiator = initiator(uri.initiator.as_ref(), Path::new(OPEN_ISCSI), state)?;
    let isid = isid(&port_of(disk, state)?);
    let usual = Settings::new(addresses[0], uri.target.clone(), uri.lun, initiator, isid);
    Ok(Settings {
        addresses: addresses.to_vec(),
        depth: uri.options.depth,
        digests: Digests { header: uri.options.hdgst == 1, data: uri.options.ddgst == 1 },
        keep_alive: Duration::from_millis(uri.options.keep_alive_ms.into()),
        deadline: Duration::from_secs(uri.options.deadline_s.into()),
        quiesce: Duration::from_millis(uri.options.quiesce_ms.into()),
        auth: login_here(&uri.portal)?.map(|login| Auth { login, challenges: challenges() }),
        ..usual
    })
}

/// What targets would be asked, had they to prove something.
fn challenges() -> Challenges {
    let random = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
    Challenges::new(*random.first_chunk().expect("twice 16 bytes"))
}

/// Which of our ports asks for a disk. A login ends the session that its port has with the target,
/// which is meant after a restart, and of nobody else: so a server's disks each have one, and so has
/// each run of a command, whose disks have names that no configuration can have.
fn port_of(disk: &str, state: &StateDirectory) -> Result<String, RunError> {
    let (host, path) = (state.host()?, state.path().display());
    Ok(match check_name(disk) {
        Ok(()) => format!("{host} {path} {disk}"),
        Err(_) => format!("{host} {disk} {}", std::process::id()),
    })
}

/// An ISID of the random format (RFC 7143, 11.12.5) that follows from which port it is; the last
/// byte is the shard's.
fn isid(port: &str) -> [u8; 6] {
    let bits = mix(port.as_bytes()).to_be_bytes();
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
        let state = StateDirectory::new(directory.path());
        let settings = settings(&uri, "d0", &state, &addresses).unwrap();
        assert_eq!(settings.addresses, addresses);
        assert_eq!((settings.lun, settings.depth), (3, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(1));
        assert_eq!((settings.isid[0], settings.isid[5]), (0x80, 0));
    }

    #[test]
    fn a_disk_keeps_its_port_and_nobody_else_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = |name: &str| StateDirectory::new(&directory.path().join(name));
        let of = |disk: &str, name: &str| isid(&port_of(disk, &state(name)).unwrap());
        assert_eq!(of("d0", "a"), of("d0", "a"));
        assert_ne!(of("d0", "a"), of("d1", "a"));
        // Another server of this machine, and a command.
        assert_ne!(of("d0", "a"), of("d0", "b"));
        assert_ne!(of("d0", "a"), of("iscsi://h/iqn.2026-11.a:b/0", "a"));
        let command = port_of("iscsi://h/iqn.2026-11.a:b/0", &state("a")).unwrap();
        assert!(command.ends_with(&std::process::id().to_string()), "{command}");
    }

    #[test]
    fn a_user_has_a_secret_of_a_file_or_of_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        let plain = "iscsi://me@h/iqn.2026-11.a:b/0";
        let named = format!("{plain}?secret_file={}", file.display());
        let secret = |text: &str, here: Option<&str>| {
            let login = login(&uri(text).portal, here.map(OsStr::new));
            login.map(|login| login.map(|login| login.own)).map_err(|error| error.line())
        };
        let own = |secret: &str| {
            let secret = Secret::new(secret.as_bytes()).unwrap();
            Ok(Some(Credentials { name: "me".to_owned(), secret }))
        };
        assert_eq!(secret("iscsi://h/iqn.2026-11.a:b/0", Some("twelve bytes")), Ok(None));
        assert_eq!(secret(plain, Some("twelve bytes")), own("twelve bytes"));
        fs::write(&file, "another secret\r\nand a remark\n").unwrap();
        assert_eq!(secret(&named, Some("twelve bytes")), own("another secret"));
        fs::write(&file, "short\n").unwrap();
        for (text, why) in [
            (plain, "no secret is configured for user me (write it into a file"),
            (&named, "secret: expected a secret of at least 12 bytes, seen 5"),
            ("iscsi://me@h/iqn.2026-11.a:b/0?secret_file=/no/such", "cannot read the secret /no"),
        ] {
            let error = secret(text, None).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
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
