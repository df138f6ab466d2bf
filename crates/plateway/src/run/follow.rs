//! Volumes follow their disks: a device that was grown, a file, and a remote disk whose target says
//! that it has another size.
//!
//! A local disk is asked at each `apply`, whose plan says so in a step of its own (`resize`). A
//! remote one tells by itself: each shard hears of it, and what may be relied on is the smallest
//! size that a shard knows, so a volume grows when all shards reach what is new and shrinks with
//! the first. A volume of one disk is resized, and hosts get the event; a concat or stripe grows
//! where its layout lets it, and is never cut: a member that became too small is told in the log
//! and in the status until it is large enough again. Units: bytes.

use block::ByteCount;

use super::error::RunError;
use super::{OpenDisk, OpenVolume, Running, shape};
use crate::config::thing::{Step, Thing};
use crate::log::Event;

impl Running {
    /// Has `call` called, in another thread, whenever
    /// [`follow_remote_disks`](Self::follow_remote_disks) may have something to do.
    pub(crate) fn when_a_disk_changes(&self, call: impl Fn() + Send + 'static) {
        self.shards.when_a_disk_changes(call);
    }

    /// Brings volumes to the sizes that their remote disks have now. Returns what was done and what
    /// could not be.
    pub(crate) fn follow_remote_disks(&mut self) -> Vec<Event> {
        let remote = self.disks.values().filter(|disk| disk.is_remote());
        let names: Vec<String> = remote.map(|disk| disk.config.name.clone()).collect();
        let mut one = |name: &String| {
            let done = self.follow(name).transpose()?;
            let event = done.map_or_else(|error| Event::error(error.line()), Event::info);
            Some(event.disk(name))
        };
        names.iter().filter_map(&mut one).collect()
    }

    /// The steps for disks that have another size than volumes know, but those that a plan touches
    /// already. Looks, and changes nothing.
    pub(super) fn resized_disks(&self, touched: impl Fn(&str) -> bool) -> Vec<Step> {
        let one = |disk: &OpenDisk| {
            let known = disk.facts.size.0;
            let seen = match &disk.local {
                // New facts would let it take writes again, and that is for `disks reopen`.
                Some(_) if self.shards.event_log().is_protected(disk.id) => None,
                // What cannot be asked is told by the requests that fail.
                Some(local) => local.size_now().ok(),
                None => self.shards.event_log().remote_facts(disk.id).map(|facts| facts.size),
            }?;
            let disk = Thing::Disk(disk.config.clone());
            (seen.0 != known && !touched(&disk.title())).then_some(Step::Resize {
                disk,
                from_bytes: known,
                to_bytes: seen.0,
            })
        };
        self.disks.values().filter_map(one).collect()
    }

    /// Looks at a disk, and brings its volume to it if it has another size: that, in a line.
    pub(super) fn follow(&mut self, name: &str) -> Result<Option<String>, RunError> {
        let Some(before) = self.disks.get(name).map(|disk| disk.facts.size) else {
            return Ok(None);
        };
        if self.refresh_disk(name)? {
            self.volume_follows(name)?;
        }
        let now = self.disk(name)?.facts.size;
        let told = || format!("disk {name}: {} -> {}, as it is now", before, now);
        Ok((now != before).then(told))
    }

    pub(super) fn volume_follows(&mut self, disk: &str) -> Result<(), RunError> {
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
                    "volume {}: disk {name} is too small: expected at least {:#}, seen {:#}",
                    volume.config.name,
                    ByteCount(needed),
                    ByteCount(seen)
                )
            })
        });
        short.next()
    }
}
