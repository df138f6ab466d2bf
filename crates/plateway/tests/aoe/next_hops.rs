//! Next hops by addresses of IP: the kernel finds them, and where one is elsewhere, or nowhere, is
//! followed while a customer writes and reads back.
//!
//! ```text
//!   serv1 --- ler1 --- lsr1 --- ler2 --- lx      10.0.1.1 to 10.0.1.2, fe80::1 to fe80::2
//!                \--- lsr2 ---/                   the way around
//! ```

use std::process::Child;

use serde_json::Value;

use crate::common::{Server, flat, text, write};
use crate::lan::{must, wait_until};
use crate::routed::{Network, SERVED, address, load, round_trip, shown};

/// The first router of the way there, as ler1 sees it, and where it moves.
pub(crate) const THERE: &str = "10.0.1.2";
const MOVED: &str = "02:00:00:00:00:77";

/// The interfaces between routers have these addresses.
pub(crate) fn number(network: &Network) {
    for (router, interface, address) in [
        ("ler1", "lsr1", "10.0.1.1/24"),
        ("lsr1", "ler1", "10.0.1.2/24"),
        ("lsr1", "ler2", "fe80::1/64"),
        ("ler2", "lsr1", "fe80::2/64"),
    ] {
        let at = network.at(router);
        let nodad = if address.starts_with("fe80") { "nodad" } else { "" };
        must(&format!("-n {at} addr add {address} dev {interface} {nodad}"));
    }
}

fn link(name: &str) -> String {
    format!("[[link]]\nethernet = \"{name}\"\nmpls = true\n")
}

fn ilm(label: u32, [from, to]: [&str; 2], next_hop: &str, labels: [u32; 1]) -> String {
    format!(
        "[[ilm]]\nlabel = {label}\nfrom = \"{from}\"\nlink = \"{to}\"\nnext_hop = \"{next_hop}\"\nlabels = {labels:?}\n"
    )
}

/// The near edge, whose path goes to this next hop, with more keys.
fn near(next_hop: &str, more: &str) -> String {
    link("lsr1")
        + &link("lsr2")
        + "[[circuit]]\nethernet = \"serv1\"\n[[ilm]]\nlabel = 113\npop = true\n"
        + &format!(
            "[[lsp]]\nname = \"to-lx\"\nlink = \"lsr1\"\nnext_hop = \"{next_hop}\"\nlabels = [101]\n{more}"
        )
        + "[[pseudowire]]\nname = \"one\"\ncircuit = \"serv1\"\nlabel_in = 1001\nlabel_out = 1002\n\
           lsp = \"to-lx\"\nfrom = { link = \"lsr1\", tunnel = 113 }\n"
}

/// The way around the first router.
fn around() -> String {
    let next_hop = address("lsr2", "ler1");
    format!("backup = {{ link = \"lsr2\", next_hop = \"{next_hop}\", labels = [201] }}\n")
}

/// All routers but the near edge. What goes back there goes to its address of Ethernet, so that
/// nobody but the near edge asks on its cable.
fn others(network: &Network, home: &std::path::Path) -> Vec<Server> {
    let far = link("lsr1")
        + &link("lsr2")
        + "[[circuit]]\nethernet = \"lx\"\n\
           [[ilm]]\nlabel = 103\npop = true\n[[ilm]]\nlabel = 203\npop = true\n\
           [[lsp]]\nname = \"to-serv1\"\nlink = \"lsr1\"\nnext_hop = \"fe80::1\"\nlabels = [111]\n\
           [[pseudowire]]\nname = \"one\"\ncircuit = \"lx\"\nlabel_in = 1002\nlabel_out = 1001\n\
           lsp = \"to-serv1\"\n\
           from = [{ link = \"lsr1\", tunnel = 103 }, { link = \"lsr2\", tunnel = 203 }]\n";
    let first = link("ler1")
        + &link("ler2")
        + &ilm(101, ["ler1", "ler2"], "fe80::2", [103])
        + &ilm(111, ["ler2", "ler1"], &address("ler1", "lsr1"), [113]);
    let second =
        link("ler1") + &link("ler2") + &ilm(201, ["ler1", "ler2"], &address("ler2", "lsr2"), [203]);
    let all = [("ler2", far), ("lsr1", first), ("lsr2", second)];
    all.map(|(name, config)| network.router(home, name, &config)).into()
}

/// The path of the near edge.
fn path(router: &Server) -> Value {
    shown(router)["routers"][0]["paths"][0].clone()
}

fn is_at(router: &Server, mac: &str) -> bool {
    path(router)["next_hop_mac"] == mac
}

/// Frames of the customer's that went nowhere since nobody knew where the next hop is.
fn unresolved(router: &Server) -> u64 {
    let ports = shown(router)["routers"][0]["ports"].as_array().expect("a list").clone();
    let port = ports.into_iter().find(|one| one["name"] == "serv1").expect("it is there");
    port["drops"]["unresolved"].as_u64().unwrap_or(0)
}

fn ended_well(load: Child) {
    let output = load.wait_with_output().expect("it ends");
    let said = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.success() && said.0.contains(" 0 wrong"), "{said:?}");
}

/// The first router moves, and says so to all on the link.
pub(crate) fn move_it(network: &Network) {
    let at = network.at("lsr1");
    must(&format!("netns exec {at} sysctl -qw net.ipv4.conf.ler1.arp_notify=1"));
    must(&format!("-n {at} link set ler1 address {MOVED}"));
}

/// Has an interface of the first router answer for its address or not.
pub(crate) fn answer(network: &Network, does: bool) {
    let (at, word) = (network.at("lsr1"), if does { 0 } else { 8 });
    must(&format!("netns exec {at} sysctl -qw net.ipv4.conf.ler1.arp_ignore={word}"));
}

#[test]
fn a_next_hop_that_moves_is_followed_in_mid_write_and_one_that_is_lost_is_found_again() {
    let Some(network) = Network::make(1500) else { return };
    number(&network);
    let home = tempfile::tempdir().unwrap();
    let _others = others(&network, home.path());
    let ler1 = network.at("ler1");
    let was = address("lsr1", "ler1");
    let router = network.router(home.path(), "ler1", &near(&was, ""));
    let _target = network.serve(home.path(), "serv1", &SERVED);
    round_trip(&network, home.path(), "lx", 1);
    let load = load(&network, "lx", 20);
    wait_until("it runs", || path(&router)["packets"].as_u64() > Some(5_000));

    // The same station by its address of IP, and nothing is lost on the way.
    let said = router.apply(&near(THERE, ""));
    let step = format!("~ lsp to-lx: next_hop {was} -> {THERE}");
    assert!(flat(said.as_bytes()).contains(&step), "{said}");
    let one = path(&router);
    assert_eq!((&one["next_hop"], &one["next_hop_mac"]), (&THERE.into(), &was.clone().into()));
    assert_eq!((unresolved(&router), &one["up"]), (0, &true.into()));

    move_it(&network);
    wait_until("it is followed", || is_at(&router, MOVED));
    let before = path(&router)["packets"].as_u64();
    wait_until("it goes on", || path(&router)["packets"].as_u64() > before.map(|was| was + 1_000));
    router.wait_for_log(&format!("next hop {THERE} on lsr1 is at {MOVED} now, and was at {was}"));

    // What a person writes into the table is followed as well, and left as it is.
    must(&format!("-n {ler1} neigh replace {THERE} lladdr {was} dev lsr1 nud permanent"));
    wait_until("it is followed", || is_at(&router, &was));
    must(&format!("-n {ler1} neigh replace {THERE} lladdr {MOVED} dev lsr1 nud permanent"));
    wait_until("it is followed", || is_at(&router, MOVED));
    assert!(must(&format!("-n {ler1} neigh show")).contains("PERMANENT"));
    assert_eq!(unresolved(&router), 0);

    // Nobody answers for it.
    answer(&network, false);
    must(&format!("-n {ler1} neigh del {THERE} dev lsr1"));
    wait_until("it is dropped", || unresolved(&router) > 0);
    let why = format!(
        "next hop {THERE} on lsr1 is not resolved (nobody answers for it, as the kernel's neighbour table has it)"
    );
    router.wait_for_log(&format!("{why}: what goes there is dropped, or takes its backup"));
    let one = path(&router);
    assert_eq!((&one["next_hop_mac"], &one["up"]), (&Value::Null, &false.into()), "{one:#}");
    let wire = crate::routed::pseudowire(&router, "one");
    assert_eq!(wire["state"], "its primary path is not resolved", "{wire:#}");
    let hop = format!("next hop {THERE} on lsr1 is not resolved (");
    for shown in [router.ask(&["route", "show"]), router.ask(&["status"])] {
        assert!(shown.contains("problems\n") && shown.contains(&hop), "{shown}");
    }
    let status = router.status();
    assert!(status["routers"][0]["problems"][0].as_str().expect("a line").starts_with(&hop));
    // However often it is asked for, it is told once.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(router.log().matches(&hop).count(), 1, "{}", router.log());

    answer(&network, true);
    wait_until("it is found again", || is_at(&router, MOVED));
    router.wait_for_log(&format!("next hop {THERE} on lsr1 is resolved: it is at {MOVED}"));
    ended_well(load);
    assert_eq!(router.status()["routers"][0]["problems"], Value::Array(Vec::new()));
    round_trip(&network, home.path(), "lx", 2);
}

#[test]
fn what_goes_to_a_next_hop_that_is_lost_goes_around_it_and_back() {
    let Some(network) = Network::make(1500) else { return };
    number(&network);
    let home = tempfile::tempdir().unwrap();
    let _others = others(&network, home.path());
    let ler1 = network.at("ler1");
    let router = network.router(home.path(), "ler1", &near(THERE, &around()));
    let _target = network.serve(home.path(), "serv1", &SERVED);
    round_trip(&network, home.path(), "lx", 1);
    let takes = |way: &str| path(&router)["takes"] == way;
    assert!(takes("primary"));
    let load = load(&network, "lx", 12);
    wait_until("it runs", || path(&router)["packets"].as_u64() > Some(5_000));
    answer(&network, false);
    must(&format!("-n {ler1} neigh del {THERE} dev lsr1"));
    wait_until("it goes around", || takes("backup"));
    answer(&network, true);
    wait_until("it goes back", || takes("primary"));
    // An entry that is flushed is asked for at once, and is no news.
    let before = router.log().len();
    must(&format!("-n {ler1} neigh flush dev lsr1"));
    wait_until("it is found", || {
        must(&format!("-n {ler1} neigh show")).contains("REACHABLE") && takes("primary")
    });
    assert!(!router.log()[before..].contains("is not resolved"), "{}", router.log());
    // The interface goes, and the kernel forgets who was there.
    must(&format!("-n {ler1} link set lsr1 down"));
    wait_until("it goes around", || takes("backup"));
    router
        .wait_for_log(&format!("next hop {THERE} on lsr1 is not resolved (lsr1 is down or gone)"));
    must(&format!("-n {ler1} link set lsr1 up"));
    wait_until("it goes back", || takes("primary"));
    ended_well(load);
    assert_eq!(unresolved(&router), 0);
}

#[test]
fn an_address_that_no_next_hop_can_have_is_refused_by_check_and_start() {
    let Some(network) = Network::make(1500) else { return };
    number(&network);
    let home = tempfile::tempdir().unwrap();
    for (next_hop, why) in [
        ("10.0.2.2", "it is in no network of lsr1, which has 10.0.1.1/24"),
        ("fe80::2", "it is in no network of lsr1, which has 10.0.1.1/24"),
        ("10.0.1.1", "it is this host's own on lsr1"),
        ("10.0.1.255", "it is that of all hosts of 10.0.1.1/24"),
    ] {
        let why = format!("next hop {next_hop} on lsr1: {why}");
        let file = write(home.path(), &near(next_hop, ""));
        for command in ["check", "serve"] {
            let args = if command == "check" {
                vec!["check", &file]
            } else {
                vec!["serve", "--config", &file]
            };
            let output = network.plateway("ler1").args(args).output().expect("it runs");
            let said = flat(&output.stderr);
            assert!(!output.status.success() && said.contains(&why), "{command}: {said}");
        }
    }
    let check = |words: &str| {
        let file = write(home.path(), &near(THERE, ""));
        let said = network.run("ler1", &["check", &file]);
        assert!(flat(said.as_bytes()).contains(words), "{said}");
    };
    check("10.0.1.2 is not resolved now (it is not there");
    let (ler1, lladdr) = (network.at("ler1"), address("lsr1", "ler1"));
    must(&format!("-n {ler1} neigh replace {THERE} lladdr {lladdr} dev lsr1 nud stale"));
    check(&format!("10.0.1.2 is at {lladdr}"));
    let none = "01:00:00:00:00:07";
    must(&format!("-n {ler1} neigh replace {THERE} lladdr {none} dev lsr1 nud permanent"));
    check(&format!("10.0.1.2 is not resolved now (it is at {none}, which is no station's"));
    let own = address("ler1", "lsr1");
    must(&format!("-n {ler1} neigh replace {THERE} lladdr {own} dev lsr1 nud permanent"));
    check(&format!("10.0.1.2 is not resolved now (it is at {own}, which is this host's own"));
}
