//! What each command says to a mistake: which object, what was expected, what was seen, and what to
//! type next.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::common::{Server, configuration, flat, plateway};

/// Runs a command that must fail, and looks for words in what it says.
fn says(directory: &Path, args: &[&str], code: i32, words: &[&str]) {
    let output = plateway().current_dir(directory).args(args).output().unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: no {word:?} in: {said}");
    }
}

#[test]
fn a_configuration_that_is_not_there_is_said_once_with_where_to_find_one() {
    let directory = tempfile::tempdir().unwrap();
    for command in
        [&["check", "no.toml"][..], &["apply", "no.toml"], &["serve", "--config", "no.toml"]]
    {
        let output = plateway().current_dir(directory.path()).args(command).output().unwrap();
        let said = flat(&output.stderr);
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
        assert!(said.contains("no.toml") && said.contains("docs/configuration.md"), "{said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named_by_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for command in [&["status"][..], &["disks", "list"], &["disks", "reopen", "d0"]] {
        let args = [command, &["--control", "no.sock"]].concat();
        says(here, &args, 1, &["no server answers on the control socket no.sock", "--control"]);
    }
}

#[test]
fn a_server_is_found_by_its_configuration_from_any_folder() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let socket = format!("[server]\ncontrol = \"{}\"\n", here.join("a.sock").display());
    let config = socket + &configuration(&[("d0", "ram:8MiB")], &[("v0", "disks = [\"d0\"]")]);
    let server = Server::configured(here, &config);
    let file = here.join("plateway.toml").display().to_string();
    for command in [&["status"][..], &["disks", "list"], &["config"]] {
        let asked = plateway().current_dir("/").args(command).args(["--config", &file]).output();
        let asked = asked.unwrap();
        assert!(asked.status.success(), "{}", flat(&asked.stderr));
        assert!(flat(&asked.stdout).contains("d0"), "{}", flat(&asked.stdout));
    }
    // Who names the socket means it.
    says(here, &["status", "--config", &file, "--control", "no.sock"], 1, &["no.sock"]);
    says(here, &["status", "--config", "no.toml"], 1, &["no.toml", "No such file"]);
    server.stop();
}

#[test]
fn a_target_that_refuses_and_a_host_that_needs_no_name_are_told_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let config = configuration(&[("d0", "ram:8MiB")], &[("v0", "disks = [\"d0\"]")]);
    let server = Server::configured(here, &config);
    let address = &server.address;
    let disk = format!("nvme+tcp://{address}/nqn.2026-11.net.plateway:none/1");
    let asks = format!(
        "plateway discover nvme+tcp://{address} shows whether a target answers there, and what it has for us"
    );
    let hosts = "its export needs among its hosts";
    says(here, &["bench", &disk], 1, &[&asks, "we ask as nqn.", hosts]);
    for change in ["add", "remove"] {
        let refused = server.refuse(&["host", change, "v0", "nqn.2026-11.a:b"]);
        let words = "volume v0: any host may use it already: to choose hosts, name them";
        assert!(refused.contains(words), "{refused}");
    }
    server.stop();
}

#[test]
fn disks_and_targets_that_cannot_be_had_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::create_dir(here.join("folder")).unwrap();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let own = ["--control", "c.sock", "--state", "state", "--memory", "64MiB"];
    let serve = |disk: &str, at: &str, words: &[&str]| {
        let args = [&["serve", disk, "--nvme", at, "--hosts", "any"], &own[..]].concat();
        says(here, &args, 1, words);
    };
    let any = "127.0.0.1:0";
    serve("ramm:8MiB", any, &["did you mean ram?"]);
    serve("file:no.img", any, &["disk d0", "no.img: cannot open it", "file:PATH?create=SIZE"]);
    serve("file:no/a.img?create=1MiB", any, &["disk d0", "no/a.img", "mkdir -p"]);
    serve("/dev/no-such-disk", any, &["disk d0", "lsblk -p"]);
    serve("file:folder", any, &["disk d0", "expected", "found a directory"]);
    serve("ram:1MiB", &address, &["listener", "cannot listen at", "ss -ltnp"]);
    serve("ram:1MiB", "127.0.0.1", &["expected a colon and a port", "command line:1:"]);
    serve("delay:1,volume:v", any, &["a volume cannot be a disk", "name the disks of that volume"]);
    let accept = ["disks", "accept", "ram:1MiB"];
    says(
        here,
        &accept,
        1,
        &["disk ram:1MiB: expected a file or a block device", "nothing to accept"],
    );
    says(here, &["bench", "file:no.img"], 1, &["no.img", "create=SIZE"]);
    says(here, &["bench", "ramm:1MiB"], 2, &["did you mean ram?"]);
    says(
        here,
        &["bench", "volume:v"],
        1,
        &["expected the configuration", "--config plateway.toml"],
    );
    says(here, &["copy", "ram:2MiB", "ram:1MiB"], 1, &["too small", "create=SIZE"]);
    says(here, &["discover", "127.0.0.1"], 2, &["write nvme+tcp://127.0.0.1:4420"]);
    says(here, &["dissect", "no.pcap"], 1, &["no.pcap", "tcpdump"]);
    says(here, &["sim", "--plant", "x"], 1, &["expected one of drops-flush"]);
}

#[test]
fn a_target_that_nobody_serves_is_told_with_where_to_look() {
    let directory = tempfile::tempdir().unwrap();
    // Held by a socket that does not listen, so nobody answers there and nobody takes it.
    let held = bound_only();
    let target = format!("nvme+tcp://{}", held.1);
    says(
        directory.path(),
        &["discover", &target],
        1,
        &["discovery at", &held.1.to_string(), "no connection", "Connection refused", "ss -ltn"],
    );
}

#[test]
fn memory_that_cannot_be_had_ends_a_start_with_how_much_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let serve = ["serve", "ram:1MiB", "--nvme", "127.0.0.1:0", "--hosts", "any"];
    let own = ["--control", "c.sock", "--state", "state", "--shards", "0", "--memory"];
    let with = |memory| [&serve[..], &own, &[memory]].concat();
    says(
        here,
        &with("2TiB"),
        1,
        &["cannot start the shards", " do not fit: pools and disks in memory use "],
    );
    // Of a process that may have less than the least that is reserved.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 1000000; exec \"$0\" \"$@\""]).arg(plateway().get_program());
    let output = limited.args(with("64MiB")).current_dir(here).env("NO_COLOR", "1").output();
    let output = output.unwrap();
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["cannot reserve memory: the system refused 1 GiB of address space", "ulimit -v"] {
        assert!(said.contains(words), "{said}");
    }
}

/// A TCP socket that is bound to a port of its own and not listened at, with its address.
fn bound_only() -> (rustix::fd::OwnedFd, std::net::SocketAddr) {
    use rustix::net::{AddressFamily, SocketType};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    rustix::net::bind(&socket, &any).unwrap();
    let bound = rustix::net::getsockname(&socket).unwrap();
    (socket, bound.try_into().unwrap())
}

#[test]
fn what_is_refused_for_good_is_asked_for_once() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let named = "nqn.2026-11.net.plateway:somebody";
    let server = Server::start(here, "a", &["ram:1MiB", "--nvme", "127.0.0.1:0", "--hosts", named]);
    let disk =
        |rest: &str| format!("nvme+tcp://{}/nqn.2026-11.net.plateway:{rest}", server.address);
    let refused = |rest: &str, words: &[&str]| says(here, &["bench", &disk(rest)], 1, words);
    refused("v0/1", &["connect invalid host"]);
    refused("v7/1", &["connect invalid parameters"]);
    let told_once = |server: &Server, line: &str| {
        server.wait_for_log(line);
        assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
    };
    told_once(&server, "is not among the hosts");
    told_once(&server, "v7 is not exported");

    let second = here.join("b");
    fs::create_dir(&second).unwrap();
    let open = Server::of(&second, "b", "ram:1MiB");
    let disk = format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/7", open.address);
    says(here, &["bench", &disk], 1, &["namespace 7: there is none"]);
    told_once(&open, "connected to nqn.2026-11.net.plateway:v0");
}
