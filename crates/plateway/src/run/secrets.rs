//! The secrets by which hosts prove who they are: read once for a start and once for each `apply`,
//! before anything is done.
//!
//! What shards were shown is made of what was read last (`Running::secrets`). A file that holds
//! something else is like a disk of another size: nothing changes until somebody applies the
//! configuration, whose plan then says so in a step of its own (`Step::Renew`). Sessions go on;
//! what is new counts from the next login. Errors: the thing, and what is wrong with its secret.

use std::path::Path;

use super::Running;
use super::error::RunError;
use super::look::{self, Inventory, judged};
use crate::config::model::HiArgs;
use crate::config::thing::{Configured, Step, Thing};
use crate::protocols::Secrets;

/// Reads all that a configuration names.
pub(super) fn read(args: &HiArgs) -> Result<Secrets, RunError> {
    let mut secrets = Secrets::default();
    for thing in args.things() {
        if let Some(proof) = thing.proof() {
            let read = secrets.read(proof, Path::new(""));
            read.map_err(|error| error.within(&thing.title()))?;
        }
    }
    Ok(secrets)
}

/// Looks whether a thing has what hosts prove themselves by.
pub(crate) fn look(
    thing: &(impl Configured + ?Sized),
    inventory: &impl Inventory,
) -> Result<(), RunError> {
    let Some(proof) = thing.proof() else { return Ok(()) };
    let served = inventory.served();
    judged(Secrets::default().read(proof, look::directory(served)), served)
}

impl Running {
    /// What hosts prove themselves by.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The steps for what stays as it is and has other secrets now, but those that a plan touches
    /// already.
    pub(super) fn renewals(
        &self,
        to: &HiArgs,
        secrets: &Secrets,
        touched: impl Fn(&str) -> bool,
    ) -> Vec<Step> {
        let is_new = |thing: &Thing| {
            let differs = |proof| self.secrets.differ(secrets, proof);
            thing.proof().is_some_and(differs) && !touched(&thing.title())
        };
        to.things().filter(is_new).map(Step::Renew).collect()
    }

    /// Shows hosts a thing with the secrets that are in force now.
    pub(super) fn renew(&self, thing: &Thing) -> Result<(), RunError> {
        match thing {
            Thing::Listener(listener) => self.renew_listener(listener),
            Thing::Export(export) => self.renew_export(export),
            Thing::Host(_) => self.renew_hosts(),
            _ => Ok(()),
        }
    }
}
