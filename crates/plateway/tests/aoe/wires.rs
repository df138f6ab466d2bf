//! More than one wire: several interfaces to one export, AF_XDP in place of packet sockets, and an
//! address that is served twice on one LAN.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Server, write};
use crate::lan::{INTERFACE, Lan};
use crate::{MIB, bytes, file};

/// A volume of 16 MiB that is exported on `interfaces` (the inside of an array), and more tables
/// before the export's.
fn config(interfaces: &str, more: &str) -> String {
    format!(
        "[[disk]]\nname = \"d0\"\nuri = \"ram:16MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n{more}\
         [[export]]\nvolume = \"v0\"\n\
         aoe = {{ interface = [{interfaces}], shelf = 7, slot = 0, hosts = \"any\", buffers = 1024 }}\n"
    )
}

/// Copies a file to a target and back, and compares.
fn there_and_back(lan: &Lan, home: &std::path::Path, target: &str) {
    let written = bytes(3, 16 * MIB);
    fs::write(home.join("written"), &written).unwrap();
    lan.run(&lan.initiator, &["copy", &file(home, "written"), target, "--overwrite"]);
    let read = file(home, "read?create=16MiB");
    lan.run(&lan.initiator, &["copy", target, &read, "--overwrite"]);
    assert!(fs::read(home.join("read")).unwrap() == written, "what came back from {target}");
}

/// What each link has received.
fn received(status: &Value) -> Vec<u64> {
    let links = status["links"].as_array().expect("links");
    links.iter().map(|link| link["received"].as_u64().expect("a number")).collect()
}

#[test]
fn two_interfaces_carry_one_export_and_one_is_enough() {
    let Some(lan) = Lan::make("9000") else { return };
    lan.add_cable("veth1");
    let home = tempfile::tempdir().unwrap();
    let path = write(home.path(), &config("\"veth0\", \"veth1\"", ""));
    let server = lan.serve(home.path(), &["--config", &path]);
    let both = format!("aoe://{INTERFACE},veth1/7.0");
    there_and_back(&lan, home.path(), &both);
    let before = received(&server.status());
    assert!(before.len() == 2 && before.iter().all(|count| *count > 200), "{before:?}");
    // More is promised than a ring holds, and status says so.
    let shown = server.ask(&["status"]);
    let promise = "interface veth1: the buffers of its exports are 1024 commands";
    assert!(shown.replace('\n', " ").contains(promise), "{shown}");
    // One cable is pulled: the other carries everything.
    lan.pull(INTERFACE);
    let line = ["--rw", "randrw=50", "--time", "1", "--verify", "--overwrite"];
    let said = lan.run(&lan.initiator, &[&["bench", &both][..], &line].concat());
    assert!(said.contains(" 0 wrong"), "{said}");
    let after = received(&server.status());
    assert!(after[1] > before[1] + 1000, "{before:?}, then {after:?}");
}

#[test]
fn an_interface_is_served_by_af_xdp_where_the_configuration_says_so() {
    for mtu in ["1500", "9000"] {
        let Some(lan) = Lan::make(mtu) else { return };
        let home = tempfile::tempdir().unwrap();
        let listener = "[[listener]]\naoe = \"veth0\"\nlink = \"xdp\"\n";
        let path = write(home.path(), &config("\"veth0\"", listener));
        let command = lan.plateway(&lan.target);
        let server = match Server::try_start_by(command, home.path(), "xdp", &["--config", &path]) {
            Ok(server) => server,
            Err(why)
                if ["CAP_BPF", "this kernel has no AF_XDP"].iter().any(|no| why.contains(no)) =>
            {
                testkit::skipped(why);
                return;
            }
            Err(why) => panic!("MTU {mtu}: {why}"),
        };
        assert_eq!(server.status()["links"][0]["method"].as_str(), Some("xdp"));
        there_and_back(&lan, home.path(), &format!("aoe://{INTERFACE}/7.0"));
        // Its queues are taken.
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        let command = lan.plateway(&lan.target);
        let refused = Server::try_start_by(command, &other, "twin", &["--config", &path]);
        let refused = refused.err().expect("two programs have one queue");
        for words in ["link veth0: ", "has an XDP program already", "use packet sockets for one"] {
            assert!(refused.contains(words), "{refused}");
        }
        server.stop();
        let listener = listener.replace("xdp", "packet");
        let path = write(home.path(), &config("\"veth0\"", &listener));
        let server = lan.serve(home.path(), &["--config", &path]);
        assert_eq!(server.status()["links"][0]["method"].as_str(), Some("packet ring"));
    }
}

#[test]
fn a_server_without_the_right_to_raw_ethernet_says_which() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    // Root of a user namespace of its own has no rights over a network that is another's.
    let plateway = lan.plateway(&lan.target);
    let within: Vec<_> = plateway.get_args().collect();
    let (namespace, program) = within.split_at(within.len() - 1);
    let mut command = Command::new("ip");
    command.args(namespace).args(["unshare", "--map-root-user"]).args(program);
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    let args = ["null:4MiB", "--aoe", "veth0/7.0", "--hosts", "any"];
    let said = Server::try_start_by(command, home.path(), "a", &args).err().expect("it starts");
    assert!(said.contains("link veth0") && said.contains("CAP_NET_RAW"), "{said}");
}

#[test]
fn an_address_that_another_station_announces_is_told() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = lan.serve(home.path(), &["null:4MiB", "--aoe", "veth0/7.0", "--hosts", "any"]);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let args = ["null:4MiB", "--aoe", "veth0/7.0", "--hosts", "any"];
    let _twin = Server::try_start_by(lan.plateway(&lan.initiator), &other, "twin", &args)
        .unwrap_or_else(|log| panic!("{log}"));
    server.wait_for_log("7.0 is served here and announced by 02:00:00:00:00:02 on veth0");
}

#[test]
fn a_station_that_is_refused_and_a_link_that_goes_and_comes_are_logged() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let hosts = ["--hosts", "02:00:00:00:00:77"];
    let args = [&["null:4MiB", "--aoe", "veth0/7.0"][..], &hosts].concat();
    let server = lan.serve(home.path(), &args);
    let mut asks = lan.plateway(&lan.initiator);
    asks.args(["bench", "aoe://veth0/7.0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut asks = asks.spawn().unwrap();
    let refused = "host 02:00:00:00:00:02 at veth0 was refused: it is not among the hosts of 7.0; \
                   to let it in, add \"02:00:00:00:00:02\" to them";
    let log = server.wait_for_log(refused);
    assert_eq!(log.matches("was refused").count(), 1, "{log}");
    asks.kill().unwrap();
    asks.wait().unwrap();
    lan.set("down");
    server.wait_for_log(" WARN link veth0 is down");
    lan.set("up");
    server.wait_for_log(" INFO link veth0 is up again");
    // One that is closed is no news.
    server.apply_anyway("[[disk]]\nname = \"d9\"\nuri = \"ram:1MiB\"\n");
    let log = server.log();
    assert_eq!(log.matches("is down").count(), 1, "{log}");
}

#[test]
fn check_says_that_a_port_of_a_bridge_hears_nothing() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let path = write(home.path(), &config("\"veth0\"", ""));
    let check =
        || lan.run(&lan.target, &["check", &path]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!check().contains("bridge"), "{}", check());
    lan.bridge("br7");
    assert!(check().contains("a port of the bridge br7"), "{}", check());
}
