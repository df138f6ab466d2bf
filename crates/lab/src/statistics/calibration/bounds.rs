//! Whether what is said of bounds is as seldom false as promised.
//!
//! Every system is as fast as the first, and asked to be that at least: it lies just on its bound.
//! Were it a hair below, "held" would be false, a hair above, "not held" would be; of the two only
//! one can be. So each of them is to be said of any system in 5% of plans at most, however many
//! bounds there are. In *planted* plans one system is faster, or slower, by the difference that the plan asks for,
//! and the others stay on their bounds.

use super::noise::{Noise, World};
use super::*;
use crate::statistics::Bound;

/// Who reads a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The lab.
    Lab,
    /// One who looks on which side of it the mean is.
    Mean,
    /// One who reads each bound as if it were the only one.
    Lone,
}

/// What plans came to.
#[derive(Default)]
struct Read {
    plans: u32,
    /// Plans that say of a system on its bound that it is held, and that it is not.
    held: u32,
    not_held: u32,
    /// Plans that answer rightly where a difference was planted.
    found: u32,
    rounds: usize,
}

impl Read {
    fn percent(&self, of: u32) -> f64 {
        100.0 * f64::from(of) / f64::from(self.plans)
    }

    fn add(&mut self, plan: &Plan, simulated: &Simulated, reader: Reader, lead: LogRatio) {
        let findings = analyse_with(&[(plan, &simulated.taken)], false).remove(0).findings;
        let said = |at: usize| {
            let (finding, comparison) = (&findings[at], &plan.comparisons[at]);
            let bound = comparison.bound?;
            let estimate = finding.estimate.expect("rounds");
            let interval = match reader {
                Reader::Lab => return Some(finding.verdict),
                Reader::Mean => Interval { low: estimate.ratio, high: estimate.ratio, level: 0.0 },
                Reader::Lone => {
                    let rounds = &simulated.taken.rounds;
                    let logs: Vec<f64> = rounds.iter().map(|it| comparison.lead(it).0).collect();
                    Sample::of(&logs).expect("rounds").guarded().interval(2.0 * ALPHA)
                }
            };
            Some(Verdict::of_bound(bound, interval, || None))
        };
        let is_planted = |at: usize| lead.0 != 0.0 && plan.comparisons[at].subject == 1;
        let (mut held, mut not_held, mut found) = (false, false, false);
        for (at, finding) in findings.iter().enumerate() {
            match said(at) {
                Some(Verdict::Held { .. }) if is_planted(at) => found |= lead.0 > 0.0,
                Some(Verdict::NotHeld { .. }) if is_planted(at) => found |= lead.0 < 0.0,
                Some(Verdict::Held { .. }) => held = true,
                Some(Verdict::NotHeld { .. }) => not_held = true,
                // Of a difference that is none, either way is false.
                None if finding.verdict.is_difference() => (held, not_held) = (true, true),
                _ => {}
            }
        }
        self.plans += 1;
        self.held += u32::from(held);
        self.not_held += u32::from(not_held);
        self.found += u32::from(found);
        self.rounds += simulated.taken.planned;
    }
}

/// On their bounds, with one beyond it by the plan's difference, and with one below.
fn calibrate(noise: Noise, plan: &Plan, reader: Reader, plans: u64) -> [Read; 3] {
    let difference = LogRatio::of_fraction(plan.difference);
    [LogRatio(0.0), difference, LogRatio(-difference.0)].map(|lead| {
        let mut read = Read::default();
        for seed in 0..plans {
            let plan = Plan { seed, ..plan.clone() };
            let mut simulated = simulate(&plan, &mut World::new(noise, plan.systems, seed));
            simulated.plant(lead);
            read.add(&plan, &simulated, reader, lead);
        }
        read
    })
}

/// Of so many systems each has a bound.
fn bounded(systems: usize) -> Plan {
    let mut plan = plan(systems);
    plan.comparisons.iter_mut().for_each(|one| one.bound = Some(Bound::AtLeast(1.0)));
    plan
}

/// What of the promises is broken; `false_max` in percent.
fn broken(noise: Noise, plan: &Plan, reader: Reader, false_max: f64) -> Vec<String> {
    let mut broken = Vec::new();
    let plans = if reader == Reader::Lab { PLANS } else { PLANS / 4 };
    let all = calibrate(noise, plan, reader, plans);
    for (read, planted) in all.iter().zip(["none", "beyond", "below"]) {
        let of = format!("{noise:?}, {} systems, {reader:?}, planted: {planted}", plan.systems);
        let [held, not_held, found] =
            [read.held, read.not_held, read.found].map(|of| read.percent(of));
        let rounds = read.rounds / read.plans as usize;
        println!("| {of} | {held:.1}% | {not_held:.1}% | {found:.1}% | {rounds} |");
        for (what, share) in [("held", held), ("not held", not_held)] {
            if share > false_max {
                broken.push(format!("{of}: falsely {what} in {share:.2}%"));
            }
        }
        if planted != "none" && found < 80.0 {
            broken.push(format!("{of}: found in {found:.2}%"));
        }
    }
    broken
}

fn assert_holds(noise: Noise, false_max: f64) {
    let mixed = {
        let mut plan = bounded(3);
        plan.comparisons[1].bound = None;
        plan
    };
    for plan in [bounded(2), bounded(3), mixed] {
        let broken = broken(noise, &plan, Reader::Lab, false_max);
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

#[test]
fn bounds_under_independent_noise() {
    assert_holds(Noise::Independent, 6.0);
}

#[test]
fn bounds_under_a_drift() {
    assert_holds(Noise::Drift, 6.0);
}

#[test]
fn bounds_under_stalls() {
    assert_holds(Noise::Stalls, 6.0);
}

#[test]
fn bounds_of_one_system_whose_rounds_are_alike() {
    assert_holds(Noise::OneSystemAlike, 8.0);
}

#[test]
fn a_bound_that_is_read_off_the_mean_or_for_itself_alone_fails() {
    for (reader, plan) in [(Reader::Mean, bounded(2)), (Reader::Lone, bounded(3))] {
        let broken = broken(Noise::Independent, &plan, reader, 6.0);
        assert!(broken.iter().any(|what| what.contains("falsely held")), "{reader:?} passes");
    }
}
