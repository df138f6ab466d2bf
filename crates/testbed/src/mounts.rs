//! What is mounted where, by `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
//!
//! In: that file, as it is at present. Out: for a path, the file system on which it lies, in words that
//! an administrator knows from `findmnt`; of a kind, where it is mounted. Errors: the file cannot be
//! read, or nothing is mounted there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::LOOK;
use crate::tool;

/// Files of a program that was killed are closed some time after it has ended, if it used io_uring.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// One thing that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Its type, such as `ext4`.
    pub kind: String,
    /// What holds it, such as `/dev/sdb1` or `server:/export`.
    pub source: String,
    /// With which options: those of the mount, and behind them those of the file system that are not
    /// among them.
    pub options: String,
}

/// All of them, in the order in which they were mounted.
#[derive(Clone, Debug)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Those of the namespace of this process.
    pub fn now() -> Result<Self> {
        let file = "/proc/self/mountinfo";
        let text = fs::read_to_string(file)
            .map_err(|source| Error::System { doing: format!("read {file}"), source })?;
        Ok(Self::read(&text))
    }

    /// The mount on which a path lies, as it is without links: of those at the longest part of it, what
    /// came last covers the others.
    pub fn of(&self, path: &Path) -> Result<&Mount> {
        let doing = || format!("find {}", path.display());
        let path =
            path.canonicalize().map_err(|source| Error::System { doing: doing(), source })?;
        self.at(&path).ok_or_else(|| Error::Unexpected {
            what: "/proc/self/mountinfo".to_owned(),
            expected: "what is mounted there",
            seen: path.display().to_string(),
        })
    }

    fn at(&self, path: &Path) -> Option<&Mount> {
        let holds = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // Of several that are as long the last one.
        holds.max_by_key(|mount| mount.point.components().count())
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// Those of a type.
    pub fn of_kind<'m>(&'m self, kind: &'m str) -> impl Iterator<Item = &'m Mount> {
        self.0.iter().filter(move |mount| mount.kind == kind)
    }

    pub(crate) fn read(text: &str) -> Self {
        Self(text.lines().filter_map(mount).collect())
    }
}

/// A file system of a trial's, on a device. Where it is not unmounted on purpose it goes with the value, and
/// nobody waits for what was written there.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    is_there: bool,
}

impl Mounted {
    /// Mounts what is on a device in a folder, with these options, of which there may be none.
    pub fn make(kind: &str, options: &str, device: &Path, point: &Path) -> Result<Self> {
        let mounted = Self::prepare(point)?;
        let [device, at] = [device, point].map(Path::to_string_lossy);
        let options = Some(["--options", options]).filter(|[_, options]| !options.is_empty());
        let options: Vec<&str> = options.into_iter().flatten().collect();
        tool::run("mount", &[&["--types", kind], &options[..], &[&device, &at]].concat())?;
        Ok(mounted)
    }

    /// Makes a folder one where somebody else may mount something.
    pub fn prepare(point: &Path) -> Result<Self> {
        let at = point.to_string_lossy();
        let mounted = Self { point: point.to_owned(), is_there: true };
        // Whoever starts something in mounts of its own meanwhile has a copy of what is mounted, by which the
        // device stays busy: below what is shared it goes there, too.
        tool::run("mount", &["--bind", &at, &at])?;
        tool::run("mount", &["--make-shared", &at])?;
        Ok(mounted)
    }

    /// Where.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Writes back what was written there, and unmounts it. Errors: something works there, or what was
    /// written cannot be written back, for which the kernel has no word of its own here.
    pub fn unmount(self) -> Result<()> {
        self.unmount_and(|| Ok(()))
    }

    /// The same; between what was mounted and the folder, `then` is done. It may have the folder be none where
    /// something is mounted.
    pub fn unmount_and(mut self, then: impl FnOnce() -> Result<()>) -> Result<()> {
        // What is lost by an unmounting alone is told to nobody.
        let failed = |source: std::io::Error| Error::System {
            doing: format!("write back what was written to {}", self.point.display()),
            source,
        };
        let root = fs::File::open(&self.point).map_err(failed)?;
        rustix::fs::syncfs(&root).map_err(|errno| failed(errno.into()))?;
        drop(root);
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            match tool::run("umount", &[&*self.point.to_string_lossy()]) {
                Ok(_) => break,
                Err(Error::Refused { said, .. })
                    if said.contains("busy") && Instant::now() < deadline =>
                {
                    std::thread::sleep(LOOK);
                }
                Err(why) => return Err(why),
            }
        }
        then()?;
        // What it was mounted on.
        if Mounts::now()?.all().any(|mount| mount.point == self.point) {
            tool::run("umount", &[&*self.point.to_string_lossy()])?;
        }
        self.is_there = false;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_there {
            // What is mounted, and what that is mounted on, as far as either is there.
            unmount(&self.point);
            unmount(&self.point);
        }
    }
}

/// Unmounts without waiting: for a disk that is gone that would take as long as nobody gives it up.
fn unmount(point: &Path) {
    let _ = tool::run("umount", &["--lazy", &*point.to_string_lossy()]);
}

/// Unmounts all that is mounted in a folder or below. Errors: it is not known what is, or something
/// stays.
pub(crate) fn unmount_below(folder: &Path) -> Result<()> {
    let below = || -> Result<Vec<PathBuf>> {
        let mounts = Mounts::now()?;
        let points = mounts.all().map(|mount| mount.point.clone());
        Ok(points.filter(|point| point.starts_with(folder)).collect())
    };
    // What was mounted last covers what was before.
    below()?.iter().rev().for_each(|point| unmount(point));
    match below()?.first() {
        None => Ok(()),
        Some(point) => Err(Error::Unexpected {
            what: folder.display().to_string(),
            expected: "nothing that is mounted there",
            seen: point.display().to_string(),
        }),
    }
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw,errors=continue`; in front of the
/// `-` there are as many fields more as there are.
fn mount(line: &str) -> Option<Mount> {
    let (of_mount, of_system) = line.split_once(" - ")?;
    let mut of_mount = of_mount.split(' ').skip(3);
    let (root, point, own) = (of_mount.next()?, of_mount.next()?, of_mount.next()?);
    let mut of_system = of_system.split(' ');
    let (kind, source, its) = (of_system.next()?, of_system.next()?, of_system.next()?);
    let mut options: Vec<&str> = own.split(',').collect();
    for option in its.split(',') {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        root: unescaped(root).into(),
        point: unescaped(point).into(),
        kind: kind.to_owned(),
        source: unescaped(source),
        options: options.join(","),
    })
}

/// Blanks and backslashes stand there as three octal digits behind a backslash.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                bytes.extend(&part.as_bytes()[3..]);
            }
            None => {
                bytes.push(b'\\');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        31 27 0:9 / /mnt rw shared:7 master:2 - tmpfs none rw,size=4k\n\
        32 31 8:1 /part\\040one /mnt/a\\040b\\134c ro,noatime - xfs /dev/sda1 ro,logbufs=8\n\
        33 27 8:2 / /mnt rw - btrfs /dev/sdb rw,subvol=/\n\
        a line of another kind\n";

    #[test]
    fn a_path_lies_on_what_was_mounted_last_at_the_longest_part_of_it() {
        let mounts = Mounts::read(TEXT);
        let kind = |path: &str| mounts.at(Path::new(path)).unwrap().kind.clone();
        assert_eq!([kind("/srv/x"), kind("/mnt"), kind("/mnt/x")], ["ext4", "btrfs", "btrfs"]);
        assert_eq!(kind("/mnt/a b\\c/d"), "xfs");
        assert_eq!(kind("/mntx"), "ext4", "a longer name is another folder");
        assert_eq!(mounts.of_kind("tmpfs").count(), 1);
    }

    #[test]
    fn options_of_both_kinds_are_told_once_and_names_as_they_are() {
        let mounts = Mounts::read(TEXT);
        let seen = mounts.at(Path::new("/mnt/a b\\c")).unwrap();
        assert_eq!(seen.options, "ro,noatime,logbufs=8");
        assert_eq!((&*seen.source, seen.root.to_str()), ("/dev/sda1", Some("/part one")));
    }

    #[test]
    fn what_is_mounted_here_is_found() {
        let mounts = Mounts::now().unwrap();
        assert_eq!(mounts.of(Path::new("/proc/self")).unwrap().kind, "proc");
        let error = mounts.of(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(error.starts_with("cannot find /no/such/folder: "), "{error}");
    }
}
