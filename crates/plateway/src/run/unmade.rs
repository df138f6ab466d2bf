//! Files that are not there: whether `create` may make one for a member of a set.
//!
//! A blank file beside members that carry labels is a lost member, and never one to be made: the
//! set is refused then, and here it is judged before there is a file. So what is there is
//! opened first, and what is missing last. A file that was served is known, and
//! is not made anew either (`identity`).

use reactor::disk::file::is_missing;

use super::error::RunError;
use super::volumes::VolumeSight;
use super::{Running, disks};
use crate::config::disk::DiskConfig;
use crate::config::model::HiArgs;
use crate::config::thing::{Step, Thing};
use crate::config::uri::DiskUri;
use crate::config::volume::VolumeConfig;

/// Whether opening a disk would make its file.
fn is_unmade(disk: &DiskConfig) -> bool {
    match disk.uri.innermost() {
        DiskUri::File { path, create_bytes: Some(_), .. } => is_missing(path),
        _ => false,
    }
}

/// The same steps, of which those that make files come after those that open what is there.
pub(super) fn unmade_last(mut steps: Vec<Step>) -> Vec<Step> {
    let is_disk = |step: &Step| matches!(step, Step::Add(Thing::Disk(_)));
    if let Some(first) = steps.iter().position(is_disk) {
        // All disks are added in one run.
        let count = steps[first..].iter().take_while(|step| is_disk(step)).count();
        steps[first..first + count].sort_by_cached_key(
            |step| matches!(step, Step::Add(Thing::Disk(disk)) if is_unmade(disk)),
        );
    }
    steps
}

impl Running {
    /// Refuses a step of [`unmade_last`] on the way to `to` that would make a file beside members
    /// which are not blank.
    pub(super) fn check_unmade(&mut self, step: &Step, to: &HiArgs) -> Result<(), RunError> {
        let Step::Add(Thing::Disk(disk)) = step else { return Ok(()) };
        let uses = |volume: &&VolumeConfig| volume.layout.disks().contains(&disk.name);
        let Some(volume) = to.volumes.iter().find(uses).filter(|_| is_unmade(disk)) else {
            return Ok(());
        };
        if let Some(error) = self.away_beside(&disk.name, volume.layout.disks()) {
            return Err(error);
        }
        // What is there is open by now.
        let is_unmade = |disk: &&DiskConfig| {
            volume.layout.disks().contains(&disk.name) && !self.disks.contains_key(&disk.name)
        };
        let look = |disk: &DiskConfig| Ok((disk.name.clone(), disks::look(disk, self)?));
        self.unmade = to.disks.iter().filter(is_unmade).map(look).collect::<Result<_, _>>()?;
        let looked = VolumeSight::default().look(volume, self);
        self.unmade.clear();
        looked
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
            let (name, uri) = (uri.clone(), uri.parse().unwrap());
            Step::Add(Thing::Disk(DiskConfig::plain(name, uri)))
        };
        let missing = format!("file:{}", directory.path().join("missing").display());
        let make = add(format!("delay:5,{missing}?create=1MiB"));
        let open = add(format!("file:{}?create=512", there.display()));
        let (memory, fail) = (add("ram:1MiB".to_owned()), add(missing));
        let before = memory.inverse();
        let steps = [&before, &make, &open, &memory, &fail].map(Step::clone).to_vec();
        assert_eq!(unmade_last(steps), [before, open, memory, fail, make]);
    }
}
