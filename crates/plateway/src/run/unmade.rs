//! Files that are not there: whether `create` may make one for a member of a set.
//!
//! A blank file beside members that carry labels is a lost member, and never one to be made: the
//! survey refuses the set then, and here it is asked before there is a file. So what is there is
//! opened first, and what is missing last. A volume without labels cannot tell; its file is made,
//! and it gets an identity of its own (docs/faults.md).

use reactor::disk::file::is_missing;
use volume::survey::{Found, survey};

use super::Running;
use super::error::RunError;
use super::labels::{self, Seen};
use crate::config::model::{DiskConfig, HiArgs, VolumeConfig};
use crate::config::step::Step;
use crate::config::uri::DiskUri;

/// Whether opening a disk would make its file.
fn is_unmade(disk: &DiskConfig) -> bool {
    match disk.uri.innermost() {
        DiskUri::File { path, create_bytes: Some(_) } => is_missing(path),
        _ => false,
    }
}

/// The same steps, of which those that make files come after those that open what is there.
pub(super) fn unmade_last(mut steps: Vec<Step>) -> Vec<Step> {
    let is_disk = |step: &Step| matches!(step, Step::AddDisk(_));
    if let Some(first) = steps.iter().position(is_disk) {
        // All disks are added in one run.
        let count = steps[first..].iter().take_while(|step| is_disk(step)).count();
        steps[first..first + count]
            .sort_by_cached_key(|step| matches!(step, Step::AddDisk(disk) if is_unmade(disk)));
    }
    steps
}

impl Running {
    /// Refuses a step of [`unmade_last`] on the way to `to` that would make a file beside members
    /// which are not blank.
    pub(super) fn check_unmade(&self, step: &Step, to: &HiArgs) -> Result<(), RunError> {
        let Step::AddDisk(disk) = step else { return Ok(()) };
        let uses = |volume: &&VolumeConfig| volume.layout.disks().contains(&disk.name);
        let Some(config) = to.volumes.iter().find(uses).filter(|_| is_unmade(disk)) else {
            return Ok(());
        };
        let given = config.uuid.map(|uuid| uuid.0);
        let Some(wanted) = labels::wanted(config, given.unwrap_or_default()) else {
            return Ok(());
        };
        let mut found = Vec::new();
        for name in config.layout.disks() {
            found.push(match self.disks.get(name) {
                Some(_) => self.look_at_member(&config.name, name)?,
                // It would be made as well.
                None => Found::Blank,
            });
        }
        let overwrite = self.overwrite.contains(&config.name);
        match survey(&found, &wanted, given.is_some(), overwrite) {
            Ok(_) => Ok(()),
            Err(refusal) => {
                let at = config.layout.disks().get(refusal.index);
                let name = at.map_or("?", String::as_str);
                Err(match self.disks.contains_key(name) {
                    true => labels::refused(&config.name, name, &refusal),
                    false => labels::lost(&config.name, name, &refusal),
                })
            }
        }
    }

    fn look_at_member(&self, volume: &str, name: &str) -> Result<Found, RunError> {
        let disk = self.disk(name)?;
        let bytes = disk.facts.size.0;
        labels::check_room(volume, name, bytes)?;
        let whole = self.whole(disk.id, &disk.facts, name)?;
        let found = labels::look_at(&self.shards, &Seen { disk: name, bytes, whole });
        self.drop_volume(whole, name)?;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_opened_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("there");
        std::fs::write(&there, [0; 512]).unwrap();
        let add = |uri: String| {
            Step::AddDisk(DiskConfig { name: uri.clone(), uri: uri.parse().unwrap() })
        };
        let missing = format!("file:{}", directory.path().join("missing").display());
        let make = add(format!("delay:5,{missing}?create=1MiB"));
        let open = add(format!("file:{}?create=512", there.display()));
        let (memory, fail) = (add("ram:1MiB".to_owned()), add(missing));
        let Step::AddDisk(disk) = &memory else { panic!() };
        let before = Step::RemoveDisk(disk.clone());
        let steps = [&before, &make, &open, &memory, &fail].map(Step::clone).to_vec();
        assert_eq!(unmade_last(steps), [before, open, memory, fail, make]);
    }
}
