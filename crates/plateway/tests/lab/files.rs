//! `plateway lab` on many files: every workload on a file system of its own and in a folder, what is seen of each, that
//! nothing of it stays however it ends, and that a full disk fails a trial and says so.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, text};
use crate::mounted::{until_gone, until_worked_on};
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
fn until_made(directory: &Path, child: &mut Child) {
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

/// Waits until the client that is measured works below a folder.
fn until_a_client_works(point: &Path, child: &mut Child) {
    let until = Instant::now() + HANG;
    let is_one = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = flat(&words).replace('\0', " ");
        let place = format!(" lab files {}/", point.display());
        words.contains(&place) && words.contains(" --steady ")
    };
    while !fs::read_dir("/proc").unwrap().flatten().any(is_one) {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no client works");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_disk_that_is_full_fails_the_trial_with_its_file_and_what_helps() {
    if !can_attach() {
        return;
    }
    // Its windows are so long that it does not end by itself.
    let plan =
        "[[system]]\nname = \"one\"\ndisk = \"ram:64MiB\"\nfile-system = \"ext4\"\n".to_owned();
    let load = "files = \"fileserver\"\nsize = \"20MiB\"\njobs = 2";
    let directory = with_plan(tempfile::tempdir().unwrap(), &(plan + &drawn(&["one"], load)));
    let file = directory.path().join("a.toml");
    let plan = fs::read_to_string(&file).unwrap().replace("\"100ms\"", "\"30s\"");
    fs::write(&file, plan).unwrap();
    let mut child = begin(directory.path());
    let pid = child.id();
    let (point, below) = until_worked_on(&mut child);
    // Before that it is mounted anew, for which nobody may have anything open there.
    until_a_client_works(&point, &mut child);
    // Somebody else takes all of the room.
    let mut filler = fs::File::create(point.join("filler")).unwrap();
    let full = (0..64).try_for_each(|_| filler.write_all(&[7; 1 << 20]));
    assert!(full.is_err(), "there is room for more than the disk");
    drop(filler);
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    let words = "No space left on device (os error 28) (a smaller size, or a larger disk)";
    assert!(why.contains(words) && why.contains("/mounted/plateway-lab-"), "{why}");
    until_gone(pid, &below);
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn every_workload_works_on_files_of_a_file_system_of_its_own() {
        if !can_attach() {
            return;
        }
        let plan = "[[system]]\nname = \"here\"\ndisk = \"ram:64MiB\"\nfile-system = \"ext4\"\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:64MiB\" }\nfile-system = \"ext4\"\n\
        [[path]]\nname = \"lan\"\n"
        .to_owned();
        let load = "files = [\"webserver\", \"fileserver\", \"varmail\", \"oltp\"]\nsize = \"8MiB\"\njobs = 2";
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
        assert!(text(&output.stdout).contains("cache hits"), "{}", text(&output.stdout));
        let home = std::env::temp_dir().join(format!("plateway-lab-{pid}"));
        let mounts = testbed::Mounts::now().unwrap();
        assert!(
            !mounts.all().any(|mount| mount.point.starts_with(&home)),
            "something stays mounted"
        );
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
            // Who serves memory over a path begins with a copy of an image.
            let is_anew = trial["notes"].to_string().contains("files were made anew in each trial");
            assert_eq!(is_anew, !cell.starts_with("nvme"), "{trial}");
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
        until_made(at, &mut child);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
        assert!(is_empty(at), "what was interrupted left something");

        // Who is killed leaves it, and the next one removes that with its own.
        let mut child = begin(at);
        until_made(at, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_empty(at));
        let _alone = alone();
        let output = run(at, &["run", "a.toml", "--overwrite"]);
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(is_empty(at), "what was measured left something");
        assert_eq!(kept(&at.join("a.result.json"))["trials"].as_array().unwrap().len(), 9);
    }
}
