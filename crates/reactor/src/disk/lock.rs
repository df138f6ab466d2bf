//! Who has a regular file: no two servers, and no server beside QEMU.
//!
//! Servers meet by `flock`, exclusive, or shared where the file may only be read. QEMU knows
//! nothing of it: it locks single bytes by open file description (`F_OFD_SETLK`), shared ones only,
//! byte 100 + n for each permission n that it has, and byte 200 + n for each that it lets nobody
//! else have (QEMU's `block/file-posix.c`, and *Image locking* in its manual). Whoever comes locks
//! its own bytes first and then looks whether somebody has the opposite ones, so of two that come
//! at once at most one stays. We do the same, as a machine does whose disk is not shared:
//!
//! ```text
//!   permission            0 consistent read   1 write           3 resize
//!   byte if one has it    100 locked          101, if we write  103 looked at
//!   byte if one keeps it  200 looked at       201 locked        203 locked
//! ```
//!
//! No data is locked, and nobody who does not ask is held off. All locks belong to the open file
//! and go with its last descriptor. A file system without locks by open file description leaves
//! `flock` alone. Errors: [`OpenError::InUse`].

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::error::OpenError;
use super::file::system;

const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;
/// Locked by who has a permission ...
const HAD: i64 = 100;
/// ... and by who lets nobody else have it.
const KEPT: i64 = 200;

/// Locks a file for a server that reads it or also writes it.
pub(super) fn lock(path: &Path, fd: &OwnedFd, read_only: bool) -> Result<(), OpenError> {
    flock(path, fd, read_only)?;
    let had: &[i64] = if read_only { &[READ] } else { &[READ, WRITE] };
    let had = had.iter().map(|permission| HAD + permission);
    for byte in had.chain([KEPT + WRITE, KEPT + RESIZE]) {
        judged(path, ofd(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte).map(|_| false))?;
    }
    look_at_bytes(path, fd, read_only)
}

/// What [`lock`] would say now; nothing is locked afterwards.
pub(super) fn look(path: &Path, fd: &OwnedFd, read_only: bool) -> Result<(), OpenError> {
    flock(path, fd, read_only)?;
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
    look_at_bytes(path, fd, read_only)
}

fn flock(path: &Path, fd: &OwnedFd, read_only: bool) -> Result<(), OpenError> {
    let how = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(fd, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(OpenError::InUse { path: path.into(), by: "another server (it is locked)" })
        }
        Err(errno) => Err(system(path, "lock it")(errno)),
    }
}

/// Whether nobody keeps what a server needs, nor has what it keeps.
fn look_at_bytes(path: &Path, fd: &OwnedFd, read_only: bool) -> Result<(), OpenError> {
    let needed: &[i64] = if read_only { &[READ] } else { &[READ, WRITE] };
    let needed = needed.iter().map(|permission| KEPT + permission);
    for byte in needed.chain([HAD + WRITE, HAD + RESIZE]) {
        judged(path, is_locked(fd, byte))?;
    }
    Ok(())
}

fn judged(path: &Path, is_locked: Result<bool, Errno>) -> Result<(), OpenError> {
    match is_locked {
        Ok(false) => Ok(()),
        Ok(true) | Err(Errno::AGAIN | Errno::ACCESS) => Err(OpenError::InUse {
            path: path.into(),
            by: "another program that locks it as QEMU does (fuser and lslocks tell which)",
        }),
        // Not every file system has such locks.
        Err(Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(system(path, "lock it")(errno)),
    }
}

/// Whether somebody else has a lock on a byte, of whichever kind.
fn is_locked(fd: &OwnedFd, byte: i64) -> Result<bool, Errno> {
    Ok(ofd(fd, libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK)
}

/// One of the calls for locks by open file description. Returns the kind of lock that was met.
fn ofd(fd: &OwnedFd, call: libc::c_int, kind: libc::c_int, byte: i64) -> Result<i32, Errno> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the calls take a pointer to a flock, which they read and may write before they
    // return, and keep none; `lock` outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), call, &raw mut lock) } {
        -1 => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).expect("a call that failed says why"))
        }
        _ => Ok(i32::from(lock.l_type)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::super::file::{FileDisk, Rights, Tail};
    use super::super::probe::Probe;
    use super::super::tests::Directory;
    use super::*;

    fn opened(path: &Path) -> OwnedFd {
        OpenOptions::new().read(true).write(true).open(path).unwrap().into()
    }

    /// Another program that locks these bytes.
    fn locks(path: &Path, bytes: &[i64]) -> OwnedFd {
        let fd = opened(path);
        for byte in bytes {
            ofd(&fd, libc::F_OFD_SETLK, libc::F_RDLCK, *byte).unwrap();
        }
        fd
    }

    /// Those of the bytes that QEMU looks at which somebody has locked.
    fn locked(path: &Path) -> Vec<i64> {
        let fd = opened(path);
        let bytes = (100..105).chain(200..205);
        bytes.filter(|byte| is_locked(&fd, *byte).unwrap()).collect()
    }

    fn serve(path: &Path) -> Result<FileDisk, OpenError> {
        FileDisk::open_file(path, None, Tail::Refuse, Rights::Write)
    }

    fn images() -> Vec<(Directory, std::path::PathBuf)> {
        let image = |directory: Directory| {
            let path = directory.file("a.img");
            File::create(&path).unwrap().set_len(1 << 20).unwrap();
            (directory, path)
        };
        Directory::everywhere().into_iter().map(image).collect()
    }

    #[test]
    fn an_image_that_qemu_writes_or_keeps_from_writers_is_refused_until_it_lets_go() {
        for (_directory, path) in images() {
            // A machine that writes, one that only reads, and one that could resize.
            for bytes in [&[100, 101, 201, 203][..], &[100, 201], &[100, 103], &[100, 200]] {
                let other = locks(&path, bytes);
                let error = serve(&path).unwrap_err();
                assert!(matches!(error, OpenError::InUse { .. }), "{bytes:?}: {error}");
                let text = error.to_string();
                assert!(text.contains("QEMU") && text.contains("fuser"), "{text}");
                assert!(Probe::file(&path, Tail::Refuse).unwrap().in_use().is_some());
                drop(other);
                drop(serve(&path).unwrap());
            }
            // One that shares everything, as with `-U`.
            let other = locks(&path, &[100]);
            drop(serve(&path).unwrap());
            drop(other);
        }
    }

    #[test]
    fn a_served_file_is_locked_for_qemu_as_long_as_it_is_served_and_no_look_locks_it() {
        for (_directory, path) in images() {
            assert!(Probe::file(&path, Tail::Refuse).unwrap().in_use().is_none());
            assert_eq!(locked(&path), []);
            let disk = serve(&path).unwrap();
            assert_eq!(locked(&path), [100, 101, 201, 203]);
            drop(disk);
            let probe = Probe::file(&path, Tail::Refuse).unwrap();
            assert_eq!(locked(&path), []);
            drop(probe);
        }
    }

    #[test]
    fn servers_that_only_read_share_a_file_and_none_shares_it_with_a_writer() {
        for (_directory, path) in images() {
            let (first, second) = (opened(&path), opened(&path));
            lock(&path, &first, true).unwrap();
            lock(&path, &second, true).unwrap();
            assert_eq!(locked(&path), [100, 201, 203]);
            let error = serve(&path).unwrap_err().to_string();
            assert!(error.contains("another server"), "{error}");
            drop((first, second));
            let writer = locks(&path, &[100, 101]);
            let error = lock(&path, &opened(&path), true).unwrap_err().to_string();
            assert!(error.contains("QEMU"), "{error}");
            drop(writer);
        }
    }
}
