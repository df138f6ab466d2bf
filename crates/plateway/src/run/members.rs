//! Disks and volumes: opened, assembled, resized and taken apart, each as orders to all shards.
//!
//! A volume is removed by a hold: no shard lets anything new below, and when what is below has come back on all of them, it is forgotten.
//! Errors name the object; whatever a failing step had begun is undone here before it is reported.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::{ShardId, VolumeId};
use contract::{DiskFacts, DiskId};
use reactor::disk::file::is_missing;
use reactor::disk::{Disk, OpenError};
use shard::ImportSettings;
use shard::{Answer, Order};
use volume::{Layout, Member};

use super::error::RunError;
use super::labels::{self, Seen};
use super::open::{self, Target};
use super::patience::insist;
use super::shape::{self, Part};
use super::shards::ORDER_LIMIT;
use super::{OpenDisk, OpenVolume, Running, identity};
use crate::config::model::{self, DiskConfig, VolumeConfig};
use crate::config::uri::DiskUri;

/// How long what is below may take to come back when a volume is removed.
const HOLD_LIMIT: Duration = Duration::from_secs(30);
/// How long a disk that is removed may take to become durable, and then to give back what it was asked.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// A disk by its name, and its URI where that is not the name (a disk of the command line has no other).
fn described(DiskConfig { name, uri, .. }: &DiskConfig) -> String {
    let uri = uri.to_string();
    if *name == uri { format!("disk {name}") } else { format!("disk {name} ({uri})") }
}

impl Running {
    /// Opens a disk and makes it known to all shards.
    pub(super) fn add_disk(&mut self, config: &DiskConfig) -> Result<(), RunError> {
        let id = self.numbers.disk();
        self.shards.name_disk(id, &config.name);
        let opened = match open::target(config)? {
            Target::Local(spec) => {
                // Whoever makes a file makes blocks that nobody knows yet.
                let fresh = match config.uri.innermost() {
                    DiskUri::File { path, .. } => is_missing(path),
                    _ => false,
                };
                let disk = insist(
                    || Disk::open(&spec, &self.arena),
                    |error| matches!(error, OpenError::InUse { .. }),
                )
                .map_err(|error| open::refused(config, &error))?;
                let disk = Arc::new(disk);
                let facts = disk.facts();
                self.shards.handle().add_disk(id, &disk);
                self.order(&format!("add disk {}", config.name), || Order::AddDisk {
                    disk: id,
                    facts: facts.clone(),
                })?;
                OpenDisk { id, config: config.clone(), local: Some(disk), facts, fresh }
            }
            Target::Remote(settings) => {
                let facts = self.add_import(id, config, &settings)?;
                OpenDisk { id, config: config.clone(), local: None, facts, fresh: false }
            }
            Target::Aoe(uri) => {
                let links = self
                    .open_import_links(&config.name, &uri)
                    .map_err(|error| error.within(&described(config)))?;
                match self.add_import(id, config, &open::aoe_settings(&uri, &links)) {
                    Ok(facts) => {
                        OpenDisk { id, config: config.clone(), local: None, facts, fresh: false }
                    }
                    Err(error) => {
                        self.close_import_links(&config.name);
                        return Err(error);
                    }
                }
            }
        };
        self.disks.insert(config.name.clone(), opened);
        self.args.disks.push(config.clone());
        Ok(())
    }

    /// Has every shard reach a remote disk; if one cannot, none keeps it.
    fn add_import(
        &self,
        disk: DiskId,
        config: &DiskConfig,
        settings: &ImportSettings,
    ) -> Result<DiskFacts, RunError> {
        let what = format!("reach disk {}", config.name);
        let limit = ORDER_LIMIT + settings.connect_deadline();
        let add = || Order::AddImport { disk, settings: Box::new(settings.clone()) };
        let mut reached = None;
        let result = self.shards.order(&what, limit, add).and_then(|answers| {
            for (shard, answer) in (0..).map(ShardId).zip(answers) {
                match answer {
                    Answer::Import(Ok(facts)) => {
                        // News of the shard may have been quicker than its answer.
                        self.shards.newsroom().note_reached(disk, shard, facts.clone());
                        reached = Some(facts);
                    }
                    Answer::Import(Err(why)) => {
                        let why = self.shards.newsroom().with_links(&why);
                        return Err(RunError::new(format!("{}: {why}", described(config)))
                            .help(match &config.uri {
                                DiskUri::Aoe(uri) => format!(
                                    "plateway discover aoe://{} shows who answers there; targets are silent to stations that their hosts do not name",
                                    uri.interfaces.join(",")
                                ),
                                _ => "plateway discover shows what a target has for us".to_owned(),
                            }));
                    }
                    Answer::Done | Answer::Report(_) | Answer::Refused(_) => {}
                }
            }
            let nobody = || RunError::new(format!("disk {}: no shard reached it", config.name));
            reached.ok_or_else(nobody)
        });
        if result.is_err() {
            self.shards.newsroom().forget_remote(disk);
            self.order(&format!("let go of disk {}", config.name), || Order::RemoveDisk(disk))?;
        }
        result
    }

    /// Flushes and closes a disk that no volume uses. Returns what deserves to be told.
    pub(super) fn remove_disk(&mut self, name: &str) -> Result<Option<String>, RunError> {
        let Some(disk) = self.disks.remove(name) else { return Ok(None) };
        self.args.disks.retain(|other| other.name != name);
        let mut warning = None;
        let whole = self.whole(disk.id, &disk.facts, name)?;
        if let Err(why) = self.shards.flush(whole, CLOSE_LIMIT) {
            warning = Some(format!("disk {name}: the last flush failed: {why}"));
        }
        self.drop_volume(whole, name)?;
        if disk.local.is_some() && !self.shards.handle().remove_disk(disk.id, CLOSE_LIMIT) {
            warning = Some(format!(
                "disk {name}: a request has not come back after {} s; what it lies on stays in use until it does",
                CLOSE_LIMIT.as_secs()
            ));
        }
        self.order(&format!("remove disk {name}"), || Order::RemoveDisk(disk.id))?;
        self.close_import_links(name);
        self.shards.newsroom().forget_remote(disk.id);
        Ok(warning)
    }

    /// Brings a disk to another size in place.
    pub(super) fn resize_disk(
        &mut self,
        name: &str,
        from: &DiskUri,
        to: &DiskUri,
    ) -> Result<(), RunError> {
        let id = self.disk(name)?.id;
        if self.shards.newsroom().is_protected(id) {
            return Err(RunError::new(format!(
                "disk {name}: expected a disk that takes writes, seen one that a failure protects"
            ))
            .help(format!("plateway disks reopen {name}")));
        }
        match (from.innermost(), to.innermost()) {
            (
                DiskUri::File { create_bytes: from, .. },
                DiskUri::File { path, create_bytes: Some(to) },
            ) => {
                self.resize_file(name, path, *from, *to)?;
                self.refresh_disk(name)?;
            }
            // `create` goes again, which says nothing of the file that is there.
            (DiskUri::File { .. }, DiskUri::File { .. }) => {}
            (_, DiskUri::Null { .. }) => self.replace_null(name, to)?,
            (_, other) => {
                return Err(RunError::new(format!(
                    "disk {name}: cannot resize it: expected file: or null:, seen {other}"
                )));
            }
        }
        if let Some(disk) = self.disks.get_mut(name) {
            disk.config.uri = to.clone();
        }
        if let Some(place) = self.args.disks.iter_mut().find(|disk| disk.name == name) {
            place.uri = to.clone();
        }
        Ok(())
    }

    /// Grows a file from what `create` was to what it is, and cuts it again where that is undone. A
    /// file of neither size is left as it is: nobody said what becomes of it.
    fn resize_file(
        &mut self,
        name: &str,
        path: &Path,
        from: Option<u64>,
        to: u64,
    ) -> Result<(), RunError> {
        let fail =
            |why: std::io::Error| RunError::new(format!("disk {name}: cannot resize it: {why}"));
        let disk = self.disk(name)?.local.clone();
        let Some(fd) = disk.as_ref().and_then(|disk| disk.fd()) else {
            return Err(RunError::new(format!("disk {name}: expected an open file, seen none")));
        };
        let seen = rustix::fs::fstat(fd).map_err(|errno| fail(errno.into()))?.st_size as u64;
        let grown = self.grown.iter().position(|grown| grown == name);
        match from {
            _ if seen == to => return Ok(()),
            Some(from) if seen == from && to > from => self.grown.push(name.to_owned()),
            Some(from) if to < from => match grown.filter(|_| seen == from) {
                Some(at) => drop(self.grown.remove(at)),
                // It had that size before.
                None => return Ok(()),
            },
            _ => {
                let error = OpenError::OtherSize { path: path.into(), expected: to, seen };
                return Err(RunError::new(format!("disk {name}: {error}")));
            }
        }
        let resized = rustix::fs::ftruncate(fd, to).and_then(|()| rustix::fs::fsync(fd));
        resized.map_err(|errno| {
            let _ = rustix::fs::ftruncate(fd, seen);
            fail(errno.into())
        })
    }

    /// Looks at a disk's size again; whether it changed. Shards know of it then, volumes do not.
    pub(super) fn refresh_disk(&mut self, name: &str) -> Result<bool, RunError> {
        let Some(disk) = self.disks.get_mut(name) else { return Ok(false) };
        if disk.is_remote() {
            // The shards know what they told.
            let facts = self.shards.newsroom().remote_facts(disk.id);
            let changed = facts.filter(|facts| *facts != disk.facts);
            return Ok(changed.map(|facts| disk.facts = facts).is_some());
        }
        let Some(local) = &disk.local else { return Ok(false) };
        let facts = local.refresh().map_err(|error| {
            RunError::new(format!("disk {name}: cannot ask for its size: {error}"))
        })?;
        if facts == disk.facts {
            return Ok(false);
        }
        disk.facts = facts.clone();
        let id = disk.id;
        self.order(&format!("renew disk {name}"), || Order::RenewDisk {
            disk: id,
            facts: facts.clone(),
        })?;
        Ok(true)
    }

    /// A null disk of another size is another disk, which its volume takes over between two requests.
    fn replace_null(&mut self, name: &str, to: &DiskUri) -> Result<(), RunError> {
        let config = DiskConfig { name: name.to_owned(), uri: to.clone() };
        let Some(old) = self.disks.remove(name) else { return Ok(()) };
        let before = self.args.disks.clone();
        let added = self.add_disk(&config);
        self.args.disks = before;
        if let Err(error) = added {
            self.disks.insert(name.to_owned(), old);
            return Err(error);
        }
        let user = |volume: &&OpenVolume| volume.config.layout.disks().iter().any(|d| d == name);
        if let Some(volume) = self.volumes.values().find(user).map(|v| v.config.name.clone()) {
            self.renew_layout(&volume)?;
        }
        self.shards.handle().remove_disk(old.id, CLOSE_LIMIT);
        self.order(&format!("remove the former disk {name}"), || Order::RemoveDisk(old.id))
    }

    /// Assembles a volume, labelling or naming it where that is due.
    pub(super) fn add_volume(&mut self, config: &VolumeConfig) -> Result<(), RunError> {
        let parts = self.parts(config)?;
        shape::check_blocks(config, &parts)?;
        let given = config.uuid.map(|uuid| uuid.0);
        let (uuid, labelled) = match &config.layout {
            model::Layout::Single { disk } => (self.identity(config, disk)?, None),
            _ => self.labels(config, &parts, given)?,
        };
        if let Some(twin) = self.volumes.values().find(|volume| volume.uuid == uuid) {
            return Err(RunError::new(format!(
                "volume {}: expected an identity of its own, seen that of volume {}",
                config.name, twin.config.name
            ))
            .help("a copy of a disk needs a uuid of its own"));
        }
        let layout = shape::layout(config, &parts, labelled.as_deref())?;
        let id = self.numbers.volume();
        self.order(&format!("add volume {}", config.name), || Order::AddVolume {
            volume: id,
            layout: layout.clone(),
        })?;
        let volume = OpenVolume { id, config: config.clone(), layout, uuid, labelled, held: false };
        self.volumes.insert(config.name.clone(), volume);
        self.args.volumes.push(config.clone());
        Ok(())
    }

    /// The identity of a volume without labels.
    fn identity(&mut self, config: &VolumeConfig, disk: &str) -> Result<[u8; 16], RunError> {
        if let Some(uuid) = config.uuid {
            return Ok(uuid.0);
        }
        let Some(disk) = self.disks.get_mut(disk) else { return self.disk(disk).map(|_| [0; 16]) };
        match identity::backing(&disk.config.uri) {
            Some(backing) => {
                let uuid = self.identities.of(&backing, &config.name, disk.fresh)?;
                // From now on they are known by it.
                disk.fresh = false;
                Ok(uuid)
            }
            None => identity::draw().map_err(|error| {
                RunError::new(format!("volume {}: cannot draw an identity: {error}", config.name))
            }),
        }
    }

    /// The identity of a volume whose members have labels, and the lengths of their data.
    fn labels(
        &mut self,
        config: &VolumeConfig,
        parts: &[Part],
        given: Option<[u8; 16]>,
    ) -> Result<([u8; 16], Option<Vec<u64>>), RunError> {
        let fail = |error| {
            RunError::new(format!("volume {}: cannot draw an identity: {error}", config.name))
        };
        let uuid = given.map_or_else(|| identity::draw().map_err(fail), Ok)?;
        let wanted = labels::wanted(config, uuid).expect("a single volume has no labels");
        let mut seen: Vec<Seen<'_>> = Vec::new();
        let mut result = Ok(());
        for part in parts {
            match self.whole(part.disk, &part.facts, &part.name) {
                Ok(whole) => {
                    let bytes = part.facts.size.0;
                    seen.push(Seen { disk: &part.name, bytes, whole });
                }
                Err(error) => result = Err(error),
            }
        }
        let overwrite = self.overwrite.contains(&config.name);
        let set = result.and_then(|()| {
            labels::assemble(&self.shards, &seen, &wanted, given.is_some(), overwrite)
        });
        for member in &seen {
            self.drop_volume(member.whole, member.disk)?;
        }
        let set = set?;
        self.overwritten.extend(set.overwritten);
        Ok((set.uuid, Some(set.lengths)))
    }

    /// A volume over the whole of a disk, for the control thread's own use.
    pub(super) fn whole(
        &self,
        disk: DiskId,
        facts: &DiskFacts,
        name: &str,
    ) -> Result<VolumeId, RunError> {
        let volume = self.numbers.volume();
        let layout = Layout::single(Member { disk, base: 0, length: facts.size.0 });
        self.order(&format!("look at disk {name}"), || Order::AddVolume {
            volume,
            layout: layout.clone(),
        })?;
        Ok(volume)
    }

    /// Takes a volume away by a hold.
    pub(super) fn drop_volume(&self, volume: VolumeId, name: &str) -> Result<(), RunError> {
        self.shards.order(&format!("hold {name}"), HOLD_LIMIT, || Order::HoldVolume(volume))?;
        self.order(&format!("forget {name}"), || Order::ForgetVolume(volume))
    }

    /// Lets nothing new go to a volume and waits for what is below.
    pub(super) fn hold_volume(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        if volume.held {
            return Ok(());
        }
        let id = volume.id;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.held = true;
        }
        let held =
            self.shards.order(&format!("hold volume {name}"), HOLD_LIMIT, || Order::HoldVolume(id));
        if let Err(error) = held {
            self.revive_volume(name)?;
            return Err(RunError::new(format!("{}: requests are still below", error.line()))
                .help("plateway status shows the disks; one that is stuck holds its volumes"));
        }
        Ok(())
    }

    /// A volume that was held is served again, under a new number: what is late for the old one finds nothing.
    pub(super) fn revive_volume(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        if !volume.held {
            return Ok(());
        }
        let layout = volume.layout.clone();
        let id = self.numbers.volume();
        self.order(&format!("add volume {name} again"), || Order::AddVolume {
            volume: id,
            layout: layout.clone(),
        })?;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.id = id;
            volume.held = false;
        }
        self.show_exports_of(name)
    }

    /// Takes a volume apart that no export names.
    pub(super) fn remove_volume(&mut self, name: &str) -> Result<(), RunError> {
        self.hold_volume(name)?;
        let Some(volume) = self.volumes.remove(name) else { return Ok(()) };
        self.args.volumes.retain(|other| other.name != name);
        let id = volume.id;
        self.order(&format!("forget volume {name}"), || Order::ForgetVolume(id))
    }

    /// Gives a volume another size; hosts get the event.
    pub(super) fn resize_volume(&mut self, name: &str, to: Option<u64>) -> Result<(), RunError> {
        let Some(volume) = self.volumes.get_mut(name) else { return Ok(()) };
        let from = std::mem::replace(&mut volume.config.size_bytes, to);
        if let Err(error) = self.renew_layout(name).and_then(|()| self.show_exports_of(name)) {
            if let Some(volume) = self.volumes.get_mut(name) {
                volume.config.size_bytes = from;
            }
            return Err(error);
        }
        if let Some(place) = self.args.volumes.iter_mut().find(|volume| volume.name == name) {
            place.size_bytes = to;
        }
        Ok(())
    }

    /// Lays a volume out over its disks as they are now.
    fn renew_layout(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        let parts = self.parts(&volume.config)?;
        let layout = shape::layout(&volume.config, &parts, volume.labelled.as_deref())?;
        let id = volume.id;
        self.order(&format!("resize volume {name}"), || Order::ResizeVolume {
            volume: id,
            layout: layout.clone(),
        })?;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.layout = layout;
        }
        Ok(())
    }

    /// The disks of a volume.
    pub(super) fn parts(&self, config: &VolumeConfig) -> Result<Vec<Part>, RunError> {
        let part = |name: &String| {
            let disk = self.disk(name)?;
            Ok(Part { name: name.clone(), disk: disk.id, facts: disk.facts.clone() })
        };
        config.layout.disks().iter().map(part).collect()
    }
}
