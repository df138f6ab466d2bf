//! States of groups of listeners: loaded from the state directory before anybody listens, set by a
//! person, shown by `status`.

use std::collections::BTreeSet;

use reservation::{PathGroup, PathState, Paths};
use shard::{Order, Report, StoreKey};

use super::error::RunError;
use super::state::StateDirectory;
use super::store::Place;
use super::{OpenListener, Running};
use crate::config::listener::ListenerConfig;
use crate::config::thing::{Configured as _, Step, Thing};

/// The states that are stored. Changes nothing.
pub(crate) fn stored(state: &StateDirectory) -> Result<Paths, RunError> {
    Place::of_paths(state.clone()).load()
}

/// What is to be known of a listener by which hosts reach no blocks.
pub(crate) fn closed(listener: &ListenerConfig, state: PathState) -> Option<String> {
    let (title, group) = (listener.title(), listener.group);
    let words = format!(
        "{title}: group {group} is {state}: hosts read and write nothing there until: plateway group set {group} optimized"
    );
    (!state.serves()).then_some(words)
}

impl Running {
    /// Brings the shards to the states that were stored. A state that is not understood ends the
    /// start: forgotten, it would open a path that somebody has closed.
    pub(super) fn restore_paths(&self) -> Result<(), RunError> {
        let stored = stored(&self.state)?;
        self.store().put(StoreKey::Paths, Place::of_paths(self.state.clone()))?;
        self.order("restore the states of groups", || Order::RestorePaths(stored.clone()))
    }

    /// What is to be known of the listeners that these steps add and that are of a closed group.
    pub(super) fn closed_listeners(&self, steps: &[Step]) -> Vec<String> {
        let added = |step: &Step| match step {
            Step::Add(Thing::Listener(listener)) => Some(listener.clone()),
            _ => None,
        };
        let added: Vec<ListenerConfig> = steps.iter().filter_map(added).collect();
        if added.is_empty() {
            return Vec::new();
        }
        match self.shards.reports() {
            Ok(reports) => {
                added.iter().filter_map(|one| closed(one, state_of(one, &reports))).collect()
            }
            Err(error) => vec![error.line()],
        }
    }

    /// Sets the state of a group of listeners. Returns what was done, once nothing is below any more
    /// that came by a path which does not serve now.
    pub(crate) fn set_group(&mut self, number: u16, state: PathState) -> Result<String, RunError> {
        let reports = self.shards.reports()?;
        let paths = reports.first().map(|report| &report.paths);
        let known = |group: &PathGroup| {
            let is_stored = paths.is_some_and(|paths| paths.get(*group).changes > 0);
            is_stored || self.listeners.values().any(|one| one.config.group == *group)
        };
        let Some(group) = PathGroup::new(number).filter(known) else {
            let mut groups: Vec<u16> =
                self.listeners.values().map(|one| one.config.group.number()).collect();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<String> = groups.iter().map(u16::to_string).collect();
            let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
            return Err(RunError::new(format!(
                "group {number}: no listener is of this group; there are {groups}"
            ))
            .help("a listener is of the group that its key `group` says, else of group 1"));
        };
        let of_group = || self.listeners.values().filter(|one| one.config.group == group);
        let listeners: Vec<String> = of_group().map(|one| one.config.title()).collect();
        let is_mine = |id| of_group().any(|one: &OpenListener| one.ids.contains(&id));
        let all = reports.iter().flat_map(|report| &report.connections);
        let connections = all.filter(|one| is_mine(one.listener)).count();
        self.set_paths(group, state)?;
        let listeners =
            if listeners.is_empty() { "no listener".to_owned() } else { listeners.join(", ") };
        Ok(match paths.map(|paths| paths.state(group)) == Some(state) {
            true => format!("group {group} is {state} already: nothing was done"),
            false => {
                format!("group {group} is {state} now: {listeners}, with {connections} connections")
            }
        })
    }

    fn set_paths(&self, group: PathGroup, state: PathState) -> Result<(), RunError> {
        let what = format!("set group {group}");
        let set = self.order(&what, || Order::SetPaths(vec![(group, state)]));
        set.map_err(|error| {
            let reports = self.shards.reports().unwrap_or_default();
            let all = reports.iter().map(|report| report.paths.state(group));
            let in_force: BTreeSet<PathState> = all.collect();
            let help = match in_force.contains(&state) {
                true => "what came before is awaited as long as its disk does not answer: `plateway status` shows the disks",
                false => "the log of the server says what was in the way; once that is mended, set it again",
            };
            error.and(&how_it_stands(&in_force, kept(&self.state, group))).help(help)
        })
    }
}

/// The state of a group that is stored, or why that is not known.
fn kept(state: &StateDirectory, group: PathGroup) -> Result<PathState, String> {
    stored(state).map(|paths| paths.state(group)).map_err(|error| error.to_string())
}

/// What came of a change that was not answered well: the states that shards go by now, and the one
/// that is stored.
fn how_it_stands(in_force: &BTreeSet<PathState>, kept: Result<PathState, String>) -> String {
    let in_force: Vec<&str> = in_force.iter().map(|state| state.name()).collect();
    let now = match in_force.is_empty() {
        true => "which state is in force is not known".to_owned(),
        false => format!("in force is {}", in_force.join(" on some shards and on others ")),
    };
    let later = match kept {
        Ok(state) => format!("a restart finds {state}"),
        Err(why) => format!("what a restart finds is not known: {why}"),
    };
    format!("; {now}, {later}")
}

/// In which state a listener's group is.
pub(super) fn state_of(listener: &ListenerConfig, reports: &[Report]) -> PathState {
    // Every shard has a copy.
    let paths = reports.first().map(|report| &report.paths);
    paths.map_or(PathState::Optimized, |paths| paths.state(listener.group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_and_what_is_kept_are_told_apart() {
        let said =
            |in_force: &[PathState], kept| how_it_stands(&in_force.iter().copied().collect(), kept);
        let (open, shut) = (PathState::Optimized, PathState::Standby);
        for (words, expected) in [
            (said(&[open], Ok(open)), "; in force is optimized, a restart finds optimized"),
            (said(&[shut, shut], Ok(open)), "; in force is standby, a restart finds optimized"),
            (
                said(&[shut, open], Ok(shut)),
                "; in force is optimized on some shards and on others standby, a restart finds standby",
            ),
            (
                said(&[], Err("gone".to_owned())),
                "; which state is in force is not known, what a restart finds is not known: gone",
            ),
        ] {
            assert_eq!(words, expected);
        }
    }
}
