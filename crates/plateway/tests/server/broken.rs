//! Disks of a file system that gives errors and hangs when it is told to: labels that cannot be
//! read, written or made durable, sizes that cannot be asked for, and a disk that is opened anew.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FlockOperation, flock};

use crate::client::{BLOCK, Batch, Controller, Kind};
use crate::common::{HANG, Server, configuration, flat, own_configuration, plateway};

const SIZE: u64 = 8 << 20;

/// What gives an error; where the answer to a read is kept back.
#[derive(Default)]
struct Broken {
    kinds: BTreeSet<&'static str>,
    held: Option<Vec<Box<dyn FnOnce() + Send>>>,
}

/// The files `a.img` and `b.img`, of which each holds what was written.
struct Files {
    broken: Arc<Mutex<Broken>>,
    bytes: [Mutex<Vec<u8>>; 2],
}

impl Files {
    fn errs(&self, kind: &str) -> bool {
        self.broken.lock().unwrap().kinds.contains(kind)
    }

    fn bytes(&self, inode: INodeNo) -> &Mutex<Vec<u8>> {
        &self.bytes[inode.0 as usize - 2]
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode.0 > 1;
        FileAttr {
            ino: inode,
            size: if is_file { self.bytes(inode).lock().unwrap().len() as u64 } else { 0 },
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
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some("a.img" | "b.img") => {
                let inode = INodeNo(if name == "a.img" { 2 } else { 3 });
                reply.entry(&Duration::ZERO, &self.attributes(inode), Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match inode.0 > 1 && self.errs("getattr") {
            true => reply.error(Errno::EIO),
            false => reply.attr(&Duration::ZERO, &self.attributes(inode)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if self.errs("setattr") {
            return reply.error(Errno::EFBIG);
        }
        if let Some(size) = size {
            self.bytes(inode).lock().unwrap().resize(size as usize, 0);
        }
        reply.attr(&Duration::ZERO, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // A process that ends closes what it left open, and its file system would have to answer.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
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
        let bytes = self.bytes(inode).lock().unwrap();
        let end = bytes.len().min(offset as usize + size as usize);
        let data = bytes[end.min(offset as usize)..end].to_vec();
        let Broken { kinds, held } = &mut *self.broken.lock().unwrap();
        match held {
            Some(held) => held.push(Box::new(move || reply.data(&data))),
            None if kinds.contains("read") => reply.error(Errno::EIO),
            None => reply.data(&data),
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
        if self.errs("write") {
            return reply.error(Errno::EIO);
        }
        let mut bytes = self.bytes(inode).lock().unwrap();
        bytes[offset as usize..][..data.len()].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.errs("fsync") { reply.error(Errno::EIO) } else { reply.ok() }
    }
}

/// The file system, mounted at `fuse` in a directory.
struct Mounted {
    session: Option<BackgroundSession>,
    broken: Arc<Mutex<Broken>>,
    home: tempfile::TempDir,
}

impl Mounted {
    /// None where nothing can be mounted.
    fn new() -> Option<Mounted> {
        let home = tempfile::tempdir().unwrap();
        let point = home.path().join("fuse");
        std::fs::create_dir(&point).unwrap();
        let broken = Arc::<Mutex<Broken>>::default();
        let bytes = [(); 2].map(|()| Mutex::new(vec![0; SIZE as usize]));
        let files = Files { broken: broken.clone(), bytes };
        match fuser::spawn_mount(files, point, &fuser::Config::default()) {
            Ok(session) => Some(Mounted { session: Some(session), broken, home }),
            Err(why) => {
                testkit::skipped(format_args!("no file system can be mounted: {why}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    /// These give errors from now on, and no others.
    fn breaks(&self, kinds: &[&'static str]) {
        self.broken.lock().unwrap().kinds = kinds.iter().copied().collect();
    }

    /// Answers no read until what this returns is dropped, which is before the server ends.
    fn hang(&self) -> Hang<'_> {
        self.broken.lock().unwrap().held = Some(Vec::new());
        Hang(self)
    }
}

struct Hang<'a>(&'a Mounted);

impl Hang<'_> {
    fn wait_for_question(&self) {
        let begin = Instant::now();
        while self.0.broken.lock().unwrap().held.as_ref().is_none_or(Vec::is_empty) {
            assert!(begin.elapsed() < HANG, "it is asked nothing");
            std::thread::yield_now();
        }
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        let held = self.0.broken.lock().unwrap().held.take();
        held.into_iter().flatten().for_each(|answer| answer());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Unmounts, before the directory goes; by force where a file was left open.
        drop(self.session.take());
        let point = self.home.path().join("fuse");
        let _ = Command::new("umount").arg("--lazy").arg(point).stderr(Stdio::null()).status();
    }
}

const STRIPE: (&str, &str) = ("s", "layout = \"stripe\"\ndisks = [\"a\", \"b\"]");

#[test]
fn a_label_that_cannot_be_read_written_made_durable_or_wiped_is_told_with_its_disk() {
    let Some(mounted) = Mounted::new() else { return };
    let here = mounted.path();
    let disks = [("a", "file:fuse/a.img"), ("b", "file:fuse/b.img")];
    let set = own_configuration(here, &disks, &[STRIPE]);
    let required = set.replace("\nuri =", "\nrequired = true\nuri =");
    let refused = |kind| {
        mounted.breaks(&[kind]);
        Server::try_configured(here, &required, &[]).err().expect("it starts")
    };
    let said = refused("read");
    assert!(said.contains("disk a: cannot read 4096 bytes at 0: "), "{said}");
    assert!(said.contains("unrecovered read error"), "{said}");
    let said = refused("write");
    assert!(said.contains("disk a: cannot write its label: "), "{said}");
    let said = refused("fsync");
    assert!(said.contains("disk a: cannot flush its label: "), "{said}");

    // Nothing of it is taken for a set by the next start.
    mounted.breaks(&[]);
    Server::configured(here, &set).stop();
    let wipe = |args: &[&str]| {
        let args = [&["disks", "wipe", "a"], args].concat();
        let config = ["--config", "plateway.toml"];
        let output = plateway().current_dir(here).args(&args).args(config).output().unwrap();
        (output.status.success(), flat(&[output.stdout, output.stderr].concat()))
    };
    mounted.breaks(&["write"]);
    let (done, said) = wipe(&["--yes"]);
    assert!(!done && said.contains("cannot wipe its label: "), "{said}");
    // That is a failure of the disk, until somebody says that it is mended.
    mounted.breaks(&[]);
    let (done, said) = wipe(&["--yes"]);
    assert!(!done && said.contains("plateway disks reopen"), "{said}");
    let server = Server::configured(here, &set);
    server.ask(&["disks", "reopen", "a"]);
    server.stop();
    let (done, said) = wipe(&["--yes"]);
    assert!(done, "{said}");
}

#[test]
fn a_disk_that_cannot_be_asked_is_opened_anew_once_it_is_there_and_free() {
    let Some(mounted) = Mounted::new() else { return };
    let here = mounted.path();
    let config = |uri: &str| configuration(&[("d0", uri)], &[("v0", "disks = [\"d0\"]")]);
    let server = Server::configured(here, &config("file:fuse/a.img?create=8MiB"));
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    assert!(queue.try_write(7, &[7; BLOCK]).is_success());

    let refused = |words: &[&str]| {
        let said = server.refuse(&["disks", "reopen", "d0"]);
        words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in {said}"));
    };
    mounted.breaks(&["getattr"]);
    refused(&["disk d0: ", "a.img", "Input/output error"]);
    let status = server.status();
    assert_ne!(status["disks"][0]["state"], "ok", "{status:#}");
    assert!(!queue.try_read(7).is_success(), "it is closed");
    mounted.breaks(&[]);
    let said = server.refuse_apply(&config("file:fuse/a.img?create=16MiB"));
    assert!(said.contains("disk d0: expected an open file, seen none"), "{said}");
    let other = std::fs::File::open(here.join("fuse/a.img")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    refused(&["disk d0: ", "in use by another server", "until it is reopened its requests fail"]);
    drop(other);
    let done = server.ask(&["disks", "reopen", "d0"]);
    assert!(done.contains("disk d0 was opened anew and takes writes"), "{done}");
    assert!(queue.try_read(7).is_success() && queue.data == [7; BLOCK], "what it held is there");
    assert_eq!(server.status()["disks"][0]["state"], "ok");

    mounted.breaks(&["setattr"]);
    let said = server.refuse_apply(&config("file:fuse/a.img?create=16MiB"));
    assert!(said.contains("disk d0: cannot resize it: File too large"), "{said}");
    assert!(queue.try_read(7).is_success(), "it is served as before");
    server.stop();
}

#[test]
fn a_disk_that_hangs_is_not_opened_anew_before_it_gave_back_what_it_was_asked() {
    let Some(mounted) = Mounted::new() else { return };
    let here = mounted.path();
    let disks = [("d0", "file:fuse/a.img")];
    let server = Server::configured(here, &configuration(&disks, &[("v0", "disks = [\"d0\"]")]));
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 2);
    let mut queue = controller.queue(1, false);
    let hang = mounted.hang();
    queue.submit(Batch { kind: Kind::Read, size: BLOCK, depth: 1 }, 0, &[0; BLOCK]);
    hang.wait_for_question();
    mounted.breaks(&["getattr"]);
    let said = server.refuse(&["disks", "reopen", "d0"]);
    assert!(said.contains("expected its requests back within 30 s"), "{said}");
    mounted.breaks(&[]);
    assert_ne!(server.status()["disks"][0]["state"], "ok");
    drop(hang);
    // What it gave back late is the end of it, and no longer holds its lock.
    let begin = Instant::now();
    while !server.command(&["disks", "reopen", "d0"]).status.success() {
        assert!(begin.elapsed() < HANG, "it cannot be reopened");
    }
    let mut queue = controller.queue(2, false);
    assert!(queue.try_read(0).is_success());
    server.wait_for("a disk that is well", |status| status["disks"][0]["state"] == "ok");
    server.stop();
}
