//! What would change the answer: where another road is ahead, what was not shown, and what the
//! figures cannot say. Break-even points are reckoned from the medians of the trials, so they are
//! figures and no verdicts.
//!
//! A resource that limits is a rate: a link's bits a second, a CPU's time. A road that needs `c` of
//! it an operation does at most `L / c` where there is `L` of it. So of two roads the one that needs
//! more of it falls behind as soon as `L` is less than `c` times what the other does without a
//! limit.
//!
//! Units are in the names; shares are fractions.

use std::fmt;

use serde::Serialize;

use super::choice::Grouped;
use super::order::Order;
use crate::plan::{Backing, Cell, Measure, PictureResult};
use crate::report::{Grouped as Digits, Nanoseconds};
use crate::statistics::ratio::Percent;
use crate::statistics::{Better, Moved, Verdict};

/// One thing that would change the answer, or that may.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Turn {
    /// Another measure counts more: another road is better by it, and so much worse by the first.
    Measure { measure: Measure, take: String, better: f64, gives_up: Option<f64>, known: Known },
    /// Bytes on the wire count more.
    Bytes { take: String, bytes_per_op: f64, less: f64, gives_up: Option<f64> },
    /// In a cell of a picture another road is ahead.
    Picture { picture: String, load: String, take: String, better: f64, is_steady: bool },
    /// And in so many more.
    MorePictures { cells: usize },
    /// The link carries so much; with less than `below` it is the limit, and the road another one, or
    /// the same, where nothing needs fewer bytes.
    Link { carried_mbit: f64, below_mbit: f64, take: Option<String> },
    /// As well, for the CPUs of an end: 1 is one of them.
    Cpus { end: &'static str, used: f64, below: f64, take: String },
    /// In so many trials the client was the limit.
    Client { system: String, trials: usize, of: usize },
    /// A comparison needs more rounds.
    Rounds { comparison: String, more: usize },
    /// A difference that is smaller than this would not have been seen.
    NotSeen { comparison: String, detectable: f64 },
    /// A comparison without a verdict, and why.
    NoVerdict { comparison: String, why: String },
    /// These two were not compared with each other, and nothing follows for them.
    NotCompared { one: String, other: String },
    /// What casts doubt on a verdict.
    Doubt { comparison: String, why: String },
    /// So many rounds never became steady.
    Unsteady { rounds: usize, of: usize },
    /// What moved while it ran.
    Moved { measure: Measure, system: String, moved: Moved },
    /// Trials of it failed.
    Failed { cell: String, trials: usize, why: String },
    /// No disk was measured.
    Memory { systems: Vec<String> },
    /// What is flushed is lost with the power.
    NotDurable { systems: Vec<String> },
}

/// What a better figure rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    Shown,
    ShownExploratory,
    /// They were compared, and it was not shown.
    NotShown,
    /// They were not compared by this measure.
    Figures,
}

/// All of a group, what changes the answer first. Without a road there is nothing to change, and only
/// what keeps one from being named.
pub(super) fn of(group: &Grouped<'_>, taken: Option<usize>) -> Vec<Turn> {
    let mut turns = Vec::new();
    if let Some(taken) = taken {
        measures(group, taken, &mut turns);
        bytes(group, taken, &mut turns);
        pictures(group, taken, &mut turns);
        if matches!(group.by.whole(), Measure::Iops | Measure::Throughput) {
            link(group, taken, &mut turns);
            cpus(group, taken, &mut turns);
        }
    }
    clients(group, &mut turns);
    verdicts(group, &mut turns);
    pairs(group, &mut turns);
    rounds(group, &mut turns);
    failures(group, &mut turns);
    disks(group, &mut turns);
    turns
}

/// How much better one value is than another: 0.1 is 10% more of what is good, or less of what is not.
fn better(measure: Measure, one: f64, other: f64) -> f64 {
    match measure.better() {
        Better::Higher => one / other - 1.0,
        Better::Lower | Better::Cheaper => 1.0 - one / other,
    }
}

/// Whether that is more than the plan's margin, which is one of speed: what is 10% faster costs 9.1% less.
fn is_beyond_margin(group: &Grouped<'_>, measure: Measure, better: f64) -> bool {
    let faster = match measure.better() {
        Better::Higher => better,
        Better::Lower | Better::Cheaper => 1.0 / (1.0 - better) - 1.0,
    };
    faster > group.margin()
}

/// How much worse a road is by what counts.
fn gives_up(group: &Grouped<'_>, road: usize, taken: usize) -> Option<f64> {
    let value = |system: usize| group.figures[system].of_measure(group.by);
    Some(-better(group.by, value(road)?, value(taken)?)).filter(|share| *share > 0.0)
}

fn measures(group: &Grouped<'_>, taken: usize, turns: &mut Vec<Turn>) {
    let is_rate = |measure: Measure| matches!(measure.whole(), Measure::Iops | Measure::Throughput);
    let mut others = vec![Measure::Iops, Measure::P99, Measure::CpuPerOp];
    others.extend(group.results.columns.iter().map(|column| column.measure));
    others.sort();
    others.dedup();
    // Of one size of requests these two are the same.
    others.retain(|other| *other != group.by && !(is_rate(*other) && is_rate(group.by)));
    for measure in others {
        let value = |system: usize| group.figures[system].of_measure(measure);
        let Some(own) = value(taken) else { continue };
        let gain = |system: &usize| Some((*system, better(measure, value(*system)?, own)));
        let best = group.roads.iter().filter_map(gain).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((road, gain)) = best else { continue };
        let order = Order::of(group.experiment, group.at, group.results, measure);
        let known = match order.ahead(road, taken) {
            Some(false) => Known::Shown,
            Some(true) => Known::ShownExploratory,
            None if order.between(road, taken).is_some() => Known::NotShown,
            None => Known::Figures,
        };
        let is_shown = matches!(known, Known::Shown | Known::ShownExploratory);
        if road != taken && (is_shown || is_beyond_margin(group, measure, gain)) {
            let gives_up = gives_up(group, road, taken);
            turns.push(Turn::Measure {
                measure,
                take: group.name(road),
                better: gain,
                gives_up,
                known,
            });
        }
    }
}

fn bytes(group: &Grouped<'_>, taken: usize, turns: &mut Vec<Turn>) {
    let Some(own) = group.figures[taken].wire() else { return };
    let wire = |system: &usize| Some((*system, group.figures[*system].wire()?));
    let least = group.roads.iter().filter_map(wire).min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((road, bytes_per_op)) = least
        && bytes_per_op < own * (1.0 - NOISE)
    {
        let (less, gives_up) = (1.0 - bytes_per_op / own, gives_up(group, road, taken));
        turns.push(Turn::Bytes { take: group.name(road), bytes_per_op, less, gives_up });
    }
}

/// Cells of pictures in which the order turns, each once measured.
fn pictures(group: &Grouped<'_>, taken: usize, turns: &mut Vec<Turn>) {
    let experiment = group.experiment;
    let own = super::agreement::cell_of(experiment, group.at, taken);
    let mut turned = Vec::new();
    for picture in &experiment.pictures {
        let seen = |system: usize, of: &Cell| -> Option<&PictureResult> {
            let cell = Cell {
                system: super::agreement::cell_of(experiment, group.at, system).system,
                ..*of
            };
            let name = experiment.cell_name(&cell);
            let pictures = &group.kept.results.pictures;
            pictures.iter().find(|one| one.picture == picture.name && one.cell == name)
        };
        let value =
            |one: &PictureResult| one.measures.get(&group.by).copied().filter(|it| *it > 0.0);
        for cell in picture.cells.iter().filter(|cell| cell.system == own.system) {
            let Some(mine) = seen(taken, cell) else { continue };
            let Some(mine_value) = value(mine) else { continue };
            let gain = |road: &usize| {
                let it = seen(*road, cell)?;
                Some((*road, better(group.by, value(it)?, mine_value), it.is_steady))
            };
            let best = group.roads.iter().filter_map(gain).max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((road, gain, is_steady)) =
                best.filter(|best| is_beyond_margin(group, group.by, best.1))
            else {
                continue;
            };
            let over = cell
                .path
                .map_or(String::new(), |path| format!("over {}, ", experiment.paths[path]));
            turned.push(Turn::Picture {
                picture: picture.name.clone(),
                load: format!("{over}{}", cell.load),
                take: group.name(road),
                better: gain,
                is_steady: is_steady && mine.is_steady,
            });
        }
    }
    let more = turned.len().saturating_sub(PICTURES_MAX);
    turned.truncate(PICTURES_MAX);
    turns.append(&mut turned);
    if more > 0 {
        turns.push(Turn::MorePictures { cells: more });
    }
}

/// Of roads that need less of a resource an operation, the one that is ahead first if there is less
/// and less of it, and below how much that is; `needs` in units of the resource an operation.
fn overtakes(
    group: &Grouped<'_>,
    taken: usize,
    needs: impl Fn(usize) -> Option<f64>,
) -> Option<(f64, Option<(usize, f64)>)> {
    let iops = |system: usize| group.figures[system].of_measure(Measure::Iops);
    let (own, own_iops) = (needs(taken)?, iops(taken)?);
    let overtakes = |road: &usize| {
        let (need, iops) = (needs(*road)?, iops(*road)?);
        (need < own * (1.0 - NOISE)).then(|| (*road, own * iops.min(own_iops)))
    };
    let first = group.roads.iter().filter_map(overtakes).max_by(|a, b| a.1.total_cmp(&b.1));
    Some((own * own_iops, first))
}

fn link(group: &Grouped<'_>, taken: usize, turns: &mut Vec<Turn>) {
    let mbit = |system: usize| Some(group.figures[system].wire()? * 8.0 / 1e6);
    let Some((carried_mbit, first)) = overtakes(group, taken, mbit) else { return };
    let below_mbit = first.map_or(carried_mbit, |(_, below)| below);
    let take = first.map(|(road, _)| group.name(road));
    turns.push(Turn::Link { carried_mbit, below_mbit, take });
}

fn cpus(group: &Grouped<'_>, taken: usize, turns: &mut Vec<Turn>) {
    for (end, is_near) in [("near", true), ("far", false)] {
        let needs = |system: usize| {
            let figures = &group.figures[system];
            let us = if is_near { figures.near_cpu_us_per_op } else { figures.far_cpu_us_per_op };
            us.filter(|us| us.is_finite() && *us > 0.0).map(|us| us / 1e6)
        };
        if let Some((used, Some((road, below)))) = overtakes(group, taken, needs) {
            turns.push(Turn::Cpus { end, used, below, take: group.name(road) });
        }
    }
}

fn clients(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    for road in &group.roads {
        let (figures, system) = (&group.figures[*road], group.name(*road));
        if figures.client_was_the_limit > 0 {
            let (trials, of) = (figures.client_was_the_limit, figures.trials);
            turns.push(Turn::Client { system, trials, of });
        }
    }
}

fn verdicts(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    for finding in group.order.judged.iter().map(|judged| judged.finding) {
        let comparison = finding.label();
        match finding.verdict {
            Verdict::Undecided { more_rounds } => {
                turns.push(Turn::Rounds { comparison: comparison.clone(), more: more_rounds });
            }
            Verdict::NoDifferenceShown { detectable } => {
                turns.push(Turn::NotSeen { comparison: comparison.clone(), detectable });
            }
            Verdict::Withheld { reason } => {
                let why = reason.to_string();
                turns.push(Turn::NoVerdict { comparison: comparison.clone(), why });
            }
            // What was asked for, and not who is better: no answer to it changes who is taken.
            Verdict::Held { .. } | Verdict::NotHeld { .. } | Verdict::Open { .. } => {}
            Verdict::Faster { .. } | Verdict::Slower { .. } | Verdict::Equal { .. } => {}
        }
        let why = finding.doubts();
        turns
            .extend(why.into_iter().map(|why| Turn::Doubt { comparison: comparison.clone(), why }));
    }
}

/// Pairs that nothing is known of. Whoever is out is out of the question.
fn pairs(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    let left = group.left();
    for (at, one) in left.iter().enumerate() {
        for other in &left[at + 1..] {
            if group.order.between(*one, *other).is_none() {
                let (one, other) = (group.name(*one), group.name(*other));
                turns.push(Turn::NotCompared { one, other });
            }
        }
    }
}

fn rounds(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    let analysis = &group.results.analysis;
    if analysis.rounds_unsteady > 0 {
        let (rounds, of) = (analysis.rounds_unsteady, analysis.rounds_run);
        turns.push(Turn::Unsteady { rounds, of });
    }
    for one in &group.results.moved {
        if one.moved != Moved::Neither && one.column.measure == group.by {
            let (measure, moved) = (one.column.measure, one.moved);
            turns.push(Turn::Moved { measure, system: group.name(one.column.system), moved });
        }
    }
}

fn failures(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    let failures = &group.kept.results.failures;
    for system in 0..group.results.systems.len() {
        let cell = super::agreement::cell_of(group.experiment, group.at, system);
        let cell = group.experiment.cell_name(&cell);
        let mut its = failures.iter().filter(|failure| failure.cell == cell);
        if let Some(first) = its.next() {
            let (trials, why) = (1 + its.count(), first.why.clone());
            turns.push(Turn::Failed { cell, trials, why });
        }
    }
}

fn disks(group: &Grouped<'_>, turns: &mut Vec<Turn>) {
    let system = |road: &usize| {
        let cell = super::agreement::cell_of(group.experiment, group.at, *road);
        &group.experiment.systems[cell.system]
    };
    let is_memory =
        |road: &&usize| matches!(system(road).backing, Some(Backing::Ram | Backing::Null));
    let lasts_not = |road: &&usize| system(road).durable == Some(false) && !is_memory(road);
    let names = |roads: Vec<&usize>| roads.into_iter().map(|road| group.name(*road)).collect();
    let memory: Vec<String> = names(group.roads.iter().filter(is_memory).collect());
    let volatile: Vec<String> = names(group.roads.iter().filter(lasts_not).collect());
    if !memory.is_empty() {
        turns.push(Turn::Memory { systems: memory });
    }
    if !volatile.is_empty() {
        turns.push(Turn::NotDurable { systems: volatile });
    }
}

/// Figures that differ by less are taken for the same.
const NOISE: f64 = 0.01;
/// So many cells of pictures are named.
const PICTURES_MAX: usize = 5;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Known::Shown => "a verdict shows it",
            Known::ShownExploratory => "an exploratory verdict shows it",
            Known::NotShown => "by figures alone, no verdict shows it",
            Known::Figures => "by figures alone, they were not compared by it",
        })
    }
}

/// ", for 8.0% less of IOPS".
struct GivesUp(Option<f64>);

impl fmt::Display for GivesUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(share) => write!(f, ", and {} worse by what counts here", Percent(share)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Turn::Measure { measure, take, better, gives_up, known } => {
                let (better, gives_up) = (Percent(*better), GivesUp(*gives_up));
                write!(f, "if {measure} counts more: {take}, {better} better{gives_up} ({known})")
            }
            Turn::Bytes { take, bytes_per_op, less, gives_up } => write!(
                f,
                "if bytes on the wire count more: {take}, {bytes_per_op:.0} an operation, {} less{} (by figures alone)",
                Percent(*less),
                GivesUp(*gives_up)
            ),
            Turn::Picture { picture, load, take, better, is_steady } => {
                let steady = if *is_steady { "" } else { ", and not steady" };
                let better = Percent(*better);
                write!(
                    f,
                    "{load}: {take}, {better} better (picture {picture:?}, measured once{steady})"
                )
            }
            Turn::MorePictures { cells } => {
                write!(f, "the order turns in {cells} more cells of pictures, which the page shows")
            }
            Turn::Link { carried_mbit, below_mbit, take: Some(take) } => write!(
                f,
                "if the link carried less than {} Mbit/s, both ways together ({} were used): {take}, which needs fewer bytes",
                whole(*below_mbit),
                whole(*carried_mbit)
            ),
            Turn::Link { carried_mbit, take: None, .. } => write!(
                f,
                "a slower link would not change it: below {} Mbit/s, both ways together, the link is the limit, and nothing needs fewer bytes by {} or more",
                whole(*carried_mbit),
                Percent(NOISE)
            ),
            Turn::Cpus { end, used, below, take } => write!(
                f,
                "if the {end} end had less than {below:.2} of a CPU for it ({used:.2} were used): {take}, which needs less an operation there"
            ),
            Turn::Client { system, trials, of } => write!(
                f,
                "the client was the limit in {trials} of {of} trials of {system}: a faster one could change it"
            ),
            Turn::Rounds { comparison, more } => {
                let rounds = if *more == 1 { "round" } else { "rounds" };
                write!(
                    f,
                    "{comparison}: undecided, a run with about {more} more {rounds} could change it"
                )
            }
            Turn::NotSeen { comparison, detectable } => write!(
                f,
                "{comparison}: no difference shown, and one of less than {} would not have been",
                Percent(*detectable)
            ),
            Turn::NoVerdict { comparison, why } => write!(f, "{comparison}: no verdict: {why}"),
            Turn::NotCompared { one, other } => {
                write!(f, "{one} and {other} were not compared with each other")
            }
            Turn::Doubt { comparison, why } => write!(f, "{comparison}: {why}"),
            Turn::Unsteady { rounds, of } => {
                write!(f, "{rounds} of {of} rounds never became steady, and do not count")
            }
            Turn::Moved { measure, system, moved } => write!(f, "{measure} of {system}: {moved}"),
            Turn::Failed { cell, trials, why } => {
                let word = if *trials == 1 { "trial" } else { "trials" };
                write!(f, "{trials} {word} of {cell} failed; first: {why}")
            }
            Turn::Memory { systems } => write!(
                f,
                "the blocks of {} were in memory: behind a disk that is slower than the road, the road may not matter",
                super::and(systems)
            ),
            Turn::NotDurable { systems } => write!(
                f,
                "what {} flushed does not survive a loss of power: where it must, this says nothing",
                super::and(systems)
            ),
        }
    }
}

/// With its thousands apart; of little, with what counts.
fn whole(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { Digits(value.round() as u64).to_string() }
}

/// A measure's value with its unit, as people read it.
pub fn shown(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Iops | Measure::ReadIops | Measure::WriteIops => {
            Digits(value.round() as u64).to_string()
        }
        Measure::Throughput => format!("{:.0} MB/s", value / 1e6),
        of_cpu if of_cpu.is_of_cpu() => format!("{value:.1} us"),
        Measure::WireBytesPerOp | Measure::CoreBurstiness => format!("{value:.0} B"),
        Measure::CoreQueue => format!("{value:.0} frames"),
        _ => Nanoseconds(value).to_string(),
    }
}
