//! What monitoring reads: parsed by a parser of others while hosts of three protocols are at work and
//! a disk fails, compared with its documentation, and bounded for whoever asks.

mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "aoe/lan.rs"]
mod lan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsValue};
use serde_json::Value;

use crate::common::{HANG, Server, write};
use crate::lan::{INITIATOR, INTERFACE, Lan};

const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:v0";
const HOST: &str = "nqn.2026-11.net.plateway:me";
const TARGET: &str = "iqn.2026-11.net.plateway:v0";
const PORT: &str = "iqn.2026-11.net.plateway:me";

/// Samples by name and labels: a number, or of a histogram how many and their sum.
type Samples = BTreeMap<(String, BTreeMap<String, String>), (f64, f64)>;

fn number(number: &MetricNumber) -> f64 {
    number.as_f64()
}

/// What a text says, if it is OpenMetrics.
fn parse(text: &str) -> Samples {
    // The parser takes no units of histograms and no family without samples, which the standard has.
    let lines: Vec<&str> = text.lines().collect();
    let has_samples = |line: &str| {
        let name = line.split(' ').nth(2).unwrap_or("-");
        lines.iter().any(|line| line.starts_with(name)) || line == "# EOF"
    };
    let is_known = |line: &&&str| {
        let is_unit = line.starts_with("# UNIT") && line.contains("_latency_");
        !line.starts_with('#') || !is_unit && has_samples(line)
    };
    let known: String = lines.iter().filter(is_known).map(|line| format!("{line}\n")).collect();
    let parsed = parse_openmetrics(&known).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut samples = Samples::new();
    for (name, family) in parsed.families {
        for sample in family.iter_samples() {
            let labels = sample.get_labelset().expect("labels");
            let labels = labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            let value = match &sample.value {
                OpenMetricsValue::Counter(counter) => (number(&counter.value), 0.0),
                OpenMetricsValue::Gauge(gauge) => (number(gauge), 0.0),
                OpenMetricsValue::Histogram(histogram) => {
                    let last = histogram.buckets.last().expect("buckets");
                    let count = histogram.count.expect("a count") as f64;
                    assert_eq!((last.upper_bound, number(&last.count)), (f64::INFINITY, count));
                    (count, histogram.sum.as_ref().map_or(0.0, number))
                }
                _ => (1.0, 0.0),
            };
            assert!(samples.insert((name.clone(), labels), value).is_none(), "{name} twice");
        }
    }
    samples
}

/// The sum of all samples of a name that have these labels.
fn sum(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let fits = |have: &BTreeMap<String, String>| {
        labels.iter().all(|(key, value)| have.get(*key).is_some_and(|has| has == value))
    };
    let mine = samples.iter().filter(|((of, have), _)| of == name && fits(have));
    mine.map(|(_, (count, _))| count).sum()
}

/// Asks over HTTP, and returns head and body.
fn ask(mut stream: impl Read + Write, request: &str) -> (String, String) {
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const GET: &str = "GET /v1/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

fn control(directory: &Path, name: &str) -> UnixStream {
    UnixStream::connect(directory.join(format!("{name}.sock"))).expect("a server")
}

/// What the control socket tells; it is no TCP, so that it can be asked from any namespace.
fn scrape(directory: &Path, name: &str) -> String {
    let (head, text) = ask(control(directory, name), GET);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    text
}

/// Where a server's metrics are read over TCP.
fn connect(server: &Server) -> TcpStream {
    let status = server.status();
    let address = status["metrics"].as_str().expect("an address");
    let stream = TcpStream::connect(address).expect("it is listened there");
    stream.set_read_timeout(Some(HANG)).expect("a time limit");
    stream
}

fn configuration(metrics: &str) -> String {
    format!(
        "[server]\n{metrics}\n[[disk]]\nname = \"d0\"\nuri = \"faulty:7,file:d0.img?create=8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n[[listener]]\nnvme = \"127.0.0.1:0\"\n\
         [[export]]\nvolume = \"v0\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = [\"{HOST}\"] }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = [\"{PORT}\"] }}\n\
         [[listener]]\niscsi = \"127.0.0.1:0\"\n"
    )
}

#[test]
fn three_protocols_and_a_disk_that_fails_are_counted_where_they_belong() {
    let Some(lan) = Lan::make("9000") else { return };
    let home = tempfile::tempdir().unwrap();
    let aoe = |slot, hosts: &str| {
        format!(
            "[[export]]\nvolume = \"v0\"\naoe = {{ interface = \"{INTERFACE}\", shelf = 7, slot = {slot}, hosts = {hosts} }}\n"
        )
    };
    let listed = aoe(0, &format!("[\"{INITIATOR}\", \"02:00:00:00:00:77\"]"));
    let config = configuration("") + &listed + &aoe(1, "\"any\"");
    let server = lan.serve(home.path(), &["--config", &write(home.path(), &config)]);
    let (target, initiator) = (&lan.target, &lan.initiator);
    let nvme = format!("nvme+tcp://{}/{SUBSYSTEM}/1?host_nqn={HOST}", server.address);
    let iscsi = format!("iscsi://{}/{TARGET}/0?initiator=", server.listens("iscsi"));
    let line =
        ["--rw", "randrw=50", "--iodepth", "4", "--time", "1", "--warmup", "0", "--overwrite"];
    let load = |from: &str, uri: &str| {
        let mut bench = lan.plateway(from);
        bench.args(["bench", uri]).args(line).output().expect("it runs");
    };
    // A bench ends at the first error, which the disk has in store for one operation in 64.
    let failed = |text: &str| {
        let samples = parse(text);
        let of = |kind| sum(&samples, "plateway_disk_errors", &[("disk", "d0"), ("kind", kind)]);
        of("medium_read") + of("medium_write")
    };
    let (v7_0, v7_1) = (format!("aoe://{INTERFACE}/7.0"), format!("aoe://{INTERFACE}/7.1"));
    let each =
        [(SUBSYSTEM, HOST), (TARGET, PORT), ("veth0/7.0", INITIATOR), ("veth0/7.1", "other")];
    let has_worked = |text: &str, (export, host): (&str, &str)| {
        let labels = [("export", export), ("host", host)];
        sum(&parse(text), "plateway_host_operations", &labels) > 0.0
    };
    for _ in 0..100 {
        load(target, &nvme);
        load(target, &format!("{iscsi}{PORT}"));
        load(initiator, &v7_0);
        load(initiator, &v7_1);
        // A disk that failed a flush refuses writes: then a bench may end before its first read.
        let text = scrape(home.path(), "aoe");
        if failed(&text) > 0.0 && each.iter().all(|one| has_worked(&text, *one)) {
            break;
        }
    }
    // Nobody named this one.
    load(target, &format!("{iscsi}{PORT}-too"));
    let text = scrape(home.path(), "aoe");
    assert!(failed(&text) > 0.0, "the disk did not fail: {text}");
    let samples = parse(&text);
    let total = |name: &str, labels: &[(&str, &str)]| sum(&samples, name, labels);
    for (export, host) in each {
        let labels = [("export", export), ("host", host)];
        assert!(total("plateway_host_operations", &labels) > 0.0, "{export} {host}: {text}");
        assert!(total("plateway_host_transferred_bytes", &labels) > 0.0, "{export} {host}");
    }
    let stranger = [("host", "02:00:00:00:00:77")];
    assert_eq!(total("plateway_host_operations", &stranger), 0.0);
    assert_eq!(total("plateway_host_operations", &[("export", TARGET), ("host", "other")]), 0.0);
    assert!(total("plateway_hosts_connected", &[]) > 1.0, "{text}");
    assert!(total("plateway_hosts_not_named", &[]) > 0.0, "{text}");
    // 7.0 names all who use it, and 7.1 nobody.
    let of_others = [("export", "veth0/7.0"), ("host", "other")];
    assert_eq!(total("plateway_host_operations", &of_others), 0.0, "{text}");
    assert!(total("plateway_volume_errors", &[("volume", "v0")]) > 0.0, "{text}");
    for (what, name) in [("volume", "v0"), ("disk", "d0")] {
        for operation in ["read", "write"] {
            let labels = [(what, name), ("operation", operation)];
            let asked = total(&format!("plateway_{what}_operations"), &labels);
            let timed = total(&format!("plateway_{what}_latency_seconds"), &labels);
            // What was refused since the disk takes no writes went nowhere.
            assert!(asked > 0.0 && timed <= asked + 1e-9 && timed > 0.0, "{labels:?}: {text}");
        }
    }
    let slow = |((name, _), (_, sum)): (&(String, _), &(f64, f64))| {
        name == "plateway_disk_latency_seconds" && *sum > 0.0
    };
    assert!(samples.iter().any(slow), "files take time: {text}");
    let shards = total("plateway_shard_turns", &[]);
    assert!(total("plateway_shard_sleeps", &[]) <= shards && shards > 0.0);
    assert!(total("plateway_link_received_frames", &[("interface", INTERFACE)]) > 0.0);
    assert!(total("plateway_aoe_reads", &[]) > 0.0 && total("plateway_nvme_commands", &[]) > 0.0);
    // Its disk may have failed a flush; then it could not end well.
    server.kill();
}

/// The names of all families, as their samples have them but for a histogram's.
fn exported(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| {
            let (name, kind) = line.split_once(' ').expect("a kind");
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            format!("{name}{suffix}")
        })
        .collect()
}

#[test]
fn every_name_is_documented_and_every_documented_name_is_there() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::of(home.path(), "a", "ram:8MiB");
    let text = scrape(home.path(), "a");
    parse(&text);
    let exported = exported(&text);
    let page = fs::read_to_string(format!("{ROOT}/docs/metrics.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `plateway_"));
    let documented: BTreeSet<String> =
        rows.map(|row| format!("plateway_{}", row.split('`').next().expect("a name"))).collect();
    let missing: Vec<_> = exported.symmetric_difference(&documented).collect();
    assert!(missing.is_empty(), "in one of docs/metrics.md and the exposition: {missing:?}");
    assert!(exported.len() > 50, "{exported:?}");
}

#[test]
fn the_dashboard_can_be_imported_and_asks_for_what_is_there() {
    let home = tempfile::tempdir().unwrap();
    let _server = Server::of(home.path(), "a", "ram:8MiB");
    let exported = exported(&scrape(home.path(), "a"));
    let file = fs::read_to_string(format!("{ROOT}/contrib/grafana/plateway.json")).expect("it");
    let dashboard: Value = serde_json::from_str(&file).expect("JSON");
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    assert_eq!((&dashboard["title"], &dashboard["id"]), (&"Plateway".into(), &Value::Null));
    let input = &dashboard["__inputs"][0];
    assert_eq!((&input["name"], &input["type"]), (&"DS_PROMETHEUS".into(), &"datasource".into()));
    let source = serde_json::json!({ "type": "prometheus", "uid": "${DS_PROMETHEUS}" });
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        let place = &panel["gridPos"];
        assert!(["h", "w", "x", "y"].iter().all(|key| place[key].is_u64()), "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"], source);
        for target in panel["targets"].as_array().expect("queries") {
            assert_eq!(target["datasource"], source);
            queries.push(target["expr"].as_str().expect("a query"));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        assert_eq!(variable["datasource"], source);
        queries.push(variable["query"]["query"].as_str().expect("a query"));
    }
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let names = queries.iter().flat_map(|query| query.split(word));
    let names: BTreeSet<&str> = names.filter(|name| name.starts_with("plateway_")).collect();
    assert!(panels.len() > 20 && names.len() > 20, "{names:?}");
    for name in names {
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
        assert!(exported.contains(histogram.unwrap_or(name)), "{name} is not exported");
    }
}

#[test]
fn an_address_comes_moves_and_goes_by_apply_and_a_wrong_one_is_refused_at_its_line() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::configured(home.path(), &configuration(""));
    let with = |address: &str| configuration(&format!("metrics = \"{address}\""));
    assert!(server.check(&with("127.0.0.1:0")).contains("+ metrics 127.0.0.1:0"));
    server.apply(&with("127.0.0.1:0"));
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let (head, text) = ask(connect(&server), get);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(sum(&parse(&text), "plateway_disk_size_bytes", &[("disk", "d0")]) > 0.0, "{text}");
    let (_, config) = ask(control(home.path(), "a"), &GET.replace("metrics", "config"));
    assert!(config.contains("\nmetrics = \"127.0.0.1:0\"\n"), "{config}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let told = server.refuse_apply(&with(&taken));
    assert!(told.contains("cannot listen at") && told.contains(&taken), "{told}");
    assert!(ask(connect(&server), get).0.starts_with("HTTP/1.1 200"), "what was there stays");
    let moved = server.apply(&with("127.0.0.2:0"));
    assert!(moved.contains("- metrics 127.0.0.1:0") && moved.contains("+ metrics 127.0.0.2:0"));
    server.apply(&configuration(""));
    assert!(server.status()["metrics"].is_null());
    for (address, wanted) in [
        ("localhost", "metrics: expected a colon and a port after the host"),
        ("127.0.0.1:99999", "metrics: expected a port of 0 to 65535"),
    ] {
        let told = server.refuse(&["check", &write(home.path(), &with(address))]);
        assert!(told.contains(wanted) && told.contains("plateway.toml:2"), "{told}");
    }
    let twice =
        with("0.0.0.0:4420").replace("127.0.0.1:0\"\n[[export", "127.0.0.1:4420\"\n[[export");
    let told = server.refuse(&["check", &write(home.path(), &twice)]);
    assert!(told.contains("both answer on TCP port 4420"), "{told}");
}

#[test]
fn whoever_asks_for_anything_else_or_never_ends_is_bounded_and_holds_up_nobody() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(
        home.path(),
        "a",
        &["ram:8MiB", "--nvme", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
    );
    let code = |request: &str| ask(connect(&server), request).0;
    assert!(code("GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(code("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(code("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    assert!(!code(&long).starts_with("HTTP/1.1 200"));
    // As many as may be answered at a time, none of which says anything: they are closed.
    let silent: Vec<TcpStream> = (0..8).map(|_| connect(&server)).collect();
    let (head, _) = ask(connect(&server), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop(silent);
    // A taken address stops no start.
    let address = server.status()["metrics"].as_str().expect("an address").to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Server::start(
        elsewhere.path(),
        "b",
        &["ram:8MiB", "--nvme", "127.0.0.1:0", "--metrics", &address],
    );
    other.wait_for_log("failed and is tried again");
    server.stop();
    other.wait_for("the address", |status| status["metrics"].is_string());
}
