//! `plateway apply`, `check` and SIGHUP: changes beside a host that is connected, changes that are
//! refused, and changes that fail half-way.

use crate::client::Controller;
use crate::common::{Host, Server, configuration, write};
use rustix::process::Signal;
use serde_json::Value;

const V0: &str = "nqn.2026-11.net.plateway:v0";

fn names(status: &Value, what: &str) -> Vec<String> {
    let all = status[what].as_array().expect("a list").iter();
    all.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn ready(status: &Value) -> bool {
    let controllers = status["controllers"].as_array().expect("a list");
    controllers.iter().any(|one| one["state"] == "ready" && one["queues"].as_u64() > Some(0))
}

#[test]
fn volumes_come_and_go_beside_a_host_that_notices_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [("d0", "ram:8MiB"), ("d1", "ram:8MiB"), ("d2", "ram:8MiB")];
    let v0 = ("v0", "disks = [\"d0\"]");
    let v1 = ("v1", "layout = \"stripe\"\ndisks = [\"d1\", \"d2\"]");
    let server = Server::configured(directory.path(), &configuration(&disks[..1], &[v0]));
    let mut host = Host::reads(&server, V0);
    let before = server.wait_for("the host", ready);

    let wanted = configuration(&disks, &[v0, v1]);
    let shown = server.check(&wanted);
    assert!(shown.contains("+ volume v1: stripe over d1 d2"), "{shown}");
    assert_eq!(names(&server.status(), "volumes"), ["v0"]);
    let done = server.apply(&wanted);
    assert!(done.contains("+ export v1") && done.contains("applied"), "{done}");
    let status = server.status();
    assert_eq!(names(&status, "volumes"), ["v0", "v1"]);
    drop(Host::reads(&server, "nqn.2026-11.net.plateway:v1"));
    assert!(server.apply(&wanted).contains("nothing changes"));

    // The other host may not have left yet.
    let done = server.apply_anyway(&configuration(&disks[..1], &[v0]));
    assert!(done.contains("- volume v1") && done.contains("- disk d2"), "{done}");
    let status = server.wait_for("the host alone", |status| {
        status["controllers"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(names(&status, "disks"), ["d0"]);
    assert_eq!(status["controllers"][0]["controller"], before["controllers"][0]["controller"]);
    assert_eq!(status["controllers"][0]["peer"], before["controllers"][0]["peer"]);
    host.check();
    let reads = status["volumes"][0]["counters"]["reads"].as_u64();
    server.wait_for("more reads", |status| {
        status["volumes"][0]["counters"]["reads"].as_u64() > reads
    });
    host.check();
    drop(host);
}

#[test]
fn a_volume_that_is_read_is_removed_once_nothing_of_it_is_below() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [("d0", "delay:2000,ram:8MiB")];
    let server =
        Server::configured(directory.path(), &configuration(&disks, &[("v0", "disks = [\"d0\"]")]));
    let host = Host::reads(&server, V0);
    server.wait_for("reads", |status| status["volumes"][0]["counters"]["reads"].as_u64() > Some(0));
    let done = server.apply_anyway(&configuration(&[], &[]));
    assert!(done.contains("- export v0") && done.contains("- disk d0"), "{done}");
    drop(host);
    let status = server.wait_for("no memory in use", |status| {
        status["connections"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(status["memory"]["pool_used_bytes"], 0);
    assert!(names(&status, "disks").is_empty());
}

#[test]
fn what_is_in_use_is_taken_away_only_from_those_who_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let v0 = ("v0", "disks = [\"d0\"]");
    let good = configuration(&[("d0", "ram:8MiB")], &[v0]);
    let path = write(directory.path(), &good);
    let name =
        std::path::Path::new(&path).file_name().and_then(|name| name.to_str()).expect("a name");
    let server = Server::start(directory.path(), "a", &["--config", name]);
    let controller = Controller::connect(server.address.parse().unwrap(), 7, 1);
    let mut queue = controller.queue(1, false);
    let host = "host nqn.2026-11.net.plateway:host-7 at 127.0.0.1:";
    let shut = good.replace("\"any\"", "[\"nqn.2026-11.a:b\"]");
    let open = good.replace("\"any\"", "[\"nqn.2026-11.net.plateway:host-7\"]");
    let moved = good.replace("127.0.0.1:0", "localhost:0");
    let renewed = good.replace("uri = \"ram:8MiB\"", "uri = \"null:8MiB\"");
    let empty = configuration(&[], &[]);
    for (wanted, seen) in
        [(&empty, host), (&shut, host), (&renewed, host), (&moved, "connection of 127.0.0.1:")]
    {
        let shown = server.check(wanted);
        assert!(shown.contains("--yes") && shown.contains(seen), "{shown}");
        let refused = server.refuse_apply(wanted);
        assert!(refused.contains(seen) && refused.contains("nothing was done"), "{refused}");
        assert!(refused.contains("to have it: plateway apply "), "{refused}");
        assert_eq!(refused.contains("--allow-empty"), wanted == &empty, "{refused}");
    }
    // The one does not stand for the other, and a signal can say neither.
    let file = write(directory.path(), &empty);
    assert!(server.refuse(&["apply", &file, "--yes"]).contains("no export is left"));
    assert!(server.refuse(&["apply", &file, "--allow-empty"]).contains(host));
    server.signal(Signal::HUP);
    let log = server.wait_for_log("--yes --allow-empty");
    assert!(log.contains("was not applied") && log.contains(host), "{log}");
    // Whoever reads the log stands elsewhere.
    assert!(log.contains(&format!("plateway apply {path} --control /")), "{log}");
    assert!(queue.try_read(0).is_success());
    // Who stays notices nothing, and nobody is asked.
    server.apply(&open);
    assert!(queue.try_read(0).is_success());
    let done = server.ask(&["apply", &write(directory.path(), &empty), "--yes", "--allow-empty"]);
    assert!(done.contains("applied"), "{done}");
    // There is nothing left to take.
    assert!(server.apply(&empty).contains("nothing changes"));
}

#[test]
fn a_start_without_exports_serves_none_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::configured(directory.path(), "[[listener]]\nnvme = \"127.0.0.1:0\"\n");
    assert_eq!(server.status()["exports"].as_array().map(Vec::len), Some(0));
    server.wait_for_log("nothing is exported");
}

#[test]
fn a_step_that_fails_is_undone_with_those_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let v0 = ("v0", "disks = [\"d0\"]");
    let good = configuration(&[("d0", "ram:8MiB")], &[v0]);
    let server = Server::configured(directory.path(), &good);
    let disks = [("d0", "ram:8MiB"), ("d1", "file:new.img?create=8MiB"), ("d2", "file:no.img")];
    let volumes = [v0, ("v1", "disks = [\"d1\"]"), ("v2", "disks = [\"d2\"]")];
    let refused = server.refuse_apply(&configuration(&disks, &volumes));
    assert!(refused.contains("no.img") && refused.contains("undone"), "{refused}");
    let status = server.status();
    assert_eq!(names(&status, "disks"), ["d0"]);
    assert_eq!(names(&status, "volumes"), ["v0"]);
    // The file was let go of: it can be had again.
    server.apply(&configuration(&disks[..2], &volumes[..2]));
    assert_eq!(names(&server.status(), "volumes"), ["v0", "v1"]);
}

#[test]
fn what_takes_a_restart_or_loses_data_is_refused_and_nothing_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let v0 = ("v0", "disks = [\"d0\"]");
    let server = Server::configured(directory.path(), &configuration(&[("d0", "ram:8MiB")], &[v0]));
    let refused = server.refuse_apply(&configuration(&[("d0", "ram:16MiB")], &[v0]));
    assert!(refused.contains("without losing its data"), "{refused}");
    let more =
        format!("[server]\nmax_connections = 7\n{}", configuration(&[("d0", "ram:8MiB")], &[v0]));
    let refused = server.refuse_apply(&more);
    assert!(refused.contains("max_connections") && refused.contains("restart"), "{refused}");
    let refused = server.refuse_apply("[[disk]]\nname = \"d0\"\nuri = \"rum:8MiB\"\n");
    assert!(refused.contains("plateway.toml:3:"), "{refused}");
    assert_eq!(server.status()["disks"][0]["bytes"], 8 << 20);
}

#[test]
fn a_disk_that_grows_takes_its_volume_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let v0 = ("v0", "disks = [\"d0\"]");
    let config = |uri| configuration(&[("d0", uri)], &[v0]);
    let server = Server::configured(directory.path(), &config("file:a.img?create=8MiB"));
    let uuid = server.uuid();
    let larger = config("file:a.img?create=16MiB");
    let shown = server.check(&larger);
    let steps = ["~ resize disk d0: size ", "~ resize volume v0: size follows its disks"];
    assert!(steps.iter().all(|step| shown.contains(step)), "{shown}");
    let done = server.apply(&larger);
    assert!(steps.iter().all(|step| done.contains(step)), "{done}");
    assert_eq!(server.status()["volumes"][0]["bytes"], 16 << 20);
    // From outside, as an administrator would grow a device.
    let file =
        std::fs::OpenOptions::new().write(true).open(directory.path().join("a.img")).unwrap();
    file.set_len(32 << 20).unwrap();
    let step = "~ resize disk d0: size 16 MiB -> 32 MiB, as it is now";
    let shown = server.check(&larger);
    assert!(shown.contains(step) && shown.contains("write create=32MiB"), "{shown}");
    assert_eq!(server.status()["volumes"][0]["bytes"], 16 << 20, "check changed it");
    let done = server.apply(&larger);
    assert!(done.contains(step), "{done}");
    assert_eq!(server.status()["volumes"][0]["bytes"], 32 << 20);
    let done = server.apply(&larger);
    assert!(done.contains("nothing changes"), "{done}");
    assert_eq!(server.uuid(), uuid);
}

#[test]
fn sighup_reads_the_configuration_again_with_the_same_flags() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &configuration(&[], &[]));
    let server = Server::start(directory.path(), "a", &["--config", &path, "--poll-us", "3"]);
    write(directory.path(), &configuration(&[("n", "null:1GiB")], &[("v0", "disks = [\"n\"]")]));
    server.signal(Signal::HUP);
    let status = server.wait_for("the volume", |status| names(status, "volumes") == ["v0"]);
    assert_eq!(status["listeners"][0]["poll"], "3us");
    write(directory.path(), "nonsense");
    server.signal(Signal::HUP);
    write(directory.path(), &configuration(&[("n", "null:2GiB")], &[("v0", "disks = [\"n\"]")]));
    server.signal(Signal::HUP);
    server.wait_for("the resized volume", |status| status["volumes"][0]["bytes"] == 2u64 << 30);
}

#[test]
fn a_listener_that_changes_keeps_its_sessions_and_never_closes() {
    let directory = tempfile::tempdir().unwrap();
    let config = |more: &str| {
        let plain = configuration(&[("d0", "ram:8MiB")], &[("v0", "disks = [\"d0\"]")]);
        plain.replace("127.0.0.1:0\"\n", &format!("127.0.0.1:0\"\n{more}\n"))
    };
    let server = Server::configured(directory.path(), &config(""));
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    let before = server.status();
    let done = server.apply(&config("poll_us = 50"));
    assert!(done.contains("poll auto -> 50us"), "{done}");
    assert!(queue.try_read(0).is_success());
    let status = server.status();
    assert_eq!(status["listeners"][0]["poll"], "50us");
    assert_eq!(status["listeners"][0]["connections"], 2);
    assert_eq!(status["connections"], before["connections"]);
    assert_eq!(status["controllers"], before["controllers"]);
    // The socket is the same one, with the new bound: two of two are taken.
    server.apply(&config("poll_us = 0\nmax_connections = 2"));
    let mut refused = std::net::TcpStream::connect(&server.address).unwrap();
    assert_eq!(std::io::Read::read(&mut refused, &mut [0]).unwrap_or(0), 0);
    assert!(queue.try_read(0).is_success());
}

#[test]
fn how_shards_poll_is_said_once_for_all_and_changes_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let config = |poll: &str| {
        let disks = [("d0", "file:d0.img?create=8MiB")];
        let plain = configuration(&disks, &[("v0", "disks = [\"d0\"]")]);
        let plain = plain.replace("create=8MiB\"\n", &format!("create=8MiB\"\n{poll}"));
        plain.replace("127.0.0.1:0\"\n", &format!("127.0.0.1:0\"\n{poll}"))
    };
    let path = write(directory.path(), &config(""));
    let server = Server::start(directory.path(), "a", &["--config", &path, "--poll", "never"]);
    let poll = |status: &Value| status["listeners"][0]["poll"].clone();
    assert_eq!(poll(&server.status()), "never");
    let controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let mut queue = controller.queue(1, false);
    assert!(queue.try_read(0).is_success());
    let looks = |status: &Value| {
        status["work"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["looks"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(looks(&server.status()), 0);
    write(directory.path(), &config("poll = \"7us\"\n"));
    server.signal(Signal::HUP);
    server.wait_for("the other way to poll", |status| poll(status) == "7us");
    // The disk stays, and so does who uses it.
    for _ in 0..8 {
        assert!(queue.try_read(0).is_success());
    }
    assert!(looks(&server.status()) > 0);
    let shown = server.ask(&["status"]);
    assert!(shown.contains("looked first"), "{shown}");
}

#[test]
fn a_listener_changes_and_moves() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        |address: &str, more: &str| format!("[[listener]]\nnvme = \"{address}\"\n{more}\n");
    let server = Server::configured(directory.path(), &config("127.0.0.1:0", ""));
    server.apply(&config("127.0.0.1:0", "poll_us = 5\nmax_connections = 9"));
    let status = server.status();
    assert_eq!(status["listeners"][0]["connections_max"], 9);
    assert_eq!(status["listeners"][0]["addresses"][0], server.address.as_str());
    server.apply(&config("localhost:0", ""));
    assert!(std::net::TcpStream::connect(&server.address).is_err());
}

#[test]
fn a_volume_may_lie_on_disks_of_another_server() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [("x", "file:x.img?create=8MiB"), ("y", "file:y.img?create=8MiB")];
    let volumes = [("v0", "disks = [\"x\"]"), ("v1", "disks = [\"y\"]")];
    let folder = directory.path().join("below");
    std::fs::create_dir(&folder).unwrap();
    let below = Server::configured(&folder, &configuration(&disks, &volumes));
    let remote = |n: u32| format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v{n}/1", below.address);
    let (x, y) = (remote(0), remote(1));
    let disks = [("x", x.as_str()), ("y", y.as_str())];
    let volume = ("s", "layout = \"stripe\"\ndisks = [\"x\", \"y\"]");
    let config = configuration(&disks, &[volume]);
    let above = Server::configured(directory.path(), &config);
    let uuid = above.uuid();
    assert_eq!(above.status()["volumes"][0]["bytes"], 14 << 20);
    let mut host = Host::reads(&above, "nqn.2026-11.net.plateway:s");
    above.wait_for("reads", |status| status["volumes"][0]["counters"]["reads"].as_u64() > Some(9));
    host.check();
    drop(host);
    above.stop();
    let above = Server::configured(directory.path(), &config);
    assert_eq!(above.uuid(), uuid);
}

#[test]
fn one_value_is_changed_by_the_steps_of_apply() {
    let directory = tempfile::tempdir().unwrap();
    let config = "[[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
        [[export]]\nvolume = \"v0\"\nnvme = { subsystem = \"nqn.2026-11.a:v0\", nsid = 1, hosts = [] }\n";
    let server = Server::configured(directory.path(), &configuration(&[], &[]));
    let config = configuration(&[], &[]) + config;
    server.apply(&config);
    let done = server.ask(&["volume", "resize", "v0", "4MiB"]);
    assert!(done.contains("~ resize volume v0: size all of its disks -> 4 MiB"), "{done}");
    assert_eq!(server.status()["volumes"][0]["bytes"], 4 << 20);
    let host = "nqn.2026-11.net.plateway:me";
    let done = server.ask(&["host", "add", "v0", host]);
    assert!(done.contains(&format!("hosts none -> {host}")), "{done}");
    let shown = server.ask(&["config"]);
    assert!(shown.contains(host) && shown.contains("size = \"4MiB\""), "{shown}");
    // What runs is not what the file says, and that is what check shows.
    assert!(server.check(&config).contains(&format!("hosts {host} -> none")));
    let done = server.ask(&["host", "remove", "v0", host]);
    assert!(done.contains(&format!("hosts {host} -> none")), "{done}");
    let done = server.ask(&["volume", "resize", "v0", "all"]);
    assert!(done.contains("4 MiB -> all of its disks"), "{done}");
    assert_eq!(server.status()["volumes"][0]["bytes"], 8 << 20);
}

#[test]
fn a_host_that_is_connected_is_removed_by_the_line_that_the_refusal_has() {
    let directory = tempfile::tempdir().unwrap();
    let config = configuration(&[("d0", "ram:8MiB")], &[("v0", "disks = [\"d0\"]")]);
    let config = config.replace("hosts = \"any\"", "hosts = []");
    let server = Server::configured(directory.path(), &config);
    let host = "nqn.2026-11.net.plateway:host-1";
    server.ask(&["host", "add", "v0", host]);
    let _controller = Controller::connect(server.address.parse().unwrap(), 1, 1);
    let refused = server.refuse(&["host", "remove", "v0", host]);
    assert!(refused.contains(&format!("to have it: plateway host remove v0 {host}")), "{refused}");
    assert!(refused.contains("--yes"), "{refused}");
    server.ask(&["host", "remove", "v0", host, "--yes"]);
    assert!(!server.ask(&["config"]).contains(host));
}
