//! The instrument `faulty:SEED,URI`: a disk that sometimes fails and sometimes is slow, but never
//! lies about data.
//!
//! | what | how often | how it ends |
//! | --- | --- | --- |
//! | read, compare, verify | 1 in 64 | not carried out, unrecovered read error |
//! | write, write zeroes, discard | 1 in 128 | not carried out, write fault |
//! | the same | 1 in 128 | carried out, but write fault: each block is as before or as asked |
//! | flush | 1 in 256 | not carried out, write fault |
//! | any | 1 in 32 | answered 1 to 50 ms later |
//!
//! The fate of the nth request is a function of the seed and n. With one shard and one request at a
//! time a run repeats exactly; with more, the order in which requests come decides which of them
//! meets which fate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use block::random::Random;
use block::{Failure, Operation, Outcome};

const READ_FAILS: u64 = 64;
const WRITE_FAILS: u64 = 64;
const FLUSH_FAILS: u64 = 256;
const SLOW: u64 = 32;
const SLOW_MS_MAX: u64 = 50;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// What was asked.
    Asked,
    /// It is not carried out, and ends so.
    Refused(Outcome),
    /// It is carried out, and ends so nevertheless.
    Denied(Outcome),
}

/// A seeded source of faults, shared by all shards.
#[derive(Debug)]
pub(super) struct Faulty {
    seed: u64,
    count: AtomicU64,
}

impl Faulty {
    pub(super) fn new(seed: u64) -> Faulty {
        Faulty { seed, count: AtomicU64::new(0) }
    }

    /// The fate of the next request, and by how much its answer is late.
    pub(super) fn fate(&self, operation: &Operation) -> (Fate, Duration) {
        let turn = self.count.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(self.seed ^ turn.wrapping_mul(0xd134_2543_de82_ef95));
        let fault = random.next_u64();
        let slow = match random.chance(1, SLOW) {
            true => Duration::from_millis(1 + random.below(SLOW_MS_MAX)),
            false => Duration::ZERO,
        };
        let fate = match operation {
            Operation::Read { .. }
            | Operation::Compare { .. }
            | Operation::Verify { .. }
            | Operation::Seek { .. }
                if fault.is_multiple_of(READ_FAILS) =>
            {
                Fate::Refused(Outcome::NotDone(Failure::MediumRead))
            }
            Operation::Flush if fault.is_multiple_of(FLUSH_FAILS) => {
                Fate::Refused(Outcome::NotDone(Failure::MediumWrite))
            }
            operation if operation.changes_data() && fault.is_multiple_of(WRITE_FAILS) => {
                let outcome = Outcome::NotDone(Failure::MediumWrite);
                if random.chance(1, 2) { Fate::Refused(outcome) } else { Fate::Denied(outcome) }
            }
            _ => Fate::Asked,
        };
        (fate, slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Extent;

    fn fates(seed: u64) -> Vec<(Fate, Duration)> {
        let faulty = Faulty::new(seed);
        (0..2000)
            .map(|turn| match turn % 3 {
                0 => Operation::Verify { extent: Extent::new(0, 512) },
                1 => Operation::Discard { extents: Vec::new() },
                _ => Operation::Flush,
            })
            .map(|operation| faulty.fate(&operation))
            .collect()
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn every_kind_of_fault_comes_and_most_requests_are_served() {
        let fates = fates(3);
        let count = |wanted: fn(&Fate) -> bool| fates.iter().filter(|(f, _)| wanted(f)).count();
        assert!(count(|fate| matches!(fate, Fate::Denied(_))) > 0);
        assert!(count(|f| matches!(f, Fate::Refused(Outcome::NotDone(Failure::MediumRead)))) > 0);
        assert!(count(|f| matches!(f, Fate::Refused(Outcome::NotDone(Failure::MediumWrite)))) > 0);
        assert!(fates.iter().any(|(_, slow)| !slow.is_zero()));
        assert!(count(|fate| *fate == Fate::Asked) > 1900);
    }
}
