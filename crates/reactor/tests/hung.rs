//! A disk that hangs delays nobody else's operation, of whatever kind.
//!
//! The disk is a file of a FUSE file system that stops answering, by direct and by cached access,
//! or a loop device over one; it is asked at full depth for reads, compares and flushes. The others
//! are ordinary files. On both engines: what a ring hands to the kernel's own workers, and what
//! goes to disk threads, must leave the others room. In a program of its own and one after the
//! other, since it starts children (see `device.rs`). Where no file system can be mounted or no
//! loop device be made, it says so and passes.

mod common;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Instant, UNIX_EPOCH};

use block::ShardId;
use common::{LoopDevice, on_each_engine, two_shards};
use contract::{DiskId, Poll};
use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    Request,
};
use reactor::Config;
use reactor::disk::{Access, Disk, OpenSpec, Tail};
use tempfile::TempDir;
use testkit::suite::{self, Note, Report};

const SIZE: u64 = 1 << 20;
const FILE: INodeNo = INodeNo(2);
/// Of each kind: more than all threads and workers that a disk may keep.
const DEPTH: u32 = 128;

/// What the file system was asked while it hangs; `None` while it answers.
type Held = Arc<Mutex<Option<Vec<Box<dyn FnOnce() + Send>>>>>;

/// A file system of one file of zeros.
struct Hanging {
    held: Held,
    access: Access,
}

impl Hanging {
    /// Answers at once, or keeps the answer back.
    fn answer(&self, answer: impl FnOnce() + Send + 'static) {
        match &mut *self.held.lock().unwrap() {
            Some(held) => held.push(Box::new(answer)),
            None => answer(),
        }
    }
}

fn attributes(inode: INodeNo) -> FileAttr {
    let is_file = inode == FILE;
    FileAttr {
        ino: inode,
        size: if is_file { SIZE } else { 0 },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_file { FileType::RegularFile } else { FileType::Directory },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Hanging {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&common::HANG, &attributes(FILE), Generation(0));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&common::HANG, &attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // A loop device reads through the page cache, which would answer in the place of who hangs.
        let flags = match self.access {
            Access::Direct => FopenFlags::FOPEN_DIRECT_IO,
            Access::Cached => FopenFlags::empty(),
        };
        // A process that ends closes what it left open, and its file system would have to answer.
        reply.opened(FileHandle(0), flags | FopenFlags::FOPEN_NOFLUSH);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.access == Access::Cached && flags.0 & libc::O_DIRECT != 0 {
            return reply.error(Errno::EINVAL);
        }
        self.answer(move || reply.data(&vec![0; size as usize]));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer(move || reply.ok());
    }
}

/// The file system, mounted in a directory beside the other files.
struct Mounted {
    session: Option<BackgroundSession>,
    held: Held,
    directory: TempDir,
}

impl Mounted {
    fn new(access: Access) -> std::io::Result<Mounted> {
        let directory = tempfile::Builder::new().prefix("plateway-hung-").tempdir()?;
        let point = directory.path().join("fuse");
        std::fs::create_dir(&point)?;
        let held = Held::default();
        let system = Hanging { held: held.clone(), access };
        let session = fuser::spawn_mount(system, point, &fuser::Config::default())?;
        Ok(Mounted { session: Some(session), held, directory })
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("fuse/file")
    }

    /// Answers nothing until what this returns is dropped.
    fn hang(&self) -> Hang<'_> {
        *self.held.lock().unwrap() = Some(Vec::new());
        Hang(self)
    }

    /// Answers all that was asked meanwhile.
    fn answer(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|answer| answer());
    }

    /// Waits until something was asked that is not answered.
    fn wait_for_question(&self) {
        let begin = Instant::now();
        while self.held.lock().unwrap().as_ref().is_none_or(Vec::is_empty) {
            assert!(begin.elapsed() < common::HANG, "it is asked nothing");
            std::thread::yield_now();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Unmounts, before the directory goes; by force where a file was left open.
        drop(self.session.take());
        let point = self.directory.path().join("fuse");
        let _ = Command::new("umount").arg("--lazy").arg(point).stderr(Stdio::null()).status();
    }
}

/// Dropped before the reactor, which waits for its threads.
struct Hang<'a>(&'a Mounted);

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.answer();
    }
}

/// Plays it with the disk that `spec` makes of the file that hangs.
fn others_are_served_while_one_hangs(mounted: &Mounted, spec: &OpenSpec, access: Access) {
    on_each_engine(|driver| {
        let (handle, arena) = common::start(&Config { driver, ..two_shards() });
        let open = |id: u32, spec: &OpenSpec| {
            let disk = Arc::new(Disk::open(spec, &arena).unwrap());
            handle.add_disk(DiskId(id), &disk, Poll::Auto);
            disk
        };
        let beside = |name| OpenSpec::File {
            path: mounted.directory.path().join(name),
            create: Some(SIZE),
            tail: Tail::Refuse,
        };
        let command = |shard, command| handle.send(shard, Note::Command(command));
        let hung = open(1, spec);
        assert_eq!(hung.access(), Some(access));
        let _zeros = open(2, &beside("zeros"));
        let _blocks = open(3, &beside("blocks"));

        let hang = mounted.hang();
        let shards = [ShardId(0), ShardId(1)];
        for shard in shards {
            command(shard, suite::Command::Pile(DiskId(1), DEPTH));
        }
        mounted.wait_for_question();
        for shard in shards {
            command(shard, suite::Command::Pile(DiskId(2), 16));
            assert_eq!(common::report(&handle), (shard, Report::Piled(DiskId(2), 3 * 16)));
            command(shard, suite::Command::Blocks(DiskId(3), 16));
            assert_eq!(common::report(&handle), (shard, Report::Blocks(16)));
        }
        drop(hang);
        let mut ended = [common::report(&handle), common::report(&handle)];
        ended.sort_by_key(|(shard, _)| shard.0);
        assert_eq!(ended, shards.map(|shard| (shard, Report::Piled(DiskId(1), 3 * DEPTH))));
    });
}

/// A reactor is stopped while a disk hangs, which it leaves open.
fn a_stop_leaves_what_hangs_alone(access: Access) {
    on_each_engine(|driver| {
        let mounted = Mounted::new(access).unwrap();
        let spec = &OpenSpec::File { path: mounted.file(), create: None, tail: Tail::Refuse };
        let (handle, arena) = common::start(&Config { driver, ..two_shards() });
        let hung = Arc::new(Disk::open(spec, &arena).unwrap());
        handle.add_disk(DiskId(1), &hung, Poll::Auto);
        let hang = mounted.hang();
        handle.send(ShardId(0), Note::Command(suite::Command::Pile(DiskId(1), DEPTH)));
        mounted.wait_for_question();
        let (told, stopped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            handle.stop();
            told.send(())
        });
        stopped.recv_timeout(common::HANG).expect("it stops");
        drop(hang);
    });
}

#[test]
fn a_disk_that_hangs_delays_no_other_disk() {
    for access in [Access::Direct, Access::Cached] {
        let mounted = match Mounted::new(access) {
            Ok(mounted) => mounted,
            Err(why) => return eprintln!("skipped: no file system can be mounted here: {why}"),
        };
        eprintln!("a file, {access:?}");
        let path = mounted.file();
        let file = OpenSpec::File { path: path.clone(), create: None, tail: Tail::Refuse };
        others_are_served_while_one_hangs(&mounted, &file, access);
        a_stop_leaves_what_hangs_alone(access);
        if access == Access::Direct {
            eprintln!("a device");
            match LoopDevice::over(&path) {
                Ok(device) => {
                    let spec = OpenSpec::BlockDevice { path: device.0.clone() };
                    others_are_served_while_one_hangs(&mounted, &spec, Access::Direct);
                }
                Err(why) => eprintln!("skipped: no loop device can be made here: {why}"),
            }
        }
    }
}
