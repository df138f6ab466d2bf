//! Files and block devices: how they are opened, locked and created, and what is truthfully known
//! of them.
//!
//! **One kind of access.** Whether a file is accessed directly (O_DIRECT) or through the page cache
//! is decided at open and never changes: mixed access to one file can read stale bytes
//! (`docs/decisions/0003-direct-or-cached.md`). Direct access is used where the file system reports
//! an alignment that we can keep (statx, `STATX_DIOALIGN`) or, where it reports none, where a
//! probing read succeeds.
//!
//! **One server.** A file is held by locks ([`lock`](super::lock)), a block device by O_EXCL, which
//! also keeps away from mounted ones. Both end with the process, however it ends.
//!
//! **Facts.** Cache: volatile, as writes lie in the page cache or in a drive's. That of a drive may
//! be switched on while it is served, so what its queue says when it is opened counts for nothing;
//! where there is none, the kernel ends a flush by itself. Logical block: the alignment of direct
//! access, else 512. Physical block: that of the device below (sysfs), else the
//! logical one. Unit: bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use block::{ByteCount, Extent, PAGE_SIZE};
use contract::{Cache, DiskFacts};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::error::OpenError;
use super::lock::lock;

/// How a file is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Past the page cache (O_DIRECT).
    Direct,
    /// Through the page cache.
    Cached,
}

/// What becomes of the end of a file that is no whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The file is refused.
    Refuse,
    /// It is out of reach: neither read nor written.
    Ignore,
}

/// What a disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Reads alone: nothing is asked of a file that could change it, nor when it was last changed.
    Read,
    /// Writes as well, where they are allowed.
    Write,
}

/// An open file or block device.
#[derive(Debug)]
pub(super) struct FileDisk {
    fd: OwnedFd,
    /// The same file, opened once more for flushes. Linux tells an error of writing back once to
    /// each open file (errseq), so a durable write that fails beside a flush does not take the
    /// error that the flush must see.
    flushes: OwnedFd,
    device: bool,
    /// Whether a call may sleep where it is handed to a ring.
    sleeps: bool,
    access: Access,
    size: AtomicU64,
    /// As it was opened: the size may have changed since.
    facts: DiskFacts,
    /// What went wrong last, and where, the latest last; nowhere for a flush.
    errors: Mutex<VecDeque<(Option<Extent>, Errno)>>,
}

/// Errors that are kept for whoever tells people of them.
const ERRORS_KEPT: usize = 64;

/// `TMPFS_MAGIC` and `RAMFS_MAGIC`: their direct access, where accepted, goes through the page
/// cache all the same.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// File systems that let a call which is handed to a ring wait for its device elsewhere: those in
/// memory, ext4, XFS, Btrfs and F2FS. The files of others are asked by disk threads alone: handed
/// to a ring, a call to FUSE sleeps until its server answers, and holds the shard up.
const RING_FILE_SYSTEMS: [u64; 6] =
    [MEMORY_FILE_SYSTEMS[0], MEMORY_FILE_SYSTEMS[1], 0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
/// `_IO(0x12, 119)`.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;

impl FileDisk {
    /// Opens a regular file; with `create`, makes one of that size where there is none. One that is
    /// there must have that size.
    pub(super) fn open_file(
        path: &Path,
        create: Option<u64>,
        tail: Tail,
        rights: Rights,
    ) -> Result<FileDisk, OpenError> {
        if let Some(bytes) = create.filter(|bytes| *bytes == 0 || !bytes.is_multiple_of(512)) {
            return Err(OpenError::BadSize { what: path.display().to_string(), bytes });
        }
        let missing = create.is_some() && is_missing(path);
        // What is made is written.
        let (creating, rights) = match missing {
            true => (OFlags::CREATE, Rights::Write),
            false => (OFlags::empty(), rights),
        };
        let (fd, read_only) = open(path, OFlags::CLOEXEC | creating, rights)?;
        expect(path, &fd, FileType::RegularFile, "a regular file")?;
        lock(path, &fd, read_only)?;
        let Some(expected) = create else { return Self::of_file(path, fd, read_only, tail) };
        let stat = rustix::fs::fstat(&fd).map_err(system(path, "ask for its size"))?;
        // Somebody else may have made it meanwhile.
        let made = missing && stat.st_size == 0;
        let opened = || {
            if made {
                rustix::fs::ftruncate(&fd, expected)
                    .map_err(system(path, "make it as large as asked"))?;
            }
            let disk = Self::of_file(path, fd, read_only, tail)?;
            let seen = disk.facts().size.0;
            if seen != expected {
                return Err(OpenError::OtherSize { path: path.into(), expected, seen });
            }
            make_durable(path, &disk.fd)?;
            Ok(disk)
        };
        opened().inspect_err(|_| {
            if made {
                // Where the path is a link, the file that it leads to was made.
                let _ = path.canonicalize().and_then(std::fs::remove_file);
            }
        })
    }

    /// An open regular file as a disk.
    pub(super) fn of_file(
        path: &Path,
        fd: OwnedFd,
        read_only: bool,
        tail: Tail,
    ) -> Result<FileDisk, OpenError> {
        let stat = rustix::fs::fstat(&fd).map_err(system(path, "ask for its size"))?;
        let (access, alignment) =
            if is_on(&fd, &MEMORY_FILE_SYSTEMS) { (Access::Cached, 1) } else { choose_access(&fd) };
        let logical = alignment.max(512);
        let physical = physical_block(&fd, stat.st_dev);
        let seen = stat.st_size as u64;
        let discards = !read_only && punches_holes(&fd, seen);
        if tail == Tail::Refuse && !seen.is_multiple_of(u64::from(logical)) {
            return Err(OpenError::Ragged { path: path.into(), seen, block: logical });
        }
        let facts = DiskFacts {
            size: ByteCount(seen),
            logical_block: logical,
            physical_block: physical.max(logical),
            cache: Cache::Volatile,
            read_only,
            discards,
            discard_zeroes: discards,
        };
        Self::of(path, fd, false, access, facts)
    }

    /// Opens a block device that nobody else uses.
    pub(super) fn open_device(path: &Path, rights: Rights) -> Result<FileDisk, OpenError> {
        let (fd, read_only) = open(path, OFlags::CLOEXEC | OFlags::EXCL, rights)?;
        expect(path, &fd, FileType::BlockDevice, "a block device")?;
        Self::of_device(path, fd, read_only)
    }

    /// An open block device as a disk.
    pub(super) fn of_device(
        path: &Path,
        fd: OwnedFd,
        read_only: bool,
    ) -> Result<FileDisk, OpenError> {
        let stat = rustix::fs::fstat(&fd).map_err(system(path, "ask what it is"))?;
        let size =
            rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(system(path, "ask for its size"))?;
        let logical = rustix::fs::ioctl_blksszget(&fd)
            .map_err(system(path, "ask for its block size"))?
            .max(512);
        let physical = rustix::fs::ioctl_blkpbszget(&fd).unwrap_or(logical).max(logical);
        let (access, alignment) = choose_access(&fd);
        let logical = logical.max(alignment);
        let discards = !read_only
            && queue_number(stat.st_rdev, "discard_max_bytes").is_some_and(|bytes| bytes > 0);
        let facts = DiskFacts {
            size: ByteCount(size),
            logical_block: logical,
            physical_block: physical.max(logical),
            cache: Cache::Volatile,
            read_only,
            discards,
            // BLKDISCARD promises nothing about what is read afterwards.
            discard_zeroes: false,
        };
        Self::of(path, fd, true, access, facts)
    }

    fn of(
        path: &Path,
        fd: OwnedFd,
        device: bool,
        access: Access,
        facts: DiskFacts,
    ) -> Result<FileDisk, OpenError> {
        let bytes = facts.size.0;
        if bytes < u64::from(facts.logical_block) {
            return Err(OpenError::BadSize { what: path.display().to_string(), bytes });
        }
        let flushes = open_again(&fd).map_err(system(path, "open it for flushes"))?;
        let sleeps = !device && !is_on(&fd, &RING_FILE_SYSTEMS);
        Ok(FileDisk {
            fd,
            flushes,
            device,
            sleeps,
            access,
            size: AtomicU64::new(bytes),
            facts,
            errors: Mutex::default(),
        })
    }

    /// What is known of it at present. It is told without a last block that is not
    /// whole: that of a [`Tail::Ignore`], or of another end that it was since given from outside.
    #[inline]
    pub(super) fn facts(&self) -> DiskFacts {
        let size = self.size.load(Ordering::Relaxed);
        let logical = u64::from(self.facts.logical_block);
        DiskFacts { size: ByteCount(size - size % logical), ..self.facts.clone() }
    }

    /// Bytes at its end that are no whole block.
    pub(super) fn tail(&self) -> u64 {
        self.size.load(Ordering::Relaxed) - self.facts().size.0
    }

    /// Looks at the size again.
    pub(super) fn refresh(&self) -> io::Result<()> {
        self.size.store(self.look_at_size()?, Ordering::Relaxed);
        Ok(())
    }

    /// The size that it has by now, in whole blocks.
    pub(super) fn size_now(&self) -> io::Result<ByteCount> {
        let size = self.look_at_size()?;
        Ok(ByteCount(size - size % u64::from(self.facts.logical_block)))
    }

    fn look_at_size(&self) -> io::Result<u64> {
        Ok(match self.device {
            true => rustix::fs::seek(&self.fd, SeekFrom::End(0))?,
            false => rustix::fs::fstat(&self.fd)?.st_size as u64,
        })
    }

    /// Keeps what the system said of something that went wrong.
    pub(super) fn note_error(&self, extent: Option<Extent>, errno: Errno) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == ERRORS_KEPT {
            errors.pop_front();
        }
        errors.push_back((extent, errno));
    }

    /// What the system said last of something that went wrong there.
    pub(super) fn error_at(&self, extent: Option<Extent>) -> Option<Errno> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().rev().find(|(at, _)| *at == extent).map(|(_, errno)| *errno)
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor for flushes.
    pub(super) fn flushes(&self) -> BorrowedFd<'_> {
        self.flushes.as_fd()
    }

    /// Goes through the page cache from here on, whatever its file system could do: before anything was
    /// asked of it, since access is of one kind.
    pub(super) fn through_page_cache(&mut self) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        rustix::fs::fcntl_setfl(&self.fd, flags - OFlags::DIRECT)?;
        self.access = Access::Cached;
        Ok(())
    }

    pub(super) fn is_direct(&self) -> bool {
        self.access == Access::Direct
    }

    /// Whether a call may sleep where it is handed to a ring.
    #[inline]
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps
    }

    pub(super) fn is_device(&self) -> bool {
        self.device
    }

    /// Tells a block device that a range is of no interest. Sleeps.
    pub(super) fn discard_device(&self, extent: Extent) -> Result<(), Errno> {
        let range = [extent.offset.0, extent.length.0];
        // SAFETY: BLKDISCARD reads two u64, the start and the length of the range, and keeps no
        // pointer to them.
        unsafe {
            let discard = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new(range);
            rustix::ioctl::ioctl(&self.fd, discard)
        }
    }
}

/// Opens for reading and writing, or for reading alone where writing is neither allowed nor wanted;
/// says whether it is for reading alone.
fn open(path: &Path, flags: OFlags, rights: Rights) -> Result<(OwnedFd, bool), OpenError> {
    // O_NONBLOCK, lest a FIFO keep us waiting. It goes at once: io_uring would answer EAGAIN
    // instead of sleeping for us.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::RUSR | Mode::WUSR;
    let wanted = match rights {
        Rights::Read => OFlags::RDONLY,
        Rights::Write => OFlags::RDWR,
    };
    let opened = match rustix::fs::open(path, flags | wanted, mode) {
        Ok(fd) => Ok((fd, rights == Rights::Read)),
        Err(first @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)) => {
            match rustix::fs::open(path, (flags - OFlags::CREATE) | OFlags::RDONLY, mode) {
                // It is not there because it could not be made.
                Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Err(first),
                opened => opened.map(|fd| (fd, true)),
            }
        }
        Err(errno) => Err(errno),
    };
    let (fd, read_only) = opened.map_err(|errno| refused(path, errno))?;
    rustix::fs::fcntl_getfl(&fd)
        .and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK))
        .map_err(system(path, "set its flags"))?;
    Ok((fd, read_only))
}

/// Another open file of what `fd` is; without /proc, the same.
fn open_again(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let access = rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
        opened => opened,
    }
}

/// Fills `into` from `offset` on. What ends before is an error.
pub(super) fn read_exact(
    fd: BorrowedFd<'_>,
    mut into: &mut [u8],
    mut offset: u64,
) -> Result<(), Errno> {
    while !into.is_empty() {
        match rustix::io::pread(fd, &mut *into, offset) {
            Ok(0) => return Err(Errno::NODATA),
            Ok(count) => (into, offset) = (&mut into[count..], offset + count as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(super) fn refused(path: &Path, errno: Errno) -> OpenError {
    match errno {
        Errno::BUSY => OpenError::InUse {
            path: path.into(),
            by: "another program, a mount or the kernel (it is open exclusively)",
        },
        Errno::ISDIR => {
            OpenError::Kind { path: path.into(), expected: "a file", seen: "a directory" }
        }
        errno => system(path, "open it")(errno),
    }
}

pub(super) fn system(path: &Path, doing: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |errno| OpenError::System { path: path.into(), doing, source: errno.into() }
}

pub(super) fn expect(
    path: &Path,
    fd: &OwnedFd,
    wanted: FileType,
    expected: &'static str,
) -> Result<(), OpenError> {
    let stat = rustix::fs::fstat(fd).map_err(system(path, "ask what it is"))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == wanted {
        return Ok(());
    }
    let seen = match kind {
        FileType::RegularFile => "a regular file (write file:PATH)",
        FileType::BlockDevice => "a block device (write its path without file:)",
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        _ => "something else",
    };
    Err(OpenError::Kind { path: path.into(), expected, seen })
}

/// Whether there is nothing at a path, so that opening it with `create` makes a file.
pub fn is_missing(path: &Path) -> bool {
    rustix::fs::stat(path).is_err_and(|errno| errno == Errno::NOENT)
}

/// Makes a file and its name durable.
fn make_durable(path: &Path, fd: &OwnedFd) -> Result<(), OpenError> {
    // Also when it was there: it may have been made a moment before a crash.
    rustix::fs::fsync(fd).map_err(system(path, "make it durable"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // A directory that may be searched but not read cannot be synced; whoever set it up so accepts
    // that.
    if let Ok(directory) = File::open(directory) {
        match rustix::fs::fsync(&directory) {
            // Some file systems have nothing to sync in a directory.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(system(path, "make its name durable")(errno)),
        }
    }
    Ok(())
}

/// Decides on direct or cached access, sets the descriptor so, and says which alignment the access
/// needs (1 if none).
fn choose_access(fd: &OwnedFd) -> (Access, u32) {
    match try_direct(fd) {
        Some(alignment) => (Access::Direct, alignment),
        None => {
            // Whether it was set or not, it is not now.
            if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
                let _ = rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT);
            }
            (Access::Cached, 1)
        }
    }
}

/// The alignment of offsets and lengths that direct access needs, with O_DIRECT set; `None` where
/// it is not to be had.
fn try_direct(fd: &OwnedFd) -> Option<u32> {
    let reported = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    if let Some(stat) = reported {
        // Pages are aligned to 4096, and within a page a payload lies as on the disk: memory is
        // aligned as the offset is. 0 means none.
        let fits = |alignment: u32| (1..=PAGE_SIZE).contains(&alignment);
        if !fits(stat.stx_dio_mem_align) || !fits(stat.stx_dio_offset_align) {
            return None;
        }
    }
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).ok()?;
    let alignment = match reported {
        Some(stat) => {
            let alignment = stat.stx_dio_offset_align.max(stat.stx_dio_mem_align).max(512);
            probe(fd, alignment as usize).then_some(alignment)?
        }
        None => [512u32, PAGE_SIZE].into_iter().find(|alignment| probe(fd, *alignment as usize))?,
    };
    Some(alignment)
}

/// Whether a read of `length` bytes, from offset `length` to memory that is aligned to no more than
/// `length`, is accepted. At the end of the file it is accepted, too.
fn probe(fd: &OwnedFd, length: usize) -> bool {
    #[repr(align(4096))]
    struct Aligned([u8; 2 * PAGE_SIZE as usize]);
    let mut memory = Box::new(Aligned([0; 2 * PAGE_SIZE as usize]));
    let into = &mut memory.0[length % PAGE_SIZE as usize..][..length];
    rustix::io::pread(fd, into, length as u64).is_ok()
}

/// Whether a regular file lies on one of these file systems. Of a device this would say where its
/// node lies, which is in memory on every machine.
fn is_on(fd: &OwnedFd, systems: &[u64]) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|system| systems.contains(&(system.f_type as u64)))
}

/// What is written atomically on the file system of `fd`, which lies on block device `device`: that
/// device's physical block; in memory, a page.
pub(super) fn physical_block(fd: &OwnedFd, device: u64) -> u32 {
    match is_on(fd, &MEMORY_FILE_SYSTEMS) {
        true => PAGE_SIZE,
        false => queue_number(device, "physical_block_size").unwrap_or(512),
    }
}

/// Whether the file system can punch holes: tried behind the end, where it changes nothing.
fn punches_holes(fd: &OwnedFd, size: u64) -> bool {
    let behind = size.next_multiple_of(1 << 20);
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, mode, behind, u64::from(PAGE_SIZE)).is_ok()
}

/// A number of the queue of the block device that `device` (or, for a partition, the disk that it
/// is part of) names.
fn queue_number(device: u64, name: &str) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
        std::fs::read_to_string(path).ok()
    });
    let number: u64 = text?.trim().parse().ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
