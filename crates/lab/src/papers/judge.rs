//! From what plans of a paper came to, to what is said of each of its findings.
//!
//! In come results of plans with the plans themselves, and what was seen of the preconditions
//! ([`Sights`]); out comes for each finding its answer, its size, and our ratio with its interval, of all
//! cells together and of each. Ratios are metric(a) / metric(b), of values as they were measured, whichever way
//! is good; of several cells, their geometric mean. Rounds are those that count. A cell that was not run,
//! or of which there is no verdict, leaves the finding undecided rather than guessed, unless the
//! others are enough.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::exact;
use super::facts::{Claim, Finding};
use super::reach::{REACHABILITY, Reach, Reached};
use super::rerun::{How, Quantifier, Recreated, Sees};
use super::verdict::{Answer, Known, Size, together};
use super::{Run, Study};
use crate::plan::{self, Experiment, Group, GroupResults, Means, Results};
use crate::statistics::ratio::Times;
use crate::statistics::sample::{Precision, Sample};
use crate::statistics::{ALPHA, Comparison, Interval, LogRatio, Verdict, spread};

/// What can be seen of a precondition in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// Bits on the wire of both directions, as a share of the path's rate.
    LinkBusy,
    /// Of its time, what the busiest CPU of both ends worked.
    CpuBusy,
    /// The CPUs of that end which has fewer.
    Cpus,
    /// The mean of what an operation takes, in nanoseconds.
    Latency,
    /// Operations a second.
    Iops,
}

/// What was seen, by the names of cells.
pub type Sights = BTreeMap<(String, Sight), f64>;

/// A plan that ran.
#[derive(Clone, Debug)]
pub struct Measured<'r> {
    /// By its name in the paper's runs.
    pub plan: &'r str,
    pub experiment: &'r Experiment,
    pub results: &'r Results,
    pub sights: Sights,
}

/// What is said of a finding.
#[derive(Clone, Debug, Serialize)]
pub struct Said {
    pub id: String,
    pub answer: Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Of all its cells together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellSaid>,
    /// What is shown with it, and of no weight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<CellSaid>,
    /// Whether a modelled disk is below one of its cells.
    pub is_modelled: bool,
    /// What was seen of its precondition, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
}

/// Our ratio metric(a) / metric(b).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ours {
    pub ratio: LogRatio,
    pub interval: Interval,
    pub rounds: usize,
}

/// What one cell says.
#[derive(Clone, Debug, Serialize)]
pub struct CellSaid {
    /// The comparison.
    pub name: String,
    pub answer: Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
}

/// How much more something is to vary, so that it is worth saying.
const VARIES: f64 = 1.0;

/// What of a comparison a finding is about.
#[derive(Clone, Copy)]
pub(super) struct Of {
    pub(super) inverted: bool,
    pub(super) variation: bool,
}

/// A comparison of a plan, with what it came to.
pub(super) struct Found<'m> {
    group: &'m Group,
    results: &'m GroupResults,
    comparison: &'m Comparison,
}

/// A cell of a finding.
pub(super) struct Cell<'m> {
    name: &'m str,
    found: Option<Found<'m>>,
    /// What is known of it, or why nothing is.
    pub(super) known: Result<Known, Answer>,
}

impl Study {
    /// What is said of each finding. `not_run` has what that says of a plan's findings that it did not run, and
    /// of whether anything is reached where that was not tried.
    pub fn judge(
        &self,
        measured: &[Measured<'_>],
        not_run: &BTreeMap<String, Answer>,
        reached: &[Reached],
    ) -> Vec<Said> {
        let findings = self.paper.findings.iter().zip(&self.how);
        findings.map(|(finding, how)| judge(finding, how, measured, not_run, reached)).collect()
    }

    /// The plan of this name.
    pub fn run(&self, plan: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.plan == plan)
    }
}

/// Of a finding an answer, and nothing beside it.
fn bare_of(finding: &Finding, answer: Answer) -> Said {
    Said {
        id: finding.id.clone(),
        answer,
        size: None,
        ours: None,
        cells: Vec::new(),
        beside: Vec::new(),
        is_modelled: false,
        seen: Vec::new(),
    }
}

/// Of one that is decided by what is reached.
fn of_ways(
    finding: &Finding,
    reach: &Reach,
    not_run: &BTreeMap<String, Answer>,
    reached: &[Reached],
) -> Said {
    match reach.judge(finding, reached) {
        Some((answer, size, seen)) => Said { size, seen, ..bare_of(finding, answer) },
        None => {
            let usual = || Answer::undecided("whether it is reached was not tried");
            bare_of(finding, not_run.get(REACHABILITY).cloned().unwrap_or_else(usual))
        }
    }
}

fn judge(
    finding: &Finding,
    how: &How,
    measured: &[Measured<'_>],
    not_run: &BTreeMap<String, Answer>,
    reached: &[Reached],
) -> Said {
    let bare = |answer| bare_of(finding, answer);
    let recreated = match how {
        How::Recreated(recreated) => recreated,
        How::Not { word, because, .. } => return bare(Answer::of_word(*word, because.clone())),
        How::Reach(reach) => return of_ways(finding, reach, not_run, reached),
        How::Exact(exact) => {
            let (cells, mean) = exact::cells(finding, exact);
            let answers: Vec<Answer> = cells.iter().map(|cell| cell.answer.clone()).collect();
            return Said {
                size: mean.as_ref().and_then(|mean| mean.size(finding)),
                ours: mean.map(|mean| Ours::of(&mean, finding.direction)),
                cells,
                ..bare(together(Quantifier::Every, &answers))
            };
        }
    };
    let Some(its) = measured.iter().find(|one| one.plan == recreated.plan) else {
        let answer = not_run.get(&recreated.plan).cloned();
        let usual = || Answer::undecided(format!("its plan {} was not run", recreated.plan));
        return bare(answer.unwrap_or_else(usual));
    };
    of_plan(finding, recreated, its, bare)
}

fn of_plan(
    finding: &Finding,
    recreated: &Recreated,
    its: &Measured<'_>,
    bare: impl Fn(Answer) -> Said,
) -> Said {
    let of = Of { inverted: recreated.inverted, variation: recreated.variation };
    let cells = its.gains(recreated, of);
    let beside = its.cells(&recreated.beside, of);
    let (judge, count) = (recreated.judge, cells.len());
    let said = |cell: &Cell<'_>| cell.said(finding, judge, count);
    let all: Vec<CellSaid> = cells.iter().map(said).collect();
    let answers: Vec<Answer> = all.iter().map(|cell| cell.answer.clone()).collect();
    let mean = its.mean(&cells, of);
    let answer = match (judge, &mean) {
        (Quantifier::Mean, Ok(mean)) => mean.answer(finding, judge, 1),
        (Quantifier::Mean, Err(why)) => why.clone(),
        _ => together(judge, &answers),
    };
    let (mut seen, unmet) = its.look(recreated, &cells);
    let answer = its.controlled(finding, recreated, &cells, answer, &mut seen);
    let size = mean.as_ref().ok().and_then(|mean| mean.size(finding));
    let (answer, size) = match (unmet, &recreated.stands_for) {
        (Some(because), _) => (Answer::CannotBeTested { because }, size),
        // Of what was not seen itself nothing is said either way.
        (None, Some(_)) if matches!(answer, Answer::Undecided { .. }) => (answer, None),
        // How large what stands for it is says nothing of how large it is.
        (None, Some(what)) => {
            (Answer::AnalogueOnly { because: format!("{what}; of that: {answer}") }, None)
        }
        (None, None) => (answer, size),
    };
    let all = all.into_iter().map(|cell| match recreated.stands_for {
        Some(_) => CellSaid { size: None, ..cell },
        None => cell,
    });
    Said {
        answer,
        size,
        ours: mean.ok().map(|mean| Ours::of(&mean, finding.direction)),
        cells: all.collect(),
        beside: beside.iter().map(said).collect(),
        is_modelled: its.is_modelled(&cells),
        seen,
        ..bare(Answer::Confirmed)
    }
}

/// "1.21 times (1.18 to 1.24), 12 rounds"; of what is exact, "0.730 times, exactly".
impl fmt::Display for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rounds == 0 {
            return write!(f, "{} times, exactly", Times(self.ratio.ratio()));
        }
        let [ratio, low, high] =
            [self.ratio, self.interval.low, self.interval.high].map(|one| Times(one.ratio()));
        write!(f, "{ratio} times ({low} to {high}), {} rounds", self.rounds)
    }
}

impl Ours {
    pub(super) fn of(known: &Known, claim: Claim) -> Ours {
        let ratio = LogRatio(known.precision.mean);
        Ours { ratio, interval: known.shown(claim), rounds: known.rounds }
    }
}

impl Cell<'_> {
    fn said(&self, finding: &Finding, judge: Quantifier, cells: usize) -> CellSaid {
        let name = self.name.to_owned();
        match &self.known {
            Ok(known) => CellSaid {
                name,
                answer: known.answer(finding, judge, cells),
                size: known.size(finding),
                ours: Some(Ours::of(known, finding.direction)),
            },
            Err(why) => CellSaid { name, answer: why.clone(), size: None, ours: None },
        }
    }
}

impl<'m> Measured<'m> {
    pub(super) fn cells(&'m self, names: &'m [String], of: Of) -> Vec<Cell<'m>> {
        names.iter().map(|name| self.cell(name, of)).collect()
    }

    /// The cells of a finding; where it is on what is gained, divided by what is gained elsewhere.
    fn gains(&'m self, recreated: &'m Recreated, of: Of) -> Vec<Cell<'m>> {
        let mut cells = self.cells(&recreated.comparisons, of);
        let by = recreated.over.as_ref().map(|name| self.cell(name, of).known);
        if let ([cell], Some(by)) = (&mut cells[..], by) {
            cell.known = match (&cell.known, by) {
                (Ok(gained), Ok(by)) => Ok(gained.over(&by, self.alpha())),
                (Err(why), _) => Err(why.clone()),
                (_, Err(why)) => Err(why),
            };
        }
        cells
    }

    /// How often what is none of the comparisons that Holm's test ordered may miss: at the strictest level
    /// of them.
    pub(super) fn alpha(&self) -> f64 {
        ALPHA / self.experiment.primaries().max(1) as f64
    }

    fn cell(&'m self, name: &'m str, of: Of) -> Cell<'m> {
        let Some(found) = self.find(name) else {
            return Cell {
                name,
                found: None,
                known: Err(Answer::undecided("not all of it was run")),
            };
        };
        let known = self.known(&found, of);
        Cell { name, found: Some(found), known }
    }

    /// A comparison of both the plan and its results.
    fn find(&'m self, name: &str) -> Option<Found<'m>> {
        self.experiment.groups.iter().find_map(|group| {
            let comparison = group.plan.comparisons.iter().find(|one| one.name == name)?;
            let results = self.results.groups.iter().find(|results| results.name == group.name)?;
            // Places of a comparison are those of the results' columns.
            let is_kept = results.columns == group.columns
                && results.analysis.findings.iter().any(|finding| finding.name == name);
            is_kept.then_some(Found { group, results, comparison })
        })
    }

    /// What is known of a comparison's ratio of values.
    fn known(&self, found: &Found<'_>, of: Of) -> Result<Known, Answer> {
        let Found { group, results, comparison } = found;
        let mut findings = results.analysis.findings.iter();
        let finding = findings.find(|finding| finding.name == comparison.name);
        let finding = finding.expect("it was found by that name");
        if let Verdict::Withheld { reason } = finding.verdict {
            return Err(Answer::undecided(reason.to_string()));
        }
        if of.variation {
            return variation(found, of.inverted);
        }
        let logs = ratios(found, of.inverted);
        let sample = Sample::of(&logs).ok_or(Answer::undecided("fewer than two rounds count"))?;
        let level = finding.estimate.map_or(1.0 - ALPHA, |estimate| estimate.corrected.level);
        Ok(Known {
            precision: sample.guarded(),
            rounds: sample.rounds,
            alpha: 1.0 - level,
            difference: group.plan.difference,
        })
    }

    /// The geometric mean over all cells. Cells of one group share their rounds, so their mean is taken
    /// within each round first.
    fn mean(&self, cells: &[Cell<'_>], of: Of) -> Result<Known, Answer> {
        if let [Cell { known, .. }] = cells {
            return known.clone();
        }
        if of.variation {
            // Of cells that share their rounds as of those that do not: each has its own.
            let parts: Result<Vec<(usize, Known)>, Answer> =
                cells.iter().map(|cell| Ok((1, cell.known.clone()?))).collect();
            return Known::mean(&parts?, self.alpha()).ok_or(Answer::undecided("it has no cell"));
        }
        let mut by_group: BTreeMap<&str, Vec<(&Found<'_>, &Known)>> = BTreeMap::new();
        for cell in cells {
            let known = cell.known.as_ref().map_err(Clone::clone)?;
            let found = cell.found.as_ref().expect("what is known was found");
            by_group.entry(&found.group.name).or_default().push((found, known));
        }
        let part = |its: &Vec<(&Found<'_>, &Known)>| {
            let series: Vec<Vec<f64>> =
                its.iter().map(|(found, _)| ratios(found, of.inverted)).collect();
            let rounds = series.iter().map(Vec::len).min().unwrap_or_default();
            let of_round =
                |at: usize| series.iter().map(|logs| logs[at]).sum::<f64>() / series.len() as f64;
            let sample = Sample::of(&(0..rounds).map(of_round).collect::<Vec<f64>>())?;
            let known = Known { precision: sample.guarded(), rounds: sample.rounds, ..*its[0].1 };
            Some((its.len(), known))
        };
        let parts: Option<Vec<(usize, Known)>> = by_group.values().map(part).collect();
        let mean = parts.and_then(|parts| Known::mean(&parts, self.alpha()));
        mean.ok_or(Answer::undecided("it has no cell"))
    }

    /// Whether one of the cells' systems is served from a modelled disk.
    fn is_modelled(&self, cells: &[Cell<'_>]) -> bool {
        let found = cells.iter().filter_map(|cell| cell.found.as_ref());
        found.flat_map(Found::sides).any(|side| {
            let disk = match &self.experiment.systems[side.system].means {
                Means::Serve(serve) => &serve.disk,
                Means::Nfs(nfs) => &nfs.disk,
                Means::Rival(rival) => &rival.disk,
                Means::Disk { uri } => uri,
                _ => return false,
            };
            disk.starts_with("model:")
        })
    }

    /// What was seen of the precondition, and what of it was not so.
    fn look(&self, recreated: &Recreated, cells: &[Cell<'_>]) -> (Vec<String>, Option<String>) {
        let (mut seen, mut unmet) = (Vec::new(), None);
        for found in cells.iter().filter_map(|cell| cell.found.as_ref()) {
            for side in found.sides() {
                for (said, is_met) in self.look_at(&recreated.sees, found.group, side) {
                    if !is_met && unmet.is_none() {
                        unmet = Some(format!("its precondition was not there: {said}"));
                    }
                    if !seen.contains(&said) {
                        seen.push(said);
                    }
                }
            }
        }
        (seen, unmet)
    }

    /// What is seen of one cell, and whether it is as it was to be.
    fn look_at(&self, sees: &Sees, group: &Group, side: &plan::Cell) -> Vec<(String, bool)> {
        let name = self.experiment.cell_name(side);
        let of = |name: &str, sight| self.sights.get(&(name.to_owned(), sight)).copied();
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        let mut all = Vec::new();
        if let Some((most, busy)) = sees.link_busy_at_most.zip(of(&name, Sight::LinkBusy)) {
            let (seen, most_told) = (percent(busy), percent(most));
            let said =
                format!("{name}: the link was busy for {seen} of the time (at most {most_told})");
            all.push((said, busy <= most));
        }
        for (least, sight, what) in [
            (sees.link_busy_at_least, Sight::LinkBusy, "the time that the link was busy"),
            (sees.cpu_busy_at_least, Sight::CpuBusy, "the time that a CPU was busy"),
            (sees.cpus_at_least, Sight::Cpus, "CPUs of each end"),
        ] {
            let Some((least, seen)) = least.zip(of(&name, sight)) else { continue };
            let word = |value| match sight {
                Sight::Cpus => format!("{value}"),
                _ => percent(value),
            };
            let said = format!("{name}: {what}: {} (at least {})", word(seen), word(least));
            all.push((said, seen >= least));
        }
        let system = |cell: &plan::Cell| &self.experiment.systems[cell.system].name;
        let without = sees.without_disk.get(system(side)).and_then(|other| {
            // The same, but for the system.
            let is_it = |cell: &&plan::Cell| {
                system(cell) == other && (cell.path, cell.load) == (side.path, side.load)
            };
            of(&self.experiment.cell_name(group.cells.iter().find(is_it)?), Sight::Latency)
        });
        // What does nothing is no cell of a finding by itself.
        let null = &group.cells[group.null];
        let of_null = of(&self.experiment.cell_name(null), Sight::Iops).filter(|_| null != side);
        let rates = of_null.zip(of(&name, Sight::Iops));
        if let Some((most, (null, its))) = sees.null_share_at_most.zip(rates) {
            let (seen, most_told) = (percent(its / null), percent(most));
            let said = format!(
                "{name}: {seen} of the operations of a disk that does nothing (at most {most_told})"
            );
            all.push((said, its <= most * null));
        }
        let times = without.zip(of(&name, Sight::Latency));
        if let Some((least, (without, whole))) = sees.disk_share_at_least.zip(times) {
            let share = (1.0 - without / whole).max(0.0);
            let (seen, least_told) = (percent(share), percent(least));
            let said = format!(
                "{name}: the disk had {seen} of an operation's time (at least {least_told})"
            );
            all.push((said, share >= least));
        }
        all
    }
}

impl Found<'_> {
    /// The cells of its subject and its reference.
    fn sides(&self) -> [&plan::Cell; 2] {
        let Found { group, comparison, .. } = self;
        [comparison.subject, comparison.reference]
            .map(|column| &group.cells[group.columns[column].system])
    }
}

/// How each of a pair varies from round to round: the ratio of their coefficients of variation.
fn variation(found: &Found<'_>, inverted: bool) -> Result<Known, Answer> {
    let Found { results, comparison, .. } = found;
    let series = |column: usize| results.rounds.iter().map(|round| round[column]).collect();
    let (subject, reference): (Vec<f64>, Vec<f64>) =
        (series(comparison.subject), series(comparison.reference));
    let precision = spread::ratio_of_variation(&subject, &reference).ok_or_else(|| {
        let least = spread::ROUNDS_MIN;
        Answer::undecided(format!("fewer than {least} rounds count, or they do not vary at all"))
    })?;
    let mean = if inverted { -precision.mean } else { precision.mean };
    let precision = Precision { mean, ..precision };
    Ok(Known { precision, rounds: subject.len(), alpha: ALPHA, difference: VARIES })
}

/// Of each round that counts, the logarithm of metric(a) / metric(b), of values.
fn ratios(found: &Found<'_>, inverted: bool) -> Vec<f64> {
    let Found { results, comparison, .. } = found;
    let sign = if inverted { -1.0 } else { 1.0 };
    let log =
        |values: &Vec<f64>| sign * (values[comparison.subject] / values[comparison.reference]).ln();
    results.rounds.iter().map(log).collect()
}

#[cfg(test)]
mod tests;
