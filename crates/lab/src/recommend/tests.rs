//! Advice on plans that ran on a machine of which the truth is known, by the runner that runs real
//! ones: what is taken, how sure it is said to be, and where the answer turns.

use std::time::Duration;

use block::Random;
use serde_json::{Value, json};

use super::*;
use crate::plan::{Cell, Experiment, Measures, Runner, TrialOutcome};
use crate::statistics::Stop;

/// What a system does in a cell: IOPS, p99 in nanoseconds, CPU of near and far end in microseconds
/// and bytes on the wire an operation.
type Does = [f64; 5];

/// Runs a plan in a world, with half a percent of noise, and stops after so many trials; what would
/// be kept.
fn file(plan: &str, trials_max: usize, does: impl Fn(&str, &Cell) -> Does) -> Value {
    let experiment =
        Experiment::parse("plan", plan).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut runner = Runner::new(&experiment);
    let mut random = Random::new(5);
    let mut trials = Vec::new();
    while let Some(trial) = runner.poll_trial() {
        if trials.len() == trials_max {
            runner.handle_stop(Stop::Interrupted);
            break;
        }
        let name = &experiment.systems[trial.cell.system].name;
        let [iops, p99, near, far, wire] = does(name, &trial.cell);
        let noise = 1.0 + (random.below(1_001) as f64 - 500.0) / 100_000.0;
        let measures = Measures::from([
            (Measure::Iops, iops * noise),
            (Measure::P99, p99 / noise),
            (Measure::CpuPerOp, (near + far) / noise),
        ]);
        let round = match &trial.purpose {
            crate::plan::Purpose::Round { round, .. } => json!(round),
            crate::plan::Purpose::Picture { .. } => Value::Null,
        };
        let notes = if near > 19.0 { json!(["the client was the limit"]) } else { json!([]) };
        trials.push(json!({
            "cell": experiment.cell_name(&trial.cell), "round": round, "measures": measures, "is_steady": true,
            "near": { "cpu_us_per_op": near }, "far": { "cpu_us_per_op": far }, "wire_bytes_per_op": wire,
            "notes": notes,
        }));
        let outcome = TrialOutcome::Measured { measures, is_steady: true };
        runner.handle_trial(outcome, Duration::from_secs(1));
    }
    let environment = json!({ "version": "1", "date": "2026-11-27T00:00:00Z", "kernel": "Linux 6",
        "cpu": "a CPU", "cpus": [0, 1], "driver": "" });
    json!({ "schema_version": 1, "environment": environment, "plan": plan, "results": runner.finish(),
        "trials": trials })
}

fn plan(more: &str) -> String {
    let system = |name: &str| {
        format!(
            "[[system]]\nname = \"{name}\"\nserve = {{ protocol = \"{name}\", disk = \"ram:64MiB\" }}\n"
        )
    };
    let systems = ["aoe", "iscsi", "nvme"].map(system).concat();
    format!(
        "name = \"roads\"\ndifference = \"10%\"\n{systems}[[path]]\nname = \"lan\"\n\
         [load]\nblock-size = \"4k\"\npattern = \"randread\"\ndepth = 32\n\
         [[compare]]\nsystems = [\"aoe\", \"iscsi\"]\nreference = \"nvme\"\nof = \"iops\"\n{more}"
    )
}

/// nvme does the most, aoe with less of all that it needs.
fn apart(name: &str, _: &Cell) -> Does {
    match name {
        "aoe" => [80_000.0, 390e3, 4.0, 6.0, 4_150.0],
        "iscsi" => [60_000.0, 900e3, 9.0, 9.0, 4_300.0],
        "nvme" => [100_000.0, 600e3, 5.0, 7.5, 4_250.0],
        _ => [1e6, 10e3, 1.0, 0.0, 1.0],
    }
}

fn only(advice: Advice) -> Choice {
    let [choice] = <[Choice; 1]>::try_from(advice.choices).expect("one group");
    choice
}

fn said(choice: &Choice) -> String {
    choice.turns.iter().map(|turn| format!("{turn}\n")).collect()
}

#[test]
fn a_bound_is_no_comparison_to_choose_by() {
    let bound = |of: &str| {
        format!(
            "[[compare]]\nsystems = [\"aoe\"]\nreference = \"nvme\"\nof = \"{of}\"\nat-least = 0.7\n"
        )
    };
    // Beside a difference it is told, and changes nothing.
    let with = only(recommend(&file(&plan(&bound("iops")), 999, apart), None).unwrap());
    let without = only(recommend(&file(&plan(""), 999, apart), None).unwrap());
    assert_eq!((with.take.as_deref(), &with.sureness), (Some("nvme"), &without.sureness));
    let said = with.said.last().expect("three").clone();
    assert!(
        said.contains("aoe against nvme") && said.contains("at least 0.7 times: held"),
        "{said}"
    );
    assert_eq!(with.said.len(), 3);
    // Of another load, and by another measure, it is all there is.
    let deep = format!("{}depth = 1\n", bound("iops"));
    let advice = recommend(&file(&plan(&deep), 999, apart), None).unwrap();
    assert_eq!(advice.bounds_alone, ["over lan, 4KiB randread, depth 1"]);
    let left_out: Vec<String> = advice.left_out().collect();
    assert!(left_out[0].ends_with("which say whether they are kept and not who is better"));
    assert_eq!(only(advice).take.as_deref(), Some("nvme"));
    let by = recommend(&file(&plan(&bound("p99")), 999, apart), Some(Measure::P99)).unwrap_err();
    assert_eq!(by, "expected a measure that something was compared by, one of iops, seen p99",);
    // One that stands first, by another measure, is not what counts.
    let first = plan("").replace("[[compare]]", &format!("{}[[compare]]", bound("p99")));
    assert_eq!(only(recommend(&file(&first, 999, apart), None).unwrap()).by, Measure::Iops);
    let alone = plan("").replace("of = \"iops\"", "of = \"iops\"\nat-least = 0.7");
    let alone = recommend(&file(&alone, 999, apart), None).unwrap_err();
    assert!(alone.starts_with("expected a plan that asks for a difference, seen bounds alone"));
}

#[test]
fn what_is_shown_to_be_ahead_of_all_is_taken_and_where_that_turns_is_reckoned() {
    let choice = only(recommend(&file(&plan(""), 999, apart), None).unwrap());
    assert_eq!(choice.headline(), "take nvme: by IOPS it is shown to be better than the others");
    assert_eq!(choice.load, "over lan, 4KiB randread, depth 32");
    let names: Vec<&str> = choice.candidates.iter().map(|one| &*one.system).collect();
    assert_eq!(names, ["nvme", "aoe", "iscsi"], "null is no road");
    assert_eq!(choice.candidates[1].behind.as_deref(), Some("nvme"));
    let said = said(&choice);
    // Medians are those of the world, within its noise: 1 - 390/600, 1 - 80/100, 1 - 10/12.5.
    for line in [
        "if p99 latency counts more: aoe, 35% better, and 20% worse by what counts here (by figures alone, they were not compared by it)",
        "if CPU per operation counts more: aoe, 20% better, and 20% worse",
        "if bytes on the wire count more: aoe, 4150 an operation, 2.4% less",
        "the blocks of nvme, aoe and iscsi were in memory",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let link = choice.turns.iter().find_map(|turn| match turn {
        Turn::Link { carried_mbit, below_mbit, take } => Some((*carried_mbit, *below_mbit, take)),
        _ => None,
    });
    // 4250 bytes of 8 bits each, for 100,000 and for aoe's 80,000 operations a second.
    let (carried, below, take) = link.expect("a path");
    assert!((carried / 3_400.0 - 1.0).abs() < 0.005 && (below / 2_720.0 - 1.0).abs() < 0.005);
    assert_eq!(take.as_deref(), Some("aoe"));
    let cpus: Vec<(&str, f64)> = choice
        .turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::Cpus { end, below, take, .. } if take == "aoe" => Some((*end, *below)),
            _ => None,
        })
        .collect();
    // nvme's 5 us and 7.5 us for 80,000 operations a second.
    let [("near", near), ("far", far)] = cpus[..] else { panic!("{cpus:?}") };
    assert!((near / 0.4 - 1.0).abs() < 0.005 && (far / 0.6 - 1.0).abs() < 0.005, "{cpus:?}");
    assert!(!said.contains("not compared with each other"), "who is out is out\n{said}");
}

#[test]
fn of_equal_ones_cpu_decides_by_figures_or_by_a_verdict_and_then_bytes_and_then_what_stays() {
    let equal = |cpu: f64, wire: f64| {
        move |name: &str, _: &Cell| match name {
            "aoe" => [100_000.0, 400e3, cpu, 0.5, wire],
            "iscsi" => [60_000.0, 900e3, 9.0, 9.0, 4_300.0],
            "nvme" => [100_000.0, 600e3, 5.0, 9.0, 4_250.0],
            _ => [1e6, 10e3, 1.0, 0.0, 1.0],
        }
    };
    let headline = |more: &str, does: &dyn Fn(&str, &Cell) -> Does| {
        only(recommend(&file(&plan(more), 999, does), None).unwrap()).headline()
    };
    let by_figures = headline("", &equal(5.5, 4_150.0));
    assert_eq!(
        by_figures,
        "take aoe: by IOPS nvme is equal to it within 10%; so CPU per operation decides, 6.0 us instead of 14.0 us (by figures alone, without a verdict)"
    );
    let cpu = "[[compare]]\nsystems = [\"aoe\", \"iscsi\"]\nreference = \"nvme\"\nof = \"cpu-per-op\"\nexploratory = true\n";
    let by_verdict = headline(cpu, &equal(5.5, 4_150.0));
    assert!(by_verdict.ends_with("14.0 us (by a verdict)"), "{by_verdict}");
    let by_bytes = headline("", &equal(13.5, 1_000.0));
    assert!(
        by_bytes.starts_with("take aoe") && by_bytes.contains("bytes on the wire decide, 1000")
    );
    let by_reference = headline("", &equal(13.5, 4_240.0));
    assert!(
        by_reference.starts_with("take nvme") && by_reference.contains("reference stays"),
        "{by_reference}"
    );
}

#[test]
fn what_a_verdict_leaves_figures_decide_and_what_is_shown_to_be_equal_is_said_to_be() {
    let does = |name: &str, _: &Cell| match name {
        "aoe" => [100_000.0, 400e3, 5.5, 0.5, 4_150.0],
        "iscsi" => [100_000.0, 900e3, 9.0, 9.0, 4_300.0],
        "nvme" => [100_000.0, 600e3, 5.0, 9.0, 4_250.0],
        _ => [1e6, 10e3, 1.0, 0.0, 1.0],
    };
    // A verdict puts iscsi behind nvme; that aoe costs less than nvme no verdict says.
    let cpu = "[[compare]]\nsystems = [\"iscsi\"]\nreference = \"nvme\"\nof = \"cpu-per-op\"\nexploratory = true\n";
    let choice = only(recommend(&file(&plan(cpu), 999, does), None).unwrap());
    assert_eq!(
        choice.headline(),
        "perhaps aoe: by IOPS nothing is shown between it and iscsi (nvme is shown to be equal to it); so CPU per operation decides, 6.0 us instead of 14.0 us (by figures alone, without a verdict)"
    );
}

#[test]
fn a_cost_that_is_less_by_the_margin_of_speed_turns_the_answer() {
    let does = |p99: f64| {
        move |name: &str, _: &Cell| match name {
            "nvme" => [100_000.0, 1_000e3, 5.0, 7.5, 4_250.0],
            "aoe" => [80_000.0, p99, 5.0, 7.5, 4_230.0],
            _ => [60_000.0, 2_000e3, 9.0, 9.0, 4_300.0],
        }
    };
    let said = |p99: f64| said(&only(recommend(&file(&plan(""), 999, does(p99)), None).unwrap()));
    // As fast as 1.1 of it is 909 of 1000, which is 9.1% less.
    assert!(said(906e3).contains("if p99 latency counts more: aoe, 9."), "{}", said(906e3));
    assert!(!said(918e3).contains("if p99 latency counts more"), "{}", said(918e3));
    assert!(
        said(900e3)
            .contains("the link is the limit, and nothing needs fewer bytes by 1.0% or more")
    );
}

#[test]
fn only_rounds_that_count_are_in_the_figures() {
    // The picture's cell is the group's own.
    let more = "[[picture]]\nname = \"same\"\nsystems = [\"aoe\", \"nvme\"]\n";
    let mut file = file(&plan(more), 999, apart);
    let trials_of_aoe = |file: &Value| {
        let choice = only(recommend(file, None).unwrap());
        choice.candidates.into_iter().find(|one| one.system == "aoe").unwrap().figures.trials
    };
    let rounds = file["results"]["groups"][0]["rounds"].as_array().unwrap().len();
    assert_eq!(trials_of_aoe(&file), rounds);
    let trials = file["trials"].as_array_mut().unwrap();
    let of_round = |trial: &&mut Value| trial["round"]["is_pilot"] == false;
    trials.iter_mut().find(of_round).expect("a round")["is_steady"] = false.into();
    assert_eq!(trials_of_aoe(&file), rounds - 1, "it was repeated, or there is nothing to say");
}

#[test]
fn two_that_were_not_compared_with_each_other_are_not_ranked() {
    let does = |name: &str, cell: &Cell| match name {
        "nvme" => [50_000.0, 900e3, 9.0, 9.0, 4_250.0],
        "iscsi" => [90_000.0, 500e3, 20.0, 9.0, 4_300.0],
        other => apart(other, cell),
    };
    let choice = only(recommend(&file(&plan(""), 999, does), None).unwrap());
    assert!(
        choice.headline().starts_with("perhaps aoe: by IOPS nothing is shown between it and iscsi"),
        "{}",
        choice.headline()
    );
    let said = said(&choice);
    assert!(said.contains("aoe and iscsi were not compared with each other"), "{said}");
    let iscsi = choice.candidates.iter().find(|one| one.system == "iscsi").unwrap();
    let limit =
        format!("the client was the limit in {0} of {0} trials of iscsi", iscsi.figures.trials);
    assert!(iscsi.figures.trials >= 6 && said.contains(&limit), "{said}");
    // One is faster than the reference, the other slower: that follows.
    let does = |name: &str, cell: &Cell| match name {
        "nvme" => [70_000.0, 900e3, 9.0, 9.0, 4_250.0],
        other => apart(other, cell),
    };
    let choice = only(recommend(&file(&plan(""), 999, does), None).unwrap());
    assert_eq!(choice.headline(), "take aoe: by IOPS it is shown to be better than the others");
}

#[test]
fn one_alone_is_not_recommended_over_null() {
    let alone = "name = \"alone\"\ndifference = \"10%\"\n\
        [[system]]\nname = \"aoe\"\nserve = { protocol = \"aoe\", disk = \"null:64MiB\" }\n\
        [[system]]\nname = \"nothing\"\ndisk = \"null:64MiB\"\n[[path]]\nname = \"lan\"\n\
        [[compare]]\nsystems = [\"aoe\"]\nreference = \"nothing\"\nof = \"iops\"\n";
    let choice = only(recommend(&file(alone, 999, apart), None).unwrap());
    assert!(choice.headline().starts_with("aoe is the only one"), "{}", choice.headline());
}

#[test]
fn without_a_verdict_nothing_is_recommended() {
    let choice = only(recommend(&file(&plan(""), 30, apart), None).unwrap());
    assert_eq!((choice.take.as_ref(), choice.decided), (None, None));
    assert_eq!(
        choice.headline(),
        "nothing is recommended: no verdict by IOPS: it was stopped before its last round"
    );
    let said = said(&choice);
    assert!(said.contains("no verdict: it was stopped") && !said.contains("counts more"), "{said}");
}

#[test]
fn another_measure_is_asked_for_by_its_name_and_labelled_if_it_is_exploratory() {
    let more = "[[compare]]\nsystems = [\"aoe\", \"iscsi\"]\nreference = \"nvme\"\nof = \"p99\"\nexploratory = true\n";
    let file = file(&plan(more), 999, apart);
    let choice = only(recommend(&file, Some(Measure::P99)).unwrap());
    assert_eq!(
        choice.headline(),
        "take aoe: by p99 latency it is shown to be better than the others (exploratory: one such verdict in twenty is chance)"
    );
    assert!(said(&choice).contains("if IOPS counts more: nvme, 25% better"), "{}", said(&choice));
    let by_iops = only(recommend(&file, None).unwrap());
    assert!(
        said(&by_iops)
            .contains("aoe, 35% better, and 20% worse by what counts here (an exploratory verdict")
    );
    let error = recommend(&file, Some(Measure::P50)).unwrap_err();
    assert_eq!(
        error,
        "expected a measure that something was compared by, one of iops, p99, seen p50"
    );
}

#[test]
fn a_cell_of_a_picture_in_which_the_order_turns_is_named() {
    let more = "[[picture]]\nname = \"depth\"\nsystems = [\"aoe\", \"nvme\"]\ndepth = [1, 64]\n";
    let does = |name: &str, cell: &Cell| match (name, cell.load.to_string().ends_with("depth 1")) {
        ("aoe", true) => [150_000.0, 400e3, 4.0, 6.0, 4_150.0],
        (other, _) => apart(other, cell),
    };
    let choice = only(recommend(&file(&plan(more), 999, does), None).unwrap());
    let said = said(&choice);
    assert!(
        said.contains(
            "over lan, 4KiB randread, depth 1: aoe, 50% better (picture \"depth\", measured once)"
        ) || said.contains("over lan, 4KiB randread, depth 1: aoe, 49% better")
            || said.contains("over lan, 4KiB randread, depth 1: aoe, 51% better"),
        "{said}"
    );
    assert!(!said.contains("depth 64"), "there it is the same\n{said}");
}

#[test]
fn what_is_no_result_file_of_this_version_says_so() {
    let whole = file(&plan(""), 999, apart);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut file = whole.clone();
        change(&mut file);
        recommend(&file, None).unwrap_err()
    };
    assert_eq!(
        refused(&|file| file["schema_version"] = 2.into()),
        "schema_version: expected 1, seen 2"
    );
    assert!(refused(&|file| *file = json!([])).contains("seen no schema_version"));
    let error = refused(&|file| file["results"]["groups"] = 7.into());
    assert!(error.starts_with("expected a result file of the lab: "), "{error}");
    let error = refused(&|file| file["results"]["groups"] = json!([]));
    assert_eq!(error, "expected results of the 1 groups of its plan, seen 0");
    let error = refused(&|file| file["plan"] = "name = 7".into());
    assert!(error.starts_with("the plan in it is none that this version reads:"), "{error}");
    let other = "IOPS of x against y";
    let error = refused(&|file| {
        file["results"]["groups"][0]["analysis"]["findings"][0]["name"] = other.into();
    });
    assert!(
        error.contains("expected the comparisons of its plan, IOPS of aoe")
            && error.contains(other)
    );
    // Whose places would be followed into a plan that has fewer, or others.
    for (what, place, value, seen) in [
        ("systems", "systems", json!(["a", "b", "c", "d", "e"]), "seen a, b, c, d, e"),
        ("null", "null", 0.into(), ", null, seen "),
        ("name", "name", "over wan".into(), "depth 32, seen over wan"),
        ("columns", "columns", json!([{ "system": 0, "measure": "p99" }]), "seen p99 latency of 0"),
    ] {
        let error = refused(&|file| {
            let group = &mut file["results"]["groups"][0];
            group[place] = value.clone();
            if place == "columns" {
                (group["rounds"], group["unsteady_rounds"]) = (json!([]), json!([]));
            }
        });
        let words = format!(
            "group \"over lan, 4KiB randread, depth 32\": expected the {what} of its plan, "
        );
        assert!(error.starts_with(&words), "{error}");
        assert!(error.contains(seen), "{error}");
    }
    let error = refused(&|file| file["results"]["groups"][0]["null"] = 9.into());
    assert!(error.contains("expected the place of one of 4 systems, seen 9"), "{error}");
    let drawn = "name = \"a\"\n[[system]]\nname = \"one\"\ndisk = \"ram:1MiB\"\n\
        [[picture]]\nname = \"p\"\nsystems = [\"one\"]\n";
    let error = recommend(&file(drawn, 9, apart), None).unwrap_err();
    assert!(error.contains("seen pictures alone"), "{error}");
}

#[test]
fn what_is_printed_as_json_has_figures_and_break_even_points_as_numbers() {
    let advice = recommend(&file(&plan(""), 999, apart), None).unwrap();
    let json = serde_json::to_value(&advice).unwrap();
    let choice = &json["choices"][0];
    assert_eq!((&json["schema_version"], &choice["take"]), (&1.into(), &"nvme".into()));
    assert_eq!(choice["sureness"]["kind"], "shown");
    assert!(choice["candidates"][0]["measures"]["iops"].as_f64().unwrap() > 90_000.0, "{choice}");
    let turns = choice["turns"].as_array().unwrap();
    let link = turns.iter().find(|turn| turn["kind"] == "link").unwrap();
    assert!(link["below_mbit"].as_f64().unwrap() > 2_000.0 && link["take"] == "aoe", "{link}");
}
