//! `plateway lab` on many files: every workload on a file system of its own and in a folder, what is seen of each, that
//! nothing of it stays however it ends, and that a full disk fails a trial and says so.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, mounted, text};
use crate::{alone, kept, lab, run};

const HEAD: &str = "name = \"many\"\nshared = true\nwindow = \"100ms\"\nwarm-up = \"0\"\n";

fn with_plan(directory: TempDir, plan: &str) -> TempDir {
    fs::write(directory.path().join("a.toml"), format!("{HEAD}{plan}")).unwrap();
    directory
}

fn drawn(systems: &[&str], load: &str) -> String {
    format!("[[picture]]\nname = \"all\"\nsystems = {systems:?}\n{load}\n")
}

fn begin(directory: &Path) -> Child {
    let mut command = lab(directory, &["run", "a.toml", "--overwrite"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn every_workload_works_on_files_of_a_file_system_of_its_own() {
    if !can_attach() {
        return;
    }
    let plan = "[[system]]\nname = \"here\"\ndisk = \"ram:64MiB\"\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:64MiB\" }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n"
        .to_owned();
    let load =
        "files = [\"webserver\", \"fileserver\", \"varmail\", \"oltp\"]\nsize = \"8MiB\"\njobs = 2";
    let directory =
        with_plan(tempfile::tempdir().unwrap(), &(plan + &drawn(&["here", "nvme"], load)));
    let _alone = alone();
    let child = begin(directory.path());
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    if why.contains("network namespaces need root") || why.contains("expected a kernel that") {
        return testkit::skipped(why);
    }
    assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
    let home = std::env::temp_dir().join(format!("plateway-lab-{pid}"));
    let mounts = testbed::Mounts::now().unwrap();
    assert!(!mounts.all().any(|mount| mount.point.starts_with(&home)), "something stays mounted");
    let kept = kept(&directory.path().join("a.result.json"));
    let trials = kept["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 8, "{kept}");
    for trial in trials {
        let cell = trial["cell"].as_str().unwrap();
        let number = |place: &str| trial.pointer(place).and_then(serde_json::Value::as_f64);
        let word = trial["bench"]["files"].as_str().unwrap();
        assert!(cell.ends_with(&format!(", {word}, 8MiB of files, 2 jobs")), "{trial}");
        assert!(number("/measures/iops") > Some(0.0), "{trial}");
        assert!(number("/measures/throughput") > Some(0.0), "{trial}");
        assert_eq!(trial["file_system"]["type"], "ext4", "{trial}");
        // Of what was read some was held against what was written.
        assert!(number("/bench/looked/reads") > Some(0.0), "{trial}");
        let is_cached = word != "oltp";
        assert_eq!(number("/cache_hit_share").is_some(), is_cached, "{trial}");
        let held = number("/page_cache_bytes").unwrap();
        assert!(if is_cached { held > 1e6 } else { held <= 256.0 * 1024.0 }, "{trial}");
        let counted = |kind: &str| number(&format!("/bench/counted/{kind}")).unwrap();
        let made = matches!(word, "fileserver" | "varmail");
        assert_eq!((counted("create") > 0.0, counted("delete") > 0.0), (made, made), "{trial}");
        assert_eq!(counted("fsync") > 0.0, word == "varmail", "{trial}");
        assert_eq!(counted("stat") > 0.0, word == "fileserver", "{trial}");
        // What has to be durable, or goes past the page cache, goes over the path.
        if cell.starts_with("nvme") && matches!(word, "varmail" | "oltp") {
            assert!(number("/measures/wire-bytes-per-op") > Some(100.0), "{trial}");
        }
    }
}

/// A directory with an empty folder, where builds are.
fn with_folder(load: &str) -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = directory.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let system = format!("[[system]]\nname = \"one\"\nfolder = {folder:?}\n");
    with_plan(directory, &(system + &drawn(&["one"], load)))
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory.join("folder")).unwrap().next().is_none()
}

/// Waits until a client works on files, of which the first was made.
fn until_worked_on(directory: &Path, child: &mut Child) {
    let until = Instant::now() + HANG;
    let is_made = || {
        let folders = fs::read_dir(directory.join("folder")).unwrap().flatten();
        folders.into_iter().any(|entry| entry.path().join("00000000").exists())
    };
    while !is_made() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no files");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn files_in_a_folder_go_with_their_trial_however_it_ends() {
    let load = "files = [\"webserver\", \"varmail\", \"fileserver\"]\nsize = \"6MiB\"\njobs = [1, 2, 3]\nclient-memory = \"64MiB\"";
    let directory = with_folder(load);
    let at = directory.path();
    let mut child = begin(at);
    let words = "memory of programs can be bounded, seen one where it cannot";
    let until = Instant::now() + HANG;
    while is_empty(at) && child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    if child.try_wait().unwrap().is_some() {
        let why = flat(&child.wait_with_output().unwrap().stderr);
        assert!(why.contains(words) || why.contains("fincore"), "{why}");
        return testkit::skipped(why);
    }
    until_worked_on(at, &mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    assert!(is_empty(at), "what was interrupted left something");

    // Who is killed leaves it, and the next one removes that with its own.
    let mut child = begin(at);
    until_worked_on(at, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_empty(at));
    let _alone = alone();
    let output = run(at, &["run", "a.toml", "--overwrite"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(is_empty(at), "what was measured left something");
    assert_eq!(kept(&at.join("a.result.json"))["trials"].as_array().unwrap().len(), 9);
}

#[test]
fn a_disk_that_is_full_fails_the_trial_with_its_file_and_what_helps() {
    let directory = with_folder("files = \"fileserver\"\nsize = \"6MiB\"\njobs = 2");
    let folder = directory.path().join("folder");
    // In memory, with room for the files, which somebody else takes as soon as the first is there.
    let fill = "for i in $(seq 600); do ls \"$0\"/plateway-lab-*/00000000 && break; sleep 0.05; done; head -c 100m /dev/zero";
    let mounts = format!(
        "mount -t tmpfs -o size=12m none \"$0\" && {{ ({fill} > \"$0\"/filler) > /dev/null 2>&1 & }}"
    );
    let Some(mut command) = mounted(&mounts, &folder) else { return };
    let system = "backing = \"ram\"\ndurable = false\n";
    let plan = fs::read_to_string(directory.path().join("a.toml")).unwrap();
    let plan = plan.replace("[[picture]]", &format!("{system}[[picture]]"));
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
    let output = command.args(["lab", "run", "a.toml"]).output().unwrap();
    let why = flat(&output.stderr);
    if why.contains("fincore") {
        return testkit::skipped(why);
    }
    assert_eq!(output.status.code(), Some(1), "{why}");
    let words = "No space left on device (os error 28) (a smaller size, or a larger disk)";
    assert!(why.contains(words) && why.contains("folder/plateway-lab-"), "{why}");
}
