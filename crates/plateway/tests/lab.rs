//! `plateway lab`: a plan is refused at its line or by what this machine lacks, before anything is
//! touched; what differs is found, and what was interrupted is kept.

#[path = "lab/agent.rs"]
mod agent;
#[allow(unreachable_pub)]
mod common;
#[path = "lab/files.rs"]
mod files;
#[path = "lab/folder.rs"]
mod folder;
#[path = "lab/initiators.rs"]
mod initiators;
#[path = "lab/mounted.rs"]
mod mounted;
#[path = "lab/nfs.rs"]
mod nfs;
#[path = "lab/paper.rs"]
mod paper;
#[path = "lab/paths.rs"]
mod paths;
#[path = "lab/programs.rs"]
mod programs;
#[path = "lab/stripes.rs"]
mod stripes;
#[path = "lab/targets.rs"]
mod targets;
#[path = "lab/watch.rs"]
mod watch;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{flat, plateway, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn lab(directory: &Path, args: &[&str]) -> Command {
    let mut command = plateway();
    command.current_dir(directory).env("XDG_STATE_HOME", directory).arg("lab").args(args);
    command
}

/// What only one test does at a time: two that measure on the same CPUs make each other unsteady, and
/// each trial five times as long. Its test is in a `mod measured`, which `make test` runs by itself.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURES: Mutex<()> = Mutex::new(());
    // A test that failed has measured, too.
    MEASURES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(directory: &Path, args: &[&str]) -> Output {
    lab(directory, args).output().expect("it runs")
}

fn kept(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).expect("JSON")
}

/// Two disks of this process, of which one takes so many microseconds longer.
fn plan(delay: &str, more: &str) -> String {
    format!(
        "name = \"delayed\"\nshared = true\ndifference = \"50%\"\nwindow = \"100ms\"\nwarm-up = \"0\"\n{more}\n\
         [[system]]\nname = \"plain\"\ndisk = \"ram:4MiB\"\n\
         [[system]]\nname = \"other\"\ndisk = \"{delay}ram:4MiB\"\n\
         [load]\nblock-size = \"4k\"\npattern = \"randread\"\ndepth = 1\n\
         [[compare]]\nsystems = [\"other\"]\nreference = \"plain\"\nof = \"p50\"\n"
    )
}

#[test]
fn a_mistake_is_told_at_its_line_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a.toml"), plan("", "sead = 3")).unwrap();
    for action in ["check", "run"] {
        let output = run(directory.path(), &[action, "a.toml"]);
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains("a.toml:6:1") && why.contains("seed"), "{why}");
    }
    fs::write(at("b.toml"), plan("delay:x,", "")).unwrap();
    let why = flat(&run(directory.path(), &["run", "b.toml"]).stderr);
    assert!(why.contains("cannot be run on this machine") && why.contains("system other"), "{why}");
    fs::write(
        at("b.toml"),
        plan("", "").replace(
            "disk = \"ram:4MiB\"",
            "disk = \"volume:v0\"\nbacking = \"ram\"\ndurable = false",
        ),
    )
    .unwrap();
    let why = flat(&run(directory.path(), &["run", "b.toml"]).stderr);
    assert!(why.contains("expected a disk that needs no configuration"), "{why}");
    let why = flat(&run(directory.path(), &["run", "c.toml"]).stderr);
    assert!(why.contains("cannot read the plan c.toml"), "{why}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "something was made");
}

#[test]
fn what_a_plan_would_run_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.toml"), plan("delay:200,", "")).unwrap();
    let output = run(directory.path(), &["check", "a.toml"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("other") && said.contains("at least ") && said.contains("CPU"), "{said}");
}

#[test]
fn data_that_are_not_ours_are_read_as_they_are_and_never_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let plan = |systems: &str, pattern: &str| {
        format!(
            "name = \"found\"\nwindow = \"100ms\"\nwarm-up = \"0\"\n{systems}\
             [load]\nblock-size = \"4k\"\npattern = \"{pattern}\"\n\
             [[picture]]\nname = \"all\"\nsystems = [\"one\", \"other\"]\n"
        )
    };
    let system =
        |name: &str, disk: &str| format!("[[system]]\nname = \"{name}\"\ndisk = \"{disk}\"\n");
    let data = vec![7; 1 << 20];
    fs::write(at("data"), &data).unwrap();
    let both = system("one", "file:data") + &system("other", "ram:1MiB");
    fs::write(at("read.toml"), plan(&both, "randread")).unwrap();
    let output = run(directory.path(), &["run", "read.toml"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("it holds data, and was read as it was found (1 of 1 trials)"), "{said}");
    for pattern in ["randwrite", "randrw"] {
        fs::write(at("write.toml"), plan(&both, pattern)).unwrap();
        let output = run(directory.path(), &["run", "write.toml", "--overwrite"]);
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(
            why.contains("1 of 2 trials failed") && why.contains("file:data holds data"),
            "{why}"
        );
    }
    assert!(fs::read(at("data")).unwrap() == data);
    // Of which most was never written: a hole is answered by nobody's disk.
    fs::File::options().write(true).open(at("data")).unwrap().set_len(64 << 20).unwrap();
    let output = run(directory.path(), &["run", "read.toml", "--overwrite"]);
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(
        why.contains("1 of 2 trials failed") && why.contains("found nothing but zeros"),
        "{why}"
    );
    // What an earlier trial wrote is ours, whichever system it is below.
    let both = system("one", "file:new?create=1MiB") + &system("other", "file:new?create=1MiB");
    for pattern in ["randwrite", "randrw"] {
        fs::write(at("ours.toml"), plan(&both, pattern)).unwrap();
        let output = run(directory.path(), &["run", "ours.toml", "--overwrite"]);
        assert!(output.status.success(), "{pattern}: {}", text(&output.stderr));
        fs::remove_file(at("new")).unwrap();
    }
}

#[test]
fn what_was_measured_before_an_interruption_is_kept_without_a_verdict() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.toml"), plan("", "")).unwrap();
    fs::write(directory.path().join("a.result.json"), "old").unwrap();
    let mut command = lab(directory.path(), &["run", "a.toml", "--overwrite", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let until = Instant::now() + common::HANG;
    // A trial leaves a folder while it runs.
    let home = std::env::temp_dir().join(format!("plateway-lab-{}", child.id()));
    while !home.join("trial-4").exists() {
        assert!(Instant::now() < until, "it never comes so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{why}");
    assert!(why.contains("interrupted: what was measured is in a.result.json"), "{why}");
    assert!(!home.exists());
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kept = kept(&directory.path().join("a.result.json"));
    assert_eq!(printed, kept);
    assert!((3..=5).contains(&kept["trials"].as_array().unwrap().len()), "{kept}");
}

/// A plan that draws two disks of this process, each once.
const DRAWN: &str = "name = \"drawn\"\nwindow = \"100ms\"\nwarm-up = \"0\"\n\
    [[system]]\nname = \"one\"\ndisk = \"ram:1MiB\"\n\
    [[system]]\nname = \"other\"\ndisk = \"null:1MiB\"\n\
    [[picture]]\nname = \"both\"\nsystems = [\"one\", \"other\"]\n";

/// Who works on every CPU until it is dropped.
struct Hogs(Vec<std::process::Child>);

impl Hogs {
    fn begin() -> Hogs {
        let spin = |cpu: usize| {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
            command.spawn().unwrap()
        };
        Hogs(reactor::allowed_cpus().into_iter().map(spin).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
    }
}

#[test]
fn what_is_no_file_of_results_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a.toml"), DRAWN).unwrap();
    fs::write(at("precious"), "precious").unwrap();
    std::os::unix::fs::symlink("precious", at("link.json")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
    fs::create_dir_all(at("page.html")).unwrap();
    for (result, words) in [
        ("a.toml", "it is the plan"),
        ("pipe", "a device, a folder or a link"),
        ("link.json", "a device, a folder or a link"),
        ("page.json", "page.html: expected a file or none"),
        ("nowhere/a.json", "nowhere: there is no such folder"),
    ] {
        let output = run(directory.path(), &["run", "a.toml", "--result", result, "--overwrite"]);
        let why = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && why.contains(words), "{result}: {why}");
        assert!(text(&output.stdout).is_empty(), "something was measured for {result}");
    }
    assert_eq!(fs::read_to_string(at("a.toml")).unwrap(), DRAWN);
    assert_eq!(fs::read_to_string(at("precious")).unwrap(), "precious");
}

#[test]
fn what_was_measured_is_told_where_it_cannot_be_kept_and_kept_where_it_cannot_be_told() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    fs::write(directory.path().join("a.toml"), DRAWN).unwrap();
    let mounts = "mount -t tmpfs -o size=4k tmpfs \"$0\"";
    if let Some(mut command) = common::mounted(mounts, &small) {
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        command.args(["lab", "run", "a.toml", "--result", "small/a.json"]);
        let output = command.output().unwrap();
        let (said, why) = (text(&output.stdout), flat(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains("small/a.json: No space left on device"), "{why}");
        assert!(
            said.contains("IOPS") && said.contains("one, 4KiB") && !said.contains("kept:"),
            "{said}"
        );
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = lab(directory.path(), &["run", "a.toml"]).stdout(full).output().unwrap();
    let why = flat(&output.stderr);
    assert!(!output.status.success() && why.contains("No space left on device"), "{why}");
    assert_eq!(
        kept(&directory.path().join("a.result.json"))["trials"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn two_run_at_once_and_what_a_killed_one_left_goes_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    // Of the folder that a run leaves: not where others' runs have theirs.
    let temporary = directory.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    fs::write(directory.path().join("a.toml"), DRAWN).unwrap();
    let begin = |result: &str| {
        let mut command = lab(directory.path(), &["run", "a.toml", "--result", result]);
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let folders = || fs::read_dir(&temporary).unwrap().count();
    let until = Instant::now() + common::HANG;
    let mut killed = begin("killed.json");
    while folders() == 0 {
        assert!(Instant::now() < until, "it never begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(folders(), 1, "who is killed removes nothing");
    let mut both = [begin("one.json"), begin("other.json")];
    assert!(both.iter_mut().all(|run| run.wait().unwrap().success()));
    assert_eq!(folders(), 0, "what was left is still there");
    for name in ["one.json", "other.json", "one.html", "other.html"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
    assert!(!directory.path().join("killed.json").exists());
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_planted_difference_is_found_and_kept_with_all_that_was_seen() {
        let alone = alone();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.toml"), plan("delay:500,", "")).unwrap();
        let output = run(directory.path(), &["run", "a.toml", "--result", "seen.json"]);
        drop(alone);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            said.contains("slower by") && said.contains("kept: seen.json, page: seen.html"),
            "{said}"
        );
        let page = fs::read_to_string(directory.path().join("seen.html")).unwrap();
        assert!(page.contains("<svg") && page.contains("slower by") && page.contains("delay:500"));
        let kept = kept(&directory.path().join("seen.json"));
        assert_eq!(
            (&kept["schema_version"], &kept["results"]["plan"]),
            (&1.into(), &"delayed".into())
        );
        let trials = kept["trials"].as_array().unwrap();
        let of = |name: &'static str| {
            trials.iter().filter(move |trial| trial["cell"].as_str().unwrap().contains(name))
        };
        // Five pilots and six rounds at least, of those two and of what shows whether the machine moved.
        assert!(trials.len() >= 33 && of("other").count() >= 11, "{} trials", trials.len());
        for trial in of("other") {
            let p50 = trial["measures"]["p50"].as_f64().unwrap();
            assert!(p50 >= 500_000.0, "{trial}");
            assert!(trial["near"]["busy"].is_number() && trial["far"].is_null(), "{trial}");
            assert!(trial["windows"].as_array().unwrap().len() >= 5, "{trial}");
        }
        assert!(kept["plan"].as_str().unwrap().contains("delay:500"));

        let both = run(directory.path(), &["compare", "seen.json", "seen.json"]);
        let told = text(&both.stdout);
        assert!(
            told.contains("p50 latency of other") && told.contains("no difference shown"),
            "{told}"
        );
        let both = run(directory.path(), &["compare", "seen.json", "seen.json", "--json"]);
        let pairs: Value = serde_json::from_slice(&both.stdout).expect("JSON");
        assert_eq!(pairs.as_array().map(Vec::len), Some(2), "{pairs}");
        let none = run(directory.path(), &["compare", "seen.json", "a.toml"]);
        assert!(flat(&none.stderr).contains("cannot read the result file a.toml"));

        let advice = run(directory.path(), &["recommend", "seen.json"]);
        let told = text(&advice.stdout);
        assert!(
            told.contains("take plain: by p50 latency it is shown to be better than the others")
                && told.contains("the blocks of plain and other were in memory"),
            "{told}{}",
            text(&advice.stderr)
        );
        let advice = run(directory.path(), &["recommend", "seen.json", "--by", "p50", "--json"]);
        let advice: Value = serde_json::from_slice(&advice.stdout).expect("JSON");
        assert_eq!(advice["choices"][0]["sureness"]["kind"], "shown", "{advice}");
        fs::write(directory.path().join("newer.json"), "{\"schema_version\": 2}").unwrap();
        let whole = fs::read_to_string(directory.path().join("seen.json")).unwrap();
        fs::write(directory.path().join("half.json"), &whole[..whole.len() / 2]).unwrap();
        for (args, words) in [
            (&["recommend", "seen.json", "--by", "iops"][..], "one of p50, seen iops"),
            (&["recommend", "newer.json"], "newer.json: schema_version: expected 1, seen 2"),
            (&["recommend", "half.json"], "cannot read the result file half.json: EOF"),
            (&["recommend", "none.json"], "cannot read the result file none.json: No such file"),
        ] {
            let output = run(directory.path(), args);
            let why = flat(&output.stderr);
            assert!(output.status.code() == Some(1) && why.contains(words), "{args:?}: {why}");
        }

        let drawn =
            run(directory.path(), &["page", "seen.json", "--to", "b.html", "--figures", "of"]);
        assert!(drawn.status.success(), "{}", text(&drawn.stderr));
        assert_eq!(fs::read_to_string(directory.path().join("b.html")).unwrap(), page);
        let figures = |ending: &str| {
            let files = fs::read_dir(directory.path().join("of")).unwrap();
            let files = files.map(|file| file.unwrap().path());
            files.filter(|file| file.extension().unwrap() == ending).collect::<Vec<_>>()
        };
        assert!(figures("svg").len() >= 3 && figures("svg").len() == figures("csv").len());
        let alone = fs::read_to_string(&figures("svg")[0]).unwrap();
        assert!(alone.starts_with("<svg"), "{alone}");
        let at = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("seen.html", at("link.html")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.html"), rustix::fs::Mode::RUSR).unwrap();
        for (args, words) in [
            (&["page", "seen.json"][..], "seen.html: expected no such file"),
            (
                &["page", "seen.json", "--to", "c.html", "--figures", "of"],
                "with --figures, or say --overwrite",
            ),
            (
                &["page", "seen.json", "--to", "seen.json", "--overwrite"],
                "and it is the result file",
            ),
            (
                &["page", "seen.json", "--to", "link.html", "--overwrite"],
                "a device, a folder or a link",
            ),
            (
                &["page", "seen.json", "--to", "pipe.html", "--overwrite"],
                "a device, a folder or a link",
            ),
            (&["page", "seen.json", "--to", "of", "--overwrite"], "a device, a folder or a link"),
            (
                &["page", "seen.json", "--to", "none/a.html"],
                "cannot write none/a.html: No such file",
            ),
            (&["page", "newer.json"], "schema_version: expected 1, seen 2"),
        ] {
            let output = run(directory.path(), args);
            let why = flat(&output.stderr);
            assert!(output.status.code() == Some(1) && why.contains(words), "{args:?}: {why}");
        }
        assert!(!at("none").exists(), "a folder was made, for its owner alone");
        assert!(run(directory.path(), &["page", "seen.json", "--overwrite"]).status.success());
        assert_eq!(fs::read_to_string(directory.path().join("seen.html")).unwrap(), page);

        let again = run(directory.path(), &["run", "a.toml", "--result", "seen.json"]);
        let why = flat(&again.stderr);
        assert!(!again.status.success() && why.contains("--overwrite"), "{why}");
        let odd = run(directory.path(), &["run", "a.toml", "--result", "new.html"]);
        assert!(!odd.status.success() && flat(&odd.stderr).contains("expected another ending"));
    }

    #[test]
    fn other_programs_on_the_cpus_make_a_trial_unsteady() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.toml"), DRAWN).unwrap();
        let hogs = Hogs::begin();
        let output = run(directory.path(), &["run", "a.toml"]);
        drop(hogs);
        let (said, why) = (text(&output.stdout), flat(&output.stderr));
        assert!(output.status.success(), "{why}");
        assert!(why.contains("expected CPUs that do nothing before anything runs"), "{why}");
        assert!(said.contains("unsteady: other programs took more than 10% of a CPU"), "{said}");
        let kept = kept(&directory.path().join("a.result.json"));
        for trial in kept["trials"].as_array().unwrap() {
            assert_eq!(trial["is_steady"], false, "{trial}");
            assert!(trial["near"]["others"].as_f64().unwrap() > 0.1, "{trial}");
            assert!(trial["near"].get("cpu_us_per_op").is_none(), "{trial}");
        }
    }

    #[test]
    fn protocols_are_measured_over_a_path_that_goes_with_the_plan() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let plan = "name = \"roads\"\nwindow = \"200ms\"\nwarm-up = \"100ms\"\n\
        [[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"ram:4MiB\" }\n\
        [[system]]\nname = \"iscsi\"\nserve = { protocol = \"iscsi\", disk = \"ram:4MiB\", digests = \"both\" }\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:4MiB\", poll = \"never\" }\n\
        [[system]]\nname = \"door\"\nserve = { protocol = \"aoe\", disk = \"ram:4MiB\", access = \"xdp\" }\n\
        [[path]]\nname = \"lan\"\nmtu = 9000\n\
        [load]\nblock-size = \"4k\"\npattern = \"randrw=70\"\ndepth = 4\n\
        [[picture]]\nname = \"all\"\nsystems = [\"aoe\", \"iscsi\", \"nvme\", \"door\"]\n";
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let mut command = lab(directory.path(), &["run", "a.toml"]);
        let lab = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let own = format!("plateway-lab-{}-", lab.id());
        let output = lab.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        if why.contains("network namespaces need root") || why.contains("expected two CPUs") {
            return testkit::skipped(why);
        }
        let said = text(&output.stdout);
        assert!(output.status.success(), "{why}\n{said}");
        let kept = kept(&directory.path().join("a.result.json"));
        for name in ["aoe", "iscsi", "nvme", "door"] {
            let mut trials = kept["trials"].as_array().unwrap().iter();
            let trial = trials.rfind(|trial| trial["cell"].as_str().unwrap().contains(name));
            let trial = trial.unwrap_or_else(|| panic!("no trial of {name}: {kept}"));
            let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{trial}"));
            assert!(number(&trial["measures"]["iops"]) > 0.0);
            // 4 KiB and some headers cross the wire with each operation, some in a frame together; how many
            // operations there were between two looks is their mean's, so a part in twenty may be missing.
            let bytes = number(&trial["wire_bytes_per_op"]);
            assert!((3900.0..6000.0).contains(&bytes), "{name}: {bytes} bytes\n{trial}");
            assert!(number(&trial["frames_per_op"]) > 0.5, "{trial}");
            assert!(number(&trial["far"]["busy"]) > 0.0, "{trial}");
            let served = &trial["served"];
            assert!(served["driver"].is_string() && served["disk_access"] == "memory", "{trial}");
            let told = match name {
                "nvme" => served["poll"] == "never",
                "door" => served["access"] == "xdp",
                "aoe" => served["access"] == "packet ring",
                _ => served["poll"].is_string(),
            };
            assert!(told, "{name}: {trial}");
            // Where others work beside it, what is ours cannot be told, and is not.
            let cost = trial["measures"].get("cpu-per-op").map(number);
            assert!(
                cost.is_some_and(|cost| cost > 0.0) != why.contains("is not told"),
                "{why}{trial}"
            );
        }
        let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
        assert!(!text(&left.stdout).contains(&own), "{}", text(&left.stdout));
    }
}
