//! What the lab starts at the far end of a path: targets by their own commands, rivals, servers that reach their disk through
//! another one; they are measured as our own are, and none of them outlives its trial.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{self, child_of, flat, plateway, text};
use crate::paths::{self, done, lacks, number, path, picture, trial};
use crate::{alone, kept, lab, run};

/// A plan that draws a target which its own commands start, at the far end.
fn of_target(target: &str) -> String {
    format!(
        "name = \"own\"\nwindow = \"100ms\"\nwarm-up = \"0\"\n\
         [[system]]\nname = \"own\"\nbacking = \"ram\"\ndurable = false\ntarget = {{ {target} }}\n\
         [[path]]\nname = \"lan\"\n[[picture]]\nname = \"own\"\nsystems = [\"own\"]\n"
    )
}

#[test]
fn a_target_is_started_by_its_own_commands_and_ends_with_its_trial() {
    let directory = tempfile::tempdir().unwrap();
    let program = plateway();
    let program = program.get_program().to_str().unwrap();
    // One that stays in the foreground, and one that goes into the background and is never stopped.
    let serve = format!("{program} serve ram:4MiB --nvme 10.77.0.1:4420 --hosts any");
    let words = serve.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    let background = format!("\"sh\", \"-c\", \"{serve} > /dev/null 2>&1 &\"");
    let uri = "uri = \"nvme+tcp://10.77.0.1:4420/nqn.2026-11.net.plateway:v0/1\"";
    for start in [words, background] {
        let plan = of_target(&format!("start = [{start}], {uri}"));
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let mut command = lab(directory.path(), &["run", "a.toml", "--overwrite"]);
        let output = command.env("STATE_DIRECTORY", directory.path()).output().unwrap();
        let why = flat(&output.stderr);
        if why.contains("network namespaces need root") {
            return testkit::skipped(why);
        }
        assert!(output.status.success(), "{start}: {why}");
        let kept = kept(&directory.path().join("a.result.json"));
        assert!(kept["trials"][0]["measures"]["iops"].as_f64().unwrap() > 0.0, "{kept}");
    }
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    let is_its = |command: &Vec<u8>| flat(command).contains("--nvme\u{0}10.77.0.1:4420");
    assert_eq!(commands.filter(is_its).count(), 0, "it still runs");
}

#[test]
fn a_target_that_never_is_ready_keeps_nobody_who_wants_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let asked = directory.path().join("asked");
    let plan = of_target(&format!(
        "start = [\"sleep\", \"600\"], ready = [\"sh\", \"-c\", \"echo >> {}; false\"], uri = \"iscsi://10.77.0.1/iqn.2026-11.a:b/0\"",
        asked.display()
    ));
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let mut command = lab(directory.path(), &["run", "a.toml"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let home = std::env::temp_dir().join(format!("plateway-lab-{}", child.id()));
    let until = Instant::now() + common::HANG;
    let times = || fs::read(&asked).map_or(0, |lines| lines.len());
    while times() == 0 {
        if !home.exists() && fs::read_link(format!("/proc/{}/exe", child.id())).is_err() {
            let why = flat(&child.wait_with_output().unwrap().stderr);
            assert!(why.contains("network namespaces need root"), "{why}");
            return testkit::skipped(why);
        }
        assert!(Instant::now() < until, "it never comes so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let before = times();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    // It is asked many times a second, for half a minute.
    assert!(times() <= before + 3, "asked {} times more", times() - before);
    assert!(!home.exists());
}

/// A server that reaches its own disk by another protocol, as a storage router does.
fn through(protocol: &str, other: &str) -> String {
    format!(
        "[[system]]\nname = \"{protocol}-{other}\"\nserve = {{ protocol = \"{protocol}\", disk = \"ram:4MiB\", through = \"{other}\" }}\n"
    )
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_server_may_reach_its_disk_through_another_one() {
        let systems =
            through("iscsi", "nvme") + &through("nvme", "iscsi") + &through("aoe", "nvme");
        let names = ["iscsi-nvme", "nvme-iscsi", "aoe-nvme"];
        let load = "depth = 8\nsize = \"2MiB\"\n".to_owned() + &picture(&names, &["lan"]);
        let plan = paths::plan(&systems, &path("lan", ""), &load).replace("randread", "randrw=50");
        let Some(kept) = done(&plan) else { return };
        for name in names {
            let trial = trial(&kept, &format!("{name} over lan"));
            assert!(number(&trial["measures"]["iops"]) > 0.0, "{trial}");
            assert_eq!(trial["served"]["disk_access"], "remote", "{trial}");
        }
    }

    #[test]
    fn rivals_are_started_set_up_and_measured_as_our_own_are() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        let mut plan =
            "name = \"rivals\"\nwindow = \"100ms\"\nwarm-up = \"0\"\nshared = true\n".to_owned();
        let held = ["ram:4MiB".to_owned(), format!("file:{}?create=4MiB", disk.display())];
        let names = ["tgt-0", "tgt-1", "vblade-0", "vblade-1"];
        for name in names {
            let (program, which) = name.split_once('-').unwrap();
            let disk = &held[which.parse::<usize>().unwrap()];
            plan += &format!(
                "[[system]]\nname = \"{name}\"\nrival = {{ program = \"{program}\", disk = \"{disk}\" }}\n"
            );
        }
        plan += &format!(
            "[[path]]\nname = \"lan\"\n[load]\npattern = \"randrw=50\"\n[[picture]]\nname = \"all\"\nsystems = {names:?}\n"
        );
        fs::write(directory.path().join("a.toml"), plan.replace("ram:4MiB", "file:/nowhere/x"))
            .unwrap();
        let output = run(directory.path(), &["check", "a.toml"]);
        let why = flat(&output.stderr);
        assert!(
            output.status.code() == Some(1) && why.contains("system tgt-0: file:/nowhere/x"),
            "{why}"
        );
        let Some(kept) = done(&plan) else { return };
        let trials = kept["trials"].as_array().unwrap();
        assert_eq!(trials.len(), names.len(), "{kept}");
        for trial in trials {
            assert!(trial["measures"]["iops"].as_f64() > Some(0.0), "{trial}");
            let tasks = trial["far"]["by_task"].to_string();
            assert!(tasks.contains("tgtd") || tasks.contains("vblade"), "{tasks}");
        }
        // The file was served and not the memory alone, and nothing of theirs is left.
        assert!(fs::read(&disk).unwrap().iter().any(|byte| *byte != 0));
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        let is_its = |command: &Vec<u8>| flat(command).contains("portal=10.77.0.1:3260");
        assert_eq!(commands.filter(is_its).count(), 0, "it still runs");
    }

    #[test]
    fn a_trial_fails_where_the_server_behind_the_one_that_is_reached_ends() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let load = "depth = 1\n".to_owned() + &picture(&["iscsi-nvme"], &["lan"]);
        let plan = paths::plan(&through("iscsi", "nvme"), &path("lan", ""), &load);
        let plan = plan.replace("window = \"100ms\"", "window = \"5s\"");
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let mut command = lab(directory.path(), &["run", "a.toml"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let behind = loop {
            let is_it =
                |words: &[&str]| words.iter().any(|word| word.ends_with("/behind/plateway.toml"));
            if let Some(behind) = child_of(&child, is_it) {
                break behind;
            }
            assert!(Instant::now() < end, "it starts none");
            std::thread::sleep(Duration::from_millis(20));
        };
        std::thread::sleep(Duration::from_millis(1_500));
        let _ = kill_process(behind, Signal::KILL);
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr) + &text(&output.stdout);
        if lacks(&why) {
            return testkit::skipped(why);
        }
        assert_eq!(output.status.code(), Some(1), "{why}");
        let words = "plateway serve of the disk behind it ended with signal: 9";
        assert!(why.contains(words), "{why}");
    }
}
