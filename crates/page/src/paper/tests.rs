//! A paper whose plan ran by hand-made values: what its page holds, and which files have none.

use std::time::Duration;

use lab::papers::plan_text;
use lab::plan::{Experiment, Measure, Measures, Pace, Runner, TrialOutcome};
use serde_json::json;

use super::*;

/// The result file of Rocha's micro plan, in which AoE has so many times the throughput of iSCSI.
fn rocha(times: f64) -> Value {
    let text = plan_text("rocha-micro").expect("a plan");
    let experiment = Experiment::parse("plan", text).expect("a plan");
    let mut runner = Runner::new(&experiment);
    let mut count = 0_u32;
    while let Some(trial) = runner.poll_trial() {
        count += 1;
        let noise = 1.0 + f64::from(count * 37 % 17) * 1e-3;
        let is_aoe = experiment.cell_name(&trial.cell).starts_with("aoe");
        let value = if is_aoe { 5e7 * times } else { 5e7 } * noise;
        let measures = Measures::from([(Measure::Throughput, value)]);
        let outcome = TrialOutcome::Measured { measures, is_steady: true };
        runner.handle_trial(outcome, Duration::from_secs(1));
    }
    let environment = json!({ "version": "0.0.1", "date": "2026-11-28T21:00:00Z", "kernel": "Linux 1",
        "cpu": "a CPU", "cpus": [0], "driver": "" });
    let result = json!({ "schema_version": 1, "environment": environment, "plan": text,
        "results": runner.finish() });
    json!({ "schema_version": 1, "paper": "rocha", "quick": true,
        "runs": [{ "plan": "rocha-micro", "left_out": ["<some> comparison"], "result": result }],
        "not_run": [{ "plan": "rocha-micro-disk", "because": "there is no such disk", "cause": "lacking" }] })
}

#[test]
fn a_page_has_both_values_both_verdicts_and_what_to_know() {
    let html = page(&rocha(1.2)).expect("a result file").html;
    for words in [
        "<h1>Experimental performance analysis of the AoE and iSCSI storage protocols</h1>",
        "A quick run",
        "<td>+20%<br>1.20 times</td><td>1.20 times (",
        "<td class=\"said\">confirmed</td><td>agrees</td>",
        "the paper&#39;s precondition: cost of the network layers",
        "cell throughput of aoe against iscsi over mtu-9000, 4KiB read, depth 1: confirmed, 1.20 times",
        "not rerun yet: there is no such disk",
        "<li>&lt;some&gt; comparison</li>",
        "all of plan rocha-micro-disk: there is no such disk",
        "<h2>Plan rocha-micro</h2>",
        "64 MiB of memory at the target in place of 64 GB",
        "Its file, word for word",
    ] {
        assert!(html.contains(words), "{words}");
    }
    assert!(!html.contains("what may explain it"), "nothing was refuted");
    for loaded in ["http://", "https://", "<script", "@import", "url("] {
        // A namespace of SVG within an address of its own is no load.
        assert!(!html.replace("xmlns=", "").contains(&format!("src=\"{loaded}")), "{loaded}");
        assert!(!html.contains(&format!("href=\"{loaded}")), "{loaded}");
    }
}

#[test]
fn a_refuted_finding_has_what_may_explain_it() {
    let html = page(&rocha(0.8)).expect("a result file").html;
    assert!(html.contains("<td class=\"failed\">refuted</td><td>smaller</td>"), "{html}");
    assert!(html.contains("what may explain it: both ends are Plateway in user space"));
}

#[test]
fn figures_of_the_paper_are_drawn_from_our_cells() {
    let page = page(&rocha(1.2)).expect("a result file");
    let of = |title: &str| {
        let its = page.figures.iter().find(|figure| figure.title == title);
        its.unwrap_or_else(|| panic!("no figure {title}"))
    };
    let ratios = of("Our ratios beside the paper's");
    assert!(ratios.svg.contains(">seq-read-uncached: confirmed</text>"), "{}", ratios.svg);
    let mut lines = ratios.csv.lines();
    let line = lines.find(|line| line.starts_with("seq-read-uncached,1.2,1.2,"));
    let ours = line.and_then(|line| line.split(',').nth(3)?.parse::<f64>().ok());
    assert!(ours.is_some_and(|ours| (ours - 1.2).abs() < 0.01), "{}", ratios.csv);
    let sequential = of("Figure 2 (a), sequential");
    assert_eq!(sequential.csv.lines().count(), 1 + 4 * 2, "{}", sequential.csv);
    // Both MTUs of a protocol share their rounds.
    for words in ["over mtu-9000, 4KiB write, depth 1", "aoe (over mtu-1500)"] {
        assert!(sequential.svg.contains(words), "{words}: {}", sequential.svg);
    }
    let names: Vec<&str> = page.figures.iter().map(|figure| figure.name.as_str()).collect();
    let mut apart = names.clone();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), names.len(), "{names:?}");
    assert!(
        page.figures
            .iter()
            .all(|one| one.title != "Figure 2 (b), random reads, on a modelled disk and on memory")
    );
}

/// The result file of Goncalves' array, whose disks do so many operations a second each.
fn goncalves() -> Value {
    let text = plan_text("goncalves-array").expect("a plan");
    let experiment = Experiment::parse("plan", text).expect("a plan");
    let mut runner = Runner::new(&experiment);
    let (mut count, mut trials) = (0_u32, Vec::new());
    while let Some(trial) = runner.poll_trial() {
        count += 1;
        let noise = 1.0 + f64::from(count * 37 % 17) * 1e-3;
        let (load, system) = (trial.cell.load, &experiment.systems[trial.cell.system]);
        let depth = match load.pace {
            Pace::Closed { depth } => depth,
            Pace::Open { .. } => panic!("a plan of closed loops"),
        };
        let iops = f64::from(system.disks_under(&load)) * 1e4 * noise;
        let latency = f64::from(depth * load.jobs) / iops * 1e9;
        let measures = Measures::from([
            (Measure::Iops, iops),
            (Measure::ReadIops, iops * 0.75),
            (Measure::WriteIops, iops * 0.25),
            (Measure::LatencyMean, latency),
            (Measure::ReadLatencyMean, latency),
            (Measure::WriteLatencyMean, latency),
        ]);
        let bench = json!({ "queue_depth": depth, "jobs": load.jobs });
        let cell = experiment.cell_name(&trial.cell);
        trials.push(json!({ "cell": cell, "bench": bench, "disks": load.disks }));
        let outcome = TrialOutcome::Measured { measures, is_steady: true };
        runner.handle_trial(outcome, Duration::from_secs(1));
    }
    let environment = json!({ "version": "0.0.1", "date": "2026-11-28T21:00:00Z", "kernel": "Linux 1",
        "cpu": "a CPU", "cpus": [0], "driver": "" });
    let result = json!({ "schema_version": 1, "environment": environment, "plan": text,
        "results": runner.finish(), "trials": trials });
    json!({ "schema_version": 1, "paper": "goncalves", "quick": false,
        "runs": [{ "plan": "goncalves-array", "left_out": [], "result": result }], "not_run": [] })
}

#[test]
fn surfaces_of_the_paper_are_pictures_of_the_plan_with_a_panel_for_each_number_of_disks() {
    let file = goncalves();
    let page = page(&file).expect("a result file");
    let of = |title: &str| {
        let its = page.figures.iter().find(|figure| figure.title == title);
        its.unwrap_or_else(|| panic!("no figure {title}"))
    };
    let surface = of("Figures 4.1 to 4.4, read IOPS");
    for panel in [">ssd, disks 1<", ">ssd, disks 2<", ">ssd, disks 4<", ">ssd, disks 12<"] {
        assert!(surface.svg.contains(panel), "{panel}");
    }
    assert_eq!(surface.csv.lines().count(), 1 + 4 * 7 * 7);
    let row = surface
        .csv
        .lines()
        .find(|line| line.contains("depth 64, 64 jobs") && line.contains("12 disks"));
    assert!(row.expect("a cell").contains(",12,64,64,"), "{row:?}");
    let nine = of("Twelve disks, read latency, nine cells");
    assert_eq!(nine.csv.lines().count(), 1 + 9);
    assert!(nine.svg.contains("depth →") && nine.svg.contains("↑ jobs"));
    for words in [
        "In place of the paper&#39;s figures 4.1 to 4.4: surfaces over numjobs x iodepth: IOPS of reads, by plan goncalves-array.",
        "modelled",
        "cell IOPS of reads of ssd against ssd (1 disk), 4KiB randrw=75, depth 32, 16 jobs, within 8MiB, 12 disks: confirmed, 12.0 times",
    ] {
        assert!(page.html.contains(words), "{words}");
    }
    let verdict = |id: &str| {
        let kept = PaperKept::read(&file).expect("a paper");
        let all = kept.judge();
        let said = all.iter().find(|said| said.id == id).expect("a finding");
        (said.answer.word(), said.size.map(|size| size.to_string()))
    };
    let agrees = Some("agrees".to_owned());
    assert_eq!(verdict("array-scaling"), ("confirmed", agrees.clone()));
    assert_eq!(verdict("array-latency"), ("confirmed", agrees.clone()));
    assert_eq!(verdict("reads-vs-writes"), ("confirmed", agrees));
    assert_eq!(verdict("latency-knee"), ("confirmed", None));
    assert_eq!(verdict("nvme-local-iodepth"), ("confirmed", None));
    // Here no more jobs bring anything, of one disk or of twelve.
    assert_ne!(verdict("array-numjobs").0, "confirmed");
}

#[test]
fn what_is_no_result_of_a_paper_has_no_page() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut file = rocha(1.0);
        change(&mut file);
        page(&file).expect_err("it is wrong")
    };
    let nobody = refused(&|file| file["paper"] = "nobody".into());
    assert!(nobody.starts_with("expected a paper, one of rocha"), "{nobody}");
    let later = refused(&|file| file["schema_version"] = 2.into());
    assert_eq!(later, "expected schema_version 1, seen 2");
    let broken = refused(&|file| file["runs"][0]["result"]["plan"] = "name = 1".into());
    assert!(broken.starts_with("run of rocha-micro: "), "{broken}");
    let none = refused(&|file| file["runs"] = 1.into());
    assert!(none.starts_with("expected a result file of a paper: "), "{none}");
}
