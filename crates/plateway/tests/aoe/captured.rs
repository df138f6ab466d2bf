//! What is on a cable of the core while a customer works: taken by dumpcap and read by tshark, which
//! know nothing of this program.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{flat, text};
use crate::lan::{INITIATOR, INTERFACE, TARGET, wait_until};
use crate::routed::{Network, SERVED, both_up, pseudowire, routers, wait_for};

/// Frames that are taken, and room for all of them, so that none is missed: MiB.
const TAKEN: usize = 4000;
const ROOM: &str = "16";
/// The stacks of customer 1 on the cable.
const TO_LX: &str = "102,1002";
const TO_SERV1: &str = "112,1001";
/// Sessions that outlast a machine which is busy elsewhere.
const BFD: &str = "interval = \"100ms\", multiplier = 50";
/// The state of a session, as tshark writes it.
const UP: &str = "0x03";
/// The columns that are asked for, in this order.
const FIELDS: [&str; 16] = [
    "frame.protocols",
    "mpls.label",
    "mpls.bottom",
    "mpls.exp",
    "mpls.ttl",
    "pweth.cw.sequence_number",
    "eth.src",
    "aoe.major",
    "aoe.minor",
    "aoe.response",
    "pwach.channel_type",
    "bfd.sta",
    "bfd.detect_time_multiplier",
    "bfd.desired_min_tx_interval",
    "bfd.your_discriminator",
    "_ws.expert",
];

/// What tshark says of a frame; where a field stands several times, all of it with commas.
#[derive(Debug)]
struct Row {
    values: BTreeMap<&'static str, String>,
}

impl Row {
    fn get(&self, field: &str) -> &str {
        &self.values[field]
    }
}

pub(crate) fn is_there(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is no mistake.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes so many frames of an interface that a filter takes, while `work` is done.
pub(crate) fn capture(
    network: &Network,
    at: (&str, &str),
    (into, count, filter): (&Path, usize, &str),
    work: impl FnOnce(),
) {
    let mut command = network.command(at.0, "dumpcap");
    command.args(["-q", "-i", at.1, "-B", ROOM, "-c", &count.to_string(), "-f", filter, "-w"]);
    command.arg(into);
    let said = into.with_extension("log");
    let log = File::create(&said).expect("a log");
    let mut dumpcap = Running(command.stdout(Stdio::null()).stderr(log).spawn().expect("it runs"));
    // It says so once it listens.
    wait_until("dumpcap listens", || {
        std::fs::read_to_string(&said).expect("its log").contains("File: ")
    });
    work();
    // There is more than is wanted, so this comes to an end.
    let status = dumpcap.0.wait().expect("it ends");
    assert!(status.success(), "{}", std::fs::read_to_string(&said).expect("its log"));
}

/// What tshark, with more arguments, says of each frame: these fields.
pub(crate) fn fields(file: &Path, more: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-E", "occurrence=a"]).args(more);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", flat(&output.stderr));
    let row = |line: &str| -> Vec<String> {
        let values: Vec<_> = line.split('\t').map(str::to_owned).collect();
        assert_eq!(values.len(), fields.len(), "{line}");
        values
    };
    text(&output.stdout).lines().map(row).collect()
}

#[test]
fn a_core_link_carries_what_tshark_takes_for_pseudowires_aoe_and_bfd() {
    for program in ["dumpcap", "tshark"] {
        if !is_there(program) {
            testkit::skipped(format_args!("{program} is not there (Debian package tshark)"));
            return;
        }
    }
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), Some(BFD));
    let _target = network.serve(home.path(), "serv1", &SERVED);
    for (router, name) in [(&routers[0], "serv1"), (&routers[1], "lx")] {
        wait_for(router, name, "up by both paths", both_up);
    }
    let aoe = format!("aoe://{INTERFACE}/7.0");
    let file = home.path().join("core.pcapng");
    capture(&network, ("lsr1", "lsr2"), (&file, TAKEN, ""), || {
        for (router, name) in [(&routers[0], "serv1"), (&routers[1], "lx")] {
            let heard = |one: &Value| one["channel_messages"].as_u64().expect("a number");
            let before = heard(&pseudowire(router, name));
            wait_for(router, name, "told of its paths", |one| heard(one) > before + 20);
        }
        let line = ["--rw", "randrw=50", "--rate", "500", "--time", "2s", "--overwrite"];
        network.run("lx", &[&["bench", &aoe][..], &line].concat());
    });
    let decode = ["-d", "mpls.label==1001,pwethcw", "-d", "mpls.label==1002,pwethcw"];
    let rows = fields(&file, &decode, &FIELDS).into_iter();
    let rows: Vec<Row> =
        rows.map(|values| Row { values: FIELDS.into_iter().zip(values).collect() }).collect();
    assert_eq!(rows.len(), TAKEN);
    // By the labels that a packet has: the number that comes next, and the session's discriminator.
    let (mut next, mut sessions) = (BTreeMap::new(), BTreeMap::new());
    for row in &rows {
        assert_eq!(row.get("_ws.expert"), "", "{row:?}");
        // The tunnel's label, in which one switch has gone by, and the pseudowire's.
        let way = row.get("mpls.label").to_owned();
        assert!([TO_LX, TO_SERV1].contains(&&*way), "{row:?}");
        assert_eq!((row.get("mpls.bottom"), row.get("mpls.ttl")), ("0,1", "254,255"), "{row:?}");
        match row.get("pwach.channel_type") {
            "" => {
                let number = check_data(row, way == TO_LX);
                let expected = next.insert(way, number % 65_535 + 1);
                assert!(expected.is_none_or(|expected| expected == number), "{row:?}");
            }
            _ => {
                let yours = check_bfd(row);
                let first = sessions.entry(way).or_insert(yours);
                assert_eq!(*first, yours, "{row:?}");
            }
        }
    }
    // Both ways, and BFD beside data.
    assert_eq!((next.len(), sessions.len()), (2, 2));
}

/// A packet of AoE; its number in the pseudowire.
fn check_data(row: &Row, is_to_lx: bool) -> u32 {
    assert!(row.get("frame.protocols").ends_with(":mpls:eth:ethertype:aoe"), "{row:?}");
    let (station, response) = if is_to_lx { (TARGET, "1") } else { (INITIATOR, "0") };
    assert!(row.get("eth.src").ends_with(station), "{row:?}");
    let said = ["mpls.exp", "aoe.major", "aoe.minor", "aoe.response"].map(|field| row.get(field));
    assert_eq!(said, ["0,0", "0x0007", "0x00", response], "{row:?}");
    row.get("pweth.cw.sequence_number").parse().expect("a number")
}

/// A packet of BFD, in the class of the network's own control; the discriminator of who hears it.
fn check_bfd(row: &Row) -> &str {
    assert!(row.get("frame.protocols").ends_with(":mpls:pwach:bfd"), "{row:?}");
    let [class, channel] = ["mpls.exp", "pwach.channel_type"].map(|field| row.get(field));
    assert_eq!((class, channel), ("6,6", "0x0007"), "{row:?}");
    let said = ["bfd.sta", "bfd.detect_time_multiplier", "bfd.desired_min_tx_interval"];
    assert_eq!(said.map(|field| row.get(field)), [UP, "50", "100000"], "{row:?}");
    let yours = row.get("bfd.your_discriminator");
    assert_ne!(yours, "0x00000000", "{row:?}");
    yours
}
