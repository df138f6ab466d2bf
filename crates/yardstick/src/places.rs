//! Which place of a disk is asked for next: at random, or one after the other.
//!
//! A place is as large as a command's data. Filling takes each once and then none.

use crate::Measure;

pub(crate) struct Places {
    count: u64,
    is_random: bool,
    once: bool,
    next: u64,
    seed: u64,
}

impl Places {
    /// Those of load `number`, which draws others than its neighbours.
    pub(crate) fn new(count: u64, measure: &Measure, number: u64) -> Self {
        Self {
            count,
            is_random: measure.rw.is_random() && !measure.fill,
            once: measure.fill,
            next: 0,
            seed: 0x9e37_79b9_7f4a_7c15 ^ (number << 32 | 1),
        }
    }

    /// The next one; none when each had its turn and that is enough.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.is_random {
            // xorshift64*: cheap, and even enough to spread accesses.
            self.seed ^= self.seed >> 12;
            self.seed ^= self.seed << 25;
            self.seed ^= self.seed >> 27;
            let bits = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
            // The high half times the number of places: no division.
            return Some(((u128::from(bits) * u128::from(self.count)) >> 64) as u64);
        }
        if self.next == self.count {
            if self.once {
                return None;
            }
            self.next = 0;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}
