//! What the kernel is shown of an attached disk: a file system of one file, by FUSE (crate `fuser`), whose
//! requests go to the machine that asks the volume, and whose answers come from there.
//!
//! The file is opened past the page cache, and the kernel sends requests of many at once
//! (`FUSE_ASYNC_DIO`); this thread only hands them on. Units: bytes; requests are whole blocks, which a
//! loop device keeps and others are refused for. A cleared range reads as zeros afterwards, whichever of
//! the two kinds of `fallocate` a loop device makes of it: a discard and a write of zeros that may give
//! space back look the same. Errors are those of the system: no room, not supported, refused, and all
//! others an I/O error.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use block::{Extent, Failure, Outcome};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    WriteFlags,
};
use lab::attached::{Answer, Asked, DEPTH, Inbox, REQUEST_MAX, Wish};

/// What the one file is called.
pub(super) const FILE: &str = "disk";
const ROOT: INodeNo = INodeNo::ROOT;
const DISK: INodeNo = INodeNo(2);
/// Nothing of it changes.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// What tells the shard that there is something to look for.
pub(super) type Knock = Arc<dyn Fn() + Send + Sync>;

/// The disk, as the kernel sees it.
pub(super) struct Disk {
    pub(super) inbox: Arc<Inbox<KernelAnswer>>,
    pub(super) knock: Knock,
    pub(super) bytes: u64,
    pub(super) block: u32,
    pub(super) read_only: bool,
    /// Whether clearing gives space back, and is not writing in disguise.
    pub(super) clears: bool,
}

impl Disk {
    /// Mounts it at `point`; `source` is what `findmnt` says.
    pub(super) fn mount(self, point: &Path, source: &str) -> io::Result<BackgroundSession> {
        let mut config = Config::default();
        // A comma would begin another option.
        config.mount_options = vec![
            MountOption::FSName(source.replace(',', "_")),
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        fuser::spawn_mount(self, point, &config)
    }

    fn ask(&self, wish: Wish, answer: KernelAnswer) {
        if self.inbox.push(Asked { wish, answer }) {
            (self.knock)();
        }
    }

    /// What is asked for, if it is whole blocks of the disk.
    fn extent(&self, offset: u64, length: u64) -> Option<Extent> {
        let block = u64::from(self.block);
        let is_whole = offset.is_multiple_of(block) && length.is_multiple_of(block);
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.bytes);
        (is_whole && fits && length > 0).then(|| Extent::new(offset, length))
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            ROOT => (FileType::Directory, 0o700, 0),
            DISK => (FileType::RegularFile, if self.read_only { 0o400 } else { 0o600 }, self.bytes),
            _ => return None,
        };
        let at: SystemTime = UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// Whom the kernel waits for.
#[derive(Debug)]
pub(super) enum KernelAnswer {
    Read(ReplyData),
    Written(ReplyWrite, u32),
    Done(ReplyEmpty),
}

impl Answer for KernelAnswer {
    fn read(self, bytes: &[u8]) {
        match self {
            KernelAnswer::Read(reply) => reply.data(bytes),
            other => other.fail(Errno::EIO),
        }
    }

    fn done(self) {
        match self {
            KernelAnswer::Read(reply) => reply.data(&[]),
            KernelAnswer::Written(reply, length) => reply.written(length),
            KernelAnswer::Done(reply) => reply.ok(),
        }
    }

    fn failed(self, outcome: Outcome) {
        self.fail(match outcome.failure() {
            Some(Failure::NoSpace) => Errno::ENOSPC,
            Some(Failure::Unsupported) => Errno::EOPNOTSUPP,
            Some(Failure::WriteProtected) => Errno::EROFS,
            Some(Failure::OutOfRange) => Errno::EINVAL,
            _ => Errno::EIO,
        });
    }
}

impl KernelAnswer {
    fn fail(self, error: Errno) {
        match self {
            KernelAnswer::Read(reply) => reply.error(error),
            KernelAnswer::Written(reply, _) => reply.error(error),
            KernelAnswer::Done(reply) => reply.error(error),
        }
    }
}

impl Filesystem for Disk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_BIG_WRITES;
        config.add_capabilities(wanted).map_err(|_| io::ErrorKind::Unsupported)?;
        // Without it requests are of 128 KiB at most.
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(DEPTH as u16);
        let _ = config.set_congestion_threshold(DEPTH as u16);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(attributes) if parent == ROOT && name == FILE => {
                reply.entry(&FOR_EVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let all = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, FILE),
        ];
        for (next, (inode, kind, name)) in (1..).zip(all).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // A loop device takes the block for the unit of a discard.
        reply.statfs(self.bytes / 4096, 0, 0, 1, 0, 4096, 255, 4096);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
        if inode != DISK || (writes && self.read_only) {
            return reply.error(if inode == DISK { Errno::EROFS } else { Errno::EISDIR });
        }
        let past = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), past | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if offset >= self.bytes {
            return reply.data(&[]);
        }
        let length = u64::from(size).min(self.bytes - offset);
        match self.extent(offset, length) {
            Some(extent) => self.ask(Wish::Read(extent), KernelAnswer::Read(reply)),
            None => reply.error(Errno::EINVAL),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len() as u32;
        if self.read_only || length > REQUEST_MAX || self.extent(offset, length.into()).is_none() {
            return reply.error(if self.read_only { Errno::EROFS } else { Errno::EINVAL });
        }
        let mut bytes = self.inbox.spare();
        bytes.extend_from_slice(data);
        self.ask(Wish::Write { offset, bytes }, KernelAnswer::Written(reply, length));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = mode & !libc::FALLOC_FL_KEEP_SIZE;
        let deallocate = match mode {
            libc::FALLOC_FL_PUNCH_HOLE if self.clears => true,
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let extent = self.extent(offset, length);
        match extent.filter(|_| !self.read_only) {
            Some(extent) => {
                self.ask(Wish::Clear { extent, deallocate }, KernelAnswer::Done(reply));
            }
            None => reply.error(if self.read_only { Errno::EROFS } else { Errno::EINVAL }),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(Wish::Flush, KernelAnswer::Done(reply));
    }
}
