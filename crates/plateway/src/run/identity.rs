//! What is known of disks and of volumes that carry no label: `identities.toml` in the state
//! directory.
//!
//! A UUID belongs to blocks, so it is kept by what holds them: the same file or device is the same
//! volume whatever it is called. Of each disk of a volume is kept where it is (`backing`), what it
//! is ([`Marks`]) and its size, so that another disk under a known path, one that lost its end and
//! a file that is gone are told apart from what was served, and refused until somebody accepts
//! them. An entry without marks, as older versions wrote them, gets them when it is next served. A
//! disk that was made a moment ago, and memory, get a new UUID: zeros under an old identity would
//! be wrong data to whoever remembers it. The file is replaced as a whole (`state`) under a lock on
//! the directory, so that servers may share it. Errors name the file and what was seen. Why:
//! docs/decisions/0009-known-disks.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use block::{ByteCount, Failure};
use reactor::disk::Tail;
use reactor::disk::marks::Marks;
use serde::Deserialize;
use uuid::Uuid;

use super::error::RunError;
use super::state::StateDirectory;
use crate::config::disk::{DiskConfig, disk_title};
use crate::config::text::quoted;
use crate::config::uri::DiskUri;
use crate::config::volume::parse_uuid;

const FILE: &str = "identities.toml";
const HEAD: &str = "# Identities of volumes, kept by plateway. Hosts know volumes by them: remove a line only with its volume.\n";

/// The identities of a state directory.
#[derive(Clone, Debug)]
pub(crate) struct Identities(StateDirectory);

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
struct Stored {
    #[serde(default)]
    volume: Vec<Entry>,
    #[serde(default)]
    disk: Vec<Known>,
    #[serde(default)]
    protected: Vec<Protected>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Entry {
    backing: String,
    name: String,
    uuid: String,
}

/// A disk that a volume was served from.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Known {
    backing: String,
    name: String,
    bytes: u64,
    marks: BTreeMap<String, String>,
}

/// A disk that takes no writes until somebody reopens it, as what was written to it may be lost.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Protected {
    backing: String,
    name: String,
    /// What failed, in words.
    why: String,
}

/// The blocks of a disk of this machine, as they are now.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// As [`backing`] says.
    pub(crate) backing: String,
    pub(crate) marks: Marks,
    pub(crate) bytes: u64,
}

impl Identities {
    pub(crate) fn new(state: StateDirectory) -> Identities {
        Identities(state)
    }

    /// The identity of the blocks behind `backing`, drawn and stored if there is none or if they
    /// are `fresh`.
    pub(crate) fn of(&self, backing: &str, name: &str, fresh: bool) -> Result<Uuid, RunError> {
        let fail = |doing: &str, error: io::Error| self.failed(name, doing, &error.to_string());
        self.0.make().map_err(|error| fail("make the directory of", error))?;
        let _lock = self.0.lock().map_err(|error| fail("lock the directory of", error))?;
        let mut stored = self.read(name)?;
        if let Some(entry) = stored.volume.iter().find(|one| one.backing == backing && !fresh) {
            return self.parsed(name, entry);
        }
        let uuid = Uuid::new_v4();
        stored.volume.retain(|entry| entry.backing != backing);
        let (backing, name) = (backing.to_owned(), name.to_owned());
        stored.volume.push(Entry { backing, name: name.clone(), uuid: uuid.to_string() });
        let stored = self.0.replace(Path::new(FILE), &text(&stored));
        stored.map_err(|error| self.failed(&name, "write", &error.to_string()))?;
        Ok(uuid)
    }

    /// The identity that is stored for the blocks behind `backing`, if any. Changes nothing.
    pub(crate) fn stored(&self, backing: &str, name: &str) -> Result<Option<Uuid>, RunError> {
        let stored = self.read(name)?;
        let entry = stored.volume.iter().find(|entry| entry.backing == backing);
        entry.map(|entry| self.parsed(name, entry)).transpose()
    }

    /// By which backing the blocks of a disk are known: another than theirs where they were moved.
    /// Refuses blocks that are not those that were there, or not all of them. Changes nothing.
    pub(crate) fn recognise(&self, disk: &DiskConfig, seen: &Blocks) -> Result<String, RunError> {
        let name = &disk.name;
        let stored = self.read(name)?;
        let moved = || stored.disk.iter().find(|known| seen.marks.find(&known.marks()));
        let here = stored.disk.iter().find(|known| known.backing == seen.backing);
        let Some(known) = here.or_else(moved) else { return Ok(seen.backing.clone()) };
        if seen.marks.are(&known.marks()) == Some(false) {
            let error = RunError::unrecognised(format!(
                "disk {name}: expected {}, seen {}: another disk is where the known one was",
                known.marks(),
                seen.marks
            ));
            return Err(error.help(format!(
                "put the known one back; a name below /dev/disk/by-id stays with a device; {}",
                self.advice(disk, "where this one is meant and holds the same data")
            )));
        }
        if seen.bytes < known.bytes {
            let error = RunError::unrecognised(format!(
                "disk {name} has shrunk: expected at least {:#}, seen {:#}",
                ByteCount(known.bytes),
                ByteCount(seen.bytes)
            ));
            return Err(error.help(format!(
                "give it its former size back; {}",
                self.advice(disk, "where what lay beyond its end is given up")
            )));
        }
        Ok(known.backing.clone())
    }

    /// Why a file is not to be made: it was there.
    pub(crate) fn lost(
        &self,
        disk: &DiskConfig,
        backing: &str,
    ) -> Result<Option<RunError>, RunError> {
        let name = &disk.name;
        let stored = self.read(name)?;
        let known = stored.disk.iter().find(|known| known.backing == backing);
        if known.is_none() && !stored.volume.iter().any(|entry| entry.backing == backing) {
            return Ok(None);
        }
        let bytes =
            known.map(|known| format!(" of {}", ByteCount(known.bytes))).unwrap_or_default();
        let error = RunError::unrecognised(format!(
            "disk {name}: expected its file{bytes}, seen none: create makes a file once, and this one was there"
        ))
        .key(disk_title(name));
        Ok(Some(error.help(format!(
            "mount its file system or put it back; {}",
            self.advice(disk, "where a blank one is to take its place")
        ))))
    }

    /// What accepts a disk that is not the known one, to be typed wherever one stands.
    fn advice(&self, disk: &DiskConfig, when: &str) -> String {
        let mut uri = backing(&disk.uri).unwrap_or_else(|| disk.uri.to_string());
        if matches!(disk.uri.innermost(), DiskUri::File { tail: Tail::Ignore, .. }) {
            uri += "?tail=ignore";
        }
        let state = self.0.path();
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        let new = if when.contains("blank") { " --new" } else { "" };
        format!("{when}: plateway disks accept '{uri}' --state {}{new}", state.display())
    }

    /// From now on these blocks are known as they are seen, by their own backing instead of `key`.
    pub(crate) fn note(&self, name: &str, key: &str, seen: &Blocks) -> Result<(), RunError> {
        let current = Known {
            backing: seen.backing.clone(),
            name: name.to_owned(),
            bytes: seen.bytes,
            marks: seen.marks.0.clone(),
        };
        self.change(name, |stored| {
            let at = |backing: &str| stored.disk.iter().position(|one| one.backing == backing);
            match at(key).or_else(|| at(&seen.backing)) {
                Some(at) => stored.disk[at] = current,
                None => stored.disk.push(current),
            }
            if key != seen.backing {
                stored.volume.retain(|entry| entry.backing != seen.backing);
                let moved = stored.volume.iter_mut().filter(|entry| entry.backing == key);
                moved.for_each(|entry| entry.backing.clone_from(&seen.backing));
                let moved = stored.protected.iter_mut().filter(|entry| entry.backing == key);
                moved.for_each(|entry| entry.backing.clone_from(&seen.backing));
            }
        })
    }

    /// What is there now is what is meant: with the identity that is stored for where it is, or, as
    /// blocks that nobody knows, with none. Whether anything was known there.
    pub(crate) fn accept(
        &self,
        name: &str,
        backing: &str,
        seen: Option<&Blocks>,
    ) -> Result<bool, RunError> {
        let stored = self.read(name)?;
        let was_known = stored.volume.iter().any(|entry| entry.backing == backing)
            || stored.disk.iter().any(|known| known.backing == backing);
        self.renew(name, backing)?;
        match seen {
            Some(seen) => self.note(name, backing, seen)?,
            None => self.change(name, |stored| {
                stored.volume.retain(|entry| entry.backing != backing);
                stored.disk.retain(|known| known.backing != backing);
            })?,
        }
        Ok(was_known)
    }

    /// What failed at the blocks behind `backing`, if they take no writes since. Changes nothing.
    pub(super) fn protected(&self, backing: &str, name: &str) -> Result<Option<Failure>, RunError> {
        let stored = self.read(name)?;
        let entry = stored.protected.iter().find(|entry| entry.backing == backing);
        let failure = |entry: &Protected| {
            let known = Failure::ALL.into_iter().find(|failure| failure.to_string() == entry.why);
            known.unwrap_or(Failure::Internal)
        };
        Ok(entry.map(failure))
    }

    /// From now on, and over restarts, these blocks take no writes.
    pub(super) fn protect(
        &self,
        name: &str,
        backing: &str,
        failure: Failure,
    ) -> Result<(), RunError> {
        self.change(name, |stored| {
            if !stored.protected.iter().any(|entry| entry.backing == backing) {
                let (backing, name) = (backing.to_owned(), name.to_owned());
                stored.protected.push(Protected { backing, name, why: failure.to_string() });
            }
        })
    }

    /// They take writes again.
    pub(super) fn renew(&self, name: &str, backing: &str) -> Result<(), RunError> {
        if self.protected(backing, name)?.is_none() {
            return Ok(());
        }
        self.change(name, |stored| stored.protected.retain(|entry| entry.backing != backing))
    }

    /// The blocks behind `backing` are no volume of their own any more.
    pub(crate) fn forget_volume(&self, name: &str, backing: &str) -> Result<(), RunError> {
        if self.stored(backing, name)?.is_none() {
            return Ok(());
        }
        self.change(name, |stored| stored.volume.retain(|entry| entry.backing != backing))
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Stored)) -> Result<(), RunError> {
        let fail = |doing: &str, error: io::Error| self.failed(name, doing, &error.to_string());
        self.0.make().map_err(|error| fail("make the directory of", error))?;
        let _lock = self.0.lock().map_err(|error| fail("lock the directory of", error))?;
        let before = self.read(name)?;
        let mut stored = before.clone();
        change(&mut stored);
        if stored == before {
            return Ok(());
        }
        self.0.replace(Path::new(FILE), &text(&stored)).map_err(|error| fail("write", error))
    }

    fn read(&self, name: &str) -> Result<Stored, RunError> {
        match self.0.read(Path::new(FILE)) {
            Ok(Some(text)) => toml::from_str(&text)
                .map_err(|error| self.failed(name, "understand", &error.to_string())),
            Ok(None) => Ok(Stored::default()),
            Err(error) => Err(self.failed(name, "read", &error.to_string())),
        }
    }

    fn parsed(&self, name: &str, entry: &Entry) -> Result<Uuid, RunError> {
        parse_uuid(&entry.uuid).map_err(|expected| {
            self.failed(name, "use", &format!("expected {expected}, seen {:?}", entry.uuid))
        })
    }

    fn failed(&self, name: &str, doing: &str, seen: &str) -> RunError {
        let path = self.0.path().join(FILE);
        RunError::new(format!("{name}: cannot {doing} {}: {seen}", path.display()))
            .help("name a directory that can be written with --state or [server] state, or give the volume a uuid")
    }
}

/// What names the blocks of a disk for good; `None` where a restart loses them.
pub(crate) fn backing(uri: &DiskUri) -> Option<String> {
    match uri.innermost() {
        // A null disk holds no blocks that anybody could know again.
        DiskUri::Ram { .. } | DiskUri::Null { .. } | DiskUri::Volume { .. } => None,
        DiskUri::File { path, .. } => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Some(DiskUri::File { path, create_bytes: None, tail: Tail::Refuse }.to_string())
        }
        device @ DiskUri::BlockDevice { .. } => Some(device.to_string()),
        DiskUri::Remote(remote) => Some(remote.backing()),
        DiskUri::Instrumented { .. } => None,
    }
}

impl Known {
    fn marks(&self) -> Marks {
        Marks(self.marks.clone())
    }
}

fn text(stored: &Stored) -> String {
    let mut text = HEAD.to_owned();
    for Entry { backing, name, uuid } in &stored.volume {
        let (backing, name) = (quoted(backing), quoted(name));
        let _ =
            write!(text, "\n[[volume]]\nbacking = {backing}\nname = {name}\nuuid = \"{uuid}\"\n");
    }
    for Known { backing, name, bytes, marks } in &stored.disk {
        let (backing, name) = (quoted(backing), quoted(name));
        let marks: Vec<String> =
            marks.iter().map(|(kind, value)| format!("{kind} = {}", quoted(value))).collect();
        let marks = marks.join(", ");
        let _ = write!(
            text,
            "\n[[disk]]\nbacking = {backing}\nname = {name}\nbytes = {bytes}\nmarks = {{ {marks} }}\n"
        );
    }
    for Protected { backing, name, why } in &stored.protected {
        let (backing, name, why) = (quoted(backing), quoted(name), quoted(why));
        let _ = write!(text, "\n[[protected]]\nbacking = {backing}\nname = {name}\nwhy = {why}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_same_blocks_keep_their_identity_and_others_get_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::new(StateDirectory::new(&directory.path().join("state")));
        let first = identities.of("file:/a", "v0", false).unwrap();
        let second = identities.of("file:/b \"odd\" \\ \u{7}", "v1", false).unwrap();
        assert_ne!(first, second);
        assert_eq!(identities.of("file:/a", "renamed", false).unwrap(), first);
        assert_eq!(identities.of("file:/b \"odd\" \\ \u{7}", "v1", false).unwrap(), second);
    }

    #[test]
    fn a_disk_that_was_just_made_gets_a_new_identity() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::new(StateDirectory::new(directory.path()));
        let old = identities.of("file:/a", "v0", false).unwrap();
        let new = identities.of("file:/a", "v0", true).unwrap();
        assert_ne!(old, new);
        assert_eq!(identities.of("file:/a", "v0", false).unwrap(), new);
    }

    fn marks(list: &[(&str, &str)]) -> Marks {
        Marks(list.iter().map(|(kind, value)| ((*kind).into(), (*value).into())).collect())
    }

    fn blocks(backing: &str, serial: &str, bytes: u64) -> Blocks {
        Blocks { backing: backing.to_owned(), marks: marks(&[("serial", serial)]), bytes }
    }

    fn sda() -> DiskConfig {
        let (name, uri) = ("d0".to_owned(), "/dev/sda".parse().unwrap());
        DiskConfig::plain(name, uri)
    }

    #[test]
    fn a_disk_is_known_by_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::new(StateDirectory::new(directory.path()));
        let disk = sda();
        let (sda, sdb) = (blocks("/dev/sda", "A", 8), blocks("/dev/sdb", "B", 8));
        for seen in [&sda, &sdb] {
            identities.of(&seen.backing, "v", false).unwrap();
            assert_eq!(identities.recognise(&disk, seen).unwrap(), seen.backing);
            identities.note("d0", &seen.backing, seen).unwrap();
        }
        let first = identities.stored("/dev/sda", "v").unwrap();
        // The kernel met them in another order.
        let error = identities.recognise(&disk, &blocks("/dev/sda", "B", 8)).unwrap_err().line();
        let words = ["expected serial A, seen serial B", "disks accept '/dev/sda' --state /"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        // It is smaller, and larger.
        let error = identities.recognise(&disk, &blocks("/dev/sda", "A", 7)).unwrap_err().line();
        assert!(error.contains("has shrunk: expected at least 8 bytes, seen 7"), "{error}");
        identities.recognise(&disk, &blocks("/dev/sda", "A", 9)).unwrap();
        // Somebody wrote a name that stays with it.
        let by_id = blocks("/dev/disk/by-id/A", "A", 9);
        let key = identities.recognise(&disk, &by_id).unwrap();
        assert_eq!(key, "/dev/sda");
        identities.note("d0", &key, &by_id).unwrap();
        assert_eq!(identities.stored("/dev/disk/by-id/A", "v").unwrap(), first);
        assert_eq!(identities.stored("/dev/sda", "v").unwrap(), None);
        // What takes its place under the former name is another disk, and one that nobody knows.
        let other = blocks("/dev/sda", "C", 8);
        assert_eq!(identities.recognise(&disk, &other).unwrap(), "/dev/sda");
    }

    #[test]
    fn an_entry_of_an_older_version_is_taken_as_it_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let uuid = "5d3cf1c2-30a2-4b5e-8d62-8f1b0b8d6a11";
        let old = format!(
            "# Kept.\n\n[[volume]]\nbacking = \"/dev/sda\"\nname = \"v0\"\nuuid = \"{uuid}\"\n"
        );
        fs::write(directory.path().join(FILE), old).unwrap();
        let identities = Identities::new(StateDirectory::new(directory.path()));
        let disk = sda();
        let seen = blocks("/dev/sda", "A", 8);
        let key = identities.recognise(&disk, &seen).unwrap();
        assert_eq!(identities.of(&key, "v0", false).unwrap().to_string(), uuid);
        identities.note("d0", &key, &seen).unwrap();
        // From now on it is that disk.
        assert!(identities.recognise(&disk, &blocks("/dev/sda", "B", 8)).is_err());
        assert_eq!(identities.of(&key, "v0", false).unwrap().to_string(), uuid);
        // Its file would not be made either.
        assert!(identities.lost(&disk, "/dev/sda").unwrap().is_some());
        assert!(identities.lost(&disk, "/dev/sdb").unwrap().is_none());
    }

    #[test]
    fn what_is_accepted_keeps_the_identity_unless_it_is_new() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::new(StateDirectory::new(directory.path()));
        let disk = sda();
        let first = identities.of("/dev/sda", "v", false).unwrap();
        identities.note("d0", "/dev/sda", &blocks("/dev/sda", "A", 8)).unwrap();
        let restored = blocks("/dev/sda", "B", 4);
        assert!(identities.recognise(&disk, &restored).is_err());
        assert!(identities.accept("d0", "/dev/sda", Some(&restored)).unwrap());
        assert_eq!(identities.recognise(&disk, &restored).unwrap(), "/dev/sda");
        assert_eq!(identities.stored("/dev/sda", "v").unwrap(), Some(first));
        assert!(identities.accept("d0", "/dev/sda", None).unwrap());
        assert_eq!(identities.stored("/dev/sda", "v").unwrap(), None);
        assert!(!identities.accept("d0", "/dev/sda", None).unwrap());
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "volume = 3").unwrap();
        let error = Identities::new(StateDirectory::new(directory.path()))
            .of("file:/a", "v0", false)
            .unwrap_err();
        assert!(error.line().contains("identities.toml"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "volume = 3");
    }

    #[test]
    fn memory_has_no_identity_that_lasts() {
        assert_eq!(backing(&"delay:3,ram:1MiB".parse().unwrap()), None);
        let file = backing(&"delay:3,file:/srv/a.img?create=1MiB".parse().unwrap());
        assert_eq!(file.as_deref(), Some("file:/srv/a.img"));
        let aoe = backing(&"aoe://eth1,eth2/7.0?window=8&vlan=5".parse().unwrap());
        assert_eq!(aoe.as_deref(), Some("aoe://eth1/7.0?vlan=5"));
    }
}
