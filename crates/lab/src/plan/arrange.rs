//! From what tables want to groups and pictures.
//!
//! Comparisons of one path, load, difference and margin make a group, in whose rounds each system
//! runs once, whatever it is compared in. A group of which each cell is one of another group, too, has its
//! rounds. Exploratory comparisons join a group that has a primary one.
//! Every group holds `null`. Bounds are on what a table may multiply to; the same comparison twice
//! is refused, since it would be corrected for twice.

use toml::Spanned;

use super::against::Reference;
use super::axes::COMBINATIONS_MAX;
use super::low::LowPlan;
use super::measure::Measure;
use super::model::{Cell, Column, Experiment, Group, Load, Path, Picture};
use super::names::{comparison_name, group_name, member_name};
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
    pub(super) reference: Reference,
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
    members: Vec<Member>,
    measures: Vec<Measure>,
    columns: Vec<Column>,
    comparisons: Vec<Comparison>,
}

/// A system of a round, by its place in the plan, with the path and the load of its own side of a pair.
#[derive(Clone, Copy, PartialEq)]
struct Member {
    system: usize,
    path: Option<usize>,
    load: Load,
}

/// What a comparison is of: subject and reference with their measures, and what is asked.
type Compared = (Member, Member, [Measure; 2], Option<Bound>);

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
                    if draft.members.len() >= SYSTEMS_MAX {
                        let (most, count) = (SYSTEMS_MAX - 1, draft.members.len());
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
        let groups = shared(drafts).into_iter();
        let groups = groups.map(|draft| draft.finish(experiment, rounds_max));
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
                members: Vec::new(),
                measures: Vec::new(),
                columns: Vec::new(),
                comparisons: Vec::new(),
            });
            drafts.len() - 1
        }
    };
    Some(&mut drafts[at])
}

/// Groups that have their rounds to themselves: what is all in the rounds of another one is compared in these, so
/// that no cell runs more often than it must.
fn shared(mut drafts: Vec<Draft>) -> Vec<Draft> {
    let is_in = |one: &Draft, other: &Draft| {
        let asks = |draft: &Draft| (draft.difference, draft.margin);
        asks(one) == asks(other) && one.members.iter().all(|member| other.members.contains(member))
    };
    let mut at = 0;
    while at < drafts.len() {
        let mut others = (0..drafts.len()).filter(|other| *other != at);
        match others.find(|other| is_in(&drafts[at], &drafts[*other])) {
            Some(other) => {
                let small = drafts.remove(at);
                let other = if other > at { other - 1 } else { other };
                drafts[other].take_in(small);
            }
            None => at += 1,
        }
    }
    drafts
}

impl WantedCompare {
    /// Whether it comes to one comparison.
    fn is_single(&self) -> bool {
        [self.subjects.len(), self.paths.len(), self.loads.len(), self.measures.len()] == [1; 4]
    }

    /// What a subject is held against.
    fn reference_of(&self, subject: &Member) -> Member {
        match &self.reference {
            Reference::System(system) => Member { system: *system, ..*subject },
            Reference::Itself(changed) => {
                let (path, load) = changed.apply(subject.path, subject.load);
                Member { system: subject.system, path, load }
            }
        }
    }

    /// By what the other side is judged.
    fn other_measure(&self, measure: Measure) -> Measure {
        match &self.reference {
            Reference::Itself(changed) => changed.measure.as_ref().map_or(measure, |(of, _)| *of),
            Reference::System(_) => measure,
        }
    }

    /// Adds its comparisons of a group's path and load.
    fn add_to(
        &self,
        draft: &mut Draft,
        experiment: &Experiment,
        seen: &mut Vec<(Compared, Span)>,
        mistakes: &mut Vec<Mistake>,
    ) {
        for (measure, _) in &self.measures {
            let asked = |subject| self.questions.iter().map(move |bound| (subject, *bound));
            for ((subject, span), bound) in self.subjects.iter().flat_map(asked) {
                let (path, load) = (draft.path, draft.load);
                let subject = Member { system: *subject, path, load };
                let reference = self.reference_of(&subject);
                let other = self.other_measure(*measure);
                if subject.is_as(&reference, experiment) && other == *measure {
                    let name = experiment.cell_name(&subject.cell(experiment));
                    let message = format!("against: expected what is not so already, seen {name}");
                    mistakes
                        .push(Mistake::new(span.clone(), message).help("change something else"));
                    continue;
                }
                let by_other = Some(other).filter(|other| other != measure);
                let named = [(&subject, None), (&reference, by_other)];
                let named = named.map(|(one, by)| draft.name(experiment, one, by));
                let derived = comparison_name(*measure, &named, draft.over(experiment), &load);
                let compared = (subject, reference, [*measure, other], bound);
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
                let reference = draft.column(reference, other);
                let subject = draft.column(subject, *measure);
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

impl Member {
    fn cell(&self, experiment: &Experiment) -> Cell {
        cell(experiment, self.system, self.path, self.load)
    }

    /// Whether a trial of it is one of another, in whatever words its load says so.
    fn is_as(&self, other: &Member, experiment: &Experiment) -> bool {
        let cell = |member: &Member| {
            let mut cell = member.cell(experiment);
            let system = &experiment.systems[cell.system];
            cell.load.disks = Some(system.disks_under(&cell.load));
            cell
        };
        cell(self) == cell(other)
    }
}

impl Draft {
    fn over<'e>(&self, experiment: &'e Experiment) -> Option<&'e Path> {
        self.path.map(|path| &experiment.paths[path])
    }

    /// What results call a member: its system, and what of it is not as the group says, nor by what it is
    /// judged as the comparison says.
    fn name(&self, experiment: &Experiment, member: &Member, by: Option<Measure>) -> String {
        let path = member.path.filter(|_| member.path != self.path);
        let path = path.map(|path| &experiment.paths[path]);
        member_name(&experiment.systems[member.system], path, &self.load, &member.load, by)
    }

    fn place(&mut self, member: Member) -> usize {
        let place = self.members.iter().position(|other| *other == member);
        place.unwrap_or_else(|| {
            self.members.push(member);
            self.members.len() - 1
        })
    }

    fn column(&mut self, member: Member, measure: Measure) -> usize {
        if !self.measures.contains(&measure) {
            self.measures.push(measure);
        }
        let column = Column { system: self.place(member), measure };
        let at = self.columns.iter().position(|other| *other == column);
        at.unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        })
    }

    /// Has the comparisons of a group made in its own rounds.
    fn take_in(&mut self, small: Draft) {
        let Draft { members, columns, comparisons, .. } = small;
        let mut column = |at: usize| {
            let Column { system, measure } = columns[at];
            self.column(members[system], measure)
        };
        let moved = comparisons.into_iter().map(|one| {
            let (subject, reference) = (column(one.subject), column(one.reference));
            Comparison { subject, reference, ..one }
        });
        let moved: Vec<Comparison> = moved.collect();
        self.comparisons.extend(moved);
    }

    /// The group, with the reference that every round holds.
    fn finish(mut self, experiment: &Experiment, rounds_max: usize) -> Group {
        let does_nothing = Member { system: experiment.null, path: self.path, load: self.load };
        let null = self.place(does_nothing);
        for measure in self.measures.clone() {
            // It has no far end, and nothing there to tell a machine that moved, and it does nothing of what only
            // a program does.
            let is_its = self.load.files.is_none_or(|files| files.has_null(measure));
            if !measure.needs_far_end() && is_its {
                self.column(does_nothing, measure);
            }
        }
        let mut name = group_name(self.over(experiment), &self.load);
        if self.is_own {
            let (difference, margin) = (self.difference * 100.0, self.margin * 100.0);
            name += &format!(", for {difference:.1}% and equal within {margin:.1}%");
        }
        Group {
            cells: self.members.iter().map(|member| member.cell(experiment)).collect(),
            names: self.members.iter().map(|member| self.name(experiment, member, None)).collect(),
            null,
            plan: Plan {
                systems: self.members.len(),
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

/// A system's cell: over a path only if it needs one, with what a client's file system has only if
/// it has one, and of so many disks only if it may be several.
fn cell(experiment: &Experiment, system: usize, path: Option<usize>, load: Load) -> Cell {
    let of = &experiment.systems[system];
    let load = match of.file_client() {
        Some(_) => load,
        None => Load { cache: false, client_memory: None, files: None, ..load },
    };
    let load = match of.may_be_several() {
        true => load,
        false => Load { disks: None, ..load },
    };
    Cell { system, path: path.filter(|_| of.means.needs_path()), load }
}
