//! `plateway lab` with bonnie++, PostMark, pgbench and a sort: what they tell is measured, nothing of theirs stays however a trial ends, and
//! where they are missing their packages are named.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{HANG, can_attach, flat, text};
use crate::mounted::{mounts_of, until_gone, workers_of};
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
    PACKAGES.iter().any(|package| why.contains(&format!("(Debian package {package})")))
}

/// What brings the programs.
const PACKAGES: [&str; 3] = ["bonnie++", "postmark", "postgresql"];

/// How many processes work in a folder, or on files of it.
fn workers(folder: &Path) -> usize {
    let is_there = |link: &Path| fs::read_link(link).is_ok_and(|at| at.starts_with(folder));
    let works = |entry: &fs::DirEntry| {
        let files = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        is_there(&entry.path().join("cwd")) || { files }.any(|file| is_there(&file.path()))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(works).count()
}

/// Begins a run, and waits for what is looked for beside it, by its number; none where a program is missing.
fn begin<T>(directory: &Path, look: impl Fn(u32) -> Option<T>) -> Option<(Child, T)> {
    let mut command = lab(directory, &["run", "a.toml", "--overwrite"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + HANG;
    loop {
        if let Some(seen) = look(child.id()) {
            return Some((child, seen));
        }
        if child.try_wait().unwrap().is_some() {
            let why = flat(&child.wait_with_output().unwrap().stderr);
            assert!(is_missing(&why) || why.contains("fincore"), "{why}");
            testkit::skipped(why);
            return None;
        }
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Interrupts one that works, and kills the lab of another.
fn is_ended(files: &str) {
    let size = if files == "merge-sort" { "128MiB" } else { "16MiB" };
    let directory = with_plan("folder = FOLDER", &drawn(files, size));
    let folder = directory.path().join("folder");
    for signal in [Signal::INT, Signal::KILL] {
        // Its server, if it has one, is several processes.
        let some = if files == "pgbench" { 3 } else { 1 };
        let works = |_| (workers(&folder) >= some).then_some(());
        let Some((child, ())) = begin(directory.path(), works) else { return };
        let until = Instant::now() + HANG;
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
fn a_program_that_is_interrupted_leaves_neither_files_nor_itself() {
    is_ended("bonnie++");
}

#[test]
fn nor_does_one_with_a_server() {
    is_ended("pgbench");
}

#[test]
fn nor_does_our_sort() {
    is_ended("merge-sort");
}

/// The first process of a PostgreSQL server whose tables are in a folder, once it carries out a transaction.
fn busy_server(folder: &Path) -> Option<Pid> {
    let of = |pid: &str, what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).ok();
    let is_busy = |pid: &str| {
        let at = fs::read_link(format!("/proc/{pid}/cwd"));
        let is_its = at.is_ok_and(|at| at.starts_with(folder));
        is_its && of(pid, "cmdline").is_some_and(|title| title.contains("[local] UPDATE"))
    };
    let parent = |pid: &str| {
        let status = of(pid, "status")?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Pid::from_raw(parent.trim().parse().ok()?)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut all = all.filter_map(|entry| entry.file_name().into_string().ok());
    all.find(|pid| is_busy(pid)).and_then(|pid| parent(&pid))
}

#[test]
fn a_server_that_is_killed_ends_its_trial_and_nothing_stays() {
    let directory = with_plan("folder = FOLDER", &drawn("pgbench", "16MiB"));
    let folder = directory.path().join("folder");
    let Some((child, server)) = begin(directory.path(), |_| busy_server(&folder)) else { return };
    kill_process(server, Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert!(!output.status.success() && why.contains("pgbench: error: "), "{why}");
    assert_eq!(workers(&folder), 0, "{why}");
    assert!(fs::read_dir(&folder).unwrap().next().is_none(), "{why}");
}

#[test]
fn a_disk_that_is_full_ends_the_trial_of_a_server_with_its_words() {
    if !can_attach() {
        return;
    }
    // Its tables take more than their own size, and its log as much again.
    let system = "disk = \"ram:80MiB\"\nfile-system = \"ext4\"";
    let directory = with_plan(system, &drawn("pgbench", "16MiB"));
    let output = run(directory.path(), &["run", "a.toml"]);
    let why = flat(&output.stderr);
    if is_missing(&why) {
        return testkit::skipped(why);
    }
    assert!(!output.status.success() && why.contains("No space left on device"), "{why}");
}

/// What it has answered is lost, and all that is asked behind it fails.
#[test]
fn a_disk_whose_power_goes_ends_the_trial_of_a_server_and_of_a_sort() {
    if !can_attach() {
        return;
    }
    for (files, size, cut_ms) in [("merge-sort", "128MiB", 2_000), ("pgbench", "16MiB", 6_000)] {
        let system = format!(
            "disk = \"model:ssd?cache_mib=64&cut_ms={cut_ms}&off_ms=3600000,ram:512MiB\"\nfile-system = \"ext4\""
        );
        let directory = with_plan(&system, &drawn(files, size));
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        if is_missing(&why) {
            testkit::skipped(why);
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{files}: {why}");
        let told = ["Input/output error", "Read-only file system"];
        assert!(told.iter().any(|words| why.contains(words)), "{files}: {why}");
    }
}

/// What it works on answers nothing any more, and does not end either.
#[test]
fn a_disk_that_hangs_ends_the_trial_of_a_server_and_of_a_sort() {
    if !can_attach() {
        return;
    }
    if let Err(why) = testbed::allowed("plateway-lab-test-") {
        return testkit::skipped(why);
    }
    let system = "serve = { protocol = \"nvme\", disk = \"ram:512MiB\" }\nfile-system = \"ext4\"\n[[path]]\nname = \"lan\"";
    for (files, size) in [("merge-sort", "128MiB"), ("pgbench", "16MiB")] {
        let directory = with_plan(system, &drawn(files, size));
        let works = |lab: u32| {
            let (point, file) = mounts_of(lab).pop()?;
            let is_busy = match files {
                "pgbench" => busy_server(&point).is_some(),
                _ => workers(&point) > 0,
            };
            is_busy.then_some(file)
        };
        let Some((child, file)) = begin(directory.path(), works) else { continue };
        let (lab, target) = (child.id(), workers_of(child.id(), " serve --config"));
        let [target] = target.as_slice() else { panic!("one server, and there are {target:?}") };
        kill_process(Pid::from_raw(*target).unwrap(), Signal::STOP).unwrap();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{files}: {why}");
        assert!(why.contains("1 of 1 trials failed"), "{files}: {why}");
        until_gone(lab, &file);
    }
}

#[test]
fn with_too_little_memory_the_trial_of_a_server_or_a_sort_says_so() {
    if !can_attach() {
        return;
    }
    for (files, size) in [("merge-sort", "128MiB"), ("pgbench", "64MiB")] {
        let system = "disk = \"ram:512MiB\"\nfile-system = \"ext4\"";
        let little = drawn(files, size) + "client-memory = \"6MiB\"\n";
        let directory = with_plan(system, &little);
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        if is_missing(&why) || why.contains("error: client-memory") {
            testkit::skipped(why);
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{files}: {why}");
        let expected = "the kernel killed the client, which needed more memory than client-memory";
        assert!(why.contains(expected), "{files}: {why}");
    }
}

/// Two labs at once have a server each, and neither finds the other's.
#[test]
fn two_trials_with_servers_at_once_are_each_measured() {
    let plans = [(); 2].map(|()| {
        let directory = with_plan("folder = FOLDER", &drawn("pgbench", "16MiB"));
        let plan = fs::read_to_string(directory.path().join("a.toml")).unwrap();
        let plan = plan.replace("shared = true", "shared = true\nwindow = \"200ms\"");
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        directory
    });
    let children: Vec<_> = plans
        .iter()
        .map_while(|directory| {
            let folder = directory.path().join("folder");
            begin(directory.path(), |_| busy_server(&folder))
        })
        .collect();
    let [(_, first), (_, second)] = children.as_slice() else { return };
    assert_ne!(first, second, "a server each");
    for ((child, _), directory) in children.into_iter().zip(&plans) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", flat(&output.stderr));
        let kept = kept(&directory.path().join("a.result.json"));
        let rate = kept["trials"][0]["measures"]["iops"].as_f64();
        assert!(rate > Some(0.0), "{kept}");
        assert!(fs::read_dir(directory.path().join("folder")).unwrap().next().is_none());
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
    // Of PostgreSQL's programs that of Debian's are found wherever PATH leads.
    for package in ["bonnie++", "postmark"] {
        let words = format!("`{package}` is not on PATH (Debian package {package})");
        assert!(why.contains(&words), "{why}");
    }
}

#[test]
fn who_runs_a_program_by_hand_is_told_what_it_takes() {
    let directory = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["pgbench", ".", "--size", "16777216"][..], "pgbench: expected --home"),
        (&["merge-sort", ".", "--size", "5"], "expected whole MiB, 8 at least, seen 5 bytes"),
        (&["pgbnch", ".", "--size", "1"], "expected bonnie++, postmark, pgbench, merge-sort, seen"),
    ] {
        let output = run(directory.path(), &[&["program"], args].concat());
        let why = flat(&output.stderr);
        assert!(!output.status.success() && why.contains(words), "{words}: {why}");
        assert!(fs::read_dir(directory.path()).unwrap().next().is_none(), "{words}");
    }
}

/// What measures, one after the other.
mod measured {
    use super::*;

    /// What a plan's two trials came to; none where a program is missing.
    fn trials(command: &mut Command) -> Option<Vec<Value>> {
        let output = command.output().unwrap();
        let why = flat(&output.stderr);
        if is_missing(&why) {
            testkit::skipped(why);
            return None;
        }
        assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
        let directory = command.get_current_dir().expect("it runs in its plan's");
        let kept = kept(&directory.join("a.result.json"));
        let trials = kept["trials"].as_array().unwrap().clone();
        assert_eq!(trials.len(), 2, "{kept}");
        Some(trials)
    }

    fn of<'t>(trials: &'t [Value], files: &str) -> &'t Value {
        trials.iter().find(|trial| trial["bench"]["files"] == files).expect("its trial")
    }

    #[test]
    fn what_programs_tell_of_a_file_system_is_measured() {
        if !can_attach() {
            return;
        }
        let system = "disk = \"ram:48MiB\"\nfile-system = \"ext4\"";
        let directory =
            with_plan(system, &(drawn("postmark", "2MiB") + &drawn("bonnie++", "16MiB")));
        let _alone = alone();
        let Some(trials) = trials(&mut lab(directory.path(), &["run", "a.toml"])) else { return };
        let of = |files: &str| of(&trials, files);
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
    #[test]
    fn transactions_and_a_sort_are_measured_and_what_they_left_is_judged() {
        if !can_attach() {
            return;
        }
        let system = "disk = \"ram:512MiB\"\nfile-system = \"ext4\"";
        let pictures = drawn("pgbench", "16MiB") + "jobs = 2\n" + &drawn("merge-sort", "8MiB");
        let directory = with_plan(system, &pictures);
        let plan = fs::read_to_string(directory.path().join("a.toml")).unwrap();
        let plan = plan.replace("shared = true", "shared = true\nwindow = \"100ms\"");
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        // No address of a socket is as long as the name of this folder.
        let state = directory.path().join("state".repeat(30));
        fs::create_dir(&state).unwrap();
        let _alone = alone();
        let mut command = lab(directory.path(), &["run", "a.toml"]);
        // What is said here to other clients of PostgreSQL would end all of these.
        command.env("PGOPTIONS", "-c no_such_setting=1").env("PGSSLMODE", "verify-full");
        let Some(trials) = trials(command.env("XDG_STATE_HOME", &state)) else { return };
        let of = |files: &str| of(&trials, files);
        let pgbench = of("pgbench");
        assert_eq!(pgbench["cell"], "one, pgbench, 16MiB of tables, 2 jobs");
        let measure = |trial: &Value, word: &str| {
            trial["measures"][word].as_f64().unwrap_or_else(|| panic!("no {word}: {trial}"))
        };
        let (rate, mean) = (measure(pgbench, "iops"), measure(pgbench, "latency-mean"));
        // Two clients, each with one transaction at a time: by Little's law they are busy all the time.
        let busy = rate * mean / 1e9;
        assert!((1.0..2.2).contains(&busy), "{busy}: {pgbench}");
        let counted = pgbench["bench"]["steady"]["requests"].as_u64().unwrap();
        assert!(pgbench["bench"]["transactions"].as_u64().unwrap() >= counted && counted > 0);
        assert_eq!((&pgbench["bench"]["scale"], &pgbench["bench"]["jobs"]), (&1.into(), &2.into()));
        assert!(pgbench["measures"]["throughput"].is_null(), "{pgbench}");
        let sort = of("merge-sort");
        assert_eq!(sort["cell"], "one, merge-sort, 8MiB to sort");
        assert!(measure(sort, "throughput") > 0.0, "{sort}");
        assert_eq!(sort["bench"]["memory_bytes"], 1 << 20, "{sort}");
        assert!(sort["measures"]["iops"].is_null(), "{sort}");
    }
}
