//! Paths of plans: what they do to frames is what they say, and what this machine cannot do, or did
//! otherwise, is told.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{alone, common, flat, kept, lab, plateway, run, text};
use rustix::process::{Signal, kill_process};

/// A plan that draws some systems over some paths, each once, and reads 4 KiB.
pub(super) fn plan(systems: &str, paths: &str, load: &str) -> String {
    format!(
        "name = \"paths\"\nwindow = \"100ms\"\nwarm-up = \"0\"\n{systems}{paths}\
         [load]\nblock-size = \"4k\"\npattern = \"randread\"\n{load}\n"
    )
}

/// A system that the lab serves.
fn served(protocol: &str) -> String {
    format!(
        "[[system]]\nname = \"{protocol}\"\nserve = {{ protocol = \"{protocol}\", disk = \"ram:4MiB\" }}\n"
    )
}

pub(super) fn path(name: &str, more: &str) -> String {
    format!("[[path]]\nname = \"{name}\"\n{more}\n")
}

pub(super) fn picture(systems: &[&str], paths: &[&str]) -> String {
    format!("[[picture]]\nname = \"all\"\nsystems = {systems:?}\npath = {paths:?}\n")
}

/// Runs a plan to its end: what was kept. `None` where this machine does not let us, which is told.
pub(super) fn done(plan: &str) -> Option<Value> {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let mut command = lab(directory.path(), &["run", "a.toml"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let own = format!("plateway-lab-{}-", child.id());
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    if lacks(&why) {
        testkit::skipped(why);
        return None;
    }
    assert!(output.status.success(), "{why}\n{}", text(&output.stdout));
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!text(&left.stdout).contains(&own), "{}", text(&left.stdout));
    Some(kept(&directory.path().join("a.result.json")))
}

/// Whether this machine cannot have such a path.
pub(super) fn lacks(why: &str) -> bool {
    ["network namespaces need root", "expected a kernel that"]
        .iter()
        .any(|words| why.contains(words))
}

pub(super) fn trial<'k>(kept: &'k Value, cell: &str) -> &'k Value {
    let mut trials = kept["trials"].as_array().unwrap().iter();
    let found = trials.find(|trial| trial["cell"].as_str().unwrap().starts_with(cell));
    found.unwrap_or_else(|| panic!("no trial of {cell}: {kept}"))
}

pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

const STREAM: &str = "[[system]]\nname = \"tcp\"\nstream = \"tcp\"\n";

/// A plan of a stream. The kernel takes what is sent by a third of its buffer at a time, which is a good part of 100 ms
/// here, so that windows are longer.
fn streams(paths: &str, load: &str) -> String {
    let plan = plan(STREAM, paths, load).replace("\"4k\"", "\"16k\"");
    let plan = plan.replace("warm-up = \"0\"", "warm-up = \"500ms\"");
    plan.replace("window = \"100ms\"", "window = \"400ms\"")
}

#[test]
fn offloads_that_are_switched_on_behind_the_lab_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let program = plateway();
    let program = program.get_program().to_str().unwrap();
    let on = "ethtool -K lab-far tx on tso on gso on";
    let off = "ethtool -K lab-far tso off gso off tx off";
    let serve = format!("exec {program} serve ram:4MiB --nvme 10.77.0.1:4420 --hosts any");
    for (script, words) in [
        (
            format!("{on}; {serve}"),
            "lab-far: expected no offloads, as they were switched off, seen tso, gso, tx",
        ),
        // Nothing is on when it is over: only what was seen tells.
        (
            format!("{on}; (sleep 0.7; {off}) & {serve}"),
            "lab-near: expected frames within the MTU of 1500 bytes, seen",
        ),
    ] {
        let system = format!(
            "[[system]]\nname = \"own\"\nbacking = \"ram\"\ndurable = false\n\
             target = {{ start = [\"sh\", \"-c\", \"{script}\"], uri = \"nvme+tcp://10.77.0.1:4420/nqn.2026-11.net.plateway:v0/1\" }}\n"
        );
        let load = "depth = 8\n".to_owned() + &picture(&["own"], &["lan"]);
        let plan = plan(&system, &path("lan", ""), &load).replace("\"4k\"", "\"64k\"");
        let plan = plan.replace("warm-up = \"0\"", "warm-up = \"1s\"");
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let output = run(directory.path(), &["run", "a.toml", "--overwrite"]);
        let why = flat(&output.stderr);
        if lacks(&why) {
            return testkit::skipped(why);
        }
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains(words), "expected {words}: {why}");
    }
}

#[test]
fn what_a_path_has_between_its_ends_is_said_before_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("a.toml");
    let paths =
        path("long", "delay = \"2ms\"") + &path("core", "kind = \"gre\"") + &path("lan", "");
    let load = "depth = 1\n".to_owned() + &picture(&["nvme"], &["long", "core", "lan"]);
    fs::write(&at, plan(&served("nvme"), &paths, &load)).unwrap();
    let output = run(directory.path(), &["check", "a.toml"]);
    let (said, why) = (text(&output.stdout), flat(&output.stderr));
    if lacks(&why) {
        return testkit::skipped(why);
    }
    assert!(output.status.success(), "{why}");
    assert!(said.contains("path core: its routers are on the ends' last CPUs"), "{said}");
    assert!(!said.contains("path lan:"), "{said}");
    // With netem nothing is between, and offloads may be on.
    let is_relayed = said.contains("path long: a relay");
    let on =
        path("long", "delay = \"2ms\"\noffloads = true") + &path("core", "") + &path("lan", "");
    fs::write(&at, plan(&served("nvme"), &on, &load)).unwrap();
    let output = run(directory.path(), &["check", "a.toml"]);
    let why = flat(&output.stderr);
    assert_eq!(output.status.success(), !is_relayed, "{why}");
    let words =
        "nvme over long with offloads, 4KiB randread, depth 1: delay: expected offloads = false";
    assert!(!is_relayed || why.contains(words), "{why}");
}

#[test]
fn a_relay_says_which_interface_is_not_there() {
    let mut command = plateway();
    command.args(["lab", "relay", "none-here", "lo", "--delay-us", "1", "--bytes-max", "1"]);
    let output = command.output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("none-here: "), "{why}");
}

#[test]
fn routers_and_namespaces_go_with_a_lab_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let load = "depth = 4\n".to_owned() + &picture(&["nvme"], &["core"]);
    let paths = path("core", "kind = \"mpls\"\ndelay = \"1ms\"");
    let plan = plan(&served("nvme"), &paths, &load).replace("\"0\"", "\"60s\"");
    fs::write(directory.path().join("a.toml"), plan).unwrap();
    let mut command = lab(directory.path(), &["run", "a.toml"]);
    // Not where others' runs have their folders: a killed one leaves its own.
    command.env("TMPDIR", directory.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let own = format!("plateway-lab-{}", child.id());
    let until = Instant::now() + common::HANG;
    let routers = || {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        let of = |folder: PathBuf| fs::read(folder.join("cmdline")).unwrap_or_default();
        processes.any(|one| {
            let command = text(&of(one.path()));
            command.contains(&own) && command.contains("router.toml")
        })
    };
    let namespaces = || {
        let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
        text(&list.stdout).contains(&format!("{own}-"))
    };
    while !routers() {
        if child.try_wait().unwrap().is_some() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            assert!(lacks(&flat(why.as_bytes())), "{why}");
            return testkit::skipped(why);
        }
        assert!(Instant::now() < until, "no router runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while routers() || namespaces() {
        assert!(Instant::now() < until, "something is left of {own}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_path_loses_as_much_as_it_says_of_frames_of_any_kind() {
        let paths = path("lossy", "loss = \"3%\"") + &path("lan", "");
        let load = "depth = 32\n".to_owned() + &picture(&["aoe", "iscsi"], &["lossy", "lan"]);
        let Some(kept) = done(&plan(&(served("aoe") + &served("iscsi")), &paths, &load)) else {
            return;
        };
        for protocol in ["aoe", "iscsi"] {
            let lossy = trial(&kept, &format!("{protocol} over lossy"));
            // Some hundred frames at least.
            assert!((0.005..0.08).contains(&number(&lossy["lost_share"])), "{lossy}");
            let plain = trial(&kept, &format!("{protocol} over lan"));
            assert!(plain.get("lost_share").is_none(), "{plain}");
            for trial in [lossy, plain] {
                assert!(number(&trial["measures"]["iops"]) > 0.0, "{trial}");
            }
        }
    }

    #[test]
    fn a_stream_fills_a_link_by_what_headers_leave_of_it_both_ways_and_through_a_gateway() {
        let rate = "rate = \"200Mbit\"";
        let paths = path("lan", rate)
            + &path("jumbo", &format!("{rate}\nmtu = 9000"))
            + &path("nat", &format!("{rate}\nkind = \"nat\""));
        let load = "depth = 1\n".to_owned()
            + &picture(&["tcp"], &["lan", "jumbo", "nat"])
            + "pattern = [\"read\", \"write\"]\njobs = [1, 3]\n";
        let Some(kept) = done(&streams(&paths, &load)) else { return };
        for (path, share) in
            [("lan", 1448.0 / 1514.0), ("jumbo", 8948.0 / 9014.0), ("nat", 1448.0 / 1514.0)]
        {
            for load in [
                "read, depth 1",
                "read, depth 1, 3 jobs",
                "write, depth 1",
                "write, depth 1, 3 jobs",
            ] {
                let trial = trial(&kept, &format!("tcp over {path}, 16KiB {load}"));
                let bits = number(&trial["measures"]["throughput"]) * 8.0;
                // What a bucket lets through at once, and a machine that others use, move it.
                assert!(
                    (0.75..1.25).contains(&(bits / share / 200e6)),
                    "{path} {load}: {bits} {trial}"
                );
                let wire = number(&trial["wire_bytes_per_op"]) / 16384.0;
                // What waits in the kernel to be sent counts as sent, and was not on the wire yet.
                let least = if load.starts_with("read") { 1.0 / share } else { 0.7 };
                assert!(wire >= least * 0.99 && wire < 1.4, "{path} {load}: {wire}");
            }
        }
    }

    #[test]
    fn a_stream_goes_through_every_tunnel_and_over_what_loses_frames() {
        let kinds = ["mpls", "gre", "l2tp", "mpls-udp"];
        // What waits in the kernel to be sent, megabytes of it, is sent before a trial is over.
        let of = |kind: &str| path(kind, &format!("kind = \"{kind}\"\nrate = \"200Mbit\""));
        let paths = kinds.map(of).concat() + &path("lossy", "rate = \"200Mbit\"\nloss = \"2%\"");
        let all: Vec<&str> = kinds.into_iter().chain(["lossy"]).collect();
        let load = "depth = 1\njobs = 2\n".to_owned()
            + &picture(&["tcp"], &all)
            + "pattern = [\"read\", \"write\"]\n";
        let Some(kept) = done(&streams(&paths, &load)) else { return };
        for path in all {
            for pattern in ["read", "write"] {
                let trial =
                    trial(&kept, &format!("tcp over {path}, 16KiB {pattern}, depth 1, 2 jobs"));
                let bits = number(&trial["measures"]["throughput"]) * 8.0;
                // A machine that has much to do, and TCP that backs off, may carry less, and nobody more than the rate
                // and what waits in the kernel to be sent.
                assert!((1e6..400e6).contains(&bits), "{path} {pattern}: {bits} bit/s: {trial}");
                if path == "lossy" {
                    assert!((0.001..0.1).contains(&number(&trial["lost_share"])), "{trial}");
                } else if let Some(core) = trial.get("core_bytes_per_op") {
                    // A machine that has much to do may be late with its looks, and then tells none.
                    assert!(number(core) > number(&trial["wire_bytes_per_op"]), "{path}: {trial}");
                }
            }
        }
    }

    #[test]
    fn a_delay_is_added_twice_to_each_round_trip_and_to_nothing_else() {
        let paths = path("long", "delay = \"4ms\"") + &path("lan", "");
        let systems = served("nvme") + &served("aoe");
        let load = "depth = 1\n".to_owned() + &picture(&["nvme", "aoe"], &["long", "lan"]);
        let Some(kept) = done(&plan(&systems, &paths, &load)) else { return };
        for protocol in ["nvme", "aoe"] {
            let [long, lan] =
                ["long", "lan"].map(|path| trial(&kept, &format!("{protocol} over {path}")));
            let least = |trial: &Value| number(&trial["bench"]["latency_ns"]["min"]);
            // The fastest of all, since a machine that has much to do is late with most; early is nothing.
            assert!(least(long) >= 7.95e6 && least(lan) < least(long), "{long}\n{lan}");
            assert!(long["far"].get("cpu_us_per_op").is_none(), "{long}");
            let notes = long["notes"].to_string();
            assert!(!notes.contains("dropped"), "{long}");
        }
    }

    #[test]
    fn every_protocol_is_measured_over_every_kind_of_path() {
        let kinds = ["mpls", "gre", "l2tp", "mpls-udp"];
        let paths: String = kinds.map(|kind| path(kind, &format!("kind = \"{kind}\""))).concat();
        let door = "[[system]]\nname = \"door\"\nserve = { protocol = \"aoe\", disk = \"ram:4MiB\", access = \"xdp\" }\n";
        let all = ["aoe", "iscsi", "nvme"].map(served).concat() + door;
        let others = picture(&["iscsi", "door"], &["mpls"]).replace("\"all\"", "\"others\"");
        let load = "depth = 4\n".to_owned() + &picture(&["aoe", "nvme"], &kinds) + &others;
        let Some(kept) = done(&plan(&all, &paths, &load)) else { return };
        // Around each frame: two labels, a control word and a header are 26 bytes; IP (20), GRE with key
        // and number (12) and the header 46; IP, UDP, L2TPv3 with its sublayer 54; IP, UDP, labels 54.
        let expected = [26.0, 46.0, 54.0, 54.0];
        for (kind, expected) in kinds.into_iter().zip(expected) {
            let others = if kind == "mpls" { &["iscsi", "door"][..] } else { &[] };
            let mut looks = 0;
            for system in ["aoe", "nvme"].iter().chain(others) {
                let trial = trial(&kept, &format!("{system} over {kind}"));
                assert!(number(&trial["measures"]["iops"]) > 0.0, "{trial}");
                // A machine that has much to do may be late with its looks.
                let Some(core) = trial.get("core_bytes_per_op").map(number) else { continue };
                looks += 1;
                let tasks = format!("{}{}", trial["near"]["by_task"], trial["far"]["by_task"]);
                assert!(tasks.contains("ler1") || tasks.contains("ler2"), "{trial}");
                assert!(kind == "mpls" || !tasks.contains("\"core\""), "{trial}");
                let wire = number(&trial["wire_bytes_per_op"]);
                let more = (core - wire) / number(&trial["frames_per_op"]);
                // Frames of AoE are a question and the same answers each time; segments of TCP are not.
                let far = if ["aoe", "door"].contains(system) { 12.0 } else { 150.0 };
                assert!(
                    (more - expected).abs() < far,
                    "{kind}: {more} bytes more a frame: {trial}"
                );
            }
            assert!(looks > 0, "nothing was seen of {kind}: {kept}");
        }
    }

    #[test]
    fn what_the_first_router_sends_to_the_core_is_counted_where_it_is_compared() {
        let paths = path("core", "kind = \"mpls\"\nrate = \"20Mbit\"");
        let load = "depth = 16\n[[compare]]\nsystems = [\"aoe\"]\nreference = \"nvme\"\npath = \"core\"\n\
        difference = \"100%\"\nof = [\"core-burstiness\", \"core-queue\"]\n";
        let plan = plan(&(served("aoe") + &served("nvme")), &paths, load);
        let plan = plan.replace("randread", "randwrite");
        // Nobody waits for a machine that has much to do.
        let plan = plan.replace("warm-up =", "rounds = 6\nshared = true\nwarm-up =");
        let Some(kept) = done(&plan) else { return };
        let group = &kept["results"]["groups"][0];
        assert!(group["rounds"].as_array().unwrap().len() <= 6, "{group}");
        assert!(group.get("sizing").is_none_or(Value::is_null), "nobody was a pilot: {group}");
        for system in ["aoe", "nvme"] {
            let trial = trial(&kept, &format!("{system} over core"));
            let measures = &trial["measures"];
            // A bucket and a frame are all that leaves in a millisecond, on top of what a late router makes up for.
            let bursts = number(&measures["core-burstiness"]);
            assert!((1.0..20_000.0).contains(&bursts), "{trial}");
            // 16 of 4 KiB are three frames each at least, and the port sends one in half a millisecond.
            assert!(number(&measures["core-queue"]) > 2.0, "{trial}");
            assert_eq!(number(&measures["core-queue"]), number(&trial["core_queue"]), "{trial}");
        }
        let null = trial(&kept, "null");
        assert!(
            null.get("core_burstiness").is_none() && null["measures"].get("core-queue").is_none()
        );
    }

    #[test]
    fn a_rate_is_that_of_the_span_whatever_it_carries() {
        let kinds = ["direct", "mpls", "gre"];
        let of = |kind: &&str| path(kind, &format!("kind = \"{kind}\"\nrate = \"20Mbit\""));
        let paths: String = kinds.iter().map(of).collect();
        let load = "depth = 16\n".to_owned() + &picture(&["nvme"], &kinds);
        let plan = plan(&served("nvme"), &paths, &load).replace("\"100ms\"", "\"300ms\"");
        let Some(kept) = done(&plan) else { return };
        for kind in kinds {
            let trial = trial(&kept, &format!("nvme over {kind}"));
            let throughput = number(&trial["measures"]["throughput"]) * 8.0;
            // A machine that has much to do may carry less, and nobody more.
            assert!((2e6..20.5e6).contains(&throughput), "{kind}: {throughput} bit/s\n{trial}");
        }
    }

    #[test]
    fn a_gateway_carries_tcp_and_refuses_aoe_at_its_line() {
        let systems = served("iscsi") + &served("nvme");
        let load = "depth = 4\n".to_owned() + &picture(&["iscsi", "nvme"], &["home"]);
        let home = path("home", "kind = \"nat\"\ndelay = \"1ms\"\nloss = \"0.1%\"");
        let Some(kept) = done(&plan(&systems, &home, &load)) else { return };
        for system in ["iscsi", "nvme"] {
            let trial = trial(&kept, &format!("{system} over home"));
            assert!(number(&trial["measures"]["iops"]) > 0.0, "{trial}");
            assert!(number(&trial["measures"]["p50"]) >= 2e6, "{trial}");
        }
        let directory = tempfile::tempdir().unwrap();
        let load = "depth = 4\n".to_owned() + &picture(&["aoe"], &["home"]);
        fs::write(directory.path().join("a.toml"), plan(&served("aoe"), &home, &load)).unwrap();
        let output = run(directory.path(), &["check", "a.toml"]);
        let why = flat(&output.stderr);
        assert!(why.contains("path \"home\" is of kind nat"), "{why}");
    }

    #[test]
    fn a_stream_whose_far_end_goes_is_no_trial() {
        let _alone = alone();
        let directory = tempfile::tempdir().unwrap();
        let load = "depth = 1\n".to_owned() + &picture(&["tcp"], &["lan"]);
        let plan = plan(STREAM, &path("lan", ""), &load).replace("randread", "write");
        let plan = plan.replace("window = \"100ms\"", "window = \"5s\"");
        fs::write(directory.path().join("a.toml"), plan).unwrap();
        let mut command = lab(directory.path(), &["run", "a.toml"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let sink = loop {
            if let Some(sink) = common::child_of(&child, |words| words.contains(&"sink")) {
                break sink;
            }
            assert!(Instant::now() < end, "it starts no sink");
            std::thread::sleep(Duration::from_millis(20));
        };
        // The client is on its way by then, or not: both are told.
        std::thread::sleep(Duration::from_millis(700));
        let _ = kill_process(sink, Signal::KILL);
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr) + &text(&output.stdout);
        if lacks(&why) {
            return testkit::skipped(why);
        }
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains("plateway lab sink ended with signal: 9"), "{why}");
    }
}
