//! Core links that are narrower than customers' frames need: routers find out by themselves, say with
//! how many bytes, go another way where there is one, and have targets offer less where there is
//! none.

use serde_json::Value;

use crate::common::{Server, flat};
use crate::lan::must;
use crate::routed::{
    Network, SERVED, both_up, pseudowire, round_trip, routers_with, shown, wait_for,
};

const BFD: &str = "interval = \"50ms\", multiplier = 3, revert = \"1s\"";
/// Customers' MTU, and the largest frame: that and a header.
const MTU: u32 = 9000;
const PROMISED: u64 = 9014;
/// An MTU in the core, and the largest frame that it leaves: two labels and a control word are around
/// it.
const NARROW: u32 = 1526;
const FITS: u64 = 1514;

/// A cable of the core takes less from now on.
fn narrow(network: &Network, [a, b]: [&str; 2]) {
    for (end, interface) in [(a, b), (b, a)] {
        must(&format!("-n {} link set {interface} mtu {NARROW}", network.at(end)));
    }
}

/// The largest frames of both paths, as far as is known.
fn frames(one: &Value) -> [Option<u64>; 2] {
    [0, 1].map(|path| one["paths"][path]["frame_bytes"].as_u64())
}

fn said(router: &Server, name: &str, way: &str) -> bool {
    router.log().contains(&format!(
        "pseudowire {name}: its {way} path carries frames of {FITS} bytes at most, not of {PROMISED}"
    ))
}

#[test]
fn a_path_that_is_too_narrow_is_left_for_one_that_carries_all() {
    let Some(network) = Network::make(MTU) else { return };
    narrow(&network, ["lsr1", "lsr2"]);
    let home = tempfile::tempdir().unwrap();
    let routers = routers_with(&network, home.path(), Some(BFD), "");
    let _one = network.serve(home.path(), "serv1", &SERVED);
    for (router, name) in [(&routers[0], "serv1"), (&routers[1], "lx")] {
        let is_found = |one: &Value| both_up(one) && frames(one) == [Some(FITS), Some(PROMISED)];
        wait_for(router, name, "known by both paths", is_found);
        wait_for(router, name, "on its backup", |one| one["active"] == "backup");
        assert!(said(router, name, "primary"), "{}", router.log());
        let table = flat(router.ask(&["route", "show"]).as_bytes());
        assert!(table.contains(&format!("{FITS} of {PROMISED} bytes")), "{table}");
    }
    round_trip(&network, home.path(), "lx", 1);
    assert_eq!(pseudowire(&routers[0], "serv1")["drops"], Value::Object(<_>::default()));
}

#[test]
fn a_path_that_becomes_narrower_while_it_is_up_is_told_of_and_left() {
    let Some(network) = Network::make(MTU) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers_with(&network, home.path(), Some(BFD), "");
    let _one = network.serve(home.path(), "serv1", &SERVED);
    let ends = [(&routers[0], "serv1"), (&routers[1], "lx")];
    let problem = |way: &str| {
        format!("its {way} path carries frames of {FITS} bytes at most, not of {PROMISED}: a link")
    };
    for (router, name) in ends {
        let is_whole = |one: &Value| both_up(one) && frames(one) == [Some(PROMISED); 2];
        wait_for(router, name, "shown to carry all", is_whole);
        let status = router.ask(&["status"]);
        assert!(!status.contains("frames of"), "{status}");
    }
    narrow(&network, ["lsr1", "lsr2"]);
    for (router, name) in ends {
        let is_found = |one: &Value| frames(one) == [Some(FITS), Some(PROMISED)];
        wait_for(router, name, "known to be narrow", is_found);
        let one = wait_for(router, name, "on its backup", |one| one["active"] == "backup");
        assert!(both_up(&one) && said(router, name, "primary"), "{one:#}");
        assert!(!router.log().contains("primary path is down"), "{}", router.log());
        let status = flat(router.ask(&["status"]).as_bytes());
        assert!(
            status.contains(&problem("primary")) && !status.contains("backup path"),
            "{status}"
        );
    }
    round_trip(&network, home.path(), "lx", 1);
}

#[test]
fn targets_offer_what_fits_where_no_path_carries_all() {
    let Some(network) = Network::make(MTU) else { return };
    for cable in [["lsr1", "lsr2"], ["lsr2", "ler3"]] {
        narrow(&network, cable);
    }
    let home = tempfile::tempdir().unwrap();
    let routers = routers_with(&network, home.path(), Some(BFD), "clamp = true");
    let _one = network.serve(home.path(), "serv1", &SERVED);
    for (router, name) in [(&routers[0], "serv1"), (&routers[1], "lx")] {
        let is_found = |one: &Value| both_up(one) && frames(one) == [Some(FITS); 2];
        let seen = wait_for(router, name, "known by both paths", is_found);
        assert_eq!(
            (seen["active"].as_str(), seen["clamp"].as_bool()),
            (Some("primary"), Some(true))
        );
        assert!(said(router, name, "primary") && said(router, name, "backup"), "{}", router.log());
    }
    let lost = |router: &Server| -> u64 {
        let ports = shown(router)["routers"][0]["ports"].clone();
        let ports = ports.as_array().expect("a list");
        ports.iter().filter_map(|port| port["drops"]["over_mtu"].as_u64()).sum()
    };
    round_trip(&network, home.path(), "lx", 2);
    // Probes that did not fit were lost, and nothing else: the target's answers said less than it did.
    let lost: u64 = routers.iter().map(lost).sum();
    let [one, other] = [(0, "serv1"), (1, "lx")].map(|(at, name)| pseudowire(&routers[at], name));
    let count = |one: &Value, key: &str| one[key].as_u64().expect("a number");
    let probes = count(&one, "probes") + count(&other, "probes");
    assert!(lost < probes, "{lost} were lost, and {probes} probes sent");
    assert!(count(&one, "clamped") > 0 && count(&other, "clamped") == 0, "{one:#}");
}
