//! Plans that are run with simulated trials: what is planted is found, and what is not is not.

use super::super::measure::Measure;
use super::*;
use crate::statistics::{Analysis, Verdict, analyse};

/// Two systems and a third way to reach one of them, at two depths.
const PLAN: &str = r#"
name = "simulated"
difference = "10%"
rounds-max = 200
[[system]]
name = "a"
disk = "ram:64MiB"
[[system]]
name = "b"
disk = "ram:64MiB"
[[compare]]
systems = ["b"]
reference = "a"
depth = [1, 8]
of = "iops"
[[compare]]
systems = ["b"]
reference = "a"
depth = 8
of = "p99"
exploratory = true
[[picture]]
name = "surface"
systems = ["a", "b"]
depth = [1, 2, 4]
"#;

fn plan(change: impl Fn(&str) -> String) -> Experiment {
    super::super::tests::good(&change(PLAN))
}

/// What a machine does: systems of a speed, with noise of a size.
struct Machine {
    random: Random,
    speeds: [f64; 3],
    noise: f64,
}

impl Machine {
    fn new(speeds: [f64; 3], noise: f64) -> Machine {
        Machine { random: Random::new(11), speeds, noise }
    }

    /// Twelve uniform numbers add up to nearly a normal one.
    fn normal(&mut self) -> f64 {
        let uniform = |random: &mut Random| random.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        (0..12).map(|_| uniform(&mut self.random)).sum::<f64>() - 6.0
    }

    fn measure(&mut self, trial: &Trial) -> Measures {
        let speed = self.speeds[trial.cell.system] * (self.noise * self.normal()).exp();
        let latency = 1e9 / speed;
        let all = [(Measure::Iops, 1e5 * speed), (Measure::P99, latency)];
        all.into_iter().collect()
    }

    fn run(&mut self, trial: &Trial) -> TrialOutcome {
        TrialOutcome::Measured { measures: self.measure(trial), is_steady: true }
    }
}

#[test]
fn rounds_that_the_plan_names_have_no_pilots_and_end_with_the_time() {
    let named = |rounds: &str, time: &str| {
        plan(|text| text.replacen("rounds-max = 200", &format!("rounds = {rounds}{time}"), 1))
    };
    let of = |plan: &Experiment| run(plan, &mut Machine::new([1.0, 1.4, 1.0], 0.01), |_, _| None);
    let whole = named("8", "");
    let (all, results) = of(&whole);
    // Two groups of three, null among them, and six cells.
    assert_eq!(all.len(), 2 * 3 * 8 + 6);
    assert_eq!(whole.estimate().trials_min, 2 * 3 * 8 + 6);
    for group in &results.groups {
        assert_eq!((group.rounds.len(), group.sizing), (8, None), "{}", group.name);
        assert!(matches!(group.analysis.findings[0].verdict, Verdict::Faster { .. }), "{group:?}");
    }
    // Trials of 7 s: nine rounds of both groups, and some trials of a tenth.
    let (all, results) = of(&named("200", "\ntime = \"380s\""));
    assert_eq!(all.len(), 55);
    assert!(results.groups.iter().all(|group| group.rounds.len() == 9));
    let finding = &results.groups[0].analysis.findings[0];
    assert!(matches!(finding.verdict, Verdict::Faster { .. }), "{finding:?}");
    // Fewer than six say nothing.
    let mut short = named("200", "");
    short.time = Some(Duration::from_secs(200));
    let (_, results) = of(&short);
    let finding = &results.groups[0].analysis.findings[0];
    assert!(matches!(finding.verdict, Verdict::Withheld { .. }), "{finding:?}");
}

const TOOK: Duration = Duration::from_secs(7);

/// Runs all that is polled; `watch` sees each trial first and may say what comes of it.
fn run(
    plan: &Experiment,
    machine: &mut Machine,
    mut watch: impl FnMut(usize, &Trial) -> Option<TrialOutcome>,
) -> (Vec<Trial>, Results) {
    let (mut runner, mut all) = (Runner::new(plan), Vec::new());
    while let Some(trial) = runner.poll_trial() {
        let outcome = watch(all.len(), &trial).unwrap_or_else(|| machine.run(&trial));
        runner.handle_trial(outcome, TOOK);
        all.push(trial);
    }
    (all, runner.finish())
}

fn verdicts(results: &Results) -> Vec<String> {
    let findings = results.groups.iter().flat_map(|group| &group.analysis.findings);
    findings.map(ToString::to_string).collect()
}

#[test]
fn a_planted_difference_is_found_at_every_depth() {
    let plan = plan(str::to_owned);
    let (all, results) = run(&plan, &mut Machine::new([1.0, 1.15, 9.0], 0.05), |_, _| None);
    let said = verdicts(&results);
    assert_eq!(said.len(), 3);
    assert!(
        said[0].starts_with("IOPS of b against a, 4KiB randread, depth 1: faster by 1"),
        "{said:?}"
    );
    assert!(said[1].contains("depth 8: faster by 1"), "{said:?}");
    assert!(said[2].starts_with("exploratory: p99 latency of b against a"), "{said:?}");
    assert!(said[2].contains(": faster by "), "a lower latency is faster: {said:?}");
    assert_eq!(results.pictures.len(), 6);
    assert!(results.failures.is_empty() && results.spent == TOOK * all.len() as u32);
    let shown = results.to_string();
    assert!(shown.lines().count() >= 5 && shown.contains("rounds run stayed unsteady"), "{shown}");
}

#[test]
fn the_same_twice_is_equal_or_shows_no_difference() {
    let plan = plan(str::to_owned);
    let (_, results) = run(&plan, &mut Machine::new([1.0, 1.0, 9.0], 0.05), |_, _| None);
    for group in &results.groups {
        let verdict = group.analysis.findings[0].verdict;
        let is_none = matches!(verdict, Verdict::Equal { .. } | Verdict::NoDifferenceShown { .. });
        assert!(is_none, "{verdict}");
    }
}

#[test]
fn a_round_runs_each_system_and_null_once_without_another_round_between() {
    let plan = plan(str::to_owned);
    let (all, _) = run(&plan, &mut Machine::new([1.0, 1.0, 9.0], 0.05), |_, _| None);
    let rounds: Vec<&[Trial]> = all[..all.len() - 6].chunks(3).collect();
    let mut group_before = None;
    for round in rounds {
        let Purpose::Round { group, place: 0, round: first } = &round[0].purpose else {
            panic!("{round:?}")
        };
        for (at, trial) in round.iter().enumerate() {
            let wanted = Purpose::Round { group: *group, place: at, round: first.clone() };
            assert_eq!(trial.purpose, wanted);
        }
        let mut systems: Vec<usize> = round.iter().map(|trial| trial.cell.system).collect();
        systems.sort_unstable();
        assert_eq!(systems, [0, 1, 2]);
        if first.is_pilot {
            assert_ne!(group_before.replace(*group), Some(*group), "groups take turns");
        }
    }
    let pictures: Vec<Cell> = all[all.len() - 6..].iter().map(|trial| trial.cell).collect();
    assert_ne!(pictures, plan.pictures[0].cells, "the seed draws their order");
    let (again, _) = run(&plan, &mut Machine::new([1.0, 1.0, 9.0], 0.05), |_, _| None);
    assert_eq!(again, all, "the same seed, the same order");
}

#[test]
fn the_number_of_rounds_is_told_once_before_the_first_that_counts() {
    let plan = plan(str::to_owned);
    let (mut runner, mut machine) = (Runner::new(&plan), Machine::new([1.0, 1.0, 9.0], 0.05));
    let (mut trials, mut told) = (0, None);
    assert!(!runner.progress().is_sized);
    let expected_least = runner.progress().trials_left;
    while let Some(trial) = runner.poll_trial() {
        if let Some(sized) = runner.poll_sized() {
            assert!(told.is_none(), "told twice");
            assert_eq!(trials, 2 * 5 * 3, "after the pilots");
            let shown = sized.to_string();
            assert!(
                shown.contains("4KiB randread, depth 8: ")
                    && shown.contains(" rounds: pilots differ by")
            );
            assert!(shown.ends_with("to go"), "{shown}");
            let rounds: usize = sized.groups.iter().map(|(_, sizing)| sizing.rounds).sum();
            assert_eq!(runner.progress().trials_left, rounds * 3 + 6);
            told = Some(rounds);
        }
        runner.handle_trial(machine.run(&trial), TOOK);
        trials += 1;
    }
    assert_eq!(trials, 30 + told.expect("told") * 3 + 6);
    assert!(expected_least <= trials, "{expected_least}");
    let progress = runner.progress();
    assert_eq!((progress.trials_done, progress.trials_left), (trials, 0));
    assert_eq!(progress.left, Duration::ZERO);
}

#[test]
fn after_an_interruption_there_are_intervals_and_no_verdict() {
    let plan = plan(str::to_owned);
    let (mut runner, mut machine) = (Runner::new(&plan), Machine::new([1.0, 1.5, 9.0], 0.05));
    for _ in 0..30 + 4 * 3 * 2 + 1 {
        let trial = runner.poll_trial().expect("a trial");
        runner.handle_trial(machine.run(&trial), TOOK);
    }
    let running = runner.poll_trial().expect("a trial");
    runner.handle_stop(Stop::Interrupted);
    runner.handle_trial(machine.run(&running), TOOK);
    assert_eq!(runner.poll_trial(), None);
    let results = runner.finish();
    for group in &results.groups {
        let finding = &group.analysis.findings[0];
        assert!(finding.to_string().contains("no verdict: it was stopped before its last round"));
        assert!(finding.estimate.is_some() && group.rounds.len() == 4);
    }
    assert!(results.pictures.is_empty());
}

#[test]
fn an_unsteady_round_is_run_again_as_a_whole_at_the_end() {
    let plan = plan(|plan| plan.replace("depth = [1, 8]", "depth = 8"));
    let mut machine = Machine::new([1.0, 1.0, 9.0], 0.05);
    let mut first = None;
    let mut copy = Machine::new([1.0, 1.0, 9.0], 0.05);
    let (all, results) = run(&plan, &mut machine, |at, trial| {
        let Purpose::Round { round, .. } = &trial.purpose else { return None };
        let is_it = !round.is_pilot && first.is_none() && trial.cell.system == 1;
        is_it.then(|| {
            first = Some(at);
            TrialOutcome::Measured { measures: copy.measure(trial), is_steady: false }
        })
    });
    let number = |trial: &Trial| match &trial.purpose {
        Purpose::Round { round, .. } => Some((round.number, round.is_repeat)),
        Purpose::Picture { .. } => None,
    };
    let last = all.iter().rev().find_map(number).expect("rounds");
    assert_eq!(last, (number(&all[first.expect("unsteady")]).expect("a round").0, true));
    let analysis = &results.groups[0].analysis;
    assert_eq!(analysis.rounds_run, analysis.rounds_planned.expect("sized") + 1);
    assert_eq!((analysis.rounds_unsteady, analysis.unsteady_trials.iter().sum::<usize>()), (0, 1));
}

#[test]
fn a_round_that_failed_begins_anew_and_a_group_that_fails_on_is_given_up() {
    let plan = plan(str::to_owned);
    let failed = || Some(TrialOutcome::Failed { why: "it did not start".to_owned() });
    let mut machine = Machine::new([1.0, 1.5, 9.0], 0.02);
    let (_, once) = run(&plan, &mut machine, |at, _| if at == 4 { failed() } else { None });
    assert_eq!(once.failures.len(), 1);
    assert!(once.failures[0].to_string().ends_with("depth 8: it did not start"), "{once}");
    assert!(verdicts(&once).iter().all(|said| said.contains("faster")), "{once}");
    let is_broken = |trial: &Trial| trial.cell.load.pace == super::super::Pace::Closed { depth: 8 };
    let (_, broken) =
        run(&plan, &mut machine, |_, trial| if is_broken(trial) { failed() } else { None });
    let said = verdicts(&broken);
    assert!(said[0].contains("faster"), "the others go on: {said:?}");
    assert!(said[1].ends_with("no verdict: a trial of it failed again and again"), "{said:?}");
    assert_eq!((broken.failures.len(), broken.pictures.len()), (3, 6));
}

#[test]
fn what_is_compared_and_was_not_measured_is_a_failure() {
    let plan = plan(str::to_owned);
    let mut machine = Machine::new([1.0, 1.5, 9.0], 0.02);
    let (_, results) = run(&plan, &mut machine, |at, _| {
        let measures = [(Measure::Iops, 0.0)].into_iter().collect();
        (at == 0).then_some(TrialOutcome::Measured { measures, is_steady: true })
    });
    assert!(results.failures[0].why.starts_with("IOPS came to 0"), "{results}");
    let mut machine = Machine::new([1.0, 1.5, 9.0], 0.02);
    let (_, results) = run(&plan, &mut machine, |at, _| {
        let measures = Measures::new();
        (at == 0).then_some(TrialOutcome::Measured { measures, is_steady: true })
    });
    assert!(results.failures[0].why.starts_with("IOPS was not measured"), "{results}");
}

#[test]
fn rounds_fit_into_the_time_and_what_is_over_time_has_no_verdict() {
    // Pilots differ so much that hundreds of rounds are needed; an hour has room for some 500 trials.
    let plan = plan(|plan| format!("time = \"1h\"\n{plan}"));
    let mut machine = Machine::new([1.0, 1.0, 9.0], 0.4);
    let (_, fits) = run(&plan, &mut machine, |_, _| None);
    assert!(fits.spent <= Duration::from_secs(3600), "{:?}", fits.spent);
    assert_eq!(fits.pictures.len(), 6);
    for group in &fits.groups {
        let sizing = group.sizing.expect("sized");
        assert!(!sizing.is_enough() && sizing.rounds > 30, "{sizing}");
        assert!(!group.analysis.findings[0].to_string().contains("no verdict"), "{fits}");
    }
    // Trials that take four times as long once the number is set.
    let (mut runner, mut trials) = (Runner::new(&plan), 0);
    while let Some(trial) = runner.poll_trial() {
        let took = if trials < 30 { TOOK } else { TOOK * 4 };
        runner.handle_trial(machine.run(&trial), took);
        trials += 1;
    }
    let late = runner.finish();
    assert!(verdicts(&late)[0].ends_with("no verdict: its time was over before its last round"));
}

#[test]
fn a_machine_that_moved_is_told_by_null() {
    let plan = plan(|plan| plan.replace("depth = [1, 8]", "depth = 8"));
    let mut machine = Machine::new([1.0, 1.0, 9.0], 0.02);
    let mut noise = Machine::new([1.0, 1.0, 9.0], 0.02);
    let (_, results) = run(&plan, &mut machine, |at, trial| {
        let drift = 1.0 - 0.01 * at as f64;
        noise.speeds = [drift, drift, 9.0 * drift];
        Some(TrialOutcome::Measured { measures: noise.measure(trial), is_steady: true })
    });
    let shown = results.to_string();
    assert!(shown.contains("IOPS of b: the machine moved"), "{shown}");
    let json = serde_json::to_value(&results).expect("JSON");
    assert_eq!(json["groups"][0]["columns"][0]["measure"], "iops");
    assert!(json["spent_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
}

/// Plans of four depths without any difference: how many of 400 show one, with one family and, as a
/// wrong analysis would, with one for each depth.
#[test]
fn false_verdicts_of_a_whole_plan_are_as_rare_as_those_of_one_comparison() {
    let plan = plan(|plan| {
        let plan = plan.split("[[picture]]").next().unwrap_or_default();
        let first = plan.rfind("[[compare]]").unwrap_or_default();
        plan[..first].replace("depth = [1, 8]", "depth = [1, 2, 4, 8]")
    });
    let (mut together, mut apart) = (0, 0);
    let is_false = |analysis: &Analysis| analysis.findings[0].verdict.is_difference();
    for seed in 0..400 {
        let mut experiment = plan.clone();
        for group in &mut experiment.groups {
            group.plan.seed ^= seed;
        }
        let mut machine = Machine::new([1.0, 1.0, 9.0], 0.03);
        machine.random = Random::new(seed);
        let (_, results) = run(&experiment, &mut machine, |_, _| None);
        together += u32::from(results.groups.iter().any(|group| is_false(&group.analysis)));
        let alone = results.groups.iter().zip(&experiment.groups).any(|(results, group)| {
            let taken = Taken {
                rounds: results.rounds.clone(),
                unsteady_rounds: Vec::new(),
                unsteady_trials: vec![0; group.cells.len()],
                run: results.rounds.len(),
                planned: results.rounds.len(),
                sizing: results.sizing,
                withheld: None,
            };
            is_false(&analyse(&group.plan, &taken))
        });
        apart += u32::from(alone);
    }
    assert!(together <= 24, "{together} of 400 plans, more than 6%");
    assert!(apart > 36, "{apart} of 400 plans: that should have been too many");
}
