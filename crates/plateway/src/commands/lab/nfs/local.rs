//! A folder of this machine as a [`Store`], its files reached through the page cache or past it.
//!
//! Inodes are found by the paths under which they were last seen, so a file that somebody else renames is stale until
//! it is looked for again. Files that are read and written stay open, up to a bound. One mutex is held for the two tables alone, never across
//! a system call on a file's data. Errors: the system's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::opened::{Opened, Reach};
use super::store::{Attributes, Change, Named, Result, Store};

/// Files that stay open, each by two descriptors at most, of which programs may have a thousand.
const OPEN_MAX: usize = 400;

/// A folder, and what was seen below it.
pub(super) struct Local {
    base: PathBuf,
    root: u64,
    reach: Reach,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Below the base.
    paths: BTreeMap<u64, PathBuf>,
    open: BTreeMap<u64, Arc<Opened>>,
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// An inode's number as its file system has it.
fn attributes(of: &Metadata) -> Attributes {
    let time = |time: io::Result<std::time::SystemTime>| time.unwrap_or(std::time::UNIX_EPOCH);
    let changed = std::time::UNIX_EPOCH
        + std::time::Duration::new(of.ctime().max(0) as u64, of.ctime_nsec() as u32);
    Attributes {
        id: of.ino(),
        is_folder: of.is_dir(),
        mode: of.mode() & 0o7777,
        links: of.nlink() as u32,
        size: of.len(),
        used: of.blocks() * 512,
        accessed: time(of.accessed()),
        modified: time(of.modified()),
        changed,
    }
}

impl Local {
    pub(super) fn open(folder: &Path, reach: Reach) -> io::Result<Local> {
        let base = fs::canonicalize(folder)?;
        let metadata = fs::metadata(&base)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let root = metadata.ino();
        let mut seen = Seen::default();
        seen.paths.insert(root, PathBuf::new());
        Ok(Local { base, root, reach, seen: Mutex::new(seen) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path below the base.
    fn below(&self, id: u64) -> Result<PathBuf> {
        self.seen().paths.get(&id).cloned().ok_or(Errno::STALE)
    }

    /// A name in a folder, from the base on and as a whole.
    fn named(&self, folder: u64, name: &OsStr) -> Result<(PathBuf, PathBuf)> {
        let is_one = !name.is_empty()
            && name != "."
            && name != ".."
            && !name.as_encoded_bytes().contains(&b'/');
        if !is_one {
            return Err(Errno::INVAL);
        }
        let below = self.below(folder)?.join(name);
        let whole = self.base.join(&below);
        Ok((below, whole))
    }

    /// What is there now, which is known by that path from now on.
    fn see(&self, below: PathBuf) -> Result<Attributes> {
        let metadata =
            fs::symlink_metadata(self.base.join(&below)).map_err(|error| errno(&error))?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(Errno::NOTSUP);
        }
        let found = attributes(&metadata);
        self.seen().paths.insert(found.id, below);
        Ok(found)
    }

    fn file(&self, id: u64) -> Result<Arc<Opened>> {
        let path = {
            let seen = self.seen();
            if let Some(file) = seen.open.get(&id) {
                return Ok(Arc::clone(file));
            }
            seen.paths.get(&id).cloned().ok_or(Errno::STALE)?
        };
        let opened = Opened::open(&self.base.join(path), self.reach);
        let file = Arc::new(opened.map_err(|error| errno(&error))?);
        if file.file.metadata().map_err(|error| errno(&error))?.ino() != id {
            return Err(Errno::STALE);
        }
        let mut seen = self.seen();
        if seen.open.len() >= OPEN_MAX {
            seen.open.clear();
        }
        seen.open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Forgets what a name was of, and closes that.
    fn forget(&self, below: &Path) {
        let mut seen = self.seen();
        let gone: Vec<u64> =
            seen.paths.iter().filter(|(_, path)| *path == below).map(|(id, _)| *id).collect();
        for id in gone {
            seen.paths.remove(&id);
            seen.open.remove(&id);
        }
    }
}

impl Store for Local {
    fn root(&self) -> u64 {
        self.root
    }

    fn attributes(&self, id: u64) -> Result<Attributes> {
        let open = self.seen().open.get(&id).cloned();
        let metadata = match open {
            Some(opened) => opened.file.metadata(),
            None => fs::symlink_metadata(self.base.join(self.below(id)?)),
        };
        let found = attributes(&metadata.map_err(|error| errno(&error))?);
        if found.id == id { Ok(found) } else { Err(Errno::STALE) }
    }

    fn change(&self, id: u64, change: Change) -> Result<Attributes> {
        let path = self.base.join(self.below(id)?);
        let tell = |error: io::Error| errno(&error);
        if let Some(mode) = change.mode {
            fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777)).map_err(tell)?;
        }
        if let Some(size) = change.size {
            self.file(id)?.file.set_len(size).map_err(tell)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = fs::FileTimes::new();
            let times = change.accessed.map_or(times, |at| times.set_accessed(at));
            let times = change.modified.map_or(times, |at| times.set_modified(at));
            File::open(&path).and_then(|file| file.set_times(times)).map_err(tell)?;
        }
        self.attributes(id)
    }

    fn find(&self, folder: u64, name: &OsStr) -> Result<Attributes> {
        self.see(self.named(folder, name)?.0)
    }

    fn create(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes> {
        let (below, whole) = self.named(folder, name)?;
        let made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode & 0o7777)
            .open(whole);
        made.map_err(|error| errno(&error))?;
        self.see(below)
    }

    fn make_folder(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes> {
        let (below, whole) = self.named(folder, name)?;
        let made = fs::DirBuilder::new().mode(mode & 0o7777).create(whole);
        made.map_err(|error| errno(&error))?;
        self.see(below)
    }

    fn remove(&self, folder: u64, name: &OsStr) -> Result<()> {
        let (below, whole) = self.named(folder, name)?;
        let id = fs::symlink_metadata(&whole).map_err(|error| errno(&error))?.ino();
        fs::remove_file(whole).map_err(|error| errno(&error))?;
        let mut seen = self.seen();
        if seen.paths.get(&id).is_some_and(|path| *path == below) {
            seen.paths.remove(&id);
        }
        seen.open.remove(&id);
        Ok(())
    }

    fn remove_folder(&self, folder: u64, name: &OsStr) -> Result<()> {
        let (below, whole) = self.named(folder, name)?;
        fs::remove_dir(whole).map_err(|error| errno(&error))?;
        self.forget(&below);
        Ok(())
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<()> {
        let ((old, old_whole), (new, new_whole)) =
            (self.named(from.0, from.1)?, self.named(to.0, to.1)?);
        fs::rename(old_whole, new_whole).map_err(|error| errno(&error))?;
        self.forget(&new);
        // All that is below it has another path, too.
        for path in self.seen().paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(&old) {
                let moved = if rest.as_os_str().is_empty() { new.clone() } else { new.join(rest) };
                *path = moved;
            }
        }
        Ok(())
    }

    fn read(&self, id: u64, offset: u64, length: u32) -> Result<Vec<u8>> {
        self.file(id)?.read(offset, length as usize).map_err(|error| errno(&error))
    }

    fn write(&self, id: u64, offset: u64, bytes: &[u8], durable: bool) -> Result<()> {
        let opened = self.file(id)?;
        opened.write(offset, bytes).map_err(|error| errno(&error))?;
        if durable { opened.file.sync_all().map_err(|error| errno(&error)) } else { Ok(()) }
    }

    fn commit(&self, id: u64) -> Result<()> {
        self.file(id)?.file.sync_all().map_err(|error| errno(&error))
    }

    fn list(&self, folder: u64) -> Result<Vec<Named>> {
        let below = self.below(folder)?;
        let entries = fs::read_dir(self.base.join(&below)).map_err(|error| errno(&error))?;
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| errno(&error))?;
            let is_folder = entry.file_type().map_err(|error| errno(&error))?.is_dir();
            all.push(Named {
                name: entry.file_name(),
                id: std::os::unix::fs::DirEntryExt::ino(&entry),
                is_folder,
            });
        }
        // So that behind a number are the same ones, whatever comes and goes before it.
        all.sort_by_key(|named| named.id);
        Ok(all)
    }

    fn room(&self) -> Result<(u64, u64)> {
        let seen = rustix::fs::statvfs(&self.base)?;
        Ok((seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize))
    }
}
