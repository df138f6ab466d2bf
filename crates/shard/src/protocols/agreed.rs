//! What all shards agree on and protocols have a part in: reservations, states of paths, and what hosts
//! set of exports; who asked, who is told, and what a restart must not forget.
//!
//! Values of one protocol (AoE's config strings and masks) are its own to decide; reservations and
//! paths are the shard's, which polls what hosts ask for and hands back what became of it.

use ::aoe::{Control, ExportId};
use block::VolumeId;
use reservation::{Consequences, PathChange, PathGroup, Paths, Reservation, SetBy, replica};

use super::Protocols;

/// Which value is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKey {
    /// The config string and mask of an export.
    AoeControl(ExportId),
    /// The reservation of a volume.
    Reservation(VolumeId),
    /// The states of the groups of listeners.
    Paths,
}

/// A value that is to be stored, as a line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredValue {
    AoeControl(Control),
    Reservation(Reservation),
    Paths(Paths),
}

/// A change of a reservation or of paths that a protocol proposed in a host's name, by a number of
/// its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proposal {
    Aoe(u64),
    Iscsi(u64),
    Nvme(u64),
}

impl Protocols {
    /// A value that is to be stored, and its version; answered by
    /// [`handle_stored`](Self::handle_stored).
    #[inline]
    pub(crate) fn poll_store(&mut self) -> Option<(StoreKey, u64, StoredValue)> {
        let store = &mut self.aoe.controls.outbox.store;
        let (export, version, value) = (!store.is_empty()).then(|| store.remove(0))?;
        Some((StoreKey::AoeControl(ExportId(export)), version, StoredValue::AoeControl(value)))
    }

    /// A value was stored, or could not be. Reservations and paths are not the protocols'.
    pub(crate) fn handle_stored(&mut self, key: StoreKey, version: u64, stored: bool) {
        match key {
            StoreKey::AoeControl(export) => self.aoe().handle_stored(export, version, stored),
            StoreKey::Reservation(_) | StoreKey::Paths => unreachable!("{key:?} is the shard's"),
        }
    }

    /// Carries what targets ask of their like on all shards, and its answers.
    #[inline]
    pub(crate) fn propose(&mut self) {
        self.aoe.propose();
    }

    /// A change of a reservation; answered by
    /// [`handle_reservation_answer`](Self::handle_reservation_answer).
    pub(crate) fn poll_reservation_change(
        &mut self,
    ) -> Option<(VolumeId, Proposal, reservation::Change)> {
        if let Some((volume, number, change)) = self.nvme.poll_reservation_change() {
            return Some((volume, Proposal::Nvme(number), change));
        }
        if let Some((volume, number, change)) = self.iscsi.poll_reservation_change() {
            return Some((volume, Proposal::Iscsi(number), change));
        }
        let (volume, number, change) = self.aoe.changes.pop_front()?;
        Some((volume, Proposal::Aoe(number), change))
    }

    pub(crate) fn handle_reservation_answer(
        &mut self,
        proposal: Proposal,
        answer: replica::Answer<reservation::Verdict, Reservation>,
    ) {
        match proposal {
            Proposal::Aoe(number) => {
                self.aoe().target.handle_reservation_answer(number, answer);
            }
            Proposal::Iscsi(number) => self.iscsi.handle_reservation_answer(number, answer),
            Proposal::Nvme(number) => self.nvme.handle_reservation_answer(number, &answer),
        }
    }

    /// Groups of listeners that are to be in other states; answered by
    /// [`handle_path_answer`](Self::handle_path_answer).
    pub(crate) fn poll_path_change(&mut self) -> Option<(Proposal, PathChange)> {
        let (number, change) = self.iscsi.poll_path_change()?;
        Some((Proposal::Iscsi(number), change))
    }

    pub(crate) fn handle_path_answer(
        &mut self,
        proposal: Proposal,
        answer: &replica::Answer<(), Paths>,
    ) {
        match proposal {
            Proposal::Iscsi(number) => self.iscsi.handle_path_answer(number, answer),
            Proposal::Aoe(_) | Proposal::Nvme(_) => {
                unreachable!("{proposal:?}: its hosts set no states")
            }
        }
    }

    /// Groups of listeners are in other states here, and who set them: hosts are told.
    pub(crate) fn paths_changed(&mut self, changed: &[(PathGroup, SetBy)]) {
        self.nvme.paths_changed(changed);
        self.iscsi.paths_changed(changed);
    }

    /// A change of a volume's reservation is in force here, and did this to others than the one who
    /// asked for it: who is to be told is told, and whose commands are ended starts none that waits.
    pub(crate) fn reservation_changed(&mut self, volume: VolumeId, consequences: &Consequences) {
        self.nvme.reservation_changed(volume, consequences);
        self.iscsi.reservation_changed(volume, consequences);
    }
}
