//! Packets that nobody may send: labels that another customer puts on frames of its own, and right
//! labels that come by the wrong cable, in the wrong tunnel, or not as a router makes them.
//!
//! Each carries the same command: a write to the victim's disk, which the victim's export would
//! obey. That it would is seen at the end, when it comes as the network sends it.

use std::fs;

use contract::MacAddress;
use serde_json::Value;
use wire::aoe::{Address, Command, ConfigArgument, ConfigCommand};
use wire::ethernet::EtherType;
use wire::mpls::{Label, LabelStackEntry};

use crate::common::Server;
use crate::lan::{INITIATOR, INTERFACE, TARGET, wait_until};
use crate::routed::{Network, SERVED, address, pseudowire, routers, shown, wait_for};
use crate::station::Station;

/// What the victim's edge has of its pseudowire: the label, and the tunnel's.
const WIRE: u32 = 1001;
const TUNNEL: u32 = 113;
/// As many labels as no router looks at.
const DEEP: usize = mpls::limits::DEPTH_MAX;
const WRITE_SECTORS_EXT: u8 = 0x34;
/// What the command writes.
const FORGED: [u8; 512] = [0xf7; 512];

/// A packet that was put together by hand.
#[derive(Clone)]
struct Packet<'a> {
    stack: &'a [u32],
    /// Of the first entry; the others have many.
    ttl: u8,
    /// Whether the last entry says that it is that.
    has_bottom: bool,
    /// In front of the frame inside.
    word: [u8; 4],
}

/// As the network itself would send it, with this stack.
const fn packet(stack: &[u32]) -> Packet<'_> {
    Packet { stack, ttl: 200, has_bottom: true, word: [0; 4] }
}

impl Packet<'_> {
    /// In a frame to this station.
    fn emit(&self, to: &str, from: &str, ether_type: EtherType) -> Vec<u8> {
        let station = |text: &str| text.parse::<MacAddress>().expect("an address");
        let mut bytes = [station(to).0, station(from).0].concat();
        bytes.extend(ether_type.0.to_be_bytes());
        for (at, &label) in self.stack.iter().enumerate() {
            let entry = LabelStackEntry {
                label: Label::new(label).expect("a label"),
                traffic_class: 0,
                is_bottom: self.has_bottom && at + 1 == self.stack.len(),
                ttl: if at == 0 { self.ttl } else { 200 },
            };
            bytes.extend(entry.emit());
        }
        bytes.extend(self.word);
        let write = testkit::aoe::ata(WRITE_SECTORS_EXT, 1000, 1, &FORGED);
        let message = testkit::aoe::request(Address::new(7, 0), Command::ATA.0, 7, &write);
        let frame = testkit::aoe::frame(station(TARGET), station(INITIATOR), None, &message);
        bytes.extend(frame);
        bytes
    }
}

/// A network in which the victim, customer 1, has its disk at serv1.
struct Scene {
    network: Network,
    home: tempfile::TempDir,
    routers: Vec<Server>,
    _victim: Server,
}

impl Scene {
    fn make() -> Option<Scene> {
        let network = Network::make(1500)?;
        let home = tempfile::tempdir().expect("a folder");
        let routers = routers(&network, home.path(), None);
        let victim = network.serve(home.path(), "serv1", &SERVED);
        assert_eq!(network.discover("lx"), ["7.0"]);
        Some(Scene { network, home, routers, _victim: victim })
    }

    fn was_obeyed(&self) -> bool {
        let disk = fs::read(self.home.path().join("serv1/disk.img")).expect("the disk");
        disk.windows(FORGED.len()).step_by(512).any(|seen| seen == FORGED)
    }

    /// Frames that went through both ends of the victim's pseudowire, in both directions, and what
    /// was dropped there.
    fn of_the_victim(&self) -> ([[u64; 4]; 2], [Value; 2]) {
        let edges = [(&self.routers[0], "serv1"), (&self.routers[1], "lx")];
        let wires = edges.map(|(router, name)| pseudowire(router, name));
        let circuits = edges.map(|(router, name)| port(router, name));
        let number = |value: &Value| value.as_u64().expect("a number");
        let passed = |at: usize| {
            let [wire, circuit] = [&wires[at], &circuits[at]];
            let each = [&wire["sent"], &wire["delivered"], &circuit["received"], &circuit["sent"]];
            each.map(number)
        };
        ([0, 1].map(passed), wires.clone().map(|wire| wire["drops"].clone()))
    }
}

/// A port of a router, by its name.
fn port(router: &Server, name: &str) -> Value {
    let shown = shown(router);
    let ports = shown["routers"][0]["ports"].as_array().expect("a list").clone();
    ports.into_iter().find(|one| one["name"] == name).expect("it is there")
}

#[test]
fn labels_that_a_customer_forges_are_payload_and_reach_no_other() {
    let Some(scene) = Scene::make() else { return };
    let Scene { network, home, routers, .. } = &scene;
    // Customer 2 has a station beside the victim's, at the same edge, and one at another edge.
    let _near = network.serve(home.path(), "serv2", &SERVED);
    let _far = network.serve(home.path(), "cd", &SERVED);
    let near = Station::at(&network.at("serv2"), INTERFACE, INITIATOR);
    let far = Station::at(&network.at("cd"), INTERFACE, TARGET);
    let deep = [&[TUNNEL; DEEP + 4][..], &[WIRE]].concat();
    // The labels of the victim's way at each router, those of the pseudowire at both ends, explicit
    // null, and more than anybody looks at.
    let stacks: [&[u32]; 11] = [
        &[WIRE],
        &[TUNNEL, WIRE],
        &[112, WIRE],
        &[111, WIRE],
        &[0, WIRE],
        &[0, TUNNEL, WIRE],
        &[TUNNEL, TUNNEL, WIRE],
        &[TUNNEL],
        &[103, 1002],
        &[101, 1002],
        &deep,
    ];
    let before = scene.of_the_victim();
    for (mut station, router, edge, circuit) in
        [(near, &routers[0], "ler1", "serv2"), (far, &routers[2], "ler3", "cd")]
    {
        let entered = port(router, circuit)["received"].as_u64().expect("a number");
        let core = ["lsr1", "lsr2"].map(|towards| address(edge, towards));
        let to = [TARGET, "ff:ff:ff:ff:ff:ff", "02:00:00:00:aa:05", &core[0], &core[1]];
        let mut count = 0;
        for to in to {
            for ether_type in [EtherType::MPLS, EtherType::MPLS_UPSTREAM] {
                for stack in stacks {
                    for has_bottom in [true, false] {
                        let packet = Packet { has_bottom, ..packet(stack) };
                        let own = station.mac().to_string();
                        station.send(packet.emit(to, &own, ether_type));
                        count += 1;
                    }
                }
            }
        }
        // What comes behind them is answered: they have been dealt with. Its own customer gets them.
        let ask = ConfigArgument::request(ConfigCommand::READ, 0);
        station.done(Address::new(7, 0), Command::CONFIG, &ask.emit());
        let port = port(router, circuit);
        assert!(port["received"].as_u64() >= Some(entered + count), "{port:#}");
        assert_eq!(port["drops"], serde_json::json!({}), "{circuit}");
    }
    assert_eq!(scene.of_the_victim(), before);
    assert!(!scene.was_obeyed());
}

#[test]
fn right_labels_by_another_cable_or_in_another_tunnel_are_dropped_and_counted() {
    let Some(scene) = Scene::make() else { return };
    let Scene { network, routers, .. } = &scene;
    let deep = [&[TUNNEL; DEEP][..], &[WIRE]].concat();
    let (before, _) = scene.of_the_victim();
    let right = packet(&[TUNNEL, WIRE]);
    let forged = [
        ("lsr2", right.clone(), "wrong_port"),
        ("lsr2", packet(&[WIRE]), "wrong_port"),
        ("lsr2", packet(&[135, WIRE]), "wrong_port"),
        ("lsr1", packet(&[WIRE]), "wrong_tunnel"),
        ("lsr1", packet(&[135, WIRE]), "wrong_tunnel"),
        ("lsr1", packet(&[0, WIRE]), "explicit_null"),
        ("lsr1", packet(&[1, WIRE]), "special_label"),
        ("lsr1", packet(&[4, WIRE]), "reserved_label"),
        ("lsr1", packet(&[777, WIRE]), "unknown_label"),
        ("lsr1", packet(&[TUNNEL, 777]), "unknown_label"),
        ("lsr1", packet(&[TUNNEL]), "bottom_popped"),
        ("lsr1", packet(&[TUNNEL, WIRE, WIRE]), "not_bottom"),
        ("lsr1", Packet { has_bottom: false, ..right.clone() }, "not_bottom"),
        ("lsr1", packet(&deep), "too_deep"),
        ("lsr1", Packet { ttl: 0, ..right.clone() }, "ttl_expired"),
        ("lsr1", Packet { ttl: 1, ..right.clone() }, "ttl_expired"),
        ("lsr1", Packet { word: [0x50, 0, 0, 0], ..right.clone() }, "control_word_mismatch"),
        ("lsr1", Packet { word: [0x11, 0, 0, 7], ..right.clone() }, "channel_version"),
    ];
    let cables = ["lsr1", "lsr2"].map(|lsr| Station::at(&network.at(lsr), "ler1", TARGET));
    let send = |lsr: &str, packet: &Packet<'_>| {
        let cable = &cables[usize::from(lsr == "lsr2")];
        cable.send(packet.emit(&address("ler1", lsr), &cable.mac().to_string(), EtherType::MPLS));
    };
    let dropped = |lsr, reason: &str| port(&routers[0], lsr)["drops"][reason].as_u64().unwrap_or(0);
    for (lsr, packet, reason) in &forged {
        let seen = dropped(lsr, reason);
        send(lsr, packet);
        wait_until(&format!("{:?} by {lsr} is {reason}", packet.stack), || {
            dropped(lsr, reason) == seen + 1
        });
    }
    let (passed, [dropped, _]) = scene.of_the_victim();
    assert_eq!(passed, before);
    let of_the_wire = ["wrong_port", "wrong_tunnel", "not_bottom"].map(|reason| &dropped[reason]);
    assert_eq!(of_the_wire, [3, 2, 2]);
    assert!(!scene.was_obeyed());
    // Nothing was wrong with the command.
    send("lsr1", &right);
    let [_, delivered, ..] = before[0];
    wait_for(&routers[0], "serv1", "reached", |one| one["delivered"] == delivered + 1);
    wait_until("the command is obeyed", || scene.was_obeyed());
}
