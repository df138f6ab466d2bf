//! `plateway bench`: its report, its refusals, and that it notices what is wrong.
//!
//! No figure is judged: only that figures are there, and that data are told to be right or wrong.

#[allow(unreachable_pub)]
mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, flat, plateway, resident, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// `plateway bench` for the shortest time that it takes.
fn bench(directory: &Path, args: &[&str]) -> Output {
    let mut command = plateway();
    command.current_dir(directory).env("XDG_STATE_HOME", directory);
    let time: &[&str] = if args.contains(&"--steady") { &[] } else { &["--time", "1"] };
    command.arg("bench").args(args).args(time).args(["--warmup", "0"]);
    command.output().expect("it runs")
}

fn report(directory: &Path, args: &[&str]) -> Value {
    let output = bench(directory, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_report_has_its_figures_and_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["ram:16MiB", "--rw", "randrw=50", "--iodepth", "4", "--numjobs", "2"];
    let report = report(directory.path(), &args);
    for figure in [
        "/iops",
        "/bytes_per_second",
        "/latency_ns/p50",
        "/latency_ns/p99.99",
        "/latency_ns/max",
        "/cpu_us_per_io/initiator",
        "/seconds",
    ] {
        assert!(report.pointer(figure).is_some_and(Value::is_number), "{figure}: {report:#}");
    }
    assert_eq!(report["errors"], 0);
    assert_eq!(report["closed_or_open_loop"], "closed");
    for word in
        ["/environment/kernel", "/environment/cpu", "/environment/date", "/environment/version"]
    {
        assert!(report.pointer(word).is_some_and(Value::is_string), "{word}: {report:#}");
    }
}

#[test]
fn a_modelled_disk_is_measured_by_name_and_by_its_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("m.toml"), "channels = 2\nservice_us = 1000\n").unwrap();
    for uri in ["model:hdd-10k,ram:16MiB", "model:./m.toml?service=exponential,null:16MiB"] {
        let report = report(directory.path(), &[uri, "--rw", "randread", "--iodepth", "4"]);
        assert_eq!((&report["errors"], report["iops"].as_f64() > Some(0.0)), (&0.into(), true));
        assert!(report.to_string().contains(uri), "{report:#}");
    }
}

#[test]
fn an_instrument_holds_no_answer_back_for_too_short_and_says_how_much_longer_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let slow = ["delay:200,null:16MiB", "--rw", "randread", "--iodepth", "4"];
    // Jobs are shared out among shards, each of which counts on the same disk.
    for more in [&[][..], &["--numjobs", "4"][..]] {
        let delayed = report(directory.path(), &[&slow[..], more].concat());
        let figure = |at: &str| delayed.pointer(at).and_then(Value::as_f64).expect("a figure");
        // As three digits tell it.
        assert!(figure("/latency_ns/min") >= 199_900.0, "{delayed:#}");
        assert!(figure("/late_ns/p50") <= figure("/late_ns/p99"), "{delayed:#}");
        // Whoever asked sees it later still, but for what the digits leave open.
        let late = 200e3 + figure("/late_ns/p50") - 1e3;
        assert!(figure("/latency_ns/p50") >= late, "{delayed:#}");
    }
    let plain = report(directory.path(), &["null:16MiB", "--rw", "randread"]);
    assert!(plain.get("late_ns").is_none(), "{plain:#}");
    let table = text(&bench(directory.path(), &slow).stdout).to_owned();
    assert!(table.contains("told late"), "{table}");
}

#[test]
fn a_machine_that_stands_still_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let is_noticed = |report: &Value| {
        let still = |at: &str| report["stood_still"][at].as_f64().unwrap_or(0.0);
        let words = report["notes"].to_string();
        still("share") > 0.1 && still("mean_us") > 500.0 && words.contains("stood still for")
    };
    // Where other tests want the same CPU, what looks like standing still may be theirs, and is not told.
    let mut reports: Vec<Value> = Vec::new();
    while reports.len() < 5 && !reports.last().is_some_and(is_noticed) {
        reports.push(stopped_at_times(directory.path()));
    }
    assert!(reports.last().is_some_and(is_noticed), "{reports:#?}");
}

/// What a bench reports that is stopped for 10 ms of 20. What is stopped loses no CPU to another: to its clock that
/// stands still.
fn stopped_at_times(directory: &Path) -> Value {
    let mut command = plateway();
    command.current_dir(directory).env("XDG_STATE_HOME", directory);
    command.args(["bench", "delay:200,null:16MiB", "--rw", "randread", "--json"]);
    command.args(["--time", "1", "--warmup", "0"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    while child.try_wait().unwrap().is_none() {
        let stop = kill_process(pid, Signal::STOP);
        std::thread::sleep(Duration::from_millis(10));
        let go = kill_process(pid, Signal::CONT);
        std::thread::sleep(Duration::from_millis(10));
        assert!(stop.and(go).is_ok(), "it is waited for here alone");
    }
    serde_json::from_slice(&child.wait_with_output().unwrap().stdout).expect("JSON")
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for args in [&["--json"][..], &[]] {
        let mut command = plateway();
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        command.args(["bench", "null:1MiB", "--time", "1", "--warmup", "0"]).args(args);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write the result to standard output"), "{said}");
    }
}

#[test]
fn a_disk_that_lost_everything_is_wrong_and_was_checked() {
    let directory = tempfile::tempdir().unwrap();
    let output = bench(directory.path(), &["null:16MiB", "--rw", "randrw=50", "--verify"]);
    let (said, why) = (flat(&output.stdout), flat(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("blocks were wrong"), "{why}");
    assert!(!said.contains("nothing could be checked"), "{said}");
}

#[test]
fn a_table_is_printed_for_people() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        bench(directory.path(), &["null:1GiB", "--rw", "read", "--bs", "128k", "--rate", "100"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in ["IOPS", "MB/s", "p99.99", "CPU", "open loop at 100 a second"] {
        assert!(table.contains(word), "{word}: {table}");
    }
}

#[test]
fn a_disk_that_holds_data_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    let mut data = vec![0; 4 << 20];
    data[3 << 20] = 1;
    fs::write(&file, &data).unwrap();
    let output = bench(directory.path(), &["file:disk", "--rw", "randwrite"]);
    assert_eq!(output.status.code(), Some(1));
    let said = flat(&output.stderr);
    assert!(said.contains("offset 3145728") && said.contains("--overwrite"), "{said}");
    assert!(fs::read(&file).unwrap() == data);
    let output = bench(directory.path(), &["file:disk", "--rw", "randwrite", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(&file).unwrap() != data);
}

#[test]
fn damage_between_two_runs_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let disk = "file:disk?create=4MiB";
    let written = report(directory.path(), &[disk, "--rw", "write", "--bs", "64k", "--verify"]);
    assert!(written["verify"]["checked"].as_u64().is_some_and(|count| count > 0), "{written:#}");
    assert_eq!(written["verify"]["wrong"], 0);
    let read = ["file:disk", "--rw", "read", "--bs", "64k", "--verify", "--iodepth", "1"];
    assert_eq!(report(directory.path(), &read)["verify"]["wrong"], 0);
    // The first block is written first and read first, however slow the machine is.
    let file = fs::File::options().read(true).write(true).open(directory.path().join("disk"));
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1000).unwrap();
    file.write_all_at(&[!byte[0]], 1000).unwrap();
    file.sync_all().unwrap();
    let output = bench(directory.path(), &read);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let said = flat(&output.stderr);
    assert!(said.contains("offset 0") && said.contains("damage from its byte 1000"), "{said}");
}

#[test]
fn a_volume_of_a_configuration_is_measured_without_a_network() {
    let directory = tempfile::tempdir().unwrap();
    let disks: Vec<(String, String)> = (0..2)
        .map(|number| (format!("d{number}"), format!("file:m{number}?create=8MiB")))
        .collect();
    let disks: Vec<(&str, &str)> =
        disks.iter().map(|(name, uri)| (name.as_str(), uri.as_str())).collect();
    let stripe = "layout = \"stripe\"\ndisks = [\"d0\", \"d1\"]\nchunk = \"64KiB\"";
    let server = format!(
        "[server]\nshards = {:?}\nmemory = \"64MiB\"\ncontrol = \"{}/control.sock\"\nstate = \"{}/state\"\n",
        &reactor::allowed_cpus()[..1],
        directory.path().display(),
        directory.path().display()
    );
    let config = server + &common::configuration(&disks, &[("v0", stripe)]);
    let config = common::write(directory.path(), &config);
    let args = ["volume:v0", "--config", &config, "--rw", "randrw=50", "--bs", "16k", "--verify"];
    let first = report(directory.path(), &args);
    assert_eq!(first["verify"]["wrong"], 0);
    // The labels are there now: the same volume is found again, with its data.
    let output = bench(directory.path(), &["volume:v0", "--config", &config, "--rw", "write"]);
    // What was written at random need not be at an end of the volume, so either answer is right
    // here; but it must be one of the two.
    let refused = flat(&output.stderr).contains("--overwrite");
    assert!(output.status.success() || refused, "{}", text(&output.stderr));
    let said = flat(&bench(directory.path(), &["volume:v9", "--config", &config]).stderr);
    assert!(said.contains("has no volume v9"), "{said}");
    let said = flat(&bench(directory.path(), &["volume:v0"]).stderr);
    assert!(said.contains("--config"), "{said}");
}

#[test]
fn a_remote_disk_is_measured_verified_and_its_target_asked_for_its_cpu() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "server", "ram:16MiB");
    let disk = format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/1", server.address);
    let control = directory.path().join("server.sock").display().to_string();
    let args = [&disk, "--rw", "randrw=50", "--numjobs", "2", "--verify", "--control", &control];
    let report = report(directory.path(), &args);
    assert_eq!(report["verify"]["wrong"], 0);
    assert_eq!(report["errors"], 0);
    assert!(report["cpu_us_per_io"]["target"].is_number(), "{report:#}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    for (args, reason) in [
        (&["file:missing"][..], "missing"),
        (&["ram:512", "--bs", "4k"][..], "at least one request of 4 KiB"),
        (&["model:./no.toml,ram:1MiB"][..], "./no.toml: expected the file of a model"),
        (&["volume:v0", "--config", "missing.toml"][..], "missing.toml"),
        (
            &["ram:1MiB", "--cached"][..],
            "expected a file or a device of this machine, seen ram:1MiB",
        ),
        (&["delay:9,null:1MiB", "--cached"][..], "seen delay:9,null:1MiB"),
        // Nobody is connected to for that.
        (&["nvme+tcp://127.0.0.1:9/nqn.2026-11.a:b/1", "--cached"][..], "seen nvme+tcp://"),
    ] {
        let output = bench(directory.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = flat(&output.stderr);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
}

/// How many bytes of a file the page cache holds, once it holds none, after a bench with these words.
fn resident_after(directory: &Path, args: &[&str]) -> u64 {
    let file = fs::File::open(directory.join("a")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    report(directory, args);
    resident(&directory.join("a"))
}

#[test]
fn a_file_is_read_through_the_page_cache_if_it_is_to_be_whatever_its_disk_has_in_front() {
    // Where builds are: a file in memory is in the page cache in any case.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    fs::write(here.join("a"), vec![7; 4 << 20]).unwrap();
    let line = ["--rw", "read", "--bs", "128k"];
    let bytes = |uri, more: &[&str]| resident_after(here, &[&[uri][..], &line, more].concat());
    if bytes("file:a", &[]) > 1 << 20 {
        return testkit::skipped("a file system whose page cache cannot be passed by");
    }
    fs::write(here.join("job.fio"), "[all]\nrw=read\nbs=128k\nruntime=1\ntime_based\n").unwrap();
    for uri in ["file:a", "delay:1,file:a"] {
        assert!(bytes(uri, &["--cached"]) > 3 << 20, "{uri}");
    }
    let by_file = plateway()
        .current_dir(here)
        .env("XDG_STATE_HOME", here)
        .args(["bench", "ram:4MiB", "--cached", "--fio", "job.fio"])
        .output()
        .unwrap();
    let why = flat(&by_file.stderr);
    assert!(by_file.status.code() == Some(1) && why.contains("seen ram:4MiB"), "{why}");
}

#[test]
fn durable_writes_flushes_trims_and_a_region_are_asked_and_written_down() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("a"), vec![0; 4 << 20]).unwrap();
    let region = ["file:a", "--rw", "randwrite", "--offset", "1m", "--size", "1m"];
    let files = ["--fsync", "4", "--log", "a.csv", "--svg", "a.svg"];
    let written = report(here, &[&region[..], &files].concat());
    assert_eq!(
        (&written["offset_bytes"], &written["range_bytes"]),
        (&(1 << 20).into(), &(1 << 20).into())
    );
    assert!(written.pointer("/flush/latency_ns/p99").is_some_and(Value::is_number), "{written:#}");
    let bytes = fs::read(here.join("a")).unwrap();
    let zeros = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
    assert!(zeros(0..1 << 20) && !zeros(1 << 20..2 << 20) && zeros(2 << 20..4 << 20));
    let log = fs::read_to_string(here.join("a.csv")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with("second,requests,bytes,") && lines.len() >= 2, "{log}");
    let requests: u64 =
        lines[1..].iter().map(|line| line.split(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Value::from(requests), written["requests"]);
    let picture = fs::read_to_string(here.join("a.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    for word in ["writes", "flushes", "requests a second", "latency"] {
        assert!(picture.contains(word), "{word}");
    }
    for args in [&["--rw", "randtrim"][..], &["--rw", "randrw=50,25", "--sync"]] {
        let seen = report(here, &[&["file:a", "--overwrite"][..], args].concat());
        assert!(seen["requests"].as_u64() > Some(0), "{seen:#}");
    }
    for (args, why) in [
        (&["file:a", "--offset", "4m"][..], "expected at least one request"),
        (&["file:a", "--offset", "512"], "expected a multiple of --bs"),
        (&["file:a", "--rw", "trim", "--verify", "--overwrite"], "may be anything"),
    ] {
        let output = bench(here, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(flat(&output.stderr).contains(why), "{args:?}: {}", flat(&output.stderr));
    }
}

#[test]
fn a_target_that_goes_away_ends_it_with_what_came_until_then() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::of(directory.path(), "a", "ram:16MiB");
    let uri = format!("nvme+tcp://{}/nqn.2026-11.net.plateway:v0/1", server.address);
    let mut command = plateway();
    command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
    command.args(["bench", &uri, "--time", "3", "--warmup", "0", "--json", "--log", "a.csv"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    server.wait_for("reads", |status| status["volumes"][0]["counters"]["reads"].as_u64() > Some(0));
    server.signal(Signal::KILL);
    // Its requests alone have 30 s to be answered in; the end is waited for that is promised.
    let began = std::time::Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < common::HANG, "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["gave_up"], true);
    assert!(report["requests"].as_u64() > Some(0), "{report:#}");
    assert!(flat(&output.stderr).contains("did not answer any more"), "{}", flat(&output.stderr));
    assert!(directory.path().join("a.csv").exists());
}

#[test]
fn requests_that_come_by_chance_come_as_often_as_asked() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["null:1GiB", "--rate", "20k", "--poisson", "--iodepth", "256"];
    let seen = report(directory.path(), &args);
    assert_eq!((seen["poisson"].as_bool(), seen["rate"].as_u64()), (Some(true), Some(20_000)));
    // A machine under load may be late, and is never early.
    let iops = seen["iops"].as_f64().unwrap();
    assert!(iops > 0.0 && iops < 22_000.0, "{iops}");
    let table = bench(directory.path(), &args);
    assert!(flat(&table.stdout).contains("open loop at 20,000 a second on average"));
    let alone = bench(directory.path(), &["null:1GiB", "--poisson"]);
    assert!(!alone.status.success() && flat(&alone.stderr).contains("--rate"));
}

#[test]
fn every_block_is_written_before_it_is_measured_and_nobody_s_data_are() {
    let directory = tempfile::tempdir().unwrap();
    // Not a multiple of what is written at once.
    let disk = "file:filled?create=3141632";
    let args = ["--bs", "512", "--fill", "--rw", "randread", "--numjobs", "2"];
    let seen = report(directory.path(), &[&[disk], &args[..]].concat());
    assert_eq!(seen["range_bytes"], 3_141_632);
    let filled = fs::read(directory.path().join("filled")).unwrap();
    assert!(
        filled.chunks(512).all(|block| block.iter().any(|byte| *byte != 0)),
        "a block is empty"
    );

    let again = bench(directory.path(), &[&[disk], &args[..]].concat());
    let why = flat(&again.stderr);
    assert!(!again.status.success() && why.contains("holds data"), "{why}");
    assert!(fs::read(directory.path().join("filled")).unwrap() == filled);
    let part = ["--size", "4096", "--offset", "4096", "--bs", "4k", "--overwrite", "--fill"];
    report(directory.path(), &[&[disk], &part[..]].concat());
    let changed = fs::read(directory.path().join("filled")).unwrap();
    assert!(changed[..4096] == filled[..4096] && changed[8192..] == filled[8192..]);
    assert!(changed[4096..8192] != filled[4096..8192]);
}

#[test]
fn a_disk_that_does_not_answer_ends_a_fill_and_keeps_nobody_who_wants_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || {
        let mut command = plateway();
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        // An hour: it is not waited for.
        command.args(["bench", "delay:3600000000,ram:1MiB", "--fill", "--overwrite"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (waits, stopped) = (begin(), begin());
    let pid = Pid::from_child(&stopped);
    let until = Instant::now() + common::HANG;
    while !catches(pid, Signal::INT) {
        assert!(Instant::now() < until, "it never watches signals");
    }
    kill_process(pid, Signal::INT).unwrap();
    let output = stopped.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{why}");
    assert!(why.contains("interrupted: 0 of 8 blocks were filled"), "{why}");
    let output = waits.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("did not answer any more while it was filled"), "{why}");
}

#[test]
fn a_measurement_that_is_to_be_steady_ends_by_itself_and_says_whether_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let seen = report(directory.path(), &["null:1GiB", "--steady", "200ms"]);
    let steady = &seen["steady"];
    let windows = steady["windows"].as_array().unwrap();
    let is_steady = steady["is_steady"].as_bool().unwrap();
    assert!((5..=25).contains(&windows.len()) && (is_steady || windows.len() == 25), "{steady}");
    assert_eq!(steady["window_seconds"], 0.2);
    let last = windows[windows.len() - 5..].iter().map(|window| window.as_f64().unwrap());
    let mean = last.sum::<f64>() / 5.0;
    assert!((steady["iops"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9, "{steady}");
    // What counts is all of it, which ends with the last window.
    let seconds = seen["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.2 * windows.len() as f64, "{seconds} s for {} windows", windows.len());
    assert_eq!(seen["notes"].to_string().contains("did not become steady"), !is_steady, "{seen}");

    let both = bench(directory.path(), &["null:1GiB", "--steady", "1s", "--time", "1s"]);
    let why = flat(&both.stderr);
    assert!(!both.status.success() && why.contains("cannot be used with"), "{why}");
}

#[test]
fn a_signal_ends_it_with_what_was_measured_and_a_code_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let hour = ("--time", "3600", " s of 3600.0 s were");
    let steady = ("--steady", "1h", "interrupted before it was steady: ");
    for (signal, (option, time, words)) in
        [(Signal::INT, hour), (Signal::TERM, hour), (Signal::INT, steady)]
    {
        let mut command = plateway();
        command.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        command.args(["bench", "null:1GiB", option, time, "--warmup", "0"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let until = Instant::now() + common::HANG;
        while !catches(pid, signal) {
            assert!(Instant::now() < until, "it never watches signals");
        }
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let (said, why) = (flat(&output.stdout), flat(&output.stderr));
        assert_eq!(output.status.code(), Some(130), "{why}");
        assert!(why.contains("interrupted") && why.contains(words), "{why}");
        assert!(said.contains("IOPS") && said.contains("it was interrupted"), "{said}");
    }
}

/// Whether a process does something of its own on a signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// `plateway bench --fio` with a job file.
fn jobs(directory: &Path, disk: &str, file: &str, args: &[&str]) -> Output {
    fs::write(directory.join("jobs.fio"), file).unwrap();
    let mut command = plateway();
    command.current_dir(directory).env("XDG_STATE_HOME", directory).env("BLOCKS", "16k");
    command.args(["bench", disk, "--fio", "jobs.fio"]).args(args);
    command.output().expect("it runs")
}

#[test]
fn a_job_file_asks_for_what_it_says_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // Requests are counted, so that nothing depends on how fast the machine is.
    let file = "; as fio has it\r\n[global]\nioengine=libaio\ndirect=1\nsize=1m\n\
        [fresh]\nrw=randwrite\nbs=${BLOCKS}\nnumjobs=2\nverify=crc32c\n\
        [scan]\nstonewall\nrw=read\nbs=4k,8k\nloops=2\nnumjobs=3\niodepth=4\n\
        [hot]\nrw=randread\nbssplit=4k/50:8k/50\nrandom_distribution=zipf:1.2\noffset=1m\n";
    let output =
        jobs(here, "file:disk?create=4MiB", file, &["--json", "--log", "a.csv", "--svg", "a.svg"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let by_job = seen["by_job"].as_array().expect("jobs");
    let figures =
        |job: &Value| (job["name"].clone(), job["stage"].as_u64(), job["requests"].as_u64());
    // Each clone asks for its size; the scan twice.
    assert_eq!(figures(&by_job[0]), ("fresh".into(), Some(0), Some(2 * 64)));
    assert_eq!(figures(&by_job[1]), ("scan".into(), Some(1), Some(3 * 2 * 256)));
    assert_eq!(
        (by_job[0]["verify"]["checked"].as_u64(), &by_job[0]["verify"]["wrong"]),
        (Some(64), &0.into())
    );
    assert_eq!((&by_job[1]["block_bytes"], &by_job[1]["queue_depth"]), (&4096.into(), &4.into()));
    assert_eq!((&by_job[2]["zipf"], &by_job[2]["sizes"]), (&1.2.into(), &"4k/50:8k/50".into()));
    assert_eq!(
        (&by_job[2]["range_bytes"], by_job[2].get("block_bytes")),
        (&(1 << 20).into(), None)
    );
    let sum: u64 = by_job.iter().map(|job| job["requests"].as_u64().unwrap()).sum();
    assert_eq!((seen["requests"].as_u64(), seen["stages"].as_u64()), (Some(sum), Some(2)));
    assert_eq!((seen["jobs"].as_u64(), &seen["errors"]), (Some(6), &0.into()));
    let notes = seen["notes"].to_string();
    assert!(
        notes.contains("direct means nothing here") && notes.contains("jobs.fio:10"),
        "{notes}"
    );
    // The last job reads what nobody wrote.
    assert!(notes.contains("found nothing but zeros"), "{notes}");
    assert!(seen["looked"]["zeros"].as_u64() > Some(0), "{seen}");
    // What is not in the range was not written.
    let bytes = fs::read(here.join("disk")).unwrap();
    assert!(bytes[1 << 20..].iter().all(|byte| *byte == 0));
    assert!(bytes[..1 << 20].chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    assert!(fs::read_to_string(here.join("a.csv")).unwrap().starts_with("second,requests"));
    assert!(fs::read_to_string(here.join("a.svg")).unwrap().contains("jobs.fio"));
}

#[test]
fn a_job_file_that_writes_is_kept_from_data_and_fills_what_it_touches() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let mut data = vec![0; 4 << 20];
    data[3 << 20] = 1;
    fs::write(here.join("disk"), &data).unwrap();
    let writes = "[j]\nrw=write\nsize=1m\n";
    let output = jobs(here, "file:disk", writes, &[]);
    let said = flat(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("--overwrite"), "{said}");
    assert!(fs::read(here.join("disk")).unwrap() == data);
    let reads = "[a]\nsize=512k\n[b]\nrw=randread\nsize=512k\noffset=256k\n\
        rate_iops=10k\nrate_process=poisson\n";
    let refused = jobs(here, "file:disk", reads, &["--fill"]);
    assert!(flat(&refused.stderr).contains("--overwrite"), "{}", flat(&refused.stderr));
    let output = jobs(here, "file:disk", reads, &["--fill", "--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = flat(&output.stdout);
    for words in [
        "a: read, 4k",
        "b: randread, 4k, open loop at 10,240 a second on average, 1 job",
        "all together: 2 jobs in 1 stage",
        "CPU",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let bytes = fs::read(here.join("disk")).unwrap();
    assert!(bytes[..768 << 10].chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    assert!(bytes[768 << 10..] == data[768 << 10..]);
    let verified =
        jobs(here, "file:disk", "[j]\nrw=write\nverify=md5\n", &["--fill", "--overwrite"]);
    assert!(flat(&verified.stderr).contains("--fill: what a job verifies"));
}

#[test]
fn a_signal_ends_a_job_file_with_what_its_stages_came_to() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let file = "[global]\nrw=read\nsize=64k\n[one]\n[two]\nstonewall\ntime_based\nruntime=600\n\
        [three]\nstonewall\n";
    fs::write(here.join("jobs.fio"), file).unwrap();
    let mut command = plateway();
    command.current_dir(here).env("XDG_STATE_HOME", here);
    command.args(["bench", "null:1MiB", "--fio", "jobs.fio", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let until = Instant::now() + common::HANG;
    while !catches(pid, Signal::INT) {
        assert!(Instant::now() < until, "it never watches signals");
    }
    // Whichever stage is interrupted, the third never runs.
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", flat(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let notes = seen["notes"].to_string();
    assert!(
        notes.contains("it was interrupted") && notes.contains("of 3 jobs did not run any more"),
        "{notes}"
    );
    assert!(seen["by_job"].as_array().unwrap().len() < 3, "{seen}");
}

#[test]
fn a_disk_that_does_not_answer_keeps_no_job_file_that_is_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("jobs.fio"), "[one]\nrw=read\nsize=64k\n[two]\nstonewall\n").unwrap();
    let mut command = plateway();
    command.current_dir(here).env("XDG_STATE_HOME", here);
    // An hour: it is not waited for.
    command.args(["bench", "delay:3600000000,ram:1MiB", "--fio", "jobs.fio", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let until = Instant::now() + common::HANG;
    while !catches(pid, Signal::INT) {
        assert!(Instant::now() < until, "it never watches signals");
    }
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("did not answer any more"), "{why}");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(seen["gave_up"] == true && seen["requests"] == 0, "{seen}");
}

#[test]
fn reads_of_what_nobody_wrote_are_noted_where_a_disk_keeps_anything() {
    let directory = tempfile::tempdir().unwrap();
    let notes = |disk: &str, more: &[&str]| {
        let report = report(directory.path(), &[&[disk], more].concat());
        assert!(report["looked"]["reads"].as_u64() > Some(0), "{report}");
        report["notes"].to_string()
    };
    assert!(notes("ram:1MiB", &[]).contains("found nothing but zeros"));
    assert!(!notes("ram:1MiB", &["--fill"]).contains("zeros"));
    assert!(!notes("null:1MiB", &[]).contains("zeros"));
}

#[test]
fn a_job_file_that_is_not_understood_is_refused_at_its_lines() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let refused = |file: &str, args: &[&str]| {
        let output = jobs(here, "null:1GiB", file, args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{file:?}");
        flat(&output.stderr)
    };
    let said = refused("[j]\nrw=raed\nthinktime=5\n", &[]);
    assert!(said.contains("jobs.fio:2:4: error: rw: expected read"), "{said}");
    assert!(said.contains("jobs.fio:3:1: error: thinktime is a key of fio"), "{said}");
    let said = refused("[j]\nsize=2g\n", &[]);
    assert!(said.contains("jobs.fio:2:6: error") && said.contains("1073741824"), "{said}");
    let said = refused("[j]\nrw=read\n", &["--rw", "write"]);
    assert!(said.contains("cannot be used with"), "{said}");
    let larger = format!("[j]\n{}", "#\n".repeat(1 << 19));
    assert!(refused(&larger, &[]).contains("at most 1 MiB"));
    // What is no file of text.
    fs::write(here.join("latin"), b"[j]\n# caf\xe9\n").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        here.join("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    for (file, why) in [
        ("latin", "latin:2: expected UTF-8"),
        (".", "no regular file"),
        ("pipe", "no regular file"),
        ("/dev/null", "no regular file"),
        ("missing", "cannot read the job file missing"),
    ] {
        let mut command = plateway();
        command.current_dir(here).env("XDG_STATE_HOME", here);
        let output = command.args(["bench", "null:1GiB", "--fio", file]).output().unwrap();
        let said = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{file}: {said}");
    }
}
