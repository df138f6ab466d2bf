//! Block devices, by a loop device on both engines, and a file that QEMU opens. In a program of its
//! own and one after the other, since a child that is started holds for a moment every descriptor
//! of its parent, and with them the locks of files that other tests let go. Where no loop device
//! can be made, or there is no qemu-io, it says so and passes.

mod common;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use block::{ByteCount, ShardId};
use contract::{Cache, DiskId, Poll};
use reactor::Config;
use reactor::disk::{Access, Disk, OpenSpec, Tail};
use reactor::memory::Arena;
use tempfile::TempDir;
use testkit::suite::{self, Note, Report};

use common::{LoopDevice, on_each_engine, two_shards};

const SIZE: u64 = 4 << 20;

/// A device that is said to write through. The kernel keeps that for the next user of it, so it is
/// taken back.
struct WriteThrough(PathBuf, String);

impl WriteThrough {
    fn of(device: &LoopDevice) -> std::io::Result<WriteThrough> {
        let name = device.0.file_name().expect("a device has a name");
        let path = Path::new("/sys/block").join(name).join("queue/write_cache");
        let before = std::fs::read_to_string(&path)?;
        std::fs::write(&path, "write through")?;
        Ok(WriteThrough(path, before))
    }
}

impl Drop for WriteThrough {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, &self.1);
    }
}

#[test]
fn what_children_are_needed_for() {
    a_block_device_is_accessed_directly_and_is_one_servers_alone();
    qemu_itself_is_refused_and_let_in_afterwards();
}

fn qemu_itself_is_refused_and_let_in_afterwards() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("a.img");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let qemu = || {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).arg(&path);
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let opens = || Ok::<_, std::io::Error>(qemu().args(["-c", "write 0 4k"]).status()?.success());
    match opens() {
        Ok(true) => {}
        other => return eprintln!("skipped: qemu-io is not to be had: {other:?}"),
    }
    let arena = Arc::new(Arena::new(1).unwrap());
    let spec = OpenSpec::File { path: path.clone(), create: None, tail: Tail::Refuse };
    let disk = Disk::open(&spec, &arena).unwrap();
    assert!(!opens().unwrap(), "it opens what is served");
    drop(disk);

    // It asks for a command when it has the image, and lets go when there are no more.
    let mut has_it = qemu().stdin(Stdio::piped()).spawn().unwrap();
    let mut asks = [0; 9];
    has_it.stdout.as_mut().unwrap().read_exact(&mut asks).unwrap();
    let refused = Disk::open(&spec, &arena).map(drop);
    assert!(has_it.wait().unwrap().success());
    assert_eq!(&asks, b"qemu-io> ");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("QEMU"), "{refused}");
    Disk::open(&spec, &arena).map(drop).unwrap();
}

fn a_block_device_is_accessed_directly_and_is_one_servers_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let device = match LoopDevice::over(&path) {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped: no loop device can be made here: {why}"),
    };
    // What the kernel says of its cache at present may be changed later, so it counts for nothing.
    let _cache = WriteThrough::of(&device).inspect_err(|why| {
        eprintln!("not tried with a device that writes through: {why}");
    });
    on_each_engine(|driver| {
        let (handle, arena) = common::start(&Config { driver, ..two_shards() });
        let spec = OpenSpec::BlockDevice { path: device.0.clone() };
        let disk = Arc::new(Disk::open(&spec, &arena).unwrap());
        assert_eq!(disk.access(), Some(Access::Direct));
        assert_eq!((disk.facts().size, disk.facts().cache), (ByteCount(SIZE), Cache::Volatile));
        assert!(Disk::open(&spec, &arena).is_err(), "it is held");
        handle.add_disk(DiskId(1), &disk, Poll::Auto);
        for shard in [ShardId(0), ShardId(1)] {
            handle.send(shard, Note::Command(suite::Command::Blocks(DiskId(1), 200)));
            assert_eq!(common::report(&handle), (shard, Report::Blocks(200)));
        }
        handle.stop();
    });
}
