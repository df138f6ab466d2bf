//! `plateway disks reopen`: a failed flush takes a disk's writes, and a person gives them back.

use std::time::Instant;

use rustix::process::Signal;
use wire::nvme::Status;

use crate::client::{BLOCK, Controller, Queue};
use crate::common::{HANG, Server, configuration};

/// Draws the faults of the disk; any other would do.
const SEED: u64 = 3;
/// Blocks that are written in turn.
const BLOCKS: u64 = 64;
/// A fault hits so many requests in a row only if something else is wrong.
const TRIES: usize = 64;

fn block(lba: u64, round: u64) -> [u8; BLOCK] {
    let mut block = [lba as u8; BLOCK];
    block[..8].copy_from_slice(&round.to_le_bytes());
    block
}

/// Reads a block in spite of the faults that hit reads.
fn read(queue: &mut Queue, lba: u64) -> Vec<u8> {
    let read = (0..TRIES).find(|_| queue.try_read(lba).is_success());
    assert!(read.is_some(), "reads do not go on");
    queue.data.clone()
}

/// Writes and flushes until a flush fails. Returns what each block holds then.
fn fail_a_flush(queue: &mut Queue) -> Vec<[u8; BLOCK]> {
    let mut held = vec![[0; BLOCK]; BLOCKS as usize];
    for round in 1u64.. {
        let lba = round % BLOCKS;
        let wanted = block(lba, round);
        // A write that failed leaves the block as before or as asked; written again, it is known.
        let written = (0..TRIES).find(|_| queue.try_write(lba, &wanted).is_success());
        assert!(written.is_some(), "no write succeeds in round {round}");
        held[lba as usize] = wanted;
        let flushed = queue.try_flush();
        if !flushed.is_success() {
            assert_eq!(flushed.without_hints(), Status::WRITE_FAULT, "{flushed:?}");
            return held;
        }
        assert!(round < 1 << 16, "no flush ever fails");
    }
    unreachable!("it counts for ever")
}

#[test]
fn a_failed_flush_takes_the_disks_writes_until_it_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let disk = format!("faulty:{SEED},file:a.img?create=8MiB");
    let config = |disk: &str| configuration(&[("d0", disk)], &[("v0", "disks = [\"d0\"]")]);
    let server = Server::configured(directory.path(), &config(&disk));
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    let held = fail_a_flush(&mut queue);

    // Other shards are told by mail, so writes on them end a moment later, but they end.
    let refused = Status::NAMESPACE_WRITE_PROTECTED;
    let until = Instant::now() + HANG;
    while queue.try_write(0, &block(0, 0)).without_hints() != refused {
        assert!(Instant::now() < until, "a disk that failed a flush takes writes");
    }
    for lba in 1..BLOCKS {
        assert_eq!(queue.try_write(lba, &block(lba, 0)).without_hints(), refused);
        assert_eq!(read(&mut queue, lba), held[lba as usize], "block {lba}");
    }
    assert!(!queue.try_flush().is_success(), "nobody may say that it is durable");

    let status = server.status();
    let why = status["disks"][0]["protected"].as_str().expect("a reason");
    assert!(!why.is_empty());
    assert!(server.ask(&["disks", "list"]).contains("read-only: "));
    let larger = config(&disk.replace("8MiB", "16MiB"));
    let said = server.refuse_apply(&larger);
    assert!(said.contains("takes writes, seen one that a failure protects"), "{said}");
    server.wait_for_log("plateway disks reopen d0");

    // The next flush may meet a fault of its own; then it is the same again.
    let recovered = (0..TRIES).find(|_| {
        let done = server.ask(&["disks", "reopen", "d0"]);
        assert!(done.contains("is open as before and takes writes"), "{done}");
        let wanted = block(5, 77);
        let written = (0..TRIES).find(|_| queue.try_write(5, &wanted).is_success());
        assert!(written.is_some(), "a reopened disk takes no writes");
        assert_eq!(read(&mut queue, 5), wanted);
        queue.try_flush().is_success()
    });
    assert!(recovered.is_some(), "no flush succeeds after the disk was reopened");
    assert!(server.status()["disks"][0]["protected"].is_null());
}

#[test]
fn a_restart_forgets_no_disk_that_takes_no_writes() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let faulty = format!("faulty:{SEED},file:a.img?create=8MiB");
    let server = Server::of(here, "a", &faulty);
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let held = fail_a_flush(&mut controller.queue(1, false));
    let identities = here.join("state/identities.toml");
    let kept =
        || std::fs::read_to_string(&identities).is_ok_and(|text| text.contains("[[protected]]"));
    server.wait_for("the state", |_| kept());
    server.kill();
    let refused = Status::NAMESPACE_WRITE_PROTECTED;
    // Twice: a start is no reopening.
    for _ in 0..2 {
        let server = Server::of(here, "a", "file:a.img");
        let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
        let mut queue = controller.queue(1, false);
        assert_eq!(queue.try_write(0, &block(0, 0)).without_hints(), refused);
        assert!(queue.try_read(7).is_success());
        assert_eq!(queue.data, held[7]);
        assert!(!queue.try_flush().is_success(), "nobody may say that it is durable");
        assert!(!server.status()["disks"][0]["protected"].is_null());
        server.wait_for_log("plateway disks reopen d0");
        server.kill();
    }
    let server = Server::of(here, "a", "file:a.img");
    let done = server.ask(&["disks", "reopen", "d0"]);
    assert!(done.contains("takes writes") && !kept(), "{done}");
    server.kill();
    let server = Server::of(here, "a", "file:a.img");
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    assert!(controller.queue(1, false).try_write(0, &block(0, 0)).is_success());
    server.stop();
}

#[test]
fn a_disk_that_takes_no_writes_is_not_resized_and_makes_the_end_of_its_server_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let of = |mib: u32| {
        let disk = format!("faulty:{SEED},file:a.img?create={mib}MiB");
        configuration(&[("d0", &disk)], &[("v0", "disks = [\"d0\"]")])
    };
    let server = Server::configured(directory.path(), &of(8));
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    fail_a_flush(&mut controller.queue(1, false));
    drop(controller);
    server.wait_for("protection", |status| !status["disks"][0]["protected"].is_null());
    let refused = server.refuse_apply(&of(16));
    let words = "disk d0: expected a disk that takes writes, seen one that a failure protects";
    assert!(refused.contains(words), "{refused}");
    assert!(refused.contains("plateway disks reopen d0"), "{refused}");
    server.signal(Signal::TERM);
    let log = server.wait_for_failure();
    assert!(log.contains("volume v0: the last flush failed"), "{log}");
}

#[test]
fn a_disk_is_reopened_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "file:a.img?create=8MiB");
    let done = server.ask(&["disks", "reopen", "d0"]);
    assert!(done.contains("nothing was lost"), "{done}");
    let refused = server.refuse(&["disks", "reopen", "d7"]);
    assert!(refused.contains("d0") && refused.contains("d7"), "{refused}");
}

#[test]
fn a_disk_that_comes_back_larger_is_shown_so() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "file:a.img?create=8MiB");
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    let beyond = (8 << 20) / BLOCK as u64;
    assert!(!queue.try_read(beyond).is_success());
    let file = std::fs::File::options().write(true).open(directory.path().join("a.img")).unwrap();
    file.set_len(16 << 20).unwrap();
    server.ask(&["disks", "reopen", "d0"]);
    assert!(queue.try_read(beyond).is_success(), "the export has the former size");
}
