//! Routers on real interfaces: what is found of these before anything runs, and a volume that is
//! reached by a pseudowire which ends in the process that serves it.

use std::time::Instant;

use serde_json::Value;

use crate::common::{HANG, Server, write};
use crate::lan::{Lan, TARGET, ip, must};

/// A port, and a label that comes back to it for ever.
fn circle() -> String {
    format!(
        "[[link]]\nethernet = \"veth0\"\nmpls = true\n\
         [[ilm]]\nlabel = 200\nlink = \"veth0\"\nnext_hop = \"{TARGET}\"\nlabels = [200]\n"
    )
}

#[test]
fn a_circle_is_refused_wherever_it_comes_from() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let words = "packets go in a circle: ilm 200 -> ilm 200";
    let path = write(home.path(), &circle());
    let said = lan.refuse(&lan.target, &["route", "check", &path]);
    assert!(said.contains(words) && said.contains("or pop it"), "{said}");
    let Err(said) =
        Server::try_start_by(lan.plateway(&lan.target), home.path(), "a", &["--config", &path])
    else {
        panic!("it goes in a circle")
    };
    assert!(said.contains(words), "{said}");
    let port = circle().split("[[ilm]]").next().expect("a port").to_owned();
    let path = write(home.path(), &port);
    let server = lan.serve(home.path(), &["--config", &path]);
    let said = server.refuse_apply(&circle());
    assert!(said.contains(words), "{said}");
    server.stop();
}

#[test]
fn a_host_that_lives_on_a_circuit_s_interface_is_told() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    must(&format!("-n {} address add 192.0.2.1/24 dev veth0", lan.target));
    let path = write(home.path(), "[[circuit]]\nname = \"serv1\"\nethernet = \"veth0\"\n");
    let command = &mut lan.plateway(&lan.target);
    let output = command.args(["route", "check", &path]).output().expect("it runs");
    let said = crate::common::flat(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the host has 192.0.2.1 on veth0"), "{said}");
    let shown = crate::common::text(&output.stdout);
    assert!(shown.contains("ports of routers") && shown.contains("circuit"), "{shown}");
    // The host's IPv6 there goes while frames are forwarded.
    let server = lan.serve(home.path(), &["--config", &path]);
    let log = server.wait_for_log("while frames are sent on from there");
    assert!(log.contains("circuit serv1"), "{log}");
    let link = &server.status()["links"][0];
    assert_eq!((&link["used_for"], &link["uses"]), (&"routers".into(), &1.into()));
    server.stop();
}

#[test]
fn a_circuit_takes_no_addresses_of_ipv6_away_and_shares_no_bridge_unsaid() {
    let Some(lan) = Lan::make("1500") else { return };
    let home = tempfile::tempdir().unwrap();
    let path = write(home.path(), "[[circuit]]\nname = \"serv1\"\nethernet = \"veth0\"\n");
    lan.bridge("br0");
    let output = lan.plateway(&lan.target).args(["route", "check", &path]).output().unwrap();
    let said = crate::common::flat(&output.stderr);
    assert!(said.contains("veth0 is a port of the bridge br0"), "{said}");
    let address = format!("-n {} -6 address add fd00::1/64 dev veth0 nodad", lan.target);
    if let Err(why) = ip(&address) {
        return testkit::skipped(format_args!("no IPv6: {why}"));
    }
    let said = lan.refuse(&lan.target, &["route", "check", &path]);
    assert!(said.contains("the host has fd00::1 on veth0"), "{said}");
    assert!(said.contains("ip -6 address flush dev veth0"), "{said}");
    let Err(said) =
        Server::try_start_by(lan.plateway(&lan.target), home.path(), "a", &["--config", &path])
    else {
        panic!("it takes an address away")
    };
    assert!(said.contains("circuit serv1: the host has fd00::1"), "{said}");
    let shown = must(&format!("-n {} -6 address show dev veth0", lan.target));
    assert!(shown.contains("fd00::1"), "{shown}");
}

#[test]
fn a_volume_is_exported_on_a_pseudowire_that_ends_here() {
    let Some(lan) = Lan::make("9000") else { return };
    let home = tempfile::tempdir().unwrap();
    let carried = "[[link]]\nethernet = \"veth0\"\nmpls = true\n\
        [[lsp]]\nname = \"a\"\nlink = \"veth0\"\nnext_hop = \"02:00:00:00:00:02\"\nlabels = [100]\n\
        [[ilm]]\nlabel = 300\npop = true\n\
        [[pseudowire]]\nname = \"p\"\nlabel_in = 1001\nlabel_out = 2001\nlsp = \"a\"\n\
        from = { link = \"veth0\", tunnel = 300 }\n\
        [[disk]]\nname = \"d0\"\nuri = \"ram:4MiB\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n";
    let export = "[[export]]\nvolume = \"v0\"\naoe = { link = \"pw:p\", shelf = 7, slot = 0, hosts = \"any\" }\n";
    let path = write(home.path(), &(carried.to_owned() + export));
    let server = lan.serve(home.path(), &["--config", &path]);
    let until = Instant::now() + HANG;
    let port = loop {
        let shown: Value = serde_json::from_str(&server.ask(&["route", "show", "--json"])).unwrap();
        let ports = shown["routers"][0]["ports"].as_array().expect("ports").clone();
        let port = ports.into_iter().find(|port| port["name"] == "pw:p").expect("it is there");
        if port["up"] == true {
            break port;
        }
        assert!(Instant::now() < until, "{port:#}");
    };
    assert_eq!(port["kind"], "here");
    // Two labels, a control word and the header inside.
    assert_eq!(port["mtu"], 9000 - 2 * 4 - 4 - 14);
    // It has announced itself there.
    let status = server.status();
    let export = &status["aoe_exports"][0];
    assert_eq!((&export["volume"], &export["interfaces"][0]), (&"v0".into(), &"pw:p".into()));
    assert!(server.ask(&["route", "show"]).contains("this process"));
    let said =
        server.apply_anyway(&carried.replace("mpls = true", "mpls = true\nexplicit_null = true"));
    assert!(said.contains("- export v0") && said.contains("~ port veth0"), "{said}");
    assert!(!said.contains("pseudowire"), "{said}");
    server.stop();
}
