//! Reservations of volumes: loaded from the state directory when a volume is added
//! ([`store`](super::store)), shown by `status`, and freed by a person where whoever holds one is
//! not there any more to release it.

use block::VolumeId;
use shard::{Order, Report};

use super::Running;
use super::error::RunError;
use crate::control::status;

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
        let Some(held) = reservation_of(id, &reports) else {
            return Ok(format!("volume {name} has no reservation: nothing was done"));
        };
        let was = format!("{}, held by {}", held.kind, held.holders.join(", "));
        self.order(&format!("clear the reservation of volume {name}"), || {
            Order::ClearReservation(id)
        })?;
        Ok(format!("volume {name} is free for every host; its reservation was {was}"))
    }
}

/// Who holds a volume, if somebody does.
pub(super) fn reservation_of(volume: VolumeId, reports: &[Report]) -> Option<status::Reservation> {
    // Every shard has a copy.
    let (_, held) = reports.first()?.reservations.iter().find(|(other, _)| *other == volume)?;
    Some(status::Reservation {
        kind: held.kind()?.name().to_owned(),
        holders: held.holders().map(|who| who.to_string()).collect(),
        registrants: held.registrants().map(|who| who.to_string()).collect(),
    })
}
