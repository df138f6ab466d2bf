//! Disks and volumes: opened, assembled, resized and taken apart, each as orders to all shards.
//!
//! A volume is removed by a hold: no shard lets anything new below, and when what is below has come
//! back on all of them, it is forgotten. Errors name the object; whatever a failing step had begun
//! is undone here before it is reported.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::volume::label::SetLabel;
use ::volume::{Layout, Member};
use block::{Extent, ShardId, VolumeId};
use contract::{DiskFacts, DiskId};
use reactor::disk::file::is_missing;
use reactor::disk::{Disk, OpenError};
use reservation::Reservation;
use shard::{Answer, ImportSettings, Order, StoreKey};
use uuid::Uuid;

use super::error::RunError;
use super::event_log::log;
use super::identity::{self, Identities};
use super::labels::{self, Due};
use super::open;
use super::retry::retry_in_use;
use super::shape::{self, Part};
use super::shards::ORDER_LIMIT;
use super::{OpenDisk, OpenVolume, Running};
use crate::config::disk::DiskConfig;
use crate::config::uri::DiskUri;
use crate::config::volume::VolumeConfig;
use crate::protocols::RemoteUri;

/// How long what is below may take to come back when a volume is removed.
const HOLD_LIMIT: Duration = Duration::from_secs(30);
/// How long a disk that is removed may take to become durable, and then to give back what it was
/// asked.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// A disk by its name, and its URI where that is not the name (a disk of the command line has no
/// other).
fn described(DiskConfig { name, uri, .. }: &DiskConfig) -> String {
    let uri = uri.to_string();
    if *name == uri { format!("disk {name}") } else { format!("disk {name} ({uri})") }
}

impl Running {
    pub(super) fn add_disk(&mut self, config: &DiskConfig) -> Result<(), RunError> {
        let disk = self.open_disk(config)?;
        self.disks.insert(config.name.clone(), disk);
        Ok(())
    }

    /// Opens a disk and makes it known to all shards.
    fn open_disk(&mut self, config: &DiskConfig) -> Result<OpenDisk, RunError> {
        let id = self.numbers.disk();
        let name = &config.name;
        self.shards.name_disk(id, name);
        if let DiskUri::Remote(uri) = &config.uri {
            let links = self
                .open_import_links(name, uri)
                .map_err(|error| error.within(&described(config)))?;
            let facts = uri
                .settings(&self.state, &links)
                .map_err(|error| error.within(&format!("disk {name}")))
                .and_then(|settings| self.add_import(id, config, uri, &settings))
                .inspect_err(|_| self.close_import_links(name))?;
            return Ok(OpenDisk { id, config: config.clone(), local: None, facts, fresh: false });
        }
        let spec = open::spec_of(config)?;
        // Whoever makes a file makes blocks that nobody knows yet.
        let fresh = match config.uri.innermost() {
            DiskUri::File { path, .. } => is_missing(path),
            _ => false,
        };
        let disk = retry_in_use(
            || Disk::open(&spec, &self.arena),
            |error| matches!(error, OpenError::InUse { .. }),
        )
        .map_err(|error| open::refused(config, &error))?;
        let disk = Arc::new(disk);
        let facts = disk.facts();
        self.shards.handle().add_disk(id, &disk);
        let told = self.order(&format!("add disk {name}"), || Order::AddDisk {
            disk: id,
            facts: facts.clone(),
        });
        told.inspect_err(|_| drop(self.let_go(id, name, true)))?;
        Ok(OpenDisk { id, config: config.clone(), local: Some(disk), facts, fresh })
    }

    /// Has every shard reach a remote disk; if one cannot, none keeps it.
    fn add_import(
        &self,
        disk: DiskId,
        config: &DiskConfig,
        uri: &RemoteUri,
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
                        self.shards.event_log().note_reached(disk, shard, facts.clone());
                        reached = Some(facts);
                    }
                    Answer::Import(Err(why)) => {
                        let why = self.shards.event_log().with_links(&why);
                        return Err(RunError::new(format!("{}: {why}", described(config)))
                            .help(uri.who_answers()));
                    }
                    Answer::Done | Answer::Report(_) | Answer::Refused(_) => {}
                }
            }
            let nobody = || RunError::new(format!("disk {}: no shard reached it", config.name));
            reached.ok_or_else(nobody)
        });
        if result.is_err() {
            self.shards.event_log().forget_remote(disk);
            self.order(&format!("let go of disk {}", config.name), || Order::RemoveDisk(disk))?;
        }
        result
    }

    /// Flushes and closes a disk that no volume uses. Returns what deserves to be told.
    pub(super) fn remove_disk(&mut self, name: &str) -> Result<Option<String>, RunError> {
        let Some(disk) = self.disks.get(name) else { return Ok(None) };
        let (id, is_local) = (disk.id, disk.local.is_some());
        let whole = self.whole(id, &disk.facts, name)?;
        let flushed = self.shards.flush(whole, CLOSE_LIMIT);
        self.drop_volume(whole, name)?;
        // From here on it is gone, whoever does not hear of it.
        self.disks.shift_remove(name);
        let forgotten = self.let_go(id, name, is_local);
        self.close_import_links(name);
        self.shards.event_log().forget_remote(id);
        let failed = flushed.map_err(|why| format!("disk {name}: the last flush failed: {why}"));
        Ok(forgotten.or(failed.err()))
    }

    /// Takes a disk from the drivers and the shards. Returns what deserves to be told.
    fn let_go(&self, id: DiskId, name: &str, is_local: bool) -> Option<String> {
        let is_back = !is_local || self.shards.handle().remove_disk(id, CLOSE_LIMIT);
        let told = self.order(&format!("remove disk {name}"), || Order::RemoveDisk(id));
        let stays = || {
            let limit = CLOSE_LIMIT.as_secs();
            format!(
                "disk {name}: a request has not come back after {limit} s; what it lies on stays in use until it does"
            )
        };
        told.err().map(|error| error.line()).or((!is_back).then(stays))
    }

    /// Brings a disk to another size in place. Returns what deserves to be told.
    pub(super) fn resize_disk(
        &mut self,
        from: &DiskConfig,
        to: &DiskConfig,
    ) -> Result<Option<String>, RunError> {
        let name = &to.name;
        if self.shards.event_log().is_protected(self.disk(name)?.id) {
            return Err(RunError::new(format!(
                "disk {name}: expected a disk that takes writes, seen one that a failure protects"
            ))
            .help(format!("plateway disks reopen {name}")));
        }
        let mut warning = None;
        match (from.uri.innermost(), to.uri.innermost()) {
            (
                DiskUri::File { create_bytes: from, .. },
                DiskUri::File { path, create_bytes: Some(to) },
            ) => {
                self.resize_file(name, path, *from, *to)?;
                self.refresh_disk(name)?;
            }
            // `create` goes again, which says nothing of the file that is there.
            (DiskUri::File { .. }, DiskUri::File { .. }) => {}
            (_, DiskUri::Null { .. }) => warning = self.replace_null(to)?,
            (_, other) => {
                return Err(RunError::new(format!(
                    "disk {name}: cannot resize it: expected file: or null:, seen {other}"
                )));
            }
        }
        if let Some(disk) = self.disks.get_mut(name) {
            disk.config.clone_from(to);
        }
        Ok(warning)
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
            let facts = self.shards.event_log().remote_facts(disk.id);
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

    /// A null disk of another size is another disk, which its volume takes over between two
    /// requests.
    fn replace_null(&mut self, to: &DiskConfig) -> Result<Option<String>, RunError> {
        let name = &to.name;
        let new = self.open_disk(to)?;
        let new_id = new.id;
        let Some(old) = self.disks.insert(name.clone(), new) else { return Ok(None) };
        let uses = |volume: &&OpenVolume| volume.config.layout.disks().contains(name);
        let user = self.volumes.values().find(uses).map(|volume| volume.config.name.clone());
        if let Some(error) = user.and_then(|volume| self.renew_layout(&volume).err()) {
            self.disks.insert(name.clone(), old);
            self.let_go(new_id, name, true);
            return Err(error);
        }
        Ok(self.let_go(old.id, name, true))
    }

    /// Assembles a volume, labelling or naming it where that is due.
    pub(super) fn add_volume(&mut self, config: &VolumeConfig) -> Result<(), RunError> {
        let parts = self.parts(config)?;
        shape::check_blocks(config, &parts)?;
        let (uuid, labelled) = match labels::set_label(config, config.uuid.unwrap_or_default()) {
            None => (self.identity(config)?, None),
            Some(wanted) => {
                let wholes: Result<Vec<VolumeId>, RunError> = parts
                    .iter()
                    .map(|part| self.whole(part.disk, &part.facts, &part.name))
                    .collect();
                let wholes = wholes?;
                let set = self.labels(config, wanted, &parts, &wholes);
                for (part, whole) in parts.iter().zip(wholes) {
                    self.drop_volume(whole, &part.name)?;
                }
                let (uuid, lengths) = set?;
                (uuid, Some(lengths))
            }
        };
        if let Some(twin) = self.volumes.values().find(|volume| volume.uuid == uuid) {
            return Err(shape::same_identity(config, &twin.config.name));
        }
        let layout = shape::layout(config, &parts, labelled.as_deref())?;
        let id = self.numbers.volume();
        let reservation = self.stored_reservation(config, uuid, id)?;
        let told = self.order(&format!("add volume {}", config.name), || Order::AddVolume {
            volume: id,
            layout: layout.clone(),
            reservation: reservation.clone(),
        });
        told.inspect_err(|_| {
            drop(self.drop_volume(id, &config.name));
            self.store().forget(StoreKey::Reservation(id));
        })?;
        let volume =
            OpenVolume { id, config: config.clone(), layout, uuid, labelled, quiesced: false };
        self.volumes.insert(config.name.clone(), volume);
        Ok(())
    }

    /// The identity of a volume without labels.
    fn identity(&mut self, config: &VolumeConfig) -> Result<Uuid, RunError> {
        let disk = config.layout.disks().first().and_then(|disk| self.disks.get_mut(disk));
        let backing = disk.as_ref().and_then(|disk| identity::backing(&disk.config.uri));
        match (config.uuid, disk, backing) {
            (Some(uuid), ..) => Ok(uuid),
            (None, Some(disk), Some(backing)) => {
                let identities = Identities::new(self.state.clone());
                let uuid = identities.of(&backing, &config.name, disk.fresh)?;
                // From now on they are known by it.
                disk.fresh = false;
                Ok(uuid)
            }
            (None, ..) => Ok(Uuid::new_v4()),
        }
    }

    /// The identity of a volume whose members carry labels, and the lengths of their data; `wholes`
    /// are volumes over the members.
    fn labels(
        &mut self,
        config: &VolumeConfig,
        mut wanted: SetLabel,
        parts: &[Part],
        wholes: &[VolumeId],
    ) -> Result<(Uuid, Vec<u64>), RunError> {
        let members: Vec<(&Part, VolumeId)> = parts.iter().zip(wholes.iter().copied()).collect();
        let found = members.iter().map(|(part, whole)| {
            labels::examine(config, part, |at, length| {
                self.shards.read(*whole, Extent::new(at, length))
            })
        });
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let overwrite = self.overwrite.contains(&config.name);
        let set = labels::judge(config, &wanted, parts, &found, overwrite, |_| false)?;
        let uuid = set.uuid.unwrap_or_else(Uuid::new_v4);
        if set.due != Due::Nothing {
            if let Due::Form(overwritten) = set.due {
                // Told before it is done: whatever happens then, somebody can know what was there.
                overwritten.iter().for_each(|line| log(line));
                self.overwritten.extend(overwritten);
            }
            wanted.uuid = uuid.into_bytes();
            labels::form(&self.shards, &members, &wanted, &set.lengths)?;
        }
        Ok((uuid, set.lengths))
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
        self.order(&format!("examine disk {name}"), || Order::AddVolume {
            volume,
            layout: layout.clone(),
            reservation: Reservation::default(),
        })?;
        Ok(volume)
    }

    /// Takes a volume away by a hold.
    pub(super) fn drop_volume(&self, volume: VolumeId, name: &str) -> Result<(), RunError> {
        self.shards.order(&format!("hold {name}"), HOLD_LIMIT, || Order::HoldVolume(volume))?;
        self.order(&format!("forget {name}"), || Order::ForgetVolume(volume))
    }

    /// Lets nothing new go to a volume and waits for what is below.
    pub(super) fn quiesce_volume(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        if volume.quiesced {
            return Ok(());
        }
        let id = volume.id;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.quiesced = true;
        }
        let held =
            self.shards.order(&format!("hold volume {name}"), HOLD_LIMIT, || Order::HoldVolume(id));
        if let Err(error) = held {
            self.resume_volume(name)?;
            return Err(RunError::new(format!("{}: requests are still below", error.line()))
                .help("plateway status shows the disks; one that is stuck holds its volumes"));
        }
        Ok(())
    }

    /// A volume that was held is served again, under a new number: what is late for the old one
    /// finds nothing.
    pub(super) fn resume_volume(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        if !volume.quiesced {
            return Ok(());
        }
        let (layout, former) = (volume.layout.clone(), volume.id);
        let id = self.numbers.volume();
        self.store().forget(StoreKey::Reservation(former));
        let reservation = self.stored_reservation(&volume.config, volume.uuid, id)?;
        self.order(&format!("add volume {name} again"), || Order::AddVolume {
            volume: id,
            layout: layout.clone(),
            reservation: reservation.clone(),
        })?;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.id = id;
            volume.quiesced = false;
        }
        self.renew_exports_of(name)
    }

    /// Takes a volume apart that no export names.
    pub(super) fn remove_volume(&mut self, name: &str) -> Result<(), RunError> {
        self.quiesce_volume(name)?;
        let id = self.volume(name)?.id;
        let told = self.order(&format!("forget volume {name}"), || Order::ForgetVolume(id));
        if let Err(error) = told {
            self.resume_volume(name)?;
            return Err(error);
        }
        self.store().forget(StoreKey::Reservation(id));
        self.volumes.shift_remove(name);
        Ok(())
    }

    /// Gives a volume the size of `to`, or that of its disks; hosts get the event.
    pub(super) fn resize_volume(&mut self, to: &VolumeConfig) -> Result<(), RunError> {
        let name = &to.name;
        let Some(volume) = self.volumes.get_mut(name) else { return Ok(()) };
        let before = (volume.layout.clone(), volume.config.size_bytes);
        volume.config.size_bytes = to.size_bytes;
        self.renew_layout(name).and_then(|()| self.renew_exports_of(name)).inspect_err(|_| {
            // Some shards, and some hosts, have it already.
            let Some(volume) = self.volumes.get_mut(name) else { return };
            let id = volume.id;
            (volume.layout, volume.config.size_bytes) = before.clone();
            let _ = self.order(&format!("undo: resize volume {name}"), || Order::ResizeVolume {
                volume: id,
                layout: before.0.clone(),
            });
            let _ = self.renew_exports_of(name);
        })
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
