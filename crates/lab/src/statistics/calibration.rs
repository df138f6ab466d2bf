//! Whether the lab's analysis holds what it promises: thousands of simulated plans of which the
//! truth is known, under noises that real machines have.
//!
//! Each plan goes the whole way: pilots, the number of rounds that they set, trials until they are
//! steady, repeats, analysis. Systems are compared with the first. In *null* plans all are equal; in
//! *planted* ones the second is faster by just what the plan asks for, and a third one equal. A
//! verdict is false if it shows a difference where none is, or the wrong way, or
//! equality where there is a difference of the margin. Seeds are fixed, so figures repeat exactly;
//! `docs/statistics.md` has them (`--nocapture` prints them). Bounds are in `bounds`.

mod bounds;
mod noise;

use noise::{Noise, World};

use super::analysis::{analyse, analyse_with};
use super::plan::tests::plan;
use super::sample::Sample;
use super::{
    ALPHA, Interval, LogRatio, Plan, Schedule, Steadiness, SteadyState, Taken, Trials, Verdict,
};

/// Plans of each size under each noise.
const PLANS: u64 = 2000;

/// Who analyses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Analyst {
    /// The lab's: rounds.
    Rounds,
    /// One who takes seconds for replicates, as many do.
    Seconds,
    /// One who takes rounds, and each for independent of the others.
    Unguarded,
}

/// What the plans of a noise came to.
#[derive(Clone, Debug, Default)]
struct Tally {
    plans: u32,
    /// Plans with a false verdict.
    false_verdicts: u32,
    intervals: u32,
    /// 95% intervals that hold the truth.
    covered: u32,
    /// Plans in which all corrected intervals do.
    covered_together: u32,
    /// Plans that show the planted difference.
    found: u32,
    /// Plans without verdicts.
    withheld: u32,
    /// Plans that call the last system equal.
    equal: u32,
    /// The number of rounds that each planned.
    rounds: Vec<usize>,
    /// Rounds that were run again, and all.
    repeated: usize,
    run: usize,
}

impl Tally {
    fn percent(&self, of: u32) -> f64 {
        100.0 * f64::from(of) / f64::from(self.plans)
    }

    fn coverage(&self) -> f64 {
        100.0 * f64::from(self.covered) / f64::from(self.intervals)
    }

    /// A line of the tables in `docs/statistics.md`.
    fn print(&mut self, name: &str) {
        self.rounds.sort_unstable();
        let at = |share: usize| self.rounds[(self.rounds.len() - 1) * share / 100];
        println!(
            "| {name} | {:.1}% | {:.1}% | {:.1}% | {:.1}% | {:.1}% | {:.1}% | {}, {}, {} | {:.1}% |",
            self.percent(self.false_verdicts),
            self.coverage(),
            self.percent(self.covered_together),
            self.percent(self.found),
            self.percent(self.equal),
            self.percent(self.withheld),
            at(10),
            at(50),
            at(90),
            100.0 * self.repeated as f64 / self.run as f64,
        );
    }
}

/// The values of trials, and of their seconds, of counted rounds.
struct Simulated {
    taken: Taken,
    /// Of each counted round that was steady, of each second, a value each system.
    seconds: Vec<Vec<f64>>,
}

/// Runs one plan in a world.
fn simulate(plan: &Plan, world: &mut World) -> Simulated {
    let mut schedule = Schedule::new(plan.clone()).expect("a good plan");
    let mut seconds = Vec::new();
    while let Some(round) = schedule.poll_round() {
        let planned = schedule.sizing().map(|sizing| sizing.rounds);
        world.begin_round(planned.map(|planned| round.number as f64 / planned as f64));
        let mut trials = Trials { values: vec![0.0; plan.columns], unsteady: Vec::new() };
        let mut windows = vec![vec![0.0; plan.columns]; super::steady::WINDOWS];
        for system in round.order {
            world.begin_trial(system);
            let mut state = SteadyState::new();
            let mut last = Vec::new();
            trials.values[system] = loop {
                let value = world.window();
                last.push(value);
                match state.handle_window(value) {
                    Steadiness::Open => {}
                    Steadiness::Steady(mean) => break mean,
                    Steadiness::Unsteady(mean) => {
                        trials.unsteady.push(system);
                        break mean;
                    }
                }
            };
            let from = last.len() - super::steady::WINDOWS;
            for (second, value) in windows.iter_mut().zip(&last[from..]) {
                second[system] = *value;
            }
        }
        if trials.unsteady.is_empty() && !round.is_pilot {
            seconds.append(&mut windows);
        }
        schedule.handle_round(trials).expect("positive values");
    }
    Simulated { taken: schedule.finish(), seconds }
}

/// What is said of a comparison.
struct Said {
    verdict: Verdict,
    interval: Interval,
    corrected: Interval,
}

/// What is said of each comparison.
fn judge(plan: &Plan, simulated: &Simulated, analyst: Analyst) -> Vec<Said> {
    if analyst == Analyst::Rounds {
        let analysis = analyse_with(&[(plan, &simulated.taken)], false).remove(0);
        let say = |finding: &super::Finding| {
            let estimate = finding.estimate.expect("rounds");
            let (interval, corrected) = (estimate.interval, estimate.corrected);
            Said { verdict: finding.verdict, interval, corrected }
        };
        return analysis.findings.iter().map(say).collect();
    }
    let replicates = match analyst {
        Analyst::Seconds => &simulated.seconds,
        _ => &simulated.taken.rounds,
    };
    let say = |comparison: &super::Comparison| {
        let logs: Vec<f64> = replicates.iter().map(|values| comparison.lead(values).0).collect();
        let sample = Sample::of(&logs).expect("replicates");
        let interval = sample.independent().interval(ALPHA);
        let corrected = sample.independent().interval(ALPHA / plan.primaries() as f64);
        let verdict = Verdict::read(LogRatio(sample.mean), corrected, plan.margin);
        let verdict = verdict.unwrap_or(Verdict::NoDifferenceShown { detectable: 0.0 });
        Said { verdict, interval, corrected }
    };
    plan.comparisons.iter().map(say).collect()
}

/// Whether a verdict is false where the subject is so many times as fast.
fn is_false(verdict: &Verdict, truth: LogRatio, margin: f64) -> bool {
    match verdict {
        Verdict::Faster { .. } => truth.0 <= 0.0,
        Verdict::Slower { .. } => truth.0 >= 0.0,
        Verdict::Equal { .. } => truth.0.abs() >= LogRatio::of_fraction(margin).0,
        _ => false,
    }
}

impl Simulated {
    /// The same plan with system 1 so many times as fast: no trial would have been less steady, and
    /// no spread another.
    fn plant(&mut self, lead: LogRatio) {
        let taken = &mut self.taken;
        let rounds = taken.rounds.iter_mut().chain(&mut taken.unsteady_rounds);
        for values in rounds.chain(&mut self.seconds) {
            values[1] *= lead.ratio();
        }
    }
}

/// Simulates plans in which all systems are equal, and the same ones with the plan's difference
/// planted.
fn calibrate(noise: Noise, plan: &Plan, analyst: Analyst, plans: u64) -> [Tally; 2] {
    let mut tallies = [Tally::default(), Tally::default()];
    for seed in 0..plans {
        let plan = Plan { seed, ..plan.clone() };
        let mut simulated = simulate(&plan, &mut World::new(noise, plan.systems, seed));
        let [null, planted] = &mut tallies;
        null.add(&plan, &simulated, analyst, LogRatio(0.0));
        let lead = LogRatio::of_fraction(plan.difference);
        simulated.plant(lead);
        planted.add(&plan, &simulated, analyst, lead);
    }
    tallies
}

impl Tally {
    /// Counts a plan in which system 1 leads the others.
    fn add(&mut self, plan: &Plan, simulated: &Simulated, analyst: Analyst, lead: LogRatio) {
        let said = judge(plan, simulated, analyst);
        let truth = |at: usize| {
            if plan.comparisons[at].subject == 1 { lead } else { LogRatio(0.0) }
        };
        let all = || said.iter().enumerate();
        let is_false = |(at, of): (usize, &Said)| is_false(&of.verdict, truth(at), plan.margin);
        for Said { verdict, corrected, .. } in &said {
            let is_read = !matches!(verdict, Verdict::Withheld { .. });
            let agrees = corrected.excludes_equal() == verdict.is_difference();
            assert!(agrees || !is_read, "{verdict} beside {corrected}");
        }
        self.plans += 1;
        self.false_verdicts += u32::from(all().any(is_false));
        self.intervals += said.len() as u32;
        self.covered += all().filter(|(at, of)| of.interval.holds(truth(*at))).count() as u32;
        self.covered_together += u32::from(all().all(|(at, of)| of.corrected.holds(truth(at))));
        self.found += u32::from(matches!(said[0].verdict, Verdict::Faster { .. }));
        let last = said[said.len() - 1].verdict;
        self.equal += u32::from(matches!(last, Verdict::Equal { .. }));
        self.withheld += u32::from(matches!(last, Verdict::Withheld { .. }));
        let planned = simulated.taken.planned;
        self.rounds.push(planned);
        self.run += simulated.taken.run;
        self.repeated += simulated.taken.run - planned;
    }
}

/// A plan with two comparisons, of small differences: dozens of rounds.
fn fine() -> Plan {
    plan(3)
}

/// A plan with one comparison, of a difference as large as the noise: a handful of rounds.
fn coarse() -> Plan {
    Plan { difference: 0.35, margin: 0.35, ..plan(2) }
}

/// What of the promises is broken under a noise; `false_max` and all others in percent.
fn broken(noise: Noise, plan: &Plan, analyst: Analyst, false_max: f64) -> Vec<String> {
    let mut broken = Vec::new();
    let plans = if analyst == Analyst::Rounds { PLANS } else { PLANS / 4 };
    let [mut null, mut planted] = calibrate(noise, plan, analyst, plans);
    let of = format!("{noise:?}, {} systems, {analyst:?}", plan.systems);
    null.print(&format!("{of}, null"));
    planted.print(&format!("{of}, planted {}", plan.difference));
    let mut expect = |holds: bool, what: &str, seen: f64| {
        if !holds {
            broken.push(format!("{of}: {what} {seen:.2}%"));
        }
    };
    for tally in [&null, &planted] {
        let share = tally.percent(tally.false_verdicts);
        expect(share <= false_max, "plans with a false verdict", share);
    }
    let found = planted.percent(planted.found);
    expect(found >= 80.0, "planted differences found", found);
    if noise == Noise::Independent {
        let coverage = null.coverage();
        expect((94.0..=96.0).contains(&coverage), "95% intervals cover", coverage);
    }
    broken
}

fn assert_holds(noise: Noise, false_max: f64) {
    for plan in [fine(), coarse()] {
        let broken = broken(noise, &plan, Analyst::Rounds, false_max);
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

#[test]
fn independent_noise() {
    assert_holds(Noise::Independent, 6.0);
}

#[test]
fn seconds_and_machine_states_that_go_on() {
    assert_holds(Noise::Autocorrelated, 6.0);
}

#[test]
fn a_drift_over_the_plan() {
    assert_holds(Noise::Drift, 6.0);
}

#[test]
fn stalls() {
    assert_holds(Noise::Stalls, 6.0);
}

#[test]
fn modes_of_a_process() {
    assert_holds(Noise::Modes, 6.0);
}

#[test]
fn one_system_whose_rounds_are_alike() {
    assert_holds(Noise::OneSystemAlike, 8.0);
}

#[test]
fn trials_that_do_not_settle() {
    assert_holds(Noise::Unsteady, 6.0);
}

#[test]
fn seconds_as_replicates_fail() {
    for noise in [Noise::Independent, Noise::Autocorrelated, Noise::Modes] {
        let broken = broken(noise, &coarse(), Analyst::Seconds, 6.0);
        assert!(broken.iter().any(|what| what.contains("false verdict")), "{noise:?} passes");
    }
}

#[test]
fn rounds_taken_for_independent_fail() {
    let broken = broken(Noise::OneSystemAlike, &fine(), Analyst::Unguarded, 8.0);
    assert!(broken.iter().any(|what| what.contains("false verdict")), "a weak correlation passes");
}

#[test]
fn a_bootstrap_beside_covers_as_much_and_rarely_disagrees() {
    let noises = [Noise::Independent, Noise::Stalls];
    for (noise, plan) in noises.into_iter().flat_map(|noise| [(noise, fine()), (noise, coarse())]) {
        let (mut disagree, mut covered, plans) = (0, 0, 400);
        for seed in 0..plans {
            let plan = Plan { seed, ..plan.clone() };
            let simulated = simulate(&plan, &mut World::new(noise, plan.systems, seed));
            let finding = &analyse(&plan, &simulated.taken).findings[0];
            let estimate = finding.estimate.expect("rounds");
            disagree += u32::from(estimate.bootstrap_disagrees);
            covered += u32::from(estimate.bootstrap.holds(LogRatio(0.0)));
        }
        let percent = |count: u32| 100.0 * f64::from(count) / plans as f64;
        let (disagree, covered) = (percent(disagree), percent(covered));
        let of = format!("{noise:?}, {} systems", plan.systems);
        println!("{of}: the bootstrap covers {covered:.1}% and disagrees in {disagree:.1}%");
        assert!((92.0..=98.0).contains(&covered), "{of}: covers {covered}%");
        assert!(disagree <= 10.0, "{of}: disagrees in {disagree}%");
    }
}
