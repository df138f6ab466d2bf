//! `plateway copy` and `plateway discover`: what is copied is the same, and what must not be
//! overwritten stays.

#[allow(unreachable_pub)]
mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use common::{Server, flat, plateway, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn copy(directory: &Path, args: &[&str]) -> Output {
    let mut command = plateway();
    command
        .current_dir(directory)
        .env("STATE_DIRECTORY", directory.join("state"))
        .arg("copy")
        .args(args);
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
    let args = ["file:a", "file:b?create=4MiB", "--json", "--bs", "64k", "--no-verify", "--verify"];
    let output = copy(directory.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["bytes"], data.len() as u64);
    assert_eq!(report["verified"], true);
    let copied = fs::read(directory.path().join("b")).unwrap();
    assert!(copied[..data.len()] == data);
    assert!(copied[data.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_end_of_a_file_that_is_left_out_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let whole = 1_000_001 / 4096 * 4096;
    fs::write(directory.path().join("a"), pattern(1_000_001)).unwrap();
    let destination = format!("file:b?create={}", 1_000_001 / 512 * 512);
    let output = copy(directory.path(), &["file:a", &destination]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let args = ["file:a?tail=ignore", destination.as_str()];
    let output = copy(directory.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let left_out = 1_000_001 - fs::metadata(directory.path().join("b")).unwrap().len();
    assert!(said.contains("left out: the last "), "{said}");
    let output = copy(directory.path(), &[args[0], args[1], "--overwrite", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["left_out_bytes"].as_u64() >= Some(left_out), "{report}");
    let copied = fs::read(directory.path().join("b")).unwrap();
    assert!(copied[..whole] == pattern(1_000_001)[..whole]);
}

#[test]
fn what_is_only_read_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, pattern(1 << 20)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let config =
        "[[disk]]\nname = \"d\"\nuri = \"file:a\"\n[[volume]]\nname = \"v\"\ndisks = [\"d\"]\n";
    fs::write(directory.path().join("p.toml"), config).unwrap();
    for args in [
        &["check", "p.toml"][..],
        &["copy", "file:a", "ram:1MiB"],
        &["copy", "volume:v", "ram:1MiB", "--config", "p.toml"],
        &["bench", "file:a", "--rw", "randread", "--time", "1", "--warmup", "0"],
    ] {
        let mut command = plateway();
        command.current_dir(directory.path());
        command.env("STATE_DIRECTORY", directory.path().join("state"));
        let output = command.args(args).output().expect("it runs");
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then, "{args:?}");
    }
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
        (&["file:a", "ram:1MiB", "--resume"][..], "a disk in memory is another one"),
        (&["file:missing", "ram:1MiB"][..], "missing"),
    ] {
        let output = copy(directory.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = flat(&output.stderr);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    assert!(!directory.path().join("b").exists(), "made by a copy that was refused");
}

/// What is kept of unfinished copies.
fn journals(directory: &Path) -> Vec<Value> {
    let copies = fs::read_dir(directory.join("state/copies"));
    let folders = copies.into_iter().flatten().map(|entry| entry.unwrap().path());
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.join("journal.json")).ok());
    texts.map(|text| serde_json::from_str(&text).expect("JSON")).collect()
}

/// A copy as a process, until `reached`; then it gets this signal. What became of it.
fn broken_off(
    directory: &Path,
    args: &[&str],
    reached: impl Fn() -> bool,
    signal: Signal,
) -> Output {
    let mut command = plateway();
    command
        .current_dir(directory)
        .env("STATE_DIRECTORY", directory.join("state"))
        .arg("copy")
        .args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let began = Instant::now();
    while !reached() && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < common::HANG, "it does not come so far");
    }
    // It may be at its end.
    let _ = kill_process(Pid::from_child(&child), signal);
    child.wait_with_output().unwrap()
}

/// A copy from `a` to `b`, interrupted while it copies.
fn interrupted(directory: &Path, data: &[u8]) -> Output {
    fs::write(directory.join("a"), data).unwrap();
    fs::write(directory.join("b"), vec![0; data.len()]).unwrap();
    // So slow that it is under way when the signal comes: its first piece has arrived, and the
    // others take minutes.
    let args = ["file:a", "delay:200000,file:b", "--iodepth", "1", "--bs", "4k", "--overwrite"];
    broken_off(directory, &args, || has_begun(directory, data), Signal::INT)
}

fn has_begun(directory: &Path, data: &[u8]) -> bool {
    let mut first = [0; 4096];
    let destination = fs::File::open(directory.join("b")).unwrap();
    destination.read_exact_at(&mut first, 0).unwrap();
    first == data[..4096]
}

#[test]
fn a_piece_that_failed_is_copied_by_those_that_resume() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(8 << 20);
    fs::write(here.join("a"), &data).unwrap();
    fs::write(here.join("b"), vec![0; 8 << 20]).unwrap();
    // Reads, writes and flushes of both fail now and then.
    let mut lives = 0;
    loop {
        lives += 1;
        let disks = [format!("faulty:{lives},file:a"), format!("faulty:{lives},file:b")];
        let mut args = vec![&*disks[0], &*disks[1], "--no-verify", "--bs", "32k"];
        args.extend(if lives > 1 { &["--resume"][..] } else { &["--overwrite"] });
        let output = copy(here, &args);
        if output.status.success() {
            break;
        }
        let said = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot ") && said.contains("--resume"), "{said}");
        assert!(lives < 500, "it does not get on: {said}");
    }
    assert!(lives > 1, "nothing failed");
    assert!(fs::read(here.join("b")).unwrap() == data);
    assert_eq!(journals(here), [] as [Value; 0]);
}

#[test]
fn an_interrupted_copy_goes_on_between_the_same_disks_alone() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(4 << 20);
    let output = interrupted(here, &data);
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let resume = "plateway copy file:a delay:200000,file:b --resume";
    assert!(said.contains("interrupted: the first") && said.contains(resume), "{said}");
    let journal = &journals(here)[0]["journal"];
    let durable = journal["durable"].as_u64().unwrap();
    assert!(
        durable >= 4096
            && fs::read(here.join("b")).unwrap()[..durable as usize] == data[..durable as usize]
    );

    // The same names elsewhere are other disks.
    let elsewhere = here.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for name in ["a", "b"] {
        fs::write(elsewhere.join(name), pattern(4 << 20)).unwrap();
    }
    let refuse = |from: &Path, args: &[&str], why: &str| {
        let mut command = plateway();
        command.current_dir(from).env("STATE_DIRECTORY", here.join("state")).arg("copy").args(args);
        let output = command.output().unwrap();
        let said = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "expected {why}, seen {said}");
    };
    refuse(&elsewhere, &["file:a", "file:b", "--resume"], "nothing is known of an unfinished copy");
    assert!(fs::read(elsewhere.join("b")).unwrap() == data);

    // Others under the same names, and the ends exchanged.
    let args = ["file:a", "file:b", "--resume"];
    let exchange = |with: &str| {
        fs::rename(here.join("b"), here.join("kept")).unwrap();
        fs::rename(here.join(with), here.join("b")).unwrap();
        fs::rename(here.join("kept"), here.join(with)).unwrap();
    };
    for other in ["elsewhere/b", "a"] {
        exchange(other);
        let before = fs::read(here.join("b")).unwrap();
        refuse(here, &args, "is not what it was: expected ");
        assert!(fs::read(here.join("b")).unwrap() == before);
        exchange(other);
    }
    fs::rename(here.join("b"), here.join("kept")).unwrap();
    refuse(here, &["file:a", "file:b?create=4MiB", "--resume"], "No such file");
    assert!(!here.join("b").exists(), "a refused resume made it");
    fs::rename(here.join("kept"), here.join("b")).unwrap();

    // The disks are the same, whatever stands around them and whichever way leads to them.
    std::os::unix::fs::symlink("../b", elsewhere.join("link")).unwrap();
    let mut command = plateway();
    command.current_dir(&elsewhere).env("STATE_DIRECTORY", here.join("state"));
    let output = command.args(["copy", "file:../a", "file:link", "--resume", "--json"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["copied_from"], durable);
    assert_eq!(
        (&report["verified"], &report["compared_bytes"]),
        (&true.into(), &data.len().into())
    );
    assert!(fs::read(here.join("b")).unwrap() == data);
    refuse(here, &args, "nothing is known of an unfinished copy");
}

#[test]
fn only_the_rest_is_compared_where_that_is_said_and_never_told_to_be_all() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(4 << 20);
    interrupted(here, &data);
    let output = copy(here, &["file:a", "file:b", "--resume", "--verify-rest", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["verified"], &report["compared_from"]),
        (&false.into(), &report["copied_from"])
    );
    assert!(fs::read(here.join("b")).unwrap() == data);
}

#[test]
fn a_disk_that_was_written_to_meanwhile_is_not_gone_on_with() {
    for changed in ["a", "b"] {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        interrupted(here, &pattern(4 << 20));
        let file = fs::File::options().write(true).open(here.join(changed)).unwrap();
        file.write_all_at(&[0x55; 512], 3 << 20).unwrap();
        // However coarse the clock of the file system is.
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(9))
            .unwrap();
        let before = fs::read(here.join("b")).unwrap();
        let output = copy(here, &["file:a", "file:b", "--resume"]);
        let said = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("expected last changed at"), "{said}");
        assert!(fs::read(here.join("b")).unwrap() == before);
    }
}

#[test]
fn one_that_ended_while_it_compared_compares_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(1 << 20);
    fs::write(here.join("a"), &data).unwrap();
    fs::write(here.join("b"), vec![0; 1 << 20]).unwrap();
    let all = |journal: &Value| journal["journal"]["durable"] == 1 << 20;
    let broken_off = |delay_us: u64| {
        let slow = format!("delay:{delay_us},file:b");
        let args = ["file:a", &slow, "--iodepth", "1", "--bs", "64k", "--overwrite"];
        broken_off(here, &args, || journals(here).iter().any(all), Signal::INT).status.code()
    };
    // It takes as long to compare as to copy. A machine that is slower still needs a slower disk.
    assert!([200_000, 2_000_000].into_iter().any(|delay| broken_off(delay) == Some(130)));
    // Behind the journal's back: a byte that comparing alone can find.
    let file = fs::File::options().write(true).open(here.join("b")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&[data[70_000] ^ 1], 70_000).unwrap();
    file.set_modified(time).unwrap();
    let output = copy(here, &["file:a", "file:b", "--resume", "--verify-rest"]);
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("differs from file:a first seen at offset 70000"), "{said}");
    let output = copy(here, &["file:a", "file:b", "--resume"]);
    assert_eq!(output.status.code(), Some(1), "after a difference nothing is resumed");
}

#[test]
fn a_copy_that_was_killed_overwrites_nothing_that_it_did_not_write() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(4 << 20);
    fs::write(here.join("a"), &data).unwrap();
    fs::write(here.join("b"), vec![0; 4 << 20]).unwrap();
    let args = ["file:a", "delay:200000,file:b", "--iodepth", "1", "--bs", "4k", "--overwrite"];
    let output = broken_off(here, &args, || has_begun(here, &data), Signal::KILL);
    assert_eq!(output.status.code(), None);
    // On a slow machine some of it may be durable.
    if journals(here)[0]["journal"]["durable"] == 0 {
        // Nothing tells this file from one that somebody else wrote.
        let output = copy(here, &["file:a", "file:b", "--resume"]);
        let said = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("--overwrite"), "{said}");
    }
    let output = copy(here, &["file:a", "file:b", "--resume", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(here.join("b")).unwrap() == data);
}

#[test]
fn a_destination_that_keeps_nothing_differs() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a"), pattern(1 << 20)).unwrap();
    let output = copy(here, &["file:a", "null:1MiB"]);
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("differs from file:a first seen at offset 0"), "{said}");
    assert_eq!(journals(here), [] as [Value; 0]);
}

#[test]
fn holes_stay_holes() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let a = fs::File::create(here.join("a")).unwrap();
    a.set_len(64 << 20).unwrap();
    a.write_all_at(&pattern(1 << 20), 5 << 20).unwrap();
    a.sync_all().unwrap();
    let output = copy(here, &["file:a", "file:b?create=64MiB", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["compared_bytes"], 64 << 20);
    assert!(fs::read(here.join("a")).unwrap() == fs::read(here.join("b")).unwrap());
    let allocated = |name: &str| fs::metadata(here.join(name)).unwrap().blocks() * 512;
    if allocated("a") > 32 << 20 {
        println!("this file system keeps no holes");
        return;
    }
    assert!(allocated("b") < 8 << 20, "{} bytes are allocated", allocated("b"));
    assert!(report["holes_bytes"].as_u64().unwrap() > 56 << 20, "{report:#}");
    // What lay there before goes.
    fs::write(here.join("c"), vec![9; 64 << 20]).unwrap();
    let output = copy(here, &["file:a", "file:c", "--overwrite", "--no-verify"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(here.join("a")).unwrap() == fs::read(here.join("c")).unwrap());
}

#[test]
fn the_help_tells_the_exit_codes() {
    let help = copy(Path::new("."), &["--help"]);
    let said = flat(&help.stdout);
    assert!(said.contains("3: the destination differs. 130: interrupted"), "{said}");
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
    let log = server.wait_for_log("it shut its controller down");
    assert!(!log.contains("closed or lost"), "{log}");
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
