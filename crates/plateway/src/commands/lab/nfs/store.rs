//! Files as NFS and FUSE both see them: by numbers, without open files.
//!
//! A number is that of an inode, and stays as long as its file. All calls block, and may come from many threads.
//! Units: bytes. Errors: the system's numbers.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::time::SystemTime;

use rustix::io::Errno;

pub(super) type Result<T> = std::result::Result<T, Errno>;

/// What is known of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) id: u64,
    pub(super) is_folder: bool,
    /// Permissions, without the kind.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) size: u64,
    /// Bytes that it takes.
    pub(super) used: u64,
    pub(super) accessed: SystemTime,
    pub(super) modified: SystemTime,
    pub(super) changed: SystemTime,
}

impl Attributes {
    /// Of a file that is there no more.
    pub(super) fn of_removed(id: u64) -> Attributes {
        let at = SystemTime::UNIX_EPOCH;
        let (is_folder, mode, links, size, used) = (false, 0, 0, 0, 0);
        Attributes {
            id,
            is_folder,
            mode,
            links,
            size,
            used,
            accessed: at,
            modified: at,
            changed: at,
        }
    }
}

/// What is to be changed of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) accessed: Option<SystemTime>,
    pub(super) modified: Option<SystemTime>,
}

/// A name of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: OsString,
    pub(super) id: u64,
    pub(super) is_folder: bool,
}

/// Files and folders below a root.
pub(super) trait Store: Send + Sync {
    fn root(&self) -> u64;
    /// How often another machine was asked.
    fn calls(&self) -> u64 {
        0
    }
    fn attributes(&self, id: u64) -> Result<Attributes>;
    fn change(&self, id: u64, change: Change) -> Result<Attributes>;
    fn find(&self, folder: u64, name: &OsStr) -> Result<Attributes>;
    /// A file that is there already is as good.
    fn create(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes>;
    fn make_folder(&self, folder: u64, name: &OsStr, mode: u32) -> Result<Attributes>;
    fn remove(&self, folder: u64, name: &OsStr) -> Result<()>;
    fn remove_folder(&self, folder: u64, name: &OsStr) -> Result<()>;
    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<()>;
    /// Fewer bytes at the end of the file.
    fn read(&self, id: u64, offset: u64, length: u32) -> Result<Vec<u8>>;
    /// Writes all of it; with `durable`, that stays when the power fails.
    fn write(&self, id: u64, offset: u64, bytes: &[u8], durable: bool) -> Result<()>;
    /// What was written to a file stays when the power fails.
    fn commit(&self, id: u64) -> Result<()>;
    /// What closes a file waits for: of a store elsewhere, that it has committed what it was given.
    fn settle(&self, _: u64) -> Result<()> {
        Ok(())
    }
    /// All names of a folder, by their numbers, but for those of itself and of its parent.
    fn list(&self, folder: u64) -> Result<Vec<Named>>;
    /// Bytes that there are, and that are free.
    fn room(&self) -> Result<(u64, u64)>;
}
