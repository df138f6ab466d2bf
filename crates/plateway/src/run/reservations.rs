//! Reservations of volumes: loaded from the state directory when a volume is added
//! ([`store`](super::store)), shown by `status`, and freed by a person where whoever holds one is
//! not there any more to release it.

use block::VolumeId;
use reservation::{Kind, Registration};
use shard::{Order, Report};

use super::Running;
use super::error::RunError;
use crate::control::status;
use crate::protocols;

impl Running {
    /// Frees a volume, whoever holds it. Returns what was done.
    pub(crate) fn clear_reservation(&mut self, name: &str) -> Result<String, RunError> {
        let Some(volume) = self.volumes.get(name) else {
            let known: Vec<&str> = self.volumes.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none" } else { &known.join(", ") };
            return Err(RunError::new(format!("volume {name}: no such volume; there are {known}")));
        };
        let id = volume.id;
        let reports = self.shards.reports()?;
        let Some(held) = self.reservation_of(id, &reports) else {
            return Ok(format!("volume {name} has no reservation: nothing was done"));
        };
        let was = match held.holders.is_empty() {
            true => format!("held by nobody, with {} registered", held.registrants.join(", ")),
            false => format!("{}, held by {}", held.kind, held.holders.join(", ")),
        };
        self.order(&format!("clear the reservation of volume {name}"), || {
            Order::ClearReservation(id)
        })?;
        Ok(format!("volume {name} is free for every host; its reservation was {was}"))
    }

    /// Who holds a volume or is registered, if somebody is.
    pub(super) fn reservation_of(
        &self,
        volume: VolumeId,
        reports: &[Report],
    ) -> Option<status::Reservation> {
        // Every shard has a copy.
        let (_, held) = reports.first()?.reservations.iter().find(|(other, _)| *other == volume)?;
        let kind = held.kind().map(Kind::name);
        let mut holders: Vec<String> = held.holders().map(name_of).collect();
        let session = held.hold().map(|hold| {
            // It lasts as long as the session, which has a name.
            let name = self.name_of_registrant(hold.by);
            let name = name.or_else(|| protocols::registrant_name(hold.by, reports));
            holders.push(name.unwrap_or_else(|| hold.by.to_string()));
        });
        Some(status::Reservation {
            kind: session.map(|()| SESSION).or(kind).unwrap_or(NONE).to_owned(),
            holders,
            registrants: held.registrants().iter().map(name_of).collect(),
            persists: held.persists(),
        })
    }
}

/// What the reservation of RESERVE(6) is called.
const SESSION: &str = "exclusive-access-session";
/// The kind where hosts are registered and none holds the volume.
const NONE: &str = "none";

/// What people call a registrant: what it calls itself, or as its protocol knows it.
fn name_of(one: &Registration) -> String {
    one.name.as_deref().map_or_else(|| one.id.to_string(), str::to_owned)
}
