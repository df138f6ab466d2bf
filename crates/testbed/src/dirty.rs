//! How much of a device's file system may wait in memory to be written: a share of what its client has, as the kernel
//! has it of a machine.
//!
//! A kernel lets a fifth of a machine's memory be written behind, and begins to write at a tenth. Of a client whose
//! memory is bounded by a control group that would be many times its own. So the device by itself gets that limit
//! (`max_bytes` and `strict_limit` of its backing device, from Linux 6.2 on), and nothing of the machine is changed. It
//! is put back with its value; what was left by a killed process, on a loop device that nothing is behind any more, by
//! the next one. Units: bytes. Errors: those of the files in /sys.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Of a client's memory, a fifth may be written behind: the kernel's own `dirty_ratio` of 20.
const SHARE: u64 = 5;

/// A limit of a device, which goes with its value.
#[derive(Debug)]
pub struct DirtyLimit {
    /// Of its backing device, in /sys.
    bdi: PathBuf,
    bytes: u64,
}

impl Drop for DirtyLimit {
    fn drop(&mut self) {
        // Of a device that is gone there is nothing to be put back.
        let _ = put_back(&self.bdi);
    }
}

impl DirtyLimit {
    /// Sets that of a device, such as `/dev/loop3`, to the share of so much memory; none where this kernel has no
    /// limit of a device.
    pub fn set(device: &Path, client_memory: u64) -> Result<Option<Self>> {
        put_back_leftovers();
        Self::set_at(&bdi_of(device), client_memory)
    }

    fn set_at(bdi: &Path, client_memory: u64) -> Result<Option<Self>> {
        let strict = bdi.join("strict_limit");
        match fs::write(&strict, "1") {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            written => written.map_err(failed(&strict))?,
        }
        let limit = Self { bdi: bdi.to_owned(), bytes: client_memory / SHARE };
        let max = bdi.join("max_bytes");
        fs::write(&max, limit.bytes.to_string()).map_err(failed(&max))?;
        Ok(Some(limit))
    }

    /// How many bytes may wait to be written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let doing = format!("write {}", path.display());
    move |source| Error::System { doing, source }
}

fn bdi_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("bdi")
}

/// As it is without any limit.
fn put_back(bdi: &Path) -> std::io::Result<()> {
    fs::write(bdi.join("max_ratio"), "100")?;
    fs::write(bdi.join("strict_limit"), "0")
}

/// Of loop devices that have nothing behind them no limit is anybody's.
fn put_back_leftovers() {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in devices {
        let is_loop = device.file_name().to_string_lossy().starts_with("loop");
        let bdi = device.path().join("bdi");
        if is_loop && !device.path().join("loop").exists() && is_limited(&bdi) {
            let _ = put_back(&bdi);
        }
    }
}

fn is_limited(bdi: &Path) -> bool {
    fs::read_to_string(bdi.join("strict_limit")).is_ok_and(|said| said.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_fifth_of_its_clients_memory_and_all_again_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let bdi = folder.path();
        assert!(DirtyLimit::set_at(&bdi.join("none"), 100).unwrap().is_none(), "an old kernel");
        let read = |name: &str| fs::read_to_string(bdi.join(name)).unwrap();
        fs::write(bdi.join("strict_limit"), "0\n").unwrap();
        let limit = DirtyLimit::set_at(bdi, 64 << 20).unwrap().unwrap();
        assert_eq!((limit.bytes(), read("strict_limit")), ((64 << 20) / 5, "1".to_owned()));
        assert_eq!(read("max_bytes"), ((64 << 20) / 5).to_string());
        drop(limit);
        assert_eq!((read("max_ratio"), read("strict_limit")), ("100".to_owned(), "0".to_owned()));
    }

    #[test]
    fn a_limit_of_a_loop_device_is_the_kernels_and_what_was_left_is_put_back() {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        // The last one that nothing is behind: others are taken first.
        let free = devices.map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"))
                && !path.join("loop").exists()
        });
        let Some(free) = free.max() else { return testkit::skipped("no loop device is free") };
        let device = Path::new("/dev").join(free.file_name().unwrap());
        let limit = match DirtyLimit::set(&device, 64 << 20) {
            Ok(Some(limit)) => limit,
            Ok(None) => return testkit::skipped("the kernel has no limit of a device"),
            Err(why) => return testkit::skipped(why),
        };
        let bdi = bdi_of(&device);
        let seen = || -> u64 {
            let text = fs::read_to_string(bdi.join("max_bytes")).unwrap();
            text.trim().parse().unwrap()
        };
        // The kernel keeps it as a share of what the machine may have.
        assert!(is_limited(&bdi) && seen() <= (64 << 20) / 5 && seen() > 1 << 20, "{}", seen());
        std::mem::forget(limit);
        put_back_leftovers();
        assert!(!is_limited(&bdi) && seen() > 64 << 20, "{}", seen());
    }
}
