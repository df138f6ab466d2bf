//! The kernel's face of a [`Store`]: a file system by FUSE (crate `fuser`), whose page cache is the kernel's.
//!
//! What is written waits in the page cache (`FUSE_WRITEBACK_CACHE`) and is committed when a file is closed or synced, as a
//! kernel's NFS client does; attributes are believed for 3 s of a file and 30 s of a folder, the least of its
//! `acregmin` and `acdirmin`. What is removed while it is open stays until it is closed ([`Held`]). Each thread carries out one call at a time. The root has FUSE's number, all others their inode's. Errors: the
//! store's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::held::Held;
use super::store::{Attributes, Change, Named, Result, Store};
use crate::commands::session::Interrupt;

/// How long a kernel's NFS client believes what it knows of a file, and of a folder, at least.
const FILE_BELIEVED: Duration = Duration::from_secs(3);
const FOLDER_BELIEVED: Duration = Duration::from_secs(30);
/// Calls at a time.
const THREADS: usize = 16;
/// How often it is looked whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Mounts a store; `source` is what `findmnt` says, and no call reads or writes more than so many bytes.
pub(super) fn mount(
    store: Arc<dyn Store>,
    point: &Path,
    source: &str,
    call_bytes: u32,
) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would begin another option.
        MountOption::FSName(source.replace(',', "_")),
        MountOption::NoDev,
        MountOption::NoSuid,
        // Of writes it is agreed on.
        MountOption::CUSTOM(format!("max_read={call_bytes}")),
    ];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let root = store.root();
    let (held, folders, folders_opened) = (Held::default(), Mutex::default(), AtomicU64::new(0));
    let face = Face { store, root, call_bytes, held, folders, folders_opened };
    fuser::spawn_mount(face, point, &config)
}

/// Waits until somebody unmounts it, or this process is to end, when it does so itself.
pub(super) fn wait(
    mounted: BackgroundSession,
    interrupt: &Interrupt,
    calls: &Calls<'_>,
) -> io::Result<()> {
    while !mounted.guard.is_finished() && !interrupt.is_raised() {
        calls.keep()?;
        std::thread::sleep(LOOK);
    }
    if mounted.guard.is_finished() {
        return Ok(());
    }
    mounted.umount_and_join()
}

/// How often another machine was asked, and where that is kept.
pub(super) struct Calls<'c> {
    pub(super) of: Arc<dyn Store>,
    pub(super) file: Option<&'c Path>,
}

impl Calls<'_> {
    fn keep(&self) -> io::Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        // Whoever reads it meanwhile finds the one number or the other.
        let new = file.with_extension("new");
        std::fs::write(&new, self.of.calls().to_string())?;
        std::fs::rename(new, file)
    }
}

struct Face {
    store: Arc<dyn Store>,
    root: u64,
    call_bytes: u32,
    held: Held,
    /// What is in folders that are open, as it was when somebody began to read them: who reads in pieces, and
    /// removes what was read, misses none.
    folders: Mutex<BTreeMap<u64, Arc<[Named]>>>,
    folders_opened: AtomicU64,
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn when(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

impl Face {
    /// What the store calls it.
    fn id(&self, inode: INodeNo) -> u64 {
        if inode == INodeNo::ROOT { self.root } else { inode.0 }
    }

    fn shown(&self, of: Attributes) -> (Duration, FileAttr) {
        let inode = if of.id == self.root { INodeNo::ROOT } else { INodeNo(of.id) };
        let (kind, believed) = match of.is_folder {
            true => (FileType::Directory, FOLDER_BELIEVED),
            false => (FileType::RegularFile, FILE_BELIEVED),
        };
        let attributes = FileAttr {
            ino: inode,
            size: of.size,
            blocks: of.used.div_ceil(512),
            atime: of.accessed,
            mtime: of.modified,
            ctime: of.changed,
            crtime: of.changed,
            kind,
            perm: of.mode as u16,
            nlink: of.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        (believed, attributes)
    }

    fn folders(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<[Named]>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in an open folder; from its beginning on it is asked for anew.
    fn names(&self, inode: INodeNo, handle: FileHandle, offset: u64) -> Result<Arc<[Named]>> {
        if offset > 0
            && let Some(known) = self.folders().get(&handle.0)
        {
            return Ok(Arc::clone(known));
        }
        let all: Arc<[Named]> = self.store.list(self.id(inode))?.into();
        self.folders().insert(handle.0, Arc::clone(&all));
        Ok(all)
    }

    fn entry(
        &self,
        found: Result<Attributes>,
        (folder, name): (INodeNo, &OsStr),
        reply: ReplyEntry,
    ) {
        if let Ok(found) = &found {
            self.held.see(found.id, self.id(folder), name);
        }
        match found.map(|found| self.shown(found)) {
            Ok((believed, attributes)) => reply.entry(&believed, &attributes, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attr(&self, found: Result<Attributes>, reply: ReplyAttr) {
        match found.map(|found| self.shown(found)) {
            Ok((believed, attributes)) => reply.attr(&believed, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn done(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Face {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_BIG_WRITES;
        config.add_capabilities(wanted).map_err(|_| io::ErrorKind::Unsupported)?;
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Without it calls are of 128 KiB at most.
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(self.call_bytes);
        let _ = config.set_max_background(4 * THREADS as u16);
        let _ = config.set_congestion_threshold(4 * THREADS as u16);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.store.find(self.id(parent), name), (parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, answers: u64) {
        self.held.forget(self.id(inode), answers);
    }

    fn destroy(&mut self) {
        self.held.end(&*self.store);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(self.store.attributes(self.id(inode)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (accessed.map(when), modified.map(when));
        let change = Change { mode, size, accessed, modified };
        match self.store.change(self.id(inode), change) {
            // The kernel keeps for later when a file was written. Of one that was removed meanwhile that is
            // nobody's any more, and an error would be one of whoever syncs the file system.
            Err(rustix::io::Errno::STALE | rustix::io::Errno::NOENT)
                if mode.is_none() && size.is_none() =>
            {
                self.attr(Ok(Attributes::of_removed(inode.0)), reply);
            }
            changed => self.attr(changed, reply),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.store.make_folder(self.id(parent), name, mode & !umask);
        self.entry(made, (parent, name), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.held.remove(&*self.store, self.id(parent), name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.store.remove_folder(self.id(parent), name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((self.id(parent), name), (self.id(new_parent), new_name));
        done(self.held.rename(&*self.store, from, to), reply);
    }

    /// Asks for the file, as a kernel's NFS client does; but what it learns by that is not used, as nobody else writes.
    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.store.attributes(self.id(inode)) {
            Ok(found) => {
                self.held.open(found.id);
                reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.store.create(self.id(parent), name, mode & !umask) {
            Ok(found) => {
                self.held.see(found.id, self.id(parent), name);
                self.held.open(found.id);
                let (believed, attributes) = self.shown(found);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&believed, &attributes, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.store.read(self.id(inode), offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.store.write(self.id(inode), offset, data, false) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// The kernel has written back what waited in its page cache.
    fn flush(&self, _: &Request, inode: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(self.store.settle(self.id(inode)), reply);
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        done(self.held.close(&*self.store, self.id(inode)), reply);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.store.commit(self.id(inode)), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.folders_opened.fetch_add(1, Relaxed);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders().remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let all = match self.names(inode, handle, offset) {
            Ok(all) => all,
            Err(error) => return reply.error(errno(error)),
        };
        let own = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
        ];
        let below = all.iter().map(|named| {
            let kind = if named.is_folder { FileType::Directory } else { FileType::RegularFile };
            (INodeNo(named.id), kind, &*named.name)
        });
        for (next, (inode, kind, name)) in
            (1..).zip(own.into_iter().chain(below)).skip(offset as usize)
        {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.store.room() {
            Ok((bytes, free)) => {
                reply.statfs(bytes / 4096, free / 4096, free / 4096, 0, 0, 4096, 255, 4096)
            }
            Err(error) => reply.error(errno(error)),
        }
    }
}
