//! `plateway attach` and `detach`: a block device of the kernel's that is a disk, with file systems on it,
//! and what becomes of both when a target, or the process behind the device, ends badly.
//!
//! Needs root, FUSE, loop devices and Debian's e2fsprogs; where a machine has none of them, that is told.

#[allow(unreachable_pub)]
mod common;
#[path = "attach/cut.rs"]
mod cut;
#[path = "attach/ends.rs"]
mod ends;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, can_attach, flat, plateway, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Only guards against hanging.
const HANG: Duration = Duration::from_secs(120);

/// An attached disk.
struct Device {
    child: Child,
    path: PathBuf,
    /// What it printed.
    said: Value,
}

fn attach(directory: &Path, args: &[&str]) -> Command {
    let mut command = plateway();
    command.current_dir(directory).env("STATE_DIRECTORY", directory.join("state"));
    command.arg("attach").args(args);
    command
}

impl Device {
    fn of(directory: &Path, args: &[&str]) -> Device {
        Device::by(attach(directory, args), directory)
    }

    /// One of a command, which may be elsewhere.
    fn by(mut command: Command, directory: &Path) -> Device {
        let log = File::create(directory.join("attach.log")).unwrap();
        command.args(["--json"]).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("}\n") {
            let read = lines.read_line(&mut text).unwrap();
            let log = || fs::read_to_string(directory.join("attach.log")).unwrap();
            assert!(read > 0, "it ended: {}", log());
        }
        let said: Value = serde_json::from_str(&text).unwrap();
        let path = PathBuf::from(said["device"].as_str().unwrap());
        Device { child, path, said }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// The folder of its process.
    fn place(&self) -> PathBuf {
        Path::new("/run/plateway-attached").join(self.child.id().to_string())
    }

    fn open(&self, flags: i32) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags).open(&self.path).unwrap()
    }

    fn backing(&self) -> Option<String> {
        fs::read_to_string(format!("/sys/block/{}/loop/backing_file", self.name())).ok()
    }

    /// Whether nothing of it is left: its folder, its device.
    fn is_gone(&self) -> bool {
        let ours = self.place().display().to_string();
        !self.place().exists() && self.backing().is_none_or(|backing| !backing.contains(&ours))
    }

    fn wait_until_gone(&self) {
        wait("nothing of it is left", || self.is_gone());
    }

    fn detach(self) {
        let output = detach(&self.path);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("{} is detached\n", self.path.display()));
        self.wait_for_end(0);
    }

    fn wait_for_end(mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
        self.wait_until_gone();
    }
}

impl Drop for Device {
    /// Of a test that failed, too, nothing stays.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

fn detach(device: &Path) -> Output {
    plateway().arg("detach").arg(device).output().unwrap()
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < until, "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder of the test's on which something is mounted while this is there.
struct Mounted(PathBuf);

impl Mounted {
    fn of(device: &Device, directory: &Path) -> Mounted {
        let point = directory.join("mnt");
        fs::create_dir_all(&point).unwrap();
        run(Command::new("mount").arg(&device.path).arg(&point));
        Mounted(point)
    }

    fn unmount(self) {
        run(Command::new("umount").arg(&self.0));
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Makes ext4 on it, which discards all of it first.
fn format(device: &Device) {
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.path));
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = block::Random::new(seed);
    (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(length).collect()
}

#[test]
fn what_is_written_to_the_device_is_on_the_disk_and_what_is_discarded_is_zeros() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = Device::of(directory.path(), &["file:a?create=64MiB"]);
    assert_eq!(
        (device.said["bytes"].as_u64(), device.said["block_bytes"].as_u64()),
        (Some(64 << 20), Some(512))
    );
    let mut file = device.open(0);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 64 << 20);
    let data = pattern(1, 3 << 20);
    file.write_all_at(&data, 1 << 20).unwrap();
    file.sync_all().unwrap();
    let on_disk = || fs::read(directory.path().join("a")).unwrap();
    assert!(on_disk()[1 << 20..4 << 20] == data[..], "a flush reaches the file");
    // Both kinds: what is of no interest any more, and zeros.
    let blkdiscard = |args: &[&str]| {
        run(Command::new("blkdiscard").args(args).arg(&device.path));
    };
    blkdiscard(&["--offset", "1048576", "--length", "1048576"]);
    blkdiscard(&["--zeroout", "--offset", "3145728", "--length", "524288"]);
    let mut expected = data.clone();
    expected[..1 << 20].fill(0);
    expected[2 << 20..][..512 << 10].fill(0);
    let mut seen = vec![0; data.len()];
    let past = device.open(rustix::fs::OFlags::DIRECT.bits() as i32);
    let mut aligned = Aligned::new(data.len());
    past.read_exact_at(aligned.bytes(), 1 << 20).unwrap();
    seen.copy_from_slice(aligned.bytes());
    assert!(seen == expected);
    assert!(on_disk()[1 << 20..4 << 20] == expected[..]);
    drop((file, past));
    let blocks = fs::metadata(directory.path().join("a")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert!(blocks.blocks() * 512 < 3 << 20, "space was given back: {} blocks", blocks.blocks());
    device.detach();
}

/// Memory as O_DIRECT wants it.
struct Aligned(Vec<u8>, usize, usize);

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![0u8; length + 4096];
        let at = memory.as_ptr().align_offset(4096);
        Aligned(memory, at, length)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..][..self.2]
    }
}

#[test]
fn what_is_mounted_is_not_detached_and_the_list_says_where_it_is() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = Device::of(directory.path(), &["ram:64MiB"]);
    format(&device);
    let mounted = Mounted::of(&device, directory.path());
    let point = mounted.0.display().to_string();
    let output = detach(&device.path);
    let refused = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(refused.contains(&format!("not detached: it is mounted at {point}")), "{refused}");
    assert!(refused.contains("umount"), "{refused}");
    // A signal is refused in the same way, and another one, too.
    for _ in 0..2 {
        kill_process(device.pid(), Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    let log = fs::read_to_string(directory.path().join("attach.log")).unwrap();
    assert!(log.contains("is not detached: it is mounted at"), "{log}");
    fs::write(mounted.0.join("still"), "here").unwrap();
    let list = |args: &[&str]| run(attach(directory.path(), &["--list"]).args(args));
    let line = |text: &str| {
        let name = device.path.display().to_string();
        text.lines().find(|line| line.trim_start().starts_with(&name)).map(str::to_owned)
    };
    let said = line(&list(&[])).expect("its line");
    assert!(said.contains("ram:64MiB") && said.contains(&point), "{said}");
    let all: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let ours = all.as_array().unwrap().iter().find(|one| one["device"] == device.said["device"]);
    let ours = ours.unwrap();
    assert_eq!((&ours["mounted"][0], &ours["is_answered"]), (&point.into(), &true.into()));
    mounted.unmount();
    let (path, said) = (device.path.clone(), device.said.clone());
    device.detach();
    let output = detach(&path);
    let refused = flat(&output.stderr);
    assert!(!output.status.success() && refused.contains("is not attached: expected"), "{refused}");
    let all: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert!(all.as_array().unwrap().iter().all(|one| one["process"] != said["process"]), "{all}");
}

#[test]
fn what_is_only_read_takes_no_write_and_others_are_told_what_is_wrong() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = pattern(2, 1 << 20);
    fs::write(directory.path().join("a"), &data).unwrap();
    let device = Device::of(directory.path(), &["file:a", "--read-only"]);
    assert_eq!(device.said["read_only"], true);
    let mut seen = Vec::new();
    File::open(&device.path).unwrap().read_to_end(&mut seen).unwrap();
    assert!(seen == data);
    let writable = OpenOptions::new().write(true).open(&device.path);
    assert!(writable.and_then(|mut file| file.write_all(&[1; 512])).is_err());
    device.detach();
    assert!(fs::read(directory.path().join("a")).unwrap() == data);
    let refuse = |args: &[&str]| {
        let output = attach(directory.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        flat(&output.stderr)
    };
    assert!(refuse(&["file:none"]).contains("none"), "of a file that is not there");
    let said = refuse(&["volume:v"]);
    assert!(said.contains("--config"), "{said}");
    let config =
        "[[disk]]\nname = \"d\"\nuri = \"file:a\"\n[[volume]]\nname = \"v\"\ndisks = [\"d\"]\n";
    fs::write(directory.path().join("p.toml"), config).unwrap();
    let device = Device::of(directory.path(), &["volume:v", "--config", "p.toml"]);
    let mut seen = Vec::new();
    File::open(&device.path).unwrap().read_to_end(&mut seen).unwrap();
    assert!(seen == data);
    device.detach();
    let output = detach(Path::new("/dev/loop-control"));
    assert!(flat(&output.stderr).contains("is not attached"), "{}", text(&output.stderr));
}

/// Whether fio is here; its own verification is another's opinion of what was written.
fn has_fio() -> bool {
    let has = Command::new("fio").arg("--version").output().is_ok();
    if !has {
        testkit::skipped("fio is not installed");
    }
    has
}

fn verify_by_fio(folder: &Path) -> Child {
    let mut command = Command::new("fio");
    command.current_dir(folder).args([
        "--name=v",
        "--filename=v",
        "--size=24m",
        "--rw=randwrite",
        "--bs=4k",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=16",
        "--verify=crc32c",
        "--do_verify=1",
        "--loops=3",
        "--verify_fatal=1",
        "--output-format=terse",
    ]);
    command.arg("--fsync=64");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// ext4 on a disk of a server, and fio's verification on it, while the server is killed and comes again.
/// `serve` starts it; `command` attaches its disk. What the server acknowledges is durable: of a cache that may
/// have lost something with it, a flush fails once (docs/decisions/0006), and ext4 takes no more writes then.
fn survives_a_killed_target(
    here: &Path,
    serve: impl Fn() -> Server,
    command: impl Fn(&Server) -> Command,
) {
    let server = serve();
    let device = Device::by(command(&server), here);
    format(&device);
    let mounted = Mounted::of(&device, here);
    let mut fio = verify_by_fio(&mounted.0);
    // In the middle of it.
    let file = mounted.0.join("v");
    wait("fio writes", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    assert!(fio.try_wait().unwrap().is_none(), "fio waits for its disk");
    let server = serve();
    let output = fio.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    mounted.unmount();
    // What the kernel thinks of it, after all that.
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&device.path));
    device.detach();
    server.stop();
}

/// Two stations with a cable between them.
struct Lan(testbed::Network);

impl Lan {
    /// None where it may not be made, or nothing can be attached.
    fn make() -> Option<Lan> {
        const PREFIX: &str = "plateway-attach-";
        if !can_attach() || !has_fio() {
            return None;
        }
        if let Err(why) = testbed::allowed(PREFIX) {
            testkit::skipped(why);
            return None;
        }
        let network = testbed::Network::make(PREFIX, &["t", "i"]).unwrap();
        let end = |node, mac| testbed::End { node, interface: "veth0", mac: Some(mac) };
        let ends = [end("t", "02:00:00:00:00:01"), end("i", "02:00:00:00:00:02")];
        network.cable(ends, testbed::Cable::of(9000)).unwrap();
        network.at("i").ip(&["link", "set", "lo", "up"]).unwrap();
        Some(Lan(network))
    }

    /// `plateway` in a node's network alone: who is in other mounts as well keeps a copy of what is mounted when
    /// it starts.
    fn inside(&self, node: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0.at(node).name()));
        command.arg(plateway().get_program());
        command
    }

    fn serve(&self, node: &str, directory: &Path, args: &[&str]) -> Server {
        let args = [args, &["--hosts", "any"]].concat();
        Server::try_start_by(self.inside(node), directory, "s", &args).unwrap()
    }

    fn attach(&self, directory: &Path, disk: &str) -> Command {
        let mut command = self.inside("i");
        command.current_dir(directory).env("STATE_DIRECTORY", directory.join("own"));
        command.args(["attach", disk]);
        command
    }
}

/// Over TCP, of a server that has its disk over AoE, which stays: the storage router of a paper.
fn survives_over_tcp(flag: &str, uri: fn(&str) -> String) {
    let Some(lan) = Lan::make() else { return };
    let directory = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| directory.path().join(name));
    [&here, &there].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let target = lan.serve("t", &there, &["ram:96MiB", "--aoe", "veth0/7.0"]);
    let address = std::cell::RefCell::new("127.0.0.1:0".to_owned());
    let serve = || {
        let at = address.borrow().clone();
        let server = lan.serve("i", &here, &["aoe://veth0/7.0", flag, &at]);
        *address.borrow_mut() = server.listens(flag.trim_start_matches('-'));
        server
    };
    survives_a_killed_target(&here, serve, |_| lan.attach(&here, &uri(&address.borrow())));
    target.stop();
}

#[test]
fn ext4_with_fios_verification_survives_a_killed_target_over_nvme() {
    survives_over_tcp("--nvme", |address| {
        format!("nvme+tcp://{address}/nqn.2026-11.net.plateway:v0/1?keep_alive_ms=1000")
    });
}

#[test]
fn ext4_with_fios_verification_survives_a_killed_target_over_iscsi() {
    survives_over_tcp("--iscsi", |address| {
        format!("iscsi://{address}/iqn.2026-11.net.plateway:v0/0?keep_alive_ms=1000")
    });
}

#[test]
fn ext4_with_fios_verification_survives_a_killed_target_over_aoe() {
    let Some(lan) = Lan::make() else { return };
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let serve = || lan.serve("t", here, &["file:d0?create=96MiB", "--aoe", "veth0/7.0"]);
    survives_a_killed_target(here, serve, |_| lan.attach(here, "aoe://veth0/7.0"));
}
