//! IP hosts at customers' stations: iSCSI crosses a pseudowire, through the kernel's TCP at both ends.
//!
//! A virtual interface lets its host leave checksums and cutting to hardware, which is not there:
//! routers drop what was left so, count it, and say whom to mend. Here the hosts are mended one by
//! one, while they try.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Server, flat, text};
use crate::lan::{INTERFACE, must, wait_until};
use crate::routed::{Network, routers};
use crate::{MIB, bytes, file};

const ADDRESS: &str = "10.9.0.1:3260";
const DISK: &str = "iscsi://10.9.0.1:3260/iqn.2026-11.net.plateway:v0/0";

/// Whether a station leaves checksums, and the cutting of long segments, to its interface.
fn leave_to_hardware(network: &Network, station: &str, switch: &str) {
    let [checksums, segments] = ["tx", "tso"].map(|what| [what, switch]);
    let mut command = network.command(station, "ethtool");
    command.args(["-K", INTERFACE]).args(checksums).args(segments);
    let output = command.output().expect("ethtool runs");
    assert!(output.status.success(), "{}", flat(&output.stderr));
}

/// How many frames of a circuit a router has counted so.
fn counted(router: &Server, circuit: &str, what: &str) -> u64 {
    let status: Value = router.status();
    let links = status["links"].as_array().expect("links");
    let link = links.iter().find(|one| one["interface"] == circuit).expect("the circuit");
    link[what].as_u64().expect("a number")
}

/// A command at a station, which goes on beside the test.
fn begin(network: &Network, station: &str, args: &[&str]) -> Child {
    let mut command: Command = network.plateway(station);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

/// Its end, which must be a good one.
fn end(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    let said = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.success(), "{said:?}");
    said.0
}

fn says(router: &Server, words: &str) {
    let shown = flat(router.ask(&["status"]).as_bytes());
    assert!(shown.contains(words), "expected {words:?} in {shown}");
}

#[test]
fn iscsi_crosses_a_pseudowire_once_hosts_leave_nothing_to_hardware() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(&network, home.path(), None);
    for (station, host) in [("servi", "10.9.0.1"), ("isx", "10.9.0.2")] {
        must(&format!("-n {} addr add {host}/24 dev {INTERFACE}", network.at(station)));
        leave_to_hardware(&network, station, "on");
    }
    let serve = ["file:disk.img?create=16MiB", "--iscsi", ADDRESS, "--hosts", "any"];
    let _target = network.serve(home.path(), "servi", &serve);
    let written = bytes(5, 16 * MIB);
    fs::write(home.path().join("written"), &written).unwrap();
    let from = file(home.path(), "written");
    // What opens the connection is dropped, then what answers it; TCP tries again.
    let copy = begin(&network, "isx", &["copy", &from, DISK, "--overwrite"]);
    for (edge, station) in [(&routers[1], "isx"), (&routers[0], "servi")] {
        wait_until(&format!("{station} is counted"), || counted(edge, station, "unsummed") > 0);
        says(edge, &format!("interface {station}: "));
        says(edge, "frames came whose checksum was left to hardware that is not there");
        says(edge, "ethtool -K IF tx off");
        leave_to_hardware(&network, station, "off");
    }
    end(copy);
    read_back(&network, home.path(), &written);
    // Cards may be told otherwise while a connection is there: then its segments come uncut.
    let line = [
        "bench",
        DISK,
        "--rw",
        "randrw=50",
        "--bs",
        "64k",
        "--time",
        "15s",
        "--verify",
        "--overwrite",
    ];
    let bench = begin(&network, "isx", &line);
    let received = counted(&routers[0], "servi", "received");
    wait_until("the bench runs", || counted(&routers[0], "servi", "received") > received + 1000);
    // A frame is long only while new data are sent: a moment at which all that is under way are short
    // answers, of which none has a checksum then, makes none, and the connection has to recover first.
    let is_counted = || counted(&routers[0], "servi", "over_mtu") > 0;
    for _ in 0..5 {
        leave_to_hardware(&network, "servi", "on");
        let until = Instant::now() + Duration::from_secs(1);
        while !is_counted() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_counted() {
            break;
        }
        leave_to_hardware(&network, "servi", "off");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(is_counted(), "no long frame was counted");
    says(&routers[0], "frames longer than its MTU came and were dropped");
    says(&routers[0], "ethtool -K IF tso off gso off");
    leave_to_hardware(&network, "servi", "off");
    let said = end(bench);
    assert!(said.contains(" 0 wrong"), "{said}");
}

fn read_back(network: &Network, home: &Path, written: &[u8]) {
    let read = file(home, "read?create=16MiB");
    network.run("isx", &["copy", DISK, &read, "--overwrite"]);
    assert!(fs::read(home.join("read")).unwrap() == written, "written and read back");
}
