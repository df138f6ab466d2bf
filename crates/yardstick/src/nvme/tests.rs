//! The responder and the client against each other, over the loopback interface.

use clap::Parser as _;
use serde_json::Value;

use super::ceiling::Connection;
use super::client::{self, Options};
use crate::responder::tests::start;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// What a short load sees of a responder of its own.
fn load(words: &str) -> Value {
    let to = format!("--connect={}", start::<Connection>());
    let own = ["client", "--seconds=0.05", "--warm-up=0.01", &to];
    let line = Line::parse_from(own.into_iter().chain(words.split_whitespace()));
    client::run(&line.options).unwrap_or_else(|error| panic!("{words}: {error:#}"))
}

#[test]
fn a_uri_says_where_the_disk_is_and_what_its_digests_are() {
    let target = start::<Connection>();
    let with = |uri: &str, words: &str| {
        let own = ["client", "--seconds=0.05", "--warm-up=0.01", "--disk", uri];
        client::run(&Line::parse_from(own.into_iter().chain(words.split_whitespace())).options)
    };
    let nqn = "nqn.2026-11.net.plateway:ceiling";
    let uri = format!("nvme+tcp://{target}/{nqn}/1?hdgst=0&ddgst=0");
    assert!(with(&uri, "--rw=read").expect("a load")["ops"].as_u64() > Some(0));
    for (wrong, why) in [
        ("iscsi://127.0.0.1:1/x/1", "expected nvme+tcp://ADDRESS:PORT/NQN/NSID"),
        ("nvme+tcp://127.0.0.1/x/1", "expected nvme+tcp://ADDRESS:PORT/NQN/NSID"),
        ("nvme+tcp://127.0.0.1:1/x/-1", "expected nvme+tcp://ADDRESS:PORT/NQN/NSID"),
        ("nvme+tcp://127.0.0.1:1/x/1?queues=2", "seen \"queues=2\""),
    ] {
        let error = with(wrong, "").expect_err("refused");
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
    for both in ["--connect=127.0.0.1:1", "--nqn=x", "--nsid=2", "--hdgst", "--ddgst"] {
        assert!(Line::try_parse_from(["client", "--disk", &uri, both]).is_err(), "{both}");
    }
    assert!(Line::try_parse_from(["client"]).is_err(), "nobody says where");
}

#[test]
fn loads_of_every_kind_are_carried_out() {
    for words in [
        "--fill --rw=randread --bs=4k --iodepth=8",
        "--fill --rw=randwrite --bs=4k --iodepth=8 --connections=2",
        "--fill --rw=randwrite --bs=128k --iodepth=4",
        "--fill --rw=randrw=70 --iodepth=128",
        "--fill --rw=read --bs=128k --iodepth=2 --stuck-connections=1",
        "--fill --rw=randrw --bs=64k --idle-connections=6 --idle-queues=2 --kato-ms=20",
        "--rw=randread --rate=2000 --before-write-seconds=0.01",
        "--rw=read",
    ] {
        let seen = load(words);
        assert_eq!(seen["idle_sessions_lost"], 0, "{words}: {seen}");
        // A fill is over before the window opens.
        assert!(!words.contains("--fill") || seen["ops"] == 0, "{words}: {seen}");
    }
}
