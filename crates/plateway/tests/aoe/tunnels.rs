//! AoE through tunnels over IP: two edges with a router of the kernel's between them, which knows of
//! nothing but addresses; one customer in GRE, another in L2TPv3 over IPv6.

use serde_json::Value;

use crate::captured::{capture, fields, is_there};
use crate::common::{flat, write};
use crate::lan::{INTERFACE, TARGET, must};
use crate::routed::{Network, SERVED, round_trip, shown};

/// Addresses on the cables of ler1 and ler2, and of the kernel's router there.
pub(crate) const NEAR: &str = "10.9.1.1";
pub(crate) const FAR: &str = "10.9.2.1";
pub(crate) const NEAR_6: &str = "fd09:1::1";
pub(crate) const FAR_6: &str = "fd09:2::1";
/// Customers, each with the same addresses: in GRE, and in L2TPv3.
const IN_GRE: [&str; 2] = ["serv1", "lx"];
const IN_L2TP: [&str; 2] = ["servi", "isx"];
/// Packets of each that are captured.
const TAKEN: usize = 400;

/// The kernel forwards between the edges.
pub(crate) fn connect(network: &Network) {
    for (edge, ip, six, there, there_6) in [
        ("ler1", NEAR, NEAR_6, "10.9.1.2", "fd09:1::2"),
        ("ler2", FAR, FAR_6, "10.9.2.2", "fd09:2::2"),
    ] {
        let (at, between) = (network.at(edge), network.at("lsr1"));
        for (namespace, device, ip, six) in
            [(&at, "lsr1", ip, six), (&between, edge, there, there_6)]
        {
            must(&format!("-n {namespace} addr add {ip}/24 dev {device}"));
            // Neighbours are asked from an address of the link.
            for six in [six.to_owned(), link_local(six)] {
                must(&format!("-n {namespace} addr add {six}/64 dev {device} nodad"));
            }
        }
        must(&format!("-n {at} route add default via {there}"));
        must(&format!("-n {at} -6 route add default via {there_6}"));
    }
    let between = network.at("lsr1");
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        must(&format!("netns exec {between} sysctl -qw {key}=1"));
    }
}

/// An address of the link itself, made of one that is not.
fn link_local(six: &str) -> String {
    six.replace("fd09:1::", "fe80::1:").replace("fd09:2::", "fe80::2:")
}

/// An edge: two circuits, each by a tunnel.
fn edge(
    [gre, l2tp]: [&str; 2],
    [local, peer]: [&str; 2],
    [local_6, peer_6]: [&str; 2],
    [session_in, session_out]: [u32; 2],
    [cookie_in, cookie_out]: [&str; 2],
) -> String {
    format!(
        "[[circuit]]\nethernet = \"{gre}\"\n[[circuit]]\nethernet = \"{l2tp}\"\n\
         [[tunnel]]\nname = \"g\"\ncircuit = \"{gre}\"\npeer = \"{peer}\"\nlocal = \"{local}\"\ngre = {{ key = 7 }}\n\
         [[tunnel]]\nname = \"l\"\ncircuit = \"{l2tp}\"\npeer = \"{peer_6}\"\nlocal = \"{local_6}\"\n\
         l2tp = {{ session_in = {session_in}, session_out = {session_out}, cookie_in = \"{cookie_in}\", cookie_out = \"{cookie_out}\" }}\n"
    )
}

fn edges(cookie: &str) -> [String; 2] {
    let (there, here) = ("5eed1234", "0123456789abcdef");
    [
        edge(["serv1", "servi"], [NEAR, FAR], [NEAR_6, FAR_6], [71, 72], [here, there]),
        edge(["lx", "isx"], [FAR, NEAR], [FAR_6, NEAR_6], [72, 71], [cookie, here]),
    ]
}

/// A tunnel of the only router.
fn tunnel(shown: &Value, name: &str) -> Value {
    let all = shown["routers"][0]["tunnels"].as_array().expect("a list").clone();
    all.into_iter().find(|one| one["name"] == name).expect("it is there")
}

#[test]
fn customers_reach_their_disks_through_gre_and_l2tp_and_nobody_else_s() {
    let Some(network) = Network::make(1500) else { return };
    connect(&network);
    let home = tempfile::tempdir().unwrap();
    let [near, far] = edges("5eed1234");
    let routers =
        [network.router(home.path(), "ler1", &near), network.router(home.path(), "ler2", &far)];
    let _one = network.serve(home.path(), IN_GRE[0], &SERVED);
    assert_eq!(network.discover(IN_GRE[1]), ["7.0"]);
    assert_eq!(network.discover(IN_L2TP[1]), [""; 0], "nobody is at the other customer's");
    let _two = network.serve(home.path(), IN_L2TP[0], &SERVED);
    assert_eq!(network.discover(IN_L2TP[1]), ["7.0"]);
    round_trip(&network, home.path(), IN_GRE[1], 1);
    round_trip(&network, home.path(), IN_L2TP[1], 2);
    for (router, way, name) in [
        (0, "GRE to 10.9.2.1", "g"),
        (1, "GRE to 10.9.1.1", "g"),
        (0, "L2TP 1701 to fd09:2::1 1701", "l"),
        (1, "L2TP 1701 to fd09:1::1 1701", "l"),
    ] {
        let seen = tunnel(&shown(&routers[router]), name);
        assert_eq!((&seen["state"], &seen["way"]), (&"up".into(), &way.into()), "{seen:#}");
        assert!(seen["sent"].as_u64() > Some(100) && seen["delivered"].as_u64() > Some(100));
        let lost = ["missing", "drops"].map(|key| seen[key].clone());
        assert_eq!(lost, [0.into(), Value::Object(Default::default())], "{seen:#}");
    }
    let status: Value = serde_json::from_str(&routers[0].ask(&["status", "--json"])).expect("JSON");
    for interface in ["GRE to 10.9.2.1", "L2TP 1701 to fd09:2::1 1701"] {
        let links = status["links"].as_array().expect("a list");
        let link = links.iter().find(|one| one["interface"] == interface).expect("it is there");
        assert_eq!((&link["method"], &link["used_for"]), (&"datagrams".into(), &"routers".into()));
        assert!(link["received"].as_u64() > Some(100), "{link:#}");
    }
    // An end that takes another cookie hears nothing more, and counts it.
    let [_, other] = edges("00000000");
    routers[1].apply(&other);
    assert_eq!(network.discover(IN_L2TP[1]), [""; 0]);
    assert_eq!(network.discover(IN_GRE[1]), ["7.0"]);
    let seen = tunnel(&shown(&routers[1]), "l");
    assert!(seen["drops"]["wrong_cookie"].as_u64() > Some(0), "{seen:#}");
    routers[1].apply(&far);
    assert_eq!(network.discover(IN_L2TP[1]), ["7.0"]);
    // Without a route neither carries anything, and both come back with it.
    let at = network.at("ler1");
    must(&format!("-n {at} link set lsr1 down"));
    crate::lan::wait_until("there is no route", || {
        tunnel(&shown(&routers[0]), "g")["state"] == "no route to 10.9.2.1"
    });
    must(&format!("-n {at} link set lsr1 up"));
    must(&format!("-n {at} route add default via 10.9.1.2"));
    crate::lan::wait_until("there is a route", || {
        tunnel(&shown(&routers[0]), "g")["state"] == "up"
    });
    assert_eq!(network.discover(IN_GRE[1]), ["7.0"]);
    // Whoever adds one hears that there is none, or of a path that takes less than the circuit's frames.
    let told = |config: &str| {
        let output = routers[0].command(&["apply", &write(home.path(), config)]);
        assert!(output.status.success());
        flat(&output.stderr)
    };
    let narrow = "tunnel g: the path to 10.9.2.1 takes frames of 1484 bytes";
    let rekeyed = near.replace("gre = { key = 7 }", "gre = { key = 8 }");
    let said = told(&rekeyed);
    assert!(said.contains(narrow), "{said}");
    must(&format!("-n {at} link set lsr1 down"));
    let said = told(&near);
    assert!(said.contains("tunnel g: there is no route to 10.9.2.1 from 10.9.1.1 now"), "{said}");
    let path = write(home.path(), &near);
    for (words, state) in [("there is no route to 10.9.2.1", "down"), (narrow, "up")] {
        must(&format!("-n {at} link set lsr1 {state}"));
        if state == "up" {
            must(&format!("-n {at} route add default via 10.9.1.2"));
        }
        let check = network.plateway("ler1").args(["route", "check", &path]).output();
        let said = flat(&check.expect("it runs").stderr);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn tunnels_carry_what_tshark_takes_for_aoe() {
    for program in ["dumpcap", "tshark"] {
        if !is_there(program) {
            testkit::skipped(format_args!("{program} is not there (Debian package tshark)"));
            return;
        }
    }
    let Some(network) = Network::make(1500) else { return };
    connect(&network);
    let home = tempfile::tempdir().unwrap();
    let [near, far] = edges("5eed1234");
    let _routers =
        [network.router(home.path(), "ler1", &near), network.router(home.path(), "ler2", &far)];
    for (station, customer, filter, decode, layers, numbers) in [
        (
            IN_GRE[0],
            IN_GRE[1],
            "proto 47",
            &[][..],
            ":ip:gre:eth:ethertype:aoe",
            ["gre.key", "gre.sequence_number"],
        ),
        (
            IN_L2TP[0],
            IN_L2TP[1],
            // What goes to the far end, whose cookie has 4 bytes.
            "udp port 1701 and dst host fd09:2::1",
            &[
                "-o",
                "l2tp.cookie_size:4 Byte Cookie",
                "-o",
                "l2tp.l2_specific:Default L2-Specific",
                "-d",
                "l2tp.pw_type==0,eth",
            ],
            ":ipv6:udp:l2tp:ethertype:aoe",
            ["l2tp.sid", "l2tp.l2_spec_sequence"],
        ),
    ] {
        let _target = network.serve(home.path(), station, &SERVED);
        let file = home.path().join(format!("{station}.pcapng"));
        capture(&network, ("lsr1", "ler2"), (&file, TAKEN, filter), || {
            let aoe = format!("aoe://{INTERFACE}/7.0");
            let line = ["--rw", "randrw=50", "--rate", "500", "--time", "3s", "--overwrite"];
            network.run(customer, &[&["bench", &aoe][..], &line].concat());
        });
        let wanted =
            ["frame.protocols", numbers[0], numbers[1], "eth.src", "aoe.major", "_ws.expert"];
        let mut next: std::collections::BTreeMap<bool, u64> = Default::default();
        let rows = fields(&file, decode, &wanted);
        assert_eq!(rows.len(), TAKEN);
        for row in rows {
            let [protocols, key, number, from, shelf, expert] = &row[..] else { panic!("{row:?}") };
            assert!(protocols.ends_with(layers), "{row:?}");
            assert_eq!((shelf.as_str(), expert.as_str()), ("0x0007", ""), "{row:?}");
            assert!(["0x00000007", "0x00000048"].contains(&key.as_str()), "{row:?}");
            // Each direction counts by itself, without a gap.
            let number = number.parse::<u64>().expect("a number");
            let expected = next.insert(from.ends_with(TARGET), number + 1);
            assert!(expected.is_none_or(|expected| expected == number), "{row:?}");
        }
    }
}
