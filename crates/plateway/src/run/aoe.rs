//! AoE exports: a volume at a shelf.slot, with what initiators had set there before.
//!
//! An export has a number that is never used again, so that what is late for an old one finds nothing. It is taken away and added anew where its links or
//! its volume change; hosts, buffers and size change in place. Its config string and mask, and its volume's reservation, are loaded from the
//! state directory when it is added ([`stored`](super::stored)); the shards have them from then on, and tell what is to be stored.
//! Errors name the export and what was seen; whatever a failing step had begun is undone here before it is reported.

use ::aoe::{Control, Export, ExportId};
use shard::Order;
use uuid::Uuid;
use volume::Reservation;

use super::error::RunError;
use super::stored::Place;
use super::{Running, shape};
use crate::config::model::AoeExport;

/// An export that is answered.
#[derive(Debug)]
pub(super) struct OpenAoe {
    pub(super) id: ExportId,
    pub(super) config: AoeExport,
}

impl OpenAoe {
    fn is(&self, config: &AoeExport) -> bool {
        self.config.address == config.address && self.config.volume == config.volume
    }
}

impl Running {
    /// Answers at a shelf.slot.
    pub(super) fn add_aoe_export(&mut self, config: &AoeExport) -> Result<(), RunError> {
        if self.volume(&config.volume)?.held {
            // Its removal was begun and is being undone.
            self.revive_volume(&config.volume)?;
        }
        let what = format!("export {} as aoe {}", config.volume, config.address);
        let export = self.aoe_export(config)?;
        let volume = self.volume(&config.volume)?;
        let (control_at, reservation_at) = self.places(config, volume.uuid);
        let (control, reservation): (Control, Reservation) =
            (control_at.load()?, reservation_at.load()?);
        let id = self.numbers.export();
        self.shards.archive().put(id, control_at, volume.id, reservation_at);
        let added = self.order(&what, || Order::AddExport {
            id,
            export: Box::new(export.clone()),
            control: control.clone(),
            reservation: reservation.clone(),
        });
        if let Err(error) = added {
            // Shards that have it let go of it.
            self.order(&format!("undo: {what}"), || Order::RemoveExport(id))?;
            self.shards.archive().forget(id);
            return Err(error);
        }
        self.aoe.push(OpenAoe { id, config: config.clone() });
        self.args.aoe_exports.push(config.clone());
        Ok(())
    }

    /// Is silent at a shelf.slot from now on. Its volume is not held before: silence makes initiators ask again, errors would reach their users.
    pub(super) fn remove_aoe_export(&mut self, config: &AoeExport) -> Result<(), RunError> {
        let Some(at) = self.aoe.iter().position(|open| open.is(config)) else { return Ok(()) };
        let id = self.aoe[at].id;
        let what = format!("remove export {} as aoe {}", config.volume, config.address);
        self.order(&what, || Order::RemoveExport(id))?;
        self.aoe.remove(at);
        self.shards.archive().forget(id);
        let is_it =
            |other: &AoeExport| other.address == config.address && other.volume == config.volume;
        self.args.aoe_exports.retain(|other| !is_it(other));
        Ok(())
    }

    /// Other hosts, or other buffers.
    pub(super) fn change_aoe_export(&mut self, to: &AoeExport) -> Result<(), RunError> {
        let Some(at) = self.aoe.iter().position(|open| open.is(to)) else {
            return self.add_aoe_export(to);
        };
        self.renew(self.aoe[at].id, to)?;
        self.aoe[at].config = to.clone();
        let is_it =
            |other: &&mut AoeExport| other.address == to.address && other.volume == to.volume;
        if let Some(place) = self.args.aoe_exports.iter_mut().find(is_it) {
            *place = to.clone();
        }
        Ok(())
    }

    /// Tells initiators of a volume's size, by an announcement, which the target sends where something changed that they see.
    pub(super) fn renew_aoe_exports_of(&self, volume: &str) -> Result<(), RunError> {
        let mine = self.aoe.iter().filter(|open| open.config.volume == volume);
        mine.into_iter().try_for_each(|open| self.renew(open.id, &open.config))
    }

    fn renew(&self, id: ExportId, config: &AoeExport) -> Result<(), RunError> {
        let export = self.aoe_export(config)?;
        self.order(&format!("renew aoe {}", config.address), || Order::RenewExport {
            id,
            export: Box::new(export.clone()),
        })
    }

    fn aoe_export(&self, config: &AoeExport) -> Result<Export, RunError> {
        let volume = self.volume(&config.volume)?;
        let parts = self.parts(&volume.config)?;
        let links = self.serving_links(config.links())?;
        shape::aoe_export(
            config,
            &links,
            &volume.config,
            volume.id,
            volume.uuid,
            &volume.layout,
            &parts,
        )
    }

    /// Where the values of an export are stored.
    fn places(&self, config: &AoeExport, uuid: Uuid) -> (Place, Place) {
        let (state, volume) = (&self.state, &config.volume);
        let control = Place::of_control(state, &uuid, config.address, volume);
        let reservation = Place::of_reservation(state, &uuid, volume);
        let archive = self.shards.archive();
        match self.is_lasting(volume) {
            true => (control, reservation),
            false => (archive.in_memory(control), archive.in_memory(reservation)),
        }
    }

    /// Whether a volume has the same identity after a restart.
    fn is_lasting(&self, volume: &str) -> bool {
        let Some(volume) = self.volumes.get(volume) else { return false };
        let is_known = |disk: &String| {
            let disk = self.disks.get(disk);
            disk.is_some_and(|disk| super::identity::backing(&disk.config.uri).is_some())
        };
        let members = volume.config.layout.disks();
        volume.config.uuid.is_some() || members.iter().all(is_known)
    }
}
