//! Fairness under load, looked at after every settle of every shard: who waits for memory is not
//! forgotten, and is not overtaken for long.
//!
//! A session that waits and holds nothing of its class is served before whoever comes later. Those
//! before it in line are served once, each with what its peer may have outstanding at most, and
//! then stand behind it. So the pool's grants of the class while it waits are bounded by that,
//! whatever load there is and whoever makes it. And while it waits it is granted nothing that it
//! asked for later: else what it holds would never come back.

use std::collections::BTreeMap;

use block::Slot;
use shard::{Shard, Waiter};

/// What is known of a shard's waiters, by class and session.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    seen: BTreeMap<(usize, Slot), Seen>,
}

/// A session that waits, since it last was served.
#[derive(Clone, Copy, Debug)]
struct Seen {
    turns: u64,
    pages: u32,
    /// The grants of its class that it must be served by. None are too many while it holds some.
    limit: u64,
}

impl Fairness {
    /// Looks at a shard that was just settled.
    pub(crate) fn check(&mut self, shard: &mut Shard) {
        let (waiters, granted) = shard.check_lines();
        let before = core::mem::take(&mut self.seen);
        let mut ahead = [0; 2];
        for Waiter { slot, class, pages, turns, entries } in waiters {
            let key = (class, slot);
            let before = before.get(&key).filter(|seen| seen.turns == turns);
            if let Some(seen) = before {
                assert!(pages <= seen.pages, "{slot:?} lets its own commands overtake one in line");
            }
            let mut limit = u64::MAX;
            if pages == 0 {
                limit = before.map_or(u64::MAX, |seen| seen.limit);
                let over = granted[class].saturating_sub(limit);
                assert_eq!(over, 0, "{slot:?} waits for memory, and so many had it out of turn");
                limit = limit.min(granted[class] + ahead[class]);
            }
            self.seen.insert(key, Seen { turns, pages, limit });
            ahead[class] += u64::from(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::seed::run_seed;

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
