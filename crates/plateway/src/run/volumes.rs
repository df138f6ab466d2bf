//! Volumes: looked at, assembled, resized and taken apart, each as orders to all shards.
//!
//! A volume is quiesced before it is removed: no shard starts anything new on it, and when what is
//! in flight has come back on all of them, it is forgotten. Errors name the object; whatever a
//! failing step had begun is undone here before it is reported. Units: bytes.

use std::time::Duration;

use ::volume::assemble::{Found, is_member};
use ::volume::label::Label;
use ::volume::{Layout, Member};
use block::VolumeId;
use reservation::Reservation;
use shard::{Order, StoreKey};
use uuid::Uuid;

use super::error::RunError;
use super::identity::Identities;
use super::labels::{self, Due, Set};
use super::look::{self, Inventory};
use super::shape::{self, Part};
use super::store::Place;
use super::{OpenDisk, OpenVolume, Running};
use crate::config::disk::disk_title;
use crate::config::uri::check_name;
use crate::config::volume::VolumeConfig;
use crate::log::Event;

/// How long what is in flight may take to come back when a volume is removed.
const QUIESCE_LIMIT: Duration = Duration::from_secs(30);

/// What was seen of a volume, as far as a look came.
#[derive(Debug, Default)]
pub(crate) struct VolumeSight {
    /// What would be done with it, in a few words.
    pub(crate) words: String,
    /// None where it is to be drawn, or not known.
    pub(crate) uuid: Option<Uuid>,
    /// What is on each member that should carry a label, or why that is not known.
    pub(crate) members: Vec<Result<Found, &'static str>>,
    /// What the labels come to; none of a volume without labels.
    pub(crate) set: Option<Set>,
    /// What `--overwrite` gives up on the disk of a volume without labels.
    given_up: Option<String>,
    /// None where not all that it takes is known.
    pub(crate) layout: Option<Layout>,
}

impl VolumeSight {
    /// Looks at a volume over disks that were looked at, or are open.
    pub(crate) fn look(
        &mut self,
        config: &VolumeConfig,
        inventory: &impl Inventory,
    ) -> Result<(), RunError> {
        self.uuid = config.uuid;
        let mut members = Vec::new();
        for name in config.layout.disks() {
            let Some(member) = inventory.member(name) else {
                let is_failed =
                    inventory.served().is_some_and(|served| served.failed.contains_key(name));
                let why = if is_failed { "failed" } else { "refused" };
                self.words = format!("waits for disk {name}, which is {why}");
                return Ok(());
            };
            members.push(member);
        }
        let is_served = inventory.served().is_some_and(|one| one.args.volumes.contains(config))
            && members.iter().all(|disk| disk.is_served);
        let parts: Vec<Part> = members.iter().filter_map(|disk| disk.part.clone()).collect();
        shape::check_blocks(config, &parts)?;
        match labels::set_label(config, config.uuid.unwrap_or_default()) {
            None => self.name(config, &members[0], is_served, inventory)?,
            Some(label) => {
                let disks = config.layout.disks().iter();
                let found = disks.map(|disk| inventory.examine(config, disk));
                self.members = found.collect::<Result<_, RunError>>()?;
                let Ok(found) = self.members.iter().cloned().collect::<Result<Vec<_>, _>>() else {
                    self.words = "its labels are not all known".to_owned();
                    return Ok(());
                };
                let overwrite = inventory.overwrites(&config.name);
                let set = labels::judge(config, label, &members, &found, overwrite)?;
                self.words = words_of(&set.due, is_served).to_owned();
                self.uuid = set.uuid;
                self.set = Some(set);
            }
        }
        // Where labels tell of it, they did: what is said of the set is said first.
        if let Some(lost) = members.iter_mut().find_map(|member| member.lost.take())
            && !inventory.overwrites(&config.name)
        {
            return Err(lost);
        }
        if parts.len() == members.len() {
            let lengths = self.set.as_ref().map(|set| &*set.lengths);
            self.layout = Some(shape::layout(config, &parts, lengths)?);
        }
        if let Some(uuid) = self.uuid.filter(|_| !is_served) {
            let place = Place::of_reservation(inventory.state(), &config.name, uuid);
            place.load::<Reservation>()?;
        }
        match self.uuid.and_then(|uuid| inventory.volume_with(uuid)) {
            Some(twin) => Err(shape::same_identity(config, twin)),
            None => Ok(()),
        }
    }

    /// What becomes of the identity of a volume without labels.
    fn name(
        &mut self,
        config: &VolumeConfig,
        disk: &look::Member,
        is_served: bool,
        inventory: &impl Inventory,
    ) -> Result<(), RunError> {
        let words = match &disk.backing {
            _ if is_served => "served now",
            Some(_) if config.uuid.is_some() => {
                self.refuse_member(config, inventory)?;
                "under the uuid of the configuration"
            }
            None if config.uuid.is_some() => "under the uuid of the configuration",
            None => "under a new identity",
            Some(backing) => {
                let identities = Identities::new(inventory.state());
                self.uuid = identities.stored(backing, &config.name)?;
                match self.uuid {
                    Some(_) => "under its stored identity",
                    None => {
                        self.refuse_member(config, inventory)?;
                        "under a new identity"
                    }
                }
            }
        };
        self.words = words.to_owned();
        Ok(())
    }

    /// Refuses to serve a member of a set alone, whose hosts would destroy the set. One that is
    /// known as a volume of its own, or that the configuration gives an identity of its own,
    /// carries a label of whoever uses that volume.
    fn refuse_member(
        &mut self,
        config: &VolumeConfig,
        inventory: &impl Inventory,
    ) -> Result<(), RunError> {
        // What no configuration can name is `bench` or `copy`, which have rules of their own.
        if check_name(&config.name).is_err() {
            return Ok(());
        }
        let (name, disk) = (&config.name, &config.layout.disks()[0]);
        let found = inventory.examine(config, disk)?.unwrap_or(Found::Blank);
        let Found::Label(label) = &found else { return Ok(()) };
        if config.uuid.is_some_and(|uuid| uuid != Uuid::from_bytes(label.set.uuid)) {
            return Ok(());
        }
        if inventory.overwrites(name) {
            let line =
                format!("volume {name}: disk {disk}: --overwrite gives up what it held: {found}");
            self.given_up = Some(line);
            return Ok(());
        }
        let layout = label.set.layout;
        Err(RunError::new(format!(
            "volume {name}: disk {disk}: expected a disk that is no member of a set, seen a member of {found}"
        ))
        .help(format!(
            "serve the set: a [[volume]] with layout = \"{layout}\" and all of its disks; where the set is given up, \
             --overwrite {name} serves this disk alone from now on"
        ))
        .key(disk_title(disk)))
    }

    /// Whether a label that was found is that of the member at `index`: members are held against
    /// the identity that is given, or that of the first label.
    pub(crate) fn is_ours(&self, config: &VolumeConfig, index: usize, label: &Label) -> bool {
        let first = self.members.iter().find_map(|found| match found {
            Ok(Found::Label(label)) => Some(Uuid::from_bytes(label.set.uuid)),
            _ => None,
        });
        let uuid = config.uuid.or(first).unwrap_or_default();
        labels::set_label(config, uuid)
            .is_some_and(|wanted| is_member(label, index, &wanted, uuid.as_bytes()))
    }
}

fn words_of(due: &Due, is_served: bool) -> &'static str {
    match due {
        Due::Nothing if is_served => "served now",
        Due::Nothing => "would be assembled, its labels match",
        Due::GoOn => "its labelling was interrupted and would go on",
        Due::Form(held) if held.is_empty() => "its disks are blank and would be labelled",
        Due::Form(_) => "its disks would be labelled anew: all that they hold is given up",
    }
}

impl Running {
    /// Assembles a volume, labelling or naming it where that is due.
    pub(super) fn add_volume(&mut self, config: &VolumeConfig) -> Result<(), RunError> {
        let parts = self.parts(config)?;
        let mut sight = VolumeSight::default();
        sight.look(config, self)?;
        let layout = sight.layout.expect("all is known of disks that are open");
        let uuid = match (sight.uuid, &sight.set) {
            (Some(uuid), _) => uuid,
            (None, Some(_)) => Uuid::new_v4(),
            (None, None) => self.new_identity(config)?,
        };
        if let Some(line) = sight.given_up {
            Event::warn(&*line).volume(&config.name).tell();
            self.overwritten.push(line);
        }
        let labelled = sight.set.map(|set| self.label(&parts, uuid, set)).transpose()?;
        let id = VolumeId(self.numbers.volume.next());
        let key = StoreKey::Reservation(id);
        let place = Place::of_reservation(self.state.clone(), &config.name, uuid);
        let reservation: Reservation = self.stored(config, key, place)?;
        let told = self.order(&format!("add volume {}", config.name), || Order::AddVolume {
            volume: id,
            layout: layout.clone(),
            reservation: reservation.clone(),
        });
        told.inspect_err(|_| {
            drop(self.drop_volume(id, &config.name));
            self.store().forget(key);
        })?;
        let volume =
            OpenVolume { id, config: config.clone(), layout, uuid, labelled, quiesced: false };
        self.volumes.insert(config.name.clone(), volume);
        config.layout.disks().iter().for_each(|disk| self.note_disk(disk));
        Ok(())
    }

    /// Draws the identity of a volume without labels, and stores it where its blocks outlive this
    /// process.
    fn new_identity(&mut self, config: &VolumeConfig) -> Result<Uuid, RunError> {
        let disk = config.layout.disks().first().and_then(|disk| self.disks.get_mut(disk));
        let backing = disk.as_ref().and_then(|disk| disk.backing.clone());
        let (Some(disk), Some(backing)) = (disk, backing) else { return Ok(Uuid::new_v4()) };
        let identities = Identities::new(self.state.clone());
        let uuid = identities.of(&backing, &config.name, disk.fresh)?;
        // From now on they are known by it.
        disk.fresh = false;
        Ok(uuid)
    }

    /// Labels the members where that is due. Returns the lengths of their data.
    fn label(&mut self, parts: &[Part], uuid: Uuid, mut set: Set) -> Result<Vec<u64>, RunError> {
        match std::mem::replace(&mut set.due, Due::Nothing) {
            Due::Nothing => return Ok(set.lengths),
            Due::GoOn => {}
            Due::Form(overwritten) => {
                // Told before it is done: whatever happens then, somebody can know what was there.
                let told = overwritten.iter().map(|line| Event::warn(line).volume(&set.label.name));
                told.for_each(Event::tell);
                self.overwritten.extend(overwritten);
                // None of them is a volume of its own any more.
                let identities = Identities::new(self.state.clone());
                let backings =
                    parts.iter().filter_map(|part| self.disks[&part.name].backing.as_ref());
                for backing in backings {
                    identities.forget_volume(&set.label.name, backing)?;
                }
            }
        }
        set.label.uuid = uuid.into_bytes();
        let wholes = parts.iter().map(|part| self.whole(part));
        let wholes: Vec<VolumeId> = wholes.collect::<Result<_, _>>()?;
        let members: Vec<(&Part, VolumeId)> = parts.iter().zip(wholes).collect();
        let formed = labels::form(&self.shards, &members, &set);
        for (part, whole) in members {
            self.drop_volume(whole, &part.name)?;
        }
        formed.map(|()| set.lengths)
    }

    /// A volume over the whole of a disk, for the control thread's own use.
    pub(super) fn whole(&self, part: &Part) -> Result<VolumeId, RunError> {
        let Part { name, disk, facts } = part;
        let volume = VolumeId(self.numbers.volume.next());
        let layout = Layout::single(Member { disk: *disk, base: 0, length: facts.size.0 });
        self.order(&format!("examine disk {name}"), || Order::AddVolume {
            volume,
            layout: layout.clone(),
            reservation: Reservation::default(),
        })?;
        Ok(volume)
    }

    /// Takes away a volume that is [`whole`](Self::whole).
    pub(super) fn drop_volume(&self, volume: VolumeId, name: &str) -> Result<(), RunError> {
        self.shards
            .order(&format!("quiesce {name}"), QUIESCE_LIMIT, || Order::QuiesceVolume(volume))?;
        self.order(&format!("forget {name}"), || Order::ForgetVolume(volume))
    }

    /// Lets nothing new go to a volume and waits for what is in flight.
    pub(super) fn quiesce_volume(&mut self, name: &str) -> Result<(), RunError> {
        let volume = self.volume(name)?;
        if volume.quiesced {
            return Ok(());
        }
        let id = volume.id;
        let quiesced = self
            .shards
            .order(&format!("quiesce volume {name}"), QUIESCE_LIMIT, || Order::QuiesceVolume(id));
        if let Err(error) = quiesced {
            let mut said = format!("{}: requests are still in flight", error.line());
            if let Err(why) = self.resume_volume(name) {
                said += &format!("; and it cannot be served again: {}", why.line());
            }
            return Err(RunError::new(said)
                .help("plateway status shows the disks; one that is stuck holds its volumes"));
        }
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.quiesced = true;
        }
        Ok(())
    }

    /// A volume that was quiesced, or was to be, is served again. It keeps its number: what is
    /// still in flight belongs to it, and a reservation awaits it.
    pub(super) fn resume_volume(&mut self, name: &str) -> Result<(), RunError> {
        let OpenVolume { config, id, uuid, layout, .. } = self.volume(name)?;
        let (volume, layout) = (*id, layout.clone());
        let place = Place::of_reservation(self.state.clone(), name, *uuid);
        let reservation: Reservation = self.stored(config, StoreKey::Reservation(volume), place)?;
        self.order(&format!("resume volume {name}"), || Order::ResumeVolume {
            volume,
            layout: layout.clone(),
            reservation: reservation.clone(),
        })?;
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.quiesced = false;
        }
        Ok(())
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
    pub(super) fn renew_layout(&mut self, name: &str) -> Result<(), RunError> {
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
        let part = |name: &String| self.disk(name).map(OpenDisk::part);
        config.layout.disks().iter().map(part).collect()
    }
}
