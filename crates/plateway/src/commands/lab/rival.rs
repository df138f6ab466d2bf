//! Targets of others' making that the lab knows to start: Debian's `tgt` (iSCSI) and `vblade` (AoE).
//!
//! They get what our own systems get: the same blocks, at the same end, on the same CPUs, and a disk
//! that is read and written past the page cache, so that a pair differs in who serves. Memory is a file
//! without a name that the lab holds, and goes with it. What `vblade` answers is durable (`-s`), as what
//! our AoE answers; what `tgt` answers is once it was flushed, as over our iSCSI. Nothing else of theirs
//! is set. Errors: a file that cannot be made.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use lab::plan::{Program, Rival, Target};
use rustix::fs::MemfdFlags;

use super::far::{Place, TARGET_NAME};

/// Where vblade is found.
const SHELF: &str = "7";
const SLOT: &str = "1";

/// How a target of others' making is run.
pub(super) struct Commands {
    pub(super) start: Vec<String>,
    /// Succeeds once it is there.
    pub(super) ready: Option<Vec<String>>,
    /// What it is told then.
    pub(super) set_up: Vec<Vec<String>>,
    pub(super) stop: Option<Vec<String>>,
    /// The memory that it serves, if that is ours to hold.
    pub(super) holds: Option<OwnedFd>,
}

impl Commands {
    /// Those that a plan has.
    pub(super) fn of(target: &Target) -> Commands {
        let Target { start, ready, stop, .. } = target.clone();
        Commands { start, ready, set_up: Vec::new(), stop, holds: None }
    }
}

/// The programs of one, as a shell knows them.
pub(super) fn programs(program: Program) -> &'static [&'static str] {
    match program {
        Program::Tgt => &["tgtd", "tgtadm"],
        Program::Vblade => &["vblade"],
    }
}

/// What is run at the far end, in a folder of the trial's.
pub(super) fn commands(rival: &Rival, place: &Place<'_>, home: &Path) -> miette::Result<Commands> {
    let (path, holds) = disk(rival)?;
    let is_memory = holds.is_some();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let (start, ready, set_up) = match rival.program {
        Program::Vblade => {
            let past = if is_memory { "" } else { "-d -s " };
            let mut start = words(&format!("vblade {past}{SHELF} {SLOT} {}", place.interface));
            start.push(path);
            (start, None, Vec::new())
        }
        Program::Tgt => {
            // Not where a tgtd of this machine's own is asked.
            let socket = format!("TGT_IPC_SOCKET={}", home.join("tgtd").display());
            let with = |text: &str| {
                let mut all = vec!["env".to_owned(), socket.clone()];
                all.extend(words(text));
                all
            };
            let portal = SocketAddr::from((place.address, super::ISCSI_PORT));
            let ask = "tgtadm --lld iscsi --mode";
            let mut unit = with(&format!("{ask} logicalunit --op new --tid 1 --lun 1"));
            if !is_memory {
                unit.extend(words("--bsoflags direct"));
            }
            unit.extend(["--backing-store".to_owned(), path]);
            let set_up = vec![
                with(&format!("{ask} target --op new --tid 1 --targetname {TARGET_NAME}")),
                unit,
                with(&format!("{ask} target --op bind --tid 1 --initiator-address ALL")),
            ];
            let start = with(&format!("tgtd --foreground --iscsi portal={portal}"));
            (start, Some(with("tgtadm --op show --mode system")), set_up)
        }
    };
    Ok(Commands { start, ready, set_up, stop: None, holds })
}

/// How it is reached from the near end.
pub(super) fn uri(rival: &Rival, address: IpAddr, near_interface: &str) -> String {
    match rival.program {
        Program::Vblade => format!("aoe://{near_interface}/{SHELF}.{SLOT}"),
        Program::Tgt => {
            let address = SocketAddr::from((address, super::ISCSI_PORT));
            // It takes no digests unless it is told to.
            format!("iscsi://{address}/{TARGET_NAME}/1?hdgst=0&ddgst=0")
        }
    }
}

/// The file that is served, and the memory behind it if it is that; a file that is to be made is there
/// afterwards.
fn disk(rival: &Rival) -> miette::Result<(String, Option<OwnedFd>)> {
    let tell = |error: io::Error| miette::miette!("{}: {error}", rival.disk);
    match (&rival.path, rival.bytes) {
        (Some(path), Some(bytes)) => {
            match fs::File::create_new(path) {
                Ok(file) => file.set_len(bytes).map_err(tell)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(tell(error)),
            }
            let path = fs::canonicalize(path).map_err(tell)?;
            Ok((path.display().to_string(), None))
        }
        (Some(path), None) => {
            let path = fs::canonicalize(path).map_err(tell)?;
            Ok((path.display().to_string(), None))
        }
        (None, bytes) => {
            let made = rustix::fs::memfd_create("plateway-lab", MemfdFlags::CLOEXEC);
            let memory = made.map_err(io::Error::from).map_err(tell)?;
            rustix::fs::ftruncate(&memory, bytes.unwrap_or(0))
                .map_err(io::Error::from)
                .map_err(tell)?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
            Ok((path, Some(memory)))
        }
    }
}
