//! `plateway lab` in folders: what cannot be worked in is refused at its line and left as it is, a file
//! is past the page cache or cold, nothing of it is left, and what would be another trial than its cell
//! says is none. Of the page cache only what matters is asked: the kernel may read ahead and evict.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{HANG, child_of, flat, mounted, text};
use crate::{alone, kept, lab, run};

/// How large the files of these tests are.
const MIB: u64 = 1 << 20;

/// A directory with an empty folder, on the disk where builds are; none where that is memory.
struct Place {
    directory: TempDir,
}

impl Place {
    fn make() -> Option<Place> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = directory.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&folder).output().unwrap();
        if text(&kind.stdout).trim() == "tmpfs" {
            testkit::skipped("builds are in memory");
            return None;
        }
        Some(Place { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn folder(&self) -> PathBuf {
        self.path().join("folder")
    }

    /// What lies in the folder.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Writes a plan of its folder, with more of the system and of what is drawn.
    fn plan(&self, system: &str, load: &str) {
        fs::write(self.path().join("a.toml"), plan(&self.folder(), system, load)).unwrap();
    }

    /// Begins to run it.
    fn begin(&self) -> Child {
        let mut command = lab(self.path(), &["run", "a.toml", "--overwrite"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until a file is in the folder.
    fn file(&self, child: &mut Child) -> PathBuf {
        let until = Instant::now() + HANG;
        loop {
            if let Some(file) = self.files().pop() {
                return file;
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no file");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn plan(folder: &Path, system: &str, load: &str) -> String {
    format!(
        "name = \"in a folder\"\nshared = true\nwindow = \"100ms\"\nwarm-up = \"0\"\n\
         [[system]]\nname = \"one\"\nfolder = \"{}\"\n{system}\n\
         [[picture]]\nname = \"all\"\nsystems = [\"one\"]\n{load}\n",
        folder.display()
    )
}

#[test]
fn a_folder_that_cannot_be_worked_in_is_refused_at_its_line_and_left_as_it_is() {
    let Some(place) = Place::make() else { return };
    fs::write(place.folder().join("precious"), "precious").unwrap();
    fs::create_dir(place.folder().join("lost+found")).unwrap();
    let refused = |load: &str, words: &str| {
        for action in ["check", "run"] {
            place.plan("", load);
            let output = run(place.path(), &[action, "a.toml"]);
            let why = flat(&output.stderr);
            assert!(output.status.code() == Some(1) && why.contains(words), "{words}: {why}");
        }
    };
    refused(
        "size = \"1MiB\"",
        "a.toml:7:10: error: folder: expected an empty one, seen precious in",
    );
    assert_eq!(fs::read_to_string(place.folder().join("precious")).unwrap(), "precious");
    fs::remove_file(place.folder().join("precious")).unwrap();
    refused("size = \"1000TiB\"", "folder: expected room for a file of 1000 TiB, seen");
    let missing = place.folder().join("none");
    fs::write(place.path().join("a.toml"), plan(&missing, "", "size = \"1MiB\"")).unwrap();
    let why = flat(&run(place.path(), &["run", "a.toml"]).stderr);
    assert!(why.contains("folder: expected one that is there, seen none"), "{why}");
    assert!(!missing.exists());
    place.plan("", "size = \"1MiB\"");
    let output = run(place.path(), &["check", "a.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(place.files().len(), 1, "something was made");
}

#[test]
fn who_reads_the_file_through_the_page_cache_meanwhile_spoils_a_cell_past_it() {
    let Some(place) = Place::make() else { return };
    place.plan("", &format!("size = \"{}\"\ndepth = 1", 8 * MIB));
    let mut child = place.begin();
    let file = place.file(&mut child);
    // Read before it is measured, that would be what is told.
    let until = Instant::now() + HANG;
    let client = |words: &[&str]| words.contains(&"bench") && !words.contains(&"--fill");
    while child_of(&child, client).is_none() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no client");
    }
    // Until it is gone.
    while fs::read(&file).is_ok() {}
    let why = flat(&child.wait_with_output().unwrap().stderr);
    assert!(why.contains("expected a client past the page cache, and when it was over"), "{why}");
    assert!(why.contains("1 of 1 trials failed") && place.files().is_empty(), "{why}");
}

#[test]
fn a_file_goes_with_an_interruption_and_one_of_a_killed_lab_with_the_next() {
    let Some(place) = Place::make() else { return };
    place.plan("", &format!("size = \"{}\"\ndepth = [1, 2, 3, 4]\npattern = \"rw\"", 4 * MIB));
    let mut child = place.begin();
    place.file(&mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    assert!(place.files().is_empty(), "{:?}", place.files());

    let mut child = place.begin();
    place.file(&mut child);
    // While one works there, another does not.
    let output = run(place.path(), &["run", "a.toml", "--result", "b.json"]);
    let why = flat(&output.stderr);
    let its = format!("expected an empty one, seen plateway-lab-{}-", child.id());
    assert!(why.contains(&its), "{why}");
    assert!(why.contains("another lab works there"), "{why}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.files().is_empty(), "who is killed removes nothing");
    let output = run(place.path(), &["run", "a.toml", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// Groups of a lab that are there, by the number of its process.
fn groups(pid: u32) -> String {
    let mut find = Command::new("find");
    find.args(["/sys/fs/cgroup", "-name", &format!("plateway-lab-{pid}-*")]);
    text(&find.output().unwrap().stdout).to_owned()
}

#[test]
fn a_machine_without_controllers_of_groups_is_told_at_the_lines_that_ask_for_them() {
    let Some(place) = Place::make() else { return };
    // What was there is covered.
    let mounts = "mount -t tmpfs none /sys/fs/cgroup && : \"$0\"";
    let Some(mut command) = mounted(mounts, &place.folder()) else { return };
    place.plan("", "size = \"1MiB\"\nclient-memory = \"64MiB\"\nclient-cpu = \"50%\"");
    command.current_dir(place.path()).env("XDG_STATE_HOME", place.path());
    let output = command.args(["lab", "run", "a.toml"]).output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    for words in [
        "a.toml:13:17: error: client-memory: expected a machine where the memory of programs",
        "control groups with the memory controller: expected one of cgroup v2 or v1",
        "a.toml:14:14: error: client-cpu: expected a machine where the processor time of programs",
        "control groups with the cpu controller: expected one of cgroup v2 or v1",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert!(place.files().is_empty(), "{:?}", place.files());
}

#[test]
fn a_folder_in_memory_is_known_and_what_is_mounted_there_stays_or_a_trial_fails() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("memory");
    fs::create_dir(&folder).unwrap();
    let mounts = "mount -t tmpfs -o size=64m tmpfs \"$0\"";
    let Some(_) = mounted(mounts, &folder) else { return };
    let command = |action: &str| {
        let mut command = mounted(mounts, &folder).expect("it could be had a moment ago");
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        command.args(["lab", action, "a.toml"]);
        command
    };
    let cached = "size = \"4MiB\"\ncache = true\ndepth = [1, 2, 3, 4, 5, 6, 7, 8]";
    for (system, load, words) in [
        ("", "size = \"4MiB\"", "expected cache = true with one in memory (tmpfs)"),
        (
            "backing = \"file\"",
            cached,
            "expected backing = \"ram\" with one in memory (tmpfs), seen \"file\"",
        ),
        (
            "backing = \"ram\"\ndurable = true",
            cached,
            "expected durable = false with one in memory",
        ),
    ] {
        fs::write(directory.path().join("a.toml"), plan(&folder, system, load)).unwrap();
        let output = command("run").output().unwrap();
        let why = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && why.contains(words), "{words}: {why}");
        assert!(why.contains("a.toml:7:10: error: folder: "), "{why}");
    }
    fs::write(directory.path().join("a.toml"), plan(&folder, "backing = \"ram\"", cached)).unwrap();
    let mut child = command("run").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let seen = format!("/proc/{}/root{}", child.id(), folder.display());
    let until = Instant::now() + HANG;
    while fs::read_dir(&seen).map_or(0, Iterator::count) == 0 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no file");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut remount = Command::new("nsenter");
    remount.args([
        "--user",
        "--mount",
        "--preserve-credentials",
        "--target",
        &child.id().to_string(),
    ]);
    remount.args(["mount", "-o", "remount,noatime"]).arg(&folder);
    assert!(remount.status().unwrap().success(), "it cannot be mounted otherwise");
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert!(
        why.contains("expected what was mounted there when the first trial began, tmpfs of"),
        "{why}"
    );
    assert!(why.contains("noatime"), "{why}");
}

/// Processes of a fio that works in a folder.
fn fios(folder: &Path) -> Vec<i32> {
    let file = format!("--filename={}", folder.display());
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_its = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"fio\0") && flat(&words).contains(&file)
    };
    numbers.filter(is_its).collect()
}

/// Whether fio is there; told where it is not.
fn has_fio() -> bool {
    let there = Command::new("fio").arg("--version").output().is_ok();
    if !there {
        testkit::skipped("fio is not installed");
    }
    there
}

#[test]
fn a_fio_that_is_killed_fails_or_is_missing_is_told_and_leaves_nothing() {
    let Some(place) = Place::make().filter(|_| has_fio()) else { return };
    let folder = place.folder();
    place.plan("client = \"fio\"", "size = \"4MiB\"");
    for signal in [Signal::KILL, Signal::INT] {
        let mut child = place.begin();
        let until = Instant::now() + HANG;
        let fio = loop {
            if let Some(pid) = fios(&folder).pop() {
                break pid;
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no fio");
            std::thread::sleep(Duration::from_millis(2));
        };
        // Who works is killed; who asked for it is interrupted.
        let whom = match signal {
            Signal::KILL => Pid::from_raw(fio).unwrap(),
            _ => Pid::from_child(&child),
        };
        kill_process(whom, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        match signal {
            Signal::KILL => assert!(
                why.contains("fio ended before it was measured: it was killed by signal 9"),
                "{why}"
            ),
            _ => assert_eq!(output.status.code(), Some(130), "{why}"),
        }
        assert!(place.files().is_empty() && fios(&folder).is_empty(), "{:?}", place.files());
    }
    // One that complains, and none at all.
    let tools = place.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let fincore = Command::new("sh").args(["-c", "command -v fincore"]).output().unwrap();
    std::os::unix::fs::symlink(text(&fincore.stdout).trim(), tools.join("fincore")).unwrap();
    let run = |path: &str| {
        let mut command = lab(place.path(), &["run", "a.toml", "--overwrite"]);
        let output = command.env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(place.files().is_empty(), "{:?}", place.files());
        flat(&output.stderr)
    };
    let why = run(tools.to_str().unwrap());
    assert!(why.contains("a.toml:7:10: error: folder: "), "{why}");
    assert!(why.contains("`fio` is not on PATH (Debian package fio)"), "{why}");
    let script =
        "#!/bin/sh\n[ \"$1\" = --version ] || echo 'fio: engine is not loadable' >&2; exit 1\n";
    fs::write(tools.join("fio"), script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(tools.join("fio"), mode).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let why = run(&path);
    assert!(why.contains("fio ended before it was measured: fio: engine is not loadable"), "{why}");
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_copy_is_made_in_a_folder_once_a_trial_and_goes_also_when_it_is_interrupted() {
        let Some(place) = Place::make() else { return };
        let _alone = alone();
        let load = |size: &str| {
            format!(
                "size = \"{size}\"\npattern = \"write\"\ndepth = 1\ncache = true\nsync = [true, false]"
            )
        };
        place.plan("client = \"copy\"", &load("8MiB"));
        let output = run(place.path(), &["run", "a.toml"]);
        assert!(output.status.success(), "{}", flat(&output.stderr));
        let kept = kept(&place.path().join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 2);
        for trial in trials {
            assert_eq!(trial["bench"]["steady"]["requests"], 2048, "{trial}");
            assert!(trial["is_steady"].as_bool().unwrap(), "{trial}");
        }
        assert!(place.files().is_empty());
        place.plan("client = \"copy\"", &load("512MiB"));
        let mut child = place.begin();
        place.file(&mut child);
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
        assert!(place.files().is_empty());
    }

    #[test]
    fn a_file_is_past_the_page_cache_or_cold_and_what_storage_gave_is_told() {
        let Some(place) = Place::make() else { return };
        let _alone = alone();
        place.plan("", &format!("size = \"{}\"\ndepth = 4\ncache = [false, true]", 8 * MIB));
        let output = run(place.path(), &["run", "a.toml"]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        assert!(said.contains("B/op of storage"), "{said}");
        let kept = kept(&place.path().join("a.result.json"));
        let mut find = Command::new("findmnt");
        find.args(["--noheadings", "--output", "FSTYPE", "--target"]).arg(place.folder());
        let kind = text(&find.output().unwrap().stdout).trim().to_owned();
        let mut cells = Vec::new();
        for trial in kept["trials"].as_array().unwrap() {
            let cell = trial["cell"].as_str().unwrap();
            let number =
                |key: &str| trial[key].as_f64().unwrap_or_else(|| panic!("{key}: {trial}"));
            let is_cached = cell.ends_with(", through the page cache");
            // Read once it stays there, as long as nobody needs the memory: so of nearly all reads the disk
            // knows nothing, and past the cache of each.
            let of_storage = number("storage_read_per_op");
            assert!(if is_cached { of_storage < 2048.0 } else { of_storage > 2048.0 }, "{trial}");
            let held = number("page_cache_bytes");
            assert!(if is_cached { held > 1e6 } else { held <= 256.0 * 1024.0 }, "{trial}");
            assert_eq!(trial["file_system"]["type"], *kind, "{trial}");
            assert!(trial["file_system"]["options"].as_str().unwrap().contains("rw"), "{trial}");
            assert!(trial["measures"]["iops"].as_f64().unwrap() > 0.0);
            cells.push(is_cached);
        }
        cells.sort_unstable();
        assert_eq!(cells, [false, true], "{kept}");
        assert!(place.files().is_empty(), "{:?}", place.files());
    }

    #[test]
    fn a_client_has_no_more_memory_than_the_plan_lets_it_have() {
        let Some(place) = Place::make() else { return };
        let _alone = alone();
        let load = format!(
            "size = \"{}\"\nblock-size = \"128k\"\ndepth = 4\ncache = true\nclient-memory = ",
            128 * MIB
        );
        // The bounded one goes through its page cache again and again, the other one is done with the disk.
        place.plan("", &format!("{load}[\"64MiB\", \"1GiB\"]"));
        let child = place.begin();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        if why.contains("the memory of programs can be bounded") {
            assert!(why.contains("a.toml:13:17: error: client-memory"), "{why}");
            return testkit::skipped(why);
        }
        assert!(output.status.success(), "{}{why}", text(&output.stdout));
        assert_eq!(groups(pid), "");
        let kept = kept(&place.path().join("a.result.json"));
        let held = |memory: &str| -> f64 {
            let mut trials = kept["trials"].as_array().unwrap().iter();
            let its = |trial: &&Value| trial["cell"].as_str().unwrap().ends_with(memory);
            trials.find(its).unwrap_or_else(|| panic!("{kept}"))["page_cache_bytes"]
                .as_f64()
                .unwrap()
        };
        assert!(held("client memory 64MiB") <= (64 * MIB) as f64, "{kept}");
        assert!(held("client memory 1GiB") > (64 * MIB) as f64, "{kept}");

        let load = format!(
            "size = \"{}\"\nblock-size = \"1m\"\ndepth = 256\nclient-memory = \"16MiB\"",
            128 * MIB
        );
        place.plan("", &load);
        let child = place.begin();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(
            why.contains(
                "the kernel killed the client, which needed more memory than client-memory = 16 MiB"
            ),
            "{why}"
        );
        assert!(groups(pid).is_empty() && place.files().is_empty(), "{}", groups(pid));
    }

    #[test]
    fn fio_and_bench_do_the_same_on_a_file_and_fio_is_ended_when_it_has_settled() {
        let Some(place) = Place::make().filter(|_| has_fio()) else { return };
        let _alone = alone();
        let folder = place.folder();
        let mut plan =
            plan(&folder, "", "pattern = \"randrw=70\"\njobs = 2\ndepth = 4\nsize = \"8MiB\"");
        plan += &format!(
            "cache = [false, true]\n[[system]]\nname = \"two\"\nfolder = \"{}\"\nclient = \"fio\"\n",
            folder.display()
        );
        let plan = plan.replace("systems = [\"one\"]", "systems = [\"one\", \"two\"]");
        fs::write(place.path().join("a.toml"), plan).unwrap();
        let output = run(place.path(), &["run", "a.toml"]);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        let kept = kept(&place.path().join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 4, "{kept}");
        for trial in trials {
            let cell = trial["cell"].as_str().unwrap();
            let number = |key: &str| trial.pointer(key).and_then(Value::as_f64);
            let windows = trial["windows"].as_array().unwrap().len();
            assert!((5..=25).contains(&windows), "{trial}");
            for key in ["/measures/iops", "/measures/p50", "/measures/p99", "/near/busy"] {
                assert!(number(key) > Some(0.0), "{key}: {trial}");
            }
            // Shares of five windows that were written down as one figure.
            let mean: f64 = trial["windows"].as_array().unwrap()[windows - 5..]
                .iter()
                .map(|value| value.as_f64().unwrap() / 5.0)
                .sum();
            assert!((mean / number("/measures/iops").unwrap() - 1.0).abs() < 1e-6, "{trial}");
            let read = number("/storage_read_per_op").unwrap();
            // Of ten operations seven read 4 KiB.
            let is_cached = cell.ends_with("through the page cache");
            assert!(if is_cached { read < 1434.0 } else { read > 1434.0 }, "{trial}");
            // What is dirty in the page cache is counted once, however often it is written.
            let written = number("/storage_written_per_op");
            assert!(is_cached && written.is_some() || written > Some(400.0), "{trial}");
            let client = &trial["bench"]["client"];
            assert_eq!(
                client.as_str().is_some_and(|name| name.starts_with("fio-")),
                cell.starts_with("two")
            );
        }
        assert!(place.files().is_empty() && fios(&folder).is_empty(), "{:?}", place.files());
    }
}
