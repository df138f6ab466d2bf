//! Which trials belong together: those of one path and load, by system, of the rounds that count.
//!
//! A cell's name says its system, its path and its load ("nvme over lan, 4KiB randread, depth 32"), a
//! group's the path and load ("over lan, 4KiB randread, depth 32"). Groups that only ask for another
//! difference share their cells, so they are one scene.

use std::collections::{BTreeMap, BTreeSet};

use lab::plan::Measure;
use lab::statistics::{Round, median};

use crate::kept::{Kept, Trial};

/// What ran over one path under one load.
#[derive(Debug)]
pub(crate) struct Scene<'k> {
    /// "over lan, 4KiB randread, depth 32"
    pub(crate) title: String,
    pub(crate) runs: Vec<Runs<'k>>,
}

/// The trials of one system.
#[derive(Debug)]
pub(crate) struct Runs<'k> {
    pub(crate) system: &'k str,
    pub(crate) cell: String,
    /// Whether it does nothing, and is there to tell a machine that moved.
    pub(crate) is_null: bool,
    pub(crate) trials: Vec<&'k Trial>,
}

impl Runs<'_> {
    /// The values of a measure, trial by trial.
    pub(crate) fn values(&self, measure: Measure) -> Vec<f64> {
        self.trials.iter().filter_map(|trial| trial.measures.get(&measure).copied()).collect()
    }

    pub(crate) fn median(&self, value: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.trials.iter().filter_map(|trial| value(trial)).collect();
        median(&values)
    }
}

/// The scenes of all groups, in their order.
pub(crate) fn scenes(kept: &Kept) -> Vec<Scene<'_>> {
    let mut trials = Counted::of(kept);
    let mut scenes: Vec<Scene<'_>> = Vec::new();
    for group in &kept.results.groups {
        let title = group.name.split(", for ").next().unwrap_or_default();
        let at = scenes.iter().position(|scene| scene.title == title).unwrap_or_else(|| {
            scenes.push(Scene { title: title.to_owned(), runs: Vec::new() });
            scenes.len() - 1
        });
        for (place, system) in group.systems.iter().enumerate() {
            if scenes[at].runs.iter().all(|known| known.system != system) {
                scenes[at].runs.push(trials.runs(system, title, place == group.null));
            }
        }
    }
    scenes
}

/// What tells rounds of one load apart that are no pilots: the number, and whether it is a repeat.
type Key = (usize, bool);

/// Trials that are no pilots and did not fail, by cell.
struct Counted<'k> {
    cells: BTreeMap<&'k str, Vec<&'k Trial>>,
    /// Rounds in which a trial did not settle, with their load.
    unsteady: BTreeSet<(Key, &'k str)>,
}

impl<'k> Counted<'k> {
    fn of(kept: &'k Kept) -> Counted<'k> {
        let mut counted = Counted { cells: BTreeMap::new(), unsteady: BTreeSet::new() };
        for trial in &kept.trials {
            let Some(round) = trial.round.as_ref().filter(|round| !round.is_pilot) else {
                continue;
            };
            if trial.failed.is_none() {
                counted.cells.entry(&trial.cell).or_default().push(trial);
            }
            if !trial.is_steady {
                counted.unsteady.insert((key(round), load_of(&trial.cell)));
            }
        }
        counted
    }

    /// What a system did in a scene: the rounds in which all trials settled, or where none did, all.
    fn runs(&mut self, system: &'k str, title: &str, is_null: bool) -> Runs<'k> {
        let has_path = title.starts_with("over ");
        let by_path = format!("{system}{}{title}", if has_path { " " } else { ", " });
        // A disk that needs no path has none in its cell's name.
        let bare = format!("{system}, {}", if has_path { load_of(title) } else { title });
        let cell = if self.cells.contains_key(by_path.as_str()) { by_path } else { bare };
        let all = self.cells.get(cell.as_str()).cloned().unwrap_or_default();
        let is_settled = |trial: &&Trial| {
            let round = trial.round.as_ref().map(|round| (key(round), load_of(&trial.cell)));
            round.is_some_and(|round| !self.unsteady.contains(&round))
        };
        let settled: Vec<&Trial> = all.iter().copied().filter(is_settled).collect();
        let trials = if settled.is_empty() { all } else { settled };
        Runs { system, cell, is_null, trials }
    }
}

fn key(round: &Round) -> Key {
    (round.number, round.is_repeat)
}

/// "4KiB randread, depth 32", of a cell or a group over a path.
fn load_of(name: &str) -> &str {
    name.split_once(", ").map_or(name, |(_, load)| load)
}

/// The systems of the whole file in the order in which colours are given, and those that are
/// `null` of their groups.
#[derive(Debug)]
pub(crate) struct Colours<'k> {
    systems: Vec<&'k str>,
    null: Vec<&'k str>,
}

impl<'k> Colours<'k> {
    pub(crate) fn of(kept: &'k Kept) -> Colours<'k> {
        let mut colours = Colours { systems: Vec::new(), null: Vec::new() };
        for group in &kept.results.groups {
            for (place, system) in group.systems.iter().enumerate() {
                let list =
                    if place == group.null { &mut colours.null } else { &mut colours.systems };
                if !list.contains(&system.as_str()) {
                    list.push(system);
                }
            }
        }
        for cell in &kept.results.pictures {
            let system = system_of(&cell.cell);
            if !colours.systems.contains(&system) && !colours.null.contains(&system) {
                colours.systems.push(system);
            }
        }
        colours
    }

    /// What comes behind `f` (to fill) and `l` (a line) in classes.
    pub(crate) fn suffix(&self, system: &str) -> &'static str {
        const SUFFIXES: [&str; 7] = ["0", "1", "2", "3", "4", "5", "6"];
        match self.systems.iter().position(|other| *other == system) {
            Some(place) => SUFFIXES[place % SUFFIXES.len()],
            None => "n",
        }
    }

    /// More of the class of a line: from the eighth system on colours come again, with dashes.
    pub(crate) fn dash(&self, system: &str) -> &'static str {
        let place = self.systems.iter().position(|other| *other == system);
        if place.is_some_and(|place| place >= 7) { " dash" } else { "" }
    }
}

/// The system of a cell: no name of one has a blank or a comma.
pub(crate) fn system_of(cell: &str) -> &str {
    cell.split([' ', ',']).next().unwrap_or_default()
}
