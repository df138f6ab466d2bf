//! Watches of made-up runs: what is found once, what is left out, and what is said.

use serde_json::{Value, json};

use super::*;

const PLAN: &str = "name = \"two\"\ndifference = \"10%\"\n[[system]]\nname = \"one\"\ndisk = \"ram:4MiB\"\n\
    [[system]]\nname = \"other\"\ndisk = \"ram:4MiB\"\n[load]\ndepth = 1\n\
    [[compare]]\nsystems = [\"other\"]\nreference = \"one\"\nof = \"p50\"\n";

fn experiment() -> Experiment {
    Experiment::parse("plan", PLAN).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// A result file in which `other` takes so many times as long as `one`, and the machine as usual.
fn file(number: u64, other: f64, machine: f64) -> Value {
    // Runs differ by a few percent, each in its own way.
    let noise = |salt: u64| 1.0 + ((number * 37 + salt * 11) % 17) as f64 / 400.0;
    let columns: Vec<Value> =
        (0..3).map(|system| json!({ "system": system, "measure": "p50" })).collect();
    let round = |salt: u64| {
        // In the order of the plan's columns: one, other, null.
        json!([noise(salt + 2), other * noise(salt + 1), 0.1].map(|value| 1e5 * machine * value))
    };
    let finding = json!({ "name": "p50 latency of other against one, 4KiB randread, depth 1", "primary": true,
        "verdict": { "kind": "equal", "margin": 0.1 } });
    json!({ "schema_version": 1, "plan": PLAN,
        "environment": { "version": "1", "date": format!("2026-11-27T00:00:{number:02}Z"), "kernel": "Linux 6",
            "cpu": "a CPU", "cpus": [0, 1], "driver": "" },
        "results": { "plan": "two", "seed": 1, "groups": [{
            "name": "4KiB randread, depth 1", "systems": ["one", "other", "null"], "null": 2,
            "columns": columns, "rounds": [round(3), round(5), round(8)],
            "analysis": { "findings": [finding] },
    }]}})
}

fn run(number: u64, file: &Value) -> Run {
    Run::read(number, file.to_string().as_bytes()).unwrap()
}

/// Looks after each run; the reports.
fn watch(memory: &mut Memory, runs: &[Run]) -> Vec<Report> {
    let watched = series(&experiment());
    (1..=runs.len()).filter_map(|count| memory.look(&watched, &runs[..count])).collect()
}

fn runs(count: u64, other: impl Fn(u64) -> f64) -> Vec<Run> {
    (1..=count).map(|number| run(number, &file(number, other(number), 1.0))).collect()
}

#[test]
fn the_systems_of_primary_comparisons_are_watched_and_null_is_not() {
    let plan = PLAN.to_owned()
        + "[[compare]]\nsystems = [\"other\"]\nreference = \"one\"\nof = \"iops\"\nexploratory = true\n";
    let watched = series(&Experiment::parse("plan", &plan).unwrap_or_else(|why| panic!("{why}")));
    let names: Vec<&str> = watched.iter().map(|one| &*one.name).collect();
    let of = |name: &str| format!("p50 latency of {name} 4KiB randread, depth 1");
    assert_eq!(names, [of("other"), of("one")]);
    assert_eq!((watched[0].column, watched[1].column, watched[0].null), (1, 0, 4));
}

#[test]
fn what_a_run_says_of_a_bound_is_told_after_it_and_its_systems_are_watched() {
    let asked = PLAN.to_owned() + "at-most = 1.2\n";
    let watched = series(&Experiment::parse("plan", &asked).unwrap_or_else(|why| panic!("{why}")));
    assert_eq!(watched.len(), 2);
    let bounds = |kind: &str| {
        let mut file = file(1, 1.0, 1.0);
        let finding = &mut file["results"]["groups"][0]["analysis"]["findings"][0];
        finding["bound"] = json!({ "at-most": 1.2 });
        let times = json!({ "low": 1.3, "high": 1.4, "level": 0.9 });
        finding["verdict"] = json!({ "kind": kind, "times": times, "more_rounds": 3 });
        let report = Memory::new(&asked).look(&watched, &[run(1, &file)]).expect("a run");
        (report.bounds[0].is_held, report.to_string())
    };
    let (is_held, said) = bounds("not_held");
    let line = "\n  p50 latency of other against one, 4KiB randread, depth 1: at most 1.2 times: not held (1.30 to 1.40)";
    assert!(is_held == Some(false) && said.ends_with(line), "{said}");
    assert_eq!([bounds("held").0, bounds("open").0], [Some(true), None]);
    let without = Memory::new(PLAN).look(&watched, &[run(1, &file(1, 1.0, 1.0))]).expect("a run");
    assert!(without.bounds.is_empty());
}

#[test]
fn no_two_series_have_the_same_labels() {
    // One reference in a group of its own difference, and one disk without a path beside two paths.
    let more = "[[system]]\nname = \"third\"\ndisk = \"ram:4MiB\"\n\
        [[system]]\nname = \"nvme\"\nserve = { protocol = \"nvme\", disk = \"ram:4MiB\" }\n\
        [[path]]\nname = \"lan\"\n[[path]]\nname = \"far\"\ndelay = \"1ms\"\n\
        [[compare]]\nsystems = [\"third\"]\nreference = \"one\"\nof = \"p50\"\ndifference = \"20%\"\n\
        [[compare]]\nsystems = [\"nvme\"]\nreference = \"one\"\nof = \"p50\"\npath = [\"lan\", \"far\"]\n";
    let plan = PLAN.to_owned() + more;
    let watched = series(&Experiment::parse("plan", &plan).unwrap_or_else(|why| panic!("{why}")));
    let labels = |one: &Series| (one.system.clone(), one.path.clone(), one.load.clone());
    let mut all: Vec<_> = watched.iter().map(labels).collect();
    let of_one: Vec<_> = all.iter().filter(|(system, ..)| system == "one").cloned().collect();
    let of = |path: &str, more: &str| {
        ("one".to_owned(), path.to_owned(), format!("4KiB randread, depth 1{more}"))
    };
    let own = ", for 20.0% and equal within 20.0%";
    assert_eq!(of_one, [of("", ""), of("", own), of("lan", ""), of("far", "")]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), watched.len(), "{all:?}");
}

#[test]
fn a_change_is_found_once_where_it_is_and_the_series_begins_anew_with_it() {
    let mut memory = Memory::new(PLAN);
    let runs = runs(60, |number| if number < 25 { 1.0 } else { 1.3 });
    let reports = watch(&mut memory, &runs);
    let alarms: Vec<&Report> = reports.iter().filter(|report| report.changed() > 0).collect();
    let [alarm] = alarms[..] else { panic!("{} alarms", alarms.len()) };
    assert!((27..=40).contains(&alarm.run), "{}", alarm.run);
    let change = &memory.changes[0];
    assert_eq!((change.run, change.found, &*change.date), (25, alarm.run, "2026-11-27T00:00:25Z"));
    assert!(change.interval.holds(LogRatio((1.0_f64 / 1.3).ln())), "{change}");
    assert!(change.null_ratio.0.abs() < 1e-9 && change.beside.is_empty(), "{change}");
    let said = alarm.to_string();
    assert!(
        said.contains("p50 latency of other 4KiB randread, depth 1: changed with run 25"),
        "{said}"
    );
    assert!(said.contains("% below what it was (-") && said.contains("one 4KiB"), "{said}");
    let last = reports.last().unwrap();
    let of_other = last.series.iter().find(|told| told.series.system == "other").unwrap();
    assert_eq!(of_other.runs, 36, "since the change");
    assert!(last.to_string().contains("since it changed with run 25 (p "), "{last}");
}

#[test]
fn what_was_kept_in_mind_is_known_by_the_next_process() {
    let mut memory = Memory::new(PLAN);
    let runs = runs(45, |number| if number < 25 { 1.0 } else { 1.3 });
    watch(&mut memory, &runs);
    let text = serde_json::to_string(&memory).unwrap();
    let mut again = Memory::read(&text).unwrap();
    assert!(again.is_of(PLAN) && !again.is_of("another"));
    let report = again.look(&series(&experiment()), &runs).unwrap();
    assert_eq!((report.changed(), again.changes.len()), (0, 1));
    assert!(Memory::read("{").unwrap_err().starts_with("expected JSON"));
    let newer = text.replace("\"schema_version\":1", "\"schema_version\":2");
    assert_eq!(Memory::read(&newer).unwrap_err(), "schema_version: expected 1, seen 2");
    assert!(Memory::read("{\"schema_version\":1}").unwrap_err().contains("missing field"));
}

#[test]
fn a_machine_that_moved_all_alike_is_no_change_and_what_changed_beside_one_is_told() {
    let machine = |number: u64| if number < 25 { 1.0 } else { 2.0 };
    let alike: Vec<Run> =
        (1..=50).map(|number| run(number, &file(number, 1.0, machine(number)))).collect();
    let mut memory = Memory::new(PLAN);
    assert!(watch(&mut memory, &alike).iter().all(|report| report.changed() == 0));
    let upgraded: Vec<Run> = (1..=50)
        .map(|number| {
            let mut file = file(number, machine(number), 1.0);
            if number >= 24 {
                file["environment"]["kernel"] = "Linux 7".into();
            }
            run(number, &file)
        })
        .collect();
    watch(&mut memory, &upgraded);
    assert_eq!(memory.changes[0].beside, ["kernel Linux 6 became Linux 7 with run 24"]);
    assert!(memory.changes[0].to_string().ends_with("became Linux 7 with run 24"));
}

#[test]
fn a_run_without_a_verdict_does_not_count_and_says_why() {
    let mut stopped = file(30, 9.0, 1.0);
    stopped["results"]["groups"][0]["analysis"]["findings"][0]["verdict"] =
        json!({ "kind": "withheld", "reason": "interrupted" });
    let mut runs = runs(29, |_| 1.0);
    runs.push(run(30, &stopped));
    let mut memory = Memory::new(PLAN);
    let report = memory.look(&series(&experiment()), &runs).unwrap();
    assert_eq!((report.changed(), report.series[0].runs), (0, 29));
    assert!(
        report.to_string().contains("this run does not count: no verdict: it was stopped"),
        "{report}"
    );
    assert_eq!(memory.look(&series(&experiment()), &[]).map(|report| report.run), None);
}

#[test]
fn few_runs_say_how_many_it_takes() {
    let report = watch(&mut Memory::new(PLAN), &runs(1, |_| 1.0)).remove(0);
    let needed = report.series[0].runs_needed;
    assert!(report.to_string().contains(&format!("1 run; a change can be shown from {needed} on")));
    assert!((15..=20).contains(&needed), "{needed}");
}

#[test]
fn a_file_that_is_none_of_ours_is_refused_with_what_was_seen() {
    let refused = |text: &str| Run::read(1, text.as_bytes()).unwrap_err();
    assert!(refused("").starts_with("expected a result file: EOF"));
    assert!(refused("{}").contains("seen no schema_version"));
    assert_eq!(
        refused("{\"schema_version\": 3, \"plan\": 1}"),
        "schema_version: expected 1, seen 3"
    );
    let mut broken = file(1, 1.0, 1.0);
    broken["results"]["groups"][0]["null"] = 7.into();
    assert!(refused(&broken.to_string()).contains("one of 3 systems, seen 7"));
    let mut fewer = file(1, 1.0, 1.0);
    fewer["results"]["groups"] = json!([]);
    let why = run(1, &fewer).point(&series(&experiment())[0]).unwrap_err();
    assert!(why.contains("expected a group of its plan"), "{why}");
    let mut swapped = file(1, 1.0, 1.0);
    swapped["results"]["groups"][0]["systems"] = json!(["other", "one", "null"]);
    let why = run(1, &swapped).point(&series(&experiment())[0]).unwrap_err();
    assert_eq!(why, "expected p50 latency of other in column 1, seen p50 latency of one");
}
