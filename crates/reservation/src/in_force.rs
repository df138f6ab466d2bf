//! The reservations in force on a shard, as every command asks for them.
//!
//! By the number of the volume, and only of volumes that are held: where none is, the list is
//! empty, and asking is one comparison. Volumes where somebody is but registered are in a list of
//! their own, which no command asks.

use block::{IdMap, VolumeId};

use crate::state::{Access, Registrant, Reservation};

/// What is in force on a shard.
#[derive(Debug, Default)]
pub struct InForce {
    held: IdMap<Box<Reservation>>,
    /// Of volumes that are free, also of those where nobody is registered any more: generations
    /// count on.
    registered: IdMap<Box<Reservation>>,
}

impl InForce {
    /// Whether somebody may do this with a volume now; nobody in particular is a stranger to every
    /// reservation.
    #[inline]
    pub fn allows(&self, volume: VolumeId, who: Option<Registrant>, access: Access) -> bool {
        self.held(volume).is_none_or(|reservation| reservation.allows(who, access))
    }

    /// The reservation of a volume that is held.
    #[inline]
    pub fn held(&self, volume: VolumeId) -> Option<&Reservation> {
        Some(self.held.get(volume.0)?)
    }

    /// The reservation of a volume that is held, or where somebody is or was registered.
    pub fn get(&self, volume: VolumeId) -> Option<&Reservation> {
        self.held(volume).or_else(|| Some(self.registered.get(volume.0)?))
    }

    /// The volumes of which there is something to say.
    pub fn iter(&self) -> impl Iterator<Item = (VolumeId, &Reservation)> {
        let both = self.held.iter().chain(self.registered.iter());
        let both = both.filter(|(_, reservation)| !reservation.is_empty());
        both.map(|(volume, reservation)| (VolumeId(volume), &**reservation))
    }

    /// From now on this is the reservation of a volume.
    pub fn set(&mut self, volume: VolumeId, reservation: Reservation) {
        self.held.remove(volume.0);
        self.registered.remove(volume.0);
        if !reservation.is_free() {
            self.held.insert(volume.0, Box::new(reservation));
        } else if !reservation.is_empty() || reservation.generation() > 0 {
            self.registered.insert(volume.0, Box::new(reservation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Guard, Value};

    fn changed(held: &Reservation, change: Change) -> Reservation {
        held.apply(&change).0.expect("it is another")
    }

    fn listed(held: &Reservation, list: &[[u8; 6]]) -> Reservation {
        changed(held, Change::ForceList { list: list.iter().map(|mac| (*mac).into()).collect() })
    }

    #[test]
    fn a_volume_is_everybodys_until_it_is_held_and_once_it_is_free_again() {
        let mac = [2, 0, 0, 0, 0, 1];
        let (ours, other) = (Registrant::Mac(mac), Registrant::NvmeHost([1; 16]));
        let mut in_force = InForce::default();
        let may =
            |in_force: &InForce, volume, who| in_force.allows(VolumeId(volume), who, Access::Write);
        assert!(may(&in_force, 3, None));
        let held = listed(&Reservation::default(), &[mac]);
        in_force.set(VolumeId(3), held.clone());
        in_force.set(VolumeId(9), Reservation::default());
        assert!(
            may(&in_force, 3, Some(ours)) && may(&in_force, 2, None) && may(&in_force, 9, None)
        );
        assert!(!may(&in_force, 3, Some(other)) && !may(&in_force, 3, None));
        assert_eq!(in_force.iter().collect::<Vec<_>>(), [(VolumeId(3), &held)]);
        let free = listed(&held, &[]);
        in_force.set(VolumeId(3), free.clone());
        assert!(may(&in_force, 3, None) && in_force.iter().next().is_none());
        assert_eq!(in_force.get(VolumeId(3)).map(Reservation::generation), Some(2));
        // Who is but registered is known, and keeps nobody out.
        let by = ours.into();
        let register = Change::Register {
            by,
            guard: Guard::Any,
            key: 1,
            also: Vec::new(),
            ports: Vec::new(),
            persists: None,
        };
        let registered = changed(&free, register);
        in_force.set(VolumeId(3), registered.clone());
        assert!(may(&in_force, 3, Some(other)) && in_force.held(VolumeId(3)).is_none());
        assert_eq!(in_force.get(VolumeId(3)), Some(&registered));
        in_force.set(VolumeId(3), held.clone());
        assert_eq!(in_force.get(VolumeId(3)), Some(&held));
        assert_eq!(in_force.iter().count(), 1);
    }
}
