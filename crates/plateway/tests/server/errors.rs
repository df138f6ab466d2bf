//! Disks that err: the log says what, where and why, counters count it at disk and volume, and the
//! disk is not called well.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::path::Path;

use serde_json::Value;

use crate::client::{BLOCK, Controller, Queue};
use crate::common::{Server, configuration, flat, mounted, write};

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
    let Some(on_small) = mounted("mount -t tmpfs -o size=1m tmpfs \"$0\"", &small) else { return };
    let args = ["file:small/a.img?create=8MiB", "--nvme", "127.0.0.1:0", "--hosts", "any"];
    let server = Server::try_start_by(on_small, directory.path(), "a", &args);
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

#[test]
fn a_file_that_may_not_be_written_is_not_grown() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let folder = here.join("sub");
    fs::create_dir(&folder).unwrap();
    let of = |mib: u32| {
        let disk = format!("file:{}/a.img?create={mib}MiB", folder.display());
        configuration(&[("d0", &disk)], &[])
    };
    let server = Server::configured(here, &of(4));
    let config = write(here, &of(8));
    // Whoever asks sees a file there that is like the server's, and that nobody may write.
    let script =
        "mount -t tmpfs tmpfs \"$0\" && truncate -s 4M \"$0/a.img\" && mount -o remount,ro \"$0\"";
    let Some(mut check) = mounted(script, &folder) else { return };
    let output = check.args(["check", &config]).arg("--control").arg(here.join("a.sock")).output();
    let output = output.unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [
        "disk d0: ",
        "expected a file that may grow from 4 MiB to 8 MiB, seen one that may not be written",
        "allow this user to write it, or leave create as it was",
    ] {
        assert!(said.contains(words), "{said}");
    }
    drop(server);
}
