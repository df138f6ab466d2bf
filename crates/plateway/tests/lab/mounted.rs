//! `plateway lab` on file systems that it makes: each trial has one of its own over its path, what a disk holds
//! is not written over, and whatever ends a lab or a target, nothing of it stays mounted or attached.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, mounted, text};
use crate::{alone, kept, lab, run};

const LAN: &str = "[[path]]\nname = \"lan\"\n";
const HEAD: &str = "name = \"mounted\"\nshared = true\nwindow = \"100ms\"\nwarm-up = \"0\"\n";

/// A system on which a file system is made.
fn system(name: &str, way: &str) -> String {
    format!("[[system]]\nname = \"{name}\"\n{way}\nfile-system = \"ext4\"\n")
}

fn served(protocol: &str) -> String {
    format!("serve = {{ protocol = \"{protocol}\", disk = \"ram:64MiB\" }}")
}

fn drawn(systems: &[&str], load: &str) -> String {
    format!("[[picture]]\nname = \"all\"\nsystems = {systems:?}\nsize = \"8MiB\"\n{load}\n")
}

/// A folder with a plan; none where this machine cannot attach disks.
fn with_plan(plan: &str) -> Option<TempDir> {
    let directory = can_attach().then(|| tempfile::tempdir().unwrap())?;
    fs::write(directory.path().join("a.toml"), format!("{HEAD}{plan}")).unwrap();
    Some(directory)
}

fn begin(directory: &Path) -> Child {
    let mut command = lab(directory, &["run", "a.toml", "--overwrite"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What a lab has mounted: the point, and the file below its device.
pub(crate) fn mounts_of(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    let home = std::env::temp_dir().join(format!("plateway-lab-{pid}"));
    let all = testbed::Mounts::now().unwrap();
    let is_its =
        |mount: &&testbed::Mount| mount.kind == "ext4" && mount.source.starts_with("/dev/loop");
    let its = all.all().filter(|mount| mount.point.starts_with(&home)).filter(is_its);
    its.map(|mount| (mount.point.clone(), below(Path::new(&mount.source)))).collect()
}

/// The file below a loop device; none of one that is gone.
fn below(device: &Path) -> PathBuf {
    let about = Path::new("/sys/block").join(device.file_name().unwrap());
    let file = fs::read_to_string(about.join("loop/backing_file")).unwrap_or_default();
    file.trim_end().into()
}

/// Whether a loop device is over a file.
fn is_below_one(file: &Path) -> bool {
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    devices.into_iter().any(|device| below(&device) == file)
}

/// How many KiB the kernel reads ahead of the device over a file.
fn read_ahead(file: &Path) -> String {
    let mut devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    let device = devices.find(|device| below(device) == file).expect("a device is over it");
    fs::read_to_string(device.join("queue/read_ahead_kb")).unwrap().trim().to_owned()
}

/// Waits until a client works on a file that is mounted.
pub(crate) fn until_worked_on(child: &mut Child) -> (PathBuf, PathBuf) {
    let until = Instant::now() + HANG;
    let prefix = format!("plateway-lab-{}-", child.id());
    loop {
        for (point, file) in mounts_of(child.id()) {
            let entries = fs::read_dir(&point).into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            if names.any(|name| name.starts_with(&prefix)) {
                return (point, file);
            }
        }
        assert!(
            child.try_wait().unwrap().is_none() && Instant::now() < until,
            "nothing is mounted"
        );
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Waits until nothing is mounted or attached any more.
pub(crate) fn until_gone(pid: u32, file: &Path) {
    let until = Instant::now() + HANG;
    while has_mounts(pid) || is_below_one(file) || !workers_of(pid, " lab ").is_empty() {
        assert!(Instant::now() < until, "{:?} stay, and what is over {file:?}", mounts_of(pid));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Whether a lab has anything mounted.
fn has_mounts(pid: u32) -> bool {
    let home = std::env::temp_dir().join(format!("plateway-lab-{pid}"));
    testbed::Mounts::now().unwrap().all().any(|mount| mount.point.starts_with(&home))
}

/// The processes of a lab, by their words, which name its folder.
pub(crate) fn workers_of(pid: u32, words: &str) -> Vec<i32> {
    let home = format!("plateway-lab-{pid}/");
    let all = fs::read_dir("/proc").unwrap().flatten();
    let its = all.filter_map(|entry| {
        let all = fs::read(entry.path().join("cmdline")).ok()?;
        let all = flat(&all).replace('\0', " ");
        let is_it = all.contains(words) && all.contains(&home);
        is_it.then(|| entry.file_name().to_str()?.parse::<i32>().ok())?
    });
    its.collect()
}

/// Whether paths cannot be laid here, which is told.
fn is_without_paths(why: &str) -> bool {
    let is = why.contains("network namespaces need root") || why.contains("expected a kernel that");
    if is {
        testkit::skipped(why);
    }
    is
}

#[test]
fn what_a_disk_holds_is_not_written_over_and_what_the_lab_left_there_is() {
    let plan = system("one", "disk = \"file:a.img\"") + &drawn(&["one"], "depth = [1, 2]");
    let Some(directory) = with_plan(&plan) else { return };
    let image = directory.path().join("a.img");
    let mut bytes = vec![0; 64 << 20];
    bytes[1000] = 7;
    fs::write(&image, &bytes).unwrap();
    let output = run(directory.path(), &["run", "a.toml"]);
    let why = flat(&output.stderr);
    assert!(output.status.code() == Some(1) && why.contains("2 of 2 trials failed"), "{why}");
    assert!(why.contains("holds data"), "{why}");
    assert!(fs::read(&image).unwrap() == bytes, "it was written");
    bytes[1000] = 0;
    fs::write(&image, &bytes).unwrap();
    let output = run(directory.path(), &["run", "a.toml", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(&image).unwrap() != bytes, "there is a file system now");
}

#[test]
fn an_interruption_leaves_nothing_and_what_a_killed_lab_left_goes_with_the_next() {
    leaves_nothing(&system("one", "disk = \"ram:64MiB\""), BY_BENCH);
}

#[test]
fn nor_does_one_of_a_trial_by_nfs() {
    leaves_nothing(&by_nfs(), BY_BENCH);
}

#[test]
fn nor_does_one_of_a_copy() {
    let way = served("nvme") + "\nclient = \"copy\"";
    let load = "pattern = \"write\"\nblock-size = [\"16k\", \"64k\"]\ndepth = 1\ncache = true\nsync = true";
    let slow = "[[path]]\nname = \"slow\"\nrate = \"50Mbit\"\n";
    leaves_nothing(&(system("one", &way) + slow), load);
}

const BY_BENCH: &str = "depth = [1, 2, 3, 4]\npattern = \"rw\"\ncache = true";

/// A trial is interrupted in its middle, and its lab is killed.
fn leaves_nothing(system: &str, load: &str) {
    let plan = system.to_owned() + &drawn(&["one"], load);
    let Some(directory) = with_plan(&plan) else { return };
    if let Err(why) = testbed::allowed("plateway-lab-test-") {
        return testkit::skipped(why);
    }
    let mut child = begin(directory.path());
    let (_, file) = until_worked_on(&mut child);
    assert_eq!(read_ahead(&file), "128", "as of a disk of the kernel's own, and of files by NFS");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    assert!(!has_mounts(pid));
    until_gone(pid, &file);

    let mut child = begin(directory.path());
    let (point, file) = until_worked_on(&mut child);
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(mounts_of(pid).len(), 1, "who is killed unmounts nothing");
    let output = run(directory.path(), &["run", "a.toml", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    until_gone(pid, &file);
    assert!(!point.exists());
}

#[test]
fn a_target_that_ends_in_mid_trial_fails_it_and_nobody_waits_for_what_was_written() {
    fails_by(&by_nvme(), " serve --config", Signal::KILL, "plateway serve ended with signal: 9");
}

#[test]
fn a_target_that_hangs_in_mid_trial_fails_it_and_nobody_waits_for_what_was_written() {
    fails_by(&by_nvme(), " serve --config", Signal::STOP, "1 of 1 trials failed");
}

#[test]
fn nor_does_anybody_where_a_server_of_nfs_ends_or_hangs() {
    for signal in [Signal::KILL, Signal::STOP] {
        fails_by(&by_nfs(), " lab export", signal, "1 of 1 trials failed");
    }
}

fn by_nvme() -> String {
    system("one", &served("nvme")) + LAN
}

fn by_nfs() -> String {
    system("one", "nfs = { disk = \"ram:64MiB\" }") + LAN
}

/// A trial fails, with these words, whose target, a process with these, gets this signal in the middle of it; nothing of it
/// stays.
fn fails_by(system: &str, target: &str, signal: Signal, words: &str) {
    let load = "depth = 4\npattern = \"randwrite\"\ncache = true";
    let plan = system.to_owned() + &drawn(&["one"], load);
    let Some(directory) = with_plan(&plan) else { return };
    let mut child = begin(directory.path());
    let pid = child.id();
    let (_, file) = match testbed::allowed("plateway-lab-test-") {
        Ok(()) => until_worked_on(&mut child),
        Err(why) => {
            child.kill().unwrap();
            child.wait().unwrap();
            return testkit::skipped(why);
        }
    };
    let servers = workers_of(pid, target);
    let [server] = servers.as_slice() else { panic!("one server, and there are {servers:?}") };
    kill_process(Pid::from_raw(*server).unwrap(), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains(words), "{why}");
    assert!(!has_mounts(pid));
    until_gone(pid, &file);
}

#[test]
fn what_a_file_system_needs_and_is_not_here_is_told_before_anything_is_made() {
    let plan =
        system("one", "disk = \"file:new?create=64MiB\"\nclient = \"fio\"") + &drawn(&["one"], "");
    let Some(directory) = with_plan(&plan) else { return };
    let mut command = lab(directory.path(), &["run", "a.toml"]);
    let output: Output = command.env("PATH", directory.path()).output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    for program in ["mkfs.ext4", "losetup", "mount", "umount", "fincore", "nsenter", "fio"] {
        let words = format!("system one: file-system: `{program}` is not on PATH");
        assert!(why.contains(&words), "{program}: {why}");
    }
    // Devices are as they are but for one.
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        let hide = format!(
            "cp -a /dev/null /dev/zero /dev/urandom \"$0\" && mount --bind \"$0\" /dev && : {device}"
        );
        let devices = directory.path().join("devices");
        let _ = fs::create_dir(&devices);
        let others = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|one| *one != device);
        let hide = hide.replace("/dev/null ", &format!("/dev/null {} ", others.unwrap()));
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("rm -f \"$0\"/* && {hide} && exec \"$@\"")]);
        command.arg(&devices).arg(env!("CARGO_BIN_EXE_plateway")).args(["lab", "check", "a.toml"]);
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        let why = flat(&command.stdin(Stdio::null()).output().unwrap().stderr);
        let words =
            format!("system one: file-system: expected {device}, seen none (modprobe {module}");
        assert!(why.contains(&words), "{why}");
    }
    let Some(mut command) = mounted(": \"$0\"", directory.path()) else { return };
    // Whoever is root of a namespace of its own alone is refused by the kernel, later.
    command.current_dir(directory.path()).args(["lab", "check", "a.toml"]);
    assert!(command.output().unwrap().status.success());
    assert!(!directory.path().join("new").exists());
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_copy_takes_as_long_as_its_path_when_it_is_synced_and_as_memory_when_it_is_not() {
        let plan = system("nvme", &(served("nvme") + "\nclient = \"copy\""))
            + "[[path]]\nname = \"lan\"\nrate = \"100Mbit\"\n"
            + &drawn(
                &["nvme"],
                "pattern = \"write\"\nblock-size = \"64k\"\ndepth = 1\ncache = true\nsync = [true, false]",
            );
        let Some(directory) = with_plan(&plan) else { return };
        let _alone = alone();
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        if is_without_paths(&why) {
            return;
        }
        assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
        let kept = kept(&directory.path().join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        let of = |synced: bool| {
            let is_it = |trial: &&serde_json::Value| {
                trial["cell"].as_str().unwrap().contains(", sync") == synced
            };
            trials.iter().find(is_it).unwrap()
        };
        let bytes = |synced: bool| of(synced)["measures"]["throughput"].as_f64().unwrap();
        // 12.5 MB/s less headers; a bucket lets some through at once.
        assert!((2e6..13e6).contains(&bytes(true)), "{}", of(true));
        assert!(bytes(false) > 2.0 * bytes(true), "{}", of(false));
        let synced = of(true);
        let on_wire = synced["wire_bytes_per_op"].as_f64().unwrap() / 65536.0;
        assert!((0.8..1.4).contains(&on_wire), "{on_wire}: {synced}");
        assert!(synced.get("storage_written_per_op").is_none(), "it would be none of the blocks'");
        assert_eq!(synced["bench"]["steady"]["requests"], 128, "each block once");
    }

    #[test]
    fn each_trial_has_a_file_system_of_its_own_over_its_path() {
        let fio = Command::new("fio").arg("--version").output().is_ok();
        let client = if fio { "\nclient = \"fio\"" } else { "" };
        let plan = system("aoe", &served("aoe"))
            + &system("nvme", &(served("nvme") + client))
            + &system("here", "disk = \"ram:64MiB\"\nmount-options = \"noatime,commit=20\"")
            + "[[path]]\nname = \"lan\"\n"
            + &drawn(
                &["aoe", "nvme", "here"],
                "pattern = \"randrw\"\ndepth = 4\ncache = [false, true]",
            );
        let Some(directory) = with_plan(&plan) else { return };
        let _alone = alone();
        let child = begin(directory.path());
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        if is_without_paths(&why) {
            return;
        }
        assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
        assert!(mounts_of(pid).is_empty());
        let kept = kept(&directory.path().join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 6, "{kept}");
        for trial in trials {
            let cell = trial["cell"].as_str().unwrap();
            let number = |key: &str| trial[key].as_f64();
            assert!(trial["measures"]["iops"].as_f64() > Some(0.0), "{trial}");
            assert_eq!(trial["file_system"]["type"], "ext4", "{trial}");
            let options = trial["file_system"]["options"].as_str().unwrap();
            let is_asked = options.contains("noatime") && options.contains("commit=20");
            assert_eq!(is_asked, cell.starts_with("here"), "{trial}");
            let source = trial["file_system"]["source"].as_str().unwrap();
            assert!(source.starts_with("/dev/loop"), "{trial}");
            let is_cached = cell.ends_with("through the page cache");
            // Half of the operations read, and what was read once stays.
            let read = number("storage_read_per_op").unwrap();
            assert!(if is_cached { read < 1024.0 } else { read > 1024.0 }, "{trial}");
            let held = number("page_cache_bytes").unwrap();
            assert!(if is_cached { held > 1e6 } else { held <= 256.0 * 1024.0 }, "{trial}");
            // What goes past the page cache goes over the path, both ways, and of a disk that is here nothing.
            let wire = number("wire_bytes_per_op");
            match (cell.starts_with("here"), is_cached) {
                (true, _) => assert_eq!(wire, None, "{trial}"),
                (false, false) => assert!(wire > Some(4096.0), "{trial}"),
                (false, true) => assert!(wire.is_some(), "{trial}"),
            }
            let is_fio =
                trial["bench"]["client"].as_str().is_some_and(|name| name.starts_with("fio-"));
            assert_eq!(is_fio, fio && cell.starts_with("nvme"), "{trial}");
        }
    }

    /// What a client has in memory that is not written yet is bounded with its memory, so that a copy that is not synced takes
    /// as long as its path for what is beyond.
    #[test]
    fn a_copy_of_a_client_with_little_memory_is_not_one_into_memory() {
        let plan = system("nvme", &(served("nvme") + "\nclient = \"copy\""))
        + "[[path]]\nname = \"lan\"\nrate = \"100Mbit\"\n"
        + &drawn(
            &["nvme"],
            "pattern = \"write\"\nblock-size = \"64k\"\ndepth = 1\ncache = true\nclient-memory = \"20MiB\"",
        )
        .replace("8MiB", "32MiB");
        let Some(directory) = with_plan(&plan) else { return };
        let _alone = alone();
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        if is_without_paths(&why) {
            return;
        }
        if !output.status.success() && why.contains("control group") {
            return testkit::skipped(why);
        }
        assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
        let kept = kept(&directory.path().join("a.result.json"));
        let trial = &kept["trials"][0];
        let bound = trial["dirty_bytes_max"].as_u64();
        if bound.is_none() {
            return testkit::skipped(&trial["notes"]);
        }
        assert_eq!(bound, Some((20 << 20) / 5), "{trial}");
        // 12.5 MB/s less headers, but for what is on its way when it ends.
        let bytes = trial["measures"]["throughput"].as_f64().unwrap();
        assert!((2e6..25e6).contains(&bytes), "{trial}");
    }
}
