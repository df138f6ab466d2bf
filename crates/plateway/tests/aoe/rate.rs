//! A port with a rate sends no more than that, keeps the order, tells what waited, and lets BFD go
//! before data.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{flat, plateway, write};
use crate::lan::{INTERFACE, ip, must, wait_until};
use crate::routed::{Network, SERVED, both_up, pseudowire, round_trip, routers, wait_for};
use crate::tunnels::connect;
use crate::udp::{far, named, near};

/// Sessions that end if BFD had to wait behind the data of a second.
const BFD: &str = "interval = \"100ms\", multiplier = 8, revert = \"1s\"";
/// A million bytes a second.
const RATE: &str = "rate = \"8mbit\"";
const BYTES: f64 = 1e6;

#[test]
fn a_port_sends_no_more_than_its_rate_and_bfd_before_data() {
    let Some(network) = Network::make(1500) else { return };
    connect(&network);
    let home = tempfile::tempdir().unwrap();
    let routers = [("ler1", near(BFD, RATE)), ("ler2", far(BFD))]
        .map(|(name, config)| network.router(home.path(), name, &config));
    let _target = network.serve(home.path(), "serv1", &SERVED);
    for router in &routers {
        wait_for(router, "one", "up by both paths", both_up);
    }
    let read = || {
        let aoe = format!("aoe://{INTERFACE}/7.0");
        network.run("lx", &["bench", &aoe, "--rw", "randread", "--time", "3s"]);
    };
    let count = |key: &str| named(&routers[0], "ports", "wan")[key].as_u64().expect("a number");
    let (began, before) = (Instant::now(), count("sent_bytes"));
    let bins = std::thread::scope(|scope| {
        let bins = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            routers[0].ask(&["route", "bins", "wan", "--time", "1500ms", "--json"])
        });
        read();
        bins.join().expect("it ends")
    });
    let bins: Value = serde_json::from_str(&bins).expect("JSON");
    let bytes: Vec<u64> =
        bins["bytes"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert_eq!(
        (bytes.len(), &bins["port"], &bins["router"]),
        (1500, &"wan".into(), &"router".into())
    );
    let all: u64 = bytes.iter().sum();
    assert!(
        all > 500_000 && all < 1_520_000,
        "{all} bytes in 1.5 s, and the rate allows 1.5 million"
    );
    // A bucket, what a late shard makes up for, and a frame.
    let busiest = bytes.iter().max().expect("milliseconds");
    assert!(*busiest < 5_000, "{busiest} bytes in a millisecond");
    // A bucket, and what a look and the kernel's headers are apart.
    let most = began.elapsed().as_secs_f64() * BYTES + 20_000.0;
    let sent = (count("sent_bytes") - before) as f64;
    assert!(sent <= most, "{sent} bytes, and the rate allows {most}");
    assert!(sent > BYTES, "{sent} bytes in three seconds is no load");
    let (delayed, most) = (count("delayed"), count("queued_max"));
    assert!(delayed > 100 && most > 1, "{delayed} {most}");
    let queued = bins["queued"].as_array().expect("a list").iter().filter_map(Value::as_u64);
    let seen = queued.max().expect("milliseconds");
    assert!((2..=most).contains(&seen), "{seen} frames waited, and {most} in all of the time");
    for router in &routers {
        let one = pseudowire(router, "one");
        assert!(both_up(&one) && one["active"] == "primary", "{one:#}");
        assert_eq!((&one["to_backup"], &one["missing"]), (&0.into(), &0.into()), "{one:#}");
        assert_eq!(one["drops"], Value::Object(<_>::default()), "{one:#}");
    }
    // In place, and then without.
    let said = routers[0].apply(&near(BFD, "rate = \"80mbit\""));
    assert!(flat(said.as_bytes()).contains("~ port wan: rate 8mbit -> 80mbit"), "{said}");
    routers[0].apply(&near(BFD, ""));
    let delayed = count("delayed");
    let before = count("sent_bytes");
    read();
    assert_eq!(count("delayed"), delayed);
    assert!(count("sent_bytes") > before);
    let said = flat(routers[0].ask(&["route", "bins", "serv1", "--time", "5ms"]).as_bytes());
    assert!(said.starts_with("port serv1 of router router: 0 bytes in 5 ms, of which"), "{said}");
    // The file of a server says where it is asked.
    let socket = home.path().join("ler1/ler1.sock");
    let server = format!("[server]\ncontrol = {:?}\n", socket.display().to_string());
    let path = write(home.path(), &(server + &near(BFD, "")));
    let mut command = plateway();
    command.args(["route", "bins", "serv1", "--time", "5ms", "--config", &path]);
    let said = flat(&command.output().expect("it runs").stdout);
    assert!(said.contains("0 bytes in 5 ms"), "{said}");
    let said = routers[0].refuse(&["route", "bins", "nobody"]);
    assert!(said.contains("there is no port \"nobody\" (ports: wan, six, serv1, servi)"), "{said}");
    let said = routers[0].refuse(&["route", "bins", "wan", "--time", "11s"]);
    assert!(said.contains("milliseconds: expected 1 to 10000, seen 11000"), "{said}");
    // One at a time, whoever asks: each is told to wait while the other is counted for.
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let line = ["route", "bins", "wan", "--time", "3s"];
            let mut tries = (0..100).map(|_| routers[0].command(&line));
            tries.find(|output| output.status.success()).expect("nobody else wants that long")
        });
        wait_until("somebody is told to wait", || {
            let second = routers[0].command(&["route", "bins", "wan", "--time", "1ms"]);
            flat(&second.stderr).contains("what leaves by wan is being counted already")
        });
        let said = flat(&first.join().expect("it ends").stdout);
        assert!(said.contains("bytes in 3000 ms"), "{said}");
    });
}

#[test]
fn messages_about_paths_leave_with_a_priority_of_their_own() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), Some(BFD));
    let _target = network.serve(home.path(), "serv1", &SERVED);
    // Counted where a queue with classes would sort them.
    let at = network.at("ler1");
    for line in [
        "add table netdev seen",
        "add counter netdev seen first",
        "add counter netdev seen data",
        "add chain netdev seen out { type filter hook egress device lsr1 priority 0 ; }",
        "add rule netdev seen out meta priority 0:7 counter name first",
        "add rule netdev seen out meta priority 0:0 counter name data",
    ] {
        must(&format!("netns exec {at} nft {line}"));
    }
    let count = |name: &str| -> u64 {
        let mut nft = network.command("ler1", "nft");
        let output =
            nft.args(["list", "counter", "netdev", "seen", name]).output().expect("it runs");
        let text = flat(&output.stdout);
        let packets = text.split_once("packets ").expect("a counter").1;
        packets.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number")
    };
    for router in &routers[..1] {
        wait_for(router, "serv1", "up by both paths", both_up);
    }
    wait_until("BFD goes first", || count("first") > 10);
    let before = (count("first"), count("data"));
    round_trip(&network, home.path(), "lx", 1);
    let (first, data) = (count("first") - before.0, count("data") - before.1);
    assert!(data > 500 && first < data / 2, "{first} first, {data} frames of data");
    // A queue that would not let it is told of, where BFD goes and the router keeps none itself.
    let path = home.path().join("ler1/plateway.toml");
    let check = |path: &std::path::Path| {
        let mut command = network.plateway("ler1");
        let output = command.args(["check", path.to_str().expect("UTF-8")]).output().expect("runs");
        flat(&[output.stdout, output.stderr].concat())
    };
    let words = "lsr1 queues by tbf, which lets BFD wait behind data";
    assert!(!check(&path).contains("lets BFD wait"), "a veth has no queue");
    let tbf = "tbf rate 1gbit burst 64k latency 9ms";
    if let Err(why) = ip(&format!("netns exec {at} tc qdisc add dev lsr1 root {tbf}")) {
        eprintln!("not here: this kernel has no queue without classes: {why}");
        return;
    }
    let said = check(&path);
    assert!(said.contains(words) && !said.contains("lsr2 queues"), "{said}");
    let config = std::fs::read_to_string(&path).expect("its file");
    let shaped = config.replace("ethernet = \"lsr1\"", "ethernet = \"lsr1\"\nrate = \"100mbit\"");
    assert_ne!(config, shaped, "{config}");
    let said = check(write(home.path(), &shaped).as_ref());
    assert!(!said.contains("lets BFD wait"), "{said}");
    must(&format!("netns exec {at} tc qdisc replace dev lsr1 root pfifo_fast"));
    assert!(!check(&path).contains("lets BFD wait"));
}
