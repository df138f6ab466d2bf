//! The block device: a loop device over the file that the kernel is shown, made and taken away by
//! util-linux' `losetup`, so that an administrator can do the same by hand.
//!
//! A device is known by its file, whatever its number: numbers are used again. It works past the page cache
//! of its file, or it is refused. Taking it away is a wish: it goes once nobody has it open, also later than
//! `losetup` returns. Errors: what `losetup` says; a device that something uses, with what that is.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use testbed::Mounts;

/// Makes one over a file, in blocks of `block` bytes; its path.
pub(super) fn make(file: &Path, block: u32, read_only: bool) -> miette::Result<PathBuf> {
    let (size, file) = (format!("--sector-size={block}"), file.to_string_lossy());
    let mut args = vec!["--find", "--show", "--partscan", "--direct-io=on", &size];
    args.extend(read_only.then_some("--read-only"));
    args.push(&file);
    let device = PathBuf::from(losetup(&args)?.trim());
    let direct = fs::read_to_string(about(&device).join("loop/dio")).unwrap_or_default();
    if direct.trim() == "1" {
        return Ok(device);
    }
    let _ = free(&device);
    Err(miette::miette!(
        "{}: expected a loop device that works past the page cache (loop/dio), seen {:?}",
        device.display(),
        direct.trim()
    ))
}

/// Those over a file.
pub(super) fn over(file: &Path) -> Vec<PathBuf> {
    let Ok(all) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = all.flatten().map(|entry| PathBuf::from("/dev").join(entry.file_name()));
    names.filter(|device| is_over(device, file)).collect()
}

/// Whether a device is there, and is over a file.
pub(super) fn is_over(device: &Path, file: &Path) -> bool {
    let backing = fs::read_to_string(about(device).join("loop/backing_file"));
    backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file)
}

/// What sysfs says of a device.
fn about(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Has it taken away once nobody has it open.
pub(super) fn free(device: &Path) -> miette::Result<()> {
    losetup(&["--detach", &device.to_string_lossy()]).map(|_| ())
}

fn losetup(args: &[&str]) -> miette::Result<String> {
    testbed::run("losetup", args).map_err(|error| miette::miette!("{error}"))
}

/// What uses a device, in words; none where nothing does, as far as the kernel knows: a mount, also of a
/// partition or in another namespace, swap, a device above it.
pub(super) fn user(device: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(device, flags, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => {}
        _ => return None,
    }
    Some(match mounted(device).as_slice() {
        [] => "something uses it (swap, a device above it, or a mount elsewhere)".to_owned(),
        points => format!("it is mounted at {}", points.join(" and ")),
    })
}

/// Where it, and its partitions, are mounted.
pub(super) fn mounted(device: &Path) -> Vec<String> {
    let Ok(mounts) = Mounts::now() else { return Vec::new() };
    let device = device.display().to_string();
    let is_it = |source: &str| {
        let rest = source.strip_prefix(&device);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
    };
    let points = mounts.all().filter(|mount| is_it(&mount.source));
    points.map(|mount| mount.point.display().to_string()).collect()
}
