//! A look at a file or block device that changes nothing: what opening it would find.
//!
//! It is opened for reading alone, never made, never locked for longer than it takes to see whether
//! somebody else has it. The facts are those that [`FileDisk`] would find, but for `discards`,
//! which only a writer can try. Reads take the kind of access that the disk itself would have, so
//! they are right beside a server that has it open. Unit: bytes. Errors: as for opening
//! ([`OpenError`]).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use block::{ByteCount, PAGE_SIZE};
use contract::{Cache, DiskFacts};
use rustix::fs::{Access as Right, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::OpenError;
use super::file::{Access, FileDisk, Tail, expect, physical_block, read_exact, refused, system};
use super::lock;
use super::marks::Marks;

/// Bytes of a page.
pub const PAGE: usize = PAGE_SIZE as usize;

/// Which blocks these are, by whatever path: two disks of one identity would destroy each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A regular file.
    File {
        /// Of the file system.
        device: u64,
        /// Of the file.
        inode: u64,
    },
    /// A block device.
    Device(u64),
    /// A file that is not there yet.
    Name {
        /// Of the folder's file system.
        device: u64,
        /// Of the folder.
        inode: u64,
        /// Its name there.
        name: OsString,
    },
}

impl Identity {
    /// Of an open file or block device.
    pub fn of(fd: impl AsFd) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Identity::Device(stat.st_rdev),
            _ => Identity::File { device: stat.st_dev, inode: stat.st_ino },
        })
    }

    fn at(path: &Path, fd: &OwnedFd) -> Result<Identity, OpenError> {
        let doing = "ask what it is";
        Identity::of(fd).map_err(|source| OpenError::System { path: path.into(), doing, source })
    }
}

/// A file or block device that is looked at.
#[derive(Debug)]
pub struct Probe {
    disk: FileDisk,
    identity: Identity,
    /// Why opening it would be refused now.
    in_use: Option<OpenError>,
}

/// Memory that direct access takes.
#[repr(align(4096))]
struct Page([u8; PAGE]);

impl Probe {
    /// Looks at a regular file.
    pub fn file(path: &Path, tail: Tail) -> Result<Probe, OpenError> {
        let fd = look(path)?;
        expect(path, &fd, FileType::RegularFile, "a regular file")?;
        let identity = Identity::at(path, &fd)?;
        let read_only = !may_write(path);
        let in_use = lock::look(path, &fd, read_only).err();
        let disk = FileDisk::of_file(path, fd, read_only, tail)?;
        Ok(Probe { disk, identity, in_use })
    }

    /// Looks at a block device.
    pub fn device(path: &Path) -> Result<Probe, OpenError> {
        let fd = look(path)?;
        expect(path, &fd, FileType::BlockDevice, "a block device")?;
        let identity = Identity::at(path, &fd)?;
        // Claimed for a moment, to see whether it can be.
        let in_use = rustix::fs::open(path, flags() | OFlags::EXCL, Mode::empty())
            .err()
            .map(|errno| refused(path, errno));
        let disk = FileDisk::of_device(path, fd, !may_write(path))?;
        Ok(Probe { disk, identity, in_use })
    }

    /// What is known of it. `read_only` says that it may not be written.
    pub fn facts(&self) -> DiskFacts {
        self.disk.facts()
    }

    /// Bytes at its end that are no whole block, and out of reach.
    pub fn tail(&self) -> u64 {
        self.disk.tail()
    }

    /// How it would be accessed.
    pub fn access(&self) -> Access {
        self.disk.access()
    }

    /// Which blocks these are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What says, boot after boot, which blocks these are.
    pub fn marks(&self) -> Marks {
        Marks::of(self.disk.fd())
    }

    /// Why opening it now would be refused, if somebody has it.
    pub fn in_use(&self) -> Option<&OpenError> {
        self.in_use.as_ref()
    }

    /// Its page at byte `at`, a multiple of a page. What is beyond its end reads as zeros.
    pub fn read_page(&self, at: u64) -> io::Result<[u8; PAGE]> {
        let mut page = Box::new(Page([0; PAGE]));
        // A size is told in whole blocks, which direct access takes.
        let there = self.facts().size.0.saturating_sub(at).min(PAGE as u64) as usize;
        read_exact(self.disk.fd(), &mut page.0[..there], at)?;
        Ok(page.0)
    }
}

/// What a file of `bytes` would be like that is made at `path`, where there is none. An error says
/// why it cannot be made.
pub fn unmade_file(path: &Path, bytes: u64) -> Result<(DiskFacts, Identity), OpenError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let fail = system(path, "make it");
    let fd = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .and_then(|fd| {
            may(folder, Right::WRITE_OK | Right::EXEC_OK)?;
            Ok(fd)
        })
        .map_err(fail)?;
    let stat = rustix::fs::fstat(&fd).map_err(system(folder, "ask what it is"))?;
    let facts = DiskFacts {
        size: ByteCount(bytes),
        // Direct access may ask for more, which shows once there is something to read.
        logical_block: 512,
        physical_block: physical_block(&fd, stat.st_dev),
        cache: Cache::Volatile,
        read_only: false,
        discards: true,
        discard_zeroes: true,
    };
    let name = path.file_name().map(Into::into).unwrap_or_default();
    Ok((facts, Identity::Name { device: stat.st_dev, inode: stat.st_ino, name }))
}

fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

fn look(path: &Path) -> Result<OwnedFd, OpenError> {
    rustix::fs::open(path, flags(), Mode::empty()).map_err(|errno| refused(path, errno))
}

fn may_write(path: &Path) -> bool {
    may(path, Right::WRITE_OK).is_ok()
}

/// By the rights that opening it takes, which capabilities widen: access(2) asks by others.
fn may(path: &Path, rights: Right) -> Result<(), Errno> {
    rustix::fs::accessat(rustix::fs::CWD, path, rights, AtFlags::EACCESS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::super::file::Rights;
    use super::super::tests::Directory;
    use super::*;

    #[test]
    fn a_look_finds_what_opening_finds_and_changes_nothing() {
        for directory in Directory::everywhere() {
            let path = directory.file("a.img");
            fs::write(&path, vec![7; 2 * PAGE + 512]).unwrap();
            let before = fs::metadata(&path).unwrap();
            let probe = Probe::file(&path, Tail::Refuse).unwrap();
            assert!(probe.in_use().is_none());
            assert_eq!(probe.read_page(PAGE as u64).unwrap(), [7; PAGE]);
            assert!(probe.read_page(2 * PAGE as u64).unwrap()[..513].ends_with(&[7, 0]));
            assert_eq!(probe.read_page(3 * PAGE as u64).unwrap(), [0; PAGE]);
            let seen = (probe.facts(), probe.access());
            let after = fs::metadata(&path).unwrap();
            assert_eq!((before.len(), before.mtime_nsec()), (after.len(), after.mtime_nsec()));
            let disk = FileDisk::open_file(&path, None, Tail::Refuse, Rights::Write).unwrap();
            let discards = disk.facts().discards;
            let facts = DiskFacts { discards, discard_zeroes: discards, ..seen.0 };
            assert_eq!((facts, seen.1), (disk.facts(), disk.access()));
        }
    }

    #[test]
    fn a_file_that_a_server_has_is_in_use_and_readable_all_the_same() {
        for directory in Directory::everywhere() {
            let path = directory.file("a.img");
            let disk =
                FileDisk::open_file(&path, Some(1 << 20), Tail::Refuse, Rights::Write).unwrap();
            let probe = Probe::file(&path, Tail::Refuse).unwrap();
            assert!(probe.in_use().is_some());
            assert_eq!(probe.read_page(0).unwrap(), [0; PAGE]);
            drop(disk);
            assert!(Probe::file(&path, Tail::Refuse).unwrap().in_use().is_none());
        }
    }

    #[test]
    fn one_file_has_one_identity_by_every_path() {
        for directory in Directory::everywhere() {
            let (a, b) = (directory.file("a"), directory.file("b"));
            let link = directory.file("here");
            std::os::unix::fs::symlink(directory.file(""), &link).unwrap();
            let named = |path: &Path| unmade_file(path, 512).unwrap().1;
            assert_eq!(named(&a), named(&link.join("a")));
            assert_ne!(named(&a), named(&b));
            fs::write(&a, [0; 4096]).unwrap();
            fs::hard_link(&a, &b).unwrap();
            let identity =
                |path: &Path| Probe::file(path, Tail::Refuse).unwrap().identity().clone();
            assert_eq!(identity(&a), identity(&b));
            assert_eq!(identity(&a), identity(&link.join("a")));
        }
    }

    #[test]
    fn what_cannot_be_is_told_as_opening_tells_it() {
        for directory in Directory::everywhere() {
            let missing = directory.file("no/a.img");
            assert!(Probe::file(&missing, Tail::Refuse).is_err());
            let error = unmade_file(&missing, 512).unwrap_err().to_string();
            assert!(error.contains("no/a.img: cannot make it"), "{error}");
            assert!(
                Probe::file(&directory.file(""), Tail::Refuse)
                    .unwrap_err()
                    .to_string()
                    .contains("a directory")
            );
            let error = Probe::device(&directory.file("x")).unwrap_err().to_string();
            assert!(error.contains("cannot open it"), "{error}");
            let empty = directory.file("empty");
            fs::write(&empty, []).unwrap();
            assert!(Probe::file(&empty, Tail::Refuse).unwrap_err().to_string().contains("0 bytes"));
        }
    }
}
