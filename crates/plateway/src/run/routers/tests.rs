//! Routers that run without an interface: tables alone, each order of a change failing once.

use super::super::tests::{apply_with_failures, args, yes};
use super::sight::on_link;
use super::tables::made_mac;
use crate::run::Running;

/// A router of two labels that end here.
fn tables(more: &str) -> String {
    format!(
        "[[router]]\nname = \"r\"\nquarantine = \"60s\"\n[[ilm]]\nlabel = 300\npop = true\n{more}"
    )
}

#[test]
fn every_order_of_a_change_of_tables_may_fail_and_leaves_what_was() {
    let directory = tempfile::tempdir().unwrap();
    let first = args(directory.path(), &tables("[[ilm]]\nlabel = 301\nfec = \"t\"\npop = true\n"));
    let (mut running, _) = Running::start(&first, &[]).unwrap();
    assert_eq!(running.args(), first);
    let second = tables("[[ilm]]\nlabel = 302\npop = true\n[[router]]\nname = \"s\"\n[[ilm]]\nlabel = 300\nrouter = \"s\"\npop = true\n")
        .replace("60s", "0s")
        .replace("[[ilm]]\nlabel = 30", "[[ilm]]\nrouter = \"r\"\nlabel = 30")
        .replace("router = \"r\"\nlabel = 300\nrouter = \"s\"", "label = 300\nrouter = \"s\"");
    let second = args(directory.path(), &second);
    assert!(apply_with_failures(&mut running, &second) > 3);
    // Label 301 was taken away under no quarantine, so that it may come back as another's.
    assert!(apply_with_failures(&mut running, &first) > 3);
    assert_eq!(running.shut_down(), [""; 0]);
}

#[test]
fn a_label_waits_for_the_quarantine_before_it_is_for_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let with = |fec: &str| {
        let fec = format!("[[ilm]]\nlabel = 301\nfec = \"{fec}\"\npop = true\n");
        args(directory.path(), &tables(&fec))
    };
    let without = args(directory.path(), &tables(""));
    let (mut running, _) = Running::start(&with("one"), &[]).unwrap();
    let said = running.apply(&with("two"), &yes()).unwrap_err().to_string();
    assert!(said.contains("label 301 of router r is for fec one"), "{said}");
    running.apply(&without, &yes()).unwrap();
    let said = running.apply(&with("two"), &yes()).unwrap_err().to_string();
    let wait = "label 301 was that of ilm 301 of r a moment ago";
    assert!(said.contains(wait) && said.contains("apply it again in "), "{said}");
    assert_eq!(running.args(), without);
    // As `check` says it, before anything is done.
    let said = running.difference(&with("two")).unwrap_err().to_string();
    assert!(said.starts_with("ilm 301 of r: ") && said.contains(wait), "{said}");
    let statuses = running.router_statuses().unwrap();
    let shown = statuses[0].text();
    assert!(shown.contains("withdrawn") && shown.contains("ilm 301 of r"), "{shown}");
    // Whoever had it has it back at once, and a moment later it is nobody else's again.
    running.apply(&with("one"), &yes()).unwrap();
    assert!(running.apply(&with("one"), &yes()).unwrap().steps.is_empty());
    assert_eq!(running.shut_down(), [""; 0]);
}

#[test]
fn a_label_whose_order_failed_may_be_ordered_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (mut running, _) = Running::start(&args(directory.path(), &tables("")), &[]).unwrap();
    let more = args(directory.path(), &tables("[[ilm]]\nlabel = 301\npop = true\n"));
    assert!(apply_with_failures(&mut running, &more) > 0);
    assert_eq!(running.shut_down(), [""; 0]);
}

#[test]
fn an_interface_that_is_not_there_is_told_by_its_circuit() {
    let directory = tempfile::tempdir().unwrap();
    let none = tables("[[circuit]]\nname = \"serv1\"\nethernet = \"none0\"\n");
    let Err(error) = Running::start(&args(directory.path(), &none), &[]) else {
        panic!("there is no such interface")
    };
    let said = error.line();
    assert!(said.starts_with("circuit serv1: ") && said.contains("ip -br link"), "{said}");
}

#[test]
fn the_address_on_a_pseudowire_is_of_one_station_and_stays() {
    let mac = |router, name| made_mac(&[7; 16], router, name);
    assert_eq!(mac("r", "p"), mac("r", "p"));
    assert_ne!(mac("r", "p"), mac("r", "q"));
    assert_ne!(mac("rp", ""), mac("r", "p"));
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert!(!mac("r", name).is_group() && mac("r", name).0[0] & 2 == 2);
    }
}

#[test]
fn a_next_hop_has_an_address_in_a_network_of_its_interface_that_is_another_host_s() {
    // Every machine has these networks there.
    let said = |address: &str| match on_link("lo", address.parse().unwrap()) {
        Ok(()) => String::new(),
        Err(error) => error.line(),
    };
    assert_eq!(said("127.0.0.9"), "");
    let none = said("192.0.2.9");
    assert!(none.starts_with("it is in no network of lo, which has 127.0.0.1/8"), "{none}");
    assert!(said("2001:db8::9").contains("has an address of IPv6 in one of them"));
    assert!(said("127.0.0.1").starts_with("it is this host's own on lo"));
    for all in ["127.255.255.255", "127.0.0.0"] {
        assert!(said(all).starts_with("it is that of all hosts of 127.0.0.1/8"), "{all}");
    }
    let said = on_link("none", "192.0.2.9".parse().unwrap()).unwrap_err().line();
    assert!(said.starts_with("it is in no network of none, which has no address"), "{said}");
}
