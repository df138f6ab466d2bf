//! The reservations in force on a shard, as every command asks for them.
//!
//! By the number of the volume, and only of volumes that are held: where none is, the list is
//! empty, and asking is one comparison.

use block::{IdMap, VolumeId};

use crate::state::{Access, Registrant, Reservation};

/// What is in force on a shard.
#[derive(Debug, Default)]
pub struct InForce {
    held: IdMap<Box<Reservation>>,
}

impl InForce {
    /// Whether somebody may do this with a volume now; nobody in particular is a stranger to every
    /// reservation.
    #[inline]
    pub fn allows(&self, volume: VolumeId, who: Option<Registrant>, access: Access) -> bool {
        self.get(volume).is_none_or(|reservation| reservation.allows(who, access))
    }

    /// The reservation of a volume that is held.
    #[inline]
    pub fn get(&self, volume: VolumeId) -> Option<&Reservation> {
        Some(self.held.get(volume.0)?)
    }

    /// The volumes that are held.
    pub fn iter(&self) -> impl Iterator<Item = (VolumeId, &Reservation)> {
        self.held.iter().map(|(volume, held)| (VolumeId(volume), &**held))
    }

    /// From now on this is the reservation of a volume.
    pub fn set(&mut self, volume: VolumeId, reservation: Reservation) {
        match reservation.is_free() {
            true => self.held.remove(volume.0),
            false => self.held.insert(volume.0, Box::new(reservation)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_everybodys_until_it_is_held_and_once_it_is_free_again() {
        let (ours, other) = (Registrant::Mac([2, 0, 0, 0, 0, 1]), Registrant::NvmeHost([1; 16]));
        let mut in_force = InForce::default();
        let may =
            |in_force: &InForce, volume, who| in_force.allows(VolumeId(volume), who, Access::Write);
        assert!(may(&in_force, 3, None));
        let held = Reservation::default().listed(&[ours]).expect("it is another");
        in_force.set(VolumeId(3), held.clone());
        in_force.set(VolumeId(9), Reservation::default());
        assert!(
            may(&in_force, 3, Some(ours)) && may(&in_force, 2, None) && may(&in_force, 9, None)
        );
        assert!(!may(&in_force, 3, Some(other)) && !may(&in_force, 3, None));
        assert_eq!(in_force.iter().collect::<Vec<_>>(), [(VolumeId(3), &held)]);
        in_force.set(VolumeId(3), held.listed(&[]).expect("it is another"));
        assert!(may(&in_force, 3, None) && in_force.iter().next().is_none());
    }
}
