//! `plateway lab paper`: what would be rerun is told without running, what cannot be is refused, and what was
//! interrupted is kept, with a page.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{alone, common, flat, kept, lab, paths, run, text};

#[test]
fn a_list_tells_each_finding_and_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let told = |args: &[&str]| {
        let output = run(directory.path(), args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let rocha = told(&["paper", "rocha", "--list"]);
    assert_eq!(rocha.matches("  claim:").count(), 25, "{rocha}");
    for words in [
        "rocha: Experimental performance analysis of the AoE and iSCSI storage protocols",
        "rocha seq-read-uncached\n  claim:        throughput: aoe has more than iscsi (1.20 times)",
        "  precondition: 10k rpm disk seek bound",
        "  plan:         rocha-micro\n",
        "throughput of aoe against iscsi over mtu-1500, 4KiB read, depth 1\n",
        " trials in ",
        " of 25 findings are judged by plans here.",
    ] {
        assert!(rocha.contains(words), "{words}\n{rocha}");
    }
    let sarkar = told(&["paper", "sarkar", "--list"]);
    assert!(sarkar.contains("here:         cannot be tested here: it needs adapters"), "{sarkar}");
    assert!(sarkar.contains("here:         analogue only, offloads on against off"), "{sarkar}");
    let all: Value = serde_json::from_str(&told(&["paper", "all", "--list", "--json"])).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 109);
    let reads = all.iter().find(|one| one["id"] == "rand-read-uncached").unwrap();
    assert_eq!((&reads["paper"], &reads["a"]), (&json!("rocha"), &json!("aoe")));
    assert!(reads["recreated"].as_str().unwrap().contains("10,000 revolutions"), "{reads}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_paper_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("r.json"), "old").unwrap();
    for (args, expected) in [
        (
            &["paper", "roche"][..],
            "expected a paper, one of rocha, technomages, landowski, goncalves, sarkar, or all, seen \"roche\"",
        ),
        (&["paper", "nobody", "--list"], "or all, seen \"nobody\""),
        (&["paper", "all", "--result", "r.json"], "cannot make r.json"),
        (&["paper", "rocha", "--quick", "--result", "r.json"], "r.json: expected no such file"),
        (&["paper", "rocha", "--result", "r.html", "--overwrite"], "expected another ending than"),
    ] {
        let output = run(directory.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let why = flat(&output.stderr);
        assert!(why.contains(expected), "{args:?}: {why}");
    }
    assert_eq!(fs::read_to_string(directory.path().join("r.json")).unwrap(), "old");
}

/// The same where nothing makes a file system, if mounts of its own are to be had; else where whoever is not
/// root attaches no disk.
fn without_mkfs(command: Command) -> Command {
    let script = "mount --bind /dev/null \"$(command -v mkfs.ext4)\" && exec \"$@\"";
    let hidden = || {
        let mut hidden = Command::new("unshare");
        hidden.args(["--mount", "sh", "-c", script, "sh"]);
        hidden
    };
    if !hidden().arg("true").status().is_ok_and(|status| status.success()) {
        return command;
    }
    let mut hidden = hidden();
    hidden.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    hidden.current_dir(command.get_current_dir().unwrap());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => hidden.env(key, value),
            None => hidden.env_remove(key),
        };
    }
    hidden
}

#[test]
fn all_papers_have_a_page_each_and_one_together_also_where_nothing_can_be_run() {
    let directory = tempfile::tempdir().unwrap();
    // No program is found, so no path is laid; and what needs none has no folder for its trials, which is
    // seen when it begins.
    let gone = directory.path().join("gone");
    let all = |more: &[&str]| {
        let args = [&["paper", "all", "--quick", "--result", "all"], more].concat();
        let mut command = lab(directory.path(), &args);
        command.env("PATH", directory.path()).env("TMPDIR", &gone).output().unwrap()
    };
    let has_failed = |output: &Output, why: &str| {
        let words = "goncalves: goncalves-array: cannot make ";
        assert!(output.status.code() == Some(1) && why.contains(words), "{why}");
    };
    let output = all(&["--json"]);
    let why = flat(&output.stderr);
    has_failed(&output, &why);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told.as_array().unwrap().len(), 5);
    let at = |name: &str| directory.path().join("all").join(name);
    let page = fs::read_to_string(at("papers.html")).unwrap();
    for (paper, kept_one) in ["rocha", "technomages", "landowski", "goncalves", "sarkar"]
        .iter()
        .zip(told.as_array().unwrap())
    {
        assert_eq!(*kept_one, kept(&at(&format!("{paper}.result.json"))), "{paper}");
        assert!(at(&format!("{paper}.result.html")).exists(), "{paper}");
        assert!(page.contains(&format!("{paper}.result.html")), "{paper}");
    }
    let verdicts = told[0]["verdicts"].as_array().unwrap();
    let read = verdicts.iter().find(|said| said["id"] == "seq-read-uncached").unwrap();
    assert_eq!(read["answer"]["word"], "cannot_be_tested", "{read}");
    // One by itself is an error.
    let mut command = lab(directory.path(), &["paper", "rocha", "--quick"]);
    let output = command.env("PATH", directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(flat(&output.stderr).contains("cannot be run on this machine"));
    // What is there stays, unless it may be lost.
    let output = all(&[]);
    let why = flat(&output.stderr);
    assert!(
        output.status.code() == Some(1) && why.contains("papers.html: expected no such file"),
        "{why}"
    );
    let output = all(&["--overwrite"]);
    has_failed(&output, &flat(&output.stderr));
    assert!(text(&output.stdout).contains("all of them: all/papers.html"));
}

/// Waits until a lab has come as far as its third trial, or has ended, and interrupts it.
/// What a lab without anything that makes file systems said, once it was interrupted; none where this machine lets
/// it lay no paths.
fn interrupted(directory: &std::path::Path, args: &[&str]) -> Option<Output> {
    let mut command = without_mkfs(lab(directory, args));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    interrupt(&mut child);
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    if paths::lacks(&why) {
        testkit::skipped(why);
        return None;
    }
    assert_eq!(output.status.code(), Some(130), "{why}");
    Some(output)
}

fn interrupt(child: &mut Child) {
    let until = Instant::now() + common::HANG;
    // A trial leaves a folder while it runs.
    let home = std::env::temp_dir().join(format!("plateway-lab-{}", child.id()));
    while !home.join("trial-2").exists() && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it never comes so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = kill_process(Pid::from_child(child), Signal::INT);
}

#[test]
fn what_came_of_papers_is_told_also_where_there_is_no_room_to_keep_it() {
    let directory = tempfile::tempdir().unwrap();
    let full = directory.path().join("full");
    fs::create_dir(&full).unwrap();
    // Room for a page of the kernel's; and no program is found, so that nothing runs.
    let mounts = "mount -t tmpfs -o size=4k none \"$0\" && export PATH=/nowhere";
    let papers = |more: &[&str]| {
        let mut command = common::mounted(mounts, &full)?;
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        command.args(["lab", "paper", "all", "--quick", "--result", "full"]).args(more);
        Some(command.output().unwrap())
    };
    let Some(output) = papers(&["--json"]) else { return };
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("cannot write what came of it to full/"), "{why}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("all of it, as JSON");
    assert_eq!(told.as_array().unwrap().len(), 5);
    let output = papers(&[]).expect("it was to be had");
    let (said, why) = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.code() == Some(1) && why.contains("cannot write"), "{why}");
    assert!(said.contains("seq-read-uncached: cannot be tested here"), "{said}");
    assert!(!said.contains("kept: full/rocha"), "{said}");
}

#[test]
fn a_page_of_a_paper_has_its_tables_and_says_what_is_not_rerun() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("l.json");
    let reached = [("serv1-to-lx", true), ("serv1-to-cd", false), ("serv2-to-cd", true)];
    let reached = reached
        .map(|(probe, is)| json!({ "probe": probe, "is_reached": is, "seen": "asked for 5 s" }));
    let result =
        json!({ "schema_version": 1, "paper": "landowski", "runs": [], "reached": reached });
    fs::write(&file, result.to_string()).unwrap();
    assert!(run(directory.path(), &["page", "l.json"]).status.success());
    let page = fs::read_to_string(directory.path().join("l.html")).unwrap();
    for words in [
        "Table II: average speeds",
        "<td>15.78</td>",
        "in doubt: ",
        "(its own VPN): 1 (asked for 5 s)",
    ] {
        assert!(page.contains(words), "{words}");
    }
    for (paper, version, expected) in [
        ("nobody", 1, "expected a paper, one of rocha"),
        ("landowski", 2, "expected schema_version 1, seen 2"),
    ] {
        let result = json!({ "schema_version": version, "paper": paper });
        fs::write(&file, result.to_string()).unwrap();
        let output = run(directory.path(), &["page", "l.json", "--overwrite"]);
        let why = flat(&output.stderr);
        assert!(why.contains(expected), "{why}");
    }
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_paper_that_was_interrupted_is_kept_and_leaves_its_findings_undecided() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let Some(output) = interrupted(directory.path(), &["paper", "rocha", "--quick", "--json"])
        else {
            return;
        };
        let why = flat(&output.stderr);
        assert!(why.contains("interrupted: what was measured is in rocha.result.json"), "{why}");
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let kept = kept(&directory.path().join("rocha.result.json"));
        assert_eq!(printed, kept);
        assert_eq!((&kept["paper"], &kept["quick"]), (&json!("rocha"), &json!(true)));
        assert!(!kept["runs"][0]["result"]["trials"].as_array().unwrap().is_empty());
        assert_eq!(kept["runs"][0]["left_out"].as_array().unwrap().len(), 14, "{kept}");
        let verdicts = kept["verdicts"].as_array().unwrap();
        let of = |id: &str| verdicts.iter().find(|said| said["id"] == id).unwrap();
        assert_eq!(of("seq-read-uncached")["answer"]["word"], "undecided");
        // A quick run has none of its plan.
        assert_eq!(of("rand-read-uncached")["answer"]["word"], "undecided");
        // What one plan needs and is not here is said of its findings, and stops none of the others.
        let cached = &of("read-cached-sequential")["answer"];
        assert_eq!(cached["word"], "cannot_be_tested", "{cached}");
        let because = cached["because"].as_str().unwrap();
        assert!(because.starts_with("file-system: "), "{because}");
        assert_eq!(because.matches("file-system").count(), 1, "once of both systems: {because}");
        let page = fs::read_to_string(directory.path().join("rocha.result.html")).unwrap();
        assert!(page.contains("A quick run"), "{page}");
        // What is drawn anew from the file is what was drawn.
        let args = ["page", "rocha.result.json", "--to", "again.html"];
        assert!(run(directory.path(), &args).status.success());
        assert_eq!(fs::read_to_string(directory.path().join("again.html")).unwrap(), page);
    }

    #[test]
    fn what_takes_longer_than_an_hour_is_run_when_all_is_asked_for() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        for (more, is_full) in [(&["--overwrite"][..], false), (&["--full", "--overwrite"], true)] {
            let args = [&["paper", "rocha", "--json"], more].concat();
            let Some(_) = interrupted(directory.path(), &args) else { return };
            let kept = kept(&directory.path().join("rocha.result.json"));
            assert_eq!(kept["full"], json!(is_full));
            let not_run = kept["not_run"].as_array().unwrap();
            let of_plan = |plan: &str| {
                not_run.iter().find(|one| one["plan"] == plan).expect("it was not run").clone()
            };
            // It needs a file system, which is not to be had, or is stopped before.
            let mtu = of_plan("rocha-macro-mtu");
            assert_eq!(mtu["cause"] == "full", !is_full, "{mtu}");
            assert_ne!(of_plan("rocha-macro")["cause"], "full", "an hour has it");
            let verdicts = kept["verdicts"].as_array().unwrap();
            let said = verdicts.iter().find(|said| said["id"] == "cpu-per-op-mtu").unwrap();
            let said = said.to_string();
            assert_eq!(said.contains("is run by --full alone"), !is_full, "{said}");
        }
    }

    #[test]
    fn all_papers_that_were_interrupted_are_kept_with_what_came_before() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let args = ["paper", "all", "--quick", "--json", "--result", "all"];
        let mut command = without_mkfs(lab(directory.path(), &args));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        interrupt(&mut child);
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told.as_array().unwrap().len(), 5, "{why}");
        assert!(directory.path().join("all/papers.html").exists());
        if told[0]["runs"].as_array().unwrap().is_empty() {
            return testkit::skipped(why);
        }
        assert_eq!(output.status.code(), Some(130), "{why}");
        assert!(why.contains("interrupted: what was measured is in all"), "{why}");
        assert!(!told[0]["runs"][0]["result"]["trials"].as_array().unwrap().is_empty());
        let stopped = json!({ "plan": "landowski-device", "because": "it was stopped before", "cause": "passed" });
        assert!(told[2]["not_run"].as_array().unwrap().contains(&stopped), "{}", told[2]);
        assert_eq!(told[2], kept(&directory.path().join("all/landowski.result.json")));
    }

    #[test]
    fn a_customer_reaches_its_own_target_and_not_that_of_another_over_the_same_core() {
        if !common::can_attach() {
            return;
        }
        if let Err(why) = testbed::needs("vblade") {
            return testkit::skipped(why);
        }
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let mut command = lab(directory.path(), &["paper", "landowski", "--quick", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        interrupt(&mut child);
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        if paths::lacks(&why) {
            return testkit::skipped(why);
        }
        let kept: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let reached: Vec<(&str, bool)> = kept["reached"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["probe"].as_str().unwrap(), one["is_reached"].as_bool().unwrap()))
            .collect();
        let expected = [("serv1-to-lx", true), ("serv1-to-cd", false), ("serv2-to-cd", true)];
        assert_eq!(reached, expected, "{why}\n{}", kept["reached"]);
        let verdicts = kept["verdicts"].as_array().unwrap();
        for id in ["isolation", "two-platforms"] {
            let said = verdicts.iter().find(|said| said["id"] == id).unwrap();
            assert_eq!(
                (&said["answer"]["word"], &said["size"]),
                (&json!("confirmed"), &json!("agrees"))
            );
        }
    }
}
