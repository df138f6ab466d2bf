//! Which trials belong together: those of one path and load, by system, of the rounds that count.
//!
//! A cell's name says its system, its path and its load ("nvme over lan, 4KiB randread, depth 32"), a
//! group's the path and load ("over lan, 4KiB randread, depth 32"). Groups that only ask for another
//! difference share their cells, so they are one scene.

use std::collections::BTreeMap;

use lab::kept::{Kept, Trial};
use lab::plan::Measure;
use lab::statistics::median;

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
    let counted = kept.counted();
    let mut scenes: Vec<Scene<'_>> = Vec::new();
    for group in &kept.results.groups {
        let title = group.name.split(", for ").next().unwrap_or_default();
        let at = scenes.iter().position(|scene| scene.title == title).unwrap_or_else(|| {
            scenes.push(Scene { title: title.to_owned(), runs: Vec::new() });
            scenes.len() - 1
        });
        for (place, system) in group.systems.iter().enumerate() {
            if scenes[at].runs.iter().all(|known| known.system != system) {
                scenes[at].runs.push(runs(&counted, system, title, place == group.null));
            }
        }
    }
    scenes
}

/// What a system did in a scene.
fn runs<'k>(
    counted: &BTreeMap<&'k str, Vec<&'k Trial>>,
    system: &'k str,
    title: &str,
    is_null: bool,
) -> Runs<'k> {
    let has_path = title.starts_with("over ");
    let by_path = format!("{system}{}{title}", if has_path { " " } else { ", " });
    // A disk that needs no path has none in its cell's name.
    let bare = format!("{system}, {}", if has_path { load_of(title) } else { title });
    let cell = if counted.contains_key(by_path.as_str()) { by_path } else { bare };
    let trials = counted.get(cell.as_str()).cloned().unwrap_or_default();
    Runs { system, cell, is_null, trials }
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
