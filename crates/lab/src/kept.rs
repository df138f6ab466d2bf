//! A result file as it is read, by whoever draws it or takes its advice: the lab's own types, and of the
//! trials, which whoever runs them writes, the fields that count.
//!
//! Which trials count is said here for all ([`counted`]). What a file may leave out is optional. Units
//! are in the names. Errors: what was expected and seen.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::plan::{Experiment, Measures, Mistakes, Results, check_version};
use crate::report::Environment;
use crate::statistics::Round;

/// The note of a trial whose client had a thread that was busy all the time.
pub const CLIENT_LIMIT: &str = "the client was the limit";

#[derive(Debug, Deserialize)]
pub struct Kept {
    pub environment: Environment,
    #[serde(default)]
    pub near_cpus: Vec<usize>,
    #[serde(default)]
    pub far_cpus: Vec<usize>,
    /// The plan's file, word for word.
    pub plan: String,
    pub results: Results,
    #[serde(default)]
    pub trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
pub struct Trial {
    pub cell: String,
    /// Of a picture's there is none.
    pub round: Option<Round>,
    #[serde(default)]
    pub measures: Measures,
    #[serde(default)]
    pub is_steady: bool,
    pub failed: Option<String>,
    pub near: Option<End>,
    pub far: Option<End>,
    pub frames_per_op: Option<f64>,
    pub wire_bytes_per_op: Option<f64>,
    pub core_bytes_per_op: Option<f64>,
    pub lost_share: Option<f64>,
    /// How many disks there were, where the load says so.
    pub disks: Option<u32>,
    #[serde(default)]
    pub windows: Vec<f64>,
    #[serde(default)]
    pub notes: Vec<String>,
    /// What `bench` printed, of which the load is read, where it is there.
    #[serde(default)]
    pub bench: Value,
}

/// What an end's CPUs did.
#[derive(Debug, Deserialize)]
pub struct End {
    /// Not where others used these CPUs.
    #[serde(default)]
    pub cpu_us_per_op: Option<f64>,
    /// How much of its time that CPU worked which was the busiest.
    #[serde(default)]
    pub busiest: Option<f64>,
    /// Names of tasks with their shares of a CPU, most first.
    #[serde(default)]
    pub by_task: Vec<(String, f64)>,
}

impl Kept {
    pub fn read(file: &Value) -> Result<Kept, String> {
        check_version(file)?;
        let kept = Kept::deserialize(file)
            .map_err(|error| format!("expected a result file of the lab: {error}"))?;
        kept.results.check()?;
        Ok(kept)
    }

    /// The plan as this version reads it, if it does.
    pub fn experiment(&self) -> Result<Experiment, Mistakes> {
        Experiment::parse("plan", &self.plan)
    }

    /// The trials that count, by their cells.
    pub fn counted(&self) -> BTreeMap<&str, Vec<&Trial>> {
        counted(&self.trials, |trial| Ran {
            cell: &trial.cell,
            round: trial.round.as_ref(),
            is_steady: trial.is_steady,
            has_failed: trial.failed.is_some(),
        })
    }
}

/// What says of a trial whether it counts.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'t> {
    pub cell: &'t str,
    pub round: Option<&'t Round>,
    pub is_steady: bool,
    pub has_failed: bool,
}

/// Of trials in the order in which they ran, those that count, by their cells: of rounds that were run to
/// their end, are no pilots, and in which all settled. Where none of a cell did, all of it that
/// did not fail; without a verdict they are what there is. A picture's are of no round, and are not here.
pub fn counted<'t, T>(
    trials: &'t [T],
    ran: impl Fn(&'t T) -> Ran<'t>,
) -> BTreeMap<&'t str, Vec<&'t T>> {
    let mut cells: BTreeMap<&str, Vec<(&T, bool)>> = BTreeMap::new();
    let mut rest = trials;
    while let Some(first) = rest.first() {
        let round = ran(first).round;
        // Rounds follow each other; a trial that failed ends its round, which begins anew.
        let most = round.map_or(1, |round| round.order.len()).checked_sub(1).unwrap_or(rest.len());
        let follows = |pair: &&'t [T]| ran(&pair[1]).round == round && !ran(&pair[0]).has_failed;
        let more = rest.windows(2).take(most).take_while(follows).count();
        let (one, others) = rest.split_at(more + 1);
        rest = others;
        let Some(round) = round.filter(|round| !round.is_pilot) else { continue };
        let is_whole = one.len() >= round.order.len();
        let counts = is_whole && one.iter().all(|trial| ran(trial).is_steady);
        for trial in one.iter().filter(|trial| !ran(trial).has_failed) {
            cells.entry(ran(trial).cell).or_default().push((trial, counts));
        }
    }
    let settled = |(cell, all): (&'t str, Vec<(&'t T, bool)>)| {
        let has_none = !all.iter().any(|(_, counts)| *counts);
        let its = all.into_iter().filter(|(_, counts)| *counts || has_none);
        (cell, its.map(|(trial, _)| trial).collect())
    };
    cells.into_iter().map(settled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell, its round's number, whether it is a pilot, a repeat, and settled; a failure has `None`.
    type Made = (&'static str, Option<(usize, bool, bool)>, Option<bool>);

    /// The places of those of a cell that count, where each round is of two systems.
    fn places(made: &[Made], cell: &str) -> Vec<usize> {
        let round = |(number, is_pilot, is_repeat)| Round {
            number,
            is_pilot,
            is_repeat,
            order: vec![0, 1],
        };
        let all: Vec<(usize, &Made, Option<Round>)> =
            made.iter().enumerate().map(|(at, one)| (at, one, one.1.map(round))).collect();
        let counted = counted(&all, |(_, (cell, _, steady), round)| Ran {
            cell,
            round: round.as_ref(),
            is_steady: *steady == Some(true),
            has_failed: steady.is_none(),
        });
        counted.get(cell).map_or(Vec::new(), |its| its.iter().map(|(at, ..)| *at).collect())
    }

    const PILOT: Option<(usize, bool, bool)> = Some((0, true, false));
    const FIRST: Option<(usize, bool, bool)> = Some((0, false, false));
    const SECOND: Option<(usize, bool, bool)> = Some((1, false, false));
    const AGAIN: Option<(usize, bool, bool)> = Some((1, false, true));
    const STEADY: Option<bool> = Some(true);

    #[test]
    fn pilots_pictures_and_rounds_that_did_not_settle_do_not_count() {
        let made = [
            ("a", PILOT, STEADY),
            ("b", PILOT, STEADY),
            ("a", FIRST, STEADY),
            ("b", FIRST, STEADY),
            ("a", SECOND, STEADY),
            ("b", SECOND, Some(false)),
            ("a", AGAIN, STEADY),
            ("b", AGAIN, STEADY),
            ("a", None, STEADY),
        ];
        assert_eq!(places(&made, "a"), [2, 6]);
        assert_eq!(places(&made, "b"), [3, 7]);
        assert!(places(&made[8..], "a").is_empty());
    }

    #[test]
    fn where_no_round_settled_all_of_it_is_what_there_is() {
        let made = [
            ("a", FIRST, STEADY),
            ("b", FIRST, Some(false)),
            ("b", AGAIN, Some(false)),
            ("a", AGAIN, STEADY),
        ];
        assert_eq!((places(&made, "a"), places(&made, "b")), (vec![0, 3], vec![1, 2]));
    }

    #[test]
    fn a_round_that_failed_begins_anew_and_one_that_was_stopped_is_none() {
        let made = [
            ("a", FIRST, STEADY),
            ("b", FIRST, None),
            ("a", FIRST, STEADY),
            ("b", FIRST, STEADY),
            ("a", SECOND, STEADY),
        ];
        assert_eq!((places(&made, "a"), places(&made, "b")), (vec![2], vec![3]));
    }

    #[test]
    fn rounds_of_one_number_over_two_paths_are_two() {
        let made = [
            ("a over lan", FIRST, STEADY),
            ("null", FIRST, Some(false)),
            ("a over far", FIRST, STEADY),
            ("null", FIRST, STEADY),
        ];
        assert_eq!(places(&made, "a over far"), [2]);
        assert_eq!(places(&made, "null"), [3]);
    }
}
