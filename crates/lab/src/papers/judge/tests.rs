//! Whole plans with values by hand, run by the machine that runs real ones, to what is said of findings.

use std::time::Duration;

use super::super::rerun::Sees;
use super::super::{Quantifier, Ratio, quick};
use super::*;
use crate::plan::{Measure, Measures, Runner, TrialOutcome};
use crate::statistics::Stop;

/// A plan of the third part of a paper: what is compared is a throughput and a latency.
const PLAN: &str = "name = \"small\"\ndifference = \"10%\"\nrounds-max = 12\n\
    [[system]]\nname = \"x\"\nserve = { protocol = \"aoe\", disk = \"ram:64MiB\" }\n\
    [[system]]\nname = \"y\"\nserve = { protocol = \"iscsi\", disk = \"ram:64MiB\" }\n\
    [[path]]\nname = \"lan\"\n\
    [[compare]]\nname = \"rate\"\nsystems = [\"x\"]\nreference = \"y\"\nof = \"throughput\"\ndepth = 1\n\
    [[compare]]\nname = \"time\"\nsystems = [\"x\"]\nreference = \"y\"\nof = \"latency-mean\"\ndepth = 1\n\
    [[compare]]\nname = \"far\"\nsystems = [\"x\"]\nreference = \"y\"\nof = \"throughput\"\ndepth = 2\n";

/// Runs a plan whose cells have these values: throughput, and of latencies the reciprocal of them.
fn results(experiment: &Experiment, value: impl Fn(&str) -> f64, stop_after: usize) -> Results {
    let mut runner = Runner::new(experiment);
    let mut random = block::Random::new(7);
    let mut trials = 0;
    while let Some(trial) = runner.poll_trial() {
        if trials == stop_after {
            runner.handle_stop(Stop::Interrupted);
            break;
        }
        trials += 1;
        let noise = 1.0 + (random.below(1_000) as f64 - 500.0) * 2e-5;
        let value = value(&experiment.cell_name(&trial.cell)) * noise;
        let measures =
            Measures::from([(Measure::Throughput, value), (Measure::LatencyMean, 1e9 / value)]);
        let outcome = TrialOutcome::Measured { measures, is_steady: true };
        runner.handle_trial(outcome, Duration::from_secs(1));
    }
    runner.finish()
}

/// `x` has so many times the throughput of `y`, at depth 1 and at depth 2.
fn twofold(one: f64, two: f64) -> impl Fn(&str) -> f64 {
    move |cell: &str| match (cell.starts_with('x'), cell.contains("depth 1")) {
        (true, true) => one * 1e6,
        (true, false) => two * 1e6,
        _ => 1e6,
    }
}

fn finding(direction: Claim) -> Finding {
    let study = Study::of("rocha").expect("a paper");
    let margin = (direction == Claim::Equal).then_some(0.05);
    Finding { direction, margin, ratio: None, ..study.paper.findings[0].clone() }
}

fn recreated(judge: Quantifier, comparisons: &[&str]) -> Recreated {
    Recreated {
        plan: "small".to_owned(),
        comparisons: comparisons.iter().map(|name| (*name).to_owned()).collect(),
        over: None,
        controls: Vec::new(),
        judge,
        stands_for: None,
        variation: false,
        inverted: false,
        beside: Vec::new(),
        recreated: String::new(),
        sees: Sees::default(),
        unseen: None,
        explains: None,
    }
}

fn said(finding: &Finding, how: Recreated, results: &Results, sights: Sights) -> Said {
    let mut experiment = Experiment::parse("small", PLAN).expect("a plan");
    super::super::kept::leave_what_ran(&mut experiment, results);
    let measured = Measured { plan: "small", experiment: &experiment, results, sights };
    judge(finding, &How::Recreated(Box::new(how)), &[measured], &BTreeMap::new(), &[])
}

fn small(one: f64, two: f64) -> Results {
    let experiment = Experiment::parse("small", PLAN).expect("a plan");
    results(&experiment, twofold(one, two), usize::MAX)
}

fn ratio(said: &Said) -> f64 {
    said.ours.expect("a ratio").ratio.ratio()
}

#[test]
fn a_ratio_is_of_values_whichever_way_is_good() {
    let results = small(1.5, 1.5);
    let of = |name: &str, claim| {
        said(&finding(claim), recreated(Quantifier::Every, &[name]), &results, Sights::new())
    };
    let rate = of("rate", Claim::Above);
    assert_eq!(rate.answer, Answer::Confirmed);
    assert!((ratio(&rate) - 1.5).abs() < 0.02, "{rate:?}");
    // One and a half times as fast is two thirds of the time.
    let time = of("time", Claim::Below);
    assert_eq!(time.answer, Answer::Confirmed, "{time:?}");
    assert!((ratio(&time) - 1.0 / 1.5).abs() < 0.02, "{time:?}");
    assert_eq!(of("time", Claim::Above).answer, Answer::Refuted);
}

#[test]
fn what_is_inverted_is_the_other_way_round() {
    let how = Recreated { inverted: true, ..recreated(Quantifier::Every, &["rate", "far"]) };
    let said = said(&finding(Claim::Below), how, &small(1.5, 2.0), Sights::new());
    assert_eq!(said.answer, Answer::Confirmed);
    assert!((said.cells[1].ours.expect("a ratio").ratio.ratio() - 0.5).abs() < 0.01);
    assert!((ratio(&said) - (1.0_f64 / 3.0).sqrt()).abs() < 0.01, "the geometric mean: {said:?}");
}

#[test]
fn cells_are_judged_by_their_quantifier_and_a_mean_by_all() {
    let results = small(1.5, 0.8);
    let answer = |judge, claim| {
        said(&finding(claim), recreated(judge, &["rate", "far"]), &results, Sights::new()).answer
    };
    assert_eq!(answer(Quantifier::Every, Claim::Above), Answer::Refuted);
    assert_eq!(answer(Quantifier::AFew, Claim::Above), Answer::Confirmed);
    assert_eq!(answer(Quantifier::Mean, Claim::Above), Answer::Confirmed);
    assert_eq!(answer(Quantifier::Mean, Claim::Equal), Answer::Refuted);
}

#[test]
fn the_interval_is_the_one_that_the_lab_draws() {
    let results = small(1.5, 1.5);
    let said = said(
        &finding(Claim::Above),
        recreated(Quantifier::Every, &["rate"]),
        &results,
        Sights::new(),
    );
    let ours = said.ours.expect("a ratio");
    let findings = results.groups.iter().flat_map(|group| &group.analysis.findings);
    let rate = findings.into_iter().find(|one| one.name == "rate").expect("it is there");
    let drawn = rate.estimate.expect("rounds").corrected;
    for (one, other) in [(ours.interval.low, drawn.low), (ours.interval.high, drawn.high)] {
        assert!((one.0 - other.0).abs() < 1e-9, "{ours:?} {drawn:?}");
    }
}

#[test]
fn what_was_left_out_or_stopped_is_undecided_and_not_guessed() {
    let experiment = Experiment::parse("small", PLAN).expect("a plan");
    let mut short = experiment.clone();
    let run = Run {
        plan: "small".to_owned(),
        scaled: String::new(),
        full: false,
        quick: vec!["rate".to_owned()],
        quick_pictures: vec!["surface".to_owned()],
        quick_seconds: 100_000,
        quick_window_ms: 300,
    };
    let picture = |name: &str| crate::plan::Picture { name: name.to_owned(), cells: Vec::new() };
    short.pictures = vec![picture("surface"), picture("other")];
    assert_eq!(quick(&mut short, &run), ["time", "far", "other"]);
    assert_eq!(short.pictures.len(), 1, "that one it has");
    let quick = results(&short, twofold(1.5, 1.5), usize::MAX);
    let both = || recreated(Quantifier::Every, &["rate", "far"]);
    let left_out = said(&finding(Claim::Above), both(), &quick, Sights::new());
    assert_eq!(left_out.answer.to_string(), "undecided: not all of it was run");
    assert_eq!(left_out.cells[0].answer, Answer::Confirmed);
    assert!(left_out.ours.is_none(), "half of the cells have no mean of all");
    let stopped = results(&experiment, twofold(1.5, 1.5), 60);
    let stopped = said(&finding(Claim::Above), both(), &stopped, Sights::new());
    assert_eq!(stopped.answer.to_string(), "undecided: it was stopped before its last round");
}

#[test]
fn a_precondition_that_was_not_there_makes_it_untestable() {
    let sees = Sees {
        link_busy_at_most: Some(0.9),
        disk_share_at_least: Some(0.8),
        null_share_at_most: None,
        without_disk: BTreeMap::from([("x".to_owned(), "y".to_owned())]),
        ..Sees::default()
    };
    let how = || Recreated { sees: sees.clone(), ..recreated(Quantifier::Every, &["rate"]) };
    let cell = |system: &str| format!("{system} over lan, 4KiB randread, depth 1");
    let sights = |busy: f64, with: f64, without: f64| {
        Sights::from([
            ((cell("x"), Sight::LinkBusy), busy),
            ((cell("x"), Sight::Latency), with),
            ((cell("y"), Sight::Latency), without),
        ])
    };
    let results = small(1.5, 1.5);
    let answer = |sights| said(&finding(Claim::Above), how(), &results, sights);
    let met = answer(sights(0.5, 5e6, 1e5));
    assert_eq!(met.answer, Answer::Confirmed);
    assert_eq!(met.seen.len(), 2, "{:?}", met.seen);
    assert!(met.seen[1].contains("the disk had 98% of an operation's time (at least 80%)"));
    let busy = answer(sights(0.97, 5e6, 1e5)).answer.to_string();
    assert!(busy.starts_with("cannot be tested here, because its precondition"), "{busy}");
    assert!(busy.contains("the link was busy for 97%"), "{busy}");
    let disk = answer(sights(0.5, 2e5, 1e5)).answer.to_string();
    assert!(disk.contains("the disk had 50% of an operation's time"), "{disk}");
    assert_eq!(answer(Sights::new()).answer, Answer::Confirmed, "nothing was looked at");
}

#[test]
fn what_is_to_be_full_or_many_is_looked_at() {
    let sees = Sees {
        link_busy_at_least: Some(0.9),
        cpu_busy_at_least: Some(0.8),
        cpus_at_least: Some(4.0),
        ..Sees::default()
    };
    let how = || Recreated { sees: sees.clone(), ..recreated(Quantifier::Every, &["rate"]) };
    let cell = |system: &str| format!("{system} over lan, 4KiB randread, depth 1");
    let results = small(1.5, 1.5);
    // Of both sides of the pair: it is not enough that one was so.
    let answer = |link: f64, cpu: f64, cpus: f64| {
        let full = [(Sight::LinkBusy, 0.95), (Sight::CpuBusy, 0.99), (Sight::Cpus, 8.0)];
        let other = [(Sight::LinkBusy, link), (Sight::CpuBusy, cpu), (Sight::Cpus, cpus)];
        let x = full.map(|(sight, value)| ((cell("x"), sight), value));
        let y = other.map(|(sight, value)| ((cell("y"), sight), value));
        let sights = x.into_iter().chain(y).collect();
        said(&finding(Claim::Above), how(), &results, sights)
    };
    let met = answer(0.9, 0.8, 4.0);
    assert_eq!((met.answer, met.seen.len()), (Answer::Confirmed, 6));
    for (unmet, words) in [
        (answer(0.89, 0.9, 4.0), "the time that the link was busy: 89% (at least 90%)"),
        (answer(0.95, 0.5, 4.0), "the time that a CPU was busy: 50% (at least 80%)"),
        (answer(0.95, 0.9, 1.0), "CPUs of each end: 1 (at least 4)"),
    ] {
        let told = unmet.answer.to_string();
        assert!(told.starts_with("cannot be tested here") && told.contains(words), "{told}");
    }
}

#[test]
fn a_quick_run_has_only_cells_that_it_compares_and_is_judged_by_the_same_plan() {
    // Between those that stay stands one that goes.
    let rate = "[[compare]]\nname = \"rate\"";
    let third = "[[compare]]\nname = \"third\"\nsystems = [\"w\"]\nreference = \"y\"\nof = \"throughput\"\ndepth = 1\n";
    let three = PLAN.replace(rate, &format!("{third}{rate}"));
    let three = three.replacen(
        "[[system]]\n",
        "[[system]]\nname = \"w\"\nserve = { protocol = \"nvme\", disk = \"ram:64MiB\" }\n[[system]]\n",
        1,
    );
    let whole = Experiment::parse("small", &three).expect("a plan");
    let run = Run {
        plan: "small".to_owned(),
        scaled: String::new(),
        full: false,
        quick: vec!["rate".to_owned()],
        quick_pictures: Vec::new(),
        quick_seconds: 100_000,
        quick_window_ms: 300,
    };
    let mut short = whole.clone();
    quick(&mut short, &run);
    let [group] = short.groups.as_slice() else { panic!("one group") };
    assert_eq!(group.names, ["y", "x", "null"]);
    assert_eq!((group.plan.systems, group.plan.columns, group.null), (3, group.columns.len(), 2));
    let results = results(&short, twofold(1.5, 1.5), usize::MAX);
    let planned = whole.groups.iter().find(|one| one.name == group.name).expect("it");
    assert_eq!(planned.names, ["y", "w", "x", "null"], "w is of another comparison");
    let ran = planned.as_run(&results.groups[0]).expect("it is what ran");
    assert_eq!((&ran.columns, &ran.names), (&group.columns, &group.names));
    let rate = ran.plan.comparisons.iter().find(|one| one.name == "rate").expect("it");
    let ratio =
        results.groups[0].rounds.iter().map(|round| round[rate.subject] / round[rate.reference]);
    assert!(ratio.into_iter().all(|ratio| (1.4..1.6).contains(&ratio)), "x by y, and not by w");
}

#[test]
fn headers_are_judged_without_a_run_and_exactly() {
    let study = Study::of("landowski").expect("a paper");
    let all = study.judge(&[], &BTreeMap::new(), &[]);
    let said = all.iter().find(|said| said.id == "vs-tunnels").expect("it is there");
    assert_eq!(said.answer, Answer::Confirmed);
    let names: Vec<&str> = said.cells.iter().map(|cell| &*cell.name).collect();
    assert_eq!(
        names,
        [
            "AoE/MPLS (54 bytes) against AoE/GRE (74 bytes)",
            "AoE/MPLS (54 bytes) against AoE/L2TP (86 bytes)"
        ]
    );
    let ours: Vec<String> =
        said.cells.iter().map(|cell| cell.ours.expect("a ratio").to_string()).collect();
    assert_eq!(ours, ["0.730 times, exactly", "0.628 times, exactly"]);
    assert_eq!(said.size, Some(crate::papers::Size::Agrees), "of 0.58 to 0.63, and a tenth around");
    // The other way around it is refuted, and a stack that there is none of says nothing.
    let finding = study.paper.findings.iter().find(|one| one.id == "vs-tunnels").expect("it");
    let answer = |a: &str, b: &str| {
        let stacks = crate::papers::rerun::Stacks { a: vec![a.to_owned()], b: vec![b.to_owned()] };
        let how = How::Exact(crate::papers::rerun::Exact { stacks, recreated: String::new() });
        judge(finding, &how, &[], &BTreeMap::new(), &[]).answer.to_string()
    };
    assert_eq!(answer("AoE/GRE", "AoE/MPLS"), "refuted");
    assert!(answer("AoE/GRE", "AoE/UDP").starts_with("undecided: there is no such stack"));
}

#[test]
fn what_varies_more_from_round_to_round_is_told_by_its_variation_and_not_by_its_mean() {
    let experiment = Experiment::parse("small", PLAN).expect("a plan");
    // Rounds of x lie further from each other than those of y, which is faster as a whole.
    let turn = std::cell::Cell::new(0_u32);
    let values = |cell: &str| {
        turn.set(turn.get() + 1);
        let swing = f64::from(turn.get() * 7 % 13) / 13.0 - 0.5;
        if cell.starts_with('x') { 1e6 * (1.0 + swing * 0.2) } else { 2e6 * (1.0 + swing * 0.01) }
    };
    let results = results(&experiment, values, usize::MAX);
    let how = || Recreated { variation: true, ..recreated(Quantifier::Every, &["rate"]) };
    let more = said(&finding(Claim::Above), how(), &results, Sights::new());
    assert_eq!(more.answer, Answer::Confirmed, "{:?}", more.ours);
    assert!(more.ours.expect("a ratio").ratio.ratio() > 5.0, "{:?}", more.ours);
    let less = said(&finding(Claim::Below), how(), &results, Sights::new());
    assert_eq!(less.answer, Answer::Refuted);
    let turned = Recreated { inverted: true, ..how() };
    let turned = said(&finding(Claim::Below), turned, &results, Sights::new());
    assert_eq!(turned.answer, Answer::Confirmed);
    let mean = said(
        &finding(Claim::Above),
        recreated(Quantifier::Every, &["rate"]),
        &results,
        Sights::new(),
    );
    assert_eq!(mean.answer, Answer::Refuted, "x is slower");
}

#[test]
fn a_gain_is_a_ratio_of_ratios_with_the_doubt_of_both() {
    let over = |by: &str| Recreated {
        over: Some(by.to_owned()),
        ..recreated(Quantifier::Every, &["rate"])
    };
    // The one gains 1.8 times, the other 1.2.
    let results = small(1.8, 1.2);
    let gained = said(&finding(Claim::Above), over("far"), &results, Sights::new());
    assert_eq!(gained.answer, Answer::Confirmed);
    assert!((ratio(&gained) - 1.5).abs() < 0.01, "{gained:?}");
    let alone = said(
        &finding(Claim::Above),
        recreated(Quantifier::Every, &["rate"]),
        &results,
        Sights::new(),
    );
    let width = |said: &Said| {
        let interval = said.ours.expect("a ratio").interval;
        interval.high.0 - interval.low.0
    };
    assert!(width(&gained) > width(&alone), "{gained:?}");
    let other_way = said(&finding(Claim::Below), over("far"), &results, Sights::new());
    assert_eq!(other_way.answer, Answer::Refuted);
    let both = said(&finding(Claim::Above), over("far"), &small(1.5, 1.5), Sights::new());
    assert!(
        !matches!(both.answer, Answer::Confirmed | Answer::Refuted),
        "both gain as much: {both:?}"
    );
    let gone = said(&finding(Claim::Above), over("gone"), &results, Sights::new());
    assert_eq!(gone.answer.to_string(), "undecided: not all of it was run");
    assert!(gone.ours.is_none());
}

#[test]
fn a_disk_that_does_not_stay_below_half_of_one_that_does_nothing_makes_it_untestable() {
    let sees = Sees { null_share_at_most: Some(0.5), ..Sees::default() };
    let how = || Recreated { sees: sees.clone(), ..recreated(Quantifier::Every, &["rate"]) };
    let sights = |x: f64| {
        let cell = |system: &str| (format!("{system}4KiB randread, depth 1"), Sight::Iops);
        Sights::from([(cell("x over lan, "), x), (cell("null, "), 1e6)])
    };
    let results = small(1.5, 1.5);
    let answer = |sights| said(&finding(Claim::Above), how(), &results, sights);
    let met = answer(sights(4.9e5));
    assert_eq!(met.answer, Answer::Confirmed);
    assert_eq!(
        met.seen,
        [
            "x over lan, 4KiB randread, depth 1: 49% of the operations of a disk that does nothing (at most 50%)"
        ]
    );
    let fast = answer(sights(6e5)).answer.to_string();
    assert!(fast.contains("60% of the operations of a disk that does nothing"), "{fast}");
    assert!(fast.starts_with("cannot be tested here, because its precondition"), "{fast}");
    assert_eq!(answer(Sights::new()).answer, Answer::Confirmed, "nothing was looked at");
}

#[test]
fn a_plan_that_did_not_run_leaves_its_findings_and_one_that_cannot_be_read_is_not_rerun_yet() {
    let because = "it has no such disk";
    let not_run = |plan: &str, cause: &str| serde_json::json!({ "plan": plan, "because": because, "cause": cause });
    let file = serde_json::json!({ "schema_version": 1, "paper": "rocha", "not_run": [
        not_run("rocha-micro-disk", "lacking"),
        not_run("rocha-micro-cache", "machine"),
        not_run("rocha-micro-cache-disk", "passed"),
    ]});
    let all = crate::papers::PaperKept::read(&file).expect("a paper").judge();
    assert_eq!(all.len(), 25);
    let of =
        |id: &str| all.iter().find(|said| said.id == id).expect("it is there").answer.to_string();
    assert_eq!(of("seq-read-uncached"), "undecided: its plan rocha-micro was not run");
    assert_eq!(of("rand-read-uncached"), "not rerun yet: it has no such disk");
    assert_eq!(of("write-cached"), "cannot be tested here, because it has no such disk");
    assert_eq!(of("read-cached-random"), "undecided: its plan rocha-micro-cache-disk was not run");
    assert_eq!(of("varmail"), "undecided: its plan rocha-macro was not run");
}

#[test]
fn a_whole_paper_is_judged_by_its_plan() {
    let study = Study::of("rocha").expect("a paper");
    let experiment = study.runs[0].experiment().expect("a plan");
    let value = |cell: &str| if cell.starts_with("aoe") { 1.21e6 } else { 1e6 };
    let results = results(&experiment, value, usize::MAX);
    let plan = "rocha-micro";
    let measured =
        Measured { plan, experiment: &experiment, results: &results, sights: Sights::new() };
    let all = study.judge(&[measured], &BTreeMap::new(), &[]);
    let read = all.iter().find(|said| said.id == "seq-read-uncached").expect("it is there");
    assert_eq!((&read.answer, read.size), (&Answer::Confirmed, Some(Size::Agrees)));
    assert_eq!((read.cells.len(), read.is_modelled), (2, false));
    let write = all.iter().find(|said| said.id == "write-uncached").expect("it is there");
    assert_eq!((&write.answer, write.size, write.cells.len()), (&Answer::Confirmed, None, 4));
}

#[test]
fn a_finding_whose_cells_have_a_control_needs_the_same_without_its_cost() {
    let of = |one: f64, cost: f64, claim: Claim| {
        let how = Recreated {
            controls: vec!["far".to_owned()],
            ..recreated(Quantifier::Every, &["rate"])
        };
        said(&finding(claim), how, &small(one, cost), Sights::new())
    };
    let two = of(2.0, 1.2, Claim::Above);
    assert_eq!(two.answer, Answer::Confirmed, "{two:?}");
    let told =
        two.seen.iter().find(|words| words.starts_with("far: 1.20 times")).expect("it is told");
    assert!(told.contains("; with that taken off, 1.67 times"), "{told}");
    assert!((ratio(&two) - 2.0).abs() < 0.02, "what was measured is shown: {two:?}");
    assert_eq!(of(2.0, 1.2, Claim::Below).answer, Answer::Refuted);
    // All of it, or more than that, is what the control costs.
    for cost in [1.5, 2.0] {
        let said = of(1.5, cost, Claim::Above);
        let Answer::AnalogueOnly { because } = &said.answer else { panic!("{said:?}") };
        assert!(because.starts_with("confirmed as it was measured, and "), "{because}");
    }
    let refuted = of(1.5, 2.0, Claim::Above).answer.to_string();
    assert!(refuted.ends_with("and refuted with the control's cost taken off"), "{refuted}");
    let equal = of(1.0, 1.3, Claim::Equal);
    assert_eq!(equal.answer.word(), "analogue only", "{equal:?}");
}

#[test]
fn what_only_stands_for_a_finding_neither_confirms_nor_refutes_it_and_has_no_size() {
    let of = |one: f64, names: &[&str]| {
        let stands_for = Some("something like it".to_owned());
        let how = Recreated { stands_for, ..recreated(Quantifier::Every, names) };
        let finding = Finding { ratio: Some(Ratio::One(2.0)), ..finding(Claim::Above) };
        said(&finding, how, &small(one, 1.0), Sights::new())
    };
    for (one, word) in [(2.0, "confirmed"), (0.5, "refuted")] {
        let said = of(one, &["rate"]);
        let words = format!("analogue only: something like it; of that: {word}");
        assert_eq!((said.answer.to_string(), said.size), (words, None));
        assert_eq!((said.cells[0].answer.word(), said.cells[0].size), (word, None));
        assert!((ratio(&said) - one).abs() < 0.02, "what was measured is shown: {said:?}");
    }
    let said = of(2.0, &["rate", "nowhere"]);
    assert_eq!(said.answer, Answer::undecided("not all of it was run"));
}

#[test]
fn a_control_that_did_not_run_leaves_a_finding_undecided() {
    let how = Recreated {
        controls: vec!["nowhere".to_owned()],
        ..recreated(Quantifier::Every, &["rate"])
    };
    let said = said(&finding(Claim::Above), how, &small(2.0, 1.0), Sights::new());
    assert_eq!(said.answer, Answer::undecided("not all of it was run"), "{said:?}");
    assert_eq!(said.seen, ["nowhere: undecided: not all of it was run"]);
}
