//! What the rounds of a case come to: which reference counts, ratios with intervals, medians.
//!
//! Rounds, their order and their analysis are the lab's ([`lab::statistics`]): a case is a plan whose
//! comparisons are its figures against each of its references. What the loads printed comes in,
//! numbers go out; nothing is run here. A round is a list of what each side saw: the references, the
//! subject, and what stands beside, as [`Case::sides`] has them.

use anyhow::{Context as _, Result, ensure};
use lab::statistics::{
    Analysis, Better, Comparison, Estimate, Held, Plan, Taken, Withheld, analyse, median as middle,
};
use serde_json::Value;

use super::cases::{Bound, By, Case};
use super::figure::Figure;

/// From how large a difference on a plan's own verdicts speak; a bench reads intervals alone.
const DIFFERENCE: f64 = 0.05;

/// What is compared in each round.
#[derive(Clone)]
pub(super) struct Pairs {
    pairs: Vec<Pair>,
    /// What is read of a side by itself: the subject's own figures, and by what one of several
    /// references is chosen.
    alone: Vec<(Figure, usize)>,
    references: usize,
    sides: usize,
}

/// A figure of one side by that of another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    of: Figure,
    subject: usize,
    by: Reference,
    /// Whether the case is judged by it.
    judges: bool,
}

/// By whose figure another is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reference {
    Side(usize),
    /// By that of all references together.
    Sum,
}

impl Pairs {
    /// Those of a case with so many sides.
    pub(super) fn of(case: &Case, sides: usize) -> Pairs {
        let references = case.references.len();
        let by: Vec<Reference> = match case.by {
            By::Sum => vec![Reference::Sum],
            By::Best => (0..references).map(Reference::Side).collect(),
        };
        let judged = case.figures.iter().filter(|bound| !bound.own);
        let mut pairs: Vec<Pair> = judged
            .flat_map(|bound| by.iter().map(|by| (bound.of, *by)))
            .map(|(of, by)| Pair { of, subject: references, by, judges: true })
            .collect();
        if sides > references + 1 {
            let by = Reference::Side(references + 1);
            let beside = [0, references].map(|subject| {
                let of = case.figures[0].of;
                Pair { of, subject, by, judges: false }
            });
            pairs.extend(beside);
        }
        let own = case.figures.iter().filter(|bound| bound.own);
        let mut alone: Vec<_> = own.map(|bound| (bound.of, references)).collect();
        if by.len() > 1 {
            alone.extend((0..references).map(|side| (Figure::Iops, side)));
        }
        Pairs { pairs, alone, references, sides }
    }

    /// As a plan of the lab: two columns for each.
    pub(super) fn plan(&self, rounds: usize) -> Plan {
        let comparison = |(at, pair): (usize, &Pair)| Comparison {
            name: format!("{} of side {} by {:?}", pair.of.name(), pair.subject, pair.by),
            subject: 2 * at,
            reference: 2 * at + 1,
            // Bounds are on the ratio itself, whichever way is good.
            better: Better::Higher,
            bound: None,
            primary: pair.judges,
        };
        Plan {
            systems: self.sides,
            columns: 2 * self.pairs.len(),
            comparisons: self.pairs.iter().enumerate().map(comparison).collect(),
            difference: DIFFERENCE,
            margin: DIFFERENCE,
            rounds_max: rounds,
            seed: 1,
        }
    }

    /// A round's columns; an error if anything was not measured that the case is judged by.
    pub(super) fn values(&self, seen: &[Value]) -> Result<Vec<f64>> {
        for (of, side) in &self.alone {
            of.measured(seen.get(*side).context("a side that was not run")?)?;
        }
        let mut values = Vec::new();
        for pair in &self.pairs {
            values.extend(pair.columns(seen, self.references)?);
        }
        Ok(values)
    }
}

impl Pair {
    /// The subject's and the reference's figure in a round.
    fn columns(&self, seen: &[Value], references: usize) -> Result<[f64; 2]> {
        let figure = |side: usize| -> Result<f64> {
            let value = self.of.measured(seen.get(side).context("a side that was not run")?)?;
            ensure!(value > 0.0, "{:?} came out as {value}", self.of);
            Ok(value)
        };
        let reference = match self.by {
            Reference::Side(side) => figure(side)?,
            Reference::Sum => (0..references).map(figure).sum::<Result<f64>>()?,
        };
        Ok([figure(self.subject)?, reference])
    }
}

/// What the rounds of a case saw.
#[derive(Default)]
pub(super) struct Rounds {
    /// A round each, a side each within it: those that medians, ratios and intervals are of, in the
    /// order of the analysis.
    pub(super) seen: Vec<Vec<Value>>,
    /// Those that never became steady and do not count, for the record.
    pub(super) unsteady: Vec<Vec<Value>>,
    /// Why nothing stood beside, where something should.
    pub(super) alone: Option<String>,
    /// Why less is to be believed of them than of others.
    pub(super) doubt: Option<String>,
    /// Whether that is enough to say nothing.
    pub(super) is_restless: bool,
    /// What was compared, of a case with references.
    pub(super) compared: Option<Compared>,
}

/// What comparing came to.
pub(super) struct Compared {
    pairs: Pairs,
    analysis: Analysis,
}

/// A ratio.
pub(super) struct Ratio {
    /// In each round.
    pub(super) values: Vec<f64>,
    /// Absent with fewer than two rounds.
    pub(super) estimate: Option<Estimate>,
}

impl Ratio {
    /// The geometric mean of the rounds.
    pub(super) fn value(&self) -> f64 {
        match (&self.estimate, self.values.as_slice()) {
            (Some(estimate), _) => estimate.ratio.ratio(),
            (None, [one]) => *one,
            (None, _) => f64::NAN,
        }
    }

    /// Whether a bound is kept: by the interval, and of a single round by that round.
    pub(super) fn held(&self, bound: lab::statistics::Bound) -> Held {
        match &self.estimate {
            Some(estimate) => bound.held(estimate),
            None if bound.keeps(self.value()) => Held::Met,
            None => Held::Missed,
        }
    }
}

/// The mean with its interval.
impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}", self.value())?;
        let Some(estimate) = &self.estimate else { return Ok(()) };
        let seen = estimate.corrected;
        write!(f, " ({:.3}..{:.3})", seen.low.ratio(), seen.high.ratio())
    }
}

/// A figure of a case by its bound.
pub(super) struct Judged {
    /// The reference's median, if there is one.
    pub(super) reference: Option<f64>,
    /// The subject's.
    pub(super) subject: f64,
    /// The subject by the reference, if there is one.
    pub(super) ratio: Option<Ratio>,
}

impl Judged {
    /// Whether what is wanted is so, if anything is.
    pub(super) fn held(&self, bound: &Bound) -> Option<Held> {
        let wanted = bound.limit()?;
        Some(match &self.ratio {
            Some(ratio) => ratio.held(wanted),
            None if wanted.keeps(self.subject) => Held::Met,
            None => Held::Missed,
        })
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
    /// Takes what a round saw; one that is to be run again is not kept.
    pub(super) fn take(&mut self, seen: Vec<Value>, is_steady: bool, is_repeat: bool) {
        if is_steady {
            self.seen.push(seen);
        } else if is_repeat {
            self.unsteady.push(seen);
        }
    }

    /// Analyses what was taken, and tells of the same rounds all that is told.
    pub(super) fn finish(&mut self, pairs: Pairs, plan: &Plan, taken: &Taken) {
        self.is_restless = taken.withheld.is_some();
        if taken.withheld == Some(Withheld::Unsteady) {
            self.seen.append(&mut self.unsteady);
        }
        let analysis = analyse(plan, taken);
        assert_eq!(
            self.seen.len(),
            analysis.rounds_used,
            "rounds that figures and intervals are of"
        );
        self.compared = Some(Compared { pairs, analysis });
    }

    /// A figure of one side by another's.
    pub(super) fn ratio(&self, of: Figure, subject: usize, by: Reference) -> Option<Ratio> {
        let Compared { pairs, analysis } = self.compared.as_ref()?;
        let is_it = |pair: &Pair| (pair.of, pair.subject, pair.by) == (of, subject, by);
        let at = pairs.pairs.iter().position(is_it)?;
        let columns = |round: &Vec<Value>| pairs.pairs[at].columns(round, pairs.references).ok();
        let rounds = self.seen.iter().filter_map(columns);
        let values = rounds.map(|[subject, reference]| subject / reference).collect();
        Some(Ratio { values, estimate: analysis.findings[at].estimate })
    }

    /// A figure of a side in all rounds; those rounds that do not have it are left out.
    pub(super) fn of(&self, side: usize, figure: Figure) -> Vec<f64> {
        self.seen.iter().filter_map(|round| figure.of(round.get(side)?)).collect()
    }

    /// A side's medians.
    pub(super) fn speed(&self, side: usize) -> Speed {
        let of = |figure| {
            let values = self.of(side, figure).into_iter().filter(|value| *value > 0.0);
            middle(&values.collect::<Vec<_>>())
        };
        Speed {
            iops: of(Figure::Iops),
            latency_us: of(Figure::Latency),
            cpu_us: of(Figure::CpuPerOp),
        }
    }

    /// By what the subject of a case is divided: by the reference that did the most operations a
    /// second by its median over the rounds, or by all; by nothing in a case without references.
    pub(super) fn chosen(&self, case: &Case) -> Option<Reference> {
        if case.references.is_empty() {
            return None;
        }
        let speed = |side: &usize| median(&self.of(*side, Figure::Iops));
        match case.by {
            By::Sum => Some(Reference::Sum),
            By::Best => {
                // Of equals, and where nobody counts operations, the first.
                let sides = (0..case.references.len()).rev();
                sides.max_by(|a, b| speed(a).total_cmp(&speed(b))).map(Reference::Side)
            }
        }
    }

    /// A figure by its bound; `chosen` is what [`Rounds::chosen`] says.
    pub(super) fn judge(&self, case: &Case, bound: &Bound, chosen: Option<Reference>) -> Judged {
        let subject = case.references.len();
        let by = chosen.filter(|_| !bound.own);
        let reference = by.map(|by| match by {
            Reference::Side(side) => median(&self.of(side, bound.of)),
            Reference::Sum => {
                let sum = |round: &Vec<Value>| -> Option<f64> {
                    round[..subject].iter().map(|raw| bound.of.of(raw)).sum()
                };
                median(&self.seen.iter().filter_map(sum).collect::<Vec<_>>())
            }
        });
        let ratio = by.and_then(|by| self.ratio(bound.of, subject, by));
        Judged { reference, subject: median(&self.of(subject, bound.of)), ratio }
    }
}

/// The median; NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    middle(values).unwrap_or(f64::NAN)
}

#[cfg(test)]
pub(super) mod tests {
    use lab::statistics::{Schedule, Trials};
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

    /// Rounds of a case, of what each side printed in each.
    pub(in super::super) fn rounds_of(case: &Case, seen: Vec<Vec<Value>>) -> Rounds {
        restless_rounds_of(case, seen, 0)
    }

    /// As well; the first so many never become steady.
    fn restless_rounds_of(case: &Case, seen: Vec<Vec<Value>>, unsteady: usize) -> Rounds {
        let pairs = Pairs::of(case, seen[0].len());
        let plan = pairs.plan(seen.len());
        let mut schedule = Schedule::fixed(plan.clone(), seen.len());
        let mut rounds = Rounds::default();
        while let Some(round) = schedule.poll_round() {
            let seen = seen[round.number].clone();
            let unsteady = vec![0; usize::from(round.number < unsteady)];
            let (is_steady, values) = (unsteady.is_empty(), pairs.values(&seen).unwrap());
            schedule.handle_round(Trials { values, unsteady }).unwrap();
            rounds.take(seen, is_steady, round.is_repeat);
        }
        rounds.finish(pairs, &plan, &schedule.finish());
        rounds
    }

    /// Rounds of operations a second, a side each.
    pub(in super::super) fn rounds(case: &Case, iops: &[&[f64]]) -> Rounds {
        let round = |sides: &&[f64]| sides.iter().map(|iops| seen(*iops)).collect();
        rounds_of(case, iops.iter().map(round).collect())
    }

    #[test]
    fn the_reference_is_the_faster_one_by_its_median_whatever_single_rounds_say() {
        let case = case("128k-rfill-read-8");
        let lucky =
            rounds(&case, &[&[100.0, 900.0, 1.0], &[100.0, 90.0, 1.0], &[100.0, 90.0, 1.0]]);
        let chosen = Some(Reference::Side(0));
        assert_eq!(lucky.chosen(&case), chosen, "one lucky round of the other changes nothing");
        let other = rounds(&case, &[&[90.0, 100.0, 95.0]]);
        assert_eq!(other.chosen(&case), Some(Reference::Side(1)));
        let equal = rounds(&case, &[&[90.0, 90.0, 95.0]]);
        assert_eq!(equal.chosen(&case), Some(Reference::Side(0)));
    }

    #[test]
    fn the_ratio_is_taken_within_a_round_and_a_bound_is_held_against_its_interval() {
        let case = case("shared-1x1");
        let judge = |iops: &[&[f64]]| {
            let rounds = rounds(&case, iops);
            rounds.judge(&case, &case.figures[0], rounds.chosen(&case))
        };
        let wild = judge(&[&[100.0, 1.0, 90.0], &[10.0, 1.0, 9.5], &[1000.0, 1.0, 850.0]]);
        let ratio = wild.ratio.as_ref().unwrap();
        assert!((ratio.value() - (0.9 * 0.95 * 0.85_f64).cbrt()).abs() < 1e-9);
        assert_eq!((wild.reference, wild.subject), (Some(100.0), 90.0));
        assert_eq!(wild.held(&case.figures[0]), Some(Held::Open), "{ratio} of 0.95");
        let even = judge(&[&[100.0, 1.0, 90.0], &[10.0, 1.0, 9.01], &[1000.0, 1.0, 900.0]]);
        assert_eq!(even.held(&case.figures[0]), Some(Held::Missed));
        let good = judge(&[&[100.0, 1.0, 99.0], &[10.0, 1.0, 9.91], &[1000.0, 1.0, 991.0]]);
        assert_eq!(good.held(&case.figures[0]), Some(Held::Met));
    }

    #[test]
    fn a_single_round_has_no_interval_and_is_only_a_look() {
        let case = case("shared-1x1");
        let rounds = rounds(&case, &[&[100.0, 1.0, 96.0]]);
        let judged = rounds.judge(&case, &case.figures[0], rounds.chosen(&case));
        assert_eq!(judged.ratio.as_ref().unwrap().to_string(), "0.960");
        assert_eq!(judged.held(&case.figures[0]), Some(Held::Met));
    }

    #[test]
    fn a_sum_of_references_is_taken_within_a_round() {
        let case = case("file-4k-read-1");
        let seen = |[fio, ram, file]: [f64; 3]| {
            [fio, ram, file].map(|us| json!({"iops": 1.0, "latency_us": {"mean": us}})).to_vec()
        };
        let all = [[80.0, 20.0, 115.0], [160.0, 40.0, 220.0], [40.0, 10.0, 60.0]];
        let rounds = rounds_of(&case, all.map(seen).to_vec());
        let judged = rounds.judge(&case, &case.figures[0], rounds.chosen(&case));
        let ratio = judged.ratio.unwrap();
        assert_eq!(ratio.values, [1.15, 1.1, 1.2]);
        assert_eq!((judged.subject, judged.reference), (115.0, Some(100.0)));
    }

    #[test]
    fn an_own_figure_is_not_divided() {
        let case = case("idle-100");
        let seen = |busy: f64, switches: u32| json!({"keep_alives": 100, "target": {"busy": busy, "voluntary_switches": switches}});
        let rounds = rounds_of(&case, vec![vec![seen(0.01, 50), seen(0.011, 101)]]);
        let judged = |at: usize| rounds.judge(&case, &case.figures[at], rounds.chosen(&case));
        assert!((judged(0).ratio.unwrap().value() - 1.1).abs() < 1e-9);
        assert!(judged(1).ratio.is_none() && (judged(1).subject - 1.01).abs() < 1e-9);
    }

    #[test]
    fn all_that_is_told_is_of_the_rounds_that_the_interval_is_of() {
        let case = case("shared-1x1");
        let restless = |unsteady: usize| {
            let round = |at: usize| match at < unsteady {
                true => [900.0, 1.0, 90.0].map(seen).to_vec(),
                false => [100.0, 1.0, 90.0].map(seen).to_vec(),
            };
            restless_rounds_of(&case, (0..6).map(round).collect(), unsteady)
        };
        let told = |rounds: &Rounds| {
            let judged = rounds.judge(&case, &case.figures[0], rounds.chosen(&case));
            let values = judged.ratio.as_ref().unwrap().values.clone();
            (judged.reference.unwrap(), values)
        };
        let some = restless(2);
        assert_eq!(told(&some), (100.0, vec![0.9; 4]));
        assert_eq!((some.unsteady.len(), some.is_restless), (2, false));
        let most = restless(4);
        assert_eq!(told(&most), (900.0, [[0.9; 2].as_slice(), &[0.1; 4]].concat()));
        assert_eq!((most.unsteady.len(), most.is_restless), (0, true));
    }

    #[test]
    fn what_a_case_is_judged_by_was_measured_or_it_is_said() {
        let refused = |name: &str, seen: &[Value]| {
            Pairs::of(&case(name), seen.len()).values(seen).unwrap_err().to_string()
        };
        let busy = |answered: u32| json!({"keep_alives": answered, "target": {"busy": 0.5, "voluntary_switches": 1}});
        let own = refused("idle-100", &[busy(1), busy(0)]);
        assert!(own.contains("WakeupsEach is not in what was printed"), "an own figure: {own}");
        let slow = json!({"target": {"ops_per_cpu_second": 1.0}, "iops": 1.0});
        let without = json!({"target": {"ops_per_cpu_second": 1.0}});
        let mut by_cpu = case("128k-rfill-read-8");
        by_cpu.figures.truncate(1);
        let sides = [slow.clone(), without, slow];
        let chosen = Pairs::of(&by_cpu, 3).values(&sides).unwrap_err().to_string();
        assert!(
            chosen.contains("Iops is not in what was printed"),
            "by which one is chosen: {chosen}"
        );
    }

    #[test]
    fn what_printed_nothing_is_said_by_its_figure() {
        let case = case("initiator");
        let none = Pairs::of(&case, 2).values(&[json!({}), json!({})]).unwrap_err().to_string();
        assert!(none.contains("LoadCpu is not in what was printed"), "{none}");
        let zero = json!({"load_cpu_us_per_op": 0.0});
        let zero = Pairs::of(&case, 2).values(&[zero.clone(), zero]).unwrap_err().to_string();
        assert!(zero.contains("LoadCpu came out as 0"), "{zero}");
    }
}
