//! Plans of the lab as somebody may write them: from the text to cells and comparisons, and, where
//! the plan is good, its first trials, with whatever the length of the text draws.
//!
//! What is checked: a bad text has mistakes, each with a place in it and a line for people; of a
//! good one every comparison can be analysed, names are unique, and a runner that is stopped
//! somewhere has results.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use lab::plan::{Experiment, Measure, Measures, Purpose, Runner, TrialOutcome};
use lab::statistics::Stop;
use libfuzzer_sys::fuzz_target;

/// Trials that are run of a plan.
const TRIALS_MAX: usize = 120;

fuzz_target!(|text: &str| match Experiment::parse("plan.toml", text) {
    Ok(experiment) => {
        check(&experiment);
        run(&experiment, text.len() as u64);
    }
    Err(mistakes) => {
        assert!(!mistakes.list().is_empty(), "refused without a reason");
        for mistake in mistakes.list() {
            assert!(text.get(mistake.span.clone()).is_some(), "{mistake:?} has no place");
        }
        assert!(mistakes.lines().all(|line| line.starts_with("plan.toml:")));
    }
});

fn check(experiment: &Experiment) {
    let cells = experiment.cells();
    let names: BTreeSet<String> = cells.iter().map(|cell| experiment.cell_name(cell)).collect();
    assert_eq!(names.len(), cells.len(), "two cells of one name");
    for group in &experiment.groups {
        group.plan.check().expect("a plan that can be analysed");
        assert_eq!(group.plan.systems, group.cells.len());
        assert_eq!(group.cells[group.null].system, experiment.null, "null in every round");
        for column in &group.columns {
            assert!(column.system < group.cells.len());
        }
    }
    let estimate = experiment.estimate();
    assert!(estimate.least <= estimate.most && estimate.trials_min <= estimate.trials_max);
    assert!(experiment.time.is_none_or(|time| estimate.least <= time));
}

fn run(experiment: &Experiment, seed: u64) {
    let mut random = block::Random::new(seed);
    let mut runner = Runner::new(experiment);
    for _ in 0..TRIALS_MAX {
        let Some(trial) = runner.poll_trial() else { break };
        if let Purpose::Round { group, place, round } = &trial.purpose {
            let group = &experiment.groups[*group];
            assert_eq!(group.cells[round.order[*place]], trial.cell);
        }
        let value = |measure| (measure, 0.5 + random.below(1000) as f64);
        let measures: Measures = Measure::ALL.into_iter().map(value).collect();
        let outcome = match random.below(20) {
            0 => TrialOutcome::Failed { why: "drawn".to_owned() },
            drawn => TrialOutcome::Measured { measures, is_steady: drawn > 1 },
        };
        runner.handle_trial(outcome, Duration::from_secs(7));
        drop(runner.poll_sized().map(|sized| sized.to_string()));
        runner.progress();
    }
    runner.handle_stop(Stop::Interrupted);
    assert_eq!(runner.poll_trial(), None);
    let results = runner.finish();
    assert_eq!(results.groups.len(), experiment.groups.len());
    assert!(!format!("{results} {results:?}").is_empty());
}
