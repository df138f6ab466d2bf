//! Who proposed a change of a value that all shards hold, and is answered when it is decided.

use block::{Slot, Table};

use crate::protocols::Proposal;

/// Who proposed a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proposer {
    Protocol(Proposal),
    /// The order of this number.
    Order(u64),
}

/// Those whose proposals are under way, by the number of each.
#[derive(Debug, Default)]
pub(super) struct Proposers(Table<Proposer>);

impl Proposers {
    /// The number of a new proposal.
    pub(super) fn add(&mut self, by: Proposer) -> u64 {
        let Slot { index, generation } = self.0.insert(by);
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Whose proposal was decided. Panics for one that is not under way.
    pub(super) fn take(&mut self, number: u64) -> Proposer {
        let slot = Slot { index: number as u32, generation: (number >> 32) as u32 };
        self.0.remove(slot).expect("a proposal is answered once")
    }
}
