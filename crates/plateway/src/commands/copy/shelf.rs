//! The folder of a copy's journal in the state directory: `copies/HASH/journal.json`, where HASH is
//! of the names of the two ends. One copy at a time has it. Errors: those of the system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lab::journal::Shelf;
use rustix::fs::FlockOperation;

use crate::run::state::StateDirectory;

#[derive(Debug)]
pub(super) struct FileShelf {
    state: StateDirectory,
    folder: PathBuf,
    /// The folder, locked.
    _lock: File,
}

impl FileShelf {
    /// The shelf in this folder of the state directory; an error of the kind
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) says that another copy has it.
    pub(super) fn open(state: &Path, folder: PathBuf) -> io::Result<FileShelf> {
        let path = state.join(&folder);
        loop {
            StateDirectory::new(&path).make()?;
            let lock = File::open(&path)?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            // Whoever had it may have removed it meanwhile.
            let there = fs::metadata(&path)
                .is_ok_and(|there| lock.metadata().is_ok_and(|lock| lock.ino() == there.ino()));
            if there {
                let state = StateDirectory::new(state);
                return Ok(FileShelf { state, folder, _lock: lock });
            }
        }
    }

    /// What is on it, if anything.
    pub(super) fn read(state: &Path, folder: &Path) -> io::Result<Option<String>> {
        match fs::read_to_string(state.join(folder).join(FILE)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

const FILE: &str = "journal.json";

impl Shelf for FileShelf {
    type Error = io::Error;

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.state.replace(&self.folder.join(FILE), text)
    }

    fn remove(&mut self) -> io::Result<()> {
        self.state.remove(&self.folder.join(FILE))
    }
}

impl Drop for FileShelf {
    fn drop(&mut self) {
        // One that holds a journal stays.
        let _ = fs::remove_dir(self.state.path().join(&self.folder));
    }
}
