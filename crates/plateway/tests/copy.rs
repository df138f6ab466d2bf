//! `plateway copy` and `plateway discover`: what is copied is the same, and what must not be
//! overwritten stays.

#[allow(unreachable_pub)]
mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use common::{Server, flat, plateway, text};
use serde_json::Value;

fn copy(directory: &Path, args: &[&str]) -> Output {
    let mut command = plateway();
    command.current_dir(directory).env("XDG_STATE_HOME", directory).arg("copy").args(args);
    command.output().expect("it runs")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at / 4096) as u8 | 1).collect()
}

#[test]
fn a_file_is_copied_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    // An odd end, so that the last piece is shorter.
    let data = pattern((3 << 20) + 512);
    fs::write(directory.path().join("a"), &data).unwrap();
    let output = copy(directory.path(), &["file:a", "file:b?create=4MiB", "--json", "--bs", "64k"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["bytes"], data.len() as u64);
    assert_eq!(report["verified"], true);
    let copied = fs::read(directory.path().join("b")).unwrap();
    assert!(copied[..data.len()] == data);
    assert!(copied[data.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_destination_that_holds_data_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), pattern(1 << 20)).unwrap();
    let before = vec![9; 1 << 20];
    fs::write(directory.path().join("b"), &before).unwrap();
    let output = copy(directory.path(), &["file:a", "file:b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(flat(&output.stderr).contains("--overwrite"), "{}", flat(&output.stderr));
    assert!(fs::read(directory.path().join("b")).unwrap() == before);
    let output = copy(directory.path(), &["file:a", "file:b", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(directory.path().join("b")).unwrap() == pattern(1 << 20));
}

#[test]
fn what_cannot_be_copied_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), pattern(1 << 20)).unwrap();
    for (args, reason) in [
        (&["file:a", "file:a"][..], "the same disk"),
        (&["file:a", "ram:512KiB"][..], "too small"),
        (
            &["file:a", "file:b?create=1MiB", "--resume"][..],
            "plateway copy file:a 'file:b?create=1MiB' --overwrite",
        ),
        (&["file:missing", "ram:1MiB"][..], "missing"),
    ] {
        let output = copy(directory.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = flat(&output.stderr);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    assert!(!directory.path().join("b").exists(), "made by a copy that was refused");
}

#[test]
fn a_copy_that_ended_early_names_the_command_that_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(4 << 20);
    fs::write(here.join("a"), &data).unwrap();
    fs::write(here.join("b"), vec![0; 4 << 20]).unwrap();
    // Some reads fail, so the copy does.
    let failed = copy(here, &["faulty:1,file:a", "file:b", "--bs", "4k"]);
    assert_eq!(failed.status.code(), Some(1));
    let said = flat(&failed.stderr);
    let anew = "plateway copy faulty:1,file:a file:b --overwrite";
    assert!(said.contains("cannot read") && said.contains(anew), "{said}");

    // So slow that it is under way when the signal comes: its first piece has arrived, and the
    // others take minutes.
    fs::write(here.join("b"), vec![0; 4 << 20]).unwrap();
    let mut slow = plateway();
    slow.current_dir(here).env("XDG_STATE_HOME", here).stderr(std::process::Stdio::piped());
    slow.args(["copy", "file:a", "delay:200000,file:b", "--iodepth", "1", "--bs", "4k"]);
    let child = slow.spawn().expect("it starts");
    let (began, mut first) = (std::time::Instant::now(), [0; 4096]);
    let destination = fs::File::open(here.join("b")).unwrap();
    while first != data[..4096] {
        assert!(began.elapsed() < common::HANG, "nothing is copied");
        destination.read_exact_at(&mut first, 0).unwrap();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let interrupted = child.wait_with_output().unwrap();
    assert_eq!(interrupted.status.code(), Some(1));
    let said = flat(&interrupted.stderr);
    let anew = "plateway copy file:a delay:200000,file:b --overwrite";
    assert!(said.contains("interrupted") && said.contains(anew), "{said}");

    // Nothing of it is taken up again, whatever the two left behind.
    let refused = copy(here, &["file:a", "delay:200000,file:b", "--resume"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(flat(&refused.stderr).contains(anew), "{}", flat(&refused.stderr));
    let whole = copy(here, &["file:a", "file:b", "--overwrite"]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(fs::read(here.join("b")).unwrap() == data);
}

#[test]
fn the_help_says_that_a_copy_begins_anew() {
    let help = copy(Path::new("."), &["--help"]);
    let said = flat(&help.stdout);
    assert!(said.contains("begins anew, with --overwrite"), "{said}");
}

#[test]
fn a_file_that_ends_within_a_block_is_not_copied_short() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a"), pattern(1_000_001)).unwrap();
    for disks in [["file:a", "file:b?create=1000448"], ["ram:512KiB", "file:a"]] {
        let refused = copy(here, &disks);
        assert_eq!(refused.status.code(), Some(1));
        let said = flat(&refused.stderr);
        assert!(said.contains("seen 1000001") && said.contains("truncate -s 1000448 a"), "{said}");
    }
    assert!(fs::read(here.join("a")).unwrap() == pattern(1_000_001));
}

#[test]
fn a_copy_goes_to_a_target_and_back_and_discovery_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = pattern(2 << 20);
    fs::write(directory.path().join("a"), &data).unwrap();
    let server = Server::of(directory.path(), "server", "ram:2MiB");
    let subsystem = "nqn.2026-11.net.plateway:v0";
    assert!(discovers(&server, subsystem, &[]));
    let remote = format!("nvme+tcp://{}/{subsystem}/1", server.address);
    for (from, to) in [("file:a", remote.as_str()), (&remote, "file:b?create=2MiB")] {
        let output = copy(directory.path(), &[from, to]);
        assert!(output.status.success(), "{from} to {to}: {}", text(&output.stderr));
    }
    assert!(fs::read(directory.path().join("b")).unwrap() == data);
}

/// Whether discovery at a server tells of a subsystem.
fn discovers(server: &Server, subsystem: &str, args: &[&str]) -> bool {
    let target = format!("nvme+tcp://{}", server.address);
    let output = plateway().args(["discover", "--json", &target]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    found.as_array().expect("a list").iter().any(|entry| entry["subsystem"] == subsystem)
}

#[test]
fn discovery_tells_a_host_by_its_name_of_what_it_may_use() {
    let directory = tempfile::tempdir().unwrap();
    let ours = "nqn.2026-11.net.plateway:me";
    let args = ["ram:2MiB", "--nvme", "127.0.0.1:0", "--hosts", ours];
    let server = Server::start(directory.path(), "server", &args);
    let subsystem = "nqn.2026-11.net.plateway:v0";
    assert!(!discovers(&server, subsystem, &[]), "a stranger hears of it");
    assert!(!discovers(&server, subsystem, &["--host-nqn", "nqn.2026-11.net.plateway:other"]));
    assert!(discovers(&server, subsystem, &["--host-nqn", ours]));
}
