//! What becomes of a device when its disk, its process, who watches over that, or the room for what is known of
//! it goes: errors where there have to be, no process that waits for ever, and nothing that stays.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Server, can_attach, child_of, flat, plateway, text};
use crate::*;

#[test]
fn a_disk_that_is_lost_for_good_fails_what_waits_and_can_be_detached() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "s", "file:d0?create=16MiB");
    let address = server.listens("nvme");
    let lost = format!(
        "nvme+tcp://{address}/nqn.2026-11.net.plateway:v0/1?keep_alive_ms=500&deadline_s=2"
    );
    let device = Device::of(directory.path(), &[&lost]);
    let past = device.open(rustix::fs::OFlags::DIRECT.bits() as i32);
    let mut page = Aligned::new(4096);
    past.write_all_at(page.bytes(), 0).unwrap();
    server.kill();
    let error = past.read_exact_at(page.bytes(), 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    drop(past);
    // Its last flush has nobody to go to: who detaches it is told, and the device goes all the same.
    let output = detach(&device.path);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let said = flat(&output.stderr);
    assert!(said.contains("is detached, and what was written to it last may be lost"), "{said}");
    device.wait_for_end(1);
}

#[test]
fn a_disk_that_does_not_answer_is_given_up_and_nobody_waits_for_it() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Each answer an hour late: no deadline is there to end it.
    let late = "delay:3600000000,ram:16MiB";
    let log = directory.path().join("attach.log");
    let mut command = attach(directory.path(), &[late, "--give-up", "2", "--json"]);
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let place = Path::new("/run/plateway-attached").join(child.id().to_string());
    // Whoever looks for partitions asks it first.
    let until = Instant::now() + HANG;
    while child.try_wait().unwrap().is_none() {
        if let Ok(text) = fs::read_to_string(place.join("record.json"))
            && let Some(device) = serde_json::from_str::<Value>(&text).unwrap()["device"].as_str()
        {
            // It waits, and is told in the end; who comes when that is over finds a device of nothing.
            let read = fs::read(device).unwrap_or_default();
            assert!(read.is_empty(), "{} bytes that nobody answered", read.len());
        }
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let said = fs::read_to_string(&log).unwrap();
    assert!(flat(said.as_bytes()).contains("nothing was answered for 2 s"), "{said}");
    wait("its folder is gone", || !place.exists());
}

#[test]
fn a_device_that_nobody_can_be_told_of_does_not_stay() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = attach(directory.path(), &["ram:16MiB"]);
    command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let place = format!("/run/plateway-attached/{}", child.id());
    let output = child.wait_with_output().unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the result to standard output"), "{said}");
    assert!(!Path::new(&place).exists());
    // Of one whose file is gone a piece of its path is all that is left.
    wait("there is no device of its file", || {
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let mut files = devices
            .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        files.all(|file| !file.contains(&place) && file.trim() != "/disk")
    });
}

#[test]
fn a_process_that_is_killed_leaves_errors_and_nothing_else() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = Device::of(directory.path(), &["file:a?create=64MiB"]);
    format(&device);
    let mounted = Mounted::of(&device, directory.path());
    fs::write(mounted.0.join("before"), "written").unwrap();
    run(Command::new("sync").arg("--file-system").arg(&mounted.0));
    let mut device = device;
    kill_process(device.pid(), Signal::KILL).unwrap();
    device.child.wait().unwrap();
    // Whoever uses it is told, and waits for nobody.
    let mut file = File::create(mounted.0.join("after")).ok();
    let written =
        file.as_mut().map(|file| file.write_all(&[1; 65536]).and_then(|()| file.sync_all()));
    assert!(written.is_none_or(|written| written.is_err()), "it is durable on nothing");
    drop(file);
    wait("its folder is gone", || !device.place().exists());
    // With the last user the device goes.
    mounted.unmount();
    device.wait_until_gone();
    // What was flushed is there.
    let device = Device::of(directory.path(), &["file:a"]);
    let mounted = Mounted::of(&device, directory.path());
    assert_eq!(fs::read_to_string(mounted.0.join("before")).unwrap(), "written");
    mounted.unmount();
    device.detach();
}

#[test]
fn what_a_process_and_its_keeper_left_is_listed_and_cleared_by_detach() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut device = Device::of(directory.path(), &["ram:16MiB"]);
    // Both are killed, as a service manager does to a whole group.
    kill_process(keeper(&device).unwrap(), Signal::KILL).unwrap();
    kill_process(device.pid(), Signal::KILL).unwrap();
    device.child.wait().unwrap();
    assert!(device.place().exists() && device.backing().is_some(), "it was cleared by somebody");
    let list = run(&mut attach(directory.path(), &["--list"]));
    let name = device.path.display().to_string();
    let line = list.lines().find(|line| line.trim_start().starts_with(&name)).expect("its line");
    assert!(line.contains("is gone: plateway detach clears it"), "{list}");
    let output = detach(&device.path);
    assert!(text(&output.stdout).contains("its process was gone; cleared away"), "{output:?}");
    device.wait_until_gone();
}

#[test]
fn a_keeper_outlives_what_ends_its_group() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut device = Device::of(directory.path(), &["ram:16MiB"]);
    let keeper = keeper(&device).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(keeper, signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    kill_process(device.pid(), Signal::KILL).unwrap();
    device.child.wait().unwrap();
    device.wait_until_gone();
}

/// As the lab does with what ran at an end of a path, in the middle of a trial that is interrupted.
#[test]
fn a_keeper_outlives_who_removes_the_network_namespace_of_its_process() {
    if !can_attach() {
        return;
    }
    const PREFIX: &str = "plateway-attach-test-";
    if let Err(why) = testbed::allowed(PREFIX) {
        return testkit::skipped(why);
    }
    let directory = tempfile::tempdir().unwrap();
    let namespaces = testbed::Namespaces::make(PREFIX, &["near"]).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_plateway"));
    let (near, cpu) = (namespaces.at("near"), reactor::allowed_cpus()[0].to_string());
    let mut command = testbed::process::command_in(None, Some(near), &cpu, program);
    command.env("STATE_DIRECTORY", directory.path().join("state")).args(["attach", "ram:16MiB"]);
    let mut device = Device::by(command, directory.path());
    drop(namespaces);
    assert_eq!(device.child.wait().unwrap().code(), None, "it was killed");
    device.wait_until_gone();
}

/// Who watches over a device.
fn keeper(device: &Device) -> Option<Pid> {
    child_of(&device.child, |words| words.contains(&"--keeper"))
}

#[test]
fn a_keeper_that_is_killed_is_replaced_and_the_new_one_clears_what_is_left() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut device = Device::of(directory.path(), &["ram:16MiB"]);
    let first = keeper(&device).expect("one watches");
    kill_process(first, Signal::KILL).unwrap();
    let file = device.open(0);
    file.write_all_at(&[7; 4096], 0).unwrap();
    file.sync_all().expect("the device goes on");
    drop(file);
    wait("another one watches", || keeper(&device).is_some_and(|other| other != first));
    let log = || fs::read_to_string(directory.path().join("attach.log")).unwrap();
    wait("that is told", || {
        log().contains("ram:16MiB: who watched over it has ended: another one does")
    });
    kill_process(device.pid(), Signal::KILL).unwrap();
    device.child.wait().unwrap();
    device.wait_until_gone();
}

#[test]
fn a_full_run_is_told_and_nothing_stays_there() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all("/run/plateway-attached").unwrap();
    // What lies there is one folder, with a lock, a point to mount at and a record, and a new record beside
    // the old one: each in turn finds no room. The last one finds enough.
    let mut codes = Vec::new();
    for inodes in 2..=8 {
        let mut command = Command::new("unshare");
        let script = format!(
            "mount -t tmpfs -o nr_inodes={inodes} none /run/plateway-attached && \"$@\"; code=$?; \
             ls -A /run/plateway-attached; exit $code"
        );
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(plateway().get_program()).args(["attach", "ram:16MiB"]);
        // Of those that attach it nobody is told, so that they end, too.
        command.current_dir(directory.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("STATE_DIRECTORY", directory.path().join("state"));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut said).unwrap();
        if said.starts_with("/dev/loop") {
            let device = said.split(' ').next().unwrap();
            let own = child_of(&child, |words| words.contains(&"attach")).unwrap();
            kill_process(own, Signal::TERM).unwrap();
            wait("it goes", || {
                let backing = format!("/sys/block/{}/loop/backing_file", &device[5..]);
                fs::read_to_string(backing).is_err()
            });
            said.clear();
        }
        lines.read_to_string(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        assert_eq!(said, "", "{inodes}: something stays there: {why}");
        codes.push(output.status.code().unwrap());
        assert!(
            output.status.success() || why.contains("No space left on device"),
            "{inodes}: {why}"
        );
    }
    assert!(codes.is_sorted_by(|one, next| one >= next), "{codes:?}");
    assert_eq!((codes.first(), codes.last()), (Some(&1), Some(&0)), "{codes:?}");
}

#[test]
fn a_disk_that_is_attached_is_not_attached_again() {
    if !can_attach() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = Device::of(directory.path(), &["file:a?create=16MiB"]);
    let output = attach(directory.path(), &["file:a"]).output().unwrap();
    let why = flat(&output.stderr);
    assert!(output.status.code() == Some(1) && why.contains("in use"), "{why}");
    device.detach();
    Device::of(directory.path(), &["file:a"]).detach();
}
