//! The ends of a copy: what is to be known of them again, when they were last changed, and where a
//! file has holes.
//!
//! An end is its disk, whatever path or name leads to it. What a file or device is, its marks say
//! (`reactor::disk::marks`). **A remote disk** is known by what it answers to the question who it
//! is, and **a set** by its label. What has no identity cannot be known again, and a copy of it is
//! not resumed.
//!
//! Units: bytes. Errors: none; what cannot be found out is not known.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use block::Extent;
use lab::journal::End;
use reactor::disk::marks::Marks;
use rustix::fs::{OFlags, SeekFrom};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::config::uri::DiskUri;
use crate::run::backing::Backing;
use crate::run::identity;

/// More holes than these are copied as data: their list has to be held in memory.
const HOLES_MAX: usize = 1 << 20;
/// What all blocks divide.
const PAGE: u64 = 4096;

/// What names a disk in a journal; `None` of what the next process has no more.
pub(super) fn name_of(uri: &DiskUri, config: Option<&Path>) -> Option<String> {
    match (uri.innermost(), config) {
        (DiskUri::Volume { name }, Some(config)) => {
            Some(format!("volume:{name} of {}", one_name(config).display()))
        }
        // A pseudowire is another one's in another configuration.
        (DiskUri::Remote(remote), Some(config)) if remote.pseudowire().is_some() => {
            Some(format!("{} of {}", remote.backing(), one_name(config).display()))
        }
        (DiskUri::File { path, tail, .. }, _) => {
            let path = one_name(path);
            identity::backing(&DiskUri::File { path, create_bytes: None, tail: *tail })
        }
        // The links of udev lead to a name that another boot may give to another device.
        (DiskUri::BlockDevice { path }, _) if !path.starts_with("/dev/disk") => {
            identity::backing(&DiskUri::BlockDevice { path: one_name(path) })
        }
        _ => identity::backing(uri),
    }
}

/// The same for whichever way leads to a file, also to one that is to be made.
fn one_name(path: &Path) -> PathBuf {
    let absolute = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(parent.join(path.file_name()?))
    };
    let found = path.canonicalize().ok().or_else(absolute);
    found.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned())
}

/// The folder of the journal of a copy between two names.
pub(super) fn folder_of(source: &str, destination: &str) -> PathBuf {
    let hash = Sha256::new().chain_update(source).chain_update("\n").chain_update(destination);
    let hash = Uuid::new_v8(*hash.finalize().first_chunk().expect("16 of 32 bytes"));
    Path::new("copies").join(hash.simple().to_string())
}

/// What is seen of a disk before anybody opens it.
#[derive(Debug, Default)]
pub(super) struct Look {
    identity: Option<String>,
    /// When it was last changed: opening it may change that on some file systems.
    changed: Option<String>,
}

impl Look {
    /// Looks at a file or device of this machine; of others nothing is seen.
    pub(super) fn at(uri: &DiskUri) -> io::Result<Look> {
        let (DiskUri::File { path, .. } | DiskUri::BlockDevice { path }) = uri.innermost() else {
            return Ok(Look::default());
        };
        // Lest a FIFO keep us waiting.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Look { identity: identity_of(&file), changed: changed(&file) })
    }

    /// An end, with what was seen of it here in place of what was seen of it later or before.
    pub(super) fn over(&self, end: &End) -> End {
        let (identity, changed) = (self.identity.as_ref(), self.changed.as_ref());
        End {
            identity: identity.unwrap_or(&end.identity).clone(),
            changed: changed.or(end.changed.as_ref()).cloned(),
            ..end.clone()
        }
    }
}

/// One end of a copy, while its disk is open.
#[derive(Debug)]
pub(super) struct OpenEnd {
    /// `None` where the next process could not know it again.
    pub(super) end: Option<End>,
    /// The file or device.
    file: Option<File>,
}

impl OpenEnd {
    pub(super) fn new(name: Option<String>, backing: Backing, uuid: Uuid, bytes: u64) -> OpenEnd {
        let (identity, file) = match backing {
            Backing::Memory => (None, None),
            Backing::Open(fd) => {
                let file = File::from(fd);
                (identity_of(&file), Some(file))
            }
            Backing::Remote(identity) => (identity, None),
            Backing::Set => (Some(format!("volume {uuid}")), None),
        };
        let changed = file.as_ref().and_then(changed);
        let named = name.zip(identity);
        let end = named.map(|(name, identity)| End { name, identity, bytes, changed });
        OpenEnd { end, file }
    }

    /// When it was last changed.
    pub(super) fn changed(&self) -> Option<String> {
        changed(self.file.as_ref()?)
    }

    /// The same, of a file that is made durable with that time.
    pub(super) fn changed_durably(&self) -> Option<String> {
        self.file.as_ref()?.sync_all().ok()?;
        self.changed()
    }

    /// Bytes of a file behind the `bytes` that a disk of it has.
    pub(super) fn left_out(&self, bytes: u64) -> u64 {
        let file = self.file.as_ref().and_then(regular);
        file.map_or(0, |file| file.len().saturating_sub(bytes))
    }

    /// What of the first `bytes` was never written, in whole pages (the last may be shorter).
    pub(super) fn holes(&self, bytes: u64) -> Vec<Extent> {
        let Some(file) = self.file.as_ref().filter(|file| regular(file).is_some()) else {
            return Vec::new();
        };
        let seek = |to: SeekFrom| rustix::fs::seek(file, to);
        let (mut holes, mut at) = (Vec::new(), 0);
        while at < bytes && holes.len() < HOLES_MAX {
            let Ok(start) = seek(SeekFrom::Hole(at)) else { break };
            let end = match seek(SeekFrom::Data(start)) {
                Ok(end) => end.min(bytes),
                // No data follow.
                Err(rustix::io::Errno::NXIO) => bytes,
                Err(_) => break,
            };
            let first = start.next_multiple_of(PAGE);
            let last = if end == bytes { end } else { end - end % PAGE };
            if first < last {
                holes.push(Extent::new(first, last - first));
            }
            at = end.max(at + 1);
        }
        holes
    }
}

/// Which disk it is, as a journal has it.
fn identity_of(file: &File) -> Option<String> {
    Marks::until_boot(file).map(|marks| marks.to_string())
}

fn regular(file: &File) -> Option<Metadata> {
    file.metadata().ok().filter(Metadata::is_file)
}

/// When a file was last changed; devices do not tell.
fn changed(file: &File) -> Option<String> {
    regular(file).map(|file| format!("{}.{:09}", file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek, Write};

    use super::*;

    fn open(path: &Path, bytes: u64) -> OpenEnd {
        let fd = fs::File::options().read(true).write(true).open(path).unwrap().into();
        OpenEnd::new(Some("a".to_owned()), Backing::Open(fd), Uuid::nil(), bytes)
    }

    #[test]
    fn a_file_is_the_same_by_every_name_and_another_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
        fs::write(&a, [0; 512]).unwrap();
        fs::write(&b, [0; 512]).unwrap();
        fs::hard_link(&a, &c).unwrap();
        let identity = |path: &Path| open(path, 512).end.unwrap().identity;
        assert_eq!(identity(&a), identity(&c));
        assert_ne!(identity(&a), identity(&b));
        fs::remove_file(&a).unwrap();
        fs::rename(&b, &a).unwrap();
        assert_ne!(identity(&a), identity(&c));
    }

    #[test]
    fn a_file_that_is_written_to_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, [0; 512]).unwrap();
        let end = open(&path, 512);
        let uri = format!("file:{}", path.display()).parse().unwrap();
        let before = end.changed_durably();
        let look = Look::at(&uri).unwrap();
        assert_eq!(
            (look.identity, look.changed),
            (end.end.as_ref().map(|end| end.identity.clone()), before.clone())
        );
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let later = time + std::time::Duration::from_nanos(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_ne!(end.changed(), before);
    }

    #[test]
    fn holes_are_whole_pages_and_data_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let mut file = fs::File::create(&path).unwrap();
        file.set_len((4 << 20) + 512).unwrap();
        file.seek(std::io::SeekFrom::Start((1 << 20) + 100)).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let end = open(&path, (4 << 20) + 512);
        let holes = end.holes((4 << 20) + 512);
        if holes.is_empty() {
            println!("this file system tells of no holes");
            return;
        }
        assert!(holes.windows(2).all(|two| two[0].end() < two[1].offset), "{holes:?}");
        let data = Extent::new((1 << 20) + 100, 1 << 20);
        assert!(holes.iter().all(|hole| !hole.overlaps(data)), "{holes:?}");
        assert!(holes.iter().all(|hole| hole.offset.0 % PAGE == 0), "{holes:?}");
        assert_eq!(holes.last().unwrap().end().0, (4 << 20) + 512);
        assert_eq!(end.left_out(4 << 20), 512);
    }
}
