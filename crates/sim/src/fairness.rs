//! Fairness under load, looked at after every settle of every shard: who waits for memory is not
//! forgotten, and is not overtaken for long.
//!
//! A session that waits and holds nothing of its class is served before whoever comes later. Those
//! before it in line are served once, each with what its peer may have outstanding at most, and then
//! stand behind it. So the pool's grants of the class while it waits are bounded by that, whatever
//! load there is and whoever makes it.

use std::collections::BTreeMap;

use block::Slot;
use shard::{Shard, Waiter};

/// What is known of a shard's waiters.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    /// The grants of its class that each waiter must be served by.
    limits: BTreeMap<(usize, Slot), u64>,
}

impl Fairness {
    /// Looks at a shard that was just settled.
    pub(crate) fn check(&mut self, shard: &mut Shard) {
        let (waiters, granted) = shard.check_lines();
        let before = core::mem::take(&mut self.limits);
        let mut ahead = [0; 2];
        for Waiter { slot, class, holds, entries } in waiters {
            let key = (class, slot);
            // Its own buffers come back first.
            if !holds {
                let limit = before.get(&key).copied().unwrap_or(granted[class] + ahead[class]);
                assert!(
                    granted[class] <= limit,
                    "{slot:?} waits for memory and was overtaken by {} grants too many",
                    granted[class] - limit
                );
                self.limits.insert(key, limit);
            }
            ahead[class] += u64::from(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::run::run_seed;

    #[test]
    fn who_waits_for_memory_is_served_in_its_turn_under_load() {
        let mut waits = 0;
        for seed in 0..12 {
            let passed = run_seed(seed, Some("line"), None).expect("a fair line");
            waits += passed.did.nvme.waits;
        }
        assert!(waits > 100, "{waits} waits");
    }
}
