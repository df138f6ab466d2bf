//! Starts without all disks: what is there is served, what is not is failed, tried again and heals.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::client::Controller;
use crate::common::{Host, Server, configuration};

const V0: (&str, &str) = ("v0", "disks = [\"d0\"]");
const V1: (&str, &str) = ("v1", "disks = [\"d1\"]");

fn make(directory: &Path, name: &str) {
    fs::write(directory.join(name), vec![0; 8 << 20]).unwrap();
}

fn state<'a>(status: &'a Value, kind: &str, name: &str) -> &'a str {
    let all = status[kind].as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name);
    one.and_then(|one| one["state"].as_str()).unwrap_or("none")
}

fn is_ok(volume: &'static str) -> impl Fn(&Value) -> bool {
    move |status| state(status, "volumes", volume) == "ok"
}

/// Of two volumes, the second of a file that is not there.
fn half(directory: &Path) -> (String, Server) {
    let disks = [("d0", "ram:8MiB"), ("d1", "file:d1.img")];
    let config = configuration(&disks, &[V0, V1]);
    let server = Server::configured(directory, &config);
    (config, server)
}

#[test]
fn a_disk_that_is_missing_fails_alone_and_heals_when_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let (config, server) = half(directory.path());
    let status = server.status();
    assert_eq!(state(&status, "disks", "d1"), "failed");
    assert_eq!(state(&status, "volumes", "v1"), "failed");
    assert_eq!(state(&status, "volumes", "v0"), "ok");
    let problem = status["disks"][1]["problem"].as_str().expect("why");
    assert!(problem.contains("d1.img") && server.ask(&["status"]).contains(problem), "{problem}");
    server.wait_for_log("disk d1 failed and is tried again");
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    assert!(controller.queue(1, false).try_read(0).is_success());
    // It was served before and is unchanged in the file.
    assert!(server.check(&config).contains("nothing changes"));
    assert!(server.apply(&config).contains("nothing changes"));
    make(directory.path(), "d1.img");
    server.wait_for("the volume", is_ok("v1"));
    let mut host = Host::reads(&server, "nqn.2026-11.net.plateway:v1");
    server.wait_for("reads", |status| status["volumes"][1]["counters"]["reads"].as_u64() > Some(0));
    host.check();
    assert_eq!(state(&server.status(), "disks", "d1"), "ok");
    assert!(server.apply(&config).contains("nothing changes"));
}

#[test]
fn a_known_file_that_is_not_there_is_not_made_and_fails_alone_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [("d0", "ram:8MiB"), ("d1", "file:d1.img?create=8MiB")];
    let config = configuration(&disks, &[V0, V1]);
    let uuid = |server: &Server| server.status()["volumes"][1]["uuid"].clone();
    let server = Server::configured(directory.path(), &config);
    let first = uuid(&server);
    server.stop();
    let image = |name: &str| directory.path().join(name);
    fs::rename(image("d1.img"), image("kept")).unwrap();
    let server = Server::configured(directory.path(), &config);
    let status = server.status();
    assert_eq!(state(&status, "volumes", "v0"), "ok");
    assert_eq!(state(&status, "volumes", "v1"), "failed");
    let problem = status["disks"][1]["problem"].as_str().expect("why");
    assert!(problem.contains("seen none") && problem.contains("disks accept"), "{problem}");
    assert!(!image("d1.img").exists(), "it was made");
    fs::rename(image("kept"), image("d1.img")).unwrap();
    server.wait_for("the volume", is_ok("v1"));
    assert_eq!(uuid(&server), first);
}

#[test]
fn whatever_became_of_a_file_fails_its_own_volume_alone() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    make(here, "d0.img");
    let disks = [("d0", "file:d0.img"), ("d1", "file:d1.img?create=8MiB")];
    let config = configuration(&disks, &[V0, V1]);
    Server::configured(here, &config).stop();
    let (image, kept) = (here.join("d1.img"), here.join("kept"));
    fs::rename(&image, &kept).unwrap();
    type Became = (fn(&Path), &'static str);
    let became: [Became; 5] = [
        (|path| fs::write(path, vec![0; 4 << 20]).unwrap(), "the file is there and has 4 MiB"),
        (|path| fs::write(path, vec![0; 9 << 20]).unwrap(), "the file is there and has 9 MiB"),
        (|path| fs::write(path, "lost").unwrap(), "a multiple of 512 bytes, seen 4"),
        (|path| fs::write(path, "").unwrap(), "0 bytes; expected one or more blocks"),
        (|path| fs::create_dir(path).unwrap(), "found a directory"),
    ];
    for (become_it, wanted) in became {
        become_it(&image);
        let server = Server::configured(here, &config);
        let status = server.status();
        assert_eq!(state(&status, "volumes", "v0"), "ok");
        assert_eq!(state(&status, "volumes", "v1"), "failed");
        let problem = status["disks"][1]["problem"].as_str().expect("why");
        assert!(problem.contains(wanted), "{problem}");
        match image.is_dir() {
            true => fs::remove_dir(&image).unwrap(),
            false => fs::remove_file(&image).unwrap(),
        }
        fs::rename(&kept, &image).unwrap();
        server.wait_for("the volume", is_ok("v1"));
        server.stop();
        fs::rename(&image, &kept).unwrap();
    }
}

#[test]
fn apply_adds_beside_what_is_failed_takes_it_away_and_makes_it_another() {
    let directory = tempfile::tempdir().unwrap();
    let (config, server) = half(directory.path());
    // Beside it, and on it.
    let more = config.clone()
        + "[[disk]]\nname = \"d2\"\nuri = \"ram:8MiB\"\n[[volume]]\nname = \"v2\"\ndisks = [\"d2\"]\n"
        + "[[export]]\nvolume = \"v1\"\nnvme = { subsystem = \"nqn.2026-11.a:b\", nsid = 1, hosts = \"any\" }\n";
    let done = server.apply(&more);
    assert!(done.contains("+ volume v2") && done.contains("nqn.2026-11.a:b"), "{done}");
    assert_eq!(server.status()["exports"].as_array().map(Vec::len), Some(1));
    // A disk that cannot be opened is refused where it is new; what is failed stays so.
    let refused = server.refuse_apply(&config.replace("d1.img", "d9.img"));
    assert!(refused.contains("d9.img") && refused.contains("undone"), "{refused}");
    assert_eq!(state(&server.status(), "disks", "d1"), "failed");
    assert_eq!(state(&server.status(), "volumes", "v2"), "ok");
    // Another disk in its place.
    server.apply(&config.replace("file:d1.img", "ram:4MiB"));
    let status = server.status();
    assert_eq!(state(&status, "volumes", "v1"), "ok");
    assert_eq!(status["exports"].as_array().map(Vec::len), Some(2));
    server.stop();
    let (_, server) = half(directory.path());
    server.apply(&configuration(&[("d0", "ram:8MiB")], &[V0]));
    make(directory.path(), "d1.img");
    let status = server.status();
    assert_eq!((state(&status, "disks", "d1"), state(&status, "volumes", "v1")), ("none", "none"));
}

#[test]
fn a_set_with_a_member_away_is_not_assembled_and_no_file_is_made_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let set = [("s", "layout = \"stripe\"\ndisks = [\"d0\", \"d1\"]")];
    let made = [("d0", "file:d0.img?create=8MiB"), ("d1", "file:d1.img?create=8MiB")];
    let server = Server::configured(directory.path(), &configuration(&made, &set));
    let uuid = server.uuid();
    server.stop();
    let image = |name: &str| directory.path().join(name);
    for name in ["d0.img", "d1.img"] {
        fs::rename(image(name), image(&format!("{name}.away"))).unwrap();
    }
    let there = [("d0", "file:d0.img"), ("d1", "file:d1.img?create=8MiB")];
    let server = Server::configured(directory.path(), &configuration(&there, &set));
    let status = server.status();
    assert_eq!(
        (state(&status, "disks", "d0"), state(&status, "disks", "d1")),
        ("failed", "failed")
    );
    assert_eq!(state(&status, "volumes", "s"), "failed");
    assert!(!image("d1.img").exists());
    // The first is back: still no file is made where labels say that one is lost.
    fs::rename(image("d0.img.away"), image("d0.img")).unwrap();
    server.wait_for("the first disk", |status| state(status, "disks", "d0") == "ok");
    server.ask(&["disks", "reopen", "d1"]);
    assert_eq!(state(&server.status(), "volumes", "s"), "failed");
    assert!(!image("d1.img").exists());
    fs::rename(image("d1.img.away"), image("d1.img")).unwrap();
    let said = server.ask(&["disks", "reopen", "d1"]);
    assert!(said.contains("disk d1 is there"), "{said}");
    server.wait_for("the set", is_ok("s"));
    assert_eq!(server.uuid(), uuid);
}

#[test]
fn no_file_is_made_for_a_set_whose_other_member_cannot_be_asked() {
    let directory = tempfile::tempdir().unwrap();
    let remote = format!("nvme+tcp://127.0.0.1:{}/nqn.2026-11.net.plateway:v0/1", port());
    let disks = [("x", remote.as_str()), ("y", "file:y.img?create=8MiB")];
    let set = [("s", "layout = \"stripe\"\ndisks = [\"x\", \"y\"]")];
    let server = Server::configured(directory.path(), &configuration(&disks, &set));
    let status = server.status();
    assert_eq!((state(&status, "disks", "x"), state(&status, "disks", "y")), ("failed", "failed"));
    assert!(!directory.path().join("y.img").exists());
}

#[test]
fn a_required_disk_ends_a_start_and_so_does_one_that_was_typed() {
    let directory = tempfile::tempdir().unwrap();
    let config = configuration(&[("d0", "file:no.img")], &[V0]);
    let config = config.replace("no.img\"", "no.img\"\nrequired = true");
    let log = Server::try_configured(directory.path(), &config, &[]).err().expect("it is required");
    assert!(log.contains("no.img"), "{log}");
    let log = Server::try_start(directory.path(), "typed", &["file:no.img"]).err();
    assert!(log.is_some_and(|log| log.contains("no.img")));
}

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server of `d0` at a port, which also has what another one at `remote` exports as its `v0`.
fn importing(directory: &Path, port: u16, remote: u16) -> String {
    let uri = format!("nvme+tcp://127.0.0.1:{remote}/nqn.2026-11.net.plateway:v0/1");
    fs::create_dir_all(directory).unwrap();
    let config = configuration(&[("d0", "ram:8MiB"), ("d1", &uri)], &[V0, V1]);
    config.replace("127.0.0.1:0\"", &format!("127.0.0.1:{port}\""))
}

#[test]
fn two_servers_that_import_from_each_other_start() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    let (at_a, at_b) = (port(), port());
    let first = Server::configured(&a, &importing(&a, at_a, at_b));
    assert_eq!(state(&first.status(), "volumes", "v1"), "failed");
    let second = Server::configured(&b, &importing(&b, at_b, at_a));
    second.wait_for("its import", is_ok("v1"));
    first.ask(&["disks", "reopen", "d1"]);
    first.wait_for("its import", is_ok("v1"));
    // Each lets go of the other's disk while it ends, whoever is first.
    first.stop_by(rustix::process::Signal::TERM);
    drop(second);
}

#[test]
fn a_remote_disk_is_reached_while_the_server_answers_changes_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    // It takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = silent.local_addr().unwrap().port();
    let config = importing(directory.path(), 0, remote);
    let server = Server::configured(directory.path(), &config);
    let said = server.ask(&["disks", "reopen", "d1"]);
    assert!(said.contains("is being reached"), "{said}");
    // Twice is once.
    assert!(server.ask(&["disks", "reopen", "d1"]).contains("is being reached"));
    let more = config.clone() + "[[disk]]\nname = \"d2\"\nuri = \"ram:8MiB\"\n";
    assert!(server.apply(&more).contains("+ disk d2"));
    assert_eq!(state(&server.status(), "disks", "d1"), "failed");
    // It goes while it is being reached, and comes again.
    server.apply(&configuration(&[("d0", "ram:8MiB")], &[V0]).replace(
        "[[listener]]\nnvme = \"127.0.0.1:0\"",
        config[..config.find("[[disk]]").unwrap()].trim_end(),
    ));
    assert_eq!(state(&server.status(), "disks", "d1"), "none");
    let refused = server.refuse_apply(&config);
    assert!(refused.contains("disk d1"), "{refused}");
    server.stop();
    // Stopped while it is being reached.
    let server = Server::configured(directory.path(), &config);
    server.ask(&["disks", "reopen", "d1"]);
    server.stop();
}

#[test]
fn a_damaged_label_keeps_its_own_set_dark_and_no_other_volume() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    let disks = [
        ("a", "file:a.img?create=8MiB"),
        ("b", "file:b.img?create=8MiB"),
        ("d0", "file:d0.img?create=8MiB"),
    ];
    let volumes = [("s", "layout = \"stripe\"\ndisks = [\"a\", \"b\"]"), V0];
    let config = configuration(&disks, &volumes);
    let server = Server::configured(here, &config);
    let uuid = server.uuid();
    server.stop();
    let b = here.join("b.img");
    let whole = fs::read(&b).unwrap();
    let mut damaged = whole.clone();
    for at in [0, 65_536] {
        damaged[at + 100] ^= 0xff;
    }
    for (bytes, seen) in [(&damaged, "a damaged label"), (&vec![0; whole.len()], "a blank disk")] {
        fs::write(&b, bytes).unwrap();
        let server = Server::configured(here, &config);
        let status = server.status();
        assert_eq!(state(&status, "volumes", "v0"), "ok");
        assert_eq!(state(&status, "volumes", "s"), "failed");
        server.wait_for_log(seen);
        assert!(server.check(&config).contains("nothing changes"));
        assert_eq!(&fs::read(&b).unwrap(), bytes, "nothing is written to it");
        fs::write(&b, &whole).unwrap();
        server.wait_for("the set", is_ok("s"));
        let status = server.status();
        let all = status["volumes"].as_array().unwrap();
        let set = all.iter().find(|one| one["name"] == "s").unwrap();
        assert_eq!(set["uuid"], uuid.as_str());
        server.stop();
    }
}

#[test]
fn remote_disks_of_a_start_are_reached_side_by_side_and_hold_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    // Targets that take a connection and say nothing.
    let targets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let uri = |target: &TcpListener| {
        format!("nvme+tcp://{}/nqn.2026-11.net.plateway:far/1", target.local_addr().unwrap())
    };
    let (far, further) = (uri(&targets[0]), uri(&targets[1]));
    let disks = [("far", far.as_str()), ("further", &further), ("near", "ram:8MiB")];
    let volumes = [
        ("v0", "disks = [\"far\"]"),
        ("v1", "disks = [\"further\"]"),
        ("v2", "disks = [\"near\"]"),
    ];
    let config = configuration(&disks, &volumes);
    let began = thread::spawn({
        let (here, config) = (here.to_owned(), config.clone());
        move || Server::configured(&here, &config)
    });
    let (mut first, _) = targets[0].accept().unwrap();
    let (_second, _) = targets[1].accept().unwrap();
    // The first is still waited for when the second is asked.
    first.set_nonblocking(true).unwrap();
    let mut greeting = [0; 512];
    let ended = loop {
        match first.read(&mut greeting) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    assert!(!ended, "the first was given up before the second was asked");
    let server = began.join().expect("it starts");
    let status = server.status();
    let states = ["v0", "v1", "v2"].map(|name| state(&status, "volumes", name));
    assert_eq!(states, ["failed", "failed", "ok"]);
    let log = server.wait_for_log("not reached yet, trying for 10 s");
    let said = log.matches("failed and is tried again").count();
    assert!(said <= 2, "each disk once: {log}");
    for disk in ["disk far failed and is tried again", "disk further failed and is tried again"] {
        server.wait_for_log(disk);
    }
    server.stop();
}

#[test]
fn how_a_failed_disk_is_polled_changes_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let (config, server) = half(directory.path());
    let other = config.replacen("d1.img\"\n", "d1.img\"\npoll = \"never\"\n", 1);
    let done = server.apply(&other);
    assert!(done.contains("~ disk d1: poll auto -> never"), "{done}");
    assert!(server.apply(&other).contains("nothing changes"));
    assert_eq!(state(&server.status(), "disks", "d1"), "failed");
    make(directory.path(), "d1.img");
    server.wait_for("the volume", is_ok("v1"));
    assert!(server.apply(&other).contains("nothing changes"));
    // In place, and under whoever reads it.
    let mut host = Host::reads(&server, "nqn.2026-11.net.plateway:v1");
    let done = server.apply(&config);
    assert!(done.contains("~ disk d1: poll never -> auto"), "{done}");
    host.check();
}
