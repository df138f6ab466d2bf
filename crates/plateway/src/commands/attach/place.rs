//! The folder of an attached disk, below `/run/plateway-attached`: what is known of it, for whoever lists,
//! detaches or clears it away.
//!
//! ```text
//!   PID/lock          held by the process as long as it lives
//!   PID/record.json   which disk, and its device once there is one
//!   PID/fuse/disk     the disk, as the kernel sees it
//! ```
//! All of it is root's alone. A folder whose lock nobody holds is left over by a process that was killed:
//! [`Place::clear`] takes away its device, what is mounted and the folder, and nothing else. Errors: what
//! cannot be made or read, with its path.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::{device, kernel};

/// Where the folders are, for all processes of this machine. Not in `/run/plateway`, which a service manager
/// takes away with the server.
const ROOT: &str = "/run/plateway-attached";

/// What is known of an attached disk.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) disk: String,
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) read_only: bool,
    /// The process that answers for it.
    pub(super) process: u32,
    /// None until there is one.
    pub(super) device: Option<PathBuf>,
    /// Why it was not detached when that was last asked for, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<Refused>,
    /// Why what was written last may not be durable, once it was detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<String>,
}

/// A wish to detach that was refused.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Refused {
    /// How many were, with this one: by it who asked knows his own.
    pub(super) number: u32,
    pub(super) why: String,
}

/// A folder.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
}

/// That this process is the one that answers.
#[derive(Debug)]
pub(super) struct Held(#[expect(dead_code, reason = "its lock is what counts")] File);

impl Place {
    /// A new one, of this process.
    pub(super) fn make() -> miette::Result<(Place, Held)> {
        let place = Place::of(std::process::id());
        let tell =
            |error: io::Error| miette::miette!("cannot make {}: {error}", place.folder.display());
        fs::DirBuilder::new().recursive(true).mode(0o755).create(ROOT).map_err(tell)?;
        let make = || fs::DirBuilder::new().mode(0o700).create(&place.folder);
        match make() {
            // Of one that had this number before.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !place.is_held() => {
                place.clear();
                make().map_err(tell)?;
            }
            made => made.map_err(tell)?,
        }
        match place.fill() {
            Ok(lock) => Ok((place, Held(lock))),
            Err(error) => {
                place.leave();
                Err(tell(error))
            }
        }
    }

    /// Makes what is in it; the lock, which is held.
    fn fill(&self) -> io::Result<File> {
        fs::create_dir(self.point())?;
        let lock = File::create(self.folder.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// That of a process.
    pub(super) fn of(process: u32) -> Place {
        Place::at(Path::new(ROOT).join(process.to_string()))
    }

    pub(super) fn at(folder: PathBuf) -> Place {
        Place { folder }
    }

    /// All there are, each with what is known of it, in the order of their processes.
    pub(super) fn all() -> Vec<(Place, Record)> {
        let Ok(folders) = fs::read_dir(ROOT) else { return Vec::new() };
        let places = folders.flatten().map(|entry| Place::at(entry.path()));
        let known = |place: Place| place.record().map(|record| (place, record));
        let mut all: Vec<(Place, Record)> = places.filter_map(known).collect();
        all.sort_by_key(|(_, record)| record.process);
        all
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the file system is mounted.
    pub(super) fn point(&self) -> PathBuf {
        self.folder.join("fuse")
    }

    /// The one file of it.
    pub(super) fn file(&self) -> PathBuf {
        self.point().join(kernel::FILE)
    }

    pub(super) fn is_there(&self) -> bool {
        self.folder.exists()
    }

    /// Whether its process lives.
    pub(super) fn is_held(&self) -> bool {
        let Ok(lock) = File::open(self.folder.join("lock")) else { return false };
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    pub(super) fn record(&self) -> Option<Record> {
        let text = fs::read_to_string(self.folder.join("record.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Replaces what is known.
    pub(super) fn put(&self, record: &Record) -> miette::Result<()> {
        let (new, path) = (self.folder.join("record.new"), self.folder.join("record.json"));
        let text = serde_json::to_string_pretty(record).expect("it has no keys that are no text");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| miette::miette!("cannot write {}: {error}", path.display()))
    }

    /// Has all requests of the kernel fail, those that wait and those that come: nobody answers them any
    /// more. Asks nobody who may be stuck.
    pub(super) fn abort(&self) {
        // A file system that is used stays mounted, but its connection is cut.
        let _ = umount2(&self.point(), MntFlags::MNT_FORCE);
    }

    /// Takes away what a process left: its device, once nobody uses it, what is mounted, the folder.
    pub(super) fn clear(&self) {
        self.abort();
        let devices = device::over(&self.file());
        devices.iter().for_each(|device| drop(device::free(device)));
        self.leave();
    }

    /// Takes away what is mounted, and the folder.
    pub(super) fn leave(&self) {
        if umount2(&self.point(), MntFlags::empty()).is_err() {
            let _ = umount2(&self.point(), MntFlags::MNT_DETACH);
        }
        // Not all that is below it: what is mounted there would be a disk.
        let _ = fs::remove_dir(self.point());
        for name in ["record.json", "record.new", "lock"] {
            let _ = fs::remove_file(self.folder.join(name));
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
