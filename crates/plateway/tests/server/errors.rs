//! Disks that err: the log says what, where and why, counters count it at disk and volume, and the
//! disk is not called well.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::{BLOCK, Controller, Queue};
use crate::common::{Server, plateway};

/// More blocks than `faulty:` leaves alone, and than a full file system takes.
const BLOCKS: u64 = 4096;

/// Waits until the disk is not called well; meanwhile `again` makes it err. Returns the log.
fn errs(server: &Server, queue: Queue, again: impl Fn(&mut Queue)) -> (String, Queue) {
    let queue = RefCell::new(queue);
    let status = server.wait_for("the word for errors", |status| {
        again(&mut queue.borrow_mut());
        state(status) == "errors"
    });
    for kind in ["disks", "volumes"] {
        assert_ne!(status[kind][0]["counters"]["errors"].as_u64(), Some(0), "{status:#}");
    }
    assert!(server.ask(&["disks", "list"]).contains("errors"));
    (server.wait_for_log("ERROR disk d0: "), queue.into_inner())
}

fn state(status: &Value) -> &str {
    status["disks"][0]["state"].as_str().expect("a state")
}

fn connect(server: &Server) -> Controller {
    Controller::connect(server.address.parse().unwrap(), 1, 1)
}

fn cut(directory: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(directory.join("a.img")).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn a_file_that_is_cut_while_it_is_served_errs_aloud_until_it_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "file:a.img?create=8MiB");
    assert_eq!(state(&server.status()), "ok");
    cut(directory.path(), 1 << 20);
    let lba = (4 << 20) / BLOCK as u64;
    let controller = connect(&server);
    let read = |queue: &mut Queue| assert!(!queue.try_read(lba).is_success());
    let (log, mut queue) = errs(&server, controller.queue(1, false), read);
    assert!(log.contains("disk d0: unrecovered read error at 4194304, "), "{log}");
    assert!(log.contains(": Input/output error (os error 5)"), "{log}");
    // The line does not come with each of them.
    (0..100).for_each(|_| read(&mut queue));
    assert!(server.log().lines().count() < 50, "{}", server.log());
    cut(directory.path(), 8 << 20);
    server.ask(&["disks", "reopen", "d0"]);
    assert_eq!(state(&server.status()), "ok");
    assert!(queue.try_read(lba).is_success());
}

#[test]
fn what_an_instrument_breaks_is_told_like_what_a_disk_breaks() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "faulty:3,ram:8MiB");
    let controller = connect(&server);
    let read = |queue: &mut Queue| {
        assert!((0..BLOCKS).any(|_| !queue.try_read(0).is_success()), "no read ever fails");
    };
    let (log, _) = errs(&server, controller.queue(1, false), read);
    assert!(log.contains("disk d0: unrecovered read error at 0, "), "{log}");
}

#[test]
fn a_full_file_system_is_in_the_log_and_the_status() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    // In a mount namespace of its own, which ends with it.
    let on_small = |program: &str| {
        let script = "mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(&small).arg(program).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    };
    if !on_small("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        testkit::skipped("no mount namespace is to be had");
        return;
    }
    let program = plateway().get_program().to_str().expect("a path of text").to_owned();
    let args = ["file:small/a.img?create=8MiB", "--nvme", "127.0.0.1:0", "--hosts", "any"];
    let server = Server::try_start_by(on_small(&program), directory.path(), "a", &args);
    let server = server.unwrap_or_else(|log| panic!("{log}"));
    let controller = connect(&server);
    let write = |queue: &mut Queue| {
        let blocks = 0..BLOCKS;
        let refused = blocks.map(|lba| queue.try_write(lba, &[7; BLOCK])).find(|s| !s.is_success());
        assert!(refused.is_some(), "the file system takes more than it holds");
    };
    let (log, _) = errs(&server, controller.queue(1, false), write);
    assert!(log.contains("disk d0: no space left at "), "{log}");
    assert!(log.contains(": No space left on device (os error 28)"), "{log}");
}
