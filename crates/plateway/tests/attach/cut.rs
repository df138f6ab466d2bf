//! A file system of the kernel's on a disk whose power is cut: what was synced is there, and whoever asks is
//! told that not all is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::common::{Server, can_attach, plateway, text};
use crate::*;

const LENGTH: usize = 16 << 10;

/// Which files are synced.
fn is_synced(number: u64) -> bool {
    number % 8 == 7
}

fn file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file{number}"))
}

/// Writes a file past the page cache, so that it is at the disk at once; synced or not.
fn write(folder: &Path, number: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let one = options.create(true).write(true).custom_flags(direct).open(file(folder, number))?;
    let mut bytes = Aligned::new(LENGTH);
    bytes.bytes().copy_from_slice(&pattern(number, LENGTH));
    one.write_all_at(bytes.bytes(), 0)?;
    if is_synced(number) {
        one.sync_all()?;
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[test]
fn what_was_synced_survives_a_cut_of_the_disks_power() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Slow enough that a flush that does not wait is soon far ahead of it.
    let disk = "model:hdd-10k?service_write_us=30000&cache_mib=32&cut_ms=6000&off_ms=300,ram:64MiB";
    let server = Server::of(directory.path(), "s", disk);
    let address = server.listens("nvme");
    let uri = format!("nvme+tcp://{address}/nqn.2026-11.net.plateway:v0/1");
    let device = Device::of(directory.path(), &[&uri]);
    format(&device);
    let mounted = Mounted::of(&device, directory.path());
    let until = Instant::now() + HANG;
    // The first that fails, or cannot be begun.
    let first_failed = (0..).find(|number| {
        assert!(Instant::now() < until, "the power stayed");
        write(&mounted.0, *number).is_err()
    });
    let synced: Vec<u64> = (0..first_failed.unwrap()).filter(|one| is_synced(*one)).collect();
    assert!(synced.len() > 1, "the disk had no time: {first_failed:?}");
    // What cannot be written any more is an error here, too, which is told.
    drop(mounted);
    let _ = detach(&device.path);
    let log = directory.path().join("s.log");
    wait("the log tells of it", || {
        fs::read_to_string(&log).unwrap().contains("power was cut as planned")
    });
    // What the disk has is looked at by others.
    let image = directory.path().join("image");
    let to = format!("file:{}?create=64MiB", image.display());
    let copied = plateway().args(["copy", &uri, &to]).output().unwrap();
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let checked = Command::new("e2fsck").args(["-f", "-y"]).arg(&image).output().unwrap();
    let code = checked.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?} {}", text(&checked.stdout));
    let folder = directory.path().join("seen");
    fs::create_dir(&folder).unwrap();
    run(Command::new("mount").args(["-o", "loop,ro"]).arg(&image).arg(&folder));
    let seen = Mounted(folder);
    for number in synced {
        let bytes = fs::read(file(&seen.0, number)).unwrap();
        assert!(bytes == pattern(number, LENGTH), "file{number} is not what was synced");
    }
    seen.unmount();
    // What it cannot make durable any more it would tell as it ends.
    server.kill();
}
