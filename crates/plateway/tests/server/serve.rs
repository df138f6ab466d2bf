//! `plateway serve` from the outside: how it starts, what it refuses, how it ends, and what it is
//! known by afterwards.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::client::Controller;
use crate::common::{HANG, Server, configuration, own_configuration, plateway, text, write};
use rustix::process::{Pid, Signal, kill_process};
use wire::nvme::Command;
use wire::nvme::log::LogId;

#[test]
fn a_server_says_what_it_serves_and_ends_cleanly() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:8MiB");
    let status = server.status();
    assert_eq!(status["exports"][0]["subsystem"], "nqn.2026-11.net.plateway:v0");
    assert_eq!(status["volumes"][0]["bytes"], 8 << 20);
    assert_eq!(status["listeners"][0]["addresses"][0], server.address.as_str());
    assert_eq!(status["memory"]["budget_bytes"], 64 << 20);
    assert_eq!(status["memory"]["pool_used_bytes"], 0);
    server.wait_for_log("driver: ");
    assert!(server.ask(&["status"]).contains("nqn.2026-11.net.plateway:v0"));
    assert!(server.ask(&["disks", "list"]).contains("ram:8MiB"));
}

#[test]
fn both_drivers_serve_and_say_why_they_were_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["ram:8MiB", "--nvme", "127.0.0.1:0", "--driver", "epoll"];
    let server = Server::start(directory.path(), "a", &args);
    server.wait_for_log("driver: epoll (as asked for)");
    assert_eq!(server.status()["driver"], "epoll");
    server.stop();
    let config = "[server]\ndriver = \"io_uring\"\n";
    for flags in [&[][..], &["--driver", "io_uring"], &["--driver", "auto"]] {
        match Server::try_configured(directory.path(), config, flags) {
            Ok(server) if !flags.contains(&"auto") => {
                server.wait_for_log("driver: io_uring (as asked for)");
            }
            Ok(server) => assert_ne!(server.status()["driver"], ""),
            // Not every kernel lets us.
            Err(said) => assert!(said.contains("io_uring"), "{said}"),
        }
    }
}

#[test]
fn the_control_socket_is_for_the_group_that_is_named_and_for_nobody_else() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("a.sock");
    let server = Server::configured(home.path(), "");
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    server.stop();
    // Root may give it to any group, others to their own.
    let is_root = rustix::process::geteuid().is_root();
    let own = rustix::process::getegid().as_raw();
    let groups = fs::read_to_string("/etc/group").unwrap();
    let group = groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|group| {
        let number: u32 = group.get(2)?.parse().ok()?;
        ((number == own) != is_root).then(|| (group[0].to_owned(), number))
    });
    let (name, number) = group.expect("a group");
    let config = |name: &str| format!("[server]\ncontrol_group = \"{name}\"\n");
    let server = Server::configured(home.path(), &config(&name));
    let seen = fs::metadata(&socket).unwrap();
    assert_eq!((seen.mode() & 0o777, seen.gid()), (0o660, number));
    server.ask(&["status"]);
    server.stop();
    let refused = Server::try_configured(home.path(), &config("no-such-group"), &[]).err().unwrap();
    assert!(refused.contains("no-such-group: expected a group of this machine"), "{refused}");
}

#[test]
fn an_interrupt_ends_it_as_cleanly_as_a_termination() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:8MiB");
    server.stop_by(Signal::INT);
}

#[test]
fn a_mistake_is_shown_at_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let config = "[server]\nmemmory = \"64MiB\"\n";
    let log = Server::try_configured(directory.path(), config, &[]).err().unwrap();
    assert!(log.contains("memmory") && log.contains("memory"), "{log}");
    assert!(log.contains(":2:"), "{log}");
}

#[test]
fn two_servers_on_a_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Server::of(directory.path(), "a", "file:a.img?create=8MiB");
    let second = Server::try_start(directory.path(), "b", &["file:a.img"]).err().unwrap();
    assert!(second.contains("in use by another server"), "{second}");
}

#[test]
fn two_servers_on_a_control_socket_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Server::of(directory.path(), "a", "ram:8MiB");
    let log = directory.path().join("a.log");
    let before = fs::read_to_string(&log).unwrap();
    let second = Server::try_start(directory.path(), "a", &["ram:8MiB"]).err().unwrap();
    assert!(second.contains("control socket"), "{second}");
    assert!(!before.contains("another one"));
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way_of_the_next() {
    let directory = tempfile::tempdir().unwrap();
    Server::of(directory.path(), "a", "file:a.img?create=8MiB").kill();
    Server::of(directory.path(), "a", "file:a.img?create=8MiB");
}

#[test]
fn a_restart_keeps_the_identity_of_a_file_and_never_that_of_memory() {
    let directory = tempfile::tempdir().unwrap();
    let uuid = |disk: &str| {
        let server = Server::of(directory.path(), "a", disk);
        server.uuid()
    };
    let file = uuid("file:a.img?create=8MiB");
    assert_eq!(uuid("file:a.img?create=8MiB"), file);
    assert_eq!(uuid("delay:1,file:a.img"), file);
    fs::remove_file(directory.path().join("a.img")).unwrap();
    let uri = "file:a.img?create=8MiB";
    let state = directory.path().join("state");
    let accept = ["disks", "accept", uri, "--new", "--state"];
    let accept = plateway().current_dir(directory.path()).args(accept).arg(state).output().unwrap();
    assert!(accept.status.success(), "{accept:?}");
    assert_ne!(uuid(uri), file);
    assert_ne!(uuid("ram:8MiB"), uuid("ram:8MiB"));
}

#[test]
fn a_stripe_is_known_by_its_labels_and_swapped_members_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [("a", "file:a.img?create=8MiB"), ("b", "file:b.img?create=8MiB")];
    let serve = |members: &str, chunk: &str| {
        let layout = format!("layout = \"stripe\"\ndisks = {members}\nchunk = \"{chunk}\"");
        Server::try_configured(directory.path(), &configuration(&disks, &[("s", &layout)]), &[])
    };
    let first = serve(r#"["a", "b"]"#, "64KiB").unwrap_or_else(|log| panic!("{log}"));
    let uuid = first.uuid();
    // A MiB of each member is its label's.
    assert_eq!(first.status()["volumes"][0]["bytes"], 14 << 20);
    first.stop();
    let swapped = serve(r#"["b", "a"]"#, "64KiB").err().unwrap();
    assert!(swapped.contains("index 0") && swapped.contains("index 1"), "{swapped}");
    let other = serve(r#"["a", "b"]"#, "128KiB").err().unwrap();
    assert!(other.contains("131072") && other.contains("65536"), "{other}");
    let again = serve(r#"["a", "b"]"#, "64KiB").unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(again.uuid(), uuid);
}

#[test]
fn data_that_nobody_labelled_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.img");
    let mut bytes = vec![0; 8 << 20];
    *bytes.last_mut().unwrap() = 1;
    fs::write(&path, &bytes).unwrap();
    let disks = [("a", "file:a.img?create=8MiB"), ("b", "file:b.img")];
    let config = configuration(&disks, &[("s", "layout = \"concat\"\ndisks = [\"a\", \"b\"]")]);
    let log = Server::try_configured(directory.path(), &config, &[]).err().unwrap();
    assert!(log.contains("other data"), "{log}");
    assert!(fs::read(&path).unwrap() == bytes, "the disk was touched");
}

/// The most bytes of memory that a process had at once.
fn resident_max(pid: rustix::process::Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_host_that_asks_and_does_not_read_costs_little_and_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:8MiB");
    let address = server.address.parse().unwrap();
    let mut greedy = Controller::connect(address, 1, 1);
    let before = resident_max(server.pid());
    let log = Command::get_log(LogId::COMMAND_EFFECTS, 0, 0, 1 << 20, true);
    // What is sent here fits the sockets' buffers; what is asked for is 3 GiB.
    greedy.flood(log, 3000, 64, 1 << 20);
    let grown = resident_max(server.pid()) - before;
    assert!(grown < 16 << 20, "the server grew by {grown} bytes");
    Controller::connect(address, 2, 1);
    let log = directory.path().join("a.log");
    server.stop();
    let said = fs::read_to_string(log).unwrap();
    assert!(!said.contains("seen none"), "it does not stop in order: {said}");
}

/// How often the threads of a process went to sleep so far.
fn sleeps(pid: rustix::process::Pid) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let of = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.flatten().filter_map(of).sum()
}

#[test]
fn an_idle_server_does_not_wake_up() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:8MiB");
    let until = Instant::now() + HANG;
    loop {
        let before = sleeps(server.pid());
        // Not to wait for something, but to give it the time in which it must not wake up.
        std::thread::sleep(Duration::from_millis(500));
        if sleeps(server.pid()) == before {
            break;
        }
        assert!(Instant::now() < until, "an idle server wakes up in every half second");
    }
}

#[test]
fn a_signal_ends_a_start_that_waits_for_a_remote_disk() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let nvme = format!("nvme+tcp://{address}/nqn.2026-11.net.plateway:v0/1");
    let iscsi = format!("iscsi://{address}/iqn.2026-11.net.plateway:v0/0");
    for uri in [nvme, iscsi] {
        for required in [false, true] {
            let config = own_configuration(here, &[("far", &uri)], &[("v0", "disks = [\"far\"]")]);
            let name = "name = \"far\"\n";
            let config = config.replace(name, &format!("{name}required = {required}\n"));
            let (config, log) = (write(here, &config), here.join("log"));
            let mut command = plateway();
            command.current_dir(here).args(["serve", "--config", &config]);
            command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
            let child = command.spawn().unwrap();
            let (said, until) = (|| fs::read_to_string(&log).unwrap(), Instant::now() + HANG);
            while !said().contains("not reached yet") {
                assert!(Instant::now() < until, "{}", said());
                std::thread::sleep(Duration::from_millis(20));
            }
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", said());
            // Had it waited, the disk were failed by now, and the rest served.
            assert_eq!(text(&output.stdout), "");
            assert!(said().contains("stopped while it started"), "{}", said());
            assert!(!said().contains("failed"), "{}", said());
            assert!(!here.join("own.sock").exists());
        }
    }
}
