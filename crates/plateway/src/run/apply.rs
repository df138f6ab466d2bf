//! Carrying out a difference: steps in their order, each answered by all shards before the next; a
//! step that fails is undone with those before it.
//!
//! What may go wrong in an undoing (a file that is gone by then) is reported beside the failure,
//! and what is served then is what `status` says. The order and its reasons:
//! docs/decisions/0005-apply.md.

use super::Running;
use super::error::RunError;
use super::in_use::{Consent, Taken};
use super::unmade::unmade_last;
use super::{routers, secrets};
use crate::config::model::HiArgs;
use crate::config::plan::{Plan, Refused, plan};
use crate::config::thing::{Step, Thing};
use crate::control::StepLine;
use crate::protocols::Secrets;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// As `check` shows them.
    pub(crate) steps: Vec<StepLine>,
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
    /// It takes away what is in use, or the last export, and nobody said that it may; nothing was
    /// done.
    #[error("it takes away what is in use; nothing was done:\n{}", .0.lines().join("\n"))]
    Taken(Taken),
    /// A secret cannot be used; nothing was done.
    #[error("{}", .0.line())]
    Secret(RunError),
    /// Labels would lead in a circle; nothing was done.
    #[error("{}", .0.line())]
    Circle(RunError),
    /// A label would be for something else too early; nothing was done.
    #[error("{}", .0.line())]
    Label(RunError),
    /// Who uses what it takes away could not be asked; nothing was done.
    #[error("{}", .0.line())]
    NotAsked(RunError),
    /// A step failed; those before it were undone.
    #[error("{step}: {}{}", why.line(), undone(not_undone))]
    Failed {
        step: String,
        why: Box<RunError>,
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
    /// The steps from what is served to `to`, to secrets that are others now, and to the sizes that
    /// disks were given from outside.
    pub(crate) fn difference(&self, to: &HiArgs) -> Result<Plan, ApplyError> {
        // What is wrong with a secret is told of its place by whoever looks, and when it is applied.
        self.difference_with(to, secrets::read(to).ok().as_ref())
    }

    fn difference_with(&self, to: &HiArgs, secrets: Option<&Secrets>) -> Result<Plan, ApplyError> {
        let mut plan = plan(&self.args(), to).map_err(ApplyError::Refused)?;
        self.check_labels(&to.routing).map_err(ApplyError::Label)?;
        let touched = |title: &str| plan.steps.iter().any(|step| step.thing().title() == title);
        let renewed = secrets.map(|secrets| self.renewals(to, secrets, touched));
        let resized = self.resized_disks(touched);
        plan.steps.extend(renewed.into_iter().flatten().chain(resized));
        Ok(plan)
    }

    /// Brings the server to `to`, and volumes to sizes that their disks were given from outside.
    pub(crate) fn apply(&mut self, to: &HiArgs, consent: &Consent) -> Result<Applied, ApplyError> {
        super::check_overwrite(to, &consent.overwrite).map_err(ApplyError::Overwrite)?;
        self.overwrite.clone_from(&consent.overwrite);
        let applied = self.bring_to(to, consent);
        self.overwrite.clear();
        self.grown.clear();
        let overwritten = std::mem::take(&mut self.overwritten);
        applied.map(|mut applied| {
            applied.warnings.splice(..0, overwritten);
            applied
        })
    }

    fn bring_to(&mut self, to: &HiArgs, consent: &Consent) -> Result<Applied, ApplyError> {
        let secrets = secrets::read(to).map_err(ApplyError::Secret)?;
        routers::check_circles(to).map_err(ApplyError::Circle)?;
        let plan = self.difference_with(to, Some(&secrets))?;
        if !(consent.yes && consent.allow_empty) {
            let mut taken = self.taken(&plan, to).map_err(ApplyError::NotAsked)?;
            taken.excuse(consent);
            if !taken.flags().is_empty() {
                return Err(ApplyError::Taken(taken));
            }
        }
        self.ask_for_next_hops(to);
        // What goes may be shown once more, as it was.
        let during = secrets.beside(&self.secrets);
        let before = std::mem::replace(&mut self.secrets, during);
        let mut applied = Applied::default();
        let going = going(&plan);
        let failed = self.failed.titles();
        let steps = unmade_last(plan.steps);
        for (at, step) in steps.iter().enumerate() {
            match self.check_unmade(step, to).and_then(|()| self.carry_out(step, &going)) {
                Ok(warnings) => {
                    applied.steps.push(step.into());
                    applied.warnings.extend(warnings);
                }
                // A member that became too small, say: the disk has that size all the same.
                Err(why) if matches!(step, Step::Resize { .. }) => {
                    applied.warnings.push(why.line());
                }
                Err(why) => {
                    self.secrets = before.beside(&secrets);
                    let not_undone = self.undo(&steps[..at], &failed);
                    self.forget_next_hops();
                    let (step, why) = (step.to_string(), Box::new(why));
                    return Err(ApplyError::Failed { step, why, not_undone });
                }
            }
        }
        self.secrets = secrets;
        self.arrange(to);
        applied.warnings.extend(self.closed_listeners(&steps));
        Ok(applied)
    }

    /// `failed` is what was failed before the change, and may be so again.
    fn undo(&mut self, done: &[Step], failed: &[String]) -> Vec<String> {
        let (mut not_undone, before) = (Vec::new(), self.args());
        for step in done.iter().rev() {
            let inverse = step.inverse();
            match self.carry_out_or_fail(&inverse, &before) {
                Ok(Some(told)) if !failed.contains(&inverse.thing().title()) => {
                    not_undone.push(format!("{inverse}: {told}"));
                }
                Ok(_) => {}
                Err(error) => not_undone.push(format!("{inverse}: {}", error.line())),
            }
        }
        // Volumes whose removal never came are quiesced; what they serve goes on.
        let quiesced = self.volumes.iter().filter(|(_, volume)| volume.quiesced);
        for name in quiesced.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Err(error) = self.resume_volume(&name) {
                not_undone.push(format!("volume {name}: {}", error.line()));
            }
        }
        not_undone
    }

    /// Carries out one step. `going` are volumes that a later step removes: they are quiesced
    /// before hosts hear that their namespace is gone. Returns what deserves to be told.
    pub(super) fn carry_out(
        &mut self,
        step: &Step,
        going: &[String],
    ) -> Result<Option<String>, RunError> {
        if let Some(done) = self.carry_out_failed(step) {
            return done;
        }
        match step {
            Step::Add(thing) => match thing {
                Thing::Disk(disk) => return self.add_disk(disk),
                Thing::Volume(volume) => self.add_volume(volume)?,
                Thing::Listener(listener) => self.add_listener(listener)?,
                Thing::Link(link) => return self.add_link(link),
                Thing::Routed(one) => return self.add_routed(one),
                Thing::Host(host) => return self.set_host(host),
                Thing::Export(export) => self.add_export(export)?,
                Thing::Metrics(metrics) => self.add_metrics(metrics)?,
            },
            Step::Remove(thing) => match thing {
                Thing::Disk(disk) => return self.remove_disk(&disk.name),
                Thing::Volume(volume) => self.remove_volume(&volume.name)?,
                Thing::Listener(listener) => self.remove_listener(listener)?,
                Thing::Link(link) => self.remove_link(link),
                Thing::Routed(one) => return self.remove_routed(one),
                Thing::Host(host) => return self.remove_host(host),
                Thing::Export(export) => self.remove_export(export, going)?,
                Thing::Metrics(_) => self.remove_metrics(),
            },
            Step::Change { from, to } => match (from, to) {
                (Thing::Disk(from), Thing::Disk(to)) => return self.change_disk(from, to),
                (_, Thing::Volume(volume)) => self.resize_volume(volume)?,
                (_, Thing::Listener(listener)) => self.change_listener(listener)?,
                (_, Thing::Link(link)) => self.change_link(link),
                (_, Thing::Routed(one)) => self.change_routed(one)?,
                (_, Thing::Host(host)) => return self.set_host(host),
                (_, Thing::Export(export)) => self.change_export(export)?,
                _ => unreachable!("{step}: it is replaced"),
            },
            Step::Renew(thing) => self.renew(thing)?,
            Step::Resize { disk, .. } => {
                if let Thing::Disk(disk) = disk {
                    self.follow(&disk.name)?;
                }
            }
        }
        Ok(None)
    }
}

/// The volumes that a plan removes.
fn going(plan: &Plan) -> Vec<String> {
    let removed = plan.steps.iter().filter_map(|step| match step {
        Step::Remove(Thing::Volume(volume)) => Some(volume.name.clone()),
        _ => None,
    });
    removed.collect()
}
