//! The state directory: what must outlive a restart, each file replaced as a whole, and who this
//! machine is to others.
//!
//! A target knows a host by its HOSTID and HOSTNQN, and admits it by them, so both follow from one
//! UUID that never changes once it is stored (`host`). It is made of `/etc/machine-id` by SHA-256,
//! since the machine's own identity is not to be shown to others (machine-id(5)); the same is so
//! found again where nothing could be stored. Errors name the file and what was seen.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use block::checksum::crc32c;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::durable::{self, System};
use super::error::RunError;
use crate::config::volume::parse_uuid;

/// The file of the machine's identity.
const HOST: &str = "host";
const HOST_HEAD: &str = "# Who this machine is to the targets of its remote disks, kept by plateway. They may admit it by this.\n";
/// What versions before the file `host` left here; whoever ran one is known by the name that it
/// made.
const OLDER: [&str; 3] = ["identities.toml", "aoe", "reservations"];

/// A directory, which need not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct StateDirectory(PathBuf);

impl StateDirectory {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Replaces a file of the directory durably; a crash leaves the old or the new one, whole.
    pub(crate) fn replace(&self, name: &Path, text: &str) -> io::Result<()> {
        if !self.0.join(HOST).exists() {
            // First, so that what is stored here is never taken for that of an older version.
            self.write(Path::new(HOST), &host_text(self.made_host()))?;
        }
        self.write(name, text)
    }

    fn write(&self, name: &Path, text: &str) -> io::Result<()> {
        durable::replace(&System, &self.0.join(name), text)
    }

    /// What a file of the directory holds, if it is there, and is there to stay.
    pub(crate) fn read(&self, name: &Path) -> io::Result<Option<String>> {
        durable::read(&System, &self.0.join(name))
    }

    /// Removes a file of the directory durably; one that is not there is removed.
    pub(crate) fn remove(&self, name: &Path) -> io::Result<()> {
        durable::remove(&System, &self.0.join(name))
    }

    /// Makes the directory, for its owner alone if it is new.
    pub(crate) fn make(&self) -> io::Result<()> {
        durable::make_directory(&System, &self.0)
    }

    /// Why nothing can be stored here, as far as that is seen without a try.
    pub(crate) fn unwritable(&self) -> Option<String> {
        let whole = std::path::absolute(&self.0).ok()?;
        // What is not there is made, in the nearest directory that is.
        let there = whole.ancestors().find(|path| path.exists())?;
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        let seen = match there.is_dir() {
            true => accessat(CWD, there, rights, AtFlags::EACCESS).err()?.to_string(),
            false => "it is no directory".to_owned(),
        };
        Some(format!(
            "state directory {}: nothing can be stored there: {}: {seen}; a change that a restart must not forget \
             (a reservation, the state of a group) is refused: let the user of the server write there, or name another \
             with --state or [server] state",
            self.0.display(),
            there.display()
        ))
    }

    /// The lock of the directory, held until the value is dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let directory = File::open(&self.0)?;
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(directory)
    }

    /// Who this machine is to targets. It is stored where it can be: from then on it stays,
    /// whatever it is made of changes to.
    pub(crate) fn host(&self) -> Result<Uuid, RunError> {
        if let Some(stored) = self.stored_host()? {
            return Ok(stored);
        }
        let host = self.made_host();
        // What cannot be stored is made again, and is the same.
        let _ = self.write(Path::new(HOST), &host_text(host));
        Ok(host)
    }

    /// Who this machine is stored as, if it is. Changes nothing.
    pub(crate) fn stored_host(&self) -> Result<Option<Uuid>, RunError> {
        let path = self.0.join(HOST);
        let fail = |doing: &str, seen: String| {
            RunError::new(format!("cannot {doing} {}: {seen}", path.display()))
                .help("targets know this machine by it: mend it, or remove it to get a new one")
        };
        match self.read(Path::new(HOST)) {
            Ok(Some(text)) => {
                let line = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
                let understood = parse_uuid(line).map_err(|expected| {
                    fail("understand", format!("expected {expected}, seen {line:?}"))
                });
                understood.map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(fail("read", error.to_string()).unpermitted())
            }
            Err(error) => Err(fail("read", error.to_string())),
        }
    }

    fn made_host(&self) -> Uuid {
        let read = |path: &str| fs::read(path).ok().filter(|bytes| !bytes.is_empty());
        let seed = read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname"));
        match (seed, OLDER.iter().any(|name| self.0.join(name).exists())) {
            (Some(seed), false) => host_of(&seed),
            (None, false) => Uuid::new_v4(),
            (seed, true) => host_of_older(seed.as_deref().unwrap_or(b"plateway")),
        }
    }
}

fn host_text(host: Uuid) -> String {
    format!("{HOST_HEAD}{host}\n")
}

fn host_of(seed: &[u8]) -> Uuid {
    let hash = Sha256::new().chain_update(b"plateway host ").chain_update(seed).finalize();
    Uuid::new_v8(*hash.first_chunk().expect("16 of 32 bytes"))
}

/// As versions made it that stored none. The words of such a name follow from one of them, so two
/// machines in 2^32 are one.
fn host_of_older(seed: &[u8]) -> Uuid {
    let mut id = [0; 16];
    for (part, place) in id.chunks_exact_mut(4).enumerate() {
        let text = [b"plateway host ", &[part as u8][..], seed].concat();
        place.copy_from_slice(&crc32c(&text).to_be_bytes());
    }
    Uuid::new_v8(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_stored_stays_whatever_it_is_made_of() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(&directory.path().join("a/b"));
        let first = state.host().unwrap();
        assert_eq!((state.host().unwrap(), first.get_version_num()), (first, 8));
        let other = "5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11";
        fs::write(state.path().join(HOST), format!("# A remark.\n{other}\n")).unwrap();
        assert_eq!(state.host().unwrap().to_string(), other);
        fs::write(state.path().join(HOST), "nobody\n").unwrap();
        let error = state.host().unwrap_err().line();
        assert!(error.contains("host: expected a UUID") && error.contains("\"nobody\""), "{error}");
        assert_eq!(fs::read_to_string(state.path().join(HOST)).unwrap(), "nobody\n");
    }

    #[test]
    fn a_machine_that_ran_an_older_version_keeps_the_name_that_targets_know() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path());
        fs::write(directory.path().join("identities.toml"), "").unwrap();
        let kept = state.host().unwrap();
        let seed = fs::read("/etc/machine-id").or_else(|_| fs::read("/proc/sys/kernel/hostname"));
        assert_eq!(kept, host_of_older(&seed.unwrap()));
        // What a new version stores makes no older one of it.
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path());
        state.replace(Path::new("identities.toml"), "").unwrap();
        assert_ne!(state.host().unwrap(), kept);
    }

    #[test]
    fn a_host_is_hashed() {
        // printf 'plateway host one' | sha256sum, with the bits of version 8 (RFC 9562, 5.8).
        assert_eq!(host_of(b"one").to_string(), "d2253270-0049-8474-b45c-58bcfd9e19cb");
        // Of a checksum each word follows from every other.
        let words = |id: Uuid| id.into_bytes().map(u32::from);
        let (one, two) = (words(host_of_older(b"one")), words(host_of_older(b"two")));
        assert_eq!(one[0] ^ two[0], one[4] ^ two[4]);
        let (one, two) = (words(host_of(b"one")), words(host_of(b"two")));
        assert_ne!(one[0] ^ two[0], one[4] ^ two[4]);
    }

    #[test]
    fn what_is_read_is_there_to_stay() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(&directory.path().join("state"));
        let name = Path::new("aoe/one");
        assert_eq!(state.read(name).unwrap(), None);
        state.replace(name, "1").unwrap();
        assert_eq!(state.read(name).unwrap().as_deref(), Some("1"));
        assert_eq!(state.read(Path::new("aoe/two")).unwrap(), None);
        // The directories of procfs cannot be synced: what is in them is not believed.
        assert!(StateDirectory::new(Path::new("/proc/self")).read(Path::new("comm")).is_err());
    }

    #[test]
    fn what_could_not_be_stored_is_seen_without_a_try() {
        let directory = tempfile::tempdir().unwrap();
        let state = |name: &str| StateDirectory::new(&directory.path().join(name));
        assert_eq!(state("a/b/c").unwritable(), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "it was tried");
        fs::write(directory.path().join("file"), "").unwrap();
        let why = state("file/state").unwritable().unwrap();
        assert!(why.contains("/file/state: nothing can be stored there: "), "{why}");
        assert!(why.contains("/file: it is no directory"), "{why}");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_removed_twice() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(&directory.path().join("state"));
        let name = Path::new("aoe/one");
        state.replace(name, "1").unwrap();
        state.replace(name, "2").unwrap();
        assert_eq!(fs::read_to_string(state.path().join(name)).unwrap(), "2");
        let left: Vec<_> = fs::read_dir(state.path().join("aoe")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        state.remove(name).unwrap();
        state.remove(name).unwrap();
        assert!(!state.path().join(name).exists());
    }
}
