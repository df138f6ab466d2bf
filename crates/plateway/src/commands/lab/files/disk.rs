//! The files of a load on a file system: made in a folder, and what hands want of them.
//!
//! A database's are opened past the page cache, its writes are durable when they return, and its buffer lies as that
//! asks for. Of files that are read whole up to 1 MiB is asked for at once. Units: bytes. Errors: what of which file
//! could not be done, what was read short, and what is not as it was written.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::file_load::contents;
use lab::file_load::{Act, Deed, FileSet, Hand, Part};

use super::super::aligned::Buffer;

/// One of so many reads is held against what was written.
const JUDGED: u64 = 16;

/// A set in a folder.
pub(super) struct Store<'s> {
    folder: PathBuf,
    set: &'s FileSet,
}

/// What one thread does there.
pub(super) struct Doer<'s> {
    store: &'s Store<'s>,
    /// What it has open.
    file: Option<File>,
    buffer: Buffer,
    /// The log of a web server, or data files of a database to be read, and to be written.
    held: Arc<Held>,
    reads: u64,
}

/// Files that are open for as long as the load runs.
#[derive(Default)]
pub(super) struct Held {
    log: Option<File>,
    read: Vec<File>,
    written: Vec<File>,
}

/// What came of an operation.
#[derive(Default)]
pub(super) struct Done {
    /// Whether it was a read that was held against what was written.
    pub(super) is_judged: bool,
    /// How long its system calls took.
    pub(super) latency: Duration,
}

/// What could not be done, with what helps where it is known.
fn failed(verb: &str, path: &Path, error: &Error) -> String {
    let help = match error.kind() {
        ErrorKind::StorageFull => " (a smaller size, or a larger disk)",
        ErrorKind::InvalidInput => {
            " (past the page cache, with 2048 bytes at once: the file system may want more)"
        }
        _ => "",
    };
    format!("cannot {verb} {}: {error}{help}", path.display())
}

impl<'s> Store<'s> {
    pub(super) fn new(folder: &Path, set: &'s FileSet) -> Store<'s> {
        Store { folder: folder.to_owned(), set }
    }

    fn path(&self, file: u32) -> PathBuf {
        self.folder.join(self.set.path(file))
    }

    /// Makes all that is there at first, in the order of its numbers, and has it written to its disk.
    pub(super) fn make(&self) -> Result<(), String> {
        let mut buffer = Buffer::new(Hand::buffer_bytes(self.set.personality()));
        let mut parent = PathBuf::new();
        for number in 0..self.set.count() {
            let path = self.path(number);
            // Also those of files that are to come.
            let folder = path.parent().expect("a file of the folder lies in one");
            if folder != parent {
                std::fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
                parent = folder.to_owned();
            }
            if number < self.set.there() {
                let tell = |error: Error| failed("make", &path, &error);
                let file = File::create_new(&path).map_err(tell)?;
                let part = Part { offset: 0, bytes: self.set.length(number) };
                let key = contents::key(self.set.seed(), number, 0);
                // Nobody measures it.
                let mut spent = Duration::ZERO;
                write(&file, part, key, buffer.get(), &mut spent).map_err(tell)?;
            }
        }
        if self.set.has_log() {
            let path = self.folder.join(self.set.log_path());
            File::create_new(&path).map_err(|error| failed("make", &path, &error))?;
        }
        let tell = |error: Error| failed("write back what is in", &self.folder, &error);
        let root = File::open(&self.folder).map_err(tell)?;
        rustix::fs::syncfs(&root).map_err(|errno| tell(errno.into()))
    }

    /// Opens what stays open, for all threads.
    pub(super) fn hold(&self) -> Result<Arc<Held>, String> {
        let mut held = Held::default();
        let open = |path: &Path, flags: i32| {
            let mut options = File::options();
            let opened = options.read(true).write(true).custom_flags(flags).open(path);
            opened.map_err(|error| failed("open", path, &error))
        };
        if self.set.has_log() {
            held.log = Some(open(&self.folder.join(self.set.log_path()), 0)?);
        }
        if !self.set.personality().is_cached() {
            for number in 0..self.set.count() {
                let path = self.path(number);
                held.read.push(open(&path, libc::O_DIRECT)?);
                held.written.push(open(&path, libc::O_DIRECT | libc::O_DSYNC)?);
            }
        }
        Ok(Arc::new(held))
    }

    /// One for a thread.
    pub(super) fn doer(&'s self, held: &Arc<Held>) -> Doer<'s> {
        let buffer = Buffer::new(Hand::buffer_bytes(self.set.personality()));
        Doer { store: self, file: None, buffer, held: held.clone(), reads: 0 }
    }
}

/// Does it, and adds how long the system took.
fn timed<T>(spent: &mut Duration, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = call();
    *spent += began.elapsed();
    done
}

/// Writes a part of a file with what it is to hold, and adds how long the system took.
fn write(
    file: &File,
    part: Part,
    key: u64,
    buffer: &mut [u8],
    spent: &mut Duration,
) -> Result<(), Error> {
    let end = part.offset + part.bytes;
    let mut at = part.offset;
    while at < end {
        let length = (end - at).min(buffer.len() as u64) as usize;
        let piece = &mut buffer[..length];
        contents::fill(piece, key, at);
        timed(spent, || file.write_all_at(piece, at))?;
        at += length as u64;
    }
    Ok(())
}

impl Doer<'_> {
    /// Does it.
    pub(super) fn carry_out(&mut self, act: &Act) -> Result<Done, String> {
        let mut done = Done::default();
        let spent = &mut done.latency;
        let store = self.store;
        // It costs as much as some system calls, so only who needs it has it.
        let path = || match act.deed {
            Deed::Append { log: true, .. } => store.folder.join(store.set.log_path()),
            _ => store.path(act.file),
        };
        let (verb, result) = match act.deed {
            Deed::Read(part) | Deed::ReadAt(part) => {
                done.is_judged = self.read(act, part, &path, &mut done.latency)?;
                return Ok(done);
            }
            Deed::Open => {
                let (path, mut options) = (path(), File::options());
                let opened = timed(spent, || options.read(true).write(true).open(&path));
                ("open", opened.map(|file| self.file = Some(file)))
            }
            Deed::Create => {
                let path = path();
                let made = timed(spent, || File::create_new(&path));
                ("make", made.map(|file| self.file = Some(file)))
            }
            Deed::Close => {
                let file = self.file.take();
                timed(spent, || drop(file));
                ("close", Ok(()))
            }
            Deed::Sync => {
                let file = opened(self.file.as_ref());
                ("write back", timed(spent, || file.sync_all()))
            }
            Deed::Delete => {
                let path = path();
                ("delete", timed(spent, || std::fs::remove_file(&path)))
            }
            Deed::Stat { bytes } => {
                let path = path();
                let seen = timed(spent, || path.symlink_metadata());
                if let Some(seen) = seen.as_ref().ok().map(Metadata::len)
                    && seen < bytes
                {
                    let path = path.display();
                    return Err(format!("{path}: expected {bytes} bytes at least, seen {seen}"));
                }
                ("look at", seen.map(drop))
            }
            Deed::Append { part, log: true, anew } => {
                let log = opened(self.held.log.as_ref());
                let cut = if anew { timed(spent, || log.set_len(0)) } else { Ok(()) };
                let buffer = self.buffer.get();
                ("write", cut.and_then(|()| write(log, part, act.key, buffer, spent)))
            }
            Deed::Write(part) | Deed::Append { part, .. } => {
                let file = opened(self.file.as_ref());
                ("write", write(file, part, act.key, self.buffer.get(), spent))
            }
            Deed::WriteAt(part) => {
                let file = &self.held.written[act.file as usize];
                ("write", write(file, part, act.key, self.buffer.get(), spent))
            }
        };
        result.map_err(|error| failed(verb, &path(), &error)).map(|()| done)
    }

    /// Reads a part; whether it was held against what was written.
    fn read(
        &mut self,
        act: &Act,
        part: Part,
        path: &dyn Fn() -> PathBuf,
        spent: &mut Duration,
    ) -> Result<bool, String> {
        self.reads += 1;
        let is_judged = self.reads.is_multiple_of(JUDGED);
        let file = match act.deed {
            Deed::ReadAt(_) => &self.held.read[act.file as usize],
            _ => opened(self.file.as_ref()),
        };
        let buffer = self.buffer.get();
        let end = part.offset + part.bytes;
        let mut at = part.offset;
        while at < end {
            let length = (end - at).min(buffer.len() as u64) as usize;
            let read = timed(spent, || file.read_at(&mut buffer[..length], at));
            let read = read.map_err(|error| failed("read", &path(), &error))?;
            if read == 0 {
                let path = path();
                let path = path.display();
                return Err(format!("{path}: expected {end} bytes, seen its end after {at}"));
            }
            let judged = is_judged.then(|| contents::differs(&buffer[..read], act.key, at));
            if let Some(seen) = judged.flatten() {
                let what = if seen.is_blank { "zeros" } else { "something else" };
                return Err(format!(
                    "{}: expected at byte {} what was written there, seen {what}",
                    path().display(),
                    seen.offset
                ));
            }
            at += read as u64;
        }
        Ok(is_judged)
    }
}

/// What a hand works on is open by then.
fn opened(file: Option<&File>) -> &File {
    file.expect("what is worked on is open")
}
