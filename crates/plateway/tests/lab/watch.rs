//! `plateway lab watch`: a change that is in the results of a folder is found once, told by the exit
//! code and in a file that a parser of others reads, whatever else lies in the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use openmetrics_parser::PrometheusValue;
use openmetrics_parser::prometheus::parse_prometheus;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::{HANG, flat, mounted, text};
use crate::{DRAWN, alone, kept, lab, plan, run};

/// A result of an earlier run, in which `other` took so many times as long as `plain`.
fn earlier(plan: &str, number: u64, other: f64) -> Value {
    let noise = |salt: u64| 1.0 + ((number * 37 + salt * 11) % 17) as f64 / 400.0;
    let columns: Vec<Value> =
        (0..3).map(|system| json!({ "system": system, "measure": "p50" })).collect();
    let rounds: Vec<Value> =
        (0..6).map(|salt| json!([2e3 * noise(salt), 2e3 * other * noise(salt + 3), 1e3])).collect();
    let finding =
        json!({ "name": "p50", "primary": true, "verdict": { "kind": "equal", "margin": 0.5 } });
    json!({ "schema_version": 1, "plan": plan,
        "environment": { "version": "0.0.1", "date": format!("2026-11-27T10:{number:02}:00Z"), "kernel": "Linux 1",
            "cpu": "a CPU", "cpus": [0], "driver": "" },
        "results": { "plan": "delayed", "seed": 1, "groups": [{
            "name": "4KiB randread, depth 1", "systems": ["plain", "other", "null"], "null": 2,
            "columns": columns, "rounds": rounds, "analysis": { "findings": [finding] },
    }]}})
}

/// The results of a folder, by their names.
fn results(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.to_str().unwrap().ends_with(".result.json");
    let mut all: Vec<PathBuf> = entries.filter(is_one).collect();
    all.sort();
    all
}

/// The values of a family of the text format, by one of its labels.
fn metric(file: &Path, name: &str, label: &str) -> Vec<(String, f64)> {
    let written = fs::read_to_string(file).unwrap();
    let is_type = |line: &&str| *line == format!("# TYPE {name} gauge");
    assert_eq!(written.lines().filter(is_type).count(), 1, "{name}\n{written}");
    // To this format what OpenMetrics adds is a comment, which the parser does not know in each place.
    let plain = written.lines().filter(|line| !line.starts_with("# UNIT") && *line != "# EOF");
    let plain: String = plain.map(|line| format!("{line}\n")).collect();
    let parsed = parse_prometheus(&plain).unwrap_or_else(|error| panic!("{error}\n{written}"));
    let family = parsed.families.get(name).unwrap_or_else(|| panic!("no {name}\n{written}"));
    let sample = |sample: openmetrics_parser::Sample<PrometheusValue>| match &sample.value {
        PrometheusValue::Gauge(number) => {
            let labels = sample.get_labelset().expect("labels");
            let its = labels.iter().find(|(key, _)| *key == label);
            (its.map_or(String::new(), |(_, value)| value.clone()), number.as_f64())
        }
        other => panic!("{name}: {other:?}"),
    };
    family.iter_samples().cloned().map(sample).collect()
}

#[test]
fn what_a_watch_cannot_do_is_told_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a.toml"), plan("", "")).unwrap();
    fs::write(at("drawn.toml"), DRAWN).unwrap();
    fs::write(at("wrong.toml"), plan("", "sead = 3")).unwrap();
    fs::write(at("file"), "precious").unwrap();
    fs::create_dir(at("folder.prom")).unwrap();
    for (args, words) in [
        (&["watch", "wrong.toml"][..], "wrong.toml:6:1"),
        (&["watch", "none.toml"], "cannot read the plan none.toml"),
        (&["watch", "drawn.toml"], "expected a plan that compares something"),
        (&["watch", "a.toml", "--textfile", "a.txt"], "expected the ending .prom"),
        (&["watch", "a.toml", "--textfile", "folder.prom"], "a device, a folder or a link"),
        (
            &["watch", "a.toml", "--textfile", "none/a.prom"],
            "cannot write the metrics to none/a.prom",
        ),
        (&["watch", "a.toml", "--results", "file"], "file: expected a folder for results"),
        (&["watch", "a.toml", "--results", "none/a"], "cannot make the folder of results none/a"),
        (&["watch", "a.toml", "--results", "/proc/self/fd"], "cannot use the folder of results"),
    ] {
        let output = run(directory.path(), args);
        let why = flat(&output.stderr);
        assert!(output.status.code() == Some(1) && why.contains(words), "{args:?}: {why}");
        assert!(!at("a.watch").exists(), "{args:?}");
    }
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
}

/// What a run of this number would write in the next minutes is a folder, so that it cannot be.
fn block(folder: &Path, number: u64, ending: &str) {
    let now = jiff::Timestamp::now();
    for seconds in 0..600 {
        let at = now + jiff::SignedDuration::from_secs(seconds);
        let at = at.strftime("%Y%m%dT%H%M%SZ");
        fs::create_dir(folder.join(format!("{number:06}-{at}{ending}.new"))).unwrap();
    }
}

/// What measures, one after the other.
mod measured {
    use super::*;

    #[test]
    fn a_change_among_kept_results_is_found_once_and_told_to_monitoring() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // Nobody waits for a machine that has much to do.
        let text_of_plan = plan("", "rounds = 6");
        fs::write(at("a.toml"), &text_of_plan).unwrap();
        let folder = at("a.watch");
        fs::create_dir(&folder).unwrap();
        let put = |number: u64, what: &str| {
            fs::write(folder.join(format!("{number:06}-x.result.json")), what).unwrap();
        };
        for number in 1..=44 {
            let other = if number <= 30 { 1.0 } else { 40.0 };
            put(number, &earlier(&text_of_plan, number, other).to_string());
        }
        // What is damaged, newer or of another plan, a pipe, and what is a stranger's.
        put(45, "{\"schema_version\": 1, \"plan\"");
        put(46, "{\"schema_version\": 2}");
        put(47, &earlier("another", 47, 1.0).to_string());
        let pipe = folder.join("000048-x.result.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        fs::write(folder.join("notes"), "mine").unwrap();
        fs::write(folder.join("changes.json"), "{").unwrap();

        let alone = alone();
        let output = run(directory.path(), &["watch", "a.toml", "--textfile", "lab.prom"]);
        drop(alone);
        let (said, why) = (text(&output.stdout), flat(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{said}\n{why}");
        assert!(said.contains("run 49 (") && said.contains("kept: a.watch/000049-"), "{said}");
        assert!(
        said.contains("p50 latency of other 4KiB randread, depth 1: changed with run 31 (2026-11-27T10:31:00Z)"),
        "{said}"
    );
        assert!(why.contains("1 change was found; results are in a.watch"), "{why}");
        for words in [
            "changes.json: passed over: expected JSON",
            "000045-x.result.json: passed over: expected a result file",
            "000046-x.result.json: passed over: schema_version: expected 1, seen 2",
            "1 results in a.watch are of another plan text",
            "000048-x.result.json: passed over: expected a file",
        ] {
            assert!(why.contains(words), "{words}\n{why}");
        }
        let all = results(&folder);
        let last = all.last().unwrap();
        assert_eq!((all.len(), kept(last)["results"]["plan"].as_str()), (49, Some("delayed")));
        assert!(last.with_extension("html").exists());
        assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "mine");

        let prom = at("lab.prom");
        let mut changed = metric(&prom, "plateway_lab_changed", "system");
        changed.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(changed, [("other".to_owned(), 1.0), ("plain".to_owned(), 0.0)]);
        let when = metric(&prom, "plateway_lab_change_timestamp_seconds", "measure");
        // 2026-11-27T10:31:00Z
        assert_eq!(when, [("p50".to_owned(), 1_795_775_460.0)]);
        assert_eq!(metric(&prom, "plateway_lab_last_run", "plan"), [("delayed".to_owned(), 49.0)]);
        assert_eq!(metric(&prom, "plateway_lab_failures", "plan"), [("delayed".to_owned(), 0.0)]);
        assert!(metric(&prom, "plateway_lab_last_run_timestamp_seconds", "plan")[0].1 > 1.7e9);
        assert_eq!(metric(&prom, "plateway_lab_runs", "system").len(), 2);
        // Under load rounds may never settle, and a run without a verdict does not count.
        if !said.contains("this run does not count") {
            let latency = metric(&prom, "plateway_lab_latency_seconds", "load");
            assert!(latency.len() == 2, "{latency:?}");
            assert!(
                latency.iter().all(|(load, seconds)| load.starts_with("4KiB") && *seconds < 1.0)
            );
            assert_eq!(metric(&prom, "plateway_lab_ratio", "system").len(), 2);
        }

        // The next one knows it; meanwhile nobody else has the folder, and it ends on a signal.
        let mut command = lab(
            directory.path(),
            &[
                "watch",
                "a.toml",
                "--every",
                "1h",
                "--times",
                "2",
                "--results",
                "a.watch",
                "--textfile",
                "lab.prom",
                "--json",
            ],
        );
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + 4 * HANG;
        while metric(&prom, "plateway_lab_last_run", "plan")[0].1 < 50.0 {
            assert!(Instant::now() < until, "it never comes so far");
            std::thread::sleep(Duration::from_millis(50));
        }
        let second = run(directory.path(), &["watch", "a.toml"]);
        let why = flat(&second.stderr);
        assert!(
            second.status.code() == Some(1) && why.contains("seen another one at work"),
            "{why}"
        );
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{why}");
        assert!(why.contains("interrupted after 1 runs: no change was found"), "{why}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let other =
            report["series"].as_array().unwrap().iter().find(|told| told["system"] == "other");
        let other = other.unwrap();
        assert_eq!(
            (&other["is_changed"], &other["change"]["run"]),
            (&false.into(), &31.into()),
            "{report}"
        );
        assert_eq!(
            metric(&prom, "plateway_lab_changed", "system").iter().map(|one| one.1).sum::<f64>(),
            0.0
        );
    }

    #[test]
    fn a_change_is_found_also_where_page_and_metrics_cannot_be_written_and_that_is_one_run_gone_wrong()
     {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // A disk that fails, so that the run is short.
        let text_of_plan = plan("faulty:3,", "");
        fs::write(at("a.toml"), &text_of_plan).unwrap();
        fs::create_dir(at("a.watch")).unwrap();
        for number in 1..=44 {
            let other = if number <= 30 { 1.0 } else { 40.0 };
            let file = at("a.watch").join(format!("{number:06}-x.result.json"));
            fs::write(file, earlier(&text_of_plan, number, other).to_string()).unwrap();
        }
        block(&at("a.watch"), 45, ".result.html");
        fs::create_dir(at("full")).unwrap();
        let script =
            "mount -t tmpfs -o size=4k tmpfs \"$0\" && head -c 4096 /dev/zero > \"$0/full\"";
        let Some(mut watch) = mounted(script, &at("full")) else { return };
        let alone = alone();
        watch.current_dir(directory.path()).env("XDG_STATE_HOME", directory.path());
        watch.args(["lab", "watch", "a.toml", "--json", "--textfile", "full/lab.prom"]);
        let output = watch.output().unwrap();
        drop(alone);
        let why = flat(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{why}");
        for words in [
            "cannot write the page of what came of it to a.watch/000045-",
            "cannot write the metrics to full/lab.prom: No space left on device",
            "1 change was found; results are in a.watch; 1 of 1 runs went wrong; last: run 45: 3 of 3 trials failed",
        ] {
            assert!(why.contains(words), "{words}\n{why}");
        }
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["run"], 45, "{report}");
    }

    #[test]
    fn after_so_many_runs_it_ends_and_verdicts_that_cannot_be_kept_are_not_among_the_json() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.toml"), plan("faulty:3,", "")).unwrap();
        fs::create_dir(at("a.watch")).unwrap();
        block(&at("a.watch"), 1, ".result.json");
        let alone = alone();
        let args = ["watch", "a.toml", "--every", "1s", "--times", "2", "--json"];
        let output = run(directory.path(), &args);
        drop(alone);
        let why = flat(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{why}");
        for words in [
            "run 1 could not be kept; its verdicts:",
            "p50 latency of other against plain, 4KiB randread, depth 1: no verdict: a trial of it failed",
            "cannot write what came of it to a.watch/000001-",
            "2 of 2 runs went wrong; last: run 1: 3 of 3 trials failed",
        ] {
            assert!(why.contains(words), "{words}\n{why}");
        }
    }
}
