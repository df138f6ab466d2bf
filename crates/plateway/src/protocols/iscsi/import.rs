//! From a URI to what the shards need to reach a logical unit: addresses, who we are, and for how
//! long to try.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::iscsi::auth::{Challenges, Credentials, Login};
use ::iscsi::initiator::{Auth, SESSION_BITS, Settings};
use ::iscsi::limits::{INITIATOR_DEPTH_MAX, INITIATOR_SESSIONS_MAX};
use block::random::mix;
use contract::{LinkId, Poll};
use shard::ImportSettings;
use uuid::Uuid;
use wire::iscsi::{Digests, IscsiName};

use super::secret::{OF_HOST, OF_TARGET, SecretSource};
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

    fn deadline(&self) -> Duration {
        Duration::from_secs(self.options.deadline_s.into())
    }

    fn backing(&self) -> String {
        format!("{SCHEME}://{}/{}/{}", self.portal.address, self.target, self.lun)
    }

    fn listener(&self) -> Option<&HostPort> {
        Some(&self.portal.address)
    }

    fn look(&self, state: &StateDirectory, directory: &Path) -> Result<(), RunError> {
        let stored = || Ok(state.stored_host()?.unwrap_or_default());
        initiator(self.initiator.as_ref(), Path::new(OPEN_ISCSI), stored)?;
        // Of it our port is made, whatever we are called.
        stored()?;
        login(&self.portal, directory, |name| env::var_os(name)).map(drop)
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
            "plateway discover '{SCHEME}://{}{}' shows whether a target answers there, and what it has for us",
            self.portal,
            self.portal.proof()
        );
        match settings {
            ImportSettings::Iscsi(settings) => format!(
                "{shows}; we ask as {}, which its LUN needs among its hosts",
                settings.initiator
            ),
            _ => shows,
        }
    }

    /// A session has one connection. Where there may not be as many, each takes the requests of
    /// several.
    fn widened(&self, connections: u16, depth: u16) -> RemoteUri {
        let mut uri = self.clone();
        let sessions = uri.options.sessions.max(connections.min(INITIATOR_SESSIONS_MAX));
        let requests = u32::from(connections) * u32::from(depth);
        let depth = requests.div_ceil(sessions.into()).min(INITIATOR_DEPTH_MAX.into()) as u16;
        uri.options.sessions = sessions;
        uri.options.depth = uri.options.depth.max(depth);
        RemoteUri::Iscsi(uri)
    }
}

/// Where open-iscsi keeps who this machine is; targets that admit its kernel admit us then.
pub(super) const OPEN_ISCSI: &str = "/etc/iscsi/initiatorname.iscsi";

/// Who we are to a target: by the URI, else as this machine's kernel is, else by the UUID that is
/// stored.
pub(super) fn initiator(
    named: Option<&IscsiName>,
    open_iscsi: &Path,
    stored: impl Fn() -> Result<Uuid, RunError>,
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
    let name = format!("iqn.2026-11.net.plateway:host:{}", stored()?.simple());
    Ok(IscsiName::new(&name).expect("no longer than a name may be"))
}

/// How we prove who we are, and what the target has to prove; `variable` looks into the environment,
/// and relative paths begin at `directory`.
fn login(
    portal: &Portal,
    directory: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Login>, RunError> {
    let Some(user) = &portal.user else { return Ok(None) };
    let credentials = |user: &String, file: &Option<PathBuf>, name, option: &str| {
        let named = format!("{SCHEME}://{portal}/...?{option}=PATH");
        let source = SecretSource::of(file.as_deref(), name).within(directory);
        let secret = source.read(user, &variable, &named)?;
        Ok(Credentials { name: user.clone(), secret })
    };
    let own = credentials(user, &portal.secret_file, OF_HOST, "secret_file")?;
    let target = portal.mutual.as_ref().map(|mutual| {
        let option = "mutual_user=USER&mutual_secret_file";
        credentials(&mutual.user, &mutual.secret_file, OF_TARGET, option)
    });
    let login = Login { own, target: target.transpose()? };
    let same = |why| RunError::new(format!("cannot log in as {user}: {why}"));
    login.check().map_err(same)?;
    Ok(Some(login))
}

/// The same, with the environment of this process.
pub(super) fn login_here(portal: &Portal) -> Result<Option<Login>, RunError> {
    login(portal, Path::new(""), |name| env::var_os(name))
}

/// How to reach a remote disk at the addresses of its host.
fn settings(
    uri: &UnitUri,
    disk: &str,
    state: &StateDirectory,
    addresses: &[SocketAddr],
) -> Result<Settings, RunError> {
    let initiator = initiator(uri.initiator.as_ref(), Path::new(OPEN_ISCSI), || state.host())?;
    let isid = isid(&port_of(disk, state)?);
    let usual = Settings::new(addresses[0], uri.target.clone(), uri.lun, initiator, isid);
    Ok(Settings {
        addresses: addresses.to_vec(),
        sessions: uri.options.sessions,
        depth: uri.options.depth,
        digests: Digests { header: uri.options.hdgst == 1, data: uri.options.ddgst == 1 },
        keep_alive: Duration::from_millis(uri.options.keep_alive_ms.into()),
        deadline: Duration::from_secs(uri.options.deadline_s.into()),
        quiesce: Duration::from_millis(uri.options.quiesce_ms.into()),
        auth: login_here(&uri.portal)?.map(|login| Auth { login, challenges: challenges() }),
        ..usual
    })
}

/// What targets are asked that have to prove something.
pub(super) fn challenges() -> Challenges {
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

/// An ISID of the random format (RFC 7143, 11.12.5) that follows from which port it is:
///
/// ```text
///   80h   random, of the disk              owner's
///   |     hash   hash   hash   hash|session shard
/// ```
/// The number of the session is put into the lower bits of the fifth byte by the initiator, and the
/// shard into the last byte by the shard. Discovery's own is none of these: no shard is FFh.
fn isid(port: &str) -> [u8; 6] {
    let bits = mix(port.as_bytes()).to_be_bytes();
    [0x80, bits[0], bits[1], bits[2], bits[3] & !SESSION_BITS, 0]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ::iscsi::auth::Secret;

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
            "iscsi://127.0.0.1:3261/iqn.2026-11.net.plateway:v0/3?sessions=3&depth=64&ddgst=0&quiesce_ms=1000",
        );
        let directory = tempfile::tempdir().unwrap();
        let addresses = ["127.0.0.1:3261".parse().unwrap()];
        let state = StateDirectory::new(directory.path());
        let settings = settings(&uri, "d0", &state, &addresses).unwrap();
        assert_eq!(settings.addresses, addresses);
        assert_eq!((settings.lun, settings.sessions, settings.depth), (3, 3, 64));
        assert_eq!(settings.digests, Digests { header: true, data: false });
        assert_eq!(settings.quiesce, Duration::from_secs(1));
        assert_eq!((settings.isid[0], settings.isid[5]), (0x80, 0));
        assert_eq!(settings.isid[4] & SESSION_BITS, 0);
    }

    #[test]
    fn who_measures_gets_a_session_for_each_job_as_far_as_there_may_be_so_many() {
        let widened = |text: &str, connections, depth| match uri(text).widened(connections, depth) {
            RemoteUri::Iscsi(uri) => (uri.options.sessions, uri.options.depth),
            other => panic!("{other:?}"),
        };
        let plain = "iscsi://h/iqn.2026-11.a:b/0";
        assert_eq!(widened(plain, 1, 1), (1, 128));
        assert_eq!(widened(plain, 4, 256), (4, 256));
        assert_eq!(widened(&format!("{plain}?sessions=8&depth=16"), 4, 64), (8, 32));
        assert_eq!(widened(plain, 64, 256), (32, 512));
        assert_eq!(widened(plain, 1024, 1024), (32, 1024));
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
        let all = |text: &str, here: Option<&str>| {
            let portal = uri(text).portal;
            login(&portal, Path::new(""), |name| {
                here.filter(|_| name == OF_HOST).map(OsString::from)
            })
            .map_err(|error| error.line())
        };
        let secret = |text: &str, here: Option<&str>| {
            all(text, here).map(|login| login.map(|login| login.own))
        };
        let own = |secret: &str| {
            let secret = Secret::new(secret.as_bytes()).unwrap();
            Ok(Some(Credentials { name: "me".to_owned(), secret }))
        };
        assert_eq!(secret("iscsi://h/iqn.2026-11.a:b/0", Some("twelve bytes")), Ok(None));
        assert_eq!(secret(plain, Some("twelve bytes")), own("twelve bytes"));
        fs::write(&file, "another secret\r\nand a remark\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(&named, Some("twelve bytes")), own("another secret"));
        let both = format!("{plain}?mutual_user=t&mutual_secret_file={}", file.display());
        let login = all(&both, Some("twelve bytes")).unwrap().expect("a user");
        assert_eq!(login.target.expect("a proof is wanted").name, "t");
        let same = all(&both, Some("another secret")).unwrap_err();
        assert!(same.contains("log in as me: expected two secrets, seen the same"), "{same}");
        let none = all(&format!("{plain}?mutual_user=t"), Some("twelve bytes")).unwrap_err();
        assert!(none.contains("for user t") && none.contains(OF_TARGET), "{none}");
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
        let who = |named: Option<&IscsiName>| initiator(named, &file, || state.host());
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
