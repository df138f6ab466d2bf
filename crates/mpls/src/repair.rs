//! Local repair: what a router beside a failed link does at once, and asks nobody.
//!
//! An NHLFE may have a backup: another NHLFE, by another link, whose labels lead around what failed.
//! On top is the bypass, then what the router at its end, the merge point, knows the packet by:
//!
//! ```text
//!   NHLFE [200]   ------------ 200 -----------> B     its next hop is Up
//!   backup [900, 200]  --- 900 200 ---> D -- 200 ---> B     Failed; Waiting: up again, not long enough
//! ```
//! Which one is taken is decided by the next hop, not by the NHLFE: one change moves however many
//! share it, and while all next hops are Up a packet asks for nothing but that. Who knows that one is
//! not is `forwarder::neighbour`; one whose address is not known now is Failed for as long as that. A
//! backup whose own next hop is Failed, or that is not there, is not taken, and backups of backups are
//! not looked at. Units: none. No errors. Spec: RFC 4090 clause 3.2 (facility backup) and clause 6.4.3
//! (its labels), configured where that has RSVP.

use block::{IdMap, planted};
use contract::{LinkId, MacAddress};

use crate::nhlfe::{NextHop, NhlfeId, NhlfeState};
use crate::protection::Way;

/// Whether packets may go to a next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopState {
    #[default]
    Up,
    /// It is up again, and packets that have a backup stay there for a while.
    Waiting,
    Failed,
}

/// The next hops of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hops {
    /// All but those that are named.
    pub others: HopState,
    pub named: Vec<(MacAddress, HopState)>,
}

impl Hops {
    fn state_of(&self, mac: Option<MacAddress>) -> HopState {
        let named = self.named.iter().find(|(named, _)| Some(*named) == mac);
        named.map_or(self.others, |(_, state)| *state)
    }

    fn are_up(&self) -> bool {
        let mut states = self.named.iter().map(|(_, state)| *state).chain([self.others]);
        states.all(|state| state == HopState::Up)
    }
}

/// The backups of a router, and which next hops they are for now.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// By the NHLFE whose backup it is.
    backups: IdMap<NhlfeId>,
    /// Of ports of which not all are Up.
    hops: IdMap<Hops>,
    /// How many these are, and NHLFEs whose next hop is not resolved: while there is none, every NHLFE
    /// is taken itself.
    amiss: u32,
}

impl Repairs {
    pub(crate) fn set_backup(&mut self, id: NhlfeId, backup: Option<NhlfeId>) {
        match backup {
            Some(backup) => drop(self.backups.insert(id.0, backup)),
            None => drop(self.backups.remove(id.0)),
        }
    }

    pub(crate) fn set_hops(&mut self, port: LinkId, hops: Hops) {
        let before = match hops.are_up() {
            true => self.hops.remove(port.0),
            false => {
                self.amiss += 1;
                self.hops.insert(port.0, hops)
            }
        };
        self.amiss -= u32::from(before.is_some());
    }

    /// Of one NHLFE it is known at which address its next hop is, or no longer.
    pub(crate) fn set_resolved(&mut self, was_unresolved: bool, is_unresolved: bool) {
        self.amiss += u32::from(is_unresolved);
        self.amiss -= u32::from(was_unresolved);
    }

    pub(crate) fn has_backups(&self) -> bool {
        !self.backups.is_empty()
    }

    pub(crate) fn backup_of(&self, id: NhlfeId) -> Option<NhlfeId> {
        self.backups.get(id.0).copied()
    }

    /// The NHLFE by which packets of this one go now.
    #[inline]
    pub(crate) fn taken(&self, nhlfes: &IdMap<NhlfeState>, id: NhlfeId) -> NhlfeId {
        if self.amiss == 0 { id } else { self.around(nhlfes, id) }
    }

    /// Which of the two that is.
    pub(crate) fn way(&self, nhlfes: &IdMap<NhlfeState>, id: NhlfeId) -> Way {
        if self.taken(nhlfes, id) == id { Way::Primary } else { Way::Backup }
    }

    #[cold]
    fn around(&self, nhlfes: &IdMap<NhlfeState>, id: NhlfeId) -> NhlfeId {
        let Some(backup) = self.backup_of(id) else { return id };
        let state = |id: NhlfeId| {
            let to: NextHop = nhlfes.get(id.0)?.nhlfe.next_hop;
            if to.is_unresolved() {
                return Some(HopState::Failed);
            }
            Some(self.hops.get(to.port.0).map_or(HopState::Up, |hops| hops.state_of(to.mac())))
        };
        // One whose port was never up is not there.
        let is_needed = state(id) != Some(HopState::Up);
        let has_failed = state(backup).is_none_or(|state| state == HopState::Failed);
        if is_needed && (!has_failed || planted("failed-backup-is-taken")) { backup } else { id }
    }
}
