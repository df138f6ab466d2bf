//! Carrying out a difference: steps in their order, each answered by all shards before the next; a step that fails is undone with those before it.
//!
//! What may go wrong in an undoing (a file that is gone by then) is reported beside the failure, and what is served then is what `status` says.
//! The order and its reasons: docs/decisions/0005-apply.md.

use super::Running;
use super::error::RunError;
use super::shape;
use super::unmade::unmade_last;
use crate::config::model::{Export, HiArgs};
use crate::config::plan::{Plan, Refused, plan};
use crate::config::step::Step;
use shard::Order;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// A line for each step, as `check` shows it.
    pub(crate) steps: Vec<String>,
    /// What deserves to be told beside.
    pub(crate) warnings: Vec<String>,
}

/// Why nothing, or less than everything, was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// It takes a restart or would lose data; nothing was done.
    #[error("{}", .0.iter().map(Refused::to_string).collect::<Vec<_>>().join("\n"))]
    Refused(Vec<Refused>),
    /// What may be overwritten is nothing that could be; nothing was done.
    #[error("{}", .0.line())]
    Overwrite(RunError),
    /// A step failed; those before it were undone.
    #[error("{step}: {}{}", why.line(), undone(not_undone))]
    Failed {
        /// The step.
        step: String,
        /// Why.
        why: RunError,
        /// What could not be undone, and why.
        not_undone: Vec<String>,
    },
}

fn undone(not_undone: &[String]) -> String {
    match not_undone {
        [] => {
            "; the steps before it were undone, and what was served is served as before".to_owned()
        }
        left => format!(
            "; this could not be undone, plateway status shows what is served now:\n{}",
            left.join("\n")
        ),
    }
}

impl Running {
    /// The steps from what is served to `to`.
    pub(crate) fn difference(&self, to: &HiArgs) -> Result<Plan, ApplyError> {
        plan(&self.args, to).map_err(ApplyError::Refused)
    }

    /// Brings the server to `to`, and volumes to sizes that their disks were given from outside. `overwrite` names volumes whose disks may be
    /// labelled whatever they hold.
    pub(crate) fn apply(
        &mut self,
        to: &HiArgs,
        overwrite: &[String],
    ) -> Result<Applied, ApplyError> {
        super::check_overwrite(to, overwrite).map_err(ApplyError::Overwrite)?;
        self.overwrite = overwrite.to_vec();
        let applied = self.bring_to(to);
        self.overwrite.clear();
        self.grown.clear();
        let overwritten = std::mem::take(&mut self.overwritten);
        applied.map(|mut applied| {
            applied.warnings.splice(..0, overwritten);
            applied
        })
    }

    fn bring_to(&mut self, to: &HiArgs) -> Result<Applied, ApplyError> {
        let plan = self.difference(to)?;
        let mut applied = Applied::default();
        let doomed = doomed(&plan);
        let steps = unmade_last(plan.steps);
        for (at, step) in steps.iter().enumerate() {
            let done = self.check_unmade(step, to).and_then(|()| self.carry_out(step, &doomed));
            match done {
                Ok(warnings) => {
                    applied.steps.push(step.to_string());
                    applied.warnings.extend(warnings);
                }
                Err(why) => {
                    let not_undone = self.undo(&steps[..at]);
                    return Err(ApplyError::Failed { step: step.to_string(), why, not_undone });
                }
            }
        }
        self.in_order_of(to);
        let (resized, warnings) = self.follow_disks();
        applied.steps.extend(resized);
        applied.warnings.extend(warnings);
        Ok(applied)
    }

    fn undo(&mut self, done: &[Step]) -> Vec<String> {
        let mut not_undone = Vec::new();
        for step in done.iter().rev() {
            let inverse = step.inverse();
            if let Err(error) = self.carry_out(&inverse, &[]) {
                not_undone.push(format!("{inverse}: {}", error.line()));
            }
        }
        // Volumes whose removal never came are held; what they serve goes on.
        let held = self.volumes.iter().filter(|(_, volume)| volume.held);
        for name in held.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Err(error) = self.revive_volume(&name) {
                not_undone.push(format!("volume {name}: {}", error.line()));
            }
        }
        not_undone
    }

    /// Carries out one step. `doomed` are volumes that a later step removes: they are held before hosts hear that their namespace is gone.
    /// Returns what deserves to be told.
    pub(super) fn carry_out(
        &mut self,
        step: &Step,
        doomed: &[String],
    ) -> Result<Option<String>, RunError> {
        match step {
            Step::AddDisk(disk) => self.add_disk(disk)?,
            Step::AddVolume(volume) => self.add_volume(volume)?,
            Step::AddListener(listener) => self.add_listener(listener)?,
            Step::AddExport(export) => self.add_export(export)?,
            Step::RemoveExport(export) => self.remove_export(export, doomed)?,
            Step::RemoveListener(listener) => self.remove_listener(listener)?,
            Step::RemoveVolume(volume) => self.remove_volume(&volume.name)?,
            Step::RemoveDisk(disk) => return self.remove_disk(&disk.name),
            Step::ResizeDisk { name, from, to } => self.resize_disk(name, from, to)?,
            Step::ResizeVolume { name, to_bytes, .. } => self.resize_volume(name, *to_bytes)?,
            Step::ChangeListener { to, .. } => self.change_listener(to)?,
            Step::AddLink(link) => return self.add_link(link),
            Step::RemoveLink(link) => self.remove_link(&link.name),
            Step::AddAoeExport(export) => self.add_aoe_export(export)?,
            Step::RemoveAoeExport(export) => self.remove_aoe_export(export)?,
            Step::ChangeAoeExport { to, .. } => self.change_aoe_export(to)?,
            Step::ChangeHosts { export, to } => {
                for other in &mut self.args.exports {
                    if other.subsystem == export.subsystem {
                        other.hosts = to.clone();
                    }
                }
                self.show(export)?;
            }
        }
        Ok(None)
    }

    fn add_export(&mut self, export: &Export) -> Result<(), RunError> {
        self.args.exports.push(export.clone());
        let shown = match self.volume(&export.volume)?.held {
            // Its removal was begun and is being undone.
            true => self.revive_volume(&export.volume),
            false => self.show(export),
        };
        if shown.is_err() {
            self.args.exports.retain(|other| other != export);
        }
        shown
    }

    fn remove_export(&mut self, export: &Export, doomed: &[String]) -> Result<(), RunError> {
        let last = self.exports_of(&export.volume).len() == 1;
        if last && doomed.contains(&export.volume) {
            self.hold_volume(&export.volume)?;
        }
        let same =
            |other: &Export| (&other.subsystem, other.nsid) == (&export.subsystem, export.nsid);
        self.args.exports.retain(|other| !same(other));
        self.show(export)
    }

    /// Shows hosts the subsystem of `export` as it is now, or nothing if nothing is left of it.
    fn show(&self, export: &Export) -> Result<(), RunError> {
        let mine = self.args.exports.iter().filter(|other| other.subsystem == export.subsystem);
        let mut namespaces = Vec::new();
        let mut any = None;
        for other in mine {
            let volume = self.volume(&other.volume)?;
            let parts = self.parts(&volume.config)?;
            namespaces.push(shape::namespace(
                other,
                &volume.config,
                volume.id,
                volume.uuid,
                &volume.layout,
                &parts,
            )?);
            any = Some(other);
        }
        let what = format!("show subsystem {}", export.subsystem);
        match any {
            Some(other) => {
                let subsystem = shape::subsystem(other, &namespaces);
                self.order(&what, || Order::SetSubsystem(Box::new(subsystem.clone())))
            }
            None => self.order(&what, || Order::RemoveSubsystem(export.subsystem.to_wire())),
        }
    }

    /// Shows hosts every subsystem that a volume is in, and every address that it has.
    pub(super) fn show_exports_of(&self, volume: &str) -> Result<(), RunError> {
        self.exports_of(volume).iter().try_for_each(|export| self.show(export))?;
        self.renew_aoe_exports_of(volume)
    }

    /// Once everything is done, the order of things is that of the configuration.
    fn in_order_of(&mut self, to: &HiArgs) {
        self.args = to.clone();
    }
}

/// The volumes that a plan removes.
fn doomed(plan: &Plan) -> Vec<String> {
    let removed = plan.steps.iter().filter_map(|step| match step {
        Step::RemoveVolume(volume) => Some(volume.name.clone()),
        _ => None,
    });
    removed.collect()
}
