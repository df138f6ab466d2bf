//! Which disks the ends of a copy are, when they were last changed, and where a file has holes.
//!
//! An identity is the disk's own, whatever path or name leads to it. **A file** is known by its
//! file system (the UUID of the device that it lies on; else what is mounted), its inode, and when
//! it was made where that is told. **A block device** is known by what its hardware says (WWID,
//! serial number), by the UUID of the device mapper or RAID, by the file behind a loop; a partition
//! by its disk and its start. A device that says nothing is known until the next boot, by the number
//! that the kernel gives each disk that appears. **A remote disk** is known by what it answers to
//! the question who it is, and **a set** by its label. Device numbers, which a boot deals anew,
//! identify nothing. What has no identity cannot be known again, and a copy of it is not resumed.
//!
//! Units: bytes. Errors: none; what cannot be found out is not known.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use block::Extent;
use lab::journal::End;
use rustix::fs::{AtFlags, SeekFrom, Statx, StatxFlags, makedev};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::config::uri::DiskUri;
use crate::run::backing::Backing;
use crate::run::identity;

/// More holes than these are copied as data: their list has to be held in memory.
const HOLES_MAX: usize = 1 << 20;
/// What all blocks divide.
const PAGE: u64 = 4096;

/// What names a disk in a journal; `None` of what the next process has no more.
pub(super) fn name_of(uri: &DiskUri, config: Option<&Path>) -> Option<String> {
    match (uri.innermost(), config) {
        (DiskUri::Volume { name }, Some(config)) => {
            let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
            Some(format!("volume:{name} of {}", config.display()))
        }
        _ => identity::backing(uri),
    }
}

/// The folder of the journal of a copy between two names.
pub(super) fn folder_of(source: &str, destination: &str) -> PathBuf {
    let hash = Sha256::new().chain_update(source).chain_update("\n").chain_update(destination);
    let hash = Uuid::new_v8(*hash.finalize().first_chunk().expect("16 of 32 bytes"));
    Path::new("copies").join(hash.simple().to_string())
}

/// What is seen of a disk before anybody opens it.
#[derive(Debug, Default)]
pub(super) struct Look {
    identity: Option<String>,
    /// When it was last changed: opening it may change that on some file systems.
    changed: Option<String>,
}

impl Look {
    /// Looks at a file or device of this machine; of others nothing is seen.
    pub(super) fn at(uri: &DiskUri) -> io::Result<Look> {
        let (DiskUri::File { path, .. } | DiskUri::BlockDevice { path }) = uri.innermost() else {
            return Ok(Look::default());
        };
        let flags = StatxFlags::ALL | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), flags)?;
        let changed = is_file(&stat).then(|| changed(&stat));
        Ok(Look { identity: identity_of(&stat), changed })
    }

    /// An end, with what was seen of it here in place of what was seen of it later or before.
    pub(super) fn over(&self, end: &End) -> End {
        let (identity, changed) = (self.identity.as_ref(), self.changed.as_ref());
        End {
            identity: identity.unwrap_or(&end.identity).clone(),
            changed: changed.or(end.changed.as_ref()).cloned(),
            ..end.clone()
        }
    }
}

/// One end of a copy, while its disk is open.
#[derive(Debug)]
pub(super) struct OpenEnd {
    /// `None` where the next process could not know it again.
    pub(super) end: Option<End>,
    /// The file or device.
    fd: Option<OwnedFd>,
    is_file: bool,
}

impl OpenEnd {
    pub(super) fn new(name: Option<String>, backing: Backing, uuid: Uuid, bytes: u64) -> OpenEnd {
        let (identity, fd) = match backing {
            Backing::Memory => (None, None),
            Backing::Open(fd) => (stat_of(&fd).and_then(|stat| identity_of(&stat)), Some(fd)),
            Backing::Remote(identity) => (identity, None),
            Backing::Set => (Some(format!("volume {uuid}")), None),
        };
        let is_file = fd.as_ref().and_then(stat_of).is_some_and(|stat| is_file(&stat));
        let named = name.zip(identity);
        let end = named.map(|(name, identity)| End { name, identity, bytes, changed: None });
        let mut open = OpenEnd { end, fd, is_file };
        let changed = open.changed();
        if let Some(end) = &mut open.end {
            end.changed = changed;
        }
        open
    }

    /// When it was last changed.
    pub(super) fn changed(&self) -> Option<String> {
        let stat = stat_of(self.fd.as_ref()?).filter(is_file)?;
        Some(changed(&stat))
    }

    /// The same, of a file that is made durable with that time.
    pub(super) fn changed_durably(&self) -> Option<String> {
        rustix::fs::fsync(self.fd.as_ref()?).ok()?;
        self.changed()
    }

    /// Bytes of a file behind the `bytes` that a disk of it has.
    pub(super) fn left_out(&self, bytes: u64) -> u64 {
        let stat = self.fd.as_ref().filter(|_| self.is_file).and_then(stat_of);
        stat.map_or(0, |stat| stat.stx_size.saturating_sub(bytes))
    }

    /// What of the first `bytes` was never written, in whole pages (the last may be shorter).
    pub(super) fn holes(&self, bytes: u64) -> Vec<Extent> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.is_file) else { return Vec::new() };
        let seek = |to: SeekFrom| rustix::fs::seek(fd, to);
        let (mut holes, mut at) = (Vec::new(), 0);
        while at < bytes && holes.len() < HOLES_MAX {
            let Ok(start) = seek(SeekFrom::Hole(at)) else { break };
            let end = match seek(SeekFrom::Data(start)) {
                Ok(end) => end.min(bytes),
                // No data follow.
                Err(rustix::io::Errno::NXIO) => bytes,
                Err(_) => break,
            };
            let first = start.next_multiple_of(PAGE);
            let last = if end == bytes { end } else { end - end % PAGE };
            if first < last {
                holes.push(Extent::new(first, last - first));
            }
            at = end.max(at + 1);
        }
        holes
    }
}

fn stat_of(fd: impl AsFd) -> Option<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::ALL | StatxFlags::MNT_ID).ok()
}

fn is_file(stat: &Statx) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()).is_file()
}

fn changed(stat: &Statx) -> String {
    format!("{}.{:09}", stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec)
}

fn identity_of(stat: &Statx) -> Option<String> {
    match is_file(stat) {
        true => of_file(stat),
        false => of_device(stat.stx_rdev_major, stat.stx_rdev_minor),
    }
}

fn of_file(stat: &Statx) -> Option<String> {
    let told = |of: StatxFlags| stat.stx_mask & of.bits() != 0;
    let mount = told(StatxFlags::MNT_ID).then_some(stat.stx_mnt_id)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (kind, source) = mount_of(&mounts, mount)?;
    let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let below = || fs::metadata(&source).ok().map(|found| found.rdev()).filter(|rdev| *rdev != 0);
    let uuid = file_system_uuid(device).or_else(|| file_system_uuid(below()?));
    let system =
        uuid.map_or_else(|| format!("{kind} of {source}"), |uuid| format!("{kind} {uuid}"));
    let born = match told(StatxFlags::BTIME) {
        true => format!(", made at {}.{:09}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        false => String::new(),
    };
    Some(format!("file {} on {system}{born}", stat.stx_ino))
}

/// The kind of file system of a mount, and what is mounted there.
fn mount_of(mounts: &str, id: u64) -> Option<(String, String)> {
    let id = id.to_string();
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
    // Fields without a fixed number end at a dash; then type, source, options (proc_pid_mountinfo(5)).
    let mut fields = line.split(' ').skip_while(|field| *field != "-").skip(1);
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// The UUID of the file system on a block device, as udev found it.
fn file_system_uuid(device: u64) -> Option<String> {
    let mut entries = fs::read_dir("/dev/disk/by-uuid").ok()?.flatten();
    let leads = |path: &Path| fs::metadata(path).is_ok_and(|found| found.rdev() == device);
    entries.find(|entry| leads(&entry.path()))?.file_name().into_string().ok()
}

/// By what the kernel tells of a block device in sysfs.
fn of_device(major: u32, minor: u32) -> Option<String> {
    of_device_in(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

fn of_device_in(folder: &Path) -> Option<String> {
    let read = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if let (Some(number), Some(start)) = (read("partition"), read("start")) {
        let disk = of_device_in(folder.canonicalize().ok()?.parent()?)?;
        return Some(format!("partition {number}, from sector {start}, of {disk}"));
    }
    if let Some(file) = read("loop/backing_file") {
        let file = stat_of(fs::File::open(file).ok()?).and_then(|stat| of_file(&stat))?;
        let offset = read("loop/offset").unwrap_or_default();
        return Some(format!("loop from byte {offset} of {file}"));
    }
    let told = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"];
    if let Some((name, said)) = told.iter().find_map(|name| Some((name, read(name)?))) {
        return Some(format!("{} {said}", name.replace('/', " ")));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("disk {} of boot {}", read("diskseq")?, boot.trim()))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn open(path: &Path, bytes: u64) -> OpenEnd {
        let fd = fs::File::options().read(true).write(true).open(path).unwrap().into();
        OpenEnd::new(Some("a".to_owned()), Backing::Open(fd), Uuid::nil(), bytes)
    }

    #[test]
    fn a_file_is_the_same_by_every_name_and_another_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
        fs::write(&a, [0; 512]).unwrap();
        fs::write(&b, [0; 512]).unwrap();
        fs::hard_link(&a, &c).unwrap();
        let identity = |path: &Path| open(path, 512).end.unwrap().identity;
        assert_eq!(identity(&a), identity(&c));
        assert_ne!(identity(&a), identity(&b));
        fs::remove_file(&a).unwrap();
        fs::rename(&b, &a).unwrap();
        assert_ne!(identity(&a), identity(&c));
    }

    #[test]
    fn a_file_that_is_written_to_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, [0; 512]).unwrap();
        let end = open(&path, 512);
        let uri = format!("file:{}", path.display()).parse().unwrap();
        let before = end.changed_durably();
        let look = Look::at(&uri).unwrap();
        assert_eq!(
            (look.identity, look.changed),
            (end.end.as_ref().map(|end| end.identity.clone()), before.clone())
        );
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let later = time + std::time::Duration::from_nanos(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_ne!(end.changed(), before);
    }

    #[test]
    fn holes_are_whole_pages_and_data_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let mut file = fs::File::create(&path).unwrap();
        file.set_len((4 << 20) + 512).unwrap();
        file.seek(std::io::SeekFrom::Start((1 << 20) + 100)).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let end = open(&path, (4 << 20) + 512);
        let holes = end.holes((4 << 20) + 512);
        if holes.is_empty() {
            println!("this file system tells of no holes");
            return;
        }
        assert!(holes.windows(2).all(|two| two[0].end() < two[1].offset), "{holes:?}");
        let data = Extent::new((1 << 20) + 100, 1 << 20);
        assert!(holes.iter().all(|hole| !hole.overlaps(data)), "{holes:?}");
        assert!(holes.iter().all(|hole| hole.offset.0 % PAGE == 0), "{holes:?}");
        assert_eq!(holes.last().unwrap().end().0, (4 << 20) + 512);
        assert_eq!(end.left_out(4 << 20), 512);
    }

    #[test]
    fn a_device_is_known_by_what_it_says_and_not_by_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("diskseq"), "9\n").unwrap();
        let of = |path: &Path| of_device_in(path).unwrap();
        assert!(of(&disk).starts_with("disk 9 of boot "), "{}", of(&disk));
        fs::write(disk.join("device/wwid"), "naa.5000c500a1b2c3d4\n").unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        fs::write(disk.join("sda1/start"), "2048\n").unwrap();
        assert_eq!(of(&disk), "device wwid naa.5000c500a1b2c3d4");
        let expected = "partition 1, from sector 2048, of device wwid naa.5000c500a1b2c3d4";
        assert_eq!(of(&disk.join("sda1")), expected);
    }

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mounts = "21 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      34 21 0:30 / /mnt rw,relatime shared:1 - nfs4 nas:/export rw,vers=4.2\n";
        let nfs = Some(("nfs4".to_owned(), "nas:/export".to_owned()));
        assert_eq!((mount_of(mounts, 34), mount_of(mounts, 3)), (nfs, None));
    }
}
