//! Who loads a system in place of our own client, and a client that has but a share of a CPU.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{HANG, child_of, flat, text};
use crate::paths::{done, lacks};
use crate::{alone, kept, lab, run};

/// An initiator that tells of a read each 100 us, and reads nothing; what it was asked for is in `asked`. It leaves a
/// child behind.
const TELLS: &str = r#"#!/bin/sh
echo "$@" > asked
sleep 60.125 &
while [ $# -gt 1 ]; do
  [ "$1" = --status ] && file=$2
  shift
done
reads=0
while :; do
  echo "{\"client\": \"teller 1\", \"timestamp_ms\": $(date +%s%3N), \"read\": {\"100000\": $reads}, \"write\": {}}" >> "$file"
  reads=$((reads + 1000))
  sleep 0.1
done
"#;

/// A plan that draws a server of ours under this initiator, and beside it our own client.
fn plan(script: &str, load: &str) -> String {
    format!(
        "name = \"own\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n\
         [[system]]\nname = \"other\"\nserve = {{ protocol = \"iscsi\", disk = \"ram:4MiB\" }}\ninitiator = [\"{script}\", \"--own\"]\n\
         [[system]]\nname = \"ours\"\nserve = {{ protocol = \"iscsi\", disk = \"ram:4MiB\" }}\n\
         [[path]]\nname = \"lan\"\n\
         [[picture]]\nname = \"own\"\nsystems = [\"other\", \"ours\"]\n{load}\n"
    )
}

/// Makes a program of a script; its path.
fn put(directory: &Path, script: &str) -> String {
    let at = directory.join("initiator.sh");
    fs::write(&at, script).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    at.display().to_string()
}

/// Runs a plan whose initiator is this script; its exit code, what it kept, and what it said.
fn with(directory: &Path, script: &str, load: &str) -> Option<(Option<i32>, Value, String)> {
    let at = put(directory, script);
    fs::write(directory.join("a.toml"), plan(&at, load)).unwrap();
    let output = run(directory, &["run", "a.toml", "--overwrite"]);
    let why = flat(&output.stderr);
    if why.contains("network namespaces need root") {
        testkit::skipped(why);
        return None;
    }
    let said = format!("{}{why}", text(&output.stdout));
    Some((output.status.code(), kept(&directory.join("a.result.json")), said))
}

/// Whether a process has this among its words.
fn runs(word: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = all.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    commands.any(|command| command.split(|byte| *byte == 0).any(|one| one == word.as_bytes()))
}

#[test]
fn an_initiator_that_tells_nothing_is_not_waited_for_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    // It is there, and its file may be.
    let silent = "#!/bin/sh\nexec sleep 61.125\n";
    let Some((code, kept, said)) = with(directory.path(), silent, "") else { return };
    assert_eq!(code, Some(1), "{said}");
    let failures = kept["results"]["failures"].as_array().unwrap();
    let why = failures[0]["why"].as_str().unwrap();
    assert!(why.ends_with("tells each window how far it is, seen nothing for 30 s"), "{why}");
    assert!(failures.len() == 1 && !runs("61.125"), "{why}");
}

#[test]
fn what_a_kernel_lacks_is_told_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let plan = "name = \"kernel\"\nshared = true\n\
        [[system]]\nname = \"disk\"\nserve = { protocol = \"nvme\", disk = \"ram:4MiB\" }\nkernel = true\n\
        [[system]]\nname = \"files\"\nnfs = { disk = \"ram:48MiB\" }\nfile-system = \"ext4\"\nkernel = true\n\
        [[path]]\nname = \"lan\"\n\
        [[picture]]\nname = \"p\"\nsystems = [\"disk\", \"files\"]\nsize = \"1MiB\"\n";
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let output = lab(directory.path(), &["check", "a.toml"]).output().unwrap();
    let why = flat(&output.stderr);
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let lacks = [
        (
            "disk",
            !Path::new("/sys/module/nvme_tcp").exists() || !Path::new("/usr/sbin/nvme").exists(),
        ),
        ("files", !known.lines().any(|line| line.ends_with("\tnfs"))),
    ];
    for (name, lacks) in lacks {
        let is_told = why.contains(&format!("system {name}: kernel: "));
        assert_eq!(is_told, lacks, "{name}: {why}");
    }
    let is_refused = lacks.iter().any(|(_, lacks)| *lacks);
    assert!(!is_refused || output.status.code() == Some(1), "{why}");
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn an_initiator_is_told_what_to_do_and_judged_by_what_it_tells() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let Some((code, kept, said)) =
            with(directory.path(), TELLS, "block-size = \"8k\"\ndepth = 3")
        else {
            return;
        };
        assert_eq!(code, Some(0), "{said}");
        let trials = kept["trials"].as_array().unwrap();
        let told: Vec<&str> =
            trials.iter().filter_map(|trial| trial["bench"]["client"].as_str()).collect();
        assert_eq!((told, trials.len()), (vec!["teller 1"], 2));
        let other = trials.iter().find(|trial| trial["bench"]["client"] == "teller 1").unwrap();
        let measures = &other["measures"];
        let near = |name: &str, low: f64, high: f64| {
            let value = measures[name].as_f64().unwrap();
            assert!((low..=high).contains(&value), "{name}: {value}");
        };
        // A thousand in each tenth of a second, but for the time that a shell takes.
        near("iops", 2_000.0, 10_500.0);
        near("p50", 99_000.0, 101_000.0);
        assert!(measures["throughput"].as_f64().unwrap() > 8192.0 * 2_000.0, "{measures}");
        let asked = fs::read_to_string(directory.path().join("asked")).unwrap();
        let words = "--own --disk iscsi://10.77.0.1:3260/iqn.";
        assert!(asked.starts_with(words), "{asked}");
        assert!(!runs("60.125"), "its child");
        let rest = "/0?hdgst=0&ddgst=0 --rw randread --bs 8192 --iodepth 3 --numjobs 1 --status ";
        assert!(asked.contains(rest) && asked.ends_with("--status-ms 100\n"), "{asked}");
    }

    #[test]
    fn an_initiator_that_ends_or_tells_nonsense_fails_its_trial_with_its_words_and_no_other() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        for (script, why) in [
            (
                "#!/bin/sh\necho no such target >&2; exit 3\n".to_owned(),
                "the initiator ended before it was measured: no such target",
            ),
            (
                TELLS.replace("\\\"read\\\"", "\\\"reads\\\""),
                "the initiator: expected read in its status, seen none",
            ),
            (TELLS.replace("echo \"{", "echo \"{]"), "the initiator printed no JSON"),
        ] {
            let Some((code, kept, said)) = with(directory.path(), &script, "") else { return };
            assert_eq!(code, Some(1), "{said}");
            let failures = kept["results"]["failures"].as_array().unwrap();
            assert_eq!(failures.len(), 1, "{kept}");
            assert!(failures[0]["why"].as_str().unwrap().contains(why), "{why}: {}", failures[0]);
            let trials = kept["trials"].as_array().unwrap();
            let measured =
                trials.iter().filter(|trial| trial["measures"]["iops"].as_f64() > Some(0.0));
            assert_eq!(measured.count(), 1, "ours is measured all the same: {kept}");
        }
        // One that is not there is told before anything runs.
        fs::write(directory.path().join("a.toml"), plan("/nowhere/initiator", "")).unwrap();
        let output = lab(directory.path(), &["check", "a.toml"]).output().unwrap();
        let why = flat(&output.stderr);
        assert!(
            output.status.code() == Some(1) && why.contains("system other: initiator: "),
            "{why}"
        );
    }

    #[test]
    fn what_is_told_without_a_server_a_router_or_the_relay_is_not_measured() {
        let _alone = alone();
        let cases = [
            ("", "/plateway.toml", "plateway serve ended with signal: 9"),
            ("kind = \"mpls\"\n", "/ler2/router.toml", "ler2 ended with signal: 9"),
            ("delay = \"1ms\"\n", "relay-near", "relay ended with signal: 9"),
        ];
        for (path, its_word, words) in cases {
            let directory = tempfile::tempdir().unwrap();
            let at = put(directory.path(), TELLS);
            let plan = plan(&at, "").replace("window = \"100ms\"", "window = \"2s\"");
            let plan = plan.replace("name = \"lan\"\n", &format!("name = \"lan\"\n{path}"));
            let plan = plan.replace("\"other\", \"ours\"", "\"other\"");
            fs::write(directory.path().join("a.toml"), plan).unwrap();
            let mut command = lab(directory.path(), &["run", "a.toml"]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let (asked, end) = (directory.path().join("asked"), Instant::now() + HANG);
            while !asked.exists() && child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < end, "it starts no initiator");
                std::thread::sleep(Duration::from_millis(20));
            }
            let is_it = |words: &[&str]| words.iter().any(|word| word.ends_with(its_word));
            match child_of(&child, is_it) {
                Some(one) => kill_process(one, Signal::KILL).unwrap(),
                // The kernel delays frames by itself, or there is no trial at all.
                None => kill_process(Pid::from_child(&child), Signal::INT).unwrap_or_default(),
            }
            let output = child.wait_with_output().unwrap();
            let why = flat(&output.stderr) + &text(&output.stdout);
            if lacks(&why) || output.status.code() == Some(130) {
                testkit::skipped(why);
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{why}");
            assert!(why.contains(words), "expected {words}: {why}");
            assert!(!runs("60.125"), "its child");
        }
    }

    #[test]
    fn clients_of_the_yardstick_load_systems_of_each_protocol() {
        let yardstick = Path::new(env!("CARGO_BIN_EXE_plateway")).with_file_name("yardstick");
        if !yardstick.exists() {
            return testkit::skipped(
                "the yardstick is not built (cargo build --package yardstick)",
            );
        }
        let clients = [
            ("nvme", "nvme", &["client"][..]),
            ("left", "iscsi", &["client-iscsi", "--receive", "left"]),
            ("copied", "iscsi", &["client-iscsi", "--receive", "copied"]),
            ("placed", "iscsi", &["client-iscsi", "--receive", "placed"]),
            ("zero-copy", "iscsi", &["client-iscsi", "--send", "zero-copy"]),
            ("aoe", "aoe", &["client-aoe"]),
        ];
        let system = |(name, protocol, words): &(&str, &str, &[&str])| {
            let words = [&[yardstick.to_str().unwrap()], *words].concat();
            format!(
                "[[system]]\nname = \"{name}\"\nserve = {{ protocol = \"{protocol}\", disk = \"ram:4MiB\" }}\ninitiator = {words:?}\n"
            )
        };
        let plan = format!(
            "name = \"clients\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n{}[[path]]\nname = \"lan\"\n\
             [load]\nblock-size = \"1k\"\ndepth = 1\n[[picture]]\nname = \"clients\"\nsystems = {:?}\n\
             [[picture]]\nname = \"mixes\"\nsystems = [\"nvme\", \"zero-copy\"]\npattern = \"randrw=70\"\n",
            clients.iter().map(system).collect::<String>(),
            clients.map(|(name, ..)| name)
        );
        let Some(kept) = done(&plan) else { return };
        let trials = kept["trials"].as_array().unwrap();
        let by_it = |trial: &&Value| {
            let client = trial["bench"]["client"].as_str().unwrap();
            client.starts_with("yardstick ") && trial["measures"]["iops"].as_f64() > Some(0.0)
        };
        assert_eq!(trials.iter().filter(by_it).count(), clients.len() + 2, "{kept}");
        let is_mixed = |trial: &&Value| trial["cell"].as_str().unwrap().contains("randrw=70");
        let mixed: Vec<&Value> = trials.iter().filter(is_mixed).collect();
        for trial in &mixed {
            let measure = |name: &str| trial["measures"][name].as_f64().unwrap();
            let share = measure("read-iops") / measure("iops");
            assert!((0.65..0.75).contains(&share), "{share} of {trial}");
            // Between namespaces the kernel copies all the same, and who asked for no copy says so.
            let is_told = trial["notes"].to_string().contains("the kernel copied all the same");
            let asked = trial["cell"].as_str().unwrap().starts_with("zero-copy");
            assert_eq!(is_told, asked, "{trial}");
        }
        assert_eq!(mixed.len(), 2, "{kept}");
    }

    #[test]
    fn softirqs_apart_from_the_client_are_on_another_cpu() {
        // How many frames each CPU has dealt with so far.
        let frames = || -> Vec<u64> {
            let table = fs::read_to_string("/proc/net/softnet_stat").unwrap();
            let first = |line: &str| u64::from_str_radix(line.split(' ').next().unwrap(), 16);
            table.lines().map(|line| first(line).unwrap()).collect()
        };
        let share = |softirqs: &str| {
            let plan = format!(
                "name = \"apart\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n\
                 [[system]]\nname = \"iscsi\"\nserve = {{ protocol = \"iscsi\", disk = \"ram:4MiB\" }}\n\
                 [[path]]\nname = \"lan\"\nsoftirqs = \"{softirqs}\"\n\
                 [[picture]]\nname = \"softirqs\"\nsystems = [\"iscsi\"]\n"
            );
            let before = frames();
            let kept = done(&plan)?;
            let grown: Vec<u64> =
                frames().iter().zip(before).map(|(now, then)| now - then).collect();
            let cpu = kept["near_cpus"][0].as_u64().unwrap() as usize;
            let trial = &kept["trials"][0];
            // Where the near end has one CPU alone, the far end's does its work, and neither's own is known.
            if softirqs == "apart" && kept["near_cpus"].as_array().unwrap().len() == 1 {
                assert!(trial["near"]["cpu_us_per_op"].is_null(), "{trial}");
            }
            Some(grown[cpu] as f64 / grown.iter().sum::<u64>() as f64)
        };
        let Some([with, apart]) = share("with-client").zip(share("apart")).map(<[f64; 2]>::from)
        else {
            return;
        };
        assert!(
            with > 0.2 && apart < 0.1,
            "{with} of all frames with the client, {apart} apart from it"
        );
    }

    #[test]
    fn an_initiator_goes_with_a_lab_that_is_interrupted_or_killed() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let script = TELLS.replace("reads=$((reads + 1000))", "reads=$((reads * 2 + 1))");
        for signal in [Signal::INT, Signal::KILL] {
            let at = put(directory.path(), &script);
            fs::write(directory.path().join("a.toml"), plan(&at, "")).unwrap();
            let mut command = lab(directory.path(), &["run", "a.toml", "--overwrite"]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let (asked, end) = (directory.path().join("asked"), Instant::now() + HANG);
            while !asked.exists() && child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < end, "it starts no initiator");
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = kill_process(Pid::from_child(&child), signal);
            let output = child.wait_with_output().unwrap();
            let why = flat(&output.stderr);
            if why.contains("network namespaces need root") {
                return testkit::skipped(why);
            }
            let code = (signal == Signal::INT).then_some(130);
            assert_eq!(output.status.code(), code, "{why}");
            while runs(&at) || runs("60.125") {
                assert!(Instant::now() < end, "it still runs");
                std::thread::sleep(Duration::from_millis(20));
            }
            fs::remove_file(asked).unwrap();
        }
    }

    #[test]
    fn a_client_with_a_share_of_a_cpu_has_no_more_and_is_said_to_be_the_limit() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let plan = "name = \"shares\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n\
         [[system]]\nname = \"ram\"\ndisk = \"ram:4MiB\"\n[load]\ndepth = 1\n\
         [[picture]]\nname = \"shares\"\nsystems = [\"ram\"]\nclient-cpu = [\"25%\", \"100%\"]\n";
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let output = run(directory.path(), &["run", "a.toml"]);
        let why = flat(&output.stderr);
        if why.contains("client-cpu: expected a machine") {
            return testkit::skipped(why);
        }
        assert!(output.status.success(), "{}{why}", text(&output.stdout));
        let kept = kept(&directory.path().join("a.result.json"));
        let trial = |percent: &str| {
            let trials = kept["trials"].as_array().unwrap();
            let is_it = |trial: &&Value| trial["cell"].as_str().unwrap().contains(percent);
            trials.iter().find(is_it).unwrap_or_else(|| panic!("{percent}: {kept}"))
        };
        let busy = |trial: &Value| trial["bench"]["bench_thread_busy"][0].as_f64().unwrap();
        let (some, all) = (trial("client with 25% of a CPU"), trial("client with 100% of a CPU"));
        // Who works beside it takes of either, and nobody gives the one more than its share.
        assert!(busy(some) > 0.0 && busy(some) < 0.35, "{some}");
        for (trial, share) in [(some, 0.25), (all, 1.0)] {
            let is_told = trial["notes"].to_string().contains("the client was the limit");
            assert_eq!(is_told, busy(trial) > share * 0.9, "{trial}");
        }
    }
}
