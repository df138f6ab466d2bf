//! What a change takes away from those who use it, and what a person has to say to have it done.
//!
//! An export that goes, is made anew, or is shut to a host takes it from the hosts that are there;
//! a listener that goes closes its connections. AoE has no sessions: whoever was ever answered may
//! be there still. Who is there is asked of the shards when the change is judged, so that a host
//! that comes between `check` and `apply` is seen. Nothing is changed here.

use shard::Report;

use super::Running;
use super::error::RunError;
use crate::config::model::HiArgs;
use crate::config::plan::Plan;
use crate::config::thing::{Step, Thing};
use crate::protocols::ExportConfig;

/// What a person said beside a configuration that is to be applied; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consent {
    /// Volumes whose disks may be labelled whatever they hold.
    pub(crate) overwrite: Vec<String>,
    /// What is in use may be taken away.
    pub(crate) yes: bool,
    /// Nothing may be exported in the end.
    pub(crate) allow_empty: bool,
}

/// What a change takes away.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// From whom, a line for each thing.
    pub(crate) in_use: Vec<String>,
    /// Whether the last export goes.
    pub(crate) last_export: bool,
}

impl Taken {
    /// Leaves only what nobody agreed to.
    pub(super) fn excuse(&mut self, consent: &Consent) {
        if consent.yes {
            self.in_use.clear();
        }
        self.last_export &= !consent.allow_empty;
    }

    /// What is still to be said, as `apply` takes it.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let yes = (!self.in_use.is_empty()).then_some("--yes");
        yes.into_iter().chain(self.last_export.then_some("--allow-empty")).collect()
    }

    /// What it is, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let last = self.last_export.then(|| "no export is left".to_owned());
        self.in_use.iter().cloned().chain(last).collect()
    }
}

impl Running {
    /// What a plan takes away on its way to `to`.
    pub(crate) fn taken(&self, plan: &Plan, to: &HiArgs) -> Result<Taken, RunError> {
        let last_export = to.exports.is_empty() && !self.args().exports.is_empty();
        let takes = |step: &&Step| {
            matches!(
                step,
                Step::Remove(Thing::Export(_) | Thing::Listener(_))
                    | Step::Change { from: Thing::Export(_), .. }
            )
        };
        let steps: Vec<&Step> = plan.steps.iter().filter(takes).collect();
        if steps.is_empty() {
            return Ok(Taken { in_use: Vec::new(), last_export });
        }
        let reports = self.shards.reports()?;
        let in_use = steps.iter().filter_map(|step| self.taken_by(step, &reports)).collect();
        Ok(Taken { in_use, last_export })
    }

    fn taken_by(&self, step: &Step, reports: &[Report]) -> Option<String> {
        let users = match step {
            Step::Remove(Thing::Export(export)) => self.users_of(export, None, reports),
            Step::Change { from: Thing::Export(from), to: Thing::Export(to) } => {
                self.users_of(from, Some(to), reports)
            }
            Step::Remove(Thing::Listener(_)) => {
                let ids = &self.listeners.get(&step.thing().title())?.ids;
                let all = reports.iter().flat_map(|report| &report.connections);
                let mine = all.filter(|one| ids.contains(&one.listener));
                mine.map(|one| format!("connection of {}", one.peer)).collect()
            }
            _ => Vec::new(),
        };
        (!users.is_empty()).then(|| format!("{}: {}", step.thing().title(), users.join(", ")))
    }

    /// Who uses an export and would not any more, with `to` in its place.
    fn users_of(
        &self,
        export: &ExportConfig,
        to: Option<&ExportConfig>,
        reports: &[Report],
    ) -> Vec<String> {
        let Some(open) = self.exports.get(&export.title()) else { return Vec::new() };
        let mut users = export.users(open.number, to, reports);
        let held = self.volumes.get(export.volume()).filter(|_| to.is_none());
        let held = held.and_then(|volume| self.reservation_of(volume.id, reports));
        if let Some(held) = held.filter(|held| !held.holders.is_empty()) {
            users.push(format!("reserved by {}", held.holders.join(" ")));
        }
        users
    }
}
