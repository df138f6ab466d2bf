//! What says, boot after boot, which blocks these are: marks of a block device or of a file.
//!
//! A path says where blocks are looked for, and a device number in which order the kernel met them;
//! neither stays. A device is marked by its WWID, else its serial number (`/sys`, without udev), a
//! partition by its PARTUUID besides, a mapped or md device by its UUID; a file by its file
//! system's UUID (else by what is mounted), its inode and, where it is told, its birth; a loop by
//! its file. What is not told is no mark, so an empty value knows nothing. A device that says
//! nothing of itself is known until the next boot alone ([`Marks::until_boot`]), by the number that
//! the kernel gives each disk that appears. Nothing fails and nothing is changed here.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags};

/// `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETFSUUID: rustix::ioctl::Opcode = 0x8011_1500;
/// `FUSE_SUPER_MAGIC`: many a server of these makes up inodes anew at each mount.
const FUSE: u64 = 0x6573_5546;
/// Marks of which one alone tells blocks from all others.
const TELLING: [&str; 7] = ["inode", "wwid", "serial", "partuuid", "uuid", "backing", "disk"];

/// The marks by their kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub BTreeMap<String, String>);

impl Marks {
    /// Of an open file or block device.
    pub fn of(fd: impl AsFd) -> Marks {
        let Ok(stat) = rustix::fs::fstat(&fd) else { return Marks::default() };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => of_device(Path::new("/sys"), stat.st_rdev),
            _ => of_file(fd, &stat),
        }
    }

    /// Of an open file or block device, with what tells it from others only until the next boot
    /// where nothing else does; `None` where nothing does.
    pub fn until_boot(fd: impl AsFd) -> Option<Marks> {
        let mut marks = Marks::of(&fd);
        let stat = rustix::fs::fstat(&fd).ok()?;
        if !marks.are_telling() && FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            marks.put_appearance(Path::new("/sys"), stat.st_rdev);
        }
        marks.are_telling().then_some(marks)
    }

    fn are_telling(&self) -> bool {
        TELLING.iter().any(|kind| self.0.contains_key(*kind))
    }

    /// Which of all disks that appeared since the boot a device is, or is a part of.
    fn put_appearance(&mut self, sys: &Path, number: u64) {
        let at = folder(sys, number);
        let whole = at.canonicalize().map(|at| at.join("..")).unwrap_or_else(|_| at.clone());
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        let number = read(at.join("diskseq")).or_else(|| read(whole.join("diskseq")));
        let boot = read("/proc/sys/kernel/random/boot_id".into());
        let appeared = number.zip(boot);
        self.put(
            "disk",
            appeared.map(|(number, boot)| format!("{} of boot {boot}", number.trim())),
        );
    }

    /// Whether these are the blocks that once had these marks; none where both have no mark in
    /// common, as after the kernel learned of others.
    pub fn are(&self, known: &Marks) -> Option<bool> {
        let common = self.0.iter().filter_map(|(kind, seen)| Some(known.0.get(kind)? == seen));
        common.reduce(|all, one| all && one)
    }

    /// Whether they are the very marks of blocks that nothing else has.
    pub fn find(&self, known: &Marks) -> bool {
        self == known && self.are_telling()
    }

    fn put(&mut self, kind: &str, value: Option<String>) -> bool {
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        value.map(|value| self.0.insert(kind.to_owned(), value)).is_some()
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, value)) in self.0.iter().enumerate() {
            write!(f, "{}{kind} {value}", if index == 0 { "" } else { ", " })?;
        }
        if self.0.is_empty() { f.write_str("no mark") } else { Ok(()) }
    }
}

/// What the kernel says of a block device.
fn folder(sys: &Path, number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    sys.join(format!("dev/block/{major}:{minor}"))
}

fn of_device(sys: &Path, number: u64) -> Marks {
    let at = folder(sys, number);
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    let mut marks = Marks::default();
    let mut disk = at.clone();
    if let Some(number) = read(at.join("partition")) {
        let told = read(at.join("uevent")).unwrap_or_default();
        let uuid = told.lines().find_map(|line| line.strip_prefix("PARTUUID="));
        if !marks.put("partuuid", uuid.map(str::to_owned)) {
            marks.put("partition", Some(number));
            marks.put("start", read(at.join("start")));
        }
        // `at` is a link: only the system knows what is above where it leads.
        disk = at.canonicalize().map(|at| at.join("..")).unwrap_or(at);
    }
    let first = |marks: &mut Marks, kind: &str, names: &[&str]| {
        names.iter().any(|name| marks.put(kind, read(disk.join(name))))
    };
    if first(&mut marks, "uuid", &["dm/uuid", "md/uuid"])
        || first(&mut marks, "wwid", &["wwid", "device/wwid"])
        || first(&mut marks, "serial", &["serial", "device/serial", "device/cid"])
    {
        return marks;
    }
    if first(&mut marks, "backing", &["loop/backing_file"]) {
        first(&mut marks, "offset", &["loop/offset"]);
        // The same name may lead to another file by now, or to none.
        let file = fs::File::open(&marks.0["backing"]).ok();
        let stat = file.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
        if let Some((file, stat)) = file.zip(stat)
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        {
            marks.0.extend(of_file(&file, &stat).0);
        }
    }
    marks
}

fn of_file(fd: impl AsFd, stat: &Stat) -> Marks {
    let mut marks = Marks::default();
    if !marks.put("fs", file_system_uuid(&fd)) {
        // A name such as /dev/sda1 is no mark; what it leads to may have one.
        let under = of_device(Path::new("/sys"), stat.st_dev);
        let source = match under.0.is_empty() {
            false => Some(under.to_string()),
            true => mount_source(&fd).filter(|source| !source.starts_with("/dev/")),
        };
        marks.put("source", source);
    }
    let is_fuse = rustix::fs::fstatfs(&fd).is_ok_and(|system| system.f_type as u64 == FUSE);
    if is_fuse {
        return marks;
    }
    marks.put("inode", Some(stat.st_ino.to_string()));
    let birth = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok();
    let birth = birth.filter(|told| told.stx_mask & StatxFlags::BTIME.bits() != 0);
    let time = |told: rustix::fs::Statx| {
        format!("{}.{:09}", told.stx_btime.tv_sec, told.stx_btime.tv_nsec)
    };
    marks.put("birth", birth.map(time));
    marks
}

/// The UUID of a file system; Linux tells it since 6.9.
fn file_system_uuid(fd: impl AsFd) -> Option<String> {
    // SAFETY: FS_IOC_GETFSUUID writes a `struct fsuuid2` (a length and 16 bytes) and keeps no
    // pointer to it.
    let told: [u8; 17] = unsafe {
        let get = rustix::ioctl::Getter::<FS_IOC_GETFSUUID, [u8; 17]>::new();
        rustix::ioctl::ioctl(fd, get).ok()?
    };
    let (length, uuid) = told.split_first()?;
    let uuid = uuid.get(..usize::from(*length))?;
    let is_told = uuid.iter().any(|byte| *byte != 0);
    is_told.then(|| uuid.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is mounted where a file is: `server:/export`, `tmpfs`.
fn mount_source(fd: impl AsFd) -> Option<String> {
    let about = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let about = fs::read_to_string(about).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    // proc(5): behind the separator come the type, the source and the options.
    Some(mount.split_once(" - ")?.1.split(' ').nth(1)?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::Directory;
    use super::*;

    fn marks(list: &[(&str, &str)]) -> Marks {
        Marks(list.iter().map(|(kind, value)| ((*kind).into(), (*value).into())).collect())
    }

    #[test]
    fn a_file_keeps_its_marks_under_another_name_and_a_copy_has_others() {
        for directory in Directory::everywhere() {
            let (a, b) = (directory.file("a"), directory.file("b"));
            fs::write(&a, [7; 4096]).unwrap();
            let of = |path: &Path| Marks::of(fs::File::open(path).unwrap());
            let first = of(&a);
            assert!(first.0.contains_key("inode"), "{first}");
            fs::rename(&a, &b).unwrap();
            assert_eq!((of(&b), of(&b).find(&first)), (first.clone(), true));
            fs::copy(&b, &a).unwrap();
            assert_eq!(of(&a).are(&first), Some(false));
        }
    }

    #[test]
    fn a_device_is_known_by_what_it_is_whatever_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let sys = directory.path();
        let disk = |name: &str, number: &str, files: &[(&str, &str)]| {
            let at = sys.join("devices").join(name);
            for (file, text) in files {
                let path = at.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            fs::create_dir_all(sys.join("dev/block")).unwrap();
            let link = sys.join("dev/block").join(number);
            let _ = fs::remove_file(&link);
            symlink(&at, link).unwrap();
        };
        let at = |major, minor| of_device(sys, rustix::fs::makedev(major, minor));
        disk("sda", "8:0", &[("device/wwid", "naa.5\n"), ("serial", "unused")]);
        let part = [("partition", "1\n"), ("uevent", "MAJOR=8\nPARTUUID=0f-1\n"), ("start", "64")];
        disk("sda/sda1", "8:1", &part);
        disk("vda", "253:0", &[("serial", "  S1 \n")]);
        disk("dm-0", "252:0", &[("dm/uuid", "LVM-x\n"), ("serial", "")]);
        let loop0 = [("loop/backing_file", "/no/such/a\n"), ("loop/offset", "0\n")];
        disk("loop0", "7:0", &loop0);
        disk("null", "250:0", &[("size", "8\n")]);
        assert_eq!(at(8, 0), marks(&[("wwid", "naa.5")]));
        assert_eq!(at(8, 1), marks(&[("partuuid", "0f-1"), ("wwid", "naa.5")]));
        assert_eq!(at(253, 0), marks(&[("serial", "S1")]));
        assert_eq!(at(252, 0), marks(&[("uuid", "LVM-x")]));
        assert_eq!(at(7, 0), marks(&[("backing", "/no/such/a"), ("offset", "0")]));
        assert_eq!((at(250, 0), at(9, 9)), (marks(&[]), marks(&[])));
        // After a boot the kernel met them in another order.
        let (sda, vda) = (at(8, 0), at(253, 0));
        disk("sda", "8:16", &[]);
        assert_eq!(at(8, 16).are(&sda), Some(true));
        assert_eq!(at(8, 16).are(&vda), None);
        // Without a UUID of its own a partition is where it begins.
        disk("sda/sda2", "8:18", &[("partition", "2\n"), ("start", "2048\n")]);
        let second = marks(&[("partition", "2"), ("start", "2048"), ("wwid", "naa.5")]);
        assert_eq!(at(8, 18), second);
    }

    #[test]
    fn a_loop_is_known_by_its_file_and_what_says_nothing_until_the_boot() {
        let directory = tempfile::tempdir().unwrap();
        let (sys, file) = (directory.path(), directory.path().join("a"));
        fs::write(&file, [7; 4096]).unwrap();
        let part = sys.join("devices/loop0/loop0p1");
        fs::create_dir_all(sys.join("devices/loop0/loop")).unwrap();
        fs::create_dir_all(&part).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let told = file.display().to_string();
        fs::write(sys.join("devices/loop0/loop/backing_file"), told).unwrap();
        symlink(sys.join("devices/loop0"), sys.join("dev/block/7:0")).unwrap();
        let at = || of_device(sys, rustix::fs::makedev(7, 0));
        let first = at();
        assert!(Marks::of(fs::File::open(&file).unwrap()).are(&first) == Some(true), "{first}");
        fs::rename(&file, sys.join("b")).unwrap();
        fs::write(&file, [7; 4096]).unwrap();
        assert_eq!(at().are(&first), Some(false), "another file by the same name");
        // A disk and its partition that appeared at one time.
        fs::write(sys.join("devices/loop0/diskseq"), "9\n").unwrap();
        symlink(&part, sys.join("dev/block/7:1")).unwrap();
        for minor in [0, 1] {
            let mut marks = Marks::default();
            marks.put_appearance(sys, rustix::fs::makedev(7, minor));
            assert!(marks.are_telling() && marks.0["disk"].starts_with("9 of boot "), "{marks}");
        }
    }

    #[test]
    fn marks_that_were_not_told_before_say_nothing() {
        let before = marks(&[("source", "tmpfs"), ("inode", "3")]);
        assert_eq!(marks(&[("fs", "ab"), ("inode", "3")]).are(&before), Some(true));
        assert_eq!(marks(&[("fs", "ab"), ("inode", "4")]).are(&before), Some(false));
        assert_eq!(marks(&[]).are(&before), None);
        // Nothing is found by a mark that others share.
        let fs = marks(&[("fs", "ab")]);
        assert!(!fs.find(&fs) && !marks(&[]).find(&marks(&[])) && before.find(&before));
    }
}
