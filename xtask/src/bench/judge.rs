//! What the rounds of a case come to: which reference counts, ratios within a round, medians.
//!
//! Pure: what the loads printed comes in, numbers go out. A round is a list of what each side saw:
//! the references, the subject, and what stands beside, as [`Case::sides`] has them.

use serde_json::Value;

use super::cases::{Bound, By, Case};
use super::figure::Figure;

/// What the rounds of a case saw.
#[derive(Default)]
pub(super) struct Rounds {
    /// A round each, a side each within it.
    pub(super) seen: Vec<Vec<Value>>,
    /// Why nothing stood beside, where something should.
    pub(super) alone: Option<String>,
}

/// A figure of a case by its bound.
pub(super) struct Judged {
    /// The reference's median, if there is one.
    pub(super) reference: Option<f64>,
    /// The subject's.
    pub(super) subject: f64,
    /// What is compared with the bound, a round each.
    pub(super) values: Vec<f64>,
}

impl Judged {
    /// What counts.
    pub(super) fn value(&self) -> f64 {
        median(&self.values)
    }
}

/// A side's medians of what stands in each line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    pub(super) iops: Option<f64>,
    pub(super) latency_us: Option<f64>,
    pub(super) cpu_us: Option<f64>,
}

impl Rounds {
    /// A figure of a side in all rounds; those rounds that do not have it are left out.
    pub(super) fn of(&self, side: usize, figure: Figure) -> Vec<f64> {
        self.seen.iter().filter_map(|round| figure.of(round.get(side)?)).collect()
    }

    /// A side's medians.
    pub(super) fn speed(&self, side: usize) -> Speed {
        let of = |figure| {
            let values: Vec<f64> =
                self.of(side, figure).into_iter().filter(|value| *value > 0.0).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        Speed {
            iops: of(Figure::Iops),
            latency_us: of(Figure::Latency),
            cpu_us: of(Figure::CpuPerOp),
        }
    }

    /// Which sides make up the reference of a case: the one that did the most operations a second
    /// by its median over the rounds, or all.
    pub(super) fn chosen(&self, case: &Case) -> Vec<usize> {
        let sides = 0..case.references.len();
        match case.by {
            By::Sum => sides.collect(),
            By::Best => {
                let speed = |side: &usize| median(&self.of(*side, Figure::Iops));
                // Of equals, and where nobody counts operations, the first.
                sides.rev().max_by(|a, b| speed(a).total_cmp(&speed(b))).into_iter().collect()
            }
        }
    }

    /// A figure by its bound; `chosen` is what [`Rounds::chosen`] says.
    pub(super) fn judge(&self, case: &Case, bound: &Bound, chosen: &[usize]) -> Judged {
        let subject = case.references.len();
        let with = if bound.own { &[] } else { chosen };
        let (mut references, mut subjects, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for round in &self.seen {
            let figure = |side: usize| round.get(side).and_then(|raw| bound.of.of(raw));
            let Some(own) = figure(subject) else { continue };
            let sum: Option<f64> = with.iter().map(|side| figure(*side)).sum();
            subjects.push(own);
            match sum.filter(|_| !with.is_empty()) {
                Some(sum) => {
                    references.push(sum);
                    values.push(own / sum);
                }
                None => values.push(own),
            }
        }
        let reference = (!references.is_empty()).then(|| median(&references));
        Judged { reference, subject: median(&subjects), values }
    }
}

/// Pair by pair, the first by the second.
pub(super) fn ratios(of: &[f64], by: &[f64]) -> Vec<f64> {
    of.iter().zip(by).map(|(of, by)| of / by).collect()
}

/// The median with the lowest and the highest.
pub(super) fn spread(values: &[f64]) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.3} ({lowest:.3}..{highest:.3})", median(values))
}

/// The median; the mean of the middle two of an even number, NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A case of the file.
    pub(in super::super) fn case(name: &str) -> Case {
        let cases = super::super::cases::all().unwrap();
        cases.into_iter().find(|case| case.name == name).unwrap()
    }

    fn seen(iops: f64) -> Value {
        json!({"iops": iops, "latency_us": {"mean": 1e6 / iops},
               "target": {"ops_per_cpu_second": 2.0 * iops}})
    }

    /// Rounds of operations a second, a side each.
    pub(in super::super) fn rounds(iops: &[&[f64]]) -> Rounds {
        let round = |sides: &&[f64]| sides.iter().map(|iops| seen(*iops)).collect();
        Rounds { seen: iops.iter().map(round).collect(), alone: None }
    }

    #[test]
    fn the_reference_is_the_faster_one_by_its_median_whatever_single_rounds_say() {
        let case = case("4k-read-1");
        let rounds = rounds(&[&[100.0, 900.0, 1.0], &[100.0, 90.0, 1.0], &[100.0, 90.0, 1.0]]);
        assert_eq!(rounds.chosen(&case), [0], "one lucky round of the other changes nothing");
        let other = super::tests::rounds(&[&[90.0, 100.0, 95.0]]);
        assert_eq!(other.chosen(&case), [1]);
        let equal = super::tests::rounds(&[&[90.0, 90.0, 95.0]]);
        assert_eq!(equal.chosen(&case), [0]);
    }

    #[test]
    fn the_ratio_is_taken_within_a_round_and_then_the_median() {
        let case = case("shared-1x1");
        let rounds = rounds(&[&[100.0, 1.0, 90.0], &[10.0, 1.0, 9.5], &[1000.0, 1.0, 850.0]]);
        let chosen = rounds.chosen(&case);
        let judged = rounds.judge(&case, &case.figures[0], &chosen);
        assert!((judged.value() - 0.9).abs() < 1e-9, "{:?}", judged.values);
        assert_eq!((judged.reference, judged.subject), (Some(100.0), 90.0));
    }

    #[test]
    fn a_sum_of_references_is_taken_within_a_round() {
        let case = case("file-4k-read-1");
        let seen = |[fio, ram, file]: [f64; 3]| {
            [fio, ram, file].map(|us| json!({"iops": 1.0, "latency_us": {"mean": us}})).to_vec()
        };
        let rounds = Rounds {
            seen: [[80.0, 20.0, 115.0], [160.0, 40.0, 220.0], [40.0, 10.0, 60.0]]
                .map(seen)
                .to_vec(),
            alone: None,
        };
        let chosen = rounds.chosen(&case);
        let judged = rounds.judge(&case, &case.figures[0], &chosen);
        assert_eq!(judged.values, [1.15, 1.1, 1.2]);
        assert_eq!((judged.value(), judged.reference), (1.15, Some(100.0)));
        assert_eq!(case.figures[0].met(judged.value()), Some(true));
        assert_eq!(case.figures[0].met(1.151), Some(false));
    }

    #[test]
    fn an_own_figure_is_not_divided() {
        let case = case("idle-100");
        let seen = |busy: f64, switches: u32| json!({"keep_alives": 100, "target": {"busy": busy, "voluntary_switches": switches}});
        let rounds = Rounds { seen: vec![vec![seen(0.01, 50), seen(0.011, 101)]], alone: None };
        let chosen = rounds.chosen(&case);
        let value = |at: usize| rounds.judge(&case, &case.figures[at], &chosen).value();
        assert!((value(0) - 1.1).abs() < 1e-9);
        assert!((value(1) - 1.01).abs() < 1e-9);
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}
