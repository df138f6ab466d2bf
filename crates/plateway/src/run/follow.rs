//! Volumes follow their disks: a device that was grown, a file, and a remote disk whose target says
//! that it has another size.
//!
//! A local disk is asked at each `apply`. A remote one tells by itself: each shard hears of it, and
//! what may be relied on is the smallest size that a shard knows, so a volume grows when all shards
//! reach what is new and shrinks with the first. A volume of one disk is resized, and hosts get the
//! event; a concat or stripe grows where its layout lets it, and is never cut: a member that became
//! too small is told in the log and in the status until it is large enough again. Units: bytes.

use super::error::RunError;
use super::{OpenVolume, Running, shape};
use crate::config::disk::disk_title;
use crate::config::size::Size;
use crate::control::StepLine;
use crate::control::status::Action;

impl Running {
    /// Has `call` called, in another thread, whenever
    /// [`follow_remote_disks`](Self::follow_remote_disks) may have something to do.
    pub(crate) fn when_a_disk_changes(&self, call: impl Fn() + Send + 'static) {
        self.shards.when_a_disk_changes(call);
    }

    /// Brings volumes to the sizes that their remote disks have now. Returns what was done and what
    /// could not be, a line each.
    pub(crate) fn follow_remote_disks(&mut self) -> Vec<String> {
        let remote = self.disks.values().filter(|disk| disk.is_remote());
        let names: Vec<String> = remote.map(|disk| disk.config.name.clone()).collect();
        let followed = names.iter().filter_map(|name| self.follow(name));
        followed.map(|done| done.unwrap_or_else(|error| error.line())).collect()
    }

    /// Brings volumes to what all disks are like now. Returns what was done, and what could not be.
    pub(super) fn follow_disks(&mut self) -> (Vec<StepLine>, Vec<String>) {
        let (mut steps, mut warnings) = (Vec::new(), Vec::new());
        for name in self.disks.keys().cloned().collect::<Vec<_>>() {
            let disk = &self.disks[&name];
            // New facts would let a local disk take writes again, and that is for `disks reopen`.
            if !disk.is_remote() && self.shards.event_log().is_protected(disk.id) {
                continue;
            }
            match self.follow(&name) {
                Some(Ok(step)) => steps.push(StepLine {
                    action: Action::Change,
                    thing: disk_title(&name),
                    text: format!("~ {step}"),
                }),
                Some(Err(error)) => warnings.push(error.line()),
                None => {}
            }
        }
        (steps, warnings)
    }

    /// Looks at a disk, and brings its volume to it if it has another size.
    fn follow(&mut self, name: &str) -> Option<Result<String, RunError>> {
        let before = self.disks.get(name)?.facts.size;
        let followed = match self.refresh_disk(name) {
            Ok(true) => self.volume_follows(name),
            Ok(false) => return None,
            Err(error) => Err(error),
        };
        let now = self.disks.get(name)?.facts.size;
        match followed {
            Ok(()) if now == before => None,
            Ok(()) => {
                let (before, now) = (Size(before.0), Size(now.0));
                Some(Ok(format!("disk {name}: {before} -> {now}, as it is now")))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn volume_follows(&mut self, disk: &str) -> Result<(), RunError> {
        let uses = |volume: &&OpenVolume| volume.config.layout.disks().iter().any(|d| d == disk);
        let Some(volume) = self.volumes.values().find(uses) else { return Ok(()) };
        if volume.labelled.is_some()
            && let Some(problem) = self.problem(volume)
        {
            return Err(RunError::new(problem).help(
                "give the disk its former size back: what lay beyond its end is part of the volume, and is answered with errors",
            ));
        }
        shape::check_blocks(&volume.config, &self.parts(&volume.config)?)?;
        let config = volume.config.clone();
        self.resize_volume(&config)
    }

    /// What keeps a volume from being whole, if its disks do not hold any more what it is laid out
    /// over.
    pub(super) fn problem(&self, volume: &OpenVolume) -> Option<String> {
        let members = volume.config.layout.disks().iter().zip(volume.layout.members());
        let mut short = members.filter_map(|(name, member)| {
            let (needed, seen) = (member.base + member.length, self.disks.get(name)?.facts.size.0);
            (seen < needed).then(|| {
                format!(
                    "volume {}: disk {name} is too small: expected at least {}, seen {}",
                    volume.config.name,
                    Size(needed),
                    Size(seen)
                )
            })
        });
        short.next()
    }
}
