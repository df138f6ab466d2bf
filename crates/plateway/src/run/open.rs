//! From a disk's URI to what the reactor opens; and from a host's name to its addresses, by the
//! system's resolver, in a thread of its own, so that nobody waits for it longer than he wants to.
//!
//! Errors name the disk, its URI and what was seen. How a remote disk is reached, its protocol
//! says.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use reactor::disk::{Instrument, OpenError, OpenSpec};

use super::error::RunError;
use super::stop;
use crate::config::address::HostPort;
use crate::config::disk::DiskConfig;
use crate::config::uri::{Around, DiskUri};

/// What to open for a disk of this machine.
pub(crate) fn spec_of(disk: &DiskConfig) -> Result<OpenSpec, RunError> {
    spec_as(&disk.name, &disk.uri)
}

/// The same for a disk whose URI is known by another path.
pub(super) fn spec_as(name: &str, uri: &DiskUri) -> Result<OpenSpec, RunError> {
    let whole = spec(uri).and_then(|spec| match &spec {
        Some(opened) => opened.check().map(|()| spec).map_err(|error| error.to_string()),
        None => Ok(None),
    });
    let spec = whole.map_err(|refusal| {
        RunError::new(format!("disk {name}: {refusal}")).transient().help(
            "the words of a model's file are the options of model: (docs/configuration.md, Models)",
        )
    })?;
    spec.ok_or_else(|| {
        let inner = uri.innermost();
        RunError::new(format!(
            "disk {name}: expected ram:, null:, file: or a block device inside delay:, burn:, faulty: and model:, seen {inner}"
        ))
        .help("they stand around what this process opens itself, and other targets are reached by connections or frames: use it without them")
    })
}

/// Why a disk could not be opened, with what to do about it.
pub(crate) fn refused(disk: &DiskConfig, error: &OpenError) -> RunError {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    // All of it is what was met under a name, and not the configuration: it may be mended there.
    let failed = RunError::new(format!("disk {}: {error}", disk.name)).transient();
    let kind = match error {
        OpenError::System { source, .. } => source.kind(),
        OpenError::InUse { path, .. } => {
            return failed.in_use().help(format!(
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

/// What the reactor opens, if the URI leads to a disk of this machine; an error is what is wrong with
/// a model.
fn spec(uri: &DiskUri) -> Result<Option<OpenSpec>, String> {
    Ok(Some(match uri {
        DiskUri::Ram { bytes, .. } => OpenSpec::Ram { bytes: *bytes },
        DiskUri::Null { bytes } => OpenSpec::Null { bytes: *bytes },
        DiskUri::File { path, create_bytes, tail } => {
            OpenSpec::File { path: path.clone(), create: *create_bytes, tail: *tail }
        }
        DiskUri::BlockDevice { path } => OpenSpec::BlockDevice { path: path.clone() },
        DiskUri::Instrumented { instrument, inner } => {
            let instrument = match instrument {
                Around::Delay { us } => Instrument::Delay { us: *us },
                Around::Burn { us } => Instrument::Burn { us: *us },
                Around::Faulty { seed } => Instrument::Faulty { seed: *seed },
                Around::Model(model) => Instrument::Model(model.model()?),
            };
            let Some(inner) = spec(inner)?.map(Box::new) else { return Ok(None) };
            OpenSpec::Instrumented { instrument, inner }
        }
        DiskUri::Remote(_) | DiskUri::Volume { .. } => return Ok(None),
    }))
}

/// The addresses of a host that is being looked up.
pub(super) type Lookup = Receiver<Result<Vec<SocketAddr>, RunError>>;

/// How long the system may look for a name. Its resolver has limits of its own, which may be
/// longer, and cannot be told to end.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// Looks for the addresses of a host in a thread of its own, since nobody knows how long that
/// takes; `ended` is called there once they have come.
pub(super) fn look_up(address: &HostPort, ended: impl FnOnce() + Send + 'static) -> Lookup {
    let (tell, told) = mpsc::channel();
    let address = address.clone();
    let thread = std::thread::Builder::new().name("names".to_owned());
    // Without a thread nobody tells, which is an error, too.
    let _ = thread.spawn(move || {
        let _ = tell.send(ask_system(&address));
        ended();
    });
    told
}

/// What came of a lookup that began so long ago; none where it goes on.
pub(super) fn looked_up(
    lookup: &Lookup,
    address: &HostPort,
    since: Duration,
) -> Option<Result<Vec<SocketAddr>, RunError>> {
    let silent = |seen: String| RunError::new(format!("{address}: {seen}")).transient();
    match lookup.try_recv() {
        Ok(found) => Some(found),
        Err(TryRecvError::Disconnected) => {
            Some(Err(silent("no thread can be started to look for it".to_owned())))
        }
        Err(TryRecvError::Empty) if since < LOOKUP_LIMIT => None,
        Err(TryRecvError::Empty) => {
            let limit = LOOKUP_LIMIT.as_secs();
            let host = &address.host;
            Some(Err(silent(format!("the system found no address of it within {limit} s"))
                .help(format!("`getent hosts {host}` asks as we do; or write the address itself"))))
        }
    }
}

/// The addresses of a host, which are waited for; one at least.
pub(crate) fn resolve(address: &HostPort) -> Result<Vec<SocketAddr>, RunError> {
    let (tell, told) = mpsc::channel();
    let lookup = look_up(address, move || {
        let _ = tell.send(());
    });
    let until = Instant::now() + LOOKUP_LIMIT;
    // Who starts may be told to end meanwhile.
    while told.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) && Instant::now() < until {
        if stop::is_stopped() {
            return Err(stop::error(&address.to_string()));
        }
    }
    looked_up(&lookup, address, LOOKUP_LIMIT).expect("its time is over")
}

/// How often it is looked whether the process is to end.
const TICK: Duration = Duration::from_millis(100);

fn ask_system(address: &HostPort) -> Result<Vec<SocketAddr>, RunError> {
    let found = (address.host.as_str(), address.tcp_port).to_socket_addrs();
    let seen = match found.map(Vec::from_iter) {
        Ok(addresses) if addresses.is_empty() => "no address".to_owned(),
        Ok(addresses) => return Ok(addresses),
        Err(error) => error.to_string(),
    };
    let host = &address.host;
    Err(RunError::new(format!("{address}: expected a host that has an address, seen: {seen}"))
        .transient()
        .help(format!("`getent hosts {host}` asks as we do; or write the address itself")))
}

#[cfg(test)]
mod tests {
    use reactor::disk::Model;

    use super::*;

    fn spec(uri: &str) -> Result<OpenSpec, RunError> {
        let uri = uri.parse().unwrap();
        spec_of(&DiskConfig::plain("d0".to_owned(), uri))
    }

    #[test]
    fn instruments_stand_around_what_they_change() {
        let Ok(OpenSpec::Instrumented { instrument: Instrument::Delay { us: 5 }, inner }) =
            spec("delay:5,faulty:7,ram:1MiB")
        else {
            panic!()
        };
        assert_eq!(
            *inner,
            OpenSpec::Instrumented {
                instrument: Instrument::Faulty { seed: 7 },
                inner: Box::new(OpenSpec::Ram { bytes: 1 << 20 })
            }
        );
    }

    #[test]
    fn a_model_is_read_when_its_disk_is_and_a_wrong_one_is_told_by_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.toml");
        let uri = format!("burn:1,model:{}?seed=3,ram:1MiB", path.display());
        let error = spec(&uri).unwrap_err();
        let words =
            format!("disk d0: {}: expected the file of a model, seen No such", path.display());
        assert!(error.is_transient() && error.line().starts_with(&words), "{error}");
        std::fs::write(&path, "channels = 0\n").unwrap();
        let error = spec(&uri).unwrap_err();
        let words = format!("disk d0: {}:1: channels: expected 1 to 256, seen 0", path.display());
        assert!(error.line().starts_with(&words), "{error}");
        assert!(error.line().contains("docs/configuration.md, Models"), "{error}");
        std::fs::write(&path, "channels = 3\n").unwrap();
        let Ok(OpenSpec::Instrumented { inner, .. }) = spec(&uri) else { panic!() };
        let expected = Model { channels: 3, seed: 3, ..Model::PLAIN };
        let OpenSpec::Instrumented { instrument, .. } = *inner else { panic!() };
        assert_eq!(instrument, Instrument::Model(expected));
    }

    #[test]
    fn a_name_is_looked_for_elsewhere_and_not_for_ever() {
        let local: HostPort = "localhost:4420".parse().unwrap();
        assert!(resolve(&local).unwrap().iter().all(|address| address.ip().is_loopback()));
        let nobody: HostPort = "no-such-host.invalid:4420".parse().unwrap();
        let error = resolve(&nobody).unwrap_err();
        assert!(error.is_transient() && error.line().contains("expected a host"), "{error}");

        let (tell, lookup) = mpsc::channel();
        assert!(looked_up(&lookup, &local, Duration::ZERO).is_none());
        let error = looked_up(&lookup, &local, LOOKUP_LIMIT).expect("an end").unwrap_err();
        assert!(error.is_transient() && error.line().contains("within 10 s"), "{error}");
        tell.send(Ok(vec!["127.0.0.1:1".parse().unwrap()])).unwrap();
        assert!(looked_up(&lookup, &local, LOOKUP_LIMIT).is_some_and(|found| found.is_ok()));
    }

    #[test]
    fn an_instrument_around_a_remote_disk_is_refused_by_name() {
        let error = spec("delay:5,nvme+tcp://127.0.0.1/nqn.2026-11.net.plateway:v0/1").unwrap_err();
        let words = "disk d0: expected ram:, null:, file: or a block device inside delay:, burn:, faulty: and model:, seen nvme+tcp://127.0.0.1:4420/";
        assert!(error.line().starts_with(words), "{error}");
    }
}
