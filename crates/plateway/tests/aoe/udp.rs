//! AoE by labels in UDP: two edges with a router of the kernel's between them, which knows of nothing
//! but addresses. One customer's pseudowire goes over IPv4, and over IPv6 where that fails; another's
//! over IPv6.

use std::net::{SocketAddr, UdpSocket};

use serde_json::Value;
use wire::mpls::{Label, LabelStackEntry, UDP_PORT};

use crate::captured::{capture, fields, is_there};
use crate::common::{Server, flat};
use crate::lan::{INTERFACE, TARGET, inside, must, wait_until};
use crate::routed::{Network, SERVED, both_up, pseudowire, round_trip, shown, wait_for};
use crate::tunnels::{FAR, FAR_6, NEAR, NEAR_6, connect};

const BFD: &str = "interval = \"50ms\", multiplier = 3, revert = \"1s\"";
/// Sessions that outlast a machine which is busy elsewhere.
const SLOW_BFD: &str = "interval = \"100ms\", multiplier = 50";
/// The cable's MTU, less the headers of IP and UDP.
const MTU: u64 = 1530 - 28;
const MTU_6: u64 = 1530 - 48;
/// Of two labels and a control word around a frame.
const AROUND: u64 = 12;
/// Packets that are captured.
const TAKEN: usize = 400;

/// An edge, with more keys of its link over IPv4.
fn edge(
    [one, other]: [&str; 2],
    [local, peer]: [&str; 2],
    [local_6, peer_6]: [&str; 2],
    [label_in, label_out]: [u32; 2],
    (bfd, wan): (&str, &str),
) -> String {
    let (other_in, other_out) = (label_in + 10, label_out + 10);
    format!(
        "[[link]]\nname = \"wan\"\nudp = {{ peer = \"{peer}\", local = \"{local}\" }}\nmpls = true\n{wan}\n\
         [[link]]\nname = \"six\"\nudp = {{ peer = \"{peer_6}\", local = \"{local_6}\" }}\nmpls = true\n\
         [[circuit]]\nethernet = \"{one}\"\n[[circuit]]\nethernet = \"{other}\"\n\
         [[lsp]]\nname = \"by-wan\"\nlink = \"wan\"\nlabels = [300]\n\
         [[lsp]]\nname = \"by-six\"\nlink = \"six\"\nlabels = [310]\n\
         [[ilm]]\nlabel = 300\npop = true\n[[ilm]]\nlabel = 310\npop = true\n\
         [[pseudowire]]\nname = \"one\"\ncircuit = \"{one}\"\nlabel_in = {label_in}\nlabel_out = {label_out}\n\
         lsp = \"by-wan\"\nbackup = \"by-six\"\nbfd = {{ {bfd} }}\n\
         from = [{{ link = \"wan\", tunnel = 300 }}, {{ link = \"six\", tunnel = 310, backup = true }}]\n\
         [[pseudowire]]\nname = \"other\"\ncircuit = \"{other}\"\nlabel_in = {other_in}\nlabel_out = {other_out}\n\
         lsp = \"by-six\"\nfrom = {{ link = \"six\", tunnel = 310 }}\n"
    )
}

pub(crate) fn near(bfd: &str, wan: &str) -> String {
    edge(["serv1", "servi"], [NEAR, FAR], [NEAR_6, FAR_6], [1001, 1002], (bfd, wan))
}

pub(crate) fn far(bfd: &str) -> String {
    edge(["lx", "isx"], [FAR, NEAR], [FAR_6, NEAR_6], [1002, 1001], (bfd, ""))
}

/// The edges, both running.
fn routers(network: &Network, home: &std::path::Path, bfd: &str) -> [Server; 2] {
    connect(network);
    [("ler1", near(bfd, "")), ("ler2", far(bfd))]
        .map(|(name, config)| network.router(home, name, &config))
}

/// Something of the only router, by its name.
pub(crate) fn named(router: &Server, list: &str, name: &str) -> Value {
    let all = shown(router)["routers"][0][list].as_array().expect("a list").clone();
    all.into_iter().find(|one| one["name"] == name).expect("it is there")
}

fn wait_for_both(routers: &[Server; 2], what: &str, wanted: impl Fn(&Value) -> bool) {
    for router in routers {
        wait_for(router, "one", what, &wanted);
    }
}

/// Whether frames take this path.
fn takes(way: &str) -> impl Fn(&Value) -> bool {
    move |one| one["active"] == way
}

/// A frame of AoE in the pseudowire of customer `one`, from the label stack on, as the other end
/// sends it.
fn packet() -> Vec<u8> {
    let entry = |number, is_bottom| {
        let label = Label::new(number).expect("a label");
        LabelStackEntry { label, traffic_class: 0, is_bottom, ttl: 255 }.emit()
    };
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xa2], &[0; 46]].concat();
    [&entry(300, false)[..], &entry(1001, true), &[0; 4], &frame].concat()
}

/// A host sends such packets to the near edge.
fn send(network: &Network, host: &str, from: &str, count: usize) {
    let from: SocketAddr = format!("{from}:0").parse().expect("an address");
    inside(&network.at(host), move || {
        let socket = UdpSocket::bind(from).expect("a socket");
        for _ in 0..count {
            socket.send_to(&packet(), (NEAR, UDP_PORT)).expect("it is sent");
        }
    });
}

#[test]
fn customers_reach_their_disks_by_labels_in_udp() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), BFD);
    let _one = network.serve(home.path(), "serv1", &SERVED);
    wait_for_both(&routers, "up by both paths", both_up);
    assert_eq!(network.discover("lx"), ["7.0"]);
    assert_eq!(network.discover("isx"), [""; 0], "nobody is at the other customer's");
    let _two = network.serve(home.path(), "servi", &SERVED);
    assert_eq!(network.discover("isx"), ["7.0"]);
    round_trip(&network, home.path(), "lx", 1);
    round_trip(&network, home.path(), "isx", 2);
    // What a path carries is asked, and found, as by a cable.
    let frames = |one: &Value| [0, 1].map(|path| one["paths"][path]["frame_bytes"].as_u64());
    let fit = [Some(MTU - AROUND), Some(MTU_6 - AROUND)];
    wait_for_both(&routers, "known by both paths", |one| frames(one) == fit);
    for (router, wan, six) in [(&routers[0], FAR, FAR_6), (&routers[1], NEAR, NEAR_6)] {
        for (name, peer, mtu) in [("wan", wan, MTU), ("six", six, MTU_6)] {
            let port = named(router, "ports", name);
            assert_eq!((&port["kind"], &port["up"]), (&"core".into(), &true.into()), "{port:#}");
            assert_eq!((&port["peer"], &port["mac"]), (&peer.into(), &Value::Null), "{port:#}");
            assert_eq!(port["mtu"], mtu, "{port:#}");
            assert!(port["sent"].as_u64() > Some(100) && port["received"].as_u64() > Some(100));
        }
        let path = named(router, "paths", "lsp by-wan");
        assert_eq!((&path["next_hop"], &path["up"]), (&wan.into(), &true.into()), "{path:#}");
        for name in ["one", "other"] {
            let seen = pseudowire(router, name);
            assert!(seen["delivered"].as_u64() > Some(100), "{seen:#}");
            let lost = ["missing", "drops"].map(|key| seen[key].clone());
            assert_eq!(lost, [0.into(), Value::Object(Default::default())], "{seen:#}");
        }
    }
    let status = routers[0].status();
    for (interface, from) in [("10.9.2.1:6635", NEAR), ("[fd09:2::1]:6635", NEAR_6)] {
        let interface = format!("UDP to {interface} from {from}");
        let links = status["links"].as_array().expect("a list");
        let link = links.iter().find(|one| one["interface"] == interface).expect("it is there");
        assert_eq!((&link["method"], &link["used_for"]), (&"datagrams".into(), &"routers".into()));
        assert!(link["received"].as_u64() > Some(100), "{link:#}");
    }
    let table = flat(routers[0].ask(&["route", "show"]).as_bytes());
    assert!(table.contains("10.9.2.1") && table.contains("fd09:2::1"), "{table}");
}

#[test]
fn what_a_stranger_sends_in_udp_is_not_seen() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), SLOW_BFD);
    wait_for_both(&routers, "up by both paths", both_up);
    let counted = || {
        let count = |of: Value, key: &str| of[key].as_u64().expect("a number");
        let circuit = named(&routers[0], "ports", "serv1");
        (count(pseudowire(&routers[0], "one"), "delivered"), count(circuit, "sent"))
    };
    let (delivered, left) = counted();
    // The host between has all but the peer's address.
    send(&network, "lsr1", "10.9.1.2", 5);
    // The peer's own is taken from any port, and is behind what the stranger sent.
    send(&network, "ler2", FAR, 1);
    wait_until("the peer is heard", || counted().0 > delivered);
    assert_eq!(counted(), (delivered + 1, left + 1));
    let port = named(&routers[0], "ports", "wan");
    assert_eq!(port["drops"], Value::Object(Default::default()), "{port:#}");
}

#[test]
fn a_route_that_goes_takes_the_link_in_udp_down_and_changes_are_made_while_packets_come() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), BFD);
    let _one = network.serve(home.path(), "serv1", &SERVED);
    wait_for_both(&routers, "up by both paths", both_up);
    let at = network.at("ler1");
    must(&format!("-n {at} route del default"));
    wait_until("there is no route", || named(&routers[0], "ports", "wan")["up"] == false);
    wait_for_both(&routers, "on its backup", takes("backup"));
    assert_eq!(network.discover("lx"), ["7.0"]);
    let said = routers[0].check(&near(BFD, ""));
    assert!(said.contains("the server has it now"), "{said}");
    must(&format!("-n {at} route add default via 10.9.1.2"));
    wait_for_both(&routers, "back on its first path", takes("primary"));
    // In place: what came is still counted.
    let before = named(&routers[0], "ports", "wan")["received"].as_u64();
    let said = routers[0].apply(&near(BFD, "poll = \"50us\"\nexplicit_null = true"));
    assert!(said.contains("~ port wan: explicit_null false -> true poll auto -> 50us"), "{said}");
    assert!(named(&routers[0], "ports", "wan")["received"].as_u64() >= before);
    // Nobody is at another peer.
    let elsewhere = near(BFD, "").replace(FAR, "10.9.2.77");
    let said = routers[0].apply(&elsewhere);
    assert!(
        said.contains("+ port wan: of router router, UDP to 10.9.2.77:6635 from 10.9.1.1"),
        "{said}"
    );
    wait_for_both(&routers, "on its backup", takes("backup"));
    // A name may be a cable's, and be a link in UDP again.
    let cable = "[[link]]\nname = \"wan\"\nethernet = \"lsr1\"\nmpls = true\n";
    let (first, rest) = elsewhere.split_once("[[link]]\nname = \"six\"").expect("a second link");
    assert!(first.starts_with("[[link]]\nname = \"wan\""), "{first}");
    let hop = "link = \"wan\"\nnext_hop = \"02:00:00:00:00:99\"\nlabels";
    let rest = rest.replace("link = \"wan\"\nlabels", hop);
    routers[0].apply(&format!("{cable}[[link]]\nname = \"six\"{rest}"));
    let port = named(&routers[0], "ports", "wan");
    assert_eq!((&port["peer"], port["mac"].is_string()), (&Value::Null, true), "{port:#}");
    assert_eq!(network.discover("lx"), ["7.0"], "by the backup");
    // What cannot be is refused where it is written.
    let refused = near(BFD, "").replace(&format!("\"{FAR}\", local = \"{NEAR}\""), "\"fe80::9\"");
    let said = routers[0].refuse_apply(&refused);
    assert!(said.contains("fe80::9 means another host on each link"), "{said}");
    // And what only the system knows is undone.
    let other = inside(&at, || UdpSocket::bind((NEAR, UDP_PORT)).expect("a socket"));
    let said = routers[0].refuse_apply(&near(BFD, ""));
    assert!(said.contains("port 6635 of 10.9.1.1 is another's"), "{said}");
    assert_eq!(named(&routers[0], "ports", "wan")["mac"], port["mac"]);
    drop(other);
    routers[0].apply(&near(BFD, ""));
    wait_for_both(&routers, "back on its first path", takes("primary"));
    assert_eq!(network.discover("lx"), ["7.0"]);
}

#[test]
fn labels_in_udp_are_what_tshark_takes_for_them() {
    for program in ["dumpcap", "tshark"] {
        if !is_there(program) {
            testkit::skipped(format_args!("{program} is not there (Debian package tshark)"));
            return;
        }
    }
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), SLOW_BFD);
    let _targets = ["serv1", "servi"].map(|one| network.serve(home.path(), one, &SERVED));
    wait_for_both(&routers, "up by both paths", both_up);
    for (customer, filter, layers, labels) in [
        ("lx", "ip and udp port 6635", "ip:udp:mpls", ["300,1002", "300,1001"]),
        ("isx", "ip6 and udp port 6635", "ipv6:udp:mpls", ["310,1012", "310,1011"]),
    ] {
        let file = home.path().join(format!("{customer}.pcapng"));
        capture(&network, ("lsr1", "ler2"), (&file, TAKEN, filter), || {
            let aoe = format!("aoe://{INTERFACE}/7.0");
            let line = ["--rw", "randrw=50", "--rate", "500", "--time", "3s", "--overwrite"];
            network.run(customer, &[&["bench", &aoe][..], &line].concat());
        });
        let wanted = [
            "frame.protocols",
            "mpls.label",
            "mpls.bottom",
            "mpls.ttl",
            "pweth.cw.sequence_number",
            "eth.src",
            "udp.srcport",
            "udp.dstport",
            "aoe.major",
            "pwach.channel_type",
            "_ws.expert",
        ];
        let decode =
            ["1001", "1002", "1011", "1012"].map(|one| format!("mpls.label=={one},pwethcw"));
        let decode: Vec<&str> = decode.iter().flat_map(|one| ["-d", one]).collect();
        let (mut next, mut ports) = (std::collections::BTreeMap::new(), Vec::new());
        let rows = fields(&file, &decode, &wanted);
        assert_eq!(rows.len(), TAKEN);
        for row in rows {
            let [protocols, stack, bottom, ttl, number, from, source, port, shelf, channel, expert] =
                &row[..]
            else {
                panic!("{row:?}")
            };
            assert_eq!((bottom.as_str(), ttl.as_str(), port.as_str()), ("0,1", "255,255", "6635"));
            assert_eq!(expert, "", "{row:?}");
            let way = (stack.clone(), source.clone());
            if !ports.contains(&way) {
                ports.push(way);
            }
            if channel == "0x0007" {
                assert!(protocols.ends_with(&format!("{layers}:pwach:bfd")), "{row:?}");
                continue;
            }
            let aoe = format!(":{layers}:eth:ethertype:aoe");
            assert!(protocols.ends_with(&aoe) && shelf == "0x0007", "{row:?}");
            let from_target = from.ends_with(TARGET);
            assert_eq!(*stack, labels[usize::from(!from_target)], "{row:?}");
            // Each direction counts by itself, without a gap.
            let number = number.parse::<u32>().expect("a number");
            let expected = next.insert(from_target, number % 65_535 + 1);
            assert!(expected.is_none_or(|expected| expected == number), "{row:?}");
        }
        // One source port a direction, from those that are nobody's service.
        let all: std::collections::BTreeSet<&String> = ports.iter().map(|(_, port)| port).collect();
        assert!(all.len() <= 2, "{ports:?}");
        assert!(all.iter().all(|port| port.parse::<u16>().is_ok_and(|port| port >= 49_152)));
    }
}
