//! Identities of volumes that carry no label: `identities.toml` in the state directory.
//!
//! A UUID belongs to blocks, so it is kept by what holds them (`backing`): the same file or device is the same volume whatever it is called, and
//! another one under the same name is another volume. A disk that was made a moment ago, and memory, get a new one: zeros under an old identity would be wrong
//! data to whoever remembers it. The file is replaced as a whole (`state`) under a lock on the directory, so that servers may share it.
//! Errors name the file and what was seen.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::Deserialize;
use uuid::Uuid;

use super::error::RunError;
use super::state::StateDirectory;
use crate::config::text::quoted;
use crate::config::uri::DiskUri;
use crate::config::volume::parse_uuid;

const FILE: &str = "identities.toml";
const HEAD: &str = "# Identities of volumes, kept by plateway. Hosts know volumes by them: remove a line only with its volume.\n";

/// The identities of a state directory.
#[derive(Clone, Debug)]
pub(crate) struct Identities(StateDirectory);

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    volume: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Entry {
    backing: String,
    name: String,
    uuid: String,
}

impl Identities {
    pub(crate) fn new(state: StateDirectory) -> Identities {
        Identities(state)
    }

    /// The identity of the blocks behind `backing`, drawn and stored if there is none or if they are `fresh`.
    pub(crate) fn of(&self, backing: &str, name: &str, fresh: bool) -> Result<Uuid, RunError> {
        let fail = |doing: &str, error: io::Error| self.failed(name, doing, &error.to_string());
        self.0.make().map_err(|error| fail("make the directory of", error))?;
        let _lock = self.0.lock().map_err(|error| fail("lock the directory of", error))?;
        let mut entries = self.read(name)?;
        if let Some(entry) = entries.iter().find(|entry| entry.backing == backing && !fresh) {
            return self.parsed(name, entry);
        }
        let uuid = Uuid::new_v4();
        entries.retain(|entry| entry.backing != backing);
        let (backing, name) = (backing.to_owned(), name.to_owned());
        entries.push(Entry { backing, name: name.clone(), uuid: uuid.to_string() });
        let stored = self.0.replace(Path::new(FILE), &text(&entries));
        stored.map_err(|error| self.failed(&name, "write", &error.to_string()))?;
        Ok(uuid)
    }

    /// The identity that is stored for the blocks behind `backing`, if any. Changes nothing.
    pub(crate) fn stored(&self, backing: &str, name: &str) -> Result<Option<Uuid>, RunError> {
        let entries = self.read(name)?;
        let entry = entries.iter().find(|entry| entry.backing == backing);
        entry.map(|entry| self.parsed(name, entry)).transpose()
    }

    fn read(&self, name: &str) -> Result<Vec<Entry>, RunError> {
        match fs::read_to_string(self.0.path().join(FILE)) {
            Ok(text) => match toml::from_str::<Stored>(&text) {
                Ok(stored) => Ok(stored.volume),
                Err(error) => Err(self.failed(name, "understand", &error.to_string())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
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
        RunError::new(format!("volume {name}: cannot {doing} {}: {seen}", path.display()))
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
            Some(DiskUri::File { path, create_bytes: None }.to_string())
        }
        device @ DiskUri::BlockDevice { .. } => Some(device.to_string()),
        DiskUri::Remote(remote) => Some(remote.backing()),
        DiskUri::Delay { .. } | DiskUri::Faulty { .. } => None,
    }
}

fn text(entries: &[Entry]) -> String {
    let mut text = HEAD.to_owned();
    for Entry { backing, name, uuid } in entries {
        let (backing, name) = (quoted(backing), quoted(name));
        let _ =
            write!(text, "\n[[volume]]\nbacking = {backing}\nname = {name}\nuuid = \"{uuid}\"\n");
    }
    text
}

#[cfg(test)]
mod tests {
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
