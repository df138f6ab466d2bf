//! From what tables want to groups and pictures.
//!
//! Comparisons of one path, load, difference and margin make a group, in whose rounds each system
//! runs once, whatever it is compared in. Exploratory ones join a group that has a primary one.
//! Every group holds `null`. Bounds are on what a table may multiply to; the same comparison twice
//! is refused, since it would be corrected for twice.

use toml::Spanned;

use super::axes::COMBINATIONS_MAX;
use super::low::LowPlan;
use super::measure::Measure;
use super::model::{Cell, Column, Experiment, Group, Load, Picture};
use super::names::{comparison_name, group_name};
use crate::mistake::{Mistake, Span};
use crate::statistics::{Bound, Comparison, Plan};

/// A family of more is corrected until nothing can be shown.
const COMPARISONS_MAX: usize = 200;
/// Systems of a group, `null` among them: a round is not to take an hour.
const SYSTEMS_MAX: usize = 16;

/// A `[[compare]]` that was checked by itself; systems and paths by their places.
pub(super) struct WantedCompare {
    pub(super) span: Span,
    pub(super) name: Option<String>,
    pub(super) subjects: Vec<(usize, Span)>,
    pub(super) reference: usize,
    pub(super) paths: Vec<Option<usize>>,
    pub(super) loads: Vec<Load>,
    pub(super) measures: Vec<(Measure, Span)>,
    /// What is asked of each pair: bounds, or in place of them whether there is a difference.
    pub(super) questions: Vec<Option<Bound>>,
    pub(super) difference: f64,
    pub(super) margin: f64,
    /// Whether its difference and margin are not those of the plan.
    pub(super) is_own: bool,
    pub(super) primary: bool,
}

pub(super) struct WantedPicture {
    pub(super) name: String,
    pub(super) systems: Vec<usize>,
    pub(super) paths: Vec<Option<usize>>,
    pub(super) loads: Vec<Load>,
}

/// All that is wanted.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) compares: Vec<WantedCompare>,
    pub(super) pictures: Vec<WantedPicture>,
}

/// What has its rounds in common.
struct Draft {
    path: Option<usize>,
    load: Load,
    difference: f64,
    margin: f64,
    is_own: bool,
    /// Places among the plan's systems.
    systems: Vec<usize>,
    measures: Vec<Measure>,
    columns: Vec<Column>,
    comparisons: Vec<Comparison>,
}

/// What a comparison is of: subject, reference, path, load and measure, and what is asked.
type Compared = (usize, usize, Option<usize>, Load, Measure, Option<Bound>);

impl Wanted {
    /// The largest size that any load works on.
    pub(super) fn size_max(&self) -> Option<u64> {
        let of_compares = self.compares.iter().flat_map(|compare| &compare.loads);
        let of_pictures = self.pictures.iter().flat_map(|picture| &picture.loads);
        of_compares.chain(of_pictures).filter_map(|load| load.size).max()
    }

    /// Refuses more comparisons and cells than anybody runs.
    pub(super) fn check_count(&self, low: &LowPlan, mistakes: &mut Vec<Mistake>) {
        let compare = |one: &WantedCompare| {
            let cells = one.paths.len() * one.loads.len();
            cells * one.subjects.len() * one.measures.len() * one.questions.len()
        };
        let comparisons: usize = self.compares.iter().map(compare).sum();
        let picture = |one: &WantedPicture| one.paths.len() * one.loads.len() * one.systems.len();
        let cells: usize = self.pictures.iter().map(picture).sum();
        let (compares, pictures) = (low.compares.as_ref(), low.pictures.as_ref());
        for (count, most, what, span) in [
            (comparisons, COMPARISONS_MAX, "comparisons", compares.map(Spanned::span)),
            (cells, COMBINATIONS_MAX, "cells of pictures", pictures.map(Spanned::span)),
        ] {
            if count > most {
                let message = format!("expected {most} {what} at most, seen {count}");
                let mistake = Mistake::new(span.unwrap_or(0..0), message);
                mistakes.push(mistake.help("make some lists shorter, or several plans of it"));
            }
        }
    }

    /// Puts comparisons into groups and pictures into cells.
    pub(super) fn arrange(
        &self,
        experiment: &mut Experiment,
        rounds_max: usize,
        mistakes: &mut Vec<Mistake>,
    ) {
        let mut drafts: Vec<Draft> = Vec::new();
        let mut seen: Vec<(Compared, Span)> = Vec::new();
        let primary_first = self.compares.iter().filter(|one| one.primary);
        let secondary = self.compares.iter().filter(|one| !one.primary);
        for compare in primary_first.chain(secondary) {
            for path in &compare.paths {
                for load in &compare.loads {
                    let draft = find_or_add(&mut drafts, compare, *path, load);
                    let Some(draft) = draft else {
                        let message = "exploratory: expected a primary comparison of the same path and load, by which the number of rounds is chosen";
                        let help =
                            "leave out exploratory of one of them, or make a [[picture]] of it";
                        mistakes.push(Mistake::new(compare.span.clone(), message).help(help));
                        continue;
                    };
                    compare.add_to(draft, experiment, &mut seen, mistakes);
                    if draft.systems.len() >= SYSTEMS_MAX {
                        let (most, count) = (SYSTEMS_MAX - 1, draft.systems.len());
                        let message = format!(
                            "expected {most} systems at most that share rounds, seen {count}"
                        );
                        let help = "compare fewer, or make a [[picture]] of them";
                        mistakes.push(Mistake::new(compare.span.clone(), message).help(help));
                    }
                }
            }
        }
        if !mistakes.is_empty() {
            return;
        }
        let groups = drafts.into_iter().map(|draft| draft.finish(experiment, rounds_max));
        experiment.groups = groups.collect();
        experiment.pictures =
            self.pictures.iter().map(|picture| picture.arrange(experiment)).collect();
    }
}

/// The group that a comparison of this path and load belongs to; none for one that is secondary
/// and stands alone.
fn find_or_add<'d>(
    drafts: &'d mut Vec<Draft>,
    compare: &WantedCompare,
    path: Option<usize>,
    load: &Load,
) -> Option<&'d mut Draft> {
    let is_same = |draft: &Draft| {
        let asks = (draft.difference, draft.margin) == (compare.difference, compare.margin);
        draft.path == path && draft.load == *load && (asks || !compare.primary)
    };
    let at = match drafts.iter().position(is_same) {
        Some(at) => at,
        None if !compare.primary => return None,
        None => {
            drafts.push(Draft {
                path,
                load: *load,
                difference: compare.difference,
                margin: compare.margin,
                is_own: compare.is_own,
                systems: Vec::new(),
                measures: Vec::new(),
                columns: Vec::new(),
                comparisons: Vec::new(),
            });
            drafts.len() - 1
        }
    };
    Some(&mut drafts[at])
}

impl WantedCompare {
    /// Whether it comes to one comparison.
    fn is_single(&self) -> bool {
        [self.subjects.len(), self.paths.len(), self.loads.len(), self.measures.len()] == [1; 4]
    }

    /// Adds its comparisons of a group's path and load.
    fn add_to(
        &self,
        draft: &mut Draft,
        experiment: &Experiment,
        seen: &mut Vec<(Compared, Span)>,
        mistakes: &mut Vec<Mistake>,
    ) {
        let path = draft.path.map(|path| &experiment.paths[path]);
        let reference = &experiment.systems[self.reference];
        for (measure, _) in &self.measures {
            let asked = |subject| self.questions.iter().map(move |bound| (subject, *bound));
            for ((subject, span), bound) in self.subjects.iter().flat_map(asked) {
                let system = &experiment.systems[*subject];
                let derived = comparison_name(*measure, system, reference, path, &draft.load);
                let compared = (*subject, self.reference, draft.path, draft.load, *measure, bound);
                if let Some((_, first)) = seen.iter().find(|(other, _)| *other == compared) {
                    let message = format!("{derived} is compared already");
                    let mistake = Mistake::new(span.clone(), message).first(first);
                    mistakes.push(mistake.help("leave out one of them"));
                    continue;
                }
                seen.push((compared, span.clone()));
                let name = match &self.name {
                    Some(name) if self.is_single() => name.clone(),
                    Some(name) => format!("{name}: {derived}"),
                    None => derived,
                };
                let reference = draft.column(self.reference, *measure);
                let subject = draft.column(*subject, *measure);
                let (better, primary) = (measure.better(), self.primary);
                draft.comparisons.push(Comparison {
                    name,
                    subject,
                    reference,
                    better,
                    bound,
                    primary,
                });
            }
        }
    }
}

impl Draft {
    fn place(&mut self, system: usize) -> usize {
        let place = self.systems.iter().position(|other| *other == system);
        place.unwrap_or_else(|| {
            self.systems.push(system);
            self.systems.len() - 1
        })
    }

    fn column(&mut self, system: usize, measure: Measure) -> usize {
        if !self.measures.contains(&measure) {
            self.measures.push(measure);
        }
        let column = Column { system: self.place(system), measure };
        let at = self.columns.iter().position(|other| *other == column);
        at.unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        })
    }

    /// The group, with the reference that every round holds.
    fn finish(mut self, experiment: &Experiment, rounds_max: usize) -> Group {
        let null = self.place(experiment.null);
        for measure in self.measures.clone() {
            // It has no far end, and nothing there to tell a machine that moved.
            if measure != Measure::CpuFarPerOp {
                self.column(experiment.null, measure);
            }
        }
        let path = self.path.map(|path| &experiment.paths[path]);
        let mut name = group_name(path, &self.load);
        if self.is_own {
            let (difference, margin) = (self.difference * 100.0, self.margin * 100.0);
            name += &format!(", for {difference:.1}% and equal within {margin:.1}%");
        }
        let cell = |system: &usize| cell(experiment, *system, self.path, self.load);
        Group {
            cells: self.systems.iter().map(cell).collect(),
            null,
            plan: Plan {
                systems: self.systems.len(),
                columns: self.columns.len(),
                comparisons: self.comparisons,
                difference: self.difference,
                margin: self.margin,
                rounds_max,
                // Orders of its own, which stay when other groups come or go.
                seed: experiment.seed ^ block::random::mix(name.as_bytes()),
            },
            columns: self.columns,
            name,
        }
    }
}

impl WantedPicture {
    fn arrange(&self, experiment: &Experiment) -> Picture {
        let mut cells: Vec<Cell> = Vec::new();
        for path in &self.paths {
            for load in &self.loads {
                for system in &self.systems {
                    let cell = cell(experiment, *system, *path, *load);
                    if !cells.contains(&cell) {
                        cells.push(cell);
                    }
                }
            }
        }
        Picture { name: self.name.clone(), cells }
    }
}

/// A system's cell: over a path only if it needs one, and with what a client's file system has only if
/// it has one.
fn cell(experiment: &Experiment, system: usize, path: Option<usize>, load: Load) -> Cell {
    let means = &experiment.systems[system].means;
    let load = match means.folder() {
        Some(_) => load,
        None => Load { cache: false, client_memory: None, ..load },
    };
    Cell { system, path: path.filter(|_| means.needs_path()), load }
}
