//! A file for a trial, or a folder of files, in a folder of the administrator's: made there, cooled, looked at,
//! removed.
//!
//! In: a folder, a prefix and a size. What is made is called by the prefix, our process's number and a
//! number, as in `plateway-lab-4711-0`, and goes with its value; what a process that was killed left
//! is known by that name and goes with [`remove_leftovers`], and nothing else does. How much of it the
//! page cache holds is `fincore`'s to say (util-linux). Units: bytes. Errors: those of the file system,
//! and no `fincore`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::Advice;

use crate::error::{Error, Result};
use crate::namespaces::{is_alive, own_name, owner};
use crate::process;
use crate::tool;

/// How often the kernel is asked to drop pages: those that are on their way to a list of its own are
/// dropped by none.
const COOLINGS: usize = 20;
/// Files that one program is told of at once: their names are some kilobytes by far below what the kernel takes.
const FILES_AT_ONCE: usize = 1000;
/// Pages that stay there whatever is done: 128 KiB are a read-ahead of the kernel's own.
const RESIDENT_MAX: u64 = 256 << 10;

/// The file, which is removed with its value, unless it was left.
#[derive(Debug)]
pub struct Scratch {
    is_left: bool,
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_left {
            // Somebody else may have removed it, which is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where what we make next in a folder is.
fn next_path(folder: &Path, prefix: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{}-{number}", own_name(prefix)))
}

/// Of how many bytes in the page cache, of so many of a file or of several, nothing is said: a hundredth, or what the kernel reads ahead by
/// itself.
pub fn resident_max(bytes: u64) -> u64 {
    (bytes / 100).max(RESIDENT_MAX)
}

/// How many bytes of some files the page cache holds.
fn resident(files: &[PathBuf]) -> Result<u64> {
    let mut sum = 0;
    for some in files.chunks(FILES_AT_ONCE) {
        let paths: Vec<String> =
            some.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let mut args = vec!["--bytes", "--noheadings", "--raw", "--output", "RES"];
        args.extend(paths.iter().map(String::as_str));
        let said = tool::run("fincore", &args)?;
        for line in said.split_whitespace() {
            let bytes: u64 = line.parse().map_err(|_| Error::Unexpected {
                what: "fincore".to_owned(),
                expected: "bytes",
                seen: said.clone(),
            })?;
            sum += bytes;
        }
    }
    Ok(sum)
}

/// Has the kernel drop what the page cache holds of some files, which were written back; how many bytes it holds all
/// the same, at the end of some attempts.
fn cool(files: &[PathBuf]) -> Result<u64> {
    let mut left = 0;
    for _ in 0..COOLINGS {
        for path in files {
            let failed = |source| Error::System {
                doing: format!("take {} out of the page cache", path.display()),
                source,
            };
            let file = File::open(path).map_err(failed)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|errno| failed(errno.into()))?;
        }
        left = resident(files)?;
        if left == 0 {
            break;
        }
        std::thread::sleep(process::LOOK);
    }
    Ok(left)
}

/// A folder of files, which is removed with its value and all that is in it, unless it was left.
#[derive(Debug)]
pub struct ScratchFolder {
    is_left: bool,
    path: PathBuf,
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if !self.is_left {
            // Somebody else may have removed it, which is as good.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl ScratchFolder {
    /// Makes an empty one, for its owner alone.
    pub fn make(folder: &Path, prefix: &str) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = next_path(folder, prefix);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| Error::System { doing: format!("make {}", path.display()), source })?;
        Ok(Self { is_left: false, path })
    }

    /// One that is there, and goes with its file system.
    pub fn left(path: PathBuf) -> Self {
        Self { is_left: true, path }
    }

    /// It goes with its file system.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the kernel drop what the page cache holds of its files, which were written back; how many bytes it holds
    /// all the same.
    pub fn cool(&self) -> Result<u64> {
        cool(&self.files()?)
    }

    /// How many bytes of its files the page cache holds.
    pub fn resident(&self) -> Result<u64> {
        resident(&self.files()?)
    }

    /// All files below it.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            let failed =
                |source| Error::System { doing: format!("look into {}", folder.display()), source };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let is_folder = entry.file_type().map_err(failed)?.is_dir();
                if is_folder { &mut folders } else { &mut files }.push(entry.path());
            }
        }
        Ok(files)
    }
}

impl Scratch {
    /// Makes one of so many bytes, of which none is written yet, for its owner alone.
    pub fn make(folder: &Path, prefix: &str, bytes: u64) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = next_path(folder, prefix);
        let failed = |source| Error::System { doing: format!("make {}", path.display()), source };
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let scratch =
            Self { is_left: false, file: file.map_err(failed)?, path: path.clone(), bytes };
        scratch.file.set_len(bytes).map_err(failed)?;
        Ok(scratch)
    }

    /// It goes with its file system: of one whose disk is gone nothing is removed but after a long wait.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes back what the page cache holds of it, and has the kernel drop that; how many bytes it
    /// holds all the same, at the end of some attempts.
    pub fn cool(&self) -> Result<u64> {
        let failed =
            |source| Error::System { doing: format!("write back {}", self.path.display()), source };
        self.file.sync_all().map_err(failed)?;
        cool(std::slice::from_ref(&self.path))
    }

    /// How many bytes of it the page cache holds.
    pub fn resident(&self) -> Result<u64> {
        resident(std::slice::from_ref(&self.path))
    }

    /// Of how many bytes in the page cache nothing is said.
    pub fn resident_max(&self) -> u64 {
        resident_max(self.bytes)
    }
}

/// What lies in a folder beside what a process of this prefix that has ended left there: names, sorted.
/// The `lost+found` of a file system that was just made is no content.
pub fn contents(folder: &Path, prefix: &str) -> Result<Vec<String>> {
    let doing = || format!("look into {}", folder.display());
    let failed = |source| Error::System { doing: doing(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        let is_nothing = is_folder && name == "lost+found";
        if !is_nothing && !is_leftover(&entry.path(), prefix) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes what processes of this prefix left in a folder that have ended without doing so.
pub fn remove_leftovers(folder: &Path, prefix: &str) -> Result<()> {
    let failed = |doing: String| move |source| Error::System { doing, source };
    let entries = fs::read_dir(folder);
    let entries = entries.map_err(failed(format!("look into {}", folder.display())))?;
    for entry in entries.flatten().filter(|entry| is_leftover(&entry.path(), prefix)) {
        let path = entry.path();
        let is_folder = path.symlink_metadata().is_ok_and(|seen| seen.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(failed(format!("remove {}", path.display())))?;
    }
    Ok(())
}

/// Whether it is a file or a folder that is called as ours are, by a process that is no more.
fn is_leftover(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_one = path.symlink_metadata().is_ok_and(|seen| seen.is_file() || seen.is_dir());
    let number = name.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
    let owner = owner(prefix, name).zip(number);
    let is_ours = |(pid, number): (u32, usize)| name == format!("{prefix}{pid}-{number}");
    is_one && owner.is_some_and(|owner| is_ours(owner) && !is_alive(owner.0))
}

/// How many bytes there is room for in a folder, for this user.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    let seen = rustix::fs::statvfs(folder).map_err(|errno| Error::System {
        doing: format!("ask how much is free in {}", folder.display()),
        source: errno.into(),
    })?;
    Ok(seen.f_bavail.saturating_mul(seen.f_frsize))
}

/// What a process had read from storage and written to it, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageBytes {
    pub read: u64,
    /// What it dirtied of a page cache counts as well, whoever writes it back.
    pub written: u64,
}

impl StorageBytes {
    /// Of a process with all its threads (proc_pid_io(5)); `None` if it has ended, or is another user's.
    pub fn of(pid: u32) -> Option<Self> {
        Self::find(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
    }

    fn find(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(": ")?.parse().ok()
        };
        Some(Self { read: of("read_bytes")?, written: of("write_bytes")? })
    }

    /// What came since an earlier look.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;
    use crate::mounts::Mounts;

    const PREFIX: &str = "plateway-testbed-scratch-";

    /// The number of a process that has ended.
    fn ended() -> u32 {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        ended.id()
    }

    #[test]
    fn a_file_goes_with_its_value_and_one_of_a_dead_process_when_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let left = format!("{PREFIX}{}-3", ended());
        // What is called nearly so is somebody's.
        let others = [format!("{PREFIX}{}-a", ended()), format!("{left}-copy"), format!("x{left}")];
        for name in others.iter().chain([&left]) {
            fs::write(at(name), "x").unwrap();
        }
        fs::create_dir(at("lost+found")).unwrap();
        let folder_left = format!("{PREFIX}{}-4", ended());
        fs::create_dir(at(&folder_left)).unwrap();
        fs::write(at(&folder_left).join("a"), "x").unwrap();
        // What a link points to is somebody's, whatever the link is called.
        let (elsewhere, link) = (tempfile::tempdir().unwrap(), format!("{PREFIX}{}-5", ended()));
        fs::write(elsewhere.path().join("a"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), at(&link)).unwrap();
        let scratch = Scratch::make(folder.path(), PREFIX, 4096).unwrap();
        let mut expected: Vec<String> = others.to_vec();
        expected.extend([link, scratch.path().file_name().unwrap().to_str().unwrap().to_owned()]);
        expected.sort_unstable();
        assert_eq!(contents(folder.path(), PREFIX).unwrap(), expected);
        remove_leftovers(folder.path(), PREFIX).unwrap();
        assert!(!at(&left).exists() && !at(&folder_left).exists());
        assert!(elsewhere.path().join("a").exists());
        assert_eq!(contents(folder.path(), PREFIX).unwrap(), expected);
        let path = scratch.path().to_owned();
        assert_eq!(path.metadata().unwrap().len(), 4096);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_cooled_and_what_the_page_cache_holds_of_it_is_seen() {
        // Where a build is, which is no memory.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes = 8 << 20;
        let mut scratch = Scratch::make(folder.path(), PREFIX, bytes).unwrap();
        if Mounts::now().unwrap().of(folder.path()).unwrap().kind == "tmpfs" {
            return testkit::skipped("a build in memory");
        }
        scratch.file.write_all(&vec![7; bytes as usize]).unwrap();
        let warm = scratch.resident().unwrap();
        assert!(warm > bytes / 2, "{warm}");
        let cold = scratch.cool().unwrap();
        assert!(cold <= scratch.resident_max(), "{cold}");
        fs::read(scratch.path()).unwrap();
        assert!(scratch.resident().unwrap() > scratch.resident_max());
    }

    #[test]
    fn a_folder_of_files_is_looked_at_file_by_file_and_goes_with_its_value() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut files = ScratchFolder::make(folder.path(), PREFIX).unwrap();
        if Mounts::now().unwrap().of(folder.path()).unwrap().kind == "tmpfs" {
            return testkit::skipped("a build in memory");
        }
        fs::create_dir_all(files.path().join("a/b")).unwrap();
        for name in ["one", "a/two", "a/b/three"] {
            let file = File::create(files.path().join(name)).unwrap();
            (&file).write_all(&[7; 1 << 20]).unwrap();
            file.sync_all().unwrap();
        }
        let warm = files.resident().unwrap();
        assert!(warm > 2 << 20, "{warm}");
        let cold = files.cool().unwrap();
        assert!(cold <= resident_max(3 << 20), "{cold}");
        let path = files.path().to_owned();
        files.leave();
        drop(files);
        assert!(path.exists());
        let found = ScratchFolder::left(path.clone());
        assert!(found.resident().unwrap() <= resident_max(3 << 20));
        drop(found);
        assert!(path.exists(), "whoever finds it leaves it");
        let other = ScratchFolder::make(folder.path(), PREFIX).unwrap();
        fs::write(other.path().join("a"), "x").unwrap();
        let path = other.path().to_owned();
        drop(other);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_process_had_from_storage_is_read() {
        let text = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 7\n";
        let seen = StorageBytes::find(text).unwrap();
        assert_eq!(seen, StorageBytes { read: 4096, written: 512 });
        assert_eq!(seen.since(&StorageBytes { read: 96, written: 600 }).read, 4000);
        assert!(StorageBytes::of(std::process::id()).is_some() && StorageBytes::of(0).is_none());
    }

    #[test]
    fn room_is_told_and_a_folder_that_is_not_there_is_an_error() {
        assert!(free_bytes(Path::new("/")).is_ok());
        let error = free_bytes(Path::new("/no/such")).unwrap_err().to_string();
        assert!(error.contains("/no/such"), "{error}");
    }
}
