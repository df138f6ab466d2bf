//! `plateway lab` with bonnie++ and PostMark: what they tell is measured, nothing of theirs stays however a trial ends, and
//! where they are missing their packages are named.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, text};
use crate::{alone, kept, lab, run};

/// A plan that draws cells of one system, in a directory where builds are, with an empty folder.
fn with_plan(system: &str, pictures: &str) -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = directory.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let system = system.replace("FOLDER", &format!("{folder:?}"));
    let plan = format!(
        "name = \"programs\"\nshared = true\n[[system]]\nname = \"one\"\n{system}\n{pictures}"
    );
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    directory
}

fn drawn(files: &str, size: &str) -> String {
    format!(
        "[[picture]]\nname = {files:?}\nsystems = [\"one\"]\nfiles = {files:?}\nsize = {size:?}\n"
    )
}

fn is_missing(why: &str) -> bool {
    ["Debian package bonnie++", "Debian package postmark"].iter().any(|words| why.contains(words))
}

#[test]
fn what_programs_tell_of_a_file_system_is_measured() {
    if !can_attach() {
        return;
    }
    let system = "disk = \"ram:48MiB\"\nfile-system = \"ext4\"";
    let directory = with_plan(system, &(drawn("postmark", "2MiB") + &drawn("bonnie++", "16MiB")));
    let _alone = alone();
    let output = run(directory.path(), &["run", "a.toml"]);
    let why = flat(&output.stderr);
    if is_missing(&why) {
        return testkit::skipped(why);
    }
    assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
    let kept = kept(&directory.path().join("a.result.json"));
    let trials = kept["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2, "{kept}");
    let of = |files: &str| trials.iter().find(|trial| trial["bench"]["files"] == files).unwrap();
    let postmark = of("postmark");
    assert_eq!(postmark["cell"], "one, postmark, 2MiB of files");
    for measure in ["iops", "read-throughput", "write-throughput"] {
        let told = postmark["measures"][measure].as_f64();
        assert!(told > Some(0.0), "{measure}: {postmark}");
    }
    assert_eq!(postmark["bench"]["transactions"], 3900, "{postmark}");
    assert_eq!(postmark["file_system"]["type"], "ext4", "{postmark}");
    let windows = postmark["windows"].as_array().unwrap();
    assert!(windows.len() == 5 && windows.iter().all(|rate| rate.as_f64() > Some(0.0)));
    // Of 16 MiB in memory only what goes byte by byte takes long enough for certain, and what is not told is said.
    let bonnie = of("bonnie++");
    assert_eq!(bonnie["cell"], "one, bonnie++, a file of 16MiB");
    let all =
        ["char-write", "write-throughput", "rewrite", "char-read", "read-throughput", "seeks"];
    let told = all.iter().filter(|measure| bonnie["measures"][**measure].as_f64() > Some(0.0));
    let missing = bonnie["notes"].as_array().map_or(0, |notes| {
        notes.iter().filter(|note| note.as_str().unwrap().contains("bonnie++ tells no")).count()
    });
    assert_eq!(told.count() + missing, all.len(), "{bonnie}");
    assert!(bonnie["measures"]["char-write"].as_f64() > Some(0.0), "{bonnie}");
    assert!(bonnie["measures"]["iops"].is_null(), "{bonnie}");
}

/// How many processes work in a folder.
fn workers(folder: &Path) -> usize {
    let works = |entry: &fs::DirEntry| {
        fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(works).count()
}

fn begin(directory: &Path) -> Child {
    let mut command = lab(directory, &["run", "a.toml", "--overwrite"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_program_that_is_interrupted_leaves_neither_files_nor_itself() {
    let directory = with_plan("folder = FOLDER", &drawn("bonnie++", "16MiB"));
    let folder = directory.path().join("folder");
    for signal in [Signal::INT, Signal::KILL] {
        let mut child = begin(directory.path());
        let until = Instant::now() + HANG;
        while workers(&folder) == 0 {
            if child.try_wait().unwrap().is_some() {
                let why = flat(&child.wait_with_output().unwrap().stderr);
                assert!(is_missing(&why) || why.contains("fincore"), "{why}");
                return testkit::skipped(why);
            }
            assert!(Instant::now() < until, "it does not begin");
            std::thread::sleep(Duration::from_millis(2));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let code = (signal == Signal::INT).then_some(130);
        assert_eq!(output.status.code(), code, "{}", flat(&output.stderr));
        while workers(&folder) > 0 {
            assert!(Instant::now() < until, "{signal:?}: it goes on");
            std::thread::sleep(Duration::from_millis(2));
        }
        // What one that is killed leaves goes with the next trial.
        let is_empty = fs::read_dir(&folder).unwrap().next().is_none();
        assert_eq!(is_empty, signal == Signal::INT, "{signal:?}");
    }
}

#[test]
fn a_program_that_is_missing_is_told_with_its_package() {
    if !can_attach() {
        return;
    }
    let system = "disk = \"ram:48MiB\"\nfile-system = \"ext4\"";
    let directory = with_plan(system, &(drawn("postmark", "2MiB") + &drawn("bonnie++", "16MiB")));
    let output =
        lab(directory.path(), &["check", "a.toml"]).env("PATH", "/nowhere").output().unwrap();
    let why = flat(&output.stderr);
    for package in ["bonnie++", "postmark"] {
        let words = format!("`{package}` is not on PATH (Debian package {package})");
        assert!(why.contains(&words), "{why}");
    }
}
